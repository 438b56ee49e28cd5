"""Wrong use, said in one sentence: data, weights and batches at construction, parameters at the
first call.
"""

import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .precision import as_jax
from .types import (
    Index,
    Number,
    Params,
    has_x64,
    is_concrete,
    is_here,
    is_parameter,
    parameters,
    with_arrays,
)

MOST = 2**31 - 1  # the largest count, as indices are int32


def described(x: Any) -> str:
    """Say what x is, in a few words on one line, for a sentence that refuses it.

    >>> described("ten"), described(np.ones((2, 3)))
    ("str 'ten'", 'an array of float64 of shape (2, 3)')
    """
    if x is None:
        return "None"
    if isinstance(x, np.ndarray | jax.Array):
        return f"an array of {x.dtype} of shape {x.shape}"
    if isinstance(x, type):
        return f"the class {x.__name__}"
    if callable(x):
        return f"{type(x).__name__} {getattr(x, '__name__', '')}".strip()
    if isinstance(x, list | tuple | dict) and _has_tracer(x):
        return f"a {type(x).__name__} of {len(x)}"
    if isinstance(x, int) and abs(x) > 10**30:
        return "int of more than 30 digits"
    return f"{type(x).__name__} {x!r}".splitlines()[0][:60]


def outline(tree: Any, is_leaf: Any = None) -> str:
    """Return how a tree is built, with a star for each leaf.

    >>> outline({"a": np.zeros(3), "b": [1.0, None]})
    "{'a': *, 'b': [*, *]}"
    """
    stop = lambda x: x is None or (is_leaf is not None and is_leaf(x))
    stars = jax.tree.map(lambda x: "*", tree, is_leaf=stop)
    return str(stars).replace("'*'", "*").replace("\n", " ")[:200]


def real(x: Any, name: str, *, low: float = -math.inf, open: bool = False) -> float:
    """Return x as a Python float, or raise a sentence unless it is one real number, at least low
    (above it if open).

    A number may come from Python, NumPy or JAX; True and False are none.
    """
    if _is_array(x):
        complex = jnp.issubdtype(x.dtype, jnp.complexfloating)
        good = x.ndim == 0 and jnp.issubdtype(x.dtype, jnp.number) and not complex
    else:
        good = isinstance(x, int | float) and not isinstance(x, bool)
    if not good:
        raise ValueError(f"{name} must be one real number; it is {described(x)}.")
    try:
        value = float(x)
    except OverflowError:  # an integer such as 10^400
        value = math.inf
    inside = value > low if open else value >= low
    if inside and value < math.inf:
        return value
    bound = ""
    if low > -math.inf:
        least = "above" if open else "at least"
        bound = f"{least} {low:g} and "
    raise ValueError(f"{name} must be {bound}finite; it is {value}.")


def reals(x: Any, name: str) -> np.ndarray:
    """Return x as an array of float64, or raise a sentence unless it holds real numbers.

    >>> reals([1, 2], "y").tolist()
    [1.0, 2.0]
    """
    try:
        found = np.asarray(x)
        # texts such as "10" would become numbers
        if found.dtype.kind in "USc":
            raise TypeError
        return found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be an array of real numbers; it is {described(x)}."
        ) from error
    except OverflowError as error:  # of an integer such as 10^400
        raise ValueError(
            f"{name} has a number that is too large for float64; give it in other units."
        ) from error


def check_numbers(x: Any, name: str) -> None:
    """Raise a sentence unless x is, or can be made, an array of numbers that JAX takes."""
    if _has_tracer(x):
        return
    try:
        dtype = x.dtype if isinstance(x, jax.Array) else np.asarray(x).dtype
        kinds = (np.bool_, jnp.number)
        good = any(jnp.issubdtype(dtype, kind) for kind in kinds)
    except (TypeError, ValueError):  # rows that differ in length
        good = False
    if not good:
        raise TypeError(f"{name} must be an array of numbers; it is {described(x)}.")


def whole(x: Any, name: str, *, low: int = 1, high: float | int = MOST) -> int:
    """Return x as a Python integer, or raise a sentence unless it is a whole number from low to
    high; 3.0 is one.

    >>> whole(np.int32(3), "batch_size")
    3
    """
    value = x
    if _is_array(x) and x.ndim == 0 and jnp.issubdtype(x.dtype, jnp.number):
        value = x.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    bounds = f"from {low} to {high}"
    if high == math.inf:
        bounds = f"of at least {low}"
    raise ValueError(f"{name} must be a whole number {bounds}; it is {described(x)}.")


