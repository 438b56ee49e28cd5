"""Fit a table in parts, which need not fit into memory: each look at it is a pass over its rows.

    1  columns and categories, and the rows that are kept in memory      `described`
    2  which columns follow from others; linear fits by sums             `sums`
    3  the network by mini-batches; trees on the rows in memory          `passes`
    4  the rows that go least with the others                            here

The linear fits are those of all rows, up to rounding. Held-out rows are seen by no fit that is judged;
unlike in memory, a network is not fitted again with them.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from ..data.frames import Frame
from ..data.parts import AbstractParts
from ..errors import UserError
from ..inference.redescending import EFFICIENT
from ..networks import WithLinear
from ..types import Params
from .asked import Asked, shown_loss
from .described import (
    HELD,
    SAMPLE,
    VALIDATION,
    Described,
    Encoded,
    Plan,
    Sizes,
    described,
)
from .engine import Report, Straight, Told, report_of, scale_of
from .findings import findings_of, numeric_columns
from .linear import (
    UNPENALISED,
    Line,
    check_rows,
    independent,
    linear_fit,
    lines_of,
)
from .losses import NORMAL, has_scale, outer_of
from .outputs import Map, predict
from .passes import Drawn, network_of_parts
from .search import Found, mixed_with, of_residuals, reach_of, search, within_reach
from .standardize import Units, residual_scale, units_of
from .sums import ALL, JUDGED, TRAINED, Loss, design_of, fitted, independent_columns
from .sums import Line as Asking
from .training import Say, Task, network_of

WORST = 1000  # rows that are kept for each way in which a row can be far
FEWEST = 100  # rows in memory of each kind that a fit in parts needs
LEAST = 1e-9  # of a target's scale: the length below which a norm is rounded


def fit_parts(
    parts: AbstractParts, asked: Asked, say: Say, sizes: Sizes | None = None
) -> Report:
    """Fit the loss asked for to a table in parts, and tell how it and linear least squares do on rows
    held out.
    """
    start = time.perf_counter()
    if asked.solver != "auto":
        raise UserError(
            f"{parts.source} is fitted in parts, for which solver {asked.solver!r} is not made; take 'auto'."
        )
    say("looking at the table", 0.0)
    table = described(parts, asked, sizes or Sizes())
    kept = table.kept
    for role in (HELD, VALIDATION, SAMPLE):
        count = int((kept.role == role).sum())
        if count < FEWEST:
            raise UserError(
                f"{parts.source} has {table.rows} rows with every target, too few to be fitted in parts; give them as "
                "one table."
            )
    say("linear fits", 0.1)
    losses = tuple(dict.fromkeys((asked.loss, "squared")))
    # a mixture needs rows for its weights; a linear fit that is judged sees them too
    seen: dict[str, tuple[int, ...]] = dict.fromkeys(losses, JUDGED)
    if asked.hidden:
        seen[asked.loss] = TRAINED
    units = units_of(kept.X, kept.y, kept.s)
    columns = independent_columns(parts, table, units)
    check_rows(table.rows, len(columns) + 1, asked)
    samples = {
        loss: _Sample.of(
            *(table, dataclasses.replace(asked, loss=loss), columns),
            whole=loss == asked.loss,
        )
        for loss in losses
    }
    wanted = [(loss, seen[loss]) for loss in losses] + [(asked.loss, ALL)]
    asking = [samples[loss].asking(each) for loss, each in wanted]
    scales = [samples[loss].scale for loss, _ in wanted]
    lines, rest = fitted(parts, table, asking, columns, scales)
    straight = {}
    for i, (loss, _) in enumerate(wanted):
        own = samples[loss].lines(
            lines[i], columns, rest[i], table.rows, whole=i == len(losses)
        )
        straight[wanted[i]] = Straight(own, table.encoder.width)
    summary = straight[(asked.loss, ALL)]
    found: dict[str, Found | Straight] = {
        loss: straight[(loss, seen[loss])] for loss in losses
    }
    far = 0
    if asked.hidden:
        here = lambda what, share: say(
            f"{shown_loss(asked.loss)}: {what}", 0.3 + 0.6 * share
        )
        line = straight[(asked.loss, TRAINED)]
        found[asked.loss] = _mixture(parts, table, asked, line, here)
    last = found[asked.loss] if asked.hidden else summary
    if isinstance(last, Found):
        far = last.far
    truth = kept.y[kept.role == HELD]
    unseen = kept.X[kept.role == HELD]
    predictions = {loss: each.predict(unseen) for loss, each in found.items()}
    away = kept.y - last.predict(kept.X)
    scale = scale_of(last, away, kept.s)
    say("rows that lie apart", 0.9)
    rows = _worst(parts, table, predictor_of(last), scale)
    findings = findings_of(
        rows.X,
        rows.y,
        rows.numbers,
        table.encoder,
        asked,
        last.predict,
        scale,
        summary.lines,
        truth - predictions[asked.loss],
        rows.s,
        table.rows,
    )
    notes = list(table.notes)
    for line in summary.lines:
        if line.reason is not None:
            notes.append(
                f"{line.target}: no standard errors ({line.reason.rstrip('.')})"
            )
    if far:
        notes.append(
            f"{far} of the rows in memory have a target that is far away from a linear fit; each such target is taken "
            "to be nearer"
        )
    told = Told(findings, notes, table.rows, None, table.encoder, start)
    return report_of(asked, told, found, last, truth, predictions)


# ----------------------------------------------------------------------------------------- linear


@dataclass(frozen=True)
class _Sample:
    """A linear fit of the rows in memory, from which that of all rows begins."""

    asked: Asked
    units: Units
    B: np.ndarray
    sigma: float
    rows: int
    kept: np.ndarray
    own: tuple[Line, ...]
    scale: np.ndarray  # of the residuals, in units

    @staticmethod
    def of(
        table: Described, asked: Asked, columns: np.ndarray, whole: bool
    ) -> "_Sample":
        """Return the fit; without the covariances of its coefficients where it is not `whole`."""
        rows = table.kept.rows(table.kept.role == SAMPLE)
        X = rows.X
        n, p = X.shape
        kept = np.intersect1d(independent(X, table.encoder.first_levels), columns)
        check_rows(n, len(kept) + 1, asked)
        units = units_of(X, rows.y, rows.s)
        fold = np.zeros(n, int)
        quiet = lambda what, share: None
        B = np.zeros((p + 1, rows.y.shape[1]))
        sigma = 1.0
        if asked.loss == "mm":
            own = linear_fit(X, rows.y, asked, kept, fold, asked.errors, quiet)
            scale = np.array([line.scale for line in own])
            units = dataclasses.replace(units, y_scale=scale)
            for j, line in enumerate(own):
                slopes = line.coefficients[1:]
                B[kept, j] = slopes * units.x_scale[kept] / scale[j]
                center = line.coefficients[0] + slopes @ units.x_center[kept]
                B[p, j] = (center - units.y_center[j]) / scale[j]
        elif not whole:
            # only its fit is wanted, and sums find it in one step
            D = design_of(units, X)[:, [*kept, p]]
            B[[*kept, p]] = np.linalg.lstsq(D, units.targets(rows.y), rcond=None)[0]
            own = tuple(
                Line(target, kept, np.zeros(0), None, None, None, 0.0, n, True)
                for target in asked.targets
            )
        else:
            straight = dataclasses.replace(asked, hidden=0)
            found = search(
                X[:, kept], rows.y, straight, fold, quiet, UNPENALISED, rows.s
            )
            own = lines_of(
                *(found, X[:, kept], rows.y, asked, kept, fold == 0, asked.errors)
            )
            units = dataclasses.replace(
                units, y_center=found.units.y_center, y_scale=found.units.y_scale
            )
            layer = found.fits.w[0]
            B[kept] = np.asarray(layer["W"][0], float).T
            B[p] = np.asarray(layer["b"][0], float)
            sigma = found.task.sigma
        u = design_of(units, X) @ B - units.targets(rows.y)
        s = np.ones(n) if rows.s is None else rows.s
        scale = np.maximum(residual_scale(u, s), LEAST)
        return _Sample(asked, units, B, sigma, n, kept, own, scale)

    def loss(self) -> Loss:
        """Return the loss asked for, in units."""
        name = self.asked.loss
        if name == "squared":
            return Loss("squared")
        if name == "mm":
            return Loss("bisquare", width=EFFICIENT)
        if name == "huber":
            return Loss("clipped", -NORMAL, NORMAL, self.sigma)
        if self.asked.level is not None:
            return Loss("clipped", -self.asked.level, 1 - self.asked.level, 0.0)
        if name == "l2" and self.B.shape[1] > 1:
            return Loss("norm", width=LEAST * float(self.scale.min()))
        return Loss("clipped", width=0.0)

    def asking(self, without: tuple[int, ...]) -> Asking:
        """Return what is asked of all rows but those of some roles."""
        return Asking(self.loss(), self.units, without, self.B)

    def lines(
        self, found: Asking, columns: np.ndarray, rests: bool, rows: int, whole: bool
    ) -> tuple[Line, ...]:
        """Return the fit of all rows in the units of the table, with covariances of the rows in memory
        brought to their number.
        """
        lines = []
        p = self.B.shape[0] - 1
        for j, own in enumerate(self.own):
            size = self.units.y_scale[j]
            slopes = found.B[:p, j] * size / self.units.x_scale
            first = found.B[p, j] * size + self.units.y_center[j]
            first -= slopes @ self.units.x_center
            cov = None
            kind = None
            reason = own.reason
            if whole and own.covariance is not None:
                if np.array_equal(columns, self.kept):
                    cov = own.covariance * (self.rows / rows)
                    kind = own.kind
                else:
                    reason = (
                        "a column hardly varies in the rows that are kept in memory"
                    )
            lines.append(
                Line(
                    own.target,
                    columns,
                    np.append(first, slopes[columns]),
                    cov,
                    kind,
                    reason,
                    float(self.scale[j] * size),
                    rows,
                    rests,
                )
            )
        return tuple(lines)


# ---------------------------------------------------------------------------------------- mixture


def _mixture(
    parts: AbstractParts, table: Described, asked: Asked, line: Straight, say: Say
) -> Found:
    """Return the mixture of the linear fit of all rows, a network of all rows, and trees of the rows in
    memory, with the weights that are best for the validation rows.
    """
    rows = table.kept.rows(table.kept.role >= VALIDATION)
    fold = np.where(rows.role == VALIDATION, 0, 1)
    units = units_of(rows.X, rows.y, rows.s)
    task = Task(
        *(units.features(rows.X), units.targets(rows.y), asked.hidden),
        *(asked.loss, "adam", asked.seed),
        s=rows.s,
    )
    if has_scale(outer_of(asked.loss), rows.y.shape[1]):
        units, sigma = of_residuals(task, units, fold, 1)
        task = dataclasses.replace(task, y=units.targets(rows.y), sigma=sigma)
    straight = units.targets(line.predict(rows.X))
    B = _in_units(line, units)
    limit = None
    far = 0
    if asked.loss != "squared":
        limit = reach_of(task, fold >= 0, straight)
        task, far = within_reach(task, fold >= 0, straight)
    work = Drawn(table.plan, units, B, limit)
    return mixed_with(
        task,
        units,
        fold,
        1,
        (),
        "mini-batches of all rows train the network",
        far,
        _as_network(B, asked.hidden),
        straight[None],
        lambda task, setting, say: network_of_parts(
            *(parts, table, work, task, setting, say)
        ),
        say,
    )


def _in_units(line: Straight, units: Units) -> np.ndarray:
    """Return the coefficients (p + 1, k) of a linear fit in some units, the intercept last."""
    B = np.zeros((line.width + 1, len(line.lines)))
    for j, each in enumerate(line.lines):
        slopes = each.coefficients[1:]
        B[each.kept, j] = slopes * units.x_scale[each.kept] / units.y_scale[j]
        center = each.coefficients[0] + slopes @ units.x_center[each.kept]
        B[-1, j] = (center - units.y_center[j]) / units.y_scale[j]
    return B


def _as_network(B: np.ndarray, hidden: int) -> Params:
    """Return a linear fit as a network whose hidden layer is 0."""
    p, k = B.shape[0] - 1, B.shape[1]
    network = network_of(p, hidden, k)
    assert isinstance(network, WithLinear)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    w = jax.tree.map(lambda leaf: np.zeros((1, *leaf.shape)), shapes)
    w["network"][-1]["b"][0] = B[-1]
    w["A"][0] = B[:-1].T / network.scale
    return w


# ------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Predictor:
    """What predicts a row, without the rows that it was fitted to: a worker gets a copy of it."""

    network: Map
    units: Units
    w: Params

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return (n, k) predictions in the units of the table."""
        found = predict(self.network, self.w, self.units.features(X))
        return self.units.given(found.mean(axis=0))


