"""Casimir-SVRG: an SVRG epoch on F_nu + kappa/2 |w - z|^2, then extrapolate z (facts of arXiv
1902.03228, Alg. 4).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .. import trees
from ..checks import flag, one_of
from ..cost import Calls, Cost, Prices
from ..problem import AbstractProblem, MeanOfLosses, value_of_stack
from ..schedules import Constant, as_schedule
from ..types import Key, Params, dtype_of
from .base import AbstractInnerSolver, Info
from .svrg import Snapshot, epoch_price, snapshot_at, steps_price, svrg_epoch

SAMPLES = 16  # samples that the estimate of max_i |J_i|^2 looks at
ROUNDS = 6  # power iterations for each of them
SAFETY = 1.5  # a power iteration is from below, and other samples may have more
WARM_STARTS = ("center", "extrapolation", "previous")


def largest_jacobian(problem: AbstractProblem, w: Params) -> Array:
    """Estimate max_i s_i |J_i(w)|^2 over evenly spaced samples, by power iterations from below,
    times 1.5.
    """
    n = len(problem)
    losses = problem.plain()

    def one(i: Array) -> Array:
        _, push = jax.linearize(losses[i].stack, w)
        pull = jax.linear_transpose(push, w)

        def round(v: Array, _: None) -> tuple[Array, Array]:
            image = push(pull(v)[0])
            size = jnp.sqrt(jnp.sum(image * image))
            return image / jnp.where(size > 0, size, jnp.ones_like(size)), size

        k = problem.outputs(w)
        first = jnp.full((1, k), 1 / k**0.5, dtype_of(w))
        return jax.lax.scan(round, first, None, ROUNDS)[1][-1]

    sizes = jax.lax.map(one, jnp.linspace(0, n - 1, min(n, SAMPLES)).astype(jnp.int32))
    if problem.weights is None:
        return SAFETY * jnp.max(sizes)
    weight = jnp.max(problem.weights).astype(dtype_of(w))
    return SAFETY * weight * jnp.max(sizes)


def norm_price(problem: AbstractProblem, w: Params) -> Cost:
    return Cost(phi=1, jvp=ROUNDS, vjp=ROUNDS) * min(len(problem), SAMPLES)


class CasimirState(eqx.Module):
    """w_k, the centers z_k and z_{k-1}, alpha_k, the estimate of max |J_i|^2, and k.

    Of a subproblem also the snapshot at its anchor, where the first epoch starts.
    """

    w: Params
    z: Params
    z_old: Params
    alpha: Array
    norm: Array
    t: Array
    seen: Snapshot | None = None


class CasimirSVRG(AbstractInnerSolver):
    """w_k ~ argmin F_nu(w) + kappa/2 |w - z_{k-1}|^2 by one SVRG epoch; z_k = w_k + beta_k (w_k -
    w_{k-1}).

    alpha_k solves alpha_k^2 (kappa_{k+1} + lam) = (1 - alpha_k) alpha_{k-1}^2 (kappa_k + lam) +
    alpha_k lam, lam the weight of the problem's quadratic; beta_k = a (1 - a) r / (a^2 r + alpha_k
    r'), a = alpha_{k-1}, r = kappa_k + lam. Without a step: 1 / (L + lam + kappa), L = max |J_i|^2
    / nu; with one, L is 1 / step. Without a kappa: L / (n + 1) - lam, or L / (n + 1) where that is
    not positive.
    """

    problems = MeanOfLosses
    instead = "stochastic_gauss_newton"
    takes_penalty = True

    nu: Callable
    kappa: Callable | None
    schedule: Callable | None
    warm_start: str = eqx.field(static=True)
    average: bool = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> CasimirState:
        dtype = dtype_of(w)
        norm = (
            largest_jacobian(problem, w)
            if self.schedule is None
            else jnp.ones((), dtype)
        )
        zero = jnp.zeros((), jnp.int32)
        lam = _ridge(problem, dtype)
        golden = jnp.asarray((5**0.5 - 1) / 2, dtype)
        start = jnp.sqrt(lam / (lam + self._kappa(problem, w, norm, zero)))
        return CasimirState(w, w, w, jnp.where(lam > 0, start, golden), norm, zero)

    def step(
        self, problem: AbstractProblem, state: CasimirState, drawn: Key
    ) -> tuple[CasimirState, Info]:
        n = len(problem)
        dtype = dtype_of(state.w)
        nu = jnp.asarray(self.nu(state.t)).astype(dtype)
        lam = _ridge(problem, dtype)
        kappa = self._kappa(problem, state.w, state.norm, state.t)
        after = self._kappa(problem, state.w, state.norm, state.t + 1)
        sub = problem.smooth(nu).regularize(kappa, state.z)
        bound = self._bound(sub, state.w, state.norm, state.t)
        if self.schedule is None:
            bound = bound + (lam + kappa)
        step = 1 / bound
        indices = jax.random.randint(drawn, (n,), 0, n, jnp.int32)
        start = self._start(problem, state, kappa, lam)
        snapshot = None
        if state.seen is not None:
            # Epoch 0 starts at the anchor. `cond` keeps one epoch in the program where a loop that
            # begins with it apart would have two.
            snapshot = jax.lax.cond(
                state.t == 0,
                lambda: state.seen,
                lambda: snapshot_at(sub, start),
            )
        w = svrg_epoch(sub, start, step, indices, self.average, snapshot)

        a = state.alpha
        r = kappa + lam
        r1 = after + lam
        b = a * a * r - lam
        alpha = (-b + jnp.sqrt(b * b + 4 * r * r1 * a * a)) / (2 * r1)
        beta = a * (1 - a) * r / (a * a * r + alpha * r1)
        # phi is not asked outside of bounds
        z = problem.feasible(trees.add_scale(w, beta, trees.sub(w, state.w)))
        new = CasimirState(w, z, state.z, alpha, state.norm, state.t + 1, state.seen)
        return new, Info()

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        init = norm_price(problem, w) if self.schedule is None else Cost()
        return Prices(
            step=epoch_price(problem, w),
            init=init,
            subgradient=problem.plain().prices(w).subgradient,
            epoch=steps_price(problem, w),
        )

    # As the inner solver of PLI.

    def see(self, problem: AbstractProblem, w: Params) -> Snapshot:
        """Return the snapshot of the smoothed losses."""
        nu = jnp.asarray(self.nu(jnp.zeros((), jnp.int32))).astype(dtype_of(w))
        return snapshot_at(problem.smooth(nu), w)

    def value(self, problem: AbstractProblem, w: Params, seen: Snapshot) -> Array:
        return value_of_stack(problem, seen.u, w)

    def sight(self, problem: AbstractProblem, w: Params) -> tuple[Cost, Cost]:
        price = problem.prices(w)
        return price.subgradient, Cost(oracle=price.value.oracle)

    def restart(
        self, problem: AbstractProblem, w: Params, memory: None, seen: Snapshot
    ) -> CasimirState:
        return replace(self.init(problem, w), seen=seen)

    def calls(self, epochs: Array) -> Calls:
        """Return n steps for each epoch, and a snapshot for each but the first, which was seen."""
        snapshots = jnp.maximum(epochs - 1, jnp.zeros_like(epochs))
        return Calls(epoch=epochs, subgradient=snapshots)

    def frozen(self, t: Array) -> "CasimirSVRG":
        return CasimirSVRG(
            Constant(self.nu(t)),
            None if self.kappa is None else Constant(self.kappa(t)),
            None if self.schedule is None else Constant(self.schedule(t)),
            self.warm_start,
            self.average,
        )

    def remedy(self) -> str:
        return "Try a smaller step or a larger nu; the step must shrink with nu."

    def name(self) -> str:
        return "casimir_svrg"

    def _bound(
        self, smooth: AbstractProblem, w: Params, norm: Array, t: Array
    ) -> Array:
        """Return L: the smoothness max |J_i|^2 / nu of the losses, or 1 / step where a step was
        given.
        """
        if self.schedule is not None:
            return 1 / jnp.asarray(self.schedule(t)).astype(dtype_of(w))
        return norm * jnp.asarray(smooth.outer.smoothness(smooth.outputs(w))).astype(
            dtype_of(w)
        )

    def _kappa(
        self, problem: AbstractProblem, w: Params, norm: Array, t: Array
    ) -> Array:
        dtype = dtype_of(w)
        if self.kappa is not None:
            return jnp.asarray(self.kappa(t)).astype(dtype)
        zero = jnp.zeros_like(t)
        first = problem.smooth(jnp.asarray(self.nu(zero)).astype(dtype))
        share = self._bound(first, w, norm, zero) / (len(problem) + 1)
        lam = _ridge(problem, dtype)
        return jnp.where(share > lam, share - lam, share)

    def _start(
        self, problem: AbstractProblem, state: CasimirState, kappa: Array, lam: Array
    ) -> Params:
        if self.warm_start == "center":
            return state.z
        if self.warm_start == "previous":
            return state.w
        return problem.feasible(
            trees.add_scale(
                state.w, kappa / (kappa + lam), trees.sub(state.z, state.z_old)
            )
        )


def casimir_svrg(
    nu: Any,
    kappa: Any = None,
    step: Any = None,
    warm_start: str = "center",
    average: bool = True,
) -> CasimirSVRG:
    """Return Casimir-SVRG, w_k ~ argmin_w F_nu(w) + kappa/2 |w - z_{k-1}|^2 by one SVRG epoch; z_k =
    w_k + beta_k (w_k - w_{k-1}).

    It is smoothing and Catalyst extrapolation around SVRG.

    Parameters
    ----------
    nu : a number or a schedule of epochs
        The smoothing of f.
    kappa : a number or a schedule of epochs, or None
        The weight of the proximal term; None is L / (n + 1) - ridge, or L / (n + 1) where that is
        not positive, L = 1 / step.
    step : a number or a schedule of epochs, or None
        The step of SVRG; None is 1 / (L + ridge + kappa), L = max_i |J_i|^2 / nu.
    warm_start : a word
        Where an epoch starts: "center" at z, "previous" at w, "extrapolation" between them.
    average : True or False
        Whether an epoch ends at the average of its iterates, or at the last.

    Returns
    -------
    a solver
        For `px.minimize`.

    See Also
    --------
    svrg : has no extrapolation.
    pli : uses it for subproblems.

    Examples
    --------
    >>> import proxlin as px
    >>> px.casimir_svrg(nu=0.1, step=0.05).nu
    Constant(s=0.1)
    """
    return CasimirSVRG(
        as_schedule(nu, "nu"),
        None if kappa is None else as_schedule(kappa, "kappa"),
        None if step is None else as_schedule(step, "step"),
        one_of(warm_start, "warm_start", WARM_STARTS),
        flag(average, "average"),
    )


def _ridge(problem: AbstractProblem, dtype: Any) -> Array:
    return (
        jnp.zeros((), dtype)
        if problem.quadratic is None
        else problem.quadratic.weight.astype(dtype)
    )
