"""Files that are written as a whole: each is the old one or the new one, whatever happens on the
way.

    temporary file beside it -> fsync -> rename -> fsync of the folder

Files that belong together are all written before the first of them gets its name. A folder that
does not exist yet is written under another name too, and appears complete by one rename. An error
or a signal leaves everything as it was. Where the folder exists, `kill -9` or a power cut can come
between two of the renames. So the renames that are due are written down first, and whoever looks at
the folder next does the rest of them (`finish`).
"""

import errno
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from .reading import as_path

# the bytes, or what writes them to an open file
Content = bytes | Callable[[IO[bytes]], object]

Made = TypeVar("Made")

# seconds to wait for another writer: its renames take milliseconds, and a dead one holds nothing
PATIENCE = 5.0
MOST_LINKS = 40  # as many as Linux follows
# the renames of a folder that are due: new name -> temporary name, both below the folder
PLAN = ".renames.json"
MOST_PLAN = 2**20  # bytes; ours have a few thousand

# held while temporaries are made and while names change, so that `abandon` comes in between
_TURN = threading.Lock()
# what a process that ends now has to take away, and how
_UNFINISHED: dict[Path, Callable[[Path], None]] = {}


def write_file(path: str | Path, content: Content) -> None:
    """Replace a file as a whole, and make the folders that are missing.

    The permissions of a file that exists are kept. A link stays, and what it leads to is replaced.
    What is not a regular file (a device, a pipe, /dev/stdout) is written to.
    """
    path = as_path(path)
    with _naming(path):
        if _is_special(path):
            with open(_open_special(path), "wb") as file:
                _fill(file, content)
        else:
            place = Path(os.path.realpath(path))
            write_folder(place.parent, {place.name: content})


def write_folder(folder: str | Path, contents: Mapping[str, Content]) -> None:
    """Write files that belong together, by their names below the folder: all of them, or none.

    The last one gets its name last.
    """
    folder = Path(os.path.realpath(folder))
    finish(folder)
    if not folder.exists():
        try:
            with _prepared_folder(folder, contents) as commit:
                commit()
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise  # else another process made the folder in the meantime
    with _prepared_files(folder, contents) as commit:
        commit()


def check_writable(path: str | Path) -> None:
    """Raise the OSError that `write_file` would raise now, so that it comes before the work and not
    after it.
    """
    path = Path(path)
    with _naming(path):
        if not _is_special(path):
            place = Path(os.path.realpath(path))
            check_folder(place.parent, [place.name])
        elif not os.access(
            path, os.W_OK
        ):  # a pipe that is opened and closed again would end its reader
            raise _refusal(errno.EACCES)


def check_folder(folder: str | Path, names: Iterable[str]) -> None:
    """Raise the OSError that `write_folder` would raise now; nothing is left behind."""
    folder = Path(os.path.realpath(folder))
    prepared = _prepared_files if folder.exists() else _prepared_folder
    with prepared(folder, dict.fromkeys(names, b"")):
        pass


def finish(folder: str | Path) -> None:
    """Do the renames that a killed process had begun, so that the files of a folder belong together
    again.

    What is written in the plan of a stranger can only be that a temporary file gets the name that
    it is made for.
    """
    folder = Path(os.path.realpath(folder))
    if not (folder / PLAN).is_file():
        return
    # a folder that cannot be written stays as it is
    with _alone(folder), suppress(OSError):
        try:
            with (folder / PLAN).open("rb") as file:
                due = json.loads(file.read(MOST_PLAN))
            steps = [
                (folder / name, folder / temporary) for name, temporary in due.items()
            ]
        except (ValueError, AttributeError, TypeError, RecursionError):
            steps = []  # a plan that was not finished: no rename had begun
        for place, temporary in steps:
            if _is_due(folder, place, temporary):
                os.replace(temporary, place)
                # before the plan goes, which a power cut would miss
                _sync(place.parent)
        os.unlink(folder / PLAN)
        _sync(folder)


