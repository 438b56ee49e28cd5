"""The arguments of the propositions, refused in a sentence."""

import math

from ..checks import real, whole
from ..types import Scalar


def count(x: int, name: str) -> int:
    return whole(x, name, high=math.inf)


def positive(x: Scalar, name: str, zero: bool = False) -> float:
    return real(x, name, low=0.0, open=not zero)


def probability(delta: float) -> float:
    value = real(delta, "delta")
    if not 0 < value < 1:
        raise ValueError(f"delta must be between 0 and 1; it is {delta}.")
    return value
