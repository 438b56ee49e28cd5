"""The sets V of the dual variables, and what an interior point needs to know of them.

    f(z) = max_{v in V} <z, v> - rho/2 |v|^2          V = ball, box, simplex, cross-polytope or the whole space

Arrays hold n blocks of size k: `v`, `z` are (n, k), `rho` is (n,). A cone answers four questions of a first-order
method (`maximizer`, `value`, `project`, `excess`), and nine of an interior point, where `y` are the multipliers of V,
kept strictly inside their cone, and z = normal(y) is the vector they put in the normal cone of V at v:

    multipliers(v, z, margin)     a strictly inner y with normal(y) near z
    comply(v, y)                  (sum of slack times multiplier, number of such products)
    scaling(v, y)                 W, what the next four share
    curvature(W, y)               h, g (n, k): dv is mapped to dz by the blocks diag(h_i) + g_i g_i'
    aim(W, y, target, dv, dy)     the right-hand side p of the linearised complementarity (dv = dy = 0: predictor)
    pull(W, p)                    q with  dz = (diag(h) + g g') dv - q
    follow(W, y, p, dv)           dy, the step of the multipliers
    reach(v, dv, y, dy)           the largest step that keeps both inside
"""

import abc
import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array


def norms(z: Array) -> Array:
    """|z_i|_2 over the last axis, scaled by max |z_ij| so that nothing over- or underflows."""
    top = jnp.max(jnp.abs(z), axis=-1, keepdims=True)
    safe = jnp.where(top > 0, top, jnp.ones_like(top))
    return top[..., 0] * jnp.sqrt(jnp.sum((z / safe) ** 2, axis=-1))


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=-1)


def _ratio(slack: Array, change: Array) -> Array:
    """max step with slack + step * change >= 0, for slack > 0."""
    falling = change < 0
    return jnp.min(jnp.where(falling, slack / jnp.where(falling, -change, jnp.ones_like(change)), jnp.inf))


class AbstractCone(eqx.Module):
    """A closed convex V in R^k, the same for every block."""

    @abc.abstractmethod
    def maximizer(self, z: Array, rho: Array) -> Array:
        """argmax_{v in V} <z, v> - rho/2 |v|^2, (n, k); for rho = 0 one of them."""

    def value(self, z: Array, rho: Array) -> Array:
        """f_i(z_i), (n,)."""
        u = self.maximizer(z, rho)
        return _dot(z, u) - rho / 2 * _dot(u, u)

    def project(self, v: Array) -> Array:
        """argmin_{u in V} |u - v|, (n, k)."""
        return self.maximizer(v, jnp.ones(v.shape[:-1], v.dtype))

    def excess(self, z: Array, v: Array, rho: Array) -> Array:
        """f(z) - <v, z> + rho/2 |v|^2 = <z - rho u, u - v> + rho/2 |u - v|^2 with u = maximizer(z), both terms >= 0."""
        u = self.maximizer(z, rho)
        r = rho[:, None]
        return jnp.maximum(_dot(z - r * u, u - v), 0) + rho / 2 * _dot(u - v, u - v)

    def drift(self, z: Array, v: Array, rho: Array, error: Array) -> Array:
        """A bound (n,) on the change of `excess` where z_i is known up to `error` (n, k): |u - v| <= 2 radius."""
        return 2 * jnp.asarray(self.radius(), z.dtype) * norms(error)

    def radius(self) -> Any:
        """The scale of V: solvers work with V / radius."""
        return 1.0

    def scaled(self, factor: Array) -> "AbstractCone":
        """factor * V; only asked with factor = 1 / radius."""
        return self

    def center(self, v: Array) -> Array:
        """An interior point, in the shape of v."""
        return jnp.zeros_like(v)


class Space(AbstractCone):
    """V = R^k, f(z) = |z|^2 / (2 rho). Needs rho > 0 (a block of zeros may have rho = 0)."""

    def maximizer(self, z: Array, rho: Array) -> Array:
        r = rho[:, None]
        return jnp.where(r > 0, z / jnp.where(r > 0, r, jnp.ones_like(r)), jnp.zeros_like(z))

    def drift(self, z: Array, v: Array, rho: Array, error: Array) -> Array:
        """The excess is |z - rho v|^2 / (2 rho)."""
        safe = jnp.where(rho > 0, rho, jnp.ones_like(rho))
        size = norms(error)
        return jnp.where(rho > 0, size * (norms(z - rho[:, None] * v) + size / 2) / safe, jnp.zeros_like(size))


