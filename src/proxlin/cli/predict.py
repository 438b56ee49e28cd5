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
    interval: Annotated[
        float | None,
        typer.Option(
            help="Add the ends of a band that holds a new row with this probability, such as 0.9."
        ),
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
    if interval is not None and not 0 < interval < 1:
        raise UserError(f"--interval {interval:g} is not between 0 and 1.")
    if out is not None:
        if out.is_dir():
            raise UserError(f"--out {out} is a folder; name a file.")
        check_writable(out)
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()
    from ..files.programs import keep_programs

    keep_programs()
    import numpy as np

    from ..plots.pages import formula
    from ..tables.fitted import load_fit

    loaded = load_fit(model)
    frame = read_table(file, decimal, thousands, sheet, loaded.categories)
    try:
        columns, notes = loaded.columns(frame, interval)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"--interval {interval:g}: {error}") from error
    names = tuple(columns)
    values = np.stack(list(columns.values()), axis=1)
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
