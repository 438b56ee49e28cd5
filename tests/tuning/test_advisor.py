"""The advisor: the rule, the folds, the budget, and one whole answer whose snippet runs."""

import itertools
import math

import jax
import numpy as np
import pytest

import proxlin as px
from proxlin.networks import MLP
from proxlin.tuning import advisor, race
from proxlin.tuning import answer as words


def problem(n=24, noise=0.0):
    """Two linear maps of two features: exact prox-linear fits them in a step."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    y = x @ rng.normal(size=(2, 2)) + noise * rng.normal(size=(n, 2))
    return px.MeanOfLosses(px.residual(MLP((2, 2), bias=False)), px.L2(), (x, y))


def start():
    return MLP((2, 2), bias=False).init(jax.random.key(0))


def test_the_rule():
    same = words.lead_of([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert same == (0.0, 0.0, 0.0, 3) and words.decide(same) == "cannot tell"
    one = [1.0, 1.0, 1.0]
    assert words.decide(words.lead_of([2.0, 2.1, 1.9], one)) == "gauss-newton"
    assert words.decide(words.lead_of(one, [2.0, 2.1, 1.9])) == "sgd"
    assert words.decide(words.lead_of([2.0, 0.5, 1.2], one)) == "cannot tell"
    # a lead inside the band does not matter; one that crosses it is a lead
    inside, across = words.Lead(0.004, 1e-4, 0.008), words.Lead(0.1, 1e-4, 0.2)
    assert words.decide(inside) == words.decide(across) == "gauss-newton"
    assert words.decide(inside, band=0.01) == "cannot tell"
    assert words.decide(across, band=0.01) == "gauss-newton"
    with pytest.raises(ValueError, match="negative values"):
        words.lead_of([-1.0, 1.0], [1.0, 1.0])


def test_equal_is_told_from_not_resolved():
    """Both leave the verdict open; only the first is evidence that the two are alike."""
    equal, open_ = words.Lead(0.001, -0.004, 0.006), words.Lead(0.001, -0.2, 0.2)
    for lead, found in ((equal, "equal within 1%"), (open_, "not resolved")):
        assert words.decide(lead) == "cannot tell"
        assert words.reason("cannot tell", lead).endswith(f": {found}.")
        assert f"({found})" in words.about_seconds(lead, 1.0)
    assert "rows" not in words.more_time(equal, PLAN, 100.0, None)
    assert "rows" in words.more_time(open_, PLAN, 100.0, None)
    shown = words.reason("sgd", words.Lead(-0.3, -0.4, -0.2))
    assert shown.endswith(": a difference is shown.")


LEADS = [
    words.Lead(mean, mean - half, mean + half)
    for mean in (-2.0, -0.3, -0.01, 0.0, 0.01, 0.1, 0.3, 2.0)
    for half in (0.0, 0.005, 0.08, 0.2, 1.0)
]
PLAN = race.Plan(8, 100.0, 5, 0)
SHORT = race.Plan(8, 12.5, 5, 0)


@pytest.mark.parametrize("plan", [PLAN, SHORT])
@pytest.mark.parametrize("lead", LEADS)
def test_an_answer_names_a_side_and_claims_no_more_than_its_interval(lead, plan):
    take = words.safe(lead)
    text = words.answer(lead, take, "px.code()", plan, 100.0)
    assert text.startswith(f"Take {words.NAMES[take]}, px.code(): ")
    assert text.endswith(".") and "-" not in text.replace("Gauss-Newton", "").replace(
        "held-out", ""
    )
    gain = lead.gain(take)
    claimed = "it saves" in text or "it saved" in text
    assert claimed == (gain.low > 0) == (words.decide(lead) == take)
    for end in (gain.low, gain.high):
        assert f"{max(abs(end) if not claimed else end, 0):.1%}" in text or end < 0
    assert "70% interval" in text
    assert ("12.5" in text) == (plan is SHORT)
    # what is taken without a verdict cannot lose more than half of what it may win, or is SGD
    if not claimed and take == "gauss-newton":
        assert lead.high >= 2 * -lead.low


def test_what_more_time_would_buy():
    """A longer race for fewer passes; more settings for few; more rows where folds do not decide."""
    decided = words.Lead(0.3, 0.2, 0.4)
    open_ = words.Lead(0.01, -0.04, 0.06)
    needed = words.Needed(50.0, 200.0, 500.0)
    text = words.more_time(open_, SHORT, 100.0, needed)
    assert "About 4 minutes of budget would race all 100 passes" in text
    assert "and about 9 minutes with three times as many settings." in text
    assert "show differences of about 9.4% or more; four times as many" in text
    text = words.more_time(decided, PLAN, 100.0, words.Needed(30.0, 30.0, 70.0))
    assert text == (
        "About 70 seconds of budget would try more settings of each method than 8."
    )
    full = words.Needed(70.0, 30.0, 70.0)
    assert "it decided" in words.more_time(decided, PLAN, 100.0, full)
    assert "four times as many rows" in words.more_time(open_, PLAN, 100.0, None)


def timed_run(times, losses):
    return race.Run(min(losses), 1.0, None, None, np.array(times), np.array(losses))


def test_equal_seconds():
    """The side that needs a tenth of the time for the same losses leads, and so in words."""
    method = race.Method("m", "sgd", {}, px.sgd, str)
    quick = timed_run([0.0, 0.1, 0.2], [4.0, 2.0, 1.0])
    slow = timed_run([0.0, 1.0, 2.0], [4.0, 2.0, np.nan])
    sides = {
        "sgd": race.TunedMethod(method, {}, (quick, quick)),
        "gauss-newton": race.TunedMethod(method, {}, (slow, slow)),
    }
    lead, seconds = words.equal_seconds(sides)
    assert seconds == 0.2 and lead[:3] == pytest.approx((-math.log(4),) * 3)
    text = words.about_seconds(lead, seconds)
    assert "(0.2 s a run" in text and "SGD saves 75.0% of the held-out loss" in text
    assert "neither" in words.about_seconds(words.Lead(0.1, -0.1, 0.3), seconds)
    same = dict.fromkeys(sides, sides["sgd"])
    assert words.equal_seconds(same)[0] == (0.0, 0.0, 0.0, 2)


def test_the_seconds_of_the_slower_side():
    """The quicker side counts with what it finds later, and with what a run of fewer marks missed."""
    method = race.Method("m", "sgd", {}, px.sgd, str)
    quick = timed_run([0.0, 0.1, 0.2], [4.0, 2.0, 3.0])
    slow = timed_run([0.0, 1.0, 2.0], [4.0, 3.0, 1.5])
    sides = {
        "sgd": race.TunedMethod(method, {}, (quick, quick)),
        "gauss-newton": race.TunedMethod(method, {}, (slow, slow)),
    }
    late = timed_run([0.0, 1.0, 1.9, 2.1], [4.0, 2.5, 0.75, 0.1])
    longer = race.TunedMethod(method, {}, (late, late))
    lead, seconds = words.longer_seconds(sides, "sgd", longer)
    assert seconds == 2.0 and lead[:3] == pytest.approx((-math.log(2),) * 3)
    stuck = race.TunedMethod(method, {}, (timed_run([0.0, 1.0], [4.0, 3.5]),) * 2)
    lead, _ = words.longer_seconds(sides, "sgd", stuck)
    assert lead.mean == pytest.approx(math.log(2.0 / 1.5))
    assert "those of the slower side" in words.about_seconds(lead, seconds, "slower")


@pytest.mark.parametrize(("slow", "passes"), [(0.3, 30.0), (0.1, 10.0), (9.0, 160.0)])
def test_the_quicker_side_runs_on(monkeypatch, slow, passes):
    asked = []

    def again(method, setting, fold, w, passes, seed):
        asked.append((setting, passes, seed))
        return timed_run([0.0, 0.5], [2.0, 1.0])

    monkeypatch.setattr(race, "run", again)
    method = race.Method("m", "sgd", {}, px.sgd, str)
    runs = {"sgd": slow, "gauss-newton": 0.1}
    sides = {
        side: race.TunedMethod(
            method, {side: 1}, (timed_run([0.0, x], [2.0, 1.0]),) * 2
        )
        for side, x in runs.items()
    }
    plan = race.Plan(8, 10.0, 2, 5)
    fold = race.Fold(problem(), problem())
    quicker, longer = race.prolonged(sides, [fold, fold], start(), plan)
    assert quicker == ("sgd" if slow == 0.1 else "gauss-newton")
    assert [each[0] for each in asked] == [{quicker: 1}] * 2
    assert [each[1] for each in asked] == pytest.approx([passes] * 2)
    assert [each[2] for each in asked] == [5, 6] and len(longer.runs) == 2


def test_a_clock_forgets_the_other_programs():
    """Between two marks the least seconds count; a run that ended early says nothing of later ones."""
    runs = [
        timed_run(times, [1.0] * len(times))
        for times in ([0.0, 5.0, 6.0], [0.5, 1.5, 9.0, 11.0], [0.0, 2.0])
    ]
    shared = race.on_one_clock(runs)
    assert [each.times.tolist() for each in shared] == [
        [0.0, 1.0, 2.0],
        [0.0, 1.0, 2.0, 4.0],
        [0.0, 1.0],
    ]


@pytest.mark.parametrize(("at", "passes"), [(12.5, 100), (3.2, 4), (0.0, 1)])
def test_the_passes_of_the_snippet(at, passes):
    """As many as helped; all that were asked for where the race ended too early to know."""
    method = race.Method("m", "sgd", {}, px.sgd, lambda setting: "px.sgd(0.1)")
    run = race.Run(1.0, at, None, None, np.zeros(1), np.ones(1))
    chosen = race.TunedMethod(method, {}, (run, run))
    text = words.snippet(words.Lead(-0.3, -0.4, -0.2), "sgd", chosen, SHORT, 100.0)
    assert f"passes={passes})" in text and "# judged by 12.5 passes" in text
    text = words.snippet(words.Lead(0.0, -0.1, 0.1), "sgd", chosen, PLAN, 100.0)
    assert "# not shown to be better than Gauss-Newton" in text


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
    timed = advisor._Timed(0.1, 0.01, 0.0)
    monkeypatch.setattr(advisor, "_seconds", lambda *_: timed)
    methods = [m for m in race.methods_of(problem(), start(), 100.0) if m.axes]
    most, fold = race.Plan(24, 100.0, 5, 0), race.Fold(problem(), problem())
    both = lambda budget: advisor._affordable(methods, fold, start(), most, budget)
    plan = lambda budget: both(budget)[1]
    assert (plan(76.0).settings, plan(59.0).settings, plan(41.0).settings) == (
        24,
        16,
        8,
    )
    assert (plan(40.0).passes, plan(23.0).passes, plan(0.0).passes) == (
        50.0,
        50.0,
        6.25,
    )
    # what is needed is enough, and hardly more than that
    needed = both(1.0)[2]
    assert plan(needed.fewest).passes == 100.0 > plan(0.99 * needed.fewest).passes
    assert plan(needed.most).settings == 24 > plan(0.99 * needed.most).settings
    assert both(needed.most)[2].planned == needed.most > needed.planned
    # an exact method has one setting, which runs once on each fold
    assert race.runs_of(race.EXACT, most) == 5
    assert race.runs_of(methods[0], most) == 24 + 2 * 4


def test_timing_leaves_time_for_the_race(monkeypatch):
    """Two runs are timed where they fit into the share of their method; else the run that compiles
    tells by its own clock.
    """
    asked = []
    clock = iter(range(100))

    def short(method, setting, fold, w, passes, seed):
        asked.append(passes)
        return timed_run([0.0, 0.5], [2.0, 1.0])

    monkeypatch.setattr(advisor, "run", short)
    monkeypatch.setattr(advisor.time, "monotonic", lambda: float(next(clock)))
    most, fold = race.Plan(24, 100.0, 5, 0), race.Fold(problem(), problem())
    timed = advisor._seconds(race.EXACT, fold, start(), most, 10.0)
    assert asked == [5.0, *[5.0] * 3, *[20.0] * 3] and timed == (1.0, 0.0, 6.0)
    timed = advisor._seconds(race.EXACT, fold, start(), most, 1.0)
    assert asked[7:] == [5.0] and timed == (0.0, 0.1, 0.5)


def test_a_run_that_others_delayed_does_not_decide_the_plan(monkeypatch):
    """The median of three counts: one of them takes a hundred times as long."""
    ends = iter([1.0, 100.0, 1.0, 4.0, 4.0, 400.0])
    times = itertools.chain.from_iterable((0.0, end) for end in ends)
    short = lambda *_: timed_run([0.0, 0.1], [2.0, 1.0])
    monkeypatch.setattr(advisor, "run", short)
    monkeypatch.setattr(advisor.time, "monotonic", lambda: next(times))
    most, fold = race.Plan(24, 100.0, 5, 0), race.Fold(problem(), problem())
    timed = advisor._seconds(race.EXACT, fold, start(), most, 10.0)
    assert timed == pytest.approx((0.0, 0.2, 510.0))


def test_exact_steps_that_have_no_time_are_left_out(monkeypatch):
    def seconds(method, *_):
        return advisor._Timed(0.0, 5.0 if method is race.EXACT else 0.01, 0.0)

    monkeypatch.setattr(advisor, "_seconds", seconds)
    methods = race.methods_of(problem(), start(), 100.0)
    most, fold = race.Plan(24, 100.0, 5, 0), race.Fold(problem(), problem())
    both = lambda budget: advisor._affordable(methods, fold, start(), most, budget)
    names, plan, needed = both(60.0)
    assert names == {"sgd", "pli"} and plan.passes == 100.0 and needed.planned <= 60.0
    names, plan, _ = both(200.0)
    assert "prox_linear" in names and plan.passes == 6.25


def test_one_answer_with_a_snippet_that_runs(monkeypatch):
    """SGD against PLI; with `settings` given the plan asks no clock."""
    monkeypatch.setattr(race, "QUICK_STEP", 0.0)
    monkeypatch.setattr(advisor, "_affordable", lambda *_: pytest.fail("it was timed"))
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
    text = str(advice)
    assert text.startswith(advice.answer) and f"More time: {advice.more}" in text
    assert f"Verdict of the race: {advice.recommendation}. {advice.reason}" in text
    assert advice.snippet.rstrip() in text and advice.codes[advice.take] in text
    assert advice.about_seconds in text and advice.take in ("sgd", "gauss-newton")
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
    run = race.Run(1.0, 1.0, start(), np.asarray(values), np.zeros(1), np.ones(1))
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
