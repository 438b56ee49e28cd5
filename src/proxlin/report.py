"""The files that a person reads: OUT/tables, OUT/figures, OUT/timings and OUT/report.html, from finished results.

All of them are functions of the records in the store, and each is written whole or not at all.
"""

import base64
import csv
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
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


def write(out: Path, records: Sequence[dict], cases: Sequence[dict]) -> Path:
    """Write every file that belongs to these records and cases; returns the path of the page."""
    for record in records:
        for kind in ("tables", "timings"):
            for name, table in record[kind].items():
                write_file(out / kind / f"{record['experiment']}-{name}.csv", csv_bytes(table))
        for name, formats in record["figures"].items():
            for suffix, content in formats.items():
                write_file(out / "figures" / f"{record['experiment']}-{name}.{suffix}", base64.b64decode(content))
    write_file(out / "timings" / "runs.csv", csv_bytes([_run_row(record) for record in records]))
    if cases:
        write_file(out / "cases.parquet", parquet_bytes(cases))
    write_file(out / PAGE, page(records).encode())
    return out / PAGE


def page(records: Sequence[dict]) -> str:
    """The report as one HTML text that needs no other file."""
    jinja2 = require("jinja2", "experiments")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = cell
    environment.filters["inline"] = lambda svg, prefix: require("markupsafe", "experiments").Markup(inline(svg, prefix))
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


def parquet_bytes(cases: Sequence[dict]) -> bytes:
    """All cases as one tidy table, a row each; what a case does not have is null."""
    arrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    names = list(dict.fromkeys(name for case in cases for name in case))
    columns = {}
    for name in names:
        column = [case.get(name) for case in cases]
        kinds = {type(value) for value in column if value is not None}
        columns[name] = column if len(kinds) <= 1 or kinds == {int, float} else [_text(value) for value in column]
    buffer = io.BytesIO()
    parquet.write_table(arrow.table({name: arrow.array(column) for name, column in columns.items()}), buffer)
    return buffer.getvalue()


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def figure_files(figure: "Figure", hovers: Mapping[str, str]) -> dict[str, bytes]:
    """A Matplotlib figure as SVG, PNG and PDF, the same bytes for the same figure (no dates, no random ids).

    `hovers`: in the SVG, the text that shows over the artist of this gid.
    """
    import matplotlib

    undated: dict[str, dict[str, None]] = {"svg": {"Date": None}, "png": {}, "pdf": {"CreationDate": None}}
    contents = {}
    with matplotlib.rc_context({"svg.hashsalt": "proxlin"}):
        for kind, metadata in undated.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata, bbox_inches="tight", dpi=200)
            contents[kind] = buffer.getvalue()
    for gid, text in hovers.items():
        mark = f'<g id="{gid}">'.encode()
        contents["svg"] = contents["svg"].replace(mark, mark + f"<title>{escape(text)}</title>".encode(), 1)
    return contents


def inline(svg: str, prefix: str) -> str:
    """A figure as an element of the page, so that its hover texts show; the prefix keeps ids of figures apart."""
    text = base64.b64decode(svg).decode()
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", text[text.index("<svg") :])
    return re.sub(r'width="[^"]*pt" height="[^"]*pt"|height="[^"]*pt" width="[^"]*pt"', 'width="100%"', text, count=1)


def cell(value: object) -> str:
    """A table's cell on the page: a float with six significant digits, anything else as it is."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _run_row(record: Mapping) -> dict:
    asked = {name: record[name] for name in ("experiment", "profile", "seed")}
    return {**asked, **record["run"]}
