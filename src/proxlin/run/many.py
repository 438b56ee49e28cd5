"""Many problems of the same shape at once: a batch of slots, in which those that ended make room.

result = solve_many(problems, w)              a leading axis of problems, or of starts
best, values = multistart(problem, starts)
"""

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ..checks import check_parameters, described, flag, whole
from ..compiled import Compiled
from ..cost import Calls, Status
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem, check_problem
from ..solvers.base import AbstractSolver, Info
from ..types import Key, Params, is_concrete, is_parameter
from .lanes import Found, Run, Static, begin, fits, lanes_for, turn
from .loop import Limits, Record, advance, has_ended, initial_state
from .progress import Progress
from .solve import Result, checked_limits, checked_solver, judged, key_for, run_pure

SLOTS = 512  # problems at once: their arrays stay in the cache, and few wait for the slowest one
ROUND = 4  # steps between two looks at what has ended
# turns of the lanes between two looks of the host: a fraction of a second
TURNS = 200


class _Slots(eqx.Module):
    """The runs under way: F at the start, their states, the steps taken, and the calls so far."""

    start: Array
    state: Any
    step: Array
    calls: Calls


@in_the_precision_of_w
def solve_many(
    problems: AbstractProblem | list | tuple,
    w: Params,
    solver: AbstractSolver | None = None,
    *,
    in_axes: tuple[Any, Any] = (0, None),
    chunk: int | None = None,
    steps: int | None = None,
    passes: float | int | None = None,
    tol: float | int | None = None,
    key: Key | None = None,
    progress: bool = False,
) -> Result:
    """Solve many problems of the same shape, and return a `Result` with a leading axis.

    Those that have ended make room for others, so that a slow one does not hold up the rest. On
    several devices the chunk is split. Everything else is as in `solve`; the key of the i-th
    problem is `jax.random.fold_in(key, i)`. Inside of a trace it is `jax.vmap` of `solve`.

    Parameters
    ----------
    problems : a problem, or a list of problems
        One problem whose arrays all have a leading axis, as `jax.vmap` of its construction returns
        it, or a list.
    w : a tree
        The start, or the starts with a leading axis.
    solver : a solver, or None
        The method; None is exact prox-linear.
    in_axes : a pair
        What has the leading axis, problems or w, as in `jax.vmap`: (0, None) problems alone, (None,
        0) starts alone, (0, 0) both, a start for each problem. It may also be a tree of True and
        False, True for the arrays that have the axis, where problems share the others.
    chunk : an integer, or None
        How many problems are worked on at once.
    steps : an integer, or None
        The budget in steps, of each problem.
    passes : a number, or None
        The budget in effective passes, of each problem.
    tol : a number, or None
        The tolerance; None is never reached.
    key : a key of `jax.random`, or None
        The randomness, for a solver that draws samples.
    progress : True or False
        Whether to show a bar.

    Returns
    -------
    a `Result`
        Its arrays have a leading axis of problems.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        The problems differ in structure or shape, there are none, or w has a leading axis that in_axes
        does not name.

    See Also
    --------
    solve : solves one problem.
    multistart : solves one problem from many starts.
    bootstrap : fits with many random weights.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> phi = px.residual(lambda w, x: w * x)
    >>> make = lambda y: px.MeanOfLosses(phi, px.L1(), (jnp.ones((3, 1)), y[:, None]))
    >>> y = jnp.array([[1.0, 2.0, 9.0], [5.0, 6.0, 6.5]])
    >>> px.solve_many(jax.vmap(make)(y), jnp.zeros(1)).w.round(6).tolist()
    [[2.0], [6.0]]
    """
    problems = _stacked(problems, w, in_axes)
    solver = checked_solver(solver, "solve_many")
    batch = _Batch(problems, w, in_axes)
    batch.check_starts()
    if chunk is not None:
        chunk = whole(chunk, "chunk", low=1)
    key = key_for(solver, key, "solve_many")
    limits = checked_limits(solver, steps, passes, tol, batch.dtype())
    if not is_concrete((problems, w, solver, key, limits)):
        return _vmapped(batch, solver, key, limits)
    if not is_concrete(_opened(*batch.first())):
        raise TypeError(
            "The inner map of solve_many closes over an array that is traced; make it part of the data, or take "
            "jax.vmap of px.solve."
        )
    on = flag(progress, "progress") and jax.process_index() == 0
    with Progress(on, None, batch.count, "solve_many") as bar:
        bar.say("compiling")
        return _solved(batch, solver, key, limits, chunk, bar)


