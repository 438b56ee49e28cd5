"""Robust fits of one table for a grid of settings and of row weights, all at once.

    min_w  (1/n) sum_i s_i f(predict(w, x_i) - y_i) + ridge/2 |w|^2,     x and y standardised

A fold of a cross-validation is a vector of weights s with 0 for the rows held out, so every fit has
the same shapes: the stochastic method runs them as one `vmap` over (start, ridge, step, s) with one
compilation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..compiled import compiled
from ..cost import Status
from ..inners import residual
from ..networks import MLP, WithLinear
from ..outers import AbstractOuter
from ..problem import AbstractProblem, MeanOfLosses
from ..run import minimize
from ..run.auto import choose
from ..run.loop import Limits, advance
from ..schedules import AbstractSchedule
from ..solvers import Info, prox_linear, sgd, truncated
from ..solvers.wrappers import AbstractWrapper
from ..types import Params
from .columns import MOST
from .losses import at_scale, outer_of

STOCHASTIC = {"sgd": sgd, "truncated": truncated}
SOLVERS = ("auto", "prox_linear", *STOCHASTIC)
PASSES = 30  # over the data in a stochastic fit
LEAST = 20_000  # samples that a stochastic fit sees, at least
PIECES = 20  # in which it runs, for progress
FITS = 20  # stochastic fits that run as one
FEW = 6  # of them, where FITS fits see SMALL rows or more in a pass
SMALL = 40_000
CELLS = 200_000  # rows times fits that are predicted at once
EXACT_STEPS = 50
EXACT_TOL = 1e-9
LEAST_RIDGE = 1e-8  # of an exact fit: its answer is unique
# what is being done, and the share of it that is done
Say = Callable[[str, float], None]


@dataclass(frozen=True)
class Setting:
    """The start (0: a linear model, which stays one; 1: a random network), the ridge, and the step
    times |J|^2.
    """

    start: float
    ridge: float
    step: float = 1.0


@dataclass(frozen=True)
class Task:
    """A table in its units, the network, the loss and the way to minimise it."""

    x: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, "n k"]
    hidden: int
    loss: str
    solver: str
    seed: int
    # the scale of the residuals of every target, for a loss that has one (Huber's)
    sigma: float = 1.0

    def outer(self) -> AbstractOuter:
        """Return the loss, at the scale of the residuals if it has one."""
        return at_scale(outer_of(self.loss), self.y.shape[1], self.sigma)

    def network(self) -> MLP | WithLinear:
        """Return the map from features to targets."""
        return network_of(self.x.shape[1], self.hidden, self.y.shape[1])

    def problem(self, dtype: Any, ridge: Any, s: Any) -> MeanOfLosses:
        """Return the problem of a ridge and of row weights s."""
        data = (jnp.asarray(self.x, dtype), jnp.asarray(self.y, dtype))
        return MeanOfLosses(
            residual(self.network()), self.outer(), data, ridge=ridge, weights=s
        )

    def starts(
        self, settings: Sequence[Setting], members: Sequence[int], dtype: Any
    ) -> Params:
        """Return the starts, stacked; a member has the same one under every setting."""
        scales = jnp.asarray([each.start for each in settings], dtype)
        return _starts(
            self.network(), jax.random.key(self.seed), jnp.asarray(members), scales
        )


@compiled
def _starts(
    network: "MLP | WithLinear", key: Array, members: Array, scales: Array
) -> Params:
    def one(member: Array, scale: Array) -> Params:
        w = network.init(jax.random.fold_in(key, member), scale.dtype)
        return jax.tree.map(lambda x: x * scale, w)

    return jax.vmap(one)(members, scales)


def network_of(features: int, hidden: int, targets: int) -> MLP | WithLinear:
    """Return a network of one hidden layer with a linear part, or a linear map where `hidden` is 0."""
    if not hidden:
        return MLP((features, targets))
    return WithLinear(MLP((features, hidden, targets)))


def solver_of(task: Task) -> tuple[str, str]:
    """Return the name of the solver and why: exact steps for a linear model of moderate size, else
    a stochastic one.
    """
    if task.solver != "auto":
        return task.solver, "as asked"
    if task.hidden and task.loss == "squared":
        return "truncated", "its steps are cut where the slope of a square has no bound"
    if task.hidden:
        return "sgd", "a stochastic method trains networks of all settings at once"
    problem = task.problem(jnp.float64, 1.0, None)
    w = jax.tree.map(
        lambda leaf: leaf[0], task.starts([Setting(0.0, 1.0)], [0], jnp.float64)
    )
    found, why = choose(problem, w)
    if found.name() not in SOLVERS:
        return "sgd", "exact steps would take too long"
    return found.name(), why


class Fits(NamedTuple):
    """The parameters of some fits, stacked, and how many of them ended at their budget before they
    converged.

    A stochastic fit is never among these, as its budget is where it is meant to end.
    """

    w: Params
    unfinished: int


def train(
    task: Task,
    settings: Sequence[Setting],
    weights: Float[np.ndarray, "m n"],
    members: Sequence[int],
    say: Say,
) -> Fits:
    """Return m fits: fit j has settings[j], the rows weighted by weights[j], and the start
    members[j].

    The solver of the task is named (see `solver_of`).
    """
    if task.solver in STOCHASTIC:
        return Fits(_train_stochastic(task, settings, weights, members, say), 0)
    starts = task.starts(settings, members, jnp.float64)
    found = []
    unfinished = 0
    for j, setting in enumerate(settings):
        problem = task.problem(
            jnp.float64, max(setting.ridge, LEAST_RIDGE), jnp.asarray(weights[j])
        )
        start = jax.tree.map(lambda leaf, j=j: leaf[j], starts)
        solution = minimize(
            problem,
            start,
            prox_linear(),
            steps=EXACT_STEPS,
            tol=EXACT_TOL,
            seed=task.seed,
        )
        found.append(jax.tree.map(np.asarray, solution.w))
        unfinished += solution.status == Status.budget
        say(task.solver, (j + 1) / len(settings))
    return Fits(jax.tree.map(lambda *leaves: np.stack(leaves), *found), unfinished)


def _train_stochastic(
    task: Task,
    settings: Sequence[Setting],
    weights: np.ndarray,
    members: Sequence[int],
    say: Say,
) -> Params:
    """Run the fits some at a time; the last ones are filled up with copies: one shape, one
    compilation.
    """
    m = len(settings)
    together = FEW
    if len(task.x) * FITS < SMALL:
        together = FITS
    found = []
    for first in range(0, m, together):
        now = [min(first + j, m - 1) for j in range(together)]
        part = lambda share, first=first: say(
            task.solver, min(1.0, (first + share * together) / m)
        )
        chosen = [settings[j] for j in now]
        starts = [members[j] for j in now]
        found.append(
            _all_at_once(
                task, chosen, weights[now], starts, STOCHASTIC[task.solver], part
            )
        )
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:m], *found)


def predict(
    network: MLP | WithLinear, w: Params, x: Float[np.ndarray, "n p"]
) -> Float[np.ndarray, "m n k"]:
    """Predict with every fit, in batches of rows; what overflows is infinite or nan."""
    w = jax.tree.map(jnp.asarray, w)
    first = jax.tree.leaves(w)[0]
    n = len(x)
    size = min(n, max(1, CELLS // len(first)))
    parts = []
    for start in range(0, n, size):
        # the last batch is filled up with the last row
        rows = np.minimum(np.arange(start, start + size), n - 1)
        # a number beyond float32 is infinite there, and so is what follows from it
        with np.errstate(over="ignore"):
            batch = jnp.asarray(x[rows], first.dtype)
        parts.append(np.asarray(_predict(network, w, batch), np.float64))
    return np.concatenate(parts, axis=1)[:, :n]


@compiled
def _predict(network: MLP | WithLinear, w: Params, x: Array) -> Array:
    return jax.vmap(lambda w: jax.vmap(lambda row: network(w, row))(x))(w)


class Falling(AbstractSchedule):
    """s (1 - t / count): the last iterate is then as good as an average (Zamani and Glineur, arXiv
    2307.11134).
    """

    s: Array
    count: int = eqx.field(static=True)

    def __call__(self, t: Any) -> Array:
        return self.s * (1 - jnp.asarray(t).astype(self.s.dtype) / self.count)


def _all_at_once(
    task: Task,
    settings: Sequence[Setting],
    weights: np.ndarray,
    members: Sequence[int],
    method: Callable,
    say: Callable[[float], None],
) -> Params:
    """Run fits in float32, each step on one sample, which is the same for all of them."""
    n, p = task.x.shape
    count = min(max(PASSES * n, LEAST), MOST)
    length = math.ceil(count / PIECES)
    dtype = jnp.float32
    size = p + 1.0  # |J|^2 of the start, about
    if task.hidden:
        # tanh^2 of each hidden unit, the inputs that reach them, and scale^2 |x|^2 of the linear
        # part
        size = 0.4 * task.hidden + 10.0 * (p + 1)
    w = task.starts(settings, members, dtype)
    ridges = jnp.asarray([each.ridge for each in settings], dtype)
    steps = jnp.asarray([each.step / size for each in settings], dtype)
    problem = task.problem(dtype, 1.0, None)
    each = (ridges, jnp.asarray(weights, dtype), steps)
    key = jax.random.key(task.seed)
    for piece in range(PIECES):
        w = _piece(
            method, problem, w, key, jnp.int32(piece), each, (length, length * PIECES)
        )
        jax.block_until_ready(w)
        say((piece + 1) / PIECES)
    return jax.tree.map(np.asarray, w)


class _Pieces(AbstractWrapper):
    """A solver that draws the samples of a whole piece at once."""

    length: int = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> Any:
        return self.solver.init(problem, w)

    def step(
        self, problem: AbstractProblem, state: Any, drawn: Any
    ) -> tuple[Any, Info]:
        return self.solver.step(problem, state, drawn)

    def epoch(self, problem: AbstractProblem) -> int:
        return self.length


@compiled
def _piece(
    method: Callable,
    problem: MeanOfLosses,
    w: Params,
    key: Array,
    piece: Array,
    each: Any,
    counts: tuple,
) -> Params:
    """Return every fit after the next steps: `counts` are those of this piece and of all."""
    length, count = counts
    start = piece * length

    def one(w: Params, ridge: Array, s: Array, step: Array) -> Params:
        solver = _Pieces(method(Falling(step, count)), length)
        own = MeanOfLosses(
            problem.inner, problem.outer, problem.data, ridge=ridge, weights=s
        )
        state = eqx.tree_at(lambda state: state.t, solver.init(own, w), start)
        _, record = advance(own, solver, state, key, start, Limits(start + length))
        return record.w

    return jax.vmap(one)(w, *each)
