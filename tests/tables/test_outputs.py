"""Predictions in NumPy, against the maps themselves; and the linear fits that stand beside a network."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import compiled
from proxlin.networks import MLP, Trees, WithLinear, WithTrees
from proxlin.tables import findings, linear, outputs, search, training
from proxlin.tables.asked import Asked
from proxlin.tables.columns import Encoder, Feature
from proxlin.tables.engine import least_squares, prepare
from proxlin.tables.training import Setting, Task


def drawn(network, fits: int, dtype) -> Any:
    """Random parameters, with cuts that the features may equal."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    w = jax.tree.map(lambda leaf: rng.normal(size=(fits, *leaf.shape)), shapes)
    trees = w if isinstance(network, Trees) else None
    if isinstance(network, WithTrees):
        trees = w["trees"]
    if trees is not None:
        p = 3
        trees["feature"] = rng.integers(0, p, trees["feature"].shape)
        trees["cut"] = np.round(trees["cut"], 1)
        trees["cut"][:, 0] = np.finfo(np.float32).max  # a tree of one leaf
    return jax.tree.map(lambda leaf: leaf.astype(dtype), w)


@pytest.mark.parametrize(
    "network",
    [
        MLP((3, 2)),
        WithLinear(MLP((3, 4, 2))),
        Trees((3, 2), 5, 3),
        Trees((3, 1), 400, 2),  # more cuts than a byte counts
        Trees((3, 1), 2, 9),  # and more leaves
        WithTrees(WithLinear(MLP((3, 4, 1))), Trees((3, 1), 6, 5)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_are_those_of_the_map(network, dtype, monkeypatch):
    w = drawn(network, 2, dtype)
    if isinstance(network, Trees) and network.count == 400:
        w["cut"] = np.random.default_rng(1).normal(size=w["cut"].shape).astype(dtype)
    x = np.round(np.random.default_rng(2).normal(size=(50, 3)), 1)
    with jax.enable_x64(True):
        one = jax.vmap(network, (None, 0))
        found = jax.vmap(one, (0, None))(
            jax.tree.map(jnp.asarray, w), jnp.asarray(x, dtype)
        )
    close = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(
        outputs.predict(network, w, x), found, rtol=close, atol=close
    )
    monkeypatch.setattr(outputs, "ROWS", 7)
    np.testing.assert_allclose(
        outputs.predict(network, w, x), found, rtol=close, atol=close
    )


def test_a_missing_number_goes_to_the_left():
    """As it does in the map, where it is above no cut."""
    trees = Trees((1, 1), 1, 1)
    w = {
        "feature": np.zeros((1, 1, 1)),
        "cut": np.zeros((1, 1, 1)),
        "leaf": np.array([[[[3.0], [5.0]]]]),
    }
    found = outputs.predict(trees, w, np.array([[np.nan], [-1.0], [0.0], [1.0]]))
    assert found.ravel().tolist() == [3.0, 3.0, 3.0, 5.0]


def table(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.normal(size=n)
    b = rng.normal(size=n)
    return {"a": a, "b": b, "y": 1 + 2 * a - b + rng.standard_t(3, size=n)}


def rows_of(n: int, asked: Asked):
    from proxlin.tables.fitted import as_frame

    return prepare(as_frame(table(n), ()), asked)


def test_least_squares_is_the_linear_fit_to_the_rows_not_held_out():
    rows = rows_of(60, Asked(("y",)))
    seen = ~rows.held
    design = np.column_stack([np.ones(60), rows.X])
    B = np.linalg.lstsq(design[seen], rows.y[seen])[0]
    found = least_squares(rows, Asked(("y",)))
    np.testing.assert_allclose(found.predict(rows.X), design @ B, rtol=1e-9)


@pytest.mark.parametrize("loss", ["l1", "l2", "quantile 0.8", "squared"])
def test_the_line_beside_a_network_is_the_linear_fit(loss):
    """Coefficients and standard errors of the iteration, without it."""
    asked = Asked(("y",), loss)
    rows = rows_of(80, asked)
    quiet = lambda what, share: None
    with jax.enable_x64(True):
        (beside, alone) = (
            linear.linear_fit(
                *(rows.X, rows.y, each, rows.kept, rows.fold, "formula", quiet)
            )[0]
            for each in (asked, Asked(("y",), loss, hidden=0, solver="prox_linear"))
        )
    assert beside.kind == alone.kind
    np.testing.assert_allclose(beside.coefficients, alone.coefficients, atol=1e-6)
    if beside.errors is None or alone.errors is None:
        pytest.fail(f"no standard errors: {beside.reason}, {alone.reason}")
    np.testing.assert_allclose(beside.errors, alone.errors, rtol=1e-4)


def test_losses_of_any_number_of_rows_share_a_program(monkeypatch):
    """Blocks of one size hold them all, and what fills the last block is left out."""
    made = []
    compile_ = compiled._compile
    monkeypatch.setattr(
        compiled, "_compile", lambda *given: made.append(1) or compile_(*given)
    )
    compiled.clear_caches()
    rng = np.random.default_rng(0)
    task = Task(np.zeros((40, 1)), np.zeros((40, 2)), 4, "l2", "adam", 0)
    for shape in ((3, 30, 2), (1, 40, 2), (2, 150, 2)):
        errors = rng.normal(size=shape)
        found = search.losses_of(task, errors)
        np.testing.assert_allclose(found, np.linalg.norm(errors, axis=2), rtol=1e-5)
    assert len(made) == 1


def test_effects_do_not_depend_on_what_is_predicted_together(monkeypatch):
    rng = np.random.default_rng(0)
    numbers = [Feature(name, None, 0.0, False) for name in "ab"]
    encoder = Encoder((*numbers, Feature("c", ("u", "v"), 0.0, False)), ())
    X = np.column_stack([rng.normal(size=(50, 2)), np.eye(2)[rng.integers(0, 2, 50)]])
    predict = lambda Z: Z[:, :1] ** 2 + Z[:, 1:2] * Z[:, 2:3]
    every = []
    for most in (50_000, 1):
        monkeypatch.setattr(findings, "AT_ONCE", most)
        rng = np.random.default_rng(1)
        every.append(findings._effects(X, encoder, ("y",), predict, rng))
    assert every[0] == every[1]
    assert [each["feature"] for each in every[0]] == ["a", "b", "c"]
    first = every[0][0]
    part = X[np.random.default_rng(1).permutation(50)]
    at = part.copy()
    at[:, 0] = first["at"][3]
    assert first["mean"][3] == pytest.approx(predict(at).mean())


def test_a_second_table_of_about_the_same_size_compiles_no_search(monkeypatch):
    """Programs of folds, settings, judged fits and predictions are shared."""
    monkeypatch.setattr(search, "TREES", 20)
    monkeypatch.setattr(search, "NETWORKS", (Setting(1.0, 1e-3), Setting(1.0, 1e-2)))
    monkeypatch.setattr(training, "LEAST", 200)
    made = []
    compile_ = compiled._compile

    def noted(function, *given):
        made.append(getattr(function, "__name__", type(function).__name__))
        return compile_(function, *given)

    monkeypatch.setattr(compiled, "_compile", noted)
    compiled.clear_caches()
    px.fit(table(230), "y", hidden=4)
    assert len(made) <= 8
    made.clear()
    px.fit(table(240), "y", hidden=4)
    # the covariance of the coefficients is that of all rows, without a filling
    assert set(made) <= {"_expand", "_curvature"}
