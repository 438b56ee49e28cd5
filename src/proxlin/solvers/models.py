"""Convex models of F at w and their proximal minimisers, argmin_x model(x) + |x - w|^2 / 2 step."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..checks import number
from ..cost import Cost
from ..problem import AbstractProblem
from ..subproblem.solve import Subsolver
from ..types import Params


class AbstractModel(eqx.Module):
    """A convex model of F around w."""

    @abc.abstractmethod
    def minimize(self, problem: AbstractProblem, w: Params, step: Array) -> tuple[Params, dict[str, Array]]:
        """argmin_x model(x) + |x - w|^2 / 2 step, and the count of calls beyond the price of a step."""

    @abc.abstractmethod
    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        """The prices of those calls."""


class Linear(AbstractModel):
    """F(w) + <v, x - w>, v in dF(w): the subgradient step w - step v."""

    def minimize(self, problem: AbstractProblem, w: Params, step: Array) -> tuple[Params, dict[str, Array]]:
        return optax.tree.add_scale(w, -step, problem.subgradient(w)), {}

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        return {"step": problem.prices(w).subgradient}


class Truncated(AbstractModel):
    """max(F(w) + <v, x - w>, lower): the Polyak step w - min(step, (F(w) - lower) / |v|^2) v."""

    lower: Array

    def __init__(self, lower: Any = 0.0):
        self.lower = number(lower, "The lower bound of a truncated model")

    def minimize(self, problem: AbstractProblem, w: Params, step: Array) -> tuple[Params, dict[str, Array]]:
        value, v = problem.value_and_subgradient(w)
        square = jnp.asarray(optax.tree.vdot(v, v))
        above = jnp.maximum(value - self.lower.astype(value.dtype), jnp.zeros_like(value))
        polyak = above / jnp.where(square > 0, square, jnp.ones_like(square))
        return optax.tree.add_scale(w, -jnp.minimum(step, polyak), v), {}

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        return {"step": problem.prices(w).subgradient}


class ProxLinear(AbstractModel):
    """sum_i c_i f(u_i(w) + J_i (x - w)), eq. (3) of the paper: the modified Gauss-Newton step."""

    subsolver: Subsolver

    def minimize(self, problem: AbstractProblem, w: Params, step: Array) -> tuple[Params, dict[str, Array]]:
        batch = problem.gathered()  # its rows travel once; the loops of a split subproblem would add up many times
        answer = self.subsolver.solve(batch.linearize(w).regularize(1 / step, w), w)
        return answer.w, answer.counts

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        return self.subsolver.prices(problem, w)
