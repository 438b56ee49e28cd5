"""Tables in parts: the fit of a folder of tiny row groups is that of its rows in one table, wherever they are read."""

from dataclasses import replace

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.optimize import linprog

import proxlin as px
from proxlin.cli.main import main
from proxlin.data.parts import DaskParts, parts_of
from proxlin.errors import UserError
from proxlin.tables.asked import Asked
from proxlin.tables.described import Sizes, row_numbers
from proxlin.tables.fitted import fit_of
from proxlin.tables.streaming import fit_parts
from proxlin.tables.sums import Loss, reduced

SMALL = Sizes(held=120, validation=120, sample=400)
ROWS = 1500


def columns(rows: int = ROWS, seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    x[rng.random(rows) < 0.03, 1] = np.nan
    city = rng.choice(["Oslo", "Rome", "Bonn"], rows)
    y = 2 * x[:, 0] + np.nan_to_num(x[:, 1]) + (city == "Rome")
    y += 0.3 * rng.standard_t(3, size=rows)
    y[7] *= 1000
    z = x[:, 2] - x[:, 0] + rng.normal(size=rows)
    return {
        "a": x[:, 0],
        "b": x[:, 1],
        "c": x[:, 2],
        "city": city,
        "y": y,
        "z": z,
        "count": rng.integers(1, 4, rows).astype(float),
    }


def write(path, table: dict, group: int = 130) -> None:
    pq.write_table(pa.table(table), path, row_group_size=group)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("table")
    table = columns()
    for i, rows in enumerate((slice(0, 700), slice(700, ROWS))):
        write(
            path / f"{i}.parquet", {name: cells[rows] for name, cells in table.items()}
        )
    return path


def fitted(parts, *targets, sizes=SMALL, **asked):
    with jax.enable_x64(True):
        return fit_parts(
            parts, Asked(targets, **asked), lambda what, share: None, sizes
        )


def coefficients(model):
    return {
        (line.target, name): value
        for line in model.findings.lines
        for name, value in zip(
            ["intercept", *(model.findings.names[c] for c in line.kept)],
            line.coefficients,
            strict=True,
        )
    }


def test_least_squares_of_parts_is_that_of_one_table(folder):
    """Of all rows, whose missing cells and weights count as they do in memory."""
    parts = parts_of(folder)
    found = fitted(
        parts.only(["a", "c", "city", "y", "z", "count"]),
        *("y", "z"),
        loss="squared",
        hidden=0,
        weights="count",
    ).model
    table = columns()
    s = table["count"]
    cities = [table["city"] == name for name in ("Oslo", "Rome")]
    D = np.column_stack([np.ones(ROWS), table["a"], table["c"], *cities])
    Y = np.column_stack([table["y"], table["z"]])
    root = np.sqrt(s)[:, None]
    expected = np.linalg.lstsq(D * root, Y * root, rcond=None)[0]
    own = coefficients(found)
    for j, target in enumerate(("y", "z")):
        names = ("intercept", "a", "c", "city = Oslo", "city = Rome")
        got = [own[target, name] for name in names]
        np.testing.assert_allclose(got, expected[:, j], atol=1e-9)


def test_the_median_of_parts_is_exact_and_tells_the_wrong_row(folder):
    parts = parts_of(folder).only(["a", "c", "y"])
    report = fitted(parts, "y", loss="l1", hidden=0)
    table = columns()
    D = np.column_stack([np.ones(ROWS), table["a"], table["c"]])
    A = np.hstack([D, np.eye(ROWS), -np.eye(ROWS)])
    cost = np.concatenate([np.zeros(3), np.ones(2 * ROWS)])
    bounds = [(None, None)] * 3 + [(0, None)] * (2 * ROWS)
    best = linprog(cost, A_eq=A, b_eq=table["y"], bounds=bounds)
    own = coefficients(report.model)
    got = np.array([own["y", name] for name in ("intercept", "a", "c")])
    value = np.abs(D @ got - table["y"]).sum()
    assert value <= best.fun * (1 + 1e-9)
    assert report.model.findings.lines[0].converged
    fit = fit_of([report])
    worst = fit.outliers().rows[0]
    assert worst["row"] == 8 and worst["value"] == table["y"][7]
    assert report.model.about["held_out"] == len(report.truth) < ROWS / 5
    # the rows held out are told by the seed alone
    held = row_numbers(0, np.arange(ROWS)) < SMALL.shares(ROWS, 3)[0]
    assert np.array_equal(np.sort(report.truth[:, 0]), np.sort(table["y"][held]))


@pytest.mark.parametrize("level", [0.2, 0.5, 0.9])
def test_the_fit_of_rows_near_it_is_exact(level):
    """Against a linear program, with the gradients of other rows as they would be far away."""
    rng = np.random.default_rng(0)
    D = np.column_stack([np.ones(90), rng.normal(size=(90, 2))])
    u = rng.normal(size=90)
    c = 0.3 * rng.normal(size=3)
    s = rng.integers(1, 3, 90).astype(float)
    b = reduced(Loss("clipped", -level, 1 - level, 0.0), D, u, s, c, 1.0)
    value = lambda b: float(
        s @ np.maximum((1 - level) * (u + D @ b), -level * (u + D @ b)) + c @ b
    )
    A = np.hstack([D, -np.eye(90), np.eye(90)])
    cost = np.concatenate([c, (1 - level) * s, level * s])
    bounds = [(None, None)] * 3 + [(0, None)] * 180
    best = linprog(cost, A_eq=A, b_eq=-u, bounds=bounds)
    assert value(b) <= best.fun + 1e-7


def test_partitions_give_what_row_groups_give(folder):
    """The sums have the same order, so they are the same numbers."""
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    names = ["a", "b", "city", "y"]
    asked = {"loss": "huber", "hidden": 0}
    one = fitted(parts_of(folder).only(names), "y", **asked).model
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(columns())
    with dask.config.set(scheduler="synchronous"):
        parts = parts_of(frames.from_pandas(table, npartitions=7))
        assert isinstance(parts, DaskParts)
        two = fitted(parts.only(names), "y", **asked).model
    a = coefficients(one)
    b = coefficients(two)
    assert a.keys() == b.keys()
    np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-10)


