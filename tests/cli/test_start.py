"""Before any work: version, help, and what the fast paths do not import."""

import subprocess
import sys
from importlib.metadata import requires

from packaging.requirements import Requirement

import proxlin

HEAVY = {"jax", "numpy", "typer", "rich", "matplotlib", "equinox"}


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


def asks_for(extra: str) -> str:
    """The packages of an extra as the installed metadata has them, read by another parser."""
    asked = [Requirement(each) for each in requires("proxlin")]
    ours = [
        each for each in asked if each.marker and each.marker.evaluate({"extra": extra})
    ]
    packages = [f"'{each.name}{each.specifier}'" for each in ours]
    return f"pip install {' '.join(packages)}"


def test_help_names_what_is_not_installed():
    code = "import sys; sys.modules['distributed'] = None; from proxlin.cli import main; main(['--help'])"
    found = python(code)
    shown = " ".join(found.stdout.split())
    assert "Not installed, for `reproduce --engine dask`: pip install" in shown, (
        found.stderr
    )
    assert shown.count("Not installed") == 1


def test_version_imports_nothing_heavy():
    found = python(
        f"import sys; from proxlin.cli import main; main(['--version']); print({HEAVY} & set(sys.modules))"
    )
    assert found.stdout == f"proxlin {proxlin.__version__}\nset()\n", found.stderr


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "proxlin"]
    run = lambda *words: subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False
    )
    found = run("--version")
    assert (found.returncode, found.stdout) == (0, f"proxlin {proxlin.__version__}\n")
    refused = run("fit", "none.csv", "--target", "y")
    assert refused.returncode == 2
    assert refused.stderr == "proxlin: none.csv: there is no such file.\n"


def test_help_does_not_wait_for_jax():
    found = python(
        "import sys; from proxlin.cli import main; main(['--help']); print('jax' in sys.modules)"
    )
    assert "reproduce" in found.stdout and found.stdout.endswith("False\n"), (
        found.stderr
    )


def test_every_command_has_help_with_an_example(cli):
    for command in ("reproduce", "report", "bench"):
        code, out, _ = cli(command, "--help")
        assert code == 0 and f"Example: proxlin {command}" in out


def test_no_arguments_is_help(cli):
    code, out, _ = cli()
    assert code == 0 and "Usage: proxlin" in out


def test_without_typer_one_sentence():
    found = python(
        "import sys; sys.modules['typer'] = None; from proxlin.cli import main; sys.exit(main(['report']))"
    )
    assert found.returncode == 2
    assert found.stderr == f"proxlin: typer is not installed: {asks_for('cli')}.\n"


def test_without_jinja_one_sentence(tmp_path):
    arguments = ["reproduce", "all", "--out", str(tmp_path)]
    found = python(
        f"import sys; sys.modules['jinja2'] = None; from proxlin.cli import main; sys.exit(main({arguments}))"
    )
    assert found.returncode == 2
    wanted = f"proxlin: jinja2 is not installed: {asks_for('experiments')}.\n"
    assert found.stderr == wanted


def test_usage_errors(refused):
    assert "--nope" in refused("reproduce", "fig1", "--nope")
    assert "frobnicate" in refused("frobnicate")
    assert "experiment" in refused("reproduce")
    assert "--seed" in refused("reproduce", "fig1", "--seed", "x")
