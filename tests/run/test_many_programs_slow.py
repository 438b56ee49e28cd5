"""A process survives any number of programs: hundreds of shapes and of lambdas with flat memory and
memory maps.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxlin import compiled

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/maps").exists(),
        reason="needs /proc/self/maps, which Linux has",
    ),
]
COUNT = 300
# maps that are not ours: libraries, threads, arenas, and JAX's programs of single operations
OTHERS = 3000
MANY = """
import gc, json, resource, sys
import jax, jax.numpy as jnp, numpy as np
import proxlin as px

kind, count = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
shared = lambda w, x: jnp.tanh(x @ w)


def fit(n, phi):
    x, y = rng.normal(size=(n, 4)).astype("float32"), np.ones((n, 2), "float32")
    problem = px.MeanOfLosses(px.residual(phi), px.L2(), (x, y), ridge=1e-3)
    w = jnp.zeros((4, 2), jnp.float32)
    problem.subgradient(w)
    return px.minimize(problem, w, px.sgd(0.1), passes=1).value


def look():
    gc.collect()
    with open("/proc/self/maps") as maps, open("/proc/self/statm") as memory:
        resident = int(memory.read().split()[1]) * resource.getpagesize() / 2**20
        return {"maps": len(maps.readlines()), "mib": round(resident)}


looks = [look()]
for i in range(count):
    if kind == "shapes":
        fit(20 + i, shared)
    else:
        fit(20, lambda w, x, c=1.0 + i: c * jnp.tanh(x @ w))
    looks.append(look())
px.clear_caches()
print(json.dumps({"looks": looks, "cleared": look()}))
"""


def many(kind: str, count: int) -> dict:
    command = [sys.executable, "-c", MANY, kind, str(count)]
    run = subprocess.run(
        command, env=os.environ, capture_output=True, text=True, check=False
    )
    # -11, a segmentation fault, where nothing is dropped
    assert run.returncode == 0, (run.returncode, run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["shapes", "lambdas"])
def test_the_number_of_programs_does_not_matter(kind, figures):
    """Three hundred shapes, or lambdas that compute something else each, fill the cache and leave it
    full: a program belongs to what phi computes, so it does not end with a lambda.
    """
    found = many(kind, COUNT)
    looks, cleared = found["looks"], found["cleared"]
    most = max(look["maps"] for look in looks)
    # memory may grow until the cache is full, and not after that
    full = next(i for i, look in enumerate(looks) if look["maps"] >= 0.98 * most)
    last = looks[-1]
    figures(
        f"many-{kind}",
        count=COUNT,
        most_maps=most,
        first=looks[1],
        full=looks[full] | {"after": full},
        last=last,
        cleared=cleared,
    )
    assert most <= compiled.MAPS + OTHERS
    assert full <= 0.8 * COUNT
    grown = (last["mib"] - looks[full]["mib"]) / (COUNT - full)
    assert grown <= 0.3  # MiB; JAX would keep 3.4 MiB of traces for every shape
    assert cleared["maps"] <= looks[1]["maps"] + OTHERS
