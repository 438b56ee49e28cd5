"""Tables with names: CSV, TSV, Excel, Parquet, Arrow and ARFF files as columns of numbers or of
texts, with what is missing.

A column is numeric if over half of its filled cells are numbers, and then any other cell is an
error; else it is text. `formats` has a file for each kind.
"""

import io
import math
from collections.abc import Callable, Collection, Mapping
from io import BufferedIOBase
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..files.reading import check_readable, is_open_pipe, read_pipe, reason
from ..inputs import is_missing
from .formats.arrow import read_arrow, read_parquet
from .formats.columns import Column, Frame
from .formats.excel import read_excel
from .formats.numerals import NeedsArgument, Numerals, Reading
from .formats.texts import MEMORY, read_arff, read_text, unpacked

__all__ = ["Column", "Frame", "NeedsArgument", "as_frame", "read_frame"]

Reader = Callable[[Path, BufferedIOBase, Reading], Frame]
LARGEST = 1e150  # absolute value of a number: squares of larger ones overflow
# by the suffix; all else is text
READERS: dict[str, Reader] = {
    ".parquet": read_parquet,
    ".pq": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".ipc": read_arrow,
    ".xlsx": read_excel,
    ".xlsm": read_excel,
    ".arff": read_arff,
}
PACKED = b"\x1f\x8b"  # by gzip
# by the first bytes of a pipe; all else is text
BEGINNINGS: dict[bytes, Reader] = {
    b"PAR1": read_parquet,
    b"ARROW1": read_arrow,
    b"PK": read_excel,
}
# not read, and what to save them as
FOREIGN = {
    ".xls": ".xlsx",
    ".xlsb": ".xlsx",
    ".ods": ".xlsx",
    ".json": "CSV",
    ".rds": "CSV",
    ".dta": "CSV",
    ".sav": "CSV",
    ".pkl": "Parquet",
}


def read_frame(
    path: str | Path,
    decimal: str = ".",
    thousands: str | None = None,
    sheet: str | int | None = None,
    categories: Collection[str] = (),
) -> Frame:
    """Read the file as columns. What cannot be used is one sentence with the file, row and column.

    `decimal` ("." or ",") and `thousands` (",", ".", " ", "'") say how numbers are written in texts;
    `sheet` is the name or the number, from 1, of a sheet of a workbook; `categories` are columns to
    be taken as texts, such as postal codes. Whole numbers above 2^53 are rounded to the nearest
    float64, in every format. A pipe, /dev/stdin say, may hold any of them but ARFF.
    """
    path = Path(path)
    reading = Reading(Numerals(decimal, thousands), sheet, frozenset(categories))
    try:
        frame = _read(path, reading)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({reason(error)}).") from error
    if not len(frame):
        raise UserError(f"{path} has a header and no rows.")
    return check_frame(path, frame, reading.categories)


def check_frame(path: Path, frame: Frame, categories: Collection[str]) -> Frame:
    """Return the table with `categories` as texts, or raise a sentence where it cannot be used."""
    if len(set(frame.names)) < len(frame.names):
        twice = next(name for name in frame.names if frame.names.count(name) > 1)
        raise UserError(f"{path}: there are two columns named {twice!r}.")
    for name in categories:
        frame[name]  # it is there, or a sentence says so
    columns = [
        column.as_texts() if column.name in categories else column
        for column in frame.columns
    ]
    for column in columns:
        _check_size(path, column)
    return Frame(frame.source, tuple(columns))


def as_frame(table: Any, categories: Collection[str] = ()) -> Frame:
    """Return the columns of a path, of a frame of pandas, polars or Arrow, or of a dict of columns.

    Numbers and truth values are numeric, all else is text; what is missing stays missing.

    >>> as_frame({"x": [1, 2], "city": ["a", None]})["city"].missing.tolist()
    [False, True]
    """
    if isinstance(table, Frame):
        return table
    if isinstance(table, str | Path):
        return read_frame(table, categories=categories)
    columns = []
    for name, cells in _named_cells(table):
        column = Column(name, _cells(name, cells))
        if name in categories:
            column = column.as_texts()
        columns.append(column)
    frame = Frame("the table", tuple(columns))
    for name in categories:
        frame[name]  # it is there, or a sentence says so
    if not columns or not len(frame):
        raise UserError("The table has no rows.")
    if len(set(frame.names)) < len(columns):
        twice = next(name for name in frame.names if frame.names.count(name) > 1)
        raise UserError(f"The table has two columns named {twice!r}.")
    for column in columns:
        if len(column.cells) != len(frame):
            raise UserError(
                f"The columns of the table differ in length: {columns[0].name!r} has {len(frame)} cells and "
                f"{column.name!r} has {len(column.cells)}."
            )
        _check_size(Path("the table"), column)
    return frame


