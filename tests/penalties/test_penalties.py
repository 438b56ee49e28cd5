"""The laws of penalties: value, subgradient, prox and excess agree, zeros and bounds are exact."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxlin as px
from proxlin.penalties import as_penalties

pytestmark = pytest.mark.law

PENALTIES = {
    "Bounds": px.Bounds(-0.5, np.array([0.2, 1.0, np.inf])),
    "from below": px.Bounds(0.1),
    "from above": px.Bounds(high=0.3),
    "fixed": px.Bounds(0.2, 0.2),
    "NonNegative": px.NonNegative(),
    "L1Penalty": px.L1Penalty(0.7),
    "GroupL2": px.GroupL2(0.7),
    "nothing": px.L1Penalty(0.0),
}
each = pytest.mark.parametrize("name", PENALTIES)
some_numbers = st.lists(
    st.floats(-4, 4, allow_subnormal=False), min_size=12, max_size=12
)


def matrix(numbers):
    return jnp.asarray(np.reshape(numbers, (4, 3)))


@each
@settings(max_examples=15, deadline=None)
@given(some_numbers, some_numbers, st.floats(0.01, 10))
def test_the_prox_is_the_minimiser(name, x, other, step):
    """x* = prox(x) has (x - x*) / step in dg(x*): g(y) >= g(x*) + <x - x*, y - x*> / step."""
    g = PENALTIES[name]
    x = matrix(x)
    y = g.nearest(matrix(other))
    best = g.prox(x, step)
    slope = (x - best) / step
    assert np.isfinite(g.value(best))
    line = g.value(best) + jnp.sum(slope * (y - best))
    assert float(g.value(y)) >= float(line) - 1e-9 * (1 + abs(float(line)))


@each
@settings(max_examples=15, deadline=None)
@given(some_numbers, some_numbers, st.floats(0.01, 10))
def test_the_excess_is_the_distance_from_the_line(name, x, other, step):
    g = PENALTIES[name]
    best = g.prox(matrix(x), step)
    slope = (matrix(x) - best) / step
    y = g.nearest(matrix(other))
    plain = g.value(y) - g.value(best) - jnp.sum(slope * (y - best))
    found = g.excess(y, best, slope)
    assert float(found) >= 0
    assert np.isclose(float(found), float(plain), atol=1e-9 * (1 + float(g.value(y))))


@each
def test_the_subgradient_lies_below(name):
    g = PENALTIES[name]
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = (g.nearest(jnp.asarray(rng.normal(size=(4, 3)))) for _ in range(2))
        line = g.value(x) + jnp.sum(g.subgradient(x) * (y - x))
        assert float(g.value(y)) >= float(line) - 1e-12


@each
def test_the_nearest_point_is_the_projection(name):
    g = PENALTIES[name]
    x = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))
    near = g.nearest(x)
    assert np.isfinite(g.value(near))
    assert np.array_equal(g.nearest(near), near)
    if not np.isfinite(g.value(x)):
        assert not np.array_equal(near, x)


def test_zeros_and_bounds_are_exact_and_are_the_kinks():
    x = jnp.asarray([[0.3, -0.2, 4.0], [0.1, 0.1, 0.2]])
    soft = px.L1Penalty(1.0).prox(x, 0.5)
    assert np.array_equal(soft == 0, np.abs(x) <= 0.5)
    rows = px.GroupL2(1.0).prox(x, 0.5)
    assert np.all(rows[1] == 0) and np.all(rows[0] != 0)
    clipped = px.Bounds(0.15, 0.3).prox(x, 0.5)
    assert np.all((clipped >= 0.15) & (clipped <= 0.3))
    for g, point in (
        (px.L1Penalty(1.0), soft),
        (px.GroupL2(1.0), rows),
        (px.Bounds(0.15, 0.3), clipped),
    ):
        moved = g.prox(point + 1e-3 * jnp.ones_like(point), 1e-2)
        held = np.asarray(g.kinks(point))
        if isinstance(g, px.L1Penalty):  # 1e-3 < lam step: what is at a kink stays
            assert np.all(np.asarray(moved)[held] == 0) and held.any()
        assert held.sum() in (3, 5, 4, 6) and not np.all(held == held.flat[0])


def test_the_smallest_interval_and_every_precision():
    for dtype in (jnp.float32, jnp.float64):
        x = jnp.asarray([1.0, -1.0, 0.25], dtype)
        for g in PENALTIES.values():
            for found in (g.value(x), g.prox(x, 0.1), g.subgradient(x), g.nearest(x)):
                assert found.dtype == dtype


def test_a_tree_is_the_sum_of_its_penalties_and_may_be_the_beginning_of_one():
    w = {"a": jnp.ones(3), "b": {"c": -jnp.ones((2, 2)), "d": jnp.asarray(2.0)}}
    g = as_penalties({"a": px.L1Penalty(0.5), "b": None})
    assert float(g.value(w)) == 1.5
    g = as_penalties({"a": None, "b": px.L1Penalty(1.0)})
    assert float(g.value(w)) == 6.0
    g = as_penalties(px.Bounds(-0.5, 1.5))
    near = g.nearest(w)
    assert float(near["b"]["d"]) == 1.5 and np.all(near["b"]["c"] == -0.5)
    assert np.isinf(g.value(w)) and float(g.value(near)) == 0
    assert as_penalties({"a": None, "b": None}) is None and as_penalties(None) is None


def test_leaves_that_are_no_parameters_are_carried_along():
    model = eqx.nn.MLP(3, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    data = (np.ones((5, 3)), np.ones((5, 2)))
    p = px.MeanOfLosses(
        px.residual(lambda m, x: m(x)), px.L1(), data, penalty=px.Bounds(-0.1, 0.1)
    )
    assert np.isinf(p.value(model))
    near = p.feasible(model)
    assert np.isfinite(p.value(near)) and near.activation is model.activation


def test_two_weights_share_one_trace():
    traces = []

    @jax.jit
    def value(g, x):
        traces.append(1)
        return g.prox(x, 0.1)

    for lam in (0.1, 0.2):
        value(as_penalties(px.L1Penalty(lam)), jnp.ones(3))
    assert len(traces) == 1
