"""Figure 1: the prox-linear model against the linear one, in one and two variables.

right (drawn in the paper's source)   F(w) = max(-3 |w - 0.2|^2.5, -2 |w - 1.5|^1.5),  w_t = 0.5,  kappa = 1
left                                  F(w) = 10 |w_2 - w_1^2| + |1 - w_1|, a nonsmooth Rosenbrock function
"""

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from ..data.origin import generated
from ..inners import as_inner
from ..outers import L1, Max
from ..plots.style import BLUE, GREY, ORANGE, PALE, WIDTH, styled
from ..problem import MeanOfLosses
from ..run import minimize
from ..schedules import InverseSqrt
from ..solvers import prox_linear, subgradient_descent
from ..subproblem import solve_subproblem
from .engine.base import Context, Experiment, Result, Verdict, register

ONE = np.zeros((1, 1))  # a problem of one sample that carries no data
RULE = "Holds if the interval of the ratio is below 1; fails if it is above 1."
CONFIGS = {"quick": {"anchors": 400, "steps": 30}, "paper": {"anchors": 4000, "steps": 60}}


def curve() -> MeanOfLosses:
    """The function of one variable that the paper draws; the outer function is Max."""
    branches = as_inner(lambda w, _: jnp.stack([-3 * jnp.abs(w - 0.2) ** 2.5, -2 * jnp.abs(w - 1.5) ** 1.5])[:, 0])
    return MeanOfLosses(branches, Max(), ONE)


def valley() -> MeanOfLosses:
    """A nonsmooth, nonconvex function of two variables, with a curved kink and its minimum 0 at (1, 1)."""
    parts = as_inner(lambda w, _: jnp.stack([10 * (w[1] - w[0] ** 2), 1 - w[0]]))
    return MeanOfLosses(parts, L1(), ONE)


def run(context: Context) -> Result:
    anchors, steps = int(str(context.config["anchors"])), int(str(context.config["steps"]))
    one, two = curve(), valley()
    at = jnp.asarray([0.5])
    step = solve_subproblem(one, at, 1.0)
    start = jnp.asarray([-1.2, 1.0])
    paths = {
        "prox-linear": _path(two, start, prox_linear(), steps),
        "gradient descent": _path(two, start, subgradient_descent(InverseSqrt(0.01)), steps),
    }
    errors = model_errors(two, anchors, context.seed)
    ratio, low, high = _ratio(errors, context.seed)
    tables = {
        "step": [{"w_t": 0.5, "kappa": 1.0, "w_next": round(float(step.w[0]), 5), "gap": f"{step.gap:.0e}"}],
        "paths": [
            {"method": name, "step": t, "w1": float(w[0]), "w2": float(w[1]), "F": float(two.value(w))}
            for name, path in paths.items()
            for t, w in enumerate(path)
        ],
        "model-error": [
            {"distance": r, "linear": float(np.mean(e[:, 0])), "prox-linear": float(np.mean(e[:, 1]))}
            for r, e in errors.items()
        ],
    }
    verdict = "reproduced" if high < 1 else "not reproduced" if low > 1 else "undecided"
    number = f"mean model error near the kink, prox-linear over linear: {ratio:.3f}"
    return Result(
        tables,
        {"models": draw(one, two, at, step.w, paths)},
        [Verdict("C1", verdict, number, f"95 % bootstrap [{low:.3f}, {high:.3f}]", RULE)],
        [
            f"The step from w_t = 0.5 with kappa = 1 ends at {float(step.w[0]):.5f} (0.93762 in the paper's figure).",
            "The paper's caption swaps left and right; the panels here are those of its text.",
            "Gradient descent has the step 0.01 / sqrt(t + 1); prox-linear chooses kappa by itself.",
        ],
    )


