"""A race of SGD and Gauss-Newton at equal effective passes: each is tuned, and their held-out
losses are paired.

    fold s is left out of training;   ratio_s = held-out loss of SGD / held-out loss of Gauss-Newton on fold s

Both sides search the same number of settings on the first fold; the best of each run on all folds,
with the same seeds. What is run is a function of the plan alone: nothing here reads the clock.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from .. import trees
from ..outers import AbstractProximable
from ..problem import AbstractProblem
from ..run import follow, minimize
from ..schedules import Power
from ..solvers import AbstractSolver, pli, prox_linear, sgd
from ..subproblem import is_dense, is_exact, operations
from ..types import Params, dtype_of, parameters
from .axes import CHECKPOINTS, HALF_DECADE, first_step
from .search import Axis, Choice, Grid, Lattice, Setting, Trial, tune_grids

Side = Literal["sgd", "gauss-newton"]
SIDES: tuple[Side, Side] = ("sgd", "gauss-newton")

PATIENCE = 0.4  # a run ends after this share of its passes without anything better
LONGEST = 16  # times the passes of a race that a quicker side runs on, at most
FINALISTS = 2  # settings of each method that run on all folds
# operations of an exact step (Gram matrix and factorisation): about a tenth of a second
QUICK_STEP = 1e9


@dataclass(frozen=True)
class Fold:
    """What is trained on, and what the iterates are judged by."""

    train: AbstractProblem
    held_out: AbstractProblem


@dataclass(frozen=True)
class Plan:
    """How much is run: settings of each method, effective passes of each run, folds, and the seed."""

    settings: int
    passes: float
    folds: int
    seed: int


@dataclass(frozen=True)
class Method:
    """A solver with the settings to try; `make` gives the solver that runs, `code` the call that a
    user would write.
    """

    name: str
    side: Side
    axes: Mapping[str, Axis]
    make: Callable[[Setting], AbstractSolver]
    code: Callable[[Setting], str]


@dataclass(frozen=True)
class Run:
    """One run: its least held-out loss, where, the iterate there, F at each step (exact steps
    only), and the held-out losses on the way with the seconds spent until then.
    """

    loss: float
    at: float
    w: Params
    values: np.ndarray | None
    times: np.ndarray
    held_out: np.ndarray

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole run, without compiling and measuring."""
        return float(self.times[-1])


@dataclass(frozen=True)
class TunedMethod:
    """The best setting of a method, and its runs, one for each fold."""

    method: Method
    setting: Setting
    runs: tuple[Run, ...]

    @property
    def losses(self) -> np.ndarray:
        return np.asarray([run.loss for run in self.runs])

    @property
    def code(self) -> str:
        return self.method.code(self.setting)


def folds_of(
    problem: AbstractProblem, validation: AbstractProblem | None, count: int, seed: int
) -> list[Fold]:
    """Leave n // count samples out of each training, and judge it by them, or by `validation` if
    there is one.
    """
    n = len(problem)
    size = n // count
    order = np.random.default_rng(seed).permutation(n)
    folds = []
    for s in range(count):
        left_out = np.sort(order[s * size : (s + 1) * size])
        kept = np.setdiff1d(np.arange(n), left_out)
        judge = validation
        if judge is None:
            judge = problem[left_out]
        folds.append(Fold(problem[kept], judge.plain()))
    return folds


def methods_of(problem: AbstractProblem, w: Params, passes: float) -> list[Method]:
    """Return SGD, PLI and, where its step is small, exact prox-linear, with lattices centred by the
    problem's scales.

    F / g, nu / g and g / F, with g the mean of |J_i' v_i|^2, have the units of SGD's step, PLI's
    inner step and kappa.
    """
    value, g = _scales(problem, w)
    methods = [_sgd(value / g, passes * len(problem), dtype_of(w)), _pli(value, g)]
    if _is_quick(problem, w):
        methods.append(EXACT)
    return methods


