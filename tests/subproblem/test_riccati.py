"""The systems of a trajectory agree with dense ones, and so do its exact steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import subproblem
from proxlin.outers import sets
from proxlin.problem import Chain
from proxlin.subproblem.riccati import Stagewise
from proxlin.subproblem.systems import Columns

HORIZON = 9
STATES = 3
OUTPUTS = 4


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def random_chain(controls: int, seed: int = 0) -> Chain:
    rng = np.random.default_rng(seed)
    T, s, k, m = HORIZON, STATES, OUTPUTS, controls
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape))
    A = 0.6 * normal(T, s, s)
    return Chain(
        normal(T, m),
        jnp.full(T, 1 / T),
        normal(T, k),
        A,
        normal(T, s, m),
        normal(T, k, s),
        normal(T, k, m),
    )


SETS = {
    "ball": sets.Ball(),
    "box": sets.Box(-1.0, 1.0),
    "simplex": sets.Simplex(),
    "space": sets.Space(),
}


@pytest.mark.parametrize("controls", [1, 2, 3])
@pytest.mark.parametrize("name", list(SETS))
def test_the_recursion_solves_the_dense_system(name, controls):
    V = SETS[name]
    chain = random_chain(controls)
    rng = np.random.default_rng(1)
    scale = jnp.asarray(rng.uniform(0.5, 2.0, HORIZON))
    B = scale[:, None, None] * chain.dense().jacobian
    dense = Columns(B, jnp.ones(()), V)
    at = Stagewise(chain.w, chain.c, chain.u, chain, apart=False)
    ours = at.system(scale, V)
    h = jnp.asarray(np.exp(rng.normal(size=(HORIZON, OUTPUTS))))
    g = jnp.asarray(rng.normal(size=(HORIZON, OUTPUTS)))
    if name != "ball":
        g = jnp.zeros_like(g)
    r = jnp.asarray(rng.normal(size=HORIZON * controls))
    q = jnp.asarray(rng.normal(size=(HORIZON, OUTPUTS)))
    assert ours.width == dense.width and ours.blocks() == dense.blocks()
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
    close(ours.push(r), dense.push(r))
    close(ours.pull(q), dense.pull(q))
    first = ours.factor(h, g)
    second = dense.factor(h, g)
    for mine, theirs in zip(
        ours.solve(first, r, q), dense.solve(second, r, q), strict=True
    ):
        close(mine, theirs)
    for mine, theirs in zip(
        ours.refined(first, h, g, r, q), dense.refined(second, h, g, r, q), strict=True
    ):
        close(mine, theirs)
    close(ours.through(first[0], r), dense.through(second[0], r))
    size = jnp.asarray(rng.uniform(0, 1, HORIZON * controls)).at[::3].set(0)
    ours, dense = ours.stretched(size), dense.stretched(size)
    close(ours.push(r), dense.push(r))
    close(ours.pull(q), dense.pull(q))
    close(
        ours.through(ours.factor(h, g)[0], r), dense.through(dense.factor(h, g)[0], r)
    )


def test_entries_as_blocks_are_the_same_system():
    chain = random_chain(2)
    at = Stagewise(chain.w, chain.c, chain.u, chain, apart=False)
    apart = at.entries()
    rng = np.random.default_rng(2)
    h = jnp.asarray(np.exp(rng.normal(size=(HORIZON, OUTPUTS))))
    g = jnp.zeros_like(h)
    r = jnp.asarray(rng.normal(size=HORIZON * 2))
    q = jnp.asarray(rng.normal(size=(HORIZON, OUTPUTS)))
    V = sets.Box(-1.0, 1.0)
    one = at.system(jnp.ones(HORIZON), V)
    other = apart.system(jnp.ones(HORIZON * OUTPUTS), V)
    dv, de = one.solve(one.factor(h, g), r, q)
    column = lambda x: x.reshape(-1, 1)
    found = other.solve(other.factor(column(h), column(g)), r, column(q))
    np.testing.assert_allclose(found[0], column(dv), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[1], de, rtol=0, atol=1e-12)


def test_errors_of_rounding_are_bounded_and_not_by_much():
    """The bounds hold for float32 against float64, and stay within 1000 times what happened."""
    chain = random_chain(2)
    rough = jax.tree.map(lambda x: x.astype(jnp.float32), chain)
    exact = jax.tree.map(lambda x: x.astype(jnp.float64), rough)
    at = Stagewise(rough.w, rough.c, rough.u, rough, apart=False)
    d = np.random.default_rng(3).normal(size=HORIZON * 2).astype(np.float32)
    true = exact.push(jnp.asarray(d, float).reshape(HORIZON, 2))
    off = abs(np.asarray(at.push(jnp.asarray(d))) - np.asarray(true))
    bound = np.asarray(at.push_error(jnp.asarray(d)))
    assert np.all(off <= bound) and np.max(bound) < 1000 * np.max(off)
    v = np.random.default_rng(4).normal(size=(HORIZON, OUTPUTS)).astype(np.float32)
    true = exact.pull(jnp.asarray(v, float)).reshape(-1)
    off = abs(np.asarray(at.pull(jnp.asarray(v))) - np.asarray(true))
    bound = np.asarray(at.pull_error(jnp.asarray(v)))
    assert np.all(off <= bound) and np.max(bound) < 1000 * np.max(off)


def pendulum(x, u):
    pull = jnp.sin(x[0]) + u[0] + 0.3 * u[1] * x[0]
    return jnp.array([x[0] + 0.1 * x[1], x[1] + 0.1 * pull])


def stage(x, u, weight):
    return jnp.array(
        [weight * jnp.sin(x[0]), weight * (1 - jnp.cos(x[0])), 0.1 * x[1], 0.3 * u[0]]
    )


MIXED = px.Parts((px.SquaredL2(), 2), (px.Huber(0.5), 1), (px.L1(), 1))


@pytest.mark.parametrize(
    "penalty", [None, px.Bounds(-0.2, 0.3)], ids=["free", "bounds"]
)
@pytest.mark.parametrize("outer", [px.L1(), px.L2(), px.SquaredL2(), MIXED], ids=str)
def test_an_exact_step_is_that_of_the_dense_jacobian(outer, penalty):
    start = np.array([3.0, 0.0])
    weights = np.linspace(0.5, 1.0, HORIZON)
    p = px.Trajectory(
        pendulum, stage, outer, start, weights, ridge=1e-3, penalty=penalty
    )
    w = p.feasible(jnp.asarray(np.random.default_rng(0).normal(size=(HORIZON, 2))))
    assert subproblem.structure(p, w) is Stagewise
    found = px.solve_subproblem(p, w, kappa=1.0)
    assert found.status == "converged" and found.relative_gap <= 1e-10
    solved = jax.jit(
        lambda w: subproblem.solve(
            p.expand(w),
            subproblem.proximal(p, jnp.asarray(1.0), w),
            outer,
            jnp.asarray(1e-10),
            penalty=p.penalty,
        )
    )(w)
    assert float(solved.gap) <= 1e-9
    assert abs(found.value - float(solved.value)) <= 1e-9
    assert solved.v.shape == (HORIZON, OUTPUTS)
    np.testing.assert_allclose(found.w, solved.w, rtol=0, atol=1e-4)
