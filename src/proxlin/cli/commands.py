"""The commands of `proxlin`, by typer. Each imports what it needs when it runs: `--help` must not wait for JAX."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import __version__
from ..errors import UserError, printable, require
from .advise import advise
from .data import app as data_app
from .fit import fit, predict
from .interrupts import say_at_interrupt, stay_at_signals

if TYPE_CHECKING:
    from ..experiments.engine.reproduce import Request
    from ..experiments.engine.workers import Engine

MOST_WORKERS = 1000  # processes; more is a slip of the hand
LEAST_SILENCE = 2.0  # seconds; a sign of life comes every half second, later where a machine has much to do
# The names of the public contract; each exists from the day it registers itself.
CONTRACT = ("fig1", "fig2", "fig3", "fig4", "fig5", "prop1", "prop2", "words")

app = typer.Typer(
    help="Nonsmooth composite optimization: Gauss-Newton or SGD, under your noise?",
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.command(epilog="Example: proxlin advise table.csv --target price")(advise)
app.command(epilog="Example: proxlin fit table.csv --target price --target area --out fit")(fit)
app.command(epilog="Example: proxlin predict fit/model.npz new.csv --out predictions.csv")(predict)


def run(arguments: Sequence[str]) -> int:
    """Run a command; returns the exit code. Errors of usage become the one sentence that any other UserError is."""
    try:
        return app(list(arguments) or ["--help"], prog_name="proxlin", standalone_mode=False) or 0
    except typer.TyperException as error:
        raise UserError(f"{error.format_message().rstrip('.')}.") from error
    except OSError as error:
        if error.filename is None:
            raise
        raise UserError(f"{error.filename}: {error.strerror}.") from error


def _print_version(asked: bool | None) -> None:
    if asked:
        print(f"proxlin {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool | None, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


Out = Annotated[Path, typer.Option("--out", help="Folder for results.sqlite, tables, figures and report.html.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@app.command(epilog="Example: proxlin reproduce all --profile quick --out results")
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"all, or one of {', '.join(CONTRACT)}.")],
    profile: Annotated[str, typer.Option(help="quick (minutes) or paper (the sizes of the paper).")] = "quick",
    out: Out = Path("results"),
    engine: Annotated[str, typer.Option(help="Where cases run: local (processes here) or dask (a cluster).")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes to use; as many as there are cores if left out.")
    ] = None,
    silence: Annotated[
        float, typer.Option(help="Seconds without a sign of life after which a worker's case is run by another.")
    ] = 300.0,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help="Of `all`, run only this one (may be repeated).")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file in place of the experiment's own config.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and run nothing.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Rerun the paper's experiments; the same command again goes on where it was stopped."""
    from .. import experiments
    from ..experiments.engine.base import PROFILES
    from ..experiments.engine.reproduce import Request
    from ..experiments.engine.workers import cores, engine_named

    if profile not in PROFILES:
        raise UserError(f"--profile {profile}: take one of {', '.join(PROFILES)}.")
    _check_engine(engine, scheduler, workers)
    if not silence >= LEAST_SILENCE:
        raise UserError(f"--silence {silence:g}: take a number of seconds from {LEAST_SILENCE:g} on.")
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed {seed}: take a number from 0 to {2**31 - 1}.")
    if config is not None and experiment == "all":
        raise UserError("--config belongs to one experiment; name it in place of all.")
    tables = {} if config is None else _read_config(config)
    more = [name for name in os.environ.get("PROXLIN_EXPERIMENTS", "").split(",") if name]
    wanted = (only or []) if experiment == "all" else [experiment, *(only or [])]
    chosen = _choose(experiments.experiments(more, wanted), experiment, only or [])
    if config is not None:
        chosen = _configured(chosen, tables)
    for each in chosen:
        if each.check is not None:
            each.check(each.config(profile))
    count = workers or cores()
    if dry_run:
        _print_plans(chosen, profile, seed, count)
        return 0
    return _reproduce(
        chosen, Request(profile, seed, out, quiet), engine_named(engine, scheduler, count, silence), count
    )


