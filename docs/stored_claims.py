"""What of a finished run is stored for the page of the claims, and how another run is compared with it.

docs/gallery/claims/verdicts.csv, choices.csv    the verdicts, with the command and the revision that made them
docs/gallery/claims/costs.csv                    what the run took
docs/gallery/claims/cells/NAME-PROFILE.json      some numbers of its first cells
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proxlin.experiments.engine.first_cells import (
    ABSOLUTE,
    RELATIVE,
    compare_cells,
    first_cells,
)
from proxlin.experiments.engine.report import verdicts as verdicts_of
from proxlin.experiments.engine.store import Store, open_store

STORED = Path(__file__).parent / "gallery" / "claims"
VERDICTS = "verdicts"
CHOICES = "choices"
OLDER = "older"
COSTS = "costs"
CELLS = "cells"
COMMAND = "proxlin reproduce {experiment} --profile {profile} --seed {seed}"

Row = Mapping[str, str]


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of a stored table; none if there is no such file."""
    path = STORED / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def take(folder: Path) -> None:
    """Store the verdicts, the cost and the first cells of every finished experiment of a folder, in place of
    those of the same experiment and profile.
    """
    with open_store(folder, create=False) as store:
        for record in store.finished():
            _take(record, store)


def _take(record: Mapping[str, Any], store: Store) -> None:
    asked = {name: str(record[name]) for name in ("experiment", "profile", "seed")}
    run = {
        **asked,
        "command": COMMAND.format_map(asked),
        "revision": record["run"]["revision"],
    }
    rows = [{**row, **run} for row in verdicts_of([record])]
    _replace(VERDICTS, rows, run)
    choices = record["tables"].get(CHOICES, ())
    _replace(CHOICES, [{**row, **run} for row in choices], run)
    _replace(COSTS, [{**run, **_cost(record, store)}], run)
    cells = first_cells(store, record["experiment"])
    path = _cells_path(asked)
    if not cells:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**run, CELLS: cells}, indent=1) + "\n")


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


def _cost(record: Mapping[str, Any], store: Store) -> dict[str, object]:
    """Return what a run took: the seconds of its cases, added up, and those of the command that ended it. A CPU
    time that some case does not tell is empty.
    """
    run = record["run"]
    cases = [
        case for case in store.cases() if case["experiment"] == record["experiment"]
    ]
    cpu = [run.get("cpu_seconds"), *(case.get("run_cpu_seconds") for case in cases)]
    return {
        "cases": len(cases),
        "cases seconds": round(sum(case["run_seconds"] for case in cases), 1),
        "command seconds": round(run["seconds"], 1),
        "CPU seconds": "" if None in cpu else round(sum(cpu), 1),
        "workers": run.get("workers", 1),
        "cores": run.get("cores", ""),
    }


def _cells_path(asked: Mapping[str, object]) -> Path:
    return STORED / CELLS / "{experiment}-{profile}.json".format_map(asked)


def compare(folder: Path) -> tuple[list[str], list[str]]:
    """Return the differences of a folder, finished or not, from what is stored, and what agrees."""
    differences = []
    agreements = []
    with open_store(folder, create=False) as store:
        records = {record["experiment"]: record for record in store.finished()}
        for experiment, request in store.requests().items():
            asked = {"experiment": experiment, **request}
            name = "{experiment} ({profile}, seed {seed})".format_map(asked)
            apart, agreed = _compare_cells(store, asked)
            if experiment in records:
                more = _verdicts_apart(records[experiment])
                apart += more
                if not more and records[experiment]["verdicts"]:
                    agreed.append("every verdict is the stored one.")
            differences += [f"{name}: {each}" for each in apart]
            agreements += [f"{name}: {each}" for each in agreed]
    return differences, agreements


def unfinished(folder: Path) -> list[str]:
    """Return the experiments of a folder that have no verdict yet."""
    with open_store(folder, create=False) as store:
        finished = {record["experiment"] for record in store.finished()}
        return [name for name in store.requests() if name not in finished]


def _compare_cells(
    store: Store, asked: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return where the first cells of an experiment differ from the stored ones, and how many agree."""
    path = _cells_path(asked)
    if not path.exists():
        return [], []
    stored = json.loads(path.read_text())
    if stored["seed"] != str(asked["seed"]):
        return [], []
    found = compare_cells(store, asked["version"], stored[CELLS])
    if found.differences or not found.found:
        return found.differences, []
    return [], [
        f"{found.found} of the {found.stored} stored first cells are here and agree within a share of {RELATIVE:g} or "
        f"{ABSOLUTE:g}; {found.same} of them to the last digit."
    ]


def _verdicts_apart(record: Mapping[str, Any]) -> list[str]:
    """Return a line for each claim whose verdicts are not the stored ones."""
    key = lambda row: tuple(
        str(row[name]) for name in ("experiment", "profile", "seed", "claim")
    )
    found = verdicts_of([record])
    lines = []
    for run in dict.fromkeys(map(key, found)):
        mine = [_said(row) for row in found if key(row) == run]
        theirs = [_said(row) for row in read(VERDICTS) if key(row) == run]
        if not theirs:
            lines.append(f"{run[-1]}: nothing is stored.")
        elif mine != theirs:
            lines.append(f"{run[-1]}: {mine} here, {theirs} stored.")
    return lines


def _said(row: Mapping[str, object]) -> tuple[str, ...]:
    """Return what a verdict says, without where and when it was made."""
    return tuple(str(row[name]) for name in ("verdict", "number", "interval", "units"))
