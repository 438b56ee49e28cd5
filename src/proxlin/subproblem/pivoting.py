"""A few bounds, solved exactly: block principal pivoting on the dual (Judice and Pires 1994; Murty's rule as a backup).

    min_{low <= v <= high}  1/2 v'H v - <b, v>,      H = A A' + diag(rho)

Each v_j is at low, free or at high. With the sides fixed v is a linear solve; what then breaks its bound or has a
multiplier of the wrong sign changes sides. When all sides are right, v is the minimiser up to rounding, not to a tol.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array

from ..outers.sets import AbstractSet
from .admm import Point, better

FEW = 32  # bounds: the outputs of a loss of a mean; the worst case of pivoting is exponential in them
UNROLLED = 6  # equations solved without LAPACK
REFINEMENTS = 2
PATIENCE, ROUNDS = 3, 30  # exchanges of all that is wrong without fewer wrong ones (3: Judice and Pires); rounds in all


def solve_unrolled(M: Array, q: Array) -> Array:
    """M x = q for a positive definite M = L D L' of a few rows, written out entry by entry.

    One fused kernel in place of two calls of LAPACK, which take longer to make than the arithmetic.
    """
    m = q.size
    a, x = [[M[i, j] for j in range(i + 1)] for i in range(m)], list(q)
    inverse = []
    for j in range(m):
        inverse.append(1 / a[j][j])
        for i in range(j + 1, m):
            factor = a[i][j] * inverse[j]
            x[i] = x[i] - factor * x[j]
            for k in range(j + 1, i + 1):
                a[i][k] = a[i][k] - factor * a[k][j]
    for j in reversed(range(m)):
        for i in range(j + 1, m):
            x[j] = x[j] - a[i][j] * x[i]
        x[j] = x[j] * inverse[j]
    return jnp.stack(x)


class _Sides(eqx.Module):
    """side_j in {-1, 0, 1}; v for these sides, what is wrong with it, the fewest wrong so far, and counters."""

    side: Array
    v: Array
    wrong: Array
    fewest: Array
    patience: Array
    rounds: Array


def solve_few_bounds(A: Array, b: Array, rho: Array, V: AbstractSet) -> tuple[Point, Array]:
    """The minimiser v (m,), with e = -A'v carried on its own, and the rounds taken; A is (m, d), b and rho (m,).

    b and V must be of size 1: H is lifted by eps, so that singular H needs no case of its own.
    """
    low, high = V.ends(b.dtype)
    eps = jnp.asarray(jnp.finfo(b.dtype).eps, b.dtype)
    H = A @ A.T + jnp.diag(rho)
    H = H + jnp.diag(eps * (1 + 4 * jnp.diagonal(H)))

    def at(side: Array) -> Array:
        return jnp.where(side > 0, high, jnp.where(side < 0, low, jnp.zeros_like(b)))

    def free_solve(side: Array, q: Array) -> Array:
        """H_ff x = q_f, and 0 elsewhere."""
        free = side == 0
        M = jnp.where(free[:, None] & free[None, :], H, jnp.eye(b.size, dtype=b.dtype))
        q = jnp.where(free, q, jnp.zeros_like(q))
        if b.size <= UNROLLED:
            return solve_unrolled(M, q)
        L = jnp.linalg.cholesky(M, symmetrize_input=False)
        return jsl.cho_solve((L, True), q)

    def judge(side: Array) -> tuple[Array, Array]:
        fixed = at(side)
        v = fixed + free_solve(side, b - H @ fixed)
        pull = b - H @ v
        slack = 8 * eps * (jnp.abs(b) + jnp.abs(H) @ jnp.abs(v))
        above, below = v > high + 8 * eps * jnp.abs(high), v < low - 8 * eps * jnp.abs(low)
        freed = ((side > 0) & (pull < -slack)) | ((side < 0) & (pull > slack))
        return v, jnp.where(side != 0, freed.astype(side.dtype), above.astype(side.dtype) - below.astype(side.dtype))

    def body(s: _Sides) -> _Sides:
        count = jnp.sum(s.wrong != 0, dtype=jnp.int32)
        fewer = count < s.fewest
        patience = jnp.where(fewer, PATIENCE, s.patience - 1)
        last = jnp.arange(b.size) == jnp.max(jnp.where(s.wrong != 0, jnp.arange(b.size), -1))
        moves = (s.wrong != 0) & ((patience > 0) | last)  # all of them, or the last alone: finite (Murty 1974)
        side = jnp.where(moves, jnp.where(s.side == 0, s.wrong, jnp.zeros_like(s.side)), s.side)
        return _Sides(side, *judge(side), jnp.minimum(count, s.fewest), patience, s.rounds + 1)

    side = jnp.zeros(b.shape, jnp.int32)
    start = _Sides(side, *judge(side), jnp.int32(b.size + 1), jnp.int32(PATIENCE), jnp.int32(1))
    end = jax.lax.while_loop(lambda s: jnp.any(s.wrong != 0) & (s.rounds < ROUNDS), body, start)

    def certified(e: Array, v: Array) -> Point:
        r = e + v @ A
        gap = jnp.sum(V.excess((b + A @ e)[:, None], v[:, None], rho)) + jnp.sum(r * r) / 2
        return Point(e, v[:, None], jnp.where(jnp.isfinite(gap), gap, jnp.inf))

    def refine(carry: tuple[Point, Array]) -> tuple[Point, Array]:
        """What rounding leaves of z = rho v on the free ones; e on its own, else the gap floors at eps |A A'|."""
        point, tries = carry
        v = point.v[:, 0]
        more = jnp.clip(v + free_solve(end.side, b + A @ point.e - rho * v), low, high) - v
        return better(certified(point.e - more @ A, v + more), point), tries + 1

    v = jnp.clip(end.v, low, high)
    start = certified(-(v @ A), v), jnp.int32(0)
    point, _ = jax.lax.while_loop(lambda c: (c[0].gap > eps**1.5) & (c[1] < REFINEMENTS), refine, start)
    return point, end.rounds
