"""How good is `px.advise`? Its answers against the better method of each cell, which full tuned
runs established.

    --make      tune SGD and Gauss-Newton on every cell (resumable), and write docs/gallery/advisor/cells.csv
    --choose    the rule (level and band) by the cells of the sets named
    (neither)   the confusion table, balanced accuracy and worst confident loss on the cells of the sets named

A cell is a distribution of problems. The tuned runs see five draws of it with large validation and
test sets; the advisor gets another draw, of n samples and nothing else. Everything runs on one
worker and is kept in --out. `bench.studies.advisor_between` has cells between these families.
"""

import argparse
import csv
import hashlib
import io
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from proxlin.experiments.engine.workers import Local, prepare
from proxlin.files.writing import write_file

CELLS = Path(__file__).parents[2] / "docs" / "gallery" / "advisor" / "cells.csv"
# of the tuned runs; a cell is equal if its interval over the seeds lies within BAND
PASSES, SETTINGS, SEEDS, BAND = 100.0, 24, 5, 0.01
VALIDATION, TEST = 500, 2048
DRAW = 50  # the draw that the advisor sees; the tuned runs see 0 to 4
ANSWERS = ("sgd", "gauss-newton", "cannot tell")
UNDECIDED = ("equal", "not resolved")  # cells without a better side


@dataclass(frozen=True)
class Cell:
    """Where two methods meet.

    regression      the data of Figure 2, Laplace noise
    small           the same teacher with fewer inputs and outputs, so that exact steps are raced too
    interpolation   a small smooth network fitted by a larger one, Gaussian noise

    All are over-parameterised: nk <= d.
    """

    family: str
    activation: str
    n: int
    snr: float
    inputs: int
    outputs: int
    width: int

    def label(self) -> str:
        return f"{self.family} {self.activation} n={self.n} snr={self.snr:g} k={self.outputs}"

    def part(self) -> str:
        """The first table is split by a checksum of the label; the fresh cells have the same noise
        and other sizes.
        """
        if self in grid(**FRESH):
            return "fresh"
        return (
            "held out"
            if hashlib.sha256(self.label().encode()).digest()[0] % 2 == 1
            else "rule-choosing"
        )


FIRST = {
    "regression": (64, 128, 256),
    "shapes": ((2, 1, 32), (4, 2, 64)),
    "interpolation": (48, 96),
    "small": (32, 64),
}
FRESH = {
    "regression": (96, 192),
    "shapes": ((3, 1, 48), (3, 2, 64)),
    "interpolation": (64,),
    "small": (48,),
}
SETS = ("rule-choosing", "held out", "fresh")


def grid(
    regression: tuple, shapes: tuple, interpolation: tuple, small: tuple
) -> list[Cell]:
    """The cells of each family with these n, and shapes (inputs, outputs, width) of the
    interpolating networks.
    """
    paper = product(("elu", "tanh", "softplus"), regression, (1e2, 1e4, 1e5, 1e7))
    networks = product(
        ("tanh", "softplus"), shapes, interpolation, (1e1, 1e3, 1e6, 1e10)
    )
    middle = product(("elu", "tanh"), small, (1e2, 1e4, 1e7))
    return [
        *(
            Cell("regression", activation, n, snr, 128, 10, 64)
            for activation, n, snr in paper
        ),
        *(
            Cell("interpolation", activation, n, snr, *shape)
            for activation, shape, n, snr in networks
        ),
        *(
            Cell("small", activation, n, snr, 32, 4, 32)
            for activation, n, snr in middle
        ),
    ]


def cells() -> list[Cell]:
    return [*grid(**FIRST), *grid(**FRESH)]


