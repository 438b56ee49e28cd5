"""Handwritten words: the stand-in for the data, one case, the whole study on made-up results."""

from itertools import pairwise

import numpy as np
import pytest

from proxlin.data import sequences as s
from proxlin.errors import UserError
from proxlin.experiments.engine.base import Context
from proxlin.experiments.engine.config import parse, shipped
from proxlin.experiments.tasks import structured_solver
from proxlin.experiments.words import STUDY, Config, Label, case_of, labels_of
from proxlin.experiments.words_task import GRIDS, parts_of, refit

TINY = {
    "directions": ["one", "nine"],
    "passes": [4.0, 4.0],
    "methods": ["pli"],
    "words": 20,
    "test": 30,
    "width": 4,
}
TINY |= {"top": 2, "settings": 3, "finalists": 1, "folds": 2}


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv("PROXLIN_DATA", raising=False)
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))


def test_synthetic_words_have_letters_that_follow_each_other():
    words, again = s.synthetic_words(400), s.synthetic_words(400)
    assert (
        np.array_equal(words.pixels, again.pixels)
        and words.lengths.min() == 3
        and words.lengths.max() == 9
    )
    assert words.labels.max() == 25 and set(words.folds) == set(range(10))
    inside = np.arange(9)[None] < words.lengths[:, None]
    assert not words.pixels[~inside].any() and not words.labels[~inside].any()
    pairs = {(a, b) for text in words.text() for a, b in pairwise(text)}
    assert len(pairs) < 0.65 * sum(len(text) - 1 for text in words.text()) / 4


def test_it_is_said_when_the_words_are_synthetic(tmp_path, monkeypatch):
    assert (
        s.words_origin().label == "ocr_letters (synthetic)"
        and s.FILE in s.words_origin().source
    )
    monkeypatch.setenv("PROXLIN_DATA", str(tmp_path))
    (tmp_path / "sequences").mkdir()
    (tmp_path / s.FILE).write_bytes(b"no archive")
    assert s.words_origin().label == "ocr_letters"
    with pytest.raises(UserError, match="no .npz archive"):
        s.words_of(s.words_origin().content)


def test_training_and_test_words_are_of_other_folds():
    one, nine = parts_of("synthetic", "one", 3, 0)
    assert set(one.folds) == {3} and set(nine.folds) == set(range(10)) - {3}
    most, few = parts_of("synthetic", "nine", 3, 30)
    assert (
        set(few.folds) == {3}
        and 3 not in most.folds
        and len(few) == 30
        and len(most) == len(nine)
    )


def test_a_case_reads_better_than_chance():
    config = parse(Config, TINY)
    setting = {"step": 1e-2, "ridge": 1.0, "stop": 4.0}
    found = refit(
        case_of(
            Label("one", "chain", "sgd-averaged"),
            config,
            s.words_origin(),
            setting,
            0,
            "refit",
        ).settings
    )
    assert (
        found["letters"]
        == found["curve_letters"][-1]
        < 0.75
        < found["curve_letters"][0]
    )
    assert found["words"] >= found["letters"] and found["curve_passes"][-1] == 4


def made_up(cases):
    worse = {"letters": 0.3, "chain": 0.2, "network": 0.1}
    results = []
    for i, case in enumerate(cases):
        loss = worse[case.settings["model"]] + 0.001 * (i % 3)
        result = {
            "validation_loss": loss,
            "best_at": 4.0,
            "letters": loss,
            "words": 2 * loss,
        }
        result |= {
            "curve_passes": [0.0, 2.0, 4.0],
            "curve_seconds": [0.0, 0.1, 0.2],
            "curve_letters": [0.9, 0.5, loss],
        }
        results.append(result)
    return results


def test_the_study():
    result = STUDY.run(
        Context("quick", TINY, 0, "", print, made_up, [s.words_origin()])
    )
    assert len(result.tables["errors"]) == 7 and len(result.tables["differences"]) == 5
    assert any("synthetic words" in note for note in result.notes)
    titles = [axes.get_title() for axes in result.figures["curves-passes"].figure.axes]
    assert all(title.endswith("; ocr_letters (synthetic)") for title in titles)
    assert all(
        -0.11 < row["difference"] < -0.09 for row in result.tables["differences"][:4]
    )
    assert [
        len(result.figures[f"curves-{axis}"].figure.axes)
        for axis in ("passes", "seconds")
    ] == [2, 2]
    assert len(result.tables["curves"]) == len(result.timings["curves"]) > 0
    assert any("linear, pairs" in note and "points" in note for note in result.notes)


def test_every_method_has_a_solver_and_profiles_are_planned():
    for method, axes in GRIDS.items():
        setting = {name: axis.value(axis.bracket[0]) for name, axis in axes.items()}
        assert structured_solver(method, setting, 10_000.0).name()
    assert len(labels_of(parse(Config, shipped("words")["paper"]))) == 12
    assert STUDY.plan(shipped("words")["quick"], 0).cases == 5 * (4 + 2)


def test_wrong_configs_are_refused():
    changes = (
        ({"folds": 1}, "folds"),
        ({"methods": ["adam"]}, "adam"),
        ({"directions": ["two"]}, "two"),
    )
    for change, word in (
        *changes,
        ({"passes": [1.0]}, "passes"),
        ({"width": 0}, "width"),
    ):
        with pytest.raises(UserError, match=word):
            parse(Config, {**TINY, **change})
