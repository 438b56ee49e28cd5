"""`proxlin reproduce EXPERIMENT`: the paper's experiments again, case by case, in a folder that survives anything."""

import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError, printable, require
from .data import SILENCE, fetch
from .interrupts import say_at_interrupt
from .options import Debug, Quiet, Seed, check_one_of, check_seed

if TYPE_CHECKING:
    from ..experiments.engine.base import Experiment
    from ..experiments.engine.reproduce import Request
    from ..experiments.engine.workers import Engine

MOST_WORKERS = 1000  # processes; more is a slip of the hand
# seconds; a sign of life comes every half second, later where a machine has much to do
LEAST_SILENCE = 2.0


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="all, or one of fig1, fig2, fig3, fig4, fig5, phase, prop1, prop2, recovery, words."
        ),
    ],
    profile: Annotated[
        str, typer.Option(help="quick (minutes) or paper (the sizes of the paper).")
    ] = "quick",
    out: Annotated[
        Path,
        typer.Option(
            "--out", help="Folder for results.sqlite, tables, figures and report.html."
        ),
    ] = Path("results"),
    engine: Annotated[
        str,
        typer.Option(
            help="Where cases run: local (processes here) or dask (a cluster)."
        ),
    ] = "local",
    scheduler: Annotated[
        str | None,
        typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes to use; as many as there are cores if left out."),
    ] = None,
    silence: Annotated[
        float,
        typer.Option(
            help="Seconds without a sign of life after which a worker's case is run by another."
        ),
    ] = 300.0,
    seed: Seed = 0,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Of `all`, run only this one (may be repeated)."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file in place of the experiment's own config."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run, and run nothing.")
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Rerun the paper's experiments; the same command again goes on where it was stopped."""
    from ..experiments.engine.base import PROFILES
    from ..experiments.engine.reproduce import Request
    from ..experiments.engine.workers import cores, engine_named

    check_one_of("--profile", profile, PROFILES)
    _check_engine(engine, scheduler, workers)
    if not silence >= LEAST_SILENCE:
        raise UserError(
            f"--silence {silence:g}: take a number of seconds from {LEAST_SILENCE:g} on."
        )
    check_seed(seed)
    chosen = _configured(experiment, only or [], config)
    for each in chosen:
        if each.check is not None:
            each.check(each.config(profile))
    count = workers or cores()
    if dry_run:
        _print_plans(chosen, profile, seed, count)
        return 0
    return _run(
        chosen,
        Request(profile, seed, out, quiet),
        engine_named(engine, scheduler, count, silence),
        count,
    )


def _check_engine(engine: str, scheduler: str | None, workers: int | None) -> None:
    if engine not in ("local", "dask"):
        raise UserError(f"--engine {engine}: take local or dask.")
    if scheduler is not None and engine != "dask":
        raise UserError(f"--scheduler {scheduler} belongs to --engine dask.")
    if engine == "dask":
        require("distributed", "cluster")
    if scheduler is not None:
        from ..experiments.engine.cluster import check_address

        check_address(scheduler)
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise UserError(f"--workers {workers}: take a number from 1 to {MOST_WORKERS}.")


def _configured(name: str, only: list[str], config: Path | None) -> list["Experiment"]:
    """Return the experiments asked for; --config brings its own profiles to the one that is named."""
    from ..experiments.engine.config import profiles
    from ..files.reading import check_readable

    if config is None:
        return _chosen(name, only)
    if name == "all":
        raise UserError("--config belongs to one experiment; name it in place of all.")
    check_readable(config)
    tables = profiles(config.read_bytes(), str(config))
    first = _chosen(name, only)[0]
    configs = dict(first.configs)
    for profile, table in tables.items():
        # a file that states no rules is judged by those of the study
        rules = {key: x for key, x in first.config(profile).items() if key == "rules"}
        configs[profile] = {**rules, **table}
    return [dataclasses.replace(first, configs=configs)]


def _chosen(name: str, only: list[str]) -> list["Experiment"]:
    """Return the experiments that a name and --only stand for."""
    from ..experiments import experiments

    more = [
        module
        for module in os.environ.get("PROXLIN_EXPERIMENTS", "").split(",")
        if module
    ]
    wanted = only
    if name != "all":
        wanted = [name, *only]
    known = experiments(more, wanted)
    for each in wanted:
        if each not in known:
            raise UserError(
                f"{each} is not the name of an experiment; there are {', '.join(known)}."
            )
    if name != "all":
        known = {name: known[name]}
    return [each for key, each in known.items() if not only or key in only]


def _print_plans(
    chosen: list["Experiment"], profile: str, seed: int, workers: int
) -> None:
    """Print what would run: each experiment, its cases as far as they are known, and a guess of the
    time.
    """
    for each in chosen:
        print(f"{each.name}: {each.title}")
        if each.plan is None:
            continue
        plan = each.plan(each.config(profile), seed)
        for case in plan.first:
            print(
                "  "
                + ", ".join(f"{name}={value}" for name, value in case.settings.items())
            )
        later = plan.cases - len(plan.first)
        more = ""
        if later:
            more = f"; {later} more follow from their results"
        time = _duration(plan.work / workers)
        print(
            f"  {len(plan.first)} cases first{more}; about {time} with {workers} workers."
        )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def _offer_downloads(chosen: list["Experiment"], request: "Request") -> None:
    """Ask once, where a person is at the terminal, whether to download what would be made up.

    A folder that has results goes on with the data it was begun with.
    """
    from ..data.catalog import REMOTES, download_size

    streams = (sys.stdin, sys.stderr)
    if request.quiet or not all(each and each.isatty() for each in streams):
        return
    if (request.out / "results.sqlite").exists():
        return
    missing = [
        each.name
        for experiment in chosen
        for each in request.data(experiment)
        if each.kind == "synthetic" and each.name in REMOTES
    ]
    missing = list(dict.fromkeys(missing))
    if not missing:
        return
    which = " and ".join(missing)
    size = sum(map(download_size, missing)) / 1e6
    question = f"{which}: not here, so synthetic data would stand in. Download (about {size:.0f} MB)? [y/N] "
    print(printable(question), end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        for name in missing:
            fetch(name, None, None, SILENCE)


def _run(
    chosen: list["Experiment"], request: "Request", engine: "Engine", workers: int
) -> int:
    import sqlite3

    from ..experiments.engine.reproduce import reproduce
    from ..experiments.engine.workers import use_64_bits

    require("jinja2", "experiments")  # before the work, not after it
    use_64_bits()
    _offer_downloads(chosen, request)

    def say(text: str) -> None:
        if not request.quiet:
            print(printable(text), flush=True)

    out = request.out
    said = f"Interrupted: what is finished is kept in {out}; the same command goes on from there."
    say_at_interrupt(printable(said))
    try:
        page = reproduce(chosen, request, say, engine, workers)
    except sqlite3.Error as error:
        raise UserError(f"{out / 'results.sqlite'}: {error}.") from error
    say(f"Report: {page}")
    return 0
