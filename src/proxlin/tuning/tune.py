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
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem, check_problem
from ..run import follow
from ..solvers import AbstractSolver, check_solver
from ..types import Params
from .search import Axis, Grid, tune_grids

CHECKPOINTS = 20  # of a run, evenly over its passes, and its start


@dataclass(frozen=True)
class Space:
    """The solvers make(**setting) for the settings on a grid of axes, of which a search tries
    `budget`.

    >>> import proxlin as px
    >>> steps = px.Space(px.sgd, {"step": px.Lattice(0.1, 10**0.5, bracket=(-2, 0, 2))}, budget=6)
    """

    make: Callable[..., AbstractSolver]
    axes: Mapping[str, Axis]
    budget: int = 20

    def __post_init__(self):
        check_function(self.make, "make of Space", "the settings, such as px.sgd")
        if not isinstance(self.axes, Mapping) or not self.axes:
            raise TypeError(
                f"The axes of Space must be a dict of names and axes; they are {described(self.axes)}."
            )
        for name, axis in self.axes.items():
            if not isinstance(axis, Axis):
                raise TypeError(
                    f"The axis {name!r} of Space must be a Lattice or a Choice; it is {described(axis)}."
                )
        whole(self.budget, "budget of Space")


class Tuning(NamedTuple):
    """The best solver, and a row for every solver tried, best first."""

    best: AbstractSolver
    table: list[dict[str, Any]]

    def records(self) -> list[dict[str, Any]]:
        """Return the table with a column for each setting, None where a solver has none.

        `pandas.DataFrame(tuning.records())` and polars take them.
        """
        none = dict.fromkeys(name for row in self.table for name in row["setting"])
        measured = ("validation", "passes", "diverged")
        return [
            {"solver": row["solver"]}
            | none
            | row["setting"]
            | {name: row[name] for name in measured}
            for row in self.table
        ]


class Reached(NamedTuple):
    """What one run reached: its least validation loss, at how many passes, and whether it blew up."""

    validation: float
    passes: float | int
    diverged: bool


@in_the_precision_of_w
def tune(
    problem: AbstractProblem,
    w: Params,
    solvers: Any,
    validation: AbstractProblem | Callable[[Params], Any],
    passes: float | int,
    seeds: int = 1,
) -> Tuning:
    """Try solvers, each for the same effective `passes` from w, and take the one of least
    validation loss.

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

    def run(solver: AbstractSolver, seed: int) -> Reached:
        found = follow(problem, w, solver, measure, marks, seed=seed)
        return Reached(found.best, found.at, found.diverged)

    tried = []
    for name, each in named.items():
        make, grid = _grid_of(each)
        evaluate = lambda trials, make=make: [
            run(make(**setting), seed) for _, setting, seed in trials
        ]
        (found,) = tune_grids(
            [grid], evaluate, _mean_validation, seeds=[seeds], searched=seeds
        )
        tried += [(make, _row(name, setting, runs)) for setting, runs in found.tried]
    if not any(math.isfinite(row["validation"]) for _, row in tried):
        raise ValueError(
            "No solver reached a finite validation loss; are the held-out data and the start finite?"
        )
    tried.sort(key=lambda each: each[1]["validation"])
    make, best = tried[0]
    return Tuning(make(**best["setting"]), [row for _, row in tried])


def _named(solvers: Any) -> dict[str, AbstractSolver | Space]:
    """Return what is to be tried by name; of a list, by the solvers' own names, with their places
    where some agree.
    """
    if isinstance(solvers, Mapping):
        values = list(solvers.values())
    elif isinstance(solvers, list | tuple):
        values = list(solvers)
    else:
        values = [solvers]
    if not values:
        raise ValueError("tune needs at least one solver.")
    for each in values:
        if not isinstance(each, Space):
            check_solver(each, "What tune tries, where it is no px.Space,")
    if isinstance(solvers, Mapping):
        return dict(solvers)
    names = [_name(each) for each in values]
    shared = [name for name in names if names.count(name) > 1]
    unique = [
        name + f" {i}" * (name in shared) for i, name in enumerate(names, start=1)
    ]
    return dict(zip(unique, values, strict=True))


def _name(each: AbstractSolver | Space) -> str:
    if isinstance(each, AbstractSolver):
        return each.name()
    return each.make.__name__


def _grid_of(
    each: AbstractSolver | Space,
) -> tuple[Callable[..., AbstractSolver], Grid]:
    """Return what makes a solver of a setting, and the grid of settings; a solver as it is has one,
    without axes.
    """
    if isinstance(each, Space):
        return each.make, Grid(each.axes, each.budget)
    return lambda: each, Grid({}, 1)


def _mean_validation(runs: Sequence[Reached]) -> float:
    return fmean(run.validation for run in runs)


def _row(name: str, setting: dict[str, Any], runs: Sequence[Reached]) -> dict[str, Any]:
    return {
        "solver": name,
        "setting": setting,
        "validation": _mean_validation(runs),
        "passes": fmean(run.passes for run in runs),
        "diverged": sum(run.diverged for run in runs),
    }
