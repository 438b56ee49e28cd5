"""Bad input: one sentence that names the culprit and the way out, at the right moment.

The cases run as a user would meet them: in a fresh process, without the type checks of the tests
and with JAX's own promotion rules.
"""

import functools
import json
import os
import subprocess
import sys
import traceback

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import proxlin as px
from proxlin.errors import UserError
from proxlin.sklearn import CompositeRegressor, StructuredClassifier

X, Y = np.arange(12.0).reshape(4, 3), np.ones((4, 2))
residual = px.residual(lambda w, x: x @ w)


def build(inner=residual, outer=None, data=None, **settings):
    return px.MeanOfLosses(
        inner,
        px.L2() if outer is None else outer,
        (X, Y) if data is None else data,
        **settings,
    )


def build_of(inner):
    return lambda: build(inner)


def broken(x, row, value):
    x = np.array(x)
    x[row] = value
    return x


class Frame:
    def __repr__(self):
        return "   x  y\n0  1  2\n1  3  4"


# name -> (what is done, the error, words that must be in the sentence)
AT_CONSTRUCTION = {
    "bounds in the wrong order": (
        lambda: px.Bounds(np.array([0.0, 2.0]), 1.0),
        ValueError,
        ["low <= high", "2 and 1", "entry 1"],
    ),
    "bounds of two shapes": (
        lambda: px.Bounds(np.zeros(2), np.ones(3)),
        ValueError,
        ["(2,)", "(3,)"],
    ),
    "a bound that leaves no number": (
        lambda: px.Bounds(np.inf),
        ValueError,
        ["low = inf", "room"],
    ),
    "a bound that is nan": (lambda: px.Bounds(np.nan), ValueError, ["low", "None"]),
    "a bound that is a word": (
        lambda: px.Bounds("0"),
        ValueError,
        ["low", "number", "tree of px.Bounds"],
    ),
    "a negative weight of l1": (lambda: px.L1Penalty(-1.0), ValueError, ["lam", "-1"]),
    "a negative weight of groups": (
        lambda: px.GroupL2(-1.0),
        ValueError,
        ["lam", "-1"],
    ),
    "a number for a penalty": (
        lambda: build(penalty=0.1),
        TypeError,
        ["penalty", "px.L1Penalty(0.1)"],
    ),
    "a class for a penalty": (
        lambda: build(penalty={"a": px.NonNegative}),
        TypeError,
        ["penalty", "px.NonNegative(...)"],
    ),
    "leaves of different length": (
        lambda: build(data={"x": X, "y": Y[:3]}),
        ValueError,
        ["data['y']", "3", "data['x']", "4"],
    ),
    "no samples": (lambda: build(data=(X[:0], Y[:0])), ValueError, ["n = 0"]),
    "no arrays": (lambda: build(data=()), ValueError, ["data"]),
    "data a number": (lambda: build(data=3.0), ValueError, ["data", "array"]),
    "data a list of rows of two lengths": (
        lambda: build(data=([[1.0, 2.0], [3.0]], Y)),
        ValueError,
        ["data[0]", "differ in length", "(X, y)"],
    ),
    "data a frame": (
        lambda: build(data=Frame()),
        (TypeError, ValueError),
        ["data", "array"],
    ),
    "data of strings": (
        lambda: build(data=np.array(["a", "b"])),
        (TypeError, ValueError),
        ["data"],
    ),
    "data of objects": (
        lambda: build(data=np.array([1.0, None])),
        (TypeError, ValueError),
        ["data"],
    ),
    "nan in the data": (
        lambda: build(data=(broken(X, (2, 1), np.nan), Y)),
        ValueError,
        ["data[0]", "row 2"],
    ),
    "inf in the data": (
        lambda: build(data={"x": X, "y": broken(Y, 3, -np.inf)}),
        ValueError,
        ["data['y']", "row 3"],
    ),
    "nan in complex data": (
        lambda: build(data=broken(X, 1, np.nan) * 1j),
        ValueError,
        ["row 1"],
    ),
    "float16 data": (
        lambda: build(data=X.astype(np.float16)),
        TypeError,
        ["data is float16", "float32", "float64"],
    ),
    "bfloat16 data": (
        lambda: build(data={"x": jnp.asarray(X, jnp.bfloat16)}),
        TypeError,
        ["data['x'] is bfloat16"],
    ),
    "longdouble data": (
        lambda: build(data=X.astype(np.longdouble)),
        TypeError,
        ["data", "float64"],
    ),
    "nan in sparse rows": (
        lambda: build(
            data=px.SparseRows(
                np.zeros((3, 1), int), np.array([[1.0], [np.nan], [0.0]]), 2
            )
        ),
        ValueError,
        ["values", "row 1"],
    ),
    "negative ridge": (lambda: build(ridge=-0.1), ValueError, ["ridge", "-0.1"]),
    "nan ridge": (lambda: build(ridge=float("nan")), ValueError, ["ridge", "nan"]),
    "ridge a word": (lambda: build(ridge="0.1"), (TypeError, ValueError), ["ridge"]),
    "ridge None": (lambda: build(ridge=None), (TypeError, ValueError), ["ridge"]),
    "ridge a vector": (
        lambda: build(ridge=np.ones(3)),
        (TypeError, ValueError),
        ["ridge"],
    ),
    "ridge complex": (lambda: build(ridge=1j), (TypeError, ValueError), ["ridge"]),
    "negative weight": (
        lambda: build(weights=[1, 1, -2, 1]),
        ValueError,
        ["weight", "2", "-2"],
    ),
    "nan weight": (
        lambda: build(weights=[1, np.nan, 1, 1]),
        ValueError,
        ["weight", "1", "nan"],
    ),
    "weights of another length": (
        lambda: build(weights=np.ones(5)),
        ValueError,
        ["weights", "4", "(5,)"],
    ),
    "weights all zero": (
        lambda: build(weights=np.zeros(4)),
        ValueError,
        ["weights", "zero"],
    ),
    "weights beyond float64": (
        lambda: build(weights=[10**400, 1, 1, 1]),
        TypeError,
        ["weights", "numbers", "object"],
    ),
    "weights complex": (
        lambda: build(weights=np.ones(4) + 1j),
        TypeError,
        ["weights", "real", "complex128"],
    ),
    "weights of times": (
        lambda: build(weights=np.ones(4, "m8[s]")),
        TypeError,
        ["weights", "numbers", "timedelta64"],
    ),
    "weights words": (
        lambda: build(weights=["a"] * 4),
        (TypeError, ValueError),
        ["weights"],
    ),
    "negative kappa": (
        lambda: build().regularize(-1.0, np.zeros((3, 2))),
        ValueError,
        ["kappa", "-1"],
    ),
    "kappa nan": (
        lambda: build().regularize(float("nan"), np.zeros((3, 2))),
        ValueError,
        ["kappa", "nan"],
    ),
    "kappa a vector": (
        lambda: build().regularize(np.ones(2), np.zeros((3, 2))),
        (TypeError, ValueError),
        ["kappa"],
    ),
    "nu zero": (lambda: build().smooth(0.0), ValueError, ["nu", "0"]),
    "nu negative": (lambda: px.Huber().smooth(-0.5), ValueError, ["nu", "-0.5"]),
    "nu negative, smoothed": (
        lambda: px.L2().smooth(1.0).smooth(-0.5),
        ValueError,
        ["nu", "-0.5"],
    ),
    "nu a vector": (
        lambda: build().smooth(np.ones(2)),
        (TypeError, ValueError),
        ["nu"],
    ),
    "nu None": (lambda: build().smooth(None), (TypeError, ValueError), ["nu"]),
    "delta zero": (lambda: px.Huber(0.0), ValueError, ["delta", "0"]),
    "quantile 0": (lambda: px.Quantile(0.0), ValueError, ["q of Quantile", "0"]),
    "quantile 1": (lambda: px.Quantile(1.0), ValueError, ["q of Quantile"]),
    "quantile 1.5": (lambda: px.Quantile(1.5), ValueError, ["q of Quantile", "1.5"]),
    "index too large": (lambda: build()[4], IndexError, ["4", "4 samples"]),
    "index too small": (lambda: build()[-5], IndexError, ["-5", "4 samples"]),
    "one of the indices": (
        lambda: build()[np.array([0, 7, 1])],
        IndexError,
        ["7", "4 samples"],
    ),
    "one of the jax indices": (
        lambda: build()[jnp.array([0, -9])],
        IndexError,
        ["-9", "4 samples"],
    ),
    "empty batch": (lambda: build()[np.array([], int)], IndexError, ["empty"]),
    "empty list": (lambda: build()[[]], IndexError, ["empty"]),
    "empty slice": (lambda: build()[3:3], IndexError, ["empty"]),
    "fractional index": (lambda: build()[1.5], TypeError, ["1.5", "integer"]),
    "a mask": (lambda: build()[np.ones(400, bool)], TypeError, ["integer"]),
    "a matrix of indices": (
        lambda: build()[np.ones((2, 2), int)],
        TypeError,
        ["vector"],
    ),
    "a word": (lambda: build()["a"], TypeError, ["batch", "integer"]),
    "an ellipsis": (lambda: build()[...], TypeError, ["batch", "integer"]),
    "a sample of a sample": (lambda: build()[0][0], IndexError, ["one sample"]),
    "a class for an outer function": (
        lambda: build(outer=px.L2),
        TypeError,
        ["outer", "px.L2()"],
    ),
    "a name for an outer function": (
        lambda: px.MeanOfLosses(residual, "l2", (X, Y)),
        TypeError,
        ["outer", "l2"],
    ),
    "no inner map": (lambda: build(inner=3.0), TypeError, ["inner map", "3.0"]),
    "no predictor": (lambda: px.residual(None), TypeError, ["predict"]),
    "indices not integers": (
        lambda: px.SparseRows(np.zeros((2, 2)), np.zeros((2, 2)), 3),
        (TypeError, ValueError),
        ["SparseRows", "integer"],
    ),
}

