"""A subproblem whose Jacobian can be formed, solved exactly through its dual.

    P(e) = sum_i f_i(b_i + B_i e) + 1/2 |e|^2,        f_i(z) = max_{v in V} <z, v> - rho_i/2 |v|^2
    dual: min_{v in V^n} 1/2 |B'v|^2 + 1/2 sum_i rho_i |v_i|^2 - <b, v>,        e = -B'v

The weight of the quadratic is in B: e = sqrt(weight) d.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..outers.sets import AbstractSet, norms
from .admm import Point, better, burst, pair
from .certificate import Certificate, Seen, certify, rounding
from .interior import interior
from .pivoting import FEW, solve_few_bounds
from .systems import Columns, Rows, System

# the smaller side of one block for which a singular value decomposition is quick
# Operations of a factorisation: a fraction of a millisecond, of which an interior point needs 15.
SMALL = 2**20
SECULAR = 512


def minimize_dense(
    B: Array, b: Array, rho: Array, V: AbstractSet, tol: Array, v0: Array | None = None
) -> tuple[Array, Array, Array]:
    """Return (e, v, iterations) for B (n, k, d), b (n, k), rho (n,), to gap <= tol, from v0 (n, k)
    if it helps.

    The method is chosen by shapes and the kind of set alone: a linear solve where V is the whole
    space; the secular equation for one ball; pivoting for a few bounds; otherwise ADMM and an
    interior point, in d x d if d < nk / 2. The best certified pair is returned, whatever happens.
    """
    n, k, d = B.shape
    blocks = (n * k, 1) if V.separable else (n, k)
    p = Scaled(
        B.reshape(*blocks, d), b.reshape(blocks), jnp.repeat(rho, blocks[0] // n), V
    )
    size = jnp.asarray(V.size(), b.dtype)
    tol = tol / p.scale
    if V.unbounded:
        found, steps = linear(p.system(), p)
    elif V.flat and k == 1:  # V is the point 1
        found, steps = (
            Point(-p.pull(p.anchor), p.anchor, jnp.zeros((), b.dtype)),
            jnp.int32(0),
        )
    elif V.round and n == 1 and min(k, d) <= SECULAR:
        found, steps = _one_ball(p)
    elif V.separable and n == 1 and k <= FEW:
        found, steps = _few_bounds(p, tol)
    else:
        start = None if v0 is None else v0.reshape(blocks) / size
        found, steps = _hybrid(p, tol, start)
    v = V.project(found.v.reshape(n, k) * size)
    return found.e * jnp.sqrt(p.scale), v, steps


def certify_dense(
    B: Array,
    b: Array,
    rho: Array,
    V: AbstractSet,
    v: Array,
    e: Array,
    away: Array,
    blur: Array,
) -> Certificate:
    """Return the certificate at z = b + B e, where `away` is the distance from the centre, known up
    to `blur`.
    """
    seen = see_dense(B, b, v, e, away, blur)
    return certify(V, rho, jnp.ones((), b.dtype), v, seen)


def see_dense(B: Array, b: Array, v: Array, e: Array, away: Array, blur: Array) -> Seen:
    """Return what a certificate is computed from, with its errors."""
    n, k, d = B.shape
    dtype = b.dtype
    sizes = jnp.abs(B)
    z_error = rounding(d, dtype) * (
        jnp.abs(b) + jnp.sum(sizes * jnp.abs(e)[None, None, :], axis=-1)
    )
    # |B|'|v| has a norm of at most sum_i |v_i| |B_i|, and the sum of a row is at least its norm.
    turn = rounding(n * k, dtype) * jnp.sum(jnp.abs(v) * jnp.sum(sizes, axis=-1))
    return Seen(b + push(B, e), z_error, away, pull(B, v), blur + turn)


class Matrix(eqx.Module):
    """The map of a dense B (n, k, d)."""

    B: Array

    def push(self, e: Array) -> Array:
        return push(self.B, e)

    def pull(self, v: Array) -> Array:
        return pull(self.B, v)

    def seen(self, b: Array, v: Array, e: Array, away: Array, blur: Array) -> Seen:
        return see_dense(self.B, b, v, e, away, blur)


def push(B: Array, e: Array) -> Array:
    """Return B e, (n, k)."""
    return (B.reshape(-1, e.size) @ e).reshape(B.shape[:2])


def pull(B: Array, v: Array) -> Array:
    """Return B'v, (d,)."""
    return v.reshape(-1) @ B.reshape(v.size, -1)


