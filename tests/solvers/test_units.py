"""The units of y: with s = 2^e, which rounds nothing,

    argmin F_s = s argmin F,    min F_s = s min F       F_s(w) = (1/n) sum_i f_s(X_i w - s y_i),  f_s(z) = s f(z / s)

Huber's function is s^2 f(z / s) with s delta for delta. A map that is not linear has the units too:
F_s(w) = (1/n) sum_i f_s(s phi_i(w)) has the minimiser of F.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px

pytestmark = pytest.mark.law

# name -> (f of units s, the power of s that F has)
OUTERS = {
    "l1": (lambda s: px.L1(), 1),
    "l2": (lambda s: px.L2(), 1),
    "huber": (px.Huber, 2),
}
RUNS = {
    "minimize": lambda *run, tol: px.minimize(*run, steps=200, tol=tol).w,
    "solve": lambda *run, tol: px.solve(*run, steps=200, tol=tol).w,
}
# the share of F that a run may leave is tol^2 / 2, or what rounding has of it
TOL = {np.float64: 1e-7, np.float32: 1e-3}
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def rows(dtype):
    """Targets of a linear map with noise, a tenth of them far off."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2, 3))
    Y = X @ [1.0, -2.0, 3.0] + 0.3 * rng.normal(size=(40, 2))
    Y[:4] += 20
    return X.astype(dtype), Y.astype(dtype)


def linear(w, sample):
    X, y, _ = sample
    return X @ w - y


def curved(w, sample):
    X, y, s = sample
    return s * (X @ jnp.sinh(w) - y)


def found(inner, outer, run, dtype, s, share):
    """Return the minimiser in units s, brought back to the units 1 if w `share`s them, and F of unit 1 there."""
    X, Y = rows(dtype)
    f, _ = OUTERS[outer]
    data = X, Y * dtype(s if share else 1), np.full(40, s, dtype)
    problem = px.MeanOfLosses(inner, f(float(s)), data)
    w = RUNS[run](problem, np.zeros(3, dtype), px.prox_linear(), tol=TOL[dtype])
    w = np.asarray(w, np.float64) / (s if share else 1)
    one = tuple(np.asarray(x, np.float64) for x in (X, Y, np.ones(40)))
    return w, float(px.MeanOfLosses(inner, f(1.0), one).value(w))


@pytest.mark.parametrize("exponent", [-30, -15, 15, 30])
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("outer", OUTERS)
@DTYPES
def test_units_of_y_are_those_of_w_and_f(outer, run, dtype, exponent):
    same(linear, outer, run, dtype, exponent, share=True)


@pytest.mark.parametrize("exponent", [-30, 30])
@pytest.mark.parametrize("outer", OUTERS)
@DTYPES
def test_units_of_a_map_that_is_not_linear_are_those_of_f(outer, dtype, exponent):
    same(curved, outer, "minimize", dtype, exponent, share=False)


def same(inner, outer, run, dtype, exponent, *, share):
    """Both end where F is least, to a few tol^2 or rounding errors of it."""
    w, value = found(inner, outer, run, dtype, 1.0, share)
    scaled, scaled_value = found(inner, outer, run, dtype, 2.0**exponent, share)
    rounding = 20 * TOL[dtype] ** 2 + 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(scaled_value, value, rtol=rounding)
    # F is sharp in w, or at least quadratic
    np.testing.assert_allclose(scaled, w, atol=30 * TOL[dtype])


@pytest.mark.parametrize("outer", OUTERS)
@DTYPES
def test_the_value_that_is_told_has_the_units(outer, dtype):
    X, Y = rows(dtype)
    f, power = OUTERS[outer]
    told = []
    for s in (1.0, 2.0**-30, 2.0**30):
        data = X, Y * dtype(s), np.full(40, s, dtype)
        problem = px.MeanOfLosses(linear, f(s), data)
        solution = px.minimize(
            problem, np.zeros(3, dtype), px.prox_linear(), tol=TOL[dtype]
        )
        assert solution.status == "converged"
        told.append(float(solution.history["value"][-1]) / s**power)
    rounding = 20 * TOL[dtype] ** 2 + 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(told[1:], told[0], rtol=rounding)
