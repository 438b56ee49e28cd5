"""Mehrotra's predictor-corrector interior point on the dual of the prox-linear subproblem.

    e + A'v = 0        b + A e - rho v = z        z = normal(y)        slack(v) o y = mu

Newton on these in (e, v, y), one factorisation of A A' + M for each iteration. e and z are variables of their own, so
the certificate does not floor at eps |A A'|. Constants and what they were measured on: docs/decisions/0005.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .systems import Point, System, better

BOUNDARY, PULL = 0.99, 0.01  # the share of the way to the boundary, and of that to the centre before the first step
STEPS = 60  # in all, a guard: 240 stress problems took 11 at most (docs/decisions/0005)
IDLE, LESS = 12, 0.9  # a guard too: steps in a row that left more than LESS of the best gap


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


def _certified(cone: Any, rho: Array, e: Array, v: Array, r: Array, u: Array) -> Point:
    gap = jnp.sum(cone.excess(u, v, rho)) + jnp.sum(r * r) / 2
    return Point(e, v, jnp.where(jnp.isfinite(gap), gap, jnp.inf))


def _start(system: System, cone: Any, b: Array, rho: Array, point: Point) -> State:
    """v pulled to the centre c by t; multipliers with a margin of the mean complementarity left.

    t is PULL, or less where the pull would cost t^2/2 |A'(v - c)|^2 above both the gap and t n (z_i is of size 1).
    """
    away = point.v - cone.center(point.v)
    cost = jnp.maximum(jnp.sum(system.back(away) ** 2), jnp.finfo(b.dtype).tiny) / 2
    v = point.v - jnp.minimum(PULL, jnp.maximum(b.shape[0] / cost, jnp.sqrt(point.gap / cost))) * away
    e, u = point.e, b + system.fore(point.e)
    z = u - rho[:, None] * v
    margin = jnp.mean(cone.excess(z, v, jnp.zeros_like(rho)))
    y = cone.multipliers(v, z, jnp.maximum(margin, jnp.finfo(b.dtype).eps))
    return State(e, v, y, e + system.back(v), u, point, jnp.int32(0), jnp.int32(0))


def _direction(system: System, cone: Any, rho: Array, s: State) -> tuple[Array, Array, Any]:
    """(dv, de, dy): a predictor, then target sigma mu with sigma = (mu_affine / mu)^3 and its second-order term."""
    W = cone.scaling(s.v, s.y)
    h, g = cone.curvature(W, s.y)
    h = h + rho[:, None]
    factor = system.factor(h, g)
    slip = s.u - rho[:, None] * s.v - cone.normal(s.y)
    total, count = cone.comply(s.v, s.y)

    def newton(i, found):
        dv, _, dy = found
        step = jnp.minimum(1.0, cone.reach(s.v, dv, s.y, dy))
        left, _ = cone.comply(s.v + step * dv, jax.tree.map(lambda y, d: y + step * d, s.y, dy))
        sigma = jnp.where(i == 0, 0.0, jnp.clip(left / total, 0.0, 1.0) ** 3)
        p = cone.aim(W, s.y, sigma * total / count, dv, dy)
        dv, de = system.refined(factor, h, g, s.r, cone.pull(W, p) + slip)
        return dv, de, cone.follow(W, s.y, p, dv)

    return jax.lax.fori_loop(0, 2, newton, jax.tree.map(jnp.zeros_like, (s.v, s.e, s.y)))


def _advance(system: System, cone: Any, b: Array, rho: Array, s: State) -> State:
    """One step of BOUNDARY of the way to the boundary. The gap decides what is kept."""
    dv, de, dy = _direction(system, cone, rho, s)
    step = jnp.minimum(1.0, BOUNDARY * cone.reach(s.v, dv, s.y, dy))
    e, v = s.e + step * de, s.v + step * dv
    y = jax.tree.map(lambda a, d: a + step * d, s.y, dy)
    r, u = e + system.back(v), b + system.fore(e)
    new = _certified(cone, rho, e, v, r, u)
    idle = jnp.where(new.gap < LESS * s.best.gap, 0, s.idle + 1)
    idle = jnp.where(jnp.isfinite(new.gap), idle, IDLE)
    return State(e, v, y, r, u, better(new, s.best), s.steps + 1, idle)


def interior(system: System, cone: Any, b: Array, rho: Array, point: Point, tol: Array) -> tuple[Point, Array]:
    """(best certified point, iterations) from a certified point; no iteration if its gap is at most tol."""
    going = lambda s: (s.best.gap > tol) & (s.steps < STEPS) & (s.idle < IDLE)

    def run(point):
        start = _start(system, cone, b, rho, point)
        end = jax.lax.while_loop(going, lambda s: _advance(system, cone, b, rho, s), start)
        return end.best, end.steps

    return jax.lax.cond(point.gap > tol, run, lambda point: (point, jnp.int32(0)), point)
