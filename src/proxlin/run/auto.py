"""solver="auto": what to take for a problem, and why, in a sentence."""

import math

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..compiled import compiled
from ..outers import AbstractProximable
from ..problem import AbstractProblem, LossOfMean
from ..schedules import InverseSqrt
from ..solvers.base import AbstractSolver
from ..solvers.model_based import sgd
from ..solvers.prox_linear import prox_linear
from ..subproblem import dual_set, is_dense
from ..types import Params
from .loop import Limits, advance

QUICK_STEP = 2e10  # operations of one exact step (Gram matrix and factorisation); about one second on two cores
FACTORS = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # of the scale of a Polyak step
TRIAL = 1000  # steps of SGD that each factor is tried for


def choose(problem: AbstractProblem, w: Params) -> tuple[AbstractSolver, str]:
    """Return a solver and the reason: exact prox-linear where its step is quick, else SGD with a safe step."""
    if isinstance(problem.outer, AbstractProximable):
        order = _order_if_quick(problem, w)
        if order is not None:
            return prox_linear(), f"exact prox-linear with adaptive kappa, as its {order} x {order} system is small"
        if isinstance(problem, LossOfMean):
            reason = "exact prox-linear with adaptive kappa, whose dual has only as many variables as outputs"
            return prox_linear(), reason
        why = "an exact step would be too large, or has no quick method for this outer function"
    else:
        why = "an exact step needs an outer function with a projection"
    step, tried = _best_step(problem, w)
    return sgd(InverseSqrt(step)), (
        f"sgd with the step {step:.2g} / sqrt(t + 1), the best of {len(FACTORS)} tried for {tried:.2g} passes each "
        f"(not in the cost), as {why}"
    )


def _order_if_quick(problem: AbstractProblem, w: Params) -> int | None:
    """Return the order of the system of an exact step where that is quick, else None."""
    V, _ = dual_set(problem.outer)
    known = V.unbounded or V.barrier() is not None
    if not known or not is_dense(problem, w):
        return None
    d = sum(x.size for x in jax.tree.leaves(w))
    rows = problem.coefficients().shape[0] * problem.outputs(w)
    order = min(rows, d)
    work = rows * d * order + order**3
    return order if work <= QUICK_STEP else None


def _best_step(problem: AbstractProblem, w: Params) -> tuple[float, float]:
    """Return the step with the least F after a short run, from the scale F / |v|^2 of a Polyak step, and its passes."""
    value, v = problem.value_and_subgradient(w)
    square = float(jnp.asarray(optax.tree.vdot(v, v)))
    scale = 1.0
    if square > 0 and float(value) != 0:
        scale = abs(float(value)) / square
    count = min(len(problem), TRIAL)
    ends = {}
    for factor in FACTORS:
        end = float(_trial(sgd(InverseSqrt(scale * factor)), problem, w, count))
        ends[factor] = end if math.isfinite(end) else math.inf
    best = min(ends, key=lambda factor: ends[factor])
    return scale * best, count / len(problem)


@compiled
def _trial(solver: AbstractSolver, problem: AbstractProblem, w: Params, count: int) -> Array:
    """Return F after so many steps."""
    _, record = advance(
        problem, solver, solver.init(problem, w), jax.random.key(0), jnp.int32(0), Limits(jnp.int32(count))
    )
    return problem.value(record.w)
