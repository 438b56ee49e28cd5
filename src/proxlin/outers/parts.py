"""Different losses for different entries of u: f(u) = sum_p f_p(u_p), u_p the slices of u in order."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..checks import described, whole
from ..types import Scalar
from . import sets
from .base import AbstractProximable, AbstractSupport, Vector
from .norms import AbstractBox, Huber, SquaredL2
from .sets import AbstractSet

Separable = AbstractBox | Huber | SquaredL2


class Parts(AbstractProximable):
    """The sum f(u) = f_1(u_1, ..., u_a) + f_2(u_{a+1}, ..., u_b) + ..., another loss for each slice of u.

    Every part is a sum over its entries: `L1`, `Hinge`, `Quantile`, `Huber` or `SquaredL2`. The weight of a
    term belongs into phi: phi = a r has the loss |a| |r|, and a^2 r^2 / 2.

    Parameters
    ----------
    *parts : pairs (f, size)
        A loss, and how many entries of u it takes, in order.

    Raises
    ------
    TypeError
        A part is no pair, or its loss is not a sum over entries.
    ValueError
        There is no part, or a size is below 1.

    See Also
    --------
    Trajectory : stage losses of a goal, an effort and an obstacle.
    L1, Hinge, Huber, SquaredL2 : losses for it.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> f = px.Parts((px.SquaredL2(), 2), (px.L1(), 1), (px.Hinge(), 1))
    >>> u = np.array([3.0, 4.0, -2.0, -1.0])
    >>> float(f.value(u)), f.subgradient(u).tolist()
    (14.5, [3.0, 4.0, -1.0, 0.0])
    """

    losses: tuple[Separable, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, *parts: Any):
        if not parts:
            raise ValueError("Parts needs at least one pair, such as (px.L1(), 2).")
        losses = []
        sizes = []
        for part in parts:
            if not isinstance(part, tuple | list) or len(part) != 2:
                raise TypeError(
                    f"Each part of Parts is a pair of a loss and its number of entries, such as (px.L1(), 2); "
                    f"it got {described(part)}."
                )
            loss, size = part
            if not isinstance(loss, Separable):
                raise TypeError(
                    f"A part of Parts must be a sum over entries (L1, Hinge, Quantile, Huber or SquaredL2); "
                    f"it is {described(loss)}."
                )
            losses.append(loss)
            sizes.append(whole(size, "The size of a part of Parts"))
        self.losses = tuple(losses)
        self.sizes = tuple(sizes)

    def _slices(self, u: Vector) -> list[Array]:
        ends = np.cumsum(self.sizes)[:-1].tolist()
        return jnp.split(jnp.asarray(u), ends)

    def _pairs(self, u: Vector) -> Any:
        return zip(self.losses, self._slices(u), strict=True)

    def _each(self, function: Callable, u: Vector) -> Float[Array, " k"]:
        """Return function(loss, slice) of every part in one vector."""
        return jnp.concatenate([function(f, part) for f, part in self._pairs(u)])

    def value(self, u: Vector) -> Float[Array, ""]:
        return jnp.sum(jnp.stack([f.value(part) for f, part in self._pairs(u)]))

    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        return self._each(lambda f, part: f.subgradient(part), u)

    def prox(self, u: Vector, step: Scalar) -> Float[Array, " k"]:
        return self._each(lambda f, part: f.prox(part, step), u)

    def conjugate(self, v: Vector) -> Float[Array, ""]:
        return jnp.sum(jnp.stack([f.conjugate(part) for f, part in self._pairs(v)]))

    def lipschitz(self, k: int) -> Scalar:
        pairs = zip(self.losses, self.sizes, strict=True)
        squares = [jnp.asarray(f.lipschitz(size)) ** 2 for f, size in pairs]
        return jnp.sqrt(jnp.sum(jnp.stack(squares)))

    def sharpness(self, k: int) -> Scalar:
        pairs = zip(self.losses, self.sizes, strict=True)
        return jnp.min(jnp.stack([jnp.asarray(f.sharpness(n)) for f, n in pairs]))

    def smoothness(self, k: int) -> Scalar:
        pairs = zip(self.losses, self.sizes, strict=True)
        return max(f.smoothness(size) for f, size in pairs)

    def check(self, k: int) -> None:
        if k != sum(self.sizes):
            raise ValueError(
                f"The parts of Parts take {sum(self.sizes)} entries; the inner map returns {k}."
            )

    def dual_form(self) -> tuple[AbstractSupport, Any]:
        """Return the support function of a product of intervals, and rho as a vector with a number
        for each entry.

        Returns
        -------
        a pair
            The support function s and the vector rho.
        """
        lows = []
        highs = []
        rhos = []
        for f, size in zip(self.losses, self.sizes, strict=True):
            low, high, rho = _interval(f)
            lows.append(jnp.full(size, low))
            highs.append(jnp.full(size, high))
            rhos += [rho] * size
        return Product(jnp.concatenate(lows), jnp.concatenate(highs)), np.array(rhos)


class Product(AbstractSupport):
    """f(u) = sum_j max(low_j u_j, high_j u_j); V a product of intervals, the set behind `Parts`."""

    low: Array
    high: Array

    def argmax(self, u: Vector) -> Float[Array, " k"]:
        end = jnp.where(u > 0, self.high.astype(u.dtype), self.low.astype(u.dtype))
        return jnp.where(u == 0, jnp.zeros_like(end), end)

    def project(self, v: Vector) -> Float[Array, " k"]:
        return jnp.clip(v, self.low.astype(v.dtype), self.high.astype(v.dtype))

    def radius(self, k: int) -> Scalar:
        return jnp.sqrt(jnp.sum(jnp.maximum(-self.low, self.high) ** 2))

    def sharpness(self, k: int) -> Scalar:
        return jnp.min(jnp.minimum(-self.low, self.high))

    def dual_set(self) -> AbstractSet:
        return sets.Intervals(self.low, self.high)


def _interval(f: Separable) -> tuple[Any, Any, float]:
    """Return the ends of the interval of one entry, and its rho."""
    if isinstance(f, SquaredL2):
        return -math.inf, math.inf, 1.0
    if isinstance(f, Huber):
        return -f.delta, f.delta, 1.0
    low, high = f.bounds()
    return low, high, 0.0
