"""F(w) = sum_i c_i f(u_i(w)) + weight/2 |w - center|^2 + offset, and the four verbs."""

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

from ..checks import (
    check_batch,
    check_like,
    check_parameters,
    checked_data,
    checked_weights,
    described,
    number,
    with_jax_arrays,
)
from ..compiled import call, shapes_of
from ..cost import Cost
from ..inners import Bound, Linearized, as_inner, check_function
from ..outers import AbstractOuter
from ..types import Index, Params, Scalar, as_dtype, dtype_of, is_concrete, parameters
from . import rows
from .quadratic import Quadratic
from .rows import Split, split_of


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
    split: Split | None = eqx.field(static=True)  # how the rows lie on several devices

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
        """n."""
        return 1 if self.single else _leading(self.data)

    def __getitem__(self, batch: Index) -> "AbstractProblem":
        """A mini-batch: an integer is one sample without a leading axis; the whole ridge is kept."""
        if self.single:
            raise IndexError("This problem is one sample already; it has no batches.")
        batch = check_batch(batch, len(self))
        if self.split is not None:
            return self._take(np.arange(len(self))[batch] if isinstance(batch, slice) else batch)
        # in a compiled loop nobody can be told of an index out of range: clipping is cheaper than filling in nan
        clip = lambda x: jnp.asarray(x).at[batch].get(mode="clip")
        take = (lambda x: x[batch]) if is_concrete(batch) else clip
        return _replace(
            self,
            data=jax.tree.map(take, self.data),
            weights=None if self.weights is None else take(self.weights),
            single=not isinstance(batch, slice) and np.ndim(batch) == 0,
        )

    def _take(self, batch: Index) -> "AbstractProblem":
        """A mini-batch of rows that lie on several devices, split again if its size is a multiple of their number."""
        assert self.split is not None
        (data, weights), split = self.split.take((self.data, self.weights), jnp.asarray(batch))
        return _replace(self, data=data, weights=weights, single=np.ndim(batch) == 0, split=split)

    def gathered(self) -> "AbstractProblem":
        """The same problem, all its rows on every device."""
        data, weights = self.whole((self.data, self.weights))
        return _replace(self, data=data, weights=weights, split=None)

    def whole(self, rows: Any) -> Any:
        """Arrays of one row for each sample, all of them on every device."""
        return rows if self.split is None else self.split.gather(rows)

    def each(self, function: Callable) -> Any:
        """function(problem of one sample) of all samples, one after the other, each where its row lies."""
        one = lambda row: function(_replace(self, data=row[0], weights=row[1], single=True, split=None))
        run = lambda rows: jax.lax.map(one, rows)
        rows = (self.data, self.weights)
        return run(rows) if self.split is None else self.split.stack(run, rows)

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
        center = parameters(check_parameters(center, self.data, "The center of regularize"))
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
        return shapes_of(type(self)._phi, self, check_parameters(w, self.data), row).shape[0]

    def in_one_chunk(self, w: Params) -> bool:
        """Whether all samples (of a device) go through phi at once (shapes alone)."""
        return self._chunk(w) >= self._here()

    def _call(self, function: Callable, w: Params) -> Any:
        w = check_parameters(w, self.data)
        if isinstance(self.inner, Linearized):
            check_like(self.inner.anchor, w, "The point of linearize")
        if self.quadratic is not None and self.quadratic.center is not None:
            check_like(self.quadratic.center, w, "The center of regularize")
        return call(function, self, w)

    def _phi(self, w: Params, sample: Any) -> Float[Array, " k"]:
        dtype = dtype_of(w)
        u = self.inner(w, jax.tree.map(lambda x: as_dtype(x, dtype), sample))
        if not eqx.is_array(u) or u.ndim != 1:
            raise ValueError(
                f"The inner map must return a real vector (k,) for one sample; it returned "
                f"{f'an array of shape {u.shape} and {u.dtype}' if eqx.is_array(u) else type(u).__name__}."
            )
        if jnp.issubdtype(u.dtype, jnp.complexfloating):
            raise ValueError(
                f"The inner map must return a real vector (k,); it returned {u.dtype}: give its modulus, or its real "
                f"and imaginary parts in one vector, jnp.concatenate([u.real, u.imag])."
            )
        if not jnp.issubdtype(u.dtype, jnp.floating):
            raise ValueError(
                f"The inner map must return floating-point numbers, which have a derivative; it returned {u.dtype}: "
                f"leave out the rounding or the comparison, or convert the data with .astype(float)."
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

    def _here(self) -> int:
        """The samples of one device."""
        return len(self) if self.split is None else len(self) // self.split.parts

    def _chunk(self, w: Params, cached: bool = False) -> int:
        budget = min(rows.BUDGET, rows.CACHE) if cached else None
        return rows.chunk_size(lambda row: self._phi(w, row), self._rows(), self._here(), budget)

    def _evaluated(self, chunk: int) -> int:
        """The samples that a pass evaluates: the last chunk overlaps the one before."""
        here = self._here()
        return len(self) // here * -(-here // chunk) * chunk

    def _price(self, w: Params, cached: bool = False) -> tuple[int, Cost]:
        """The samples that a pass evaluates, and its phi, with the JVP of a linearised map."""
        n = self._evaluated(self._chunk(w, cached))
        return n, Cost(phi=n, jvp=n if isinstance(self.inner, Linearized) else 0)


def _value(problem: AbstractProblem, w: Params) -> Array:
    f = jax.vmap(problem.outer.value)(problem.stack(w))
    value = jnp.sum(problem.coefficients().astype(f.dtype) * f)
    return value if problem.quadratic is None else value + problem.quadratic.value(w)


def _value_and_subgradient(problem: AbstractProblem, w: Params) -> tuple[Array, Params]:
    value, gradient = problem._losses(w)
    if problem.quadratic is None:
        return value, gradient
    return value + problem.quadratic.value(w), optax.tree.add(gradient, problem.quadratic.gradient(w))


def check_maps(inner: Any, outer: Any) -> None:
    """Raise a sentence unless a problem can be made of an inner map and an outer function."""
    if not isinstance(outer, AbstractOuter):
        raise TypeError(f"The outer function must be one of proxlin's, such as px.L2(); it is {described(outer)}.")
    check_function(inner, "The inner map", "(w, sample)")


def check_problem(problem: Any, who: str) -> None:
    """Raise a sentence unless problem is one."""
    if not isinstance(problem, AbstractProblem):
        raise TypeError(
            f"{who} needs a problem, such as px.MeanOfLosses(inner, outer, data); it got {described(problem)}."
        )


def construct(problem: Any, inner: Callable, outer: AbstractOuter, data: Any, ridge: Any, weights: Any) -> None:
    """The checked fields of a new problem."""
    check_maps(inner, outer)
    ridge = number(ridge, "ridge", low=0.0)
    problem.inner = with_jax_arrays(as_inner(inner), "The inner map")
    problem.outer = with_jax_arrays(outer, "The outer function")
    problem.data = checked_data(data)
    problem.weights = checked_weights(weights, _leading(problem.data))
    problem.split = split_of(problem.data)
    if problem.split is not None:
        problem.data, problem.weights = problem.split.place((problem.data, problem.weights))
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


def ravel_rows(tree: Params) -> Float[Array, "k d"]:
    return jnp.concatenate([x.reshape(x.shape[0], -1) for x in jax.tree.leaves(tree)], axis=1)
