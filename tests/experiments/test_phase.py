"""The study `phase`: a case of each method, shared trials, intervals, the rule of C11, noise, and an image."""

import importlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from proxlin.data.phase import coded_field, pairs, random_codes, relative_distance
from proxlin.errors import UserError
from proxlin.experiments.engine.base import Context
from proxlin.experiments.engine.config import parse, shipped
from proxlin.experiments.phase import (
    STUDY,
    Config,
    convergence_rows,
    counted,
    counts_of,
    entries_of,
    success_rows,
    verdicts,
)
from proxlin.experiments.phase_task import (
    EXACT,
    GRIDS,
    SUCCESS,
    Geometric,
    converge,
    draw_trials,
    patterns_of,
    picture,
    recover,
    starts_of,
    succeed,
)
from proxlin.theory import binomial_interval

QUICK: dict[str, Any] = shipped("phase")["quick"]
ARENA = QUICK["arenas"]["real-gaussian"]
CASE = {"kind": "gaussian", "complex": False, "n": 6, "ratio": 6.0, "corruption": 0.0}
CASE |= {"trials": 4, "seed": 3, "steps": 30, "passes": 60.0}
CASE |= {"starts": ["random", "spectral"]}
NOISE = {"n": 8, "ratio": 6.0, "seed": 2, "steps": 12}


@pytest.mark.parametrize("method", GRIDS)
def test_a_case_of_each_method(method):
    axes = GRIDS[method]
    setting = {name: axis.value(0) for name, axis in axes.items()}
    found = succeed({**CASE, "method": method, **setting})
    assert found["validation_loss"] < -1  # in the mean, errors below a tenth
    for start in ("random", "spectral"):
        assert 0 <= found[f"successes_{start}"] <= 4
    if method == EXACT:
        assert found["successes_spectral"] == 4
        assert found["median_error_spectral"] < 1e-9
    if found["successes_spectral"] > 2:
        assert found["median_error_spectral"] <= SUCCESS


def test_methods_share_their_trials_and_starts():
    one, two = ({**CASE, "method": name} for name in (EXACT, "sgd"))
    for first, second in zip(draw_trials(one), draw_trials(two), strict=True):
        assert np.array_equal(first.rows, second.rows)
        assert np.array_equal(first.squares, second.squares)
    drawn = draw_trials(one)
    starts = starts_of(drawn, one)
    lengths = {name: np.linalg.norm(w, axis=1) for name, w in starts.items()}
    assert np.allclose(lengths["random"], lengths["spectral"])
    other = draw_trials({**one, "seed": 4})
    assert not np.array_equal(drawn[0].rows, other[0].rows)


def test_steps_shrink_geometrically():
    steps = Geometric(jnp.asarray(2.0), jnp.asarray(0.5))
    assert [float(steps(t)) for t in range(3)] == [2.0, 1.0, 0.5]


def test_convergence_is_quadratic_until_the_noise():
    """The law of Propositions 1 and 2: e <= c e^2 on a sharp F, and with noise down to the size of the noise."""
    sharp = converge({**NOISE, "noise": 0.0})
    errors = np.asarray(sharp["curve_error"])
    close = (errors[:-1] < 0.1) & (errors[1:] > 1e-13)
    assert close.any() and errors[-1] < 1e-13
    assert (errors[1:][close] < 10 * errors[:-1][close] ** 2).all()
    assert sharp["level"] < 1e-14
    ends = {}
    for noise in (1e-6, 1e-3):
        run = converge({**NOISE, "noise": noise})
        assert run["curve_value"][-1] <= run["level"]
        ends[noise] = run["curve_error"][-1] / noise
        assert 0.01 < ends[noise] < 10
    # what is left is in proportion to the noise
    assert ends[1e-6] == pytest.approx(ends[1e-3], rel=0.05)


def test_an_image_from_corrupted_patterns():
    image = picture(8)
    assert image.shape == (8, 8) and image.min() >= 0 and image.max() == 1
    code, squares, wrong = patterns_of(image, 3, 0.2, np.random.default_rng(0))
    assert squares.shape == wrong.shape == (3, 64) and 0.05 < wrong.mean() < 0.4
    field = np.fft.fft2((code[0, 0] + 1j * code[0, 1]) * image, norm="ortho")
    right = ~wrong[0]
    assert np.allclose(squares[0][right], (np.abs(field) ** 2).ravel()[right])
    found = recover({"side": 8, "codes": 8, "corruption": 0.1, "steps": 30, "seed": 0})
    assert found["error"] <= SUCCESS
    again = np.reshape(found["recovered"], (8, 8))
    assert np.abs(again - image).max() < 1e-3  # the stored image has four digits


