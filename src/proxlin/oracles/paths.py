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

# Up to this many outputs each merge also counts where its entries come from: K^2 vector operations,
# compiled in 1.5 s at K = 10. Above it the lists are kept instead, and searched on the way back.
COUNTED = 12


class MonotonePaths(AbstractOracle):
    """The oracle of the paths of right and down moves from the top left to the bottom right cell of a
    grid.

        max_y sum_{r, c} a[r, c] y[r, c],   y the indicator of a path,   |Y| = binom(rows + cols - 2, rows - 1)

    a is the row-major (rows*cols,) vector of cell rewards. Ties go to the predecessor above, before
    the one to the left. cost(y) = 1 - y: the number of cells off the true path.

    Parameters
    ----------
    rows : an integer
        The rows of the grid.
    cols : an integer
        The columns of the grid.

    See Also
    --------
    Chains : the oracle of labels in a row.
    AbstractOracle : the methods of every oracle.
    StructuredHinge : the loss of an oracle.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> grid = np.array([[1.0, 5.0, 0.0], [2.0, 0.0, 1.0]])
    >>> scores, members = px.MonotonePaths(2, 3).top(grid.ravel(), 4)
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
        """Return 2 (rows + cols - 3): two paths always share both corners, and need share no more.

        Returns
        -------
        an integer
            The largest number of cells in which two paths differ.
        """
        if min(self.rows, self.cols) == 1:
            return 0
        return 2 * (self.ones() - 2)

    def cost(self, y: Shaped[Array | np.ndarray, " m"]) -> Float[Array, " m"]:
        return 1 - check_vector(self, y)

    def best(
        self, a: Float[Array, "b m"], count: int
    ) -> tuple[Float[Array, "b k"], Float[Array, "b k m"]]:
        cells = self._diagonals(a, -jnp.inf)
        solve = self._by_counts if count <= COUNTED else self._by_search
        scores, crossings = solve(cells, count)
        return scores.T, self._members(crossings, a.dtype)

    def expectations(
        self, a: Float[Array, "b m"]
    ) -> tuple[Float[Array, " b"], Float[Array, "b m"]]:
        floor = forbidden(self, a.dtype)

        def step(totals, rewards):
            # The derivatives exp(x - value) of logaddexp add up to more than 1 where log 2 is below
            # a rounding of the value; those of logsumexp do not.
            both = jnp.concatenate([shift_down(totals[None], floor), totals[None]])
            return jax.nn.logsumexp(both, axis=0) + rewards, None

        def log_partition(a):
            cells = self._diagonals(a, floor)
            ended, _ = lax.scan(step, cells[0], cells[1:])
            totals = ended[-1]
            return totals.sum(), totals

        marginals, totals = jax.grad(log_partition, has_aux=True)(a)
        return totals, marginals

    def _diagonals(self, a: Float[Array, "b m"], fill: float) -> Float[Array, "D r b"]:
        """Return the anti-diagonals; anti-diagonal d holds the cells r + c = d by their row.

        Row r moves r places to the right: padding each row to one more than there are diagonals
        does it.
        """
        rows = self.rows
        diagonals = self.ones()
        grid = a.T.reshape(rows, self.cols, -1)
        padded = jnp.pad(grid, ((0, 0), (0, rows), (0, 0)), constant_values=fill)
        flat = padded.reshape(rows * (diagonals + 1), -1)
        skewed = flat[: rows * diagonals].reshape(rows, diagonals, -1)
        return skewed.transpose(1, 0, 2)

    def _by_counts(
        self, cells: Float[Array, "D r b"], count: int
    ) -> tuple[Float[Array, "k b"], Int[Array, "D k b"]]:
        """Return the scores of the K best, and the row at which each of them crosses each
        anti-diagonal.

        The merges count how many entries come from above; the way back reads the counts.
        """
        rows, batch = cells.shape[1:]

        def step(lists, rewards):
            merged, ups = merge_by_pairs(shift_down(lists, -jnp.inf), lists)
            return merged + rewards[None], ups

        lists, ups = lax.scan(step, self._first_lists(cells, count), cells[1:])
        column = jnp.arange(batch, dtype=jnp.int32)[None]
        last, ranks = self._last_place(count, batch)

        def back(state, ups):
            row, rank = state
            here = (rank * rows + row) * batch + column
            entry = lambda at: jnp.take(ups, at, mode="clip").astype(jnp.int32)
            through = entry(here)
            before = jnp.where(rank > 0, entry(here - rows * batch), 0)
            came_from_above = through > before
            row = jnp.where(came_from_above, row - 1, row)
            rank = jnp.where(came_from_above, before, rank - before)
            return (row, rank), row

        _, crossings = lax.scan(back, (last, ranks), ups, reverse=True)
        return lists[:, -1], jnp.concatenate([crossings, last[None]])

    def _by_search(
        self, cells: Float[Array, "D r b"], count: int
    ) -> tuple[Float[Array, "k b"], Int[Array, "D k b"]]:
        """Return what `_by_counts` returns, from merges that keep nothing but the scores.

        On the way back, the output of rank k in a cell is found in the two lists merged there:

            above = #{i < k: up_i >= left_{k - 1 - i}}        of the k entries before it
            it is up_above if up_above >= left_{k - above}, else left_{k - above}

        The condition holds for the first i and fails from some i on: a binary search. There are
        K (rows + cols) searches, and K rows cols entries that would each need a pointer.
        """
        diagonals, rows, batch = cells.shape
        # One buffer that the loop writes in place; a scan would copy each diagonal twice.
        kept = jnp.full((diagonals, count, rows, batch), -jnp.inf, cells.dtype)
        kept = kept.at[0].set(self._first_lists(cells, count))

        def step(d, kept):
            lists = kept[d - 1]
            merged = merge_scores(shift_down(lists, -jnp.inf), lists)
            return kept.at[d].set(merged + cells[d][None])

        kept = lax.fori_loop(1, diagonals, step, kept)
        last, ranks = self._last_place(count, batch)
        # Rows and ranks are offsets in a raveled list from here on, so that a lookup multiplies nothing.
        stride = rows * batch
        rounds = (count - 1).bit_length()

        def back(state, d):
            here, rank = state
            lists = kept[d]

            def not_less(i, j):
                up = jnp.take(lists, i + (here - batch), mode="clip")
                left = jnp.take(lists, j + here, mode="clip")
                # There is nothing above row 0.
                return jnp.where(here >= batch, up, -jnp.inf) >= left

            def search(i, above):
                further = above + (stride << (rounds - 1 - i))
                holds = not_less(further - stride, rank - further)
                return jnp.where((further <= rank) & holds, further, above)

            # XLA fuses unrolled rounds, and then each repeats all before it.
            above = lax.fori_loop(0, rounds, search, jnp.zeros_like(rank))
            beside = rank - above
            came_from_above = not_less(above, beside)
            here = jnp.where(came_from_above, here - batch, here)
            rank = jnp.where(came_from_above, above, beside)
            return (here, rank), here // batch

        column = jnp.arange(batch, dtype=jnp.int32)[None]
        start = (last * batch + column, ranks * stride)
        earlier = jnp.arange(diagonals - 1, dtype=jnp.int32)
        _, crossings = lax.scan(back, start, earlier, reverse=True)
        return kept[-1, :, -1], jnp.concatenate([crossings, last[None]])

    def _first_lists(
        self, cells: Float[Array, "D r b"], count: int
    ) -> Float[Array, "k r b"]:
        """Return the lists of the first anti-diagonal: one path to each of its cells."""
        none = jnp.full((count - 1, *cells.shape[1:]), -jnp.inf, cells.dtype)
        return jnp.concatenate([cells[:1], none])

    def _last_place(
        self, count: int, batch: int
    ) -> tuple[Int[Array, "k b"], Int[Array, "k b"]]:
        """Return the row and the ranks in the bottom right cell, from which all outputs go back."""
        row = jnp.full((count, batch), self.rows - 1, jnp.int32)
        ranks = jnp.arange(count, dtype=jnp.int32)[:, None]
        return row, jnp.broadcast_to(ranks, (count, batch))

    def _members(self, crossings: Int[Array, "D k b"], dtype) -> Float[Array, "b k m"]:
        row, col = np.divmod(
            np.arange(self.size(), dtype=np.int32), np.int32(self.cols)
        )
        on_the_path = crossings[row + col] == row[:, None, None]
        return on_the_path.astype(dtype).transpose(2, 1, 0)


def shift_down(lists: Float[Array, "k r b"], fill: float) -> Float[Array, "k r b"]:
    """Return the lists of the cells above: row r takes those of row r - 1 of the previous
    anti-diagonal.
    """
    return jnp.concatenate([jnp.full_like(lists[:, :1], fill), lists[:, :-1]], axis=1)


def merge_by_pairs(
    up: Float[Array, "k r b"], left: Float[Array, "k r b"]
) -> tuple[Array, Array]:
    """Return the K best of two descending lists, ties to `up`, and how many of the first k + 1 came
    from `up`.

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


