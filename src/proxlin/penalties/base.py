"""g(x) of one array x of w, with its proximal operator argmin_y g(y) + |y - x|^2 / 2 step."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..checks import described, number
from ..outers.sets import norms
from ..precision import as_jax
from ..shown import shown
from ..types import Number, is_concrete
from .terms import AbstractTerm, EachEntry, EachGroup, Inside

Leaf = Float[Array, "..."]


class AbstractPenalty(eqx.Module):
    """A convex term g(x) of an array x of the parameters.

    Write `value`, `subgradient` and `prox` for a penalty of your own: every solver that takes a
    penalty then takes it. Exact steps use the prox alone, and are slower than those of the
    penalties here, which an interior point knows.

    See Also
    --------
    Bounds, NonNegative, L1Penalty, GroupL2 : the penalties that there are.
    MeanOfLosses, LossOfMean : take one, or a tree of them.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> class Cost(px.AbstractPenalty):
    ...     "g(x) = sum_j a x_j for x >= 0."
    ...
    ...     a: float
    ...
    ...     def value(self, x):
    ...         return jnp.where(jnp.all(x >= 0), self.a * jnp.sum(x), jnp.inf)
    ...
    ...     def subgradient(self, x):
    ...         return jnp.full_like(x, self.a)
    ...
    ...     def prox(self, x, step):
    ...         return jnp.maximum(x - step * self.a, 0)
    >>> Cost(2.0).prox(jnp.array([3.0, 0.5]), 0.5).tolist()
    [2.0, 0.0]
    """

    # whether g is a sum over entries, each with a `term` of its own
    by_entries: ClassVar[bool] = False

    def __repr__(self) -> str:
        return shown(self)

    @abc.abstractmethod
    def value(self, x: Leaf) -> Float[Array, ""]:
        """Return g(x), which is inf outside of bounds.

        Parameters
        ----------
        x : an array
            The parameters.

        Returns
        -------
        a number
            g(x).
        """

    @abc.abstractmethod
    def subgradient(self, x: Leaf) -> Leaf:
        """Return a subgradient of g at x, where g is finite.

        Parameters
        ----------
        x : an array
            The parameters.

        Returns
        -------
        an array like x
            The subgradient.
        """

    @abc.abstractmethod
    def prox(self, x: Leaf, step: Any) -> Leaf:
        """Return argmin_y g(y) + |y - x|^2 / 2 step.

        Parameters
        ----------
        x : an array
            Where y should be near.
        step : a number
            How much g counts.

        Returns
        -------
        an array like x
            The minimiser; g is finite there.
        """

    def nearest(self, x: Leaf) -> Leaf:
        """Return the point nearest to x where g is finite: x itself, if g has no bounds.

        Parameters
        ----------
        x : an array
            The parameters.

        Returns
        -------
        an array like x
            The projection.
        """
        return self.prox(x, jnp.zeros((), x.dtype))

    def excess(self, x: Leaf, best: Leaf, slope: Leaf) -> Array:
        """Return g(x) - g(best) - <slope, x - best> >= 0, for a subgradient `slope` at `best`.

        Parameters
        ----------
        x : an array
            The parameters; g is finite there.
        best : an array like x
            Where the slope is one.
        slope : an array like x
            A subgradient of g at `best`, up to rounding.

        Returns
        -------
        a number
            How far g is above its line, at least 0, with what rounding may hide.
        """
        terms = slope * (x - best)
        here = self.value(x)
        there = self.value(best)
        far = here - there - jnp.sum(terms)
        size = jnp.abs(here) + jnp.abs(there) + jnp.sum(jnp.abs(terms))
        return jnp.maximum(far, 0) + _rounding(x.size, size.dtype) * size

    def kinks(self, x: Leaf) -> Bool[Array, "..."]:
        """Return which entries sit at a kink or at a bound of g.

        Parameters
        ----------
        x : an array
            The parameters.

        Returns
        -------
        an array of True and False, like x
            Whether an entry stays where it is if F moves a little.
        """
        return jnp.zeros(x.shape, bool)

    def pinned(self, x: Leaf) -> Leaf:
        """Return x, with the entries at kinks and bounds as functions of the numbers of g: they stay
        there if these change.

        Parameters
        ----------
        x : an array
            The parameters.

        Returns
        -------
        an array like x
            The same numbers, with other derivatives.
        """
        return x

    def term(self, x: Leaf, unit: Array, scale: Array) -> AbstractTerm | None:
        """Return g(x + unit e) / scale as a function of e for an interior point, or None where it has
        no such form.

        Parameters
        ----------
        x : an array
            Where e is 0.
        unit : a number
            The unit of e.
        scale : a number
            The unit of g.

        Returns
        -------
        an `AbstractTerm`, or None
            What the exact step asks for.
        """
        return None

    def of_entries(self, x: Leaf) -> Leaf:
        """Return g of each entry, where g is a sum over entries (`by_entries`).

        Parameters
        ----------
        x : an array
            The parameters.

        Returns
        -------
        an array like x
            The terms of g.

        Raises
        ------
        TypeError
            g is no sum over entries.
        """
        raise TypeError(f"{type(self).__name__} is no sum over entries.")

    def check(self, shape: tuple[int, ...], where: str) -> None:
        """Raise a sentence where the numbers of g do not fit an array of this shape.

        Parameters
        ----------
        shape : a tuple of integers
            The shape of the array.
        where : a text
            The name of the array.
        """


# ------------------------------------------------------------------------------------------- bounds


class AbstractInterval(AbstractPenalty):
    """The indicator of low <= x <= high."""

    by_entries: ClassVar[bool] = True

    @abc.abstractmethod
    def ends(self, x: Leaf) -> tuple[Array, Array]:
        """Return low and high in the dtype of x, each a number or of the shape of x.

        Parameters
        ----------
        x : an array
            The parameters.

        Returns
        -------
        a pair
            low and high.
        """

    def value(self, x: Leaf) -> Float[Array, ""]:
        low, high = self.ends(x)
        inside = jnp.all((x >= low) & (x <= high))
        return jnp.where(inside, jnp.zeros((), x.dtype), jnp.inf)

    def of_entries(self, x: Leaf) -> Leaf:
        low, high = self.ends(x)
        return jnp.where((x >= low) & (x <= high), 0, jnp.inf).astype(x.dtype)

    def subgradient(self, x: Leaf) -> Leaf:
        return jnp.zeros_like(x)

    def prox(self, x: Leaf, step: Any) -> Leaf:
        low, high = self.ends(x)
        return jnp.clip(x, low, high)

    def excess(self, x: Leaf, best: Leaf, slope: Leaf) -> Array:
        return jnp.sum(jnp.maximum(-slope * (x - best), 0))

    def kinks(self, x: Leaf) -> Bool[Array, "..."]:
        low, high = self.ends(x)
        return (x <= low) | (x >= high)

    def pinned(self, x: Leaf) -> Leaf:
        low, high = self.ends(x)
        return jnp.where(x <= low, low, jnp.where(x >= high, high, x))

    def term(self, x: Leaf, unit: Array, scale: Array) -> AbstractTerm:
        low, high = ((end - x).reshape(-1) / unit for end in self.ends(x))
        return Inside(low, high)


class Bounds(AbstractInterval):
    """The bounds low <= x <= high: g(x) is 0 within them and inf outside.

    They are kept exactly: every w that phi sees is within them, and an entry that meets a bound is
    equal to it.

    Parameters
    ----------
    low : a number or an array, or None
        The least values, one for all entries or one for each; None is no bound.
    high : a number or an array, or None
        The largest values.

    Raises
    ------
    ValueError
        low is above high, or a bound leaves no number or is nan.

    See Also
    --------
    NonNegative : the bound 0 from below.
    MeanOfLosses : takes it as its penalty.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> g = px.Bounds(0.0, 1.0)
    >>> g.prox(jnp.array([-1.0, 0.5, 3.0]), 0.1).tolist()
    [0.0, 0.5, 1.0]
    >>> float(g.value(jnp.array([2.0])))
    inf
    """

    low: Number
    high: Number

    def __init__(self, low: Any = None, high: Any = None):
        self.low = _bound(low, -np.inf, "low")
        self.high = _bound(high, np.inf, "high")
        _check_order(self.low, self.high)

    def ends(self, x: Leaf) -> tuple[Array, Array]:
        low, high = (jnp.asarray(end).astype(x.dtype) for end in (self.low, self.high))
        return jnp.broadcast_to(low, x.shape), jnp.broadcast_to(high, x.shape)

    def check(self, shape: tuple[int, ...], where: str) -> None:
        for name, end in (("low", self.low), ("high", self.high)):
            if not _fits(end.shape, shape):
                raise ValueError(
                    f"The bound {name} has the shape {end.shape}, which does not fit {where} of the shape {shape}; "
                    f"give one number, or one for each entry."
                )


def _bound(x: Any, none: float, name: str) -> Number:
    """Return a bound as an array leaf; None is `none`."""
    if isinstance(x, jax.Array):
        given: Any = x
    else:
        given = np.asarray(none if x is None else x)
    is_integer = jnp.issubdtype(given.dtype, jnp.integer)
    if not is_integer and not jnp.issubdtype(given.dtype, jnp.floating):
        raise ValueError(
            f"The bound {name} must be a number or an array of numbers; it is {described(x)}: for a tree of bounds "
            f"give a tree of px.Bounds."
        )
    if is_integer:
        given = given.astype(
            np.float64 if isinstance(given, np.ndarray) else jnp.result_type(float)
        )
    if is_concrete(given) and np.any(np.isnan(np.asarray(given))):
        raise ValueError(f"The bound {name} has a nan; write None for no bound.")
    return as_jax(given)


def _check_order(low: Number, high: Number) -> None:
    if not is_concrete((low, high)):
        return
    below = np.asarray(low)
    above = np.asarray(high)
    if not (_fits(below.shape, above.shape) or _fits(above.shape, below.shape)):
        raise ValueError(
            f"The bounds must have one shape; low has {below.shape} and high has {above.shape}."
        )
    wrong = np.argwhere(below > above)
    if np.any(below == np.inf) or np.any(above == -np.inf):
        raise ValueError(
            "The bounds must leave room for a number; low = inf or high = -inf leave none."
        )
    if not len(wrong):
        return
    index = tuple(int(i) for i in wrong[0])
    first = [np.broadcast_to(x, (below > above).shape)[index] for x in (below, above)]
    where = f" at entry {', '.join(map(str, index))}" if index else ""
    raise ValueError(
        f"The bounds must have low <= high; they are {first[0]:g} and {first[1]:g}{where}."
    )


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether an array of a shape broadcasts to another shape."""
    try:
        return np.broadcast_shapes(shape, other) == other
    except ValueError:
        return False


