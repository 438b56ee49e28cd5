"""The noise level, estimated: what early stopping is given."""

import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import theory

PREDICT = lambda w, x: x @ w  # one function: one compilation


def regression(n, sigma, rng, k=4):
    x, wbar = rng.normal(size=(n, 3)), rng.normal(size=(3, k))
    y = x @ wbar + sigma * rng.normal(size=(n, k))
    return (
        px.MeanOfLosses(px.residual(PREDICT), px.L2(), (x, y)),
        jnp.asarray(wbar),
        x,
        y,
    )


def test_held_out_covers_the_level_at_the_truth():
    """sigma E chi_k is in the interval at wbar in 95 % of the draws; elsewhere it is not above it
    more often than that, as E f(xi + b) >= E f(xi).
    """
    level, inside, above = 0.3 * theory.chi_mean(4), 0, 0
    for seed in range(60):
        problem, wbar, _, _ = regression(50, 0.3, np.random.default_rng(seed))
        estimate = theory.held_out_noise_level(problem, wbar)
        inside += estimate.low <= level <= estimate.high
        above += theory.held_out_noise_level(problem, wbar + 0.05).high < level
    assert (
        theory.binomial_interval(inside, 60)[1] >= 0.95
        and theory.binomial_interval(above, 60)[0] <= 0.05
    )


def test_paired_needs_no_model():
    rng = np.random.default_rng(5)
    x = rng.uniform(size=(800, 1))
    y = np.sin(3 * x @ np.ones((1, 5))) + 0.2 * rng.normal(size=(800, 5))
    estimate = theory.paired_noise_level(x, y, px.L2())
    assert estimate.low < 0.2 * theory.chi_mean(5) < estimate.high
    with pytest.raises(ValueError, match="n >= 4"):
        theory.paired_noise_level(x[:3], y[:3], px.L2())


def test_pairs_are_near_and_disjoint():
    from proxlin.theory.levels import _near_pairs

    x = np.asarray([[0.0], [10.0], [0.1], [10.3], [5.0]])
    assert _near_pairs(x) == [(0, 2), (1, 3)]


def test_early_stopping_at_an_estimated_level():
    rng = np.random.default_rng(6)
    train, wbar, x, y = regression(200, 0.3, rng)
    # pure noise: any pairs
    level = theory.paired_noise_level(
        x[:, :0], train.data[1] - x @ np.asarray(wbar), px.L2()
    )
    assert level.value == pytest.approx(float(train.value(wbar)), rel=0.1)
    run = px.minimize(
        train,
        0 * wbar,
        px.subgradient_descent(0.1),
        steps=300,
        stop=px.at_noise_level(level.value),
    )
    assert (
        run.status == "stopped" and run.value <= level.value < run.history["value"][-2]
    )
