"""The mean of losses: u_i = phi_i(w), c_i = s_i / n."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import trees
from ..cost import Cost, Prices
from ..inners import Touches, taken
from ..outers import AbstractOuter
from ..precision import in_the_precision_of_w
from ..types import Params, dtype_of, is_parameter
from .base import AbstractProblem, _replace, construct
from .expansion import Expansion, Touched, ravel_rows
from .rows import chunk_size, fold_rows, map_rows, scan_rows


class MeanOfLosses(AbstractProblem):
    """The problem F(w) = (1/n) sum_i s_i f(phi_i(w)) + ridge/2 |w|^2 + g(w); the weights s are
    scaled to mean 1, and g is a penalty or nothing.

    Parameters
    ----------
    inner : a function of (w, sample)
        phi_i, an array (k,) or one number; `px.residual(predict)` for a regression.
    outer : an outer function, such as `px.L2()`
        f.
    data : a tree of arrays with a leading axis n
        The samples: arrays, lists, frames, or a tuple such as (X, y).
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
    LossOfMean : f of the mean in place of the mean of f.
    minimize, solve : take it.
    AbstractProblem : its methods.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x, y = np.arange(6.0).reshape(3, 2), np.ones((3, 1))
    >>> p = px.MeanOfLosses(px.residual(lambda w, x: x @ w), px.L2(), (x, y))
    >>> float(p.value(np.zeros((2, 1))))
    1.0
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
        return self._weights(jnp.result_type(float))

    @in_the_precision_of_w
    def stack(self, w: Params) -> Float[Array, "m k"]:
        if self.single:
            return self._phi(w, self.data)[None]
        return self._map(lambda rows: self._images(w, rows), self._chunk(w))

    @in_the_precision_of_w
    def push(self, w: Params, direction: Params) -> Float[Array, "m k"]:
        at, rest = eqx.partition(w, is_parameter)

        def part(rows: Any) -> Array:
            images = lambda p: self._images(eqx.combine(p, rest), rows)
            return jax.jvp(images, (at,), (direction,))[1]

        return self._map(part, self._chunk(w))

    @in_the_precision_of_w
    def pull(self, w: Params, v: Float[Array, "m k"]) -> Params:
        at, rest = eqx.partition(w, is_parameter)

        def step(total: Params, part: Any) -> Params:
            rows, v = part
            _, pull = jax.vjp(lambda p: self._images(eqx.combine(p, rest), rows), at)
            return trees.add(total, pull(v)[0])

        zero = trees.zeros_like(at)
        return fold_rows(
            step, zero, (self._rows(), v), len(self), self._chunk(w), self.split
        )

    def blocks_and_subgradient(
        self, w: Params
    ) -> tuple[Float[Array, "m k"], Float[Array, "m k"], Params]:
        """Return u_i(w), v_i in df(u_i) and sum_i c_i J_i' v_i, the subgradient of the losses alone.

        phi goes through each row once: the price is that of a subgradient.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        a triple
            u (m, k), v (m, k), and a tree like the parameters of w.
        """
        at, rest = eqx.partition(w, is_parameter)

        def step(total: Params, part: Any) -> tuple[Params, tuple[Array, Array]]:
            rows, c = part
            u, pull = jax.vjp(lambda p: self._images(eqx.combine(p, rest), rows), at)
            v = jax.vmap(self.outer.subgradient)(u)
            return trees.add(total, pull(v * c[:, None])[0]), (u, v)

        zero = trees.zeros_like(at)
        rows = (self._rows(), self._weights(dtype_of(w)))
        subgradient, (u, v) = scan_rows(
            step, zero, rows, len(self), self._chunk(w), self.split
        )
        return u, v, subgradient

    @in_the_precision_of_w
    def expand(self, w: Params) -> Expansion:
        one = self._expand_one(w)
        chunk = chunk_size(one, self._rows(), self._here())
        u, jacobian = self._map(jax.vmap(one), chunk)
        return Expansion(w, self.coefficients().astype(u.dtype), u, jacobian)

    @in_the_precision_of_w
    def expand_touched(self, w: Params) -> Touched:
        """Return the first-order expansion at w with those columns of the Jacobian that are touched.

        Parameters
        ----------
        w : a tree
            The parameters; all its leaves are.

        Returns
        -------
        a `Touched`
            The blocks u, the touched columns (m, k, t) and where they are.

        Raises
        ------
        TypeError
            phi is not made by `px.touches`.
        """
        phi = self.inner
        if not isinstance(phi, Touches):
            raise TypeError(
                "Only an inner map of px.touches says which rows of w a sample touches."
            )
        local = _replace(self, inner=phi.inner)

        def one(row: Any) -> tuple[Array, Array, list[Array | None]]:
            rows = phi.rows(w, row)
            at = taken(w, rows)
            u, pull = jax.vjp(lambda p: local._phi(p, row), at)
            basis = jnp.eye(u.shape[0], dtype=u.dtype)
            J = ravel_rows(jax.vmap(pull)(basis)[0])
            return u, J, [None if x is None else jnp.atleast_1d(x) for x in rows]

        chunk = chunk_size(one, self._rows(), self._here())
        u, jacobian, rows = self._map(jax.vmap(one), chunk)
        return Touched(w, self.coefficients().astype(u.dtype), u, jacobian, rows)

    def prices(self, w: Params) -> Prices:
        n = len(self)
        image = self._image_price()
        oracle = Cost(oracle=n * self.outer.oracle_calls)
        return Prices(
            value=image + oracle,
            subgradient=image + Cost(vjp=n) + oracle,
            push=Cost(phi=n, jvp=n),
            pull=Cost(phi=n, vjp=n),
            expand=image + Cost(vjp=n * self.outputs(w)),
        )

    def _map(self, function: Callable, chunk: int) -> Any:
        return map_rows(function, self._rows(), len(self), chunk, self.split)

    def _expand_one(self, w: Params) -> Callable:
        """Return the function of one sample whose value is phi and its Jacobian (k, d)."""
        at, rest = eqx.partition(w, is_parameter)

        def one(row: Any) -> tuple[Array, Array]:
            u, pull = jax.vjp(lambda p: self._phi(eqx.combine(p, rest), row), at)
            basis = jnp.eye(u.shape[0], dtype=u.dtype)
            return u, ravel_rows(jax.vmap(pull)(basis)[0])

        return one

    def _losses(self, w: Params) -> tuple[Array, Params]:
        at, rest = eqx.partition(w, is_parameter)
        dtype = dtype_of(w)
        if self.single:
            return self._loss_of_one(at, rest, dtype)

        def step(total: tuple[Array, Params], part: Any) -> tuple[Array, Params]:
            rows, c = part
            u, pull = jax.vjp(lambda p: self._images(eqx.combine(p, rest), rows), at)
            v = jax.vmap(self.outer.subgradient)(u) * c[:, None]
            value = total[0] + jnp.sum(c * jax.vmap(self.outer.value)(u))
            return value, trees.add(total[1], pull(v)[0])

        zero = (jnp.zeros((), dtype), trees.zeros_like(at))
        return fold_rows(
            step,
            zero,
            (self.data, self._weights(dtype)),
            len(self),
            self._chunk(w),
            self.split,
        )

    def _loss_of_one(
        self, at: Params, rest: Params, dtype: Any
    ) -> tuple[Array, Params]:
        u, pull = jax.vjp(lambda p: self._phi(eqx.combine(p, rest), self.data), at)
        value = self.outer.value(u)
        v = self.outer.subgradient(u)
        if self.weights is not None:
            s = self.weights.astype(dtype)
            value = s * value
            v = s * v
        return value, pull(v)[0]
