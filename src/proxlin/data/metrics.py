"""What a learned score is worth: mistakes, regret, and the floor that ties put under the mistakes.

    hamming(y, y') = <cost(y), y'>        regret(y') = max_y <r, y> - <r, y'>

Optimal monotone paths are far from unique: with a fixed reward for each terrain many paths are
equally good, the label is one of them, and no learner knows which. `OptimalPaths` knows them all.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, Shaped

from ..compiled import compiled
from ..inners import as_inner
from ..oracles import AbstractOracle, MonotonePaths
from ..outers.structured import SimplexSmoothing
from ..problem import AbstractProblem
from ..problem.rows import chunk_size, map_rows
from ..types import Params

# bytes of a chunk of `outputs`, which then stays in the cache: 3 to 5 times as fast on maps
CACHE = 4 * 2**20
# scores this close, relative to the largest reward of the map, are one score: sums round
# differently
TIE = 1e-9

Outputs = Num[Array | np.ndarray, "n m"]


@jax.jit
def argmax(oracle: AbstractOracle, a: Outputs) -> Float[Array, "n m"]:
    """Return oracle.argmax of every row, compiled once for each size."""
    return jax.vmap(oracle.argmax)(a)


def outputs(
    predict: Callable,
    oracle: AbstractOracle,
    w: Params,
    x: Any,
    read: Callable | None = None,
) -> Array:
    """Return read(argmax_y <predict(w, x_i), y>) for all samples x, in chunks that fit in memory; y
    if read is None.
    """
    return _outputs(as_inner(predict), oracle, w, x, read)


def marginals(
    predict: Callable, oracle: AbstractOracle, w: Params, x: Any, read: Callable
) -> Array:
    """Return read(oracle.marginals(predict(w, x_i))) for all samples x, in chunks that fit in memory."""
    return _marginals(as_inner(predict), oracle, w, x, read)


def hamming(
    oracle: AbstractOracle, truth: Outputs, predicted: Outputs
) -> Float[np.ndarray, " n"]:
    """Return <cost(y), y'>: cells off the true path, or wrong labels."""
    return np.asarray(_hamming(oracle, truth, predicted))


def label_error(
    truth: Int[np.ndarray, "n t"],
    predicted: Int[np.ndarray, "n t"],
    lengths: Int[np.ndarray, " n"],
) -> float:
    """Return the share of wrong labels among the first lengths_i of each sequence, all sequences
    together.

    >>> label_error(np.array([[1, 2, 0], [3, 0, 0]]), np.array([[1, 1, 5], [3, 0, 0]]), np.array([2, 1]))
    0.3333333333333333
    """
    inside = np.arange(truth.shape[1])[None] < lengths[:, None]
    return float(np.sum((truth != predicted) & inside) / np.sum(inside))


def exact_share(problem: AbstractProblem, w: Params) -> float:
    """Return the share of samples for which `top` was enough, so that f_nu is exact, in a smoothed
    problem.
    """
    f = problem.outer
    if not isinstance(f, SimplexSmoothing):
        raise TypeError(
            f"exact_share needs a problem with StructuredHinge, smoothed by problem.smooth(nu); its outer function is "
            f"{type(f).__name__}."
        )
    return float(_exact_share(problem, f, w))


def together(
    evaluate: Callable[[Params], dict[str, float]], names: Sequence[str]
) -> dict[str, Callable]:
    """Return metrics for `minimize` that share one evaluation: `evaluate(w)` runs once for each w."""
    last: list[Any] = [None, {}]

    def metric(name: str, w: Params) -> float:
        if last[0] is not w:
            last[:] = [w, evaluate(w)]
        return last[1][name]

    return {name: functools.partial(metric, name) for name in names}


