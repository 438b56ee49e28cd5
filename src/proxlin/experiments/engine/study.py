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
from ..tuning import FIRST, Entry, Seeds, Tuned, bracket_of, cases_of, work_of
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
    """Register an experiment whose configs hold the fields of `schema`, and return it.

    The profiles are those of configs/NAME.toml unless `configs` are given. `data` are the origins
    of the data, or a function of the config that returns them.

    Parameters
    ----------
    name : a word
        The name for `proxlin reproduce`, of a-z, 0-9, _ and -.
    title : a text
        The title of the report.
    schema : a dataclass
        The fields of a config, with their types.
    run : a function of (config, context)
        It returns a `Result`.
    plan : a function of (config, seed)
        What will run: `plan_of(cases)`.
    data : a list of origins, or a function of the config
        Where the data come from.
    claims : a tuple of words
        The claims of the paper that it judges.
    configs : a dict, or None
        The settings of each profile; None reads configs/NAME.toml.

    Returns
    -------
    an `Experiment`
        It is registered.

    See Also
    --------
    experiments.engine.base.register : registers an experiment without a schema.
    experiments.engine.study.plan_of : the plan of some cases.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from proxlin.data.origin import generated
    >>> from proxlin.experiments.engine.base import Result
    >>> from proxlin.experiments.engine.study import plan_of, study
    >>> @dataclass(frozen=True)
    ... class Config:
    ...     samples: int
    >>> example = study(
    ...     "example-study",
    ...     "An example",
    ...     Config,
    ...     run=lambda config, context: Result(),
    ...     plan=lambda config, seed: plan_of([]),
    ...     data=[generated("planes", "drawn by the study")],
    ...     configs={"quick": {"samples": 100}},
    ... )
    >>> example.config("quick")
    {'samples': 100}
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
    """Return the plan of a sweep whose cases are all known before it runs.

    Parameters
    ----------
    cases : a list of cases
        All of them.

    Returns
    -------
    a `Plan`
        The cases, their number, and a guess of their seconds.

    See Also
    --------
    experiments.engine.base.Case : one piece of a sweep.
    experiments.engine.study.study : takes a function that returns a plan.

    Examples
    --------
    >>> from proxlin.experiments.engine.base import Case
    >>> from proxlin.experiments.engine.study import plan_of
    >>> plan_of([Case("my_study:fit", {"seed": seed}) for seed in range(3)]).cases
    3
    """
    return Plan(cases, len(cases), total_work(cases) + _compiling(cases))


def tuned_plan(
    entries: Sequence[Entry],
    finalists: int,
    seed: int,
    more: Sequence[Case] = (),
    use: Seeds = FIRST,
) -> Plan:
    """Return the plan of a sweep that tunes some entries, and then runs `more` cases of known
    number.
    """
    first = bracket_of(entries, 1000 * seed)  # as `first_seed` has it
    count = cases_of(entries, finalists, use) + len(more)
    work = work_of(entries, finalists, use) + total_work(more)
    return Plan(first, count, work + _compiling([*first, *more]))


def _compiling(cases: Sequence[Case]) -> float:
    """Return the seconds that compiling takes: one worker compiles a group, and the others find its programs on the
    disk.
    """
    return COMPILING * len({case.group for case in cases})


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
    """Raise a ValueError that names the first of these settings which is not above 0, or holds such a
    number; return nothing.

    Parameters
    ----------
    config : a dataclass
        The settings.
    *names : words
        The fields to look at.

    Raises
    ------
    ValueError
        A setting is not above 0.

    See Also
    --------
    experiments.engine.study.study : calls it where a config is made.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from proxlin.experiments.engine.study import demand_positive
    >>> demand_positive(SimpleNamespace(samples=100, shares=(0.1, 0.0)), "samples", "shares")
    Traceback (most recent call last):
        ...
    ValueError: shares has to hold positive numbers.
    """
    for name in names:
        value = getattr(config, name)
        if isinstance(value, tuple):
            if not value or min(value) <= 0:
                raise ValueError(f"{name} has to hold positive numbers.")
        elif not value > 0:
            raise ValueError(f"{name} has to be positive.")


def demand_rules(config: Any, *names: str) -> None:
    """Raise a ValueError unless a config states exactly these rules."""
    if set(config.rules) != set(names):
        raise ValueError(
            f"rules has to state {', '.join(names)}; it states {', '.join(config.rules) or 'none'}."
        )


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
