"""Write the verdicts on the page docs/claims.md, from stored results.

    python docs/write_claims.py                  writes them anew
    python docs/write_claims.py --check          says whether that would change the page
    python docs/write_claims.py --compare FOLDER says where a folder of `proxlin reproduce` differs from what is stored
    python docs/write_claims.py --take FOLDER    stores the verdicts of a folder of `proxlin reproduce`, and writes

docs/gallery/claims/verdicts.csv and choices.csv hold what was taken, with the command and the revision that made it.
docs/gallery/claims/older.csv holds the numbers of runs that are older than the rules; today's rules judge them here,
and the page says that this is post hoc.
"""

import csv
import io
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from proxlin.experiments.engine.base import CAVEATS, CLAIMS
from proxlin.experiments.engine.config import shipped
from proxlin.experiments.engine.report import verdicts as verdicts_of
from proxlin.experiments.engine.store import open_store
from proxlin.experiments.engine.verdicts import verdict_of
from proxlin.theory.rules import Comparison, Rule

HERE = Path(__file__).parent
PAGE = HERE / "claims.md"
STORED = HERE / "gallery" / "claims"
BEGIN = "<!-- What follows is written by docs/write_claims.py. -->\n"
END = "<!-- The end of what it writes. -->\n"
# the tables of a record that are kept, and what tells one run from another
VERDICTS = "verdicts"
CHOICES = "choices"
OLDER = "older"
RUN = ("experiment", "profile", "seed", "command", "revision")
HEAD = (
    "verdict",
    "number",
    "interval",
    "units",
    "smallest visible",
    "profile, data",
    "rule",
)

Row = Mapping[str, str]


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of a stored table; none if there is no such file."""
    path = STORED / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def take(folder: Path) -> None:
    """Store the verdicts of every finished experiment of a folder, in place of those of the same experiment and
    profile.
    """
    with open_store(folder, create=False) as store:
        records = store.finished()
    for record in records:
        asked = {name: str(record[name]) for name in ("experiment", "profile", "seed")}
        command = "proxlin reproduce {experiment} --profile {profile} --seed {seed}"
        run = {
            **asked,
            "command": command.format_map(asked),
            "revision": record["run"]["revision"],
        }
        rows = [{**row, **run} for row in verdicts_of([record])]
        _replace(VERDICTS, rows, run)
        _replace(
            CHOICES,
            [{**row, **run} for row in record["tables"].get(CHOICES, ())],
            run,
        )


def _replace(name: str, rows: Sequence[Mapping[str, object]], run: Row) -> None:
    same = lambda row: all(row[key] == run[key] for key in ("experiment", "profile"))
    kept = [row for row in read(name) if not same(row)]
    every = sorted(
        [*kept, *rows], key=lambda row: (str(row["experiment"]), str(row["profile"]))
    )
    if not every:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(every[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(every)
    (STORED / f"{name}.csv").write_text(text.getvalue(), encoding="utf-8")


def differences(folder: Path) -> list[str]:
    """Return a line for each verdict of a folder that is not the stored one, by its study, profile and seed."""
    with open_store(folder, create=False) as store:
        found = verdicts_of(store.finished())
    key = lambda row: tuple(
        str(row[name]) for name in ("experiment", "profile", "seed", "claim")
    )
    lines = []
    for run in dict.fromkeys(map(key, found)):
        mine = [_said(row) for row in found if key(row) == run]
        theirs = [_said(row) for row in read(VERDICTS) if key(row) == run]
        name = "{} ({}, seed {}), {}".format(*run)
        if not theirs:
            lines.append(f"{name}: nothing is stored.")
        elif mine != theirs:
            lines.append(f"{name}: {mine} here, {theirs} stored.")
    return lines


def _said(row: Mapping[str, object]) -> tuple[str, ...]:
    """Return what a verdict says, without where and when it was made."""
    return tuple(str(row[name]) for name in ("verdict", "number", "interval", "units"))


def section(claim: str, statement: str) -> list[str]:
    """Return the lines of one claim."""
    lines = [f"### {claim}", "", statement, ""]
    rows = [row for row in read(VERDICTS) if row["claim"] == claim]
    if rows:
        lines += table(HEAD, [_verdict(row) for row in rows])
        commands = dict.fromkeys((row["command"], row["revision"]) for row in rows)
        lines += [
            f"Made by `{command}` ({revision})." for command, revision in commands
        ]
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
        lines = [line for folder in arguments[1:] for line in differences(Path(folder))]
        print("\n".join(lines) or "Every verdict is the stored one.")
        return int(bool(lines))
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
