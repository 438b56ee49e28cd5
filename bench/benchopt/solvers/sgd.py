"""w - step v, v in d(f o phi_B)(w): the stochastic subgradient method."""

from benchmark_utils.epochs import EpochSolver

import proxlin as px


class Solver(EpochSolver):
    name = "sgd"
    parameters = {"step, batch_size": [(3e-3, 1), (1.0, 256)]}

    def make(self):
        return px.sgd(self.step, batch_size=self.batch_size)
