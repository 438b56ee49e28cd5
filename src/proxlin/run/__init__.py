"""Run a solver: `minimize` with its history, `solve` as one pure program, and `follow`, which looks
at a few marks only.
"""

from typing import TYPE_CHECKING

from ..later import later
from .minimize import at_noise_level, minimize
from .solution import Solution, load_solution
from .solve import Result, solve

__getattr__ = later(
    __name__,
    {
        "checkpoints": ("Followed", "follow"),
        "many": ("multistart", "solve_many"),
        "starts": ("spectral_start",),
    },
)

if TYPE_CHECKING:
    from .checkpoints import Followed, follow
    from .many import multistart, solve_many
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
