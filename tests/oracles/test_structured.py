"""The structural hinges against enumeration: values, both smoothings, what `exact` says, and their
constants.
"""

import functools
import itertools
import math

import cvxpy
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.data.metrics import exact_share
from proxlin.oracles import Chains, MonotonePaths
from proxlin.outers.structured import (
    EntropyHinge,
    SimplexSmoothing,
    StructuredHinge,
    project_sorted,
)

pytestmark = pytest.mark.reference

quick = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)
NUS = np.array([1e-3, 0.1, 0.5, 2.0, 10.0])
ORACLES = [MonotonePaths(4, 4), Chains(3, 3)]


@functools.cache
def outputs(oracle):
    """Y as rows, by brute force over moves or labels."""
    rows = []
    if isinstance(oracle, MonotonePaths):
        for downs in itertools.combinations(
            range(oracle.rows + oracle.cols - 2), oracle.rows - 1
        ):
            moves = np.isin(np.arange(oracle.rows + oracle.cols - 2), downs)
            r = np.concatenate([[0], np.cumsum(moves)])
            rows.append(
                np.bincount(
                    r * oracle.cols + np.arange(len(r)) - r, minlength=oracle.size()
                )
            )
    else:
        for labels in itertools.product(range(oracle.labels), repeat=oracle.length):
            unary = np.eye(oracle.labels)[list(labels)]
            pairwise = [np.outer(x, y) for x, y in itertools.pairwise(unary)]
            rows.append(np.concatenate([unary.ravel(), np.ravel(pairwise)]))
    return np.array(rows, float)


def points(oracle, count=12):
    return np.random.default_rng(oracle.size()).normal(size=(count, oracle.size() + 1))


def project(z, nu):
    """argmax_{p in simplex} <p, z> - nu/2 |p|^2 by bisection on the threshold."""
    low, high = z.min() - nu, z.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(z - middle, 0).sum() > nu else (low, middle)
        )
    return np.maximum(z - high, 0) / nu


def smoothed(oracle, u, nu):
    """The smoothing over all outputs: its value, gradient and support."""
    z = outputs(oracle) @ u[:-1]
    p = project(z, nu)
    return (
        p @ z - nu / 2 * p @ p - u[-1],
        np.append(p @ outputs(oracle), -1),
        np.sum(p > 1e-12),
    )


def on_grid(function, oracle, top=None):
    """function(f_nu, u) for all NUS and points: arrays (nus, points, ...), from one compilation."""
    make = lambda nu: (
        StructuredHinge(oracle, top) if top else EntropyHinge(oracle)
    ).smooth(nu)
    return quick(
        jax.vmap(lambda nu: jax.vmap(lambda u: function(make(nu), u))(points(oracle)))
    )(NUS)


def report(f, u):
    value, gradient = jax.value_and_grad(f.value)(u)
    exact = f.exact(u) if isinstance(f, SimplexSmoothing) else True
    return value, f.subgradient(u), gradient, exact


@pytest.mark.parametrize("hinge", [StructuredHinge, EntropyHinge])
@pytest.mark.parametrize("oracle", ORACLES, ids=str)
def test_the_hinge_is_a_maximum_over_outputs(oracle, hinge):
    f, u = hinge(oracle), points(oracle)
    value, v, gradient = quick(
        jax.vmap(lambda u: (f.value(u), f.subgradient(u), jax.grad(f.value)(u)))
    )(u)
    np.testing.assert_allclose(
        value, (u[:, :-1] @ outputs(oracle).T).max(1) - u[:, -1], atol=1e-12
    )
    np.testing.assert_allclose(
        value, np.sum(np.asarray(v) * u, axis=1), atol=1e-12, err_msg="f(u) = <v, u>"
    )
    np.testing.assert_array_equal(v, gradient)
    k = oracle.size() + 1
    assert f.lipschitz(k) == math.sqrt(outputs(oracle).sum(1).max() + 1)
    assert f.sharpness(k) == 0 and f.smoothness(k) == math.inf


