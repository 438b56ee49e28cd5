"""Convex models of F at w and their proximal minimisers, argmin_x model(x) + |x - w|^2 / 2 step."""

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .. import subproblem, trees
from ..checks import number
from ..cost import Calls, Cost, Prices
from ..problem import AbstractProblem, Expansion, LinearMap, MeanOfLosses
from ..shown import shown
from ..types import Key, Number, Params
from .base import AbstractInnerSolver, Info, stationarity_of_step
from .damping import noise_of

HALVINGS = 30  # of [0, 1] in a truncated step: a billionth of the step


class AbstractModel(eqx.Module):
    """A convex model of F around w, with its proximal minimiser.

        w+ = argmin_x model(x) + |x - w|^2 / 2 step

    Write `minimize`, `prices` and `name` for a model of your own.

    See Also
    --------
    ModelBased : makes a solver of it.
    Info, Prices : what its methods return.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import optax
    >>> import proxlin as px
    >>> class Normalized(px.AbstractModel):
    ...     "<v, x - w> / |v|, v in dF(w): the step w - step v / |v|."
    ...
    ...     def minimize(self, problem, w, step, key, memory):
    ...         v = problem.subgradient(w)
    ...         length = jnp.maximum(optax.tree.norm(v), 1e-30)
    ...         return optax.tree.add_scale(w, -step / length, v), None, px.Info()
    ...
    ...     def prices(self, problem, w):
    ...         return px.Prices(step=problem.prices(w).subgradient)
    ...
    ...     def name(self, full_batch):
    ...         return "normalized"
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> solver = px.ModelBased(Normalized(), px.Constant(0.5), batch_size=None)
    >>> px.minimize(p, np.zeros(1), solver, steps=4).w.round(6).tolist()
    [2.0]
    """

    one_pass: ClassVar[bool] = True  # a step on the full batch sees all the data once
    exact: ClassVar[bool] = False  # it is minimised exactly
    # whether its minimiser is that of model + g, g the penalty of the problem
    takes_penalty: ClassVar[bool] = False

    def __repr__(self) -> str:
        return shown(self)

    @abc.abstractmethod
    def minimize(
        self,
        problem: AbstractProblem,
        w: Params,
        step: Array,
        key: Key | None,
        memory: Any,
    ) -> tuple[Params, Any, Info]:
        """Return argmin_x model(x) + |x - w|^2 / 2 step, the memory for the next step, and the
        certificate.

        Parameters
        ----------
        problem : a problem
            F, or a batch of it.
        w : a tree
            The iterate.
        step : a number
            The step; 1 / step is kappa.
        key : a key or indices, or None
            What was drawn for this step.
        memory : a tree, or None
            What the step before has left.

        Returns
        -------
        a triple
            The new w, the memory, and an `Info`.
        """

    @abc.abstractmethod
    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        """Return what a minimisation costs.

        Parameters
        ----------
        problem : a problem
            F, or a batch of it.
        w : a tree
            The parameters, of which the shapes count.

        Returns
        -------
        `Prices`
            The price of a step and of each call.
        """

    @abc.abstractmethod
    def name(self, full_batch: bool) -> str:
        """Return the name of the method that takes these steps.

        Parameters
        ----------
        full_batch : True or False
            Whether a step sees all the data.

        Returns
        -------
        a word
            The name that a `Solution` shows.
        """

    def init(self, problem: AbstractProblem, w: Params) -> Any:
        """Return the memory before the first step.

        Parameters
        ----------
        problem : a problem
            F.
        w : a tree
            The start.

        Returns
        -------
        a tree, or None
            The memory.
        """
        return None

    def check(self, problem: AbstractProblem) -> None:
        """Raise a sentence where the model does not fit the problem.

        Parameters
        ----------
        problem : a problem
            F.
        """

    def remedy(self, step: float) -> str:
        """Return what to try after a divergence.

        Parameters
        ----------
        step : a number
            The first step of the schedule.

        Returns
        -------
        a text
            One sentence.
        """
        return f"Try a smaller step, such as {step / 10:.2g}."


class Linear(AbstractModel):
    """The model F(w) + <v, x - w>, v in dF(w): the subgradient step w - step v.

    Of a problem with a penalty g, v is a slope of F - g, and the model has g in it as it is: the
    step is prox_g(w - step v).

    See Also
    --------
    sgd, subgradient_descent : solvers with this model.
    ModelBased : makes a solver of it.

    Examples
    --------
    >>> import proxlin as px
    >>> from proxlin.solvers import Linear
    >>> px.ModelBased(Linear(), px.Constant(0.1), batch_size=1).name()
    'sgd'
    """

    takes_penalty: ClassVar[bool] = True

    def minimize(
        self,
        problem: AbstractProblem,
        w: Params,
        step: Array,
        key: Key | None,
        memory: Any,
    ) -> tuple[Params, Any, Info]:
        if problem.penalty is None:
            return trees.add_scale(w, -step, problem.subgradient(w)), None, Info()
        v = problem.unpenalized().subgradient(w)
        ahead = trees.add_scale(w, -step, v)
        return problem.penalty.prox(ahead, step), None, Info()

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        return Prices(step=problem.prices(w).subgradient)

    def name(self, full_batch: bool) -> str:
        return "subgradient_descent" if full_batch else "sgd"


