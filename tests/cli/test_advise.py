"""`proxlin advise`: a table in, advice out; a bad table is one sentence."""

import json

import numpy as np
import pytest

from proxlin.cli.main import main
from proxlin.tuning import race


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    path = tmp_path / "table.csv"
    rows = np.column_stack([x, x @ [1.0, -2.0] + 0.1 * rng.normal(size=30)])
    path.write_text(
        "a,b,price\n"
        + "\n".join(",".join(map(str, row)) for row in rows.tolist())
        + "\n"
    )
    return path


def test_advice_as_json_with_a_snippet_that_runs(table, capsys, monkeypatch):
    monkeypatch.setattr(race, "QUICK_STEP", 0.0)  # an exact step takes long to compile
    options = ["--hidden", "0", "--budget", "0.01", "--passes", "80", "--json"]
    assert main(["advise", str(table), "--target", "price", *options]) == 0
    out, err = capsys.readouterr()
    advice = json.loads(out)
    # the budget is not enough for 80 passes
    assert advice["recommendation"] == "cannot tell"
    assert (
        advice["plan"]["passes"] == 5.0 and "Give a larger budget" in advice["reason"]
    )
    assert "sgd: 8 settings, 5 passes each" in err
    names: dict = {}
    exec(advice["snippet"], names)
    assert names["solution"].value < float(names["problem"].value(names["w"]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("a;b\n1;2\n3;\n", "row 2, column 'b' has no value"),
        ("a\tb\n1\tx\n", "column 'b' holds texts"),
        ("a,b\n1,2\n", "has 1 samples; advice needs 10 or more"),
        ("b\n1\n", "has no column left to predict b from"),
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
    ):
        assert main(["advise", str(table), "--target", "price", *options]) == 2
        assert options[0] in capsys.readouterr().err
    assert main(["advise", str(table)]) == 2
    assert main(["advise", "nowhere.csv", "--target", "price"]) == 2
    assert "nowhere.csv: there is no such file" in capsys.readouterr().err
    table.write_bytes(b"\xff\xfe")
    assert main(["advise", str(table), "--target", "price"]) == 2
    assert "UTF-8" in capsys.readouterr().err