class NonNegative(AbstractInterval):
    """The bound x >= 0: g(x) is 0 where all entries are at least 0, and inf elsewhere.

    See Also
    --------
    Bounds : any bounds.
    MeanOfLosses : takes it as its penalty.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> px.NonNegative().prox(jnp.array([-1.0, 0.5]), 0.1).tolist()
    [0.0, 0.5]
    """

    def ends(self, x: Leaf) -> tuple[Array, Array]:
        return jnp.zeros((), x.dtype), jnp.full((), jnp.inf, x.dtype)


# -------------------------------------------------------------------------------------------- norms


class L1Penalty(AbstractPenalty):
    """The penalty g(x) = lam sum_j |x_j|, which makes entries exactly 0.

    Parameters
    ----------
    lam : a number
        Its weight, at least 0.

    Raises
    ------
    ValueError
        lam is negative.

    See Also
    --------
    GroupL2 : makes whole rows 0.
    MeanOfLosses : takes it as its penalty.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> g = px.L1Penalty(2.0)
    >>> float(g.value(jnp.array([-1.0, 0.5]))), g.prox(jnp.array([-3.0, 0.5]), 0.5).tolist()
    (3.0, [-2.0, 0.0])
    """

    by_entries: ClassVar[bool] = True

    lam: Number

    def __init__(self, lam: Any):
        self.lam = number(lam, "The lam of L1Penalty", low=0.0)

    def value(self, x: Leaf) -> Float[Array, ""]:
        return jnp.sum(self.of_entries(x))

    def of_entries(self, x: Leaf) -> Leaf:
        return _weight(self.lam, x) * jnp.abs(x)

    def subgradient(self, x: Leaf) -> Leaf:
        return _weight(self.lam, x) * jnp.sign(x)

    def prox(self, x: Leaf, step: Any) -> Leaf:
        cut = jnp.asarray(step).astype(x.dtype) * _weight(self.lam, x)
        return jnp.sign(x) * jnp.maximum(jnp.abs(x) - cut, 0)

    def nearest(self, x: Leaf) -> Leaf:
        return x

    def excess(self, x: Leaf, best: Leaf, slope: Leaf) -> Array:
        lam = _weight(self.lam, x)
        # The slope at best != 0 is lam sign(best), whatever rounding says.
        slope = jnp.where(best == 0, jnp.clip(slope, -lam, lam), lam * jnp.sign(best))
        # As a product: a difference of lam |x| and slope x would lose what is small.
        return jnp.sum((lam - slope * jnp.sign(x)) * jnp.abs(x))

    def kinks(self, x: Leaf) -> Bool[Array, "..."]:
        return (x == 0) & (_weight(self.lam, x) > 0)

    def pinned(self, x: Leaf) -> Leaf:
        return jnp.where(self.kinks(x), 0, x)

    def term(self, x: Leaf, unit: Array, scale: Array) -> AbstractTerm:
        return EachEntry(_weight(self.lam, x) * unit / scale, x.reshape(-1) / unit)


