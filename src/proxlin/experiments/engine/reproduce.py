"""Run experiments one after the other, keep each as it finishes, and leave files and a report behind.

    for each experiment:  if it is not finished in the store: run it, commit it;  then write the files and the page

The cases of a sweep are committed one by one, so an interruption loses only what was running.
"""

import base64
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


@dataclass(frozen=True)
class Request:
    """What the user asked for, apart from the experiments themselves."""

    profile: str
    seed: int
    out: Path
    quiet: bool = False

    def data(self, experiment: Experiment) -> Sequence[Origin]:
        """The data that an experiment would use now."""
        return () if experiment.data is None else experiment.data(experiment.config(self.profile))

    def of(self, experiment: Experiment, data: Sequence[Origin]) -> dict[str, object]:
        """What has to be the same for results to be shared."""
        config = dict(experiment.config(self.profile))
        asked: dict[str, object] = {"profile": self.profile, "seed": self.seed, "config": config}
        return asked | {"data": {each.label: each.content for each in data}, "version": __version__}


def reproduce(
    experiments: Iterable[Experiment], request: Request, say: Callable[[str], None], engine: Engine, workers: int
) -> Path:
    """Run what is not in the store yet; returns the path of the report."""
    experiments = list(experiments)
    with open_store(request.out) as store, closing(engine):
        check_folder(request.out, (report.PAGE, "cases.parquet", "timings/runs.csv", "tables/any", "figures/any"))
        data = {each.name: request.data(each) for each in experiments}
        done = {each.name: store.begin(each.name, request.of(each, data[each.name])) for each in experiments}
        for experiment in experiments:
            if done[experiment.name]:
                say(f"{experiment.name}: kept from an earlier run.")
            else:
                say(f"{experiment.name}: {experiment.title}.")
                found = _run(experiment, data[experiment.name], request, say, store, engine, workers)
                store.finish(experiment.name, found)
                for each in found["verdicts"]:
                    say(f"  {each['claim']}: {each['verdict']} ({each['profile']} profile; data: {each['data']})")
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
    """Everything about one finished run that the files and the page need, as JSON."""
    config, about = experiment.config(request.profile), _machine()
    indented = lambda text: say(f"  {text}")
    stand_ins = [f"{each.label}: {each.source}." for each in data if each.stands_in]
    for text in stand_ins:
        indented(text)
    started, clock = time.strftime("%Y-%m-%dT%H:%M:%S%z"), time.perf_counter()
    plan = None if experiment.plan is None else experiment.plan(config, request.seed)
    with Bar(plan, indented, sys.stdout.isatty() and not request.quiet) as bar:
        sweep = Sweep(experiment.name, store, engine, bar, about)
        context = Context(request.profile, config, request.seed, str(request.out), indented, sweep, data)
        result = experiment.run(context)
    seconds = time.perf_counter() - clock
    asked = {"experiment": experiment.name, "title": experiment.title, "profile": request.profile}
    asked |= {"seed": request.seed, "config": dict(config)}
    run = {"started": started, "seconds": seconds, "workers": workers if plan else 1, **about}
    return {**asked, **_found(result, request.profile, data), "warnings": [*stand_ins, *result.warnings], "run": run}


def _found(result: Result, profile: str, data: Sequence[Origin]) -> dict:
    drawings = {name: x if isinstance(x, Drawing) else Drawing(x) for name, x in result.figures.items()}
    caveats = [CAVEATS[profile]] if profile in CAVEATS else []
    if any(each.stands_in for each in data):
        caveats.append(f"data: {labels(data)}")
    for each in drawings.values() if caveats else ():
        stamp(each.figure, "; ".join(caveats))
    return {
        "data": [{"name": each.label, "kind": each.kind, "source": each.source} for each in data],
        "tables": {name: [dict(row) for row in table] for name, table in result.tables.items()},
        "timings": {name: [dict(row) for row in table] for name, table in result.timings.items()},
        "figures": {name: _encoded(figure_files(each.figure)) for name, each in drawings.items()},
        "drawings": {
            name: {"group": each.group, "label": each.label, "points": placed(each.figure, each.points)}
            for name, each in drawings.items()
        },
        "verdicts": [verdict.published(profile, data) for verdict in result.verdicts],
        "notes": list(result.notes),
    }


def _encoded(files: dict[str, bytes]) -> dict[str, str]:
    return {kind: base64.b64encode(content).decode() for kind, content in files.items()}


def _machine() -> dict[str, str | int | None]:
    packages = ("proxlin", "jax", "jaxlib", "equinox", "optax", "numpy", "matplotlib")
    return {
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "revision": _revision(),
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _revision() -> str:
    """The commit of the checkout that the package runs from, or "" if it is installed."""
    root = Path(__file__).parents[4]
    if not (root / "pyproject.toml").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""