def abandon() -> None:
    """Take away every temporary of this process, and let no name change any more: for a process
    that ends now.
    """
    if not _TURN.acquire(timeout=PATIENCE):
        return  # a disk that does not answer; what is half done stays so
    for path in reversed(_UNFINISHED):
        with suppress(OSError):
            _UNFINISHED[path](path)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a process that a signal ends wait for this block; it must be short."""
    with _TURN:
        yield


@contextmanager
def _prepared_folder(
    folder: Path, contents: Mapping[str, Content]
) -> Iterator[Callable[[], None]]:
    """Write the files into a new folder of another name; yields what gives it its own."""
    top = folder  # the first folder that is missing is the one to be renamed
    while not top.parent.exists():
        top = top.parent
    stage = _temporary(top)
    home = stage / folder.relative_to(top)
    with _naming(folder), _passing(stage, shutil.rmtree, os.mkdir):
        for name, content in contents.items():
            os.makedirs((home / name).parent, exist_ok=True)
            with open(_create(home / name), "wb") as file:
                _fill(file, content)
        _sync(stage)
        for inner in stage.rglob("*"):
            if inner.is_dir():
                _sync(inner)

        def commit() -> None:
            with _TURN:
                os.rename(stage, top)
                _sync(top.parent)

        yield commit


@contextmanager
def _prepared_files(
    folder: Path, contents: Mapping[str, Content]
) -> Iterator[Callable[[], None]]:
    """Write the files beside those they will replace; yields what renames them."""
    with ExitStack() as passing:
        temporaries: dict[Path, Path] = {}
        for name, content in contents.items():
            with _naming(folder / name):
                place, before = _place(folder, folder / name)
                missing = [each for each in place.parents if not each.exists()]
                for each in reversed(missing):
                    # one that is filled stays
                    passing.enter_context(_passing(each, os.rmdir, _make_folder))
                temporary = _temporary(place)
                temporaries[place] = temporary
                make = _create if before is None else _create_private
                descriptor = passing.enter_context(_passing(temporary, os.unlink, make))
                with open(descriptor, "wb") as file:
                    if before is not None:
                        _copy_rights(file.fileno(), before)
                    _fill(file, content)
        yield lambda: _rename(folder, temporaries)


def _rename(folder: Path, temporaries: Mapping[Path, Path]) -> None:
    """Give every temporary its name; if that fails on the way, give the old files theirs again."""
    several = len(temporaries) > 1  # a single rename needs neither backups nor a plan
    with ExitStack() as passing:
        passing.enter_context(_alone(folder))
        backups: dict[Path, Path] = {}
        if several:
            for place in filter(Path.exists, temporaries):
                backup = _temporary(place)
                backups[place] = backup
                passing.enter_context(
                    _passing(backup, os.unlink, partial(_link, place))
                )
            due = {
                str(new.relative_to(folder)): str(old.relative_to(folder))
                for new, old in temporaries.items()
            }
            descriptor = passing.enter_context(
                _passing(folder / PLAN, os.unlink, _create)
            )
            with open(descriptor, "wb") as file:
                _fill(file, json.dumps(due).encode())
            _sync(folder)
        passing.enter_context(_TURN)
        begun: list[Path] = []
        try:
            for place, temporary in temporaries.items():
                begun.append(place)
                with _naming(place):
                    os.replace(temporary, place)
            for parent in {place.parent: None for place in temporaries}:
                _sync(parent)
        except BaseException:
            if several:
                _restore(begun, backups)
            raise


def _restore(places: list[Path], backups: Mapping[Path, Path]) -> None:
    for place in places:
        with suppress(OSError):  # the first error is the one to be told
            if place in backups:
                os.replace(backups[place], place)
            else:
                os.unlink(place)


def _place(folder: Path, path: Path) -> tuple[Path, os.stat_result | None]:
    """Return where a file of a folder really is, and what is there; refuse what is outside or is no
    file to replace.
    """
    place = Path(os.path.realpath(path))
    if not place.is_relative_to(folder):
        raise OSError(errno.EXDEV, "this leads out of its folder")
    try:
        before = os.lstat(place)
    except FileNotFoundError:
        return place, None
    if stat.S_ISLNK(before.st_mode):  # what is left of a circle of links
        raise _refusal(errno.ELOOP)
    if stat.S_ISDIR(before.st_mode):
        raise _refusal(errno.EISDIR)
    if not stat.S_ISREG(before.st_mode):
        raise OSError(errno.EEXIST, "this is not a regular file")
    if not os.access(place, os.W_OK):  # a rename would not ask
        raise _refusal(errno.EACCES)
    return place, before


def _refusal(code: int) -> OSError:
    """Return the error of the operating system; Python picks its class, such as PermissionError, by
    the code.
    """
    return OSError(code, os.strerror(code))


def _is_special(path: Path) -> bool:
    """Return whether this can only be written to: a device, a pipe, or the name of a file that is
    open here.
    """
    if _descriptor(path) is not None:
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def _open_special(path: Path) -> int:
    number = _descriptor(path)
    if number is None:
        return os.open(path, os.O_WRONLY | os.O_NOCTTY)
    return os.dup(number)  # which shares its position with whoever opened it


def _descriptor(path: Path) -> int | None:
    """Return the number of the open file that a path such as /dev/stdout stands for."""
    step = os.path.abspath(path)
    for _ in range(MOST_LINKS):
        folder, name = os.path.split(step)
        folder = os.path.realpath(folder)
        if folder in (f"/proc/{os.getpid()}/fd", "/dev/fd") and name.isdecimal():
            return int(name)
        step = os.path.join(folder, name)
        if not os.path.islink(step):
            return None
        step = os.path.join(folder, os.readlink(step))
    return None


def _temporary(path: Path) -> Path:
    """Return a name beside the path that nobody can guess."""
    return path.with_name(f".{path.name[:40]}.{os.urandom(8).hex()}.part")


def _is_due(folder: Path, place: Path, temporary: Path) -> bool:
    """Return whether this is a file with a name as `_temporary(place)` gives it, both of them
    inside the folder.
    """
    name = temporary.name
    start = f".{place.name[:40]}."
    end = ".part"
    named = (
        name.startswith(start)
        and name.endswith(end)
        and len(name) == len(start) + 16 + len(end)
    )
    if not named or temporary.parent != place.parent:
        return False
    try:
        at, _ = _place(folder, place)
        _, before = _place(folder, temporary)
    except OSError:
        return False
    return at == place and before is not None


def _create(path: Path, mode: int = 0o666) -> int:
    """Open a file that must not be there yet, not even as a link."""
    binary = getattr(os, "O_BINARY", 0)  # Windows would change line ends
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | binary, mode)


def _create_private(path: Path) -> int:
    """Open such a file for the owner alone, until it gets the permissions of the file that it will
    replace.
    """
    return _create(path, 0o600)


def _make_folder(path: Path) -> None:
    """Make a folder, unless another process just did."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not path.is_dir():
            raise


