"""Wrappers: averaging, best-so-far, other units, and a stochastic solver in the shape of optax."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import trees
from ..checks import check_parameters, described
from ..cost import Calls, Prices
from ..inners import scaled_input
from ..outers import AbstractOuter
from ..precision import as_jax, in_the_precision_of_w
from ..problem import AbstractProblem, LossOfMean, MeanOfLosses, check_maps
from ..types import Key, Params, dtype_of, is_concrete, is_parameter
from .base import AbstractSolver, Info, check_solver
from .estimators import MiniBatch
from .gauss_newton import GaussNewtonState, StochasticGaussNewton
from .model_based import ModelBased


class AbstractWrapper(AbstractSolver):
    """Something around the steps or the answer of a solver; everything else is forwarded to the
    wrapped solver.
    """

    solver: AbstractSolver

    def __check_init__(self) -> None:
        check_solver(self.solver, f"The solver of {type(self).__name__}")

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Any:
        return self.solver.draw(problem, key, count)

    def epoch(self, problem: AbstractProblem) -> Any:
        return self.solver.epoch(problem)

    def full_batch(self) -> bool:
        return self.solver.full_batch()

    def is_exact(self) -> bool:
        return self.solver.is_exact()

    def is_random(self) -> bool:
        return self.solver.is_random()

    def allows_padding(self) -> bool:
        return self.solver.allows_padding()

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        return self.solver.prices(problem, w)

    def check(self, problem: AbstractProblem) -> None:
        self.solver.check(problem)

    def remedy(self) -> str:
        return self.solver.remedy()

    def name(self) -> str:
        return f"{type(self).__name__}({self.solver.name()})"


class AveragedState(eqx.Module):
    inner: Any
    average: Params
    t: Array


class Averaged(AbstractWrapper):
    """The wrapper that takes the steps of a solver; the answer is the uniform average (1/T)
    sum_{t=1}^T w_t of the iterates.

    Parameters
    ----------
    solver : a solver
        Whose steps are taken.

    See Also
    --------
    BestSoFar : the best iterate in place of the average.
    sgd : a solver that gains by it.

    Examples
    --------
    >>> import proxlin as px
    >>> px.Averaged(px.sgd(0.1)).name()
    'Averaged(sgd)'
    """

    def init(self, problem: AbstractProblem, w: Params) -> AveragedState:
        return AveragedState(self.solver.init(problem, w), w, jnp.zeros((), jnp.int32))

    def step(
        self, problem: AbstractProblem, state: AveragedState, drawn: Any
    ) -> tuple[AveragedState, Info]:
        inner, info = self.solver.step(problem, state.inner, drawn)
        w = self.solver.iterate(inner)
        share = 1 / (state.t + 1).astype(dtype_of(w))
        average = trees.add_scale(state.average, share, trees.sub(w, state.average))
        average = problem.feasible(average)  # rounding may have left the bounds
        return AveragedState(inner, average, state.t + 1), info

    def iterate(self, state: AveragedState) -> Params:
        return state.average


class BestState(eqx.Module):
    inner: Any
    best: Params
    value: Array
    t: Array


class BestSoFar(AbstractWrapper):
    """The wrapper that takes the steps of a solver; the answer is the iterate of least F at the end of
    an epoch, each F paid for.

    Parameters
    ----------
    solver : a solver
        Whose steps are taken.

    See Also
    --------
    Averaged : the average in place of the best iterate.
    sgd : a solver that gains by it.

    Examples
    --------
    >>> import proxlin as px
    >>> px.BestSoFar(px.sgd(0.1)).name()
    'BestSoFar(sgd)'
    """

    def init(self, problem: AbstractProblem, w: Params) -> BestState:
        return BestState(
            self.solver.init(problem, w), w, problem.value(w), jnp.zeros((), jnp.int32)
        )

    def step(
        self, problem: AbstractProblem, state: BestState, drawn: Any
    ) -> tuple[BestState, Info]:
        inner, info = self.solver.step(problem, state.inner, drawn)
        w = self.solver.iterate(inner)
        due = (state.t + 1) % self.solver.epoch(problem) == 0
        value = jax.lax.cond(
            due,
            lambda w: problem.value(w),
            lambda w: jnp.full_like(state.value, jnp.inf),
            w,
        )
        better = value < state.value
        best = trees.where(better, w, state.best)
        calls = Calls(value=due)
        if info.calls is not None:
            calls = calls + info.calls
        state = BestState(
            inner, best, jnp.where(better, value, state.value), state.t + 1
        )
        return state, replace(info, calls=calls)

    def iterate(self, state: BestState) -> Params:
        return state.best

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        prices = self.solver.prices(problem, w)
        value = problem.prices(w).value
        return replace(prices, value=value, init=prices.init + value)


class RescaledState(eqx.Module):
    inner: Any
    scale: Params


class Rescaled(AbstractWrapper):
    """The wrapper for a solver in the units of w: w = scale * e, and it sees e, where every entry is
    about 1.

    It is for curve fits with parameters of many sizes: steps no longer depend on the units in which
    the parameters are measured.

    Parameters
    ----------
    solver : a solver
        Whose steps are taken.
    scale : a tree like w, or None
        Typical sizes above 0; None is |w_j| at the start, 1 where that is 0.

    Raises
    ------
    ValueError
        A size is not above 0.

    See Also
    --------
    prox_linear : a solver that gains by it.
    minimize : takes it as a solver.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> px.Rescaled(px.prox_linear(), scale=np.array([1e-6, 1e3])).name()
    'Rescaled(prox_linear)'
    """

    scale: Params = None

    def __init__(self, solver: AbstractSolver, scale: Params = None):
        self.solver = solver
        self.scale = jax.tree.map(_size, scale)

    def init(self, problem: AbstractProblem, w: Params) -> RescaledState:
        if self.scale is None:
            scale = jax.tree.map(
                lambda x: jnp.where(x == 0, jnp.ones_like(x), jnp.abs(x)), w
            )
        else:
            scale = self._like(w)
        return RescaledState(
            self.solver.init(
                self._seen(problem, scale), jax.tree.map(jnp.divide, w, scale)
            ),
            scale,
        )

    def step(
        self, problem: AbstractProblem, state: RescaledState, drawn: Any
    ) -> tuple[RescaledState, Info]:
        inner, info = self.solver.step(
            self._seen(problem, state.scale), state.inner, drawn
        )
        return RescaledState(inner, state.scale), info

    def _like(self, w: Params) -> Params:
        """The scale in the shapes of w, or a sentence."""
        if jax.tree.structure(self.scale) != jax.tree.structure(w):
            raise ValueError(
                "The scale of Rescaled must have the structure of w; their trees differ."
            )
        try:
            return jax.tree.map(
                lambda x, s: jnp.broadcast_to(jnp.asarray(s, x.dtype), x.shape),
                w,
                self.scale,
            )
        except ValueError as error:
            raise ValueError(
                "The scale of Rescaled must have the shapes of w, or one number for each leaf."
            ) from error

    def _seen(self, problem: AbstractProblem, scale: Params) -> AbstractProblem:
        return eqx.tree_at(
            lambda p: p.inner, problem, scaled_input(problem.inner, scale)
        )

    def iterate(self, state: RescaledState) -> Params:
        return jax.tree.map(jnp.multiply, self.solver.iterate(state.inner), state.scale)

    def check(self, problem: AbstractProblem) -> None:
        if problem.quadratic is not None:
            raise ValueError(
                "Rescaled needs a problem without a ridge: a ridge already says what size of w is small."
            )
        if problem.penalty is not None:
            raise ValueError(
                "Rescaled needs a problem without a penalty, which is in the units of w; take the solver alone."
            )
        self.solver.check(problem)


def _size(x: Any) -> Array | np.ndarray:
    """Return a leaf of a scale as an array, or raise a sentence."""
    given = x if isinstance(x, np.ndarray | jax.Array) else np.asarray(x)
    is_integer = jnp.issubdtype(given.dtype, jnp.integer)
    good = is_integer or jnp.issubdtype(given.dtype, jnp.floating)
    if not good or (
        is_concrete(given) and not np.all((np.asarray(given) > 0) & np.isfinite(given))
    ):
        raise ValueError(
            f"The scale of Rescaled must be a tree like w of numbers above 0; it has {described(x)}."
        )
    if is_integer and isinstance(given, np.ndarray):
        given = given.astype(np.float64)
    elif is_integer:
        given = given.astype(jnp.result_type(float))
    return as_jax(given)


def as_optax(
    solver: AbstractSolver,
    inner: Callable,
    outer: AbstractOuter,
    penalty: Any = None,
) -> Any:
    """Return a solver whose step needs one batch as an optax transformation.

    Call `update(grads, state, params, batch=batch)`:

        update = argmin_x model_B(x) + |x - w|^2 / 2 step - w,     B the batch given, with a leading axis of samples

    The gradients passed in are not used. `sgd`, `truncated` and `stochastic_prox_linear` (the dual Gauss-Newton
    direction of the mini-batch) take B as a mean of losses; `stochastic_gauss_newton` with fresh mini-batches takes it
    as the loss of a mean. The schedule goes on with each update; the batch size is that of the batch. `svrg`,
    `casimir_svrg`, `pli` and the "sarah" and "svrg" estimators need full passes over the data between steps, which an
    update does not see, and `Averaged` and `BestSoFar` an answer apart from the iterate: those are for `minimize`.

    Parameters
    ----------
    solver : a solver
        `sgd`, `truncated`, `stochastic_prox_linear`, or `stochastic_gauss_newton` with fresh
        mini-batches.
    inner : a function of (w, sample)
        phi.
    outer : an outer function
        f.
    penalty : a penalty, a tree of them, or None
        g, the bounds and norms of w, as in `px.MeanOfLosses`.

    Returns
    -------
    an optax transformation
        Its `update` takes `batch=batch`.

    Raises
    ------
    TypeError
        A step of the solver is no function of one batch.
    ValueError
        `update` is called without parameters or without a batch.

    See Also
    --------
    minimize : runs every solver.
    stochastic_prox_linear : the dual Gauss-Newton direction.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import optax
    >>> import proxlin as px
    >>> optimiser = px.as_optax(px.sgd(0.5), lambda w, x: w - x, px.L1())
    >>> w = jnp.zeros(1)
    >>> state = optimiser.init(w)
    >>> update, state = optimiser.update(None, state, w, batch=jnp.array([[1.0], [2.0]]))
    >>> optax.apply_updates(w, update).tolist()
    [0.5]
    """
    check_solver(solver)
    check_maps(inner, outer)
    fresh = isinstance(solver, StochasticGaussNewton) and isinstance(
        solver.estimator, MiniBatch
    )
    if not fresh and not isinstance(solver, ModelBased):
        raise TypeError(
            f"as_optax needs a solver whose step is a function of one batch (sgd, truncated, stochastic_prox_linear, "
            f"stochastic_gauss_newton with fresh mini-batches); {solver.name()} is not. Take minimize."
        )

    def init(params: Params) -> Array:
        return jnp.zeros((), jnp.int32)

    def update(
        updates: Any, state: Any, params: Params = None, *, batch: Any = None, **_: Any
    ) -> tuple[Params, Array]:
        if params is None or batch is None:
            raise ValueError(
                "Call update(grads, state, params, batch=batch): the step needs the parameters and the data."
            )
        kind = LossOfMean if fresh else MeanOfLosses
        problem = kind(inner, outer, batch, penalty=penalty)
        return moved(problem, params, state), state + 1

    @in_the_precision_of_w
    def moved(problem: AbstractProblem, params: Params, t: Array) -> Params:
        params = check_parameters(params, problem.data, "params")
        at, rest = eqx.partition(params, is_parameter)
        problem = problem.bind(rest)
        solver.check(problem)
        return trees.sub(_one_step(solver, problem, at, t), at)

    import optax  # only here: it takes a tenth of a second

    return optax.GradientTransformationExtraArgs(init, update)


def _one_step(
    solver: AbstractSolver, problem: AbstractProblem, w: Params, t: Array
) -> Params:
    """Take step t of a solver, with the whole problem as its batch."""
    if isinstance(solver, StochasticGaussNewton):
        memory = solver.estimator.init(problem, w)  # of fresh mini-batches: nothing
        return solver.step(
            problem, GaussNewtonState(w, memory, t), jnp.arange(len(problem))
        )[0].w
    assert isinstance(solver, ModelBased)
    step = jnp.asarray(solver.schedule(t)).astype(dtype_of(w))
    return solver.model.minimize(problem, w, step, t, None)[0]
