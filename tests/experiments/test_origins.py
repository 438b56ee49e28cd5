"""Where the data of a study come from: named in every output, part of every key, and no verdict on
a stand-in.
"""

import bz2
import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proxlin.cli.main import main
from proxlin.data import cache, classification, sequences
from proxlin.data.origin import generated
from proxlin.errors import UserError
from proxlin.experiments import MODULES, equations, equations_task, experiments
from proxlin.experiments.engine.base import CAVEATS, Case, Experiment, Result, Verdict
from proxlin.experiments.engine.report import page
from proxlin.experiments.engine.reproduce import Request, reproduce
from proxlin.experiments.engine.workers import Outcome, case_key

SHAPE = {
    "ijcnn1": "below/train.bz2",
    "ijcnn1.t": "below/test.bz2",
    "covtype": "below/cov.bz2",
}
NAMES = ("ijcnn1", "covtype")


class MadeUp:
    """Results of Figure 5 without training: prox-linear is the best of all, beyond any noise."""

    def outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
        for case in cases:
            if case.task == equations.BIAS:
                result = {"bias": 0.05, "low": 0.04, "high": 0.06}
            else:
                loss = {"pl": 0.5, "gd": 1.0}.get(case.settings["method"], 0.75) * (
                    1 + 1e-5 * case.settings["seed"]
                )
                result = dict.fromkeys(
                    ("validation_loss", "test_loss", "train_loss", "best_at"), loss
                )
                result |= {
                    f"curve_{name}": [1.0, 2.0]
                    for name in ("step", "passes", "seconds", "validation", "test")
                }
            yield case, Outcome(result, None, False, {"seconds": 0.1, "host": "here"})

    def close(self) -> None:
        pass


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """A fresh machine: no PROXLIN_DATA and an empty cache. The data sets have a few rows, so that
    loading is quick.
    """
    monkeypatch.delenv("PROXLIN_DATA", raising=False)
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))
    for name, file in SHAPE.items():
        content = bz2.compress(
            b"".join(
                f"{1 + i % 2} 1:{i + 1} 3:{1 + i % 7}\n".encode() for i in range(40)
            )
        )
        path = tmp_path / "data" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        monkeypatch.setitem(
            classification.SOURCES,
            name,
            classification.Source(file, cache.sha256(path), 40, 3, 0.5),
        )
    return tmp_path


@pytest.fixture
def files(nothing, monkeypatch):
    """Give the machine of `nothing` the real files too."""
    monkeypatch.setenv("PROXLIN_DATA", str(nothing / "data"))
    return nothing


