"""The files that a person reads: OUT/tables, OUT/figures, OUT/timings and OUT/report.html, from finished results.

All of them are functions of the records in the store, and they are written together or not at all.
"""

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import require
from ...files.writing import Content, write_folder
from ...plots.pages import Row, Table, csv_bytes, render
from .base import CAVEATS, CLAIMS

PAGE = "report.html"


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


def _with_origin(record: Mapping, table: Table) -> list[Row]:
    """The rows of a table with the profile and the data they come from; a column `data` of their own stays."""
    origin = {"profile": record["profile"], "data": ", ".join(each["name"] for each in record["data"])}
    return [{**row, **{name: value for name, value in origin.items() if name not in row}} for row in table]


def _run_row(record: Mapping) -> dict:
    asked = {name: record[name] for name in ("experiment", "profile", "seed")}
    return {**asked, **record["run"]}
