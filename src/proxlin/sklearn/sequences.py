"""Sequences of unequal lengths: a list of arrays as one table of positions, and as one padded
array.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from sklearn.utils.validation import check_consistent_length, column_or_1d

SHORT = 8  # positions; sequences that are not longer are padded to one length


def is_table(X: Any) -> bool:
    """Return whether X is one table of rows, and not a list of such (or an array of them)."""
    if isinstance(X, np.ndarray) and X.dtype != object:
        return X.ndim != 3
    return not (
        isinstance(X, list | tuple | np.ndarray) and len(X) and np.ndim(X[0]) == 2
    )


def flattened(X: Any) -> tuple[Any, np.ndarray | None]:
    """Return all positions one after the other, and the lengths; a table as it is, with None."""
    if is_table(X):
        return X, None
    for i, each in enumerate(X):
        if np.ndim(each) != 2 or np.shape(each)[1] != np.shape(X[0])[1]:
            raise ValueError(
                f"Sequence {i} of X has the shape {np.shape(each)}; sequence 0 has {np.shape(X[0])}."
            )
    lengths = np.array([len(each) for each in X])
    if lengths.min() == 0:
        raise ValueError(
            f"Sequence {lengths.argmin()} of X is empty; it needs a position."
        )
    return np.concatenate([np.asarray(each) for each in X]), lengths


def joined(X: Any, y: Any) -> Any:
    """Return the labels of all positions one after the other, as many in each sequence as X has."""
    if is_table(X):
        return column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    for i, (rows, labels) in enumerate(zip(X, y, strict=True)):
        if np.shape(labels) != (len(rows),):
            raise ValueError(
                f"Sequence {i} of X has {len(rows)} positions, but its labels have the shape {np.shape(labels)}."
            )
    return np.concatenate([np.asarray(labels) for labels in y])


def insides(lengths: np.ndarray) -> np.ndarray:
    """Return which of (n, longest) positions belong to a sequence."""
    return np.arange(lengths.max())[None] < lengths[:, None]


def padded(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return rows (total, ...) as (n, longest, ...), with zeros beyond each length."""
    inside = insides(lengths)
    padded = np.zeros((*inside.shape, *rows.shape[1:]), rows.dtype)
    padded[inside] = rows
    return padded


def groups_of(lengths: Int[np.ndarray, " n"]) -> list[Bool[np.ndarray, " n"]]:
    """Return which sequences are padded together: short ones, and others that differ by a factor of
    2 at most.

    A group is a program to compile, so there are few of them.

    >>> [group.tolist() for group in groups_of(np.array([2, 40, 8, 60]))]
    [[True, False, True, False], [False, True, False, True]]
    """
    power = np.ceil(np.log2(np.maximum(lengths, SHORT) / SHORT)).astype(int)
    return [power == each for each in np.unique(power)]
