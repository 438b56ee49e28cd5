"""Inner maps phi: (w, sample) -> R^k: residuals, first-order expansions, one row of sparse data, and
maps that touch few rows of w.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact, Int

from . import trees
from .checks import described, outline, whole
from .compiled import remembered
from .jaxprs import Traced, opened, traced
from .oracles import AbstractOracle
from .oracles.base import check_oracle
from .types import Params, is_concrete, is_here, is_parameter, parameters


class Inner(eqx.Module):
    """phi(w, sample) = function(w, sample), a plain function as a static part of a tree of arrays."""

    function: Callable = eqx.field(static=True)

    def __call__(self, w: Params, sample: Any) -> Array:
        return self.function(w, sample)


def as_inner(inner: Callable) -> Callable:
    """Return a callable tree as it is, and a plain function wrapped, so that a problem holds
    nothing but arrays.
    """
    if isinstance(inner, eqx.Module):
        return inner  # pyright: ignore[reportReturnType]
    return Inner(inner)


def check_function(function: Any, name: str, arguments: str) -> Callable:
    """Return the function, or raise a sentence where it is none."""
    if not callable(function):
        hint = ""
        if isinstance(function, np.ndarray | jax.Array):
            hint = ": give the function itself, not what it returns"
        raise TypeError(
            f"{name} must be a function of {arguments}; it is {described(function)}{hint}."
        )
    return function


class Residual(eqx.Module):
    """phi(w, (x, y)) = predict(w, x) - y."""

    predict: Callable

    def __call__(self, w: Params, sample: Any) -> Array:
        x, y = _pair(sample, "px.residual")
        prediction = self.predict(w, x)
        if prediction is None or isinstance(prediction, list | tuple | dict):
            raise ValueError(
                f"predict must return an array; it got ONE row x of shape {np.shape(x)} and returned "
                f"{_kind(prediction)}: end it with a return of one array, jnp.stack([...])."
            )
        shape = jnp.shape(prediction)
        wanted = jnp.shape(y)
        if shape != wanted:
            raise ValueError(
                f"The prediction has shape {shape} and the target {wanted}; they must agree{_remedy(shape, wanted)}, "
                f"so that residual(predict) is predict(w, x) - y without broadcasting."
            )
        return prediction - y


def _pair(sample: Any, who: str) -> tuple[Any, Any]:
    """Return the two parts of a sample, or raise a sentence where it is no pair (x, y)."""
    if isinstance(sample, list | tuple) and len(sample) == 2:
        return sample[0], sample[1]
    if isinstance(sample, list | tuple):
        found = f"{len(sample)} arrays"
    elif isinstance(sample, np.ndarray | jax.Array):
        found = f"one array, of which a row has shape {sample.shape}"
    else:
        found = f"a {type(sample).__name__}"
    raise ValueError(
        f"{who} needs data of two parts, inputs and targets: give data as (X, y), one tuple; it is {found}."
    )


def _kind(x: Any) -> str:
    return "None" if x is None else f"a {type(x).__name__}"


def _remedy(shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Say how a prediction and a target of one number each come to agree."""
    if shape == () and wanted == (1,):
        return " (give y of shape (n,), as y[:, 0])"
    if shape == (1,) and wanted == ():
        return " (give y of shape (n, 1), as y[:, None], or return one number, as u[0])"
    if len(shape) == 1 and wanted == ():
        return " (predict gets ONE row and must return one number)"
    return ""


def residual(predict: Callable) -> Residual:
    """Return the inner map (w, (x, y)) -> predict(w, x) - y.

    Parameters
    ----------
    predict : a function of (w, x)
        The model for ONE row x; what it returns has the shape of one target y.

    Returns
    -------
    an inner map
        The function of (w, (x, y)) that a problem takes as `inner`.

    Raises
    ------
    TypeError
        predict is no function.

    See Also
    --------
    MeanOfLosses, LossOfMean : take it as `inner`.
    augmented_scores : the inner map of a structured output.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> phi = px.residual(lambda w, x: x @ w)
    >>> phi(jnp.eye(2), (jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0]))).tolist()
    [0.0, 1.0]
    """
    return Residual(as_inner(check_function(predict, "predict", "(w, x)")))


