"""The loss of chains with shared pairs, and the ridge that held-out sequences choose."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.data.sequences import ChainScores, encoded
from proxlin.networks import MLP
from proxlin.sklearn import StructuredClassifier, ridges
from proxlin.sklearn.descent import descend, raveled, ridged
from proxlin.sklearn.sequences import insides, padded
from proxlin.sklearn.shared_pairs import Grouped, SharedPairs

LENGTHS = np.array([3, 1, 4, 2])


def chains(spread, margin=1.0, nu=0.5):
    """Four sequences of two features, and parameters whose pairs spread so widely."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(LENGTHS.sum(), 2))
    truth = rng.integers(0, 3, LENGTHS.sum())
    w = {
        "letter": [{"W": rng.normal(size=(3, 2)), "b": rng.normal(size=3)}],
        "pairs": spread * rng.uniform(size=(3, 3)),
    }
    return part_of(x, LENGTHS, truth, margin, nu), w, x, truth


def part_of(x, lengths, labels, margin=1.0, nu=1.0):
    """All sequences as one part."""
    arrays = padded(x, lengths), padded(labels, lengths), insides(lengths)
    with jax.enable_x64(True):
        letter = MLP((x.shape[1], 3))
        return SharedPairs(letter, *map(jnp.asarray, arrays), margin, nu)


@pytest.mark.parametrize("spread", [1.0, 900.0], ids=["product", "logarithms"])
def test_shared_pairs_are_the_smoothed_hinge_of_the_oracle(spread):
    """`EntropyHinge` of `Chains` takes a table of pairs for each position; value and gradient agree."""
    part, w, _, truth = chains(spread)
    oracle = px.Chains(4, 3)
    predict = ChainScores(oracle, 2)
    y = encoded(oracle, padded(truth, LENGTHS))
    inner = px.augmented_scores(predict, oracle)
    outer = px.EntropyHinge(oracle).smooth(0.5)
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, ((part.x, LENGTHS), y))
        problem = px.MeanOfLosses(inner, outer, data)
        expected = problem.value_and_subgradient(jax.tree.map(jnp.asarray, w))
        found = part.value_and_gradient(w, np.full(4, 0.25))
    for one, other in zip(
        jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("margin", "nu"), [(1.0, 0.5), (0.0, 1.0)])
def test_shared_pairs_against_all_labellings(margin, nu):
    part, w, x, truth = chains(2.0, margin, nu)
    layer = w["letter"][0]
    expected = []
    for end, length in zip(np.cumsum(LENGTHS), LENGTHS, strict=True):
        rows = slice(end - length, end)
        unary = x[rows] @ layer["W"].T + layer["b"]

        def score(labels, unary=unary):
            moves = sum(w["pairs"][each] for each in itertools.pairwise(labels))
            return unary[np.arange(len(labels)), labels].sum() + moves

        every = np.array(list(itertools.product(range(3), repeat=length)))
        wrong = (every != truth[rows]).sum(axis=1)
        raised = np.array([score(labels) for labels in every]) + margin * wrong
        expected.append(nu * np.log(np.exp(raised / nu).sum()) - score(truth[rows]))
    with jax.enable_x64(True):
        s = np.array([1.0, 2.0, 0.0, 0.5])
        value, _ = part.value_and_gradient(w, s)
    np.testing.assert_allclose(value, s @ expected, rtol=1e-12)


def test_a_ridge_is_added_with_its_gradient():
    w = {"a": np.array([1.0, -2.0]), "b": np.array([[3.0]])}
    zero = lambda w: (0.5, jax.tree.map(np.zeros_like, w))
    value, gradient = ridged(zero, 0.1)(w)
    assert value == pytest.approx(0.5 + 0.05 * 14)
    np.testing.assert_allclose(raveled(gradient)[0], 0.1 * raveled(w)[0])


