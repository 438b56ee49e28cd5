"""Named columns of numbers or of texts, with what is missing; and the limits of what is read."""

import difflib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError, printable, require
from ...files.reading import free_memory

UNPACKED = 2**28  # bytes that what is in a packed file may take, or
# times the size of the file, whichever is more: what repeats packs to nothing
EXPANSION = 100


@dataclass(frozen=True)
class Column:
    """One column: numbers with nan where a cell is missing, or texts with None."""

    name: str
    cells: np.ndarray

    @property
    def numeric(self) -> bool:
        return self.cells.dtype.kind == "f"

    @property
    def missing(self) -> np.ndarray:
        if self.numeric:
            return np.isnan(self.cells)
        return np.array([cell is None for cell in self.cells], bool)

    def first(self) -> str:
        """Quote the first filled cell, with its row."""
        row = int(np.argmin(self.missing))
        return f"{self.cells[row]!r} in row {row + 1}"

    def as_texts(self) -> "Column":
        """Return the column with its numbers as texts: 7 as '7', and 7.5 as '7.5'."""
        if not self.numeric:
            return self
        texts = [None if np.isnan(x) else written(float(x)) for x in self.cells]
        return Column(self.name, np.array(texts, object))


@dataclass(frozen=True)
class Frame:
    """The columns of a file in their order."""

    source: str
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0].cells)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        near = nearest(name, self.names)
        raise UserError(f"{self.source} has no column {name!r}{near}")

    def rows(self, index: np.ndarray) -> "Frame":
        """Return some of the rows."""
        return Frame(
            self.source,
            tuple(Column(each.name, each.cells[index]) for each in self.columns),
        )


def written(x: float) -> str:
    """Return the shortest text that is the number, a whole one without its point.

    >>> written(7.0), written(7.5), written(1e300)
    ('7', '7.5', '1e+300')
    """
    return repr(x).removesuffix(".0")


def nearest(name: str, names: Sequence[str]) -> str:
    """End a sentence on a name that is not there: with a name like it, or with all of them."""
    near = difflib.get_close_matches(name, names, 1, 0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; it has {printable(', '.join(names[:20]))}."


def objects(texts: Any) -> np.ndarray:
    """Return Python's texts of an Arrow array, one object for all cells that are the same."""
    coded = texts.dictionary_encode()
    levels = np.array([*coded.dictionary.to_pylist(), None], object)
    return levels[host(coded.indices.fill_null(len(levels) - 1))]


def host(array: Any) -> np.ndarray:
    """Return an Arrow array as NumPy's."""
    return array.to_numpy(zero_copy_only=False)


def pyarrow(module: str = "pyarrow") -> Any:
    """Import Arrow, or a module of it, or say what to install."""
    return require(module, "experiments")


def size_of(file: BufferedIOBase) -> int:
    """Return the number of bytes of a file, from its start."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


def check_fits(path: Path, needed: int) -> None:
    """Raise a sentence where so many bytes would not fit into memory."""
    there = free_memory()
    if needed > there:
        raise UserError(
            f"{path} needs about {needed / 2**30:.1f} GiB of memory to be read, and {there / 2**30:.1f} GiB are free; "
            "give a part of its rows, or more memory."
        )


def check_unpacked(path: Path, size: int, unpacked: int) -> None:
    """Refuse what is small as a file of `size` bytes and huge as columns."""
    if unpacked > max(UNPACKED, EXPANSION * size):
        raise UserError(
            f"{path} unpacks from {size / 2**20:.1f} to {unpacked / 2**20:.0f} MiB; more than {UNPACKED >> 20} MiB and "
            f"{EXPANSION} times its size is not read: give a part of its rows."
        )
