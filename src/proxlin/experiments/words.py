"""Reading handwritten words: a second structured task, on real data, by the solvers of Figure 4.

    score(c) = sum_t letter(x_t)[c_t] + sum_t T[c_t, c_{t+1}]

Without T, with T, and with a network in the place of the linear score of a letter; one fold of the
words to train and nine to test, which is the standard hard setting, and the other way round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..data.origin import Origin
from ..data.sequences import words_origin
from ..plots.curves import Curve, draw, rows
from ..plots.pages import Row
from ..theory import t_interval
from ..tuning.search import Grid, Setting
from .engine.base import Case, Context, Plan, Result
from .engine.study import (
    curve,
    demand_known,
    demand_positive,
    fields_of,
    mean_of,
    study,
    tuned_plan,
)
from .tasks import LABELS
from .tuning import Entry, Tuned, first_seed, tune
from .words_task import FOLDS, GRIDS, MODELS

TASKS = "proxlin.experiments.words_task"
BASE = "sgd-averaged"  # the method by which the models are compared
METHODS = {BASE: "SGD, averaged", **LABELS}
DIRECTIONS = {
    "one": "train on 1 fold, test on 9",
    "nine": "train on 9 folds, test on 1",
}
WORDS = {"one": 650, "nine": 6500}  # to train on, about as many as there are
SECONDS = 2e-4  # for each word and pass; measured on two cores


class Label(NamedTuple):
    """What is tuned."""

    direction: str
    model: str
    method: str

    def words(self) -> str:
        """Return the model and the method in words."""
        return f"{MODELS[self.model]}; {METHODS[self.method]}"


Found = Mapping[Label, Tuned]
Read = Mapping[Label, list[dict]]  # the results on the test words, one for each fold


@dataclass(frozen=True)
class Config:
    """What a profile sets.

    `words`, `test`: at most so many of each, 0 for all; `passes` for each of the directions; `methods`: what reads
    with the linear score and pairs, beside averaged SGD, in the first direction.
    """

    directions: tuple[str, ...]
    passes: tuple[float, ...]
    methods: tuple[str, ...]
    words: int
    test: int
    width: int
    top: int
    settings: int
    finalists: int
    folds: int

    def __post_init__(self):
        for name in self.directions:
            demand_known("a direction", name, DIRECTIONS)
        for name in self.methods:
            demand_known("a method", name, METHODS)
        if (
            not self.directions
            or len(self.passes) != len(self.directions)
            or min(self.passes) <= 0
        ):
            raise ValueError(
                "passes has to hold a positive number for each of the directions."
            )
        demand_positive(self, "width", "top", "settings", "finalists")
        if min(self.words, self.test) < 0:
            raise ValueError("words and test must not be negative.")
        if not 2 <= self.folds <= FOLDS:
            raise ValueError(
                f"folds has to be 2 to {FOLDS}: a difference needs an interval."
            )


def case_of(
    label: Label,
    config: Config,
    data: Origin,
    setting: Setting,
    seed: int,
    task: str = "train",
) -> Case:
    """Return the case of one setting on one fold."""
    passes = config.passes[config.directions.index(label.direction)]
    settings = {
        "data": data.name,
        "content": data.content,
        **label._asdict(),
        "seed": seed,
        **fields_of(config, "words", "test", "width", "top"),
        "passes": passes,
        **setting,
    }
    count = WORDS[label.direction]
    work = 0.2 + SECONDS * passes * min(config.words or count, count)
    return Case(
        f"{TASKS}:{task}",
        settings,
        work,
        f"{label.model} {label.method} {label.direction}",
    )


def labels_of(config: Config) -> list[Label]:
    """Return every model by averaged SGD in every direction, and the linear one with pairs by every
    method in one.
    """
    labels = [
        Label(direction, model, BASE)
        for direction in config.directions
        for model in MODELS
    ]
    first = config.directions[0]
    return labels + [
        Label(first, "chain", method) for method in config.methods if method != BASE
    ]


def entries_of(config: Config, data: Origin) -> list[Entry]:
    """Return everything that is tuned."""
    return [
        Entry(
            label,
            Grid(GRIDS[label.method], config.settings),
            partial(case_of, label, config, data),
            config.folds,
        )
        for label in labels_of(config)
    ]


def plan(config: Config, seed: int) -> Plan:
    """Say what will run."""
    data = words_origin()
    refits = [
        case_of(label, config, data, {}, 0, "refit") for label in labels_of(config)
    ]
    return tuned_plan(
        entries_of(config, data), config.finalists, seed, config.folds * refits
    )


def refits(config: Config, data: Origin, found: Found, context: Context) -> Read:
    """Run each chosen setting on all the training words of each fold, stopped where the words held
    back said.
    """
    cases = []
    for label, each in found.items():
        for seed, run in enumerate(each.runs, first_seed(context)):
            setting = {**each.setting, "stop": run["best_at"]}
            cases.append(case_of(label, config, data, setting, seed, "refit"))
    results = iter(context.sweep(cases))
    return {label: [next(results) for _ in each.runs] for label, each in found.items()}


def error(read: Read, label: Label, name: str = "letters") -> np.ndarray:
    """Return the share of wrong letters, or words, on each fold."""
    return np.asarray([run[name] for run in read[label]])


def error_rows(found: Found, read: Read) -> list[Row]:
    """Return the errors on the test words, and the setting that was chosen."""
    rows = []
    for label, each in found.items():
        mean, low, high = t_interval(error(read, label))
        rows.append(
            {
                "direction": DIRECTIONS[label.direction],
                "model": MODELS[label.model],
                "method": METHODS[label.method],
                "letter_error": mean,
                "low": low,
                "high": high,
                "word_error": float(error(read, label, "words").mean()),
                "validation": mean_of(each, "validation_loss"),
                "passes": mean_of(each, "best_at"),
                "setting": each.words(),
            }
        )
    return rows


def difference_rows(config: Config, read: Read) -> list[dict[str, Any]]:
    """Return differences of the letter error, paired by fold: of the models by averaged SGD, and of
    the methods.
    """
    pairs = []
    for model, less in (("chain", "letters"), ("network", "chain")):
        pairs += [
            (Label(each, model, BASE), Label(each, less, BASE))
            for each in config.directions
        ]
    pairs += [
        (label, label._replace(method=BASE))
        for label in labels_of(config)
        if label.method != BASE
    ]
    rows = []
    for one, two in pairs:
        mean, low, high = t_interval(error(read, one) - error(read, two))
        names = {
            "direction": DIRECTIONS[one.direction],
            "this": one.words(),
            "less": two.words(),
        }
        rows.append({**names, "difference": mean, "low": low, "high": high})
    return rows


def curves_of(read: Read, data: Origin) -> list[Curve]:
    """Return letter errors on the test words, in per cent, from the first pass: before it all
    letters look alike.
    """
    whose = f"; {data.label}" if data.stands_in else ""
    curves = []
    for axis in ("passes", "seconds"):
        for label, runs in read.items():
            first = int(np.argmax(curve(runs, "passes")[0] >= 1))
            x = curve(runs, axis)[:, first:]
            y = curve(runs, "letters")[:, first:]
            curves.append(
                Curve(
                    DIRECTIONS[label.direction] + whose, label.words(), x, 100 * y, axis
                )
            )
    return curves


def run(config: Config, context: Context) -> Result:
    """Tune every model and method, and let the chosen ones read the test words."""
    (data,) = context.data
    found = tune(entries_of(config, data), context, config.finalists)
    read = refits(config, data, found, context)
    differences = difference_rows(config, read)
    curves = curves_of(read, data)
    return Result(
        tables={
            "errors": error_rows(found, read),
            "differences": differences,
            "curves": rows(curves, "passes"),
        },
        figures=draw(
            "curves", curves, "wrong letters in test words, %", False, None, True
        ),
        notes=notes_of(config, data, differences),
        timings={"curves": rows(curves, "seconds")},
    )


def notes_of(
    config: Config, data: Origin, differences: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the differences in sentences, and what a reader has to know about them."""
    notes = []
    for row in differences:
        points = f"{100 * row['difference']:+.1f} points [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
        notes.append(
            f"{row['direction'].capitalize()}: wrong letters of ({row['this']}) less those of ({row['less']}): "
            f"{points}, 95 % over folds."
        )
    which = (
        "synthetic words"
        if data.stands_in
        else "the handwritten words of Kassel and Taskar"
    )
    notes.append(
        f"{config.settings} settings each on {which}, chosen on a fifth of the training words of the first fold; then "
        f"all training words, {config.folds} folds. Bands are the range of the folds. One XLA thread."
    )
    if config.words or config.test:
        notes.append(
            f"This profile trains on at most {config.words} words and tests on {config.test}; 0 stands for all."
        )
    return notes


STUDY = study(
    "words",
    "Handwritten words: chains of letters",
    Config,
    run,
    plan,
    data=lambda config: (words_origin(),),
)
