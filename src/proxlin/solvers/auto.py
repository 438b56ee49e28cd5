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
from ..subproblem.solve import General, Subsolver, cone_of
from ..types import Params
from .base import AbstractSolver, scan_steps
from .model_based import sgd
from .prox_linear import prox_linear

SMALL = 2e10  # operations of one exact step (Gram matrix and factorisation) that pass for quick: about a second
FACTORS, TRIAL = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003), 1000


def choose(problem: AbstractProblem, w: Params) -> tuple[AbstractSolver, str]:
    """A solver and the reason: exact prox-linear where its step is quick, else a stochastic method with a safe step."""
    if isinstance(problem.outer, AbstractProximable):
        k, m = problem.outputs(w), problem.coefficients().shape[0]
        d = sum(x.size for x in jax.tree.leaves(w))
        rows, order = m * k, min(m * k, d)
        work = rows * d * order + order**3
        exact = not isinstance(cone_of(problem)[0], General)
        if exact and Subsolver().dense(problem, w) and work <= SMALL:
            return prox_linear(), f"exact prox-linear with adaptive kappa, as its {order} x {order} system is small"
        if isinstance(problem, LossOfMean):
            return (
                prox_linear(),
                "exact prox-linear with adaptive kappa, whose dual has only as many variables as outputs",
            )
    step, tried = _best_step(problem, w)
    return sgd(InverseSqrt(step)), (
        f"sgd with the step {step:.2g} / sqrt(t + 1), the best of {len(FACTORS)} tried for {tried:.2g} passes each "
        f"(not in the cost), as an exact step would be too large"
    )


def _best_step(problem: AbstractProblem, w: Params) -> tuple[float, float]:
    """The step, from the scale F / |v|^2 of a Polyak step, with the least F after a short run."""
    value, v = problem.value_and_subgradient(w)
    square = float(jnp.asarray(optax.tree.vdot(v, v)))
    scale = abs(float(value)) / square if square > 0 and float(value) != 0 else 1.0
    count = min(len(problem), TRIAL)
    ends = {}
    for factor in FACTORS:
        end = float(_trial(sgd(InverseSqrt(scale * factor)), problem, w, count))
        ends[factor] = end if math.isfinite(end) else math.inf
    best = min(ends, key=lambda factor: ends[factor])
    return scale * best, count / len(problem)


@compiled
def _trial(solver: AbstractSolver, problem: AbstractProblem, w: Params, count: int) -> Array:
    drawn = solver.draw(problem, jax.random.key(0), count)
    return problem.value(scan_steps(solver, problem, solver.init(problem, w), drawn)[0].w)
