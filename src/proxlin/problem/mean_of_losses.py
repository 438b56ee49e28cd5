"""u_i = phi_i(w), c_i = s_i / n."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ..cost import Cost
from ..outers import AbstractOuter
from ..types import Params, dtype_of, is_parameter
from .base import AbstractProblem, Prices, construct, ravel_rows
from .rows import chunk_size, fold_rows, map_rows


class MeanOfLosses(AbstractProblem):
    """F(w) = (1/n) sum_i s_i f(phi_i(w)) + ridge/2 |w|^2; weights s scaled to mean 1.

    >>> x, y = jnp.arange(6.0).reshape(3, 2), jnp.ones((3, 1))
    >>> from proxlin import L2, residual
    >>> p = MeanOfLosses(residual(lambda w, x: x @ w), L2(), (x, y))
    >>> float(p.value(jnp.zeros((2, 1))))
    1.0
    """

    def __init__(self, inner: Callable, outer: AbstractOuter, data: Any, ridge: Any = 0.0, weights: Any = None):
        construct(self, inner, outer, data, ridge, weights)

    def coefficients(self) -> Float[Array, " m"]:
        return self._weights(jnp.result_type(float) if self.weights is None else self.weights.dtype)

    def stack(self, w: Params) -> Float[Array, "m k"]:
        if self.single:
            return self._phi(w, self.data)[None]
        return map_rows(lambda rows: self._images(w, rows), self._rows(), len(self), self._chunk(w), self.split)

    def push(self, w: Params, direction: Params) -> Float[Array, "m k"]:
        at, rest = eqx.partition(w, is_parameter)

        def part(rows: Any) -> Array:
            return jax.jvp(lambda p: self._images(eqx.combine(p, rest), rows), (at,), (direction,))[1]

        return map_rows(part, self._rows(), len(self), self._chunk(w), self.split)

    def pull(self, w: Params, v: Float[Array, "m k"]) -> Params:
        at, rest = eqx.partition(w, is_parameter)

        def step(total: Params, part: Any, fresh: Array | None) -> Params:
            rows, v = part
            v = v if fresh is None else v * fresh[:, None].astype(v.dtype)
            return optax.tree.add(total, jax.vjp(lambda p: self._images(eqx.combine(p, rest), rows), at)[1](v)[0])

        return fold_rows(step, optax.tree.zeros_like(at), (self._rows(), v), len(self), self._chunk(w), self.split)

    def expand(self, w: Params) -> tuple[Float[Array, "m k"], Float[Array, "m k d"]]:
        one = self._expand_one(w)
        chunk = chunk_size(one, self._rows(), self._here())
        return map_rows(jax.vmap(one), self._rows(), len(self), chunk, self.split)

    def prices(self, w: Params) -> Prices:
        n, image = self._price(w)
        oracle = Cost(oracle=n * self.outer.oracle_calls)
        rows = self._evaluated(chunk_size(self._expand_one(w), self._rows(), self._here()))
        return Prices(
            value=image + oracle,
            subgradient=image + Cost(vjp=n) + oracle,
            push=Cost(phi=n, jvp=n),
            pull=Cost(phi=n, vjp=n),
            expand=Cost(rows, rows if image.jvp else 0, rows * self.outputs(w)),
        )

    def _expand_one(self, w: Params) -> Callable:
        """One sample -> phi and its Jacobian (k, d)."""
        at, rest = eqx.partition(w, is_parameter)

        def one(row: Any) -> tuple[Array, Array]:
            u, pull = jax.vjp(lambda p: self._phi(eqx.combine(p, rest), row), at)
            return u, ravel_rows(jax.vmap(pull)(jnp.eye(u.shape[0], dtype=u.dtype))[0])

        return one

    def _losses(self, w: Params) -> tuple[Array, Params]:
        at, rest = eqx.partition(w, is_parameter)
        dtype = dtype_of(w)
        if self.single:
            u, pull = jax.vjp(lambda p: self._phi(eqx.combine(p, rest), self.data), at)
            value, v = self.outer.value(u), self.outer.subgradient(u)
            if self.weights is not None:
                s = self.weights.astype(dtype)
                value, v = s * value, s * v
            return value, pull(v)[0]

        def step(total: tuple[Array, Params], part: Any, fresh: Array | None) -> tuple[Array, Params]:
            rows, c = part
            c = c if fresh is None else c * fresh.astype(dtype)
            u, pull = jax.vjp(lambda p: self._images(eqx.combine(p, rest), rows), at)
            v = jax.vmap(self.outer.subgradient)(u) * c[:, None]
            return total[0] + jnp.sum(c * jax.vmap(self.outer.value)(u)), optax.tree.add(total[1], pull(v)[0])

        init = (jnp.zeros((), dtype), optax.tree.zeros_like(at))
        return fold_rows(step, init, (self.data, self._weights(dtype)), len(self), self._chunk(w), self.split)
