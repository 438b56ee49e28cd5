"""`proxlin predict MODEL FILE`: the targets of a fitted model for each row of a table."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
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
    check_apart,
    check_numerals,
    print_notes,
    read_in_parts,
    read_table,
)

if TYPE_CHECKING:
    import numpy as np

    from ..data.frames import Frame
    from ..tables.fitted import Fit


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
        check_apart(out, out, {"the model": model, "the table": file})
        check_writable(out)
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()
    from ..files.programs import keep_programs

    keep_programs()
    from ..data.parts import AbstractParts
    from ..tables.fitted import load_fit, said_once, whole_chunk

    loaded = load_fit(model)
    given = read_in_parts(file, loaded.categories)
    if given is None:
        given = read_table(file, decimal, thousands, sheet, loaded.categories)
    notes: list[str] = []
    if isinstance(given, AbstractParts):
        chunks = loaded.read_from(given).each(whole_chunk)
        texts = _texts(loaded, chunks, interval, as_json, notes)
    else:
        # nothing is printed before the whole table is understood
        texts = list(_texts(loaded, [given], interval, as_json, notes))
    if out is not None:
        write_file(out, lambda file: [file.write(text.encode()) for text in texts])
        texts = ()
    for text in texts:
        # a terminal is to obey nothing in a header; a pipe or a file gets it as it is
        if sys.stdout.isatty():
            text = printable(text, keep="\n")
        print(text, end="")
    if not quiet:
        print_notes(said_once(notes))
    return 0


def _texts(
    loaded: "Fit",
    frames: Iterable["Frame"],
    interval: float | None,
    as_json: bool,
    notes: list[str],
) -> Iterator[str]:
    """Yield the predictions of some frames as one text, and collect what a reader should know: what
    is said of several frames, of the first.
    """
    import numpy as np

    from ..plots.pages import formula

    first = True
    for frame in frames:
        try:
            columns, said = loaded.columns(frame, interval)
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"--interval {interval:g}: {error}") from error
        notes += said
        names = tuple(columns)
        values = np.stack(list(columns.values()), axis=1)
        if as_json:
            rows = json.dumps(
                [dict(zip(names, row, strict=True)) for row in values.tolist()]
            )
            yield ("[" if first else ", ") + rows[1:-1]
        else:
            yield _csv(names if first else None, values)
        if first and not as_json:
            for name in names:
                if formula(name):
                    notes.append(
                        f"the column {name!r} is a formula to a spreadsheet; import it as text"
                    )
        first = False
    if as_json:
        yield "]\n"


def _csv(names: tuple[str, ...] | None, values: "np.ndarray") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if names is not None:
        writer.writerow(names)
    writer.writerows(values.tolist())
    return text.getvalue()
