"""The estimators: what scikit-learn asks of every estimator, and what is ours."""

import dataclasses
import itertools
import pickle
import sys
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor, LogisticRegression, QuantileRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, scale
from sklearn.utils.estimator_checks import check_estimator

import proxlin as px
from proxlin import compiled
from proxlin.sklearn import CompositeRegressor, StructuredClassifier
from proxlin.sklearn import sequences as sequence_groups
from proxlin.tables.standardize import units_of
from zoo import STACKLOSS


def table(n=40, p=3, k=2):
    """A linear map, a tenth of whose rows are far off in both targets."""
    rng = np.random.default_rng(0)
    x, truth = rng.normal(size=(n, p)), rng.normal(size=(k, p))
    y = x @ truth.T + 5 + 1e-3 * rng.normal(size=(n, k))
    y[: n // 10] += 1e3
    return x, y, truth


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@pytest.mark.parametrize(
    "estimator",
    [CompositeRegressor(), StructuredClassifier()],
    ids=["regressor", "chains"],
)
def test_what_scikit_learn_asks(estimator):
    check_estimator(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@pytest.mark.parametrize(
    "estimator",
    [
        CompositeRegressor(
            solver=px.sgd(px.InverseSqrt(0.3)), passes=60, tol=None, random_state=0
        ),
        StructuredClassifier(
            solver=px.sgd(px.InverseSqrt(0.3)), passes=60, random_state=0
        ),
    ],
    ids=["regressor", "chains"],
)
def test_what_scikit_learn_asks_of_stochastic_settings(estimator):
    """A row of weight 2 is not drawn as two rows are: declared, as for scikit-learn's own
    stochastic estimators.
    """
    drawn = "the rows are drawn at random, so that weights and repetitions agree in the mean alone"
    declared = {"check_sample_weight_equivalence_on_dense_data": drawn}
    check_estimator(estimator, expected_failed_checks=declared)


def test_a_row_without_weight_is_no_row_and_the_next_draw_compiles_nothing(monkeypatch):
    """Weights as a bagging ensemble draws them, against the rows they leave and repeat; its odd
    rows are not read.
    """
    monkeypatch.setattr(compiled, "_CACHE", compiled._Cache())
    full = CompositeRegressor(
        solver=px.subgradient_descent(0.1), steps=20, tol=None
    )  # its steps see F alone, not the rows
    x, y, _ = table(20)
    rng = np.random.default_rng(1)
    programs = []
    for _ in range(2):
        weights = np.bincount(rng.integers(0, 20, 20), minlength=20)
        x_odd, y_odd = x.copy(), y.copy()
        x_odd[weights == 0] = 1e200
        y_odd[weights == 0] = -1e200
        model = clone(full).fit(x_odd, y_odd, weights)
        programs.append(set(compiled._CACHE.slots))
    assert programs[0] == programs[1]
    drawn = np.repeat(np.arange(20), weights)
    same = clone(full).fit(x[drawn], y[drawn])
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, same.intercept_, rtol=1e-9)


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
    peer = cp.Problem(
        cp.Minimize(cp.sum(cp.multiply(s, cp.maximum(0.7 * r, -0.3 * r))))
    )
    peer.solve(solver=cp.CLARABEL)
    r = model.predict(x) - y[:, 0]
    assert np.sum(s * np.maximum(0.7 * r, -0.3 * r)) <= peer.value * (1 + 1e-8)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_a_quantile_is_that_of_y(q):
    """About q of y lies below the prediction: for `px.residual`, for the estimator, and as
    scikit-learn says.
    """
    rng = np.random.default_rng(5)
    x = rng.normal(size=(80, 2))
    y = x @ [1.0, -2.0] + 3 + rng.exponential(size=80)
    model = CompositeRegressor(px.Quantile(q), ridge=0.0).fit(x, y)
    peer = QuantileRegressor(quantile=q, alpha=0.0).fit(x, y)
    loss = lambda predicted: np.maximum(
        q * (y - predicted), (q - 1) * (y - predicted)
    ).mean()
    assert loss(model.predict(x)) <= loss(peer.predict(x)) * (1 + 1e-8)
    with jax.enable_x64(True):
        inner = px.residual(lambda w, x: (w[:2] @ x + w[2])[None])
        problem = px.MeanOfLosses(inner, px.Quantile(q), (x, y[:, None]))
        w = np.asarray(
            px.minimize(problem, jnp.zeros(3), px.prox_linear(), tol=1e-10).w
        )
    for predicted in (model.predict(x), x @ w[:2] + w[2]):
        # An optimal plane passes through at most 3 rows, one for each parameter, and has q of y
        # below it or on it.
        slack = 1e-6
        below, at_most = np.sum(y < predicted - slack), np.sum(y <= predicted + slack)
        assert below <= q * 80 <= at_most <= below + 3


def test_huber_is_that_of_rlm():
    """R's MASS::rlm(stack.loss ~ ., stackloss, psi = psi.huber, k = 1.345), whose scale is the MAD
    of the residuals.
    """
    *x, y = np.array(STACKLOSS, float)
    model = CompositeRegressor("huber", ridge=0.0).fit(np.transpose(x), y)
    np.testing.assert_allclose(
        model.coef_, [0.82937387, 0.92610818, -0.12784916], rtol=2e-4
    )
    np.testing.assert_allclose(model.intercept_, -41.026531, rtol=1e-5)
    np.testing.assert_allclose(model.scale_, 2.44071, rtol=1e-4)


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_outliers_move_huber_as_little_as_they_move_scikit_learns(share):
    """In units of the targets, not of the residuals, the errors were 0.2 to 0.9 in place of about
    0.02.
    """
    errors = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, truth = rng.normal(size=(200, 5)), 3 * rng.normal(size=5)
        y = x @ truth + 1 + 0.1 * rng.normal(size=200)
        spoiled = rng.random(200) < share
        y[spoiled] += 30 + 50 * rng.normal(size=spoiled.sum())
        fits = (
            CompositeRegressor("huber").fit(x, y),
            HuberRegressor(alpha=0.0).fit(x, y),
        )
        errors.append([np.abs(fit.coef_ - truth).max() for fit in fits])
    ours, theirs = np.mean(errors, axis=0)
    assert ours <= 1.3 * theirs <= 0.05


def test_every_target_has_its_own_scale_and_delta_is_a_multiple_of_it(caplog):
    x, _, truth = table()
    y = x @ truth.T + np.random.default_rng(6).standard_t(2, size=(40, 2)) * [1.0, 1e-3]
    for loss in ("huber", px.Huber(2.0)):
        both = CompositeRegressor(loss).fit(x, y)
        alone = [CompositeRegressor(loss).fit(x, target) for target in y.T]
        np.testing.assert_allclose(
            both.scale_, [each.scale_ for each in alone], rtol=1e-4
        )
        np.testing.assert_allclose(
            both.coef_, [each.coef_ for each in alone], rtol=1e-3, atol=1e-6
        )
    with jax.log_compiles():
        CompositeRegressor(px.Huber(0.7)).fit(x, 2 * y)
    # numbers alone have changed
    assert not [each for each in caplog.messages if "Compiling" in each]
    r = y - both.predict(x)
    np.testing.assert_allclose(
        both.scale_, 1.4826 * np.sort(np.abs(r), axis=0)[19], rtol=1e-5
    )
    # the optimality conditions of Huber's loss with delta = 2 scales
    pull = np.clip(r / both.scale_, -2, 2)
    assert np.abs(pull.sum(axis=0)).max() < 1e-4 and np.abs(x.T @ pull).max() < 1e-4


@pytest.mark.parametrize("loss", ["l2", "huber", "mm"])
@pytest.mark.parametrize(
    ("of_x", "of_y"),
    [(1e160, 1.0), (1e-200, 1.0), (1e160, 1e160), (1e-200, 1e-200), (1e300, 1e300)],
)
def test_units_do_not_matter(loss, of_x, of_y):
    x, y, _ = table()
    usual = CompositeRegressor(loss).fit(x, y)
    model = CompositeRegressor(loss).fit(x * of_x, y * of_y)
    np.testing.assert_allclose(
        model.predict(x * of_x) / of_y, usual.predict(x), rtol=1e-6
    )
    np.testing.assert_allclose(model.coef_ / (of_y / of_x), usual.coef_, rtol=1e-6)


def test_rows_of_weight_zero_have_no_units():
    x, y, _ = table()
    s = np.append(np.ones(40), 0.0)
    found = units_of(
        np.append(x, [[1e300] * 3], axis=0), np.append(y, [[-1e300] * 2], axis=0), s
    )
    for one, two in zip(
        dataclasses.astuple(found), dataclasses.astuple(units_of(x, y)), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("weight", [1e308, 1e-308])
def test_huge_and_tiny_weights_are_weights(weight):
    x, y, _ = table()
    model = CompositeRegressor().fit(x, y, np.full(40, weight))
    np.testing.assert_allclose(
        model.predict(x), CompositeRegressor().fit(x, y).predict(x), rtol=1e-6
    )


def test_what_overflows_is_refused():
    x, y, _ = table()
    model = CompositeRegressor().fit(x, y * 1e300)
    with pytest.raises(ValueError, match="The prediction for row 1 of X overflows"):
        model.predict([x[0], x[1] * 1e15])
    with pytest.raises(ValueError, match="coef_ overflows"):
        CompositeRegressor().fit(x * 1e-200, y * 1e160).coef_  # noqa: B018


def test_a_spent_budget_is_a_warning():
    x, y, _ = table()
    settings = {"solver": px.sgd(0.01), "passes": 2}
    with pytest.warns(
        ConvergenceWarning, match="The budget was spent.* not reached in 80 steps"
    ):
        model = CompositeRegressor(**settings).fit(x, y)
    assert model.n_iter_ == 80
    # the budget is the end that was asked for: no warning
    CompositeRegressor(**settings, tol=None).fit(x, y)
    with pytest.warns(ConvergenceWarning, match="diverged"):
        CompositeRegressor("squared", solver=px.sgd(1e3), passes=5).fit(x, y)
    assert CompositeRegressor().fit(x, y).n_iter_ > 0


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
    fits = [
        CompositeRegressor(hidden=4, steps=3, tol=None, random_state=seed)
        .fit(x, y)
        .predict(x)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert np.max(np.abs(fits[0] - fits[2])) > 1e-6


@pytest.mark.parametrize("loss", ["l2", pytest.param("huber", marks=pytest.mark.slow)])
def test_partial_fit_goes_on(loss):
    x, y, truth = table(60)
    model = CompositeRegressor(loss)
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
        ({"hidden": -1}, "hidden must be 0, a width or a list of widths; it is int -1"),
        ({"ridge": -1.0}, "ridge must be at least 0"),
        ({"warm_start": "no"}, "warm_start must be True or False; it is str 'no'"),
        ({"random_state": 2**70}, "random_state must be a whole number from 0 to 4294"),
        ({"loss": np.ones(3)}, r"loss must be one of .* it is an array of float64"),
    ],
)
def test_wrong_settings_are_a_sentence(settings, sentence):
    x, y, _ = table(10)
    with pytest.raises(ValueError, match=sentence):
        CompositeRegressor(**settings).fit(x, y)


# ------------------------------------------------------------------------------------------- chains


def sequences(n=24):
    """Labels that follow one another in turn (a b c a ...), of which the features say a or not a
    alone.
    """
    rng = np.random.default_rng(3)
    starts, lengths = rng.integers(0, 3, n), np.resize([4, 1, 3, 2], n)
    y = [
        np.array(list("abc"))[(start + np.arange(length)) % 3]
        for start, length in zip(starts, lengths, strict=True)
    ]
    x = [
        np.stack([labels == "a", rng.normal(size=len(labels))], axis=1).astype(float)
        for labels in y
    ]
    return x, y


@pytest.fixture(scope="module")
def fitted():
    return StructuredClassifier().fit(*sequences())


def test_units_and_huge_weights_do_not_matter_to_chains(fitted):
    x, y = sequences()
    for size in (1e160, 1e-200):
        model = StructuredClassifier().fit(
            [each * size for each in x], y, np.full(24, 1e308)
        )
        np.testing.assert_allclose(model.pairs_, fitted.pairs_, atol=1e-4)
    assert fitted.score(x, y, np.full(24, 1e308)) == fitted.score(x, y)


def test_a_spent_budget_of_chains_is_a_warning():
    with pytest.warns(ConvergenceWarning, match=r"above tol = 1e-06: give more passes"):
        model = StructuredClassifier(passes=2).fit(*sequences())
    assert model.n_iter_ > 0


def test_neighbours_tell_the_labels(fitted):
    """A label next to an a is known by its neighbour only."""
    x, y = sequences()
    found = fitted.predict(x)
    assert [labels.shape for labels in found] == [
        labels.shape for labels in y
    ] and found[0].dtype == y[0].dtype
    long = [i for i, labels in enumerate(y) if len(labels) > 1]
    assert all((found[i] == y[i]).all() for i in long)
    right = np.concatenate(found) == np.concatenate(y)
    assert fitted.score(x, y) == np.mean(right)
    each, weights = np.repeat(np.arange(24), [len(rows) for rows in x]), np.arange(24)
    assert fitted.score(x, y, weights) == np.average(right, weights=weights[each])
    follows = fitted.pairs_.argmax(axis=1)
    assert fitted.classes_[follows].tolist() == ["b", "c", "a"]
    again = pickle.loads(pickle.dumps(fitted))
    assert all(
        np.array_equal(one, two)
        for one, two in zip(again.predict(x), found, strict=True)
    )


@pytest.mark.slow
def test_a_weight_of_two_is_two_sequences(fitted):
    """Also a weight of 0 is none, and a third class that has no weight is no class."""
    x, y = sequences()
    odd = [np.array([[0.0, 0.0]] * 4)], [np.array(["d"] * 4)]
    twice = StructuredClassifier().fit(x + x[:8], y + y[:8])
    weights = np.array([2.0] * 8 + [1.0] * 16 + [0.0])
    weighted = StructuredClassifier().fit(x + odd[0], y + odd[1], weights)
    assert weighted.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(weighted.pairs_, twice.pairs_, atol=1e-4)
    assert np.abs(weighted.pairs_ - fitted.pairs_).max() > 1e-3


def test_sequences_of_length_one_are_multinomial_regression():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(50, 2)) * [1.0, 10.0]
    y = np.array(["left", "right", "up"])[
        np.argmax(x @ rng.normal(size=(2, 3)) + rng.normal(size=(50, 3)), axis=1)
    ]
    model = StructuredClassifier("crf", ridge=0.01, tol=1e-9).fit(x, y)
    z = scale(x)
    z /= np.sqrt(np.mean(z**4, axis=0))
    ones = np.column_stack([z, np.ones(50)])  # the intercept has a ridge as well
    peer = LogisticRegression(C=1 / (0.01 * 50), fit_intercept=False, tol=1e-9).fit(
        ones, y
    )
    layer = model._w["letter"][0]
    np.testing.assert_allclose(
        np.column_stack([layer["W"], layer["b"]]), peer.coef_, atol=1e-5
    )
    found = model.predict(x)
    assert found.shape == (50,) and np.array_equal(found, peer.predict(ones))
    np.testing.assert_allclose(
        model.predict_proba(x), peer.predict_proba(ones), atol=1e-5
    )


