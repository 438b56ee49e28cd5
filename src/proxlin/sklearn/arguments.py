"""Arguments that the estimators share, checked when they are fitted, as scikit-learn wants it."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

from ..checks import MOST, described, whole
from ..inputs import check_columns


def widths_of(hidden: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers: none for 0, one for a number, several for a list."""
    given = [hidden]
    if isinstance(hidden, Sequence):
        given = list(hidden)
    for width in given:
        is_count = isinstance(width, Integral) and not isinstance(width, bool)
        if not is_count or not 0 <= int(width) <= MOST:
            raise ValueError(
                f"hidden must be 0, a width or a list of widths; it is {described(hidden)}."
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


def source_of(random_state: Any) -> np.random.RandomState:
    """Return the source of random numbers by scikit-learn's rules, or raise a sentence."""
    is_source = isinstance(random_state, np.random.RandomState)
    if not is_source and random_state is not None and random_state is not np.random:
        random_state = whole(random_state, "random_state", low=0, high=2**32 - 1)
    return check_random_state(random_state)


def seed_of(random_state: Any) -> int:
    """Return a seed for JAX, drawn from the source that random_state says."""
    return int(source_of(random_state).randint(2**31 - 1))
