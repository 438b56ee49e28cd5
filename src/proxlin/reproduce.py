"""Run experiments one after the other, keep each as it finishes, and leave files and a report behind.

    for each experiment:  if its key is not in the store: run it, commit it;  then write the files and the page

So an interruption loses at most the experiment that was running.
"""

import base64
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import __version__, report
from .experiments.base import Context, Experiment, Result
from .experiments.store import content_key, open_store


@dataclass(frozen=True)
class Request:
    """What the user asked for, apart from the experiments themselves."""

    profile: str
    seed: int
    out: Path

    def key(self, experiment: Experiment) -> str:
        return content_key(
            name=experiment.name,
            profile=self.profile,
            seed=self.seed,
            config=experiment.config(self.profile),
            version=__version__,
        )


def reproduce(experiments: Iterable[Experiment], request: Request, say: Callable[[str], None]) -> Path:
    """Run what is not in the store yet; returns the path of the report."""
    with open_store(request.out) as store:
        for experiment in experiments:
            key = request.key(experiment)
            if key in store:
                say(f"{experiment.name}: kept from an earlier run.")
                store.ask(key)
            else:
                say(f"{experiment.name}: {experiment.title}.")
                store.add(key, experiment.name, _run(experiment, request, say))
            report.write(request.out, store.current())
        return report.write(request.out, store.current())


def _run(experiment: Experiment, request: Request, say: Callable[[str], None]) -> dict:
    """Everything about one finished run that the files and the page need, as JSON."""
    config = experiment.config(request.profile)
    context = Context(request.profile, config, request.seed, str(request.out), lambda text: say(f"  {text}"))
    started, clock = time.strftime("%Y-%m-%dT%H:%M:%S%z"), time.perf_counter()
    result = experiment.run(context)
    seconds = time.perf_counter() - clock
    asked = {
        "experiment": experiment.name,
        "title": experiment.title,
        "profile": request.profile,
        "seed": request.seed,
        "config": dict(config),
    }
    return {**asked, **_found(result), "run": {"started": started, "seconds": seconds, **_machine()}}


def _found(result: Result) -> dict:
    return {
        "tables": {name: [dict(row) for row in table] for name, table in result.tables.items()},
        "timings": {name: [dict(row) for row in table] for name, table in result.timings.items()},
        "figures": {name: _encoded(report.figure_files(figure)) for name, figure in result.figures.items()},
        "verdicts": [asdict(verdict) for verdict in result.verdicts],
        "notes": list(result.notes),
        "warnings": list(result.warnings),
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
    root = Path(__file__).parents[2]
    if not (root / "pyproject.toml").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""
