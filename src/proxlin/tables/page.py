"""What a fit leaves in its folder: the model, its metrics and settings as tables, figures, and the page."""

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..files.writing import Content, write_folder
from ..plots.drawing import Point, figure_files, placed
from ..plots.pages import csv_bytes, render
from ..plots.style import BLUE, ORANGE, WIDTH, styled
from .fit import ENOUGH, NAMES, Report
from .model import Asked
from .standardize import NORMAL

PAGE, MODEL = "report.html", "model.npz"
SHOWN = 500  # held-out rows in the figure of a target; more hide each other
PANELS = 4  # targets with a panel of their own


def write(out: Path, source: str, report: Report) -> Path:
    """Every file, or none; returns the path of the page."""
    figure, points = draw(report)
    pictures = figure_files(figure)
    picture = {"svg": base64.b64encode(pictures["svg"]).decode(), "points": placed(figure, points)}
    about = report.model.about
    data = {"asked": dataclasses.asdict(report.model.asked), "notes": report.notes} | about
    page = render(
        "fit.html",
        source=source,
        asked=_asked(source, report),
        headline=headline(report),
        metrics=[_short(row) for row in report.metrics],
        path=report.path,
        notes=report.notes,
        picture=picture,
        left=max(0, len(report.model.asked.targets) - PANELS),
        shown=SHOWN if len(report.truth) > SHOWN else None,
        why_none=without_interval(about["held_out"]) if about["held_out"] < ENOUGH else None,
    )
    files: dict[str, Content] = {"metrics.csv": csv_bytes(report.metrics), "settings.csv": csv_bytes(report.path)}
    files |= {"metrics.json": (json.dumps(data, indent=1) + "\n").encode(), PAGE: page.encode()}
    files |= {f"figures/held-out.{suffix}": content for suffix, content in pictures.items()}
    write_folder(out, files | {MODEL: report.model.packed()})  # the model last: it is what the others are about
    return out / PAGE


def headline(report: Report) -> list[str]:
    """A sentence for each target."""
    lines, name = [], "over least squares"
    for row in report.metrics:
        if row["loss"] == NAMES["squared"]:
            continue
        error = f"{row['target']}: the mean absolute error on held-out rows, {row['mean absolute error']:.4g}, is"
        if row[f"{name} low"] is None:
            word = "smaller" if row[name] < 1 else "larger"
            lines.append(
                f"{error} {abs(row[name] - 1):.1%} {word} than that of least squares, which may be chance: "
                f"{without_interval(report.model.about['held_out'])}."
            )
            continue
        low, high = row[f"{name} low"] - 1, row[f"{name} high"] - 1
        word = "smaller than" if high < 0 else "larger than" if low > 0 else "not distinguishable from"
        lines.append(
            f"{error} {word} that of least squares ({row[name] - 1:+.1%}, 95 % interval {low:+.1%} to {high:+.1%})."
        )
    return lines


def without_interval(held_out: int) -> str:
    """Why there is no interval."""
    if held_out < ENOUGH:
        return f"an interval needs {ENOUGH} held-out rows and there are {held_out}"
    return "too few of the errors are above 0"


def _asked(source: str, report: Report) -> dict[str, Any]:
    asked, about = report.model.asked, report.model.about
    chosen = about["settings"]
    network = f"the mean of {report.model.fits} networks of {asked.hidden} hidden units with a linear part"
    return {
        "file": source,
        "targets": ", ".join(asked.targets),
        "rows": f"{about['rows']}, of which {about['held_out']} were held out for the errors below",
        "loss": _loss(asked, about),
        "model": network if chosen["start"] else "a linear model",
        "ridge": chosen["ridge"],
        "solver": f"{about['solver']}: {about['why']}",
        "seed": asked.seed,
        "seconds": about["seconds"],
        "version": about["version"],
    }


def _loss(asked: Asked, about: dict[str, Any]) -> str:
    if "delta" not in about:
        return asked.loss
    deltas = ", ".join(f"{delta:.4g}" for delta in about["delta"])
    return f"{asked.loss}; delta is {deltas}, {NORMAL} times the scale of the residuals"


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """The same with intervals as texts."""
    short: dict[str, Any] = {"target": row["target"], "loss": row["loss"]}
    for name in ("mean absolute error", "median absolute error", "over least squares"):
        low, high = row[f"{name} low"], row[f"{name} high"]
        short |= {name: row[name], f"{name}, 95 %": "none" if low is None else f"{low:.4g} to {high:.4g}"}
    return short


@styled
def draw(report: Report) -> tuple[Figure, list[Point]]:
    """Truth against prediction on held-out rows, a panel for each of the first targets.

    A row outside the frame is a triangle at its edge, and the legend counts these rows.
    """
    targets = report.model.asked.targets[:PANELS]
    figure = Figure(figsize=(WIDTH, 3.2 * -(-len(targets) // 2)), layout="constrained")
    panels, points = figure.subplots(-(-len(targets) // 2), min(2, len(targets)), squeeze=False).ravel(), []
    for j, (name, axes) in enumerate(zip(targets, panels, strict=False)):
        y = report.truth[:SHOWN, j]
        low, high = _limits(np.concatenate([y, report.predictions[report.model.asked.loss][:SHOWN, j]]))
        axes.plot([low, high], [low, high], color="0.6", linewidth=0.8)
        for (loss, z), (colour, mark) in zip(report.predictions.items(), ((BLUE, "o"), (ORANGE, "x")), strict=True):
            z = z[:SHOWN, j]
            a, b = np.clip(y, low, high), np.clip(z, low, high)
            outside = (a != y) | (b != z)
            label = NAMES[loss]
            if outside.any():
                label += f", {outside.sum()} of {len(y)} outside"
            look: dict[str, Any] = {"color": colour, "fillstyle": "none", "linestyle": "none"}
            axes.plot(a[~outside], b[~outside], mark, markersize=3, label=label, **look)
            for side, where in _edges(y, z, low, high).items():
                (triangles,) = axes.plot(a[where], b[where], side, markersize=5, clip_on=False, zorder=3, **look)
                triangles.set_in_layout(False)  # they lie across the edge, and would push the panels together
            texts = [f"{NAMES[loss]}: true {true:.5g}, predicted {found:.5g}" for true, found in zip(y, z, strict=True)]
            points += [Point(j, *place) for place in zip(a, b, texts, strict=True)]
        axes.set(xlabel=f"true {_plain(name)}", ylabel="predicted", xlim=(low, high), ylim=(low, high))
        axes.legend()
    for axes in panels[len(targets) :]:
        axes.set_axis_off()
    return figure, points


def _edges(y: np.ndarray, z: np.ndarray, low: float, high: float) -> dict[str, np.ndarray]:
    """For each marker, a triangle that points to where they are, the rows outside the frame on that side."""
    right, left = y > high, y < low
    beside = right | left
    return {">": right, "<": left, "^": ~beside & (z > high), "v": ~beside & (z < low)}


def _limits(y: np.ndarray) -> tuple[float, float]:
    """About all but the outliers: three interquartile ranges around the middle half."""
    low, high = np.quantile(y, [0.25, 0.75])
    away = 3 * (high - low) or 1.0
    inside = y[(y >= low - away) & (y <= high + away)]
    margin = 0.05 * (np.ptp(inside) or 1.0)
    return float(inside.min() - margin), float(inside.max() + margin)


def _plain(name: str) -> str:
    """A column's name where Matplotlib would read $ as mathematics."""
    return name.replace("$", r"\$")[:40]
