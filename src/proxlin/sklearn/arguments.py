"""Arguments that the estimators share, checked when they are fitted, as scikit-learn wants it."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

from ..inputs import check_columns


def widths_of(hidden: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers: none for 0, one for a number, several for a list."""
    given = [hidden]
    if isinstance(hidden, Sequence):
        given = list(hidden)
    for width in given:
        if not isinstance(width, Integral) or isinstance(width, bool) or width < 0:
            raise ValueError(
                f"hidden must be 0, a width or a list of widths; it is {hidden!r}."
            )
    return tuple(int(width) for width in given if width)


def refuse_texts(X: Any, error: ValueError) -> None:
    """Raise a sentence about the first column of a frame that holds no numbers, if there is one."""
    try:
        check_columns(X, "X")
    except TypeError as culprit:
        raise ValueError(
            f"{culprit} scikit-learn's OneHotEncoder does that in a pipeline; `proxlin fit` does it by itself."
        ) from error


def weights_of(given: Any, rows: Any) -> np.ndarray:
    """Return one weight for each row, at most 1: a sum of huge weights would overflow."""
    s = _check_sample_weight(given, rows, dtype=np.float64, ensure_non_negative=True)
    if not np.any(s > 0):
        raise ValueError("All sample weights are 0.")
    return s / s.max()


def seed_of(random_state: Any) -> int:
    """Return a seed for JAX, drawn by scikit-learn's rules."""
    return int(check_random_state(random_state).randint(2**31 - 1))
