"""Fit a table: judge the loss asked for and linear least squares on rows held out, then fit the former
to all rows.
"""

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .. import __version__
from ..data.frames import Frame
from ..errors import UserError
from ..theory.statistics import (
    TINY,
    Interval,
    bootstrap_interval,
    median_interval,
    resamples,
)
from ..types import Params
from .asked import Asked, shown_loss
from .columns import Encoder, numbers_of
from .findings import Findings, findings_of
from .formula import Formula
from .linear import Line, check_rows, independent, linear_fit, squares
from .losses import NORMAL
from .model import Model
from .search import FOLDS, LARGE, REACH, Found, search
from .standardize import LEAST, Units, residual_scale
from .training import EXACT_STEPS, Say

ROWS = 10  # with fewer rows nothing can be held out
HELD_OUT = 0.2  # the share of the rows that is
RESAMPLES = 2000
MANY = 5000  # rows that are resampled, at most
# held-out rows for an interval; the mean of fewer is decided by one or two of them
ENOUGH = 20
TRIMMED = 0.1  # of the errors, the largest, that a trimmed mean leaves out
MANY_ROWS = 100  # of a table: a fifth of fewer says too little about their residuals
PARTS = 10  # in which a table of fewer rows is held out, one after the other


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
    """A table ready to be fitted, which rows are held out, the fold of each row, the columns with a
    coefficient, and what a reader should know.
    """

    encoder: Encoder
    X: np.ndarray
    y: np.ndarray
    numbers: np.ndarray  # of the rows in the table, from 0
    held: np.ndarray
    fold: np.ndarray
    kept: np.ndarray
    # how much each row counts, of mean 1; None: all the same
    s: np.ndarray | None
    notes: list[str]

    def training(self) -> np.ndarray:
        """Return the fold of each row, -1 for those held out."""
        return np.where(self.held, -1, self.fold)


