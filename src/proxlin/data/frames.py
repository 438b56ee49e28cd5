"""Tables with names: CSV, TSV, Parquet and ARFF files as columns of numbers or of texts, with what
is missing.

A column is numeric if over half of its filled cells are numbers, and then any other cell is an
error; else it is text.
"""

import csv
import difflib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import UserError, require
from ..files.reading import check_readable, free_memory, is_open_pipe, read_pipe, reason

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
SEPARATORS = ",;\t|"
# bytes that a byte of a text file takes while it is read (4.1 measured on ten million short rows)
MEMORY = 5
HEADER = 2**26  # bytes of a header line
UNPACKED = 2**28  # bytes that the columns of a Parquet file may take, or
# times the size of the file, whichever is more: what repeats packs to nothing
EXPANSION = 100
LARGEST = 1e150  # absolute value of a number: squares of larger ones overflow
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))\s+(.+)""", re.IGNORECASE
)


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
        raise UserError(
            f"{self.source} has no column {name!r}{_nearest(name, self.names)}"
        )

    def rows(self, index: np.ndarray) -> "Frame":
        """Return some of the rows."""
        return Frame(
            self.source,
            tuple(Column(each.name, each.cells[index]) for each in self.columns),
        )


def read_frame(path: str | Path) -> Frame:
    """Read the file as columns. What cannot be used is one sentence with the file, row and column.

    Whole numbers above 2^53 are rounded to the nearest float64, in every format. A pipe, /dev/stdin
    say, may hold a CSV or a Parquet file.
    """
    path = Path(path)
    try:
        frame = _read(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({reason(error)}).") from error
    if len(set(frame.names)) < len(frame.names):
        twice = next(name for name in frame.names if frame.names.count(name) > 1)
        raise UserError(f"{path}: there are two columns named {twice!r}.")
    if not len(frame):
        raise UserError(f"{path} has a header and no rows.")
    for column in frame.columns:
        _check_size(path, column)
    return frame


def _read(path: Path) -> Frame:
    """Read a file by its suffix, and a pipe by its first bytes."""
    if is_open_pipe(path):
        content = read_pipe(path, MEMORY)
        read = _parquet if content.startswith(b"PAR1") else _text
        return read(path, io.BytesIO(content))
    check_readable(path)
    read = READERS.get(path.suffix.lower(), _text)
    with path.open("rb") as file:
        return read(path, file)


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


def column_of(source: str, name: str, texts: Any) -> Column:
    """Return a column of texts (an Arrow array, null where missing) as numbers or texts by the rule
    above.
    """
    arrow = require("pyarrow", "experiments")
    compute = require("pyarrow.compute", "experiments")
    matches = compute.match_substring_regex(texts, NUMBER)
    filled = len(texts) - texts.null_count
    numbers = compute.sum(matches).as_py() or 0
    if filled and 2 * numbers <= filled:
        return Column(name, _objects(texts))
    good = _numpy(matches.fill_null(True))
    if good.all():
        cells = np.array(_numpy(texts.cast(arrow.float64())), np.float64)
        good = ~np.isinf(cells)  # 1e999 matches, and is none
        if good.all():
            return Column(name, cells)
    row = int(np.argmin(good))
    raise UserError(
        f"{source}, row {row + 1}, column {name!r}: {texts[row].as_py()!r} is not a finite number, "
        f"as the other cells are."
    )


def _objects(texts: Any) -> np.ndarray:
    """Return Python's texts, one object for all cells that are the same."""
    coded = texts.dictionary_encode()
    levels = np.array([*coded.dictionary.to_pylist(), None], object)
    return levels[_numpy(coded.indices.fill_null(len(levels) - 1))]


def _numpy(array: Any) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False)


def _is_number(text: str) -> bool:
    try:
        return not np.isnan(float(text))
    except ValueError:
        return False


