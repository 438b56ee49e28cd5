"""w - step v, v in dF(w): the full batch."""

from benchmark_utils.epochs import EpochSolver

import proxlin as px


class Solver(EpochSolver):
    name = "subgradient_descent"
    parameters = {"step": [0.1, 1.0]}

    def make(self):
        return px.subgradient_descent(self.step)
