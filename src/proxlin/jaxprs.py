"""A function by what it computes: two functions with the same jaxpr are equal here.

(w, x) -> jnp.exp(-w * x)        written twice, in two lambdas, is one program
(w, x) -> scale @ (w * x)        what it closes over, `scale`, is an argument of the program
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array


class Program:
    """A jaxpr without its constants, compared by its equations."""

    def __init__(self, jaxpr: core.Jaxpr, key: Any):
        self.jaxpr = jaxpr
        self.key = key
        self.hash = hash(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.key == other.key

    def __hash__(self) -> int:
        return self.hash

    def is_affine(self, moving: list[bool]) -> bool:
        """Whether the result is affine in the arguments that move, as far as can be told."""
        return is_affine(self.jaxpr, moving) is not None

    def __repr__(self) -> str:
        return f"Program({len(self.jaxpr.eqns)} equations)"


class Traced(eqx.Module):
    """function(*args), one array, as a program and the arrays that it closes over.

    It is for arguments with the shapes, dtypes and number of arrays that it was traced for.
    """

    program: Program = eqx.field(static=True)
    constants: list[Array]

    def __call__(self, *args: Any) -> Array:
        closed = core.ClosedJaxpr(self.program.jaxpr, self.constants)
        (result,) = core.jaxpr_as_fun(closed)(*jax.tree.leaves(args))
        return result


def traced(function: Callable, *args: Any) -> Traced | None:
    """Return the function as its jaxpr for arguments of these shapes.

    None is returned where a jaxpr does not tell what a function does: if it has side effects, returns
    something else than one array, raises, or if two traces of it differ (they hold functions that
    are made anew, as the rules of `jax.custom_vjp`).
    """
    leaves, treedef = jax.tree.flatten(args)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    run = lambda *leaves: function(*treedef.unflatten(leaves))
    try:
        closed, out = jax.make_jaxpr(run, return_shape=True)(*shapes)
        key = _key_with_rules(run, shapes)
        known = key == _key_with_rules(run, shapes)
    except Exception:
        # Whatever is wrong with the function is said where it is called as it is.
        return None
    one_array = isinstance(out, jax.ShapeDtypeStruct)
    if not known or not one_array or closed.jaxpr.effects:
        return None
    if any(isinstance(x, jax.core.Tracer) for x in closed.consts):
        return None
    constants = [jnp.asarray(x) for x in closed.consts]
    return Traced(Program(closed.jaxpr, key), constants)


def opened(function: Callable, *args: Any) -> Traced | None:
    """Return the function with the traced arrays that it closes over as arrays of its own, or None where
    it closes over none.
    """
    leaves, treedef = jax.tree.flatten(args)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    run = lambda *leaves: function(*treedef.unflatten(leaves))
    try:
        closed, out = jax.make_jaxpr(run, return_shape=True)(*shapes)
    except Exception:
        # Whatever is wrong with the function is said where it is called as it is.
        return None
    within = any(isinstance(x, jax.core.Tracer) for x in closed.consts)
    if not within or not isinstance(out, jax.ShapeDtypeStruct):
        return None
    # It belongs to one trace, and so is equal to no other.
    program = Program(closed.jaxpr, object())
    return Traced(program, [jnp.asarray(x) for x in closed.consts])


RULE = "jvp_jaxpr_fun"  # the rule of a `jax.custom_jvp` in its equation, made anew by every trace
ORDERS = 2  # derivatives that proxlin takes of a user's function, at most


def _key_with_rules(run: Callable, shapes: list) -> Any:
    """Return the key of a function, and where it has rules of its own for derivatives (jax.nn.relu
    has), the keys of the derivatives that these rules lead to.
    """
    closed = _trace(run, shapes)
    keys = [_key_of_jaxpr(closed.jaxpr)]
    for _ in range(ORDERS):
        if "custom_jvp_call" not in str(closed.jaxpr):
            break
        run, shapes = _derivative(run, shapes)
        closed = _trace(run, shapes)
        keys.append(_key_of_jaxpr(closed.jaxpr))
    return tuple(keys)


def _trace(run: Callable, shapes: list) -> core.ClosedJaxpr:
    """Trace a function object of its own, as JAX remembers the traces of one that it knows."""
    return jax.make_jaxpr(lambda *leaves: run(*leaves))(*shapes)


def _derivative(run: Callable, shapes: list) -> tuple[Callable, list]:
    """Return the function with its derivative along a direction, and the shapes of its arguments."""
    moving = [i for i, x in enumerate(shapes) if jnp.issubdtype(x.dtype, jnp.floating)]

    def both(*leaves: Any) -> Any:
        at = leaves[: len(shapes)]

        def along(*moved: Any) -> Any:
            new = list(at)
            for i, x in zip(moving, moved, strict=True):
                new[i] = x
            return run(*new)

        points = tuple(at[i] for i in moving)
        return jax.jvp(along, points, leaves[len(shapes) :])

    return both, [*shapes, *(shapes[i] for i in moving)]


def _key_of_jaxpr(jaxpr: core.Jaxpr) -> Any:
    """Return something hashable that is equal for two jaxprs if and only if they compute the same,
    equation by equation. Variables are numbered in the order in which they appear.
    """
    numbers: dict[Any, int] = {}

    def define(variable: Any) -> Any:
        numbers[variable] = len(numbers)
        return _key_of_aval(variable.aval)

    def use(atom: Any) -> Any:
        if isinstance(atom, core.Literal):
            return _key_of_aval(atom.aval), _key_of(atom.val)
        return numbers[atom]

    inputs = tuple(define(v) for v in (*jaxpr.constvars, *jaxpr.invars))
    equations = []
    for equation in jaxpr.eqns:
        arguments = tuple(use(atom) for atom in equation.invars)
        settings = tuple(
            (name, _key_of(x)) for name, x in equation.params.items() if name != RULE
        )
        results = tuple(define(variable) for variable in equation.outvars)
        equations.append((equation.primitive, arguments, settings, results))
    outputs = tuple(use(atom) for atom in jaxpr.outvars)
    return len(jaxpr.constvars), inputs, tuple(equations), outputs


# What keeps a function affine in an argument: at most one factor may depend on it.
PRODUCTS = {"mul", "dot_general", "div"}
LINEAR = {
    *(
        "add",
        "sub",
        "neg",
        "add_any",
        "reduce_sum",
        "cumsum",
        "convert_element_type",
        "copy",
    ),
    *("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "rev"),
    *(
        "slice",
        "concatenate",
        "pad",
        "gather",
        "dynamic_slice",
        "split",
        "stop_gradient",
    ),
}


def is_affine(jaxpr: core.Jaxpr, moving: list[bool]) -> list[bool] | None:
    """Return which results depend on the arguments that move, or None unless all do so in an affine
    way, as far as the names of the operations tell.
    """
    depends = {v for v, moves in zip(jaxpr.invars, moving, strict=True) if moves}

    def moves(atom: Any) -> bool:
        return not isinstance(atom, core.Literal) and atom in depends

    for equation in jaxpr.eqns:
        touched = [moves(atom) for atom in equation.invars]
        if not any(touched):
            continue
        results = _affine_step(equation, touched)
        if results is None:
            return None
        depends.update(
            v for v, touched in zip(equation.outvars, results, strict=True) if touched
        )
    return [moves(atom) for atom in jaxpr.outvars]


def _affine_step(equation: Any, touched: list[bool]) -> list[bool] | None:
    """Return which results of one operation depend on what moves; None if that is not affine."""
    name = equation.primitive.name
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    if name in ("jit", "pjit", "custom_jvp_call") and inner is not None:
        return is_affine(getattr(inner, "jaxpr", inner), touched)
    one_factor = sum(touched) == 1 and not (name == "div" and touched[1])
    # The positions in a gather are whole numbers, which do not move.
    if name in LINEAR or (name in PRODUCTS and one_factor):
        return [True] * len(equation.outvars)
    return None


def _key_of_aval(aval: Any) -> Any:
    return str(aval), aval.weak_type


def _key_of(x: Any) -> Any:
    """Return the key of a setting of an equation."""
    if isinstance(x, core.ClosedJaxpr):
        return _key_of_jaxpr(x.jaxpr), tuple(_key_of(each) for each in x.consts)
    if isinstance(x, core.Jaxpr):
        return _key_of_jaxpr(x)
    if isinstance(x, np.ndarray | np.generic | jax.Array):
        value = np.asarray(x)
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(x, float):
        return "float", x.hex()
    if isinstance(x, tuple | list):
        return type(x), tuple(_key_of(each) for each in x)
    if isinstance(x, dict):
        return type(x), tuple((_key_of(key), _key_of(x[key])) for key in x)
    hash(
        x
    )  # What cannot be hashed raises here, and the function is then taken as it is.
    return type(x), x
