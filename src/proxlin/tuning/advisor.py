"""Does Gauss-Newton pay here? An answer for a problem of one's own, with its evidence.

    noise level F(wbar)   against   radius R of the quadratic phase        (Propositions 1 and 2)
    held-out loss of SGD  against   that of Gauss-Newton, paired           (a race at equal effective passes)

The race decides; the theory says why. Where the race does not decide, the answer still says which of
the two is safe to take, and what more time would buy.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..checks import check_parameters, check_seed, described, real, whole
from ..inners import check_function
from ..outers import L2
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem, MeanOfLosses
from ..solvers import AbstractSolver
from ..theory import (
    Estimate,
    chi_mean,
    held_out_noise_level,
    noise_window,
    quadratic_phase,
    sharp_noise_window,
)
from ..types import Params, dtype_of
from .answer import (
    Needed,
    Recommendation,
    about_seconds,
    answer,
    decide,
    duration,
    equal_seconds,
    lead_of,
    longer_seconds,
    more_time,
    reason,
    safe,
    snippet,
)
from .race import (
    EXACT,
    LONGEST,
    SIDES,
    Fold,
    Method,
    Plan,
    Side,
    TunedMethod,
    best_of,
    folds_of,
    methods_of,
    prolonged,
    race,
    run,
    runs_of,
)
from .search import Grid

LADDER = (24, 16, 12, 8)  # settings of each method: as many as the budget has time for
SHORTER = 0.05  # of the passes: a run that is timed
# of the passes: another one, so that the price of a pass and that of a run can be told apart
SHORT = 0.2
# times that it is timed: on a busy machine a single one may take ten times the seconds of the next
REPEATS = 3
TIMING = 0.2  # of the budget: what timing may take
DELTA = 0.05  # of the window of Proposition 2
# times eps times F(w_0): the floor of F, 1e-13 in float64 for F(w_0) = 1, as in Proposition 1's
# check
ROUND_OFF = 450


@dataclasses.dataclass(frozen=True)
class Advice:
    """The answer of `advise` and what it rests on; `print` it, paste its `snippet`, or take its
    `solver`.

    Parameters
    ----------
    answer : a text
        Which side to take and how sure that is, whatever the race decided.
    more : a text
        What a larger budget would buy.
    take : a word
        The side to take, "gauss-newton" or "sgd".
    recommendation : a word
        The verdict of the race: "gauss-newton", "sgd" or "cannot tell".
    reason : a text
        The numbers of the verdict.
    solver : a solver
        The one to take.
    settings : a dict
        Its settings.
    gain : an `Estimate`
        1 - loss of the side recommended / loss of the other on held-out data, with its interval (of
        Gauss-Newton over SGD if it cannot tell).
    equal_seconds : an `Estimate`
        What Gauss-Newton saves where both sides have the seconds of the quicker one.
    longer_seconds : an `Estimate`
        What it saves where both have the seconds of the slower one, and the quicker side runs on.
    about_seconds : a text
        What these two say, in words.
    noise : an `Estimate`
        The mean held-out loss of the best fit, the noise level F(wbar) or more.
    radius : a number, or None
        Where exact prox-linear became quadratic; None if it did not.
    about_radius : a text
        Why the radius is so.
    window : a pair of numbers, or None
        Between its ends for sigma the noise level may be on either side of R.
    position : a text
        Where the estimate of sigma lies.
    losses : a dict
        The held-out losses of each side, fold by fold.
    codes : a dict
        The best solver of each side, as code.
    seconds : a dict
        The seconds of a run of it, without compiling.
    plan : a `Plan`
        The settings, passes, folds and seed of the race.
    snippet : a text
        Lines of Python to paste.

    See Also
    --------
    advise : returns it.
    theory.Estimate : a number and its interval.

    Examples
    --------
    >>> import dataclasses
    >>> import proxlin as px
    >>> [field.name for field in dataclasses.fields(px.Advice)][:3]
    ['answer', 'more', 'take']
    """

    answer: str
    more: str
    take: Side
    recommendation: Recommendation
    reason: str
    solver: AbstractSolver
    settings: dict[str, float | int | str]
    gain: Estimate
    equal_seconds: Estimate
    longer_seconds: Estimate
    about_seconds: str
    noise: Estimate
    radius: float | None
    about_radius: str
    window: tuple[float, float] | None
    position: str
    losses: dict[str, tuple[float, ...]]  # of each side, fold by fold
    codes: dict[str, str]  # the best solver of each side
    seconds: dict[str, float]  # of a run of it, without compiling
    plan: Plan
    snippet: str

    def as_dict(self) -> dict[str, Any]:
        """Return all but the solver, as plain numbers and text; None for an end of the window that
        is infinite.

        Returns
        -------
        a dict
            For JSON.
        """
        fields = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        del fields["solver"]
        for name in ("gain", "equal_seconds", "longer_seconds", "noise", "plan"):
            fields[name] = dataclasses.asdict(fields[name])
        if self.window is not None:
            fields["window"] = [
                end if math.isfinite(end) else None for end in self.window
            ]
        return fields

    def __str__(self) -> str:
        window = ""
        if self.window is not None:
            window = ", window {:.3g} to {:.3g}".format(*self.window)
        lines = [
            self.answer,
            f"More time: {self.more}",
            self.about_seconds,
            f"Verdict of the race: {self.recommendation}. {self.reason}",
            f"Noise level: {_range(self.noise)}, or less (held-out loss of the best fit).",
            f"Radius of the quadratic phase: {self.about_radius}",
            f"Noise against the radius: {self.position}{window}.",
            f"Held-out loss, mean of {self.plan.folds} folds, at most {self.plan.passes:g} passes:",
        ]
        for side, losses in self.losses.items():
            lines.append(
                f"  {side:13s} {np.mean(losses):.4g}   {self.codes[side]}   {self.seconds[side]:.2g} s a run"
            )
        return "\n".join([*lines, "", self.snippet.rstrip()])


@in_the_precision_of_w
def advise(
    problem: AbstractProblem,
    w: Params,
    validation: AbstractProblem | None = None,
    budget: float | int = 60.0,
    *,
    passes: float | int = 100.0,
    folds: int = 5,
    settings: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> Advice:
    """Race SGD and Gauss-Newton (PLI, and exact prox-linear where a step is small) on `problem` from
    w, and return which side to take.

    Every run has the same effective `passes` (linear algebra is not in them; `Advice.seconds` shows
    it). A fold of the samples is left out of each training; runs are judged by it, or by
    `validation`. `budget` is in seconds, about, and compiling is apart: short runs are timed first,
    and the settings tried of each method (24, 16, 12 or 8), then the passes, are what there is time
    for. With fewer passes than asked for the verdict is "cannot tell", and `answer` tells of fewer.
    What is run is a function of the seed, and of it alone where `settings` is given. `say` gets a
    line now and then.

    Parameters
    ----------
    problem : a `MeanOfLosses`
        F on the training data.
    w : a tree
        The start of every run.
    validation : a `MeanOfLosses`, or None
        F on held-out data; None judges by the folds.
    budget : a positive number
        The seconds that it may take, about, without compiling.
    passes : a positive number
        The effective passes of every run.
    folds : an integer
        The number of folds, at least 2.
    settings : an integer, or None
        The settings tried of each method; None is what there is time for.
    seed : an integer
        The randomness of folds and runs.
    say : a function of a text, or None
        It gets a line now and then.

    Returns
    -------
    an `Advice`
        The side to take, with its solver, the gain and a snippet.

    Raises
    ------
    TypeError
        The problem is no `MeanOfLosses`.
    ValueError
        There are too few samples for the folds, or a number is out of range.

    See Also
    --------
    Advice : what comes back.
    tune : tries solvers that you name.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(20, 1))
    >>> p = px.MeanOfLosses(px.residual(lambda w, x: w * x), px.L2(), (x, 3 * x))
    >>> advice = px.advise(p, np.zeros(1), passes=4, folds=2, settings=1)
    >>> advice.recommendation in ("gauss-newton", "sgd", "cannot tell"), len(advice.losses)
    (True, 2)
    """
    _check(problem, validation, budget, passes, folds, settings, seed, say)
    tell = say or (lambda text: None)
    w = check_parameters(w, problem.data)
    parts = folds_of(problem, validation, folds, seed)
    methods = methods_of(parts[0].train, w, float(passes))
    plan = Plan(settings or LADDER[0], float(passes), int(folds), int(seed))
    needed = None
    if settings is None:
        names = ", ".join(method.name for method in methods)
        tell(f"compiling, and timing short runs of {names}")
        names, plan, needed = _affordable(methods, parts[0], w, plan, float(budget))
        tell(f"the race: {duration(needed.planned).lower()}")
        methods = methods_of(parts[0].train, w, plan.passes)
        methods = [method for method in methods if method.name in names]
    tuned = race(methods, parts, w, plan, tell)
    return _advice(tuned, parts, w, plan, validation is not None, float(passes), needed)


def _check(
    problem: Any,
    validation: Any,
    budget: Any,
    passes: Any,
    folds: Any,
    settings: Any,
    seed: Any,
    say: Any,
) -> None:
    if not isinstance(problem, MeanOfLosses):
        raise TypeError(
            f"advise compares SGD with PLI on a problem MeanOfLosses; it got {described(problem)}."
        )
    if validation is not None and not isinstance(validation, MeanOfLosses):
        raise TypeError(
            f"validation is a MeanOfLosses on held-out data, or None; it is {described(validation)}."
        )
    real(budget, "budget", low=0.0, open=True)
    real(passes, "passes", low=0.0, open=True)
    whole(folds, "folds", low=2)
    check_seed(seed)
    if settings is not None:
        whole(settings, "settings")
    if say is not None:
        check_function(say, "say", "a line of text")
    if len(problem) < 2 * folds or (validation is not None and len(validation) < 2):
        raise ValueError(
            f"advise needs two samples in each of {folds} folds; the problem has {len(problem)}."
        )


def _affordable(
    methods: Sequence[Method], fold: Fold, w: Params, most: Plan, budget: float
) -> tuple[set[str], Plan, Needed]:
    """Return the plan of the most settings, and then of the most passes, whose runs fit into the
    budget; what budget a race of all passes needs; and the methods of the race.

    Exact prox-linear is left out where not even the least plan has time for it: PLI stands for its
    side.
    """
    share = TIMING * budget / len(methods)
    timed = [_seconds(method, fold, w, most, share) for method in methods]
    spent = sum(each.spent for each in timed)
    known = list(zip(methods, timed, strict=True))

    def seconds(plan: Plan) -> float:
        total = spent
        for method, each in known:
            total += (each.fixed + each.one * plan.passes) * runs_of(method, plan)
        # the quicker side runs on for the seconds of the slower one
        runs = [each.fixed + each.one * plan.passes for _, each in known]
        return total + plan.folds * min(max(runs), LONGEST * min(runs))

    plans = [dataclasses.replace(most, settings=count) for count in LADDER]
    shorter = [
        dataclasses.replace(plans[-1], passes=most.passes / 2**j) for j in range(1, 5)
    ]
    if seconds(shorter[-1]) > budget:
        known = [pair for pair in known if pair[0] is not EXACT]
    fewest = seconds(plans[-1])
    most_settings = seconds(plans[0])
    plans += shorter
    plan = next((plan for plan in plans if seconds(plan) <= budget), plans[-1])
    names = {method.name for method, _ in known}
    return names, plan, Needed(seconds(plan), fewest, most_settings)


class _Timed(NamedTuple):
    """The seconds of a run without its passes, and of a pass; and those spent to find them."""

    fixed: float
    one: float
    spent: float


def _seconds(method: Method, fold: Fold, w: Params, most: Plan, share: float) -> _Timed:
    """Time two short runs REPEATS times each, once their programs are compiled; or take the seconds of
    the run that compiled, if they would take more than the share of this method.
    """
    grid = Grid(method.axes, len(LADDER) * LADDER[0])
    setting = grid.setting(grid.bracket()[-1])

    spent = []

    def timed(passes: float) -> float:
        for _ in range(REPEATS):
            start = time.monotonic()
            run(method, setting, fold, w, passes, most.seed)
            spent.append(time.monotonic() - start)
        return median(spent[-REPEATS:])

    few = SHORTER * most.passes
    more = SHORT * most.passes
    # It compiles; its steps have a clock of their own.
    first = run(method, setting, fold, w, few, most.seed).seconds
    if first * REPEATS * more / few > share:
        return _Timed(0.0, first / few, first)
    after_few = timed(few)
    after_more = timed(more)
    one = max(after_more - after_few, 0.0) / (more - few)
    return _Timed(max(after_few - one * few, 0.0), one, sum(spent))


def _advice(
    tuned: Sequence[TunedMethod],
    folds: Sequence[Fold],
    start: Params,
    plan: Plan,
    shared: bool,
    asked: float,
    needed: Needed | None,
) -> Advice:
    """Return what a race says; `shared`: all folds are judged by one set; `asked`: the passes that
    were asked for; `needed`: the budget for them.
    """
    sides: dict[Side, TunedMethod] = {side: best_of(side, tuned) for side in SIDES}
    one, two = (sides[side].losses for side in SIDES)
    lead = lead_of(one, two)
    recommendation = decide(lead)
    # a race of fewer passes than asked for answers another question
    if plan.passes != asked:
        recommendation = "cannot tell"
    best = sides["gauss-newton" if lead.mean > 0 else "sgd"]
    take = safe(lead)
    chosen = sides[take]
    noise = _noise(best, folds, shared)
    w = best.runs[0].w
    radius, about = _radius(tuned, float(jnp.finfo(dtype_of(w)).eps))
    window, position = _window(radius, noise, folds[0].train, w)
    in_time, seconds = equal_seconds(sides)
    quicker, longer = prolonged(sides, folds, start, plan)
    later, more_seconds = longer_seconds(sides, quicker, longer)
    return Advice(
        answer=answer(lead, take, chosen.code, plan, asked),
        more=more_time(lead, plan, asked, needed),
        take=take,
        recommendation=recommendation,
        reason=reason(recommendation, lead),
        solver=chosen.method.make(chosen.setting),
        settings={"solver": chosen.method.name, **chosen.setting},
        gain=lead.gain("sgd" if recommendation == "sgd" else "gauss-newton"),
        equal_seconds=in_time.gain("gauss-newton"),
        longer_seconds=later.gain("gauss-newton"),
        about_seconds=(
            f"{about_seconds(in_time, seconds)} {about_seconds(later, more_seconds, 'slower')}"
        ),
        noise=noise,
        radius=radius,
        about_radius=about,
        window=window,
        position=position,
        losses={side: tuple(each.losses.tolist()) for side, each in sides.items()},
        codes={side: each.code for side, each in sides.items()},
        seconds={
            side: float(np.mean([one.seconds for one in each.runs]))
            for side, each in sides.items()
        },
        plan=plan,
        snippet=snippet(lead, take, chosen, plan, asked),
    )


def _noise(best: TunedMethod, folds: Sequence[Fold], shared: bool) -> Estimate:
    """Average the held-out losses of the best fits; they are of different samples unless `shared`."""
    each = [
        held_out_noise_level(fold.held_out, one.w)
        for fold, one in zip(folds, best.runs, strict=True)
    ]
    value = float(np.mean([one.value for one in each]))
    square = float(np.mean([(one.high - one.value) ** 2 for one in each]))
    if not shared:
        square = square / len(each)
    half = square**0.5
    return Estimate(value, value - half, value + half)


def _radius(tuned: Sequence[TunedMethod], eps: float) -> tuple[float | None, str]:
    """Return R of exact prox-linear on the first fold, and a sentence."""
    exact = [each.runs[0].values for each in tuned if each.runs[0].values is not None]
    if not exact:
        return None, "not measured, as an exact step would be too large."
    values = exact[0]
    phase = None
    if len(values) > 1:
        phase = quadratic_phase(values, ROUND_OFF * eps * float(values[0]))
    if phase is None:
        return (
            None,
            f"not reached: F went from {values[0]:.3g} to {values.min():.3g} in {len(values) - 1} exact steps.",
        )
    return phase.radius, f"{phase.radius:.3g}, from step {phase.start} on."


def _window(
    radius: float | None, noise: Estimate, train: AbstractProblem, w: Params
) -> tuple[tuple[float, float] | None, str]:
    """Return the window of Proposition 2 for sigma, and where noise / E chi_k lies."""
    if radius is None:
        return None, "unknown, as there is no radius"
    if not isinstance(train.outer, L2):
        return None, "unknown: Proposition 2 is on the l2 norm"
    n = len(train)
    k = train.outputs(w)
    name = "Proposition 2's window"
    try:
        window = noise_window(radius, n, k, DELTA)
    except ValueError:  # k < 4 log(2n/delta)
        name = "the sharp window"
        window = sharp_noise_window(radius, n, k, DELTA)
    low = max(noise.low, 0.0) / chi_mean(k)
    high = noise.high / chi_mean(k)
    place = "inside"
    if high < window[0]:
        place = "below"
    elif low > window[1]:
        place = "above"
    return window, f"sigma of {low:.3g} to {high:.3g} is {place} {name}"


def _range(each: Estimate) -> str:
    """Return an estimate and its interval as a text."""
    return f"{each.value:.4g} (95 % {each.low:.4g} to {each.high:.4g})"
