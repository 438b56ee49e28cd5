"""Parquet, Arrow and Feather files: their columns have types of their own, and those that are texts
stay texts.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...files.reading import reason
from .columns import (
    Column,
    Frame,
    check_fits,
    check_unpacked,
    host,
    objects,
    pyarrow,
    size_of,
)
from .numerals import Reading

MAGIC = b"ARROW1\0\0"  # before the messages of a file; a stream begins with them
FIRST_FEATHER = b"FEA1"  # of the first version of Feather, which is no Arrow
ROW = 8  # bytes that a cell takes as a number
UNREAD = (OSError, UnicodeDecodeError, OverflowError, struct.error, MemoryError)


def read_parquet(path: Path, file: BufferedIOBase, reading: Reading) -> Frame:
    """Read a Parquet file."""
    arrow = pyarrow()
    parquet = pyarrow("pyarrow.parquet")
    try:
        about = parquet.ParquetFile(file)
        size = size_of(file)
        unpacked = parquet_bytes(about.metadata)
        check_unpacked(path, size, unpacked)
        # as it is read, as columns, and while one becomes the other
        check_fits(path, 3 * unpacked)
        check_types(path, about.schema_arrow)
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
    except (arrow.ArrowException, *UNREAD) as error:
        raise UserError(f"{path} is not a Parquet file ({reason(error)}).") from error
    return frame_of(path, names, table.columns)


def read_arrow(path: Path, file: BufferedIOBase, reading: Reading) -> Frame:
    """Read an Arrow file or stream, or a Feather file, which is an Arrow file.

    A file is a stream between two marks. It is read as a stream, so that its footer, which may point
    anywhere, is not believed.
    """
    arrow = pyarrow()
    ipc = pyarrow("pyarrow.ipc")
    first = file.read(len(MAGIC))
    if first.startswith(FIRST_FEATHER):
        raise UserError(
            f"{path} is of the first version of Feather, which is not read; write it again, as Parquet or Feather 2."
        )
    start = len(MAGIC) if first == MAGIC else 0
    try:
        size = size_of(file)
        file.seek(start)
        unpacked = sum(map(_message_bytes, _messages(ipc, file)))
        check_unpacked(path, size, unpacked)
        check_fits(path, 3 * unpacked)
        file.seek(start)
        stream = ipc.open_stream(file)
        check_types(path, stream.schema)
        table = stream.read_all()
        # Offsets of texts that lead out of their buffer would be followed.
        table.validate(full=True)
        names = table.column_names
    except (arrow.ArrowException, *UNREAD) as error:
        raise UserError(
            f"{path} is not an Arrow or Feather file, or it is damaged ({reason(error)})."
        ) from error
    return frame_of(path, names, table.columns)


def frame_of(path: Path, names: list[str], columns: list[Any]) -> Frame:
    if not names:
        raise UserError(f"{path} has no columns.")
    pairs = zip(names, columns, strict=True)
    return Frame(str(path), tuple(_typed(path, name, cells) for name, cells in pairs))


def check_types(path: Path, schema: Any) -> None:
    """Refuse a column of lists or records by its type, before it is read."""
    for field in schema:
        if pyarrow().types.is_nested(field.type):
            raise UserError(
                f"{path}, column {field.name!r}: a column of the type {field.type} cannot be used."
            )


def parquet_bytes(about: Any) -> int:
    """Return what the columns of a Parquet file take, by what the file says of itself before it is
    unpacked.

    bytes = sum over the columns of (8, or the length of a cell if it is fixed and longer) times
    cells + its pages
    """
    unpacked = 0
    widths = [max(ROW, about.schema.column(j).length) for j in range(about.num_columns)]
    for i in range(about.num_row_groups):
        group = about.row_group(i)
        for j, width in enumerate(widths):
            column = group.column(j)
            unpacked += (
                width * max(column.num_values, group.num_rows)
                + column.total_uncompressed_size
            )
    return unpacked


def _messages(ipc: Any, file: BufferedIOBase) -> Iterator[Any]:
    """Yield the messages of a stream, as they are packed."""
    reader = ipc.MessageReader.open_stream(file)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _message_bytes(message: Any) -> int:
    """Return what a message takes when it is unpacked: a packed buffer begins with its size, and the
    head of the message says where the buffers are.
    """
    if message.type not in ("record batch", "dictionary"):
        return 0
    body = memoryview(message.body)
    batch = _Table(memoryview(message.metadata), 0).table(HEADER)
    if message.type == "dictionary":
        batch = batch.table(DICTIONARY)
    total = ROW * max(batch.number(ROWS), 0)
    packed = batch.place(COMPRESSION) is not None
    for offset, length in batch.pairs(BUFFERS):
        total += max(length, 0)
        if packed and length >= 8:
            total += max(struct.unpack_from("<q", body, offset)[0], 0)
    return total


# The numbers of the fields in Arrow's format: of a message, of a dictionary, of a batch.
HEADER = 2
DICTIONARY = 1
ROWS = 0
BUFFERS = 2
COMPRESSION = 3


@dataclass(frozen=True)
class _Table:
    """A table of a flatbuffer: `link` points to it, and it begins with the distance back to the list
    of where its fields are.
    """

    content: memoryview
    link: int

    def place(self, field: int) -> int | None:
        """Return where a field is; None where the table has none."""
        at = self.link + self._read("<I", self.link)
        fields = at - self._read("<i", at)
        slot = 4 + 2 * field
        if slot >= self._read("<H", fields):
            return None
        offset = self._read("<H", fields + slot)
        return at + offset if offset else None

    def table(self, field: int) -> "_Table":
        """Return the table of a field."""
        place = self.place(field)
        if place is None:
            raise struct.error("a message has no content")
        return _Table(self.content, place)

    def number(self, field: int) -> int:
        """Return the whole number of a field, 0 where it is left out."""
        place = self.place(field)
        if place is None:
            return 0
        return self._read("<q", place)

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of whole numbers of a field."""
        place = self.place(field)
        if place is None:
            return
        start = place + self._read("<I", place)
        for j in range(self._read("<I", start)):
            yield struct.unpack_from("<qq", self.content, start + 4 + 16 * j)

    def _read(self, form: str, place: int) -> int:
        (found,) = struct.unpack_from(form, self.content, place)
        return found


def _typed(path: Path, name: str, cells: Any) -> Column:
    """Return a column that has a type of its own."""
    arrow = pyarrow()
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
        return Column(name, objects(cells.cast(arrow.string()).combine_chunks()))
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}, column {name!r}: a column of the type {kind} cannot be used."
        ) from error


def _coded(path: Path, name: str, cells: Any) -> Column:
    """Return a column of numbers that point to its different values."""
    arrow = pyarrow()
    levels = _typed(path, name, arrow.chunked_array([cells.dictionary]))
    missing = np.nan if levels.numeric else None
    values = np.append(levels.cells, np.array([missing], levels.cells.dtype))
    places = cells.indices.cast(arrow.int64()).fill_null(len(levels.cells))
    return Column(name, values[host(places)])


def _numbers(name: str, cells: Any) -> Column:
    """Return a column of numbers, with nan where one is missing."""
    return Column(name, np.array(cells.to_numpy(), np.float64))
