"""How often the noise level lies in the windows of Proposition 2.

F(wbar) / sigma = (1/n) sum_i |xi_i|  in  [low, high]  with probability at least 1 - delta
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from ..plots.pages import Row
from ..theory import Rule, Share, noise_factors, sharp_noise_factors
from .engine.base import Verdict
from .engine.verdicts import verdict_of

NOISES = ("gaussian", "laplace")
WINDOWS = {"paper": noise_factors, "sharp": sharp_noise_factors}
MOST_NUMBERS = 10**8  # that a cell of Laplace noise draws, about a second


def coverage(
    ns: Sequence[int],
    ks: Sequence[int],
    deltas: Sequence[float],
    draws: int,
    rng: np.random.Generator,
) -> list[Row]:
    """Return how often F(wbar) / sigma lies in each window, over many draws of the noise, and the
    draws' own window.
    """
    rows = []
    for noise, n, k in product(NOISES, ns, ks):
        levels = _levels(noise, n, k, draws, rng)
        rows += [_cell(levels, noise, n, k, delta) for delta in deltas]
    return rows


def _cell(levels: np.ndarray, noise: str, n: int, k: int, delta: float) -> Row:
    low, high = np.quantile(levels, [delta / 2, 1 - delta / 2])
    row: dict = {"noise": noise, "n": n, "k": k, "delta": delta, "draws": len(levels)}
    row |= {"drawn low": low, "drawn high": high}
    for name in WINDOWS:
        low, high = factors(name, n, k, delta) or (None, None)
        row[f"{name} low"] = low
        row[f"{name} high"] = high
        row[f"{name} inside"] = (
            None if low is None else int(((levels >= low) & (levels <= high)).sum())
        )
    return row


def factors(window: str, n: int, k: int, delta: float) -> tuple[float, float] | None:
    """Return the ends of a window for F(wbar) / sigma, or None where it does not exist."""
    try:
        return WINDOWS[window](n, k, delta)
    except ValueError:  # k < 4 log(2n / delta)
        return None


def _levels(
    noise: str, n: int, k: int, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw F(wbar) / sigma = (1/n) sum_i |xi_i|."""
    if noise == "gaussian":
        return np.asarray([np.sqrt(rng.chisquare(k, n)).mean() for _ in range(draws)])
    fewer = min(draws, MOST_NUMBERS // (n * k))
    return np.asarray(
        [
            np.linalg.norm(standard(noise, n, k, rng), axis=1).mean()
            for _ in range(fewer)
        ]
    )


def standard(noise: str, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n vectors of noise in R^k, of standard deviation 1 in each coordinate."""
    if noise == "gaussian":
        return rng.normal(size=(n, k))
    return rng.laplace(scale=0.5**0.5, size=(n, k))


def shares(
    cells: list[Row], noise: str, window: str, level: float = 0.95
) -> list[Share]:
    """Return how many draws lie in the window, in each cell where it exists, with 1 - delta promised; the level
    is that of all cells together.
    """
    mine = [
        row
        for row in cells
        if row["noise"] == noise and row[f"{window} inside"] is not None
    ]
    return [
        Share(
            int(row[f"{window} inside"] or 0),
            int(row["draws"] or 0),
            1 - float(row["delta"] or 0),
            1 - (1 - level) / len(mine),
        )
        for row in mine
    ]


def margin(share: Share) -> float:
    """Return the coverage minus the promised one."""
    return share.successes / share.trials - share.promised


def verdict_window(cells: list[Row], rule: Rule, seed: int) -> Verdict:
    """Return the verdict on the window of the appendix, by the cell that is worst for it."""
    found = shares(cells, "gaussian", "paper", rule.level)
    worst = min(
        found, key=lambda each: (each.high >= each.promised, each.low - each.promised)
    )
    return verdict_of(
        "C3",
        rule,
        worst,
        f"draws in the window of the appendix, in the worst of {len(found)} cells (n, k, delta) with k >= 4 "
        "log(2n/delta)",
        seed,
        "draws",
        f", where a share of {worst.promised:g} is promised; the least coverage minus (1 - delta) is "
        f"{min(map(margin, found)):+.4f}",
    )
