"""Step sizes as functions of t = 0, 1, 2, ..."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .checks import described, number
from .shown import shown
from .types import Number


class AbstractSchedule(eqx.Module):
    """t -> a positive number."""

    def __repr__(self) -> str:
        return shown(self)

    @abc.abstractmethod
    def __call__(self, t: Any) -> Array: ...


class Constant(AbstractSchedule):
    """The schedule t -> s.

    Parameters
    ----------
    s : a number
        The step; it must be positive.

    See Also
    --------
    InverseSqrt, Inverse : schedules that fall.
    sgd : takes a number or a schedule.

    Examples
    --------
    >>> import proxlin as px
    >>> float(px.Constant(0.5)(3))
    0.5
    """

    s: Number

    def __init__(self, s: Any):
        self.s = number(s, "The step of Constant", low=0.0, open=True)

    def __call__(self, t: Any) -> Array:
        return jnp.asarray(self.s)


class InverseSqrt(AbstractSchedule):
    """The schedule t -> s / sqrt(t + 1).

    Parameters
    ----------
    s : a number
        The first step; it must be positive.

    See Also
    --------
    Constant, Inverse : the other schedules.
    sgd : takes a number or a schedule.

    Examples
    --------
    >>> import proxlin as px
    >>> float(px.InverseSqrt(0.5)(3))
    0.25
    """

    s: Number

    def __init__(self, s: Any):
        self.s = number(s, "The step of InverseSqrt", low=0.0, open=True)

    def __call__(self, t: Any) -> Array:
        return self.s / jnp.sqrt(jnp.asarray(t, jnp.result_type(self.s)) + 1)


class Inverse(AbstractSchedule):
    """The schedule t -> s / (t + 1).

    Parameters
    ----------
    s : a number
        The first step; it must be positive.

    See Also
    --------
    Constant, InverseSqrt : the other schedules.
    sgd : takes a number or a schedule.

    Examples
    --------
    >>> import proxlin as px
    >>> float(px.Inverse(0.5)(3))
    0.125
    """

    s: Number

    def __init__(self, s: Any):
        self.s = number(s, "The step of Inverse", low=0.0, open=True)

    def __call__(self, t: Any) -> Array:
        return self.s / (jnp.asarray(t, jnp.result_type(self.s)) + 1)


class Power(AbstractSchedule):
    """s (t + 1)^-decay: the three above as decay 0, 1/2 and 1, in one compilation.

    >>> float(Power(jnp.asarray(0.5), jnp.asarray(1.0))(3))
    0.125
    """

    s: Number
    decay: Number

    def __call__(self, t: Any) -> Array:
        t = jnp.asarray(t, jnp.result_type(self.s))
        return self.s * (t + 1) ** -self.decay


def as_schedule(step: Any, name: str) -> Any:
    """Return a constant schedule for a number, and a function of t, looked at through shapes alone,
    as it is.
    """
    if not callable(step):
        return Constant(number(step, name, low=0.0, open=True))
    wanted = f"{name} must be a number, or a function of t = 0, 1, 2, ... that JAX can trace to one number"
    try:
        value = jax.eval_shape(
            lambda t: jnp.asarray(step(t)), jax.ShapeDtypeStruct((), jnp.int32)
        )
    except TypeError as error:
        raise TypeError(f"{wanted}; {described(step)} is not.") from error
    real = jnp.issubdtype(value.dtype, jnp.integer) or jnp.issubdtype(
        value.dtype, jnp.floating
    )
    if value.shape != () or not real:
        raise TypeError(
            f"{wanted}; {described(step)} returns {value.dtype} of shape {value.shape}."
        )
    return step
