"""`px.fit`: coefficients as R prints them, the rows that are wrong, bands, formulas, files, refusals."""

import csv
import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import proxlin as px
from proxlin.data.frames import as_frame
from proxlin.tables.fitted import said_once
from proxlin.tables.formula import formula_of
from proxlin.tables.linear import independent
from proxlin.tables.model import pack_models
from proxlin.tables.suspects import crowd, discovery_rates

# coefficients and standard errors of R: rlm, rq (tau 0.5 and 0.25), lmrob
REFERENCE = {
    ("stackloss", "huber"): (
        [-41.026531, 0.82937387, 0.92610818, -0.12784916],
        [9.80735, 0.11118, 0.303408, 0.128853],
    ),
    ("stackloss", "l1"): ([-39.689855, 0.83188406, 0.57391304, -0.060869565], None),
    ("stackloss", "quantile"): ([-36.0, 0.5, 1.0, 0.0], None),
    ("stackloss", "mm"): (
        [-41.524617, 0.93884534, 0.57955323, -0.11292183],
        [5.2978, 0.117429, 0.262963, 0.0698899],
    ),
    ("engel", "l1"): ([81.482247, 0.56018055], [19.2507, 0.0282772]),
    ("hbk", "mm"): (
        [-0.18961614, 0.085273566, 0.041013149, -0.053713401],
        [0.116743, 0.0732862, 0.0295607, 0.0319455],
    ),
}


@pytest.mark.reference
@pytest.mark.parametrize(("name", "loss"), REFERENCE)
def test_against_r(name, loss, data_file):
    path = data_file(f"tables/{name}.csv")
    target = {"stackloss": "stack.loss", "engel": "foodexp", "hbk": "Y"}[name]
    quantile = 0.25 if loss == "quantile" else None
    fit = px.fit(path, target, loss=loss, quantile=quantile, hidden=0)
    rows = fit.summary().rows
    coefficients, errors = REFERENCE[name, loss]
    np.testing.assert_allclose(
        [row["estimate"] for row in rows], coefficients, rtol=1e-4, atol=1e-6
    )
    if errors is not None:
        np.testing.assert_allclose(
            [row["standard error"] for row in rows], errors, rtol=0.02
        )


@pytest.mark.reference
@pytest.mark.parametrize("name", ["engel", "starsCYG"])
def test_mm_is_at_its_own_equations(name, data_file):
    """sum psi((y - x'b) / s) x = 0 and no line through two rows has a smaller M-scale."""
    frame = pd.read_csv(data_file(f"tables/{name}.csv"))
    x, y = frame.iloc[:, -2].to_numpy(float), frame.iloc[:, -1].to_numpy(float)
    fit = px.fit({"x": x, "y": y}, "y", loss="mm")
    line = fit.models[0].findings.lines[0]
    X = np.column_stack([np.ones(len(y)), x])
    t = (y - X @ line.coefficients) / line.scale
    psi = t * np.maximum(1 - (t / 4.685061) ** 2, 0) ** 2
    weight = np.abs(X).sum(axis=0)
    assert np.all(np.abs(psi @ X) < 1e-5 * weight)
    i, j = np.random.default_rng(1).permutation(len(y))[:40].reshape(2, 20)
    i, j = i[x[i] != x[j]], j[x[i] != x[j]]
    slope = (y[i] - y[j]) / (x[i] - x[j])
    r = y - y[i, None] - slope[:, None] * (x - x[i, None])
    scale = np.median(np.abs(r), axis=1)
    for _ in range(500):
        q = np.minimum((r / (1.54764 * scale[:, None])) ** 2, 1)
        scale *= np.sqrt(2 * np.sum(1 - (1 - q) ** 3, axis=1) / (len(y) - 2))
    assert np.all(line.scale <= scale * (1 + 1e-9))
    if name == "starsCYG":
        assert line.coefficients[1] > 2


def stackloss(data_file):
    """The features with a column of ones, the target, and both as a table."""
    frame = pd.read_csv(data_file("tables/stackloss.csv"))
    y = frame.pop("stack.loss").to_numpy(float)
    X = np.column_stack([np.ones(len(y)), frame.to_numpy(float)])
    return X, y, dict(frame.items()) | {"y": y}


def fitted_errors(table, errors):
    rows = px.fit(table, "y", loss="huber", hidden=0, errors=errors).summary().rows
    estimates = np.array([row["estimate"] for row in rows])
    return estimates, np.array([row["standard error"] for row in rows])


