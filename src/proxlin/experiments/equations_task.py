"""The runs behind Figure 5: one data set, one method, one setting, one seed.

GD   w - step J'f'(u)                       PL   argmin_x f(u + J (x - w)) + kappa/2 |x - w|^2       (full batch)
SGD  the same with mini-batch estimates     PLI  the same with mini-batch estimates; both also by SARAH and SVRG,
                                                 and SGD by the running average of Wang et al.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..data import classification
from ..data.equations import equations
from ..errors import UserError
from ..inners import SparseRows
from ..outers import L1, L2, Huber
from ..problem import LossOfMean
from ..run import minimize
from ..solvers import (
    AbstractSolver,
    composition_sgd,
    prox_linear,
    sgd,
    stochastic_gauss_newton,
    subgradient_descent,
)
from ..tuning.axes import HALF_DECADE
from ..tuning.search import Axis, Choice, Lattice
from . import equations_bias
from .tasks import power_step

OUTERS = {"huber": Huber, "l1": L1, "l2": L2}
_STEP = Lattice(1.0, HALF_DECADE, (-2, 0, 2, 4))
# of the Jacobian; that of the value is twice as large
_BATCH = Choice((64, 256, 1024), (1,), ordered=True)
_KAPPA = Lattice(0.1, HALF_DECADE, (-4, -2, 0, 2))
_STOCHASTIC: dict[str, Axis] = {"kappa": _KAPPA, "batch": _BATCH}
# steps between two full passes; 2,000 to 5,000 are usual
_PERIOD = Choice((100, 500, 2000, 5000), (1,), ordered=True)
GRIDS: dict[str, dict[str, Axis]] = {
    "gd": {"step": _STEP},
    "pl": {"kappa": _KAPPA},
    "sgd": {"step": _STEP, "decay": Choice((0.0, 0.5, 1.0)), "batch": _BATCH},
    "pli": _STOCHASTIC,
    "pli-apg": _STOCHASTIC,
    "pli-sarah": {**_STOCHASTIC, "period": _PERIOD},
    "pli-svrg": {**_STOCHASTIC, "period": _PERIOD},
    "sgd-average": {
        "step": _STEP,
        "weight": Choice((0.1, 0.3, 1.0), (1,), ordered=True),
        "batch": _BATCH,
    },
    "sgd-sarah": {"step": _STEP, "batch": _BATCH, "period": _PERIOD},
    "sgd-svrg": {"step": _STEP, "batch": _BATCH, "period": _PERIOD},
}
ROUNDING = 1e-9  # passes are sums of shares
POINTS = 101  # of a curve; more are not seen

Problems = tuple[LossOfMean, LossOfMean, LossOfMean]


def solver_of(
    method: str, setting: Mapping[str, Any], n: int, passes: float
) -> AbstractSolver:
    """Return the solver of a method with the numbers of a setting."""
    if method == "gd":
        return subgradient_descent(setting["step"])
    if method == "pl":
        return prox_linear(setting["kappa"])
    batch = int(setting["batch"])
    if method == "sgd":
        schedule = power_step(setting["step"], setting["decay"], passes * n / batch)
        return sgd(schedule, batch_size=batch)
    model, _, estimator = method.partition("-")
    sizes = (2 * batch, batch)  # of the value and of the Jacobian
    period = setting.get("period")
    if model == "sgd":
        weight = setting.get("weight", 1.0)
        return composition_sgd(setting["step"], *sizes, estimator, weight, period)
    if estimator in ("sarah", "svrg"):
        return stochastic_gauss_newton(setting["kappa"], *sizes, estimator, period)
    subsolver = "apg" if estimator == "apg" else "exact"
    return stochastic_gauss_newton(setting["kappa"], *sizes, subsolver=subsolver)


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one case; returns the curves, and the losses at the best checkpoint on the validation
    set.
    """
    problem, validation, test = asked_problems(settings)
    passes = settings["passes"]
    run = minimize(
        problem,
        start_of(problem),
        solver_of(settings["method"], settings, len(problem), passes),
        passes=passes,
        seed=settings["seed"],
        metrics={"validation": validation.value, "test": test.value},
    )
    history = {
        name: np.where(np.isfinite(column), column, np.inf)
        for name, column in run.history.items()
    }
    # the last step may cost more than was left
    within = history["passes"] <= passes + ROUNDING
    best = int(np.argmin(np.where(within, history["validation"], np.inf)))
    keep = _thinned(int(within.sum()))
    return {
        "validation_loss": float(history["validation"][best]),
        "test_loss": float(history["test"][best]),
        "train_loss": float(history["value"][best]),
        "best_at": float(history["passes"][best]),
        "status": str(run.status),
        **{
            f"curve_{name}": history[name][keep].tolist()
            for name in ("step", "passes", "seconds", "validation", "test")
        },
    }


def _thinned(count: int) -> np.ndarray:
    """Return the numbers of at most POINTS records, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))


def start_of(problem: LossOfMean) -> jax.Array:
    """Return the start of Tran-Dinh et al., all ones."""
    rows = problem.data
    columns = rows.columns if isinstance(rows, SparseRows) else rows.shape[1]
    return jnp.ones(columns)


def biased(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the bias of the mini-batch subgradient at the start."""
    problem, _, _ = asked_problems(settings)
    return equations_bias.measure(
        problem, start_of(problem), settings["batch"], settings["seed"]
    )


def asked_problems(settings: Mapping[str, Any]) -> Problems:
    """Return the problems of the training, validation and test rows of a case."""
    return problems_of(
        *(settings[name] for name in ("data", "content", "rows", "seed", "outer"))
    )


@lru_cache(maxsize=2)
def problems_of(name: str, content: str, rows: int, seed: int, outer: str) -> Problems:
    """Return the problems of the training, validation and test rows, from the data of this
    `content` and no other.
    """
    parts = classification.parts(name, seed, say=lambda text: None)
    if parts.origin.content != content:
        raise UserError(
            f"{name} was {content} when the sweep was begun, but here it is {parts.origin.content}; give every worker "
            "the same PROXLIN_DATA, or begin again in another folder."
        )
    rng = np.random.default_rng(seed)

    def problem(part: Any, most: int) -> LossOfMean:
        if most:
            # by chance: the files are in an order of their own
            part = part[rng.permutation(len(part))[:most]]
        return equations(part.x, part.y, OUTERS[outer]())

    return (
        problem(parts.train, rows),
        problem(parts.validation, rows),
        problem(parts.test, 0),
    )
