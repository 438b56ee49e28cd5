"""What a user installs: the wheel and what is in it, the lazy import, the version, the lock files."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import proxlin

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "proxlin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_every_file_of_the_package(wheel):
    kept = [
        path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"
    ]
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {str(path.relative_to(PACKAGE.parent)) for path in kept} <= inside
    assert {"proxlin/py.typed", "proxlin/plots/templates/reproduce.html"} <= inside
    assert not [
        name
        for name in inside
        if not name.startswith(
            ("proxlin/", f"proxlin-{proxlin.__version__}.dist-info/")
        )
    ]


def test_the_wheel_imports_without_jax(wheel):
    code = f"""
import sys; sys.path.insert(0, {str(wheel)!r})
import proxlin; assert proxlin.__file__.startswith({str(wheel)!r}), proxlin.__file__
print(proxlin.__version__, "jax" in sys.modules, "numpy" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.stdout == f"{proxlin.__version__} False False\n", found.stderr


def test_the_core_asks_for_little(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(
            f"proxlin-{proxlin.__version__}.dist-info/METADATA"
        ).decode()
    # those without an extra
    needs = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.MULTILINE)
    assert sorted(needs) == ["equinox", "jax", "jaxtyping", "numpy", "optax", "scipy"]


@pytest.mark.parametrize("name", proxlin.__all__)
def test_every_public_name_is_there(name):
    assert getattr(proxlin, name) is not None
    assert name in dir(proxlin)


def test_type_checkers_see_the_same_names():
    """The table of lazy names and the imports under TYPE_CHECKING say the same."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    seen = {(node.module, alias.name) for node in imports for alias in node.names}
    submodules = {(None, module) for module in proxlin._PUBLIC}
    assert seen == submodules | {
        (module, name) for name, module in proxlin._HOME.items()
    }


def test_an_unknown_name_is_named():
    with pytest.raises(AttributeError, match="no public name 'nope'"):
        getattr(proxlin, "nope")  # noqa: B009  a type checker would object to proxlin.nope


def test_the_changelog_and_the_citation_know_the_version():
    assert f"## {proxlin.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {proxlin.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-bench.lock"])
def test_locks_are_exact_and_hold_no_addresses(name):
    lines = (ROOT / name).read_text().splitlines()
    assert lines and all(
        re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!]+", line) for line in lines
    )


def test_the_locks_cover_what_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = {name: _names((ROOT / name).read_text().splitlines()) for name in _LOCKS}
    for extra in ("cli", "experiments", "sklearn", "dev"):
        assert (
            _names(project["optional-dependencies"][extra])
            <= locked["requirements.lock"]
        ), extra
    assert _names(project["dependencies"]) <= locked["requirements.lock"]
    assert _names(project["optional-dependencies"]["bench"]) <= set.union(
        *locked.values()
    )


_LOCKS = ("requirements.lock", "requirements-bench.lock")


def _names(requirements: list[str]) -> set[str]:
    return {
        re.split(r"[^A-Za-z0-9_.-]", line)[0].lower().replace("_", "-")
        for line in requirements
    }
