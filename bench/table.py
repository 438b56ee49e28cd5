"""The one table of a run of the suite, from its JSON: as text, and as Markdown between two markers
of a page.

{"date", "seconds", "cpu", "cores", "load": [before, after], "python", "versions": {name: version or None},
 "benchmarks": {name: {"seconds", "date", "load", "cpu", "status": "done" | "failed" | "interrupted",
                       "rows": [harness.Row]}}}
"""

import itertools
from collections.abc import Mapping
from typing import Any

from .harness import Row, duration, own_seconds

HEAD = ("case", "peer", "ours", "theirs", "ratio (quartiles)", "compile", "note")
# no peers, as is "ours ..."
YARDSTICKS = {"numba loop", "the CNN alone", "an SGD step of ours", "a plain sum"}
BEGIN, END = (
    "<!-- begin: python -m bench --docs -->",
    "<!-- end: python -m bench --docs -->",
)


def cells(row: Row) -> tuple[str, ...]:
    """A row as strings in the order of HEAD; compile is the seconds that ours took to compile."""
    return (
        row["case"],
        row["peer"],
        *_figures(row),
        _time(row.get("compile")),
        row.get("note", ""),
    )


def _figures(row: Row) -> tuple[str, str, str]:
    if "unit" in row:
        unit = "" if row["unit"] == "count" else f" {row['unit']}"
        return f"{row['ours']:g}{unit}", f"{row['theirs']:g}{unit}", ""
    if row.get("over"):
        return _time(row["ours"]), f"> {row['over']:g} s", f"> {row['ratio']:.3g}"
    if row["ratio"] is None:
        ours = "" if row["ours"] is None else own_seconds(row)
        return ours, _time(row["theirs"]), ""
    spread = f"{row['ratio']:.3g} ({row['low']:.3g} to {row['high']:.3g})"
    return _time(row["ours"]), _time(row["theirs"]), spread


def _time(t: float | None) -> str:
    return "" if t is None else duration(t)


def text(report: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """The table for a terminal, with what was missing, behind, cut off or failed below it."""
    tables = {
        name: [cells(row) for row in part["rows"]]
        for name, part in report["benchmarks"].items()
    }
    widths = [
        max(map(len, column))
        for column in zip(HEAD, *itertools.chain(*tables.values()), strict=True)
    ]
    line = lambda row: "  ".join(
        cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    ).rstrip()
    parts = [
        f"{titles.get(name, name)}\n" + "\n".join(map(line, rows))
        for name, rows in tables.items()
    ]
    return "\n\n".join(
        ["\n".join(about(report)), line(HEAD), *parts, "\n".join(closing(report))]
    )


def sections(page: str, titles: Mapping[str, str]) -> dict[str, str]:
    """The sections of a page by the names of their benchmarks, without their headings."""
    parts = page.partition(BEGIN)[2].partition(END)[0].split("\n### ")[1:]
    texts = dict(part.split("\n", 1) for part in parts)
    return {
        name: texts[title].strip() for name, title in titles.items() if title in texts
    }


def markdown(
    report: Mapping[str, Any],
    titles: Mapping[str, str],
    earlier: Mapping[str, str] | None = None,
) -> str:
    """The same as Markdown: a heading and a table for each benchmark. Earlier sections stay where
    the report has none.
    """
    parts = ["\n".join(f"- {line}" for line in (*about(report), *closing(report)))]
    written = {
        name: f"### {titles.get(name, name)}\n\n{text}"
        for name, text in (earlier or {}).items()
    }
    for name, part in report["benchmarks"].items():
        lines = [HEAD, ("---",) * len(HEAD), *(map(cells, part["rows"]))]
        rows = "\n".join(
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
            for line in lines
        )
        written[name] = (
            f"### {titles.get(name, name)}\n\n{_about_part(name, part)}\n\n{rows}"
        )
    known = [*titles, *(name for name in written if name not in titles)]
    return "\n\n".join([*parts, *(written[name] for name in known if name in written)])


def _about_part(name: str, part: Mapping[str, Any]) -> str:
    """The command of a benchmark, how long it ran, and, as a run may go on later, when."""
    said = f"`python -m bench.suite.{name}`, {part['seconds']:.0f} s"
    if "date" not in part:
        return said
    return f"{said}; {part['date']}, load {part['load']:.1f}, {part['cpu']}"


def about(report: Mapping[str, Any]) -> list[str]:
    """When, on what machine, and with which versions."""
    before, after = report["load"]
    versions = ", ".join(
        f"{name} {version or 'not installed'}"
        for name, version in report["versions"].items()
    )
    return [
        f"{report['date']}, {report['seconds'] / 60:.1f} minutes; load {before:.1f} before and {after:.1f} after",
        f"{report['cpu']}, {report['cores']} cores; Python {report['python']}",
        versions,
    ]


def closing(report: Mapping[str, Any]) -> list[str]:
    """How many peers ours leads, where it is behind, which are missing, and which benchmarks did
    not end.
    """
    rows = [
        row
        for part in report["benchmarks"].values()
        for row in part["rows"]
        if _is_peer(row["peer"])
    ]
    measured = [row for row in rows if row.get("ratio") is not None]
    behind = [
        f"{row['case']} / {row['peer']} ({row['ratio']:.2g})"
        for row in measured
        if row["ratio"] < 1
    ]
    ahead = len(measured) - len(behind)
    lines = (
        [f"as fast or faster in {ahead} of {len(measured)} comparisons with a peer"]
        if rows
        else []
    )
    lines += [f"behind: {'; '.join(behind)}"] if behind else []
    missing = sorted(
        {row["peer"] for row in rows if row.get("note") == "not installed"}
    )
    lines += [f"not installed: {', '.join(missing)}"] if missing else []
    for status in ("failed", "interrupted"):
        names = [
            name
            for name, part in report["benchmarks"].items()
            if part["status"] == status
        ]
        lines += [f"{status}: {', '.join(names)}"] if names else []
    return lines


def _is_peer(name: str) -> bool:
    """Tell a peer from a yardstick, from ours in another way, and from a row without a peer."""
    return name != "" and name not in YARDSTICKS and not name.startswith("ours")


def between_markers(page: str, table: str) -> str:
    """The page with what is between BEGIN and END replaced; both have to be there once, in this
    order.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end) or END in head + tail or BEGIN in rest:
        raise ValueError(
            f"the page needs one line {BEGIN} and after it one line {END}."
        )
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"
