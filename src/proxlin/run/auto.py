"""solver="auto": what to take for a problem, and why, in a sentence."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .. import trees
from ..compiled import compiled
from ..outers import AbstractProximable
from ..problem import AbstractProblem, LossOfMean
from ..schedules import InverseSqrt
from ..solvers.base import AbstractSolver
from ..solvers.lbfgs import lbfgs
from ..solvers.model_based import sgd
from ..solvers.prox_linear import prox_linear
from ..subproblem import dual_set, is_exact, operations
from ..types import Params, dtype_of
from .loop import Limits, advance

PATIENCE = 5.0  # seconds that a run of exact steps may take
# Operations a second of Gram matrices and factorisations, and what a step takes beside them: round
# numbers for two cores (docs/decisions/0009).
RATE = 1.2e10
BESIDE = 1e-3
SYSTEMS = 12  # that an interior point solves in one step
STEPS_OF_AFFINE = 10  # where phi is affine, the model is exact and steps are few
RATE_OF_GRADIENTS = (
    3e9  # operations a second of phi and its VJP, which are less regular
)
OPERATIONS = 6  # of phi and its VJP for each sample and parameter, in a network
GRADIENTS = 1.5  # that a step of L-BFGS takes
STEPS = 100  # the default budget, which a network takes
FACTORS = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # of the scale of a Polyak step
TRIAL = 1000  # steps of SGD that each factor is tried for


def choose(problem: AbstractProblem, w: Params) -> tuple[AbstractSolver, str]:
    """Return a solver and the reason: exact prox-linear where a run of it is quick, else L-BFGS where
    that is, else SGD with a safe step.
    """
    if isinstance(problem.outer, AbstractProximable):
        seconds = exact_seconds(problem, w)
        if seconds is not None and seconds <= PATIENCE:
            reason = "exact prox-linear with adaptive kappa, as its systems are small"
            return prox_linear(), reason
        if isinstance(problem, LossOfMean):
            reason = "exact prox-linear with adaptive kappa, whose dual has only as many variables as outputs"
            return prox_linear(), reason
        if problem.penalty is None and _gradient_seconds(problem, w) <= PATIENCE:
            return lbfgs(), (
                "L-BFGS on all the data, as exact steps would take too long or have no quick method "
                "for this outer function"
            )
        why = "both exact steps and gradients of all the data would take too long"
        if problem.penalty is not None:
            why = "exact steps would take too long, and L-BFGS cannot take a penalty"
    else:
        why = "an exact step needs an outer function with a projection"
    step, tried = _best_step(problem, w)
    return sgd(InverseSqrt(step)), (
        f"sgd with the step {step:.2g} / sqrt(t + 1), the best of {len(FACTORS)} tried for {tried:.2g} passes each "
        f"(not in the cost), as {why}"
    )


def exact_seconds(problem: AbstractProblem, w: Params) -> float | None:
    """Estimate the seconds of a run of exact steps from shapes; None where they are not quick at all:
    no system to factor, or no interior point for f.
    """
    V, _ = dual_set(problem.outer)
    known = V.unbounded or V.barrier() is not None
    direct = V.unbounded
    if problem.penalty is not None:
        one = jnp.ones((), dtype_of(w))
        known = known and problem.penalty.terms(w, one, one) is not None
        direct = False  # an interior point walks between the bounds, whatever V is
    if not known or not is_exact(problem, w):
        return None
    systems = 1 if direct else SYSTEMS
    work = systems * operations(problem, w)
    steps = STEPS_OF_AFFINE if problem.is_affine(w) else STEPS
    return steps * (BESIDE + work / RATE)


def _gradient_seconds(problem: AbstractProblem, w: Params) -> float:
    """Estimate the seconds of a run of L-BFGS, whose steps take a gradient or two of all the data."""
    d = sum(x.size for x in jax.tree.leaves(w))
    work = OPERATIONS * len(problem) * d
    return STEPS * GRADIENTS * (BESIDE + work / RATE_OF_GRADIENTS)


def _best_step(problem: AbstractProblem, w: Params) -> tuple[float, float]:
    """Return the step with the least F after a short run, from the scale F / |v|^2 of a Polyak
    step, and its passes.
    """
    value, v = problem.value_and_subgradient(w)
    square = float(jnp.asarray(trees.vdot(v, v)))
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
def _trial(
    solver: AbstractSolver, problem: AbstractProblem, w: Params, count: int
) -> Array:
    """Return F after so many steps."""
    _, record = advance(
        problem,
        solver,
        solver.init(problem, w),
        jax.random.key(0),
        jnp.int32(0),
        Limits(jnp.int32(count)),
    )
    return problem.value(record.w)
