"""The command line as a person meets it: a process with arguments, an exit code and two streams."""

import subprocess
import sys

import pytest

from processes import environment

# `python -m proxlin.cli`, where Ctrl-C works: a shell in the background ignores it, and its children inherit that.
COMMAND = """
import os, resource, runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
if limit := int(os.environ.get("TOY_LIMIT", 0)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
runpy.run_module("proxlin.cli", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def start():
    """Start `proxlin` and hand back the process."""

    def start(
        *arguments: object,
        experiments: str = "toy",
        limit: int = 0,
        start_new_session: bool = False,
    ) -> subprocess.Popen:
        """limit: the largest file, in bytes, that the process may write."""
        command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
        pipe = subprocess.PIPE
        given = environment(
            PROXLIN_EXPERIMENTS=experiments, COLUMNS="100", TOY_LIMIT=str(limit)
        )
        return subprocess.Popen(
            command,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env=given,
            start_new_session=start_new_session,
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
    """Run `proxlin` with wrong use: it must say so in one sentence and exit with code 2. Returns
    the sentence.
    """

    def run(*arguments: object, **settings: str) -> str:
        code, _, err = cli(*arguments, **settings)
        assert code == 2, err
        assert (
            err.startswith("proxlin: ") and err.endswith(".\n") and err.count("\n") == 1
        ), err
        return err

    return run
