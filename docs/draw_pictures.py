"""Draw the pictures of README.md and of the tutorials into docs/pictures/.

    python docs/draw_pictures.py               draws all of them
    python docs/draw_pictures.py equations     draws one

A picture shows what its page computes: the blocks of the page run first, and the drawing takes their
arrays. A picture has its own ground, and a style for the dark, so that it can be read on any page.
"""

import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import LogLocator, NullLocator

import proxlin as px
from proxlin.plots.drawing import UNDATED
from proxlin.plots.style import BLUE, GREEN, LINES, ORANGE, PINK, styled

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What a light page and a dark page show: the colour of the figure, and the one in its place.
GROUND = "#ffffff"
INK = "#1f2937"
FAINT = "#d1d5db"
DOTS = "#6b7280"
DARK = {
    GROUND: "#1e2129",
    INK: "#e5e7eb",
    FAINT: "#4b5563",
    DOTS: "#a3a9b8",
    BLUE.lower(): "#56b4e9",
    ORANGE.lower(): "#ff8c42",
    GREEN.lower(): "#2fc79a",
    PINK.lower(): "#e8a5c8",
}
LOOK = {
    "figure.facecolor": GROUND,
    "axes.facecolor": GROUND,
    "axes.edgecolor": DOTS,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
PATH = "#fefefe"  # white, which is the ground, would turn dark
WIDTH = 4.8  # inches, so that a phone shows the text at 8 pixels
HEIGHT = 2.4


def computed(page: str) -> dict[str, Any]:
    """Run the Python blocks of a page one after the other, and return what they leave."""
    text = (HERE / page).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in BLOCK.finditer(text):
            exec(compile(block[1], page, "exec"), names)
    return names


def panels(count: int, **settings: Any) -> tuple[Figure, Any]:
    """Return a figure of the usual width, and its panels side by side."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    return figure, figure.subplots(1, count, **settings)


def outliers() -> Figure:
    """README.md: the data of its first block, the robust line and that of least squares."""
    page = computed("../README.md")
    x, y, model = page["x"], page["y"], page["model"]
    figure, ax = panels(1)
    wrong = y == -10
    ax.plot(x[~wrong], y[~wrong], "o", color=DOTS, markersize=3.5)
    ax.plot(x[wrong], y[wrong], "x", color=DOTS, markersize=5)
    robust, squares = model.predict(x[:, None]), np.polyval(np.polyfit(x, y, 1), x)
    ax.plot(x, robust, color=BLUE, linewidth=2.2)
    ax.plot(x, squares, "--", color=ORANGE, linewidth=2.2)
    ax.annotate("robust fit", (x[36], robust[36] + 3), color=BLUE, ha="right")
    ax.annotate("least squares", (x[-1], squares[-1] - 4.6), color=ORANGE, ha="right")
    ax.annotate("wrong rows", (x[38], -9.6), color=DOTS, ha="right", va="center")
    ax.set(xlabel="x", ylabel="y")
    return figure


def robust_regression() -> Figure:
    """The norm of each row's residual, by the robust fit and by least squares."""
    page = computed("tutorials/robust-regression.md")
    X, Y, solution = page["X"], page["Y"], page["solution"]
    squares = np.linalg.lstsq(X, Y)[0]
    figure, (left, right) = panels(2, sharey=True)
    for ax, w, title in (
        (left, solution.w, "robust fit"),
        (right, squares, "least squares"),
    ):
        away = np.linalg.norm(X @ np.asarray(w) - Y, axis=1)
        ax.semilogy(np.arange(20, 200), away[20:], ".", color=BLUE, label="good rows")
        ax.semilogy(
            np.arange(20), away[:20], "x", color=ORANGE, label="wrong rows", ms=4
        )
        ax.set(title=title, xlabel="row")
    left.set_ylabel("norm of the residual")
    left.legend(loc="upper right")
    return figure


def path_planning() -> Figure:
    """A map that was not trained on: its pixels and best path, and the rewards hidden and learned."""
    page = computed("tutorials/path-planning.md")
    test, oracle = page["test"], page["oracle"]
    tiles = np.asarray(test.tiles()[0])
    scores = page["rewards"](page["solution"].w, tiles)
    predicted = np.asarray(oracle.argmax(scores)).reshape(6, 6)
    rows = tiles.reshape(6, 6, *tiles.shape[1:]).swapaxes(1, 2)
    pixels = rows.reshape(6 * tiles.shape[1], 6 * tiles.shape[2], 3)
    label = np.asarray(test.paths[0]).reshape(6, 6)
    figure = Figure(figsize=(WIDTH, 1.7), layout="constrained")
    shown = (
        (pixels, label, "map, path of its label"),
        (np.asarray(test.rewards[0]), None, "hidden rewards"),
        (np.asarray(scores).reshape(6, 6), predicted, "learned, best path"),
    )
    for ax, (values, path, title) in zip(figure.subplots(1, 3), shown, strict=True):
        ax.imshow(values, extent=(-0.5, 5.5, 5.5, -0.5), cmap="cividis")
        if path is not None:
            cells = sorted(zip(*np.nonzero(path), strict=True), key=sum)
            y, x = zip(*cells, strict=True)
            ax.plot(x, y, color="black", linewidth=3.6)
            ax.plot(x, y, color=PATH, linewidth=2.2)
        ax.set(title=title, xticks=[], yticks=[])
        ax.grid(False)
    return figure


def equations() -> Figure:
    """F along the passes of four methods."""
    page = computed("tutorials/equations.md")
    problem, w = page["problem"], page["w"]
    solvers = {
        "gradient descent": px.subgradient_descent(1.0),
        "prox-linear": px.prox_linear(),
        "SGD, batches of 32": px.sgd(px.InverseSqrt(1.0), batch_size=32),
        "stochastic Gauss-Newton": px.stochastic_gauss_newton(1.0, batch_size=64),
    }
    figure, ax = panels(1)
    curves(ax, problem, w, solvers, passes=30)
    return figure


def control() -> Figure:
    """The way of the car for two losses of the effort, and its controls."""
    page = computed("tutorials/control.md")
    figure, (left, right) = panels(2)
    turns = np.linspace(0, 2 * np.pi, 60)
    for x, y, r in page["OBSTACLES"]:
        left.fill(x + r * np.cos(turns), y + r * np.sin(turns), color=FAINT)
    for name, color, line in (("l1", BLUE, "-"), ("squares", ORANGE, "--")):
        way = np.asarray(px.rollout(page["drive"], page["found"][name].w, page["x0"]))
        left.plot(way[:, 0], way[:, 1], line, color=color, label=name)
        steering = np.asarray(page["found"][name].w)[:, 1]
        right.plot(page["times"], steering, line, color=color, label=name)
    left.plot(4, 4, "*", color=INK)
    left.set(xlabel="x", ylabel="y", aspect="equal", title="way")
    right.set(xlabel="time", title="steering")
    right.legend(loc="upper right")
    return figure


def phase_retrieval() -> Figure:
    """The image, one of its patterns, the spectral start, and what was recovered."""
    page = computed("tutorials/phase-retrieval.md")
    figure = Figure(figsize=(WIDTH, 1.5), layout="constrained")
    start = np.asarray(page["image_start"])
    pattern = page["patterns"][0].reshape(start.shape)
    sign = np.sign(np.sum(start * page["image"]))
    shown = {
        "the image": page["image"],
        "a pattern": np.log10(np.fft.fftshift(pattern) + 1e-3),
        "spectral start": sign * start,
        "recovered": page["recovered"],
    }
    for ax, (name, pixels) in zip(figure.subplots(1, 4), shown.items(), strict=True):
        limits = {} if name == "a pattern" else {"vmin": 0, "vmax": 1}
        ax.imshow(pixels, cmap="cividis", **limits)
        ax.set_title(name)
        ax.set_axis_off()
    return figure


def factorisation() -> Figure:
    """The components of the digits by two losses, and one digit: clean, with salt, and restored."""
    page = computed("tutorials/factorisation.md")
    parts = page["parts"]
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.subplots(3, 8)
    number = 4
    salted = np.where(page["there"], page["seen"], np.nan)[number]
    digit = {
        "clean": page["clean"][number],
        "seen": salted,
        "NMF": (page["U"] @ page["V"].T)[number],
        "l1": page["restored"][number],
    }
    for ax in axes.flat:
        ax.set_axis_off()
    for line, name in zip(axes, ("NMF", "l1"), strict=False):
        line[0].set_title(f"components, {name}", loc="left")
        for ax, pixels in zip(line, parts[name].T, strict=True):
            ax.imshow(np.reshape(pixels, (8, 8)), cmap="cividis")
    for ax, (name, pixels) in zip(axes[2], digit.items(), strict=False):
        ax.set_title(name)
        ax.imshow(np.reshape(pixels, (8, 8)), cmap="cividis")
    return figure


def networks() -> Figure:
    """The second output of the network on the square: what is true, and what two losses learn."""
    page = computed("tutorials/networks.md")
    x, y, model = page["x"], page["y"], page["model"]
    side = np.linspace(-2, 2, 40, dtype=np.float32)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    shown = {"what is true": grid[:, 0] * grid[:, 1]}
    for name, outer in (
        ("by the norm", px.L2()),
        ("by its square", px.SquaredL2()),
    ):
        problem = px.MeanOfLosses(px.residual(lambda m, x: m(x)), outer, (x, y))
        fitted = px.minimize(problem, model, px.lbfgs(1e-2), steps=300).w
        shown[name] = np.asarray(jax.vmap(fitted)(grid))[:, 1]
    figure = Figure(figsize=(WIDTH, 1.7), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for ax, (name, values) in zip(axes, shown.items(), strict=True):
        image = ax.imshow(
            values.reshape(40, 40),
            extent=(-2, 2, -2, 2),
            origin="lower",
            vmin=-4,
            vmax=4,
            cmap="PuOr",
        )
        ax.set(title=name, xlabel="$x_0$")
        ax.grid(False)
    axes[0].set_ylabel("$x_1$")
    figure.colorbar(image, ax=list(axes), shrink=0.75)
    return figure


def your_own_loss() -> Figure:
    """The lopsided loss of one number, its smoothings, and their slopes."""
    f = computed("tutorials/your-own-loss.md")["Lopsided"]()
    u = jnp.linspace(-1.5, 1.0, 401)[:, None]
    figure, (left, right) = panels(2)
    for (colour, dash), nu in zip(LINES, (None, 0.1, 0.3), strict=False):
        smooth = f if nu is None else f.smooth(nu)
        label = "f" if nu is None else f"smoothed, nu = {nu}"
        left.plot(u, jax.vmap(smooth.value)(u), dash, color=colour, label=label)
        right.plot(u, jax.vmap(smooth.subgradient)(u), dash, color=colour)
    left.set(xlabel="u", ylabel="f(u) = max(3u, -u)")
    left.legend(loc="upper left")
    right.set(xlabel="u", ylabel="slope, in V = [-1, 3]")
    return figure


def your_own_solver() -> Figure:
    """F along the passes of the two solvers of the page, beside SGD."""
    page = computed("tutorials/your-own-solver.md")
    solvers = {
        "Normalized": page["normalized"],
        "HeavyBall": page["HeavyBall"](0.003, 0.9),
        "px.sgd": px.sgd(px.InverseSqrt(0.1)),
    }
    figure, ax = panels(1)
    curves(ax, page["problem"], jnp.zeros((5, 3)), solvers, passes=20)
    return figure


def your_own_experiment() -> Figure:
    """The errors of the study with more shares and seeds than its quick profile has."""
    page = computed("tutorials/your-own-experiment.md")
    shares = (0.05, 0.1, 0.2, 0.3, 0.4)
    figure, ax = panels(1)
    results = [
        [
            page["fit"]({"samples": 100, "share": share, "seed": seed})
            for seed in range(5)
        ]
        for share in shares
    ]
    names = {"robust": "robust fit", "squares": "least squares"}
    for (colour, dash), (key, name) in zip(LINES, names.items(), strict=False):
        errors = np.array([[result[key] for result in row] for row in results])
        low, mean, high = errors.min(1), errors.mean(1), errors.max(1)
        ax.plot(shares, mean, dash, color=colour, marker="o", markersize=3.5)
        ax.fill_between(shares, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.text(shares[-1] + 0.008, mean[-1], name, color=colour, va="center")
    ax.set_xlim(right=0.5)
    ax.set(
        yscale="log", xlabel="share of wrong rows", ylabel="error, mean of five seeds"
    )
    return figure


def dask() -> Figure:
    """The way of a case: from the command over the scheduler to a worker, and its result back."""
    figure = Figure(figsize=(WIDTH, 1.8), layout="constrained")
    ax = figure.subplots()
    ax.set(xlim=(0, 100), ylim=(0, 30))
    ax.set_axis_off()
    boxes = {
        "command": (1, 9, 26, 12, "proxlin reproduce\n--engine dask"),
        "scheduler": (41, 9, 19, 12, "dask\nscheduler"),
        "first": (74, 21, 25, 8, "dask worker"),
        "second": (74, 11, 25, 8, "dask worker"),
        "third": (74, 1, 25, 8, "dask worker"),
    }
    for x, y, width, height, text in boxes.values():
        shape = FancyBboxPatch(
            (x, y), width, height, "round,pad=0,rounding_size=1.2", fc=GROUND, ec=BLUE
        )
        ax.add_patch(shape)
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center")
    ax.text(14, 4, "results.sqlite,\none row for each case", ha="center", va="center")
    arrow(ax, (27.5, 17), (40.5, 17), BLUE, "cases")
    arrow(ax, (40.5, 12), (27.5, 12), ORANGE, "results")
    for y in (25, 15, 5):
        arrow(ax, (60.5, 15 + (y - 15) * 0.3 + 1), (73.5, y + 1), BLUE)
        arrow(ax, (73.5, y - 1), (60.5, 15 + (y - 15) * 0.3 - 1), ORANGE)
    return figure


def arrow(
    ax: Axes, start: tuple, end: tuple, colour: str, text: str | None = None
) -> None:
    """Draw an arrow with a word above the middle of it."""
    look = {"arrowstyle": "->", "color": colour, "linewidth": 1.1}
    ax.annotate("", end, start, arrowprops=look)
    if text:
        middle = (start[0] + end[0]) / 2
        ax.text(middle, start[1] + 0.8, text, ha="center", color=colour)


def tuning_by_gradient() -> Figure:
    """The loss on held-out rows over both settings, and the way of the gradient on it."""
    page = computed("tutorials/tuning-by-gradient.md")
    way = np.asarray(page["way"])
    low = way.min(axis=0) - 1.0
    high = way.max(axis=0) + 1.0
    deltas = np.linspace(low[0], high[0], 25)
    ridges = np.linspace(low[1], high[1], 25)
    grid = np.stack(np.meshgrid(deltas, ridges), axis=-1).reshape(-1, 2)
    losses = np.asarray(jax.jit(jax.vmap(page["validation"]))(grid)).reshape(25, 25)
    figure, ax = panels(1)
    levels = np.quantile(losses, np.linspace(0.01, 1, 16))
    ax.contour(
        np.exp(deltas), np.exp(ridges), losses, levels, colors=DOTS, linewidths=0.7
    )
    ax.plot(*np.exp(way).T, ".-", color=BLUE, linewidth=1.6, markersize=4)
    ax.plot(*np.exp(way[0]), "o", color=ORANGE)
    ax.annotate("start", np.exp(way[0]), (5, 5), textcoords="offset points")
    ax.annotate(
        "end", np.exp(way[-1]), (-5, -11), textcoords="offset points", ha="right"
    )
    ax.set(xscale="log", yscale="log", xlabel="delta", ylabel="ridge")
    return figure


def curves(ax: Axes, problem: Any, w: Any, solvers: dict, passes: float) -> None:
    """Run each solver, and draw F against the passes."""
    for (colour, dash), (name, solver) in zip(LINES, solvers.items(), strict=False):
        history = px.minimize(problem, w, solver, passes=passes).history
        ax.plot(history["passes"], history["value"], dash, color=colour, label=name)
    ax.set(yscale="log", xlabel="effective passes", ylabel="F(w)")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.legend(loc="upper right")


DRAWN: dict[str, Callable[[], Figure]] = {
    "outliers": outliers,
    "robust-regression": robust_regression,
    "path-planning": path_planning,
    "equations": equations,
    "control": control,
    "phase-retrieval": phase_retrieval,
    "factorisation": factorisation,
    "networks": networks,
    "tuning-by-gradient": tuning_by_gradient,
    "your-own-loss": your_own_loss,
    "your-own-solver": your_own_solver,
    "your-own-experiment": your_own_experiment,
    "dask": dask,
}


@styled
def svg(draw: Callable[[], Figure]) -> str:
    """Return a drawing as SVG that is dark where the reader's pages are dark."""
    with rc_context(LOOK | {"svg.hashsalt": "proxlin"}):
        buffer = io.StringIO()
        draw().savefig(buffer, format="svg", metadata=UNDATED["svg"])
    text = buffer.getvalue()
    rules = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
    )
    start = text.index("<defs>")
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n "
    return re.sub(r"[ \t]+\n", "\n", text[:start] + style + text[start:])


def main(names: list[str]) -> int:
    """Draw the pictures of these names, or all."""
    for name in names or DRAWN:
        path = PICTURES / f"{name}.svg"
        path.write_text(svg(DRAWN[name]), encoding="utf-8")
        print(f"{path.relative_to(HERE.parent)}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
