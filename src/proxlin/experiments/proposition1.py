"""Proposition 1 on real iterates: each step of exact prox-linear against the bound with the
constant of its own kappa.

    F_{t+1} <= F_t - R/2  if F_t >= R,   F_t^2 / (2 R)  if F_t <= R,      R = (sharpness sigma_min / n)^2 / kappa

kappa = L l / sqrt n makes R = (sharpness sigma_min)^2 / (L l n^{3/2}); kappa = L l makes it n^2 in
place of n^{3/2}.
"""

import math
from dataclasses import dataclass
from itertools import product

from ..data.origin import generated
from ..plots.pages import Row
from ..theory import Rule, Share
from .engine.base import Case, Context, Plan, Result, Verdict
from .engine.study import demand_known, demand_rules, plan_of, study
from .engine.verdicts import verdict_of
from .proposition1_task import MAPS, OUTERS, Run
from .proposition_figures import draw_phases
from .sine_maps import Path

TASKS = "proxlin.experiments.proposition1_task"
ROUND_OFF = 1e-15  # of a gap, which is a sum of numbers of the size of F
LABEL = ("problem", "f", "kappa", "start")
SINGULAR = (
    *LABEL,
    "t",
    "dense",
    "matrix-free",
    "relative error",
    "nk",
    "Lanczos steps",
)
PRINTED = (
    "n",
    "kappa",
    "radius printed",
    "F",
    "F_next printed",
    "F_next",
    "F_next / F",
    "1 - 1/sqrt n",
    "gap",
)
ATTAINED = ("n", "F / R", "F", "F_next", "bound", "F_next / bound")
# CPU seconds of a start for each number of the residual, measured on one thread
SINE_SECONDS = 1 / 350
NETWORK_SECONDS = 1 / 60
DATA = generated(
    "random maps and networks",
    "drawn by the seed: sine maps of known constants, and networks",
)


@dataclass(frozen=True)
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
    rules: dict[str, Rule]

    def __post_init__(self):
        demand_rules(self, "C2-bounds", "C2-printed")
        for name in self.outers:
            demand_known("an outer function", name, OUTERS)
        if len(self.distance) != 2 or len(self.network) != 4:
            raise ValueError(
                "distance is the least and the most, network is n, k, inputs and width."
            )


def ordered(row: Row, columns: tuple[str, ...]) -> Row:
    """Return a row that comes from the store, which sorts its columns, with the columns in this
    order.
    """
    return {name: row[name] for name in columns}


def cases(config: Config, seed: int) -> list[Case]:
    """Return the paths from each start, with both kappa, and then the two examples."""

    def case(task: str, work: float, group: str, **settings: object) -> Case:
        return Case(f"{TASKS}:{task}", {"seed": seed, **settings}, work, group)

    size = config.n * config.k
    shape = {"n": config.n, "k": config.k}
    sine = {**shape, "distance": list(config.distance), "steps": config.steps}
    network = {"network": list(config.network), "steps": config.steps}
    found = []
    for name, outer, start in product(MAPS, config.outers, range(config.starts)):
        found.append(
            case(
                "sine_paths",
                size * SINE_SECONDS,
                outer,
                map=name,
                outer=outer,
                start=start,
                **sine,
            )
        )
    for start in range(config.network_starts):
        found.append(
            case(
                "network_paths",
                size * NETWORK_SECONDS,
                "network",
                start=start,
                **network,
            )
        )
    found.append(case("as_printed_step", 0.1, "l2", **shape))
    found.append(case("attained_steps", 0.1, "one", n=config.attained))
    return found


def plan(config: Config, seed: int) -> Plan:
    """Say what will run."""
    return plan_of(cases(config, seed))


