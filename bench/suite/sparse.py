"""Sparse Jacobians: the robust fit of a factorisation and of a calibration network, float64.

    F(U, V) = (1/n) sum_s sum_j huber(phi_s(U_i(s), V_j(s))_j),     the same F and the same start for all

    ours    px.prox_linear(sweeps=4), adaptive kappa, phi by px.touches
    Ceres   pyceres, HuberLoss, SPARSE_SCHUR, one thread; a cost function in Python for each residual, which is what a
            user of Python can write: its seconds have many calls of Python in them
    scipy   least_squares(method="trf", loss="huber", tr_solver="lsmr"), the Jacobian a sparse matrix by formulas

Each run is a process of its own. It goes to its own end or to --limit seconds, ours too, and says F with the seconds
so far; a step that is under way at the limit is finished if that takes no longer than the limit once more. `seconds`
rows compare the seconds until F is within 1e-3 (relative) of the least F of all; a run that does not arrive is noted
with its limit. `memory` is the peak of the process of ours, compilation included.
"""

import argparse
import contextlib
import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from bench.harness import Row, apart, count, installed, race, run_as_command

NEAR = 1e-3
DELTA = 0.3
START = 120.0  # seconds for imports, for compilation and to build the problem of a peer
STEPS = 200
SWEEPS = 4
SIZES = {  # residuals, rows of U, rows of V
    "factorisation": (5_000, 230, 20),
    "calibration": (4_000, 300, 20),
    "factorisation, full": (50_000, 2_300, 200),
}
Trace = list[tuple[float, float]]  # seconds, F


class Stop(Exception):
    """The time is over."""


@dataclass(frozen=True)
class Task:
    """phi of row i[s] of U and row j[s] of V; `rows` returns it with its two Jacobians, for all samples or for one."""

    i: np.ndarray
    j: np.ndarray
    y: np.ndarray
    U: np.ndarray
    V: np.ndarray
    phi: Callable
    rows: Callable
    delta: float = DELTA  # inf for squares
    nonnegative: bool = False

    def problem(self) -> px.MeanOfLosses:
        inner = px.touches(
            lambda local, s: self.phi(local["U"], local["V"]) - s["y"],
            lambda s: {"U": s["i"], "V": s["j"]},
        )
        data = {"i": self.i, "j": self.j, "y": self.y}
        outer = px.SquaredL2() if math.isinf(self.delta) else px.Huber(self.delta)
        penalty = px.NonNegative() if self.nonnegative else None
        return px.MeanOfLosses(inner, outer, data, penalty=penalty)

    def residuals(self, U: np.ndarray, V: np.ndarray) -> np.ndarray:
        return self.rows(U[self.i], V[self.j])[0] - self.y

    def value(self, U: np.ndarray, V: np.ndarray) -> float:
        size = np.abs(self.residuals(U, V))
        huber = np.where(
            size < self.delta, size**2 / 2, self.delta * (size - self.delta / 2)
        )
        return float(np.sum(huber) / len(self.i))


def product(u: Any, v: Any) -> Any:
    return jnp.sum(u * v)[None]


