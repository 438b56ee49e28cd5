"""Adaptive prox-linear on many small problems at once: a lane for each, side by side.

    found = run_lanes(static, solver, leaves, queue, limits, lanes)

The steps are those of `ProxLinearAdaptive` (solvers/prox_linear.py), written for arrays in which the lanes
are the last axis; but kappa falls faster where phi is linear, as in many fits of one table (`LEAP`). The three loops of
a run (steps, attempts, iterations of `subproblem/newton.py`) are one: in every turn each lane takes a few iterations of
its own subproblem, and those whose subproblem is solved accept or reject the step and begin the next one. No lane waits
for another. A lane whose problem has ended takes the next one of the queue.

Steps with curvature are not taken here: a problem that wants one leaves its lane, and goes on elsewhere. So does one
whose last subproblem is not solved to its goal: it leaves before that step, which is taken elsewhere.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..cost import Calls
from ..outers.sets import AbstractSet
from ..problem import AbstractProblem, MeanOfLosses
from ..solvers import curvature
from ..solvers.base import AbstractSolver, stationarity_of_step
from ..solvers.damping import ACCEPT, TRIES, Damping, noise_of, share
from ..solvers.prox_linear import ProxLinearAdaptive
from ..subproblem import dual_set, is_dense, target
from ..subproblem.certificate import rounding
from ..subproblem.newton import (
    MOST,
    AbstractJacobians,
    Lanes,
    Narrow,
    State,
    Wide,
    advance,
    first_state,
    sums,
)
from ..types import Params
from .loop import Limits

# Parameters of one problem: up to NARROW of them, its matrices are written out, number by number.
NARROW = 8
WIDEST = 48
# Blocks times outputs of one problem: above that, the arrays of a few lanes leave the cache.
MOST_ROWS = 1024
# Numbers in an array of all lanes: a few of them, and loops that are not all overhead.
NUMBERS = 4800
# A model that is off by at most this share of the decrease that it predicts is exact.
EXACT = 1e-6
# of kappa, after an exact model
LEAP = 1e-3
# Iterations of a linear system.
LINEAR = 3
# Iterations between two looks at what is solved.
ITERATIONS = 4


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
    if not isinstance(solver, ProxLinearAdaptive) or solver.sweeps:
        return False
    if not isinstance(problem, MeanOfLosses) or problem.split is not None:
        return False
    if problem.penalty is not None:  # a lane knows the sets V alone
        return False
    V, _ = dual_set(problem.outer)
    rows = len(problem) * problem.outputs(w)
    d = sum(x.size for x in jax.tree.leaves(w))
    small = d <= WIDEST and rows <= MOST_ROWS and 2 * d < rows
    known = V.responds
    return small and known and len(problem) > 1 and is_dense(problem, w)


def lanes_for(problem: AbstractProblem, w: Params) -> int:
    """Return how many lanes keep their arrays in the cache."""
    rows = len(problem) * problem.outputs(w)
    return max(16, NUMBERS // rows)


class View(eqx.Module):
    """The expansions of all lanes, with the weights c (n, S) of the blocks in u (k, n, S) and B, and the quadratic of
    each problem: its value, gradient and weight.
    """

    c: Array
    u: Array
    B: AbstractJacobians
    offset: Array
    slope: Array
    ridge: Array


def _view(static: Static, V: AbstractSet, leaves: list, w: Array) -> View:
    """Expand every lane at its w (d, S)."""

    kind = Narrow if w.shape[0] <= NARROW else Wide

    def one(leaves: list, w: Array) -> tuple[tuple, Array]:
        problem, start = static.treedef.unflatten(leaves)
        _, unravel = ravel_pytree(start)
        at = problem.expand(unravel(w))
        n, k, d = at.jacobian.shape
        blocks = (n * k, 1) if V.separable else (n, k)
        c = jnp.repeat(at.c, blocks[0] // n)
        u = c[:, None] * at.u.reshape(blocks)
        B = c[:, None, None] * at.jacobian.reshape(*blocks, d)
        others = (c, u.T, *curvature.quadratic_at(problem, at.w))
        return others, kind.laid_out(B)

    axes = (list(static.axes), 1)
    of_B = -1 if kind is Narrow else 0
    (c, u, *rest), B = jax.vmap(one, in_axes=axes, out_axes=(-1, of_B))(leaves, w)
    return View(c, u, kind(B), *rest)


class Trial(eqx.Module):
    """What the subproblems say: x - w and x, v, the model there, its certified gap."""

    moved: Array
    x: Array
    v: Array
    model: Array
    gap: Array


def _trial(system: Lanes, offset: Array, w: Array, state: State) -> Trial:
    """Return x with its certificate, as `subproblem.certificate` computes it for one problem."""
    V = system.V
    x = w + state.d
    moved = x - w
    z = system.u + system.B.push(moved)
    # The certificate is that of one v, so v is an array of the state. Computed here, XLA may compute it again in each
    # of its sums, with other roundings of z / sigma, which is large.
    v = system.of_blocks(V.project, state.v)

    dtype = x.dtype
    d = x.shape[0]
    k, n, _ = system.u.shape
    z_error = rounding(d, dtype) * (jnp.abs(system.u) + system.B.push_sizes(moved))
    of_z = system.of_blocks(V.drift, z, v, system.rho, z_error)
    excess = system.of_blocks(V.excess, z, v, system.rho)
    value = system.of_blocks(V.value, z, system.rho)
    pulled, turn = system.B.pull_sizes(v)
    beyond, drift, value = sums([x[None] for x in (excess, of_z, value)])

    weight = system.weight
    proximal = weight[None, :] * moved
    rest = _length(proximal + system.slope + pulled)
    eps = jnp.finfo(dtype).eps
    blur = 2 * eps * (_length(proximal) + _length(system.slope))
    blur = blur + rounding(n * k, dtype) * turn
    error = drift + blur * (rest + blur / 2) / weight
    gap = beyond + rest**2 / (2 * weight) + error + n * k * jnp.finfo(dtype).tiny
    quadratic = jnp.sum((system.slope + proximal / 2) * moved, axis=0)
    model = value + quadratic + offset
    return Trial(moved, x, v, model, jnp.where(jnp.isfinite(gap), gap, jnp.inf))


def _length(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x, axis=0))


class Found(eqx.Module):
    """What is known of each problem of the batch: the iterate, F there and at the start, kappa, the steps, the
    evaluations of F beyond the price of a step, the measure, the gap, whether no step helped, and whether it should
    go on elsewhere.
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
    goes_on: Array


