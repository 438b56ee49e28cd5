"""Values and subgradients of outer functions: convexity, kinks, minimisers, and what is not a
number.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
import zoo
from outer_laws import (
    EPS,
    at_all,
    every,
    every_size,
    excess,
    outer_of,
    points,
)
from proxlin.outers import Envelope

pytestmark = pytest.mark.law


def test_the_values_are_those_of_the_contract():
    u = jnp.array([3.0, -4.0, 0.5])
    expected = [
        (px.L2(), math.sqrt(25.25)),
        (px.L1(), 7.5),
        (px.LInf(), 4.0),
        (px.Max(), 3.0),
        (px.Huber(), 2.5 + 3.5 + 0.125),
        (px.Huber(2.0), 2 * (3 - 1) + 2 * (4 - 1) + 0.125),
        (px.SquaredL2(), 12.625),
        (px.Hinge(), 3.5),
        (px.Quantile(0.3), 0.7 * 3.5 + 0.3 * 4),
    ]
    for f, value in expected:
        assert abs(float(f.value(u)) - value) <= 1e-14, f


@every_size
def test_a_subgradient_bounds_f_from_below_also_at_kinks(name, k):
    f, x, z = outer_of(name), points(k), points(k, seed=1)
    v = at_all(f.subgradient, x)
    assert np.isfinite(v).all()
    # marginals are chains of exp
    units = 256 if isinstance(f, Envelope) else 16 if name in zoo.STRUCTURED else 4
    assert excess(f, x, v, np.concatenate([x, z])).max() <= units * EPS


@every_size
def test_the_subgradient_is_what_autodiff_gives_away_from_kinks(name, k):
    f, x = outer_of(name), np.random.default_rng(2).normal(size=(30, k)) * 3
    derivative = at_all(jax.grad(f.value), np.concatenate([x, np.zeros((1, k))]))
    assert np.abs(derivative[:-1] - at_all(f.subgradient, x)).max() <= 1e-13
    assert np.isfinite(derivative[-1]).all()  # at the kink too


@every
def test_f_is_convex(name):
    f, x, z = outer_of(name), points(7), points(7, seed=3)
    middle = at_all(f.value, 0.3 * x + 0.7 * z)
    chord = 0.3 * at_all(f.value, x) + 0.7 * at_all(f.value, z)
    assert np.max((middle - chord) / (1 + np.abs(chord))) <= 8 * EPS


@pytest.mark.parametrize(
    "name", [n for n in zoo.OUTERS if zoo.OUTERS[n].nearest_minimizer]
)
def test_the_stated_minimisers_are_minimisers(name):
    """The zoo's own word, on which the law of sharpness stands."""
    case, z = zoo.OUTERS[name], points(7)
    least = at_all(case.outer.value, np.asarray(case.nearest_minimizer(z)))
    assert (
        np.ptp(least) <= 1e-15
        and least.max() <= at_all(case.outer.value, z).min() + 1e-15
    )


@every_size
def test_not_a_number_is_not_hidden(name, k):
    """A diverged iterate must not look like a minimum."""
    f = outer_of(name)
    u = np.ones((k, k)) + np.diag(np.full(k, np.nan))
    assert np.isnan(at_all(f.value, u)).all()


@every_size
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_infinite_input_never_has_a_finite_value_unless_f_says_so(name, k, sign):
    f = outer_of(name)
    limit, value = at_all(
        f.value, np.stack([np.full(k, sign * 1e100), np.full(k, sign * np.inf)])
    )
    if abs(limit) > 1e50:
        assert not np.isfinite(value)
