"""Newton's method on a subproblem whose Jacobian has a structure: one factorisation for each iteration.

    P(e) = sum_i f_i(b_i + A_i e) + 1/2 |e|^2,        f_i(z) = max_{v in V} <z, v> - rho_i/2 |v|^2

f is smooth where it is damped around dual variables v0, and its gradient there is one of its maximizers:

    max_{v in V} <z, v> - rho/2 |v|^2 - sigma/2 |v - v0|^2,        v = maximizer(z + sigma v0, rho + sigma)

With r = e + A'v the step is -C^-1 r, C = I + A' dv/dz A. The pair (e, v) has the gap excess + |r|^2 / 2. An f that
is smooth itself has sigma = 0 and no excess. Otherwise v0 = v is the better anchor as soon as r is small, and sigma
shrinks: the proximal point method on the dual. It is the method of `newton.py` on one large problem, where a
factorisation is worth much more than a look.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .admm import Point, better
from .dense import Units
from .newton import CENTERED, FIRST, OVERSHOOT, SHRINK
from .systems import AbstractNewton

MOST = 60  # factorisations, a guard: then another method goes on
IDLE = 15  # of them in a row without progress, a guard too
PROGRESS = 0.9  # a gap below this share of the best one is progress
CUTS = 30  # of the length of a step, a guard for what rounding leaves of a slope


class Look(eqx.Module):
    """What is seen at e: z = b + A e, the dual variables v, r = e + A'v, the two parts of the gap of
    (e, v), and the decrease of P since the start.
    """

    e: Array
    z: Array
    v: Array
    r: Array
    beyond: Array
    rest: Array
    decrease: Array

    @property
    def gap(self) -> Array:
        gap = self.beyond + self.rest
        return jnp.where(jnp.isfinite(gap), gap, jnp.inf)


class State(eqx.Module):
    """The look at the iterate, v0 and sigma, the best point with its decrease, and counters."""

    look: Look
    v0: Array
    sigma: Array
    best: Point
    decrease: Array
    steps: Array
    idle: Array


def minimize_damped(
    system: AbstractNewton,
    p: Units,
    tol: Array,
    share: Array,
    e0: Array,
    v0: Array | None,
    most: int = MOST,
) -> tuple[Point, Array, Array]:
    """Return the best certified point, whether it is good enough, and the number of factorisations.

    It is where its gap is at most tol, or at most a share of the decrease of P since e0.
    """
    V = p.V
    z0 = p.b + system.push(e0)
    start = _value(p, e0, z0)
    # An f that is smooth itself needs no sigma. Blocks of no weight have rho = 0, and z = 0.
    used = jnp.any(p.b != 0, axis=-1)
    floor = jnp.asarray(10 * jnp.finfo(e0.dtype).eps ** 0.5, e0.dtype)
    smooth = jnp.min(jnp.where(used, p.rho, jnp.inf)) > floor
    floor = jnp.where(smooth, jnp.zeros_like(floor), floor)
    sigma = jnp.where(smooth, floor, jnp.asarray(FIRST, floor.dtype))
    anchor = p.anchor if v0 is None else V.project(v0)

    def good(gap: Array, decrease: Array) -> Array:
        return (gap <= tol) | (gap <= share * decrease)

    def going(s: State) -> Array:
        unfinished = ~good(s.best.gap, s.decrease)
        return unfinished & (s.steps < most) & (s.idle < IDLE)

    def advance(s: State) -> State:
        at = s.look
        wanted = jnp.maximum(at.beyond, tol)
        moves = (s.sigma > 0) & (at.rest <= CENTERED * wanted)
        shrunk = jnp.maximum(SHRINK * s.sigma, floor)
        moved = State(
            at,
            jnp.where(moves, at.v, s.v0),
            jnp.where(moves, shrunk, s.sigma),
            s.best,
            s.decrease,
            s.steps,
            s.idle,
        )
        found = jax.lax.cond(moves, again, step, moved)
        gap = found.look.gap
        nearer = gap < PROGRESS * s.best.gap
        pick = lambda new, old: jnp.where(gap < s.best.gap, new, old)
        best = better(Point(found.look.e, found.look.v, gap), s.best)
        idle = jnp.where(nearer, 0, s.idle + 1)
        return State(
            found.look,
            found.v0,
            found.sigma,
            best,
            pick(found.look.decrease, s.decrease),
            found.steps,
            jnp.where(jnp.isfinite(gap), idle, IDLE),
        )

    def again(s: State) -> State:
        """Look from the new v0."""
        look = _look(system, p, s.look.e, s.look.z, s.v0, s.sigma, start)
        return eqx.tree_at(lambda s: s.look, s, look)

    def step(s: State) -> State:
        """Take one step of Newton's method."""
        at = s.look
        around, rho = _damped(p, at.z, s.v0, s.sigma)
        factor = system.curved(*V.response(around, rho))
        d = -system.through(factor, at.r)
        e, z = _along(system, p, at, d, s.v0, s.sigma)
        look = _look(system, p, e, z, s.v0, s.sigma, start)
        return eqx.tree_at(lambda s: (s.look, s.steps), s, (look, s.steps + 1))

    look = _look(system, p, e0, z0, anchor, sigma, start)
    none = jnp.int32(0)
    best = Point(look.e, look.v, look.gap)
    first = State(look, anchor, sigma, best, look.decrease, none, none)
    end = jax.lax.while_loop(going, advance, first)
    return end.best, good(end.best.gap, end.decrease), end.steps


def _value(p: Units, e: Array, z: Array) -> Array:
    return jnp.sum(p.V.value(z, p.rho)) + jnp.sum(e * e) / 2


def _damped(p: Units, z: Array, v0: Array, sigma: Array) -> tuple[Array, Array]:
    """Return z and rho of the damped f."""
    return z + sigma * v0, p.rho + sigma


def _look(
    system: AbstractNewton,
    p: Units,
    e: Array,
    z: Array,
    v0: Array,
    sigma: Array,
    start: Array,
) -> Look:
    v = p.V.maximizer(*_damped(p, z, v0, sigma))
    r = e + system.pull(v)
    beyond = jnp.sum(p.V.excess(z, v, p.rho))
    decrease = start - _value(p, e, z)
    return Look(e, z, v, r, beyond, jnp.sum(r * r) / 2, decrease)


def _along(
    system: AbstractNewton, p: Units, at: Look, d: Array, v0: Array, sigma: Array
) -> tuple[Array, Array]:
    """Return e + t d and z there, with t = 1 unless that is beyond the minimum along d.

    The slope <r, d> rises with t: where it is above a share of the first one, a secant goes back. It needs no
    factorisation, and neither a push nor a pull.
    """
    dz = system.push(d)
    fall = -jnp.sum(at.r * d)

    def slope(t: Array) -> Array:
        v = p.V.maximizer(*_damped(p, at.z + t * dz, v0, sigma))
        return jnp.sum((at.e + t * d) * d) + jnp.sum(v * dz)

    def too_far(s: tuple[Array, Array, Array]) -> Array:
        _, along, count = s
        return ~(along <= OVERSHOOT * fall) & (count < CUTS)

    def cut(s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        t, along, count = s
        back = t * fall / (fall + along)
        t = jnp.where(jnp.isfinite(back), back, t / 2)
        return t, slope(t), count + 1

    one = jnp.ones_like(fall)
    t, _, _ = jax.lax.while_loop(too_far, cut, (one, slope(one), jnp.int32(0)))
    e = at.e + t * d
    return e, p.b + system.push(e)