@dataclass(frozen=True)
class OptimalPaths:
    """All optimal monotone paths of n maps, from the rewards (n, rows, cols) of their cells, by
    dynamic programming.

        best[r, c] = reward[r, c] + max(best[r-1, c], best[r, c-1])

    Following every tie back from the last cell gives each optimal path once. Two scores tie within 1e-9 of the largest
    |reward| of the map, so rewards that are equal on paper tie. Counts are floats: exact up to 2^53.

    >>> paths = OptimalPaths.of(np.array([[[1.0, 5.0, 0.0], [2.0, 0.0, 1.0]]]))
    >>> paths.score, paths.count()
    (array([7.]), array([2.]))
    >>> paths.marginals().reshape(2, 3)
    array([[1. , 1. , 0.5],
           [0. , 0.5, 1. ]])
    """

    rewards: Float[np.ndarray, "n rows cols"]
    score: Float[np.ndarray, " n"]
    # an optimal path to this cell comes from above
    above: Bool[np.ndarray, "n rows cols"]
    left: Bool[np.ndarray, "n rows cols"]

    @classmethod
    def of(cls, rewards: Num[Array | np.ndarray, "n rows cols"]) -> "OptimalPaths":
        """Find all optimal paths, from the first cell on."""
        rewards = np.asarray(rewards, np.float64)
        finite = np.isfinite(rewards).all((1, 2))
        if not finite.all():
            raise ValueError(
                f"Rewards must be finite; map {int(np.argmin(finite))} has others."
            )
        n, rows, cols = rewards.shape
        # one row above and one column to the left of the grid
        best = np.full((n, rows + 1, cols + 1), -np.inf)
        best[:, 1, 1] = rewards[:, 0, 0]
        above = np.zeros(rewards.shape, bool)
        left = np.zeros(rewards.shape, bool)
        slack = TIE * np.abs(rewards).max((1, 2), initial=0.0)
        for i, j, up, back in _steps(best):
            above[:, i, j] = (up >= back - slack) & (i > 0)
            left[:, i, j] = (back >= up - slack) & (j > 0)
            best[:, i + 1, j + 1] = rewards[:, i, j] + np.maximum(up, back)
        return cls(rewards, best[:, -1, -1], above, left)

    def regret(self, predicted: Outputs) -> Float[np.ndarray, " n"]:
        """Return max_y <r, y> - <r, y'>: the reward lost by following y'."""
        rewards = self.rewards.reshape(len(self.rewards), -1)
        return self.score - np.sum(rewards * np.asarray(predicted), axis=1)

    def count(self) -> Float[np.ndarray, " n"]:
        """Return how many optimal paths there are."""
        return self._counts()[:, -1, -1]

    def marginals(self) -> Float[np.ndarray, "n m"]:
        """Return how likely each cell is to lie on an optimal path drawn uniformly."""
        counts = self._counts()
        share = np.zeros_like(counts)
        share[:, -1, -1] = 1
        for i, j in reversed(list(np.ndindex(counts.shape[1:]))):
            flow = share[:, i, j] / counts[:, i, j]
            if i > 0:
                share[:, i - 1, j] += flow * self.above[:, i, j] * counts[:, i - 1, j]
            if j > 0:
                share[:, i, j - 1] += flow * self.left[:, i, j] * counts[:, i, j - 1]
        return share.reshape(len(share), -1)

    def floor(self, labels: Outputs) -> Float[np.ndarray, " n"]:
        """Return E hamming(label, y), y an optimal path drawn uniformly: what rewards and a coin
        for ties achieve.
        """
        return self.expected(labels)  # hamming is symmetric

    def expected(self, predicted: Outputs) -> Float[np.ndarray, " n"]:
        """Return E hamming(y, y'), y an optimal path drawn uniformly: the Hamming loss with the noise of its label
        integrated out.
        """
        return self._length() - np.sum(self.marginals() * np.asarray(predicted), axis=1)

    def spread(self) -> Float[np.ndarray, " n"]:
        """Return E hamming(y, y') of two optimal paths drawn uniformly: the floor, on average over
        labels so drawn.
        """
        return self._length() - np.sum(self.marginals() ** 2, axis=1)

    def nearest(self, predicted: Outputs) -> Float[np.ndarray, " n"]:
        """Return min over optimal y of hamming(y, y'): 0 where y' is optimal, whichever way ties
        were broken.
        """
        return self._length() - self._most(np.asarray(predicted, np.float64))

    def least(self) -> Float[np.ndarray, " n"]:
        """Return min_y' E hamming(y, y'), y drawn uniformly: no learner does better on such labels
        (`Maps.redraw`).
        """
        # as rewards of all paths: the best y' need not be optimal
        marginals = self.marginals()
        oracle = MonotonePaths(*self.rewards.shape[1:])
        y = np.asarray(argmax(oracle, marginals))
        return self._length() - np.sum(marginals * y, axis=1)

    def draw(self, rng: np.random.Generator) -> Float[np.ndarray, "n m"]:
        """Draw one optimal path of each map, uniformly among all of them."""
        counts = self._counts()
        n, rows, cols = counts.shape
        each = np.arange(n)
        i = np.full(n, rows - 1)
        j = np.full(n, cols - 1)
        y = np.zeros_like(counts)
        y[each, i, j] = 1
        for coin in rng.random((rows + cols - 2, n)):
            up = self.above[each, i, j] * counts[each, i - 1, j]
            back = self.left[each, i, j] * counts[each, i, j - 1]
            climb = coin * (up + back) < up
            i = i - climb
            j = j - ~climb
            y[each, i, j] = 1
        return y.reshape(n, -1)

    def _length(self) -> int:
        _, rows, cols = self.rewards.shape
        return rows + cols - 1

    def _counts(self) -> Float[np.ndarray, "n rows cols"]:
        """Return the number of optimal paths from the first cell to each cell."""
        n, rows, cols = self.rewards.shape
        counts = np.zeros((n, rows + 1, cols + 1))
        counts[:, 1, 1] = 1
        for i, j, up, back in _steps(counts):
            counts[:, i + 1, j + 1] = (
                self.above[:, i, j] * up + self.left[:, i, j] * back
            )
        return counts[:, 1:, 1:]

    def _most(self, gains: Float[np.ndarray, "n m"]) -> Float[np.ndarray, " n"]:
        """Return max over optimal paths y of <gains, y>."""
        n, rows, cols = self.rewards.shape
        gains = gains.reshape(n, rows, cols)
        most = np.full((n, rows + 1, cols + 1), -np.inf)
        most[:, 1, 1] = gains[:, 0, 0]
        for i, j, up, back in _steps(most):
            up = np.where(self.above[:, i, j], up, -np.inf)
            back = np.where(self.left[:, i, j], back, -np.inf)
            most[:, i + 1, j + 1] = gains[:, i, j] + np.maximum(up, back)
        return most[:, -1, -1]


