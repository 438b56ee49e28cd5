"""Bad input: one sentence that names the culprit and the way out, at the right moment.

The cases run as a user would meet them: in a fresh process, without the type checks of the tests and with JAX's own
promotion rules. The first process has x64, the second has not.
"""

import functools
import json
import os
import subprocess
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px

X, Y = np.arange(12.0).reshape(4, 3), np.ones((4, 2))
residual = px.residual(lambda w, x: x @ w)


def build(inner=residual, outer=None, data=None, **settings):
    return px.MeanOfLosses(inner, outer or px.L2(), (X, Y) if data is None else data, **settings)


def broken(x, row, value):
    x = np.array(x)
    x[row] = value
    return x


class Frame:
    def __repr__(self):
        return "   x  y\n0  1  2\n1  3  4"


# name -> (what is done, the error, words that must be in the sentence)
AT_CONSTRUCTION = {
    "leaves of different length": (
        lambda: build(data={"x": X, "y": Y[:3]}),
        ValueError,
        ["data['y']", "3", "data['x']", "4"],
    ),
    "no samples": (lambda: build(data=(X[:0], Y[:0])), ValueError, ["n = 0"]),
    "no arrays": (lambda: build(data=()), ValueError, ["data"]),
    "data a number": (lambda: build(data=3.0), ValueError, ["data", "array"]),
    "data a list of numbers": (lambda: build(data=[[1.0, 2.0], [3.0, 4.0]]), ValueError, ["data[0][0]", "array"]),
    "data a frame": (lambda: build(data=Frame()), (TypeError, ValueError), ["data", "array"]),
    "data of strings": (lambda: build(data=np.array(["a", "b"])), (TypeError, ValueError), ["data"]),
    "data of objects": (lambda: build(data=np.array([1.0, None])), (TypeError, ValueError), ["data"]),
    "nan in the data": (lambda: build(data=(broken(X, (2, 1), np.nan), Y)), ValueError, ["data[0]", "row 2"]),
    "inf in the data": (lambda: build(data={"x": X, "y": broken(Y, 3, -np.inf)}), ValueError, ["data['y']", "row 3"]),
    "nan in float16": (lambda: build(data=broken(X, 1, np.nan).astype(np.float16)), ValueError, ["row 1"]),
    "nan in bfloat16": (lambda: build(data=jnp.asarray(broken(X, 1, np.nan), jnp.bfloat16)), ValueError, ["row 1"]),
    "nan in sparse rows": (
        lambda: build(data=px.SparseRows(np.zeros((3, 1), int), np.array([[1.0], [np.nan], [0.0]]), 2)),
        ValueError,
        ["values", "row 1"],
    ),
    "negative ridge": (lambda: build(ridge=-0.1), ValueError, ["ridge", "-0.1"]),
    "nan ridge": (lambda: build(ridge=float("nan")), ValueError, ["ridge", "nan"]),
    "ridge a word": (lambda: build(ridge="0.1"), (TypeError, ValueError), ["ridge"]),
    "ridge None": (lambda: build(ridge=None), (TypeError, ValueError), ["ridge"]),
    "ridge a vector": (lambda: build(ridge=np.ones(3)), (TypeError, ValueError), ["ridge"]),
    "ridge complex": (lambda: build(ridge=1j), (TypeError, ValueError), ["ridge"]),
    "negative weight": (lambda: build(weights=[1, 1, -2, 1]), ValueError, ["weight", "2", "-2"]),
    "nan weight": (lambda: build(weights=[1, np.nan, 1, 1]), ValueError, ["weight", "1", "nan"]),
    "weights of another length": (lambda: build(weights=np.ones(5)), ValueError, ["weights", "4", "(5,)"]),
    "weights all zero": (lambda: build(weights=np.zeros(4)), ValueError, ["weights", "zero"]),
    "weights words": (lambda: build(weights=["a"] * 4), (TypeError, ValueError), ["weights"]),
    "negative kappa": (lambda: build().regularize(-1.0, np.zeros((3, 2))), ValueError, ["kappa", "-1"]),
    "kappa nan": (lambda: build().regularize(float("nan"), np.zeros((3, 2))), ValueError, ["kappa", "nan"]),
    "kappa a vector": (lambda: build().regularize(np.ones(2), np.zeros((3, 2))), (TypeError, ValueError), ["kappa"]),
    "nu zero": (lambda: build().smooth(0.0), ValueError, ["nu", "0"]),
    "nu negative": (lambda: px.Huber().smooth(-0.5), ValueError, ["nu", "-0.5"]),
    "nu negative, smoothed": (lambda: px.L2().smooth(1.0).smooth(-0.5), ValueError, ["nu", "-0.5"]),
    "nu a vector": (lambda: build().smooth(np.ones(2)), (TypeError, ValueError), ["nu"]),
    "nu None": (lambda: build().smooth(None), (TypeError, ValueError), ["nu"]),
    "delta zero": (lambda: px.Huber(0.0), ValueError, ["delta", "0"]),
    "quantile 0": (lambda: px.Quantile(0.0), ValueError, ["q of Quantile", "0"]),
    "quantile 1": (lambda: px.Quantile(1.0), ValueError, ["q of Quantile"]),
    "quantile 1.5": (lambda: px.Quantile(1.5), ValueError, ["q of Quantile", "1.5"]),
    "index too large": (lambda: build()[4], IndexError, ["4", "4 samples"]),
    "index too small": (lambda: build()[-5], IndexError, ["-5", "4 samples"]),
    "one of the indices": (lambda: build()[np.array([0, 7, 1])], IndexError, ["7", "4 samples"]),
    "one of the jax indices": (lambda: build()[jnp.array([0, -9])], IndexError, ["-9", "4 samples"]),
    "empty batch": (lambda: build()[np.array([], int)], IndexError, ["empty"]),
    "empty list": (lambda: build()[[]], IndexError, ["empty"]),
    "empty slice": (lambda: build()[3:3], IndexError, ["empty"]),
    "fractional index": (lambda: build()[1.5], TypeError, ["1.5", "integer"]),
    "a mask": (lambda: build()[np.ones(400, bool)], TypeError, ["integer"]),
    "a matrix of indices": (lambda: build()[np.ones((2, 2), int)], TypeError, ["vector"]),
    "a word": (lambda: build()["a"], TypeError, ["batch", "integer"]),
    "an ellipsis": (lambda: build()[...], TypeError, ["batch", "integer"]),
    "a sample of a sample": (lambda: build()[0][0], IndexError, ["one sample"]),
    "a class for an outer function": (lambda: build(outer=px.L2), TypeError, ["outer", "px.L2()"]),
    "a name for an outer function": (lambda: px.MeanOfLosses(residual, "l2", (X, Y)), TypeError, ["outer", "l2"]),
    "no inner map": (lambda: build(inner=3.0), TypeError, ["inner map", "3.0"]),
    "no predictor": (lambda: px.residual(None), TypeError, ["predict"]),
    "indices not integers": (
        lambda: px.SparseRows(np.zeros((2, 2)), np.zeros((2, 2)), 3),
        (TypeError, ValueError),
        ["SparseRows", "integer"],
    ),
}

