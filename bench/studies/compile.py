"""What a first call compiles: seconds of tracing, lowering and XLA for each solver and shape.

Each case runs in a process of its own, without a persistent cache. "first" is the whole first call of
`minimize`, "new lambda" the same call with another lambda and one row less, both in seconds of the
wall; "CPU" is the processor time of the first. The other columns are what JAX says of its parts.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from proxlin.files.writing import write_file

SHAPES = {"small": (200, 5, 3), "middle": (2000, 20, 5), "large": (20_000, 40, 10)}
SOLVERS = {
    "prox_linear": "px.prox_linear()",
    "prox_linear fixed": "px.prox_linear(1.0)",
    "pli": "px.pli(1.0, nu=0.1)",
    "lbfgs": "px.lbfgs()",
    "sgd": "px.sgd(0.1)",
}
PARTS = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "XLA",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.studies.compile", description=__doc__)
    parser.add_argument(
        "--case", nargs=2, metavar=("SOLVER", "SHAPE"), help="one of them, here"
    )
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=["small", "middle"]
    )
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    if arguments.case:
        print(json.dumps(measured(*arguments.case)))
        return 0
    rows = []
    for shape in arguments.shapes:
        for solver in SOLVERS:
            row = {"solver": solver, "shape": shape} | _apart(solver, shape)
            rows.append(row)
            numbers = "  ".join(
                f"{name} {x:.2f}" for name, x in row.items() if isinstance(x, float)
            )
            print(
                f"{solver:18s} {shape:7s} {numbers}  programs {row['programs']}",
                flush=True,
            )
    if arguments.json:
        write_file(arguments.json, json.dumps(rows, indent=1).encode())
    return 0


def _apart(solver: str, shape: str) -> dict[str, Any]:
    """Measure in a fresh process."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")
    }
    command = [sys.executable, "-m", "bench.studies.compile", "--case", solver, shape]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def measured(solver: str, shape: str) -> dict[str, Any]:
    """Return the seconds of a first call here, and what they went into."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import proxlin as px

    total: Counter[str] = Counter()
    programs: Counter[str] = Counter()

    def listen(name: str, seconds: float, **_: Any) -> None:
        part = PARTS.get(name.rsplit("/", 1)[-1])
        if part is not None:
            total[part] += seconds
            programs[part] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    n, d, k = SHAPES[shape]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)).astype(np.float32)
    y = rng.normal(size=(n, k)).astype(np.float32)
    method = eval(SOLVERS[solver], {"px": px})

    def fit(rows: int) -> float:
        predict = lambda w, x: jnp.tanh(x @ w["a"]) + w["b"]
        p = px.MeanOfLosses(px.residual(predict), px.L2(), (x[:rows], y[:rows]))
        w = {"a": jnp.zeros((d, k)), "b": jnp.zeros(k)}
        start = time.perf_counter()
        px.minimize(p, w, method, steps=2)
        return time.perf_counter() - start

    begun = time.process_time()
    first = fit(n)
    found = {"first": first, "CPU": time.process_time() - begun}
    found |= {part: total[part] for part in PARTS.values()}
    return found | {"programs": programs["XLA"], "new lambda": fit(n - 1)}


if __name__ == "__main__":
    raise SystemExit(main())
