"""Prediction bands from residuals of rows that a fit did not see.

    P(|y - prediction| <= r) >= level,      r the ceil((m + 1) level)-th smallest of m such |residuals|

This holds for every model, if the new row comes from where the m rows came from (split conformal
prediction; Vovk, Lei). With both ends asked for apart, the band need not be symmetric.
"""

import math

import numpy as np
from jaxtyping import Float

from ..checks import real


def check_level(level: object, name: str = "interval") -> float:
    """Return a level between 0 and 1, or raise a sentence."""
    value = real(level, name)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, such as 0.9; it is {level}.")
    return value


def conformal_band(
    residuals: Float[np.ndarray, " m"], level: float, symmetric: bool = True
) -> tuple[float, float]:
    """Return what is added to a prediction for the ends of a band that holds a new row with
    probability `level` or more.

    Parameters
    ----------
    residuals : a vector (m,)
        y - prediction, of rows that the fit did not see.
    level : a number between 0 and 1
        The probability.
    symmetric : True or False
        Whether both ends are equally far away; else each end leaves out half of 1 - level.

    Returns
    -------
    two numbers
        What to add for the lower and for the upper end.

    Raises
    ------
    ValueError
        The level is not between 0 and 1, or too high for so few residuals.

    See Also
    --------
    fit : gives such bands with `predict(rows, interval=0.9)`.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> px.inference.conformal_band(np.arange(-9.0, 10.0), 0.9)
    (-9.0, 9.0)
    """
    level = check_level(level, "level")
    r = np.sort(np.asarray(residuals, float))
    m = len(r)
    if symmetric:
        size = np.sort(np.abs(r))
        place = _place(m, level, level)
        return -float(size[place - 1]), float(size[place - 1])
    place = _place(m, (1 + level) / 2, level)
    return float(r[m - place]), float(r[place - 1])


def _place(m: int, share: float, level: float) -> int:
    """Return which of m sorted residuals is the end, or raise a sentence where none is far enough."""
    # rounding must not ask for one more: 0.9 * 10 is 9
    place = math.ceil((m + 1) * share - 1e-9)
    if place > m:
        needed = math.ceil(share / (1 - share) - 1e-9)
        raise ValueError(
            f"A band of level {level:g} needs {needed} rows that the fit did not see, and there are {m}: take a lower "
            f"level, or give more rows."
        )
    return place
