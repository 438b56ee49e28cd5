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
    """A convex function f: R^k -> R: the base of every outer function.

    Write `value`, `subgradient`, `smooth`, `lipschitz` and `sharpness` for one of your own.

    See Also
    --------
    AbstractProximable : f with a prox and a conjugate.
    AbstractSupport : the shortest way to an f of your own.
    StructuredHinge : an f that has an oracle in place of a prox.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> f = px.Huber(1.0)
    >>> u = np.array([0.5, -2.0])
    >>> float(f.value(u)), f.subgradient(u).tolist(), f.sharpness(2)
    (1.625, [0.5, -1.0], 0.0)
    """

    # combinatorial oracle calls in one value or subgradient
    oracle_calls: ClassVar[int] = 0

    def __repr__(self) -> str:
        return shown(self)

    @abc.abstractmethod
    def value(self, u: Vector) -> Float[Array, ""]:
        """Return f(u).

        Parameters
        ----------
        u : a vector (k,)
            The point.

        Returns
        -------
        a number
            f(u), in the dtype of u.
        """

    @abc.abstractmethod
    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        """Return a v with f(p) >= f(u) + <v, p - u> for every p.

        Parameters
        ----------
        u : a vector (k,)
            The point.

        Returns
        -------
        a vector (k,)
            The subgradient; the gradient, where f has one.
        """

    @abc.abstractmethod
    def smooth(self, nu: Scalar) -> "AbstractOuter":
        """Return f_nu, a function with a Lipschitz gradient near f.

        Parameters
        ----------
        nu : a positive number
            How much f is smoothed; less is nearer to f.

        Returns
        -------
        an outer function
            f_nu.
        """

    @abc.abstractmethod
    def lipschitz(self, k: int) -> Scalar:
        """Return the least l with |f(u) - f(p)| <= l |u - p| on R^k.

        Parameters
        ----------
        k : an integer
            The number of outputs of phi.

        Returns
        -------
        a number
            The Lipschitz constant; inf where there is none.
        """

    @abc.abstractmethod
    def sharpness(self, k: int) -> Scalar:
        """Return the largest m with f(u) - min f >= m dist(u, argmin f).

        Parameters
        ----------
        k : an integer
            The number of outputs of phi.

        Returns
        -------
        a number
            The sharpness; 0 where f is not sharp.
        """

    def smoothness(self, k: int) -> Scalar:
        """Return the Lipschitz constant of the gradient.

        Parameters
        ----------
        k : an integer
            The number of outputs of phi.

        Returns
        -------
        a number
            The constant; inf where f has no such gradient.
        """
        return float("inf")

    def check(self, k: int) -> None:
        """Raise a sentence if f is not a function on R^k.

        Parameters
        ----------
        k : an integer
            The number of outputs of phi.

        Raises
        ------
        ValueError
            f is not defined on R^k.
        """
        if k < 1:
            raise ValueError(
                f"{type(self).__name__} needs at least one output; the inner map returns none."
            )


