"""Tables of numbers alone: every column numeric, no cell missing (`frames` reads what has texts and
gaps).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..errors import UserError
from .frames import Frame, read_frame


@dataclass(frozen=True)
class Table:
    """Named columns of numbers, and the file they came from."""

    frame: Frame
    values: Float[np.ndarray, "n p"]

    def __len__(self) -> int:
        return len(self.values)

    def split(
        self, targets: Sequence[str]
    ) -> tuple[Float[np.ndarray, "n p"], Float[np.ndarray, "n k"]]:
        """Return the features, which are all other columns, and the targets in the order asked for."""
        names = self.frame.names
        asked = [names.index(self.frame[name].name) for name in targets]
        if len(set(targets)) < len(targets):
            raise UserError(
                f"The targets {', '.join(targets)} name a column twice; name each column once."
            )
        rest = [j for j in range(len(names)) if j not in asked]
        if not rest:
            raise UserError(
                f"{self.frame.source} has no column left to predict {', '.join(targets)} from."
            )
        return self.values[:, rest], self.values[:, asked]


def read_table(path: str | Path) -> Table:
    """Read a CSV, TSV, Parquet or ARFF file of numbers. What cannot be used is named with its row
    and column.
    """
    frame = read_frame(path)
    for column in frame.columns:
        if not column.numeric:
            raise UserError(
                f"{frame.source}, column {column.name!r} holds texts; all columns must be numbers."
            )
        if column.missing.any():
            row = int(np.argmax(column.missing)) + 1
            raise UserError(
                f"{frame.source}, row {row}, column {column.name!r} has no value; fill it or drop it."
            )
    return Table(frame, np.stack([column.cells for column in frame.columns], axis=1))


def standardized(x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
    """Return each column less its mean, over its standard deviation; a constant column becomes 0.

    >>> standardized(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    x = x - x.mean(axis=0)
    spread = np.sqrt(np.mean(x**2, axis=0))
    return x / np.where(spread > 0, spread, 1.0)


def rescaled(y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Return the targets less their means, over one common number: an l2 loss of them keeps its
    meaning.
    """
    y = y - y.mean(axis=0)
    size = float(np.sqrt(np.mean(y**2)))
    return y / (size or 1.0)