def _sgd(scale: float, steps: float, dtype: Any) -> Method:
    def first(setting: Setting) -> float:
        return float(
            f"{first_step(float(setting['step']), float(setting['decay']), steps):.3g}"
        )

    def make(setting: Setting) -> AbstractSolver:
        return sgd(
            Power(
                jnp.asarray(first(setting), dtype), jnp.asarray(setting["decay"], dtype)
            )
        )

    def code(setting: Setting) -> str:
        schedule = {0.0: "Constant", 0.5: "InverseSqrt"}[setting["decay"]]
        return f"px.sgd(px.{schedule}({first(setting):g}))"

    axes = {
        "step": Lattice(0.01 * scale, HALF_DECADE, (-3, -1, 1, 3)),
        "decay": Choice((0.0, 0.5), (0, 1)),
    }
    return Method("sgd", "sgd", axes, make, code)


def _pli(value: float, g: float) -> Method:
    def step(setting: Setting) -> float:
        """Return the inner step: it has to shrink with nu, so the axis is its rate."""
        return float(f"{setting['rate'] * setting['nu']:.3g}")

    def make(setting: Setting) -> AbstractSolver:
        return pli(
            setting["kappa"], setting["nu"], setting["inner"], step=step(setting)
        )

    def code(setting: Setting) -> str:
        numbers = "{kappa:g}, {nu:g}, inner_passes={inner}".format_map(setting)
        return f"px.pli({numbers}, step={step(setting):g})"

    axes = {
        # the inner step over nu: it has to shrink with nu
        "rate": Lattice(0.2 / g, HALF_DECADE, (-2, 0, 2)),
        "nu": Lattice(0.2 * value, HALF_DECADE, (-2, 0)),
        "kappa": Lattice(0.01 * g / value, 10.0, (0,), low=-6),
        "inner": Choice((1, 2, 5, 10), (1,), ordered=True),
    }
    return Method("pli", "gauss-newton", axes, make, code)


EXACT = Method(
    "prox_linear",
    "gauss-newton",
    {},
    lambda setting: prox_linear(),
    lambda setting: "px.prox_linear()",
)


def _scales(problem: AbstractProblem, w: Params) -> tuple[float, float]:
    """Return F(w), and the mean of |v_i|^2 over at most 64 samples, v_i a subgradient of the loss
    of one.

    1 stands in for either where it is 0: lattices need a centre.
    """
    plain = problem.plain()
    some = np.linspace(0, len(problem) - 1, min(len(problem), 64)).astype(int)
    squares = []
    for i in some:
        v = plain[int(i)].subgradient(w)
        squares.append(float(jnp.asarray(trees.vdot(v, v))))
    return _positive(float(problem.value(w))), _positive(float(np.mean(squares)))


def _positive(x: float) -> float:
    if x > 0:
        return x
    return 1.0


def _is_quick(problem: AbstractProblem, w: Params) -> bool:
    """Return whether an exact step takes few operations, by shapes alone."""
    if not isinstance(problem.outer, AbstractProximable) or not is_exact(problem, w):
        return False
    if not is_dense(problem, w):  # the Jacobian has a structure
        return operations(problem, w) <= QUICK_STEP
    rows = len(problem) * problem.outputs(w)
    d = sum(x.size for x in jax.tree.leaves(parameters(w)))
    order = min(rows, d)
    return rows * d * order + order**3 <= QUICK_STEP


def run(
    method: Method, setting: Setting, fold: Fold, w: Params, passes: float, seed: int
) -> Run:
    """Run a setting and judge it at its best mark; exact prox-linear at its best step, whose F are
    kept.
    """
    if method is EXACT:
        return _run_exact(fold, w, passes)
    marks = [passes * mark / 100 for mark in CHECKPOINTS]
    solver = method.make(setting)
    patience = PATIENCE * passes
    found = follow(
        fold.train, w, solver, fold.held_out.value, marks, seed=seed, patience=patience
    )
    return Run(
        found.best, float(found.at), found.w, None, found.seconds, found.measures
    )


