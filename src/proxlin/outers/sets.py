"""The sets V of the dual variables: this is the only module that knows what a set looks like.

    f(z) = max_{v in V} <z, v> - rho/2 |v|^2          V = ball, box, simplex, cross-polytope or the whole space

Arrays hold n blocks of size k: `v` and `z` are (n, k), `rho` is (n,).

- Every set answers a first-order method: `maximizer`, `value`, `project`, `excess`, `drift`, `radius`.
- A set that `responds` tells Newton's method how its maximizer moves with z.
- A set with `free` and `along_face` tells a second-order method where f has its kinks.
- A set with a barrier answers an interior point too. There `y` are the multipliers of V, kept strictly inside their
  cone, and z = normal(y) is the vector that they put in the normal cone of V at v:

      multipliers(v, z, margin)     a strictly inner y with normal(y) near z; margin (n,)
      complementarity(v, y)         for each block the sum of slack times multiplier, and the number of such products
      scaling(v, y)                 W, what the next four share
      curvature(W, y)               h, g (n, k): dv is mapped to dz by the blocks diag(h_i) + g_i g_i'
      aim(W, y, target, dv, dy)     the right-hand side p of the linearised complementarity, target (n,)
      constant(W, p)                q with  dz = (diag(h) + g g') dv - q
      follow(W, y, p, dv)           dy, the step of the multipliers
      reach(v, dv, y, dy)           for each block the largest step that keeps both inside

No method adds up over blocks: blocks of many problems may lie side by side.
"""

import abc
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Blocks = Float[Array, "n k"]
Each = Float[Array, " n"]


def norms(z: Array) -> Array:
    """Return |z_i|_2 over the last axis, scaled by max |z_ij| so that nothing over- or underflows."""
    top = jnp.max(jnp.abs(z), axis=-1, keepdims=True)
    safe = jnp.where(top > 0, top, jnp.ones_like(top))
    return top[..., 0] * jnp.sqrt(jnp.sum((z / safe) ** 2, axis=-1))


def below_the_top(v: Array) -> Array:
    """Return v - max v over the last axis, exactly 0 at the top.

    XLA may compute v once more in the difference, as a product that is not rounded before it is
    subtracted; without the comparison the top is then off by the rounding of v.
    """
    top = jnp.max(v, axis=-1, keepdims=True)
    return jnp.where(v >= top, jnp.zeros_like(v), v - top)


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=-1)


def _over(a: Array, b: Array) -> Array:
    """Return a / b, and a where b is 0 (which is never used)."""
    return a / jnp.where(b > 0, b, jnp.ones_like(b))


def _slack(v: Array) -> Array:
    """How near to the boundary of V an entry may be and still count as free: interior points end
    with such slacks.
    """
    return jnp.asarray(jnp.finfo(v.dtype).eps ** (1 / 3), v.dtype)


