"""Units in which a table is fitted: features by mean and deviation, targets by what outliers leave as it is.

A loss with a scale of its own, such as Huber's, has it in units of the residuals (`residual_scale`, `scaled`).
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..outers import AbstractOuter, AbstractProximable

DEVIATION = 1.4826  # of a normal distribution, over its median absolute deviation
NORMAL = 1.345  # Huber's delta, in deviations of the residuals: 95 % as efficient as least squares on normal errors
LEAST = 1e-6  # of a target's own scale; residuals below it are zero up to rounding, and the loss is then its support


@dataclass(frozen=True)
class Units:
    """x -> (x - x_center) / x_scale, and the same of y.

    >>> units = units_of(np.array([[1.0], [3.0]]), np.array([[1.0], [3.0]]))
    >>> units.features(np.array([[3.0]])).tolist(), units.given(units.targets(np.array([[3.0]]))).tolist()
    ([[1.0]], [[3.0]])
    """

    x_center: Float[np.ndarray, " p"]
    x_scale: Float[np.ndarray, " p"]
    y_center: Float[np.ndarray, " k"]
    y_scale: Float[np.ndarray, " k"]

    def features(self, X: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        return _standardized(X, self.x_center, self.x_scale)

    def targets(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        return _standardized(y, self.y_center, self.y_scale)

    def given(self, z: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Targets in the units of the table again; what overflows is infinite or nan."""
        with np.errstate(over="ignore", invalid="ignore"):
            return z * self.y_scale + self.y_center

    def of_residuals(self, sigma: Float[np.ndarray, " k"]) -> tuple["Units", float]:
        """Units in which the residuals of every target have one scale, which is returned too.

        The targets keep about the size they had: steps that suited them before do so still.
        """
        size = math.exp(np.mean(np.log(self.y_scale) - np.log(sigma)))
        return dataclasses.replace(self, y_scale=sigma * size), 1 / size


def units_of(X: np.ndarray, y: np.ndarray, s: np.ndarray | None = None) -> Units:
    """Features by mean and deviation; targets by median and median absolute deviation. s: sample weights."""
    s = np.ones(len(X)) if s is None else s
    counts = s > 0  # a row of weight 0 is none, however large its numbers are
    X, y, s = X[counts], y[counts], s[counts]
    x, x_top = _below_one(X)
    center = np.average(x, axis=0, weights=s)
    scale = np.sqrt(np.average((x - center) ** 2, axis=0, weights=s))
    z, y_top = _below_one(y)
    y_center = median(z, s)
    away = np.abs(z - y_center)
    spread = DEVIATION * median(away, s)
    y_scale = np.where(spread > 0, spread, np.average(away, axis=0, weights=s))
    return Units(center * x_top, _or_one(scale, x, x_top), y_center * y_top, _or_one(y_scale, z, y_top))


def median(values: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The least value with half of the weight at or below it, in each column: a row of weight 2 counts as two rows."""
    order = np.argsort(values, axis=0)
    below = np.cumsum(s[order], axis=0)
    at = np.argmax(below >= below[-1] / 2 * (1 - 1e-12), axis=0)
    return np.take_along_axis(values, np.take_along_axis(order, at[None], axis=0), axis=0)[0]


def residual_scale(residuals: np.ndarray, s: np.ndarray) -> np.ndarray:
    """1.4826 times the median of |residual|, for each target: the deviation of normal residuals, whatever outliers do.

    >>> residual_scale(np.array([[1.0], [-2.0], [1e9]]), np.ones(3)).tolist()
    [2.9652]
    """
    return DEVIATION * median(np.abs(residuals), s)


def has_scale(outer: AbstractOuter, k: int) -> bool:
    """Whether f bends somewhere between small and large residuals: its minimiser then depends on their units.

    Norms and other support functions do not (f(c u) = c f(u) for c > 0), nor do squares.
    """
    if not isinstance(outer, AbstractProximable):
        return False
    try:
        support, rho = outer.dual_form()
    except TypeError:  # it does not say; its numbers are in the units of the targets
        return False
    return bool(rho > 0) and math.isfinite(float(support.radius(k)))


def scaled(outer: AbstractProximable, sigma: float) -> AbstractOuter:
    """sigma f(u / sigma): f bends where it did in units of sigma, and is as steep as it was far away.

    Its conjugate is sigma f*, which `dual_form` has as the indicator of a set and a square.
    """
    support, rho = outer.dual_form()
    return support.smooth(rho * sigma)


def _below_one(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns divided by a power of two, so that no square of them overflows or is lost, and these powers."""
    top = np.abs(values).max(axis=0, initial=0)
    power = np.ldexp(1.0, np.clip(np.frexp(top)[1], -1000, 1000))  # exact, and so is the way back
    return values / power, power


def _standardized(values: np.ndarray, center: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(values - center) / scale, by halves: the difference of two large numbers does not overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (values / 2 - center / 2) / (scale / 2)


def _or_one(scale: np.ndarray, of: np.ndarray, power: np.ndarray) -> np.ndarray:
    """scale times power, or 1 for what is constant up to rounding."""
    varies = scale > 10 * np.finfo(float).eps * np.abs(of).max(axis=0, initial=0)
    with np.errstate(over="ignore"):
        found = scale * power
    return np.where(varies & (found >= 2 * np.finfo(float).tiny) & np.isfinite(found), found, 1.0)
