"""Two devices, in a process apart: a run inside of `jax.shard_map`, where each has problems of its own, and many
problems in lanes.
"""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import proxlin as px
from proxlin.run import many

GRID = jnp.linspace(0.0, 3.0, 12)[:, None]
PHI = px.residual(lambda w, x: w[0] * jnp.exp(-w[1] * x))
RATES = jnp.asarray([0.5, 1.0, 1.5, 2.0])
START = jnp.ones(2)
CASES = {
    "prox_linear": (px.prox_linear(), px.L1()),
    "lbfgs": (px.lbfgs(), px.Huber(0.1)),
    "sgd": (px.sgd(0.01), px.L1()),
    "pli": (px.pli(1.0, 0.01), px.L1()),
}


def fitted(name, y, ridge):
    solver, f = CASES[name]
    problem = px.MeanOfLosses(PHI, f, (GRID, y), ridge)
    return px.solve(problem, START, solver, steps=20, key=jax.random.key(0)).w


def errors(name: str) -> list[float]:
    """Return how far w, and the derivatives of |w|^2, are from those of the same fits on one device."""
    noise = 0.05 * jnp.sin(7 * jnp.arange(12.0))[:, None]
    ys = jax.vmap(lambda k: 2 * jnp.exp(-k * GRID) + noise)(RATES)
    ridge = jnp.asarray(0.1)
    whole = jax.vmap(lambda y, ridge: fitted(name, y, ridge), (0, None))
    mesh = Mesh(np.asarray(jax.devices()), ("a",))
    by_problem = PartitionSpec("a")
    split = jax.shard_map(
        whole,
        mesh=mesh,
        in_specs=(by_problem, PartitionSpec()),
        out_specs=by_problem,
    )

    def square(many):
        def loss(ys, ridge):
            w = many(ys, ridge)
            return jnp.sum(w**2), w

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(ys, ridge)

    pairs = zip(
        jax.tree.leaves(square(split)), jax.tree.leaves(square(whole)), strict=True
    )
    return [float(jnp.max(jnp.abs(a - b) / (1 + jnp.abs(b)))) for a, b in pairs]


def lanes() -> list:
    """Return the ends of 64 fits in 8 lanes, the devices that took turns, and how far the values are from those of
    jax.vmap of solve.
    """
    rates = jnp.linspace(0.5, 2.0, 64)
    ys = jax.vmap(lambda k: 2 * jnp.exp(-k * GRID) + 0.05 * jnp.sin(9 * k * GRID))
    problems = jax.vmap(lambda y: px.MeanOfLosses(PHI, px.Huber(0.1), (GRID, y)))(
        ys(rates)
    )
    used = set()
    call = many.Compiled.__call__

    def watched(self, function, *args):
        if function is many.turn:
            used.update(*(x.devices() for x in args[0]))
        return call(self, function, *args)

    many.Compiled.__call__ = watched
    found = px.solve_many(problems, START, chunk=8, tol=1e-9)
    single = jax.jit(jax.vmap(lambda p: px.solve(p, START, tol=1e-9).value))(problems)
    far = float(jnp.max(jnp.abs(found.value - single)))
    return [sorted({int(s) for s in found.status}), len(used), far]


def run_apart(name: str) -> list:
    environment = os.environ | {
        "JAX_ENABLE_X64": "1",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    command = [sys.executable, __file__, name]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_each_device_has_problems_of_its_own(name):
    """The start and the ridge are the same on both devices, and the gradients of a step are not added up."""
    found = run_apart(name)
    assert len(found) == 4 and max(found) < 1e-9, found


def test_lanes_are_split_over_the_devices():
    ends, devices, far = run_apart("lanes")
    assert ends == [list(px.Status).index(px.Status.converged)]
    assert devices == 2
    assert far < 1e-9


if __name__ == "__main__":
    assert len(jax.devices()) == 2
    print(json.dumps(lanes() if sys.argv[1] == "lanes" else errors(sys.argv[1])))