def run(out: Path, profile: str = "quick") -> list[str]:
    """Run Figure 5, with few settings and made-up results; returns what it said."""
    said: list[str] = []
    study = experiments(wanted=["fig5"])["fig5"]
    few = study.configs["quick"] | {"settings": 1, "seeds": 2}
    study = replace(study, configs={"quick": few, "paper": few})
    reproduce([study], Request(profile, 0, out), said.append, MadeUp(), 1)
    return said


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def printed_verdicts(out: Path, capsys) -> list[dict]:
    assert main(["report", str(out), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["verdicts"]


def test_a_stand_in_judges_no_claim_in_any_output(nothing, capsys, monkeypatch):
    out = nothing / "out"
    said = run(out, "paper")
    labels = "ijcnn1 (synthetic), covtype (synthetic)"
    judged = printed_verdicts(out, capsys)
    assert [(row["claim"], row["verdict"], row["data"]) for row in judged] == [
        (claim, "not judged (synthetic)", labels)
        for claim in ("C7", "C7", "C8", "C8", "C9", "C9")
    ]
    assert all(
        "(synthetic): " in row["number"] and row["interval"] and row["rule"]
        for row in judged
    )
    rows = table(out / "tables/verdicts.csv")
    assert [row["verdict"] for row in rows] == ["not judged (synthetic)"] * 6 and rows[
        0
    ]["profile"] == "paper"
    assert f"  C7: not judged (synthetic) (paper profile; data: {labels})" in said
    assert any(
        text.startswith("  ijcnn1 (synthetic): ") and "proxlin data get ijcnn1" in text
        for text in said
    )
    shown = (out / "report.html").read_text()
    assert (
        shown.count(">not judged (synthetic)</td>") == 6 and "smoke test" not in shown
    )
    for verdict in ("reproduced", "not reproduced", "not resolved"):
        assert f">{verdict}</td>" not in shown
    assert shown.count('class="warning"') == 2  # one for each data set
    for path in (out / "tables").glob("fig5-*.csv"):
        assert {row["data"] for row in table(path)} == {
            f"{name} (synthetic)" for name in NAMES
        }, path
        assert {row["profile"] for row in table(path)} == {"paper"}, path
    svg = (out / "figures/fig5-curves-passes.svg").read_text()
    # the title of its panel, and the line above all panels
    assert svg.count("ijcnn1 (synthetic)") == 2

    assert any("kept from an earlier run" in text for text in run(out, "paper"))
    monkeypatch.setenv("PROXLIN_DATA", str(nothing / "data"))
    with pytest.raises(
        UserError,
        match="holds fig5 with another set of data than covtype, ijcnn1; take another folder",
    ):
        run(out, "paper")


def test_files_are_judged_and_a_quick_profile_says_that_it_is_one(files, capsys):
    out = files / "out"
    said = run(out)
    judged = printed_verdicts(out, capsys)
    assert [row["verdict"] for row in judged] == ["reproduced"] * 6
    assert all(row["units"] and row["visible"] for row in judged)
    assert {(row["data"], row["profile"]) for row in judged} == {
        ("ijcnn1, covtype", "quick")
    }
    assert any(text.startswith("  C7: reproduced (quick profile") for text in said)
    shown, svg = (
        (out / "report.html").read_text(),
        (out / "figures/fig5-curves-passes.svg").read_text(),
    )
    # beside the verdicts, and over the study
    assert shown.lower().count(CAVEATS["quick"]) == 2
    assert CAVEATS["quick"] in svg and "synthetic" not in svg


def test_a_file_in_the_place_of_the_usual_one_is_no_evidence(files):
    mine = files / "mine.bz2"
    mine.write_bytes(bz2.compress(b"1 1:2\n2 2:4\n" * 20))
    classification.get("covtype", mine, cache.sha256(mine))
    data = [classification.origin_of(name) for name in NAMES]
    row = Verdict("C7", "reproduced", "1", "0 to 2").published("paper", data)
    assert (row["verdict"], row["data"]) == (
        "not judged (another file)",
        "ijcnn1, covtype (another file)",
    )


@pytest.mark.parametrize("name", ["fig5", "words"])
def test_a_case_on_a_stand_in_has_another_key(name, nothing, monkeypatch):
    study = experiments(wanted=[name])[name]
    keys = lambda: {
        case_key(case) for case in study.plan(study.config("quick"), 0).first
    }
    made, before = keys(), study.data(study.config("quick"))
    monkeypatch.setenv("PROXLIN_DATA", str(nothing / "data"))
    words = nothing / "data" / sequences.FILE
    words.parent.mkdir()
    words.write_bytes(b"some words")
    real = keys()
    assert not made & real and study.data(study.config("quick")) != before
    words.write_bytes(b"other words")
    assert bool(keys() & real) == (name == "fig5")


def test_a_worker_with_other_data_refuses_the_case(nothing):
    study = experiments(wanted=["fig5"])["fig5"]
    settings = dict(study.plan(study.config("quick"), 0).first[0].settings)
    assert settings["content"] == "synthetic"
    with pytest.raises(
        UserError,
        match="ijcnn1 was 0123 when the sweep was begun, but here it is synthetic",
    ):
        equations_task.train({**settings, "content": "0123"})
    with pytest.raises(
        UserError,
        match="the words asked for have the SHA-256 0123, but here is no file of them",
    ):
        sequences.words_of("0123")


@pytest.mark.parametrize("name", [name for names in MODULES.values() for name in names])
def test_every_study_names_its_data(name, nothing):
    study = experiments(wanted=[name])[name]
    data = study.data(study.config("quick"))
    assert data and all(each.source and each.content for each in data)
    assert {each.kind for each in data} == {
        "synthetic" if name in ("fig5", "words") else "generated"
    }


def test_claims_need_data():
    quiet = lambda context: Result()
    with pytest.raises(
        ValueError, match="toy judges C1, so it has to say on which data"
    ):
        Experiment("toy", "A toy", ("C1",), quiet)
    Experiment(
        "toy",
        "A toy",
        ("C1",),
        quiet,
        data=lambda config: (generated("toys", "carved"),),
    )
    assert "No claim has been judged" in page([])