@app.command(epilog="Example: proxlin report results")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `proxlin reproduce` wrote.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Write tables, figures and report.html again from the stored results; --json prints the verdicts on the claims."""
    from ..experiments.engine import report
    from ..experiments.engine.store import open_store

    with open_store(folder, create=False) as store:
        records = store.finished()
        page = report.write(folder, records, store.cases())
    if as_json:
        print(json.dumps({"report": str(page), "verdicts": report.verdicts(records)}, indent=1))
    elif not quiet:
        print(printable(f"Report: {page}"))
    return 0


@app.command(epilog="Example: proxlin bench --only steps")
def bench(
    only: Annotated[str | None, typer.Option(help="Run this benchmark only.")] = None,
    names: Annotated[bool, typer.Option("--list", help="Print the names, and run nothing.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the table goes as JSON.")] = None,
    debug: Debug = False,
) -> int:
    """Measure proxlin beside its peers, in one table of ratios (in a checkout of the repository only)."""
    root = Path(__file__).parents[3]
    if not (root / "bench" / "__main__.py").exists():
        raise UserError("the benchmarks are in the folder bench/ of the repository; run this from a checkout of it.")
    options = {"--only": only, "--json": json_file and json_file.resolve()}
    given = [str(part) for name, value in options.items() if value is not None for part in (name, value)]
    command = [sys.executable, "-m", "bench", *given, *(["--list"] if names else [])]
    stay_at_signals()  # a Ctrl-C reaches the benchmarks too, which then write what they have
    with subprocess.Popen(command, cwd=root) as process:
        while True:
            try:
                code = process.wait()
                return code if code >= 0 else 128 - code  # by a signal
            except KeyboardInterrupt:
                continue


def _check_engine(engine: str, scheduler: str | None, workers: int | None) -> None:
    if engine not in ("local", "dask"):
        raise UserError(f"--engine {engine}: take local or dask.")
    if scheduler is not None and engine != "dask":
        raise UserError(f"--scheduler {scheduler} belongs to --engine dask.")
    if engine == "dask":
        require("distributed", "cluster")
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise UserError(f"--workers {workers}: take a number from 1 to {MOST_WORKERS}.")


def _read_config(path: Path) -> dict:
    from ..experiments.engine.config import profiles
    from ..files.reading import check_readable

    check_readable(path)
    return profiles(path.read_bytes(), str(path))


def _configured(chosen: list, tables: dict) -> list:
    """The one experiment asked for, with the profiles of a file in place of its own."""
    from dataclasses import replace

    return [replace(chosen[0], configs=chosen[0].configs | tables)]


def _print_plans(chosen: list, profile: str, seed: int, workers: int) -> None:
    """What would run: each experiment, its cases as far as they are known, and a guess of the time."""
    for each in chosen:
        print(f"{each.name}: {each.title}")
        plan = None if each.plan is None else each.plan(each.config(profile), seed)
        if plan is not None:
            for case in plan.first:
                print("  " + ", ".join(f"{name}={value}" for name, value in case.settings.items()))
            later = plan.cases - len(plan.first)
            more = f"; {later} more follow from their results" if later else ""
            time = _duration(plan.work / workers)
            print(f"  {len(plan.first)} cases first{more}; about {time} with {workers} workers.")
    if not chosen:
        print("No experiment is registered yet.")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _choose(known: dict, name: str, only: list[str]) -> list:
    """The experiments that a name and --only stand for."""
    for each in [*([] if name == "all" else [name]), *only]:
        if each not in known:
            why = "is not there yet" if each in CONTRACT else "is not the name of an experiment"
            raise UserError(f"{each} {why}; registered so far: {', '.join(known) or 'none'}.")
    wanted = list(known) if name == "all" else [name]
    return [known[each] for each in wanted if not only or each in only]


def _reproduce(chosen: list, request: "Request", engine: "Engine", workers: int) -> int:
    import sqlite3

    from ..experiments.engine.reproduce import reproduce
    from ..experiments.engine.workers import use_64_bits

    require("jinja2", "experiments")  # before the work, not after it
    use_64_bits()
    say = (lambda text: None) if request.quiet else (lambda text: print(printable(text), flush=True))
    out = request.out
    said = f"Interrupted: what is finished is kept in {out}; the same command goes on from there."
    say_at_interrupt(printable(said))
    try:
        page = reproduce(chosen, request, say, engine, workers)
    except sqlite3.Error as error:
        raise UserError(f"{out / 'results.sqlite'}: {error}.") from error
    say(f"Report: {page}")
    return 0
