"""Exact prox-linear (modified Gauss-Newton): w+ = argmin_x model(x; w) + kappa/2 |x - w|^2, eq. (3) of the paper."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..cost import Cost
from ..outers import AbstractProximable
from ..problem import AbstractProblem
from ..types import Params, dtype_of, number
from .base import AbstractSolver, Info, State
from .subproblem import Answer, Subsolver

ACCEPT, TRIES = 0.1, 60  # the share of the predicted decrease that a step must give; rejections before a stall


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
        moved = optax.tree.norm(optax.tree.sub(answer.w, w))
        return State(answer.w, state.t + 1), Info(answer.counts, kappa * moved, None, answer.gap)

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
    """The iterate, F there, kappa, and the count of steps."""

    w: Params
    value: Array
    kappa: Array
    t: Array


class ProxLinearAdaptive(AbstractSolver):
    """kappa by accepted model decrease: no step increases F.

    A step is accepted if F(w) - F(w+) >= 0.1 (F(w) - model(w+)), the proximal term in the model. With the ratio r of
    the two, kappa is then scaled by max(1/3, 1 - (2 r - 1)^3) (Nielsen's rule), and by 2, 4, 8, ... at rejections.
    It starts at |v|^2 / F(w), v in dF(w), the weight of a Polyak step.
    """

    outers = AbstractProximable
    instead = "pli"

    subsolver: Subsolver

    def init(self, problem: AbstractProblem, w: Params) -> AdaptiveState:
        value, kappa = first_kappa(problem, w)
        return AdaptiveState(w, value, kappa, jnp.zeros((), jnp.int32))

    def step(self, problem: AbstractProblem, state: AdaptiveState, drawn: Any) -> tuple[AdaptiveState, Info]:
        answer, value, kappa, tries, calls = accepted_step(self.subsolver, problem, state.w, state.value, state.kappa)
        moved = optax.tree.norm(optax.tree.sub(answer.w, state.w))
        keep = value <= state.value
        w = optax.tree.where(keep, answer.w, state.w)
        stalled = ~keep | (tries >= TRIES) | (moved == 0)
        after = AdaptiveState(w, jnp.minimum(value, state.value), kappa, state.t + 1)
        return after, Info({"tries": tries} | calls, kappa * moved, stalled, answer.gap)

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        price = problem.prices(w)
        return self.subsolver.prices(problem, w) | {"tries": price.value, "init": price.subgradient}

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


def accepted_step(
    subsolver: Subsolver, problem: AbstractProblem, w: Params, start: Array, kappa: Array
) -> tuple[Answer, Array, Array, Array, dict[str, Array]]:
    """Solve at w, where F is start, with a growing kappa until the decrease is a fair share of the predicted one.

    Returns the answer, F there, the next kappa, the number of tries and the calls of all of them. When the predicted
    decrease is lost in round-off, the step is taken as it is: nothing better can be had.
    """
    expansion = subsolver.expand(problem, w)
    noise = 10 * jnp.finfo(start.dtype).eps * jnp.maximum(jnp.abs(start), 1)

    def attempt(kappa: Array) -> tuple[Answer, Array, Array]:
        answer = subsolver.solve(problem.linearize(w).regularize(kappa, w), w, expansion)
        value = problem.value(answer.w)
        predicted = start - answer.value
        ratio = (start - value) / jnp.where(predicted > 0, predicted, jnp.ones_like(predicted))
        ratio = jnp.where(jnp.isfinite(value), ratio, -jnp.inf)
        return answer, value, jnp.where(predicted <= noise, jnp.where(value <= start, 1.0, ACCEPT), ratio)

    def again(carry: Any) -> Array:
        _, _, ratio, _, _, tries, _ = carry
        return (ratio < ACCEPT) & (tries < TRIES)

    def body(carry: Any) -> Any:
        _, _, _, kappa, growth, tries, calls = carry
        kappa = kappa * growth
        answer, value, ratio = attempt(kappa)
        return answer, value, ratio, kappa, 2 * growth, tries + 1, jax.tree.map(jnp.add, calls, answer.counts)

    # the first attempt is a turn of the loop too, so that the subsolver is compiled once
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(attempt, kappa))
    one, none = jnp.ones_like(kappa), jnp.zeros((), jnp.int32)
    carry = (nothing[0], nothing[1], jnp.full_like(nothing[2], -jnp.inf), kappa, one, none, nothing[0].counts)
    answer, value, ratio, kappa, _, tries, calls = jax.lax.while_loop(again, body, carry)
    shrink = jnp.maximum(1 / 3, 1 - (2 * jnp.clip(ratio, 0, 1) - 1) ** 3)
    return answer, value, kappa * shrink, tries, calls


class AcceleratedState(eqx.Module):
    """The iterate x, F there, the second sequence z, kappa, and the count of steps."""

    w: Params
    value: Array
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
        return AcceleratedState(w, value, w, kappa, jnp.zeros((), jnp.int32))

    def step(self, problem: AbstractProblem, state: AcceleratedState, drawn: Any) -> tuple[AcceleratedState, Info]:
        x = state.w
        answer, value, kappa, tries, calls = accepted_step(self.subsolver, problem, x, state.value, state.kappa)
        kappa = kappa if self.kappa is None else state.kappa
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
        counts = {"tries": tries + 1} | jax.tree.map(jnp.add, calls, second.counts)
        return AcceleratedState(w, least, z, kappa, state.t + 1), Info(counts, kappa * moved, ~keep, answer.gap)

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
    """w+ = argmin_x sum_i c_i f(u_i(w) + J_i (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2, to a certified gap.

    kappa a number: the paper's iteration, eq. (3), every step taken; None: adaptive, and no step increases F.
    `tol` is the relative gap of a subproblem; `accelerated` adds a second step from an extrapolated point.
    """
    subsolver = Subsolver(number(tol, "tol", low=0.0, open=True))
    if kappa is not None:
        kappa = number(kappa, "kappa", low=0.0, open=True)
    if accelerated:
        return ProxLinearAccelerated(kappa, subsolver)
    return ProxLinearAdaptive(subsolver) if kappa is None else ProxLinearFixed(kappa, subsolver)
