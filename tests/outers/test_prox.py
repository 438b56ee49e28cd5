"""Prox and conjugate of every proximable outer function: optimality, Fenchel-Young, and the
identity of Moreau.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from outer_laws import (
    EPS,
    at_all,
    every_proximable,
    excess,
    outer_of,
    points,
    sizes,
    steps,
)

pytestmark = pytest.mark.law


@every_proximable
@sizes
@steps
def test_prox_residual_is_a_subgradient_at_the_prox(name, k, step):
    """p = prox(u, s) iff (u - p) / s is a subgradient of f at p."""
    f, u = outer_of(name), points(k)
    p = at_all(lambda u: f.prox(u, step), u)
    tolerance = 4 * EPS * (1 + np.abs(u).max() / step)
    assert (
        excess(f, p, (u - p) / step, np.concatenate([points(k, seed=6), p, u])).max()
        <= tolerance
    )


@every_proximable
@sizes
@steps
def test_prox_has_no_better_neighbour(name, k, step):
    f, u = outer_of(name), points(k)
    objective = lambda p: at_all(f.value, p) + np.sum((p - u) ** 2, axis=1) / (2 * step)
    p = at_all(lambda u: f.prox(u, step), u)
    best = objective(p)
    for size in (1e-3, 1.0):
        q = p + size * np.random.default_rng(7).normal(size=p.shape)
        # strong convexity: the excess is at least |q - p|^2 / 2s
        assert np.all(
            objective(q) - best
            >= np.sum((q - p) ** 2, axis=1) / (2 * step) - 1e-12 * (1 + np.abs(best))
        )


@every_proximable
@sizes
@steps
def test_fenchel_young_is_an_equality_at_the_prox(name, k, step):
    f, u = outer_of(name), points(k)
    p = at_all(lambda u: f.prox(u, step), u)
    v = (u - p) / step
    gap = at_all(f.value, p) + at_all(f.conjugate, v) - np.sum(p * v, axis=1)
    assert np.all(np.abs(gap) <= 1e-13 * (1 + np.sum(u * u, axis=1)) / min(step, 1.0))


@every_proximable
@sizes
def test_fenchel_young_is_an_inequality_everywhere_and_an_equality_at_subgradients(
    name, k
):
    f, u, v = outer_of(name), points(k), points(k, seed=8)
    everywhere = at_all(f.value, u)[:, None] + at_all(f.conjugate, v)[None] - u @ v.T
    assert everywhere.min() >= -1e-11 * 1e4
    own = at_all(f.subgradient, u)
    gap = at_all(f.value, u) + at_all(f.conjugate, own) - np.sum(u * own, axis=1)
    assert np.all(np.abs(gap) <= 1e-13 * (1 + np.sum(u * u, axis=1)))


@every_proximable
@sizes
def test_the_conjugate_is_infinite_just_where_its_definition_is(name, k):
    """f*(v) = inf is certified by a ray on which <u, v> - f(u) grows, a finite f*(v) by a point
    that attains it.
    """
    f, v = (
        outer_of(name),
        np.concatenate(
            [points(k, seed=9), 0.2 * np.random.default_rng(9).normal(size=(20, k))]
        ),
    )
    conjugate = at_all(f.conjugate, v)
    t = 1e-4
    # the maximiser of <u, v> - f(u) - t/2 |u|^2
    far = at_all(lambda v: f.prox(v / t, 1 / t), v)
    attained = np.sum(far * v, axis=1) - at_all(f.value, far)
    finite = np.isfinite(conjugate)
    assert np.all(attained[finite] <= conjugate[finite] + 1e-9)
    assert np.all(attained[finite] >= conjugate[finite] * (1 - 1e-2) - 1e-9)
    rays = far[~finite]
    if len(rays):
        growth = np.sum(1e6 * rays * v[~finite], axis=1) - at_all(f.value, 1e6 * rays)
        assert np.all(growth > 1e3)
    if math.isfinite(f.lipschitz(k)):
        assert not finite[: len(points(k))].all()  # the test saw both kinds


@every_proximable
@sizes
def test_moreau_identity(name, k, step=0.7):
    """prox_{s f}(u) + s prox_{f*/s}(u/s) = u: the second term minimises f*(v) + s/2 |v - u/s|^2,
    checked on rivals.
    """
    f, u = outer_of(name), points(k)
    v = (u - at_all(lambda u: f.prox(u, step), u)) / step
    objective = lambda v: (
        at_all(f.conjugate, v) + step / 2 * np.sum((v - u / step) ** 2, axis=1)
    )
    best = objective(v)
    assert np.isfinite(best).all()
    own, other = at_all(f.subgradient, u), at_all(f.subgradient, -u)
    for rival in (own, 0.9 * v + 0.1 * other, own[::-1]):
        away = step / 2 * np.sum((rival - v) ** 2, axis=1)
        assert np.all(objective(rival) - best >= away - 1e-12 * (1 + best))


@every_proximable
def test_prox_tends_to_the_identity_and_to_the_minimisers(name):
    f, u = outer_of(name), points(7)
    assert np.abs(at_all(lambda u: f.prox(u, 1e-12), u) - u).max() <= 1e-9
    nearest = zoo.OUTERS[name].nearest_minimizer
    if nearest is not None:
        assert np.abs(at_all(lambda u: f.prox(u, 1e12), u) - nearest(u)).max() <= 1e-4


@pytest.mark.parametrize("name", ["L2", "L1", "LInf", "Huber(0.7)", "Quantile(0.3)"])
def test_prox_of_a_tiny_vector_and_a_huge_step_is_zero_not_the_vector(name):
    """u / step underflows in float32, and the residual (u - p) / step must still be a subgradient
    at p.
    """
    u = np.full((1, 7), 1e-25, np.float32)
    p = at_all(lambda u: outer_of(name).prox(u, jnp.asarray(1e25, jnp.float32)), u)
    assert np.abs(p).max() <= 1e-6 * 1e-25


@pytest.mark.parametrize("name", ["L2", "Huber(0.7)", "SquaredL2", "L2.smooth(0.3)"])
@pytest.mark.parametrize("step", [0.0, -1.0, math.nan])
def test_a_prox_step_that_is_not_positive_is_refused(name, step):
    with pytest.raises(ValueError, match="step"):
        outer_of(name).prox(jnp.ones(7), step)
