"""The Hessians H_i of f at u_i, or what stands for them where f has kinks.

    smooth f         H_i = D^2 f(u_i)
    |u|_2, k >= 2    H_i = (I - e e') / |u_i|,  e = u_i / |u_i|;  I / h where |u_i| < h
    l1, quantiles    H_i = diag_j (high - low) K(u_ij / h_j) / h_j        (Powell)
                     H_i = diag_j (high - low) 2 h / (J_ij (b_hi - b_lo))  (Hendricks and Koenker, "nid")

A mean of losses with kinks is smooth in the limit of many rows, because the density of u at the
kinks takes the place of a second derivative. The last three lines estimate that density.
"""

import math
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import linprog
from scipy.special import ndtri

from ..compiled import call
from ..outers import L1, L2, AbstractOuter, Box, LInf, Quantile
from .parts import Parts

LEVEL = 0.05  # 1 - the coverage for which Hall and Sheather's bandwidth is made
NORMAL_IQR = 1.34  # of a standard normal variable, as quantreg rounds it
# Rows above which a linear program is made of those near the fit: HiGHS takes 0.2 s for twice ten
# thousand rows of twenty columns, and 6 s for a hundred thousand.
MANY = 20_000
NEAR = 0.05  # the share of the rows that is near at first
RARE = 20  # rows of the largest numbers of each column, which are always looked at


@dataclass(frozen=True)
class Jump:
    """f(u) = sum_j max(low u_j, high u_j): its derivative jumps by high - low at 0."""

    low: float
    high: float

    @property
    def tau(self) -> float:
        """Return the level of the quantile of y that is fitted where u = prediction - y."""
        return -self.low / (self.high - self.low)


def jump_of(outer: AbstractOuter, k: int) -> Jump | None:
    """Return the jump of f where it is a sum of check functions on R^k, else None."""
    if isinstance(outer, L1 | Quantile | Box):
        low, high = outer.bounds()
        return Jump(float(low), float(high))
    if k == 1 and isinstance(outer, L2 | LInf):
        return Jump(-1.0, 1.0)
    return None


def smooth_hessians(
    outer: AbstractOuter, u: Float[np.ndarray, "n k"], dtype: np.dtype
) -> Float[np.ndarray, "n k k"]:
    """Return the derivatives of the gradient of f."""
    return np.asarray(call(_jacobians, outer, u.astype(dtype)), np.float64)


def _jacobians(outer: AbstractOuter, u: Array) -> Array:
    # Forward, because a selection between two formulas then hides a nan of the one not taken.
    return jax.vmap(jax.jacfwd(outer.subgradient))(u)


def norm_hessians(found: Parts) -> Float[np.ndarray, "n k k"]:
    """Return the Hessians of |u|_2, with 1/|u| replaced by its mean over a ball of radius h around
    the kink.

    For a density that is constant there, (I - e e') / |u| has the mean I / h over the ball, so that
    nothing is lost but the heavy tail of 1/|u|. The radius h = median |u| / sqrt n is that of a
    ball with fewer and fewer rows in it.
    """
    size = np.linalg.norm(found.u, axis=1)
    h = np.median(size[found.s > 0]) / math.sqrt(found.rows)
    if h == 0:
        raise ValueError(
            "covariance: half of the rows are fitted exactly (u = 0), where the norm has no Hessian; "
            "a fit without noise has no covariance."
        )
    outside = size > h
    unit = found.u / np.where(outside, size, 1.0)[:, None]
    along = np.where(outside[:, None, None], unit[:, :, None] * unit[:, None, :], 0.0)
    return (np.eye(found.u.shape[1]) - along) / np.maximum(size, h)[:, None, None]


# ---------------------------------------------------------------------------------------- densities


def bandwidth(tau: float, n: int) -> float:
    """Return Hall and Sheather's (1988) h for the difference of the quantiles at tau +- h.

        h = n^(-1/3) z^(2/3) (1.5 phi(q)^2 / (2 q^2 + 1))^(1/3),    q = Phi^-1(tau),  z = Phi^-1(1 - LEVEL / 2)

    It is halved until tau +- h are levels of quantiles.

    >>> round(bandwidth(0.5, 235), 6)
    0.157439
    """
    q = ndtri(tau)
    density = math.exp(-q * q / 2) / math.sqrt(2 * math.pi)
    z = ndtri(1 - LEVEL / 2)
    h = (z * z * 1.5 * density**2 / ((2 * q * q + 1) * n)) ** (1 / 3)
    while not 0 < tau - h < tau + h < 1:
        h = h / 2
    return float(h)


