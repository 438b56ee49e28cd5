"""Lipschitz constant, sharpness and smoothness of every outer function: those of the contract,
bounds, and attained.
"""

import math

import numpy as np
import pytest

import zoo
from outer_laws import (
    EPS,
    at_all,
    every_size,
    outer_of,
    points,
)

pytestmark = pytest.mark.law


EXPECTED = {
    "L2": (lambda k: 1.0, lambda k: 1.0),
    "L1": (math.sqrt, lambda k: 1.0),
    "LInf": (lambda k: 1.0, lambda k: 1 / math.sqrt(k)),
    "Max": (lambda k: 1.0, lambda k: 0.0),
    "Huber(0.7)": (lambda k: 0.7 * math.sqrt(k), lambda k: 0.0),
    "SquaredL2": (lambda k: math.inf, lambda k: 0.0),
    "Hinge": (math.sqrt, lambda k: 1.0),
    "Quantile(0.3)": (lambda k: 0.7 * math.sqrt(k), lambda k: 0.3),
    "Quantile(0.9)": (lambda k: 0.9 * math.sqrt(k), lambda k: 0.1),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("k", [1, 2, 7])
def test_lipschitz_and_sharpness_are_those_of_the_contract(name, k):
    f, (lipschitz, sharpness) = outer_of(name), EXPECTED[name]
    assert float(f.lipschitz(k)) == pytest.approx(lipschitz(k), rel=4 * EPS)
    assert float(f.sharpness(k)) == pytest.approx(sharpness(k), rel=4 * EPS)


@every_size
def test_lipschitz_bounds_the_subgradients_and_is_attained(name, k):
    f = outer_of(name)
    norms = np.linalg.norm(at_all(f.subgradient, points(k)), axis=1)
    l = float(f.lipschitz(k))
    if math.isinf(l):
        assert np.linalg.norm(at_all(f.subgradient, 1e12 * np.ones((1, k)))) > 1e11
    else:
        # (u - prox) / nu of an Envelope cancels
        tolerance = 1e-13 if "WeightedL1.smooth" in name else 4 * EPS
        assert abs(norms.max() - l) <= tolerance * l


@every_size
def test_lipschitz_bounds_differences_of_values(name, k):
    f, x, z = outer_of(name), points(k), points(k, seed=4)
    gap = np.abs(at_all(f.value, x) - at_all(f.value, z))
    slack = 1e-13 * (1 + np.abs(x).sum(1) + np.abs(z).sum(1))
    l = min(float(f.lipschitz(k)), 1e300)
    assert np.all(gap <= l * np.linalg.norm(x - z, axis=1) + slack)


@every_size
def test_sharpness_bounds_the_growth_from_the_minimisers_and_is_attained(name, k):
    case = zoo.OUTERS[name]
    sharpness = float(case.outer.sharpness(k))
    if case.nearest_minimizer is None:
        assert sharpness == 0.0
        return
    x = np.concatenate([points(k), 1e-9 * points(k)])
    nearest = case.nearest_minimizer(x)
    away = np.linalg.norm(x - nearest, axis=1)
    x, away, nearest = x[away > 0], away[away > 0], nearest[away > 0]
    growth = (at_all(case.outer.value, x) - at_all(case.outer.value, nearest)) / away
    assert growth.min() >= sharpness * (1 - 4 * EPS)
    # attained; a smooth f is flat at its minimum
    assert growth.min() <= sharpness * (1 + 4 * EPS) + 1e-6


@every_size
def test_smoothness_bounds_the_gradient_map(name, k):
    f = outer_of(name)
    smoothness = float(f.smoothness(k))
    x, z = points(k), points(k, seed=5)
    close = x + 1e-3 * (z - x)
    ratio = 0.0
    for a, b in ((x, z), (x, close)):
        away = np.linalg.norm(a - b, axis=1)
        change = np.linalg.norm(
            at_all(f.subgradient, a) - at_all(f.subgradient, b), axis=1
        )
        ratio = max(ratio, np.max(change[away > 0] / away[away > 0]))
    assert ratio <= smoothness * (1 + 1e-9)
    if "smooth" in name and k == 7 and "Max" not in name and name not in zoo.STRUCTURED:
        assert ratio >= 0.5 * smoothness  # not a bound from thin air
