"""Curves with bands: a figure for each axis, a panel in it for each data set, a line for each method."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .drawing import Drawing, Point
from .pages import Row
from .style import GREY, LINES, WIDTH, styled

FEW = 20  # points of a curve that are drawn one by one
UNITS = {"passes": "effective passes"}


@dataclass(frozen=True)
class Curve:
    """y against x for one method, a row for each seed."""

    panel: str
    method: str
    x: np.ndarray
    y: np.ndarray
    axis: str

    def points(self, number: int, ylabel: str) -> list[Point]:
        """What the page says over each point of the line: method, cost, mean and range."""
        x, y = self.x.mean(0), self.y
        return [
            Point(
                *(number, float(x[i]), float(y[:, i].mean())),
                f"{self.method}\n{x[i]:.4g} {UNITS.get(self.axis, self.axis)}\n"
                f"{ylabel} {y[:, i].mean():.4g} [{y[:, i].min():.4g}, {y[:, i].max():.4g}]",
            )
            for i in range(len(x))
        ]


def rows(curves: Sequence[Curve], axis: str) -> list[Row]:
    """The table behind the figure of an axis: the mean and the range of the seeds at each point."""
    return [
        {"panel": curve.panel, "method": curve.method, axis: float(x)}
        | {"mean": float(y.mean()), "low": float(y.min()), "high": float(y.max())}
        for curve in curves
        if curve.axis == axis
        for x, y in zip(curve.x.mean(0), curve.y.T, strict=True)
    ]


def draw(
    name: str,
    curves: Sequence[Curve],
    ylabel: str = "test loss",
    logarithmic: bool = True,
    floor: tuple[str, float] | None = None,
    shared: bool = False,
) -> dict[str, Drawing]:
    """The figures name-passes and name-seconds, one for each axis of the curves, which the page switches between.

    `floor`: a level to draw across every panel, with its name; `shared`: all panels have one y axis.
    """
    drawings = {}
    for axis in dict.fromkeys(curve.axis for curve in curves):
        mine = [curve for curve in curves if curve.axis == axis]
        panels = list(dict.fromkeys(curve.panel for curve in mine))
        points = [p for curve in mine for p in curve.points(panels.index(curve.panel), ylabel)]
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
    methods, columns = list(dict.fromkeys(curve.method for curve in curves)), min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, 0.6 + (2.6 if columns < 3 else 2.1) * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=shared).ravel()
    for ax in grid[len(panels) :]:
        ax.set_axis_off()
    for j, (ax, panel) in enumerate(zip(grid, panels, strict=False)):
        mine = [curve for curve in curves if curve.panel == panel]
        for curve in mine:
            _plot(ax, curve, *LINES[methods.index(curve.method) % len(LINES)])
        if floor is not None:
            ax.axhline(floor[1], color=GREY, linestyle=":", label=floor[0])
        _scale(ax, mine, logarithmic)
        ax.set(title=panel, xlabel=UNITS.get(curves[0].axis, curves[0].axis), ylabel="" if j % columns else ylabel)
        ax.grid(alpha=0.25, linewidth=0.5)
    named = {text: line for ax in grid for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    lines = math.ceil(sum(0.55 + 0.058 * len(text) for text in named) / WIDTH)  # of the legend, in inches
    columns = math.ceil(len(named) / lines)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _plot(ax: Axes, curve: Curve, colour: str, dash: str) -> None:
    x, y = curve.x.mean(0), np.where(np.isfinite(curve.y), curve.y, np.nan)
    dots = "." if len(x) <= FEW else None
    ax.plot(x, y.mean(0), dash, color=colour, label=curve.method, marker=dots, markersize=4)
    ax.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.15, linewidth=0)


def _scale(ax: Axes, curves: Sequence[Curve], logarithmic: bool) -> None:
    if curves[0].axis != "passes":
        first = min((c.x[c.x > 0].min() for c in curves if np.any(c.x > 0)), default=1e-3)
        ax.set_xscale("symlog", linthresh=max(1e-3, float(first)))
        ax.set_xlim(left=0)
    if logarithmic:
        ax.set_yscale("log")
