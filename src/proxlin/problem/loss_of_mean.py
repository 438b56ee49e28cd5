"""u_1 = (1/n) sum_i s_i phi_i(w), c_1 = 1."""

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
from .rows import fold_rows


class LossOfMean(AbstractProblem):
    """F(w) = f((1/n) sum_i s_i phi_i(w)) + ridge/2 |w|^2; weights s scaled to mean 1.

    A mini-batch of it, `p[batch]`, is a biased estimate: f of a mean of fewer samples.

    >>> from proxlin import L1
    >>> p = LossOfMean(lambda w, x: x * w, L1(), jnp.array([[1.0], [3.0]]))
    >>> float(p.value(jnp.array([2.0])))
    4.0
    """

    def __init__(self, inner: Callable, outer: AbstractOuter, data: Any, ridge: Any = 0.0, weights: Any = None):
        construct(self, inner, outer, data, ridge, weights)

    def coefficients(self) -> Float[Array, " m"]:
        return jnp.ones((1,), jnp.result_type(float) if self.weights is None else self.weights.dtype)

    def stack(self, w: Params) -> Float[Array, "m k"]:
        return self._sum_rows(w, lambda rows: self._images(w, rows))

    def push(self, w: Params, direction: Params) -> Float[Array, "m k"]:
        at, rest = eqx.partition(w, is_parameter)
        return self._sum_rows(
            w, lambda rows: jax.jvp(lambda p: self._images(eqx.combine(p, rest), rows), (at,), (direction,))[1]
        )

    def pull(self, w: Params, v: Float[Array, "m k"]) -> Params:
        at, rest = eqx.partition(w, is_parameter)

        def step(total: Params, part: Any, fresh: Array | None) -> Params:
            rows, c = part
            each = (c if fresh is None else c * fresh.astype(c.dtype))[:, None] * v[0][None, :]
            return optax.tree.add(total, jax.vjp(lambda p: self._images(eqx.combine(p, rest), rows), at)[1](each)[0])

        rows = (self._rows(), self._weights(v.dtype))
        return fold_rows(step, optax.tree.zeros_like(at), rows, len(self), self._chunk(w), self.split)

    def expand(self, w: Params) -> tuple[Float[Array, "m k"], Float[Array, "m k d"]]:
        at, rest = eqx.partition(w, is_parameter)
        basis = jnp.eye(self.outputs(w), dtype=dtype_of(w))

        def step(total: tuple[Array, Array], part: Any, fresh: Array | None) -> tuple[Array, Array]:
            rows, c = part
            c = c if fresh is None else c * fresh.astype(c.dtype)
            u, pull = jax.vjp(lambda p: c @ self._images(eqx.combine(p, rest), rows), at)
            return total[0] + u, total[1] + ravel_rows(jax.vmap(pull)(basis)[0])

        rows = (self._rows(), self._weights(basis.dtype))
        d = sum(x.size for x in jax.tree.leaves(at))
        init = (jnp.zeros_like(basis[0]), jnp.zeros((basis.shape[0], d), basis.dtype))
        u, jacobian = fold_rows(step, init, rows, len(self), self._chunk(w, cached=True), self.split)
        return u[None], jacobian[None]

    def prices(self, w: Params) -> Prices:
        n, image = self._price(w)
        oracle = Cost(oracle=self.outer.oracle_calls)
        rows, row = self._price(w, cached=True)
        again = Cost() if self.in_one_chunk(w) else Cost(phi=n)  # the pull goes through all chunks once more
        return Prices(
            value=image + oracle,
            subgradient=image + again + Cost(vjp=n) + oracle,
            push=Cost(phi=n, jvp=n),
            pull=Cost(phi=n, vjp=n),
            expand=row + Cost(vjp=rows * self.outputs(w)),
        )

    def _losses(self, w: Params) -> tuple[Array, Params]:
        if self.in_one_chunk(w):
            at, rest = eqx.partition(w, is_parameter)

            def both(part: Any, total: Callable) -> tuple[Array, Params]:
                rows, c = part
                u, pull = jax.vjp(lambda p: c @ self._images(eqx.combine(p, rest), rows), at)
                u = total(u)
                return self.outer.value(u), total(pull(self.outer.subgradient(u))[0])

            rows = (self._rows(), self._weights(dtype_of(w)))
            return both(rows, lambda x: x) if self.split is None else self.split.total(both, rows)
        u = self.stack(w)[0]
        return self.outer.value(u), self.pull(w, self.outer.subgradient(u)[None])

    def _sum_rows(self, w: Params, function: Callable) -> Float[Array, "1 k"]:
        """(1/n) sum_i s_i function(row_i), as one block."""
        dtype = dtype_of(w)

        def step(total: Array, part: Any, fresh: Array | None) -> Array:
            rows, c = part
            c = c if fresh is None else c * fresh.astype(dtype)
            return total + c @ function(rows)

        rows = (self._rows(), self._weights(dtype))
        zero = jnp.zeros((self.outputs(w),), dtype)
        return fold_rows(step, zero, rows, len(self), self._chunk(w), self.split)[None]
