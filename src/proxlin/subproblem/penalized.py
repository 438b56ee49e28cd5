"""A subproblem with a penalty g: an interior point on its optimality conditions, or first-order steps.

    P(x) = sum_i f_i(b_i + B_i (x - center)) + weight/2 |x - center|^2 + g(x)
    x(v) = argmin_x <B'v, x> + weight/2 |x - center|^2 + g(x) = prox_{g / weight}(center - B'v / weight)

    gap(x, v) = sum_i excess_i + [g(x) - g(x*) - <s, x - x*>] + weight/2 |x - x*|^2,     x* = x(v)

with s = weight (center - B'v / weight - x*) in dg(x*). All three terms are at least 0, for any x and any v
in V^n. Entries of x* that sit at a bound or at a kink of g are copied to x: bounds and zeros are exact.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from .. import trees
from ..outers.sets import AbstractBarrier, AbstractSet, OpenSpace, norms
from ..penalties import AbstractTerm, Penalties
from ..types import Params
from .dense import Matrix, Scaled, Units, pull, push
from .interior import BOUNDARY, IDLE, PROGRESS, STEPS
from .structured import Weighted
from .systems import AbstractColumns, Columns, Rows, System

Terms = list[tuple[slice, AbstractTerm]]


class Pair(eqx.Module):
    """A point x, dual variables v, and their gap."""

    x: Any
    v: Array
    gap: Array


def better(new: Pair, old: Pair) -> Pair:
    """Return the one with the smaller gap."""
    smaller = new.gap < old.gap
    return jax.tree.map(lambda a, b: jnp.where(smaller, a, b), new, old)


def minimize_penalized(
    B: Matrix | Weighted,
    b: Array,
    rho: Array,
    weight: Array,
    center: Array,
    V: AbstractSet,
    penalty: Penalties,
    unravel: Callable[[Array], Params],
    tol: Array,
    max_iterations: int | Array,
) -> tuple[Pair, Array]:
    """Return a pair with gap <= tol and the iterations, for B over sqrt(weight); center and x are
    raveled. Where B has a structure, each term of the penalty is of single entries.
    """
    n, k = b.shape
    root = jnp.sqrt(weight)
    barrier = OpenSpace() if V.unbounded else V.barrier()
    one = jnp.ones((), b.dtype)
    if barrier is None or penalty.terms(unravel(center), one, one) is None:
        found = minimize_by_prox(
            lambda x: B.push(root * ravel_pytree(x)[0]),
            lambda v: unravel(root * B.pull(v)),
            b,
            rho,
            weight,
            unravel(center),
            V,
            penalty,
            tol,
            max_iterations,
        )
        pair = found.pair
        return Pair(ravel_pytree(pair.x)[0], pair.v, pair.gap), found.steps
    size = jnp.asarray(V.size(), b.dtype)
    length = _length(V, b, rho)
    p, A = _in_units(B, b, rho, V, length)
    inner = OpenSpace() if V.unbounded else p.V.barrier()
    assert inner is not None
    unit = jnp.sqrt(p.scale) / root
    sub = Sub(p, A, inner, penalty, center, unit, weight, unravel)
    pair, steps = interior(sub, tol / p.scale)
    v = pair.v.reshape(n, k) * (length * size)
    if not V.unbounded:
        v = V.project(v)
    return Pair(center + pair.x * unit, v, pair.gap * p.scale), steps


def _in_units(
    B: Matrix | Weighted, b: Array, rho: Array, V: AbstractSet, length: Array
) -> tuple[Units | Scaled, "Dense | Structure"]:
    """Return the problem in the units of the solver, with v in units of `length`, and its map."""
    if isinstance(B, Weighted):
        scaled = Weighted(B.at, length * B.scale)
        gram = lambda v: scaled.push(scaled.pull(v))
        units = Units(length * b, length**2 * rho, V, gram)
        return units, Structure(B.at.system(units.gain * scaled.scale, V))
    n, k, d = B.B.shape
    blocks = (n * k, 1) if V.separable else (n, k)
    p = Scaled(
        length * B.B.reshape(*blocks, d),
        length * b.reshape(blocks),
        length**2 * jnp.repeat(rho, blocks[0] // n),
        V,
    )
    return p, Dense(p.B, p.gain)


def _length(V: AbstractSet, b: Array, rho: Array) -> Array:
    """Return the unit of v where V has no size of its own: the mean |b_i| / rho_i; else 1."""
    if not V.unbounded:
        return jnp.ones((), b.dtype)
    counts = rho > 0
    each = jnp.where(counts, norms(b) / jnp.where(counts, rho, jnp.ones_like(rho)), 0)
    mean = jnp.sum(each) / jnp.maximum(jnp.sum(each > 0, dtype=b.dtype), 1)
    return jnp.where((mean > 0) & jnp.isfinite(mean), mean, jnp.ones_like(mean))


def snapped(
    penalty: Penalties,
    unravel: Callable[[Array], Params],
    weight: Array,
    x: Array,
    y: Array,
) -> Array:
    """Return x within the bounds, with the entries of prox(y) that sit at a bound or a kink of g."""
    best = penalty.prox(unravel(y), 1 / weight)
    return ravel_pytree(penalty.nearest(penalty.snapped(unravel(x), best)))[0]


# --------------------------------------------------------------------------------- an interior point


Turn = Callable[[Array], Array]


class Dense(eqx.Module):
    """The map A = gain B of a matrix."""

    B: Array
    gain: Array

    def push(self, e: Array) -> Array:
        return self.gain * push(self.B, e)

    def pull(self, v: Array) -> Array:
        return self.gain * pull(self.B, v)

    def turned(self, turn: Turn, like: Array, V: AbstractSet) -> System:
        """Return the system of A T."""
        n, k, d = self.B.shape
        rank = n * (k - 1) if V.flat else n * k
        form = Columns if 2 * d < rank else Rows
        return form(turn(self.B), self.gain, V)


class Structure(eqx.Module):
    """The map A of a Jacobian with a structure, which a diagonal T keeps."""

    system: AbstractColumns

    def push(self, e: Array) -> Array:
        return self.system.push(e)

    def pull(self, v: Array) -> Array:
        return self.system.pull(v)

    def turned(self, turn: Turn, like: Array, V: AbstractSet) -> System:
        """Return the system of A T."""
        return self.system.stretched(turn(jnp.ones_like(like)))


class Sub(eqx.Module):
    """The subproblem in the units of the solver: x = center + unit e, and P is divided by p.scale."""

    p: Units | Scaled
    A: Dense | Structure
    V: AbstractBarrier
    penalty: Penalties
    center: Array
    unit: Array
    weight: Array
    unravel: Callable[[Array], Params] = eqx.field(static=True)

    def terms(self) -> Terms:
        """Return the terms of g; there are some, or nobody would be here."""
        center = self.unravel(self.center)
        found = self.penalty.terms(center, self.unit, self.p.scale)
        assert found is not None
        return found

    def judged(self, e: Array, v: Array, pulled: Array) -> Pair:
        """Return e, snapped to the kinks of x(v), with its gap."""
        y = self.center - self.unit * pulled
        best = self.penalty.prox(self.unravel(y), 1 / self.weight)
        x = self.penalty.snapped(self.unravel(self.center + self.unit * e), best)
        at_kink, _ = ravel_pytree(self.penalty.kinks(best))
        flat_best, _ = ravel_pytree(best)
        best_e = (flat_best - self.center) / self.unit
        e = jnp.where(at_kink, best_e, e)
        slope = self.unravel(self.weight * (y - flat_best))
        beyond = self.penalty.excess(x, best, slope) / self.p.scale
        z = self.p.b + self.A.push(e)
        far = jnp.sum((e - best_e) ** 2) / 2
        gap = jnp.sum(self.V.excess(z, v, self.p.rho)) + beyond + far
        return Pair(e, v, jnp.where(jnp.isfinite(gap), gap, jnp.inf))


class State(eqx.Module):
    """The iterate: e, v, the multipliers of V and the walks of the terms; r = e + A'v + s and u = b +
    A e; the best pair, the least gap and the least mean product after the start, and counters.

    The start may have a small gap by chance, such as at narrow bounds, which the first steps do not reach: what is
    progress is told without it. Products below the least gap are none: the gap is then rounding, which they do not take
    away.
    """

    e: Array
    v: Array
    y: Any
    walks: list
    r: Array
    u: Array
    best: Pair
    least: tuple[Array, Array]
    steps: Array
    idle: Array


def interior(sub: Sub, tol: Array) -> tuple[Pair, Array]:
    """Return the best pair and the iterations of Mehrotra's predictor and corrector."""
    end = jax.lax.while_loop(
        lambda s: (s.best.gap > tol) & (s.steps < STEPS) & (s.idle < IDLE),
        lambda s: _advance(sub, s),
        _first(sub),
    )
    return end.best, end.steps


