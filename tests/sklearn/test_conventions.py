"""What people know from scikit-learn's own estimators: warm_start, names of inputs and outputs, and
frames where they are asked for.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression, SGDRegressor
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import proxlin as px
from proxlin.sklearn import CompositeRegressor, StructuredClassifier


def rows(n=40, k=2):
    """A linear map, a tenth of whose rows are far off."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    y = x @ rng.normal(size=(3, k)) + 5 + 0.1 * rng.standard_t(2, size=(n, k))
    y[: n // 10] += 100
    return x, y


def frames():
    x, y = rows()
    index = [f"row {i}" for i in range(len(x))]
    inputs = pd.DataFrame(x, columns=["a", "b", "c"], index=index)
    return inputs, pd.DataFrame(y, columns=["height", "weight"], index=index)


def chains():
    """Labels that a feature tells, in sequences of length 2 and 1."""
    x = [np.array([[1.0], [0.1]]), np.array([[0.9]]), np.array([[0.0], [0.8]])]
    y = [np.array(["b", "a"]), np.array(["b"]), np.array(["a", "b"])]
    return x, y


# --------------------------------------------------------------------------------------- warm_start


@pytest.mark.parametrize("loss", ["l2", "huber"])
def test_a_warm_fit_has_the_same_answer_from_fewer_steps(loss):
    x, y = rows()
    cold = CompositeRegressor(loss).fit(x, y)
    warm = CompositeRegressor(loss, warm_start=True).fit(x, y)
    assert warm.n_iter_ == cold.n_iter_  # the first fit has nothing to go on from
    warm.fit(x, y)
    assert warm.n_iter_ < cold.n_iter_
    np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=1e-5)
    again = CompositeRegressor(loss).fit(x, y).fit(x, y)
    assert again.n_iter_ == cold.n_iter_  # without warm_start every fit starts anew


def sgd_of_ours(warm_start):
    return CompositeRegressor(
        solver=px.subgradient_descent(0.01),
        steps=5,
        tol=None,
        warm_start=warm_start,
    )


def sgd_of_theirs(warm_start):
    return SGDRegressor(
        loss="epsilon_insensitive",
        epsilon=0.0,
        max_iter=2,
        tol=None,
        eta0=0.01,
        shuffle=False,
        warm_start=warm_start,
        random_state=0,
    )


@pytest.mark.parametrize("make", [sgd_of_ours, sgd_of_theirs])
def test_a_spent_budget_goes_on_as_that_of_sgd_regressor(make):
    """A second fit starts from the last coefficients, and a third from those of the second."""
    x, y = rows(k=1)
    y = y[:, 0]
    loss = lambda model: np.abs(model.predict(x) - y).mean()
    warm = make(True)
    losses = [loss(warm.fit(x, y)) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    cold = make(False)
    assert loss(cold.fit(x, y)) == loss(cold.fit(x, y)) == losses[0]


@pytest.mark.parametrize("hidden", [0, 3])
def test_a_warm_start_predicts_what_the_last_fit_did(hidden):
    """Other rows have other units; the start in them is the same function of the features."""
    x, y = rows()
    solver = px.subgradient_descent(0.1)
    model = CompositeRegressor(
        hidden=hidden, solver=solver, steps=4, tol=None, warm_start=True, random_state=0
    ).fit(x, y)
    other = 3 * x - 7
    before = model.predict(other)
    model.set_params(solver=px.subgradient_descent(1e-30), steps=1)
    model.fit(other, 1000 * y + 3)
    np.testing.assert_allclose(model.predict(other), before, rtol=1e-9)


def test_a_warm_start_of_chains():
    x, y = chains()
    cold = StructuredClassifier().fit(x, y)
    model = StructuredClassifier(warm_start=True).fit(x, y)
    assert model.fit(x, y).n_iter_ < cold.n_iter_
    np.testing.assert_allclose(model.pairs_, cold.pairs_, atol=1e-4)
    # the problem is convex: from the model in other units the answer is the same
    model.fit([10 * each + 4 for each in x], y)
    np.testing.assert_allclose(model.pairs_, cold.pairs_, atol=5e-3)
    with pytest.raises(ValueError, match="the label 'c', which is not among"):
        model.fit(x, [np.array(["b", "c"]), *y[1:]])


@pytest.mark.parametrize(
    "make", [lambda: CompositeRegressor(warm_start=True), lambda: sgd_of_theirs(True)]
)
def test_a_warm_start_needs_the_same_features(make):
    """It is refused by both, in the sentence of scikit-learn."""
    x, y = rows(k=1)
    with pytest.raises(ValueError, match="X has 2 features, but .* is expecting 3"):
        make().fit(x, y[:, 0]).fit(x[:, :2], y[:, 0])


def test_a_warm_start_needs_the_same_layers():
    x, y = rows()
    solver = px.subgradient_descent(0.1)
    model = CompositeRegressor(
        hidden=2, solver=solver, steps=1, tol=None, warm_start=True, random_state=0
    )
    before = model.fit(x, y).predict(x)
    model.set_params(hidden=3)
    with pytest.raises(ValueError, match="hidden has changed since"):
        model.fit(3 * x, y)
    np.testing.assert_array_equal(model.set_params(hidden=2).predict(x), before)
    model.set_params(hidden=3)
    model.set_params(warm_start=False).fit(x, y)
    assert model.predict(x).shape == y.shape


# -------------------------------------------------------------------------- convergence and n_iter_


@pytest.mark.parametrize(
    "make",
    [
        lambda steps: CompositeRegressor(
            solver=px.subgradient_descent(0.1), steps=steps
        ),
        lambda steps: MLPRegressor(
            hidden_layer_sizes=3, max_iter=steps, random_state=0
        ),
    ],
    ids=["ours", "theirs"],
)
def test_a_spent_budget_warns_and_is_counted(make):
    x, y = rows()
    with pytest.warns(ConvergenceWarning):
        model = make(2).fit(x, y)
    assert model.n_iter_ == 2


# -------------------------------------------------------------------------------------------- names


def test_names_of_features_are_those_of_scikit_learn():
    x, y = frames()
    ours = CompositeRegressor().fit(x, y)
    theirs = LinearRegression().fit(x, y)
    np.testing.assert_array_equal(ours.feature_names_in_, theirs.feature_names_in_)
    for model in (ours, theirs):
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(x.rename(columns={"a": "A"}))
    unnamed = CompositeRegressor().fit(x.to_numpy(), y)
    assert "feature_names_in_" not in vars(unnamed)


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (frames()[1], ["height", "weight"]),
        (pl.from_pandas(frames()[1]), ["height", "weight"]),
        (frames()[1]["weight"], ["weight"]),
        (pl.Series("weight", rows()[1][:, 1]), ["weight"]),
        (rows()[1], ["y0", "y1"]),
        (rows()[1][:, 0], ["y0"]),
        (pd.DataFrame(rows()[1]), ["y0", "y1"]),  # its names are numbers
    ],
    ids=["frame", "polars", "series", "polars series", "array", "vector", "numbers"],
)
def test_names_of_outputs_are_those_of_y(y, names):
    model = CompositeRegressor()
    with pytest.raises(NotFittedError):
        model.get_feature_names_out()
    found = model.fit(frames()[0], y).get_feature_names_out()
    assert found.tolist() == names and found.dtype == object
    assert model.get_feature_names_out(["a", "b", "c"]).tolist() == names
    with pytest.raises(ValueError, match="input_features is not equal"):
        model.get_feature_names_out(["a", "b", "z"])


