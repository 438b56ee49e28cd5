"""The price of one step, batch 1, MLP 128-h-10, l2 loss, float32: ours against the same loop by hand in JAX, and torch.

    verbs      problem[i].subgradient(w) in a scan          <= 1.1  times the scan written by hand
    minimize   px.minimize(problem, w, px.sgd(step))        <= 1.15 times it
    pli        one inner step of PLI (SVRG on the model)    <= 3    times an SGD step
    torch      the loop a PyTorch user writes, eager and compiled: >= 10 times slower than ours

Repeats are interleaved, so that a noisy machine hits all; compilation is apart. Medians and quartiles of ratios.
"""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from proxlin.networks import MLP
from proxlin.solvers.svrg import svrg_epoch

N, EPOCHS, STEP = 1000, 5, 1e-3


def by_hand(w, x, y, indices):
    """What a careful user writes: value_and_grad of the norm, one sample a step."""

    def loss(w, x, y):
        r = w[1]["W"] @ jnp.tanh(w[0]["W"] @ x) - y
        return jnp.sqrt(jnp.sum(r * r))

    def body(w, i):
        g = jax.grad(loss)(w, x[i], y[i])
        return jax.tree.map(lambda w, g: w - STEP * g, w, g), None

    return jax.lax.scan(body, w, indices)[0]


def with_verbs(w, problem, indices):
    def body(w, i):
        g = problem[i].subgradient(w)
        return jax.tree.map(lambda w, g: w - STEP * g, w, g), None

    return jax.lax.scan(body, w, indices)[0]


def pli_epoch(w, problem, indices):
    """n inner steps of PLI: SVRG on the smoothed, linearised, regularised problem, with the averaged iterate."""
    sub = problem.smooth(1.0).linearize(w).regularize(0.1, w)
    return svrg_epoch(sub, w, jnp.asarray(STEP, jnp.float32), indices, True)


def torch_loop(x, y, width: int, compiled: bool) -> Callable[[], float]:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(128, width, bias=False), torch.nn.Tanh(), torch.nn.Linear(width, 10, bias=False)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=STEP)
    xs, ys = torch.tensor(np.asarray(x)), torch.tensor(np.asarray(y))

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.linalg.vector_norm(model(x) - y)
        loss.backward()
        optimizer.step()

    def loss(x, y):
        return torch.linalg.vector_norm(model(x) - y)

    if compiled:
        fast = torch.compile(loss)

        def step(x, y):
            optimizer.zero_grad(set_to_none=True)
            fast(x, y).backward()
            optimizer.step()

    count = 300
    for i in range(20):
        step(xs[i], ys[i])

    def run() -> float:
        start = time.perf_counter()
        for i in range(count):
            step(xs[i], ys[i])
        return (time.perf_counter() - start) / count

    return run


def timer(function: Callable, *args) -> Callable[[], float]:
    """Seconds of one step of a compiled epoch."""
    call = jax.jit(function)
    jax.block_until_ready(call(*args))

    def run() -> float:
        start = time.perf_counter()
        for _ in range(EPOCHS):
            jax.block_until_ready(call(*args))
        return (time.perf_counter() - start) / (EPOCHS * N)

    return run


def rows(width: int, peers: bool) -> tuple[dict[str, Callable[[], float]], list[str]]:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(N, 128)), jnp.float32)
    y = jnp.asarray(rng.normal(size=(N, 10)), jnp.float32)
    predict = MLP((128, width, 10), bias=False)
    w = predict.init(jax.random.key(0), jnp.float32)
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), (x, y))
    indices = jnp.asarray(rng.integers(0, N, N), jnp.int32)

    def minimize() -> float:
        return px.minimize(problem, w, px.sgd(STEP), passes=EPOCHS).history["seconds"][-1] / (EPOCHS * N)

    minimize()
    runs = {
        "by hand": timer(by_hand, w, x, y, indices),
        "verbs": timer(with_verbs, w, problem, indices),
        "minimize": minimize,
        "pli inner": timer(pli_epoch, w, problem, indices),
    }
    missing = []
    if peers and importlib.util.find_spec("torch"):
        runs |= {f"torch {kind}": torch_loop(x, y, width, kind == "compiled") for kind in ("eager", "compiled")}
    elif peers:
        missing.append("torch")
    return runs, missing


TARGETS = {
    "verbs": "<= 1.1",
    "minimize": "<= 1.15",
    "pli inner": "<= 3 sgd",
    "torch eager": ">= 10",
    "torch compiled": ">= 10",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.steps", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--peers", choices=("none", "all"), default="all")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    table = []
    for width in (64, 512):
        runs, missing = rows(width, arguments.peers == "all")
        times = {name: [] for name in runs}
        for _ in range(arguments.repeats):
            for name, run in runs.items():
                times[name].append(run())
        for name in runs:
            base = "minimize" if name.startswith(("pli", "torch")) else "by hand"
            ratio = np.quantile(np.array(times[name]) / np.array(times[base]), [0.25, 0.5, 0.75])
            row = {"width": width, "row": name, "us": 1e6 * float(np.median(times[name])), "over": base}
            row |= {
                "ratio": float(ratio[1]),
                "low": float(ratio[0]),
                "high": float(ratio[2]),
                "target": TARGETS.get(name, ""),
            }
            table.append(row)
            print(
                "{width:4d} {row:15s} {us:8.2f} us   {ratio:6.2f} x {over} ({low:.2f} to {high:.2f})  {target}".format(
                    **row
                )
            )
        for name in missing:
            print(f"{width:4d}  {name} is not installed: its rows are missing (make bench installs it)")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
