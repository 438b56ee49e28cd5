"""A convex model within bounds, by a search over the faces of the box.

    min_{low <= e <= high}  h(e),        h strongly convex, with a solver for the faces

On a face some entries are free and the others are held at a bound. The search is that of Lawson and
Hanson: go from a feasible e toward the minimiser of its face, hold what meets a bound on the way,
and at the minimiser release the entry whose slope points most into the box. h never increases, so
no face comes back.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Vector = Float[Array, " d"]
Mask = Bool[Array, " d"]


class OnFace(eqx.Module):
    """The minimiser of h over the free entries, a slope of h there in all of them, and whatever else
    the solver of the face wants to hand on.
    """

    e: Vector
    slope: Vector
    more: Any


class _Search(eqx.Module):
    """A feasible e, the free entries, those that were released in vain, the last minimiser of a
    face, and the number of faces; `over` says that e minimises h over the box.
    """

    e: Vector
    free: Mask
    refused: Mask
    found: OnFace
    faces: Array
    over: Array


def minimize_in_box(
    solve: Callable[[Mask, Vector], OnFace],
    low: Vector,
    high: Vector,
    slope: Vector,
) -> OnFace:
    """Return the minimiser of h over the box, which has 0 in it; `slope` is a slope of h at 0.

    `solve(free, e)` minimises h over the free entries, with the others as in e. Where f has kinks, a
    slope need not tell whether an entry can be released; one that comes back to its bound at once is
    not released again before e has moved. Should the faces run out, e is still in the box, and h is
    not above h(0).
    """
    d = low.size
    most = 4 * d + 8  # each entry is held and released once or twice, in practice
    solve = jax.jit(solve)
    zero = jnp.zeros_like(low)
    outward = ((low >= 0) & (slope > 0)) | ((high <= 0) & (slope < 0))
    free = ~outward & (low < high)

    def going(s: _Search) -> Array:
        return ~s.over & (s.faces < most)

    def turn(s: _Search) -> _Search:
        found = solve(s.free, s.e)
        way = jnp.where(s.free, found.e - s.e, 0)
        room = jnp.where(way < 0, low - s.e, high - s.e)
        share = jnp.where(way != 0, room / jnp.where(way != 0, way, 1), jnp.inf)
        part = jnp.minimum(jnp.min(share), 1)
        meets = (share <= part) & (share < 1)
        bound = jnp.where(way < 0, low, high)
        e = jnp.where(meets, bound, s.e + part * way)
        e = jnp.clip(e, low, high)

        arrived = ~jnp.any(meets)
        moved = (part > 0) & jnp.any(way != 0)
        refused = jnp.where(moved, False, s.refused | meets)
        inward = ((e <= low) & (found.slope < 0)) | ((e >= high) & (found.slope > 0))
        may = ~s.free & inward & (low < high) & ~refused & arrived
        steepest = jnp.argmax(jnp.where(may, jnp.abs(found.slope), -1))
        released = may & (jnp.arange(d, dtype=steepest.dtype) == steepest)
        free = (s.free & ~meets) | released
        over = arrived & ~jnp.any(may)
        return _Search(e, free, refused, found, s.faces + 1, over)

    shapes = jax.eval_shape(solve, free, zero)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    start = _Search(
        zero, free, jnp.zeros_like(free), nothing, jnp.int32(0), jnp.zeros((), bool)
    )
    end = jax.lax.while_loop(going, turn, start)
    return OnFace(end.e, end.found.slope, end.found.more)
