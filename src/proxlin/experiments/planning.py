"""Figures 3 and 4: learning the rewards of map tiles from optimal monotone paths, every method tuned.

Judged on unseen maps by the cells off the label (Hamming), the cells off the nearest optimal path, and the reward lost;
optimal paths are far from unique, so the Hamming loss has a floor that the true rewards themselves do not pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..data.maps import METRICS
from ..data.origin import generated
from ..plots.curves import Curve, draw
from ..plots.pages import Row
from ..plots.pictures import draw_map
from ..theory import t_interval
from ..tuning.search import Grid, Setting
from .engine.base import Case, Context, Experiment, Plan, Result, Verdict, register
from .engine.config import parse, shipped
from .planners import DECAYS, GRIDS, MARKS, parts_of
from .tuning import Entry, Tuned, bracket_of, cases_of, first_seed, tune, work_of

TASKS = "proxlin.experiments.planners"
LABELS = {
    "sgd": "SGD, constant",
    "sgd-sqrt": "SGD, 1/sqrt t",
    "sgd-inverse": "SGD, 1/t",
    "svrg": "SVRG",
    "casimir": "Casimir-SVRG",
    "pli": "PLI",
}
MEASURES = {"hamming": "cells off the label", "nearest": "cells off an optimal path", "regret": "reward lost"}


@dataclass(frozen=True)
class Config:
    """What a profile sets: `maps` to train on, `ridges` times their number, `tie` in cells (and rewards of a cell)."""

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
    seeds: int
    tie: float

    def __post_init__(self):
        names = ("maps", "validation", "test", "tile", "top", "passes", "settings", "finalists", "tie")
        for name in names:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} has to be positive.")
        if self.seeds < 2 or self.side < 2:
            raise ValueError("seeds has to be at least 2: a difference needs an interval; and side at least 2.")
        if not self.ridges or min(self.ridges) < 0 or not self.channels or min(self.channels) < 1:
            raise ValueError("ridges has to hold numbers that are not negative, channels positive ones.")
        if self.tile % 2 ** len(self.channels):
            raise ValueError(f"{len(self.channels)} stages halve a tile as often; it has {self.tile} pixels.")


def case_of(method: str, ridge: float, config: Config, setting: Setting, seed: int, task: str = "train") -> Case:
    names = ("maps", "validation", "test", "side", "tile", "top", "passes")
    asked = {name: getattr(config, name) for name in names} | {"channels": list(config.channels), "ridge": ridge}
    forward = 8e-10 * config.side**2 * config.tile**2 * sum(config.channels) * 4  # seconds a map, measured, 2 cores
    looks = len(MARKS) * (config.validation + config.test)
    work = 0.1 + forward * (3 * config.maps * config.passes + looks)
    group = "sgd" if method in DECAYS else method  # the three schedules are one program
    return Case(f"{TASKS}:{task}", {"method": method, "seed": seed, **asked, **setting}, work, group)


def entries_of(config: Config) -> list[Entry]:
    return [
        Entry((ridge, method), Grid(axes, config.settings), partial(case_of, method, ridge, config), config.seeds)
        for ridge in config.ridges
        for method, axes in GRIDS.items()
    ]


def plan(config: Mapping[str, object], seed: int) -> Plan:
    settings = parse(Config, config)
    entries, last = entries_of(settings), settings.finalists
    count = cases_of(entries, last) + settings.seeds
    return Plan(bracket_of(entries, seed * 1000), count, work_of(entries, last) + 0.1 * settings.seeds)


Found = Mapping[tuple[float, str], Tuned]


def measured(differences: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The mean over the seeds of each measure, with its 95 % interval."""
    row = {}
    for name in METRICS:
        mean, low, high = t_interval(differences[name])
        row |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    return row


def gap(found: Found, ridge: float, method: str) -> dict[str, np.ndarray]:
    """Constant-step SGD less another method, seed by seed; below 0: SGD is better."""
    return {name: found[ridge, "sgd"].losses(name) - found[ridge, method].losses(name) for name in METRICS}


def loss_rows(found: Found) -> list[Row]:
    rows = []
    for (ridge, method), each in found.items():
        row: dict[str, Any] = {"ridge_times_n": ridge, "method": LABELS[method]}
        row |= measured({name: each.losses(name) for name in METRICS})
        row |= {name: float(each.losses(name).mean()) for name in ("validation_loss", "best_at")}
        exact = float(each.losses("exact").mean()) if "exact" in each.runs[0] else None
        rows.append(row | {"exact_share": exact, "setting": each.words(), "at_end_of_axis": " ".join(each.ends)})
    return rows


