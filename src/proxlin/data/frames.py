"""Tables with names: CSV, TSV, Parquet and ARFF files as columns of numbers or of texts, with what is missing.

A column is numeric if over half of its filled cells are numbers, and then any other cell is an error; else it is text.
"""

import csv
import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, require

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
SEPARATORS = ",;\t|"
MEMORY = 5  # bytes that a byte of a text file takes while it is read (4.1 measured on ten million short rows)
LARGEST = 1e150  # absolute value of a number: squares of larger ones overflow
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_ATTRIBUTE = re.compile(r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))\s+(.+)""", re.IGNORECASE)


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
        return np.isnan(self.cells) if self.numeric else np.array([cell is None for cell in self.cells], bool)


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
        raise UserError(f"{self.source} has no column {name!r}{_nearest(name, self.names)}")

    def rows(self, index: np.ndarray) -> "Frame":
        return Frame(self.source, tuple(Column(each.name, each.cells[index]) for each in self.columns))


def read_frame(path: str | Path) -> Frame:
    """The file as columns. What cannot be used is one sentence with the file, row and column."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file.")
    readers = {".parquet": _parquet, ".pq": _parquet, ".arff": _arff}
    frame = readers.get(path.suffix.lower(), _text)(path)
    if len(set(frame.names)) < len(frame.names):
        twice = next(name for name in frame.names if frame.names.count(name) > 1)
        raise UserError(f"{path}: there are two columns named {twice!r}.")
    if not len(frame):
        raise UserError(f"{path} has a header and no rows.")
    for column in frame.columns:
        _check_size(path, column)
    return frame


def _check_size(path: Path, column: Column) -> None:
    wrong = np.abs(column.cells) > LARGEST if column.numeric else np.zeros(0, bool)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UserError(
            f"{path}, row {row + 1}, column {column.name!r}: {column.cells[row]:g} is too large; squares of numbers "
            f"above {LARGEST:g} overflow."
        )


def column_of(source: str, name: str, texts: Any) -> Column:
    """A column of texts (an Arrow array, null where missing) as numbers or texts by the rule above."""
    compute = require("pyarrow.compute", "experiments")
    good = compute.match_substring_regex(texts, NUMBER)
    filled = len(texts) - texts.null_count
    if filled and 2 * (compute.sum(good).as_py() or 0) <= filled:
        return Column(name, _objects(texts))
    wrong = np.flatnonzero(~good.fill_null(True).to_numpy(zero_copy_only=False))
    numbers = np.full(len(texts), np.nan) if wrong.size else _floats(texts)
    wrong = wrong if wrong.size else np.flatnonzero(np.isinf(numbers))  # 1e999
    if wrong.size:
        raise UserError(
            f"{source}, row {wrong[0] + 1}, column {name!r}: {texts[int(wrong[0])].as_py()!r} is not a finite number, "
            "as the other cells are."
        )
    return Column(name, numbers)


def _floats(texts: Any) -> np.ndarray:
    numbers = texts.cast(require("pyarrow", "experiments").float64())
    return np.array(numbers.to_numpy(zero_copy_only=False), np.float64)


