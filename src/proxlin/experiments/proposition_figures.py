"""The figures of Propositions 1 and 2, each a function of tables."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..plots.pages import Table
from ..plots.style import BLUE, GREY, MARKS, ORANGE, SMALL, WIDTH, styled
from ..theory import chi_mean, next_gap
from ..theory.proposition1 import FLOOR

NAMES = {"paper": "the paper's", "sharp": "sharp", "drawn": "quantiles of the draws"}

Spans = Mapping[tuple[str, int, int], Mapping[str, tuple[float, float]]]


def column(rows: Table, name: str) -> np.ndarray:
    return np.asarray([row[name] for row in rows], float)


@styled
def draw_phases(paths: Table, steps: Table, attained: Table) -> Figure:
    """Left: F_t of the first problem with both kappa. Right: every step, in units of its R, below Proposition 1."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    first = [row for row in paths if (row["problem"], row["f"]) == (paths[0]["problem"], paths[0]["f"])]
    for rule, color in zip(dict.fromkeys(row["kappa"] for row in first), (BLUE, ORANGE), strict=True):
        mine = [row for row in first if row["kappa"] == rule]
        for row in mine:
            F = [x for x in steps if all(x[key] == row[key] for key in ("problem", "f", "kappa", "start"))]
            left.semilogy([*column(F, "F"), row["F_last"]], "-o", color=color, markersize=2.5, linewidth=1)
        R = float(mine[0]["R"] or 0)
        left.plot([], [], "-o", color=color, markersize=2.5, label=f"$\\kappa = {tex(str(rule))}$")
        left.axhline(R, color=color, linestyle="--", linewidth=1, label=f"its radius $R$ = {R:.3f}")
    left.set(xlabel="step $t$", ylabel="$F(w_t) - F^*$", title=f"{paths[0]['problem']}, {paths[0]['f']}")
    left.set(ylim=(1e-16, 1e5))
    left.legend(loc="upper right")
    _draw_every_step(right, paths, steps, attained)
    return figure


def tex(rule: str) -> str:
    return rule.replace("L l", r"L\ell").replace("sqrt n", r"\sqrt{n}").replace(" / ", "/")


def _draw_every_step(axes: Axes, paths: Table, steps: Table, attained: Table) -> None:
    key = lambda row: tuple(row[name] for name in ("problem", "f", "kappa", "start"))
    radius = {key(row): float(row["R"] or 0) for row in paths}
    for (color, mark), name in zip(MARKS, dict.fromkeys(row["problem"] for row in paths), strict=True):
        mine = [row for row in steps if row["problem"] == name and float(row["F_next"] or 0) > FLOOR]
        R = np.asarray([radius[key(row)] for row in mine])
        points = column(mine, "F") / R, column(mine, "F_next") / R
        axes.loglog(*points, mark, color=color, markersize=3.5, alpha=0.5, markeredgewidth=0, label=name)
    x = np.geomspace(*axes.get_xlim(), 400)
    axes.plot(x, [next_gap(each, 1.0) for each in x], color="black", linewidth=1.2, label="Proposition 1")
    R = column(attained, "F") / column(attained, "F / R")
    points = column(attained, "F") / R, column(attained, "F_next") / R
    axes.plot(*points, "*", color="black", markersize=9, label="the map that attains it")
    axes.axvline(1, color=GREY, linestyle=":", linewidth=1)
    title = "Every step, in units of its own $R$"
    axes.set(xlabel="$(F(w_t) - F^*) / R$", ylabel="$(F(w_{t+1}) - F^*) / R$", title=title)
    axes.legend(loc="upper left")


