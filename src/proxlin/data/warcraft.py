"""The public archive of Warcraft maps, of which the files of 12x12 cells are kept for `load_warcraft`.

The archive is read once, from its beginning to its end. Names of files come from here and never from it.
"""

import hashlib
import json
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ..errors import UserError
from ..files.reading import check_readable
from ..files.writing import write_folder
from . import maps
from .cache import check_sha256, md5, note_of

MD5 = "acea5ea60a47664ff189923a84814e96"  # of warcraft_maps.tar.gz, by public records of it
SPLITS = ("train", "val", "test")
FOLDER = "12x12"  # in the archive; larger maps are beside it
LARGEST = 2**30  # bytes of a file in the archive; the largest has 0.3 * 2**30


def get_warcraft(path: Path, sha256: str | None, source: str, scratch: Path) -> str:
    """Keep the files of 12x12 cells of an archive in the cache; return how they were checked.

    `scratch` is a folder for the way, on the disk of the cache.
    """
    check_readable(path)
    found = check_sha256(path, sha256)
    is_known = md5(path) == MD5
    sums = _unpack(path, scratch)
    wrong = [
        name for name, wanted in maps.CHECKSUMS.items() if sums.get(name) != wanted
    ]
    if wrong and not sha256:
        raise UserError(
            f"{path}: the md5 of {wrong[0]} in it is not that of the public file; if you trust the archive, give its "
            f"SHA-256, {found}."
        )
    folder = maps.warcraft_folder()
    note = json.dumps({"source": source}).encode()
    files = {f"{folder.name}/{name}": _copy_of(scratch / name) for name in sorted(sums)}
    write_folder(folder.parent, {note_of(folder).name: note, **files})
    what = f"maps of 12x12 cells. Its SHA-256 is {found}"
    if is_known:
        return f"{what}, and its md5 is the one on public record for the archive."
    if wrong:
        return f"{what}, as you gave it."
    return f"{what}; the md5 of the files to train and to test are those of the public ones, val was not checked."


def _unpack(path: Path, scratch: Path) -> dict[str, str]:
    """Copy the wanted files of an archive into a folder; return the md5 of each by its name."""
    wanted = {f"{split}_{part}.npy" for split in SPLITS for part in maps.WARCRAFT_PARTS}
    sums: dict[str, str] = {}
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                place = PurePosixPath(member.name)
                name = place.name
                if not member.isreg() or name not in wanted - sums.keys():
                    continue
                if place.parent.name != FOLDER:
                    continue
                if member.size > LARGEST:
                    raise UserError(
                        f"{path}: {name} in it is larger than any public one."
                    )
                file = archive.extractfile(member)
                assert file is not None  # it is a regular file
                sums[name] = _copied(file, scratch / name)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path}: this is no whole tar archive ({error}).") from error
    missing = sorted(wanted - sums.keys())
    if missing:
        raise UserError(f"{path}: there is no {FOLDER}/{missing[0]} in this archive.")
    return sums


def _copied(file: Any, place: Path) -> str:
    """Write a file to a place, and return its md5."""
    total = hashlib.md5(usedforsecurity=False)
    with place.open("wb") as out:
        while chunk := file.read(2**20):
            total.update(chunk)
            out.write(chunk)
    return total.hexdigest()


def _copy_of(place: Path) -> Any:
    """Return what writes the content of a file to another one."""

    def write(file: IO[bytes]) -> None:
        with place.open("rb") as content:
            shutil.copyfileobj(content, file, 2**20)

    return write
