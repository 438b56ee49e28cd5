"""A linear fit of a table with the uncertainty of its coefficients, in the units of the table.

    y_j ~ intercept_j + sum_c coefficient_jc x_c,       cov(coefficients) as `px.covariance` has it

The fit is the one of `search` at ridge 0, or an MM-estimate. Columns that follow from the ones before
them (a category among all of its 0/1 columns, a copy) have no coefficient.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Bool, Float, Int
from scipy.special import stdtr, stdtrit

from ..errors import UserError
from ..inference import bootstrap, covariance
from ..inference.hessians import quantile_step
from ..inference.mm import mm_estimate
from .asked import Asked
from .losses import level_of
from .search import Found, search
from .standardize import powers_of, residual_scale, units_of
from .training import Fits, Say, Setting, Task

UNPENALISED = (Setting(0.0, 0.0),)
ERRORS = ("formula", "sandwich", "bootstrap")
DRAWS = 300  # fits of a bootstrap: its standard errors are right to 4 %
FLAT = 1e-9  # of a column's size; less is left of it by the columns before it


@dataclass(frozen=True)
class Line:
    """The linear fit of one target: coefficients (the intercept first) and their covariance.

    `kept` are the columns of X that have one, `scale` is that of the residuals, `kind` says how the
    covariance was found, and is None with a `reason` where it was not.
    """

    target: str
    kept: Int[np.ndarray, " p"]
    coefficients: Float[np.ndarray, " q"]
    covariance: Float[np.ndarray, "q q"] | None
    kind: str | None
    reason: str | None
    scale: float
    rows: int
    converged: bool

    @property
    def errors(self) -> Float[np.ndarray, " q"] | None:
        """Return the standard errors."""
        if self.covariance is None:
            return None
        return np.sqrt(np.diag(self.covariance))

    def predict(self, X: Float[np.ndarray, "n c"]) -> Float[np.ndarray, " n"]:
        """Return the fitted values; what overflows is infinite or nan."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.coefficients[0] + X[:, self.kept] @ self.coefficients[1:]

    def table(self, names: Sequence[str], level: float) -> list[dict[str, Any]]:
        """Return a row for each coefficient: standard error, t interval and p-value."""
        errors = self.errors
        # as R has it for lm, rlm, lmrob and rq
        free = self.rows - len(self.coefficients)
        rows = []
        for j, name in enumerate(("intercept", *(names[c] for c in self.kept))):
            estimate = float(self.coefficients[j])
            row: dict[str, Any] = {
                "target": self.target,
                "name": name,
                "estimate": estimate,
            }
            error = low = high = p = None
            if errors is not None and free > 0:
                error = float(errors[j])
                half = float(stdtrit(free, (1 + level) / 2)) * error
                low = estimate - half
                high = estimate + half
                ratio = abs(estimate) / error if error > 0 else np.inf
                p = float(2 * stdtr(free, -ratio))
            rows.append(
                row | {"standard error": error, "low": low, "high": high, "p-value": p}
            )
        return rows


def independent(
    X: Float[np.ndarray, "n c"], last: Bool[np.ndarray, " c"]
) -> Int[np.ndarray, " p"]:
    """Return the columns that do not follow from a constant and the columns before them.

    The columns of `last` (the first level of each category) come last, so that they are the ones
    left out.
    """
    order = np.argsort(last, kind="stable")
    center = X.mean(axis=0)[order]
    away = X[:, order] - center
    size = np.abs(away).max(axis=0, initial=0)
    # a constant column leaves the rounding of its mean
    varies = size > FLAT * np.abs(center)
    away = np.where(varies, away, 0.0) / np.where(size > 0, size, 1.0)
    norms = np.linalg.norm(away, axis=0)
    left = np.zeros(len(order))
    diagonal = np.abs(np.diag(np.linalg.qr(away, mode="r")))
    left[: len(diagonal)] = diagonal
    return np.sort(order[left > FLAT * np.maximum(norms, 1.0)])


def linear_fit(
    X: Float[np.ndarray, "n c"],
    y: Float[np.ndarray, "n k"],
    asked: Asked,
    kept: Int[np.ndarray, " p"],
    fold: Int[np.ndarray, " n"],
    errors: str | None,
    say: Say,
    s: Float[np.ndarray, " n"] | None = None,
) -> tuple[Line, ...]:
    """Return the linear fit of each target to the rows whose fold is not -1, with no ridge.

    `errors` is how the covariance is found, one of ERRORS, or None: it is not. s says how much each
    row counts; None: all the same.
    """
    used = fold >= 0
    check_rows(int(used.sum()), len(kept) + 1, asked)
    if asked.loss == "mm":
        return _mm_lines(X[used][:, kept], y[used], asked, kept)
    return _convex_lines(X[:, kept], y, asked, kept, fold, errors, say, s)