def flag(x: Any, name: str) -> bool:
    """Return x as a Python bool, or raise a sentence unless it is one."""
    if not isinstance(x, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; it is {described(x)}.")
    return bool(x)


def one_of(x: Any, name: str, known: Iterable[str]) -> str:
    """Return x, or raise a sentence unless it is one of the known words."""
    known = tuple(known)
    if not isinstance(x, str) or x not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(known)}; it is {described(x)}."
        )
    return x


def check_seed(seed: Any) -> int:
    """Return the seed, or raise a sentence unless it is a whole number of 32 bits, which no
    platform cuts.
    """
    found = None
    if isinstance(seed, jax.Array) and _is_key(seed):
        found = "a random key of JAX"
    if isinstance(seed, np.random.Generator | np.random.RandomState):
        found = f"a {type(seed).__name__} of NumPy"
    if found is None:
        return whole(seed, "seed", low=0, high=2**32 - 1)
    raise ValueError(
        f"seed must be a whole number; it is {found}: write seed=0, and the random keys are made of it."
    )


def _is_key(x: jax.Array) -> bool:
    """Return whether x is a random key of JAX, of the new kind or of the old one."""
    is_new = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return is_new or (x.shape == (2,) and x.dtype == np.uint32)


def one_number(x: Any, name: str) -> float:
    """Return what a user's function said as a float, or raise a sentence unless it is one real
    number.
    """
    is_number = _is_array(x) or isinstance(x, int | float)
    if np.shape(x) != () or np.iscomplexobj(x) or not is_number:
        raise TypeError(f"{name} must return one number; it returned {described(x)}.")
    return float(x)


def number(x: Any, name: str, *, low: float = -math.inf, open: bool = False) -> Number:
    """Return x as an array leaf, so that two settings share one compilation; it must be finite and
    at least low.

    >>> x = number(0.5, "step", low=0.0, open=True)
    >>> float(jax.jit(lambda: number(x, "step", low=0.0))())  # from outside a trace
    0.5
    """
    traced = (
        isinstance(x, jax.core.Tracer)
        and x.ndim == 0
        and not jnp.issubdtype(x.dtype, jnp.complexfloating)
    )
    if not traced:
        real(x, name, low=low, open=open)
    if not is_concrete(x) or has_x64():
        kind = x if eqx.is_inexact_array(x) else float
        # with a dtype of its own: a weak one would be traced apart
        return jnp.asarray(x, jnp.result_type(kind))
    if isinstance(x, jax.Array) and eqx.is_inexact_array(x):
        return as_jax(x)
    # in full, as the work may be done in float64
    full: Any = np.asarray(x, np.float64)
    return full


def _test_of_sparse() -> Callable[[Any], bool]:
    """Return whether x is a sparse matrix of JAX's: there is none before its module is imported,
    which takes a tenth of a second.
    """
    sparse = sys.modules.get("jax.experimental.sparse")
    if sparse is None:
        return lambda x: False
    return lambda x: isinstance(x, sparse.JAXSparse)


def checked_data(data: Any) -> Any:
    """Return the data as jax arrays, or raise a sentence unless they have a common axis n > 0 and
    finite numbers.
    """
    is_sparse = _test_of_sparse()
    leaves = jax.tree_util.tree_leaves_with_path(data, is_leaf=is_sparse)
    if any(is_sparse(x) for _, x in leaves):
        raise TypeError(
            "Data cannot be a BCOO or BCSR matrix, whose rows have no common shape; take px.SparseRows."
        )
    if not leaves:
        raise ValueError(
            "The data has no arrays in it; give at least one array with a leading axis of samples."
        )
    named = [(_name(path), x) for path, x in leaves]
    for name, x in named:
        _check_data_leaf(name, x)
    first, other = named[0]
    n = len(other)
    for name, x in named:
        if len(x) != n:
            raise ValueError(
                f"The data leaf {name} has {len(x)} samples, but {first} has {n}; they must agree."
            )
    if n == 0:
        raise ValueError("The data has no samples (n = 0); a mean needs at least one.")
    for name, x in named:
        _check_finite(name, x)
        _check_integers(name, x)
    return jax.tree.map(as_jax, data)


def _check_data_leaf(name: str, x: Any) -> None:
    """Raise a sentence unless x is an array of numbers with at least one axis."""
    if not isinstance(x, np.ndarray | jax.Array) or x.ndim == 0:
        raise ValueError(
            f"The data leaf {name} must be an array with a leading axis of samples; it is {described(x)}."
        )
    if (
        isinstance(x, np.ndarray)
        and x.dtype.kind not in "biufc"
        and not jnp.issubdtype(x.dtype, jnp.number)
    ):
        raise TypeError(f"The data leaf {name} must hold numbers; it holds {x.dtype}.")
    check_width(f"The data leaf {name}", x)


