"""float64 while JAX is set to float32: where the scope of 64 bits is opened, and what is cut.

    JAX has x64                                   nothing here does anything
    w is float64, or numbers beside float64 data  the work is done in a scope of x64
    float32 jax arrays in w or in the data        the work is done in float32, and a warning says so

Outside of such a scope JAX would cut every jax array of float64 that it touches. So float64 numbers
at rest (data, weights, settings, answers) are arrays of NumPy, and a scope makes jax arrays of them.
"""

import contextlib
import copy
import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .types import has_x64, is_concrete, is_here, on_device

P = ParamSpec("P")
R = TypeVar("R")

WIDE = (np.float64, np.complex128)


class PrecisionWarning(UserWarning):
    """The warning that float64 numbers were given, but the work is done in float32, because other
    arrays are.

    See Also
    --------
    minimize, solve : may warn so.

    Examples
    --------
    >>> import warnings
    >>> import proxlin as px
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", px.PrecisionWarning)  # float32 will do
    ...     pass  # px.minimize(problem, w)
    """


def is_wide(x: Any) -> bool:
    """Return whether x is an array of float64 or complex128, of NumPy or of JAX."""
    return isinstance(x, np.ndarray | jax.Array) and x.dtype in WIDE


def scope(wide: bool) -> contextlib.AbstractContextManager:
    """Return a scope of x64 if there is anything wide, else one that changes nothing."""
    if wide and not has_x64():
        return jax.enable_x64(True)
    return contextlib.nullcontext()


def as_jax(x: Any) -> Any:
    """Return an array of NumPy as a jax array, except for float64 that JAX would cut: that stays."""
    if has_x64() or not is_wide(x):
        return (
            on_device(x) if isinstance(x, np.ndarray | np.generic) else jnp.asarray(x)
        )
    if isinstance(x, jax.Array) and is_concrete(x) and _is_in_one_place(x):
        return np.asarray(x)
    return x


def at_rest(tree: Any) -> Any:
    """Return a tree as it leaves a scope of x64: its arrays of 64 bits are NumPy's, with a copy of
    their numbers.
    """
    return jax.tree.map(_leaf_at_rest, tree)


def _leaf_at_rest(x: Any) -> Any:
    if isinstance(x, jax.Array):
        is_number = jnp.issubdtype(x.dtype, jnp.number)
        if is_number and x.dtype.itemsize >= 8 and is_here(x):
            return np.array(x)
        return x
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        rested = copy.copy(x)
        for field in dataclasses.fields(x):
            object.__setattr__(rested, field.name, at_rest(getattr(x, field.name)))
        return rested
    return x


def _is_in_one_place(x: jax.Array) -> bool:
    return is_here(x) and len(x.devices()) == 1


def in_the_precision_of_w(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate function(problem, w, ...) so that it runs in a scope of x64 where w asks for it.

    It then gets a problem and a w of jax arrays, all that was float64 in the precision of the work.
    What it returns is at rest.
    """
    first, second, *_ = inspect.signature(function).parameters

    @functools.wraps(function)
    def run(*args: P.args, **settings: P.kwargs) -> R:
        given = dict(zip((first, second), args, strict=False)) | settings
        if has_x64() or first not in given or second not in given:
            return function(*args, **settings)  # which says what is missing
        problem = given[first]
        w = given[second]
        wide = _is_work_wide(problem, w)
        if not wide:
            _warn_of_cuts(problem, w)
        with scope(wide):
            taken: Any = jax.tree.map(_taken_up, args)
            named: Any = {
                name: x if _is_named_functions(x) else jax.tree.map(_taken_up, x)
                for name, x in settings.items()
            }
            answer = function(*taken, **named)  # pyright: ignore[reportCallIssue]
            if wide:
                return at_rest(answer)
            return answer

    return run


def _is_named_functions(x: Any) -> bool:
    """Return whether x is a dict such as metrics, whose keys need not be those of a tree."""
    return isinstance(x, Mapping) and any(callable(each) for each in x.values())


def _taken_up(x: Any) -> Any:
    """Return an array that was at rest as a jax array, in the precision of the scope."""
    if isinstance(x, np.ndarray) and x.dtype in WIDE:
        return on_device(x)
    if is_wide(x) and is_concrete(x) and not has_x64():
        narrow = np.complex64 if x.dtype == np.complex128 else np.float32
        with scope(True):  # else JAX would warn of a dtype that it has not
            return x.astype(narrow)
    return x


def _is_work_wide(problem: Any, w: Any) -> bool:
    """Return whether the work is to be done in float64, while JAX is set to float32."""
    if not is_concrete((problem, w)):
        return False
    parameters = _floating(w)
    rows = _floating(_data_of(problem))
    meets_float32 = any(_is_float32_of_jax(x) for x in rows)
    wide = [x for x in parameters if is_wide(x)]
    if any(isinstance(x, jax.Array) for x in wide):
        return True
    if wide:
        mixed = any(_is_float32_of_jax(x) for x in parameters)
        return not mixed and not meets_float32
    if parameters:
        return False
    # numbers alone have no width of their own: they take that of the data
    is_number = any(isinstance(x, float) for x in jax.tree.leaves(w))
    return is_number and any(is_wide(x) for x in rows) and not meets_float32


def _warn_of_cuts(problem: Any, w: Any) -> None:
    """Warn of the first array of float64 that is cut, and say what it met."""
    if not _floating(w) and not any(isinstance(x, float) for x in jax.tree.leaves(w)):
        return  # there is nothing to work on, and a sentence says so
    inner = getattr(problem, "inner", None)
    named = {"w": w, "data": _data_of(problem), "the inner map": inner}
    for name, tree in named.items():
        for path, x in jax.tree_util.tree_leaves_with_path(tree):
            if is_wide(x):
                suffix = jax.tree_util.keystr(path)
                met = _met(problem, w)
                warnings.warn(
                    f"The work is done in float32, because {met} is: the {x.dtype} numbers of "
                    f"{name}{suffix} are cut. Give all of it as NumPy float64, or call "
                    f'jax.config.update("jax_enable_x64", True) first, to work in float64.',
                    PrecisionWarning,
                    stacklevel=3,
                )
                return


def _met(problem: Any, w: Any) -> str:
    """Return the name of the array for which the work is done in float32."""
    for name, tree in {"w": w, "data": _data_of(problem)}.items():
        for path, x in jax.tree_util.tree_leaves_with_path(tree):
            if isinstance(x, np.ndarray | jax.Array) and x.dtype == np.float32:
                return name + jax.tree_util.keystr(path)
    return "JAX"


def _data_of(problem: Any) -> Any:
    # what is no problem at all is refused in a sentence of the function itself
    return getattr(problem, "data", None)


def _floating(tree: Any) -> list[Any]:
    """Return the arrays of a tree with floating-point numbers."""
    return [
        x
        for x in jax.tree.leaves(tree)
        if isinstance(x, np.ndarray | jax.Array)
        and jnp.issubdtype(x.dtype, jnp.inexact)
    ]


def _is_float32_of_jax(x: Any) -> bool:
    return isinstance(x, jax.Array) and x.dtype == np.float32
