"""The certificate is true on every way to a subproblem: losses of `Parts`, maps that touch few rows, weights, a loss
of a mean, trajectories and penalties.

The law and its twin in long double are those of test_certificates.py. Maps are linear with a few bits in each number,
so that u and J are exact.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from long_double import (
    CASES,
    HIGH,
    LONG,
    LOW,
    Found,
    K,
    N,
    Penalty,
    Twin,
    bits,
    instances,
    judged,
)
from proxlin.penalties import as_penalties
from proxlin.subproblem import exact as subproblem

pytestmark = pytest.mark.law

# ------------------------------------------------------------------------- losses entry by entry


def parts(*intervals):
    """Return rho, f and the projection of a sum over entries with these (low, high, rho)."""
    low, high, rho = (np.asarray(x, LONG) for x in zip(*intervals, strict=True))

    def project(v):
        return np.clip(v, low, high)

    def f(z):
        sharp = np.where(z > 0, high, low)
        smooth = project(z / np.where(rho > 0, rho, 1))
        v = np.where(rho > 0, smooth, np.where(np.isfinite(sharp), sharp, 0))
        return np.sum(z * v - rho / 2 * v * v, axis=-1)

    return rho, f, project


FREE = (-np.inf, np.inf, 1.0)
SHARP = px.Parts((px.L1(), 1), (px.Hinge(), 1), (px.Quantile(0.25), 1))
MIXED = px.Parts((px.SquaredL2(), 1), (px.Huber(0.5), 1), (px.L1(), 1))
ALL = {
    **CASES,
    "Parts": (SHARP, *parts((-1, 1, 0), (0, 1, 0), (LOW, HIGH, 0))),
    "Parts of all kinds": (MIXED, *parts(FREE, (-0.5, 0.5, 1), (-1, 1, 0))),
}


def any_units(name):
    return not np.any(ALL[name][1])


# -------------------------------------------------------------------------------------- the ways


class Drawn(NamedTuple):
    """The arrays of all instances, and the twin of one of them in long double."""

    arrays: tuple
    twin: Callable[..., Twin]


def plain(name, dtype, seed, count):
    """f of a mean of losses: only the loss is new."""
    data = instances(seed, count, dtype, any_units(name))
    same = np.full(N, LONG(1) / N)
    return Drawn(data, lambda X, y, w, *weights: Twin(X, y, same, w, *weights))


def of_data(w, sample):
    X, y = sample
    return X @ w - y


def of_problem(kind, **settings):
    def make(outer, X, y, w, kappa, ridge):
        problem = kind(of_data, outer, (X, y), ridge, **settings)
        return problem, w, subproblem.expand(problem, w)

    return make


WEIGHTS = np.array([0.5, 2.0, 1.0, 0.25, 1.25, 1.0])


def weighted(name, dtype, seed, count):
    data = instances(seed, count, dtype, any_units(name))
    c = np.asarray(WEIGHTS, LONG) / N
    return Drawn(data, lambda X, y, w, *weights: Twin(X, y, c, w, *weights))


def with_weights(outer, X, y, w, kappa, ridge):
    weights = jnp.asarray(WEIGHTS, X.dtype)
    return of_problem(px.MeanOfLosses, weights=weights)(outer, X, y, w, kappa, ridge)


def of_a_mean(name, dtype, seed, count):
    """Four samples, whose mean is exact."""
    X, y, *rest = instances(seed, count, dtype, any_units(name))

    def twin(X, y, w, *weights):
        mean = X.mean(axis=0)[None], y.mean(axis=0)[None]
        return Twin(*mean, np.ones(1, LONG), w, *weights)

    return Drawn((X[:, :4], y[:, :4], *rest), twin)


# Each sample touches one row of A (3, 2) and one of B (2, 2).
ROWS = np.random.default_rng(3)
OF_A = ROWS.integers(0, 3, N)
OF_B = ROWS.integers(0, 2, N)


def touched(name, dtype, seed, count):
    X, y, w, *rest = instances(seed, count, dtype, any_units(name))
    others = w[:, ::-1] * dtype(0.5), w[:, :2] * dtype(-0.25)
    w = np.concatenate([w, *others], axis=1)

    def twin(X, y, w, *weights):
        J = np.zeros((N, K, w.size), LONG)
        for n, (a, b) in enumerate(zip(OF_A, OF_B, strict=True)):
            J[n, :, 2 * a : 2 * a + 2] = X[n, :, :2]
            J[n, :, 6 + 2 * b : 8 + 2 * b] = X[n, :, 2:]
        return Twin(J, y, np.full(N, LONG(1) / N), w, *weights)

    return Drawn((X, y, w, *rest), twin)


def of_rows(local, sample):
    return sample["X"] @ jnp.concatenate([local["A"], local["B"]]) - sample["y"]


def touching(outer, X, y, w, kappa, ridge):
    phi = px.touches(of_rows, lambda sample: {"A": sample["a"], "B": sample["b"]})
    data = {"X": X, "y": y, "a": jnp.asarray(OF_A), "b": jnp.asarray(OF_B)}
    w = {"A": w[:6].reshape(3, 2), "B": w[6:].reshape(2, 2)}
    problem = px.MeanOfLosses(phi, outer, data, ridge)
    return problem, w, subproblem.Sparse.of(problem, w)


# x' = A x + B u: a push in halves, so that all states are exact.
A = np.array([[1.0, 0.5], [0.0, 1.0]])
B = np.array([[0.0, 0.25], [0.5, 0.0]])


def stages(name, dtype, seed, count):
    """K residuals of the state and the controls of each stage, X @ (x, u) - y."""
    X, y, w, *rest = instances(seed, count, dtype, any_units(name))
    units = np.max(np.abs(w), axis=1, keepdims=True)
    controls = bits(np.random.default_rng(seed + 1), (count, 2 * N), 4)
    w = (2.0 ** np.ceil(np.log2(units + 1e-300)) * controls).astype(dtype)

    def twin(X, y, w, *weights):
        J = np.zeros((N, K, w.size), LONG)
        state = np.zeros((2, w.size), LONG)
        for t in range(N):
            state = A.astype(LONG) @ state
            state[:, 2 * t : 2 * t + 2] += B
            J[t] = X[t, :, :2] @ state
            J[t, :, 2 * t : 2 * t + 2] += X[t, :, 2:]
        return Twin(J, y, np.full(N, LONG(1) / N), w, *weights)

    return Drawn((X, y, w, *rest), twin)


def dynamics(x, u):
    return jnp.asarray(A, x.dtype) @ x + jnp.asarray(B, x.dtype) @ u


def stage(x, u, row):
    X, y = row
    return X @ jnp.concatenate([x, u]) - y


def trajectory(outer, X, y, w, kappa, ridge):
    start = jnp.zeros(2, w.dtype)
    problem = px.Trajectory(dynamics, stage, outer, start, (X, y), ridge)
    w = w.reshape(N, 2)
    return problem, w, subproblem.expand(problem, w)


WAYS = {  # way -> (its arrays and twin, its problem, start and expansion)
    "plain": (plain, of_problem(px.MeanOfLosses)),
    "weights": (weighted, with_weights),
    "mean": (of_a_mean, of_problem(px.LossOfMean)),
    "touches": (touched, touching),
    "trajectory": (stages, trajectory),
}


@eqx.filter_jit
def answers(way, name, arrays):
    """Return what the library says of every instance."""
    outer = ALL[name][0]
    tol = jnp.asarray(1e-9)

    def one(*numbers):
        problem, w, expansion = WAYS[way][1](outer, *numbers)
        quadratic = subproblem.proximal(problem, numbers[3], w)
        found = subproblem.solve(expansion, quadratic, outer, tol, max_iterations=300)
        x = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(found.w)])
        goal = subproblem.target(tol, found.scale)
        return Found(x, found.v, found.gap, found.value, found.error, goal)

    return jax.vmap(one)(*arrays)


def check(case, twin, arrays, found, dtype, share=1.0):
    """Judge every instance: none is false, and this share of them is solved."""
    count = len(arrays[0])
    verdicts = []
    for i in range(count):
        numbers = [np.asarray(x[i], LONG) for x in arrays]
        one = Found(*(np.asarray(x)[i] for x in found))
        verdicts.append(judged(case, twin(*numbers), one, dtype))
    false_gaps, false_values, reached = np.sum(verdicts, axis=0)
    assert (false_gaps, false_values) == (0, 0)
    assert reached >= share * count


def check_way(way, name, dtype, count):
    drawn = WAYS[way][0](name, dtype, 7, count)
    found = answers(way, name, tuple(jnp.asarray(x) for x in drawn.arrays))
    # The one block of a mean is no matter of course in float32.
    share = 0.9 if way == "mean" and dtype is np.float32 else 1.0
    check(ALL[name], drawn.twin, drawn.arrays, found, dtype, share)


@pytest.mark.processor
@pytest.mark.parametrize(
    ("way", "name"), [("plain", "Parts of all kinds"), ("trajectory", "L1")]
)
def test_certificates_are_true_on_other_ways(way, name):
    check_way(way, name, np.float64, 20)


SLOW = [
    ("plain", "Parts"),
    ("plain", "Parts of all kinds"),
    *[("weights", name) for name in ("L1", "L2", "Max", "Huber")],
    *[("mean", name) for name in ("L1", "L2", "LInf", "Huber", "Max")],
    *[("touches", name) for name in ("L1", "L2", "LInf", "Max", "Huber")],
]
# The states have more bits than float32.
IN_FLOAT64 = [
    ("trajectory", name)
    for name in (
        "L1",
        "L2",
        "LInf",
        "Huber",
        "SquaredL2",
        "Parts",
        "Parts of all kinds",
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "name", "dtype"),
    [
        *[(*each, dtype) for each in SLOW for dtype in (np.float32, np.float64)],
        *[(*each, np.float64) for each in IN_FLOAT64],
    ],
)
def test_certificates_are_true_on_every_way(way, name, dtype):
    """50 instances of each."""
    check_way(way, name, dtype, 50)


# -------------------------------------------------------------------------------------- penalties


def bounded(low, high):
    def value(x):
        return LONG(0) if np.all((x >= low) & (x <= high)) else LONG(np.inf)

    return Penalty(value, lambda t, step: np.clip(t, low, high))


def sparse(lam):
    def prox(t, step):
        return np.sign(t) * np.maximum(np.abs(t) - step * lam, 0)

    return Penalty(lambda x: lam * np.sum(np.abs(x)), prox)


def grouped(lam):
    def length(x):
        return np.sqrt(np.sum(x * x))

    def prox(t, step):
        return t * max(LONG(0), 1 - step * lam / max(length(t), LONG(1e-4000)))

    return Penalty(lambda x: lam * length(x), prox)


PENALTIES: dict[str, tuple[Any, Any]] = {  # name -> (the penalty, its twin)
    "bounds": (
        lambda low, high, lam: px.Bounds(low, high),
        lambda low, high, lam: bounded(low, high),
    ),
    "l1": (
        lambda low, high, lam: px.L1Penalty(lam),
        lambda low, high, lam: sparse(lam),
    ),
    "group": (
        lambda low, high, lam: px.GroupL2(lam),
        lambda low, high, lam: grouped(lam),
    ),
}


@eqx.filter_jit
def penalized(way, name, penalty, arrays):
    outer = ALL[name][0]
    tol = jnp.asarray(1e-9)

    def one(X, y, w, kappa, ridge, *numbers):
        problem, w, expansion = WAYS[way][1](outer, X, y, w, kappa, ridge)
        quadratic = subproblem.proximal(problem, kappa, w)
        found = subproblem.solve(
            expansion,
            quadratic,
            outer,
            tol,
            max_iterations=300,
            penalty=as_penalties(PENALTIES[penalty][0](*numbers)),
        )
        x = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(found.w)])
        goal = subproblem.target(tol, found.scale)
        return Found(x, found.v, found.gap, found.value, found.error, goal)

    return jax.vmap(one)(*arrays)


def check_penalty(name, penalty, dtype, count, way="plain"):
    drawn = WAYS[way][0](name, dtype, 5, count)
    X, y, w, kappa, ridge = drawn.arrays
    units = np.max(np.abs(w), axis=1) + np.finfo(dtype).tiny
    low = -units / 2
    high = units / 4
    slopes = np.max(np.abs(X), axis=(1, 2, 3))
    if np.any(ALL[name][1]):
        slopes = slopes**2 * units
    lam = slopes / 8
    if penalty == "bounds":
        w = np.clip(w, low[:, None], high[:, None])
    arrays = tuple(x.astype(dtype) for x in (X, y, w, kappa, ridge, low, high, lam))

    def twin(X, y, w, kappa, ridge, *numbers):
        g = PENALTIES[penalty][1](*numbers)
        return drawn.twin(X, y, w, kappa, ridge, g)

    found = penalized(way, name, penalty, tuple(jnp.asarray(x) for x in arrays))
    # In float32 some end above the tolerance, and say so.
    check(ALL[name], twin, arrays, found, dtype, share=0.9)


@pytest.mark.processor
@pytest.mark.parametrize("way", ["plain", "touches", "trajectory"])
def test_certificates_with_bounds_are_true(way):
    check_penalty("L1", "bounds", np.float64, 20, way)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["L1", "L2", "LInf", "Max", "Huber", "SquaredL2"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_certificates_with_penalties_are_true(name, penalty, dtype):
    """50 instances of each."""
    check_penalty(name, penalty, dtype, 50)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["touches", "trajectory"])
@pytest.mark.parametrize("name", ["L1", "L2", "LInf", "Max", "Huber", "SquaredL2"])
@pytest.mark.parametrize("penalty", ["bounds", "l1"])
def test_certificates_with_structure_and_penalty_are_true(name, penalty, way):
    """50 instances of each."""
    check_penalty(name, penalty, np.float64, 50, way)