@styled
def draw_transition(transition: Table, examples: Table, spans: Spans) -> Figure:
    """First panel: F_t of two runs. Then, for each problem and radius, F_j / F(wbar) against sigma E chi_k / R."""
    panels = [(key, radius) for key in spans for radius in ("measured", "Proposition 1")]
    mine = lambda row, key: (row["problem"], row["n"], row["k"]) == key
    chosen = [
        [row for row in transition if mine(row, key) and row[f"{radius} j"] is not None] for key, radius in panels
    ]
    full = [(key, radius, rows) for (key, radius), rows in zip(panels, chosen, strict=True) if rows]
    lines = -(-(1 + len(full)) // 2)
    figure = Figure(figsize=(WIDTH, 2.9 * lines), layout="constrained")
    first, *others = figure.subplots(lines, 2).ravel()
    _draw_runs(first, examples)
    for axes, (key, radius, rows) in zip(others, full, strict=False):
        _draw_transition(axes, rows, radius, spans[key])
        name = "$R$ of the run" if radius == "measured" else "$R$ of Proposition 1"
        axes.set(title=f"{key[0]}, $n$ = {key[1]}, $k$ = {key[2]}, {name}")
    for axes in others[len(full) :]:
        axes.axis("off")
    return figure


def _draw_runs(axes: Axes, examples: Table) -> None:
    for (color, mark), sigma in zip(MARKS, dict.fromkeys(row["sigma"] for row in examples), strict=False):
        mine = [row for row in examples if row["sigma"] == sigma]
        F, j = column(mine, "F"), int(mine[0]["j"] or 0)
        axes.semilogy(F, "-", color=color, linewidth=1.3, label=rf"$\sigma$ = {sigma:.2g}")
        axes.plot(j, F[j], mark, color=color, markersize=6)
        axes.axhline(float(mine[0]["F(wbar)"] or 0), color=color, linestyle=":", linewidth=1.2)
    axes.plot([], [], "o", color=GREY, label="$w_j$, start of the quadratic phase")
    axes.plot([], [], ":", color=GREY, label=r"noise level $F(\bar w)$")
    axes.set(
        xlabel="step $t$",
        ylabel="$F(w_t)$",
        ylim=(1e-16, 1e7),
        title=f"{examples[0]['problem']}, {examples[0]['noise']} noise",
    )
    axes.legend(loc="upper right")


def _draw_transition(axes: Axes, rows: Table, radius: str, spans: Mapping[str, tuple[float, float]]) -> None:
    x = np.geomspace(3e-4, 3e3, 200)
    for (window, (low, high)), color in zip(spans.items(), ("#ececec", "#cfcfcf")[-len(spans) :], strict=True):
        axes.axvspan(low, min(high, x[-1]), color=color, linewidth=0, label=f"{NAMES[window]} window")
    axes.loglog(x, 1 / x, color="black", linewidth=1, label="$F(w_j) = R$, the most there can be")
    axes.axhline(1, color=GREY, linestyle=":", linewidth=1)
    for noise, (color, mark) in zip(("gaussian", "laplace"), MARKS, strict=False):
        mine = [row for row in rows if row["noise"] == noise]
        points = column(mine, f"{radius} sigma E chi / R"), column(mine, f"{radius} F_j") / column(mine, "F(wbar)")
        axes.plot(*points, mark, color=color, markersize=4, alpha=0.7, markeredgewidth=0, label=noise)
    axes.text(0.02, 0.03, "below 1 the phase starts in the noise", transform=axes.transAxes, fontsize=SMALL, color=GREY)
    axes.set(
        xlabel=r"$\sigma\,\mathrm{E}\chi_k / R$", ylabel=r"$F(w_j) / F(\bar w)$", xlim=(x[0], x[-1]), ylim=(1e-5, 1e5)
    )
    axes.legend(loc="upper right")


@styled
def draw_windows(cells: Table) -> Figure:
    """F(wbar) / (sigma E chi_k), Gaussian: the two windows, and the interval of the draws, against k and against n."""
    figure = Figure(figsize=(WIDTH, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    rows = [row for row in cells if row["noise"] == "gaussian"]
    for axes, name, other in ((left, "k", "n"), (right, "n", "k")):
        at = column(rows, other).max()
        mine = [row for row in rows if row[other] == at]
        x = column(mine, name)
        for window, color in (("paper", ORANGE), ("sharp", BLUE), ("drawn", "black")):
            ends = np.stack([column(mine, f"{window} low"), column(mine, f"{window} high")])
            ends = ends / np.asarray([chi_mean(int(row["k"] or 0)) for row in mine])
            axes.plot(x, ends[0], "-o", color=color, markersize=3, label=NAMES[window])
            axes.plot(x, ends[1], "-o", color=color, markersize=3)
            axes.fill_between(x, *ends, color=color, alpha=0.12, linewidth=0)
        title = f"${other}$ = {at:.0f}, $\\delta$ = {rows[0]['delta']}"
        axes.set(xscale="log", xlabel=f"${name}$", title=title, xticks=x, xticklabels=[f"{each:.0f}" for each in x])
        axes.minorticks_off()
    left.set(ylabel=r"$F(\bar w) / (\sigma\,\mathrm{E}\chi_k)$")
    right.legend()
    return figure
