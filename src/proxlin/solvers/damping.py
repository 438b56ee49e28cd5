"""Accept or reject: a step counts if F(w) - F(w+) >= 0.1 (F(w) - model(w+)), the proximal term in
the model.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..cost import Calls
from ..subproblem import Answer

ACCEPT = 0.1  # the share of the predicted decrease that a step must give
# rejections before a step counts as stalled: kappa has then grown beyond all numbers
TRIES = 60


class Damping(eqx.Module):
    """How much the next step is held back: kappa of a plain prox-linear step, and tau of a step
    with curvature.

    tau is at most kappa. Where `curved` is set, a step with curvature is tried before a plain one.

    With the ratio r of decrease to prediction, kappa is scaled by max(1/3, 1 - (2 r - 1)^3) when
    accepted (Nielsen's rule; tau by max(1/10, .), as the curvature carries the model), and by 2, 4,
    8, ... at rejections (tau by 4, 8, ..).
    """

    kappa: Array
    tau: Array
    curved: Array
    growth: Array

    def raised(self) -> "Damping":
        """Return the damping after a rejection."""
        growth = 2 * self.growth
        tau = jnp.where(self.curved, 2 * growth * self.tau, self.tau)
        curved = self.curved & (tau < self.kappa)
        kappa = jnp.where(self.curved, self.kappa, growth * self.kappa)
        # Plain steps that follow curved ones begin with the first growth again.
        growth = jnp.where(self.curved & ~curved, 1, growth)
        return Damping(kappa, jnp.minimum(tau, kappa), curved, growth)

    def lowered(self, ratio: Array) -> "Damping":
        """Return the damping after a step that gave this ratio of its predicted decrease."""
        scale = 1 - (2 * jnp.clip(ratio, 0, 1) - 1) ** 3
        kappa = jnp.where(
            self.curved, self.kappa, self.kappa * jnp.maximum(1 / 3, scale)
        )
        tau = jnp.where(self.curved, self.tau * jnp.maximum(1 / 10, scale), self.tau)
        return Damping(kappa, tau, self.curved, jnp.ones_like(self.growth))


def plain(kappa: Array) -> Damping:
    """Return the damping of a step without curvature."""
    return Damping(kappa, kappa, jnp.zeros((), bool), jnp.ones_like(kappa))


class Trial(eqx.Module):
    """The answer of a subproblem, F there, kappa |w+ - w|, and the calls that it took."""

    answer: Answer
    value: Array
    slope: Array
    calls: Calls


class Accepted(eqx.Module):
    """The last trial, its ratio, the damping for the next step, the number of trials, and the calls
    of all of them.
    """

    trial: Trial
    ratio: Array
    damping: Damping
    tries: Array
    calls: Calls


def accepted(
    attempt: Callable[[Damping], Trial], start: Array, first: Array, damping: Damping
) -> Accepted:
    """Attempt steps with growing damping, from F = start, until the decrease is a fair share of the
    predicted one.
    """
    # It is traced once: for the shapes here, and for the loop.
    attempt = jax.jit(attempt)

    def again(found: Accepted) -> Array:
        return (found.ratio < ACCEPT) & (found.tries < TRIES)

    def body(found: Accepted) -> Accepted:
        raised = found.damping.raised()
        damping = jax.tree.map(
            lambda x, y: jnp.where(found.tries > 0, x, y), raised, found.damping
        )
        trial = attempt(damping)
        answer = trial.answer
        ratio = share(trial.value, answer.value, answer.scale, start, first)
        return Accepted(
            trial, ratio, damping, found.tries + 1, found.calls + trial.calls
        )

    # The first attempt is a turn of the loop too, so that the subsolver is compiled once.
    shapes = jax.eval_shape(attempt, damping)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    before = Accepted(
        nothing, jnp.full_like(start, -jnp.inf), damping, jnp.int32(0), Calls()
    )
    found = jax.lax.while_loop(again, body, before)
    return eqx.tree_at(
        lambda found: found.damping, found, found.damping.lowered(found.ratio)
    )


def noise_of(scale: Array, first: Array) -> Array:
    """Return the decrease of F that is lost in round-off, where F has this size, and `first` at the first iterate."""
    return 10 * jnp.finfo(scale.dtype).eps * jnp.maximum(scale, jnp.abs(first))


def share(
    value: Array, model: Array, scale: Array, start: Array, first: Array
) -> Array:
    """Return the decrease of F from `start` to `value` over the one that the model predicts.

    When the predicted decrease is lost in round-off, the step is taken as it is: nothing better can
    be had. Round-off is relative to the size of F now, or at the first iterate if that is larger: a
    residual phi = prediction - y comes with the round-off of y, of which F there gives an idea.
    """
    noise = noise_of(scale, first)
    predicted = start - model
    positive = jnp.where(predicted > 0, predicted, jnp.ones_like(predicted))
    ratio = (start - value) / positive
    ratio = jnp.where(jnp.isfinite(value), ratio, -jnp.inf)
    in_noise = jnp.where(value <= start, 1.0, ACCEPT)
    return jnp.where(predicted <= noise, in_noise, ratio)
