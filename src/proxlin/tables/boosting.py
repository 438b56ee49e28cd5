"""Trees by boosting, under any convex loss: a step adds the tree that decreases the loss most.

    v_i = f'(u_i),  u_i = F(x_i) - y_i             the slope of the loss at each row
    tree = argmax of the sum over leaves of |sum v_i|^2 / (rows + prior)
    leaf = argmin_z  sum_{i in leaf} f(z + u_i) + prior f(z)
    F <- F + rate tree

A feature is the number of the bin it falls into. Rows of weight 0 are never seen, and a step sees a random share of the
others. Leaves are exact minimisers of the loss, so an outlier weighs no more than any other row; `prior` is a number of
rows whose residual is 0.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..compiled import compiled
from ..cost import Prices
from ..networks import Trees
from ..outers import L2
from ..problem import AbstractProblem, MeanOfLosses
from ..run.loop import Limits, advance
from ..solvers import Info
from ..solvers.base import AbstractSolver
from ..types import Key, Params

BINS = 64  # of a feature, at most
HALVINGS = 14  # of the interval of a leaf: to a part in 16,000
ROUNDS = 8  # of Weiszfeld's method, where targets share a norm
TINY = 1e-6  # deviations; a norm below it is 0 up to rounding


def cuts_of(x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "p cuts"]:
    """Return the ends of the bins of each feature, of about equal numbers of rows; infinity beyond the
    last.
    """
    cuts = np.full((x.shape[1], BINS - 1), np.inf)
    for own, column in zip(cuts, x.T, strict=True):
        values = np.unique(column)
        middle = (values[1:] + values[:-1]) / 2
        if len(middle) >= BINS:
            middle = np.unique(np.quantile(column, np.arange(1, BINS) / BINS))
        own[: len(middle)] = middle
    return cuts


def bins_of(
    x: Float[np.ndarray, "n p"], cuts: Float[np.ndarray, "p cuts"]
) -> Int[np.ndarray, "n p"]:
    """Return the number of cuts below each value."""
    pairs = zip(x.T, cuts, strict=True)
    return np.stack(
        [np.searchsorted(own, column) for column, own in pairs], axis=1
    ).astype(np.int32)


class Grown(eqx.Module):
    """The trees so far, the count of them, and what they predict for every row."""

    w: Params
    t: Array
    fitted: Array


class Boosting(AbstractSolver):
    """The solver whose step adds a tree; the data of its problem are (bins, targets).

    `rows` and `features` are the shares of them that a tree sees, `least` the rows that a leaf has at least.
    """

    rate: Array = eqx.field(converter=jnp.asarray)
    prior: Array = eqx.field(converter=jnp.asarray)
    least: Array = eqx.field(converter=jnp.asarray)
    features: Array = eqx.field(converter=jnp.asarray)
    trees: Trees
    rows: int = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> Grown:
        _, y = problem.data
        return Grown(w, jnp.int32(0), jnp.zeros_like(y))

    def epoch(self, problem: AbstractProblem) -> int:
        return self.trees.count

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Any:
        """Return a key for each tree."""
        return jax.random.split(key, count)

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        return Prices(step=problem.prices(w).subgradient)

    def step(
        self, problem: AbstractProblem, state: Grown, drawn: Key
    ) -> tuple[Grown, Info]:
        bins, y = problem.data
        s = problem.coefficients().astype(y.dtype)
        s = s / jnp.max(s)
        of_rows, of_features = jax.random.split(drawn)
        if len(y) > 4 * self.rows:
            # Hardly a row is drawn twice, and nothing has to be sorted.
            batch = jax.random.randint(of_rows, (self.rows,), 0, len(y), jnp.int32)
        else:
            # The largest of random numbers are a sample; rows of weight 0 come last.
            luck = jax.random.uniform(of_rows, s.shape, y.dtype)
            _, batch = jax.lax.top_k(jnp.where(s > 0, luck, -luck), self.rows)
        used = jax.random.uniform(of_features, bins.shape[1:], y.dtype) < self.features
        u = (state.fitted - y)[batch]
        v = jax.vmap(problem.outer.subgradient)(u)
        feature, cut = self.grow(bins[batch].T, v, s[batch], used)
        node = self.route(bins.T, feature, cut)
        leaf = self.rate * self.leaves(problem.outer, u, s[batch], node[batch])
        tree = {"feature": feature, "cut": cut, "leaf": leaf}
        w = jax.tree.map(
            lambda all, one: all.at[state.t].set(one.astype(all.dtype)), state.w, tree
        )
        return Grown(w, state.t + 1, state.fitted + leaf[node]), Info()

    def grow(self, bins: Array, v: Array, s: Array, used: Array) -> tuple[Array, Array]:
        """Return feature and cut of every node, the root first; a cut beyond all bins sends every row
        to the left.
        """
        slopes = jnp.concatenate([v * s[:, None], s[:, None]], axis=1)
        node = jnp.zeros(bins.shape[1], jnp.int32)
        features = []
        cuts = []
        for level in range(self.trees.depth):
            gain, place = jax.lax.map(
                lambda own, node=node, width=2**level: self.best_cut(
                    own, slopes, node, width
                ),
                bins,
            )
            gain = jnp.where(used[:, None], gain, 0)
            best = jnp.argmax(gain, axis=0).astype(jnp.int32)
            pick = lambda of, best=best: jnp.take_along_axis(of, best[None], axis=0)[0]
            cut = jnp.where(pick(gain) > 0, pick(place), BINS)
            right = jnp.take_along_axis(bins, best[node][None], axis=0)[0] > cut[node]
            node = 2 * node + right.astype(jnp.int32)
            features.append(best)
            cuts.append(cut)
        return jnp.concatenate(features), jnp.concatenate(cuts)

    def best_cut(
        self, bins: Array, slopes: Array, node: Array, width: int
    ) -> tuple[Array, Array]:
        """Return the gain of the best cut of one feature in each node, and that cut."""
        sums = jax.ops.segment_sum(slopes, node * BINS + bins, width * BINS)
        # A product with a triangle is a cumulative sum, and three times as quick as XLA's own on a processor.
        triangle = jnp.tril(jnp.ones((BINS, BINS), slopes.dtype))
        left = jnp.einsum("bc,nck->nbk", triangle, sums.reshape(width, BINS, -1))
        total = left[:, -1:]
        right = total - left
        score = lambda part: (
            (part[..., :-1] ** 2).sum(-1) / (part[..., -1] + self.prior)
        )
        gain = score(left) + score(right) - score(total)
        enough = jnp.minimum(left[..., -1], right[..., -1]) >= self.least
        gain = jnp.where(enough, gain, 0)
        best = jnp.argmax(gain, axis=1).astype(jnp.int32)
        return jnp.take_along_axis(gain, best[:, None], axis=1)[:, 0], best

    def route(self, bins: Array, feature: Array, cut: Array) -> Array:
        """Return the number of the leaf that each row falls into."""
        node = jnp.zeros(bins.shape[1], jnp.int32)
        for _ in range(self.trees.depth):
            here = jnp.take_along_axis(bins, feature[node][None], axis=0)[0]
            node = 2 * node + 1 + (here > cut[node]).astype(jnp.int32)
        return node - (2**self.trees.depth - 1)

    def leaves(self, outer: Any, u: Array, s: Array, node: Array) -> Array:
        """Return argmin_z sum f(z + u_i) + prior f(z) of each leaf, one row of z for each."""
        count = 2**self.trees.depth
        s = s[:, None]
        slope = jax.vmap(outer.subgradient)
        total = lambda x: jax.ops.segment_sum(x, node, count)
        if isinstance(outer, L2) and u.shape[1] > 1:
            # Its targets share a norm: Weiszfeld's method, z = the mean of -u_i weighted by 1 / |z + u_i|.
            def nearer(_: Array, z: Array) -> Array:
                near = lambda x: (
                    1 / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), TINY)
                )
                weight = s * near(z[node] + u)
                own = self.prior * near(z)
                return -total(weight * u) / (total(weight) + own + TINY)

            return jax.lax.fori_loop(
                0, ROUNDS, nearer, jnp.zeros((count, u.shape[1]), u.dtype)
            )

        # f is a sum over targets: the sign of its slope tells on which side of z the minimiser is.
        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            z = (low + high) / 2
            rises = total(s * slope(z[node] + u)) + self.prior * slope(z) > 0
            return jnp.where(rises, low, z), jnp.where(rises, z, high)

        inside = jnp.where(s > 0, -u, 0)
        low = jnp.minimum(jax.ops.segment_min(inside, node, count), 0)
        high = jnp.maximum(jax.ops.segment_max(inside, node, count), 0)
        low, high = jax.lax.fori_loop(0, HALVINGS, halve, (low, high))
        return (low + high) / 2


@compiled
def seeds(problem: MeanOfLosses, solver: Boosting, weights: Array) -> Grown:
    """Return the states of as many fits as there are vectors of weights, without a tree."""
    start = solver.init(problem, solver.trees.init(jax.random.key(0), jnp.float32))
    return jax.vmap(lambda _: start)(weights)


@compiled
def grown(
    problem: MeanOfLosses,
    solver: Boosting,
    states: Grown,
    weights: Array,
    key: Key,
    count: Array,
) -> Grown:
    """Return fits with `count` trees in all, fit j to the rows weighted by weights[j]."""

    def one(own: tuple[Grown, Array, Key]) -> Grown:
        state, s, key = own
        fit = MeanOfLosses(problem.inner, problem.outer, problem.data, weights=s)
        return advance(fit, solver, state, key, state.t, Limits(count))[0]

    # One after the other: the sums of a fit stay in the processor's cache.
    return jax.lax.map(one, (states, weights, jax.random.split(key, len(weights))))


def in_units(w: Params, cuts: Float[np.ndarray, "p cuts"], count: int) -> Params:
    """Return the first `count` trees with cuts in the units of the features."""
    feature = np.asarray(w["feature"])[:, :count]
    cut = np.asarray(w["cut"])[:, :count].astype(int)
    ends = np.minimum(cuts, np.finfo(np.float32).max)
    ends = np.concatenate(
        [ends, np.full((len(ends), 2), np.finfo(np.float32).max)], axis=1
    )
    of = ends[feature.astype(int), cut].astype(np.float32)
    return {"feature": feature, "cut": of, "leaf": np.asarray(w["leaf"])[:, :count]}
