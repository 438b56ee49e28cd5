"""Intervals and comparisons against scipy.stats, and what they promise."""

import numpy as np
import pytest
from scipy import stats

from proxlin import theory
from proxlin.theory import statistics


@pytest.mark.parametrize("m", [2, 5, 40])
def test_the_t_interval(m):
    values = np.random.default_rng(m).normal(size=m)
    mean, low, high = theory.t_interval(values, 0.9)
    assert mean == values.mean()
    assert (low, high) == pytest.approx(
        stats.t.interval(0.9, m - 1, mean, stats.sem(values))
    )
    assert theory.t_interval([3.0]) == (3.0, -np.inf, np.inf)


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 7), (3, 7), (7, 7), (1990, 2000), (1, 20000)]
)
def test_the_binomial_interval(successes, trials):
    exact = stats.binomtest(successes, trials).proportion_ci(0.99, method="exact")
    assert theory.binomial_interval(successes, trials, 0.99) == pytest.approx(
        (exact.low, exact.high), abs=1e-12
    )
    with pytest.raises(ValueError, match="successes"):
        theory.binomial_interval(trials + 1, trials)


@pytest.mark.parametrize("n", [20, 21, 500])
def test_the_median_interval_has_the_ranks_of_the_sign_test(n):
    low, high = statistics.median_interval(np.random.default_rng(n).permutation(n))
    rank = stats.binom.ppf(0.025, n, 0.5)
    assert (low, high) == (rank - 1, n - rank)
    with pytest.raises(ValueError, match="too few"):
        statistics.median_interval(np.arange(3.0))


def test_the_bootstrap_covers_the_ratio_of_means():
    """The errors of two fits on the same rows, of which the second is twice as large; 95 % of 100
    draws, or nearly.
    """
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(100):
        shared = rng.exponential(size=(30, 1))
        errors, base = (shared * rng.exponential(size=(30, 2)) * [1.0, 2.0]).T
        interval = statistics.bootstrap_interval(
            errors, base, statistics.resamples(30, 300, 1000, seed)
        )
        assert interval is not None
        inside += interval[0] <= 0.5 <= interval[1]
    assert theory.binomial_interval(inside, 100, 0.99)[1] >= 0.95