def _fill(file: IO[bytes], content: Content) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        content(file)
    file.flush()
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISREG(mode):
        os.fsync(file.fileno())


def _copy_rights(descriptor: int, before: os.stat_result) -> None:
    if os.name != "posix":
        return
    with suppress(PermissionError):  # only root gives files away
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _link(place: Path, backup: Path) -> None:
    """Give a file a second name, or copy it where the file system knows only one."""
    try:
        os.link(place, backup)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        shutil.copy2(place, backup)


def _sync(folder: Path) -> None:
    """Make the names in a folder last; some file systems cannot, and a folder that cannot be read
    is not opened.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process renames files of this folder, within reason; the lock ends with
    the process.
    """
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, PermissionError):
        yield
        return
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _passing(
    path: Path, undo: Callable[[Path], None], make: Callable[[Path], Made]
) -> Iterator[Made]:
    """Make something that is to be gone at the end; what has been renamed or filled by then stays."""
    try:
        with _TURN:
            _UNFINISHED[path] = undo
            made = make(path)
        yield made
    finally:
        with suppress(OSError):
            undo(path)
        with _TURN:
            _UNFINISHED.pop(path, None)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an OSError name the file that was asked for, in place of a temporary one or none."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        del error.filename2  # None would be shown as "-> None"
        raise
