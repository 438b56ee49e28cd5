"""What a fit leaves in its folder: the model, its metrics and settings as tables, figures, and the page."""

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..errors import UserError
from ..experiments.base import Point
from ..experiments.store import write_file
from ..experiments.style import BLUE, ORANGE, WIDTH, styled
from ..report import csv_bytes, figure_files, placed, render
from .fit import NAMES, Report

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
    )
    files = {"metrics.csv": csv_bytes(report.metrics), "settings.csv": csv_bytes(report.path)}
    files |= {"metrics.json": (json.dumps(data, indent=1) + "\n").encode(), PAGE: page.encode()}
    files |= {f"figures/held-out.{suffix}": content for suffix, content in pictures.items()}
    _write(out, files | {MODEL: report.model.packed()})
    return out / PAGE


def _write(out: Path, files: dict[str, bytes]) -> None:
    """All files, or those that were there before."""
    folders = [folder for folder in (out / "figures", out, *out.parents) if not folder.exists()]
    fresh = [out / name for name in files if not (out / name).exists()]
    try:
        for name, content in files.items():
            write_file(out / name, content)
    except OSError as error:
        for path in fresh:
            if path.is_file():
                path.unlink()
        for folder in folders:
            if folder.is_dir():
                folder.rmdir()
        raise UserError(f"--out {out} cannot be written ({error.strerror}); name another folder.") from error


def headline(report: Report) -> list[str]:
    """A sentence for each target."""
    lines, name = [], "over least squares"
    for row in report.metrics:
        if row["loss"] == NAMES["squared"]:
            continue
        low, high = row[f"{name} low"] - 1, row[f"{name} high"] - 1
        word = "smaller than" if high < 0 else "larger than" if low > 0 else "not distinguishable from"
        lines.append(
            f"{row['target']}: the mean absolute error on held-out rows, {row['mean absolute error']:.4g}, is {word} "
            f"that of least squares ({row[name] - 1:+.1%}, 95 % interval {low:+.1%} to {high:+.1%})."
        )
    return lines


def _asked(source: str, report: Report) -> dict[str, Any]:
    asked, about = report.model.asked, report.model.about
    chosen = about["settings"]
    network = f"the mean of {report.model.fits} networks of {asked.hidden} hidden units with a linear part"
    return {
        "file": source,
        "targets": ", ".join(asked.targets),
        "rows": f"{about['rows']}, of which {about['held_out']} were held out for the errors below",
        "loss": asked.loss,
        "model": network if chosen["start"] else "a linear model",
        "ridge": chosen["ridge"],
        "solver": f"{about['solver']}: {about['why']}",
        "seed": asked.seed,
        "seconds": about["seconds"],
        "version": about["version"],
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """The same with intervals as texts."""
    short: dict[str, Any] = {"target": row["target"], "loss": row["loss"]}
    for name in ("mean absolute error", "median absolute error", "over least squares"):
        short |= {name: row[name], f"{name}, 95 %": f"{row[f'{name} low']:.4g} to {row[f'{name} high']:.4g}"}
    return short


@styled
def draw(report: Report) -> tuple[Figure, list[Point]]:
    """Truth against prediction on held-out rows, a panel for each of the first targets."""
    targets = report.model.asked.targets[:PANELS]
    figure = Figure(figsize=(WIDTH, 3.2 * -(-len(targets) // 2)), layout="constrained")
    panels, points = figure.subplots(-(-len(targets) // 2), min(2, len(targets)), squeeze=False).ravel(), []
    for j, (name, axes) in enumerate(zip(targets, panels, strict=False)):
        y = report.truth[:SHOWN, j]
        low, high = _limits(y)
        axes.plot([low, high], [low, high], color="0.6", linewidth=0.8)
        for (loss, z), (colour, mark) in zip(report.predictions.items(), ((BLUE, "o"), (ORANGE, "x")), strict=True):
            axes.plot(y, z[:SHOWN, j], mark, color=colour, markersize=3, label=NAMES[loss], fillstyle="none")
            texts = (f"{NAMES[loss]}: true {a:.5g}, predicted {b:.5g}" for a, b in zip(y, z[:SHOWN, j], strict=True))
            points += [Point(j, a, b, t) for a, b, t in zip(y, z[:SHOWN, j], texts, strict=True)]
        axes.set(xlabel=f"true {_plain(name)}", ylabel="predicted", xlim=(low, high), ylim=(low, high))
        axes.legend()
    for axes in panels[len(targets) :]:
        axes.set_axis_off()
    return figure, points


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
