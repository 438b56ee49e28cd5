"""The study of the advisor between its families: its cells, its rule, and its store."""

import itertools
import json
from dataclasses import asdict

import numpy as np
import pytest

from bench.studies import advisor_between as study
from bench.studies._advisor_cells import Cell, cells, parts_of
from proxlin.theory.rules import Share


def row(family="phase", better="sgd", given="sgd"):
    limits = {f"{limit}_better": better for limit in study.LIMITS}
    limits |= {"passes_ratio": 0.25, "settings": 24, "passes": 100.0}
    answers = dict.fromkeys(
        ("recommendation", "take", "in_time", "in_more_time"), given
    )
    cell = asdict(Cell(family, "gaussian", 64, 16))
    return cell | limits | answers


def test_every_cell_has_a_label_of_its_own_and_lies_beside_those_of_its_shapes():
    labels = [cell.label() for cell in cells()]
    assert len(set(labels)) == len(labels) == 54
    shapes = [cell.shapes() for cell in cells()]
    changes = sum(one != two for one, two in itertools.pairwise(shapes))
    assert changes + 1 == len(set(shapes))


def test_only_training_squares_are_gross_errors():
    cell = Cell("phase", "gaussian", 64, 16, 0.0, 0.25)
    clean = parts_of(Cell("phase", "gaussian", 64, 16), 3)
    spoiled = parts_of(cell, 3)
    wrong = np.asarray(clean.train.data[1]) != np.asarray(spoiled.train.data[1])
    assert wrong.sum() == 16
    for one, two in (
        (clean.validation, spoiled.validation),
        (clean.test, spoiled.test),
    ):
        assert np.array_equal(one.data[1], two.data[1])


def test_rows_of_a_table_are_in_one_part_only():
    pytest.importorskip("sklearn")
    parts = parts_of(Cell("table", "diabetes", 96, 0), 3)
    sizes = [len(each) for each in parts[:3]]
    assert sizes == [96, 115, 231] and sum(sizes) == 442
    rows = np.concatenate([np.asarray(each.data[0]) for each in parts[:3]])
    assert len(np.unique(rows, axis=0)) == 442
    assert np.allclose(np.asarray(parts.train.data[0]).mean(axis=0), 0, atol=1e-5)


def test_a_trace_counts_up_to_its_seconds_and_skips_what_is_not_finite():
    losses = np.array([4.0, np.nan, 2.0, 1.0])
    trace = study.Trace(np.array([0.0, 1.0, 2.0, 3.0]), losses, 10 * losses)
    assert [trace.loss(x) for x in (-1.0, 1.5, 2.5, np.inf)] == [40, 40, 20, 10]


def test_cannot_tell_is_wrong_and_undecided_cells_do_not_count():
    rows = [
        row(),
        row(given="cannot tell"),
        row(better="gauss-newton"),
        row(better="equal"),
        row(better="not resolved"),
    ]
    found = study.share(rows, "verdict")
    assert (found.successes, found.trials) == (1, 3)


def test_the_numbers_of_the_rule_in_the_docstring():
    assert study.needed(54) == (50, 36) and study.needed(30) == (29, 18)
    assert study.RULE.judge(Share(49, 54, study.PROMISED)) == "not resolved"
    assert study.needed(12)[0] is None


def test_a_line_that_a_kill_cut_off_runs_again(tmp_path):
    file = tmp_path / "cells.jsonl"
    done = {"kind": "truth", "label": "a", "draw": 1, "budget": 60.0}
    file.write_text(json.dumps(done) + "\n" + json.dumps(done)[:20])
    found = study.read(file)
    assert list(found) == [study.key_of("truth", "a", 2, 9.0)]
    assert study.key_of("answer", "a", 1, 60.0) not in found


def test_an_interval_names_a_side_only_if_it_excludes_0():
    assert study.stated(0.1, 0.2) == "gauss-newton"
    assert study.stated(-0.2, -0.1) == "sgd"
    assert study.stated(-0.1, 0.1) == "cannot tell"


def test_the_page_counts_what_is_right_and_names_what_is_missed():
    rows = [row(), row(given="gauss-newton"), row("table", "equal")]
    text = study.told(rows)
    assert "3 of the 54 cells are done" in text
    assert "passes in 3 of them (settings of each method: 3 with 24)" in text
    assert "| verdict | phase | 1 of 2 | [0.01, 0.99] | not resolved |" in text
    assert "| verdict | table | 0 of 0 |  | no decided cell |" in text
    assert "| sgd | 1 | 1 | 0 |" in text and "| equal | 1 | 0 | 0 |" in text
    assert "noise=0 corruption=0 | +25.0% | gauss-newton | gauss-newton |" in text
    assert "at most 25.0% more test loss" in text
    assert "With 2 decided cells not even all of them right would show" in text
    begin, end = study.BEGIN, study.END
    page = study.with_tables(f"a\n{begin}\nold\n{end}\nb\n", "new")
    assert page == f"a\n{begin}\n\nnew\n\n{end}\nb\n"
    with pytest.raises(ValueError, match="needs a line"):
        study.with_tables("no markers", "new")


def test_the_page_has_its_markers():
    assert study.with_tables(study.PAGE.read_text(), "")
