"""Run the suite: `python -m bench [--only NAME] [--list] [--json FILE] [--docs] [--from FILE]
[--ours]`.

A benchmark is a module of suite/ or studies/ with a function `main(argv) -> int`. Each runs in a
process of its own, so that one's JAX settings and memory do not touch the next, and leaves its rows
as JSON after each of them. The suite puts them together in one table of ratios (peer's time) / (our
time). What ran before a Ctrl-C is kept.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from proxlin.files.writing import check_writable, write_file

from . import table

FOLDER = Path(__file__).parent
RESULTS, PAGE = (
    FOLDER.parent / "results" / "bench.json",
    FOLDER.parent / "docs" / "performance.md",
)
SUITE = {
    "robust": "1. Robust multi-output fits to a given objective",
    "subproblem": "2. Exact subproblems",
    "steps": "3. SGD and PLI steps",
    "oracles": "4. Top-K paths and chains",
    "equations": "5. Stochastic equations",
    "nist": "6. Small classical problems (NIST)",
    "growth": "7. Growth",
    "many": "8. Many small fits at once",
    "cold": "9. The first call",
    "control": "10. Trajectories of controls",
    "phase": "11. Phase retrieval",
    "sparse": "12. Sparse Jacobians",
    "factors": "13. Factorisations",
}
ALONE = ("subproblem", "steps", "equations")  # those that can leave their peers out
OURS = ("proxlin", "jax", "jaxlib", "numpy")
PEERS = (
    *(
        "scipy",
        "optax",
        "optimistix",
        "jaxopt",
        "pyceres",
        "lmfit",
        "cvxpy",
        "clarabel",
        "scs",
        "cyipopt-wheels",
        "casadi",
    ),
    *("torch", "torch-struct", "pyepo", "ortools", "networkx", "numba"),
)
# SIGINT as the system has it: an interrupted benchmark ends without a traceback, its rows are on
# the disk.
CALL = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
from {module} import main
sys.exit(main(sys.argv[1:]))
"""


def names() -> list[str]:
    """Return the names of the suite, then those of the studies."""
    return [
        *SUITE,
        *sorted(path.stem for path in (FOLDER / "studies").glob("[a-z]*.py")),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure proxlin beside its peers."
    )
    parser.add_argument("--only", metavar="NAME", help="run this one only")
    parser.add_argument(
        "--list", action="store_true", help="print the names, and run nothing"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=Path,
        help=f"where the table goes (results/{RESULTS.name})",
    )
    parser.add_argument(
        "--docs",
        action="store_true",
        help="write the table into docs/performance.md too",
    )
    parser.add_argument(
        "--go-on",
        action="store_true",
        help="keep the benchmarks that the JSON has, and run those that it lacks",
    )
    parser.add_argument(
        "--from",
        dest="earlier",
        metavar="FILE",
        type=Path,
        help="the table of this JSON; run nothing",
    )
    parser.add_argument(
        "--ours", action="store_true", help=f"our seconds alone, of {', '.join(ALONE)}"
    )
    arguments = parser.parse_args(argv)
    if arguments.only is not None and arguments.only not in names():
        return _refuse(f"--only {arguments.only}: there is {', '.join(names())}.")
    if arguments.ours and arguments.only not in (None, *ALONE):
        return _refuse(
            f"--ours --only {arguments.only}: only {', '.join(ALONE)} can leave their peers out."
        )
    if arguments.ours and arguments.docs:
        return _refuse(
            "--docs writes a table of ratios to the peers: leave --ours out."
        )
    if arguments.only is not None and arguments.docs:
        return _refuse("--docs writes the table of the whole suite: leave --only out.")
    if arguments.earlier is not None and not arguments.earlier.is_file():
        return _refuse(f"--from {arguments.earlier}: there is no such file.")
    if arguments.list:
        print(_listing())
        return 0
    if arguments.only is not None and arguments.only not in SUITE:
        return _run(
            arguments.only,
            ["--json", str(arguments.json.resolve())] if arguments.json else [],
        )
    part_only = arguments.ours or arguments.only is not None
    file = arguments.json if part_only else arguments.json or RESULTS
    if arguments.earlier is not None:
        report = _earlier(arguments.earlier)
        if report is None:
            return _refuse(
                f"--from {arguments.earlier}: this is not the JSON of a run of the suite."
            )
    elif file is not None and not _writable(file):
        return _refuse(f"--json {file}: this file cannot be written.")
    else:
        chosen = ALONE if arguments.ours else tuple(SUITE)
        if arguments.only is not None:
            chosen = (arguments.only,)
        before = None
        if arguments.go_on and file is not None and file.is_file():
            before = _earlier(file)
            if before is None:
                return _refuse(
                    f"--go-on: {file} is not the JSON of a run of the suite."
                )
        options = ["--ours"] if arguments.ours else []
        report = measure(chosen, file, options, before)
    print("\n" + table.text(report, SUITE))
    if arguments.docs:
        page = PAGE.read_text(encoding="utf-8")
        text = table.markdown(report, SUITE, table.sections(page, SUITE))
        write_file(PAGE, table.between_markers(page, text).encode())
    ended = {part["status"] for part in report["benchmarks"].values()}
    return 130 if "interrupted" in ended else 1 if "failed" in ended else 0


