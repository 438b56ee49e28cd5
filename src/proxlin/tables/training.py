"""Robust fits of one table for a grid of settings and of row weights, all at once.

    min_w  (1/n) sum_i s_i f(predict(w, x_i) - y_i) + ridge/2 |w|^2,     x and y standardised

A fold of a cross-validation is a vector of weights s with 0 for the rows held out, so every fit has
the same shapes: the stochastic method runs them as one `vmap` over (start, ridge, step, s) with one
compilation.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import trees
from ..compiled import compiled
from ..cost import Prices, Status
from ..inners import residual
from ..networks import MLP, Trees, WithLinear, WithTrees
from ..outers import AbstractOuter
from ..problem import AbstractProblem, MeanOfLosses
from ..run import minimize
from ..run.auto import choose
from ..run.loop import Limits, advance
from ..schedules import AbstractSchedule
from ..solvers import Info, State, prox_linear, sgd, truncated
from ..solvers.base import AbstractSolver
from ..solvers.wrappers import AbstractWrapper
from ..types import Params
from .losses import at_scale, outer_of
from .outputs import Map

PASSES = 10  # over the data in a fit by mini-batches
PASSES_SINGLE = 30  # and in one by single rows
LEAST = 2000  # its steps, at least
LEAST_SINGLE, MOST_SINGLE = 20_000, 300_000  # of steps on one row each
SMALLEST, LARGEST = 32, 512  # rows of a mini-batch of Adam
STEPS = 32  # mini-batches that small tables are divided into
PIECES = 10  # in which it runs; after each, rows that it does not see tell whether it is at its best
DRAWN = 100  # steps whose randomness is drawn at once
FITS = 5  # stochastic fits that run as one
MANY = 10_000  # rows, above which copies of fits cost more than another compilation
ADAM = 0.01  # its step at the start, in units of a setting
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
    # beside the network, their number and depth
    trees: tuple[int, int] = (0, 0)
    # how much a row counts, of mean 1; None: all the same
    s: Float[np.ndarray, " n"] | None = None
    # rows that are held out to judge the fit: nothing of it may depend on them; None: there are none
    held: Bool[np.ndarray, " n"] | None = None

    def importance(self) -> Float[np.ndarray, " n"]:
        """Return how much each row counts."""
        return np.ones(len(self.x)) if self.s is None else self.s

    def outer(self) -> AbstractOuter:
        """Return the loss, at the scale of the residuals if it has one."""
        return at_scale(outer_of(self.loss), self.y.shape[1], self.sigma)

    def network(self) -> Map:
        """Return the map from features to targets."""
        return network_of(self.x.shape[1], self.hidden, self.y.shape[1], self.trees)

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


def _shapes(network: Map, count: int) -> Params:
    """Return the shapes of the parameters of so many fits."""
    one = jax.eval_shape(network.init, jax.random.key(0))
    shape = lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype)
    return jax.tree.map(shape, one)


@compiled
def _starts(network: Map, key: Array, members: Array, scales: Array) -> Params:
    def one(member: Array, scale: Array) -> Params:
        w = network.init(jax.random.fold_in(key, member), scale.dtype)
        return jax.tree.map(lambda x: x * scale, w)

    return jax.vmap(one)(members, scales)


def network_of(
    features: int, hidden: int, targets: int, trees: tuple[int, int] = (0, 0)
) -> Map:
    """Return a network of one hidden layer with a linear part and trees (their number and depth), or a linear map where
    `hidden` is 0.
    """
    if not hidden:
        return MLP((features, targets))
    network = WithLinear(MLP((features, hidden, targets)))
    count, depth = trees
    if not count:
        return network
    return WithTrees(network, Trees((features, targets), count, depth))


def solver_of(task: Task) -> tuple[str, str]:
    """Return the name of the solver and why: exact steps for a linear model of moderate size, else
    a stochastic one.
    """
    if task.solver != "auto":
        return task.solver, "as asked"
    if task.hidden:
        return "adam", "mini-batches train the networks of all settings at once"
    problem = task.problem(jnp.float64, 1.0, None)
    w = task.network().init(jax.random.key(task.seed), jnp.float64)
    found, why = choose(problem, w)
    if found.name() not in SOLVERS:
        return "adam", "exact steps would take too long"
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
    """Return m fits: fit j has settings[j], the rows weighted by weights[j] times their importance,
    and the start members[j].

    The solver of the task is named (see `solver_of`).
    """
    weights = weights * task.importance()
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
    together = FITS
    if len(task.x) > MANY:
        together = min(FITS, m)
    found = []
    for first in range(0, m, together):
        now = [min(first + j, m - 1) for j in range(together)]
        part = lambda share, first=first: say(
            task.solver, min(1.0, (first + share * together) / m)
        )
        chosen = [settings[j] for j in now]
        starts = [members[j] for j in now]
        found.append(_all_at_once(task, chosen, weights[now], starts, part))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:m], *found)


class Falling(AbstractSchedule):
    """s (1 - t / count): the last iterate is then as good as an average (Zamani and Glineur, arXiv
    2307.11134).
    """

    s: Array
    count: Array

    def __call__(self, t: Any) -> Array:
        return self.s * (
            1 - jnp.asarray(t).astype(self.s.dtype) / self.count.astype(self.s.dtype)
        )


class Adam(AbstractSolver):
    """The solver w - step_t m_t / (sqrt(v_t) + 1e-8), with running means m of mini-batch subgradients
    and v of their squares.

    Kingma and Ba, arXiv 1412.6980.
    """

    schedule: AbstractSchedule
    batch_size: int = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> State:
        return State(w, jnp.int32(0), _adam().init(w))

    def draw(self, problem: AbstractProblem, key: Array, count: int) -> Array:
        """Return the rows of count mini-batches."""
        rows = (count, self.batch_size)
        return jax.random.randint(key, rows, 0, problem.samples(), jnp.int32)

    def step(
        self, problem: AbstractProblem, state: State, drawn: Array
    ) -> tuple[State, Info]:
        v = problem[drawn].subgradient(state.w)
        # optax raises a number to the power of a count, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            direction, memory = _adam().update(v, state.memory)
        w = trees.add_scale(state.w, -self.schedule(state.t), direction)
        return State(w, state.t + 1, memory), Info()

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        batch = problem[jnp.zeros(self.batch_size, jnp.int32)]
        return Prices(step=batch.prices(w).subgradient)


def _adam() -> Any:
    """Return the direction of Adam; optax is imported only here, as it takes a tenth of a second."""
    import optax

    return optax.scale_by_adam()


STOCHASTIC: dict[str, Callable[[AbstractSchedule, int], AbstractSolver]] = {
    "adam": Adam,
    "sgd": sgd,
    "truncated": lambda step, batch_size: truncated(step, batch_size=batch_size),
}
SOLVERS = ("auto", "prox_linear", *STOCHASTIC)


def _all_at_once(
    task: Task,
    settings: Sequence[Setting],
    weights: np.ndarray,
    members: Sequence[int],
    say: Callable[[float], None],
) -> Params:
    """Run fits in float32, each step on one mini-batch, which is the same for all of them.

    Every fit ends where it did best on the rows that it does not see, if there are any.
    """
    n, p = task.x.shape
    dtype = jnp.float32
    if task.solver == "adam":
        batch = int(np.clip(2 ** round(math.log2(n / STEPS)), SMALLEST, LARGEST))
        count = max(LEAST, PASSES * n / batch)
        size = 1 / ADAM
    else:
        batch = 1
        count = min(max(PASSES_SINGLE * n, LEAST_SINGLE), MOST_SINGLE)
        size = p + 1.0  # |J|^2 of the start, about
        if task.hidden:
            # tanh^2 of each hidden unit, the inputs that reach them, and scale^2 |x|^2 of the linear
            # part
            size = 0.4 * task.hidden + 10.0 * (p + 1)
    length = DRAWN * math.ceil(count / (DRAWN * PIECES))
    # Columns of zeros change nothing, and tables of about this width share a program.
    wide = dataclasses.replace(
        task, x=np.pad(task.x, ((0, 0), (0, columns_for(p) - p)))
    )
    narrow = task.starts(settings, members, dtype)
    w = resized(narrow, _shapes(wide.network(), len(settings)))
    problem = wide.problem(dtype, 1.0, np.ones(n)).padded()
    rows = len(problem)
    s = np.zeros((len(settings), rows), np.float32)
    s[:, :n] = weights
    unseen = np.zeros_like(s)
    unseen[:, :n] = _unseen_rows(weights) * task.importance()
    if task.held is not None:
        unseen[:, :n] *= ~task.held
    ridges = jnp.asarray([each.ridge for each in settings], dtype)
    steps = jnp.asarray([each.step / size for each in settings], dtype)
    method = (task.solver, batch)
    each = (ridges, jnp.asarray(s), steps)
    key = jax.random.key(task.seed)
    state = begin(method, problem, w, each)
    best = w
    least = jnp.full(len(settings), jnp.inf, dtype)
    for piece in range(PIECES):
        counts = (
            jnp.int32(piece * length),
            jnp.int32(length),
            jnp.int32(length * PIECES),
        )
        state, best, least = _piece(
            method, problem, state, key, each, counts, jnp.asarray(unseen), best, least
        )
        jax.block_until_ready(least)
        say((piece + 1) / PIECES)
    return jax.tree.map(np.asarray, resized(best, narrow))


def _unseen_rows(weights: np.ndarray) -> np.ndarray:
    """Return 1 for the rows that a fit does not see; they tell where it is at its best."""
    return weights == 0


def columns_for(p: int) -> int:
    """Return the least of 4, 6, 8, 12, 16, 24, 32, ... that is at least p."""
    power = 2 ** max(2, math.ceil(math.log2(p)))
    if p <= 3 * power // 4 and power > 4:
        return 3 * power // 4
    return power


def resized(w: Params, like: Params) -> Params:
    """Return arrays of other shapes: what is beyond them is dropped, and what they lack is 0."""

    def one(x: Any, shape: tuple[int, ...]) -> np.ndarray:
        found = np.zeros(shape, np.float32)
        shared = tuple(slice(0, min(a, b)) for a, b in zip(x.shape, shape, strict=True))
        found[shared] = np.asarray(x)[shared]
        return found

    return jax.tree.map(lambda x, y: one(x, y.shape), w, like)


class _Pieces(AbstractWrapper):
    """A solver that draws the samples of DRAWN steps at once."""

    def init(self, problem: AbstractProblem, w: Params) -> Any:
        return self.solver.init(problem, w)

    def step(
        self, problem: AbstractProblem, state: Any, drawn: Any
    ) -> tuple[Any, Info]:
        return self.solver.step(problem, state, drawn)

    def epoch(self, problem: AbstractProblem) -> int:
        return DRAWN


def _own(problem: AbstractProblem, ridge: Array, s: Array) -> AbstractProblem:
    """Return the problem with a ridge and weights of its own, and the count of its true rows."""
    own = MeanOfLosses(
        problem.inner, problem.outer, problem.data, ridge=ridge, weights=s
    )
    return eqx.tree_at(
        lambda own: own.count, own, problem.count, is_leaf=lambda x: x is None
    )


@compiled
def begin(
    method: tuple[str, int], problem: AbstractProblem, w: Params, each: Any
) -> Any:
    """Return the states of all fits."""
    name, batch = method

    def one(w: Params, ridge: Array, s: Array, step: Array) -> Any:
        solver = STOCHASTIC[name](Falling(step, jnp.int32(1)), batch)
        return solver.init(_own(problem, ridge, s), w)

    return jax.vmap(one)(w, *each)


@compiled
def _piece(
    method: tuple[str, int],
    problem: AbstractProblem,
    states: Any,
    key: Array,
    each: Any,
    counts: tuple,
    unseen: Array,
    best: Params,
    least: Array,
) -> tuple[Any, Params, Array]:
    """Return every fit after the next steps, and the best so far on the rows that it does not see.

    `counts` are the steps before this piece, in it, and in all.
    """
    start, length, count = counts

    def one(
        state: Any, own: tuple, unseen: Array, best: Params, least: Array
    ) -> tuple[Any, Params, Array]:
        fit, solver = _fit_of(method, problem, own, count)
        state, record = advance(fit, solver, state, key, start, Limits(start + length))
        # Without rows to look at the last iterate is the answer: every loss is then 0.
        loss = jnp.mean(unseen * jax.vmap(problem.outer.value)(fit.stack(record.w)))
        better = loss <= least
        best = jax.tree.map(
            lambda new, old: jnp.where(better, new, old), record.w, best
        )
        return state, best, jnp.where(better, loss, least)

    return jax.vmap(one)(states, each, unseen, best, least)


@compiled
def onward(
    method: tuple[str, int],
    problem: AbstractProblem,
    states: Any,
    key: Array,
    each: Any,
    counts: tuple,
) -> tuple[Any, Params]:
    """Return every fit after the next steps, on rows that may be others than before; `counts` are as
    in `_piece`.
    """
    start, length, count = counts

    def one(state: Any, own: tuple) -> tuple[Any, Params]:
        fit, solver = _fit_of(method, problem, own, count)
        state, record = advance(fit, solver, state, key, start, Limits(start + length))
        return state, record.w

    return jax.vmap(one)(states, each)


def _fit_of(
    method: tuple[str, int], problem: AbstractProblem, own: tuple, count: Array
) -> tuple[AbstractProblem, AbstractSolver]:
    """Return the problem of a fit, and its solver for so many steps."""
    name, batch = method
    ridge, s, step = own
    solver = _Pieces(STOCHASTIC[name](Falling(step, count), batch))
    return _own(problem, ridge, s), solver