def test_probabilities_of_labels_against_all_sequences():
    x, y = sequences()
    model = StructuredClassifier("crf", ridge=0.1).fit(x, y)
    found = model.predict_proba(x[:4])
    layer = model._w["letter"][0]
    for rows, each in zip(x[:4], found, strict=True):
        unary = model._units.features(rows) @ layer["W"].T + layer["b"]
        likely = np.zeros_like(unary)
        for labels in itertools.product(range(3), repeat=len(rows)):
            score = sum(unary[t, c] for t, c in enumerate(labels))
            score += sum(model.pairs_[c] for c in itertools.pairwise(labels))
            likely[np.arange(len(rows)), labels] += np.exp(score)
        expected = likely / likely.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(each, expected, atol=1e-12)


def test_probabilities_need_the_loss_that_has_them(fitted):
    assert not hasattr(fitted, "predict_proba")
    with pytest.raises(AttributeError) as raised:
        fitted.predict_proba(sequences()[0])
    assert 'needs loss="crf"; the scores of loss' in str(raised.value.__cause__)


def test_lengths_padded_apart_give_the_fit_of_lengths_padded_together(monkeypatch):
    x, y = sequences()
    long = 20 * [np.array([[1.0, 0.0]])], 20 * ["a"]
    x = [*x, np.concatenate(long[0])]
    y = [*y, np.array(long[1])]
    weights = np.linspace(0.5, 2.0, len(x))
    apart = StructuredClassifier(tol=1e-7).fit(x, y, weights)
    labels = apart.predict(x)
    monkeypatch.setattr(sequence_groups, "SHORT", 100)
    together = StructuredClassifier(tol=1e-7).fit(x, y, weights)
    np.testing.assert_allclose(apart.pairs_, together.pairs_, atol=1e-4)
    for one, other in zip(labels, together.predict(x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_chains_in_pipelines_and_searches():
    x, y = sequences()
    pipeline = make_pipeline(FunctionTransformer(), StructuredClassifier())
    assert cross_val_score(pipeline, x, y, cv=2).min() > 0.7
    search = GridSearchCV(
        pipeline, {"structuredclassifier__ridge": [1e-3, 1e3]}, cv=2
    ).fit(x, y)
    assert search.best_params_ == {"structuredclassifier__ridge": 1e-3}
    best = search.best_estimator_[-1]
    assert clone(best).get_params() == best.get_params()


@pytest.mark.slow
def test_a_solver_of_ours_and_a_network_read_chains():
    x, y = sequences()
    settings = {"hidden": 4, "solver": px.sgd(0.05), "passes": 30, "random_state": 0}
    models = [StructuredClassifier(**settings).fit(x, y) for _ in range(2)]
    np.testing.assert_array_equal(models[0].pairs_, models[1].pairs_)
    assert models[0].score(x, y) > 0.8 and models[0].solution_.solver == "sgd"


def test_partial_fit_of_chains_goes_on(fitted):
    x, y = sequences()
    model = StructuredClassifier()
    for _ in range(6):
        for part in (slice(0, 12), slice(12, 24)):
            model.partial_fit(x[part], y[part], classes=["a", "b", "c"])
    assert model.score(x, y) >= fitted.score(x, y) - 0.05
    with pytest.raises(
        ValueError, match="the label 'd', which is not among the classes"
    ):
        model.partial_fit(x[:1], [np.array(["d"] * 4)])


@pytest.mark.parametrize(
    ("settings", "change", "sentence"),
    [
        ({"loss": "l2"}, None, "loss must be one of hinge, crf"),
        ({"loss": np.ones(3)}, None, "loss must be one of hinge, crf"),
        ({"solver": "lbfgs"}, None, 'solver must be "auto" or a solver'),
        ({"ridge": "1"}, None, """ridge must be "auto" or a number; it is str '1'"""),
        ({"ridge": -1.0}, None, "ridge must be at least 0"),
        ({"nu": 0.0, "loss": "crf"}, None, "nu must be above 0 and finite; it is 0"),
        ({"passes": "10"}, None, "passes must be one real number; it is str '10'"),
        ({"passes": np.nan}, None, "passes must be at least 0 and finite; it is nan"),
        ({"passes": -1}, None, "passes must be at least 0 and finite; it is -1"),
        ({"passes": True}, None, "passes must be one real number; it is bool True"),
        ({"passes": 10**400}, None, "passes must be at least 0 and finite"),
        ({"tol": None}, None, "tol must be one real number; it is None"),
        ({"tol": np.nan}, None, "tol must be at least 0 and finite; it is nan"),
        ({"tol": [3]}, None, "tol must be one real number"),
        ({"warm_start": "no"}, None, "warm_start must be True or False"),
        ({"random_state": 2**70}, None, "random_state must be a whole number from 0"),
        (
            {"hidden": -1},
            None,
            "hidden must be 0, a width or a list of widths; it is int -1",
        ),
        (
            {},
            (0, np.zeros((4, 3))),
            r"Sequence 1 of X has the shape \(1, 2\); sequence 0 has \(4, 3\)",
        ),
        (
            {},
            (2, np.zeros((2, 2))),
            "Sequence 2 of X has 2 positions, but its labels have the shape",
        ),
        ({}, (1, np.zeros((0, 2))), "Sequence 1 of X is empty"),
        ({}, (0, np.full((4, 2), np.nan)), "Input X contains NaN"),
    ],
)
def test_wrong_chains_are_a_sentence(settings, change, sentence):
    x, y = sequences(4)
    if change is not None:
        x[change[0]] = change[1]
    with pytest.raises(ValueError, match=sentence):
        StructuredClassifier(**settings).fit(x, y)


def test_a_batch_of_chains_asks_its_settings_too():
    x, y = sequences(4)
    model = StructuredClassifier().partial_fit(x, y)
    with pytest.raises(ValueError, match="tol must be at least 0"):
        model.set_params(tol=-1.0).partial_fit(x, y)


def test_a_budget_of_chains_beyond_an_integer_of_c_is_a_budget():
    x, y = sequences(4)
    found = StructuredClassifier(passes=1e300).fit(x, y)
    np.testing.assert_array_equal(found.pairs_, StructuredClassifier().fit(x, y).pairs_)


def test_new_sequences_have_the_features_of_the_old(fitted):
    with pytest.raises(
        ValueError, match="X has 3 features, but StructuredClassifier is expecting 2"
    ):
        fitted.predict([np.zeros((2, 3))])


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("proxlin.sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    with pytest.raises(
        ImportError,
        match="sklearn is not installed: pip install .*'scikit-learn>=",
    ):
        import_module("proxlin.sklearn")


def test_a_column_of_texts_is_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"area": [1.0, 2.0, 3.0], "city": ["Oslo", "Rome", "Oslo"]}
    )
    with pytest.raises(
        ValueError, match="'city' of X must hold numbers.*OneHotEncoder"
    ):
        CompositeRegressor().fit(frame, [1.0, 2.0, 3.0])


