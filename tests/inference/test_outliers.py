"""Robust distances: an affine law, outliers by construction, and scikit-learn's MinCovDet."""

import numpy as np
import pytest
from scipy import stats

from proxlin.inference import cutoff, distances
from proxlin.inference.outliers import consistency


def clouds(n=80, p=3, far=20, seed=0):
    """Correlated rows, of which the first `far` lie in a cloud of their own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + rng.normal(size=p)
    X[:far] += 30
    return X


@pytest.mark.law
@pytest.mark.parametrize("p", [1, 2, 5])
def test_an_affine_map_changes_nothing(p):
    X = clouds(p=p)
    rng = np.random.default_rng(1)
    T = rng.normal(size=(p, p)) * 10.0 ** rng.integers(-4, 5, p)
    np.testing.assert_allclose(distances(X @ T + 7 * T[0]), distances(X), rtol=1e-6)


@pytest.mark.law
def test_the_order_of_rows_does_not_matter():
    """Other rows are drawn then, but the least determinant is the same."""
    X = clouds()
    order = np.random.default_rng(2).permutation(len(X))
    np.testing.assert_allclose(distances(X[order]), distances(X)[order], rtol=1e-9)
    np.testing.assert_array_equal(distances(X, seed=3), distances(X, seed=3))


@pytest.mark.parametrize("size", [1.0, 1e3, 1e7])
@pytest.mark.parametrize("far", [0, 20, 35])
def test_a_cloud_of_outliers_is_found(far, size):
    X = clouds(far=far)
    X[:far] *= size
    d = distances(X)
    assert np.all(d[:far] > 2 * cutoff(3))
    assert np.mean(d[far:] > cutoff(3)) < 0.1


def test_normal_rows_keep_within_the_cutoff():
    """2.5 % lie beyond it; many rows, of which a part is searched."""
    X = np.random.default_rng(4).normal(size=(5000, 3))
    assert np.mean(distances(X) > cutoff(3)) == pytest.approx(0.025, abs=0.008)
    assert cutoff(3) == pytest.approx(np.sqrt(stats.chi2.ppf(0.975, 3)))


@pytest.mark.parametrize("p", [1, 2, 6])
@pytest.mark.parametrize("share", [0.5, 0.75, 0.975])
def test_the_consistency_factor(p, share):
    """The covariance of the inner share of normal rows, times the factor, is 1."""
    X = np.random.default_rng(5).normal(size=(200_000, p))
    size = np.sum(X**2, axis=1)
    inner = X[size <= np.quantile(size, share)]
    assert np.mean(inner**2) * consistency(p, share) == pytest.approx(1, rel=0.02)
    assert consistency(p, 1.0) == 1


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [
        ("hbk", [0, 1, 2], range(1, 15)),
        ("starsCYG", [0], [7, 11, 14, 20, 30, 34]),
    ],
)
def test_min_cov_det_flags_the_same_rows(data_file, name, columns, rows):
    covariance = pytest.importorskip("sklearn.covariance")
    X = features(data_file, name)[:, columns]
    theirs = np.sqrt(covariance.MinCovDet(random_state=0).fit(X).mahalanobis(X))
    far = distances(X) > cutoff(len(columns))
    np.testing.assert_array_equal(far, theirs > cutoff(len(columns)))
    np.testing.assert_array_equal(np.nonzero(far)[0] + 1, rows)


@pytest.mark.reference
def test_the_giants_of_the_star_cluster(data_file):
    """Both columns: up to one factor the distances are MinCovDet's, which has no factor of
    consistency in its second round and so flags row 9 as well.
    """
    covariance = pytest.importorskip("sklearn.covariance")
    X = features(data_file, "starsCYG")
    theirs = np.sqrt(covariance.MinCovDet(random_state=0).fit(X).mahalanobis(X))
    ours = distances(X)
    np.testing.assert_allclose(ours / theirs, ours[0] / theirs[0], rtol=1e-9)
    assert (np.nonzero(ours > cutoff(2))[0] + 1).tolist() == [7, 11, 14, 20, 30, 34]


def features(data_file, name):
    path = data_file(f"tables/{name}.csv")
    return np.genfromtxt(path, delimiter=",", skip_header=1)[:, 1:]


BAD = {
    "a vector": (np.ones(9), "shape"),
    "words": (np.array([["a"] * 2] * 9), "array of numbers"),
    "few rows": (np.eye(3), "2 (p + 1) rows"),
    "no columns": (np.ones((9, 0)), "columns"),
    "a nan": (np.where(np.arange(30).reshape(15, 2) == 9, np.nan, 1.0), "row 4"),
    "a constant column": (
        np.column_stack([np.ones(20), np.arange(20.0)]),
        "1 linear relation",
    ),
    "rows in a plane": (
        np.column_stack([np.arange(20.0) % 7, np.arange(20) > 15]),
        "plane of fewer dimensions",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_says_why(name):
    X, sentence = BAD[name]
    with pytest.raises(ValueError) as caught:
        distances(X)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
