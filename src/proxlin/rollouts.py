"""Controlled dynamics: x_{t+1} = dynamics(x_t, u_t), rolled out from x_0, and its derivatives stage by stage."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .checks import check_numbers, described
from .compiled import shapes_of
from .inners import TracedInner, check_function, traced_inner
from .types import Params, as_dtype, is_concrete


def rollout(dynamics: Callable, controls: Any, x0: Any) -> Float[Array, "T_and_1 s"]:
    """Return the states x_0, x_1 = dynamics(x_0, u_0), ..., x_T = dynamics(x_{T-1}, u_{T-1}).

    Parameters
    ----------
    dynamics : a function of (x, u)
        The next state, an array like x.
    controls : an array (T, m)
        u_0, ..., u_{T-1}, a row for each stage.
    x0 : an array (s,)
        The first state; it is computed with in the precision of the controls.

    Returns
    -------
    an array (T + 1, s)
        The states, x0 first.

    Raises
    ------
    TypeError
        dynamics is no function, or controls or x0 hold no numbers.
    ValueError
        controls or x0 have another number of axes, there is no stage, or dynamics returns another
        shape than that of a state.

    See Also
    --------
    Trajectory : the problem of choosing the controls.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> push = lambda x, u: jnp.array([x[0] + 0.5 * x[1], x[1] + 0.5 * u[0]])
    >>> px.rollout(push, jnp.ones((2, 1)), jnp.zeros(2)).tolist()
    [[0.0, 0.0], [0.0, 0.5], [0.25, 1.0]]
    """
    check_function(dynamics, "dynamics", "(x, u)")
    check_numbers(controls, "controls")
    controls = jnp.asarray(controls)
    if not jnp.issubdtype(controls.dtype, jnp.floating):
        controls = controls.astype(jnp.result_type(float))
    x0 = checked_start(x0)
    check_controls(controls)
    return states(dynamics, controls, jnp.asarray(x0))


def states(dynamics: Callable, controls: Array, x0: Array) -> Float[Array, "T_and_1 s"]:
    """Return x_0, ..., x_T for controls and a state that were checked."""
    x0 = x0.astype(controls.dtype)

    def step(x: Array, u: Array) -> tuple[Array, Array]:
        new = next_state(dynamics, x, u)
        return new, new

    _, after = jax.lax.scan(step, x0, controls)
    return jnp.concatenate([x0[None], after])


def next_state(dynamics: Callable, x: Array, u: Array) -> Array:
    """Return dynamics(x, u), or raise a sentence where that is no state."""
    new = dynamics(x, u)
    if not eqx.is_array(new) or new.shape != x.shape:
        raise ValueError(
            f"dynamics(x, u) must return the next state, an array of shape {x.shape} like x; it returned "
            f"{described(new)}{_hint(new)}."
        )
    if not jnp.issubdtype(new.dtype, jnp.floating):
        raise ValueError(
            f"dynamics(x, u) must return real floating-point numbers, which have a derivative; it returned {new.dtype}."
        )
    _check_width("dynamics(x, u)", new, x)
    return new.astype(x.dtype)


def _check_width(name: str, new: Array, x: Array) -> None:
    """Raise a sentence where a user's function computes in 16 bits what was given in more."""
    if new.dtype.itemsize < min(4, x.dtype.itemsize):
        raise ValueError(
            f"{name} must return numbers of float32 or float64; it returned {new.dtype}, whose rounding the certified "
            f"gap does not see: compute in the dtype of x."
        )


def _hint(new: Any) -> str:
    if isinstance(new, list | tuple):
        return ": make one array of it, jnp.stack([...])"
    return ""


def checked_start(x0: Any) -> Any:
    """Return x0 as an array, or raise a sentence unless it is a vector of finite numbers."""
    check_numbers(x0, "x0")
    shape = np.shape(x0)
    if len(shape) != 1 or shape[0] == 0:
        raise ValueError(
            f"x0 must be a state, an array (s,) of at least one number; it has shape {shape}."
        )
    if not is_concrete(x0):
        return x0
    x0 = np.asarray(x0)
    if x0.dtype.kind not in "biuf":
        raise ValueError(f"x0 must hold real numbers; it holds {x0.dtype}.")
    if not np.all(np.isfinite(x0)):
        raise ValueError(f"x0 must hold finite numbers; it is {x0.tolist()}.")
    return x0 if x0.dtype.kind == "f" else x0.astype(float)


def check_controls(controls: Any, horizon: int | None = None) -> None:
    """Raise a sentence unless the controls are (T, m) with T >= 1, and T = horizon where that is
    known.
    """
    shape = np.shape(controls)
    if len(shape) != 2:
        raise ValueError(
            f"controls must be an array (T, m), a row for each stage; they have shape {shape}"
            f"{': one number for each stage is (T, 1), controls[:, None]' if len(shape) == 1 else ''}."
        )
    if shape[0] == 0 or shape[1] == 0:
        raise ValueError(
            f"controls must have at least one stage and one number in each; they have shape {shape}."
        )
    if horizon is not None and shape[0] != horizon:
        raise ValueError(
            f"controls must have a row for each stage; they have {shape[0]} rows, and data has {horizon}."
        )