def _steps(table: np.ndarray) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Yield every cell (i, j) of a grid but the first, with the entries of the cells above and to
    the left of it.

    The table (n, rows + 1, cols + 1) has one row above the grid and one column to the left of it.
    """
    _, height, width = table.shape
    for i, j in list(np.ndindex(height - 1, width - 1))[1:]:
        yield i, j, table[:, i, j + 1], table[:, i + 1, j]


@compiled
def _outputs(
    predict: Callable, oracle: AbstractOracle, w: Params, x: Any, read: Callable | None
) -> Array:
    def output(x: Any) -> Array:
        y = oracle.argmax(predict(w, x))
        return y if read is None else read(y)

    n = len(jax.tree.leaves(x)[0])
    return map_rows(jax.vmap(output), x, n, chunk_size(output, x, n, CACHE))


@compiled
def _marginals(
    predict: Callable, oracle: AbstractOracle, w: Params, x: Any, read: Callable
) -> Array:
    def one(x: Any) -> Array:
        return read(oracle.marginals(predict(w, x)))

    n = len(jax.tree.leaves(x)[0])
    return map_rows(jax.vmap(one), x, n, chunk_size(one, x, n, CACHE))


@compiled
def _exact_share(problem: AbstractProblem, f: SimplexSmoothing, w: Params) -> Array:
    u = problem.stack(w)
    n = len(u)
    exact = map_rows(jax.vmap(f.exact), u, n, chunk_size(f.exact, u, n))
    return jnp.mean(exact)


@jax.jit
def _hamming(
    oracle: AbstractOracle, truth: Shaped[Array, "n m"], predicted: Shaped[Array, "n m"]
) -> Array:
    cost = jax.vmap(oracle.cost)(truth)
    return jnp.sum(cost * predicted.astype(cost.dtype), axis=1)
