"""Four pictures of a fit: fitted against true, residuals against fitted, residuals against the
distance of the features, and the largest effects.

No row is left out of sight: one that lies outside of a panel is a triangle at its edge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import printable
from .drawing import Point
from .style import BLUE, GREY, LIGHT, ORANGE, WIDTH, styled

NAMED = 8  # suspects whose row is written beside them
EFFECTS = 6  # features in the panel of effects
USUAL = 2.5  # scaled residuals within which rows are usual
PANEL = (190.0, 150.0)  # points, about
NAME = (14.0, 6.5)  # points of a row number
LONGEST = 24  # characters of a name


@dataclass(frozen=True)
class Rows:
    """What is drawn of one target: row numbers, values, and which rows are suspects."""

    target: str
    rows: Int[np.ndarray, " m"]
    y: Float[np.ndarray, " m"]
    fitted: Float[np.ndarray, " m"]
    scale: float
    distance: Float[np.ndarray, " m"]
    limit: float
    suspect: Bool[np.ndarray, " m"]

    @property
    def scaled(self) -> Float[np.ndarray, " m"]:
        return (self.y - self.fitted) / self.scale


@styled
def draw(
    targets: Sequence[Rows], effects: Sequence[Mapping[str, Any]]
) -> tuple[Figure, list[Point]]:
    """Return four panels for each target, and what hovering over a row tells."""
    lines = 2 * len(targets)
    figure = Figure(figsize=(WIDTH, 2.7 * lines), layout="constrained")
    panels = figure.subplots(lines, 2, squeeze=False).ravel()
    points = []
    for number, one in enumerate(targets):
        first = 4 * number
        points += _fitted(panels[first], first, one)
        points += _residuals(panels[first + 1], first + 1, one)
        points += _leverage(panels[first + 2], first + 2, one)
        own = [each for each in effects if each["target"] == one.target]
        _effects(panels[first + 3], own, one.target)
    return figure, points


def _fitted(axes: Axes, panel: int, one: Rows) -> list[Point]:
    limits = middle(np.concatenate([one.y, one.fitted]))
    axes.plot(limits, limits, color=LIGHT, linewidth=0.8)
    axes.set(xlabel=f"fitted {plain(one.target)}", ylabel=f"true {plain(one.target)}")
    return _rows(axes, panel, one, one.fitted, one.y, limits, limits)


def _residuals(axes: Axes, panel: int, one: Rows) -> list[Point]:
    axes.axhline(0, color=LIGHT, linewidth=0.8)
    for end in (-USUAL, USUAL):
        axes.axhline(end, color=LIGHT, linewidth=0.8, linestyle="--")
    axes.set(xlabel=f"fitted {plain(one.target)}", ylabel="residual / sigma")
    return _rows(
        axes,
        panel,
        one,
        one.fitted,
        one.scaled,
        middle(one.fitted),
        _around(one.scaled),
    )


def _leverage(axes: Axes, panel: int, one: Rows) -> list[Point]:
    for end in (-USUAL, USUAL):
        axes.axhline(end, color=LIGHT, linewidth=0.8, linestyle="--")
    high = float(one.distance.max(initial=0))
    if np.isfinite(one.limit):
        axes.axvline(one.limit, color=LIGHT, linewidth=0.8, linestyle="--")
        # one row that is far beyond all others would press them to the edge
        high = float(np.clip(high, 1.2 * one.limit, 4 * one.limit))
    axes.set(xlabel="robust distance of the features", ylabel="residual / sigma")
    across = (0.0, 1.05 * high or 1.0)
    return _rows(
        axes, panel, one, one.distance, one.scaled, across, _around(one.scaled)
    )


def _rows(
    axes: Axes,
    panel: int,
    one: Rows,
    x: np.ndarray,
    y: np.ndarray,
    across: tuple[float, float],
    up: tuple[float, float],
) -> list[Point]:
    """Draw rows as circles, suspects as crosses with their numbers, and what is outside at the edge."""
    a = np.clip(x, *across)
    b = np.clip(y, *up)
    inside = (a == x) & (b == y)
    for which, mark, colour in (
        (~one.suspect, "o", BLUE),
        (one.suspect, "x", ORANGE),
    ):
        here = which & inside
        axes.plot(a[here], b[here], mark, color=colour, markersize=3, fillstyle="none")
        for side, there in outside_of(x, y, across, up).items():
            out = which & there
            (marks,) = axes.plot(
                a[out], b[out], side, color=colour, markersize=5, clip_on=False
            )
            marks.set_in_layout(False)
    order = np.argsort(-np.abs(one.scaled), kind="stable")
    axes.set(xlim=across, ylim=up)
    named = [i for i in order if one.suspect[i]][:NAMED]
    _name(axes, [(float(a[i]), float(b[i]), str(one.rows[i])) for i in named])
    texts = [
        f"row {row}: true {true:.5g}, fitted {found:.5g}, residual {t:.3g} sigma, distance {d:.3g}"
        for row, true, found, t, d in zip(
            one.rows, one.y, one.fitted, one.scaled, one.distance, strict=True
        )
    ]
    return [Point(panel, *each) for each in zip(a, b, texts, strict=True)]


def _name(axes: Axes, marks: Sequence[tuple[float, float, str]]) -> None:
    """Write names beside marks: inside of the frame, and where a name is already, above or below it."""
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    taken = []
    for x, y, name in marks:
        # in points, as in a panel of the usual size
        across = (x - left) / (right - left) * PANEL[0]
        up = (y - low) / (high - low) * PANEL[1]
        beyond = across > PANEL[0] - NAME[0]
        across += -NAME[0] if beyond else 3
        # upwards where there is room
        step = NAME[1] if up < PANEL[1] / 2 else -NAME[1]
        start = up
        up += 2
        while any(
            abs(across - p) < NAME[0] and abs(up - q) < NAME[1] for p, q in taken
        ):
            up += step
        taken.append((across, up))
        axes.annotate(
            name,
            (x, y),
            (-4 if beyond else 3, up - start),
            textcoords="offset points",
            ha="right" if beyond else "left",
            size=6,
        )


def outside_of(
    x: np.ndarray, y: np.ndarray, across: tuple[float, float], up: tuple[float, float]
) -> dict[str, np.ndarray]:
    """Return for each marker, a triangle that points to where they are, the rows outside of the
    frame on that side.
    """
    beside = (x > across[1]) | (x < across[0])
    return {
        ">": x > across[1],
        "<": x < across[0],
        "^": ~beside & (y > up[1]),
        "v": ~beside & (y < up[0]),
    }


def _effects(axes: Axes, effects: Sequence[Mapping[str, Any]], target: str) -> None:
    """Draw how the prediction moves over the range of each of the features that move it most."""
    largest = sorted(effects, key=lambda each: -each["size"])[:EFFECTS]
    names = []
    for place, each in enumerate(reversed(largest)):
        mean = np.asarray(each["mean"])
        away = mean - mean.mean()
        names.append(plain(each["feature"]))
        axes.plot([away.min(), away.max()], [place, place], color=BLUE, linewidth=1.5)
        if isinstance(each["at"][0], str):
            axes.plot(away, np.full(len(away), place), "|", color=BLUE)
            continue
        rising = away[-1] >= away[0]
        axes.plot(away[-1], place, ">" if rising else "<", color=BLUE, markersize=5)
    axes.axvline(0, color=GREY, linewidth=0.6)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel=f"change of {plain(target)} over the usual range of a feature")
    axes.margins(y=0.15)


def middle(values: Float[np.ndarray, " m"]) -> tuple[float, float]:
    """Return limits about all but the outliers: three interquartile ranges around the middle half."""
    low, high = np.quantile(values, [0.25, 0.75])
    away = 3 * (high - low) or 1.0
    inside = values[(values >= low - away) & (values <= high + away)]
    margin = 0.05 * (np.ptp(inside) or 1.0)
    return float(inside.min() - margin), float(inside.max() + margin)


def _around(scaled: np.ndarray) -> tuple[float, float]:
    """Return limits of scaled residuals that show the usual ones, and others up to ten."""
    high = float(np.clip(np.abs(scaled).max(initial=0) * 1.1, 1.3 * USUAL, 10.0))
    return -high, high


def plain(name: str) -> str:
    """Return a name in which Matplotlib reads no mathematics between signs of $, with control
    characters as escapes: an SVG cannot hold them, and a warning about glyphs would print them.
    """
    short = printable(name)
    if len(short) > LONGEST:
        short = short[: LONGEST - 1] + "…"
    return short.replace("$", r"\$")