class GroupL2(AbstractPenalty):
    """The penalty g(x) = lam sum_r |x_r|_2 over the rows x_r of x, which makes whole rows exactly 0.

    A row goes along the last axis: a matrix (p, k) has p groups of k entries, a vector is one
    group.

    Parameters
    ----------
    lam : a number
        Its weight, at least 0.

    Raises
    ------
    ValueError
        lam is negative.

    See Also
    --------
    L1Penalty : makes single entries 0.
    MeanOfLosses : takes it as its penalty.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> g = px.GroupL2(1.0)
    >>> x = jnp.array([[3.0, 4.0], [0.3, 0.4]])
    >>> round(float(g.value(x)), 6), [round(float(each), 6) for each in g.prox(x, 1.0).ravel()]
    (5.5, [2.4, 3.2, 0.0, 0.0])
    """

    lam: Number

    def __init__(self, lam: Any):
        self.lam = number(lam, "The lam of GroupL2", low=0.0)

    def value(self, x: Leaf) -> Float[Array, ""]:
        return _weight(self.lam, x) * jnp.sum(norms(_rows(x)))

    def subgradient(self, x: Leaf) -> Leaf:
        rows = _rows(x)
        return (_weight(self.lam, x) * _units(rows)).reshape(x.shape)

    def prox(self, x: Leaf, step: Any) -> Leaf:
        rows = _rows(x)
        cut = jnp.asarray(step).astype(x.dtype) * _weight(self.lam, x)
        length = norms(rows)
        left = jnp.maximum(length - cut, 0)
        safe = jnp.where(length > 0, length, jnp.ones_like(length))
        return ((left / safe)[:, None] * rows).reshape(x.shape)

    def nearest(self, x: Leaf) -> Leaf:
        return x

    def excess(self, x: Leaf, best: Leaf, slope: Leaf) -> Array:
        # The slope at best != 0 is lam best / |best|, whatever rounding says. With units a and b of x and of the
        # slope s, lam |x| - <s, x> = |x| ((lam - |s|) + |s| |a - b|^2 / 2): a difference of the two products would
        # lose what is small. What rounding may hide is added to |a - b|, and to lam - |s|.
        lam = _weight(self.lam, x)
        rows = _rows(x)
        best = _rows(best)
        slope = _rows(slope)
        rough = _rounding(rows.shape[1], x.dtype)
        zero = jnp.all(best == 0, axis=-1)
        towards = jnp.where(zero[:, None], _units(slope), _units(best))
        steep = jnp.where(zero, jnp.minimum(norms(slope), lam), lam)
        flat = jnp.where(zero, lam - steep + rough * lam, 0)
        turned = norms(_units(rows) - towards) + rough
        return jnp.sum(norms(rows) * (flat + steep * turned**2 / 2))

    def kinks(self, x: Leaf) -> Bool[Array, "..."]:
        rows = _rows(x)
        zero = jnp.all(rows == 0, axis=-1, keepdims=True) & (_weight(self.lam, x) > 0)
        return jnp.broadcast_to(zero, rows.shape).reshape(x.shape)

    def pinned(self, x: Leaf) -> Leaf:
        return jnp.where(self.kinks(x), 0, x)

    def term(self, x: Leaf, unit: Array, scale: Array) -> AbstractTerm:
        size = x.shape[-1] if x.ndim else 1
        lam = _weight(self.lam, x) * unit / scale
        return EachGroup(lam, x.reshape(-1) / unit, size)


def _rounding(terms: int, dtype: Any) -> Array:
    """Return the relative error of a sum of so many products, as `subproblem.certificate` has it."""
    return jnp.asarray((4 + terms**0.5) * jnp.finfo(dtype).eps, dtype)


def _weight(lam: Number, x: Leaf) -> Array:
    return jnp.asarray(lam).astype(x.dtype)


def _rows(x: Leaf) -> Float[Array, "rows size"]:
    return x.reshape(-1, x.shape[-1] if x.ndim else 1)


def _units(rows: Float[Array, "rows size"]) -> Float[Array, "rows size"]:
    """Return x_r / |x_r|, and 0 where x_r is 0."""
    length = norms(rows)[:, None]
    return rows / jnp.where(length > 0, length, jnp.ones_like(length))