@pytest.mark.reference
def test_sandwich_errors_are_those_of_the_formula(data_file):
    """A^-1 B A^-1 with A the sum of psi' x x' and B that of psi^2 x x', written out."""
    X, y, table = stackloss(data_file)
    estimates, errors = fitted_errors(table, "sandwich")
    away = y - X @ estimates
    sigma = np.median(np.abs(away)) / 0.67448975
    z = away / sigma
    psi = np.clip(z, -1.345, 1.345)
    A = np.linalg.inv(X.T @ (X * (np.abs(z) < 1.345)[:, None]) / sigma)
    B = X.T @ (X * (psi**2)[:, None])
    np.testing.assert_allclose(errors, np.sqrt(np.diag(A @ B @ A)), rtol=1e-3)


@pytest.mark.reference
def test_bootstrap_errors_are_those_of_fits_by_hand(data_file):
    """Weighted least squares, repeated to their end, for 500 draws of other exponential weights.

    300 fits of ours know an error to 4 %, and these to 3 %: the band is four times both.
    """
    X, y, table = stackloss(data_file)
    estimates, errors = fitted_errors(table, "bootstrap")
    sigma = np.median(np.abs(y - X @ estimates)) / 0.67448975
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(500):
        s = rng.exponential(size=len(y))
        w = estimates
        for _ in range(100):
            z = np.maximum(np.abs(y - X @ w) / sigma, 1e-12)
            root = np.sqrt(s * np.minimum(1, 1.345 / z))
            w = np.linalg.lstsq(X * root[:, None], y * root, rcond=None)[0]
        draws.append(w)
    np.testing.assert_allclose(errors, np.std(draws, axis=0), rtol=0.2)


def prices(n: int = 150, seed: int = 0) -> dict[str, np.ndarray]:
    """price = 3 area + 20 [Rome] + noise; row 8 has its price times 1000, row 21 its area times 10."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(40, 120, n)
    city = np.where(rng.random(n) < 0.4, "Rome", "Oslo")
    price = 3 * area + 20 * (city == "Rome") + 4 * rng.normal(size=n)
    price[7] *= 1000
    area[20] *= 10
    return {"area": area, "city": city, "price": price}


@pytest.fixture(scope="module")
def fit() -> px.Fit:
    return px.fit(prices(), "price", loss="mm")


def test_coefficients_have_names_and_intervals(fit):
    rows = {row["name"]: row for row in fit.summary().rows}
    assert list(rows) == ["intercept", "area", "city = Rome"]
    for name, true in {"area": 3.0, "city = Rome": 20.0}.items():
        row = rows[name]
        assert row["low"] < true < row["high"] and row["p-value"] < 1e-6
    text = str(fit.summary())
    assert "city = Oslo" in text and "Scale of the residuals (sigma): price " in text
    wide, narrow = (fit.summary(level).rows[1] for level in (0.99, 0.5))
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]


def test_wrong_rows_are_found_and_explained(fit):
    found = {row["row"]: row for row in fit.outliers().rows}
    price = prices()["price"][7]
    assert found[8]["column"] == "price"
    assert f"1,000 times too large: {price:.6g} for " in found[8]["hint"]
    assert found[21]["column"] == "area" and "10 times too large" in found[21]["hint"]
    assert found[21]["far"]
    wrong = [row for row in found.values() if row["apart"].startswith("target")]
    assert {8, 21} <= {row["row"] for row in wrong} and len(wrong) <= 5


def test_a_convex_fit_says_that_far_features_decide_it():
    """Ten rows of far features with one target: no convex loss can ignore them."""
    table = {name: cells.copy() for name, cells in prices().items()}
    table["area"][30:40] = np.linspace(900, 1000, 10)
    convex = px.fit(table, "price", loss="l1", hidden=0)
    (warning,) = convex.models[0].findings.warnings
    assert (
        "rows of far features decide this linear fit (rows " in warning
        and "'mm'" in warning
    )
    clean = px.fit(
        {name: np.delete(cells, [7, 20]) for name, cells in prices().items()},
        "price",
        loss="l1",
        hidden=0,
    )
    assert clean.models[0].findings.warnings == ()


def far_rows(rows: slice, far: np.ndarray) -> dict[str, np.ndarray]:
    """The table of prices without its slips, and areas that go on and on without the prices."""
    table = {name: np.delete(cells, [7, 20]) for name, cells in prices().items()}
    table["area"][rows] = far
    return table


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_quantile_says_that_far_features_decide_it(level):
    """The median is compared with MM, and any other quantile with itself without the far rows."""
    settings = {"loss": "quantile", "quantile": level, "hidden": 0}
    table = far_rows(slice(28, 38), np.linspace(900, 1000, 10))
    (warning,) = px.fit(table, "price", **settings).models[0].findings.warnings
    assert (
        f"quantile {level}: rows of far features decide this linear fit (rows 29"
        in warning
    )
    assert ("loss 'mm'" in warning) == (level == 0.5)
    clean = px.fit(far_rows(slice(0), np.zeros(0)), "price", **settings)
    assert clean.models[0].findings.warnings == ()


def test_weights_count_where_far_features_are_looked_for():
    """Far rows of nearly no weight decide nothing, whatever a fit without weights would be."""
    table = far_rows(slice(28, 38), np.linspace(900, 1000, 10))
    table["count"] = np.ones(148)
    settings = {"loss": "l1", "hidden": 0, "weights": "count"}
    (warning,) = px.fit(table, "price", **settings).models[0].findings.warnings
    assert "without them the same loss gives other coefficients" in warning
    table["count"][28:38] = 1e-6
    assert px.fit(table, "price", **settings).models[0].findings.warnings == ()


def test_a_table_of_outliers_is_fitted_and_says_so():
    """No unit tells an outlier from a usual row: errors 1e8 times as large are those of another unit."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=150)
    e = rng.standard_cauchy(150)
    wild = px.fit({"x": x, "y": 2 * x + 1e8 * e}, "y", loss="mm")
    (note,) = wild.models[0].findings.warnings
    assert note.startswith("y: 20 of 150 rows do not go with the others; so many are")
    tame = px.fit({"x": x, "y": 2e-8 * x + e}, "y", loss="mm")
    np.testing.assert_allclose(
        wild.models[0].findings.lines[0].coefficients,
        1e8 * tame.models[0].findings.lines[0].coefficients,
        rtol=1e-6,
    )


