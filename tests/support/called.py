"""The coverage figure of `make test`: how many functions of the package its tests call.

Every function begins with a line that puts its file and line into CALLED. A tracer of lines would
make the tests take half as long again, as most of their time is Python inside of JAX. What only
other processes call, such as most commands, is not counted.
"""

import ast
from pathlib import Path
from typing import Any

from jaxtyping import _import_hook

PACKAGE = Path(__file__).parents[2] / "src" / "proxlin"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CALLED: set[tuple[str, int]] = set()


class Marking(_import_hook.JaxtypingTransformer):
    """The transformer of jaxtyping's import hook, which marks functions too."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        # The line of the definition itself, before decorators are added to it.
        line = node.lineno
        found = super().visit_FunctionDef(node)
        call = f"__import__('called').CALLED.add((__file__, {line}))"
        mark = ast.parse(call).body[0]
        for each in ast.walk(mark):
            ast.copy_location(each, node.body[0])
        # A docstring stays the first statement.
        has_docstring = ast.get_docstring(node, clean=False) is not None
        node.body.insert(int(has_docstring), mark)
        return found


class Typechecker(_import_hook.Typechecker):
    """The type checker of the hook, whose compiled files are none of those without marks."""

    def get_hash(self) -> str:
        return super().get_hash() + "called"


def install() -> None:
    """Let the import hook of jaxtyping mark functions; call it before the hook is installed."""
    _import_hook.JaxtypingTransformer = Marking
    _import_hook.Typechecker = Typechecker


def count() -> int:
    """Return the number of functions of the package that have a body to call."""
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return sum(isinstance(x, FUNCTIONS) and not is_abstract(x) for x in nodes)


def is_abstract(node: Any) -> bool:
    return any("abstractmethod" in ast.dump(each) for each in node.decorator_list)


def pytest_sessionfinish(session: Any) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["called"] = sorted(CALLED)


def pytest_testnodedown(node: Any, error: Any) -> None:
    if error is None:
        CALLED.update(tuple(each) for each in node.workeroutput["called"])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    whole = count()
    share = len(CALLED) / whole
    terminalreporter.write_line(
        f"Coverage: the tests called {len(CALLED)} of {whole} functions ({share:.1%}) in their own processes."
    )
