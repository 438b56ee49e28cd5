"""How the benchmarks measure: rounds over all runs, so that a busy machine hits all of them, and
one kind of row.

A run is a function that does the work once and returns its seconds, compilation left out, or None
if it did not reach the wanted accuracy. `race` gives a row for each peer: the ratio (peer's
seconds) / (our seconds), above 1 where ours is faster, as the median and the quartiles over rounds.
Without peers it gives one row with our seconds alone, so that two revisions of our code can be
compared.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proxlin.files.writing import write_file

Run = Callable[[], float | None]
Row = dict[str, Any]

# seconds: a run over the first is not repeated, over the second is cut off
ONCE, CAP = 60.0, 120.0
ALONE = 9  # rounds of --ours, whose runs are short: enough for quartiles
ROOT = Path(__file__).parent.parent


def seconds(work: Callable[[], Any]) -> float:
    """The seconds of work(), with what it returns waited for if it is a tree of JAX arrays."""
    jax = sys.modules.get("jax")
    start = time.perf_counter()
    answer = work()
    if jax is not None:
        jax.block_until_ready(answer)
    return time.perf_counter() - start


def installed(*modules: str) -> bool:
    return all(find_spec(module) is not None for module in modules)


def missing(case: str, peer: str) -> Row:
    """The row of a peer that is not there."""
    return _row(case, peer, None, None, note="not installed")


def race(
    case: str,
    ours: Run,
    peers: Mapping[str, Run | None],
    repeats: int = 5,
    compile: float | None = None,
    notes: Mapping[str, str] | None = None,
) -> list[Row]:
    """A row for each peer; a peer that is None is not installed. `compile` is the seconds our
    compilation took.

    In a round each runs once, ours first. A peer over 60 s runs once; None for the seconds means
    that the accuracy was not reached, float("inf") that the run was cut off. Where there are no
    peers, the one row has our quartiles.
    """
    mine: list[float] = []
    times: dict[str, list[float | None]] = {
        name: [] for name, run in peers.items() if run is not None
    }
    pairs: dict[str, list[float]] = {name: [] for name in times}
    for _ in range(repeats):
        now = ours()
        if now is None:
            raise AssertionError(f"{case}: ours did not reach the wanted accuracy")
        mine.append(now)
        for name in times:
            if any(t is None or t > ONCE for t in times[name]):
                continue
            theirs = peers[name]()  # type: ignore[misc]
            times[name].append(theirs)
            if theirs is not None:
                pairs[name].append(theirs / now)
    if not peers:
        spread = _quartiles(mine)
        return [
            _row(case, "", mine, None, compile)
            | {"fast": spread["low"], "slow": spread["high"]}
        ]
    rows = []
    for name, run in peers.items():
        note = (notes or {}).get(name, "")
        if run is None:
            rows.append(
                missing(case, name)
                | {"ours": statistics.median(mine), "compile": compile}
            )
        elif times[name][-1] is None:
            rows.append(
                _row(case, name, mine, None, compile, note or "accuracy not reached")
            )
        elif times[name][-1] == float("inf"):
            rows.append(
                _row(case, name, mine, None, compile, note)
                | {"over": CAP, "ratio": CAP / max(mine)}
            )
        else:
            rows.append(
                _row(case, name, mine, times[name], compile, note)
                | _quartiles(pairs[name])
            )
    return rows


def _row(case, peer, ours, theirs, compile=None, note="") -> Row:
    middle = lambda t: None if t is None else statistics.median(t)
    row = {
        "case": case,
        "peer": peer,
        "ours": middle(ours),
        "theirs": middle(theirs),
        "compile": compile,
    }
    return row | {"ratio": None, "low": None, "high": None, "note": note}


def _quartiles(ratios: Sequence[float]) -> dict[str, float]:
    if len(ratios) == 1:
        return {"ratio": ratios[0], "low": ratios[0], "high": ratios[0]}
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"ratio": middle, "low": low, "high": high}


def count(
    case: str, peer: str, ours: float, theirs: float, note: str = "", unit: str = ""
) -> Row:
    """A row that compares something else than time (problems solved, an exponent, MiB)."""
    return {
        "case": case,
        "peer": peer,
        "ours": ours,
        "theirs": theirs,
        "unit": unit or "count",
        "note": note,
    }


def judged(rows: Sequence[Row], targets: Mapping[str, float]) -> list[Row]:
    """The rows, with the least ratio asked of a peer and whether it was kept in the note; 1 / 1.15:
    ours <= 1.15 x.
    """
    return [row | {"note": _verdict(row, targets.get(row["peer"]))} for row in rows]


def within(rows: Sequence[Row], most: float) -> list[Row]:
    """The rows, with the most seconds that ours may take, and whether it was kept, in the note."""

    def note(row: Row) -> str:
        verdict = "kept" if row["ours"] <= most else "MISSED"
        text = f"target: ours <= {duration(most)} {verdict}"
        return f"{text}; {row['note']}" if row["note"] else text

    return [row | {"note": note(row)} for row in rows]


def _verdict(row: Row, least: float | None) -> str:
    if least is None or row["ratio"] is None:
        return row["note"]
    asked = f"target >= {least:g}" if least >= 1 else f"target: ours <= {1 / least:g} x"
    missed = "undecided" if row.get("over") else "MISSED"
    verdict = f"{asked} {'kept' if row['ratio'] >= least else missed}"
    return f"{verdict}; {row['note']}" if row["note"] else verdict


def apart(
    call: str,
    *args: Any,
    cap: float = CAP,
    start: float = 30.0,
    env: Mapping[str, str] | None = None,
) -> Any:
    """module:function(*args) in a process of its own, its answer as JSON; None if it took more than
    cap + start s.

    `start` is for imports and compilation, which the function itself leaves out of the seconds it reports.
    """
    module, function = call.split(":")
    code = f"import json,sys; from {module} import {function} as f; print(json.dumps(f(*json.loads(sys.argv[1]))))"
    command = [sys.executable, "-c", code, json.dumps(args)]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=cap + start,
            env={**os.environ, **(env or {})},
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise RuntimeError(
            f"{call}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
        )
    return json.loads(done.stdout.splitlines()[-1])


# ----------------------------------------------------------------------------------------- printing


def show(row: Row) -> str:
    """One line: the case, the peer, both times and the ratio, or why there is none."""
    head = f"{row['case']:44s} {row['peer']:22s}"
    note = f"  {row['note']}" if row.get("note") else ""
    if "unit" in row:
        unit = "" if row["unit"] == "count" else f" {row['unit']}"
        return (
            f"{head} ours {row['ours']:g}{unit}, theirs {row['theirs']:g}{unit}{note}"
        )
    ours = "" if row["ours"] is None else f" ours {own_seconds(row)}"
    if row.get("over"):
        return f"{head}{ours}, theirs > {row['over']:g} s: > {row['ratio']:.3g} x{note}"
    if row["ratio"] is None:
        return f"{head}{ours}{note}"
    spread = f"({row['low']:.3g} to {row['high']:.3g})"
    return f"{head}{ours}, theirs {duration(row['theirs'])}: {row['ratio']:.3g} x {spread}{note}"


def own_seconds(row: Row) -> str:
    """Return our seconds, with their quartiles in a row without a peer."""
    if "fast" not in row:
        return duration(row["ours"])
    return (
        f"{duration(row['ours'])} ({duration(row['fast'])} to {duration(row['slow'])})"
    )


def duration(t: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if t >= size:
            return f"{t / size:.3g} {unit}"
    return f"{t * 1e9:.3g} ns"


OURS = {
    "action": "store_true",
    "help": "leave the peers out: our seconds alone, median and quartiles",
}


def run_as_command(
    name: str,
    doc: str | None,
    rows: Callable[[argparse.Namespace], Iterable[Row]],
    argv: list[str] | None,
    /,
    repeats: int = 5,
    **options: dict,
) -> int:
    """Run a benchmark as a command with --json FILE, --repeats N and its own options; `rows` yields
    what it measured.

    A benchmark that can leave its peers out has the option `ours` (OURS below), and reads
    `arguments.ours`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.suite.{name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write the rows there too"
    )
    parser.add_argument(
        "--repeats", type=int, help=f"rounds ({repeats}; with --ours {ALONE})"
    )
    for flag, settings in options.items():
        parser.add_argument(f"--{flag}", **settings)
    arguments = parser.parse_args(argv)
    if arguments.repeats is None:
        alone = "ours" in options and arguments.ours
        arguments.repeats = ALONE if alone else repeats
    kept: list[Row] = []
    for row in rows(arguments):
        kept.append(row)
        print(show(row), flush=True)
        if arguments.json:
            write_file(arguments.json, json.dumps(kept, indent=1).encode())
    return 0
