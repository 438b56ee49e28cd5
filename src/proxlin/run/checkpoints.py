"""A run watched at a few marks only: what a search over settings needs, at nearly the price of the bare steps.

marks 0 = p_0 < p_1 < ... < p_m (passes);  at each, the last iterate that cost no more is measured
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..checks import check_parameters, check_seed, described, one_number
from ..compiled import Calls, of_shapes, shapes_of
from ..cost import Cost
from ..problem import AbstractProblem, check_problem
from ..solvers.base import AbstractSolver, Info, check_solver, scan_steps
from ..types import Params, is_parameter
from .minimize import BLOW_UP


class Followed(NamedTuple):
    """The measure at each mark reached, and the iterate where it was least. `diverged`: it blew up."""

    marks: np.ndarray
    measures: np.ndarray
    passes: np.ndarray  # of the iterate measured at each mark, at most the mark
    seconds: np.ndarray  # spent in steps until then; compiling and measuring apart
    watched: dict[str, np.ndarray]
    w: Params
    best: float
    at: float | int  # the mark of the best
    diverged: bool


def follow(
    problem: AbstractProblem,
    w: Params,
    solver: AbstractSolver,
    measure: Callable[[Params], Array],
    marks: Sequence[float | int],
    *,
    seed: int = 0,
    patience: float | int = math.inf,
    prices: Mapping[str, Cost] | None = None,
    watch: Mapping[str, Callable[[Params], Any]] | None = None,
) -> Followed:
    """Run `solver` from w and measure its iterate at each mark; the steps are those of `minimize`, bit for bit.

    It ends at the last mark, where the measure blows up, or where `patience` passes brought nothing better.
    `prices` replaces what the solver's calls cost (another accounting); `measure` is a hashable function of w that can
    be compiled, `watch` any further functions of w to look at on the way.
    """
    check_problem(problem, "follow")
    check_solver(solver)
    w = check_parameters(w, problem.data)
    at, rest = eqx.partition(w, is_parameter)
    run, call = _Follow(problem.bind(rest), solver, at, seed, prices), Calls(measure)
    rows: list[tuple[float | int, float, float, float]] = []
    watched: dict[str, list[float]] = {name: [] for name in watch or {}}
    best, best_w, best_at, spent, diverged = math.inf, at, 0.0, 0.0, False
    for mark in marks:
        run.advance(mark)
        value = float(call(_measured, run.w, rest)[0])
        rows.append((mark, value, run.passes, run.seconds))
        whole = eqx.combine(run.w, rest)  # one object: metrics that share an evaluation know it by that
        for name, function in (watch or {}).items():
            watched[name].append(one_number(function(whole), f"The function {name!r} of watch"))
        if diverged := not value <= rows[0][1] + BLOW_UP * max(1.0, abs(rows[0][1])):
            break
        if value < best:
            best, best_w, best_at, spent = value, run.w, mark, run.passes
        elif run.passes - spent > patience:  # of what was run, not of the marks: a long step is not held against it
            break
    at_marks, measures, passes, seconds = np.asarray(rows).T
    columns = {name: np.asarray(column) for name, column in watched.items()}
    best_w = eqx.combine(best_w, rest)
    return Followed(at_marks, measures, passes, seconds, columns, best_w, best, best_at, diverged)


def _measured(measure: Callable[[Params], Array], w: Params, rest: Params) -> Array:
    value = measure(eqx.combine(w, rest))
    if np.shape(value) != () or not isinstance(value, int | float | np.generic | np.ndarray | jax.Array):
        raise TypeError(f"The validation loss must be one number; it is {described(value)}.")
    return jnp.asarray(value)


class _Follow:
    """The run on the host: whole epochs at a time, and never past the mark."""

    def __init__(
        self, problem: AbstractProblem, solver: AbstractSolver, w: Params, seed: int, prices: Mapping[str, Cost] | None
    ):
        solver.check(problem)
        self.problem, self.solver, self.key = problem, solver, jax.random.key(check_seed(seed))
        self.n, self.count = len(problem), solver.epoch(problem)
        self.prices = of_shapes(type(solver).prices, solver, problem, w) if prices is None else prices
        self.call = Calls(solver, problem)
        self.state = self.call(_init, w)[0]
        self.cost, self.epoch, self.w, self.seconds = self.prices.get("init", Cost()), 0, w, 0.0
        self.pending: tuple[Any, Cost, float] | None = None

    @property
    def passes(self) -> float:
        return self.cost.passes(self.n)

    def advance(self, mark: float | int) -> None:
        """All epochs that end at or before the mark."""
        while self._fits(mark):
            after = self._epochs(self._known(mark))
            if after[1].passes(self.n) > mark + 1e-9:  # only seen afterwards: it waits for a later mark
                self.pending = after
                return
            self._take(*after)

    def _fits(self, mark: float | int) -> bool:
        if self.pending is None:
            return self.passes < mark - 1e-9
        if self.pending[1].passes(self.n) > mark + 1e-9:
            return False
        self._take(*self.pending)
        self.pending = None
        return self.passes < mark - 1e-9

    def _known(self, mark: float | int) -> int:
        """How many epochs fit: as many as their price says, or one where only a step can tell."""
        if set(self.prices) - {"init"} != {"step"}:
            return 1
        each = (self.prices["step"] * self.count).passes(self.n)
        return max(1, math.floor((mark - self.passes) / each + 1e-9))

    def _epochs(self, epochs: int) -> tuple[Any, Cost, float]:
        first, last = (jnp.asarray(t, jnp.int32) for t in (self.epoch, self.epoch + epochs))
        self.epoch += epochs
        (state, counts), seconds = self.call(_Epochs(self.count), self.state, self.key, first, last)
        cost = self.cost
        for name, count in ({"step": epochs * self.count} | {name: int(x) for name, x in counts.items()}).items():
            cost = cost + self.prices.get(name, Cost()) * count
        return state, cost, self.seconds + seconds

    def _take(self, state: Any, cost: Cost, seconds: float) -> None:
        self.state, self.cost, self.w, self.seconds = state, cost, self.solver.iterate(state), seconds


class _Epochs(eqx.Module):
    """Epochs first, ..., last - 1 of `count` steps each; their number is not compiled in."""

    count: int = eqx.field(static=True)

    def __call__(
        self, solver: AbstractSolver, problem: AbstractProblem, state: Any, key: Any, first: Array, last: Array
    ) -> tuple[Any, dict[str, Array]]:
        def epoch(t: Array, carry: tuple[Any, dict[str, Array]]) -> tuple[Any, dict[str, Array]]:
            state, counts = carry
            state, info = self._epoch(solver, problem, state, jax.random.fold_in(key, t))
            return state, {name: counts[name] + count for name, count in info.counts.items()}

        shapes = shapes_of(lambda *args: self._epoch(*args)[1].counts, solver, problem, state, key)
        zeros = {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}
        return jax.lax.fori_loop(first, last, epoch, (state, zeros))

    def _epoch(self, solver: AbstractSolver, problem: AbstractProblem, state: Any, key: Any) -> tuple[Any, Info]:
        return scan_steps(solver, problem, state, solver.draw(problem, key, self.count))


def _init(solver: AbstractSolver, problem: AbstractProblem, w: Params) -> Any:
    return solver.init(problem, w)
