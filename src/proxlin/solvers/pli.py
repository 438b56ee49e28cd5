"""PLI: the prox-linear step of eq. (3) by an incremental inner solver, taken unless F increases, or
always.

w+ ~ argmin_x (1/n) sum_i f(phi_i(w) + J_i (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .. import trees
from ..checks import flag, number, one_of, whole
from ..cost import Prices
from ..problem import AbstractProblem
from ..schedules import AbstractSchedule, as_schedule
from ..types import Key, Number, Params
from .base import Info, State, stationarity_of_step
from .casimir import CasimirSVRG
from .damping import noise_of
from .dual_ascent import DualAscent
from .model_based import ModelBased
from .models import ProxLinearIncremental
from .wrappers import AbstractWrapper

INNER = ("casimir_svrg", "svrg", "dual")


class OneOver(AbstractSchedule):
    """1 / kappa: the step of a proximal term. It is infinite where kappa is 0."""

    kappa: Number

    def __call__(self, t: Any) -> Number:
        return 1 / self.kappa


class MonotoneState(eqx.Module):
    """The state of the solver, and F at its iterate."""

    inner: State
    value: Array


class Monotone(AbstractWrapper):
    """The steps of PLI, each taken only if F does not increase.

    At every new point F is evaluated and paid for, in one pass with the snapshot that the next step
    would start from there. After a rejected step the old one is still there. Where nu is a schedule
    that one belongs to the nu before; its duals are as good for the variance, and the steps have
    the mean of the new nu.
    """

    solver: ModelBased

    def init(self, problem: AbstractProblem, w: Params) -> MonotoneState:
        inner = self.solver.init(problem, w)
        value, seen = self._model.look(problem, w, inner.memory.t)
        return MonotoneState(_with(inner, w, seen), value)

    def step(
        self, problem: AbstractProblem, state: MonotoneState, drawn: Key
    ) -> tuple[MonotoneState, Info]:
        old = state.inner
        inner, info = self.solver.step(problem, old, drawn)
        value, seen = self._model.look(problem, inner.w, inner.memory.t)
        keep = value <= state.value
        kappa = _curvature(problem, 1 / self.solver.size(old))
        slope = kappa * trees.norm(trees.sub(inner.w, old.w))
        # The model is not minimised exactly, so what the step brought stands for what it promised.
        here = jnp.abs(state.value)
        measure = stationarity_of_step(
            slope, kappa, state.value - value, state.value, noise_of(here, here)
        )
        measure = jnp.where(keep, measure, jnp.inf)
        w = trees.where(keep, inner.w, old.w)
        seen = trees.where(keep, seen, old.memory.seen)
        value = jnp.where(keep, value, state.value)
        return MonotoneState(_with(inner, w, seen), value), replace(
            info, measure=measure
        )

    def iterate(self, state: MonotoneState) -> Params:
        return state.inner.w

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        prices = self.solver.prices(problem, w)
        see, value = self._model.look_prices(problem, w)
        return replace(prices, step=prices.step + value, init=prices.init + see + value)

    def name(self) -> str:
        return self.solver.name()

    @property
    def _model(self) -> ProxLinearIncremental:
        model = self.solver.model
        assert isinstance(model, ProxLinearIncremental)
        return model


def _with(state: State, w: Params, seen: Any) -> State:
    """Return the state at w, with what was seen there."""
    return State(w, state.t, replace(state.memory, seen=seen))


def _curvature(problem: AbstractProblem, kappa: Array) -> Array:
    """Return kappa, or the ridge where kappa is 0: then the ridge is what ends the step."""
    if problem.quadratic is None:
        return kappa
    return jnp.where(kappa > 0, kappa, problem.quadratic.weight.astype(kappa.dtype))


def pli(
    kappa: Any,
    nu: Any = None,
    inner_passes: Any = 5,
    step: Any = None,
    inner: str | None = None,
    accept: bool = True,
    catalyst: Any = None,
) -> Monotone | ModelBased:
    """Return w+ ~ argmin_x (1/n) sum_i f(phi_i(w) + J_i (x - w)) + ridge/2 |x|^2 + kappa/2 |x -
    w|^2, unless F grows.

    The subproblem gets `inner_passes` epochs of an incremental inner loop (a number, or a schedule
    of outer steps). Not given, the loop is "casimir_svrg" where nu is given and else "dual", the
    better one at equal cost (docs/decisions/0006). kappa may be 0 where the problem has a ridge.

    - inner="casimir_svrg" smooths f by nu and extrapolates between epochs of SVRG. `catalyst` is
      the proximal weight of these epochs; not given, it is 1 / (step (n + 1)) less ridge and kappa.
    - inner="svrg" smooths f by nu and runs epochs of SVRG, each from the average of the one before.
    - inner="dual" is block dual coordinate ascent, which needs neither nu nor step, and an f with a
      projection.

    nu, step and catalyst are numbers or schedules of outer steps. accept=False takes every step, as
    eq. (3) of the paper does, and pays for no value of F; `tol` has then nothing to be compared
    with.

    Parameters
    ----------
    kappa : a number
        The weight of the proximal term, at least 0.
    nu : a number or a schedule of outer steps, or None
        The smoothing of f in the inner loop.
    inner_passes : an integer or a schedule of outer steps
        The epochs that a subproblem gets.
    step : a number or a schedule of outer steps, or None
        The step of SVRG; None is found from the Jacobians.
    inner : "casimir_svrg", "svrg", "dual", or None
        The inner loop.
    accept : True or False
        Whether a step is taken only if F does not grow.
    catalyst : a number or a schedule of outer steps, or None
        The proximal weight of the epochs of "casimir_svrg".

    Returns
    -------
    a solver
        For `px.minimize`.

    Raises
    ------
    ValueError
        A setting belongs to another inner loop, or nu is missing.

    See Also
    --------
    prox_linear : solves the subproblem exactly.
    casimir_svrg, svrg : the inner loops as solvers.
    stochastic_gauss_newton : the method for `LossOfMean`.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w**2 - x, px.L1(), np.array([[1.0], [4.0], [9.0]]))
    >>> px.minimize(p, np.ones(1), px.pli(kappa=0.5), steps=10).w.round(3).tolist()
    [2.0]
    """
    if inner is None:
        inner = "dual" if nu is None and step is None else "casimir_svrg"
    one_of(inner, "inner", INNER)
    kappa = number(kappa, "kappa", low=0.0)
    if not callable(inner_passes):
        inner_passes = whole(inner_passes, "inner_passes, where it is no schedule,")
    epochs = as_schedule(inner_passes, "inner_passes")
    if catalyst is not None and inner != "casimir_svrg":
        raise ValueError(
            f'catalyst is a setting of pli(inner="casimir_svrg"), which needs nu; here inner is "{inner}".'
        )
    if inner == "dual":
        solver = DualAscent()
    else:
        solver = _smoothed(nu, step, inner, catalyst)
    every_step = ModelBased(ProxLinearIncremental(solver, epochs), OneOver(kappa), None)
    return Monotone(every_step) if flag(accept, "accept") else every_step


def _smoothed(nu: Any, step: Any, inner: str, catalyst: Any) -> CasimirSVRG:
    if nu is None:
        raise ValueError(
            f'pli(inner="{inner}") needs the smoothing nu; inner="dual" does without.'
        )
    weight = None if catalyst is None else as_schedule(catalyst, "catalyst")
    if inner == "svrg":
        weight = no_catalyst
    schedule = None if step is None else as_schedule(step, "step")
    return CasimirSVRG(as_schedule(nu, "nu"), weight, schedule, "center", True)


def no_catalyst(t: Array) -> Array:
    """Return 0: then alpha = 1 and beta = 0 in Casimir's recursion, and what is left is SVRG."""
    return jnp.zeros(())
