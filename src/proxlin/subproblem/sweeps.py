"""Sweeps: steps in one leaf of w after the other, where they separate by the rows of the leaf.

    min_x  sum_i c_i f(u_i + J_i (x - w)) + quadratic(x) + damping/2 |x - w|^2 + g(x)        x and w one leaf

Where each sample touches one row of a leaf, this is a small problem for each row. A row is taken only if its own
samples say that F falls. Such steps cost little more than an expansion: no system couples the rows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import trees
from ..outers import AbstractOuter
from ..outers.sets import AbstractSet
from ..penalties import AbstractPenalty, Penalties
from ..problem import AbstractProblem, Quadratic
from ..types import Params
from .exact import dual_set, target
from .penalized import minimize_penalized, snapped
from .sparse import Layout, Sparse, layout
from .structured import Weighted, minimize_roughly

MOST = 10  # steps of Newton's method in a leaf; few are needed, and another sweep may follow
SHARE = 0.1  # the share of its decrease that the gap of a leaf may have
# The gap over the size of F, where a leaf has a penalty: its interior point sees no decrease.
ROUGH = 1e-6


def rows_of(problem: AbstractProblem, w: Params) -> Layout | None:
    """Return the layout of a problem that has sweeps, from shapes alone; None where it has none."""
    shape = layout(problem, w)
    if shape is None:
        return None
    V, _ = dual_set(problem.outer)
    if not V.responds:
        return None
    penalty = problem.penalty
    if penalty is None:
        return shape
    has_interior = V.unbounded or V.barrier() is not None
    return shape if has_interior and penalty.by_entries() else None


def sweep(problem: AbstractProblem, w: Params, damping: Array) -> Params:
    """Return w after a step in each leaf that separates by rows; each took an expansion and a stack."""
    shape = rows_of(problem, w)
    assert shape is not None
    for leaf in shape.by_rows:
        w = _step(problem.gathered(), w, leaf, damping)
    return w


def _step(problem: AbstractProblem, w: Params, leaf: int, damping: Array) -> Params:
    at = Sparse.of(problem, w).alone(leaf)
    quadratic = problem.quadratic
    penalty = None
    if problem.penalty is not None:
        penalty, _ = problem.penalty.each(w)[leaf]
    x = _rough(at, _of_leaf(quadratic, w, leaf), problem.outer, damping, penalty)
    leaves, tree = jax.tree.flatten(w)
    old = leaves[leaf]
    ahead = tree.unflatten([*leaves[:leaf], x, *leaves[leaf + 1 :]])

    # What each row adds to F, before and after.
    count, width = at.layout.shape(0)
    change = _losses(problem.outer, at.c, problem.stack(ahead)) - _losses(problem.outer, at.c, at.u)  # fmt: skip
    by_row = jnp.zeros(count, change.dtype).at[at.row].add(change, mode="drop")
    if quadratic is not None:
        d = trees.sub(ahead, w)
        slope = jax.tree.leaves(quadratic.gradient(w))[leaf]
        of_w = slope * jax.tree.leaves(d)[leaf]
        bent = quadratic.weight.astype(change.dtype) / 2 * (x - old) ** 2
        by_row = by_row + jnp.sum((of_w + bent).reshape(count, width), axis=1)
    if penalty is not None:
        of_g = penalty.of_entries(x) - penalty.of_entries(old)
        by_row = by_row + jnp.sum(of_g.reshape(count, width), axis=1)
    better = (by_row < 0).reshape(count, *[1] * (old.ndim - 1))
    return tree.unflatten([*leaves[:leaf], jnp.where(better, x, old), *leaves[leaf + 1 :]])  # fmt: skip


def _of_leaf(quadratic: Quadratic | None, w: Params, leaf: int) -> Quadratic | None:
    if quadratic is None or quadratic.center is None:
        return quadratic
    center = jax.tree.leaves(quadratic.center)[leaf]
    return Quadratic(quadratic.weight, center, quadratic.offset)


def _rough(
    at: Sparse,
    quadratic: Quadratic | None,
    f: AbstractOuter,
    damping: Array,
    penalty: AbstractPenalty | None,
) -> Array:
    """Return the leaf after a step."""
    V, rho = dual_set(f)
    w = at.w
    if quadratic is None:
        nothing = jnp.zeros((), damping.dtype)
        quadratic = Quadratic(nothing, None, nothing)
    whole = quadratic.add(damping, w)
    dtype = at.u.dtype
    anchor = w.reshape(-1)
    center = jnp.broadcast_to(jnp.asarray(whole.center, dtype), w.shape).reshape(-1)
    root = jnp.sqrt(whole.weight.astype(dtype))
    B = Weighted(at, at.c / root)
    e0 = root * (anchor - center)
    b = at.c[:, None] * at.u - B.push(e0)
    rho = jnp.asarray(rho).astype(dtype) * at.c
    if penalty is not None:
        weight = whole.weight.astype(dtype)
        return _inside(B, b, rho, weight, center, V, penalty, w)
    e = minimize_roughly(B, b, rho, V, e0, SHARE, MOST)
    return (center + e / root).reshape(w.shape)


def _inside(
    B: Weighted,
    b: Array,
    rho: Array,
    weight: Array,
    center: Array,
    V: AbstractSet,
    penalty: AbstractPenalty,
    w: Array,
) -> Array:
    """Return the leaf after a step with its penalty; bounds and zeros are exact."""
    g = Penalties(penalty)
    unravel = lambda x: x.reshape(w.shape)
    at_w = B.at.c[:, None] * B.at.u
    size = jnp.sum(jnp.abs(V.value(at_w, rho)))
    tol = target(jnp.asarray(ROUGH), size)
    pair, _ = minimize_penalized(B, b, rho, weight, center, V, g, unravel, tol, MOST)
    y = center - B.pull(pair.v) / jnp.sqrt(weight)
    return unravel(snapped(g, unravel, weight, pair.x, y))


def _losses(f: AbstractOuter, c: Array, u: Float[Array, "m k"]) -> Float[Array, " m"]:
    """Return c_i f(u_i)."""
    V, rho = dual_set(f)
    return V.value(c[:, None] * u, jnp.asarray(rho).astype(u.dtype) * c)
