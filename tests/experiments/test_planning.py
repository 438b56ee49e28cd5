"""Figures 3 and 4: a case, the whole study on made-up results, and the rules of its verdicts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxlin.data.maps import METRICS, path_metrics
from proxlin.errors import UserError
from proxlin.experiments import planning_picture
from proxlin.experiments.engine.base import Context
from proxlin.experiments.engine.config import parse, shipped
from proxlin.experiments.planning import (
    STUDY,
    Config,
    Lead,
    case_of,
    entries_of,
    verdicts,
)
from proxlin.experiments.planning_task import (
    GRIDS,
    arena_of,
    floors,
    parts_of,
    picture,
    train,
)
from proxlin.experiments.tasks import start_key, structured_solver

TINY = {
    "maps": 6,
    "validation": 5,
    "test": 5,
    "side": 3,
    "tile": 4,
    "channels": [2],
    "top": 3,
    "ridges": [1.0, 1e-4],
}
TINY |= {"passes": 6.0, "settings": 3, "finalists": 1, "seeds": 2}
TINY |= {"search_seeds": 1, "fresh": False}
TINY |= {"rules": shipped("fig4")["quick"]["rules"]}


def settings(method, setting, seed=0, task="train"):
    return dict(case_of(method, 1.0, parse(Config, TINY), setting, seed, task).settings)


def test_a_case_is_judged_at_its_best_checkpoint_on_validation():
    found = train(settings("sgd", {"step": 3e-3}))
    passes = found["curve_passes"]
    assert passes[0] == 0 and passes[-1] == 6 and passes == sorted(passes)
    assert all(
        len(found[f"curve_{name}"]) == len(passes) for name in (*METRICS, "seconds")
    )
    assert all(found[name] in found[f"curve_{name}"] for name in METRICS)
    assert found["hamming"] >= found["nearest"] and found["regret"] >= 0


def test_scores_that_are_not_finite_are_no_perfect_paths():
    arena = arena_of(settings("sgd", {}))
    w = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), arena.w)
    assert np.isinf(arena.measure(w))
    assert all(
        np.isinf(metric(w))
        for metric in path_metrics(arena.predict, arena.test).values()
    )


def test_a_start_shares_no_key_with_the_epochs_of_its_run():
    """split(key)[0] is fold_in(key, 0), the key of the first epoch."""
    bits = lambda key: tuple(jax.random.key_data(key).tolist())
    for seed in (0, 7):
        start, run = start_key(seed), jax.random.key(seed)
        layers = {bits(key) for key in jax.random.split(start, 5)}
        epochs = {bits(jax.random.fold_in(run, t)) for t in range(50)}
        assert not (layers | {bits(start)}) & (epochs | {bits(run)})
    case = settings("sgd", {"step": 0.1}, seed=7)
    arena = arena_of(case)
    expected = arena.predict.init(start_key(7), jnp.float32)
    for x, y in zip(jax.tree.leaves(arena.w), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_parts_do_not_meet_and_follow_from_the_seed():
    train_maps, validation, test = parts_of(settings("sgd", {}))
    images = [
        each.tobytes()
        for part in (train_maps, validation, test)
        for each in part.pixels
    ]
    assert len(set(images)) == 16 == len(images)
    assert not np.array_equal(
        parts_of(settings("sgd", {}, seed=1))[0].pixels, train_maps.pixels
    )


def made_up(cases):
    """Results without training: PLI is a cell worse than the others, everywhere."""
    rng = np.random.default_rng(0)
    results = []
    for case in cases:
        task, method = case.task.split(":")[1], case.settings["method"]
        if task == "floors":
            results.append(floors(case.settings))
            continue
        value = 1.0 + (method == "pli") + 0.01 * rng.random()
        curve = [4.0, 2.0, value]
        result = dict.fromkeys(("validation_loss", *METRICS), value) | {
            "best_at": 6.0,
            "diverged": False,
        }
        result |= {"exact": 0.5} if "nu" in case.settings else {}
        result |= {f"curve_{name}": curve for name in METRICS}
        results.append(
            result | {"curve_passes": [0.0, 3.0, 6.0], "curve_seconds": [0.0, 0.1, 0.2]}
        )
    return results


def test_the_study():
    result = STUDY.run(Context("quick", TINY, 0, "", print, made_up))
    assert set(result.figures) == {
        f"{name}-{axis}" for name in METRICS for axis in ("passes", "seconds")
    }
    assert len(result.tables["losses"]) == 12
    assert len(result.timings["curves"]) == len(result.tables["curves"]) == 36
    assert len(result.tables["duels"]) == 10 and {
        row["ridge_times_n"] for row in result.tables["duels"]
    } == {1.0, 1e-4}
    assert [each.claim for each in result.verdicts] == ["C6", "C6"]
    assert (
        result.verdicts[0].verdict == "reproduced"
        and "PLI" not in result.verdicts[0].number
    )
    assert all(
        row["hamming"] < -0.9 for row in result.tables["duels"] if row["rival"] == "PLI"
    )
    floor = result.tables["floor"][0]
    assert (
        floor["true_rewards"] >= 0
        and f"{floor['true_rewards']:.2f} cells off" in result.notes[0]
    )
    drawing = result.figures["hamming-passes"]
    assert len(drawing.points) == 36 and "6 effective passes" in drawing.points[-1].text
    labels = [line.get_label() for line in drawing.figure.axes[0].lines]
    assert "true rewards, ties by chance" in labels and len(drawing.figure.axes) == 2


def test_the_picture():
    sweep = lambda cases: [picture(case.settings) for case in cases]
    result = planning_picture.STUDY.run(Context("quick", TINY, 0, "", print, sweep))
    rows = result.tables["map"]
    assert (
        len(rows) == 9
        and sum(row["label"] for row in rows)
        == sum(row["predicted"] for row in rows)
        == 5
    )
    assert len(result.figures["map"].axes) == 5  # three panels and two colour bars


def test_verdicts_follow_their_rules():
    rules = parse(Config, TINY).rules

    def lead(mean, spread):
        values = mean + spread * np.array([-1.0, 0.0, 1.0])
        return Lead("1e-4", "SVRG", dict.fromkeys(METRICS, values))

    judged = lambda every, least: [
        each.verdict for each in verdicts(rules, lead(*every), lead(*least), 1)
    ]
    yes, no, equal = "reproduced", "not reproduced", "equal beyond the rule"
    assert judged((0.1, 0.05), (-0.5, 0.05)) == [yes, yes]
    assert judged((-9.0, 0.05), (0.1, 0.05)) == [yes, equal]
    assert judged((0.5, 0.05), (0.5, 0.05)) == [no, no]
    assert judged((0.1, 0.5), (-0.1, 0.5)) == ["not resolved", "not resolved"]


def test_every_method_has_a_solver_and_the_same_budget():
    config = parse(Config, shipped("fig4")["paper"])
    assert {entry.grid.budget for entry in entries_of(config)} == {config.settings}
    for method, axes in GRIDS.items():
        setting = {name: axis.value(axis.bracket[0]) for name, axis in axes.items()}
        assert structured_solver(method, setting, 10_000.0).name()
    assert STUDY.plan(shipped("fig4")["quick"], 0).cases == 3 * 6 * 5 + 3


def test_wrong_configs_are_refused():
    for change, word in (
        ({"seeds": 1}, "seeds"),
        ({"ridges": []}, "ridges"),
        ({"tile": 6}, "6 pixels"),
        ({"side": 1}, "side"),
    ):
        with pytest.raises(UserError, match=word):
            parse(Config, {**TINY, "channels": [2, 2], "tile": 4, **change})