def run(config: Config, context: Context) -> Result:
    """Check the bounds on every step of every path."""
    *paths, printed, equal = context.sweep(cases(config, context.seed))
    runs = []
    singular = []
    for found in paths:
        runs += [
            Run(**{**each, "path": Path(**each["path"])}) for each in found["runs"]
        ]
        singular += [ordered(row, SINGULAR) for row in found.get("singular", ())]
    rows = [each.row() for each in runs]
    steps = [row for each in runs for row in each.steps()]
    attained = [ordered(row, ATTAINED) for row in equal["steps"]]
    return Result(
        tables={
            "paths": rows,
            "steps": steps,
            "singular": singular,
            "as-printed": [ordered(printed, PRINTED)],
            "attained": attained,
        },
        figures={"phases": draw_phases(rows, steps, attained)},
        verdicts=[
            verdict_bounds(rows, config.rules["C2-bounds"], context.seed),
            verdict_as_printed(printed, config.rules["C2-printed"], context.seed),
        ],
        notes=_notes(rows, singular, attained),
    )


def verdict_bounds(rows: list[Row], rule: Rule, seed: int) -> Verdict:
    """Return the verdict on the bounds, each with the constant of its own kappa; a start is a unit, from which
    both kappa run.
    """
    starts: dict[tuple, int] = {}
    for row in rows:
        start = (row["problem"], row["f"], row["start"])
        starts[start] = starts.get(start, 0) + int(row["bounds broken"] or 0)
    kept = sum(broken == 0 for broken in starts.values())
    steps = sum(int(row["steps"] or 0) for row in rows)
    return verdict_of(
        "C2",
        rule,
        Share(kept, len(starts), 1.0, rule.level),
        "starts whose paths break no bound, with the constant of its own kappa (n^1.5 for L l / sqrt n, n^2 for L l)",
        seed,
        "starts",
        f", with {len(rows)} paths and {steps} steps",
    )


def verdict_as_printed(row: Row, rule: Rule, seed: int) -> Verdict:
    """Return the verdict on kappa = L l with the radius of n^1.5, as printed: one step above its
    bound refutes it, and a step below it proves nothing.

    The step is within sqrt(2 gap / kappa) of the exact one, and F is |J| l / sqrt n-Lipschitz with
    |J|^2 <= 2.
    """
    share, gap, F, kappa, n = (
        float(row[name] or 0) for name in ("F_next / F", "gap", "F", "kappa", "n")
    )
    error = 2 * math.sqrt((gap + ROUND_OFF) / (kappa * n)) / F
    exceptions = int(share - error > 0.5)
    return verdict_of(
        "C2",
        rule,
        Share(0, exceptions, 1.0, rule.level),
        "steps within the bound as printed (kappa = L l with the radius of n^1.5)",
        seed,
        "steps",
        f"; on one map with n = {row['n']}, F_next / F = {share:.6f} at the radius, certified "
        f"[{share - error:.6f}, {share + error:.6f}], where at most 0.5 is promised",
    )


def _notes(rows: list[Row], singular: list[Row], attained: list[Row]) -> list[str]:
    gains = _numbers(rows, "least gain / (R/2)")
    shares = _numbers(rows, "most F_next / (F^2/2R)")
    error = max(map(abs, _numbers(singular, "relative error")))
    off = max(abs(share - 1) for share in _numbers(attained, "F_next / bound"))
    return [
        "A bound is broken when F_next exceeds it by more than the certified gap of the subproblem and 1e-13.",
        f"Least gain before the radius: {min(gains):.3g} times R/2. Most F_next after it: {max(shares):.3g} times "
        "F^2/2R.",
        f"The bounds cannot be better: on the map of the table attained they are equalities, to {off:.1g}.",
        "The sine maps have exact constants. Those of the network are local: L is the largest second derivative along "
        "the segments between iterates, sigma_min the least singular value of the stacked Jacobian at the iterates.",
        f"The matrix-free least singular value differs from the dense one by at most {error:.1g} of it.",
    ]


def _numbers(rows: list[Row], name: str) -> list[float]:
    """Return the numbers of a column that are there."""
    return [float(row[name] or 0) for row in rows if row[name] is not None]


STUDY = study(
    "prop1",
    "Proposition 1: decrease, then quadratic convergence",
    Config,
    run,
    plan,
    (DATA,),
    claims=("C2",),
)
