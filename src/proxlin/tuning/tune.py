"""Tuning for a user's own problem: the search of the experiments, on a validation loss.

best = argmin over solvers of  mean over seeds of  min over checkpoints of  validation(w)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ..checks import described, real, whole
from ..inners import check_function
from ..problem import AbstractProblem, check_problem
from ..run import Followed, follow
from ..solvers import AbstractSolver, check_solver
from ..types import Params
from .search import Axis, Grid, Search, Setting, search_all

CHECKPOINTS = 20  # of a run, evenly over its passes, and its start


@dataclass(frozen=True)
class Space:
    """The solvers make(**setting) for the settings on a grid of axes, of which a search tries `budget`.

    >>> import proxlin as px
    >>> steps = px.Space(px.sgd, {"step": px.Lattice(0.1, 10**0.5, bracket=(-2, 0, 2))}, budget=6)
    """

    make: Callable[..., AbstractSolver]
    axes: Mapping[str, Axis]
    budget: int = 20

    def __post_init__(self):
        check_function(self.make, "make of Space", "the settings, such as px.sgd")
        if not isinstance(self.axes, Mapping) or not self.axes:
            raise TypeError(f"The axes of Space must be a dict of names and axes; they are {described(self.axes)}.")
        for name, axis in self.axes.items():
            if not isinstance(axis, Axis):
                raise TypeError(f"The axis {name!r} of Space must be a Lattice or a Choice; it is {described(axis)}.")
        whole(self.budget, "budget of Space")


class Tuning(NamedTuple):
    """The best solver, and a row for every solver tried, best first."""

    best: AbstractSolver
    table: list[dict[str, Any]]

    def records(self) -> list[dict[str, Any]]:
        """The table with a column for each setting, None where a solver has none: `pandas.DataFrame(tuning.records())`.

        polars takes them as well.
        """
        names = dict.fromkeys(name for row in self.table for name in row["setting"])
        settings = [dict.fromkeys(names) | dict(row["setting"]) for row in self.table]
        return [
            {"solver": row["solver"]} | setting | {name: row[name] for name in ("validation", "passes", "diverged")}
            for row, setting in zip(self.table, settings, strict=True)
        ]


def tune(
    problem: AbstractProblem,
    w: Params,
    solvers: Any,
    validation: AbstractProblem | Callable[[Params], Any],
    passes: float | int,
    seeds: int = 1,
) -> Tuning:
    """Try solvers, each for the same effective `passes` from w, and take the one of least validation loss.

    `solvers` is a solver, a `Space`, or a list or dict of them. A `Space` is searched (bracket, coordinate moves,
    nearest points), a solver tried as it is. `validation` is a problem on held-out data, or a function of w; a run
    counts with its best checkpoint, a diverged one with what it had reached before.
    """
    check_problem(problem, "tune")
    passes = real(passes, "passes", low=0.0, open=True)
    seeds = whole(seeds, "seeds")
    named = _named(solvers)
    if isinstance(validation, AbstractProblem):
        measure = validation.value
    else:
        measure = check_function(validation, "validation, where it is no problem,", "w")
    marks = np.linspace(0, passes, CHECKPOINTS + 1).tolist()

    def score(solver: AbstractSolver) -> list[Followed]:
        return [follow(problem, w, solver, measure, marks, seed=seed) for seed in range(seeds)]

    tried = [row for name, each in named.items() for row in _tried(name, each, score)]
    if not any(math.isfinite(row["validation"]) for _, row in tried):
        raise ValueError("No solver reached a finite validation loss; are the held-out data and the start finite?")
    tried.sort(key=lambda each: each[1]["validation"])
    return Tuning(tried[0][0], [row for _, row in tried])


def _named(solvers: Any) -> dict[str, AbstractSolver | Space]:
    given = solvers if isinstance(solvers, Mapping | list | tuple) else [solvers]
    values = list(given.values()) if isinstance(given, Mapping) else list(given)
    if not values:
        raise ValueError("tune needs at least one solver.")
    for each in values:
        if not isinstance(each, Space):
            check_solver(each, "What tune tries, where it is no px.Space,")
    if isinstance(given, Mapping):
        return dict(given)
    names = [each.name() if isinstance(each, AbstractSolver) else each.make.__name__ for each in values]
    unique = [f"{name} {i + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]
    return dict(zip(unique, values, strict=True))


def _tried(
    name: str, each: AbstractSolver | Space, score: Callable[[AbstractSolver], list[Followed]]
) -> list[tuple[AbstractSolver, dict[str, Any]]]:
    if isinstance(each, AbstractSolver):
        return [(each, _row(name, {}, score(each)))]
    search, tried = Search(Grid(each.axes, each.budget)), []

    def evaluate(asked: Sequence[tuple[int, Setting]]) -> list[float]:
        new = [
            (solver, _row(name, setting, score(solver))) for _, setting in asked for solver in [each.make(**setting)]
        ]
        tried.extend(new)
        return [row["validation"] for _, row in new]

    search_all([search], evaluate)
    return tried


def _row(name: str, setting: Setting, runs: list[Followed]) -> dict[str, Any]:
    return {
        "solver": name,
        "setting": setting,
        "validation": fmean(run.best for run in runs),
        "passes": fmean(run.at for run in runs),
        "diverged": sum(run.diverged for run in runs),
    }
