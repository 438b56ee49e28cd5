"""weight/2 |w - center|^2 + offset: a ridge, a proximal term, or several of them merged."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .. import trees
from ..types import Number, Params, dtype_of, parameters


class Quadratic(eqx.Module):
    """weight/2 |w - center|^2 + offset; center None is the origin."""

    weight: Number
    center: Params | None
    offset: Number

    def value(self, w: Params) -> Array:
        dtype = dtype_of(w)
        away = self._away(w)
        return self.weight.astype(dtype) / 2 * trees.vdot(
            away, away
        ) + self.offset.astype(dtype)

    def gradient(self, w: Params) -> Params:
        return trees.scale(self.weight.astype(dtype_of(w)), self._away(w))

    def add(self, kappa: Number, center: Params) -> "Quadratic":
        """Return the sum with kappa/2 |w - center|^2, exactly: the constant that is left over goes
        to the offset.
        """
        dtype = dtype_of(center)
        kappa = jnp.asarray(kappa).astype(dtype)
        weight = jnp.asarray(self.weight).astype(dtype)
        total = weight + kappa
        safe = jnp.where(total > 0, total, jnp.ones_like(total))
        share = jnp.where(total > 0, kappa / safe, jnp.ones_like(total))
        away = self._away(center)
        left_over = share * weight / 2 * trees.vdot(away, away)
        middle = trees.scale(share, center)
        if self.center is not None:
            middle = trees.add(trees.scale(1 - share, self.center), middle)
        return Quadratic(total, middle, self.offset.astype(dtype) + left_over)

    def _away(self, w: Params) -> Params:
        at = parameters(w)
        if self.center is None:
            return at
        return jax.tree.map(lambda x, c: x - c.astype(x.dtype), at, self.center)
