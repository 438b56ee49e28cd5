"""The convex prox-linear subproblem, solved exactly through its dual.

    P(d) = sum_i f_i(b_i + B_i d) + kappa/2 |d|^2,        f_i(z) = max_{v in V} <z, v> - rho_i/2 |v|^2
    dual: min_{v in V^n} |B'v|^2 / (2 kappa) + 1/2 sum_i rho_i |v_i|^2 - <b, v>,        d = -B'v / kappa
    gap(d, v) = sum_i [f_i(z_i) - <v_i, z_i> + rho_i/2 |v_i|^2] + kappa/2 |d + B'v / kappa|^2,      z = b + B d

The gap is a certificate for any d and any v in V^n: P(d) - min P <= gap(d, v). It is computed in floating point, so
a bound of what rounding may hide is added to it (`certificate`).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from ..outers.sets import AbstractCone, Ball, Box, CrossPolytope, Simplex, Space, norms
from .interior import interior
from .pivoting import FEW, solve_few_bounds
from .systems import Columns, Point, Rows, System, better, burst, certify


class DualAnswer(eqx.Module):
    """A pair (d, v), v in V^n, with its certificate; what is not reached is not claimed: converged = gap <= tol.

    value = P(d); gap = gap(d, v); iterations: ADMM steps plus interior-point steps, or accelerated gradient steps;
    applies, transposes: the exact number of calls to the two functions of `solve_matrix_free` (0 for `solve_dense`);
    spread: an estimate of |B| (0 for `solve_dense`, which has B).
    """

    d: Any
    v: Array
    value: Array
    gap: Array
    iterations: Array
    converged: Array
    applies: Array
    transposes: Array
    spread: Array


# ---------------------------------------------------------------------------------------------- certificates


class Certificate(eqx.Module):
    """P at a point, its gap, and `error`: the part of the gap that bounds rounding, and no iteration can take away."""

    value: Array
    gap: Array
    error: Array


def certificate(
    cone: AbstractCone,
    rho: Array,
    weight: Array,
    z: Array,
    z_error: Array,
    v: Array,
    away: Any,
    pulled: Any,
    away_error: Array,
) -> Certificate:
    """The certificate of a point with z = b + B d, known up to z_error (n, k), and away = x - center.

    P = sum_i f_i(z_i) + weight/2 |away|^2, and `pulled` is B'v; away_error bounds |error of away + pulled / weight|.
    """
    rest = optax.tree.add_scale(away, 1 / weight, pulled)
    size = optax.tree.norm(rest)
    gap = jnp.sum(cone.excess(z, v, rho)) + weight / 2 * size**2
    error = jnp.sum(cone.drift(z, v, rho, z_error)) + weight * away_error * (size + away_error / 2)
    error = error + smallest(z)
    value = jnp.sum(cone.value(z, rho)) + weight / 2 * optax.tree.vdot(away, away)
    total = gap + error
    return Certificate(value, jnp.where(jnp.isfinite(total), total, jnp.inf), error)


def smallest(z: Array) -> Array:
    """What underflow may hide in a sum over z."""
    return jnp.asarray(z.size * jnp.finfo(z.dtype).tiny, z.dtype)


def rounding(terms: int, dtype: Any) -> Array:
    """The relative error of a sum of so many products.

    Errors of rounding are as good as independent, so they grow with the root of the terms (Higham and Mary 2019); 4
    stands for the few operations around the sum, and eps, which is twice the unit round-off, for a margin of two.
    """
    return jnp.asarray((4 + terms**0.5) * jnp.finfo(dtype).eps, dtype)


def certify_dense(
    B: Array, b: Array, rho: Array, weight: Array, cone: AbstractCone, v: Array, d: Array, away: Array, blur: Array
) -> Certificate:
    """The certificate at z = b + B d, away (known up to blur) from the center of the quadratic."""
    n, k, m = B.shape
    sizes = jnp.abs(B)
    z_error = rounding(m, b.dtype) * (jnp.abs(b) + jnp.sum(sizes * jnp.abs(d)[None, None, :], axis=-1))
    # |B|'|v| has a norm of at most sum_i |v_i| |B_i|, and the sum of a row is at least its norm
    turn = rounding(n * k, b.dtype) * jnp.sum(jnp.abs(v) * jnp.sum(sizes, axis=-1)) / weight
    return certificate(cone, rho, weight, b + _fore(B, d), z_error, v, away, _back(B, v), blur + turn)


# ---------------------------------------------------------------------------------------------------- dense


class _Scaled(eqx.Module):
    """The problem in the units of the solvers: V of radius 1, A = gain B, mean |z_i| = 1 at the start.

    With v = radius u and d = e sqrt(scale / kappa): b, rho, P and the gap are divided by `scale`.
    """

    B: Array
    gain: Array
    b: Array
    rho: Array
    cone: AbstractCone
    anchor: Array
    scale: Array

    def __init__(self, B: Array, b: Array, rho: Array, kappa: Array, cone: AbstractCone):
        radius = jnp.asarray(cone.radius(), b.dtype)
        self.cone = cone.scaled(1 / radius)
        self.anchor = self.cone.project(jnp.zeros_like(b))
        b, rho = b * radius, rho * radius**2
        z = b
        if not isinstance(cone, (Ball, Box, CrossPolytope, Space)):  # there the anchor is 0
            z = b - rho[:, None] * self.anchor - _fore(B, _back(B, self.anchor)) * (radius**2 / kappa)
        z = z - jnp.mean(z, axis=-1, keepdims=True) if isinstance(cone, Simplex) else z  # f(z + t) = f(z) + t
        sizes = norms(z)
        scale = jnp.sum(sizes) / jnp.maximum(jnp.sum(sizes > 0, dtype=b.dtype), 1)
        self.scale = jnp.where((scale > 0) & jnp.isfinite(scale), scale, jnp.ones_like(scale))
        self.B, self.gain = B, radius / jnp.sqrt(kappa * self.scale)
        self.b, self.rho = b / self.scale, rho / self.scale


def _fore(A: Array, e: Array) -> Array:
    return (A.reshape(-1, e.size) @ e).reshape(A.shape[:2])


def _back(A: Array, v: Array) -> Array:
    return v.reshape(-1) @ A.reshape(v.size, -1)


def _system(p: _Scaled) -> System:
    """d x d when d is below half of nk (the crossing measured in docs/decisions/0005), else nk x nk."""
    n, k, d = p.B.shape
    form = Columns if 2 * d < n * (k - isinstance(p.cone, Simplex)) else Rows
    return form(p.B, p.gain, p.cone)


def _linear(p: _Scaled) -> tuple[Point, Array]:
    """V = R^k: (K + rho) v = b."""
    system = _system(p)
    h = jnp.where(p.rho > 0, p.rho, jnp.ones_like(p.rho))[:, None] * jnp.ones_like(p.b)
    g = jnp.zeros_like(h)
    v, e = system.refined(system.factor(h, g), h, g, jnp.zeros(system.width, p.b.dtype), p.b)
    return certify(system, p.cone, p.b, p.rho, e, v), jnp.int32(1)


def _one_ball(p: _Scaled) -> tuple[Point, Array]:
    """One block, V the ball: (K + rho + t) v = b with t = 0 and |v| <= 1, or |v| = 1 (the secular equation).

    With A = U S V': v(t) = U c / (S^2 + rho + t) + (b - U c) / (rho + t), c = U'b. Newton on 1 / |v(t)| - 1, which is
    concave and increasing, from the left: it never passes the root. t starts at eps (|b| is 1): where |v(eps)| <= 1 the
    residual is zero up to eps, and singular K needs no case of its own.
    """
    A, b, rho = p.gain * p.B[0], p.b[0], p.rho[0]
    U, S, Vt = jnp.linalg.svd(A, full_matrices=False)
    c = b @ U
    beside = jnp.zeros_like(b) if U.shape[0] == U.shape[1] else b - U @ c
    beside = beside - U @ (beside @ U)  # twice: 1 / t would blow up what rounding leaves along U
    rest = norms(beside)

    def weights(t):
        return 1 / (S * S + rho + t), 1 / (rho + t)

    def newton(_, t):
        inner, outer = weights(t)
        square = jnp.sum((c * inner) ** 2) + (rest * outer) ** 2
        slope = jnp.sum(c * c * inner**3) + rest**2 * outer**3
        move = (jnp.sqrt(square) - 1) * square / jnp.where(slope > 0, slope, jnp.ones_like(slope))
        return t + jnp.maximum(move, 0)

    t = jax.lax.fori_loop(0, 40, newton, jnp.asarray(jnp.finfo(b.dtype).eps, b.dtype))
    inner, outer = weights(t)
    v = p.cone.project((U @ (c * inner) + beside * outer)[None])
    e = -(S * c * inner) @ Vt
    gap = jnp.sum(p.cone.excess((b + A @ e)[None], v, p.rho)) + jnp.sum((e + v[0] @ A) ** 2) / 2
    return Point(e, v, gap), jnp.int32(1)


def _few_bounds(p: _Scaled, cone: Box, tol: Array) -> tuple[Point, Array]:
    """Pivoting, exact up to rounding; rank-deficient blocks with |A|^2 above 1e8 may need the hybrid."""
    point, rounds = solve_few_bounds(p.gain * p.B[:, 0], p.b[:, 0], p.rho, cone)

    def again(point: Point) -> tuple[Point, Array]:
        other, steps = _hybrid(p, tol, point.v)
        return better(other, point), rounds + steps

    return jax.lax.cond(point.gap <= tol, lambda point: (point, rounds), again, point)


def _hybrid(p: _Scaled, tol: Array, v0: Array | None) -> tuple[Point, Array]:
    """A burst of ADMM, then the interior point if it is needed."""
    system = _system(p)
    pair = lambda v: certify(system, p.cone, p.b, p.rho, -system.back(v), v)
    start, z = pair(p.anchor), jnp.zeros_like(p.b)
    if v0 is not None:
        warm = pair(p.cone.project(v0))
        z = jnp.where(warm.gap < start.gap, p.b + system.fore(warm.e) - p.rho[:, None] * warm.v, z)
        start = better(warm, start)
    point, steps = burst(system, p.cone, p.b, p.rho, start.v, z, tol)
    point, more = interior(system, p.cone, p.b, p.rho, better(point, start), tol)
    return point, steps + more


def minimize_dense(
    B: Array, b: Array, rho: Array, kappa: Array, cone: AbstractCone, tol: Array, v0: Array | None = None
) -> tuple[Array, Array, Array]:
    """Return (d, v, iterations) for dense B (n, k, d), b (n, k), rho (n,), to gap <= tol, from v0 (n, k) if it helps.

    The method is chosen by shapes alone: V = R^k a linear solve; one ball the secular equation; a few bounds
    pivoting; otherwise ADMM and an interior point, in d x d if d < nk / 2. The best certified pair is returned,
    whatever happens.
    """
    n, k, m = B.shape
    shape = (n * k, 1, m) if isinstance(cone, Box) else (n, k, m)
    each = shape[:2]
    p = _Scaled(B.reshape(shape), b.reshape(each), jnp.repeat(rho, each[0] // n), kappa, cone)
    radius = jnp.asarray(cone.radius(), b.dtype)
    if isinstance(cone, Space):
        point, steps = _linear(p)
    elif isinstance(cone, Simplex) and k == 1:  # V is the point 1
        point, steps = Point(-p.gain * _back(p.B, p.anchor), p.anchor, jnp.zeros((), b.dtype)), jnp.int32(0)
    elif isinstance(cone, Ball) and n == 1 and min(k, m) <= 512:
        point, steps = _one_ball(p)
    elif isinstance(cone, Box) and n * k <= FEW:
        point, steps = _few_bounds(p, cone.scaled(1 / radius), tol / p.scale)
    else:
        point, steps = _hybrid(p, tol / p.scale, None if v0 is None else v0.reshape(each) / radius)
    return point.e * jnp.sqrt(p.scale / kappa), cone.project(point.v.reshape(n, k) * radius), steps


def solve_dense(
    B: Array, b: Array, rho: Array, kappa: Array, cone: AbstractCone, tol: Array, v0: Array | None = None
) -> DualAnswer:
    """`minimize_dense` with its certificate in the caller's units; half of tol is left to rounding."""
    d, v, steps = minimize_dense(B, b, rho, kappa, cone, tol / 2, v0)
    found = certify_dense(B, b, rho, kappa, cone, v, d, d, jnp.zeros((), b.dtype))
    none = jnp.int32(0)
    return DualAnswer(d, v, found.value, found.gap, steps, found.gap <= tol, none, none, jnp.zeros((), b.dtype))


