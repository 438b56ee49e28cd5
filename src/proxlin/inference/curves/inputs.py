"""What people pass to `curve_fit`, as arrays of float64, or a sentence.

The rules are those of scipy's `curve_fit`: what becomes an array, where a fit starts, which points
are left out.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import Bounds

from ...checks import described, reals
from ...inputs import FRAMES


@dataclass(frozen=True)
class Points:
    """x as f sees it, y (m,) or (curves, m), sigma as deviations (m,) or a Cholesky factor (m, m), and
    which numbers of y count, None where all of them do.
    """

    x: Any
    y: np.ndarray
    sigma: np.ndarray | None
    counts: np.ndarray | None


@dataclass(frozen=True)
class Box:
    """Bounds (d,) of the parameters; -inf and inf where there are none."""

    low: np.ndarray
    high: np.ndarray

    def is_all(self) -> bool:
        return bool(np.all(np.isneginf(self.low) & np.isposinf(self.high)))


# ------------------------------------------------------------------------------------------- points


def points(x: Any, y: Any, sigma: Any, check_finite: bool, nan_policy: Any) -> Points:
    """Return the points, without those that are missing if they may be left out."""
    is_word = nan_policy is None or isinstance(nan_policy, str)
    if not is_word or nan_policy not in (None, "raise", "omit"):
        raise ValueError(
            f'nan_policy must be None, "raise" or "omit"; it is {described(nan_policy)}.'
        )
    x = _x(x)
    y = reals(y, "ydata")
    if y.ndim not in (1, 2):
        raise ValueError(
            f"ydata must have one axis, or two for many curves, one in each row; it has shape {y.shape}."
        )
    if y.size == 0:
        raise ValueError("ydata must not be empty.")
    if sigma is not None:
        sigma = reals(sigma, "sigma")
    kept = None
    if nan_policy == "omit":
        x, y, sigma, kept = _without_missing(x, y, sigma)
    _check_finite("ydata", y)
    if check_finite or nan_policy is not None:
        for leaf in jax.tree.leaves(x):
            _check_finite("xdata", leaf)
    if sigma is not None:
        sigma = _deviations(sigma, y.shape[-1])
    return Points(x, y, sigma, kept)


def _x(x: Any) -> Any:
    """Return x as an array, or a tree of arrays; a frame is a dict of its columns, as f sees it in
    scipy.
    """
    home = type(x).__module__.partition(".")[0]
    if home in FRAMES and getattr(x, "columns", None) is not None:
        x = {name: x[name] for name in x.columns}
    if isinstance(x, dict):
        return {name: reals(part, f"xdata[{name!r}]") for name, part in x.items()}
    return reals(x, "xdata")


def _check_finite(name: str, x: np.ndarray) -> None:
    bad = ~np.isfinite(x)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        where = place[0] if len(place) == 1 else place
        raise ValueError(
            f"{name} must be finite; {name}[{where}] is {x[place]}: leave such points out, or give "
            f'nan_policy="omit" where they are nan.'
        )


def _without_missing(
    x: Any, y: np.ndarray, sigma: np.ndarray | None
) -> tuple[Any, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Leave out the points where x or y is nan. Many curves share their points, so that a nan in one
    of them is a number that does not count.
    """
    m = y.shape[-1]
    bad = np.zeros(m, bool)
    for leaf in jax.tree.leaves(x):
        if leaf.ndim and leaf.shape[-1] == m:
            bad |= np.isnan(leaf).any(axis=tuple(range(leaf.ndim - 1)))
    if y.ndim == 1:
        bad |= np.isnan(y)
    if bad.all():
        raise ValueError(
            'With nan_policy="omit" no point is left: x or y is nan in all of them.'
        )

    def cut(leaf: np.ndarray) -> np.ndarray:
        if leaf.ndim and leaf.shape[-1] == m:
            return leaf[..., ~bad]
        return leaf

    x = jax.tree.map(cut, x)
    y = y[..., ~bad]
    if sigma is not None:
        if sigma.shape == (m, m):
            sigma = sigma[~bad]
        sigma = cut(sigma)
    missing = np.isnan(y)
    if not missing.any():
        return x, y, sigma, None
    if sigma is not None and sigma.ndim == 2:
        raise ValueError(
            "Curves with missing numbers of their own cannot share a covariance sigma (m, m); fit them one by one, "
            "or give deviations sigma (m,)."
        )
    return x, np.where(missing, 0.0, y), sigma, ~missing


