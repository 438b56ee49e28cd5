"""PLI's two inner loops at equal cost: Casimir-SVRG (nu, step, kappa tuned) against block dual ascent (kappa tuned).

F after a budget of effective passes, best of each loop's grid, on three robust regressions (MLP 16-32-4, n = 200)
"""

import argparse
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from proxlin.networks import MLP

KAPPAS = (1e-3, 1e-2, 1e-1, 1.0)
CASIMIR = [
    px.pli(kappa, nu, inner_passes=passes, step=step * nu)
    for kappa, nu, passes, step in itertools.product(KAPPAS[:3], (0.03, 0.3, 3.0), (2, 5), (0.03, 0.3))
]
DUAL = [px.pli(kappa, inner_passes=passes, inner="dual") for kappa, passes in itertools.product(KAPPAS, (1, 2, 5))]


def problem(noise: float, seed: int) -> tuple[px.MeanOfLosses, list]:
    """A noisy teacher, a tenth of the targets replaced; float32."""
    rng = np.random.default_rng(seed)
    predict = MLP((16, 32, 4))
    truth = predict.init(jax.random.key(seed), jnp.float32)
    x = jnp.asarray(rng.normal(size=(200, 16)), jnp.float32)
    y = np.array(jax.vmap(lambda x: predict(truth, x))(x)) + noise * rng.laplace(size=(200, 4))
    y[:20] += 10 * rng.standard_cauchy((20, 4)).clip(-5, 5)
    fit = px.MeanOfLosses(px.residual(predict), px.L2(), (x, jnp.asarray(y, jnp.float32)), ridge=1e-4)
    return fit, predict.init(jax.random.key(seed + 1), jnp.float32)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.inner_loops", description=__doc__)
    parser.add_argument("--passes", type=float, default=100.0)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    table = []
    for noise in (0.01, 0.1, 1.0):
        p, w = problem(noise, 0)
        row = {"noise": noise, "start": float(p.value(w))}
        for name, grid in (("casimir_svrg", CASIMIR), ("dual", DUAL)):
            runs = [px.minimize(p, w, solver, passes=arguments.passes) for solver in grid]
            best = min(runs, key=lambda run: run.value)
            row |= {name: best.value, f"{name} passes": best.history["passes"][-1]}
            row |= {f"{name} seconds": best.history["seconds"][-1], f"{name} settings": len(grid)}
        table.append(row)
        print("  ".join(f"{key} {value:.5g}" for key, value in row.items()), flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
