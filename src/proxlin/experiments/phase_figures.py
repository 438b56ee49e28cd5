"""The figures of the study `phase`: shares of successes with intervals, errors along exact steps, and an image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..plots.drawing import Drawing, Point
from ..plots.style import LINES, WIDTH, styled

AXES = {"ratio": "measurements for each unknown, m/n", "corruption": "gross errors, %"}
SCALES = {"ratio": 1.0, "corruption": 100.0}
HEIGHT = 1.9  # inches of a panel
LEAST = 1e-17  # an error of exactly 0 is drawn here

Rows = Sequence[Mapping[str, Any]]


@styled
def draw_shares(rows: Rows, axis: str) -> Drawing:
    """Draw the share of successes over an axis: a line of panels for each arena, a column for each kind of start."""
    arenas = list(dict.fromkeys(row["arena"] for row in rows))
    starts = list(dict.fromkeys(row["start"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figure = Figure(figsize=(WIDTH, 0.5 + HEIGHT * len(arenas)), layout="constrained")
    grid = figure.subplots(len(arenas), len(starts), squeeze=False, sharey=True)
    points: list[Point] = []
    for i, arena in enumerate(arenas):
        for j, start in enumerate(starts):
            ax = grid[i, j]
            if not any((row["arena"], row["start"]) == (arena, start) for row in rows):
                ax.set_axis_off()
                continue
            ax.set_title(f"{arena.replace('-', ' ')}, {start} start")
            ax.set_ylim(-0.04, 1.04)
            ax.grid(alpha=0.25, linewidth=0.5)
            for number, method in enumerate(methods):
                mine = [
                    row
                    for row in rows
                    if (row["arena"], row["start"], row["method"])
                    == (arena, start, method)
                ]
                mine.sort(key=lambda row: row[axis])
                _draw_share(ax, mine, axis, number, len(methods))
                points += _texts(mine, axis, i * len(starts) + j)
    for ax in grid[-1]:
        ax.set_xlabel(AXES[axis])
    for ax in grid[:, 0]:
        ax.set_ylabel("recovered")
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), frameon=False
    )
    return Drawing(figure, points)


def _draw_share(ax: Axes, rows: Rows, axis: str, number: int, methods: int) -> None:
    """Draw one method; the bars of several are moved apart, so that each can be seen."""
    x = SCALES[axis] * np.array([row[axis] for row in rows])
    if not len(x):
        return
    share = np.array([row["share"] for row in rows])
    low = np.array([row["low"] for row in rows])
    high = np.array([row["high"] for row in rows])
    width = np.ptp(x)
    if not width:
        # the axis of a single point would end at the distances of the bars
        width = 1.0
        ax.set_xlim(x[0] - 0.5, x[0] + 0.5)
    colour, dash = LINES[number]
    ax.errorbar(
        x + 0.008 * width * (number - (methods - 1) / 2),
        share,
        [share - low, high - share],
        linestyle=dash,
        marker="o",
        markersize=2.5,
        linewidth=1,
        elinewidth=0.7,
        color=colour,
        label=rows[0]["method"],
    )


def _texts(rows: Rows, axis: str, panel: int) -> list[Point]:
    return [
        Point(
            panel,
            SCALES[axis] * row[axis],
            row["share"],
            f"{row['method']}\n{SCALES[axis] * row[axis]:g} {AXES[axis]}\n{row['successes']} of {row['trials']} "
            f"[{row['low']:.3f}, {row['high']:.3f}]",
        )
        for row in rows
    ]


@styled
def draw_convergence(rows: Rows) -> Drawing:
    """Draw the error after each exact step, and that against the error before: a slope of 2 is quadratic."""
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, noise in enumerate(dict.fromkeys(row["noise"] for row in rows)):
        mine = [row for row in rows if row["noise"] == noise]
        errors = np.maximum([row["error"] for row in mine], LEAST)
        colour, dash = LINES[number]
        name = f"noise {noise:g}" if noise else "no noise"
        look = {"linestyle": dash, "marker": ".", "markersize": 4, "color": colour}
        left.plot(errors, label=name, **look)
        right.plot(errors[:-1], errors[1:], **look)
    guide = np.geomspace(1e-8, 1, 50)
    right.plot(guide, guide**2, ":", color="0.5", linewidth=0.8, label="slope 2")
    left.set(yscale="log", xlabel="exact prox-linear steps", ylabel="relative error")
    right.set(
        xscale="log",
        yscale="log",
        xlabel="relative error",
        ylabel="relative error one step later",
    )
    for ax in (left, right):
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.legend(frameon=False)
    return Drawing(figure)


@styled
def draw_image(
    image: np.ndarray, start: np.ndarray, recovered: np.ndarray, error: float
) -> Drawing:
    """Draw the image, the spectral start and what was recovered, in one scale of grey."""
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    titles = ("the image", "spectral start", f"recovered, error {error:.1g}")
    for ax, shown, title in zip(
        figure.subplots(1, 3), (image, start, recovered), titles, strict=True
    ):
        ax.imshow(shown, cmap="gray", vmin=0, vmax=image.max(), interpolation="nearest")
        ax.set_title(title)
        ax.set_axis_off()
    return Drawing(figure)
