"""Smoothing: f_nu(u) = min_p f(p) + |u - p|^2 / 2nu, the Moreau envelope."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..checks import number
from ..types import Number, Scalar
from .base import (
    AbstractOuter,
    AbstractProximable,
    AbstractSupport,
    Vector,
    u_minus_projection,
)


def smoothing(nu: Any) -> Number:
    """Return nu as an array leaf, or raise a sentence unless it is positive and finite."""
    return number(nu, "The smoothing nu", low=0.0, open=True)


class Smoothed(AbstractProximable):
    """The smoothing of a support function, f_nu(u) = max_{v in V} <u, v> - nu/2 |v|^2, with gradient
    P_V(u / nu).

    Law: f_nu <= f <= f_nu + nu r^2 / 2, r the radius of V. Huber and |u|^2/2 are of this form with
    nu = 1.

    Parameters
    ----------
    support : a support function
        f, with its set V.
    nu : a positive number
        How much f is smoothed.

    See Also
    --------
    L2, L1, LInf, Max, Hinge, Quantile : `f.smooth(nu)` of these returns it.
    Huber : the smoothing of delta |u|_1 with nu = 1.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> float(px.L2().smooth(2.0).value(np.array([0.0, 4.0])))
    3.0
    """

    support: AbstractSupport
    nu: Number

    def __init__(self, support: AbstractSupport, nu: Any):
        self.support = support
        self.nu = smoothing(nu)

    def value(self, u: Vector) -> Float[Array, ""]:
        nu = self.nu.astype(u.dtype)
        v = self.subgradient(u)
        return jnp.sum(v * (u - nu / 2 * v))

    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        return self.support.project(u / self.nu.astype(u.dtype))

    def prox(self, u: Vector, step: Scalar) -> Float[Array, " k"]:
        return u_minus_projection(self.support.project, u, step, self.nu)

    def conjugate(self, v: Vector) -> Float[Array, ""]:
        nu = self.nu.astype(v.dtype)
        return self.support.conjugate(v) + nu / 2 * jnp.sum(v * v)

    def smooth(self, nu: Scalar) -> AbstractOuter:
        return Smoothed(self.support, self.nu + smoothing(nu))

    def lipschitz(self, k: int) -> Scalar:
        return self.support.radius(k)

    def sharpness(self, k: int) -> Scalar:
        return 0.0

    def smoothness(self, k: int) -> Scalar:
        return 1 / self.nu

    def dual_form(self) -> tuple[AbstractSupport, Scalar]:
        return self.support, self.nu


class Envelope(AbstractProximable):
    """The Moreau envelope f_nu(u) = f(p) + |u - p|^2 / 2nu at p = prox(u, nu), for any proximable f;
    its gradient is (u - p) / nu.

    Parameters
    ----------
    outer : a function with a prox
        f.
    nu : a positive number
        How much f is smoothed.

    See Also
    --------
    AbstractProximable : its `smooth(nu)` returns it.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> from proxlin.outers import Envelope
    >>> float(Envelope(px.L1(), 1.0).value(np.array([3.0, -0.5])))
    2.625
    """

    outer: AbstractProximable
    nu: Number

    def __init__(self, outer: AbstractProximable, nu: Any):
        self.outer = outer
        self.nu = smoothing(nu)

    def value(self, u: Vector) -> Float[Array, ""]:
        nu = self.nu.astype(u.dtype)
        p = self.outer.prox(u, nu)
        return self.outer.value(p) + jnp.sum((u - p) ** 2) / (2 * nu)

    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        nu = self.nu.astype(u.dtype)
        return (u - self.outer.prox(u, nu)) / nu

    def prox(self, u: Vector, step: Scalar) -> Float[Array, " k"]:
        nu = self.nu.astype(u.dtype)
        step = number(step, "The step of prox", low=0.0, open=True).astype(u.dtype)
        away = self.outer.prox(u, step + nu) - u
        return u + step / (step + nu) * away

    def conjugate(self, v: Vector) -> Float[Array, ""]:
        nu = self.nu.astype(v.dtype)
        return self.outer.conjugate(v) + nu / 2 * jnp.sum(v * v)

    def lipschitz(self, k: int) -> Scalar:
        return self.outer.lipschitz(k)

    def sharpness(self, k: int) -> Scalar:
        return 0.0

    def smoothness(self, k: int) -> Scalar:
        return 1 / self.nu
