"""Passes over many rows in chunks that fit in memory: a sum of g(rows) and a stack of g(rows), chunk by chunk."""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .sharding import Split

BUDGET = 256 * 2**20  # bytes of intermediate values of one chunk; a few of them live at once in a VJP
CACHE = 32 * 2**20  # the same where small chunks cost nothing: each of some twenty values a row then stays in the cache


def chunk_size(function: Callable, rows: PyTree, n: int, budget: int | None = None) -> int:
    """How many of n rows go at once, from the size of what function(row) computes on its way (shapes alone).

    `budget`: the bytes of a chunk, `BUDGET` if None.
    """
    if n <= 8:
        return n
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), rows)
    closed = jax.make_jaxpr(function)(row)
    size = max(1, _bytes_that_depend(closed.jaxpr, set(closed.jaxpr.invars)))
    count = -(-n // max(1, (budget or BUDGET) // size))
    return -(-n // count)


def fold_rows(step: Callable, init: PyTree, rows: PyTree, n: int, chunk: int, split: Split | None = None) -> PyTree:
    """step(carry, chunk of rows, fresh) over all rows; fresh is 0 on rows that an earlier chunk had, else 1.

    Of rows that are split, each device folds its own, and the carries are added up: init must be zero.
    """
    if split is not None:
        each = n // split.parts
        return split.total(lambda part, total: total(fold_rows(step, init, part, each, chunk)), rows)
    if chunk >= n:
        return step(init, rows, None)

    def body(carry: PyTree, start: Array) -> tuple[PyTree, None]:
        part, fresh = _slice(rows, n, chunk, start)
        return step(carry, part, fresh), None

    return jax.lax.scan(body, init, jnp.arange(0, n, chunk))[0]


def map_rows(function: Callable, rows: PyTree, n: int, chunk: int, split: Split | None = None) -> PyTree:
    """function(chunk of rows), stacked along the rows; of rows that are split, each device maps its own."""
    if split is not None:
        return split.stack(lambda part: map_rows(function, part, n // split.parts, chunk), rows)
    if chunk >= n:
        return function(rows)
    stacked = jax.lax.map(lambda start: function(_slice(rows, n, chunk, start)[0]), jnp.arange(0, n, chunk))
    last = n - (n - 1) // chunk * chunk  # fresh rows of the last chunk, which ends at row n
    return jax.tree.map(lambda x: jnp.concatenate([x[:-1].reshape(-1, *x.shape[2:]), x[-1, chunk - last :]]), stacked)


def _slice(rows: PyTree, n: int, chunk: int, start: Array) -> tuple[PyTree, Array]:
    at = jnp.minimum(start, n - chunk)
    part = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, at, chunk), rows)
    return part, at + jnp.arange(chunk) >= start


def _bytes_that_depend(jaxpr: Any, sources: set) -> int:
    """The bytes of all values of a jaxpr that depend on its sources."""
    total = 0
    for equation in jaxpr.eqns:
        if not any(not isinstance(x, jax.extend.core.Literal) and x in sources for x in equation.invars):
            continue
        sources.update(equation.outvars)
        total += sum(x.aval.size * x.aval.dtype.itemsize for x in equation.outvars)
        for inner in _inner_jaxprs(equation.params):
            total += _bytes_that_depend(inner, set(inner.invars))
    return total


def _inner_jaxprs(params: dict) -> list[Any]:
    found = [getattr(p, "jaxpr", p) for p in params.values()]
    return [p for p in found if isinstance(p, jax.extend.core.Jaxpr)]
