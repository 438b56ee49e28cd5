"""Tuning by the same declared search for every method, and comparing what it found, seed by seed.

search on the first seeds  ->  finalists on all seeds  ->  the least mean validation loss  ->  its test losses
search on the first seeds  ->  the least mean validation loss there  ->  its test losses on fresh seeds
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from ..theory import Comparison
from ..theory.rules import compare_ratios
from ..tuning.search import Grid, Setting, Trial, tune_grids
from .engine.base import Case, Context

SEEDS = 1000  # the seeds of a run; no study takes as many


@dataclass(frozen=True)
class Seeds:
    """How seeds are used: a search sees the first `searched` of them, and the chosen setting is judged on all, or on
    `fresh` ones that no search has seen.
    """

    searched: int = 1
    fresh: bool = False

    def tuned(self, entry: "Entry") -> int:
        """Return the number of seeds that choose a setting."""
        return self.searched if self.fresh else entry.seeds

    def judging(self, entry: "Entry") -> range:
        """Return the seeds that judge the chosen setting and have not run yet."""
        if not self.fresh:
            return range(0)
        return range(self.searched, self.searched + entry.seeds)

    def judges(self, seed: int) -> bool:
        """Return whether a seed judges settings, and does not only choose them."""
        return not self.fresh or seed % SEEDS >= self.searched


FIRST = Seeds()


@dataclass(frozen=True)
class Entry:
    """Something to be tuned: its label, its grid, the case of a setting on a seed, and on how many
    seeds it ends.
    """

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
        """Return a column of the results, of all seeds or of the first ones."""
        return np.asarray([run[name] for run in self.runs[:seeds]])

    def words(self) -> str:
        """Return the setting as a text for a table."""
        return " ".join(
            f"{name}={_short(value)}" for name, value in self.setting.items()
        )


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def first_seed(context: Context) -> int:
    """Return the first seed of a run: those of different `context.seed` do not overlap."""
    return context.seed * SEEDS


def tune(
    entries: Sequence[Entry], context: Context, finalists: int, use: Seeds = FIRST
) -> dict[Any, Tuned]:
    """Return what was found for each entry, by its label; all entries search side by side on the
    sweep's workers.
    """
    first = first_seed(context)

    def evaluate(trials: list[Trial]) -> list[dict]:
        return context.sweep(
            [
                entries[which].case(setting, first + seed)
                for which, setting, seed in trials
            ]
        )

    grids = [entry.grid for entry in entries]
    found = tune_grids(
        grids,
        evaluate,
        _validation_loss,
        seeds=[use.tuned(entry) for entry in entries],
        searched=use.searched,
        finalists=finalists,
    )
    fresh = iter(
        context.sweep(
            [
                entry.case(best.setting, first + seed)
                for entry, best in zip(entries, found, strict=True)
                for seed in use.judging(entry)
            ]
        )
    )
    tuned = {}
    for entry, best in zip(entries, found, strict=True):
        judged = tuple(next(fresh) for _ in use.judging(entry))
        runs = judged if use.fresh else best.runs
        tuned[entry.label] = Tuned(best.setting, runs, best.searched, best.ends)
    return tuned


def against_full_grid(
    tuned: Tuned, results: Sequence[Mapping[str, Any]], seeds: int
) -> dict[str, Any]:
    """Return the best validation loss of a search beside that of a full grid, as columns of a table. The results are
    those of every setting, each on all `seeds` seeds of the search.
    """
    losses = np.reshape([each["validation_loss"] for each in results], (-1, seeds))
    best = float(losses.mean(axis=1).min())
    return {
        "full_grid": len(losses),
        "best_of_full": best,
        "best_of_search": tuned.searched,
        "search_over_full": tuned.searched / best,
    }


def _validation_loss(runs: Sequence[dict]) -> float:
    return fmean(run["validation_loss"] for run in runs)


def cases_of(entries: Sequence[Entry], finalists: int, use: Seeds = FIRST) -> int:
    """Return how many cases `tune` runs."""
    total = 0
    for entry in entries:
        last = min(finalists, entry.grid.budget) * (use.tuned(entry) - use.searched)
        total += entry.grid.budget * use.searched + last + len(use.judging(entry))
    return total


def work_of(entries: Sequence[Entry], finalists: int, use: Seeds = FIRST) -> float:
    """Return a guess of the seconds of these cases, from the first of each entry."""
    return sum(
        cases_of([entry], finalists, use) * bracket_of([entry], 0)[0].work
        for entry in entries
    )


def bracket_of(entries: Sequence[Entry], seed: int) -> list[Case]:
    """Return the cases that are known before any has run."""
    return [
        entry.case(entry.grid.setting(point), seed)
        for entry in entries
        for point in entry.grid.bracket()
    ]


def compare(one: np.ndarray, two: np.ndarray, level: float = 0.95) -> Comparison:
    """Return the loss of two over that of one, less 1: a geometric mean over the seeds, paired."""
    return compare_ratios(two, one, level)


def winner(found: Comparison, band: float, one: str, two: str) -> str:
    """Return the one whose loss is shown to be less, "equal" where the interval lies inside the band, and else
    "not resolved".

    >>> winner(compare(np.ones(3), np.array([1.2, 1.3, 1.25])), 0.01, "SGD", "PLI")
    'SGD'
    """
    finding = found.finding(band)
    return {"more": one, "less": two}.get(finding, finding)


def columns_of(found: Comparison, name: str) -> dict[str, float]:
    """Return a comparison as columns of a table: the difference under its name, its interval, and the smallest
    difference that the seeds could have shown.
    """
    return {
        name: found.shown(found.mean),
        "low": found.shown(found.low),
        "high": found.shown(found.high),
        "visible": found.detectable,
    }
