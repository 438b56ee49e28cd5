"""Phase retrieval: how often a signal is recovered from the squares of its measurements, of which some are wrong.

    b_i = |<a_i, x>|^2 for most i,      F(w) = (1/m) sum_i ||<a_i, w>|^2 - b_i|

The success probability over m/n and over the share of gross errors; exact steps on a sharp F, and with noise, which is
the bridge to Propositions 1 and 2; and an image from corrupted coded diffraction patterns. C11 is a claim of Duchi and
Ruan, "Solving (most) of a set of quadratic equalities" (2019).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..data.origin import generated
from ..data.phase import KINDS
from ..plots.pages import Row
from ..theory import Rule, Share, binomial_interval
from ..tuning.search import Grid, Setting
from .engine.base import Case, Context, Plan, Result, Verdict
from .engine.study import (
    demand_known,
    demand_positive,
    demand_rules,
    fields_of,
    study,
    tuned_plan,
)
from .engine.verdicts import verdict_of
from .phase_figures import (
    draw_convergence,
    draw_image,
    draw_shares,
)
from .phase_task import EXACT, GRIDS, STARTS, picture
from .tuning import Entry, Seeds, Tuned, first_seed, tune

TASKS = "proxlin.experiments.phase_task"
LABELS = {
    EXACT: "exact prox-linear",
    "pli": "PLI",
    "sgd": "SGD",
    "truncated": "truncated SGD",
}
# one seed searches; those that count begin after it
USE = Seeds(1, fresh=True)
# seconds, measured on two cores: of an exact run, for each square of an unknown; of a pass, for each number of the rows
SECONDS_EXACT = 1.2e-5
SECONDS_PASS = 3e-9
DATA = generated(
    "random signals", "drawn by the seed: Gaussian signals and an image made by code"
)


@dataclass(frozen=True)
class Arena:
    """One kind of measurements and of signals, with the cells in which successes are counted."""

    kind: str
    complex: bool
    n: int
    ratios: tuple[float, ...]
    corrupted: float
    shares: tuple[float, ...]
    seeds: int
    methods: tuple[str, ...]
    starts: tuple[str, ...]

    def __post_init__(self):
        demand_known("kind", self.kind, KINDS)
        for name in self.methods:
            demand_known("a method", name, GRIDS)
        for name in self.starts:
            demand_known("a start", name, STARTS)
        if not self.starts or not self.methods:
            raise ValueError("starts and methods must not be empty.")
        demand_positive(self, "n", "ratios", "shares", "seeds")
        if min(self.ratios) < 1 or self.corrupted not in self.ratios:
            raise ValueError(
                "ratios has to hold numbers m/n of at least 1, with fewer measurements than unknowns there is no "
                "recovery, and corrupted has to be one of them."
            )
        if max(self.shares) >= 1:
            raise ValueError("shares has to hold shares of gross errors below 1.")

    @property
    def cells(self) -> list[tuple[float, float]]:
        """Return every pair of m/n and share of gross errors."""
        clean = [(ratio, 0.0) for ratio in self.ratios]
        return clean + [(self.corrupted, share) for share in self.shares]


@dataclass(frozen=True)
class Config:
    """What a profile sets; configs/phase.toml says what each setting is."""

    arenas: dict[str, Arena]
    trials: int
    steps: int
    passes: float
    settings: int
    judged: tuple[float, ...]
    judged_seeds: int
    promised: float
    noise: tuple[float, ...]
    noise_n: int
    noise_ratio: float
    noise_steps: int
    side: int
    codes: int
    image_corruption: float
    image_steps: int
    rules: dict[str, Rule]

    def __post_init__(self):
        demand_positive(self, "trials", "steps", "passes", "settings", "judged")
        demand_positive(self, "judged_seeds", "promised", "noise_n", "noise_steps")
        demand_positive(self, "side", "codes", "image_steps")
        demand_rules(self, "C11")
        if not self.arenas:
            raise ValueError("arenas has to hold at least one arena.")
        first = next(iter(self.arenas.values()))
        if first.kind != "gaussian" or first.complex or EXACT not in first.methods:
            raise ValueError(
                f"the first arena is judged; it has to be gaussian and real, with the method {EXACT}."
            )
        if not set(self.judged) <= set(first.ratios):
            raise ValueError("judged has to hold ratios of the first arena.")
        if self.noise_ratio < 1 or not self.noise or min(self.noise) < 0:
            raise ValueError(
                "noise_ratio has to be at least 1, and noise has to hold levels that are not negative."
            )
        if not self.promised < 1:
            raise ValueError(
                "promised has to be a share of successes below 1, as no number of trials shows that all succeed."
            )
        if self.side < 2:
            raise ValueError("side has to be at least 2 pixels.")
        if not 0 <= self.image_corruption < 1:
            raise ValueError("image_corruption has to be a share below 1.")


Cell = tuple[str, str, float, float]  # arena, method, m/n, share of gross errors
Found = Mapping[tuple[str, str], Tuned]  # by arena and method
Counts = Mapping[tuple[Cell, str], tuple[int, int]]  # successes and trials of a start


def case_of(
    cell: Cell,
    config: Config,
    setting: Setting,
    seed: int,
    starts: Sequence[str] = (),
) -> Case:
    """Return the case of one cell on one seed, from these starts, or from those of its arena."""
    name, method, ratio, share = cell
    arena = config.arenas[name]
    starts = starts or arena.starts
    settings = {
        "method": method,
        "ratio": ratio,
        "corruption": share,
        "starts": list(starts),
        "seed": seed,
        **fields_of(arena, "kind", "complex", "n"),
        **fields_of(config, "trials", "steps", "passes"),
        **setting,
    }
    unknowns = arena.n * (2 if arena.complex else 1)
    work = SECONDS_PASS * config.passes * ratio * unknowns**2
    if method == EXACT:
        work = SECONDS_EXACT * unknowns**2
    group = f"{name} {method} {ratio:g}"
    return Case(
        f"{TASKS}:succeed",
        settings,
        0.5 + len(starts) * config.trials * work,
        group,
    )


def pairs_of(config: Config) -> list[tuple[str, str]]:
    """Return every arena with each of its methods."""
    return [
        (name, method)
        for name, arena in config.arenas.items()
        for method in arena.methods
    ]


def entries_of(config: Config) -> list[Entry]:
    """Return every arena and method to be tuned, among the middle share of gross errors; nothing is judged here."""
    entries = []
    for name, method in pairs_of(config):
        axes = GRIDS[method]
        if not axes:
            continue
        arena = config.arenas[name]
        share = arena.shares[len(arena.shares) // 2]
        cell = (name, method, arena.corrupted, share)
        case = partial(case_of, cell, config)
        entries.append(Entry((name, method), Grid(axes, config.settings), case, 0))
    return entries


def cells_of(config: Config) -> list[Cell]:
    """Return every cell in which successes are counted."""
    return [
        (name, method, ratio, share)
        for name, method in pairs_of(config)
        for ratio, share in config.arenas[name].cells
    ]


def counted(
    config: Config, setting: Mapping[Any, Setting], first: int
) -> list[tuple[Cell, Case]]:
    """Return the cases whose successes are counted, with their cells; seeds that search are not among them."""
    begin = first + USE.searched
    found = []
    for cell in cells_of(config):
        chosen = setting.get(cell[:2], {})
        for seed in range(begin, begin + config.arenas[cell[0]].seeds):
            found.append((cell, case_of(cell, config, chosen, seed)))
    name = next(iter(config.arenas))
    begin += config.arenas[name].seeds
    for ratio in config.judged:
        cell = (name, EXACT, ratio, 0.0)
        for seed in range(begin, begin + config.judged_seeds):
            found.append((cell, case_of(cell, config, {}, seed, ("spectral",))))
    return found


def noise_cases(config: Config, first: int) -> list[Case]:
    """Return a run of exact steps for each noise level."""
    settings = {
        "n": config.noise_n,
        "ratio": config.noise_ratio,
        "steps": config.noise_steps,
        "seed": first,
    }
    return [
        Case(f"{TASKS}:converge", {**settings, "noise": noise}, 3.0, "noise")
        for noise in config.noise
    ]


def image_case(config: Config, first: int) -> Case:
    """Return the case of the image."""
    settings = {
        **fields_of(config, "side", "codes"),
        "corruption": config.image_corruption,
        "steps": config.image_steps,
        "seed": first,
    }
    return Case(f"{TASKS}:recover", settings, 5 + 0.02 * config.side**2, "image")


def plan(config: Config, seed: int) -> Plan:
    """Say what will run."""
    first = 1000 * seed
    bracket = {
        entry.label: entry.grid.setting(entry.grid.bracket()[0])
        for entry in entries_of(config)
    }
    more = [case for _, case in counted(config, bracket, first)]
    more += [*noise_cases(config, first), image_case(config, first)]
    return tuned_plan(entries_of(config), 1, seed, more, USE)


def counts_of(
    cases: Iterable[tuple[Cell, Case]], results: Iterable[Mapping[str, Any]]
) -> Counts:
    """Return successes and trials of each cell and start, added up over the seeds."""
    found: dict[tuple[Cell, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (cell, case), result in zip(cases, results, strict=True):
        for start in case.settings["starts"]:
            successes, trials = found[cell, start]
            found[cell, start] = (
                successes + result[f"successes_{start}"],
                trials + case.settings["trials"],
            )
    return dict(found)


def success_rows(config: Config, counts: Counts, found: Found) -> list[dict[str, Any]]:
    """Return the share of successes of each cell and start, with Clopper and Pearson's interval."""
    rows = []
    for (cell, start), (successes, trials) in counts.items():
        name, method, ratio, share = cell
        low, high = binomial_interval(successes, trials)
        tuned = found.get((name, method))
        rows.append(
            {
                "arena": name,
                "n": config.arenas[name].n,
                "method": LABELS[method],
                "start": start,
                "ratio": ratio,
                "corruption": share,
                "successes": successes,
                "trials": trials,
                "share": successes / trials,
                "low": low,
                "high": high,
                "setting": tuned.words() if tuned else "",
            }
        )
    return rows


