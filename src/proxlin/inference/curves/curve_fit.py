"""scipy's `curve_fit` with robust losses, exact bounds, and many curves at once.

popt = argmin_{low <= w <= high}  sum_i loss((f(x, *w)_i - y_i) / sigma_i)
"""

import warnings
from typing import Any

import numpy as np
from scipy.optimize import OptimizeWarning

from ...checks import described, flag, real, whole
from ...cost import Status
from ...files.programs import keep_programs
from ...outers import L1, L2, AbstractOuter, Huber, LInf, Max, Quantile, SquaredL2
from ...precision import at_rest, scope
from ...run import Result
from .fit import Fit
from .inputs import points, start_and_bounds

LOSSES = ("squares", "l1", "huber", "quantile")
METHODS = (None, "lm", "trf", "dogbox")
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

    Many curves: ydata of shape (curves, m), for the same xdata, gives popt (curves, d) and pcov
    (curves, d, d); p0 is then (d,) or (curves, d). A curve whose fit fails has nan, and a warning
    says so.

    Parameters
    ----------
    f : a function
        f(xdata, *params) -> (m,).
    xdata : an array, or anything that f takes
        The points.
    ydata : an array (m,), or (curves, m)
        The measured values.
    p0 : an array, or None
        Where to start; None: ones, or a point within the bounds.
    sigma : an array (m,) or (m, m), or None
        The deviations of ydata, or their covariance.
    absolute_sigma : True or False
        Whether sigma is known, and not only up to a factor. Only squares ask for it.
    check_finite : True or False
        Whether nan and inf in the data are refused.
    bounds : a pair of numbers or arrays, or scipy's Bounds
        The box of the parameters; f sees none outside of it.
    method : a word, or None
        "lm", "trf" or "dogbox" for scipy's sake; the problem is the same.
    jac : None
        JAX differentiates f; anything else is refused.
    loss : a word, or an outer function
        "squares"; "l1"; "huber" with `delta=`, in units of sigma, 1.345 times the scale of the
        residuals of an l1 fit if not given; "quantile" with `quantile=`, such as 0.9; or an outer
        function such as `px.Huber(2.0)`, which is applied to each residual.
    full_output : True or False
        Whether infodict (`nfev` and `fvec`), a message and ier follow.
    nan_policy : "raise", "omit" or None
        What to do with nan in the data.
    **more : numbers
        `delta`, `quantile`, and `maxfev`, the most steps, 200 (d + 1) if not given.

    Returns
    -------
    a tuple (popt, pcov)
        The parameters and their covariance. pcov is that of scipy for squares. For the other losses
        it is `px.covariance`, estimated from the residuals, so that absolute_sigma does not matter; a
        parameter at a bound counts as known there. Where it cannot be estimated it is inf, and
        scipy's OptimizeWarning says so.

    Raises
    ------
    RuntimeError
        The fit failed.
    ValueError
        The data, the start, the bounds or the loss do not fit together.
    TypeError
        An argument is of the wrong kind, or there are fewer points than parameters.

    See Also
    --------
    covariance : the covariance of any fit.
    minimize : any model and any tree of parameters.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import proxlin as px
    >>> def decay(x, a, b):
    ...     return a * jnp.exp(-b * x)
    >>> x = np.linspace(0, 4, 9)
    >>> y = 2 * np.exp(-x)
    >>> y[3] = 50  # a wrong number
    >>> popt, pcov = px.curve_fit(decay, x, y, loss="l1", p0=[1.0, 0.5])
    >>> popt.round(6).tolist()
    [2.0, 1.0]
    """
    if not callable(f):
        raise TypeError(f"f must be a function f(x, *params); it is {described(f)}.")
    _check_method(method, jac)
    settings = _Settings(loss, more)
    full_output = flag(full_output, "full_output")
    absolute = flag(absolute_sigma, "absolute_sigma")
    finite = check_finite is not None and flag(check_finite, "check_finite")
    at = points(xdata, ydata, sigma, finite, nan_policy)
    curves = len(at.y) if at.y.ndim == 2 else None
    start, box, named = start_and_bounds(f, p0, bounds, curves)
    if method == "lm" and not box.is_all():
        raise ValueError(
            'method="lm" is for problems without bounds; leave method out, or take "trf".'
        )
    d = start.shape[-1]
    most = settings.most(d)
    keep_programs()
    with scope(True):
        fit = Fit(f, at, start, box, named, settings.outer())
        found = fit.run(most)
        return at_rest(_answers(fit, found, absolute, full_output, most))


def _check_method(method: Any, jac: Any) -> None:
    is_word = method is None or isinstance(method, str)
    if not is_word or method not in METHODS:
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
        is_word = isinstance(loss, str)
        if not isinstance(loss, AbstractOuter) and not (is_word and loss in LOSSES):
            raise ValueError(
                f"loss must be one of {', '.join(LOSSES)}, or an outer function such as px.Huber(2.0); it is "
                f"{described(loss)}."
            )
        if isinstance(loss, L2 | LInf | Max):
            raise ValueError(
                f"curve_fit adds up the loss of each residual, and px.{type(loss).__name__}() is one of all of them at "
                f'once; take "squares" or "l1", or make a px.MeanOfLosses of one row.'
            )
        more = dict(more)
        self.maxfev = more.pop("maxfev", more.pop("max_nfev", None))
        self.delta = more.pop("delta", None)
        self.quantile = more.pop("quantile", None)
        for name in more:
            hint = f": {OTHERS[name]}" if name in OTHERS else ""
            raise TypeError(f"curve_fit has no argument {name!r}{hint}.")
        if self.delta is not None and not (is_word and loss == "huber"):
            raise ValueError('delta belongs to loss="huber".')
        if (self.quantile is not None) != (is_word and loss == "quantile"):
            raise ValueError(
                'quantile belongs to loss="quantile", such as curve_fit(..., loss="quantile", quantile=0.9).'
            )
        if self.delta is not None:
            self.delta = real(self.delta, "delta", low=0.0, open=True)

    def most(self, d: int) -> int:
        """Return the most steps."""
        asked = 0
        if self.maxfev is not None:
            asked = whole(self.maxfev, "maxfev", low=0)
        return asked or 200 * (d + 1)

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


def _answers(
    fit: Fit, found: Result, absolute: bool, full_output: bool, most: int
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
    nfev = _evaluations(found)
    ier = np.where(good, 1, 5)
    message = "Both actual and predicted relative reductions in the loss are at the level of round-off."
    if fit.many:
        return popt, pcov, {"nfev": nfev, "fvec": r}, message, ier
    return popt, pcov, {"nfev": int(nfev), "fvec": r}, message, int(ier[0])


def _evaluations(found: Result) -> np.ndarray:
    """Return how often f was called at a new point: the first one, and those that steps have tried.

    A step has one pass for f with its Jacobian, and half a pass for every point that it tries.
    """
    first = 1.0
    steps = np.asarray(found.steps)
    passes = np.asarray(found.passes)
    tried = np.rint(2 * (passes - first - steps))
    return np.asarray(1 + tried, np.int64)


def _reason(status: np.int32, most: int) -> str:
    if Status(int(status)) is Status.diverged:
        return "f is not finite near the start, or the parameters diverged; give another p0, or bounds."
    return f"Number of calls to function has reached maxfev = {most}."
