"""A million steps: no growth in memory, no new compilation, and a history as long as its setting
says.
"""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
STEPS, FIRST, N = 1_000_000, 100_000, 1000
# MiB: what the allocator of malloc may keep or give back between two looks at 300 MiB
SLACK = 8
SOAK = """
import gc, json, resource, sys
import jax, jax.numpy as jnp, numpy as np
import proxlin as px
from proxlin import compiled

name, (steps, first, n) = sys.argv[1], map(int, sys.argv[2:])
compilations = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compilations.append(name))
rng = np.random.default_rng(0)
x = rng.normal(size=(n, 8)).astype("float32")
y = x @ rng.normal(size=(8, 3)).astype("float32") + rng.standard_t(2, size=(n, 3)).astype("float32")
problem = px.MeanOfLosses(px.residual(lambda w, x: jnp.tanh(x @ w["A"]) @ w["B"]), px.L2(), (x, y))
w = {"A": jnp.asarray(rng.normal(size=(8, 8)), jnp.float32), "B": jnp.zeros((8, 3), jnp.float32)}


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


looks = {}


def look(w, record):
    if record["step"] in (first, steps // 2, steps):
        gc.collect()
        compiles = sum("backend_compile" in name for name in compilations)
        arrays, cached = len(jax.live_arrays()), len(compiled._CACHE.slots)
        looks[record["step"]] = {"mib": resident(), "arrays": arrays, "compilations": compiles, "cached": cached}
    return False


solver = {"sgd": px.sgd, "gd": px.subgradient_descent}[name](px.InverseSqrt(0.05))
solution = px.minimize(problem, w, solver, steps=steps, stop=look)
history = {name: len(column) for name, column in solution.history.items()}
finite = bool(np.isfinite(solution.history["value"]).all())
print(json.dumps({"looks": looks, "history": history, "finite": finite, "status": solution.status,
                  "first": float(solution.history["value"][0]), "last": solution.value,
                  "seconds": float(solution.history["seconds"][-1])}))
"""


def soaked(solver: str, *numbers: int) -> dict:
    environment = {**os.environ, "JAX_ENABLE_X64": "0", "NPROC": "1", "XLA_FLAGS": ""}
    command = [sys.executable, "-c", SOAK, solver, *map(str, numbers)]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_a_million_steps_do_not_grow(figures):
    """SGD, 1000 samples, one record an epoch, in a process of its own."""
    found = soaked("sgd", STEPS, FIRST, N)
    first, middle, last = (
        found["looks"][str(step)] for step in (FIRST, STEPS // 2, STEPS)
    )
    figures(
        "soak",
        steps=STEPS,
        mib_at_1e5=round(first["mib"], 1),
        mib_at_5e5=round(middle["mib"], 1),
        mib_at_1e6=round(last["mib"], 1),
        arrays=last["arrays"],
        compilations=last["compilations"],
        records=found["history"]["step"],
        seconds=round(found["seconds"], 1),
    )
    assert last["mib"] - first["mib"] <= SLACK, found["looks"]
    counts = [each["arrays"] for each in (first, middle, last)]
    # the leaves of the best w so far, where that is not the last
    assert max(counts) - min(counts) <= 2, counts
    assert (
        first["compilations"] == last["compilations"]
        and first["cached"] == last["cached"]
    )
    # the start, and one for each epoch
    assert set(found["history"].values()) == {STEPS // N + 1}
    assert (
        found["finite"]
        and found["status"] == "budget"
        and found["last"] < found["first"]
    )


def test_a_full_batch_solver_grows_by_its_history_alone(figures):
    """One record a step, as the contract says: below 1 KiB of memory each, and nothing else."""
    steps, start = 15_000, 5_000
    found = soaked("gd", steps, start, 50)
    first, last = found["looks"][str(start)], found["looks"][str(steps)]
    each = (last["mib"] - first["mib"]) * 2**20 / (steps - start)
    figures(
        "soak-full-batch",
        steps=steps,
        records=found["history"]["step"],
        bytes_a_record=round(each),
    )
    assert set(found["history"].values()) == {steps + 1} and each <= 1024
    assert (
        first["compilations"] == last["compilations"]
        and abs(first["arrays"] - last["arrays"]) <= 2
    )
