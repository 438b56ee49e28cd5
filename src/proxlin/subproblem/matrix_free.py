"""A subproblem whose Jacobian is too large to form: accelerated projected gradient on the dual.

    P(d) = sum_i f_i(b_i + B_i d) + weight/2 |d|^2,        f_i(z) = max_{v in V} <z, v> - rho_i/2 |v|^2
    v+ = project(y - (rho y - z(y)) / smoothness),   y = v + beta (v - v_old),   restart when <y - v+, v+ - v> > 0

B is known by two functions: push (tree -> (n, k)) and pull ((n, k) -> tree).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import trees
from ..outers.sets import AbstractSet


class Found(eqx.Module):
    """The best pair (d, v), v in V^n, its gap, the steps, the calls of push and pull, and an
    estimate of |B|.
    """

    d: Any
    v: Array
    gap: Array
    steps: Array
    pushes: Array
    pulls: Array
    spread: Array


class Ray(eqx.Module):
    """A dual point v with d = -B'v / weight and z = b + B d."""

    v: Array
    d: Any
    z: Array


class State(eqx.Module):
    """The last two points, the momentum, the smoothness found so far, the best pair, and counters."""

    old: Ray
    new: Ray
    momentum: Array
    smoothness: Array
    best: Ray
    gap: Array
    steps: Array
    pulls: Array


class Attempt(eqx.Module):
    """A step from y: its end, the smoothness that it took and the one that it showed to be needed,
    and the pulls.
    """

    v: Array
    d: Any
    smoothness: Array
    needed: Array
    pulls: Array


def minimize_matrix_free(
    push: Callable[[Any], Array],
    pull: Callable[[Array], Any],
    b: Array,
    rho: Array,
    weight: Array,
    V: AbstractSet,
    tol: Array,
    max_iterations: int | Array,
    v0: Array | None = None,
) -> Found:
    """Return the best pair found until gap <= tol.

    Each step calls push once and pull once, and pull once more each time that smoothness was found
    too small (|B'(v+ - y)|^2 / weight + rho |v+ - y|^2 > smoothness |v+ - y|^2); two pulls and one
    push come before. z(y) and d(y) are combinations of what is known, so the gap is checked at each
    step for free.
    """
    tree = trees

    def direction(v: Array) -> Any:
        return tree.scale(-1 / weight, pull(v))

    def curvature(v: Array, d: Any) -> Array:
        """(|B'v|^2 / weight + sum rho_i |v_i|^2) / |v|^2 for d = -B'v / weight."""
        square = jnp.sum(v * v)
        energy = weight * tree.vdot(d, d) + jnp.sum(rho[:, None] * v * v)
        return jnp.where(
            square > 0,
            energy / jnp.where(square > 0, square, jnp.ones_like(square)),
            0 * square,
        )

    def attempt_from(y: Ray, last: Attempt) -> Attempt:
        """Step from y, with more smoothness than the last attempt if that had too little."""
        more = jnp.maximum(1.1 * last.smoothness, 1.05 * last.needed)
        smoothness = jnp.where(last.needed > last.smoothness, more, last.smoothness)
        v = V.project(y.v + (y.z - rho[:, None] * y.v) / smoothness)
        d = direction(v)
        return Attempt(
            v, d, smoothness, curvature(v - y.v, tree.sub(d, y.d)), last.pulls + 1
        )

    def body(s: State) -> State:
        momentum = (1 + jnp.sqrt(1 + 4 * s.momentum**2)) / 2
        beta = (s.momentum - 1) / momentum
        y = jax.tree.map(lambda new, old: new + beta * (new - old), s.new, s.old)
        none = Attempt(y.v, y.d, s.smoothness, jnp.zeros_like(s.smoothness), s.pulls)
        short = lambda a: a.needed > 1.01 * a.smoothness  # by more than rounding
        found = jax.lax.while_loop(
            short, lambda a: attempt_from(y, a), attempt_from(y, none)
        )
        v = found.v
        new = Ray(v, found.d, b + push(found.d))
        rest = tree.sub(found.d, y.d)
        at_new = jnp.sum(V.excess(new.z, v, rho))
        at_y = jnp.sum(V.excess(y.z, v, rho)) + weight / 2 * tree.vdot(rest, rest)
        pair = jax.tree.map(
            lambda a, c: jnp.where(at_new <= at_y, a, c), new, Ray(v, y.d, y.z)
        )
        gap = jnp.minimum(at_new, at_y)
        best = jax.tree.map(lambda a, c: jnp.where(gap < s.gap, a, c), pair, s.best)
        restart = jnp.sum((y.v - v) * (v - s.new.v)) > 0
        momentum = jnp.where(restart, jnp.ones_like(momentum), momentum)
        gap = jnp.minimum(gap, s.gap)
        return State(
            s.new, new, momentum, found.smoothness, best, gap, s.steps + 1, found.pulls
        )

    v = V.project(jnp.zeros_like(b) if v0 is None else v0)
    d = direction(v)
    start = Ray(v, d, b + push(d))
    probe = jnp.where(jnp.any(b != 0), b, jnp.ones_like(b))
    smoothness = jnp.maximum(
        curvature(probe, direction(probe)), jnp.finfo(b.dtype).tiny ** 0.5
    )
    gap = jnp.sum(V.excess(start.z, v, rho))
    one = jnp.ones((), b.dtype)
    state = State(start, start, one, smoothness, start, gap, jnp.int32(0), jnp.int32(2))
    end = jax.lax.while_loop(
        lambda s: (s.gap > tol) & (s.steps < max_iterations), body, state
    )
    spread = jnp.sqrt(end.smoothness * weight)
    return Found(
        end.best.d, end.best.v, end.gap, end.steps, end.steps + 1, end.pulls, spread
    )
