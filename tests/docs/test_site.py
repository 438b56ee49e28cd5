"""What `mkdocs build --strict` does not check: docstrings survive Markdown."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PLAIN = """f(u) = max <u, v>; f* of w_t, `a_b`.

    w_t = <u, v>

loss: one,
two
steps, tol: b

+ ridge/2 |w|^2

Parameters
----------
w_t : a `Result`
    A w_t of <u, v>.

See Also
--------
minimize, theory.mad : f* of it.

Examples
--------
>>> 1 + 1
2"""
MARKDOWN = """f(u) = max &lt;u, v>; f\\* of w\\_t, `a_b`.

    w_t = <u, v>

- `loss`: one,
    two
- `steps, tol`: b

\\+ ridge/2 |w|^2

Parameters
----------
w_t : a Result
    A w\\_t of &lt;u, v>.

See Also
--------
- [`minimize`][proxlin.minimize], [`theory.mad`][proxlin.theory.mad]: f\\* of it.

Examples
--------
>>> 1 + 1
2"""
ADDRESSES = {"minimize": "proxlin.minimize", "theory.mad": "proxlin.theory.mad"}


def test_a_docstring_becomes_markdown():
    pytest.importorskip("griffe", reason="needs griffe: pip install 'proxlin[dev]'")
    spec = importlib.util.spec_from_file_location("plain_text", DOCS / "plain_text.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.markdown(PLAIN, ADDRESSES) == MARKDOWN
