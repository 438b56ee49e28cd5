"""Boosted trees, networks by Adam, and their mixture: laws, and independent checks of small pieces."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxlin.inners import residual
from proxlin.networks import Trees
from proxlin.outers import L1, L2, Huber, SquaredL2
from proxlin.problem import MeanOfLosses
from proxlin.tables import outputs, training
from proxlin.tables import search as searching
from proxlin.tables.asked import Asked
from proxlin.tables.boosting import (
    BINS,
    Boosting,
    bins_of,
    cuts_of,
    grown,
    in_units,
    seeds,
)
from proxlin.tables.training import Setting, Task

DEPTH = 3


def data(n: int = 60, p: int = 3, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, p))
    y = np.stack([np.sin(2 * x[:, 0]) + j * x[:, 1] for j in range(k)], axis=1)
    return x, y


def boosting(
    rows: int, sizes: tuple[int, int], count: int = 6, prior: float = 0.0
) -> Boosting:
    trees = Trees(sizes, count, DEPTH)
    return Boosting(*np.float32((1.0, prior, 1.0, 1.0)), trees, rows)


def trained(x, y, weights, outer=None, count: int = 6):
    """States of boosting, of all rows in every step."""
    bins = bins_of(x, cuts_of(x))
    solver = boosting(len(x), (x.shape[1], y.shape[1]), count)
    problem = MeanOfLosses(
        residual(solver.trees),
        outer or L2(),
        (jnp.asarray(bins), jnp.asarray(y, jnp.float32)),
    )
    weights = jnp.asarray(weights, jnp.float32)
    states = seeds(problem, solver, weights)
    return grown(problem, solver, states, weights, jax.random.key(0), jnp.int32(count))


def test_the_map_of_the_trees_is_what_boosting_fitted():
    """Cuts in the units of the features send every row where its bins did."""
    x, y = data(k=2)
    x = x.astype(np.float32).astype(float)
    states = trained(x, y, np.ones((2, 60)))
    w = in_units(states.w, cuts_of(x).astype(np.float32), 6)
    found = outputs.predict(Trees((3, 2), 6, DEPTH), w, x)
    np.testing.assert_allclose(found, states.fitted, atol=1e-5)


def test_rows_of_weight_zero_are_left_out():
    """Whatever their targets are: the trees are the same bits."""
    x, y = data()
    seen = np.ones((1, 60))
    seen[:, ::4] = 0
    other = y.copy()
    other[::4] = 1e6
    one = trained(x, y, seen).w
    two = trained(x, other, seen).w
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(
        one["leaf"], trained(x, other, np.ones((1, 60))).w["leaf"]
    )


@pytest.mark.parametrize("outer", [L1(), L2(), Huber(0.3), SquaredL2()], ids=repr)
def test_a_leaf_is_the_minimiser_of_the_loss(outer):
    """Against a fine grid of numbers, for a leaf of some rows with and without a prior."""
    rng = np.random.default_rng(1)
    u = rng.standard_t(2, size=(9, 1)).astype(np.float32)
    s = np.array([1, 1, 0, 2, 1, 1, 1, 1, 1], np.float32)
    for prior in (0.0, 3.0):
        solver = boosting(9, (1, 1), prior=prior)
        found = solver.leaves(
            outer, jnp.asarray(u), jnp.asarray(s), jnp.zeros(9, jnp.int32)
        )

        grid = np.linspace(-u.max(), -u.min(), 400)
        tried = np.append(grid, found[0, 0])[:, None].astype(np.float32)
        value = jax.jit(jax.vmap(outer.value))
        each = value((tried + u.T).reshape(-1, 1)).reshape(-1, 9)
        losses = np.asarray(each) @ s + prior * np.asarray(value(tried))
        assert losses[-1] <= losses.min() + 1e-2
        assert not np.any(found[1:])


def test_a_leaf_of_two_targets_is_their_geometric_median():
    rng = np.random.default_rng(2)
    u = rng.normal(size=(7, 2)).astype(np.float32)
    solver = boosting(7, (1, 2))
    (z, *_) = solver.leaves(
        L2(), jnp.asarray(u), jnp.ones(7, jnp.float32), jnp.zeros(7, jnp.int32)
    )
    away = np.asarray(z) + u
    slope = (away / np.linalg.norm(away, axis=1, keepdims=True)).sum(axis=0)
    assert np.linalg.norm(slope) < 0.5  # of 7 unit vectors


def test_the_first_cut_is_the_best_of_all():
    """Against a search through every feature and place."""
    x, y = data(40)
    bins = bins_of(x, cuts_of(x))
    solver = boosting(40, (3, 1))
    v = np.sign(-y).astype(np.float32)
    feature, cut = solver.grow(
        jnp.asarray(bins.T),
        jnp.asarray(v),
        jnp.ones(40, jnp.float32),
        jnp.ones(3, bool),
    )

    def gain(j, place):
        left = bins[:, j] <= place
        if not 0 < left.sum() < 40:
            return 0.0
        return sum(v[part].sum() ** 2 / part.sum() for part in (left, ~left))

    best = max(gain(j, place) for j in range(3) for place in range(BINS))
    assert gain(int(feature[0]), int(cut[0])) == pytest.approx(best, rel=1e-5)


def task_of(n: int = 80, solver: str = "adam") -> Task:
    x, y = data(n)
    return Task(x, y, 4, "l2", solver, 0)


def test_training_never_uses_the_targets_of_rows_it_does_not_see():
    """Early stopping looks at them, and at nothing else: with one piece there is nothing to stop, and the weights are
    the same bits.
    """
    task = task_of()
    seen = np.ones((1, 80))
    seen[:, :20] = 0
    other = dataclasses.replace(task, y=np.where(seen.T > 0, task.y, 1e3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "PIECES", 1)
        patch.setattr(training, "LEAST", 100)
        runs = [
            training.train(each, [Setting(1.0, 1e-3)], seen, [0], lambda *_: None).w
            for each in (task, other)
        ]
    for a, b in zip(*map(jax.tree.leaves, runs), strict=True):
        assert np.array_equal(a, b)


def test_a_network_ends_where_it_did_best_on_rows_it_does_not_see(monkeypatch):
    """The loss there is at most that of the start and of the end."""
    monkeypatch.setattr(training, "LEAST", 500)
    rng = np.random.default_rng(3)
    task = dataclasses.replace(
        task_of(), y=rng.normal(size=(80, 1))
    )  # noise: it can only overfit
    seen = np.ones((1, 80))
    seen[:, :40] = 0

    def loss(w):
        error = outputs.predict(task.network(), w, task.x)[0] - task.y
        return np.abs(error[:40]).mean()

    stopped = training.train(
        task, [Setting(1.0, 0.0, 3.0)], seen, [0], lambda *_: None
    ).w
    # Rows of no weight at all, and none to look at: the same steps to their end.
    monkeypatch.setattr(
        training, "_unseen_rows", lambda weights: np.zeros_like(weights)
    )
    ended = training.train(task, [Setting(1.0, 0.0, 3.0)], seen, [0], lambda *_: None).w
    assert loss(stopped) < loss(ended)


@pytest.mark.parametrize("solver", ["adam", "auto"])
def test_a_fit_does_not_depend_on_the_rows_that_judge_it(solver, monkeypatch):
    """Early stopping looks at rows that a fit does not see, but never at those of fold -1."""
    monkeypatch.setattr(training, "LEAST", 200)
    monkeypatch.setattr(searching, "LARGE", 50)  # one fold
    asked = Asked(("y",), "l1", hidden=4, solver=solver)
    x, y = data(80)
    fold = np.arange(80) % 5 - 1
    noise = 3 * np.random.default_rng(1).normal(size=y.shape)
    other = np.where(fold[:, None] == -1, noise, y)
    settings = (Setting(1.0, 1e-3),)
    fits = [
        searching.search(x, targets, asked, fold, lambda *_: None, settings).fits.w
        for targets in (y, other)
    ]
    for a, b in zip(*map(jax.tree.leaves, fits), strict=True):
        assert np.array_equal(a, b)


def test_the_shares_of_a_mixture_are_the_best_of_the_grid():
    """Two errors of opposite sign cancel, and a part that is worse than others alone gets nothing."""
    task = task_of()
    sign = np.where(np.arange(80) % 2, 1.0, -1.0)[:, None]
    errors = np.stack([np.ones((80, 1)), -np.ones((80, 1)), 9 * sign])
    fold = np.arange(80) // 20
    assert searching.best_shares(task, errors, fold, 4).tolist() == [0.5, 0.5, 0.0]


def test_the_shares_of_a_mixture_weigh_the_rows():
    """The first part is right in some rows, the second in the others: the rows that count decide.

    Errors come in the order of the folds, weights in the order of the rows.
    """
    fold = np.arange(80) % 4
    heavy = np.arange(80) < 20
    task = dataclasses.replace(task_of(), s=np.where(heavy, 1.0, 1e-3))
    by_fold = np.concatenate([heavy[fold == j] for j in range(4)])[:, None]
    errors = np.stack([np.where(by_fold, 0.0, 1.0), np.where(by_fold, 1.0, 0.0)])
    assert searching.best_shares(task, errors, fold, 4).tolist() == [1.0, 0.0]
    even = dataclasses.replace(task, s=None)
    assert searching.best_shares(even, errors, fold, 4).tolist() == [0.0, 1.0]


def test_the_parameters_of_a_mixture_give_the_mixture_of_the_predictions():
    task = task_of()
    rng = np.random.default_rng(4)
    linear, network = (
        jax.tree.map(
            lambda x: rng.normal(size=x.shape).astype(np.float32),
            task.starts([Setting(1.0, 0.0)], [0], jnp.float32),
        )
        for _ in range(2)
    )
    linear["network"][1]["W"] *= 0  # it is linear
    states = trained(task.x, task.y, np.ones((1, 80)))
    trees = in_units(states.w, cuts_of(task.x).astype(np.float32), 6)
    shares = np.array([0.2, 0.5, 0.3])
    w = searching._mixed(linear, network, trees, shares)
    found = outputs.predict(
        dataclasses.replace(task, trees=(6, DEPTH)).network(), w, task.x
    )
    each = [
        outputs.predict(task.network(), linear, task.x),
        outputs.predict(task.network(), network, task.x),
        outputs.predict(Trees((3, 1), 6, DEPTH), trees, task.x),
    ]
    np.testing.assert_allclose(found, np.tensordot(shares, each, 1), atol=1e-4)


def test_the_same_seed_gives_the_same_model_and_outliers_do_not_decide(monkeypatch):
    """Bits of two runs; and a tenth of wild targets leaves the predictions near the truth."""
    monkeypatch.setattr(searching, "TREES", 20)
    monkeypatch.setattr(searching, "NETWORKS", (Setting(1.0, 1e-3),))
    monkeypatch.setattr(training, "LEAST", 500)
    x, truth = data(100)
    y = truth.copy()
    y[::10] += 1e3
    fold = np.arange(100) % searching.FOLDS
    asked = Asked(("y",), hidden=4)
    one, two = (searching.search(x, y, asked, fold, lambda *_: None) for _ in range(2))
    for a, b in zip(
        jax.tree.leaves(one.fits.w), jax.tree.leaves(two.fits.w), strict=True
    ):
        assert np.array_equal(a, b)
    assert one.far == 10
    error = np.abs(one.predict(x) - truth).mean()
    assert error < 0.5 * np.abs(truth - np.median(truth)).mean()


@pytest.mark.parametrize(
    ("p", "columns"), [(1, 4), (4, 4), (5, 6), (7, 8), (9, 12), (13, 16), (17, 24)]
)
def test_columns_are_few_sizes(p, columns):
    assert training.columns_for(p) == columns