class ScaledInput(eqx.Module):
    """phi(e, sample) = inner(scale * e, sample), entry by entry."""

    inner: Callable
    scale: Params

    def __call__(self, w: Params, sample: Any) -> Array:
        scaled = jax.tree.map(jnp.multiply, self.scale, w)
        return self.inner(scaled, sample)


class AugmentedScores(eqx.Module):
    """phi(w, (x, y)) = (s + cost(y), <s, y>) in R^{m+1}, s = predict(w, x) the scores of the m
    parts.
    """

    predict: Callable
    oracle: AbstractOracle

    def __call__(self, w: Params, sample: Any) -> Array:
        x, y = _pair(sample, "px.augmented_scores")
        scores = self.predict(w, x)
        y = y.astype(scores.dtype)
        parts = self.oracle.size()
        if not scores.shape == y.shape == (parts,):
            raise ValueError(
                f"The oracle has {parts} parts; predict returned scores of shape {scores.shape} and "
                f"y has shape {y.shape}."
            )
        # a padded part may have the score -inf
        true = jnp.where(y > 0, scores, jnp.zeros_like(scores))
        return jnp.append(scores + self.oracle.cost(y), jnp.sum(true))


def augmented_scores(predict: Callable, oracle: AbstractOracle) -> AugmentedScores:
    """Return the inner map of the structural hinge, (w, (x, y)) -> (s + cost(y), <s, y>); y is 0/1,
    the true output.

    `StructuredHinge(oracle)` of it is max_{y'} <s, y'> + cost(y, y') - <s, y>. Only the m scores are ever linearised.

    Parameters
    ----------
    predict : a function of (w, x)
        The scores (m,) of the parts of an output, for ONE x.
    oracle : an oracle, such as `px.Chains(5, 3)`
        The set of outputs, of m parts each.

    Returns
    -------
    an inner map
        The function of (w, (x, y)) that a problem takes as `inner`.

    Raises
    ------
    TypeError
        predict is no function, or oracle is none.

    See Also
    --------
    StructuredHinge, EntropyHinge : the outer functions that go with it.
    residual : the inner map of a regression.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> grid = px.MonotonePaths(2, 2)
    >>> phi = px.augmented_scores(lambda w, x: w * x, grid)
    >>> truth = jnp.array([1.0, 1.0, 0.0, 1.0])
    >>> u = phi(jnp.array(2.0), (jnp.array([1.0, 2.0, 3.0, 1.0]), truth))
    >>> u.tolist()
    [2.0, 4.0, 7.0, 2.0, 8.0]
    >>> float(px.StructuredHinge(grid).value(u))  # the best path has 11, the true one 8
    3.0
    """
    check_oracle(oracle, "augmented_scores")
    return AugmentedScores(
        as_inner(check_function(predict, "predict", "(w, x)")), oracle
    )


class Linearized(eqx.Module):
    """The expansion phi(anchor) + J(anchor) (w - anchor) of an inner map, by one JVP; J is never
    formed.

    Law: exact at the anchor, and affine in w, so that linearising it again changes nothing.

    Parameters
    ----------
    inner : a function of (w, sample)
        phi.
    anchor : a tree like w
        Where phi is expanded.

    See Also
    --------
    residual : an inner map.
    MeanOfLosses : its method `linearize(w)` uses it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> line = px.Linearized(lambda w, x: w**2 * x, jnp.array([3.0]))
    >>> line(jnp.array([4.0]), jnp.array([1.0])).tolist()  # 9 + 6 (4 - 3)
    [15.0]
    """

    inner: Callable
    anchor: Params

    def __call__(self, w: Params, sample: Any) -> Array:
        at, rest = eqx.partition(self.anchor, is_parameter)
        w = parameters(w)
        at = jax.tree.map(lambda a, x: a.astype(x.dtype), at, w)
        toward = trees.sub(w, at)
        phi = lambda p: self.inner(eqx.combine(p, rest), sample)
        u, change = jax.jvp(phi, (at,), (toward,))
        return u + change


