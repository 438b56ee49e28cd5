"""Proposition 1 on real iterates: each step of exact prox-linear against the bound with the constant of its own kappa.

    F_{t+1} <= F_t - R/2  if F_t >= R,   F_t^2 / (2 R)  if F_t <= R,      R = (sharpness sigma_min / n)^2 / kappa

kappa = L l / sqrt n makes R = (sharpness sigma_min)^2 / (L l n^{3/2}); kappa = L l makes it n^2 in place of n^{3/2}.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial

from ..data.origin import generated
from ..plots.pages import Row
from ..theory import binomial_interval
from . import noise, theory_paths
from .engine.base import Case, Context, Experiment, Plan, Result, Verdict, register
from .engine.config import parse, shipped
from .sine import Path
from .theory_figures import draw_phases
from .theory_paths import MAPS, OUTERS, Run

ROUND_OFF = 1e-15  # of a gap, which is a sum of numbers of the size of F
LABEL = ("problem", "f", "kappa", "start")
SINGULAR = (*LABEL, "t", "dense", "matrix-free", "relative error", "nk", "Lanczos steps")
PRINTED = ("n", "kappa", "radius printed", "F", "F_next printed", "F_next", "F_next / F", "1 - 1/sqrt n", "gap")
ATTAINED = ("n", "F / R", "F", "F_next", "bound", "F_next / bound")


@dataclasses.dataclass(frozen=True)
class Config:
    """What a profile sets; configs/prop1.toml says what each setting is."""

    n: int
    k: int
    outers: tuple[str, ...]
    starts: int
    distance: tuple[float, ...]
    steps: int
    network: tuple[int, ...]
    network_starts: int
    attained: int

    def __post_init__(self):
        for name in self.outers:
            if name not in OUTERS:
                raise ValueError(f"there is no outer function {name}; take some of {', '.join(OUTERS)}.")
        if len(self.distance) != 2 or len(self.network) != 4:
            raise ValueError("distance is the least and the most, network is n, k, inputs and width.")


def ordered(row: Row, columns: tuple[str, ...]) -> Row:
    """A row that comes from the store, which sorts its columns."""
    return {name: row[name] for name in columns}


def cases(config: Config, seed: int) -> list[Case]:
    """The paths from each start, with both kappa, and the two examples."""

    def case(task: str, work: float, group: str, **settings: object) -> Case:
        return Case(f"{theory_paths.__name__}:{task}", {"seed": seed, **settings}, work, group)

    n, k, distance = config.n, config.k, list(config.distance)
    sine = [
        case("sine_paths", n * k / 100, outer, map=name, outer=outer, start=start, n=n, k=k, distance=distance,
             steps=config.steps)
        for name in MAPS for outer in config.outers for start in range(config.starts)
    ]  # fmt: skip
    network = [
        case("network_paths", n * k / 10, "network", network=list(config.network), start=start, steps=config.steps)
        for start in range(config.network_starts)
    ]
    printed, equal = case("as_printed_step", 1.0, "l2", n=n, k=k), case("attained_steps", 1.0, "one", n=config.attained)
    return [*sine, *network, printed, equal]


def plan(config: Mapping[str, object], seed: int) -> Plan:
    found = cases(parse(Config, config), seed)
    return Plan(found, len(found), sum(case.work for case in found) + 5.0 * len({case.group for case in found}))


def run(context: Context) -> Result:
    config = parse(Config, context.config)
    *paths, printed, equal = context.sweep(cases(config, context.seed))
    runs = [Run(**{**each, "path": Path(**each["path"])}) for found in paths for each in found["runs"]]
    singular = [ordered(row, SINGULAR) for found in paths for row in found.get("singular", ())]
    rows = [each.row() for each in runs]
    tables = {
        "paths": rows,
        "steps": [row for each in runs for row in each.steps()],
        "singular": singular,
        "as-printed": [ordered(printed, PRINTED)],
        "attained": [ordered(row, ATTAINED) for row in equal["steps"]],
    }
    figures = {"phases": draw_phases(rows, tables["steps"], tables["attained"])}
    notes = _notes(rows, singular, tables["attained"])
    return Result(tables, figures, [_verdict(rows), _verdict_as_printed(printed)], notes)


def _verdict(rows: list[Row]) -> Verdict:
    """The verdict on the bounds, each with the constant of its own kappa."""
    broken = sum(int(row["bounds broken"] or 0) > 0 for row in rows)
    low, high = binomial_interval(broken, len(rows))
    steps = sum(int(row["steps"] or 0) for row in rows)
    return Verdict(
        "C2",
        "not reproduced" if broken else "reproduced",
        f"with the constant of its own kappa (n^1.5 for L l / sqrt n, n^2 for L l): {broken} of {len(rows)} paths, "
        f"{steps} steps in all, break a bound",
        f"95 % Clopper-Pearson for the share of paths [{low:.3g}, {high:.3g}]",
        "Holds if no path breaks a bound that has the constant of its own kappa; else fails.",
    )


def _verdict_as_printed(row: Row) -> Verdict:
    """As printed, kappa = L l goes with the radius of n^1.5. One certified step above its bound refutes that.

    The step is within sqrt(2 gap / kappa) of the exact one, and F is |J| l / sqrt n-Lipschitz with |J|^2 <= 2.
    """
    share, gap, F, kappa, n = (float(row[name] or 0) for name in ("F_next / F", "gap", "F", "kappa", "n"))
    error = 2 * math.sqrt((gap + ROUND_OFF) / (kappa * n)) / F
    return Verdict(
        "C2",
        "not reproduced" if share - error > 0.5 else "undecided",
        f"as printed (kappa = L l with the radius of n^1.5), on one map with n = {row['n']}: F_next / F = {share:.6f} "
        "at the radius, where at most 0.5 is promised",
        f"certified [{share - error:.6f}, {share + error:.6f}]",
        "Fails if one certified step ends above its bound.",
    )


def _notes(rows: list[Row], singular: list[Row], equal: list[Row]) -> list[str]:
    gains = [float(row["least gain / (R/2)"] or 0) for row in rows if row["least gain / (R/2)"] is not None]
    shares = [float(row["most F_next / (F^2/2R)"] or 0) for row in rows if row["most F_next / (F^2/2R)"] is not None]
    error = max(abs(float(row["relative error"] or 0)) for row in singular)
    return [
        "A bound is broken when F_next exceeds it by more than the certified gap of the subproblem and 1e-13.",
        f"Least gain before the radius: {min(gains):.3g} times R/2. Most F_next after it: {max(shares):.3g} times "
        "F^2/2R.",
        "The bounds cannot be better: on the map of the table attained they are equalities, to "
        f"{max(abs(float(row['F_next / bound'] or 0) - 1) for row in equal):.1g}.",
        "The sine maps have exact constants. Those of the network are local: L is the largest second derivative along "
        "the segments between iterates, sigma_min the least singular value of the stacked Jacobian at the iterates.",
        f"The matrix-free least singular value differs from the dense one by at most {error:.1g} of it.",
    ]


DATA = generated("random maps and networks", "drawn by the seed: sine maps of known constants, and networks")
register(
    Experiment(
        "prop1",
        "Proposition 1: decrease, then quadratic convergence",
        ("C2",),
        run,
        shipped("prop1"),
        plan,
        partial(parse, Config),
        lambda config: (DATA,),
    )
)
register(
    Experiment(
        "prop2",
        "Proposition 2: the noise window",
        ("C3",),
        noise.run,
        shipped("prop2"),
        noise.plan,
        partial(parse, noise.Config),
        lambda config: (DATA,),
    )
)
