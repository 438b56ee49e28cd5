"""Wrong use, said in one sentence: data, weights and batches at construction, parameters at the first call."""

from typing import Any

import equinox as eqx
import jax
import jax.experimental.sparse
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .types import Index, Params, is_concrete, is_here, is_parameter


def checked_data(data: Any) -> Any:
    """The data as jax arrays: a common leading axis n > 0 and finite numbers."""
    is_sparse = lambda x: isinstance(x, jax.experimental.sparse.JAXSparse)
    leaves = jax.tree_util.tree_leaves_with_path(data, is_leaf=is_sparse)
    if any(is_sparse(x) for _, x in leaves):
        raise TypeError("Data cannot be a BCOO or BCSR matrix, whose rows have no common shape; take px.SparseRows.")
    if not leaves:
        raise ValueError("The data has no arrays in it; give at least one array with a leading axis of samples.")
    lengths = {}
    for path, x in leaves:
        if not isinstance(x, np.ndarray | jax.Array) or x.ndim == 0:
            raise ValueError(
                f"The data leaf {_name(path)} must be an array with a leading axis of samples; it is {_kind(x)}."
            )
        if isinstance(x, np.ndarray) and x.dtype.kind not in "biufc" and not jnp.issubdtype(x.dtype, jnp.number):
            raise TypeError(f"The data leaf {_name(path)} must hold numbers; it holds {x.dtype}.")
        lengths[_name(path)] = x.shape[0]
    first, n = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != n:
            raise ValueError(f"The data leaf {name} has {length} samples, but {first} has {n}; they must agree.")
    if n == 0:
        raise ValueError("The data has no samples (n = 0); a mean needs at least one.")
    for path, x in leaves:
        _check_finite(_name(path), x)
    return jax.tree.map(_as_jax, data)


def checked_weights(weights: Any, n: int) -> Array | None:
    """Sample weights (n,), not negative, scaled to mean 1."""
    if weights is None:
        return None
    if np.shape(weights) != (n,):
        raise ValueError(
            f"The weights must be one number for each of the {n} samples; their shape is {np.shape(weights)}."
        )
    if not np.issubdtype(weights.dtype if isinstance(weights, jax.Array) else np.asarray(weights).dtype, np.number):
        raise TypeError("The weights must be numbers.")
    if not is_concrete(weights):
        return weights / jnp.mean(weights)
    if not is_here(weights):
        return _checked_elsewhere(weights)
    host = np.asarray(weights)
    host = host if np.issubdtype(host.dtype, np.inexact) else host.astype(jnp.result_type(float))
    bad = ~np.isfinite(host) | (host < 0)
    if bad.any():
        raise ValueError(f"The weights must be finite and not negative; weight {bad.argmax()} is {host[bad.argmax()]}.")
    if not host.any():
        raise ValueError("The weights are all zero; at least one sample must count.")
    host = host / host.max()  # first: a sum of huge weights would overflow
    return jnp.asarray(host / host.mean())


def _checked_elsewhere(weights: Array) -> Array:
    """The same for weights that lie on several processes: all of them see what is wrong."""
    weights = weights if jnp.issubdtype(weights.dtype, jnp.inexact) else weights.astype(jnp.result_type(float))
    if not bool(jnp.all(jnp.isfinite(weights) & (weights >= 0))):
        raise ValueError("The weights must be finite and not negative.")
    if not bool(jnp.any(weights > 0)):
        raise ValueError("The weights are all zero; at least one sample must count.")
    weights = weights / jnp.max(weights)
    return weights / jnp.mean(weights)


