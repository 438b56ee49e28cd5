"""Units in which a table is fitted: features by mean and deviation, targets by what outliers leave as it is."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

DEVIATION = 1.4826  # of a normal distribution, over its median absolute deviation


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
        return (X - self.x_center) / self.x_scale

    def targets(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        return (y - self.y_center) / self.y_scale

    def given(self, z: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Targets in the units of the table again."""
        return z * self.y_scale + self.y_center


def units_of(X: np.ndarray, y: np.ndarray, s: np.ndarray | None = None) -> Units:
    """Features by mean and deviation; targets by median and median absolute deviation. s: sample weights."""
    s = np.ones(len(X)) if s is None else s
    center = np.average(X, axis=0, weights=s)
    scale = _or_one(np.sqrt(np.average((X - center) ** 2, axis=0, weights=s)), X)
    y_center = median(y, s)
    away = np.abs(y - y_center)
    spread = DEVIATION * median(away, s)
    y_scale = np.where(spread > 0, spread, _or_one(np.average(away, axis=0, weights=s), y))
    return Units(center, scale, y_center, y_scale)


def median(values: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The least value with half of the weight at or below it, in each column: a row of weight 2 counts as two rows."""
    order = np.argsort(values, axis=0)
    below = np.cumsum(s[order], axis=0)
    at = np.argmax(below >= below[-1] / 2 * (1 - 1e-12), axis=0)
    return np.take_along_axis(values, np.take_along_axis(order, at[None], axis=0), axis=0)[0]


def _or_one(scale: np.ndarray, of: np.ndarray) -> np.ndarray:
    """1 for what is constant up to rounding."""
    return np.where(scale > 10 * np.finfo(float).eps * np.abs(of).max(axis=0, initial=0), scale, 1.0)