W = np.zeros((3, 2))

# name -> (the problem, w, the error, words); the problem must be made without complaint, its first call must raise
AT_THE_FIRST_CALL = {
    "a matrix from the inner map": (lambda: build(lambda w, s: w), W, ValueError, ["inner map", "vector", "(3, 2)"]),
    "a scalar from the inner map": (lambda: build(lambda w, s: w[0, 0]), W, ValueError, ["inner map", "vector", "()"]),
    "a tuple from the inner map": (lambda: build(lambda w, s: (w[0],)), W, ValueError, ["vector", "tuple"]),
    "None from the inner map": (lambda: build(lambda w, s: None), W, (TypeError, ValueError), ["vector", "None"]),
    "an empty vector": (lambda: build(lambda w, s: w[0][:0]), W, ValueError, ["L2", "at least one"]),
    "complex numbers": (lambda: build(lambda w, s: w[0] * 1j), W, (TypeError, ValueError), ["inner map", "complex"]),
    "target of another shape": (lambda: build(data=(X, Y[:, :1])), W, ValueError, ["(2,)", "(1,)"]),
    "no parameters": (build, {"n": 3, "f": np.tanh}, TypeError, ["w has no parameters"]),
    "integer parameters": (build, np.zeros((3, 2), int), TypeError, ["w has no parameters"]),
    "complex parameters": (build, {"a": W * 1j}, TypeError, ["w['a']", "complex"]),
    "w None": (build, None, TypeError, ["w has no parameters"]),
    "center of another shape": (lambda: build().regularize(1.0, W[:, :1]), W, (TypeError, ValueError), ["center"]),
    "center a scalar": (lambda: build().regularize(1.0, np.zeros(())), W, (TypeError, ValueError), ["center"]),
    "center another tree": (lambda: build().regularize(1.0, {"a": W}), W, (TypeError, ValueError), ["center"]),
    "anchor of another shape": (lambda: build().linearize(np.zeros((3, 1))), W, (TypeError, ValueError), ["lineari"]),
    "anchor another tree": (lambda: build().linearize({"a": W}), W, (TypeError, ValueError), ["lineari"]),
}
METHODS = ("value", "subgradient")


