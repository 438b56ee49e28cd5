"""Figure 2: the generator, one case, and the whole study on a tiny config, with its cases run in
this process.
"""

import importlib
import math

import jax.numpy as jnp
import numpy as np
import pytest

from proxlin.data.regression import Teacher
from proxlin.experiments.engine.base import Case, Context
from proxlin.experiments.engine.config import parse, shipped
from proxlin.experiments.regression import STUDY, Config, verdicts
from proxlin.experiments.regression_task import GRIDS, solver_of, train
from proxlin.experiments.tuning import Tuned, compare, winner

TINY = {
    "samples": [16],
    "ratios": [1e1, 1e5],
    "widths": [4],
    "passes": 8.0,
    "patience": 8.0,
    "settings": 3,
    "finalists": 2,
    "search_seeds": 1,
    "fresh": False,
    "seeds": 3,
    "views": 2,
}
TINY |= {
    "validation": 20,
    "test": 20,
    "activation": "elu",
    "noise": "laplace",
    "check": [],
    "variants": ["averaged"],
}
TINY |= {"variant_samples": [16], "variant_ratios": [1e5], "variant_seeds": 2}
TINY |= {"rules": shipped("fig2")["quick"]["rules"]}


def test_the_generator_is_the_papers():
    teacher = Teacher(3, 1e4)
    first, second = teacher.sample(400, "train"), Teacher(3, 1e6).sample(50, "train")
    assert first.x.shape == (400, 128) and first.y.shape == (400, 10)
    assert np.array_equal(first.x[:50], second.x) and np.array_equal(
        first.clean[:50], second.clean
    )
    weights, sigma = teacher._weights()
    size = sum(float(np.sum(layer["W"] ** 2)) for layer in weights)
    assert size == pytest.approx(128 * 256 + 256 * 10, rel=0.05)
    assert size / sigma**2 == pytest.approx(
        1e4
    ) and first.sigma == sigma == pytest.approx(10 * second.sigma)
    np.testing.assert_allclose(
        first.x.std(axis=0)[:20] * np.arange(1, 21), 1, atol=0.15
    )
    h = first.x @ weights[0]["W"].T
    naive = np.where(h > 0, h, np.expm1(h)) @ weights[1]["W"].T
    np.testing.assert_allclose(first.clean, naive, rtol=1e-9, atol=1e-9)
    assert not np.array_equal(first.x[:20], teacher.sample(20, "test").x)
    assert not np.array_equal(first.x, Teacher(4, 1e4).sample(400, "train").x)


@pytest.mark.parametrize(
    ("noise", "spread"),
    [("laplace", math.sqrt(2)), ("gaussian", 1.0), ("student", math.sqrt(3))],
)
def test_noise_has_its_scale(noise, spread):
    sample = Teacher(0, 1e2, noise=noise).sample(3000, "train")
    xi = (sample.y - sample.clean) / sample.sigma
    inner = np.quantile(np.abs(xi), 0.5)
    medians = {"laplace": math.log(2), "gaussian": 0.6745, "student": 0.7649}
    assert inner == pytest.approx(medians[noise], rel=0.05)
    assert xi.std() == pytest.approx(spread, rel=0.1 if noise != "student" else 0.5)


def test_wrong_teachers_are_refused():
    for arguments in (
        {"snr": 0.0},
        {"snr": 1.0, "noise": "pink"},
        {"snr": 1.0, "activation": "relu"},
    ):
        with pytest.raises(ValueError, match="take one of|must be one of|positive"):
            Teacher(0, **arguments).sample(2, "train")


def test_the_step_of_a_schedule_is_that_of_half_way():
    for decay in (0.0, 0.5, 1.0):
        schedule = solver_of("sgd", {"step": 0.01, "decay": decay}, 100, 20.0).schedule
        assert float(schedule(jnp.asarray(999))) == pytest.approx(0.01, rel=1e-4)


def here(cases: list[Case]) -> list[dict]:
    """The sweep engine replaced by calls in this process."""
    found = []
    for case in cases:
        module, name = case.task.split(":")
        found.append(getattr(importlib.import_module(module), name)(case.settings))
    return found