def predictor_of(last: Found | Straight) -> Predictor | Straight:
    """Return what predicts as the fit does."""
    if isinstance(last, Straight):
        return last
    return Predictor(last.task.network(), last.units, last.fits.w)


@dataclass(frozen=True)
class Apart:
    """The work of the last pass: the rows of a chunk that go least with the others, by their residual
    and by their features.
    """

    plan: Plan
    by: Predictor | Straight
    scale: np.ndarray
    center: np.ndarray
    whitening: np.ndarray  # of the numeric columns
    places: Sequence[int]

    def __call__(self, frame: Frame, start: int) -> tuple[Encoded, np.ndarray]:
        rows = self.plan.encoded(frame, start)
        with np.errstate(over="ignore", invalid="ignore"):
            t = np.abs(rows.y - self.by.predict(rows.X)) / self.scale
            z = (rows.X[:, self.places] - self.center) @ self.whitening
            far = np.sqrt(np.sum(z * z, axis=1))
        size = np.column_stack([t, far])
        size = np.nan_to_num(size, nan=np.inf)
        kept = largest(size)
        return rows.rows(kept), size[kept]


def largest(size: np.ndarray) -> np.ndarray:
    """Return the rows that are among the WORST in some column, in their order."""
    if len(size) <= WORST:
        return np.arange(len(size))
    kept = [np.argpartition(-column, WORST - 1)[:WORST] for column in size.T]
    return np.unique(np.concatenate(kept))


