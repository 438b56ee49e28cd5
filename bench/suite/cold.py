"""What a first call costs: whole processes, imports and compilation included, ours against scikit-learn and scipy.

Each case is a script that runs in a fresh process, with an empty folder of compiled programs and once more with the
folder that the first run filled. Seconds are those of the wall, from the start of the process to its end.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import harness

README = Path(__file__).parents[2] / "README.md"
CROSS_VALIDATION = """
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
{make}
X, y = load_diabetes(return_X_y=True)
print(cross_val_score(model, X, y, cv=5).mean())
"""
NETWORK = """
import warnings
import numpy as np
from sklearn.datasets import make_friedman1
warnings.simplefilter("ignore")
{make}
X, y = make_friedman1(2000, 10, noise=1.0, random_state=0)
model.fit(X[:1000], y[:1000])
print(np.abs(model.predict(X[1000:]) - y[1000:]).mean())
"""
FIRST = """
import time
import numpy as np
import proxlin as px
import jax
jax.numpy.zeros(3).block_until_ready()
X = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
def fit(rows, W):
    problem = px.MeanOfLosses(px.residual(lambda w, x: x @ w), px.L2(), (X[:rows], X[:rows] @ W))
    start = time.perf_counter()
    px.minimize(problem, np.zeros((5, 3), np.float32))
    return time.perf_counter() - start
W = np.ones((5, 3), np.float32)
print([fit(200, W), fit(200, W), fit(199, W)])
"""


def first_python_block(page: Path) -> str:
    """Return the first Python example of a page."""
    text = page.read_text(encoding="utf-8")
    return text.split("```python\n", 1)[1].split("```", 1)[0]


def process(script: str, programs: str | None = None) -> tuple[float, str]:
    """Run a script in a fresh process; return its seconds and what it printed."""
    environment = dict(os.environ)
    if programs is not None:
        environment["PROXLIN_CACHE"] = programs
    done: list[subprocess.CompletedProcess] = []
    command = [sys.executable, "-c", script]
    seconds = harness.seconds(
        lambda: done.append(
            subprocess.run(command, capture_output=True, text=True, env=environment)
        )
    )
    if done[0].returncode:
        raise RuntimeError(done[0].stderr.strip().splitlines()[-1])
    return seconds, done[0].stdout


def pair(
    case: str,
    script: str,
    peers: dict[str, str],
    repeats: int,
    targets: dict[str, float],
    notes: dict[str, str] | None = None,
) -> Iterator[harness.Row]:
    """Give the rows of a script with an empty and with a filled folder of programs; the targets are
    the most seconds of each, and "ratio" the most times the seconds of a peer.
    """
    theirs = {
        name: (lambda other=other: process(other)[0]) for name, other in peers.items()
    }
    with tempfile.TemporaryDirectory() as folder:

        def empty() -> float:
            with tempfile.TemporaryDirectory() as fresh:
                return process(script, fresh)[0]

        process(script, folder)
        filled = lambda: process(script, folder)[0]
        for kind, run in (("first run", empty), ("run again", filled)):
            rows = harness.race(f"{case}, {kind}", run, theirs, repeats, None, notes)
            if "ratio" in targets:
                rows = harness.judged(rows, dict.fromkeys(peers, 1 / targets["ratio"]))
            if kind in targets:
                rows = harness.within(rows, targets[kind])
            yield from rows


def in_process(repeats: int) -> Iterator[harness.Row]:
    """Give the seconds of the first `minimize`, of an equal lambda, and of one row less."""
    targets = {
        "first minimize, 200 x 5 x 3": 1.5,
        "an equal lambda": 0.05,
        "an equal lambda, one row less": 0.05,
    }
    runs = [
        [float(x) for x in process(FIRST)[1].strip("[]\n ").split(",")]
        for _ in range(repeats)
    ]
    for i, (name, most) in enumerate(targets.items()):
        times = iter([run[i] for run in runs])
        rows = harness.race(name, times.__next__, {}, repeats)
        yield from harness.within(rows, most)


def rows(arguments: argparse.Namespace) -> Iterator[harness.Row]:
    repeats = arguments.repeats
    readme = first_python_block(README)
    targets = {"first run": 4.0, "run again": 2.5}
    yield from pair("README example", readme, {}, repeats, targets)
    ours = (
        "from proxlin.sklearn import CompositeRegressor\nmodel = CompositeRegressor({})"
    )
    huber = "from sklearn.linear_model import HuberRegressor\nmodel = HuberRegressor()"
    yield from pair(
        "cross_val_score(cv=5), diabetes",
        CROSS_VALIDATION.format(make=ours.format("loss='huber'")),
        {"HuberRegressor": CROSS_VALIDATION.format(make=huber)},
        repeats,
        {"run again": 2.0},
    )
    network = "from sklearn.neural_network import MLPRegressor\nmodel = MLPRegressor(hidden_layer_sizes=64)"
    mine = NETWORK.format(make=ours.format("hidden=64"))
    theirs = NETWORK.format(make=network)
    errors = [float(process(script)[1]) for script in (mine, theirs)]
    note = "mean absolute errors on 1,000 new rows {:.3f} and {:.3f}".format(*errors)
    yield from pair(
        "hidden=64, 1000 x 10",
        mine,
        {"MLPRegressor": theirs},
        repeats,
        {"ratio": 3.0},
        {"MLPRegressor": note},
    )
    yield from in_process(repeats)


def main(argv: list[str] | None = None) -> int:
    return harness.run_as_command("cold", __doc__, rows, argv, repeats=3)


if __name__ == "__main__":
    raise SystemExit(main())
