"""Stochastic nonlinear equations: f of the mean of losses of the margin m_i = y_i <x_i, w>
(Tran-Dinh et al. 2020).

    F(w) = f((1/n) sum_i (l_1(m_i), ..., l_k(m_i)))

    tanh       1 - tanh(m)                                  slope  -sech(m)^2
    sigmoid    (1 - s(m))^2,  s(m) = 1 / (1 + exp(-m))             -2 s(m) (1 - s(m))^2
    logistic   log(1 + exp(-m)) - log(1 + exp(-m - 1))             s(-m - 1) - s(-m)
    lorenz     log(1 + (m - 1)^2) for m <= 1, else 0               2 (m - 1) / (1 + (m - 1)^2), else 0

Values and slopes are written in q = exp(-|m|) <= 1, so that nothing overflows or cancels at any
margin; a slope is a rule of differentiation, so that a Jacobian takes one exponential. The data of
the problem are the rows y_i x_i.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..inners import SparseRows
from ..outers import AbstractOuter, Huber
from ..problem import LossOfMean

E = math.e
ROOT_HALF = int(np.float64(0.5**0.5).view(np.int64))  # the bits of sqrt(1/2)


def _loss(value: Callable, slope: Callable) -> Callable:
    """Return the function value with its derivative slope."""
    loss = jax.custom_jvp(value)
    loss.defjvp(lambda at, along: (value(*at), slope(*at) * along[0]))
    return loss


def _tail(m: Array) -> tuple[Array, Array]:
    """Return q = exp(-|m|) and exp(-max(m, 0)), which is q where m > 0 and else 1."""
    q = jnp.exp(-jnp.abs(m))
    return q, jnp.where(m > 0, q, jnp.ones_like(q))


def _one_plus_square(q: Array) -> Array:
    """Return 1 + q^2, in which the compiler would write q^2 as a second exponential."""
    return (1 + q) ** 2 - 2 * q


def log1p(x: Array) -> Array:
    """Return log(1 + x) for x >= 0, without branches: XLA's in float64 calls a function for each
    number, 4 to 5 times as slow.

    1 + x = 2^k (1 + r), r in [sqrt(1/2) - 1, sqrt(2) - 1), and r = x where k = 0:  k log 2 + 2 atanh(r / (2 + r))
    """
    if x.dtype != jnp.float64:
        return jnp.log1p(x)
    bits = jax.lax.bitcast_convert_type(1 + x, jnp.int64)
    k = (bits - ROOT_HALF) >> 52
    fraction = jax.lax.bitcast_convert_type(bits - (k << 52), jnp.float64)
    r = jnp.where(k == 0, x, fraction - 1)
    s = r / (2 + r)
    z = s * s  # at most 0.0295: what follows the 11 terms is below eps / 10
    series = functools.reduce(
        lambda tail, j: tail * z + 2 / (2 * j + 1), range(9, 0, -1), 2 / 21
    )
    two_atanh = 2 * s + s * z * series
    value = k.astype(jnp.float64) * math.log(2) + two_atanh
    return jnp.where(x < jnp.inf, value, x)


def _tanh(m: Array) -> Array:
    q, p = _tail(m)
    return 2 * p**2 / _one_plus_square(q)


def _tanh_slope(m: Array) -> Array:
    q, _ = _tail(m)
    return -((2 * q / _one_plus_square(q)) ** 2)


def _sigmoid(m: Array) -> Array:
    q, p = _tail(m)
    return (p / (1 + q)) ** 2


def _sigmoid_slope(m: Array) -> Array:
    q, p = _tail(m)
    return -2 * q * p / (1 + q) ** 3


def _logistic(m: Array) -> Array:
    """Return log1p((1 - 1/e) exp(-m) / (1 + exp(-m - 1))), the fraction divided by exp(-m) where m
    <= 0.
    """
    q, p = _tail(m)
    below = jnp.where(m > 0, 1 + q / E, q + 1 / E)
    return log1p((1 - 1 / E) * p / below)


def _logistic_slope(m: Array) -> Array:
    q, _ = _tail(m)
    second = jnp.where(m > 0, q + E, 1 + E * q)
    return -(E - 1) * q / ((1 + q) * second)


def _lorenz(m: Array) -> Array:
    return log1p(_below_one(m) ** 2)


def _lorenz_slope(m: Array) -> Array:
    below = _below_one(m)
    return 2 * below / (1 + below**2)


def _below_one(m: Array) -> Array:
    return jnp.minimum(m - 1, jnp.zeros_like(m))


LOSSES: dict[str, Callable] = {
    "tanh": _loss(_tanh, _tanh_slope),
    "sigmoid": _loss(_sigmoid, _sigmoid_slope),
    "logistic": _loss(_logistic, _logistic_slope),
    "lorenz": _loss(_lorenz, _lorenz_slope),
}


class MarginLosses(eqx.Module):
    """phi(w, z) = (l_1(m), ..., l_k(m)), m = <z, w>; z = y x is a vector or one row of
    `SparseRows`.

    >>> phi = MarginLosses(("tanh", "lorenz"))
    >>> phi(jnp.zeros(2), jnp.ones(2)).round(4).tolist()
    [1.0, 0.6931]
    """

    losses: tuple[Callable, ...] = eqx.field(static=True)

    def __init__(self, losses: Sequence[str | Callable] = tuple(LOSSES)):
        unknown = [x for x in losses if not callable(x) and x not in LOSSES]
        wanted = (
            f"Losses are functions of the margin or names among {', '.join(LOSSES)}"
        )
        if unknown:
            raise ValueError(f"{wanted}; {unknown[0]!r} is neither.")
        if not losses:
            raise ValueError(f"{wanted}; at least one is needed.")
        self.losses = tuple(x if callable(x) else LOSSES[x] for x in losses)

    def __call__(self, w: Array, sample: Any) -> Array:
        if isinstance(sample, SparseRows):
            m = sample.values @ w[sample.indices]
        else:
            m = sample @ w
        return jnp.stack([loss(m) for loss in self.losses])


def equations(
    x: Any,
    y: Any,
    outer: AbstractOuter | None = None,
    losses: Sequence[str | Callable] = tuple(LOSSES),
    ridge: Any = 0.0,
    weights: Any = None,
) -> LossOfMean:
    """Return F(w) = f((1/n) sum_i phi_i(w)), the nonlinear equations of Section 5.3 of the paper.

    phi_i(w) = (l_1(m), ..., l_k(m)) has a loss for each entry, m = y_i <x_i, w> the margin.

    Parameters
    ----------
    x : an array (n, p), or `SparseRows`
        The features.
    y : a vector (n,) of -1 and +1
        The labels.
    outer : an outer function, or None
        f; None is `Huber(1)`.
    losses : a list of words and functions
        The losses of the margin; functions of one number are taken as they are.
    ridge : a number
        The weight of |w|^2 / 2, at least 0.
    weights : a vector (n,), or None
        One weight for each sample.

    Returns
    -------
    a `LossOfMean`
        The problem.

    See Also
    --------
    LossOfMean : the problem that it returns.
    stochastic_gauss_newton : the solver for it.

    Examples
    --------
    >>> import numpy as np
    >>> from proxlin.data.equations import equations
    >>> p = equations(np.eye(2), np.array([1.0, -1.0]), losses=("tanh", "lorenz"))
    >>> round(float(p.value(np.zeros(2))), 4)  # (1 + log(2)^2) / 2
    0.7402
    """
    if isinstance(x, SparseRows):
        rows = SparseRows(x.indices, _signed(x.values, y), x.columns)
    else:
        rows = _signed(x, y)
    outer = Huber() if outer is None else outer
    return LossOfMean(MarginLosses(losses), outer, rows, ridge, weights)


def _signed(x: Any, y: Any) -> np.ndarray:
    """Return the rows y_i x_i, or raise a sentence."""
    x = np.asarray(x)
    y = np.asarray(y)
    fits = y.shape == x.shape[:1]
    if x.ndim != 2 or not fits or not (np.abs(y) == 1).all():
        more = " and other values" if fits else ""
        raise ValueError(
            f"Equations need rows x (n, d) and n labels y of -1 and +1; x has the shape {x.shape}, y {y.shape}{more}."
        )
    return x * y[:, None].astype(x.dtype)
