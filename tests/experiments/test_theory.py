"""prop1 and prop2 on small settings: the tables, the verdicts, and the same bytes each time."""

import json
from importlib import import_module

import numpy as np
import pytest

from proxlin.errors import UserError
from proxlin.experiments import proposition1, proposition1_task, proposition2
from proxlin.experiments.engine.base import Context
from proxlin.experiments.engine.config import parse, shipped
from proxlin.experiments.proposition2_coverage import coverage, verdict_window
from proxlin.experiments.sine_maps import Path
from proxlin.plots.pages import csv_bytes

ONE = {
    "n": 5,
    "k": 2,
    "outers": ["l2"],
    "starts": 1,
    "distance": [2.0, 6.0],
    "steps": 300,
}
ONE |= {"network": [3, 2, 2, 32], "network_starts": 1, "attained": 5}
TWO = {"ns": [1, 10], "ks": [2, 64], "deltas": [0.1, 0.5], "draws": 200, "delta": 0.5}
TWO |= {
    "multiples": [0.01, 4.0, 3.0],
    "seeds": 1,
    "steps": 300,
    "sine": [[5, 2]],
    "network": [],
}


def here(cases):
    """The sweep engine replaced by calls in this process, through JSON as in the store."""
    plain = lambda x: json.loads(json.dumps(x))
    named = [(*case.task.split(":"), plain(case.settings)) for case in cases]
    return [
        plain(getattr(import_module(module), name)(settings))
        for module, name, settings in named
    ]


def context(config):
    return Context("quick", config, 0, "unused", lambda text: None, here)


def test_proposition_1():
    result = proposition1.STUDY.run(context(ONE))
    rows = result.tables["paths"]
    assert [row["constants"] for row in rows] == ["exact"] * 4 + ["local"] * 2
    assert all(
        row["bounds broken"] == row["n^1.5 rate broken after R"] == 0 for row in rows
    )
    assert sum(row["steps"] for row in rows) == len(result.tables["steps"])
    assert [(v.claim, v.verdict) for v in result.verdicts] == [
        ("C2", "reproduced"),
        ("C2", "not reproduced"),
    ]
    assert (
        "0 of 6 paths" in result.verdicts[0].number
        and "0.552786" in result.verdicts[1].number
    )
    assert all(abs(row["relative error"]) < 1e-8 for row in result.tables["singular"])


def test_a_broken_bound_is_seen():
    """The rule of the verdict, on a path that does not decrease."""
    path = Path([1.0, 1.0, 0.9], [0.0, 0.0])
    run = proposition1_task.Run(
        "sine, A across B",
        "l2",
        proposition1_task.SMALL,
        0,
        "exact",
        4,
        2,
        1.0,
        1.0,
        path,
    )
    assert run.row()["bounds broken"] == 1
    assert proposition1.verdict_bounds([run.row()]).verdict == "not reproduced"


def test_proposition_2_gives_the_same_bytes():
    results = [proposition2.STUDY.run(context(TWO)) for _ in range(2)]
    for name, table in results[0].tables.items():
        assert csv_bytes(table) == csv_bytes(results[1].tables[name]) and table
    assert len(results[0].tables["transition"]) == 6
    assert {v.claim for v in results[0].verdicts} == {"C3"} and len(
        results[0].verdicts
    ) == 5
    assert set(results[0].figures) == {"transition", "windows"}


def test_a_window_that_is_too_narrow_is_seen():
    cells = coverage([10], [64], [0.1], 500, np.random.default_rng(0))
    assert verdict_window(cells).verdict == "reproduced"
    # 86 %
    assert (
        verdict_window([{**row, "paper inside": 430} for row in cells]).verdict
        == "not reproduced"
    )


@pytest.mark.parametrize("kind", ["a", "b"])
def test_the_rule_of_a_part(kind):
    part = {
        "problem": "p",
        "n": 1,
        "k": 1,
        "R": "measured",
        "window": "paper",
        "part": kind,
        "as stated": 0,
        "runs": 0,
    }
    for low, high, verdict in (
        (0.95, 1.0, "reproduced"),
        (0.2, 0.8, "not reproduced"),
        (0.5, 1.0, "undecided"),
    ):
        assert (
            proposition2.verdict_part({**part, "low": low, "high": high}, 0.1).verdict
            == verdict
        )


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_the_shipped_configs_are_complete(profile):
    for module, name in ((proposition1, "prop1"), (proposition2, "prop2")):
        plan = module.STUDY.plan(shipped(name)[profile], 0)
        assert plan.cases == len(plan.first) > 0 and plan.work > 0
    for schema, wrong in (
        (proposition1.Config, {**ONE, "outers": ["l7"]}),
        (proposition2.Config, {**TWO, "sine": [[5]]}),
    ):
        with pytest.raises(UserError):
            parse(schema, wrong)


def test_no_phase_is_said():
    with pytest.raises(
        UserError, match="no run reached its quadratic phase in 1 steps"
    ):
        proposition2.STUDY.run(context({**TWO, "steps": 1}))