def check_rows(n: int, coefficients: int, asked: Asked) -> None:
    """Raise a sentence where a linear fit has fewer rows than it needs."""
    least = 2 * coefficients if asked.loss == "mm" else coefficients
    if n <= least:
        raise UserError(
            f"{n} rows are too few for the {coefficients} coefficients of a linear fit by {asked.loss}, which needs "
            f"more than {least}; leave columns out."
        )


# ---------------------------------------------------------------------------------------------- MM


def _mm_lines(
    X: np.ndarray, y: np.ndarray, asked: Asked, kept: np.ndarray
) -> tuple[Line, ...]:
    units = powers_of(X, y)
    design = np.column_stack([np.ones(len(X)), units.features(X)])
    z = units.targets(y)
    lines = []
    for j, target in enumerate(asked.targets):
        try:
            found = mm_estimate(design, z[:, j], asked.seed)
        except ValueError as error:
            raise UserError(f"The target {target!r}: {error}") from error
        # here the intercept is the first coefficient of the fit, too
        back = np.roll(_to_table(units, j), 1, axis=1)
        cov = None
        kind = None
        reason = None
        try:
            cov = _in_the_table(back, found.covariance)
            kind = "as lmrob"
        except ValueError as error:
            reason = str(error)
        lines.append(
            Line(
                target,
                kept,
                back @ found.coefficients,
                cov,
                kind,
                reason,
                float(units.y_scale[j] * found.scale),
                len(X),
                found.converged,
            )
        )
    return tuple(lines)


# ------------------------------------------------------------------------------------------ convex


def _convex_lines(
    X: np.ndarray,
    y: np.ndarray,
    asked: Asked,
    kept: np.ndarray,
    fold: np.ndarray,
    errors: str | None,
    say: Say,
    s: np.ndarray | None,
) -> tuple[Line, ...]:
    """Return the lines of a convex loss: one joint fit, whose coefficients go back to the table's
    units.
    """
    used = fold >= 0
    found = None
    if asked.hidden:
        found = direct(X, y, asked, used, s)
    if found is None:
        found = search(X, y, replace(asked, hidden=0), fold, say, UNPENALISED, s)
    return lines_of(found, X, y, asked, kept, used, errors)


def squares(
    X: np.ndarray, y: np.ndarray, asked: Asked, kept: np.ndarray, s: np.ndarray | None
) -> tuple[Line, ...]:
    """Return the lines of least squares, without a covariance."""
    used = np.ones(len(X), bool)
    found = direct(X[:, kept], y, replace(asked, loss="squared"), used, s)
    assert found is not None
    return lines_of(found, X[:, kept], y, asked, kept, used, None)


def direct(
    X: np.ndarray,
    y: np.ndarray,
    asked: Asked,
    used: np.ndarray,
    s: np.ndarray | None,
) -> Found | None:
    """Return the linear fit as a linear program or as a linear system, or None where the loss is
    neither.

    Beside a network it is not the model, and need not come from the solver that was asked for.
    """
    k = y.shape[1]
    level = level_of(asked.loss, k)
    if level is None and asked.loss != "squared":
        return None
    units = units_of(X[used], y[used], None if s is None else s[used])
    z = units.targets(y)
    task = Task(
        *(units.features(X), z, 0, asked.loss, "direct", asked.seed), s=s, held=~used
    )
    design = np.column_stack([task.x, np.ones(len(X))])[used]
    weight = task.importance()[used]
    if level is None:
        root = np.sqrt(weight)[:, None]
        B = np.linalg.lstsq(design * root, z[used] * root, rcond=None)[0]
    else:
        try:
            each = [quantile_step(design, -z[used, j], weight, level) for j in range(k)]
        except ValueError:  # the program failed: the iteration is left
            return None
        B = np.stack(each, axis=1)
    w = [{"W": B[None, :-1].swapaxes(1, 2), "b": B[None, -1]}]
    losses = np.zeros((1, 1))
    why = "a linear program" if level is not None else "a linear system"
    return Found(
        *(UNPENALISED, losses, UNPENALISED[0], task, why, units, Fits(w, 0), 0)
    )


