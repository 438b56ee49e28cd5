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
from ..theory import t_interval
from .engine.base import Verdict, judged

DRAWS = 4000
BATCHES = (64, 1024)
SMALL = 0.01  # of |g|; less is no bias to speak of
ROUNDING = 1e-12  # of |g|; less is none
RULE = (
    "Holds if with the smallest batch the interval is above 0 on every data set; fails if every interval reaches 0 and "
    f"ends below {SMALL:.0%}."
)


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


def verdict(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Return the verdict on C9 by its RULE."""
    least = min(BATCHES)
    mine = [row for row in rows if row["batch"] == least]
    seen = [row["low"] > ROUNDING for row in mine]
    none = [row["high"] < SMALL for row in mine]
    numbers = ", ".join(f"{row['data']} {100 * row['bias']:.3g} %" for row in mine)
    ranges = ", ".join(
        f"[{100 * row['low']:.3g}, {100 * row['high']:.3g}] %" for row in mine
    )
    return Verdict(
        "C9",
        judged(all(seen), not any(seen) and all(none)),
        f"bias of the subgradient at the start, batch {least}, in lengths of the gradient: {numbers}",
        f"95 % {ranges}",
        RULE,
    )
