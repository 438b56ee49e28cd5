"""What an experiment is: a named function of a context whose result is tables, figures and
verdicts.

    context -> run -> Result(tables, figures, verdicts)

An experiment neither reads the clock nor touches the disk: what it returns is stored and written by
its caller, so the same context gives the same bytes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from ...data.origin import Origin
from ...plots.drawing import Drawing
from ...plots.pages import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROFILES = ("quick", "paper")
# of experiments, tables and figures: it becomes part of a file's name
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
# What a reader must know before the verdicts of a profile.
CAVEATS = {
    "quick": "quick profile: a smoke test of the code, not evidence about the paper"
}

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


Judgement = Literal["reproduced", "not reproduced", "undecided"]


def judged(holds: bool, fails: bool) -> Judgement:
    """Return the judgement of a claim by the two halves of its rule."""
    if holds:
        return "reproduced"
    if fails:
        return "not reproduced"
    return "undecided"


@dataclass(frozen=True)
class Verdict:
    """The judgement of one claim by a rule, with the number it rests on and that number's interval."""

    claim: str
    verdict: Judgement
    number: str
    interval: str
    rule: str = ""

    def __post_init__(self):
        allowed = get_args(Judgement)
        if self.verdict not in allowed:
            raise ValueError(
                f"the verdict on {self.claim} is {self.verdict!r}; take one of {', '.join(allowed)}."
            )

    def published(self, profile: str, data: Sequence[Origin]) -> dict[str, str]:
        """Return the verdict with what it rests on, as page, tables and JSON show it.

        Data that stand in for others judge no claim about those: "not judged (synthetic)". The
        number stays.
        """
        verdict: str = self.verdict
        stand_ins = dict.fromkeys(each.kind for each in data if each.stands_in)
        if stand_ins:
            verdict = f"not judged ({', '.join(stand_ins)})"
        return {
            "claim": self.claim,
            "verdict": verdict,
            "profile": profile,
            "data": labels(data),
            "number": self.number,
            "interval": self.interval,
            "rule": self.rule,
        }


def labels(data: Sequence[Origin]) -> str:
    """Return the data of a study in a few words: "ijcnn1 (synthetic), covtype (synthetic)"."""
    return ", ".join(each.label for each in data)


@dataclass(frozen=True)
class Case:
    """One piece of a sweep: `task` names a function "module:name" of the settings that returns
    plain numbers and text.

    `work` is a guess of its seconds, for the order of the cases and the remaining time. Cases of one `group` share
    shapes, hence a compilation. Neither is part of the case's key.
    """

    task: str
    settings: Mapping[str, Any]
    work: float = 1.0
    group: str = ""


@dataclass(frozen=True)
class Plan:
    """What a sweep will run: the cases known before any has run, the number of all, and a guess of
    their seconds.
    """

    first: Sequence[Case]
    cases: int
    work: float


def no_sweep(cases: Sequence[Case]) -> list[dict]:
    """Refuse to sweep, for a context that was made without workers."""
    raise NotImplementedError("this context was made without a sweep engine")


@dataclass(frozen=True)
class Context:
    """What was asked: the profile with its settings, the seed, and the folder; `sweep(cases)`
    returns their results.

    `data` are those that `Experiment.data` named, so that a file which appears later does not change them.
    `sweep` runs what the folder does not have yet, on as many processes as the user gave. A search calls it again and
    again, each time with the cases that the results so far ask for.
    """

    profile: str
    config: Mapping[str, object]
    seed: int
    out: str
    say: Callable[[str], None] = print
    sweep: Callable[[Sequence[Case]], list[dict]] = no_sweep
    data: Sequence[Origin] = ()


@dataclass(frozen=True)
class Result:
    """What was found. `tables` hold no time, date or machine; those belong in `timings`."""

    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, "Figure | Drawing"] = field(default_factory=dict)
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
    """`run(context)` under a name; `configs` holds the settings of each profile, which are part of the result's key.

    An experiment that sweeps says by `plan(config, seed)` what it will run, and by `check(config)`,
    which raises a UserError, what a config may hold. `data(config)` are the data that it would use;
    one that judges claims names them.
    """

    name: str
    title: str
    claims: tuple[str, ...]
    run: Callable[[Context], Result]
    configs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    plan: Callable[[Mapping[str, object], int], Plan] | None = None
    check: Callable[[Mapping[str, object]], object] | None = None
    data: Callable[[Mapping[str, object]], Sequence[Origin]] | None = None

    def __post_init__(self):
        _check_name(self.name)
        if self.claims and self.data is None:
            raise ValueError(
                f"{self.name} judges {', '.join(self.claims)}, so it has to say on which data."
            )

    def config(self, profile: str) -> Mapping[str, object]:
        """Return the settings of a profile, none where it has no table."""
        return self.configs.get(profile, {})


_REGISTRY: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Make an experiment known to `proxlin reproduce`."""
    if experiment.name in _REGISTRY:
        raise ValueError(
            f"there are two experiments named {experiment.name!r}; rename one of them."
        )
    _REGISTRY[experiment.name] = experiment
    return experiment


def registered() -> dict[str, Experiment]:
    """Return the experiments known so far, by name, in the order of their names."""
    return dict(sorted(_REGISTRY.items()))


def _check_name(name: str) -> None:
    """Refuse a name that could not be part of a file's name."""
    if not NAME.fullmatch(name):
        raise ValueError(f"the name {name!r} has to consist of a-z, 0-9, _ and -.")


def _check_rectangular(name: str, table: Table) -> None:
    """Refuse a table whose rows have different columns, since a CSV file has one header."""
    for number, row in enumerate(table):
        if list(row) != list(table[0]):
            raise ValueError(
                f"row {number} of the table {name} has other columns than row 0."
            )
