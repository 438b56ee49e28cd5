"""Labellings of a chain: the Viterbi oracle, with the K best."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Num, Shaped

from ..checks import whole
from .base import AbstractOracle, check_vector


class Chains(AbstractOracle):
    """The oracle of the labellings c_0, ..., c_{length-1} of a chain.

        max_c sum_t unary[t, c_t] + sum_t pairwise[t, c_t, c_{t+1}],   |Y| = labels^length

    a = [unary (length, labels), pairwise (length-1, labels, labels)] raveled, pairwise[t, c, c'] =
    c at t and c' at t + 1; y is 1 at the parts in use. Ties go to the lower label, from the last
    position back. cost(y) = 1 - y on unary parts and 0 on pairwise ones: the number of wrong
    labels.

    A shorter sequence is padded with label 0: `pad(a, length)` fixes the positions from `length` on
    to label 0 at score 0 (other labels are forbidden by -inf), and `encode(labels, length)` writes
    the truth the same way. Each labelling of the short sequence is then exactly one output, with
    its own score, and padded positions cost nothing.

    Parameters
    ----------
    length : an integer
        The number of positions.
    labels : an integer
        The number of labels.

    See Also
    --------
    MonotonePaths : the oracle of paths in a grid.
    AbstractOracle : the methods of every oracle.
    StructuredHinge : the loss of an oracle.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> chain = px.Chains(length=2, labels=2)
    >>> unary = jnp.array([[1.0, 0.0], [0.0, 3.0]])
    >>> pairwise = jnp.array([[[0.0, -2.0], [0.0, 0.0]]])
    >>> scores, members = chain.top(chain.join(unary, pairwise), 3)
    >>> print(scores, [chain.decode(y).tolist() for y in members])
    [3. 2. 1.] [[1, 1], [0, 1], [0, 0]]
    """

    length: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)

    def __init__(self, length: Any, labels: Any):
        self.length = whole(length, "The length of a chain")
        self.labels = whole(labels, "The number of labels of a chain")

    def size(self) -> int:
        return self.length * self.labels + (self.length - 1) * self.labels**2

    def count(self) -> int:
        return self.labels**self.length

    def ones(self) -> int:
        return 2 * self.length - 1

    def diameter(self) -> int:
        """Return 2 (2 length - 1): two labellings need share no part.

        Returns
        -------
        an integer
            The largest number of parts in which two labellings differ.
        """
        if self.labels == 1:
            return 0
        return 2 * self.ones()

    def cost(self, y: Shaped[Array | np.ndarray, " m"]) -> Float[Array, " m"]:
        unary, pairwise = self.split(check_vector(self, y))
        return self.join(1 - unary, jnp.zeros_like(pairwise))

    def join(
        self, unary: Num[Array, "t c"], pairwise: Num[Array, "s c c"]
    ) -> Num[Array, " m"]:
        """Return [unary, pairwise] raveled: the vector a, or y.

        Parameters
        ----------
        unary : an array (length, labels)
            What belongs to one position.
        pairwise : an array (length-1, labels, labels)
            What belongs to two neighbours.

        Returns
        -------
        a vector (m,)
            Both in one vector.
        """
        return _raveled(unary, pairwise)

    def split(
        self, a: Num[Array, " m"]
    ) -> tuple[Num[Array, "t c"], Num[Array, "s c c"]]:
        """Return unary (length, labels) and pairwise (length-1, labels, labels), the inverse of
        `join`.

        Parameters
        ----------
        a : a vector (m,)
            Scores, or an output.

        Returns
        -------
        a pair of arrays
            unary and pairwise.
        """
        at = self.length * self.labels
        unary = a[:at].reshape(self.length, self.labels)
        pairwise = a[at:].reshape(self.length - 1, self.labels, self.labels)
        return unary, pairwise

    def pad(
        self,
        a: Num[Array | np.ndarray, " m"],
        length: Int[Array | np.ndarray, ""] | int,
    ) -> Float[Array, " m"]:
        """Return a with the positions from `length` >= 1 on fixed to label 0, at score 0.

        Parameters
        ----------
        a : a vector (m,)
            The scores of the parts.
        length : an integer
            The length of the shorter sequence, at least 1.

        Returns
        -------
        a vector (m,)
            The scores, in which the positions from `length` on have one choice.
        """
        unary, pairwise = self.split(check_vector(self, a))
        inside = jnp.arange(self.length) < length
        only_label_0 = jnp.full_like(unary[:1], -jnp.inf).at[:, 0].set(0)
        unary = jnp.where(inside[:, None], unary, only_label_0)
        pairwise = jnp.where(inside[1:, None, None], pairwise, 0)
        return self.join(unary, pairwise)

    def encode(
        self,
        labels: Int[Array | np.ndarray, " t"],
        length: Int[Array | np.ndarray, ""] | int | None = None,
    ) -> Float[Array, " m"]:
        """Return the 0/1 vector y of a labelling (length,), with label 0 from `length` on.

        Parameters
        ----------
        labels : an integer vector (length,)
            The labelling.
        length : an integer, or None
            The length of a shorter sequence.

        Returns
        -------
        a vector (m,) of 0 and 1
            y.

        Raises
        ------
        ValueError
            There are not as many labels as positions.
        """
        labels = jnp.asarray(labels)
        if labels.shape != (self.length,):
            raise ValueError(
                f"{self} takes {self.length} labels, but the array has the shape {labels.shape}."
            )
        if length is not None:
            labels = jnp.where(jnp.arange(self.length) < length, labels, 0)
        one_output = labels[:, None, None].astype(jnp.int32)
        return self._members(one_output, float)[0, 0]

    def decode(self, y: Num[Array | np.ndarray, " m"]) -> Int[Array, " t"]:
        """Return the labels (length,) of a 0/1 vector y, the inverse of `encode`.

        Parameters
        ----------
        y : a vector (m,) of 0 and 1
            An output.

        Returns
        -------
        an integer vector (length,)
            The labels.
        """
        unary, _ = self.split(check_vector(self, y))
        return jnp.argmax(unary, axis=1)

    def best(
        self, a: Float[Array, "b m"], count: int
    ) -> tuple[Float[Array, "b k"], Float[Array, "b k m"]]:
        unary, pairwise = self._batch_last(a)
        none = jnp.full((count - 1, *unary.shape[1:]), -jnp.inf, a.dtype)
        start = jnp.concatenate([unary[:1], none])

        def step(lists, scores):
            unary, pairwise = scores
            merged, source = merge_lists(lists, pairwise)
            return merged + unary[None], source

        lists, sources = lax.scan(step, start, (unary[1:], pairwise))
        to_the_end = jnp.zeros((self.labels, 1, len(a)), a.dtype)
        scores, last = merge_lists(lists, to_the_end)
        labels = self._backtrack(sources, last[:, 0])
        return scores[:, 0].T, self._members(labels, a.dtype)

    def expectations(
        self, a: Float[Array, "b m"]
    ) -> tuple[Float[Array, " b"], Float[Array, "b m"]]:
        def step(totals, scores):
            unary, pairwise = scores
            totals = jax.nn.logsumexp(totals[:, None] + pairwise, axis=0)
            return totals + unary, None

        def log_partition(a):
            unary, pairwise = self._batch_last(a)
            ended, _ = lax.scan(step, unary[0], (unary[1:], pairwise))
            totals = jax.nn.logsumexp(ended, axis=0)
            return totals.sum(), totals

        marginals, totals = jax.grad(log_partition, has_aux=True)(a)
        return totals, marginals

    def _batch_last(
        self, a: Float[Array, "b m"]
    ) -> tuple[Float[Array, "t c b"], Float[Array, "s c c b"]]:
        return jax.vmap(self.split, out_axes=-1)(a)

    def _backtrack(
        self, sources: Int[Array, "s k c b"], last: Int[Array, "k b"]
    ) -> Int[Array, "t k b"]:
        """Return the label of each output at each position; a source is label * count + rank."""
        count, batch = last.shape
        column = jnp.arange(batch, dtype=jnp.int32)[None]

        def step(state, sources):
            label, rank = jnp.divmod(state, count)
            here = (rank * self.labels + label) * batch + column
            source = jnp.take(sources, here, mode="clip")
            return source, source // count

        _, labels = lax.scan(step, last, sources, reverse=True)
        return jnp.concatenate([labels, last[None] // count])

    def _members(self, labels: Int[Array, "t k b"], dtype) -> Float[Array, "b k m"]:
        """Return zeros with a one for each part in use, scattered because few parts are in use."""
        length, count, batch = labels.shape
        chosen = labels.transpose(2, 1, 0)
        moves = chosen[..., :-1] * self.labels + chosen[..., 1:]
        unary = self._parts(chosen, 0, self.labels)
        pairwise = self._parts(moves, length * self.labels, self.labels**2)
        parts = jnp.concatenate([unary, pairwise], axis=-1)
        instance = np.arange(batch, dtype=np.int32)[:, None, None]
        output = np.arange(count, dtype=np.int32)[None, :, None]
        nothing = jnp.zeros((batch, count, self.size()), dtype)
        return nothing.at[instance, output, parts].set(1, mode="drop")

    def _parts(
        self, choices: Int[Array, "b k t"], begin: int, each: int
    ) -> Int[Array, "b k t"]:
        """Return the indices in y of one choice out of `each` for each position, from `begin` on.

        A choice that does not exist has an index that does not exist, so that it is no part.
        """
        positions = np.arange(choices.shape[-1], dtype=np.int32)
        parts = choices + (begin + each * positions)[None, None].astype(np.int32)
        return jnp.where((choices >= 0) & (choices < each), parts, self.size())


def _raveled(unary: Array, pairwise: Array) -> Array:
    return jnp.concatenate([unary.ravel(), pairwise.ravel()])


def merge_lists(
    lists: Float[Array, "k c b"], links: Float[Array, "c d b"]
) -> tuple[Float[Array, "k d b"], Int[Array, "k d b"]]:
    """Return the K best of lists[j, c] + links[c, d] for each d, and where they came from, as c * K
    + j.

    lists[:, c] descends, so the best is always among the heads of the lists: K times take the
    largest head (ties to the lower c) and move that list on by one: O(K labels) vector operations
    for each d.
    """
    count, labels, batch = lists.shape
    ends = links.shape[1]
    padded = jnp.concatenate([lists, jnp.full_like(lists[:1], -jnp.inf)])
    label = jnp.arange(labels, dtype=jnp.int32)[:, None, None]
    end = jnp.arange(ends, dtype=jnp.int32)[:, None] * batch
    column = jnp.arange(batch, dtype=jnp.int32)[None]

    def take(state, _):
        heads, ranks = state
        largest = jnp.max(heads, axis=0)
        winner = jnp.min(jnp.where(heads == largest[None], label, labels - 1), axis=0)
        here = winner * (ends * batch) + end + column
        rank = jnp.take(ranks, here, mode="clip")
        after = ((rank + 1) * labels + winner) * batch + column
        follower = jnp.take(padded, after, mode="clip")
        next_head = follower + jnp.take(links, here, mode="clip")
        won = label == winner[None]
        heads = jnp.where(won, next_head[None], heads)
        ranks = ranks + won.astype(jnp.int32)
        return (heads, ranks), (largest, winner * count + rank)

    heads = lists[0][:, None] + links
    ranks = jnp.zeros((labels, ends, batch), jnp.int32)
    _, merged = lax.scan(take, (heads, ranks), length=count)
    return merged
