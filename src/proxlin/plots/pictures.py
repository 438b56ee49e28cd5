"""Pictures of maps: pixels with a path in white, and rewards as colours."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .style import WIDTH, styled

FEW = 6  # levels of reward, of which each has a tick of its own


@styled
def draw_map(
    pixels: np.ndarray,
    rewards: np.ndarray,
    label: np.ndarray,
    learned: np.ndarray,
    predicted: np.ndarray,
) -> Figure:
    """Draw the map and its best path, the true rewards, and the learned rewards with the predicted
    path.
    """
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    rows, columns = rewards.shape
    left.imshow(
        pixels, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), interpolation="nearest"
    )
    _draw_path(left, label)
    left.set_title("a map and one of its best paths")
    levels = np.unique(rewards)
    ticks = levels if len(levels) <= FEW else None
    figure.colorbar(
        middle.imshow(rewards, cmap="cividis"), ax=middle, shrink=0.85, ticks=ticks
    )
    middle.set_title("true rewards (hidden)")
    image = right.imshow(learned, cmap="cividis")
    _draw_path(right, predicted)
    right.set_title("learned rewards, predicted path")
    figure.colorbar(image, ax=right, shrink=0.85)
    for ax in (left, middle, right):
        ax.set(xticks=[], yticks=[])
    return figure


def _draw_path(ax: Any, path: np.ndarray) -> None:
    """Draw a monotone path as a white line through its cells, in the order of row + column, with a
    dark rim.
    """
    cells = sorted(zip(*np.nonzero(path), strict=True), key=sum)
    y, x = zip(*cells, strict=True)
    ax.plot(x, y, color="black", linewidth=3.2, alpha=0.7, solid_capstyle="round")
    ax.plot(x, y, color="white", linewidth=1.8, solid_capstyle="round")
