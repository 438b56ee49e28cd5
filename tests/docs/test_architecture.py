"""The picture of the rooms shows the imports of today, and the map names every room."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def draw_rooms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_rooms", DOCS / "draw_rooms.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_that_of_the_imports(draw_rooms):
    stored = draw_rooms.PICTURE.read_text(encoding="utf-8")
    assert draw_rooms.picture() == stored, (
        "docs/rooms.svg does not show the imports of today. Redraw it with `python docs/draw_rooms.py`, look at it, "
        "and commit it."
    )


def test_the_table_of_floors_names_the_rooms_of_the_picture(draw_rooms):
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| L(\d) \w+ \| ([^|]*) \|", page, re.MULTILINE)
    named = [re.findall(r"`(\w+)`", rooms) for _, rooms in rows]
    assert named == [list(rooms) for _, rooms in draw_rooms.FLOORS]


def test_arrows_that_follow_from_others_are_left_out(draw_rooms):
    pairs = {("cli", "tables"), ("tables", "run"), ("cli", "run"), ("run", "types")}
    assert draw_rooms.arrows(pairs) == [("cli", "tables"), ("tables", "run")]


def test_an_import_that_goes_up_cannot_be_drawn(draw_rooms):
    with pytest.raises(ValueError, match="outers imports run"):
        draw_rooms.arrows({("outers", "run")})


def test_the_files_that_the_map_names_exist():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    package = DOCS.parent / "src" / "proxlin"
    named = set(re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*/[a-z_0-9]+\.py)`", page))
    named |= {f"experiments/{name}" for name in named if name.startswith("engine/")}
    named = {name for name in named if not name.startswith(("docs/", "engine/"))}
    missing = sorted(name for name in named if not (package / name).exists())
    assert named and not missing, (
        f"docs/architecture.md names files that are not there: {', '.join(missing)}."
    )
