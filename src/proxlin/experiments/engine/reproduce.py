"""Run experiments one after the other, keep each as it finishes, and leave files and a report
behind.

    for each experiment:  if it is not finished in the store: run it, commit it;  then write the files and the page

The cases of a sweep are committed one by one, so an interruption loses only what was running.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ... import __version__
from ...data.origin import Origin
from ...files.writing import check_folder
from ...plots.drawing import Drawing, figure_files, placed, stamp
from . import report
from .base import CAVEATS, Context, Experiment, Result, labels
from .store import Store, open_store
from .sweep import Bar, Sweep
from .workers import Engine

PACKAGES = ("proxlin", "jax", "jaxlib", "equinox", "optax", "numpy", "matplotlib")


@dataclass(frozen=True)
class Request:
    """What the user asked for, apart from the experiments themselves."""

    profile: str
    seed: int
    out: Path
    quiet: bool = False

    def data(self, experiment: Experiment) -> Sequence[Origin]:
        """Return the data that an experiment would use now."""
        if experiment.data is None:
            return ()
        return experiment.data(experiment.config(self.profile))

    def of(self, experiment: Experiment, data: Sequence[Origin]) -> dict[str, object]:
        """Return what has to be the same for results to be shared."""
        return {
            "profile": self.profile,
            "seed": self.seed,
            "config": dict(experiment.config(self.profile)),
            "data": {each.label: each.content for each in data},
            "version": __version__,
        }


def reproduce(
    experiments: Iterable[Experiment],
    request: Request,
    say: Callable[[str], None],
    engine: Engine,
    workers: int,
) -> Path:
    """Run what is not in the store yet; returns the path of the report."""
    experiments = list(experiments)
    with closing(engine):
        # Files that are missing are refused before there is a folder.
        data = {each.name: request.data(each) for each in experiments}
        with open_store(request.out) as store:
            check_folder(
                request.out,
                (
                    report.PAGE,
                    "cases.parquet",
                    "timings/runs.csv",
                    "tables/any",
                    "figures/any",
                ),
            )
            done = {
                each.name: store.begin(each.name, request.of(each, data[each.name]))
                for each in experiments
            }
            for experiment in experiments:
                if done[experiment.name]:
                    say(f"{experiment.name}: kept from an earlier run.")
                else:
                    say(f"{experiment.name}: {experiment.title}.")
                    found = _run(
                        experiment,
                        data[experiment.name],
                        request,
                        say,
                        store,
                        engine,
                        workers,
                    )
                    store.finish(experiment.name, found)
                    for each in found["verdicts"]:
                        say(
                            f"  {each['claim']}: {each['verdict']} ({each['profile']} profile; data: {each['data']})"
                        )
                report.write(request.out, store.finished(), store.cases())
            return request.out / report.PAGE


def _run(
    experiment: Experiment,
    data: Sequence[Origin],
    request: Request,
    say: Callable[[str], None],
    store: Store,
    engine: Engine,
    workers: int,
) -> dict:
    """Run one experiment; returns everything about it that the files and the page need."""
    config = experiment.config(request.profile)
    about = _machine()
    indented = lambda text: say(f"  {text}")
    stand_ins = [f"{each.label}: {each.source}." for each in data if each.stands_in]
    for text in stand_ins:
        indented(text)
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    clock = time.perf_counter()
    busy = time.process_time()
    plan = None
    if experiment.plan is not None:
        plan = experiment.plan(config, request.seed)
    with Bar(plan, indented, sys.stdout.isatty() and not request.quiet) as bar:
        sweep = Sweep(experiment.name, store, engine, bar, about)
        context = Context(
            request.profile,
            config,
            request.seed,
            str(request.out),
            indented,
            sweep,
            data,
        )
        result = experiment.run(context)
    seconds = time.perf_counter() - clock
    # of this process alone; each case has that of its worker
    cpu_seconds = time.process_time() - busy
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "profile": request.profile,
        "seed": request.seed,
        "config": dict(config),
        **_found(result, request.profile, data),
        "warnings": [*stand_ins, *result.warnings],
        "run": {
            "started": started,
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "workers": workers if plan else 1,
            **about,
        },
    }


def _found(result: Result, profile: str, data: Sequence[Origin]) -> dict:
    """Return the tables, figures and verdicts of a result; each figure carries what a reader has to
    know of it.
    """
    caveats = []
    if profile in CAVEATS:
        caveats.append(CAVEATS[profile])
    if any(each.stands_in for each in data):
        caveats.append(f"data: {labels(data)}")
    figures = {}
    drawings = {}
    for name, figure in result.figures.items():
        drawing = figure if isinstance(figure, Drawing) else Drawing(figure)
        if caveats:
            stamp(drawing.figure, "; ".join(caveats))
        figures[name] = figure_files(drawing.figure)
        points = placed(drawing.figure, drawing.points)
        drawings[name] = {
            "group": drawing.group,
            "label": drawing.label,
            "points": points,
        }
    return {
        "data": [
            {"name": each.label, "kind": each.kind, "source": each.source}
            for each in data
        ],
        "tables": {
            name: list(map(dict, table)) for name, table in result.tables.items()
        },
        "timings": {
            name: list(map(dict, table)) for name, table in result.timings.items()
        },
        "figures": figures,
        "drawings": drawings,
        "verdicts": [verdict.published(profile, data) for verdict in result.verdicts],
        "notes": list(result.notes),
    }


def _machine() -> dict[str, str | int | None]:
    """Return what a run depends on beside its config: the machine, the revision and the versions."""
    return {
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "revision": _revision(),
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _revision() -> str:
    """Return the commit of the checkout that the package runs from, or "" if it is installed."""
    root = Path(__file__).parents[4]
    if not (root / "pyproject.toml").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:  # there is no git
        return ""
