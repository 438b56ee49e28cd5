"""Names for arrays, and the two questions every layer asks of a number or a tree of parameters."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

# the user's tree; its floating-point leaves are the parameters, the rest is carried along
Params = PyTree[Any]
Scalar = Float[Array | np.ndarray, ""] | np.floating | float | int
Key = Array
if TYPE_CHECKING:
    Number = Array
else:  # at rest, a number that JAX would cut to 32 bits is one of NumPy (see precision.py)
    Number = Array | np.ndarray
Index = Any  # an integer, a slice or a vector of integers; see checks.check_batch

is_parameter = eqx.is_inexact_array


def parameters(w: Params) -> Params:
    """Return the inexact array leaves of w, with None in place of the others (an empty subtree for
    tree arithmetic).
    """
    return eqx.filter(w, is_parameter)


def dtype_of(w: Params) -> jnp.dtype:
    """Return the dtype in which work on w is done: the common one of its parameters."""
    return jnp.result_type(*jax.tree.leaves(parameters(w)))


def has_x64() -> bool:
    """Return whether JAX works in 64 bits here, by its setting or in a scope."""
    return bool(jax.config.read("jax_enable_x64"))


def on_device(x: Any) -> Array:
    """Return an array of NumPy as a jax array.

    `jnp.asarray` compiles a program for every new shape, a hundredth of a second each.
    """
    return jax.device_put(x)


def with_arrays(w: Params, data: Any = None) -> Params:
    """Return w with its floating-point numbers (Python's and NumPy's) as arrays of no axes: they
    are parameters too.

    They get the dtype of the arrays among the parameters. Where there are none it is the default
    one, or float64 beside data of it. Those that JAX would cut are arrays of NumPy.
    """
    is_number = lambda x: isinstance(x, float | np.floating)
    leaves = jax.tree.leaves(w)
    if not any(is_number(x) for x in leaves):
        return w
    arrays = [x for x in leaves if is_parameter(x) and not is_number(x)]
    others = arrays or [x for x in jax.tree.leaves(data) if is_parameter(x)]
    wide = not has_x64() and bool(others) and all(x.dtype == np.float64 for x in others)
    dtype = jnp.result_type(*(arrays or [float]))

    def convert(x: Any) -> Any:
        if not is_number(x):
            return x
        return np.asarray(x, np.float64) if wide else on_device(np.asarray(x, dtype))

    return jax.tree.map(convert, w)


def as_dtype(x: Any, dtype: jnp.dtype) -> Any:
    """Return x in the arithmetic of dtype: floating-point numbers in it, complex ones in pairs of
    it, others as is.
    """
    return x.astype(dtype_within(x.dtype, dtype)) if is_parameter(x) else x


def dtype_within(own: Any, dtype: jnp.dtype) -> Any:
    """Return the dtype that numbers of their own dtype have in the arithmetic of dtype."""
    if jnp.issubdtype(own, jnp.complexfloating):
        return jnp.complex128 if dtype == jnp.float64 else jnp.complex64
    if jnp.issubdtype(own, jnp.inexact):
        return dtype
    return own


def is_concrete(x: Any) -> bool:
    """Return whether x can be looked at now, outside of a trace."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x))


def is_staged(x: Any = None) -> bool:
    """Return whether x, or what is computed here at all, is part of a trace."""
    # Within jit even an operation on numbers is traced.
    return not is_concrete((x, jnp.zeros(()) + 1))


def is_here(x: Any) -> bool:
    """Return whether this process can read all of x: a jax array may lie on several of them."""
    return not isinstance(x, jax.Array) or x.is_fully_addressable
