"""What the tasks of several studies share: schedules, the solvers of structured problems, and runs
with checkpoints.

A task is a function of the settings of a case that a worker calls. It returns plain numbers and
texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..inners import augmented_scores
from ..outers import StructuredHinge
from ..problem import MeanOfLosses
from ..run import Followed, follow
from ..schedules import Power
from ..solvers import AbstractSolver, Averaged, casimir_svrg, pli, sgd, svrg
from ..tuning.axes import first_step
from ..types import Key, Params

DECAYS = {"sgd": 0.0, "sgd-sqrt": 0.5, "sgd-averaged": 0.5, "sgd-inverse": 1.0}
START = 2**31 - 1  # a fold that no epoch of a run reaches
LABELS = {
    "sgd": "SGD, constant",
    "sgd-sqrt": "SGD, 1/sqrt t",
    "sgd-inverse": "SGD, 1/t",
    "svrg": "SVRG",
    "casimir": "Casimir-SVRG",
    "pli": "PLI",
}


def start_key(seed: int) -> Key:
    """Return the key of a start, apart from the draws of a run with the same seed.

    Epoch t of a run draws with fold_in(key(seed), t), and split(key)[0] is fold_in(key, 0): a start
    from key(seed) itself would have its first layer and the first epoch from one stream.
    """
    return jax.random.fold_in(jax.random.key(seed), START)


def power_step(step: float, decay: float, steps: float) -> Power:
    """Return the schedule first / t^decay in float32 that has come down to `step` half way."""
    first = first_step(step, decay, steps)
    return Power(jnp.asarray(first, jnp.float32), jnp.asarray(decay, jnp.float32))


def structured_solver(
    method: str, setting: Mapping[str, Any], steps: float
) -> AbstractSolver:
    """Return a solver of a structured hinge; those that smooth it have the inner step rate * nu."""
    if method in DECAYS:
        solver = sgd(power_step(setting["step"], DECAYS[method], steps))
        return Averaged(solver) if method == "sgd-averaged" else solver
    if method == "svrg":
        return svrg(setting["step"])
    nu = setting["nu"]
    step = setting["rate"] * nu  # it has to shrink with nu
    if method == "casimir":
        return casimir_svrg(nu, step=step)
    return pli(setting["kappa"], nu, setting["inner"], step=step)


def structured_problem(
    predict: Any, oracle: Any, data: PyTree, top: int, ridge: float
) -> MeanOfLosses:
    """Return the mean of structured hinge losses, smoothed over the `top` best outputs where a
    solver smooths it.
    """
    return MeanOfLosses(
        augmented_scores(predict, oracle),
        StructuredHinge(oracle, top),
        data,
        ridge=ridge,
    )


def structured_run(
    problem: MeanOfLosses,
    w: Params,
    settings: Mapping[str, Any],
    measure: Any,
    shares: Sequence[float],
    watch: Mapping[str, Any] | None = None,
) -> Followed:
    """Run the method of a case, judged by `measure` at these shares of its passes."""
    passes = settings["passes"]
    solver = structured_solver(settings["method"], settings, passes * len(problem))
    marks = [share * passes for share in shares]
    return follow(
        problem, w, solver, measure, marks, seed=settings["seed"], watch=watch
    )