def test_suspects_beyond_those_listed_are_counted():
    t = np.zeros(10_000)
    assert crowd(t, "y") is None
    t[:300] = 50.0
    assert "300 of 10000 rows" in crowd(t, "y") and "200 most" in crowd(t, "y")
    t[:3000] = 50.0
    assert "3000 of 10000 rows" in crowd(t, "y") and "hardly slips" in crowd(t, "y")


def test_predictions_warn_of_cells_that_the_fit_had_not_seen(fit):
    new = {"area": [np.nan, 50.0], "city": ["Rome", "Bonn"]}
    with pytest.warns(UserWarning) as caught:
        values = fit.predict(new)
    said = [str(each.message) for each in caught]
    median = np.median(prices()["area"])
    assert said == [
        f"column 'area': 1 of 2 cells are missing, taken as its median {median:.6g}.",
        "column 'city': 'Bonn', not seen in the fit, taken as none of its categories.",
    ]
    assert values.shape == (2,)


def test_notes_of_parts_are_said_once():
    """Columns whose names differ by a number are two columns."""
    one, two = (f"column 'x{j}': 1 of 9 cells are missing, taken as 3" for j in (1, 2))
    new = "column 'c': {}, not seen in the fit, taken as none of its categories"
    notes = [one, two, one.replace("1 of 9", "4 of 7"), new.format("'a'")]
    notes.append(new.format("2 categories such as 'b'"))
    assert said_once(notes) == [one, two, new.format("'a'")]


def test_bands_and_shapes(fit):
    new = {"area": [50.0, 100.0], "city": ["Rome", "Oslo"]}
    values, low, high = fit.predict(new, interval=0.9)
    assert values.shape == (2,) and np.all(low < values) and np.all(values < high)
    np.testing.assert_allclose(values, [170, 300], atol=5)
    with pytest.raises(ValueError, match="needs 999 rows that the fit did not see"):
        fit.predict(new, interval=0.999)
    with pytest.raises(ValueError, match="interval must be between 0 and 1"):
        fit.predict(new, interval=1.5)
    two = px.fit(
        prices() | {"tax": prices(seed=1)["price"]}, ["price", "tax"], loss="mm"
    )
    assert two.predict(new | {"price": [1.0, 2.0]}).shape == (2, 2)


