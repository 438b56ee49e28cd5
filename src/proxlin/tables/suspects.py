"""Which rows are wrong, and what may be wrong with them.

    t = (y - fitted) / scale                 far from 0: the target does not go with the features
    d = robust distance of the features      far: the row decides a fit more than others do

A row is a suspect if its t would be rare among normal residuals, with the false discovery rate of
Benjamini and Hochberg over all rows. If the row would fit well after one of its numbers is multiplied
by a power of ten or by the ratio of two units, that is told: slips of a decimal point look like this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from ..inference import cutoff, distances

FITS = 2.0  # |t| of a row that fits
# |t| that a slip must explain. A row is soon within 2 sigma of the fit after one of twenty factors; a
# slip that moves it by ten times as much is no chance.
EXPLAINED = 10.0
# A row that a slip brings so much nearer is explained by it, if its residual is then merely large.
NEARER = 20.0
LARGE = 5.0
APART = 3.5  # robust deviations of a number that lies apart in its own column
ENOUGH = 10  # rows for each column of a robust covariance
MOST = 200  # suspects that are looked at; the rest are counted
RATE = 0.05  # of false discoveries among those that are counted
CROWD = 0.1  # of the rows; more suspects are no slips
# What a number may have been multiplied with by mistake, and how to say so.
FACTORS: dict[float, str] = {
    **{10.0**k: f"{10**k:,} times too small" for k in (1, 2, 3, 6)},
    **{10.0**-k: f"{10**k:,} times too large" for k in (1, 2, 3, 6)},
    -1.0: "of the wrong sign",
    2.54: "in inches, not in centimetres",
    1 / 2.54: "in centimetres, not in inches",
    0.3048: "in feet, not in metres",
    1 / 0.3048: "in metres, not in feet",
    0.45359237: "in pounds, not in kilograms",
    1 / 0.45359237: "in kilograms, not in pounds",
    1.609344: "in miles, not in kilometres",
    1 / 1.609344: "in kilometres, not in miles",
    60.0: "in minutes, not in seconds",
    1 / 60.0: "in seconds, not in minutes",
    3600.0: "in hours, not in seconds",
    1 / 3600.0: "in seconds, not in hours",
}
# Of the factors those of units, fourteen of them. Their logarithms lie so dense that a number whose
# effect is known to SHARP sigma fits after one of them by chance in one of twenty rows:
# 14 / (2 log 3600) * 2 FITS / SHARP = 1/20.
UNITS = frozenset(
    factor for factor, words in FACTORS.items() if words.startswith("in ")
)
SHARP = 70.0
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Numeric:
    """A column of numbers: its name and its place among the encoded columns."""

    name: str
    place: int


def feature_distances(
    X: Float[np.ndarray, "n c"], numeric: Sequence[Numeric], seed: int
) -> tuple[Float[np.ndarray, " n"], float]:
    """Return the robust distance of each row's numbers, and what rows of a normal table keep within.

    Where too few rows are there for a covariance, or half of them lie in a plane, the distance is
    that of the column in which a row lies farthest apart.
    """
    places = [each.place for each in numeric]
    Z = X[:, places]
    away = np.abs(_deviations(Z))
    spread = np.isfinite(away).all(axis=0)
    if not spread.any():
        return np.zeros(len(X)), np.inf
    Z = Z[:, spread]
    p = Z.shape[1]
    # With fewer rows a quarter of normal ones lie beyond the cutoff.
    if len(Z) > ENOUGH * p:
        try:
            return distances(Z, seed), cutoff(p)
        except ValueError:
            pass
    return away[:, spread].max(axis=1), APART


def _deviations(Z: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n c"]:
    """Return (z - median) / (1.4826 median |z - median|); nan or infinite where half of a column is
    equal.
    """
    away = Z - np.median(Z, axis=0)
    size = 1.4826 * np.median(np.abs(away), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return away / size


def discovery_rates(
    p: Float[np.ndarray, " n"], total: int | None = None
) -> Float[np.ndarray, " n"]:
    """Return the least false discovery rate at which each row is found (Benjamini and Hochberg).

    `total` is the count of all rows where these are but some, with the least p among them: the rates of
    the others come out too high then, and never too low.

    >>> discovery_rates(np.array([0.001, 0.5, 0.02])).tolist()
    [0.003, 0.5, 0.03]
    """
    order = np.argsort(p)
    n = len(p)
    raw = p[order] * (total or n) / np.arange(1, n + 1)
    rates = np.empty(n)
    rates[order] = np.minimum.accumulate(raw[::-1])[::-1]
    return np.minimum(rates, 1.0)


def suspects(
    X: Float[np.ndarray, "n c"],
    y: Float[np.ndarray, " n"],
    predict: Predict,
    scale: float,
    target: str,
    numeric: Sequence[Numeric],
    far: tuple[Float[np.ndarray, " n"], float],
    rows: np.ndarray,
    total: int | None = None,
) -> list[dict[str, Any]]:
    """Return the rows that do not go with the others, the most extreme first.

    `far` are the robust distances and their limit, `rows` the numbers of the rows in the table, from
    1, and `total` how many it has where these are but some.
    """
    fitted = predict(X)
    t = (y - fitted) / scale
    rate = discovery_rates(2 * ndtr(-np.abs(t)), total)
    distance, limit = far
    listed = np.flatnonzero((rate <= 0.5) | (distance > limit))
    order = np.lexsort((-distance[listed], -np.abs(t[listed])))
    deviations = _deviations(X[:, [each.place for each in numeric]])
    typical = _typical(y, np.abs(t) <= FITS)
    found = []
    for i in listed[order][:MOST]:
        hint = None
        column = None
        if rate[i] <= 0.5:
            column = target
            hint = _hint(
                X[i],
                float(y[i]),
                float(fitted[i]),
                predict,
                scale,
                target,
                numeric,
                deviations[i],
                typical,
            )
        if distance[i] > limit and (column is None or hint is None):
            column = _farthest(numeric, deviations[i]) or column
        if hint is not None:
            column, hint = hint
        elif distance[i] > limit:
            hint = _place(X, int(i), column, numeric)
        found.append(
            {
                "row": int(rows[i]),
                "target": target,
                "value": float(y[i]),
                "fitted": float(fitted[i]),
                "scaled residual": float(t[i]),
                "false discovery rate": float(rate[i]),
                "distance": float(distance[i]),
                "far": bool(distance[i] > limit),
                "column": column,
                "hint": hint,
            }
        )
    return found


def crowd(
    t: Float[np.ndarray, " n"], target: str, total: int | None = None
) -> str | None:
    """Return a sentence where so many rows do not go with the others that slips do not explain it.

    Half of the rows are within 0.7 scales of the fit, whatever they are, and they are taken to be
    right: in a table of nothing but outliers the wildest stand out among the others.
    """
    count = int(np.sum(discovery_rates(2 * ndtr(-np.abs(t)), total) <= RATE))
    n = total or len(t)
    if count > CROWD * n:
        return (
            f"{target}: {count} of {n} rows do not go with the others; so many are hardly slips: the residuals have "
            f"heavy tails, the rows are of several kinds, or the model lacks something"
        )
    if count > MOST:
        return f"{target}: {count} of {n} rows do not go with the others, of which the {MOST} most extreme are listed"
    return None


def _explained(t: float, moved: float, factor: float) -> bool:
    """Return whether a slip that moves a row by so many sigma leaves a residual that can be.

    The number has an effect of |moved factor / (factor - 1)| sigma after its correction, if the effect
    is linear.
    """
    if moved <= EXPLAINED:
        return False
    if factor in UNITS and moved * factor < SHARP * abs(factor - 1):
        return False
    return bool(t < FITS or (t < LARGE and moved > NEARER * t))


def _typical(values: np.ndarray, good: np.ndarray) -> tuple[float, float]:
    """Return the range of a column among the rows that fit."""
    kept = values[good] if good.any() else values
    return float(kept.min()), float(kept.max())


def _place(
    X: np.ndarray, i: int, column: str | None, numeric: Sequence[Numeric]
) -> str | None:
    """Return where the number of a row lies in its column, if it is outside of the middle 95 %."""
    for each in numeric:
        if each.name != column:
            continue
        value = X[i, each.place]
        low, high = np.quantile(X[:, each.place], [0.025, 0.975])
        if not low <= value <= high:
            return f"{column} is {value:.6g}; 95 % of the rows have {low:.6g} to {high:.6g}"
    return None


def _farthest(numeric: Sequence[Numeric], away: np.ndarray) -> str | None:
    """Return the column in which a row lies farthest apart."""
    size = np.where(np.isfinite(away), np.abs(away), 0.0)
    if not size.size or size.max() <= 0:
        return None
    return numeric[int(np.argmax(size))].name


def _hint(
    x: np.ndarray,
    y: float,
    expected: float,
    predict: Predict,
    scale: float,
    target: str,
    numeric: Sequence[Numeric],
    away: np.ndarray,
    typical: tuple[float, float],
) -> tuple[str, str] | None:
    """Return the column and the slip after whose correction the row would fit best, or None.

    Many numbers and factors are tried, so that one of them may fit by chance: a feature is only
    suspected where it lies apart in its own column, and a target where it is corrected into the
    range of the rows that fit.
    """
    best = np.inf
    found = None
    low, high = typical
    for factor, words in FACTORS.items():
        t = abs(y * factor - expected) / scale
        moved = abs(y * factor - y) / scale
        if t < best and _explained(t, moved, factor) and low <= y * factor <= high:
            best = t
            found = (target, f"{target} may be {words}: {y:.6g} for {y * factor:.6g}")
    for place, each in enumerate(numeric):
        if not abs(away[place]) > APART:
            continue
        value = x[each.place]
        changed = np.repeat(x[None], len(FACTORS), axis=0)
        changed[:, each.place] = value * np.array(list(FACTORS))
        there = predict(changed)
        t = np.abs(y - there) / scale
        j = int(np.argmin(t))
        moved = abs(there[j] - expected) / scale
        factor = list(FACTORS)[j]
        if t[j] < best and _explained(t[j], moved, factor):
            best = float(t[j])
            right = changed[j, each.place]
            words = list(FACTORS.values())[j]
            found = (
                each.name,
                f"{each.name} may be {words}: {value:.6g} for {right:.6g}",
            )
    return found
