"""The constants of Proposition 1: exact where they are known, measured where they are not, dense
and matrix-free.
"""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import theory
from proxlin.experiments.sine_maps import aligned, orthogonal
from proxlin.networks import MLP

N, K = 3, 2


@pytest.fixture(scope="module")
def network():
    rng = np.random.default_rng(0)
    predict = MLP((3, 16, K))
    data = rng.normal(size=(N, 3)), rng.normal(size=(N, K))
    return px.MeanOfLosses(px.residual(predict), px.L2(), data), predict.init(
        jax.random.key(0)
    )


def jacobian(problem, w):
    J = problem.expand(w).jacobian
    return np.asarray(J.reshape(-1, J.shape[-1]))


@pytest.mark.parametrize(("make", "angle"), [(orthogonal, np.pi / 2), (aligned, np.pi)])
def test_the_known_constants_hold_and_are_reached(make, angle):
    rng = np.random.default_rng(1)
    known = make(N, K, rng)
    problem = known.problem(np.zeros((N, K)), px.L2())
    rows = known.B.reshape(N * K, -1)
    size = np.linalg.norm(rows[0])
    at = lambda angle: jnp.asarray(angle * rows.sum(axis=0) / size**2)  # B w = angle
    assert theory.least_singular(problem, at(angle)) == pytest.approx(
        known.least_singular, rel=1e-12
    )
    w, d = at(np.pi / 2), jnp.asarray(1e-3 * rows[0])
    assert theory.segment_smoothness(problem, w, w + d) == pytest.approx(
        known.smoothness, rel=1e-6
    )
    for _ in range(20):
        w, after = (jnp.asarray(rng.normal(size=rows.shape[1])) for _ in range(2))
        assert theory.least_singular(problem, w) >= known.least_singular * (1 - 1e-12)
        assert theory.segment_smoothness(problem, w, after) <= known.smoothness * (
            1 + 1e-12
        )
        J = jacobian(problem, w) - jacobian(problem, after)
        assert np.linalg.norm(J, 2) <= known.smoothness * np.linalg.norm(
            np.asarray(w - after)
        ) * (1 + 1e-12)


def test_least_singular_dense_and_matrix_free(network):
    problem, w = network
    truth = np.linalg.svd(jacobian(problem, w), compute_uv=False)[-1]
    assert theory.least_singular(problem, w) == pytest.approx(truth, rel=1e-10)
    ritz = theory.least_singular_matrix_free(problem, w)
    assert ritz.value == pytest.approx(truth, rel=1e-8) and ritz.steps <= N * K
    early = theory.least_singular_matrix_free(problem, w, steps=3)
    # a Ritz value comes from above
    assert early.steps == 3 and early.value >= truth * (1 - 1e-12)
    squares = np.linalg.svd(jacobian(problem, w), compute_uv=False) ** 2
    assert np.abs(squares - early.value**2).min() <= early.residual * (1 + 1e-9)


def test_least_singular_of_an_ill_conditioned_map():
    rng = np.random.default_rng(2)
    A = (
        np.linalg.qr(rng.normal(size=(12, 12)))[0]
        * np.geomspace(1e-6, 1, 12)
        @ np.linalg.qr(rng.normal(size=(30, 12)))[0].T
    )
    problem = px.MeanOfLosses(lambda w, a: a @ w, px.L2(), A.reshape(4, 3, 30))
    w = jnp.zeros(30)
    assert theory.least_singular(problem, w) == pytest.approx(1e-6, rel=1e-6)
    assert theory.least_singular_matrix_free(problem, w).value == pytest.approx(
        1e-6, rel=1e-6
    )


def test_more_outputs_than_parameters_have_none():
    problem = px.MeanOfLosses(
        lambda w, a: a @ w, px.L2(), np.random.default_rng(3).normal(size=(4, 3, 5))
    )
    assert theory.least_singular(problem, jnp.zeros(5)) == 0
    assert theory.least_singular_matrix_free(
        problem, jnp.zeros(5)
    ).value == pytest.approx(0, abs=1e-12)


def test_the_remainder_of_a_step_is_within_the_smoothness_of_its_segment(network):
    """|phi(w + d) - phi(w) - J d| <= L |d|^2 / 2."""
    problem, w = network
    flat, unravel = jax.flatten_util.ravel_pytree(w)
    rng = np.random.default_rng(4)
    for length in (0.1, 1.0, 5.0):
        d = jnp.asarray(rng.normal(size=flat.shape) * length / np.sqrt(flat.size))
        L = theory.segment_smoothness(problem, w, unravel(flat + d))
        remainder = (
            problem.stack(unravel(flat + d))
            - problem.stack(w)
            - problem.push(w, unravel(d))
        )
        # 1 %: L is taken at 17 points
        assert float(jnp.linalg.norm(remainder)) <= 1.01 * L * float(d @ d) / 2
    assert theory.segment_smoothness(problem, w, w) == 0


def test_what_they_refuse(network):
    problem, w = network
    with pytest.raises(ValueError, match="structure of w"):
        theory.segment_smoothness(problem, w, w[:1])
    with pytest.raises(ValueError, match="steps must be"):
        theory.least_singular_matrix_free(problem, w, steps=0)
