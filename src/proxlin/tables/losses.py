"""The losses of a robust regression, by name; those that bend somewhere, such as Huber's, in units
of the residuals.
"""

import math
from collections.abc import Callable

from ..outers import (
    L1,
    L2,
    AbstractOuter,
    AbstractProximable,
    Huber,
    LInf,
    Quantile,
    SquaredL2,
)

# Huber's delta, in deviations of the residuals: 95 % as efficient as least squares on normal errors
NORMAL = 1.345
LOSSES: dict[str, Callable[[], AbstractProximable]] = {
    "l2": L2,
    "l1": L1,
    "linf": LInf,
    "huber": lambda: Huber(NORMAL),
    "squared": SquaredL2,
    "median": lambda: Quantile(0.5),
}
QUANTILE = "quantile "  # before a level, in the name of the loss of that quantile
# the scale of a first fit, in deviations of the targets: Huber's loss is then l1, nearly
NEARLY_SUPPORT = 1e-3


def outer_of(name: str) -> AbstractProximable:
    """Return the loss of a name, at scale 1; that of a quantile is such as "quantile 0.9".

    >>> float(outer_of("quantile 0.9").q)
    0.9
    """
    if name.startswith(QUANTILE):
        return Quantile(float(name.removeprefix(QUANTILE)))
    return LOSSES[name]()


def level_of(name: str, k: int) -> float | None:
    """Return the level of the quantile whose loss this is, for each of k targets alone; None where it
    is another loss.

    >>> level_of("l2", 1), level_of("l2", 2), level_of("quantile 0.9", 2)
    (0.5, None, 0.9)
    """
    outer = outer_of(name)
    if isinstance(outer, Quantile):
        return float(outer.q)
    if isinstance(outer, L1) or (isinstance(outer, L2 | LInf) and k == 1):
        return 0.5
    return None


def has_scale(outer: AbstractOuter, k: int) -> bool:
    """Return whether f bends somewhere between small and large residuals: its minimiser then
    depends on their units.

    Norms and other support functions do not (f(c u) = c f(u) for c > 0), nor do squares.
    """
    if not isinstance(outer, AbstractProximable):
        return False
    try:
        support, rho = outer.dual_form()
    except TypeError:  # it does not say; its numbers are in the units of the targets
        return False
    return bool(rho > 0) and math.isfinite(float(support.radius(k)))


def at_scale(outer: AbstractProximable, k: int, sigma: float) -> AbstractOuter:
    """Return sigma f(u / sigma) for f with a scale: it bends where f did in units of sigma, and is
    as steep far away.

    Its conjugate is sigma f*, which `dual_form` has as the indicator of a set and a square. Any
    other f is returned.
    """
    if not has_scale(outer, k):
        return outer
    support, rho = outer.dual_form()
    return support.smooth(rho * sigma)
