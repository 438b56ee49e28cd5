"""The same seed on the same machine gives the same bytes, in two processes that share nothing, not
even hash seeds.

Time is left out, which no seed decides: the column "seconds" of a history, `seconds` in a model's
notes, the `run` of a case or of a record, the folder timings/ and the page report.html, which
quotes them.
"""

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from processes import SUPPORT

pytestmark = pytest.mark.slow
SOLVE = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import proxlin as px
import zoo
from proxlin.run.solution import Solution

found = {}
for name in sys.argv[3:]:
    case = zoo.PROBLEMS[zoo.SOLVERS[name].problems[0]]()
    solution = px.minimize(case.problem, case.w, zoo.SOLVERS[name].solver, steps=12, seed=3)
    history = {name: 0 * column if name == "seconds" else column for name, column in solution.history.items()}
    # seconds are the machine's: those of the history, and those of compiling in the message
    message = solution.message.partition(" Compiling took")[0]
    untimed = Solution(**{**vars(solution), "history": history, "message": message})
    untimed.save(f"{sys.argv[2]}/{name}.npz")
"""
FIT = """
import csv, sys
import numpy as np
from proxlin.cli import main
from proxlin.tables import search, training
from proxlin.tables.training import Setting

search.NETWORKS = (Setting(0.0, 0.0, 0.3), Setting(1.0, 1e-3, 1.0))
search.TREES = 20
rng = np.random.default_rng(0)
a, b = rng.normal(size=(2, 60))
with open(sys.argv[1] + ".csv", "w", newline="") as file:
    csv.writer(file).writerows([("a", "b", "y"), *zip(a, b, 2 * a - b + rng.standard_t(2, size=60))])
assert main(["fit", sys.argv[1] + ".csv", "--target", "y", "--hidden", "3", "--quiet", "--out", sys.argv[1]]) == 0
"""
THREADS = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, numpy as np
import proxlin as px

found = {}
for dtype in ("float32", "float64"):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 200)).astype(dtype)
    y = (x @ rng.normal(size=(200, 20)) + rng.standard_t(2, size=(3000, 20))).astype(dtype)
    w = jnp.zeros((200, 20), dtype)
    problem = px.MeanOfLosses(px.residual(lambda w, x: x @ w), px.L2(), (x, y), ridge=1e-3)
    found[f"{dtype} subgradient"] = problem.subgradient(w + 0.1)
    found[f"{dtype} sgd"] = px.minimize(problem, w, px.sgd(0.01), passes=1).w
    found[f"{dtype} truncated"] = px.minimize(problem, w, px.truncated(0.1), passes=1).w
    found[f"{dtype} lbfgs"] = px.minimize(problem.smooth(0.1), w, px.lbfgs(), steps=10).w
    found[f"{dtype} svrg"] = px.minimize(problem, w, px.svrg(0.001, nu=0.1), passes=4).w
np.savez(sys.argv[1], **{name: np.asarray(array) for name, array in found.items()})
"""
SOLVERS = (
    "sgd",
    "truncated",
    "averaged",
    "svrg",
    "casimir_svrg",
    "pli",
    "prox_linear",
    "stochastic_prox_linear",
)


