"""Figure 5: stochastic nonlinear equations, f((1/n) sum_i phi_i(w)) with four losses of the margin,
on real data.

All settings are tuned on a validation part of the training set, the test set is looked at once.
Effective passes count every phi, JVP and VJP: a Jacobian of four rows costs 5/2 passes, a gradient
one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..data import classification
from ..data.origin import Origin
from ..plots.curves import Curve, draw
from ..plots.pages import Row
from ..theory import Comparison, Rule
from ..tuning.search import Grid, Setting
from . import equations_bias
from .engine.base import Case, Context, Plan, Result, Verdict
from .engine.study import (
    curve,
    demand_known,
    demand_positive,
    demand_rules,
    fields_of,
    mean_of,
    study,
    tuned_plan,
)
from .engine.verdicts import choices, verdict_of
from .equations_task import GRIDS, OUTERS
from .tuning import Entry, Seeds, Tuned, columns_of, compare, first_seed, tune, winner

TASK = "proxlin.experiments.equations_task:train"
BIAS = "proxlin.experiments.equations_task:biased"
RULES = ("C7", "C8", "C9")
LABELS = {
    "gd": "GD",
    "pl": "PL",
    "sgd": "SGD",
    "pli": "PLI",
    "pli-apg": "PLI, APG",
    "pli-sarah": "PLI, SARAH",
    "pli-svrg": "PLI, SVRG",
    "sgd-average": "SGD, running average",
    "sgd-sarah": "SGD, SARAH",
    "sgd-svrg": "SGD, SVRG",
}
# The gradient method, and Gauss-Newton, or the gradient method with another estimate. The first two are judged.
DUELS = (
    ("gd", "pl"),
    ("sgd", "pli"),
    ("sgd", "pli-apg"),
    ("sgd", "pli-sarah"),
    ("sgd", "pli-svrg"),
    ("sgd-sarah", "pli-sarah"),
    ("sgd-svrg", "pli-svrg"),
    ("sgd-average", "pli"),
)
JUDGED = ("gd", "pl", "sgd", "pli")
BATCH = ("gd", "pl")
# Seconds for each number of the data and pass, with batches of 256; the losses that are looked at once an epoch are in
# them. Measured on covtype with one thread.
SECONDS = {
    "gd": 2e-9,
    "pl": 1.3e-9,
    "sgd": 2.9e-9,
    "pli": 2.9e-9,
    "pli-apg": 2.9e-9,
    "pli-sarah": 1.2e-9,
    "pli-svrg": 1.2e-9,
    "sgd-average": 3.8e-9,
    "sgd-sarah": 1.2e-9,
    "sgd-svrg": 1.2e-9,
}
START = 0.5  # seconds of a case that are not in proportion to its data

Found = Mapping[tuple[str, str], Tuned]  # by data and method


@dataclass(frozen=True)
class Config:
    """What a profile sets; `rows`: at most so many of the training rows, 0 for all; `methods`: what is tuned; seeds: of
    the full batch, of SGD and PLI, and of what is not judged; `fresh`: whether a seed of its own chooses the settings.
    """

    data: tuple[str, ...]
    methods: tuple[str, ...]
    rows: int
    passes: float
    settings: int
    finalists: int
    fresh: bool
    seeds: int
    stochastic_seeds: int
    choice_seeds: int
    outer: str
    rules: dict[str, Rule]

    def __post_init__(self):
        for name in self.data:
            classification.known(name)
        demand_known("outer", self.outer, OUTERS)
        demand_positive(self, "passes", "settings", "finalists")
        demand_rules(self, *RULES)
        for name in self.methods:
            demand_known("a method", name, GRIDS)
        if not set(JUDGED) <= set(self.methods):
            raise ValueError(f"methods has to hold {', '.join(JUDGED)}.")
        least = min(self.seeds, self.stochastic_seeds, self.choice_seeds)
        if self.rows < 0 or least < 2:
            raise ValueError(
                "seeds has to be at least 2: a difference needs an interval; and rows not negative."
            )

    @property
    def use(self) -> Seeds:
        """Return how seeds are used: the first one searches."""
        return Seeds(1, self.fresh)

    def seeds_of(self, method: str) -> int:
        """Return the number of seeds of a method."""
        if method in BATCH:
            return self.seeds
        if method in JUDGED:
            return self.stochastic_seeds
        return self.choice_seeds


def case_of(
    origin: Origin, method: str, config: Config, setting: Setting, seed: int
) -> Case:
    """Return the case of one setting on one seed."""
    asked = {"data": origin.name, "content": origin.content, "method": method}
    settings = {
        **asked,
        **fields_of(config, "rows", "passes", "outer"),
        "seed": seed,
        **setting,
    }
    source = classification.known(origin.name)
    rows = min(source.rows, config.rows or source.rows)
    work = START + SECONDS[method] * rows * source.columns * config.passes
    return Case(
        TASK, settings, work, f"{origin.name} {method} {setting.get('batch', '')}"
    )


def bias_case(origin: Origin, batch: int, config: Config, seed: int) -> Case:
    """Return the case that measures the bias of a mini-batch subgradient."""
    asked = {"data": origin.name, "content": origin.content, "batch": batch}
    settings = {**asked, **fields_of(config, "rows", "outer"), "seed": seed}
    return Case(BIAS, settings, 1.0 + 1e-3 * batch, f"{origin.name} bias")


def bias_cases(config: Config, data: Sequence[Origin], seed: int) -> list[Case]:
    """Return a case for each data set and batch size."""
    return [
        bias_case(origin, batch, config, seed)
        for origin, batch in product(data, equations_bias.BATCHES)
    ]


def origins_of(config: Config) -> list[Origin]:
    """Return where the data sets of a config come from."""
    return [classification.origin_of(name) for name in config.data]


def entries_of(config: Config, data: Sequence[Origin]) -> list[Entry]:
    """Return every data set and method to be tuned."""
    entries = []
    for origin, method in product(data, config.methods):
        case = partial(case_of, origin, method, config)
        grid = Grid(GRIDS[method], config.settings)
        entries.append(
            Entry((origin.label, method), grid, case, config.seeds_of(method))
        )
    return entries


def plan(config: Config, seed: int) -> Plan:
    """Say what will run."""
    data = origins_of(config)
    return tuned_plan(
        entries_of(config, data),
        config.finalists,
        seed,
        bias_cases(config, data, 1000 * seed),
        config.use,
    )


def loss_rows(found: Found) -> list[Row]:
    """Return the losses of each method on each data set, and the setting that was chosen."""
    rows = []
    for (name, method), each in found.items():
        rows.append(
            {
                "data": name,
                "method": LABELS[method],
                "test_loss": mean_of(each, "test_loss"),
                "spread": float(each.losses().std(ddof=1)),
                "validation_loss": mean_of(each, "validation_loss"),
                "train_loss": mean_of(each, "train_loss"),
                "best_at": mean_of(each, "best_at"),
                "setting": each.words(),
                "at_end_of_axis": " ".join(each.ends),
            }
        )
    return rows


def duel_rows(config: Config, found: Found) -> list[dict[str, Any]]:
    """Return the test loss of Gauss-Newton over that of the gradient method, less 1, for each pair
    of DUELS.
    """
    rows = []
    names = dict.fromkeys(name for name, _ in found)
    for name, (one, two) in product(names, duels_of(config)):
        rule = config.rules["C7" if one == "gd" else "C8"]
        each = paired(found[name, one], found[name, two], rule.level)
        rows.append(
            {
                "data": name,
                "gradient": LABELS[one],
                "gauss_newton": LABELS[two],
                **columns_of(each, "difference"),
                "winner": winner(each, rule.band, LABELS[one], LABELS[two]),
            }
        )
    return rows


def duels_of(config: Config) -> list[tuple[str, str]]:
    """Return the pairs whose methods were both tuned."""
    return [pair for pair in DUELS if set(pair) <= set(config.methods)]


def paired(one: Tuned, two: Tuned, level: float) -> Comparison:
    """Return the loss of two over that of one, on the seeds that both have."""
    seeds = min(len(one.runs), len(two.runs))
    return compare(one.losses(seeds=seeds), two.losses(seeds=seeds), level)


def at_equal_steps(one: Tuned, two: Tuned, level: float) -> Comparison:
    """Return the same where both have as many steps as the one that took fewer within its passes."""
    losses = []
    for first, second in zip(one.runs, two.runs, strict=True):
        steps = min(first["curve_step"][-1], second["curve_step"][-1])
        losses.append([_best_within(run, steps) for run in (first, second)])
    first, second = np.transpose(losses)
    return compare(first, second, level)


def _best_within(run: Mapping[str, Any], steps: float | int) -> float:
    """Return the test loss where the validation loss was least, in the first `steps` steps."""
    count = sum(step <= steps for step in run["curve_step"])
    return run["curve_test"][int(np.argmin(run["curve_validation"][:count]))]


def choice_rows(config: Config, found: Found, seed: int) -> list[Row]:
    """Return C7 at equal steps, and C8 with other subsolvers and estimates: they judge nothing."""
    rows = []
    for name in dict.fromkeys(name for name, _ in found):
        rule = config.rules["C7"]
        each = at_equal_steps(found[name, "gd"], found[name, "pl"], rule.level)
        what = f"{name}: test loss of PL over GD, less 1"
        judged = [verdict_of("C7", rule, each, what, seed)]
        rows += choices("equal steps", judged, name)
        rule = config.rules["C8"]
        for one, two in duels_of(config)[2:]:
            each = paired(found[name, one], found[name, two], rule.level)
            words = f"{LABELS[two]} against {LABELS[one]}"
            what = f"{name}: test loss of {LABELS[two]} over {LABELS[one]}, less 1"
            judged = [verdict_of("C8", rule, each, what, seed)]
            rows += choices(words, judged, name)
    return rows


def verdicts(rules: Mapping[str, Rule], found: Found, seed: int) -> list[Verdict]:
    """Return the verdicts on C7 and C8, one for each data set: the paper claims them of both."""
    judged = []
    names = dict.fromkeys(name for name, _ in found)
    for claim, (one, two) in (("C7", DUELS[0]), ("C8", DUELS[1])):
        rule = rules[claim]
        for name in names:
            each = paired(found[name, one], found[name, two], rule.level)
            what = f"{name}: test loss of {LABELS[two]} over {LABELS[one]}, less 1"
            judged.append(verdict_of(claim, rule, each, what, seed))
    return judged


def curves_of(found: Found) -> list[Curve]:
    """Return the test losses over passes and over seconds."""
    return [
        Curve(
            name, LABELS[method], curve(each.runs, axis), curve(each.runs, "test"), axis
        )
        for axis in ("passes", "seconds")
        for (name, method), each in found.items()
    ]


def curve_rows(found: Found, column: str, name: str) -> list[Row]:
    """Return the mean over the seeds of a column of the curves, under a name of its own."""
    rows = []
    for (data, method), each in found.items():
        passes = curve(each.runs, "passes").mean(0).tolist()
        values = curve(each.runs, column).mean(0).tolist()
        for at, value in zip(passes, values, strict=True):
            rows.append(
                {"data": data, "method": LABELS[method], "passes": at, name: value}
            )
    return rows


def run(config: Config, context: Context) -> Result:
    """Tune every method on every data set, compare them, and measure the bias of a mini-batch."""
    for origin in context.data:
        # a file is parsed here once, not by every worker
        classification.parts(origin.name, 0, say=lambda text: None)
    found = tune(
        entries_of(config, context.data), context, config.finalists, config.use
    )
    duels = duel_rows(config, found)
    results = context.sweep(bias_cases(config, context.data, first_seed(context)))
    asked = product(context.data, equations_bias.BATCHES)
    biases = [
        {"data": origin.label, "batch": batch, **each}
        for (origin, batch), each in zip(asked, results, strict=True)
    ]
    notes = [
        f"Every method tried {config.settings} settings within {config.passes:g} effective passes; lines are means of "
        f"{config.seeds} seeds (split and batches) in the full batch and of {config.stochastic_seeds} for SGD and PLI, "
        "bands their range. One XLA thread.",
        "PLI solves its subproblem for the four dual variables exactly, where the paper takes accelerated proximal "
        "gradient; PLI, APG is that.",
        f"The bias of a mini-batch subgradient is measured at the start, by {equations_bias.DRAWS} draws on one split.",
    ]
    if config.rows:
        notes.append(
            f"This profile trains on at most {config.rows} rows of each data set."
        )
    return Result(
        tables={
            "losses": loss_rows(found),
            "duels": duels,
            "choices": choice_rows(config, found, context.seed),
            "bias": biases,
            "curves": curve_rows(found, "test", "test_loss"),
        },
        figures=draw("curves", curves_of(found)),
        verdicts=[
            *verdicts(config.rules, found, context.seed),
            *equations_bias.verdicts(config.rules["C9"], biases, context.seed),
        ],
        notes=notes,
        timings={"curves": curve_rows(found, "seconds", "seconds")},
    )


STUDY = study(
    "fig5",
    "Figure 5: stochastic nonlinear equations",
    Config,
    run,
    plan,
    data=origins_of,
    claims=("C7", "C8", "C9"),
)
