"""Classic slips of a newcomer: each is told in one sentence that names the function, what it got or
returned, and the way out.

The rows run as a user would meet them: in a fresh process, in float32, without the type checks of
the tests.
"""

import functools
import json
import math
import os
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import proxlin as px

X = np.arange(20.0).reshape(4, 5)
Y = np.ones(4)
W = np.zeros(5)
good = px.residual(lambda w, x: x @ w)


def problem(inner: Any = good, outer: Any = None, data: Any = None) -> Any:
    return px.MeanOfLosses(
        inner, px.L1() if outer is None else outer, (X, Y) if data is None else data
    )


def predicting(predict: Callable, data: Any = None) -> Callable:
    """Run a predictor on one row, in the first call of a problem."""
    return lambda: problem(px.residual(predict), data=data).value(W)


def mapping(inner: Callable, data: Any = None) -> Callable:
    """Run an inner map on one sample, in the first call of a problem."""
    return lambda: problem(inner, data=data).value(W)


def decay(w, x):
    return jnp.sum(x * w, axis=1)


def no_return(w, x):
    x @ w


def assigns(w, x):
    x[0] = 1.0
    return x @ w


def branches(w, x):
    if x[0] > 0:
        return x @ w
    return 0.0 * (x @ w)


class Slip(NamedTuple):
    """What is done, the error that it must raise, the words that its message must have, and whether
    the error of JAX or Python must be chained to it.
    """

    code: Callable
    error: type
    words: list[str]
    chained: bool = False


ROW = "ONE row x of shape (5,)"
SLIPS = {
    # of the function
    "no px.residual": Slip(
        mapping(lambda w, x: x @ w),
        TypeError,
        ["inner map", "ONE sample", "tuple", "px.residual(predict)"],
        True,
    ),
    "no px.residual, multiplied": Slip(
        mapping(lambda w, x: jnp.dot(x, w)), TypeError, ["px.residual(predict)"], True
    ),
    "a sum over axis 1": Slip(
        predicting(decay), ValueError, ["predict (decay)", ROW, "axis 1", "batch"], True
    ),
    "a column of a batch": Slip(
        predicting(lambda w, X: X[:, 0] * w[0]), ValueError, [ROW, "batch"], True
    ),
    "the columns of a batch": Slip(
        predicting(lambda w, X: jnp.ones(X.shape[1]) @ w),
        ValueError,
        [ROW, "batch"],
        True,
    ),
    "a vmap inside": Slip(
        predicting(lambda w, X: jax.vmap(lambda x: x @ w)(X)),
        ValueError,
        [ROW, "batch"],
        True,
    ),
    "a column of ones": Slip(
        predicting(lambda w, X: jnp.hstack([jnp.ones((len(X), 1)), X]) @ w),
        TypeError,
        [ROW, "batch"],
        True,
    ),
    "a product that does not fit": Slip(
        predicting(lambda w, x: x @ w[:3]),
        TypeError,
        [ROW, "w of shape (5,)", "shapes"],
        True,
    ),
    "np.exp": Slip(
        predicting(lambda w, x: np.exp(x @ w)), TypeError, [ROW, "jnp.exp"], True
    ),
    "np.dot": Slip(
        predicting(lambda w, x: np.dot(x, w)), TypeError, ["jax.numpy"], True
    ),
    "math.exp": Slip(
        predicting(lambda w, x: math.exp(x @ w)), TypeError, ["jax.numpy"], True
    ),
    "float()": Slip(
        predicting(lambda w, x: float(x @ w)), TypeError, ["jax.numpy"], True
    ),
    "a Python if": Slip(predicting(branches), TypeError, ["if", "jnp.where"], True),
    "a Python max": Slip(
        predicting(lambda w, x: max(x @ w, 0.0)), TypeError, ["jnp.maximum"], True
    ),
    "a mask": Slip(
        predicting(lambda w, x: jnp.sum(x[x > 0])), ValueError, ["jnp.where"], True
    ),
    "an assignment": Slip(predicting(assigns), TypeError, [".at[i].set"], True),
    "a column by its name": Slip(
        predicting(lambda w, x: x["age"] * w[0]), TypeError, ["dict of columns"], True
    ),
    "a frame inside": Slip(
        predicting(lambda w, x: x.iloc[0] * w[0]), TypeError, ["dict of columns"], True
    ),
    "a name that is not there": Slip(
        mapping(lambda w, s: s["agr"] * w, data={"age": Y, "y": Y}),
        ValueError,
        ["KeyError", "age"],
        True,
    ),
    "a function of one argument": Slip(
        predicting(lambda w: w[0]), TypeError, ["positional argument", "order"], True
    ),
    "a list to jnp": Slip(
        predicting(lambda w, x: jnp.sum([w[0], x[0]])), TypeError, ["jnp.stack"], True
    ),
    "no return": Slip(predicting(no_return), ValueError, ["predict", "None", "return"]),
    "a tuple comes out": Slip(
        predicting(lambda w, x: (x @ w,)), ValueError, ["predict", "jnp.stack"]
    ),
    "a matrix comes out": Slip(
        mapping(lambda w, s: jnp.outer(s[0], w)),
        ValueError,
        ["inner map", "(5, 5)", "vector"],
    ),
    "one output for each column": Slip(
        predicting(lambda w, x: x * w), ValueError, ["(5,)", "()", "ONE row"]
    ),
    "targets as a column": Slip(
        predicting(lambda w, x: x @ w, data=(X, Y[:, None])),
        ValueError,
        ["()", "(1,)", "y[:, 0]"],
    ),
    "a prediction as a column": Slip(
        predicting(lambda w, x: (x @ w)[None]),
        ValueError,
        ["(1,)", "()", "y[:, None]"],
    ),
    # of the problem
    "y in the place of the ridge": Slip(
        lambda: px.MeanOfLosses(good, px.L1(), X, Y),
        ValueError,
        ["ridge", "give data as (X, y)"],
    ),
    "a list in the place of the ridge": Slip(
        lambda: px.LossOfMean(good, px.L1(), X, Y.tolist()),
        ValueError,
        ["ridge", "give data as (X, y)"],
    ),
    "data without targets": Slip(
        lambda: problem(data=X).value(W), ValueError, ["px.residual", "(X, y)", "(5,)"]
    ),
    "a class for a loss": Slip(
        lambda: problem(outer=px.L1), TypeError, ["class L1", "px.L1()"]
    ),
    "a word for a loss": Slip(
        lambda: problem(outer="huber"), TypeError, ["'huber'", "px.Huber(1.0)"]
    ),
    "a function for a loss": Slip(
        lambda: problem(outer=lambda u: jnp.sum(u**2)),
        TypeError,
        ["outer function", "px.SquaredL2()"],
    ),
    "inner and outer swapped": Slip(
        lambda: problem(px.L1(), good), TypeError, ["swapped", "px.L1"]
    ),
    "px.residual uncalled": Slip(
        lambda: problem(px.residual), TypeError, ["px.residual(predict)"]
    ),
    "predictions for a predictor": Slip(
        lambda: px.residual(X @ W), TypeError, ["predict", "the function itself"]
    ),
    # of the run
    "minimize as in scipy": Slip(
        lambda: px.minimize(lambda w: w @ w, W),
        TypeError,
        ["px.MeanOfLosses", "scipy", "fun, x0"],
    ),
    "w before the problem": Slip(
        lambda: px.minimize(W, problem()), TypeError, ["px.MeanOfLosses", "first"]
    ),
    "no start": Slip(lambda: px.minimize(problem()), TypeError, ["minimize()", "'w'"]),
    "px.sgd uncalled": Slip(
        lambda: px.minimize(problem(), W, px.sgd), TypeError, ["sgd", "call it"]
    ),
    "an optimiser of optax": Slip(
        lambda: px.minimize(problem(), W, optax.adam(0.1)),
        TypeError,
        ["optax", "problem.subgradient(w)"],
    ),
    "a word for a solver": Slip(
        lambda: px.minimize(problem(), W, "sgd"), ValueError, ["px.sgd(0.1)", "auto"]
    ),
    "a key for a seed": Slip(
        lambda: px.minimize(problem(), W, seed=jax.random.key(0)),
        ValueError,
        ["seed", "key of JAX", "seed=0"],
    ),
    "an old key for a seed": Slip(
        lambda: px.minimize(problem(), W, seed=jax.random.PRNGKey(0)),
        ValueError,
        ["seed", "key of JAX", "seed=0"],
    ),
    "a generator for a seed": Slip(
        lambda: px.minimize(problem(), W, seed=np.random.default_rng(0)),
        ValueError,
        ["seed", "Generator of NumPy", "seed=0"],
    ),
    "integer parameters": Slip(
        lambda: px.minimize(problem(), np.zeros(5, int)),
        TypeError,
        ["w is an array of int64", "astype(float)"],
    ),
    "a start of another size": Slip(
        lambda: px.minimize(problem(), np.zeros(3)),
        TypeError,
        ["w of shape (3,)", ROW, "shapes"],
        True,
    ),
    "the answer of scipy": Slip(
        lambda: px.minimize(problem(), W, steps=0).x, AttributeError, ["x", ".w"]
    ),
}


