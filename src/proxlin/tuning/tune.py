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
    """A grid of settings: the solvers make(**setting) for the settings on a grid of axes, of which a
    search tries `budget`.

    Parameters
    ----------
    make : a function of the settings
        It returns a solver, as `px.sgd` does.
    axes : a dict of names and axes
        A `Lattice` or a `Choice` for each setting.
    budget : an integer
        How many settings a search tries.

    Raises
    ------
    TypeError
        An axis is neither a `Lattice` nor a `Choice`, or make is no function.

    See Also
    --------
    tune : searches it.
    Lattice, Choice : axes.

    Examples
    --------
    >>> import proxlin as px
    >>> steps = px.Space(px.sgd, {"step": px.Lattice(0.1, 10**0.5, bracket=(-2, 0, 2))}, budget=6)
    >>> steps.make(step=steps.axes["step"].value(-2))
    ModelBased(model=Linear(), schedule=Constant(s=0.01), batch_size=1)
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
    """The answer of `tune`.

    Parameters
    ----------
    best : a solver
        The one of least validation loss.
    table : a list of dicts
        A row for every solver tried, best first.

    See Also
    --------
    tune : returns it.

    Examples
    --------
    >>> import proxlin as px
    >>> row = {"solver": "sgd", "setting": {"step": 0.1}, "validation": 2.0, "passes": 5.0, "diverged": 0}
    >>> px.Tuning(px.sgd(0.1), [row]).records()
    [{'solver': 'sgd', 'step': 0.1, 'validation': 2.0, 'passes': 5.0, 'diverged': 0}]
    """

    best: AbstractSolver
    table: list[dict[str, Any]]

    def records(self) -> list[dict[str, Any]]:
        """Return the table with a column for each setting, None where a solver has none.

        `pandas.DataFrame(tuning.records())` and polars take them.

        Returns
        -------
        a list of dicts
            One for each solver tried.
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
    """Try solvers, each for the same effective `passes` from w, and return the one of least validation
    loss.

    A `Space` is searched (bracket, coordinate moves, nearest points), a solver tried as it is. A
    run counts with its best checkpoint, a diverged one with what it had reached before.

    Parameters
    ----------
    problem : a problem
        F on the training data.
    w : a tree
        The start of every run.
    solvers : a solver, a `Space`, or a list or dict of them
        What is tried.
    validation : a problem, or a function of w
        F on held-out data, or another loss.
    passes : a positive number
        The budget of every run.
    seeds : an integer
        The runs of every solver, over which the losses are averaged.

    Returns
    -------
    a `Tuning`
        The best solver, and a table of all.

    Raises
    ------
    ValueError
        There is no solver, or none reached a finite loss.

    See Also
    --------
    Space, Lattice, Choice : say which settings to search.
    advise : compares SGD with Gauss-Newton.
    minimize : runs the best solver.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = np.array([[1.0], [2.0], [9.0], [2.0]])
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), x)
    >>> found = px.tune(p, np.zeros(1), {"slow": px.sgd(0.001), "quick": px.sgd(0.1)}, p, passes=5)
    >>> [row["solver"] for row in found.table]
    ['quick', 'slow']
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
