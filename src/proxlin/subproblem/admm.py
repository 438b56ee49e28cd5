"""A short burst of ADMM on the dual: most subproblems need nothing else.

min_{v in V^n}  1/2 |A'v|^2 + 1/2 sum_i rho_i |v_i|^2 - <b, v>          A of the size that `dense.Scaled` gives it
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..outers.sets import AbstractSet
from .systems import AbstractSystem, System

RELAX = 1.3  # over-relaxation (docs/decisions/0005)
CHECK = 5  # steps between two looks at the gap
FIRST = 30  # steps before the rate of convergence is believed
# steps in all, above which an interior point is quicker (docs/decisions/0005)
HAND_OVER = 120
# the same for a set without a barrier, where there is nobody to hand over to
ALONE = 20_000


class Point(eqx.Module):
    """A primal and dual pair with its certificate: gap(e, v) = sum excess(b + A e, v) + 1/2 |e +
    A'v|^2.
    """

    e: Array
    v: Array
    gap: Array


def point(
    system: AbstractSystem,
    V: AbstractSet,
    rho: Array,
    e: Array,
    v: Array,
    r: Array,
    u: Array,
) -> Point:
    """Return the pair (e, v) with its gap, given r = e + A'v and u = b + A e."""
    gap = system.total(V.excess(u, v, rho)) + system.square(r) / 2
    return Point(e, v, jnp.where(jnp.isfinite(gap), gap, jnp.inf))


def pair(
    system: AbstractSystem, V: AbstractSet, b: Array, rho: Array, e: Array, v: Array
) -> Point:
    """Return the pair (e, v) with its gap."""
    return point(system, V, rho, e, v, e + system.pull(v), b + system.push(e))


def better(new: Point, old: Point) -> Point:
    """Return the one with the smaller gap."""
    smaller = new.gap < old.gap
    return Point(
        jnp.where(smaller, new.e, old.e),
        jnp.where(smaller, new.v, old.v),
        jnp.where(smaller, new.gap, old.gap),
    )


class State(eqx.Module):
    """The iterates w (in V), y (the multiplier) and x, the residual b - K x, the last gaps, and the
    count of steps.
    """

    w: Array
    y: Array
    x: Array
    residual: Array
    gaps: Array
    steps: Array


def burst(
    system: System, V: AbstractSet, b: Array, rho: Array, v: Array, z: Array, tol: Array
) -> tuple[Point, Array]:
    """Return a point and the steps that it took, from v with the residual z.

        x = argmin 1/2 |A'x|^2 + 1/2 sum rho_i |x_i|^2 - <b, x> + 1/2 |x - w + y|^2,   w = project(1.3 x - 0.3 w + y)

    The gap is checked every 5 steps, by the residual b - K x = (rho + 1) x - w + y that the solve
    gives. From step 30 on it stops as soon as the rate of the last 20 steps would not reach tol
    within the limit.
    """
    limit = ALONE if V.barrier() is None else HAND_OVER
    M = jnp.broadcast_to((rho + 1)[:, None], b.shape)
    none = jnp.zeros_like(b)
    factor = system.factor(M, none)
    anchor, c, Kc = _anchor(system, V, b)

    def step(_: Any, s: State) -> State:
        x = anchor + system.solve_dual(factor, c, Kc, b + s.w - s.y - M * anchor)
        mixed = RELAX * x + (1 - RELAX) * s.w
        w = V.project(mixed + s.y)
        return State(w, s.y + mixed - w, x, M * x - s.w + s.y, s.gaps, s.steps + 1)

    def body(s: State) -> State:
        s = jax.lax.fori_loop(0, CHECK, step, s)
        gap = jnp.sum(V.excess(s.residual, s.w, rho)) + system.energy(s.w - s.x) / 2
        gaps = jnp.concatenate([s.gaps[1:], gap[None]])
        return eqx.tree_at(lambda s: s.gaps, s, gaps)

    def going(s: State) -> Array:
        first, last = s.gaps[0], s.gaps[-1]
        rate = jnp.log(first / last) / (CHECK * (s.gaps.size - 1))
        # steps still needed; a rate of 0 is no rate
        ahead = jnp.log(last / tol) / jnp.maximum(rate, 1e-6)
        useful = (ahead < (limit - s.steps).astype(b.dtype)) & jnp.isfinite(last)
        return (last > tol) & ((s.steps < FIRST) | useful)

    start = State(v, z, v, z, jnp.full(5, jnp.inf, b.dtype), jnp.int32(0))
    end = jax.lax.while_loop(going, body, start)
    e = -system.pull(end.x)
    # One step of refinement: the residual that the solve promised against the one that e has.
    de = system.solve(factor, jnp.zeros_like(e), b + system.push(e) - end.residual)[1]
    return pair(system, V, b, rho, e + de, end.w), end.steps


def _anchor(system: System, V: AbstractSet, b: Array) -> tuple[Array, Array, Array]:
    """Return a point of V, A' of it and A A' of it: where V is flat, systems are solved for
    differences from it.
    """
    none = jnp.zeros_like(b)
    if not V.flat:
        return none, jnp.zeros(system.width, b.dtype), none
    anchor = V.center(b)
    c = system.pull(anchor)
    return anchor, c, system.push(c)
