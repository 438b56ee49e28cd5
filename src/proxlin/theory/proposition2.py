"""Proposition 2: is the noise level F(wbar) above or below the radius R of the quadratic phase?

F(wbar) / sigma in [low, high] with probability 1 - delta;   sigma > R / low: above,   sigma < R / high: below
"""

import math

from ..checks import real, whole
from ..types import Scalar
from .proposition1 import positive


def noise_factors(n: int, k: int, delta: float) -> tuple[float, float]:
    """Return sqrt k (1 - (4 c)^{1/4}) and sqrt k (1 + (16 c)^{1/4}), c = log(2n/delta) / k, around
    F(wbar) / sigma.

    They are the appendix's. It needs k >= 4 log(2n/delta), and raises where that fails: for k = 10
    at every n if delta <= 0.16.

    Parameters
    ----------
    n : an integer
        The number of samples.
    k : an integer
        The number of outputs.
    delta : a number between 0 and 1
        The factors hold with probability 1 - delta.

    Returns
    -------
    a pair of numbers
        The factors.

    Raises
    ------
    ValueError
        k is below 4 log(2n/delta).

    See Also
    --------
    theory.noise_window : the window that they give.
    theory.sharp_noise_factors : are tighter, for any k.

    Examples
    --------
    >>> import proxlin as px
    >>> [round(each, 4) for each in px.theory.noise_factors(100, 128, 0.05)]
    [3.2412, 22.73]
    """
    n = _count(n, "n")
    k = _count(k, "k")
    delta = probability(delta)
    least = 4 * math.log(2 * n / delta)
    if k < least:
        raise ValueError(
            f"Proposition 2 needs k >= 4 log(2n/delta) = {least:.4g}; k is {k}. Take sharp_noise_window, for any k."
        )
    low = 1 - (least / k) ** 0.25
    high = 1 + (4 * least / k) ** 0.25
    return math.sqrt(k) * low, math.sqrt(k) * high


def sharp_noise_factors(n: int, k: int, delta: float) -> tuple[float, float]:
    """Return E chi_k -+ sqrt(2 log(2/delta) / n), not below 0: F(wbar) / sigma by Gaussian
    concentration, for any k.

    Parameters
    ----------
    n : an integer
        The number of samples.
    k : an integer
        The number of outputs.
    delta : a number between 0 and 1
        The factors hold with probability 1 - delta.

    Returns
    -------
    a pair of numbers
        The factors.

    See Also
    --------
    theory.sharp_noise_window : the window that they give.
    theory.noise_factors : those of the paper.

    Examples
    --------
    >>> import proxlin as px
    >>> [round(each, 4) for each in px.theory.sharp_noise_factors(100, 128, 0.05)]
    [11.02, 11.5633]
    """
    n = _count(n, "n")
    delta = probability(delta)
    center = chi_mean(k)
    width = math.sqrt(2 * math.log(2 / delta) / n)
    return max(center - width, 0.0), center + width


def noise_window(radius: Scalar, n: int, k: int, delta: float) -> tuple[float, float]:
    """Return (low, high) of Proposition 2 for the noise sigma, with probability 1 - delta over
    Gaussian noise.

    Above high the quadratic phase starts below the noise level, F(w_j) <= R < F(wbar): it is of no
    use. Below low the noise level is below R.

    Parameters
    ----------
    radius : a positive number
        R.
    n : an integer
        The number of samples.
    k : an integer
        The number of outputs.
    delta : a number between 0 and 1
        The window holds with probability 1 - delta.

    Returns
    -------
    a pair of numbers
        low and high.

    Raises
    ------
    ValueError
        k is below 4 log(2n/delta).

    See Also
    --------
    theory.sharp_noise_window : is tighter, for any k.
    theory.quadratic_radius : R.

    Examples
    --------
    >>> import proxlin as px
    >>> low, high = px.theory.noise_window(1.0, n=100, k=128, delta=0.05)
    >>> round(low, 4), round(high, 4)
    (0.044, 0.3085)
    """
    return _window(radius, noise_factors(n, k, delta))


def sharp_noise_window(
    radius: Scalar, n: int, k: int, delta: float
) -> tuple[float, float]:
    """Return a window as `noise_window` does, for any k and far tighter, by `sharp_noise_factors`.

    Parameters
    ----------
    radius : a positive number
        R.
    n : an integer
        The number of samples.
    k : an integer
        The number of outputs.
    delta : a number between 0 and 1
        The window holds with probability 1 - delta.

    Returns
    -------
    a pair of numbers
        low and high; high may be infinite.

    See Also
    --------
    theory.noise_window : that of the paper.
    theory.quadratic_radius : R.

    Examples
    --------
    >>> import proxlin as px
    >>> low, high = px.theory.sharp_noise_window(1.0, n=100, k=128, delta=0.05)
    >>> round(low, 4), round(high, 4)
    (0.0865, 0.0907)
    """
    return _window(radius, sharp_noise_factors(n, k, delta))


def chi_mean(k: int) -> float:
    """Return E chi_k = sqrt 2 Gamma((k + 1) / 2) / Gamma(k / 2), the mean norm of a standard
    Gaussian vector in R^k.

    Parameters
    ----------
    k : an integer
        The number of entries.

    Returns
    -------
    a number
        The mean norm.

    See Also
    --------
    theory.sharp_noise_factors : are around it.

    Examples
    --------
    >>> import proxlin as px
    >>> round(px.theory.chi_mean(10), 4)
    3.0843
    """
    k = _count(k, "k")
    ratio = math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))
    return math.sqrt(2) * ratio


def probability(delta: float) -> float:
    """Return delta, or raise a sentence unless it lies between 0 and 1."""
    value = real(delta, "delta")
    if not 0 < value < 1:
        raise ValueError(f"delta must be between 0 and 1; it is {delta}.")
    return value


def _count(x: int, name: str) -> int:
    return whole(x, name, high=math.inf)


def _window(radius: Scalar, factors: tuple[float, float]) -> tuple[float, float]:
    """Return the sigma at which F(wbar) is the radius, for the larger factor and for the smaller
    one.
    """
    radius = positive(radius, "radius")
    low, high = factors
    if low == 0:
        return radius / high, math.inf
    return radius / high, radius / low
