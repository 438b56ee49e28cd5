"""solver="auto": what to take for a problem, and why, in a sentence."""

import jax
import jax.numpy as jnp
import optax

from ..outers import AbstractProximable, Max
from ..problem import AbstractProblem, LossOfMean
from ..schedules import InverseSqrt
from ..types import Params
from .base import AbstractSolver
from .model_based import sgd, truncated
from .prox_linear import prox_linear
from .subproblem import General, Subsolver, cone_of

SMALL = 2e10  # operations of one exact step (Gram matrix and factorisation) that pass for quick: about a second


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
    value, v = problem.value_and_subgradient(w)
    square = float(jnp.asarray(optax.tree.vdot(v, v)))
    polyak = abs(float(value)) / square if square > 0 else 1.0
    if isinstance(problem.outer, Max) or float(value) < 0:
        step = InverseSqrt(polyak or 1.0)
        return sgd(step), "sgd with a falling step, as the problem is large and its losses have no known lower bound"
    step = InverseSqrt(10 * polyak or 1.0)
    return truncated(
        step
    ), "truncated (Polyak) steps, which forgive a wrong step size, as an exact step would be too large"
