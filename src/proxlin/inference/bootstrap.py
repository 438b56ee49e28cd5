"""The bootstrap by random weights: how far a fit moves if its rows count more or less.

    w_b = argmin_w  (1/n) sum_i s_bi f(phi_i(w)) + ridge/2 |w|^2,      s_bi exponential, scaled to mean 1

It is valid for every loss here, and all its fits are one batched solve.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..checks import check_parameters, real, whole
from ..cost import Status
from ..errors import UserError
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem, check_problem
from ..run import solve_many
from ..run.solve import checked_key
from ..solvers.base import AbstractSolver
from ..types import Key, Params, dtype_of, is_staged, parameters


class Bootstrap(eqx.Module):
    """The answer of `bootstrap`: the fits, and how they are spread.

    Parameters
    ----------
    w : a tree
        The fits, with a leading axis of them.
    standard_error : a tree like the parameters
        The deviation of the fits.
    low : a tree like the parameters
        The lower end of the interval.
    high : a tree like the parameters
        The upper end of the interval.
    failed : an integer
        How many fits diverged; they are left out of both.

    See Also
    --------
    bootstrap : returns it.
    covariance : standard errors by a formula.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> y = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [50.0]])
    >>> p = px.MeanOfLosses(lambda w, y: w - y, px.SquaredL2(), y)
    >>> spread = px.bootstrap(p, np.array([10.0]), count=200)
    >>> spread.w.shape, int(spread.failed)
    ((200, 1), 0)
    """

    w: Params
    standard_error: Params
    low: Params
    high: Params
    failed: Array


@in_the_precision_of_w
def bootstrap(
    problem: AbstractProblem,
    w: Params,
    solver: AbstractSolver | None = None,
    *,
    count: int = 1000,
    key: Key | None = None,
    level: float | int = 0.95,
    tol: float | int = 1e-6,
    **settings: Any,
) -> Bootstrap:
    """Fit again with random weights, from the fit w, and return how the fits are spread.

    The weights of a fit are exponential, scaled to mean 1, times those of the problem. The interval
    has the quantiles (1 - level) / 2 and (1 + level) / 2 of the fits. The settings are those of
    `solve_many`.

    Parameters
    ----------
    problem : a problem
        The one that was solved.
    w : a tree
        Its minimiser, where every fit starts.
    solver : a solver, or None
        The method; None is exact prox-linear.
    count : an integer
        The number of fits, at least 2.
    key : a key of `jax.random`, or None
        The randomness of the weights.
    level : a number between 0 and 1
        That of the interval.
    tol : a number
        The tolerance of a fit.
    **settings : named arguments
        Those of `solve_many`, such as `chunk`.

    Returns
    -------
    a `Bootstrap`
        The fits, their standard error, and an interval.

    Raises
    ------
    TypeError
        An argument is of the wrong kind, or the call is inside of a trace.
    ValueError
        A number is out of range.
    UserError
        More than half of the fits diverged; it is a ValueError.

    See Also
    --------
    covariance : standard errors by a formula.
    solve_many : solves all fits at once.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> y = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [50.0]])
    >>> p = px.MeanOfLosses(lambda w, y: w - y, px.SquaredL2(), y)
    >>> spread = px.bootstrap(p, np.array([10.0]), count=200)
    >>> bool(5 < spread.standard_error[0] < 10), bool(spread.low[0] < 10 < spread.high[0])
    (True, True)
    """
    check_problem(problem, "bootstrap")
    if is_staged((problem, w, solver)):
        raise TypeError(
            "bootstrap looks at its fits on the host; call it outside of jit, vmap and grad."
        )
    if "in_axes" in settings:
        raise TypeError(
            "bootstrap draws the weights of its fits itself, and takes no in_axes; leave it out."
        )
    if key is not None:
        key = checked_key(key, "bootstrap")
    count = whole(count, "count", low=2)
    level = real(level, "level")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.95; it is {level}.")
    w = check_parameters(w, problem.data)
    draws, fits = jax.random.split(jax.random.key(0) if key is None else key)
    weights = _weights(problem, draws, count, dtype_of(w))
    many = eqx.tree_at(
        lambda p: p.weights, problem, weights, is_leaf=lambda x: x is None
    )
    shared = jax.tree.map(lambda _: False, many)
    axes = eqx.tree_at(lambda p: p.weights, shared, True)
    found = solve_many(
        many, w, solver, in_axes=(axes, None), key=fits, tol=tol, **settings
    )
    diverged = found.status == list(Status).index(Status.diverged)
    failed = jnp.sum(diverged, dtype=jnp.int32)
    if 2 * int(failed) > count:
        raise UserError(
            f"{int(failed)} of {count} fits of the bootstrap diverged; give another solver, or w where F "
            f"is least."
        )
    good = jax.tree.map(lambda x: x[~diverged], parameters(found.w))
    ends = jnp.asarray([(1 - level) / 2, (1 + level) / 2], dtype_of(w))
    return Bootstrap(
        w=found.w,
        standard_error=jax.tree.map(lambda x: jnp.std(x, axis=0, ddof=1), good),
        low=jax.tree.map(lambda x: jnp.quantile(x, ends[0], axis=0), good),
        high=jax.tree.map(lambda x: jnp.quantile(x, ends[1], axis=0), good),
        failed=failed,
    )


def _weights(problem: AbstractProblem, key: Key, count: int, dtype: Any) -> Array:
    """Return the weights of each fit, of mean 1 over the rows."""
    drawn = jax.random.exponential(key, (count, len(problem)), dtype)
    if problem.weights is not None:
        drawn = drawn * problem.weights.astype(dtype)[None, :]
    return drawn / jnp.mean(drawn, axis=1, keepdims=True)
