"""Files that are read: what is no ordinary file is refused before it is opened, since it may hang
or never end.
"""

import os
import re
import stat
from pathlib import Path

from ..errors import UserError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe with a name",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# a shell writes <(command) as /dev/fd/63
OPEN_PIPES = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
CHUNK = 2**20  # bytes read from a pipe at a time


def as_path(path: object) -> Path:
    """Return what the caller named as a path, or say what it is instead."""
    if not isinstance(path, str | os.PathLike):
        from ..checks import described

        raise TypeError(f"path must be the name of a file; it is {described(path)}.")
    return Path(path)


def check_readable(path: Path) -> None:
    """Raise a UserError unless the path is that of an ordinary file with something in it.

    The files of /proc say that they are empty; some of them never end.
    """
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file.") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise UserError(f"{path} cannot be read ({reason(error)}).") from error
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        raise UserError(
            f"{path} is {KINDS.get(kind, 'no file')}; name an ordinary file."
        )
    if not found.st_size:
        raise UserError(f"{path} is empty.")


def is_open_pipe(path: Path) -> bool:
    """Return whether a command writes there: `command | proxlin ... /dev/stdin`, or `proxlin ...
    <(command)`.
    """
    return OPEN_PIPES.fullmatch(str(path)) is not None and path.is_fifo()


def read_pipe(path: Path, share: int) -> bytes:
    """Read a pipe to its end; a UserError where the content, taken `share` times, would not fit
    into memory.
    """
    free = free_memory()
    content = bytearray()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            content += chunk
            if share * len(content) > free:
                raise UserError(
                    f"{path} gives more than the {free / 2**30:.1f} GiB of free memory can hold."
                )
    return bytes(content)


def free_memory() -> int:
    """Return the bytes of memory that no process uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def reason(error: Exception) -> str:
    """Return why a file could not be read, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
