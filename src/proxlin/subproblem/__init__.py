"""The convex subproblem of a prox-linear step, solved to a certified gap."""

from .exact import (
    Answer,
    Subsolution,
    dual_set,
    ends_early,
    expand,
    is_dense,
    is_exact,
    operations,
    prices,
    proximal,
    solve,
    solve_subproblem,
    structure,
    target,
)
from .structured import AbstractStructured
from .sweeps import rows_of, sweep

__all__ = [
    "AbstractStructured",
    "Answer",
    "Subsolution",
    "dual_set",
    "ends_early",
    "expand",
    "is_dense",
    "is_exact",
    "operations",
    "prices",
    "proximal",
    "rows_of",
    "solve",
    "solve_subproblem",
    "structure",
    "sweep",
    "target",
]