class SparseRows(eqx.Module):
    """Data of n sparse rows, padded to a common length: row i has values[i, j] in column indices[i,
    j].

    As data of a problem, its inner map sees one row and uses `x.values @ w[x.indices]`; padding has
    value 0.

    Parameters
    ----------
    indices : an integer array (n, m)
        The columns of the entries.
    values : an array (n, m)
        The entries; padding has the value 0.
    columns : an integer
        The number of columns.

    Raises
    ------
    ValueError
        indices and values have different shapes, or an index is not below columns.
    TypeError
        indices are not integers.

    See Also
    --------
    MeanOfLosses : takes it as `data`.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = px.SparseRows(np.array([[0, 2], [1, 0]]), np.array([[1.0, 2.0], [3.0, 0.0]]), 3)
    >>> x.dense().tolist()
    [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]
    """

    indices: Int[Array | np.ndarray, "*n m"]
    values: Inexact[Array | np.ndarray, "*n m"]
    columns: int = eqx.field(static=True)

    def __init__(self, indices: Any, values: Any, columns: int):
        shape = np.shape(indices)
        if shape != np.shape(values):
            raise ValueError(
                f"SparseRows needs indices and values of one shape; not {shape} and {np.shape(values)}."
            )
        kind = jnp.result_type(indices)
        if not jnp.issubdtype(kind, jnp.integer):
            raise TypeError(
                f"The indices of SparseRows must be integers; they are {kind}."
            )
        columns = whole(columns, "The number of columns of SparseRows", low=0)
        if is_concrete(indices):
            if (
                np.size(indices)
                and not 0 <= np.min(indices) <= np.max(indices) < columns
            ):
                low = int(np.min(indices))
                high = int(np.max(indices))
                raise ValueError(
                    f"SparseRows has {columns} columns, but its indices go from {low} to {high}."
                )
            indices = jnp.asarray(indices)
        self.indices = indices
        self.values = values
        self.columns = columns

    def dense(self) -> Array:
        """Return the rows as an array (n, columns); values on the same column add up.

        Returns
        -------
        an array (n, columns)
            The rows, with zeros.
        """
        values = jnp.asarray(self.values)
        n = len(values)
        rows = jnp.arange(n)[:, None]
        empty = jnp.zeros((n, self.columns), values.dtype)
        return empty.at[rows, self.indices].add(values)


class Touches(eqx.Module):
    """phi(w, sample) = inner(the rows of w that select(sample) names, sample)."""

    inner: Callable
    select: Callable

    def __call__(self, w: Params, sample: Any) -> Array:
        return self.inner(taken(w, self.rows(w, sample)), sample)

    def rows(self, w: Params, sample: Any) -> list[Array | None]:
        """Return, for each leaf of w, the checked indices of the rows that the sample touches; None is
        all of it. They may be negative, as an index of NumPy.
        """
        found = self.select(sample)
        leaves, tree = jax.tree.flatten(w)
        try:
            parts = tree.flatten_up_to(found)
        except ValueError:
            raise ValueError(
                f"The select of px.touches must return a tree like w, with an index or None for each array: w is "
                f"{outline(w)}, and it returned {outline(found)}."
            ) from None
        return [_checked_rows(x, part) for x, part in zip(leaves, parts, strict=True)]


