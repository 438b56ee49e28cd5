"""Figure 5: one case of each kind, and the rules of its verdicts."""

import jax.numpy as jnp
import numpy as np
import pytest

from proxlin import L1, LossOfMean, SquaredL2
from proxlin.data import classification
from proxlin.errors import UserError
from proxlin.experiments import equations_bias as bias
from proxlin.experiments.engine.config import parse, shipped
from proxlin.experiments.equations import (
    STUDY,
    Config,
    entries_of,
    origins_of,
    verdicts,
)
from proxlin.experiments.equations_task import GRIDS, problems_of, solver_of, train

SETTINGS = {
    "gd": {"step": 1.0},
    "sgd": {"step": 1.0, "decay": 0.5, "batch": 64},
    "pl": {"kappa": 1.0},
}


def content() -> str:
    """What the rows of ijcnn1 are on this machine: the file, or the stand-in."""
    return classification.origin_of("ijcnn1").content


@pytest.mark.parametrize("method", SETTINGS)
def test_a_case_stays_within_its_passes_and_is_judged_on_validation(method):
    asked = {
        "data": "ijcnn1",
        "content": content(),
        "rows": 300,
        "seed": 1,
        "outer": "huber",
        "method": method,
        "passes": 5.0,
    }
    found = train({**asked, **SETTINGS[method]})
    passes, test = np.asarray(found["curve_passes"]), np.asarray(found["curve_test"])
    assert (
        passes[0] == 0
        and passes[-1] <= 5
        and len(passes) == len(test) == len(found["curve_seconds"])
    )
    at = int(np.argmin(np.abs(passes - found["best_at"])))
    assert test[at] == found["test_loss"] < test[0]


def test_the_parts_do_not_meet_and_follow_from_the_seed():
    train_set, validation, _ = problems_of("ijcnn1", content(), 300, 0, "l2")
    rows = {tuple(row) for row in np.asarray(train_set.data).tolist()}
    assert len(train_set) == len(validation) == 300
    assert not rows & {tuple(row) for row in np.asarray(validation.data).tolist()}
    again = problems_of("ijcnn1", content(), 300, 1, "l2")[0]
    assert not np.array_equal(again.data, train_set.data)


def test_every_method_has_a_solver_and_the_same_budget():
    config = parse(Config, shipped("fig5")["paper"])
    entries = entries_of(config, origins_of(config))
    assert {entry.grid.budget for entry in entries} == {config.settings}
    for method, axes in GRIDS.items():
        setting = {name: axis.value(axis.bracket[0]) for name, axis in axes.items()}
        assert solver_of(method, setting, 1000, 10.0).name()
    assert STUDY.plan(shipped("fig5")["quick"], 0).cases > 50


def test_verdicts_follow_their_rules():
    def rows(batch, mini):
        row = {"difference": -0.1, "low": -0.2, "high": -0.05}
        one = [
            {"data": str(i), "gauss_newton": "PL", "winner": w, **row}
            for i, w in enumerate(batch)
        ]
        return one + [
            {"data": str(i), "gauss_newton": "PLI", "winner": w, **row}
            for i, w in enumerate(mini)
        ]

    judged = lambda *sides: [each.verdict for each in verdicts(rows(*sides))]
    assert judged(["PL", "PL"], ["tie", "tie"]) == ["reproduced", "reproduced"]
    assert judged(["PL", "GD"], ["SGD", "SGD"]) == ["not reproduced", "not reproduced"]
    assert judged(["PL", "tie"], ["tie", "PLI"]) == ["undecided", "undecided"]


def test_the_bias_of_a_mini_batch_is_that_of_the_formula():
    x = np.random.default_rng(0).normal(3.0, 1.0, (50, 1))
    w, scaled = jnp.asarray([2.0]), lambda w, x: x * w
    # E g_B = (mean^2 + variance / 4) w
    found = bias.measure(LossOfMean(scaled, SquaredL2(), x), w, 4, 0)
    assert (
        abs(found["bias"] - x.var() / 4 / x.mean() ** 2)
        < found["high"] - found["low"]
        < 0.01
    )
    none = bias.measure(LossOfMean(scaled, L1(), x + 10), w, 4, 0)  # f is linear there
    assert abs(none["bias"]) < 1e-12
    judged = lambda each: (
        bias.verdict([{"data": "a", "batch": min(bias.BATCHES), **each}]).verdict
    )
    assert judged(found) == "reproduced" and judged(none) == "not reproduced"
    assert judged({"bias": 0.02, "low": -0.01, "high": 0.05}) == "undecided"


def test_wrong_configs_are_refused():
    quick = shipped("fig5")["quick"]
    for change, word in (
        ({"data": ["mnist"]}, "mnist"),
        ({"outer": "l7"}, "l7"),
        ({"seeds": 1}, "seeds"),
    ):
        with pytest.raises(UserError, match=word):
            parse(Config, {**quick, **change})