W = np.zeros((3, 2))

# name -> (the problem, w, the error, words); the problem must be made without complaint, its first
# call must raise
AT_THE_FIRST_CALL = {
    "a penalty of another tree": (
        lambda: build(penalty={"a": px.NonNegative(), "b": None}),
        W,
        ValueError,
        ["penalty", "structure of w"],
    ),
    "bounds of another shape": (
        lambda: build(penalty=px.Bounds(np.zeros(5))),
        W,
        ValueError,
        ["bound low", "(5,)", "(3, 2)"],
    ),
    "a matrix from the inner map": (
        lambda: build(lambda w, s: w),
        W,
        ValueError,
        ["inner map", "vector", "(3, 2)"],
    ),
    "a mapping from the inner map": (
        lambda: build(lambda w, s: {"u": w[0]}),
        W,
        ValueError,
        ["inner map", "vector", "dict"],
    ),
    "a tuple from the inner map": (
        lambda: build(lambda w, s: (w[0],)),
        W,
        ValueError,
        ["vector", "tuple"],
    ),
    "None from the inner map": (
        lambda: build(lambda w, s: None),
        W,
        (TypeError, ValueError),
        ["vector", "None"],
    ),
    "an empty vector": (
        lambda: build(lambda w, s: w[0][:0]),
        W,
        ValueError,
        ["L2", "at least one"],
    ),
    "complex numbers": (
        lambda: build(lambda w, s: w[0] * 1j),
        W,
        (TypeError, ValueError),
        ["inner map", "complex"],
    ),
    "target of another shape": (
        lambda: build(data=(X, Y[:, :1])),
        W,
        ValueError,
        ["(2,)", "(1,)"],
    ),
    "integers from the inner map": (
        build_of(lambda w, s: jnp.round(w[0]).astype(int)),
        W,
        ValueError,
        ["int64"],
    ),
    "bools from the inner map": (
        build_of(lambda w, s: w[0] > 0),
        W,
        ValueError,
        ["inner map", "bool"],
    ),
    "numbers of 16 bits from the inner map": (
        build_of(lambda w, s: (s[0] @ w - s[1]).astype(jnp.float16)),
        W,
        ValueError,
        ["inner map", "float32 or float64", "it returned float16"],
    ),
    "brain floats from the inner map": (
        build_of(lambda w, s: (s[0] @ w - s[1]).astype(jnp.bfloat16)),
        W,
        ValueError,
        ["inner map", "float32 or float64", "it returned bfloat16"],
    ),
    "an integer beyond 64 bits in w": (
        build,
        [10**400, W],
        ValueError,
        ["w[0]", "64 bits", "out of w"],
    ),
    "no parameters": (
        build,
        {"n": 3, "f": np.tanh},
        TypeError,
        ["w has no parameters", "w['n']", "3.0"],
    ),
    "an integer for w": (build, 3, TypeError, ["w has no parameters", "3.0"]),
    "a word for w": (build, "w", TypeError, ["w has no parameters"]),
    "parameters of no entries": (
        build,
        np.zeros((0, 2)),
        TypeError,
        ["w has no parameters"],
    ),
    "integer parameters": (
        build,
        np.zeros((3, 2), int),
        TypeError,
        ["w is an array of int64", "astype", "out of w"],
    ),
    "an integer array beside": (
        build,
        {"a": W, "n": np.arange(3)},
        TypeError,
        ["w['n']", "int64", "out of w"],
    ),
    "an integer jax array": (
        build,
        [W, jnp.arange(3)],
        TypeError,
        ["w[1]", "int64", "out of w"],
    ),
    "a bool array": (
        build,
        (W, np.array([True])),
        TypeError,
        ["w[1]", "bool", "out of w"],
    ),
    "a key": (
        build,
        {"a": W, "key": jax.random.key(0)},
        TypeError,
        ["w['key']", "key", "out of w"],
    ),
    "an array of words": (
        build,
        {"a": W, "b": np.array(["a"])},
        TypeError,
        ["w['b']", "out of w"],
    ),
    "float16 parameters": (
        build,
        W.astype(np.float16),
        TypeError,
        ["w is float16", "float32", "float64"],
    ),
    "bfloat16 parameters": (
        build,
        {"a": jnp.asarray(W, jnp.bfloat16)},
        TypeError,
        ["w['a'] is bfloat16", "float32"],
    ),
    "bfloat16 of numpy": (
        build,
        np.asarray(jnp.asarray(W, jnp.bfloat16)),
        TypeError,
        ["bfloat16", "float32"],
    ),
    "parameters of two dtypes": (
        build,
        {"a": W, "b": {"c": W.astype(np.float32)}},
        TypeError,
        ["w['a'] is float64", "w['b']['c'] is float32", "one dtype"],
    ),
    "a complex number": (build, {"a": W, "b": 1j}, TypeError, ["w['b']", "complex"]),
    "complex targets": (
        lambda: build(data=(X, Y * 1j)),
        W,
        ValueError,
        ["inner map", "complex128", "imag"],
    ),
    "complex parameters": (build, {"a": W * 1j}, TypeError, ["w['a']", "complex"]),
    "w None": (build, None, TypeError, ["w has no parameters"]),
    "center of another shape": (
        lambda: build().regularize(1.0, W[:, :1]),
        W,
        (TypeError, ValueError),
        ["center"],
    ),
    "center a scalar": (
        lambda: build().regularize(1.0, np.zeros(())),
        W,
        (TypeError, ValueError),
        ["center"],
    ),
    "center of integers": (
        lambda: build().regularize(1.0, W.astype(int)),
        W,
        TypeError,
        ["center", "int64"],
    ),
    "center another tree": (
        lambda: build().regularize(1.0, {"a": W}),
        W,
        (TypeError, ValueError),
        ["center"],
    ),
    "anchor of another shape": (
        lambda: build().linearize(np.zeros((3, 1))),
        W,
        (TypeError, ValueError),
        ["lineari"],
    ),
    "anchor another tree": (
        lambda: build().linearize({"a": W}),
        W,
        (TypeError, ValueError),
        ["lineari"],
    ),
}
METHODS = ("value", "subgradient")

