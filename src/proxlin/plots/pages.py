"""What a person reads: pages from templates, and tables as CSV, the same bytes for the same rows."""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

from .. import __version__
from ..errors import require
from .svg import inline

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]
Table = Sequence[Row]

# what a spreadsheet takes for the start of one
FORMULA = ("=", "+", "-", "@", "\t", "\r")
# with words after it, but nothing that could call or refer
NUMBER = re.compile(r"[+-][\d.][\w\s.,;:%+-]*")


def render(template: str, **values: object) -> str:
    """Return a page of the folder templates, the same text for the same values; any text in them is
    escaped.

    Of scripts, a browser runs only the one that has this hash: nothing in the values can be one.
    """
    jinja2 = require("jinja2", "experiments")
    Markup = require("markupsafe", "experiments").Markup
    folder = files("proxlin").joinpath("plots/templates")
    text = lambda name: folder.joinpath(name).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    picture = lambda svg, prefix: Markup(inline(svg.decode(), prefix))
    environment.filters |= {"cell": cell, "groups": groups, "inline": picture}
    script = text("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    return environment.get_template(template).render(
        version=__version__,
        style=Markup(text("report.css")),
        script=Markup(script),
        script_hash=f"sha256-{digest.decode()}",
        **values,
    )


def groups(record: Mapping) -> list[tuple[str, dict[str, dict]]]:
    """Return the figures of a record as (group, its drawings by name); the page has one switch for
    a group.
    """
    unknown = {
        "group": "",
        "label": "",
        "points": [],
    }  # of a figure that an older version stored
    found: dict[str, dict[str, dict]] = {}
    for name in record["figures"]:
        drawing = record.get("drawings", {}).get(name, unknown)
        found.setdefault(drawing["group"] or name, {})[name] = drawing
    return list(found.items())


def csv_bytes(table: Table) -> bytes:
    """Return a table as CSV, the same bytes for the same rows: numbers in their shortest exact
    form, Unix line ends.

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
    """Tell whether a spreadsheet that opens a CSV file would take this cell for a formula; numbers
    are none.

    >>> formula("=1+1"), formula("-1.5 %"), formula("-x"), formula("-1+cmd|' /c calc'!A0"), formula("x=1")
    (True, False, True, True, False)
    """
    return text.startswith(FORMULA) and NUMBER.fullmatch(text) is None


def _as_text(value: object) -> object:
    """Return a cell with an apostrophe before what would be a formula: tables may come from others."""
    if isinstance(value, str) and formula(value):
        return f"'{value}"
    return value


def cell(value: object) -> str:
    """Return a cell as the page shows it: a float with six significant digits, a list by commas."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
