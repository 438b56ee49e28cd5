"""Intervals and comparisons: what a few seeds, folds or rows can tell.

    mean of m numbers      mean +- t s / sqrt(m)                             t_interval
    share of successes     Clopper and Pearson                               binomial_interval
    mean of errors         the bootstrap-t of its logarithm                  bootstrap_interval
    median                 order statistics                                  median_interval
    a paired difference    its t interval, read by `rules.Comparison`

Every interval is two-sided. Functions of several numbers return plain floats, ready for a table.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from scipy import special

Interval = tuple[float, float]
TINY = np.finfo(float).tiny  # stands in for 0 where a logarithm or a quotient is taken


def t_interval(
    values: Sequence[float] | np.ndarray, level: float = 0.95
) -> tuple[float, float, float]:
    """Return the mean and its t interval, mean +- t s / sqrt(m); the ends of a single number are
    infinite.

    Parameters
    ----------
    values : a list of numbers
        Of independent runs, folds or rows.
    level : a number between 0 and 1
        That of the interval.

    Returns
    -------
    three numbers
        The mean, and the ends of its interval.

    Raises
    ------
    ValueError
        There is no number.

    See Also
    --------
    theory.compare : reads an interval.
    theory.binomial_interval : the interval of a share.

    Examples
    --------
    >>> import proxlin as px
    >>> [round(each, 4) for each in px.theory.t_interval([1.0, 2.0, 3.0])]
    [2.0, -0.4841, 4.4841]
    """
    values = np.asarray(values, float)
    if not values.size:
        raise ValueError("A mean has no interval without a number; give one at least.")
    if len(values) < 2:
        return float(values.mean()), -np.inf, np.inf
    return _mean_within(values, special.stdtrit(len(values) - 1, (1 + level) / 2))


def normal_interval(values: np.ndarray, delta: float) -> tuple[float, float, float]:
    """Return the mean of many numbers and its normal interval at level 1 - delta."""
    return _mean_within(values, NormalDist().inv_cdf(1 - delta / 2))


def _mean_within(values: np.ndarray, quantile: float) -> tuple[float, float, float]:
    mean = float(values.mean())
    half = float(quantile * values.std(ddof=1) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Return Clopper and Pearson's interval: P(X >= x | low) = P(X <= x | high) = (1 - level) / 2.

    Parameters
    ----------
    successes : an integer
        x.
    trials : an integer
        Of how many.
    level : a number between 0 and 1
        That of the interval.

    Returns
    -------
    a pair of numbers
        The ends of the interval of the share.

    Raises
    ------
    ValueError
        There are more successes than trials, or no trial.

    See Also
    --------
    theory.t_interval : the interval of a mean.

    Examples
    --------
    >>> import proxlin as px
    >>> low, high = px.theory.binomial_interval(0, 36)
    >>> low, round(high, 3)
    (0.0, 0.097)
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"There cannot be {successes} successes in {trials} trials.")
    tail = (1 - level) / 2
    failures = trials - successes
    low = 0.0
    high = 1.0
    if successes:
        low = float(special.betaincinv(successes, failures + 1, tail))
    if failures:
        high = float(special.betaincinv(successes + 1, failures, 1 - tail))
    return low, high


def median_interval(values: np.ndarray, level: float = 0.95) -> Interval:
    """Return order statistics around the median: exact for every continuous distribution.

    The ends are the values of rank k from below and from above, with k the largest for which
    P(fewer than k values lie below the median) <= (1 - level) / 2.
    """
    n = len(values)
    # P(at most i values lie below the median)
    below = special.bdtr(np.arange(n + 1), n, 0.5)
    rank = int(np.argmax(below >= (1 - level) / 2))
    if rank < 1:
        raise ValueError(
            f"{n} values are too few for an interval of the median at level {level}."
        )
    ordered = np.sort(values)
    return float(ordered[rank - 1]), float(ordered[n - rank])


class Resamples(NamedTuple):
    """Draws of rows with replacement: all of them, or of a random part of many rows."""

    part: np.ndarray  # (m,) the rows that are drawn from
    drawn: np.ndarray  # (count, m) places in `part`


def resamples(n: int, count: int, most: int, seed: int) -> Resamples:
    """Draw `count` resamples of n rows, or of `most` of them, which is enough for quantiles of t."""
    rng = np.random.default_rng(seed)
    m = min(n, most)
    return Resamples(rng.permutation(n)[:m], rng.integers(0, m, (count, m), np.int32))


def bootstrap_interval(
    errors: np.ndarray, base: np.ndarray | None, draws: Resamples
) -> Interval | None:
    """Return the 95 % bootstrap-t interval of mean(errors), or of mean(errors) / mean(base) over
    the same rows.

    It is computed for the logarithm: errors are positive and skewed, so that percentiles of
    resampled means cover too little (0.77 of 0.95 for five exponential errors, where this one has
    0.95). None: a few rows make up the mean.
    """
    parts = [errors]
    if base is not None:
        parts.append(base)
    means = [float(part.mean()) for part in parts]
    if 0 in means:
        return None
    value = means[0]
    if base is not None:
        value = value / means[1]
    _, spread = _log_mean(*parts)
    if spread == 0:  # both have the same errors, or all errors are equal
        return value, value
    center, _ = _log_mean(*(part[draws.part] for part in parts))
    logs, spreads = _log_mean(*(part[draws.part][draws.drawn] for part in parts))
    # many resamples have none of the few rows that make up the mean
    if np.mean(spreads == 0) > 0.01:
        return None
    t = (logs - center) / np.where(spreads > 0, spreads, np.inf)
    low, high = np.quantile(t, [0.025, 0.975])
    return float(value * np.exp(-high * spread)), float(value * np.exp(-low * spread))


def _log_mean(errors: np.ndarray, base: np.ndarray | None = None) -> tuple[Any, Any]:
    """Return log mean(errors), less log mean(base), and its standard error to first order; along
    the last axis.
    """
    # a resample may hold nothing but errors of 0
    mean = np.maximum(errors.mean(axis=-1, keepdims=True), TINY)
    influence = errors / mean
    center = np.log(mean)
    if base is not None:
        other = np.maximum(base.mean(axis=-1, keepdims=True), TINY)
        influence = influence - base / other
        center = center - np.log(other)
    return center[..., 0], influence.std(axis=-1, ddof=1) / errors.shape[-1] ** 0.5
