"""`proxlin data list | get | make | check`: which data sets are there, and from where."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError, printable
from .options import Debug

PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"

app = typer.Typer(
    help="Data sets: what is there, reading files into the cache, synthetic stand-ins."
)
Name = Annotated[
    str, typer.Argument(help="The name of a data set; `proxlin data list` shows them.")
]


@app.command("list", epilog="Example: proxlin data list")
def list_all(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list as JSON.")
    ] = False,
    debug: Debug = False,
) -> int:
    """The data sets by name, their shapes, and where they are."""
    from ..data import classification as data

    if as_json:
        rows = [
            {
                "name": name,
                "rows": source.rows,
                "columns": source.columns,
                "where": _where(name),
            }
            for name, source in data.SOURCES.items()
        ]
        print(json.dumps(rows, indent=1))
        return 0
    for name, source in data.SOURCES.items():
        print(
            printable(
                f"{name:10s} {source.rows:>7,d} x {source.columns:<4d} {_where(name)}"
            )
        )
    return 0


@app.command(epilog="Example: proxlin data get ijcnn1 --from ijcnn1.bz2")
def get(
    name: Name,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="A LIBSVM file: text, bz2, gz, xz."
        ),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option(help="The checksum of a file that is not the usual one."),
    ] = None,
    debug: Debug = False,
) -> int:
    """Check a file, read it once and keep it in the cache; its test set is taken along if it lies
    beside it.
    """
    from ..data import classification as data

    data.known(name)
    path = file or data.in_data_folder(name)
    if path is None:
        raise UserError(
            f"there is no {name} in PROXLIN_DATA: get it from {PAGE} and give it as --from FILE."
        )
    _keep(name, path, sha256)
    test = data.TESTS.get(name)
    if test:
        beside = path.with_name(Path(data.known(test).file).name)
        if beside.is_file():
            _keep(test, beside, None)
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
    from ..data import cache
    from ..data import classification as data

    faults = []
    for name, source in data.SOURCES.items():
        path = data.in_data_folder(name)
        if path is not None and cache.sha256(path) != source.sha256:
            faults.append(f"{path}: its SHA-256 is not that of {name}")
        kept = data.entry(name)
        line = f"{name:10s} {_where(name)}"
        if kept.exists() and data.cached(name) is None:
            line += f"; {kept} is old or damaged and will be rebuilt"
        print(printable(line))
    if faults:
        raise UserError(f"{'; '.join(faults)}.")
    return 0


def _where(name: str) -> str:
    """Return where a data set comes from: the cache, a folder, or nowhere yet."""
    from ..data import classification as data

    if (found := data.cached(name)) is not None:
        return f"in the cache, {data.origin(name, found[1])}"
    if (path := data.in_data_folder(name)) is not None:
        return f"in PROXLIN_DATA, {path}"
    return f"synthetic, until `proxlin data get {name} --from FILE`"


def _keep(name: str, path: Path, sha256: str | None) -> None:
    """Read a file into the cache, and say so."""
    from rich.console import Console
    from rich.markup import escape

    from ..data import classification as data

    said = escape(printable(f"checking and reading {path}"))
    with Console(stderr=True).status(said):  # the parser says nothing on its way
        table = data.get(name, path, sha256)
    print(
        printable(
            f"{name}: {len(table):,d} x {table.width} from {path}, in {data.entry(name)}."
        )
    )
