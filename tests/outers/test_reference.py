"""Proxes, conjugates and smoothings against cvxpy with Clarabel: a second formula for each, and a
conic solver.
"""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px

pytestmark = pytest.mark.reference

# name -> (ours, the same function in cvxpy's words)
PAIRS = {
    "L2": (px.L2(), cp.norm2),
    "L1": (px.L1(), cp.norm1),
    "LInf": (px.LInf(), cp.norm_inf),
    "Max": (px.Max(), cp.max),
    "Huber(0.7)": (px.Huber(0.7), lambda p: cp.sum(cp.huber(p, 0.7)) / 2),
    "SquaredL2": (px.SquaredL2(), lambda p: cp.sum_squares(p) / 2),
    "Hinge": (px.Hinge(), lambda p: cp.sum(cp.pos(p))),
    "Quantile(0.3)": (
        px.Quantile(0.3),
        lambda p: cp.sum(cp.maximum(0.7 * p, -0.3 * p)),
    ),
    "Quantile(0.9)": (
        px.Quantile(0.9),
        lambda p: cp.sum(cp.maximum(0.1 * p, -0.9 * p)),
    ),
}
every = pytest.mark.parametrize("name", PAIRS)


def solve(problem: cp.Problem) -> float:
    return problem.solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
    )


@every
@pytest.mark.parametrize("k", [1, 9])
@pytest.mark.parametrize("step", [0.05, 8.0])
def test_prox_and_envelope(name, k, step):
    """Our prox is no worse than theirs, their value is our envelope, and strong convexity bounds
    the distance.
    """
    ours, theirs = PAIRS[name]
    for seed in range(2):
        u = np.random.default_rng([k, seed]).normal(size=k) * 2
        p = cp.Variable(k)
        best = solve(
            cp.Problem(cp.Minimize(theirs(p) + cp.sum_squares(p - u) / (2 * step)))
        )
        mine = np.asarray(ours.prox(jnp.asarray(u), step))
        objective = float(ours.value(jnp.asarray(mine))) + np.sum((mine - u) ** 2) / (
            2 * step
        )
        assert objective <= best + 1e-8 * (1 + abs(best))
        assert np.sum((mine - p.value) ** 2) / (2 * step) <= 2e-8 * (1 + abs(best))
        assert float(ours.smooth(step).value(jnp.asarray(u))) == pytest.approx(
            best, rel=1e-7, abs=1e-7
        )
        # the two are the same function: their formula at our point is our value
        p.value = mine
        assert float(theirs(p).value) == pytest.approx(
            float(ours.value(jnp.asarray(mine))), rel=1e-9, abs=1e-9
        )


@every
@pytest.mark.parametrize("k", [1, 8])
def test_conjugate(name, k):
    """f*(v) = max_u <u, v> - f(u); unbounded where ours is infinite."""
    ours, theirs = PAIRS[name]
    rng = np.random.default_rng(k)
    u = rng.normal(size=k)
    inside = np.asarray(ours.subgradient(jnp.asarray(u))) * 0.6 + 0.4 * np.asarray(
        ours.subgradient(jnp.asarray(-u))
    )
    for v in (inside, inside + 0.9, 3 * rng.normal(size=k), 0.1 * rng.normal(size=k)):
        mine = float(ours.conjugate(jnp.asarray(v)))
        # over a ball of radius r, so that the solver always has a finite problem; it grows with r
        # iff f* is infinite
        x = cp.Variable(k)
        ball = lambda radius, v=v, x=x: cp.Problem(
            cp.Maximize(v @ x - theirs(x)), [cp.norm2(x) <= radius]
        )
        values = [ball(radius).solve(solver=cp.CLARABEL) for radius in (10.0, 100.0)]
        if np.isfinite(mine):
            assert values[1] == pytest.approx(mine, rel=1e-6, abs=1e-6)
        else:
            assert values[1] > values[0] * 5 > 1e-3
    assert np.isfinite(float(ours.conjugate(jnp.asarray(inside))))


@pytest.mark.parametrize("name", ["L2", "L1", "LInf", "Max", "Hinge", "Quantile(0.3)"])
def test_projection_onto_the_dual_set(name):
    """P_V(v) minimises |x - v|^2 over {x: <x, d> <= f(d) for all d}, written for each V."""
    sets = {
        "L2": lambda x: [cp.norm2(x) <= 1],
        "L1": lambda x: [cp.norm_inf(x) <= 1],
        "LInf": lambda x: [cp.norm1(x) <= 1],
        "Max": lambda x: [x >= 0, cp.sum(x) == 1],
        "Hinge": lambda x: [x >= 0, x <= 1],
        "Quantile(0.3)": lambda x: [x >= -0.3, x <= 0.7],
    }
    for k, size in ((1, 1.0), (4, 0.2), (9, 2.0)):
        v = np.random.default_rng(k).normal(size=k) * size
        x = cp.Variable(k)
        solve(cp.Problem(cp.Minimize(cp.sum_squares(x - v)), sets[name](x)))
        assert (
            np.abs(np.asarray(PAIRS[name][0].project(jnp.asarray(v))) - x.value).max()
            <= 1e-5
        )