class Links(eqx.Module):
    """The derivatives of a rollout, stage by stage: dx_{t+1} = A_t dx_t + B_t du_t and
    dz_t = C_t dx_{t+1} + D_t du_t.
    """

    A: Float[Array, "T s s"]
    B: Float[Array, "T s m"]
    C: Float[Array, "T k s"]
    D: Float[Array, "T k m"]


class Stages(eqx.Module):
    """phi(controls, data) = (stage(x_{t+1}, u_t, data_t))_t in R^(T, k), the x_t rolled out from x0."""

    dynamics: Callable
    stage: Callable
    x0: Any

    def __call__(self, controls: Array, data: Any) -> Float[Array, "T k"]:
        x = states(self.dynamics, controls, jnp.asarray(self.x0))
        return jax.vmap(self.image)(x[1:], controls, data)

    def image(self, x: Array, u: Array, row: Any) -> Float[Array, " k"]:
        """Return the residual of one stage, or raise a sentence where it is no vector."""
        row = jax.tree.map(lambda leaf: as_dtype(leaf, x.dtype), row)
        z = self.stage(x, u, row)
        if isinstance(z, float):
            z = jnp.asarray(z, x.dtype)
        if not eqx.is_array(z) or z.ndim > 1 or z.size == 0:
            raise ValueError(
                f"stage(x, u, row) must return one array (k,), or one number; it returned {described(z)}{_hint(z)}."
            )
        if not jnp.issubdtype(z.dtype, jnp.floating):
            raise ValueError(
                f"stage(x, u, row) must return real floating-point numbers; it returned {z.dtype}."
            )
        _check_width("stage(x, u, row)", z, x)
        return jnp.atleast_1d(z).astype(x.dtype)

    def links(self, controls: Array, data: Any) -> tuple[Array, Links]:
        """Return the residuals (T, k) and their derivatives, in time linear in T."""
        x = states(self.dynamics, controls, jnp.asarray(self.x0))
        step = lambda x, u: next_state(self.dynamics, x, u)
        A, B = jax.vmap(jax.jacfwd(step, (0, 1)))(x[:-1], controls)

        def image(x: Array, u: Array, row: Any) -> tuple[Array, Array]:
            z = self.image(x, u, row)
            return z, z

        both = jax.vmap(jax.jacfwd(image, (0, 1), has_aux=True))
        (C, D), u = both(x[1:], controls, data)
        return u, Links(A, B, C, D)

    def traced(self, controls: Array, data: Any) -> "Stages":
        """Return the same map with its two functions as their jaxprs, so that equal functions share
        their compiled programs.
        """
        if isinstance(self.dynamics, TracedInner):
            return self
        u = jax.ShapeDtypeStruct(controls.shape[1:], controls.dtype)
        x = jax.ShapeDtypeStruct(np.shape(self.x0), controls.dtype)
        row = jax.tree.map(lambda leaf: _row(leaf, controls.dtype), data)
        dynamics = traced_inner(self.dynamics, x, u)
        stage = traced_inner(OnPair(self.stage), x, (u, row))
        return Stages(dynamics, OfThree(stage), self.x0)


class OnPair(eqx.Module):
    """stage(x, (u, row)): a stage as a function of two arguments."""

    stage: Callable

    def __call__(self, x: Array, pair: tuple[Array, Any]) -> Array:
        return self.stage(x, *pair)


class OfThree(eqx.Module):
    """stage(x, u, row), from a function of x and the pair of the others."""

    pair: Callable

    def __call__(self, x: Array, u: Array, row: Any) -> Array:
        return self.pair(x, (u, row))


def _row(leaf: Any, dtype: Any) -> Any:
    """Return the shape of a row of data, as a stage sees it."""
    row = jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
    return jax.eval_shape(lambda x: as_dtype(x, dtype), row)


def stages(dynamics: Any, stage: Any, x0: Any) -> Stages:
    """Return the inner map of a trajectory, or raise a sentence where an argument is wrong."""
    check_function(dynamics, "dynamics", "(x, u)")
    check_function(stage, "stage", "(x, u, row)")
    return Stages(as_function(dynamics), as_function(stage), checked_start(x0))


class Function(eqx.Module):
    """A plain function of any arguments as a static part of a tree of arrays."""

    function: Callable = eqx.field(static=True)

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def as_function(function: Callable) -> Callable:
    """Return a callable tree as it is, and a plain function wrapped."""
    if isinstance(function, eqx.Module):
        return function  # pyright: ignore[reportReturnType]
    return Function(function)


def outputs(inner: Callable, controls: Params, data: Any) -> int:
    """Return k of such a map, or of its linearisation, from shapes alone."""
    image = lambda inner, controls, data: inner(controls, data)
    return shapes_of(image, inner, controls, data).shape[1]
