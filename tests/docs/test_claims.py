"""The verdicts on the page of the claims are those of the stored results, read by the rules of today."""

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from proxlin.experiments.engine.base import CLAIMS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def write_claims() -> ModuleType:
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


def test_a_folder_takes_the_place_of_an_older_one(write_claims, tmp_path, monkeypatch):
    """Rows of the same study and profile are replaced, others stay; the command and the revision are kept."""
    monkeypatch.setattr(write_claims, "STORED", tmp_path)

    def record(experiment, verdict, seed):
        row = dict.fromkeys(("data", "number", "interval", "rule"), "x")
        row |= {"profile": "paper"}
        return {
            "experiment": experiment,
            "profile": "paper",
            "seed": seed,
            "run": {"revision": "abc"},
            "verdicts": [{"claim": "C1", "verdict": verdict, **row}],
            "tables": {"choices": [{"claim": "C1", "choice": "accept"}]},
        }

    class Store:
        def __init__(self, records):
            self.records = records

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def finished(self):
            return self.records

    for records in (
        [record("fig1", "not resolved", 0), record("fig2", "reproduced", 0)],
        [record("fig1", "reproduced", 1)],
    ):
        monkeypatch.setattr(
            write_claims,
            "open_store",
            lambda folder, create, records=records: Store(records),
        )
        write_claims.take(tmp_path)
    for name in ("verdicts", "choices"):
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [(row["experiment"], row["seed"]) for row in rows] == [
            ("fig1", "1"),
            ("fig2", "0"),
        ]
        assert {row["revision"] for row in rows} == {"abc"}
    assert rows[0]["command"] == "proxlin reproduce fig1 --profile paper --seed 1"
    # what was taken last is what is stored; another seed is not, and another number is seen
    assert write_claims.differences(tmp_path) == []
    other = record("fig1", "not resolved", 1), record("fig2", "reproduced", 5)
    monkeypatch.setattr(
        write_claims, "open_store", lambda folder, create: Store(list(other))
    )
    first, second = write_claims.differences(tmp_path)
    assert "not resolved" in first and "nothing is stored" in second