def _worst(
    parts: AbstractParts,
    table: Described,
    by: Predictor | Straight,
    scale: np.ndarray,
) -> Encoded:
    """Return the rows that are kept in memory and the WORST ones of all, in the order of the table."""
    places = [each.place for each in numeric_columns(table.encoder)]
    center, whitening = _majority(table.kept.X[:, places])
    work = Apart(table.plan, by, scale, center, whitening, places)
    rows = None
    size = np.zeros((0, 0))
    for more, own in parts.each(work):
        if rows is None:
            rows, size = more, own
            continue
        rows = _both(rows, more)
        size = np.concatenate([size, own])
        kept = largest(size)
        rows = rows.rows(kept)
        size = size[kept]
    assert rows is not None
    new = ~np.isin(rows.numbers, table.kept.numbers)
    rows = _both(table.kept, rows.rows(new))
    return rows.rows(np.argsort(rows.numbers))


def _both(one: Encoded, two: Encoded) -> Encoded:
    s = None
    if one.s is not None and two.s is not None:
        s = np.concatenate([one.s, two.s])
    join = lambda name: np.concatenate([getattr(one, name), getattr(two, name)])
    return Encoded(join("X"), join("y"), s, join("numbers"), join("role"))


def _majority(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the centre and the whitening of the inner half of rows, by which the far ones are found;
    how far they are is told by `findings` from robust distances.
    """
    center = np.median(X, axis=0)
    size = np.median(np.abs(X - center), axis=0)
    spread = size > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(spread, (X - center) / size, 0.0)
    inner = np.argsort(np.sum(z * z, axis=1), kind="stable")[: max(1, len(X) // 2)]
    values, axes = np.linalg.eigh(np.atleast_2d(z[inner].T @ z[inner] / len(inner)))
    least = 1e-12 * values.max(initial=np.finfo(float).tiny)
    root = np.where(values > least, 1 / np.sqrt(np.maximum(values, least)), 0.0)
    with np.errstate(divide="ignore"):
        units = np.where(spread, 1 / size, 0.0)
    return center, units[:, None] * axes * root
