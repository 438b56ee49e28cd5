"""Where data lies: PROXLIN_DATA is read, PROXLIN_CACHE (else the platform's cache directory) is
written.

An entry of the cache is an .npz of plain arrays. It appears whole or not at all, and one that is
damaged or of another format is as good as none: whoever asked for it makes it again.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..files.folders import cache_folder
from ..files.npz import Damaged, read_arrays, write_arrays
from ..files.reading import check_readable
from ..files.writing import write_file

FORMAT = 2  # of the entries; a new number makes all older ones be rebuilt


def data_folder() -> Path | None:
    """Return the read-only directory of data files, if there is one."""
    folder = os.environ.get("PROXLIN_DATA")
    return Path(folder) if folder else None


def entry(name: str) -> Path:
    """Return the file of an entry."""
    return cache_folder() / f"{name}.npz"


def store(name: str, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write an entry, and return its file."""
    path = entry(name)
    write_file(
        path, lambda file: write_arrays(file, {"format": np.int64(FORMAT), **arrays})
    )
    return path


def fetch(name: str) -> dict[str, np.ndarray] | None:
    """Return the arrays of an entry; None if it is missing, damaged or of another format."""
    try:
        arrays = read_arrays(entry(name))
    except (OSError, Damaged):
        return None
    found = arrays.pop("format", None)
    if found is None or found.ndim > 0 or found != FORMAT:
        return None
    return arrays


def note_of(path: Path) -> Path:
    """Return the file beside one in the cache that says where it comes from."""
    return path.with_name(f"{path.name}.json")


def source_of(path: Path) -> str | None:
    """Return where a file or folder in the cache comes from, by its note; None if there is none."""
    try:
        return str(json.loads(note_of(path).read_bytes())["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    check_readable(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, wanted: str | None) -> str:
    """Return the checksum of a file; a UserError if another one is wanted."""
    found = sha256(path)
    if wanted and found != wanted.lower():
        raise UserError(f"{path}: its SHA-256 is {found}, but {wanted} was asked for.")
    return found


def md5(path: Path) -> str:
    """Return the checksum by which some public files are known; it tells damage, not malice."""
    check_readable(path)
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.md5(usedforsecurity=False)
        ).hexdigest()