def kernel_hessians(found: Parts, jump: Jump) -> Float[np.ndarray, "n k k"]:
    """Return Powell's estimate with a normal kernel, one bandwidth for each output.

    The bandwidth is that of quantreg's se="ker": the distance of the normal quantiles at tau +- h,
    for errors as wide as these.
    """
    kept = found.u[found.s > 0]
    h = bandwidth(jump.tau, found.rows)
    low, quarter = np.quantile(kept, [0.25, 0.75], axis=0)
    spread = np.minimum(kept.std(axis=0, ddof=1), (quarter - low) / NORMAL_IQR)
    if not spread.all():
        raise ValueError(
            "covariance: half of the residuals of an output are equal, so that no density can be estimated; "
            "take px.bootstrap."
        )
    width = (ndtri(jump.tau + h) - ndtri(jump.tau - h)) * spread
    density = np.exp(-((found.u / width) ** 2) / 2) / (math.sqrt(2 * math.pi) * width)
    return (jump.high - jump.low) * density[:, :, None] * np.eye(found.u.shape[1])


def nid_hessians(found: Parts, jump: Jump) -> Float[np.ndarray, "n k k"] | None:
    """Return Hendricks and Koenker's densities 2 h / (difference of the fits at tau +- h), 0 where
    the fits cross; phi is affine in w. None: they meet or cross at half of the rows, as those of
    rounded data do.
    """
    n, k, d = found.jacobian.shape
    x = found.jacobian.reshape(n * k, d)
    u = found.u.reshape(n * k)
    s = np.repeat(found.s, k)
    h = bandwidth(jump.tau, found.rows)
    between = x @ (
        quantile_step(x, u, s, jump.tau + h) - quantile_step(x, u, s, jump.tau - h)
    )
    # Fits that meet up to the precision of the linear program say nothing about a density.
    apart = between > 1e-8 * np.median(np.abs(u[s > 0]))
    if 2 * np.mean(apart[s > 0]) <= 1:
        return None
    density = np.where(apart, 2 * h / np.where(apart, between, 1.0), 0.0)
    return (jump.high - jump.low) * density.reshape(n, k, 1) * np.eye(k)


def quantile_step(
    x: Float[np.ndarray, "n d"],
    u: Float[np.ndarray, " n"],
    s: Float[np.ndarray, " n"],
    tau: float,
) -> Float[np.ndarray, " d"]:
    """Return the e that minimises sum_i s_i max((1 - tau) u_i', -tau u_i'), u' = u + x e.

    Of many rows few are near the fit (Portnoy and Koenker 1997). The others keep the sign of u', so
    that only the sum of their slopes counts; a look at all rows tells whether they have kept it.
    """
    n = len(x)
    if n <= MANY:
        return _program(x, u, s, tau, np.zeros(x.shape[1]))
    rng = np.random.default_rng(0)
    # A rare category is in no sample, and its coefficient is nowhere without its rows.
    rare = np.argpartition(np.abs(x), n - RARE, axis=0)[n - RARE :].ravel()
    part = np.union1d(rng.permutation(n)[:MANY], rare)
    e = _program(x[part], u[part], s[part], tau, np.zeros(x.shape[1]))
    away = u + x @ e
    share = NEAR
    near = np.abs(away) <= np.quantile(np.abs(away[part]), share)
    near[rare] = True
    while True:
        slope = np.where(away > 0, 1 - tau, -tau) * s
        others = slope[~near] @ x[~near]
        try:
            e = _program(x[near], u[near], s[near], tau, others)
        except ValueError:
            # The rows that are near cannot outweigh the others: more of them are looked at.
            if near.all():
                raise
            share = min(1.0, 2 * share)
            near |= np.abs(away) <= np.quantile(np.abs(away), share)
            continue
        last = away
        away = u + x @ e
        moved = ~near & (np.sign(away) != np.sign(last))
        if not moved.any():
            return e
        near |= moved


def _program(
    x: Float[np.ndarray, "n d"],
    u: Float[np.ndarray, " n"],
    s: Float[np.ndarray, " n"],
    tau: float,
    others: Float[np.ndarray, " d"],
) -> Float[np.ndarray, " d"]:
    """Return the e that minimises the sum of `quantile_step` plus <others, e>.

        max_v <v, u>   over  -tau s_i <= v_i <= (1 - tau) s_i  with  x'v = -others

    The dual has d constraints in place of n, and e are their multipliers; HiGHS returns a vertex.
    """
    n, d = x.shape
    # Columns and u of size one: HiGHS compares with absolute tolerances.
    size = np.linalg.norm(x, axis=0) / math.sqrt(n)
    size = np.where(size > 0, size, 1.0)
    unit = np.median(np.abs(u)) or 1.0
    found = linprog(
        -u / unit,
        A_eq=(x / size).T,
        b_eq=-others / size,
        bounds=np.column_stack([-tau * s, (1 - tau) * s]),
        method="highs",
    )
    if found.status != 0:
        raise ValueError(
            f'covariance: the fit at the level {tau:.3g}, which kind="nid" needs, failed ({found.message}); take '
            f'kind="kernel" or px.bootstrap.'
        )
    return found.eqlin.marginals / size * unit