def _first(sub: Sub) -> State:
    """Begin at the centre of V, and near the e that belongs to it, inside of the bounds."""
    p = sub.p
    v = sub.V.center(p.b)
    e = -sub.A.pull(v)
    # |e|^2 is of the size of P, which is about n: this much for each entry
    room = jnp.asarray((p.b.size / e.size) ** 0.5 / 10, e.dtype)
    for part, term in sub.terms():
        e = e.at[part].set(term.inside(e[part], room))
    u = p.b + sub.A.push(e)
    z = u - p.rho[:, None] * v
    rho = p.rho if sub.V.unbounded else jnp.zeros_like(p.rho)
    left = jnp.mean(sub.V.excess(z, v, rho))
    margin = jnp.maximum(left, jnp.finfo(e.dtype).eps)
    y = sub.V.multipliers(v, z, jnp.broadcast_to(margin, p.rho.shape))
    wanted = -e - sub.A.pull(v)  # the slope of g that would leave r = 0
    walks = [term.start(e[part], wanted[part], margin) for part, term in sub.terms()]
    none = jnp.int32(0)
    far = jnp.full((), jnp.inf, e.dtype)
    start = State(e, v, y, walks, e, u, Pair(e, v, far), (far, far), none, none)
    return eqx.tree_at(lambda s: s.least, _looked(sub, start), (far, far))


