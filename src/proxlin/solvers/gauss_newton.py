"""Stochastic Gauss-Newton for f of a mean: w+ = argmin_x f(u + J (x - w)) + kappa/2 |x - w|^2, u
and J estimates.

The dual of a step has k variables, one for each output:

    min_v  |J'v|^2 / (2 kappa) - <u, v> + f*(v),      x = w - J'v / kappa
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .. import subproblem
from ..checks import one_of, whole
from ..cost import Prices
from ..outers import AbstractOuter, AbstractProximable
from ..penalties import Penalties
from ..problem import AbstractProblem, Expansion, LossOfMean, Quadratic
from ..schedules import as_schedule
from ..types import Key, Params, dtype_of
from .base import AbstractSolver, Info
from .estimators import AbstractEstimator, Batches, MiniBatch, Sarah, Svrg
from .sampling import integers

ESTIMATORS = ("minibatch", "sarah", "svrg")
# of the relative change of v, as in the code of Tran-Dinh et al. 2020 ...
APG_TOL = 1e-6
APG_STEPS = 100  # ... and so is this number of iterations

Subsolver = Callable[
    [Expansion, Quadratic, AbstractOuter, Penalties | None],
    tuple[Params, Array | None],
]


def solve_exactly(
    at: Expansion, quadratic: Quadratic, f: AbstractOuter, penalty: Penalties | None
) -> tuple[Params, Array]:
    """Return argmin_x f(u + J (x - w)) + quadratic(x) + g(x) to machine precision, and its certified
    gap.
    """
    tol = jnp.zeros((), dtype_of(at.w))
    answer = subproblem.solve(at, quadratic, f, tol, penalty=penalty)
    return answer.w, answer.gap


def solve_by_gradients(
    at: Expansion, quadratic: Quadratic, f: AbstractOuter, penalty: Penalties | None
) -> tuple[Params, None]:
    """Return the same by accelerated proximal gradient on the dual (ADPG of Tran-Dinh et al. 2020),
    without a gap.

    v+ = prox_{f*/L}(y - (J J'y / M - u) / L),  L = |J J'|_F / M,  y = v+ + (tau - 1) / tau+ (v+ - v)
    """
    assert isinstance(f, AbstractProximable)
    assert penalty is None  # `check` refuses it
    J = at.jacobian[0]
    M = quadratic.weight.astype(J.dtype)
    center, unravel = ravel_pytree(quadratic.center)
    anchor, _ = ravel_pytree(at.w)
    u = at.u[0] + J @ (center - anchor)
    G = J @ J.T / M
    L = jnp.sqrt(jnp.sum(G * G))
    L = jnp.where(L > 0, L, jnp.ones_like(L))
    tol = jnp.asarray(APG_TOL, J.dtype)

    def body(carry: Any) -> Any:
        v, y, tau, _, t = carry
        z = y - (G @ y - u) / L
        new = z - f.prox(L * z, L) / L  # Moreau
        after = (1 + jnp.sqrt(1 + 4 * tau * tau)) / 2
        moved = jnp.sum((new - v) ** 2) > tol * tol * jnp.sum(new * new)
        return new, new + (tau - 1) / after * (new - v), after, moved, t + 1

    def going(carry: Any) -> Array:
        _, _, _, moved, t = carry
        return moved & (t < APG_STEPS)

    zero = jnp.zeros_like(u)
    start = (zero, zero, jnp.ones((), J.dtype), jnp.asarray(True), jnp.int32(0))
    v = jax.lax.while_loop(going, body, start)[0]
    return unravel(center - v @ J / M), None


def step_along_gradient(
    at: Expansion, quadratic: Quadratic, f: AbstractOuter, penalty: Penalties | None
) -> tuple[Params, None]:
    """Return argmin_x f(u) + <f'(u), J (x - w)> + quadratic(x) = center - J' f'(u) / weight."""
    assert penalty is None  # `check` refuses it
    J = at.jacobian[0]
    center, unravel = ravel_pytree(quadratic.center)
    return unravel(
        center - f.subgradient(at.u[0]) @ J / quadratic.weight.astype(J.dtype)
    ), None


SUBSOLVERS: dict[str, Subsolver] = {"exact": solve_exactly, "apg": solve_by_gradients}


class GaussNewtonState(eqx.Module):
    """The iterate, what the estimator remembers, and the count of steps."""

    w: Params
    memory: Any
    t: Array


class StochasticGaussNewton(AbstractSolver):
    """w+ = argmin_x f(u_t + J_t (x - w)) + quadratic(x) + kappa_t/2 |x - w|^2; every step is taken.

    Two fresh batches a step, with replacement, for the value and for the Jacobian; without a size
    of its own the Jacobian shares the batch of the value. An epoch is n samples drawn.
    """

    outers = AbstractProximable
    problems = LossOfMean
    instead = "stochastic_prox_linear for a mean of losses, or sgd"
    takes_penalty = True

    kappa: Callable
    estimator: AbstractEstimator
    subsolver: Subsolver = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    jacobian_batch_size: int | None = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> GaussNewtonState:
        return GaussNewtonState(
            w, self.estimator.init(problem, w), jnp.zeros((), jnp.int32)
        )

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Array:
        return integers(key, (count, self._drawn()), len(problem))

    def step(
        self, problem: AbstractProblem, state: GaussNewtonState, drawn: Array
    ) -> tuple[GaussNewtonState, Info]:
        w = state.w
        kappa = jnp.asarray(self.kappa(state.t)).astype(dtype_of(w))
        batches = self._batches(problem, drawn)
        at, memory, calls = self.estimator.estimate(
            problem, batches, w, state.t, state.memory
        )
        w, gap = self.subsolver(
            at, subproblem.proximal(problem, kappa, w), problem.outer, problem.penalty
        )
        return GaussNewtonState(w, memory, state.t + 1), Info(calls, gap=gap)

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        batches = self._batches(problem, jnp.zeros((self._drawn(),), jnp.int32))
        return self.estimator.prices(problem, batches, w)

    def epoch(self, problem: AbstractProblem) -> Any:
        return max(1, len(problem) // self._drawn())

    def check(self, problem: AbstractProblem) -> None:
        AbstractSolver.check(self, problem)
        if self.subsolver is solve_exactly:
            _check_exact(problem.outer)
        elif problem.penalty is not None and self.subsolver is step_along_gradient:
            raise ValueError(
                "composition_sgd cannot take the penalty of this problem; take stochastic_gauss_newton."
            )
        elif problem.penalty is not None:
            raise ValueError(
                'stochastic_gauss_newton(subsolver="apg") cannot take the penalty of this problem; take '
                'subsolver="exact".'
            )

    def remedy(self) -> str:
        first = float(jnp.max(jnp.asarray(self.kappa(jnp.zeros((), jnp.int32)))))
        if self.subsolver is step_along_gradient:
            return f"Try a smaller step, such as {0.1 / first:.2g}."
        return f"Try a larger kappa, such as {first * 10:.2g}."

    def name(self) -> str:
        if self.subsolver is step_along_gradient:
            return "composition_sgd"
        return "stochastic_gauss_newton"

    def _drawn(self) -> int:
        """Return the number of samples drawn for a step."""
        return self.batch_size + (self.jacobian_batch_size or 0)

    def _batches(self, problem: AbstractProblem, drawn: Array) -> Batches:
        if self.jacobian_batch_size is None:
            return Batches(None, problem[drawn])
        return Batches(
            problem[drawn[: self.batch_size]], problem[drawn[self.batch_size :]]
        )


def _check_exact(f: AbstractOuter) -> None:
    """Raise a sentence where the dual of f is not known."""
    try:
        subproblem.dual_set(f)
    except TypeError as error:
        raise TypeError(
            f'stochastic_gauss_newton(subsolver="exact") needs an outer function of proxlin with a projection; '
            f'it got {type(f).__name__}. Take subsolver="apg".'
        ) from error


def stochastic_gauss_newton(
    kappa: Any,
    batch_size: Any,
    jacobian_batch_size: Any = None,
    estimator: str = "minibatch",
    period: Any = None,
    subsolver: str = "exact",
) -> StochasticGaussNewton:
    """Return w+ = argmin_x f(u + J (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2, u and J estimates.

    It is the prox-linear step of `LossOfMean`, the paper's PLI for equations.

    Parameters
    ----------
    kappa : a number or a schedule
        The weight of the proximal term.
    batch_size : an integer
        The samples of the estimate of the value.
    jacobian_batch_size : an integer, or None
        Those of the Jacobian; None is one batch for both.
    estimator : a word
        "minibatch" (fresh batches), "sarah" or "svrg" (with a full pass now and then).
    period : an integer, or None
        The steps between two full passes of "sarah" and "svrg"; None is once in an epoch.
    subsolver : a word
        "exact" solves for the k dual variables to machine precision, "apg" by accelerated proximal
        gradient.

    Returns
    -------
    a solver
        For `px.minimize`.

    Raises
    ------
    ValueError
        period was given for fresh batches, or a word is unknown.

    See Also
    --------
    LossOfMean : the problem that it is for.
    pli, stochastic_prox_linear : the methods for `MeanOfLosses`.

    Examples
    --------
    >>> import proxlin as px
    >>> px.stochastic_gauss_newton(1.0, batch_size=8).name()
    'stochastic_gauss_newton'
    """
    one_of(estimator, "estimator", ESTIMATORS)
    one_of(subsolver, "subsolver", SUBSOLVERS)
    if estimator == "minibatch" and period is not None:
        raise ValueError(
            'period is for estimator="sarah" or "svrg"; fresh mini-batches have no snapshots.'
        )
    if period is not None:
        period = jnp.asarray(whole(period, "period"), jnp.int32)
    made = {
        "minibatch": MiniBatch,
        "sarah": lambda: Sarah(period),
        "svrg": lambda: Svrg(period),
    }[estimator]()
    batch_size = whole(batch_size, "batch_size")
    if jacobian_batch_size is not None:
        jacobian_batch_size = whole(jacobian_batch_size, "jacobian_batch_size")
    return StochasticGaussNewton(
        as_schedule(kappa, "kappa"),
        made,
        SUBSOLVERS[subsolver],
        batch_size,
        jacobian_batch_size,
    )
