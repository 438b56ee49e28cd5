"""The runs behind Figures 3 and 4: one method, one setting, one seed, on maps of its own.

    min_w (1/n) sum_i max_y' <scores_i(w) + cost(y_i), y'> - <scores_i(w), y_i> + ridge/2 |w|^2,   scores = CNN of tiles

The seed makes the maps, their labels (drawn among all optimal paths), the start and the order of
the samples.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..data.map_sources import Parts, draw_maps
from ..data.maps import METRICS, Maps, TileRewards, path_metrics
from ..data.metrics import exact_share, outputs
from ..oracles import MonotonePaths
from ..problem import MeanOfLosses
from ..run import Followed
from ..tuning.axes import HALF_DECADE
from ..tuning.search import Axis, Choice, Lattice
from ..types import Params
from .tasks import start_key, structured_problem, structured_run

SHARES = (
    0.0,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
)  # of the passes, at which runs are judged
_STEP: dict[str, Axis] = {"step": Lattice(3e-3, HALF_DECADE, (-1, 0, 1))}
_RATE = Lattice(1e-2, HALF_DECADE, (-1, 0, 1))  # the inner step over nu
GRIDS: dict[str, dict[str, Axis]] = {
    "sgd": _STEP,
    "sgd-sqrt": _STEP,
    # its first step is T/2 times as long
    "sgd-inverse": {"step": Lattice(3e-4, HALF_DECADE, (-1, 0, 1))},
    "svrg": {"step": Lattice(1e-2, HALF_DECADE, (-1, 0, 1))},
    "casimir": {"rate": _RATE, "nu": Lattice(1.0, HALF_DECADE)},
    "pli": {
        "rate": _RATE,
        "kappa": Lattice(0.1, 10.0),
        "nu": Lattice(1.0, HALF_DECADE),
        "inner": Choice((1, 2, 5), (0,), ordered=True),
    },
}


class PathLoss(eqx.Module):
    """The mean Hamming loss of the best paths by the learned scores: a function of w that can be
    compiled.

    It is inf where scores are not finite: such a w has no best path.
    """

    predict: TileRewards
    oracle: MonotonePaths
    tiles: Array
    paths: Array

    def __call__(self, w: Params) -> Array:
        def one(sample: tuple[Array, Array]) -> Array:
            tiles, path = sample
            scores = self.predict(w, tiles)
            cost = self.oracle.cost(path.astype(scores.dtype))
            loss = jnp.sum(cost * self.oracle.argmax(scores))
            return jnp.where(jnp.all(jnp.isfinite(scores)), loss, jnp.inf)

        # one map at a time: it stays in the cache
        return jnp.mean(jax.lax.map(one, (self.tiles, self.paths)))


class Arena(NamedTuple):
    """What a case needs: the problem, the measure on the validation maps, the model, its start and
    the test maps.
    """

    problem: MeanOfLosses
    measure: PathLoss
    predict: TileRewards
    w: Params
    test: Maps


# as many as a search has seeds; a set of the paper's size has 20 MB
maps_of = lru_cache(maxsize=4)(draw_maps)


def parts_of(settings: Mapping[str, Any]) -> Parts:
    """Return the train, validation and test maps of a case."""
    counts = (settings["maps"], settings["validation"], settings["test"])
    names = ("source", "content", "seed")
    source, content, seed = (settings[name] for name in names)
    return maps_of(source, content, seed, counts, settings["side"], settings["tile"])


def arena_of(settings: Mapping[str, Any]) -> Arena:
    """Return the problem of a case and what its solutions are judged by."""
    train, validation, test = parts_of(settings)
    predict = TileRewards(settings["tile"], settings["channels"])
    data = jax.tree.map(jnp.asarray, train.data())
    ridge = settings["ridge"] / settings["maps"]
    problem = structured_problem(predict, train.oracle, data, settings["top"], ridge)
    measure = PathLoss(predict, train.oracle, *map(jnp.asarray, validation.data()))
    w = predict.init(start_key(settings["seed"]), jnp.float32)
    return Arena(problem, measure, predict, w, test)


def run_of(
    arena: Arena, settings: Mapping[str, Any], watch: Mapping[str, Any] | None = None
) -> Followed:
    """Run the method of a case."""
    return structured_run(
        arena.problem, arena.w, settings, arena.measure, SHARES, watch
    )


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one case; returns curves of the measures on the test maps, and their values at the best
    checkpoint. A case that only chooses a setting does not look at the test maps.
    """
    arena = arena_of(settings)
    judges = settings["judges"]
    watch = path_metrics(arena.predict, arena.test) if judges else None
    run = run_of(arena, settings, watch)
    best = int(np.argmin(run.measures))
    found: dict[str, Any] = {
        "validation_loss": run.best,
        "best_at": float(run.at),
        "diverged": run.diverged,
    }
    if not judges:
        return found
    if "nu" in settings:
        found["exact"] = exact_share(arena.problem.smooth(settings["nu"]), run.w)
    found["curve_passes"] = run.passes.tolist()
    found["curve_seconds"] = run.seconds.tolist()
    for name in METRICS:
        found[name] = float(run.watched[name][best])
        found[f"curve_{name}"] = run.watched[name].tolist()
    return found


def floors(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the true rewards achieve on the test maps with random tie-breaks, and what no
    learner can beat.
    """
    _, _, test = parts_of(settings)
    optimal = test.optimal()
    return {
        "floor": float(optimal.floor(test.paths).mean()),
        "least": float(optimal.least().mean()),
        "optimal_paths": float(np.median(optimal.count())),
    }


def picture(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trained model makes of the first unseen map: its rewards and its path."""
    arena = arena_of(settings)
    run = run_of(arena, settings)
    tiles = jnp.asarray(arena.test[:1].tiles())
    path = outputs(arena.predict, arena.test.oracle, run.w, tiles)[0]
    rewards = arena.predict(run.w, tiles[0])
    return {
        "rewards": np.asarray(rewards, float).tolist(),
        "path": np.asarray(path, int).tolist(),
        "validation_loss": run.best,
    }
