"""min F(w): history, stop rules, progress and going on, around the one compiled loop."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..checks import (
    check_parameters,
    check_seed,
    described,
    flag,
    one_number,
    real,
    whole,
)
from ..compiled import Compiled, of_shapes, shapes_of
from ..cost import Cost, Status
from ..inners import check_touched
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem, check_problem
from ..solvers.base import AbstractSolver, Info, check_solver
from ..types import Params, dtype_of, is_parameter, is_staged, on_device
from .auto import choose
from .loop import Limits, Record, advance, initial_state
from .progress import Progress
from .solution import SavedState, Solution

# of every history; `resume` reads them
COLUMNS = ("step", "passes", "seconds", "value")
# Entries of the Jacobian up to which an exact step takes at most some milliseconds, however its
# program was compiled: it is compiled quickly, which saves seconds.
SMALL = 2**18
WORTH_SAYING = 0.1  # seconds of compiling that a message mentions
BLOW_UP = 1e6  # F this many times above max(1, |F| at the start) is a divergence


@in_the_precision_of_w
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
    """Minimise F from w, and return a `Solution`.

    The parameters are the floating-point leaves of w, all in float32 or all in float64; a number
    among them comes back as an array of no axes, and leaves that are no arrays are carried along.

    The run ends at the first record at or past `passes` or `steps`, when a step promises to lower F
    by at most tol^2/2 |F| and kappa |w+ - w| is at most tol sqrt(kappa |F|), neither of which
    depends on units, when `stop(w, record)` says so, when no step helps, or when it diverges. The
    default budget is 100 steps for full-batch solvers and 100 passes for the others. The same seed
    gives the same bits on the same machine with the same number of threads; with another number,
    sums over all samples may be rounded differently.

    Parameters
    ----------
    problem : a problem
        F, such as `px.MeanOfLosses(inner, outer, data)`.
    w : a tree
        The start. One outside of the bounds of a penalty is projected onto them, and the message
        says so.
    solver : a solver, or "auto"
        The method, such as `px.sgd(0.1)`; "auto" chooses one and says why.
    passes : a number, or None
        The budget in effective passes over the data.
    steps : an integer, or None
        The budget in steps.
    tol : a number, or None
        The tolerance; None is never reached.
    stop : a function of (w, record), or None
        It ends the run where it returns True.
    seed : an integer
        The randomness of the run.
    metrics : a dict of functions of w, or None
        Each returns one number, which the history has by its name.
    progress : True or False
        Whether to show a bar.
    resume : a `Solution`, or None
        The run to go on from: budgets are totals, the seed is the solution's, and the result is
        that of an uninterrupted run.

    Returns
    -------
    a `Solution`
        w, F(w), how the run ended, what it cost, and the history.

    Raises
    ------
    TypeError
        An argument is of the wrong kind, or the solver does not fit the problem.
    ValueError
        A number is out of range, or the solution to go on from is of another run.

    See Also
    --------
    solve : takes the same steps inside of `jit`, `vmap` and `grad`.
    at_noise_level : a rule for `stop`.
    tune, advise : find a solver and its settings.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> solution = px.minimize(p, np.zeros(1), px.subgradient_descent(1.0), steps=3)
    >>> solution.w.round(6).tolist(), solution.history["value"].round(3).tolist()
    ([2.0], [4.0, 3.0, 2.778, 2.667])
    """
    check_problem(problem, "minimize")
    _check_outside((problem, w, solver))
    passes = None if passes is None else real(passes, "passes", low=0.0)
    steps = None if steps is None else whole(steps, "steps", low=0)
    tol = None if tol is None else real(tol, "tol", low=0.0)
    _check_hooks(stop, metrics, resume)
    w = check_parameters(w, problem.data)
    if not problem.single:
        check_touched(problem.inner, w, problem.data)
    at, rest = eqx.partition(w, is_parameter)
    bound = problem.bind(rest)
    _check_outside(bound.traced(at).opened(at))
    at, projected = _within(bound, at)
    solver, why = _chosen(solver, bound, at)
    solver.check(bound)
    if passes is None and steps is None:
        if solver.full_batch():
            steps = 100
        else:
            passes = 100.0
    tol, note = _tolerance(tol, dtype_of(at))
    budget = _Budget(passes, steps, tol, stop)
    run = _Run(
        bound,
        solver,
        at,
        rest,
        metrics or {},
        check_seed(seed) if resume is None else resume.seed,
    )
    with Progress(
        flag(progress, "progress") and jax.process_index() == 0,
        passes,
        steps,
        solver.name(),
    ) as bar:
        bar.say("compiling")
        if resume is None:
            run.start(at)
        else:
            run.go_on(resume, at)
        status = run.until(budget, bar)
    return run.solution(status, why + run.message(status, budget) + note + projected)


def _check_outside(arguments: Any) -> None:
    if is_staged(arguments):
        raise TypeError(
            "minimize keeps its history on the host, so it cannot run inside of jit, vmap, scan or grad; take "
            "px.solve there."
        )


def _within(problem: AbstractProblem, w: Params) -> tuple[Params, str]:
    """Return the start within the bounds of the penalty, and a sentence where it was outside."""
    if problem.penalty is None:
        return w, ""
    near = problem.feasible(w)
    pairs = zip(jax.tree.leaves(w), jax.tree.leaves(near), strict=True)
    moved = sum(int(jnp.sum(x != y)) for x, y in pairs)
    if not moved:
        return w, ""
    entries = "1 entry" if moved == 1 else f"{moved} entries"
    return (
        near,
        f" The start was outside of the bounds in {entries}, and was projected onto them.",
    )


def _chosen(
    solver: Any, problem: AbstractProblem, w: Params
) -> tuple[AbstractSolver, str]:
    """Return the solver that was given, or the one that "auto" takes with the sentence that says
    why.
    """
    if not isinstance(solver, str):
        check_solver(solver)
        return solver, ""
    if solver != "auto":
        raise ValueError(
            f'solver must be "auto" or a solver such as px.sgd(0.1); it is {described(solver)}.'
        )
    solver, reason = choose(problem, w)
    return solver, f"auto took {reason}. "


@dataclass(frozen=True)
class _Budget:
    passes: float | int | None
    steps: int | None
    tol: float | int | None
    stop: Callable | None


class _Run:
    """The state of a run on the host: iterates, counts and the history."""

    def __init__(
        self,
        problem: AbstractProblem,
        solver: AbstractSolver,
        w: Params,
        rest: Params,
        metrics: dict,
        seed: int,
    ):
        self.problem = problem
        self.solver = solver
        self.rest = rest
        self.metrics = metrics
        self.seed = seed
        self.program = problem.traced(w)
        # Only these random bits of the first samples do not depend on the number of all.
        steady = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
        if solver.allows_padding() and steady:
            self.program = self.program.padded()
        quick = is_small(problem, solver, w)
        self.call = Compiled(self.program, solver, quick=quick)
        self.measure = Compiled(self.program, quick=quick)
        self.key = jax.random.key(seed)
        self.n = len(problem)
        self.epoch = solver.epoch(problem)
        self.prices = of_shapes(type(solver).prices, solver, problem, w)
        self.info = Info()
        self.flat = flat_measure(dtype_of(w))

    def start(self, w: Params) -> None:
        self.cost = Cost()
        self.step = 0
        self.seconds = 0.0
        self.records = []
        self.w = w
        self.best = w
        self.best_value = math.inf
        self.record()
        if not math.isfinite(self.value):
            raise ValueError(
                f"F is {self.value} at the start w; minimize needs a start where F is finite."
            )
        self.state, self.seconds = self.call(initial_state, w)
        self.cost = self.prices.init

    def go_on(self, old: Solution, w: Params) -> None:
        """Take up the run that ended with this solution."""
        self._check_resume(old, w)
        names = list(old.history)
        rows = zip(*(old.history[name] for name in names), strict=True)
        self.records = [dict(zip(names, row, strict=True)) for row in rows]
        self.cost = old.cost
        self.step = int(old.history["step"][-1])
        self.seconds = float(old.history["seconds"][-1])
        self.w = eqx.filter(check_parameters(old.w, self.problem.data), is_parameter)
        self.best = self.w
        self.best_value = old.value
        self.value = old.value
        self.start_value = float(old.history["value"][0])
        self.state = old.state
        if isinstance(old.state, SavedState):
            structure, shapes = _shapes(
                shapes_of(initial_state, self.program, self.solver, self.w)
            )
            if _shapes(old.state.leaves)[1] != shapes:
                raise ValueError(
                    "This solution was saved by a solver with other settings or for another w."
                )
            self.state = structure.unflatten([on_device(x) for x in old.state.leaves])

    def _check_resume(self, old: Solution, w: Params) -> None:
        if old.status == Status.diverged:
            raise ValueError(
                "A diverged run cannot go on; start again with a smaller step."
            )
        if old.n != self.n or old.solver != self.solver.name():
            raise ValueError(
                f"This solution is of {old.solver} on {old.n} samples; it cannot go on with {self.solver.name()} "
                f"on {self.n}."
            )
        if set(old.history) != {*COLUMNS, *self.metrics}:
            raise ValueError(
                f"This solution has the history {sorted(old.history)}; give the same metrics to go on."
            )
        at = eqx.filter(check_parameters(old.w, self.problem.data), is_parameter)
        if _shapes(at) != _shapes(w):
            raise ValueError(
                "This solution is of a w of another shape; give the w of the run that is to go on."
            )

    def until(self, budget: _Budget, bar: Progress) -> Status:
        """Run to the first reason to end."""
        while True:
            status = self.ended(budget)
            if status is not None:
                return status
            if self.step % self.epoch and len(self.records) > 1:
                # an interrupted epoch: an uninterrupted run has no record there
                self.records.pop()
            self.advance(self.length(budget))
            self.record()
            bar.show(self.records[-1], self.compiling())

    def compiling(self) -> float:
        """Return the seconds that compiling took so far."""
        return self.call.compiling + self.measure.compiling

    def length(self, budget: _Budget) -> int:
        """Return the steps to the next record: to the end of the epoch, or to the end of a budget."""
        length = self.epoch - self.step % self.epoch
        if budget.steps is not None:
            length = min(length, budget.steps - self.step)
        if budget.passes is not None and self.epoch > 1:
            left = budget.passes - self.cost.passes(self.n)
            steps = left / self.prices.step.passes(self.n)
            length = min(length, max(1, math.ceil(steps - 1e-6)))
        return length

    def advance(self, length: int) -> None:
        start = np.int32(self.step)
        limits = Limits(np.int32(self.step + length))
        (self.state, record), seconds = self.call(
            advance, self.state, self.key, start, limits
        )
        self.take(record, length)
        self.seconds += seconds

    def take(self, record: Record, length: int) -> None:
        self.w = record.w
        self.info = record.info
        self.step += length
        self.cost = self.cost + self.prices.total(length, record.calls)

    def record(self) -> None:
        """Look at F and the metrics at the iterate: off the clock, and not in the cost."""
        (value, finite), _ = self.measure(_value, self.w)
        self.value = float(value) if bool(finite) else math.nan
        if not self.records:
            self.start_value = self.value
        if self.value < self.best_value:
            self.best = self.w
            self.best_value = self.value
        passes = self.cost.passes(self.n)
        record = {
            "step": self.step,
            "passes": passes,
            "seconds": self.seconds,
            "value": self.value,
        }
        answer = eqx.combine(self.w, self.rest)
        for name, metric in self.metrics.items():
            record[name] = one_number(metric(answer), f"The metric {name!r}")
        self.records.append(record)

    def ended(self, budget: _Budget) -> Status | None:
        """Return why the run ends here, or None."""
        if not self.value <= self.start_value + BLOW_UP * max(
            1.0, abs(self.start_value)
        ):
            return Status.diverged
        if budget.stop is not None:
            verdict = budget.stop(
                eqx.combine(self.w, self.rest), dict(self.records[-1])
            )
            # one that only prints goes on
            if verdict is not None and one_number(verdict, "The function stop"):
                return Status.stopped
        if budget.tol is not None and self.reached(budget.tol):
            return Status.converged
        if self.info.stalled is not None and bool(self.info.stalled):
            return Status.converged if self.reached(self.flat) else Status.stalled
        if budget.steps is not None and self.step >= budget.steps:
            return Status.budget
        if (
            budget.passes is not None
            and self.cost.passes(self.n) >= budget.passes - 1e-9
        ):
            return Status.budget
        return None

    def reached(self, tol: float) -> bool:
        """Whether the measure of the last step is at most tol."""
        measure = self.info.measure
        return measure is not None and float(measure) <= tol

    def message(self, status: Status, budget: _Budget) -> str:
        text = status.sentence
        info = self.info
        if status == Status.converged and info.measure is not None and info.stalled:
            text = (
                "F is stationary to the accuracy of the arithmetic: no step promises to lower it by "
                "more than rounding."
            )
        if status == Status.diverged:
            text += f" {self.solver.remedy()}"
        if budget.tol is not None and info.measure is None and self.step > 0:
            text += f" tol was not used: {self.solver.name()} gives no certificate."
        if info.gap is not None:
            text += (
                f" The certified gap of the last subproblem is {float(info.gap):.1e}."
            )
        if self.compiling() >= WORTH_SAYING:
            text += f" Compiling took {self.compiling():.1f} s, which is not in the seconds."
        return text

    def solution(self, status: Status, message: str) -> Solution:
        w = self.w
        value = self.value
        if status == Status.diverged:
            w = self.best
            value = self.best_value
        return Solution(
            w=eqx.combine(w, self.rest),
            value=value,
            status=status,
            message=message,
            cost=self.cost,
            history={
                name: np.asarray([record[name] for record in self.records])
                for name in self.records[0]
            },
            state=self.state,
            solver=self.solver.name(),
            seed=self.seed,
            n=self.n,
        )


def flat_measure(dtype: Any) -> float:
    """Return the measure at which F is flat to round-off: half its square is the relative decrease
    that is still to be had.
    """
    return 10 * float(jnp.finfo(dtype).eps) ** 0.5


def is_small(problem: AbstractProblem, solver: AbstractSolver, w: Params) -> bool:
    """Whether the compilation of an exact step would take longer than a run, from shapes alone."""
    if not (solver.is_exact() and solver.full_batch()):
        return False
    d = sum(x.size for x in jax.tree.leaves(w))
    return len(problem) * problem.outputs(w) * d <= SMALL


def _shapes(tree: Any) -> tuple[Any, list]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(x.shape, x.dtype) for x in leaves]


def _value(problem: AbstractProblem, w: Params) -> tuple[Array, Array]:
    finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(w)]
    return problem.value(w), jnp.all(jnp.stack(finite))


def _check_hooks(stop: Any, metrics: Any, resume: Any) -> None:
    """Raise a sentence unless the functions of a user can be called, and their columns are not
    those of a history.
    """
    if stop is not None and not callable(stop):
        raise TypeError(
            f"stop must be a function of (w, record), or None; it is {described(stop)}."
        )
    if metrics is not None and not isinstance(metrics, dict):
        raise TypeError(
            f"metrics must be a dict of names and functions of w, or None; it is {described(metrics)}."
        )
    for name, metric in (metrics or {}).items():
        if not isinstance(name, str):
            raise TypeError(
                f"The name of a metric must be text; it is {described(name)}."
            )
        if name in COLUMNS:
            raise ValueError(
                f"A metric cannot be called {name!r}, which is a column of every history; rename it."
            )
        if "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
            raise ValueError(
                f"The name of a metric cannot hold a null character or half of a surrogate pair, as "
                f"{name!r} does: no file of a solution could; rename it."
            )
        if not callable(metric):
            raise TypeError(
                f"The metric {name!r} must be a function of w; it is {described(metric)}."
            )
    if resume is not None and not isinstance(resume, Solution):
        raise TypeError(
            f"resume must be a Solution, such as px.load_solution(path); it is {described(resume)}."
        )


def _tolerance(tol: float | int | None, dtype: Any) -> tuple[float | None, str]:
    """tol, raised to 100 eps where it asks for more than the arithmetic has, and the sentence that
    says so.
    """
    floor = 100 * float(jnp.finfo(dtype).eps)
    if tol is None or tol >= floor:
        return tol, ""
    return (
        floor,
        f" tol was raised from {tol:g} to {floor:.2g}, the accuracy of {jnp.dtype(dtype).name}.",
    )


def at_noise_level(level: float | int) -> Callable[[Params, dict[str, Any]], bool]:
    """Return the stop rule F(w) <= level, where fitting further would fit the noise (Proposition 2).

    Parameters
    ----------
    level : a number
        The noise level F(wbar), at least 0.

    Returns
    -------
    a function of (w, record)
        For `minimize(..., stop=...)`.

    See Also
    --------
    minimize : takes the rule as `stop`.
    theory.held_out_noise_level, theory.paired_noise_level : estimate the level.

    Examples
    --------
    >>> import proxlin as px
    >>> rule = px.at_noise_level(0.5)
    >>> rule(None, {"value": 0.4}), rule(None, {"value": 0.6})
    (True, False)
    """
    level = real(level, "The noise level", low=0.0)
    return lambda w, record: record["value"] <= level