def check_touched(inner: Callable, w: Params, data: Any) -> None:
    """Raise a sentence if a sample of `data`, which has a leading axis, touches a row that w does not
    have. Nothing is checked where the data are traced or on other hosts.
    """
    known = all(is_concrete(x) and is_here(x) for x in jax.tree.leaves((w, data)))
    if not isinstance(inner, Touches) or not known:
        return
    found = jax.vmap(lambda sample: inner.rows(w, sample))(data)
    leaves = jax.tree_util.tree_leaves_with_path(w)
    for (path, x), at in zip(leaves, found, strict=True):
        if at is None:
            continue
        index = np.asarray(at)
        count = np.shape(x)[0]
        wrong = (index < -count) | (index >= count)
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0])
            raise ValueError(
                f"Sample {place[0]} touches row {index[place]} of w{jax.tree_util.keystr(path)}, which has {count} "
                f"rows: the indices that the select of px.touches returns go from 0 to {count - 1}, or from -{count} "
                f"to -1 from the end."
            )


def taken(w: Params, rows: list[Array | None]) -> Params:
    """Return w with these rows of each leaf; a row that is not there is nan."""
    leaves, tree = jax.tree.flatten(w)
    pairs = zip(leaves, rows, strict=True)
    return tree.unflatten([x if at is None else _take(x, at) for x, at in pairs])


def _take(x: Array, at: Array) -> Array:
    return jnp.asarray(x).at[at].get(mode="fill", fill_value=jnp.nan)


def _checked_rows(x: Any, at: Any) -> Array | None:
    if at is None:
        return None
    if isinstance(at, dict | list | tuple | str | eqx.Module):
        raise TypeError(
            f"The select of px.touches must return an integer, a vector of integers or None for each array of w; "
            f"for one of shape {np.shape(x)} it returned {described(at)}."
        )
    at = jnp.asarray(at)
    if not jnp.issubdtype(at.dtype, jnp.integer):
        raise TypeError(
            f"The indices that the select of px.touches returns must be integers; they are {at.dtype}: give the data "
            f"as integers, such as i.astype(int)."
        )
    if at.ndim > 1:
        raise ValueError(
            f"The select of px.touches must return one index or a vector of them for each array of w; it returned an "
            f"array of shape {at.shape}."
        )
    if np.ndim(x) == 0:
        raise ValueError(
            "The select of px.touches returned an index for a number of w, which has no rows; give None for it."
        )
    return at


class ScaledRows(eqx.Module):
    """The local function e, sample -> inner(scale * e, sample), with the rows of the scale that the sample
    touches.
    """

    inner: Touches
    scale: Params

    def __call__(self, local: Params, sample: Any) -> Array:
        rows = self.inner.rows(self.scale, sample)
        scaled = jax.tree.map(jnp.multiply, taken(self.scale, rows), local)
        return self.inner.inner(scaled, sample)


def scaled_input(inner: Callable, scale: Params) -> Callable:
    """Return phi(e, sample) = inner(scale * e, sample), which touches the rows that inner touches."""
    if isinstance(inner, Touches):
        return Touches(ScaledRows(inner, scale), inner.select)
    return ScaledInput(inner, scale)


class Selection(eqx.Module):
    """A plain function of a sample as a static part of a tree of arrays."""

    function: Callable = eqx.field(static=True)

    def __call__(self, sample: Any) -> Any:
        return self.function(sample)