class Truncated(AbstractModel):
    """The model max(F(w) + <v, x - w>, lower): the Polyak step w - min(step, (F(w) - lower) / |v|^2)
    v.

    Of a problem with a penalty g the line is that of F - g, and the step minimises max(line, lower) +
    g(x) + |x - w|^2 / 2 step: it is prox_g(w - t step v) with t in [0, 1], by bisection.

    Parameters
    ----------
    lower : a number
        A lower bound of F (of F - g) on every batch.

    See Also
    --------
    truncated : the solver with this model.
    ModelBased : makes a solver of it.

    Examples
    --------
    >>> import proxlin as px
    >>> from proxlin.solvers import Truncated
    >>> px.ModelBased(Truncated(0.0), px.Constant(0.1), batch_size=1).name()
    'truncated'
    """

    takes_penalty: ClassVar[bool] = True

    lower: Number

    def __init__(self, lower: Any = 0.0):
        self.lower = number(lower, "The lower bound of a truncated model")

    def minimize(
        self,
        problem: AbstractProblem,
        w: Params,
        step: Array,
        key: Key | None,
        memory: Any,
    ) -> tuple[Params, Any, Info]:
        if problem.penalty is not None:
            return self._proximal(problem, w, step), None, Info()
        value, v = problem.value_and_subgradient(w)
        square = jnp.asarray(trees.vdot(v, v))
        above = jnp.maximum(
            value - self.lower.astype(value.dtype), jnp.zeros_like(value)
        )
        polyak = above / jnp.where(square > 0, square, jnp.ones_like(square))
        return trees.add_scale(w, -jnp.minimum(step, polyak), v), None, Info()

    def _proximal(self, problem: AbstractProblem, w: Params, step: Array) -> Params:
        """Return x(t) = prox_g(w - t step v) with the largest t in [0, 1] at which the line is still
        at least `lower`; the line falls with t.
        """
        value, v = problem.unpenalized().value_and_subgradient(w)
        lower = self.lower.astype(value.dtype)
        penalty = problem.penalty
        assert penalty is not None

        def at(t: Array) -> Params:
            return penalty.prox(trees.add_scale(w, -t * step, v), step)

        def is_above(t: Array) -> Array:
            way = trees.sub(at(t), w)
            return value + trees.vdot(v, way) >= lower

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            above = is_above(middle)
            return jnp.where(above, middle, low), jnp.where(above, high, middle)

        zero = jnp.zeros_like(value)
        one = jnp.ones_like(value)

        def search() -> Array:
            return jax.lax.fori_loop(0, HALVINGS, halve, (zero, one))[0]

        return at(jax.lax.cond(is_above(one), lambda: one, search))

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        return Prices(step=problem.prices(w).subgradient)

    def name(self, full_batch: bool) -> str:
        return "truncated"


class ProxLinear(AbstractModel):
    """The model sum_i c_i f(u_i(w) + J_i (x - w)), eq. (3) of the paper, minimised exactly: the
    modified Gauss-Newton step. A penalty of the problem is in the model as it is.

    Parameters
    ----------
    tol : a number
        The relative gap to which it is minimised.

    See Also
    --------
    prox_linear, stochastic_prox_linear : solvers with this model.
    solve_subproblem : one such step, with its certificate.
    ModelBased : makes a solver of it.

    Examples
    --------
    >>> import proxlin as px
    >>> from proxlin.solvers import ProxLinear
    >>> px.ModelBased(ProxLinear(), px.Constant(0.1), batch_size=8).name()
    'stochastic_prox_linear'
    """

    exact: ClassVar[bool] = True
    takes_penalty: ClassVar[bool] = True

    tol: Number = eqx.field(default=1e-10, converter=lambda x: number(x, "tol"))

    def minimize(
        self,
        problem: AbstractProblem,
        w: Params,
        step: Array,
        key: Key | None,
        memory: Any,
    ) -> tuple[Params, Any, Info]:
        kappa = 1 / step
        answer = self.solve(problem, self.expand(problem, w), kappa)
        slope = kappa * trees.norm(trees.sub(answer.w, w))
        assert answer.start is not None
        size = answer.scale
        promised = answer.start - answer.value
        measure = stationarity_of_step(
            slope, kappa, promised, size, noise_of(size, size)
        )
        calls = None
        if not subproblem.is_exact(problem, w):
            calls = Calls(push=answer.pushes, pull=answer.pulls)
        return answer.w, None, Info(calls, measure, None, answer.gap)

    def expand(
        self, problem: AbstractProblem, w: Params
    ) -> Expansion | LinearMap | subproblem.AbstractStructured:
        """Return the expansion at w, which the subproblems with different kappa share.

        Parameters
        ----------
        problem : a problem
            F, or a batch of it.
        w : a tree
            Where phi is expanded.

        Returns
        -------
        an `Expansion`, an `AbstractStructured` or a `LinearMap`
            The second where the Jacobian has a structure that pays, the third where it is too
            large to form.
        """
        return subproblem.expand(problem, w)

    def solve(
        self,
        problem: AbstractProblem,
        expansion: Expansion | LinearMap | subproblem.AbstractStructured,
        kappa: Array,
        v0: Array | None = None,
        share: float | None = None,
    ) -> subproblem.Answer:
        """Return argmin_x of the model at expansion.w plus kappa/2 |x - w|^2.

        Parameters
        ----------
        problem : a problem
            F, or a batch of it.
        expansion : an `Expansion`, an `AbstractStructured` or a `LinearMap`
            What `expand` returned.
        kappa : a number
            The weight of the proximal term.
        v0 : an array (m, k), or None
            Dual variables to start from.
        share : a number, or None
            Where a structure allows it, the gap may also be this share of the decrease of the
            model.

        Returns
        -------
        an `Answer`
            The minimiser, the value and the certified gap.
        """
        quadratic = subproblem.proximal(problem, kappa, expansion.w)
        return subproblem.solve(
            expansion,
            quadratic,
            problem.outer,
            self.tol,
            penalty=problem.penalty,
            v0=v0,
            share=share,
        )

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        return subproblem.prices(problem, w)

    def name(self, full_batch: bool) -> str:
        return "prox_linear" if full_batch else "stochastic_prox_linear"

    def check(self, problem: AbstractProblem) -> None:
        subproblem.dual_set(problem.outer)

    def remedy(self, step: float) -> str:
        return (
            f"Try a larger kappa, such as {10 / step:.2g}, or None for an adaptive one."
        )


