"""Solvers: every method is a choice of parts, and one loop runs them all."""

from .base import AbstractSolver, Info, State, check_solver, scan_steps
from .casimir import CasimirSVRG, casimir_svrg
from .follow import Followed, follow
from .gauss_newton import StochasticGaussNewton, stochastic_gauss_newton
from .model_based import ModelBased, sgd, stochastic_prox_linear, subgradient_descent, truncated
from .models import AbstractModel, Linear, ProxLinear, Truncated
from .pli import PLI, pli
from .prox_linear import prox_linear
from .quasi_newton import lbfgs
from .run import at_noise_level, minimize
from .solution import Solution, load_solution
from .subproblem import Subsolver, solve_subproblem
from .svrg import SVRG, svrg
from .wrappers import Averaged, BestSoFar, Rescaled, as_optax

__all__ = [
    "PLI",
    "SVRG",
    "AbstractModel",
    "AbstractSolver",
    "Averaged",
    "BestSoFar",
    "CasimirSVRG",
    "Followed",
    "Info",
    "Linear",
    "ModelBased",
    "ProxLinear",
    "Rescaled",
    "Solution",
    "State",
    "StochasticGaussNewton",
    "Subsolver",
    "Truncated",
    "as_optax",
    "at_noise_level",
    "casimir_svrg",
    "check_solver",
    "follow",
    "lbfgs",
    "load_solution",
    "minimize",
    "pli",
    "prox_linear",
    "scan_steps",
    "sgd",
    "solve_subproblem",
    "stochastic_gauss_newton",
    "stochastic_prox_linear",
    "subgradient_descent",
    "svrg",
    "truncated",
]
