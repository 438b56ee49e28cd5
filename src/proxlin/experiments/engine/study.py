"""The skeleton that studies share: a config of a schema, a plan and a run, known to `proxlin
reproduce` by a name.

    study("fig2", "Figure 2", Config, run, plan, data=(DATA,), claims=("C4", "C5"))

`run(config, context)` and `plan(config, seed)` get the config as a `Config`, already checked.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...data.origin import Origin
from ..tuning import Entry, Tuned, bracket_of, cases_of, work_of
from .base import Case, Context, Experiment, Plan, Result, register
from .config import parse, shipped

Config = TypeVar("Config")

COMPILING = 5.0  # seconds that a group of cases takes to compile, on two cores


def study(
    name: str,
    title: str,
    schema: type[Config],
    run: Callable[[Config, Context], Result],
    plan: Callable[[Config, int], Plan],
    data: Sequence[Origin] | Callable[[Config], Sequence[Origin]],
    claims: tuple[str, ...] = (),
    configs: Mapping[str, Mapping[str, object]] | None = None,
) -> Experiment:
    """Register an experiment whose configs hold the fields of `schema`.

    The profiles are those of configs/NAME.toml unless `configs` are given. `data` are the origins
    of the data, or a function of the config that returns them.
    """
    parsed = partial(parse, schema)
    origins = data if callable(data) else lambda config: data
    return register(
        Experiment(
            name=name,
            title=title,
            claims=claims,
            run=lambda context: run(parsed(context.config), context),
            configs=configs or shipped(name),
            plan=lambda config, seed: plan(parsed(config), seed),
            check=parsed,
            data=lambda config: origins(parsed(config)),
        )
    )


def plan_of(cases: Sequence[Case]) -> Plan:
    """Return the plan of a sweep whose cases are all known before it runs."""
    groups = {case.group for case in cases}
    return Plan(cases, len(cases), total_work(cases) + COMPILING * len(groups))


def tuned_plan(
    entries: Sequence[Entry], finalists: int, seed: int, more: Sequence[Case] = ()
) -> Plan:
    """Return the plan of a sweep that tunes some entries, and then runs `more` cases of known
    number.
    """
    first = bracket_of(entries, 1000 * seed)  # as `first_seed` has it
    count = cases_of(entries, finalists) + len(more)
    return Plan(first, count, work_of(entries, finalists) + total_work(more))


def total_work(cases: Sequence[Case]) -> float:
    """Return the seconds that these cases take one after the other, by their guesses."""
    return sum((case.work for case in cases), 0.0)


def fields_of(config: Any, *names: str) -> dict[str, Any]:
    """Return some fields of a config as settings of a case; tuples become lists, as JSON has them."""
    found = {}
    for name in names:
        value = getattr(config, name)
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def demand_positive(config: Any, *names: str) -> None:
    """Raise a ValueError that names the first of these settings which is not above 0, or holds such
    a number.
    """
    for name in names:
        value = getattr(config, name)
        if isinstance(value, tuple):
            if not value or min(value) <= 0:
                raise ValueError(f"{name} has to hold positive numbers.")
        elif not value > 0:
            raise ValueError(f"{name} has to be positive.")


def demand_known(
    what: str, name: str, known: Sequence[str] | Mapping[str, object]
) -> None:
    """Raise a ValueError unless `name` is among the known ones."""
    if name not in known:
        raise ValueError(f"{what} is {name!r}; take one of {', '.join(known)}.")


def mean_of(tuned: Tuned, name: str, seeds: int | None = None) -> float:
    """Return the mean over the seeds of a number that each run of the chosen setting returned."""
    return float(tuned.losses(name, seeds).mean())


def curve(runs: Sequence[Mapping[str, Any]], column: str) -> np.ndarray:
    """Return a column of the curves of several seeds, a row for each seed, cut to the shortest."""
    curves = [run[f"curve_{column}"] for run in runs]
    length = min(len(each) for each in curves)
    return np.asarray([each[:length] for each in curves])
