"""Intervals of a mean over few seeds."""

from collections.abc import Sequence

import numpy as np
from scipy import stats


def interval(values: "Sequence[float] | np.ndarray", level: float = 0.95) -> tuple[float, float, float]:
    """The mean and its t interval, mean +- t s / sqrt(m).

    >>> interval([1.0, 1.0, 1.0])
    (1.0, 1.0, 1.0)
    """
    values = np.asarray(values, float)
    mean, m = float(values.mean()), len(values)
    if m < 2:
        return mean, -np.inf, np.inf
    half = float(stats.t.ppf((1 + level) / 2, m - 1) * values.std(ddof=1) / m**0.5)
    return mean, mean - half, mean + half
