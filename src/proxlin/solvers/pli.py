"""PLI: the prox-linear step of eq. (3) by an incremental inner solver, taken unless F increases, or always.

w+ ~ argmin_x (1/n) sum_i f(phi_i(w) + J_i (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..checks import flag, number, one_of, whole
from ..cost import Prices
from ..problem import AbstractProblem
from ..schedules import Constant, as_schedule
from ..types import Key, Params
from .base import Info, State, stationarity
from .casimir import CasimirSVRG
from .dual_ascent import DualAscent
from .model_based import ModelBased
from .models import ProxLinearIncremental
from .wrappers import AbstractWrapper


class MonotoneState(eqx.Module):
    """The state of the solver, and F at its iterate."""

    inner: State
    value: Array


class Monotone(AbstractWrapper):
    """The steps of a solver, each taken only if F does not increase; F is evaluated and paid for at every step."""

    solver: ModelBased

    def init(self, problem: AbstractProblem, w: Params) -> MonotoneState:
        return MonotoneState(self.solver.init(problem, w), problem.value(w))

    def step(self, problem: AbstractProblem, state: MonotoneState, drawn: Key) -> tuple[MonotoneState, Info]:
        old = state.inner
        inner, info = self.solver.step(problem, old, drawn)
        value = problem.value(inner.w)
        keep = value <= state.value
        kappa = 1 / self.solver.size(old)
        slope = kappa * optax.tree.norm(optax.tree.sub(inner.w, old.w))
        measure = jnp.where(keep, stationarity(slope, kappa, state.value), jnp.inf)
        w = optax.tree.where(keep, inner.w, old.w)
        after = State(w, inner.t, inner.memory)
        return MonotoneState(after, jnp.where(keep, value, state.value)), replace(info, measure=measure)

    def iterate(self, state: MonotoneState) -> Params:
        return state.inner.w

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        prices = self.solver.prices(problem, w)
        value = problem.prices(w).value
        return replace(prices, step=prices.step + value, init=prices.init + value)

    def name(self) -> str:
        return self.solver.name()


def pli(
    kappa: Any,
    nu: Any = None,
    inner_passes: Any = 5,
    step: Any = None,
    inner: str | None = None,
    accept: bool = True,
) -> Monotone | ModelBased:
    """Return w+ ~ argmin_x (1/n) sum_i f(phi_i(w) + J_i (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2, unless F grows.

    The subproblem gets `inner_passes` epochs of an incremental inner loop (a number, or a schedule of outer steps):
    inner="casimir_svrg" smooths f by nu (a number or a schedule of outer steps); inner="dual" is block dual coordinate
    ascent, which needs neither nu nor step, and an f with a projection. Not given, it is "casimir_svrg" where nu is
    given and else "dual", the better one at equal cost (docs/decisions/0006). accept=False takes every step, as eq. (3)
    of the paper does, and pays for no value of F; `tol` has then nothing to be compared with.
    """
    if inner is None:
        inner = "dual" if nu is None and step is None else "casimir_svrg"
    one_of(inner, "inner", ("casimir_svrg", "dual"))
    kappa = number(kappa, "kappa", low=0.0, open=True)
    if not callable(inner_passes):
        inner_passes = whole(inner_passes, "inner_passes, where it is no schedule,")
    epochs = as_schedule(inner_passes, "inner_passes")
    if inner == "dual":
        solver = DualAscent()
    else:
        solver = _casimir(nu, step)
    every_step = ModelBased(ProxLinearIncremental(solver, epochs), Constant(1 / kappa), None)
    return Monotone(every_step) if flag(accept, "accept") else every_step


def _casimir(nu: Any, step: Any) -> CasimirSVRG:
    if nu is None:
        raise ValueError('pli(inner="casimir_svrg") needs the smoothing nu; inner="dual" does without.')
    schedule = None if step is None else as_schedule(step, "step")
    return CasimirSVRG(as_schedule(nu, "nu"), None, schedule, "center", True)
