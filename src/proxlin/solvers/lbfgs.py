"""Limited-memory BFGS on the smoothed problem: F_nu(w) = sum_i c_i f_nu(u_i(w)) + quadratic(w),
full batch.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from ..checks import number, whole
from ..cost import Calls, Prices
from ..outers import AbstractProximable
from ..problem import AbstractProblem
from ..types import Number, Params
from .base import AbstractSolver, Info, stationarity

RECORD = 10  # steps between two records: a step is little more than a gradient
# the share of the slope by which F must fall in a line search (Nocedal and Wright, section 3.1)
FALL = 1e-4
SLOPE = 0.9  # the share of the slope that may be left at its end
TRIES = 30  # halvings or doublings of the step before a search is given up


class Point(eqx.Module):
    """The flat w with F and its gradient there."""

    w: Float[Array, " d"]
    value: Float[Array, ""]
    gradient: Float[Array, " d"]


class Pairs(eqx.Module):
    """The last m pairs s = w+ - w, y = g+ - g, rows of S and Y in the order of a ring, and their
    products <s_i, y_j>, <y_i, y_j> from the oldest to the newest.

    The products make a step two passes over S and Y, as products of matrices. The two loops over
    the pairs would be 2 m short operations, one after the other.
    """

    S: Float[Array, "m d"]
    Y: Float[Array, "m d"]
    SY: Float[Array, "m m"]
    YY: Float[Array, "m m"]
    stored: Int[Array, ""]

    def held(self) -> Bool[Array, " m"]:
        """Return which places from the oldest to the newest have a pair."""
        m = self.S.shape[0]
        return jnp.arange(m, dtype=jnp.int32) >= m - self.stored

    def by_age(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return numbers of the ring from the oldest to the newest."""
        return jnp.roll(rows, -(self.stored % rows.size))

    def in_ring(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return numbers from the oldest to the newest as they stand in the ring."""
        return jnp.roll(rows, self.stored % rows.size)


class QuasiNewtonState(eqx.Module):
    """The iterate, F there, and the pairs.

    All of the flat w: a few long operations, where the leaves would take many short ones.
    """

    w: Params
    at: Point
    pairs: Pairs
    t: Int[Array, ""]


class LBFGS(AbstractSolver):
    """w+ = w - s B g, g the gradient of F_nu, B from the last `memory` steps, s by a line search
    (weak Wolfe).
    """

    outers = AbstractProximable
    instead = "pli"

    nu: Number | None
    memory: int = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> QuasiNewtonState:
        flat, unravel = ravel_pytree(w)
        m = self.memory
        rows = jnp.zeros((m, flat.size), flat.dtype)
        products = jnp.zeros((m, m), flat.dtype)
        zero = jnp.zeros((), jnp.int32)
        pairs = Pairs(rows, rows, products, products, zero)
        return QuasiNewtonState(w, self._points(problem, unravel)(flat), pairs, zero)

    def step(
        self, problem: AbstractProblem, state: QuasiNewtonState, drawn: Any
    ) -> tuple[QuasiNewtonState, Info]:
        _, unravel = ravel_pytree(state.w)
        at = state.at
        newton = _direction(state.pairs, at.gradient)
        downhill = newton @ at.gradient < 0
        direction = jnp.where(downhill, newton, -at.gradient)
        # Without curvature the first step tried has at most the length 1.
        fresh = ~downhill | (state.pairs.stored == 0)
        length = jnp.linalg.norm(at.gradient)
        first = jnp.where(fresh, jnp.minimum(1, 1 / length), 1).astype(at.w.dtype)
        point, moved, tries = _search(
            self._points(problem, unravel), at, direction, first
        )
        pairs = _remember(state.pairs, at, point, moved)
        after = QuasiNewtonState(unravel(point.w), point, pairs, state.t + 1)
        curvature = 1 / _inverse_curvature(pairs)
        measure = stationarity(jnp.linalg.norm(point.gradient), curvature, point.value)
        return after, Info(
            Calls(subgradient=tries - 1), measure, ~moved & (state.pairs.stored == 0)
        )

    def _points(
        self, problem: AbstractProblem, unravel: Callable[[Array], Params]
    ) -> Callable[[Array], Point]:
        smooth = problem if self.nu is None else problem.smooth(self.nu)

        def point(w: Array) -> Point:
            value, gradient = smooth.value_and_subgradient(unravel(w))
            return Point(
                w, value.astype(w.dtype), ravel_pytree(gradient)[0].astype(w.dtype)
            )

        return point

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        price = problem.prices(w).subgradient
        return Prices(step=price, subgradient=price, init=price)

    def epoch(self, problem: AbstractProblem) -> Any:
        return RECORD

    def is_random(self) -> bool:
        return False

    def allows_padding(self) -> bool:
        return True

    def full_batch(self) -> bool:
        return True

    def remedy(self) -> str:
        return (
            "Start from another w."
            if self.nu is None
            else f"Try nu = {float(jnp.max(self.nu)) * 10:.2g}."
        )

    def name(self) -> str:
        return "lbfgs"


def _direction(pairs: Pairs, g: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return -B g, with the compact form of B (Byrd, Nocedal and Schnabel 1994, Theorem 2.2); -g
    where there is no pair.

        B = c I + [S' cY'] [[R^-T (D + c YY') R^-1, -R^-T], [-R^-1, 0]] [S; cY]

    R is the upper triangle of SY', from the oldest pair to the newest, and D is its diagonal.
    """
    held = pairs.held()
    c = _inverse_curvature(pairs)
    both = held[:, None] & held[None, :]
    # Places without a pair are rows of the identity, which leave their zeros alone.
    R = jnp.triu(jnp.where(both, pairs.SY, jnp.eye(held.size, dtype=g.dtype)))
    D = jnp.where(held, jnp.diagonal(pairs.SY), 0)
    solve = functools.partial(jax.scipy.linalg.solve_triangular, R)
    along = jnp.where(held, pairs.by_age(pairs.S @ g), 0)
    turned = jnp.where(held, pairs.by_age(pairs.Y @ g), 0)
    a = solve(along)
    turned = jnp.where(held, pairs.YY @ a, 0) - turned
    b = solve(D * a + c * turned, trans="T")
    return -(c * g + pairs.in_ring(b) @ pairs.S - c * (pairs.in_ring(a) @ pairs.Y))


def _inverse_curvature(pairs: Pairs) -> Float[Array, ""]:
    """Return s.y / y.y of the newest pair, or 1 where there is none."""
    known = pairs.stored > 0
    return jnp.where(known, pairs.SY[-1, -1] / jnp.where(known, pairs.YY[-1, -1], 1), 1)


class _Bracket(eqx.Module):
    """A search between two steps: the one below falls enough and is still steep, the one above does
    not fall enough.
    """

    step: Float[Array, ""]
    below: Float[Array, ""]
    above: Float[Array, ""]
    point: Point
    found: Bool[Array, ""]
    tries: Int[Array, ""]


def _search(
    points: Callable[[Array], Point], at: Point, direction: Array, first: Array
) -> tuple[Point, Bool[Array, ""], Int[Array, ""]]:
    """Return a point at + s d where F falls enough and the slope is gone, by bisection; whether it
    moved; the tries.

    Bisection needs no smoothness (Lewis and Overton 2013). Near the minimum, where F is flat to
    round-off, the slopes decide alone (Hager and Zhang 2005, "approximate Wolfe").
    """
    slope = at.gradient @ direction
    flat = jnp.finfo(at.w.dtype).eps * jnp.abs(at.value)

    def go_on(bracket: _Bracket) -> Array:
        return ~bracket.found & (bracket.tries < TRIES)

    def attempt(bracket: _Bracket) -> _Bracket:
        step = bracket.step
        point = points(at.w + step * direction)
        steep = point.gradient @ direction
        falls = point.value <= at.value + FALL * step * slope
        falls |= (point.value <= at.value + flat) & (steep <= (2 * FALL - 1) * slope)
        found = falls & (steep >= SLOPE * slope)
        below = jnp.where(falls, step, bracket.below)
        above = jnp.where(falls, bracket.above, step)
        after = jnp.where(jnp.isinf(above), 2 * step, (below + above) / 2)
        return _Bracket(after, below, above, point, found, bracket.tries + 1)

    zero = jnp.zeros((), at.w.dtype)
    start = _Bracket(
        first, zero, zero + jnp.inf, at, jnp.asarray(False), jnp.zeros((), jnp.int32)
    )
    end = jax.lax.while_loop(go_on, attempt, start)
    moved = (end.found | (end.point.value < at.value)) & jnp.all(
        jnp.isfinite(end.point.gradient)
    )
    return (
        jax.tree.map(lambda a, b: jnp.where(moved, a, b), end.point, at),
        moved,
        end.tries,
    )


def _remember(pairs: Pairs, at: Point, point: Point, moved: Array) -> Pairs:
    """Return the pairs with that of this step in the place of the oldest; none after a search that
    found nothing.
    """
    s = point.w - at.w
    y = point.gradient - at.gradient
    product = s @ y
    # A pair without curvature, up to rounding, would make B indefinite.
    least = jnp.finfo(s.dtype).eps * jnp.linalg.norm(s) * jnp.linalg.norm(y)
    keep = product > least
    j = pairs.stored % pairs.S.shape[0]
    S = pairs.S.at[j].set(jnp.where(keep, s, pairs.S[j]))
    Y = pairs.Y.at[j].set(jnp.where(keep, y, pairs.Y[j]))
    stored = jnp.where(moved, pairs.stored + keep.astype(jnp.int32), 0)
    after = Pairs(S, Y, pairs.SY, pairs.YY, stored)
    # Only older s with newer y are looked at, so the row of s is not needed.
    SY = _shifted(pairs.SY, after.by_age(S @ y), jnp.zeros_like(pairs.SY[0]))
    of_y = after.by_age(Y @ y)
    YY = _shifted(pairs.YY, of_y, of_y)
    SY = jnp.where(keep, SY, pairs.SY)
    YY = jnp.where(keep, YY, pairs.YY)
    return Pairs(S, Y, SY, YY, stored)


def _shifted(
    products: Float[Array, "m m"], column: Float[Array, " m"], row: Float[Array, " m"]
) -> Float[Array, "m m"]:
    """Return the products without those of the oldest pair, and with these of the newest at the end."""
    moved = jnp.roll(products, (-1, -1), (0, 1))
    return moved.at[-1].set(row).at[:, -1].set(column)


def lbfgs(nu: Any = None, memory: int = 30) -> AbstractSolver:
    """Return L-BFGS on F_nu, the problem with f smoothed: F_nu <= F <= F_nu + nu l^2 / 2, l of f (1
    for L2).

    For full-batch fits with nk far above the number of parameters: a step costs little more than a
    gradient. It ends near the minimum of F_nu, from where `prox_linear` goes on to that of F. None
    for nu is F itself, for an f that is smooth already. `tol` is compared with |grad F_nu| / sqrt(c
    |F_nu|), c the curvature of the last step.

    Parameters
    ----------
    nu : a positive number, or None
        The smoothing of f; None is F itself, for an f that is smooth already.
    memory : an integer
        How many pairs of steps and gradients are kept.

    Returns
    -------
    a solver
        For `px.minimize`.

    See Also
    --------
    prox_linear : goes on from the minimum of F_nu to that of F.
    subgradient_descent : needs no smoothing.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.SquaredL2(), np.array([[1.0], [2.0], [9.0]]))
    >>> px.minimize(p, np.zeros(1), px.lbfgs(), steps=5).w.round(6).tolist()
    [4.0]
    """
    level = None if nu is None else number(nu, "nu", low=0.0, open=True)
    return LBFGS(level, whole(memory, "memory"))
