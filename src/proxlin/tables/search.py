"""Settings by cross-validation, and the fit of the best.

chosen = argmin over settings of the mean of f over rows, each predicted by a fit that did not see
it
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..outers import L2
from ..tuning.search import Choice, Grid, Trial, tune_grids
from .asked import Asked
from .losses import NEARLY_SUPPORT, has_scale, outer_of
from .standardize import LEAST, Units, residual_scale, units_of
from .training import STOCHASTIC, Fits, Say, Setting, Task, predict, solver_of, train

FOLDS = 5
MEMBERS = 10  # networks from different starts, whose mean is the model
# above so many rows one fold tells settings apart, and FEWER members are enough
LARGE = 2000
FEWER = 3
REACH = 5.0  # deviations; a normal residual is beyond them once in two million
ROUNDS = 50  # of a linear fit and the scale of its residuals
SAME = 1e-4  # relative; a smaller change of the scale ends the rounds
VERY_LARGE = 1e30  # the error of a fit that is not finite; its square is finite
STRAIGHT = Setting(0.0, 0.0, 0.3)  # a linear model
# of these two the one with the smaller residuals tells their scale
FIRST = (STRAIGHT, Setting(1.0, 1e-3))
LINEAR = tuple(Setting(0.0, ridge) for ridge in (1e-1, 1e-2, 1e-3, 1e-4, 0.0))
NETWORKS = (
    STRAIGHT,
    *(
        Setting(1.0, ridge, step)
        for ridge in (3e-2, 1e-2, 3e-3, 1e-3, 1e-4)
        for step in (0.3, 1.0, 3.0)
    ),
)
FEW_NETWORKS = (
    STRAIGHT,
    *(
        Setting(1.0, ridge, step)
        for ridge, step in (
            (1e-2, 1.0),
            (1e-3, 1.0),
            (1e-5, 0.3),
            (1e-5, 1.0),
            (1e-5, 5.0),
        )
    ),
)


@dataclass(frozen=True)
class Found:
    """The settings tried, the losses of each on rows it did not see, the best, and its fit."""

    settings: tuple[Setting, ...]
    losses: np.ndarray  # (settings, rows)
    setting: Setting
    task: Task
    why: str
    units: Units
    fits: Fits
    far: int  # rows with a target beyond REACH

    @property
    def scale(self) -> np.ndarray:
        """Return the scale of each target's residuals that the loss was given, in the units of the
        table.
        """
        return self.task.sigma * self.units.y_scale

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the mean prediction of the fits, in the units of the table."""
        return self.units.given(
            predict(self.task.network(), self.fits.w, self.units.features(X)).mean(
                axis=0
            )
        )

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a row for each setting that was tried."""
        rows = []
        for setting, losses in zip(self.settings, self.losses, strict=True):
            row = {
                "loss": name,
                "model": "network" if setting.start else "linear",
                "ridge": setting.ridge,
                "step": setting.step,
                "cross-validated loss": float(losses.mean()),
                "standard error": float(losses.std() / np.sqrt(len(losses))),
                "chosen": setting == self.setting,
            }
            rows.append(row)
        return rows


def search(
    X: np.ndarray,
    y: np.ndarray,
    asked: Asked,
    fold: np.ndarray,
    say: Say,
    settings: Sequence[Setting] = (),
) -> Found:
    """Find the best setting (of all if none is given) for the rows whose fold is not -1, and fit it
    to them.
    """
    used = fold >= 0
    large = len(X) > LARGE
    folds = 1 if large else FOLDS
    units = units_of(X[used], y[used])
    task = Task(
        units.features(X),
        units.targets(y),
        asked.hidden,
        asked.loss,
        asked.solver,
        asked.seed,
    )
    solver, why = solver_of(task)
    task = dataclasses.replace(task, solver=solver)
    if has_scale(outer_of(asked.loss), y.shape[1]):
        units, sigma = of_residuals(task, units, fold, folds)
        task = dataclasses.replace(task, y=units.targets(y), sigma=sigma)
    far = 0
    if asked.hidden and asked.loss != "squared":
        near = within_reach(task, used)
        far = int(np.any(~np.isclose(near, task.y)[used], axis=1).sum())
        task = dataclasses.replace(task, y=near)
    settings = tuple(settings) or _settings(asked, solver, large)
    best = settings[0]
    losses = np.zeros((1, 1))
    if len(settings) > 1:
        best, losses = choose(
            task, settings, fold, folds, lambda what, share: say(what, 0.7 * share)
        )
    count = 1
    if best.start:
        count = FEWER if large else MEMBERS
    weights = np.repeat(used[None].astype(float), count, axis=0)
    fits = train(
        task,
        [best] * count,
        weights,
        range(count),
        lambda what, share: say(what, 0.7 + 0.3 * share),
    )
    return Found(settings, losses, best, task, why, units, fits, far)


def _settings(asked: Asked, solver: str, large: bool) -> tuple[Setting, ...]:
    """Return the settings to be tried, the simplest first; an exact method has no step."""
    settings = LINEAR
    if asked.hidden:
        settings = FEW_NETWORKS if large else NETWORKS
    if solver == "prox_linear":
        settings = tuple(
            dict.fromkeys(
                dataclasses.replace(setting, step=1.0) for setting in settings
            )
        )
    return settings


def choose(
    task: Task, settings: tuple[Setting, ...], fold: np.ndarray, folds: int, say: Say
) -> tuple[Setting, np.ndarray]:
    """Return the setting of least mean loss on rows it did not see, the first of equals, and all
    losses.
    """

    def evaluate(trials: list[Trial]) -> list[np.ndarray]:
        return list(
            cross_validated(
                task, [trial.setting["fit"] for trial in trials], fold, folds, say
            )
        )

    everything = tuple(range(len(settings)))
    grid = Grid({"fit": Choice(settings, everything)}, len(settings))
    (best,) = tune_grids(
        [grid], evaluate, lambda runs: float(runs[0].mean()), seeds=[1]
    )
    return best.setting["fit"], np.stack([runs[0] for _, runs in best.tried])


def cross_validated(
    task: Task, settings: Sequence[Setting], fold: np.ndarray, folds: int, say: Say
) -> np.ndarray:
    """Return (settings, rows): each row's loss in the fold that did not see it.

    Of outliers, which are in these rows too, the l2 and l1 losses of two settings differ by no more
    than the predictions do: they do not decide. So least squares is judged by the l2 loss.
    """
    error = unseen_errors(task, settings, fold, folds, say)
    outer = task.outer()
    if task.loss == "squared":
        outer = L2()
    return np.asarray(jax.jit(jax.vmap(jax.vmap(outer.value)))(error))


def unseen_errors(
    task: Task, settings: Sequence[Setting], fold: np.ndarray, folds: int, say: Say
) -> np.ndarray:
    """Return (settings, rows, targets): each row's error in the fold that did not see it."""
    training = np.stack([(fold >= 0) & (fold != j) for j in range(folds)]).astype(float)
    weights = np.tile(training, (len(settings), 1))
    each = [setting for setting in settings for _ in range(folds)]
    fits = train(task, each, weights, [0] * len(each), say)
    fitted = predict(task.network(), fits.w, task.x)
    fitted = fitted.reshape(len(settings), folds, *task.y.shape)
    parts = []
    for j in range(folds):
        unseen = fold == j
        parts.append(fitted[:, j, unseen] - task.y[unseen])
    error = np.concatenate(parts, axis=1)
    return np.clip(np.nan_to_num(error, nan=VERY_LARGE), -VERY_LARGE, VERY_LARGE)


