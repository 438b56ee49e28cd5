"""The site in a real browser, opened from disk: it fetches nothing, its search answers, its formulas are
drawn, and a phone does not scroll sideways.
"""

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

ROOT = Path(__file__).parents[2]
PAGES = (
    "index.html",
    "coming-from.html",
    "notation.html",
    "theory.html",
    "notebooks/first-steps.html",
    "tutorials/equations.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    run = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture
def visit(browser, site):
    """Open a page from disk; at the end nothing may have gone wrong in it or come from elsewhere."""
    troubles, fetched, contexts = [], [], []

    def visit(name: str, **settings):
        contexts.append(browser.new_context(**settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto((site / name).as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not troubles
    assert fetched and all(url.startswith(("file:", "data:")) for url in fetched)


@pytest.mark.parametrize("start", ["index.html", "tutorials/equations.html"])
def test_search_answers_from_disk(visit, site, start):
    page = visit(start)
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("bootstrap")
    found = page.locator(".md-search-result__item").first
    expect(found).to_contain_text("bootstrap", ignore_case=True)
    found.get_by_role("link").first.click()
    page.wait_for_url(
        lambda url: url.startswith((site / "api/inference.html").as_uri())
    )
    expect(page.locator("h1")).to_contain_text("Inference")


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_does_not_scroll_sideways_and_pictures_load(visit, name):
    page = visit(name, viewport={"width": 390, "height": 800}, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    empty = "[...document.images].filter(image => !image.naturalWidth).length"
    assert page.evaluate(empty) == 0


def test_code_blocks_end_where_they_should(site):
    """A fence that mkdocs does not know would swallow the rest of the page."""
    for page in sorted(site.rglob("*.html")):
        assert "```" not in page.read_text(), page.name


def test_formulas_are_drawn(visit):
    page = visit("theory.html")
    formulas = page.locator(".formula > math")
    assert formulas.count() > 5
    assert all(formula.bounding_box()["height"] > 20 for formula in formulas.all())
    assert "arithmatex" not in page.content() and "$$" not in page.inner_text("article")


def test_pictures_follow_the_switch_of_the_page(visit):
    """Also where the system says otherwise."""

    def ground() -> int:
        """The least light of the pixels along the left edge of the first picture."""
        with Image.open(
            BytesIO(page.locator("article img").first.screenshot())
        ) as image:
            grey = image.convert("L")
            return min(grey.getpixel((2, y)) for y in range(40, grey.height - 40))

    page = visit("index.html", color_scheme="light")
    assert ground() > 200
    page.get_by_title("Switch to dark").click()
    expect(page.locator("body")).to_have_css("background-color", "rgb(30, 33, 41)")
    assert ground() < 60
