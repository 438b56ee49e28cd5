"""What several commands share: options, the sentence that refuses each, and notes on the standard
error.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError, printable

WIDEST = 100_000  # hidden units; more is a slip of the hand

Table = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="A CSV, TSV, Parquet or ARFF file with named columns."
    ),
]
Target = Annotated[
    list[str], typer.Option(help="A column to predict (may be repeated).")
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


def print_notes(notes: list[str]) -> None:
    """Print what a reader should know on the standard error, a line each."""
    for note in notes:
        print(printable(f"Note: {note}."), file=sys.stderr)
