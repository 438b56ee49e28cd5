"""Every Python block of README.md and docs/ runs, a file's blocks one after the other in one
namespace.

A block that opens with ```python no-run is shown only: it needs something that a test does not
have.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def script(page: str) -> str:
    """The blocks as one program, with blank lines between so that a traceback names the line of the
    page.
    """
    lines = [""] * page.count("\n")
    for block in BLOCK.finditer(page):
        first = page.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines).rstrip() + "\n"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=str(p.relative_to(ROOT)))
        for p in PAGES
        if BLOCK.search(p.read_text())
    ],
)
def test_blocks_run(page, tmp_path):
    """In a process of its own, as a reader would run it: float32, no strict promotion."""
    # dask.py would hide the package
    program = tmp_path / f"page_{page.stem}.py".replace("-", "_")
    program.write_text(script(page.read_text()))
    environment = {**os.environ, "JAX_ENABLE_X64": "0", "MPLBACKEND": "agg"}
    run = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_lines_keep_their_numbers():
    page = "one\n```python\nx = 1\n```\ntwo\n```python no-run\nnever()\n```\n```python\nprint(x)\n```\n"
    assert script(page).splitlines() == [
        "",
        "",
        "x = 1",
        "",
        "",
        "",
        "",
        "",
        "",
        "print(x)",
    ]