class IncrementalMemory(eqx.Module):
    """The count of outer steps, what the inner solver keeps from one to the next, and what it has
    seen at w.

    `seen` is None where nobody looked: then a step begins by looking.
    """

    t: Array
    kept: Any
    seen: Any = None


class ProxLinearIncremental(AbstractModel):
    """The model of eq. (3), minimised by `epochs(t)` steps of an incremental solver: PLI.

    The subproblem is a problem and the subsolver is a solver.
    """

    one_pass: ClassVar[bool] = False
    takes_penalty: ClassVar[bool] = True

    inner: AbstractInnerSolver
    epochs: Callable[[Array], Any]

    def init(self, problem: AbstractProblem, w: Params) -> IncrementalMemory:
        return IncrementalMemory(
            jnp.zeros((), jnp.int32), self.inner.remember(problem, w)
        )

    def minimize(
        self,
        problem: AbstractProblem,
        w: Params,
        step: Array,
        key: Key,
        memory: IncrementalMemory,
    ) -> tuple[Params, IncrementalMemory, Info]:
        t = memory.t
        solver = self.inner.frozen(t)
        seen = solver.see(problem, w) if memory.seen is None else memory.seen
        epochs = jnp.asarray(self.epochs(t)).astype(jnp.int32)
        sub = problem.linearize(w).regularize(1 / step, w)  # eq. (3)

        def epoch(j: Array, state: Any) -> Any:
            again, state = _hidden(sub, state)
            return solver.step(again, state, jax.random.fold_in(key, j))[0]

        state = solver.restart(sub, w, memory.kept, seen)
        state = jax.lax.fori_loop(0, epochs, epoch, state)
        new = solver.iterate(state)
        info = Info(solver.calls(epochs), gap=solver.gap(sub, state))
        return new, IncrementalMemory(t + 1, solver.keep(state), memory.seen), info

    def look(self, problem: AbstractProblem, w: Params, t: Array) -> tuple[Array, Any]:
        """Return F(w), and what outer step t need not look at again if it starts at w."""
        solver = self.inner.frozen(t)
        seen = solver.see(problem, w)
        return solver.value(problem, w, seen), seen

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        """Return what a minimisation costs with one look at its anchor, before it or in it."""
        price = self.inner.prices(problem.linearize(w), w)
        see, _ = self.inner.sight(problem, w)
        return replace(price, step=price.init + see, init=Cost())

    def look_prices(self, problem: AbstractProblem, w: Params) -> tuple[Cost, Cost]:
        """Return the prices of the two parts of a look: what it sees, and F."""
        return self.inner.sight(problem, w)

    def name(self, full_batch: bool) -> str:
        return "pli"

    def check(self, problem: AbstractProblem) -> None:
        if not isinstance(problem, MeanOfLosses):
            raise TypeError(
                f"pli needs a problem of the class MeanOfLosses; it got {type(problem).__name__}. "
                f"Take stochastic_gauss_newton."
            )
        self.inner.check(problem)

    def remedy(self, step: float) -> str:
        return "Try a smaller step."


def _hidden(sub: AbstractProblem, state: Any) -> tuple[AbstractProblem, Any]:
    """Hide the anchor behind a barrier, so that XLA does not keep phi of every sample there."""
    _, anchor = sub.expanded_at()
    anchor, state = jax.lax.optimization_barrier((anchor, state))
    return eqx.tree_at(lambda p: p.inner.anchor, sub, anchor), state
