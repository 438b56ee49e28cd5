"""Which rows of features lie apart: robust distances by the minimum covariance determinant (MCD).

    d_i^2 = (x_i - m)' C^-1 (x_i - m),    m and C the mean and covariance of the h of n rows for which det C is least

Scaled residuals tell the rows whose *target* is wrong; these distances tell the rows whose
*features* are far away, to which no convex loss sets a bound. The search is that of Rousseeuw and
Van Driessen (1999): many starts of p + 1 rows, two concentration steps each, the best of them to
the end.

All starts take a step at once, as one batch of small matrices. They do so in NumPy: a table is
looked at once, and compiling for its shape took a hundred times as long (2 to 3 s). In float64 the
majority is still seen beside outliers that are 10^8 times as far away.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtri, gammainc

from ..checks import check_seed, described, whole

LEVEL = 0.975  # of the normal distribution: rows within it are kept in the second round
STARTS = 500
FEW = 2  # concentration steps of every start
BEST = 10  # starts that go on to the end
# Concentration steps to the end: the determinant falls at each of them, and ten are rarely needed.
MOST = 100
MANY = 2000  # rows that the starts look at, if there are more
AT_ONCE = 2**22  # numbers of a batch of starts, 32 MB in float64


def cutoff(p: int, level: float = LEVEL) -> float:
    """Return the square root of the quantile of chi-square with p degrees of freedom: normal rows lie
    within it with this probability.

    Parameters
    ----------
    p : an integer
        The number of columns.
    level : a number between 0 and 1
        The probability.

    Returns
    -------
    a number
        The distance.

    See Also
    --------
    inference.distances : what is compared with it.

    Examples
    --------
    >>> import proxlin as px
    >>> round(px.inference.cutoff(3), 4)
    3.0575
    """
    return float(np.sqrt(chdtri(whole(p, "p"), 1 - level)))


def distances(X: Any, seed: int = 0, starts: int = STARTS) -> Float[np.ndarray, " n"]:
    """Return the robust distance of each row of X from the centre of the majority; `cutoff(p)` is
    what normal rows keep within.

    The same seed gives the same numbers. Law: an affine map of the rows, x -> T x + b, changes
    nothing.

    Parameters
    ----------
    X : an array (n, p)
        The features, one row for each sample.
    seed : an integer
        The randomness of the starts.
    starts : an integer
        How many starts the search has.

    Returns
    -------
    a vector (n,)
        The distance of each row.

    See Also
    --------
    inference.cutoff : what is far.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> X[0] = [8.0, -8.0]
    >>> far = px.inference.distances(X)
    >>> int(np.argmax(far)), bool(far[0] > px.inference.cutoff(2))
    (0, True)
    """
    check_seed(seed)
    whole(starts, "starts")
    Z = _whitened(X)
    n, p = Z.shape
    rng = np.random.default_rng(seed)
    part = rng.permutation(n)[:MANY]
    rows = np.argsort(rng.random((starts, len(part))), axis=1)[:, : p + 1]
    kept = _least_determinant(Z, part[_best_starts(Z[part], rows)])
    raw = _squares(Z, Z[kept], len(kept) / n)
    return np.sqrt(_squares(Z, Z[raw <= chdtri(p, 1 - LEVEL)]))


def _squares(
    Z: Float[np.ndarray, "n p"], kept: Float[np.ndarray, "m p"], share: float = 0.0
) -> Float[np.ndarray, " n"]:
    """Return the squared distances from the centre of the rows that were kept."""
    n, p = Z.shape
    cov = np.cov(kept.T, ddof=1).reshape(p, p) * consistency(p, share or len(kept) / n)
    values, axes = np.linalg.eigh(cov)
    if values[0] <= _rounding(kept):
        raise ValueError(
            "distances: half of the rows of X lie in a plane of fewer dimensions, from which every other row is "
            "infinitely far; leave columns out that are constant for most rows."
        )
    away = (Z - kept.mean(axis=0)) @ axes
    return np.sum(away * away / values, axis=1)


def consistency(p: int, share: float) -> float:
    """Return the factor by which the covariance of the inner `share` of a normal distribution is
    too small (Croux and Haesbroeck 1999).

        share / P(chi^2_{p+2} <= q),    q the quantile of chi^2_p at the share
    """
    if share >= 1:
        return 1.0
    return float(share / gammainc(p / 2 + 1, chdtri(p, 1 - share) / 2))


def _whitened(X: Any) -> Float[np.ndarray, "n p"]:
    """Return the rows in the coordinates of their covariance, where no unit of X is left, or raise
    a sentence.
    """
    X = np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "iuf":
        raise ValueError(
            f"X must be an array of numbers of shape (n, p); it is {described(X)}."
        )
    X = X.astype(np.float64)
    n, p = X.shape
    if not np.isfinite(X).all():
        bad = int((~np.isfinite(X)).any(axis=1).argmax())
        raise ValueError(f"X has a value that is not finite in row {bad}.")
    if p == 0 or n < 2 * (p + 1):
        raise ValueError(
            f"distances needs at least 2 (p + 1) rows for p > 0 columns; X has {n} rows and {p} columns."
        )
    away = X - X.mean(axis=0)
    size = np.abs(away).max(axis=0)
    Q, values, _ = np.linalg.svd(
        away / np.where(size > 0, size, 1), full_matrices=False
    )
    flat = int(np.sum(values <= values[0] * n * np.finfo(float).eps))
    if flat:
        raise ValueError(
            f"distances: the columns of X have {flat} linear relation(s), such as a constant column; leave out as many."
        )
    return Q * np.sqrt(n)


# ------------------------------------------------------------------------------------------- search


def _majority(Z: Float[np.ndarray, "n p"]) -> int:
    """Return h, the fewest rows for which nearly half of all rows may be outliers."""
    n, p = Z.shape
    return (n + p + 1) // 2


def _best_starts(
    Z: Float[np.ndarray, "n p"], rows: Int[np.ndarray, "starts q"]
) -> Int[np.ndarray, "best h"]:
    """Return the h rows that the best of the starts lead to in a few steps."""
    h = _majority(Z)
    few = rows
    for _ in range(FEW):
        few, _ = _concentrate(Z, few, h)
    _, sizes = _concentrate(Z, few, h)
    return few[np.argsort(sizes, kind="stable")[:BEST]]


def _least_determinant(
    Z: Float[np.ndarray, "n p"], few: Int[np.ndarray, "best m"]
) -> Int[np.ndarray, " h"]:
    """Return the h rows of least determinant that the best starts lead to."""
    h = _majority(Z)
    kept, _ = _concentrate(Z, few, h)
    last = np.full(len(few), np.inf)
    for _ in range(MOST):
        nearest, size = _concentrate(Z, kept, h)
        if not np.any(size < last):
            break
        kept = nearest
        last = size
    return kept[np.argmin(size)]


def _concentrate(
    Z: Float[np.ndarray, "n p"], few: Int[np.ndarray, "b m"], h: int
) -> tuple[Int[np.ndarray, "b h"], Float[np.ndarray, " b"]]:
    """Return, for each batch of few rows, the h rows that are nearest to their centre, and log det
    of the few.

    The determinant of the h rows is at most that of the few, if these are h as well. Few rows in a
    plane have -inf: as a start they lead to some h rows, and at the end they are the answer.
    """
    batch = max(1, AT_ONCE // Z.size)
    if len(few) > batch:
        parts = range(0, len(few), batch)
        found = [_concentrate(Z, few[i : i + batch], h) for i in parts]
        rows, sizes = zip(*found, strict=True)
        return np.concatenate(rows), np.concatenate(sizes)
    some = Z[few]
    center = some.mean(axis=1, keepdims=True)
    away = some - center
    cov = np.swapaxes(away, 1, 2) @ away / few.shape[1]
    values, axes = np.linalg.eigh(cov)
    # Distances along directions without a spread mean nothing, but stay finite.
    least = _rounding(some)[:, None]
    root = axes / np.sqrt(np.maximum(values, least))[:, None, :]
    half = (Z - center) @ root
    squares = np.einsum("bnp,bnp->bn", half, half)
    nearest = np.argpartition(squares, h - 1, axis=1)[:, :h]
    flat = values[:, 0] <= least[:, 0]
    size = np.where(flat, -np.inf, np.sum(np.log(np.maximum(values, least)), axis=1))
    return nearest, size


def _rounding(rows: Float[np.ndarray, "*b m p"]) -> Any:
    """Return the variance below which rows lie in a plane, up to rounding."""
    eps = 100 * np.finfo(float).eps
    return (eps * np.abs(rows).max(axis=(-2, -1))) ** 2 + np.finfo(float).tiny
