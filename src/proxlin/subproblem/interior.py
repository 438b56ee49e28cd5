"""Mehrotra's predictor-corrector interior point on the dual of the prox-linear subproblem.

    e + A'v = 0        b + A e - rho v = z        z = normal(y)        slack(v) o y = mu

Newton on these in (e, v, y), one factorisation of A A' + M for each iteration. e and z are
variables of their own, so the certificate does not floor at eps |A A'|. Constants and what they
were measured on: docs/decisions/0005.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..outers.sets import AbstractBarrier
from .admm import Point, better, point
from .systems import AbstractSystem

BOUNDARY = 0.99  # the share of the way to the boundary that a step takes
# the share of the way to the centre that the start is moved: the boundary itself has no scaling
INWARD = 0.01
STEPS = 60  # in all, a guard: 240 stress problems took 11 at most (docs/decisions/0005)
IDLE = 12  # steps in a row without progress, a guard too
PROGRESS = 0.9  # a gap below this share of the best one is progress


class State(eqx.Module):
    """The iterate, r = e + A'v and u = b + A e, the best certified point, and counters."""

    e: Array
    v: Array
    y: Any
    r: Array
    u: Array
    best: Point
    steps: Array
    idle: Array


def interior(
    system: AbstractSystem,
    V: AbstractBarrier,
    b: Array,
    rho: Array,
    start: Point,
    tol: Array,
) -> tuple[Point, Array]:
    """Return the best certified point and the iterations, from a certified one; none if its gap is
    at most tol.
    """

    def run(start: Point) -> tuple[Point, Array]:
        first = first_state(system, V, b, rho, start)
        end = jax.lax.while_loop(
            lambda s: is_going(s, tol), lambda s: advance(system, V, b, rho, s), first
        )
        return end.best, end.steps

    return jax.lax.cond(
        start.gap > tol, run, lambda start: (start, jnp.int32(0)), start
    )


def is_going(s: State, tol: Array) -> Array:
    """Whether a problem wants another step."""
    return (s.best.gap > tol) & (s.steps < STEPS) & (s.idle < IDLE)


def first_state(
    system: AbstractSystem,
    V: AbstractBarrier,
    b: Array,
    rho: Array,
    start: Point,
) -> State:
    """Move v to the centre c by a share t; give multipliers a margin of the mean complementarity
    that is left.

    t is INWARD, or less where the move would cost t^2/2 |A'(v - c)|^2 above both the gap and t n
    (z_i is of size 1).
    """
    away = start.v - V.center(start.v)
    tiny = jnp.finfo(b.dtype).tiny
    cost = jnp.maximum(system.square(system.pull(away)), tiny) / 2
    affordable = jnp.maximum(system.blocks() / cost, jnp.sqrt(start.gap / cost))
    share = system.spread(jnp.minimum(INWARD, affordable))
    v = start.v - share[:, None] * away
    u = b + system.push(start.e)
    z = u - rho[:, None] * v
    left = system.total(V.excess(z, v, jnp.zeros_like(rho))) / system.blocks()
    margin = jnp.maximum(left, jnp.finfo(b.dtype).eps)
    y = V.multipliers(v, z, system.spread(margin))
    none = jnp.zeros(start.gap.shape, jnp.int32)
    return State(start.e, v, y, start.e + system.pull(v), u, start, none, none)


def _direction(
    system: AbstractSystem, V: AbstractBarrier, rho: Array, s: State
) -> tuple[Array, Array, Any]:
    """Return (dv, de, dy): a predictor, then the target sigma mu, sigma = (mu_affine / mu)^3, with
    its second order.
    """
    W = V.scaling(s.v, s.y)
    h, g = V.curvature(W, s.y)
    h = h + rho[:, None]
    factor = system.factor(h, g)
    slip = s.u - rho[:, None] * s.v - V.normal(s.y)
    products, of_block = V.complementarity(s.v, s.y)
    total = system.total(products)
    count = of_block * system.blocks()

    def newton(i: Any, found: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
        dv, _, dy = found
        step = jnp.minimum(1.0, system.least(V.reach(s.v, dv, s.y, dy)))
        ahead = _along(system, step, (s.v, s.y), (dv, dy))
        left = system.total(V.complementarity(*ahead)[0])
        sigma = jnp.where(i == 0, 0.0, jnp.clip(left / total, 0.0, 1.0) ** 3)
        p = V.aim(W, s.y, system.spread(sigma * total / count), dv, dy)
        dv, de = system.refined(factor, h, g, s.r, V.constant(W, p) + slip)
        return dv, de, V.follow(W, s.y, p, dv)

    nothing = jax.tree.map(jnp.zeros_like, (s.v, s.e, s.y))
    # The predictor is a turn of the loop too, so that the system is compiled once.
    return jax.lax.fori_loop(0, 2, newton, nothing)


def _along(system: AbstractSystem, step: Array, x: Any, dx: Any) -> Any:
    """Return x + step dx for arrays of all blocks."""
    each = system.spread(step)

    def moved(x: Array, dx: Array) -> Array:
        return x + each.reshape(-1, *[1] * (x.ndim - 1)) * dx

    return jax.tree.map(moved, x, dx)


def advance(
    system: AbstractSystem, V: AbstractBarrier, b: Array, rho: Array, s: State
) -> State:
    """Take one step, BOUNDARY of the way to the boundary at most. The gap decides what is kept."""
    dv, de, dy = _direction(system, V, rho, s)
    reach = system.least(V.reach(s.v, dv, s.y, dy))
    step = jnp.minimum(1.0, BOUNDARY * reach)
    e = s.e + system.scaled(step, de)
    v, y = _along(system, step, (s.v, s.y), (dv, dy))
    r = e + system.pull(v)
    u = b + system.push(e)
    new = point(system, V, rho, e, v, r, u)
    idle = jnp.where(new.gap < PROGRESS * s.best.gap, 0, s.idle + 1)
    idle = jnp.where(jnp.isfinite(new.gap), idle, IDLE)
    best = better(new, s.best)
    return State(e, v, y, r, u, best, s.steps + 1, idle)
