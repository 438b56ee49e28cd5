"""Does Gauss-Newton pay here? An answer for a problem of one's own, with its evidence.

    noise level F(wbar)   against   radius R of the quadratic phase        (Propositions 1 and 2)
    held-out loss of SGD  against   that of Gauss-Newton, paired           (a race at equal effective passes)

The race decides; the theory says why.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

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
from ..theory.statistics import leader, log_ratio_interval
from ..types import Params, dtype_of
from .race import (
    FINALISTS,
    SIDES,
    Fold,
    Method,
    Plan,
    TunedMethod,
    best_of,
    folds_of,
    methods_of,
    race,
    run,
    settings_of,
)
from .search import Grid

LADDER = (24, 16, 12, 8)  # settings of each method: as many as the budget has time for
SHORTER = 0.05  # of the passes: a run that is timed
# of the passes: another one, so that the price of a pass and that of a run can be told apart
SHORT = 0.2
# An answer is confident if the interval of this level excludes 0, and the mean is beyond log(1 +
# TIE). Both were chosen on the rule-choosing cells of docs/gallery/advisor.md (`python -m
# bench.studies.advisor --choose`).
LEVEL = 0.7
TIE = 0.0
DELTA = 0.05  # of the window of Proposition 2
# times eps times F(w_0): the floor of F, 1e-13 in float64 for F(w_0) = 1, as in Proposition 1's
# check
ROUND_OFF = 450

Recommendation = Literal["gauss-newton", "sgd", "cannot tell"]


@dataclasses.dataclass(frozen=True)
class Advice:
    """The answer of `advise` and what it rests on; `print` it, paste its `snippet`, or take its
    `solver`.

    Parameters
    ----------
    recommendation : a word
        "gauss-newton", "sgd" or "cannot tell".
    reason : a text
        Why, in a sentence.
    solver : a solver
        The one to take.
    settings : a dict
        Its settings.
    gain : an `Estimate`
        1 - loss of the side recommended / loss of the other on held-out data, with its interval (of
        Gauss-Newton over SGD if it cannot tell).
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
    ['recommendation', 'reason', 'solver']
    """

    recommendation: Recommendation
    reason: str
    solver: AbstractSolver
    settings: dict[str, float | int | str]
    gain: Estimate
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
        for name in ("gain", "noise", "plan"):
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
            f"Recommendation: {self.recommendation}. {self.reason}",
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
    `validation`. Short runs are timed first, and the settings tried of each method (24, 16, 12 or
    8), then the passes, are what there is time for; with fewer passes than asked for it cannot
    tell. The rest is a function of the seed, and all of it where `settings` is given: then no clock
    is read.

    Parameters
    ----------
    problem : a `MeanOfLosses`
        F on the training data.
    w : a tree
        The start of every run.
    validation : a `MeanOfLosses`, or None
        F on held-out data; None judges by the folds.
    budget : a positive number
        The seconds that it may take, about.
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
    start = time.monotonic()
    _check(problem, validation, budget, passes, folds, settings, seed, say)
    tell = say or (lambda text: None)
    w = check_parameters(w, problem.data)
    parts = folds_of(problem, validation, folds, seed)
    methods = methods_of(parts[0].train, w, float(passes))
    plan = Plan(settings or LADDER[0], float(passes), int(folds), int(seed))
    if settings is None:
        tell(f"timing short runs of {', '.join(method.name for method in methods)}")
        plan = _affordable(
            methods, parts[0], w, plan, lambda: budget - (time.monotonic() - start)
        )
        methods = methods_of(parts[0].train, w, plan.passes)
    tuned = race(methods, parts, w, plan, tell)
    return _advice(tuned, parts, plan, validation is not None, float(passes))


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
    methods: Sequence[Method],
    fold: Fold,
    w: Params,
    most: Plan,
    left: Callable[[], float],
) -> Plan:
    """Return the plan of the most settings, and then of the most passes, whose runs fit into the
    time left.
    """
    prices = [_seconds(method, fold, w, most) for method in methods]
    available = left()

    def seconds(plan: Plan) -> float:
        total = 0.0
        for method, (fixed, one) in zip(methods, prices, strict=True):
            runs = settings_of(method, plan) + FINALISTS * (plan.folds - 1)
            total += (fixed + one * plan.passes) * runs
        return total

    plans = [dataclasses.replace(most, settings=count) for count in LADDER]
    plans += [
        dataclasses.replace(plans[-1], passes=most.passes / 2**j) for j in range(1, 5)
    ]
    return next((plan for plan in plans if seconds(plan) <= available), plans[-1])


def _seconds(method: Method, fold: Fold, w: Params, most: Plan) -> tuple[float, float]:
    """Return the seconds of a run without its passes, and of a pass, by timing two short runs."""
    grid = Grid(method.axes, len(LADDER) * LADDER[0])
    setting = grid.setting(grid.bracket()[-1])

    def timed(passes: float) -> float:
        start = time.monotonic()
        run(method, setting, fold, w, passes, most.seed)
        return time.monotonic() - start

    few = SHORTER * most.passes
    more = SHORT * most.passes
    timed(few)  # compiles
    after_few = timed(few)
    after_more = timed(more)
    one = max(after_more - after_few, 0.0) / (more - few)
    return max(after_few - one * few, 0.0), one


def _advice(
    tuned: Sequence[TunedMethod],
    folds: Sequence[Fold],
    plan: Plan,
    shared: bool,
    asked: float,
) -> Advice:
    """Return what a race says; `shared`: all folds are judged by one set; `asked`: the passes that
    were asked for.
    """
    sides = {side: best_of(side, tuned) for side in SIDES}
    mean, low, high = log_ratio_interval(
        sides["sgd"].losses, sides["gauss-newton"].losses, LEVEL
    )
    recommendation = decide(mean, low, high)
    # a race of fewer passes than asked for answers another question
    if plan.passes != asked:
        recommendation = "cannot tell"
    best = sides["gauss-newton" if mean > 0 else "sgd"]
    chosen = sides.get(recommendation, best)
    noise = _noise(best, folds, shared)
    w = best.runs[0].w
    radius, about = _radius(tuned, float(jnp.finfo(dtype_of(w)).eps))
    window, position = _window(radius, noise, folds[0].train, w)
    gain = _gain(mean, low, high)
    if recommendation == "sgd":
        gain = _gain(-mean, -high, -low)
    return Advice(
        recommendation=recommendation,
        reason=_reason(recommendation, gain, plan, asked),
        solver=chosen.method.make(chosen.setting),
        settings={"solver": chosen.method.name, **chosen.setting},
        gain=gain,
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
        snippet=_snippet(recommendation, chosen),
    )


def _gain(*logs: float) -> Estimate:
    """Return the share of the loss that is saved, 1 - exp(-log), for the mean and the ends of its
    interval.
    """
    return Estimate(*(-math.expm1(-log) for log in logs))


def decide(mean: float, low: float, high: float, tie: float = TIE) -> Recommendation:
    """Name the side whose lead is beyond the tie band and whose interval excludes no lead; else it
    cannot tell.
    """
    answers: dict[int, Recommendation] = {
        -1: "sgd",
        0: "cannot tell",
        1: "gauss-newton",
    }
    return answers[leader(mean, low, high, math.log1p(tie))]


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


def _reason(
    recommendation: Recommendation, gain: Estimate, plan: Plan, asked: float
) -> str:
    lead = f"{gain.value:+.1%} held-out loss saved, {LEVEL:.0%} interval {gain.low:+.1%} to {gain.high:+.1%}"
    if plan.passes < asked:
        return f"Give a larger budget: it was enough for {plan.passes:g} of {asked:g} passes ({lead} by Gauss-Newton)."
    if recommendation == "cannot tell":
        return (
            f"Gauss-Newton against SGD: {lead}; that is within the spread of the folds."
        )
    return f"Against the other: {lead}."


def _snippet(recommendation: Recommendation, chosen: TunedMethod) -> str:
    passes = max(1, math.ceil(np.mean([one.at for one in chosen.runs])))
    note = ""
    if recommendation == "cannot tell":
        note = "  # the race did not decide"
    return (
        "import proxlin as px\n\n"
        f"solver = {chosen.code}{note}\n"
        f"solution = px.minimize(problem, w, solver, passes={passes})\n"
        "print(solution)\n"
    )


def _range(each: Estimate) -> str:
    """Return an estimate and its interval as a text."""
    return f"{each.value:.4g} (95 % {each.low:.4g} to {each.high:.4g})"
