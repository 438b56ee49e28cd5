"""Verdicts by the rules of a config: the judgement, the number, its interval, and what the run could have seen.

    rule + Comparison or Share  ->  Verdict

A study measures; the rule that its config states judges; this file puts both into words.
"""

import math
from collections.abc import Sequence

from ...plots.pages import Row
from ...theory.rules import Comparison, Rule, Share
from .base import Verdict

PERCENT = 100.0


def verdict_of(
    claim: str,
    rule: Rule,
    found: Comparison | Share,
    what: str,
    seed: int,
    unit: str = "seeds",
    more: str = "",
) -> Verdict:
    """Return the verdict of a rule on a claim; `what` says what was measured, `more` follows the number, and
    `unit` names what is independent.
    """
    judgement = rule.judge(found)
    needed = ""
    if judgement == "not resolved":
        needed = _needed(rule, found, unit)
    if isinstance(found, Share):
        number = f"{what}: {found.successes} of {found.trials}"
        interval = f"Clopper-Pearson [{found.low:.3f}, {found.high:.3f}]"
        count = found.trials
        ratio = False
    else:
        number = f"{what}: {shown(found, found.mean)}"
        interval = f"[{shown(found, found.low)}, {shown(found, found.high)}]"
        count = found.units
        ratio = found.ratio
    return Verdict(
        claim,
        judgement,
        number + more,
        f"{PERCENT * rule.level:g} % {interval}",
        rule.sentence(ratio) + post_hoc(rule, seed),
        f"{count} {unit}",
        visible(found),
        needed,
    )


def choices(choice: str, verdicts: Sequence[Verdict], data: str) -> list[Row]:
    """Return verdicts under another choice as rows of a table `choices`, which judge nothing."""
    rows: list[Row] = []
    for each in verdicts:
        verdict: str = each.verdict
        if each.needed:
            verdict = f"{verdict} ({each.needed})"
        rows.append(
            {
                "claim": each.claim,
                "choice": choice,
                "data": data,
                "verdict": verdict,
                "number": each.number,
                "interval": each.interval,
                "units": each.units,
            }
        )
    return rows


def post_hoc(rule: Rule, seed: int) -> str:
    """Return a sentence where results of this seed were seen before the rule was stated."""
    if seed in rule.seen:
        return f" Post hoc: results with seed {seed} were seen before this rule was stated."
    return ""


def visible(found: Comparison | Share) -> str:
    """Return the smallest difference that the run could have shown, as a text."""
    least = found.detectable
    if least is None or not math.isfinite(least):
        return "none"
    if isinstance(found, Share):
        return f"a share of {least:.3g} where {found.promised:.3g} is promised"
    return shown(found, found.scaled(least)).lstrip("+")


def shown(found: Comparison, number: float) -> str:
    """Return a number on the scale of a comparison as a text, in per cent for ratios."""
    if not math.isfinite(number):
        return str(number)
    if found.ratio:
        return f"{PERCENT * found.shown(number):+.2f} %"
    return f"{number:+.3g}"


def _needed(rule: Rule, found: Comparison | Share, unit: str) -> str:
    count = rule.needed(found)
    if count is None:
        return f"no number of {unit} is in reach"
    return f"about {count} {unit} would decide"
