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
    """Return a callable tree as it is, and a plain function wrapped, so that a problem holds nothing but arrays."""
    if isinstance(inner, eqx.Module):
        return inner  # pyright: ignore[reportReturnType]
    return Inner(inner)


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
        shape = jnp.shape(prediction)
        wanted = jnp.shape(y)
        if shape != wanted:
            raise ValueError(
                f"The prediction has shape {shape} and the target {wanted}; they must agree, "
                f"so that residual(predict) is predict(w, x) - y without broadcasting."
            )
        return prediction - y


def residual(predict: Callable) -> Residual:
    """Return the inner map (w, (x, y)) -> predict(w, x) - y.

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
        scaled = jax.tree.map(jnp.multiply, self.scale, w)
        return self.inner(scaled, sample)


class AugmentedScores(eqx.Module):
    """phi(w, (x, y)) = (s + cost(y), <s, y>) in R^{m+1}, s = predict(w, x) the scores of the m parts."""

    predict: Callable
    oracle: AbstractOracle

    def __call__(self, w: Params, sample: Any) -> Array:
        x, y = sample
        scores = self.predict(w, x)
        y = y.astype(scores.dtype)
        parts = self.oracle.size()
        if not scores.shape == y.shape == (parts,):
            raise ValueError(
                f"The oracle has {parts} parts; predict returned scores of shape {scores.shape} and "
                f"y has shape {y.shape}."
            )
        true = jnp.where(y > 0, scores, jnp.zeros_like(scores))  # a padded part may have the score -inf
        return jnp.append(scores + self.oracle.cost(y), jnp.sum(true))


def augmented_scores(predict: Callable, oracle: AbstractOracle) -> AugmentedScores:
    """Return the inner map of the structural hinge, (w, (x, y)) -> (s + cost(y), <s, y>); y is 0/1, the true output.

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
        w = parameters(w)
        at = jax.tree.map(lambda a, x: a.astype(x.dtype), at, w)
        toward = optax.tree.sub(w, at)
        phi = lambda p: self.inner(eqx.combine(p, rest), sample)
        u, change = jax.jvp(phi, (at,), (toward,))
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
        shape = np.shape(indices)
        if shape != np.shape(values):
            raise ValueError(f"SparseRows needs indices and values of one shape; not {shape} and {np.shape(values)}.")
        kind = jnp.result_type(indices)
        if not jnp.issubdtype(kind, jnp.integer):
            raise TypeError(f"The indices of SparseRows must be integers; they are {kind}.")
        columns = whole(columns, "The number of columns of SparseRows", low=0)
        if is_concrete(indices):
            if np.size(indices) and not 0 <= np.min(indices) <= np.max(indices) < columns:
                low = int(np.min(indices))
                high = int(np.max(indices))
                raise ValueError(f"SparseRows has {columns} columns, but its indices go from {low} to {high}.")
            indices = jnp.asarray(indices)
        self.indices = indices
        self.values = values
        self.columns = columns

    def dense(self) -> Array:
        """Return the rows as an array (n, columns); values on the same column add up."""
        values = jnp.asarray(self.values)
        n = len(values)
        rows = jnp.arange(n)[:, None]
        empty = jnp.zeros((n, self.columns), values.dtype)
        return empty.at[rows, self.indices].add(values)


class Bound(eqx.Module):
    """phi(w, sample) with the leaves of w that are no parameters filled in: solvers then carry arrays alone."""

    inner: Callable
    rest: Params

    def __call__(self, w: Params, sample: Any) -> Array:
        return self.inner(eqx.combine(w, self.rest), sample)
