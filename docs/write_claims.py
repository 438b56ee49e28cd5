"""Write the verdicts on the page docs/claims.md, from stored results.

    python docs/write_claims.py                  writes them anew
    python docs/write_claims.py --check          says whether that would change the page
    python docs/write_claims.py --compare FOLDER says where a folder of `proxlin reproduce` differs from what is stored
    python docs/write_claims.py --take FOLDER    stores the verdicts of a folder of `proxlin reproduce`, and writes

`--compare` looks at the verdicts of what is finished, and at the first cells of what is not, too. It ends with 1 where
something differs, and where there was nothing to compare.

docs/stored_claims.py says which files hold what was taken. docs/gallery/claims/older.csv holds the numbers of runs that
are older than the rules; today's rules judge them here, and the page says that this is post hoc.
"""

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from stored_claims import (
    CHOICES,
    COSTS,
    OLDER,
    VERDICTS,
    Row,
    compare,
    read,
    take,
    unfinished,
)

from proxlin.errors import UserError
from proxlin.experiments.engine.base import CAVEATS, CLAIMS
from proxlin.experiments.engine.config import shipped
from proxlin.experiments.engine.verdicts import verdict_of
from proxlin.theory.rules import Comparison, Rule

HERE = Path(__file__).parent
PAGE = HERE / "claims.md"
BEGIN = "<!-- What follows is written by docs/write_claims.py. -->\n"
END = "<!-- The end of what it writes. -->\n"
# seconds of one core that the whole paper profile may take: four hours on two
BUDGET = 4 * 3600 * 2
HEAD = (
    "verdict",
    "number",
    "interval",
    "units",
    "smallest visible",
    "profile, data",
    "rule",
)


def section(claim: str, statement: str) -> list[str]:
    """Return the lines of one claim."""
    lines = [f"### {claim}", "", statement, ""]
    rows = [row for row in read(VERDICTS) if row["claim"] == claim]
    if rows:
        lines += table(HEAD, [_verdict(row) for row in rows])
        runs = {(row["experiment"], row["profile"]): row for row in rows}
        lines += [
            f"Made by `{row['command']}` ({row['revision']}). {took(row)}".strip()
            for row in runs.values()
        ]
        open_ones = [row for row in rows if row["verdict"].startswith("not resolved")]
        if open_ones:
            lines += ["", "Why the verdicts that are not resolved stay so:", ""]
            lines += dict.fromkeys(f"- {why_open(row)}" for row in open_ones)
    choices = [row for row in read(CHOICES) if row["claim"] == claim]
    if choices:
        lines += ["", "Under other choices:", ""]
        names = ("choice", "verdict", "number", "interval", "units", "profile")
        lines += table(names, [[row[name] for name in names] for row in choices])
    older = [row for row in read(OLDER) if row["claim"] == claim]
    if older:
        lines += [
            "",
            "Runs that are older than the rules, read by the rules of today, which is post hoc:",
            "",
        ]
        names = ("verdict", "number", "interval", "units", "smallest visible", "from")
        lines += table(names, [_older(row) for row in older])
    if not rows:
        lines += [
            "",
            "No run by the rules of today is stored yet.",
        ]
    return [*lines, ""]


def took(row: Row) -> str:
    """Return what the run of a verdict took, as a sentence; nothing where that was not recorded."""
    cost = _cost_of(row)
    if cost is None:
        return ""
    cpu = "an unrecorded CPU time"
    if cost["CPU seconds"]:
        cpu = f"{_time(cost['CPU seconds'])} of CPU time"
    cases = ""
    if cost["cases"] != "0":
        ran = _time(cost["cases seconds"])
        cases = f"; its {cost['cases']} cases ran for {ran} in all, {cost['workers']} at a time"
    command = _time(cost["command seconds"])
    return f"It took {cpu}{cases}, and the command that ended it took {command}."


