"""Names of what an estimator predicts, and frames in place of arrays where they were asked for."""

from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from ..errors import MissingExtra

CONTAINERS = ("default", "pandas", "polars")


class NamedOutputs:
    """What scikit-learn's transformers have for their columns, for the predictions of an estimator.

    The names are those of the y that was fitted: the columns of a frame or the name of a series,
    and else y0, y1, ...
    """

    _target_names: list[str]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the outputs: the columns of y, or y0, y1, ... where it had no names.

        Parameters
        ----------
        input_features : a list of texts, or None
            The names of the features; they are compared with those of the fit, and change nothing.

        Returns
        -------
        an array of texts
            One name for each target.
        """
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.asarray(self._target_names, dtype=object)

    def set_output(self, *, transform: str | None = None) -> Any:
        """Say what `predict` returns, and return the estimator.

        It has the signature that scikit-learn's transformers have. A y of one axis is predicted as a
        series, one of two axes as a frame, with the names of `get_feature_names_out`; pandas keeps
        the index of X. The setting of `sklearn.set_config` is for transformers, and has no effect.

        Parameters
        ----------
        transform : "default", "pandas" or "polars", or None
            The kind of what comes back: arrays of NumPy by default; None leaves it as it is.

        Returns
        -------
        the estimator
            Itself.

        Raises
        ------
        ValueError
            The word is unknown.
        MissingExtra
            The package is not installed; it is an ImportError.
        """
        if transform is None:
            return self
        if transform not in CONTAINERS:
            raise ValueError(
                f"transform must be one of {', '.join(CONTAINERS)}, or None; it is {transform!r}."
            )
        if transform != "default" and find_spec(transform) is None:
            raise MissingExtra(
                f"{transform} is not installed: pip install {transform}."
            )
        # clone of scikit-learn copies this attribute
        self._sklearn_output_config = {"transform": transform}
        return self

    def _contained(self, found: np.ndarray, X: Any) -> Any:
        """Return predictions in what set_output asked for."""
        config = vars(self).get("_sklearn_output_config", {})
        names = self._target_names
        if config.get("transform") == "pandas":
            import pandas

            index = X.index if isinstance(X, pandas.DataFrame) else None
            if found.ndim == 1:
                return pandas.Series(found, index=index, name=names[0])
            return pandas.DataFrame(found, index=index, columns=names)
        if config.get("transform") == "polars":
            import polars

            if found.ndim == 1:
                return polars.Series(names[0], found)
            return polars.DataFrame(found, schema=names)
        return found


def names_of(y: Any, count: int) -> list[str]:
    """Return the names of the targets where y has them, and y0, y1, ... where it has not.

    >>> names_of(np.zeros((3, 2)), 2)
    ['y0', 'y1']
    """
    columns: Any = getattr(y, "columns", None)
    if columns is None:
        columns = [getattr(y, "name", None)]
    names = list(columns)
    if len(names) == count and all(isinstance(name, str) for name in names):
        return names
    return [f"y{i}" for i in range(count)]
