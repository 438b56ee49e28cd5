"""What a fit tells, as texts and as tables: its summary and its suspects."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import printable
from .asked import shown_loss
from .findings import Findings
from .model import Model


@dataclass(frozen=True)
class Listing:
    """Rows of a table with lines before and after them: it prints as a text and shows as HTML.

    `rows` are dicts, for `pandas.DataFrame(listing.rows)`.
    """

    title: str
    rows: list[dict[str, Any]]
    columns: tuple[str, ...]  # those that are shown
    lines: tuple[str, ...]

    def __str__(self) -> str:
        parts = [self.title]
        if self.rows:
            parts.append(_aligned(self.columns, self.rows))
        parts += self.lines
        return printable("\n".join(parts), keep="\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        escape = lambda value: html.escape(cell(value))
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = ""
        for row in self.rows:
            cells = "".join(f"<td>{escape(row[name])}</td>" for name in self.columns)
            body += f"<tr>{cells}</tr>"
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        lines = "".join(f"<p>{escape(line)}</p>" for line in self.lines)
        return f"<p><b>{escape(self.title)}</b></p>{table if self.rows else ''}{lines}"


def cell(value: Any) -> str:
    """Return a number with five digits, a text as it is, and nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return str(value)


def _aligned(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Return a table in columns: numbers to the right, texts to the left."""
    cells = [[cell(row[name]) for name in columns] for row in rows]
    texts = [any(isinstance(row[name], str) for row in rows) for name in columns]
    lines = [list(columns), *cells]
    widths = [max(len(line[j]) for line in lines) for j in range(len(columns))]
    shown = []
    for line in lines:
        parts = []
        for j, text in enumerate(line):
            parts.append(text.ljust(widths[j]) if texts[j] else text.rjust(widths[j]))
        shown.append("  " + "  ".join(parts).rstrip())
    return "\n".join(shown)


def coefficients_of(models: Sequence[Model], level: float) -> list[dict[str, Any]]:
    """Return a row for each coefficient of each target, and of each quantile."""
    rows = []
    for model in models:
        own = []
        for line in model.findings.lines:
            own += line.table(model.findings.names, level)
        if len(models) > 1:
            own = [{"quantile": model.asked.level} | row for row in own]
        rows += own
    return rows


def summary_of(models: Sequence[Model], notes: Sequence[str], level: float) -> Listing:
    """Return the coefficients, and lines on scales, errors and what to beware of."""
    model = models[len(models) // 2]
    asked = model.asked
    findings = model.findings
    about = model.about
    rows = coefficients_of(models, level)
    columns = ["name", "estimate", "standard error", "low", "high", "p-value"]
    if len(asked.targets) > 1:
        columns.insert(0, "target")
    if len(models) > 1:
        columns.insert(0, "quantile")
    what = " and ".join(asked.targets)
    name = _spelled("quantile" if len(models) > 1 else asked.loss, len(asked.targets))
    title = f"{what}: linear fit by {name}, {about['rows']} rows"
    lines = [*_ground(findings, level)]
    if not rows:
        title = f"{what}: fit by {name}, {about['rows']} rows"
    if about["settings"]["start"]:
        lines.append(
            f"Predictions are those of {mixture_of(model)}, not of these coefficients."
        )
        lines += _largest(findings)
    lines += _scales(model)
    lines += errors_of(model)
    count = sum(each["false discovery rate"] <= 0.05 for each in findings.suspects)
    if count:
        rows_word = "1 row does" if count == 1 else f"{count} rows do"
        lines.append(f"{rows_word} not go with the others: outliers() lists them.")
    said = dict.fromkeys((*findings.warnings, *notes))
    lines += [f"Note: {note}." for note in said]
    return Listing(title, rows, tuple(columns), tuple(lines))


def _spelled(loss: str, targets: int) -> str:
    """Return a loss in the words of statistics, where its name is that of a norm."""
    if loss == "l1" or (loss == "l2" and targets == 1):
        return f"absolute values ({loss})"
    if loss == "l2":
        return "lengths of the residuals of a row (l2)"
    return shown_loss(loss)


def mixture_of(model: Model) -> str:
    """Return what a model that bends is made of, with the share of each part."""
    network = f"a network of {model.asked.hidden} hidden units with a linear part"
    # a network alone has no parts
    parts = model.about.get("mixture")
    if not parts:
        return network
    names = {"linear": "a linear model", "network": network}
    named = [(f"{names.get(name, name)}", share) for name, share in parts if share > 0]
    if len(named) == 1:
        return named[0][0]
    told = [f"{name} ({share:.0%})" for name, share in named]
    return f"a mixture of {' and '.join(told)}"


def _ground(findings: Findings, level: float) -> list[str]:
    """Return what the standard errors rest on, and which levels are the base of categories."""
    lines = []
    kinds = dict.fromkeys(line.kind for line in findings.lines if line.kind)
    if kinds:
        lines.append(
            f"Standard errors {', '.join(kinds)}; {level:.0%} t intervals; p-values against 0."
        )
    kept = {place for line in findings.lines for place in line.kept}
    bases = [
        name
        for place, name in enumerate(findings.names)
        if findings.lines and place not in kept
    ]
    if bases:
        more = "" if len(bases) <= 8 else f" and {len(bases) - 8} more"
        lines.append(
            f"Without a coefficient, as others stand for them: {', '.join(bases[:8])}{more}."
        )
    return lines


def _scales(model: Model) -> list[str]:
    scales = ", ".join(
        f"{target} {scale:.4g}"
        for target, scale in zip(model.asked.targets, model.findings.scale, strict=True)
    )
    delta = ""
    if "delta" in model.about:
        numbers = ", ".join(f"{each:.4g}" for each in model.about["delta"])
        delta = f"; Huber's delta {numbers}"
    return [f"Scale of the residuals (sigma): {scales}{delta}."]


def errors_of(model: Model) -> list[str]:
    """Return the median and trimmed mean of the errors on held-out rows, for each target."""
    lines = []
    held_out = model.about["held_out"]
    for row in model.about["metrics"]:
        if row["loss"] == shown_loss("squared") and model.asked.loss != "squared":
            continue
        text = f"Error on {held_out} held-out rows, {row['target']}: median {row['median absolute error']:.4g}"
        if row["median absolute error low"] is not None:
            low = row["median absolute error low"]
            text += f" ({low:.4g} to {row['median absolute error high']:.4g})"
        text += f", trimmed mean {row['trimmed mean error']:.4g}, mean {row['mean absolute error']:.4g}."
        lines.append(text)
    return lines


def _largest(findings: Findings) -> list[str]:
    """Return the features whose effects are largest."""
    order = sorted(findings.effects, key=lambda each: -each["size"])[:5]
    told = ", ".join(f"{each['feature']} {each['size']:.4g}" for each in order)
    return [f"Largest effects, over the usual range of the feature: {told}."]


def suspects_of(model: Model, level: float) -> Listing:
    """Return the suspects at a false discovery rate, and rows of far features."""
    findings = model.findings
    rows = []
    for each in findings.suspects:
        wrong = each["false discovery rate"] <= level
        if not wrong and not each["far"]:
            continue
        kind = "features"
        if wrong:
            kind = "target and features" if each["far"] else "target"
        rows.append({**_renamed(each), "apart": kind})
    # wrong rows first; far features alone are no error
    rows.sort(key=lambda each: each["apart"] == "features")
    columns = ["row", "apart", "value", "fitted", "scaled residual"]
    columns += ["robust distance", "column", "hint"]
    if len(model.asked.targets) > 1:
        columns.insert(1, "target")
    count = sum(each["apart"] != "features" for each in rows)
    what = (
        "1 row whose target does" if count == 1 else f"{count} rows whose target does"
    )
    title = f"{what} not go with the others, and {len(rows) - count} with far features"
    lines = (
        f"At most {level:.0%} of the rows whose target does not go with the others are expected to be false alarms. "
        "Value and fitted are of the target. Column is the one that is likely wrong, or, where the target fits, the "
        f"one that lies farthest out. Robust distances above {findings.limit:.3g} are far. Rows are counted from 1, "
        "without the line of names.",
    )
    return Listing(title, rows, tuple(columns), lines)


def _renamed(suspect: dict[str, Any]) -> dict[str, Any]:
    """Return a suspect with a longer name of its distance: a table may well have a column "distance"."""
    names = {"distance": "robust distance"}
    return {names.get(name, name): value for name, value in suspect.items()}
