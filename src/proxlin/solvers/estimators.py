"""Estimates of u = (1/n) sum_i s_i phi_i(w) and of its Jacobian from mini-batches, for f of a mean.

    minibatch   u_B(w),  J_S(w)
    sarah       u + u_B(w) - u_B(w_old),  J + J_S(w) - J_S(w_old),  exact every `period` steps (None: an epoch)
    svrg        u(w0) + J(w0)(w - w0) + u_B(w) - u_B(w0) - J_B(w0)(w - w0),  J(w0) + J_S(w) - J_S(w0), with a new
                snapshot w0 every `period` steps

sarah is the method of Tran-Dinh et al. 2020 (SGN2), svrg that of Zhang and Xiao (arXiv 2004.04357):
its correction of first order leaves an error of |w - w0|^2 in place of |w - w0|, which a nonsmooth
f needs.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..compiled import shapes_of
from ..cost import Calls, Cost, Prices
from ..problem import AbstractProblem, Expansion
from ..types import Params


class Batches(eqx.Module):
    """B for the value and S for the Jacobian; one batch for both where `value` is None."""

    value: AbstractProblem | None
    jacobian: AbstractProblem

    def expand(self, w: Params) -> Expansion:
        """Return u_B(w) and J_S(w)."""
        both = self.jacobian.expand(w)
        if self.value is None:
            return both
        return Expansion(w, both.c, self.value.stack(w), both.jacobian)

    def extrapolate(self, anchor: Params, w: Params) -> Expansion:
        """Return u_B(anchor) + J_B(anchor)(w - anchor), and J_S(anchor)."""
        both = self.jacobian.expand(anchor)
        if self.value is None:
            return both.at(w)
        return Expansion(
            w, both.c, self.value.linearize(anchor).stack(w), both.jacobian
        )

    def epoch(self, n: int) -> int:
        """Return the number of steps in which as many samples are drawn as there are."""
        drawn = len(self.jacobian)
        if self.value is not None:
            drawn = drawn + len(self.value)
        return max(1, n // drawn)

    def prices(self, w: Params) -> tuple[Cost, Cost]:
        """Return the prices of `expand` and of `extrapolate`."""
        both = self.jacobian.prices(w).expand
        if self.value is None:
            return both, both
        return both + self.value.prices(w).value, both + self.value.linearize(w).prices(
            w
        ).value


class AbstractEstimator(eqx.Module):
    """Estimates of u and J at w, from two batches and a memory of earlier steps."""

    @abc.abstractmethod
    def init(self, problem: AbstractProblem, w: Params) -> Any:
        """Return the memory before the first step."""

    @abc.abstractmethod
    def estimate(
        self,
        problem: AbstractProblem,
        batches: Batches,
        w: Params,
        t: Array,
        memory: Any,
    ) -> tuple[Expansion, Any, Calls | None]:
        """Return the estimate at step t, the memory for the next one, and the calls beyond the
        price of a step.
        """

    @abc.abstractmethod
    def prices(self, problem: AbstractProblem, batches: Batches, w: Params) -> Prices:
        """Return the prices of a step and of those calls."""


class MiniBatch(AbstractEstimator):
    """u_B(w) and J_S(w)."""

    def init(self, problem: AbstractProblem, w: Params) -> None:
        return None

    def estimate(
        self,
        problem: AbstractProblem,
        batches: Batches,
        w: Params,
        t: Array,
        memory: None,
    ) -> tuple[Expansion, None, None]:
        return batches.expand(w), None, None

    def prices(self, problem: AbstractProblem, batches: Batches, w: Params) -> Prices:
        return Prices(step=batches.prices(w)[0])


class Sarah(AbstractEstimator):
    """The last estimate, moved by the change of two mini-batches; exact every `period` steps."""

    period: Array | None

    def init(self, problem: AbstractProblem, w: Params) -> Expansion:
        return _nothing(problem, w)

    def estimate(
        self,
        problem: AbstractProblem,
        batches: Batches,
        w: Params,
        t: Array,
        memory: Expansion,
    ) -> tuple[Expansion, Expansion, Calls]:
        due = _due(self.period, problem, batches, t)

        def moved() -> Expansion:
            return memory.moved(batches.expand(w), batches.expand(memory.w))

        at = jax.lax.cond(due, lambda: problem.expand(w), moved)
        return at, at, Calls(expand=due)

    def prices(self, problem: AbstractProblem, batches: Batches, w: Params) -> Prices:
        return _with_snapshots(batches.prices(w)[0] * 2, problem, w)


class Svrg(AbstractEstimator):
    """The expansion at the snapshot w0, moved by the change of two mini-batches beyond first order."""

    period: Array | None

    def init(self, problem: AbstractProblem, w: Params) -> Expansion:
        return _nothing(problem, w)

    def estimate(
        self,
        problem: AbstractProblem,
        batches: Batches,
        w: Params,
        t: Array,
        memory: Expansion,
    ) -> tuple[Expansion, Expansion, Calls]:
        due = _due(self.period, problem, batches, t)

        def taken() -> tuple[Expansion, Expansion]:
            at = problem.expand(w)
            return at, at

        def moved() -> tuple[Expansion, Expansion]:
            ahead = memory.at(w)
            return ahead.moved(
                batches.expand(w), batches.extrapolate(memory.w, w)
            ), memory

        at, memory = jax.lax.cond(due, taken, moved)
        return at, memory, Calls(expand=due)

    def prices(self, problem: AbstractProblem, batches: Batches, w: Params) -> Prices:
        return _with_snapshots(sum(batches.prices(w), Cost()), problem, w)


def _due(
    period: Array | None, problem: AbstractProblem, batches: Batches, t: Array
) -> Array:
    """Whether step t begins with a snapshot."""
    if period is None:
        return t % batches.epoch(len(problem)) == 0
    return t % period == 0


def _nothing(problem: AbstractProblem, w: Params) -> Expansion:
    """Return zeros: the first step is a snapshot."""
    shapes = shapes_of(type(problem).expand, problem, w)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return Expansion(w, zeros.c, zeros.u, zeros.jacobian)


def _with_snapshots(step: Cost, problem: AbstractProblem, w: Params) -> Prices:
    """Return the prices where a snapshot takes the place of the mini-batches of its step."""
    return Prices(step=step, expand=problem.prices(w).expand + step * -1)
