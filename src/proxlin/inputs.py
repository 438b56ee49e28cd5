"""What people pass as data: lists, frames and series become arrays with a leading axis of samples.

[[1, 2], [3, 4]]            an array (2, 2)
a frame of pandas, polars   an array (n, columns)
a series                    an array (n,)
{"x": ..., "y": ...}        a dict of such arrays: phi sees a dict of numbers by name
(X, y)                      a tuple of such arrays
"""

from numbers import Number
from typing import Any

import jax
import numpy as np

FRAMES = ("pandas", "polars", "pyarrow", "modin", "cudf")


def as_arrays(data: Any) -> Any:
    """Return a tree of data with its lists, frames and series as arrays of NumPy, and other leaves as
    they are.

    >>> x, y = as_arrays(([[1, 2], [3, 4]], [0.5, 1.5]))
    >>> x.shape, y.shape
    ((2, 2), (2,))
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, x: _as_array(x, "data" + jax.tree_util.keystr(path)),
        data,
        is_leaf=_is_list_of_numbers,
    )


def _as_array(x: Any, name: str) -> Any:
    if isinstance(x, list | tuple):
        return _of_list(x, name)
    if _is_of_frames(x):
        return _of_frame(x, name)
    if type(x).__module__.startswith("scipy.sparse"):
        raise TypeError(
            f"The data leaf {name} is a sparse matrix of scipy, whose rows have no common shape; take "
            f"px.SparseRows, or .toarray()."
        )
    if _has_array(x):
        return np.asarray(x)
    return x


def _is_list_of_numbers(x: Any) -> bool:
    """Return whether x is a list that is meant as an array. A tuple of lists is a tree: (X, y)."""
    if isinstance(x, list):
        return _holds_numbers(x)
    return type(x) is tuple and len(x) > 0 and all(isinstance(e, Number) for e in x)


def _holds_numbers(x: Any) -> bool:
    """Return whether a list has nothing but numbers and texts in it, at any depth: it is no tree of
    arrays.
    """
    if isinstance(x, list | tuple):
        return len(x) > 0 and all(map(_holds_numbers, x))
    return x is None or isinstance(x, Number | str)


def _of_list(x: Any, name: str) -> np.ndarray:
    """Return a nested list as an array, or raise a sentence where its rows differ in length."""
    try:
        return np.asarray(x)
    except ValueError as error:
        raise ValueError(
            f"The data leaf {name} is a list whose rows differ in length; give rows of one length, "
            f"or a tuple of lists, such as (X, y)."
        ) from error


def _is_of_frames(x: Any) -> bool:
    return type(x).__module__.partition(".")[0] in FRAMES


def _has_array(x: Any) -> bool:
    """Return whether x says how it becomes an array (torch, xarray, ...) and is none of NumPy or JAX
    yet.
    """
    home = type(x).__module__.partition(".")[0]
    is_array = home in ("numpy", "jax", "jaxlib", "jaxtyping")
    return not is_array and callable(getattr(type(x), "__array__", None))


def _of_frame(x: Any, name: str) -> Any:
    """Return a frame as an array (n, columns), and a series as one (n,)."""
    columns = getattr(x, "columns", None)
    if columns is None:
        return _column(x, f"The data leaf {name}")
    if type(x).__module__.startswith("pyarrow"):
        x = dict(zip(x.column_names, x.columns, strict=True))
        columns = list(x)
    columns = list(columns)
    if not columns:
        raise ValueError(f"The data leaf {name} is a frame without columns.")
    if len(set(columns)) < len(columns):
        raise ValueError(
            f"The data leaf {name} is a frame with two columns of one name; rename one of them."
        )
    return np.stack(
        [_column(x[each], f"The column {each!r} of {name}") for each in columns], axis=1
    )


def check_columns(x: Any, name: str) -> None:
    """Raise a sentence about a column of a frame that holds no numbers; anything else passes."""
    if _is_of_frames(x):
        _of_frame(x, name)


def _column(x: Any, who: str) -> np.ndarray:
    """Return a column of numbers, nan where there is none, or raise a sentence that names it."""
    values = np.asarray(x)
    if values.dtype == object:
        # numbers with missing ones among them, or a text
        values = _numbers(values)
    if values is None or values.dtype.kind not in "biufc":
        kind = getattr(x, "dtype", getattr(x, "type", "text"))
        raise TypeError(
            f"{who} must hold numbers; it holds {kind}: encode it as numbers, or leave it out."
        )
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"{who} has a value that is missing or not finite in row {int(bad.argmax())}: drop such "
            f"rows, or fill them in."
        )
    return values


def _numbers(values: np.ndarray) -> np.ndarray | None:
    """Return an array of objects as numbers, nan for what is missing; None where there is a text."""
    missing = np.array([is_missing(x) for x in values])
    if not all(isinstance(x, Number) for x in values[~missing]):
        return None
    found = np.full(len(values), np.nan)
    found[~missing] = values[~missing].astype(np.float64)
    return found


def is_missing(x: Any) -> bool:
    """Return whether a cell of a frame is None, nan, or what pandas has for them."""
    return x is None or type(x).__name__ in ("NAType", "NaTType") or bool(x != x)
