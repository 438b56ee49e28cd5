"""Names for arrays, and the two questions every layer asks of a number or a tree of parameters."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

Params = PyTree[Any]  # the user's tree; its inexact array leaves are the parameters, the rest is carried along
Scalar = Float[Array | np.ndarray, ""] | np.floating | float | int
Key = Array
Index = Any  # an integer, a slice or a vector of integers; see checks.check_batch

is_parameter = eqx.is_inexact_array


def parameters(w: Params) -> Params:
    """The inexact array leaves of w, with None in place of the others (an empty subtree for tree arithmetic)."""
    return eqx.filter(w, is_parameter)


def dtype_of(w: Params) -> jnp.dtype:
    """The dtype in which work on w is done: the common one of its parameters."""
    return jnp.result_type(*jax.tree.leaves(parameters(w)))


def is_concrete(x: Any) -> bool:
    """Whether x can be looked at now, outside of a trace."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x))


def is_here(x: Any) -> bool:
    """Whether this process can read all of x: a jax array may lie on several of them."""
    return not isinstance(x, jax.Array) or x.is_fully_addressable


def number(x: Any, name: str, *, low: float = -math.inf, open: bool = False) -> Array:
    """x as an array leaf (so that two settings share one compilation), checked to be finite and at least low.

    >>> x = number(0.5, "step", low=0.0, open=True)
    >>> float(jax.jit(lambda: number(x, "step", low=0.0))())  # from outside a trace
    0.5
    """
    if not eqx.is_array(x) and not isinstance(x, np.ndarray | np.number | int | float):
        raise ValueError(f"{name} must be a number; it is {type(x).__name__}.")
    dtype = jnp.result_type(x) if eqx.is_inexact_array(x) else jnp.result_type(float)
    if np.ndim(x) or jnp.issubdtype(jnp.result_type(x), jnp.complexfloating):
        raise ValueError(f"{name} must be one real number; it is of shape {np.shape(x)} and {jnp.result_type(x)}.")
    if is_concrete(x) and not (low < float(x) < math.inf or (float(x) == low and not open)):  # float: not staged
        raise ValueError(f"{name} must be {'above' if open else 'at least'} {low:g} and finite; it is {x}.")
    return jnp.asarray(x, dtype)  # with a dtype of its own: a weak one would be traced apart