@in_the_precision_of_w
def multistart(
    problem: AbstractProblem,
    starts: Params,
    solver: AbstractSolver | None = None,
    **settings: Any,
) -> tuple[Result, Array]:
    """Minimise F from many starts, and return the best result and all values.

    A start whose run diverged has the value inf.

    Parameters
    ----------
    problem : a problem
        F.
    starts : a tree
        The starts, a leading axis of w.
    solver : a solver, or None
        The method; None is exact prox-linear.
    **settings : named arguments
        Those of `solve_many`, such as `tol`.

    Returns
    -------
    a pair
        The `Result` of least F, and the vector of all values.

    Raises
    ------
    TypeError
        An argument is of the wrong kind, or in_axes is given.
    ValueError
        There are no starts, or they have no leading axis.

    See Also
    --------
    solve_many : has the results of all starts.
    minimize : a run from one start.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> problem = px.MeanOfLosses(lambda w, x: jnp.sin(w) + w / 9 + x, px.L1(), jnp.ones((2, 1)))
    >>> best, values = px.multistart(problem, jnp.array([[0.0], [9.0]]))
    >>> values.shape, bool(best.value == values.min())
    ((2,), True)
    """
    if "in_axes" in settings:
        raise TypeError(
            "multistart goes along the starts, and takes no in_axes; leave it out, or take px.solve_many."
        )
    result = solve_many(problem, starts, solver, in_axes=(None, 0), **settings)
    diverged = list(Status).index(Status.diverged)
    values = jnp.where(result.status == diverged, jnp.inf, result.value)
    best = jnp.argmin(values)
    return jax.tree.map(lambda x: x[best], result), values


def _opened(problem: AbstractProblem, w: Params) -> AbstractProblem:
    return problem.traced(w).opened(w)


def _stacked(problems: Any, w: Params, in_axes: Any) -> AbstractProblem:
    """Return one problem with a leading axis, of a list of them. Those whose functions compute the same
    are alike, whatever objects they are.
    """
    if not isinstance(problems, list | tuple):
        check_problem(problems, "solve_many")
        return problems
    if not problems:
        raise ValueError("solve_many needs at least one problem; the list is empty.")
    for problem in problems:
        check_problem(problem, "solve_many")
    if any(_structure(problem) != _structure(problems[0]) for problem in problems):
        one = _one_start(w, in_axes, problems[0])
        problems = [problem.traced(one) for problem in problems]
    first, *others = (_structure(problem) for problem in problems)
    for i, other in enumerate(others, start=1):
        if other != first:
            raise ValueError(
                f"solve_many needs problems of the same structure and shapes; problem {i} differs from "
                f"problem 0: make them with the same functions, or solve them one by one."
            )
    return jax.tree.map(lambda *x: jnp.stack(x), *problems)


def _one_start(w: Params, in_axes: Any, problem: AbstractProblem) -> Params:
    """Return a start like that of one problem."""
    along = in_axes[1] if isinstance(in_axes, tuple) and len(in_axes) == 2 else None
    w = check_parameters(w, problem.data)
    if along == 0:
        return jax.tree.map(lambda x: x[0] if is_parameter(x) and x.ndim else x, w)
    return w


def _structure(problem: AbstractProblem) -> Any:
    leaves, treedef = jax.tree.flatten(problem)
    return treedef, [(x.shape, x.dtype) for x in leaves]