def merge_scores(
    up: Float[Array, "k r b"], left: Float[Array, "k r b"]
) -> Float[Array, "k r b"]:
    """Return the K best of two descending lists by a bitonic merge: K log K elementwise operations.

        z_i = max(up_i, left_{K - 1 - i}),   i = 0, ..., K - 1

    are the K best, first falling and then rising. Comparing the entries that are half a block apart
    gives two such sequences, the larger entries in the first. K is filled up to a power of two by
    +inf at the front, where every comparison leaves it.
    """
    count = len(up)
    size = 1 << (count - 1).bit_length()
    filler = jnp.full((size - count, *up.shape[1:]), jnp.inf, up.dtype)
    z = jnp.concatenate([filler, larger(up, left[::-1])])
    block = size
    while block > 1:
        # Two halvings in a pass over the memory.
        parts = min(block, 4)
        split = z.reshape(size // block, parts, block // parts, *z.shape[1:])
        pieces = sort_bitonic([split[:, i] for i in range(parts)])
        z = jnp.stack(pieces, axis=1).reshape(z.shape)
        block //= parts
    return z[size - count :]


def sort_bitonic(z: list[Array]) -> list[Array]:
    """Return arrays that fall and then rise, a power of two of them, in descending order."""
    half = len(z) // 2
    if half == 0:
        return z
    pairs = list(zip(z[:half], z[half:], strict=True))
    front = [larger(x, y) for x, y in pairs]
    back = [smaller(x, y) for x, y in pairs]
    return sort_bitonic(front) + sort_bitonic(back)


def larger(x: Array, y: Array) -> Array:
    return jnp.where(x > y, x, y)


def smaller(x: Array, y: Array) -> Array:
    return jnp.where(x < y, x, y)