def test_a_field_of_a_complex_image_is_its_fourier_transform():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))
    code = random_codes((4, 4), rng)
    both = pairs(np.stack([x, code]))
    field = np.asarray(coded_field(jnp.asarray(both[0]), jnp.asarray(both[1])))
    assert np.allclose(field, np.fft.fft2(code * x, norm="ortho"))
    assert relative_distance(pairs((1j * x.ravel())[None])[0], x.ravel()) < 1e-12


def test_seeds_that_count_have_not_been_searched():
    config = parse(Config, QUICK)
    setting = {entry.label: {} for entry in entries_of(config)}
    cases = counted(config, setting, 1000)
    searched = {entry.case({}, 1000).settings["seed"] for entry in entries_of(config)}
    assert searched == {1000}
    assert {case.settings["seed"] for _, case in cases}.isdisjoint(searched)
    results = []
    for _, case in cases:
        results.append({f"successes_{name}": 3 for name in case.settings["starts"]})
    counts = counts_of(cases, results)
    trials = config.trials
    cell = ("real-gaussian", EXACT, 2.5, 0.0)
    assert counts[cell, "random"] == (3, trials)
    # the verdict has more seeds, from spectral starts alone
    assert counts[cell, "spectral"] == (6, 2 * trials)
    rows = success_rows(config, counts, {})
    for row in rows:
        ends = binomial_interval(row["successes"], row["trials"])
        assert (row["low"], row["high"]) == ends
        assert row["low"] <= row["share"] <= row["high"]


def test_the_rule_of_c11():
    config = parse(Config, QUICK)

    def judged(successes, trials):
        counts = {(("real-gaussian", EXACT, 2.5, 0.0), "spectral"): (successes, trials)}
        (only,) = verdicts(config, counts, 0)
        assert only.claim == "C11" and f"{successes} of {trials}" in only.number
        return only.verdict

    assert judged(400, 400) == "reproduced"
    assert judged(99, 100) == "not resolved"
    assert judged(80, 100) == "not reproduced"


def test_quotients_of_the_convergence_table():
    config = parse(Config, {**QUICK, "noise": [0.0, 0.1]})
    run = {"curve_error": [0.5, 0.25, 0.0], "curve_value": [4.0, 1.0, 0.5]}
    rows = convergence_rows(config, [run | {"level": 0.0}, run | {"level": 2.0}])
    assert [row["over_square_of_last"] for row in rows[:3]] == [None, 1.0, 0.0]
    assert [row["value_over_level"] for row in rows] == [None] * 3 + [2.0, 0.5, 0.25]


REFUSED = [
    ({"ratios": [0.5], "corrupted": 0.5}, "fewer measurements than unknowns"),
    ({"kind": "fourier"}, "take one of gaussian, hadamard, coded"),
    ({"shares": [1.0]}, "below 1"),
    ({"methods": ["newton"]}, "take one of prox-linear"),
    ({"starts": ["zero"]}, "take one of random, spectral"),
    ({"starts": []}, "must not be empty"),
    ({"methods": ["sgd"]}, "with the method prox-linear"),
    ({"complex": True}, "gaussian and real"),
    ({"ratios": [4.0]}, "judged has to hold ratios"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_a_wrong_config_is_refused_in_a_sentence(change, words):
    arenas = {"real-gaussian": {**ARENA, **change}}
    with pytest.raises(UserError, match=words):
        parse(Config, {**QUICK, "arenas": arenas})


def test_settings_of_the_whole_are_refused_in_a_sentence():
    for change, words in (
        ({"promised": 1.0}, "below 1"),
        ({"side": 1}, "at least 2 pixels"),
    ):
        with pytest.raises(UserError, match=words):
            parse(Config, {**QUICK, **change})
    lacking = {key: value for key, value in ARENA.items() if key != "n"}
    with pytest.raises(UserError, match="The table real-gaussian of the config lacks"):
        parse(Config, {**QUICK, "arenas": {"real-gaussian": lacking}})


def test_the_study():
    tiny = {**ARENA, "n": 4, "ratios": [4.0], "methods": [EXACT, "sgd"]}
    config = {**QUICK, "arenas": {"real-gaussian": tiny}, "trials": 2, "side": 8}
    config |= {"judged": [4.0], "passes": 10.0, "noise_n": 4, "codes": 8}

    def here(cases):
        found = []
        for case in cases:
            module, name = case.task.split(":")
            found.append(getattr(importlib.import_module(module), name)(case.settings))
        return found

    result = STUDY.run(Context("quick", config, 0, "", print, here))
    assert set(result.figures) == {"ratio", "corruption", "convergence", "image"}
    assert set(result.tables) == {"successes", "convergence", "image"}
    # two starts, two methods, and the cells without and with gross errors
    assert len(result.tables["successes"]) == 8
    assert [each.claim for each in result.verdicts] == ["C11"]
    for profile in ("quick", "paper"):
        assert STUDY.plan is not None
        plan = STUDY.plan(shipped("phase")[profile], 0)
        assert plan.cases > len(plan.first) > 0
