"""The paths of exact prox-linear that Proposition 1 is checked on, one case for each start.

kappa = L l / sqrt n   and   kappa = L l,   from the same start
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import trees
from ..inners import residual
from ..networks import MLP
from ..outers import L1, L2, AbstractOuter, LInf, Quantile
from ..plots.pages import Row
from ..problem import MeanOfLosses
from ..theory import (
    least_singular,
    least_singular_matrix_free,
    next_gap,
    quadratic_radius,
    segment_smoothness,
)
from ..theory.proposition1 import FLOOR
from ..types import Params
from .sine_maps import Path, aligned, as_printed, attained, exact_path, near, orthogonal

OUTERS: dict[str, AbstractOuter] = {
    "l2": L2(),
    "l1": L1(),
    "linf": LInf(),
    "quantile": Quantile(0.7),
}
MAPS = {"sine, A across B": orthogonal, "sine, A along B": aligned}
NETWORK = "tanh network"
SMALL = "L l / sqrt n"
LARGE = "L l"
RULES = {SMALL: 0.5, LARGE: 0.0}  # kappa = L l / n^power


@dataclass(frozen=True)
class Run:
    """One path of exact prox-linear with the constants that Proposition 1 asks for; `known`: exact
    or local.
    """

    name: str
    outer: str
    rule: str
    start: int
    known: str
    n: int
    k: int
    smoothness: float
    least_singular: float
    path: Path

    def label(self) -> Row:
        """Return the columns that tell paths apart."""
        return {
            "problem": self.name,
            "f": self.outer,
            "kappa": self.rule,
            "start": self.start,
        }

    def plain(self) -> dict:
        """Return what a worker sends back."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found["path"] = {
            "values": self.path.values.tolist(),
            "gaps": self.path.gaps.tolist(),
        }
        return found

    def radius(self, rule: str) -> float:
        """Return the radius of the quadratic phase for the kappa of a rule."""
        f = OUTERS[self.outer]
        l = float(f.lipschitz(self.k))
        kappa = self.smoothness * l / self.n ** RULES[rule]
        return quadratic_radius(
            self.n, self.smoothness, l, f.sharpness(self.k), self.least_singular, kappa
        )

    def bounds(self) -> np.ndarray:
        """Return Proposition 1's bound on each F_{t+1}."""
        radius = self.radius(self.rule)
        return np.asarray([next_gap(value, radius) for value in self.path.values[:-1]])

    def breaks(self, bounds: np.ndarray) -> np.ndarray:
        """Tell where F_{t+1} is above a bound by more than the certified gap of the subproblem and
        round-off.
        """
        return self.path.values[1:] > bounds + self.path.gaps + FLOOR

    def row(self) -> Row:
        """Return the path in one row: its constants, the two phases, and how many bounds it breaks."""
        before = self.path.values[:-1]
        after = self.path.values[1:]
        R = self.radius(self.rule)
        bounds = self.bounds()
        outside = before >= R
        gains = (before - after)[outside] / (R / 2)
        # where a ratio is one of numbers, not of round-off
        seen = ~outside & (bounds > 10 * FLOOR)
        shares = after[seen] / bounds[seen]
        # within R(kappa) it holds for each kappa: docs/theory.md
        sharper = before**2 / (2 * self.radius(SMALL))
        return {
            **self.label(),
            "constants": self.known,
            "L": self.smoothness,
            "sigma_min": self.least_singular,
            "R": R,
            "F_0": self.path.values[0],
            "F_last": self.path.values[-1],
            "steps": len(after),
            "steps before R": int(outside.sum()),
            "least gain / (R/2)": float(gains.min()) if len(gains) else None,
            "most F_next / (F^2/2R)": float(shares.max()) if len(shares) else None,
            "bounds broken": int(self.breaks(bounds).sum()),
            "n^1.5 rate broken after R": int(self.breaks(sharper)[~outside].sum()),
        }

    def steps(self) -> list[Row]:
        """Return a row for each step."""
        before = self.path.values[:-1]
        columns = {
            "t": np.arange(len(before)),
            "phase": np.where(
                before >= self.radius(self.rule), "decrease", "quadratic"
            ),
            "F": before,
            "F_next": self.path.values[1:],
            "bound": self.bounds(),
            "gap": self.path.gaps,
        }
        rows = zip(*(each.tolist() for each in columns.values()), strict=True)
        return [
            {**self.label(), **dict(zip(columns, row, strict=True))} for row in rows
        ]


