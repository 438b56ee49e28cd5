"""Resident memory of the matrix-free prox-linear step: tanh MLP 128-7246-10 (d = 1e6), n = 2000;
under 2 GiB.

The Gram matrix of this problem would take 3 GiB and its Jacobian 160 GiB (float64): shapes alone
must rule them out.
"""

import argparse
import json
import resource
import time

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from proxlin.files.writing import write_file
from proxlin.networks import MLP
from proxlin.subproblem import is_dense


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.studies.memory", description=__doc__)
    parser.add_argument(
        "--tol", type=float, default=1e-3, help="relative gap of the step"
    )
    parser.add_argument(
        "--double", action="store_true", help="float64 in place of float32"
    )
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", arguments.double)
    dtype = jnp.float64 if arguments.double else jnp.float32
    rng = np.random.default_rng(0)
    predict = MLP((128, 7246, 10), bias=False)
    w = predict.init(jax.random.key(0), dtype)
    data = (
        jnp.asarray(rng.normal(size=(2000, 128)), dtype),
        jnp.asarray(rng.normal(size=(2000, 10)), dtype),
    )
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), data)
    assert not is_dense(problem, w)
    before = _peak()
    start = time.perf_counter()
    answer = px.solve_subproblem(problem, w, 0.1, tol=arguments.tol)
    seconds = time.perf_counter() - start
    row = {
        "before GiB": before,
        "peak GiB": _peak(),
        "gap": answer.gap,
        "value": answer.value,
    }
    row |= {
        "iterations": answer.iterations,
        "status": str(answer.status),
        "seconds with compile": seconds,
    }
    print(
        "  ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in row.items()
        )
    )
    print("target: peak under 2 GiB")
    if arguments.json:
        write_file(arguments.json, json.dumps(row, indent=1).encode())
    return 0 if row["peak GiB"] < 2 else 1


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    raise SystemExit(main())
