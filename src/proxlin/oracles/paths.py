"""Monotone paths in a grid: the planning oracle."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from ..checks import whole
from .base import AbstractOracle, check_vector, forbidden

# Up to this many outputs the merge of two sorted lists is unrolled at compile time (K^2 vector operations, compiled in
# 1.5 s at K = 10 and in tens of seconds at K = 32); above it, it is a loop.
UNROLLED = 16


class MonotonePaths(AbstractOracle):
    """Paths of right and down moves from the top left to the bottom right cell of a grid.

        max_y sum_{r, c} a[r, c] y[r, c],   y the indicator of a path,   |Y| = binom(rows + cols - 2, rows - 1)

    a is the row-major (rows*cols,) vector of cell rewards. Ties go to the predecessor above, before the one to the
    left. cost(y) = 1 - y: the number of cells off the true path.

    >>> import jax.numpy as jnp
    >>> grid = jnp.array([[1.0, 5.0, 0.0], [2.0, 0.0, 1.0]])
    >>> scores, members = MonotonePaths(2, 3).top(grid.ravel(), 4)
    >>> print(scores)
    [  7.   7.   4. -inf]
    >>> print(members[0].reshape(2, 3))
    [[1. 1. 1.]
     [0. 0. 1.]]
    """

    rows: int = eqx.field(static=True)
    cols: int = eqx.field(static=True)

    def __init__(self, rows: Any, cols: Any):
        self.rows = whole(rows, "The number of rows of a grid")
        self.cols = whole(cols, "The number of columns of a grid")

    def size(self) -> int:
        return self.rows * self.cols

    def count(self) -> int:
        return math.comb(self.rows + self.cols - 2, self.rows - 1)

    def ones(self) -> int:
        return self.rows + self.cols - 1

    def diameter(self) -> int:
        """2 (rows + cols - 3): two paths always share both corners, and need share no more."""
        if min(self.rows, self.cols) == 1:
            return 0
        return 2 * (self.ones() - 2)

    def cost(self, y: Shaped[Array | np.ndarray, " m"]) -> Float[Array, " m"]:
        return 1 - check_vector(self, y)

    def best(self, a: Float[Array, "b m"], count: int) -> tuple[Float[Array, "b k"], Float[Array, "b k m"]]:
        first, diagonals = self._diagonals(a, -jnp.inf)
        none = jnp.full((count - 1, *first.shape), -jnp.inf, a.dtype)
        start = jnp.concatenate([first[None], none])
        merge = merge_by_pairs if count <= UNROLLED else merge_by_loop

        def step(lists, rewards):
            merged, ups = merge(shift_down(lists, -jnp.inf), lists)
            return merged + rewards[None], ups

        lists, ups = lax.scan(step, start, diagonals)
        crossings = self._backtrack(ups)
        return lists[:, -1].T, self._members(crossings, a.dtype)

    def expectations(self, a: Float[Array, "b m"]) -> tuple[Float[Array, " b"], Float[Array, "b m"]]:
        floor = forbidden(self, a.dtype)

        def step(totals, rewards):
            # The derivatives exp(x - value) of logaddexp add up to more than 1 where log 2 is below a rounding of the
            # value; those of logsumexp do not.
            both = jnp.concatenate([shift_down(totals[None], floor), totals[None]])
            return jax.nn.logsumexp(both, axis=0) + rewards, None

        def log_partition(a):
            ended, _ = lax.scan(step, *self._diagonals(a, floor))
            totals = ended[-1]
            return totals.sum(), totals

        marginals, totals = jax.grad(log_partition, has_aux=True)(a)
        return totals, marginals

    def _diagonals(self, a: Float[Array, "b m"], fill: float) -> tuple[Float[Array, "r b"], Float[Array, "d r b"]]:
        """Return the first anti-diagonal, then the others; anti-diagonal d holds the cells r + c = d by their row.

        Row r moves r places to the right: padding each row to one more than there are diagonals does it.
        """
        rows = self.rows
        diagonals = self.ones()
        grid = a.T.reshape(rows, self.cols, -1)
        padded = jnp.pad(grid, ((0, 0), (0, rows), (0, 0)), constant_values=fill)
        flat = padded.reshape(rows * (diagonals + 1), -1)
        skewed = flat[: rows * diagonals].reshape(rows, diagonals, -1)
        cells = skewed.transpose(1, 0, 2)
        return cells[0], cells[1:]

    def _backtrack(self, ups: Int[Array, "d k r b"]) -> Int[Array, "D k b"]:
        """Return the row at which each of the outputs crosses each anti-diagonal."""
        _, count, rows, batch = ups.shape
        column = jnp.arange(batch, dtype=jnp.int32)[None]
        first_ranks = jnp.arange(count, dtype=jnp.int32)[:, None]
        rank = jnp.broadcast_to(first_ranks, (count, batch))
        last = jnp.full((count, batch), rows - 1, jnp.int32)

        def step(state, ups):
            row, rank = state
            here = (rank * rows + row) * batch + column
            entry = lambda at: ups.ravel().at[at].get(mode="clip").astype(jnp.int32)
            through = entry(here)
            before = jnp.where(rank > 0, entry(here - rows * batch), 0)
            came_from_above = through > before
            row = jnp.where(came_from_above, row - 1, row)
            rank = jnp.where(came_from_above, before, rank - before)
            return (row, rank), row

        _, crossings = lax.scan(step, (last, rank), ups, reverse=True)
        return jnp.concatenate([crossings, last[None]])

    def _members(self, crossings: Int[Array, "D k b"], dtype) -> Float[Array, "b k m"]:
        row, col = np.divmod(np.arange(self.size(), dtype=np.int32), np.int32(self.cols))
        on_the_path = crossings[row + col] == row[:, None, None]
        return on_the_path.astype(dtype).transpose(2, 1, 0)


def shift_down(lists: Float[Array, "k r b"], fill: float) -> Float[Array, "k r b"]:
    """Return the lists of the cells above: row r takes those of row r - 1 of the previous anti-diagonal."""
    return jnp.concatenate([jnp.full_like(lists[:, :1], fill), lists[:, :-1]], axis=1)


def merge_by_pairs(up: Float[Array, "k r b"], left: Float[Array, "k r b"]) -> tuple[Array, Array]:
    """Return the K best of two descending lists, ties to `up`, and how many of the first k + 1 came from `up`.

        merged_k = max(up_k, left_k, max_{i + j = k - 1} min(up_i, left_j))
        ups_k = #{i <= k: up_i >= left_{k - i}}

    Both are elementwise; the rank of an entry in its own list follows from ups, so that no pointer is moved.
    `where` in place of `maximum`: no nan gets here, and it is one instruction in place of five.
    """
    merged = []
    ups = []
    for k in range(len(up)):
        value = larger(up[k], left[k])
        for i in range(k):
            value = larger(value, smaller(up[i], left[k - 1 - i]))
        from_up = sum((up[i] >= left[k - i]).astype(jnp.int8) for i in range(k + 1))
        merged.append(value)
        ups.append(from_up)
    return jnp.stack(merged), jnp.stack(ups)


def merge_by_loop(up: Float[Array, "k r b"], left: Float[Array, "k r b"]) -> tuple[Array, Array]:
    """Return what `merge_by_pairs` returns, by a loop over i that treats all k at once, with left_j = inf for j < 0."""
    count = len(up)
    padded = jnp.concatenate([jnp.full_like(left, jnp.inf), left])

    def compare(i, state):
        merged, ups = state
        before = lax.dynamic_slice_in_dim(padded, count - 1 - i, count)  # left_{k - 1 - i}
        beside = lax.dynamic_slice_in_dim(padded, count - i, count)  # left_{k - i}
        merged = larger(merged, smaller(up[i][None], before))
        wins = up[i][None] >= beside
        return merged, ups + wins.astype(jnp.int32)

    return lax.fori_loop(0, count, compare, (left, jnp.zeros(left.shape, jnp.int32)))


def larger(x: Array, y: Array) -> Array:
    return jnp.where(x > y, x, y)


def smaller(x: Array, y: Array) -> Array:
    return jnp.where(x < y, x, y)
