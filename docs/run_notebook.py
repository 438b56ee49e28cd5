"""Run docs/notebooks/first-steps.ipynb in a kernel and store it with its outputs.

    python docs/run_notebook.py

Edit the cells in Jupyter or in a text editor, run this, look at the outputs, and commit the notebook.
"""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent / "notebooks" / "first-steps.ipynb"
SECONDS = 600  # for one cell, on a machine that does other things too


def run(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a fresh kernel, without times and versions."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", record_timing=False
    )
    client.execute(cwd=str(NOTEBOOK.parent))
    for cell in notebook.cells:
        cell.metadata.clear()
    notebook.metadata = {
        "kernelspec": {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        },
        "language_info": {"name": "python"},
    }
    return notebook


def main() -> int:
    """Run the notebook and store it."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.write(run(notebook), NOTEBOOK)
    print(f"{NOTEBOOK.relative_to(NOTEBOOK.parents[2])} has the outputs of today.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
