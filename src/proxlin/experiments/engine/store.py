"""Finished work on disk: OUT/results.sqlite, one committed row for each case and each experiment.

    key of a case = sha256(task, settings, version)

A row is written in one transaction, so that an interruption keeps everything finished and nothing
half-finished. A folder belongs to one request for each experiment: another profile, seed, config,
version or other data are refused.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...files.writing import PLAN, finish
from ...plots.svg import Foreign
from .records import (
    DAMAGED,
    case_row,
    finished_record,
    mapping,
    plain,
    request_of,
)

FILE = "results.sqlite"
FORMAT = 3  # the version of the tables, kept in the database as its user_version
WRITTEN = (
    FILE,
    f"{FILE}-journal",
    f"{FILE}-wal",
    f"{FILE}-shm",
    ".lock",
    "report.html",
    "cases.parquet",
    PLAN,
)
FOLDERS = ("tables", "figures", "timings")
# bytes; the longest text that we write holds the figures of a study, some 10^6
LONGEST = 2**26
# instructions of SQLite for one query; our longest takes ten for each case, of which there are
# thousands
WORK = 10**8
# of the table of cases, which has a column for each name and a row for each case; ours have some
# thirty columns, and a table with a million takes gigabytes
COLUMNS = 10_000
CELLS = 2**25
EVERY = 10**5  # instructions between two looks at that limit
# ends a journal that names another file, which SQLite would delete
MULTIPLE = bytes.fromhex("d9d505f920a163d7")
ROLLBACK = b"\x01\x01"  # bytes 18 and 19 of a database without a write-ahead log

_SCHEMA = """
CREATE TABLE experiments (
    name    TEXT PRIMARY KEY,
    request TEXT NOT NULL,     -- JSON: profile, seed, config, data, version
    payload TEXT               -- JSON of the finished result, NULL until then
);
CREATE TABLE cases (
    key        TEXT PRIMARY KEY,
    experiment TEXT NOT NULL,
    content    TEXT NOT NULL,  -- JSON: task and settings
    result     TEXT NOT NULL,  -- JSON
    run        TEXT NOT NULL   -- JSON: seconds, machine, revision, versions
)
"""


def content_key(**content: object) -> str:
    """Return a key that is the same for the same content, whatever its order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Store:
    """The rows of one database. `open_store` makes it."""

    def __init__(self, connection: sqlite3.Connection, path: Path):
        self._connection = connection
        self._path = path

    def begin(self, experiment: str, request: Mapping[str, object]) -> bool:
        """Claim the folder for this request; returns whether it is finished already. Another
        request is refused.
        """
        asked = json.dumps(request, sort_keys=True)
        rows = self._rows(
            "SELECT request, payload FROM experiments WHERE name = ?", experiment
        )
        if not rows:
            self._write(
                "INSERT INTO experiments VALUES (?, ?, NULL)", experiment, asked
            )
            return False
        ((found, payload),) = rows
        if found != asked:
            other = _difference(self._read(mapping, found), json.loads(asked))
            raise UserError(
                f"{self._path} holds {experiment} with another {other}; take another folder."
            )
        return payload is not None

    def finish(self, experiment: str, payload: dict) -> None:
        """Keep the record of a finished experiment."""
        text = json.dumps(payload, default=plain)
        self._write(
            "UPDATE experiments SET payload = ? WHERE name = ?", text, experiment
        )

    def finished(self) -> list[dict]:
        """Return the record of each finished experiment, in the order of their names."""
        rows = self._rows(
            "SELECT payload FROM experiments WHERE payload IS NOT NULL ORDER BY name"
        )
        return [self._read(finished_record, payload) for (payload,) in rows]

    def requests(self) -> dict[str, dict]:
        """Return what was asked of each experiment, finished or not, in the order of their names."""
        rows = self._rows("SELECT name, request FROM experiments ORDER BY name")
        return {name: self._read(request_of, request) for name, request in rows}

    def first(self, experiment: str, count: int) -> list[tuple[str, dict, dict]]:
        """Return the key, the content and the result of the cases that were finished first."""
        rows = self._rows(
            "SELECT key, content, result FROM cases WHERE experiment = ? ORDER BY rowid LIMIT ?",
            experiment,
            count,
        )
        return [
            (key, self._read(mapping, content), self._read(mapping, result))
            for key, content, result in rows
        ]

    def case(self, key: str) -> dict | None:
        """Return the result of a case, None if it is not finished."""
        for (result,) in self._rows("SELECT result FROM cases WHERE key = ?", key):
            return self._read(mapping, result)
        return None

    def add_case(
        self, key: str, experiment: str, content: dict, result: dict, run: dict
    ) -> None:
        """Keep a finished case; one that is there already stays as it is."""
        texts = [
            json.dumps(part, sort_keys=True, default=plain)
            for part in (content, result, run)
        ]
        self._write(
            "INSERT OR IGNORE INTO cases VALUES (?, ?, ?, ?, ?)",
            key,
            experiment,
            *texts,
        )

    def cases(self) -> list[dict]:
        """Return every case as one flat row: experiment, key, settings, result and run, in the
        order of the keys. More than `COLUMNS` names or `CELLS` cells are refused.
        """
        rows = self._rows(
            "SELECT key, experiment, content, result, run FROM cases ORDER BY key"
        )
        cases = [self._read(case_row, *row) for row in rows]
        columns = len({name for case in cases for name in case})
        if columns > COLUMNS or columns * len(cases) > CELLS:
            raise UserError(
                f"{self._path} holds {len(cases):,} cases with {columns:,} names of settings and results, and their "
                f"table may have {COLUMNS:,} columns and {CELLS:,} cells; take another folder."
            )
        return cases

    def _write(self, query: str, *values: str) -> None:
        with self._connection:
            self._connection.execute(query, values)

    def _rows(self, query: str, *values: str | int) -> list[tuple]:
        try:
            _limited(self._connection)
            return self._connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"{self._path} is damaged ({error}); take another folder."
            ) from error

    def _read(self, parse: Callable[..., dict], *texts: Any) -> dict:
        """Return what `parse` makes of some texts of the database, which may come from elsewhere."""
        try:
            return parse(*texts)
        except Foreign as error:
            raise UserError(
                f"{self._path} holds a figure with {error}, which no figure of proxlin has; take another folder."
            ) from error
        except DAMAGED as error:
            raise UserError(
                f"{self._path} holds a result that is damaged; take another folder."
            ) from error


