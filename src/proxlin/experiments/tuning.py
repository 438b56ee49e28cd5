"""Tuning by the same declared search for every method, and comparing what it found, seed by seed.

search on the first seed  ->  finalists on all seeds  ->  the least mean validation loss  ->  its test losses
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from ..theory.statistics import leader, t_interval
from ..tuning.search import Grid, Point, Search, Setting, search_all
from .engine.base import Case, Context


@dataclass(frozen=True)
class Entry:
    """Something to be tuned: its label, its grid, the case of a setting on a seed, and on how many seeds it ends."""

    label: Hashable
    grid: Grid
    case: Callable[[Setting, int], Case]
    seeds: int


@dataclass(frozen=True)
class Tuned:
    """The chosen setting of an entry and its result on each seed, in the order of the seeds."""

    setting: Setting
    runs: tuple[dict, ...]
    searched: float  # the least validation loss that the search saw
    ends: tuple[str, ...]  # the axes that end at the chosen setting

    def losses(self, name: str = "test_loss", seeds: int | None = None) -> np.ndarray:
        return np.asarray([run[name] for run in self.runs[:seeds]])

    def words(self) -> str:
        return " ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in self.setting.items()
        )


def first_seed(context: Context) -> int:
    """Seeds of different --seed do not overlap."""
    return context.seed * 1000


def tune(entries: Sequence[Entry], context: Context, finalists: int) -> dict[Any, Tuned]:
    """Each entry's label with what was found; all entries search side by side, so that workers never wait for one."""
    first = first_seed(context)
    searches = [Search(entry.grid) for entry in entries]

    def evaluate(asked: list[tuple[int, Setting]]) -> list[float]:
        results = context.sweep([entries[i].case(setting, first) for i, setting in asked])
        return [result["validation_loss"] for result in results]

    search_all(searches, evaluate)
    asked = [
        (i, point, first + seed)
        for i, search in enumerate(searches)
        for point in search.ranked(finalists)
        for seed in range(entries[i].seeds)
    ]
    cases = [entries[i].case(entries[i].grid.setting(point), seed) for i, point, seed in asked]
    runs: dict[tuple[int, Point], list[dict]] = {}
    for (i, point, _), result in zip(asked, context.sweep(cases), strict=True):
        runs.setdefault((i, point), []).append(result)
    return {
        entry.label: _chosen(search, {point: found for (j, point), found in runs.items() if j == i})
        for i, (entry, search) in enumerate(zip(entries, searches, strict=True))
    }


def _chosen(search: Search, runs: Mapping[Point, list[dict]]) -> Tuned:
    point = min(runs, key=lambda point: fmean(run["validation_loss"] for run in runs[point]))
    grid = search.grid
    return Tuned(grid.setting(point), tuple(runs[point]), search.scores[search.best], tuple(grid.at_end(point)))


def cases_of(entries: Sequence[Entry], finalists: int) -> int:
    """How many cases `tune` runs."""
    return sum(entry.grid.budget + finalists * (entry.seeds - 1) for entry in entries)


def work_of(entries: Sequence[Entry], finalists: int) -> float:
    """A guess of their seconds."""
    first = ((entry, entry.grid.setting(entry.grid.bracket()[0])) for entry in entries)
    return sum(cases_of([entry], finalists) * entry.case(setting, 0).work for entry, setting in first)


def bracket_of(entries: Sequence[Entry], seed: int) -> list[Case]:
    """The cases that are known before any has run."""
    return [entry.case(entry.grid.setting(point), seed) for entry in entries for point in entry.grid.bracket()]


def compare(one: np.ndarray, two: np.ndarray, tie: float) -> tuple[float, float, float, int]:
    """The loss of two over that of one, less 1, by geometric mean over the seeds; its 95 % interval; who wins.

    1 or 2 wins if the interval excludes 0 and the mean is beyond the tie band; else it is a tie, 0.
    """
    mean, low, high = t_interval(np.log(two / one))
    winner = {-1: 2, 0: 0, 1: 1}[leader(mean, low, high, math.log1p(tie))]
    return math.expm1(mean), math.expm1(low), math.expm1(high), winner