@lru_cache(maxsize=8)
def problems_of(cell: Cell, seed: int) -> tuple[Any, Any, Any, Any]:
    """Training, validation and test problem, and the start."""
    import jax
    import jax.numpy as jnp

    from proxlin.experiments import regression_task

    if cell.family == "regression":
        arena = regression_task.Arena(
            cell.width, cell.n, cell.snr, cell.activation, "laplace"
        )
        train, validation, test, _ = regression_task.problems_of(
            arena, seed, VALIDATION, TEST
        )
        return (
            train,
            validation,
            test,
            arena.student().init(jax.random.key(seed), jnp.float32),
        )
    return _small(cell, seed) if cell.family == "small" else _interpolation(cell, seed)


def _small(cell: Cell, seed: int) -> tuple[Any, Any, Any, Any]:
    import jax
    import jax.numpy as jnp

    import proxlin as px
    from proxlin.data.regression import Teacher
    from proxlin.networks import MLP

    teacher = Teacher(
        seed, cell.snr, cell.activation, "laplace", cell.inputs, cell.outputs
    )
    student = MLP((cell.inputs, cell.width, cell.outputs), cell.activation, bias=False)
    sizes = {"train": cell.n, "validation": VALIDATION, "test": TEST}
    parts = [teacher.sample(count, part) for part, count in sizes.items()]
    problems = [
        px.MeanOfLosses(
            px.residual(student), px.L2(), (jnp.asarray(p.x), jnp.asarray(p.y))
        )
        for p in parts
    ]
    return (*problems, student.init(jax.random.key(seed)))


def _interpolation(cell: Cell, seed: int) -> tuple[Any, Any, Any, Any]:
    """y = teacher(x) + sigma xi, x_j ~ N(0, 1/j^2), xi Gaussian, sigma^2 = mean of teacher(x)^2 /
    SNR.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    import proxlin as px
    from proxlin.networks import MLP

    rng, (first, second) = (
        np.random.default_rng(seed),
        jax.random.split(jax.random.key(seed)),
    )
    teacher = MLP((cell.inputs, 8, cell.outputs), cell.activation)
    student = MLP((cell.inputs, cell.width, cell.outputs), cell.activation)
    truth = teacher.init(first)
    x = rng.normal(size=(cell.n + VALIDATION + TEST, cell.inputs)) / np.arange(
        1, cell.inputs + 1
    )
    clean = np.asarray(jax.vmap(teacher, (None, 0))(truth, jnp.asarray(x)))
    y = clean + np.sqrt(np.mean(clean**2) / cell.snr) * rng.normal(size=clean.shape)
    parts = np.split(np.arange(len(x)), [cell.n, cell.n + VALIDATION])
    problems = [
        px.MeanOfLosses(
            px.residual(student), px.L2(), (jnp.asarray(x[i]), jnp.asarray(y[i]))
        )
        for i in parts
    ]
    return (*problems, student.init(second))


@lru_cache(maxsize=8)
def methods_of(cell: Cell, seed: int) -> dict[str, Any]:
    from proxlin.tuning import race

    train, _, _, w = problems_of(cell, seed)
    return {method.name: method for method in race.methods_of(train, w, PASSES)}


def train(settings: dict[str, Any]) -> dict[str, Any]:
    """One tuned run: one method, one setting, one draw of a cell."""
    from proxlin.tuning import race

    cell, seed = Cell(**settings["cell"]), settings["seed"]
    problem, validation, test, w = problems_of(cell, seed)
    method = methods_of(cell, seed)[settings["method"]]
    found = race.run(
        method, settings["setting"], race.Fold(problem, validation), w, PASSES, seed
    )
    return {
        "validation_loss": found.loss,
        "test_loss": float(test.value(found.w)),
        "best_at": found.at,
    }


def answer(settings: dict[str, Any]) -> dict[str, Any]:
    """What the advisor says of a draw of a cell."""
    import proxlin as px

    problem, _, _, w = problems_of(Cell(**settings["cell"]), settings.get("draw", DRAW))
    advice = px.advise(
        problem,
        w,
        passes=PASSES,
        settings=settings["settings"],
        folds=settings.get("folds", 5),
    )
    return {
        "losses": {side: list(each) for side, each in advice.losses.items()},
        "codes": advice.codes,
    } | {
        "radius": advice.radius,
        "position": advice.position,
    }


def case_of(cell: Cell, method: str, setting: dict[str, Any], seed: int) -> Any:
    from proxlin.experiments.engine.base import Case

    settings = {
        "cell": asdict(cell),
        "method": method,
        "setting": setting,
        "seed": seed,
    }
    return Case(
        "bench.studies.advisor:train",
        settings,
        0.2,
        f"{method} {cell.family} {cell.activation} {cell.n} {cell.outputs}",
    )


def make(sweep: Callable, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every cell's losses and its better side; cells of the same shapes one after the other."""
    from proxlin.experiments.engine.base import Context
    from proxlin.experiments.tuning import Entry, columns_of, compare, tune, winner
    from proxlin.tuning.search import Grid

    context, rows = Context("", {}, 0, "", say, sweep), []
    for cell in cells():
        entries = [
            Entry(
                name,
                Grid(method.axes, SETTINGS if method.axes else 1),
                partial(case_of, cell, name),
                SEEDS,
            )
            for name, method in methods_of(cell, 0).items()
        ]
        found = tune(entries, context, finalists=2)
        one = found["sgd"]
        name = min(
            (name for name in found if name != "sgd"),
            key=lambda name: found[name].losses("validation_loss").mean(),
        )
        two = found[name]
        difference = compare(one.losses(), two.losses())
        columns = columns_of(difference, "gain_of_sgd")
        del columns["visible"]
        row = asdict(cell) | {"set": cell.part()}
        row |= {
            "sgd_loss": float(one.losses().mean()),
            "gauss_newton_loss": float(two.losses().mean()),
        }
        row |= {
            **columns,
            "better": winner(difference, BAND, "sgd", "gauss-newton"),
        }
        rows.append(
            row
            | {
                "sgd_setting": one.words(),
                "gauss_newton": name,
                "gauss_newton_setting": two.words(),
            }
        )
        say(
            f"{cell.label()}: {row['better']}, Gauss-Newton's loss over SGD's {row['gain_of_sgd']:+.1%} "
            f"[{row['low']:+.1%}, {row['high']:+.1%}]"
        )
    return rows


