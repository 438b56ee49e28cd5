"""Plain arrays from .npy and .npz files: nothing is unpickled, and no size is believed before it is
checked.

NumPy reads and writes the arrays. It makes an array as large as its header claims before it looks
for the numbers, so the header is read first and compared with the bytes that are there. An .npz is
a zip archive of .npy files.
"""

import io
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from .reading import reason

# kinds of dtypes: truth values, whole numbers, floating-point numbers and texts
PLAIN = "biufU"
COMPRESSED = 2**30  # bytes that a compressed archive may unpack to
BROKEN = (
    *(
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        EOFError,
        OSError,
        KeyError,
        IndexError,
    ),
    *(ValueError, TypeError, OverflowError, AttributeError, NotImplementedError),
    RuntimeError,  # zipfile raises it for an archive with a password
    # where the user has warnings raised: numpy warns of a header as Python 2 wrote them
    Warning,
)


class Damaged(ValueError):
    """The content is not what it should be; the reason in a few words."""


def read_arrays(path: Path, compressed: bool = False) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz by name.

    An archive that is not compressed cannot hold more than its own size. One that is may unpack to
    COMPRESSED bytes.
    """
    with _opened(path) as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        most = COMPRESSED
        if not compressed:
            most = path.stat().st_size
            if any(each.compress_type != zipfile.ZIP_STORED for each in members):
                raise Damaged("it is compressed")
        if sum(each.file_size for each in members) > most:
            raise Damaged("its arrays claim to be larger than can be")
        arrays = {
            each.filename.removesuffix(".npy"): _array_of(archive.read(each))
            for each in members
        }
    if len(arrays) < len(members):
        raise Damaged("two of its arrays have one name")
    return arrays


def mapped(path: Path) -> np.ndarray:
    """Return the array of a .npy file, read from the disk where it is used."""
    with _opened(path) as file:
        if file.read(2) == b"PK":
            raise Damaged("it is an archive of arrays, .npz")
        file.seek(0)
        shape = _checked_shape(file, path.stat().st_size)
        if 0 in shape:
            raise Damaged("the array is empty")
        return np.load(path, "r", allow_pickle=False)


def write_arrays(file: Any, arrays: Mapping[str, Any]) -> None:
    """Write a .npz that numpy reads, without the time of writing: the same arrays are the same
    bytes.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(
                zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True
            ) as member:
                npy.write_array(member, np.asarray(array), allow_pickle=False)


def _array_of(content: bytes) -> np.ndarray:
    """Return the array of a .npy content, in the byte order of the machine."""
    file = io.BytesIO(content)
    _checked_shape(file, len(content))
    file.seek(0)
    found = npy.read_array(file, allow_pickle=False)
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def _checked_shape(file: io.BufferedIOBase, size: int) -> tuple[int, ...]:
    """Return the shape of a plain array that takes all of the `size` bytes of its file, header
    included.
    """
    version = npy.read_magic(file)
    read_header = (
        npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    )
    try:
        shape, _, dtype = read_header(file)
    except (
        tokenize.TokenError,
        MemoryError,
    ) as error:  # of Python's own parser, which numpy gives the header to
        raise Damaged("the header of an array cannot be read") from error
    if dtype.kind not in PLAIN:
        raise Damaged("an array holds neither numbers nor texts")
    if file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise Damaged("an array has not as many numbers as its header says")
    return shape


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open an ordinary file, and raise Damaged for whatever goes wrong while it is read.

    A pipe, a device or a folder is refused, since some of them never end. A file that is missing is
    left to `open`.
    """
    if path.exists() and not path.is_file():
        raise Damaged("it is no ordinary file")
    with path.open("rb") as file:
        try:
            yield file
        except Damaged:
            raise
        except BROKEN as error:
            raise Damaged(reason(error)[:80]) from error
