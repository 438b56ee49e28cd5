"""What an experiment is: a named function of a context whose result is tables, figures and
verdicts.

    context -> run -> Result(tables, figures, verdicts)

An experiment neither reads the clock nor touches the disk: what it returns is stored and written by
its caller, so the same context gives the same bytes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from ...data.origin import Origin
from ...plots.drawing import Drawing
from ...plots.pages import Table
from ...theory.rules import Judgement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROFILES = ("quick", "paper")
# of experiments, tables and figures: it becomes part of a file's name
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
# What a reader must know before the verdicts of a profile.
CAVEATS = {
    "quick": "quick profile: a smoke test of the code, not evidence about the paper"
}

# The claims of the paper, each to be judged by our own runs; C10 is our own, and C11 that of Duchi and Ruan (2019).
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
    "C10": "Ours: stopping at the noise level F(wbar) finds the least recovery error, and steps below it hurt.",
    "C11": "Phase retrieval: exact prox-linear recovers a real signal from Gaussian squares, from m/n = 2 on.",
}


def judged(holds: bool, fails: bool) -> Judgement:
    """Return the judgement of a claim by the two halves of its rule."""
    if holds:
        return "reproduced"
    if fails:
        return "not reproduced"
    return "not resolved"


@dataclass(frozen=True)
class Verdict:
    """The judgement of one claim by a rule, with the number it rests on and that number's interval.

    `units`: how many independent seeds or draws; `visible`: the smallest difference that they could have shown;
    `needed`: where they did not decide, how many would.
    """

    claim: str
    verdict: Judgement
    number: str
    interval: str
    rule: str = ""
    units: str = ""
    visible: str = ""
    needed: str = ""

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
        if self.needed:
            verdict = f"{verdict} ({self.needed})"
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
            "units": self.units,
            "visible": self.visible,
            "rule": self.rule,
        }


def labels(data: Sequence[Origin]) -> str:
    """Return the data of a study in a few words: "ijcnn1 (synthetic), covtype (synthetic)"."""
    return ", ".join(each.label for each in data)


@dataclass(frozen=True)
class Case:
    """One piece of a sweep.

    Parameters
    ----------
    task : a text
        The name "module:function" of a function of the settings that returns plain numbers and
        text.
    settings : a dict
        What the function gets.
    work : a number
        A guess of its seconds, for the order of the cases and the remaining time; it is no part of
        the case's key.
    group : a word
        Cases of one group share shapes, hence a compilation; it is no part of the case's key.

    See Also
    --------
    experiments.engine.base.Context : runs cases by its `sweep`.
    experiments.engine.study.plan_of : the plan of some cases.

    Examples
    --------
    >>> from proxlin.experiments.engine.base import Case
    >>> Case("my_study:fit", {"noise": 0.1, "seed": 0}).settings["noise"]
    0.1
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
    """What was asked of an experiment.

    `sweep` runs what the folder does not have yet, on as many processes as the user gave. A search
    calls it again and again, each time with the cases that the results so far ask for.

    Parameters
    ----------
    profile : a word
        "quick" or "paper".
    config : a dict
        The settings of the profile.
    seed : an integer
        The randomness of the run.
    out : a path
        The folder of the results.
    say : a function of a text
        It shows a line to the user.
    sweep : a function of a list of cases
        It returns their results.
    data : a list of origins
        Those that `Experiment.data` named, so that a file which appears later does not change them.

    See Also
    --------
    experiments.engine.base.Experiment : its `run` gets it.

    Examples
    --------
    >>> from proxlin.experiments.engine.base import Case, Context
    >>> context = Context("quick", {}, 0, "results", sweep=lambda cases: [{"error": 0.5} for _ in cases])
    >>> context.sweep([Case("my_study:fit", {})])
    [{'error': 0.5}]
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
    """What an experiment found.

    Parameters
    ----------
    tables : a dict of tables
        A table is a list of dicts with the same keys; it holds no time, date or machine.
    figures : a dict of figures
        Of matplotlib, or drawings.
    verdicts : a list of verdicts
        The judgements of the claims.
    notes : a list of texts
        What a reader of the report must know.
    warnings : a list of texts
        What went wrong.
    timings : a dict of tables
        Times and machines, which may differ from run to run.

    See Also
    --------
    experiments.engine.base.Experiment : its `run` returns it.

    Examples
    --------
    >>> from proxlin.experiments.engine.base import Result
    >>> Result(tables={"errors": [{"seed": 0, "error": 0.5}]}).tables["errors"][0]["error"]
    0.5
    """

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
    """A study under a name: `run(context)`, its configs and its data.

    Parameters
    ----------
    name : a word
        The name for `proxlin reproduce`, of a-z, 0-9, _ and -.
    title : a text
        The title of the report.
    claims : a tuple of words
        The claims of the paper that it judges.
    run : a function of a `Context`
        It returns a `Result`.
    configs : a dict
        The settings of each profile, which are part of the result's key.
    plan : a function of (config, seed), or None
        What an experiment that sweeps will run.
    check : a function of a config, or None
        It raises a UserError for what a config may not hold.
    data : a function of a config, or None
        The data that it would use; one that judges claims names them.

    Raises
    ------
    ValueError
        It judges claims, and does not say on which data.

    See Also
    --------
    experiments.engine.base.register : makes it known.
    experiments.engine.study.study : makes one with a checked config.

    Examples
    --------
    >>> from proxlin.experiments.engine.base import Experiment, Result
    >>> mine = Experiment("mine", "A study of mine", (), lambda context: Result())
    >>> dict(mine.config("quick"))
    {}
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
        """Return the settings of a profile, none where it has no table.

        Parameters
        ----------
        profile : a word
            "quick" or "paper".

        Returns
        -------
        a dict
            The settings.
        """
        return self.configs.get(profile, {})


_REGISTRY: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Make an experiment known to `proxlin reproduce`, and return it.

    Parameters
    ----------
    experiment : an `Experiment`
        The study.

    Returns
    -------
    an `Experiment`
        The same one.

    Raises
    ------
    ValueError
        There is another one of its name.

    See Also
    --------
    experiments.engine.study.study : makes an experiment and registers it.

    Examples
    --------
    >>> from proxlin.experiments.engine.base import Experiment, Result, register
    >>> mine = register(Experiment("example", "An example", (), lambda context: Result()))
    >>> register(mine)
    Traceback (most recent call last):
        ...
    ValueError: there are two experiments named 'example'; rename one of them.
    """
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
