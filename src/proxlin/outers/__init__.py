"""Outer functions: convex f: R^k -> R."""

from .base import AbstractOuter, AbstractProximable, AbstractSupport
from .norms import (
    L1,
    L2,
    AbstractBox,
    Box,
    Hinge,
    Huber,
    LInf,
    Max,
    Origin,
    Quantile,
    SquaredL2,
)
from .parts import Parts
from .smoothing import Envelope, Smoothed
from .structured import EntropyHinge, StructuredHinge

__all__ = [
    "L1",
    "L2",
    "AbstractBox",
    "AbstractOuter",
    "AbstractProximable",
    "AbstractSupport",
    "Box",
    "EntropyHinge",
    "Envelope",
    "Hinge",
    "Huber",
    "LInf",
    "Max",
    "Origin",
    "Parts",
    "Quantile",
    "Smoothed",
    "SquaredL2",
    "StructuredHinge",
]
