"""Figure 4: learning the rewards of map tiles from optimal monotone paths, every method tuned.

Judged on unseen maps by the cells off the label (Hamming), the same on average over the labels that
might have been drawn, the cells off the nearest optimal path, and the reward lost; optimal paths are
far from unique, so the Hamming loss has a floor that the true rewards themselves do not pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..data.map_sources import DRAWN, content_of, origin_of
from ..data.maps import METRICS
from ..data.origin import Origin
from ..plots.curves import Curve, draw
from ..plots.pages import Row
from ..theory import Rule, compare, t_interval
from ..tuning.search import Grid, Setting
from .engine.base import Case, Context, Plan, Result, Verdict
from .engine.study import (
    curve,
    demand_positive,
    demand_rules,
    fields_of,
    mean_of,
    study,
    tuned_plan,
)
from .engine.verdicts import verdict_of
from .planning_task import GRIDS
from .tasks import DECAYS, LABELS
from .tuning import Entry, Seeds, Tuned, against_full_grid, first_seed, tune

TASKS = "proxlin.experiments.planning_task"
MEASURES = {
    "hamming": "cells off the label",
    "expected": "cells off the label, on average over the labels",
    "nearest": "cells off an optimal path",
    "regret": "reward lost",
}
RULES = ("C6-as-good", "C6-best")
JUDGED = "expected"  # the paper's measure, with the noise of the labels integrated out
SECONDS = 4e-9  # for each map, pass, pixel and channel; measured with one thread
# Places on the axes rate, kappa, nu and inner of PLI: the full grid that its search is checked against.
FULL_GRID = (range(-1, 2), range(-1, 2), range(-1, 2), (0, 2))

Found = Mapping[tuple[float, str], Tuned]  # by ridge and method


@dataclass(frozen=True)
class Config:
    """What a profile sets: `maps` to train on, `ridges` times their number; bands of the rules are in cells.

    `check`: the ridges at which PLI's search is compared with a full grid; `source`: where the maps come from, as
    `data.map_sources` says.
    """

    maps: int
    validation: int
    test: int
    side: int
    tile: int
    channels: tuple[int, ...]
    top: int
    ridges: tuple[float, ...]
    passes: float
    settings: int
    finalists: int
    search_seeds: int
    fresh: bool
    seeds: int
    rules: dict[str, Rule]
    check: tuple[float, ...] = ()
    source: str = DRAWN

    def __post_init__(self):
        demand_positive(
            self,
            "maps",
            "validation",
            "test",
            "tile",
            "top",
            "passes",
            "settings",
            "finalists",
            "search_seeds",
        )
        demand_rules(self, *RULES)
        if self.seeds < 2 or self.side < 2:
            raise ValueError(
                "seeds has to be at least 2: a difference needs an interval; and side at least 2."
            )
        if (
            not self.ridges
            or min(self.ridges) < 0
            or not self.channels
            or min(self.channels) < 1
        ):
            raise ValueError(
                "ridges has to hold numbers that are not negative, channels positive ones."
            )
        if not set(self.check) <= set(self.ridges):
            raise ValueError("check has to hold some of the ridges.")
        if self.tile % 2 ** len(self.channels):
            raise ValueError(
                f"{len(self.channels)} stages halve a tile as often; it has {self.tile} pixels."
            )

    @property
    def use(self) -> Seeds:
        """Return how seeds are used."""
        return Seeds(self.search_seeds, self.fresh)


def case_of(
    method: str,
    ridge: float,
    config: Config,
    setting: Setting,
    seed: int,
    task: str = "train",
) -> Case:
    """Return the case of one setting on one seed."""
    asked = fields_of(
        config,
        "source",
        "maps",
        "validation",
        "test",
        "side",
        "tile",
        "top",
        "passes",
        "channels",
    )
    settings = {
        "method": method,
        "seed": seed,
        "judges": config.use.judges(seed),
        "content": content_of(config.source),
        **asked,
        "ridge": ridge,
        **setting,
    }
    pixels = (config.side * config.tile) ** 2
    work = 0.1 + SECONDS * pixels * sum(config.channels) * config.maps * config.passes
    group = "sgd" if method in DECAYS else method  # the three schedules are one program
    return Case(f"{TASKS}:{task}", settings, work, group)


def floor_cases(config: Config, first: int) -> list[Case]:
    """Return a case for each seed that trains nothing and says what the true rewards achieve."""
    if config.fresh:
        first += config.search_seeds
    seeds = range(first, first + config.seeds)
    return [
        replace(case_of("sgd", 0.0, config, {}, seed, "floors"), work=0.1)
        for seed in seeds
    ]


def entries_of(config: Config) -> list[Entry]:
    """Return every ridge and method to be tuned."""
    return [
        Entry(
            (ridge, method),
            Grid(axes, config.settings),
            partial(case_of, method, ridge, config),
            config.seeds,
        )
        for ridge, (method, axes) in product(config.ridges, GRIDS.items())
    ]


def full_grid(config: Config, ridge: float, first: int) -> list[Case]:
    """Return every setting of PLI's full grid at a ridge, each on all seeds of the search."""
    grid = Grid(GRIDS["pli"], config.settings)
    settings = [grid.setting(point) for point in product(*FULL_GRID)]
    seeds = range(first, first + config.search_seeds)
    return [
        case_of("pli", ridge, config, setting, seed)
        for setting, seed in product(settings, seeds)
    ]