def test_quantiles_do_not_cross():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 120)
    y = x * rng.normal(size=120)
    fit = px.fit(
        {"x": x, "y": y}, "y", loss="quantile", quantile=[0.9, 0.5, 0.6], hidden=0
    )
    assert fit.quantiles == (0.5, 0.6, 0.9)
    # where the lines cross, far on the other side
    values = fit.predict({"x": np.linspace(-3, 3, 50)})
    assert values.shape == (50, 3) and np.all(np.diff(values, axis=1) >= 0)
    lines = [model.findings.lines[0].coefficients for model in fit.models]
    assert (lines[2] - lines[0])[1] > 0
    below = np.mean(y <= fit.predict({"x": x})[:, 2])
    assert 0.87 < below < 0.93
    assert {row["quantile"] for row in fit.summary().rows} == {0.5, 0.6, 0.9}


def test_a_file_keeps_everything(fit, tmp_path):
    path = tmp_path / "fit.npz"
    fit.save(path)
    again = px.load_fit(path)
    assert str(again.outliers()) == str(fit.outliers())
    assert again.summary().rows == fit.summary().rows
    new = {"area": [50.0], "city": ["Rome"]}
    np.testing.assert_array_equal(
        again.predict(new, interval=0.8), fit.predict(new, interval=0.8)
    )
    again.save(tmp_path / "twice.npz")
    assert (tmp_path / "twice.npz").read_bytes() == path.read_bytes()
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="is not a model written by proxlin fit"):
        px.load_fit(path)


def test_every_row_is_in_the_pictures(fit):
    """A row outside a panel is a triangle at its edge: no point is lost."""
    figure = fit.plot()
    for axes in figure.axes[:3]:
        marks = [line for line in axes.lines if line.get_linestyle() == "None"]
        assert sum(len(line.get_xdata()) for line in marks) == 150
    assert [text.get_text() for text in figure.axes[3].get_yticklabels()] == [
        "city",
        "area",
    ]


def test_html_is_escaped():
    table = {"<b>": np.arange(30.0), "y": np.arange(30.0) + np.sin(np.arange(30.0))}
    found = px.fit(table, "y", loss="mm")._repr_html_()
    assert "<b></td>" not in found and "&lt;b&gt;" in found


# ------------------------------------------------------------------------------------------ tables


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_kinds_of_tables(make, fit):
    frame = as_frame(make(prices()))
    assert [column.numeric for column in frame.columns] == [True, False, True]
    np.testing.assert_array_equal(frame["area"].cells, prices()["area"])


def test_cells_of_pandas():
    frame = as_frame(
        pd.DataFrame(
            {
                "whole": pd.array([1, None, 3], "Int64"),
                "truth": [True, False, True],
                "text": ["a", None, "b"],
                "kind": pd.Categorical([1, 2, 1]),
                "day": pd.to_datetime(["2020-01-01", "2020-01-02", None]),
            }
        )
    )
    assert [column.numeric for column in frame.columns] == [
        *(True, True, False, False, False)
    ]
    assert frame["whole"].missing.tolist() == [False, True, False]
    assert frame["kind"].cells.tolist() == ["1", "2", "1"]
    assert frame["day"].missing.tolist() == [False, False, True]


def test_columns_that_follow_from_others():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 1))
    dummies = np.eye(3)[rng.integers(0, 3, 50)]
    X = np.concatenate([x, dummies, 1e-5 * x + 3, np.ones((50, 1))], axis=1)
    first = np.array([False, True, False, False, False, False])
    assert independent(X, first).tolist() == [0, 2, 3]


def test_discovery_rates_against_their_definition():
    p = np.random.default_rng(0).random(30) ** 3
    rates = discovery_rates(p)
    for i in range(30):
        larger = [level for level in p if level >= p[i]]
        want = min(level * 30 / np.sum(p <= level) for level in larger)
        assert rates[i] == pytest.approx(min(want, 1))


# ---------------------------------------------------------------------------------------- formulas


def test_a_formula_computes_its_columns():
    table = prices() | {"my col": np.arange(150.0)}
    frame = as_frame(table)
    formula = formula_of(
        "log(price) ~ np.sqrt(area) + I(area**2 / 10) + C(city) + area:city + `my col`",
        frame,
    )
    found = formula.apply(frame, targets=True)
    area = table["area"]
    assert formula.targets == ("log(price)",)
    np.testing.assert_allclose(found["log(price)"].cells, np.log(table["price"]))
    np.testing.assert_allclose(found["np.sqrt(area)"].cells, np.sqrt(area))
    np.testing.assert_allclose(found["I(area ** 2 / 10)"].cells, area**2 / 10)
    assert found["C(city)"].cells.tolist() == table["city"].tolist()
    rome = found["area:city[Rome]"].cells
    np.testing.assert_allclose(rome, np.where(table["city"] == "Rome", area, 0))
    np.testing.assert_array_equal(found["my col"].cells, np.arange(150.0))


