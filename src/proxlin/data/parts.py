"""Tables that need not fit into memory: parts that are read one after the other, in chunks of rows.

    for found in parts.each(work):        work(frame, start) of each chunk, in the order of the rows

A folder of Parquet files has a part for each row group, a Dask frame one for each partition. Whoever reads
a part, the chunks come back in one order: sums over them are the same numbers on one machine and on a
cluster.
"""

import abc
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, printable, require
from ..files.reading import check_readable, reason
from .formats.arrow import UNREAD, check_types, frame_of, parquet_bytes
from .formats.columns import Frame, check_unpacked, nearest, pyarrow
from .frames import as_frame, check_frame

CELLS = 2**21  # of a chunk: 16 MB as float64
BUFFER = 2**16  # bytes of a column that are read at once
SUFFIXES = (".parquet", ".pq")
# what is computed for a chunk: of its rows, and the number in the table of the first of them, from 0
Work = Callable[[Frame, int], Any]


class AbstractParts(abc.ABC):
    """A table in parts: its name for messages, its columns, and how many rows each part has."""

    source: str
    names: tuple[str, ...]
    counts: tuple[int, ...]
    # parts that are begun before the first of them is asked for
    ahead: int

    @property
    def rows(self) -> int:
        """Return how many rows the table has."""
        return sum(self.counts)

    @property
    def starts(self) -> tuple[int, ...]:
        """Return the number of the first row of each part."""
        return tuple(int(each) for each in np.cumsum((0, *self.counts))[:-1])

    @abc.abstractmethod
    def begin(self, part: int, work: Work) -> Iterator[Any]:
        """Yield work(frame, start) for the chunks of a part; a cluster begins it at once."""

    @abc.abstractmethod
    def only(self, names: Sequence[str]) -> "AbstractParts":
        """Return the table with some of its columns."""

    def each(
        self, work: Work, order: Sequence[int] | None = None, together: int = 1
    ) -> Iterator[Any]:
        """Yield what is computed for each chunk, part after part; of `together` parts, a chunk of each
        in turn.
        """
        order = range(len(self.counts)) if order is None else order
        waiting = iter(order)
        begun: deque[Iterator[Any]] = deque()
        size = max(together, self.ahead)
        at = 0
        while True:
            while len(begun) < size:
                part = next(waiting, None)
                if part is None:
                    break
                begun.append(self.begin(part, work))
            if not begun:
                return
            at %= min(together, len(begun))
            found = next(begun[at], None)
            if found is None:
                del begun[at]
                continue
            yield found
            at += 1

    def whole(self) -> Frame:
        """Return all rows as one table."""
        return joined(self.source, list(self.each(_frame)))


def _frame(frame: Frame, start: int) -> Frame:
    return frame


def joined(source: str, frames: Sequence[Frame]) -> Frame:
    """Return the rows of some tables of the same columns, one after the other.

    A column that has no filled cell in a part has no type there: it takes that of the others.
    """
    columns = []
    for j, column in enumerate(frames[0].columns):
        every = [frame.columns[j] for frame in frames]
        typed = [each for each in every if not each.missing.all()] or every
        kinds = {each.numeric for each in typed}
        if len(kinds) > 1:
            raise UserError(
                f"{source}, column {column.name!r} holds numbers in one part and texts in another."
            )
        dtype = typed[0].cells.dtype
        empty = np.nan if typed[0].numeric else None
        cells = [
            each.cells
            if each.numeric == typed[0].numeric
            else np.full(len(each.cells), empty, dtype)
            for each in every
        ]
        columns.append(replace(column, cells=np.concatenate(cells)))
    return Frame(source, tuple(columns))


def parts_of(table: Any, categories: Collection[str] = ()) -> AbstractParts | None:
    """Return a folder of Parquet files, a Parquet file, or a frame of Dask as parts; None for any other
    table.
    """
    if isinstance(table, AbstractParts):
        return table
    if isinstance(table, str | Path):
        path = Path(table)
        if path.is_dir():
            return _folder(path, categories)
        if path.suffix.lower() in SUFFIXES and path.is_file():
            return ParquetParts.of(path, [path], categories)
        return None
    if type(table).__module__.split(".")[0] in ("dask", "dask_expr"):
        return DaskParts.of(table, categories)
    return None