class _Batch:
    """The problems and starts as lists of arrays, those with a leading axis apart from the others."""

    def __init__(self, problems: AbstractProblem, w: Params, in_axes: Any):
        if not isinstance(in_axes, tuple) or len(in_axes) != 2:
            raise TypeError(
                f"in_axes must be a pair, one for the problems and one for w, such as (0, None); it is "
                f"{described(in_axes)}."
            )
        if in_axes[1] == 0 and any(
            np.ndim(x) > 0 and np.shape(x)[0] == 0 for x in jax.tree.leaves(w)
        ):
            raise ValueError("solve_many needs at least one start; w has none.")
        w = check_parameters(w, problems.data)
        at, self.rest = eqx.partition(w, is_parameter)
        self.tree = (problems.bind(self.rest), at)
        leaves, self.treedef = jax.tree.flatten(self.tree)
        self.axes = _axes(self.tree, in_axes)
        if any(
            x.ndim == 0 for x, axis in zip(leaves, self.axes, strict=True) if axis == 0
        ):
            raise ValueError(
                "An array of solve_many has no leading axis; problems and starts that in_axes names need one: give "
                "starts as an array (starts, *shape of w)."
            )
        sizes = {
            x.shape[0] for x, axis in zip(leaves, self.axes, strict=True) if axis == 0
        }
        if not sizes:
            raise ValueError(
                "solve_many needs a leading axis of problems or of starts."
            )
        if len(sizes) > 1:
            raise ValueError(
                f"The arrays of solve_many must have as many entries on their first axis as each other; "
                f"they have {sorted(sizes)}."
            )
        self.count = sizes.pop()
        if self.count == 0:
            raise ValueError(
                "solve_many needs at least one problem; the leading axis is empty."
            )
        self.leaves = leaves

    def check_starts(self) -> None:
        """Raise a sentence where w holds a start for each problem, and in_axes does not say so."""
        problem, w = self.first()
        starts = jax.tree.leaves(w)
        shared = all(axis is None for axis in self.axes[-len(starts) :])
        if not shared or any(x.shape[:1] != (self.count,) for x in starts):
            return
        if _takes(problem, w) or not _takes(problem, jax.tree.map(lambda x: x[0], w)):
            return
        raise ValueError(
            f"in_axes says that all problems start at the same w, but the inner map takes one of its "
            f"{self.count} rows: give in_axes=(0, 0) where w holds a start for each problem."
        )

    def shared_outer(self) -> bool:
        """Give the numbers of f, where all problems have the same, no leading axis; return whether they
        have none.
        """
        of_outer = {id(x) for x in jax.tree.leaves(self.tree[0].outer)}
        for i, x in enumerate(self.leaves):
            if id(x) not in of_outer or self.axes[i] is None:
                continue
            if not bool(jnp.all(x == x[:1])):
                return False
            self.leaves[i] = x[0]
            self.axes[i] = None
        return True

    def dtype(self) -> Any:
        return jnp.result_type(*jax.tree.leaves(self.tree[1]))

    def one(self, leaves: list) -> tuple[AbstractProblem, Params]:
        """Return the problem and the start that these arrays make."""
        return self.treedef.unflatten(leaves)

    def first(self) -> tuple[AbstractProblem, Params]:
        """Return the first problem and its start."""
        pairs = zip(self.leaves, self.axes, strict=True)
        return self.one([x[0] if axis == 0 else x for x, axis in pairs])


def _takes(problem: AbstractProblem, w: Params) -> bool:
    """Whether the inner map takes this w, from shapes alone."""
    try:
        problem.outputs(w)
    except (TypeError, ValueError):
        return False
    return True


def _axes(tree: tuple, in_axes: tuple) -> list:
    """Return 0 or None for each array of the problems and of w."""
    found = []
    for part, axes in zip(tree, in_axes, strict=True):
        count = len(jax.tree.leaves(part))
        if axes is None or axes == 0:
            found += [axes] * count
            continue
        given = jax.tree.leaves(axes)
        if len(given) != count or not all(isinstance(x, bool) for x in given):
            raise ValueError(
                f"in_axes must be 0, None, or a tree of True and False for the {count} arrays; it is "
                f"{described(axes)}."
            )
        found += [0 if x else None for x in given]
    return found


