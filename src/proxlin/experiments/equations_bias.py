"""Claim C9, judged with Figure 5: the mini-batch subgradient of f(mean), g_B = J_B' f'(u_B), is
biased.

    bias = <E [g_B - g - c_B], e> / |g|,        c_B = (J_B - J)' f'(u) + J' H (u_B - u),  E c_B = 0

along the direction e that half of the draws show; the other half measures it, so that without a
bias the number is 0 on average, and not the length of a noisy mean. c_B, with H the derivative of
f' at u, takes out what is linear in the noise: without it 4000 draws could not tell a bias of 0.4 %
from none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..problem import LossOfMean
from ..theory import Comparison, Rule, t_interval
from .engine.base import Verdict
from .engine.verdicts import verdict_of

DRAWS = 4000
BATCHES = (64, 1024)


def measure(
    problem: LossOfMean, w: jax.Array, batch: int, seed: int
) -> dict[str, float]:
    """Return the bias at w with its 95 % interval."""
    rows = np.random.default_rng(seed).integers(0, len(problem), (DRAWS, batch))
    slope = problem.outer.subgradient
    at = problem.expand(w)
    u = at.u[0]
    J = at.jacobian[0]
    g = J.T @ slope(u)

    def off(B: jax.Array) -> jax.Array:
        there = problem[B].expand(w)
        u_B = there.u[0]
        J_B = there.jacobian[0]
        _, turned = jax.jvp(slope, (u,), (u_B - u,))
        c_B = (J_B - J).T @ slope(u) + J.T @ turned
        return J_B.T @ slope(u_B) - g - c_B

    every = jax.jit(lambda rows: jax.lax.map(off, rows))(jnp.asarray(rows))
    shown, measured = np.split(np.asarray(every), 2)
    mean = shown.mean(0)
    e = mean / max(float(np.linalg.norm(mean)), 1e-300)  # 0 where f is linear around u
    found, low, high = t_interval(measured @ e / np.linalg.norm(g))
    return {"bias": found, "low": low, "high": high}


def verdicts(rule: Rule, rows: Sequence[Mapping[str, Any]], seed: int) -> list[Verdict]:
    """Return the verdict on C9 for each data set, with the smallest batch."""
    least = min(BATCHES)
    what = f"bias of the subgradient at the start, batch {least}, in lengths of the gradient"
    return [
        verdict_of(
            "C9",
            rule,
            Comparison(row["bias"], row["low"], row["high"], DRAWS // 2, rule.level),
            f"{row['data']}: {what}",
            seed,
            "draws",
        )
        for row in rows
        if row["batch"] == least
    ]