def model_errors(problem: MeanOfLosses, anchors: int, seed: int) -> dict[float, np.ndarray]:
    """|model - F| at distance r from anchors within 0.05 of the kink: (anchors, [linear, prox-linear]) for each r."""
    rng = np.random.default_rng(seed)
    first = rng.uniform(-1.5, 1.5, anchors)
    w = jnp.asarray(np.stack([first, first**2 + rng.uniform(-0.05, 0.05, anchors)], axis=1))
    angle = rng.uniform(0, 2 * np.pi, anchors)
    unit = jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1))

    def errors(w, x):
        value, v = problem.value_and_subgradient(w)
        truth = problem.value(x)
        return jnp.abs(jnp.stack([value + v @ (x - w), problem.linearize(w).value(x)]) - truth)

    return {r: np.asarray(jax.vmap(errors)(w, w + r * unit)) for r in (0.05, 0.1, 0.2, 0.4)}


def _ratio(errors: dict[float, np.ndarray], seed: int) -> tuple[float, float, float]:
    """Mean prox-linear error over mean linear error, all distances together, with a bootstrap over the anchors."""
    total = np.mean(list(errors.values()), axis=0)
    rng = np.random.default_rng(seed + 1)
    draws = [total[rng.integers(0, len(total), len(total))].mean(axis=0) for _ in range(1000)]
    low, high = np.quantile([d[1] / d[0] for d in draws], [0.025, 0.975])
    mean = total.mean(axis=0)
    return float(mean[1] / mean[0]), float(low), float(high)


def _path(problem: MeanOfLosses, w: jax.Array, solver, steps: int) -> np.ndarray:
    seen: list[np.ndarray] = []
    minimize(problem, w, solver, steps=steps, stop=lambda w, _: seen.append(np.asarray(w)) or False)
    return np.stack(seen)


@styled
def draw(one: MeanOfLosses, two: MeanOfLosses, at: jax.Array, after: jax.Array, paths: dict[str, np.ndarray]) -> Figure:
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    x, y = np.meshgrid(np.linspace(-1.7, 1.7, 240), np.linspace(-0.7, 2.4, 240))
    z = jax.jit(jax.vmap(two.value))(jnp.asarray(np.stack([x.ravel(), y.ravel()], axis=1)))
    levels = np.geomspace(0.3, 40, 14)
    left.contour(x, y, np.asarray(z).reshape(x.shape), levels=levels, colors=PALE, linewidths=0.7)
    left.plot(x[0], x[0] ** 2, ":", color=GREY, linewidth=1, label="kink")
    for (name, path), color, mark in zip(paths.items(), (ORANGE, BLUE), ("o", "s"), strict=True):
        left.plot(path[:, 0], path[:, 1], "-", color=color, marker=mark, markersize=3, linewidth=1.2, label=name)
    left.plot(1, 1, "*", color="black", markersize=9, label="minimum")
    left.set(xlabel="$w_1$", ylabel="$w_2$", xlim=(-1.7, 1.7), ylim=(-0.7, 2.4))
    left.legend(loc="upper center")
    grid = np.linspace(-0.05, 1.5, 400)[:, None]
    model = one.linearize(at).regularize(1.0, at)
    right.plot(grid, jax.vmap(one.value)(jnp.asarray(grid)), color="black", label="$F(w)$")
    near = grid[(grid[:, 0] > 0.1) & (grid[:, 0] < 1.25)]
    right.plot(near, jax.vmap(model.value)(jnp.asarray(near)), "--", color=ORANGE, label="model$(w; w_t)$ + prox term")
    for point, name, color in ((at, "$w_t$", "black"), (after, "$w_{t+1}$", ORANGE)):
        height = float(model.value(point))
        right.plot([point[0], point[0]], [-1.2, height], ":", color=color, linewidth=1)
        right.plot(point, [height], "o", color=color, markersize=4)
        right.annotate(name, (float(point[0]), -1.2), xytext=(4, 4), textcoords="offset points", color=color)
    right.set(xlabel="$w$", xlim=(-0.1, 1.6), ylim=(-1.25, 0.45))
    right.legend(loc="upper right")
    return figure


DATA = generated("two functions", "formulas: the one that the paper draws, and a nonsmooth Rosenbrock function")
register(
    Experiment("fig1", "Figure 1: the model behind prox-linear", ("C1",), run, CONFIGS, data=lambda config: (DATA,))
)
