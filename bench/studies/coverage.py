"""Do the intervals of `px.fit` cover? 95 % intervals of coefficients and 90 % bands of new rows, on
simulated tables.

    python -m bench.studies.coverage [--tables 200] [--out coverage.csv] [--losses mm huber l1 squares]

    y = 1 + 2 a - b + 0 c + e,      150 rows, a normal, b uniform, c a coin; 100 new rows from where these come from

The errors e are normal, t with 3 degrees of freedom, or normal with 10 % gross outliers. A finished table is a
line of the file, so that the study goes on where it was stopped. Each share has the exact 95 % interval of a
binomial; the rows of one table are no independent trials, so that of bands is by a t interval over tables.
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

import proxlin as px
from proxlin.theory import binomial_interval, t_interval

TRUTH = {"a": 2.0, "b": -1.0, "c": 0.0}
ROWS, NEW = 150, 100
LEVEL, BAND = 0.95, 0.9
ERRORS = ("normal", "heavy tails", "outliers")
LOSSES = ("mm", "huber", "l1", "squares")
FIELDS = ("errors", "loss", "table", *TRUTH, "band")


def table_of(errors: str, seed: int) -> dict[str, np.ndarray]:
    """Return the rows of a fit and the new ones after them."""
    rng = np.random.default_rng([seed, ERRORS.index(errors)])
    n = ROWS + NEW
    a, b, c = rng.normal(size=n), rng.uniform(-1, 1, n), rng.integers(0, 2, n) * 1.0
    e = rng.normal(size=n)
    if errors == "heavy tails":
        e = rng.standard_t(3, size=n)
    elif errors == "outliers":
        e = np.where(rng.random(n) < 0.1, 20 * rng.standard_cauchy(n), e)
    return {"a": a, "b": b, "c": c, "y": 1 + 2 * a - b + e}


def covered(errors: str, loss: str, seed: int) -> dict[str, object]:
    """Return which coefficients are inside their intervals, and the share of new rows in the band."""
    table = table_of(errors, seed)
    fit = px.fit(
        {name: x[:ROWS] for name, x in table.items()}, "y", loss=loss, hidden=0
    )
    new = {name: x[ROWS:] for name, x in table.items()}
    rows = {row["name"]: row for row in fit.summary(LEVEL).rows}
    found: dict[str, object] = {"errors": errors, "loss": loss, "table": seed}
    for name, true in TRUTH.items():
        found[name] = int(rows[name]["low"] <= true <= rows[name]["high"])
    _, low, high = fit.predict(new, interval=BAND)
    found["band"] = float(np.mean((low <= new["y"]) & (new["y"] <= high)))
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("coverage.csv"))
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES)
    asked = parser.parse_args(argv)
    done = {}
    if asked.out.exists():
        with asked.out.open(newline="") as file:
            done = {
                (r["errors"], r["loss"], int(r["table"])): r
                for r in csv.DictReader(file)
            }
    with asked.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not done:
            writer.writeheader()
        for seed in range(asked.tables):
            for loss in asked.losses:
                for errors in ERRORS:
                    if (errors, loss, seed) in done:
                        continue
                    row = covered(errors, loss, seed)
                    done[errors, loss, seed] = {k: str(v) for k, v in row.items()}
                    writer.writerow(row)
                    file.flush()
    show(list(done.values()))
    return 0


def show(rows: list[dict[str, str]]) -> None:
    """Print the share that is covered, with its interval, for each loss and kind of errors."""
    print(
        "| loss | errors | tables | coefficients (95 %) | new rows (90 %) |\n|---|---|---|---|---|"
    )
    for loss in LOSSES:
        for errors in ERRORS:
            mine = [r for r in rows if (r["loss"], r["errors"]) == (loss, errors)]
            if len(mine) < 2:
                continue
            hits = sum(int(r[name]) for r in mine for name in TRUTH)
            count = len(mine) * len(TRUTH)
            low, high = binomial_interval(hits, count)
            mean, first, last = t_interval([float(r["band"]) for r in mine])
            print(
                f"| {loss} | {errors} | {len(mine)} | {hits / count:.1%} ({low:.1%} to {high:.1%}) "
                f"| {mean:.1%} ({first:.1%} to {last:.1%}) |"
            )


if __name__ == "__main__":
    sys.exit(main())
