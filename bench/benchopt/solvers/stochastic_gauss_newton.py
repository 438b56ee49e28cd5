"""argmin_x f(u + J (x - w)) + kappa/2 |x - w|^2, u and J of mini-batches: the loss of a mean."""

from benchmark_utils.epochs import EpochSolver

import proxlin as px


class Solver(EpochSolver):
    name = "stochastic_gauss_newton"
    parameters = {
        "kappa": [0.1],
        "batch_size": [256],
        "estimator": ["minibatch", "sarah"],
    }

    def make(self):
        return px.stochastic_gauss_newton(
            self.kappa, 2 * self.batch_size, self.batch_size, self.estimator
        )
