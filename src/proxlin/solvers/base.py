"""A solver: init -> State, draw -> randomness, step -> (State, Info). It stores settings, never
data or a problem.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..checks import described
from ..cost import Calls, Cost, Prices
from ..outers import AbstractOuter
from ..problem import AbstractProblem
from ..shown import shown
from ..types import Key, Params


class State(eqx.Module):
    """What the next step needs: the iterate, the count of steps, and what a model remembers of the
    last step.
    """

    w: Params
    t: Array
    memory: Any = None


class Info(eqx.Module):
    """What an observer needs of a step.

    `calls` counts the calls beyond the fixed price of a step, or is None where there are none; `measure` is what `tol`
    is compared with, a number without units (see `stationarity`); `stalled` says that no further step can help; `gap`
    is the certified gap of the last subproblem.
    """

    calls: Calls | None = None
    measure: Array | None = None
    stalled: Array | None = None
    gap: Array | None = None


class AbstractSolver(eqx.Module):
    """min F(w) over w, step by step.

    Laws: a state keeps its structure and dtypes; a step is a function of (problem, state, drawn)
    alone, so it scans, vmaps over settings and seeds, and two settings share one compilation; the
    cost reported is the calls made.
    """

    outers: ClassVar[type[AbstractOuter]] = AbstractOuter  # the kind of f that it needs
    # the kind of problem that it needs
    problems: ClassVar[type[AbstractProblem]] = AbstractProblem
    instead: ClassVar[str] = "sgd"  # what to take where the problem is of another kind

    def __repr__(self) -> str:
        return shown(self)

    @abc.abstractmethod
    def init(self, problem: AbstractProblem, w: Params) -> Any:
        """Return the state at w."""

    @abc.abstractmethod
    def step(
        self, problem: AbstractProblem, state: Any, drawn: Any
    ) -> tuple[Any, Info]:
        """Take one step, with its share of what was drawn."""

    @abc.abstractmethod
    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        """Return the price of a step, and of each call that `Info.calls` counts."""

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Any:
        """Return the randomness of count steps, with a leading axis."""
        return jax.random.split(key, count)

    def epoch(self, problem: AbstractProblem) -> Any:
        """Return the number of steps between two records of the history."""
        return 1

    def full_batch(self) -> bool:
        """Whether a step sees all the data once: its natural budget is in steps, that of the others
        in passes.
        """
        return False

    def allows_padding(self) -> bool:
        """Whether it asks for `problem.samples()` where it means n: then rows may be added that do
        not count, and problems of nearly the same size share a compiled program.
        """
        return False

    def is_random(self) -> bool:
        """Whether a step depends on what was drawn for it."""
        return True

    def is_exact(self) -> bool:
        """Whether a step solves a subproblem exactly: such a program is large, and takes seconds to
        compile well.
        """
        return False

    def iterate(self, state: Any) -> Params:
        """Return the answer so far."""
        return state.w

    def remedy(self) -> str:
        """Say what to try after a divergence."""
        return "Try a smaller step."

    def name(self) -> str:
        return type(self).__name__

    def check(self, problem: AbstractProblem) -> None:
        """Raise a sentence where the problem is not of the kind this solver needs."""
        self._check_kind(problem, self.problems, "a problem of the class")
        self._check_kind(problem.outer, self.outers, "an outer function of the class")

    def _check_kind(self, given: Any, needed: type, what: str) -> None:
        if isinstance(given, needed):
            return
        kind = needed.__name__.removeprefix("Abstract")
        raise TypeError(
            f"{self.name()} needs {what} {kind}; it got {type(given).__name__}. Take {self.instead}."
        )


class AbstractInnerSolver(AbstractSolver):
    """A solver that can also minimise the subproblems of PLI, one after the other; one step of it
    is an epoch.

    `prices` is asked with the linearised problem; its `init` is the price of a restart.
    """

    def frozen(self, t: Array) -> "AbstractInnerSolver":
        """Return the solver for outer step t, with its schedules fixed there."""
        return self

    def remember(self, problem: AbstractProblem, w: Params) -> Any:
        """Return what the first subproblem starts from, beside w."""
        return None

    def see(self, problem: AbstractProblem, w: Params) -> Any:
        """Return what a subproblem linearised at w needs of the problem there, or None."""
        return None

    def value(self, problem: AbstractProblem, w: Params, seen: Any) -> Array:
        """Return F(w), with the help of what was seen at w."""
        return problem.value(w)

    def sight(self, problem: AbstractProblem, w: Params) -> tuple[Cost, Cost]:
        """Return the prices of `see` and of `value`."""
        return Cost(), problem.prices(w).value

    def restart(
        self, problem: AbstractProblem, w: Params, memory: Any, seen: Any
    ) -> Any:
        """Return the state at w, on a subproblem near the one that `memory` comes from."""
        return self.init(problem, w)

    def keep(self, state: Any) -> Any:
        """Return what the next subproblem starts from."""
        return None

    def calls(self, epochs: Array) -> Calls:
        """Return the calls of so many epochs on one subproblem."""
        return Calls(epoch=epochs)

    def gap(self, problem: AbstractProblem, state: Any) -> Array | None:
        """Return the certified gap of the iterate, where there is one."""
        return None


def stationarity(slope: Array, kappa: Array, value: Array) -> Array:
    """Return slope / sqrt(kappa |F|): how far from stationary w is, whatever the units of F and of
    w.

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
    elif callable(solver) and str(getattr(solver, "__module__", "")).startswith(
        "proxlin."
    ):
        found = f"the function {solver.__name__}: call it with its settings, and give what it returns"
    raise TypeError(f"{name} must be a solver such as px.sgd(0.1); it is {found}.")
