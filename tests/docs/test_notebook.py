"""The example notebook in a real kernel: it prints what is stored in it, its bar needs no widgets, and it
becomes a page.
"""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def notebooks():
    """The notebook as it is stored, and as a fresh kernel leaves it."""
    run_notebook = load("run_notebook")
    stored = run_notebook.nbformat.read(run_notebook.NOTEBOOK, as_version=4)
    fresh = json.loads(json.dumps(stored))
    for cell in fresh["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    return stored, run_notebook.run(run_notebook.nbformat.from_dict(fresh))


def outputs(notebook) -> list:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_it_prints_what_is_stored(notebooks):
    stored, fresh = (
        [output.text for output in outputs(notebook) if output.output_type == "stream"]
        for notebook in notebooks
    )
    assert stored == fresh


def test_its_other_outputs_are_of_the_stored_kinds(notebooks):
    """Tables, pictures and bars have seconds in them; nothing is an error or a warning."""
    stored, fresh = (
        [(o.output_type, o.get("name"), *sorted(o.get("data", {}))) for o in outputs(n)]
        for n in notebooks
    )
    assert stored == fresh
    assert not [kind for kind in fresh if kind[0] == "error" or kind[1] == "stderr"]


def test_the_bar_needs_no_widgets(notebooks):
    """It is moved below its cell as one output, and ends with the last record in words."""
    assert importlib.util.find_spec("ipywidgets") is None
    (cell,) = [cell for cell in notebooks[1].cells if "progress=True)" in cell.source]
    (bar,) = [o for o in cell.outputs if o.output_type == "display_data"]
    assert bar.data["text/plain"].startswith("sgd: F = ")
    assert "at pass 50" in bar.data["text/html"]
    assert "<progress" not in bar.data["text/html"]


def test_a_notebook_becomes_a_page():
    markdown = load("notebook_pages").markdown
    html = {"text/html": ["<table>\n", "</table>"], "text/plain": "no"}
    picture = {"image/svg+xml": "<?xml?>\n<svg>\n</svg>", "text/plain": "no"}
    cells = [
        {"cell_type": "markdown", "source": ["# A\n", "b"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [
                {"output_type": "stream", "text": ["\x1b[1m1\x1b[0m\n"]},
                {"output_type": "execute_result", "data": html},
                {"output_type": "display_data", "data": picture},
                {"output_type": "execute_result", "data": {"text/plain": "2"}},
            ],
        },
    ]
    assert markdown({"cells": cells}) == (
        "# A\nb\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n"
        '<div class="output"><table> </table></div>\n\n<div class="output"><svg> </svg></div>\n\n'
        "```text\n2\n```\n\n"
    )
