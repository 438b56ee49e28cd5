"""Compile once, call often, and know the seconds of a call without those of its compilation."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

_CACHE: dict[Any, Callable] = {}
_LIMIT = 256


def timed(function: Callable, *args: Any) -> tuple[Any, float]:
    """function(*args) and its seconds; numbers and arrays are arguments, all else is structure. Compiling is untimed.

    The function must be hashable and return arrays alone.
    """
    dynamic, static = eqx.partition(args, eqx.is_array)
    leaves, treedef = jax.tree.flatten(dynamic)
    call = _compile(function, leaves, treedef, static)
    start = time.perf_counter()
    result = jax.block_until_ready(call(leaves))
    return result, time.perf_counter() - start


def _compile(function: Callable, leaves: list, treedef: Any, static: Any) -> Callable:
    shapes = tuple((x.aval, x.sharding) for x in leaves)
    fixed, fixed_def = jax.tree.flatten(static)
    x64 = jax.config.read("jax_enable_x64")
    try:
        key = (function, shapes, treedef, tuple(fixed), fixed_def, x64)
        hash(key)
    except TypeError:  # structure that cannot be compared, such as a numpy array in a static field: no reuse
        key = None
    if key is not None and key in _CACHE:
        return _CACHE[key]

    def run(leaves: list) -> Any:
        return function(*eqx.combine(treedef.unflatten(leaves), static))

    call = jax.jit(run).lower(leaves).compile()
    if key is not None:
        if len(_CACHE) >= _LIMIT:
            _CACHE.pop(next(iter(_CACHE)))
        _CACHE[key] = call
    return call