def checked_weights(weights: Any, n: int) -> Number | None:
    """Return sample weights (n,) scaled to mean 1, or raise a sentence where one is negative or not
    finite.
    """
    if weights is None:
        return None
    shape = np.shape(weights)
    if shape != (n,):
        raise ValueError(
            f"The weights must be one number for each of the {n} samples; their shape is {shape}."
        )
    if not isinstance(weights, jax.Array):
        weights = np.asarray(weights)
    dtype = weights.dtype
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(
            f"The weights must be real numbers; they are {dtype}: give weights.real."
        )
    # bfloat16 and its like have a kind of their own, which NumPy takes for no numbers
    if dtype.kind not in "biuf" and not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"The weights must be numbers; they are {dtype}.")
    if not is_concrete(weights):
        weights = _floating(weights)
        return weights / jnp.mean(weights)
    if not is_here(weights):
        return _checked_elsewhere(weights)
    host = np.asarray(weights)
    if dtype != np.longdouble:  # whose largest numbers float64 has not
        host = host.astype(np.float64)
    bad = ~np.isfinite(host) | (host < 0)
    if bad.any():
        first = bad.argmax()
        raise ValueError(
            f"The weights must be finite and not negative; weight {first} is {host[first]}."
        )
    if not host.any():
        raise ValueError("The weights are all zero; at least one sample must count.")
    host = host / host.max()  # first: a sum of huge weights would overflow
    host = host.astype(np.float64)
    return as_jax(host / host.mean())


def _checked_elsewhere(weights: Array) -> Array:
    """Check and scale weights that lie on several processes, by operations in which all of these
    take part.
    """
    # scaled in fewer bits, they would have a rounding that float64 parameters see
    if weights.dtype != np.float64:
        weights = weights.astype(jnp.result_type(float))
    if not bool(jnp.all(jnp.isfinite(weights) & (weights >= 0))):
        raise ValueError("The weights must be finite and not negative.")
    if not bool(jnp.any(weights > 0)):
        raise ValueError("The weights are all zero; at least one sample must count.")
    weights = weights / jnp.max(weights)
    return weights / jnp.mean(weights)


def _floating(x: Array) -> Array:
    """Return whole numbers, truth values and floating-point numbers of fewer than 32 bits as those
    of the default width, and others as they are.
    """
    if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize >= 4:
        return x
    return x.astype(jnp.result_type(float))


def check_batch(batch: Any, n: int) -> Index:
    """Return an index, a slice or a vector of integers, or raise a sentence where it is seen to be
    out of range.
    """
    if isinstance(batch, slice):
        if len(range(*batch.indices(n))) == 0:
            raise IndexError(f"The batch {batch} of {n} samples is empty.")
        return batch
    if isinstance(batch, list | tuple):
        batch = np.asarray(batch, None if batch else int)
    is_number = isinstance(
        batch, int | np.ndarray | np.integer | jax.Array
    ) and not isinstance(batch, bool)
    if (
        not is_number
        or not jnp.issubdtype(jnp.result_type(batch), jnp.integer)
        or np.ndim(batch) > 1
    ):
        raise TypeError(
            f"A batch is an integer, a slice or a vector of integers; it is {described(batch)}."
        )
    if is_concrete(batch):
        host = np.ravel(batch)
        if host.size == 0:
            raise IndexError("The batch is empty; take at least one sample.")
        outside = host[(host < -n) | (host >= n)]
        if outside.size:
            raise IndexError(
                f"The batch index {outside[0]} is out of range for {n} samples."
            )
    return batch


def check_parameters(w: Params, data: Any, what: str = "w") -> Params:
    """Return w with jax arrays for parameters, all of float32 or all of float64; its other leaves
    are no arrays.

    Floating-point numbers become arrays of no axes. Arrays that would stay as they are in silence
    are refused. float64 that JAX would cut stays with NumPy. Numbers alone take the width of the
    data. `what` is the name of w in the sentence.
    """
    leaves = [
        (what + _suffix(path), x) for path, x in jax.tree_util.tree_leaves_with_path(w)
    ]
    for name, x in leaves:
        _check_leaf(name, x)
    arrays = [(name, x) for name, x in leaves if isinstance(x, np.ndarray | jax.Array)]
    numbers = [x for _, x in leaves if isinstance(x, float | np.floating)]
    if not numbers and all(x.size == 0 for _, x in arrays):
        hints = [
            f" ({name} is an integer; write {x}.0)"
            for name, x in leaves
            if type(x) is int
        ]
        hint = "".join(hints[:1])
        raise TypeError(
            f"{what} has no parameters: at least one leaf must be a floating-point number or an array of them{hint}."
        )
    for name, x in arrays:
        first, other = arrays[0]
        if x.dtype != other.dtype:
            raise TypeError(
                f"{first} is {other.dtype} and {name} is {x.dtype}; give all parameters one dtype, with .astype."
            )
    return jax.tree.map(_as_leaf, with_arrays(w, data))