def product_rows(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    return np.sum(u * v, axis=-1)[..., None], v[..., None, :], u[..., None, :]


def projection(u: Any, v: Any) -> Any:
    """A point u as a camera v = (a, t) sees it: p = u + a x u + t, of a small rotation a."""
    p = u + jnp.cross(v[:3], u) + v[3:]
    return p[:2] / p[2]


def cross(a: np.ndarray) -> np.ndarray:
    """The matrix of x -> a x x."""
    x, y, z = np.moveaxis(a, -1, 0)
    o = np.zeros_like(x)
    rows = [[o, -z, y], [z, o, -x], [-y, x, o]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def projection_rows(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    a = v[..., :3]
    p = u + np.cross(a, u) + v[..., 3:]
    depth = p[..., 2:]
    seen = p[..., :2] / depth
    eye = np.broadcast_to(np.eye(3), (*p.shape, 3))
    slope = (eye[..., :2, :] - seen[..., None] * eye[..., 2:, :]) / depth[..., None]
    to_camera = np.concatenate([-cross(u), eye], axis=-1)
    return seen, slope @ (eye + cross(a)), slope @ to_camera


def make(name: str) -> Task:
    """Return the data of a case: every tenth residual is wrong by a lot."""
    n, rows, columns = SIZES[name]
    rng = np.random.default_rng(0)
    if name == "calibration":
        n = n // 2  # a sample has two residuals
        U = rng.normal(size=(rows, 3))
        V = np.concatenate([0.1 * rng.normal(size=(columns, 3)), rng.normal(size=(columns, 3))], 1)  # fmt: skip
        V[:, 5] += 8.0
        phi, exact = projection, projection_rows
    else:
        U, V = rng.normal(size=(rows, 8)), rng.normal(size=(columns, 8))
        phi, exact = product, product_rows
    i = np.arange(n) % rows
    j = rng.integers(0, columns, n)
    y = exact(U[i], V[j])[0]
    y = y + 0.05 * rng.normal(size=y.shape)
    y[::10] += rng.normal(scale=5.0, size=y[::10].shape)
    start = [x + 0.2 * rng.normal(size=x.shape) for x in (U, V)]
    return Task(i, j, y, start[0], start[1], phi, exact)


# --------------------------------------------------------------------------------------------- runs


def ours(task: Task, limit: float) -> tuple[Trace, float]:
    """Return the trace and the seconds of compilation."""
    w = {"U": jnp.asarray(task.U), "V": jnp.asarray(task.V)}
    solver = px.prox_linear(sweeps=SWEEPS)
    began = time.perf_counter()
    over = lambda _, record: record["seconds"] > limit
    found = px.minimize(task.problem(), w, solver, steps=STEPS, tol=1e-5, stop=over)
    whole = time.perf_counter() - began
    clock = np.asarray(found.history["seconds"])
    value = np.asarray(found.history["value"])
    trace = list(zip(clock.tolist(), value.tolist(), strict=True))
    return trace, whole - trace[-1][0]


def scipy_run(task: Task, limit: float) -> Trace:
    from scipy.optimize import least_squares
    from scipy.sparse import csr_matrix

    m, k = task.y.shape
    width, other = task.U.shape[1], task.V.shape[1]
    across = task.i[:, None] * width + np.arange(width)
    down = task.U.size + task.j[:, None] * other + np.arange(other)
    columns = np.repeat(np.concatenate([across, down], axis=1), k, axis=0)
    ends = np.arange(m * k + 1) * (width + other)
    began = time.perf_counter()
    trace: Trace = []

    def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = task.U.size
        return x[:size].reshape(task.U.shape), x[size:].reshape(task.V.shape)

    def fun(x: np.ndarray) -> np.ndarray:
        U, V = split(x)
        trace.append((time.perf_counter() - began, task.value(U, V)))
        if trace[-1][0] > limit:
            raise Stop
        return task.residuals(U, V).ravel()

    def jac(x: np.ndarray) -> Any:
        U, V = split(x)
        _, to_u, to_v = task.rows(U[task.i], V[task.j])
        entries = np.concatenate([to_u, to_v], axis=-1)
        shape = (m * k, x.size)
        return csr_matrix((entries.ravel(), columns.ravel(), ends), shape)

    x = np.concatenate([task.U.ravel(), task.V.ravel()])
    settings: dict[str, Any] = {"method": "trf", "tr_solver": "lsmr"}
    if not math.isinf(task.delta):
        settings |= {"loss": "huber", "f_scale": task.delta}
    if task.nonnegative:
        settings["bounds"] = (0.0, np.inf)
    with contextlib.suppress(Stop):
        least_squares(fun, x, jac, **settings)
    return trace


def ceres_run(task: Task, limit: float) -> Trace:
    import pyceres

    U = [np.array(row) for row in task.U]
    V = [np.array(row) for row in task.V]
    k = task.y.shape[1]

    class Entry(pyceres.CostFunction):
        """One entry of the residual of one sample."""

        def __init__(self, s: int, entry: int):
            pyceres.CostFunction.__init__(self)
            self.y = task.y[s, entry]
            self.entry = entry
            self.set_num_residuals(1)
            self.set_parameter_block_sizes([task.U.shape[1], task.V.shape[1]])

        def Evaluate(self, parameters: Any, residuals: Any, jacobians: Any) -> bool:
            found = task.rows(parameters[0], parameters[1])
            residuals[0] = found[0][self.entry] - self.y
            if jacobians is not None:
                for jacobian, full in zip(jacobians, found[1:], strict=True):
                    if jacobian is not None:
                        jacobian[:] = full[self.entry]
            return True

    class Each(pyceres.IterationCallback):
        def __init__(self) -> None:
            pyceres.IterationCallback.__init__(self)

        def __call__(self, summary: Any) -> Any:
            now = time.perf_counter() - began
            trace.append((now, task.value(np.array(U), np.array(V))))
            if now > limit:
                return pyceres.CallbackReturnType.SOLVER_TERMINATE_SUCCESSFULLY
            return pyceres.CallbackReturnType.SOLVER_CONTINUE

    problem = pyceres.Problem()
    loss = pyceres.HuberLoss(DELTA)
    costs = [(s, Entry(s, entry)) for s in range(len(task.i)) for entry in range(k)]
    for s, cost in costs:
        problem.add_residual_block(cost, loss, [U[task.i[s]], V[task.j[s]]])
    options = pyceres.SolverOptions()
    options.linear_solver_type = pyceres.LinearSolverType.SPARSE_SCHUR
    options.max_num_iterations = 200
    options.num_threads = 1
    options.minimizer_progress_to_stdout = False
    options.logging_type = pyceres.LoggingType.SILENT
    options.update_state_every_iteration = True
    options.callbacks = [Each()]
    trace: Trace = []
    began = time.perf_counter()
    pyceres.solve(options, problem, pyceres.SolverSummary())
    return trace


# --------------------------------------------------------------------------------------------- rows


def arrived(trace: Trace, goal: float) -> float | None:
    """Return the seconds at which F was first at the goal, or None."""
    return next((now for now, value in trace if value <= goal), None)


PEERS = {"scipy": ("scipy", scipy_run), "Ceres": ("pyceres", ceres_run)}
OURS = "ours"
Peers = Mapping[str, tuple[str, Callable[[Task, float], Trace]]]


def report(task: Task, peers: Peers, who: str, limit: float) -> dict[str, Any]:
    """Return the trace of a run, the seconds of compilation, and the peak memory of this process in GiB."""
    jax.config.update("jax_enable_x64", True)
    compile = 0.0
    if who == OURS:
        trace, compile = ours(task, limit)
    else:
        trace = peers[who][1](task, limit)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"trace": trace, "compile": compile, "peak": peak}


def run_of(name: str, who: str, limit: float) -> dict[str, Any]:
    """Return what `report` says of a case and a peer, or of ours."""
    return report(make(name), PEERS, who, limit)


def measure(
    call: str, name: str, task: Task, peers: Peers, limit: float, near: float = NEAR
) -> Iterator[Row]:
    """Run ours and the peers from the same start, each by `call` in its own process, and compare the seconds
    to (1 + near) times the least F of all.
    """
    found = {}
    for who in (OURS, *peers):
        if who == OURS or installed(peers[who][0]):
            found[who] = apart(call, name, who, limit, cap=2 * limit, start=START)
    mine = found[OURS]
    if mine is None or not mine["trace"]:
        raise AssertionError(f"{name}: ours took no step within {limit:g} s")
    traces = {who: run["trace"] for who, run in found.items() if run and run["trace"]}
    # F of ours is by JAX and that of the peers by NumPy: they must be one function.
    starts = [trace[0][1] for trace in traces.values()]
    if not np.allclose(starts, starts[0], rtol=1e-9):
        raise AssertionError(
            f"{name}: F at the start is {starts}, not the same for all"
        )
    best = min(value for trace in traces.values() for _, value in trace)
    goal = (1 + near) * best
    ends = {who: min(value for _, value in trace) for who, trace in traces.items()}
    own = arrived(traces[OURS], goal)
    n, d = task.y.size, task.U.size + task.V.size
    case = f"{name}, {n} x {d}"
    runs: dict[str, Callable[[], float | None] | None] = {}
    notes = {}
    for peer in peers:
        runs[peer] = None
        if peer not in found:
            continue
        seconds = arrived(traces.get(peer, []), goal)
        runs[peer] = lambda seconds=seconds: seconds
        notes[peer] = _note(traces, ends, peer, seconds, near, limit)
    if own is None:
        for peer in ends:
            note = f"ours not within {near:g} of the least, limit {limit:g} s"
            yield count(f"{case}, F", peer, ends[OURS], ends[peer], note, "F")
    else:
        yield from race(
            f"{case}, seconds", lambda: own, runs, 1, mine["compile"], notes
        )
    yield count(f"{case}, peak memory", "", mine["peak"], 2.0, "at most 2", "GiB")


def _note(
    traces: Mapping[str, Trace],
    ends: Mapping[str, float],
    peer: str,
    seconds: float | None,
    near: float,
    limit: float,
) -> str:
    """Say which F a peer and ours came to, and within which limit."""
    if peer not in traces:
        return f"no F within the limit of {limit:g} s"
    note = f"F {ends[peer]:.5f}, ours {ends[OURS]:.5f}; limit {limit:g} s"
    if seconds is None:
        last = traces[peer][-1][0]
        note += f"; not within {near:g} of the least after {last:.0f} s"
    return note


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    call = "bench.suite.sparse:run_of"
    for name in arguments.cases:
        yield from measure(call, name, make(name), PEERS, arguments.limit)


def main(argv: list[str] | None = None) -> int:
    small = [name for name in SIZES if "full" not in name]
    limit = {"type": float, "default": 120.0, "help": "seconds of a run (120)"}
    cases = {"nargs": "+", "choices": list(SIZES), "default": small, "help": "which"}
    return run_as_command("sparse", __doc__, rows, argv, 1, cases=cases, limit=limit)


if __name__ == "__main__":
    raise SystemExit(main())
