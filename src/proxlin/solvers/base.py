"""A solver: init -> State, draw -> randomness, step -> (State, Info). It stores settings, never
data or a problem.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..checks import described
from ..cost import Calls, Cost, Prices
from ..outers import AbstractOuter
from ..problem import AbstractProblem
from ..shown import shown
from ..types import Key, Params


class State(eqx.Module):
    """The state of a solver: the iterate, the count of steps, and what a model remembers of the last
    step.

    Parameters
    ----------
    w : a tree
        The iterate.
    t : an integer array
        The count of steps.
    memory : a tree, or None
        What the model remembers.

    See Also
    --------
    AbstractSolver : its methods `init` and `step` return a state.
    ModelBased : has this state.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> state = px.State(jnp.zeros(2), jnp.int32(0))
    >>> state.w.tolist(), int(state.t), state.memory
    ([0.0, 0.0], 0, None)
    """

    w: Params
    t: Array
    memory: Any = None


class Info(eqx.Module):
    """The report of a step: what an observer needs of it.

    Parameters
    ----------
    calls : `Calls`, or None
        The calls beyond the fixed price of a step; None where there are none.
    measure : a number, or None
        What `tol` is compared with, a number without units (see `stationarity`).
    stalled : True or False, or None
        Whether no further step can help.
    gap : a number, or None
        The certified gap of the last subproblem.

    See Also
    --------
    AbstractSolver : its method `step` returns it.
    AbstractModel : its method `minimize` returns it.

    Examples
    --------
    >>> import proxlin as px
    >>> px.Info(calls=px.Calls(value=1)).measure is None
    True
    """

    calls: Calls | None = None
    measure: Array | None = None
    stalled: Array | None = None
    gap: Array | None = None


class AbstractSolver(eqx.Module):
    """A solver: min F(w) over w, step by step.

    Laws: a state keeps its structure and dtypes; a step is a function of (problem, state, drawn)
    alone, so it scans, vmaps over settings and seeds, and two settings share one compilation; the
    cost reported is the calls made.

    Write `init`, `step` and `prices` for a solver of your own.

    See Also
    --------
    ModelBased : a solver that is made of a model and a schedule.
    Info, Prices : what its methods return.
    minimize, solve : run it.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import proxlin as px
    >>> class SignDescent(px.AbstractSolver):
    ...     "w - step sign(v), v in dF(w)."
    ...
    ...     size: float
    ...
    ...     def init(self, problem, w):
    ...         return px.State(w, jnp.int32(0))
    ...
    ...     def step(self, problem, state, drawn):
    ...         v = problem.subgradient(state.w)
    ...         w = jax.tree.map(lambda x, y: x - self.size * jnp.sign(y), state.w, v)
    ...         return px.State(w, state.t + 1), px.Info()
    ...
    ...     def prices(self, problem, w):
    ...         return px.Prices(step=problem.prices(w).subgradient)
    ...
    ...     def full_batch(self):
    ...         return True
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> px.minimize(p, np.zeros(1), SignDescent(0.5), steps=4).w.tolist()
    [2.0]
    """

    outers: ClassVar[type[AbstractOuter]] = AbstractOuter  # the kind of f that it needs
    # the kind of problem that it needs
    problems: ClassVar[type[AbstractProblem]] = AbstractProblem
    instead: ClassVar[str] = "sgd"  # what to take where the problem is of another kind
    # whether a step takes the prox of the problem's penalty: else such a problem is refused
    takes_penalty: ClassVar[bool] = False

    def __repr__(self) -> str:
        return shown(self)

    @abc.abstractmethod
    def init(self, problem: AbstractProblem, w: Params) -> Any:
        """Return the state at w.

        Parameters
        ----------
        problem : a problem
            F.
        w : a tree
            The start.

        Returns
        -------
        a tree of arrays
            The state.
        """

    @abc.abstractmethod
    def step(
        self, problem: AbstractProblem, state: Any, drawn: Any
    ) -> tuple[Any, Info]:
        """Take one step, with its share of what was drawn.

        Parameters
        ----------
        problem : a problem
            F.
        state : a tree of arrays
            The state before the step.
        drawn : a tree of arrays
            The randomness of this step.

        Returns
        -------
        a pair
            The state after the step, and an `Info`.
        """

    @abc.abstractmethod
    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        """Return the price of a step, and of each call that `Info.calls` counts.

        Parameters
        ----------
        problem : a problem
            F.
        w : a tree
            The parameters, of which the shapes count.

        Returns
        -------
        `Prices`
            The price of a step and of each call.
        """

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Any:
        """Return the randomness of count steps, with a leading axis.

        Parameters
        ----------
        problem : a problem
            F.
        key : a key of `jax.random`
            The randomness of these steps.
        count : an integer
            The number of steps.

        Returns
        -------
        a tree of arrays
            It has a leading axis of steps.
        """
        return jax.random.split(key, count)

    def epoch(self, problem: AbstractProblem) -> Any:
        """Return the number of steps between two records of the history.

        Parameters
        ----------
        problem : a problem
            F.

        Returns
        -------
        an integer
            The number of steps.
        """
        return 1

    def full_batch(self) -> bool:
        """Return whether a step sees all the data once: its natural budget is in steps, that of the
        others in passes.

        Returns
        -------
        True or False
            Whether it does.
        """
        return False

    def allows_padding(self) -> bool:
        """Return whether it asks for `problem.samples()` where it means n: then rows may be added that
        do not count, and problems of nearly the same size share a compiled program.

        Returns
        -------
        True or False
            Whether it does.
        """
        return False

    def is_random(self) -> bool:
        """Return whether a step depends on what was drawn for it.

        Returns
        -------
        True or False
            Whether it does.
        """
        return True

    def is_exact(self) -> bool:
        """Return whether a step solves a subproblem exactly: such a program is large, and takes
        seconds to compile well.

        Returns
        -------
        True or False
            Whether it does.
        """
        return False

    def iterate(self, state: Any) -> Params:
        """Return the answer so far.

        Parameters
        ----------
        state : a tree of arrays
            The state.

        Returns
        -------
        a tree
            w.
        """
        return state.w

    def remedy(self) -> str:
        """Return what to try after a divergence.

        Returns
        -------
        a text
            One sentence.
        """
        return "Try a smaller step."

    def name(self) -> str:
        """Return the name of the method.

        Returns
        -------
        a word
            The name that a `Solution` shows.
        """
        return type(self).__name__

    def check(self, problem: AbstractProblem) -> None:
        """Raise a sentence where the problem is not of the kind this solver needs.

        Parameters
        ----------
        problem : a problem
            F.

        Raises
        ------
        TypeError
            The problem or its f is of another kind.
        ValueError
            The problem has a penalty, and this solver cannot take one.
        """
        self._check_kind(problem, self.problems, "a problem of the class")
        self._check_kind(problem.outer, self.outers, "an outer function of the class")
        check_penalty(problem, self.takes_penalty, self.name())

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


def stationarity_of_step(
    slope: Array, kappa: Array, decrease: Array, value: Array, noise: Array
) -> Array:
    """Return `stationarity`, or sqrt(2 decrease / |F|) if that is larger: a step says how far from stationary w is
    by the decrease that its model promises too.

    kappa |w+ - w| alone is small wherever kappa is, however far the minimum. A promise up to the noise is rounding.
    """
    size = jnp.maximum(jnp.abs(value), jnp.finfo(value.dtype).tiny)
    promised = jnp.where(decrease > noise, decrease, jnp.zeros_like(decrease))
    return jnp.maximum(stationarity(slope, kappa, value), jnp.sqrt(2 * promised / size))


def check_penalty(problem: AbstractProblem, takes: bool, who: str) -> None:
    """Raise a sentence where a problem has a penalty that its solver cannot take."""
    if problem.penalty is None or takes:
        return
    raise ValueError(
        f"{who} cannot take the penalty of this problem; take prox_linear, pli, svrg or sgd, whose steps are proximal."
    )


def check_solver(solver: Any, name: str = "solver") -> None:
    """Raise a sentence unless solver is one."""
    if isinstance(solver, AbstractSolver):
        return
    found = described(solver)
    # an optimiser is a named tuple of optax, which need not be imported for this
    if type(solver).__module__.partition(".")[0] == "optax":
        found = "an optimiser of optax, which takes gradients in a loop of your own: give it problem.subgradient(w)"
    elif callable(solver) and str(getattr(solver, "__module__", "")).startswith(
        "proxlin."
    ):
        found = f"the function {solver.__name__}: call it with its settings, and give what it returns"
    raise TypeError(f"{name} must be a solver such as px.sgd(0.1); it is {found}.")