def sine_paths(settings: Mapping[str, Any]) -> dict:
    """Return the paths of exact prox-linear with both kappa on a sine map, from one start."""
    name = settings["map"]
    outer = OUTERS[settings["outer"]]
    n = settings["n"]
    k = settings["k"]
    # The map is the same for every start and outer function; the start is not.
    seed = [settings["seed"], list(MAPS).index(name)]
    known = MAPS[name](n, k, np.random.default_rng(seed))
    rng = np.random.default_rng(
        [*seed, list(OUTERS).index(settings["outer"]), settings["start"]]
    )
    wbar = rng.normal(size=known.A.shape[-1])
    distance = float(np.exp(rng.uniform(*np.log(settings["distance"]))))
    w = near(wbar, distance, rng)
    problem = known.problem(known.target(wbar), outer)
    runs = []
    for rule, power in RULES.items():
        kappa = known.smoothness * float(outer.lipschitz(k)) / n**power
        path = exact_path(problem, w, kappa, settings["steps"])
        label = (name, settings["outer"], rule, settings["start"])
        runs.append(
            Run(
                *label, "exact", n, k, known.smoothness, known.least_singular, path
            ).plain()
        )
    return {"runs": runs}


def network_paths(settings: Mapping[str, Any]) -> dict:
    """Return the paths on a wide tanh network that can fit its targets, with both kappa, from one
    start.

    `singular` has the least singular values at the ends of each path, dense and matrix-free.
    """
    n, k, inputs, width = settings["network"]
    rng = np.random.default_rng(settings["seed"])
    predict = MLP((inputs, width, k))
    x = rng.normal(size=(n, inputs))
    y = rng.normal(size=(n, k))
    problem = MeanOfLosses(residual(predict), OUTERS["l2"], (x, y))
    w = predict.init(
        jax.random.fold_in(jax.random.key(settings["seed"]), settings["start"])
    )
    runs = []
    rows = []
    for rule, power in RULES.items():
        path, smoothness = local_path(problem, w, power, settings["steps"])
        values = [least_singular(problem, each) for each in path.iterates]
        run = Run(
            NETWORK,
            "l2",
            rule,
            settings["start"],
            "local",
            n,
            k,
            smoothness,
            min(values),
            path,
        )
        runs.append(run.plain())
        for t in (0, len(values) - 1):
            ritz = least_singular_matrix_free(problem, path.iterates[t])
            found = {
                "dense": values[t],
                "matrix-free": ritz.value,
                "relative error": ritz.value / values[t] - 1,
            }
            rows.append(
                {
                    **run.label(),
                    "t": t,
                    **found,
                    "nk": n * k,
                    "Lanczos steps": ritz.steps,
                }
            )
    return {"runs": runs, "singular": rows}


def local_path(
    problem: MeanOfLosses, w: Params, power: float, steps: int
) -> tuple[Path, float]:
    """Return a path with kappa = L / n^power (l = 1) and its L, which grows until no segment of it
    is rougher.
    """
    value, v = problem.value_and_subgradient(w)
    polyak = trees.add_scale(w, -value / trees.vdot(v, v), v)
    smoothness = segment_smoothness(problem, w, polyak)
    while True:
        path = exact_path(problem, w, smoothness / len(problem) ** power, steps)
        pairs = zip(path.iterates[:-1], path.iterates[1:], strict=True)
        seen = max(segment_smoothness(problem, a, b) for a, b in pairs)
        if seen <= smoothness:
            return path, smoothness
        smoothness = 1.1 * seen


def as_printed_step(settings: Mapping[str, Any]) -> dict:
    """Return one step with kappa = L l from F = (sharpness sigma_min)^2 / (L l n^{3/2}), the radius
    printed with it.
    """
    n = settings["n"]
    known, w, y = as_printed(n, settings["k"], np.random.default_rng(settings["seed"]))
    path = exact_path(
        known.problem(y, OUTERS["l2"]), jnp.asarray(w), known.smoothness, 1
    )
    radius = quadratic_radius(n, known.smoothness, 1.0, 1.0, known.least_singular)
    F, F_next = path.values.tolist()
    return {
        "n": n,
        "kappa": known.smoothness,
        "radius printed": radius,
        "F": F,
        "F_next printed": F**2 / (2 * radius),
        "F_next": F_next,
        "F_next / F": F_next / F,
        "1 - 1/sqrt n": 1 - n**-0.5,
        "gap": float(path.gaps[0]),
    }


def attained_steps(settings: Mapping[str, Any]) -> dict:
    """Return the steps for which Proposition 1 with kappa = L l / sqrt n is an equality, in both
    phases.
    """
    n = settings["n"]
    radius = quadratic_radius(n, 1.0, 1.0, 1.0, 1.0)
    rows = []
    for times in (5.0, 0.5):
        problem, w = attained(n, times * radius)
        F, F_next = exact_path(problem, w, n**-0.5, 1).values.tolist()
        bound = next_gap(F, radius)
        ends = {
            "F": F,
            "F_next": F_next,
            "bound": bound,
            "F_next / bound": F_next / bound,
        }
        rows.append({"n": n, "F / R": times, **ends})
    return {"steps": rows}
