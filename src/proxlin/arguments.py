"""Settings, each checked to be what it must be, or refused in a sentence that names it."""

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
    if isinstance(x, type) or callable(x):
        return f"{type(x).__name__} {getattr(x, '__name__', '')}".strip()
    if isinstance(x, int) and abs(x) > 10**30:
        return "int of more than 30 digits"
    return f"{type(x).__name__} {x!r}".splitlines()[0][:60]


def real(x: Any, name: str, *, low: float = -math.inf, open: bool = False) -> float:
    """x as a Python float, or a sentence unless it is one real number, finite and at least low (above it if open)."""
    is_array = isinstance(x, np.ndarray | np.generic | jax.Array)
    good = isinstance(x, int | float) or (is_array and jnp.issubdtype(x.dtype, jnp.number) and x.ndim == 0)
    if not good or isinstance(x, bool) or (is_array and jnp.issubdtype(x.dtype, jnp.complexfloating)):
        raise ValueError(f"{name} must be one real number; it is {described(x)}.")
    try:
        value = float(x)
    except OverflowError:
        value = math.inf
    if not (low < value < math.inf or (value == low and not open)):
        bound = "" if low == -math.inf else f"{'above' if open else 'at least'} {low:g} and "
        raise ValueError(f"{name} must be {bound}finite; it is {value}.")
    return value


def whole(x: Any, name: str, *, low: int = 1, high: float | int = MOST) -> int:
    """x as a Python integer, or a sentence unless it is a whole number from low to high; 3.0 is one.

    >>> whole(np.int32(3), "batch_size")
    3
    """
    value = x
    if isinstance(x, np.ndarray | np.generic | jax.Array) and x.ndim == 0 and jnp.issubdtype(x.dtype, jnp.number):
        value = x.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bounds = f"of at least {low}" if high == math.inf else f"from {low} to {high}"
        raise ValueError(f"{name} must be a whole number {bounds}; it is {described(x)}.")
    return value


def flag(x: Any, name: str) -> bool:
    """x as a Python bool, or a sentence unless it is one."""
    if not isinstance(x, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; it is {described(x)}.")
    return bool(x)


def one_of(x: Any, name: str, known: Iterable[str]) -> str:
    """x, or a sentence unless it is one of the known words."""
    known = tuple(known)
    if not isinstance(x, str) or x not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; it is {described(x)}.")
    return x


def check_seed(seed: Any) -> int:
    """Return the seed, or raise a sentence unless it is a whole number of 32 bits, which no platform cuts."""
    return whole(seed, "seed", low=0, high=2**32 - 1)


def one_number(x: Any, name: str) -> float:
    """Return what a user's function said as a float, or raise a sentence unless it is one real number."""
    if np.shape(x) != () or np.iscomplexobj(x) or not isinstance(x, int | float | np.generic | np.ndarray | jax.Array):
        raise TypeError(f"{name} must return one number; it returned {described(x)}.")
    return float(x)
