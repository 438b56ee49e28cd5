"""SVRG: one epoch of w <- w - step (g_i(w) - g_i(snapshot) + mean g(snapshot) + quadratic'(w)), with
the prox of the penalty after each step, where the problem has one.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .. import trees
from ..checks import flag, number
from ..cost import Cost, Prices
from ..inners import Linearized
from ..problem import AbstractProblem, MeanOfLosses
from ..schedules import as_schedule
from ..types import Key, Number, Params, dtype_of, parameters
from .base import AbstractSolver, Info, State


class Snapshot(eqx.Module):
    """u_i and v_i in df(u_i) at the snapshot of a linearised problem, and sum_i c_i J_i' v_i: 2 n k
    + d numbers.
    """

    u: Float[Array, "n k"]
    v: Float[Array, "n k"]
    mean: Params


def snapshot_at(problem: AbstractProblem, w: Params) -> Snapshot:
    """Return the snapshot of the losses at w.

    At the anchor of a linearised problem the original one has the same snapshot, and runs no JVP.
    """
    assert isinstance(problem, MeanOfLosses)
    u, v, mean = problem.blocks_and_subgradient(w)
    u, v = problem.whole((u, v))
    return Snapshot(u, v, mean)


def svrg_epoch(
    problem: AbstractProblem,
    w: Params,
    step: Array,
    drawn: Int[Array, " n"],
    average: bool,
    snapshot: Snapshot | None = None,
) -> Params:
    """Return the average (or last) iterate of one epoch from the snapshot w; the quadratic is never
    sampled.

    g_i(x) - g_i(w) + constant + weight x, where constant = mean g(w) - weight center is added up
    once. Of a linearised problem the snapshot at w may be given.

    With a penalty, what is averaged are the points before the prox, and the prox is taken of their average: entries
    at which every step ends at 0 are 0 in it, and where the prox is affine it is the average of the iterates.
    """
    if isinstance(problem.inner, Linearized):
        if snapshot is None:
            snapshot = snapshot_at(problem, w)
        origin = w
        change = _stored_duals(problem, snapshot)
        mean = snapshot.mean
    else:
        origin = trees.zeros_like(w)
        change, mean = _two_subgradients(problem.plain(), w)
    start = trees.sub(w, origin)  # the epoch runs in x - origin
    quadratic = problem.quadratic
    constant = (
        mean if quadratic is None else trees.add(mean, quadratic.gradient(origin))
    )

    def body(
        carry: tuple[Params, Params], i: Array
    ) -> tuple[tuple[Params, Params], None]:
        x, total = carry
        g = trees.add(change(x, i), constant)
        if quadratic is not None:
            g = trees.add_scale(g, quadratic.weight.astype(step.dtype), x)
        x = trees.add_scale(x, -step, g)
        if average:
            total = trees.add(total, x)
        if penalty is not None:
            x = trees.sub(penalty.prox(trees.add(origin, x), step), origin)
        return (x, total), None

    penalty = problem.penalty
    total = trees.zeros_like(w) if average else None
    (x, total), _ = jax.lax.scan(body, (start, total), drawn)
    if average:
        x = trees.scale(jnp.asarray(1 / drawn.shape[0], dtype_of(w)), total)
    end = trees.add(origin, x)
    if penalty is None:
        return end
    # The last iterate had its prox; adding the origin may have rounded it across a bound.
    return penalty.prox(end, step) if average else penalty.nearest(end)


def epoch_price(problem: AbstractProblem, w: Params) -> Cost:
    """Return the price of a snapshot and n steps."""
    return problem.plain().prices(w).subgradient + steps_price(problem, w)


def steps_price(problem: AbstractProblem, w: Params) -> Cost:
    """Return the price of n steps: two subgradients each, or a JVP and a VJP where J_i is fixed."""
    n = len(problem)
    if not isinstance(problem.inner, Linearized):
        return problem.plain()[0].prices(w).subgradient * (2 * n)
    return Cost(n, n, n, n * problem.outer.oracle_calls)


def _two_subgradients(
    losses: AbstractProblem, snapshot: Params
) -> tuple[Callable, Params]:
    """Return the function x, i -> g_i(x) - g_i(snapshot), and the mean of g(snapshot)."""

    def change(x: Params, i: Array) -> Params:
        one = losses[i]
        return trees.sub(one.subgradient(x), one.subgradient(snapshot))

    return change, losses.subgradient(snapshot)


def _stored_duals(problem: AbstractProblem, snapshot: Snapshot) -> Callable:
    """Return the function x - w, i -> g_i(x) - g_i(w) of a linearised problem, where J_i is fixed.

    One VJP pulls the change of the dual variables of a sample.
    """
    original, anchor = problem.plain().expanded_at()
    at = parameters(anchor)
    f = problem.outer

    def change(x: Params, i: Array) -> Params:
        one = original[i]
        _, push = jax.linearize(lambda p: one.stack(p)[0], at)
        v = f.subgradient(snapshot.u[i] + push(x)) - snapshot.v[i]
        if one.weights is not None:
            v = v * one.weights.astype(v.dtype)
        return jax.linear_transpose(push, x)(v)[0]

    return change


class SVRG(AbstractSolver):
    """Epochs of SVRG on the subgradients (nu None) or on the smoothed losses; one step is one
    epoch.
    """

    problems = MeanOfLosses
    instead = "stochastic_gauss_newton"
    takes_penalty = True

    schedule: Callable
    nu: Number | None
    average: bool = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> State:
        return State(w, jnp.zeros((), jnp.int32))

    def step(
        self, problem: AbstractProblem, state: State, drawn: Key
    ) -> tuple[State, Info]:
        n = len(problem)
        smooth = problem if self.nu is None else problem.smooth(self.nu)
        step = jnp.asarray(self.schedule(state.t)).astype(dtype_of(state.w))
        w = svrg_epoch(
            smooth,
            state.w,
            step,
            jax.random.randint(drawn, (n,), 0, n, jnp.int32),
            self.average,
        )
        return State(w, state.t + 1), Info()

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        return Prices(step=epoch_price(problem, w))

    def remedy(self) -> str:
        first = float(jnp.max(jnp.asarray(self.schedule(jnp.zeros((), jnp.int32)))))
        return f"Try a smaller step, such as {first / 10:.2g}; it must shrink with nu."

    def name(self) -> str:
        return "svrg"


def svrg(step: Any, nu: Any = 0.0, average: bool = True) -> SVRG:
    """Return SVRG, w - step (g_i(w) - g_i(snapshot) + mean g(snapshot)).

    g_i is the gradient of the loss of sample i smoothed by nu, or a subgradient of the loss itself
    where nu = 0.0. An epoch is a full snapshot and n steps with replacement from it; the next epoch
    starts at the average of its iterates (or at the last). On smoothed losses the step must be of
    the order nu / max_i |J_i|^2.

    Parameters
    ----------
    step : a number or a schedule of epochs
        The step.
    nu : a number
        The smoothing of f; 0.0 is none.
    average : True or False
        Whether the next epoch starts at the average of the iterates, or at the last.

    Returns
    -------
    a solver
        For `px.minimize`.

    See Also
    --------
    casimir_svrg : extrapolates between epochs.
    sgd : has no snapshots.
    pli : uses it for subproblems.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.SquaredL2(), np.array([[1.0], [2.0], [9.0]]))
    >>> px.minimize(p, np.zeros(1), px.svrg(0.5, average=False), steps=10).w.round(2).tolist()  # the mean
    [4.0]
    """
    none = isinstance(nu, int | float) and nu == 0 and not isinstance(nu, bool)
    level = None if none else number(nu, "nu", low=0.0, open=True)
    return SVRG(as_schedule(step, "step"), level, flag(average, "average"))
