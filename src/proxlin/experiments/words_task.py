"""The runs behind `words`: one model of handwritten words, one method, one setting, one fold.

    min_w (1/n) sum_i max_c <scores_i(w) + cost(c_i), c> - <scores_i(w), c_i> + ridge/2 |w|^2

The scores are those of letters and of pairs of letters. `train` holds a fifth of the training words back to choose
settings and the number of passes; `refit` then trains on all of them and reads the test words.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..data.sequences import ChainScores, Words, word_metrics, words_of
from ..inners import augmented_scores
from ..outers import StructuredHinge
from ..problem import MeanOfLosses
from ..run import Followed, follow
from ..solvers import AbstractSolver, Averaged
from ..tuning.search import Choice, Lattice
from ..types import Params
from . import planners
from .students import HALF

MARKS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)  # of the passes
FOLDS = 10
HELD = 0.2  # the share of the training words that choose the setting
MODELS = {"letters": "linear, no pairs", "chain": "linear, pairs", "network": "network, pairs"}
_STEP: dict[str, Lattice | Choice] = {"step": Lattice(3e-3, HALF, (-1, 0, 1)), "ridge": Lattice(3.0, HALF)}
_RATE: dict[str, Lattice | Choice] = {
    "rate": Lattice(1e-2, HALF, (-1, 0, 1)),
    "nu": Lattice(1.0, HALF),
    "ridge": Lattice(3.0, HALF),
}
GRIDS: dict[str, dict[str, Lattice | Choice]] = {
    **dict.fromkeys(("sgd", "sgd-sqrt", "sgd-averaged"), _STEP),
    "sgd-inverse": {**_STEP, "step": Lattice(3e-4, HALF, (-1, 0, 1))},  # its first step is T/2 times as long
    "svrg": _STEP,
    "casimir": _RATE,
    "pli": {**_RATE, "kappa": Lattice(1e-2, 10.0), "inner": Choice((1, 2, 5), (0,), ordered=True)},
}


def solver_of(method: str, setting: Mapping[str, Any], n: int, passes: float) -> AbstractSolver:
    """Those of the maps, and averaged SGD."""
    if method == "sgd-averaged":
        return Averaged(planners.solver_of("sgd-sqrt", setting, n, passes))
    return planners.solver_of(method, setting, n, passes)


class LetterError(eqx.Module):
    """The share of wrong letters, a function of w that can be compiled."""

    predict: ChainScores
    pixels: Array
    lengths: Array
    labels: Array

    def __call__(self, w: Params) -> Array:
        def wrong(word: tuple[Array, Array, Array]) -> Array:
            pixels, length, labels = word
            scores = self.predict(w, (pixels, length))
            found = self.predict.oracle.decode(self.predict.oracle.argmax(scores))
            inside = jnp.arange(len(labels)) < length
            count = jnp.sum(inside & (found != labels)).astype(scores.dtype)
            return jnp.where(jnp.any(jnp.isnan(scores)), jnp.inf, count)

        each = jax.lax.map(wrong, (self.pixels, self.lengths, self.labels))
        return jnp.sum(each) / jnp.sum(self.lengths).astype(each.dtype)


@lru_cache(maxsize=4)
def parts_of(content: str, direction: str, fold: int, test: int) -> tuple[Words, Words]:
    """The words to train on and those to test on (at most `test`; 0: all), in an order of the fold's own.

    Direction "one": train on the fold and test on the nine others; "nine": the other way round.
    """
    every, rng = _words(content), np.random.default_rng([fold, 10])
    one, nine = every.of([fold]), every.of(set(range(FOLDS)) - {fold})
    train, unseen = (one, nine) if direction == "one" else (nine, one)
    mixed = lambda part: part[rng.permutation(len(part))]
    return mixed(train), mixed(unseen)[: test or None]


_words = lru_cache(maxsize=1)(words_of)


def asked_parts(settings: Mapping[str, Any]) -> tuple[Words, Words]:
    return parts_of(settings["content"], settings["direction"], settings["seed"] % FOLDS, settings["test"])


def model_of(settings: Mapping[str, Any], words: Words) -> ChainScores:
    hidden = (settings["width"],) if settings["model"] == "network" else ()
    return ChainScores(words.oracle, hidden=hidden, pairs=settings["model"] != "letters")


def run_of(settings: Mapping[str, Any], words: Words, measure: Any, watch: Any = None) -> Followed:
    """At most settings["words"] of the words are trained on; 0: all."""
    words = words[: settings["words"] or None]
    predict = model_of(settings, words)
    data = jax.tree.map(jnp.asarray, words.data())
    inner, outer = augmented_scores(predict, predict.oracle), StructuredHinge(predict.oracle, settings["top"])
    problem = MeanOfLosses(inner, outer, data, ridge=settings["ridge"] / len(words))
    w = predict.init(jax.random.key(settings["seed"]), jnp.float32)
    solver = solver_of(settings["method"], settings, len(words), settings["passes"])
    marks = [share * settings["passes"] for share in MARKS]
    return follow(problem, w, solver, measure, marks, seed=settings["seed"], watch=watch)


def letter_error(settings: Mapping[str, Any], words: Words) -> LetterError:
    return LetterError(model_of(settings, words), *map(jnp.asarray, (words.pixels, words.lengths, words.labels)))


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One case of the search: the least letter error on the words held back, and after how many passes."""
    words = asked_parts(settings)[0]
    held = max(1, round(HELD * len(words)))
    run = run_of(settings, words[held:], letter_error(settings, words[:held]))
    return {"validation_loss": run.best, "best_at": float(run.at), "diverged": run.diverged}


def refit(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen setting on all training words: errors on the test words after `stop` passes, and their curves."""
    words, test = asked_parts(settings)
    measure = letter_error(settings, test)
    run = run_of(settings, words, measure, {"words": word_metrics(measure.predict, test)["words"]})
    at = int(np.argmin(np.abs(run.marks - settings["stop"])))
    found = {"letters": float(run.measures[at]), "words": float(run.watched["words"][at]), "diverged": run.diverged}
    curve = np.where(np.isfinite(run.measures), run.measures, 1.0)
    return found | {
        "curve_passes": run.passes.tolist(),
        "curve_seconds": run.seconds.tolist(),
        "curve_letters": curve.tolist(),
    }