def _vmapped(batch: _Batch, solver: AbstractSolver, key: Key, limits: Limits) -> Result:
    def one(leaves: list, i: Array) -> Result:
        problem, w = batch.one(leaves)
        solver.check(problem)
        return run_pure(problem, w, solver, jax.random.fold_in(key, i), limits)

    indices = jnp.arange(batch.count)
    result = jax.vmap(one, in_axes=(batch.axes, 0))(batch.leaves, indices)
    return eqx.tree_at(lambda r: r.w, result, eqx.combine(result.w, batch.rest))


def _solved(
    batch: _Batch,
    solver: AbstractSolver,
    key: Key,
    limits: Limits,
    chunk: int | None,
    bar: Progress,
) -> Result:
    """Solve small problems in lanes, and what these leave, or all others, in slots."""
    first, start = batch.first()
    solver.check(first)
    slots = min(SLOTS if chunk is None else chunk, batch.count)
    # A lane takes its step before it looks at its budget.
    nothing = Record(jnp.int32(0), Info(), Calls(), start)
    spent = has_ended(nothing, limits, solver.prices(first, start), len(first))
    small = fits(first, start, solver) and not spent
    if not (small and batch.shared_outer()):
        return _Run(batch, solver, key, limits, slots).all(bar)
    lanes = min(lanes_for(first, start) if chunk is None else chunk, batch.count)
    static = Static(batch.treedef, tuple(batch.axes))
    found = _in_lanes(static, solver, batch, limits, lanes, bar)
    result, _ = Compiled(static, solver)(_judge_all, batch.leaves, limits, found)
    left = np.flatnonzero(np.asarray(found.goes_on))
    if left.size:
        result = _go_on(static, solver, batch, limits, found, left, result)
    return eqx.tree_at(lambda r: r.w, result, eqx.combine(result.w, batch.rest))


