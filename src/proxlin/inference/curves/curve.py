"""A curve f(x, *w) as an inner map, and the sentences for a function that JAX cannot trace.

    phi_i(w) = (f(x, *w)_i - y_i) / sigma_i

f sees all of x at once, as in scipy, and is evaluated once for all points.
"""

import re
import traceback
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.errors
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...slips import BRANCH, CAUSES, JNP, MASK, WRAPPED

NUMPY = re.compile(r"\b(np|numpy|math|scipy(?:\.\w+)*|sp)\.(\w+)\s*\(")


class Curve(eqx.Module):
    """phi(w, (i, y_i)) = (f(x, *w) / sigma)_i - y_i, where y is divided by sigma already.

    `sigma` is None, the deviations (m,), or the Cholesky factor (m, m) of a covariance.
    """

    f: Callable = eqx.field(static=True)
    x: Any
    sigma: Any
    points: int = eqx.field(static=True)

    def __call__(self, w: Float[Array, " d"], row: Any) -> Array:
        i, y = row
        return _point(self, w, i) - y

    def heights(self, w: Float[Array, " d"]) -> Float[Array, " m"]:
        """Return f(x, *w) / sigma at all points."""
        found = jnp.asarray(self.f(self.x, *w)).astype(w.dtype)
        found = jnp.broadcast_to(found, (self.points,))
        if self.sigma is None:
            return found
        if self.sigma.ndim == 1:
            return found / self.sigma
        return jax.scipy.linalg.solve_triangular(self.sigma, found, lower=True)

    def jacobian(self, w: Float[Array, " d"]) -> Float[Array, "m d"]:
        return jax.jacfwd(self.heights)(w)


@jax.custom_jvp
def _point(curve: Curve, w: Array, i: Array) -> Array:
    """Return the height of one point."""
    return curve.heights(w)[i]


@_point.defjvp
def _point_moved(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """Take the derivative forward, one column for each of the few parameters. Backward it would be
    one row for each point, of a function of all points. (x and sigma do not move.)
    """
    curve, w, i = primals
    _, along, _ = tangents
    return _point(curve, w, i), curve.jacobian(w)[i] @ along


# ------------------------------------------------------------------------------------------- traces


def traced_shape(f: Callable, x: Any, count: int, named: str) -> tuple[int, ...]:
    """Return the shape of f(x, *w) for `count` parameters, or raise a sentence where JAX cannot
    trace it; `named` says where the count comes from.
    """
    number = jax.ShapeDtypeStruct((), jnp.result_type(float))
    try:
        found = jax.eval_shape(lambda x, w: f(x, *w), x, [number] * count)
    except Exception as error:
        sentence = _sentence(error, f, count, named)
        if sentence is None:
            raise
        raise TypeError(sentence) from error
    if not isinstance(found, jax.ShapeDtypeStruct):
        kind = "None" if found is None else f"a {type(found).__name__}"
        raise TypeError(
            f"f must return one array, a number for each point; it returned {kind}: "
            f"end it with a return of one array, such as jnp.stack([...])."
        )
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise TypeError(
            f"f must return real floating-point numbers; it returned {found.dtype}."
        )
    return found.shape


def _sentence(error: Exception, f: Callable, count: int, named: str) -> str | None:
    """Say in one sentence why f raised an error in its trace, or return None where it is none of
    JAX or Python.
    """
    is_of_jax = type(error).__module__.startswith("jax")
    if not is_of_jax and type(error) not in WRAPPED:
        return None
    text = (str(error).splitlines() or [""])[0].rstrip(".")
    if re.search(r"positional argument|unexpected keyword", text):
        many = "1 parameter" if count == 1 else f"{count} parameters"
        return (
            f"f is called as f(xdata, *params) with {many}, {named}; it said: {text}."
        )
    line = _line(error)
    calls = NUMPY.search(line)
    causes = [cause for pattern, cause in CAUSES if re.search(pattern, text)]
    cause = causes[0] if causes else None
    is_numpy = isinstance(error, jax.errors.TracerArrayConversionError)
    if is_numpy or (cause is JNP) or (calls and is_of_jax and cause is not BRANCH):
        return _numpy_sentence(line, calls)
    where = f" in `{line}`" if line else ""
    start = f"f(xdata, *params) cannot be traced by JAX{where}"
    if cause in (BRANCH, MASK):
        return f"{start}: {cause}."
    return f"{start}: {type(error).__name__}, {text[:200]}."


def _numpy_sentence(line: str, calls: re.Match | None) -> str:
    """Say how to write a function of NumPy so that JAX can differentiate it."""
    old = "np.exp"
    new = "jnp.exp"
    if calls is not None:
        old = f"{calls[1]}.{calls[2]}"
        home = "jax.scipy.special" if calls[1].startswith(("sc", "sp")) else "jnp"
        new = f"{home}.{calls[2]}"
    where = f" in `{line}`" if line else ""
    return (
        f"f calls a function of NumPy{where}, which JAX cannot differentiate: write `import jax.numpy as jnp`, "
        f"and {new}(...) in place of {old}(...)."
    )


def _line(error: Exception) -> str:
    """Return the line of the user's function in which the error was raised, or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [
        frame.line
        for frame in frames
        if not re.search(
            r"[/\\](jax|jaxlib|numpy|scipy|equinox|proxlin)[/\\]", frame.filename
        )
    ]
    line = (outside[-1] or "") if outside else ""
    return line.strip()[:120]
