"""Downloads: pooch gives a file its name once it is whole, and one that was cut off goes on where it
ended.

    address -> KEY.part, more of it at each try -> checksum -> KEY-NAME

A `.part` goes on only if the server says that the file is still the one that was begun (If-Range, with
its ETag or its date). Everything is in one folder for each data set, and one process at a time works
in it.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UserError, require

CONNECT = 15.0  # seconds for a server to take a connection
SILENCE = 30.0  # seconds without a byte after which a server is given up
TRIES = 5  # of one address, as long as each of them brings more of the file
CHUNK = 2**16  # bytes
RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")

# what is told of the way: the bytes that are here, and all of them if the server said
Watch = Callable[[int, int | None], Any]


class CutOff(UserError):
    """A server that began to send stopped before the end."""


def is_address(text: str) -> bool:
    """Return whether this is a URL, and not the path of a file.

    >>> is_address("https://example.org/a.bz2"), is_address("folder/a.bz2")
    (True, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def beside(address: str, name: str) -> str:
    """Return the address of another file of the same folder.

    >>> beside("https://example.org/data/a.bz2?version=1", "a.t.bz2")
    'https://example.org/data/a.t.bz2'
    """
    return f"{address.partition('?')[0].rpartition('/')[0]}/{name}"


def download(
    address: str,
    folder: Path,
    sha256: str | None = None,
    watch: Watch = lambda here, total: None,
    silence: float = SILENCE,
) -> Path:
    """Return the file of an address, in the folder; a UserError says why there is none.

    A file that is there already is not asked for again.
    """
    if not address.startswith(("http://", "https://")):
        raise UserError(f"{address}: only http and https addresses can be downloaded.")
    pooch = require("pooch", "cli")
    pooch.get_logger().setLevel("ERROR")
    hash_wanted = None
    if sha256:
        hash_wanted = f"sha256:{sha256.lower()}"
    try:
        found = pooch.retrieve(
            address,
            known_hash=hash_wanted,
            fname=f"{_key(address)}-{_name(address)}",
            path=folder,
            downloader=partial(_fetch, watch=watch, silence=silence),
        )
    except UserError:
        raise
    except ValueError as error:  # pooch's, of a checksum
        raise UserError(
            f"{address}: the SHA-256 of the file is not {sha256}, so it was deleted."
        ) from error
    return Path(found)


@contextmanager
def alone(folder: Path, say: Callable[[str], Any]) -> Iterator[None]:
    """Wait until no other process works in this folder, and make it; the lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        told = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    say(f"another process is at work in {folder}; waiting for it")
                told = True
                time.sleep(0.1)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)


def _fetch(
    address: str, output: str, pooch: object, watch: Watch, silence: float
) -> None:
    """Bring a file to `output`: what pooch calls a downloader."""
    part = Path(output).with_name(f"{_key(address)}.part")
    for tries in range(1, TRIES + 1):
        before = _size(part)
        try:
            _ask(address, part, watch, silence)
            break
        except CutOff:
            now = _size(part)
            begins_again = before > 0 and now == 0
            if tries == TRIES or not (now > before or begins_again):
                raise
    os.replace(part, output)
    _tag(part).unlink(missing_ok=True)


def _ask(address: str, part: Path, watch: Watch, silence: float) -> None:
    """Ask once for what is missing, and add it to the part."""
    requests = require("requests", "cli")
    http = require("urllib3", "cli").exceptions
    headers = {
        "User-Agent": f"proxlin/{__version__}",
        # packed by the server on its way, a part of a file would be a part of nothing
        "Accept-Encoding": "identity",
    }
    here = _size(part)
    if here and _tag(part).is_file():
        headers["Range"] = f"bytes={here}-"
        headers["If-Range"] = _tag(part).read_text()
    try:
        with requests.get(
            address, headers=headers, stream=True, timeout=(CONNECT, silence)
        ) as answer:
            start, total = _begin(answer, address, part, here)
            _receive(answer, part, start, total, watch)
    except (requests.Timeout, http.ReadTimeoutError) as error:
        if isinstance(error, requests.ConnectTimeout):
            raise UserError(
                f"{address} was not reached within {CONNECT:g} seconds."
            ) from error
        raise CutOff(
            f"{address} sent nothing for {silence:g} seconds{_hint(part)}."
        ) from error
    except requests.exceptions.ProxyError as error:
        raise UserError(f"{address} was not reached through the proxy.") from error
    except requests.exceptions.SSLError as error:
        raise UserError(f"{address} has no certificate to trust.") from error
    except (requests.ConnectionError, http.ProtocolError) as error:
        if _size(part) > 0:
            raise CutOff(
                f"{address} ended the connection after {_size(part):,d} bytes{_hint(part)}."
            ) from error
        raise UserError(f"{address} cannot be reached.") from error
    except (requests.RequestException, http.HTTPError) as error:
        raise UserError(f"{address} cannot be had ({_first_line(error)}).") from error


def _begin(answer: Any, address: str, part: Path, here: int) -> tuple[int, int | None]:
    """Return where the bytes of an answer belong, and how many the file has, if that is known."""
    code = answer.status_code
    found = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if code == 206 and found and int(found[1]) == here:
        return here, int(found[2])
    if code in (206, 416):  # it has other parts than ours: begin again at the next try
        part.unlink(missing_ok=True)
        raise CutOff(f"{address} has another file now than the one that was begun.")
    if code != 200:
        raise UserError(f"{address} answered {code} ({answer.reason or 'no reason'}).")
    # the whole file, because it is the first time, or another one now, or no part can be had
    part.unlink(missing_ok=True)
    _tag(part).unlink(missing_ok=True)
    tag = answer.headers.get("ETag", "")
    if not tag.startswith('"'):  # a weak one does not promise the same bytes
        tag = answer.headers.get("Last-Modified", "")
    if tag:
        # not as a whole: the half of a tag is no tag, and the file begins again
        _tag(part).write_bytes(tag.encode("latin-1"))
    length = answer.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _receive(
    answer: Any, part: Path, start: int, total: int | None, watch: Watch
) -> None:
    """Write the bytes of an answer behind those that are here."""
    here = start
    watch(here, total)
    with part.open("ab") as file:
        for chunk in answer.raw.stream(CHUNK, decode_content=False):
            file.write(chunk)
            here += len(chunk)
            watch(here, total)
    if total is not None and here != total:
        raise CutOff(
            f"{answer.url} ended after {here:,d} of {total:,d} bytes{_hint(part)}."
        )


def _hint(part: Path) -> str:
    """Return what to do if more of a file can be had later."""
    if _size(part) and _tag(part).is_file():
        return ", and the same command goes on from there"
    return ""


def _key(address: str) -> str:
    """Return a name for what comes from an address: two mirrors may have other bytes."""
    return hashlib.sha256(address.encode()).hexdigest()[:12]


def _name(address: str) -> str:
    """Return a name for a person who looks into the folder."""
    last = address.partition("?")[0].rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]", "_", last)[-60:] or "file"


def _tag(part: Path) -> Path:
    return part.with_suffix(".tag")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
