"""The exact step of a problem whose samples touch few rows of w (`px.touches`): a block-arrow factorisation.

    C = I + A' M^-1 A = [ D  E ]     D block diagonal, a block for each row of one leaf of w, the pivot
                        [ E' R ]

Each sample touches one row of the pivot. With D = L L' and Y = L^-1 E, the Schur complement S = R -
Y'Y is factored as a dense matrix. Y'Y is the sum over all pairs of samples that touch the same row of
the pivot: samples are sorted by that row, rows with many samples first, and sample s is paired with
s + o for o = 1, 2, ... as long as any row has so many. Where most rows of the pivot meet most of the
rest, Y is a dense matrix instead, and Y'Y one product.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, Int

from ..compiled import shapes_of
from ..inners import Touches
from ..outers.sets import AbstractSet
from ..problem import AbstractProblem, MeanOfLosses
from ..types import Params, is_parameter
from .certificate import rounding
from .structured import AbstractStructured
from .systems import AbstractNewton, lifted, root_of_response, root_times

ORDER = 6000  # the largest Schur complement; a factorisation of it takes seconds
WIDEST = 64  # entries of a row of the pivot: one block for each row is factored
# Operations of a dense factorisation below which it is taken: it takes a few milliseconds, and
# steps with curvature need it.
DENSE = 2**27
CHUNK = 2048  # samples that are paired at once
# An addition to a place in memory takes as long as so many operations of a product.
SCATTER = 100
WIDE_BYTES = 2**28  # a dense Y above this is not formed
PANEL = 512  # the order of the diagonal blocks of S that are inverted


class Layout(eqx.Module):
    """Where the touched columns of a sample are, from shapes alone: static, and the same for all samples.

    Leaf l of w has its entries at offsets[l] of the flat vector, and rows of widths[l] entries; a sample touches
    counts[l] of them, -1 for the whole leaf. `pivot` is the leaf whose rows are eliminated.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True)
    pivot: int = eqx.field(static=True)

    @property
    def d(self) -> int:
        return sum(self.sizes)

    @property
    def rows(self) -> int:
        """The number of rows of the pivot."""
        return self.sizes[self.pivot] // self.width

    @property
    def width(self) -> int:
        """The entries of a row of the pivot."""
        return self.widths[self.pivot]

    @property
    def start(self) -> int:
        """Where the pivot begins in the flat vector."""
        return sum(self.sizes[: self.pivot])

    @property
    def order(self) -> int:
        """The order of the Schur complement."""
        return self.d - self.sizes[self.pivot]

    @property
    def by_rows(self) -> list[int]:
        """The leaves of which each sample touches one row: a step in one of them separates by its rows."""
        pairs = zip(self.counts, self.widths, strict=True)
        found = enumerate(pairs)
        return [leaf for leaf, (n, width) in found if n == 1 and 0 < width <= WIDEST]

    @property
    def others(self) -> list[int]:
        """The leaves that are not the pivot."""
        return [leaf for leaf in range(len(self.sizes)) if leaf != self.pivot]

    @property
    def parts(self) -> list[tuple[int, slice]]:
        """The other rows that a sample touches: the leaf of each, and where its columns are among theirs.

        A leaf that is touched as a whole counts as one row.
        """
        found = []
        seen = 0
        for leaf in self.others:
            for _ in range(abs(self.counts[leaf])):  # -1 is one row
                after = seen + self.widths[leaf]
                found.append((leaf, slice(seen, after)))
                seen = after
        return found

    def shape(self, leaf: int) -> tuple[int, int]:
        """Return how many rows a leaf has, and of how many entries."""
        width = self.widths[leaf]
        return self.sizes[leaf] // max(1, width), width

    def leaves(self, rest: Array) -> dict[int, Array]:
        """Return the rows of each leaf in the rest."""
        found = {}
        before = 0
        for leaf in self.others:
            after = before + self.sizes[leaf]
            found[leaf] = rest[before:after].reshape(self.shape(leaf))
            before = after
        return found

    def touched(self, leaf: int) -> int:
        """Return how many entries of a leaf a sample touches."""
        count = self.counts[leaf]
        return self.sizes[leaf] if count < 0 else count * self.widths[leaf]

    def operations_of_pairs(self, m: int) -> float:
        """Return what Y'Y takes pair by pair, if all rows of the pivot have as many of m samples."""
        t = sum(self.touched(leaf) for leaf in self.others)
        pairs = m * (1 + m / self.rows) / 2
        return SCATTER * pairs * t**2

    def operations_of_product(self) -> float:
        """Return what Y'Y takes as one product of a dense Y."""
        return 2.0 * self.sizes[self.pivot] * self.order**2

    def is_wide(self, m: int, itemsize: int) -> bool:
        """Return whether the product of a dense Y is quicker than m samples pair by pair, and fits."""
        size = self.sizes[self.pivot] * self.order * itemsize
        quicker = self.operations_of_product() <= self.operations_of_pairs(m)
        return quicker and size <= WIDE_BYTES

    def split(self, e: Array) -> tuple[Array, Array]:
        """Return the rows of the pivot and the rest of a flat vector."""
        end = self.start + self.sizes[self.pivot]
        rows = e[self.start : end].reshape(self.rows, self.width)
        return rows, jnp.concatenate([e[: self.start], e[end:]])

    def join(self, rows: Array, rest: Array) -> Array:
        """Return the flat vector with these rows of the pivot and this rest."""
        before = rest[: self.start]
        return jnp.concatenate([before, rows.reshape(-1), rest[self.start :]])