def _as_leaf(x: Any) -> Any:
    """Return a leaf of w as it is carried: parameters as jax arrays, integers of NumPy as static
    ones of Python.
    """
    if isinstance(x, np.integer | np.bool_):
        return x.item()
    if is_parameter(x):
        return as_jax(x)
    return x


def _check_leaf(name: str, x: Any) -> None:
    """Raise a sentence where a leaf of w is neither a parameter nor something that is carried
    along.
    """
    if isinstance(x, complex | np.complexfloating) or _is(x, jnp.complexfloating):
        raise TypeError(
            f"The parameter {name} is complex; give its real and imaginary parts as two arrays."
        )
    if isinstance(x, np.ndarray | jax.Array) and not _is(x, jnp.floating):
        raise TypeError(
            f"{name} is an array of {x.dtype}, which cannot be a parameter: convert it with .astype(float), or move it "
            f"out of w."
        )
    if isinstance(x, int) and not -(2**63) <= x < 2**63:
        raise ValueError(
            f"{name} is an integer beyond 64 bits, which JAX does not have; give a smaller floating-point number, or "
            f"move it out of w."
        )
    check_width(name, x)


def check_width(name: str, x: Any) -> None:
    """Raise a sentence where x has floating-point numbers of another width than those that work is
    done in.
    """
    if _is(x, jnp.inexact) and x.dtype not in (
        np.float32,
        np.float64,
        np.complex64,
        np.complex128,
    ):
        raise TypeError(
            f"{name} is {x.dtype}; convert it with .astype to float32 or float64, which are supported."
        )


def _has_tracer(x: Any) -> bool:
    """Return whether a tree has an array that a program traces, of which a repr says nothing to a user."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x))


def _is_array(x: Any) -> bool:
    """Return whether x is an array of NumPy or JAX, or a number of NumPy."""
    return isinstance(x, np.ndarray | np.generic | jax.Array)


def _is(x: Any, kind: Any) -> bool:
    """Return whether x is an array of numbers of a kind."""
    return isinstance(x, np.ndarray | jax.Array) and jnp.issubdtype(x.dtype, kind)


def check_like(tree: Params, w: Params, what: str) -> None:
    """Raise a sentence unless the parameters of tree and w have one structure and the same shapes."""
    mine = parameters(tree)
    theirs = parameters(w)
    if jax.tree.structure(mine) != jax.tree.structure(theirs):
        raise ValueError(f"{what} must have the structure of w; their trees differ.")
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(theirs), jax.tree.leaves(mine), strict=True
    ):
        if x.shape != y.shape:
            raise ValueError(
                f"{what} must have the shapes of w; at w{_suffix(path)} they are {y.shape} and {x.shape}."
            )


def with_jax_arrays(tree: Any) -> Any:
    """Return a map or function with its NumPy arrays as jax arrays, except for float64 that JAX
    would cut.
    """

    def convert(x: Any) -> Any:
        if not isinstance(x, np.ndarray | np.generic) or x.dtype.kind not in "biufc":
            return x
        return as_jax(np.asarray(x))

    return jax.tree.map(convert, tree)


def _check_finite(name: str, x: Any) -> None:
    """Raise a sentence with the first row of x that has a value which is not finite."""
    if not is_concrete(x) or not jnp.issubdtype(x.dtype, jnp.inexact):
        return
    if is_here(x):
        finite = np.isfinite(np.asarray(x))
    else:  # jax asks all processes, and each of them sees the answer
        finite = jnp.isfinite(x)
    bad = ~finite.all(axis=tuple(range(1, x.ndim)))
    if bad.any():
        raise ValueError(
            f"The data leaf {name} has a value that is not finite in row {int(bad.argmax())}."
        )


def _check_integers(name: str, x: Any) -> None:
    """Raise a sentence where JAX, set to 32 bits, would make other whole numbers of those of x."""
    is_long = isinstance(x, np.ndarray) and x.dtype in (np.int64, np.uint64)
    if not is_long or has_x64() or x.size == 0:
        return
    if x.min() < -(2**31) or x.max() > MOST:
        raise ValueError(
            f"The data leaf {name} has whole numbers beyond 32 bits, which JAX would cut; convert it with "
            f".astype(float)."
        )


def _name(path: Any) -> str:
    return "data" + _suffix(path)


def _suffix(path: Any) -> str:
    return jax.tree_util.keystr(path)