class AbstractSet(eqx.Module):
    """A closed convex V in R^k, the same for every block."""

    # a product of intervals: each entry is a block of its own
    separable: ClassVar[bool] = False
    # a product of intervals that differ from entry to entry
    entrywise: ClassVar[bool] = False
    round: ClassVar[bool] = False  # the unit ball of |.|_2
    unbounded: ClassVar[bool] = False  # all of R^k
    flat: ClassVar[bool] = False  # inside of {sum_j v_j = 1}: directions have the sum 0
    has_origin: ClassVar[bool] = True  # 0 is in V
    responds: ClassVar[bool] = False  # `response` is known

    @abc.abstractmethod
    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        """Return argmax_{v in V} <z, v> - rho/2 |v|^2; for rho = 0 one of them."""

    def response(self, z: Blocks, rho: Each) -> tuple[Blocks, Blocks | None]:
        """Return a, b, where d maximizer(z, rho) = (diag(a) - b b') dz, for rho > 0; None for b = 0."""
        raise TypeError(f"{type(self).__name__} does not know how its maximizer moves.")

    def value(self, z: Blocks, rho: Each) -> Each:
        """Return f_i(z_i)."""
        u = self.maximizer(z, rho)
        return _dot(z, u) - rho / 2 * _dot(u, u)

    def project(self, v: Blocks) -> Blocks:
        """Return argmin_{u in V} |u - v|."""
        return self.maximizer(v, jnp.ones(v.shape[:-1], v.dtype))

    def excess(self, z: Blocks, v: Blocks, rho: Each) -> Each:
        """Return f(z) - <v, z> + rho/2 |v|^2, which is 0 where v is the maximizer and positive for
        any other v of V.

        With u = maximizer(z) it is <z - rho u, u - v> + rho/2 |u - v|^2, where both terms are at
        least 0.
        """
        u = self.maximizer(z, rho)
        slope = _dot(z - rho[:, None] * u, u - v)
        return jnp.maximum(slope, 0) + rho / 2 * _dot(u - v, u - v)

    def drift(self, z: Blocks, v: Blocks, rho: Each, error: Blocks) -> Each:
        """Bound the change of `excess` where z is known up to `error`: its slope u - v is at most 2
        radius.
        """
        return 2 * jnp.asarray(self.radius(z.shape[-1]), z.dtype) * norms(error)

    def radius(self, k: int) -> Any:
        """Return max_{v in V} |v|."""
        return 1.0

    def size(self) -> Any:
        """Return the length that solvers take as their unit: they work with V / size."""
        return 1.0

    def scaled(self, factor: Array) -> "AbstractSet":
        """Return factor * V; only asked with factor = 1 / size."""
        return self

    def ends(self, dtype: Any) -> tuple[Array, Array]:
        """Return the ends of the intervals, the same for every entry; only asked of a set that is
        separable.
        """
        raise TypeError(f"{type(self).__name__} is no product of intervals.")

    def entries(self, blocks: int) -> "AbstractSet | None":
        """Return the set of so many blocks with each entry as a block of its own, (blocks k, 1), where
        a solver has to take them apart: entries have an interval and a rho of their own. Else None.
        """
        return None

    def tells_kinks(self) -> bool:
        """Return whether `free` is known, beyond what every set has."""
        return type(self).free is not AbstractSet.free

    def center(self, v: Blocks) -> Blocks:
        """Return an interior point, in the shape of v."""
        return jnp.zeros_like(v)

    def barrier(self) -> "AbstractBarrier | None":
        """Return the set with all that an interior point asks, or None where it has no such
        answers.
        """
        return None

    def free(self, v: Blocks) -> Bool[Array, "n k"]:
        """Return the entries of v_i that are free in the face of V that holds v_i: f has a kink
        along them.
        """
        return jnp.zeros(v.shape, bool)

    def along_face(
        self, v: Blocks, free: Array, x: Float[Array, "n k d"]
    ) -> Float[Array, "n k d"]:
        """Return the part of each x_i along that face: the free entries."""
        return jnp.where(free[..., None], x, jnp.zeros_like(x))

    def face_dimension(self, v: Blocks, free: Array) -> Array:
        """Return the sum over i of the dimensions of these faces, the rank of `along_face`."""
        return jnp.sum(free, dtype=jnp.int32)


class AbstractBarrier(AbstractSet):
    """A set that an interior point can walk through."""

    def barrier(self) -> "AbstractBarrier":
        return self

    @abc.abstractmethod
    def multipliers(self, v: Blocks, z: Blocks, margin: Each) -> Any:
        """Return multipliers y strictly inside their cone, with normal(y) near z."""

    @abc.abstractmethod
    def normal(self, y: Any) -> Blocks:
        """Return the vector that the multipliers put in the normal cone."""

    @abc.abstractmethod
    def complementarity(self, v: Blocks, y: Any) -> tuple[Each, int]:
        """Return the sum of slack times multiplier in each block, and the number of such products
        there.
        """

    @abc.abstractmethod
    def scaling(self, v: Blocks, y: Any) -> Any:
        """Return W, what the next four methods share."""

    @abc.abstractmethod
    def curvature(self, W: Any, y: Any) -> tuple[Blocks, Blocks]:
        """Return h, g: a step dv changes the normal vector by (diag(h_i) + g_i g_i') dv_i, up to a
        constant.
        """

    @abc.abstractmethod
    def aim(self, W: Any, y: Any, target: Each, dv: Blocks, dy: Any) -> Any:
        """Return the right-hand side p of the linearised complementarity slack o multiplier =
        target.
        """

    @abc.abstractmethod
    def constant(self, W: Any, p: Any) -> Blocks:
        """Return q with dz = (diag(h) + g g') dv - q."""

    @abc.abstractmethod
    def follow(self, W: Any, y: Any, p: Any, dv: Blocks) -> Any:
        """Return dy, the step of the multipliers that belongs to dv."""

    @abc.abstractmethod
    def reach(self, v: Blocks, dv: Blocks, y: Any, dy: Any) -> Each:
        """Return the largest step of each block that keeps v_i in V and y_i in its cone."""


def _longest(slack: Array, change: Array) -> Array:
    """Return the largest step of each block with slack + step * change >= 0, for slack > 0."""
    fastest = jnp.max(-change / slack, axis=-1)
    return jnp.where(fastest > 0, 1 / fastest, jnp.inf)


# -------------------------------------------------------------------------------------------- space