# Calls of verbs, and words that must be in the sentence: what people bring along from other
# libraries.
line = lambda w, x: x @ w
closing = lambda a: px.residual(lambda w, x: x @ w * a)
of_data = lambda p: p.data
paths = px.MonotonePaths(2, 2)
hinges = px.MeanOfLosses(
    px.augmented_scores(lambda w, x: x * w, paths),
    px.StructuredHinge(paths),
    (np.ones((2, 4)), np.array([[1.0, 0, 1, 1], [1.0, 1, 0, 1]])),
)
TABLE = {"x": np.arange(20.0), "y": np.cos(np.arange(20.0))}
CALLS = {
    "a number for a target": (
        lambda: px.fit(TABLE, 3),
        UserError,
        ["target must be a column", "int 3"],
    ),
    "no target": (lambda: px.fit(TABLE, None), UserError, ["target must", "None"]),
    "a number among targets": (
        lambda: px.fit(TABLE, ["y", 3]),
        UserError,
        ["target must be a column", "['y', 3]"],
    ),
    "a number for features": (
        lambda: px.fit(TABLE, "y", features=3),
        UserError,
        ["features must be a list of columns", "int 3"],
    ),
    "a number for categories": (
        lambda: px.fit(TABLE, "y", categories=3),
        UserError,
        ["categories must be a list of columns", "int 3"],
    ),
    "a list for a loss of tables": (
        lambda: px.fit(TABLE, "y", loss=["mm"]),
        ValueError,
        ["loss must be one of", "squares", "['mm']"],
    ),
    "a function for a problem": (
        lambda: px.minimize(lambda w: w, W),
        TypeError,
        ["problem", "px.MeanOfLosses"],
    ),
    "a class for a problem": (
        lambda: px.minimize(px.MeanOfLosses, W),
        TypeError,
        ["problem", "px.MeanOfLosses"],
    ),
    "no solver": (
        lambda: px.minimize(build(), W, None),
        TypeError,
        ["solver", "px.sgd(0.1)", "None"],
    ),
    "an uncalled solver": (
        lambda: px.minimize(build(), W, px.sgd),
        TypeError,
        ["function sgd", "call it"],
    ),
    "an uncalled wrapper": (
        lambda: px.minimize(build(), W, px.Averaged),
        TypeError,
        ["Averaged", "call it"],
    ),
    "an optimiser of optax": (
        lambda: px.minimize(build(), W, optax.adam(0.1)),
        TypeError,
        ["optax", "subgradient"],
    ),
    "the name of a solver": (
        lambda: px.minimize(build(), W, "sgd"),
        ValueError,
        ["auto", "px.sgd(0.1)", "'sgd'"],
    ),
    "a solver of a solver": (
        lambda: px.Averaged(px.BestSoFar),
        TypeError,
        ["Averaged", "BestSoFar", "call it"],
    ),
    "solve with a name": (
        lambda: px.solve(build(), W, "auto"),
        TypeError,
        ["cannot look at numbers", "'auto'"],
    ),
    "solve without a problem": (
        lambda: px.solve(lambda w: w, W),
        TypeError,
        ["solve needs a problem"],
    ),
    "solve without a key": (
        lambda: px.solve(build(), W, px.sgd(0.1)),
        ValueError,
        ["sgd draws samples", "jax.random.key(0)"],
    ),
    "solve with a number for a key": (
        lambda: px.solve(build(), W, px.sgd(0.1), key=3),
        TypeError,
        ["key", "jax.random.key(0)", "3"],
    ),
    "solve for a step and a half": (
        lambda: px.solve(build(), W, steps=1.5),
        ValueError,
        ["steps", "1.5"],
    ),
    "solve to less than nothing": (
        lambda: px.solve(build(), W, tol=-1.0),
        ValueError,
        ["tol", "-1"],
    ),
    "many in chunks of none": (
        lambda: px.solve_many([build()], W, chunk=0),
        ValueError,
        ["chunk", "0"],
    ),
    "many of none": (
        lambda: px.solve_many([], W),
        ValueError,
        ["at least one problem"],
    ),
    "many of two structures": (
        lambda: px.solve_many([build(), build(outer=px.L1())], W),
        ValueError,
        ["same structure", "problem 1"],
    ),
    "many with another number of starts": (
        lambda: px.solve_many([build()], np.stack([W, W]), in_axes=(0, 0)),
        ValueError,
        ["as many entries", "[1, 2]"],
    ),
    "many with a start for each, and no word of it": (
        lambda: px.solve_many([build(), build()], np.stack([W, W])),
        ValueError,
        ["in_axes=(0, 0)", "2 rows"],
    ),
    "many along nothing": (
        lambda: px.solve_many(build(), W, in_axes=(None, None)),
        ValueError,
        ["leading axis"],
    ),
    "many along 3": (
        lambda: px.solve_many(build(), W, in_axes=3),
        TypeError,
        ["in_axes", "3"],
    ),
    "starts of another shape": (
        lambda: px.multistart(build(), np.ones((2, 7))),
        TypeError,
        ["predict got w of shape (7,)"],
    ),
    "a bootstrap of one": (
        lambda: px.bootstrap(build(), W, count=1),
        ValueError,
        ["count", "1"],
    ),
    "a bootstrap at the level of 1": (
        lambda: px.bootstrap(build(), W, level=1.0),
        ValueError,
        ["level", "0.95"],
    ),
    "no w": (lambda: px.minimize(build(), None), TypeError, ["w has no parameters"]),
    "a scale like another tree": (
        lambda: px.minimize(build(), W, px.Rescaled(px.sgd(0.1), {"a": 1.0}), steps=1),
        ValueError,
        ["scale of Rescaled", "structure of w"],
    ),
    "a scale of another shape": (
        lambda: px.minimize(build(), W, px.Rescaled(px.sgd(0.1), np.ones(7)), steps=1),
        ValueError,
        ["scale of Rescaled", "shapes of w"],
    ),
    "a step that cannot be traced": (
        lambda: px.sgd(lambda t: 0.1 if t < 9 else 0.01),
        TypeError,
        ["step", "trace"],
    ),
    "a step of no argument": (
        lambda: px.sgd(lambda: 0.1),
        TypeError,
        ["step", "function of t"],
    ),
    "a step that is a vector": (
        lambda: px.sgd(lambda t: jnp.ones(3)),
        TypeError,
        ["step", "(3,)"],
    ),
    "metrics in a list": (lambda: measured([line]), TypeError, ["metrics", "dict"]),
    "a metric that is no function": (
        lambda: measured({"error": 1.0}),
        TypeError,
        ["'error'", "function of w"],
    ),
    "a metric without a name": (
        lambda: measured({0: line}),
        TypeError,
        ["name of a metric", "0"],
    ),
    "a metric with a null character": (
        lambda: measured({"x\0y": line}),
        ValueError,
        ["name of a metric", "'x\\x00y'"],
    ),
    "a metric with half of a character": (
        lambda: measured({"x\ud800": line}),
        ValueError,
        ["name of a metric", "'x\\ud800'"],
    ),
    "a metric of a vector": (
        lambda: measured({"e": lambda w: w[0]}),
        TypeError,
        ["'e'", "one number", "(2,)"],
    ),
    "a metric of None": (
        lambda: measured({"e": lambda w: None}),
        TypeError,
        ["'e'", "one number", "None"],
    ),
    "a metric of a word": (
        lambda: measured({"e": lambda w: "low"}),
        TypeError,
        ["'e'", "one number", "low"],
    ),
    "a complex metric": (
        lambda: measured({"e": lambda w: 1j}),
        TypeError,
        ["'e'", "one number"],
    ),
    "a stop rule of a vector": (
        lambda: px.minimize(
            build(), W, px.sgd(0.1), steps=4, stop=lambda w, record: w[0] > 0
        ),
        TypeError,
        ["stop", "(2,)"],
    ),
    "a validation loss of a vector": (
        lambda: px.tune(build(), W, px.sgd(0.1), lambda w: w[0], 1),
        TypeError,
        ["validation", "(2,)"],
    ),
    "an empty list of solvers": (
        lambda: px.tune(build(), W, [], build(), 1),
        ValueError,
        ["at least one solver"],
    ),
    "an axis that is a list": (
        lambda: px.Space(px.sgd, {"step": [0.1, 1.0]}),
        TypeError,
        ["'step'", "Lattice"],
    ),
    "a bracket beyond the end": (
        lambda: px.Lattice(1.0, 2.0, (3,), high=2),
        ValueError,
        ["bracket", "3"],
    ),
    "LossOfMean to advise": (
        lambda: px.advise(px.LossOfMean(residual, px.L2(), (X, Y)), W),
        TypeError,
        ["MeanOfLosses", "LossOfMean"],
    ),
    "LossOfMean to covariance": (
        lambda: px.covariance(px.LossOfMean(residual, px.L2(), (X, Y)), W),
        TypeError,
        ["MeanOfLosses", "LossOfMean"],
    ),
    "minimize inside of jit": (
        lambda: jax.jit(lambda w: px.minimize(build(), w).w)(W),
        TypeError,
        ["minimize", "history on the host", "px.solve"],
    ),
    "minimize inside of jit with numbers alone": (
        lambda: jax.jit(lambda x: px.minimize(build(), W).value + x)(1.0),
        TypeError,
        ["px.solve"],
    ),
    "minimize inside of vmap": (
        lambda: jax.vmap(lambda y: px.minimize(build(data=(X, y)), W).w)(Y[None]),
        TypeError,
        ["px.solve"],
    ),
    "minimize of a phi that closes over a traced number": (
        lambda: jax.vmap(lambda a: px.minimize(build(closing(a)), W).w)(np.ones(2)),
        TypeError,
        ["px.solve"],
    ),
    "many of a phi that closes over a traced number": (
        lambda: jax.vmap(lambda a: px.solve_many([build(closing(a))], W).w)(np.ones(2)),
        TypeError,
        ["closes over", "px.solve"],
    ),
    "L-BFGS of a smoothed hinge": (
        lambda: px.solve(hinges.smooth(0.1), np.zeros(4), px.lbfgs()),
        TypeError,
        ["lbfgs", "SimplexSmoothing", "Take pli"],
    ),
    "a bootstrap inside of jit": (
        lambda: jax.jit(lambda w: px.bootstrap(build(), w).w)(W),
        TypeError,
        ["bootstrap", "outside of jit"],
    ),
    "a bootstrap with a number for a key": (
        lambda: px.bootstrap(build(), W, key=3),
        TypeError,
        ["key of bootstrap", "jax.random.key(0)", "3"],
    ),
    "a bootstrap along in_axes": (
        lambda: px.bootstrap(build(), W, in_axes=(0, 0)),
        TypeError,
        ["bootstrap", "in_axes"],
    ),
    "starts along in_axes": (
        lambda: px.multistart(build(), W[None], in_axes=(0, 0)),
        TypeError,
        ["multistart", "in_axes"],
    ),
    "a number for starts": (
        lambda: px.multistart(build(), 3.0),
        ValueError,
        ["leading axis", "starts"],
    ),
    "no starts": (
        lambda: px.multistart(build(), np.zeros((0, 3, 2))),
        ValueError,
        ["at least one start"],
    ),
    "a batch of no problems": (
        lambda: px.solve_many(eqx.tree_at(of_data, build(), (X[:0], Y[:0])), W),
        ValueError,
        ["at least one problem"],
    ),
    "a covariance inside of jit": (
        lambda: jax.jit(lambda w: px.covariance(build(), w))(W),
        TypeError,
        ["covariance", "outside of jit"],
    ),
} | {
    f"a metric called {name}": (
        lambda name=name: measured({name: line}),
        ValueError,
        [f"'{name}'", "rename"],
    )
    for name in ("step", "passes", "seconds", "value")
}


