"""Convex models within bounds: optimality on random boxes, and against an independent solver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from proxlin.subproblem.box import OnFace, minimize_in_box

D = 6


@jax.jit
def least_squares(A, b, low, high):
    """min_{low <= e <= high} |A e - b|^2 / 2."""

    def solve(free, e):
        held = jnp.where(free, 0, e)
        part = jnp.where(free, A, 0)
        # 1 on the diagonal of entries that are held
        gram = part.T @ part + jnp.diag(jnp.where(free, 0.0, 1.0))
        new = jnp.linalg.solve(gram, part.T @ (b - A @ held))
        e = jnp.where(free, new, e)
        return OnFace(e, A.T @ (A @ e - b), ())

    found = minimize_in_box(solve, low, high, -A.T @ b)
    return found.e, found.slope


@pytest.mark.parametrize("seed", range(30))
def test_random_boxes(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(10, D)) * 10.0 ** rng.uniform(-1, 1, size=D)
    b = 3 * rng.normal(size=10)
    low = np.where(rng.random(D) < 0.2, -np.inf, -rng.random(D))
    high = np.where(rng.random(D) < 0.2, np.inf, rng.random(D))
    # some boxes have 0 on their boundary, or a parameter that cannot move
    low = np.where(rng.random(D) < 0.3, 0.0, low)
    high = np.where(rng.random(D) < 0.2, np.maximum(low, 0.0), high)
    e, slope = (np.asarray(x) for x in least_squares(A, b, low, high))
    assert (low <= e).all() and (e <= high).all()
    inside = (low < e) & (e < high)
    size = np.abs(A.T @ b).max()
    np.testing.assert_allclose(slope[inside], 0, atol=1e-10 * size)
    can_move = low < high
    assert (slope[can_move & (e == low)] >= -1e-10 * size).all()
    assert (slope[can_move & (e == high)] <= 1e-10 * size).all()
    if can_move.all():
        best = lsq_linear(A, b, (low, high), method="bvls", tol=1e-14)
        np.testing.assert_allclose(e, best.x, atol=1e-7)
