"""LIBSVM files, `label index:value index:value ...` a line, plain or compressed (bz2, gz, xz), with
two labels.

The parser is scikit-learn's. What it refuses is read again line by line, to say where the fault is.
"""

import bz2
import gzip
import lzma
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from ..errors import UserError, require
from ..files.reading import check_readable, free_memory
from ..inners import SparseRows

# by the first bytes of the file
OPENERS = {b"BZh": bz2.open, b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
LARGEST = 2**31 - 1  # index: the parser's integers
LONGEST = 2**26  # bytes of a line
# bytes that a byte of text may take: a label of two, 1 and the end of the line, takes sixteen
MEMORY = 8


@dataclass(frozen=True)
class Table:
    """n compressed rows: row i has values[j] in columns[j], starts[i] <= j < starts[i + 1]; labels
    -1 and +1.
    """

    labels: Float[np.ndarray, " n"]
    starts: Int[np.ndarray, " m"]
    columns: Int[np.ndarray, " nnz"]
    values: Float[np.ndarray, " nnz"]
    width: int

    def __len__(self) -> int:
        return len(self.labels)

    def normalized(self) -> "Table":
        """Return each row divided by its norm; rows of zeros stay."""
        largest = self._each(np.maximum, np.abs(self.values))
        scaled = self.values / self._spread(largest)  # first: squares must not overflow
        norms = np.sqrt(self._each(np.add, scaled * scaled))
        return replace(self, values=scaled / self._spread(norms))

    def dense(self, dtype: Any = np.float64) -> Float[np.ndarray, "n d"]:
        """Return the rows as one array."""
        values = self.values.astype(dtype, copy=False)
        return csr_array(
            (values, self.columns, self.starts), (len(self), self.width)
        ).toarray()

    def sparse(self, dtype: Any = np.float64) -> SparseRows:
        """Return the rows padded to the longest."""
        counts = np.diff(self.starts)
        longest = int(counts.max(initial=1))
        inside = np.arange(longest)[None, :] < counts[:, None]
        indices = np.zeros(inside.shape, np.int32)
        indices[inside] = self.columns
        values = np.zeros(inside.shape, dtype)
        values[inside] = self.values
        return SparseRows(indices, values, self.width)

    def _each(self, reduce: np.ufunc, values: np.ndarray) -> np.ndarray:
        """Return the sum or maximum of each row, 0 for an empty one."""
        filled = np.diff(self.starts) > 0
        found = np.zeros(len(self))
        if filled.any():
            found[filled] = reduce.reduceat(values, self.starts[:-1][filled])
        return found

    def _spread(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of each row at each of its entries, as a divisor: 1 where it is 0."""
        divisors = np.where(rows > 0, rows, 1.0)
        return np.repeat(divisors, np.diff(self.starts))


def read(path: str | Path, width: int | None = None) -> Table:
    """Return the rows of a file, the smaller label as -1 and the larger as +1; it has `width`
    columns, or as many as its largest index says.
    """
    path = Path(path)
    parse = require("sklearn.datasets", "sklearn").load_svmlight_file
    try:
        with _open(path) as file:
            x, labels = parse(
                _Lines(file, path), n_features=width, dtype=np.float64, zero_based=False
            )
    except UserError:
        # it has its sentence already; reading a bomb again would take as long again
        raise
    except (ValueError, OverflowError, *UNREADABLE) as error:
        raise UserError(_fault(path, width) or f"{path}: {error}.") from error
    classes = np.unique(labels)
    if not (
        len(classes) == 2 and np.isfinite(classes).all() and np.isfinite(x.data).all()
    ):
        raise UserError(
            _fault(path, width) or f"{path}: this is not a file of two classes."
        )
    signs = np.where(labels == classes[0], -1.0, 1.0)
    starts = x.indptr.astype(np.int64)
    columns = x.indices.astype(np.int32)
    return Table(signs, starts, columns, x.data, x.shape[1])


def _open(path: Path) -> BufferedIOBase:
    check_readable(path)
    try:
        with path.open("rb") as file:
            first = file.read(6)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from error
    for magic, opener in OPENERS.items():
        if first.startswith(magic):
            return opener(path, "rb")
    return path.open("rb")


class _Lines:
    """The lines of a file, as the parser asks for them; a bomb, which is small until it is
    unpacked, is a sentence.
    """

    def __init__(self, file: BufferedIOBase, path: Path):
        self.read = file.read
        self.file = file
        self.path = path

    def __iter__(self) -> Iterator[bytes]:
        free = free_memory()
        total = 0
        while line := self.file.readline(LONGEST + 1):
            total += len(line)
            if len(line) > LONGEST:
                raise UserError(
                    f"{self.path}: a line of it is longer than {LONGEST >> 20} MiB."
                )
            if total * MEMORY > free:
                raise UserError(
                    f"{self.path} unpacks to more than the {free / 2**30:.1f} GiB of free memory can hold."
                )
            yield line


# --------------------------------------------------------------------------------- where a fault is


def _fault(path: Path, width: int | None) -> str | None:
    """Return the first fault of a file, in a sentence with its line."""
    labels: dict[float, int] = {}
    number = 0
    try:
        with _open(path) as file:
            for number, line in _numbered(_Lines(file, path)):
                why = _wrong(line, width, labels, number)
                if why:
                    return f"{path}, line {number}: {why}."
    except UNREADABLE as error:
        why = f"it cannot be read, {error}"
        if isinstance(error, EOFError):
            why = "the compressed file ends too early"
        return f"{path}, line {number + 1}: {why}."
    if not labels:
        return f"{path}, line 1: the file has no rows."
    if len(labels) == 1:
        (label,) = labels
        return f"{path}, line {number}: all labels up to here, the end, are {label:g}; there must be two."
    return None


def _numbered(file: _Lines) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with something on them before a #, and their numbers."""
    for number, line in enumerate(file, 1):
        text = line.partition(b"#")[0].strip()
        if text:
            yield number, text


def _wrong(
    line: bytes, width: int | None, labels: dict[float, int], number: int
) -> str | None:
    """Return what is wrong with one line, given the labels of those before it."""
    first, *pairs = line.split()
    label = _number(first)
    if label is None or not math.isfinite(label):
        return f"the label {_shown(first)} is not a finite number"
    labels.setdefault(label, number)
    if len(labels) > 2:
        before = " and ".join(f"{x:g}" for x in list(labels)[:2])
        return f"the label {label:g} is a third one, after {before}; there must be two"
    if pairs and pairs[0].startswith(b"qid:"):
        del pairs[0]
    return _wrong_pairs(pairs, width or LARGEST)


def _wrong_pairs(pairs: list[bytes], width: int) -> str | None:
    """Return what is wrong with the entries of one line."""
    last = 0
    for pair in pairs:
        index, colon, value = pair.partition(b":")
        if not colon or not index.lstrip(b"-").isdigit() or _number(value) is None:
            return f"{_shown(pair)} is not index:value"
        at = int(index[:20])  # a longer one is out of range as well
        if not 1 <= at <= width:
            return f"the index {at} is not between 1 and {width}"
        if at <= last:
            return f"the index {at} comes after {last}; they must increase"
        if not math.isfinite(float(value)):
            return f"the value {_shown(value)} of index {at} is not finite"
        last = at
    return None


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))
