"""Curves with bands: a figure for each axis, a panel in it for each data set, a line for each
method.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .drawing import Drawing, Point
from .pages import Row
from .style import GREY, LINES, WIDTH, styled

FEW = 20  # points; a curve of so many has a dot at each of them
UNITS = {"passes": "effective passes"}
COLUMNS = 3  # panels side by side


@dataclass(frozen=True)
class Curve:
    """y against x for one method, a row for each seed."""

    panel: str
    method: str
    x: np.ndarray
    y: np.ndarray
    axis: str

    @property
    def unit(self) -> str:
        """Return the x axis in words."""
        return UNITS.get(self.axis, self.axis)

    def points(self, number: int, ylabel: str) -> list[Point]:
        """Return what the page says over each point of the line: method, cost, mean and range."""
        found = []
        for x, y in zip(self.x.mean(0), self.y.T, strict=True):
            mean = y.mean()
            text = f"{self.method}\n{x:.4g} {self.unit}\n{ylabel} {mean:.4g} [{y.min():.4g}, {y.max():.4g}]"
            found.append(Point(number, float(x), float(mean), text))
        return found


def rows(curves: Sequence[Curve], axis: str) -> list[Row]:
    """Return the table behind the figure of an axis: the mean and the range of the seeds at each
    point.
    """
    found = []
    for curve in curves:
        if curve.axis != axis:
            continue
        for x, y in zip(curve.x.mean(0), curve.y.T, strict=True):
            row = {"panel": curve.panel, "method": curve.method, axis: float(x)}
            found.append(
                row
                | {
                    "mean": float(y.mean()),
                    "low": float(y.min()),
                    "high": float(y.max()),
                }
            )
    return found


def draw(
    name: str,
    curves: Sequence[Curve],
    ylabel: str = "test loss",
    logarithmic: bool = True,
    floor: tuple[str, float] | None = None,
    shared: bool = False,
) -> dict[str, Drawing]:
    """Return the figures name-passes and name-seconds, one for each axis of the curves, as one
    switch on the page.

    `floor` is a level to draw across every panel, with its name; `shared` gives all panels one y axis.
    """
    drawings = {}
    for axis in dict.fromkeys(curve.axis for curve in curves):
        mine = [curve for curve in curves if curve.axis == axis]
        panels = list(dict.fromkeys(curve.panel for curve in mine))
        points = []
        for curve in mine:
            points += curve.points(panels.index(curve.panel), ylabel)
        figure = _figure(mine, panels, ylabel, logarithmic, floor, shared)
        drawings[f"{name}-{axis}"] = Drawing(figure, points, name, axis)
    return drawings


@styled
def _figure(
    curves: Sequence[Curve],
    panels: Sequence[str],
    ylabel: str,
    logarithmic: bool,
    floor: tuple[str, float] | None,
    shared: bool,
) -> Figure:
    methods = list(dict.fromkeys(curve.method for curve in curves))
    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    # inches of a panel, which is wider where there are fewer
    height = 2.1 if columns == COLUMNS else 2.6
    figure = Figure(figsize=(WIDTH, 0.6 + height * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=shared).ravel()
    for ax in grid[len(panels) :]:
        ax.set_axis_off()
    for number, (ax, panel) in enumerate(zip(grid, panels, strict=False)):
        mine = [curve for curve in curves if curve.panel == panel]
        for curve in mine:
            colour, dash = LINES[methods.index(curve.method) % len(LINES)]
            _plot(ax, curve, colour, dash)
        if floor is not None:
            ax.axhline(floor[1], color=GREY, linestyle=":", label=floor[0])
        _scale(ax, mine, logarithmic)
        ax.set(title=panel, xlabel=curves[0].unit)
        if number % columns == 0:
            ax.set(ylabel=ylabel)
        ax.grid(alpha=0.25, linewidth=0.5)
    _legend(figure, grid)
    return figure


def _legend(figure: Figure, grid: Iterable[Axes]) -> None:
    """Put the names of all lines below the panels, in as few lines as they fit into."""
    named = {}
    for ax in grid:
        handles, texts = ax.get_legend_handles_labels()
        named |= dict(zip(texts, handles, strict=True))
    # of a handle, and of a letter in this font
    inches = sum(0.55 + 0.058 * len(text) for text in named)
    lines = math.ceil(inches / WIDTH)
    columns = math.ceil(len(named) / lines)
    figure.legend(
        named.values(),
        named.keys(),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )


def _plot(ax: Axes, curve: Curve, colour: str, dash: str) -> None:
    """Draw the mean of the seeds as a line and their range as a band."""
    x = curve.x.mean(0)
    y = np.where(np.isfinite(curve.y), curve.y, np.nan)
    marker = "." if len(x) <= FEW else None
    ax.plot(
        x,
        y.mean(0),
        dash,
        color=colour,
        label=curve.method,
        marker=marker,
        markersize=4,
    )
    ax.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.15, linewidth=0)


def _scale(ax: Axes, curves: Sequence[Curve], logarithmic: bool) -> None:
    if curves[0].axis != "passes":
        positive = [
            curve.x[curve.x > 0].min() for curve in curves if np.any(curve.x > 0)
        ]
        first = float(min(positive, default=1e-3))
        # below a millisecond the clock tells nothing
        ax.set_xscale("symlog", linthresh=max(1e-3, first))
        ax.set_xlim(left=0)
    if logarithmic:
        ax.set_yscale("log")
