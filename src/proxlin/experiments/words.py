"""Reading handwritten words: a second structured task, on real data, by the solvers of Figure 4.

    score(c) = sum_t letter(x_t)[c_t] + sum_t T[c_t, c_{t+1}]

Without T, with T, and with a network in the place of the linear score of a letter; one fold of the words to train and
nine to test, which is the standard hard setting, and the other way round.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..data.origin import Origin
from ..data.sequences import words_origin
from ..plots.curves import Curve, draw, rows
from ..plots.pages import Row
from ..theory import t_interval
from ..tuning.search import Grid, Setting
from .engine.base import Case, Context, Experiment, Plan, Result, register
from .engine.config import parse, shipped
from .readers import FOLDS, GRIDS, MODELS
from .tuning import Entry, Tuned, bracket_of, cases_of, first_seed, tune, work_of

TASKS = "proxlin.experiments.readers"
BASE = "sgd-averaged"  # what the models are compared by
METHODS = {
    "sgd-averaged": "SGD, averaged",
    "sgd": "SGD, constant",
    "sgd-sqrt": "SGD, 1/sqrt t",
    "sgd-inverse": "SGD, 1/t",
    "svrg": "SVRG",
    "casimir": "Casimir-SVRG",
    "pli": "PLI",
}
DIRECTIONS = {"one": "train on 1 fold, test on 9", "nine": "train on 9 folds, test on 1"}
Label = tuple[str, str, str]  # direction, model, method


@dataclass(frozen=True)
class Config:
    """What a profile sets. `words`, `test`: at most so many of each, 0 for all; `passes` for each of the directions;
    `methods`: what reads with the linear score and pairs, beside averaged SGD, in the first direction."""

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
        for name, known in (("directions", DIRECTIONS), ("methods", METHODS)):
            for each in getattr(self, name):
                if each not in known:
                    raise ValueError(f"{name} holds {each!r}; take some of {', '.join(known)}.")
        if not self.directions or len(self.passes) != len(self.directions) or min(self.passes) <= 0:
            raise ValueError("passes has to hold a positive number for each of the directions.")
        if min(self.width, self.top, self.settings, self.finalists) < 1 or min(self.words, self.test) < 0:
            raise ValueError("width, top, settings and finalists have to be positive, words and test not negative.")
        if not 2 <= self.folds <= FOLDS:
            raise ValueError(f"folds has to be 2 to {FOLDS}: a difference needs an interval.")


def case_of(label: Label, config: Config, data: Origin, setting: Setting, seed: int, task: str = "train") -> Case:
    direction, model, method = label
    passes = config.passes[config.directions.index(direction)]
    asked: dict[str, Any] = {"data": data.name, "content": data.content, "direction": direction}
    asked |= {"model": model, "method": method, "seed": seed}
    asked |= {name: getattr(config, name) for name in ("words", "test", "width", "top")} | {"passes": passes}
    count = min(config.words or 6500, 650 if direction == "one" else 6500)
    read = min(config.test or 6500, 6500) if task == "refit" else count / 5
    seconds = 1.5e-4 * (2 if model == "network" else 1)  # of a step, measured on a 2-core machine
    work = 0.2 + seconds * (count * passes + 3 * read)
    return Case(f"{TASKS}:{task}", {**asked, **setting}, work, f"{model} {method} {direction}")


def labels_of(config: Config) -> list[Label]:
    """Every model by averaged SGD in every direction, and the linear one with pairs by every method in the first."""
    labels = [(direction, model, BASE) for direction in config.directions for model in MODELS]
    return labels + [(config.directions[0], "chain", method) for method in config.methods if method != BASE]


def entries_of(config: Config, data: Origin) -> list[Entry]:
    return [
        Entry(label, Grid(GRIDS[label[2]], config.settings), partial(case_of, label, config, data), config.folds)
        for label in labels_of(config)
    ]


def plan(config: Mapping[str, object], seed: int) -> Plan:
    settings = parse(Config, config)
    data, last = words_origin(), settings.finalists
    entries = entries_of(settings, data)
    refits = [case_of(label, settings, data, {}, 0, "refit").work for label in labels_of(settings)]
    count = cases_of(entries, last) + settings.folds * len(refits)
    return Plan(bracket_of(entries, seed * 1000), count, work_of(entries, last) + settings.folds * sum(refits))


def refits(config: Config, data: Origin, found: Mapping[Label, Tuned], context: Context) -> dict[Label, list[dict]]:
    """Each chosen setting, on all the training words of each fold, stopped where the words held back said."""
    asked = [
        (
            label,
            case_of(label, config, data, {**each.setting, "stop": run["best_at"]}, first_seed(context) + i, "refit"),
        )
        for label, each in found.items()
        for i, run in enumerate(each.runs)
    ]
    read: dict[Label, list[dict]] = {label: [] for label in found}
    for (label, _), result in zip(asked, context.sweep([case for _, case in asked]), strict=True):
        read[label].append(result)
    return read


Read = Mapping[Label, list[dict]]


def error(read: Read, label: Label, name: str = "letters") -> np.ndarray:
    return np.asarray([run[name] for run in read[label]])


def error_rows(found: Mapping[Label, Tuned], read: Read) -> list[Row]:
    rows = []
    for label, each in found.items():
        direction, model, method = label
        mean, low, high = t_interval(error(read, label))
        rows.append(
            {"direction": DIRECTIONS[direction], "model": MODELS[model], "method": METHODS[method]}
            | {"letter_error": mean, "low": low, "high": high, "word_error": float(error(read, label, "words").mean())}
            | {"validation": float(each.losses("validation_loss").mean())}
            | {"passes": float(each.losses("best_at").mean()), "setting": each.words()}
        )
    return rows


def difference_rows(config: Config, read: Read) -> list[dict[str, Any]]:
    """Differences of the letter error, paired by fold: of the models by averaged SGD, and of the methods."""
    pairs = [((d, "chain", BASE), (d, "letters", BASE)) for d in config.directions]
    pairs += [((d, "network", BASE), (d, "chain", BASE)) for d in config.directions]
    pairs += [(label, (*label[:2], BASE)) for label in labels_of(config) if label[2] != BASE]
    rows = []
    for one, two in pairs:
        mean, low, high = t_interval(error(read, one) - error(read, two))
        name = lambda label: f"{MODELS[label[1]]}; {METHODS[label[2]]}"
        rows.append(
            {"direction": DIRECTIONS[one[0]], "this": name(one), "less": name(two), "difference": mean}
            | {"low": low, "high": high}
        )
    return rows


def curves_of(read: Read, data: Origin) -> list[Curve]:
    """Letter errors on the test words, in per cent, from the first pass on: before it every letter is read as one."""
    whose = f"; {data.label}" if data.stands_in else ""
    curves = []
    for axis in ("passes", "seconds"):
        for (direction, model, method), runs in read.items():
            length = min(len(run["curve_passes"]) for run in runs)
            first = int(np.argmax(np.asarray(runs[0]["curve_passes"][:length]) >= 1))
            x, y = (np.asarray([run[f"curve_{name}"][first:length] for run in runs]) for name in (axis, "letters"))
            curves.append(Curve(DIRECTIONS[direction] + whose, f"{MODELS[model]}; {METHODS[method]}", x, 100 * y, axis))
    return curves


def run(context: Context) -> Result:
    config = parse(Config, context.config)
    (data,) = context.data
    found = tune(entries_of(config, data), context, config.finalists)
    read = refits(config, data, found, context)
    differences = difference_rows(config, read)
    curves = curves_of(read, data)
    tables = {"errors": error_rows(found, read), "differences": differences, "curves": rows(curves, "passes")}
    return Result(
        tables,
        draw("curves", curves, "wrong letters in test words, %", False, None, True),
        notes=notes_of(config, data, differences),
        timings={"curves": rows(curves, "seconds")},
    )


def notes_of(config: Config, data: Origin, differences: list[dict[str, Any]]) -> list[str]:
    points = lambda row: f"{100 * row['difference']:+.1f} points [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
    notes = [
        f"{row['direction'].capitalize()}: wrong letters of ({row['this']}) less those of ({row['less']}): "
        f"{points(row)}, 95 % over folds."
        for row in differences
    ]
    which = "synthetic words" if data.stands_in else "the handwritten words of Kassel and Taskar"
    notes.append(
        f"{config.settings} settings each on {which}, chosen on a fifth of the training words of the first fold; then "
        f"all training words, {config.folds} folds. Bands are the range of the folds. One XLA thread."
    )
    if config.words or config.test:
        notes.append(
            f"This profile trains on at most {config.words} words and tests on {config.test}; 0 stands for all."
        )
    return notes


register(
    Experiment(
        "words",
        "Handwritten words: chains of letters",
        (),
        run,
        shipped("words"),
        plan,
        partial(parse, Config),
        lambda config: (words_origin(),),
    )
)
