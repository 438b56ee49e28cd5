"""What an interior point asks of a penalty: its curvature, and its share of the equations.

    e + A'v + s = 0,      s in dg(center + e)

A term holds g for the entries of one array, as a function of e, which is small where the center is large. Where
g has bounds, e moves inside of them, and s is the difference of two multipliers. Where g is a norm, s = lam a, a
moves inside of a unit ball or box, and lam (center + e) is in its normal cone. Either way a step has

    ds = D de - q          and          T = (I + D)^-1/2

brings the system of a step to the form that `subproblem/systems.py` solves.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..outers.sets import AbstractBarrier, Ball, Box

Vector = Float[Array, " m"]


class Walk(eqx.Module):
    """Where an interior point is in a term: a and the multipliers y; a is e itself where g has
    bounds.
    """

    a: Array
    y: Any


class AbstractTerm(eqx.Module):
    """A convex g of a vector e, with what an interior point asks."""

    @abc.abstractmethod
    def inside(self, e: Vector, room: Array) -> Vector:
        """Return a point near e where g is finite, about `room` away from its bounds if there is
        so much.
        """

    @abc.abstractmethod
    def start(self, e: Vector, slope: Vector, margin: Array) -> Walk:
        """Return where the walk begins, with an s near `slope`; e is inside, and products are about
        `margin` or more.
        """

    @abc.abstractmethod
    def slope(self, walk: Walk) -> Vector:
        """Return s."""

    @abc.abstractmethod
    def products(self, walk: Walk) -> tuple[Array, Array]:
        """Return the sum of slack times multiplier, and the number of such products."""

    @abc.abstractmethod
    def scaling(self, e: Vector, walk: Walk) -> Any:
        """Return W, what the next methods share."""

    @abc.abstractmethod
    def turn(self, W: Any, x: Float[Array, "... m"]) -> Float[Array, "... m"]:
        """Return T x for arrays with x along the last axis; T is symmetric."""

    @abc.abstractmethod
    def aim(self, W: Any, walk: Walk, target: Array, step: Walk) -> tuple[Any, Vector]:
        """Return the right-hand side of the complementarity, and what it adds to r: -q."""

    @abc.abstractmethod
    def follow(self, W: Any, walk: Walk, p: Any, de: Vector) -> Walk:
        """Return the step of the walk that belongs to de."""

    @abc.abstractmethod
    def reach(self, walk: Walk, step: Walk) -> Array:
        """Return the largest step that stays inside."""


# ------------------------------------------------------------------------------------------- bounds


def _longest(slack: Array, change: Array, counts: Array) -> Array:
    """Return the largest step with slack + step * change >= 0 in the entries that count."""
    over = jnp.where(counts, slack, jnp.ones_like(slack))
    fastest = jnp.max(jnp.where(counts, -change / over, 0), initial=0)
    positive = jnp.where(fastest > 0, fastest, jnp.ones_like(fastest))
    return jnp.where(fastest > 0, 1 / positive, jnp.inf)


class Inside(AbstractTerm):
    """low <= e <= high. Multipliers y = (at low, at high); s = at high - at low.

    An infinite end has no multiplier. An entry with low = high does not move, and any s will do.
    """

    low: Vector
    high: Vector

    def _counts(self) -> tuple[Array, Array]:
        moves = self.low < self.high
        return moves & jnp.isfinite(self.low), moves & jnp.isfinite(self.high)

    def _slacks(self, e: Vector) -> tuple[Array, Array]:
        below, above = self._counts()
        one = jnp.ones_like(e)
        return jnp.where(below, e - self.low, one), jnp.where(above, self.high - e, one)

    def inside(self, e: Vector, room: Array) -> Vector:
        width = self.high - self.low
        room = jnp.minimum(room, jnp.where(jnp.isfinite(width), width / 4, jnp.inf))
        # Far bounds are large numbers, beside which a small room would be lost in rounding.
        eps = 4 * jnp.finfo(e.dtype).eps
        ends = [
            jnp.where(jnp.isfinite(y), jnp.abs(y), 0) for y in (self.low, self.high)
        ]
        room = jnp.maximum(room, jnp.minimum(eps * jnp.maximum(*ends), width / 2))
        inner = jnp.clip(e, self.low + room, self.high - room)
        return jnp.where(width > 0, inner, self.low)

    def start(self, e: Vector, slope: Vector, margin: Array) -> Walk:
        below, above = self._counts()
        s, t = self._slacks(e)
        at_low = jnp.maximum(-slope, 0) + margin / s
        at_high = jnp.maximum(slope, 0) + margin / t
        return Walk(e, (jnp.where(below, at_low, 0), jnp.where(above, at_high, 0)))

    def slope(self, walk: Walk) -> Vector:
        at_low, at_high = walk.y
        return at_high - at_low

    def products(self, walk: Walk) -> tuple[Array, Array]:
        below, above = self._counts()
        s, t = self._slacks(walk.a)
        total = jnp.sum(s * walk.y[0]) + jnp.sum(t * walk.y[1])
        return total, jnp.sum(below) + jnp.sum(above)

    def scaling(self, e: Vector, walk: Walk) -> tuple[Array, Array, Array]:
        s, t = self._slacks(walk.a)
        return s, t, walk.y[0] / s + walk.y[1] / t

    def turn(self, W: Any, x: Float[Array, "... m"]) -> Float[Array, "... m"]:
        _, _, h = W
        root = jnp.where(self.low < self.high, (1 + h) ** -0.5, 0)
        return x * jnp.broadcast_to(root, x.shape)

    def aim(self, W: Any, walk: Walk, target: Array, step: Walk) -> tuple[Any, Vector]:
        s, t, _ = W
        below, above = self._counts()
        p = target - s * walk.y[0] - step.a * step.y[0]
        q = target - t * walk.y[1] + step.a * step.y[1]
        p = jnp.where(below, p, 0)
        q = jnp.where(above, q, 0)
        # ds = h de - (p / s - q / t), which goes to the other side of the equation
        return (p, q), q / t - p / s

    def follow(self, W: Any, walk: Walk, p: Any, de: Vector) -> Walk:
        s, t, _ = W
        return Walk(de, ((p[0] - walk.y[0] * de) / s, (p[1] + walk.y[1] * de) / t))

    def reach(self, walk: Walk, step: Walk) -> Array:
        below, above = self._counts()
        s, t = self._slacks(walk.a)
        of_e = jnp.minimum(_longest(s, step.a, below), _longest(t, -step.a, above))
        at_low = _longest(walk.y[0], step.y[0], below)
        return jnp.minimum(
            of_e, jnp.minimum(at_low, _longest(walk.y[1], step.y[1], above))
        )


# -------------------------------------------------------------------------------------------- norms


class AbstractNorm(AbstractTerm):
    """g = lam sum_r |x_r|, x = center + e, s = lam a with a_r in a unit set, and lam x = normal(y).

    de = (diag(h) + g g') da / lam - q / lam, so that D = lam^2 (diag(h) + g g')^-1: 0 where lam is 0.
    """

    lam: eqx.AbstractVar[Array]
    center: eqx.AbstractVar[Vector]
    size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def unit(self) -> AbstractBarrier:
        """Return the set of a_r."""

    def _apart(self, x: Float[Array, "... m"]) -> Float[Array, "... rows size"]:
        return x.reshape(*x.shape[:-1], -1, self.size)

    def _image(self, e: Vector) -> Float[Array, "rows size"]:
        """Return lam x, a row for each group."""
        return self.lam * self._apart(self.center + e)

    def inside(self, e: Vector, room: Array) -> Vector:
        return e

    def start(self, e: Vector, slope: Vector, margin: Array) -> Walk:
        a = jnp.zeros_like(self._apart(e))
        each = jnp.broadcast_to(margin, a.shape[:1])
        return Walk(a, self.unit().multipliers(a, self._image(e), each))

    def slope(self, walk: Walk) -> Vector:
        return (self.lam * walk.a).reshape(-1)

    def products(self, walk: Walk) -> tuple[Array, Array]:
        each, count = self.unit().complementarity(walk.a, walk.y)
        return jnp.sum(each), jnp.asarray(count * each.size)

    def scaling(self, e: Vector, walk: Walk) -> Any:
        """Return the scaling of the set, h and g, and what is left of lam x = normal(y)."""
        V = self.unit()
        W = V.scaling(walk.a, walk.y)
        h, g = V.curvature(W, walk.y)
        return W, h, g, self._image(e) - V.normal(walk.y)

    def _over(self, W: Any, x: Array) -> Array:
        """Return (diag(h) + g g')^-1 x; h is the same for a block where g is not 0."""
        _, h, g, _ = W
        y = x / h
        share = jnp.sum(g * y, axis=-1, keepdims=True)
        return y - g / h * (share / (1 + jnp.sum(g * g / h, axis=-1, keepdims=True)))

    def turn(self, W: Any, x: Float[Array, "... m"]) -> Float[Array, "... m"]:
        """T is sqrt(h / (h + lam^2)) across g, and with h + |g|^2 in place of h along g."""
        _, h, g, _ = W
        lead = (1,) * (x.ndim - 1)
        square = jnp.sum(g * g, axis=-1, keepdims=True)
        across = jnp.sqrt(h / (h + self.lam**2))
        along = jnp.sqrt((h + square) / (h + square + self.lam**2))
        unit = g / jnp.sqrt(jnp.where(square > 0, square, jnp.ones_like(square)))
        across, along, unit = (
            y.reshape(*lead, *y.shape) for y in (across, along, unit)
        )
        parts = self._apart(x)
        inner = jnp.sum(unit * parts, axis=-1, keepdims=True)
        return (across * parts + (along - across) * inner * unit).reshape(x.shape)

    def aim(self, W: Any, walk: Walk, target: Array, step: Walk) -> tuple[Any, Vector]:
        of_set, _, _, slip = W
        V = self.unit()
        each = jnp.broadcast_to(target, walk.a.shape[:1])
        p = V.aim(of_set, walk.y, each, step.a, step.y)
        q = V.constant(of_set, p) + slip
        return (p, q), self.lam * self._over(W, q).reshape(-1)

    def follow(self, W: Any, walk: Walk, p: Any, de: Vector) -> Walk:
        of_set, _, _, _ = W
        of_complementarity, q = p
        da = self._over(W, self.lam * self._apart(de) + q)
        return Walk(da, self.unit().follow(of_set, walk.y, of_complementarity, da))

    def reach(self, walk: Walk, step: Walk) -> Array:
        return jnp.min(self.unit().reach(walk.a, step.a, walk.y, step.y))


class EachEntry(AbstractNorm):
    """g(x) = lam sum_j |x_j|."""

    lam: Array
    center: Vector
    size: int = eqx.field(default=1, static=True)

    def unit(self) -> AbstractBarrier:
        return Box(jnp.asarray(-1.0, self.lam.dtype), jnp.asarray(1.0, self.lam.dtype))


class EachGroup(AbstractNorm):
    """g(x) = lam sum_r |x_r|_2 over groups of `size` entries."""

    lam: Array
    center: Vector
    size: int = eqx.field(static=True)

    def unit(self) -> AbstractBarrier:
        return Ball()
