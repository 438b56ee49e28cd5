"""The report in a real browser: it loads offline, says its values, switches, sorts, and runs
nothing from the data.
"""

from contextlib import suppress

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from proxlin.data.origin import Origin
from proxlin.experiments.engine.base import Context, Experiment, Result, Verdict
from proxlin.experiments.engine.reproduce import Request, reproduce
from proxlin.experiments.engine.workers import Local
from proxlin.plots.curves import Curve, draw
from proxlin.plots.drawing import Drawing, Point

EVIL = (
    "<script>document.title = 'owned'</script><img src=x onerror=alert(1)> & </script>"
)
MANY = 30  # rows of the table that starts closed


def run(context: Context) -> Result:
    from matplotlib.figure import Figure

    x = np.arange(5.0)
    curves = [
        Curve(
            "a panel",
            method,
            np.stack([x * cost, x * cost]),
            np.stack([scale / (x + 1), scale / (x + 2)]),
            axis,
        )
        for axis, cost in (("passes", 1.0), ("seconds", 0.1))
        for method, scale in (("SGD", 1.0), (EVIL, 3.0))
    ]
    cells = Figure()
    cells.subplots().set(xlim=(0, 2), ylim=(0, 1))
    points = [
        Point(0, 0.5, 0.5, "left cell\n<b>1</b>"),
        Point(0, 1.5, 0.5, "right cell\n2"),
    ]
    values = [9.0, 10.0, float("inf"), None, -1e-9]
    return Result(
        tables={
            "losses": [
                {"i": i, "loss": value, "who": EVIL if i == 0 else f"m{i}"}
                for i, value in enumerate(values)
            ],
            "long": [{"i": i} for i in range(MANY)],
        },
        figures={**draw("curves", curves), "cells": Drawing(cells, points)},
        verdicts=[Verdict("C1", "not reproduced", EVIL, "0.4 to 0.6")],
        notes=[EVIL],
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    data = Origin("stripes", "synthetic", EVIL, "synthetic")
    experiment = Experiment(
        "zebra",
        "A page",
        ("C1",),
        run,
        {"quick": {"sizes": [1, 2]}},
        data=lambda config: (data,),
    )
    request = Request("quick", 0, tmp_path_factory.mktemp("page"), quiet=True)
    return reproduce([experiment], request, lambda text: None, Local(1), 1).resolve()


@pytest.fixture
def visit(browser, file):
    """Open the page in a fresh window; at the end nothing may have gone wrong in it or been
    fetched.
    """
    troubles, fetched, contexts = [], [], []

    def visit(**settings) -> Page:
        contexts.append(browser.new_context(**settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(file.as_uri())
        return page

    yield visit
    for context in contexts:
        with suppress(Exception):
            context.close()
    assert not troubles and set(fetched) == {file.as_uri()}


def hover(page: Page, picture: Locator, x: float, y: float) -> str:
    """Point at (x, y), in 0..1 of the picture's first panel, and read what shows."""
    picture.scroll_into_view_if_needed()
    box = picture.locator("[id$='-panel-0']").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    expect(page.locator(".readout")).to_be_visible()
    return page.locator(".readout").inner_text()


def test_charts_draw_and_hovering_shows_values(visit):
    page = visit()
    expect(page.locator("figure .picture svg")).to_have_count(3)
    cells, curves = (
        page.locator("figure").nth(1).locator(".picture"),
        page.locator("figure").nth(0),
    )
    assert cells.bounding_box()["width"] > 400 and cells.bounding_box()["height"] > 200
    assert (
        hover(page, cells, 0.1, 0.9) == "left cell\n<b>1</b>"
        and hover(page, cells, 0.6, 0.2) == "right cell\n2"
    )
    text = hover(page, curves.locator(".picture").nth(0), 0.95, 0.95)
    assert text == "SGD\n4 effective passes\ntest loss 0.1833 [0.1667, 0.2]"
    page.mouse.move(1, 1)
    expect(page.locator(".readout")).to_be_hidden()


def test_values_by_keyboard(visit):
    page = visit()
    page.locator("figure .picture").nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert (
        page.locator(".readout").inner_text()
        == "SGD\n0 effective passes\ntest loss 0.75 [0.5, 1]"
    )
    page.keyboard.press("ArrowRight")
    assert "1 effective passes" in page.locator(".readout").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator(".readout").inner_text().startswith(EVIL)
    page.keyboard.press("Escape")
    expect(page.locator(".readout")).to_be_hidden()


def test_the_switch_and_the_enlarged_figure(visit):
    page = visit()
    figure = page.locator("figure").nth(0)
    passes, seconds = figure.locator(".view").nth(0), figure.locator(".view").nth(1)
    expect(passes).to_be_visible()
    expect(seconds).to_be_hidden()
    figure.get_by_role("button", name="seconds").press("Enter")
    expect(passes).to_be_hidden()
    expect(figure.get_by_role("button", name="seconds")).to_have_attribute(
        "aria-pressed", "true"
    )
    assert "seconds\ntest loss" in hover(page, seconds.locator(".picture"), 0.9, 0.9)
    figure.get_by_role("button", name="Enlarge").click()
    dialog = page.get_by_role("dialog")
    picture = dialog.locator(".picture")
    before = picture.bounding_box()["width"]
    page.keyboard.press("+")
    assert picture.bounding_box()["width"] > 1.3 * before
    assert "seconds\ntest loss" in hover(page, picture, 0.3, 0.3)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(seconds).to_be_visible()


def test_tables_sort_and_long_ones_are_closed(visit):
    page = visit()
    table = page.locator("table.sorts").filter(has_text="loss").nth(-1)
    column = lambda: [
        cell.strip()
        for cell in table.locator("tbody tr td:nth-child(2)").all_inner_texts()
    ]
    loss = table.get_by_role("button", name="loss")
    loss.click()
    assert column() == ["-1e-09", "9", "10", "inf", ""]
    loss.press("Enter")
    assert column() == ["inf", "10", "9", "-1e-09", ""]
    expect(table.locator("th").nth(1)).to_have_attribute("aria-sort", "descending")
    closed = page.locator("details", has_text=f"{MANY} rows")
    expect(closed.locator("table")).to_be_hidden()
    closed.locator("summary").press("Enter")
    expect(closed.locator("table")).to_be_visible()


def test_text_from_data_is_text(visit):
    page = visit()
    assert page.title() == "proxlin: report"
    assert EVIL in page.locator("table", has_text="loss").last.inner_text()
    assert page.locator("main script:not([type='application/json'])").count() == 0
    assert page.locator("img[src=x]").count() == 0


def test_a_verdict_on_a_stand_in_is_none_and_a_quick_profile_is_named(visit):
    page = visit()
    expect(page.locator("td.verdict")).to_have_text("not judged (synthetic)")
    expect(page.locator("main")).to_contain_text("stripes (synthetic)")
    expect(
        page.locator(".warning", has_text="a smoke test of the code").first
    ).to_be_visible()


def test_dark_and_light(visit):
    ground = lambda page: page.evaluate(
        "getComputedStyle(document.body).backgroundColor"
    )
    light, dark = "rgb(255, 255, 255)", "rgb(13, 17, 23)"
    page = visit(color_scheme="dark")
    assert ground(page) == dark
    page.get_by_role("button", name="Switch to the light theme").click()
    assert ground(page) == light
    page.reload()
    assert ground(page) == light  # it is kept
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("delete document.documentElement.dataset.theme")
    assert ground(page) == light
    # paper has no switch
    expect(page.locator("figure").nth(0).locator(".view").nth(1)).to_be_visible()


def test_a_phone_does_not_scroll_sideways(visit):
    page = visit(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.locator("figure .picture").nth(2).locator("[id$='-panel-0']").tap()
    expect(page.locator(".readout")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
