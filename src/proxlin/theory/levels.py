"""The noise level F(wbar), estimated with its uncertainty, for `px.at_noise_level`."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import check_parameters
from ..outers import AbstractOuter
from ..problem import AbstractProblem
from ..types import Params
from .arguments import probability
from .statistics import normal_interval


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its confidence interval."""

    value: float
    low: float
    high: float


def held_out_noise_level(validation: AbstractProblem, w: Params, delta: float = 0.05) -> Estimate:
    """The mean of f(phi_i(w)) over samples that w was not fitted to: the noise level, or more.

    E f(xi + b) >= E f(xi) for convex f, symmetric noise xi and any error b of the fit, so it is a level that early
    stopping can be given: `px.minimize(train, w, stop=px.at_noise_level(level.value))`.
    """
    u = validation.stack(check_parameters(w, validation.data))
    return _mean(np.asarray(jax.vmap(validation.outer.value)(u), float), delta)


def paired_noise_level(x: Any, y: Any, outer: AbstractOuter, delta: float = 0.05) -> Estimate:
    """The mean of f((y_i - y_j) / sqrt 2) over disjoint pairs of near inputs: the noise level with no model at all.

    For Gaussian noise and a norm f this is E f(xi), plus what the signal changes between the two inputs of a pair.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(x) < 4:
        raise ValueError(f"x (n, p) and y (n, k) need the same n >= 4; their shapes are {x.shape} and {y.shape}.")
    pairs = np.asarray(_near_pairs(x))
    differences = (y[pairs[:, 0]] - y[pairs[:, 1]]) / math.sqrt(2)
    return _mean(np.asarray(jax.vmap(outer.value)(jnp.asarray(differences)), float), delta)


def _near_pairs(x: np.ndarray) -> list[tuple[int, int]]:
    """Disjoint pairs, the nearest two first."""
    square = np.sum(x * x, axis=1)
    distance = square[:, None] + square[None, :] - 2 * x @ x.T
    first, second = np.triu_indices(len(x), 1)
    free, pairs = np.ones(len(x), bool), []
    for at in np.argsort(distance[first, second], kind="stable"):
        i, j = int(first[at]), int(second[at])
        if free[i] and free[j]:
            free[[i, j]] = False
            pairs.append((i, j))
    return pairs


def _mean(values: np.ndarray, delta: float) -> Estimate:
    """The mean with its normal interval at level 1 - delta."""
    if len(values) < 2:
        raise ValueError("A noise level with its uncertainty needs at least two samples.")
    return Estimate(*normal_interval(values, probability(delta)))
