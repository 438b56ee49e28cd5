"""What a race means, in words: which side to take, how sure that is, and what more time would buy.

mean, low, high    log(loss of SGD / loss of Gauss-Newton) and its interval: above 0 Gauss-Newton leads
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from ..theory import Comparison, Estimate
from ..theory.rules import compare_ratios
from .race import Plan, Run, Side, TunedMethod

# An answer is confident if the interval of this level excludes 0 and does not lie inside the band BAND
# of losses. Both were chosen on the rule-choosing cells of docs/gallery/advisor.md (`python -m
# bench.studies.advisor --choose`).
LEVEL = 0.7
BAND = 0.0
# The two sides are called equal if the interval lies inside this band. It decides no recommendation.
EQUAL = 0.01
# Without a verdict Gauss-Newton is taken only if it may win so many times what it may lose: a step
# of SGD is cheaper, and easier to trust.
WORTH = 2.0
# of the passes of a race: where the best iterate came later, more passes may help
LATE = 0.8
NAMES: dict[Side, str] = {"sgd": "SGD", "gauss-newton": "Gauss-Newton"}
OTHER: dict[Side, Side] = {"sgd": "gauss-newton", "gauss-newton": "sgd"}

Recommendation = Literal["gauss-newton", "sgd", "cannot tell"]


class Lead(NamedTuple):
    """The mean of the logarithm above, the ends of its interval, and the number of folds."""

    mean: float
    low: float
    high: float
    folds: int = 5

    def comparison(self) -> Comparison:
        """Return the lead as the rules of `theory.rules` read it."""
        return Comparison(self.mean, self.low, self.high, self.folds, LEVEL, True)

    def gain(self, side: Side) -> Estimate:
        """Return the share of the other side's loss that a side saves, 1 - exp(-log)."""
        logs = (self.mean, self.low, self.high)
        if side == "sgd":
            logs = (-self.mean, -self.high, -self.low)
        return Estimate(*(-math.expm1(-log) for log in logs))


class Needed(NamedTuple):
    """Seconds of budget that the race takes as planned, and that one of all passes would take with the
    fewest settings and with the most.
    """

    planned: float
    fewest: float
    most: float


def lead_of(one: Any, two: Any, level: float = LEVEL) -> Lead:
    """Return the lead of two over one, from their losses fold by fold."""
    found = compare_ratios(one, two, level)
    return Lead(found.mean, found.low, found.high, found.units)


def decide(lead: Lead, band: float = BAND) -> Recommendation:
    """Name the side whose lead is shown; else it cannot tell, be the two equal or not resolved."""
    answers: dict[str, Recommendation] = {"less": "sgd", "more": "gauss-newton"}
    return answers.get(lead.comparison().finding(band), "cannot tell")


def safe(lead: Lead) -> Side:
    """Name the side to take: the one that leads, and SGD where none does, unless Gauss-Newton may win
    WORTH times what it may lose.

    >>> safe(Lead(0.1, 0.05, 0.15)), safe(Lead(0.01, -0.1, 0.12)), safe(Lead(0.1, -0.05, 0.25))
    ('gauss-newton', 'sgd', 'gauss-newton')
    """
    decided = decide(lead)
    if decided != "cannot tell":
        return decided
    if lead.high > 0 and lead.high >= WORTH * -lead.low:
        return "gauss-newton"
    return "sgd"


def answer(lead: Lead, take: Side, code: str, plan: Plan, asked: float) -> str:
    """Return which side to take and why, with its interval."""
    gain = lead.gain(take)
    other = NAMES[OTHER[take]]
    begun = f"Take {NAMES[take]}, {code}:"
    interval = f"{LEVEL:.0%} interval"
    if gain.low > 0:
        saved = f"{gain.value:.1%} of the held-out loss of {other} ({interval} {gain.low:.1%} to {gain.high:.1%})"
        if plan.passes < asked:
            return (
                f"{begun} in {plan.passes:g} passes it saved {saved}. Whether this holds for the {asked:g} passes "
                "asked for was not tried."
            )
        return f"{begun} it saves {saved}."
    risk = _percent(-gain.low)
    if take == "sgd":
        why = (
            f"nothing here shows that Gauss-Newton pays. It may save at most {risk} of the held-out loss of SGD, and "
            f"SGD at most {_percent(gain.high)} of that of Gauss-Newton ({interval})"
        )
    else:
        why = (
            f"it may save at most {_percent(gain.high)} of the held-out loss of SGD, and add at most {risk} "
            f"({interval}). Which of the two is better is not shown"
        )
    if plan.passes < asked:
        why += f", in {plan.passes:g} of the {asked:g} passes asked for"
    return f"{begun} {why}."


def reason(recommendation: Recommendation, lead: Lead) -> str:
    """Return the numbers that the verdict rests on."""
    side: Side = "sgd" if recommendation == "sgd" else "gauss-newton"
    gain = lead.gain(side)
    return (
        f"{NAMES[side]} against {NAMES[OTHER[side]]}: {gain.value:+.1%} held-out loss saved, {LEVEL:.0%} interval "
        f"{gain.low:+.1%} to {gain.high:+.1%}: {found(lead)}."
    )


def found(lead: Lead) -> str:
    """Return whether a side is shown to be better, the two are equal, or neither is shown.

    >>> found(Lead(0.001, -0.002, 0.004)), found(Lead(0.1, -0.1, 0.3))
    ('equal within 1%', 'not resolved')
    """
    finding = lead.comparison().finding(EQUAL)
    if finding == "equal":
        return f"equal within {EQUAL:.0%}"
    if finding == "not resolved":
        return finding
    return "a difference is shown"


