"""Factorisations of images of digits, 8 x 8 pixels, rank 5, float64.

    F(U, V) = (1/n) sum_s f(<U_i(s), V_j(s)> - y_s),     the same F and the same start for all of a case

    nmf     squares and U, V >= 0, all pixels: scikit-learn's NMF, and scipy's least_squares with bounds
    salt    Huber and U, V >= 0, a tenth of the pixels white by mistake, a tenth missing: least_squares with bounds
    plain   Huber without bounds, on the same pixels: least_squares

    ours    px.prox_linear(sweeps=4), adaptive kappa, phi by px.touches; with bounds an interior point solves its
            subproblems
    NMF     coordinate descent, run again with 10, 20, 40, ... sweeps: its seconds are those of the first run that
            came to the goal

A row has the seconds to 1 % above the least F that anyone found. F is not convex, so a method may end elsewhere; the
note then has its F. No peer of these minimises an l1 loss or the norm of a row.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.harness import Row, run_as_command
from bench.suite.sparse import (
    Task,
    Trace,
    measure,
    product,
    product_rows,
    report,
    scipy_run,
)

NEAR = 1e-2
IMAGES = 40
RANK = 5
DELTA = 0.1  # a tenth of a white pixel
MOST = 10_240  # sweeps of NMF
CASES = ("nmf", "salt", "plain")


def make(name: str) -> Task:
    """Return the pixels of a case, and a start drawn by the seed."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    table = load_digits().data[:IMAGES] / 16
    there = np.full(table.shape, True)
    delta = math.inf
    if name != "nmf":
        table = np.where(rng.random(table.shape) < 0.1, 1.0, table)
        there = rng.random(table.shape) < 0.9
        delta = DELTA
    i, j = np.nonzero(there)
    size = np.sqrt(table.mean() / RANK)
    U, V = (size * rng.uniform(0.5, 1.5, (rows, RANK)) for rows in table.shape)
    y = table[i, j][:, None]
    return Task(i, j, y, U, V, product, product_rows, delta, name != "plain")


def nmf_run(task: Task, limit: float) -> Trace:
    """Return (seconds of a whole run, F at its end) for runs of more and more sweeps."""
    from sklearn.decomposition import non_negative_factorization

    table = np.zeros((len(task.U), len(task.V)))
    table[task.i, task.j] = task.y[:, 0]
    trace: Trace = [(0.0, task.value(task.U, task.V))]
    sweeps = 10
    while sweeps <= MOST and trace[-1][0] < limit:
        U = task.U.copy()
        H = np.ascontiguousarray(task.V.T)
        began = time.perf_counter()
        U, H, _ = non_negative_factorization(
            table, U, H, n_components=RANK, init="custom", tol=0.0, max_iter=sweeps
        )
        trace.append((time.perf_counter() - began, task.value(U, H.T)))
        sweeps *= 2
    return trace


def peers_of(name: str) -> dict[str, tuple[str, Callable[[Task, float], Trace]]]:
    """Return the peers that minimise the F of a case."""
    scipy = {"scipy": ("scipy", scipy_run)}
    if name == "nmf":
        return {"scikit-learn NMF": ("sklearn", nmf_run), **scipy}
    return scipy


def run_of(name: str, who: str, limit: float) -> dict[str, Any]:
    """Return what `report` says of a case and a peer, or of ours."""
    return report(make(name), peers_of(name), who, limit)


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    call = "bench.suite.factors:run_of"
    for name in arguments.cases:
        task = make(name)
        yield from measure(call, name, task, peers_of(name), arguments.limit, NEAR)


def main(argv: list[str] | None = None) -> int:
    limit = {"type": float, "default": 120.0, "help": "seconds of a run (120)"}
    cases = {"nargs": "+", "choices": list(CASES), "default": CASES, "help": "which"}
    return run_as_command("factors", __doc__, rows, argv, 1, cases=cases, limit=limit)


if __name__ == "__main__":
    raise SystemExit(main())
