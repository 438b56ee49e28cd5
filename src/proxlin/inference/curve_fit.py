"""scipy's `curve_fit` with robust losses, exact bounds, and many curves at once.

popt = argmin_{low <= w <= high}  sum_i loss((f(x, *w)_i - y_i) / sigma_i)
"""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from scipy.optimize import OptimizeWarning

from ..checks import described, flag, real, whole
from ..compiled import call
from ..cost import Status
from ..outers import L1, AbstractOuter, Huber, Quantile, SquaredL2
from ..precision import at_rest, scope
from ..problem import MeanOfLosses
from ..run import Result, solve, solve_many
from ..solvers.base import AbstractSolver
from ..solvers.prox_linear import prox_linear
from ..solvers.relative import RelativeProxLinear
from ..solvers.wrappers import Rescaled
from ..subproblem import dual_set
from .curve_covariance import robust_covariances, squares_covariances
from .curve_inputs import Box, Points, points, start_and_bounds, whitened_rows
from .curves import Curve, traced_shape
from .scale import NORMAL

LOSSES = ("squares", "l1", "huber", "quantile")
METHODS = (None, "lm", "trf", "dogbox")
# delta in deviations of the residuals: 95 % efficient for normal errors (Huber 1981, p. 87)
EFFICIENT = 1.345
# Squares go on until the step is lost in rounding: half the square of this is a share of F.
SQUARES_TOL = 1e-10
# Other losses go on until the decrease that is left, relative to F, is 10 eps.
TOL = float(np.sqrt(20 * np.finfo(np.float64).eps))
GOOD = (Status.converged, Status.almost, Status.stalled)
LOST = "Covariance of the parameters could not be estimated"
# What scipy passes on to its own solvers, and what to do without it.
OTHERS = {
    "args": "close over other arguments of f, in a lambda",
    "f_scale": "the width of Huber's loss is delta",
    "ftol": "steps go on until round-off",
    "xtol": "steps go on until round-off",
    "gtol": "steps go on until round-off",
    "x_scale": "steps are relative to the size of each parameter",
}


def curve_fit(
    f: Any,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = True,
    bounds: Any = (-np.inf, np.inf),
    method: Any = None,
    jac: Any = None,
    *,
    loss: Any = "squares",
    full_output: bool = False,
    nan_policy: Any = None,
    **more: Any,
) -> tuple:
    """Fit the parameters of a curve y = f(x, *params), and return popt and pcov as scipy's
    `curve_fit` does.

        popt = argmin_{low <= w <= high}  sum_i loss((f(x, *w)_i - y_i) / sigma_i)

    f is called as f(xdata, *params) and returns a number for each point, by operations of
    `jax.numpy`; JAX differentiates it. All work is done in float64, and answers are arrays of NumPy.

    loss: "squares", "l1", "huber" (with `delta=` in units of sigma; the default is 1.345 times the
    scale of the residuals of an l1 fit), "quantile" (with `quantile=`, such as 0.9), or an outer
    function such as `px.Huber(2.0)`, which is applied to each residual.
    p0: where to start; ones if None, or a point within the bounds. sigma: deviations (m,), or a
    covariance (m, m). bounds: a pair of numbers or vectors, or scipy's Bounds; f sees no parameter
    outside of them. maxfev: the most steps, 200 (d + 1) if not given.

    pcov is that of scipy for squares. For the other losses it is `px.covariance`, estimated from the
    residuals, so that absolute_sigma does not matter; a parameter at a bound counts as known there.
    Where pcov cannot be estimated it is inf, and scipy's OptimizeWarning says so. With full_output
    set, infodict (`nfev` and `fvec`), a message and ier follow. A fit that fails raises RuntimeError.

    Many curves: ydata of shape (curves, m), for the same xdata, gives popt (curves, d) and pcov
    (curves, d, d); p0 is then (d,) or (curves, d). A curve whose fit fails has nan, and a warning
    says so.

    >>> import jax.numpy as jnp
    >>> def decay(x, a, b):
    ...     return a * jnp.exp(-b * x)
    >>> x = np.linspace(0, 4, 9)
    >>> y = 2 * np.exp(-x)
    >>> y[3] = 50  # a wrong number
    >>> popt, pcov = curve_fit(decay, x, y, loss="l1", p0=[1.0, 0.5])
    >>> popt.round(6).tolist()
    [2.0, 1.0]
    """
    if not callable(f):
        raise TypeError(f"f must be a function f(x, *params); it is {described(f)}.")
    _check_method(method, jac)
    settings = _Settings(loss, more)
    full_output = flag(full_output, "full_output")
    absolute = flag(absolute_sigma, "absolute_sigma")
    at = points(xdata, ydata, sigma, bool(check_finite), nan_policy)
    curves = len(at.y) if at.y.ndim == 2 else None
    start, box, named = start_and_bounds(f, p0, bounds, curves)
    if method == "lm" and not box.is_all():
        raise ValueError(
            'method="lm" is for problems without bounds; leave method out, or take "trf".'
        )
    d = start.shape[-1]
    most = settings.most(d)
    with scope(True):
        fit = _Fit(f, at, start, box, named, settings)
        found = fit.run(most)
        return at_rest(_answers(fit, found, absolute, full_output, most))


