"""Every Python block of README.md and docs/ runs, a file's blocks one after the other in one
namespace.

A block that opens with ```python no-run is shown only: it needs something that a test does not
have. A block that opens with ```python needs torch runs where that package is installed. On the
pages of COMPARED, a ```text block is what the Python block before it prints; "..." in it stands for
anything.
"""

import importlib.util
import os
import re
import subprocess
import sys
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python(?: needs (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"\s*^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMPARED = {"README.md", "coming-from.md", "penalties.md", "troubleshooting.md"}
MARK = "-- the end of the block on line {} --"


def script(page: str, peer: str | None = None, marked: bool = False) -> str:
    """The blocks as one program, with blank lines between so that a traceback names the line of the
    page. With a peer, those that need it are among them; `marked` prints a line after each block.
    """
    lines = [""] * page.count("\n")
    for block in BLOCK.finditer(page):
        if block[1] not in (None, peer):
            continue
        first = page.count("\n", 0, block.start(2))
        code = block[2].splitlines()
        lines[first : first + len(code)] = code
        if marked:
            lines[first + len(code)] = f"print({MARK.format(first)!r})"
    return "\n".join(lines).rstrip() + "\n"


def shown(page: str, peer: str | None = None) -> dict[int, str]:
    """What the page says that its blocks print, by the line of the block."""
    found = {}
    for block in BLOCK.finditer(page):
        output = SHOWN.match(page, block.end())
        if output and block[1] in (None, peer):
            found[page.count("\n", 0, block.start(2))] = output[1]
    return found


def printed(text: str) -> dict[int, str]:
    """What the blocks of a marked program printed, by the line of the block."""
    parts = re.split(f"^{MARK.format('([0-9]+)')}\n", text, flags=re.MULTILINE)
    return {int(line): out for out, line in zip(parts[::2], parts[1::2], strict=False)}


def cases():
    for page in PAGES:
        name, found = (
            str(page.relative_to(ROOT)),
            list(BLOCK.finditer(page.read_text())),
        )
        if found:
            yield pytest.param(page, None, id=name)
        for peer in sorted({block[1] for block in found if block[1]}):
            yield pytest.param(page, peer, id=f"{name} with {peer}")


@pytest.mark.parametrize("page, peer", list(cases()))
def test_blocks_run(page, peer, tmp_path):
    """In a process of its own, as a reader would run it: float32, no strict promotion."""
    if peer is not None and importlib.util.find_spec(peer) is None:
        pytest.skip(f"needs {peer}: pip install {peer}")
    # dask.py would hide the package
    program = tmp_path / f"page_{page.stem}.py".replace("-", "_")
    compared = page.name in COMPARED
    program.write_text(script(page.read_text(), peer, compared))
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
    if compared:
        outputs = printed(run.stdout)
        for line, text in shown(page.read_text(), peer).items():
            same = OutputChecker().check_output(text, outputs[line], ELLIPSIS)
            assert same, f"the block on line {line} prints {outputs[line]!r}"


def test_lines_keep_their_numbers():
    page = (
        "one\n```python\nx = 1\n```\ntwo\n```python no-run\nnever()\n```\n"
        "```python needs torch\nimport torch\n```\n```python\nprint(x)\n```\n\n```text\n1\n```\n"
    )
    assert script(page).splitlines() == [*("", "", "x = 1"), *[""] * 9, "print(x)"]
    assert script(page, "torch").splitlines()[9] == "import torch"
    assert shown(page) == {12: "1\n"}
    marked = script(page, marked=True)
    out = subprocess.run([sys.executable, "-c", marked], capture_output=True, text=True)
    assert printed(out.stdout) == {2: "", 12: "1\n"}


def test_code_comes_early():
    """Somebody who opens README.md sees what to run, and what it prints, on the first screen."""
    first = BLOCK.search((ROOT / "README.md").read_text())
    assert first is not None
    assert (ROOT / "README.md").read_text().count("\n", 0, first.start()) < 30
