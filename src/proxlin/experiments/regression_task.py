"""The runs behind Figure 2: one student, one method, one setting, one seed.

w -> (1/n) sum_i |student(w, x_i) - y_i|_2,   SGD or PLI, judged at its best checkpoint on a validation set
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..cost import Cost, Prices
from ..data.regression import Teacher
from ..inners import residual
from ..networks import MLP
from ..outers import L2
from ..problem import MeanOfLosses
from ..run import follow
from ..schedules import Power
from ..solvers import AbstractSolver, Averaged, pli, sgd
from ..tuning.search import Choice, Lattice

MARKS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)  # passes at which runs are judged
HALF = 10**0.5  # half a decade


def power_step(setting: Mapping[str, Any], steps: float) -> Power:
    """`step` is the one reached half way, so that a schedule's best does not move with its decay."""
    first = setting["step"] * (steps / 2) ** setting["decay"]
    return Power(jnp.asarray(first, jnp.float32), jnp.asarray(setting["decay"], jnp.float32))


_STEPS = Lattice(10**-2.5, HALF, (-3, -1, 1, 3))
_DECAYS = Choice((0.0, 0.5, 1.0), (0, 1, 2))
_KAPPA = Lattice(1e-3, 10.0, (0,), low=-5)  # below 1e-8 the proximal term is round-off
_INNER = Choice((1, 2, 5, 10, 20), (1,), ordered=True)
GRIDS: dict[str, dict[str, Lattice | Choice]] = {
    "sgd": {"step": _STEPS, "decay": _DECAYS},
    "sgd-permuted": {"step": _STEPS, "decay": _DECAYS},
    "sgd-averaged": {"step": _STEPS, "decay": _DECAYS},
    "sgd-smoothed": {"step": _STEPS, "decay": Choice((0.0, 0.5, 1.0), (0, 1)), "nu": Lattice(10.0, HALF)},
    # The inner step is rate * nu: it has to shrink with nu.
    "pli": {
        "rate": Lattice(0.1, HALF, (-2, 0, 2)),
        "nu": Lattice(10.0, HALF, (-2, 0, 2)),
        "kappa": _KAPPA,
        "inner": _INNER,
    },
    "pli-dual": {
        "kappa": Lattice(1e-3, HALF, (-4, -2, 0, 2, 4), low=-10),
        "inner": Choice((1, 2, 5, 10, 20), (1, 2, 3), ordered=True),
    },
}


def solver_of(method: str, setting: Mapping[str, Any], n: int, passes: float) -> AbstractSolver:
    if method == "pli":
        return pli(setting["kappa"], setting["nu"], setting["inner"], step=setting["rate"] * setting["nu"])
    if method == "pli-dual":
        return pli(setting["kappa"], inner_passes=setting["inner"], inner="dual")
    solver = sgd(power_step(setting, passes * n), replace=method != "sgd-permuted")
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
        return MLP((128, self.width, 10), self.activation, bias=False)


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One case: a run of one setting on one seed. The losses are those of its best checkpoint on the validation set."""
    arena = Arena(*(settings[name] for name in ("width", "n", "snr", "activation", "noise", "accounting")))
    problem, validation, test, clean = problems_of(arena, settings["seed"], settings["validation"], settings["test"])
    w = arena.student().init(jax.random.key(settings["seed"]), jnp.float32)
    method, n, passes = settings["method"], settings["n"], settings["passes"]
    if method == "sgd-smoothed":
        problem = problem.smooth(jnp.asarray(settings["nu"], jnp.float32))
    solver = solver_of(method, settings, n, passes)
    # "epochs", the accounting of the paper: an inner epoch is a pass, snapshots and values of F are free.
    prices = Prices(epoch=Cost(phi=2 * n)) if settings["accounting"] == "epochs" and method.startswith("pli") else None
    marks = [mark for mark in MARKS if mark < passes] + [passes]
    run = follow(
        problem, w, solver, validation.value, marks,
        seed=settings["seed"], patience=settings["patience"], prices=prices,
    )  # fmt: skip
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
def problems_of(arena: Arena, seed: int, validation: int, test: int) -> tuple[MeanOfLosses, ...]:
    teacher = Teacher(seed, arena.snr, arena.activation, arena.noise)
    train, valid, unseen = (
        teacher.sample(count, part) for count, part in ((arena.n, "train"), (validation, "validation"), (test, "test"))
    )
    inner = residual(arena.student())

    def problem(x: np.ndarray, y: np.ndarray) -> MeanOfLosses:
        return MeanOfLosses(inner, L2(), (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)))

    pairs = ((train.x, train.y), (valid.x, valid.y), (unseen.x, unseen.y), (unseen.x, unseen.clean))
    return tuple(problem(x, y) for x, y in pairs)
