"""SVRG: one epoch of w <- w - step (g_i(w) - g_i(snapshot) + mean g(snapshot) + quadratic'(w))."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from ..checks import flag, number
from ..cost import Cost, Prices
from ..inners import Linearized
from ..problem import AbstractProblem, MeanOfLosses
from ..schedules import as_schedule
from ..types import Key, Params, dtype_of, parameters
from .base import AbstractSolver, Info, State


def svrg_epoch(problem: AbstractProblem, w: Params, step: Array, drawn: Int[Array, " n"], average: bool) -> Params:
    """Return the average (or last) iterate of one epoch from the snapshot w; the quadratic is never sampled.

    g_i(x) - g_i(w) + constant + weight x, where constant = mean g(w) - weight center is added up once.
    """
    if isinstance(problem.inner, Linearized):
        origin = parameters(problem.inner.anchor)
        change, mean = _stored_duals(problem.plain(), w)
    else:
        origin = optax.tree.zeros_like(w)
        change, mean = _two_subgradients(problem.plain(), w)
    start = optax.tree.sub(w, origin)  # the epoch runs in x - origin
    quadratic = problem.quadratic
    constant = mean if quadratic is None else optax.tree.add(mean, quadratic.gradient(origin))

    def body(carry: tuple[Params, Params], i: Array) -> tuple[tuple[Params, Params], None]:
        x, total = carry
        g = optax.tree.add(change(x, i), constant)
        if quadratic is not None:
            g = optax.tree.add_scale(g, quadratic.weight.astype(step.dtype), x)
        x = optax.tree.add_scale(x, -step, g)
        if average:
            total = optax.tree.add(total, x)
        return (x, total), None

    total = optax.tree.zeros_like(w) if average else None
    (x, total), _ = jax.lax.scan(body, (start, total), drawn)
    if average:
        x = optax.tree.scale(jnp.asarray(1 / drawn.shape[0], dtype_of(w)), total)
    return optax.tree.add(origin, x)


def epoch_price(problem: AbstractProblem, w: Params) -> Cost:
    """Return the price of a snapshot and n steps: two subgradients each, or a JVP and a VJP where J_i is fixed."""
    n = len(problem)
    losses = problem.plain().prices(w)
    if not isinstance(problem.inner, Linearized):
        one = problem.plain()[0].prices(w).subgradient
        return losses.subgradient + one * (2 * n)
    snapshot = losses.value + losses.pull
    if problem.in_one_chunk(w):
        snapshot = losses.subgradient
    return snapshot + Cost(n, n, n, n * problem.outer.oracle_calls)


def _two_subgradients(losses: AbstractProblem, snapshot: Params) -> tuple[Callable, Params]:
    """Return the function x, i -> g_i(x) - g_i(snapshot), and the mean of g(snapshot)."""

    def change(x: Params, i: Array) -> Params:
        one = losses[i]
        return optax.tree.sub(one.subgradient(x), one.subgradient(snapshot))

    return change, losses.subgradient(snapshot)


def _stored_duals(losses: AbstractProblem, snapshot: Params) -> tuple[Callable, Params]:
    """Return both as functions of x - anchor, for a linearised problem, where J_i is fixed.

    One VJP pulls the change of the dual variables of a sample; those of the snapshot are kept, 2 n k numbers.
    """
    original, anchor = losses.expanded_at()
    at = parameters(anchor)
    f = losses.outer
    u0 = original.stack(anchor)
    v0 = jax.vmap(f.subgradient)(u0 + original.push(anchor, optax.tree.sub(snapshot, at)))
    mean = original.pull(anchor, v0 * losses.coefficients().astype(v0.dtype)[:, None])
    u0, v0 = losses.whole((u0, v0))

    def change(x: Params, i: Array) -> Params:
        one = original[i]
        _, push = jax.linearize(lambda p: one.stack(p)[0], at)
        v = f.subgradient(u0[i] + push(x)) - v0[i]
        if one.weights is not None:
            v = v * one.weights.astype(v.dtype)
        return jax.linear_transpose(push, x)(v)[0]

    return change, mean


class SVRG(AbstractSolver):
    """Epochs of SVRG on the subgradients (nu None) or on the smoothed losses; one step is one epoch."""

    problems = MeanOfLosses
    instead = "stochastic_gauss_newton"

    schedule: Callable
    nu: Array | None
    average: bool = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> State:
        return State(w, jnp.zeros((), jnp.int32))

    def step(self, problem: AbstractProblem, state: State, drawn: Key) -> tuple[State, Info]:
        n = len(problem)
        smooth = problem if self.nu is None else problem.smooth(self.nu)
        step = jnp.asarray(self.schedule(state.t)).astype(dtype_of(state.w))
        w = svrg_epoch(smooth, state.w, step, jax.random.randint(drawn, (n,), 0, n, jnp.int32), self.average)
        return State(w, state.t + 1), Info()

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        return Prices(step=epoch_price(problem, w))

    def remedy(self) -> str:
        first = float(jnp.max(jnp.asarray(self.schedule(jnp.zeros((), jnp.int32)))))
        return f"Try a smaller step, such as {first / 10:.2g}; it must shrink with nu."

    def name(self) -> str:
        return "svrg"


def svrg(step: Any, nu: Any = 0.0, average: bool = True) -> SVRG:
    """w - step (g_i(w) - g_i(snapshot) + mean g(snapshot)): SVRG, its step a number or a schedule of epochs.

    g_i is the gradient of the loss of sample i smoothed by nu, or a subgradient of the loss itself where nu = 0.0.
    An epoch is a full snapshot and n steps with replacement from it; the next epoch starts at the average of its
    iterates (or at the last). On smoothed losses the step must be of the order nu / max_i |J_i|^2.
    """
    none = isinstance(nu, int | float) and nu == 0 and not isinstance(nu, bool)
    level = None if none else number(nu, "nu", low=0.0, open=True)
    return SVRG(as_schedule(step, "step"), level, flag(average, "average"))