class Look(eqx.Module):
    """The expansion of every lane, F there, and its size: the sum of its terms without their signs."""

    view: View
    value: Array
    size: Array


class Run(eqx.Module):
    """The lanes: which problem each has, where it stands, and its subproblem."""

    index: Array
    live: Array
    fresh: Array  # the start has not been looked at yet
    w: Array
    at: Look
    first: Array
    kappa: Array  # at the begin of the step; the damping grows with every attempt
    damping: Damping
    steps: Array
    tries: Array
    values: Array
    state: State
    free: Array  # where the last step had its kinks, its decrease, and the slow steps in a row
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

    def look(self, index: Array, w: Array) -> Look:
        view = _view(self.static, self.V, self.static.taken(self.leaves, index), w)
        none = jnp.zeros_like(view.ridge)
        system = self.system(view, none, none)
        each = system.of_blocks(self.V.value, system.u, system.rho)[None]
        value, size = sums([each, jnp.abs(each)])
        return Look(view, value + view.offset, size + jnp.abs(view.offset))

    def system(self, view: View, kappa: Array, value: Array) -> Lanes:
        """Return min_x sum_i c_i f(u_i + J_i (x - w)) + quadratic(x) + kappa/2 |x - w|^2 in all lanes."""
        rho = self.rho * view.c
        weight = kappa + view.ridge
        return Lanes(
            self.V, view.B, view.u, rho, view.slope, weight, value - view.offset
        )

    def goal(self, at: Look) -> Array:
        """Return the gap that is wanted of a subproblem; the other half is left to rounding."""
        return target(self.solver.model.tol, at.size) / 2

    def subgradient(self, at: Look) -> tuple[Array, Array]:
        """Return dual variables of F in every lane, and kappa = |g|^2 / F for their g in dF."""
        none = jnp.zeros_like(at.value)
        system = self.system(at.view, none, none)
        v = system.of_blocks(self.V.maximizer, system.u, system.rho)
        g = system.B.pull(v) + system.slope
        square = jnp.sum(g * g, axis=0)
        size = jnp.maximum(jnp.abs(at.value), jnp.finfo(v.dtype).tiny ** 0.5)
        return v, jnp.where(square > 0, square / size, jnp.ones_like(size))


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
    at = shared.look(index, w)
    v, kappa = shared.subgradient(at)
    none = jnp.zeros(lanes, jnp.int32)
    no = jnp.zeros(lanes, bool)
    return Run(
        index=index,
        live=live,
        fresh=no,
        w=w,
        at=at,
        first=at.value,
        kappa=kappa,
        damping=Damping(kappa, kappa, no, jnp.ones_like(kappa)),
        steps=none,
        tries=none,
        values=none,
        state=first_state(shared.system(at.view, kappa, at.value), v),
        free=jnp.zeros(v.shape, bool),
        decrease=jnp.full_like(kappa, jnp.inf),
        slow=none,
        found=_nothing(shared, kappa.dtype),
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
    """Take a few iterations in all lanes; those that are solved wait."""
    system = shared.system(run.at.view, run.damping.kappa, run.at.value)
    goal = shared.goal(run.at)

    def going(carry: tuple[Array, State]) -> Array:
        count, state = carry
        waits = state.solved(goal) | ~run.live
        return (count < ITERATIONS) & ~jnp.all(waits)

    def body(carry: tuple[Array, State]) -> tuple[Array, State]:
        count, state = carry
        return count + 1, advance(system, goal, state)

    _, state = jax.lax.while_loop(going, body, (jnp.int32(0), run.state))
    return eqx.tree_at(lambda run: run.state, run, state)


def _finish(shared: Lane, end: Array, run: Run) -> Run:
    """Where a subproblem is solved, accept or reject its step, and begin the next one."""
    solver = shared.solver
    limits = shared.limits
    at = run.at
    state = run.state
    system = shared.system(at.view, run.damping.kappa, at.value)
    broken = ~jnp.isfinite(at.value)
    goal = shared.goal(at)
    solved = state.solved(goal) | broken
    exact = (state.gap <= goal) | broken
    working = run.live & ~run.fresh
    active = working & solved
    # A linear system is as good as it gets after one correction.
    stuck = (
        working & ~solved & (state.count >= (LINEAR if system.V.unbounded else MOST))
    )
    active = active | stuck
    trial = _trial(system, at.view.offset, run.w, state)

    begin = shared.start_of(run.index)
    look = shared.look(run.index, jnp.where(run.fresh[None, :], begin, trial.x))

    # The same rules as in solvers/damping.py and ProxLinearAdaptive.step.
    ratio = share(look.value, trial.model, at.size, at.value, run.first)
    tries = run.tries + 1
    enough = (tries >= TRIES) | broken
    taken = active & ((ratio >= ACCEPT) | enough)
    rejected = active & ~taken
    length = _length(trial.moved)
    stalled = ~(look.value <= at.value) | enough | (length == 0)
    measure = stationarity_of_step(
        run.damping.kappa * length,
        run.kappa,
        at.value - trial.model,
        at.size,
        noise_of(at.size, run.first),
    )
    steps = run.steps + 1
    values = run.values + 1

    # The same rules as in curvature.recall and curvature.plan.
    decrease = at.value - look.value
    slow = jnp.zeros_like(run.slow)
    free = run.free
    wants_curvature = jnp.zeros_like(taken)
    problem, w_like = _first_problem(shared.static, shared.leaves)
    if curvature.remember(problem, w_like) is not None:
        counts = (at.view.c > 0)[None]
        free = system.of_blocks(system.V.free, trial.v) & counts
        same = ~jnp.any(free != run.free, axis=(0, 1))
        steady = same & (decrease > curvature.SLOW * run.decrease)
        slow = jnp.where(steady, run.slow + 1, 0)
        left = run.w.shape[0] - _face_dimension(system, trial.v, free)
        wants_curvature = curvature.pays(problem, w_like, slow, left, decrease.dtype)

    over = steps >= limits.steps
    over |= measure <= limits.tol.astype(measure.dtype)
    over |= stalled & limits.stalled
    prices = solver.prices(problem, w_like)
    passes = prices.passes(steps, Calls(value=values), len(problem))
    over |= passes * (1 + 1e-6) >= limits.passes.astype(passes.dtype)
    # No run ends with a step that was not solved to its goal: such a lane goes on with the same subproblem, or, where
    # that gets no better, leaves before the step, which another solver then takes.
    ends = over | wants_curvature
    early = taken & ends & ~exact & ~stuck
    undone = taken & ends & stuck & (not system.V.unbounded)
    taken = taken & ~early & ~undone
    active = active & ~early & ~undone
    keep = taken & (look.value <= at.value)
    leaves_lane = undone | (taken & ends)

    w = jnp.where(keep[None, :], trial.x, run.w)
    least = jnp.where(keep, look.value, at.value)
    lowered = run.damping.lowered(ratio)
    # Where the model without its proximal term was F, as for a linear phi, kappa has nothing to guard.
    proximal = run.damping.kappa * length**2 / 2
    off = jnp.abs(look.value - (trial.model - proximal))
    is_f = off <= EXACT * (at.value - trial.model)
    lowered_kappa = jnp.where(is_f, LEAP * run.damping.kappa, lowered.kappa)
    raised = run.damping.raised()
    found = _written(
        run.found,
        jnp.where(leaves_lane, run.index, run.found.value.size),
        Found(
            w.T,
            least,
            run.first,
            jnp.where(taken, lowered_kappa, run.kappa),
            jnp.where(taken, steps, run.steps),
            # A step that is taken elsewhere costs what it costs there.
            jnp.where(taken, values, run.values - run.tries),
            measure,
            trial.gap,
            stalled,
            undone | ~over,
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
    v, first_kappa = shared.subgradient(look)
    kappa = jnp.where(taken, lowered_kappa, run.kappa)
    kappa = jnp.where(began, first_kappa, kappa)
    one = jnp.ones_like(kappa)
    begins = active | began
    now = Damping(
        jnp.where(rejected, raised.kappa, jnp.where(begins, kappa, run.damping.kappa)),
        jnp.where(rejected, raised.tau, jnp.where(begins, kappa, run.damping.tau)),
        run.damping.curved,
        jnp.where(rejected, raised.growth, jnp.where(begins, one, run.damping.growth)),
    )
    new_at = _pick(keep | began, look, at)
    v0 = jnp.where(began[None, None, :], v, trial.v)
    new_state = first_state(shared.system(new_at.view, now.kappa, new_at.value), v0)
    # Where the model was F, its minimiser is that of F, and no step before it is worth its expansion.
    new_state = _exactly(new_state, taken & is_f)
    return Run(
        index=index,
        live=live,
        fresh=fresh,
        w=jnp.where(began[None, :], begin, w),
        at=new_at,
        first=jnp.where(began, look.value, run.first),
        kappa=kappa,
        damping=now,
        steps=jnp.where(began, 0, jnp.where(taken, steps, run.steps)),
        tries=jnp.where(taken | began, 0, jnp.where(active, tries, run.tries)),
        values=jnp.where(began, 0, jnp.where(active, values, run.values)),
        state=_pick(begins, new_state, _exactly(state, early)),
        free=_pick(taken, free, run.free),
        decrease=jnp.where(began, jnp.inf, jnp.where(taken, decrease, run.decrease)),
        slow=jnp.where(began, 0, jnp.where(taken, slow, run.slow)),
        found=found,
        following=run.following + jnp.sum(leaves_lane, dtype=jnp.int32),
    )


def _face_dimension(system: Lanes, v: Array, free: Array) -> Array:
    """Return the sum of the dimensions of the faces in each lane."""
    one = jax.vmap(lambda v, free: system.V.face_dimension(v[None], free[None]))
    return jnp.sum(system.of_blocks(one, v, free), axis=0)


def _exactly(state: State, lanes: Array) -> State:
    """Let these lanes go on to their goal."""
    share = jnp.where(lanes, 0, state.share)
    return eqx.tree_at(lambda s: s.share, state, share)


def _pick(which: Array, new: Any, old: Any) -> Any:
    """Return the new arrays in these lanes, the last axis of each array."""

    def one(x: Any, y: Any) -> Any:
        if isinstance(x, AbstractJacobians):
            return x.picked(which, y)
        return jnp.where(which.reshape(*[1] * (x.ndim - 1), -1), x, y)

    is_leaf = lambda x: isinstance(x, AbstractJacobians)
    return jax.tree.map(one, new, old, is_leaf=is_leaf)


def _written(found: Found, index: Array, now: Found) -> Found:
    """Write the lanes that ended into what is known of all problems; an index out of range writes nothing."""
    return jax.tree.map(lambda all, x: all.at[index].set(x, mode="drop"), found, now)