def _run_exact(fold: Fold, w: Params, passes: float) -> Run:
    better: list[tuple[float, Params]] = []

    def held_out(w: Params) -> float:
        loss = float(fold.held_out.value(w))
        if math.isfinite(loss) and not (better and loss >= better[-1][0]):
            better.append((loss, w))
        return loss

    history = minimize(
        fold.train, w, prox_linear(), passes=passes, metrics={"held out": held_out}
    ).history
    # the last step may cost more than was left
    inside = history["passes"] <= passes + 1e-9
    losses = np.where(
        inside & np.isfinite(history["held out"]), history["held out"], np.inf
    )
    at = int(np.argmin(losses))
    best = next(each for loss, each in better if loss == losses[at])
    return Run(
        float(losses[at]),
        float(history["passes"][at]),
        best,
        history["value"],
        history["seconds"],
        losses,
    )


def race(
    methods: Sequence[Method],
    folds: Sequence[Fold],
    w: Params,
    plan: Plan,
    say: Callable[[str], None],
) -> list[TunedMethod]:
    """Tune each method: it searches on the first fold, and its best settings run on all."""
    found = []
    for method in methods:
        count = settings_of(method, plan)
        say(
            f"{method.name}: {count} setting{'s' * (count > 1)}, {plan.passes:g} passes each, then {plan.folds} folds"
        )

        def evaluate(trials: list[Trial], method: Method = method) -> list[Run]:
            return [
                run(method, setting, folds[s], w, plan.passes, plan.seed + s)
                for _, setting, s in trials
            ]

        grid = Grid(method.axes, count)
        (best,) = tune_grids(
            [grid], evaluate, _mean_loss, seeds=[len(folds)], finalists=FINALISTS
        )
        found.append(TunedMethod(method, best.setting, on_one_clock(best.runs)))
    return found


def prolonged(
    sides: Mapping[Side, TunedMethod], folds: Sequence[Fold], w: Params, plan: Plan
) -> tuple[Side, TunedMethod]:
    """Return the quicker side, and its runs with as many passes as the seconds of the slower side have
    room for, at most LONGEST times those of the plan. Its setting stays.
    """
    seconds = {side: fmean(run.seconds for run in sides[side].runs) for side in SIDES}
    quicker, slower = sorted(SIDES, key=lambda side: seconds[side])
    times = float(LONGEST)
    if seconds[slower] < LONGEST * seconds[quicker]:
        times = seconds[slower] / seconds[quicker]
    best = sides[quicker]
    passes = times * plan.passes
    runs = [
        run(best.method, best.setting, fold, w, passes, plan.seed + s)
        for s, fold in enumerate(folds)
    ]
    return quicker, replace(best, runs=on_one_clock(runs))


def on_one_clock(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs of one setting with the clock that they share."""
    clock = steady_clock([run.times for run in runs])
    return tuple(replace(run, times=clock[: len(run.times)]) for run in runs)


def steady_clock(times: Sequence[np.ndarray]) -> np.ndarray:
    """Return the seconds at each mark as on a machine without other programs: from mark to mark the
    least of all runs, added up.

    The runs do the same work between two marks (about the same, in exact steps), and other programs
    only make it slower: on a busy machine one run took ten times as long as the next.

    >>> steady_clock([np.array([0.0, 9.0, 11.0]), np.array([0.0, 1.0, 8.0, 9.0])]).tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    spent = [np.diff(each, prepend=0.0) for each in times]
    marks = max(len(each) for each in spent)
    least = [min(each[i] for each in spent if i < len(each)) for i in range(marks)]
    return np.cumsum(least)


def runs_of(method: Method, plan: Plan) -> int:
    """Return how many runs of a method there are: its settings on the first fold, and the best of
    them on the others.
    """
    count = settings_of(method, plan)
    return count + min(FINALISTS, count) * (plan.folds - 1)


def settings_of(method: Method, plan: Plan) -> int:
    """Return how many settings of a method are tried; one without axes has one."""
    if method.axes:
        return plan.settings
    return 1


def best_of(side: Side, tuned: Sequence[TunedMethod]) -> TunedMethod:
    """Return the method of a side with the least mean held-out loss."""
    return min(
        (each for each in tuned if each.method.side == side),
        key=lambda each: _mean_loss(each.runs),
    )


def _mean_loss(runs: Sequence[Run]) -> float:
    return fmean(run.loss for run in runs)
