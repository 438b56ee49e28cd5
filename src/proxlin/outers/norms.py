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
    """u / |u|, scaled by max|u|, and 0 at 0."""
    unit = u / _scale(u)
    squares = jnp.sum(unit * unit)
    return unit / jnp.sqrt(jnp.where(squares == 0, jnp.ones_like(squares), squares))


class L2(AbstractSupport):
    """f(u) = |u|_2; V the unit ball.

    >>> float(L2().value(jnp.array([3.0, 4.0])))
    5.0
    """

    def value(self, u: Vector) -> Float[Array, ""]:
        return norm(u)

    def argmax(self, u: Vector) -> Float[Array, " k"]:
        u = jnp.asarray(u)
        limits = jnp.finfo(u.dtype)
        squares = jnp.sum(u * u)
        usual = (squares > limits.tiny / limits.eps) & (squares < limits.max)
        return jax.lax.cond(usual, lambda u: u / jnp.sqrt(squares), _unit, u)

    def project(self, v: Vector) -> Float[Array, " k"]:
        return v / jnp.maximum(norm(v), jnp.ones((), v.dtype))

    def radius(self, k: int) -> Scalar:
        return 1.0

    def dual_set(self) -> AbstractSet:
        return sets.Ball()

    def sharpness(self, k: int) -> Scalar:
        return 1.0


class LInf(AbstractSupport):
    """f(u) = max_j |u_j|; V the unit ball of l1.

    >>> float(LInf().value(jnp.array([3.0, -4.0])))
    4.0
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
    """f(u) = max_j u_j; V the simplex.

    >>> float(Max().value(jnp.array([3.0, -4.0])))
    3.0
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
        """(low, high)."""

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
    """f(u) = sum_j |u_j|; V = [-1, 1]^k.

    >>> float(L1().value(jnp.array([3.0, -4.0])))
    7.0
    """

    def bounds(self) -> tuple[Scalar, Scalar]:
        return -1.0, 1.0

    def sharpness(self, k: int) -> Scalar:
        return 1.0


class Hinge(AbstractBox):
    """f(u) = sum_j max(u_j, 0); V = [0, 1]^k.

    >>> float(Hinge().value(jnp.array([3.0, -4.0])))
    3.0
    """

    def bounds(self) -> tuple[Scalar, Scalar]:
        return 0.0, 1.0

    def sharpness(self, k: int) -> Scalar:
        return 1.0


class Quantile(AbstractBox):
    """f(u) = sum_j max((1 - q) u_j, -q u_j), 0 < q < 1; V = [-q, 1 - q]^k.

    It is for u = prediction - y, which is what `px.residual` returns: the minimiser predicts the
    q-quantile of y.

    >>> [round(float(Quantile(0.9).value(jnp.array([u]))), 6) for u in (1.0, -1.0)]
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
    """f(u) = sum_j u_j^2 / 2 where |u_j| <= delta, else delta (|u_j| - delta / 2).

    The smoothing with nu = 1 of delta |u|_1.

    >>> float(Huber(1.0).value(jnp.array([0.5, -2.0])))
    1.625
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
    """f(u) = |u|_2^2 / 2, the classical Gauss-Newton loss.

    >>> float(SquaredL2().value(jnp.array([3.0, 4.0])))
    12.5
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
