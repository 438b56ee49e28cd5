"""The layering of the package: imports only go down, the core stays light, and few modules touch
clock or disk.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import proxlin
import quick
from proxlin.outers import sets

ROOT = Path(proxlin.__file__).parent

# A module may import from its own layer and from those before it.
LAYERS = (
    (
        *("types", "precision", "checks", "inputs", "slips", "shown"),
        *("errors", "cost", "files", "compiled", "jaxprs", "later", "trees"),
    ),
    ("outers", "oracles", "inners", "rollouts", "networks", "schedules", "penalties"),
    ("problem",),
    ("subproblem",),
    ("solvers",),
    ("run",),
    ("theory", "inference", "tuning", "data"),
    ("tables", "sklearn", "plots"),
    ("experiments",),
    ("cli", "__main__"),
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


SETS = {
    name
    for name, thing in vars(sets).items()
    if isinstance(thing, type) and issubclass(thing, sets.AbstractSet)
}


def asked_of_sets(tree: ast.Module) -> Iterator[int]:
    """The lines where a module asks which set it has: by isinstance, issubclass, type or match.

    A set is known by its import, as `Box` is an outer function too.
    """
    known = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("sets"):
            known |= {a.asname or a.name for a in node.names if a.name in SETS}

    def is_set(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            of = node.value
            return node.attr in SETS and isinstance(of, ast.Name) and of.id == "sets"
        return isinstance(node, ast.Name) and node.id in known

    def asks(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in ("isinstance", "issubclass")
        return isinstance(node, ast.Compare | ast.MatchClass)

    for node in ast.walk(tree):
        if asks(node) and any(is_set(part) for part in ast.walk(node)):
            yield getattr(node, "lineno", 0)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "outers.sets"])
def test_nobody_asks_which_set_it_has(name):
    for line in asked_of_sets(MODULES[name]):
        pytest.fail(f"{name}, line {line}: asks for a set; give the sets a method.")


@pytest.mark.parametrize(
    "asks",
    [
        "isinstance(V, Intervals)",
        "issubclass(type(V), (Ball, Intervals))",
        "type(V) is Intervals",
        "isinstance(V, sets.Box)",
    ],
)
def test_the_walk_sees_who_asks(asks):
    imports = "from ..outers import sets\nfrom ..outers.sets import Ball, Intervals\n"
    assert list(asked_of_sets(ast.parse(imports + asks))) == [3]
    assert not list(asked_of_sets(ast.parse("isinstance(outer, L1 | Box)")))


@pytest.mark.parametrize("room", sorted(LAYER | {"__init__": 0}))
def test_make_quick_knows_where_a_room_is_tested(room):
    """Each has a test file, as `make quick` would run none in silence, and each file is there."""
    names = list(quick.tests_of_room(room))
    assert names, f"tests/support/quick.py does not say where {room} is tested."
    for name in names:
        path = quick.ROOT / name
        tests = [path] if path.suffix else list(path.glob("test_*.py"))
        assert tests and all(test.is_file() for test in tests), name


def test_the_walk_sees_relative_imports():
    assert "proxlin.plots.pages" in [
        name for name, _ in imports("experiments.engine.report")
    ]
    assert "proxlin.errors" in [name for name, _ in imports("experiments.engine.store")]
    assert "proxlin.problem" in [name for name, _ in imports("run.minimize")]
