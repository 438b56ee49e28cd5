"""Plain arrays from .npy and .npz files: nothing is unpickled or evaluated, no size is believed before it is checked.

    .npy   = magic, version, length of the header, header, numbers
    header = {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }       as numpy writes it, and in no other way

An .npz is a zip archive of such files.
"""

import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

MAGIC = b"\x93NUMPY"
HEADER = re.compile(
    rb"\{'descr': '([<>|][biufU]\d{1,4})', 'fortran_order': (True|False), 'shape': \(([\d, ]{0,200})\), \} *\n?"
)
LONGEST = 10_000  # bytes of a header
COMPRESSED = 2**30  # bytes that a compressed archive may unpack to
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, KeyError, IndexError),
    *(ValueError, TypeError, OverflowError, AttributeError, NotImplementedError, RuntimeError),  # the last: a password
)


class Damaged(ValueError):
    """The content is not what it should be; the reason in a few words."""


class Header(NamedTuple):
    """What stands before the numbers of an array, and how long it is."""

    dtype: np.dtype
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    length: int


def read_header(start: bytes, size: int) -> Header:
    """The header of an array in a file or member of `size` bytes, all of which must be taken by it and its numbers."""
    if start[:2] == b"PK":
        raise Damaged("it is an archive of arrays, .npz")
    wide = start[6:7] >= b"\x02"
    if start[:6] != MAGIC or start[6:8] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00") or len(start) < 12:
        raise Damaged("it is no .npy array")
    first = 12 if wide else 10
    length = first + int.from_bytes(start[8:first], "little")
    match = HEADER.fullmatch(start[first : min(length, first + LONGEST)])
    if match is None:
        raise Damaged("the header of an array is not one that numpy writes for numbers")
    try:
        dtype = np.dtype(match[1].decode())
        shape = tuple(int(each) for each in match[3].replace(b" ", b"").split(b",") if each)
    except (TypeError, ValueError) as error:
        raise Damaged("the header of an array cannot be read") from error
    if length + math.prod(shape) * dtype.itemsize != size:
        raise Damaged("an array has not as many numbers as its header says")
    return Header(dtype, shape, "F" if match[2] == b"True" else "C", length)


def array_of(content: bytes) -> np.ndarray:
    """The array of a .npy content, in the byte order of the machine."""
    dtype, shape, order, length = read_header(content[: LONGEST + 12], len(content))
    try:
        found = np.frombuffer(memoryview(content)[length:], dtype).reshape(shape, order=order)
    except (ValueError, TypeError, OverflowError) as error:  # a shape such as (0, 10^30)
        raise Damaged("an array has a shape that cannot be") from error
    return np.array(found, dtype.newbyteorder("="))


def mapped(path: Path) -> np.ndarray:
    """The array of a .npy file, read from the disk where it is used."""
    _check(path)
    with path.open("rb") as file:
        dtype, shape, order, length = read_header(file.read(LONGEST + 12), path.stat().st_size)
    if math.prod(shape) == 0:
        raise Damaged("the array is empty")
    return np.memmap(path, dtype, "r", length, shape, order)


def read_arrays(path: Path, compressed: bool = False) -> dict[str, np.ndarray]:
    """The arrays of a .npz by name. Not compressed: then no array is larger than the file."""
    _check(path)
    with path.open("rb") as raw:
        try:
            with zipfile.ZipFile(raw) as archive:
                return _members(archive, COMPRESSED if compressed else path.stat().st_size, compressed)
        except Damaged:
            raise
        except BROKEN as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise Damaged(reason[:80]) from error


def _check(path: Path) -> None:
    """Raise Damaged for a pipe, a device or a folder, some of which never end; one that is missing is left to open."""
    if path.exists() and not path.is_file():
        raise Damaged("it is no ordinary file")


def write_arrays(file: Any, arrays: Mapping[str, Any]) -> None:
    """A .npz that numpy reads, without the time of writing: the same arrays are the same bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _members(archive: zipfile.ZipFile, most: int, compressed: bool) -> dict[str, np.ndarray]:
    members = archive.infolist()
    if not compressed and any(each.compress_type != zipfile.ZIP_STORED for each in members):
        raise Damaged("it is compressed")
    if sum(each.file_size for each in members) > most:
        raise Damaged("its arrays claim to be larger than can be")
    names = [each.filename.removesuffix(".npy") for each in members]
    if len(set(names)) < len(names):
        raise Damaged("two of its arrays have one name")
    return {name: array_of(archive.read(each)) for name, each in zip(names, members, strict=True)}
