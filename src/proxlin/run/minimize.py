"""The one loop: epochs compiled once, records off the clock, stop rules, and going on as if it had not stopped."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..checks import check_parameters, check_seed, described, flag, one_number, real, whole
from ..compiled import Calls, of_shapes, shapes_of
from ..cost import Cost, Status
from ..problem import AbstractProblem, check_problem
from ..solvers.auto import choose
from ..solvers.base import AbstractSolver, Info, check_solver, scan_steps
from ..types import Key, Params, dtype_of, is_parameter
from .progress import Progress
from .solution import SavedState, Solution

COLUMNS = ("step", "passes", "seconds", "value")  # of every history; `resume` reads them
BLOW_UP = 1e6  # F this many times above max(1, |F| at the start) is a divergence


def minimize(
    problem: AbstractProblem,
    w: Params,
    solver: AbstractSolver | str = "auto",
    *,
    passes: float | int | None = None,
    steps: int | None = None,
    tol: float | int | None = None,
    stop: Callable[[Params, dict[str, Any]], bool] | None = None,
    seed: int = 0,
    metrics: dict[str, Callable[[Params], Any]] | None = None,
    progress: bool = False,
    resume: Solution | None = None,
) -> Solution:
    """min F(w) from w. See the class `Solution` for what comes back.

    The parameters are the floating-point leaves of w, all in float32 or all in float64; a number among them comes back
    as an array of no axes, and leaves that are no arrays are carried along. `metrics` are functions of w that return
    one number, by their names in the history.

    The run ends at the first record at or past `passes` or `steps` (100 of what is natural if neither is given), when
    kappa |w+ - w| is at most tol sqrt(kappa |F|), which does not depend on units, when `stop(w, record)` says so, when
    no step helps, or when it diverges. `resume=solution` goes on from there: budgets are totals, the seed is the
    solution's, and the result is that of an uninterrupted run. The same seed gives the same bits on the same machine
    with the same number of threads; with another number, sums over all samples may be rounded differently.
    """
    check_problem(problem, "minimize")
    passes = None if passes is None else real(passes, "passes", low=0.0)
    steps = None if steps is None else whole(steps, "steps", low=0)
    tol = None if tol is None else real(tol, "tol", low=0.0)
    _check_hooks(stop, metrics, resume)
    w = check_parameters(w, problem.data)
    at, rest = eqx.partition(w, is_parameter)
    bound = problem.bind(rest)
    why = ""
    if isinstance(solver, str):
        if solver != "auto":
            raise ValueError(f'solver must be "auto" or a solver such as px.sgd(0.1); it is {described(solver)}.')
        solver, reason = choose(bound, at)
        why = f"auto took {reason}. "
    check_solver(solver)
    solver.check(bound)
    if passes is None and steps is None:
        passes, steps = (None, 100) if solver.full_batch() else (100.0, None)
    run = _Run(bound, solver, at, rest, metrics or {}, check_seed(seed) if resume is None else resume.seed)
    run.start(at) if resume is None else run.go_on(resume, at)
    limits = _Limits(passes, steps, *_tolerance(tol, dtype_of(at)), stop)
    with Progress(flag(progress, "progress") and jax.process_index() == 0, passes, steps, solver.name()) as bar:
        status = run.until(limits, bar)
    return run.solution(status, why + run.message(status, limits))


@dataclasses.dataclass(frozen=True)
class _Limits:
    passes: float | int | None
    steps: int | None
    tol: float | int | None
    note: str
    stop: Callable | None


class _Run:
    """The state of a run on the host: iterates, counts and the history."""

    def __init__(
        self, problem: AbstractProblem, solver: AbstractSolver, w: Params, rest: Params, metrics: dict, seed: int
    ):
        self.problem, self.solver, self.rest, self.metrics, self.seed = problem, solver, rest, metrics, seed
        self.call, self.measure = Calls(solver, problem), Calls(problem)
        self.key = jax.random.key(self.seed)
        self.n, self.epoch = len(problem), solver.epoch(problem)
        self.prices = of_shapes(type(solver).prices, solver, problem, w)
        self.info: Info | None = None
        # the measure at which F is flat to round-off: half its square is the relative decrease that is still to be had
        self.flat = 10 * float(jnp.finfo(dtype_of(w)).eps) ** 0.5

    def start(self, w: Params) -> None:
        self.cost, self.step, self.seconds, self.records = Cost(), 0, 0.0, []
        self.w, self.best, self.best_value = w, w, math.inf
        self.record()
        if not math.isfinite(self.value):
            raise ValueError(f"F is {self.value} at the start w; minimize needs a start where F is finite.")
        self.state, self.seconds = self.call(_init, w)
        self.cost = self.prices.get("init", Cost())

    def go_on(self, old: Solution, w: Params) -> None:
        if old.status == Status.diverged:
            raise ValueError("A diverged run cannot go on; start again with a smaller step.")
        if old.n != self.n or old.solver != self.solver.name():
            raise ValueError(
                f"This solution is of {old.solver} on {old.n} samples; it cannot go on with {self.solver.name()} "
                f"on {self.n}."
            )
        if set(old.history) != {*COLUMNS, *self.metrics}:
            raise ValueError(f"This solution has the history {sorted(old.history)}; give the same metrics to go on.")
        names = list(old.history)
        self.records = [
            dict(zip(names, row, strict=True)) for row in zip(*(old.history[x] for x in names), strict=True)
        ]
        self.cost, self.step, self.seconds = old.cost, int(old.history["step"][-1]), float(old.history["seconds"][-1])
        self.w = eqx.filter(check_parameters(old.w, self.problem.data), is_parameter)
        if _shapes(self.w) != _shapes(w):
            raise ValueError("This solution is of a w of another shape; give the w of the run that is to go on.")
        self.best, self.best_value = self.w, old.value
        self.value, self.start_value = old.value, float(old.history["value"][0])
        self.state = old.state
        if isinstance(old.state, SavedState):
            structure, shapes = _shapes(shapes_of(_init, self.solver, self.problem, self.w))
            if _shapes(old.state.leaves)[1] != shapes:
                raise ValueError("This solution was saved by a solver with other settings or for another w.")
            self.state = structure.unflatten([jnp.asarray(x) for x in old.state.leaves])

    def until(self, limits: _Limits, bar: Progress) -> Status:
        """Run to the first reason to end."""
        while True:
            status = self.ended(limits)
            if status is not None:
                return status
            if self.step % self.epoch and len(self.records) > 1:
                self.records.pop()  # an interrupted epoch: an uninterrupted run has no record there
            self.advance(self.length(limits))
            self.record()
            bar.show(self.records[-1])

    def length(self, limits: _Limits) -> int:
        """Steps to the next record: to the end of the epoch, or to the end of a budget."""
        length = self.epoch - self.step % self.epoch
        if limits.steps is not None:
            length = min(length, limits.steps - self.step)
        if limits.passes is not None and self.epoch > 1:
            calls = self.prices["step"]
            left = limits.passes - self.cost.passes(self.n)
            length = min(length, max(1, math.ceil(left / calls.passes(self.n) - 1e-6)))
        return length

    def advance(self, length: int) -> None:
        at = jnp.asarray(divmod(self.step, self.epoch), jnp.int32)
        epoch = _Epoch(self.epoch, length)
        (self.state, info, self.w), seconds = self.call(epoch, self.state, self.key, at)
        self.info = info
        self.seconds += seconds
        self.step += length
        counts = {"step": length} | {name: int(count) for name, count in info.counts.items()}
        for name, count in counts.items():
            self.cost = self.cost + self.prices.get(name, Cost()) * count

    def record(self) -> None:
        """F and the metrics at the iterate: off the clock, and not in the cost."""
        (value, finite), _ = self.measure(_value, self.w)
        self.value = float(value) if bool(finite) else math.nan
        if not self.records:
            self.start_value = self.value
        if self.value < self.best_value:
            self.best, self.best_value = self.w, self.value
        passes = self.cost.passes(self.n)
        record = {"step": self.step, "passes": passes, "seconds": self.seconds, "value": self.value}
        answer = eqx.combine(self.w, self.rest)
        for name, metric in self.metrics.items():
            record[name] = one_number(metric(answer), f"The metric {name!r}")
        self.records.append(record)

    def ended(self, limits: _Limits) -> Status | None:
        if not self.value <= self.start_value + BLOW_UP * max(1.0, abs(self.start_value)):
            return Status.diverged
        if limits.stop is not None:
            verdict = limits.stop(eqx.combine(self.w, self.rest), dict(self.records[-1]))
            if verdict is not None and one_number(verdict, "The function stop"):  # one that only prints goes on
                return Status.stopped
        measure, stalled = (None, None) if self.info is None else (self.info.measure, self.info.stalled)
        if limits.tol is not None and measure is not None and float(measure) <= limits.tol:
            return Status.converged
        if stalled is not None and bool(stalled):
            small = measure is not None and float(measure) <= self.flat
            return Status.converged if small else Status.stalled
        if limits.steps is not None and self.step >= limits.steps:
            return Status.budget
        if limits.passes is not None and self.cost.passes(self.n) >= limits.passes - 1e-9:
            return Status.budget
        return None

    def message(self, status: Status, limits: _Limits) -> str:
        text = status.sentence
        if status == Status.converged and self.info is not None and self.info.measure is not None and self.info.stalled:
            text = (
                "F is stationary to the accuracy of the arithmetic: kappa |w+ - w| is "
                + f"{float(self.info.measure):.0e} sqrt(kappa |F|)."
            )
        if status == Status.diverged:
            text += f" {self.solver.remedy()}"
        if limits.tol is not None and self.info is not None and self.info.measure is None:
            text += f" tol was not used: {self.solver.name()} gives no certificate."
        if self.info is not None and self.info.gap is not None:
            text += f" The certified gap of the last subproblem is {float(self.info.gap):.1e}."
        return text + limits.note

    def solution(self, status: Status, message: str) -> Solution:
        diverged = status == Status.diverged
        w, value = (self.best, self.best_value) if diverged else (self.w, self.value)
        history = {name: np.asarray([record[name] for record in self.records]) for name in self.records[0]}
        answer = eqx.combine(w, self.rest)
        return Solution(
            answer, value, status, message, self.cost, history, self.state, self.solver.name(), self.seed, self.n
        )


@dataclasses.dataclass(frozen=True)
class _Epoch:
    """`length` of the `count` steps of epoch at[0], from the step at[1] on; all its draws are made before its steps.

    The state, what the last step said, and the iterate.
    """

    count: int
    length: int

    def __call__(
        self, solver: AbstractSolver, problem: AbstractProblem, state: Any, key: Key, at: Array
    ) -> tuple[Any, Info, Params]:
        drawn = solver.draw(problem, jax.random.fold_in(key, at[0]), self.count)
        if self.length < self.count:
            drawn = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, at[1], self.length), drawn)
        state, info = scan_steps(solver, problem, state, drawn)
        return state, info, solver.iterate(state)


def _shapes(tree: Any) -> tuple[Any, list]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(x.shape, x.dtype) for x in leaves]


def _init(solver: AbstractSolver, problem: AbstractProblem, w: Params) -> Any:
    """The state, of no weak types: the first step would be compiled for them, and the next once more."""
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), solver.init(problem, w))


def _value(problem: AbstractProblem, w: Params) -> tuple[Array, Array]:
    finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(w)]
    return problem.value(w), jnp.all(jnp.stack(finite))


def _check_hooks(stop: Any, metrics: Any, resume: Any) -> None:
    """Raise a sentence unless the functions of a user can be called, and their columns are not those of a history."""
    if stop is not None and not callable(stop):
        raise TypeError(f"stop must be a function of (w, record), or None; it is {described(stop)}.")
    if metrics is not None and not isinstance(metrics, dict):
        raise TypeError(f"metrics must be a dict of names and functions of w, or None; it is {described(metrics)}.")
    for name, metric in (metrics or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"The name of a metric must be text; it is {described(name)}.")
        if name in COLUMNS:
            raise ValueError(f"A metric cannot be called {name!r}, which is a column of every history; rename it.")
        if not callable(metric):
            raise TypeError(f"The metric {name!r} must be a function of w; it is {described(metric)}.")
    if resume is not None and not isinstance(resume, Solution):
        raise TypeError(f"resume must be a Solution, such as px.load_solution(path); it is {described(resume)}.")


def _tolerance(tol: float | int | None, dtype: Any) -> tuple[float | None, str]:
    """tol, raised to 100 eps where it asks for more than the arithmetic has, and the sentence that says so."""
    floor = 100 * float(jnp.finfo(dtype).eps)
    if tol is None or tol >= floor:
        return tol, ""
    return floor, f" tol was raised from {tol:g} to {floor:.2g}, the accuracy of {jnp.dtype(dtype).name}."


def at_noise_level(level: float | int) -> Callable[[Params, dict[str, Any]], bool]:
    """A stop rule: F(w) <= level, where fitting further would fit the noise (Proposition 2).

    >>> at_noise_level(0.5)(None, {"value": 0.4})
    True
    """
    level = real(level, "The noise level", low=0.0)
    return lambda w, record: record["value"] <= level
