"""Settings for a problem of one's own: search for them, tune a solver, and ask whether Gauss-Newton
pays.
"""

from .advisor import Advice, advise
from .search import Choice, Lattice
from .tune import Space, Tuning, tune

__all__ = ["Advice", "Choice", "Lattice", "Space", "Tuning", "advise", "tune"]
