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
    """A number and its confidence interval."""

    value: float
    low: float
    high: float


@in_the_precision_of_w
def held_out_noise_level(
    validation: AbstractProblem, w: Params, delta: float = 0.05
) -> Estimate:
    """Estimate the mean of f(phi_i(w)) over samples that w was not fitted to: the noise level, or
    more.

    E f(xi + b) >= E f(xi) for convex f, symmetric noise xi and any error b of the fit, so it is a
    level that early stopping can be given: `px.minimize(train, w,
    stop=px.at_noise_level(level.value))`.
    """
    u = validation.stack(check_parameters(w, validation.data))
    return _mean(validation.outer, u, delta)


def paired_noise_level(
    x: Any, y: Any, outer: AbstractOuter, delta: float = 0.05
) -> Estimate:
    """Estimate the mean of f((y_i - y_j) / sqrt 2) over disjoint pairs of near inputs: the level
    without a model.

    For Gaussian noise and a norm f this is E f(xi), plus what the signal changes between the two
    inputs of a pair.
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