def convergence_rows(
    config: Config, runs: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the error after each exact step, its quotient by the square of the one before, and F over F(x)."""
    rows = []
    for noise, run in zip(config.noise, runs, strict=True):
        before = None
        for step, (error, value) in enumerate(
            zip(run["curve_error"], run["curve_value"], strict=True)
        ):
            quotient = error / before**2 if before else None
            over = value / run["level"] if noise else None
            rows.append(
                {
                    "noise": noise,
                    "step": step,
                    "error": error,
                    "over_square_of_last": quotient,
                    "value": value,
                    "value_over_level": over,
                }
            )
            before = error
    return rows


def verdicts(config: Config, counts: Counts, seed: int) -> list[Verdict]:
    """Return the verdicts on C11, one for each judged ratio."""
    rule = config.rules["C11"]
    name, arena = next(iter(config.arenas.items()))
    judged = []
    for ratio in config.judged:
        successes, trials = counts[(name, EXACT, ratio, 0.0), "spectral"]
        share = Share(successes, trials, config.promised, rule.level)
        what = (
            f"n = {arena.n}, m/n = {ratio:g}: recovered, of which at least "
            f"{100 * config.promised:g} % are asked"
        )
        judged.append(verdict_of("C11", rule, share, what, seed, "trials"))
    return judged


def run(config: Config, context: Context) -> Result:
    """Tune SGD, truncated SGD and PLI, count successes, take exact steps among noise, and recover the image."""
    first = first_seed(context)
    found = tune(entries_of(config), context, 1, USE)
    setting = {label: each.setting for label, each in found.items()}
    asked = counted(config, setting, first)
    noisy = noise_cases(config, first)
    image = image_case(config, first)
    results = context.sweep([case for _, case in asked] + [*noisy, image])
    counts = counts_of(asked, results[: len(asked)])
    runs = results[len(asked) : -1]
    recovered = results[-1]
    successes = success_rows(config, counts, found)
    convergence = convergence_rows(config, runs)
    errors: list[Row] = [
        {"step": step, "error": error}
        for step, error in enumerate(recovered["curve_error"])
    ]
    shape = (config.side, config.side)
    figures = {
        "ratio": draw_shares(
            [row for row in successes if not row["corruption"]], "ratio"
        ),
        "corruption": draw_shares(at_corrupted(config, successes), "corruption"),
        "convergence": draw_convergence(convergence),
        "image": draw_image(
            picture(config.side),
            np.reshape(recovered["start"], shape),
            np.reshape(recovered["recovered"], shape),
            recovered["error"],
        ),
    }
    return Result(
        tables={
            "successes": successes,
            "convergence": convergence,
            "image": errors,
        },
        figures=figures,
        verdicts=verdicts(config, counts, context.seed),
        notes=notes_of(config, recovered),
    )


def at_corrupted(
    config: Config, successes: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the rows at the ratio where gross errors were tried, those without any among them."""
    return [
        row
        for row in successes
        if row["ratio"] == config.arenas[row["arena"]].corrupted
    ]


def notes_of(config: Config, image: Mapping[str, Any]) -> list[str]:
    """Return what a reader has to know."""
    sizes = ", ".join(f"{name} n = {arena.n}" for name, arena in config.arenas.items())
    return [
        "A trial is a success where the distance to the signal, up to sign or phase, is at most 1e-5 of its length. "
        f"Bars are 95 % intervals of Clopper and Pearson. Lengths of the signals: {sizes}.",
        f"Exact prox-linear has up to {config.steps} steps and no setting; the other methods have {config.passes:g} "
        f"effective passes. They are tuned with {config.settings} settings each among gross errors, on a seed "
        "that counts nothing. The random start has the length of the spectral one.",
        f"A gross error is the median of the squares times |Cauchy|. The image has {config.side} x {config.side} "
        f"pixels, {config.codes} coded diffraction patterns and {100 * config.image_corruption:g} % gross errors; its "
        f"relative error is {image['error']:.2g} after {len(image['curve_error']) - 1} exact steps without a matrix.",
    ]


STUDY = study(
    "phase",
    "Phase retrieval: success, quadratic convergence and an image",
    Config,
    run,
    plan,
    (DATA,),
    claims=("C11",),
)