class Space(AbstractSet):
    """V = R^k, f(z) = |z|^2 / (2 rho). Needs rho > 0 (a block of zeros may have rho = 0)."""

    unbounded: ClassVar[bool] = True
    responds: ClassVar[bool] = True

    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        r = rho[:, None]
        return jnp.where(r > 0, _over(z, r), jnp.zeros_like(z))

    def response(self, z: Blocks, rho: Each) -> tuple[Blocks, None]:
        return jnp.broadcast_to(_over(jnp.ones_like(rho), rho)[:, None], z.shape), None

    def drift(self, z: Blocks, v: Blocks, rho: Each, error: Blocks) -> Each:
        """The excess is |z - rho v|^2 / (2 rho)."""
        length = norms(error)
        change = length * (norms(z - rho[:, None] * v) + length / 2)
        return jnp.where(rho > 0, _over(change, rho), jnp.zeros_like(length))

    def radius(self, k: int) -> float:
        return float("inf")


class OpenSpace(AbstractBarrier):
    """R^k as an interior point walks through it: there is no boundary, and nothing is complementary.

    The multipliers are zeros, which stand for the shape of v.
    """

    unbounded: ClassVar[bool] = True

    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        return Space().maximizer(z, rho)

    def multipliers(self, v: Blocks, z: Blocks, margin: Each) -> Array:
        return jnp.zeros_like(v)

    def normal(self, y: Array) -> Blocks:
        return y

    def complementarity(self, v: Blocks, y: Array) -> tuple[Each, int]:
        return jnp.zeros(v.shape[:1], v.dtype), 0

    def scaling(self, v: Blocks, y: Array) -> Array:
        return y

    def curvature(self, W: Array, y: Array) -> tuple[Blocks, Blocks]:
        return y, y

    def aim(self, W: Array, y: Any, target: Each, dv: Blocks, dy: Any) -> Array:
        return y

    def constant(self, W: Array, p: Array) -> Blocks:
        return p

    def follow(self, W: Array, y: Any, p: Array, dv: Blocks) -> Array:
        return y

    def reach(self, v: Blocks, dv: Blocks, y: Any, dy: Any) -> Each:
        return jnp.full(v.shape[:1], jnp.inf, v.dtype)


# --------------------------------------------------------------------------------------------- ball


class Ball(AbstractBarrier):
    """V = {|v| <= 1}, f(z) = |z| when rho = 0. Second-order cones s = (1, v), y = (tau, -z),
    Nesterov-Todd scaling.
    """

    round: ClassVar[bool] = True
    responds: ClassVar[bool] = True

    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        length = jnp.maximum(norms(z), rho)[:, None]
        return jnp.where(length > 0, _over(z, length), jnp.zeros_like(z))

    def response(self, z: Blocks, rho: Each) -> tuple[Blocks, Blocks]:
        """On the boundary v = z / |z| moves across z alone."""
        size = norms(z)
        length = jnp.maximum(size, rho)[:, None]
        across = _over(_over(z, length), jnp.sqrt(length))
        outside = (size > rho)[:, None]
        a = jnp.broadcast_to(_over(jnp.ones_like(length), length), z.shape)
        return a, jnp.where(outside, across, jnp.zeros_like(z))

    def free(self, v: Blocks) -> Array:
        inside = norms(v) < 1 - _slack(v)
        return jnp.broadcast_to(inside[:, None], v.shape)

    def multipliers(self, v: Blocks, z: Blocks, margin: Each) -> tuple[Array, Array]:
        return norms(z) + margin, z

    def normal(self, y: tuple[Array, Array]) -> Blocks:
        return y[1]

    def complementarity(self, v: Blocks, y: tuple[Array, Array]) -> tuple[Each, int]:
        return y[0] - _dot(v, y[1]), 1

    def scaling(
        self, v: Blocks, y: tuple[Array, Array]
    ) -> tuple[Array, Array, Array, Array]:
        """Return beta, w0, w1 of W = beta * (hyperbolic rotation by w), and det = sqrt(det s det
        y).
        """
        tau, z = y
        a = jnp.sqrt((1 - norms(v)) * (1 + norms(v)))
        c = jnp.sqrt((tau - norms(z)) * (tau + norms(z)))
        gamma = jnp.sqrt((1 + (tau - _dot(v, z)) / (a * c)) / 2)
        w0 = (1 / a + tau / c) / (2 * gamma)
        w1 = (v / a[:, None] + z / c[:, None]) / (2 * gamma)[:, None]
        return jnp.sqrt(a / c), w0, w1, a * c

    def curvature(self, W: Any, y: tuple[Array, Array]) -> tuple[Blocks, Blocks]:
        beta, _, w1, _ = W
        h = jnp.broadcast_to((beta**-2)[:, None], w1.shape)
        return h, jnp.asarray(2**0.5, w1.dtype) * w1 / beta[:, None]

    def aim(
        self, W: Any, y: Any, target: Each, dv: Blocks, dy: Any
    ) -> tuple[Array, Array]:
        """Return p = l \\ (target e - l o l - (W^-1 ds) o (W dy)),  l = W y = W^-1 s."""
        beta, w0, w1, det = W
        l0, l1 = _rotate(w0, w1, y[0], -y[1], 1)
        l0 = beta * l0
        l1 = beta[:, None] * l1
        s0, s1 = _rotate(w0, w1, jnp.zeros_like(w0), dv, -1)
        t0, t1 = _rotate(w0, w1, dy[0], -dy[1], 1)
        r0 = target - l0 * l0 - _dot(l1, l1) - s0 * t0 - _dot(s1, t1)
        r1 = -2 * l0[:, None] * l1 - s0[:, None] * t1 - t0[:, None] * s1
        p0 = (l0 * r0 - _dot(l1, r1)) / det
        return p0, (r1 - p0[:, None] * l1) / l0[:, None]

    def constant(self, W: Any, p: tuple[Array, Array]) -> Blocks:
        beta, w0, w1, _ = W
        return _rotate(w0, w1, p[0], p[1], -1)[1] / beta[:, None]

    def follow(
        self, W: Any, y: Any, p: tuple[Array, Array], dv: Blocks
    ) -> tuple[Array, Array]:
        """Return dy = W^-1 (p - W^-1 (0, dv)), with dz = -dy_1."""
        beta, w0, w1, _ = W
        s0, s1 = _rotate(w0, w1, jnp.zeros_like(w0), dv, -1)
        d0, d1 = _rotate(w0, w1, p[0] - s0 / beta, p[1] - s1 / beta[:, None], -1)
        return d0 / beta, -d1 / beta[:, None]

    def reach(self, v: Blocks, dv: Blocks, y: Any, dy: Any) -> Each:
        ones = jnp.ones(v.shape[:1], v.dtype)
        of_v = _reach_of_cone(ones, v, 0 * ones, dv)
        of_y = _reach_of_cone(y[0], y[1], dy[0], dy[1])
        return jnp.minimum(of_v, of_y)


