"""Norms, hinges and Huber: f(u) = max_{v in V} <u, v> - rho/2 |v|^2 with V a ball, a box or a
simplex.
"""

import abc
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..checks import number
from ..types import Number, Scalar, is_concrete
from . import sets
from .base import (
    AbstractOuter,
    AbstractProximable,
    AbstractSupport,
    Vector,
    u_minus_projection,
)
from .sets import AbstractSet
from .smoothing import Smoothed


def norm(u: Vector) -> Float[Array, ""]:
    """|u|_2, scaled by max|u|: no overflow or underflow, and derivative 0 at 0."""
    scale = jax.lax.stop_gradient(_scale(u))
    squares = jnp.sum((u / scale) ** 2)
    zero = squares == 0
    return scale * jnp.where(
        zero,
        jnp.zeros_like(squares),
        jnp.sqrt(jnp.where(zero, jnp.ones_like(squares), squares)),
    )


def _scale(u: Vector) -> Array:
    """max|u|, or 1 where that cannot be divided by."""
    top = jnp.max(jnp.abs(u))
    return jnp.where((top > 0) & (top < jnp.inf), top, jnp.ones_like(top))


def project_simplex(v: Vector) -> Float[Array, " k"]:
    """The nearest point of {v >= 0, sum v = 1}: max(v - theta, 0), theta from the sorted entries."""
    v = jnp.asarray(v)
    # theta >= max(v) - 1: nothing below counts, nor overflows
    v = jnp.maximum(sets.below_the_top(v), -jnp.ones((), v.dtype))
    falling = -jnp.sort(-v)
    count = jnp.arange(1, v.shape[0] + 1, dtype=v.dtype)
    thetas = (jnp.cumsum(falling) - 1) / count
    support = jnp.sum(falling > thetas)
    return jnp.maximum(v - thetas[support - 1], jnp.zeros((), v.dtype))


