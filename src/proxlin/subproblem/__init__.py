"""The convex subproblem of a prox-linear step, solved to a certified gap."""

from .solve import Subsolver, solve_subproblem

__all__ = ["Subsolver", "solve_subproblem"]