def outcome(code: Callable) -> list:
    """[the type, the message, the type of the error behind it], None where there is none."""
    try:
        code()
    except Exception as error:
        behind = error.__cause__
        return [
            type(error).__name__,
            str(error),
            None if behind is None else type(behind).__name__,
        ]
    return [None, "", None]


@functools.cache
def run() -> dict[str, list]:
    environment = os.environ | {"JAX_ENABLE_X64": "0", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, __file__],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_table_has_twenty_rows():
    assert len(SLIPS) >= 20


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_one_sentence(name):
    slip = SLIPS[name]
    kind, message, behind = run()[name]
    assert kind == slip.error.__name__, (kind, message)
    assert "\n" not in message and len(message) <= 400, message
    missing = [word for word in slip.words if word not in message]
    assert not missing, f"{missing} missing from: {message}"
    assert "Tracer" not in message, message
    assert (behind is not None) == slip.chained, (behind, message)
    if name != "no start":  # that one is Python's own
        assert message.endswith("."), message


def test_errors_of_a_users_own_go_through():
    """What is no slip keeps its type and its text."""

    class OwnError(ValueError):
        pass

    def raises(error: Exception) -> Callable:
        def inner(w, sample):
            raise error

        return inner

    for error in (OwnError("mine"), RuntimeError("out of luck"), ZeroDivisionError()):
        with pytest.raises(type(error)) as caught:
            problem(raises(error)).value(W)
        assert caught.value is error


def test_a_module_of_slips_names_no_lambda():
    """A lambda has no name worth saying."""
    from proxlin.slips import explained

    inner = lambda w, x: x
    sentence = str(explained(TypeError("no"), inner, "predict", "x", W, X[0]))
    assert sentence.startswith(
        "predict got w of shape (5,) and ONE row x of shape (5,)"
    )
    assert isinstance(inner, types.FunctionType)


if __name__ == "__main__":
    print(json.dumps({name: outcome(slip.code) for name, slip in SLIPS.items()}))
