"""`proxlin fit` and `proxlin predict`: a table in, a model, its errors and predictions out; bad input is a sentence."""

import csv
import dataclasses
import io
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from good_files import workbook
from proxlin.cli import fit as commands_fit
from proxlin.cli.main import main
from proxlin.cost import Status
from proxlin.data import frames
from proxlin.data.formats import texts
from proxlin.tables import columns, outputs, page, training
from proxlin.tables import engine as fitting
from proxlin.tables import search as searching
from proxlin.tables.asked import Asked
from proxlin.tables.columns import encoder_of
from proxlin.tables.engine import compare
from proxlin.tables.model import load_models
from proxlin.tables.standardize import units_of
from proxlin.tables.training import Setting
from zoo import STACKLOSS

COLOURS = ("red", "green", "blue")


def write_table(path: Path, n: int = 60, outliers: int = 6, **cells: str) -> Path:
    """y = 2 a + (colour), z = -a, with outliers in y; `cells` replace the first of a column."""
    rng = np.random.default_rng(0)
    a, colour = rng.normal(size=n), rng.integers(0, 3, n)
    y = 2 * a + colour + 0.1 * rng.normal(size=n)
    y[:outliers] += 1000.0
    columns = {
        "": range(1, n + 1),
        "a": a,
        "colour": [COLOURS[j] for j in colour],
        "y": y,
        "<b>z</b>": -a,
    }
    columns = {name: [str(x) for x in column] for name, column in columns.items()}
    for name, cell in cells.items():
        columns[name][0] = cell
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A small fit: its folder, and what it printed as JSON."""
    folder = tmp_path_factory.mktemp("fit")
    table = write_table(folder / "table.csv", a="")
    with pytest.MonkeyPatch.context() as patch, pytest.MonkeyPatch.context() as output:
        patch.setattr(
            searching, "NETWORKS", (Setting(0.0, 0.0, 0.3), Setting(1.0, 1e-3, 1.0))
        )
        patch.setattr(training, "FITS", 10)
        patch.setattr(searching, "TREES", 20)
        out = io.StringIO()
        output.setattr("sys.stdout", out)
        options = [
            "--target",
            "y",
            "--target",
            "<b>z</b>",
            "--hidden",
            "3",
            "--out",
            str(folder / "out"),
            "--json",
        ]
        assert main(["fit", str(table), *options]) == 0
    return folder / "out", json.loads(out.getvalue()), table


def test_a_fit_beats_least_squares_and_says_so(fitted):
    out, answer, _ = fitted
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert names == set(commands_fit.FILES)  # as they are checked before the fit
    rows = {(row["target"], row["loss"]): row for row in answer["metrics"]}
    robust = rows["y", "l2"]
    # of twelve rows, no interval
    assert (
        robust["mean absolute error low"] is robust["over least squares high"] is None
    )
    assert (
        "an interval needs 20 held-out rows and there are 12"
        in (out / "report.html").read_text()
    )
    assert (
        robust["median absolute error"]
        < 0.5
        < rows["y", "least squares"]["median absolute error"]
    )
    assert any("'a': 1 of 60 cells are missing" in note for note in answer["notes"])
    assert any("it numbers the rows" in note for note in answer["notes"])
    text = (out / "report.html").read_text()
    assert "above 10,000 rows its settings are kept" in text
    shares = [share for _, share in answer["mixture"] if share > 0]
    (told,) = re.findall(r"<td>(.*); the mean of 5 of them", text)
    mixed = len(shares) > 1  # a model of one part is no mixture
    assert told.startswith("a mixture of ") == mixed
    assert re.findall(r"\((\d+)%\)", told) == [
        f"{100 * x:.0f}" for x in shares if mixed
    ]
    assert answer["rows"] == 60 and answer["held_out"] == 12
    assert [row["target"] for row in read(out / "metrics.csv")] == [
        "y",
        "y",
        "<b>z</b>",
        "<b>z</b>",
    ]
    settings = read(out / "settings.csv")
    for loss in {row["loss"] for row in settings}:
        own = [row for row in settings if row["loss"] == loss]
        parts = [row["model"] for row in own if row["model"].endswith("of the mixture")]
        shares = [int(part.split(", ")[1].split("%")[0]) for part in parts]
        assert len(shares) == 3 and sum(shares) == 100
        assert {row["ridge"] for row in own if row["model"] in parts} == {""}
        others = [row for row in own if row["model"] not in parts]
        assert sum(row["chosen"] == "True" for row in others) == 1


def test_the_page_escapes_and_fetches_nothing(fitted):
    text = (fitted[0] / "report.html").read_text()
    assert (
        "&lt;b&gt;z&lt;/b&gt;" in text
        and "<b>z</b>" not in text.split("<script type")[0].split("</script>")[-1]
    )
    assert "default-src 'none'" in text and "http://" not in text.replace(
        "http://www.w3.org", ""
    )


def test_predictions(fitted, tmp_path, capsys):
    out, _, table = fitted
    assert main(["predict", str(out / "model.npz"), str(table)]) == 0
    text, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(text)))
    truth = read(table)
    error = [
        abs(float(row["y"]) - float(true["y"]))
        for row, true in zip(rows, truth, strict=True)
    ]
    assert list(rows[0]) == ["y", "<b>z</b>"] and np.median(error[6:]) < 0.5
    assert "'a': 1 of 60 cells are missing" in err
    new = tmp_path / "new.csv"
    new.write_text("colour,a\nred,0.5\nviolet,0.5\n,0.5\n")
    assert (
        main(
            [
                "predict",
                str(out / "model.npz"),
                str(new),
                "--out",
                str(tmp_path / "p.csv"),
            ]
        )
        == 0
    )
    text, err = capsys.readouterr()
    assert (
        text == ""
        and "'violet', not seen in the fit, taken as none of its categories" in err
    )
    unseen, missing = (tmp_path / "p.csv").read_text().splitlines()[2:]
    assert unseen == missing
    assert main(["predict", str(out / "model.npz"), str(new), "--json", "--quiet"]) == 0
    text, err = capsys.readouterr()
    assert len(json.loads(text)) == 3 and err == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "has no column 'c'; it has a, b."),
        ("colour,c\n1,2\n", None),
        ("x,c\n" + "1,2\n" * 20, "column 'c' is 2 in every row"),
        (
            "x,c\n" + "1,red\n2,green\n" * 10,
            "column 'c' holds texts, 'red' in row 1; a target must be numeric",
        ),
        (
            "x,c\n" + "1,2\n2,3\nfoo,4\n" * 10,
            "row 3, column 'x': 'foo' is no number; most of the column is numbers, so mend the cell, "
            "or --category x takes the column as texts.",
        ),
        (
            "x;c\n" + "1;2,5\n2;3,5\n" * 10,
            "row 1, column 'c': '2,5' is no number; with --decimal , it is 2.5, or --category c",
        ),
        (
            "x;c\n" + "1;2\n2 000;3\n" * 10,
            "row 2, column 'x': '2 000' is no number; with --thousands ' ' it is 2000, or",
        ),
        ("x,c\n" + ",2\n,3\n" * 10, "column 'x' has no filled cell; remove it"),
        ("x,c\n" + "1,2\n2,\n" * 5, None),
        ("x,c\n" + "1,2\n1,3\n" * 10, "has no column left to predict c from"),
    ],
)
def test_bad_tables_leave_nothing(text, sentence, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert (
        main(
            [
                "fit",
                str(path),
                "--target",
                "c",
                "--out",
                str(tmp_path / "out"),
                "--quiet",
            ]
        )
        == 2
    )
    err = capsys.readouterr().err
    assert (
        err.startswith(f"proxlin: {path}")
        and err.endswith(".\n")
        and err.count("\n") == 1
    )
    assert (sentence or "") in err and not (tmp_path / "out").exists()


def test_bad_options(tmp_path, capsys):
    table = write_table(tmp_path / "table.csv")
    wrong = {
        "--loss": "l3",
        "--solver": "adam",
        "--hidden": "-1",
        "--seed": "-1",
        "--out": str(table),
        "--decimal": "x",
        "--thousands": "1",
    }
    for option, value in wrong.items():
        assert main(["fit", str(table), "--target", "y", option, value]) == 2
        assert f"{option} {value}" in capsys.readouterr().err
    for options, sentence in {
        ("--decimal", ",", "--thousands", ","): "--decimal and --thousands are both ,;",
        ("--sheet", "Data"): "is no workbook, so it has no sheet 'Data'.",
        ("--category", "colr"): "has no column 'colr'; did you mean 'colour'?",
        ("--category", "y"): "column 'y' holds texts, '",
        ("--loss", "quantile", "--quantile", "1.2"): "--quantile 1.2 is not between 0",
        ("--loss", "mm", "--errors", "sandwich"): "--errors sandwich: --loss mm has",
        ("--targt", "y"): "No such option: --targt (Possible options: --target).",
    }.items():
        out = ["--out", str(tmp_path / "out")]
        assert main(["fit", str(table), "--target", "y", *out, *options]) == 2
        err = capsys.readouterr().err
        assert sentence in err and err.count("\n") == 1
        assert not (tmp_path / "out").exists()
    assert main(["fitt"]) == 2
    said = "proxlin: No such command 'fitt'. Did you mean 'fit'?\n"
    assert capsys.readouterr().err == said
    assert main(["fit", str(table), "--target", "colr"]) == 2
    assert "did you mean 'colour'?" in capsys.readouterr().err
    assert main(["fit", "nowhere.csv", "--target", "y"]) == 2
    assert "nowhere.csv: there is no such file" in capsys.readouterr().err
    assert main(["fit", str(table), "--target", "y", "--target", "y"]) == 2
    assert "name each column once" in capsys.readouterr().err


def test_a_file_larger_than_memory(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(texts, "MEMORY", 2**50)
    table = write_table(tmp_path / "table.csv")
    assert (
        main(["fit", str(table), "--target", "y", "--out", str(tmp_path / "out")]) == 2
    )
    assert "GiB of memory to be read" in capsys.readouterr().err


def tampered(
    path: Path, members: dict[str, bytes | None], compress: int = zipfile.ZIP_STORED
) -> None:
    """Write the archive again with these members replaced, added or (None) left out."""
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()} | {
            f"{name}.npy": content for name, content in members.items()
        }
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, content in kept.items():
            if content is not None:
                archive.writestr(name, content)


def array(x: np.ndarray, **shape: str) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, x, allow_pickle=True)
    content = buffer.getvalue()
    for old, new in shape.items():
        content = content.replace(f"({old[1:]},)".encode(), f"({new},)".encode())
    return content


def json_of(path: Path, **changes: object) -> bytes:
    with np.load(path) as file:
        text = json.loads(file["json"].tobytes())
    for name, value in changes.items():
        where = text if name in text else text["models"][0]
        where[name] = value
    return array(np.frombuffer(json.dumps(text).encode(), np.uint8))


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_bad_models(fitted, tmp_path, capsys):
    out, _, table = fitted
    good, path, sprung = (
        (out / "model.npz").read_bytes(),
        tmp_path / "model.npz",
        tmp_path / "sprung",
    )
    trap = np.empty(3, object)
    trap[:] = [Trap(sprung)] * 3
    floats = np.ones(3, np.float32)
    damages = {
        "cut": lambda: path.write_bytes(good[: len(good) // 2]),
        "empty": lambda: path.write_bytes(b""),
        "flipped": lambda: path.write_bytes(good[:-600] + bytes(200) + good[-400:]),
        "pickle": lambda: tampered(path, {"0.w0": array(trap)}),
        "bomb": lambda: tampered(
            path, {"0.w0": array(np.zeros(10**6))}, zipfile.ZIP_DEFLATED
        ),
        "shape": lambda: tampered(path, {"0.w0": array(floats, _3="9" * 12)}),
        "nan": lambda: tampered(path, {"0.units.y_scale": array(np.full(2, np.nan))}),
        "missing": lambda: tampered(path, {"0.w0": None}),
        "hidden": lambda: tampered(
            path,
            {"json": json_of(path, asked={"targets": ["y", "z"], "hidden": 10**12})},
        ),
        "nested": lambda: tampered(
            path, {"json": array(np.frombuffer(b"[" * 10**5, np.uint8))}
        ),
    }
    for name, damage in damages.items():
        path.write_bytes(good)
        damage()
        assert (
            main(["predict", str(path), str(table), "--out", str(tmp_path / "p.csv")])
            == 2
        ), name
        why = (
            "is empty"
            if name == "empty"
            else "is not a model written by proxlin fit, or it is damaged"
        )
        assert capsys.readouterr().err == f"proxlin: {path} {why}.\n"
    assert not sprung.exists() and not (tmp_path / "p.csv").exists()
    path.write_bytes(good)
    tampered(path, {"json": json_of(path, format=99, version="9.9")})
    assert main(["predict", str(path), str(table)]) == 2
    assert "is a model of format 99 (proxlin 9.9)" in capsys.readouterr().err


def test_tables_that_do_not_fit_the_model(fitted, tmp_path, capsys):
    table = tmp_path / "new.csv"
    for text, sentence in {
        "a,color\n1,red\n": "has no column 'colour'; did you mean 'color'?",
        "a,colour\nx,red\n": "column 'a' holds texts, 'x' in row 1; the model was fitted to numbers",
        'a,colour\n"1,5",red\n': "column 'a': '1,5' is no number; with --decimal , it is 1.5",
    }.items():
        table.write_text(text)
        assert main(["predict", str(fitted[0] / "model.npz"), str(table)]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "none.npz"), str(table)]) == 2
    assert "none.npz: there is no such file" in capsys.readouterr().err


def test_too_few_rows_for_a_band_are_a_sentence(fitted, tmp_path, capsys):
    out, _, table = fitted
    asked = ["predict", str(out / "model.npz"), str(table), "--interval", "0.99"]
    to = tmp_path / "predictions.csv"
    assert main([*asked, "--out", str(to)]) == 2
    err = capsys.readouterr().err
    assert "--interval 0.99: A band of level 0.99 needs 99 rows that the fit" in err
    assert err.count("\n") == 1 and not to.exists()


def test_categories_of_the_model_are_read_as_such(fitted, tmp_path, capsys):
    """A column that was fitted as texts stays one where its new cells look like numbers."""
    new = tmp_path / "new.csv"
    new.write_text("a;colour\n0,5;red\n0,5;12\n0,5;\n")
    asked = ["predict", str(fitted[0] / "model.npz"), str(new), "--decimal", ","]
    assert main(asked) == 0
    out, err = capsys.readouterr()
    assert "'12', not seen in the fit, taken as none of its categories" in err
    assert out.splitlines()[2] == out.splitlines()[3] != out.splitlines()[1]


@pytest.mark.parametrize("form", ["xlsx", "feather"])
def test_predictions_do_not_depend_on_the_format(form, fitted, tmp_path, capsys):
    out, _, table = fitted
    frame = frames.read_frame(table)
    cells = {name: frame[name].cells.tolist() for name in ("a", "colour")}
    cells["a"] = [None if np.isnan(x) else x for x in cells["a"]]
    path = tmp_path / f"t.{form}"
    if form == "feather":
        pyarrow.feather.write_feather(pa.table(cells), path)
    else:
        rows = zip(*cells.values(), strict=True)
        path.write_bytes(workbook([tuple(cells), *rows], Empty=[]))
    answers = []
    for each in (table, path):
        assert main(["predict", str(out / "model.npz"), str(each), "--quiet"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


@pytest.mark.slow  # an exact step takes ten seconds to compile
def test_a_linear_model_by_exact_steps_has_an_intercept():
    """Against the exact answer: all but the outlier on one line."""
    x = np.linspace(-1, 1, 12)[:, None]
    y = 3 * x + 5
    y[0] = 100
    units = units_of(x, y)
    task = training.Task(units.features(x), units.targets(y), 0, "l1", "prox_linear", 0)
    w, unfinished = training.train(
        task, [Setting(0.0, 0.0)], np.ones((1, 12)), [0], lambda *_: None
    )
    assert unfinished == 0
    found = units.given(
        outputs.predict(task.network(), w, units.features(np.array([[0.0], [2.0]])))[0]
    )
    np.testing.assert_allclose(found.ravel(), [5.0, 11.0], atol=1e-4)


@pytest.mark.parametrize("status", [Status.budget, Status.converged])
def test_an_exact_fit_that_ended_at_its_budget_is_said(
    status, tmp_path, capsys, monkeypatch
):
    """On the standard error and on the page; the steps themselves are left out, as they take long
    to compile.
    """
    stopped = lambda problem, w, solver, **budget: SimpleNamespace(w=w, status=status)
    monkeypatch.setattr(training, "minimize", stopped)
    table, out = write_table(tmp_path / "table.csv"), tmp_path / "out"
    options = [
        "--target",
        "y",
        "--hidden",
        "0",
        "--solver",
        "prox_linear",
        "--out",
        str(out),
    ]
    assert main(["fit", str(table), *options]) == 0
    said = capsys.readouterr().err
    sentence = "the exact fit ended at its 50 steps, before it converged."
    judged = "the exact fit by l2 without the held-out rows ended at its 50 steps, before it converged."
    for text in (said, (out / "report.html").read_text()):
        assert (sentence in text) == (judged in text) == (status == Status.budget)


def test_least_squares_has_nothing_beside_it(tmp_path, capsys):
    """One row of errors, and a page."""
    table, out = write_table(tmp_path / "table.csv"), tmp_path / "out"
    options = ["--target", "y", "--loss", "squares", "--hidden", "0", "--out", str(out)]
    assert main(["fit", str(table), *options]) == 0
    capsys.readouterr()
    rows = json.loads((out / "metrics.json").read_text())["metrics"]
    assert [row["loss"] for row in rows] == ["least squares"]


def test_columns(tmp_path):
    frame = frames.read_frame(write_table(tmp_path / "table.csv", colour="?"))
    encoder = encoder_of(frame, ["y"])
    X, notes = encoder.encode(frame)
    assert X.shape == (60, encoder.width) == (60, 1 + 3 + 1) and X[0, 1:4].tolist() == [
        0,
        0,
        0,
    ]
    assert notes == [
        "column 'colour': 1 of 60 cells are missing, in none of its categories"
    ]


def test_intervals_of_many_rows_and_predictions_in_parts(monkeypatch):
    """Some rows give an interval as narrow as all rows do; parts of the rows give the predictions
    of all.
    """
    rng = np.random.default_rng(0)
    y, asked = rng.normal(size=(4000, 1)), Asked(("y",))
    given = {"l2": np.zeros((4000, 1)), "squared": np.ones((4000, 1))}
    whole = compare(asked, y, given)[0]
    monkeypatch.setattr(fitting, "MANY", 500)
    part = compare(asked, y, given)[0]
    name = "mean absolute error"
    assert whole[name] == part[name]
    widths = [row[f"{name} high"] - row[f"{name} low"] for row in (whole, part)]
    np.testing.assert_allclose(
        widths, 2 * 1.96 * np.abs(y).std() / 4000**0.5, rtol=0.15
    )
    network = training.network_of(2, 0, 1)
    w = [{"W": np.ones((3, 1, 2), np.float32), "b": np.zeros((3, 1), np.float32)}]
    monkeypatch.setattr(outputs, "CELLS", 9)
    x = np.arange(14.0).reshape(7, 2)
    np.testing.assert_allclose(
        outputs.predict(network, w, x),
        np.broadcast_to(x.sum(axis=1)[:, None], (3, 7, 1)),
    )


def test_intervals_hold_what_they_promise(monkeypatch):
    """95 % of them cover, for few and skewed errors too: percentiles of resampled means had 0.84
    for eight of these.
    """
    rng, n = np.random.default_rng(1), 8
    few = compare(
        Asked(("y",)),
        np.zeros((19, 1)),
        {"l2": np.ones((19, 1)), "squared": np.ones((19, 1))},
    )[0]
    assert (
        few["mean absolute error low"]
        is few["median absolute error low"]
        is few["over least squares low"]
        is None
    )
    monkeypatch.setattr(fitting, "ENOUGH", n)
    covered = []
    for seed in range(200):
        noise = rng.exponential(size=(n, 2)) * [1.0, 2.0]
        row = compare(
            Asked(("y",), seed=seed),
            np.zeros((n, 1)),
            {"l2": noise[:, :1], "squared": noise[:, 1:]},
        )[0]
        truth = {
            "mean absolute error": 1.0,
            "median absolute error": np.log(2),
            "over least squares": 0.5,
        }
        covered.append(
            [
                row[f"{name} low"] <= value <= row[f"{name} high"]
                for name, value in truth.items()
            ]
        )
    # 0.95 less 2.6 deviations of 200 trials
    assert np.all(np.mean(covered, axis=0) >= 0.91)


def test_intervals_of_errors_that_are_zero_or_equal():
    zero, one = np.zeros((30, 1)), np.ones((30, 1))
    exact = compare(Asked(("y",)), zero, {"l2": zero, "squared": one})[0]
    assert exact["mean absolute error low"] is exact["over least squares low"] is None
    same = compare(Asked(("y",)), zero, {"l2": one, "squared": one})[0]
    assert same["over least squares low"] == same["over least squares high"] == 1.0
    once = np.eye(30)[:, :1]  # a third of its resamples are all zeros
    assert (
        compare(Asked(("y",)), zero, {"l2": once, "squared": one})[0][
            "mean absolute error high"
        ]
        is None
    )


def test_rows_outside_the_frame_are_at_its_edge(fitted):
    """Every held-out row is drawn once for each loss, inside or as a triangle, and the legend
    counts the triangles.
    """
    y = np.concatenate([np.linspace(0, 1, 18), [50.0, -50.0]])[:, None]
    far = y.copy()
    far[3], far[4] = 1e6, -1e6
    model = dataclasses.replace(
        load_models(fitted[0] / "model.npz")[0], asked=Asked(("y",))
    )
    figure, points = page.draw(
        fitting.Report(model, [], [], [], {"l2": y, "squared": far}, y)
    )
    (axes,) = figure.axes
    drawn = {
        line.get_marker(): len(line.get_xdata())
        for line in axes.lines
        if line.get_color() == page.ORANGE
    }
    assert drawn == {"x": 16, ">": 1, "<": 1, "^": 1, "v": 1}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "l2, 2 of 20 outside",
        "least squares, 4 of 20 outside",
    ]
    (low, high), shown = (
        axes.get_xlim(),
        np.array([[point.x, point.y] for point in points]),
    )
    assert len(points) == 40 and shown.min() >= low and shown.max() <= high
    assert any("predicted 1e+06" in point.text for point in points)


def test_predictions_that_overflow_are_refused(fitted, tmp_path, capsys):
    out, _, table = fitted
    model = tmp_path / "model.npz"
    model.write_bytes((out / "model.npz").read_bytes())
    tampered(model, {"0.units.y_scale": array(np.full(2, 1e308))})
    for options in ([], ["--json"], ["--out", str(tmp_path / "p.csv")]):
        assert main(["predict", str(model), str(table), *options]) == 2
        text, err = capsys.readouterr()
        assert text == "" and f"{table}, row 1: the prediction overflows" in err
    assert not (tmp_path / "p.csv").exists()
    new = tmp_path / "new.csv"
    # beyond float32, in which the network was trained
    new.write_text("colour,a\nred,0.5\nred,1e100\n")
    assert main(["predict", str(out / "model.npz"), str(new)]) == 2
    assert f"{new}, row 2: the prediction overflows" in capsys.readouterr().err


def test_the_scale_of_huber_is_that_of_the_residuals(tmp_path):
    """Noise of deviation 0.1 under targets of deviation 2 and outliers of 1000."""
    frame = frames.read_frame(write_table(tmp_path / "table.csv", n=200, outliers=20))
    rows = fitting.prepare(frame, Asked(("y", "<b>z</b>"), "huber"))
    units = units_of(rows.X, rows.y)
    task = training.Task(
        units.features(rows.X), units.targets(rows.y), 3, "huber", "sgd", 0
    )
    found, sigma = searching.of_residuals(task, units, rows.fold, 5)
    assert 0.07 < found.y_scale[0] * sigma < 0.3 and found.y_scale[1] * sigma < 0.1
    assert units.y_scale[0] > 1.5


@pytest.mark.slow  # exact steps take ten seconds to compile
def test_a_linear_huber_fit_is_that_of_rlm():
    *x, y = np.array(STACKLOSS, float)
    x, y = np.transpose(x), y[:, None]
    units = units_of(x, y)
    task = training.Task(
        units.features(x), units.targets(y), 0, "huber", "prox_linear", 0
    )
    found, sigma = searching.of_residuals(task, units, np.zeros(21, int), 5)
    np.testing.assert_allclose(found.y_scale * sigma, 2.44071, rtol=5e-4)


@pytest.mark.parametrize(
    "taken", ["figures", "figures/held-out.svg", "report.html", "model.npz"]
)
def test_a_folder_that_cannot_be_written_is_refused_before_the_fit(
    taken, tmp_path, capsys, monkeypatch
):
    """A file where a folder should be, or a folder where a file should be."""
    monkeypatch.setattr(fitting, "search", lambda *_: pytest.fail("the fit had begun"))
    out = tmp_path / "out"
    (out / taken).mkdir(parents=True)
    if taken == "figures":
        (out / taken).rmdir()
        (out / taken).write_text("a file")
    before = sorted(out.rglob("*"))
    table = write_table(tmp_path / "table.csv")
    assert main(["fit", str(table), "--target", "y", "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert (
        err.startswith(f"proxlin: --out {out} cannot be written (")
        and taken in err
        and err.count("\n") == 1
    )
    assert sorted(out.rglob("*")) == before


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_predictions_go_through_pipes_and_links(kind, fitted, tmp_path):
    out, _, table = fitted
    path, real = tmp_path / "path", tmp_path / "real.csv"
    if kind == "pipe":
        os.mkfifo(path)
        reader = subprocess.Popen(["cp", str(path), str(real)])
    else:
        path.symlink_to(real)
    assert (
        main(
            [
                "predict",
                str(out / "model.npz"),
                str(table),
                "--out",
                str(path),
                "--quiet",
            ]
        )
        == 0
    )
    if kind == "pipe":
        assert reader.wait(30) == 0
    assert len(read(real)) == 60 and (
        path.is_fifo() if kind == "pipe" else path.is_symlink()
    )


def test_a_file_that_is_read_is_not_replaced(fitted, tmp_path, capsys):
    """Not by its name, by another spelling of it, through a link, or as a part of a folder."""

    def refuses(*arguments: object) -> str:
        assert main([str(each) for each in arguments]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    folder = tmp_path / "folder"
    folder.mkdir()
    model = folder / "m.npz"
    model.write_bytes((fitted[0] / "model.npz").read_bytes())
    table = folder / "outliers.csv"
    write_table(table)
    part = folder / "0.parquet"
    part.write_bytes(b"PAR1")
    link = tmp_path / "link"
    link.symlink_to(table)
    before = {path: path.read_bytes() for path in (model, table, part)}
    for out in (table, folder / ".." / "folder" / "outliers.csv", link):
        sentence = refuses("predict", model, table, "--out", out)
        assert f"--out {out} would replace {table}, the table; name" in sentence
    assert ", the table;" in refuses("predict", model, link, "--out", table)
    assert ", the model;" in refuses("predict", model, table, "--out", model)
    assert f"{part}, the table;" in refuses("predict", model, folder, "--out", part)
    asked = ("fit", link, "--target", "y", "--out", folder)
    assert f"--out {folder} would replace {link}, the table;" in refuses(*asked)
    assert {path: path.read_bytes() for path in before} == before


def test_of_a_long_table_some_rows_are_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr(columns, "MOST", 12)
    path = tmp_path / "long.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i * i % 7}\n" for i in range(30)))
    rows = fitting.prepare(frames.read_frame(path), Asked(("y",)))
    assert (
        rows.X.shape == (12, 1)
        and "12 of 30 rows, drawn at random, are used" in rows.notes
    )
