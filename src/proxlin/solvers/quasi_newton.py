"""Limited-memory BFGS on the smoothed problem: F_nu(w) = sum_i c_i f_nu(u_i(w)) + quadratic(w), full batch."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..cost import Cost
from ..outers import AbstractProximable
from ..problem import AbstractProblem
from ..types import Params, number
from .base import AbstractSolver, Info

RECORD = 10  # steps between two records: a step is little more than a gradient


class QuasiNewtonState(eqx.Module):
    """The iterate, what optax remembers, and the count of steps."""

    w: Params
    memory: Any
    t: Array


class LBFGS(AbstractSolver):
    """w+ = w - s B g, g the gradient of F_nu, B from the last `memory` steps, s by a line search (strong Wolfe)."""

    outers = AbstractProximable
    instead = "prox_linear"

    nu: Array | None
    memory: int = eqx.field(static=True)

    def init(self, problem: AbstractProblem, w: Params) -> QuasiNewtonState:
        return QuasiNewtonState(w, self._method().init(w), jnp.zeros((), jnp.int32))

    def step(self, problem: AbstractProblem, state: QuasiNewtonState, drawn: Any) -> tuple[QuasiNewtonState, Info]:
        smooth = _objective(problem if self.nu is None else problem.smooth(self.nu))
        with jax.numpy_dtype_promotion("standard"):  # optax mixes int32 and int64
            value, gradient = optax.value_and_grad_from_state(smooth)(state.w, state=state.memory)
            updates, memory = self._method().update(
                gradient, state.memory, state.w, value=value, grad=gradient, value_fn=smooth
            )
        search: Any = memory[-1]  # pyright: ignore[reportIndexIssue, reportArgumentType, reportCallIssue]
        stalled = optax.tree.norm(updates) == 0
        after = QuasiNewtonState(optax.apply_updates(state.w, updates), memory, state.t + 1)
        more = search.info.num_linesearch_steps.astype(jnp.int32) - 1
        return after, Info({"more": more}, optax.tree.norm(search.grad), stalled)

    def _method(self) -> optax.GradientTransformationExtraArgs:
        return optax.lbfgs(memory_size=self.memory)

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        price = problem.prices(w).subgradient
        return {"step": price, "more": price, "init": price}

    def epoch(self, problem: AbstractProblem) -> int:
        return RECORD

    def full_batch(self) -> bool:
        return True

    def remedy(self) -> str:
        return "Start from another w." if self.nu is None else f"Try nu = {float(jnp.max(self.nu)) * 10:.2g}."

    def name(self) -> str:
        return "lbfgs"


def _objective(problem: AbstractProblem) -> Callable[[Params], Array]:
    """F, with the gradient of its own: exact wherever the rows lie, and in the chunks of a long table."""
    value = jax.custom_vjp(problem.value)
    value.defvjp(problem.value_and_subgradient, lambda gradient, scale: (optax.tree.scale(scale, gradient),))
    return value


def lbfgs(nu: Any = None, memory: int = 10) -> AbstractSolver:
    """L-BFGS on F_nu, the problem with f replaced by its smoothing: F_nu <= F <= F_nu + nu l^2 / 2, l of f (1 for L2).

    For full-batch fits with nk far above the number of parameters: a step costs little more than a gradient. It ends
    near the minimum of F_nu, from where `prox_linear` goes on to that of F. None for nu is F itself, for an f that is
    smooth already. `tol` is compared with |grad F_nu|.
    """
    if not (isinstance(memory, int) and memory > 0):
        raise ValueError(f"memory must be a whole number above 0; it is {memory!r}.")
    return LBFGS(None if nu is None else number(nu, "nu", low=0.0, open=True), memory)
