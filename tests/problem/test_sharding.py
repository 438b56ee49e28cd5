"""Data on several devices and processes: the result of one device up to round-off, and only small
things travel.

A process has one number of devices, so each test runs this file as a program in processes of its
own:

    python tests/problem/test_sharding.py devices              four forced host devices
    python tests/problem/test_sharding.py process RANK PORT    one of two processes

"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
N, P, K, B = 48, 5, 3, 8
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def start(*arguments: str, devices: int) -> subprocess.Popen:
    flags = f"{FLAGS} --xla_force_host_platform_device_count={devices}"
    environment = {
        **os.environ,
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
        "NPROC": "1",
    }
    return subprocess.Popen(
        [sys.executable, __file__, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def report_of(process: subprocess.Popen, seconds: float) -> dict:
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def four() -> dict:
    """What four forced host devices found."""
    process = start("devices", devices=4)
    try:
        return report_of(process, 600)
    finally:
        process.kill()


def test_four_devices_give_the_result_of_one(four):
    assert set(four["apart"]) == {
        "subgradient_descent",
        "sgd",
        "prox_linear",
        "stochastic_gauss_newton",
    }
    assert all(apart <= 1e-12 for apart in four["apart"].values()), four["apart"]


def test_only_sums_and_the_rows_of_a_batch_travel(four):
    d, row = (P + 1) * K, P + K
    assert four["bytes"]["subgradient_descent"] == 8 * d
    assert four["bytes"]["sgd"] == 8 * (B * row + d)
    assert four["bytes"]["in chunks"] == 8 * (1 + d)  # with F


def test_what_cannot_be_split_is_a_sentence(four):
    assert four["uneven"] == (
        "47 rows cannot be split evenly over 4 devices; leave out 3 of them, or give as many devices as divide 47."
    )
    assert four["mixed"].startswith(
        "The arrays of the data are split over devices in different ways"
    )
    assert four["columns"].startswith(
        "Data is split over devices along its first axis only"
    )


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    both = [
        start("process", str(rank), str(port), str(tmp_path), devices=1)
        for rank in (0, 1)
    ]
    try:
        first, second = (report_of(process, 900) for process in both)
    finally:
        for process in both:  # SIGKILL: jax.distributed catches SIGTERM
            process.kill()
            process.wait()
    assert first["values"] == second["values"]
    # exact subproblems are solved to a gap of 1e-10, which allows more in w
    assert all(
        apart <= (1e-6 if "prox" in name else 1e-12)
        for name, apart in first["apart"].items()
    ), first["apart"]
    assert all(apart <= 1e-10 for apart in first["values apart"].values()), first[
        "values apart"
    ]
    assert first["uneven"] == second["uneven"] and "the rows [5, 6]" in first["uneven"]
    assert (
        first["nan"]
        == second["nan"]
        == "The data leaf data[0] has a value that is not finite in row 7."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.npz"]


# ------------------------------------------------------------------------------------- the programs


def problems(parts, many: bool):
    """name: (whole problem, the same on several devices, solver, steps); parts(x) are this
    process's rows of x.
    """
    import jax.numpy as jnp
    import numpy as np

    import proxlin as px

    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P))
    Y, s = (
        np.tanh(X @ rng.normal(size=(P, K))) + rng.standard_cauchy((N, K)) / 10,
        rng.uniform(0.5, 1, N),
    )
    inner = px.residual(lambda w, x: jnp.tanh(x @ w["a"] + w["b"]))

    def pair(kind, outer, weights=None):
        mine = None if weights is None else px.shard(parts(weights))
        there = kind(
            inner, outer, px.shard((parts(X), parts(Y))), ridge=0.01, weights=mine
        )
        return kind(inner, outer, (X, Y), ridge=0.01, weights=weights), there

    mean, weighted = pair(px.MeanOfLosses, px.L2()), pair(px.MeanOfLosses, px.L2(), s)
    loss, squares = pair(px.LossOfMean, px.L2()), pair(px.MeanOfLosses, px.SquaredL2())
    few = {
        "subgradient_descent": (*mean, px.subgradient_descent(0.1), 3),
        "sgd": (*weighted, px.sgd(0.1, B, replace=False), 6),
        "prox_linear": (*squares, px.prox_linear(1.0), 2),
        "stochastic_gauss_newton": (
            *loss,
            px.stochastic_gauss_newton(1.0, B + 2, subsolver="apg"),
            3,
        ),
    }
    more = {
        "svrg": (*weighted, px.svrg(0.01), 2),
        "sgd, one sample": (*mean, px.sgd(0.1), 50),
        "prox_linear, l2": (*mean, px.prox_linear(1.0), 2),
        "prox_linear, adaptive": (*weighted, px.prox_linear(), 2),
        "pli": (*weighted, px.pli(1.0, 0.1, 2), 2),
        "pli, dual": (*weighted, px.pli(1.0), 2),
        "stochastic_prox_linear": (*mean, px.stochastic_prox_linear(0.1, B), 3),
        "f(mean), prox_linear": (*loss, px.prox_linear(), 2),
        "f(mean), sarah": (
            *loss,
            px.stochastic_gauss_newton(1.0, B, estimator="sarah"),
            3,
        ),
    }
    return {"a": jnp.full((P, K), 0.1), "b": jnp.zeros(K)}, few | (more if many else {})


def distance(v, w) -> float:
    import jax
    import numpy as np

    pairs = zip(jax.tree.leaves(v), jax.tree.leaves(w), strict=True)
    return max(float(np.max(np.abs(np.asarray(x) - np.asarray(y)))) for x, y in pairs)


def sentence(function, *arguments) -> str:
    try:
        function(*arguments)
    except ValueError as error:
        return str(error)
    return "no error"


def on_devices() -> dict:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import proxlin as px
    from bench.studies.traffic import traffic
    from proxlin.problem import rows as chunks

    w, found = problems(lambda x: x, many=False)
    apart = {}
    for name, (whole, there, solver, steps) in found.items():
        one, many = (
            px.minimize(problem, w, solver, steps=steps) for problem in (whole, there)
        )
        assert one.cost == many.cost, name
        apart[name] = distance(one.w, many.w)

    def count(name):
        _, there, solver, _ = found[name]
        there = px.MeanOfLosses(there.inner, there.outer, there.data)
        state, drawn = (
            solver.init(there, w),
            solver.draw(there, jax.random.key(0), 1)[0],
        )
        step = jax.jit(lambda state, drawn: solver.step(there, state, drawn)[0].w)
        return traffic(step.lower(state, drawn).compile().as_text()).sums()[1]

    moved = {name: count(name) for name in ("subgradient_descent", "sgd")}
    whole, there, *_ = found["subgradient_descent"]
    chunks.BUDGET = 1000
    assert not there.in_one_chunk(w)
    values = there.value_and_subgradient(w), whole.value_and_subgradient(w)
    apart["subgradient_descent"] = max(apart["subgradient_descent"], distance(*values))
    both = (
        jax.jit(lambda w: there.value_and_subgradient(w)).lower(w).compile().as_text()
    )
    moved["in chunks"] = traffic(both).sums()[1]
    X = np.ones((48, 4))
    across = jax.device_put(
        X,
        NamedSharding(
            Mesh(np.asarray(jax.devices()), ("x",)), PartitionSpec(None, "x")
        ),
    )
    build = lambda data: px.MeanOfLosses(there.inner, px.L2(), data)
    return {
        "apart": apart,
        "bytes": moved,
        "uneven": sentence(px.shard, X[:47]),
        "mixed": sentence(build, (px.shard(X), X)),
        "columns": sentence(build, across),
    }


def on_a_process(rank: int, port: str, folder: str) -> dict:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"localhost:{port}",
        2,
        rank,
        initialization_timeout=300,
        heartbeat_timeout_seconds=300,
    )
    import numpy as np

    import proxlin as px

    mine = slice(rank * N // 2, (rank + 1) * N // 2)
    w, found = problems(lambda x: x[mine], many=True)
    apart, values, off = {}, {}, {}
    for name, (whole, there, solver, steps) in found.items():
        half = (
            px.minimize(there, w, solver, steps=steps // 2) if name == "sgd" else None
        )
        many = px.minimize(there, w, solver, steps=steps, resume=half)
        values[name] = many.history["value"].tolist()
        if rank == 0:  # the other one waits at the next collective
            one = px.minimize(whole, w, solver, steps=steps)
            apart[name], off[name] = (
                distance(one.w, many.w),
                distance(one.history["value"], many.history["value"]),
            )
        print(name, apart.get(name), off.get(name), file=sys.stderr, flush=True)
    many.save(Path(folder) / f"{rank}.npz")
    X = np.where(
        np.arange(24)[:, None] == (7 if rank == 0 else -1), np.nan, np.ones((24, 2))
    )
    return {
        "apart": apart,
        "values": values,
        "values apart": off,
        "uneven": sentence(lambda: px.shard(X[: 5 + rank])),
        "nan": sentence(
            lambda: px.MeanOfLosses(there.inner, px.L2(), (px.shard(X), px.shard(X)))
        ),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    what, *rest = sys.argv[1:]
    answer = (
        on_devices()
        if what == "devices"
        else on_a_process(int(rest[0]), rest[1], rest[2])
    )
    print(json.dumps(answer))
