"""The covariance of an MM-estimate of linear regression, whose bisquare loss is not convex and so
no outer function.

    sum_i psi(r_i / s) x_i = 0,     sum_i rho0(r0_i / s) / n = 1/2,     r0 the residuals of the S-estimate

    cov = s^2 M^-1 (mean psi_i^2 x_i x_i' - c a' - a c' + (mean rho0_i^2 - 1/4) a a') M^-1 / n

    M = mean psi'_i x_i x_i',   c = mean psi_i rho0_i x_i,   a = mean(psi'_i r_i/s x_i) / mean(rho0'_i r0_i/s)

It is the sandwich of both equations together, to first order: the second one passes the noise of
the scale on to the coefficients (Croux, Dhaene and Hoorelbeke 2003, avar_1). `lmrob` has the same
formula.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from ..checks import described, real, reals
from .scale import BISQUARE

EFFICIENT = 4.685  # the width of bisquare that is 95 % efficient for normal errors


def mm_covariance(
    X: Any, residuals: Any, initial: Any, scale: float, width: float = EFFICIENT
) -> Float[np.ndarray, "p p"]:
    """Return the covariance of the coefficients of an MM-estimate.

    Parameters
    ----------
    X : an array (n, p)
        The features, with a column of ones if there is an intercept.
    residuals : a vector (n,)
        Those of the estimate.
    initial : a vector (n,)
        Those of the S-estimate.
    scale : a positive number
        The M-scale of the S-estimate.
    width : a number
        c of the bisquare of the second step.

    Returns
    -------
    an array (p, p)
        The covariance.

    Raises
    ------
    TypeError
        An array has other things than real numbers.
    ValueError
        The shapes do not agree, or the columns of X cannot be told apart.

    See Also
    --------
    inference.m_scale : the scale.
    covariance : for a convex loss.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = np.linspace(-1.0, 1.0, 50)[:, None]
    >>> r = np.sin(7 * np.arange(50.0))
    >>> one, two = (px.inference.mm_covariance(x, s * r, s * r, s)[0, 0] for s in (1.0, 2.0))
    >>> round(float(two / one), 6)
    4.0
    """
    X = reals(X, "X of mm_covariance")
    r = reals(residuals, "residuals of mm_covariance")
    r0 = reals(initial, "initial of mm_covariance")
    s = real(scale, "scale", low=0.0, open=True)
    if X.ndim != 2 or not r.shape == r0.shape == X.shape[:1]:
        raise ValueError(
            f"mm_covariance needs X (n, p) and two vectors (n,) of residuals; it got {described(X)}, {described(r)} "
            f"and {described(r0)}."
        )
    t = r / s
    t0 = r0 / s
    psi, slope, _ = _bisquare(t, width)
    psi0, _, rho0 = _bisquare(t0, BISQUARE)
    n = len(X)
    M = X.T @ (slope[:, None] * X) / n
    norms = np.linalg.norm(X, axis=0) / np.sqrt(n)
    norms = np.where(norms > 0, norms, 1.0)
    # psi' is negative in the tails, where a bounded loss bends down
    if np.linalg.eigvalsh(M / norms / norms[:, None])[0] <= 1e-12:
        raise ValueError(
            "mm_covariance: the rows with small residuals do not tell the columns of X apart; leave columns out."
        )
    a = (X.T @ (slope * t)) / np.sum(psi0 * t0)
    scores = psi[:, None] * X
    c = scores.T @ rho0 / n
    B = scores.T @ scores / n - np.outer(c, a) - np.outer(a, c)
    B = B + (np.mean(rho0**2) - 0.25) * np.outer(a, a)
    # mean rho0 is 1/2 up to the p parameters, so that B of few rows may lack a little
    size = np.linalg.norm(scores, axis=0) / np.sqrt(n)
    values, axes = np.linalg.eigh(B / size / size[:, None])
    half = s * np.linalg.solve(M, size[:, None] * axes * np.sqrt(np.maximum(values, 0)))
    return half @ half.T / n


def _bisquare(
    t: Float[np.ndarray, " n"], c: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return psi, psi' and rho of Tukey's bisquare, scaled to rho = 1 where |t| >= c."""
    q = np.minimum((t / c) ** 2, 1.0)
    left = 1 - q
    psi = 6 * t / c**2 * left**2
    slope = 6 / c**2 * left * (1 - 5 * q)
    return psi, slope, 1 - left**3
