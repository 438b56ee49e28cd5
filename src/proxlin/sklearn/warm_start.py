"""The start of a fit that goes on from the last one, whose units were others.

x_before = (x - x_center) / x_scale, so that a layer W x_before + b is W' x_after + b'
"""

from typing import Any

from ..checks import flag
from ..tables.standardize import Units
from .arguments import widths_of


def in_other_features(layer: dict, before: Units, after: Units) -> dict:
    """Return the first layer that computes the same from features in other units."""
    shift = before.features(after.x_center[None])[0]
    scale = after.x_scale / before.x_scale
    return {"W": layer["W"] * scale, "b": layer["b"] + layer["W"] @ shift}


def in_other_targets(layer: dict, before: Units, after: Units) -> dict:
    """Return the last layer whose outputs are the same targets in other units."""
    shift = after.targets(before.y_center[None])[0]
    scale = before.y_scale / after.y_scale
    return {"W": layer["W"] * scale[:, None], "b": layer["b"] * scale + shift}


def check_widths(layers: list[dict], hidden: Any) -> None:
    """Raise a sentence unless the layers of the last fit can be the start of this one."""
    if tuple(len(layer["b"]) for layer in layers[:-1]) != widths_of(hidden):
        raise ValueError(
            "warm_start goes on from the last fit, but hidden has changed since: set warm_start=False, or fit a clone."
        )


def goes_on(estimator: Any) -> bool:
    """Return whether a fit is to start where the last one ended."""
    return flag(estimator.warm_start, "warm_start") and "_w" in vars(estimator)
