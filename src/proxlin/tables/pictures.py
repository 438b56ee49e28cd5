"""The pictures of a fitted model."""

import numpy as np
from matplotlib.figure import Figure

from ..plots.drawing import Point
from ..plots.fits import Rows, draw
from .model import Model

PANELS = 4  # targets with panels of their own
SUSPECT = 0.05  # false discovery rate of the rows that are marked


def draw_model(model: Model) -> tuple[Figure, list[Point]]:
    """Draw the rows of a fit and its effects; return the figure, and what hovering tells."""
    findings = model.findings
    shown = findings.shown
    targets = []
    for j, target in enumerate(model.asked.targets[:PANELS]):
        wrong = [
            each["row"]
            for each in findings.suspects
            if each["target"] == target and each["false discovery rate"] <= SUSPECT
        ]
        targets.append(
            Rows(
                target,
                shown.rows,
                shown.y[:, j],
                shown.fitted[:, j],
                float(findings.scale[j]),
                shown.distance,
                findings.limit,
                np.isin(shown.rows, wrong),
            )
        )
    return draw(targets, findings.effects)