def measured(metrics):
    return px.minimize(build(), W, px.sgd(0.1), steps=4, metrics=metrics)


# kind of an argument -> what it is not
TREES = {
    "text": "text",
    "list": [],
    "dict": {},
    "function": lambda: 0,
    "class": px.L2,
    "object": object(),
}
ARRAYS = {
    "vector": np.ones(3),
    "matrix": jnp.ones((2, 2)),
    "0-d text": np.array("x"),
    "key": jax.random.key(0),
}
NUMBERS = {
    "nan": float("nan"),
    "inf": float("inf"),
    "-1": -1,
    "-0.5": -0.5,
    "huge": 10**400,
    "complex": 1j,
}
NOT = {
    "number": {
        **TREES,
        **ARRAYS,
        **NUMBERS,
        "None": None,
        "True": True,
        "bools": np.array(True),
    },
    "schedule": {
        **TREES,
        **ARRAYS,
        **NUMBERS,
        "None": None,
        "True": True,
        "0": 0,
        "sgd": px.sgd,
    },
    "whole": {
        **TREES,
        **ARRAYS,
        **NUMBERS,
        "None": None,
        "True": True,
        "1.5": 1.5,
        "2**70": 2**70,
    },
    "flag": {**TREES, **ARRAYS, **NUMBERS, "None": None, "1.5": 1.5, "1": 1},
    "word": {**TREES, **ARRAYS, **NUMBERS, "True": True},
    "function": {
        **ARRAYS,
        **NUMBERS,
        "text": "text",
        "list": [],
        "dict": {},
        "True": True,
    },
    "thing": {
        **TREES,
        **ARRAYS,
        **NUMBERS,
        "True": True,
        "sgd": px.sgd,
        "optax": optax.adam(0.1),
    },
}
without = lambda kind, *names: {
    name: value for name, value in NOT[kind].items() if name not in names
}
for kind in ("number", "schedule", "whole", "function"):
    NOT[f"optional {kind}"] = without(kind, "None")
