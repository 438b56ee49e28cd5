"""The first-order expansion of a problem at w: x -> u_i + J_i (x - w), as a dense matrix or as two functions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..types import Params


class Expansion(eqx.Module):
    """The blocks u_i, their Jacobians J_i and their coefficients c_i at w; columns in the order of `ravel_pytree`."""

    w: Params
    c: Float[Array, " m"]
    u: Float[Array, "m k"]
    jacobian: Float[Array, "m k d"]


class LinearMap(eqx.Module):
    """The same without a matrix: push(d) = (J_i d)_i, pull(v) = sum_i J_i' v_i."""

    w: Params
    c: Float[Array, " m"]
    u: Float[Array, "m k"]
    push: Callable[[Params], Any] = eqx.field(static=True)
    pull: Callable[[Any], Params] = eqx.field(static=True)
