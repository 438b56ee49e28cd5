"""The layering of the package: imports only go down, the core stays light, and few modules touch
clock or disk.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import proxlin

ROOT = Path(proxlin.__file__).parent

# A module may import from its own layer and from those before it.
LAYERS = (
    (
        *("types", "precision", "checks", "inputs", "slips", "shown"),
        *("errors", "cost", "files", "compiled", "jaxprs", "later"),
    ),
    ("outers", "oracles", "inners", "rollouts", "networks", "schedules", "penalties"),
    ("problem",),
    ("subproblem",),
    ("solvers",),
    ("run",),
    ("theory", "inference", "tuning", "data"),
    ("tables", "sklearn", "plots"),
    ("experiments",),
    ("cli",),
)
LAYER = {unit: number for number, units in enumerate(LAYERS) for unit in units}

CORE = {unit for units in LAYERS[:6] for unit in units}
CORE_NEEDS = {"jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy"}
# a bar where rich is installed or a notebook runs, plain lines elsewhere
USED_IF_THERE = {("run.progress", "rich"), ("run.progress", "IPython")}

# What reads the clock or touches the disk, and who may use it.
OUTSIDE_WORLD = {
    *(
        "os",
        "pathlib",
        "shutil",
        "tempfile",
        "glob",
        "fcntl",
        "sqlite3",
        "subprocess",
        "socket",
    ),
    *("time", "datetime", "platform", "logging"),
}
IN_TOUCH = {
    # the loop, its clock, and the files it is resumed from
    *("run.minimize", "compiled", "run.solution"),
    *("files", "data", "tuning.advisor", "cli"),
    *("tables.engine", "tables.fitted", "tables.model", "tables.page"),
    "tables.streaming",
    *(
        "experiments.engine.sweep",
        "experiments.engine.workers",
        "experiments.engine.store",
    ),
    *(
        "experiments.engine.report",
        "experiments.engine.reproduce",
        "experiments.engine.cluster",
    ),
}


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name below it ("" for the package itself)."""
    trees = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        trees[".".join(part for part in parts if part != "__init__")] = ast.parse(
            path.read_text(encoding="utf-8")
        )
    return trees


MODULES = modules()
PACKAGES = {
    str(path.parent.relative_to(ROOT)).replace("/", ".")
    for path in ROOT.rglob("__init__.py")
}


def imports(name: str) -> Iterator[tuple[str, int]]:
    """The absolute dotted names that a module imports anywhere in its text, with their lines."""
    package = ["proxlin", *name.split(".")] if name else ["proxlin"]
    if name and name not in PACKAGES:
        package = package[:-1]
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            # `from . import report` names a module, `from .report import page` a thing in it
            yield from (
                (f"{base}.{alias.name}" if base == "proxlin" else base, node.lineno)
                for alias in node.names
            )


def unit(dotted: str) -> str:
    """The first name below the package: "outers" of "proxlin.outers.norms"; "" for a name of the
    package itself.
    """
    first = dotted.split(".")[1] if "." in dotted else ""
    return first if (ROOT / first).is_dir() or (ROOT / f"{first}.py").exists() else ""


def among(name: str, units: set[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in units)


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_imports_go_down(name):
    mine = name.split(".")[0]
    assert mine in LAYER, (
        f"src/proxlin/{mine} has no layer; add it to LAYERS in this test."
    )
    for dotted, line in imports(name):
        if dotted.split(".")[0] == "proxlin" and (other := unit(dotted)):
            assert other in LAYER, (
                f"src/proxlin/{other} has no layer; add it to LAYERS in this test."
            )
            assert LAYER[other] <= LAYER[mine], (
                f"{name}, line {line}: imports {dotted}, which is in a layer above it."
            )


@pytest.mark.parametrize("name", [name for name in MODULES if among(name, CORE)])
def test_the_core_needs_little(name):
    for dotted, line in imports(name):
        top = dotted.split(".")[0]
        known = top in CORE_NEEDS or top == "proxlin" or top in sys.stdlib_module_names
        assert known or (name, top) in USED_IF_THERE, (
            f"{name}, line {line}: the core imports {top}; that belongs in an extra, above the core."
        )


@pytest.mark.parametrize(
    "name", [name for name in MODULES if not among(name, IN_TOUCH)]
)
def test_few_touch_clock_or_disk(name):
    for dotted, line in imports(name):
        assert dotted.split(".")[0] not in OUTSIDE_WORLD, (
            f"{name}, line {line}: imports {dotted}."
        )
    for line in calls(name, "open"):
        pytest.fail(f"{name}, line {line}: opens a file.")


@pytest.mark.parametrize("name", MODULES)
def test_wrap_or_ask_by_type(name):
    for banned in ("super", "hasattr"):
        for line in calls(name, banned):
            pytest.fail(
                f"{name}, line {line}: {banned}(); wrap instead of subclassing, or ask by type."
            )


def calls(name: str, function: str) -> Iterator[int]:
    for node in ast.walk(MODULES[name]):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == function
        ):
            yield node.lineno


def test_the_walk_sees_relative_imports():
    assert "proxlin.plots.pages" in [
        name for name, _ in imports("experiments.engine.report")
    ]
    assert "proxlin.errors" in [name for name, _ in imports("experiments.engine.store")]
    assert "proxlin.problem" in [name for name, _ in imports("run.minimize")]
