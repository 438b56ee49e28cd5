"""The problems, F(w) = sum_i c_i f(u_i(w)) + weight/2 |w - center|^2 + offset + g(w), and the
four verbs.

MeanOfLosses   u_i = phi_i(w), c_i = s_i / n          LossOfMean   u_1 = (1/n) sum_i s_i phi_i(w), c_1 = 1
Trajectory     u_t = stage(x_{t+1}, w_t), c_t = s_t / T, x rolled out by the controls w
"""

from .base import AbstractProblem, check_maps, check_problem, value_of_stack
from .chain import Chain
from .expansion import Expansion, LinearMap, Touched
from .loss_of_mean import LossOfMean
from .mean_of_losses import MeanOfLosses
from .quadratic import Quadratic
from .rows import shard
from .trajectory import Trajectory

__all__ = [
    "AbstractProblem",
    "Chain",
    "Expansion",
    "LinearMap",
    "LossOfMean",
    "MeanOfLosses",
    "Quadratic",
    "Touched",
    "Trajectory",
    "check_maps",
    "check_problem",
    "shard",
    "value_of_stack",
]
