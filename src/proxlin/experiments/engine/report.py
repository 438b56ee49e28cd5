"""The files that a person reads: OUT/tables, OUT/figures, OUT/timings and OUT/report.html, from
finished results.

All of them are functions of the records in the store, and they are written together or not at all.
"""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import require
from ...files.writing import Content, write_folder
from ...plots.pages import Row, Table, csv_bytes, render
from .base import CAVEATS, CLAIMS

PAGE = "report.html"
COLUMNS = (
    "claim",
    "verdict",
    "profile",
    "data",
    "number",
    "interval",
    "units",
    "visible",
    "rule",
)


def write(out: Path, records: Sequence[dict], cases: Sequence[dict]) -> Path:
    """Write every file that belongs to these records and cases; returns the path of the page."""
    contents: dict[str, Content] = {}
    for record in records:
        contents |= dict(_files(record))
    if judged := verdicts(records):
        contents["tables/verdicts.csv"] = csv_bytes(judged)
    contents["timings/runs.csv"] = csv_bytes([_run_row(record) for record in records])
    if cases:
        contents["cases.parquet"] = parquet_bytes(cases)
    contents[PAGE] = page(records, cases).encode()
    write_folder(out, contents)
    return out / PAGE


def _files(record: dict) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each table and figure of one experiment."""
    experiment = record["experiment"]
    for kind in ("tables", "timings"):
        for name, table in record[kind].items():
            yield (
                f"{kind}/{experiment}-{name}.csv",
                csv_bytes(_with_origin(record, table)),
            )
    for name, files in record["figures"].items():
        for suffix, content in files.items():
            yield f"figures/{experiment}-{name}.{suffix}", content


def verdicts(records: Sequence[Mapping]) -> list[Row]:
    """Return every verdict of the records as a row: the claim, the verdict and what it rests on."""
    return [
        {
            **{name: verdict.get(name, "") for name in COLUMNS},
            "experiment": record["experiment"],
            "seed": record["seed"],
        }
        for record in records
        for verdict in record["verdicts"]
    ]


def page(records: Sequence[dict], cases: Sequence[dict] = ()) -> str:
    """Return the report as one HTML text that needs no other file."""
    work = Counter({record["experiment"]: 0.0 for record in records})
    for case in cases:
        work[case["experiment"]] += case["run_seconds"]
    return render(
        "reproduce.html",
        records=records,
        claims=CLAIMS,
        caveats=CAVEATS,
        verdicts=verdicts(records),
        work=work,
    )


def parquet_bytes(cases: Sequence[dict]) -> bytes:
    """Return all cases as one tidy table, a row each; what a case does not have is null."""
    arrow = require("pyarrow", "experiments")
    names = dict.fromkeys(name for case in cases for name in case)
    columns = {
        name: _column(arrow, [case.get(name) for case in cases]) for name in names
    }
    buffer = io.BytesIO()
    require("pyarrow.parquet", "experiments").write_table(arrow.table(columns), buffer)
    return buffer.getvalue()


def _column(arrow: Any, values: list[Any]) -> Any:
    """Return the values as a column of numbers, texts or lists, or as texts where it would be none
    of these.
    """
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 or kinds == {int, float}:
        try:
            column = arrow.array(values)
        except (
            arrow.ArrowException,
            OverflowError,
        ):  # lists of several kinds, integers above 64 bits
            pass
        else:
            # a mapping, which Parquet cannot have without entries
            if "struct" not in str(column.type):
                return column
    return arrow.array([None if value is None else str(value) for value in values])


def _with_origin(record: Mapping, table: Table) -> list[Row]:
    """Return the rows with the profile and the data they come from; a column `data` of their own
    stays.
    """
    origin = {
        "profile": record["profile"],
        "data": ", ".join(each["name"] for each in record["data"]),
    }
    return [
        {**row, **{name: origin[name] for name in origin if name not in row}}
        for row in table
    ]


def _run_row(record: Mapping) -> dict:
    asked = {name: record[name] for name in ("experiment", "profile", "seed")}
    return asked | record["run"]
