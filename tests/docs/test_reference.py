"""The reference of the API: every public name says what it takes, returns and raises, what is near
it, and shows an example.

Public are the names of `proxlin`, of `proxlin.theory`, `proxlin.inference` and `proxlin.sklearn`,
and what else an API page shows. The examples run with the tests, as doctests of their modules.
"""

import ast
import builtins
import doctest
import enum
import inspect
import re
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import proxlin as px

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {page.stem: page.read_text() for page in (ROOT / "docs" / "api").glob("*.md")}
SHOWN = [
    name
    for page in PAGES.values()
    for name in re.findall(r"^::: proxlin\.(\S+)$", page, re.MULTILINE)
]
HEADING = re.compile(r"^([A-Z][A-Za-z ]+)\n(-+)$", re.MULTILINE)
KNOWN = ("Parameters", "Returns", "Raises", "Warns", "See Also", "Examples")


def exported(room: str) -> list[str]:
    """Return the names that a room shows, from its __init__.py."""
    text = (ROOT / f"src/proxlin/{room}/__init__.py").read_text()
    names = re.findall(r"^from \.\w+ import (\w+) as \w+", text, re.MULTILINE)
    return [f"{room}.{name}" for name in names]


def resolved(name: str) -> Any:
    """Return what a dotted name below proxlin is; raise AttributeError where it is nothing."""
    *rooms, last = name.split(".")
    found: Any = px
    for i, part in enumerate(rooms):
        try:
            found = import_module(".".join(["proxlin", *rooms[: i + 1]]))
        except ModuleNotFoundError:
            found = getattr(found, part)
    return getattr(found, last)


def public() -> dict[str, Any]:
    """Return every public name once, by its shortest address."""
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    names = [*px._HOME, *exported("theory"), *exported("inference")]
    names += [*exported("sklearn"), *SHOWN]
    found: dict[int, tuple[str, Any]] = {}
    for name in names:
        value = resolved(name)
        found.setdefault(id(value), (name, value))
    return dict(found.values())


def methods(name: str, kind: type) -> dict[str, Any]:
    """Return the public methods and properties of a class that are written in proxlin."""
    found = {}
    for method in dir(kind):
        if method.startswith("_") or method.endswith("_request"):
            continue  # scikit-learn writes set_fit_request and the like
        if method in getattr(kind, "__dataclass_fields__", {}):
            continue  # a function as the default of an argument
        owner = next((each for each in kind.__mro__ if method in vars(each)), None)
        if owner is None or not owner.__module__.startswith("proxlin"):
            continue
        value = inspect.getattr_static(kind, method)
        if isinstance(value, property) or inspect.isroutine(getattr(kind, method)):
            found[f"{name}.{method}"] = value
    return found


def sections(doc: str) -> dict[str, str]:
    """Return the text of each section of a docstring, "" for what comes before the first."""
    headings = list(HEADING.finditer(doc))
    starts = [heading.start() for heading in headings] + [len(doc)]
    found = {"": doc[: starts[0]]}
    for heading, end in zip(headings, starts[1:], strict=True):
        assert len(heading[1]) == len(heading[2]), f"underline {heading[1]} in full"
        assert heading[1] not in found, f"{heading[1]} is there twice"
        found[heading[1]] = doc[heading.end() : end].strip("\n")
    return found


def heads(section: str) -> list[str]:
    """Return the lines of a section that stand at the margin."""
    return [line for line in section.splitlines() if line and line[0] != " "]


def arguments(function: Any) -> list[str]:
    """Return the names of a signature, with the stars of *args and **settings."""
    stars = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    return [
        stars.get(each.kind, "") + name
        for name, each in inspect.signature(function).parameters.items()
        if name != "self"
    ]


def told(doc: str) -> list[str]:
    """Return the names under Parameters."""
    lines = heads(sections(doc).get("Parameters", ""))
    return [line.partition(" : ")[0] for line in lines]


