"""How often the noise level lies in the windows of Proposition 2.

F(wbar) / sigma = (1/n) sum_i |xi_i|  in  [low, high]  with probability at least 1 - delta
"""

from collections.abc import Sequence

import numpy as np

from ..plots.pages import Row
from ..theory import binomial_interval, noise_factors, sharp_noise_factors
from .engine.base import Verdict

NOISES = ("gaussian", "laplace")
WINDOWS = {"paper": noise_factors, "sharp": sharp_noise_factors}


def coverage(
    ns: Sequence[int], ks: Sequence[int], deltas: Sequence[float], draws: int, rng: np.random.Generator
) -> list[Row]:
    """How often F(wbar) / sigma lies in each window, over many draws of the noise, and the window of the draws."""
    rows = []
    for noise in NOISES:
        for n in ns:
            for k in ks:
                levels = _levels(noise, n, k, draws, rng)
                rows += [_cell(levels, delta, {"noise": noise, "n": n, "k": k}) for delta in deltas]
    return rows


def _cell(levels: np.ndarray, delta: float, label: dict) -> Row:
    low, high = np.quantile(levels, [delta / 2, 1 - delta / 2])
    row = {**label, "delta": delta, "draws": len(levels), "drawn low": low, "drawn high": high}
    for name in WINDOWS:
        ends = factors(name, label["n"], label["k"], delta)
        found = (None, None, None)
        if ends is not None:
            found = (*ends, int(((levels >= ends[0]) & (levels <= ends[1])).sum()))
        row |= {f"{name} {what}": x for what, x in zip(("low", "high", "inside"), found, strict=True)}
    return row


def factors(window: str, n: int, k: int, delta: float) -> tuple[float, float] | None:
    """The ends of a window for F(wbar) / sigma, or None where it does not exist."""
    try:
        return WINDOWS[window](n, k, delta)
    except ValueError:  # k < 4 log(2n / delta)
        return None


def _levels(noise: str, n: int, k: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of F(wbar) / sigma = (1/n) sum_i |xi_i|."""
    if noise == "gaussian":
        return np.asarray([np.sqrt(rng.chisquare(k, n)).mean() for _ in range(draws)])
    fewer = min(draws, 10**8 // (n * k))  # each takes n k numbers
    return np.asarray([np.linalg.norm(standard(noise, n, k, rng), axis=1).mean() for _ in range(fewer)])


def standard(noise: str, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """n vectors of noise in R^k, of standard deviation 1 in each coordinate."""
    return rng.normal(size=(n, k)) if noise == "gaussian" else rng.laplace(scale=0.5**0.5, size=(n, k))


def margins(cells: list[Row], noise: str, window: str) -> list[tuple[float, float, float]]:
    """Coverage - (1 - delta) in each cell where the window exists, with Clopper-Pearson's interval at 95 % over all."""
    judged = [row for row in cells if row["noise"] == noise and row[f"{window} inside"] is not None]
    found = []
    for row in judged:
        inside, draws, delta = int(row[f"{window} inside"] or 0), int(row["draws"] or 0), float(row["delta"] or 0)
        low, high = binomial_interval(inside, draws, 1 - 0.05 / len(judged))
        found.append((inside / draws - (1 - delta), low - (1 - delta), high - (1 - delta)))
    return found


def verdict_window(cells: list[Row]) -> Verdict:
    """The verdict on the window of the appendix."""
    found = margins(cells, "gaussian", "paper")
    failed = sum(high < 0 for _, _, high in found)
    worst = min(found)
    return Verdict(
        "C3",
        "not reproduced" if failed else "reproduced",
        f"the window of the appendix, {len(found)} cells (n, k, delta) with k >= 4 log(2n/delta): the least coverage "
        f"minus (1 - delta) is {worst[0]:+.4f}, and {failed} cells are below 0",
        f"Clopper-Pearson, 95 % over all cells: [{worst[1]:+.4f}, {worst[2]:+.4f}]",
        "Fails if in some cell the coverage is below 1 - delta with confidence 1 - 0.05 / cells; else holds.",
    )
