"""Do the intervals of `px.fit` cover? 95 % intervals of coefficients and 90 % bands of new rows, on
simulated tables.

    python -m bench.studies.coverage [--tables 200] [--out runs.csv] [--summary FILE]
    python -m bench.studies.coverage --arms small --losses mm squares --tables 100

    y = 1 + 2 a - b + 0 c + e,      a normal, b uniform, c a coin; 100 new rows from where these come from

    table      150 rows, linear, each loss         bands of the rows that are held out
    small      40 rows, linear, each loss          bands of ten parts, held out in turn
    network    150 rows, the default (mixture)     bands of the rows that are held out; a tenth of the tables

The errors e are normal, t with 3 degrees of freedom, or normal with 10 % gross outliers. New rows come from where
the table comes from, outliers included; "clean" are the same rows before a tenth of them was spoiled. A finished
table is a line of --out, so that the study goes on where it was stopped. Each share has the exact 95 % interval of
a binomial; the new rows of one table are no independent trials, so that of bands is by a t interval over tables.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import proxlin as px
from proxlin.theory import binomial_interval, t_interval

TRUTH = {"a": 2.0, "b": -1.0, "c": 0.0}
NEW = 100
LEVEL, BAND = 0.95, 0.9
ERRORS = ("normal", "heavy tails", "outliers")
LINEAR = ("mm", "huber", "l1", "squares")
LOSSES = (*LINEAR, "l2")
# rows, hidden units, losses, and how many times fewer tables: a network takes ten times as long
ARMS = {
    "table": (150, 0, LINEAR, 1),
    "small": (40, 0, LINEAR, 1),
    "network": (150, 64, ("l2",), 10),
}
FIELDS = ("arm", "errors", "loss", "table", *TRUTH, "band", "clean")
Case = tuple[str, str, str, int]


def table_of(
    errors: str, rows: int, seed: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the rows of a fit and the new ones after them, and the targets before some were spoiled."""
    rng = np.random.default_rng([seed, ERRORS.index(errors)])
    n = rows + NEW
    a, b, c = rng.normal(size=n), rng.uniform(-1, 1, n), rng.integers(0, 2, n) * 1.0
    e = rng.normal(size=n)
    spoiled = e
    if errors == "heavy tails":
        e = rng.standard_t(3, size=n)
        spoiled = e
    elif errors == "outliers":
        spoiled = np.where(rng.random(n) < 0.1, 20 * rng.standard_cauchy(n), e)
    line = 1 + 2 * a - b
    return {"a": a, "b": b, "c": c, "y": line + spoiled}, line + e


def covered(arm: str, errors: str, loss: str, seed: int) -> dict[str, object]:
    """Return which coefficients are inside their intervals, and the shares of new rows in the band."""
    rows, hidden, *_ = ARMS[arm]
    table, clean = table_of(errors, rows, seed)
    fit = px.fit(
        {name: x[:rows] for name, x in table.items()}, "y", loss=loss, hidden=hidden
    )
    new = {name: x[rows:] for name, x in table.items()}
    told = {row["name"]: row for row in fit.summary(LEVEL).rows}
    found: dict[str, object] = {
        "arm": arm,
        "errors": errors,
        "loss": loss,
        "table": seed,
    }
    for name, true in TRUTH.items():
        found[name] = int(told[name]["low"] <= true <= told[name]["high"])
    _, low, high = fit.predict(new, interval=BAND)
    for name, y in {"band": new["y"], "clean": clean[rows:]}.items():
        found[name] = float(np.mean((low <= y) & (y <= high)))
    return found


def cases(arms: Sequence[str], asked: Sequence[str], tables: int) -> Iterator[Case]:
    """Return arm, errors, loss and seed of each fit."""
    for arm in arms:
        _, _, losses, fewer = ARMS[arm]
        for seed in range(-(-tables // fewer)):
            for loss in [loss for loss in losses if loss in asked]:
                for errors in ERRORS:
                    yield arm, errors, loss, seed


def shares(rows: Sequence[dict[str, str]]) -> list[dict[str, object]]:
    """Return a row for each arm, loss and kind of errors: what is covered, with its interval."""
    found = []
    kinds = [
        (arm, loss, errors)
        for arm, (_, _, losses, _) in ARMS.items()
        for loss in losses
        for errors in ERRORS
    ]
    for kind in kinds:
        mine = [r for r in rows if (r["arm"], r["loss"], r["errors"]) == kind]
        if len(mine) < 2:
            continue
        row: dict[str, object] = dict(zip(("arm", "loss", "errors"), kind, strict=True))
        row["tables"] = len(mine)
        for name in TRUTH:
            hits = sum(int(r[name]) for r in mine)
            ends = binomial_interval(hits, len(mine))
            row |= _with_ends(name, hits / len(mine), *ends)
        for name in ("band", "clean"):
            row |= _with_ends(name, *t_interval([float(r[name]) for r in mine]))
        found.append(row)
    return found


def _with_ends(
    name: str, share: float, low: float, high: float
) -> dict[str, float | str]:
    values = {name: share, f"{name} low": low, f"{name} high": high}
    return {key: round(float(value), 4) for key, value in values.items()}


def show(rows: Sequence[dict[str, object]]) -> None:
    """Print a line for each row of `shares`, in per cent."""
    names = (*TRUTH, "band", "clean")
    print("| arm | loss | errors | tables | " + " | ".join(names) + " |")
    print("|---" * (4 + len(names)) + "|")
    for row in rows:
        cells = [str(row[name]) for name in ("arm", "loss", "errors", "tables")]
        for name in names:
            share, low, high = (
                100 * float(str(row[f"{name}{end}"])) for end in ("", " low", " high")
            )
            cells.append(f"{share:.1f} ({low:.1f} to {high:.1f})")
        print("| " + " | ".join(cells) + " |")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.studies.coverage",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("coverage-runs.csv"))
    parser.add_argument("--summary", type=Path, help="a CSV file of the shares")
    asked = parser.parse_args(argv)
    rows = []
    if asked.out.exists():
        with asked.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(r["arm"], r["errors"], r["loss"], int(r["table"])) for r in rows}
    with asked.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        for case in cases(asked.arms, asked.losses, asked.tables):
            if case in done:
                continue
            arm, errors, loss, seed = case
            row = covered(arm, errors, loss, seed)
            rows.append({name: str(value) for name, value in row.items()})
            writer.writerow(row)
            file.flush()
    found = shares(rows)
    show(found)
    if asked.summary is not None:
        with asked.summary.open("w", newline="") as file:
            writer = csv.DictWriter(file, found[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
