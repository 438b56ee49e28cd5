"""A subproblem whose Jacobian has a structure that makes C = I + A' M^-1 A quick to factor.

    P(e) = sum_i f_i(b_i + B_i e) + 1/2 |e|^2,        B_i = c_i J_i / sqrt(weight)

A new kind of structure is one file: a final `AbstractStructured`, which makes itself of a problem and
knows its `push` and `pull`, and the `AbstractColumns` that its method `system` returns. `exact.KINDS`
lists the kinds. The methods (ADMM, the interior point) and the certificate are those of a dense
Jacobian.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..outers.sets import AbstractSet
from ..problem import AbstractProblem
from ..types import Params
from .admm import Point, better
from .certificate import Certificate, Seen, certify, rounding
from .damped import minimize_damped
from .dense import Units, hybrid, linear
from .systems import AbstractColumns, AbstractNewton


class AbstractStructured(eqx.Module):
    """The blocks u_i, their coefficients c_i and their Jacobians J_i at w, the last in a form of its own.

    Directions are flat vectors (d,), in the order of `ravel_pytree` of the parameters of w.
    """

    by_entries: ClassVar[bool] = False  # whether there is a method `entries`
    # whether a step of the interior point is worth less than the compilation of a burst of ADMM
    quick: ClassVar[bool] = False
    by_newton: ClassVar[bool] = False  # whether its system is an `AbstractNewton`

    w: eqx.AbstractVar[Params]
    c: eqx.AbstractVar[Float[Array, " m"]]
    u: eqx.AbstractVar[Float[Array, "m k"]]

    @classmethod
    @abc.abstractmethod
    def fits(cls, problem: AbstractProblem, w: Params) -> bool:
        """Return whether the problem has this structure and it pays, from shapes alone."""

    @classmethod
    @abc.abstractmethod
    def of(cls, problem: AbstractProblem, w: Params) -> "AbstractStructured":
        """Return the expansion at w; only asked where `fits` says so."""

    @classmethod
    @abc.abstractmethod
    def operations(cls, problem: AbstractProblem, w: Params) -> float:
        """Return about how many operations one factorisation takes, from shapes alone."""

    def entries(self) -> "AbstractStructured":
        """Return the same map with every entry as a block of its own; only asked where `by_entries`
        says so.
        """
        raise TypeError(f"{type(self).__name__} keeps its blocks together.")

    @abc.abstractmethod
    def push(self, d: Float[Array, " d"]) -> Float[Array, "m k"]:
        """Return (J_i d)_i."""

    @abc.abstractmethod
    def pull(self, v: Float[Array, "m k"]) -> Float[Array, " d"]:
        """Return sum_i J_i' v_i."""

    @abc.abstractmethod
    def push_error(self, d: Float[Array, " d"]) -> Float[Array, "m k"]:
        """Return a bound of the rounding error of push(d), entry by entry."""

    @abc.abstractmethod
    def pull_error(self, v: Float[Array, "m k"]) -> Float[Array, " d"]:
        """Return a bound of the rounding error of pull(v), entry by entry."""

    @abc.abstractmethod
    def system(self, scale: Float[Array, " m"], V: AbstractSet) -> AbstractColumns:
        """Return the system of A_i = scale_i J_i."""


class Weighted(eqx.Module):
    """The map B_i = scale_i J_i."""

    at: AbstractStructured
    scale: Array

    def push(self, e: Array) -> Array:
        return self.scale[:, None] * self.at.push(e)

    def pull(self, v: Array) -> Array:
        return self.at.pull(self.scale[:, None] * v)

    def seen(self, b: Array, v: Array, e: Array, away: Array, blur: Array) -> Seen:
        """Return what a certificate at z = b + B e is computed from, with its errors."""
        scale = jnp.abs(self.scale)[:, None]
        pushed = self.push(e)
        # The sum and the product with the scale are rounded too.
        around = rounding(1, b.dtype) * (jnp.abs(b) + jnp.abs(pushed))
        z_error = around + scale * self.at.push_error(e)
        weighted = self.scale[:, None] * v
        slip = rounding(1, b.dtype) * self.at.pull(weighted)
        turn = jnp.linalg.norm(self.at.pull_error(weighted)) + jnp.linalg.norm(slip)
        return Seen(b + pushed, z_error, away, self.pull(v), blur + turn)


