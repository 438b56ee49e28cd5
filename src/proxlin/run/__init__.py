"""Run a solver: `minimize` with its history, and `follow`, which looks at a few marks only."""

from .checkpoints import Followed, follow
from .minimize import at_noise_level, minimize
from .solution import Solution, load_solution

__all__ = ["Followed", "Solution", "at_noise_level", "follow", "load_solution", "minimize"]
