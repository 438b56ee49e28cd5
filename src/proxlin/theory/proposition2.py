"""Proposition 2: is the noise level F(wbar) above or below the radius R of the quadratic phase?

F(wbar) / sigma in [low, high] with probability 1 - delta;   sigma > R / low: above,   sigma < R / high: below
"""

import math

from ..types import Scalar
from .arguments import count, positive, probability


def noise_factors(n: int, k: int, delta: float) -> tuple[float, float]:
    """sqrt k (1 - (4 c)^{1/4}), sqrt k (1 + (16 c)^{1/4}), c = log(2n/delta) / k: the appendix's F(wbar) / sigma.

    Needs k >= 4 log(2n/delta), and raises where it fails: for k = 10 at every n if delta <= 0.16.
    """
    n, k, delta = count(n, "n"), count(k, "k"), probability(delta)
    least = 4 * math.log(2 * n / delta)
    if k < least:
        raise ValueError(
            f"Proposition 2 needs k >= 4 log(2n/delta) = {least:.4g}; k is {k}. Take sharp_noise_window, for any k."
        )
    return math.sqrt(k) * (1 - (least / k) ** 0.25), math.sqrt(k) * (1 + (4 * least / k) ** 0.25)


def sharp_noise_factors(n: int, k: int, delta: float) -> tuple[float, float]:
    """E chi_k -+ sqrt(2 log(2/delta) / n), not below 0: F(wbar) / sigma by Gaussian concentration, for any k."""
    n, delta = count(n, "n"), probability(delta)
    center, t = chi_mean(k), math.sqrt(2 * math.log(2 / delta) / n)
    return max(center - t, 0.0), center + t


def noise_window(radius: Scalar, n: int, k: int, delta: float) -> tuple[float, float]:
    """(low, high) of Proposition 2 for the noise sigma, with probability 1 - delta over Gaussian noise.

    Above high the quadratic phase starts below the noise level, F(w_j) <= R < F(wbar): it is of no use. Below low the
    noise level is below R. Raises where k < 4 log(2n/delta).

    >>> low, high = noise_window(1.0, n=100, k=128, delta=0.05)
    >>> round(low, 4), round(high, 4)
    (0.044, 0.3085)
    """
    return _window(radius, noise_factors(n, k, delta))


def sharp_noise_window(radius: Scalar, n: int, k: int, delta: float) -> tuple[float, float]:
    """The same for any k, and far tighter: F(wbar) / sigma is within E chi_k +- sqrt(2 log(2/delta) / n).

    >>> low, high = sharp_noise_window(1.0, n=100, k=128, delta=0.05)
    >>> round(low, 4), round(high, 4)
    (0.0865, 0.0907)
    """
    return _window(radius, sharp_noise_factors(n, k, delta))


def chi_mean(k: int) -> float:
    """E chi_k = sqrt 2 Gamma((k + 1) / 2) / Gamma(k / 2), the mean norm of a standard Gaussian vector in R^k.

    >>> round(chi_mean(10), 4)
    3.0843
    """
    k = count(k, "k")
    return math.sqrt(2) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))


def _window(radius: Scalar, factors: tuple[float, float]) -> tuple[float, float]:
    radius, (low, high) = positive(radius, "radius"), factors
    return radius / high, radius / low if low > 0 else math.inf
