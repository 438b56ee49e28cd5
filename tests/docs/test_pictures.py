"""Every picture of docs/pictures is drawn by the script, shown by a page, and can be read in the dark."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"!\[([^\]]*)\]\((?:[./\w]*/)?pictures/([\w-]+)\.svg\)")


@pytest.fixture(scope="module")
def draw_pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "draw_pictures", DOCS / "draw_pictures.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def links(page: Path) -> dict[str, str]:
    """The pictures that a page shows, with their words for those who do not see them."""
    return {name: words for words, name in LINK.findall(page.read_text())}


def test_script_files_and_pages_agree(draw_pictures):
    files = {path.stem for path in draw_pictures.PICTURES.iterdir()}
    shown = {}
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        shown |= links(page)
    assert set(draw_pictures.DRAWN) == files == set(shown)
    assert all(len(words.split()) > 5 for words in shown.values())


def test_every_tutorial_has_its_picture():
    for page in sorted((DOCS / "tutorials").glob("*.md")):
        assert page.stem in links(page), f"{page.name} shows no picture of its own."


def test_a_stored_picture_is_safe_and_has_its_dark_style(draw_pictures):
    for path in draw_pictures.PICTURES.iterdir():
        text = path.read_text()
        names = {
            element.tag.rpartition("}")[2]
            for element in ElementTree.fromstring(text).iter()
        }
        assert "script" not in names and "prefers-color-scheme: dark" in text


def test_the_dark_style_reaches_every_colour_that_it_names(draw_pictures):
    """A drawing of today has ink and ground, and the rules of the style are for these."""
    text = draw_pictures.svg(draw_pictures.dask)
    for colour in (draw_pictures.GROUND, draw_pictures.INK):
        assert re.search(f"(fill|stroke): {colour}", text)
        assert f'[style*="fill: {colour}"]' in text
