"""The loss of a mean: one block u_1 = (1/n) sum_i s_i phi_i(w), c_1 = 1."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import trees
from ..cost import Cost, Prices
from ..outers import AbstractOuter
from ..precision import in_the_precision_of_w
from ..types import Params, dtype_of, is_parameter
from .base import AbstractProblem, construct
from .expansion import Expansion, ravel_rows
from .rows import fold_rows


class LossOfMean(AbstractProblem):
    """The problem F(w) = f((1/n) sum_i s_i phi_i(w)) + ridge/2 |w|^2 + g(w); the weights s are
    scaled to mean 1, and g is a penalty or nothing.

    A mini-batch of it, `p[batch]`, is a biased estimate: f of a mean of fewer samples.

    Parameters
    ----------
    inner : a function of (w, sample)
        phi_i, an array (k,) or one number.
    outer : an outer function, such as `px.L2()`
        f.
    data : a tree of arrays with a leading axis n
        The samples: arrays, lists, frames, or a tuple of them.
    ridge : a number
        The weight of |w|^2 / 2, at least 0.
    weights : a vector (n,), or None
        One weight or one True or False for each sample.
    penalty : a penalty such as `px.NonNegative()`, a tree of them, or None
        A convex term g(w): bounds, l1 or groups. A tree is like w, with None where w has no such
        term; one penalty alone is for every array of w.

    Raises
    ------
    TypeError
        inner is no function, outer is no outer function, or penalty has something else in it.
    ValueError
        The data have no common leading axis, or a number is out of range.

    See Also
    --------
    MeanOfLosses : the mean of f in place of f of the mean.
    stochastic_gauss_newton : the solver for it.
    AbstractProblem : its methods.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.LossOfMean(lambda w, x: x * w, px.L1(), np.array([[1.0], [3.0]]))
    >>> float(p.value(np.array([2.0])))
    4.0
    """

    def __init__(
        self,
        inner: Callable,
        outer: AbstractOuter,
        data: Any,
        ridge: Any = 0.0,
        weights: Any = None,
        penalty: Any = None,
    ):
        construct(self, inner, outer, data, ridge, weights, penalty)

    def coefficients(self) -> Float[Array, " m"]:
        return jnp.ones((1,), jnp.result_type(float))

    @in_the_precision_of_w
    def stack(self, w: Params) -> Float[Array, "m k"]:
        return self._sum_rows(w, lambda rows: self._images(w, rows))

    @in_the_precision_of_w
    def push(self, w: Params, direction: Params) -> Float[Array, "m k"]:
        at, rest = eqx.partition(w, is_parameter)

        def part(rows: Any) -> Array:
            images = lambda p: self._images(eqx.combine(p, rest), rows)
            return jax.jvp(images, (at,), (direction,))[1]

        return self._sum_rows(w, part)

    @in_the_precision_of_w
    def pull(self, w: Params, v: Float[Array, "m k"]) -> Params:
        at, rest = eqx.partition(w, is_parameter)

        def step(total: Params, rows: Any, c: Array) -> Params:
            _, pull = jax.vjp(lambda p: self._images(eqx.combine(p, rest), rows), at)
            return trees.add(total, pull(c[:, None] * v[0][None, :])[0])

        chunk = self._chunk(w, cached=True)
        return self._fold(step, trees.zeros_like(at), v.dtype, chunk)

    @in_the_precision_of_w
    def expand(self, w: Params) -> Expansion:
        at, rest = eqx.partition(w, is_parameter)
        k = self.outputs(w)
        basis = jnp.eye(k, dtype=dtype_of(w))

        def step(
            total: tuple[Array, Array], rows: Any, c: Array
        ) -> tuple[Array, Array]:
            u, pull = jax.vjp(
                lambda p: c @ self._images(eqx.combine(p, rest), rows), at
            )
            return total[0] + u, total[1] + ravel_rows(jax.vmap(pull)(basis)[0])

        d = sum(x.size for x in jax.tree.leaves(at))
        zero = (jnp.zeros_like(basis[0]), jnp.zeros((k, d), basis.dtype))
        u, jacobian = self._fold(step, zero, basis.dtype, self._chunk(w, cached=True))
        return Expansion(
            w, self.coefficients().astype(u.dtype), u[None], jacobian[None]
        )

    def prices(self, w: Params) -> Prices:
        n = len(self)
        image = self._image_price()
        oracle = Cost(oracle=self.outer.oracle_calls)
        # The pull goes through phi once more where the samples do not fit into one chunk.
        again = Cost() if self.in_one_chunk(w) else Cost(phi=n)
        return Prices(
            value=image + oracle,
            subgradient=image + again + Cost(vjp=n) + oracle,
            push=Cost(phi=n, jvp=n),
            pull=Cost(phi=n, vjp=n),
            expand=image + Cost(vjp=n * self.outputs(w)),
        )

    def _losses(self, w: Params) -> tuple[Array, Params]:
        if self.in_one_chunk(w):
            return self._losses_of_one_chunk(w)
        u = self.stack(w)[0]
        return self.outer.value(u), self.pull(w, self.outer.subgradient(u)[None])

    def _losses_of_one_chunk(self, w: Params) -> tuple[Array, Params]:
        at, rest = eqx.partition(w, is_parameter)

        def both(part: Any, total: Callable) -> tuple[Array, Params]:
            rows, c = part
            u, pull = jax.vjp(
                lambda p: c @ self._images(eqx.combine(p, rest), rows), at
            )
            u = total(u)
            return self.outer.value(u), total(pull(self.outer.subgradient(u))[0])

        rows = (self._rows(), self._weights(dtype_of(w)))
        if self.split is None:
            return both(rows, lambda x: x)
        return self.split.total(both, rows)

    def _sum_rows(self, w: Params, function: Callable) -> Float[Array, "1 k"]:
        """Return (1/n) sum_i s_i function(row_i), as one block."""
        zero = jnp.zeros((self.outputs(w),), dtype_of(w))

        def step(total: Array, rows: Any, c: Array) -> Array:
            return total + c @ function(rows)

        # In the cache a pass takes a quarter of the time: nothing of it is read again.
        return self._fold(step, zero, zero.dtype, self._chunk(w, cached=True))[None]

    def _fold(self, step: Callable, zero: Any, dtype: Any, chunk: int) -> Any:
        """Return the sum of step(total, rows, weights) over chunks."""
        return fold_rows(
            lambda total, part: step(total, *part),
            zero,
            (self._rows(), self._weights(dtype)),
            len(self),
            chunk,
            self.split,
        )
