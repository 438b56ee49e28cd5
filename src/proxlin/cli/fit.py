"""`proxlin fit FILE --target COLUMN`: robust regression of a table of one's own."""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError, printable, require
from ..files.reading import check_readable, is_open_pipe
from ..files.writing import check_folder
from .options import (
    Category,
    Debug,
    Decimal,
    Hidden,
    Json,
    Quiet,
    Seed,
    Sheet,
    Table,
    Target,
    Thousands,
    check_hidden,
    check_numerals,
    check_one_of,
    check_seed,
    print_notes,
    read_table,
)

if TYPE_CHECKING:
    from ..tables.fit import Report

LOSSES = ("l2", "l1", "huber")
SOLVERS = ("auto", "prox_linear", "sgd", "truncated")
FILES = (
    *("metrics.csv", "settings.csv", "metrics.json", "report.html"),
    *("figures/held-out.svg", "figures/held-out.png", "figures/held-out.pdf"),
    "model.npz",  # last, as it is what the others are about
)


def fit(
    file: Table,
    target: Target,
    loss: Annotated[
        str, typer.Option(help=f"Of the residuals: {', '.join(LOSSES)}.")
    ] = "l2",
    hidden: Hidden = 64,
    solver: Annotated[str, typer.Option(help=f"One of {', '.join(SOLVERS)}.")] = "auto",
    out: Annotated[
        Path,
        typer.Option(help="Folder for model.npz, metrics, settings and report.html."),
    ] = Path("fit"),
    decimal: Decimal = ".",
    thousands: Thousands = None,
    sheet: Sheet = None,
    category: Category = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Fit a model that outliers in the targets do not spoil, and compare it with least squares."""
    check_one_of("--loss", loss, LOSSES)
    check_one_of("--solver", solver, SOLVERS)
    check_hidden(hidden)
    check_numerals(decimal, thousands)
    check_seed(seed)
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder.")
    require("jinja2", "experiments")  # before the work, not after it
    if not is_open_pipe(file):
        check_readable(file)
    with _writing(out):
        check_folder(out, FILES)
    frame = read_table(file, decimal, thousands, sheet, category or ())
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()
    from ..files.programs import keep_programs

    keep_programs()
    from ..tables.fit import fit as fitted
    from ..tables.model import Asked

    with _bar(quiet) as say:
        report = fitted(frame, Asked(tuple(target), loss, hidden, solver, seed), say)
    from ..tables.page import write

    with _writing(out):
        page = write(out, str(file), report)
    if not quiet:
        print_notes(report.notes)
    if as_json:
        print(json.dumps(_answer(out, report), indent=1))
    elif not quiet:
        print(printable(_table(report), keep="\n"))
        print(printable(f"Model: {out / 'model.npz'}; report: {page}"))
    return 0


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence about --out."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"--out {out} cannot be written ({error.filename}: {error.strerror}); name another folder."
        ) from error


def _answer(out: Path, report: "Report") -> dict[str, Any]:
    """Return what --json prints."""
    model = report.model
    answer: dict[str, Any] = {
        "model": str(out / "model.npz"),
        "asked": dataclasses.asdict(model.asked),
    }
    return answer | model.about | {"notes": report.notes}


def _table(report: "Report") -> str:
    """Return the mean absolute errors on held-out rows, a line for each target and loss."""
    from ..tables.page import without_interval

    held_out = report.model.about["held_out"]
    about = "95 % interval"
    lines = []
    for row in report.metrics:
        line = f"  {row['target']}, {row['loss']}: {_with_interval(row, 'mean absolute error', '{:.4g}')}"
        if row["loss"] != "least squares":
            line += f"; {_with_interval(row, 'over least squares', '{:+.0%}', less=1.0)} against least squares"
        line += f"; median {row['median absolute error']:.4g}"
        lines.append(line)
        if row["over least squares low"] is None:
            about = f"no 95 % interval: {without_interval(held_out)}"
    return "\n".join(
        [
            f"Mean absolute error on {held_out} held-out rows ({about}), and the median:",
            *lines,
        ]
    )


def _with_interval(row: dict[str, Any], name: str, form: str, less: float = 0.0) -> str:
    """Return a number and, where there is one, its interval; `less` is taken off them all."""
    if row[f"{name} low"] is None:
        return form.format(row[name] - less)
    numbers = [row[f"{name}{end}"] - less for end in ("", " low", " high")]
    return f"{form} ({form} to {form})".format(*numbers)


@contextmanager
def _bar(quiet: bool) -> Iterator[Any]:
    """Show what is being done and how far it is: a bar on the standard error."""
    if quiet:
        yield lambda what, share: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
