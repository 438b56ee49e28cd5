"""`proxlin fit FILE --target COLUMN` and `proxlin predict MODEL FILE`: robust regression of a table of one's own."""

import csv
import dataclasses
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError, printable, require
from ..files.reading import check_readable, is_open_pipe
from ..files.writing import check_folder, check_writable, write_file

if TYPE_CHECKING:
    import numpy as np

    from ..tables.fit import Report

LOSSES, SOLVERS = ("l2", "l1", "huber"), ("auto", "prox_linear", "sgd", "truncated")
FILES = (
    *("metrics.csv", "settings.csv", "metrics.json", "report.html"),
    *("figures/held-out.svg", "figures/held-out.png", "figures/held-out.pdf"),
    "model.npz",  # last, as it is what the others are about
)
WIDEST = 100_000  # hidden units; more is a slip of the hand
File = Annotated[Path, typer.Argument(metavar="FILE", help="A CSV, TSV, Parquet or ARFF file with named columns.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, no notes.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def fit(
    file: File,
    target: Annotated[list[str], typer.Option(help="A column to predict (may be repeated).")],
    loss: Annotated[str, typer.Option(help=f"Of the residuals: {', '.join(LOSSES)}.")] = "l2",
    hidden: Annotated[int, typer.Option(help="Width of the hidden layer of tanh units; 0: a linear model.")] = 64,
    solver: Annotated[str, typer.Option(help=f"One of {', '.join(SOLVERS)}.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for model.npz, metrics, settings and report.html.")] = Path("fit"),
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Fit a model that outliers in the targets do not spoil, and compare it with least squares."""
    for name, value, known in (("--loss", loss, LOSSES), ("--solver", solver, SOLVERS)):
        if value not in known:
            raise UserError(f"{name} {value}: take one of {', '.join(known)}.")
    if not 0 <= hidden <= WIDEST:
        raise UserError(f"--hidden {hidden}: take a width from 0 to {WIDEST}.")
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed {seed}: take a number from 0 to {2**31 - 1}.")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder.")
    require("jinja2", "experiments")  # before the work, not after it
    if not is_open_pipe(file):
        check_readable(file)
    with _writing(out):
        check_folder(out, FILES)
    from ..data.frames import read_frame

    frame = read_frame(file)
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()
    from ..tables.fit import fit as fitted
    from ..tables.model import Asked

    with _bar(quiet) as say:
        report = fitted(frame, Asked(tuple(target), loss, hidden, solver, seed), say)
    from ..tables.page import write

    with _writing(out):
        page = write(out, str(file), report)
    if not quiet:
        _print_notes(report.notes)
    if as_json:
        print(json.dumps(_answer(out, report), indent=1))
    elif not quiet:
        print(printable(_table(report), keep="\n"))
        print(printable(f"Model: {out / 'model.npz'}; report: {page}"))
    return 0


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="model.npz, as `proxlin fit` wrote it.")],
    file: File,
    out: Annotated[Path | None, typer.Option(help="A CSV file to write, in place of the standard output.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Predict the targets of a fitted model for each row of a table, as CSV."""
    if out is not None and out.is_dir():
        raise UserError(f"--out {out} is a folder; name a file.")
    if out is not None:
        check_writable(out)
    from ..data.frames import read_frame
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()
    from ..plots.pages import formula
    from ..tables.model import load_model

    loaded = load_model(model)
    values, notes = loaded.predict(read_frame(file))
    names = loaded.asked.targets
    if not as_json:
        notes += [
            f"the column {name!r} is a formula to a spreadsheet; import it as text" for name in names if formula(name)
        ]
    if not quiet:
        _print_notes(notes)
    text = json.dumps(_records(names, values)) + "\n" if as_json else _csv(names, values)
    if out is None:
        # A terminal is to obey nothing in a header; a pipe or a file gets it as it is.
        print(printable(text, keep="\n") if sys.stdout.isatty() else text, end="")
    else:
        write_file(out, text.encode())
    return 0


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        print(printable(f"Note: {note}."), file=sys.stderr)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence about --out."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"--out {out} cannot be written ({error.filename}: {error.strerror}); name another folder."
        ) from error


def _records(names: tuple[str, ...], values: "np.ndarray") -> list[dict[str, float]]:
    return [dict(zip(names, row, strict=True)) for row in values.tolist()]


def _csv(names: tuple[str, ...], values: "np.ndarray") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(values.tolist())
    return text.getvalue()


def _answer(out: Path, report: "Report") -> dict[str, Any]:
    about = report.model.about
    asked = dataclasses.asdict(report.model.asked)
    return {"model": str(out / "model.npz"), "asked": asked} | about | {"notes": report.notes}


def _table(report: "Report") -> str:
    """The mean absolute errors on held-out rows, a line for each target and loss."""
    from ..tables.page import without_interval

    held_out = report.model.about["held_out"]
    lines = [f"Mean absolute error on {held_out} held-out rows (95 % interval):"]
    without = False
    for row in report.metrics:
        line = f"  {row['target']}, {row['loss']}: {_with_interval(row, 'mean absolute error', '{:.4g}')}"
        if row["loss"] != "least squares":
            line += f"; {_with_interval(row, 'over least squares', '{:+.0%}', less=1.0)} against least squares"
        lines.append(line)
        without |= row["over least squares low"] is None
    if without:
        lines[0] = f"Mean absolute error on {held_out} held-out rows (no 95 % interval: {without_interval(held_out)}):"
    return "\n".join(lines)


def _with_interval(row: dict[str, Any], name: str, form: str, less: float = 0.0) -> str:
    """A number and, where there is one, its interval; `less` is taken off them all."""
    if row[f"{name} low"] is None:
        return form.format(row[name] - less)
    numbers = [row[f"{name}{end}"] - less for end in ("", " low", " high")]
    return f"{form} ({form} to {form})".format(*numbers)


@contextmanager
def _bar(quiet: bool) -> Iterator[Any]:
    """What is being done and how far it is: a bar on the standard error."""
    if quiet:
        yield lambda what, share: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