NOT["count from 2"] = NOT["whole"] | {"1": 1}
NOT["passes"] = without("whole", "function", "class") | {"0": 0}
NOT["finite"] = without("number", "-1", "-0.5")
NOT["optional fraction"] = without("optional whole", "-1")
NOT["size"] = without("thing", "list", "dict", "vector", "matrix", "huge")
NOT["solver"] = without("thing", "text")
NOT["metrics"] = without("thing", "dict")
NOT["path"] = without("thing", "text")
NOT["run solver"] = NOT["thing"]
NOT["layers"] = without("whole", "list")
NOT["key"] = without("thing", "key") | {"0": 0, "old key": jax.random.PRNGKey(0)}
NOT["array"] = without("thing", "vector", "matrix", "function") | {
    "None": None,
    "ragged": [[1.0, 2.0], [3.0]],
    "numeral": "10",
    "words": np.array(["1.0", "2.0"]),
}
NOT["deviations"] = without("array", "None", "True")
NOT["bounds"] = without("array", "None")
NOT["optional flag"] = without("flag", "None")
NOT["column"] = without("thing", "text")
NOT["columns"] = without("column", "dict", "list")
NOT["levels"] = without("whole")
chain = px.Chains(2, 2)
sarah = functools.partial(px.stochastic_gauss_newton, estimator="sarah")
table = {"x": np.arange(12.0), "y": np.cos(np.arange(12.0)) + np.arange(12.0)}


