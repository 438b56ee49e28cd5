"""A solver of proxlin as one of benchopt: an epoch, then the callback, which measures off the
clock.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from benchopt import BaseSolver

from proxlin.run.loop import Limits, advance


class EpochSolver(BaseSolver):
    """`make()` returns the solver; the parameters of the class are its settings."""

    sampling_strategy = "callback"
    requirements = ["pip::proxlin"]

    def make(self):
        raise NotImplementedError

    def skip(self, problem, w):
        try:
            self.make().check(problem)
        except TypeError as error:
            return True, str(error)
        return False, None

    def set_objective(self, problem, w):
        self.solver, self.problem, self.start = self.make(), problem, w

    def warm_up(self):
        self.run_once(2)  # the second call comes after an epoch, which is then compiled

    def run(self, callback):
        key, epoch = jax.random.key(self.get_seed(use_repetition=True) % 2**31), 0
        self.w, state = self.start, _init(self.solver, self.problem, self.start)
        while callback():
            state = jax.block_until_ready(
                _epoch(self.solver, self.problem, state, key, jnp.int32(epoch))
            )
            self.w, epoch = self.solver.iterate(state), epoch + 1

    def get_result(self):
        return {"w": self.w}


@eqx.filter_jit
def _init(solver, problem, w):
    return solver.init(problem, w)


@eqx.filter_jit
def _epoch(solver, problem, state, key, epoch):
    steps = solver.epoch(problem)
    return advance(
        problem, solver, state, key, epoch * steps, Limits((epoch + 1) * steps)
    )[0]