def duel_rows(found: Found) -> list[Row]:
    return [
        {"ridge_times_n": ridge, "rival": LABELS[method], **measured(gap(found, ridge, method))}
        for ridge, method in found
        if method != "sgd"
    ]


def rival_of(found: Found, ridge: float) -> str:
    """The best other method, by its validation loss: the test maps have no say in it."""
    others = [method for at, method in found if at == ridge and method != "sgd"]
    return min(others, key=lambda method: found[ridge, method].losses("validation_loss").mean())


def lead_rows(found: Found, ridges: Sequence[float]) -> list[dict[str, Any]]:
    """SGD less its best rival, on average over the ridges and at the least of them."""
    gaps = [gap(found, ridge, rival_of(found, ridge)) for ridge in ridges]
    mean = {name: np.mean([each[name] for each in gaps], axis=0) for name in METRICS}
    least = min(ridges)
    rivals = "; ".join(dict.fromkeys(LABELS[rival_of(found, ridge)] for ridge in ridges))
    return [
        {"ridges_times_n": ", ".join(map(short, ridges)), "rival": rivals, **measured(mean)},
        {
            "ridges_times_n": short(least),
            "rival": LABELS[rival_of(found, least)],
            **measured(gaps[list(ridges).index(least)]),
        },
    ]


