"""The runs behind Figure 2: one student, one method, one setting, one seed.

w -> (1/n) sum_i |student(w, x_i) - y_i|_2,   SGD or PLI, judged at its best checkpoint on a validation set
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

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
    set. A case that only chooses a setting does not look at the test samples.
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
    found = {
        "validation_loss": run.best,
        "best_at": float(run.at),
        "stopped_at": float(run.marks[-1]),
        "diverged": run.diverged,
        "curve": [float(x) for x in run.measures],
    }
    if settings["judges"]:
        found["test_loss"] = float(test.value(run.w))
        found["clean_loss"] = float(clean.value(run.w))
    return found


def problems_of(
    arena: Arena, seed: int, validation: int, test: int
) -> tuple[MeanOfLosses, ...]:
    """Return the problems of the training, validation and test samples, and of the test samples
    without noise.
    """
    teacher = Teacher(seed, arena.snr, arena.activation, arena.noise)
    inner = residual(arena.student())
    x, y, _ = samples_of(teacher, arena.n, "train")
    held_x, held_y, _ = samples_of(teacher, validation, "validation")
    test_x, test_y, clean = samples_of(teacher, test, "test")
    pairs = ((x, y), (held_x, held_y), (test_x, test_y), (test_x, clean))
    return tuple(MeanOfLosses(inner, L2(), pair) for pair in pairs)


# Cells of all widths and n share the held-out samples of a seed; to draw them takes as long as a small case.
# The arrays of one entry are 2.5 MB at most.
@lru_cache(maxsize=64)
def samples_of(teacher: Teacher, n: int, part: str) -> tuple[Array, Array, Array]:
    """Return x, y and the teacher's own outputs of a part, in float32."""
    sample = teacher.sample(n, part)
    arrays = (sample.x, sample.y, sample.clean)
    x, y, clean = (jnp.asarray(array, jnp.float32) for array in arrays)
    return x, y, clean