def fitted(make):
    """An estimator of these settings, fitted."""
    targets = table["y"]
    if make is StructuredClassifier:
        targets = targets > 5
    return lambda **settings: make(**settings).fit(table["x"][:, None], targets)


def solved_many(**settings):
    problem = settings.pop("problems", build())
    return px.solve_many(problem, np.stack([W, W]), in_axes=(None, 0), **settings)


# of a run
LIMITS = {
    "solver": "run solver",
    "steps": "optional whole",
    "passes": "optional number",
    "tol": "optional number",
    "key": "key",
}
# name -> (function, its good arguments, the kinds of those that are replaced one by one)
ARGUMENTS = {
    "MeanOfLosses": (
        build,
        {},
        {"inner": "function", "outer": "thing", "ridge": "number"},
    ),
    "residual": (px.residual, {}, {"predict": "function"}),
    "augmented_scores": (
        px.augmented_scores,
        {"predict": line, "oracle": chain},
        {"predict": "function", "oracle": "thing"},
    ),
    "SparseRows": (
        px.SparseRows,
        {"indices": np.zeros((2, 1), int), "values": np.ones((2, 1)), "columns": 3},
        {"columns": "whole"},
    ),
    "Chains": (
        px.Chains,
        {"length": 2, "labels": 2},
        {"length": "whole", "labels": "whole"},
    ),
    "MonotonePaths": (
        px.MonotonePaths,
        {"rows": 2, "cols": 2},
        {"rows": "whole", "cols": "whole"},
    ),
    "Huber": (px.Huber, {}, {"delta": "number"}),
    "Quantile": (px.Quantile, {}, {"q": "number"}),
    "StructuredHinge": (
        px.StructuredHinge,
        {"oracle": chain},
        {"oracle": "thing", "top": "whole"},
    ),
    "EntropyHinge": (px.EntropyHinge, {}, {"oracle": "thing"}),
    "smooth": (build().smooth, {}, {"nu": "number"}),
    "regularize": (build().regularize, {"center": W}, {"kappa": "number"}),
    "Constant": (px.Constant, {}, {"s": "number"}),
    "Inverse": (px.Inverse, {}, {"s": "number"}),
    "InverseSqrt": (px.InverseSqrt, {}, {"s": "number"}),
    "MLP": (
        px.networks.MLP,
        {"sizes": (1, 1)},
        {"sizes": "function", "activation": "word", "bias": "flag"},
    ),
    "Lattice": (
        px.Lattice,
        {"center": 1.0, "ratio": 2.0},
        {
            "ratio": "number",
            "bracket": "function",
            "low": "optional fraction",
            "high": "optional fraction",
        },
    ),
    "Choice": (
        px.Choice,
        {"options": (1, 2)},
        {"options": "function", "bracket": "function", "ordered": "flag"},
    ),
    "Space": (
        px.Space,
        {"make": px.sgd, "axes": {"step": px.Lattice(0.1, 2.0)}},
        {"make": "function", "axes": "thing", "budget": "whole"},
    ),
    "shard": (px.shard, {"data": (X, Y)}, {"devices": "thing"}),
    "Averaged": (px.Averaged, {}, {"solver": "thing"}),
    "BestSoFar": (px.BestSoFar, {}, {"solver": "thing"}),
    "Rescaled": (
        px.Rescaled,
        {"solver": px.sgd(0.1)},
        {"solver": "thing", "scale": "size"},
    ),
    "as_optax": (
        px.as_optax,
        {"solver": px.sgd(0.1), "inner": residual, "outer": px.L2()},
        {"solver": "thing", "inner": "function", "outer": "thing"},
    ),
    "at_noise_level": (px.at_noise_level, {}, {"level": "number"}),
    "sgd": (
        px.sgd,
        {"step": 0.1},
        {"step": "schedule", "batch_size": "whole", "replace": "flag"},
    ),
    "subgradient_descent": (px.subgradient_descent, {}, {"step": "schedule"}),
    "truncated": (
        px.truncated,
        {"step": 0.1},
        {"step": "schedule", "lower": "finite", "batch_size": "whole"},
    ),
    "stochastic_prox_linear": (
        px.stochastic_prox_linear,
        {"step": 0.1},
        {"step": "schedule", "batch_size": "whole"},
    ),
    "svrg": (
        px.svrg,
        {"step": 0.1},
        {"step": "schedule", "nu": "number", "average": "flag"},
    ),
    "casimir_svrg": (
        px.casimir_svrg,
        {"nu": 0.1},
        {"nu": "schedule", "kappa": "optional schedule", "step": "optional schedule"}
        | {"warm_start": "word", "average": "flag"},
    ),
    "pli": (
        px.pli,
        {"kappa": 1.0, "nu": 0.1},
        {
            "kappa": "number",
            "nu": "optional schedule",
            "inner_passes": "passes",
            "step": "optional schedule",
            "catalyst": "optional schedule",
        }
        | {"inner": "word", "accept": "flag"},
    ),
    "prox_linear": (
        px.prox_linear,
        {},
        {"kappa": "optional number", "tol": "number", "accelerated": "flag"},
    ),
    "lbfgs": (px.lbfgs, {}, {"nu": "optional number", "memory": "whole"}),
    "stochastic_gauss_newton": (
        sarah,
        {"kappa": 1.0, "batch_size": 2},
        {
            "kappa": "schedule",
            "batch_size": "whole",
            "jacobian_batch_size": "optional whole",
        }
        | {"period": "optional whole", "estimator": "word", "subsolver": "word"},
    ),
    "composition_sgd": (
        functools.partial(px.composition_sgd, estimator="sarah"),
        {"step": 1.0, "batch_size": 2},
        {
            "step": "schedule",
            "batch_size": "whole",
            "jacobian_batch_size": "optional whole",
        }
        | {"period": "optional whole", "estimator": "word"},
    ),
    "solve_subproblem": (
        px.solve_subproblem,
        {"problem": build(), "w": W, "kappa": 1.0},
        {"problem": "thing", "kappa": "number", "tol": "number"},
    ),
    "minimize": (
        px.minimize,
        {"problem": build(), "w": W, "solver": px.sgd(0.1)},
        {
            "problem": "thing",
            "solver": "solver",
            "passes": "optional number",
            "steps": "optional whole",
        }
        | {
            "tol": "optional number",
            "stop": "optional function",
            "seed": "whole",
            "metrics": "metrics",
        }
        | {"progress": "flag", "resume": "thing"},
    ),
    "tune": (
        px.tune,
        {
            "problem": build(),
            "w": W,
            "solvers": px.sgd(0.1),
            "validation": build(),
            "passes": 1,
        },
        {
            "problem": "thing",
            "solvers": "thing",
            "validation": "function",
            "passes": "number",
            "seeds": "whole",
        },
    ),
    "advise": (
        px.advise,
        {"problem": build(), "w": W},
        {
            "problem": "thing",
            "validation": "thing",
            "budget": "number",
            "passes": "number",
            "folds": "count from 2",
        }
        | {"settings": "optional whole", "seed": "whole", "say": "optional function"},
    ),
    "covariance": (
        px.covariance,
        {"problem": build(), "w": W},
        {"problem": "thing", "kind": "word"},
    ),
    "load_solution": (px.load_solution, {}, {"path": "path"}),
    "Solution.save": (measured({}).save, {}, {"path": "path"}),
    "load_fit": (px.load_fit, {}, {"path": "path"}),
    "solve": (
        px.solve,
        {"problem": build(), "w": W},
        {"problem": "thing"} | LIMITS,
    ),
    "solve_many": (
        solved_many,
        {},
        {"problems": "thing", "chunk": "optional whole", "progress": "flag"} | LIMITS,
    ),
    "multistart": (
        px.multistart,
        {"problem": build(), "starts": np.stack([W, W])},
        {"problem": "thing", "chunk": "optional whole", "progress": "flag"} | LIMITS,
    ),
    "bootstrap": (
        px.bootstrap,
        {"problem": build(), "w": W, "count": 2},
        {
            "problem": "thing",
            "count": "count from 2",
            "level": "number",
            "tol": "optional number",
        }
        | {"solver": "run solver", "key": "key"},
    ),
    "curve_fit": (
        px.curve_fit,
        {"f": lambda x, a: a * x, "xdata": table["x"], "ydata": table["y"]},
        {"f": "function", "sigma": "deviations", "absolute_sigma": "flag"}
        | {
            "check_finite": "optional flag",
            "bounds": "bounds",
            "method": "word",
            "jac": "thing",
        }
        | {"loss": "word", "full_output": "flag", "nan_policy": "word"}
        | {"maxfev": "optional whole"},
    ),
    "curve_fit with huber": (
        px.curve_fit,
        {
            "f": lambda x, a: a * x,
            "xdata": table["x"],
            "ydata": table["y"],
            "loss": "huber",
        },
        {"delta": "optional number"},
    ),
    "curve_fit with quantile": (
        px.curve_fit,
        {
            "f": lambda x, a: a * x,
            "xdata": table["x"],
            "ydata": table["y"],
            "loss": "quantile",
        },
        {"quantile": "number"},
    ),
    "fit": (
        px.fit,
        {"table": table, "target": "y"},
        {"target": "column", "features": "columns", "weights": "column", "loss": "word"}
        | {
            "hidden": "optional whole",
            "errors": "word",
            "solver": "word",
            "seed": "whole",
        }
        | {"categories": "columns"},
    ),
    "fit of quantiles": (
        px.fit,
        {"table": table, "target": "y", "loss": "quantile"},
        {"quantile": "levels"},
    ),
    "mm_estimate": (
        px.inference.mm_estimate,
        {"X": np.ones((12, 1)), "y": table["y"]},
        {"X": "array", "y": "array", "seed": "whole", "starts": "whole"},
    ),
    "spectral_start": (
        px.spectral_start,
        {"measurements": X, "squares": np.ones(4)},
        {
            "measurements": "array",
            "squares": "array",
            "iterations": "whole",
            "key": "key",
        },
    ),
    "rollout": (
        px.rollout,
        {"dynamics": lambda x, u: x + u, "controls": np.ones((2, 1)), "x0": np.ones(1)},
        {"dynamics": "function", "controls": "array", "x0": "array"},
    ),
    "CompositeRegressor": (
        fitted(CompositeRegressor),
        {},
        {"loss": "word", "hidden": "layers", "activation": "word", "ridge": "number"}
        | {"solver": "thing", "passes": "optional number", "steps": "optional whole"}
        | {"tol": "optional number", "warm_start": "flag"}
        | {"random_state": "optional whole"},
    ),
    "CompositeRegressor of a quantile": (
        fitted(CompositeRegressor),
        {"loss": "quantile"},
        {"quantile": "number"},
    ),
    "StructuredClassifier": (
        fitted(StructuredClassifier),
        {},
        {"loss": "word", "nu": "number", "hidden": "layers", "activation": "word"}
        | {"ridge": "number", "solver": "thing", "passes": "optional number"}
        | {"tol": "number", "warm_start": "flag", "random_state": "optional whole"},
    ),
}


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
                raise ValueError(
                    f"Plane is a function on R^5; the inner map returns {k} numbers."
                )

    return build(outer=Plane())


