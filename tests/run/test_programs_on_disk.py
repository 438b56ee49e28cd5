"""The persistent cache of programs: filled once, and never in the way."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import proxlin
import proxlin as px
from proxlin.sklearn import CompositeRegressor, regressor
from proxlin.tables import fitted as fitted_tables

FIT = """
import warnings
warnings.simplefilter("error")
import jax
import jax.numpy as jnp
from proxlin.files.programs import keep_programs
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
keep_programs()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: jnp.linalg.eigh(x @ x.T))(jnp.ones((3, 3)))
print(sum("cache_hits" in name for name in hits), jax.config.jax_compilation_cache_dir)
"""


def fitted(folder, **environment):
    """Compile in a process of its own; return the hits of the cache and its folder."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "PROXLIN_"))
    }
    run = subprocess.run(
        [sys.executable, "-c", FIT],
        env=inherited
        | {"PROXLIN_CACHE": str(folder), "JAX_PLATFORMS": "cpu"}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    hits, where = run.stdout.split()
    return int(hits), where


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    hits, where = fitted(folder)
    assert hits == 0 and where == str(folder / "programs")
    return folder


def entries(folder):
    return sorted((folder / "programs").glob("*-cache"))


def test_the_second_process_reads_what_the_first_compiled(filled):
    assert entries(filled) and not list((filled / "programs").glob(".part-*"))
    hits, _ = fitted(filled)
    assert hits > 0


def test_entries_that_are_damaged_or_foreign_are_ignored(filled, tmp_path):
    folder = tmp_path / "programs"
    folder.mkdir()
    for i, entry in enumerate(entries(filled)):
        damaged = entry.read_bytes()[: 100 * i] + b"nonsense"
        (folder / entry.name).write_bytes(damaged)
    (folder / "foreign").write_text("text")
    fitted(tmp_path)  # without an error or a warning


def test_it_can_be_turned_off_and_leaves_a_folder_of_the_user_alone(tmp_path):
    assert fitted(tmp_path / "a", PROXLIN_PROGRAMS="0") == (0, "None")
    assert not (tmp_path / "a").exists()
    mine = str(tmp_path / "mine")
    assert fitted(tmp_path / "b", JAX_COMPILATION_CACHE_DIR=mine)[1] == mine
    assert not (tmp_path / "b").exists()


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(tmp_path):
    (tmp_path / "file").write_text("")
    assert fitted(tmp_path / "file")[1] == "None"


def test_the_estimators_and_the_commands_switch_it_on():
    source = Path(proxlin.__file__).parent
    callers = [*(source / "cli").glob("*.py"), *(source / "sklearn").glob("*.py")]
    found = {path.name for path in callers if "keep_programs()" in path.read_text()}
    assert found == {"fit.py", "predict.py", "advise.py", "regressor.py", "chains.py"}


# The room exports the function under the name of the module.
curve_fit_module = importlib.import_module("proxlin.inference.curves.curve_fit")


class SwitchedOn(Exception):
    """Raised in place of switching it on, so that nothing is fitted."""


@pytest.mark.parametrize("name", ["fit", "curve_fit", "regressor"])
def test_calls_switch_it_on_before_they_compile(name, monkeypatch):
    x = np.linspace(0.0, 1.0, 30)
    calls = {
        "fit": (fitted_tables, lambda: px.fit({"x": x, "y": x**2}, "y")),
        "curve_fit": (curve_fit_module, lambda: px.curve_fit(lambda x, a: a * x, x, x)),
        "regressor": (regressor, lambda: CompositeRegressor().fit(x[:, None], x)),
    }
    module, call = calls[name]

    def switch():
        raise SwitchedOn

    monkeypatch.setattr(module, "keep_programs", switch)
    with pytest.raises(SwitchedOn):
        call()
