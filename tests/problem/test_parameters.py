"""What is a parameter: everything that meets w takes the same leaves of it, and none of them
freezes in silence.
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import proxlin as px
from proxlin.run import follow

pytestmark = pytest.mark.law

X, Y = np.linspace(-1, 1, 12).reshape(6, 2), np.linspace(0, 2, 6)[:, None]
NUMBERS = {
    "slope": np.ones(2),
    "shift": 0.5,
    "scale": np.float32(2.0),
    "power": 1,
    "name": "line",
    "act": jnp.tanh,
}
ARRAYS = NUMBERS | {
    "slope": jnp.ones(2),
    "shift": jnp.asarray(0.5),
    "scale": jnp.asarray(2.0),
}


def predict(w, x):
    return (w["scale"] * w["act"](x @ w["slope"] + w["shift"]) ** w["power"])[None]


PROBLEM = px.MeanOfLosses(px.residual(predict), px.SquaredL2(), (X, Y))
SGD = px.sgd(0.1)


def shift_of_updates(w):
    solver = px.as_optax(SGD, px.residual(predict), px.L2())
    updates, _ = solver.update(None, solver.init(w), w, batch=(X, Y))
    return updates["shift"]


def saved_and_resumed(w):
    half = px.minimize(PROBLEM, w, SGD, steps=6)
    assert isinstance(half.w["power"], int) and half.w["name"] == "line"
    return px.minimize(PROBLEM, w, SGD, steps=12, resume=half).w["shift"]


ENTRANCES = {
    "value": lambda w: PROBLEM.value(w),
    "subgradient": lambda w: PROBLEM.subgradient(w)["shift"],
    "linearize": lambda w: PROBLEM.linearize(w).value(w),
    "regularize": lambda w: PROBLEM.regularize(0.5, w).subgradient(w)["shift"],
    "minimize": lambda w: px.minimize(PROBLEM, w, SGD, steps=6).w["shift"],
    "resume": saved_and_resumed,
    "solve_subproblem": lambda w: px.solve_subproblem(PROBLEM, w, 1.0).w["shift"],
    "follow": lambda w: follow(PROBLEM, w, SGD, PROBLEM.value, [0, 1]).w["shift"],
    "tune": lambda w: px.tune(PROBLEM, w, SGD, lambda w: w["shift"] ** 2, 1).table[0][
        "validation"
    ],
    "as_optax": shift_of_updates,
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_numbers_are_parameters_wherever_w_goes_in(name):
    """A floating-point number is what an array of no axes is; integers, words and functions are
    carried along.
    """
    found, expected = ENTRANCES[name](NUMBERS), ENTRANCES[name](ARRAYS)
    assert jnp.asarray(found).dtype == jnp.float64
    np.testing.assert_array_equal(found, expected)


def test_numbers_move():
    start = PROBLEM.value(NUMBERS)
    solution = px.minimize(PROBLEM, NUMBERS, SGD, steps=6)
    assert solution.value < start
    for name in ("slope", "shift", "scale"):
        assert isinstance(solution.w[name], jax.Array) and np.any(
            np.asarray(solution.w[name]) != NUMBERS[name]
        ), name


def test_numbers_take_the_dtype_of_the_arrays():
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), (X, Y))
    float32 = NUMBERS | {"slope": np.ones(2, np.float32)}
    assert {x.dtype for x in jax.tree.leaves(problem.subgradient(float32))} == {
        np.dtype(np.float32)
    }
    alone = px.MeanOfLosses(lambda w, x: x * w, px.L1(), X)
    assert alone.subgradient(0.5).dtype == jnp.float64


class Line(eqx.Module):
    slope: jax.Array | float
    shift: jax.Array | float


def test_numbers_in_a_module_are_saved_and_loaded(tmp_path: Path):
    problem = px.MeanOfLosses(lambda w, x: w.slope * x + w.shift, px.L1(), X)
    w = Line(1.0, 0.5)
    solution = px.minimize(problem, w, SGD, steps=6)
    solution.save(tmp_path / "line.npz")
    loaded = px.load_solution(tmp_path / "line.npz", like=w)
    assert float(loaded.w.shift) == float(solution.w.shift)
    np.testing.assert_array_equal(
        px.minimize(problem, w, SGD, steps=12, resume=loaded).w.shift,
        px.minimize(problem, w, SGD, steps=12).w.shift,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complex_data_stay_complex(dtype):
    """Phase retrieval, |<a, w>|^2 = b, is the same with complex data and with their two parts."""
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(8, 3, 2))
    a, b = parts[..., 0] + 1j * parts[..., 1], rng.uniform(1, 2, size=(8, 1))
    whole = lambda w, row: jnp.abs(row @ w.astype(row.dtype))[None] ** 2
    split = lambda w, row: jnp.sum((row.T @ w) ** 2)[None]
    w = np.ones(3, dtype)
    found = px.MeanOfLosses(px.residual(whole), px.L1(), (a, b))
    expected = px.MeanOfLosses(px.residual(split), px.L1(), (parts, b))
    tolerance = 1e3 * np.finfo(dtype).eps
    for one, two in (
        (found, expected),
        (found.linearize(2 * w), expected.linearize(2 * w)),
    ):
        assert one.value(w).dtype == dtype
        np.testing.assert_allclose(one.value(w), two.value(w), rtol=tolerance)
        np.testing.assert_allclose(
            one.subgradient(w), two.subgradient(w), rtol=tolerance
        )
    assert px.minimize(found, w, px.subgradient_descent(0.01), steps=3).value < float(
        found.value(w)
    )


@pytest.mark.parametrize(
    "solver",
    [px.sgd(0.1), px.prox_linear(1.0), px.pli(1.0), px.lbfgs()],
    ids=lambda x: x.name(),
)
def test_data_without_columns(solver):
    """An intercept is all that is left of a linear map without features."""
    problem = px.MeanOfLosses(
        px.residual(lambda w, x: x @ w["A"] + w["b"]),
        px.SquaredL2(),
        (np.zeros((6, 0)), Y),
    )
    solution = px.minimize(
        problem, {"A": np.zeros((0, 1)), "b": np.zeros(1)}, solver, steps=6
    )
    assert (
        solution.w["A"].shape == (0, 1)
        and solution.value < solution.history["value"][0]
    )


class Scaled(eqx.Module):
    scale: np.ndarray

    def __call__(self, w, x):
        return self.scale * x * w


def test_arrays_of_numpy_in_a_map_and_in_a_scale():
    problem = px.MeanOfLosses(Scaled(np.array([2.0, 3.0])), px.L1(), X)
    assert px.minimize(problem, np.ones(2), SGD, steps=6).value < problem.value(
        np.ones(2)
    )
    rescaled = px.minimize(
        problem, np.ones(2), px.Rescaled(SGD, np.array([1, 2])), steps=6
    )
    assert rescaled.value < problem.value(np.ones(2))


def test_updates_of_optax_reach_numbers():
    solver = px.as_optax(SGD, lambda w, x: w["a"] * x + w["b"], px.L1())
    w = {"a": 1.0, "b": np.ones(2)}
    updates, _ = solver.update(None, solver.init(w), w, batch=X)
    assert float(optax.apply_updates(w, updates)["a"]) != 1.0
