"""argmin_x f(phi(w) + J (x - w)) + kappa/2 |x - w|^2, exactly, with an adaptive kappa or a fixed
one.
"""

from benchmark_utils.epochs import EpochSolver

import proxlin as px


class Solver(EpochSolver):
    name = "prox_linear"
    parameters = {"kappa": [None]}

    def make(self):
        return px.prox_linear(self.kappa)
