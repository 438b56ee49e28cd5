"""Units in which a table is fitted: features by mean and deviation, targets by what outliers leave
as it is.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

DEVIATION = 1.4826  # of a normal distribution, over its median absolute deviation
# of a target's own scale; residuals below it are zero up to rounding, and the loss is then its
# support
LEAST = 1e-6


@dataclass(frozen=True)
class Units:
    """Centres and scales: x -> (x - x_center) / x_scale and y -> (y - y_center) / y_scale.

    >>> units = units_of(np.array([[1.0], [3.0]]), np.array([[1.0], [3.0]]))
    >>> units.features(np.array([[3.0]])).tolist(), units.given(units.targets(np.array([[3.0]]))).tolist()
    ([[1.0]], [[3.0]])
    """

    x_center: Float[np.ndarray, " p"]
    x_scale: Float[np.ndarray, " p"]
    y_center: Float[np.ndarray, " k"]
    y_scale: Float[np.ndarray, " k"]

    def features(self, X: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        """Return the features in these units."""
        return _standardized(X, self.x_center, self.x_scale)

    def targets(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Return the targets in these units."""
        return _standardized(y, self.y_center, self.y_scale)

    def given(self, z: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Return targets in the units of the table again; what overflows is infinite or nan."""
        with np.errstate(over="ignore", invalid="ignore"):
            return z * self.y_scale + self.y_center

    def of_residuals(self, sigma: Float[np.ndarray, " k"]) -> tuple["Units", float]:
        """Return units in which the residuals of every target have one scale, and that scale.

        The targets keep about the size they had: steps that suited them before do so still.
        """
        size = math.exp(np.mean(np.log(self.y_scale) - np.log(sigma)))
        return dataclasses.replace(self, y_scale=sigma * size), 1 / size


def units_of(X: np.ndarray, y: np.ndarray, s: np.ndarray | None = None) -> Units:
    """Return units of features by mean and deviation, of targets by median and median absolute
    deviation.

    s are sample weights; a row of weight 0 is no row, however large its numbers are.
    """
    if s is None:
        s = np.ones(len(X))
    counts = s > 0
    s = s[counts]
    x, x_power = _below_one(X[counts])
    z, y_power = _below_one(y[counts])
    x_center = np.average(x, axis=0, weights=s)
    x_scale = np.sqrt(np.average((x - x_center) ** 2, axis=0, weights=s))
    y_center = median(z, s)
    away = np.abs(z - y_center)
    spread = DEVIATION * median(away, s)
    # Where more than half of a target's values are equal, the median tells no spread and the mean
    # does.
    y_scale = np.where(spread > 0, spread, np.average(away, axis=0, weights=s))
    return Units(
        x_center * x_power,
        _or_one(x_scale, x, x_power),
        y_center * y_power,
        _or_one(y_scale, z, y_power),
    )


def powers_of(X: np.ndarray, y: np.ndarray) -> Units:
    """Return units without a centre whose scales are powers of two, so that no digit changes."""
    _, x_power = _below_one(X)
    _, y_power = _below_one(y)
    return Units(np.zeros_like(x_power), x_power, np.zeros_like(y_power), y_power)


def median(values: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return the least value with half of the weight at or below it, in each column.

    A row of weight 2 counts as two rows.
    """
    order = np.argsort(values, axis=0)
    below = np.cumsum(s[order], axis=0)
    half = below[-1] / 2 * (1 - 1e-12)  # the sum of equal weights is rounded
    first = np.argmax(below >= half, axis=0)
    rows = np.take_along_axis(order, first[None], axis=0)
    return np.take_along_axis(values, rows, axis=0)[0]


def residual_scale(residuals: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return 1.4826 times the median of |residual|, for each target.

    It is the deviation of normal residuals, whatever outliers do.

    >>> residual_scale(np.array([[1.0], [-2.0], [1e9]]), np.ones(3)).tolist()
    [2.9652]
    """
    return DEVIATION * median(np.abs(residuals), s)


def _below_one(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide columns by a power of two, so that no square of them overflows or is lost; return
    these powers too.
    """
    top = np.abs(values).max(axis=0, initial=0)
    exponent = np.frexp(top)[1]
    # exact, and so is the way back
    power = np.ldexp(1.0, np.clip(exponent, -1000, 1000))
    return values / power, power


def _standardized(
    values: np.ndarray, center: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Return (values - center) / scale, by halves: the difference of two large numbers does not
    overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return (values / 2 - center / 2) / (scale / 2)


def _or_one(scale: np.ndarray, of: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Return scale times power, or 1 for a column that is constant up to rounding."""
    rounding = 10 * np.finfo(float).eps * np.abs(of).max(axis=0, initial=0)
    with np.errstate(over="ignore"):
        found = scale * power
    # `_standardized` halves a scale: it must stay a normal number.
    usable = (found >= 2 * np.finfo(float).tiny) & np.isfinite(found)
    return np.where((scale > rounding) & usable, found, 1.0)
