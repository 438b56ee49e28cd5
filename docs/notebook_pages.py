"""Show every notebook of docs/ as a page of the site, with the outputs that are stored in it.

    notebooks/first-steps.ipynb    ->  notebooks/first-steps.html, and the notebook to download

A hook of mkdocs.yml. Nothing is run: a test runs the notebook and compares.
"""

import json
import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

LINK = re.compile(r"(\]\([^)\s]*)\.ipynb\)")
TERMINAL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def on_files(files: Files, config: Any) -> Files:
    """Return the files with a page for each notebook."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            page = str(PurePosixPath(file.src_uri).with_suffix(".md"))
            text = markdown(json.loads(file.content_string))
            name = PurePosixPath(file.src_uri).name
            download = f'<p><a href="{name}" download>Download this notebook</a></p>\n'
            files.append(File.generated(config, page, content=text + download))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page whose links to notebooks lead to their pages."""
    return LINK.sub(r"\1.md)", markdown)


def markdown(notebook: dict[str, Any]) -> str:
    """Return the cells of a notebook and their outputs as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    return "\n\n".join([*parts, ""])


def _output(output: dict[str, Any]) -> str:
    """Return an output in the richest form that a page can show."""
    if output["output_type"] == "stream":
        return _text(output["text"])
    data = output["data"]
    for kind, start in (("text/html", ""), ("image/svg+xml", "<svg")):
        if kind in data:
            text = " ".join(
                "".join(data[kind]).split("\n")
            )  # Markdown begins at a line
            return f'<div class="output">{text[text.index(start) :]}</div>'
    return _text(data["text/plain"])


def _text(text: str | list[str]) -> str:
    plain = TERMINAL.sub("", "".join(text)).rstrip("\n")
    return f"```text\n{plain}\n```"
