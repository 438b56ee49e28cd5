"""`proxlin bench`: the benchmarks of a checkout, in a process of their own."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError
from .interrupts import stay_at_signals
from .options import Debug

AGAIN = 0.2  # seconds between two tries to pass a Ctrl-C on


def bench(
    only: Annotated[str | None, typer.Option(help="Run this benchmark only.")] = None,
    names: Annotated[
        bool, typer.Option("--list", help="Print the names, and run nothing.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where the table goes as JSON.")
    ] = None,
    debug: Debug = False,
) -> int:
    """Measure proxlin beside its peers, in one table of ratios (in a checkout of the repository
    only).
    """
    root = Path(__file__).parents[3]
    if not (root / "bench" / "__main__.py").exists():
        raise UserError(
            "the benchmarks are in the folder bench/ of the repository; run this from a checkout of it."
        )
    command = [sys.executable, "-m", "bench"]
    if only is not None:
        command += ["--only", only]
    if json_file is not None:
        command += ["--json", str(json_file.resolve())]
    if names:
        command.append("--list")
    stay_at_signals()
    # The benchmarks begin with Ctrl-C ignored, as Python would answer it with a traceback while it
    # starts; once they listen, they write what they have.
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(command, cwd=root) as process:
        signal.signal(signal.SIGINT, heard)
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                code = _interrupted(process)
            if code < 0:  # ended by a signal
                return 128 - code
            return code


def _interrupted(process: subprocess.Popen) -> int:
    """Pass a Ctrl-C on until the benchmarks listen and end; return their exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            return process.wait(AGAIN)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
