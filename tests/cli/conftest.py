"""The command line as a person meets it: a process with arguments, an exit code and two streams."""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def _environment(experiments: str) -> dict[str, str]:
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "PROXLIN_EXPERIMENTS": experiments, "COLUMNS": "100"}


@pytest.fixture
def start():
    """Start `proxlin` and hand back the process."""

    def start(*arguments: object, experiments: str = "toy") -> subprocess.Popen:
        command = [sys.executable, "-m", "proxlin.cli", *map(str, arguments)]
        pipe = subprocess.PIPE
        # A shell in the background ignores Ctrl-C, and children inherit that; a person's terminal does not.
        heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        return subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=_environment(experiments), preexec_fn=heed
        )

    return start


@pytest.fixture
def cli(start):
    """Run `proxlin` to its end: (exit code, standard output, standard error)."""

    def run(*arguments: object, experiments: str = "toy") -> tuple[int, str, str]:
        process = start(*arguments, experiments=experiments)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    return run


@pytest.fixture
def refused(cli):
    """Run `proxlin` with wrong use: it must say so in one sentence and exit with code 2. Returns the sentence."""

    def run(*arguments: object, **settings: str) -> str:
        code, _, err = cli(*arguments, **settings)
        assert code == 2, err
        assert err.startswith("proxlin: ") and err.endswith(".\n") and err.count("\n") == 1, err
        return err

    return run
