"""Proposition 2: the windows, their coverage, and what its two parts need."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import theory
from proxlin.experiments.sine_maps import exact_path, near, orthogonal

CELLS = [(1, 16, 0.1), (1, 64, 0.01), (10, 32, 0.1), (10, 128, 0.5), (100, 64, 0.05)]
SMALL = [(1, 1, 0.1), (1, 10, 0.05), (20, 2, 0.2), (100, 10, 0.1)]
DRAWS = 4000


def draws(n, k, rng):
    """F(wbar) / sigma."""
    return np.sqrt(rng.chisquare(k, size=(DRAWS, n))).mean(axis=1)


def covered(levels, low, high, delta):
    """Whether the coverage can be 1 - delta: the upper end of Clopper and Pearson's interval, at
    99.9 %.
    """
    inside = int(((levels >= low) & (levels <= high)).sum())
    return theory.binomial_interval(inside, len(levels), 0.999)[1] >= 1 - delta


def test_the_window_of_the_appendix():
    R, n, k, delta = 0.7, 20, 64, 0.1
    c = math.log(2 * n / delta) / k
    low, high = px.theory.noise_window(R, n, k, delta)
    assert low == pytest.approx(R / math.sqrt(k) / (1 + (16 * c) ** 0.25))
    assert high == pytest.approx(R / math.sqrt(k) / (1 - (4 * c) ** 0.25))


def test_the_sharp_window():
    R, n, k, delta = 0.7, 20, 10, 0.1
    t = math.sqrt(2 * math.log(2 / delta) / n)
    low, high = px.theory.sharp_noise_window(R, n, k, delta)
    assert low == pytest.approx(R / (theory.chi_mean(k) + t)) and high == pytest.approx(
        R / (theory.chi_mean(k) - t)
    )
    # the bound on F(wbar) is below 0
    assert px.theory.sharp_noise_window(R, 1, 1, 0.01)[1] == math.inf
    assert theory.chi_mean(1) == pytest.approx(math.sqrt(2 / math.pi))
    assert theory.chi_mean(2) == pytest.approx(math.sqrt(math.pi / 2))
    assert theory.chi_mean(10**6) == pytest.approx(1000, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 100, 10**6])
def test_the_papers_own_k_is_refused(n):
    """k = 10 < 4 log(2n/delta) for every n at delta <= 0.16."""
    with pytest.raises(
        ValueError,
        match=r"needs k >= 4 log\(2n/delta\) = .*; k is 10. Take sharp_noise_window",
    ):
        px.theory.noise_window(1.0, n, 10, 0.16)
    low, high = px.theory.sharp_noise_window(1.0, n, 10, 0.16)
    assert 0 < low < 1 / theory.chi_mean(10) < high


def test_k_is_refused_right_below_its_bound():
    n, k = 10, 32
    delta = 2 * n * math.exp(-k / 4)  # k = 4 log(2n / delta)
    assert px.theory.noise_window(1.0, n, k, delta * (1 + 1e-9))[1] > 1e6
    with pytest.raises(ValueError, match="needs k >="):
        px.theory.noise_window(1.0, n, k, delta * (1 - 1e-9))


@pytest.mark.parametrize(
    "arguments",
    [(0.0, 1, 99, 0.1), (1.0, 0, 99, 0.1), (1.0, 1, 0, 0.1), (1.0, 1, 99, 1.0)],
)
def test_what_the_windows_refuse(arguments):
    for window in (px.theory.noise_window, px.theory.sharp_noise_window):
        with pytest.raises(ValueError, match=r"(radius|n|k|delta) must be"):
            window(*arguments)


def test_the_noise_level_is_the_mean_norm_of_the_noise():
    rng = np.random.default_rng(0)
    x, wbar, xi = (
        rng.normal(size=(6, 3)),
        rng.normal(size=(3, 4)),
        0.1 * rng.normal(size=(6, 4)),
    )
    problem = px.MeanOfLosses(
        px.residual(lambda w, x: jnp.tanh(x @ w)), px.L2(), (x, np.tanh(x @ wbar) + xi)
    )
    assert float(problem.value(jnp.asarray(wbar))) == pytest.approx(
        np.linalg.norm(xi, axis=1).mean()
    )


@pytest.mark.parametrize(("n", "k", "delta"), CELLS)
def test_coverage_of_the_papers_window(n, k, delta):
    """(1 - (4c)^{1/4}) sqrt k <= F(wbar) / sigma <= (1 + (16c)^{1/4}) sqrt k with probability at
    least 1 - delta.
    """
    low, high = theory.noise_factors(n, k, delta)
    assert covered(draws(n, k, np.random.default_rng([1, n, k])), low, high, delta)


@pytest.mark.parametrize(("n", "k", "delta"), CELLS + SMALL)
def test_coverage_of_the_sharp_window(n, k, delta):
    """|F(wbar) / sigma - E chi_k| <= sqrt(2 log(2/delta) / n) with probability at least 1 - delta, for any k."""
    low, high = theory.sharp_noise_factors(n, k, delta)
    levels = draws(n, k, np.random.default_rng([1, n, k]))
    assert covered(levels, low, high, delta)
    assert levels.mean() == pytest.approx(
        theory.chi_mean(k), abs=5 * levels.std() / math.sqrt(DRAWS)
    )


@pytest.mark.parametrize(("n", "k", "delta"), CELLS)
def test_the_sharp_window_is_inside_the_papers(n, k, delta):
    (low, high), (sharp_low, sharp_high) = (
        theory.noise_factors(n, k, delta),
        theory.sharp_noise_factors(n, k, delta),
    )
    assert low < sharp_low and sharp_high < high
    assert (high - low) / (sharp_high - sharp_low) > (
        1.5 if n == 1 else 5 if n == 10 else 30
    )


def test_laplace_noise_is_not_covered():
    """n = 1000, k = 10, delta = 0.1: the mean norm is E chi_k less 0.09, more than half the sharp
    window.
    """
    rng = np.random.default_rng(2)
    levels = np.asarray(
        [
            np.linalg.norm(rng.laplace(scale=0.5**0.5, size=(1000, 10)), axis=1).mean()
            for _ in range(300)
        ]
    )
    assert theory.chi_mean(10) - levels.mean() > 0.08
    assert not covered(levels, *theory.sharp_noise_factors(1000, 10, 0.1), 0.1)


def test_which_side_of_the_radius_the_noise_level_is_on():
    """sigma > high: F(wbar) > R, so F(w_j) <= R < F(wbar), part (a); sigma < low: F(wbar) < R. The
    proof has this the other way round.
    """
    rng = np.random.default_rng(3)
    R, n, k, delta = 0.5, 10, 64, 0.1
    xi = np.linalg.norm(rng.normal(size=(DRAWS, n, k)), axis=2).mean(axis=1)
    for window in (px.theory.noise_window, px.theory.sharp_noise_window):
        low, high = window(R, n, k, delta)
        assert np.mean(1.001 * high * xi > R) >= 1 - delta
        assert np.mean(0.999 * low * xi < R) >= 1 - delta


def test_part_b_needs_more_than_it_states():
    """Its hypothesis holds for R and for each smaller R' >= F(w_{j+1}) too, and by R' the first
    iterate may already be far below F(wbar) < R': the step into the phase jumped over the noise
    level.
    """
    rng = np.random.default_rng(4)
    known = orthogonal(5, 2, rng)
    wbar = rng.normal(size=known.A.shape[-1])
    F = exact_path(
        known.problem(known.target(wbar), px.L2()), near(wbar, 6.0, rng), 5**-0.5, 200
    ).values
    phase = theory.quadratic_phase(F)
    assert phase is not None
    # a quadratic step
    t = next(t for t in range(phase.start, len(F)) if F[t + 1] < 0.01 * F[t])
    R = F[t] * 0.999
    assert all(
        b <= a**2 / (2 * R)
        for a, b in zip(F[t + 1 :], F[t + 2 :], strict=False)
        if b > 1e-13
    )
    low, _ = px.theory.noise_window(R, n=5, k=32, delta=0.2)
    sigma = low / 2
    noise = np.sqrt(rng.chisquare(32, size=(DRAWS, 5))).mean(axis=1) * sigma
    # stated: F[t + 1] > noise
    assert np.mean(noise < R) > 0.8 and np.mean(F[t + 1] < noise) > 0.8
