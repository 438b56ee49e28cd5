"""A race of SGD and Gauss-Newton at equal effective passes: each is tuned, and their held-out losses are paired.

    fold s is left out of training;   ratio_s = held-out loss of SGD / held-out loss of Gauss-Newton on fold s

Both sides search the same number of settings on the first fold; the best of each run on all folds, with the same seeds.
What is run is a function of the plan alone: nothing here reads the clock.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..outers import AbstractProximable
from ..problem import AbstractProblem
from ..run import follow, minimize
from ..schedules import Power
from ..solvers import AbstractSolver, pli, prox_linear, sgd
from ..subproblem import is_dense
from ..types import Params, dtype_of, parameters
from .search import Axis, Choice, Grid, Lattice, Search, Setting, search_all

Side = Literal["sgd", "gauss-newton"]
SIDES: tuple[Side, Side] = ("sgd", "gauss-newton")

HALF = 10**0.5  # half a decade
# Where runs are judged, in hundredths of the passes: dense at the start, where a noisy problem is fitted soon.
MARKS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
PATIENCE = 0.4  # of the passes without anything better, and a run ends
FINALISTS = 2
EXACT = 1e9  # operations of an exact step (Gram matrix and factorisation): about a tenth of a second


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
    """A solver with the settings to try; `make` gives the solver that runs, `code` the call that a user would write."""

    name: str
    side: Side
    axes: Mapping[str, Axis]
    make: Callable[[Setting], AbstractSolver]
    code: Callable[[Setting], str]


@dataclass(frozen=True)
class Run:
    """One run: its least held-out loss, where, the iterate there, F at each step (exact steps only), and seconds."""

    loss: float
    at: float
    w: Params
    values: np.ndarray | None
    seconds: float


@dataclass(frozen=True)
class Champion:
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


def folds_of(problem: AbstractProblem, validation: AbstractProblem | None, count: int, seed: int) -> list[Fold]:
    """Training on all but n // count samples; judged by those left out, or by a validation problem if there is one."""
    n, size = len(problem), len(problem) // count
    order = np.random.default_rng(seed).permutation(n)
    folds = []
    for s in range(count):
        left_out = np.sort(order[s * size : (s + 1) * size])
        kept = np.setdiff1d(np.arange(n), left_out)
        folds.append(Fold(problem[kept], problem[left_out].plain() if validation is None else validation.plain()))
    return folds


def methods_of(problem: AbstractProblem, w: Params, passes: float) -> list[Method]:
    """SGD, PLI and, where its step is small, exact prox-linear; the lattices are centred by the scales of the problem.

    F / g, nu / g and g / F, with g the mean of |J_i' v_i|^2, have the units of SGD's step, PLI's inner step and kappa.
    """
    value, g = _scales(problem, w)
    steps, dtype = passes * len(problem), dtype_of(w)
    found = [_sgd(value / g, steps, dtype), _pli(value, g)]
    return [*found, _EXACT] if _small(problem, w) else found


def _sgd(scale: float, steps: float, dtype: Any) -> Method:
    def first(setting: Setting) -> float:  # the step is the one half way, so that the best does not move with the decay
        return float(f"{float(setting['step']) * (steps / 2) ** float(setting['decay']):.3g}")

    def make(setting: Setting) -> AbstractSolver:
        return sgd(Power(jnp.asarray(first(setting), dtype), jnp.asarray(setting["decay"], dtype)))

    def code(setting: Setting) -> str:
        return f"px.sgd(px.{'InverseSqrt' if setting['decay'] else 'Constant'}({first(setting):g}))"

    axes = {"step": Lattice(0.01 * scale, HALF, (-3, -1, 1, 3)), "decay": Choice((0.0, 0.5), (0, 1))}
    return Method("sgd", "sgd", axes, make, code)


def _pli(value: float, g: float) -> Method:
    def numbers(setting: Setting) -> tuple[float, float, int, float]:
        nu = float(setting["nu"])
        return float(setting["kappa"]), nu, int(setting["inner"]), float(f"{float(setting['rate']) * nu:.3g}")

    def make(setting: Setting) -> AbstractSolver:
        kappa, nu, inner, step = numbers(setting)
        return pli(kappa, nu, inner, step=step)

    def code(setting: Setting) -> str:
        kappa, nu, inner, step = numbers(setting)
        return f"px.pli({kappa:g}, {nu:g}, inner_passes={inner}, step={step:g})"

    axes = {
        "rate": Lattice(0.2 / g, HALF, (-2, 0, 2)),  # the inner step over nu: it has to shrink with nu
        "nu": Lattice(0.2 * value, HALF, (-2, 0)),
        "kappa": Lattice(0.01 * g / value, 10.0, (0,), low=-6),
        "inner": Choice((1, 2, 5, 10), (1,), ordered=True),
    }
    return Method("pli", "gauss-newton", axes, make, code)


