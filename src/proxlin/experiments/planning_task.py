"""The runs behind Figures 3 and 4: one method, one setting, one seed, on maps of its own.

    min_w (1/n) sum_i max_y' <scores_i(w) + cost(y_i), y'> - <scores_i(w), y_i> + ridge/2 |w|^2,   scores = CNN of tiles

The seed makes the maps, their labels (drawn among all optimal paths), the start and the order of the samples.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..data.maps import METRICS, Maps, TileRewards, path_metrics, terrain_maps
from ..data.metrics import exact_share, outputs
from ..inners import augmented_scores
from ..oracles import MonotonePaths
from ..outers import StructuredHinge
from ..problem import MeanOfLosses
from ..run import Followed, follow
from ..solvers import AbstractSolver, casimir_svrg, pli, sgd, svrg
from ..tuning.search import Choice, Lattice
from ..types import Params
from .students import HALF, power_step

MARKS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the passes
DECAYS = {"sgd": 0.0, "sgd-sqrt": 0.5, "sgd-inverse": 1.0}
GRIDS: dict[str, dict[str, Lattice | Choice]] = {
    "sgd": {"step": Lattice(3e-3, HALF, (-1, 0, 1))},
    "sgd-sqrt": {"step": Lattice(3e-3, HALF, (-1, 0, 1))},
    "sgd-inverse": {"step": Lattice(3e-4, HALF, (-1, 0, 1))},  # its first step is T/2 times as long
    "svrg": {"step": Lattice(1e-2, HALF, (-1, 0, 1))},
    # The inner step is rate * nu: it has to shrink with nu.
    "casimir": {"rate": Lattice(1e-2, HALF, (-1, 0, 1)), "nu": Lattice(1.0, HALF)},
    "pli": {
        "rate": Lattice(1e-2, HALF, (-1, 0, 1)),
        "kappa": Lattice(0.1, 10.0),
        "nu": Lattice(1.0, HALF),
        "inner": Choice((1, 2, 5), (0,), ordered=True),
    },
}


def solver_of(method: str, setting: Mapping[str, Any], n: int, passes: float) -> AbstractSolver:
    if method in DECAYS:
        return sgd(power_step({**setting, "decay": DECAYS[method]}, passes * n))
    if method == "svrg":
        return svrg(setting["step"])
    step = setting["rate"] * setting["nu"]
    if method == "casimir":
        return casimir_svrg(setting["nu"], step=step)
    return pli(setting["kappa"], setting["nu"], setting["inner"], step=step)


class PathLoss(eqx.Module):
    """The mean Hamming loss of the best paths by the learned scores: a function of w that can be compiled.

    It is inf where scores are not finite: such a w has no best path.
    """

    predict: TileRewards
    oracle: MonotonePaths
    tiles: Array
    paths: Array

    def __call__(self, w: Params) -> Array:
        def one(sample: tuple[Array, Array]) -> Array:
            scores = self.predict(w, sample[0])
            loss = jnp.sum(self.oracle.cost(sample[1].astype(scores.dtype)) * self.oracle.argmax(scores))
            return jnp.where(jnp.all(jnp.isfinite(scores)), loss, jnp.inf)

        return jnp.mean(jax.lax.map(one, (self.tiles, self.paths)))  # one map at a time: it stays in the cache


class Arena(NamedTuple):
    """What a case needs: the problem, the measure on the validation maps, the model, its start and the test maps."""

    problem: MeanOfLosses
    measure: PathLoss
    predict: TileRewards
    w: Params
    test: Maps


@lru_cache(maxsize=2)
def maps_of(seed: int, counts: tuple[int, int, int], side: int, tile: int) -> tuple[Maps, Maps, Maps]:
    """Train, validation and test maps, each labelled by one of its optimal paths, drawn uniformly."""
    maps = terrain_maps(sum(counts), side, side, tile, seed=seed).redraw(seed)
    train, validation, _ = counts
    return maps[:train], maps[train : train + validation], maps[train + validation :]


def parts_of(settings: Mapping[str, Any]) -> tuple[Maps, Maps, Maps]:
    counts = (settings["maps"], settings["validation"], settings["test"])
    return maps_of(settings["seed"], counts, settings["side"], settings["tile"])


def arena_of(settings: Mapping[str, Any]) -> Arena:
    train, validation, test = parts_of(settings)
    predict, oracle = TileRewards(settings["tile"], settings["channels"]), train.oracle
    inner, outer = augmented_scores(predict, oracle), StructuredHinge(oracle, settings["top"])
    data = jax.tree.map(jnp.asarray, train.data())
    problem = MeanOfLosses(inner, outer, data, ridge=settings["ridge"] / settings["maps"])
    measure = PathLoss(predict, oracle, *map(jnp.asarray, validation.data()))
    return Arena(problem, measure, predict, predict.init(jax.random.key(settings["seed"]), jnp.float32), test)


def run_of(arena: Arena, settings: Mapping[str, Any], watch: Mapping[str, Any] | None = None) -> Followed:
    solver = solver_of(settings["method"], settings, settings["maps"], settings["passes"])
    marks = [share * settings["passes"] for share in MARKS]
    return follow(arena.problem, arena.w, solver, arena.measure, marks, seed=settings["seed"], watch=watch)


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One case: curves of the three measures on the test maps, and their values at the best validation checkpoint."""
    arena = arena_of(settings)
    run = run_of(arena, settings, path_metrics(arena.predict, arena.test))
    best = int(np.argmin(run.measures))
    found: dict[str, Any] = {"validation_loss": run.best, "best_at": float(run.at), "diverged": run.diverged}
    found |= {"exact": exact_share(arena.problem.smooth(settings["nu"]), run.w)} if "nu" in settings else {}
    found |= {name: float(run.watched[name][best]) for name in METRICS}
    found |= {"curve_passes": run.passes.tolist(), "curve_seconds": run.seconds.tolist()}
    return found | {f"curve_{name}": run.watched[name].tolist() for name in METRICS}


def floors(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the true rewards achieve on the test maps with random tie-breaks, and what no learner can beat."""
    test = parts_of(settings)[2]
    optimal = test.optimal()
    return {
        "floor": float(optimal.floor(test.paths).mean()),
        "least": float(optimal.least().mean()),
        "optimal_paths": float(np.median(optimal.count())),
    }


def picture(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a trained model makes of the first unseen map: its rewards and its path."""
    arena = arena_of(settings)
    run = run_of(arena, settings)
    tiles = jnp.asarray(arena.test[:1].tiles())
    path = outputs(arena.predict, arena.test.oracle, run.w, tiles)[0]
    rewards = arena.predict(run.w, tiles[0])
    found = {"rewards": np.asarray(rewards, float).tolist(), "path": np.asarray(path, int).tolist()}
    return found | {"validation_loss": run.best}