def why_open(row: Row) -> str:
    """Return why a verdict is not resolved, and what it would take: in reach or not, as a sentence."""
    what = row["number"].split(":")[0]
    count, _, unit = row["units"].partition(" ")
    have = int(count)
    found = re.search(r"about (\d+) ", row["verdict"])
    if not have:
        return f"{what}: there were no {unit} to judge."
    if found is None:
        return f"{what}: it lies so near to the edge of the rule that no number of {unit} is in reach."
    needed = int(found[1])
    said = f"{what}: about {needed} {unit} would decide, and {have} were run"
    cost = _cost_of(row)
    if cost is None:
        return f"{said}; what one of them takes was not recorded."
    # runs of earlier versions have no CPU time; a case ran on one worker
    seconds = float(cost["CPU seconds"] or cost["cases seconds"]) * needed / have
    said += f". So many would take {_time(seconds)} of one core, by what this run took"
    if seconds > BUDGET:
        return f"{said}; the whole paper profile has {_time(BUDGET)}, so that is out of reach."
    return (
        f"{said}. That is in reach and was not run. It needs a config that states their number beforehand, and another "
        "`--seed`."
    )


def _cost_of(row: Row) -> dict[str, str] | None:
    same = ("experiment", "profile", "seed", "revision")
    costs = [
        cost for cost in read(COSTS) if all(cost[name] == row[name] for name in same)
    ]
    return costs[0] if costs else None


def _time(seconds: str | float) -> str:
    """Return a time in words, in hours from two of them on, else in minutes or seconds."""
    seconds = float(seconds)
    if seconds >= 7200:
        return f"{seconds / 3600:.3g} h"
    if seconds >= 120:
        return f"{seconds / 60:.3g} min"
    return f"{seconds:.3g} s"


def _verdict(row: Row) -> list[str]:
    profile = row["profile"]
    if profile in CAVEATS:
        profile = f"{profile}: a smoke test"
    where = f"{profile}; {row['data']}; seed {row['seed']}"
    return [
        f"**{row['verdict']}**",
        row["number"],
        row["interval"],
        row["units"],
        row["visible"],
        where,
        row["rule"],
    ]


def _older(row: Row) -> list[str]:
    """Return a row of an older run, judged by the rule of today."""
    ratio = row["ratio"] == "yes"
    scale = (lambda x: math.log1p(float(x))) if ratio else float
    mean, low, high = (scale(row[name]) for name in ("mean", "low", "high"))
    rule = rule_of(row["experiment"], row["rule"])
    found = Comparison(mean, low, high, int(row["units"]), rule.level, ratio)
    each = verdict_of(row["claim"], rule, found, row["what"], seed=0)
    verdict = each.verdict
    if each.needed:
        verdict = f"{verdict} ({each.needed})"
    return [
        f"**{verdict}**",
        each.number,
        each.interval,
        each.units,
        each.visible,
        f"[{row['experiment']}](gallery/{row['experiment']}.md)",
    ]


def rule_of(experiment: str, name: str) -> Rule:
    """Return a rule of a shipped config."""
    stated: dict = dict(shipped(experiment)["paper"]["rules"][name])  # pyright: ignore
    return Rule(**{**stated, "seen": tuple(stated.get("seen", ()))})


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [list(head), ["---"] * len(head), *rows]
    return [
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |"
        for line in lines
    ] + [""]


def page(old: str) -> str:
    """Return the text of the page with the stored verdicts."""
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = ["## The verdicts", ""]
    for claim, statement in CLAIMS.items():
        lines += section(claim, statement)
    text = "\n".join(lines).rstrip("\n") + "\n"
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return before + BEGIN + "\n" + text + "\n" + END + after


def main(arguments: list[str]) -> int:
    """Write the page anew; with --check, say whether that would change it; with --take, store a folder first; with
    --compare, say where a folder differs from what is stored.
    """
    name = PAGE.relative_to(HERE.parent)
    if arguments[:1] == ["--compare"]:
        return _compare([Path(folder) for folder in arguments[1:]])
    if arguments[:1] == ["--take"]:
        for folder in arguments[1:]:
            take(Path(folder))
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if arguments == ["--check"]:
        print(
            f"{name} has the stored verdicts."
            if new == old
            else f"{name} is out of date: run python docs/write_claims.py."
        )
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    print(f"{name} has the stored verdicts.")
    return 0


def _compare(folders: Sequence[Path]) -> int:
    """Print what differs and what agrees; return 0 where something was compared and nothing differs."""
    differences = []
    agreements = []
    for folder in folders:
        apart, agreed = compare(folder)
        differences += apart
        agreements += agreed
        for name in unfinished(folder):
            print(f"{name}: not finished, so no verdict of it was compared.")
    for line in (*differences, *agreements):
        print(line)
    if not differences and not agreements:
        print("Nothing finished, and no stored first cell found: nothing was compared.")
    return int(bool(differences) or not agreements)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(str(error))
