"""Figure 2: min_w (1/n) sum_i |student(w, x_i) - y_i|_2, y = teacher(x) + sigma xi, sigma by the
ratio `snr`.
"""

import jax
import jax.numpy as jnp
from benchopt import BaseDataset

import proxlin as px
from proxlin.data.regression import Teacher
from proxlin.networks import MLP


class Dataset(BaseDataset):
    name = "regression"
    parameters = {"n": [1000], "snr": [100.0], "width": [64], "noise": ["laplace"]}
    test_parameters = {"n": [40], "snr": [100.0], "width": [4], "noise": ["laplace"]}

    def get_data(self):
        seed = self.get_seed(use_repetition=True) % 2**31
        teacher, dtype = (
            Teacher(seed, self.snr, noise=self.noise),
            jnp.result_type(float),
        )
        student = MLP((teacher.inputs, self.width, teacher.outputs), "elu", bias=False)

        def problem(n, part):
            drawn = teacher.sample(n, part)
            return px.MeanOfLosses(
                px.residual(student),
                px.L2(),
                (drawn.x.astype(dtype), drawn.y.astype(dtype)),
            )

        start = student.init(jax.random.key(seed), dtype)
        return {
            "problem": problem(self.n, "train"),
            "held_out": problem(1000, "test"),
            "w": start,
        }
