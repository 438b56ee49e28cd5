"""Inner maps phi: (w, sample) -> R^k: residuals, first-order expansions, and one row of sparse data."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Inexact, Int

from .checks import described, whole
from .oracles import AbstractOracle
from .oracles.base import check_oracle
from .types import Params, is_concrete, is_parameter, parameters


class Inner(eqx.Module):
    """phi(w, sample) = function(w, sample), a plain function as a static part of a tree of arrays."""

    function: Callable = eqx.field(static=True)

    def __call__(self, w: Params, sample: Any) -> Array:
        return self.function(w, sample)


def as_inner(inner: Callable) -> Callable:
    """A callable tree as it is; a plain function wrapped, so that a problem holds nothing but arrays."""
    return Inner(inner) if not isinstance(inner, eqx.Module) else inner  # pyright: ignore[reportReturnType]


def check_function(function: Any, name: str, arguments: str) -> Callable:
    """Return the function, or raise a sentence where it is none."""
    if not callable(function):
        raise TypeError(f"{name} must be a function of {arguments}; it is {described(function)}.")
    return function


class Residual(eqx.Module):
    """phi(w, (x, y)) = predict(w, x) - y."""

    predict: Callable

    def __call__(self, w: Params, sample: Any) -> Array:
        x, y = sample
        prediction = self.predict(w, x)
        if jnp.shape(prediction) != jnp.shape(y):
            raise ValueError(
                f"The prediction has shape {jnp.shape(prediction)} and the target {jnp.shape(y)}; they must agree, "
                f"so that residual(predict) is predict(w, x) - y without broadcasting."
            )
        return prediction - y


def residual(predict: Callable) -> Residual:
    """The inner map (w, (x, y)) -> predict(w, x) - y.

    >>> phi = residual(lambda w, x: x @ w)
    >>> phi(jnp.eye(2), (jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0]))).tolist()
    [0.0, 1.0]
    """
    return Residual(as_inner(check_function(predict, "predict", "(w, x)")))


class ScaledInput(eqx.Module):
    """phi(e, sample) = inner(scale * e, sample), entry by entry."""

    inner: Callable
    scale: Params

    def __call__(self, w: Params, sample: Any) -> Array:
        return self.inner(jax.tree.map(jnp.multiply, self.scale, w), sample)


class AugmentedScores(eqx.Module):
    """phi(w, (x, y)) = (s + cost(y), <s, y>) in R^{m+1}, s = predict(w, x) the scores of the m parts."""

    predict: Callable
    oracle: AbstractOracle

    def __call__(self, w: Params, sample: Any) -> Array:
        x, y = sample
        scores = self.predict(w, x)
        y = y.astype(scores.dtype)
        if jnp.shape(scores) != (self.oracle.size(),) or jnp.shape(y) != jnp.shape(scores):
            raise ValueError(
                f"The oracle has {self.oracle.size()} parts; predict returned scores of shape {jnp.shape(scores)} and "
                f"y has shape {jnp.shape(y)}."
            )
        true = jnp.where(y > 0, scores, jnp.zeros_like(scores))  # a padded part may have the score -inf
        return jnp.append(scores + self.oracle.cost(y), jnp.sum(true))


def augmented_scores(predict: Callable, oracle: AbstractOracle) -> AugmentedScores:
    """The inner map of the structural hinge, (w, (x, y)) -> (s + cost(y), <s, y>); y is the 0/1 vector of the output.

    `StructuredHinge(oracle)` of it is max_{y'} <s, y'> + cost(y, y') - <s, y>. Only the m scores are ever linearised.
    """
    check_oracle(oracle, "augmented_scores")
    return AugmentedScores(as_inner(check_function(predict, "predict", "(w, x)")), oracle)


class Linearized(eqx.Module):
    """phi(anchor) + J(anchor) (w - anchor), by one JVP; J is never formed.

    Law: exact at the anchor, and affine in w, so that linearising it again changes nothing.
    """

    inner: Callable
    anchor: Params

    def __call__(self, w: Params, sample: Any) -> Array:
        at, rest = eqx.partition(self.anchor, is_parameter)
        at = jax.tree.map(lambda a, x: a.astype(x.dtype), at, parameters(w))
        toward = optax.tree.sub(parameters(w), at)
        u, change = jax.jvp(lambda p: self.inner(eqx.combine(p, rest), sample), (at,), (toward,))
        return u + change


class SparseRows(eqx.Module):
    """n sparse rows, padded to a common length: row i has values[i, j] in column indices[i, j].

    As data of a problem, its inner map sees one row and uses `x.values @ w[x.indices]`; padding has value 0.

    >>> x = SparseRows(np.array([[0, 2], [1, 0]]), np.array([[1.0, 2.0], [3.0, 0.0]], np.float32), 3)
    >>> x.dense().tolist()
    [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]
    """

    indices: Int[Array | np.ndarray, "*n m"]
    values: Inexact[Array | np.ndarray, "*n m"]
    columns: int = eqx.field(static=True)

    def __init__(self, indices: Any, values: Any, columns: int):
        if np.shape(indices) != np.shape(values):
            raise ValueError(
                f"SparseRows needs indices and values of one shape; not {np.shape(indices)} and {np.shape(values)}."
            )
        if not jnp.issubdtype(jnp.result_type(indices), jnp.integer):
            raise TypeError(f"The indices of SparseRows must be integers; they are {jnp.result_type(indices)}.")
        columns = whole(columns, "The number of columns of SparseRows", low=0)
        if is_concrete(indices) and np.size(indices):
            low, high = int(np.min(indices)), int(np.max(indices))
            if low < 0 or high >= columns:
                raise ValueError(f"SparseRows has {columns} columns, but its indices go from {low} to {high}.")
        self.indices = jnp.asarray(indices) if is_concrete(indices) else indices
        self.values = values
        self.columns = columns

    def dense(self) -> Array:
        """The same rows as an array (n, columns); values on the same column add up."""
        values = jnp.asarray(self.values)
        rows = jnp.arange(values.shape[0])[:, None]
        return jnp.zeros((values.shape[0], self.columns), values.dtype).at[rows, self.indices].add(values)


class Bound(eqx.Module):
    """phi(w, sample) with the leaves of w that are no parameters filled in: solvers then carry arrays alone."""

    inner: Callable
    rest: Params

    def __call__(self, w: Params, sample: Any) -> Array:
        return self.inner(eqx.combine(w, self.rest), sample)
