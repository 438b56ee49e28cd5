"""The one loop: where it ends, and that its pieces are the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.run.loop import Limits, advance, initial_state

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(12, 3)))
# Targets with noise: where F goes to 0, the measure, which is relative to F, does not.
Y = X @ jnp.asarray([[1.0], [-2.0], [0.5]]) + jnp.asarray(RNG.normal(size=(12, 1)))
PROBLEM = px.MeanOfLosses(px.residual(lambda w, x: x @ w), px.SquaredL2(), (X, Y))
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def run():
    """`run(solver, state, start, limits)` is `advance`, compiled once for each solver."""
    compiled = jax.jit(
        lambda solver, state, start, limits: advance(
            PROBLEM, solver, state, KEY, start, limits
        )
    )
    return lambda solver, state, start, limits: compiled(
        solver, state, jnp.int32(start), limits
    )


def start(solver):
    return initial_state(PROBLEM, solver, jnp.zeros((3, 1)))


def test_the_pieces_of_a_run_are_the_run(run):
    """However it is cut, inside of an epoch of 12 steps too, it takes the same steps, bit for bit."""
    solver = px.sgd(0.05)
    whole, record = run(solver, start(solver), 0, Limits(jnp.int32(30)))
    state, at = start(solver), 0
    for stop in (5, 12, 13, 24, 30):
        state, part = run(solver, state, at, Limits(jnp.int32(stop)))
        at = int(part.step)
    assert at == int(record.step) == 30
    np.testing.assert_array_equal(state.w, whole.w)


def test_it_ends_at_a_tolerance_or_where_no_step_helps(run):
    """Without either it goes on to the count of steps; the measure of the last step says why it
    ended.
    """
    solver = px.prox_linear(0.1)
    limits = Limits(jnp.int32(40), tol=1e-6)
    _, record = run(solver, start(solver), 0, limits)
    assert 1 < int(record.step) < 40 and float(record.info.measure) <= 1e-6
    _, before = run(solver, start(solver), 0, Limits(record.step - 1, tol=1e-6))
    assert (
        int(before.step) == int(record.step) - 1 and float(before.info.measure) > 1e-6
    )
    assert int(run(solver, start(solver), 0, Limits(jnp.int32(40)))[1].step) == 40

    adaptive = px.prox_linear()
    _, stalled = run(adaptive, start(adaptive), 0, Limits(jnp.int32(60), stalled=True))
    assert bool(stalled.info.stalled) and int(stalled.step) < 60


def test_a_small_kappa_does_not_look_like_the_end():
    """The first step of w^2 = 4 from 10 goes to 5.2, with kappa |w+ - w| = 5e-14."""
    problem = px.MeanOfLosses(lambda w, x: w**2 - x, px.L1(), jnp.full((1, 1), 4.0))
    for solver in (px.prox_linear(1e-14), px.prox_linear(1e-14, accelerated=True)):
        found = px.minimize(problem, jnp.full(1, 10.0), solver, tol=1e-6)
        assert found.status == "converged"
        assert float(found.w[0]) == pytest.approx(2.0, abs=1e-9)
