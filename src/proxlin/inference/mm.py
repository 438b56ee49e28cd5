"""MM-estimates of linear regression: up to half of the rows may be wrong, in the target or in the
features.

    S:   beta_0 = argmin_beta s(beta),        sum_i rho(r_i / s; 1.54764) / (n - p) = 1/2
    MM:  sum_i psi(r_i / s_0; 4.685) x_i = 0,  from beta_0, at its scale s_0

rho is Tukey's bisquare, whose derivative psi returns to 0: a row far from the majority has no pull
at all (Yohai 1987). The S-estimate is found by fast-S (Salibian-Barrera and Yohai 2006): many
starts, each an exact fit of p rows, take a step of reweighted least squares together as one batch;
the best of them go on to the end.

It runs in NumPy, as `outliers.py` does: a table is looked at once, and compiling for its shape
would take a hundred times as long.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..checks import check_seed, described, reals, whole
from .redescending import EFFICIENT, mm_covariance
from .scale import BISQUARE

STARTS = 500
FEW = 2  # steps of every start
BEST = 5  # starts that go on to the end
MOST = 500  # steps to the end; tens are usual
SAME = (
    1e-9  # relative to the scale; a smaller change of the fitted values ends the steps
)
MANY = 2000  # rows that the starts look at, if there are more
SCALE_STEPS = 100  # of an M-scale; five are usual
AT_ONCE = 2**20  # numbers of a batch of starts, 8 MB in float64: they stay in the cache
# of the largest singular value; p rows whose smallest is below it determine no fit
FLAT = 1e-9


@dataclass(frozen=True)
class MM:
    """An MM-estimate of linear regression.

    Parameters
    ----------
    coefficients : a vector (p,)
        beta.
    covariance : an array (p, p)
        Their covariance, as `mm_covariance` has it.
    scale : a number
        s_0, the M-scale of the residuals of the S-estimate.
    weights : a vector (n,)
        psi(t) / t of each row's scaled residual t, between 0 (the row does not count) and 1.
    initial : a vector (p,)
        The S-estimate.
    converged : True or False
        Whether the steps came to rest.

    See Also
    --------
    inference.mm_estimate : returns it.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = np.column_stack([np.ones(30), np.arange(30.0)])
    >>> y = x @ [1.0, 2.0] + np.sin(np.arange(30.0))
    >>> y[:10] = 500.0
    >>> found = px.inference.mm_estimate(x, y)
    >>> found.weights[:10].max(), bool(abs(found.coefficients[1] - 2) < 0.1)
    (np.float64(0.0), True)
    """

    coefficients: Float[np.ndarray, " p"]
    covariance: Float[np.ndarray, "p p"]
    scale: float
    weights: Float[np.ndarray, " n"]
    initial: Float[np.ndarray, " p"]
    converged: bool


def mm_estimate(X: Any, y: Any, seed: int = 0, starts: int = STARTS) -> MM:
    """Return the MM-estimate of y ~ X beta, with bisquare of 95 % efficiency from an S-estimate of
    breakdown 1/2.

    The same seed gives the same numbers. Law: (a y + X b) gives a beta + b.

    Parameters
    ----------
    X : an array (n, p)
        The features, with a column of ones if there is an intercept.
    y : a vector (n,)
        The target.
    seed : an integer
        The randomness of the starts.
    starts : an integer
        How many starts the search has.

    Returns
    -------
    an `MM`
        Coefficients, their covariance, the scale, and the weight of each row.

    Raises
    ------
    TypeError
        X or y does not hold real numbers.
    ValueError
        The shapes do not agree, there is no column or too few rows, or columns cannot be told apart.
        Half of the rows or more are fitted exactly. The covariance has no float64.

    See Also
    --------
    inference.mm_covariance : the covariance.
    inference.m_scale : the scale.
    inference.distances : which rows of features lie apart.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = np.column_stack([np.ones(20), np.arange(20.0)])
    >>> y = x @ [3.0, -1.0] + 0.1 * np.cos(np.arange(20.0))
    >>> x[0, 1] = 1000.0  # a wrong row of features, which pulls every convex loss
    >>> px.inference.mm_estimate(x, y).coefficients.round(1).tolist()
    [3.0, -1.0]
    """
    check_seed(seed)
    starts = whole(starts, "starts")
    X = reals(X, "X of mm_estimate")
    y = reals(y, "y of mm_estimate")
    _check(X, y)
    # Powers of two are exact: squares do not overflow then, and no digit changes.
    x_power = np.frexp(np.abs(X).max(axis=0))[1]
    X = np.ldexp(X, -x_power)
    _check_columns(X)
    size = np.abs(y)
    y_power = np.frexp(np.median(size / 2) or size.max())[1]
    y = np.ldexp(y, -y_power)
    n = len(X)
    # Columns of one size and orthogonal: normal equations lose nothing then.
    Q, R = np.linalg.qr(X)
    unit = np.median(np.abs(y - np.median(y))) or np.abs(y).max() or 1.0
    z = y / unit
    rng = np.random.default_rng(seed)
    part = np.sort(rng.permutation(n)[:MANY])
    first = _starts(Q[part], z[part], rng, starts)
    first = _best_starts(Q[part], z[part], first)
    if n > MANY:
        # all rows are looked at from the answer of a part of them
        first, _ = _s_estimate(Q[part], z[part], first)
        first = first[None]
    initial, scale = _s_estimate(Q, z, first)
    size = np.median(np.abs(z - Q @ initial))
    if scale <= 1e-12 * max(size, np.abs(z).max()):
        raise ValueError(
            "mm_estimate: half of the rows or more are fitted exactly, so that their scale is 0; take the l1 loss."
        )
    beta, converged = _to_the_end(Q, z, initial, scale)
    r = z - Q @ beta
    weights = _weights(r / scale, EFFICIENT)
    cov = mm_covariance(Q, r, z - Q @ initial, scale)
    back = unit * np.linalg.inv(R)
    cov = back @ cov @ back.T
    power = y_power - x_power
    with np.errstate(over="ignore", under="ignore"):
        coefficients = np.ldexp(back @ beta, power)
        initial = np.ldexp(back @ initial, power)
        covariance = np.ldexp(cov, power[:, None] + power)
    _check_range(coefficients, np.diag(covariance), np.diag(cov))
    return MM(
        coefficients,
        covariance,
        float(np.ldexp(unit * scale, y_power)),
        weights,
        initial,
        converged,
    )


def _check(X: np.ndarray, y: np.ndarray) -> None:
    """Raise a sentence where there is nothing to estimate."""
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(
            f"mm_estimate needs X (n, p) and y (n,); it got {described(X)} and {described(y)}."
        )
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise ValueError("mm_estimate: X or y has a value that is not finite.")
    n, p = X.shape
    if p == 0:
        raise ValueError(
            "mm_estimate needs a column in X; it has none: give one of ones for the middle of y."
        )
    if n <= 2 * p:
        raise ValueError(
            f"mm_estimate needs more than two rows for each coefficient; here are {n} rows for {p}: leave columns out."
        )


def _check_columns(X: np.ndarray) -> None:
    """Raise a sentence where a column is a sum of others up to rounding."""
    size = np.linalg.norm(X, axis=0)
    values = np.linalg.svd(X / np.where(size > 0, size, 1.0), compute_uv=False)
    if values[-1] <= FLAT * values[0]:
        raise ValueError(
            "mm_estimate: the columns of X are not independent; leave some of them out."
        )


def _check_range(
    coefficients: np.ndarray, variances: np.ndarray, before: np.ndarray
) -> None:
    """Raise a sentence where a variance, or a coefficient, is beyond the numbers of float64; it was
    positive `before` it came to the units of X and y.
    """
    lost = (variances < np.finfo(float).tiny) & (before > 0)
    bad = lost | ~np.isfinite(coefficients) | ~np.isfinite(variances)
    if bad.any():
        raise ValueError(
            f"mm_estimate: the variance of the coefficient of column {bad.argmax()} of X is beyond the numbers of "
            f"float64; give that column, or y, in other units."
        )


def _starts(
    Q: Float[np.ndarray, "n p"],
    z: Float[np.ndarray, " n"],
    rng: np.random.Generator,
    count: int,
) -> Float[np.ndarray, "starts p"]:
    """Return exact fits of p rows each. Rows that determine no fit (0/1 columns often do not) are
    joined by as many others, until they do.
    """
    n, p = Q.shape
    order = np.argsort(rng.random((count, n)), axis=1)
    found = np.empty((count, p))
    left = np.arange(count)
    size = p
    while len(left):
        rows = order[left, :size]
        U, values, V = np.linalg.svd(Q[rows], full_matrices=False)
        good = (values[:, -1] > FLAT * values[:, 0]) | (size == n)
        inverse = 1 / np.maximum(values, FLAT * values[:, :1] + np.finfo(float).tiny)
        along = np.einsum("bmp,bm->bp", U, z[rows]) * inverse
        fits = np.einsum("bpq,bp->bq", V, along)
        found[left[good]] = fits[good]
        left = left[~good]
        size = min(2 * size, n)
    return found


def _best_starts(
    Q: Float[np.ndarray, "n p"],
    z: Float[np.ndarray, " n"],
    first: Float[np.ndarray, "starts p"],
) -> Float[np.ndarray, "best p"]:
    """Return the starts of least scale after a few steps each."""
    batch = max(1, AT_ONCE // Q.size)
    fits = []
    scales = []
    for begin in range(0, len(first), batch):
        beta = first[begin : begin + batch]
        scale = _median_scale(Q, z, beta)
        for _ in range(FEW):
            beta = _reweighted(Q, z, beta, scale, BISQUARE)
            scale = _improved(_residuals(Q, z, beta), scale, Q.shape[1], 1)
        fits.append(beta)
        scales.append(_improved(_residuals(Q, z, beta), scale, Q.shape[1], SCALE_STEPS))
    best = np.argsort(np.concatenate(scales), kind="stable")[:BEST]
    return np.concatenate(fits)[best]


def _s_estimate(
    Q: Float[np.ndarray, "n p"],
    z: Float[np.ndarray, " n"],
    beta: Float[np.ndarray, "best p"],
) -> tuple[Float[np.ndarray, " p"], float]:
    """Return the fit of least M-scale that the best starts lead to, and that scale."""
    p = Q.shape[1]
    scale = _improved(_residuals(Q, z, beta), _median_scale(Q, z, beta), p, SCALE_STEPS)
    for _ in range(MOST):
        last = beta
        beta = _reweighted(Q, z, beta, scale, BISQUARE)
        # Fit and scale come to rest together, so one step of Newton's method is enough here.
        scale = _improved(_residuals(Q, z, beta), scale, p, 1)
        # Q has orthonormal columns: this is the change of the fitted values.
        moved = np.linalg.norm(beta - last, axis=1)
        if np.all(moved <= SAME * scale * np.sqrt(len(z))):
            break
    scale = _improved(_residuals(Q, z, beta), scale, p, SCALE_STEPS)
    best = int(np.argmin(scale))
    return beta[best], float(scale[best])


def _to_the_end(
    Q: Float[np.ndarray, "n p"],
    z: Float[np.ndarray, " n"],
    beta: Float[np.ndarray, " p"],
    scale: float,
) -> tuple[Float[np.ndarray, " p"], bool]:
    """Return the fixed point of reweighted least squares at this scale, and whether it came to
    rest.
    """
    for _ in range(MOST):
        last = beta
        beta = _reweighted(Q, z, beta[None], np.array([scale]), EFFICIENT)[0]
        if np.linalg.norm(beta - last) <= SAME * scale * np.sqrt(len(z)):
            return beta, True
    return beta, False


def _reweighted(
    Q: Float[np.ndarray, "n p"],
    z: Float[np.ndarray, " n"],
    beta: Float[np.ndarray, "b p"],
    scale: Float[np.ndarray, " b"],
    width: float,
) -> Float[np.ndarray, "b p"]:
    """Return one step of least squares with weights psi(t) / t, for each of some fits.

    A fit whose weighted rows determine no other one stays where it is.
    """
    p = Q.shape[1]
    weights = _weights(_residuals(Q, z, beta) / _positive(scale)[:, None], width)
    gram = Q.T @ (weights[:, :, None] * Q)
    right = (weights * z) @ Q
    values = np.linalg.eigvalsh(gram)
    good = values[:, 0] > FLAT * np.maximum(values[:, -1], np.finfo(float).tiny)
    safe = np.where(good[:, None, None], gram, np.eye(p))
    step = np.linalg.solve(safe, right[:, :, None])[:, :, 0]
    return np.where(good[:, None], step, beta)


def _residuals(
    Q: Float[np.ndarray, "n p"],
    z: Float[np.ndarray, " n"],
    beta: Float[np.ndarray, "b p"],
) -> Float[np.ndarray, "b n"]:
    return z - beta @ Q.T


def _median_scale(
    Q: Float[np.ndarray, "n p"],
    z: Float[np.ndarray, " n"],
    beta: Float[np.ndarray, "b p"],
) -> Float[np.ndarray, " b"]:
    """Return 1.4826 median |r|, and where it is 0 the mean |r|, from which an M-scale can begin."""
    size = np.abs(_residuals(Q, z, beta))
    middle = 1.4826 * np.median(size, axis=1)
    return np.where(middle > 0, middle, size.mean(axis=1))


def _improved(
    r: Float[np.ndarray, "b n"], scale: Float[np.ndarray, " b"], p: int, steps: int
) -> Float[np.ndarray, " b"]:
    """Return M-scales after some steps of Newton's method for log s in sum rho(r / s) / (n - p) =
    1/2.
    """
    for _ in range(steps):
        q = np.minimum((r / (BISQUARE * _positive(scale)[:, None])) ** 2, 1)
        left = 1 - q
        mean = np.sum(1 - left**3, axis=1) / (r.shape[1] - p)
        # - d mean / d log s; all rows beyond the width have no slope
        slope = np.sum(6 * q * left**2, axis=1) / (r.shape[1] - p)
        # A step of at most a factor of 2: far away Newton's would be too long.
        step = np.clip((mean - 0.5) / np.maximum(slope, 1e-3), -np.log(2), np.log(2))
        scale = scale * np.exp(step)
        if np.all(np.abs(step) <= 1e-14):
            break
    return scale


def _weights(t: Float[np.ndarray, "*b n"], width: float) -> Float[np.ndarray, "*b n"]:
    """Return psi(t) / t of the bisquare, scaled to 1 at t = 0."""
    return np.maximum(1 - (t / width) ** 2, 0) ** 2


def _positive(scale: Float[np.ndarray, " b"]) -> Float[np.ndarray, " b"]:
    return np.maximum(scale, np.finfo(float).tiny)
