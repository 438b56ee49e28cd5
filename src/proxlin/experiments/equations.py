"""Figure 5: stochastic nonlinear equations, f((1/n) sum_i phi_i(w)) with four losses of the margin, on real data.

    GD   w - step J'f'(u)                       PL   argmin_x f(u + J (x - w)) + kappa/2 |x - w|^2       (full batch)
    SGD  the same with mini-batch estimates     PLI  the same with mini-batch estimates, also by SARAH and SVRG

All settings are tuned on a validation part of the training set, the test set is looked at once. Effective passes count
every phi, JVP and VJP: a Jacobian of four rows costs 5/2 passes, a gradient one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..data import classification
from ..data.equations import equations
from ..data.origin import Origin
from ..errors import UserError
from ..inners import SparseRows
from ..outers import L1, L2, Huber
from ..plots.curves import Curve, draw
from ..plots.pages import Row
from ..problem import LossOfMean
from ..run import minimize
from ..solvers import AbstractSolver, prox_linear, sgd, stochastic_gauss_newton, subgradient_descent
from ..tuning.search import Choice, Grid, Lattice, Setting
from . import bias
from .engine.base import Case, Context, Experiment, Plan, Result, Verdict, register
from .engine.config import parse, shipped
from .students import HALF, power_step
from .tuning import Entry, Tuned, bracket_of, cases_of, compare, first_seed, tune, work_of

TASK, BIAS = "proxlin.experiments.equations:train", "proxlin.experiments.equations:biased"
OUTERS = {"huber": Huber, "l1": L1, "l2": L2}
_BATCH = Choice((64, 256, 1024), (1,), ordered=True)  # of the Jacobian; that of the value is twice as large
_KAPPA = Lattice(0.1, HALF, (-4, -2, 0, 2))
GRIDS: dict[str, dict[str, Lattice | Choice]] = {
    "gd": {"step": Lattice(1.0, HALF, (-2, 0, 2, 4))},
    "pl": {"kappa": _KAPPA},
    "sgd": {"step": Lattice(1.0, HALF, (-2, 0, 2, 4)), "decay": Choice((0.0, 0.5, 1.0)), "batch": _BATCH},
    "pli": {"kappa": _KAPPA, "batch": _BATCH},
    "pli-sarah": {"kappa": _KAPPA, "batch": _BATCH},
    "pli-svrg": {"kappa": _KAPPA, "batch": _BATCH},
}
RULES = {
    "C7": "Holds if PL wins on every data set; fails if GD wins on one. A win is beyond the tie band and the seeds.",
    "C8": "Holds if PLI ties with SGD on every data set, which is below the tie band or within the seeds; fails if "
    "there is a winner on every data set.",
}
LABELS = {"gd": "GD", "pl": "PL", "sgd": "SGD", "pli": "PLI", "pli-sarah": "PLI, SARAH", "pli-svrg": "PLI, SVRG"}


@dataclass(frozen=True)
class Config:
    """What a profile sets; `rows`: at most so many of the training rows, 0 for all."""

    data: tuple[str, ...]
    rows: int
    passes: float
    settings: int
    finalists: int
    seeds: int
    outer: str
    tie: float

    def __post_init__(self):
        for name in self.data:
            classification.known(name)
        if self.outer not in OUTERS:
            raise ValueError(f"outer is {self.outer!r}; take one of {', '.join(OUTERS)}.")
        if min(self.passes, self.settings, self.finalists) <= 0 or self.rows < 0 or self.seeds < 2:
            raise ValueError("passes, settings and finalists have to be positive, seeds at least 2, rows not negative.")


def solver_of(method: str, setting: Mapping[str, Any], n: int, passes: float) -> AbstractSolver:
    if method == "gd":
        return subgradient_descent(setting["step"])
    if method == "pl":
        return prox_linear(setting["kappa"])
    batch = int(setting["batch"])
    if method == "sgd":
        return sgd(power_step(setting, passes * n / batch), batch_size=batch)
    estimator = {"pli": "minibatch", "pli-sarah": "sarah", "pli-svrg": "svrg"}[method]
    return stochastic_gauss_newton(setting["kappa"], 2 * batch, batch, estimator)


def train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One case: the curves of a run, and the losses at its best checkpoint on the validation set."""
    seed = settings["seed"]
    problem, validation, test = asked_problems(settings)
    solver = solver_of(settings["method"], settings, len(problem), settings["passes"])
    w = start_of(problem)
    metrics = {"validation": validation.value, "test": test.value}
    run = minimize(problem, w, solver, passes=settings["passes"], seed=seed, metrics=metrics)
    history = {name: np.where(np.isfinite(column), column, np.inf) for name, column in run.history.items()}
    within = history["passes"] <= settings["passes"] + 1e-9
    best = int(np.argmin(np.where(within, history["validation"], np.inf)))
    keep = _thinned(int(within.sum()))
    return {
        "validation_loss": float(history["validation"][best]),
        "test_loss": float(history["test"][best]),
        "train_loss": float(history["value"][best]),
        "best_at": float(history["passes"][best]),
        "status": str(run.status),
        **{f"curve_{name}": history[name][keep].tolist() for name in ("passes", "seconds", "test")},
    }