@dataclass(frozen=True)
class Straight:
    """A linear fit, as a model of all targets."""

    lines: tuple[Line, ...]
    width: int  # of a row

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return (n, k) predictions in the units of the table."""
        return np.stack([line.predict(X) for line in self.lines], axis=1)

    @property
    def scale(self) -> np.ndarray:
        return np.array([line.scale for line in self.lines])

    @property
    def unfinished(self) -> bool:
        return not all(line.converged for line in self.lines)

    def weights(self) -> tuple[Units, Params]:
        """Return the fit as a network without a hidden layer, in the units of the table."""
        k = len(self.lines)
        W = np.zeros((1, k, self.width))
        b = np.zeros((1, k))
        for j, line in enumerate(self.lines):
            W[0, j, line.kept] = line.coefficients[1:]
            b[0, j] = line.coefficients[0]
        one = np.ones(self.width)
        units = Units(0 * one, one, np.zeros(k), np.ones(k))
        return units, [{"W": W, "b": b}]


def fit(frame: Frame, asked: Asked, say: Say, formula: Formula | None = None) -> Report:
    """Fit the loss asked for to all rows, and tell how it and linear least squares do on rows held
    out.

    A formula computes the columns of the fit from those of the table.
    """
    start = time.perf_counter()
    frame, s = importance_of(frame, asked)
    if formula is not None:
        frame = formula.apply(frame, targets=True)
    rows = prepare(frame, asked, s)
    one, last = _both(rows, asked, say)
    found = {asked.loss: one}
    if asked.loss != "squared":
        found["squared"] = least_squares(rows, asked)
    truth = rows.y[rows.held]
    predictions = {
        loss: each.predict(rows.X[rows.held]) for loss, each in found.items()
    }
    lines, about_lines = _lines(rows, asked, last)
    residuals = unseen_residuals(rows, asked, truth - predictions[asked.loss], last)
    away = rows.y - last.predict(rows.X)
    findings = findings_of(
        rows.X,
        rows.y,
        rows.numbers,
        rows.encoder,
        asked,
        last.predict,
        scale_of(last, away, rows.s),
        lines,
        residuals,
        rows.s,
    )
    notes = [*rows.notes, *about_lines, *_far(last, len(rows.X))]
    count = len(rows.X)
    told = Told(findings, notes, count, formula, rows.encoder, start)
    return report_of(asked, told, found, last, truth, predictions)


def _both(
    rows: Rows, asked: Asked, say: Say
) -> tuple[Found | Straight, Found | Straight]:
    """Return the judged fit and the fit to all rows.

    They share their programs, which leave a core idle each: so one of them runs in a thread beside
    the other, where the second does not need the settings of the first.
    """
    done = [0.0, 0.0]

    def part(number: int) -> Say:
        def tell(what: str, share: float) -> None:
            done[number] = share
            say(f"{shown_loss(asked.loss)}: {what}", sum(done) / 2)

        return tell

    if len(rows.X) > LARGE or jax.default_backend() != "cpu":
        one = judged(rows, asked, part(0))
        return one, refitted(rows, asked, one, part(1))

    def beside() -> Found | Straight:
        # the scope of float64 is that of a thread
        with jax.enable_x64(True):
            return refitted(rows, asked, None, part(1))

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(beside)
        one = judged(rows, asked, part(0))
        return one, other.result()


@dataclass(frozen=True)
class Told:
    """What is told beside a fit: its findings, notes, the count of rows, how columns become numbers, and
    when the fit began.
    """

    findings: Findings
    notes: list[str]
    rows: int
    formula: Formula | None
    encoder: Encoder
    start: float


def report_of(
    asked: Asked,
    told: Told,
    found: dict[str, Found | Straight],
    last: Found | Straight,
    truth: np.ndarray,
    predictions: dict[str, np.ndarray],
) -> Report:
    """Return the report of the last fit, and of those found for each loss, which are judged by the
    predictions of held-out rows.
    """
    metrics = compare(asked, truth, predictions)
    about = {
        "rows": told.rows,
        "held_out": len(truth),
        **_settings(last),
        "metrics": metrics,
        "version": __version__,
    }
    if asked.loss == "huber":
        # one for each target, in its units
        about["delta"] = (NORMAL * last.scale).tolist()
    path = []
    for loss, each in found.items():
        path += _tried(each, f"{shown_loss(loss)}, to be judged")
    again = last is not found[asked.loss]
    if isinstance(last, Straight) or (again and len(last.settings) > 1):
        path += _tried(last, shown_loss(asked.loss))
    notes = [*told.findings.warnings, *told.notes, *_unfinished(last, found)]
    units, w = _packed(last)
    about["seconds"] = round(time.perf_counter() - told.start, 2)
    model = Model(
        *(asked, told.formula, told.encoder, units, w, told.findings, about),
        _trees(last),
    )
    return Report(model, notes, path, metrics, predictions, truth)


def importance_of(frame: Frame, asked: Asked) -> tuple[Frame, np.ndarray | None]:
    """Return the rows that count and their weights, and the table without the column of weights."""
    if asked.weights is None:
        return frame, None
    column = frame[asked.weights]
    where = f"{frame.source}, column {column.name!r}"
    if not column.numeric or column.missing.all():
        raise UserError(f"{where} holds no numbers; it cannot be weights.")
    cells = np.where(column.missing, 0.0, column.cells).astype(np.float64)
    if cells.min() < 0:
        row = int(np.argmin(cells)) + 1
        raise UserError(
            f"{where} is {cells.min():g} in row {row}; a weight is 0 or more."
        )
    counts = cells > 0
    if not counts.any():
        raise UserError(f"{where} is 0 in every row; no row counts.")
    others = tuple(each for each in frame.columns if each.name != column.name)
    # the largest is 1 first: a sum of huge weights would overflow
    return Frame(frame.source, others), cells / cells.max()


def prepare(frame: Frame, asked: Asked, s: np.ndarray | None = None) -> Rows:
    """Return the rows that have every target and count, as numbers, and their split; what cannot be
    fitted is a sentence.
    """
    rng = np.random.default_rng(asked.seed)
    notes = []
    table = np.arange(len(frame))
    if s is not None and not np.all(s > 0):
        table = np.flatnonzero(s > 0)
        notes.append(
            f"{len(s) - len(table)} of {len(s)} rows have no weight and are left out"
        )
        frame = frame.rows(table)
    found = numbers_of(frame, asked.targets, ROWS, rng)
    numbers = table[found.rows]
    if s is not None:
        s = s[numbers]
        s = s / s.mean()
    n = len(found.X)
    order = rng.permutation(n)
    held = np.zeros(n, bool)
    held[order[: max(2, round(HELD_OUT * n))]] = True
    fold = np.empty(n, int)
    fold[order] = np.arange(n) % FOLDS
    kept = independent(found.X, found.encoder.first_levels)
    if asked.hidden == 0:
        check_rows(n, len(kept) + 1, asked)
    return Rows(
        found.encoder,
        found.X,
        found.y,
        numbers,
        held,
        fold,
        kept,
        s,
        [*notes, *found.notes],
    )


def judged(rows: Rows, asked: Asked, say: Say) -> Found | Straight:
    """Return the fit to the rows not held out."""
    if asked.hidden == 0:
        return _straight(rows, asked, rows.training(), None, say)
    return search(rows.X, rows.y, asked, rows.training(), say, s=rows.s)


def least_squares(rows: Rows, asked: Asked) -> Straight:
    """Return the linear least-squares fit to the rows not held out, which others are compared with."""
    seen = ~rows.held
    kept = independent(rows.X[seen], rows.encoder.first_levels)
    s = None if rows.s is None else rows.s[seen]
    lines = squares(rows.X[seen], rows.y[seen], asked, kept, s)
    return Straight(lines, rows.X.shape[1])


def refitted(
    rows: Rows, asked: Asked, before: Found | Straight | None, say: Say
) -> Found | Straight:
    """Return the fit to all rows; of a large table with the setting found before."""
    if asked.hidden == 0:
        return _straight(rows, asked, rows.fold, asked.errors, say)
    settings = ()
    if isinstance(before, Found) and len(rows.X) > LARGE:
        settings = (before.setting,)
    return search(rows.X, rows.y, asked, rows.fold, say, settings, rows.s)


def _straight(
    rows: Rows, asked: Asked, fold: np.ndarray, errors: str | None, say: Say
) -> Straight:
    """Return the linear fit to the rows whose fold is not -1.

    Some columns may be constant in these rows, as a rare category that was held out is.
    """
    kept = rows.kept
    if np.any(fold < 0):
        first = rows.encoder.first_levels
        kept = independent(rows.X[fold >= 0], first)
    lines = linear_fit(rows.X, rows.y, asked, kept, fold, errors, say, rows.s)
    return Straight(lines, rows.X.shape[1])


def _lines(
    rows: Rows, asked: Asked, last: Found | Straight
) -> tuple[tuple[Line, ...], list[str]]:
    """Return the linear fit of the summary, and what a reader should know of it.

    Beside a network it is an answer of its own; where it cannot be had the network does without.
    """
    if isinstance(last, Straight):
        lines = last.lines
        notes = []
    else:
        try:
            lines = linear_fit(
                *(rows.X, rows.y, asked, rows.kept, rows.fold, asked.errors),
                lambda what, share: None,
                rows.s,
            )
        except UserError as error:
            return (), [f"no coefficients: {str(error).rstrip('.')}"]
        notes = []
    for line in lines:
        if line.reason is not None:
            notes.append(
                f"{line.target}: no standard errors ({line.reason.rstrip('.')})"
            )
    return lines, notes


def unseen_residuals(
    rows: Rows, asked: Asked, held_out: np.ndarray, last: Found | Straight
) -> np.ndarray:
    """Return residuals of rows that a fit had not seen, of which prediction bands are made.

    They are those of the held-out rows. In a table with few rows, each part of them is held out in
    turn; a network keeps the setting of the last fit then.
    """
    n = len(rows.X)
    if n >= MANY_ROWS:
        return held_out
    parts = PARTS if isinstance(last, Straight) else FOLDS
    part = np.random.default_rng(asked.seed).permutation(n) % parts
    residuals = np.empty_like(rows.y)
    quiet = lambda what, share: None
    for j in range(parts):
        unseen = part == j
        fold = np.where(unseen, -1, rows.fold)
        try:
            if isinstance(last, Straight):
                one = _straight(rows, asked, fold, None, quiet)
            else:
                one = search(
                    rows.X, rows.y, asked, fold, quiet, (last.setting,), rows.s
                )
        except UserError:  # too few rows are left for the coefficients
            return held_out
        residuals[unseen] = (rows.y - one.predict(rows.X))[unseen]
    return residuals


def scale_of(
    last: Found | Straight, away: np.ndarray, s: np.ndarray | None
) -> np.ndarray:
    """Return the scale of each target's residuals, at least a rounding error of the target."""
    if isinstance(last, Straight):
        scale = last.scale
    else:
        scale = residual_scale(away, np.ones(len(away)) if s is None else s)
    size = np.abs(away).max(axis=0)
    return np.maximum(scale, np.maximum(LEAST * size, np.finfo(float).tiny))


