"""A figure with texts over its points, and its files."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The metadata that would hold a date, for each kind of file.
UNDATED: dict[str, dict[str, None]] = {
    "svg": {"Date": None},
    "png": {},
    "pdf": {"CreationDate": None},
}


@dataclass(frozen=True)
class Point:
    """A text that the page shows over (x, y), in the units of the data, of a panel: its number in
    `figure.axes`.
    """

    panel: int
    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Drawing:
    """A figure with texts over its points; the page has one switch between the drawings of a
    `group`, by `label`.
    """

    figure: "Figure"
    points: Sequence[Point] = ()
    group: str = ""
    label: str = ""


def figure_files(figure: "Figure") -> dict[str, bytes]:
    """Return a figure as SVG, PNG and PDF, the same bytes for the same figure (no dates, no random
    ids).

    In the SVG the background of the panel `figure.axes[i]` has the id panel-i.
    """
    import matplotlib

    for number, axes in enumerate(figure.axes):
        axes.patch.set_gid(f"panel-{number}")
    contents = {}
    with matplotlib.rc_context({"svg.hashsalt": "proxlin"}):
        for kind, metadata in UNDATED.items():
            buffer = io.BytesIO()
            figure.savefig(
                buffer, format=kind, metadata=metadata, bbox_inches="tight", dpi=200
            )
            contents[kind] = buffer.getvalue()
    return contents


def stamp(figure: "Figure", text: str) -> None:
    """Write a caveat above a figure, so that it stays with the figure wherever that is shown."""
    # not below, where legends move to the edge
    figure.text(0.5, 1.0, text, ha="center", va="bottom", fontsize=6)


def placed(
    figure: "Figure", points: Sequence[Point]
) -> list[tuple[int, float, float, str]]:
    """Return the points that can be seen as (panel, x, y, text), x and y in 0..1 of the panel: no
    layout moves them.
    """
    seen = []
    for point in points:
        axes = figure.axes[point.panel]
        axes.viewLim  # noqa: B018 - brings the limits up to date
        on_screen = axes.transData.transform((point.x, point.y))
        x, y = axes.transAxes.inverted().transform(on_screen)
        if 0 <= x <= 1 and 0 <= y <= 1:  # which nan and inf are not
            seen.append(
                (point.panel, round(float(x), 4), round(float(y), 4), point.text)
            )
    return seen
