"""The commands of `proxlin`, by typer: each has a file of its own, and a line here.

A command imports what it needs when it runs: `--help` must not wait for JAX.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Annotated

import typer

from .. import __version__
from ..errors import UserError, install_command
from .advise import advise
from .bench import bench
from .data import app as data
from .fit import fit
from .predict import predict
from .report import report
from .reproduce import reproduce

# a module of each extra that commands use, and what they use it for
EXTRAS = {
    "experiments": ("matplotlib", "`fit`, `reproduce` and `report`, with figures"),
    "sklearn": ("sklearn", "`data get` of LIBSVM files"),
    "cluster": ("distributed", "`reproduce --engine dask`"),
}


def _not_installed() -> str | None:
    """Return how to install the extras that are missing, for the end of the help."""
    lines = [
        f"Not installed, for {use}: {install_command(extra)}"
        for extra, (module, use) in EXTRAS.items()
        if find_spec(module) is None
    ]
    # an empty line between two, or they become one paragraph
    return "\n\n".join(lines) or None


app = typer.Typer(
    help="Nonsmooth composite optimization: Gauss-Newton or SGD, under your noise?",
    epilog=_not_installed(),
    pretty_exceptions_enable=False,
)
app.add_typer(data, name="data")
app.command(epilog="Example: proxlin advise table.csv --target price")(advise)
app.command(
    epilog="Example: proxlin fit table.csv --target price --target area --out fit"
)(fit)
app.command(
    epilog="Example: proxlin predict fit/model.npz new.csv --out predictions.csv"
)(predict)
app.command(epilog="Example: proxlin reproduce all --profile quick --out results")(
    reproduce
)
app.command(epilog="Example: proxlin report results")(report)
app.command(epilog="Example: proxlin bench --only steps")(bench)


def run(arguments: Sequence[str]) -> int:
    """Run a command; return the exit code. Errors of usage become the one sentence that any other
    UserError is.
    """
    try:
        return (
            app(
                list(arguments) or ["--help"],
                prog_name="proxlin",
                standalone_mode=False,
            )
            or 0
        )
    except typer.TyperException as error:
        raise UserError(_ended(error.format_message())) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise UserError(f"{error.filename}: {error.strerror}.") from error


def _ended(sentence: str) -> str:
    """End a sentence with one mark.

    >>> _ended("No such command 'fitt'. Did you mean 'fit'?")
    "No such command 'fitt'. Did you mean 'fit'?"
    """
    sentence = sentence.rstrip(".")
    if sentence.endswith(("?", "!")):
        return sentence
    return f"{sentence}."


def _print_version(asked: bool | None) -> None:
    if asked:
        print(f"proxlin {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version",
            help="Print the version.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass
