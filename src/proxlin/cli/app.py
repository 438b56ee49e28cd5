"""The commands of `proxlin`, by typer: each has a file of its own, and a line here.

A command imports what it needs when it runs: `--help` must not wait for JAX.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from .. import __version__
from ..errors import UserError
from .advise import advise
from .bench import bench
from .data import app as data
from .fit import fit
from .predict import predict
from .report import report
from .reproduce import reproduce

app = typer.Typer(
    help="Nonsmooth composite optimization: Gauss-Newton or SGD, under your noise?",
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