def _settings(last: Found | Straight) -> dict[str, Any]:
    """Return how the model was found, for a reader."""
    if isinstance(last, Straight):
        setting = {"start": 0.0, "ridge": 0.0, "step": 1.0}
        return {"settings": setting, "solver": "exact", "why": "a linear model"}
    return {
        "settings": dataclasses.asdict(last.setting),
        "solver": last.task.solver,
        "why": last.why,
        "mixture": [[name, share] for name, _, share in last.parts],
    }


def _tried(found: Found | Straight, name: str) -> list[dict[str, Any]]:
    """Return a row for each setting that was tried; a linear model has none."""
    if isinstance(found, Straight):
        return []
    return found.rows(name)


def _packed(last: Found | Straight) -> tuple[Units, Params]:
    """Return the units and weights of the model's file."""
    if isinstance(last, Straight):
        return last.weights()
    return last.units, last.fits.w


def _trees(last: Found | Straight) -> tuple[int, int]:
    """Return the number and depth of the trees of the model."""
    if isinstance(last, Straight):
        return (0, 0)
    return last.task.trees


def _far(found: Found | Straight, n: int) -> list[str]:
    if isinstance(found, Straight) or not found.far:
        return []
    where = f"have a target more than {REACH:g} deviations away from a linear fit; it is taken to be at that distance"
    return [f"{found.far} of {n} rows {where}"]