class Units(eqx.Module):
    """The problem in the units of the solvers: V of size 1, A = gain B, mean |z_i| = 1 at the
    start.

    With v = size u and e = sqrt(scale) e': b, rho, P and the gap are divided by `scale`.
    `gram` is v -> B B'v.
    """

    gain: Array
    b: Array
    rho: Array
    V: AbstractSet
    anchor: Array
    scale: Array

    def __init__(
        self, b: Array, rho: Array, V: AbstractSet, gram: Callable[[Array], Array]
    ):
        size = jnp.asarray(V.size(), b.dtype)
        self.V = V.scaled(1 / size)
        self.anchor = self.V.project(jnp.zeros_like(b))
        b = b * size
        rho = rho * size**2
        z = b
        if not V.has_origin:
            z = b - rho[:, None] * self.anchor - gram(self.anchor) * size**2
        if V.flat:  # f(z + t) = f(z) + t: only differences within a block count
            z = z - jnp.mean(z, axis=-1, keepdims=True)
        lengths = norms(z)
        mean = jnp.sum(lengths) / jnp.maximum(jnp.sum(lengths > 0, dtype=b.dtype), 1)
        self.scale = jnp.where(
            (mean > 0) & jnp.isfinite(mean), mean, jnp.ones_like(mean)
        )
        self.gain = size / jnp.sqrt(self.scale)
        self.b = b / self.scale
        self.rho = rho / self.scale


class Scaled(eqx.Module):
    """`Units` of a problem with a matrix B, and its system."""

    B: Array
    gain: Array
    b: Array
    rho: Array
    V: AbstractSet
    anchor: Array
    scale: Array

    def __init__(self, B: Array, b: Array, rho: Array, V: AbstractSet):
        units = Units(b, rho, V, lambda v: push(B, pull(B, v)))
        self.B = B
        self.gain = units.gain
        self.b = units.b
        self.rho = units.rho
        self.V = units.V
        self.anchor = units.anchor
        self.scale = units.scale

    def pull(self, v: Array) -> Array:
        """Return A'v."""
        return self.gain * pull(self.B, v)

    def is_small(self) -> bool:
        """Whether a factorisation takes no more than SMALL operations."""
        n, k, d = self.B.shape
        return n * k * d * min(n * k, d) <= SMALL

    def system(self) -> System:
        """Return the d x d system when d is below half of nk (the crossing measured in
        docs/decisions/0005).
        """
        n, k, d = self.B.shape
        rank = n * (k - 1) if self.V.flat else n * k
        form = Columns if 2 * d < rank else Rows
        return form(self.B, self.gain, self.V)


def linear(system: System, p: Scaled | Units) -> tuple[Point, Array]:
    """Solve (K + rho) v = b, for V = R^k."""
    h = jnp.where(p.rho > 0, p.rho, jnp.ones_like(p.rho))[:, None] * jnp.ones_like(p.b)
    g = jnp.zeros_like(h)
    v, e = system.refined(
        system.factor(h, g), h, g, jnp.zeros(system.width, p.b.dtype), p.b
    )
    return pair(system, p.V, p.b, p.rho, e, v), jnp.int32(1)


