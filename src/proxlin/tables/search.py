"""Settings by cross-validation, and the fit of the best.

chosen = argmin over settings of the mean of f over rows, each predicted by a fit that did not see it
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..outers import L2
from ..types import Params
from .model import Asked
from .standardize import LEAST, Units, has_scale, residual_scale, units_of
from .training import LOSSES, STOCHASTIC, Say, Setting, Task, predict, solver_of, train

FOLDS, MEMBERS = 5, 10  # members: fits from different starts, whose mean is the model
LARGE, FEWER = 2000, 3  # above so many rows one fold tells settings apart, and fewer members are enough
REACH = 5.0  # deviations; a normal residual is beyond them once in two million
STRAIGHT = Setting(0.0, 0.0, 0.3)  # a linear model
FIRST = (
    STRAIGHT,
    Setting(1.0, 1e-3),
)  # a network too; of the two, the one with the smaller residuals tells their scale
NEARLY_SUPPORT = 1e-3  # the scale of a first fit, in deviations of the targets: Huber's loss is then l1, nearly
ROUNDS, SAME = 50, 1e-4  # of a linear fit and the scale of its residuals; a relative change that ends them
LINEAR = tuple(Setting(0.0, ridge) for ridge in (1e-1, 1e-2, 1e-3, 1e-4, 0.0))
NETWORKS = (
    STRAIGHT,
    *(Setting(1.0, ridge, step) for ridge in (3e-2, 1e-2, 3e-3, 1e-3, 1e-4) for step in (0.3, 1.0, 3.0)),
)
FEW_NETWORKS = (
    STRAIGHT,
    *(Setting(1.0, ridge, step) for ridge, step in ((1e-2, 1.0), (1e-3, 1.0), (1e-5, 0.3), (1e-5, 1.0), (1e-5, 5.0))),
)


@dataclass(frozen=True)
class Found:
    """The settings tried, the losses of each on rows it did not see, the best, and its fit."""

    settings: tuple[Setting, ...]
    losses: np.ndarray  # (settings, rows)
    best: int
    task: Task
    why: str
    units: Units
    w: Params
    far: int  # rows with a target beyond REACH

    @property
    def scale(self) -> np.ndarray:
        """The scale of each target's residuals that the loss was given, in the units of the table."""
        return self.task.sigma * self.units.y_scale

    @property
    def setting(self) -> Setting:
        return self.settings[self.best]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.units.given(predict(self.task.network(), self.w, self.units.features(X)).mean(axis=0))

    def rows(self, name: str) -> list[dict[str, Any]]:
        means = self.losses.mean(axis=1)
        errors = self.losses.std(axis=1) / np.sqrt(self.losses.shape[1])
        return [
            {"loss": name, "model": "network" if each.start else "linear", "ridge": each.ridge, "step": each.step}
            | {"cross-validated loss": float(mean), "standard error": float(error), "chosen": j == self.best}
            for j, (each, mean, error) in enumerate(zip(self.settings, means, errors, strict=True))
        ]


def search(
    X: np.ndarray, y: np.ndarray, asked: Asked, fold: np.ndarray, say: Say, settings: Sequence[Setting] = ()
) -> Found:
    """The best setting (of all if none is given) for the rows whose fold is not -1, and its fit to them."""
    used, large = fold >= 0, len(X) > LARGE
    units = units_of(X[used], y[used])
    task = Task(units.features(X), units.targets(y), asked.hidden, asked.loss, asked.solver, asked.seed)
    solver, why = solver_of(task)
    task = dataclasses.replace(task, solver=solver)
    if has_scale(LOSSES[asked.loss](), y.shape[1]):
        units, sigma = of_residuals(task, units, fold, 1 if large else FOLDS)
        task = dataclasses.replace(task, y=units.targets(y), sigma=sigma)
    near = within_reach(task, used) if asked.hidden and asked.loss != "squared" else task.y
    far = int(np.any(~np.isclose(near, task.y)[used], axis=1).sum())
    task = dataclasses.replace(task, y=near)
    settings = tuple(settings) or _distinct((FEW_NETWORKS if large else NETWORKS) if asked.hidden else LINEAR, solver)
    losses = np.zeros((1, 1))
    if len(settings) > 1:
        losses = cross_validated(
            task, settings, fold, 1 if large else FOLDS, lambda what, share: say(what, 0.7 * share)
        )
    best = int(np.argmin(losses.mean(axis=1)))  # the simplest of equals
    count = 1 if not settings[best].start else FEWER if large else MEMBERS
    weights = np.repeat(used[None].astype(float), count, axis=0)
    w = train(task, [settings[best]] * count, weights, range(count), lambda what, share: say(what, 0.7 + 0.3 * share))
    return Found(settings, losses, best, task, why, units, w, far)