class Ball(AbstractCone):
    """V = {|v| <= 1}, f(z) = |z| when rho = 0. Second-order cones s = (1, v), y = (tau, -z), Nesterov-Todd scaling."""

    def maximizer(self, z: Array, rho: Array) -> Array:
        size = jnp.maximum(norms(z), rho)[:, None]
        return jnp.where(size > 0, z / jnp.where(size > 0, size, jnp.ones_like(size)), jnp.zeros_like(z))

    def multipliers(self, v: Array, z: Array, margin: Array) -> tuple[Array, Array]:
        return norms(z) + margin, z

    def normal(self, y: tuple[Array, Array]) -> Array:
        return y[1]

    def comply(self, v: Array, y: tuple[Array, Array]) -> tuple[Array, int]:
        return jnp.sum(y[0] - _dot(v, y[1])), v.shape[0]

    def scaling(self, v: Array, y: tuple[Array, Array]) -> tuple[Array, Array, Array, Array]:
        """beta, w0, w1 of W = beta * (hyperbolic rotation by w), and det = sqrt(det s det y)."""
        tau, z = y
        a = jnp.sqrt((1 - norms(v)) * (1 + norms(v)))
        c = jnp.sqrt((tau - norms(z)) * (tau + norms(z)))
        gamma = jnp.sqrt((1 + (tau - _dot(v, z)) / (a * c)) / 2)
        w0 = (1 / a + tau / c) / (2 * gamma)
        w1 = (v / a[:, None] + z / c[:, None]) / (2 * gamma)[:, None]
        return jnp.sqrt(a / c), w0, w1, a * c

    def curvature(self, W: Any, y: tuple[Array, Array]) -> tuple[Array, Array]:
        beta, _, w1, _ = W
        return jnp.broadcast_to((beta**-2)[:, None], w1.shape), jnp.asarray(2**0.5, w1.dtype) * w1 / beta[:, None]

    def aim(self, W: Any, y: Any, target: Array, dv: Array, dy: Any) -> tuple[Array, Array]:
        """p = l \\ (target e - l o l - (W^-1 ds) o (W dy)),  l = W y = W^-1 s."""
        beta, w0, w1, det = W
        l0, l1 = _rotate(w0, w1, y[0], -y[1], 1)
        l0, l1 = beta * l0, beta[:, None] * l1
        s0, s1 = _rotate(w0, w1, jnp.zeros_like(w0), dv, -1)
        t0, t1 = _rotate(w0, w1, dy[0], -dy[1], 1)
        r0 = target - l0 * l0 - _dot(l1, l1) - s0 * t0 - _dot(s1, t1)
        r1 = -2 * l0[:, None] * l1 - s0[:, None] * t1 - t0[:, None] * s1
        p0 = (l0 * r0 - _dot(l1, r1)) / det
        return p0, (r1 - p0[:, None] * l1) / l0[:, None]

    def pull(self, W: Any, p: tuple[Array, Array]) -> Array:
        beta, w0, w1, _ = W
        return _rotate(w0, w1, p[0], p[1], -1)[1] / beta[:, None]

    def follow(self, W: Any, y: Any, p: tuple[Array, Array], dv: Array) -> tuple[Array, Array]:
        """dy = W^-1 (p - W^-1 (0, dv)), with dz = -dy_1."""
        beta, w0, w1, _ = W
        s0, s1 = _rotate(w0, w1, jnp.zeros_like(w0), dv, -1)
        d0, d1 = _rotate(w0, w1, p[0] - s0 / beta, p[1] - s1 / beta[:, None], -1)
        return d0 / beta, -d1 / beta[:, None]

    def reach(self, v: Array, dv: Array, y: Any, dy: Any) -> Array:
        ones = jnp.ones(v.shape[:1], v.dtype)
        return jnp.minimum(_reach(ones, v, 0 * ones, dv), _reach(y[0], y[1], dy[0], dy[1]))


def _rotate(w0: Array, w1: Array, x0: Array, x1: Array, sign: int) -> tuple[Array, Array]:
    """(w0 x0 + w1.x1, x0 w1 + x1 + w1 (w1.x1)/(1 + w0)); its inverse for sign -1."""
    inner = _dot(w1, x1)
    return w0 * x0 + sign * inner, x1 + w1 * (sign * x0 + inner / (1 + w0))[:, None]


def _reach(s0: Array, s1: Array, d0: Array, d1: Array) -> Array:
    """First positive root of |s1 + t d1| = s0 + t d0, the smallest over the blocks."""
    a = d0 * d0 - _dot(d1, d1)
    b = s0 * d0 - _dot(s1, d1)
    c = (s0 - norms(s1)) * (s0 + norms(s1))
    bottom = jnp.sqrt(jnp.maximum(b * b - a * c, 0)) - b
    meets = (bottom > 0) & ((a < 0) | (b < 0))
    return jnp.min(jnp.where(meets, c / jnp.where(meets, bottom, jnp.ones_like(c)), jnp.inf))


