"""The gradient method for f of a mean, with estimates of u = (1/n) sum_i phi_i(w) and of its Jacobian.

    minibatch   w - step J_S(w)' f'(u_B(w)),  B and S fresh
    average     w - step J_S(w)' f'(u_t),     u_t = (1 - weight) u_{t-1} + weight u_B(w)
    sarah, svrg w - step J_t' f'(u_t),        u_t and J_t as in `estimators`

average is the basic method of Wang, Fang and Liu (2017), with a running average of u. The other two take the estimates
of stochastic Gauss-Newton and its step with another model: the linear one in the place of f(u + J (x - w)).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .. import trees
from ..checks import one_of, real, whole
from ..compiled import shapes_of
from ..cost import Prices
from ..problem import AbstractProblem, LossOfMean
from ..schedules import as_schedule
from ..types import Key, Params, dtype_of
from .base import AbstractSolver, Info
from .estimators import Sarah, Svrg
from .gauss_newton import StochasticGaussNewton, step_along_gradient
from .sampling import integers

ESTIMATORS = ("average", "minibatch", "sarah", "svrg")


class CompositionState(eqx.Module):
    """The iterate, the running average of u, and the count of steps."""

    w: Params
    u: Array
    t: Array


class RunningAverage(AbstractSolver):
    """w+ = w - step (J_S(w)' f'(u_t) + the gradient of the quadratic),  u_t = u_{t-1} + weight (u_B(w) - u_{t-1}).

    Two fresh batches a step, with replacement. An epoch is n samples drawn.
    """

    problems = LossOfMean
    instead = "sgd for a mean of losses"

    schedule: Callable
    weight: Callable
    batch_size: int = eqx.field(static=True)
    jacobian_batch_size: int = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> CompositionState:
        u = shapes_of(type(problem).stack, problem, w)
        return CompositionState(
            w, jnp.zeros(u.shape[1:], u.dtype), jnp.zeros((), jnp.int32)
        )

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Array:
        return integers(key, (count, self._drawn()), len(problem))

    def step(
        self, problem: AbstractProblem, state: CompositionState, drawn: Array
    ) -> tuple[CompositionState, Info]:
        w = state.w
        dtype = dtype_of(w)
        B, S = self._batches(problem, drawn)
        # the first average is the first estimate: there is none before it
        weight = jnp.where(state.t == 0, 1, jnp.asarray(self.weight(state.t)))
        u = state.u + weight.astype(dtype) * (B.stack(w)[0] - state.u)
        g = S.pull(w, problem.outer.subgradient(u)[None])
        if problem.quadratic is not None:
            g = trees.add(g, problem.quadratic.gradient(w))
        step = jnp.asarray(self.schedule(state.t)).astype(dtype)
        w = trees.add_scale(w, -step, g)
        return CompositionState(w, u, state.t + 1), Info()

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        B, S = self._batches(problem, jnp.zeros((self._drawn(),), jnp.int32))
        return Prices(step=B.prices(w).value + S.prices(w).pull)

    def epoch(self, problem: AbstractProblem) -> Any:
        return max(1, len(problem) // self._drawn())

    def remedy(self) -> str:
        first = float(jnp.max(jnp.asarray(self.schedule(jnp.zeros((), jnp.int32)))))
        return f"Try a smaller step, such as {first / 10:.2g}."

    def name(self) -> str:
        return "composition_sgd"

    def _drawn(self) -> int:
        return self.batch_size + self.jacobian_batch_size

    def _batches(
        self, problem: AbstractProblem, drawn: Array
    ) -> tuple[AbstractProblem, AbstractProblem]:
        return problem[drawn[: self.batch_size]], problem[drawn[self.batch_size :]]


class Reciprocal(eqx.Module):
    """The schedule t -> 1 / schedule(t): kappa of a step."""

    schedule: Callable

    def __call__(self, t: Array) -> Array:
        return 1 / jnp.asarray(self.schedule(t))


def composition_sgd(
    step: Any,
    batch_size: Any,
    jacobian_batch_size: Any = None,
    estimator: str = "average",
    weight: Any = 0.5,
    period: Any = None,
) -> AbstractSolver:
    """Return w+ = w - step J' f'(u) for f of a mean, u and J estimates.

    It is the gradient method beside `stochastic_gauss_newton`: the same estimates with a linear model. `sgd` on a
    `LossOfMean` has one batch for both, and no memory.

    Parameters
    ----------
    step : a number or a schedule
        The length of a step.
    batch_size : an integer
        The samples of the estimate of the value u.
    jacobian_batch_size : an integer, or None
        Those of the Jacobian, drawn apart; None is as many.
    estimator : a word
        "average" (a running average of u), "minibatch" (fresh batches), "sarah" or "svrg" (with a full pass now and
        then).
    weight : a number or a schedule
        The weight of a new batch in the running average, between 0 and 1.
    period : an integer, or None
        The steps between two full passes of "sarah" and "svrg"; None is once in an epoch.

    Returns
    -------
    a solver
        For `px.minimize`.

    Raises
    ------
    ValueError
        period was given for an estimator without full passes, or a word is unknown.

    See Also
    --------
    LossOfMean : the problem that it is for.
    stochastic_gauss_newton : the same estimates with the prox-linear model.
    sgd : one batch for both, and no memory.

    Examples
    --------
    >>> import proxlin as px
    >>> px.composition_sgd(0.1, batch_size=8).name()
    'composition_sgd'
    """
    one_of(estimator, "estimator", ESTIMATORS)
    schedule = as_schedule(step, "step")
    if not callable(weight):
        weight = real(weight, "weight", low=0.0, open=True)
        if weight > 1:
            raise ValueError(f"weight must be at most 1; it is {weight:g}.")
    weights = as_schedule(weight, "weight")
    batch_size = whole(batch_size, "batch_size")
    if jacobian_batch_size is None:
        jacobian_batch_size = batch_size
    jacobian_batch_size = whole(jacobian_batch_size, "jacobian_batch_size")
    if estimator in ("sarah", "svrg"):
        if period is not None:
            period = jnp.asarray(whole(period, "period"), jnp.int32)
        made = Sarah(period) if estimator == "sarah" else Svrg(period)
        return StochasticGaussNewton(
            Reciprocal(schedule),
            made,
            step_along_gradient,
            batch_size,
            jacobian_batch_size,
        )
    if period is not None:
        raise ValueError(
            'period is for estimator="sarah" or "svrg"; "average" and "minibatch" have no full passes.'
        )
    if estimator == "minibatch":
        weights = as_schedule(1.0, "weight")
    return RunningAverage(schedule, weights, batch_size, jacobian_batch_size)