# ----------------------------------------------------------------------------------------- Parquet


def _folder(path: Path, categories: Collection[str]) -> "ParquetParts":
    """Return the Parquet files of a folder and of the folders in it, in the order of their names."""
    try:
        files = sorted(
            each
            for each in path.rglob("*")
            if each.suffix.lower() in SUFFIXES and not each.name.startswith((".", "_"))
        )
        empty = not files and next(path.iterdir(), None) is None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({reason(error)}).") from error
    if empty:
        raise UserError(f"{path} is a folder that is empty.")
    if not files:
        raise UserError(f"{path} is a folder without Parquet files (*.parquet, *.pq).")
    return ParquetParts.of(path, files, categories)


@dataclass(frozen=True)
class ParquetParts(AbstractParts):
    """The row groups of some Parquet files with the same columns."""

    source: str
    names: tuple[str, ...]
    counts: tuple[int, ...]
    groups: tuple[tuple[Path, int], ...]  # the file of each part, and its number there
    categories: frozenset[str]
    ahead: int = 1

    @staticmethod
    def of(
        path: Path, files: Sequence[Path], categories: Collection[str]
    ) -> "ParquetParts":
        """Look at what the files say of themselves, or raise a sentence that names the file."""
        groups = []
        counts = []
        first = None
        kinds: dict[str, tuple[str, Path]] = {}
        for file in files:
            about = _about(file)
            schema = about.schema_arrow
            check_types(file, schema)
            check_unpacked(file, file.stat().st_size, parquet_bytes(about.metadata))
            if first is None:
                first = tuple(schema.names)
            _check_names(file, tuple(schema.names), files[0], first)
            for field in schema:
                _check_kind(file, field, kinds, categories)
            for i in range(about.metadata.num_row_groups):
                rows = about.metadata.row_group(i).num_rows
                if rows:
                    groups.append((file, i))
                    counts.append(rows)
        assert first is not None
        if not counts:
            raise UserError(f"{path} has a header and no rows.")
        for name in categories:
            if name not in first:
                raise UserError(f"{path} has no column {name!r}{nearest(name, first)}")
        return ParquetParts(
            str(path), first, tuple(counts), tuple(groups), frozenset(categories)
        )

    def only(self, names: Sequence[str]) -> "ParquetParts":
        return replace(self, names=tuple(names))

    def begin(self, part: int, work: Work) -> Iterator[Any]:
        file, group = self.groups[part]
        start = self.starts[part]
        size = max(1, CELLS // len(self.names))
        arrow = pyarrow()
        try:
            with file.open("rb") as opened:
                batches = _opened(opened).iter_batches(
                    size, [group], list(self.names), use_threads=False
                )
                for batch in batches:
                    table = arrow.Table.from_batches([batch]).select(list(self.names))
                    frame = frame_of(file, list(self.names), table.columns)
                    frame = check_frame(file, frame, self.categories)
                    ready = [work(frame, start)]
                    start += len(frame)
                    # Several parts wait side by side: none of them keeps its chunk in memory.
                    del batch, table, frame
                    yield ready.pop()
        except (arrow.ArrowException, *UNREAD) as error:
            raise UserError(f"{file} cannot be read ({reason(error)}).") from error


def _opened(file: Any) -> Any:
    parquet = pyarrow("pyarrow.parquet")
    return parquet.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)


def _about(file: Path) -> Any:
    """Return what a Parquet file says of itself."""
    arrow = pyarrow()
    parquet = pyarrow("pyarrow.parquet")
    check_readable(file)
    try:
        return parquet.ParquetFile(file)
    except (arrow.ArrowException, *UNREAD) as error:
        raise UserError(f"{file} is not a Parquet file ({reason(error)}).") from error