def _rotate(
    w0: Array, w1: Array, x0: Array, x1: Array, sign: int
) -> tuple[Array, Array]:
    """Return (w0 x0 + w1.x1, x0 w1 + x1 + w1 (w1.x1)/(1 + w0)); its inverse for sign -1."""
    inner = _dot(w1, x1)
    return w0 * x0 + sign * inner, x1 + w1 * (sign * x0 + inner / (1 + w0))[:, None]


def _reach_of_cone(s0: Array, s1: Array, d0: Array, d1: Array) -> Array:
    """Return the first positive root of |s1 + t d1| = s0 + t d0 in each block."""
    a = d0 * d0 - _dot(d1, d1)
    b = s0 * d0 - _dot(s1, d1)
    c = (s0 - norms(s1)) * (s0 + norms(s1))
    bottom = jnp.sqrt(jnp.maximum(b * b - a * c, 0)) - b
    meets = (bottom > 0) & ((a < 0) | (b < 0))
    return jnp.where(meets, c / jnp.where(meets, bottom, jnp.ones_like(c)), jnp.inf)


# ---------------------------------------------------------------------------------------------- box


class Box(AbstractBarrier):
    """V = {low <= v_j <= high}, f(z) = sum_j max(low z_j, high z_j) when rho = 0. Multipliers y =
    (at low, at high).
    """

    separable: ClassVar[bool] = True
    responds: ClassVar[bool] = True

    low: Array = eqx.field(converter=jnp.asarray)
    high: Array = eqx.field(converter=jnp.asarray)

    def ends(self, dtype: Any) -> tuple[Array, Array]:
        return jnp.asarray(self.low, dtype), jnp.asarray(self.high, dtype)

    def response(self, z: Blocks, rho: Each) -> tuple[Blocks, None]:
        low, high = self.ends(z.dtype)
        r = rho[:, None]
        inner = (z > r * low) & (z < r * high)
        return jnp.where(inner, _over(jnp.ones_like(r), r), jnp.zeros_like(z)), None

    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        low, high = self.ends(z.dtype)
        r = jnp.broadcast_to(rho[:, None], z.shape)
        inner = jnp.clip(_over(z, r), low, high)
        return jnp.where(z > r * high, high, jnp.where(z < r * low, low, inner))

    def drift(self, z: Blocks, v: Blocks, rho: Each, error: Blocks) -> Each:
        low, high = self.ends(z.dtype)
        return (high - low) * jnp.sum(error, axis=-1)

    def radius(self, k: int) -> Array:
        return jnp.maximum(-self.low, self.high) * k**0.5

    def size(self) -> Array:
        return (self.high - self.low) / 2

    def scaled(self, factor: Array) -> "Box":
        low, high = self.ends(factor.dtype)
        return Box(low * factor, high * factor)

    def center(self, v: Blocks) -> Blocks:
        low, high = self.ends(v.dtype)
        return jnp.zeros_like(v) + (low + high) / 2

    def free(self, v: Blocks) -> Array:
        low, high = self.ends(v.dtype)
        slack = _slack(v) * (high - low)
        return (v > low + slack) & (v < high - slack)

    def _slacks(self, v: Blocks) -> tuple[Array, Array]:
        low, high = self.ends(v.dtype)
        return v - low, high - v

    def multipliers(self, v: Blocks, z: Blocks, margin: Each) -> tuple[Array, Array]:
        margin = margin[:, None]
        return jnp.maximum(-z, 0) + margin, jnp.maximum(z, 0) + margin

    def normal(self, y: tuple[Array, Array]) -> Blocks:
        return y[1] - y[0]

    def complementarity(self, v: Blocks, y: tuple[Array, Array]) -> tuple[Each, int]:
        s, t = self._slacks(v)
        return jnp.sum(s * y[0] + t * y[1], axis=-1), 2 * v.shape[-1]

    def scaling(
        self, v: Blocks, y: tuple[Array, Array]
    ) -> tuple[Array, Array, Array, Array]:
        """Return the slacks and their inverses: divisions are what an iteration takes time for."""
        s, t = self._slacks(v)
        return s, t, 1 / s, 1 / t

    def curvature(self, W: Any, y: tuple[Array, Array]) -> tuple[Blocks, Blocks]:
        s, _, over_s, over_t = W
        return y[0] * over_s + y[1] * over_t, jnp.zeros_like(s)

    def aim(
        self, W: Any, y: Any, target: Each, dv: Blocks, dy: Any
    ) -> tuple[Array, Array]:
        s, t, _, _ = W
        target = target[:, None]
        return target - s * y[0] - dv * dy[0], target - t * y[1] + dv * dy[1]

    def constant(self, W: Any, p: tuple[Array, Array]) -> Blocks:
        _, _, over_s, over_t = W
        return p[0] * over_s - p[1] * over_t

    def follow(
        self, W: Any, y: Any, p: tuple[Array, Array], dv: Blocks
    ) -> tuple[Array, Array]:
        _, _, over_s, over_t = W
        return (p[0] - y[0] * dv) * over_s, (p[1] + y[1] * dv) * over_t

    def reach(self, v: Blocks, dv: Blocks, y: Any, dy: Any) -> Each:
        s, t = self._slacks(v)
        of_v = jnp.minimum(_longest(s, dv), _longest(t, -dv))
        of_y = jnp.minimum(_longest(y[0], dy[0]), _longest(y[1], dy[1]))
        return jnp.minimum(of_v, of_y)