_EXACT = Method("prox_linear", "gauss-newton", {}, lambda setting: prox_linear(), lambda setting: "px.prox_linear()")


def _scales(problem: AbstractProblem, w: Params) -> tuple[float, float]:
    """F(w), and the mean of |v_i|^2 over at most 64 samples, v_i a subgradient of the loss of one."""
    some = np.linspace(0, len(problem) - 1, min(len(problem), 64)).astype(int)
    squares = [optax.tree.vdot(v, v) for v in (problem.plain()[int(i)].subgradient(w) for i in some)]
    value, g = float(problem.value(w)), float(np.mean([float(jnp.asarray(each)) for each in squares]))
    return (value if value > 0 else 1.0), (g if g > 0 else 1.0)


def _small(problem: AbstractProblem, w: Params) -> bool:
    """Whether an exact step is quick (shapes alone)."""
    if not isinstance(problem.outer, AbstractProximable) or not is_dense(problem, w):
        return False
    rows, d = len(problem) * problem.outputs(w), sum(x.size for x in jax.tree.leaves(parameters(w)))
    order = min(rows, d)
    return rows * d * order + order**3 <= EXACT


def run(method: Method, setting: Setting, fold: Fold, w: Params, passes: float, seed: int) -> Run:
    """One run, judged at its best mark; exact prox-linear at its best step, whose F are kept."""
    if method.name == "prox_linear":
        return _exact(fold, w, passes)
    marks = [passes * mark / 100 for mark in MARKS]
    found = follow(
        fold.train, w, method.make(setting), fold.held_out.value, marks, seed=seed, patience=PATIENCE * passes
    )
    return Run(found.best, float(found.at), found.w, None, float(found.seconds[-1]))


def _exact(fold: Fold, w: Params, passes: float) -> Run:
    better: list[tuple[float, Params]] = []

    def held_out(w: Params) -> float:
        loss = float(fold.held_out.value(w))
        if math.isfinite(loss) and not (better and loss >= better[-1][0]):
            better.append((loss, w))
        return loss

    history = minimize(fold.train, w, prox_linear(), passes=passes, metrics={"held out": held_out}).history
    inside = history["passes"] <= passes + 1e-9  # the last step may cost more than was left
    losses = np.where(inside & np.isfinite(history["held out"]), history["held out"], np.inf)
    at = int(np.argmin(losses))
    best = next(each for loss, each in better if loss == losses[at])
    seconds = float(history["seconds"][-1])
    return Run(float(losses[at]), float(history["passes"][at]), best, history["value"], seconds)


def race(
    methods: Sequence[Method], folds: Sequence[Fold], w: Params, plan: Plan, say: Callable[[str], None]
) -> list[Champion]:
    """The best setting of each method: it searches on the first fold, and its best settings run on all."""
    found = []
    for method in methods:
        count = plan.settings if method.axes else 1
        say(f"{method.name}: {count} setting{'s' * (count > 1)}, {plan.passes:g} passes each, then {plan.folds} folds")
        found.append(_champion(method, folds, w, plan))
    return found


def best_of(side: Side, champions: Sequence[Champion]) -> Champion:
    """The one of least mean held-out loss."""
    return min((each for each in champions if each.method.side == side), key=lambda each: fmean(each.losses))


def _champion(method: Method, folds: Sequence[Fold], w: Params, plan: Plan) -> Champion:
    known: dict[str, Run] = {}

    def first(setting: Setting) -> Run:
        key = repr(setting)
        if key not in known:
            known[key] = run(method, setting, folds[0], w, plan.passes, plan.seed)
        return known[key]

    chosen = []
    for setting in _best_settings(method, plan.settings, first):
        rest = (run(method, setting, fold, w, plan.passes, plan.seed + s) for s, fold in enumerate(folds) if s)
        chosen.append(Champion(method, setting, (first(setting), *rest)))
    return min(chosen, key=lambda each: fmean(each.losses))


def _best_settings(method: Method, budget: int, score: Callable[[Setting], Run]) -> Iterator[Setting]:
    if not method.axes:
        return iter([{}])
    search = Search(Grid(method.axes, budget))
    search_all([search], lambda asked: [score(setting).loss for _, setting in asked])
    return iter([search.grid.setting(point) for point in search.ranked(FINALISTS)])
