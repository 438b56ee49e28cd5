"""F(w) = sum_i c_i f(u_i(w)) + weight/2 |w - center|^2 + offset + g(w), and the four verbs."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import trees
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
from ..compiled import call, remembered, shapes_of
from ..cost import Cost, Prices
from ..inners import (
    Bound,
    Linearized,
    Touches,
    TracedInner,
    as_inner,
    check_function,
    opened_inner,
    residual,
    traced_inner,
    user_function,
)
from ..inputs import as_arrays
from ..outers import AbstractOuter
from ..penalties import Penalties, as_penalties
from ..precision import at_rest, in_the_precision_of_w, is_wide, scope
from ..shown import shown
from ..slips import explained, returned
from ..types import (
    Index,
    Number,
    Params,
    Scalar,
    as_dtype,
    dtype_of,
    dtype_within,
    has_x64,
    is_concrete,
    is_parameter,
    on_device,
    parameters,
)
from . import rows
from .expansion import Expansion, LinearMap
from .quadratic import Quadratic
from .rows import Split, split_of

MOST_BYTES = 2**26  # of data that is copied for rows to be added


class AbstractProblem(eqx.Module):
    """A problem F(w) = sum_i c_i f(u_i(w)) + quadratic(w) + g(w), g a penalty or nothing. Every verb
    returns a problem and leaves g alone; none of them copies data or runs phi.

    Laws: `p.linearize(w).value(w) == p.value(w)`; `p[0:n].value(w) == p.value(w)`;
    `p.smooth(nu)[batch] == p[batch].smooth(nu)`; regularising twice is regularising once with the merged quadratic.

    See Also
    --------
    MeanOfLosses, LossOfMean : the two problems.
    minimize, solve : take a problem.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = np.array([[1.0], [3.0]])
    >>> p = px.MeanOfLosses(lambda w, x: w**2 - x, px.L1(), x)
    >>> w = np.array([2.0])
    >>> float(p.value(w)), float(p[0].value(w)), len(p)
    (2.0, 3.0, 2)
    >>> line = p.linearize(w)
    >>> float(line.value(w)), float(line.value(np.array([0.0])))  # |4 - 8 - x_i|
    (2.0, 6.0)
    >>> float(p.regularize(2.0, np.array([1.0])).value(w))
    3.0
    """

    inner: Callable
    outer: AbstractOuter
    data: Any
    weights: Number | None
    quadratic: Quadratic | None
    single: bool = eqx.field(static=True)
    split: Split | None = eqx.field(static=True)  # how the rows lie on several devices
    count: Array | None  # how many rows count, from the first on; None: all of them
    penalty: Penalties | None = None  # g, the bounds and norms of w

    def __repr__(self) -> str:
        return shown(self)

    # What differs between the two classes.

    @abc.abstractmethod
    def coefficients(self) -> Float[Array, " m"]:
        """Return c, one number for each block.

        Returns
        -------
        a vector (m,)
            c.
        """

    @abc.abstractmethod
    def stack(self, w: Params) -> Float[Array, "m k"]:
        """Return the blocks u_i(w).

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        an array (m, k)
            u, a row for each block.
        """

    @abc.abstractmethod
    def push(self, w: Params, direction: Params) -> Float[Array, "m k"]:
        """Return the Jacobian of the stack at w times a direction (a JVP).

        Parameters
        ----------
        w : a tree
            The parameters.
        direction : a tree like the parameters of w
            What the Jacobian is multiplied with.

        Returns
        -------
        an array (m, k)
            J direction.
        """

    @abc.abstractmethod
    def pull(self, w: Params, v: Float[Array, "m k"]) -> Params:
        """Return the transposed Jacobian of the stack at w times v (a VJP).

        Parameters
        ----------
        w : a tree
            The parameters.
        v : an array (m, k)
            What the transpose is multiplied with.

        Returns
        -------
        a tree like the parameters of w
            J' v.
        """

    @abc.abstractmethod
    def expand(self, w: Params) -> Expansion:
        """Return the first-order expansion at w with its dense Jacobian.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        an `Expansion`
            The blocks u, their Jacobians (m, k, d) and their coefficients c.
        """

    @abc.abstractmethod
    def prices(self, w: Params) -> Prices:
        """Return what each call costs, from shapes alone.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        `Prices`
            The price of a value, a subgradient, a push, a pull and an expansion.
        """

    @abc.abstractmethod
    def _losses(self, w: Params) -> tuple[Array, Params]:
        """Return sum_i c_i f(u_i(w)) and a subgradient of it."""

    # What does not.

    @in_the_precision_of_w
    def value(self, w: Params) -> Float[Array, ""]:
        """Return F(w), with its ridge and its penalty: inf where w is outside of bounds.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        a number
            F(w), in the dtype of w.
        """
        return self._call(_value, w)

    @in_the_precision_of_w
    def subgradient(self, w: Params) -> Params:
        """Return a subgradient of F at w, a tree like w; leaves that are no parameters are None.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        a tree like w
            The subgradient; the gradient, where F has one.
        """
        return self._call(_value_and_subgradient, w)[1]

    @in_the_precision_of_w
    def value_and_subgradient(self, w: Params) -> tuple[Float[Array, ""], Params]:
        """Return F(w) and a subgradient, for the price of the subgradient.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        a pair
            F(w), and a tree like w.
        """
        return self._call(_value_and_subgradient, w)

    def linear_map(self, w: Params) -> LinearMap:
        """Return the first-order expansion at w without a matrix.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        a `LinearMap`
            The blocks u, their coefficients c, and the methods `push` and `pull`.
        """
        u = self.stack(w)
        return LinearMap(self, w, self.coefficients().astype(u.dtype), u)

    def __len__(self) -> int:
        """Return n.

        Returns
        -------
        an integer
            The number of samples.
        """
        return 1 if self.single else _leading(self.data)

    def samples(self) -> Any:
        """Return the number of samples: n, or where rows were added, the count of the true ones.

        Returns
        -------
        an integer, or an array of no axes
            The number of samples.
        """
        return len(self) if self.count is None else self.count

    def batches(self, size: int) -> Any:
        """Return the number of batches of this size in an epoch, at least 1.

        Parameters
        ----------
        size : an integer
            The samples of a batch.

        Returns
        -------
        an integer, or an array of no axes
            The number of batches.
        """
        if self.count is None:
            return max(1, len(self) // size)
        return jnp.maximum(1, self.count // size)

    def padded(self) -> "AbstractProblem":
        """Return this problem with rows that do not count, up to the next size of a few.

        Problems with nearly as many rows then share their compiled programs. Large data stays as it
        is, because the copy would cost more than it saves.

        Returns
        -------
        a problem
            The same F, in another shape.
        """
        rows = (self.data, self.weights)
        n = len(self)
        size = sum(x.nbytes for x in jax.tree.leaves(rows))
        if self.split is not None or self.single or size > MOST_BYTES:
            return self
        more = bucket(n) - n

        def pad(x: Array) -> np.ndarray:
            rows = np.asarray(x)
            # Copies of the first row: phi is as finite there as it was before.
            added = np.broadcast_to(rows[:1], (more, *rows.shape[1:]))
            return np.concatenate([rows, added])

        data, weights = jax.tree.map(lambda x: on_device(pad(x)), rows)
        return _replace(self, data=data, weights=weights, count=on_device(np.int32(n)))

    def all_rows(self) -> "AbstractProblem":
        """Return this problem with its added rows as samples: the largest one of its shapes.

        Returns
        -------
        a problem
            It has as many samples as rows.
        """
        return _replace(self, count=None)

    def __getitem__(self, batch: Index) -> "AbstractProblem":
        """Return a mini-batch: an integer is one sample without a leading axis. The whole ridge is
        kept.

        Parameters
        ----------
        batch : an integer, a slice or a vector of integers
            Which samples.

        Returns
        -------
        a problem
            The mean over these samples.

        Raises
        ------
        IndexError
            The problem is one sample already, or has no such sample.
        """
        if self.single:
            raise IndexError("This problem is one sample already; it has no batches.")
        batch = check_batch(batch, len(self))
        if self.split is not None:
            return self._take(
                np.arange(len(self))[batch] if isinstance(batch, slice) else batch
            )

        def take(x: Array | np.ndarray) -> Array | np.ndarray:
            if is_concrete(batch):
                # one entry of an array of NumPy is no array
                return np.asarray(x[batch]) if isinstance(x, np.ndarray) else x[batch]
            # In a compiled loop nobody can be told of an index out of range: clipping is cheaper
            # than filling in nan.
            return jnp.asarray(x).at[batch].get(mode="clip")

        return _replace(
            self,
            data=jax.tree.map(take, self.data),
            weights=None if self.weights is None else take(self.weights),
            single=not isinstance(batch, slice) and np.ndim(batch) == 0,
            count=None,
        )

    def _take(self, batch: Index) -> "AbstractProblem":
        """Return a mini-batch of rows on several devices, split again if its size is a multiple of
        their number.
        """
        assert self.split is not None
        (data, weights), split = self.split.take(
            (self.data, self.weights), jnp.asarray(batch)
        )
        return _replace(
            self, data=data, weights=weights, single=np.ndim(batch) == 0, split=split
        )

    def gathered(self) -> "AbstractProblem":
        """Return this problem with all its rows on every device.

        Returns
        -------
        a problem
            The same F.
        """
        data, weights = self.whole((self.data, self.weights))
        return _replace(self, data=data, weights=weights, split=None)

    def whole(self, rows: Any) -> Any:
        """Return arrays with a row for each sample, all of them on every device.

        Parameters
        ----------
        rows : a tree of arrays
            A row for each sample.

        Returns
        -------
        a tree of arrays
            The same rows, on every device.
        """
        return rows if self.split is None else self.split.gather(rows)

    def each(self, function: Callable) -> Any:
        """Return function(problem of one sample) for all samples, one after the other, each where
        its row lies.

        Parameters
        ----------
        function : a function of a problem
            It gets the problem of one sample.

        Returns
        -------
        a tree of arrays
            What it returns, with a leading axis of samples.
        """

        def one(row: Any) -> Any:
            data, weights = row
            return function(
                _replace(self, data=data, weights=weights, single=True, split=None)
            )

        def run(rows: Any) -> Any:
            return jax.lax.map(one, rows)

        rows = (self.data, self.weights)
        return run(rows) if self.split is None else self.split.stack(run, rows)

    def linearize(self, w: Params) -> "AbstractProblem":
        """Return the problem with phi replaced by phi(w) + J(w) (. - w), matrix-free.

        Parameters
        ----------
        w : a tree
            Where phi is expanded.

        Returns
        -------
        a problem
            It is convex, and equal to this one at w.
        """
        if isinstance(self.inner, Linearized):
            return self  # affine already
        return _replace(
            self, inner=Linearized(self.inner, check_parameters(w, self.data))
        )

    def smooth(self, nu: Scalar) -> "AbstractProblem":
        """Return the problem with f replaced by f_nu, inside the mean: the envelope of a mean
        depends on the batch.

        Parameters
        ----------
        nu : a positive number
            How much f is smoothed.

        Returns
        -------
        a problem
            F_nu.
        """
        return _replace(self, outer=self.outer.smooth(nu))

    def regularize(self, kappa: Scalar, center: Params) -> "AbstractProblem":
        """Return the problem plus kappa/2 |w - center|^2.

        Parameters
        ----------
        kappa : a number
            The weight of the quadratic, at least 0.
        center : a tree like w
            Where the quadratic is least.

        Returns
        -------
        a problem
            F + kappa/2 |w - center|^2.
        """
        kappa = number(kappa, "kappa", low=0.0)
        center = parameters(
            check_parameters(center, self.data, "The center of regularize")
        )
        zero = number(0.0, "The offset")
        old = Quadratic(zero, None, zero) if self.quadratic is None else self.quadratic
        wide = any(is_wide(x) for x in jax.tree.leaves(center))
        with scope(wide and is_concrete((kappa, center, old))):
            merged = old.add(kappa, center)
        return _replace(self, quadratic=merged if has_x64() else at_rest(merged))

    def plain(self) -> "AbstractProblem":
        """Return the losses alone, without the quadratic and the penalty.

        Returns
        -------
        a problem
            F without its ridge, its proximal terms and its penalty.
        """
        return _replace(self, quadratic=None, penalty=None)

    def unpenalized(self) -> "AbstractProblem":
        """Return F - g, the losses and the quadratic: what a proximal step takes the slope of.

        Returns
        -------
        a problem
            F without its penalty.
        """
        return _replace(self, penalty=None)

    def feasible(self, w: Params) -> Params:
        """Return the point nearest to w that is within the bounds of the penalty: w itself, where
        there are none.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        a tree like w
            Its parameters are within the bounds.
        """
        if self.penalty is None:
            return w
        self.penalty.check(w)
        at, rest = eqx.partition(w, is_parameter)
        return eqx.combine(self.penalty.nearest(at), rest)

    def expanded_at(self) -> tuple["AbstractProblem", Params]:
        """Return the problem that a linearised one came from, and where it was linearised.

        Returns
        -------
        a pair
            The problem, and w.

        Raises
        ------
        TypeError
            The problem is not linearised.
        """
        if not isinstance(self.inner, Linearized):
            raise TypeError(
                "Only a linearised problem has an anchor; call linearize(w) first."
            )
        return _replace(self, inner=self.inner.inner), self.inner.anchor

    def bind(self, rest: Params) -> "AbstractProblem":
        """Return this problem as a function of the parameters alone, with the other leaves of w
        filled in.

        Parameters
        ----------
        rest : a tree like w
            The leaves that are no parameters, None in the places of the others.

        Returns
        -------
        a problem
            The same F, of a tree with parameters alone.
        """
        if not jax.tree.leaves(rest):
            return self
        if isinstance(self.inner, Linearized):
            bound = Linearized(
                Bound(self.inner.inner, rest), parameters(self.inner.anchor)
            )
            return _replace(self, inner=bound)
        return _replace(self, inner=Bound(self.inner, rest))

    def traced(self, w: Params) -> "AbstractProblem":
        """Return this problem with phi as its jaxpr: functions that compute the same share their
        compiled programs, whatever objects they are.

        A jaxpr knows the devices that it was traced for, so rows on several ones keep their phi.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        a problem
            The same F.
        """
        if isinstance(self.inner, Linearized | Touches) or self.split is not None:
            return self  # a jaxpr would not tell which rows of w a sample touches
        inner = traced_inner(self.inner, w, self._row_shapes(dtype_of(w)))
        return _replace(self, inner=inner)

    def opened(self, w: Params) -> "AbstractProblem":
        """Return this problem with the traced arrays that phi closes over as leaves, so that they can be seen,
        and have derivatives.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        a problem
            The same F.
        """
        if isinstance(self.inner, Linearized | Touches) or self.split is not None:
            return self
        inner = opened_inner(self.inner, w, self._row_shapes(dtype_of(w)))
        return _replace(self, inner=inner)

    def is_affine(self, w: Params) -> bool:
        """Return whether phi is affine in w, as far as its jaxpr tells.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        True or False
            False also where it cannot be told.
        """
        inner = self.traced(w).inner
        return isinstance(inner, Linearized) or (
            isinstance(inner, TracedInner) and inner.is_affine(w)
        )

    def _row_shapes(self, dtype: Any) -> Any:
        """Return the shapes of one sample, as phi sees it."""

        def shape(x: Any) -> jax.ShapeDtypeStruct:
            row = x.shape if self.single else x.shape[1:]
            return jax.ShapeDtypeStruct(row, dtype_within(x.dtype, dtype))

        return jax.tree.map(shape, self.data)

    @in_the_precision_of_w
    def outputs(self, w: Params) -> int:
        """Return k, from shapes alone.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        an integer
            k, the number of outputs of phi.
        """
        return remembered(_outputs, self, check_parameters(w, self.data))

    def in_one_chunk(self, w: Params) -> bool:
        """Return whether all samples of a device go through phi at once, from shapes alone.

        Parameters
        ----------
        w : a tree
            The parameters.

        Returns
        -------
        True or False
            Whether they do.
        """
        return self._chunk(w) >= self._here()

    def _call(self, function: Callable, w: Params) -> Any:
        w = check_parameters(w, self.data)
        if isinstance(self.inner, Linearized):
            check_like(self.inner.anchor, w, "The point of linearize")
        if self.quadratic is not None and self.quadratic.center is not None:
            check_like(self.quadratic.center, w, "The center of regularize")
        if self.penalty is not None:
            self.penalty.check(w)
        return call(function, self, w)

    def _phi(self, w: Params, sample: Any) -> Float[Array, " k"]:
        dtype = dtype_of(w)
        sample = jax.tree.map(lambda x: as_dtype(x, dtype), sample)
        function, who, name, given = user_function(self.inner, sample)
        try:
            u = self.inner(w, sample)
        except Exception as error:
            slip = explained(error, function, who, name, w, given)
            if slip is None:
                raise
            raise slip from error
        if isinstance(u, float | np.floating):
            u = jnp.asarray(u, dtype)
        if not eqx.is_array(u) or u.ndim > 1:
            raise ValueError(returned(function, who, name, given, u))
        u = jnp.atleast_1d(u)  # one number is a vector (1,)
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
        if u.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"The inner map must return numbers of float32 or float64; it returned {u.dtype}, whose rounding "
                f"the certified gap does not see: compute in the dtype of w."
            )
        self.outer.check(u.shape[0])
        return u.astype(dtype)

    def _weights(self, dtype: jnp.dtype) -> Float[Array, " n"]:
        """Return s_i / n, and 0 for rows that do not count."""
        rows = len(self)
        n = self.samples()
        if self.count is not None:
            n = self.count.astype(dtype)
        if self.weights is None:
            weights = jnp.full((rows,), 1 / n, dtype)
        else:
            weights = jnp.asarray(self.weights).reshape(rows).astype(dtype) / n
        if self.count is None:
            return weights
        return jnp.where(
            jnp.arange(rows, dtype=jnp.int32) < self.count,
            weights,
            jnp.zeros_like(weights),
        )

    def _rows(self) -> Any:
        """Return the samples with a leading axis."""
        if self.single:
            return jax.tree.map(lambda x: x[None], self.data)
        return self.data

    def _images(self, w: Params, rows: Any) -> Float[Array, "rows k"]:
        return jax.vmap(lambda row: self._phi(w, row))(rows)

    def _here(self) -> int:
        """Return the number of samples on one device."""
        return len(self) if self.split is None else len(self) // self.split.parts

    def _chunk(self, w: Params, cached: bool = False) -> int:
        """Return how many rows go through phi at once; `cached` asks for chunks that stay in the
        cache.
        """
        budget = min(rows.BUDGET, rows.CACHE) if cached else None
        return rows.chunk_size(
            lambda row: self._phi(w, row), self._rows(), self._here(), budget
        )

    def _image_price(self) -> Cost:
        """Return the price of a pass of phi, with the JVP of a linearised map: each row is
        evaluated once.
        """
        n = len(self)
        return Cost(phi=n, jvp=n if isinstance(self.inner, Linearized) else 0)


def _outputs(problem: AbstractProblem, w: Params) -> int:
    row = problem.data
    if not problem.single:
        row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), row)
    return shapes_of(type(problem)._phi, problem, w, row).shape[0]


def _value(problem: AbstractProblem, w: Params) -> Array:
    return value_of_stack(problem, problem.stack(w), w)


def value_of_stack(
    problem: AbstractProblem, u: Float[Array, "m k"], w: Params
) -> Array:
    """Return F(w), where the blocks u = u(w) are known already."""
    losses = jax.vmap(problem.outer.value)(u)
    value = jnp.sum(problem.coefficients().astype(losses.dtype) * losses)
    if problem.quadratic is not None:
        value = value + problem.quadratic.value(w)
    if problem.penalty is not None:
        value = value + problem.penalty.value(w)
    return value


def _value_and_subgradient(problem: AbstractProblem, w: Params) -> tuple[Array, Params]:
    value, gradient = problem._losses(w)
    if problem.quadratic is not None:
        value = value + problem.quadratic.value(w)
        gradient = trees.add(gradient, problem.quadratic.gradient(w))
    if problem.penalty is not None:
        value = value + problem.penalty.value(w)
        gradient = trees.add(gradient, problem.penalty.subgradient(w))
    return value, gradient


# What people write for a loss elsewhere, and what it is here.
WORDS = {
    "l1": "L1()",
    "mae": "L1()",
    "absolute_error": "L1()",
    "l2": "L2()",
    "linf": "LInf()",
    "max": "Max()",
    "hinge": "Hinge()",
    "huber": "Huber(1.0)",
    "quantile": "Quantile(0.9)",
    "mse": "SquaredL2()",
    "squared_error": "SquaredL2()",
}


def check_maps(inner: Any, outer: Any) -> None:
    """Raise a sentence unless a problem can be made of an inner map and an outer function."""
    if isinstance(inner, AbstractOuter) and callable(outer):
        raise TypeError(
            f"The inner map comes first and the outer function second; here they are swapped: give "
            f"(inner, px.{type(inner).__name__}(...), data)."
        )
    if not isinstance(outer, AbstractOuter):
        raise TypeError(
            f"The outer function must be one of proxlin's, such as px.L2(); it is {described(outer)}{_hint(outer)}."
        )
    if inner is residual:
        raise TypeError(
            "The inner map is px.residual itself; give it the predictor, px.residual(predict)."
        )
    check_function(inner, "The inner map", "(w, sample)")


def _hint(outer: Any) -> str:
    """Say what to write in place of something that was given for an outer function."""
    if isinstance(outer, type) and issubclass(outer, AbstractOuter):
        return f": call it, px.{outer.__name__}()"
    if isinstance(outer, str):
        return f": give px.{WORDS[outer.lower()]}" if outer.lower() in WORDS else ""
    if callable(outer):
        return (
            ": a loss of your own is a class with a subgradient, see the tutorial Your own loss, and least squares is "
            "px.SquaredL2()"
        )
    return ""


def check_problem(problem: Any, who: str) -> None:
    """Raise a sentence unless problem is one."""
    if isinstance(problem, AbstractProblem):
        return
    hint = ""
    if callable(problem) and not isinstance(problem, type):
        hint = ": unlike scipy's minimize(fun, x0), it needs f, phi and the data apart"
    if isinstance(problem, type):
        hint = ": make one of it first"
    if isinstance(problem, np.ndarray | jax.Array | list | dict):
        hint = f": the problem comes first, {who}(problem, w)"
    raise TypeError(
        f"{who} needs a problem, such as px.MeanOfLosses(inner, outer, data); it got {described(problem)}{hint}."
    )


def construct(
    problem: Any,
    inner: Callable,
    outer: AbstractOuter,
    data: Any,
    ridge: Any,
    weights: Any,
    penalty: Any,
) -> None:
    """Set the checked fields of a new problem."""
    check_maps(inner, outer)
    if np.ndim(ridge) > 0 and not isinstance(ridge, str | dict):
        raise ValueError(
            f"ridge must be one real number; it is {described(ridge)}: if these are the targets, give data as (X, y), "
            f"one tuple."
        )
    ridge = number(ridge, "ridge", low=0.0)
    problem.inner = with_jax_arrays(as_inner(inner))
    problem.outer = with_jax_arrays(outer)
    problem.data = checked_data(as_arrays(data))
    problem.weights = checked_weights(weights, _leading(problem.data))
    problem.split = split_of(problem.data)
    if problem.split is not None:
        problem.data, problem.weights = problem.split.place(
            (problem.data, problem.weights)
        )
    nothing = is_concrete(ridge) and not np.any(np.asarray(ridge))
    problem.quadratic = None
    if not nothing:
        problem.quadratic = Quadratic(ridge, None, number(0.0, "The offset"))
    problem.single = False
    problem.count = None
    problem.penalty = as_penalties(penalty)


def _replace(problem: Any, **changes: Any) -> Any:
    """Return a copy with other fields, without the checks of construction: cheap enough for every
    trace.
    """
    copy = object.__new__(type(problem))
    for field in dataclasses.fields(problem):
        object.__setattr__(
            copy, field.name, changes.get(field.name, getattr(problem, field.name))
        )
    return copy


def bucket(n: int) -> int:
    """Return the least of the sizes 1, 2, ..., 16, 18, 20, ..., 32, 36, 40, ... that is at least n:
    eight for every doubling, so that at most an eighth is added.
    """
    unit = 2 ** max(0, (n - 1).bit_length() - 4)
    return -(-n // unit) * unit


def _leading(data: Any) -> int:
    return jax.tree.leaves(data)[0].shape[0]