# ------------------------------------------------------------------------------------------- frames


def test_predict_returns_the_frame_that_was_asked_for():
    x, y = frames()
    model = CompositeRegressor().fit(x, y)
    plain = model.predict(x)
    assert isinstance(plain, np.ndarray)
    found = model.set_output(transform="pandas").predict(x[:5])
    expected = pd.DataFrame(plain[:5], index=x.index[:5], columns=y.columns)
    pd.testing.assert_frame_equal(found, expected)
    found = model.set_output(transform="polars").predict(x)
    assert found.equals(pl.DataFrame(plain, schema=["height", "weight"]))
    assert model.set_output().predict(x).equals(found)  # None changes nothing
    np.testing.assert_array_equal(
        model.set_output(transform="default").predict(x), plain
    )
    with pytest.raises(ValueError, match="transform must be one of default, pandas"):
        model.set_output(transform="arrow")


def test_one_target_is_a_series():
    x, y = frames()
    model = CompositeRegressor().fit(x, y["weight"])
    plain = model.predict(x)
    found = model.set_output(transform="pandas").predict(x)
    pd.testing.assert_series_equal(found, pd.Series(plain, x.index, name="weight"))
    found = model.set_output(transform="polars").predict(x)
    assert found.equals(pl.Series("weight", plain), check_names=True)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_go_through_scores_clones_and_searches(kind):
    """As scikit-learn's own, a clone keeps the setting, and a pickle does."""
    x, y = frames()
    plain = CompositeRegressor().fit(x, y)
    model = CompositeRegressor().set_output(transform=kind).fit(x, y)
    # sums over a frame and over an array may round differently
    assert model.score(x, y) == pytest.approx(plain.score(x, y), rel=1e-12)
    for copy in (clone(model).fit(x, y), pickle.loads(pickle.dumps(model))):
        assert type(copy.predict(x)).__module__.startswith(kind)
    search = GridSearchCV(model, {"loss": ["l2", "squared"]}, cv=2)
    assert search.fit(x, y).best_params_["loss"] in ("l2", "squared")
    assert type(search.predict(x)).__module__.startswith(kind)
    assert cross_val_predict(model, x, y, cv=2).shape == y.shape


def test_a_pipeline_asks_its_transformers_and_leaves_the_regressor_as_it_is():
    """Pipeline.set_output is for what transforms, as for scikit-learn's own regressors."""
    x, y = frames()
    for last in (CompositeRegressor(), LinearRegression()):
        model = make_pipeline(StandardScaler(), last).set_output(transform="pandas")
        assert isinstance(model.fit(x, y).predict(x), np.ndarray)
    ours = make_pipeline(StandardScaler(), CompositeRegressor())
    ours.set_output(transform="pandas")[-1].set_output(transform="pandas")
    assert list(ours.fit(x, y).predict(x).columns) == ["height", "weight"]


def test_labels_of_chains_are_series():
    x, y = chains()
    model = StructuredClassifier().fit(x, y)
    plain = model.predict(x)
    assert model.get_feature_names_out().tolist() == ["y0"]
    right = model.score(x, y)
    for kind, home in (("pandas", pd.Series), ("polars", pl.Series)):
        found = model.set_output(transform=kind).predict(x)
        assert all(isinstance(each, home) for each in found)
        assert [list(each) for each in found] == [list(each) for each in plain]
        assert model.score(x, y) == right
    flat = pd.DataFrame(np.concatenate(x), columns=["ink"], index=list("vwxyz"))
    labels = pd.Series(np.concatenate(y), index=flat.index, name="letter")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = StructuredClassifier().set_output(transform="pandas")
        found = table.fit(flat, labels).predict(flat)
    assert found.name == "letter" and list(found.index) == list("vwxyz")
    assert table.score(flat, labels) == np.mean(found == labels)
