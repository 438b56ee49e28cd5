"""A solution as a small table of HTML with a curve of F, for notebooks; nothing in it can run."""

import math
from html import escape
from typing import Any

import numpy as np

WIDTH = 320
HEIGHT = 90
MARGIN = 6
POINTS = 400  # of a curve; more cannot be told apart at this width


def table(rows: dict[str, str], curve: str) -> str:
    """Return a table with a row for each name and text, and a picture below it; texts are escaped."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<table>{lines}</table>{curve}"


def curve(x: Any, y: Any, name: str) -> str:
    """Return y over x as an inline SVG, or nothing where fewer than two points are finite.

    y is drawn on a logarithmic scale where it is positive and spans more than a factor of ten.
    """
    x = np.asarray(x, float)
    y = np.asarray(y, float)
    finite = np.isfinite(x) & np.isfinite(y)
    x = x[finite]
    y = y[finite]
    if len(x) < 2:
        return ""
    low = float(y.min())
    high = float(y.max())
    scale = ""
    if low > 0 and high > 10 * low:
        scale = ", logarithmic"
        y = np.log10(y)
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).astype(int))
    points = " ".join(
        f"{across:.1f},{down:.1f}"
        for across, down in zip(
            _within(x[chosen], MARGIN, WIDTH - MARGIN),
            _within(y[chosen], HEIGHT - MARGIN, MARGIN),
            strict=True,
        )
    )
    title = f"{name} from {high:.6g} down to {low:.6g}{scale}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )


def _within(values: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return the values scaled linearly, the least at `first` and the largest at `last`."""
    span = float(values.max() - values.min())
    if not math.isfinite(span) or span == 0:
        return np.full(len(values), (first + last) / 2)
    return first + (last - first) * (values - values.min()) / span
