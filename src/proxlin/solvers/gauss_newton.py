"""Stochastic Gauss-Newton for f of a mean: w+ = argmin_x f(u + J (x - w)) + kappa/2 |x - w|^2, u and J estimates.

The dual of a step has k variables, one for each output:

    min_v  |J'v|^2 / (2 kappa) - <u, v> + f*(v),      x = w - J'v / kappa
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..checks import one_of, whole
from ..cost import Cost
from ..inners import Linearized
from ..outers import AbstractProximable
from ..problem import AbstractProblem, LossOfMean
from ..schedules import as_schedule
from ..subproblem.solve import Expansion, General, Subsolver, cone_of
from ..types import Key, Params, dtype_of
from .base import AbstractSolver, Info
from .estimators import AbstractEstimator, Batches, MiniBatch, Sarah, Svrg
from .sampling import integers

ESTIMATORS, SUBSOLVERS = ("minibatch", "sarah", "svrg"), ("exact", "apg")


class AbstractStep(eqx.Module):
    """argmin_x f(u + J (x - w)) + quadratic(x) + kappa/2 |x - w|^2 for given u and J."""

    @abc.abstractmethod
    def minimize(self, problem: AbstractProblem, w: Params, kappa: Array, at: Expansion) -> tuple[Params, Array | None]:
        """The minimiser, and its certified gap where there is one."""

    @abc.abstractmethod
    def check(self, problem: AbstractProblem) -> None:
        """Raise a sentence where f is not of the kind that is needed."""


class ExactStep(AbstractStep):
    """By the exact dual solver, to machine precision."""

    def minimize(self, problem: AbstractProblem, w: Params, kappa: Array, at: Expansion) -> tuple[Params, Array]:
        original = problem.expanded_at()[0] if isinstance(problem.inner, Linearized) else problem
        answer = Subsolver(tol=0.0).solve(original.linearize(w).regularize(kappa, w), w, at)
        return answer.w, answer.gap

    def check(self, problem: AbstractProblem) -> None:
        try:
            known = not isinstance(cone_of(problem)[0], General)
        except TypeError:
            known = False
        if not known:
            raise TypeError(
                f'stochastic_gauss_newton(subsolver="exact") needs an outer function of proxlin with a projection; '
                f'it got {type(problem.outer).__name__}. Take subsolver="apg".'
            )


class AcceleratedStep(AbstractStep):
    """By accelerated proximal gradient on the dual (ADPG of Tran-Dinh et al. 2020, the solver of the paper).

    v+ = prox_{f*/L}(y - (J J'y / M - u) / L),  L = |J J'|_F / M,  y = v+ + (tau - 1) / tau+ (v+ - v)
    """

    tol: Array = eqx.field(default=1e-6, converter=jnp.asarray)  # of the relative change of v, as theirs ...
    max_iterations: int = eqx.field(default=100, static=True)  # ... and so is this

    def minimize(self, problem: AbstractProblem, w: Params, kappa: Array, at: Expansion) -> tuple[Params, None]:
        quadratic = problem.regularize(kappa, w).quadratic
        assert quadratic is not None
        dtype, outer = dtype_of(w), problem.outer
        assert isinstance(outer, AbstractProximable)
        J, M = at.jacobian[0], quadratic.weight.astype(dtype)
        center, unravel = ravel_pytree(quadratic.center)
        u = at.u[0] + J @ (center - ravel_pytree(w)[0])
        G = J @ J.T / M
        L = jnp.sqrt(jnp.sum(G * G))
        L = jnp.where(L > 0, L, jnp.ones_like(L))
        tol = self.tol.astype(dtype)

        def body(carry: Any) -> Any:
            v, y, tau, _, t = carry
            z = y - (G @ y - u) / L
            new = z - outer.prox(L * z, L) / L  # Moreau
            after = (1 + jnp.sqrt(1 + 4 * tau * tau)) / 2
            moved = jnp.sum((new - v) ** 2) > tol * tol * jnp.sum(new * new)
            return new, new + (tau - 1) / after * (new - v), after, moved, t + 1

        zero = jnp.zeros_like(u)
        start = (zero, zero, jnp.ones((), dtype), jnp.asarray(True), jnp.int32(0))
        v = jax.lax.while_loop(lambda c: c[3] & (c[4] < self.max_iterations), body, start)[0]
        return unravel(center - v @ J / M), None

    def check(self, problem: AbstractProblem) -> None:
        pass


class GaussNewtonState(eqx.Module):
    """The iterate, what the estimator remembers, and the count of steps."""

    w: Params
    memory: Any
    t: Array


class StochasticGaussNewton(AbstractSolver):
    """w+ = argmin_x f(u_t + J_t (x - w)) + quadratic(x) + kappa_t/2 |x - w|^2; every step is taken.

    Two fresh batches a step, with replacement, for the value and for the Jacobian; without a size of its own the
    Jacobian shares the batch of the value. An epoch is n samples drawn.
    """

    outers = AbstractProximable
    problems = LossOfMean
    instead = "stochastic_prox_linear for a mean of losses, or sgd"

    kappa: Callable
    estimator: AbstractEstimator
    subsolver: AbstractStep
    batch_size: int = eqx.field(static=True)
    jacobian_batch_size: int | None = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> GaussNewtonState:
        return GaussNewtonState(w, self.estimator.init(problem, w), jnp.zeros((), jnp.int32))

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Array:
        return integers(key, (count, self._drawn()), len(problem))

    def step(self, problem: AbstractProblem, state: GaussNewtonState, drawn: Array) -> tuple[GaussNewtonState, Info]:
        w, t = state.w, state.t
        kappa = jnp.asarray(self.kappa(t)).astype(dtype_of(w))
        at, memory, counts = self.estimator.estimate(problem, self._batches(problem, drawn), w, t, state.memory)
        w, gap = self.subsolver.minimize(problem, w, kappa, at)
        return GaussNewtonState(w, memory, t + 1), Info(counts, gap=gap)

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        batches = self._batches(problem, jnp.zeros((self._drawn(),), jnp.int32))
        return self.estimator.prices(problem, batches, w)

    def epoch(self, problem: AbstractProblem) -> int:
        return max(1, len(problem) // self._drawn())

    def check(self, problem: AbstractProblem) -> None:
        AbstractSolver.check(self, problem)
        self.subsolver.check(problem)

    def remedy(self) -> str:
        first = float(jnp.max(jnp.asarray(self.kappa(jnp.zeros((), jnp.int32)))))
        return f"Try a larger kappa, such as {first * 10:.2g}."

    def name(self) -> str:
        return "stochastic_gauss_newton"

    def _drawn(self) -> int:
        """Samples drawn for a step."""
        return self.batch_size + (self.jacobian_batch_size or 0)

    def _batches(self, problem: AbstractProblem, drawn: Array) -> Batches:
        if self.jacobian_batch_size is None:
            return Batches(None, problem[drawn])
        return Batches(problem[drawn[: self.batch_size]], problem[drawn[self.batch_size :]])


def stochastic_gauss_newton(
    kappa: Any,
    batch_size: Any,
    jacobian_batch_size: Any = None,
    estimator: str = "minibatch",
    period: Any = None,
    subsolver: str = "exact",
) -> StochasticGaussNewton:
    """w+ = argmin_x f(u + J (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2, u and J estimates of the mean and Jacobian.

    The prox-linear step of `LossOfMean`, the paper's PLI for equations. `kappa` is a number or a schedule;
    `batch_size` is that of the value, `jacobian_batch_size` that of the Jacobian (None: one batch for both).
    `estimator` is "minibatch" (fresh batches), "sarah" or "svrg" (a full pass every `period` steps; None: once in an
    epoch). `subsolver` "exact" solves for the k dual variables to machine precision, "apg" by accelerated proximal
    gradient.
    """
    one_of(estimator, "estimator", ESTIMATORS)
    one_of(subsolver, "subsolver", SUBSOLVERS)
    if estimator == "minibatch" and period is not None:
        raise ValueError('period is for estimator="sarah" or "svrg"; fresh mini-batches have no snapshots.')
    if period is not None:
        period = jnp.asarray(whole(period, "period"), jnp.int32)
    made = {"minibatch": MiniBatch, "sarah": lambda: Sarah(period), "svrg": lambda: Svrg(period)}[estimator]()
    return StochasticGaussNewton(
        as_schedule(kappa, "kappa"),
        made,
        ExactStep() if subsolver == "exact" else AcceleratedStep(),
        whole(batch_size, "batch_size"),
        None if jacobian_batch_size is None else whole(jacobian_batch_size, "jacobian_batch_size"),
    )