def cross_validated(task: Task, settings: Sequence[Setting], fold: np.ndarray, folds: int, say: Say) -> np.ndarray:
    """(settings, rows): each row's loss in the fold that did not see it; what is not finite is a very large loss.

    Of outliers, which are in these rows too, the l2 and l1 losses of two settings differ by no more than the
    predictions do: they do not decide. So least squares is judged by the l2 loss.
    """
    error = unseen_errors(task, settings, fold, folds, say)
    outer = L2() if task.loss == "squared" else task.outer()
    return np.asarray(jax.jit(jax.vmap(jax.vmap(outer.value)))(error))


def unseen_errors(task: Task, settings: Sequence[Setting], fold: np.ndarray, folds: int, say: Say) -> np.ndarray:
    """(settings, rows, targets): each row's error in the fold that did not see it; what is not finite is very large."""
    weights = np.stack([(fold >= 0) & (fold != j) for _ in settings for j in range(folds)]).astype(float)
    each = [setting for setting in settings for _ in range(folds)]
    w = train(task, each, weights, [0] * len(each), say)
    fitted = predict(task.network(), w, task.x).reshape(len(settings), folds, *task.y.shape)
    error = np.concatenate([fitted[:, j, fold == j] - task.y[fold == j] for j in range(folds)], axis=1)
    return np.clip(np.nan_to_num(error, nan=1e30), -1e30, 1e30)


def of_residuals(task: Task, units: Units, fold: np.ndarray, folds: int) -> tuple[Units, float]:
    """Units in which the residuals of a robust fit have one scale for all targets, and that scale.

    A linear model's are those of its own rows, and an exact one is fitted again until the scale comes to rest, as R's
    `rlm` does. A network comes too near to the rows it has seen, so its residuals are those of rows it has not.
    """
    quiet: Say = lambda *_: None
    first = dataclasses.replace(task, sigma=NEARLY_SUPPORT)
    if task.hidden:
        errors = unseen_errors(first, FIRST, fold, folds, quiet)
        scales = [residual_scale(each, np.ones(len(each))) for each in errors]
        return units.of_residuals(np.maximum(np.min(scales, axis=0), LEAST) * units.y_scale)
    used = fold >= 0
    now, sigma, before = units, NEARLY_SUPPORT, np.zeros(task.y.shape[1])
    for _ in range(1 if task.solver in STOCHASTIC else ROUNDS):
        here = dataclasses.replace(task, y=now.targets(units.given(task.y)), sigma=sigma)
        w = train(here, [STRAIGHT], used[None].astype(float), [0], quiet)
        away = (here.y - predict(task.network(), w, task.x)[0])[used] * now.y_scale
        scale = np.maximum(residual_scale(away, np.ones(len(away))), LEAST * units.y_scale)
        now, sigma = units.of_residuals(scale)
        if np.all(np.abs(scale - before) <= SAME * scale):
            break
        before = scale
    return now, sigma


def within_reach(task: Task, rows: np.ndarray) -> np.ndarray:
    """Targets no farther than REACH deviations of the residuals from a linear fit to `rows`, under the same loss.

    A residual that keeps its sign pulls as before, since the slope of the loss is bounded; but where rows are sparse a
    network follows a single outlier, and it then gets no farther than that.
    """
    w = train(task, [STRAIGHT], rows[None].astype(float), [0], lambda *_: None)
    fitted = predict(task.network(), w, task.x)[0]
    away = task.y - fitted
    limit = REACH * residual_scale(away[rows], np.ones(rows.sum()))
    return fitted + np.where(limit > 0, np.clip(away, -limit, limit), away)


def _distinct(settings: tuple[Setting, ...], solver: str) -> tuple[Setting, ...]:
    """An exact method has no step."""
    if solver != "prox_linear":
        return settings
    return tuple(dict.fromkeys(dataclasses.replace(setting, step=1.0) for setting in settings))