def _looked(sub: Sub, s: State) -> State:
    """Fill in r, u and the best pair."""
    pulled = sub.A.pull(s.v)
    r = s.e + pulled
    for (part, term), walk in zip(sub.terms(), s.walks, strict=True):
        r = r.at[part].add(term.slope(walk))
    u = sub.p.b + sub.A.push(s.e)
    pair = sub.judged(s.e, s.v, pulled)
    total, count = _products(sub, s.v, s.y, s.walks)
    gap, product = s.least
    nearer = (total > gap) & (total / count < PROGRESS * product)
    progress = (pair.gap < PROGRESS * gap) | nearer
    idle = jnp.where(progress, 0, s.idle + 1)
    finite = jnp.all(jnp.isfinite(s.e)) & jnp.all(jnp.isfinite(s.v))
    return State(
        s.e,
        s.v,
        s.y,
        s.walks,
        r,
        u,
        better(pair, s.best),
        (jnp.minimum(pair.gap, gap), jnp.minimum(total / count, product)),
        s.steps,
        jnp.where(finite, idle, IDLE),
    )


class Direction(eqx.Module):
    """A step of e, v, the multipliers and the walks."""

    e: Array
    v: Array
    y: Any
    walks: list


def _direction(sub: Sub, s: State) -> Direction:
    """Return the step: a predictor, then the target sigma mu, sigma = (mu_affine / mu)^3, with its
    second order.
    """
    V = sub.V
    p = sub.p
    terms = sub.terms()
    W = V.scaling(s.v, s.y)
    h, g = V.curvature(W, s.y)
    h = h + p.rho[:, None]
    h = jnp.where(h > 0, h, jnp.ones_like(h))  # blocks of weight 0 in all of space
    scalings = [
        term.scaling(s.e[part], walk)
        for (part, term), walk in zip(terms, s.walks, strict=True)
    ]

    def turn(x: Array) -> Array:
        for (part, term), scaling in zip(terms, scalings, strict=True):
            x = x.at[..., part].set(term.turn(scaling, x[..., part]))
        return x

    system = sub.A.turned(turn, s.e, V)
    factor = system.factor(h, g)
    slip = s.u - p.rho[:, None] * s.v - V.normal(s.y)
    total, count = _products(sub, s.v, s.y, s.walks)

    def newton(i: Any, found: Direction) -> Direction:
        step = jnp.minimum(1.0, _reach(sub, s, found))
        ahead = _along(step, (s.v, s.y, s.walks), (found.v, found.y, found.walks))
        left, _ = _products(sub, *ahead)
        sigma = jnp.where(i == 0, 0.0, jnp.clip(left / total, 0.0, 1.0) ** 3)
        mu = sigma * total / count
        aim = V.aim(W, s.y, jnp.broadcast_to(mu, p.rho.shape), found.v, found.y)
        r = s.r
        aims = []
        parts = zip(terms, scalings, s.walks, found.walks, strict=True)
        for (part, term), scaling, walk, move in parts:
            of_term, more = term.aim(scaling, walk, mu, move)
            aims.append(of_term)
            r = r.at[part].add(more)
        dv, turned = system.refined(factor, h, g, turn(r), V.constant(W, aim) + slip)
        de = turn(turned)
        walks = [
            term.follow(scaling, walk, of_term, de[part])
            for (part, term), scaling, walk, of_term in zip(
                terms, scalings, s.walks, aims, strict=True
            )
        ]
        return Direction(de, dv, V.follow(W, s.y, aim, dv), walks)

    nothing = jax.tree.map(jnp.zeros_like, Direction(s.e, s.v, s.y, s.walks))
    # The predictor is a turn of the loop too, so that the system is compiled once.
    return jax.lax.fori_loop(0, 2, newton, nothing)