def _thinned(count: int, most: int = 101) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def start_of(problem: LossOfMean) -> jax.Array:
    """The start of Tran-Dinh et al., all ones."""
    rows = problem.data
    return jnp.ones(rows.columns if isinstance(rows, SparseRows) else rows.shape[1])


def biased(settings: Mapping[str, Any]) -> dict[str, float]:
    """One case: the bias of the mini-batch subgradient at the start."""
    problem = asked_problems(settings)[0]
    return bias.measure(problem, start_of(problem), settings["batch"], settings["seed"])


def asked_problems(settings: Mapping[str, Any]) -> tuple[LossOfMean, LossOfMean, LossOfMean]:
    return problems_of(*(settings[name] for name in ("data", "content", "rows", "seed", "outer")))


@lru_cache(maxsize=2)
def problems_of(name: str, content: str, rows: int, seed: int, outer: str) -> tuple[LossOfMean, LossOfMean, LossOfMean]:
    """The problems of the training, validation and test rows, from the data of this `content` and no other."""
    parts = classification.parts(name, seed, say=lambda text: None)
    if parts.origin.content != content:
        raise UserError(
            f"{name} was {content} when the sweep was begun, but here it is {parts.origin.content}; give every worker "
            "the same PROXLIN_DATA, or begin again with another --out."
        )
    rng = np.random.default_rng(seed)
    chosen = [
        part[rng.permutation(len(part))[:rows]] if rows and part is not parts.test else part
        for part in (parts.train, parts.validation, parts.test)
    ]  # by chance: the files are in an order of their own
    made = [equations(part.x, part.y, OUTERS[outer]()) for part in chosen]
    return made[0], made[1], made[2]


def case_of(origin: Origin, method: str, config: Config, setting: Setting, seed: int) -> Case:
    asked = {"data": origin.name, "content": origin.content, "method": method}
    asked |= {"rows": config.rows, "passes": config.passes, "outer": config.outer}
    source = classification.known(origin.name)
    size = min(config.rows or source.rows, source.rows) * source.columns
    work = 0.1 + 3e-9 * size * config.passes + 2e-9 * config.passes * source.rows * source.columns  # measured, 2 cores
    group = f"{origin.name} {method} {setting.get('batch', '')}"
    return Case(TASK, {**asked, "seed": seed, **setting}, work, group)


def bias_case(origin: Origin, batch: int, config: Config, seed: int) -> Case:
    asked = {"data": origin.name, "content": origin.content, "batch": batch}
    asked |= {"rows": config.rows, "outer": config.outer, "seed": seed}
    return Case(BIAS, asked, 1.0 + 1e-3 * batch, f"{origin.name} bias")


def origins_of(config: Mapping[str, object]) -> list[Origin]:
    """Where the data sets of a config come from."""
    return [classification.origin_of(name) for name in parse(Config, config).data]


def entries_of(config: Config, data: Sequence[Origin]) -> list[Entry]:
    return [
        Entry(
            (origin.label, method), Grid(axes, config.settings), partial(case_of, origin, method, config), config.seeds
        )
        for origin in data
        for method, axes in GRIDS.items()
    ]


def plan(config: Mapping[str, object], seed: int) -> Plan:
    settings = parse(Config, config)
    data = origins_of(config)
    entries = entries_of(settings, data)
    finalists = settings.finalists
    extra = [bias_case(origin, batch, settings, seed * 1000) for origin in data for batch in bias.BATCHES]
    work = work_of(entries, finalists) + sum(case.work for case in extra)
    return Plan(bracket_of(entries, seed * 1000), cases_of(entries, finalists) + len(extra), work)


Found = Mapping[tuple[str, str], Tuned]


def loss_rows(config: Config, found: Found) -> list[Row]:
    rows = []
    for (name, method), each in found.items():
        rows.append(
            {"data": name, "method": LABELS[method], "test_loss": float(each.losses().mean())}
            | {
                "spread": float(each.losses().std(ddof=1)),
                "validation_loss": float(each.losses("validation_loss").mean()),
            }
            | {"train_loss": float(each.losses("train_loss").mean()), "best_at": float(each.losses("best_at").mean())}
            | {"setting": each.words(), "at_end_of_axis": " ".join(each.ends)}
        )
    return rows


