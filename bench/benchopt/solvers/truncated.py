"""w - min(step, F_i(w) / |v|^2) v: the linear model cut at 0 (Polyak)."""

from benchmark_utils.epochs import EpochSolver

import proxlin as px


class Solver(EpochSolver):
    name = "truncated"
    parameters = {"step": [0.03]}

    def make(self):
        return px.truncated(self.step)