# ------------------------------------------------------------------------------ MM and quantiles


def test_mm_ignores_wrong_features():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x @ [1.0, -2.0] + 0.1 * rng.normal(size=60)
    x[:20] += 30.0
    model = CompositeRegressor("mm", random_state=0).fit(x, y)
    np.testing.assert_allclose(model.coef_, [1.0, -2.0], atol=0.1)
    assert 0.05 < model.scale_ < 0.2
    np.testing.assert_allclose(model.predict(x[20:]), y[20:], atol=0.5)
    two = CompositeRegressor("mm", random_state=0).fit(x, np.stack([y, 2 * y], 1))
    np.testing.assert_allclose(two.coef_[1], 2 * model.coef_, rtol=1e-8)
    for settings, arguments, sentence in (
        ({"hidden": 3}, {}, "for linear models"),
        ({}, {"sample_weight": np.ones(60)}, "leave sample_weight out"),
    ):
        with pytest.raises(ValueError, match=sentence):
            CompositeRegressor("mm", **settings).fit(x, y, **arguments)
    with pytest.raises(ValueError, match="take fit"):
        CompositeRegressor("mm").partial_fit(x, y)


def test_a_quantile_by_its_level():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 1)), rng.normal(size=100)
    model = CompositeRegressor("quantile", quantile=0.8).fit(x, y)
    assert 0.77 <= np.mean(y <= model.predict(x) + 1e-9) <= 0.83
    with pytest.raises(ValueError, match="level q of Quantile"):
        CompositeRegressor("quantile", quantile=1.2).fit(x, y)
