"""What a user installs: the wheel and what is in it, the lazy import, the version, the lock files; and
what a release is made of.
"""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

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


# ----------------------------------------------------------------------------------------- a release


@pytest.fixture(scope="module")
def release():
    """The module tools/release.py."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools/release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_notes_are_the_section_of_the_version(release):
    text = (
        "# Changes\n\n## 0.2.0\n\n- New.\n\n### More\n\n- Old.\n\n## 0.2\n\n- Older.\n"
    )
    assert release.section(text, "0.2.0") == (
        "# proxlin 0.2.0\n\n- New.\n\n### More\n\n- Old.\n"
    )
    assert release.section(text, "0.2") == "# proxlin 0.2\n\n- Older.\n"
    for absent in ("0.2.1", "0.20", "0"):
        with pytest.raises(release.Failed, match="has no section"):
            release.section(text, absent)
    version = release.version_of((PACKAGE / "__init__.py").read_text())
    assert version == proxlin.__version__
    ours = release.section((ROOT / "CHANGELOG.md").read_text(), version)
    assert "make release" in ours and "\n## " not in ours


def test_a_release_tries_extras_that_exist_and_nothing_at_first(release):
    first, *others = release.TRIALS
    assert first == "" and others
    for extras in others:
        assert set(extras.split(",")) <= project()["optional-dependencies"].keys()


def test_a_wheel_without_its_files_is_refused(release, wheel, tmp_path):
    """The check of the archives sees a file that is not there, and another version."""
    less = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(less, "w") as copy:
        for name in whole.namelist():
            if name != "proxlin/py.typed":
                copy.writestr(name, whole.read(name))
    with pytest.raises(release.Failed, match="the wheel lacks proxlin/py.typed"):
        release.check_archives(tmp_path / "none", less, proxlin.__version__)


def test_the_recipe_says_what_pyproject_says():
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text())
    extras = project()["optional-dependencies"]
    python = f"python{project()['requires-python']}"
    run = [python, *project()["dependencies"], *extras["cli"]]
    conda = lambda lines: sorted(line.replace(" ", "") for line in lines)
    assert recipe["context"]["version"] == proxlin.__version__
    assert conda(recipe["requirements"]["run"]) == sorted(run)
    # what is not needed, but must be new enough if it is there; conda calls one of them otherwise
    beside = conda(recipe["requirements"]["run_constraints"])
    also = {*extras["experiments"], *extras["sklearn"]} - set(run)
    assert {line.replace("matplotlib-base", "matplotlib") for line in beside} == also
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert set(build["requires"]) <= set(conda(recipe["requirements"]["host"]))
    scripts = [f"{name} = {target}" for name, target in project()["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    assert recipe["about"]["license"] == project()["license"]
    assert (ROOT / "recipe" / recipe["source"]["path"] / "pyproject.toml").is_file()
    assert (ROOT / recipe["about"]["license_file"]).is_file()


def test_the_dockerfile_names_what_there_is():
    """It is parsed, not built: files that are copied, targets of make, the Python, the command."""
    text = (ROOT / "Dockerfile").read_text()
    steps = [
        line.split(maxsplit=1)
        for line in text.replace("\\\n", " ").splitlines()
        if line and not line.startswith("#")
    ]
    (base,) = [rest for name, rest in steps if name == "FROM"]
    versions = [
        text.rsplit(" ", 1)[1] for text in project()["classifiers"] if ":: 3." in text
    ]
    assert re.fullmatch(r"python:(.+)-slim", base)[1] in versions
    copied = [
        path
        for name, rest in steps
        if name == "COPY"
        for path in shlex.split(rest)[:-1]
    ]
    assert copied and all((ROOT / path).exists() for path in copied)
    # the builder gets everything that is copied, and what setup reads is copied before it
    sent = (ROOT / ".dockerignore").read_text().split()
    assert {f"!{path.partition('/')[0]}" for path in copied} <= set(sent)
    before = [path for path in copied if path != "src"]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {"pyproject.toml", "requirements.lock", "Makefile"} <= set(before)
    assert {project()["readme"], *project()["license-files"]} <= set(before)
    assert build["tool"]["hatch"]["version"]["path"] in before
    makefile = (ROOT / "Makefile").read_text()
    targets = [
        *re.findall(r"^RUN make (\w+)", text, re.MULTILINE),
        *re.findall(r"entrypoint make proxlin -C \S+ (\w+)", text),
    ]
    assert targets == ["setup", "reproduce"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    (entry,) = [rest for name, rest in steps if name == "ENTRYPOINT"]
    assert yaml.safe_load(entry) == list(project()["scripts"])
