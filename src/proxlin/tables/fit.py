"""Fit a table: judge the loss asked for and least squares on rows held out, then fit the former to
all rows.
"""

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import __version__
from ..data.frames import Frame
from ..theory.statistics import (
    TINY,
    Interval,
    bootstrap_interval,
    median_interval,
    resamples,
)
from .columns import Encoder, numbers_of
from .losses import NORMAL
from .model import Asked, Model
from .search import FOLDS, LARGE, REACH, Found, search
from .training import EXACT_STEPS, Say

ROWS = 10  # with fewer rows nothing can be held out
HELD_OUT = 0.2  # the share of the rows that is
RESAMPLES = 2000
MANY = 5000  # rows that are resampled, at most
# held-out rows for an interval; the mean of fewer is decided by one or two of them
ENOUGH = 20
NAMES = {"l2": "l2", "l1": "l1", "huber": "Huber", "squared": "least squares"}


@dataclass(frozen=True)
class Report:
    """A fit: the model, what a reader of it should know, the settings tried, and errors on held-out
    rows.
    """

    model: Model
    notes: list[str]
    path: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    # on the held-out rows, of the loss asked for and of least squares
    predictions: dict[str, np.ndarray]
    truth: np.ndarray


@dataclass(frozen=True)
class Rows:
    """A table ready to be fitted, which rows are held out, the fold of each row, and what a reader
    should know.
    """

    encoder: Encoder
    X: np.ndarray
    y: np.ndarray
    held: np.ndarray
    fold: np.ndarray
    notes: list[str]


def fit(frame: Frame, asked: Asked, say: Say) -> Report:
    """Fit the loss asked for to all rows, and tell how it and least squares do on rows held out."""
    start = time.perf_counter()
    rows = prepare(frame, asked)
    found = {}
    for number, loss in enumerate(dict.fromkeys((asked.loss, "squared"))):
        found[loss] = judged(
            rows, dataclasses.replace(asked, loss=loss), _part(say, number, loss)
        )
    last = refitted(rows, asked, found[asked.loss], _part(say, 2, asked.loss))
    truth = rows.y[rows.held]
    predictions = {
        loss: each.predict(rows.X[rows.held]) for loss, each in found.items()
    }
    metrics = compare(asked, truth, predictions)
    about = {
        "rows": len(rows.X),
        "held_out": int(rows.held.sum()),
        "settings": dataclasses.asdict(last.setting),
        "solver": last.task.solver,
        "why": last.why,
        "metrics": metrics,
        "version": __version__,
    }
    if asked.loss == "huber":
        # one for each target, in its units
        about["delta"] = (NORMAL * last.scale).tolist()
    path = []
    for loss, each in found.items():
        path += each.rows(f"{NAMES[loss]}, to be judged")
    if len(last.settings) > 1:
        path += last.rows(NAMES[asked.loss])
    notes = [*rows.notes, *_far(last, len(rows.X)), *_unfinished(last, found)]
    about["seconds"] = round(time.perf_counter() - start, 2)
    model = Model(asked, rows.encoder, last.units, last.fits.w, about, last.task.trees)
    return Report(model, notes, path, metrics, predictions, truth)


def prepare(frame: Frame, asked: Asked) -> Rows:
    """Return the rows that have every target, as numbers, and their split; what cannot be fitted is
    a sentence.
    """
    rng = np.random.default_rng(asked.seed)
    found = numbers_of(frame, asked.targets, ROWS, rng)
    n = len(found.X)
    order = rng.permutation(n)
    held = np.zeros(n, bool)
    held[order[: max(2, round(HELD_OUT * n))]] = True
    fold = np.empty(n, int)
    fold[order] = np.arange(n) % FOLDS
    return Rows(found.encoder, found.X, found.y, held, fold, found.notes)


def judged(rows: Rows, asked: Asked, say: Say) -> Found:
    """Return the fit to the rows not held out."""
    return search(rows.X, rows.y, asked, np.where(rows.held, -1, rows.fold), say)


def refitted(rows: Rows, asked: Asked, before: Found | None, say: Say) -> Found:
    """Return the fit to all rows; of a large table with the setting found before."""
    settings = ()
    if before is not None and len(rows.X) > LARGE:
        settings = (before.setting,)
    return search(rows.X, rows.y, asked, rows.fold, say, settings)


def _part(say: Say, number: int, loss: str) -> Say:
    """Return what tells the progress of one of three searches."""
    return lambda what, share: say(f"{NAMES[loss]}: {what}", (number + share) / 3)


def _far(found: Found, n: int) -> list[str]:
    if not found.far:
        return []
    where = f"have a target more than {REACH:g} deviations away from a linear fit; it is taken to be at that distance"
    return [f"{found.far} of {n} rows {where}"]


def _unfinished(last: Found, judged: dict[str, Found]) -> list[str]:
    """Return a sentence for the model, and for each fit it is judged by, that ended before it
    converged.
    """
    fits = {"the exact fit": last}
    fits |= {
        f"the exact fit by {NAMES[loss]} without the held-out rows": each
        for loss, each in judged.items()
    }
    said = f"ended at its {EXACT_STEPS} steps, before it converged"
    return [f"{name} {said}" for name, each in fits.items() if each.fits.unfinished]


def compare(
    asked: Asked, y: np.ndarray, predictions: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Return mean and median absolute errors on held-out rows, and the ratio to least squares, with
    95 % intervals.

    The ratio is paired: both errors are of the same rows. With fewer than ENOUGH rows an interval
    is None.
    """
    draws = resamples(len(y), RESAMPLES, MANY, asked.seed)
    rows = []
    for j, target in enumerate(asked.targets):
        base = np.abs(predictions["squared"][:, j] - y[:, j])
        for loss, z in predictions.items():
            error = np.abs(z[:, j] - y[:, j])
            mean = error.mean()
            ratio = mean / max(base.mean(), TINY)
            mean_interval = ratio_interval = middle_interval = None
            if len(error) >= ENOUGH:
                mean_interval = bootstrap_interval(error, None, draws)
                ratio_interval = bootstrap_interval(error, base, draws)
                middle_interval = median_interval(error)
            row: dict[str, Any] = {"target": target, "loss": NAMES[loss]}
            row |= _named("mean absolute error", mean, mean_interval)
            row |= _named("median absolute error", np.median(error), middle_interval)
            row |= _named("over least squares", ratio, ratio_interval)
            rows.append(row)
    return rows


def _named(name: str, value: float, interval: Interval | None) -> dict[str, Any]:
    low, high = interval or (None, None)
    return {name: float(value), f"{name} low": low, f"{name} high": high}