def touches(inner: Callable, select: Callable) -> Touches:
    """Return the inner map (w, sample) -> inner(local, sample) that sees only the rows of w which a
    sample touches.

    `local` is w with x[i] in the place of each array x for which select(sample) has the index i. An
    exact step then works with the few entries of the Jacobian that are not zero: where w has an
    array of which each sample touches one row, these rows are eliminated block by block, and only
    the rest of w is solved for with a dense matrix. Every other solver sees a function of w, as
    ever. A negative index counts from the end, as in NumPy. A row that is not there makes F nan;
    `minimize` and `solve_subproblem` name the sample that asks for it.

    Parameters
    ----------
    inner : a function of (local, sample)
        phi_i, of the rows that the sample touches.
    select : a function of a sample
        A tree like w: an integer or a short vector of integers for each array of w, the indices of
        the rows along its first axis, or None for an array that the sample sees as a whole.

    Returns
    -------
    an inner map
        The function of (w, sample) that a problem takes as `inner`.

    Raises
    ------
    TypeError
        inner or select is no function.

    See Also
    --------
    MeanOfLosses : takes it as `inner`.
    prox_linear, solve_subproblem : make use of it.
    SparseRows : sparse data, where w is one vector.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> phi = px.touches(
    ...     lambda local, s: local["U"] @ local["V"] - s["y"],
    ...     lambda s: {"U": s["i"], "V": s["j"]},
    ... )
    >>> w = {"U": jnp.ones((5, 2)), "V": jnp.arange(6.0).reshape(3, 2)}
    >>> float(phi(w, {"i": 4, "j": 2, "y": 1.0}))  # 4 + 5 - 1
    8.0
    """
    check_function(select, "select", "a sample")
    if not isinstance(select, eqx.Module):
        select = Selection(select)
    inner = check_function(inner, "inner", "(local, sample)")
    return Touches(as_inner(inner), select)  # pyright: ignore[reportArgumentType]


class Bound(eqx.Module):
    """phi(w, sample) with the leaves of w that are no parameters filled in: solvers then carry
    arrays alone.
    """

    inner: Callable
    rest: Params

    def __call__(self, w: Params, sample: Any) -> Array:
        return self.inner(eqx.combine(w, self.rest), sample)


class TracedInner(eqx.Module):
    """phi(w, sample) as its jaxpr, with the arrays that it holds: equal functions are equal here."""

    program: Traced
    arrays: list[Array]

    def __call__(self, w: Params, sample: Any) -> Array:
        return self.program(self.arrays, w, sample)

    def is_affine(self, w: Params) -> bool:
        """Whether phi is affine in w, as far as can be told."""
        count = len(jax.tree.leaves(w))
        before = len(self.arrays)
        total = len(self.program.program.jaxpr.invars)
        moving = [before <= i < before + count for i in range(total)]
        return self.program.program.is_affine(moving)


def traced_inner(inner: Callable, w: Params, row: Any) -> Callable:
    """Return phi as its jaxpr for w and a row of these shapes, or phi itself where that tells too
    little.
    """
    program = remembered(_traced, inner, w, row)
    if program is None:
        return inner
    arrays = [x for x in jax.tree.leaves(inner) if eqx.is_array(x)]
    return TracedInner(program, arrays)


def opened_inner(inner: Callable, w: Params, row: Any) -> Callable:
    """Return phi with the traced arrays that it closes over as leaves, or phi itself where there are none."""
    if isinstance(inner, TracedInner):
        return inner
    arrays, others = eqx.partition(inner, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def phi(leaves: list, w: Params, row: Any) -> Any:
        return eqx.combine(treedef.unflatten(leaves), others)(w, row)

    program = opened(phi, leaves, w, row)
    return inner if program is None else TracedInner(program, leaves)


def _traced(inner: Callable, w: Params, row: Any) -> Traced | None:
    is_array = lambda x: isinstance(x, jax.ShapeDtypeStruct)
    arrays, others = eqx.partition(inner, is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def phi(leaves: list, w: Params, row: Any) -> Any:
        return eqx.combine(treedef.unflatten(leaves), others)(w, row)

    return traced(phi, leaves, w, row)


def user_function(inner: Callable, sample: Any) -> tuple[Any, str, str, Any]:
    """Return the user's own function behind an inner map, what a sentence calls it and its second
    argument, and that argument.
    """
    while isinstance(inner, Bound | Linearized | ScaledInput | ScaledRows | Touches):
        inner = inner.inner
    if isinstance(inner, Residual | AugmentedScores):
        predict = inner.predict
        if isinstance(predict, Inner):
            predict = predict.function
        x = sample
        if isinstance(sample, list | tuple) and len(sample) == 2:
            x = sample[0]
        return predict, "predict", "x", x
    function = inner.function if isinstance(inner, Inner) else inner
    return function, "The inner map", "sample", sample
