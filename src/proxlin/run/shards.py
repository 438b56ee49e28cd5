"""A computation inside of `jax.shard_map`, where each device has a problem of its own.

shard_map gives every array a type that says over which axes of the mesh it varies, and wants the carries of
all loops and all cotangents to have the types of what they meet. It also sums a gradient over the devices
where its parameters vary less than the data: a run whose start is the same everywhere would follow the gradient of
all devices. What happens on one device needs none of this, so it is traced without these types, as one primitive.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.extend.core
import jax.numpy as jnp
from jax.interpreters import batching, mlir
from jaxtyping import Array

_apart = jax.extend.core.Primitive("proxlin_apart")
_apart.multiple_results = True


def on_one_device(function: Callable, *args: Any) -> Any:
    """Return function(*args), whose loops need not say what varies over devices. It has no derivative."""
    axes = _varying(args)
    if not axes:
        return function(*args)
    arrays, rest = eqx.partition(args, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)
    kept = []

    def flat(*leaves: Array) -> list[Array]:
        out = function(*eqx.combine(treedef.unflatten(leaves), rest))
        found, others = eqx.partition(out, eqx.is_array)
        found, structure = jax.tree.flatten(found)
        kept.append((structure, others))
        return found

    jaxpr = jax.make_jaxpr(flat)(*_without_axes(leaves))
    found = _apart.bind(*leaves, jaxpr=jaxpr)
    structure, others = kept[-1]
    return eqx.combine(structure.unflatten(_spread(found, axes)), others)


def varying_alike(tree: Any) -> Any:
    """Return the tree with arrays that vary over the same axes: those over which any of them does."""
    axes = _varying(tree)
    if not axes:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)
    return eqx.combine(treedef.unflatten(_spread(leaves, axes)), rest)


def _axes_of(x: Any) -> frozenset:
    """Return the axes over which an array varies; JAX has had two names for them."""
    aval = jax.typeof(x)
    kind = getattr(aval, "mat", None)
    if kind is not None:
        return frozenset(kind.varying)
    return frozenset(getattr(aval, "vma", ()))


def _varying(tree: Any) -> tuple[str, ...]:
    found = [_axes_of(x) for x in jax.tree.leaves(tree) if eqx.is_array(x)]
    return tuple(sorted(frozenset().union(*found)))


def _spread(leaves: Sequence[Array], axes: tuple[str, ...]) -> list[Array]:
    """Let each array vary over all of these axes."""

    def one(x: Array) -> Array:
        missing = tuple(axis for axis in axes if axis not in _axes_of(x))
        if not missing:
            return x
        return jax.lax.pcast(x, missing, to="varying")

    return [one(x) for x in leaves]


def _without_axes(leaves: Sequence[Array]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(jnp.shape(x), x.dtype) for x in leaves]


@_apart.def_abstract_eval
def _shapes(*args: Any, jaxpr: Any) -> Any:
    return jaxpr.out_avals


@_apart.def_impl
def _computed(*args: Any, jaxpr: Any) -> Any:
    return jax.jit(jax.extend.core.jaxpr_as_fun(jaxpr))(*args)


def _batched(args: Any, axes: Any, *, jaxpr: Any) -> Any:
    # The primitive of a batch is traced from shapes again, as the types of batches have axes too.
    function = jax.vmap(jax.extend.core.jaxpr_as_fun(jaxpr), in_axes=tuple(axes))
    many = jax.make_jaxpr(function)(*_without_axes(args))
    found = _apart.bind(*args, jaxpr=many)
    return found, [0] * len(found)


def _lowered(context: Any, *args: Any, jaxpr: Any) -> Any:
    without = context.replace(avals_in=jaxpr.in_avals, avals_out=jaxpr.out_avals)
    function = jax.extend.core.jaxpr_as_fun(jaxpr)
    return mlir.lower_fun(function, multiple_results=True)(without, *args)


batching.primitive_batchers[_apart] = _batched
mlir.register_lowering(_apart, _lowered)
