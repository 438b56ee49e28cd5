"""Figures 3 and 4: a case, the whole study on made-up results, and the rules of its verdicts."""

from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxlin.cli.main import main
from proxlin.data import map_sources
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


def test_a_case_that_only_chooses_does_not_look_at_the_test_maps():
    """With fresh seeds, no result of a seed of the search is in any table."""
    config = parse(Config, {**TINY, "fresh": True})
    chooses, judges = (
        dict(case_of("sgd", 1.0, config, {"step": 3e-3}, seed).settings)
        for seed in (4000, 4001)
    )
    assert set(train(chooses)) == {"validation_loss", "best_at", "diverged"}
    assert set(METRICS) <= set(train(judges))


def test_the_search_of_pli_is_checked_against_a_full_grid():
    config = {**TINY, "check": [1e-4], "search_seeds": 2}
    result = STUDY.run(Context("quick", config, 0, "", print, made_up))
    (row,) = result.tables["search"]
    assert (row["ridge_times_n"], row["full_grid"], row["tried"]) == (1e-4, 54, 3)
    assert row["search_over_full"] == row["best_of_search"] / row["best_of_full"]
    with pytest.raises(UserError, match="check has to hold some of the ridges"):
        parse(Config, {**TINY, "check": [0.5]})


def parts_from(source, **changes):
    config = parse(Config, {**TINY, **changes, "source": str(source)})
    return parts_of(case_of("sgd", 1.0, config, {}, 1000).settings)


def test_maps_of_warcraft_files(tmp_path, monkeypatch):
    monkeypatch.setenv("PROXLIN_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    for split, count in (("train", 12), ("test", 7)):
        base = tmp_path / "mine"
        base.mkdir(exist_ok=True)
        images = rng.integers(0, 255, (count, 12, 12, 3), np.uint8)
        np.save(base / f"{split}_maps.npy", images)
        weights = rng.integers(1, 4, (count, 3, 3)).astype(float)
        np.save(base / f"{split}_vertex_weights.npy", weights)
        np.save(base / f"{split}_shortest_paths.npy", np.zeros((count, 3, 3), np.uint8))
    origin = map_sources.origin_of("mine", 3, 4)
    assert origin.label == "Warcraft maps (another file)"
    known, validation, test = parts_from("mine")
    assert (len(known), len(validation), len(test)) == (6, 5, 5)
    images = {each.tobytes() for part in (known, validation) for each in part.pixels}
    assert len(images) == 11
    weights = np.load(tmp_path / "mine/test_vertex_weights.npy")
    assert all((each == -weights).all((1, 2)).any() for each in test.rewards)
    # every label is an optimal path
    assert not test.optimal().regret(test.paths).any()
    for changes, words in (
        ({"tile": 8}, "side = 3 and tile = 8; write the numbers"),
        ({"maps": 8}, "there are 12 train maps, and the config asks for 13"),
    ):
        with pytest.raises(UserError, match=words):
            parts_from("mine", **changes)
    old = dict(
        case_of("sgd", 1.0, parse(Config, {**TINY, "source": "mine"}), {}, 0).settings
    )
    np.save(tmp_path / "mine/test_vertex_weights.npy", weights + 1)
    with pytest.raises(UserError, match="when the sweep was begun, but here they are"):
        parts_of(old)


def test_maps_of_a_folder_of_tiles(tmp_path, monkeypatch):
    images = pytest.importorskip("PIL.Image")
    colours = {"grass": 10, "desert": 60, "water": 120, "rock": 200}
    for name, colour in colours.items():
        images.new("RGB", (4, 4), (colour,) * 3).save(tmp_path / f"{name}.png")
    test = parts_from(tmp_path)[2]
    assert (
        np.ptp(test.tiles().astype(int), axis=(2, 3, 4)).max() < 60
    )  # one tile a cell
    assert map_sources.origin_of(str(tmp_path), 3, 4).kind == "generated"
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))
    for source, words in (
        ("warcraft", "`proxlin data get warcraft` downloads them"),
        (str(tmp_path / "none"), "there is no such folder of tiles or Warcraft files"),
    ):
        with pytest.raises(UserError, match=words):
            map_sources.origin_of(source, 3, 4)
    config = files("proxlin").joinpath("experiments/configs/fig4.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(config.replace('source = "drawn"', 'source = "warcraft"'))
    out = tmp_path / "out"
    assert main(["reproduce", "fig4", "--config", str(mine), "--out", str(out)]) == 2
    assert not out.exists()


def test_wrong_configs_are_refused():
    for change, word in (
        ({"seeds": 1}, "seeds"),
        ({"ridges": []}, "ridges"),
        ({"tile": 6}, "6 pixels"),
        ({"side": 1}, "side"),
    ):
        with pytest.raises(UserError, match=word):
            parse(Config, {**TINY, "channels": [2, 2], "tile": 4, **change})
