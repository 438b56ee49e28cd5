"""The arguments of the propositions, refused in a sentence."""

import math

from ..types import Scalar


def count(x: int, name: str) -> int:
    if int(x) != x or x < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; it is {x}.")
    return int(x)


def positive(x: Scalar, name: str, zero: bool = False) -> float:
    x = float(x)
    if not (0 < x < math.inf or (zero and x == 0)):
        raise ValueError(f"{name} must be {'at least 0' if zero else 'above 0'} and finite; it is {x}.")
    return x


def probability(delta: float) -> float:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1; it is {delta}.")
    return float(delta)
