"""The declared search, the watched run behind it, and `tune`."""

import math
from statistics import fmean

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.cost import Cost, Prices
from proxlin.run import follow
from proxlin.tuning.search import Grid, Search, search_all, tune_grids


def bowl(setting) -> float:
    return (
        math.log(setting["step"] / 30) ** 2
        + math.log(setting["nu"] / 0.2) ** 2
        + abs(setting["inner"] - 5)
    )


AXES = {
    "step": px.Lattice(1e-2, 10**0.5, (-2, 0, 2)),
    "nu": px.Lattice(1.0, 10**0.5, (-1, 1)),
    "inner": px.Choice((1, 2, 5, 10), (0,), ordered=True),
}


def run(grid: Grid, loss=bowl) -> Search:
    search = Search(grid)
    search_all(
        [search], lambda asked: [loss(grid.setting(point)) for _, point in asked]
    )
    return search


def test_the_search_leaves_its_bracket_and_finds_the_minimum():
    search = run(Grid(AXES, 40))
    best = search.grid.setting(search.best)
    full = min(
        (bowl(search.grid.setting((a, b, c))), a, b, c)
        for a in range(-9, 10)
        for b in range(-9, 10)
        for c in range(4)
    )
    assert (
        search.scores[search.best] == full[0]
        and best["step"] == pytest.approx(31.6)
        and len(search.scores) == 40
    )


def test_every_search_spends_its_budget_and_never_tries_a_point_twice():
    asked: list = []
    for budget in (1, 5, 17, 33):
        search = Search(Grid(AXES, budget))
        while points := search.ask():
            assert len(points) == len(set(points)) and not set(points) & set(
                search.scores
            )
            asked.append(points)
            for point in points:
                search.tell(point, bowl(search.grid.setting(point)))
        assert len(search.scores) == budget
    small = Search(Grid({"inner": px.Choice((1, 2))}, 10))
    search_all([small], lambda asked: [1.0 for _ in asked])
    assert len(small.scores) == 2  # there are no more


def test_diverged_settings_never_win_and_ends_are_named():
    search = run(
        Grid({"step": px.Lattice(1.0, 10.0, (-1, 0, 1), high=1)}, 6),
        lambda s: math.nan if s["step"] < 1 else -s["step"],
    )
    assert search.grid.setting(search.best) == {"step": 10.0} and search.grid.at_end(
        search.best
    ) == ["step"]


@pytest.fixture(scope="module")
def problems():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(60, 5)), rng.normal(size=(5, 2))
    y = x @ w + 0.1 * rng.laplace(size=(60, 2))
    inner = px.residual(lambda w, x: x @ w)
    make = lambda rows: px.MeanOfLosses(
        inner, px.L2(), (jnp.asarray(x[rows]), jnp.asarray(y[rows]))
    )
    return make(slice(40)), make(slice(40, 60)), jnp.zeros((5, 2))


def test_follow_is_minimize_watched_less_often(problems):
    train, held_out, w = problems
    for solver in (px.sgd(px.InverseSqrt(0.1)), px.pli(0.1, 0.1, 2)):
        passes = 6.0 if solver.name() == "sgd" else 30.0
        seen = follow(train, w, solver, held_out.value, [0.0, 2.0, passes], seed=3)
        solution = px.minimize(train, w, solver, passes=seen.passes[-1], seed=3)
        assert float(held_out.value(solution.w)) == seen.measures[-1]
        assert seen.passes[-1] == solution.history["passes"][-1] <= passes


def test_follow_stays_within_every_mark_and_stops_where_told(problems):
    train, held_out, w = problems
    marks = [0.0, 1.0, 5.0, 9.0, 20.0]
    seen = follow(train, w, px.pli(0.1, 0.1, 3), held_out.value, marks)
    assert np.all(seen.passes[1:] <= marks[1:]) and not seen.diverged
    assert seen.best == seen.measures.min() == float(held_out.value(seen.w))
    cheap = follow(
        train,
        w,
        px.pli(0.1, 0.1, 3),
        held_out.value,
        marks,
        prices=Prices(epoch=Cost(phi=2 * len(train))),
    )
    # an inner epoch is a pass, all else is free
    assert cheap.passes.tolist() == [0.0, 0.0, 3.0, 9.0, 18.0]
    start = float(held_out.value(w))
    stuck = follow(train, w, px.sgd(1e-30), held_out.value, range(20), patience=4.0)
    assert stuck.marks[-1] == 5 and stuck.best == start
    wild = follow(train, w, px.sgd(1e9), held_out.value, range(20))
    assert wild.diverged and wild.best <= start and len(wild.marks) < 20


def test_tune_finds_what_trying_all_finds(problems):
    train, held_out, w = problems
    steps = [px.Lattice(1e-2, 10.0).value(j) for j in range(-4, 3)]
    best, table = px.tune(
        train, w, [px.sgd(step) for step in steps], held_out, passes=5, seeds=2
    )
    assert [row["validation"] for row in table] == sorted(
        row["validation"] for row in table
    ) and len(table) == 7
    space = px.Space(px.sgd, {"step": px.Lattice(1e-2, 10.0, (-2, 0))}, budget=6)
    found, rows = px.tune(train, w, space, held_out.value, passes=5, seeds=2)
    assert (
        rows[0]["validation"] == table[0]["validation"]
        and rows[0]["setting"]["step"] in steps
    )
    assert float(found.schedule(0)) == float(best.schedule(0))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, found, best))


def test_tune_refuses_wrong_use(problems):
    train, held_out, w = problems
    for solvers, passes, seeds, word in (
        ([], 5, 1, "at least one"),
        (["sgd"], 5, 1, "it is str"),
        (px.sgd(0.1), 0, 1, "passes must be above 0"),
        (px.sgd(0.1), 5, 0, "seeds must be"),
    ):
        with pytest.raises((ValueError, TypeError), match=word):
            px.tune(train, w, solvers, held_out, passes, seeds)
    with pytest.raises(ValueError, match="finite"):
        px.tune(train, w, px.sgd(0.1), lambda w: jnp.nan * jnp.sum(w), 5)


def test_grids_are_tuned_on_the_first_seed_and_decided_on_all():
    """The best on seed 0 loses to the second best on the others; no trial is run twice."""
    seen = []

    def evaluate(trials):
        seen.extend((which, setting["inner"], seed) for which, setting, seed in trials)
        return [
            abs(setting["inner"] - (2 if seed == 0 else 5))
            for _, setting, seed in trials
        ]

    grid = Grid({"inner": px.Choice((0, 2, 3), (0, 1, 2))}, 3)
    one, two = tune_grids([grid, grid], evaluate, fmean, seeds=[3, 1], finalists=2)
    assert one.setting == {"inner": 3} and one.runs == (1, 2, 2) and one.searched == 0
    assert two.setting == {"inner": 2} and two.runs == (0,) and two.searched == 0
    assert len(seen) == len(set(seen)) == 3 + 3 + 2 * 2
    assert [setting["inner"] for setting, _ in two.tried] == [0, 2, 3]
