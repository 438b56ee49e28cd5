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
    at_equal_steps,
    entries_of,
    origins_of,
    paired,
    verdicts,
)
from proxlin.experiments.equations_task import GRIDS, problems_of, solver_of, train
from proxlin.experiments.tuning import Tuned

SETTINGS = {
    "gd": {"step": 1.0},
    "sgd": {"step": 1.0, "decay": 0.5, "batch": 64},
    "pl": {"kappa": 1.0},
    "pli-apg": {"kappa": 1.0, "batch": 64},
    "sgd-average": {"step": 0.3, "weight": 0.3, "batch": 64},
    "sgd-svrg": {"step": 0.3, "batch": 64, "period": 100},
}


ALL = dict.fromkeys(GRIDS)


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


def test_equal_steps_and_equal_seeds():
    """The quicker method has no more steps than the other one took; what has more seeds gives up the rest."""
    curve = {"curve_step": [0, 1, 2, 3], "curve_validation": [4.0, 3.0, 2.0, 1.0]}
    many = {**curve, "curve_test": [4.0, 3.0, 2.0, 1.0], "test_loss": 1.0}
    few = {"curve_step": [0, 1], "curve_validation": [4.0, 1.5], "test_loss": 1.5}
    few |= {"curve_test": [4.0, 1.5]}
    one, two = Tuned({}, (many, many), 0.0, ()), Tuned({}, (few, few), 0.0, ())
    found = at_equal_steps(one, two, 0.95)
    assert found.shown(found.mean) == pytest.approx(1.5 / 3.0 - 1)
    more = Tuned({}, (many, many, many), 0.0, ())
    found = paired(more, two, 0.95)
    assert found.units == 2 and found.shown(found.mean) == pytest.approx(0.5)


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
    """One verdict for each data set. What the seeds cannot tell is not on par: fewer seeds are no evidence."""
    rules = parse(Config, shipped("fig5")["quick"]).rules
    runs = lambda losses: Tuned({}, tuple({"test_loss": x} for x in losses), 0.0, ())
    one = np.array([1.0, 2.0, 3.0])

    def judged(pl, pli):
        found = {}
        for data, batch, mini in (("a", pl[0], pli[0]), ("b", pl[1], pli[1])):
            found[data, "gd"] = found[data, "sgd"] = runs(one)
            found[data, "pl"], found[data, "pli"] = runs(batch * one), runs(mini * one)
        return [each.verdict for each in verdicts(rules, found, 1)]

    noisy = np.array([0.8, 1.0, 1.3])
    yes, no, equal = "reproduced", "not reproduced", "equal beyond the rule"
    assert judged((0.5, 0.6), (1.0, 1.01)) == [yes, yes, yes, yes]
    assert judged((1.2, 1.004), (1.1, noisy)) == [no, equal, no, "not resolved"]
    row = verdicts(rules, {("a", m): runs(one * noisy) for m in SETTINGS | ALL}, 0)[1]
    assert row.claim == "C8" and row.units == "3 seeds" and "a: test loss" in row.number


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
    rule = parse(Config, shipped("fig5")["quick"]).rules["C9"]

    def judged(each):
        rows = [{"data": "a", "batch": batch, **each} for batch in bias.BATCHES]
        (only,) = bias.verdicts(rule, rows, 1)
        return only.verdict

    assert judged(found) == "reproduced" and judged(none) == "equal beyond the rule"
    assert judged({"bias": 0.02, "low": -0.01, "high": 0.05}) == "not resolved"


def test_wrong_configs_are_refused():
    quick = shipped("fig5")["quick"]
    for change, word in (
        ({"data": ["mnist"]}, "mnist"),
        ({"outer": "l7"}, "l7"),
        ({"seeds": 1}, "seeds"),
        ({"methods": ["gd"]}, "methods has to hold"),
        ({"methods": ["adam"]}, "adam"),
    ):
        with pytest.raises(UserError, match=word):
            parse(Config, {**quick, **change})
