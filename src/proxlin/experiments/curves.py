"""Curves with bands: a panel for each (axis, data set), a line for each method."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

# Okabe and Ito, safe for colour-blind readers; dashes tell them apart without colour
STYLES = (
    *(("#0072B2", "-"), ("#D55E00", "-"), ("#009E73", "--"), ("#CC79A7", "--")),
    *(("#E69F00", "-."), ("#56B4E9", "-."), ("#000000", ":"), ("#999999", ":")),
    *(("#0072B2", ":"), ("#D55E00", ":")),
)
FEW = 20  # points of a curve that are drawn one by one


@dataclass(frozen=True)
class Curve:
    """y against x for one method, a row for each seed."""

    panel: str
    method: str
    x: np.ndarray
    y: np.ndarray
    axis: str


def draw(
    curves: Sequence[Curve],
    ylabel: str = "test loss",
    logarithmic: bool = True,
    floor: tuple[str, float] | None = None,
    shared: bool = False,
) -> Figure:
    """`floor`: a level to draw across every panel, with its name; `shared`: all panels have one y axis."""
    axes, panels = list(dict.fromkeys(c.axis for c in curves)), list(dict.fromkeys(c.panel for c in curves))
    methods = list(dict.fromkeys(c.method for c in curves))
    figure = Figure(figsize=(1.2 + 3.6 * len(panels), 0.7 + 2.7 * len(axes)), layout="constrained")
    grid = figure.subplots(len(axes), len(panels), squeeze=False, sharey=shared)
    for i, axis in enumerate(axes):
        for j, panel in enumerate(panels):
            ax = grid[i][j]
            for curve in (c for c in curves if (c.axis, c.panel) == (axis, panel)):
                colour, dash = STYLES[methods.index(curve.method) % len(STYLES)]
                x, y = curve.x.mean(0), np.where(np.isfinite(curve.y), curve.y, np.nan)
                dots = "." if len(x) <= FEW else None
                ax.plot(x, y.mean(0), dash, color=colour, linewidth=1.4, label=curve.method, marker=dots, markersize=4)
                ax.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.15, linewidth=0)
            if floor is not None:
                ax.axhline(floor[1], color="#333333", linewidth=1.2, linestyle=":", label=floor[0])
            ax.set_xlabel("effective passes" if axis == "passes" else axis, fontsize=8)
            if axis != "passes":
                ax.set_xscale("symlog", linthresh=max(1e-3, _first(curves, axis, panel)))
                ax.set_xlim(left=0)
            if logarithmic:
                ax.set_yscale("log")
            ax.tick_params(labelsize=7, which="both")
            ax.grid(alpha=0.25, linewidth=0.5)
            if i == 0:
                ax.set_title(panel, fontsize=9)
            if j == 0:
                ax.set_ylabel(ylabel, fontsize=8)
    named = {text: line for ax in grid[0] for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    inches = 0.6 + 0.065 * max(map(len, named))  # of an entry of the legend
    columns = max(1, min(len(named), int(figure.get_figwidth() / inches)))
    figure.legend(named.values(), named.keys(), fontsize=8, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _first(curves: Sequence[Curve], axis: str, panel: str) -> float:
    """The least positive x, where a logarithmic axis may start."""
    found = [c.x[c.x > 0].min() for c in curves if (c.axis, c.panel) == (axis, panel) and np.any(c.x > 0)]
    return float(min(found, default=1e-3))
