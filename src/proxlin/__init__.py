"""Nonsmooth composite optimization in JAX: prox-linear (modified Gauss-Newton) and stochastic
methods, side by side.

    min_w  (1/n) sum_i f(phi_i(w)) + ridge/2 |w|^2        MeanOfLosses
    min_w  f((1/n) sum_i phi_i(w)) + ridge/2 |w|^2        LossOfMean

Names load on first use (PEP 562): `import proxlin` imports neither JAX nor anything else that is
heavy.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# The public names by the module they live in. A new one is a line here and a line under
# TYPE_CHECKING below.
_PUBLIC: dict[str, tuple[str, ...]] = {
    "compiled": ("clear_caches",),
    "cost": ("Calls", "Cost", "Prices", "Status"),
    "inference": ("Bootstrap", "bootstrap", "covariance", "curve_fit"),
    "inners": ("Linearized", "SparseRows", "augmented_scores", "residual", "touches"),
    "networks": ("CNN", "MLP"),
    "oracles": ("AbstractOracle", "Chains", "MonotonePaths"),
    "outers": (
        *("AbstractOuter", "AbstractProximable", "AbstractSupport"),
        *(
            "Hinge",
            "Huber",
            "L1",
            "L2",
            "LInf",
            "Max",
            "Parts",
            "Quantile",
            "SquaredL2",
        ),
        *("EntropyHinge", "StructuredHinge"),
    ),
    "penalties": ("AbstractPenalty", "Bounds", "GroupL2", "L1Penalty", "NonNegative"),
    "precision": ("PrecisionWarning",),
    "problem": (
        *("AbstractProblem", "LossOfMean", "MeanOfLosses", "Trajectory", "shard"),
    ),
    "rollouts": ("rollout",),
    "run": (
        "Result",
        "Solution",
        "at_noise_level",
        "load_solution",
        "minimize",
        "multistart",
        "solve",
        "solve_many",
        "spectral_start",
    ),
    "schedules": ("Constant", "Inverse", "InverseSqrt"),
    "solvers": (
        *("AbstractModel", "AbstractSolver", "Info", "ModelBased", "State"),
        *(
            "Averaged",
            "BestSoFar",
            "Rescaled",
            "as_optax",
            "casimir_svrg",
            "composition_sgd",
            "lbfgs",
            "pli",
            "prox_linear",
            "sgd",
        ),
        *(
            "stochastic_gauss_newton",
            "stochastic_prox_linear",
            "subgradient_descent",
            "svrg",
            "truncated",
        ),
    ),
    "theory": (),
    "subproblem": ("Subsolution", "solve_subproblem"),
    "tables": ("Fit", "fit", "load_fit"),
    "tuning": ("Advice", "Choice", "Lattice", "Space", "Tuning", "advise", "tune"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = ["__version__", *_HOME, *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from . import compiled as compiled
    from . import cost as cost
    from . import inference as inference
    from . import inners as inners
    from . import networks as networks
    from . import oracles as oracles
    from . import outers as outers
    from . import penalties as penalties
    from . import precision as precision
    from . import problem as problem
    from . import rollouts as rollouts
    from . import run as run
    from . import schedules as schedules
    from . import solvers as solvers
    from . import subproblem as subproblem
    from . import tables as tables
    from . import theory as theory
    from . import tuning as tuning
    from .compiled import clear_caches as clear_caches
    from .cost import Calls as Calls
    from .cost import Cost as Cost
    from .cost import Prices as Prices
    from .cost import Status as Status
    from .inference import Bootstrap as Bootstrap
    from .inference import bootstrap as bootstrap
    from .inference import covariance as covariance
    from .inference import curve_fit as curve_fit
    from .inners import Linearized as Linearized
    from .inners import SparseRows as SparseRows
    from .inners import augmented_scores as augmented_scores
    from .inners import residual as residual
    from .inners import touches as touches
    from .networks import CNN as CNN
    from .networks import MLP as MLP
    from .oracles import AbstractOracle as AbstractOracle
    from .oracles import Chains as Chains
    from .oracles import MonotonePaths as MonotonePaths
    from .outers import L1 as L1
    from .outers import L2 as L2
    from .outers import AbstractOuter as AbstractOuter
    from .outers import AbstractProximable as AbstractProximable
    from .outers import AbstractSupport as AbstractSupport
    from .outers import EntropyHinge as EntropyHinge
    from .outers import Hinge as Hinge
    from .outers import Huber as Huber
    from .outers import LInf as LInf
    from .outers import Max as Max
    from .outers import Parts as Parts
    from .outers import Quantile as Quantile
    from .outers import SquaredL2 as SquaredL2
    from .outers import StructuredHinge as StructuredHinge
    from .penalties import AbstractPenalty as AbstractPenalty
    from .penalties import Bounds as Bounds
    from .penalties import GroupL2 as GroupL2
    from .penalties import L1Penalty as L1Penalty
    from .penalties import NonNegative as NonNegative
    from .precision import PrecisionWarning as PrecisionWarning
    from .problem import AbstractProblem as AbstractProblem
    from .problem import LossOfMean as LossOfMean
    from .problem import MeanOfLosses as MeanOfLosses
    from .problem import Trajectory as Trajectory
    from .problem import shard as shard
    from .rollouts import rollout as rollout
    from .run import Result as Result
    from .run import Solution as Solution
    from .run import at_noise_level as at_noise_level
    from .run import load_solution as load_solution
    from .run import minimize as minimize
    from .run import multistart as multistart
    from .run import solve as solve
    from .run import solve_many as solve_many
    from .run import spectral_start as spectral_start
    from .schedules import Constant as Constant
    from .schedules import Inverse as Inverse
    from .schedules import InverseSqrt as InverseSqrt
    from .solvers import AbstractModel as AbstractModel
    from .solvers import AbstractSolver as AbstractSolver
    from .solvers import Averaged as Averaged
    from .solvers import BestSoFar as BestSoFar
    from .solvers import Info as Info
    from .solvers import ModelBased as ModelBased
    from .solvers import Rescaled as Rescaled
    from .solvers import State as State
    from .solvers import as_optax as as_optax
    from .solvers import casimir_svrg as casimir_svrg
    from .solvers import composition_sgd as composition_sgd
    from .solvers import lbfgs as lbfgs
    from .solvers import pli as pli
    from .solvers import prox_linear as prox_linear
    from .solvers import sgd as sgd
    from .solvers import stochastic_gauss_newton as stochastic_gauss_newton
    from .solvers import stochastic_prox_linear as stochastic_prox_linear
    from .solvers import subgradient_descent as subgradient_descent
    from .solvers import svrg as svrg
    from .solvers import truncated as truncated
    from .subproblem import Subsolution as Subsolution
    from .subproblem import solve_subproblem as solve_subproblem
    from .tables import Fit as Fit
    from .tables import fit as fit
    from .tables import load_fit as load_fit
    from .tuning import Advice as Advice
    from .tuning import Choice as Choice
    from .tuning import Lattice as Lattice
    from .tuning import Space as Space
    from .tuning import Tuning as Tuning
    from .tuning import advise as advise
    from .tuning import tune as tune


def __getattr__(name: str):
    if name in _PUBLIC:
        return _import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(
            f"proxlin has no public name {name!r}; dir(proxlin) lists those there are."
        )
    value = getattr(_import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value  # the next look-up is an ordinary one
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
