"""The files that a person reads: OUT/tables, OUT/figures, OUT/timings and OUT/report.html, from finished results.

All of them are functions of the records in the store, and they are written together or not at all.
"""

import base64
import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .errors import require
from .experiments.base import CAVEATS, CLAIMS, Point, Row, Table
from .experiments.svg import inline
from .files import Content, write_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the start of one
NUMBER = re.compile(r"[+-][\d.][\w\s.,;:%+-]*")  # with words after it, but nothing that could call or refer


def write(out: Path, records: Sequence[dict], cases: Sequence[dict]) -> Path:
    """Write every file that belongs to these records and cases; returns the path of the page."""
    contents: dict[str, Content] = {}
    for record in records:
        for kind in ("tables", "timings"):
            for name, table in record[kind].items():
                contents[f"{kind}/{record['experiment']}-{name}.csv"] = csv_bytes(_with_origin(record, table))
        for name, formats in record["figures"].items():
            for suffix, content in formats.items():
                contents[f"figures/{record['experiment']}-{name}.{suffix}"] = base64.b64decode(content)
    if judged := verdicts(records):
        contents["tables/verdicts.csv"] = csv_bytes(judged)
    contents["timings/runs.csv"] = csv_bytes([_run_row(record) for record in records])
    if cases:
        contents["cases.parquet"] = parquet_bytes(cases)
    write_folder(out, contents | {PAGE: page(records, cases).encode()})
    return out / PAGE


def verdicts(records: Sequence[Mapping]) -> list[Row]:
    """Every verdict of the records as a row: the claim, the verdict and what it rests on."""
    return [
        {**verdict, "experiment": record["experiment"], "seed": record["seed"]}
        for record in records
        for verdict in record["verdicts"]
    ]


def page(records: Sequence[dict], cases: Sequence[dict] = ()) -> str:
    """The report as one HTML text that needs no other file."""
    work = Counter({record["experiment"]: 0.0 for record in records})
    for case in cases:
        work[case["experiment"]] += case["run_seconds"]
    return render(
        "reproduce.html", records=records, claims=CLAIMS, caveats=CAVEATS, verdicts=verdicts(records), work=work
    )


def render(template: str, **values: object) -> str:
    """A page of the folder templates, the same text for the same values; any text in them is escaped.

    Of scripts, a browser runs only the one that has this hash: nothing in the values can be one.
    """
    jinja2, Markup = require("jinja2", "experiments"), require("markupsafe", "experiments").Markup
    folder = files("proxlin").joinpath("templates")
    text = lambda name: folder.joinpath(name).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    picture = lambda svg, prefix: Markup(inline(base64.b64decode(svg).decode(), prefix))
    environment.filters |= {"cell": cell, "groups": groups, "inline": picture}
    script, style = text("report.js"), text("report.css")
    script_hash = f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    frame = {"version": __version__, "style": Markup(style), "script": Markup(script), "script_hash": script_hash}
    return environment.get_template(template).render(**frame, **values)


def groups(record: Mapping) -> list[tuple[str, dict[str, dict]]]:
    """The figures of a record as (group, its drawings by name): those of one group are one switch on the page."""
    found: dict[str, dict[str, dict]] = {}
    for name in record["figures"]:
        drawing = record.get("drawings", {}).get(name, {"group": "", "label": "", "points": []})  # of older results
        found.setdefault(drawing["group"] or name, {})[name] = drawing
    return list(found.items())


def csv_bytes(table: Table) -> bytes:
    """A table as CSV, the same bytes for the same rows: numbers in their shortest exact form, Unix line ends.

    A text that a spreadsheet would compute is written with an apostrophe before it.
    """
    text = io.StringIO()
    if table:
        names = list(dict.fromkeys(name for row in table for name in row))
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(_as_text, names))
        writer.writerows([_as_text(row.get(name)) for name in names] for row in table)
    return text.getvalue().encode()


def formula(text: str) -> bool:
    """Whether a spreadsheet that opens a CSV file would take this cell for a formula; numbers are none.

    >>> formula("=1+1"), formula("-1.5 %"), formula("-x"), formula("-1+cmd|' /c calc'!A0"), formula("x=1")
    (True, False, True, True, False)
    """
    return text.startswith(FORMULA) and NUMBER.fullmatch(text) is None


def _as_text(value: object) -> object:
    """Return a cell with an apostrophe before what would be a formula: tables may come from others."""
    return f"'{value}" if isinstance(value, str) and formula(value) else value


def parquet_bytes(cases: Sequence[dict]) -> bytes:
    """All cases as one tidy table, a row each; what a case does not have is null."""
    arrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    names = list(dict.fromkeys(name for case in cases for name in case))
    columns = {}
    for name in names:
        column = [case.get(name) for case in cases]
        kinds = {type(value) for value in column if value is not None}
        try:
            columns[name] = arrow.array(column if len(kinds) <= 1 or kinds == {int, float} else _texts(column))
        except (arrow.ArrowException, OverflowError):  # lists of several kinds, integers above 64 bits
            columns[name] = arrow.array(_texts(column))
        if "struct" in str(columns[name].type):  # a mapping, which Parquet cannot have without entries
            columns[name] = arrow.array(_texts(column))
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(columns), buffer)
    return buffer.getvalue()


def _texts(column: Sequence[object]) -> list[str | None]:
    return [None if value is None else str(value) for value in column]


def figure_files(figure: "Figure") -> dict[str, bytes]:
    """A Matplotlib figure as SVG, PNG and PDF, the same bytes for the same figure (no dates, no random ids).

    In the SVG the background of the panel `figure.axes[i]` has the id panel-i.
    """
    import matplotlib

    for number, axes in enumerate(figure.axes):
        axes.patch.set_gid(f"panel-{number}")
    undated: dict[str, dict[str, None]] = {"svg": {"Date": None}, "png": {}, "pdf": {"CreationDate": None}}
    contents = {}
    with matplotlib.rc_context({"svg.hashsalt": "proxlin"}):
        for kind, metadata in undated.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata, bbox_inches="tight", dpi=200)
            contents[kind] = buffer.getvalue()
    return contents


def stamp(figure: "Figure", text: str) -> None:
    """Write a caveat above a figure, so that it stays with the figure wherever that is shown."""
    figure.text(0.5, 1.0, text, ha="center", va="bottom", fontsize=6)  # not below, where legends move to the edge


def placed(figure: "Figure", points: Sequence[Point]) -> list[tuple[int, float, float, str]]:
    """The points that can be seen, as (panel, x, y, text), x and y in 0..1 across the panel: no layout moves them."""
    seen = []
    for point in points:
        axes = figure.axes[point.panel]
        axes.viewLim  # noqa: B018 - brings the limits up to date
        x, y = axes.transAxes.inverted().transform(axes.transData.transform((point.x, point.y)))
        if 0 <= x <= 1 and 0 <= y <= 1:  # not so for nan and inf
            seen.append((point.panel, round(float(x), 4), round(float(y), 4), point.text))
    return seen


def cell(value: object) -> str:
    """A table's cell on the page: a float with six significant digits, a list by commas, anything else as it is."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _with_origin(record: Mapping, table: Table) -> list[Row]:
    """The rows of a table with the profile and the data they come from; a column `data` of their own stays."""
    origin = {"profile": record["profile"], "data": ", ".join(each["name"] for each in record["data"])}
    return [{**row, **{name: value for name, value in origin.items() if name not in row}} for row in table]


def _run_row(record: Mapping) -> dict:
    asked = {name: record[name] for name in ("experiment", "profile", "seed")}
    return {**asked, **record["run"]}
