"""The heat map of Figure 2: a panel for each width, a cell for each (n, SNR), the winner in bold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .drawing import Drawing, Point
from .style import SMALL, WIDTH, styled

SHOWN = 0.25  # the gain at which the colour is full
# orange where PLI is better, purple where SGD is; safe for colour-blind readers
COLOURS = "PuOr"


@dataclass(frozen=True)
class Cell:
    """One cell: where it is, both losses, the gain of SGD with its interval, who wins, and the
    chosen settings.
    """

    width: int
    snr: float
    n: int
    sgd_loss: float
    pli_loss: float
    gain_of_sgd: float
    low: float
    high: float
    winner: str
    sgd_setting: str
    pli_setting: str

    def hover(self) -> str:
        """Return what the page says over the cell."""
        return (
            f"n = {self.n}, SNR = {self.snr:g}, width {self.width}: {self.winner}\n"
            f"SGD {self.sgd_loss:.4g} ({self.sgd_setting})\nPLI {self.pli_loss:.4g} ({self.pli_setting})\n"
            f"PLI over SGD {self.gain_of_sgd:+.2%} [{self.low:+.2%}, {self.high:+.2%}]"
        )


@styled
def draw(cells: Sequence[Cell]) -> Drawing:
    """Return the figure, with a text that shows over each of its cells."""
    widths = sorted({cell.width for cell in cells})
    samples = sorted({cell.n for cell in cells})
    ratios = sorted({cell.snr for cell in cells})
    height = max(1.1 + 0.4 * len(ratios), 2.4)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    colours: Any = ScalarMappable(Normalize(-SHOWN, SHOWN), COLOURS)
    axes = figure.subplots(1, len(widths), squeeze=False, sharey=True)[0]
    points = []
    for panel, (ax, width) in enumerate(zip(axes, widths, strict=True)):
        for cell in cells:
            if cell.width == width:
                x = samples.index(cell.n)
                y = ratios.index(cell.snr)
                points.append(Point(panel, float(x), float(y), cell.hover()))
                _draw_cell(ax, cell, x, y, colours.to_rgba(cell.gain_of_sgd))
        ax.set(
            xlim=(-0.5, len(samples) - 0.5),
            ylim=(-0.5, len(ratios) - 0.5),
            xlabel="samples n",
        )
        ax.set_xticks(range(len(samples)), [str(n) for n in samples])
        ax.set_yticks(range(len(ratios)), [_power(snr) for snr in ratios])
        ax.set_title(f"student of width {width}")
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_visible(False)
    axes[0].set_ylabel("signal-to-noise ratio")
    bar = figure.colorbar(colours, ax=list(axes), shrink=0.9, extend="both")
    bar.ax.set_yticks(
        [-SHOWN, 0, SHOWN],
        [f"PLI better\nby {SHOWN:.0%}", "equal", f"SGD better\nby {SHOWN:.0%}"],
    )
    figure.suptitle(
        "l2 test loss: SGD above, PLI below; bold where one wins: its interval over the seeds excludes 0"
    )
    return Drawing(figure, points)


def _draw_cell(ax: Axes, cell: Cell, x: int, y: int, colour: Any) -> None:
    """Draw a square with both losses, that of the winner in bold."""
    ax.add_patch(
        Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white")
    )
    ink = "white" if _luminance(colour) < 0.4 else "black"
    for name, loss, up in (("sgd", cell.sgd_loss, 0.2), ("pli", cell.pli_loss, -0.2)):
        weight = "bold" if cell.winner == name else "normal"
        ax.text(
            x,
            y + up,
            _short(loss),
            ha="center",
            va="center",
            fontsize=SMALL,
            color=ink,
            weight=weight,
        )


def _luminance(colour: Any) -> float:
    red, green, blue, _ = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue  # ITU-R BT.601


def _short(loss: float) -> str:
    if loss < 100:
        return f"{loss:.3g}"
    return f"{loss:.1f}"


def _power(snr: float) -> str:
    """Return a ratio as a power of ten where it is one."""
    exponent = math.log10(snr)
    if abs(exponent - round(exponent)) < 1e-9:
        return f"$10^{{{exponent:.0f}}}$"
    return f"{snr:g}"
