"""`proxlin fit FILE --target COLUMN`: robust regression of a table of one's own."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
    Json,
    Quiet,
    Seed,
    Sheet,
    Table,
    Target,
    Thousands,
    check_apart,
    check_hidden,
    check_numerals,
    check_one_of,
    check_seed,
    print_notes,
    read_in_parts,
    read_table,
)

if TYPE_CHECKING:
    from ..tables.engine import Report
    from ..tables.fitted import Fit

LOSSES = ("l2", "l1", "huber", "squares", "quantile", "mm")
ERRORS = ("formula", "sandwich", "bootstrap")
SOLVERS = ("auto", "prox_linear", "sgd", "truncated")
FILES = (
    *("metrics.csv", "settings.csv", "coefficients.csv", "outliers.csv"),
    *("metrics.json", "report.html"),
    *("figures/held-out.svg", "figures/held-out.png", "figures/held-out.pdf"),
    *("figures/rows.svg", "figures/rows.png", "figures/rows.pdf"),
    "model.npz",  # last, as it is what the others are about
)


def fit(
    file: Table,
    target: Target,
    loss: Annotated[
        str, typer.Option(help=f"Of the residuals: {', '.join(LOSSES)}.")
    ] = "l2",
    quantile: Annotated[
        list[float] | None,
        typer.Option(
            help="Level of --loss quantile, between 0 and 1 (may be repeated)."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="Column that says how much each row counts, 0 or more."),
    ] = None,
    hidden: Annotated[
        int | None,
        typer.Option(
            help="Width of the hidden layer of tanh units; 0: a linear model. The default is 64, and 0 for --loss mm.",
        ),
    ] = None,
    errors: Annotated[
        str,
        typer.Option(help=f"How standard errors are found: {', '.join(ERRORS)}."),
    ] = "formula",
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
    check_one_of("--errors", errors, ERRORS)
    if hidden is not None:
        check_hidden(hidden)
    _check_quantiles(loss, quantile or ())
    if loss == "mm" and hidden:
        raise UserError(f"--hidden {hidden}: --loss mm is for linear models.")
    if loss == "mm" and weights is not None:
        raise UserError(
            f"--weights {weights}: --loss mm takes no weights; take huber or l1."
        )
    if loss == "mm" and errors != "formula":
        raise UserError(
            f"--errors {errors}: --loss mm has the standard errors of lmrob, by a formula."
        )
    check_numerals(decimal, thousands)
    check_seed(seed)
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder.")
    require("jinja2", "experiments")  # before the work, not after it
    if not is_open_pipe(file) and not file.is_dir():
        check_readable(file)
    for name in FILES:
        check_apart(out, out / name, {"the table": file})
    with _writing(out):
        check_folder(out, FILES)
    frame = read_in_parts(file, category or ())
    if frame is None:
        frame = read_table(file, decimal, thousands, sheet, category or ())
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()
    from ..files.programs import keep_programs

    keep_programs()
    from ..tables.fitted import asked_for, fit_all, fit_of

    settings = {"hidden": hidden, "solver": solver, "seed": seed, "errors": errors}
    given = target[0] if len(target) == 1 else tuple(target)
    frame, formula, asked = asked_for(
        frame, given, weights=weights, loss=loss, quantile=quantile or None, **settings
    )
    with _bar(quiet) as say:
        reports = fit_all(frame, asked, say, formula)
    from ..tables.page import write

    with _writing(out):
        page = write(out, str(file), reports)
    found = fit_of(reports)
    middle = reports[len(reports) // 2]
    if not quiet:
        print_notes(list(found.notes))
    if as_json:
        print(json.dumps(_answer(out, middle, found), indent=1))
    elif not quiet:
        # the notes stand above, on the standard error
        print(replace(found, notes=()).summary())
        if found.outliers().rows:
            print(found.outliers())
        print(printable(_table(middle), keep="\n"))
        print(printable(f"Model: {out / 'model.npz'}; report: {page}"))
    return 0


def _check_quantiles(loss: str, quantiles: Sequence[float]) -> None:
    """Refuse levels that are no shares, and levels without the loss that they belong to."""
    for level in quantiles:
        if not 0 < level < 1:
            raise UserError(
                f"--quantile {level:g} is not between 0 and 1; 0.9 is above nine of ten targets."
            )
    if loss == "quantile" and not quantiles:
        raise UserError("--loss quantile needs a level, such as --quantile 0.9.")
    if loss != "quantile" and quantiles:
        raise UserError("--quantile goes with --loss quantile.")


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence about --out."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"--out {out} cannot be written ({error.filename}: {error.strerror}); name another folder."
        ) from error


def _answer(out: Path, report: "Report", found: "Fit") -> dict[str, Any]:
    """Return what --json prints."""
    model = report.model
    answer: dict[str, Any] = {
        "model": str(out / "model.npz"),
        "asked": dataclasses.asdict(model.asked),
    }
    answer |= model.about | {"notes": list(found.notes)}
    answer["coefficients"] = found.summary().rows
    answer["outliers"] = found.outliers().rows
    return answer


def _table(report: "Report") -> str:
    """Return the mean absolute errors on held-out rows, a line for each target and loss."""
    from ..tables.page import without_interval

    held_out = report.model.about["held_out"]
    about = "95 % interval"
    lines = []
    for row in report.metrics:
        line = f"  {row['target']}, {row['loss']}: {_with_interval(row, 'mean absolute error', '{:.4g}')}"
        if row["loss"] != "least squares" and row["over least squares low"] is not None:
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