def _deviations(sigma: np.ndarray, m: int) -> np.ndarray:
    """Return deviations (m,), or the Cholesky factor of a covariance (m, m)."""
    if not np.isfinite(sigma).all():
        raise ValueError("sigma must be finite.")
    if sigma.size == 1 or sigma.shape == (m,):
        sigma = np.broadcast_to(sigma.reshape(-1), (m,))
        if not (sigma > 0).all():
            raise ValueError("The deviations sigma must be above 0.")
        return sigma
    if sigma.shape != (m, m):
        raise ValueError(
            f"sigma must have shape ({m},), deviations, or ({m}, {m}), a covariance, for {m} points; it has shape "
            f"{sigma.shape}."
        )
    try:
        return cholesky(sigma, lower=True)
    except LinAlgError as error:
        raise ValueError("The covariance sigma must be positive definite.") from error


def whitened_rows(y: np.ndarray, sigma: np.ndarray | None) -> np.ndarray:
    """Return y in units of its deviations, or of a Cholesky factor of its covariance."""
    if sigma is None:
        return y
    if sigma.ndim == 1:
        return y / sigma
    return solve_triangular(sigma, y.T, lower=True).T


# ----------------------------------------------------------------------------------- start and bounds


def start_and_bounds(
    f: Callable, p0: Any, bounds: Any, curves: int | None
) -> tuple[np.ndarray, Box, str]:
    """Return p0 (d,), or (curves, d), within its bounds, and where its length comes from."""
    if p0 is None:
        d = _count_parameters(f)
        box = _box(bounds, d)
        return _feasible(box), box, "the arguments of f after the first"
    start = np.atleast_1d(reals(p0, "p0"))
    good = start.ndim == 1 or (curves is not None and start.shape[:-1] == (curves,))
    if not good or start.size == 0:
        shapes = "a vector" if curves is None else f"a vector or ({curves}, parameters)"
        raise ValueError(
            f"p0 must be {shapes}, one number for each parameter; it has shape {start.shape}."
        )
    if not np.isfinite(start).all():
        raise ValueError("p0 must be finite.")
    box = _box(bounds, start.shape[-1])
    outside = (start < box.low) | (start > box.high)
    if outside.any():
        j = int(np.argwhere(outside)[0][-1])
        value = start[outside][0]
        raise ValueError(
            f"p0 is infeasible: p0[{j}] = {value:g} is not within its bounds [{box.low[j]:g}, {box.high[j]:g}]."
        )
    return start, box, "the length of p0"


def _count_parameters(f: Callable) -> int:
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    plain = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    count = sum(each.kind in plain for each in parameters) - 1
    if count < 1:
        raise ValueError(
            "The signature of f does not tell the number of parameters; give a start p0."
        )
    return count


def _box(bounds: Any, d: int) -> Box:
    """Return the bounds as two vectors."""
    if isinstance(bounds, Bounds):
        low, high = bounds.lb, bounds.ub
    else:
        try:
            low, high = bounds
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"bounds must be a pair (low, high) of numbers or vectors, or scipy.optimize.Bounds; it is "
                f"{described(bounds)}."
            ) from error
    low = _bound(low, "low", d)
    high = _bound(high, "high", d)
    if not (low <= high).all():
        j = int(np.argmax(~(low <= high)))
        raise ValueError(
            f"Each lower bound must be at most the upper one; for parameter {j} they are {low[j]:g} and {high[j]:g}."
        )
    return Box(low, high)


def _bound(given: Any, name: str, d: int) -> np.ndarray:
    found = reals(given, f"The {name} bound")
    if found.size not in (1, d) or found.ndim > 1:
        raise ValueError(
            f"bounds must be numbers or vectors with one number for each of the {d} parameters; the {name} one has "
            f"shape {found.shape}."
        )
    return np.broadcast_to(found.reshape(-1), (d,)).copy()


def _feasible(box: Box) -> np.ndarray:
    """Return where scipy starts: 1, the middle of two bounds, or 1 away from one."""
    low = np.isfinite(box.low)
    high = np.isfinite(box.high)
    start = np.ones_like(box.low)
    start[low & high] = (box.low[low & high] + box.high[low & high]) / 2
    start[low & ~high] = box.low[low & ~high] + 1
    start[~low & high] = box.high[~low & high] - 1
    return start