def measure(
    chosen: Sequence[str],
    file: Path | None,
    options: Sequence[str] = (),
    earlier: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the chosen benchmarks with these options: the report of `table`, written to the file
    after each of them. Those that an earlier report has are kept as they are.
    """
    before = os.getloadavg()[0]
    report = _about()
    kept = {} if earlier is None else earlier["benchmarks"]
    done = {name: part for name, part in kept.items() if part["status"] == "done"}
    report["benchmarks"] = {name: done[name] for name in SUITE if name in done}
    for name in chosen:
        if name in done:
            continue
        print(f"== {SUITE[name]}", flush=True)
        part = _part(name, options)
        parts = report["benchmarks"] | {name: part}
        report["benchmarks"] = {name: parts[name] for name in SUITE if name in parts}
        report |= {
            "seconds": sum(part["seconds"] for part in parts.values()),
            "load": [before, os.getloadavg()[0]],
        }
        if file is not None:
            write_file(file, json.dumps(report, indent=1).encode())
        if part["status"] == "interrupted":
            break
    return report


def _earlier(file: Path) -> dict[str, Any] | None:
    """The report in the file, or None where there is none."""
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        table.text(report, SUITE)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return None
    return report


def _writable(file: Path) -> bool:
    """Seen before minutes are spent."""
    try:
        check_writable(file)
    except OSError:
        return False
    return True


def _part(name: str, options: Sequence[str]) -> dict[str, Any]:
    """One benchmark of the suite: its seconds, how it ended, and the rows it left."""
    start = time.perf_counter()
    when = _now()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        try:
            status = "failed" if _run(name, ["--json", str(file), *options]) else "done"
        except KeyboardInterrupt:
            # a second one must not cut off what is written now
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            status = "interrupted"
        rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return {
        "seconds": time.perf_counter() - start,
        "date": when,
        "load": load,
        "cpu": _cpu(),
        "status": status,
        "rows": rows,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _run(name: str, argv: list[str]) -> int:
    folder = "suite" if name in SUITE else "studies"
    command = [
        sys.executable,
        "-c",
        CALL.format(name=name, module=f"bench.{folder}.{name}"),
        *argv,
    ]
    return subprocess.run(command, cwd=FOLDER.parent, check=False).returncode


def _about() -> dict[str, Any]:
    return {
        "date": _now(),
        "seconds": 0.0,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": [os.getloadavg()[0]] * 2,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in OURS + PEERS},
        "benchmarks": {},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    """The model of the processor; platform.processor() is empty or only the architecture on Linux."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith("model name")
    ]
    return models[0] if models else platform.processor() or platform.machine()


def _listing() -> str:
    suite = [f"  {name:12s} {title}" for name, title in SUITE.items()]
    rest = [f"  {name}" for name in names() if name not in SUITE]
    studies = "Studies, each for a page of its own and longer than the suite allows (--only NAME):"
    return "\n".join(["The suite (python -m bench):", *suite, studies, *rest])


def _refuse(sentence: str) -> int:
    print(f"bench: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        # `proxlin bench` starts this process with the signal ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main())
    except KeyboardInterrupt:  # before the first benchmark, or after the last
        print("bench: interrupted; no file is left half-written.", file=sys.stderr)
        sys.exit(130)