def _products(sub: Sub, v: Array, y: Any, walks: list) -> tuple[Array, Array]:
    """Return the sum of all slacks times multipliers, and their number."""
    each, count = sub.V.complementarity(v, y)
    total = jnp.sum(each)
    number = jnp.asarray(count * each.size, total.dtype)
    for (_, term), walk in zip(sub.terms(), walks, strict=True):
        more, some = term.products(walk)
        total = total + more
        number = number + some.astype(total.dtype)
    tiny = jnp.finfo(total.dtype).tiny
    return jnp.maximum(total, tiny), jnp.maximum(number, 1)


def _reach(sub: Sub, s: State, step: Direction) -> Array:
    """Return the longest step that stays inside of V and of the bounds."""
    reach = jnp.min(sub.V.reach(s.v, step.v, s.y, step.y))
    for (_, term), walk, move in zip(sub.terms(), s.walks, step.walks, strict=True):
        reach = jnp.minimum(reach, term.reach(walk, move))
    return reach


def _along(step: Array, x: Any, dx: Any) -> Any:
    return jax.tree.map(lambda x, dx: x + step * dx, x, dx)


def _advance(sub: Sub, s: State) -> State:
    """Take one step, BOUNDARY of the way to the boundary at most. The gap decides what is kept."""
    move = _direction(sub, s)
    step = jnp.minimum(1.0, BOUNDARY * _reach(sub, s, move))
    e, v, y, walks = _along(
        step, (s.e, s.v, s.y, s.walks), (move.e, move.v, move.y, move.walks)
    )
    moved = State(e, v, y, walks, s.r, s.u, s.best, s.least, s.steps + 1, s.idle)
    return _looked(sub, moved)


# --------------------------------------------------------------------------------- first-order steps


class Ray(eqx.Module):
    """Dual variables v with B'v."""

    v: Array
    pulled: Any


class Walker(eqx.Module):
    """The last two rays, the momentum, the smoothness found so far, the best pair, and counters."""

    old: Ray
    new: Ray
    momentum: Array
    smoothness: Array
    best: Pair
    steps: Array
    pulls: Array


class Attempt(eqx.Module):
    """A step: its end, the smoothness that it took and the one that it showed to be needed, and the
    pulls.
    """

    ray: Ray
    smoothness: Array
    needed: Array
    pulls: Array


class Found(eqx.Module):
    """The best pair, the steps, the calls of push and pull, and an estimate of |B|."""

    pair: Pair
    steps: Array
    pushes: Array
    pulls: Array
    spread: Array