def dimension_checked():
    """An outer function on the wrong dimension, by a function that has one."""

    class Plane(px.outers.AbstractOuter):
        def value(self, u):
            return jnp.sum(u)

        def subgradient(self, u):
            return jnp.ones_like(u)

        def smooth(self, nu):
            return self

        def lipschitz(self, k):
            return 1.0

        def sharpness(self, k):
            return 0.0

        def check(self, k):
            if k != 5:
                raise ValueError(f"Plane is a function on R^5; the inner map returns {k} numbers.")

    return build(outer=Plane())


AT_THE_FIRST_CALL["an outer function on the wrong dimension"] = (dimension_checked, W, ValueError, ["R^5", "2 numbers"])

float32 = lambda *arrays: tuple(x.astype(np.float32) for x in arrays)
WITHOUT_X64 = {
    "float64 data": (build, W.astype(np.float32), TypeError, ["data[0]", "float64", "jax_enable_x64", "astype"]),
    "float64 w": (lambda: build(data=float32(X, Y)), W, TypeError, ["W is float64", "jax_enable_x64"]),
    "float64 leaf of w": (
        lambda: build(lambda w, s: w["a"] @ s[0], data=float32(X, Y)),
        {"a": W.T.astype(np.float32), "b": np.zeros(2)},
        TypeError,
        ["W['b'] is float64", "jax_enable_x64"],
    ),
    "float64 values of sparse rows": (
        lambda: build(lambda w, s: s.values * w[0, 0], data=px.SparseRows(np.zeros((3, 1), int), np.ones((3, 1)), 2)),
        W.astype(np.float32),
        TypeError,
        ["values", "float64"],
    ),
    "a float64 batch": (lambda: build()[1], W.astype(np.float32), TypeError, ["data[0]", "float64"]),
}
FINE_WITHOUT_X64 = {
    "float32": lambda: build(data=float32(X, Y), ridge=0.1, weights=[1, 2, 3, 4]).value(W.astype(np.float32)),
    "jax": lambda: build(data=tuple(jnp.asarray(x, jnp.float32) for x in (X, Y))).value(jnp.zeros((3, 2))),
}


