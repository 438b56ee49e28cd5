"""A few bounds, solved exactly: block principal pivoting on the dual (Judice and Pires 1994;
Murty's rule as a backup).

    min_{low <= v <= high}  1/2 v'H v - <b, v>,      H = A A' + diag(rho)

Each v_j is at low, free or at high. With the sides fixed v is a linear solve; what then breaks its
bound or has a multiplier of the wrong sign changes sides. When all sides are right, v is the
minimiser up to rounding, not to a tol.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array

from ..outers.sets import AbstractSet
from .admm import Point, better

# bounds: the outputs of a loss of a mean; the worst case of pivoting is exponential in them
FEW = 32
UNROLLED = 6  # equations solved without LAPACK
# one takes out what a solve leaves, the second shows that nothing is left
REFINEMENTS = 2
# exchanges of all that is wrong without fewer wrong ones (Judice and Pires)
PATIENCE = 3
ROUNDS = 30  # in all, a guard: Murty's rule is finite, but may be slow
# eps by which a bound or a sign may be broken: the rounding of a product and a solve
SLACK = 8


def solve_unrolled(M: Array, q: Array) -> Array:
    """Return x with M x = q for a positive definite M = L D L' of a few rows, written out entry by
    entry.

    This is one fused kernel in place of two calls of LAPACK, which take longer to make than the
    arithmetic.
    """
    m = q.size
    a = [[M[i, j] for j in range(i + 1)] for i in range(m)]
    x = list(q)
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


class Bounds(eqx.Module):
    """min 1/2 v'H v - <b, v> between low and high; b and the bounds must be of size 1.

    H is lifted by eps, so that singular H needs no case of its own.
    """

    H: Array
    b: Array
    low: Array
    high: Array

    def at_sides(self, side: Array) -> Array:
        """Return v where it is at a bound, and 0 where it is free."""
        lower = jnp.where(side < 0, self.low, jnp.zeros_like(self.b))
        return jnp.where(side > 0, self.high, lower)

    def solve_free(self, side: Array, q: Array) -> Array:
        """Return x with H_ff x = q_f on the free entries, and 0 elsewhere."""
        free = side == 0
        eye = jnp.eye(self.b.size, dtype=self.b.dtype)
        M = jnp.where(free[:, None] & free[None, :], self.H, eye)
        q = jnp.where(free, q, jnp.zeros_like(q))
        if self.b.size <= UNROLLED:
            return solve_unrolled(M, q)
        L = jnp.linalg.cholesky(M, symmetrize_input=False)
        return jsl.cho_solve((L, True), q)

    def judge(self, side: Array) -> tuple[Array, Array]:
        """Return v for these sides, and for each entry the side that it should go to, or 0 where it
        is right.

        An entry at a bound with a multiplier of the wrong sign has 1 there: it should be free.
        """
        eps = jnp.finfo(self.b.dtype).eps
        fixed = self.at_sides(side)
        v = fixed + self.solve_free(side, self.b - self.H @ fixed)
        pull = self.b - self.H @ v
        slack = SLACK * eps * (jnp.abs(self.b) + jnp.abs(self.H) @ jnp.abs(v))
        above = v > self.high + SLACK * eps * jnp.abs(self.high)
        below = v < self.low - SLACK * eps * jnp.abs(self.low)
        freed = ((side > 0) & (pull < -slack)) | ((side < 0) & (pull > slack))
        outside = above.astype(side.dtype) - below.astype(side.dtype)
        return v, jnp.where(side != 0, freed.astype(side.dtype), outside)


class Sides(eqx.Module):
    """side_j in {-1, 0, 1}; v for these sides, what is wrong with it, the fewest wrong so far, and
    counters.
    """

    side: Array
    v: Array
    wrong: Array
    fewest: Array
    patience: Array
    rounds: Array


def find_sides(bounds: Bounds) -> Sides:
    """Exchange sides until all are right: all that are wrong at once, or the last one alone where
    that did not help.
    """
    index = jnp.arange(bounds.b.size)

    def exchange(s: Sides) -> Sides:
        is_wrong = s.wrong != 0
        count = jnp.sum(is_wrong, dtype=jnp.int32)
        patience = jnp.where(count < s.fewest, PATIENCE, s.patience - 1)
        last = index == jnp.max(jnp.where(is_wrong, index, -1))
        # The last one alone is finite (Murty 1974).
        moves = is_wrong & ((patience > 0) | last)
        moved = jnp.where(s.side == 0, s.wrong, jnp.zeros_like(s.side))
        side = jnp.where(moves, moved, s.side)
        v, wrong = bounds.judge(side)
        return Sides(
            side, v, wrong, jnp.minimum(count, s.fewest), patience, s.rounds + 1
        )

    def going(s: Sides) -> Array:
        return jnp.any(s.wrong != 0) & (s.rounds < ROUNDS)

    side = jnp.zeros(bounds.b.shape, jnp.int32)
    v, wrong = bounds.judge(side)
    first = Sides(
        side, v, wrong, jnp.int32(bounds.b.size + 1), jnp.int32(PATIENCE), jnp.int32(1)
    )
    return jax.lax.while_loop(going, exchange, first)


def solve_few_bounds(
    A: Array, b: Array, rho: Array, V: AbstractSet
) -> tuple[Point, Array]:
    """Return the minimiser v (m,), with e = -A'v carried on its own, and the rounds; A is (m, d), b
    and rho (m,).
    """
    low, high = V.ends(b.dtype)
    eps = jnp.asarray(jnp.finfo(b.dtype).eps, b.dtype)
    H = A @ A.T + jnp.diag(rho)
    H = H + jnp.diag(eps * (1 + 4 * jnp.diagonal(H)))
    bounds = Bounds(H, b, low, high)
    found = find_sides(bounds)

    def certified(e: Array, v: Array) -> Point:
        r = e + v @ A
        gap = (
            jnp.sum(V.excess((b + A @ e)[:, None], v[:, None], rho))
            + jnp.sum(r * r) / 2
        )
        return Point(e, v[:, None], jnp.where(jnp.isfinite(gap), gap, jnp.inf))

    def refine(carry: tuple[Point, Array]) -> tuple[Point, Array]:
        """Take out what rounding leaves of z = rho v on the free ones."""
        point, tries = carry
        v = point.v[:, 0]
        change = bounds.solve_free(found.side, b + A @ point.e - rho * v)
        more = jnp.clip(v + change, low, high) - v
        # e goes on its own: as -A'v the gap would floor at eps |A A'|.
        return better(certified(point.e - more @ A, v + more), point), tries + 1

    def going(carry: tuple[Point, Array]) -> Array:
        point, tries = carry
        return (point.gap > eps**1.5) & (tries < REFINEMENTS)

    v = jnp.clip(found.v, low, high)
    point, _ = jax.lax.while_loop(going, refine, (certified(-(v @ A), v), jnp.int32(0)))
    return point, found.rounds