# ---------------------------------------------------------------------------------------------- matrix-free


class _Ray(eqx.Module):
    """A dual point v with d = -B'v / kappa and z = b + B d."""

    v: Array
    d: Any
    z: Array


class _State(eqx.Module):
    old: _Ray
    new: _Ray
    momentum: Array
    smoothness: Array
    best: _Ray
    gap: Array
    steps: Array
    transposes: Array


def solve_matrix_free(
    apply: Callable[[Any], Array],
    transpose: Callable[[Array], Any],
    b: Array,
    rho: Array,
    kappa: Array,
    cone: AbstractCone,
    tol: Array,
    max_iterations: int | Array,
    v0: Array | None = None,
) -> DualAnswer:
    """min_d P(d) with B by apply (tree -> (n, k)) and transpose ((n, k) -> tree): accelerated dual projected gradient.

        v+ = project(y - (rho y - z(y)) / smoothness),   y = v + beta (v - v_old),   restart when <y - v+, v+ - v> > 0

    Each step calls apply once and transpose once, and transpose once more each time that smoothness was found too small
    (|B'(v+ - y)|^2 / kappa + rho |v+ - y|^2 > smoothness |v+ - y|^2); two transposes and one apply come before. z(y)
    and d(y) are combinations of what is known, so the gap is checked at each step for free.
    """
    tree = optax.tree

    def direction(v: Array) -> Any:
        return tree.scale(-1 / kappa, transpose(v))

    def ray(v: Array, d: Any) -> _Ray:
        return _Ray(v, d, b + apply(d))

    def curvature(v: Array, d: Any) -> Array:
        """(|B'v|^2 / kappa + sum rho_i |v_i|^2) / |v|^2 for d = -B'v / kappa."""
        size = jnp.sum(v * v)
        energy = kappa * tree.vdot(d, d) + jnp.sum(rho[:, None] * v * v)
        return jnp.where(size > 0, energy / jnp.where(size > 0, size, jnp.ones_like(size)), jnp.zeros_like(size))

    def body(s: _State) -> _State:
        momentum = (1 + jnp.sqrt(1 + 4 * s.momentum**2)) / 2
        beta = (s.momentum - 1) / momentum
        y = jax.tree.map(lambda new, old: new + beta * (new - old), s.new, s.old)

        def attempt(carry):
            _, _, smoothness, needed, calls = carry
            smoothness = jnp.where(needed > smoothness, jnp.maximum(1.1 * smoothness, 1.05 * needed), smoothness)
            v = cone.project(y.v + (y.z - rho[:, None] * y.v) / smoothness)
            d = direction(v)
            return v, d, smoothness, curvature(v - y.v, tree.sub(d, y.d)), calls + 1

        first = attempt((y.v, y.d, s.smoothness, jnp.zeros_like(s.smoothness), s.transposes))
        v, d, smoothness, _, calls = jax.lax.while_loop(lambda c: c[3] > 1.01 * c[2], attempt, first)
        new = ray(v, d)
        rest = tree.sub(d, y.d)
        gaps = jnp.stack(
            [
                jnp.sum(cone.excess(new.z, v, rho)),
                jnp.sum(cone.excess(y.z, v, rho)) + kappa / 2 * tree.vdot(rest, rest),
            ]
        )
        pair = jax.tree.map(lambda a, c: jnp.where(gaps[0] <= gaps[1], a, c), new, _Ray(v, y.d, y.z))
        gap = jnp.min(gaps)
        best = jax.tree.map(lambda a, c: jnp.where(gap < s.gap, a, c), pair, s.best)
        restart = jnp.sum((y.v - v) * (v - s.new.v)) > 0
        momentum = jnp.where(restart, jnp.ones_like(momentum), momentum)
        return _State(s.new, new, momentum, smoothness, best, jnp.minimum(gap, s.gap), s.steps + 1, calls)

    v = cone.project(jnp.zeros_like(b) if v0 is None else v0)
    start = ray(v, direction(v))
    probe = jnp.where(jnp.any(b != 0), b, jnp.ones_like(b))
    smoothness = jnp.maximum(curvature(probe, direction(probe)), jnp.finfo(b.dtype).tiny ** 0.5)
    gap = jnp.sum(cone.excess(start.z, v, rho))
    one = jnp.ones((), b.dtype)
    state = _State(start, start, one, smoothness, start, gap, jnp.int32(0), jnp.int32(2))
    end = jax.lax.while_loop(lambda s: (s.gap > tol) & (s.steps < max_iterations), body, state)
    d, v = end.best.d, end.best.v
    value = jnp.sum(cone.value(end.best.z, rho)) + kappa / 2 * tree.vdot(d, d)
    spread = jnp.sqrt(end.smoothness * kappa)
    return DualAnswer(d, v, value, end.gap, end.steps, end.gap <= tol, end.steps + 1, end.transposes, spread)
