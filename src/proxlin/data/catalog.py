"""The public data sets by name: where they are on the net, what they may be used for, and how they
get into the cache.

    get(name): the file that is named, else that in PROXLIN_DATA, else the addresses one after the other
               -> what the file is read into, in the cache
"""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import UserError, require
from ..files.folders import cache_folder
from . import cache, classification, letters, maps, sequences, warcraft
from .download import SILENCE, Watch, alone, beside, download, is_address

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
UNSTATED = "licence not stated"
WARCRAFT = "warcraft"
CACHE, FOLDER = "the cache", "PROXLIN_DATA"


@dataclass(frozen=True)
class Remote:
    """A public file: its addresses, the first that works is taken; its size in bytes, about; its
    licence; and where to read about it.
    """

    addresses: tuple[str, ...]
    size: int
    licence: str
    page: str


def _libsvm(file: str, size: int, licence: str) -> Remote:
    return Remote((f"{LIBSVM}/{file}",), size, licence, f"{LIBSVM}.html")


REMOTES = {
    "ijcnn1": _libsvm("ijcnn1.bz2", 1_400_000, UNSTATED),
    "ijcnn1.t": _libsvm("ijcnn1.t.bz2", 2_600_000, UNSTATED),
    "covtype": _libsvm("covtype.libsvm.binary.bz2", 10_000_000, "CC BY 4.0"),
    "a9a": _libsvm("a9a", 2_300_000, "CC BY 4.0"),
    "a9a.t": _libsvm("a9a.t", 1_100_000, "CC BY 4.0"),
    "w8a": _libsvm("w8a", 4_000_000, UNSTATED),
    "w8a.t": _libsvm("w8a.t", 1_000_000, UNSTATED),
    sequences.NAME: Remote(
        (
            "https://ai.stanford.edu/~btaskar/ocr/letter.data.gz",
            "http://ai.stanford.edu/~btaskar/ocr/letter.data.gz",
        ),
        1_000_000,
        UNSTATED,
        "https://ai.stanford.edu/~btaskar/ocr/",
    ),
    WARCRAFT: Remote(
        ("https://edmond.mpg.de/api/access/datafile/102059",),
        915_169_563,
        "see its page",
        "https://edmond.mpg.de/dataset.xhtml?persistentId=doi:10.17617/3.YJCQ5S",
    ),
}


@dataclass(frozen=True)
class Place:
    """Where a data set is, CACHE, FOLDER or ""; its file, its size, and where it came from."""

    where: str
    path: Path | None
    size: int
    source: str


def known(name: str) -> Remote:
    """Return the public file of a data set, or raise a sentence."""
    if name not in REMOTES:
        raise UserError(
            f"there is no data set {name}; take one of {', '.join(REMOTES)}."
        )
    return REMOTES[name]


def shape(name: str) -> str:
    """Return the size of a data set in words."""
    known(name)
    if name == sequences.NAME:
        words, count = letters.COUNTS
        return f"{words:,d} words of {count:,d} letters"
    if name == WARCRAFT:
        return "12,000 maps of 12x12 cells"
    source = classification.known(name)
    return f"{source.rows:,d} x {source.columns}"


def download_size(name: str) -> int:
    """Return about how many bytes have to be downloaded, with the test set."""
    test = classification.TESTS.get(name)
    return known(name).size + (known(test).size if test else 0)


def place(name: str) -> Place:
    """Return where a data set is now."""
    known(name)
    home = _home(name)
    if name in classification.SOURCES:
        kept = classification.cached(name)
        source = kept.source if kept is not None else None
    else:
        source = None
        if home.exists():
            source = cache.source_of(home) or "an unknown place"
    if source is not None:
        return Place(CACHE, home, _size(home), source)
    path = _in_data_folder(name)
    if path is not None:
        return Place(FOLDER, path, _size(path), str(path))
    return Place("", None, 0, "")