def _in_lanes(
    static: Static,
    solver: AbstractSolver,
    batch: _Batch,
    limits: Limits,
    lanes: int,
    bar: Progress,
) -> Found:
    """Run all problems in lanes, a part of them on each core or device: one thread for each, as a program of
    small operations runs on one core.
    """
    devices = jax.local_devices()
    threads = max(multiprocessing.cpu_count(), len(devices))
    parts = min(threads, max(1, batch.count // lanes))
    devices = devices[:parts]
    ends = np.linspace(0, batch.count, parts + 1).astype(np.int32)
    done = [0] * parts
    ended = threading.Event()  # an interrupt, or an error, ends the other threads too

    def on(i: int, x: Any) -> Any:
        """Return arrays where part i is worked on."""
        if len(devices) == 1:
            return x
        arrays, rest = eqx.partition(x, eqx.is_array)
        return eqx.combine(jax.device_put(arrays, devices[i % len(devices)]), rest)

    # What all parts on a device share, and its programs.
    places = []
    for i in range(len(devices)):
        leaves, limits_there = on(i, (batch.leaves, limits))
        places.append((Compiled(static, on(i, solver)), leaves, limits_there))

    def start(i: int) -> tuple[Array, Run]:
        program, leaves, limits = places[i % len(devices)]
        queue = on(i, jnp.asarray(ends[i : i + 2]))
        run, _ = program(begin, leaves, queue, lanes, limits)
        return queue, run

    def turned(i: int, queue: Array, run: Run, turns: int) -> Run:
        program, leaves, limits = places[i % len(devices)]
        count = on(i, jnp.int32(turns))
        return program(turn, leaves, queue, limits, run, count)[0]

    def part(i: int) -> Found:
        queue, run = start(i)
        while bool(jnp.any(run.live)) and not ended.is_set():
            run = turned(i, queue, run, TURNS)
            done[i] = min(int(run.following), int(ends[i + 1])) - int(ends[i])
            bar.show_count(sum(done), batch.count)
        return run.found

    if parts == 1:
        return part(0)
    for i in range(len(devices)):
        turned(i, *start(i), 0)  # it compiles; all threads then find the programs
    with ThreadPoolExecutor(parts) as pool:
        try:
            found = list(pool.map(part, range(parts)))
        finally:
            ended.set()

    def joined(*parts: Array) -> Array:
        rows = [np.asarray(x)[ends[i] : ends[i + 1]] for i, x in enumerate(parts)]
        return jnp.asarray(np.concatenate(rows))

    return jax.tree.map(joined, *found)


def _judge_all(
    static: Static,
    solver: AbstractSolver,
    leaves: list,
    limits: Limits,
    found: Found,
) -> Result:
    """Return the results of problems that ended in lanes."""

    def one(leaves: list, found: Found) -> Result:
        problem, w = static.treedef.unflatten(leaves)
        _, unravel = ravel_pytree(w)
        info = Info(None, found.measure, found.stalled, found.gap)
        calls = Calls(value=found.values)
        record = Record(found.steps, info, calls, unravel(found.w))
        prices = solver.prices(problem, w)
        return judged(problem, w, found.first, record, limits, prices)

    return jax.vmap(one, in_axes=(list(static.axes), 0))(leaves, found)


def _go_on(
    static: Static,
    solver: AbstractSolver,
    batch: _Batch,
    limits: Limits,
    found: Found,
    left: np.ndarray,
    result: Result,
) -> Result:
    """Let these problems go on from where their lanes ended, with all that the solver can do: one
    after the other on each core. Side by side, each step would do the work of every kind of step
    (a `cond` under `vmap` takes both branches), and last as long as the slowest one.
    """
    program = Compiled(static, solver)

    def one(i: np.integer) -> Result:
        return program(_from_lane, batch.leaves, np.int32(i), limits, found)[0]

    ended = [one(left[0])]  # it compiles; all threads then find the program
    ended += _on_threads(one, list(left[1:]))
    rows = jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *ended)
    return jax.tree.map(lambda all, x: all.at[left].set(x), result, rows)


def _from_lane(
    static: Static,
    solver: AbstractSolver,
    leaves: list,
    index: Array,
    limits: Limits,
    found: Found,
) -> Result:
    """Return the result of one problem that goes on from where its lane ended."""
    pairs = zip(leaves, static.axes, strict=True)
    mine = [x[index] if axis == 0 else x for x, axis in pairs]
    problem, w = static.treedef.unflatten(mine)
    start = problem.feasible(w)
    head = jax.tree.map(lambda x: x[index], found)
    _, unravel = ravel_pytree(start)
    state = eqx.tree_at(
        lambda s: (s.w, s.value, s.first, s.kappa, s.t),
        initial_state(problem, solver, start),
        (unravel(head.w), head.value, head.first, head.kappa, head.steps),
    )
    prices = solver.prices(problem, w)
    calls = Calls(value=head.values)
    key = jax.random.key(0)  # exact steps draw nothing
    _, record = advance(problem, solver, state, key, head.steps, limits, prices, calls)
    return judged(problem, start, head.first, record, limits, prices)


def _on_threads(one: Callable, arguments: list) -> list:
    """Return one(x) for each argument, some at a time: a thread for each core, as a program of small
    operations runs on one core. An interrupt, or an error, ends all of them.
    """
    ended = threading.Event()

    def unless_ended(x: Any) -> Any:
        return None if ended.is_set() else one(x)

    with ThreadPoolExecutor(max(1, multiprocessing.cpu_count())) as pool:
        try:
            return list(pool.map(unless_ended, arguments))
        finally:
            ended.set()


class _Run:
    """The slots on the host: which problem is where, and what has ended."""

    def __init__(
        self,
        batch: _Batch,
        solver: AbstractSolver,
        key: Key,
        limits: Limits,
        slots: int,
    ):
        self.batch = batch
        self.slots = slots
        self.key = key
        self.limits = limits
        self.program = Compiled(Static(batch.treedef, tuple(batch.axes)), solver)
        self.place = _placement(slots)

    def all(self, bar: Progress) -> Result:
        """Solve all problems."""
        count = self.batch.count
        waiting = iter(range(count))
        index = np.fromiter((next(waiting) for _ in range(self.slots)), np.int32)
        fresh = np.ones(self.slots, bool)
        busy = np.ones(self.slots, bool)
        slots = None
        results: list | None = None
        ended = 0
        while busy.any():
            arguments = (self.batch.leaves, self.key, self._on(index), self._on(fresh))
            (slots, found, over), _ = self._round(arguments, slots)
            over = np.asarray(over) & busy
            leaves, treedef = jax.tree.flatten(found)
            if results is None:
                results = [np.zeros((count, *x.shape[1:]), x.dtype) for x in leaves]
            for whole_result, part in zip(results, leaves, strict=True):
                whole_result[index[over]] = np.asarray(part)[over]
            ended += int(over.sum())
            bar.show_count(ended, count)
            fresh = np.zeros(self.slots, bool)
            for slot in np.flatnonzero(over):
                following = next(waiting, None)
                if following is None:
                    busy[slot] = False
                else:
                    index[slot] = following
                    fresh[slot] = True
        assert results is not None
        result = treedef.unflatten([jnp.asarray(x) for x in results])
        return eqx.tree_at(
            lambda r: r.w, result, eqx.combine(result.w, self.batch.rest)
        )

    def _round(self, arguments: tuple, slots: _Slots | None) -> Any:
        leaves, key, index, fresh = arguments
        if slots is None:
            slots, _ = self.program(_first_slots, leaves, index)
        return self.program(_one_round, leaves, key, index, fresh, slots, self.limits)

    def _on(self, x: np.ndarray) -> Array:
        """Return the array where the slots are."""
        if self.place is None:
            return jnp.asarray(x)
        return jax.device_put(x, self.place)


def _placement(slots: int) -> NamedSharding | None:
    """Return how slots are split over several devices, or None where there is one."""
    devices = jax.local_devices()
    if len(devices) == 1 or slots % len(devices):
        return None
    return NamedSharding(Mesh(np.asarray(devices), ("slots",)), PartitionSpec("slots"))


def _new_slot(problem: AbstractProblem, solver: AbstractSolver, w: Params) -> _Slots:
    """Return a slot at the start of a problem."""
    w = problem.feasible(w)
    state = initial_state(problem, solver, w)
    return _Slots(problem.value(w), state, jnp.int32(0), Calls())


def _first_slots(
    static: Static,
    solver: AbstractSolver,
    leaves: list,
    index: Array,
) -> _Slots:
    """Return slots of the right shapes, whose contents nobody looks at."""

    def one(leaves: list) -> _Slots:
        problem, w = static.treedef.unflatten(leaves)
        return _new_slot(problem, solver, w)

    taken = static.taken(leaves, index)
    return jax.vmap(one, in_axes=(list(static.axes),))(taken)


def _one_round(
    static: Static,
    solver: AbstractSolver,
    leaves: list,
    key: Key,
    index: Array,
    fresh: Array,
    slots: _Slots,
    limits: Limits,
) -> tuple[_Slots, Result, Array]:
    """Take up to ROUND epochs of steps in every slot, and return what each would answer now."""

    def one(
        leaves: list, i: Array, fresh: Array, slot: _Slots
    ) -> tuple[_Slots, Result, Array]:
        problem, w = static.treedef.unflatten(leaves)
        prices = solver.prices(problem, w)
        new = _new_slot(problem, solver, w)
        slot = jax.tree.map(lambda x, y: jnp.where(fresh, x, y), new, slot)
        some = slot.step + ROUND * solver.epoch(problem)
        part = Limits(
            jnp.minimum(limits.steps, some), limits.tol, limits.stalled, limits.passes
        )
        number = jax.random.fold_in(key, i)
        state, record = advance(
            problem, solver, slot.state, number, slot.step, part, prices, slot.calls
        )
        calls = Calls() if record.calls is None else record.calls
        over = has_ended(record, limits, prices, len(problem))
        start = problem.feasible(w)
        result = judged(problem, start, slot.start, record, limits, prices)
        return _Slots(slot.start, state, record.step, calls), result, over

    taken = static.taken(leaves, index)
    return jax.vmap(one, in_axes=(list(static.axes), 0, 0, 0))(
        taken, index, fresh, slots
    )
