"""Smoothed outer functions: the Moreau envelope, its distance from f, and its gradient."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
import zoo
from outer_laws import (
    at_all,
    every_base,
    every_proximable,
    outer_of,
    points,
    sizes,
)
from proxlin import compiled
from proxlin.outers import Box, Envelope, Origin, Smoothed

pytestmark = pytest.mark.law


@every_base
@sizes
@pytest.mark.parametrize("nu", [1e-3, 0.5, 10.0])
def test_the_smoothing_is_the_moreau_envelope(name, k, nu):
    f, u = outer_of(name), points(k)
    p = at_all(lambda u: f.prox(u, nu), u)
    envelope = at_all(f.value, p) + np.sum((u - p) ** 2, axis=1) / (2 * nu)
    size = 1 + np.abs(envelope) + np.sum(np.abs(u), axis=1) / min(nu, 1.0)
    assert np.all(np.abs(at_all(f.smooth(nu).value, u) - envelope) <= 1e-13 * size)
    assert np.all(
        np.abs(at_all(f.smooth(nu).subgradient, u) - (u - p) / nu)
        <= 1e-13 * size[:, None] / min(nu, 1.0)
    )


@every_base
@sizes
@pytest.mark.parametrize("nu", [1e-3, 0.5, 10.0])
def test_f_nu_is_below_f_by_at_most_nu_l_squared_over_two_and_that_is_attained(
    name, k, nu
):
    f, u = outer_of(name), points(k)
    u = np.concatenate(
        [u, 1e3 * np.ones((1, k)), -1e3 * np.ones((1, k)), 1e3 * np.eye(k)]
    )
    gap = at_all(f.value, u) - at_all(f.smooth(nu).value, u)
    slack = 1e-13 * (1 + np.sum(np.abs(u), axis=1))
    most = nu * float(f.lipschitz(k)) ** 2 / 2
    assert np.all(gap >= -slack)
    assert np.all(gap <= most + slack)
    if math.isfinite(most) and name != "Huber(0.7)":
        assert gap.max() >= most * (1 - 1e-9) - slack.max()


@every_base
@sizes
def test_the_gradient_of_f_nu_is_one_over_nu_lipschitz(name, k):
    nu = 0.05
    g = outer_of(name).smooth(nu)
    x, z = points(k), points(k, seed=10)
    for y in (z, x + 1e-2 * (z - x)):
        change = np.linalg.norm(
            at_all(g.subgradient, x) - at_all(g.subgradient, y), axis=1
        )
        assert np.all(change <= np.linalg.norm(x - y, axis=1) / nu * (1 + 1e-9) + 1e-11)


@every_base
def test_smoothing_twice_is_smoothing_once_with_the_sum(name):
    f, u = outer_of(name), points(7)
    twice, once = f.smooth(0.3).smooth(0.5), f.smooth(0.8)
    assert np.allclose(
        at_all(twice.value, u), at_all(once.value, u), rtol=1e-13, atol=1e-13
    )
    assert np.allclose(
        at_all(twice.subgradient, u),
        at_all(once.subgradient, u),
        rtol=1e-12,
        atol=1e-12,
    )
    assert float(twice.smoothness(4)) == pytest.approx(
        float(once.smoothness(4))
    ) or isinstance(twice, Envelope)


def test_huber_is_the_smoothing_of_l1_and_l2_squared_that_of_the_origin():
    u = points(7)
    assert (
        np.abs(
            at_all(px.Huber(1.0).value, u) - at_all(px.L1().smooth(1.0).value, u)
        ).max()
        <= 1e-11
    )
    assert (
        np.abs(
            at_all(px.SquaredL2().value, u) - at_all(Smoothed(Origin(), 1.0).value, u)
        ).max()
        <= 1e-9
    )


def test_users_support_and_proximable_functions_get_smoothing_for_free():
    assert type(zoo.GroupNorm().smooth(0.1)) is Smoothed
    assert type(zoo.WeightedL1().smooth(0.1)) is Envelope
    u = points(7)
    # the same function in two ways
    both = zoo.WeightedL1(2.0).smooth(0.3), Box(jnp.asarray(2.0)).smooth(0.3)
    for method in ("value", "subgradient", "conjugate"):
        a, b = (at_all(getattr(f, method), u) for f in both)
        assert np.array_equal(np.isfinite(a), np.isfinite(b))
        assert np.allclose(a, b, rtol=1e-12, atol=1e-12)
    a, b = (at_all(lambda u, f=f: f.prox(u, 0.7), u) for f in both)
    assert np.allclose(a, b, rtol=1e-12, atol=1e-12)


@every_proximable
def test_the_dual_form_is_the_conjugate(name):
    """f* = indicator of V + rho/2 |v|^2; a proximable function may say that it has none."""
    f, v = outer_of(name), np.random.default_rng(11).normal(size=(50, 7)) * 0.4
    # each V holds some of these
    v = np.concatenate([v, np.full((1, 7), 1 / 7), np.full((1, 7), 0.05), np.eye(7)])
    try:
        support, rho = f.dual_form()
    except TypeError as error:
        assert "dual_form" in str(error) and type(f).__name__ in str(error)
        assert type(f) in (zoo.WeightedL1, Envelope)
        return
    inside = at_all(support.contains, v)
    expected = np.where(inside, float(rho) / 2 * np.sum(v * v, axis=1), np.inf)
    assert np.allclose(at_all(f.conjugate, v), expected, rtol=1e-13, atol=0)
    assert inside.any()


def test_a_smoothed_maximum_of_large_ties_keeps_its_digits():
    """Compiled in any way: the entries at the top are exactly at the top."""
    f = px.Max().smooth(0.3)
    u = jnp.full(5, 1e4, jnp.float32)
    for options in (None, compiled.QUICK):
        lowered = jax.jit(lambda u: f.value(u)).lower(u)
        value = lowered.compile(compiler_options=options)(u)
        assert abs(float(value) - (1e4 - 0.03)) <= 0.01
