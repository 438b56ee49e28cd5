"""The first-order expansion of a problem at w: x -> u_i + J_i (x - w), as a dense matrix or as two
functions.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from .. import trees
from ..types import Params

if TYPE_CHECKING:
    from .base import AbstractProblem


class Expansion(eqx.Module):
    """The blocks u_i, their Jacobians J_i and their coefficients c_i at w; columns in the order of
    `ravel_pytree`.
    """

    w: Params
    c: Float[Array, " m"]
    u: Float[Array, "m k"]
    jacobian: Float[Array, "m k d"]

    def at(self, w: Params) -> "Expansion":
        """Return the same affine map, expanded at another w: its blocks there are u + J (w -
        anchor).
        """
        away, _ = ravel_pytree(trees.sub(w, self.w))
        return Expansion(w, self.c, self.u + self.jacobian @ away, self.jacobian)

    def moved(self, new: "Expansion", old: "Expansion") -> "Expansion":
        """Return this estimate plus the change from `old` to `new`, at the w of `new`."""
        u = self.u + new.u - old.u
        jacobian = self.jacobian + new.jacobian - old.jacobian
        return Expansion(new.w, self.c, u, jacobian)


class LinearMap(eqx.Module):
    """The expansion of a problem without a matrix: push(d) = (J_i d)_i and pull(v) = sum_i J_i'
    v_i.
    """

    problem: "AbstractProblem"
    w: Params
    c: Float[Array, " m"]
    u: Float[Array, "m k"]

    def push(self, direction: Params) -> Float[Array, "m k"]:
        return self.problem.push(self.w, direction)

    def pull(self, v: Float[Array, "m k"]) -> Params:
        return self.problem.pull(self.w, v)


class Touched(eqx.Module):
    """The blocks u_i and their coefficients, and of J_i the t columns that block i touches.

    The touched entries of a leaf are in the order of its rows: `rows` has, for each leaf of w, the
    indices (m, q) of these rows, or None where all of them are touched.
    """

    w: Params
    c: Float[Array, " m"]
    u: Float[Array, "m k"]
    jacobian: Float[Array, "m k t"]
    rows: list[Int[Array, "m _"] | None]


def ravel_rows(tree: Any) -> Float[Array, "k d"]:
    """Return a tree of arrays with a leading axis k as one matrix."""
    rows = [x.reshape(x.shape[0], -1) for x in jax.tree.leaves(tree)]
    return jax.numpy.concatenate(rows, axis=1)
