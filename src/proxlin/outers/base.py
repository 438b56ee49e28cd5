"""Convex outer functions f: R^k -> R, and what follows from a support function f(u) = max_{v in V}
<u, v>.
"""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..checks import number
from ..shown import shown
from ..types import Scalar
from .sets import AbstractSet, Projected

if TYPE_CHECKING:
    Vector = Array
else:  # a numpy vector will do as well; every operation with jax.numpy returns a jax array
    Vector = Float[Array | np.ndarray, " k"]


def u_minus_projection(
    project: Callable, u: Vector, step: Scalar, rho: Scalar
) -> Float[Array, " k"]:
    """u - step P_V(q), q = u / (step + rho): the prox of a support function smoothed by rho, at any
    scale.

    Entries that the projection leaves alone become exactly rho q, also where u / (step + rho)
    underflows; where it overflows, the step is lost beside u whatever its direction.
    """
    step = number(step, "The step of prox", low=0.0, open=True).astype(u.dtype)
    rho = jnp.asarray(rho, u.dtype)
    q = jnp.clip(
        u / (step + rho), -jnp.finfo(u.dtype).max / 4, jnp.finfo(u.dtype).max / 4
    )
    v = project(q)
    return jnp.where(v == q, rho * v, u - step * v)


class AbstractOuter(eqx.Module):
    """A convex function f: R^k -> R."""

    # combinatorial oracle calls in one value or subgradient
    oracle_calls: ClassVar[int] = 0

    def __repr__(self) -> str:
        return shown(self)

    @abc.abstractmethod
    def value(self, u: Vector) -> Float[Array, ""]:
        """f(u)."""

    @abc.abstractmethod
    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        """A v with f(p) >= f(u) + <v, p - u> for every p."""

    @abc.abstractmethod
    def smooth(self, nu: Scalar) -> "AbstractOuter":
        """f_nu, a function with a Lipschitz gradient near f."""

    @abc.abstractmethod
    def lipschitz(self, k: int) -> Scalar:
        """The least l with |f(u) - f(p)| <= l |u - p| on R^k."""

    @abc.abstractmethod
    def sharpness(self, k: int) -> Scalar:
        """The largest m with f(u) - min f >= m dist(u, argmin f); 0 where f is not sharp."""

    def smoothness(self, k: int) -> Scalar:
        """The Lipschitz constant of the gradient; inf where there is none."""
        return float("inf")

    def check(self, k: int) -> None:
        """Raise a sentence if f is not a function on R^k."""
        if k < 1:
            raise ValueError(
                f"{type(self).__name__} needs at least one output; the inner map returns none."
            )


class AbstractProximable(AbstractOuter):
    """f with prox(u, s) = argmin_p f(p) + |p - u|^2 / 2s and f*(v) = max_u <u, v> - f(u).

    Its smoothing is the Moreau envelope: f_nu <= f <= f_nu + nu l^2 / 2, with a 1/nu-Lipschitz
    gradient.
    """

    @abc.abstractmethod
    def prox(self, u: Vector, step: Scalar) -> Float[Array, " k"]:
        """argmin_p f(p) + |p - u|^2 / (2 step)."""

    @abc.abstractmethod
    def conjugate(self, v: Vector) -> Float[Array, ""]:
        """f*(v) = max_u <u, v> - f(u)."""

    def smooth(self, nu: Scalar) -> AbstractOuter:
        from .smoothing import Envelope

        return Envelope(self, nu)

    def dual_form(self) -> tuple["AbstractSupport", Scalar]:
        """Return (s, rho) with f* = indicator of V + rho/2 |.|^2, where V is the set of the support
        function s.
        """
        raise TypeError(
            f"The exact solver needs an outer function whose conjugate is the indicator of a set plus a quadratic; "
            f"{type(self).__name__} does not say so. Give it a dual_form, or take pli."
        )


class AbstractSupport(AbstractProximable):
    """f(u) = max_{v in V} <u, v>, V convex and compact: argmax and projection give all the rest.

    prox(u, s) = u - s P_V(u/s) (Moreau), f* = the indicator of V, f_nu(u) = max_{v in V} <u, v> -
    nu/2 |v|^2.
    """

    @abc.abstractmethod
    def argmax(self, u: Vector) -> Float[Array, " k"]:
        """A maximiser of <u, v> over V: a subgradient of f at u."""

    @abc.abstractmethod
    def project(self, v: Vector) -> Float[Array, " k"]:
        """The nearest point of V."""

    @abc.abstractmethod
    def radius(self, k: int) -> Scalar:
        """max_{v in V} |v|: the Lipschitz constant of f."""

    def value(self, u: Vector) -> Float[Array, ""]:
        """Return <u, argmax(u)>; a function whose formula rounds less writes its own."""
        return jnp.sum(u * self.argmax(u))

    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        return self.argmax(u)

    def lipschitz(self, k: int) -> Scalar:
        return self.radius(k)

    def prox(self, u: Vector, step: Scalar) -> Float[Array, " k"]:
        return u_minus_projection(self.project, u, step, 0.0)

    def conjugate(self, v: Vector) -> Float[Array, ""]:
        return jnp.where(self.contains(v), jnp.zeros((), v.dtype), jnp.inf)

    def contains(self, v: Vector) -> Array:
        """Whether v is in V, up to eps^(2/3) of its size: a prox is in V only up to round-off."""
        slack = jnp.asarray(float(jnp.finfo(v.dtype).eps) ** (2 / 3), v.dtype)
        size = jnp.maximum(
            jnp.max(jnp.abs(v)), jnp.asarray(self.radius(v.shape[0]), v.dtype)
        )
        return jnp.max(jnp.abs(v - self.project(v))) <= slack * size

    def smooth(self, nu: Scalar) -> AbstractOuter:
        from .smoothing import Smoothed

        return Smoothed(self, nu)

    def dual_set(self) -> AbstractSet:
        """Return V for the exact solver, which is quickest for a set with a barrier (see
        `outers.sets`).
        """
        return Projected(self)

    def dual_form(self) -> tuple["AbstractSupport", Scalar]:
        return self, 0.0
