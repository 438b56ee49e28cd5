"""`proxlin predict MODEL FILE`: the targets of a fitted model for each row of a table."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError, printable
from ..files.writing import check_writable, write_file
from .options import (
    Debug,
    Decimal,
    Json,
    Quiet,
    Sheet,
    Table,
    Thousands,
    check_numerals,
    print_notes,
    read_table,
)

if TYPE_CHECKING:
    import numpy as np


def predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="model.npz, as `proxlin fit` wrote it."),
    ],
    file: Table,
    out: Annotated[
        Path | None,
        typer.Option(help="A CSV file to write, in place of the standard output."),
    ] = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    sheet: Sheet = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Predict the targets of a fitted model for each row of a table, as CSV."""
    check_numerals(decimal, thousands)
    if out is not None:
        if out.is_dir():
            raise UserError(f"--out {out} is a folder; name a file.")
        check_writable(out)
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()
    from ..files.programs import keep_programs

    keep_programs()
    from ..plots.pages import formula
    from ..tables.model import load_model

    loaded = load_model(model)
    categories = loaded.encoder.categories
    frame = read_table(file, decimal, thousands, sheet, categories)
    values, notes = loaded.predict(frame)
    names = loaded.asked.targets
    if as_json:
        text = (
            json.dumps([dict(zip(names, row, strict=True)) for row in values.tolist()])
            + "\n"
        )
    else:
        text = _csv(names, values)
        for name in names:
            if formula(name):
                notes.append(
                    f"the column {name!r} is a formula to a spreadsheet; import it as text"
                )
    if not quiet:
        print_notes(notes)
    if out is not None:
        write_file(out, text.encode())
        return 0
    # a terminal is to obey nothing in a header; a pipe or a file gets it as it is
    if sys.stdout.isatty():
        text = printable(text, keep="\n")
    print(text, end="")
    return 0


def _csv(names: tuple[str, ...], values: "np.ndarray") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(values.tolist())
    return text.getvalue()
