"""The problem of a curve fit, or of many, and its solution.

F(w) = (1/m) sum_i f((f(x, *w)_i - y_i) / sigma_i)
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...compiled import call
from ...outers import L1, AbstractOuter, Huber, SquaredL2
from ...problem import MeanOfLosses
from ...run import Result, solve, solve_many
from ...solvers.base import AbstractSolver
from ...solvers.prox_linear import prox_linear
from ...solvers.relative import RelativeProxLinear
from ...solvers.wrappers import Rescaled
from ...subproblem import dual_set
from ..scale import NORMAL
from .covariances import robust_covariances, squares_covariances
from .curve import Curve, traced_shape
from .inputs import Box, Points, whitened_rows

# delta in deviations of the residuals: 95 % efficient for normal errors (Huber 1981, p. 87)
EFFICIENT = 1.345
# Squares go on until the step is lost in rounding: half the square of this is a share of F.
SQUARES_TOL = 1e-10
# Other losses go on until the decrease that is left, relative to F, is 10 eps.
TOL = float(np.sqrt(20 * np.finfo(np.float64).eps))


class Fit:
    """One curve, or many of them as one problem with a leading axis of y, and where they start.

    `outer` is f, or None for Huber's loss with the delta of an l1 fit.
    """

    def __init__(
        self,
        f: Callable,
        at: Points,
        start: np.ndarray,
        box: Box,
        named: str,
        outer: AbstractOuter | None,
    ):
        self.many = at.y.ndim == 2
        self.start = start
        self.box = box
        self.outer = outer
        self.deltas: np.ndarray | None = None
        self.counts = at.counts
        m = at.y.shape[-1]
        d = start.shape[-1]
        self.curve = Curve(f, at.x, at.sigma, m)
        shape = traced_shape(f, at.x, d, named)
        if shape not in ((m,), (), (1,)):
            raise ValueError(
                f"f must return a number for each of the {m} points of ydata, of shape {at.y.shape}; it returned an "
                f"array of shape {shape}."
            )
        self.y = whitened_rows(at.y, at.sigma)
        if isinstance(self.outer, SquaredL2) and d > m > 1:
            raise TypeError(
                f"The number of parameters, {d}, must not exceed the number of points, {m}; give more points, or leave "
                f"parameters out."
            )
        self._check_start()

    def _check_start(self) -> None:
        first = self.start.reshape(-1, self.start.shape[-1])[0]
        heights = np.asarray(call(Curve.heights, self.curve, first))
        if not np.isfinite(heights).all():
            i = int(np.argmin(np.isfinite(heights)))
            raise ValueError(
                f"f is not finite at the start: point {i} has {heights[i]} for the parameters "
                f"{np.array2string(first, precision=4)}; give another p0."
            )

    # ------------------------------------------------------------------------------------ problems

    def problem(self, outer: AbstractOuter, i: int | None = None) -> MeanOfLosses:
        """Return the problem of curve i, or of the one curve."""
        index = np.arange(self.curve.points, dtype=np.int32)
        y = self.y if i is None else self.y[i]
        weights = None
        if self.counts is not None:
            weights = self.counts[i].astype(np.float64)
        return MeanOfLosses(self.curve, outer, (index, y), weights=weights)

    def solved(
        self, outer: AbstractOuter, start: np.ndarray, most: int, delta: Any = None
    ) -> Result:
        """Minimise with this f, from start; many curves have a delta each."""
        solver, tol = self._solver(outer)
        if not self.many:
            return solve(self.problem(outer), start, solver, steps=most, tol=tol)
        one = self.problem(outer, 0)
        shared = jax.tree.map(lambda _: False, one)
        problems = eqx.tree_at(lambda p: p.data[1], one, self.y)
        axes = eqx.tree_at(lambda p: p.data[1], shared, True)
        if self.counts is not None:
            share = self.counts / self.counts.mean(axis=1, keepdims=True)
            problems = eqx.tree_at(lambda p: p.weights, problems, share)
            axes = eqx.tree_at(lambda p: p.weights, axes, True)
        if delta is not None:
            # of jax, as one entry of an array of NumPy is no array
            delta = jnp.asarray(delta)
            problems = eqx.tree_at(lambda p: p.outer.delta, problems, delta)
            axes = eqx.tree_at(lambda p: p.outer.delta, axes, True)
        start_axis = 0 if start.ndim == 2 else None
        return solve_many(
            problems, start, solver, in_axes=(axes, start_axis), steps=most, tol=tol
        )

    def _solver(self, outer: AbstractOuter) -> tuple[AbstractSolver, float | None]:
        """Return the solver and its tolerance. Without bounds, an f with kinks has the curvature of
        phi along them (solvers/curvature.py).
        """
        _, rho = dual_set(outer)
        has_kinks = isinstance(rho, float) and rho == 0
        if not self.box.is_all():
            solver = RelativeProxLinear(
                jnp.asarray(self.box.low), jnp.asarray(self.box.high)
            )
        elif has_kinks:
            return Rescaled(prox_linear()), None
        else:
            solver = RelativeProxLinear()
        return solver, SQUARES_TOL if isinstance(outer, SquaredL2) else TOL

    def run(self, most: int) -> Result:
        """Return the fit, for Huber's loss after one with l1, whose residuals have the scale."""
        if self.outer is not None:
            return self.solved(self.outer, self.start, most)
        first = self.solved(L1(), self.start, most)
        w = np.asarray(first.w)
        r = self.residuals(w)
        if self.counts is not None:
            r = np.where(self.counts, r, np.nan)
        deltas = EFFICIENT * NORMAL * np.nanmedian(np.abs(r), axis=-1)
        # Residuals of rounding alone, as of data without noise, have no scale.
        least = 1e-9 * np.max(np.abs(self.y), axis=-1)
        self.deltas = np.asarray(np.maximum(deltas, np.where(least > 0, least, 1.0)))
        if self.many:
            self.outer = Huber(1.0)
            return self.solved(self.outer, w, most, self.deltas)
        self.outer = Huber(float(self.deltas))
        return self.solved(self.outer, w, most)

    # ------------------------------------------------------------------------------------- answers

    def residuals(self, w: np.ndarray) -> np.ndarray:
        """Return (f(x, *w) - y) / sigma, (m,) or (curves, m)."""
        heights = np.asarray(call(_many_heights, self.curve, np.atleast_2d(w)))
        r = heights.reshape(self.y.shape) - self.y
        return r if self.counts is None else np.where(self.counts, r, 0.0)

    def covariances(
        self, w: np.ndarray, r: np.ndarray, good: np.ndarray, absolute: bool
    ) -> tuple[np.ndarray, str]:
        """Return pcov of each curve, inf where there is none, and why."""
        rows = np.atleast_2d(w)
        if isinstance(self.outer, SquaredL2):
            return squares_covariances(
                self.curve, rows, np.atleast_2d(r), self.counts, absolute
            )
        assert self.outer is not None
        free = (rows > self.box.low) & (rows < self.box.high)
        y = np.atleast_2d(self.y)
        return robust_covariances(
            self.curve,
            self.outer,
            self.deltas,
            y,
            rows,
            free & good[:, None],
            self.counts,
        )


def _many_heights(curve: Curve, w: Any) -> Any:
    return jax.vmap(curve.heights)(w)
