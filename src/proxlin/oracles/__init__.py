"""Oracles: max_{y in Y} <a, y> over finite sets Y of 0/1 vectors, by dynamic programming."""

from .base import AbstractOracle
from .chains import Chains
from .paths import MonotonePaths

__all__ = ["AbstractOracle", "Chains", "MonotonePaths"]
