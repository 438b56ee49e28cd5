"""The one loop over steps: pure, compiled once, and called by everything that runs a solver.

    state, record = advance(problem, solver, state, key, start, limits)

Nobody else writes a loop over the steps of a run. `minimize` calls it between two records, `follow`
between two marks, "auto" for its trials, and the fits of tables under `vmap`. (The epochs inside of
one PLI step are a loop of its model; many small problems side by side have one in `lanes.py`.)
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..cost import Calls, Prices
from ..problem import AbstractProblem
from ..solvers.base import AbstractSolver, Info
from ..types import Key, Params


def _scalar(x: Any) -> Any:
    """Return a number as an array. Those of NumPy stay, as they need no transfer to a device before a
    program is called.
    """
    return x if isinstance(x, np.generic) else jnp.asarray(x)


class Limits(eqx.Module):
    """Where a run ends: at this count of steps, and, looked at after every epoch, where the measure
    is at most tol or so many passes are spent.

    It ends too where no step helps, if `stalled` is set. A tol of -inf is never reached.
    """

    steps: Array | np.int32
    tol: Any = eqx.field(default=np.float32(-np.inf), converter=_scalar)
    stalled: Any = eqx.field(default=np.bool_(False), converter=_scalar)
    passes: Any = eqx.field(default=np.float32(np.inf), converter=_scalar)


class Record(eqx.Module):
    """What a run says at its end: the count of steps, what the last one said, all its calls, and
    the iterate.
    """

    step: Array
    info: Info
    calls: Calls | None
    w: Params


class _Run(eqx.Module):
    step: Array
    state: Any
    info: Info
    calls: Calls | None


def advance(
    problem: AbstractProblem,
    solver: AbstractSolver,
    state: Any,
    key: Key,
    start: Array | np.int32,
    limits: Limits,
    prices: Prices | None = None,
    spent: Calls | None = None,
) -> tuple[Any, Record]:
    """Run the steps start, start + 1, ... up to the first limit; the state comes in before the step
    `start`. The limit of passes needs the prices of the solver, and the calls of the steps before.

    The randomness of an epoch is drawn before its steps, from the key and the number of the epoch
    alone: however a run is cut into pieces, it takes the same steps.
    """
    count = solver.epoch(problem)
    room = solver.epoch(
        problem.all_rows()
    )  # what is drawn has a shape, and so no traced count
    # It is traced once, here and in the loop.
    take = jax.jit(lambda state, drawn: solver.step(problem, state, drawn))

    # The passes end a run within an epoch where steps have a price that is known.
    start = jnp.asarray(start)
    most = limits.steps
    if prices is not None and room > 1:
        passes = jnp.asarray(limits.passes)
        most = jnp.minimum(most, _steps_within(passes, prices, len(problem)))

    def draw(step: Array) -> Any:
        return solver.draw(problem, jax.random.fold_in(key, step // count), room)

    def going(run: _Run) -> Array:
        return ~has_ended(run, limits, prices, len(problem))

    def epoch(run: _Run) -> _Run:
        drawn = draw(run.step)
        first = run.step % count
        last = jnp.minimum(count, first + most - run.step)

        def one(j: Array, run: _Run) -> _Run:
            state, info = take(run.state, jax.tree.map(lambda x: x[j], drawn))
            return _Run(run.step + 1, state, info, _sum(run.calls, info.calls))

        return jax.lax.fori_loop(first, last, one, run)

    drawn = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], draw(start)))
    info = jax.eval_shape(take, state, drawn)[1]
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), info)
    # Before the first step no measure is small, nothing is stalled, and nothing is certified.
    nothing = _filled(nothing, lambda info: info.measure, jnp.inf)
    nothing = _filled(nothing, lambda info: info.gap, jnp.nan)
    calls = nothing.calls
    if calls is not None and spent is not None:
        calls = spent
    run = jax.lax.while_loop(going, epoch, _Run(start, state, nothing, calls))
    return run.state, Record(run.step, run.info, run.calls, solver.iterate(run.state))


def has_ended(
    run: _Run | Record, limits: Limits, prices: Prices | None, n: int
) -> Array:
    """Return whether a run is at one of its limits."""
    ended = run.step >= limits.steps
    if run.info.measure is not None:
        ended |= run.info.measure <= limits.tol.astype(run.info.measure.dtype)
    if run.info.stalled is not None:
        ended |= run.info.stalled & limits.stalled
    if prices is not None:
        passes = prices.passes(run.step, run.calls, n)
        # What is left by rounding alone is nothing.
        ended |= passes * (1 + 1e-6) >= limits.passes.astype(passes.dtype)
    return ended


def _filled(info: Info, where: Callable, number: float) -> Info:
    """Return the info with this number there, if the solver says anything there."""
    if where(info) is None:
        return info
    return eqx.tree_at(where, info, jnp.full_like(where(info), number))


def _steps_within(passes: Array, prices: Prices, n: int) -> Array:
    """Return the steps that so many passes pay for, without what steps call beyond their price."""
    steps = (passes - prices.init.passes(n)) / prices.step.passes(n)
    return jnp.ceil(jnp.clip(steps - 1e-6, 1, 2**30)).astype(jnp.int32)


def _sum(total: Calls | None, calls: Calls | None) -> Calls | None:
    if total is None or calls is None:
        return None
    return total + calls


def initial_state(problem: AbstractProblem, solver: AbstractSolver, w: Params) -> Any:
    """Return the state at w with strong dtypes, so that the second call of `advance` does not
    compile again. A w outside of the bounds of a penalty is projected onto them.
    """
    w = problem.feasible(w)
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), solver.init(problem, w))