# ---------------------------------------------------------------------------------------- intervals


class Intervals(AbstractBarrier):
    """V = {low_j <= v_j <= high_j}, with ends of its own for each entry, which may be infinite.

    The arithmetic is that of `Box`. An end at infinity has no slack and no multiplier: both stay at 1, and nothing of
    them is counted.
    """

    entrywise: ClassVar[bool] = True

    low: Array = eqx.field(converter=jnp.asarray)
    high: Array = eqx.field(converter=jnp.asarray)

    def entries(self, blocks: int) -> "Intervals":
        low = jnp.tile(self.low, blocks)[:, None]
        high = jnp.tile(self.high, blocks)[:, None]
        return Intervals(low, high)

    def _ends(self, dtype: Any) -> tuple[Array, Array]:
        return jnp.asarray(self.low, dtype), jnp.asarray(self.high, dtype)

    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        low, high = self._ends(z.dtype)
        r = jnp.broadcast_to(rho[:, None], z.shape)
        curved = jnp.clip(_over(z, r), low, high)
        end = jnp.where(z > 0, high, jnp.where(z < 0, low, jnp.zeros_like(z)))
        # Without rho an infinite end has no maximizer. Two ask: a row of no weight, where z = 0, and
        # the margin of an interior point, which such an end does not count in.
        end = jnp.where(jnp.isfinite(end), end, jnp.zeros_like(end))
        return jnp.where(r > 0, curved, end)

    def drift(self, z: Blocks, v: Blocks, rho: Each, error: Blocks) -> Each:
        """The excess of an interval has a slope of u - v, which moves by error / rho at most."""
        low, high = self._ends(z.dtype)
        r = rho[:, None]
        away = jnp.abs(self.maximizer(z, rho) - v)
        bent = jnp.where(r > 0, away + _over(error, r) / 2, jnp.inf)
        slope = jnp.minimum(high - low, bent)
        none = jnp.zeros_like(error)
        return jnp.sum(jnp.where(error > 0, slope * error, none), axis=-1)

    def radius(self, k: int) -> Array:
        return jnp.sqrt(jnp.sum(jnp.maximum(-self.low, self.high) ** 2))

    def center(self, v: Blocks) -> Blocks:
        low, high = self._ends(v.dtype)
        bounded = jnp.isfinite(high - low)
        middle = jnp.where(bounded, (low + high) / 2, jnp.zeros_like(low))
        return jnp.broadcast_to(middle, v.shape)

    def free(self, v: Blocks) -> Array:
        low, high = self._ends(v.dtype)
        width = jnp.where(jnp.isfinite(high - low), high - low, jnp.ones_like(low))
        slack = _slack(v) * width
        return (v > low[None] + slack[None]) & (v < high[None] - slack[None])

    def _slacks(self, v: Blocks) -> tuple[Array, Array]:
        low, high = self._ends(v.dtype)
        one = jnp.ones_like(v)
        return (
            jnp.where(jnp.isfinite(low), v - low, one),
            jnp.where(jnp.isfinite(high), high - v, one),
        )

    def _of_ends(self, below: Array, above: Array, rest: float) -> tuple[Array, Array]:
        """Return what belongs to the low and to the high ends, `rest` where an end is infinite."""
        return (
            jnp.where(jnp.isfinite(self.low), below, jnp.asarray(rest, below.dtype)),
            jnp.where(jnp.isfinite(self.high), above, jnp.asarray(rest, above.dtype)),
        )

    def multipliers(self, v: Blocks, z: Blocks, margin: Each) -> tuple[Array, Array]:
        below = jnp.maximum(-z, 0) + margin[:, None]
        above = jnp.maximum(z, 0) + margin[:, None]
        return self._of_ends(below, above, 1.0)

    def normal(self, y: tuple[Array, Array]) -> Blocks:
        below, above = self._of_ends(*y, 0.0)
        return above - below

    def complementarity(self, v: Blocks, y: tuple[Array, Array]) -> tuple[Each, int]:
        s, t = self._slacks(v)
        below, above = self._of_ends(s * y[0], t * y[1], 0.0)
        return jnp.sum(below + above, axis=-1), 2 * v.shape[-1]

    def scaling(self, v: Blocks, y: tuple[Array, Array]) -> tuple[Array, Array]:
        return self._slacks(v)

    def curvature(self, W: Any, y: tuple[Array, Array]) -> tuple[Blocks, Blocks]:
        s, t = W
        below, above = self._of_ends(y[0] / s, y[1] / t, 0.0)
        return below + above, jnp.zeros_like(s)

    def aim(
        self, W: Any, y: Any, target: Each, dv: Blocks, dy: Any
    ) -> tuple[Array, Array]:
        s, t = W
        target = target[:, None]
        below = target - s * y[0] - dv * dy[0]
        above = target - t * y[1] + dv * dy[1]
        return self._of_ends(below, above, 0.0)

    def constant(self, W: Any, p: tuple[Array, Array]) -> Blocks:
        s, t = W
        return p[0] / s - p[1] / t

    def follow(
        self, W: Any, y: Any, p: tuple[Array, Array], dv: Blocks
    ) -> tuple[Array, Array]:
        s, t = W
        return self._of_ends((p[0] - y[0] * dv) / s, (p[1] + y[1] * dv) / t, 0.0)

    def reach(self, v: Blocks, dv: Blocks, y: Any, dy: Any) -> Each:
        s, t = self._slacks(v)
        down, up = self._of_ends(dv, -dv, 0.0)
        of_v = jnp.minimum(_longest(s, down), _longest(t, up))
        of_y = jnp.minimum(_longest(y[0], dy[0]), _longest(y[1], dy[1]))
        return jnp.minimum(of_v, of_y)