AT_THE_FIRST_CALL["an outer function on the wrong dimension"] = (
    dimension_checked,
    W,
    ValueError,
    ["R^5", "2 numbers"],
)


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
    return {"construction": made} | {
        m: outcome(lambda m=m: getattr(p, m)(w)) for m in METHODS
    }


def refusals(function, good, kinds) -> dict:
    """The outcome of every wrong value of every argument, one at a time."""
    return {
        f"{name}={what}": outcome(
            lambda name=name, value=value: function(**good | {name: value})
        )
        for name, kind in kinds.items()
        for what, value in NOT[kind].items()
    }


def main() -> None:
    """All outcomes of one process, as JSON."""
    found = {name: outcome(case[0]) for name, case in AT_CONSTRUCTION.items()}
    found |= {
        name: first_calls(case[0], case[1]) for name, case in AT_THE_FIRST_CALL.items()
    }
    found |= {name: outcome(case[0]) for name, case in CALLS.items()}
    found |= {name: refusals(*case) for name, case in ARGUMENTS.items()}
    print(json.dumps(found))


@functools.cache
def run() -> dict:
    environment = os.environ | {
        "JAX_ENABLE_X64": "1",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, __file__]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_sentence(found: list, error, words: list[str]) -> None:
    name, message, trace = found
    assert name is not None, f"nothing was raised; the result was {message}"
    expected = error if isinstance(error, tuple) else (error,)
    assert name in [e.__name__ for e in expected], trace
    assert message.endswith(".") and "\n" not in message and len(message) <= 400, (
        message
    )
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} missing from: {message}"


