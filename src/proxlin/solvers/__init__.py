"""Solvers: every method is a choice of parts; `proxlin.run` has the loop that runs them all."""

from typing import TYPE_CHECKING

from ..later import later
from .base import AbstractInnerSolver, AbstractSolver, Info, State, check_solver
from .casimir import CasimirSVRG, casimir_svrg
from .lbfgs import lbfgs
from .model_based import (
    ModelBased,
    sgd,
    stochastic_prox_linear,
    subgradient_descent,
    truncated,
)
from .models import AbstractModel, Linear, ProxLinear, ProxLinearIncremental, Truncated
from .pli import Monotone, pli
from .prox_linear import prox_linear
from .svrg import SVRG, svrg

__getattr__ = later(
    __name__,
    {
        "composition": ("composition_sgd",),
        "gauss_newton": ("StochasticGaussNewton", "stochastic_gauss_newton"),
        "wrappers": ("Averaged", "BestSoFar", "Rescaled", "as_optax"),
    },
)

if TYPE_CHECKING:
    from .composition import composition_sgd
    from .gauss_newton import StochasticGaussNewton, stochastic_gauss_newton
    from .wrappers import Averaged, BestSoFar, Rescaled, as_optax

__all__ = [
    "SVRG",
    "AbstractInnerSolver",
    "AbstractModel",
    "AbstractSolver",
    "Averaged",
    "BestSoFar",
    "CasimirSVRG",
    "Info",
    "Linear",
    "ModelBased",
    "Monotone",
    "ProxLinear",
    "ProxLinearIncremental",
    "Rescaled",
    "State",
    "StochasticGaussNewton",
    "Truncated",
    "as_optax",
    "casimir_svrg",
    "check_solver",
    "composition_sgd",
    "lbfgs",
    "pli",
    "prox_linear",
    "sgd",
    "stochastic_gauss_newton",
    "stochastic_prox_linear",
    "subgradient_descent",
    "svrg",
    "truncated",
]
