"""Adaptive prox-linear on many small problems at once: a lane for each, side by side.

    found = run_lanes(static, solver, leaves, queue, limits, lanes)

The steps are those of `ProxLinearAdaptive` (solvers/prox_linear.py), written for arrays in which the lanes
are neighbours: block i of lane s is row i S + s of the arrays (n S, k) of `subproblem.systems.Lanes`. The three
loops of a run (steps, attempts, iterations of the interior point) are one: in every turn each lane takes a few
iterations of its own subproblem, and those whose subproblem is solved accept or reject the step and begin the next
one. No lane waits for another, and a lane whose problem has ended takes the next one from the queue.

Steps with curvature are not taken here: a problem that wants one leaves its lane, and goes on elsewhere.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..cost import Calls
from ..outers.sets import AbstractSet, norms
from ..problem import AbstractProblem, MeanOfLosses
from ..solvers import curvature
from ..solvers.base import AbstractSolver, stationarity
from ..solvers.damping import ACCEPT, TRIES, Damping, share
from ..solvers.prox_linear import ProxLinearAdaptive
from ..subproblem import dual_set, is_dense, target
from ..subproblem.admm import Point, pair
from ..subproblem.certificate import rounding
from ..subproblem.interior import State, advance, first_state, is_going
from ..subproblem.systems import Lanes
from ..types import Params
from .loop import Limits

# Parameters of one problem: the factorisation is written out, number by number.
WIDEST = 8
# Blocks times outputs of one problem: above that, the arrays of a few lanes leave the cache.
MOST_ROWS = 1024
# Numbers in an array of all lanes: about forty such arrays are used in every turn.
NUMBERS = 3200
# Iterations of the interior point between two looks at what is solved: a look costs as much as two.
ITERATIONS = 3


class Static(eqx.Module):
    """How the arrays of a batch make a problem and a start, and which of them have a leading axis."""

    treedef: Any = eqx.field(static=True)
    axes: tuple = eqx.field(static=True)

    def taken(self, leaves: list, index: Array) -> list:
        """Return the arrays of these problems."""
        pairs = zip(leaves, self.axes, strict=True)
        return [x[index] if axis == 0 else x for x, axis in pairs]


def fits(problem: AbstractProblem, w: Params, solver: AbstractSolver) -> bool:
    """Whether problems like this one can have lanes, from shapes and classes alone."""
    if not isinstance(solver, ProxLinearAdaptive):
        return False
    if not isinstance(problem, MeanOfLosses) or problem.split is not None:
        return False
    if problem.penalty is not None:  # a lane knows the sets V alone
        return False
    V, _ = dual_set(problem.outer)
    rows = len(problem) * problem.outputs(w)
    d = sum(x.size for x in jax.tree.leaves(w))
    small = d <= WIDEST and rows <= MOST_ROWS and 2 * d < rows
    known = V.unbounded or V.barrier() is not None
    return small and known and len(problem) > 1 and is_dense(problem, w)


def lanes_for(problem: AbstractProblem, w: Params) -> int:
    """Return how many lanes keep their arrays in the cache."""
    rows = len(problem) * problem.outputs(w)
    return max(16, NUMBERS // rows)


class View(eqx.Module):
    """The expansions of all lanes: c (n S,), u (n S, k), J (d, n, S, k), and the quadratic of each problem: its
    value, gradient and weight.
    """

    c: Array
    u: Array
    J: Array
    offset: Array
    slope: Array
    ridge: Array


def _view(static: Static, V: AbstractSet, leaves: list, w: Array) -> View:
    """Expand every lane at its w (d, S)."""

    def one(leaves: list, w: Array) -> tuple:
        problem, start = static.treedef.unflatten(leaves)
        _, unravel = ravel_pytree(start)
        at = problem.expand(unravel(w))
        n, k, d = at.jacobian.shape
        blocks = (n * k, 1) if V.separable else (n, k)
        c = jnp.repeat(at.c, blocks[0] // n)
        quadratic = curvature.quadratic_at(problem, at.w)
        return c, at.u.reshape(blocks), at.jacobian.reshape(*blocks, d), quadratic

    axes = (list(static.axes), 1)
    c, u, J, (offset, slope, ridge) = jax.vmap(one, in_axes=axes)(leaves, w)
    k = u.shape[-1]
    return View(
        c.T.reshape(-1),
        jnp.swapaxes(u, 0, 1).reshape(-1, k),
        jnp.transpose(J, (3, 1, 0, 2)),
        offset,
        slope.T,
        ridge,
    )


class Sub(eqx.Module):
    """The subproblems of all lanes in the units of the solver (see `subproblem.dense.Scaled`)."""

    system: Lanes
    b: Array
    rho: Array
    tol: Array
    gain: Array
    scale: Array
    total: Array  # kappa and the weight of the quadratic
    size: Array
    state: State | None  # None: V is the whole space, and there is nothing to iterate


def _subproblem(
    V: AbstractSet, rho: Array, view: View, kappa: Array, tol: Array
) -> Sub:
    """Set up min_x sum_i c_i f(u_i + J_i (x - w)) + quadratic(x) + kappa/2 |x - w|^2 in all lanes."""
    total = kappa + view.ridge
    root = jnp.sqrt(total)
    c = view.c
    rho = rho * c
    u = c[:, None] * view.u
    _, n, lanes, _ = view.J.shape
    scaled_J = c.reshape(1, n, lanes, 1) / root[None, None, :, None] * view.J
    plain = Lanes(scaled_J, V.flat, V.separable)
    size = plain.total(jnp.abs(V.value(u, rho))) + jnp.abs(view.offset)
    goal = target(tol, size) / 2
    b = u - plain.push(view.slope / root[None, :])

    unit = jnp.asarray(V.size(), u.dtype)
    anchor = V.scaled(1 / unit).project(jnp.zeros_like(b))
    b = unit * b
    rho = unit**2 * rho
    z = b
    if not V.has_origin:
        z = b - rho[:, None] * anchor - unit**2 * plain.push(plain.pull(anchor))
    if V.flat:  # f(z + t) = f(z) + t: only differences within a block count
        z = z - jnp.mean(z, axis=-1, keepdims=True)
    lengths = norms(z)
    some = plain.total((lengths > 0).astype(b.dtype))
    mean = plain.total(lengths) / jnp.maximum(some, 1)
    scale = jnp.where((mean > 0) & jnp.isfinite(mean), mean, jnp.ones_like(mean))
    gain = unit / jnp.sqrt(scale)

    each = plain.spread(scale)
    b = b / each[:, None]
    rho = rho / each
    system = Lanes(gain[None, None, :, None] * scaled_J, V.flat, V.separable)
    state = None
    barrier = V.scaled(1 / unit).barrier()
    if barrier is not None:
        start = pair(system, barrier, b, rho, -system.pull(anchor), anchor)
        state = first_state(system, barrier, b, rho, start)
    return Sub(system, b, rho, goal / scale, gain, scale, total, size, state)


def _solution(V: AbstractSet, sub: Sub) -> Point:
    """Return what the solver has found; a linear system where V is the whole space."""
    if sub.state is not None:
        return sub.state.best
    h = jnp.where(sub.rho > 0, sub.rho, jnp.ones_like(sub.rho))[:, None]
    h = h * jnp.ones_like(sub.b)
    none = jnp.zeros_like(h)
    factor = sub.system.factor(h, none)
    zero = jnp.zeros((sub.system.At.shape[0], sub.tol.size), h.dtype)
    v, e = sub.system.refined(factor, h, none, zero, sub.b)
    return pair(sub.system, V, sub.b, sub.rho, e, v)


class Trial(eqx.Module):
    """What the subproblems say: x - w and x, v, the model there, its certified gap."""

    moved: Array
    x: Array
    v: Array
    model: Array
    gap: Array


def _trial(V: AbstractSet, rho: Array, view: View, w: Array, sub: Sub) -> Trial:
    """Return x with its certificate, as `subproblem.exact` and `certificate` compute it for one problem."""
    found = _solution(V, sub)
    dtype = found.e.dtype
    eps = jnp.finfo(dtype).eps
    total = sub.total[None, :]
    root = jnp.sqrt(sub.total)[None, :]
    unit = jnp.asarray(V.size(), dtype)
    v = V.project(unit * found.v)
    center = w - view.slope / total
    x = center + found.e * jnp.sqrt(sub.scale)[None, :] / root
    moved = root * (x - w)
    away = root * (x - center)

    system = sub.system
    d, n, _, k = system.At.shape
    gain = sub.gain[None, :]
    u = view.c[:, None] * view.u
    z = u + system.push(moved / gain)
    sizes = Lanes(jnp.abs(system.At), system.flat, system.diagonal)
    spread = sizes.push(jnp.abs(moved) / gain)
    z_error = rounding(d, dtype) * (jnp.abs(u) + spread)
    # |B|'|v| has a norm of at most the sum of its entries.
    turn = rounding(n * k, dtype) * jnp.sum(sizes.pull(jnp.abs(v)) / gain, axis=0)
    blur = 2 * eps * (_length(root * x) + _length(root * center)) + turn
    rest = _length(away + system.pull(v) / gain)
    c_rho = rho * view.c
    gap = system.total(V.excess(z, v, c_rho)) + rest**2 / 2
    error = system.total(V.drift(z, v, c_rho, z_error)) + blur * (rest + blur / 2)
    gap = gap + error + n * k * jnp.finfo(dtype).tiny
    offset = view.offset - jnp.sum(view.slope**2 / total, axis=0) / 2
    model = system.total(V.value(z, c_rho)) + system.square(away) / 2 + offset
    gap = jnp.where(jnp.isfinite(gap), gap, jnp.inf)
    return Trial(x - w, x, v, model, gap)


def _length(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x, axis=0))


class Found(eqx.Module):
    """What is known of each problem of the batch: the iterate, F there and at the start, kappa, the steps, the
    evaluations of F beyond the price of a step, the measure, the gap, whether no step helped, and whether it should
    go on with curvature.
    """

    w: Array
    value: Array
    first: Array
    kappa: Array
    steps: Array
    values: Array
    measure: Array
    gap: Array
    stalled: Array
    wants_curvature: Array


class Run(eqx.Module):
    """The lanes: which problem each has, where it stands, and its subproblem."""

    index: Array
    live: Array
    fresh: Array  # the start has not been looked at yet
    w: Array
    value: Array
    first: Array
    kappa: Array  # at the begin of the step; the damping grows with every attempt
    damping: Damping
    steps: Array
    tries: Array
    values: Array
    view: View
    sub: Sub
    v: Array  # dual variables of the last step, its decrease, and the slow steps in a row
    decrease: Array
    slow: Array
    found: Found
    following: Array  # the next problem of the queue


class Lane(eqx.Module):
    """What all lanes share, and does not change."""

    static: Static
    solver: ProxLinearAdaptive
    leaves: list
    limits: Limits
    V: AbstractSet
    rho: Array
    starts: Array  # (B, d), or (1, d) where all start at the same w

    def start_of(self, index: Array) -> Array:
        if self.starts.shape[0] == 1:
            return jnp.broadcast_to(self.starts.T, (self.starts.shape[1], index.size))
        return self.starts[index].T

    def look(self, index: Array, w: Array) -> View:
        return _view(self.static, self.V, self.static.taken(self.leaves, index), w)

    def value(self, view: View) -> Array:
        """Return F in every lane."""
        lanes = view.offset.size
        each = self.V.value(view.c[:, None] * view.u, self.rho * view.c)
        return jnp.sum(each.reshape(-1, lanes), axis=0) + view.offset

    def first_kappa(self, view: View, value: Array) -> Array:
        """Return |g|^2 / F, g in dF."""
        V = self.V
        v = V.maximizer(view.u, jnp.broadcast_to(self.rho, view.c.shape))
        weighted = view.c[:, None] * v
        system = Lanes(view.J, V.flat, V.separable)
        g = system.pull(weighted) + view.slope
        square = jnp.sum(g * g, axis=0)
        size = jnp.maximum(jnp.abs(value), jnp.finfo(value.dtype).tiny ** 0.5)
        return jnp.where(square > 0, square / size, jnp.ones_like(size))


def _shared(
    static: Static, solver: ProxLinearAdaptive, leaves: list, limits: Limits
) -> Lane:
    problem, _ = _first_problem(static, leaves)
    V, rho = dual_set(problem.outer)
    w_leaves, w_axes = _starts(static, leaves)
    dtype = jnp.result_type(*w_leaves)
    if any(axis == 0 for axis in w_axes):
        count = next(
            x.shape[0] for x, a in zip(w_leaves, w_axes, strict=True) if a == 0
        )
        rows = [
            x if a == 0 else jnp.broadcast_to(x[None], (count, *x.shape))
            for x, a in zip(w_leaves, w_axes, strict=True)
        ]
        starts = jnp.concatenate([x.reshape(count, -1) for x in rows], axis=1)
    else:
        starts = jnp.concatenate([x.reshape(1, -1) for x in w_leaves], axis=1)
    return Lane(
        static, solver, leaves, limits, V, jnp.asarray(rho).astype(dtype), starts
    )


def _first_problem(static: Static, leaves: list) -> tuple[AbstractProblem, Params]:
    pairs = zip(leaves, static.axes, strict=True)
    return static.treedef.unflatten([x[0] if axis == 0 else x for x, axis in pairs])


def _starts(static: Static, leaves: list) -> tuple[list, list]:
    """Return the arrays of w and their axes: they are the last ones."""
    _, w = _first_problem(static, leaves)
    count = len(jax.tree.leaves(w))
    return leaves[-count:], list(static.axes[-count:])


def begin(
    static: Static,
    solver: ProxLinearAdaptive,
    leaves: list,
    queue: Array,
    lanes: int,
    limits: Limits,
) -> Run:
    """Give each lane a problem of the queue (first, last + 1); nothing is looked at yet."""
    shared = _shared(static, solver, leaves, limits)
    first, end = queue[0], queue[1]
    index = jnp.minimum(first + jnp.arange(lanes, dtype=jnp.int32), end - 1)
    live = first + jnp.arange(lanes, dtype=jnp.int32) < end
    w = shared.start_of(index)
    view = shared.look(index, w)
    value = shared.value(view)
    kappa = shared.first_kappa(view, value)
    none = jnp.zeros(lanes, jnp.int32)
    sub = _subproblem(shared.V, shared.rho, view, kappa, solver.model.tol)
    damping = Damping(kappa, kappa, jnp.zeros(lanes, bool), jnp.ones_like(kappa))
    return Run(
        index=index,
        live=live,
        fresh=jnp.zeros(lanes, bool),
        w=w,
        value=value,
        first=value,
        kappa=kappa,
        damping=damping,
        steps=none,
        tries=none,
        values=none,
        view=view,
        sub=sub,
        v=jnp.zeros_like(view.u),
        decrease=jnp.full_like(value, jnp.inf),
        slow=none,
        found=_nothing(shared, value.dtype),
        following=first + lanes,
    )


def _nothing(shared: Lane, dtype: Any) -> Found:
    pairs = zip(shared.leaves, shared.static.axes, strict=True)
    count = next(x.shape[0] for x, axis in pairs if axis == 0)
    numbers = jnp.zeros(count, dtype)
    whole = jnp.zeros(count, jnp.int32)
    no = jnp.zeros(count, bool)
    w = jnp.zeros((count, shared.starts.shape[1]), dtype)
    far = jnp.full(count, jnp.inf, dtype)
    return Found(w, numbers, numbers, numbers, whole, whole, far, numbers, no, no)


def turn(
    static: Static,
    solver: ProxLinearAdaptive,
    leaves: list,
    queue: Array,
    limits: Limits,
    run: Run,
    turns: Array,
) -> Run:
    """Take so many turns, or until all lanes are done."""
    shared = _shared(static, solver, leaves, limits)

    def going(carry: tuple[Array, Run]) -> Array:
        count, run = carry
        return (count < turns) & jnp.any(run.live)

    def body(carry: tuple[Array, Run]) -> tuple[Array, Run]:
        count, run = carry
        return count + 1, _finish(shared, queue[1], _iterate(shared, run))

    return jax.lax.while_loop(going, body, (jnp.int32(0), run))[1]


def _iterate(shared: Lane, run: Run) -> Run:
    """Take a few iterations of the interior point in all lanes; a solved one may go on, as the best is kept."""
    sub = run.sub
    if sub.state is None:
        return run
    V = shared.V.scaled(1 / jnp.asarray(shared.V.size(), sub.b.dtype)).barrier()
    assert V is not None
    state = jax.lax.fori_loop(
        0,
        ITERATIONS,
        lambda _, s: advance(sub.system, V, sub.b, sub.rho, s),
        sub.state,
    )
    return eqx.tree_at(lambda run: run.sub.state, run, state)


def _finish(shared: Lane, end: Array, run: Run) -> Run:
    """Where a subproblem is solved, accept or reject its step, and begin the next one."""
    V = shared.V
    solver = shared.solver
    limits = shared.limits
    sub = run.sub
    solved = jnp.ones_like(run.live)
    if sub.state is not None:
        solved = ~is_going(sub.state, sub.tol)
    active = run.live & solved & ~run.fresh
    trial = _trial(V, shared.rho, run.view, run.w, sub)

    begin = shared.start_of(run.index)
    look = shared.look(run.index, jnp.where(run.fresh[None, :], begin, trial.x))
    value = shared.value(look)

    # The same rules as in solvers/damping.py and ProxLinearAdaptive.step.
    ratio = share(value, trial.model, sub.size, run.value, run.first)
    tries = run.tries + 1
    enough = tries >= TRIES
    taken = active & ((ratio >= ACCEPT) | enough)
    rejected = active & ~taken
    keep = taken & (value <= run.value)
    length = _length(trial.moved)
    stalled = ~(value <= run.value) | enough | (length == 0)
    measure = stationarity(run.damping.kappa * length, run.kappa, sub.size)
    steps = run.steps + 1
    values = run.values + 1

    # The same rules as in curvature.recall and curvature.plan.
    decrease = run.value - value
    slow = jnp.zeros_like(run.slow)
    wants_curvature = jnp.zeros_like(taken)
    problem, w_like = _first_problem(shared.static, shared.leaves)
    if curvature.remember(problem, w_like) is not None:
        counts = (run.view.c > 0)[:, None]
        lanes = run.index.size
        free = V.free(trial.v) & counts
        differ = jnp.any(free != (V.free(run.v) & counts), axis=-1)
        same = ~jnp.any(differ.reshape(-1, lanes), axis=0)
        steady = same & (decrease > curvature.SLOW * run.decrease)
        slow = jnp.where(steady, run.slow + 1, 0)
        dimension = _face_dimension(V, trial.v, free, lanes)
        left = run.w.shape[0] - dimension
        wants_curvature = curvature.pays(problem, w_like, slow, left, value.dtype)

    over = steps >= limits.steps
    over |= measure <= limits.tol.astype(measure.dtype)
    over |= stalled & limits.stalled
    prices = solver.prices(problem, w_like)
    passes = prices.passes(steps, Calls(value=values), len(problem))
    over |= passes * (1 + 1e-6) >= limits.passes.astype(passes.dtype)
    leaves_lane = taken & (over | wants_curvature)

    w = jnp.where(keep[None, :], trial.x, run.w)
    least = jnp.where(keep, value, run.value)
    lowered = run.damping.lowered(ratio)
    raised = run.damping.raised()
    found = _written(
        run.found,
        jnp.where(leaves_lane, run.index, run.found.value.size),
        Found(
            w.T,
            least,
            run.first,
            lowered.kappa,
            steps,
            values,
            measure,
            trial.gap,
            stalled,
            wants_curvature & ~over,
        ),
    )

    # Lanes whose problem has left take the next one.
    order = jnp.cumsum(leaves_lane.astype(jnp.int32)) - 1
    following = run.following + order
    index = jnp.where(leaves_lane, jnp.minimum(following, end - 1), run.index)
    live = run.live & ~(leaves_lane & (following >= end))
    fresh = leaves_lane

    # A fresh lane has been looked at for the first time.
    began = run.fresh
    kappa = jnp.where(taken, lowered.kappa, run.kappa)
    kappa = jnp.where(began, shared.first_kappa(look, value), kappa)
    one = jnp.ones_like(kappa)
    now = Damping(
        jnp.where(rejected, raised.kappa, jnp.where(active | began, kappa, run.damping.kappa)),
        jnp.where(rejected, raised.tau, jnp.where(active | began, kappa, run.damping.tau)),
        run.damping.curved,
        jnp.where(rejected, raised.growth, jnp.where(active | began, one, run.damping.growth)),
    )  # fmt: skip
    d = run.w.shape[0]
    view = _pick(keep | began, d, look, run.view)
    new_sub = _subproblem(V, shared.rho, view, now.kappa, solver.model.tol)
    of_block = jnp.tile(taken, sub.system.blocks())[:, None]
    return Run(
        index=index,
        live=live,
        fresh=fresh,
        w=jnp.where(began[None, :], begin, w),
        value=jnp.where(began, value, jnp.where(taken, least, run.value)),
        first=jnp.where(began, value, run.first),
        kappa=kappa,
        damping=now,
        steps=jnp.where(began, 0, jnp.where(taken, steps, run.steps)),
        tries=jnp.where(taken | began, 0, jnp.where(active, tries, run.tries)),
        values=jnp.where(began, 0, jnp.where(active, values, run.values)),
        view=view,
        sub=_pick(active | began, d, new_sub, sub),
        v=jnp.where(of_block, trial.v, run.v),
        decrease=jnp.where(began, jnp.inf, jnp.where(taken, decrease, run.decrease)),
        slow=jnp.where(began, 0, jnp.where(taken, slow, run.slow)),
        found=found,
        following=run.following + jnp.sum(leaves_lane, dtype=jnp.int32),
    )


def _face_dimension(V: AbstractSet, v: Array, free: Array, lanes: int) -> Array:
    """Return the sum of the dimensions of the faces in each lane."""
    each = jax.vmap(lambda v, free: V.face_dimension(v[None], free[None]))(v, free)
    return jnp.sum(each.reshape(-1, lanes), axis=0)


def _pick(which: Array, d: int, new: Any, old: Any) -> Any:
    """Return the new arrays in these lanes, whatever axis of theirs has the lanes."""
    lanes = which.size

    def one(x: Array, y: Array) -> Array:
        if x.ndim == 4:  # (d, n, S, k)
            mask = which[None, None, :, None]
        elif x.shape == (d, lanes):
            mask = which[None, :]
        else:  # (n S, k), (n S,) or (S,)
            mask = jnp.tile(which, x.shape[0] // lanes)
            mask = mask.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(mask, x, y)

    return jax.tree.map(one, new, old)


def _written(found: Found, index: Array, now: Found) -> Found:
    """Write the lanes that ended into what is known of all problems; an index out of range writes nothing."""
    return jax.tree.map(lambda all, x: all.at[index].set(x, mode="drop"), found, now)
