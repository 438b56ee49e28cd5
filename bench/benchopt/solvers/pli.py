"""The prox-linear step of a mean of losses, by block dual coordinate ascent; kept unless F grows."""

from benchmark_utils.epochs import EpochSolver

import proxlin as px


class Solver(EpochSolver):
    name = "pli"
    parameters = {"kappa": [0.01, 0.1, 1.0], "inner_passes": [5]}

    def make(self):
        return px.pli(self.kappa, inner_passes=self.inner_passes)