def minimize_by_prox(
    push: Callable[[Any], Array],
    pull: Callable[[Array], Any],
    b: Array,
    rho: Array,
    weight: Array,
    center: Params,
    V: AbstractSet,
    penalty: Penalties,
    tol: Array,
    max_iterations: int | Array,
) -> Found:
    """Return the best pair of accelerated projected gradient on the dual, as in `matrix_free.py`:

        v+ = project(y - (rho y - z) / smoothness),     z = b + B (x(y) - center)

    B'y is a combination of what is known, but x(y) = prox(center - B'y / weight) is not: each step
    calls push once at x(y), and pull once or more at v+. The pair (x(y), v+) is judged for free.
    """
    tree = trees

    def answer(pulled: Any) -> tuple[Any, Any]:
        """Return x(v) for B'v, and center - B'v / weight."""
        y = tree.add_scale(center, -1 / weight, pulled)
        return penalty.prox(y, 1 / weight), y

    def judged(x: Any, z: Array, ray: Ray) -> Pair:
        best, y = answer(ray.pulled)
        slope = tree.scale(weight, tree.sub(y, best))
        far = tree.sub(x, best)
        gap = jnp.sum(V.excess(z, ray.v, rho)) + weight / 2 * tree.vdot(far, far)
        return Pair(x, ray.v, gap + penalty.excess(x, best, slope))

    def curvature(v: Array, pulled: Any) -> Array:
        """(|B'v|^2 / weight + sum rho_i |v_i|^2) / |v|^2."""
        square = jnp.sum(v * v)
        energy = tree.vdot(pulled, pulled) / weight + jnp.sum(rho[:, None] * v * v)
        safe = jnp.where(square > 0, square, jnp.ones_like(square))
        return jnp.where(square > 0, energy / safe, 0 * square)

    def attempt_from(y: Ray, z: Array, last: Attempt) -> Attempt:
        more = jnp.maximum(1.1 * last.smoothness, 1.05 * last.needed)
        smoothness = jnp.where(last.needed > last.smoothness, more, last.smoothness)
        v = V.project(y.v + (z - rho[:, None] * y.v) / smoothness)
        ray = Ray(v, pull(v))
        needed = curvature(v - y.v, tree.sub(ray.pulled, y.pulled))
        return Attempt(ray, smoothness, needed, last.pulls + 1)

    def body(s: Walker) -> Walker:
        momentum = (1 + jnp.sqrt(1 + 4 * s.momentum**2)) / 2
        beta = (s.momentum - 1) / momentum
        y = jax.tree.map(lambda new, old: new + beta * (new - old), s.new, s.old)
        x, _ = answer(y.pulled)
        z = b + push(tree.sub(x, center))
        none = Attempt(y, s.smoothness, jnp.zeros_like(s.smoothness), s.pulls)
        short = lambda a: a.needed > 1.01 * a.smoothness  # by more than rounding
        found = jax.lax.while_loop(
            short, lambda a: attempt_from(y, z, a), attempt_from(y, z, none)
        )
        v = found.ray.v
        best = better(judged(x, z, found.ray), s.best)
        restart = jnp.sum((y.v - v) * (v - s.new.v)) > 0
        momentum = jnp.where(restart, jnp.ones_like(momentum), momentum)
        return Walker(
            s.new, found.ray, momentum, found.smoothness, best, s.steps + 1, found.pulls
        )

    v = V.project(jnp.zeros_like(b))
    start = Ray(v, pull(v))
    x, _ = answer(start.pulled)
    z = b + push(tree.sub(x, center))
    probe = jnp.where(jnp.any(b != 0), b, jnp.ones_like(b))
    tiny = jnp.finfo(b.dtype).tiny ** 0.5
    smoothness = jnp.maximum(curvature(probe, pull(probe)), tiny)
    one = jnp.ones((), b.dtype)
    first = judged(x, z, start)
    state = Walker(start, start, one, smoothness, first, jnp.int32(0), jnp.int32(2))
    end = jax.lax.while_loop(
        lambda s: (s.best.gap > tol) & (s.steps < max_iterations), body, state
    )
    spread = jnp.sqrt(end.smoothness * weight)
    return Found(end.best, end.steps, end.steps + 1, end.pulls, spread)