def _one_ball(p: Scaled) -> tuple[Point, Array]:
    """Solve one block, V the ball: (K + rho + t) v = b with t = 0 and |v| <= 1, or |v| = 1 (the
    secular equation).

    With A = U S V': v(t) = U c / (S^2 + rho + t) + (b - U c) / (rho + t), c = U'b. Newton on 1 /
    |v(t)| - 1, which is concave and increasing, from the left: it never passes the root. t starts
    at eps (|b| is 1): where |v(eps)| <= 1 the residual is zero up to eps, and singular K needs no
    case of its own.
    """
    A = p.gain * p.B[0]
    b = p.b[0]
    rho = p.rho[0]
    U, S, Vt = jnp.linalg.svd(A, full_matrices=False)
    c = b @ U
    beside = jnp.zeros_like(b) if U.shape[0] == U.shape[1] else b - U @ c
    # twice: 1 / t would blow up what rounding leaves along U
    beside = beside - U @ (beside @ U)
    rest = norms(beside)

    def newton(_: Array, t: Array) -> Array:
        inner = 1 / (S * S + rho + t)
        outer = 1 / (rho + t)
        square = jnp.sum((c * inner) ** 2) + (rest * outer) ** 2
        slope = jnp.sum(c * c * inner**3) + rest**2 * outer**3
        move = (
            (jnp.sqrt(square) - 1)
            * square
            / jnp.where(slope > 0, slope, jnp.ones_like(slope))
        )
        return t + jnp.maximum(move, 0)

    t = jax.lax.fori_loop(0, 40, newton, jnp.asarray(jnp.finfo(b.dtype).eps, b.dtype))
    inner = 1 / (S * S + rho + t)
    v = p.V.project((U @ (c * inner) + beside / (rho + t))[None])
    e = -(S * c * inner) @ Vt
    gap = (
        jnp.sum(p.V.excess((b + A @ e)[None], v, p.rho))
        + jnp.sum((e + v[0] @ A) ** 2) / 2
    )
    return Point(e, v, gap), jnp.int32(1)


def _few_bounds(p: Scaled, tol: Array) -> tuple[Point, Array]:
    """Pivot, which is exact up to rounding; rank-deficient blocks with |A|^2 above 1e8 may need the
    hybrid.
    """
    found, rounds = solve_few_bounds(p.gain * p.B[:, 0], p.b[:, 0], p.rho, p.V)

    def again(found: Point) -> tuple[Point, Array]:
        other, steps = _hybrid(p, tol, found.v)
        return better(other, found), rounds + steps

    return jax.lax.cond(found.gap <= tol, lambda found: (found, rounds), again, found)


def _hybrid(p: Scaled, tol: Array, v0: Array | None) -> tuple[Point, Array]:
    return hybrid(p.system(), p, tol, v0, p.is_small())


def hybrid(
    system: System, p: Scaled | Units, tol: Array, v0: Array | None, small: bool
) -> tuple[Point, Array]:
    """Run a burst of ADMM, then the interior point if it is needed and the set has a barrier.

    A small problem goes to the interior point at once: its steps are cheap, and the burst would
    be a third of the program to compile.
    """
    barrier = p.V.barrier()

    def from_dual(v: Array) -> Point:
        return pair(system, p.V, p.b, p.rho, -system.pull(v), v)

    start = from_dual(p.anchor)
    z = jnp.zeros_like(p.b)
    if v0 is not None:
        warm = from_dual(p.V.project(v0))
        residual = p.b + system.push(warm.e) - p.rho[:, None] * warm.v
        z = jnp.where(warm.gap < start.gap, residual, z)
        start = better(warm, start)
    if barrier is not None and small:
        return interior(system, barrier, p.b, p.rho, start, tol)
    found, steps = burst(system, p.V, p.b, p.rho, start.v, z, tol)
    found = better(found, start)
    if barrier is None:
        return found, steps
    found, more = interior(system, barrier, p.b, p.rho, found, tol)
    return found, steps + more