@pytest.mark.parametrize("top", [1, 3, 100])
@pytest.mark.parametrize("oracle", ORACLES, ids=str)
def test_top_k_smoothing_is_exact_where_it_says_so(oracle, top):
    value, v, gradient, exact = map(np.asarray, on_grid(report, oracle, top))
    f = (points(oracle)[:, :-1] @ outputs(oracle).T).max(1) - points(oracle)[:, -1]
    np.testing.assert_allclose(v, gradient, atol=1e-9)
    np.testing.assert_allclose(v[..., -1], -1)
    for i, nu in enumerate(NUS):
        assert np.all(value[i] <= f + 1e-12) and np.all(f <= value[i] + nu / 2 + 1e-12)
        for j, u in enumerate(points(oracle)):
            full, full_gradient, support = smoothed(oracle, u, nu)
            assert exact[i, j] == (support <= top)
            assert value[i, j] <= full + 1e-10
            if exact[i, j]:
                np.testing.assert_allclose(value[i, j], full, atol=1e-10)
                np.testing.assert_allclose(v[i, j], full_gradient, atol=1e-9)
    if 1 < top < 10:
        assert 0 < exact.mean() < 1, "the grid of nu should show both answers"
    if top >= oracle.count():
        assert exact.all()


def test_the_projection_is_the_quadratic_program():
    for oracle, nu in itertools.product(ORACLES, (0.1, 2.0)):
        z = outputs(oracle) @ points(oracle)[0, :-1]
        p = cvxpy.Variable(len(z))
        objective = cvxpy.Maximize(z @ p - nu / 2 * cvxpy.sum_squares(p))
        best = cvxpy.Problem(objective, [p >= 0, cvxpy.sum(p) == 1]).solve(
            solver=cvxpy.CLARABEL
        )
        np.testing.assert_allclose(
            smoothed(oracle, points(oracle)[0], nu)[0] + points(oracle)[0, -1],
            best,
            atol=1e-7,
        )


@pytest.mark.parametrize("oracle", ORACLES, ids=str)
def test_entropy_smoothing_is_a_log_sum(oracle):
    value, v, gradient, _ = map(np.asarray, on_grid(report, oracle))
    z = points(oracle)[:, :-1] @ outputs(oracle).T
    f = z.max(1) - points(oracle)[:, -1]
    for i, nu in enumerate(NUS):
        log_sum = np.logaddexp.reduce(z / nu, axis=1)
        np.testing.assert_allclose(
            value[i], nu * log_sum - points(oracle)[:, -1], atol=1e-11
        )
        np.testing.assert_allclose(
            v[i, :, :-1],
            np.exp(z / nu - log_sum[:, None]) @ outputs(oracle),
            atol=1e-10,
        )
        assert np.all(f <= value[i] + 1e-12) and np.all(
            value[i] <= f + nu * math.log(oracle.count()) + 1e-12
        )
    np.testing.assert_allclose(v, gradient, atol=1e-12)


@pytest.mark.parametrize("top", [None, 100])
@pytest.mark.parametrize("oracle", ORACLES, ids=str)
def test_gradients_match_finite_differences_and_their_constant(oracle, top):
    step = 1e-6

    def differences(f, u):
        ends = jax.vmap(f.value)(u[None] + step * jnp.eye(u.shape[0])) - jax.vmap(
            f.value
        )(u[None] - step * jnp.eye(u.shape[0]))
        return ends / (2 * step), f.subgradient(u)

    slopes, v = map(np.asarray, on_grid(differences, oracle, top))
    # nu = 1e-3 bends within a step
    np.testing.assert_allclose(slopes[1:], v[1:], atol=2e-5)
    u = points(oracle)
    distance = np.linalg.norm(u[:, None] - u[None], axis=-1)
    for i, nu in enumerate(NUS):
        f = (StructuredHinge(oracle, top) if top else EntropyHinge(oracle)).smooth(nu)
        change = np.linalg.norm(v[i][:, None] - v[i][None], axis=-1)
        assert np.all(
            change <= float(f.smoothness(oracle.size() + 1)) * distance + 1e-9
        )
        assert np.all(
            np.linalg.norm(v[i], axis=-1) <= f.lipschitz(oracle.size() + 1) + 1e-9
        )


@pytest.mark.parametrize(
    "f",
    [StructuredHinge(MonotonePaths(2, 3), 2), EntropyHinge(MonotonePaths(2, 3))],
    ids=str,
)
def test_smoothing_twice_adds_up(f):
    assert eqx.tree_equal(f.smooth(0.5).smooth(0.25), f.smooth(0.75))


