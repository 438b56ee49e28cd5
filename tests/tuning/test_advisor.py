"""The advisor: the rule, the folds, the budget, and one whole answer whose snippet runs."""

import math

import jax
import numpy as np
import pytest

import proxlin as px
from proxlin.networks import MLP
from proxlin.theory.statistics import log_ratio_interval as ratio_interval
from proxlin.tuning import advisor, race


def problem(n=24, noise=0.0):
    """Two linear maps of two features: exact prox-linear fits them in a step."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    y = x @ rng.normal(size=(2, 2)) + noise * rng.normal(size=(n, 2))
    return px.MeanOfLosses(px.residual(MLP((2, 2), bias=False)), px.L2(), (x, y))


def start():
    return MLP((2, 2), bias=False).init(jax.random.key(0))


def test_the_rule():
    same = ratio_interval([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert same == (0.0, 0.0, 0.0) and advisor.decide(*same) == "cannot tell"
    assert (
        advisor.decide(*ratio_interval([2.0, 2.1, 1.9], [1.0, 1.0, 1.0]))
        == "gauss-newton"
    )
    assert advisor.decide(*ratio_interval([1.0, 1.0, 1.0], [2.0, 2.1, 1.9])) == "sgd"
    assert (
        advisor.decide(*ratio_interval([2.0, 0.5, 1.2], [1.0, 1.0, 1.0]))
        == "cannot tell"
    )
    assert advisor.decide(0.5 * math.log1p(0.01), 1e-4, 1.0, tie=0.01) == "cannot tell"
    with pytest.raises(ValueError, match="negative values"):
        ratio_interval([-1.0, 1.0], [1.0, 1.0])


def test_folds_leave_each_sample_out_at_most_once():
    folds = race.folds_of(problem(23), None, 5, seed=3)
    assert [(len(fold.train), len(fold.held_out)) for fold in folds] == [(19, 4)] * 5
    left_out = np.concatenate([np.asarray(fold.held_out.data[0]) for fold in folds])
    assert len(np.unique(left_out, axis=0)) == 20
    fold = race.folds_of(problem(23), problem(8), 5, seed=3)[1]
    assert len(fold.train) == 19 and len(fold.held_out) == 8


def test_the_plan_that_fits(monkeypatch):
    """Settings go first, then passes; what nothing fits gets the least plan."""
    # a run of 100 passes takes 1.1 s
    monkeypatch.setattr(advisor, "_seconds", lambda *_: (0.1, 0.01))
    methods = [m for m in race.methods_of(problem(), start(), 100.0) if m.axes]
    most, fold = race.Plan(24, 100.0, 5, 0), race.Fold(problem(), problem())
    plan = lambda left: advisor._affordable(methods, fold, start(), most, lambda: left)
    assert (plan(71.0).settings, plan(53.0).settings, plan(36.0).settings) == (
        24,
        16,
        8,
    )
    assert (plan(34.0).passes, plan(20.0).passes, plan(0.0).passes) == (
        50.0,
        50.0,
        6.25,
    )


def test_one_answer_with_a_snippet_that_runs(monkeypatch):
    """SGD against PLI; with `settings` given no clock is read."""
    monkeypatch.setattr(race, "QUICK_STEP", 0.0)
    monkeypatch.setattr(advisor.time, "monotonic", lambda: 0.0)
    heard = []
    advice = px.advise(
        problem(noise=0.1), start(), passes=6.0, folds=2, settings=2, say=heard.append
    )
    assert isinstance(advice, px.Advice) and len(heard) == 2
    assert (
        advice.radius is None
        and advice.window is None
        and "not measured" in advice.about_radius
    )
    assert advice.noise.low < advice.noise.value < advice.noise.high
    assert advice.gain.low <= advice.gain.value <= advice.gain.high
    assert f"Recommendation: {advice.recommendation}." in str(
        advice
    ) and advice.snippet.rstrip() in str(advice)
    assert advice.as_dict()["plan"] == {
        "settings": 2,
        "passes": 6.0,
        "folds": 2,
        "seed": 0,
    }
    names = {"problem": problem(noise=0.1), "w": start()}
    exec(advice.snippet, names)
    assert names["solution"].value < float(problem(noise=0.1).value(start()))


@pytest.mark.slow
def test_exact_steps_win_where_there_is_no_noise():
    advice = px.advise(problem(), start(), passes=6.0, folds=2, settings=2)
    assert (
        advice.recommendation == "gauss-newton"
        and advice.codes["gauss-newton"] == "px.prox_linear()"
    )
    assert 0.9 < advice.gain.low <= advice.gain.high <= 1 and advice.noise.value < 1e-6
    assert advice.radius is not None and "below the sharp window" in advice.position
    names = {"problem": problem(), "w": start()}
    exec(advice.snippet, names)
    assert names["solution"].value < 1e-8


def exact_method(values):
    run = race.Run(1.0, 1.0, start(), np.asarray(values), 0.0)
    return race.TunedMethod(
        race.Method("prox_linear", "gauss-newton", {}, px.sgd, str), {}, (run,)
    )


def test_the_radius_and_the_noise_against_it():
    eps = float(np.finfo(float).eps)
    assert advisor._radius([exact_method([4.0, 3.0, 2.9])], eps) == (
        None,
        "not reached: F went from 4 to 2.9 in 2 exact steps.",
    )
    radius, _ = advisor._radius(
        [exact_method([4.0, 3.0, 1.0, 0.25, 0.03125, 0.0005, 1e-7, 1e-15])], eps
    )
    assert radius == 0.9765625
    where = lambda level: advisor._window(
        radius, px.theory.Estimate(level, level, level), problem(), start()
    )[1]
    assert "below the sharp window" in where(
        0.01
    ) and "above the sharp window" in where(9.0)
    # k = 2: the paper's window does not exist
    assert "inside the sharp window" in where(radius)


def test_wrong_use():
    mean = px.LossOfMean(px.residual(MLP((2, 2), bias=False)), px.L2(), problem().data)
    with pytest.raises(TypeError, match="MeanOfLosses; it got LossOfMean"):
        px.advise(mean, start())
    with pytest.raises(
        ValueError, match="two samples in each of 5 folds; the problem has 9"
    ):
        px.advise(problem(9), start())
    with pytest.raises(ValueError, match="budget must be above 0"):
        px.advise(problem(), start(), budget=0)
