"""min F(w) as one pure program: it can be jitted, vmapped, scanned and differentiated.

    result = solve(problem, w)                    arrays alone: no history, no host

`minimize` takes the same steps, and keeps a history on the host.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..checks import check_parameters, described, real, whole
from ..compiled import Compiled
from ..cost import Prices, Status
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem, check_problem
from ..solvers.base import AbstractSolver, check_solver
from ..solvers.prox_linear import prox_linear
from ..types import Key, Params, dtype_of, is_concrete, is_parameter
from .implicit import differentiable
from .loop import Limits, Record, advance, initial_state
from .minimize import BLOW_UP, flat_measure, is_small

MOST_STEPS = 2**31 - 1  # where passes alone are limited


class Result(eqx.Module):
    """The answer of `solve`, all of it arrays.

    Parameters
    ----------
    w : a tree
        The answer.
    value : a number
        F(w).
    status : an integer
        How the run ended; `px.Status(int(status))` has the sentence.
    steps : an integer
        The steps that were taken.
    passes : a number
        The effective passes over the data.
    measure : a number
        What `tol` was compared with; inf where the solver has none.
    gap : a number
        The certified gap of the last subproblem; nan where there is none.

    See Also
    --------
    solve, solve_many, multistart : return it.
    Status : the meaning of the status.
    Solution : the answer of `minimize`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), jnp.array([[1.0], [2.0], [9.0]]))
    >>> result = px.solve(p, jnp.zeros(1), px.subgradient_descent(1.0), steps=3)
    >>> int(result.steps), str(px.Status(int(result.status)))
    (3, 'budget')
    """

    w: Params
    value: Array
    status: Array
    steps: Array
    passes: Array
    measure: Array
    gap: Array


@in_the_precision_of_w
def solve(
    problem: AbstractProblem,
    w: Params,
    solver: AbstractSolver | None = None,
    *,
    steps: int | Array | None = None,
    passes: float | int | Array | None = None,
    tol: float | int | Array | None = None,
    key: Key | None = None,
) -> Result:
    """Minimise F from w in one pure program, and return a `Result`.

    It takes the steps of `minimize` with the same solver and `key = jax.random.key(seed)`, and ends
    at the first of: so many steps or passes, a measure of at most tol, no step that helps. Exact
    prox-linear is taken if no solver is given; a solver that draws samples needs a key. The default
    budget is 100 steps for full-batch solvers and 100 passes for the others. Nothing is raised for
    what happens in a run: one that diverges says so in its status, and has the start as its w.

    Derivatives of `w` and `value` with respect to the data, weights, ridge and the numbers of f and
    phi are those of the answer, at its optimality conditions (see `docs/solve.md`); the start w has
    the derivative 0.

    Parameters
    ----------
    problem : a problem
        F; its arrays may be traced.
    w : a tree
        The start; outside of the bounds of a penalty it is projected onto them.
    solver : a solver, or None
        The method; None is exact prox-linear.
    steps : an integer, or None
        The budget in steps.
    passes : a number, or None
        The budget in effective passes over the data.
    tol : a number, or None
        The tolerance; None is never reached.
    key : a key of `jax.random`, or None
        The randomness, for a solver that draws samples.

    Returns
    -------
    a `Result`
        w, F(w), and how the run ended, as arrays.

    Raises
    ------
    TypeError
        An argument is of the wrong kind, or the solver does not fit the problem.
    ValueError
        A number is out of range, or a key is missing.

    See Also
    --------
    minimize : keeps a history, on the host.
    solve_many : solves many problems at once.
    multistart : solves one problem from many starts.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> phi = px.residual(lambda w, x: w * x)
    >>> def fit(y):
    ...     problem = px.MeanOfLosses(phi, px.L1(), (jnp.ones((3, 1)), y[:, None]))
    ...     return px.solve(problem, jnp.zeros(1)).w[0]
    >>> many = jax.jit(jax.vmap(fit))(jnp.array([[1.0, 2.0, 9.0], [5.0, 6.0, 6.5]]))
    >>> [round(float(w), 6) for w in many]
    [2.0, 6.0]
    """
    check_problem(problem, "solve")
    solver = checked_solver(solver, "solve")
    w = check_parameters(w, problem.data)
    at, rest = eqx.partition(w, is_parameter)
    bound = problem.bind(rest)
    solver.check(bound)
    key = key_for(solver, key, "solve")
    limits = checked_limits(solver, steps, passes, tol, dtype_of(at))
    here = is_concrete((bound, at, solver, key, limits))
    if here:
        bound = bound.traced(at)
    bound = bound.opened(at)
    if here and is_concrete(bound):
        quick = is_small(bound, solver, at)
        program = Compiled(quick=quick)
        result, _ = program(run_pure, bound, at, solver, key, limits)
    else:
        result = run_pure(bound, at, solver, key, limits)
    return eqx.tree_at(lambda r: r.w, result, eqx.combine(result.w, rest))


def run_pure(
    problem: AbstractProblem,
    w: Params,
    solver: AbstractSolver,
    key: Key,
    limits: Limits,
) -> Result:
    """Return the result, with its derivatives; arguments are checked, and w is parameters alone. A
    start outside of bounds is projected onto them.
    """
    return differentiable(_run, problem, problem.feasible(w), (solver, key, limits))


def checked_solver(solver: Any, who: str) -> AbstractSolver:
    """Return the solver, exact prox-linear where none was given."""
    if isinstance(solver, str):
        raise TypeError(
            f"{who} needs a solver such as px.prox_linear(), as it cannot look at numbers to choose one; "
            f"it got {described(solver)}."
        )
    if solver is None:
        return prox_linear()
    check_solver(solver)
    return solver


def key_for(solver: AbstractSolver, key: Any, who: str) -> Key:
    """Return the key, or any key for a solver that draws nothing."""
    if key is not None:
        return checked_key(key, who)
    if solver.is_random():
        raise ValueError(
            f"{solver.name()} draws samples; give {who} a key, such as key=jax.random.key(0)."
        )
    return jax.random.key(0)


def checked_key(key: Any, who: str) -> Key:
    """Return the key, if it is one."""
    if not isinstance(key, jax.Array) or not jnp.issubdtype(
        key.dtype, jax.dtypes.prng_key
    ):
        raise TypeError(
            f"key of {who} must be a key of jax.random, such as jax.random.key(0); it is {described(key)}."
        )
    return key


def checked_limits(
    solver: AbstractSolver,
    steps: Any,
    passes: Any,
    tol: Any,
    dtype: Any,
) -> Limits:
    """Return the limits of a run; numbers are checked where they can be looked at."""
    if steps is None and passes is None:
        if solver.full_batch():
            steps = 100
        else:
            passes = 100.0
    most = jnp.int32(MOST_STEPS)
    if steps is not None:
        if is_concrete(steps):
            steps = whole(steps, "steps", low=0)
        most = jnp.asarray(steps, jnp.int32)
    spent = jnp.asarray(jnp.inf, dtype)
    if passes is not None:
        if is_concrete(passes):
            passes = real(passes, "passes", low=0.0)
        spent = jnp.asarray(passes, dtype)
    least = jnp.asarray(-jnp.inf, dtype)
    if tol is not None:
        if is_concrete(tol):
            tol = real(tol, "tol", low=0.0)
        floor = 100 * jnp.finfo(dtype).eps
        least = jnp.maximum(jnp.asarray(tol, dtype), floor)
    return Limits(most, least, jnp.asarray(True), spent)


def _run(problem: AbstractProblem, w: Params, how: Any) -> Result:
    """Take the steps, and say how it ended."""
    solver, key, limits = how
    prices = solver.prices(problem, w)
    start = problem.value(w)
    state = initial_state(problem, solver, w)
    _, record = advance(problem, solver, state, key, jnp.int32(0), limits, prices)
    return judged(problem, w, start, record, limits, prices)


def judged(
    problem: AbstractProblem,
    w: Params,
    start: Array,
    record: Record,
    limits: Limits,
    prices: Prices,
) -> Result:
    """Return the result of a run from w, where F was start, that ended with this record."""
    value = problem.value(record.w)
    dtype = value.dtype
    high = start + BLOW_UP * jnp.maximum(jnp.ones_like(start), jnp.abs(start))
    finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(record.w)]
    good = (value <= high) & jnp.all(jnp.stack(finite))
    kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), record.w, w)
    measure = jnp.full((), jnp.inf, dtype)
    if record.info.measure is not None:
        measure = record.info.measure.astype(dtype)
    gap = jnp.full((), jnp.nan, dtype)
    if record.info.gap is not None:
        gap = record.info.gap.astype(dtype)
    return Result(
        w=kept,
        value=jnp.where(good, value, start),
        status=_status(record, measure, limits, good, dtype),
        steps=record.step,
        passes=prices.passes(record.step, record.calls, len(problem)).astype(dtype),
        measure=measure,
        gap=gap,
    )


def _status(
    record: Record, measure: Array, limits: Limits, good: Array, dtype: Any
) -> Array:
    """Return the number of the status."""
    numbers = {status: jnp.int32(i) for i, status in enumerate(Status)}
    status = numbers[Status.budget]
    if record.info.stalled is not None:
        flat = measure <= flat_measure(dtype)
        stalled = jnp.where(flat, numbers[Status.converged], numbers[Status.stalled])
        status = jnp.where(record.info.stalled, stalled, status)
    reached = measure <= limits.tol.astype(dtype)
    status = jnp.where(reached, numbers[Status.converged], status)
    return jnp.where(good, status, numbers[Status.diverged])