def test_projection_of_sorted_scores():
    solve = quick(jax.vmap(project_sorted))
    z = np.array(
        [
            [3.0, 2.5, 0.0, -np.inf],
            [1.0, 1.0, 1.0, 1.0],
            [2.0] + [-np.inf] * 3,
            [-np.inf] * 4,
        ]
    )
    p, threshold = map(np.asarray, solve(z, np.array([1.0, 2.0, 0.5, 1.0])))
    np.testing.assert_allclose(
        p, [[0.75, 0.25, 0, 0], [0.25] * 4, [1, 0, 0, 0], [1, 0, 0, 0]]
    )
    np.testing.assert_allclose(threshold[:3], [2.25, 0.5, 1.5])
    rng = np.random.default_rng(0)
    z = (
        -np.sort(-rng.normal(size=(50, 4)) * rng.choice([0.1, 1, 1e3], (50, 1)), axis=1)
        + 1e4
    )
    nu = rng.exponential(size=50)
    p, _ = map(np.asarray, solve(z, nu))
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-9)
    np.testing.assert_allclose(
        p, [project(each, scale) for each, scale in zip(z, nu, strict=True)], atol=1e-6
    )


def test_forbidden_parts_and_padding():
    """A short sequence in a long chain: the same values, and a gradient without nan."""
    long, short = Chains(3, 2), Chains(2, 2)
    a = np.random.default_rng(3).normal(size=long.size())
    head = np.concatenate([a[:4], a[6:10]])
    pairs = [
        (hinge(long), hinge(short))
        for hinge in (functools.partial(StructuredHinge, top=6), EntropyHinge)
    ]
    pairs += [(f.smooth(0.7), g.smooth(0.7)) for f, g in pairs]

    @quick
    def ask(a, head):
        u, v = jnp.append(long.pad(a, 2), 0.3), jnp.append(head, 0.3)
        return [
            (f.value(u), g.value(v), f.subgradient(u), jax.grad(f.value)(u))
            for f, g in pairs
        ]

    for value, expected, v, gradient in ask(a, head):
        np.testing.assert_allclose(value, expected, atol=1e-12)
        assert np.isfinite(v).all()
        np.testing.assert_allclose(gradient, v, atol=1e-9)


def test_single_precision_and_one_compilation():
    oracle = MonotonePaths(4, 4)
    u = points(oracle)[0].astype(np.float32)
    traces = []

    @eqx.filter_jit
    def value(f, u):
        traces.append(1)
        return f.value(u), f.subgradient(u)

    for nu in (0.1, 0.2):
        found, v = value(StructuredHinge(oracle, 20).smooth(nu), u)
        assert found.dtype == v.dtype == np.float32
        np.testing.assert_allclose(
            found, smoothed(oracle, u.astype(float), nu)[0], rtol=1e-5
        )
    assert len(traces) == 1


def test_wrong_use_is_a_sentence():
    oracle = MonotonePaths(2, 2)
    for f in (
        StructuredHinge(oracle),
        EntropyHinge(oracle),
        StructuredHinge(oracle).smooth(1.0),
    ):
        with pytest.raises(
            ValueError, match=r"takes 5 numbers .* but the inner map returns 4"
        ):
            f.check(4)
        with pytest.raises(ValueError, match="takes 5 numbers"):
            f.value(jnp.zeros(6))
        with pytest.raises(ValueError, match="nu must be above 0"):
            f.smooth(0.0)
        with pytest.raises(ValueError, match="nu must be above 0"):
            f.smooth(-1.0)
    for bad in (0, 2.5, True):
        with pytest.raises(ValueError, match="must be a whole number from 1"):
            StructuredHinge(oracle, bad)


def test_the_report_of_how_often_top_was_enough():
    oracle = MonotonePaths(3, 3)
    x = np.random.default_rng(4).normal(size=(12, 9))
    y = np.asarray(jax.jit(jax.vmap(oracle.argmax))(x[::-1]))
    problem = px.MeanOfLosses(
        px.augmented_scores(lambda w, x: w * x, oracle),
        StructuredHinge(oracle, 2),
        (x, y),
    )
    w = jnp.asarray(1.0)
    smooth = problem.smooth(0.5)
    assert isinstance(smooth.outer, SimplexSmoothing)
    each = [smoothed(oracle, np.asarray(u), 0.5)[2] <= 2 for u in problem.stack(w)]
    assert (
        exact_share(smooth, w) == pytest.approx(np.mean(each)) and 0 < np.mean(each) < 1
    )
    with pytest.raises(
        TypeError, match="exact_share needs a problem with StructuredHinge, smoothed"
    ):
        exact_share(problem, w)