def lines_of(
    found: Found,
    X: np.ndarray,
    y: np.ndarray,
    asked: Asked,
    kept: np.ndarray,
    used: np.ndarray,
    errors: str | None,
) -> tuple[Line, ...]:
    """Return the lines of a linear fit that was found, with coefficients for the columns X of the
    table.
    """
    units = found.units
    layer = found.fits.w[0]
    W = np.asarray(layer["W"][0], float)
    b = np.asarray(layer["b"][0], float)
    away = y - found.predict(X)
    scale = residual_scale(away[used], found.task.importance()[used])
    lines = []
    for j, target in enumerate(asked.targets):
        back = _to_table(units, j)
        coefficients = back @ np.concatenate([W[j], b[j : j + 1]])
        coefficients[0] += units.y_center[j]
        cov = None
        kind = None
        reason = None
        if errors is not None:
            try:
                small, kind = _covariance(found, j, used, errors)
                cov = _in_the_table(back, small)
            except (ValueError, TypeError) as error:
                reason = str(error)
        lines.append(
            Line(
                target,
                kept,
                coefficients,
                cov,
                kind,
                reason,
                float(scale[j]),
                int(used.sum()),
                not found.fits.unfinished,
            )
        )
    return tuple(lines)


def _to_table(units: Any, j: int) -> np.ndarray:
    """Return the matrix from (W_j, b_j) to (intercept, slopes) of the table, without the centre of
    the target.
    """
    slopes = units.y_scale[j] / units.x_scale
    p = len(slopes)
    back = np.zeros((p + 1, p + 1))
    back[1:, :p] = np.diag(slopes)
    back[0, :p] = -slopes * units.x_center
    back[0, p] = units.y_scale[j]
    return back


def _in_the_table(back: np.ndarray, small: np.ndarray) -> np.ndarray:
    """Return a covariance in the units of the table, or raise a sentence where it has no float64."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        cov = back @ small @ back.T
    lost = (np.diag(cov) < np.finfo(float).tiny) & np.all(np.diag(small) > 0)
    if lost.any() or not np.isfinite(cov).all():
        raise ValueError(
            "a variance is beyond the numbers of float64; give columns in units near 1."
        )
    return cov


def _covariance(
    found: Any, j: int, used: np.ndarray, errors: str
) -> tuple[np.ndarray, str]:
    """Return the covariance of (W_j, b_j) in the units of the fit, and how it was found.

    A loss of all targets at once is looked at as a whole; of any other one the target has a problem
    of its own.
    """
    task = found.task
    k = task.y.shape[1]
    w = jax.tree.map(lambda leaf: np.asarray(leaf[0], float), found.fits.w)
    together = k > 1 and task.loss == "l2"
    which = slice(None) if together else slice(j, j + 1)
    # rows that were not used are no rows at all
    s = None if task.s is None else task.s[used]
    task = replace(task, x=task.x[used], y=task.y[used][:, which], s=s, held=None)
    w = [{"W": w[0]["W"][which], "b": w[0]["b"][which]}]
    with jax.enable_x64(True), warnings.catch_warnings():
        # the fit ended at its tolerance; what it left matters below the digits that are shown
        warnings.simplefilter("ignore")
        problem = task.problem(jnp.float64, 0.0, s)
        w = jax.tree.map(jnp.asarray, w)
        matrix, kind = _by_kind(problem, w, task.loss, errors, together)
    if not together:
        return matrix, kind
    p = task.x.shape[1]
    own = np.r_[j * p : (j + 1) * p, k * p + j]
    return matrix[np.ix_(own, own)], kind


def _by_kind(
    problem: Any, w: Any, loss: str, errors: str, together: bool
) -> tuple[np.ndarray, str]:
    """Return a covariance in the order of `ravel_pytree(w)`, by the formula that R's users expect."""
    if errors == "bootstrap":
        return _bootstrapped(problem, w), "bootstrap"
    # R's formulas are for rows that count the same
    if errors == "sandwich" or together or problem.weights is not None:
        return covariance(problem, w), "sandwich"
    if loss in ("huber", "squared"):
        name = "as rlm" if loss == "huber" else "as lm"
        return covariance(problem, w, "rlm"), name
    for kind in ("nid", "kernel"):
        try:
            return covariance(problem, w, kind), f"as rq, {kind}"
        except ValueError:
            continue
    return _bootstrapped(problem, w), "bootstrap"


def _bootstrapped(problem: Any, w: Any) -> np.ndarray:
    draws = bootstrap(problem, w, count=DRAWS).w
    flat = np.asarray(jax.vmap(lambda each: ravel_pytree(each)[0])(draws))
    return np.cov(flat.T).reshape(flat.shape[1], flat.shape[1])
