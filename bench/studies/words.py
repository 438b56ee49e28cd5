"""Reading handwritten words: ours against a chain CRF of CRFsuite, on the same folds of the same
words.

    python -m bench --only words            python -m bench.studies.words --direction nine --folds 2

    letters    linear score of a letter, no pairs                   network    a hidden layer in the place of linear
    chain      linear score and pairs, within a point of CRFsuite or better, and clearly better than letters
    crfsuite   python-crfsuite: pixels and transitions as features, L-BFGS, squared l2 norm times c2
    hinge      proxlin.sklearn.StructuredClassifier() at its defaults: nothing is chosen
    crf        StructuredClassifier(loss="crf"), the rest at its defaults

The first three are averaged SGD on the structural hinge. They and CRFsuite choose their settings on a
fifth of the training words of the first fold (ours a step, a ridge and the passes; CRFsuite c2), then train on all of
them; wrong letters in the test words, in per cent, by fold. Real words where PROXLIN_DATA has them.
Seconds are those of training, one thread each.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from proxlin.data.sequences import Words, words_origin
from proxlin.experiments.engine.workers import prepare
from proxlin.files.writing import write_file
from proxlin.theory import t_interval
from proxlin.tuning.search import Grid, tune_grids

PASSES = {"one": 60.0, "nine": 12.0}
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
METHOD = "sgd-averaged"


def features(words: Words) -> tuple[list, list]:
    """The pixels that are set, and a constant; labels as text."""
    pairs = list(zip(words.pixels, words.labels, words.lengths, strict=True))
    x = [
        [["1", *map(str, np.flatnonzero(image))] for image in pixels[:length]]
        for pixels, _, length in pairs
    ]
    return x, [[str(label) for label in labels[:length]] for _, labels, length in pairs]


def crf(words: Words, test: Words, penalty: float) -> tuple[float, float]:
    """Wrong letters of a CRF trained on the words, and the seconds of its training."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for x, y in zip(*features(words), strict=True):
        trainer.append(x, y)
    # all pairs and all pixels of all letters, as ours has
    every = {"feature.possible_transitions": True, "feature.possible_states": True}
    trainer.set_params({"c1": 0.0, "c2": penalty, "max_iterations": 500, **every})
    tagger = pycrfsuite.Tagger()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        start = time.perf_counter()
        trainer.train(path)
        seconds = time.perf_counter() - start
        tagger.open(path)
        wrong = sum(
            a != b
            for x, y in zip(*features(test), strict=True)
            for a, b in zip(tagger.tag(x), y, strict=True)
        )
        tagger.close()
    return wrong / int(test.lengths.sum()), seconds


def crf_errors(asked: Sequence[dict]) -> list[tuple[float, float]]:
    from proxlin.experiments.words_task import HELD, asked_parts

    words = asked_parts(asked[0])[0]
    held = round(HELD * len(words))
    penalty = min(PENALTIES, key=lambda c2: crf(words[held:], words[:held], c2)[0])
    print(f"  crfsuite: c2 = {penalty:g}", flush=True)
    return [crf(*asked_parts(each), penalty) for each in asked]


def our_errors(asked: Sequence[dict], settings: int) -> list[tuple[float, float]]:
    from proxlin.experiments.words_task import GRIDS, refit, train

    evaluate = lambda trials: [
        train({**asked[0], **trial.setting})["validation_loss"] for trial in trials
    ]
    (best,) = tune_grids([Grid(GRIDS[METHOD], settings)], evaluate, min, seeds=[1])
    setting = best.setting
    found, stops = [], []
    for each in asked:
        stops.append(train({**each, **setting})["best_at"])
        read = refit({**each, **setting, "stop": stops[-1]})
        found.append((read["letters"], read["curve_seconds"][-1]))
    print(f"  {asked[0]['model']}: {setting}, passes {stops}", flush=True)
    return found


