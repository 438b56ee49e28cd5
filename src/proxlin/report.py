"""The files that a person reads: OUT/tables, OUT/figures, OUT/timings and OUT/report.html, from finished results.

All of them are functions of the records in the store, and each is written whole or not at all.
"""

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .errors import require
from .experiments.base import CLAIMS, Table
from .experiments.store import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
_ROWS_SHOWN = 200  # of a table on the page; the CSV file has them all


def write(out: Path, records: Sequence[dict]) -> Path:
    """Write every file that belongs to these records; returns the path of the page."""
    for record in records:
        for kind in ("tables", "timings"):
            for name, table in record[kind].items():
                write_file(out / kind / f"{record['experiment']}-{name}.csv", csv_bytes(table))
        for name, formats in record["figures"].items():
            for suffix, content in formats.items():
                write_file(out / "figures" / f"{record['experiment']}-{name}.{suffix}", base64.b64decode(content))
    write_file(out / "timings" / "runs.csv", csv_bytes([_run_row(record) for record in records]))
    write_file(out / PAGE, page(records).encode())
    return out / PAGE


def page(records: Sequence[dict]) -> str:
    """The report as one HTML text that needs no other file."""
    jinja2 = require("jinja2", "experiments")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = cell
    template = environment.from_string(files("proxlin").joinpath("templates/report.html").read_text(encoding="utf-8"))
    return template.render(records=records, claims=CLAIMS, version=__version__, rows_shown=_ROWS_SHOWN)


def csv_bytes(table: Table) -> bytes:
    """A table as CSV, the same bytes for the same rows: numbers in their shortest exact form, Unix line ends."""
    text = io.StringIO()
    if table:
        writer = csv.DictWriter(text, fieldnames=list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return text.getvalue().encode()


def figure_files(figure: "Figure") -> dict[str, bytes]:
    """A Matplotlib figure as SVG, PNG and PDF, the same bytes for the same figure (no dates, no random ids)."""
    import matplotlib

    undated: dict[str, dict[str, None]] = {"svg": {"Date": None}, "png": {}, "pdf": {"CreationDate": None}}
    contents = {}
    with matplotlib.rc_context({"svg.hashsalt": "proxlin"}):
        for kind, metadata in undated.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata, bbox_inches="tight", dpi=200)
            contents[kind] = buffer.getvalue()
    return contents


def cell(value: object) -> str:
    """A table's cell on the page: a float with six significant digits, anything else as it is."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _run_row(record: Mapping) -> dict:
    asked = {name: record[name] for name in ("experiment", "profile", "seed")}
    return {**asked, **record["run"]}
