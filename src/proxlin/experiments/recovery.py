"""What Proposition 2 is for: where along a run the predictions of wbar are recovered best.

    recovery(w) = (1/n) sum_i |phi(x_i; w) - phi(x_i; wbar)|,      stop at the first F(w_t) <= F(wbar)

The paper stops at the noise level because "it is not meaningful to optimize beyond" it. C10 is a claim of our own: that
rule finds the least recovery error, and what comes after it hurts, quadratic steps as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..data.origin import generated
from ..plots.curves import Curve, draw
from ..plots.pages import Row
from ..theory import Rule, compare
from ..tuning.search import Grid, Setting
from .engine.base import Case, Context, Plan, Result, Verdict
from .engine.study import (
    curve,
    demand_positive,
    demand_rules,
    fields_of,
    study,
    tuned_plan,
)
from .engine.verdicts import verdict_of
from .recovery_task import GRIDS
from .tuning import Entry, Seeds, Tuned, tune

TASK = "proxlin.experiments.recovery_task:train"
RULES = ("C10-stop", "C10-below")
LABELS = {"prox-linear": "exact prox-linear", "pli": "PLI", "sgd": "SGD"}
FINALISTS = 1
SECONDS = 2e-6  # of a pass, for each sample and hidden unit; measured on two cores
DATA = generated(
    "noisy networks", "drawn by the seed: a tanh network with Gaussian noise"
)

Found = Mapping[tuple[float, str], Tuned]  # by noise level and method


@dataclass(frozen=True)
class Config:
    """What a profile sets; configs/recovery.toml says what each setting is."""

    n: int
    k: int
    inputs: int
    width: int
    levels: tuple[float, ...]
    passes: float
    steps: int
    validation: int
    settings: int
    search_seeds: int
    seeds: int
    rules: dict[str, Rule]

    def __post_init__(self):
        demand_positive(
            self, "n", "k", "inputs", "width", "levels", "passes", "steps", "validation"
        )
        demand_positive(self, "settings", "search_seeds")
        demand_rules(self, *RULES)
        if self.seeds < 2:
            raise ValueError(
                "seeds has to be at least 2: a difference needs an interval."
            )
        parameters = self.width * (self.inputs + 1) + self.k * (self.width + 1)
        if parameters <= self.n * self.k:
            raise ValueError(
                f"the network has {parameters} parameters for nk = {self.n * self.k} residuals, which it cannot "
                "interpolate; raise width."
            )

    @property
    def use(self) -> Seeds:
        """Return how seeds are used: some search, and others judge."""
        return Seeds(self.search_seeds, fresh=True)


def case_of(
    level: float, method: str, config: Config, setting: Setting, seed: int
) -> Case:
    """Return the case of one setting on one seed."""
    names = ("n", "k", "inputs", "width", "passes", "steps", "validation")
    settings = {
        "method": method,
        "level": level,
        "seed": seed,
        **fields_of(config, *names),
        **setting,
    }
    work = 0.5 + SECONDS * config.passes * config.n * config.width
    return Case(TASK, settings, work, method)


def entries_of(config: Config) -> list[Entry]:
    """Return every noise level and method; exact prox-linear has nothing to tune."""
    entries = []
    for level, (method, axes) in product(config.levels, GRIDS.items()):
        grid = Grid(axes, config.settings if axes else 1)
        case = partial(case_of, level, method, config)
        entries.append(Entry((level, method), grid, case, config.seeds))
    return entries


def plan(config: Config, seed: int) -> Plan:
    """Say what will run."""
    return tuned_plan(entries_of(config), FINALISTS, seed, use=config.use)


def rows_of(found: Found) -> list[Row]:
    """Return what stopping at the noise level does, for each level and method."""
    rows = []
    for (level, method), each in found.items():
        mean = lambda name, each=each: float(each.losses(name).mean())
        row: dict[str, Any] = {"level": level, "method": LABELS[method]}
        row["noise_level"] = mean("level")
        row["reached"] = int(each.losses("reached").sum())
        row["seeds"] = len(each.runs)
        for name in ("stopped", "least", "end", "least_over_level", "steps_below"):
            row[name] = mean(name)
        radii = [run["radius"] for run in each.runs if "radius" in run]
        row["radius"] = float(np.mean(radii)) if radii else None
        row["setting"] = each.words()
        rows.append(row)
    return rows


def differences(
    found: Found, method: str, over: str, under: str
) -> tuple[list[float], list[int], int]:
    """Return log(over / under) of the runs that reached the noise level, their seeds, and how many there were in
    all.
    """
    logs = []
    seeds = []
    count = 0
    for (_, each_method), each in found.items():
        if each_method != method:
            continue
        for seed, run in enumerate(each.runs):
            count += 1
            if run["reached"]:
                logs.append(float(np.log(run[over] / run[under])))
                seeds.append(seed)
    return logs, seeds, count


def verdicts(rules: Mapping[str, Rule], found: Found, seed: int) -> list[Verdict]:
    """Return the verdicts on both halves of C10, for each method; the levels of one seed are one unit."""
    sides = {
        "C10-stop": ("stopped", "least", "recovery error where F <= F(wbar) first"),
        "C10-below": ("end", "stopped", "recovery error at the end"),
    }
    against = {
        "least": "the least along the run",
        "stopped": "where F <= F(wbar) first",
    }
    judged = []
    for name, (over, under, what) in sides.items():
        for method in GRIDS:
            logs, seeds, count = differences(found, method, over, under)
            if not logs:
                continue
            each = compare(logs, seeds, rules[name].level, ratio=True)
            words = f"{LABELS[method]}: {what} over {against[under]}, less 1"
            more = f"; {len(logs)} of {count} runs reached F(wbar)"
            judged.append(verdict_of("C10", rules[name], each, words, seed, more=more))
    return judged


def curves_of(found: Found) -> list[Curve]:
    """Return the recovery error over passes, a panel for each noise level."""
    return [
        Curve(
            f"noise {level:g} of the first loss",
            LABELS[method],
            curve(each.runs, "passes"),
            curve(each.runs, "recovery"),
            "passes",
        )
        for (level, method), each in found.items()
    ]


def curve_rows(found: Found) -> list[Row]:
    """Return the means over the seeds of F and of the recovery error, as far as every seed goes."""
    rows = []
    for (level, method), each in found.items():
        names = ("passes", "value", "recovery")
        means = [curve(each.runs, name).mean(0).tolist() for name in names]
        for values in zip(*means, strict=True):
            rows.append(
                {
                    "level": level,
                    "method": LABELS[method],
                    **dict(zip(names, values, strict=True)),
                }
            )
    return rows


def run(config: Config, context: Context) -> Result:
    """Tune SGD and PLI, and look at the recovery error along their runs and those of exact prox-linear."""
    found = tune(entries_of(config), context, FINALISTS, config.use)
    rows = rows_of(found)
    return Result(
        tables={"recovery": rows, "curves": curve_rows(found)},
        figures=draw("recovery", curves_of(found), "recovery error", True),
        verdicts=verdicts(config.rules, found, context.seed),
        notes=notes_of(config, rows),
    )


def notes_of(config: Config, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a reader has to know."""
    reached = sum(row["reached"] for row in rows)
    return [
        f"A tanh network of width {config.width} learns the predictions of another on {config.n} noisy samples of "
        f"{config.k} outputs, which it can interpolate. The recovery error is (1/n) sum |phi(x_i; w) - phi(x_i; wbar)| "
        "on the training inputs.",
        "SGD and PLI are tuned by the least loss on held-out samples along the run, on seeds that judge nothing; exact "
        "prox-linear has no setting. F(wbar) is known here, as in the proposition; a user would have to estimate it.",
        f"F(wbar) was reached in {reached} of {sum(row['seeds'] for row in rows)} runs; the others have no place to "
        "stop, and are not in the verdicts.",
    ]


STUDY = study(
    "recovery",
    "Recovery: what stopping at the noise level is for",
    Config,
    run,
    plan,
    (DATA,),
    claims=("C10",),
)
