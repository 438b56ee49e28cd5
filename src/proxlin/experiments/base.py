"""What an experiment is: a named function of a context whose result is tables, figures and verdicts.

    context -> run -> Result(tables, figures, verdicts)

An experiment neither reads the clock nor touches the disk: what it returns is stored and written by its caller, so the
same context gives the same bytes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROFILES = ("quick", "paper")

# The claims of the paper, each to be judged by our own runs.
CLAIMS = {
    "C1": "The prox-linear model is more accurate than the linear one near kinks (Figure 1).",
    "C2": "Proposition 1: global decrease, then quadratic convergence.",
    "C3": "Proposition 2: the noise window.",
    "C4": "Regression: SGD tends to beat PLI overall, clearest at high signal-to-noise ratio.",
    "C5": "Regression: the two tie at low signal-to-noise ratio.",
    "C6": "Planning: tuned constant-step SGD is as good as the rest, and best at the smallest ridge, 1e-4/n.",
    "C7": "Equations, full batch: prox-linear beats gradient descent.",
    "C8": "Equations, stochastic: SGD is on par with PLI.",
    "C9": "Mini-batch subgradients of f(mean) are biased.",
}

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]
Table = Sequence[Row]


@dataclass(frozen=True)
class Verdict:
    """The judgement of one claim, with the number it rests on and that number's interval."""

    claim: str
    verdict: Literal["reproduced", "not reproduced", "undecided"]
    number: str
    interval: str

    def __post_init__(self):
        allowed = get_args(Verdict.__annotations__["verdict"])
        if self.verdict not in allowed:
            raise ValueError(f"the verdict on {self.claim} is {self.verdict!r}; take one of {', '.join(allowed)}.")


@dataclass(frozen=True)
class Context:
    """What was asked: the profile with its settings, the seed, the folder, and where to say how it goes."""

    profile: str
    config: Mapping[str, object]
    seed: int
    out: str
    say: Callable[[str], None] = print


@dataclass(frozen=True)
class Result:
    """What was found. `tables` hold no time, date or machine; those belong in `timings`."""

    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, "Figure"] = field(default_factory=dict)
    verdicts: Sequence[Verdict] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    timings: Mapping[str, Table] = field(default_factory=dict)

    def __post_init__(self):
        for name, table in {**self.tables, **self.timings}.items():
            _check_name(name)
            _check_rectangular(name, table)
        for name in self.figures:
            _check_name(name)


@dataclass(frozen=True)
class Experiment:
    """`run(context)` under a name; `configs` holds the settings of each profile, which are part of the result's key."""

    name: str
    title: str
    claims: tuple[str, ...]
    run: Callable[[Context], Result]
    configs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def __post_init__(self):
        _check_name(self.name)

    def config(self, profile: str) -> Mapping[str, object]:
        return self.configs.get(profile, {})


_REGISTRY: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Make an experiment known to `proxlin reproduce`."""
    if experiment.name in _REGISTRY:
        raise ValueError(f"there are two experiments named {experiment.name!r}; rename one of them.")
    _REGISTRY[experiment.name] = experiment
    return experiment


def registered() -> dict[str, Experiment]:
    """The experiments known so far, by name, in the order of their names."""
    return dict(sorted(_REGISTRY.items()))


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):  # it becomes a file name
        raise ValueError(f"the name {name!r} has to consist of a-z, 0-9, _ and -.")


def _check_rectangular(name: str, table: Table) -> None:
    for number, row in enumerate(table):
        if list(row) != list(table[0]):
            raise ValueError(f"row {number} of the table {name} has other columns than row 0.")