def _named_cells(table: Any) -> list[tuple[str, Any]]:
    """Return the names and cells of a table's columns."""
    if isinstance(table, Mapping):
        return [(str(name), cells) for name, cells in table.items()]
    names = getattr(table, "column_names", None)
    if names is None:
        names = getattr(table, "columns", None)
    if names is None:
        raise UserError(
            "A table is a path, a frame of pandas, polars or Arrow, or a dict of columns; it is "
            f"{type(table).__name__}."
        )
    # by place, as two columns may have one name
    if getattr(table, "iloc", None) is not None:
        return [(str(name), table.iloc[:, j]) for j, name in enumerate(names)]
    return [(str(name), table[name]) for name in names]


def _cells(name: str, given: Any) -> np.ndarray:
    """Return the cells of a column: float64 with nan, or texts with None."""
    kind = str(getattr(given, "dtype", ""))
    values = np.asarray(given)
    if values.ndim != 1:
        raise UserError(
            f"A column of the table has cells of the shape {values.shape[1:]}; each cell must be one number or text."
        )
    named = kind.lower().startswith(("category", "categorical", "enum"))
    if values.dtype.kind in "biuf" and not named:
        return values.astype(np.float64)
    missing = np.array([is_missing(cell) for cell in values], bool)
    filled = values[~missing]
    if not named and all(isinstance(cell, Number) for cell in filled):
        if any(isinstance(cell, complex | np.complexfloating) for cell in filled):
            raise UserError(
                f"The column {name!r} of the table holds complex numbers; give their real and imaginary parts as two "
                f"columns."
            )
        numbers = np.full(len(values), np.nan)
        numbers[~missing] = [_float(cell) for cell in filled]
        return numbers
    texts = [
        None if gone else str(cell) for cell, gone in zip(values, missing, strict=True)
    ]
    return np.array(texts, object)


def _float(cell: Any) -> float:
    """Return a number as a float, which for 10^400 is infinity."""
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def _read(path: Path, reading: Reading) -> Frame:
    """Read a file by its suffix, and a pipe by its first bytes."""
    if is_open_pipe(path):
        content = read_pipe(path, MEMORY)
        file: BufferedIOBase = io.BytesIO(content)
        if content.startswith(PACKED):
            file = unpacked(path, file)
            content = file.read()
            file.seek(0)
        read = next(
            (each for first, each in BEGINNINGS.items() if content.startswith(first)),
            read_text,
        )
        return _checked(read, path, file, reading)
    check_readable(path)
    with path.open("rb") as file:
        suffix = path.suffix.lower()
        if suffix == ".gz":
            suffix = Path(path.stem).suffix.lower()
            file = unpacked(path, file)
        if suffix in FOREIGN:
            raise UserError(
                f"{path}: {suffix} files are not read; save it as {FOREIGN[suffix]}."
            )
        return _checked(READERS.get(suffix, read_text), path, file, reading)


def _checked(read: Reader, path: Path, file: BufferedIOBase, reading: Reading) -> Frame:
    if reading.sheet is not None and read is not read_excel:
        raise UserError(
            f"{path} is no workbook, so it has no sheet {str(reading.sheet)!r}."
        )
    return read(path, file, reading)


def _check_size(path: Path, column: Column) -> None:
    """Raise a sentence where a number of the column is larger than LARGEST."""
    if not column.numeric:
        return
    wrong = np.abs(column.cells) > LARGEST
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UserError(
            f"{path}, row {row + 1}, column {column.name!r}: {column.cells[row]:g} is too large; squares of numbers "
            f"above {LARGEST:g} overflow."
        )