class Box(AbstractCone):
    """V = {low <= v_j <= high}, f(z) = sum_j max(low z_j, high z_j) when rho = 0. Multipliers y = (at low, at high)."""

    low: Array = eqx.field(converter=jnp.asarray)
    high: Array = eqx.field(converter=jnp.asarray)

    def _ends(self, z: Array) -> tuple[Array, Array]:
        return jnp.asarray(self.low, z.dtype), jnp.asarray(self.high, z.dtype)

    def maximizer(self, z: Array, rho: Array) -> Array:
        low, high = self._ends(z)
        r = jnp.broadcast_to(rho[:, None], z.shape)
        inner = jnp.clip(z / jnp.where(r > 0, r, jnp.ones_like(r)), low, high)
        return jnp.where(z > r * high, high, jnp.where(z < r * low, low, inner))

    def drift(self, z: Array, v: Array, rho: Array, error: Array) -> Array:
        low, high = self._ends(z)
        return (high - low) * jnp.sum(error, axis=-1)

    def radius(self) -> Array:
        return (self.high - self.low) / 2

    def scaled(self, factor: Array) -> "Box":
        low, high = self._ends(factor)
        return Box(low * factor, high * factor)

    def center(self, v: Array) -> Array:
        low, high = self._ends(v)
        return jnp.zeros_like(v) + (low + high) / 2

    def _slacks(self, v: Array) -> tuple[Array, Array]:
        low, high = self._ends(v)
        return v - low, high - v

    def multipliers(self, v: Array, z: Array, margin: Array) -> tuple[Array, Array]:
        return jnp.maximum(-z, 0) + margin, jnp.maximum(z, 0) + margin

    def normal(self, y: tuple[Array, Array]) -> Array:
        return y[1] - y[0]

    def comply(self, v: Array, y: tuple[Array, Array]) -> tuple[Array, int]:
        s, t = self._slacks(v)
        return jnp.sum(s * y[0] + t * y[1]), 2 * v.size

    def scaling(self, v: Array, y: tuple[Array, Array]) -> tuple[Array, Array]:
        return self._slacks(v)

    def curvature(self, W: Any, y: tuple[Array, Array]) -> tuple[Array, Array]:
        return y[0] / W[0] + y[1] / W[1], jnp.zeros_like(W[0])

    def aim(self, W: Any, y: Any, target: Array, dv: Array, dy: Any) -> tuple[Array, Array]:
        s, t = W
        return target - s * y[0] - dv * dy[0], target - t * y[1] + dv * dy[1]

    def pull(self, W: Any, p: tuple[Array, Array]) -> Array:
        s, t = W
        return p[0] / s - p[1] / t

    def follow(self, W: Any, y: Any, p: tuple[Array, Array], dv: Array) -> tuple[Array, Array]:
        s, t = W
        return (p[0] - y[0] * dv) / s, (p[1] + y[1] * dv) / t

    def reach(self, v: Array, dv: Array, y: Any, dy: Any) -> Array:
        s, t = self._slacks(v)
        inside = jnp.minimum(_ratio(s, dv), _ratio(t, -dv))
        return jnp.minimum(inside, jnp.minimum(_ratio(y[0], dy[0]), _ratio(y[1], dy[1])))


class Simplex(AbstractCone):
    """V = {v >= 0, sum v = 1}, f(z) = max_j z_j when rho = 0. Multipliers y >= 0, z = theta - y with theta_i free."""

    def maximizer(self, z: Array, rho: Array) -> Array:
        """max(z - theta, 0) / rho with theta such that it sums to 1 (sort and scan); a vertex when rho = 0."""
        z = z - jnp.max(z, axis=-1, keepdims=True)
        r = rho[:, None]
        down = -jnp.sort(-z, axis=-1)
        count = jnp.arange(1, z.shape[-1] + 1, dtype=z.dtype)[None, :]
        theta = (jnp.cumsum(down, axis=-1) - r) / count
        last = jnp.sum(down > theta, axis=-1, keepdims=True)
        last = jnp.maximum(last, 1) - 1
        level = jnp.take_along_axis(theta, last, axis=-1)
        u = jnp.maximum(z - level, 0) / jnp.where(r > 0, r, jnp.ones_like(r))
        vertex = jnp.arange(z.shape[-1])[None, :] == jnp.argmax(z, axis=-1)[:, None]
        total = jnp.sum(u, axis=-1, keepdims=True)
        good = (r > 0) & (total > 0)
        return jnp.where(good, u / jnp.where(good, total, jnp.ones_like(total)), vertex.astype(z.dtype))

    def center(self, v: Array) -> Array:
        return jnp.ones_like(v) / v.shape[-1]

    def multipliers(self, v: Array, z: Array, margin: Array) -> Array:
        return jnp.max(z, axis=-1, keepdims=True) - z + margin

    def normal(self, y: Array) -> Array:
        return -y

    def comply(self, v: Array, y: Array) -> tuple[Array, int]:
        return jnp.sum(v * y), v.size

    def scaling(self, v: Array, y: Array) -> Array:
        return v

    def curvature(self, W: Array, y: Array) -> tuple[Array, Array]:
        return y / W, jnp.zeros_like(W)

    def aim(self, W: Array, y: Any, target: Array, dv: Array, dy: Any) -> Array:
        return target - W * y - dv * dy

    def pull(self, W: Array, p: Array) -> Array:
        return p / W

    def follow(self, W: Array, y: Any, p: Array, dv: Array) -> Array:
        return (p - y * dv) / W

    def reach(self, v: Array, dv: Array, y: Any, dy: Any) -> Array:
        return jnp.minimum(_ratio(v, dv), _ratio(y, dy))


