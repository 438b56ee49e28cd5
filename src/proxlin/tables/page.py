"""What a fit leaves in its folder: the model, its metrics and settings as tables, figures, and the
page.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..files.writing import Content, write_folder
from ..plots.drawing import Point, figure_files, placed
from ..plots.fits import middle, outside_of, plain
from ..plots.pages import csv_bytes, render
from ..plots.style import BLUE, ORANGE, WIDTH, styled
from .asked import Asked, shown_loss
from .engine import ENOUGH, Report
from .fitted import fit_of
from .losses import NORMAL
from .model import pack_models
from .pictures import draw_model
from .search import LARGE
from .tellings import Listing, mixture_of

PAGE = "report.html"
MODEL = "model.npz"
SHOWN = 500  # held-out rows in the figure of a target; more hide each other
PANELS = 4  # targets with a panel of their own
NAMED = 12  # rows in the sentence on wrong ones
# A mean so many times the trimmed mean, which leaves out the largest errors, consists of these.
MOSTLY = 2.0


def write(out: Path, source: str, reports: Sequence[Report]) -> Path:
    """Write every file, or none; return the path of the page.

    Of the fits of several quantiles, the page shows that of the middle one, and the coefficients of
    all.
    """
    report = reports[len(reports) // 2]
    fit = fit_of(reports)
    figure, points = draw(report)
    pictures = figure_files(figure)
    rows_figure, rows_points = draw_model(report.model)
    rows_pictures = figure_files(rows_figure)
    model = report.model
    about = model.about
    why_none = None
    if about["held_out"] < ENOUGH:
        why_none = without_interval(about["held_out"])
    shown = None
    if len(report.truth) > SHOWN:
        shown = SHOWN
    summary = fit.summary()
    outliers = fit.outliers()
    said = [f"{each}." for each in model.findings.warnings]
    page = render(
        "fit.html",
        source=source,
        asked=_asked(source, report),
        headline=[*headline(report), *wrong_rows(outliers), *said],
        summary=_told(summary),
        outliers=_told(outliers),
        rows={"svg": rows_pictures["svg"], "points": placed(rows_figure, rows_points)},
        metrics=[_short(row) for row in report.metrics],
        path=report.path,
        notes=fit.notes,
        picture={"svg": pictures["svg"], "points": placed(figure, points)},
        left=max(0, len(model.asked.targets) - PANELS),
        shown=shown,
        why_none=why_none,
        large=f"{LARGE:,}",
    )
    data = {"asked": dataclasses.asdict(model.asked), "notes": fit.notes} | about
    files: dict[str, Content] = {
        "metrics.csv": csv_bytes(report.metrics),
        "settings.csv": csv_bytes(report.path),
        "coefficients.csv": csv_bytes(summary.rows),
        "outliers.csv": csv_bytes(outliers.rows),
        "metrics.json": (json.dumps(data, indent=1) + "\n").encode(),
        PAGE: page.encode(),
    }
    for name, contents in {"held-out": pictures, "rows": rows_pictures}.items():
        files |= {
            f"figures/{name}.{suffix}": content for suffix, content in contents.items()
        }
    # last, as it is what the others are about
    files[MODEL] = pack_models(fit.models)
    write_folder(out, files)
    return out / PAGE


def _told(listing: Listing) -> dict[str, Any]:
    """Return a listing for the page: its rows with the columns that are shown."""
    rows = [{name: row[name] for name in listing.columns} for row in listing.rows]
    return {"title": listing.title, "rows": rows, "lines": listing.lines}


def headline(report: Report) -> list[str]:
    """Return sentences for each target: the typical error, and the mean beside that of least squares."""
    squares = shown_loss("squared")
    typical = {
        row["target"]: row["median absolute error"]
        for row in report.metrics
        if row["loss"] == squares
    }
    lines = []
    for row in report.metrics:
        if row["loss"] == squares:
            continue
        target = row["target"]
        lines.append(
            f"{target}: half of the held-out rows are predicted to within {row['median absolute error']:.4g}, "
            f"by least squares to within {typical[target]:.4g}."
        )
        lines.append(_mean_error(row, report.model.about["held_out"]))
    return lines


def _mean_error(row: dict[str, Any], held_out: int) -> str:
    """Return a sentence that compares the mean absolute error with that of least squares."""
    name = "over least squares"
    mean = row["mean absolute error"]
    error = f"{row['target']}: the mean absolute error on them, {mean:.4g}, is"
    if row[f"{name} low"] is None:
        why = without_interval(held_out)
        return f"{error} not compared with that of least squares: {why}."
    excess = row[name] - 1
    low = row[f"{name} low"] - 1
    high = row[f"{name} high"] - 1
    word = "not distinguishable from"
    if high < 0:
        word = "smaller than"
    elif low > 0:
        word = "larger than"
    interval = f"{excess:+.1%}, 95 % interval {low:+.1%} to {high:+.1%}"
    few = ""
    if mean > MOSTLY * row["trimmed mean error"]:
        few = " A few rows with large errors make up most of it, so it may tell little."
    return f"{error} {word} that of least squares ({interval}).{few}"


def wrong_rows(outliers: Listing) -> list[str]:
    """Return a sentence that names the rows whose target does not go with the others."""
    wrong = [row["row"] for row in outliers.rows if row["apart"].startswith("target")]
    rows = list(dict.fromkeys(wrong))
    if not rows:
        return ["Every row goes with the others."]
    which = ", ".join(map(str, rows[:NAMED]))
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    if len(rows) == 1:
        return [
            f"Row {which} does not go with the others; what may be wrong with it is below."
        ]
    return [
        f"Rows {which}{more} do not go with the others; what may be wrong with them is below."
    ]


def without_interval(held_out: int) -> str:
    """Return why there is no interval."""
    if held_out < ENOUGH:
        return f"an interval needs {ENOUGH} held-out rows and there are {held_out}"
    return "too few of the errors are above 0"


def _asked(source: str, report: Report) -> dict[str, Any]:
    """Return what was asked and what was taken, as pairs of a name and a text."""
    asked = report.model.asked
    about = report.model.about
    model = "a linear model"
    ridge = {}
    if about["settings"]["start"] and asked.hidden:
        model = mixture_of(report.model)
        if report.model.fits > 1:
            model += f"; the mean of {report.model.fits} of them, each fitted without one part of the rows"
        ridge = {"ridge of the network": about["settings"]["ridge"]}
    return {
        "file": source,
        "targets": ", ".join(asked.targets),
        "rows": f"{about['rows']}, of which {about['held_out']} were held out for the errors below",
        "loss": _loss(asked, about),
        "model": model,
        **ridge,
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
    """Return a row of errors with its intervals as texts."""
    short: dict[str, Any] = {"target": row["target"], "loss": row["loss"]}
    for name in ("mean absolute error", "median absolute error", "over least squares"):
        low = row[f"{name} low"]
        interval = "none"
        if low is not None:
            interval = f"{low:.4g} to {row[f'{name} high']:.4g}"
        short |= {name: row[name], f"{name}, 95 %": interval}
    return short


@styled
def draw(report: Report) -> tuple[Figure, list[Point]]:
    """Draw truth against prediction on held-out rows, a panel for each of the first targets.

    A row outside the frame is a triangle at its edge, and the legend counts these rows.
    """
    targets = report.model.asked.targets[:PANELS]
    lines = -(-len(targets) // 2)
    figure = Figure(figsize=(WIDTH, 3.2 * lines), layout="constrained")
    panels = figure.subplots(lines, min(2, len(targets)), squeeze=False).ravel()
    points = []
    for j, (name, axes) in enumerate(zip(targets, panels, strict=False)):
        y = report.truth[:SHOWN, j]
        low, high = middle(
            np.concatenate([y, report.predictions[report.model.asked.loss][:SHOWN, j]])
        )
        axes.plot([low, high], [low, high], color="0.6", linewidth=0.8)
        # least squares has nothing beside it
        for (loss, z), look in zip(
            report.predictions.items(), ((BLUE, "o"), (ORANGE, "x")), strict=False
        ):
            points += _draw_rows(
                axes, j, shown_loss(loss), look, y, z[:SHOWN, j], (low, high)
            )
        axes.set(
            xlabel=f"true {plain(name)}",
            ylabel="predicted",
            xlim=(low, high),
            ylim=(low, high),
        )
        axes.legend()
    for axes in panels[len(targets) :]:
        axes.set_axis_off()
    return figure, points


def _draw_rows(
    axes: Any,
    panel: int,
    name: str,
    look: tuple[str, str],
    y: np.ndarray,
    z: np.ndarray,
    limits: tuple[float, float],
) -> list[Point]:
    """Draw the predictions z of y by one loss; return what hovering over them tells."""
    colour, mark = look
    a = np.clip(y, *limits)
    b = np.clip(z, *limits)
    outside = (a != y) | (b != z)
    label = name
    if outside.any():
        label += f", {outside.sum()} of {len(y)} outside"
    style: dict[str, Any] = {"color": colour, "fillstyle": "none", "linestyle": "none"}
    axes.plot(a[~outside], b[~outside], mark, markersize=3, label=label, **style)
    for side, where in outside_of(y, z, limits, limits).items():
        (triangles,) = axes.plot(
            a[where], b[where], side, markersize=5, clip_on=False, zorder=3, **style
        )
        # they lie across the edge, and would push the panels together
        triangles.set_in_layout(False)
    texts = [
        f"{name}: true {true:.5g}, predicted {found:.5g}"
        for true, found in zip(y, z, strict=True)
    ]
    return [Point(panel, *place) for place in zip(a, b, texts, strict=True)]
