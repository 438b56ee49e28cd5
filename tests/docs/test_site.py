"""What `mkdocs build --strict` does not check: every public name has its place, and docstrings
survive Markdown.
"""

import importlib.util
import re
from pathlib import Path

import pytest

import proxlin as px

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
API = "".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))
PLAIN = """f(u) = max <u, v>; f* of w_t, `a_b`.

    w_t = <u, v>

loss: one,
two
steps, tol: b

+ ridge/2 |w|^2

>>> 1 + 1
2"""
MARKDOWN = """f(u) = max &lt;u, v>; f\\* of w\\_t, `a_b`.

    w_t = <u, v>

- `loss`: one,
    two
- `steps, tol`: b

\\+ ridge/2 |w|^2

```pycon
>>> 1 + 1
2
```"""


def test_every_public_name_is_on_an_api_page():
    """A solver has the name of its module, so its address is longer: proxlin.solvers.pli.pli."""
    names = [*px._HOME, *exported("theory"), *exported("inference")]
    assert "noise_window" in names and "mad" in names
    assert not [name for name in names if f".{name}\n" not in API]


def exported(room: str) -> list[str]:
    """The names that a room shows, from its __init__.py."""
    text = (ROOT / f"src/proxlin/{room}/__init__.py").read_text()
    return re.findall(r"^from .* as (\w+)$", text, re.MULTILINE)


def test_a_docstring_becomes_markdown():
    pytest.importorskip("griffe", reason="needs griffe: pip install 'proxlin[dev]'")
    spec = importlib.util.spec_from_file_location("plain_text", DOCS / "plain_text.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.markdown(PLAIN) == MARKDOWN
