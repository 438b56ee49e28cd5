"""Exact prox-linear (modified Gauss-Newton): w+ = argmin_x model(x; w) + kappa/2 |x - w|^2, eq. (3) of the paper."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..checks import flag, number
from ..cost import Cost
from ..outers import AbstractProximable
from ..problem import AbstractProblem
from ..subproblem.solve import Subsolver
from ..types import Params, dtype_of
from . import curvature as newton
from .base import AbstractSolver, Info, State, stationarity
from .damping import TRIES, Accepted, Damping, Trial, accepted, plain


class ProxLinearFixed(AbstractSolver):
    """The paper's iteration: kappa fixed, every step taken."""

    outers = AbstractProximable
    instead = "pli"

    kappa: Array
    subsolver: Subsolver

    def init(self, problem: AbstractProblem, w: Params) -> State:
        return State(w, jnp.zeros((), jnp.int32))

    def step(self, problem: AbstractProblem, state: State, drawn: Any) -> tuple[State, Info]:
        w = state.w
        kappa = self.kappa.astype(dtype_of(w))
        answer = self.subsolver.solve(problem.linearize(w).regularize(kappa, w), w)
        moved = kappa * optax.tree.norm(optax.tree.sub(answer.w, w))
        measure = stationarity(moved, kappa, answer.scale)
        return State(answer.w, state.t + 1), Info(answer.counts, measure, None, answer.gap)

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        return self.subsolver.prices(problem, w)

    def check(self, problem: AbstractProblem) -> None:
        self.subsolver.check(problem)

    def remedy(self) -> str:
        return f"Try a larger kappa, such as {float(jnp.max(self.kappa)) * 10:.2g}, or None for an adaptive one."

    def full_batch(self) -> bool:
        return True

    def name(self) -> str:
        return "prox_linear"


class AdaptiveState(eqx.Module):
    """The iterate, F there and at the first one, kappa, the count of steps, and the memory of curved steps, if any."""

    w: Params
    value: Array
    first: Array
    kappa: Array
    t: Array
    memory: newton.Memory | None


class ProxLinearAdaptive(AbstractSolver):
    """kappa by accepted model decrease (accept.py): no step increases F.

    It starts at |v|^2 / F(w), v in dF(w), the weight of a Polyak step. Where shapes allow it and steps have become
    slow, the curvature of phi along the kinks of f takes the place of kappa (newton.py).
    """

    outers = AbstractProximable
    instead = "pli"

    subsolver: Subsolver

    def init(self, problem: AbstractProblem, w: Params) -> AdaptiveState:
        value, kappa = first_kappa(problem, w)
        memory = newton.remember(self.subsolver, problem, w)
        return AdaptiveState(w, value, value, kappa, jnp.zeros((), jnp.int32), memory)

    def step(self, problem: AbstractProblem, state: AdaptiveState, drawn: Any) -> tuple[AdaptiveState, Info]:
        w, start, memory = state.w, state.value, state.memory
        problem = self.subsolver.placed(problem, w)
        if memory is None:
            found, counts = prox_linear_step(self.subsolver, problem, w, start, state.first, state.kappa), {}
        else:
            old, plan = memory, newton.plan(problem, w, start, memory)
            damping = Damping(state.kappa, jnp.minimum(memory.tau, state.kappa), plan.curved, jnp.ones_like(start))
            attempt = lambda x: newton.attempt(self.subsolver, problem, w, old, plan, x)
            found = accepted(attempt, start, state.first, damping)
            memory, counts = newton.recall(old, problem, w, plan, found), {"pulls": plan.frame.pulls}
        trial = found.trial
        keep = trial.value <= start
        moved = optax.tree.norm(optax.tree.sub(trial.answer.w, w))
        after = optax.tree.where(keep, trial.answer.w, w)
        stalled = ~keep | (found.tries >= TRIES) | (moved == 0)
        counts = counts | {"values": found.evaluations} | found.calls
        least = jnp.minimum(trial.value, start)
        after = AdaptiveState(after, least, state.first, found.damping.kappa, state.t + 1, memory)
        measure = stationarity(trial.measure, state.kappa, trial.answer.scale)
        return after, Info(counts, measure, stalled, trial.answer.gap)

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        price = problem.prices(w)
        more = {"values": price.value, "pulls": price.pull, "init": price.subgradient}
        return self.subsolver.prices(problem, w) | more

    def check(self, problem: AbstractProblem) -> None:
        self.subsolver.check(problem)

    def full_batch(self) -> bool:
        return True

    def name(self) -> str:
        return "prox_linear"


