"""The runs behind the study `recovery`: one method, one setting, one noise level, one seed.

    y_i = phi(x_i; wbar) + sigma xi_i,      recovery(w) = (1/n) sum_i |phi(x_i; w) - phi(x_i; wbar)|

The inputs are those of the training samples: the paper wants the predictions of wbar there.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..inners import residual
from ..networks import MLP
from ..outers import L2
from ..problem import MeanOfLosses
from ..run import follow, minimize
from ..schedules import Power
from ..solvers import AbstractSolver, pli, prox_linear, sgd
from ..theory import chi_mean, quadratic_phase
from ..tuning.axes import HALF_DECADE, first_step
from ..tuning.search import Axis, Choice, Lattice
from ..types import Params
from .tasks import start_key

EXACT = "prox-linear"
GRIDS: dict[str, dict[str, Axis]] = {
    EXACT: {},
    "pli": {
        "rate": Lattice(0.3, HALF_DECADE, (-1, 1)),
        "nu": Lattice(0.1, HALF_DECADE, (0,)),
        "kappa": Lattice(1e-2, 10.0, (0,), low=-6),
        "inner": Choice((1, 2, 5, 10), (1,), ordered=True),
    },
    "sgd": {
        "step": Lattice(0.03, HALF_DECADE, (-1, 1)),
        "decay": Choice((0.0, 0.5), (0, 1)),
    },
}
POINTS = 60  # of a curve of SGD or PLI, evenly spaced in log(passes)
FLOOR = 1e-10  # of F, relative to its start: the data are interpolated
WBAR = 1  # a fold of the key of the start, for the parameters that made the data


class Arena(NamedTuple):
    """The noisy problem, the samples that are held out, the clean predictions, the start and F(wbar)."""

    problem: MeanOfLosses
    held_out: MeanOfLosses
    clean: MeanOfLosses
    w: Params
    level: float


def arena_of(settings: Mapping[str, Any]) -> Arena:
    """Draw wbar, the start, the inputs and the noise of a seed; the noise level is a share of the loss at the start."""
    n, k, inputs, width = (settings[name] for name in ("n", "k", "inputs", "width"))
    predict = MLP((inputs, width, k))
    key = start_key(settings["seed"])
    w = predict.init(key)
    wbar = predict.init(jax.random.fold_in(key, WBAR))
    rng = np.random.default_rng([settings["seed"], n, k])
    count = n + settings["validation"]
    x = rng.normal(size=(count, inputs))
    xi = rng.normal(size=(count, k))
    clean = np.asarray(jax.vmap(lambda row: predict(wbar, row))(jnp.asarray(x)))
    inner = residual(predict)

    def problem(part: slice, sigma: float) -> MeanOfLosses:
        return MeanOfLosses(inner, L2(), (x[part], (clean + sigma * xi)[part]))

    train = slice(n)
    without_noise = problem(train, 0.0)
    sigma = settings["level"] * float(without_noise.value(w)) / chi_mean(k)
    noisy = problem(train, sigma)
    return Arena(
        noisy,
        problem(slice(n, None), sigma),
        without_noise,
        w,
        float(noisy.value(wbar)),
    )


def solver_of(method: str, setting: Mapping[str, Any], steps: float) -> AbstractSolver:
    """Return the solver of a method with the numbers of a setting."""
    if method == EXACT:
        return prox_linear()
    if method == "pli":
        step = setting["rate"] * setting["nu"]  # it has to shrink with nu
        # eq. (3) takes every step
        return pli(
            setting["kappa"], setting["nu"], setting["inner"], step=step, accept=False
        )
    first = first_step(setting["step"], setting["decay"], steps)
    return sgd(Power(jnp.asarray(first), jnp.asarray(setting["decay"])))


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one case; returns the curves of F and of the recovery error, and what they say of stopping."""
    arena = arena_of(settings)
    walk = _walk_exactly if settings["method"] == EXACT else _walk
    curves = walk(arena, settings)
    found = summary(curves["value"], curves["recovery"], arena.level)
    found["level"] = arena.level
    found["validation_loss"] = float(np.min(curves["held_out"]))
    if settings["method"] == EXACT:
        phase = quadratic_phase(curves["value"])
        if phase is not None:
            found["radius"] = phase.radius
    for name in ("passes", "value", "recovery"):
        found[f"curve_{name}"] = curves[name].tolist()
    return found


def summary(values: np.ndarray, recovery: np.ndarray, level: float) -> dict[str, Any]:
    """Return the recovery error where F first is at most the noise level, the least one, and that at the end.

    A run that never gets there is not stopped: its end is where it stops.

    >>> values, recovery = np.array([4.0, 2.0, 0.9, 0.1]), np.array([4.0, 1.5, 1.0, 1.2])
    >>> found = summary(values, recovery, 1.0)
    >>> found["stopped"], found["least"], found["end"], found["reached"]
    (1.0, 1.0, 1.2, True)
    """
    below = values <= level
    reached = bool(below.any())
    stop = int(np.argmax(below)) if reached else len(values) - 1
    return {
        "stopped": float(recovery[stop]),
        "least": float(recovery.min()),
        "end": float(recovery[-1]),
        "reached": reached,
        "steps_below": len(values) - 1 - stop,
        "least_over_level": float(values[int(np.argmin(recovery))] / level),
    }


def _walk_exactly(arena: Arena, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Take exact steps until the data are interpolated, and look at each."""
    floor = FLOOR * float(arena.problem.value(arena.w))
    return _finite(
        minimize(
            arena.problem,
            arena.w,
            prox_linear(),
            steps=settings["steps"],
            stop=lambda _, record: record["value"] <= floor,
            metrics={"recovery": arena.clean.value, "held_out": arena.held_out.value},
        ).history
    )


def _walk(arena: Arena, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Run SGD or PLI and look at checkpoints that are evenly spaced in log(passes)."""
    passes = settings["passes"]
    marks = [0.0, *np.geomspace(passes / 300, passes, POINTS).tolist()]
    solver = solver_of(settings["method"], settings, passes * len(arena.problem))
    run = follow(
        arena.problem,
        arena.w,
        solver,
        arena.held_out.value,
        marks,
        seed=settings["seed"],
        watch={"value": arena.problem.value, "recovery": arena.clean.value},
    )
    return _finite(
        {
            "passes": run.passes,
            "held_out": run.measures,
            "value": run.watched["value"],
            "recovery": run.watched["recovery"],
        }
    )


def _finite(curves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the curves up to the last entry that is finite in each: a run may diverge."""
    arrays = {name: np.asarray(curve, float) for name, curve in curves.items()}
    fine = np.all([np.isfinite(each) for each in arrays.values()], axis=0)
    end = len(fine) if fine.all() else int(np.argmin(fine))
    return {name: each[: max(end, 1)] for name, each in arrays.items()}
