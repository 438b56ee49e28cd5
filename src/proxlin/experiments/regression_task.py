"""The runs behind Figure 2: one student, one method, one setting, one seed.

w -> (1/n) sum_i |student(w, x_i) - y_i|_2,   SGD or PLI, judged at its best checkpoint on a validation set
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..cost import Cost, Prices
from ..data.regression import Teacher
from ..inners import residual
from ..networks import MLP
from ..outers import L2
from ..problem import MeanOfLosses
from ..run import follow
from ..solvers import AbstractSolver, Averaged, pli, sgd
from ..tuning.axes import CHECKPOINTS, HALF_DECADE
from ..tuning.search import Axis, Choice, Lattice
from .tasks import power_step, start_key

_SGD: dict[str, Axis] = {
    "step": Lattice(10**-2.5, HALF_DECADE, (-3, -1, 1, 3)),
    "decay": Choice((0.0, 0.5, 1.0), (0, 1, 2)),
}
_PLI: dict[str, Axis] = {
    # the inner step over nu: it has to shrink with nu
    "rate": Lattice(0.1, HALF_DECADE, (-2, 0, 2)),
    "nu": Lattice(10.0, HALF_DECADE, (-2, 0, 2)),
    # below 1e-8 the proximal term is round-off
    "kappa": Lattice(1e-3, 10.0, (0,), low=-5),
    "inner": Choice((1, 2, 5, 10, 20), (1,), ordered=True),
}
GRIDS: dict[str, dict[str, Axis]] = {
    "sgd": _SGD,
    "sgd-permuted": _SGD,
    "sgd-averaged": _SGD,
    "sgd-smoothed": {
        **_SGD,
        "decay": Choice((0.0, 0.5, 1.0), (0, 1)),
        "nu": Lattice(10.0, HALF_DECADE),
    },
    "pli": _PLI,
    "pli-accept": _PLI,
    "pli-dual": {
        "kappa": Lattice(1e-3, HALF_DECADE, (-4, -2, 0, 2, 4), low=-10),
        "inner": Choice((1, 2, 5, 10, 20), (1, 2, 3), ordered=True),
    },
}


def solver_of(
    method: str, setting: Mapping[str, Any], n: int, passes: float
) -> AbstractSolver:
    """Return the solver of a method with the numbers of a setting."""
    if method in ("pli", "pli-accept"):
        return pli(
            setting["kappa"],
            setting["nu"],
            setting["inner"],
            step=setting["rate"] * setting["nu"],
            # eq. (3) of the paper takes every step
            accept=method == "pli-accept",
        )
    if method == "pli-dual":
        return pli(setting["kappa"], inner_passes=setting["inner"], inner="dual")
    schedule = power_step(setting["step"], setting["decay"], passes * n)
    solver = sgd(schedule, replace=method != "sgd-permuted")
    return Averaged(solver) if method == "sgd-averaged" else solver


@dataclass(frozen=True)
class Arena:
    """Where two methods meet: a cell of the heat map, or a row of the sensitivity table."""

    width: int
    n: int
    snr: float
    activation: str
    noise: str
    accounting: str = "passes"

    def student(self) -> MLP:
        """Return the network that is trained."""
        return MLP((128, self.width, 10), self.activation, bias=False)


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one setting on one seed; the losses are those of its best checkpoint on the validation
    set.
    """
    arena = Arena(*(settings[field.name] for field in fields(Arena)))
    seed = settings["seed"]
    problem, validation, test, clean = problems_of(
        arena, seed, settings["validation"], settings["test"]
    )
    method = settings["method"]
    if method == "sgd-smoothed":
        problem = problem.smooth(jnp.asarray(settings["nu"], jnp.float32))
    prices = None
    if settings["accounting"] == "epochs" and method.startswith("pli"):
        # The accounting of the paper: an inner epoch is a pass, snapshots and values of F are free.
        prices = Prices(epoch=Cost(phi=2 * arena.n))
    passes = settings["passes"]
    run = follow(
        problem,
        arena.student().init(start_key(seed), jnp.float32),
        solver_of(method, settings, arena.n, passes),
        validation.value,
        [mark for mark in CHECKPOINTS if mark < passes] + [passes],
        seed=seed,
        patience=settings["patience"],
        prices=prices,
    )
    return {
        "validation_loss": run.best,
        "test_loss": float(test.value(run.w)),
        "clean_loss": float(clean.value(run.w)),
        "best_at": float(run.at),
        "stopped_at": float(run.marks[-1]),
        "diverged": run.diverged,
        "curve": [float(x) for x in run.measures],
    }


@lru_cache(maxsize=4)
def problems_of(
    arena: Arena, seed: int, validation: int, test: int
) -> tuple[MeanOfLosses, ...]:
    """Return the problems of the training, validation and test samples, and of the test samples
    without noise.
    """
    teacher = Teacher(seed, arena.snr, arena.activation, arena.noise)
    inner = residual(arena.student())

    def problem(x: np.ndarray, y: np.ndarray) -> MeanOfLosses:
        return MeanOfLosses(
            inner, L2(), (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
        )

    train = teacher.sample(arena.n, "train")
    held_out = teacher.sample(validation, "validation")
    unseen = teacher.sample(test, "test")
    return (
        problem(train.x, train.y),
        problem(held_out.x, held_out.y),
        problem(unseen.x, unseen.y),
        problem(unseen.x, unseen.clean),
    )
