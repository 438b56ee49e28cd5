"""Finished results on disk: OUT/results.sqlite, one committed row for each, keyed by the content of what was asked.

    key = sha256(name, profile, seed, config, version)

A row is written in one transaction, so that an interruption keeps everything finished and nothing half-finished.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ..errors import UserError

FILE = "results.sqlite"
FORMAT = 1  # of the database, in its user_version

_SCHEMA = """
CREATE TABLE results (
    key        TEXT PRIMARY KEY,
    experiment TEXT NOT NULL,
    asked      INTEGER NOT NULL,  -- grows with each request: the last one asked for is the one the report shows
    payload    TEXT NOT NULL      -- JSON
)
"""


def _plain(value: Any) -> object:
    return value.item()  # a NumPy or JAX scalar


def content_key(**content: object) -> str:
    """The same content, in any order, has the same key."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Store:
    """The rows of one database. Made by `open_store`."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection

    def __contains__(self, key: str) -> bool:
        return self._connection.execute("SELECT 1 FROM results WHERE key = ?", [key]).fetchone() is not None

    def add(self, key: str, experiment: str, payload: dict) -> None:
        with self._connection:
            self._connection.execute(
                "INSERT INTO results VALUES (?, ?, (SELECT coalesce(max(asked), 0) + 1 FROM results), ?)",
                [key, experiment, json.dumps(payload, default=_plain)],
            )

    def ask(self, key: str) -> None:
        """Let the report show this row rather than another of the same experiment."""
        with self._connection:
            self._connection.execute(
                "UPDATE results SET asked = (SELECT max(asked) + 1 FROM results) WHERE key = ?", [key]
            )

    def current(self) -> list[dict]:
        """The payload last asked for of each experiment, in the order of their names."""
        rows = self._connection.execute(
            "SELECT payload, max(asked) FROM results GROUP BY experiment ORDER BY experiment"
        )
        return [json.loads(payload) for payload, _ in rows]


@contextmanager
def open_store(out: Path, create: bool = True) -> Iterator[Store]:
    """The store in the folder `out`, which no other command can open at the same time."""
    if create:
        _make_folder(out)
    elif not (out / FILE).is_file():
        raise UserError(f"{out} has no {FILE}: it is not a folder that `proxlin reproduce` wrote.")
    with _locked(out), closing(sqlite3.connect(out / FILE)) as connection:
        try:
            _check_format(connection, out / FILE)
        except sqlite3.DatabaseError as error:
            raise UserError(f"{out / FILE} cannot be used ({error}); take another --out.") from error
        yield Store(connection)


def write_file(path: Path, content: bytes) -> None:
    """Write a whole file or nothing: into a temporary one beside it, which then takes its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be made ({error.strerror}); name a folder that can be written.") from error


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    import fcntl

    try:
        (out / ".lock").touch()
    except OSError as error:
        raise UserError(f"{out} cannot be written to ({error.strerror}); name another folder.") from error
    with open(out / ".lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another proxlin command is at work on {out}; wait for it or name another folder."
            ) from error
        yield


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    if empty:
        connection.executescript(f"BEGIN; {_SCHEMA}; PRAGMA user_version = {FORMAT}; COMMIT")
    elif found != FORMAT:
        raise UserError(f"{path} has format {found}, but this version of proxlin writes {FORMAT}; take another --out.")