def verdicts(tie: float, leads: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """The two halves of C6, by SGD's loss less that of its best rival (chosen on validation), in all three measures."""
    every, least = leads
    as_good = _judge(
        [every[f"{name}_high"] < tie for name in METRICS], [every[f"{name}_low"] > tie for name in METRICS]
    )
    best = _judge([least[f"{name}_high"] < 0 for name in METRICS], [least[f"{name}_low"] > 0 for name in METRICS])
    return [
        Verdict(
            "C6",
            as_good,
            f"as good as the rest? {_numbers(every)}",
            f"{_ranges(every)}; tie band {tie:g}",
            "As good as the rest, mean over the ridges: holds if every interval ends below the tie band; fails if one "
            "of them begins above it.",
        ),
        Verdict(
            "C6",
            best,
            f"best at ridge {least['ridges_times_n']}/n? {_numbers(least)}",
            _ranges(least),
            "Best at the least ridge: holds if every interval is below 0; fails if one is above 0.",
        ),
    ]


def _judge(holds: Sequence[bool], fails: Sequence[bool]) -> Any:
    return "reproduced" if all(holds) else "not reproduced" if any(fails) else "undecided"


def _numbers(row: Mapping[str, Any]) -> str:
    numbers = ", ".join(f"{row[name]:+.2f} {MEASURES[name]}" for name in METRICS)
    return f"constant-step SGD less its best rival ({row['rival']}): {numbers}"


def _ranges(row: Mapping[str, Any]) -> str:
    return "95 % " + ", ".join(f"[{row[f'{name}_low']:+.2f}, {row[f'{name}_high']:+.2f}]" for name in METRICS)


def short(number: float) -> str:
    """1e-4 for 0.0001, and 1 for 1.0."""
    return f"{number:g}" if 0.1 <= number < 1e4 or not number else f"{number:.0e}".replace("e-0", "e-")


def curves_of(found: Found, measure: str) -> list[Curve]:
    curves = []
    for axis in ("passes", "seconds"):
        for (ridge, method), each in found.items():
            length = min(len(run["curve_passes"]) for run in each.runs)
            x, y = (np.asarray([run[f"curve_{name}"][:length] for run in each.runs]) for name in (axis, measure))
            curves.append(Curve(f"ridge {short(ridge)}/n", LABELS[method], x, y, axis))
    return curves


def curve_rows(found: Found, names: Sequence[str] = METRICS) -> list[Row]:
    rows = []
    for (ridge, method), each in found.items():
        for at in range(min(len(run["curve_passes"]) for run in each.runs)):
            row: dict[str, Any] = {"ridge_times_n": ridge, "method": LABELS[method]}
            for name in ("passes", *names):
                row[name] = float(np.mean([run[f"curve_{name}"][at] for run in each.runs]))
            rows.append(row)
    return rows


def run(context: Context) -> Result:
    config = parse(Config, context.config)
    seeds = [first_seed(context) + seed for seed in range(config.seeds)]
    found = tune(entries_of(config), context, config.finalists)
    known = context.sweep([case_of("sgd", 0.0, config, {}, seed, "floors") for seed in seeds])
    floor, least = (float(np.mean([each[name] for each in known])) for name in ("floor", "least"))
    count = float(np.median([each["optimal_paths"] for each in known]))
    leads = lead_rows(found, config.ridges)
    tables: dict[str, Any] = {
        "losses": loss_rows(found),
        "leads": leads,
        "duels": duel_rows(found),
        "floor": [{"true_rewards": floor, "no_learner_below": least, "optimal_paths": count}],
        "curves": curve_rows(found),
    }
    lines = {"hamming": ("true rewards, ties by chance", floor)}
    figures: dict[str, Any] = {}
    for name in METRICS:
        figures |= draw(name, curves_of(found, name), MEASURES[name], False, lines.get(name), True)
    notes = notes_of(config, floor, least, count, found)
    timings = {"curves": curve_rows(found, ["seconds"])}
    return Result(tables, figures, verdicts(config.tie, leads), notes, timings=timings)


def notes_of(config: Config, floor: float, least: float, count: float, found: Found) -> list[str]:
    exact = [each.losses("exact").mean() for each in found.values() if "exact" in each.runs[0]]
    side, tile = config.side, config.tile
    return [
        f"A path has {2 * side - 1} cells, and a map {count:.0f} optimal paths (median); the label is one of them, by "
        f"chance. The true rewards with random tie-breaks are {floor:.2f} cells off the label (the dotted line), and "
        f"no learner can be less than {least:.2f} off on average.",
        f"Every method tried {config.settings} settings within {config.passes:g} effective passes over {config.maps} "
        f"maps of {side}x{side} tiles of {tile}x{tile} pixels, chosen by the Hamming loss on {config.validation} "
        f"validation maps; lines are means of {config.seeds} seeds on {config.test} unseen maps each, bands their "
        "range. One XLA thread.",
        f"The smoothing took the {config.top} best paths, which was exact on {min(exact):.0%} to {max(exact):.0%} of "
        "the maps at the end of the chosen runs.",
    ]


# -------------------------------------------------------------------------------------------------------- Figure 3


def run_picture(context: Context) -> Result:
    """The first unseen map of the first seed, and what constant-step SGD with a middling step learned about it."""
    config = parse(Config, context.config)
    ridge, step = sorted(config.ridges)[len(config.ridges) // 2], GRIDS["sgd"]["step"].value(0)
    case = case_of("sgd", ridge, config, {"step": step}, first_seed(context), "picture")
    learned = context.sweep([case])[0]
    test = parts_of(case.settings)[2][:1]
    optimal, shape = test.optimal(), test.grid
    truth, label = test.rewards[0], test.paths[0].reshape(shape)
    scores, path = (np.asarray(learned[name]).reshape(shape) for name in ("rewards", "path"))
    rows = [
        {"row": i, "column": j, "reward": float(truth[i, j]), "learned": float(scores[i, j])}
        | {"label": int(label[i, j]), "predicted": int(path[i, j])}
        for i, j in np.ndindex(*shape)
    ]
    got, off = float(np.sum(truth * path)), float(optimal.nearest(path.reshape(1, -1))[0])
    notes = [
        f"A map that was not trained on, with one of its {optimal.count()[0]:.0f} optimal paths. The predicted path "
        f"collects {got:g} of {optimal.score[0]:g} and is {off:g} cells off the nearest optimal one. Trained by SGD "
        f"with the step {step:g} and ridge {short(ridge)}/n on {config.maps} maps and one optimal path of each.",
        "Rewards are learned up to a scale and a constant: all monotone paths have the same number of cells.",
    ]
    figure = draw_map(test.pixels[0], truth, label, scores, path)
    return Result({"map": rows}, {"map": figure}, (), notes)


CHECK = partial(parse, Config)
# The paper's maps are random as well; that its tiles are those of a game, and ours drawn, a reader has to know.
DATA = generated("drawn maps", "random terrain of drawn tiles, where the paper has tiles of Warcraft II")
register(
    Experiment(
        "fig4",
        "Figure 4: path planning, every method",
        ("C6",),
        run,
        shipped("fig4"),
        plan,
        CHECK,
        lambda config: (DATA,),
    )
)
register(
    Experiment(
        "fig3",
        "Figure 3: a map, its rewards and what was learned of them",
        (),
        run_picture,
        shipped("fig4"),
        lambda config, seed: Plan([], 1, case_of("sgd", 1.0, parse(Config, config), {}, seed).work),
        CHECK,
        lambda config: (DATA,),
    )
)