# ------------------------------------------------------------------------------------------ simplex


class Simplex(AbstractBarrier):
    """V = {v >= 0, sum v = 1}, f(z) = max_j z_j when rho = 0. Multipliers y >= 0, z = theta - y
    with theta_i free.
    """

    flat: ClassVar[bool] = True
    has_origin: ClassVar[bool] = False
    responds: ClassVar[bool] = True

    def response(self, z: Blocks, rho: Each) -> tuple[Blocks, Blocks]:
        """Entries of v above 0 move, and keep their sum."""
        some = (self.maximizer(z, rho) > 0).astype(z.dtype)
        count = jnp.sum(some, axis=-1, keepdims=True)
        a = _over(some, rho[:, None])
        return a, _over(some, jnp.sqrt(count * rho[:, None]))

    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        """Return max(z - theta, 0) / rho with theta such that it sums to 1 (sort and scan); a
        vertex when rho = 0.
        """
        z = below_the_top(z)
        r = rho[:, None]
        falling = -jnp.sort(-z, axis=-1)
        count = jnp.arange(1, z.shape[-1] + 1, dtype=z.dtype)[None, :]
        thetas = (jnp.cumsum(falling, axis=-1) - r) / count
        support = jnp.sum(falling > thetas, axis=-1, keepdims=True)
        last = jnp.maximum(support, 1) - 1
        theta = jnp.take_along_axis(thetas, last, axis=-1)
        u = _over(jnp.maximum(z - theta, 0), r)
        total = jnp.sum(u, axis=-1, keepdims=True)
        vertex = jnp.arange(z.shape[-1])[None, :] == jnp.argmax(z, axis=-1)[:, None]
        # r may be so small that u overflows or vanishes: then the vertex is the answer up to
        # rounding
        good = (r > 0) & (total > 0)
        return jnp.where(
            good,
            u / jnp.where(good, total, jnp.ones_like(total)),
            vertex.astype(z.dtype),
        )

    def center(self, v: Blocks) -> Blocks:
        return jnp.ones_like(v) / v.shape[-1]

    def free(self, v: Blocks) -> Array:
        return v > _slack(v)

    def along_face(
        self, v: Blocks, free: Array, x: Float[Array, "n k d"]
    ) -> Float[Array, "n k d"]:
        """Return the differences of the free entries from their mean."""
        kept = free[..., None].astype(x.dtype)
        mean = jnp.sum(kept * x, axis=1, keepdims=True) / jnp.maximum(
            jnp.sum(kept, axis=1, keepdims=True), 1
        )
        return kept * (x - mean)

    def face_dimension(self, v: Blocks, free: Array) -> Array:
        """A face has one dimension less than vertices."""
        return jnp.sum(free, dtype=jnp.int32) - jnp.sum(
            jnp.any(free, axis=1), dtype=jnp.int32
        )

    def multipliers(self, v: Blocks, z: Blocks, margin: Each) -> Array:
        return jnp.max(z, axis=-1, keepdims=True) - z + margin[:, None]

    def normal(self, y: Array) -> Blocks:
        return -y

    def complementarity(self, v: Blocks, y: Array) -> tuple[Each, int]:
        return jnp.sum(v * y, axis=-1), v.shape[-1]

    def scaling(self, v: Blocks, y: Array) -> Array:
        return v

    def curvature(self, W: Array, y: Array) -> tuple[Blocks, Blocks]:
        return y / W, jnp.zeros_like(W)

    def aim(self, W: Array, y: Any, target: Each, dv: Blocks, dy: Any) -> Array:
        return target[:, None] - W * y - dv * dy

    def constant(self, W: Array, p: Array) -> Blocks:
        return p / W

    def follow(self, W: Array, y: Any, p: Array, dv: Blocks) -> Array:
        return (p - y * dv) / W

    def reach(self, v: Blocks, dv: Blocks, y: Any, dy: Any) -> Each:
        return jnp.minimum(_longest(v, dv), _longest(y, dy))