def of_residuals(
    task: Task, units: Units, fold: np.ndarray, folds: int
) -> tuple[Units, float]:
    """Return units in which the residuals of a robust fit have one scale for all targets, and that
    scale.

    A linear model's are those of its own rows, and an exact one is fitted again until the scale comes to rest, as R's
    `rlm` does. A network comes too near to the rows it has seen, so its residuals are those of rows it has not.
    """
    if task.hidden:
        first = dataclasses.replace(task, sigma=NEARLY_SUPPORT)
        errors = unseen_errors(first, FIRST, fold, folds, _say_nothing)
        scales = [residual_scale(each, np.ones(len(each))) for each in errors]
        return units.of_residuals(
            np.maximum(np.min(scales, axis=0), LEAST) * units.y_scale
        )
    used = fold >= 0
    now = units
    sigma = NEARLY_SUPPORT
    before = np.zeros(task.y.shape[1])
    rounds = ROUNDS
    if task.solver in STOCHASTIC:
        rounds = 1
    for _ in range(rounds):
        here = dataclasses.replace(
            task, y=now.targets(units.given(task.y)), sigma=sigma
        )
        away = (here.y - _straight(here, used))[used] * now.y_scale
        scale = np.maximum(
            residual_scale(away, np.ones(len(away))), LEAST * units.y_scale
        )
        now, sigma = units.of_residuals(scale)
        if np.all(np.abs(scale - before) <= SAME * scale):
            break
        before = scale
    return now, sigma


def within_reach(task: Task, rows: np.ndarray) -> np.ndarray:
    """Return targets no farther than REACH deviations of the residuals from a linear fit to `rows`.

    A residual that keeps its sign pulls as before, since the slope of the loss is bounded; but
    where rows are sparse a network follows a single outlier, and it then gets no farther than that.
    """
    fitted = _straight(task, rows)
    away = task.y - fitted
    limit = REACH * residual_scale(away[rows], np.ones(rows.sum()))
    return fitted + np.where(limit > 0, np.clip(away, -limit, limit), away)


def _straight(task: Task, rows: np.ndarray) -> np.ndarray:
    """Return the predictions of a linear model fitted to `rows`."""
    fits = train(task, [STRAIGHT], rows[None].astype(float), [0], _say_nothing)
    return predict(task.network(), fits.w, task.x)[0]


def _say_nothing(what: str, share: float) -> None:
    """Stand in for progress that nobody watches."""
