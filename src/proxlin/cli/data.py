"""`proxlin data list | get | make | check`: which data sets are there, and from where."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..errors import UserError, printable
from .options import Debug

app = typer.Typer(
    help="Data sets: what is there, downloads and files into the cache, synthetic stand-ins."
)
Name = Annotated[
    str, typer.Argument(help="The name of a data set; `proxlin data list` shows them.")
]
SILENCE = 30.0  # seconds
SHORTEST, LONGEST = 0.1, 3600.0  # seconds of --timeout


@app.command("list", epilog="Example: proxlin data list")
def list_all(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list as JSON.")
    ] = False,
    debug: Debug = False,
) -> int:
    """The data sets by name: what they hold, where they are, where they came from, their size and
    licence.
    """
    from ..data import catalog

    rows = [_row(name) for name in catalog.REMOTES]
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        where = f"not here: proxlin data get {row['name']}"
        size = f"~{_megabytes(row['download_bytes'])}"
        if row["where"]:
            where = f"in {row['where']}, from {row['source']}"
            size = _megabytes(row["bytes"])
        line = f"{row['name']:11s} {row['holds']:29s} {size:>9s}  {row['licence']:18s}  {where}"
        print(printable(line))
    return 0


@app.command(epilog="Example: proxlin data get ijcnn1")
def get(
    name: Name,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL|FILE",
            help="Another address of the file, or a file that is here; a LIBSVM file may be text, bz2, gz or xz.",
        ),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option(help="The checksum that the file must have."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="Seconds without a byte after which a server is given up.",
        ),
    ] = SILENCE,
    debug: Debug = False,
) -> int:
    """Download a data set, check it, read it once and keep it in the cache, with its test set if it
    has one. A file in PROXLIN_DATA is taken before the network is asked.
    """
    if not SHORTEST <= timeout <= LONGEST:
        raise UserError(
            f"--timeout {timeout:g}: take seconds from {SHORTEST:g} to {LONGEST:g}."
        )
    fetch(name, source, sha256, timeout)
    return 0


@app.command(epilog="Example: proxlin data make ijcnn1")
def make(name: Name, debug: Debug = False) -> int:
    """Write the synthetic stand-in of a data set, the arrays x and y, as an .npz file in the cache."""
    from ..data import cache
    from ..data import classification as data

    made = data.synthetic(name)
    path = cache.store(f"synthetic/{name}", {"x": made.x, "y": made.y})
    print(
        printable(f"{name}: {len(made):,d} x {made.columns} {made.source}, in {path}.")
    )
    return 0


@app.command(epilog="Example: proxlin data check")
def check(debug: Debug = False) -> int:
    """Compare the files in PROXLIN_DATA with their checksums, and see whether the cache can be
    read.
    """
    from ..data import cache, catalog
    from ..data import classification as data

    faults = []
    for name in data.SOURCES:
        path = data.in_data_folder(name)
        if path is not None and not data.is_usual(name, path, cache.sha256(path)):
            faults.append(f"{path}: its SHA-256 is not that of {name}")
        kept = data.entry(name)
        where = catalog.place(name).where
        line = f"{name:10s} {f'in {where}' if where else 'not here'}"
        if kept.exists() and where != catalog.CACHE:
            line += f"; {kept} is old or damaged and will be rebuilt"
        print(printable(line))
    if faults:
        raise UserError(f"{'; '.join(faults)}.")
    return 0


def fetch(name: str, source: str | None, sha256: str | None, timeout: float) -> None:
    """Get a data set and its test set, with a bar on a terminal, and say what was checked."""
    from ..data import catalog

    done: list[str] = []
    try:
        with _bar() as (say, watch):
            settings: dict[str, Any] = {"say": say, "watch": watch, "silence": timeout}
            done.append(catalog.get(name, source, sha256, **settings))
            test = catalog.test_of(name, source)
            if test is not None:
                done.append(_beside(test, source is not None, settings))
    finally:
        for sentence in filter(None, done):  # after the bar, which would fold them
            print(printable(sentence))


def _beside(
    test: tuple[str, str | None], is_guess: bool, settings: dict[str, Any]
) -> str:
    """Get a test set; where its place is only a guess, its absence is a note."""
    from ..data import catalog

    try:
        return catalog.get(*test, **settings)
    except UserError as error:
        if not is_guess:
            raise
        reason = str(error).rstrip(".")
        settings["say"](
            f"its test set is not beside it ({reason}); `proxlin data get {test[0]}` looks for it elsewhere"
        )
        return ""


@contextmanager
def _bar() -> Iterator[tuple[Callable[[str], None], Callable[[int, int | None], None]]]:
    """Yield what takes a line and what takes the bytes that are here, both for the standard error."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        SpinnerColumn(),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, highlight=False)
    seen = console.is_terminal
    with Progress(
        *columns, console=console, transient=True, disable=not seen
    ) as progress:
        task = progress.add_task("", total=None, visible=False)

        def say(text: str) -> None:
            line = printable(f"{text[:1].upper()}{text[1:]}.")
            if seen:
                console.print(line, markup=False, soft_wrap=True)
            else:
                print(line, file=sys.stderr, flush=True)

        def watch(here: int, total: int | None) -> None:
            progress.update(task, completed=here, total=total, visible=True)

        yield say, watch


def _row(name: str) -> dict[str, Any]:
    """Return what is to be said of a data set."""
    from ..data import catalog

    remote = catalog.known(name)
    found = catalog.place(name)
    return {
        "name": name,
        "holds": catalog.shape(name),
        "where": found.where,
        "path": str(found.path or ""),
        "bytes": found.size,
        "source": found.source,
        "download": list(remote.addresses),
        "download_bytes": remote.size,
        "licence": remote.licence,
        "page": remote.page,
    }


def _megabytes(count: int) -> str:
    """Return a size in MB, as the networks count."""
    if count < 1e5:
        return f"{count / 1e3:.1f} kB"
    if count < 1e8:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e6:.0f} MB"
