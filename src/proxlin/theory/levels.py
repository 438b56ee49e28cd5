"""The noise level F(wbar), estimated with its uncertainty, for `px.at_noise_level`."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..checks import check_parameters
from ..outers import AbstractOuter
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem
from ..types import Params
from .proposition2 import probability
from .statistics import normal_interval


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its confidence interval.

    Parameters
    ----------
    value : a number
        The estimate.
    low : a number
        The lower end of the interval.
    high : a number
        The upper end of the interval.

    See Also
    --------
    theory.held_out_noise_level, theory.paired_noise_level : return it.

    Examples
    --------
    >>> import proxlin as px
    >>> px.theory.Estimate(1.0, 0.8, 1.2)
    Estimate(value=1.0, low=0.8, high=1.2)
    """

    value: float
    low: float
    high: float


@in_the_precision_of_w
def held_out_noise_level(
    validation: AbstractProblem, w: Params, delta: float = 0.05
) -> Estimate:
    """Return an estimate of the mean of f(phi_i(w)) over samples that w was not fitted to: the noise
    level, or more.

    E f(xi + b) >= E f(xi) for convex f, symmetric noise xi and any error b of the fit, so it is a
    level that early stopping can be given: `px.minimize(train, w,
    stop=px.at_noise_level(level.value))`.

    Parameters
    ----------
    validation : a problem
        F on held-out data.
    w : a tree
        The fit.
    delta : a number between 0 and 1
        The interval has the level 1 - delta.

    Returns
    -------
    an `Estimate`
        The level, with its interval.

    See Also
    --------
    theory.paired_noise_level : needs no fit.
    at_noise_level : stops a run at the level.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> round(px.theory.held_out_noise_level(p, np.array([2.0])).value, 4)
    2.6667
    """
    u = validation.stack(check_parameters(w, validation.data))
    return _mean(validation.outer, u, delta)


def paired_noise_level(
    x: Any, y: Any, outer: AbstractOuter, delta: float = 0.05
) -> Estimate:
    """Return an estimate of the mean of f((y_i - y_j) / sqrt 2) over disjoint pairs of near inputs:
    the level without a model.

    For Gaussian noise and a norm f this is E f(xi), plus what the signal changes between the two
    inputs of a pair.

    Parameters
    ----------
    x : an array (n, p)
        The inputs.
    y : an array (n, k)
        The targets.
    outer : an outer function
        f.
    delta : a number between 0 and 1
        The interval has the level 1 - delta.

    Returns
    -------
    an `Estimate`
        The level, with its interval.

    Raises
    ------
    ValueError
        The shapes do not agree, or there are fewer than 4 rows.

    See Also
    --------
    theory.held_out_noise_level : looks at a fit.
    at_noise_level : stops a run at the level.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> y = np.array([[1.0], [3.0], [7.0], [5.0]])
    >>> round(px.theory.paired_noise_level(x, y, px.L2()).value, 4)  # 2 / sqrt 2
    1.4142
    """
    x = np.asarray(x, float)
    y = np.asarray(y, float)
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(x) < 4:
        raise ValueError(
            f"x (n, p) and y (n, k) need the same n >= 4; their shapes are {x.shape} and {y.shape}."
        )
    first, second = np.asarray(_near_pairs(x)).T
    differences = (y[first] - y[second]) / math.sqrt(2)
    return _mean(outer, jnp.asarray(differences), delta)


def _near_pairs(x: np.ndarray) -> list[tuple[int, int]]:
    """Return disjoint pairs of rows, the nearest two first."""
    square = np.sum(x * x, axis=1)
    distance = square[:, None] + square[None, :] - 2 * x @ x.T
    first, second = np.triu_indices(len(x), 1)
    order = np.argsort(distance[first, second], kind="stable")
    free = np.ones(len(x), bool)
    pairs = []
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if free[i] and free[j]:
            free[[i, j]] = False
            pairs.append((i, j))
    return pairs


def _mean(outer: AbstractOuter, u: Array, delta: float) -> Estimate:
    """Return the mean of f over the rows of u, with its normal interval at level 1 - delta."""
    values = np.asarray(jax.vmap(outer.value)(u), float)
    if len(values) < 2:
        raise ValueError(
            "A noise level with its uncertainty needs at least two samples."
        )
    return Estimate(*normal_interval(values, probability(delta)))