def test_a_formula_is_the_columns_it_names(fit, tmp_path):
    by_formula = px.fit(prices(), "price ~ area + C(city)", loss="mm")
    for one, two in zip(fit.summary().rows, by_formula.summary().rows, strict=True):
        assert two["estimate"] == pytest.approx(one["estimate"], rel=1e-9)
    by_formula.save(tmp_path / "fit.npz")
    new = {"area": [50.0, 60.0], "city": ["Rome", "Oslo"]}
    np.testing.assert_allclose(
        px.load_fit(tmp_path / "fit.npz").predict(new), fit.predict(new)
    )


@pytest.mark.parametrize(
    "term",
    [
        *("__import__('os').system('x')", "area.__class__", "open('x')"),
        *("(lambda: 1)()", "[area][0]", "area if area else 1", "eval('1')"),
        *("np.load('x')", "log(area, out=area)", "'text'"),
    ],
)
def test_a_formula_runs_nothing(term):
    with pytest.raises(ValueError, match="not understood|has no column"):
        formula_of(f"price ~ area + {term}", as_frame(prices())).apply(
            as_frame(prices())
        )


# ---------------------------------------------------------------------------------------- refusals


def few(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=rows) for name in "abcdefghijkly"}


@pytest.mark.parametrize(
    ("table", "target", "settings", "sentence"),
    [
        (prices(), "cost", {}, "has no column 'cost'"),
        (prices(), "price ~ size", {}, "has no column 'size'"),
        (prices(), "price ~ area +", {}, "is not understood; write it as"),
        (prices(), "price ~ area - 1", {}, "takes the intercept away"),
        (prices(), "price ~ log(area - 1000)", {}, "is not finite there"),
        (prices(), "price ~ log(city)", {}, "holds texts"),
        (prices() | {"price": np.ones(150)}, "price", {}, "a target must vary"),
        (few(12), "y", {"hidden": 0}, "12 rows are too few for the 12 coefficients"),
        (few(30), "y", {"loss": "mm"}, "needs more than 26"),
        ({"y": np.arange(20.0), "c": ["a"] * 20}, "y", {}, "no column left"),
        (prices(), "price", {"loss": "quantile"}, "needs a level"),
        (prices(), "price", {"loss": "quantile", "quantile": 1.5}, "between 0 and 1"),
        (prices(), "price", {"quantile": 0.5}, "goes with loss 'quantile'"),
        (prices(), "price", {"loss": "mm", "hidden": 8}, "for linear models"),
        (prices(), "price", {"loss": "l3"}, "loss must be one of"),
        (prices(), "price", {"errors": "none"}, "errors must be one of"),
        (prices(), "price", {"features": ["price"]}, "both a target and a feature"),
        (prices(), [], {}, "Name a target"),
        (
            prices(),
            "price",
            {"loss": "mm", "errors": "bootstrap"},
            "standard errors of lmrob",
        ),
        (3, "price", {}, "A table is a path, a frame"),
        ({"a": [1.0, 2.0], "y": [1.0]}, "y", {}, "differ in length"),
    ],
)
def test_what_cannot_be_fitted_is_a_sentence(table, target, settings, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        px.fit(table, target, **settings)
    assert "\n" not in str(caught.value)


def test_exact_rows_are_a_sentence_for_mm():
    table = {"x": np.arange(30.0), "y": 2 * np.arange(30.0)}
    with pytest.raises(ValueError, match="'y': .* fitted exactly"):
        px.fit(table, "y", loss="mm")
    exact = px.fit(table, "y", loss="l1", hidden=0)
    assert exact.summary().rows[1]["estimate"] == pytest.approx(2)


def test_levels_are_checked(fit):
    for call in (fit.summary, fit.outliers):
        with pytest.raises(ValueError, match="level must be between 0 and 1"):
            call(0.0)


def test_the_csv_of_outliers_holds_the_rows(fit, tmp_path):
    """`Listing.rows` are plain dicts, which pandas and csv take."""
    rows = fit.outliers().rows
    assert len(pd.DataFrame(rows)) == len(rows)
    with (tmp_path / "rows.csv").open("w") as file:
        csv.DictWriter(file, rows[0]).writerows(rows)


@pytest.mark.parametrize("losses", [("l1", "l1"), ("quantile 0.7", "quantile 0.2")])
def test_a_file_of_models_that_are_no_quantiles_in_order_is_refused(losses, tmp_path):
    x = np.arange(20.0)
    model = px.fit({"x": x, "y": x + np.sin(x)}, "y", loss="mm").models[0]
    models = [
        dataclasses.replace(model, asked=dataclasses.replace(model.asked, loss=loss))
        for loss in losses
    ]
    path = tmp_path / "fit.npz"
    path.write_bytes(pack_models(models))
    with pytest.raises(ValueError, match="or it is damaged"):
        px.load_fit(path)
    path.write_bytes(pack_models(models[:1]))
    assert len(px.load_fit(path).models) == 1


def weighted_table(n=60):
    rng = np.random.default_rng(8)
    x = rng.normal(size=n)
    y = 1 + 2 * x + rng.standard_t(3, n)
    return {"x": x, "y": y, "count": np.resize([1.0, 2.0, 0.0, 3.0], n)}


@pytest.mark.parametrize("loss", ["l1", "huber", "squares"])
def test_a_weight_counts_rows(loss):
    """The rows of weight 0 are wild: they are no rows."""
    table = weighted_table()
    table["y"][table["count"] == 0] = 1e6
    times = table["count"].astype(int)
    again = {name: np.repeat(table[name], times) for name in ("x", "y")}
    settings = {"loss": loss, "hidden": 0, "errors": "sandwich"}
    weighted = px.fit(table, "y", weights="count", **settings)
    repeated = px.fit(again, "y", **settings)
    found = [row["estimate"] for row in weighted.summary().rows]
    expected = [row["estimate"] for row in repeated.summary().rows]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert "15 of 60 rows have no weight and are left out" in weighted.notes
    assert [row["name"] for row in weighted.summary().rows] == ["intercept", "x"]
    assert all(row["row"] % 4 != 3 for row in weighted.outliers().rows)
    assert weighted.predict({"x": [0.0]}).shape == (1,)


def test_equal_weights_are_none(tmp_path):
    table = weighted_table()
    table["count"][:] = 7.0
    one = px.fit(table, "y", weights="count", loss="huber", hidden=0)
    del table["count"]
    other = px.fit(table, "y", loss="huber", hidden=0)
    rows = np.array([0.0, 1.0])
    np.testing.assert_allclose(
        one.predict({"x": rows}), other.predict({"x": rows}), rtol=1e-9
    )
    one.save(tmp_path / "fit.npz")
    assert px.load_fit(tmp_path / "fit.npz").models[0].asked.weights == "count"


@pytest.mark.parametrize(
    ("change", "settings", "sentence"),
    [
        ({}, {"weights": "no"}, "no column 'no'"),
        ({}, {"weights": 3}, "weights is the name of a column; put the"),
        ({}, {"weights": "y"}, "'y' is both a target and a weight"),
        ({}, {"features": ["x", "count"]}, "'count' is both a weight and a feature"),
        ({}, {"loss": "mm"}, "loss 'mm' takes no weights"),
        ({"count": [-1.0] * 60}, {}, "is -1 in row 1; a weight is 0 or more"),
        ({"count": [0.0] * 60}, {}, "is 0 in every row; no row counts"),
        ({"count": ["a"] * 60}, {}, "holds no numbers; it cannot be weights"),
    ],
)
def test_weights_that_are_none(change, settings, sentence):
    table = weighted_table() | change
    given = {"weights": "count", "hidden": 0, **settings}
    with pytest.raises(ValueError, match=sentence):
        px.fit(table, "y", **given)


@pytest.mark.parametrize("loss", ["mm", "huber"])
@pytest.mark.parametrize("factor", [1e-150, 1e-200, 1e149])
def test_units_of_a_column_do_not_matter(loss, factor):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 60))
    y = a + 2 * b + 0.1 * rng.normal(size=60)
    usual = px.fit({"a": a, "b": b, "y": y}, "y", loss=loss, hidden=0)
    fit = px.fit({"a": a, "b": factor * b, "y": y}, "y", loss=loss, hidden=0)
    one, two = (
        np.array([row["estimate"] for row in each.summary().rows])
        for each in (usual, fit)
    )
    np.testing.assert_allclose(two * [1, 1, factor], one, rtol=1e-5, atol=1e-7)
    # the variance of 1e200 is no float64, and the fit says so
    errors = [row["standard error"] for row in fit.summary().rows]
    said = "a variance is beyond the numbers of float64" in str(fit.summary())
    assert said is (factor == 1e-200)
    assert np.isfinite(np.array(errors, float)).all() is not said