def _unit(u: Vector) -> Float[Array, " k"]:
    """u / |u|, and 0 at 0.

    Where the sum of squares would leave the range of the dtype, u is taken times a power of two
    first. A branch would cost more than all the rest of a small step.
    """
    limits = jnp.finfo(u.dtype)
    squares = jnp.sum(u * u)
    power = jnp.ones_like(squares)
    small = squares < limits.tiny / limits.eps
    power = jnp.where(
        small, jnp.asarray(2.0 ** (-limits.minexp * 3 // 4), u.dtype), power
    )
    large = squares >= limits.max
    power = jnp.where(
        large, jnp.asarray(2.0 ** (-limits.maxexp * 3 // 4), u.dtype), power
    )
    unit = u * power
    squares = jnp.sum(unit * unit)
    return unit / jnp.sqrt(jnp.where(squares == 0, jnp.ones_like(squares), squares))


class L2(AbstractSupport):
    """The norm f(u) = |u|_2; V is the unit ball.

    See Also
    --------
    SquaredL2 : its square, as least squares have it.
    L1, LInf : other norms.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> u = np.array([3.0, 4.0])
    >>> float(px.L2().value(u)), px.L2().prox(u, 2.5).round(6).tolist()
    (5.0, [1.5, 2.0])
    """

    def value(self, u: Vector) -> Float[Array, ""]:
        return norm(u)

    def argmax(self, u: Vector) -> Float[Array, " k"]:
        return _unit(jnp.asarray(u))

    def project(self, v: Vector) -> Float[Array, " k"]:
        return v / jnp.maximum(norm(v), jnp.ones((), v.dtype))

    def radius(self, k: int) -> Scalar:
        return 1.0

    def dual_set(self) -> AbstractSet:
        return sets.Ball()

    def sharpness(self, k: int) -> Scalar:
        return 1.0


class LInf(AbstractSupport):
    """The norm f(u) = max_j |u_j|; V is the unit ball of l1.

    See Also
    --------
    L1, L2 : other norms.
    Max : the largest entry, with its sign.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> u = np.array([3.0, -4.0])
    >>> float(px.LInf().value(u)), px.LInf().subgradient(u).tolist()
    (4.0, [0.0, -1.0])
    """

    def value(self, u: Vector) -> Float[Array, ""]:
        return jnp.max(jnp.abs(u))

    def argmax(self, u: Vector) -> Float[Array, " k"]:
        return jax.nn.one_hot(
            jnp.argmax(jnp.abs(u)), u.shape[0], dtype=u.dtype
        ) * jnp.sign(u)

    def project(self, v: Vector) -> Float[Array, " k"]:
        inside = jnp.sum(jnp.abs(v)) <= 1
        return jnp.where(inside, v, jnp.sign(v) * project_simplex(jnp.abs(v)))

    def radius(self, k: int) -> Scalar:
        return 1.0

    def dual_set(self) -> AbstractSet:
        return sets.CrossPolytope()

    def sharpness(self, k: int) -> Scalar:
        return 1 / math.sqrt(k)


class Max(AbstractSupport):
    """The largest entry f(u) = max_j u_j; V is the simplex.

    See Also
    --------
    LInf : the largest absolute entry.
    Hinge : the sum of the positive entries.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> u = np.array([3.0, -4.0])
    >>> float(px.Max().value(u)), px.Max().subgradient(u).tolist()
    (3.0, [1.0, 0.0])
    """

    def value(self, u: Vector) -> Float[Array, ""]:
        return jnp.max(u)

    def argmax(self, u: Vector) -> Float[Array, " k"]:
        return jax.nn.one_hot(jnp.argmax(u), u.shape[0], dtype=u.dtype)

    def project(self, v: Vector) -> Float[Array, " k"]:
        return project_simplex(v)

    def radius(self, k: int) -> Scalar:
        return 1.0

    def dual_set(self) -> AbstractSet:
        return sets.Simplex()

    def sharpness(self, k: int) -> Scalar:
        return 0.0


class AbstractBox(AbstractSupport):
    """f(u) = sum_j max(low u_j, high u_j), low <= 0 <= high; V the box [low, high]^k."""

    @abc.abstractmethod
    def bounds(self) -> tuple[Scalar, Scalar]:
        """Return the ends of the box V = [low, high]^k.

        Returns
        -------
        a pair
            low and high.
        """

    def value(self, u: Vector) -> Float[Array, ""]:
        low, high = self.bounds()
        return jnp.sum(
            jnp.maximum(jnp.asarray(low, u.dtype) * u, jnp.asarray(high, u.dtype) * u)
        )

    def argmax(self, u: Vector) -> Float[Array, " k"]:
        low, high = self.bounds()
        zero = jnp.zeros((), u.dtype)
        return jnp.where(
            u > 0,
            jnp.asarray(high, u.dtype),
            jnp.where(u < 0, jnp.asarray(low, u.dtype), zero),
        )

    def project(self, v: Vector) -> Float[Array, " k"]:
        low, high = self.bounds()
        return jnp.clip(v, jnp.asarray(low, v.dtype), jnp.asarray(high, v.dtype))

    def radius(self, k: int) -> Scalar:
        low, high = self.bounds()
        return _larger(-low, high) * math.sqrt(k)

    def dual_set(self) -> AbstractSet:
        return sets.Box(*self.bounds())


class L1(AbstractBox):
    """The norm f(u) = sum_j |u_j|; V = [-1, 1]^k.

    See Also
    --------
    Huber : rounds the kink at 0.
    Quantile : counts the two signs differently.
    L2, LInf : other norms.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> u = np.array([3.0, -4.0])
    >>> float(px.L1().value(u)), px.L1().prox(u, 1.0).tolist()
    (7.0, [2.0, -3.0])
    """

    def bounds(self) -> tuple[Scalar, Scalar]:
        return -1.0, 1.0

    def sharpness(self, k: int) -> Scalar:
        return 1.0


class Hinge(AbstractBox):
    """The hinge f(u) = sum_j max(u_j, 0); V = [0, 1]^k.

    See Also
    --------
    Max : the largest entry.
    StructuredHinge : the hinge of a structured output.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> u = np.array([3.0, -4.0])
    >>> float(px.Hinge().value(u)), px.Hinge().subgradient(u).tolist()
    (3.0, [1.0, 0.0])
    """

    def bounds(self) -> tuple[Scalar, Scalar]:
        return 0.0, 1.0

    def sharpness(self, k: int) -> Scalar:
        return 1.0


class Quantile(AbstractBox):
    """The check function f(u) = sum_j max((1 - q) u_j, -q u_j), 0 < q < 1; V = [-q, 1 - q]^k.

    It is for u = prediction - y, which is what `px.residual` returns: the minimiser predicts the
    q-quantile of y.

    Parameters
    ----------
    q : a number between 0 and 1
        The level of the quantile; 0.5 is half of `L1`, and fits the median.

    Raises
    ------
    ValueError
        q is not between 0 and 1.

    See Also
    --------
    L1 : the median.
    residual : u = prediction - y.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> f = px.Quantile(0.9)
    >>> [round(float(f.value(np.array([u]))), 6) for u in (1.0, -1.0)]
    [0.1, 0.9]
    """

    q: Number

    def __init__(self, q: Any):
        self.q = number(q, "The level q of Quantile", low=0.0, open=True)
        if is_concrete(self.q) and not self.q < 1:
            raise ValueError(f"The level q of Quantile must be below 1; it is {q}.")

    def bounds(self) -> tuple[Scalar, Scalar]:
        return -self.q, 1 - self.q

    def sharpness(self, k: int) -> Scalar:
        return jnp.minimum(self.q, 1 - self.q)


class Box(AbstractBox):
    """f(u) = width sum_j |u_j|; V = [-width, width]^k, the set behind Huber."""

    width: Number

    def bounds(self) -> tuple[Scalar, Scalar]:
        return -self.width, self.width

    def sharpness(self, k: int) -> Scalar:
        return self.width


class Origin(AbstractSupport):
    """f(u) = 0 at u = 0 and inf elsewhere; V all of R^k, the set behind |u|^2 / 2."""

    def value(self, u: Vector) -> Float[Array, ""]:
        return jnp.where(jnp.all(u == 0), jnp.zeros((), u.dtype), jnp.inf)

    def argmax(self, u: Vector) -> Float[Array, " k"]:
        return jnp.zeros_like(u)

    def project(self, v: Vector) -> Float[Array, " k"]:
        return jnp.asarray(v)

    def radius(self, k: int) -> Scalar:
        return float("inf")

    def dual_set(self) -> AbstractSet:
        return sets.Space()

    def sharpness(self, k: int) -> Scalar:
        return float("inf")


class Huber(AbstractProximable):
    """The Huber loss f(u) = sum_j u_j^2 / 2 where |u_j| <= delta, else delta (|u_j| - delta / 2).

    It is the smoothing with nu = 1 of delta |u|_1.

    Parameters
    ----------
    delta : a positive number
        Where the square ends and the line begins.

    See Also
    --------
    L1 : the loss without the square.
    SquaredL2 : the loss without the line.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> u = np.array([0.5, -2.0])
    >>> float(px.Huber(1.0).value(u)), px.Huber(1.0).subgradient(u).tolist()
    (1.625, [0.5, -1.0])
    """

    delta: Number

    def __init__(self, delta: Any = 1.0):
        self.delta = number(delta, "The width delta of Huber", low=0.0, open=True)

    def dual_form(self) -> tuple[AbstractSupport, Scalar]:
        return Box(self.delta), 1.0

    def value(self, u: Vector) -> Float[Array, ""]:
        v = self.subgradient(u)
        return jnp.sum(v * (u - v / 2))

    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        return Box(self.delta).project(u)

    def prox(self, u: Vector, step: Scalar) -> Float[Array, " k"]:
        return u_minus_projection(Box(self.delta).project, u, step, 1.0)

    def conjugate(self, v: Vector) -> Float[Array, ""]:
        return Box(self.delta).conjugate(v) + jnp.sum(v * v) / 2

    def smooth(self, nu: Scalar) -> AbstractOuter:
        return Smoothed(
            Box(self.delta), 1 + number(nu, "The smoothing nu", low=0.0, open=True)
        )

    def lipschitz(self, k: int) -> Scalar:
        return self.delta * math.sqrt(k)

    def sharpness(self, k: int) -> Scalar:
        return 0.0

    def smoothness(self, k: int) -> Scalar:
        return 1.0


class SquaredL2(AbstractProximable):
    """The square f(u) = |u|_2^2 / 2, the classical Gauss-Newton loss.

    See Also
    --------
    L2 : the norm itself.
    Huber : a square that outliers do not dominate.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> u = np.array([3.0, 4.0])
    >>> float(px.SquaredL2().value(u)), px.SquaredL2().prox(u, 1.0).tolist()
    (12.5, [1.5, 2.0])
    """

    def dual_form(self) -> tuple[AbstractSupport, Scalar]:
        return Origin(), 1.0

    def value(self, u: Vector) -> Float[Array, ""]:
        return jnp.sum(u * u) / 2

    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        return jnp.asarray(u)

    def prox(self, u: Vector, step: Scalar) -> Float[Array, " k"]:
        return u / (
            1 + number(step, "The step of prox", low=0.0, open=True).astype(u.dtype)
        )

    def conjugate(self, v: Vector) -> Float[Array, ""]:
        return jnp.sum(v * v) / 2

    def smooth(self, nu: Scalar) -> AbstractOuter:
        return Smoothed(
            Origin(), 1 + number(nu, "The smoothing nu", low=0.0, open=True)
        )

    def lipschitz(self, k: int) -> Scalar:
        return float("inf")

    def sharpness(self, k: int) -> Scalar:
        return 0.0

    def smoothness(self, k: int) -> Scalar:
        return 1.0


def _larger(a: Scalar, b: Scalar) -> Scalar:
    return (
        max(a, b)
        if isinstance(a, float) and isinstance(b, float)
        else jnp.maximum(a, b)
    )