def first_kappa(problem: AbstractProblem, w: Params) -> tuple[Array, Array]:
    """F(w) and |v|^2 / F(w), v in dF(w)."""
    value, v = problem.value_and_subgradient(w)
    size = jnp.maximum(jnp.abs(value), jnp.finfo(value.dtype).tiny ** 0.5)
    square = jnp.asarray(optax.tree.vdot(v, v))
    return value, jnp.where(square > 0, square / size, jnp.ones_like(size))


def prox_linear_step(
    subsolver: Subsolver, problem: AbstractProblem, w: Params, start: Array, first: Array, kappa: Array
) -> Accepted:
    """Solve at w, where F is start, with a growing kappa."""
    expansion = subsolver.expand(problem, w)

    def attempt(damping: Damping) -> Trial:
        answer = subsolver.solve(problem.linearize(w).regularize(damping.kappa, w), w, expansion)
        moved = optax.tree.norm(optax.tree.sub(answer.w, w))
        return Trial(answer, problem.value(answer.w), damping.kappa * moved, jnp.ones((), jnp.int32))

    return accepted(attempt, start, first, plain(kappa))


class AcceleratedState(eqx.Module):
    """The iterate x, F there and at the first one, the second sequence z, kappa, and the count of steps."""

    w: Params
    value: Array
    first: Array
    z: Params
    kappa: Array
    t: Array


class ProxLinearAccelerated(AbstractSolver):
    """The accelerated method of Drusvyatskiy and Paquette: two prox-linear steps, from x and from y.

    y = a z + (1 - a) x, a = 2 / (t + 2); x' = the better of PL(x) and PL(y); z' = x + (PL(y) - x) / a. kappa is fixed,
    or the one that the step from x accepted. No step increases F.
    """

    outers = AbstractProximable
    instead = "pli"

    kappa: Array | None
    subsolver: Subsolver

    def init(self, problem: AbstractProblem, w: Params) -> AcceleratedState:
        value, kappa = first_kappa(problem, w)
        kappa = kappa if self.kappa is None else self.kappa.astype(kappa.dtype)
        return AcceleratedState(w, value, value, w, kappa, jnp.zeros((), jnp.int32))

    def step(self, problem: AbstractProblem, state: AcceleratedState, drawn: Any) -> tuple[AcceleratedState, Info]:
        x = state.w
        found = prox_linear_step(self.subsolver, problem, x, state.value, state.first, state.kappa)
        answer, value = found.trial.answer, found.trial.value
        kappa = found.damping.kappa if self.kappa is None else state.kappa
        a = 2 / (state.t.astype(value.dtype) + 2)
        y = optax.tree.add(optax.tree.scale(a, state.z), optax.tree.scale(1 - a, x))
        second = self.subsolver.solve(problem.linearize(y).regularize(kappa, y), y)
        ahead = problem.value(second.w)
        first = (value <= ahead) | ~jnp.isfinite(ahead)
        best, least = optax.tree.where(first, answer.w, second.w), jnp.where(first, value, ahead)
        keep = least <= state.value
        moved = optax.tree.norm(optax.tree.sub(answer.w, x))
        z = optax.tree.add_scale(x, 1 / a, optax.tree.sub(second.w, x))
        w, least = optax.tree.where(keep, best, x), jnp.where(keep, least, state.value)
        counts = {"values": found.evaluations + 1} | jax.tree.map(jnp.add, found.calls, second.counts)
        measure = stationarity(kappa * moved, state.kappa, answer.scale)
        after = AcceleratedState(w, least, state.first, z, kappa, state.t + 1)
        return after, Info(counts, measure, ~keep, answer.gap)

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        prices = ProxLinearAdaptive(self.subsolver).prices(problem, w)
        return prices | {"step": prices["step"] * 2}

    def check(self, problem: AbstractProblem) -> None:
        self.subsolver.check(problem)

    def full_batch(self) -> bool:
        return True

    def name(self) -> str:
        return "prox_linear"


def prox_linear(kappa: Any = None, tol: Any = 1e-10, accelerated: bool = False) -> AbstractSolver:
    """The exact prox-linear method; kappa a number: the paper's iteration, every step taken; None: adaptive."""
    subsolver = Subsolver(number(tol, "tol", low=0.0, open=True))
    if kappa is not None:
        kappa = number(kappa, "kappa", low=0.0, open=True)
    if flag(accelerated, "accelerated"):
        return ProxLinearAccelerated(kappa, subsolver)
    return ProxLinearAdaptive(subsolver) if kappa is None else ProxLinearFixed(kappa, subsolver)