def noisy(n=60):
    """Sequences whose labels the features tell badly."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 5, n)
    labels = rng.integers(0, 3, lengths.sum())
    x = rng.normal(size=(len(labels), 12))
    x[:, 0] += labels
    return x, lengths, labels


def test_the_ridge_is_the_one_of_least_loss_on_what_is_held_out():
    """Every ridge, fitted closely from a start at 0, against the search."""
    x, lengths, labels = noisy()
    folds = ridges.folds_of(x, lengths, labels, np.ones(len(lengths)))
    assert len(folds) == 5
    part = part_of(x, lengths, labels)
    grouped = Grouped([(np.ones(len(lengths), bool), part)])
    start = {
        "letter": [{"W": np.zeros((3, 12)), "b": np.zeros(3)}],
        "pairs": np.zeros((3, 3)),
    }
    losses = []
    with jax.enable_x64(True):
        found = ridges.choose_ridge(grouped, folds, start, convex=True, calls=2000)
        for ridge in ridges.RIDGES[:6]:
            losses.append(0.0)
            for fold in folds:
                fit = lambda w, s=fold.fitted: grouped.value_and_gradient(w, s)
                end = descend(ridged(fit, ridge / fold.share), start, 2000, 1e-4)
                losses[-1] += grouped.value_and_gradient(end.w, fold.held)[0]
    best = int(np.argmin(losses))
    assert 0 < best < 5 and found == ridges.RIDGES[best]


def test_folds_hold_every_sequence_once_and_copies_together():
    x, lengths, labels = noisy()
    s = np.linspace(1.0, 2.0, len(lengths))
    folds = ridges.folds_of(x, lengths, labels, s)
    for fold in folds:
        assert fold.fitted.sum() == pytest.approx(1) == fold.held.sum()
        assert fold.share == pytest.approx(s[fold.fitted > 0].sum() / s.sum())
        assert np.array_equal(fold.fitted > 0, fold.held == 0)
    assert np.array_equal(sum((fold.held > 0).astype(int) for fold in folds), s > 0)
    # all of them again behind themselves, in other units
    twice = ridges.folds_of(
        np.concatenate([x, x]) * 1000 + 3,
        np.concatenate([lengths, lengths]),
        np.concatenate([labels, labels]),
        np.concatenate([s, s]),
    )
    for one, two in zip(folds, twice, strict=True):
        np.testing.assert_allclose(two.held[: len(s)], one.held / 2)
        np.testing.assert_allclose(two.held[len(s) :], one.held / 2)


def test_many_positions_need_one_fold_and_one_sequence_none():
    x, lengths, labels = noisy(5500)
    assert lengths.sum() > 5 * ridges.POSITIONS
    assert len(ridges.folds_of(x, lengths, labels, np.ones(5500))) == 1
    same = np.ones((6, 2)), np.array([3, 3]), np.array([0, 1, 0, 0, 1, 0])
    assert ridges.folds_of(*same, np.ones(2)) == []


def test_the_ridge_given_or_found_is_told():
    x, lengths, labels = noisy(20)
    ends = np.cumsum(lengths)[:-1]
    parts = np.split(x, ends), np.split(labels, ends)
    assert StructuredClassifier().fit(*parts).ridge_ in ridges.RIDGES
    given = StructuredClassifier(ridge=0.25).fit(*parts)
    assert given.ridge_ == 0.25
    alone = StructuredClassifier().fit([x], [labels])
    assert alone.ridge_ == ridges.USUAL
    batch = StructuredClassifier().partial_fit(*parts)
    assert batch.ridge_ == ridges.USUAL


def test_a_rare_feature_keeps_its_unit_and_a_normal_one_its_deviations():
    """d / sqrt(mean d^4 / mean d^2): about 1 for a rare one, and sqrt(3) deviations of a normal one."""
    rng = np.random.default_rng(0)
    x = np.zeros((2000, 2))
    x[:4, 0] = 1.0
    x[:, 1] = 5 * rng.normal(size=2000)
    model = StructuredClassifier(ridge=1.0).fit(x, np.arange(2000) % 2)
    scaled = model._units.features(x)
    assert np.ptp(scaled[:, 0]) == pytest.approx(1, rel=0.01)
    assert scaled[:, 1].std() == pytest.approx(1 / np.sqrt(3), rel=0.05)
