"""Figure 5: min_w f((1/n) sum_i (l_1(m_i), ..., l_4(m_i))), m_i = y_i <x_i, w>, f the Huber
function.

The rows are those of a LIBSVM file where `PROXLIN_DATA` or the cache has it, else synthetic ones of
its shape.
"""

import jax.numpy as jnp
import numpy as np
from benchopt import BaseDataset

from proxlin.data import classification
from proxlin.data.equations import equations


class Dataset(BaseDataset):
    name = "equations"
    parameters = {"data": ["ijcnn1"], "rows": [10_000]}
    test_parameters = {"data": ["ijcnn1"], "rows": [200]}

    def get_data(self):
        seed = self.get_seed(use_repetition=True) % 2**31
        parts = classification.parts(self.data, seed, dtype=jnp.result_type(float))
        rows = np.random.default_rng(seed).permutation(len(parts.train))[: self.rows]
        train = parts.train[rows]
        problem, held_out = (equations(part.x, part.y) for part in (train, parts.test))
        return {"problem": problem, "held_out": held_out, "w": jnp.ones(train.columns)}
