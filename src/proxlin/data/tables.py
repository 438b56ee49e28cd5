"""Tables of numbers in text files: one header line of names, then one line for each sample.

    name_1, ..., name_p        ->   values (n, p), or a sentence with file, line and column

The separator is a comma, a semicolon or a tab, whichever the header has most of.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..errors import UserError

SEPARATORS = ",;\t"


@dataclass(frozen=True)
class Table:
    """Named columns of numbers, and the file they came from."""

    source: str
    names: tuple[str, ...]
    values: Float[np.ndarray, "n p"]

    def __len__(self) -> int:
        return len(self.values)

    def split(self, targets: Sequence[str]) -> tuple[Float[np.ndarray, "n p"], Float[np.ndarray, "n k"]]:
        """The features, which are all other columns, and the targets in the order asked for."""
        for name in targets:
            if name not in self.names:
                raise UserError(f"{self.source} has no column {name!r}; it has {', '.join(self.names)}.")
        if len(set(targets)) < len(targets):
            raise UserError(f"--target names {', '.join(targets)}: each column once.")
        rest = [j for j, name in enumerate(self.names) if name not in targets]
        if not rest:
            raise UserError(f"{self.source} has no column left to predict {', '.join(targets)} from.")
        return self.values[:, rest], self.values[:, [self.names.index(name) for name in targets]]


def read_table(path: str | Path) -> Table:
    """A CSV or TSV file of numbers. What cannot be used is named with its line and column."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8.") from error
    lines = text.splitlines()
    if not lines or not lines[0].strip():
        raise UserError(f"{path} has no header line with the names of its columns.")
    separator = max(SEPARATORS, key=lines[0].count)
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    try:
        names = tuple(name.strip() for name in next(reader))
        _check_names(path, names)
        rows = [_numbers(path, reader.line_num, names, row) for row in reader if row]
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}.") from error
    if not rows:
        raise UserError(f"{path} has a header and no samples.")
    return Table(str(path), names, np.asarray(rows))


def standardized(x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
    """Each column less its mean, over its standard deviation; a constant column becomes 0.

    >>> standardized(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    x = x - x.mean(axis=0)
    spread = np.sqrt(np.mean(x**2, axis=0))
    return x / np.where(spread > 0, spread, 1.0)


def rescaled(y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """The targets less their means, over one common number: an l2 loss of them keeps its meaning."""
    y = y - y.mean(axis=0)
    return y / (float(np.sqrt(np.mean(y**2))) or 1.0)


def _check_names(path: Path, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path}, line 1: there are two columns named {twice!r}.")
    if all(_number(name) is not None for name in names):
        raise UserError(f"{path}, line 1: the first line holds numbers; it has to hold the names of the columns.")


def _numbers(path: Path, line: int, names: Sequence[str], row: Sequence[str]) -> list[float]:
    if len(row) != len(names):
        raise UserError(f"{path}, line {line}: {len(row)} values for {len(names)} columns.")
    values = [_number(text) for text in row]
    for name, text, value in zip(names, row, values, strict=True):
        if value is None:
            raise UserError(f"{path}, line {line}, column {name!r}: {text.strip()!r} is not a finite number.")
    return [value for value in values if value is not None]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
