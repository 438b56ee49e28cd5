"""PLI's two inner loops at equal cost: Casimir-SVRG (nu, step, kappa tuned) against block dual
ascent (kappa tuned).

F after a budget of effective passes, the best of each loop's grid, on robust regressions: networks
of two widths, two levels of noise (a tenth of the targets far off), L2 and L1, several seeds; n =
100, float32.

    python -m bench.studies.inner_loops --passes 50 --seeds 2 --json table.json
"""

import argparse
import itertools
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from proxlin.files.writing import write_file
from proxlin.networks import MLP

SAMPLES, INPUTS, OUTPUTS = 100, 16, 4
WIDTHS, NOISES, OUTERS = (8, 64), (0.02, 0.5), {"L2": px.L2(), "L1": px.L1()}
LOOPS = {
    "casimir_svrg": [
        px.pli(kappa, nu, inner_passes=passes, step=step * nu)
        for kappa, nu, passes, step in itertools.product(
            (1e-2, 1e-1, 1.0), (0.03, 0.3), (2, 5), (0.03, 0.3)
        )
    ],
    "dual": [
        px.pli(kappa, inner_passes=passes, inner="dual")
        for kappa, passes in itertools.product((1e-2, 3e-2, 1e-1, 1.0), (1, 2, 5))
    ],
}


def problem(
    width: int, noise: float, outer: str, seed: int
) -> tuple[px.MeanOfLosses, list]:
    """A noisy teacher, a tenth of the targets replaced."""
    rng = np.random.default_rng(seed)
    predict = MLP((INPUTS, width, OUTPUTS))
    truth = predict.init(jax.random.key(seed), jnp.float32)
    x = jnp.asarray(rng.normal(size=(SAMPLES, INPUTS)), jnp.float32)
    y = np.array(jax.vmap(lambda x: predict(truth, x))(x)) + noise * rng.laplace(
        size=(SAMPLES, OUTPUTS)
    )
    y[: SAMPLES // 10] += 10 * rng.standard_cauchy((SAMPLES // 10, OUTPUTS)).clip(-5, 5)
    fit = px.MeanOfLosses(
        px.residual(predict),
        OUTERS[outer],
        (x, jnp.asarray(y, jnp.float32)),
        ridge=1e-4,
    )
    return fit, predict.init(jax.random.key(seed + 1), jnp.float32)


def compare(width: int, noise: float, outer: str, seed: int, passes: float) -> dict:
    """The best run of each loop, by F at the end of the budget."""
    p, w = problem(width, noise, outer, seed)
    row = {
        "width": width,
        "noise": noise,
        "outer": outer,
        "seed": seed,
        "start": float(p.value(w)),
    }
    for name, grid in LOOPS.items():
        runs = [px.minimize(p, w, solver, passes=passes) for solver in grid]
        best = min(range(len(runs)), key=lambda i: runs[i].value)
        history = runs[best].history
        row |= {name: runs[best].value, f"{name} passes": history["passes"][-1]}
        row |= {f"{name} seconds": history["seconds"][-1], f"{name} setting": best}
    return row


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.studies.inner_loops", description=__doc__
    )
    parser.add_argument("--passes", type=float, default=50.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    table, start = [], time.perf_counter()
    print(
        "width noise outer seed     start   casimir      dual   (seconds of the best runs)",
        flush=True,
    )
    for width, outer, noise, seed in itertools.product(
        WIDTHS, OUTERS, NOISES, range(arguments.seeds)
    ):
        row = compare(width, noise, outer, seed, arguments.passes)
        table.append(row)
        print(
            f"{width:5d} {noise:5.2f} {outer:>5s} {seed:4d} {row['start']:9.4f} {row['casimir_svrg']:9.4f} "
            f"{row['dual']:9.4f}   ({row['casimir_svrg seconds']:.3f}, {row['dual seconds']:.3f})",
            flush=True,
        )
    wins = sum(row["dual"] < row["casimir_svrg"] for row in table)
    ratio = np.exp(
        np.mean([np.log(row["dual"] / row["casimir_svrg"]) for row in table])
    )
    print(
        f"dual is lower in {wins} of {len(table)}; geometric mean of dual / casimir_svrg {ratio:.3f}; "
        f"settings {', '.join(f'{name} {len(grid)}' for name, grid in LOOPS.items())}; "
        f"{time.perf_counter() - start:.0f} s"
    )
    if arguments.json:
        write_file(arguments.json, json.dumps(table, indent=1).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