def test_the_whole_study_on_a_tiny_config():
    asked: list[Case] = []

    def sweep(cases):
        asked.extend(cases)
        return here(cases)

    result = STUDY.run(Context("quick", TINY, 0, "", lambda text: None, sweep))
    cells = result.tables["cells"]
    assert [(row["snr"], row["n"]) for row in cells] == [(1e1, 16), (1e5, 16)]
    for row in cells:
        assert row["low"] <= row["gain_of_sgd"] <= row["high"] and row["winner"] in (
            "sgd",
            "pli",
            "equal",
            "not resolved",
        )
        assert row["sgd_loss"] > 0 and row["sgd_clean_loss"] <= 1.2 * row["sgd_loss"]
    searched = [
        case.settings
        for case in asked
        if case.settings["snr"] == 1e5 and case.settings["seed"] == 0
    ]
    tried = {
        method: {
            tuple(sorted(each.items())) for each in searched if each["method"] == method
        }
        for method in ("sgd", "pli", "pli-accept", "sgd-averaged")
    }
    # the same number of settings for each
    assert {len(each) for each in tried.values()} == {TINY["settings"]}
    assert [row["variant"] for row in result.tables["sensitivity"]] == [
        "as configured",
        "averaged",
    ]
    assert {verdict.claim for verdict in result.verdicts} == {"C4", "C5"}
    # the same claims with acceptance, which judge nothing
    assert [row["claim"] for row in result.tables["choices"]] == ["C4", "C4", "C5"]
    assert {row["choice"] for row in result.tables["choices"]} == {
        "only steps that do not increase F"
    }
    assert [(point.x, point.y) for point in result.figures["cells"].points] == [
        (0, 0),
        (0, 1),
    ]
    planned = STUDY.plan(TINY, 0)
    assert (
        planned.cases == len({tuple(sorted(case.settings.items())) for case in asked})
        and planned.work > 0
    )


def test_a_diverged_setting_is_a_result():
    entry = next(
        case for case in STUDY.plan(TINY, 0).first if case.settings["method"] == "sgd"
    )
    found = train({**entry.settings, "step": 1e12})
    assert (
        found["diverged"]
        and math.isfinite(found["validation_loss"])
        and found["best_at"] == 0.0
    )


def test_verdicts_follow_their_rules():
    """Made-up losses: the gain of SGD grows with the SNR, and cells of one seed are one unit."""
    config = parse(Config, TINY)
    runs = lambda losses: Tuned({}, tuple({"test_loss": x} for x in losses), 0.0, ())

    def judged(at_low, at_high, spread=0.0):
        noise = 1 + spread * np.array([-1.0, 0.0, 1.0])
        found = {}
        for arena in config.cells():
            ratio = at_low if arena.snr < 1e3 else at_high
            found[arena, "sgd"] = runs([1.0, 2.0, 3.0])
            found[arena, "pli"] = runs(ratio * noise * [1.0, 2.0, 3.0])
        return [each.verdict for each in verdicts(config, found, [], 1)]

    yes, no, equal = "reproduced", "not reproduced", "equal beyond the rule"
    assert judged(1.0, 1.5) == [yes, yes, yes]
    assert judged(1.0, 0.5) == [no, no, yes]
    assert judged(1.001, 1.001) == [equal, equal, yes]
    assert judged(1.2, 1.2) == [yes, equal, no]
    # the noise of a seed is shared by its cells, so it cancels between them
    assert judged(1.0, 1.5, spread=0.5) == ["not resolved", yes, "not resolved"]
    texts = verdicts(
        config, {key: runs([1.0, 2.0, 3.0]) for key in keys(config)}, [], 0
    )
    assert all("Post hoc: results with seed 0" in each.rule for each in texts)
    assert all(each.units == "3 seeds" for each in texts)


def keys(config):
    return [(arena, method) for arena in config.cells() for method in ("sgd", "pli")]


def test_a_winner_needs_the_interval_and_the_band():
    one = np.array([1.0, 2.0, 3.0])
    who = lambda *losses: winner(compare(*losses), 0.01, "sgd", "pli")
    assert who(one, one * 1.2) == "sgd" and who(one * 1.2, one) == "pli"
    # beyond the seeds, but within the band
    assert who(one, one * 1.005) == "equal"
    # beyond the band, but not the seeds
    assert who(one, one * np.array([0.8, 1.2, 1.5])) == "not resolved"


def test_every_method_has_a_grid_and_configs_ship():
    assert set(GRIDS) >= {
        "sgd",
        "pli",
        "pli-dual",
        "sgd-averaged",
        "sgd-permuted",
        "sgd-smoothed",
    }
    for profile, table in shipped("fig2").items():
        # room for the whole bracket of PLI
        assert parse(Config, table).settings >= 9, profile
