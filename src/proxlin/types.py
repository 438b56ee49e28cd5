"""Names for arrays, and the two questions every layer asks of a number or a tree of parameters."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

Params = PyTree[Any]  # the user's tree; its inexact array leaves are the parameters, the rest is carried along
Scalar = Float[Array | np.ndarray, ""] | np.floating | float | int
Key = Array
Index = Int[Array | np.ndarray, "..."] | slice | int | np.integer

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


def number(x: Any, name: str, *, low: float = -math.inf, open: bool = False) -> Array:
    """x as an array leaf (so that two settings share one compilation), checked to be finite and at least low.

    >>> float(number(0.5, "step", low=0.0, open=True))
    0.5
    """
    array = jnp.asarray(x)
    array = array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(jnp.result_type(float))
    if is_concrete(array):
        worst = np.min(np.asarray(array))
        if not np.all(np.isfinite(np.asarray(array))) or worst < low or (open and worst <= low):
            raise ValueError(f"{name} must be {'above' if open else 'at least'} {low:g} and finite; it is {x}.")
    return array
