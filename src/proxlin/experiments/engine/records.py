"""What a text of the store must hold before a page, a table or a file is made of it: else it is
damaged.

A name becomes part of a file's name, so that a record from elsewhere must not choose it freely.
"""

import base64
import json
import math
from typing import Any

from ...plots.svg import inline
from .base import NAME

CELL = (str, int, float, bool, type(None))
STARTS = {
    "svg": b"",
    "png": b"\x89PNG",
    "pdf": b"%PDF",
}  # the files of a figure, and how each begins
VERDICT = {"claim", "verdict", "profile", "data", "number", "interval", "rule"}
# columns that records of earlier versions do not have
LATER = {"units", "visible"}
DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    OverflowError,
)


def plain(value: Any) -> object:
    """Return what JSON has in the place of a value: base64 for the bytes of a figure, a number for
    a NumPy scalar.
    """
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.item()


def finished_record(text: Any) -> dict[str, Any]:
    """Return the record of a finished experiment, with its figures as bytes; raise one of the
    errors DAMAGED.
    """
    record = mapping(text)
    _demand(NAME.fullmatch(record["experiment"]))
    _demand(type(record["seed"]) is int)
    _demand_texts(
        [record["title"], record["profile"], *record["notes"], *record["warnings"]]
    )
    for name in ("config", "tables", "timings", "figures", "run"):
        _demand(isinstance(record[name], dict))
    for kind in ("tables", "timings"):
        for name, table in record[kind].items():
            _demand(NAME.fullmatch(name))
            _demand_rectangular(table)
    record["figures"] = {
        name: _figure(name, files) for name, files in record["figures"].items()
    }
    for name, drawing in record.get("drawings", {}).items():
        _demand(name in record["figures"])
        _demand_drawing(**drawing)
    for each in record["data"]:
        _demand_texts([each["name"], each["kind"], each["source"]])
    for verdict in record["verdicts"]:
        _demand(VERDICT <= verdict.keys() <= VERDICT | LATER)
        _demand_texts(verdict.values())
    _demand_number(record["run"]["seconds"])
    return record


def case_row(
    key: Any, experiment: Any, content: Any, result: Any, run: Any
) -> dict[str, Any]:
    """Return a case as one flat row; raise one of the errors DAMAGED."""
    settings = mapping(content)["settings"]
    about = mapping(run)
    _demand(isinstance(settings, dict))
    _demand_texts([key, experiment])
    _demand_number(about["seconds"])
    names = {"experiment": experiment, "key": key}
    row = names | settings | mapping(result)
    row |= {f"run_{name}": value for name, value in about.items()}
    return row | names  # again, since a setting may have one of these names


def request_of(text: Any) -> dict[str, Any]:
    """Return what was asked of an experiment; raise one of the errors DAMAGED."""
    request = mapping(text)
    _demand_texts([request["profile"], request["version"]])
    _demand(type(request["seed"]) is int)
    return request


def mapping(text: Any) -> dict[str, Any]:
    """Return the dict of a JSON text, which can be written as UTF-8 again."""
    found = json.loads(text)
    json.dumps(found, ensure_ascii=False).encode()
    _demand(isinstance(found, dict))
    return found


def _figure(name: str, files: dict[str, str]) -> dict[str, bytes]:
    """Return the files of a figure by their suffixes, of which svg has to be there and safe to
    show.
    """
    _demand(NAME.fullmatch(name))
    _demand({"svg"} <= files.keys() <= STARTS.keys())
    decoded = {
        suffix: base64.b64decode(content, validate=True)
        for suffix, content in files.items()
    }
    for suffix, content in decoded.items():
        _demand(content.startswith(STARTS[suffix]))
    inline(decoded["svg"].decode(), name)
    return decoded


def _demand_rectangular(table: Any) -> None:
    _demand(isinstance(table, list))
    for row in table:
        _demand(isinstance(row, dict))
        _demand(list(row) == list(table[0]))
        _demand(all(isinstance(value, CELL) for value in row.values()))


def _demand_drawing(group: str, label: str, points: list[Any]) -> None:
    _demand_texts([group, label])
    for panel, x, y, _ in points:
        _demand_number(panel)
        _demand_number(x)
        _demand_number(y)


def _demand_texts(values: Any) -> None:
    _demand(all(isinstance(value, str) for value in values))


def _demand_number(value: Any) -> None:
    _demand(type(value) in (int, float))
    # which raises OverflowError for an integer such as 10^400
    _demand(math.isfinite(value))


def _demand(truth: Any) -> None:
    if not truth:
        raise ValueError
