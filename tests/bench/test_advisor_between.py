"""The study of the advisor between its families: its cells, its rule, and its store."""

import itertools
import json

import numpy as np
import pytest

from bench.studies import advisor_between as study
from bench.studies._advisor_cells import Cell, cells, parts_of
from proxlin.theory.rules import Share


def row(family="phase", better="sgd", given="sgd"):
    limits = {f"{limit}_better": better for limit in study.LIMITS}
    answers = dict.fromkeys(
        ("recommendation", "take", "in_time", "in_more_time"), given
    )
    return {"family": family} | limits | answers


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
