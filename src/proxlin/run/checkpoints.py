"""A run watched at a few marks only: what a search over settings needs, at nearly the price of the
bare steps.

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
from ..compiled import Compiled, of_shapes
from ..cost import Cost, Prices
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem, check_problem
from ..solvers.base import AbstractSolver, check_solver
from ..types import Params, is_parameter
from .loop import Limits, advance, initial_state
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


@in_the_precision_of_w
def follow(
    problem: AbstractProblem,
    w: Params,
    solver: AbstractSolver,
    measure: Callable[[Params], Array],
    marks: Sequence[float | int],
    *,
    seed: int = 0,
    patience: float | int = math.inf,
    prices: Prices | None = None,
    watch: Mapping[str, Callable[[Params], Any]] | None = None,
) -> Followed:
    """Run `solver` from w and measure its iterate at each mark; the steps are those of `minimize`,
    bit for bit.

    It ends at the last mark, where the measure blows up, or where `patience` passes brought nothing better.
    `prices` replaces what the solver's calls cost (another accounting); `measure` is a hashable function of w that can
    be compiled, `watch` any further functions of w to look at on the way.
    """
    check_problem(problem, "follow")
    check_solver(solver)
    w = check_parameters(w, problem.data)
    at, rest = eqx.partition(w, is_parameter)
    run = _Follow(problem.bind(rest), solver, at, seed, prices)
    call = Compiled(measure)
    rows: list[tuple[float | int, float, float, float]] = []
    watched: dict[str, list[float]] = {name: [] for name in watch or {}}
    best = math.inf
    best_w = at
    best_at = 0.0
    spent = 0.0
    diverged = False
    for mark in marks:
        run.advance(mark)
        value = float(call(_measured, run.w, rest)[0])
        rows.append((mark, value, run.passes, run.seconds))
        # one object: metrics that share an evaluation know it by that
        whole = eqx.combine(run.w, rest)
        for name, function in (watch or {}).items():
            watched[name].append(
                one_number(function(whole), f"The function {name!r} of watch")
            )
        start = rows[0][1]
        diverged = not value <= start + BLOW_UP * max(1.0, abs(start))
        if diverged:
            break
        if value < best:
            best = value
            best_w = run.w
            best_at = mark
            spent = run.passes
        elif (
            run.passes - spent > patience
        ):  # passes that were run, not marks: a long step is not held against it
            break
    at_marks, measures, passes, seconds = np.asarray(rows).T
    columns = {name: np.asarray(column) for name, column in watched.items()}
    best_w = eqx.combine(best_w, rest)
    return Followed(
        at_marks, measures, passes, seconds, columns, best_w, best, best_at, diverged
    )


def _measured(measure: Callable[[Params], Array], w: Params, rest: Params) -> Array:
    value = measure(eqx.combine(w, rest))
    if np.shape(value) != () or not isinstance(
        value, int | float | np.generic | np.ndarray | jax.Array
    ):
        raise TypeError(
            f"The validation loss must be one number; it is {described(value)}."
        )
    return jnp.asarray(value)


class _Follow:
    """The run on the host: whole epochs at a time, and never past the mark."""

    def __init__(
        self,
        problem: AbstractProblem,
        solver: AbstractSolver,
        w: Params,
        seed: int,
        prices: Prices | None,
    ):
        solver.check(problem)
        self.solver = solver
        self.key = jax.random.key(check_seed(seed))
        self.n = len(problem)
        self.epoch = solver.epoch(problem)
        self.prices = (
            of_shapes(type(solver).prices, solver, problem, w)
            if prices is None
            else prices
        )
        self.call = Compiled(problem, solver)
        self.state, _ = self.call(initial_state, w)
        self.counts_calls = of_shapes(
            _counts_calls, problem, solver, self.state, self.key
        )
        self.cost = self.prices.init
        self.step = 0
        self.w = w
        self.seconds = 0.0
        self.pending: _Ahead | None = None

    @property
    def passes(self) -> float:
        return self.cost.passes(self.n)

    def advance(self, mark: float | int) -> None:
        """Run all epochs that end at or before the mark."""
        while self._fits(mark):
            ahead = self._run(self._known(mark))
            # This is only seen afterwards: it waits for a later mark.
            if ahead.cost.passes(self.n) > mark + 1e-9:
                self.pending = ahead
                return
            self._take(ahead)

    def _fits(self, mark: float | int) -> bool:
        if self.pending is not None:
            if self.pending.cost.passes(self.n) > mark + 1e-9:
                return False
            self._take(self.pending)
            self.pending = None
        return self.passes < mark - 1e-9

    def _known(self, mark: float | int) -> int:
        """Return how many epochs fit: as many as their price says, or one where only a step can
        tell.
        """
        if self.counts_calls:
            return 1
        each = (self.prices.step * self.epoch).passes(self.n)
        return max(1, math.floor((mark - self.passes) / each + 1e-9))

    def _run(self, epochs: int) -> "_Ahead":
        steps = epochs * self.epoch
        start = jnp.asarray(self.step, jnp.int32)
        limits = Limits(jnp.asarray(self.step + steps, jnp.int32))
        self.step += steps
        (state, record), seconds = self.call(
            advance, self.state, self.key, start, limits
        )
        cost = self.cost + self.prices.total(steps, record.calls)
        return _Ahead(state, record.w, cost, self.seconds + seconds)

    def _take(self, ahead: "_Ahead") -> None:
        self.state = ahead.state
        self.w = ahead.w
        self.cost = ahead.cost
        self.seconds = ahead.seconds


class _Ahead(NamedTuple):
    """A run that is ahead of the last mark: its state and iterate, what it cost so far, and the
    seconds.
    """

    state: Any
    w: Params
    cost: Cost
    seconds: float


def _counts_calls(
    problem: AbstractProblem, solver: AbstractSolver, state: Any, key: Any
) -> bool:
    """Return whether a step counts calls that its price does not know."""
    drawn = jax.tree.map(lambda x: x[0], solver.draw(problem, key, 1))
    return solver.step(problem, state, drawn)[1].calls is not None
