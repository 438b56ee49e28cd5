"""Compile once, call often, and know the seconds of a call without those of its compilation."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.sharding import NamedSharding, PartitionSpec

_CACHE: dict[Any, Any] = {}
_LIMIT = 512


class Calls:
    """function(*fixed, *args) and its seconds; arrays are arguments, all else is structure.

    Compiling is untimed. A function must be hashable and return arrays alone. What is fixed is looked at once, and the
    args of a function at its first call alone: they keep their structure and shapes, as the state of a solver does.
    """

    def __init__(self, *fixed: Any):
        self.fixed, self.leaves, self.known = fixed, _split(fixed)[0], {}

    def __call__(self, function: Callable, *args: Any) -> tuple[Any, float]:
        if function not in self.known:
            leaves, structure = _split((*self.fixed, *args))
            key = (function, *_key(leaves, *structure))
            self.known[function] = _remembered(key, lambda: _compile(function, leaves, *structure))
        call, leaves = self.known[function], [*self.leaves, *filter(eqx.is_array, jax.tree.leaves(args))]
        start = time.perf_counter()
        result = call(leaves)
        for leaf in jax.tree.leaves(result):  # as jax.block_until_ready, which does more around it
            leaf.block_until_ready()
        return result, time.perf_counter() - start


def of_shapes(function: Callable, *args: Any) -> Any:
    """function(*args), which depends on the shapes and the structure of its arguments alone: found once for each."""
    leaves, structure = _split(args)
    return _remembered((function, *_key(leaves, *structure)), lambda: function(*args))


def _split(args: Any) -> tuple[list, tuple[Any, Any]]:
    dynamic, static = eqx.partition(args, eqx.is_array)
    leaves, treedef = jax.tree.flatten(dynamic)
    return leaves, (treedef, static)


def _key(leaves: list, treedef: Any, static: Any) -> tuple:
    shapes = tuple((x.aval, x.sharding) for x in leaves)
    fixed, fixed_def = jax.tree.flatten(static)
    return shapes, treedef, tuple(fixed), fixed_def, jax.config.read("jax_enable_x64")


def _remembered(key: Any, make: Callable[[], Any]) -> Any:
    try:
        if key in _CACHE:
            return _CACHE[key]
    except TypeError:  # structure that cannot be compared, such as a numpy array in a static field: no reuse
        return make()
    if len(_CACHE) >= _LIMIT:
        _CACHE.pop(next(iter(_CACHE)))
    _CACHE[key] = make()
    return _CACHE[key]


def _compile(function: Callable, leaves: list, treedef: Any, static: Any) -> Callable:
    def run(leaves: list) -> Any:
        return function(*eqx.combine(treedef.unflatten(leaves), static))

    return jax.jit(run, out_shardings=_everywhere(leaves)).lower(leaves).compile()


def _everywhere(leaves: list) -> NamedSharding | None:
    """Whole on every device, so that each process can read it, where an argument lies on several of them."""
    meshes = [x.sharding.mesh for x in leaves if isinstance(x.sharding, NamedSharding)]
    return NamedSharding(meshes[0], PartitionSpec()) if meshes and meshes[0].size > 1 else None
