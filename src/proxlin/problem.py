"""The two problems, F(w) = sum_i c_i f(u_i(w)) + weight/2 |w - center|^2 + offset, and the four verbs.

MeanOfLosses   u_i = phi_i(w), c_i = s_i / n          LossOfMean   u_1 = (1/n) sum_i s_i phi_i(w), c_1 = 1
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from .checks import check_batch, check_like, check_parameters, checked_data, checked_weights
from .chunks import chunk_size, fold_rows, map_rows
from .cost import Cost
from .inners import Bound, Linearized, as_inner
from .outers import AbstractOuter
from .types import Index, Params, Scalar, dtype_of, is_concrete, is_parameter, number, parameters


class Quadratic(eqx.Module):
    """weight/2 |w - center|^2 + offset; center None is the origin."""

    weight: Array
    center: Params | None
    offset: Array

    def value(self, w: Params) -> Array:
        dtype = dtype_of(w)
        away = self._away(w)
        return self.weight.astype(dtype) / 2 * optax.tree.vdot(away, away) + self.offset.astype(dtype)

    def gradient(self, w: Params) -> Params:
        return optax.tree.scale(self.weight.astype(dtype_of(w)), self._away(w))

    def add(self, kappa: Array, center: Params) -> "Quadratic":
        """The sum with kappa/2 |w - center|^2, exactly: the constant that is left over goes to the offset."""
        dtype = dtype_of(center)
        kappa, weight = kappa.astype(dtype), self.weight.astype(dtype)
        total = weight + kappa
        share = jnp.where(total > 0, kappa / jnp.where(total > 0, total, jnp.ones_like(total)), jnp.ones_like(total))
        away = self._away(center)
        left_over = share * weight / 2 * optax.tree.vdot(away, away)
        scaled = optax.tree.scale(share, center)
        middle = scaled if self.center is None else optax.tree.add(optax.tree.scale(1 - share, self.center), scaled)
        return Quadratic(total, middle, self.offset.astype(dtype) + left_over)

    def _away(self, w: Params) -> Params:
        at = parameters(w)
        if self.center is None:
            return at
        return jax.tree.map(lambda x, c: x - c.astype(x.dtype), at, self.center)


@dataclasses.dataclass(frozen=True)
class Prices:
    """What each call of a problem costs, at given shapes."""

    value: Cost
    subgradient: Cost
    push: Cost
    pull: Cost
    expand: Cost


class AbstractProblem(eqx.Module):
    """F(w) = sum_i c_i f(u_i(w)) + quadratic(w). Every verb returns a problem; none of them copies data or runs phi.

    Laws: `p.linearize(w).value(w) == p.value(w)`; `p[0:n].value(w) == p.value(w)`;
    `p.smooth(nu)[batch] == p[batch].smooth(nu)`; regularising twice is regularising once with the merged quadratic.
    """

    inner: Callable
    outer: AbstractOuter
    data: Any
    weights: Array | None
    quadratic: Quadratic | None
    single: bool = eqx.field(static=True)

    # what differs between the two classes

    @abc.abstractmethod
    def coefficients(self) -> Float[Array, " m"]:
        """c, one for each block."""

    @abc.abstractmethod
    def stack(self, w: Params) -> Float[Array, "m k"]:
        """The blocks u_i(w)."""

    @abc.abstractmethod
    def push(self, w: Params, direction: Params) -> Float[Array, "m k"]:
        """The Jacobian of the stack at w times a direction (JVP)."""

    @abc.abstractmethod
    def pull(self, w: Params, v: Float[Array, "m k"]) -> Params:
        """The transposed Jacobian of the stack at w times v (VJP)."""

    @abc.abstractmethod
    def expand(self, w: Params) -> tuple[Float[Array, "m k"], Float[Array, "m k d"]]:
        """The stack and its dense Jacobian at w; columns in the order of `jax.flatten_util.ravel_pytree`."""

    @abc.abstractmethod
    def prices(self, w: Params) -> Prices:
        """What each call costs."""

    @abc.abstractmethod
    def _losses(self, w: Params) -> tuple[Array, Params]:
        """sum_i c_i f(u_i(w)) and a subgradient of it."""

    # what does not

    def value(self, w: Params) -> Float[Array, ""]:
        """F(w)."""
        return self._call(_value, w)

    def subgradient(self, w: Params) -> Params:
        """An element of the subdifferential of F at w, in the shape of w (None for leaves that are no parameters)."""
        return self._call(_value_and_subgradient, w)[1]

    def value_and_subgradient(self, w: Params) -> tuple[Float[Array, ""], Params]:
        """F(w) and a subgradient, for the price of the subgradient."""
        return self._call(_value_and_subgradient, w)

    def __len__(self) -> int:
        return 1 if self.single else _leading(self.data)

    def __getitem__(self, batch: Index) -> "AbstractProblem":
        """A mini-batch: an integer is one sample without a leading axis; the whole ridge is kept."""
        if self.single:
            raise IndexError("This problem is one sample already; it has no batches.")
        batch = check_batch(batch, len(self))
        take = lambda x: x[batch]
        return _replace(
            self,
            data=jax.tree.map(take, self.data),
            weights=None if self.weights is None else self.weights[batch],
            single=not isinstance(batch, slice) and np.ndim(batch) == 0,
        )

    def linearize(self, w: Params) -> "AbstractProblem":
        """phi replaced by phi(w) + J(w) (. - w), matrix-free."""
        if isinstance(self.inner, Linearized):
            return self  # affine already
        return _replace(self, inner=Linearized(self.inner, check_parameters(w, self.data)))

    def smooth(self, nu: Scalar) -> "AbstractProblem":
        """f replaced by its smoothing f_nu, inside the mean (the envelope of the mean depends on the batch)."""
        return _replace(self, outer=self.outer.smooth(nu))

    def regularize(self, kappa: Scalar, center: Params) -> "AbstractProblem":
        """+ kappa/2 |w - center|^2."""
        kappa = number(kappa, "kappa", low=0.0)
        center = parameters(check_parameters(center, self.data))
        zero = jnp.zeros_like(kappa)
        old = Quadratic(zero, None, zero) if self.quadratic is None else self.quadratic
        return _replace(self, quadratic=old.add(kappa, center))

    def plain(self) -> "AbstractProblem":
        """The losses alone, without the quadratic."""
        return _replace(self, quadratic=None)

    def expanded_at(self) -> tuple["AbstractProblem", Params]:
        """A linearised problem as the problem it came from, and where it was linearised."""
        if not isinstance(self.inner, Linearized):
            raise TypeError("Only a linearised problem has an anchor; call linearize(w) first.")
        return _replace(self, inner=self.inner.inner), self.inner.anchor

    def bind(self, rest: Params) -> "AbstractProblem":
        """The same problem in the parameters alone, the other leaves of w filled in."""
        if not jax.tree.leaves(rest):
            return self
        if isinstance(self.inner, Linearized):
            bound = Linearized(Bound(self.inner.inner, rest), parameters(self.inner.anchor))
            return _replace(self, inner=bound)
        return _replace(self, inner=Bound(self.inner, rest))

    def outputs(self, w: Params) -> int:
        """k, from shapes alone."""
        row = (
            self.data if self.single else jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self.data)
        )
        return eqx.filter_eval_shape(self._phi, check_parameters(w, self.data), row).shape[0]

    def in_one_chunk(self, w: Params) -> bool:
        """Whether all samples go through phi at once (shapes alone)."""
        return self._chunk(w) >= len(self)

    def _call(self, function: Callable, w: Params) -> Any:
        w = check_parameters(w, self.data)
        if isinstance(self.inner, Linearized):
            check_like(self.inner.anchor, w, "The point of linearize")
        if self.quadratic is not None and self.quadratic.center is not None:
            check_like(self.quadratic.center, w, "The center of regularize")
        return _compiled(function, self, w) if is_concrete((self, w)) else function(self, w)

    def _phi(self, w: Params, sample: Any) -> Float[Array, " k"]:
        dtype = dtype_of(w)
        u = self.inner(w, jax.tree.map(lambda x: x.astype(dtype) if is_parameter(x) else x, sample))
        if not eqx.is_array(u) or u.ndim != 1 or jnp.issubdtype(u.dtype, jnp.complexfloating):
            raise ValueError(
                f"The inner map must return a real vector (k,) for one sample; it returned "
                f"{f'an array of shape {u.shape} and {u.dtype}' if eqx.is_array(u) else type(u).__name__}."
            )
        self.outer.check(u.shape[0])
        return u.astype(dtype)

    def _weights(self, dtype: jnp.dtype) -> Float[Array, " n"]:
        """s_i / n."""
        n = len(self)
        return jnp.full((n,), 1 / n, dtype) if self.weights is None else self.weights.reshape(n).astype(dtype) / n

    def _rows(self) -> Any:
        """The samples with a leading axis."""
        return jax.tree.map(lambda x: x[None], self.data) if self.single else self.data

    def _images(self, w: Params, rows: Any) -> Float[Array, "rows k"]:
        return jax.vmap(lambda row: self._phi(w, row))(rows)

    def _chunk(self, w: Params) -> int:
        return chunk_size(lambda row: self._phi(w, row), self._rows(), len(self))

    def _price(self, w: Params) -> tuple[int, Cost]:
        """The samples that a pass evaluates (the last chunk overlaps the one before), and its phi, with the JVP of a
        linearised map."""
        chunk = self._chunk(w)
        n = -(-len(self) // chunk) * chunk
        return n, Cost(phi=n, jvp=n if isinstance(self.inner, Linearized) else 0)


class MeanOfLosses(AbstractProblem):
    """F(w) = (1/n) sum_i s_i f(phi_i(w)) + ridge/2 |w|^2; weights s scaled to mean 1.

    >>> x, y = jnp.arange(6.0).reshape(3, 2), jnp.ones((3, 1))
    >>> from proxlin import L2, residual
    >>> p = MeanOfLosses(residual(lambda w, x: x @ w), L2(), (x, y))
    >>> float(p.value(jnp.zeros((2, 1))))
    1.0
    """

    def __init__(self, inner: Callable, outer: AbstractOuter, data: Any, ridge: Any = 0.0, weights: Any = None):
        _construct(self, inner, outer, data, ridge, weights)

    def coefficients(self) -> Float[Array, " m"]:
        return self._weights(jnp.result_type(float) if self.weights is None else self.weights.dtype)

    def stack(self, w: Params) -> Float[Array, "m k"]:
        if self.single:
            return self._phi(w, self.data)[None]
        return map_rows(lambda rows: self._images(w, rows), self._rows(), len(self), self._chunk(w))

    def push(self, w: Params, direction: Params) -> Float[Array, "m k"]:
        at, rest = eqx.partition(w, is_parameter)

        def part(rows: Any) -> Array:
            return jax.jvp(lambda p: self._images(eqx.combine(p, rest), rows), (at,), (direction,))[1]

        return map_rows(part, self._rows(), len(self), self._chunk(w))

    def pull(self, w: Params, v: Float[Array, "m k"]) -> Params:
        at, rest = eqx.partition(w, is_parameter)

        def step(total: Params, part: Any, fresh: Array | None) -> Params:
            rows, v = part
            v = v if fresh is None else v * fresh[:, None].astype(v.dtype)
            return optax.tree.add(total, jax.vjp(lambda p: self._images(eqx.combine(p, rest), rows), at)[1](v)[0])

        return fold_rows(step, optax.tree.zeros_like(at), (self._rows(), v), len(self), self._chunk(w))

    def expand(self, w: Params) -> tuple[Float[Array, "m k"], Float[Array, "m k d"]]:
        one = self._expand_one(w)
        return map_rows(jax.vmap(one), self._rows(), len(self), chunk_size(one, self._rows(), len(self)))

    def prices(self, w: Params) -> Prices:
        n, image = self._price(w)
        oracle = Cost(oracle=n * self.outer.oracle_calls)
        chunk = chunk_size(self._expand_one(w), self._rows(), len(self))
        rows = -(-len(self) // chunk) * chunk
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
            return u, _ravel_rows(jax.vmap(pull)(jnp.eye(u.shape[0], dtype=u.dtype))[0])

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
        return fold_rows(step, init, (self.data, self._weights(dtype)), len(self), self._chunk(w))


class LossOfMean(AbstractProblem):
    """F(w) = f((1/n) sum_i s_i phi_i(w)) + ridge/2 |w|^2; weights s scaled to mean 1.

    A mini-batch of it, `p[batch]`, is a biased estimate: f of a mean of fewer samples.

    >>> from proxlin import L1
    >>> p = LossOfMean(lambda w, x: x * w, L1(), jnp.array([[1.0], [3.0]]))
    >>> float(p.value(jnp.array([2.0])))
    4.0
    """

    def __init__(self, inner: Callable, outer: AbstractOuter, data: Any, ridge: Any = 0.0, weights: Any = None):
        _construct(self, inner, outer, data, ridge, weights)

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
        return fold_rows(step, optax.tree.zeros_like(at), rows, len(self), self._chunk(w))

    def expand(self, w: Params) -> tuple[Float[Array, "m k"], Float[Array, "m k d"]]:
        at, rest = eqx.partition(w, is_parameter)
        basis = jnp.eye(self.outputs(w), dtype=dtype_of(w))

        def step(total: tuple[Array, Array], part: Any, fresh: Array | None) -> tuple[Array, Array]:
            rows, c = part
            c = c if fresh is None else c * fresh.astype(c.dtype)
            u, pull = jax.vjp(lambda p: c @ self._images(eqx.combine(p, rest), rows), at)
            return total[0] + u, total[1] + _ravel_rows(jax.vmap(pull)(basis)[0])

        rows = (self._rows(), self._weights(basis.dtype))
        d = sum(x.size for x in jax.tree.leaves(at))
        init = (jnp.zeros_like(basis[0]), jnp.zeros((basis.shape[0], d), basis.dtype))
        u, jacobian = fold_rows(step, init, rows, len(self), self._chunk(w))
        return u[None], jacobian[None]

    def prices(self, w: Params) -> Prices:
        n, image = self._price(w)
        oracle = Cost(oracle=self.outer.oracle_calls)
        again = Cost() if self.in_one_chunk(w) else Cost(phi=n)  # the pull goes through all chunks once more
        return Prices(
            value=image + oracle,
            subgradient=image + again + Cost(vjp=n) + oracle,
            push=Cost(phi=n, jvp=n),
            pull=Cost(phi=n, vjp=n),
            expand=image + Cost(vjp=n * self.outputs(w)),
        )

    def _losses(self, w: Params) -> tuple[Array, Params]:
        if self.in_one_chunk(w):
            at, rest = eqx.partition(w, is_parameter)
            c, rows = self._weights(dtype_of(w)), self._rows()
            u, pull = jax.vjp(lambda p: c @ self._images(eqx.combine(p, rest), rows), at)
            return self.outer.value(u), pull(self.outer.subgradient(u))[0]
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
        return fold_rows(step, jnp.zeros((self.outputs(w),), dtype), rows, len(self), self._chunk(w))[None]


def _value(problem: AbstractProblem, w: Params) -> Array:
    f = jax.vmap(problem.outer.value)(problem.stack(w))
    value = jnp.sum(problem.coefficients().astype(f.dtype) * f)
    return value if problem.quadratic is None else value + problem.quadratic.value(w)


def _value_and_subgradient(problem: AbstractProblem, w: Params) -> tuple[Array, Params]:
    value, gradient = problem._losses(w)
    if problem.quadratic is None:
        return value, gradient
    return value + problem.quadratic.value(w), optax.tree.add(gradient, problem.quadratic.gradient(w))


@eqx.filter_jit
def _compiled(function: Callable, problem: AbstractProblem, w: Params) -> Any:
    return function(problem, w)


def _construct(problem: Any, inner: Callable, outer: AbstractOuter, data: Any, ridge: Any, weights: Any) -> None:
    """The checked fields of a new problem."""
    if not isinstance(outer, AbstractOuter):
        raise TypeError(f"The outer function must be one of proxlin's, such as px.L2(); it is {outer!r}.")
    if not callable(inner):
        raise TypeError(f"The inner map must be a function of (w, sample); it is {inner!r}.")
    ridge = number(ridge, "ridge", low=0.0)
    problem.inner, problem.outer = as_inner(inner), outer
    problem.data = checked_data(data)
    problem.weights = checked_weights(weights, _leading(problem.data))
    nothing = is_concrete(ridge) and not np.any(np.asarray(ridge))
    problem.quadratic = None if nothing else Quadratic(ridge, None, jnp.zeros_like(ridge))
    problem.single = False


def _replace(problem: Any, **changes: Any) -> Any:
    """A copy with other fields, without the checks of construction (cheap enough for every trace)."""
    copy = object.__new__(type(problem))
    for field in dataclasses.fields(problem):
        object.__setattr__(copy, field.name, changes.get(field.name, getattr(problem, field.name)))
    return copy


def _leading(data: Any) -> int:
    return jax.tree.leaves(data)[0].shape[0]


def _ravel_rows(tree: Params) -> Float[Array, "k d"]:
    return jnp.concatenate([x.reshape(x.shape[0], -1) for x in jax.tree.leaves(tree)], axis=1)