def twice(run, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """What run(folder, environment) leaves behind, as digests by name, from two processes."""
    made = []
    for number, seed in enumerate(("0", "12345")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "NPROC": str(1 + number)}
        place = folder / str(number) / "out"
        place.mkdir(parents=True)
        made.append(run(place, environment))
    return made[0], made[1]


def called(environment: dict[str, str], *command: object) -> None:
    done = subprocess.run(
        list(map(str, command)),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_solutions_are_the_same_bytes(tmp_path, figures):
    """Saved files whole: w, value, state, cost and history, of solvers of every kind."""

    def run(place: Path, environment: dict[str, str]) -> dict[str, str]:
        called(
            environment | {"NPROC": "1"},
            sys.executable,
            "-c",
            SOLVE,
            SUPPORT,
            place,
            *SOLVERS,
        )
        return {path.name: digest(path.read_bytes()) for path in place.iterdir()}

    one, other = twice(run, tmp_path)
    figures(
        "determinism-solutions",
        files=len(one),
        same=sum(one[name] == other[name] for name in one),
    )
    assert one == other and len(one) == len(SOLVERS)


def test_another_number_of_threads_changes_the_rounding_of_full_passes_alone(
    tmp_path, figures
):
    """Steps on single samples are the same bits; a subgradient on all rows, and what is made of it,
    to rounding.
    """
    files = []
    for threads in ("1", "2"):
        files.append(tmp_path / f"{threads}.npz")
        called(
            {**os.environ, "NPROC": threads, "XLA_FLAGS": ""},
            sys.executable,
            "-c",
            THREADS,
            files[-1],
        )
    one, two = (dict(np.load(file)) for file in files)
    away = {}
    for name in one:
        eps = np.finfo(one[name].dtype).eps
        away[name] = float(
            np.abs(one[name] - two[name]).max() / np.abs(one[name]).max() / eps
        )
    figures(
        "determinism-threads",
        **{f"{name}, eps": round(value, 1) for name, value in away.items()},
    )
    for name, value in away.items():
        if name.endswith(("sgd", "truncated")):
            assert value == 0, name
        else:
            # sums of 3000 terms, added up in another order ten times
            assert value <= 100, name


def test_a_fit_is_the_same_bytes(tmp_path, figures):
    """Every array of the model, its JSON text without the seconds, the tables and the figures."""

    def run(place: Path, environment: dict[str, str]) -> dict[str, str]:
        called(environment | {"NPROC": "1"}, sys.executable, "-c", FIT, place)
        found = {}
        for path in sorted(place.rglob("*")):
            if path.name == "model.npz":
                found |= model_parts(path)
            elif path.is_file() and path.suffix in (".csv", ".svg", ".png", ".pdf"):
                found[str(path.relative_to(place))] = digest(path.read_bytes())
        return found

    one, other = twice(run, tmp_path)
    figures(
        "determinism-fit",
        parts=len(one),
        same=sum(one[name] == other.get(name) for name in one),
    )
    assert one == other and len(one) > 8


def model_parts(path: Path) -> dict[str, str]:
    from proxlin.files.npz import read_arrays

    arrays = read_arrays(path)
    text = json.loads(arrays.pop("json").tobytes())
    for each in text["models"]:
        each["about"].pop("seconds")
    return {name: digest(array.tobytes()) for name, array in arrays.items()} | {
        "json": digest(json.dumps(text).encode())
    }


def test_a_sweep_and_a_figure_are_the_same_bytes(tmp_path, figures):
    """On one and on two workers, with other hash seeds: results by case, payloads, tables and
    figures.
    """

    def run(place: Path, environment: dict[str, str]) -> dict[str, str]:
        environment |= {"PYTHONPATH": str(SUPPORT), "PROXLIN_EXPERIMENTS": "toy_sweep"}
        workers = environment["NPROC"]
        for name in ("chef", "fig1"):
            called(
                environment,
                sys.executable,
                "-m",
                "proxlin.cli",
                "reproduce",
                name,
                "--out",
                place,
                "--workers",
                workers,
            )
        files = [
            path
            for kind in ("tables", "figures")
            for path in sorted((place / kind).iterdir())
        ]
        return {path.name: digest(path.read_bytes()) for path in files} | stored(
            place / "results.sqlite"
        )

    one, other = twice(run, tmp_path)
    figures(
        "determinism-sweep",
        parts=len(one),
        same=sum(one[name] == other.get(name) for name in one),
    )
    assert one == other and len(one) > 20


def stored(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    cases = {
        key: digest(f"{content} {result}".encode())
        for key, content, result in connection.execute(
            "SELECT key, content, result FROM cases"
        )
    }
    for name, text in connection.execute("SELECT name, payload FROM experiments"):
        payload = json.loads(text)
        for timed in ("run", "timings"):
            payload.pop(timed)
        cases[name] = digest(json.dumps(payload).encode())
    connection.close()
    return cases
