"""The convex subproblem of a prox-linear step, solved to a certified gap."""

from .exact import (
    Answer,
    Subsolution,
    dual_set,
    expand,
    is_dense,
    prices,
    proximal,
    solve,
    solve_subproblem,
    target,
)

__all__ = [
    "Answer",
    "Subsolution",
    "dual_set",
    "expand",
    "is_dense",
    "prices",
    "proximal",
    "solve",
    "solve_subproblem",
    "target",
]