def layout(problem: AbstractProblem, w: Params) -> Layout | None:
    """Return the layout of the largest leaf that can be the pivot, or None where no leaf can."""
    phi = problem.inner
    if not isinstance(problem, MeanOfLosses) or not isinstance(phi, Touches):
        return None
    leaves = jax.tree.leaves(w)
    if not all(is_parameter(x) for x in leaves):
        return None
    row = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[0 if problem.single else 1 :], x.dtype),
        problem.data,
    )
    found = shapes_of(lambda w, row: phi.rows(w, row), w, row)
    counts = tuple(-1 if at is None else int(np.prod(at.shape)) for at in found)
    sizes = tuple(x.size for x in leaves)
    pairs = zip(leaves, counts, strict=True)
    widths = tuple(x.size if n < 0 else x.size // max(1, len(x)) for x, n in pairs)
    able = Layout(sizes, widths, counts, 0).by_rows
    if not able:
        return None
    return Layout(sizes, widths, counts, max(able, key=lambda leaf: sizes[leaf]))


class Sparse(AbstractStructured):
    """The expansion with the touched columns of the Jacobian, those of the pivot first.

    `row` is the row of the pivot that a sample touches, or the number of rows where the sample has no
    weight; `places` are the other rows that it touches, each within its leaf, as `Layout.parts` has them.
    """

    by_newton: ClassVar[bool] = True

    w: Params
    c: Float[Array, " m"]
    u: Float[Array, "m k"]
    own: Float[Array, "m k r"]
    others: Float[Array, "m k t"]
    row: Int[Array, " m"]
    places: Int[Array, "m parts"]
    layout: Layout

    @classmethod
    def fits(cls, problem: AbstractProblem, w: Params) -> bool:
        shape = layout(problem, w)
        if shape is None or shape.order > ORDER:
            return False
        rows = len(problem) * problem.outputs(w)
        return rows * shape.d * min(rows, shape.d) > DENSE

    @classmethod
    def operations(cls, problem: AbstractProblem, w: Params) -> float:
        """Count the Cholesky factor, and Y'Y if all rows of the pivot have as many samples."""
        shape = layout(problem, w)
        assert shape is not None
        apart = shape.operations_of_pairs(len(problem))
        return shape.order**3 / 3 + min(apart, shape.operations_of_product())

    @classmethod
    def of(cls, problem: AbstractProblem, w: Params) -> "Sparse":
        shape = layout(problem, w)
        assert shape is not None and isinstance(problem, MeanOfLosses)
        at = problem.expand_touched(w)
        m = at.u.shape[0]
        own = at.jacobian[..., :0]
        others = []
        places = []
        seen = 0
        row = jnp.zeros((m,), jnp.int32)
        for leaf, rows in enumerate(at.rows):
            part = at.jacobian[..., seen : seen + shape.touched(leaf)]
            seen += shape.touched(leaf)
            if leaf == shape.pivot:
                assert rows is not None
                own = part
                row = _wrapped(rows[:, 0], shape.rows)
                continue
            others.append(part)
            if rows is None:
                rows = jnp.zeros((m, 1), jnp.int32)
            places.append(_wrapped(rows, shape.shape(leaf)[0]))
        none = jnp.zeros((m, 0), jnp.int32)
        return cls(
            w,
            at.c,
            at.u,
            own,
            jnp.concatenate([at.jacobian[..., :0], *others], axis=-1),
            # Rows of no weight would all be pairs: added rows are copies of one.
            jnp.where(at.c != 0, row, shape.rows),
            jnp.concatenate([none, *places], axis=1),
            shape,
        )

    def push(self, d: Array) -> Array:
        rows, rest = self.layout.split(d)
        own = jnp.einsum("mkr,mr->mk", self.own, _rows_at(rows, self.row))
        return own + jnp.einsum("mkt,mt->mk", self.others, _columns_at(self, rest))

    def pull(self, v: Array) -> Array:
        own = jnp.einsum("mkr,mk->mr", self.own, v)
        others = jnp.einsum("mkt,mk->mt", self.others, v)
        rows = _sum_rows(own, self.row, self.layout.rows)
        return self.layout.join(rows, _sum_columns(self, others))

    def alone(self, leaf: int) -> "Sparse":
        """Return the map of one leaf, of which each sample touches one row; the rest of w stays as it is."""
        shape = self.layout
        alone = Layout((shape.sizes[leaf],), (shape.widths[leaf],), (1,), 0)
        w = jax.tree.leaves(self.w)[leaf]
        nothing = (self.others[..., :0], self.places[:, :0])
        if leaf == shape.pivot:
            return Sparse(w, self.c, self.u, self.own, nothing[0], self.row, nothing[1], alone)  # fmt: skip
        number = [other for other, _ in shape.parts].index(leaf)
        own = self.others[..., shape.parts[number][1]]
        row = jnp.where(self.c != 0, self.places[:, number], alone.rows)
        return Sparse(w, self.c, self.u, own, nothing[0], row, nothing[1], alone)

    def push_error(self, d: Array) -> Array:
        terms = self.own.shape[-1] + self.others.shape[-1]
        return rounding(terms, d.dtype) * self._sizes().push(jnp.abs(d))

    def pull_error(self, v: Array) -> Array:
        return rounding(v.size, v.dtype) * self._sizes().pull(jnp.abs(v))

    def _sizes(self) -> "Sparse":
        """Return this map with |J| in the place of J."""
        sizes = (jnp.abs(self.own), jnp.abs(self.others))
        return eqx.tree_at(lambda at: (at.own, at.others), self, sizes)

    def stretched(self, size: Array) -> "Sparse":
        """Return the map of J diag(size)."""
        rows, rest = self.layout.split(size)
        own = self.own * _rows_at(rows, self.row)[:, None]
        others = self.others * _columns_at(self, rest)[:, None]
        return eqx.tree_at(lambda at: (at.own, at.others), self, (own, others))

    def system(self, scale: Float[Array, " m"], V: AbstractSet) -> "BlockArrow":
        weight = scale[:, None, None]
        parts = (self.own * weight, self.others * weight)
        scaled = eqx.tree_at(lambda at: (at.own, at.others), self, parts)
        return BlockArrow(scaled, pairing(self.row, self.layout.rows), V.flat)


def _wrapped(index: Array, rows: int) -> Array:
    """Return indices in 0, ..., rows - 1, where negative ones count from the end."""
    return jnp.where(index < 0, index + rows, index).astype(jnp.int32)


def _rows_at(x: Array, row: Array) -> Array:
    """Return x[row], 0 for a sample of no weight."""
    return x.at[row].get(mode="fill", fill_value=0)


def _sum_rows(x: Array, row: Array, count: int) -> Array:
    """Return the sums of x over the samples of each row; samples of no weight are dropped."""
    return jnp.zeros((count, *x.shape[1:]), x.dtype).at[row].add(x, mode="drop")


def _columns_at(at: Sparse, rest: Array) -> Array:
    """Return the entries of the rest that each sample touches, (m, t)."""
    leaves = at.layout.leaves(rest)
    parts = [jnp.zeros((at.places.shape[0], 0), rest.dtype)]
    for number, (leaf, _) in enumerate(at.layout.parts):
        parts.append(leaves[leaf][at.places[:, number]])
    return jnp.concatenate(parts, axis=1)


def _sum_columns(at: Sparse, x: Array) -> Array:
    """Return the sums of x (m, t) over the samples that touch each column of the rest."""
    shape = at.layout
    sums = {leaf: jnp.zeros(shape.shape(leaf), x.dtype) for leaf in shape.others}
    for number, (leaf, part) in enumerate(shape.parts):
        sums[leaf] = sums[leaf].at[at.places[:, number]].add(x[:, part], mode="drop")
    nothing = jnp.zeros(0, x.dtype)
    return jnp.concatenate(
        [nothing, *(sums[leaf].reshape(-1) for leaf in shape.others)]
    )


class Blocks(eqx.Module):
    """A matrix over the rest, or a part of it, by blocks: a row of one leaf by a row of another.

    The entries of a block are neighbours in memory: a block is then added at the price of few
    single entries.
    """

    at: dict[tuple[int, int], Float[Array, "p o r q"]]
    layout: Layout = eqx.field(static=True)

    @staticmethod
    def zeros(layout: Layout, above: list[int], dtype: Any) -> "Blocks":
        """Return a matrix of zeros with the rows of the leaves `above` and the columns of the rest."""
        at = {}
        for a in above:
            for b in layout.others:
                p, r = layout.shape(a)
                o, q = layout.shape(b)
                at[a, b] = jnp.zeros((p, o, r, q), dtype)
        return Blocks(at, layout)

    def plus(self, rows: Array, columns: Array, blocks: Array) -> "Blocks":
        """Add the blocks (m, t, t) of samples whose other rows are at these places."""
        at = dict(self.at)
        for i, (a, above) in enumerate(self.layout.parts):
            for j, (b, beside) in enumerate(self.layout.parts):
                place = rows[:, i], columns[:, j]
                at[a, b] = at[a, b].at[place].add(blocks[:, above, beside], mode="drop")
        return Blocks(at, self.layout)

    def plus_rows(self, row: Array, columns: Array, blocks: Array) -> "Blocks":
        """Add the blocks (m, r, t) of samples that touch these rows of the pivot."""
        at = dict(self.at)
        pivot = self.layout.pivot
        for j, (b, beside) in enumerate(self.layout.parts):
            place = row, columns[:, j]
            at[pivot, b] = at[pivot, b].at[place].add(blocks[:, :, beside], mode="drop")
        return Blocks(at, self.layout)

    def matrix(self, above: list[int]) -> Array:
        """Return the matrix with the rows of the leaves `above`."""
        return jnp.concatenate([self._rows(a) for a in above], axis=0)

    def _rows(self, a: int) -> Array:
        height = self.layout.sizes[a]
        found = []
        for b in self.layout.others:
            x = jnp.transpose(self.at[a, b], (0, 2, 1, 3))
            found.append(x.reshape(height, -1))
        return jnp.concatenate(found, axis=1)


class Pairing(eqx.Module):
    """Samples in the order of their rows, rows with many samples first: sample order[s] has its row
    at row[s], which has degree[s] samples; 0 for those of no weight, which come last.
    """

    order: Array
    row: Array
    degree: Array


def pairing(row: Int[Array, " m"], rows: int) -> Pairing:
    """Return the samples sorted by their row."""
    ones = jnp.ones(row.shape, jnp.int32)
    count = _sum_rows(ones, row, rows)
    degree = _rows_at(count, row)
    order = jnp.lexsort((row, -degree)).astype(jnp.int32)
    return Pairing(order, row[order], degree[order])


class Arrow(eqx.Module):
    """The factor: L^-1 of each block of D, and that of the Schur complement.

    Y of a sample is own' others: its entries of the pivot, turned by L^-1, and the others.
    """

    inverse: Float[Array, "rows r r"]
    own: Float[Array, "m k r"]
    others: Float[Array, "m k t"]
    schur: "Panels"


class BlockArrow(AbstractNewton):
    """The system of A through C = I + A' M^-1 A, with the rows of the pivot eliminated."""

    A: Sparse
    pairs: Pairing
    flat: bool = eqx.field(static=True)

    def __init__(self, A: Sparse, pairs: Pairing, flat: bool):
        self.A = A
        self.pairs = pairs
        self.flat = flat

    @property
    def width(self) -> int:
        return self.A.layout.d

    def blocks(self) -> int:
        return self.A.u.shape[0]

    def push(self, e: Array) -> Array:
        return self.A.push(e)

    def pull(self, v: Array) -> Array:
        return self.A.pull(v)

    def stretched(self, size: Array) -> "BlockArrow":
        return BlockArrow(self.A.stretched(size), self.pairs, self.flat)

    def factor(self, h: Array, g: Array) -> Any:
        own = root_times(self.flat, h, g, jnp.moveaxis(self.A.own, -1, 0))
        others = root_times(self.flat, h, g, jnp.moveaxis(self.A.others, -1, 0))
        return self._factored(own, others), h, g

    def curved(self, a: Array, b: Array | None) -> Arrow:
        own = root_of_response(a, b, jnp.moveaxis(self.A.own, -1, 0))
        others = root_of_response(a, b, jnp.moveaxis(self.A.others, -1, 0))
        return self._factored(own, others)

    def _factored(self, own: Array, others: Array) -> Arrow:
        """Return the factor of I + X'X, X in its columns, (r, m, k) and (t, m, k)."""
        own = jnp.moveaxis(own, 0, -1)
        others = jnp.moveaxis(others, 0, -1)
        eye = jnp.eye(own.shape[-1], dtype=own.dtype)
        squares = _sum_rows(_products(own, own), self.A.row, self.A.layout.rows)
        inverse = _inverse_of_blocks(eye[None] + squares)
        at_sample = _rows_at(inverse, self.A.row)
        own = jnp.sum(at_sample[:, None] * own[:, :, None, :], axis=-1)
        return Arrow(inverse, own, others, Panels(self._schur(own, others)))

    def _schur(self, own: Array, others: Array) -> Array:
        """Return S = I + sum_i X_i'X_i - sum over pairs of Y_i'Y_j."""
        shape = self.A.layout
        if shape.order == 0:
            return jnp.zeros((0, 0), own.dtype)
        wide = shape.is_wide(self.blocks(), own.dtype.itemsize)
        squares = _products(others, others)
        if not wide:
            Y = _products(own, others)
            squares = squares - _products(Y, Y)
        places = self.A.places
        S = Blocks.zeros(shape, shape.others, own.dtype).plus(places, places, squares)
        eye = jnp.eye(shape.order, dtype=own.dtype)
        if wide:
            full = self._wide(own, others)
            return eye + S.matrix(shape.others) - full.T @ full
        apart = self._pairs(own, others).matrix(shape.others)
        return eye + S.matrix(shape.others) - (apart + apart.T)

    def _wide(self, own: Array, others: Array) -> Array:
        """Return Y as a dense matrix, (rows r, order)."""
        shape = self.A.layout
        full = Blocks.zeros(shape, [shape.pivot], own.dtype)
        Y = _products(own, others)
        return full.plus_rows(self.A.row, self.A.places, Y).matrix([shape.pivot])

    def _pairs(self, own: Array, others: Array) -> Blocks:
        """Return the sum of Y_i'Y_j over the pairs i before j of samples of one row."""
        shape = self.A.layout
        pairs = self.pairs
        m = own.shape[0]
        chunk = min(CHUNK, m)
        # Room behind the last sample, so that a slice that begins at a sample is never moved.
        after = m + chunk
        own = _extended(own[pairs.order], after, 0)
        others = _extended(others[pairs.order], after, 0)
        places = _extended(self.A.places[pairs.order], after, 0)
        row = _extended(pairs.row, after, -1)
        steps = jnp.arange(chunk, dtype=jnp.int32)

        def part_of(x: Array, start: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(x, start, chunk)

        def at_offset(offset: Array, total: Blocks) -> Blocks:
            # Rows with more samples than the offset come first.
            active = jnp.sum(pairs.degree > offset, dtype=jnp.int32)

            def part(number: Array, total: Blocks) -> Blocks:
                i = number * chunk
                j = i + offset
                same = (i + steps < active) & (part_of(row, i) == part_of(row, j))
                own_i = jnp.where(same[:, None, None], part_of(own, i), 0)
                own_j = part_of(own, j)
                between = jnp.sum(own_i[:, :, None] * own_j[:, None], axis=-1)
                right = _turned(between, part_of(others, j))
                blocks = _products(part_of(others, i), right)
                return total.plus(part_of(places, i), part_of(places, j), blocks)

            return jax.lax.fori_loop(0, -(-active // chunk), part, total)

        nothing = Blocks.zeros(shape, shape.others, own.dtype)
        return jax.lax.fori_loop(1, jnp.max(pairs.degree), at_offset, nothing)

    def through(self, L: Arrow, x: Array) -> Array:
        shape = self.A.layout
        rows, rest = shape.split(x)
        y = jnp.einsum("pab,pb->pa", L.inverse, rows)
        seen = jnp.einsum("mkr,mr->mk", L.own, _rows_at(y, self.A.row))
        shared = jnp.einsum("mkt,mk->mt", L.others, seen)
        rest = L.schur.solve(rest - _sum_columns(self.A, shared))
        back = jnp.einsum("mkt,mt->mk", L.others, _columns_at(self.A, rest))
        turned = jnp.einsum("mkr,mk->mr", L.own, back)
        y = y - _sum_rows(turned, self.A.row, shape.rows)
        return shape.join(jnp.einsum("pba,pb->pa", L.inverse, y), rest)


def _products(x: Float[Array, "m k a"], y: Float[Array, "m k b"]) -> Array:
    """Return X'Y of each sample, (m, a, b)."""
    return jnp.sum(x[:, :, :, None] * y[:, :, None, :], axis=1)


def _turned(x: Float[Array, "m k l"], y: Float[Array, "m l t"]) -> Array:
    """Return X Y of each sample, (m, k, t)."""
    return jnp.sum(x[:, :, :, None] * y[:, None], axis=2)


def _extended(x: Array, more: int, value: int) -> Array:
    """Return x with so many more rows of this value."""
    pads = [(0, more)] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, pads, constant_values=value)


def _inverse_of_blocks(D: Float[Array, "p r r"]) -> Array:
    """Return L^-1 with L L' = D, for each block."""
    eye = jnp.broadcast_to(jnp.eye(D.shape[-1], dtype=D.dtype), D.shape)
    lift = 4 * jnp.finfo(D.dtype).eps  # as `systems.lifted`
    L = jnp.linalg.cholesky(D * (1 + lift * eye), symmetrize_input=False)
    return jsl.solve_triangular(L, eye, lower=True)


class Panels(eqx.Module):
    """The Cholesky factor L of S, with its diagonal blocks inverted: a solve is products alone.

    The whole inverse takes several times as long as L, and a triangular solve with one right-hand
    side is slower than products.
    """

    L: Array
    inverses: list[Array]

    def __init__(self, S: Array):
        order = S.shape[0]
        self.L = S
        self.inverses = []
        if order == 0:
            return
        self.L = jnp.linalg.cholesky(lifted(S), symmetrize_input=False)
        for i in range(0, order, PANEL):
            block = self.L[i : i + PANEL, i : i + PANEL]
            eye = jnp.eye(block.shape[0], dtype=S.dtype)
            self.inverses.append(jsl.solve_triangular(block, eye, lower=True))

    def solve(self, x: Array) -> Array:
        """Return S^-1 x."""
        parts: list[Array] = []
        for number, inverse in enumerate(self.inverses):
            i = number * PANEL
            left = x[i : i + PANEL]
            if parts:
                left = left - self.L[i : i + PANEL, :i] @ jnp.concatenate(parts)
            parts.append(inverse @ left)
        after: list[Array] = []
        for number in reversed(range(len(parts))):
            i = number * PANEL
            left = parts[number]
            if after:
                below = self.L[i + PANEL :, i : i + PANEL]
                left = left - jnp.concatenate(after) @ below
            after.insert(0, left @ self.inverses[number])
        return jnp.concatenate(after) if after else x
