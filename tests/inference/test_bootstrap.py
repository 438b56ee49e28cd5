"""The bootstrap: its spread is that of formulas and of other weights, and wrong use is a sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from zoo import normal

X = normal(1, 80, 2)
Y = X @ np.array([[1.0], [-2.0]]) + 0.5 * normal(2, 80, 1)
PHI = px.residual(lambda w, x: x @ w)


def problem(f, weights=None):
    return px.MeanOfLosses(PHI, f, (X, Y), weights=weights)


def fitted(p):
    return px.solve(p, jnp.zeros((2, 1))).w


def test_least_squares_have_the_errors_of_the_sandwich():
    """The bootstrap of 2,000 fits knows a standard error to 1.6 %, and to O(1/n) it is the sandwich's."""
    p = problem(px.SquaredL2())
    w = fitted(p)
    found = px.bootstrap(p, w, count=2000)
    exact = np.sqrt(np.diag(px.covariance(p, w)))
    np.testing.assert_allclose(np.ravel(found.standard_error), exact, rtol=0.08)
    assert int(found.failed) == 0 and found.w.shape == (2000, 2, 1)
    assert bool(jnp.all((found.low < w) & (w < found.high)))


def test_each_fit_is_that_of_its_weights():
    p = problem(px.L1(), weights=np.arange(1.0, 81.0))
    key = jax.random.key(5)
    found = px.bootstrap(p, fitted(p), count=3, key=key, tol=1e-10)
    drawn = jax.random.exponential(jax.random.split(key)[0], (3, 80))
    for i in range(3):
        weights = np.asarray(drawn[i]) * np.arange(1.0, 81.0)
        alone = problem(px.L1(), weights)
        value = alone.value(found.w[i])
        np.testing.assert_allclose(value, alone.value(fitted(alone)), rtol=1e-8)


def test_a_wider_level_is_a_wider_interval_of_the_same_fits():
    p = problem(px.Huber(0.3))
    w = fitted(p)
    narrow = px.bootstrap(p, w, count=50, level=0.5)
    wide = px.bootstrap(p, w, count=50, level=0.9)
    np.testing.assert_array_equal(narrow.w, wide.w)
    assert bool(jnp.all((wide.low < narrow.low) & (narrow.high < wide.high)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": 1}, "count"),
        ({"level": 1.0}, "level must be between"),
        ({"level": "high"}, "level"),
        ({"solver": px.sgd(0.1), "passes": 1, "count": 5}, None),
    ],
)
def test_wrong_use_is_a_sentence(settings, words):
    call = lambda: px.bootstrap(problem(px.SquaredL2()), jnp.zeros((2, 1)), **settings)
    if words is None:  # the bootstrap has a key of its own for random solvers
        assert call().w.shape[0] == 5
        return
    with pytest.raises((TypeError, ValueError), match=words):
        call()