def plan(config: Config, seed: int) -> Plan:
    """Say what will run."""
    more = floor_cases(config, 0)
    for ridge in config.check:
        more += full_grid(config, ridge, 0)
    return tuned_plan(entries_of(config), config.finalists, seed, more, config.use)


def origins_of(config: Config) -> list[Origin]:
    """Return where the maps of a config come from."""
    return [origin_of(config.source, config.side, config.tile)]


def search_rows(config: Config, context: Context, found: Found) -> list[Row]:
    """Return the best validation loss of PLI's search over that of the full grid, on the seeds of the search."""
    rows = []
    for ridge in config.check:
        full = context.sweep(full_grid(config, ridge, first_seed(context)))
        tuned = found[ridge, "pli"]
        rows.append(
            {
                "ridge_times_n": ridge,
                "method": LABELS["pli"],
                "tried": config.settings,
                **against_full_grid(tuned, full, config.search_seeds),
                "setting": tuned.words(),
            }
        )
    return rows


def measured(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the mean over the seeds of each measure, with its 95 % interval."""
    row = {}
    for name in METRICS:
        row[name], row[f"{name}_low"], row[f"{name}_high"] = t_interval(values[name])
    return row


def gap(found: Found, ridge: float, method: str) -> dict[str, np.ndarray]:
    """Return the loss of constant-step SGD less that of another method, seed by seed; below 0 SGD
    is better.
    """
    return {
        name: found[ridge, "sgd"].losses(name) - found[ridge, method].losses(name)
        for name in METRICS
    }


def loss_rows(found: Found) -> list[Row]:
    """Return the measures of each method at each ridge, and the setting that was chosen."""
    rows = []
    for (ridge, method), each in found.items():
        row: dict[str, Any] = {"ridge_times_n": ridge, "method": LABELS[method]}
        row |= measured({name: each.losses(name) for name in METRICS})
        row["validation_loss"] = mean_of(each, "validation_loss")
        row["best_at"] = mean_of(each, "best_at")
        row["exact_share"] = mean_of(each, "exact") if "exact" in each.runs[0] else None
        row["setting"] = each.words()
        row["at_end_of_axis"] = " ".join(each.ends)
        rows.append(row)
    return rows


def duel_rows(found: Found) -> list[Row]:
    """Return SGD less each of the other methods."""
    return [
        {
            "ridge_times_n": ridge,
            "rival": LABELS[method],
            **measured(gap(found, ridge, method)),
        }
        for ridge, method in found
        if method != "sgd"
    ]


def rival_of(found: Found, ridge: float) -> str:
    """Return the best other method, by its validation loss: the test maps have no say in it."""
    others = [method for at, method in found if at == ridge and method != "sgd"]
    return min(
        others, key=lambda method: mean_of(found[ridge, method], "validation_loss")
    )


@dataclass(frozen=True)
class Lead:
    """SGD less its best rival in each measure, seed by seed: at which ridges, and who the rivals are."""

    ridges: str
    rival: str
    gaps: Mapping[str, np.ndarray]

    def row(self) -> dict[str, Any]:
        """Return the lead as a row of a table."""
        return {
            "ridges_times_n": self.ridges,
            "rival": self.rival,
            **measured(self.gaps),
        }


def leads_of(found: Found, ridges: Sequence[float]) -> tuple[Lead, Lead]:
    """Return SGD less its best rival, on average over the ridges and at the least of them."""
    rivals = {ridge: rival_of(found, ridge) for ridge in ridges}
    gaps = {ridge: gap(found, ridge, rivals[ridge]) for ridge in ridges}
    mean = {
        name: np.mean([gaps[ridge][name] for ridge in ridges], axis=0)
        for name in METRICS
    }
    names = dict.fromkeys(LABELS[rival] for rival in rivals.values())
    least = min(ridges)
    return (
        Lead(", ".join(map(short, ridges)), "; ".join(names), mean),
        Lead(short(least), LABELS[rivals[least]], gaps[least]),
    )


def verdicts(
    rules: Mapping[str, Rule], every: Lead, least: Lead, seed: int
) -> list[Verdict]:
    """Judge the two halves of C6 by SGD's loss less that of its best rival on validation."""
    sides = {
        "C6-as-good": (every, "as good as the rest? "),
        "C6-best": (least, f"best at ridge {least.ridges}/n? "),
    }
    judged = []
    for name, (lead, words) in sides.items():
        rule = rules[name]
        each = compare(lead.gaps[JUDGED], level=rule.level)
        others = ", ".join(
            f"{np.mean(lead.gaps[measure]):+.3g} {MEASURES[measure]}"
            for measure in METRICS
            if measure != JUDGED
        )
        what = f"{words}constant-step SGD less its best rival ({lead.rival}), {MEASURES[JUDGED]}"
        judged.append(verdict_of("C6", rule, each, what, seed, more=f"; {others}"))
    return judged


def short(number: float) -> str:
    """Return 1e-4 for 0.0001, and 1 for 1.0."""
    if number == 0 or 0.1 <= number < 1e4:
        return f"{number:g}"
    return f"{number:.0e}".replace("e-0", "e-")


def curves_of(found: Found, measure: str) -> list[Curve]:
    """Return the curves of a measure on the test maps, over passes and over seconds."""
    return [
        Curve(
            f"ridge {short(ridge)}/n",
            LABELS[method],
            curve(each.runs, axis),
            curve(each.runs, measure),
            axis,
        )
        for axis in ("passes", "seconds")
        for (ridge, method), each in found.items()
    ]


def curve_rows(found: Found, names: Sequence[str]) -> list[Row]:
    """Return the means over the seeds of some columns of the curves, a row for each checkpoint."""
    rows = []
    for (ridge, method), each in found.items():
        means = {
            name: curve(each.runs, name).mean(0).tolist() for name in ("passes", *names)
        }
        for values in zip(*means.values(), strict=True):
            rows.append(
                {
                    "ridge_times_n": ridge,
                    "method": LABELS[method],
                    **dict(zip(means, values, strict=True)),
                }
            )
    return rows


def run(config: Config, context: Context) -> Result:
    """Tune every method at every ridge, and compare them on unseen maps."""
    found = tune(entries_of(config), context, config.finalists, config.use)
    known = context.sweep(floor_cases(config, first_seed(context)))
    floor = {
        "true_rewards": float(np.mean([each["floor"] for each in known])),
        "no_learner_below": float(np.mean([each["least"] for each in known])),
        "optimal_paths": float(np.median([each["optimal_paths"] for each in known])),
    }
    leads = leads_of(found, config.ridges)
    tables: dict[str, Any] = {
        "losses": loss_rows(found),
        "leads": [lead.row() for lead in leads],
        "duels": duel_rows(found),
        "floor": [floor],
        "curves": curve_rows(found, METRICS),
    }
    if config.check:
        tables["search"] = search_rows(config, context, found)
    by_chance = ("true rewards, ties by chance", floor["true_rewards"])
    lines: dict[str, Any] = {"hamming": by_chance, "expected": by_chance}
    figures: dict[str, Any] = {}
    for name in METRICS:
        figures |= draw(
            name, curves_of(found, name), MEASURES[name], False, lines.get(name), True
        )
    timings = {"curves": curve_rows(found, ["seconds"])}
    return Result(
        tables,
        figures,
        verdicts(config.rules, *leads, context.seed),
        notes_of(config, floor, found),
        timings=timings,
    )


def notes_of(config: Config, floor: Mapping[str, float], found: Found) -> list[str]:
    """Return what a reader has to know about the tables."""
    exact = [
        mean_of(each, "exact") for each in found.values() if "exact" in each.runs[0]
    ]
    side = config.side
    tile = config.tile
    return [
        f"A path has {2 * side - 1} cells, and a map {floor['optimal_paths']:.0f} optimal paths (median); the label is "
        f"one of them, by chance. The true rewards with random tie-breaks are {floor['true_rewards']:.2f} cells off "
        f"the label (the dotted line), and no learner can be less than {floor['no_learner_below']:.2f} off on average.",
        f"Every method tried {config.settings} settings within {config.passes:g} effective passes over {config.maps} "
        f"maps of {side}x{side} tiles of {tile}x{tile} pixels, chosen by the Hamming loss on {config.validation} "
        f"validation maps; lines are means of {config.seeds} seeds on {config.test} unseen maps each, bands their "
        "range. One XLA thread.",
        f"The smoothing took the {config.top} best paths, which was exact on {min(exact):.0%} to {max(exact):.0%} of "
        "the maps at the end of the chosen runs.",
    ]


STUDY = study(
    "fig4",
    "Figure 4: path planning, every method",
    Config,
    run,
    plan,
    origins_of,
    claims=("C6",),
)
