"""Proposition 1: exact prox-linear gains R/2 at each step until F - F* <= R, and converges
quadratically from then on.

R = (sharpness least_singular)^2 / (kappa n^2),  kappa >= L l / sqrt n
"""

import dataclasses
import math
from typing import Any

import numpy as np

from ..checks import real, whole
from ..types import Scalar

FLOOR = 1e-13  # below it F is round-off of float64 and of subproblems solved to 100 eps


def least_kappa(n: int, smoothness: Scalar, lipschitz: Scalar) -> float:
    """Return L l / sqrt n, the least kappa of Proposition 1: the mean of n losses is (l / sqrt
    n)-Lipschitz.

    Parameters
    ----------
    n : an integer
        The number of samples.
    smoothness : a number
        L, the Lipschitz constant of the Jacobian of phi.
    lipschitz : a positive number
        l, that of f.

    Returns
    -------
    a number
        The least kappa.

    See Also
    --------
    theory.quadratic_radius : uses it.
    theory.segment_smoothness : measures L.

    Examples
    --------
    >>> import proxlin as px
    >>> px.theory.least_kappa(4, smoothness=1.0, lipschitz=1.0)
    0.5
    """
    n = whole(n, "n", high=math.inf)
    smoothness = real(smoothness, "smoothness", low=0.0)
    lipschitz = positive(lipschitz, "lipschitz")
    return smoothness * lipschitz / math.sqrt(n)


def quadratic_radius(
    n: int,
    smoothness: Scalar,
    lipschitz: Scalar,
    sharpness: Scalar,
    least_singular: Scalar,
    kappa: Scalar | None = None,
) -> float:
    """Return R = (sharpness * least_singular)^2 / (kappa n^2): where the quadratic phase of exact
    prox-linear starts.

    kappa = L l / sqrt n (None) gives (sharpness least_singular)^2 / (L l n^{3/2}); kappa = L l
    gives n^2 in place of n^{3/2} (the paper names the second kappa and the first radius). Before it
    each step gains at least R/2.

    Parameters
    ----------
    n : an integer
        The number of samples.
    smoothness : a number
        L, the Lipschitz constant of the Jacobian of phi.
    lipschitz : a positive number
        l, that of f.
    sharpness : a positive number
        That of f.
    least_singular : a positive number
        The least singular value of the Jacobian of phi.
    kappa : a positive number, or None
        The weight of the proximal term; None is the least one.

    Returns
    -------
    a number
        R; inf where phi is linear.

    Raises
    ------
    ValueError
        kappa is below the least one, or f is not sharp.

    See Also
    --------
    theory.least_singular : measures the singular value.
    theory.noise_window : compares R with the noise.
    theory.quadratic_phase : finds R in a run.

    Examples
    --------
    >>> import proxlin as px
    >>> constants = {"smoothness": 1.0, "lipschitz": 1.0, "sharpness": 1.0, "least_singular": 2.0}
    >>> px.theory.quadratic_radius(4, **constants)
    0.5
    >>> px.theory.quadratic_radius(4, **constants, kappa=1.0)
    0.25
    """
    least = least_kappa(n, smoothness, lipschitz)
    weight = least
    if kappa is not None:
        weight = positive(kappa, "kappa")
    if weight < least * (1 - 1e-12):  # round-off of L l / sqrt n computed elsewhere
        raise ValueError(
            f"Proposition 1 needs kappa >= L l / sqrt n = {least:.6g}; it is {weight:.6g}."
        )
    if float(sharpness) == 0:
        raise ValueError(
            "Proposition 1 needs a sharp outer function, such as px.L2() or px.L1(); its sharpness is 0."
        )
    top = (
        positive(sharpness, "sharpness")
        * positive(least_singular, "least_singular")
        / n
    )
    if weight == 0:  # phi is linear, and the quadratic phase is everywhere
        return math.inf
    return top**2 / weight


def next_gap(gap: Scalar, radius: Scalar) -> float:
    """Return min over s in [0, 1] of (1 - s) gap + s^2 gap^2 / (2 R), Proposition 1's bound on the
    next gap.

    Parameters
    ----------
    gap : a number
        F - F* now.
    radius : a positive number
        R.

    Returns
    -------
    a number
        The bound on F - F* after one step.

    See Also
    --------
    theory.quadratic_radius : R.

    Examples
    --------
    >>> import proxlin as px
    >>> px.theory.next_gap(3.0, radius=1.0), px.theory.next_gap(0.5, radius=1.0)
    (2.5, 0.125)
    """
    gap = float(gap)
    radius = float(radius)
    if gap >= radius:
        return gap - radius / 2
    return gap**2 / (2 * radius)


@dataclasses.dataclass(frozen=True)
class Phase:
    """The quadratic phase of a run: its first iterate, and the radius R that holds from there on.

    Parameters
    ----------
    start : an integer
        The first iterate of the phase.
    radius : a number
        R from there on.

    See Also
    --------
    theory.quadratic_phase : returns it.

    Examples
    --------
    >>> import proxlin as px
    >>> px.theory.Phase(start=3, radius=0.5)
    Phase(start=3, radius=0.5)
    """

    start: int
    radius: float


def quadratic_phase(values: Any, floor: float = FLOOR) -> Phase | None:
    """Return the first j with F_j <= R_j, where the phase starts, and R_j = min over t >= j of F_t^2 /
    (2 F_{t+1}).

    A ratio whose F_{t+1} is below the floor is round-off; it only counts, as at least F_t^2 / (2
    floor), where there is no other.

    Parameters
    ----------
    values : a vector
        F_t - min F along a run.
    floor : a number
        What is below it is round-off.

    Returns
    -------
    a `Phase`, or None
        None if the run did not come down to the floor: what follows the last iterate is unknown.

    Raises
    ------
    ValueError
        The values are not finite, or fewer than two.

    See Also
    --------
    theory.Phase : what comes back.
    theory.quadratic_radius : R by its formula.

    Examples
    --------
    >>> import proxlin as px
    >>> px.theory.quadratic_phase([4.0, 3.0, 1.0, 0.25, 0.03125, 0.0005, 1e-7, 1e-15])
    Phase(start=3, radius=0.9765625)
    """
    gaps = np.asarray(values, float)
    if gaps.ndim != 1 or len(gaps) < 2 or not np.isfinite(gaps).all():
        raise ValueError(
            "quadratic_phase needs the finite values of F along a run, at least two of them."
        )
    end = np.flatnonzero(gaps <= floor)
    if not len(end) or end[0] == 0:
        return None
    gaps = gaps[: end[0]]  # those above the floor; what comes after them is round-off
    ratios = gaps[:-1] ** 2 / (2 * gaps[1:])
    from_here_on = np.minimum.accumulate(ratios[::-1])[::-1]
    radii = np.append(from_here_on, gaps[-1] ** 2 / (2 * floor))
    inside = np.flatnonzero(gaps <= radii)
    if not len(inside):
        return None
    start = int(inside[0])
    return Phase(start, float(radii[start]))


def positive(x: Scalar, name: str) -> float:
    """Return a positive number, or raise a sentence."""
    return real(x, name, low=0.0, open=True)
