"""The estimators: what scikit-learn asks of every estimator, and what is ours."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

import proxlin as px
from proxlin.sklearn import CompositeRegressor


def table(n=40, p=3, k=2):
    """A linear map, a tenth of whose rows are far off in both targets."""
    rng = np.random.default_rng(0)
    x, truth = rng.normal(size=(n, p)), rng.normal(size=(k, p))
    y = x @ truth.T + 5 + 1e-3 * rng.normal(size=(n, k))
    y[: n // 10] += 1e3
    return x, y, truth


@pytest.mark.hard
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
def test_what_scikit_learn_asks():
    check_estimator(CompositeRegressor())


def test_outliers_do_not_move_it():
    x, y, truth = table()
    model = CompositeRegressor().fit(x, y)
    np.testing.assert_allclose(model.coef_, truth, atol=2e-3)
    np.testing.assert_allclose(model.intercept_, 5, atol=2e-3)
    np.testing.assert_allclose(model.predict(x), x @ model.coef_.T + model.intercept_)
    away = np.abs(CompositeRegressor("squared").fit(x, y).intercept_ - 5)
    assert np.all(away > 50)


def test_it_is_the_minimiser_that_cvxpy_finds():
    import cvxpy as cp

    x, y, _ = table()
    s = np.random.default_rng(1).uniform(0.2, 2, len(x))
    model = CompositeRegressor(px.Quantile(0.3), ridge=0.0).fit(x, y[:, 0], s)
    W, b = cp.Variable(3), cp.Variable()
    r = x @ W + b - y[:, 0]
    peer = cp.Problem(cp.Minimize(cp.sum(cp.multiply(s, cp.maximum(0.3 * r, -0.7 * r)))))
    peer.solve(solver=cp.CLARABEL)
    r = model.predict(x) - y[:, 0]
    assert np.sum(s * np.maximum(0.3 * r, -0.7 * r)) <= peer.value * (1 + 1e-8)


def test_in_pipelines_and_searches():
    x, y, _ = table()
    search = GridSearchCV(
        make_pipeline(PolynomialFeatures(1, include_bias=False), CompositeRegressor()),
        {"compositeregressor__loss": ["l2", "squared"]},
        scoring="neg_median_absolute_error",
        cv=2,
    ).fit(x, y)
    assert search.best_params_ == {"compositeregressor__loss": "l2"}
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(x), search.predict(x))
    assert clone(again[-1]).get_params() == again[-1].get_params()


def test_a_network_is_the_same_for_the_same_random_state():
    x, y, _ = table()
    fits = [CompositeRegressor(hidden=4, steps=3, random_state=seed).fit(x, y).predict(x) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert np.max(np.abs(fits[0] - fits[2])) > 1e-6


def test_partial_fit_goes_on():
    x, y, truth = table(60)
    model = CompositeRegressor()
    for _ in range(10):
        for rows in np.split(np.random.default_rng(2).permutation(60), 3):
            model.partial_fit(x[rows], y[rows])
    np.testing.assert_allclose(model.coef_, truth, atol=0.05)
    with pytest.raises(ValueError, match="y has 1 targets; the first call had 2"):
        model.partial_fit(x, y[:, 0])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"loss": "l3"}, "loss must be one of l2, l1, linf, huber, squared, median"),
        ({"hidden": -1}, "hidden must be 0, a width or a list of widths; it is -1"),
        ({"ridge": -1.0}, "ridge must be at least 0"),
    ],
)
def test_wrong_settings_are_a_sentence(settings, sentence):
    x, y, _ = table(10)
    with pytest.raises(ValueError, match=sentence):
        CompositeRegressor(**settings).fit(x, y)
