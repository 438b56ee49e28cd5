"""The heat map of Figure 2: a panel for each width, a cell for each (n, SNR), the winner in bold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .drawing import Drawing, Point
from .style import SMALL, WIDTH, styled

SHOWN = 0.25  # the gain at which the colour is full


@dataclass(frozen=True)
class Cell:
    """One cell: where it is, both losses, the gain of SGD with its interval, who wins, and the chosen settings."""

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
        return (
            f"n = {self.n}, SNR = {self.snr:g}, width {self.width}: {self.winner}\n"
            f"SGD {self.sgd_loss:.4g} ({self.sgd_setting})\nPLI {self.pli_loss:.4g} ({self.pli_setting})\n"
            f"PLI over SGD {self.gain_of_sgd:+.2%} [{self.low:+.2%}, {self.high:+.2%}]"
        )


@styled
def draw(cells: Sequence[Cell]) -> Drawing:
    """The figure, with a text that shows over each of its cells."""
    widths = sorted({cell.width for cell in cells})
    samples, ratios = sorted({cell.n for cell in cells}), sorted({cell.snr for cell in cells})
    figure = Figure(figsize=(WIDTH, max(1.1 + 0.4 * len(ratios), 2.4)), layout="constrained")
    colours = matplotlib.colormaps["PuOr"]  # orange: PLI is better; purple: SGD; safe for colour-blind readers
    norm = Normalize(-SHOWN, SHOWN)
    axes = figure.subplots(1, len(widths), squeeze=False, sharey=True)[0]
    points = []
    for panel, (ax, width) in enumerate(zip(axes, widths, strict=True)):
        for cell in (cell for cell in cells if cell.width == width):
            x, y = samples.index(cell.n), ratios.index(cell.snr)
            points.append(Point(panel, float(x), float(y), cell.hover()))
            colour = colours(norm(cell.gain_of_sgd))
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white"))
            ink = "white" if _luminance(colour) < 0.4 else "black"
            for name, loss, up in (("sgd", cell.sgd_loss, 0.2), ("pli", cell.pli_loss, -0.2)):
                weight = "bold" if cell.winner == name else "normal"
                ax.text(x, y + up, _short(loss), ha="center", va="center", fontsize=SMALL, color=ink, weight=weight)
        ax.set(xlim=(-0.5, len(samples) - 0.5), ylim=(-0.5, len(ratios) - 0.5), xlabel="samples n")
        ax.set_xticks(range(len(samples)), [str(n) for n in samples])
        ax.set_yticks(range(len(ratios)), [_power(snr) for snr in ratios])
        ax.set_title(f"student of width {width}")
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_visible(False)
    axes[0].set_ylabel("signal-to-noise ratio")
    mappable = ScalarMappable(norm, colours)
    bar = figure.colorbar(mappable, ax=list(axes), shrink=0.9, extend="both")
    bar.ax.set_yticks([-SHOWN, 0, SHOWN], [f"PLI better\nby {SHOWN:.0%}", "equal", f"SGD better\nby {SHOWN:.0%}"])
    figure.suptitle("l2 test loss: SGD above, PLI below; bold where one wins beyond the noise of the seeds")
    return Drawing(figure, points)


def _luminance(colour: tuple[float, ...]) -> float:
    return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]


def _short(loss: float) -> str:
    return f"{loss:.3g}" if loss < 100 else f"{loss:.1f}"


def _power(snr: float) -> str:
    exponent = math.log10(snr)
    return f"$10^{{{exponent:.0f}}}$" if abs(exponent - round(exponent)) < 1e-9 else f"{snr:g}"
