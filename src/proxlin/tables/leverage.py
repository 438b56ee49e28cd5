"""Tell whether rows of far features decide a linear fit of convex loss.

    (b - c)' cov(c)^-1 (b - c) > chi2_p(0.999),      b the slopes of the fit, c of one that no far row decides

A convex loss bounds the pull of a wrong target, never that of a wrong row of features. For losses of
the middle of a target, c is an MM-estimate, which bounds both. A quantile away from the middle, and a
fit with weights, have no MM-estimate: c is then the same fit without the rows of far features.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtr

from ..errors import UserError
from ..inference.mm import mm_estimate
from .asked import Asked
from .linear import Line, independent, linear_fit

# of fits that no far row decides, this share is told that one does
FALSE_ALARM = 1e-3
COMPARED = 20_000  # rows at most of a comparison
IGNORED = 0.1  # the weight below which an MM-estimate ignores a row
NAMED = 8  # rows that a sentence names
# slopes, their covariance, and the rows that they do not go by
Other = tuple[np.ndarray, np.ndarray, np.ndarray]


def decided_by_features(
    X: Float[np.ndarray, "n c"],
    y: Float[np.ndarray, "n k"],
    rows: Int[np.ndarray, " n"],
    asked: Asked,
    lines: tuple[Line, ...],
    far: tuple[Float[np.ndarray, " n"], float],
    s: Float[np.ndarray, " n"] | None,
    whole: bool,
) -> tuple[str, ...]:
    """Return a sentence for each target whose fit is decided by rows of far features.

    `far` are the robust distances and their limit, `rows` the numbers of the rows from 0. Rows that
    are not the `whole` table were drawn by their residuals: only an MM-estimate bears that.
    """
    distance, limit = far
    part = np.arange(len(X))
    if len(X) > COMPARED:
        part = np.random.default_rng(asked.seed).permutation(len(X))[:COMPARED]
    beyond = distance[part] > limit
    if not lines or not beyond.any():
        return ()
    by_mm = asked.level in (None, 0.5) and s is None
    if by_mm:
        others = _by_mm(X[part], y[part], asked, lines, beyond)
        instead = "and an MM-estimate, which ignores them, gives other coefficients: compare with loss 'mm'"
    elif whole:
        counts = None if s is None else s[part]
        others = _without(X[part], y[part], asked, lines, beyond, counts)
        instead = "and without them the same loss gives other coefficients: look whether they are right"
    else:
        return ()
    said = []
    for line, other in others:
        slopes, cov, ignored = other
        away = line.coefficients[1:] - slopes
        size = float(away @ np.linalg.pinv(cov, hermitian=True) @ away)
        if len(ignored) and 1 - chdtr(len(away), size) < FALSE_ALARM:
            named = np.sort(rows[part[ignored]] + 1)
            which = ", ".join(map(str, named[:NAMED]))
            if len(named) > NAMED:
                which += f" and {len(named) - NAMED} more"
            row_word = "row" if len(named) == 1 else "rows"
            what = line.target
            if asked.level is not None:
                what += f", quantile {asked.level:g}"
            said.append(
                f"{what}: rows of far features decide this linear fit ({row_word} {which}); "
                f"no convex loss bounds their pull, {instead}"
            )
    return tuple(said)


def _by_mm(
    X: np.ndarray,
    y: np.ndarray,
    asked: Asked,
    lines: tuple[Line, ...],
    beyond: np.ndarray,
) -> Iterator[tuple[Line, Other]]:
    """Yield each line with the MM-estimate of its target, which ignores some of the far rows."""
    for j, line in enumerate(lines):
        design = np.column_stack([np.ones(len(X)), X[:, line.kept]])
        try:
            found = mm_estimate(design, y[:, j], asked.seed)
        except ValueError:  # too few rows, or rounded ones: nothing to compare with
            continue
        ignored = np.flatnonzero((found.weights < IGNORED) & beyond)
        yield line, (found.coefficients[1:], found.covariance[1:, 1:], ignored)


def _without(
    X: np.ndarray,
    y: np.ndarray,
    asked: Asked,
    lines: tuple[Line, ...],
    beyond: np.ndarray,
    s: np.ndarray | None,
) -> Iterator[tuple[Line, Other]]:
    """Yield each line with that of the same loss without the far rows."""
    kept = lines[0].kept
    near = X[~beyond][:, kept]
    if len(independent(near, np.zeros(len(kept), bool))) < len(kept):
        return  # a column that varies in far rows alone has no other coefficient
    fold = np.where(beyond, -1, 0)
    if s is not None:
        s = s / s.mean()
    quiet = lambda what, share: None
    try:
        others = linear_fit(
            *(X, y, replace(asked, hidden=0), kept, fold, "formula", quiet), s
        )
    except UserError:  # too few rows are near
        return
    for line, other in zip(lines, others, strict=True):
        if other.covariance is not None:
            ignored = np.flatnonzero(beyond)
            cov = other.covariance[1:, 1:]
            yield line, (other.coefficients[1:], cov, ignored)
