"""The verdicts on the page of the claims are those of the stored results, read by the rules of today."""

import importlib.util
import json
import random
import sqlite3
import sys
from pathlib import Path
from types import ModuleType

import pytest

from proxlin.errors import UserError
from proxlin.experiments.engine.base import CLAIMS
from proxlin.experiments.engine.store import content_key, open_store

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def write_claims(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    spec = importlib.util.spec_from_file_location(
        "write_claims", DOCS / "write_claims.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_stored_verdicts(write_claims):
    stored = write_claims.PAGE.read_text(encoding="utf-8")
    assert write_claims.page(stored) == stored, (
        "docs/claims.md does not have the stored verdicts. Write them with `python docs/write_claims.py`, look at "
        "them, and commit the page."
    )
    for claim in CLAIMS:
        assert stored.count(f"### {claim}\n") == 1


def test_another_rule_would_change_the_page(write_claims, monkeypatch):
    stored = write_claims.PAGE.read_text(encoding="utf-8")
    shipped = write_claims.shipped

    def other(name):
        config = shipped(name)
        rules = {key: {"asks": "more"} for key in config["paper"]["rules"]}
        return {"paper": {**config["paper"], "rules": rules}}

    monkeypatch.setattr(write_claims, "shipped", other)
    assert write_claims.page(stored) != stored


RUN = {"seconds": 20.0, "cpu_seconds": 1.0, "workers": 2, "cores": 2}


@pytest.fixture
def stored(write_claims, tmp_path, monkeypatch):
    """An empty folder in the place of the stored results."""
    folder = tmp_path / "stored"
    folder.mkdir()
    monkeypatch.setattr(sys.modules["stored_claims"], "STORED", folder)
    monkeypatch.setattr(write_claims, "PAGE", tmp_path / "docs" / "claims.md")
    monkeypatch.setattr(write_claims, "HERE", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    page = write_claims.BEGIN + write_claims.END
    (tmp_path / "docs" / "claims.md").write_text(page)
    return folder


def made(folder, experiment, seed=0, verdict=None, number="x", error=0.0, cases=7):
    """Make a folder as `proxlin reproduce` does, finished if a verdict is given; `error` is that of its cells."""
    with open_store(folder) as store:
        request = {"profile": "paper", "seed": seed, "config": {}, "data": {}}
        store.begin(experiment, {**request, "version": "1"})
        for i in range(cases):
            content = {"task": f"{experiment}:run", "settings": {"i": i, "seed": seed}}
            values = [float(i + 1), 1e-13, *range(200)]
            result = {"values": [(1 + error) * x for x in values], "note": "ended"}
            result["curve_seconds"] = [random.random()]
            key = content_key(**content, version="1")
            run = {"seconds": 2.0, "cpu_seconds": 1.5, "host": "here"}
            store.add_case(key, experiment, content, result, run)
        if verdict is not None:
            row = dict.fromkeys(("data", "interval", "rule"), "x")
            row |= {"profile": "paper", "units": "12 seeds", "number": number}
            empty = {name: {} for name in ("config", "timings", "figures")}
            lists = {name: [] for name in ("notes", "warnings", "data")}
            about = {"title": "", "profile": "paper", "seed": seed}
            other = {
                name: row[name] for name in ("data", "number", "interval", "units")
            }
            other |= {"claim": "C1", "choice": "accept", "verdict": verdict}
            tables = {"choices": [other]}
            record = {"experiment": experiment, **about, **empty, **lists}
            record |= {"tables": tables, "run": {"revision": "abc", **RUN}}
            record["verdicts"] = [{"claim": "C1", "verdict": verdict, **row}]
            store.finish(experiment, record)
    return folder


def test_a_folder_takes_the_place_of_an_older_one(write_claims, stored, tmp_path):
    """Rows of the same study and profile are replaced, others stay; the command and the revision are kept."""
    older = tmp_path / "older"
    made(older, "fig1", verdict="not resolved")
    made(older, "fig2", verdict="reproduced")
    newer = made(tmp_path / "newer", "fig1", seed=1, verdict="reproduced")
    assert write_claims.main(["--take", str(older)]) == 0
    assert write_claims.main(["--take", str(newer)]) == 0
    for name in ("verdicts", "costs"):
        rows = write_claims.read(name)
        assert [(row["experiment"], row["seed"]) for row in rows] == [
            ("fig1", "1"),
            ("fig2", "0"),
        ]
        assert {row["revision"] for row in rows} == {"abc"}
        command = "proxlin reproduce fig1 --profile paper --seed 1"
        assert rows[0]["command"] == command
    # seven cases and the command itself
    assert rows[0]["CPU seconds"] == "11.5" and rows[0]["cases seconds"] == "14.0"
    assert (
        "It took 11.5 s of CPU time; its 7 cases ran for 14 s in all"
        in write_claims.PAGE.read_text()
    )
    assert len(write_claims.read("choices")) == 2


def test_another_verdict_or_seed_is_seen(write_claims, stored, tmp_path, capsys):
    taken = made(tmp_path / "taken", "fig1", verdict="reproduced")
    write_claims.take(taken)
    assert write_claims.main(["--compare", str(taken)]) == 0
    assert "every verdict is the stored one" in capsys.readouterr().out
    for name, seed, verdict, said in (
        ("other", 0, "not resolved", "'not resolved'"),
        ("fresh", 3, "reproduced", "nothing is stored"),
    ):
        folder = made(tmp_path / name, "fig1", seed=seed, verdict=verdict)
        assert write_claims.main(["--compare", str(folder)]) == 1
        assert said in capsys.readouterr().out


def test_nothing_to_compare_is_no_agreement(write_claims, stored, tmp_path, capsys):
    """An empty store, no folder, and a run that was interrupted before its first stored cell."""
    write_claims.take(made(tmp_path / "taken", "fig1", verdict="reproduced"))
    with open_store(tmp_path / "empty"):
        pass
    begun = made(tmp_path / "begun", "fig1", cases=0)
    for folders in ([], [tmp_path / "empty"], [begun]):
        assert write_claims.main(["--compare", *map(str, folders)]) == 1
        assert "Nothing finished" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"has no results\.sqlite"):
        write_claims.main(["--compare", str(tmp_path / "docs")])
    with sqlite3.connect(begun / "results.sqlite") as connection:
        connection.execute("UPDATE experiments SET request = '{}'")
    with pytest.raises(UserError, match="is damaged"):
        write_claims.main(["--compare", str(begun)])


def test_the_first_cells_of_an_unfinished_run_are_compared(
    write_claims, stored, tmp_path, capsys
):
    """Within the tolerance they agree; a number that is off, and one that is missing, is named."""
    write_claims.take(made(tmp_path / "taken", "fig1", verdict="reproduced"))
    (file,) = (stored / "cells").iterdir()
    assert file.name == "fig1-paper.json" and file.stat().st_size < 50_000
    cells = json.loads(file.read_text())["cells"]
    assert [cell["settings"]["i"] for cell in cells] == [0, 1, 2, 3, 4]
    assert all(0 < len(cell["entries"]) <= 100 for cell in cells)
    assert not any("seconds" in place for place in cells[0]["entries"])
    for name, error, cases, digits in (("same", 0.0, 3, 3), ("rounded", 1e-6, 4, 0)):
        folder = made(tmp_path / name, "fig1", error=error, cases=cases)
        assert write_claims.main(["--compare", str(folder)]) == 0
        out = capsys.readouterr().out
        assert "fig1: not finished, so no verdict of it was compared." in out
        assert f"{cases} of the 5 stored first cells are here and agree" in out
        assert f"{digits} of them to the last digit" in out
    off = made(tmp_path / "off", "fig1", error=0.01, cases=2)
    assert write_claims.main(["--compare", str(off)]) == 1
    # places are evenly spaced: the note, then every third number
    said = (
        "66 of 68 entries differ, first values/5: 3.0300000000000002 here, 3.0 stored"
    )
    assert capsys.readouterr().out.count(said) == 2


def test_an_open_verdict_says_why(write_claims, stored, tmp_path):
    """12 seeds took 11.5 CPU seconds; 40 are in reach, a million are not."""
    said = {}
    for needed in (40, 10**6):
        verdict = f"not resolved (about {needed} seeds would decide)"
        folder = made(tmp_path / str(needed), "fig1", verdict=verdict, number="A: 1")
        write_claims.main(["--take", str(folder)])
        said[needed] = write_claims.PAGE.read_text()
    assert "- A: about 40 seeds would decide, and 12 were run." in said[40]
    assert "38.3 s of one core" in said[40] and "in reach and was not run" in said[40]
    assert "266 h of one core" in said[10**6] and "out of reach" in said[10**6]
    row = {"number": "A: 1", "units": "12 seeds", "experiment": "fig9"}
    row |= {"profile": "paper", "seed": "0", "revision": "abc"}
    edge = {"verdict": "not resolved (no number of seeds is in reach)"}
    assert "no number of seeds is in reach" in write_claims.why_open(row | edge)
    none = {"verdict": "not resolved", "units": "0 runs"}
    assert write_claims.why_open(row | none) == "A: there were no runs to judge."
    unknown = {"verdict": "not resolved (about 40 seeds would decide)"}
    assert "was not recorded" in write_claims.why_open(row | unknown)
