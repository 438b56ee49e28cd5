"""The 27 nonlinear regressions of NIST, from both starting points.

    squares    SquaredL2 to 6 certified digits in every parameter: how many of 54 fits, and the time of a fit,
               against scipy (lm, trf), lmfit and optimistix (LevenbergMarquardt, Dogleg)
    l1, huber  the same models with L1 and with Huber (delta 1.345 certified standard deviations): who ends lower,
               against DNLP + IPOPT of cvxpy

The files are those of tests/bench/nist. Ours is the solver of px.curve_fit, in one compiled program
as that of optimistix. At most 2000 evaluations and 5 s for a fit; tolerances at round-off (1e-15;
optimistix and ours 1e-10). Digits are the log relative error of the worst parameter; parameters with
the same curve are the same. The time of a fit is that of the whole call, compiled before; ratios are
medians and quartiles over the fits that both solved.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import numpy as np

from bench.harness import Row, count, installed, judged, missing, run_as_command
from bench.peers.nist_fits import (
    Fit,
    Solve,
    attempted,
    ipopt_fit,
    lmfit_fit,
    optimistix_fit,
    proxlin_fit,
    robust_fit,
    scipy_fit,
)
from bench.suite.nist_problems import MODELS, Regression, digits, read_all

DIGITS = 6.0
ENOUGH = 0.5  # seconds: a fit is repeated until then, or as often as was asked
SAME = 1e-6  # relative difference of two values of F that is none
# delta in standard deviations: 95 % efficient for normal errors (Huber 1981, p. 87)
HUBER = 1.345
# The least ratios asked: a fit by optimistix runs as one compiled program.
TARGETS = {"scipy lm": 1.0, "scipy trf": 1.0, "lmfit": 1.0, "optimistix LM": 0.5}
PEERS: dict[str, tuple[str, Callable[[Regression], Solve]]] = {
    "scipy lm": ("scipy", lambda r: scipy_fit(r, "lm")),
    "scipy trf": ("scipy", lambda r: scipy_fit(r, "trf")),
    "lmfit": ("lmfit", lmfit_fit),
    "optimistix LM": ("optimistix", lambda r: optimistix_fit(r, "LevenbergMarquardt")),
    "optimistix Dogleg": ("optimistix", lambda r: optimistix_fit(r, "Dogleg")),
}
IPOPT = "DNLP + IPOPT"


def timed(solve: Solve, start: np.ndarray) -> tuple[Fit, float]:
    began = time.perf_counter()
    found = attempted(solve, start)
    return found, time.perf_counter() - began


# ------------------------------------------------------------------------------------------ squares


@dataclass(frozen=True)
class Record:
    """What a solver did from one start: digits, evaluations (ours: steps), seconds, seconds to
    compile.
    """

    case: str
    digits: float
    evaluations: int
    message: str
    seconds: float
    first: float

    @property
    def solved(self) -> bool:
        return self.digits >= DIGITS


def measured(
    r: Regression, solvers: dict[str, Solve], repeats: int
) -> dict[str, list[Record]]:
    """Both starts: the first call compiles and gives the digits; then rounds over all solvers give
    the seconds.
    """
    records: dict[str, list[Record]] = {name: [] for name in solvers}
    for which, start in enumerate(r.starts, 1):
        firsts = {name: timed(solve, start) for name, solve in solvers.items()}
        times: dict[str, list[float]] = {name: [] for name in solvers}
        for _ in range(repeats):
            for name, solve in solvers.items():
                if sum(times[name]) < ENOUGH:
                    times[name].append(timed(solve, start)[1])
        for name, (fit, first) in firsts.items():
            reached, middle = (
                digits(r.name, fit.b, r.certified),
                statistics.median(times[name]),
            )
            records[name].append(
                Record(
                    f"{r.name}/{which}",
                    reached,
                    fit.evaluations,
                    fit.message,
                    middle,
                    max(0.0, first - middle),
                )
            )
    return records


def squares(regressions: list[Regression], repeats: int, alone: bool) -> Iterator[Row]:
    peers = (
        {}
        if alone
        else {name: make for name, (module, make) in PEERS.items() if installed(module)}
    )
    records: dict[str, list[Record]] = {}
    for r in regressions:
        solvers = {"ours": proxlin_fit(r)} | {
            name: make(r) for name, make in peers.items()
        }
        for name, new in measured(r, solvers, repeats).items():
            records.setdefault(name, []).extend(new)
        if alone:
            for x in records["ours"][-2:]:
                print(
                    f"{x.case:12s}{x.digits:6.1f} digits{x.evaluations:6d} steps  {x.seconds:.3g} s  {x.message}",
                    flush=True,
                )
    ours, case = records["ours"], f"least squares, 6 digits, of {2 * len(regressions)}"
    if alone:
        yield count(case, "certified", solved(ours), len(ours), about(ours))
        return
    mine = f"ours: {about(ours)}; theirs: "  # with the first peer only
    for name in PEERS:
        if name not in peers:
            yield missing("least squares", name)
            continue
        yield count(
            case, name, solved(ours), solved(records[name]), mine + about(records[name])
        )
        mine = ""
    for name in peers:
        yield from judged(list(times_row(ours, records[name], name)), TARGETS)


def solved(records: list[Record]) -> int:
    return sum(record.solved for record in records)


def about(records: list[Record]) -> str:
    failed = [record.case for record in records if not record.solved]
    middle = statistics.median(record.evaluations for record in records)
    return (
        f"median {middle:g} steps, {f'not {chr(32).join(failed)}' if failed else 'all'}"
    )


def times_row(ours: list[Record], theirs: list[Record], name: str) -> Iterator[Row]:
    """The median seconds of a fit and, over the fits that both solved, the quartiles of the ratios."""
    both = [
        (a.seconds, b.seconds)
        for a, b in zip(ours, theirs, strict=True)
        if a.solved and b.solved
    ]
    if len(both) > 1:
        compile = statistics.median(record.first for record in ours[::2])
        note = f"{len(both)} fits both solved"
        yield ratio_row("least squares, a fit", name, *zip(*both, strict=True)) | {
            "compile": compile,
            "note": note,
        }


def ratio_row(
    case: str, peer: str, ours: tuple[float, ...], theirs: tuple[float, ...]
) -> Row:
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    times = {
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "compile": None,
    }
    return (
        {"case": case, "peer": peer}
        | times
        | {"ratio": middle, "low": low, "high": high, "note": ""}
    )


# ------------------------------------------------------------------------------------- l1 and Huber


@dataclass(frozen=True)
class Ends:
    """F where ours and where IPOPT ended from one start, their seconds, and the difference of F
    that is round-off.
    """

    name: str
    which: int
    values: tuple[float, float]
    seconds: tuple[float, float]
    slack: float

    def above(self, value: float, other: float) -> bool:
        return not value <= other * (1 + SAME) + self.slack


def robust(regressions: list[Regression], name: str, alone: bool) -> Iterator[Row]:
    """Who ends lower, and who reaches the least value that anyone found from either start."""
    case = f"{name}, not above the other, of {2 * len(regressions)}"
    there = installed("cvxpy", "cyipopt") and not alone
    ends: list[Ends] = []
    for r in regressions:
        delta = (
            HUBER * (r.squares / (len(r.y) - len(r.certified))) ** 0.5
            if name == "huber"
            else None
        )
        ours = robust_fit(r, delta)
        for which, start in enumerate(r.starts, 1):
            if not ends:
                timed(ours, start)  # compiles for all 27
            found, mine = timed(ours, start)
            value = objective(r, found.b, delta)
            if alone:
                text = f"{value:.10g}  {found.evaluations} steps  {mine:.3g} s  {found.message}"
                print(f"{r.name}/{which}".ljust(12), text, flush=True)
            peer, theirs = timed(ipopt_fit(r, delta), start) if there else (found, mine)
            other = objective(r, peer.b, delta)
            # the residuals of Lanczos1 are 1e-13, of data near 1
            ends.append(
                Ends(
                    r.name,
                    which,
                    (value, other),
                    (mine, theirs),
                    1e-13 * float(np.mean(np.abs(r.y))),
                )
            )
    if there:
        yield from compared(case, name, ends)
    elif not alone:
        yield missing(case, IPOPT)


def compared(case: str, name: str, ends: list[Ends]) -> Iterator[Row]:
    higher = [
        [f"{e.name}/{e.which}" for e in ends if e.above(e.values[i], e.values[1 - i])]
        for i in (0, 1)
    ]
    note = f"ours higher: {' '.join(higher[0]) or 'none'}; theirs higher: {' '.join(higher[1]) or 'none'}"
    yield count(case, IPOPT, *(len(ends) - len(x) for x in higher), note=note)
    least: dict[str, float] = {}
    for e in ends:
        least[e.name] = min(least.get(e.name, np.inf), *e.values)
    ours, theirs = (
        sum(not e.above(e.values[i], least[e.name]) for e in ends) for i in (0, 1)
    )
    yield count(
        f"{name}, at the least value known, of {len(ends)}", IPOPT, ours, theirs
    )
    note = "once each; ours padded to 250 samples and 9 parameters, theirs with the rewriting by cvxpy"
    yield ratio_row(
        f"{name}, a fit", IPOPT, *zip(*(e.seconds for e in ends), strict=True)
    ) | {"note": note}


def objective(r: Regression, b: np.ndarray, delta: float | None) -> float:
    """The mean of |u_i| or of Huber's function of u_i; inf where it is not a number."""
    with np.errstate(all="ignore"):
        u = np.abs(r.model(np, b, r.x.T) - r.y)
        value = np.mean(
            u
            if delta is None
            else np.where(u <= delta, u * u / 2, delta * (u - delta / 2))
        )
    return float(value) if np.isfinite(value) else np.inf


# -------------------------------------------------------------------------------------- the command


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    wanted = arguments.problems or MODELS
    regressions = [r for r in read_all() if r.name in wanted]
    for name in ("squares", "l1", "huber"):
        if arguments.part not in (None, name):
            continue
        if name == "squares":
            yield from squares(regressions, arguments.repeats, arguments.ours)
        else:
            yield from robust(regressions, name, arguments.ours)


def main(argv: list[str] | None = None) -> int:
    jax.config.update("jax_enable_x64", True)
    return run_as_command(
        *("nist", __doc__, rows, argv),
        repeats=3,
        ours={"action": "store_true", "help": "ours alone, with a line for each fit"},
        part={"choices": ("squares", "l1", "huber"), "help": "this part only"},
        problems={
            "nargs": "+",
            "metavar": "NAME",
            "choices": list(MODELS),
            "help": "these problems only",
        },
    )


if __name__ == "__main__":
    raise SystemExit(main())