def duel_rows(config: Config, found: Found) -> list[dict[str, Any]]:
    """PL against GD, and PLI against SGD: the test loss of Gauss-Newton over that of the gradient method, less 1."""
    rows = []
    for name in dict.fromkeys(name for name, _ in found):
        for one, two in (("gd", "pl"), ("sgd", "pli"), ("sgd", "pli-sarah"), ("sgd", "pli-svrg")):
            mean, low, high, winner = compare(found[name, one].losses(), found[name, two].losses(), config.tie)
            rows.append(
                {"data": name, "gradient": LABELS[one], "gauss_newton": LABELS[two], "difference": mean}
                | {"low": low, "high": high, "winner": ("tie", LABELS[one], LABELS[two])[winner]}
            )
    return rows


def verdicts(rows: list[dict[str, Any]]) -> list[Verdict]:
    """The verdicts on C7 and C8 by their RULES, from the rows of the duels."""
    batch = [row for row in rows if row["gauss_newton"] == "PL"]
    mini = [row for row in rows if row["gauss_newton"] == "PLI"]
    winners = {row["winner"] for row in batch}
    c7 = "reproduced" if winners == {"PL"} else "not reproduced" if "GD" in winners else "undecided"
    winners = {row["winner"] for row in mini}
    c8 = "reproduced" if winners == {"tie"} else "undecided" if "tie" in winners else "not reproduced"
    return [
        Verdict("C7", c7, _numbers(batch, "PL", "GD"), _intervals(batch), RULES["C7"]),
        Verdict("C8", c8, _numbers(mini, "PLI", "SGD"), _intervals(mini), RULES["C8"]),
    ]


def _numbers(rows: list[dict[str, Any]], two: str, one: str) -> str:
    return f"test loss of {two} over {one}: " + ", ".join(f"{row['data']} {row['difference']:+.2%}" for row in rows)


def _intervals(rows: list[dict[str, Any]]) -> str:
    return "95 % " + ", ".join(f"[{row['low']:+.2%}, {row['high']:+.2%}]" for row in rows)


def curves_of(config: Config, found: Found) -> list[Curve]:
    return [
        Curve(name, LABELS[method], _stack(each, axis), _stack(each, "test"), axis)
        for axis in ("passes", "seconds")
        for (name, method), each in found.items()
    ]


def _stack(each: Tuned, column: str) -> np.ndarray:
    """A column of the curves, one row a seed, cut to the shortest."""
    curves = [run[f"curve_{column}"] for run in each.runs]
    length = min(map(len, curves))
    return np.asarray([curve[:length] for curve in curves])


def run(context: Context) -> Result:
    config = parse(Config, context.config)
    for origin in context.data:
        classification.parts(origin.name, 0, say=lambda text: None)  # a file is parsed here once, not by every worker
    found = tune(entries_of(config, context.data), context, config.finalists)
    rows = duel_rows(config, found)
    asked = [(origin, batch) for origin in context.data for batch in bias.BATCHES]
    measured = context.sweep([bias_case(origin, batch, config, first_seed(context)) for origin, batch in asked])
    biases = [
        {"data": origin.label, "batch": batch, **each} for (origin, batch), each in zip(asked, measured, strict=True)
    ]
    tables: dict[str, Any] = {"losses": loss_rows(config, found), "duels": rows, "bias": biases}
    tables["curves"] = curve_rows(found)
    notes = [
        f"Every method tried {config.settings} settings within {config.passes:g} effective passes; lines are means of "
        f"{config.seeds} seeds (split and batches), bands their range. One XLA thread."
    ]
    notes.append(f"The bias of a mini-batch subgradient is measured at the start, by {bias.DRAWS} draws on one split.")
    if config.rows:
        notes.append(f"This profile trains on at most {config.rows} rows of each data set.")
    figures, timings = draw("curves", curves_of(config, found)), {"curves": curve_rows(found, "seconds", "seconds")}
    return Result(tables, figures, [*verdicts(rows), bias.verdict(biases)], notes, timings=timings)


def curve_rows(found: Found, column: str = "test", name: str = "test_loss") -> list[Row]:
    return [
        {"data": data, "method": LABELS[method], "passes": float(passes), name: float(value)}
        for (data, method), each in found.items()
        for passes, value in zip(_stack(each, "passes").mean(0), _stack(each, column).mean(0), strict=True)
    ]


register(
    Experiment(
        "fig5",
        "Figure 5: stochastic nonlinear equations",
        ("C7", "C8", "C9"),
        run,
        shipped("fig5"),
        plan,
        lambda config: parse(Config, config),
        origins_of,
    )
)