def raised(function: Callable) -> set[str]:
    """Return the exceptions that a function raises in its own lines."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [each.exc for each in ast.walk(tree) if isinstance(each, ast.Raise)]
    return {
        each.func.id
        for each in calls
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
    }


def free_names(doc: str) -> set[str]:
    """Return the names that an example uses and does not define: it could not be pasted."""
    lines = [each.source for each in doctest.DocTestParser().get_examples(doc)]
    nodes = list(ast.walk(ast.parse("".join(lines))))
    names = [each for each in nodes if isinstance(each, ast.Name)]
    bound = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    for each in nodes:
        if isinstance(each, ast.alias):
            bound.add(each.asname or each.name.partition(".")[0])
        elif isinstance(each, ast.FunctionDef | ast.ClassDef):
            bound.add(each.name)
        elif isinstance(each, ast.arg):
            bound.add(each.arg)
    return {each.id for each in names} - bound - set(dir(builtins))


PUBLIC = public()
METHODS = {
    name: value
    for owner, kind in PUBLIC.items()
    if inspect.isclass(kind)
    for name, value in methods(owner, kind).items()
}


def test_what_is_public():
    assert {"minimize", "AbstractSolver", "theory.noise_window"} <= set(PUBLIC)
    assert {"inference.mad", "sklearn.CompositeRegressor"} <= set(PUBLIC)
    assert {"L2.prox", "Solution.save", "Chains.top", "MLP.init"} <= set(METHODS)
    assert "AbstractProblem.linearize" in METHODS


@pytest.mark.parametrize("name", PUBLIC)
def test_a_name_is_documented(name):
    value = PUBLIC[name]
    doc = inspect.getdoc(value) or ""
    found = sections(doc)
    assert list(found)[1:] == [each for each in KNOWN if each in found]
    assert found[""].strip(), "say first what it is"
    free = inspect.isclass(value) and (
        inspect.isabstract(value) or issubclass(value, enum.Enum | Warning)
    )
    if not free:
        assert told(doc) == arguments(value)
    assert doctest.DocTestParser().get_examples(found.get("Examples", ""))
    assert not free_names(doc)
    check_near(found.get("See Also", ""))
    if inspect.isclass(value):
        makers = [vars(value).get("__init__"), vars(value).get("__post_init__")]
        written = [each for each in makers if inspect.isfunction(each)]
        functions = [each for each in written if "raise " in source_of(each)]
    else:
        functions = [inspect.unwrap(value)]
        check_returns(value, found)
    for function in functions:
        assert raised(function) <= set(heads(found.get("Raises", "")))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_documented(name):
    method = METHODS[name]
    if isinstance(method, property):
        assert "Returns" in sections(inspect.getdoc(method.fget) or "")
        return
    owner, _, last = name.rpartition(".")
    bound = getattr(PUBLIC[owner], last)
    doc = inspect.getdoc(bound) or ""
    found = sections(doc)
    assert list(found)[1:] == [each for each in KNOWN if each in found]
    assert found[""].strip(), "say first what it returns"
    assert told(doc) == arguments(bound)
    check_returns(bound, found)
    if vars(PUBLIC[owner]).get(last) is not None and method.__doc__:
        assert raised(inspect.unwrap(bound)) <= set(heads(found.get("Raises", "")))


def check_near(section: str) -> None:
    """See Also names what there is, and something."""
    lines = heads(section)
    assert lines
    for line in lines:
        names, colon, text = line.partition(" : ")
        assert colon and text, f"say what {names} is to it"
        for name in names.split(", "):
            assert resolved(name) is not None


def check_returns(function: Callable, found: dict[str, str]) -> None:
    """Returns is there if and only if something comes back."""
    hint = inspect.signature(function).return_annotation
    assert hint is not inspect.Signature.empty
    assert ("Returns" in found) == (hint not in (None, type(None), "None"))


def source_of(function: Callable) -> str:
    """Return the lines of a function; dataclasses write some that have none."""
    try:
        return inspect.getsource(function)
    except OSError:
        return ""


def test_every_name_is_on_a_page_and_in_the_index():
    """The index lists the name; another page shows it in full."""
    index = PAGES["index"]
    shown = {name.rpartition(".")[2] for name in SHOWN}
    missing = [
        name
        for name in PUBLIC
        if (last := name.rpartition(".")[2]) not in shown or f"`{last}`" not in index
    ]
    assert not missing


def test_an_address_is_no_module():
    """mkdocstrings takes a name that is also a file for the file: `proxlin.run.minimize.minimize`
    is the function, and `proxlin.minimize` would show the module.
    """
    wrong = []
    for name in SHOWN:
        value = resolved(name)
        home = value.__module__.removeprefix("proxlin.")
        if home.endswith(f".{value.__name__}") and name != f"{home}.{value.__name__}":
            wrong.append(name)
    assert not wrong


def test_pages_import_public_names():
    """A reader's program imports from proxlin, from an extra of it, or from the rooms of the
    studies.
    """
    wanted = re.compile(r"proxlin(\.(sklearn|data|experiments)\b.*)?")
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    lines = [
        f"{page.relative_to(ROOT)}: {found[0]}"
        for page in pages
        for found in re.finditer(
            r"^\s*(?:from|import) (proxlin[\w.]*).*$", page.read_text(), re.MULTILINE
        )
        if not wanted.fullmatch(found[1])
    ]
    assert not lines


def test_a_missing_line_is_noticed():
    """The laws above would fail for an argument without a line, and for a stale one."""

    def documented(a: int, b: int) -> None:
        """Do nothing.

        Parameters
        ----------
        a : an integer
            The first.
        """

    doc = inspect.getdoc(documented) or ""
    assert told(doc) == ["a"] and arguments(documented) == ["a", "b"]
    assert free_names(">>> import numpy as np\n>>> np.ones(2) + x\n") == {"x"}
    with pytest.raises(AttributeError):
        check_near("minimise : there is no such name.")
    with pytest.raises(AssertionError):
        check_returns(documented, {"Returns": "a number"})
