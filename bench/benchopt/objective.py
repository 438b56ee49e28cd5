"""F(w), and the same on held-out data."""

import equinox as eqx
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "nonsmooth composite"
    url = "https://pypi.org/project/proxlin"
    min_benchopt_version = "1.6"
    requirements = ["pip::proxlin"]
    sampling_strategy = "callback"
    test_dataset_name = "regression"

    def set_data(self, problem, held_out, w):
        self.problem, self.w = problem, w
        self.value, self.test = (
            eqx.filter_jit(problem.value),
            eqx.filter_jit(held_out.value),
        )

    def get_objective(self):
        return {"problem": self.problem, "w": self.w}

    def evaluate_result(self, w):
        return {"value": float(self.value(w)), "test": float(self.test(w))}

    def get_one_result(self):
        return {"w": self.w}