def check_batch(batch: Any, n: int) -> Index:
    """An index, a slice or a vector of integers, within range where that can be seen now."""
    if isinstance(batch, slice):
        if len(range(*batch.indices(n))) == 0:
            raise IndexError(f"The batch {batch} of {n} samples is empty.")
        return batch
    if isinstance(batch, list | tuple):
        batch = np.asarray(batch, None if batch else int)
    number = isinstance(batch, int | np.ndarray | np.integer | jax.Array) and not isinstance(batch, bool)
    if not number or not jnp.issubdtype(jnp.result_type(batch), jnp.integer) or np.ndim(batch) > 1:
        raise TypeError(f"A batch is an integer, a slice or a vector of integers; it is {_kind(batch)}.")
    if is_concrete(batch):
        host = np.asarray(batch)
        if host.size == 0:
            raise IndexError("The batch is empty; take at least one sample.")
        out = (host < -n) | (host >= n)
        if out.any():
            raise IndexError(f"The batch index {np.ravel(host)[np.argmax(out)]} is out of range for {n} samples.")
    return batch


def check_parameters(w: Params, data: Any) -> Params:
    """w with jax arrays for parameters; at least one real parameter, and no float64 that JAX would cut to float32."""
    leaves = jax.tree_util.tree_leaves_with_path(w)
    parameters = [(path, x) for path, x in leaves if is_parameter(x)]
    if not parameters:
        raise TypeError("w has no parameters: at least one leaf must be an array of floating-point numbers.")
    for path, x in parameters:
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            raise TypeError(
                f"The parameter w{_suffix(path)} is complex; give its real and imaginary parts as two arrays."
            )
    if not jax.config.read("jax_enable_x64"):
        named = [("w" + _suffix(path), x) for path, x in leaves]
        named += [("the data leaf " + _name(path), x) for path, x in jax.tree_util.tree_leaves_with_path(data)]
        for name, x in named:
            if isinstance(x, np.ndarray) and x.dtype in (np.float64, np.complex128):
                raise TypeError(
                    f"{name[0].upper() + name[1:]} is float64, which JAX would cut to float32: call "
                    f'jax.config.update("jax_enable_x64", True) first, or convert it with .astype(np.float32).'
                )
    return jax.tree.map(lambda x: jnp.asarray(x) if is_parameter(x) else x, w)


def check_like(tree: Params, w: Params, what: str) -> None:
    """Raise a sentence unless the parameters of tree and w have one structure and the same shapes."""
    mine, theirs = eqx.filter(tree, is_parameter), eqx.filter(w, is_parameter)
    if jax.tree.structure(mine) != jax.tree.structure(theirs):
        raise ValueError(f"{what} must have the structure of w; their trees differ.")
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(theirs), jax.tree.leaves(mine), strict=True):
        if x.shape != y.shape:
            raise ValueError(f"{what} must have the shapes of w; at w{_suffix(path)} they are {y.shape} and {x.shape}.")


def _kind(x: Any) -> str:
    """What x is, in a few words on one line."""
    known = isinstance(x, np.ndarray | jax.Array)
    return f"an array of {x.dtype} of shape {x.shape}" if known else f"{type(x).__name__} {x!r}".splitlines()[0][:60]


def _as_jax(x: Any) -> Any:
    """A jax array, except float64 that would be cut to float32: that is refused at the first call."""
    cut = isinstance(x, np.ndarray) and x.dtype == np.float64 and not jax.config.read("jax_enable_x64")
    return x if cut or not eqx.is_array_like(x) else jnp.asarray(x)


def _check_finite(name: str, x: Any) -> None:
    if not is_concrete(x) or not jnp.issubdtype(x.dtype, jnp.inexact):
        return
    finite, x = (np.isfinite, np.asarray(x)) if is_here(x) else (jnp.isfinite, x)  # elsewhere: all processes see it
    bad = ~finite(x).reshape(x.shape[0], -1).all(axis=1)
    if bad.any():
        raise ValueError(f"The data leaf {name} has a value that is not finite in row {int(bad.argmax())}.")


def _name(path: Any) -> str:
    return "data" + _suffix(path)


def _suffix(path: Any) -> str:
    return jax.tree_util.keystr(path)
