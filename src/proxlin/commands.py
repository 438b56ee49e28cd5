"""The commands of `proxlin`, by typer. Each imports what it needs when it runs: `--help` must not wait for JAX."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from . import __version__
from .errors import UserError, require

# The names of the public contract; each exists from the day it registers itself.
CONTRACT = ("fig1", "fig2", "fig3", "fig4", "fig5", "prop1", "prop2", "words")

app = typer.Typer(
    help="Nonsmooth composite optimization: Gauss-Newton or SGD, under your noise?",
    pretty_exceptions_enable=False,
)


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


def _print_version(asked: bool) -> None:
    if asked:
        print(f"proxlin {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


Out = Annotated[Path, typer.Option("--out", help="Folder for results.sqlite, tables, figures and report.html.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


@app.command(epilog="Example: proxlin reproduce all --profile quick --out results")
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"all, or one of {', '.join(CONTRACT)}.")],
    profile: Annotated[str, typer.Option(help="quick (minutes) or paper (the sizes of the paper).")] = "quick",
    out: Out = Path("results"),
    engine: Annotated[str, typer.Option(help="local.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    workers: Annotated[int, typer.Option(help="Processes to use.")] = 1,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help="Of `all`, run only this one (may be repeated).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and run nothing.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Rerun the paper's experiments; the same command again goes on where it was stopped."""
    from . import experiments
    from .experiments.base import PROFILES

    if profile not in PROFILES:
        raise UserError(f"--profile {profile}: take one of {', '.join(PROFILES)}.")
    _check_engine(engine, scheduler, workers)
    if seed < 0:
        raise UserError(f"--seed {seed}: take a number from 0 on.")
    more = [name for name in os.environ.get("PROXLIN_EXPERIMENTS", "").split(",") if name]
    chosen = _choose(experiments.experiments(more), experiment, only or [])
    if dry_run:
        print("\n".join(f"{each.name}: {each.title}" for each in chosen) or "No experiment is registered yet.")
        return 0
    return _reproduce(chosen, profile, seed, out, quiet)


@app.command(epilog="Example: proxlin report results")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `proxlin reproduce` wrote.")],
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Write tables, figures and report.html again from the stored results."""
    from . import report
    from .experiments.store import open_store

    with open_store(folder, create=False) as store:
        page = report.write(folder, store.current())
    if not quiet:
        print(f"Report: {page}")
    return 0


@app.command(epilog="Example: proxlin bench --only steps")
def bench(
    only: Annotated[str | None, typer.Option(help="Run this benchmark only.")] = None,
    debug: Debug = False,
) -> int:
    """Run the benchmarks of the repository (they are not part of the installed package)."""
    root = Path(__file__).parents[2]
    if not (root / "bench" / "__main__.py").exists():
        raise UserError("the benchmarks are in the folder bench/ of the repository; run this from a checkout of it.")
    command = [sys.executable, "-m", "bench", *(["--only", only] if only else [])]
    return subprocess.run(command, cwd=root, check=False).returncode


def _check_engine(engine: str, scheduler: str | None, workers: int) -> None:
    if engine == "dask" or scheduler is not None:
        raise UserError("--engine dask and --scheduler are not there yet: leave them out to run on this machine.")
    if engine != "local":
        raise UserError(f"--engine {engine}: take local.")
    if workers < 1:
        raise UserError(f"--workers {workers}: take a number from 1 on.")
    if workers > 1:
        raise UserError(f"--workers {workers}: experiments run in one process so far; leave it out.")


def _choose(known: dict, name: str, only: list[str]) -> list:
    """The experiments that a name and --only stand for."""
    for each in [*([] if name == "all" else [name]), *only]:
        if each not in known:
            why = "is not there yet" if each in CONTRACT else "is not the name of an experiment"
            raise UserError(f"{each} {why}; registered so far: {', '.join(known) or 'none'}.")
    wanted = list(known) if name == "all" else [name]
    return [known[each] for each in wanted if not only or each in only]


def _reproduce(chosen: list, profile: str, seed: int, out: Path, quiet: bool) -> int:
    import sqlite3

    from .reproduce import Request, reproduce

    require("jinja2", "experiments")  # before the work, not after it
    require("jax", "experiments").config.update("jax_enable_x64", True)
    say = (lambda text: None) if quiet else (lambda text: print(text, flush=True))
    try:
        page = reproduce(chosen, Request(profile, seed, out), say)
    except KeyboardInterrupt:
        print(f"Interrupted: what is finished is kept in {out}; the same command goes on from there.", file=sys.stderr)
        return 130
    except sqlite3.Error as error:
        raise UserError(f"{out / 'results.sqlite'}: {error}.") from error
    say(f"Report: {page}")
    return 0