def minimize_structured(
    B: Weighted,
    b: Array,
    rho: Array,
    V: AbstractSet,
    tol: Array,
    e0: Array,
    v0: Array | None,
    share: float | None,
) -> tuple[Array, Array, Array]:
    """Return (e, v, iterations) for b (n, k) and rho (n,), to gap <= tol, from e0 and v0 (n, k) if they
    help.

    It is a linear solve where V is the whole space, and otherwise Newton's method where the system
    and V can, and ADMM and an interior point where they cannot or it does not arrive. Newton's
    method also ends where the gap is this share of the decrease since e0. Blocks stay as they are where V is a product
    of intervals: the rows of a block share their columns.
    """
    p = Units(b, rho, V, lambda v: B.push(B.pull(v)))
    size = jnp.asarray(V.size(), b.dtype)
    tol = tol / p.scale
    system = B.at.system(p.gain * B.scale, V)
    if V.unbounded:
        found, steps = linear(system, p)
    elif V.flat and b.shape[1] == 1:  # V is the point 1
        nothing = jnp.zeros((), b.dtype)
        found = Point(-system.pull(p.anchor), p.anchor, nothing)
        steps = jnp.int32(0)
    else:
        start = None if v0 is None else v0 / size
        found, steps = _kinked(B.at, system, p, tol, e0, start, share)
    return found.e * jnp.sqrt(p.scale), V.project(found.v * size), steps


def _kinked(
    at: AbstractStructured,
    system: AbstractColumns,
    p: Units,
    tol: Array,
    e0: Array,
    v0: Array | None,
    share: float | None,
) -> tuple[Point, Array]:
    """Return the best point and the iterations, in the units of p but for e0."""
    if not (isinstance(system, AbstractNewton) and p.V.responds):
        return hybrid(system, p, tol, v0, small=at.quick)
    part = jnp.asarray(0.0 if share is None else share, tol.dtype)
    e0 = e0 / jnp.sqrt(p.scale)
    found, done, steps = minimize_damped(system, p, tol, part, e0, v0)

    def go_on(found: Point) -> tuple[Point, Array]:
        # Without a burst of ADMM: it would be a third of the program to compile.
        other, more = hybrid(system, p, tol, found.v, small=True)
        return better(other, found), steps + more

    return jax.lax.cond(done, lambda found: (found, steps), go_on, found)


def minimize_roughly(
    B: Weighted,
    b: Array,
    rho: Array,
    V: AbstractSet,
    e0: Array,
    share: float,
    most: int,
) -> Array:
    """Return e with a gap of a share of the decrease since e0, by so many steps of Newton's method at most,
    and without a certificate.
    """
    p = Units(b, rho, V, lambda v: B.push(B.pull(v)))
    system = B.at.system(p.gain * B.scale, V)
    assert isinstance(system, AbstractNewton)
    root = jnp.sqrt(p.scale)
    nothing = jnp.zeros_like(p.scale)
    part = jnp.asarray(share, b.dtype)
    found, _, _ = minimize_damped(system, p, nothing, part, e0 / root, None, most)
    return found.e * root


def certify_structured(
    B: Weighted,
    b: Array,
    rho: Array,
    V: AbstractSet,
    v: Array,
    e: Array,
    away: Array,
    blur: Array,
) -> Certificate:
    """Return the certificate at z = b + B e, where `away` is the distance from the centre, known up
    to `blur`.
    """
    seen = B.seen(b, v, e, away, blur)
    return certify(V, rho, jnp.ones((), b.dtype), v, seen)
