"""Figure 2: SGD against PLI on the synthetic regression, over the number of samples n and the
signal-to-noise ratio.

    min_w (1/n) sum_i |student(w, x_i) - y_i|_2,     y = teacher(x) + sigma xi

In each cell (width, n, SNR) both methods try the same number of settings by the same search on the
validation loss of some seeds; the setting of least mean validation loss is taken, and its test
losses on fresh seeds are compared seed by seed. Every run costs at most the same
effective passes, and is judged at its best checkpoint.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..data.origin import generated
from ..data.regression import NOISES
from ..networks import activation_named
from ..plots.heatmap import Cell, draw
from ..plots.pages import Row
from ..theory import Rule
from ..theory import compare as compare_logs
from ..tuning.search import Grid, Setting
from .engine.base import Case, Context, Plan, Result, Verdict
from .engine.study import (
    demand_known,
    demand_positive,
    demand_rules,
    fields_of,
    mean_of,
    study,
    tuned_plan,
)
from .engine.verdicts import choices, verdict_of
from .regression_task import GRIDS, Arena
from .tuning import (
    Entry,
    Seeds,
    Tuned,
    against_full_grid,
    columns_of,
    compare,
    first_seed,
    tune,
    winner,
)

TASK = "proxlin.experiments.regression_task:train"
HIGH = 1e5  # what the claims call a high SNR: the noise is below a tenth of the signal
LOW = 1e2  # what they call a low one: the noise is above the signal
RULES = ("C4-overall", "C4-clearest", "C5")
DATA = generated("teacher networks", "drawn by the seed, as the paper draws its own")
# Seconds of a pass over one sample, for each hidden unit, measured with one thread. Many runs of PLI end early, by the
# patience of the config; a whole one takes 3.4e-8.
SECONDS = {"sgd": 2e-8, "pli": 2.6e-8}
START = 0.05  # seconds of a case that are not in proportion to its data
JUDGING = 2e-4  # seconds to look at the held-out samples, for each hidden unit

Label = tuple[Arena, str]  # the second is a method
Found = Mapping[Label, Tuned]


@dataclass(frozen=True)
class Variant:
    """One thing changed in the comparison; "" stands for what the config has."""

    activation: str = ""
    noise: str = ""
    accounting: str = "passes"
    sgd: str = "sgd"  # the method in its place
    pli: str = "pli"


VARIANTS = {
    "as configured": Variant(),
    "tanh": Variant(activation="tanh"),
    "softplus": Variant(activation="softplus"),
    "gaussian": Variant(noise="gaussian"),
    "student": Variant(noise="student"),
    "epochs": Variant(accounting="epochs"),
    "dual": Variant(pli="pli-dual"),
    "permuted": Variant(sgd="sgd-permuted"),
    "averaged": Variant(sgd="sgd-averaged"),
    "smoothed": Variant(sgd="sgd-smoothed"),
}


# The accounting and the PLI of each view of the heat map. The first is judged: effective passes, and eq. (3), which
# takes every step. In "epochs" an inner epoch is a pass, and snapshots and values of F are free.
VIEWS = {
    "as stated": ("passes", "pli"),
    "only steps that do not increase F": ("passes", "pli-accept"),
    "inner epochs as passes": ("epochs", "pli"),
    "inner epochs as passes, only steps that do not increase F": (
        "epochs",
        "pli-accept",
    ),
}
STATED = "as stated"


@dataclass(frozen=True)
class Config:
    """What a profile sets.

    `search_seeds`: those that choose the settings; `fresh`: whether other seeds judge them; `views`: how many of VIEWS
    all cells are compared in;
    `check`: the n at which the search is compared with the full grid (for the least width and both extremes of SNR);
    `variants`: the rows of the sensitivity table, on cells of their own.
    """

    samples: tuple[int, ...]
    ratios: tuple[float, ...]
    widths: tuple[int, ...]
    passes: float
    patience: float
    settings: int
    finalists: int
    search_seeds: int
    fresh: bool
    seeds: int
    views: int
    validation: int
    test: int
    activation: str
    noise: str
    check: tuple[int, ...]
    variants: tuple[str, ...]
    variant_samples: tuple[int, ...]
    variant_ratios: tuple[float, ...]
    variant_seeds: int
    rules: dict[str, Rule]

    def __post_init__(self):
        activation_named(self.activation)
        demand_known("noise", self.noise, NOISES)
        demand_positive(self, "samples", "ratios", "widths")
        demand_positive(
            self, "passes", "patience", "settings", "finalists", "validation", "test"
        )
        demand_positive(self, "search_seeds")
        if not 1 <= self.views <= len(VIEWS):
            raise ValueError(f"views has to be 1 to {len(VIEWS)}.")
        if min(self.ratios) > LOW or max(self.ratios) < HIGH:
            raise ValueError(
                f"ratios has to reach from {LOW:g} or below to {HIGH:g} or above, of which the claims speak."
            )
        if min(self.seeds, self.variant_seeds) < 2:
            raise ValueError(
                "seeds and variant_seeds have to be at least 2: a difference needs an interval."
            )
        for name in self.variants:
            demand_known("a variant", name, VARIANTS)
        demand_rules(self, *RULES)

    @property
    def band(self) -> float:
        """Return the largest difference of losses that does not matter in a cell: that of the first claim."""
        return self.rules[RULES[0]].band

    @property
    def use(self) -> Seeds:
        """Return how seeds are used."""
        return Seeds(self.search_seeds, self.fresh)

    def cells(self) -> list[Arena]:
        """Return the cells of the heat map."""
        shapes = product(self.widths, self.ratios, self.samples)
        return [
            Arena(width, n, snr, self.activation, self.noise)
            for width, snr, n in shapes
        ]

    def varied(self) -> list[tuple[str, Variant, Arena]]:
        """Return the rows of the sensitivity table, none if no variant is asked for."""
        names = ("as configured", *self.variants) if self.variants else ()
        rows = []
        for name, width, snr, n in product(
            names, self.widths, self.variant_ratios, self.variant_samples
        ):
            variant = VARIANTS[name]
            activation = variant.activation or self.activation
            noise = variant.noise or self.noise
            rows.append(
                (
                    name,
                    variant,
                    Arena(width, n, snr, activation, noise, variant.accounting),
                )
            )
        return rows


def case_of(
    arena: Arena, method: str, config: Config, setting: Setting, seed: int
) -> Case:
    """Return the case of one setting on one seed."""
    budget = fields_of(config, "passes", "patience", "validation", "test")
    settings = {
        "method": method,
        **asdict(arena),
        "seed": seed,
        "judges": config.use.judges(seed),
        **budget,
        **setting,
    }
    family, _, _ = method.partition("-")
    passes = SECONDS[family] * arena.n * config.passes
    work = START + (JUDGING + passes) * arena.width
    return Case(
        TASK, settings, work, f"{method} {arena.width} {arena.n} {arena.activation}"
    )


def entries_of(config: Config) -> list[Entry]:
    """Return every (arena, method) to be tuned, each once, with as many seeds as any table wants of
    it.
    """
    seeds: dict[Label, int] = {}
    for _, variant, arena in config.varied():
        for method in (variant.sgd, variant.pli):
            seeds[arena, method] = config.variant_seeds
    for arena in config.cells():
        seeds[arena, "sgd"] = config.seeds
        for view in views_of(config):
            seeds[viewed(arena, view)] = config.seeds
    return [
        Entry(
            label,
            Grid(GRIDS[label[1]], config.settings),
            partial(case_of, *label, config),
            count,
        )
        for label, count in seeds.items()
    ]


def views_of(config: Config) -> list[str]:
    """Return the names of the views of all cells."""
    return list(VIEWS)[: config.views]


def viewed(arena: Arena, view: str) -> Label:
    """Return the label of the PLI that SGD meets in a cell, in a view."""
    accounting, method = VIEWS[view]
    return replace(arena, accounting=accounting), method


def full_grids(config: Config, first: int) -> dict[Label, list[Case]]:
    """Return the full grids that the search is checked against, every setting on all seeds of the search."""
    boxes = {
        "sgd": (range(-5, 6), range(3)),
        "pli": (range(-3, 4), range(-3, 4), (-4, -2, 0, 2), range(5)),
    }
    extremes = (config.ratios[0], config.ratios[-1])
    cases = {}
    for n, snr, method in product(config.check, extremes, boxes):
        arena = Arena(min(config.widths), n, snr, config.activation, config.noise)
        grid = Grid(GRIDS[method], config.settings)
        points = product(*boxes[method])
        cases[arena, method] = [
            case_of(arena, method, config, grid.setting(point), first + seed)
            for point in points
            for seed in range(config.search_seeds)
        ]
    return cases


def plan(config: Config, seed: int) -> Plan:
    """Say what will run."""
    full = [case for cases in full_grids(config, 0).values() for case in cases]
    return tuned_plan(entries_of(config), config.finalists, seed, full, config.use)


def compared(one: Tuned, two: Tuned, config: Config, seeds: int) -> dict[str, Any]:
    """Return the columns that compare SGD, or what takes its place, with PLI."""
    found = compare(one.losses(seeds=seeds), two.losses(seeds=seeds))
    row: dict[str, Any] = {
        "sgd_loss": mean_of(one, "test_loss", seeds),
        "pli_loss": mean_of(two, "test_loss", seeds),
        **columns_of(found, "gain_of_sgd"),
        "winner": winner(found, config.band, "sgd", "pli"),
    }
    for name, each in (("sgd", one), ("pli", two)):
        row[f"{name}_clean_loss"] = mean_of(each, "clean_loss", seeds)
        row[f"{name}_best_at"] = mean_of(each, "best_at", seeds)
        row[f"{name}_setting"] = each.words()
        row[f"{name}_at_end_of_axis"] = " ".join(each.ends)
        # seeds that never beat their start
        row[f"{name}_stuck"] = int(np.sum(each.losses("best_at", seeds) == 0))
    return row


def choice_rows(config: Config, found: Found, seed: int) -> list[Row]:
    """Return the verdicts in the other views: how they move under other choices."""
    rows = []
    for view in views_of(config)[1:]:
        cells = cell_rows(config, found, view)
        judged = verdicts(config, found, cells, seed, view)
        rows += choices(view, judged, DATA.label)
    return rows


def cell_rows(config: Config, found: Found, view: str = STATED) -> list[dict[str, Any]]:
    """Return the comparison in each cell."""
    rows = []
    for arena in config.cells():
        pair = found[arena, "sgd"], found[viewed(arena, view)]
        row = compared(*pair, config, config.seeds)
        rows.append({"width": arena.width, "snr": arena.snr, "n": arena.n, **row})
    return rows


def variant_rows(config: Config, found: Found) -> list[Row]:
    """Return the comparison with one thing changed in each row, all on the seeds of the sensitivity
    table.
    """
    rows = []
    for name, variant, arena in config.varied():
        where = {"variant": name, "width": arena.width, "snr": arena.snr, "n": arena.n}
        methods = {"sgd": variant.sgd, "pli": variant.pli}
        pair = found[arena, variant.sgd], found[arena, variant.pli]
        rows.append(where | methods | compared(*pair, config, config.variant_seeds))
    return rows


def search_rows(config: Config, context: Context, found: Found) -> list[Row]:
    """Return the best validation loss of the search over that of the full grid, on the seeds of the
    search.
    """
    rows = []
    for label, cases in full_grids(config, first_seed(context)).items():
        arena, method = label
        full = context.sweep(cases)
        rows.append(
            {
                "width": arena.width,
                "n": arena.n,
                "snr": arena.snr,
                "method": method,
                "tried": config.settings,
                **against_full_grid(found[label], full, config.search_seeds),
            }
        )
    return rows


def gains(
    config: Config,
    found: Found,
    view: str,
    low: float = 0.0,
    high: float = math.inf,
) -> np.ndarray:
    """Return the log of PLI's loss over SGD's on the cells of these SNR, for each seed: cells of one seed are one
    unit.
    """
    mine = [arena for arena in config.cells() if low <= arena.snr <= high]
    logs = [
        np.log(found[viewed(arena, view)].losses() / found[arena, "sgd"].losses())
        for arena in mine
    ]
    return np.mean(logs, axis=0)


def verdicts(
    config: Config,
    found: Found,
    rows: Sequence[Mapping[str, Any]],
    seed: int,
    view: str = STATED,
) -> list[Verdict]:
    """Return the verdicts on C4 and C5 by the rules of the config, in a view; the first one is judged."""
    at_high = gains(config, found, view, low=HIGH)
    at_low = gains(config, found, view, high=LOW)
    counts = Counter(row["winner"] for row in rows)
    count = (
        f"; of {len(rows)} cells SGD wins {counts['sgd']}, PLI {counts['pli']}, {counts['equal']} are equal, "
        f"{counts['not resolved']} not resolved"
    )
    what = "test loss of PLI over SGD, less 1"
    sides = {
        "C4-overall": (gains(config, found, view), f"{what}, all cells", count),
        "C4-clearest": (
            at_high - at_low,
            f"{what}, at SNR >= {HIGH:g} over that at SNR <= {LOW:g}",
            "",
        ),
        "C5": (at_low, f"{what}, at SNR <= {LOW:g}", ""),
    }
    judged = []
    for name, (logs, words, more) in sides.items():
        rule = config.rules[name]
        each = compare_logs(logs, level=rule.level, ratio=True)
        judged.append(verdict_of(name[:2], rule, each, words, seed, more=more))
    return judged


def notes_of(config: Config, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a reader has to know about the table."""
    ends = sum(
        bool(row["sgd_at_end_of_axis"] or row["pli_at_end_of_axis"]) for row in rows
    )
    notes = [
        f"Both methods tried {config.settings} settings a cell within {config.passes:g} effective passes; test loss: "
        f"mean of {config.seeds} seeds, paired. A cell is won if its 95 % interval over the seeds excludes 0, equal if "
        f"it lies within {config.band:.0%} of 0, and else not resolved. Point at a cell to see the settings chosen.",
        f"In {ends} cells a chosen setting lies where its axis ends by nature (an inner budget of one epoch, "
        "kappa = 1e-8); the other axes have no end.",
    ]
    some = [row for row in rows if 0 < row["pli_stuck"] < config.seeds]
    if some:
        stuck = "; ".join(
            f"n = {row['n']}, SNR {row['snr']:g}, width {row['width']}" for row in some
        )
        notes.append(
            f"In {len(some)} cells PLI was never better than its start on some seeds, with a setting that worked on "
            f"the seeds of the search ({stuck})."
        )
    return notes


def run(config: Config, context: Context) -> Result:
    """Tune both methods in every cell, and compare them."""
    found = tune(entries_of(config), context, config.finalists, config.use)
    rows = cell_rows(config, found)
    tables: dict[str, Any] = {"cells": rows}
    if config.views > 1:
        tables["choices"] = choice_rows(config, found, context.seed)
    if config.variants:
        tables["sensitivity"] = variant_rows(config, found)
    if config.check:
        tables["search"] = search_rows(config, context, found)
    shown = [field.name for field in fields(Cell)]
    figure = draw([Cell(*(row[name] for name in shown)) for row in rows])
    return Result(
        tables,
        {"cells": figure},
        verdicts(config, found, rows, context.seed),
        notes_of(config, rows),
    )


STUDY = study(
    "fig2",
    "Figure 2: SGD against PLI in regression under noise",
    Config,
    run,
    plan,
    (DATA,),
    claims=("C4", "C5"),
)