class CrossPolytope(AbstractCone):
    """V = {sum_j |v_j| <= 1}, f(z) = max_j |z_j| when rho = 0.

    v = p - q with p, q >= 0 and sum_j p_j + q_j = 1. The multipliers a of p and b of q have z = (b - a) / 2, where
    a_j + b_j is the same for all j of a block. The interior point carries y = (a, b, p, q), each strictly above 0.
    """

    def maximizer(self, z: Array, rho: Array) -> Array:
        """z / rho where that lies inside, else the point of the simplex for |z|, with the signs of z."""
        size = jnp.abs(z)
        r = rho[:, None]
        inside = (jnp.sum(size, axis=-1, keepdims=True) <= r) & (r > 0)
        return jnp.where(
            inside, z / jnp.where(r > 0, r, jnp.ones_like(r)), jnp.sign(z) * Simplex().maximizer(size, rho)
        )

    def multipliers(self, v: Array, z: Array, margin: Array) -> tuple[Array, Array, Array, Array]:
        """What |v| leaves of 1 is shared out to both p and q."""
        size = jnp.abs(v)
        eps = jnp.finfo(v.dtype).eps
        rest = jnp.maximum(1 - jnp.sum(size, axis=-1, keepdims=True), eps) / (2 * v.shape[-1])
        level = jnp.max(jnp.abs(z), axis=-1, keepdims=True) + margin
        return level - z, level + z, jnp.maximum(v, 0) + rest, jnp.maximum(-v, 0) + rest

    def normal(self, y: tuple[Array, Array, Array, Array]) -> Array:
        a, b, _, _ = y
        return (b - a) / 2

    def comply(self, v: Array, y: tuple[Array, Array, Array, Array]) -> tuple[Array, int]:
        a, b, p, q = y
        return jnp.sum(a * p + b * q), 2 * v.size

    def scaling(self, v: Array, y: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array]:
        """With s = a/p and t = b/q: the tilt (s - t)/2, the ease 2/(s + t), and its sum over a block."""
        a, b, p, q = y
        s, t = a / p, b / q
        ease = 2 / (s + t)
        return (s - t) / 2, ease, jnp.sum(ease, axis=-1, keepdims=True)

    def curvature(self, W: Any, y: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        """Newton's equations of p and q, with p + q and the level eliminated: h = s t / (s + t)."""
        a, b, p, q = y
        tilt, ease, total = W
        s, t = a / p, b / q
        return s / (s + t) * t, tilt * ease / jnp.sqrt(2 * total)

    def aim(self, W: Any, y: Any, target: Array, dv: Array, dy: Any) -> tuple[Array, Array]:
        """What a dp + p da, and b dq + q db, should be, over p and over q."""
        a, b, p, q = y
        da, db, dp, dq = dy
        return (target - da * dp) / p - a, (target - db * dq) / q - b

    def _level(self, W: Any, p: tuple[Array, Array], dv: Array) -> Array:
        """Twice the step of the level, from sum_j dp_j + dq_j = 0."""
        tilt, ease, total = W
        return jnp.sum(ease * (p[0] + p[1] - tilt * dv), axis=-1, keepdims=True) / total

    def pull(self, W: Any, p: tuple[Array, Array]) -> Array:
        tilt, ease, _ = W
        still = jnp.zeros_like(tilt)
        return (p[0] - p[1] - tilt * ease * (p[0] + p[1] - self._level(W, p, still))) / 2

    def follow(self, W: Any, y: Any, p: tuple[Array, Array], dv: Array) -> tuple[Array, Array, Array, Array]:
        a, b, up, down = y
        tilt, ease, _ = W
        both = ease * (p[0] + p[1] - tilt * dv - self._level(W, p, dv))
        dp, dq = (both + dv) / 2, (both - dv) / 2
        return p[0] - a / up * dp, p[1] - b / down * dq, dp, dq

    def reach(self, v: Array, dv: Array, y: Any, dy: Any) -> Array:
        return functools.reduce(jnp.minimum, [_ratio(part, change) for part, change in zip(y, dy, strict=True)])