def _text(path: Path, file: BinaryIO) -> Frame:
    """Read a CSV or TSV file, the separator being that which the header has most of."""
    _fits(path, MEMORY * _size(file))
    header = _header(path, file)
    if not header.strip():
        raise UserError(f"{path} has no header line with the names of its columns.")
    separator = max(SEPARATORS, key=header.count)
    if path.suffix.lower() == ".tsv":
        separator = "\t"
    try:
        cells = next(csv.reader([header], delimiter=separator, skipinitialspace=True))
    except csv.Error as error:
        raise UserError(f"{path}, the header line: {reason(error)}.") from error
    names = [cell.strip() for cell in cells]
    if all(map(_is_number, names)):
        raise UserError(
            f"{path}: its first line holds numbers; it has to hold the names of the columns."
        )
    columns = _csv(path, file, separator, len(names), skip=1)
    # R writes row numbers without a name
    names = [name or f"column {j}" for j, name in enumerate(names, 1)]
    return Frame(
        str(path),
        tuple(column_of(str(path), *each) for each in zip(names, columns, strict=True)),
    )


def _header(path: Path, file: BinaryIO) -> str:
    """Read the first line of a text, and go back to its start."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")  # type: ignore[arg-type]
    try:
        return text.readline(HEADER)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8.") from error
    finally:
        text.detach()
        file.seek(0)


def _csv(
    path: Path, source: Any, separator: str, count: int, skip: int, quote: str = '"'
) -> list[Any]:
    """Return the columns as Arrow arrays of texts, null where missing."""
    arrow = require("pyarrow", "experiments")
    reader = require("pyarrow.csv", "experiments")
    names = [str(j) for j in range(count)]
    try:
        table = reader.read_csv(
            source,
            reader.ReadOptions(column_names=names, skip_rows=skip),
            reader.ParseOptions(
                delimiter=separator, quote_char=quote, newlines_in_values=True
            ),
            reader.ConvertOptions(
                column_types=dict.fromkeys(names, arrow.string()),
                null_values=MISSING,
                strings_can_be_null=True,
            ),
        )
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {reason(error)}.") from error
    trim = require("pyarrow.compute", "experiments").utf8_trim_whitespace
    empty = arrow.array([], arrow.string())
    return [
        arrow.concat_arrays([empty, *trim(column).chunks]) for column in table.columns
    ]


def _parquet(path: Path, file: BinaryIO) -> Frame:
    """Read a Parquet file, whose columns have types of their own."""
    arrow = require("pyarrow", "experiments")
    parquet = require("pyarrow.parquet", "experiments")
    try:
        about = parquet.ParquetFile(file)
        schema = about.schema_arrow
        _check_unpacked(path, about.metadata, _size(file))
        for field in schema:
            if arrow.types.is_nested(field.type):
                raise UserError(
                    f"{path}, column {field.name!r}: a column of the type {field.type} cannot be used."
                )
        # A text that repeats is kept once, as it is in the file.
        columns = [
            about.metadata.schema.column(j) for j in range(about.metadata.num_columns)
        ]
        repeated = [
            column.path for column in columns if column.physical_type == "BYTE_ARRAY"
        ]
        file.seek(0)
        table = parquet.ParquetFile(file, read_dictionary=repeated).read()
        names = table.column_names
    except (arrow.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise UserError(f"{path} is not a Parquet file ({reason(error)}).") from error
    if not names:
        raise UserError(f"{path} has no columns.")
    pairs = zip(names, table.columns, strict=True)
    return Frame(str(path), tuple(_typed(path, name, cells) for name, cells in pairs))


def _check_unpacked(path: Path, about: Any, size: int) -> None:
    """Refuse what is small as a file and huge as columns, by what the file says of itself before it
    is unpacked.

    bytes = sum over the columns of (8, or the length of a cell if it is fixed and longer) times
    cells + its pages
    """
    unpacked = 0
    widths = [max(8, about.schema.column(j).length) for j in range(about.num_columns)]
    for i in range(about.num_row_groups):
        group = about.row_group(i)
        for j, width in enumerate(widths):
            column = group.column(j)
            unpacked += (
                width * max(column.num_values, group.num_rows)
                + column.total_uncompressed_size
            )
    if unpacked > max(UNPACKED, EXPANSION * size):
        raise UserError(
            f"{path} unpacks from {size / 2**20:.1f} to {unpacked / 2**20:.0f} MiB; more than {UNPACKED >> 20} MiB and "
            f"{EXPANSION} times its size is not read: give a part of its rows."
        )
    # as it is read, as columns, and while one becomes the other
    _fits(path, 3 * unpacked)


def _typed(path: Path, name: str, cells: Any) -> Column:
    """Return a column that has a type of its own."""
    arrow = require("pyarrow", "experiments")
    kind = cells.type
    try:
        if arrow.types.is_dictionary(kind):
            return _coded(path, name, cells.unify_dictionaries().combine_chunks())
        if arrow.types.is_boolean(kind):
            return _numbers(name, cells.cast(arrow.int8()))
        if (
            arrow.types.is_integer(kind)
            or arrow.types.is_floating(kind)
            or arrow.types.is_decimal(kind)
        ):
            # not safe: above 2^53 it rounds
            return _numbers(name, cells.cast(arrow.float64(), safe=False))
        return Column(name, _objects(cells.cast(arrow.string()).combine_chunks()))
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}, column {name!r}: a column of the type {kind} cannot be used."
        ) from error


def _coded(path: Path, name: str, cells: Any) -> Column:
    """Return a column of numbers that point to its different values."""
    arrow = require("pyarrow", "experiments")
    levels = _typed(path, name, arrow.chunked_array([cells.dictionary]))
    missing = np.nan if levels.numeric else None
    values = np.append(levels.cells, np.array([missing], levels.cells.dtype))
    places = cells.indices.cast(arrow.int64()).fill_null(len(levels.cells))
    return Column(name, values[_numpy(places)])


def _numbers(name: str, cells: Any) -> Column:
    """Return a column of numbers, in which those that are infinite count as missing."""
    numbers = cells.to_numpy()
    finite = np.where(np.isinf(numbers), np.nan, numbers)
    return Column(name, finite.astype(np.float64))


def _arff(path: Path, file: BinaryIO) -> Frame:
    """Read @attribute lines, then @data; nominal and string attributes are texts, the others
    numbers.
    """
    _fits(path, MEMORY * _size(file))
    try:
        text = file.read().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8.") from error
    head, *rest = re.split(r"(?im)^[ \t]*@data[ \t]*$", text, maxsplit=1)
    names, kinds = zip(*_attributes(path, head), strict=True)
    body = "".join(rest)
    lines = [
        line
        for line in body.splitlines()
        if line.strip() and not line.lstrip().startswith("%")
    ]
    if not lines:
        raise UserError(f"{path} has no rows after @data.")
    if lines[0].lstrip().startswith("{"):
        raise UserError(
            f"{path} is a sparse ARFF file, which is not read; write it as a dense one."
        )
    quote = "'" if "'" in body else '"'
    rows = require("pyarrow", "experiments").BufferReader("\n".join(lines).encode())
    columns = _csv(path, rows, ",", len(names), skip=0, quote=quote)
    return Frame(
        str(path),
        tuple(
            _declared(path, *each) for each in zip(names, kinds, columns, strict=True)
        ),
    )


def _attributes(path: Path, head: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the kind of each attribute."""
    lines = [line.strip() for line in head.splitlines()]
    found = [
        _ATTRIBUTE.match(line) for line in lines if line.lower().startswith("@attr")
    ]
    if not found or None in found:
        raise UserError(
            f"{path} is not an ARFF file: it has no @attribute lines that can be read."
        )
    for match in found:
        assert match is not None
        *names, kind = match.groups()
        yield next(name for name in names if name is not None), kind.strip()


def _declared(path: Path, name: str, kind: str, texts: Any) -> Column:
    if kind.startswith("{") or kind.lower().startswith(("string", "date")):
        return Column(name, _objects(texts))
    return column_of(str(path), name, texts)


def _size(file: BinaryIO) -> int:
    """Return the number of bytes of a file, from its start."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


def _fits(path: Path, needed: int) -> None:
    """Raise a sentence where so many bytes would not fit into memory."""
    there = free_memory()
    if needed > there:
        raise UserError(
            f"{path} needs about {needed / 2**30:.1f} GiB of memory to be read, and {there / 2**30:.1f} GiB are free; "
            "give a part of its rows, or more memory."
        )


def _nearest(name: str, names: Sequence[str]) -> str:
    """End a sentence on a column that is not there: with a name like it, or with all of them."""
    near = difflib.get_close_matches(name, names, 1, 0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; it has {', '.join(names[:20])}."


# by the suffix; all else is text
READERS = {".parquet": _parquet, ".pq": _parquet, ".arff": _arff}