@pytest.mark.parametrize("name", AT_CONSTRUCTION)
def test_at_construction(name):
    _, error, words = AT_CONSTRUCTION[name]
    assert_sentence(run()[name], error, words)


@pytest.mark.parametrize("name", AT_THE_FIRST_CALL)
def test_at_the_first_call(name):
    _, _, error, words = AT_THE_FIRST_CALL[name]
    found = run()[name]
    # those may be refused as soon as they are seen
    if not name.startswith(("center", "anchor")):
        assert found["construction"][0] is None, found["construction"]
    elif found["construction"][0] is not None:
        assert_sentence(found["construction"], error, words)
        return
    for method in METHODS:
        assert_sentence(found[method], error, words)


@pytest.mark.parametrize("name", CALLS)
def test_of_calls(name):
    _, error, words = CALLS[name]
    assert_sentence(run()[name], error, words)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_of_arguments(name):
    """Every wrong value of every argument is refused in a sentence of our own that names the
    argument.
    """
    _, _, kinds = ARGUMENTS[name]
    found = run()[name]
    assert len(found) == sum(len(NOT[kind]) for kind in kinds.values())
    for case, refused in found.items():
        word = NAMES.get(case.partition("=")[0], case.partition("=")[0])
        try:
            assert_sentence(refused, (TypeError, ValueError, UserError), [word])
            assert "/proxlin/" in refused[2].rpartition('File "')[2], (
                "the sentence is not ours"
            )
        except AssertionError as error:
            raise AssertionError(f"{name}({case}): {error}") from error


# where the sentence has another word for an argument
NAMES = {
    "inner": "inner",
    "predict": "predict",
    "s": "step of",
    "level": "level",
    "rows": "rows",
    "cols": "columns",
}
NAMES |= {
    "sizes": "size",
    "solvers": "tune",
    "make": "make",
    "activation": "activation",
    "problems": "problem",
    "bounds": "bound",
    "quantile": "uantile",
}


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
        p = px.MeanOfLosses(
            lambda w, s: w * s, px.L2(), x, ridge=kappa, weights=x[:, 0]
        )
        return p[i].smooth(nu).regularize(kappa, jnp.ones(2)).value(jnp.ones(2))

    x = jnp.ones((3, 2))
    assert np.isfinite(jax.jit(inside)(x, 1, 0.1, 0.5))
    # nan comes out; it is not hidden
    assert np.isnan(jax.jit(inside)(x.at[1, 1].set(jnp.nan), 1, 0.1, 0.5))


if __name__ == "__main__":
    main()
