"""Accept or reject: a step counts if F(w) - F(w+) >= 0.1 (F(w) - model(w+)), the proximal term in the model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..subproblem.solve import Answer

ACCEPT, TRIES = 0.1, 60  # the share of the predicted decrease that a step must give; rejections before a stall


class Damping(eqx.Module):
    """kappa of a prox-linear step; where `curved`, tau <= kappa of a step with curvature, which is tried first.

    With the ratio r of decrease to prediction, kappa is scaled by max(1/3, 1 - (2 r - 1)^3) when accepted (Nielsen's
    rule; tau by max(1/10, .), as the curvature carries the model), and by 2, 4, 8, ... at rejections (tau by 4, 8, ..).
    """

    kappa: Array
    tau: Array
    curved: Array
    growth: Array

    def raised(self) -> "Damping":
        growth = 2 * self.growth
        tau = jnp.where(self.curved, 2 * growth * self.tau, self.tau)
        curved = self.curved & (tau < self.kappa)
        kappa = jnp.where(self.curved, self.kappa, growth * self.kappa)
        return Damping(kappa, jnp.minimum(tau, kappa), curved, jnp.where(self.curved & ~curved, 1, growth))

    def lowered(self, ratio: Array) -> "Damping":
        scale = 1 - (2 * jnp.clip(ratio, 0, 1) - 1) ** 3
        kappa = jnp.where(self.curved, self.kappa, self.kappa * jnp.maximum(1 / 3, scale))
        tau = jnp.where(self.curved, self.tau * jnp.maximum(1 / 10, scale), self.tau)
        return Damping(kappa, tau, self.curved, jnp.ones_like(self.growth))


def plain(kappa: Array) -> Damping:
    """No curvature."""
    return Damping(kappa, kappa, jnp.zeros((), bool), jnp.ones_like(kappa))


class Trial(eqx.Module):
    """The answer of a subproblem, F there, kappa |w+ - w|, and how often F was evaluated."""

    answer: Answer
    value: Array
    measure: Array
    evaluations: Array


class Accepted(eqx.Module):
    """The last trial, the damping for the next step, and the tries, evaluations of F and calls of all trials."""

    trial: Trial
    damping: Damping
    tries: Array
    evaluations: Array
    calls: dict[str, Array]


def accepted(attempt: Callable[[Damping], Trial], start: Array, first: Array, damping: Damping) -> Accepted:
    """Attempts with growing damping, from F = start, until the decrease is a fair share of the predicted one.

    When the predicted decrease is lost in round-off, the step is taken as it is: nothing better can be had. Round-off
    is relative to the size of F now, or at the first iterate if that is larger: a residual phi = prediction - y comes
    with the round-off of y, of which F there gives an idea.
    """

    def share(trial: Trial) -> Array:
        noise = 10 * jnp.finfo(start.dtype).eps * jnp.maximum(trial.answer.scale, jnp.abs(first))
        predicted = start - trial.answer.value
        ratio = (start - trial.value) / jnp.where(predicted > 0, predicted, jnp.ones_like(predicted))
        ratio = jnp.where(jnp.isfinite(trial.value), ratio, -jnp.inf)
        return jnp.where(predicted <= noise, jnp.where(trial.value <= start, 1.0, ACCEPT), ratio)

    def again(carry: Any) -> Array:
        _, ratio, _, tries, _, _ = carry
        return (ratio < ACCEPT) & (tries < TRIES)

    def body(carry: Any) -> Any:
        _, _, damping, tries, evaluations, calls = carry
        damping = jax.tree.map(lambda x, y: jnp.where(tries > 0, x, y), damping.raised(), damping)
        trial = attempt(damping)
        calls = jax.tree.map(jnp.add, calls, trial.answer.counts)
        return trial, share(trial), damping, tries + 1, evaluations + trial.evaluations, calls

    # the first attempt is a turn of the loop too, so that the subsolver is compiled once
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(attempt, damping))
    none = jnp.zeros((), jnp.int32)
    carry = (nothing, jnp.full_like(start, -jnp.inf), damping, none, none, nothing.answer.counts)
    trial, ratio, damping, tries, evaluations, calls = jax.lax.while_loop(again, body, carry)
    return Accepted(trial, damping.lowered(ratio), tries, evaluations, calls)
