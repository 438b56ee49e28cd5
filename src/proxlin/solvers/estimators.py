"""Estimates of u = (1/n) sum_i s_i phi_i(w) and of its Jacobian from mini-batches, for f of a mean.

    minibatch   u_B(w),  J_S(w)
    sarah       u + u_B(w) - u_B(w_old),  J + J_S(w) - J_S(w_old),  exact every `period` steps (None: an epoch)
    svrg        u(w0) + J(w0)(w - w0) + u_B(w) - u_B(w0) - J_B(w0)(w - w0),  J(w0) + J_S(w) - J_S(w0), with a new
                snapshot w0 every `period` steps

sarah is the method of Tran-Dinh et al. 2020 (SGN2), svrg that of Zhang and Xiao (arXiv 2004.04357): its correction of
first order leaves an error of |w - w0|^2 in place of |w - w0|, which a nonsmooth f needs.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..compiled import shapes_of
from ..cost import Cost
from ..problem import AbstractProblem
from ..subproblem.solve import Expansion
from ..types import Params


class Batches(eqx.Module):
    """B for the value and S for the Jacobian; one batch for both where `value` is None."""

    value: AbstractProblem | None
    jacobian: AbstractProblem

    def expand(self, w: Params) -> Expansion:
        """u_B(w) and J_S(w)."""
        u, jacobian = self.jacobian.expand(w)
        return Expansion(u if self.value is None else self.value.stack(w), jacobian)

    def extrapolate(self, anchor: Params, w: Params) -> Expansion:
        """u_B(anchor) + J_B(anchor)(w - anchor), and J_S(anchor)."""
        if self.value is None:
            return extrapolate(self.expand(anchor), anchor, w)
        return Expansion(self.value.linearize(anchor).stack(w), self.jacobian.expand(anchor)[1])

    def epoch(self, n: int) -> int:
        """The steps in which as many samples are drawn as there are."""
        return max(1, n // (len(self.jacobian) + (0 if self.value is None else len(self.value))))

    def prices(self, w: Params) -> tuple[Cost, Cost]:
        """Of `expand` and `extrapolate`."""
        both = self.jacobian.prices(w).expand
        if self.value is None:
            return both, both
        return both + self.value.prices(w).value, both + self.value.linearize(w).prices(w).value


def extrapolate(at: Expansion, anchor: Params, w: Params) -> Expansion:
    """u + J (w - anchor), and J."""
    away, _ = ravel_pytree(optax.tree.sub(w, anchor))
    return Expansion(at.u + at.jacobian @ away, at.jacobian)


class AbstractEstimator(eqx.Module):
    """u and J at w from two batches and a memory of earlier steps."""

    @abc.abstractmethod
    def init(self, problem: AbstractProblem, w: Params) -> Any:
        """The memory before the first step."""

    @abc.abstractmethod
    def estimate(
        self, problem: AbstractProblem, batches: Batches, w: Params, t: Array, memory: Any
    ) -> tuple[Expansion, Any, dict[str, Array]]:
        """The estimate at step t, the memory for the next one, and the counts of calls beyond the price of a step."""

    @abc.abstractmethod
    def prices(self, problem: AbstractProblem, batches: Batches, w: Params) -> dict[str, Cost]:
        """The prices of a step and of those calls."""


class MiniBatch(AbstractEstimator):
    """u_B(w) and J_S(w)."""

    def init(self, problem: AbstractProblem, w: Params) -> None:
        return None

    def estimate(
        self, problem: AbstractProblem, batches: Batches, w: Params, t: Array, memory: None
    ) -> tuple[Expansion, None, dict[str, Array]]:
        return batches.expand(w), None, {}

    def prices(self, problem: AbstractProblem, batches: Batches, w: Params) -> dict[str, Cost]:
        return {"step": batches.prices(w)[0]}


class Memory(eqx.Module):
    """An expansion, and the w that it belongs to."""

    at: Expansion
    w: Params


class Sarah(AbstractEstimator):
    """The last estimate, moved by the change of two mini-batches; exact every `period` steps."""

    period: Array | None

    def init(self, problem: AbstractProblem, w: Params) -> Memory:
        return _nothing(problem, w)

    def estimate(
        self, problem: AbstractProblem, batches: Batches, w: Params, t: Array, memory: Memory
    ) -> tuple[Expansion, Memory, dict[str, Array]]:
        due = _due(self.period, problem, batches, t)
        moved = lambda: _plus(memory.at, batches.expand(w), batches.expand(memory.w))
        at = jax.lax.cond(due, lambda: Expansion(*problem.expand(w)), moved)
        return at, Memory(at, w), {"snapshot": due.astype(jnp.int32)}

    def prices(self, problem: AbstractProblem, batches: Batches, w: Params) -> dict[str, Cost]:
        return _with_snapshots(batches.prices(w)[0] * 2, problem, w)


class Svrg(AbstractEstimator):
    """The expansion at the snapshot w0, moved by the change of two mini-batches beyond first order."""

    period: Array | None

    def init(self, problem: AbstractProblem, w: Params) -> Memory:
        return _nothing(problem, w)

    def estimate(
        self, problem: AbstractProblem, batches: Batches, w: Params, t: Array, memory: Memory
    ) -> tuple[Expansion, Memory, dict[str, Array]]:
        due = _due(self.period, problem, batches, t)

        def taken() -> tuple[Expansion, Memory]:
            at = Expansion(*problem.expand(w))
            return at, Memory(at, w)

        def moved() -> tuple[Expansion, Memory]:
            ahead = extrapolate(memory.at, memory.w, w)
            return _plus(ahead, batches.expand(w), batches.extrapolate(memory.w, w)), memory

        at, memory = jax.lax.cond(due, taken, moved)
        return at, memory, {"snapshot": due.astype(jnp.int32)}

    def prices(self, problem: AbstractProblem, batches: Batches, w: Params) -> dict[str, Cost]:
        return _with_snapshots(sum(batches.prices(w), Cost()), problem, w)


def _due(period: Array | None, problem: AbstractProblem, batches: Batches, t: Array) -> Array:
    return t % (batches.epoch(len(problem)) if period is None else period) == 0


def _plus(at: Expansion, new: Expansion, old: Expansion) -> Expansion:
    return jax.tree.map(lambda a, x, y: a + x - y, at, new, old)


def _nothing(problem: AbstractProblem, w: Params) -> Memory:
    """Zeros: the first step is a snapshot."""
    shapes = shapes_of(type(problem).expand, problem, w)
    return Memory(Expansion(*(jnp.zeros(x.shape, x.dtype) for x in shapes)), w)


def _with_snapshots(step: Cost, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
    """A snapshot takes the place of the mini-batches of its step."""
    return {"step": step, "snapshot": problem.prices(w).expand + step * -1}