def classifier_errors(asked: Sequence[dict], loss: str) -> list[tuple[float, float]]:
    """Wrong letters of the estimator at its default settings, and the seconds of its training."""
    from proxlin.experiments.words_task import asked_parts
    from proxlin.sklearn import StructuredClassifier

    def sequences(words: Words) -> tuple[list, list]:
        each = list(zip(words.pixels, words.labels, words.lengths, strict=True))
        x = [pixels[:length] for pixels, _, length in each]
        return x, [labels[:length] for _, labels, length in each]

    found = []
    for each in asked:
        words, test = asked_parts(each)
        x, y = sequences(words)
        start = time.perf_counter()
        model = StructuredClassifier(loss=loss).fit(x, y)
        seconds = time.perf_counter() - start
        found.append((1 - model.score(*sequences(test)), seconds))
    return found


def asked_of(direction: str, model: str, folds: int, content: str) -> list[dict]:
    base: dict[str, Any] = {
        "content": content,
        "direction": direction,
        "method": METHOD,
        "words": 0,
        "test": 0,
    }
    base |= {"width": 128, "top": 10, "passes": PASSES[direction], "model": model}
    return [{**base, "seed": fold} for fold in range(folds)]


def compare(
    direction: str, folds: int, settings: int, content: str, methods: Sequence[str]
) -> list[dict]:
    found = {}
    for method in methods:
        own = method if method in MODELS else "chain"
        asked = asked_of(direction, own, folds, content)
        if method in MODELS:
            found[method] = our_errors(asked, settings)
        elif method in CLASSIFIERS:
            found[method] = classifier_errors(asked, method)
        elif find_spec("pycrfsuite") is None:
            print("  pycrfsuite: not installed, no row", flush=True)
        else:
            found[method] = crf_errors(asked)
    rows = []
    for name, each in found.items():
        errors = 100 * np.array([error for error, _ in each])
        row = {
            "direction": direction,
            "who": name,
            "errors": errors.tolist(),
            "mean": float(errors.mean()),
        }
        row |= {"seconds": float(np.median([seconds for _, seconds in each]))}
        print(
            f"  {name:9s} {row['mean']:6.2f} % wrong, by fold {np.round(errors, 2)}   {row['seconds']:.1f} s",
            flush=True,
        )
        rows.append(row)
    return rows + targets(
        direction, {row["who"]: np.array(row["errors"]) for row in rows}
    )


MODELS = ("letters", "chain", "network")
CLASSIFIERS = ("hinge", "crf")
METHODS = (*MODELS, "crfsuite", *CLASSIFIERS)
TARGETS = (
    ("chain", "letters", 0.0),
    ("chain", "crfsuite", 1.0),
    ("network", "chain", 0.0),
    ("network", "crfsuite", 0.0),
    ("hinge", "crfsuite", 0.0),
    ("crf", "crfsuite", 0.0),
)


def targets(direction: str, errors: dict[str, np.ndarray]) -> list[dict]:
    """Differences by fold; a target is kept if their mean is below it."""
    rows = []
    for one, two, most in TARGETS:
        if one in errors and two in errors:
            mean, low, high = t_interval(errors[one] - errors[two])
            kept = "kept" if mean < most else "MISSED"
            spread = (
                f"95 % over folds [{low:+.2f}, {high:+.2f}]"
                if len(errors[one]) > 1
                else "one fold"
            )
            print(
                f"  {one} less {two}: {mean:+.2f} points (below {most:g}: {kept}), {spread}",
                flush=True,
            )
            rows.append(
                {
                    "direction": direction,
                    "this": one,
                    "less": two,
                    "mean": mean,
                    "kept": mean < most,
                }
            )
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.studies.words",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--direction",
        choices=tuple(PASSES),
        help="train on one fold or on nine; both if not given",
    )
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--settings", type=int, default=6, help="that ours may try")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    prepare()
    origin, rows = words_origin(), []
    for direction in PASSES:
        if arguments.direction in (None, direction):
            print(
                f"{origin.label}: train on {direction}, test on the others", flush=True
            )
            found = compare(
                *(direction, arguments.folds, arguments.settings, origin.content),
                arguments.methods,
            )
            rows += [{"data": origin.label, **row} for row in found]
    if arguments.json:
        write_file(arguments.json, json.dumps(rows, indent=1).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