def _unfinished(
    last: Found | Straight, judged: dict[str, Found | Straight]
) -> list[str]:
    """Return a sentence for the model, and for each fit it is judged by, that ended before it
    converged.
    """
    fits = {"the exact fit": last}
    fits |= {
        f"the exact fit by {shown_loss(loss)} without the held-out rows": each
        for loss, each in judged.items()
    }
    said = f"ended at its {EXACT_STEPS} steps, before it converged"
    return [f"{name} {said}" for name, each in fits.items() if _stopped(each)]


def _stopped(found: Found | Straight) -> bool:
    if isinstance(found, Straight):
        return found.unfinished
    return bool(found.fits.unfinished)


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
            row: dict[str, Any] = {"target": target, "loss": shown_loss(loss)}
            row |= _named("mean absolute error", mean, mean_interval)
            row |= _named("median absolute error", np.median(error), middle_interval)
            # one wild row decides a mean: the tenth of the largest errors is left out
            row["trimmed mean error"] = float(
                np.sort(error)[: _kept(len(error))].mean()
            )
            row |= _named("over least squares", ratio, ratio_interval)
            rows.append(row)
    return rows


def _kept(count: int) -> int:
    """Return how many of so many errors a trimmed mean keeps."""
    return max(1, round((1 - TRIMMED) * count))


def _named(name: str, value: float, interval: Interval | None) -> dict[str, Any]:
    low, high = interval or (None, None)
    return {name: float(value), f"{name} low": low, f"{name} high": high}