def more_time(lead: Lead, plan: Plan, asked: float, needed: Needed | None) -> str:
    """Return what a larger budget would buy; `needed` is None where no clock was read."""
    parts = []
    if needed is not None and plan.passes < asked:
        fewest = duration(needed.fewest)
        most = duration(needed.most)
        settings = "three times as many settings"
        sentence = f"{fewest} of budget would race all {asked:g} passes"
        if most == fewest:
            sentence += f", with {settings}"
        else:
            sentence += f", and {most.lower()} with {settings}"
        parts.append(f"{sentence}.")
    elif needed is not None and needed.most > needed.planned:
        parts.append(
            f"{duration(needed.most)} of budget would try more settings of each method than {plan.settings}."
        )
    if decide(lead) == "cannot tell":
        told = lead.comparison().detectable
        if found(lead) == "not resolved":
            parts.append(
                f"The {plan.folds} folds of these rows show differences of about {_percent(told)} or more; four times "
                "as many rows would show half of that, and more time alone would not."
            )
    return " ".join(parts) or "Nothing: the race is complete, and it decided."


def equal_seconds(sides: dict[Side, TunedMethod]) -> tuple[Lead, float]:
    """Return who leads where both sides have the same seconds, fold by fold those of the quicker
    side; and their mean.
    """
    pairs = list(zip(sides["sgd"].runs, sides["gauss-newton"].runs, strict=True))
    limits = [min(one.seconds, two.seconds) for one, two in pairs]
    within = [
        [_best_within(run, limit) for run in pair]
        for pair, limit in zip(pairs, limits, strict=True)
    ]
    one, two = np.transpose(within)
    return lead_of(one, two), float(np.mean(limits))


def longer_seconds(
    sides: dict[Side, TunedMethod], quicker: Side, longer: TunedMethod
) -> tuple[Lead, float]:
    """Return who leads where both sides have the seconds of the slower one, fold by fold, and their
    mean; `longer` are the runs that the quicker side has the time for.
    """
    slow = sides[OTHER[quicker]].runs
    quick = sides[quicker].runs
    losses: dict[Side, list[float]] = {"sgd": [], "gauss-newton": []}
    for run, short, long in zip(slow, quick, longer.runs, strict=True):
        tried = [_best_within(each, run.seconds) for each in (short, long)]
        losses[quicker].append(min(tried))
        losses[OTHER[quicker]].append(_best_within(run, run.seconds))
    seconds = float(np.mean([run.seconds for run in slow]))
    return lead_of(losses["sgd"], losses["gauss-newton"]), seconds


def _best_within(run: Run, seconds: float) -> float:
    """Return the least held-out loss of a run up to so many seconds; its start is in it always."""
    reached = run.times <= max(seconds, float(run.times[0]))
    found = run.held_out[reached]
    return float(np.min(np.where(np.isfinite(found), found, np.inf)))


def about_seconds(lead: Lead, seconds: float, side: str = "quicker") -> str:
    """Return the sentence on equal seconds: a side leads only if its interval says so."""
    begun = f"At equal seconds ({seconds:.2g} s a run, those of the {side} side, without compiling)"
    recommendation = decide(lead)
    if recommendation == "cannot tell":
        gain = lead.gain("gauss-newton")
        return (
            f"{begun} neither is shown to be better ({found(lead)}): Gauss-Newton saves {gain.value:+.1%} of the "
            f"held-out loss of SGD ({LEVEL:.0%} interval {gain.low:+.1%} to {gain.high:+.1%})."
        )
    gain = lead.gain(recommendation)
    return (
        f"{begun} {NAMES[recommendation]} saves {gain.value:.1%} of the held-out loss of "
        f"{NAMES[OTHER[recommendation]]} ({LEVEL:.0%} interval {gain.low:.1%} to {gain.high:.1%})."
    )


def snippet(
    lead: Lead, take: Side, chosen: TunedMethod, plan: Plan, asked: float
) -> str:
    """Return code that runs the side to take, for as many passes as helped in the race, or for all
    asked for if the race ended while they still did.
    """
    best_at = float(np.mean([run.at for run in chosen.runs]))
    passes = max(1, math.ceil(best_at))
    if best_at >= LATE * plan.passes:
        passes = max(1, math.ceil(asked))
    note = ""
    if decide(lead) == "cannot tell":
        note = f"  # not shown to be better than {NAMES[OTHER[take]]}"
    elif plan.passes < asked:
        note = f"  # judged by {plan.passes:g} passes"
    return (
        "import proxlin as px\n\n"
        f"solver = {chosen.code}{note}\n"
        f"solution = px.minimize(problem, w, solver, passes={passes})\n"
        "print(solution)\n"
    )


def _percent(share: float) -> str:
    """Return a share as a text, never -0.0 %.

    >>> _percent(0.0612), _percent(-1e-9)
    ('6.1%', '0.0%')
    """
    return f"{max(0.0, share):.1%}"


def duration(seconds: float) -> str:
    """Return a time that a person would say.

    >>> duration(42.0), duration(200.0), duration(9000.0)
    ('About 50 seconds', 'About 4 minutes', 'About 3 hours')
    """
    if seconds <= 90:
        return f"About {math.ceil(seconds / 10) * 10} seconds"
    if seconds <= 5400:
        return f"About {math.ceil(seconds / 60)} minutes"
    return f"About {math.ceil(seconds / 3600)} hours"
