"""The gradient method for f of a mean: a naive twin, and what its estimates become in the limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px

RNG = np.random.default_rng(0)
A = RNG.normal(size=(12, 3, 3)) + 2 * np.eye(3)
B = RNG.normal(size=(12, 3))
W = jnp.asarray([0.5, -0.2, 0.1])


def problem(ridge=0.0):
    """f(mean of A_i w - b_i), whose estimates a loop in NumPy can follow."""
    inner = lambda w, s: jnp.tanh(s[0] @ w) - s[1]
    return px.LossOfMean(inner, px.L2(), (A, B), ridge=ridge)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_the_running_average_is_that_of_wang(weight):
    """u is averaged with its own batch, the Jacobian is fresh, and the ridge is whole."""
    solver = px.composition_sgd(0.1, 4, 2, weight=weight)
    p = problem(ridge=0.5)
    drawn = np.asarray(solver.draw(p, jax.random.key(1), 6))
    state = solver.init(p, W)
    for each in drawn:
        state, _ = solver.step(p, state, jnp.asarray(each))
    w, u = np.asarray(W), None
    for each in drawn:
        value, slope = each[:4], each[4:]
        fresh = np.mean(np.tanh(A[value] @ w) - B[value], axis=0)
        u = fresh if u is None else (1 - weight) * u + weight * fresh
        v = u / np.linalg.norm(u)
        h = 1 - np.tanh(A[slope] @ w) ** 2
        J = np.mean(h[:, :, None] * A[slope], axis=0)
        w = w - 0.1 * (J.T @ v + 0.5 * w)
    np.testing.assert_allclose(state.w, w, rtol=1e-12)


@pytest.mark.parametrize("estimator", ["sarah", "svrg"])
def test_exact_estimates_make_it_gradient_descent(estimator):
    """With a snapshot at every step nothing is estimated."""
    solver = px.composition_sgd(0.1, 2, estimator=estimator, period=1)
    found = px.minimize(problem(), W, solver, steps=7)
    expected = px.minimize(problem(), W, px.subgradient_descent(0.1), steps=7)
    np.testing.assert_allclose(found.w, expected.w, rtol=1e-10)
    assert solver.name() == "composition_sgd"


def test_a_weight_of_one_has_no_memory():
    one, two = (
        px.minimize(problem(), W, solver, steps=9, seed=4).w
        for solver in (
            px.composition_sgd(0.1, 3, 2, weight=1.0),
            px.composition_sgd(0.1, 3, 2, "minibatch"),
        )
    )
    np.testing.assert_array_equal(one, two)


def test_an_average_is_less_biased_than_a_batch():
    """Where w hardly moves, the average of u approaches u, and with it the direction."""
    p = problem()
    u = np.asarray(p.stack(W)[0])

    def off(weight):
        solver = px.composition_sgd(1e-9, 1, 1, weight=weight)
        keys = jax.random.split(jax.random.key(2), 300)

        def last(key):
            drawn = solver.draw(p, key, 40)
            step = lambda state, each: (solver.step(p, state, each)[0], None)
            return jax.lax.scan(step, solver.init(p, W), drawn)[0].u

        found = np.asarray(jax.vmap(last)(keys))
        return float(np.mean(np.sum((found - u) ** 2, axis=1)))

    # the variance of an average of weight b is b / (2 - b) that of a batch
    assert off(0.1) == pytest.approx(off(1.0) * 0.1 / 1.9, rel=0.3)


def test_wrong_use():
    with pytest.raises(ValueError, match="period is for"):
        px.composition_sgd(0.1, 2, period=5)
    with pytest.raises(ValueError, match="at most 1"):
        px.composition_sgd(0.1, 2, weight=1.5)
    mean = px.MeanOfLosses(lambda w, s: s[0] @ w - s[1], px.L2(), (A, B))
    for estimator in ("average", "sarah"):
        with pytest.raises(TypeError, match="LossOfMean|loss of a mean|LossOfMean"):
            px.minimize(mean, W, px.composition_sgd(0.1, 2, estimator=estimator))
