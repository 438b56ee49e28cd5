"""The predictions of fits, in NumPy.

    predict(w, x) = W_2 tanh(W_1 x + b_1) + b_2 + A x + sum over trees of the leaf that x falls into

A table is predicted a few times, each time with another number of rows, trees or fits: compiling for
these shapes took longer than the work.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from ..networks import MLP, Trees, WithLinear, WithTrees
from ..types import Params

Map = MLP | WithLinear | Trees | WithTrees
ROWS = 2**14  # of a batch, at most: a column of it stays in the cache
CELLS = 2**20  # numbers of a layer of a batch, 4 MB in float32


def predict(
    network: Map, w: Params, x: Float[np.ndarray, "n p"]
) -> Float[np.ndarray, "m n k"]:
    """Predict with every fit, in batches of rows; what overflows is infinite or nan.

    It computes in the dtype of w, as the fits did.
    """
    w = jax.tree.map(np.asarray, w)
    first = jax.tree.leaves(w)[0]
    sizes = _sizes(network)
    batch = min(ROWS, max(1, CELLS // max(sizes)))
    found = np.empty((len(first), len(x), sizes[-1]))
    # a number beyond float32 is infinite there, and so is what follows from it
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(x), batch):
            rows = slice(start, start + batch)
            columns = np.ascontiguousarray(x[rows].T, first.dtype)
            found[:, rows] = _outputs(network, w, columns).swapaxes(1, 2)
    return found


def _sizes(network: Map) -> tuple[int, ...]:
    """Return the sizes of the layers, that of the output last."""
    if isinstance(network, WithTrees | WithLinear):
        return _sizes(network.network)
    return network.sizes


def _outputs(
    network: Map, w: Any, x: Float[np.ndarray, "p n"]
) -> Float[np.ndarray, "m k n"]:
    """Return the outputs of all fits for the columns of a batch."""
    if isinstance(network, WithTrees):
        straight = _outputs(network.network, w["network"], x)
        return straight + _of_trees(network.trees, w["trees"], x)
    if isinstance(network, WithLinear):
        linear = np.asarray(network.scale, x.dtype) * (w["A"] @ x)
        return _outputs(network.network, w["network"], x) + linear
    if isinstance(network, Trees):
        return _of_trees(network, w, x)
    *hidden, last = w
    found = []
    for j in range(len(last["W"])):
        z = x
        for layer in hidden:
            z = _tanh(layer["W"][j] @ z + layer["b"][j][:, None])
        found.append(last["W"][j] @ z + last["b"][j][:, None])
    return np.stack(found)


def _tanh(x: np.ndarray) -> np.ndarray:
    """Return 1 - 2 / (exp(2 x) + 1) = tanh(x), in the place of x; NumPy's own takes five times as long."""
    x *= 2
    np.exp(x, out=x)
    x += 1
    np.divide(2, x, out=x)
    return np.subtract(1, x, out=x)


def _of_trees(
    trees: Trees, w: Any, x: Float[np.ndarray, "p n"]
) -> Float[np.ndarray, "m k n"]:
    """Return the sums of the leaves that rows fall into.

    All rows are compared at every node, and the ways at the upper levels choose among those below.
    """
    count, depth = trees.count, trees.depth
    features = w["feature"].astype(np.intp)
    found = np.zeros((len(features), trees.sizes[1], x.shape[1]), x.dtype)
    bins, cuts = _binned(x, features, w["cut"])
    leaves = np.ascontiguousarray(np.moveaxis(w["leaf"], -1, 1))
    for j in range(len(features)):
        for t in range(count):
            right = bins[features[j, t]] > cuts[j, t, :, None]
            leaf = _leaf(right, depth)
            for own, values in zip(found[j], leaves[j, :, t], strict=True):
                own += values.take(leaf)
    return found


def _leaf(right: np.ndarray, depth: int) -> np.ndarray:
    """Return the leaf that each row falls into, if `right` tells for each node whether it would go to
    the right there.
    """
    leaf = np.zeros(right.shape[1], np.uint8 if depth <= 8 else np.intp)
    ways: list[np.ndarray] = []
    for level in range(depth):
        nodes = right[2**level - 1 : 2 ** (level + 1) - 1]
        for way in ways:
            # the left half of the nodes, or the right one: a choice by bits has no branch
            half = len(nodes) // 2
            chosen = nodes[:half] ^ nodes[half:]
            chosen &= way
            chosen ^= nodes[:half]
            nodes = chosen
        ways.append(nodes[0])
        leaf += leaf
        leaf += nodes[0]
    return leaf


def _binned(
    x: Float[np.ndarray, "p n"],
    features: Int[np.ndarray, "m t nodes"],
    cuts: Float[np.ndarray, "m t nodes"],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of a feature's cuts below each value, and the place of each cut among them.

    A value is above a cut if it is so in these numbers, which take one byte where they are few.
    """
    bins = []
    places = np.zeros(cuts.shape, np.intp)
    most = 0
    for j, column in enumerate(x):
        here = features == j
        own = np.unique(cuts[here])
        below = np.searchsorted(own, column)
        # a number that is missing is above nothing
        below[np.isnan(column)] = 0
        bins.append(below)
        places[here] = np.searchsorted(own, cuts[here])
        most = max(most, len(own))
    small = np.uint8 if most < 256 else np.int32
    return np.asarray(bins, small), places.astype(small)
