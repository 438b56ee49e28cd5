"""Classic slips in a user's own function: what it was given, what came out, and the likely cause.

JAX speaks of tracers and axes; these sentences speak of rows, of px.residual and of jax.numpy.
"""

import re
from types import TracebackType
from typing import Any

import jax
import jax.errors
import numpy as np

from .types import Params

# What a slip raises. Other errors, and subclasses that a user has made, go through as they are.
WRAPPED = (TypeError, ValueError, IndexError, KeyError, AttributeError)

JNP = "it gives traced numbers to a function of NumPy or Python; take that of jax.numpy, such as jnp.exp"
BRANCH = (
    "a Python if, and, max or while asks for a number that is not there yet; take jnp.where(condition, a, b) or "
    "jnp.maximum"
)
BATCH = "it seems to be written for a batch of rows; write it for ONE row, as proxlin maps it over all of them"
RESIDUAL = "it gets the whole sample, a tuple: wrap predict(w, x) as px.residual(predict), or unpack x, y = sample"
COLUMNS = "a row is a jax array without names; give data as a dict of columns to use names, such as x['age']"
MASK = "x[mask] has a length that depends on the numbers; take jnp.where(mask, x, 0)"
SHAPES = "the shapes do not fit; look at those of w and of ONE row"
ARGUMENTS = "it must be a function of these two arguments, in this order"

CALL = r"positional argument|unexpected keyword argument"
# A word of the message, and the cause that it speaks of; the first that is found counts.
CAUSES = (
    (CALL, ARGUMENTS),
    (r"__array__\(\)|__index__\(\)|Abstract tracer value|\.__format__", JNP),
    (r"boolean conversion", BRANCH),
    (r"boolean indices must be concrete", MASK),
    (r"immutable", "write x = x.at[i].set(value) in place of x[i] = value"),
    (r"string indexing|'str' object|string indices", COLUMNS),
    (r"has no attribute", COLUMNS),
    (r"axis \S+ is out of bounds|[Tt]oo many indices|tuple index out of range", BATCH),
    (r"ndim at least 1|rank should be at least 1|over a 0-d array", BATCH),
    (r"different numbers of dimensions", BATCH),
    (r"got <class '(list|tuple)'>", "make an array of the list first, jnp.stack([...])"),
    (r"contracting dimensions|broadcast|reshape|mismatch|matmul", SHAPES),
)  # fmt: skip


def explained(
    error: Exception, function: Any, who: str, name: str, w: Params, given: Any
) -> Exception | None:
    """Return an error that says in one sentence why function(w, given) raised this one, or None where
    that is no slip, or has a sentence of ours already.

    `who` and `name` are what the sentence calls the function and its second argument.
    """
    is_of_jax = type(error).__module__.startswith("jax")
    if not is_of_jax and type(error) not in WRAPPED:
        return None
    text = _first_line(error)
    is_call = re.search(CALL, text) is not None
    # Python raises an error of a call where the call is, which is a line of ours.
    if not is_call and _is_ours(error.__traceback__):
        return None
    cause = _cause(error, text, given)
    what = f"{who}{_called(function)} got w {_shapes(w)} and {_row(name, given)}"
    kind = "an error of JAX" if is_of_jax else type(error).__name__
    sentence = f"{what}, and raised {kind} ({text}): {cause}."
    if isinstance(error, TypeError | AttributeError):
        return TypeError(sentence)
    return ValueError(sentence)


def returned(function: Any, who: str, name: str, given: Any, answer: Any) -> str:
    """Say what a function of one row returned, in place of a real vector, and what to do."""
    start = f"{who}{_called(function)} must return a real vector (k,) or one number for one sample"
    if isinstance(answer, np.ndarray | jax.Array):
        found = f"an array of shape {answer.shape} and {answer.dtype}"
        return f"{start}; it got {_row(name, given)} and returned {found}: ravel it, or {BATCH.partition('; ')[2]}."
    if answer is None:
        return f"{start}; it returned None: end it with a return."
    if isinstance(answer, list | tuple):
        return f"{start}; it returned a {type(answer).__name__}: join its parts by jnp.stack or jnp.concatenate."
    return f"{start}; it returned {type(answer).__name__}."


def _cause(error: Exception, text: str, given: Any) -> str:
    if isinstance(given, tuple) and re.search(r"'?tuple'?|sequence", text):
        return RESIDUAL
    if isinstance(error, KeyError) and isinstance(given, dict):
        return f"the sample has the names {sorted(given)}"[:120]
    for pattern, cause in CAUSES:
        if re.search(pattern, text):
            if cause is SHAPES and isinstance(given, tuple):
                return RESIDUAL
            return cause
    return "the error above this one shows the line"


def _first_line(error: Exception) -> str:
    """Return the first line of a message without its end, short enough for a sentence."""
    lines = str(error).splitlines() or [""]
    text = re.split(r"\. |: traced array", lines[0])[0].rstrip(".:")
    return re.sub(r"\w*Tracer\b", "traced array", text)[:100]


def _is_ours(trace: TracebackType | None) -> bool:
    """Return whether the error was raised by a line of proxlin, which has a sentence already."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals.get("__name__", "").startswith("proxlin.")


def _called(function: Any) -> str:
    """Return the name of a function in brackets, where it has one that says something."""
    name = getattr(function, "__name__", type(function).__name__)
    if not isinstance(name, str) or name in ("<lambda>", "predict", "Inner"):
        return ""
    return f" ({name[:40]})"


def _row(name: str, given: Any) -> str:
    if isinstance(given, np.ndarray | jax.Array):
        return f"ONE row {name} {_shapes(given)}"
    return f"ONE sample {_shapes(given)}"


def _shapes(tree: Any) -> str:
    """Return the shapes of a tree in a few words."""
    if isinstance(tree, np.ndarray | jax.Array):
        return f"of shape {tree.shape}"
    if isinstance(tree, dict | list | tuple):
        shapes = jax.tree.map(_shape, tree)
        return f"of shapes {shapes}".replace("'", "").replace('"', "")[:80]
    return f"of the type {type(tree).__name__}"


def _shape(x: Any) -> str:
    if isinstance(x, np.ndarray | jax.Array):
        return str(x.shape)
    return type(x).__name__
