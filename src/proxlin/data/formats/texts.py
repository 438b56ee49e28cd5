"""CSV, TSV and ARFF files, and what gzip packed."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...files.reading import free_memory, reason
from .columns import Column, Frame, check_fits, objects, pyarrow, size_of
from .numerals import Reading, column_of

MISSING = (
    "",
    "?",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "<NA>",
    "NaN",
    "nan",
    "null",
    "NULL",
    "None",
)
SEPARATORS = ",;\t|"
# bytes that a byte of a text file takes while it is read (4.1 measured on ten million short rows)
MEMORY = 5
HEADER = 2**26  # bytes of a header line
CHUNK = 2**20  # bytes that are unpacked at a time
_ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))\s+(.+)""", re.IGNORECASE
)


def read_text(path: Path, file: BufferedIOBase, reading: Reading) -> Frame:
    """Read a CSV or TSV file, the separator being that which the header has most of."""
    check_fits(path, MEMORY * size_of(file))
    header = _header(path, file)
    if not header.strip():
        raise UserError(f"{path} has no header line with the names of its columns.")
    separator = max(SEPARATORS, key=header.count)
    if ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]:
        separator = "\t"
    try:
        cells = next(csv.reader([header], delimiter=separator, skipinitialspace=True))
    except csv.Error as error:
        raise UserError(f"{path}, the header line: {reason(error)}.") from error
    names = named(str(path), [cell.strip() for cell in cells])
    columns = _csv(path, file, separator, len(names), skip=1)
    pairs = zip(names, columns, strict=True)
    return Frame(
        str(path),
        tuple(column_of(str(path), name, texts, reading) for name, texts in pairs),
    )


def named(source: str, names: list[str]) -> list[str]:
    """Return the names of a header, `column 3` for one that is empty: R writes row numbers without
    a name.
    """
    if all(map(_is_number, names)):
        raise UserError(
            f"{source}: its first line holds numbers; it has to hold the names of the columns."
        )
    return [name or f"column {j}" for j, name in enumerate(names, 1)]


def _is_number(text: str) -> bool:
    try:
        return not np.isnan(float(text))
    except ValueError:
        return False


def _header(path: Path, file: BufferedIOBase) -> str:
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
    arrow = pyarrow()
    reader = pyarrow("pyarrow.csv")
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
    trim = pyarrow("pyarrow.compute").utf8_trim_whitespace
    empty = arrow.array([], arrow.string())
    return [
        arrow.concat_arrays([empty, *trim(column).chunks]) for column in table.columns
    ]


def read_arff(path: Path, file: BufferedIOBase, reading: Reading) -> Frame:
    """Read @attribute lines, then @data; nominal and string attributes are texts, the others
    numbers.
    """
    check_fits(path, MEMORY * size_of(file))
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
    rows = pyarrow().BufferReader("\n".join(lines).encode())
    columns = _csv(path, rows, ",", len(names), skip=0, quote=quote)
    parts = zip(names, kinds, columns, strict=True)
    return Frame(str(path), tuple(_declared(path, *each, reading) for each in parts))


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


def _declared(path: Path, name: str, kind: str, texts: Any, reading: Reading) -> Column:
    if kind.startswith("{") or kind.lower().startswith(("string", "date")):
        return Column(name, objects(texts))
    return column_of(str(path), name, texts, reading)


def unpacked(path: Path, file: BufferedIOBase) -> BufferedIOBase:
    """Return what gzip packed; a UserError where it would not fit into memory, or is damaged."""
    free = free_memory()
    content = bytearray()
    try:
        with gzip.open(file) as packed:
            while chunk := packed.read(CHUNK):
                content += chunk
                if MEMORY * len(content) > free:
                    raise UserError(
                        f"{path} unpacks to more than the {free / 2**30:.1f} GiB of free memory can hold."
                    )
    except (EOFError, zlib.error, OSError) as error:
        raise UserError(f"{path} cannot be unpacked ({reason(error)}).") from error
    if not content:
        raise UserError(f"{path} is empty.")
    return io.BytesIO(bytes(content))
