"""What a covariance is made of: the expansion of a problem at w, on the host and in float64.

    score_i = s_i (J_i' v_i + q),      v_i a subgradient of f at u_i,  q the gradient of the quadratic
    A = (1/n) sum_i s_i (J_i' H_i J_i + <v_i, D^2 phi_i>) + ridge,     B = (1/n) sum_i score_i score_i'

The Hessians H_i of f are what differs between smooth and nonsmooth f: see `hessians.py`.
"""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from scipy.optimize import lsq_linear

from ..compiled import call
from ..problem import MeanOfLosses
from ..types import Params, dtype_of

MANY = 200  # entries at kinks


@dataclass(frozen=True)
class Parts:
    """The weights s, blocks u, subgradients v and Jacobians J of all rows at w.

    `curvature` is (1/n) sum_i s_i <v_i, D^2 phi_i>, 0 until `curved` fills it in, `ridge` the
    weight of the quadratic, `slope` its gradient at w, and `eps` the precision that the numbers were
    computed in.
    """

    s: Float[np.ndarray, " n"]
    u: Float[np.ndarray, "n k"]
    v: Float[np.ndarray, "n k"]
    jacobian: Float[np.ndarray, "n k d"]
    curvature: Float[np.ndarray, "d d"]
    ridge: float
    slope: Float[np.ndarray, " d"]
    eps: float

    @property
    def rows(self) -> int:
        """Return how many rows have a positive weight."""
        return int(np.count_nonzero(self.s))

    def scores(self) -> Float[np.ndarray, "n d"]:
        losses = np.einsum("nk,nkd->nd", self.v, self.jacobian)
        return self.s[:, None] * (losses + self.slope)

    def gram(self, hessians: Float[np.ndarray, "n k k"]) -> Float[np.ndarray, "d d"]:
        """Return (1/n) sum_i s_i J_i' H_i J_i."""
        half = np.einsum(
            "nkl,nld->nkd", self.s[:, None, None] * hessians, self.jacobian
        )
        d = half.shape[-1]
        return self.jacobian.reshape(-1, d).T @ half.reshape(-1, d) / len(self.s)

    def mean_hessian(
        self, hessians: Float[np.ndarray, "n k k"]
    ) -> Float[np.ndarray, "d d"]:
        """Return A."""
        A = self.gram(hessians) + self.curvature
        return (A + A.T) / 2 + self.ridge * np.eye(len(A))


def parts(problem: MeanOfLosses, w: Params) -> Parts:
    """Return the parts of the covariance at w, whose leaves are all parameters, without a
    curvature.
    """
    found = call(_expand, problem, w)
    u, v, jacobian = (np.asarray(x, np.float64) for x in found)
    d = jacobian.shape[-1]
    weights = problem.weights
    s = np.ones(len(u)) if weights is None else np.asarray(weights, np.float64)
    ridge = 0.0
    slope = np.zeros(d)
    if problem.quadratic is not None:
        ridge = float(problem.quadratic.weight)
        slope, _ = ravel_pytree(problem.quadratic.gradient(w))
        slope = np.asarray(slope, np.float64)
    eps = float(jnp.finfo(dtype_of(w)).eps)
    return Parts(s.reshape(len(u)), u, v, jacobian, np.zeros((d, d)), ridge, slope, eps)


def curved(found: Parts, problem: MeanOfLosses, w: Params) -> Parts:
    """Return the parts with the curvature of phi along their v."""
    weighted = (found.s / len(found.s))[:, None] * found.v
    rows = call(_curvature, problem, w, weighted.astype(dtype_of(w)))
    return dataclasses.replace(found, curvature=np.asarray(rows, np.float64))


def _expand(problem: MeanOfLosses, w: Params) -> tuple[Array, Array, Array]:
    """Return u, v and J."""
    at = problem.expand(w)
    return at.u, jax.vmap(problem.outer.subgradient)(at.u), at.jacobian


def _curvature(
    problem: MeanOfLosses, w: Params, weighted: Float[Array, "n k"]
) -> Float[Array, "d d"]:
    """Return sum_i <weighted_i, D^2 phi_i>, by one JVP of a pull for each parameter."""
    flat, unravel = ravel_pytree(w)

    def pulled(x: Array) -> Array:
        return ravel_pytree(problem.pull(unravel(x), weighted))[0]

    def row(direction: Array) -> Array:
        return jax.jvp(pulled, (flat,), (direction,))[1]

    return jax.lax.map(row, jnp.eye(flat.size, dtype=flat.dtype))


# ---------------------------------------------------------------------------------------- minimiser


def at_kinks(
    found: Parts, bounds: tuple[float, float], near: Float[np.ndarray, "n k"]
) -> Parts:
    """Return the parts with the dual variables of a minimiser where u sits at a kink of f.

    There a subgradient is any number within the bounds, and rounding decides which one f returns.
    The ones taken here make the mean score as small as it can be. `near` is the distance of u to
    the kink: the d nearest entries may be at it, as many as a vertex has, and all that are 0 up to
    rounding.
    """
    n, _, d = found.jacobian.shape
    counts = np.broadcast_to((found.s > 0)[:, None], near.shape)
    away = np.where(counts, near, np.inf)
    last = np.sort(away, axis=None)[min(d, away.size) - 1]
    tiny = found.eps**0.5 * np.median(near[counts])
    free = counts & (away <= max(last, tiny))

    fixed = dataclasses.replace(found, v=np.where(free, 0.0, found.v))
    row, _ = np.nonzero(free)
    columns = (found.s[row] / n)[:, None] * found.jacobian[free]
    white = whitening(found.scores())
    mean = fixed.scores().mean(axis=0)
    # An active set is exact, but one of thousands of rows (rounded data) would take minutes.
    method = "bvls" if len(columns) <= MANY else "trf"
    best = lsq_linear(white @ columns.T, -white @ mean, bounds, method=method)
    v = fixed.v.copy()
    v[free] = best.x
    return dataclasses.replace(found, v=v)


def distance(scores: Float[np.ndarray, "n d"]) -> float:
    """Return sqrt(n g' B^-1 g), the mean score g in multiples of its standard error: 0 at a
    minimiser.

    It does not depend on the units of w or of the loss. n is the number of rows that count.
    """
    return float(np.linalg.norm(whitening(scores) @ scores.mean(axis=0)))


def whitening(scores: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "r d"]:
    """Return W with W'W the pseudo-inverse of (1/n^2) sum_i score_i score_i'."""
    size = np.linalg.norm(scores, axis=0) / len(scores)
    size = np.where(size > 0, size, 1.0)
    _, values, axes = np.linalg.svd(scores / len(scores) / size, full_matrices=False)
    keep = values > 1e-10 * values[0]
    return (axes[keep] / values[keep, None]) / size
