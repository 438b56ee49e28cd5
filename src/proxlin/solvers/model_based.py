"""w_{t+1} = argmin_x model_t(x) + |x - w_t|^2 / 2 step_t: SGD, Polyak and prox-linear are one solver."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..checks import flag, whole
from ..cost import Cost
from ..problem import AbstractProblem, MeanOfLosses
from ..schedules import as_schedule
from ..subproblem.solve import Subsolver
from ..types import Key, Params, dtype_of
from .base import AbstractSolver, Info, State
from .models import AbstractModel, Linear, ProxLinear, Truncated


class ModelBased(AbstractSolver):
    """A model, a schedule of steps and a batch size; batch_size None is the full batch.

    An epoch is n // batch_size steps. With `replace=False` every epoch is a new permutation of the samples.
    """

    model: AbstractModel
    schedule: Callable
    batch_size: int | None = eqx.field(static=True)
    replace: bool = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> State:
        return State(w, jnp.zeros((), jnp.int32))

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Array:
        if self.batch_size is None:
            return jnp.zeros((count,), jnp.int32)
        n, b = len(problem), self.batch_size
        if self.replace:
            drawn = jax.random.randint(key, (count, b), 0, n, jnp.int32)
        else:
            each = self.epoch(problem)
            keys = jax.random.split(key, -(-count // each))
            orders = jax.vmap(lambda k: jax.random.permutation(k, n)[: each * b].astype(jnp.int32))(keys)
            drawn = orders.reshape(-1, b)[:count]
        return drawn[:, 0] if b == 1 else drawn

    def step(self, problem: AbstractProblem, state: State, drawn: Array) -> tuple[State, Info]:
        batch = problem if self.batch_size is None else problem[drawn]
        step = jnp.asarray(self.schedule(state.t)).astype(dtype_of(state.w))
        w, counts = self.model.minimize(batch, state.w, step)
        return State(w, state.t + 1), Info(counts)

    def epoch(self, problem: AbstractProblem) -> int:
        return 1 if self.batch_size is None else max(1, len(problem) // self.batch_size)

    def full_batch(self) -> bool:
        return self.batch_size is None

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        batch = problem if self.batch_size is None else problem[jnp.zeros((self.batch_size,), jnp.int32)]
        return self.model.prices(batch, w)

    def check(self, problem: AbstractProblem) -> None:
        AbstractSolver.check(self, problem)
        if isinstance(self.model, ProxLinear):
            if not isinstance(problem, MeanOfLosses):
                raise TypeError(
                    f"{self.name()} needs a problem of the class MeanOfLosses; take stochastic_gauss_newton."
                )
            self.model.subsolver.check(problem)
        if self.batch_size is not None and not self.replace and self.batch_size > len(problem):
            raise ValueError(
                f"A batch of {self.batch_size} without replacement needs as many samples; there are {len(problem)}."
            )

    def remedy(self) -> str:
        first = float(jnp.max(jnp.asarray(self.schedule(jnp.zeros((), jnp.int32)))))
        return f"Try a smaller step, such as {first / 10:.2g}."

    def name(self) -> str:
        model, batch = type(self.model).__name__, "subgradient_descent" if self.batch_size is None else "sgd"
        named = {"Linear": batch, "Truncated": "truncated", "ProxLinear": "stochastic_prox_linear"}
        return named.get(model, model)


def sgd(step: Any, batch_size: Any = 1, replace: bool = True) -> ModelBased:
    """The stochastic subgradient method, w - step v, v in d(f o phi_i)(w); eq. (2) of the paper.

    `step` is a number or a schedule. For `LossOfMean` the mini-batch estimate is biased, as the paper says.
    """
    return ModelBased(Linear(), as_schedule(step, "step"), whole(batch_size, "batch_size"), flag(replace, "replace"))


def subgradient_descent(step: Any) -> ModelBased:
    """w - step v, v in dF(w), on the full batch: GD."""
    return ModelBased(Linear(), as_schedule(step, "step"), None, True)


def truncated(step: Any, lower: Any = 0.0, batch_size: Any = 1) -> ModelBased:
    """w - min(step, (F_i(w) - lower) / |v|^2) v: the linear model cut at a lower bound of F_i (Polyak)."""
    return ModelBased(Truncated(lower), as_schedule(step, "step"), whole(batch_size, "batch_size"), True)


def stochastic_prox_linear(step: Any, batch_size: Any = 32) -> ModelBased:
    """w+ = argmin_x (1/b) sum_{i in batch} f(phi_i(w) + J_i (x - w)) + |x - w|^2 / (2 step), exactly.

    Solved through its dual, of size batch_size * k; 1/step is kappa.
    """
    return ModelBased(ProxLinear(Subsolver()), as_schedule(step, "step"), whole(batch_size, "batch_size"), True)
