"""The study `recovery`: its measure, one case of each method, the rules of C10, and seeds that judge apart."""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest

from proxlin.errors import UserError
from proxlin.experiments.engine.base import Case, Context
from proxlin.experiments.engine.config import parse, shipped
from proxlin.experiments.recovery import STUDY, Config, entries_of, verdicts
from proxlin.experiments.recovery_task import GRIDS, arena_of, summary, train
from proxlin.experiments.tuning import Entry, Seeds, Tuned, cases_of, tune
from proxlin.theory import chi_mean
from proxlin.tuning.search import Grid, Lattice

TINY = {"n": 4, "k": 2, "inputs": 2, "width": 8, "levels": [0.1], "passes": 6.0}
TINY |= {"steps": 12, "validation": 10, "settings": 2, "search_seeds": 1, "seeds": 2}
TINY |= {"rules": shipped("recovery")["quick"]["rules"]}
CASE = {name: TINY[name] for name in ("n", "k", "inputs", "width", "passes", "steps")}
CASE |= {"validation": 10, "seed": 3, "level": 0.1}


def test_the_arena_is_that_of_proposition_2():
    """F(wbar) is the mean norm of the noise, and the recovery error is that of the predictions."""
    many = {**CASE, "n": 400, "k": 3}
    arena = arena_of(many)
    x, y = arena.problem.data
    _, clean = arena.clean.data
    norms = np.linalg.norm(np.asarray(y) - np.asarray(clean), axis=1)
    assert arena.level == pytest.approx(norms.mean())
    # the noise level is the share of the first loss that was asked for, up to the draw
    share = arena.level / float(arena.clean.value(arena.w))
    assert share == pytest.approx(0.1, rel=0.1)
    sigma = float(np.std(np.asarray(y) - np.asarray(clean)))
    assert arena.level == pytest.approx(sigma * chi_mean(3), rel=0.1)
    predicted = arena.problem.inner(arena.w, (x[0], jnp.zeros(3)))
    assert float(arena.clean[0].value(arena.w)) == pytest.approx(
        float(np.linalg.norm(predicted - clean[0]))
    )


def test_where_a_run_stops():
    values = np.array([5.0, 3.0, 1.0, 0.5])
    recovery = np.array([4.0, 1.0, 2.0, 3.0])
    found = summary(values, recovery, 1.0)
    assert (found["stopped"], found["least"], found["end"]) == (2.0, 1.0, 3.0)
    assert found["reached"] and found["steps_below"] == 1
    assert found["least_over_level"] == 3.0
    never = summary(values, recovery, 0.1)
    assert not never["reached"] and never["stopped"] == never["end"] == 3.0


@pytest.mark.parametrize("method", GRIDS)
def test_a_case_of_each_method(method):
    axes = GRIDS[method]
    setting = {name: axis.value(axis.bracket[0]) for name, axis in axes.items()}
    found = train({**CASE, "method": method, **setting})
    curve = np.asarray(found["curve_recovery"])
    assert found["least"] == curve.min() and found["end"] == curve[-1]
    assert len(curve) == len(found["curve_value"]) == len(found["curve_passes"])
    assert np.isfinite(found["curve_value"]).all()
    assert method == "pli" or found["curve_value"][-1] < found["curve_value"][0]
    if method == "prox-linear":
        # interpolation: what is left of the recovery error is the noise itself
        assert found["curve_value"][-1] < 1e-6 and found["reached"]
        assert found["end"] == pytest.approx(found["level"], rel=1e-4)


def made_up(stopped, end, reached=True):
    return {
        "stopped": stopped,
        "least": 1.0,
        "end": end,
        "reached": reached,
        "level": 1.0,
    }


def test_the_rules_of_c10():
    rules = parse(Config, TINY).rules

    def judged(stopped, end, *more):
        runs = [made_up(stopped * x, end * x) for x in (1.0, 1.001, 0.999)]
        found = {(0.1, method): Tuned({}, (*runs, *more), 0.0, ()) for method in GRIDS}
        each = verdicts(rules, found, 0)
        assert [one.claim for one in each] == ["C10"] * 6
        return [each[0].verdict, each[3].verdict], each[0]

    yes, no, equal = "reproduced", "not reproduced", "equal beyond the rule"
    assert judged(1.05, 2.0)[0] == [yes, yes]
    assert judged(1.5, 1.2)[0] == [no, no]
    assert judged(1.02, 1.02)[0] == [yes, equal]
    # a run that never reached the noise level has no place to stop
    (_, below), first = judged(1.05, 2.0, made_up(9.0, 9.0, reached=False))
    assert below == yes and first.units == "3 seeds" and "3 of 4 runs" in first.number


def test_seeds_that_judge_have_not_been_searched():
    asked = []

    def sweep(cases):
        asked.extend(case.settings for case in cases)
        return [
            {"validation_loss": abs(case.settings["x"] - 10.0), **case.settings}
            for case in cases
        ]

    grid = Grid({"x": Lattice(1.0, 10.0, (-1, 1))}, 3)
    entry = Entry(
        "a", grid, lambda setting, seed: Case("t", {**setting, "seed": seed}), 4
    )
    use = Seeds(2, fresh=True)
    found = tune([entry], Context("", {}, 0, "", print, sweep), 1, use)["a"]
    assert found.setting == {"x": 10.0}
    assert [run["seed"] for run in found.runs] == [2, 3, 4, 5]
    assert {each["seed"] for each in asked[:6]} == {0, 1}
    assert len(asked) == cases_of([entry], 1, use) == 10
    # without fresh seeds the finalists run on all, those of the search among them
    asked.clear()
    every = tune([entry], Context("", {}, 0, "", print, sweep), 2)["a"]
    assert [run["seed"] for run in every.runs] == [0, 1, 2, 3]
    assert len(asked) == cases_of([entry], 2) == 3 + 2 * 3


def test_the_study():
    def here(cases):
        found = []
        for case in cases:
            module, name = case.task.split(":")
            found.append(getattr(importlib.import_module(module), name)(case.settings))
        return found

    result = STUDY.run(Context("quick", TINY, 0, "", print, here))
    rows = result.tables["recovery"]
    assert [row["method"] for row in rows] == ["exact prox-linear", "PLI", "SGD"]
    assert all(row["least"] <= row["stopped"] and row["seeds"] == 2 for row in rows)
    assert {each.claim for each in result.verdicts} == {"C10"}
    assert set(result.figures) == {"recovery-passes"}
    for profile in ("quick", "paper"):
        config = shipped("recovery")[profile]
        entries = entries_of(parse(Config, config))
        assert STUDY.plan(config, 0).cases >= len(entries) * 3
    with pytest.raises(UserError, match="interpolate; raise width"):
        parse(Config, {**TINY, "width": 1, "n": 40})
