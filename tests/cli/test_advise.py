"""`proxlin advise`: a table in, advice out; a bad table is one sentence."""

import json

import numpy as np
import pytest

from proxlin.cli.main import main
from proxlin.tuning import race

COLOURS = ["red", "green", "blue"]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    path = tmp_path / "table.csv"
    y = x @ [1.0, -2.0] + 0.1 * rng.normal(size=30)
    cells = zip(*x.T.tolist(), COLOURS * 10, y.tolist(), strict=True)
    rows = [";".join(map(str, row)).replace(".", ",") for row in cells]
    rows[3] = f";{rows[3].partition(';')[2]}"  # a missing cell
    path.write_text("a;b;colour;price\n" + "\n".join(rows) + "\n")
    return path


def test_advice_as_json_with_a_snippet_that_runs(table, capsys, monkeypatch):
    """Of a table with categories, a missing cell and commas in its numbers, as `fit` takes it."""
    monkeypatch.setattr(race, "QUICK_STEP", 0.0)  # an exact step takes long to compile
    options = ["--hidden", "0", "--budget", "0.01", "--passes", "80", "--json"]
    options += ["--decimal", ","]
    assert main(["advise", str(table), "--target", "price", *options]) == 0
    out, err = capsys.readouterr()
    advice = json.loads(out)
    # the budget is not enough for 80 passes
    assert advice["recommendation"] == "cannot tell"
    assert advice["plan"]["passes"] == 5.0 and "in 5 passes" in advice["answer"]
    assert advice["take"] in ("sgd", "gauss-newton")
    assert "of budget would race all 80 passes" in advice["more"]
    assert advice["codes"][advice["take"]] in advice["snippet"]
    assert "sgd: 8 settings, 5 passes each" in err
    assert "Note: column 'a': 1 of 30 cells are missing" in err
    names: dict = {}
    exec(advice["snippet"], names)
    assert names["problem"].data[0].shape == (30, 2 + 1 + 3)
    assert names["solution"].value < float(names["problem"].value(names["w"]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("a;b\n1;2\n3;3\n", "has 2 rows with every target; 10 or more are needed"),
        ("a;b\n1;2\n3;3\n2;\n", "has 2 rows with every target"),
        (
            "a;b\n1;2,5\n3;3,5\n",
            "row 1, column 'b': '2,5' is no number; with --decimal",
        ),
        ("a;b\n1;$2\n3;$3\n", "'$2' is no number; remove the '$' from the column"),
        ("a\tb\n1\tx\n", "column 'b' holds texts, 'x' in row 1; a target must be"),
        ("b\n" + "1\n2\n" * 9, "has no column left to predict b from"),
        ("a,c\n1,2\n", "has no column 'b'; it has a, c."),
    ],
)
def test_bad_tables(text, sentence, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert main(["advise", str(path), "--target", "b"]) == 2
    err = capsys.readouterr().err
    assert (
        err.startswith(f"proxlin: {path}")
        and sentence in err
        and err.endswith(".\n")
        and err.count("\n") == 1
    )


def test_bad_options(table, capsys):
    for options in (
        ["--hidden", "-1"],
        ["--budget", "0"],
        ["--passes", "nan"],
        ["--seed", "-1"],
        ["--decimal", ";"],
        ["--thousands", "x"],
    ):
        assert main(["advise", str(table), "--target", "price", *options]) == 2
        assert options[0] in capsys.readouterr().err
    assert main(["advise", str(table)]) == 2
    assert main(["advise", "nowhere.csv", "--target", "price"]) == 2
    assert "nowhere.csv: there is no such file" in capsys.readouterr().err
    table.write_bytes(b"\xff\xfe")
    assert main(["advise", str(table), "--target", "price"]) == 2
    assert "UTF-8" in capsys.readouterr().err
