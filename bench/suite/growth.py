"""How time and memory grow: the exponents of ours and of the best peer, and who is ahead at the
largest size.

    seconds or MiB ~ size^a,        a by least squares on the logarithms, with its standard error

subproblem   the exact prox-linear subproblem as n, k and d grow: Clarabel and SCS called directly
steps        an SGD step and an inner step of PLI as the width of the network grows: the same scan by hand in JAX
pass         F and its subgradient over all samples as n grows: jit(vmap) by hand in JAX
paths        the K best paths as K and the side of the map grow: the same recursion in numba, networkx
sweep        SGD with a grid of step sizes, four in a vmap, as the grid grows: the scan by hand, in turn
memory       of one Gauss-Newton step as n grows, matrix-free (pli): scipy's least_squares, dense Jacobian (Linux)

The best peer is the one with the least seconds (or MiB) at the largest size. Sizes are those of the
notes. Small sizes have fixed costs in them, so an exponent below that of the operation count is no
wonder.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in bench/suite/subproblem.py

import numpy as np

from bench import harness
from bench.harness import Row, Run

# a size -> a run of ours and one of each peer
Build = Callable[[int], tuple[Run, Mapping[str, Run | None]]]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """The slope of log cost over log size, and its standard error.

    >>> slope, error = exponent([1, 2, 4, 8], [3, 12, 48, 192])
    >>> round(slope, 6), error < 1e-6
    (2.0, True)
    """
    x, y = np.log(sizes), np.log(costs)
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    left = y - y.mean() - slope * x
    return slope, float(np.sqrt(left @ left / max(len(x) - 2, 1) / (x @ x)))


def growth(
    case: str,
    sizes: Sequence[int],
    build: Build,
    repeats: int,
    targets: Mapping[str, float] | None = None,
) -> Iterator[Row]:
    """The race at the largest size, and a row with the exponents of ours and of the best peer."""
    mine: list[float] = []
    theirs: dict[str, list[float]] = {}
    rows: list[Row] = []
    for size in sizes:
        ours, peers = build(size)
        compile = warm([ours, *(run for run in peers.values() if run is not None)])
        rows = harness.race(f"{case} = {size}", ours, peers, repeats, compile)
        mine.append(rows[0]["ours"])
        for row in rows:
            if row["theirs"] is not None:
                theirs.setdefault(row["peer"], []).append(row["theirs"])
    yield from harness.judged(rows, targets or {})
    yield from compared(case, sizes, mine, theirs)


def warm(runs: Sequence[Run]) -> float:
    """One run of each, which compiles; the seconds of the first."""
    first = harness.seconds(runs[0])
    for run in runs[1:]:
        run()
    return first


def compared(
    case: str,
    sizes: Sequence[int],
    mine: Sequence[float],
    theirs: Mapping[str, Sequence[float]],
):
    """The row of the exponents; only a peer that has a figure for every size can be the best."""
    whole = {peer: costs for peer, costs in theirs.items() if len(costs) == len(sizes)}
    if not whole:
        return
    peer = min(whole, key=lambda peer: whole[peer][-1])
    (a, da), (b, db) = exponent(sizes, mine), exponent(sizes, whole[peer])
    note = f"+- {da:.2f}, theirs +- {db:.2f}; sizes {', '.join(map(str, sizes))}"
    yield harness.count(
        f"{case}, exponent", peer, round(a, 2), round(b, 2), note, unit="exponent"
    )


# ----------------------------------------------------------------------------------- the subproblem


def subproblem(n: int, k: int, d: int) -> tuple[Run, Mapping[str, Run | None]]:
    """kappa = 1e-3, singular values 1/j, a gap of 1e-9."""
    from bench.suite import subproblem as table

    table.K = k
    A, b = table.make(n, d, 1)
    ours = table.Ours(A, b, 1e-3)
    value = table.objective(A, b, 1e-3, np.asarray(ours.run()[1].w))

    def peer(solve: Callable[[], np.ndarray]) -> float | None:
        found: list[np.ndarray] = []
        spent = harness.seconds(lambda: found.append(solve()))
        return (
            spent
            if table.objective(A, b, 1e-3, found[0]) <= value + table.AGREE
            else None
        )

    builders = {"clarabel": table.by_clarabel, "scs": table.by_scs}
    peers: dict[str, Run | None] = {
        name: partial(peer, build(A, b, 1e-3)) if harness.installed(name) else None
        for name, build in builders.items()
    }
    return lambda: ours.run()[0], peers


def subproblems(repeats: int) -> Iterator[Row]:
    yield from growth(
        "subproblem, k 10, d 1000, n",
        (16, 32, 64, 128),
        lambda n: subproblem(n, 10, 1000),
        repeats,
    )
    yield from growth(
        "subproblem, n 32, d 1000, k",
        (4, 8, 16, 32),
        lambda k: subproblem(32, k, 1000),
        repeats,
    )
    yield from growth(
        "subproblem, n 32, k 10, d",
        (250, 1000, 4000),
        lambda d: subproblem(32, 10, d),
        repeats,
    )


# --------------------------------------------------------------------------------- steps and passes


def network(width: int, n: int) -> tuple[Any, ...]:
    """w, x, y and the problem of an MLP 128-width-10 in float32."""
    import jax
    import jax.numpy as jnp

    import proxlin as px
    from proxlin.networks import MLP

    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=(n, size)), jnp.float32) for size in (128, 10))
    predict = MLP((128, width, 10), bias=False)
    return (
        predict.init(jax.random.key(0), jnp.float32),
        x,
        y,
        px.MeanOfLosses(px.residual(predict), px.L2(), (x, y)),
    )


def each(work: Callable[[], Any], count: int) -> Run:
    """Seconds for one of `count`."""
    return lambda: harness.seconds(work) / count


def sgd_step(width: int) -> tuple[Run, Mapping[str, Run | None]]:
    import jax
    import jax.numpy as jnp

    import proxlin as px
    from bench.suite.steps import HAND, STEP, N, by_hand

    w, x, y, problem = network(width, N)
    hand, order = (
        jax.jit(by_hand),
        jnp.asarray(np.random.default_rng(1).integers(0, N, N), jnp.int32),
    )
    ours = lambda: (
        px.minimize(problem, w, px.sgd(STEP), passes=2).history["seconds"][-1] / (2 * N)
    )
    return ours, {HAND: each(lambda: hand(w, x, y, order), N)}


def pli_step(width: int) -> tuple[Run, Mapping[str, Run | None]]:
    import jax
    import jax.numpy as jnp

    from bench.suite.steps import HAND, N, pli, pli_by_hand

    w, x, y, problem = network(width, N)
    ours, hand, order = (
        jax.jit(pli),
        jax.jit(pli_by_hand),
        jnp.asarray(np.random.default_rng(1).integers(0, N, N)),
    )
    order = order.astype(jnp.int32)
    return each(lambda: ours(w, problem, order), N), {
        HAND: each(lambda: hand(w, x, y, order), N)
    }


def full_pass(n: int) -> tuple[Run, Mapping[str, Run | None]]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from bench.suite.steps import HAND, loss

    w, x, y, problem = network(256, n)
    ours = eqx.filter_jit(lambda problem, w: problem.value_and_subgradient(w))
    total = lambda w, x, y: jnp.mean(jax.vmap(loss, (None, 0, 0))(w, x, y))
    hand = jax.jit(jax.value_and_grad(total))
    return each(lambda: ours(problem, w), 1), {HAND: each(lambda: hand(w, x, y), 1)}


def sweep(cells: int) -> tuple[Run, Mapping[str, Run | None]]:
    """An epoch of SGD for each step size of a grid: a solver is a tree of numbers, so settings
    vmap, four at a time.
    """
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import proxlin as px
    from bench.suite.steps import N, loss
    from proxlin.run.loop import Limits, advance

    w, x, y, problem = network(64, N)
    grid = jnp.logspace(-4, -2, cells, dtype=jnp.float32)
    order = jnp.asarray(np.random.default_rng(1).integers(0, N, N), jnp.int32)

    @eqx.filter_jit
    def ours(problem, w, grid):
        def run(step):
            solver = px.sgd(step)
            state = solver.init(problem, w)
            return advance(
                problem,
                solver,
                state,
                jax.random.key(0),
                jnp.int32(0),
                Limits(jnp.int32(N)),
            )[0].w

        # all 64 at once were slower than one by one
        return jax.lax.map(run, grid, batch_size=4)

    @jax.jit
    def hand(w, x, y, step):
        move = lambda w, g: w - step * g
        body = lambda w, i: (jax.tree.map(move, w, jax.grad(loss)(w, x[i], y[i])), None)
        return jax.lax.scan(body, w, order)[0]

    in_turn = lambda: [hand(w, x, y, step) for step in grid]
    return each(lambda: ours(problem, w, grid), 1), {
        "JAX by hand, in turn": each(in_turn, 1)
    }


def steps(repeats: int) -> Iterator[Row]:
    widths = (64, 128, 256, 512, 1024)
    yield from growth("SGD step, width", widths, sgd_step, repeats)
    yield from growth("PLI inner step, width", widths, pli_step, repeats)
    yield from growth(
        "F and subgradient, width 256, n", (500, 2000, 8000, 32000), full_pass, repeats
    )
    yield from growth("SGD epochs, step sizes", (1, 4, 16, 64), sweep, repeats)


# -------------------------------------------------------------------------------------------- paths


def paths(
    side: int, count: int, peer: str = "numba loop"
) -> tuple[Run, Mapping[str, Run | None]]:
    """Seconds for one map of 64, for networkx of 1."""
    import jax
    import jax.numpy as jnp

    from bench.suite import oracles
    from proxlin.oracles import MonotonePaths

    oracle = MonotonePaths(side, side)
    a = np.random.default_rng(side).normal(size=(oracles.BATCH, oracle.size()))
    on_device, top = jnp.asarray(a), jax.jit(jax.vmap(lambda a: oracle.top(a, count)))
    if not np.allclose(top(on_device)[0], oracles.top_grids(a, side, side, count)[0]):
        raise AssertionError(
            f"{side} x {side}, {count} paths: ours and the numba loop disagree"
        )
    if peer == "numba loop":
        theirs = each(lambda: oracles.top_grids(a, side, side, count), oracles.BATCH)
    else:
        theirs = (
            each(oracles.networkx_paths(a[:1], side)[0], 1)
            if harness.installed(peer)
            else None
        )
    return each(lambda: top(on_device), oracles.BATCH), {peer: theirs}


def oracles(repeats: int) -> Iterator[Row]:
    case = "10 best paths, side of the map"
    yield from growth(case, (6, 12, 24, 48), lambda side: paths(side, 10), 3 * repeats)
    # 48: minutes
    yield from growth(
        case, (6, 12, 24), lambda side: paths(side, 10, "networkx"), repeats
    )
    yield from growth(
        "best paths on 12 x 12, K",
        (2, 4, 8, 16, 32),
        lambda count: paths(12, count),
        3 * repeats,
        {"numba loop": 1 / 4},
    )


# ------------------------------------------------------------------------------------------- memory


def peak(kind: str, n: int) -> float:
    """MiB that one step needs beyond the imports, in a process of its own, compiled before; MLP
    64-64-10, float64.
    """
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree
    from scipy.optimize import least_squares

    import proxlin as px
    from proxlin.networks import MLP

    jax.config.update("jax_enable_x64", True)
    rng, predict = np.random.default_rng(0), MLP((64, 64, 10))
    w = predict.init(jax.random.key(0), jnp.float64)
    before = resident("VmRSS")
    x, y = (jnp.asarray(rng.normal(size=(n, size))) for size in (64, 10))
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), (x, y))
    flat, unravel = ravel_pytree(w)
    row = lambda w, x, y: predict(unravel(w), x) - y
    u = jax.jit(lambda w: jax.vmap(row, (None, 0, 0))(w, x, y).ravel())
    J: Any = jax.jit(
        lambda w: jax.vmap(jax.jacrev(row), (None, 0, 0))(w, x, y).reshape(-1, w.size)
    )
    runs = {
        "pli": lambda: px.minimize(problem, w, px.pli(0.1), steps=1),
        "scipy": lambda: least_squares(
            u, np.asarray(flat), J, loss="soft_l1", tr_solver="lsmr", max_nfev=2
        ),
    }
    runs[kind]()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    runs[kind]()
    return resident("VmHWM") - before


def resident(name: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at its peak (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) / 2**10


def memory(_: int) -> Iterator[Row]:
    sizes, peer = (250, 500, 1000, 2000), "scipy least_squares"
    found = {
        kind: [harness.apart("bench.suite.growth:peak", kind, n) for n in sizes]
        for kind in ("pli", "scipy")
    }
    case = "memory of a Gauss-Newton step, d 4810, n"
    if any(value is None for each in found.values() for value in each):
        yield harness.missing(case, peer) | {"note": "a process took too long"}
        return
    note = f"{found['scipy'][-1] / found['pli'][-1]:.1f} times ours"
    yield harness.count(
        f"{case} = {sizes[-1]}",
        peer,
        round(found["pli"][-1]),
        round(found["scipy"][-1]),
        note,
        "MiB",
    )
    yield from compared(case, sizes, found["pli"], {peer: found["scipy"]})


PARTS = {"subproblem": subproblems, "steps": steps, "paths": oracles, "memory": memory}


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    import jax

    jax.config.update("jax_enable_x64", True)
    for part in arguments.parts:
        yield from PARTS[part](arguments.repeats)


def main(argv: list[str] | None = None) -> int:
    options = {
        "parts": {
            "nargs": "+",
            "choices": list(PARTS),
            "default": list(PARTS),
            "help": "which of them",
        }
    }
    return harness.run_as_command("growth", __doc__, rows, argv, repeats=3, **options)


if __name__ == "__main__":
    raise SystemExit(main())
