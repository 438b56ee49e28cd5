"""The command line with damaged files and odd arguments: exit code 0, or 2 and one sentence; never
a traceback.
"""

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from damage import NUMBERS, damaged
from good_files import READERS, model_files
from guard import limited, little_memory
from proxlin.cli import advise as commands_advise
from proxlin.cli.main import main
from proxlin.data import cache
from proxlin.errors import UserError
from proxlin.experiments import experiments
from proxlin.tables import engine as fitting

pytestmark = pytest.mark.slow
EACH = 60
TABLE = b"a,colour,y\n" + b"".join(
    b"%d.5,%s,%d\n" % (i, (b"red", b"blue")[i % 2], i * i) for i in range(24)
)


def files_of(reader: str) -> tuple[dict[str, bytes], object]:
    return READERS[reader].seeds(), READERS[reader].codec


def predict_model(path: Path) -> list[str]:
    table = path.with_name("table.csv")
    table.write_bytes(TABLE)
    return ["predict", str(path), str(table), "--out", str(path.with_name("out.csv"))]


def predict_table(path: Path) -> list[str]:
    model = path.with_name("model.npz")
    model.write_bytes(model_files()["linear.npz"])
    return ["predict", str(model), str(path)]


def fit_table(path: Path) -> list[str]:
    return ["fit", str(path), "--target", "y", "--out", str(path.parent / "out")]


# The command, and the files that it is given damaged.
COMMANDS = {
    "predict, model": (predict_model, "model"),
    "predict, table": (predict_table, "table, CSV"),
    "predict, Parquet": (predict_table, "table, Parquet"),
    "fit, CSV": (fit_table, "table, CSV"),
    "fit, ARFF": (fit_table, "table, ARFF"),
    "advise": (lambda path: ["advise", str(path), "--target", "y"], "table, TSV"),
    "fit, Excel": (fit_table, "table, Excel"),
    "advise, Arrow": (
        lambda path: ["advise", str(path), "--target", "y"],
        "table, Arrow",
    ),
    "report": (lambda path: ["report", str(path.parent), "--json"], "store"),
    "data get": (
        lambda path: [
            "data",
            "get",
            "covtype",
            "--from",
            str(path),
            "--sha256",
            cache.sha256(path),
        ],
        "libsvm, bz2",
    ),
    "reproduce": (
        lambda path: ["reproduce", path.stem, "--config", str(path), "--dry-run"],
        "config",
    ),
}


@pytest.fixture(autouse=True)
def no_computing(monkeypatch, tmp_path):
    """A file that is good enough to be computed with ends there, in a sentence: what is tested
    comes before that.
    """

    def stop(*_: object, **__: object) -> None:
        raise UserError("this is as far as the test goes.")

    experiments()  # what is imported once is not what takes time
    monkeypatch.setattr(fitting, "search", stop)
    monkeypatch.setattr(commands_advise, "_advise", stop)
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PROXLIN_DATA", raising=False)


def judged(arguments: list[str], capsys) -> int:
    """The exit code of a command that ended as it may."""
    try:
        with limited(30), little_memory():
            code = main(arguments)
    except SystemExit as error:
        code = error.code
    err = capsys.readouterr().err
    said = [line for line in err.splitlines() if not line.startswith("Note: ")]
    assert code in (0, 2), err
    assert len(said) == (code == 2) and "Traceback" not in err, err
    assert code == 0 or re.fullmatch(r"proxlin: .*[.?]", said[0]), err
    return code


@pytest.mark.parametrize("name", COMMANDS)
def test_damaged_files(name, tmp_path, capsys, figures):
    command, reader = COMMANDS[name]
    seeds, codec = files_of(reader)
    codes = Counter()
    for number in range(EACH):
        rng = random.Random(f"{name} {number}")
        each = rng.choice(list(seeds))
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / each).write_bytes(damaged(seeds[each], rng, codec))
        codes[judged(command(folder / each), capsys)] += 1
    figures(
        f"command-line-{name.replace(', ', '-').replace(' ', '-')}",
        files=EACH,
        done=codes[0],
        refused=codes[2],
    )


OPTIONS = {
    "fit": ("--seed", "--hidden", "--loss", "--solver", "--target", "--decimal"),
    "advise": ("--seed", "--hidden", "--budget", "--passes", "--thousands", "--sheet"),
    "reproduce": (
        "--seed",
        "--workers",
        "--profile",
        "--engine",
        "--scheduler",
        "--only",
        "--config",
    ),
}


@pytest.mark.parametrize("command", OPTIONS)
def test_odd_arguments(command, tmp_path, capsys, figures):
    """Each option with each odd text: most are refused; an odd number that is one is taken."""
    table = tmp_path / "table.csv"
    table.write_bytes(TABLE)
    fixed = (
        ["fig2", "--dry-run"]
        if command == "reproduce"
        else [str(table), "--target", "nowhere"]
    )
    codes = Counter()
    for option in OPTIONS[command]:
        for text in (*NUMBERS, "\x1b[0m", "--", "-", "../..", "x" * 3000):
            codes[
                judged(
                    [
                        command,
                        *fixed,
                        f"{option}={text.encode('utf-8', 'replace').decode()}",
                    ],
                    capsys,
                )
            ] += 1
    figures(f"arguments-{command}", runs=codes.total(), done=codes[0], refused=codes[2])