def test_a_small_folder_is_one_table(folder, tmp_path, monkeypatch):
    """It is read in parts for predictions too, if it is a large one, which gives the same numbers."""
    whole = parts_of(folder).whole()
    assert len(whole) == ROWS
    assert np.array_equal(whole["a"].cells, columns()["a"])
    one = px.fit(folder, "y", features=["a"], hidden=0, loss="squares")
    two = px.fit(columns(), "y", features=["a"], hidden=0, loss="squares")
    assert one.summary().rows == two.summary().rows
    expected = two.predict(columns())
    assert np.array_equal(one.predict(folder), expected)
    monkeypatch.setattr("proxlin.tables.fitted.Sizes", lambda: Sizes(0, 0, 0))
    assert np.array_equal(one.predict(folder), expected)
    one.save(tmp_path / "m.npz")
    out = tmp_path / "out.csv"
    asked = ["predict", str(tmp_path / "m.npz"), str(folder)]
    assert main([*asked, "--out", str(out)]) == 0
    name, *lines = out.read_text().splitlines()
    assert name == "y" and np.array_equal(np.array(lines, float), expected)
    bad = tmp_path / "bad"
    bad.mkdir()
    write(bad / "1.parquet", {"b": [1.0]})
    assert main(["predict", *asked[1:2], str(bad), "--out", str(tmp_path / "no")]) == 2
    assert not (tmp_path / "no").exists()


BAD = {
    "empty": ({}, "is a folder that is empty."),
    "none": ({"notes.txt": None}, "is a folder without Parquet files"),
    "fewer": (
        {"1.parquet": {"x": [1.0], "y": [1.0]}, "2.parquet": {"x": [1.0]}},
        "2.parquet has no column 'y'",
    ),
    "more": (
        {"1.parquet": {"y": [1.0]}, "2.parquet": {"y": [1.0], "z": [1.0]}},
        "2.parquet has a column 'z'",
    ),
    "types": (
        {"1.parquet": {"x": [1.0], "y": [1.0]}, "2.parquet": {"x": ["a"], "y": [1.0]}},
        "2.parquet, column 'x' holds texts (string), and numbers in",
    ),
    "damaged": ({"1.parquet": b"PAR1"}, "1.parquet is not a Parquet file"),
}


@pytest.mark.parametrize("name", BAD)
def test_folders_that_are_no_table(name, tmp_path, capsys):
    files, said = BAD[name]
    path = tmp_path / "table"
    path.mkdir()
    for file, content in files.items():
        if isinstance(content, dict):
            write(path / file, content)
        else:
            (path / file).write_bytes(content or b"text")
    out = tmp_path / "out"
    assert main(["fit", str(path), "--target", "y", "--out", str(out)]) == 2
    text, error = capsys.readouterr()
    assert text == "" and said in error and error.count("\n") == 1
    assert not out.exists()


def test_what_parts_are_not_made_for_is_a_sentence(folder, tmp_path):
    parts = parts_of(folder)
    with pytest.raises(UserError, match=r"'sgd' is not made"):
        fitted(parts, "y", solver="sgd")
    with pytest.raises(UserError, match="too few to be fitted in parts"):
        fitted(parts, "y", sizes=replace(SMALL, held=20))
    write(tmp_path / "1.parquet", {"x": [1.0, 2.0], "y": [1.0, 1.0]})
    with pytest.raises(UserError, match="in every row; a target must vary"):
        fitted(parts_of(tmp_path), "y")
