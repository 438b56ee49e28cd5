"""Run a solver: `minimize` with its history, `solve` as one pure program, and `follow`, which looks
at a few marks only.
"""

from .checkpoints import Followed, follow
from .many import multistart, solve_many
from .minimize import at_noise_level, minimize
from .solution import Solution, load_solution
from .solve import Result, solve
from .starts import spectral_start

__all__ = [
    "Followed",
    "Result",
    "Solution",
    "at_noise_level",
    "follow",
    "load_solution",
    "minimize",
    "multistart",
    "solve",
    "solve_many",
    "spectral_start",
]