def _check_names(
    file: Path, names: tuple[str, ...], first_file: Path, first: tuple[str, ...]
) -> None:
    """Raise a sentence where a file has other columns than the first one, or one of them twice."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{file}: there are two columns named {twice!r}.")
    for name in first:
        if name not in names:
            raise UserError(
                f"{file} has no column {name!r}, which {first_file} has; files of one table have the same columns."
            )
    for name in names:
        if name not in first:
            raise UserError(
                f"{file} has a column {name!r}, which {first_file} has not; files of one table have the same columns."
            )


def _check_kind(
    file: Path,
    field: Any,
    kinds: dict[str, tuple[str, Path]],
    categories: Collection[str],
) -> None:
    """Raise a sentence where a column is numbers in one file and texts in another."""
    types = pyarrow().types
    kind = field.type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind) or field.name in categories:
        return
    numeric = (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
    )
    own = "numbers" if numeric else "texts"
    other, where = kinds.setdefault(field.name, (own, file))
    if other != own:
        raise UserError(
            f"{file}, column {field.name!r} holds {own} ({printable(str(field.type))}), and {other} in {where}; "
            "write both files with one type."
        )


# -------------------------------------------------------------------------------------------- Dask


@dataclass(frozen=True)
class DaskParts(AbstractParts):
    """The partitions of a Dask frame. On a cluster a worker reads its own ones, and what it computes of
    them comes back; a partition of a worker that dies is read again by another.
    """

    source: str
    names: tuple[str, ...]
    counts: tuple[int, ...]
    frame: Any
    partitions: tuple[Any, ...]
    categories: frozenset[str]
    ahead: int

    @staticmethod
    def of(frame: Any, categories: Collection[str]) -> "DaskParts":
        """Count the rows of the partitions of a frame."""
        dask = require("dask", "cluster")
        partitions = getattr(frame, "to_delayed", None)
        columns = getattr(frame, "columns", None)
        if partitions is None or columns is None:
            raise UserError(
                f"A table of Dask is a dask.dataframe; it is {type(frame).__name__}."
            )
        names = tuple(str(name) for name in columns)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(f"The table has two columns named {twice!r}.")
        for name in categories:
            if name not in names:
                raise UserError(
                    f"The table has no column {name!r}{nearest(name, names)}"
                )
        delayed = tuple(partitions())
        counts = dask.compute(*(dask.delayed(len)(each) for each in delayed))
        if not sum(counts):
            raise UserError("The table has no rows.")
        workers = 1
        client = _client()
        if client is not None:
            workers = max(1, len(client.nthreads()))
        return DaskParts(
            "the table",
            names,
            tuple(int(count) for count in counts),
            frame,
            delayed,
            frozenset(categories),
            2 * workers,
        )

    def only(self, names: Sequence[str]) -> "DaskParts":
        # the name of a column of pandas need not be a text
        columns = {str(name): name for name in self.frame.columns}
        frame = self.frame[[columns[name] for name in names]]
        return replace(
            self, frame=frame, names=tuple(names), partitions=tuple(frame.to_delayed())
        )

    def begin(self, part: int, work: Work) -> Iterator[Any]:
        dask = require("dask", "cluster")
        if not self.counts[part]:
            return iter(())
        task = dask.delayed(_of_partition, pure=False)(
            self.partitions[part], work, self.starts[part], self.names, self.categories
        )
        client = _client()
        if client is None:
            return _computed(task)
        return _gathered(client.compute(task))


def _client() -> Any:
    """Return the cluster of this process; None without one, or where another scheduler is asked for."""
    dask = require("dask", "cluster")
    if dask.config.get("scheduler", None) not in (None, "dask.distributed"):
        return None
    distributed = require("distributed", "cluster")
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _computed(task: Any) -> Iterator[Any]:
    yield from task.compute()


def _gathered(future: Any) -> Iterator[Any]:
    yield from future.result()


def _of_partition(
    partition: Any,
    work: Work,
    start: int,
    names: tuple[str, ...],
    categories: frozenset[str],
) -> list[Any]:
    """Return what is computed for each chunk of a partition; a worker runs this."""
    size = max(1, CELLS // len(names))
    found = []
    for first in range(0, len(partition), size):
        frame = as_frame(partition.iloc[first : first + size], categories)
        found.append(work(frame, start + first))
    return found
