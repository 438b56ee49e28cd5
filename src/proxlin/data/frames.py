"""Tables with names: CSV, TSV, Excel, Parquet, Arrow and ARFF files as columns of numbers or of
texts, with what is missing.

A column is numeric if over half of its filled cells are numbers, and then any other cell is an
error; else it is text. `formats` has a file for each kind.
"""

import io
from collections.abc import Callable, Collection
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..files.reading import check_readable, is_open_pipe, read_pipe, reason
from .formats.arrow import read_arrow, read_parquet
from .formats.columns import Column, Frame
from .formats.excel import read_excel
from .formats.numerals import NeedsArgument, Numerals, Reading
from .formats.texts import MEMORY, read_arff, read_text, unpacked

__all__ = ["Column", "Frame", "NeedsArgument", "read_frame"]

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
    if len(set(frame.names)) < len(frame.names):
        twice = next(name for name in frame.names if frame.names.count(name) > 1)
        raise UserError(f"{path}: there are two columns named {twice!r}.")
    if not len(frame):
        raise UserError(f"{path} has a header and no rows.")
    for name in categories:
        frame[name]  # it is there, or a sentence says so
    columns = [
        column.as_texts() if column.name in reading.categories else column
        for column in frame.columns
    ]
    for column in columns:
        _check_size(path, column)
    return Frame(frame.source, tuple(columns))


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
