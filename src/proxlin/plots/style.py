"""How every figure looks: drawn at the width it is printed at, so that its text is as large on
paper as written here.

    @styled
    def draw(...) -> Figure

The colours are those of Okabe and Ito, safe for colour-blind readers
(https://jfly.uni-koeln.de/color/); lines and marks differ in more than colour.
"""

from typing import Any

from matplotlib import rc_context

BLUE = "#0072B2"
ORANGE = "#D55E00"
GREEN = "#009E73"
PINK = "#CC79A7"
YELLOW = "#E69F00"
SKY = "#56B4E9"
BLACK = "#000000"
GREY = "#555555"
LIGHT = "#999999"
PALE = "#CFCFCF"

LINES = (
    (BLUE, "-"),
    (ORANGE, "-"),
    (GREEN, "--"),
    (PINK, "--"),
    (YELLOW, "-."),
    (SKY, "-."),
    (BLACK, ":"),
    (LIGHT, ":"),
    (BLUE, ":"),
    (ORANGE, ":"),
)
MARKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"))

# inches: both columns of a page of ICML; half of it, a panel, is one column
WIDTH = 6.75
SMALL = 7  # points

_LOOK: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "figure.titlesize": 8,
    "legend.edgecolor": "0.8",
    "legend.fontsize": SMALL,
    "legend.framealpha": 0.9,
    "lines.linewidth": 1.2,
    "xtick.labelsize": SMALL,
    "xtick.major.width": 0.6,
    "ytick.labelsize": SMALL,
    "ytick.major.width": 0.6,
}
styled = rc_context(_LOOK)
