"""The scale of residuals r, in units of a standard deviation of normal errors.

    s = 1.4826 median |r|                                           mad
    s^2 = sum_i min(r_i^2, (k s)^2) / ((n - p) gamma)               huber_scale, Huber's proposal 2
    sum_i rho(r_i / s) / (n - p) = 1/2                              m_scale, of S- and MM-estimates

They are pure functions of arrays, for `jit` and `vmap`. Residuals are taken around 0, as those of a
fit are. The p parameters that were fitted may be taken off the n residuals, as R does.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# 1 / Phi^-1(3/4), as R rounds it
NORMAL = 1.4826
# mean rho = 1/2 for normal errors and breakdown 1/2 at once, with Tukey's bisquare
BISQUARE = 1.54764
# steps of the M-scale; some thirty reach float64
STEPS = 200


def mad(residuals: Float[Array, " n"]) -> Float[Array, ""]:
    """Return 1.4826 median |r|, around 0.

    Parameters
    ----------
    residuals : a vector (n,)
        r.

    Returns
    -------
    a number
        The scale.

    See Also
    --------
    inference.huber_scale, inference.m_scale : other scales.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> round(float(px.inference.mad(jnp.array([1.0, -2.0, 30.0]))), 4)
    2.9652
    """
    return NORMAL * jnp.median(jnp.abs(residuals))


def huber_scale(
    residuals: Float[Array, " n"], k: float = 1.345, parameters: int = 0
) -> Float[Array, ""]:
    """Return the s > 0 with s^2 = sum_i min(r_i^2, (k s)^2) / ((n - p) gamma), the limit of rlm's
    iteration; 0 if too many r are 0.

        gamma = E min(z^2, k^2),  z standard normal

    The right side is, as a function of s^2, the least of n + 1 lines: line m has the m smallest
    residuals as squares, and the others cut. The limit is the least fixed point of those lines that
    have one.

    Parameters
    ----------
    residuals : a vector (n,)
        r.
    k : a number
        Where a residual is cut, in units of s.
    parameters : an integer
        p, the number of parameters that were fitted.

    Returns
    -------
    a number
        The scale.

    See Also
    --------
    inference.mad, inference.m_scale : other scales.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> round(float(px.inference.huber_scale(jnp.array([1.0, -1.0, 2.0, -100.0]))), 4)
    2.4116
    """
    inside = math.erf(k / math.sqrt(2))
    tail = math.sqrt(2 / math.pi) * math.exp(-k * k / 2)
    gamma = inside + k * k * (1 - inside) - k * tail
    n = residuals.shape[0]
    squares = jnp.sort(residuals * residuals)
    sums = jnp.concatenate([jnp.zeros_like(squares[:1]), jnp.cumsum(squares)])
    cut = jnp.arange(n, -1, -1, dtype=sums.dtype)
    left = (n - parameters) * gamma - cut * k * k
    fixed = jnp.where(left > 0, sums / jnp.where(left > 0, left, 1), jnp.inf)
    return jnp.sqrt(jnp.min(fixed))


def m_scale(
    residuals: Float[Array, " n"], c: float = BISQUARE, parameters: int = 0
) -> Float[Array, ""]:
    """Return the s with sum_i rho(r_i / s) / (n - p) = 1/2, rho(t) = 1 - (1 - min(t^2/c^2, 1))^3; 0 if
    half of the r are 0.

    It is the limit of s^2 <- 2 s^2 mean rho(r / s). `lmrob` has p = the number of coefficients.

    Parameters
    ----------
    residuals : a vector (n,)
        r.
    c : a number
        The width of Tukey's bisquare.
    parameters : an integer
        p, the number of parameters that were fitted.

    Returns
    -------
    a number
        The scale.

    See Also
    --------
    inference.mad, inference.huber_scale : other scales.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> round(float(px.inference.m_scale(jnp.array([1.0, -1.0, 2.0, -100.0]))), 4)
    2.4701
    """
    count = residuals.shape[0] - parameters
    size = jnp.abs(residuals)
    # rho is at most 1, so that no s > 0 makes the sum of so few terms large enough
    exact = 2 * jnp.sum(size > 0, dtype=jnp.int32) <= count
    start = jnp.median(size)
    start = jnp.where(start > 0, start, jnp.max(size))
    start = jnp.where(exact, jnp.ones_like(start), start)
    eps = jnp.finfo(size.dtype).eps

    def going(state: tuple[Array, Array, Array]) -> Array:
        s, last, step = state
        return (step < STEPS) & (jnp.abs(s - last) > 4 * eps * s)

    def better(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        s, _, step = state
        mean = jnp.sum(bisquare(size / s, c)) / count
        return s * jnp.sqrt(2 * mean), s, step + 1

    first = better((start, start, jnp.zeros((), jnp.int32)))
    s, _, _ = jax.lax.while_loop(going, better, first)
    return jnp.where(exact, jnp.zeros_like(s), s)


def bisquare(t: Float[Array, " n"], c: float) -> Float[Array, " n"]:
    """Tukey's rho, scaled to 1 where |t| >= c."""
    left = 1 - jnp.minimum((t / c) ** 2, 1)
    return 1 - left**3