# ----------------------------------------------------------------------------------- cross-polytope


class CrossPolytope(AbstractBarrier):
    """V = {sum_j |v_j| <= 1}, f(z) = max_j |z_j| when rho = 0.

    v = p - q with p, q >= 0 and sum_j p_j + q_j = 1. The multipliers a of p and b of q have z = (b
    - a) / 2, where a_j + b_j is the same for all j of a block. The interior point carries y = (a,
    b, p, q), each strictly above 0.
    """

    responds: ClassVar[bool] = True

    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        """Return z / rho where that lies inside, else the point of the simplex for |z|, with the
        signs of z.
        """
        size = jnp.abs(z)
        r = rho[:, None]
        inside = (jnp.sum(size, axis=-1, keepdims=True) <= r) & (r > 0)
        on_boundary = jnp.sign(z) * Simplex().maximizer(size, rho)
        return jnp.where(inside, _over(z, r), on_boundary)

    def response(self, z: Blocks, rho: Each) -> tuple[Blocks, Blocks]:
        r = rho[:, None]
        size = jnp.abs(z)
        inside = jnp.sum(size, axis=-1, keepdims=True) <= r
        a, b = Simplex().response(size, rho)
        a = jnp.where(inside, _over(jnp.ones_like(z), r), a)
        return a, jnp.where(inside, jnp.zeros_like(z), jnp.sign(z) * b)

    def _inside(self, v: Blocks) -> Array:
        """Whether v_i is an inner point: the whole of u_i is then at the kink 0."""
        return jnp.sum(jnp.abs(v), axis=1, keepdims=True) < 1 - _slack(v)

    def free(self, v: Blocks) -> Array:
        return (jnp.abs(v) > _slack(v)) | self._inside(v)

    def along_face(
        self, v: Blocks, free: Array, x: Float[Array, "n k d"]
    ) -> Float[Array, "n k d"]:
        """Return the free entries, less their mean by the signs of v unless v_i is an inner point."""
        kept = free[..., None].astype(x.dtype)
        sign = jnp.where(v < 0, -1.0, 1.0).astype(x.dtype)[..., None] * kept
        mean = jnp.sum(sign * x, axis=1, keepdims=True) / jnp.maximum(
            jnp.sum(kept, axis=1, keepdims=True), 1
        )
        mean = jnp.where(self._inside(v)[..., None], jnp.zeros_like(mean), mean)
        return kept * x - mean * sign

    def face_dimension(self, v: Blocks, free: Array) -> Array:
        on_boundary = jnp.any(free, axis=1) & ~self._inside(v)[:, 0]
        return jnp.sum(free, dtype=jnp.int32) - jnp.sum(on_boundary, dtype=jnp.int32)

    def multipliers(
        self, v: Blocks, z: Blocks, margin: Each
    ) -> tuple[Array, Array, Array, Array]:
        """What |v| leaves of 1 is shared out to both p and q."""
        rest = 1 - jnp.sum(jnp.abs(v), axis=-1, keepdims=True)
        each = jnp.maximum(rest, jnp.finfo(v.dtype).eps) / (2 * v.shape[-1])
        level = jnp.max(jnp.abs(z), axis=-1, keepdims=True) + margin[:, None]
        return level - z, level + z, jnp.maximum(v, 0) + each, jnp.maximum(-v, 0) + each

    def normal(self, y: tuple[Array, Array, Array, Array]) -> Blocks:
        a, b, _, _ = y
        return (b - a) / 2

    def complementarity(
        self, v: Blocks, y: tuple[Array, Array, Array, Array]
    ) -> tuple[Each, int]:
        a, b, p, q = y
        return jnp.sum(a * p + b * q, axis=-1), 2 * v.shape[-1]

    def scaling(
        self, v: Blocks, y: tuple[Array, Array, Array, Array]
    ) -> tuple[Array, Array, Array]:
        """With s = a/p and t = b/q, return the tilt (s - t)/2, the ease 2/(s + t), and its sum over
        a block.
        """
        a, b, p, q = y
        s = a / p
        t = b / q
        ease = 2 / (s + t)
        return (s - t) / 2, ease, jnp.sum(ease, axis=-1, keepdims=True)

    def curvature(
        self, W: Any, y: tuple[Array, Array, Array, Array]
    ) -> tuple[Blocks, Blocks]:
        """Newton's equations of p and q, with p + q and the level eliminated: h = s t / (s + t)."""
        a, b, p, q = y
        tilt, ease, total = W
        s = a / p
        t = b / q
        return s / (s + t) * t, tilt * ease / jnp.sqrt(2 * total)

    def aim(
        self, W: Any, y: Any, target: Each, dv: Blocks, dy: Any
    ) -> tuple[Array, Array]:
        """What a dp + p da, and b dq + q db, should be, over p and over q."""
        a, b, p, q = y
        da, db, dp, dq = dy
        target = target[:, None]
        return (target - da * dp) / p - a, (target - db * dq) / q - b

    def _level(self, W: Any, p: tuple[Array, Array], dv: Blocks) -> Array:
        """Return twice the step of the level, from sum_j dp_j + dq_j = 0."""
        tilt, ease, total = W
        return jnp.sum(ease * (p[0] + p[1] - tilt * dv), axis=-1, keepdims=True) / total

    def constant(self, W: Any, p: tuple[Array, Array]) -> Blocks:
        tilt, ease, _ = W
        level = self._level(W, p, jnp.zeros_like(tilt))
        return (p[0] - p[1] - tilt * ease * (p[0] + p[1] - level)) / 2

    def follow(
        self, W: Any, y: Any, p: tuple[Array, Array], dv: Blocks
    ) -> tuple[Array, Array, Array, Array]:
        a, b, up, down = y
        tilt, ease, _ = W
        both = ease * (p[0] + p[1] - tilt * dv - self._level(W, p, dv))
        dp = (both + dv) / 2
        dq = (both - dv) / 2
        return p[0] - a / up * dp, p[1] - b / down * dq, dp, dq

    def reach(self, v: Blocks, dv: Blocks, y: Any, dy: Any) -> Each:
        steps = [_longest(part, change) for part, change in zip(y, dy, strict=True)]
        return functools.reduce(jnp.minimum, steps)


# ------------------------------------------------------------------------------------------ any set


class Projected(AbstractSet):
    """Any V by the argmax and the projection of its support function, one block at a time; it has
    no barrier.
    """

    has_origin: ClassVar[bool] = False  # as far as anybody knows

    support: Any  # an AbstractSupport

    def maximizer(self, z: Blocks, rho: Each) -> Blocks:
        smooth = eqx.filter_vmap(self.support.project)(_over(z, rho[:, None]))
        sharp = eqx.filter_vmap(self.support.argmax)(z)
        return jnp.where(rho[:, None] > 0, smooth, sharp)

    def radius(self, k: int) -> Any:
        return self.support.radius(k)
