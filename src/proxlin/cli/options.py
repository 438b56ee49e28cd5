"""What several commands share: options, the sentence that refuses each, and notes on the standard
error.
"""

import os
import shlex
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError, printable

if TYPE_CHECKING:
    from ..data.frames import Frame
    from ..data.parts import AbstractParts

PARQUET = (".parquet", ".pq")
WIDEST = 100_000  # hidden units; more is a slip of the hand

Table = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A table with named columns: CSV or TSV, also gzipped, Excel, Parquet, Arrow, Feather or ARFF; fit and "
        "predict take a folder of Parquet files too.",
    ),
]
Target = Annotated[
    list[str], typer.Option(help="A column to predict (may be repeated).")
]
Decimal = Annotated[
    str, typer.Option(help="What stands before decimals: a point or a comma.")
]
Thousands = Annotated[
    str | None,
    typer.Option(
        help="What stands between thousands: a comma, a point, a space or an apostrophe."
    ),
]
Sheet = Annotated[
    str | None,
    typer.Option(help="Sheet of an Excel workbook, by its name or number."),
]
Category = Annotated[
    list[str] | None,
    typer.Option(help="A column whose cells are names, not numbers (may be repeated)."),
]
Hidden = Annotated[
    int,
    typer.Option(help="Width of the hidden layer of tanh units; 0: a linear model."),
]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print nothing but the answer and errors.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def check_seed(seed: int) -> None:
    """Refuse a seed that JAX would cut."""
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed {seed}: take a number from 0 to {2**31 - 1}.")


def check_hidden(hidden: int) -> None:
    """Refuse a width that no table needs."""
    if not 0 <= hidden <= WIDEST:
        raise UserError(f"--hidden {hidden}: take a width from 0 to {WIDEST}.")


def check_one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a name that is not among those known."""
    if value not in known:
        raise UserError(f"{option} {value}: take one of {', '.join(known)}.")


def check_numerals(decimal: str, thousands: str | None) -> None:
    """Refuse signs that no number is written with."""
    if decimal not in (".", ","):
        raise UserError(f"--decimal {shlex.quote(decimal)}: take a point or a comma.")
    if thousands is not None and thousands not in (",", ".", " ", "'"):
        raise UserError(
            f"--thousands {shlex.quote(thousands)}: take a comma, a point, a space or an apostrophe."
        )
    if decimal == thousands:
        raise UserError(
            f"--decimal and --thousands are both {decimal}; one of them is another sign."
        )


def read_table(
    file: Path,
    decimal: str,
    thousands: str | None,
    sheet: str | None,
    categories: Collection[str],
) -> "Frame":
    """Read the table; a sentence that tells of an argument names the option."""
    from ..data.frames import NeedsArgument, read_frame

    try:
        return read_frame(file, decimal, thousands, sheet, categories)
    except NeedsArgument as error:
        raise UserError(error.sentence(as_option)) from error


def read_in_parts(
    file: Path, categories: Collection[str]
) -> "Frame | AbstractParts | None":
    """Return a folder of Parquet files, or a Parquet file too large for memory, in parts; None for any
    other table.
    """
    from ..tables.fitted import in_parts

    if not file.is_dir() and file.suffix.lower() not in PARQUET:
        return None
    return in_parts(file, categories)


def check_apart(out: Path, written: Path, read: Mapping[str, Path]) -> None:
    """Refuse to write a file over one that is read, also by another name of it; a folder that is
    read stands for its Parquet files.
    """
    if not os.path.isfile(written):  # nothing is replaced
        return
    for what, path in read.items():
        files = [path]
        if os.path.isdir(path):
            files = [each for each in path.rglob("*") if each.suffix.lower() in PARQUET]
        for each in files:
            if os.path.isfile(each) and os.path.samefile(each, written):
                raise UserError(
                    f"--out {out} would replace {each}, {what}; name another place."
                )


def as_option(name: str, value: str) -> str:
    """Write an argument as a shell takes it.

    >>> as_option("thousands", " ")
    "--thousands ' '"
    """
    return f"--{name} {shlex.quote(value)}"


def print_notes(notes: list[str]) -> None:
    """Print what a reader should know on the standard error, a line each."""
    for note in notes:
        print(printable(f"Note: {note}."), file=sys.stderr)
