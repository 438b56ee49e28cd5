"""The covariance of the parameters of a fit.

    cov(w) ~ A^-1 B A^-1 / n,      A = the mean Hessian of the losses,  B = the mean outer product of their gradients

See docs/inference.md for the kinds, with what each of them assumes.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from ..checks import check_parameters, one_of
from ..outers import L2
from ..problem import AbstractProblem, MeanOfLosses, check_problem
from ..types import Params, dtype_of, is_concrete, is_parameter
from .hessians import (
    Jump,
    jump_of,
    kernel_hessians,
    nid_hessians,
    norm_hessians,
    smooth_hessians,
)
from .parts import Parts, at_kinks, curved, distance, parts

LARGEST = 5000  # parameters: a matrix of this order takes 200 MB and some ten seconds
# standard errors between w and the minimiser: less than this changes no digit that is reported
NEAR = 0.1
Matrix = Float[np.ndarray, "d d"]


def covariance(problem: AbstractProblem, w: Params, kind: str = "sandwich") -> Matrix:
    """Return A^-1 B A^-1 / n, the covariance of a minimiser w of a mean of losses over independent
    rows.

    The order of rows and columns is that of `ravel_pytree(w)`. `kind` says what A and B are:

    sandwich: the mean Hessian of the losses and the mean outer product of their gradients, for
    errors of any kind. Where f is l1 or a quantile, the density of the residuals at 0 takes the
    place of the second derivative of f: as "nid" has it if phi is affine in w, else as "kernel".
    hessian: sigma^2 A^-1 / n, for errors that do not depend on the features of the rows.
    rlm: Huber's formula for such errors, as in R's `rlm` and, for squares, in `lm` and `nls`.
    kernel, nid: for one quantile, as in R's `summary.rq` with se="ker" and se="nid".

    Weights s_i are analytic: they multiply A once and B twice. A ridge enters A. A w that is no
    minimiser is warned of. An f with kinks of another kind is refused; smooth it, or take the
    bootstrap.

    Parameters
    ----------
    problem : a `MeanOfLosses`
        The one that was solved.
    w : a tree
        Its minimiser.
    kind : a word
        "sandwich", "hessian", "rlm", "kernel" or "nid".

    Returns
    -------
    an array (d, d)
        The covariance, in the order of `ravel_pytree(w)`.

    Raises
    ------
    TypeError
        The problem is no `MeanOfLosses`, or f has kinks of another kind, or it is called inside of
        a trace.
    ValueError
        The kind does not go with the problem, the problem has a penalty, or there are too many
        parameters.

    See Also
    --------
    bootstrap : standard errors for every f.
    inference.mm_covariance : for an MM-estimate.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> y = np.array([[1.0], [2.0], [3.0], [6.0]])
    >>> mean = px.MeanOfLosses(px.residual(lambda w, x: w), px.SquaredL2(), (y, y))
    >>> px.covariance(mean, np.array([3.0]))  # of the mean of y: its variance 14 / 4, over n = 4
    array([[0.875]])
    """
    check_problem(problem, "covariance")
    if not isinstance(problem, MeanOfLosses):
        raise TypeError(
            f"covariance needs a MeanOfLosses, whose rows are independent losses; it got {type(problem).__name__}."
        )
    if problem.penalty is not None:
        raise ValueError(
            "covariance has no formula for a minimiser with a penalty, which sits at bounds or kinks of it; take "
            "px.bootstrap."
        )
    one_of(kind, "kind", KINDS)
    w = check_parameters(w, problem.data)
    if not is_concrete((problem, w)):
        raise TypeError(
            "covariance looks at its numbers on the host; call it outside of jit, vmap and grad."
        )
    at, rest = eqx.partition(w, is_parameter)
    d = sum(x.size for x in jax.tree.leaves(at))
    if d > LARGEST:
        raise ValueError(
            f"covariance makes a matrix of all pairs of the {d} parameters of w; {LARGEST} is the most it takes: "
            f"take px.bootstrap."
        )
    bound = problem.bind(rest)
    assert isinstance(bound, MeanOfLosses)
    found, hessians, jump = _expanded(bound, at)
    return KINDS[kind](_Fit(bound, at, found, hessians, jump))


@dataclasses.dataclass(frozen=True)
class _Fit:
    """A problem at w, its parts, its Hessians of f, and the jump of f if it is a check function."""

    problem: MeanOfLosses
    w: Params
    parts: Parts
    hessians: Float[np.ndarray, "n k k"]
    jump: Jump | None


def _expanded(
    problem: MeanOfLosses, w: Params
) -> tuple[Parts, Float[np.ndarray, "n k k"], Jump | None]:
    """Return the parts at w with the right subgradients at kinks, and the Hessians of f."""
    outer = problem.outer
    k = problem.outputs(w)
    jump = jump_of(outer, k)
    smooth = float(outer.smoothness(k)) < math.inf
    if not (smooth or jump or isinstance(outer, L2)):
        raise TypeError(
            f"covariance knows no second derivative of {type(outer).__name__}; take px.bootstrap, or the minimiser of "
            f"problem.smooth(nu) and that problem."
        )
    found = parts(problem, w)
    if not all(np.isfinite(x).all() for x in (found.u, found.jacobian)):
        raise ValueError("covariance: phi(w) or its derivative is not finite at w.")
    if smooth:
        hessians = smooth_hessians(outer, found.u, dtype_of(w))
    elif jump is not None:
        hessians = kernel_hessians(found, jump)
        found = at_kinks(found, (jump.low, jump.high), np.abs(found.u))
    else:
        hessians = norm_hessians(found)
        size = np.linalg.norm(found.u, axis=1, keepdims=True)
        found = at_kinks(found, (-1.0, 1.0), np.broadcast_to(size, found.u.shape))
    scores = found.scores()
    away = distance(scores)
    above = np.abs(scores.mean(axis=0)) > _rounding(found, hessians, _flat(w))
    if away > NEAR and above.any():
        warnings.warn(
            f"The gradient at w is {away:.2g} times its standard error, so that w is no minimiser of this problem, and "
            f"its covariance is that of another estimate; minimise further.",
            stacklevel=3,
        )
    return curved(found, problem, w), hessians, jump


def _rounding(
    found: Parts, hessians: Float[np.ndarray, "n k k"], w: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " d"]:
    """Return a bound of the rounding in the mean score: all that is left of it where a fit is
    exact.
    """
    size = np.abs(found.jacobian)
    u = 10 * found.eps * (size @ np.abs(w))
    v = np.einsum("nkl,nl->nk", np.abs(hessians), u)
    return np.einsum("n,nk,nkd->d", found.s, v, size) / len(u)


# -------------------------------------------------------------------------------------------- kinds


def _sandwich(fit: _Fit) -> Matrix:
    # One bandwidth is too wide for rows with narrow errors; two fits have one for each row.
    if fit.jump is not None and fit.parts.ridge == 0 and _is_affine(fit):
        hessians = nid_hessians(fit.parts, fit.jump)
        if hessians is not None:
            return sandwich(fit.parts, hessians)
    return sandwich(fit.parts, fit.hessians)


def sandwich(found: Parts, hessians: Float[np.ndarray, "n k k"]) -> Matrix:
    """Return A^-1 B A^-1 / n, with these Hessians of f in A."""
    scores = found.scores()
    half = _solve(found.mean_hessian(hessians), scores.T, found.eps) / len(scores)
    return half @ half.T


def _hessian(fit: _Fit) -> Matrix:
    """sigma^2 A^-1 / n, with sigma^2 the mean of |v|^2 over that of the second derivatives."""
    found = fit.parts
    n, k, d = found.jacobian.shape
    _check_rows(fit, "hessian")
    A = found.mean_hessian(fit.hessians)
    squares = np.sum(found.s * np.sum(found.v**2, axis=1)) / (found.rows * k - d)
    slopes = found.s @ np.trace(fit.hessians, axis1=1, axis2=2)
    sigma2 = squares / (slopes / (k * found.s.sum()))
    # A ridge is no part of the noise: B = sigma^2 (A - ridge).
    losses = A - found.ridge * np.eye(d)
    inverse = _solve(A, np.eye(d), found.eps)
    cov = sigma2 / n * inverse @ losses @ inverse
    return (cov + cov.T) / 2


def _rlm(fit: _Fit) -> Matrix:
    """kappa^2 S / m^2 (X'X)^-1, Huber's (1981, section 7.6) estimate for errors without features.

    S = sum psi^2 / (n - d),  m = mean psi',  kappa = 1 + d var(psi') / (n m^2)
    """
    found = fit.parts
    _check_plain(fit, "rlm", "a smooth f", fit.jump is None)
    _check_rows(fit, "rlm")
    n, _, d = found.jacobian.shape
    slopes = fit.hessians[:, 0, 0]
    mean = slopes.mean()
    if mean == 0:
        raise ValueError(
            'covariance: with kind="rlm" some residual must lie where f is curved, but none does; raise delta.'
        )
    kappa = 1 + d * slopes.var(ddof=1) / (n * mean**2)
    squares = np.sum(found.v**2) / (n - d)
    gram = found.gram(np.ones((n, 1, 1)))
    cov = kappa**2 * squares / mean**2 / n * _solve(gram, np.eye(d), found.eps)
    return (cov + cov.T) / 2


def _kernel(fit: _Fit) -> Matrix:
    _check_plain(fit, "kernel", "L1 or Quantile", fit.jump is not None)
    return _quantile_sandwich(fit, fit.hessians)


def _nid(fit: _Fit) -> Matrix:
    _check_plain(fit, "nid", "L1 or Quantile", fit.jump is not None)
    if not _is_affine(fit):
        raise ValueError(
            'covariance with kind="nid" needs a phi that is affine in w, for two more quantile fits; this one is not: '
            'take kind="kernel".'
        )
    assert fit.jump is not None
    hessians = nid_hessians(fit.parts, fit.jump)
    if hessians is None:
        raise ValueError(
            'covariance with kind="nid": the fits at two nearby levels meet or cross at half of the rows, as those of '
            'rounded data do; take kind="kernel" or px.bootstrap.'
        )
    return _quantile_sandwich(fit, hessians)


def _quantile_sandwich(fit: _Fit, hessians: Float[np.ndarray, "n 1 1"]) -> Matrix:
    """A^-1 B A^-1 / n with B = tau (1 - tau) (high - low)^2 mean s_i^2 x_i x_i', as if the model
    were right at every x.
    """
    found = fit.parts
    jump = fit.jump
    assert jump is not None
    A = found.mean_hessian(hessians)
    size = math.sqrt(jump.tau * (1 - jump.tau)) * (jump.high - jump.low)
    scores = size * found.s[:, None] * found.jacobian[:, 0]
    half = _solve(A, scores.T, found.eps) / len(scores)
    return half @ half.T


KINDS: dict[str, Callable[[_Fit], Matrix]] = {
    "sandwich": _sandwich,
    "hessian": _hessian,
    "rlm": _rlm,
    "kernel": _kernel,
    "nid": _nid,
}


# ------------------------------------------------------------------------------------------- checks


def _check_plain(fit: _Fit, kind: str, wanted: str, good: bool) -> None:
    """Raise a sentence unless f is wanted, phi has one output, and no ridge is there; for "rlm",
    nor weights.
    """
    what = f'covariance with kind="{kind}"'
    outer = type(fit.problem.outer).__name__
    if not good:
        raise ValueError(
            f'{what} needs {wanted}; this f is {outer}: take kind="sandwich".'
        )
    k = fit.parts.u.shape[1]
    if k != 1:
        raise ValueError(
            f'{what} needs one output; phi returns {k} numbers: take kind="sandwich".'
        )
    if fit.parts.ridge > 0:
        raise ValueError(
            f'{what} has no ridge; this problem has one of {fit.parts.ridge:g}: take kind="sandwich".'
        )
    if kind == "rlm" and fit.problem.weights is not None:
        raise ValueError(f'{what} has no weights; take kind="sandwich" or "hessian".')


def _check_rows(fit: _Fit, kind: str) -> None:
    """Raise a sentence unless there are more numbers than parameters."""
    _, k, d = fit.parts.jacobian.shape
    if fit.parts.rows * k <= d:
        raise ValueError(
            f'covariance with kind="{kind}" divides by n k - d; here are {fit.parts.rows} rows of {k} outputs for '
            f"{d} parameters."
        )


def _is_affine(fit: _Fit) -> bool:
    """Return whether phi is affine in w, as far as one other point can tell."""
    moved = jax.tree.map(lambda x: 2 * x + 1, fit.w)
    change = fit.parts.jacobian @ (_flat(moved) - _flat(fit.w))
    there = np.asarray(fit.problem.stack(moved), np.float64)
    size = np.abs(change).max() + np.abs(fit.parts.u).max()
    away = np.abs(there - fit.parts.u - change).max()
    return bool(away <= fit.parts.eps**0.5 * size)


def _flat(w: Params) -> Float[np.ndarray, " d"]:
    return np.asarray(ravel_pytree(w)[0], np.float64)


def _solve(A: Matrix, right: Any, eps: float) -> Any:
    """Return A^-1 right, or raise a sentence where A is singular or has a negative eigenvalue.

    A is scaled to a diagonal of ones first, so that the answer does not depend on the units of the
    parameters.
    """
    d = len(A)
    diagonal = np.abs(np.diag(A))
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, axes = np.linalg.eigh(A / size / size[:, None])
    # the rounding of A itself, which was added up from numbers of precision eps
    least = 10 * d * eps * np.abs(values).max()
    flat = int(np.sum(np.abs(values) <= least))
    falling = int(np.sum(values < -least))
    if flat:
        raise ValueError(
            f"covariance: the mean Hessian is flat in {_directions(flat)} of the {d} of w, along which the data do not "
            f"tell parameters apart; leave parameters out, or give the problem a ridge."
        )
    if falling:
        raise ValueError(
            f"covariance: the mean Hessian falls in {_directions(falling)} of the {d} of w, so that w is no minimiser; "
            f"minimise further."
        )
    return axes @ ((axes.T @ (right / size[:, None])) / values[:, None]) / size[:, None]


def _directions(count: int) -> str:
    return "1 direction" if count == 1 else f"{count} directions"
