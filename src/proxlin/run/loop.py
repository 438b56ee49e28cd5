"""The one loop over steps: pure, compiled once, and called by everything that runs a solver.

    state, record = advance(problem, solver, state, key, start, limits)

Nobody else writes a loop over the steps of a run. `minimize` calls it between two records, `follow` between two marks,
"auto" for its trials, and the fits of tables under `vmap`. (The epochs inside of one PLI step are a loop of its model.)
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..cost import Calls
from ..problem import AbstractProblem
from ..solvers.base import AbstractSolver, Info
from ..types import Key, Params


class Limits(eqx.Module):
    """Where a run ends: at this count of steps, and, looked at after every epoch, where the measure is at most tol.

    It ends too where no step helps, if `stalled` is set. A tol of -inf is never reached.
    """

    steps: Array
    tol: Array = eqx.field(default=-jnp.inf, converter=jnp.asarray)
    stalled: Array = eqx.field(default=False, converter=jnp.asarray)


class Record(eqx.Module):
    """What a run says at its end: the count of steps, what the last one said, all its calls, and the iterate."""

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
    problem: AbstractProblem, solver: AbstractSolver, state: Any, key: Key, start: Array, limits: Limits
) -> tuple[Any, Record]:
    """Run the steps start, start + 1, ... up to the first limit; the state comes in before the step `start`.

    The randomness of an epoch is drawn before its steps, from the key and the number of the epoch alone: however a run
    is cut into pieces, it takes the same steps.
    """
    count = solver.epoch(problem)
    take = jax.jit(lambda state, drawn: solver.step(problem, state, drawn))  # It is traced once, here and in the loop.

    def draw(step: Array) -> Any:
        return solver.draw(problem, jax.random.fold_in(key, step // count), count)

    def going(run: _Run) -> Array:
        more = run.step < limits.steps
        if run.info.measure is not None:
            more &= ~(run.info.measure <= limits.tol.astype(run.info.measure.dtype))
        if run.info.stalled is not None:
            more &= ~(run.info.stalled & limits.stalled)
        return more

    def epoch(run: _Run) -> _Run:
        drawn = draw(run.step)
        first = run.step % count
        last = jnp.minimum(count, first + limits.steps - run.step)

        def one(j: Array, run: _Run) -> _Run:
            state, info = take(run.state, jax.tree.map(lambda x: x[j], drawn))
            return _Run(run.step + 1, state, info, _sum(run.calls, info.calls))

        return jax.lax.fori_loop(first, last, one, run)

    drawn = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], draw(start)))
    info = jax.eval_shape(take, state, drawn)[1]
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), info)
    # No measure is small, and nothing is stalled, before the first step.
    if nothing.measure is not None:
        nothing = eqx.tree_at(lambda info: info.measure, nothing, jnp.full_like(nothing.measure, jnp.inf))
    run = jax.lax.while_loop(going, epoch, _Run(start, state, nothing, nothing.calls))
    return run.state, Record(run.step, run.info, run.calls, solver.iterate(run.state))


def _sum(total: Calls | None, calls: Calls | None) -> Calls | None:
    if total is None or calls is None:
        return None
    return total + calls


def initial_state(problem: AbstractProblem, solver: AbstractSolver, w: Params) -> Any:
    """Return the state at w with strong dtypes, so that the second call of `advance` does not compile again."""
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), solver.init(problem, w))