def _difference(found: dict, asked: dict) -> str:
    """Return what differs, in words: "profile (quick, not paper)", or "config"."""
    differs = lambda name: found.get(name) != asked.get(name)
    for name in ("version", "profile", "seed"):
        if differs(name):
            return f"{name} ({found.get(name)}, not {asked.get(name)})"
    if differs("data") and not differs("config"):
        return f"set of data than {', '.join(asked.get('data', ()))}"
    return "config"


@contextmanager
def open_store(out: Path, create: bool = True) -> Iterator[Store]:
    """Open the store in the folder `out`, which no other command can open at the same time."""
    if create:
        _make_folder(out)
    elif not (out / FILE).is_file():
        raise UserError(
            f"{out} has no {FILE}: it is not a folder that `proxlin reproduce` wrote."
        )
    _check_folder(out)
    finish(out)
    with _locked(out), closing(sqlite3.connect(out / FILE)) as connection:
        try:
            _guard(connection)
            _check_format(connection, out / FILE)
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"{out / FILE} cannot be used ({error}); take another folder."
            ) from error
        yield Store(connection, out / FILE)


def _make_folder(out: Path) -> None:
    """Make the folder unless it is there."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; name a folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{out} cannot be made ({error.strerror}); name a folder that can be written."
        ) from error


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the lock of a folder, which ends with this process however that ends."""
    import fcntl

    try:
        (out / ".lock").touch()
    except OSError as error:
        raise UserError(
            f"{out} cannot be written to ({error.strerror}); name another folder."
        ) from error
    with open(out / ".lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another proxlin command is at work on {out}; wait for it or name another folder."
            ) from error
        yield


def _check_folder(out: Path) -> None:
    """Refuse a folder in which a name that is read or written here stands for something else than a
    file of its own.

    A pipe would hang, and a link would have another file written. If SQLite finds a journal of
    several databases it deletes a file that the journal names; ours is never one of several, and
    has no write-ahead log.
    """
    folders = [out / name for name in FOLDERS]
    files = [out / name for name in WRITTEN]
    files += [
        path for folder in folders if folder.is_dir() for path in folder.iterdir()
    ]
    for path in [*folders, *files]:
        if path.is_symlink() and not _leads_into(path, out):
            raise UserError(
                f"{path} is a link out of the folder; remove it, or name another folder."
            )
    unusual = [path for path in folders if path.exists() and not path.is_dir()]
    unusual += [path for path in files if path.exists() and not path.is_file()]
    for path in unusual:
        raise UserError(
            f"{path} is not what proxlin writes there; remove it, or name another folder."
        )
    if _bytes_at(out / f"{FILE}-journal", -len(MULTIPLE), len(MULTIPLE)) == MULTIPLE:
        raise UserError(
            f"{out / FILE}-journal names a file to delete; remove the journal, or name another folder."
        )
    if _bytes_at(out / FILE, 18, 2) not in (b"", ROLLBACK):
        raise UserError(
            f"{out / FILE} is not a database that proxlin wrote; name another folder."
        )


def _leads_into(path: Path, folder: Path) -> bool:
    """Tell whether a link ends inside the folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a link to itself
        return False


def _bytes_at(path: Path, start: int, count: int) -> bytes:
    """Return some bytes of a file, from its end if `start` is negative; none if it is missing or
    shorter.
    """
    if not path.exists() or path.stat().st_size < max(-start, start + count):
        return b""
    origin = os.SEEK_END if start < 0 else os.SEEK_SET
    with path.open("rb") as file:
        file.seek(start, origin)
        return file.read(count)


def _guard(connection: sqlite3.Connection) -> None:
    """Let SQLite believe nothing of the schema and refuse texts that are too long."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)


def _limited(connection: sqlite3.Connection) -> None:
    """Interrupt the query that comes next after `WORK` instructions."""
    left = iter(range(WORK // EVERY))
    connection.set_progress_handler(lambda: next(left, None) is None, EVERY)


def _schema(connection: sqlite3.Connection) -> list[tuple]:
    """Return everything that a database declares."""
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    ).fetchall()


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Make our tables in an empty database, and refuse one that has others."""
    _limited(connection)
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    schema = _schema(connection)
    if not schema:
        connection.executescript(
            f"BEGIN; {_SCHEMA}; PRAGMA user_version = {FORMAT}; COMMIT"
        )
        return
    if found != FORMAT:
        raise UserError(
            f"{path} has format {found}, but this version of proxlin writes {FORMAT}; take another folder."
        )
    with closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(_SCHEMA)
        if schema != _schema(ours):
            raise UserError(
                f"{path} has other tables than proxlin writes; take another folder."
            )
