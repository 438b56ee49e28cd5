"""Figure 1: the prox-linear model against the linear one, in one and two variables.

right (drawn in the paper's source)   F(w) = max(-3 |w - 0.2|^2.5, -2 |w - 1.5|^1.5),  w_t = 0.5,  kappa = 1
left                                  F(w) = 10 |w_2 - w_1^2| + |1 - w_1|, a nonsmooth Rosenbrock function
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..data.origin import generated
from ..inners import as_inner
from ..outers import L1, Max
from ..plots.style import BLUE, GREY, ORANGE, PALE, WIDTH, styled
from ..problem import MeanOfLosses
from ..run import minimize
from ..schedules import InverseSqrt
from ..solvers import AbstractSolver, prox_linear, subgradient_descent
from ..subproblem import solve_subproblem
from ..theory import Rule, compare
from .engine.base import Context, Experiment, Result, Verdict, register
from .engine.config import parse, shipped
from .engine.study import demand_positive, demand_rules
from .engine.verdicts import verdict_of

ONE = np.zeros((1, 1))  # a problem of one sample that carries no data
DISTANCES = (0.05, 0.1, 0.2, 0.4)  # from an anchor, at which models are judged
# The anchors: w_1, and the distance of w_2 from w_1^2, the kink, with either sign. From those far away no
# segment of DISTANCES meets a kink: |w_2 - w_1^2| changes by at most 0.4 sqrt(1 + 4 w_1^2) + 0.16 < 1.5 on it.
PLACES = {
    "near": ((-1.5, 1.5), (0.0, 0.05)),
    "far": ((-1.5, 0.5), (1.5, 2.5)),
}
DATA = generated(
    "two functions",
    "formulas: the one that the paper draws, and a nonsmooth Rosenbrock function",
)


@dataclass(frozen=True)
class Config:
    """What a profile sets; configs/fig1.toml says what each setting is."""

    batches: int
    anchors: int
    steps: int
    rules: dict[str, Rule]

    def __post_init__(self):
        demand_positive(self, "anchors", "steps")
        demand_rules(self, "C1-near", "C1-especially")
        if self.batches < 2:
            raise ValueError("batches has to be at least 2: a ratio needs an interval.")


def curve() -> MeanOfLosses:
    """Return the function of one variable that the paper draws; the outer function is Max."""

    def branches(w: jax.Array, _: jax.Array) -> jax.Array:
        first = -3 * jnp.abs(w - 0.2) ** 2.5
        second = -2 * jnp.abs(w - 1.5) ** 1.5
        return jnp.stack([first, second])[:, 0]

    return MeanOfLosses(as_inner(branches), Max(), ONE)


def valley() -> MeanOfLosses:
    """Return a nonsmooth, nonconvex function of two variables, with a curved kink and its minimum 0
    at (1, 1).
    """
    parts = as_inner(lambda w, _: jnp.stack([10 * (w[1] - w[0] ** 2), 1 - w[0]]))
    return MeanOfLosses(parts, L1(), ONE)


def run(context: Context) -> Result:
    """Take the step of the paper's figure, walk down the valley, and measure both models near the
    kink and far from it.
    """
    config = parse(Config, context.config)
    one = curve()
    two = valley()
    at = jnp.asarray([0.5])
    step = solve_subproblem(one, at, 1.0)
    start = jnp.asarray([-1.2, 1.0])
    paths = {
        "prox-linear": _path(two, start, prox_linear(), config.steps),
        "gradient descent": _path(
            two, start, subgradient_descent(InverseSqrt(0.01)), config.steps
        ),
    }
    walked = []
    for name, path in paths.items():
        for t, w in enumerate(path):
            walked.append(
                {
                    "method": name,
                    "step": t,
                    "w1": float(w[0]),
                    "w2": float(w[1]),
                    "F": float(two.value(w)),
                }
            )
    errors = {
        place: model_errors(two, config.batches, config.anchors, place, context.seed)
        for place in PLACES
    }
    means = []
    for place, each in errors.items():
        for distance, found in zip(DISTANCES, each, strict=True):
            # whose means are summed pairwise, unlike those of columns
            linear, prox_linear_error = found.reshape(-1, 2).T
            means.append(
                {
                    "place": place,
                    "distance": distance,
                    "linear": float(linear.mean()),
                    "prox-linear": float(prox_linear_error.mean()),
                }
            )
    after = float(step.w[0])
    return Result(
        tables={
            "step": [
                {
                    "w_t": 0.5,
                    "kappa": 1.0,
                    "w_next": round(after, 5),
                    "gap": f"{step.gap:.0e}",
                }
            ],
            "paths": walked,
            "model-error": means,
        },
        figures={"models": draw(one, two, at, step.w, paths)},
        verdicts=verdicts(config.rules, errors, context.seed),
        notes=[
            f"The step from w_t = 0.5 with kappa = 1 ends at {after:.5f} (0.93762 in the paper's figure).",
            "The paper's caption swaps left and right; the panels here are those of its text.",
            "Gradient descent has the step 0.01 / sqrt(t + 1), not tuned; prox-linear chooses kappa by itself.",
            "Model errors are |model - F| at the distances of the table, from anchors at most 0.05 beside the kink "
            "w_2 = w_1^2 (near), and from anchors 1.5 to 2.5 beside it, whence no kink is met (far): there both models "
            "are the same.",
        ],
    )


def model_errors(
    problem: MeanOfLosses, batches: int, anchors: int, place: str, seed: int
) -> np.ndarray:
    """Return |model - F| at each distance from batches of anchors: (distances, batches, anchors, [linear,
    prox-linear]).
    """
    rng = np.random.default_rng([seed, list(PLACES).index(place)])
    along, beside = PLACES[place]
    shape = (batches, anchors)
    first = rng.uniform(*along, shape)
    off = rng.uniform(*beside, shape) * rng.choice([-1.0, 1.0], shape)
    w = jnp.asarray(np.stack([first, first**2 + off], axis=-1))
    angle = rng.uniform(0, 2 * np.pi, shape)
    unit = jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=-1))

    def errors(w: jax.Array, x: jax.Array) -> jax.Array:
        value, v = problem.value_and_subgradient(w)
        linear = value + v @ (x - w)
        return jnp.abs(
            jnp.stack([linear, problem.linearize(w).value(x)]) - problem.value(x)
        )

    both = jax.jit(jax.vmap(jax.vmap(errors)))
    return np.stack([np.asarray(both(w, w + r * unit)) for r in DISTANCES])


def log_ratios(errors: np.ndarray) -> np.ndarray:
    """Return log(mean error of prox-linear / that of the linear model) of each batch of anchors, all distances
    together.
    """
    linear, prox_linear_error = np.moveaxis(errors.mean(axis=(0, 2)), -1, 0)
    return np.log(prox_linear_error / linear)


def verdicts(
    rules: Mapping[str, Rule], errors: Mapping[str, np.ndarray], seed: int
) -> list[Verdict]:
    """Return the two halves of C1: near the kink, and more so than far from it."""
    near = log_ratios(errors["near"])
    far = log_ratios(errors["far"])
    what = "model error of prox-linear over that of the linear model, less 1"
    sides = {
        "C1-near": (near, f"{what}, near the kink"),
        "C1-especially": (near - far, f"{what}, near the kink over far from it"),
    }
    found = []
    for name, (logs, words) in sides.items():
        rule = rules[name]
        each = compare(logs, level=rule.level, ratio=True)
        found.append(verdict_of("C1", rule, each, words, seed, "batches of anchors"))
    return found


def _path(
    problem: MeanOfLosses, w: jax.Array, solver: AbstractSolver, steps: int
) -> np.ndarray:
    """Return the iterates of a run."""
    seen: list[np.ndarray] = []
    minimize(
        problem,
        w,
        solver,
        steps=steps,
        stop=lambda w, _: seen.append(np.asarray(w)) or False,
    )
    return np.stack(seen)


@styled
def draw(
    one: MeanOfLosses,
    two: MeanOfLosses,
    at: jax.Array,
    after: jax.Array,
    paths: dict[str, np.ndarray],
) -> Figure:
    """Draw the paths down the valley on the left, and the model of one step on the right."""
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_valley(left, two, paths)
    _draw_model(right, one, at, after)
    return figure


def _draw_valley(
    axes: Axes, problem: MeanOfLosses, paths: dict[str, np.ndarray]
) -> None:
    x, y = np.meshgrid(np.linspace(-1.7, 1.7, 240), np.linspace(-0.7, 2.4, 240))
    points = jnp.asarray(np.stack([x.ravel(), y.ravel()], axis=1))
    z = np.asarray(jax.jit(jax.vmap(problem.value))(points)).reshape(x.shape)
    axes.contour(x, y, z, levels=np.geomspace(0.3, 40, 14), colors=PALE, linewidths=0.7)
    axes.plot(x[0], x[0] ** 2, ":", color=GREY, linewidth=1, label="kink")
    for (name, path), color, mark in zip(
        paths.items(), (ORANGE, BLUE), ("o", "s"), strict=True
    ):
        axes.plot(
            path[:, 0],
            path[:, 1],
            "-",
            color=color,
            marker=mark,
            markersize=3,
            linewidth=1.2,
            label=name,
        )
    axes.plot(1, 1, "*", color="black", markersize=9, label="minimum")
    axes.set(xlabel="$w_1$", ylabel="$w_2$", xlim=(-1.7, 1.7), ylim=(-0.7, 2.4))
    axes.legend(loc="upper center")


def _draw_model(
    axes: Axes, problem: MeanOfLosses, at: jax.Array, after: jax.Array
) -> None:
    floor = -1.2  # where the names of the two points are
    grid = np.linspace(-0.05, 1.5, 400)[:, None]
    near = grid[(grid[:, 0] > 0.1) & (grid[:, 0] < 1.25)]
    model = problem.linearize(at).regularize(1.0, at)
    axes.plot(
        grid, jax.vmap(problem.value)(jnp.asarray(grid)), color="black", label="$F(w)$"
    )
    axes.plot(
        near,
        jax.vmap(model.value)(jnp.asarray(near)),
        "--",
        color=ORANGE,
        label="model$(w; w_t)$ + prox term",
    )
    for point, name, color in ((at, "$w_t$", "black"), (after, "$w_{t+1}$", ORANGE)):
        x = float(point[0])
        height = float(model.value(point))
        axes.plot([x, x], [floor, height], ":", color=color, linewidth=1)
        axes.plot([x], [height], "o", color=color, markersize=4)
        axes.annotate(
            name, (x, floor), xytext=(4, 4), textcoords="offset points", color=color
        )
    axes.set(xlabel="$w$", xlim=(-0.1, 1.6), ylim=(-1.25, 0.45))
    axes.legend(loc="upper right")


STUDY = register(
    Experiment(
        "fig1",
        "Figure 1: the model behind prox-linear",
        ("C1",),
        run,
        shipped("fig1"),
        check=partial(parse, Config),
        data=lambda config: (DATA,),
    )
)