def get(
    name: str,
    source: str | None = None,
    sha256: str | None = None,
    *,
    say: Callable[[str], Any] = print,
    watch: Watch = lambda here, total: None,
    silence: float = SILENCE,
) -> str:
    """Bring a data set into the cache, and return a sentence on what was done and checked.

    `source` is an address or a file. Without one, what is in the cache already stays there.
    """
    remote = known(name)
    if name in classification.SOURCES:
        require(
            "sklearn", "sklearn"
        )  # it reads the file: better now than after the way
    folder = _downloads(name)
    if source is not None and not is_address(source):
        # a large archive is unpacked on the way; other files are read in one go
        turn = alone(folder, say) if name == WARCRAFT else nullcontext()
        with turn:
            return _keep(name, Path(source), sha256, source)
    with alone(folder, say):
        here = place(name)
        if source is None and here.where == CACHE:
            return f"{name} is in the cache already, from {here.source}: {here.path}."
        if source is None and here.path is not None:
            return _keep(name, here.path, sha256, str(here.path))
        for stray in folder.glob("tmp*"):  # pooch's, of a process that was killed
            stray.unlink()
        asked = partial(_download, name, folder, sha256, watch=watch, silence=silence)
        if source is not None:
            return asked(source, say)
        failed: list[str] = []
        for address in remote.addresses:
            try:
                return asked(address, say)
            except UserError as error:
                failed.append(str(error).rstrip("."))
        raise UserError(
            f"{name} was not downloaded ({'; '.join(failed)}); name another address or a file of it, for which "
            f"{remote.page} may help."
        )


def test_of(name: str, source: str | None = None) -> tuple[str, str | None] | None:
    """Return the test set of a data set, if it has one of its own, and where to look for it: beside
    the source.
    """
    test = classification.TESTS.get(name)
    if test is None:
        return None
    if source is None:
        return test, None
    file = Path(classification.known(test).file).name
    if is_address(source):
        return test, beside(source, file)
    return test, str(Path(source).with_name(file))


def _download(
    name: str,
    folder: Path,
    sha256: str | None,
    address: str,
    say: Callable[[str], Any],
    watch: Watch,
    silence: float,
) -> str:
    """Download a file, read it, and take away what was only for the way."""
    say(f"downloading {address}")
    path = download(address, folder, sha256, watch, silence)
    try:
        done = _keep(name, path, sha256, address)
    except UserError as error:
        path.unlink()
        raise UserError(str(error).replace(str(path), address)) from error
    path.unlink()
    return done


def _downloads(name: str) -> Path:
    return cache_folder() / "downloads" / name


def _keep(name: str, path: Path, sha256: str | None, source: str) -> str:
    """Read a file into the cache, and say what was checked."""
    if name == sequences.NAME:
        checked = letters.get_words(path, sha256, source)
    elif name == WARCRAFT:
        scratch = _downloads(name) / "unpacked"
        scratch.mkdir(exist_ok=True)
        try:
            checked = warcraft.get_warcraft(path, sha256, source, scratch)
        finally:
            shutil.rmtree(scratch)
    else:
        checked = _keep_rows(name, path, sha256, source)
    return f"{name}: {checked} It is from {source}, and is now in {_home(name)}."


def _keep_rows(name: str, path: Path, sha256: str | None, source: str) -> str:
    kept = classification.get(name, path, sha256, source=source)
    what = f"{len(kept.table):,d} x {kept.table.width}. Its SHA-256 is {kept.sha256}"
    if kept.usual and kept.sha256 == classification.known(name).sha256:
        return f"{what}, which is known."
    if kept.usual:
        return f"{what}, and its md5 is the one on public record for the LIBSVM site."
    if sha256:
        return f"{what}, as you gave it."
    return f"{what}, which is not known here: rows, columns and labels were counted, and nothing else was checked."


def _home(name: str) -> Path:
    """Return where the cache has a data set, or would have it."""
    if name == WARCRAFT:
        return maps.warcraft_folder()
    if name == sequences.NAME:
        return cache.entry(sequences.ENTRY)
    return classification.entry(name)


def _in_data_folder(name: str) -> Path | None:
    if name in classification.SOURCES:
        return classification.in_data_folder(name)
    folder = cache.data_folder()
    if folder is not None and name == sequences.NAME:
        path = folder / sequences.FILE
        return path if path.is_file() else None
    return None


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(each.stat().st_size for each in path.iterdir())
    return path.stat().st_size