def outcome(function) -> list:
    """[where it failed, the type, the message], or [None, ...] if nothing was raised."""
    try:
        result = function()
        return [None, str(result)[:200], ""]
    except Exception as error:
        return [type(error).__name__, str(error), traceback.format_exc()[-600:]]


def first_calls(make, w) -> dict:
    made = outcome(make)
    if made[0] is not None:
        return {"construction": made}
    p = make()
    return {"construction": made} | {m: outcome(lambda m=m: getattr(p, m)(w)) for m in METHODS}


def main() -> None:
    """All outcomes of one process, as JSON."""
    if sys.argv[1] == "x64":
        found = {name: outcome(case[0]) for name, case in AT_CONSTRUCTION.items()}
        found |= {name: first_calls(case[0], case[1]) for name, case in AT_THE_FIRST_CALL.items()}
    else:
        found = {name: first_calls(case[0], case[1]) for name, case in WITHOUT_X64.items()}
        found |= {name: outcome(case) for name, case in FINE_WITHOUT_X64.items()}
    print(json.dumps(found))


@functools.cache
def run(mode: str) -> dict:
    environment = os.environ | {"JAX_ENABLE_X64": "1" if mode == "x64" else "0", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_sentence(found: list, error, words: list[str]) -> None:
    name, message, trace = found
    assert name is not None, f"nothing was raised; the result was {message}"
    expected = error if isinstance(error, tuple) else (error,)
    assert name in [e.__name__ for e in expected], trace
    assert message.endswith(".") and "\n" not in message and len(message) <= 400, message
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} missing from: {message}"


@pytest.mark.parametrize("name", AT_CONSTRUCTION)
def test_at_construction(name):
    _, error, words = AT_CONSTRUCTION[name]
    assert_sentence(run("x64")[name], error, words)


@pytest.mark.parametrize("name", AT_THE_FIRST_CALL)
def test_at_the_first_call(name):
    _, _, error, words = AT_THE_FIRST_CALL[name]
    found = run("x64")[name]
    if not name.startswith(("center", "anchor")):  # those may be refused as soon as they are seen
        assert found["construction"][0] is None, found["construction"]
    elif found["construction"][0] is not None:
        assert_sentence(found["construction"], error, words)
        return
    for method in METHODS:
        assert_sentence(found[method], error, words)


@pytest.mark.parametrize("name", WITHOUT_X64)
def test_float64_without_x64(name):
    _, _, error, words = WITHOUT_X64[name]
    found = run("x32")[name]
    assert found["construction"][0] is None, found["construction"]
    for method in METHODS:
        assert_sentence(found[method], error, words)


@pytest.mark.parametrize("name", FINE_WITHOUT_X64)
def test_float32_without_x64_is_fine(name):
    assert run("x32")[name][0] is None, run("x32")[name]


def test_errors_come_from_shapes_alone():
    """The inner map is only traced, never run, before the sentence is said."""
    ran = []

    def inner(w, s):
        jax.debug.callback(lambda: ran.append(None))
        return w

    p = build(inner)
    with pytest.raises(ValueError, match="vector"):
        p.value(jnp.zeros((3, 2)))
    jax.effects_barrier()
    assert not ran


def test_verbs_inside_compiled_code_skip_the_data_checks():
    """Traced data, indices and numbers cannot be looked at, and are taken as they are."""

    def inside(x, i, nu, kappa):
        p = px.MeanOfLosses(lambda w, s: w * s, px.L2(), x, ridge=kappa, weights=x[:, 0])
        return p[i].smooth(nu).regularize(kappa, jnp.ones(2)).value(jnp.ones(2))

    x = jnp.ones((3, 2))
    assert np.isfinite(jax.jit(inside)(x, 1, 0.1, 0.5))
    assert np.isnan(jax.jit(inside)(x.at[1, 1].set(jnp.nan), 1, 0.1, 0.5))  # nan comes out; it is not hidden


if __name__ == "__main__":
    main()