def answers(
    rows: Sequence[dict[str, Any]],
    sweep: Callable,
    settings: int,
    draw: int,
    folds: int,
) -> list[dict[str, Any]]:
    """The rows with what the advisor found."""
    from proxlin.experiments.engine.base import Case

    found = [
        row | {"cell": {name: row[name] for name in Cell.__dataclass_fields__}}
        for row in rows
    ]
    group = "{family} {activation} {n} {outputs}".format_map
    more = ({} if draw == DRAW else {"draw": draw}) | (
        {} if folds == 5 else {"folds": folds}
    )
    cases = [
        Case(
            "bench.studies.advisor:answer",
            {"cell": row["cell"], "settings": settings} | more,
            30.0,
            group(row["cell"]),
        )
        for row in found
    ]
    return [row | result for row, result in zip(found, sweep(cases), strict=True)]


def judge(rows: Sequence[dict[str, Any]], level: float, band: float) -> dict[str, Any]:
    """The confusion table, the mean recall of the two sides, and the most that a confident answer
    loses.
    """
    from proxlin.tuning.answer import decide, lead_of

    table = {
        better: dict.fromkeys(ANSWERS, 0)
        for better in ("sgd", "gauss-newton", *UNDECIDED)
    }
    worst, where, missed = 0.0, "", []
    for row in rows:
        both = (row["losses"]["sgd"], row["losses"]["gauss-newton"])
        given = decide(lead_of(*both, level), band)
        table[row["better"]][given] += 1
        ratio = 1 + float(row["gain_of_sgd"])  # loss of Gauss-Newton over that of SGD
        loss = {"sgd": 1 / ratio, "gauss-newton": ratio, "cannot tell": 1.0}[given] - 1
        label = Cell(**row["cell"]).label()
        if loss > worst:
            worst, where = loss, label
        if row["better"] not in (*UNDECIDED, given):
            missed.append(
                f"{label}: {row['better']} is better, the answer is {given} ({ratio - 1:+.1%})"
            )
    recalls = {
        side: table[side][side] / max(1, sum(table[side].values()))
        for side in ANSWERS[:2]
    }
    accuracy = sum(recalls.values()) / 2
    return {
        "table": table,
        "accuracy": accuracy,
        "recalls": recalls,
        "worst": worst,
        "where": where,
        "missed": missed,
    }


