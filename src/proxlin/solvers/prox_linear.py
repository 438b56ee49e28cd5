"""Exact prox-linear (modified Gauss-Newton): w+ = argmin_x model(x; w) + kappa/2 |x - w|^2, eq. (3)
of the paper.

With a fixed kappa it is `ModelBased(ProxLinear(tol), Constant(1 / kappa), None)`. Here are the two
methods that choose kappa or the point of expansion themselves.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import subproblem, trees
from ..checks import flag, number, whole
from ..cost import Calls, Prices
from ..outers import AbstractProximable
from ..problem import AbstractProblem
from ..schedules import Constant
from ..subproblem.newton import SHARE
from ..types import Number, Params
from . import curvature
from .base import AbstractSolver, Info, stationarity_of_step
from .damping import TRIES, Accepted, Damping, Trial, accepted, noise_of, plain
from .model_based import ModelBased
from .models import ProxLinear

# A sweep is damped by this share of kappa: rows with fewer samples than entries need some.
DAMPING = 1e-3
# Another sweep is worth its calls if the last one gained this share of the step before them.
GAIN = 0.1


class AdaptiveState(eqx.Module):
    """The iterate, F there and at the first one, kappa, the count of steps, the memory of curved
    steps, if any, and the last dual variables where the next subproblem can start from them.
    """

    w: Params
    value: Array
    first: Array
    kappa: Array
    t: Array
    memory: curvature.Memory | None
    dual: Float[Array, "m k"] | None = None


class ProxLinearAdaptive(AbstractSolver):
    """Prox-linear steps, with kappa by accepted model decrease (damping.py): no step increases F.

    kappa starts at |v|^2 / F(w), v in dF(w), the weight of a Polyak step. Where shapes allow it and
    steps have become slow, the curvature of phi along the kinks of f takes the place of kappa
    (curvature.py). So many sweeps over the rows of w may follow a step (subproblem/sweeps.py).
    """

    outers = AbstractProximable
    instead = "pli"

    model: ProxLinear
    sweeps: int = eqx.field(static=True, default=0)

    def init(self, problem: AbstractProblem, w: Params) -> AdaptiveState:
        value, kappa = first_kappa(problem, w)
        memory = curvature.remember(problem, w)
        dual = None
        if subproblem.ends_early(problem, w):
            dual = jnp.zeros((len(problem), problem.outputs(w)), value.dtype)
        none = jnp.zeros((), jnp.int32)
        return AdaptiveState(w, value, value, kappa, none, memory, dual)

    def step(
        self, problem: AbstractProblem, state: AdaptiveState, drawn: Any
    ) -> tuple[AdaptiveState, Info]:
        w = state.w
        start = state.value
        found, memory, calls = self._found(problem, state)
        trial = found.trial
        keep = trial.value <= start
        moved = trees.norm(trees.sub(trial.answer.w, w))
        stalled = ~keep | (found.tries >= TRIES) | (moved == 0)
        new = trees.where(keep, trial.answer.w, w)
        least = jnp.minimum(trial.value, start)
        if self.sweeps and subproblem.rows_of(problem, w) is not None:
            new, least, count = swept(problem, new, start, least, state.kappa, self.sweeps)  # fmt: skip
            stalled = ~(least < start)
            calls = calls + count
        kappa = found.damping.kappa
        dual = None if state.dual is None else trial.answer.v
        after = AdaptiveState(new, least, state.first, kappa, state.t + 1, memory, dual)
        size = trial.answer.scale
        measure = stationarity_of_step(
            trial.slope,
            state.kappa,
            start - trial.answer.value,
            size,
            noise_of(size, state.first),
        )
        return after, Info(calls, measure, stalled, trial.answer.gap)

    def _found(
        self, problem: AbstractProblem, state: AdaptiveState
    ) -> tuple[Accepted, curvature.Memory | None, Calls]:
        """Return the accepted step, a plain one or one with curvature, the memory for the next one,
        and the calls.
        """
        if state.memory is None:
            found = prox_linear_step(
                self.model,
                problem,
                state.w,
                state.value,
                state.first,
                state.kappa,
                state.dual,
            )
            return found, None, found.calls
        plan = curvature.plan(problem, state.w, state.value, state.memory)
        tau = jnp.minimum(state.memory.tau, state.kappa)
        damping = Damping(state.kappa, tau, plan.curved, jnp.ones_like(state.value))

        def attempt(damping: Damping) -> Trial:
            return curvature.attempt(problem, plan, damping, self.model.tol)

        found = accepted(attempt, state.value, state.first, damping)
        memory = curvature.recall(problem, plan, found)
        return found, memory, found.calls + Calls(pull=plan.frame.pulls)

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        price = problem.prices(w)
        return replace(
            self.model.prices(problem, w),
            init=price.subgradient,
            value=price.value,
            pull=price.pull,
            expand=price.expand,
        )

    def check(self, problem: AbstractProblem) -> None:
        self.model.check(problem)

    def full_batch(self) -> bool:
        return True

    def is_exact(self) -> bool:
        return True

    def is_random(self) -> bool:
        return False

    def allows_padding(self) -> bool:
        return True

    def name(self) -> str:
        return "prox_linear"


class Swept(eqx.Module):
    """The iterate, F there, the gain of the last sweep, and the number of sweeps."""

    w: Params
    value: Array
    gain: Array
    count: Array


def swept(
    problem: AbstractProblem,
    w: Params,
    start: Array,
    value: Array,
    kappa: Array,
    most: int,
) -> tuple[Params, Array, Calls]:
    """Return w after so many sweeps at most, F there, and the calls; a sweep is kept only if F falls.

    Sweeps end when one gains less than a share of what the step before them did, from F = start.
    """
    shape = subproblem.rows_of(problem, w)
    assert shape is not None
    enough = GAIN * (start - value)

    def going(s: Swept) -> Array:
        worth = (s.gain >= enough) & (s.gain > 0)
        return (s.count < most) & worth

    def again(s: Swept) -> Swept:
        ahead = subproblem.sweep(problem, s.w, DAMPING * kappa)
        value = problem.value(ahead)
        better = value < s.value
        new = trees.where(better, ahead, s.w)
        gain = jnp.where(better, s.value - value, 0)
        return Swept(new, jnp.where(better, value, s.value), gain, s.count + 1)

    far = jnp.full_like(value, jnp.inf)
    end = jax.lax.while_loop(going, again, Swept(w, value, far, jnp.int32(0)))
    leaves = len(shape.by_rows)
    calls = Calls(expand=leaves * end.count, value=(leaves + 1) * end.count)
    return end.w, end.value, calls


def first_kappa(problem: AbstractProblem, w: Params) -> tuple[Array, Array]:
    """Return F(w) and |v|^2 / F(w), v in dF(w)."""
    value, v = problem.value_and_subgradient(w)
    size = jnp.maximum(jnp.abs(value), jnp.finfo(value.dtype).tiny ** 0.5)
    square = jnp.asarray(trees.vdot(v, v))
    return value, jnp.where(square > 0, square / size, jnp.ones_like(size))


def prox_linear_step(
    model: ProxLinear,
    problem: AbstractProblem,
    w: Params,
    start: Array,
    first: Array,
    kappa: Array,
    dual: Float[Array, "m k"] | None = None,
) -> Accepted:
    """Solve at w, where F is start, with a growing kappa until the step is accepted.

    With dual variables to start from, a subproblem may also end at a gap of SHARE of the decrease that its model
    predicts.
    """
    expansion = model.expand(problem, w)
    share = None if dual is None else SHARE

    def attempt(damping: Damping) -> Trial:
        answer = model.solve(problem, expansion, damping.kappa, dual, share)
        moved = trees.norm(trees.sub(answer.w, w))
        calls = Calls(value=1, push=answer.pushes, pull=answer.pulls)
        slope = damping.kappa * moved
        if share is not None:
            # The exact minimiser is no farther from the answer than this.
            slope = slope + jnp.sqrt(2 * damping.kappa * answer.gap)
        return Trial(answer, problem.value(answer.w), slope, calls)

    return accepted(attempt, start, first, plain(kappa))


class AcceleratedState(eqx.Module):
    """The iterate x, F there and at the first one, the second sequence z, kappa, and the count of
    steps.
    """

    w: Params
    value: Array
    first: Array
    z: Params
    kappa: Array
    t: Array


class ProxLinearAccelerated(AbstractSolver):
    """The accelerated method of Drusvyatskiy and Paquette: two prox-linear steps, from x and from
    y.

    y = a z + (1 - a) x, a = 2 / (t + 2); x' = the better of PL(x) and PL(y); z' = x + (PL(y) - x) /
    a. kappa is fixed, or the one that the step from x accepted. No step increases F.
    """

    outers = AbstractProximable
    instead = "pli"

    kappa: Number | None
    model: ProxLinear

    def init(self, problem: AbstractProblem, w: Params) -> AcceleratedState:
        value, kappa = first_kappa(problem, w)
        if self.kappa is not None:
            kappa = self.kappa.astype(kappa.dtype)
        return AcceleratedState(w, value, value, w, kappa, jnp.zeros((), jnp.int32))

    def step(
        self, problem: AbstractProblem, state: AcceleratedState, drawn: Any
    ) -> tuple[AcceleratedState, Info]:
        x = state.w
        found = prox_linear_step(
            self.model, problem, x, state.value, state.first, state.kappa
        )
        of_x = found.trial.answer
        value = found.trial.value
        kappa = state.kappa if self.kappa is not None else found.damping.kappa

        a = 2 / (state.t.astype(value.dtype) + 2)
        y = trees.add(trees.scale(a, state.z), trees.scale(1 - a, x))
        y = problem.feasible(y)  # phi is not asked outside of bounds
        of_y = self.model.solve(problem, self.model.expand(problem, y), kappa)
        ahead = problem.value(of_y.w)
        z = trees.add_scale(x, 1 / a, trees.sub(of_y.w, x))

        x_is_better = (value <= ahead) | ~jnp.isfinite(ahead)
        best = trees.where(x_is_better, of_x.w, of_y.w)
        least = jnp.where(x_is_better, value, ahead)
        keep = least <= state.value
        new = trees.where(keep, best, x)
        least = jnp.where(keep, least, state.value)
        after = AcceleratedState(new, least, state.first, z, kappa, state.t + 1)

        moved = trees.norm(trees.sub(of_x.w, x))
        measure = stationarity_of_step(
            kappa * moved,
            state.kappa,
            state.value - of_x.value,
            of_x.scale,
            noise_of(of_x.scale, state.first),
        )
        calls = found.calls + Calls(value=1, push=of_y.pushes, pull=of_y.pulls)
        return after, Info(calls, measure, ~keep, of_x.gap)

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        prices = ProxLinearAdaptive(self.model).prices(problem, w)
        return replace(prices, step=prices.step * 2)

    def check(self, problem: AbstractProblem) -> None:
        self.model.check(problem)

    def full_batch(self) -> bool:
        return True

    def is_exact(self) -> bool:
        return True

    def is_random(self) -> bool:
        return False

    def allows_padding(self) -> bool:
        return True

    def name(self) -> str:
        return "prox_linear"


def prox_linear(
    kappa: Any = None,
    tol: Any = 1e-10,
    accelerated: bool = False,
    sweeps: int = 0,
) -> AbstractSolver:
    """Return the exact prox-linear method, w+ = argmin_x sum_i c_i f(u_i(w) + J_i (x - w)) + ridge/2
    |x|^2 + kappa/2 |x - w|^2.

    With a number for kappa it is the paper's iteration, and every step is taken; with None, kappa
    is adapted, and a step is taken if it decreases F.

    Parameters
    ----------
    kappa : a positive number, or None
        The weight of the proximal term; None is adaptive.
    tol : a positive number
        The relative gap to which a subproblem is solved. With an adaptive kappa, a subproblem of `px.touches` may also
        end at a gap of 0.3 of the decrease that its model predicts.
    accelerated : True or False
        Whether to take the accelerated method of Drusvyatskiy and Paquette.
    sweeps : an integer
        How many sweeps may follow a step of an adaptive kappa. A sweep takes a step in each array of w of which each
        sample touches one row (`px.touches`), row by row, and its calls are counted. Problems without such an array,
        or with a penalty on groups of w, have none.

    Returns
    -------
    a solver
        For `px.minimize` and `px.solve`.

    Raises
    ------
    ValueError
        kappa or tol is not positive, or sweeps are asked for with a fixed kappa or an accelerated method.

    See Also
    --------
    pli : needs no matrix.
    stochastic_prox_linear : looks at one batch in a step.
    solve_subproblem : one step, with its certificate.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w**2 - x, px.L1(), jnp.array([[1.0], [4.0], [9.0]]))
    >>> result = px.solve(p, jnp.ones(1), px.prox_linear(), tol=1e-6)
    >>> result.w.round(6).tolist(), str(px.Status(int(result.status)))
    ([2.0], 'converged')
    """
    model = ProxLinear(number(tol, "tol", low=0.0, open=True))
    count = whole(sweeps, "sweeps", low=0)
    if count and (kappa is not None or flag(accelerated, "accelerated")):
        raise ValueError(
            "sweeps need an adaptive kappa and a method that is not accelerated; leave out kappa and accelerated, or "
            "sweeps."
        )
    if kappa is not None:
        kappa = number(kappa, "kappa", low=0.0, open=True)
    if flag(accelerated, "accelerated"):
        return ProxLinearAccelerated(kappa, model)
    if kappa is None:
        return ProxLinearAdaptive(model, count)
    return ModelBased(model, Constant(1 / kappa), None)
