"""Convex terms of w beside the losses: bounds, l1, and groups of l2, a separable g(w) with a prox."""

from .base import AbstractPenalty, Bounds, GroupL2, L1Penalty, NonNegative
from .terms import AbstractTerm
from .trees import Penalties, as_penalties

__all__ = [
    "AbstractPenalty",
    "AbstractTerm",
    "Bounds",
    "GroupL2",
    "L1Penalty",
    "NonNegative",
    "Penalties",
    "as_penalties",
]
