"""The runs behind `words`: one model of handwritten words, one method, one setting, one fold.

    min_w (1/n) sum_i max_c <scores_i(w) + cost(c_i), c> - <scores_i(w), c_i> + ridge/2 |w|^2

The scores are those of letters and of pairs of letters. `train` holds a fifth of the training words
back to choose settings and the number of passes; `refit` then trains on all of them and reads the
test words.
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
from ..run import Followed
from ..tuning.axes import HALF_DECADE
from ..tuning.search import Axis, Choice, Lattice
from ..types import Params
from .tasks import start_key, structured_problem, structured_run

# of the passes, at which runs are judged
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
FOLDS = 10
HELD = 0.2  # the share of the training words that choose the setting
MODELS = {
    "letters": "linear, no pairs",
    "chain": "linear, pairs",
    "network": "network, pairs",
}
_STEP: dict[str, Axis] = {
    "step": Lattice(3e-3, HALF_DECADE, (-1, 0, 1)),
    "ridge": Lattice(3.0, HALF_DECADE),
}
_RATE: dict[str, Axis] = {
    "rate": Lattice(1e-2, HALF_DECADE, (-1, 0, 1)),
    "nu": Lattice(1.0, HALF_DECADE),
    "ridge": Lattice(3.0, HALF_DECADE),
}
GRIDS: dict[str, dict[str, Axis]] = {
    "sgd": _STEP,
    "sgd-sqrt": _STEP,
    "sgd-averaged": _STEP,
    "sgd-inverse": {
        **_STEP,
        "step": Lattice(3e-4, HALF_DECADE, (-1, 0, 1)),
    },  # its first step is T/2 times as long
    "svrg": _STEP,
    "casimir": _RATE,
    "pli": {
        **_RATE,
        "kappa": Lattice(1e-2, 10.0),
        "inner": Choice((1, 2, 5), (0,), ordered=True),
    },
}


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


_words = lru_cache(maxsize=1)(words_of)


@lru_cache(maxsize=4)
def parts_of(content: str, direction: str, fold: int, test: int) -> tuple[Words, Words]:
    """Return the words to train on and those to test on (at most `test`; 0: all), in an order of
    the fold's own.

    Direction "one": train on the fold and test on the nine others; "nine": the other way round.
    """
    every = _words(content)
    rng = np.random.default_rng([fold, 10])
    train = every.of([fold])
    unseen = every.of(set(range(FOLDS)) - {fold})
    if direction == "nine":
        train, unseen = unseen, train
    mixed = lambda part: part[rng.permutation(len(part))]
    return mixed(train), mixed(unseen)[: test or None]


def asked_parts(settings: Mapping[str, Any]) -> tuple[Words, Words]:
    """Return the training and test words of a case."""
    return parts_of(
        settings["content"],
        settings["direction"],
        settings["seed"] % FOLDS,
        settings["test"],
    )


def model_of(settings: Mapping[str, Any], words: Words) -> ChainScores:
    """Return the model of a case: with or without pairs of letters, linear or a network."""
    hidden = (settings["width"],) if settings["model"] == "network" else ()
    return ChainScores(
        words.oracle, hidden=hidden, pairs=settings["model"] != "letters"
    )


def run_of(
    settings: Mapping[str, Any], words: Words, measure: Any, watch: Any = None
) -> Followed:
    """Train on at most settings["words"] of the words, on all of them if that is 0."""
    words = words[: settings["words"] or None]
    predict = model_of(settings, words)
    data = jax.tree.map(jnp.asarray, words.data())
    ridge = settings["ridge"] / len(words)
    problem = structured_problem(predict, predict.oracle, data, settings["top"], ridge)
    w = predict.init(start_key(settings["seed"]), jnp.float32)
    return structured_run(problem, w, settings, measure, SHARES, watch)


def letter_error(settings: Mapping[str, Any], words: Words) -> LetterError:
    """Return the measure of a case on some words."""
    return LetterError(
        model_of(settings, words),
        *map(jnp.asarray, (words.pixels, words.lengths, words.labels)),
    )


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one case of the search; returns the least error on the words held back, and after how
    many passes.
    """
    words, _ = asked_parts(settings)
    held = max(1, round(HELD * len(words)))
    run = run_of(settings, words[held:], letter_error(settings, words[:held]))
    return {
        "validation_loss": run.best,
        "best_at": float(run.at),
        "diverged": run.diverged,
    }


def refit(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train on all training words; returns the errors on the test words after `stop` passes, and
    their curves.
    """
    words, test = asked_parts(settings)
    measure = letter_error(settings, test)
    run = run_of(
        settings,
        words,
        measure,
        {"words": word_metrics(measure.predict, test)["words"]},
    )
    at = int(np.argmin(np.abs(run.marks - settings["stop"])))
    curve = np.where(np.isfinite(run.measures), run.measures, 1.0)
    return {
        "letters": float(run.measures[at]),
        "words": float(run.watched["words"][at]),
        "diverged": run.diverged,
        "curve_passes": run.passes.tolist(),
        "curve_seconds": run.seconds.tolist(),
        "curve_letters": curve.tolist(),
    }
