"""What a text of the store must hold before a page, a table or a file is made of it: else it is damaged.

A name becomes part of a file's name, so that a record from elsewhere must not choose it freely.
"""

import base64
import json
import math
import re
from typing import Any

from ...plots.svg import inline

NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
CELL = (str, int, float, bool)
SUFFIXES = {"svg", "png", "pdf"}
PNG, PDF = b"\x89PNG", b"%PDF"
VERDICT = {"claim", "verdict", "profile", "data", "number", "interval", "rule"}
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)


def finished_record(text: Any) -> dict[str, Any]:
    """The payload of a finished experiment, or one of the errors DAMAGED."""
    record = mapping(text)
    _demand(NAME.fullmatch(record["experiment"]) and type(record["seed"]) is int)
    _demand(all(isinstance(record[name], str) for name in ("title", "profile")))
    _demand(all(isinstance(record[name], dict) for name in ("config", "tables", "timings", "figures", "run")))
    for kind in ("tables", "timings"):
        for name, table in record[kind].items():
            _demand(NAME.fullmatch(name) and _rectangular(table))
    for name, files in record["figures"].items():
        _demand(NAME.fullmatch(name) and {"svg"} <= files.keys() <= SUFFIXES)
        decoded = {suffix: base64.b64decode(content, validate=True) for suffix, content in files.items()}
        inline(decoded["svg"].decode(), name)
        _demand(decoded.get("png", PNG).startswith(PNG) and decoded.get("pdf", PDF).startswith(PDF))
    for name, drawing in record.get("drawings", {}).items():
        _demand(name in record["figures"] and _drawing(**drawing))
    for each in record["data"]:
        _demand(all(isinstance(each[name], str) for name in ("name", "kind", "source")))
    for verdict in record["verdicts"]:
        _demand(verdict.keys() == VERDICT and all(isinstance(text, str) for text in verdict.values()))
    _demand(all(isinstance(text, str) for kind in ("notes", "warnings") for text in record[kind]))
    _demand(_number(record["run"]["seconds"]))
    return record


def case_row(key: Any, experiment: Any, content: Any, result: Any, run: Any) -> dict[str, Any]:
    """A case as one flat row, or one of the errors DAMAGED."""
    settings, found, about = mapping(content)["settings"], mapping(result), mapping(run)
    _demand(
        isinstance(key, str)
        and isinstance(experiment, str)
        and isinstance(settings, dict)
        and _number(about["seconds"])
    )
    row = {"experiment": experiment, "key": key, **settings, **found}
    row |= {f"run_{name}": value for name, value in about.items()}
    return row | {"experiment": experiment, "key": key}  # whatever the settings are called


def mapping(text: Any) -> dict[str, Any]:
    """A JSON text of a dict that can be written as UTF-8 again."""
    found = json.loads(text)
    json.dumps(found, ensure_ascii=False).encode()
    _demand(isinstance(found, dict))
    return found


def _rectangular(table: list[dict[str, Any]]) -> bool:
    flat = lambda row: isinstance(row, dict) and all(x is None or isinstance(x, CELL) for x in row.values())
    return isinstance(table, list) and all(flat(row) and list(row) == list(table[0]) for row in table)


def _drawing(group: str, label: str, points: list[Any]) -> bool:
    texts = isinstance(group, str) and isinstance(label, str)
    return texts and all(len(point) == 4 and all(map(_number, point[:3])) for point in points)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # OverflowError for an integer such as 10^400


def _demand(truth: Any) -> None:
    if not truth:
        raise ValueError
