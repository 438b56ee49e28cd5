"""A solver: init -> State, draw -> randomness, step -> (State, Info). It stores settings, never data or a problem."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..checks import described
from ..cost import Cost
from ..outers import AbstractOuter
from ..problem import AbstractProblem
from ..types import Key, Params


class State(eqx.Module):
    """What the next step needs: the iterate and the count of steps."""

    w: Params
    t: Array


class Info(eqx.Module):
    """What an observer needs of a step.

    `counts`: how often each priced call was made, where that is not fixed (see `AbstractSolver.prices`);
    `measure`: what `tol` is compared with, a number without units (see `stationarity`); `stalled`: no further step can
    help; `gap`: the certified gap of the last subproblem.
    """

    counts: dict[str, Array] = eqx.field(default_factory=dict)
    measure: Array | None = None
    stalled: Array | None = None
    gap: Array | None = None


class AbstractSolver(eqx.Module):
    """min F(w) over w, step by step.

    Laws: a state keeps its structure and dtypes; a step is a function of (problem, state, drawn) alone, so it scans,
    vmaps over settings and seeds, and two settings share one compilation; the cost reported is the calls made.
    """

    outers: ClassVar[type[AbstractOuter]] = AbstractOuter  # what it needs of f ...
    problems: ClassVar[type[AbstractProblem]] = AbstractProblem  # ... and of the problem
    instead: ClassVar[str] = "sgd"  # what to take where that is missing

    @abc.abstractmethod
    def init(self, problem: AbstractProblem, w: Params) -> Any:
        """The state at w."""

    @abc.abstractmethod
    def step(self, problem: AbstractProblem, state: Any, drawn: Any) -> tuple[Any, Info]:
        """One step, with its share of what was drawn."""

    @abc.abstractmethod
    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        """The price of each call counted in `Info.counts`; "step" is paid for every step, "init" once."""

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Any:
        """The randomness of count steps, with a leading axis."""
        return jax.random.split(key, count)

    def epoch(self, problem: AbstractProblem) -> int:
        """Steps between two records of the history."""
        return 1

    def full_batch(self) -> bool:
        """Whether a step sees all the data once: its natural budget is in steps, of the others in passes."""
        return False

    def iterate(self, state: Any) -> Params:
        """The answer so far."""
        return state.w

    def remedy(self) -> str:
        """What to try after a divergence."""
        return "Try a smaller step."

    def name(self) -> str:
        return type(self).__name__

    def check(self, problem: AbstractProblem) -> None:
        """Raise a sentence where the problem is not of the kind this solver needs."""
        for given, needed, what in (
            (problem, self.problems, "a problem of the class"),
            (problem.outer, self.outers, "an outer function of the class"),
        ):
            if not isinstance(given, needed):
                raise TypeError(
                    f"{self.name()} needs {what} {needed.__name__.removeprefix('Abstract')}; "
                    f"it got {type(given).__name__}. Take {self.instead}."
                )


def stationarity(slope: Array, kappa: Array, value: Array) -> Array:
    """slope / sqrt(kappa |F|): how far from stationary w is, whatever the units of F and of w.

    `slope` is kappa |w+ - w| or the norm of a gradient, kappa a curvature. A quadratic of that curvature would decrease
    F by half the square of this number, relative to F.
    """
    size = jnp.maximum(kappa * jnp.abs(value), jnp.finfo(value.dtype).tiny)
    return slope / jnp.sqrt(size)


def check_solver(solver: Any, name: str = "solver") -> None:
    """Raise a sentence unless solver is one."""
    if isinstance(solver, AbstractSolver):
        return
    found = described(solver)
    if isinstance(solver, optax.GradientTransformation):
        found = "an optimiser of optax, which takes gradients in a loop of your own: give it problem.subgradient(w)"
    elif callable(solver) and str(getattr(solver, "__module__", "")).startswith("proxlin."):
        found = f"the function {solver.__name__}: call it with its settings, and give what it returns"
    raise TypeError(f"{name} must be a solver such as px.sgd(0.1); it is {found}.")


def scan_steps(solver: AbstractSolver, problem: AbstractProblem, state: Any, drawn: Any) -> tuple[Any, Info]:
    """The steps of all that was drawn; Info of the last one, with the counts of all added up."""

    def body(state: Any, drawn: Any) -> tuple[Any, Info]:
        return solver.step(problem, state, drawn)

    state, infos = jax.lax.scan(body, state, drawn)
    last = jax.tree.map(lambda x: x[-1], infos)
    counts = {name: jnp.sum(count) for name, count in infos.counts.items()}
    return state, Info(counts, last.measure, last.stalled, last.gap)