def show(rows: Sequence[dict[str, Any]], level: float, band: float) -> None:
    found = judge(rows, level, band)
    print(f"{'better':14s}" + "".join(f"{name:>14s}" for name in ANSWERS))
    for better, counts in found["table"].items():
        print(f"{better:14s}" + "".join(f"{counts[name]:14d}" for name in ANSWERS))
    print(
        f"balanced accuracy over the decided cells {found['accuracy']:.3f}   (>= 0.8; a constant answer: 0.500)"
    )
    print("\n".join(found["missed"]))
    print(f"worst confident loss {found['worst']:.1%} {found['where']}   (<= 10 %)")


def choose(rows: Sequence[dict[str, Any]]) -> None:
    """Most accurate first, among those whose confident answers lose at most 10 %; then the higher
    level and band.
    """
    rules = [
        (level, band)
        for level in (0.5, 0.7, 0.8, 0.9, 0.95)
        for band in (0.0, 0.01, 0.02, 0.05)
    ]
    judged = [(rule, judge(rows, *rule)) for rule in rules]
    for (level, band), found in sorted(
        judged,
        key=lambda each: (
            each[1]["worst"] > 0.1,
            -each[1]["accuracy"],
            -each[0][0],
            -each[0][1],
        ),
    ):
        recalls = ", ".join(
            f"{side} {recall:.2f}" for side, recall in found["recalls"].items()
        )
        print(
            f"level {level:g}, band {band:g}: {found['accuracy']:.3f} ({recalls}), worst loss {found['worst']:.1%}"
        )


def read() -> list[dict[str, Any]]:
    with CELLS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = {"n": int, "snr": float, "inputs": int, "outputs": int, "width": int}
    return [
        row | {name: kind(row[name]) for name, kind in kinds.items()} for row in rows
    ]


def write(rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(CELLS, text.getvalue().encode())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.studies.advisor",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument(
        "--set", choices=SETS, nargs="+", default=["fresh"], help="of the cells"
    )
    parser.add_argument(
        "--settings", type=int, default=24, help="that the advisor tries of each method"
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument(
        "--draws",
        type=int,
        nargs="+",
        default=[DRAW],
        help="of each cell, that the advisor sees",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results") / "advisor",
        help="folder of the runs",
    )
    arguments = parser.parse_args(argv)
    prepare()
    from proxlin.experiments.engine.store import open_store
    from proxlin.experiments.engine.sweep import Bar, Sweep
    from proxlin.tuning import answer as rule

    say = partial(print, flush=True)
    with (
        open_store(arguments.out) as store,
        closing(Local(1)) as engine,
        Bar(None, say, False) as bar,
    ):
        sweep = Sweep("advisor", store, engine, bar, {"pid": os.getpid()})
        if arguments.make:
            write(make(sweep, say))
            return 0
        kept = [row for row in read() if row["set"] in arguments.set]
        asked = [(draw, arguments.folds) for draw in arguments.draws]
        rows = [
            row
            for each in asked
            for row in answers(kept, sweep, arguments.settings, *each)
        ]
    if arguments.choose:
        choose(rows)
    else:
        show(rows, rule.LEVEL, rule.BAND)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