def _objects(texts: Any) -> np.ndarray:
    """Python's texts, one object for all cells that are the same."""
    coded = texts.dictionary_encode()
    levels = np.array([*coded.dictionary.to_pylist(), None], object)
    return levels[coded.indices.fill_null(len(levels) - 1).to_numpy(zero_copy_only=False)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _text(path: Path) -> Frame:
    """A CSV or TSV file, the separator being that which the header has most of."""
    _fits(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8.") from error
    if not header.strip():
        raise UserError(f"{path} has no header line with the names of its columns.")
    separator = "\t" if path.suffix.lower() == ".tsv" else max(SEPARATORS, key=header.count)
    names = [name.strip() for name in next(csv.reader([header], delimiter=separator, skipinitialspace=True))]
    if all(not np.isnan(_number(name)) for name in names):
        raise UserError(f"{path}: its first line holds numbers; it has to hold the names of the columns.")
    columns = _csv(path, path, separator, len(names), skip=1)
    named = [name or f"column {j + 1}" for j, name in enumerate(names)]  # R writes row numbers without a name
    return Frame(str(path), tuple(column_of(str(path), *each) for each in zip(named, columns, strict=True)))


def _csv(path: Path, source: Any, separator: str, count: int, skip: int, quote: str = '"') -> list[Any]:
    """The columns as Arrow arrays of texts, null where missing."""
    arrow, reader = require("pyarrow", "experiments"), require("pyarrow.csv", "experiments")
    names = [str(j) for j in range(count)]
    try:
        table = reader.read_csv(
            source,
            reader.ReadOptions(column_names=names, skip_rows=skip),
            reader.ParseOptions(delimiter=separator, quote_char=quote, newlines_in_values=True),
            reader.ConvertOptions(
                column_types=dict.fromkeys(names, arrow.string()), null_values=MISSING, strings_can_be_null=True
            ),
        )
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {_first_line(error)}.") from error
    trim = require("pyarrow.compute", "experiments").utf8_trim_whitespace
    empty = arrow.array([], arrow.string())
    return [arrow.concat_arrays([empty, *trim(column).chunks]) for column in table.columns]


def _parquet(path: Path) -> Frame:
    arrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    try:
        about = parquet.read_metadata(path)
        _fits(path, sum(about.row_group(j).total_byte_size for j in range(about.num_row_groups)))  # not compressed
        table = parquet.read_table(path)
        names = table.column_names
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a Parquet file ({_first_line(error)}).") from error
    return Frame(str(path), tuple(_typed(path, name, cells) for name, cells in zip(names, table.columns, strict=True)))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _typed(path: Path, name: str, cells: Any) -> Column:
    """A column that has a type of its own."""
    arrow = require("pyarrow", "experiments")
    kind = cells.type
    if arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind):
        numbers = cells.cast(arrow.float64() if not arrow.types.is_boolean(kind) else arrow.int8()).to_numpy()
        return Column(name, np.where(np.isinf(numbers), np.nan, numbers).astype(np.float64))
    if arrow.types.is_dictionary(kind):
        cells = cells.cast(kind.value_type)
    try:
        return Column(name, _objects(arrow.concat_arrays(cells.cast(arrow.string()).chunks)))
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, UnicodeDecodeError) as error:
        raise UserError(f"{path}, column {name!r}: a column of the type {kind} cannot be used.") from error


def _arff(path: Path) -> Frame:
    """@attribute lines, then @data; nominal and string attributes are texts, the others numbers."""
    _fits(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8.") from error
    head, _, body = (*re.split(r"(?im)^[ \t]*(@data)[ \t]*$", text, maxsplit=1), "", "")[:3]
    names, kinds = zip(*_attributes(path, head), strict=True)
    lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("%")]
    if not lines:
        raise UserError(f"{path} has no rows after @data.")
    if lines[0].lstrip().startswith("{"):
        raise UserError(f"{path} is a sparse ARFF file, which is not read; write it as a dense one.")
    arrow = require("pyarrow", "experiments")
    quote = "'" if "'" in body else '"'
    columns = _csv(path, arrow.BufferReader("\n".join(lines).encode()), ",", len(names), skip=0, quote=quote)
    return Frame(str(path), tuple(_declared(path, *each) for each in zip(names, kinds, columns, strict=True)))


def _attributes(path: Path, head: str) -> Iterator[tuple[str, str]]:
    found = [_ATTRIBUTE.match(line.strip()) for line in head.splitlines() if line.strip().lower().startswith("@attr")]
    if not found or None in found:
        raise UserError(f"{path} is not an ARFF file: it has no @attribute lines that can be read.")
    for match in found:
        assert match is not None
        yield next(name for name in match.groups()[:3] if name is not None), match.group(4).strip()


def _declared(path: Path, name: str, kind: str, texts: Any) -> Column:
    if kind.startswith("{") or kind.lower().startswith(("string", "date")):
        return Column(name, _objects(texts))
    return column_of(str(path), name, texts)


def _fits(path: Path, size: int | None = None) -> None:
    """A sentence where the file would not fit into memory."""
    needed = MEMORY * (path.stat().st_size if size is None else size)
    there = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise UserError(
            f"{path} needs about {needed / 2**30:.1f} GiB of memory to be read, and {there / 2**30:.1f} GiB are free; "
            "give a part of its rows, or more memory."
        )


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(names[:20])}."
