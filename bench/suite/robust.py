"""A robust fit of a network with several outputs, to a given value: ours against scipy, optimistix,
jaxopt and Ceres.

    F(w) = (1/n) sum_i |phi(w, x_i) - y_i|        phi a tanh MLP, one hidden layer, float64

The targets come from a narrower planted network with Student noise (2 degrees of freedom), a tenth
of the rows moved far off. All start at the same points. First each method runs for a few seconds
(SECONDS, times --factor); the goal is a value within 1 % of the least that anyone found from there.
A time is that of the whole run with the iterations after which the goal was met, compilation left
out. Peers without nonsmooth losses get

    F_eps(w) = (1/n) sum_i sqrt(|r_i|^2 + eps^2),      F <= F_eps <= F + eps,      eps = 0.01

as it is (L-BFGS, Ceres' SoftLOne on blocks, scipy's least_squares with a loss of the blocks), or as
the least squares of (|r_i|^2 + eps^2)^(1/4) (Levenberg-Marquardt of optimistix and jaxopt). scipy's
own soft_l1 is another objective. The largest fit leaves out what forms a Jacobian of 20000 x 2410
and its Gram matrix at each step, ours too; --all takes it in.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

# factors of these sizes are slower on two threads, for all
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from bench import harness
from bench.peers.robust_methods import DENSE, OURS, PEERS, SIZES, Run, Stop, Task

TARGETS = {"jaxopt LBFGS": 1.0}
NEAR = 1.01  # the goal: this times the least value
# what a method gets from one start
SECONDS = {"small": 1.0, "middle": 4.0, "large": 6.0}
FIRST = dict.fromkeys(SIZES, "lbfgs")  # which of ours the ratios are of


@dataclass(frozen=True)
class Trace:
    """What a run from one start came to: (iteration, F) where F was less than before, if it was cut
    off, and the iterations from one look to the next.
    """

    falls: list[tuple[int, float]]
    cut: bool
    apart: int

    def least(self) -> float:
        return self.falls[-1][1]

    def count(self, goal: float) -> int | None:
        """Iterations to the goal."""
        return next((t for t, value in self.falls if value <= goal), None)


def trace(task: Task, run: Run, w: np.ndarray, limit: float) -> Trace:
    """Run for `limit` seconds or until it ends by itself; values of F are off the clock."""
    import jax

    falls: list[tuple[int, float]] = [(0, float(task.value(w)))]
    off, cut, start = 0.0, False, time.perf_counter()
    last = 0
    apart = 1

    def see(t: int, point: Any) -> None:
        nonlocal off, cut, last, apart
        apart = max(1, t - last)
        last = t
        jax.block_until_ready(point)  # what the method still computes is on its clock
        now = time.perf_counter()
        value, cut = float(task.value(point)), now - start - off > limit
        if value < falls[-1][1]:
            falls.append((t, value))
        off += time.perf_counter() - now
        if cut:
            raise Stop

    with suppress(Stop):
        run(w, 10**6, see)
    return Trace(falls, cut, apart)


def warm(run: Run, w: np.ndarray) -> float:
    """Compile all that a run needs; the seconds of the first call."""

    def see(t: int, _: Any) -> None:
        if t >= 2:
            raise Stop

    seconds = harness.seconds(lambda: run(w, 2))
    with suppress(Stop):
        run(w, 3, see)
    return seconds


def met(task: Task, run: Run, w: np.ndarray, goal: float, found: Trace) -> int | None:
    """The iterations after which the whole run meets the goal: those from the look before `count`
    on, up to `count`, or more where rounding leads it another way.
    """
    count = found.count(goal)
    if not count:
        return None
    until = range(max(1, count - found.apart + 1), count)
    beyond = (int(count * (1 + i / 20)) + i for i in range(21))
    tries = itertools.chain(until, beyond)
    return next((many for many in tries if task.value(run(w, many)) <= goal), None)


@dataclass(frozen=True)
class Contest:
    """All methods on one fit: what each found, its iterations to the goal, and the seconds of these
    in some rounds.
    """

    case: str
    limit: float
    goals: list[float]
    traces: dict[str, list[Trace]]
    counts: dict[str, list[int | None]]
    compile: dict[str, float]
    rounds: list[dict[str, list[float]]]

    def row(self, ours: str, peer: str) -> harness.Row:
        """Seconds summed over the starts from which both met the goal; or where theirs ended, if
        there is none.
        """
        mine, theirs = self.counts[ours], self.counts[peer]
        both = [i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a and b]
        some = both or [i for i, a in enumerate(mine) if a]
        note = self.note(ours, peer)
        if not some:
            return harness.missing(self.case, peer) | {"note": note}
        spent = lambda method: (
            iter([sum(each[method][i] for i in some) for each in self.rounds]).__next__
        )
        other = spent(peer) if both else lambda: None
        row = harness.race(
            self.case,
            spent(ours),
            {peer: other},
            len(self.rounds),
            self.compile[ours],
            {peer: note},
        )[0]
        if not both and all(each.cut for each in self.traces[peer]):
            row |= {
                "over": self.limit * len(some),
                "ratio": self.limit * len(some) / row["ours"],
            }
        return row

    def note(self, ours: str, peer: str) -> str:
        """Who met the goal, and how far above the least value those ended that did not."""
        parts = []
        for who, method in (("ours", ours), ("theirs", peer)):
            above = [
                each.least() / goal * NEAR - 1
                for each, goal in zip(self.traces[method], self.goals, strict=True)
            ]
            missed = [
                f"{100 * x:.1f} %"
                for x, count in zip(above, self.counts[method], strict=True)
                if not count
            ]
            if missed:
                parts.append(
                    f"{who} ended {', '.join(missed)} above the least F from {len(missed)} of {len(above)} starts"
                )
        return "; ".join(parts)


def contest(
    name: str, methods: dict[str, Callable[[Task], Run]], limit: float, repeats: int
) -> Contest:
    task = Task(name)
    runs = {method: build(task) for method, build in methods.items()}
    compile = {method: warm(run, task.starts[0]) for method, run in runs.items()}
    traces = {
        method: [trace(task, run, w, limit) for w in task.starts]
        for method, run in runs.items()
    }
    goals = [
        NEAR * min(each[i].least() for each in traces.values())
        for i in range(len(task.starts))
    ]
    counts = {
        method: [
            met(task, run, w, goal, found)
            for w, goal, found in zip(task.starts, goals, traces[method], strict=True)
        ]
        for method, run in runs.items()
    }
    lap = lambda method: [
        harness.seconds(partial(runs[method], w, count)) if count else 0.0
        for w, count in zip(task.starts, counts[method], strict=True)
    ]
    first = {method: lap(method) for method in runs}
    # rounds that fit into 3 times the limit
    most = max(2, int(3 * limit / max(sum(map(sum, first.values())), 1e-3)))
    rounds = [
        first,
        *(
            {method: lap(method) for method in runs}
            for _ in range(min(repeats - 1, most))
        ),
    ]
    return Contest(f"robust fit, {name}", limit, goals, traces, counts, compile, rounds)


def measure(
    name: str, whole: bool, factor: float, repeats: int
) -> Iterator[harness.Row]:
    """The rows of one fit: the first of ours against the others of ours and the peers."""
    kept = lambda methods: {
        x: methods[x] for x in methods if whole or name != "large" or x not in DENSE
    }
    ours = {f"ours: {x}": build for x, build in kept(OURS).items()}
    peers = {
        x: build
        for x, (module, build) in kept(PEERS).items()
        if harness.installed(module)
    }
    held, first = (
        contest(name, ours | peers, factor * SECONDS[name], repeats),
        f"ours: {FIRST[name]}",
    )
    for method in held.traces:
        if method != first:
            yield from harness.judged([held.row(first, method)], TARGETS)
    for x, (module, _) in PEERS.items():
        if not harness.installed(module):
            yield harness.missing(held.case, x)
        elif x not in kept(PEERS):
            yield harness.missing(held.case, x) | {
                "note": "left out: a Jacobian at each step; --all"
            }


def rows(arguments: argparse.Namespace) -> Iterator[harness.Row]:
    import jax

    jax.config.update("jax_enable_x64", True)
    for name in arguments.sizes:
        yield from measure(name, arguments.all, arguments.factor, arguments.repeats)


def main(argv: list[str] | None = None) -> int:
    return harness.run_as_command(
        "robust",
        __doc__,
        rows,
        argv,
        sizes={
            "nargs": "+",
            "choices": list(SIZES),
            "default": list(SIZES),
            "help": "which of the fits",
        },
        all={
            "action": "store_true",
            "help": "also what takes minutes on the largest fit",
        },
        factor={
            "type": float,
            "default": 1.0,
            "help": "times the seconds that each method gets to find its least F",
        },
    )


if __name__ == "__main__":
    raise SystemExit(main())
