"""The figures of Propositions 1 and 2, each a function of tables."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..plots.pages import Row, Table
from ..plots.style import BLUE, GREY, MARKS, ORANGE, SMALL, WIDTH, styled
from ..theory import chi_mean, next_gap
from ..theory.proposition1 import FLOOR

NAMES = {"paper": "the paper's", "sharp": "sharp", "drawn": "quantiles of the draws"}
RADII = {"measured": "$R$ of the run", "Proposition 1": "$R$ of Proposition 1"}
SHADES = {"paper": "#ececec", "sharp": "#cfcfcf"}

Spans = Mapping[tuple[str, int, int], Mapping[str, tuple[float, float]]]


def column(rows: Table, name: str) -> np.ndarray:
    """Return a column of numbers."""
    return np.asarray([row[name] for row in rows], float)


def number(row: Row, name: str) -> float:
    """Return one number of a row."""
    return float(row[name] or 0)


def path_of(row: Row) -> tuple:
    """Return what tells paths apart, in the tables of paths and of steps."""
    return tuple(row[name] for name in ("problem", "f", "kappa", "start"))


@styled
def draw_phases(paths: Table, steps: Table, attained: Table) -> Figure:
    """Draw F_t of the first problem with both kappa, and every step, in units of its R, below
    Proposition 1.
    """
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_first_problem(left, paths, steps)
    _draw_every_step(right, paths, steps, attained)
    return figure


def _draw_first_problem(axes: Axes, paths: Table, steps: Table) -> None:
    problem = paths[0]["problem"]
    f = paths[0]["f"]
    first = [row for row in paths if row["problem"] == problem and row["f"] == f]
    rules = dict.fromkeys(row["kappa"] for row in first)
    for rule, color in zip(rules, (BLUE, ORANGE), strict=True):
        mine = [row for row in first if row["kappa"] == rule]
        for row in mine:
            F = column([step for step in steps if path_of(step) == path_of(row)], "F")
            axes.semilogy(
                [*F, row["F_last"]], "-o", color=color, markersize=2.5, linewidth=1
            )
        R = number(mine[0], "R")
        axes.plot(
            [],
            [],
            "-o",
            color=color,
            markersize=2.5,
            label=f"$\\kappa = {tex(str(rule))}$",
        )
        axes.axhline(
            R,
            color=color,
            linestyle="--",
            linewidth=1,
            label=f"its radius $R$ = {R:.3f}",
        )
    axes.set(
        xlabel="step $t$",
        ylabel="$F(w_t) - F^*$",
        title=f"{problem}, {f}",
        ylim=(1e-16, 1e5),
    )
    axes.legend(loc="upper right")


def tex(rule: str) -> str:
    """Return a rule for kappa as Matplotlib sets it."""
    return (
        rule.replace("L l", r"L\ell").replace("sqrt n", r"\sqrt{n}").replace(" / ", "/")
    )


def _draw_every_step(axes: Axes, paths: Table, steps: Table, attained: Table) -> None:
    radius = {path_of(row): number(row, "R") for row in paths}
    problems = dict.fromkeys(row["problem"] for row in paths)
    for (color, mark), name in zip(MARKS, problems, strict=True):
        mine = [
            row
            for row in steps
            if row["problem"] == name and number(row, "F_next") > FLOOR
        ]
        R = np.asarray([radius[path_of(row)] for row in mine])
        before = column(mine, "F") / R
        after = column(mine, "F_next") / R
        axes.loglog(
            before,
            after,
            mark,
            color=color,
            markersize=3.5,
            alpha=0.5,
            markeredgewidth=0,
            label=name,
        )
    x = np.geomspace(*axes.get_xlim(), 400)
    axes.plot(
        x,
        [next_gap(each, 1.0) for each in x],
        color="black",
        linewidth=1.2,
        label="Proposition 1",
    )
    R = column(attained, "F") / column(attained, "F / R")
    before = column(attained, "F") / R
    after = column(attained, "F_next") / R
    axes.plot(
        before, after, "*", color="black", markersize=9, label="the map that attains it"
    )
    axes.axvline(1, color=GREY, linestyle=":", linewidth=1)
    axes.set(xlabel="$(F(w_t) - F^*) / R$", ylabel="$(F(w_{t+1}) - F^*) / R$")
    axes.set(title="Every step, in units of its own $R$")
    axes.legend(loc="upper left")


@styled
def draw_transition(transition: Table, examples: Table, spans: Spans) -> Figure:
    """Draw F_t of two runs, then F_j / F(wbar) against sigma E chi_k / R for each problem and
    radius.
    """
    panels = []
    for problem, n, k in spans:
        mine = [
            row
            for row in transition
            if (row["problem"], row["n"], row["k"]) == (problem, n, k)
        ]
        for radius in RADII:
            reached = [row for row in mine if row[f"{radius} j"] is not None]
            if reached:
                panels.append(((problem, n, k), radius, reached))
    lines = math.ceil((1 + len(panels)) / 2)
    figure = Figure(figsize=(WIDTH, 2.9 * lines), layout="constrained")
    first, *others = figure.subplots(lines, 2).ravel()
    _draw_runs(first, examples)
    for axes, (key, radius, rows) in zip(others, panels, strict=False):
        _draw_transition(axes, rows, radius, spans[key])
        problem, n, k = key
        axes.set(title=f"{problem}, $n$ = {n}, $k$ = {k}, {RADII[radius]}")
    for axes in others[len(panels) :]:
        axes.axis("off")
    return figure


def _draw_runs(axes: Axes, examples: Table) -> None:
    sigmas = dict.fromkeys(row["sigma"] for row in examples)
    for (color, mark), sigma in zip(MARKS, sigmas, strict=False):
        mine = [row for row in examples if row["sigma"] == sigma]
        F = column(mine, "F")
        j = int(mine[0]["j"] or 0)
        axes.semilogy(
            F, "-", color=color, linewidth=1.3, label=rf"$\sigma$ = {sigma:.2g}"
        )
        axes.plot(j, F[j], mark, color=color, markersize=6)
        axes.axhline(
            number(mine[0], "F(wbar)"), color=color, linestyle=":", linewidth=1.2
        )
    axes.plot([], [], "o", color=GREY, label="$w_j$, start of the quadratic phase")
    axes.plot([], [], ":", color=GREY, label=r"noise level $F(\bar w)$")
    axes.set(xlabel="step $t$", ylabel="$F(w_t)$", ylim=(1e-16, 1e7))
    axes.set(title=f"{examples[0]['problem']}, {examples[0]['noise']} noise")
    axes.legend(loc="upper right")


def _draw_transition(
    axes: Axes, rows: Table, radius: str, spans: Mapping[str, tuple[float, float]]
) -> None:
    x = np.geomspace(3e-4, 3e3, 200)
    for window, (low, high) in spans.items():
        axes.axvspan(
            low,
            min(high, x[-1]),
            color=SHADES[window],
            linewidth=0,
            label=f"{NAMES[window]} window",
        )
    axes.loglog(
        x,
        1 / x,
        color="black",
        linewidth=1,
        label="$F(w_j) = R$, the most there can be",
    )
    axes.axhline(1, color=GREY, linestyle=":", linewidth=1)
    for noise, (color, mark) in zip(("gaussian", "laplace"), MARKS, strict=False):
        mine = [row for row in rows if row["noise"] == noise]
        sigma = column(mine, f"{radius} sigma E chi / R")
        share = column(mine, f"{radius} F_j") / column(mine, "F(wbar)")
        axes.plot(
            sigma,
            share,
            mark,
            color=color,
            markersize=4,
            alpha=0.7,
            markeredgewidth=0,
            label=noise,
        )
    axes.text(
        0.02,
        0.03,
        "below 1 the phase starts in the noise",
        transform=axes.transAxes,
        fontsize=SMALL,
        color=GREY,
    )
    axes.set(xlabel=r"$\sigma\,\mathrm{E}\chi_k / R$", xlim=(x[0], x[-1]))
    axes.set(ylabel=r"$F(w_j) / F(\bar w)$", ylim=(1e-5, 1e5))
    axes.legend(loc="upper right")


@styled
def draw_windows(cells: Table) -> Figure:
    """Draw F(wbar) / (sigma E chi_k), Gaussian: the windows and the interval of the draws, against
    k and against n.
    """
    figure = Figure(figsize=(WIDTH, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    rows = [row for row in cells if row["noise"] == "gaussian"]
    _draw_windows(left, rows, "k", "n")
    _draw_windows(right, rows, "n", "k")
    left.set(ylabel=r"$F(\bar w) / (\sigma\,\mathrm{E}\chi_k)$")
    right.legend()
    return figure


def _draw_windows(axes: Axes, rows: Table, name: str, other: str) -> None:
    """Draw the windows against one of n and k, at the largest of the other."""
    at = column(rows, other).max()
    mine = [row for row in rows if row[other] == at]
    x = column(mine, name)
    scale = np.asarray([chi_mean(int(row["k"] or 0)) for row in mine])
    for window, color in (("paper", ORANGE), ("sharp", BLUE), ("drawn", "black")):
        low = column(mine, f"{window} low") / scale
        high = column(mine, f"{window} high") / scale
        axes.plot(x, low, "-o", color=color, markersize=3, label=NAMES[window])
        axes.plot(x, high, "-o", color=color, markersize=3)
        axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
    axes.set(title=f"${other}$ = {at:.0f}, $\\delta$ = {rows[0]['delta']}")
    axes.set(
        xscale="log",
        xlabel=f"${name}$",
        xticks=x,
        xticklabels=[f"{each:.0f}" for each in x],
    )
    axes.minorticks_off()