def _check_method(method: Any, jac: Any) -> None:
    if method not in METHODS:
        raise ValueError(
            f'method must be None, "lm", "trf" or "dogbox", all of them for the same answer; it is '
            f"{described(method)}."
        )
    if jac is not None:
        raise ValueError(
            "jac must be None: JAX differentiates f itself, exactly; leave it out."
        )


class _Settings:
    """The loss, and the keywords that belong to it."""

    def __init__(self, loss: Any, more: dict[str, Any]):
        self.loss = loss
        if not isinstance(loss, AbstractOuter) and loss not in LOSSES:
            raise ValueError(
                f"loss must be one of {', '.join(LOSSES)}, or an outer function such as px.Huber(2.0); it is "
                f"{described(loss)}."
            )
        more = dict(more)
        self.maxfev = more.pop("maxfev", more.pop("max_nfev", None))
        self.delta = more.pop("delta", None)
        self.quantile = more.pop("quantile", None)
        for name in more:
            hint = f": {OTHERS[name]}" if name in OTHERS else ""
            raise TypeError(f"curve_fit has no argument {name!r}{hint}.")
        if self.delta is not None and loss != "huber":
            raise ValueError('delta belongs to loss="huber".')
        if (self.quantile is not None) != (
            isinstance(loss, str) and loss == "quantile"
        ):
            raise ValueError(
                'quantile belongs to loss="quantile", such as curve_fit(..., loss="quantile", quantile=0.9).'
            )
        if self.delta is not None:
            self.delta = real(self.delta, "delta", low=0.0, open=True)

    def most(self, d: int) -> int:
        """Return the most steps."""
        if self.maxfev is None or self.maxfev == 0:
            return 200 * (d + 1)
        return whole(self.maxfev, "maxfev", low=1)

    def outer(self) -> AbstractOuter | None:
        """Return f, or None for Huber's with a delta that is not known yet."""
        if isinstance(self.loss, AbstractOuter):
            return self.loss
        if self.loss == "squares":
            return SquaredL2()
        if self.loss == "l1":
            return L1()
        if self.loss == "quantile":
            return Quantile(self.quantile)
        return None if self.delta is None else Huber(self.delta)


class _Fit:
    """One curve, or many of them as one problem with a leading axis of y, and where they start."""

    def __init__(
        self,
        f: Callable,
        at: Points,
        start: np.ndarray,
        box: Box,
        named: str,
        settings: _Settings,
    ):
        self.many = at.y.ndim == 2
        self.start = start
        self.box = box
        self.outer = settings.outer()
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
            delta = jax.numpy.asarray(delta)
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
            solver = RelativeProxLinear(self.box.low, self.box.high)
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

    deltas: np.ndarray | None = None

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


def _answers(
    fit: _Fit, found: Result, absolute: bool, full_output: bool, most: int
) -> tuple:
    """Return what curve_fit returns, or raise where the fit failed."""
    status = np.atleast_1d(np.asarray(found.status))
    good = np.isin(status, [list(Status).index(each) for each in GOOD])
    popt = np.asarray(found.w).copy()
    if not good.any():
        raise RuntimeError(f"Optimal parameters not found: {_reason(status[0], most)}")
    if not good.all():
        warnings.warn(
            f"Optimal parameters not found for {int(np.sum(~good))} of {len(good)} curves, the first of them curve "
            f"{int(np.argmin(good))}: {_reason(status[np.argmin(good)], most)} Their rows of popt and pcov are nan.",
            OptimizeWarning,
            stacklevel=3,
        )
    r = fit.residuals(popt)
    pcov, why = fit.covariances(popt, r, good, absolute)
    lost = good & np.isinf(pcov).any(axis=(1, 2))
    if lost.any():
        of = f" for {int(lost.sum())} of {len(lost)} curves" if fit.many else ""
        warnings.warn(f"{LOST}{of}{why}", OptimizeWarning, stacklevel=3)
    if fit.many:
        popt[~good] = np.nan
        pcov[~good] = np.nan
    else:
        pcov = pcov[0]
    if not full_output:
        return popt, pcov
    info = {"nfev": np.asarray(found.steps) + 1, "fvec": r}
    ier = np.where(good, 1, 5)
    message = "Both actual and predicted relative reductions in the loss are at the level of round-off."
    if not fit.many:
        info["nfev"] = int(info["nfev"])
        ier = int(ier[0])
    return popt, pcov, info, message, ier


def _reason(status: np.int32, most: int) -> str:
    if Status(int(status)) is Status.diverged:
        return "f is not finite near the start, or the parameters diverged; give another p0, or bounds."
    return f"Number of calls to function has reached maxfev = {most}."
