"""Scales of residuals: their equations, their units, and what jit and vmap make of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proxlin.inference import huber_scale, m_scale, mad

SCALES = {"mad": mad, "huber": huber_scale, "m": m_scale}
R = np.random.default_rng(0).standard_t(2, size=51)


@pytest.mark.law
@pytest.mark.parametrize("name", SCALES)
def test_units_and_signs(name):
    scale = SCALES[name]
    s = scale(jnp.asarray(R))
    np.testing.assert_allclose(scale(jnp.asarray(-1e6 * R)), 1e6 * s, rtol=1e-12)
    np.testing.assert_allclose(scale(jnp.asarray(R[::-1].copy())), s, rtol=1e-12)
    single = scale(jnp.asarray(R, jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, s, rtol=1e-5)


@pytest.mark.law
@pytest.mark.parametrize("name", SCALES)
def test_jit_and_vmap(name):
    rows = jnp.asarray(np.random.default_rng(1).normal(size=(4, 30)))
    alone = [SCALES[name](row) for row in rows]
    np.testing.assert_allclose(jax.jit(jax.vmap(SCALES[name]))(rows), alone, rtol=1e-12)


@pytest.mark.law
@pytest.mark.parametrize("name", SCALES)
def test_normal_errors_have_their_standard_deviation(name):
    """The efficiencies are 37, 96 and 29 %, so that 20,000 numbers give a hundredth."""
    r = jnp.asarray(3 * np.random.default_rng(2).normal(size=20_000))
    assert float(SCALES[name](r)) == pytest.approx(3, rel=0.04)


@pytest.mark.parametrize("name", SCALES)
def test_exact_fits_have_none(name):
    r = np.zeros(20)
    r[:5] = R[:5]
    assert float(SCALES[name](jnp.asarray(r))) == 0


def test_mad_is_scipys():
    ours = float(mad(jnp.asarray(R)))
    theirs = stats.median_abs_deviation(R, center=lambda x, axis: 0.0, scale="normal")
    assert ours == pytest.approx(theirs, rel=1e-4)  # R rounds 1.482602 to 1.4826


@pytest.mark.reference
@pytest.mark.parametrize("p", [0, 4])
def test_huber_is_the_limit_of_rlms_iteration(p):
    k = 1.345
    theta = 2 * stats.norm.cdf(k) - 1
    gamma = theta + k**2 * (1 - theta) - 2 * k * stats.norm.pdf(k)
    s = np.median(np.abs(R)) / 0.6745
    for _ in range(200):
        s = np.sqrt(np.sum(np.minimum(R**2, (k * s) ** 2)) / ((len(R) - p) * gamma))
    assert float(huber_scale(jnp.asarray(R), parameters=p)) == pytest.approx(
        s, rel=1e-12
    )


@pytest.mark.law
@pytest.mark.parametrize("p", [0, 4])
@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200])
def test_m_scale_solves_its_equation(p, size):
    r = R * size
    t = r / float(m_scale(jnp.asarray(r), parameters=p)) / 1.54764
    rho = np.where(np.abs(t) < 1, 1 - (1 - t**2) ** 3, 1)
    assert rho.sum() / (len(r) - p) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.law
def test_m_scale_breaks_down_at_one_half():
    """With 45 % of the residuals at infinity, or nearly, it stays; a mean of squares would not."""
    r = np.random.default_rng(3).normal(size=100)
    r[:45] = 1e12
    assert 1 < float(m_scale(jnp.asarray(r))) < 10