class AbstractProximable(AbstractOuter):
    """A convex f with prox(u, s) = argmin_p f(p) + |p - u|^2 / 2s and f*(v) = max_u <u, v> - f(u).

    Its smoothing is the Moreau envelope: f_nu <= f <= f_nu + nu l^2 / 2, with a 1/nu-Lipschitz
    gradient.

    See Also
    --------
    AbstractSupport : f is a maximum over a set V.
    AbstractOuter : what every outer function has.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> px.L1().prox(np.array([3.0, 0.5]), 1.0).tolist()
    [2.0, 0.0]
    >>> isinstance(px.L1(), px.AbstractProximable)
    True
    """

    @abc.abstractmethod
    def prox(self, u: Vector, step: Scalar) -> Float[Array, " k"]:
        """Return argmin_p f(p) + |p - u|^2 / (2 step).

        Parameters
        ----------
        u : a vector (k,)
            The point.
        step : a positive number
            How far p may go from u.

        Returns
        -------
        a vector (k,)
            The minimiser p.
        """

    @abc.abstractmethod
    def conjugate(self, v: Vector) -> Float[Array, ""]:
        """Return f*(v) = max_u <u, v> - f(u).

        Parameters
        ----------
        v : a vector (k,)
            The dual point.

        Returns
        -------
        a number
            f*(v); inf outside of its domain.
        """

    def smooth(self, nu: Scalar) -> AbstractOuter:
        from .smoothing import Envelope

        return Envelope(self, nu)

    def dual_form(self) -> tuple["AbstractSupport", Scalar]:
        """Return (s, rho) with f* = indicator of V + rho/2 |.|^2, where V is the set of the support
        function s.

        Returns
        -------
        a pair
            The support function s and the number rho.

        Raises
        ------
        TypeError
            f does not say what its conjugate is.
        """
        raise TypeError(
            f"The exact solver needs an outer function whose conjugate is the indicator of a set plus a quadratic; "
            f"{type(self).__name__} does not say so. Give it a dual_form, or take pli."
        )


class AbstractSupport(AbstractProximable):
    """A support function f(u) = max_{v in V} <u, v>, V convex and compact: argmax and projection give
    all the rest.

    prox(u, s) = u - s P_V(u/s) (Moreau), f* = the indicator of V, f_nu(u) = max_{v in V} <u, v> -
    nu/2 |v|^2.

    Write `argmax`, `project`, `radius` and `sharpness` for an f of your own.

    See Also
    --------
    AbstractProximable : what follows from a prox alone.
    L2, L1, LInf, Max, Hinge, Quantile : support functions that are there.

    Examples
    --------
    >>> import math
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import proxlin as px
    >>> class Absolute(px.AbstractSupport):
    ...     "f(u) = sum_j |u_j|, V = [-1, 1]^k."
    ...
    ...     def argmax(self, u):
    ...         return jnp.sign(u)
    ...
    ...     def project(self, v):
    ...         return jnp.clip(v, -1.0, 1.0)
    ...
    ...     def radius(self, k):
    ...         return math.sqrt(k)
    ...
    ...     def sharpness(self, k):
    ...         return 1.0
    >>> f = Absolute()
    >>> u = np.array([3.0, 0.5])
    >>> float(f.value(u)), f.prox(u, 1.0).tolist()
    (3.5, [2.0, 0.0])
    """

    @abc.abstractmethod
    def argmax(self, u: Vector) -> Float[Array, " k"]:
        """Return a maximiser of <u, v> over V: a subgradient of f at u.

        Parameters
        ----------
        u : a vector (k,)
            The point.

        Returns
        -------
        a vector (k,)
            The maximiser.
        """

    @abc.abstractmethod
    def project(self, v: Vector) -> Float[Array, " k"]:
        """Return the nearest point of V.

        Parameters
        ----------
        v : a vector (k,)
            Any point.

        Returns
        -------
        a vector (k,)
            Its projection on V.
        """

    @abc.abstractmethod
    def radius(self, k: int) -> Scalar:
        """Return max_{v in V} |v|: the Lipschitz constant of f.

        Parameters
        ----------
        k : an integer
            The number of outputs of phi.

        Returns
        -------
        a number
            The radius.
        """

    def value(self, u: Vector) -> Float[Array, ""]:
        """Return <u, argmax(u)>; a function whose formula rounds less writes its own.

        Parameters
        ----------
        u : a vector (k,)
            The point.

        Returns
        -------
        a number
            f(u), in the dtype of u.
        """
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
        """Whether v is in V, up to eps^(2/3) of its size: a prox is in V only up to round-off.

        Parameters
        ----------
        v : a vector (k,)
            Any point.

        Returns
        -------
        True or False
            Whether v is in V, as an array of no axes.
        """
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

        Returns
        -------
        a set
            V, with the methods that the exact solver asks for.
        """
        return Projected(self)

    def dual_form(self) -> tuple["AbstractSupport", Scalar]:
        return self, 0.0
