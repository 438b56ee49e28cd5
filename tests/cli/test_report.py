"""`proxlin report` and the page itself: one file that needs no other, with every text escaped."""

import base64
import hashlib
import html.parser
import re
import shutil

import pytest

from proxlin.experiments.engine import report


class Page(html.parser.HTMLParser):
    """Collects what a browser would fetch or run, and the text it would show."""

    def __init__(self, text: str):
        super().__init__()
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [
            value
            for name, value in attrs
            if name in ("src", "href", "action", "srcset", "data")
        ]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return tmp_path_factory.mktemp("stored")


@pytest.fixture
def results(stored, cli):
    if not (stored / "report.html").exists():
        cli("reproduce", "aardvark", "--out", stored)
    return stored


def test_the_page_needs_no_other_file(results):
    text = (results / "report.html").read_text()
    page = Page(text)
    assert page.references and all(
        value.startswith(("#", "data:image/svg+xml;base64,"))
        for value in page.references
    )
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    assert "@import" not in text and "http:" not in text and "https:" not in text
    assert set(re.findall(r"url\(.", text)) == {"url(#"}


def test_only_the_script_of_the_package_may_run(results):
    text = (results / "report.html").read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in text and "default-src 'none'" in text
    assert set(re.findall("<script([^>]*)>", text)) == {"", ' type="application/json"'}


def test_the_page_says_what_was_found(results):
    shown = Page((results / "report.html").read_text()).text
    for part in (
        "A toy",
        "not resolved",
        "0.4 to 0.6",
        "near kinks",
        "A warning.",
        "alert('x')",
        "jaxlib",
        "quick",
    ):
        assert part in shown, part


def test_the_page_of_nothing_says_so():
    shown = Page(report.page([])).text
    assert (
        "No experiment has been run yet" in shown
        and "No claim has been judged" in shown
    )


def test_report_writes_the_same_files_again(results, cli, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy(results / "results.sqlite", folder)
    code, out, _ = cli("report", folder)
    assert code == 0 and out == f"Report: {folder}/report.html\n"
    for path in results.rglob("*.*"):
        if path.is_file() and path.name != ".lock" and path.suffix != ".sqlite":
            assert (
                folder / path.relative_to(results)
            ).read_bytes() == path.read_bytes(), path


def test_report_refuses_a_folder_without_results(refused, tmp_path):
    assert "results.sqlite" in refused("report", tmp_path)
    assert "results.sqlite" in refused("report", tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []
