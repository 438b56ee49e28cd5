"""L-BFGS of SciPy on a function of a tree of arrays."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.optimize

from ..types import Params

# w -> a value and its gradient
Evaluate = Callable[[Params], tuple[Any, Params]]


class Descent(NamedTuple):
    """Where L-BFGS ended: w, the steps it took, and the largest entry of the gradient there."""

    w: Params
    steps: int
    largest: float


def descend(
    evaluate: Evaluate,
    w: Params,
    calls: int,
    tol: float,
) -> Descent:
    """Run L-BFGS from w on evaluate, which returns a value and its gradient."""
    start, unravel = raveled(w)

    def flat(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = evaluate(unravel(x))
        return float(value), raveled(gradient)[0]

    options = {"maxfun": calls, "maxiter": calls, "gtol": tol, "ftol": 0.0}
    found = scipy.optimize.minimize(
        flat, start, jac=True, method="L-BFGS-B", options=options
    )
    largest = float(np.abs(found.jac).max())
    return Descent(unravel(found.x), int(found.nit), largest)


def ridged(evaluate: Evaluate, ridge: float) -> Evaluate:
    """Return evaluate plus ridge/2 |w|^2."""

    def both(w: Params) -> tuple[float, Params]:
        value, gradient = evaluate(w)
        squares = sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(w))
        more = jax.tree.map(lambda g, leaf: g + ridge * leaf, gradient, w)
        return value + ridge / 2 * squares, more

    return both


def raveled(w: Params) -> tuple[np.ndarray, Callable[[np.ndarray], Params]]:
    """Return w as one vector and the way back, by numpy: eager jax would compile each slice of it."""
    leaves, tree = jax.tree.flatten(w)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def unravel(x: np.ndarray) -> Params:
        parts = np.split(x, ends)
        return tree.unflatten(
            [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        )

    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves]), unravel
