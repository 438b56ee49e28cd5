"""Prox-linear steps that measure each parameter by its present size, within bounds.

    w+ = argmin_{low <= x <= high}  sum_i c_i f(u_i + J_i (x - w)) + kappa/2 sum_j ((x_j - w_j) / s_j)^2

    s_j = max(|w_j|, |w_j at the start| / 1000)

For curve fits, whose parameters have many sizes and may grow by orders of magnitude on the way. With
f(u) = |u|^2 / 2 this is Levenberg and Marquardt's method.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import subproblem
from ..cost import Calls, Prices
from ..outers import AbstractProximable, SquaredL2
from ..problem import AbstractProblem, Expansion, Quadratic
from ..subproblem.box import OnFace, minimize_in_box
from ..types import Number
from .base import AbstractSolver, Info, check_penalty
from .damping import TRIES, Damping, Trial, accepted, plain

# A parameter on its way through 0 is still measured by this share of its size at the start.
LEAST = 1e-3
# Of the largest column of J: without it a direction that the data do not tell would take steps
# made of rounding alone.
LEAST_KAPPA = 1e-24
# Gaps of subproblems, relative to F. Steps end where F is flat to round-off.
GAP = 1e-14

# Below the noise of F, steps go on while each measure is at most this share of the one before.
SHORTER = 0.9


class RelativeState(eqx.Module):
    """The iterate, F there, the sizes of w at the start, kappa, the last measure, and whether the
    last decrease was lost in round-off.
    """

    w: Float[Array, " d"]
    value: Array
    size: Float[Array, " d"]
    kappa: Array
    measure: Array
    flat: Array


class RelativeProxLinear(AbstractSolver):
    """Prox-linear steps relative to the size of w, a vector, with kappa by accepted model decrease.

    `low` and `high` are the bounds of w, or None. Every w that phi sees is within them, and an entry
    that meets a bound is equal to it. The measure of a step is sqrt(2 p), p the decrease of F that
    its model predicts, relative to F.
    """

    outers = AbstractProximable
    instead = "pli"

    low: Number | None = None
    high: Number | None = None

    def init(self, problem: AbstractProblem, w: Float[Array, " d"]) -> RelativeState:
        size = jnp.where(w == 0, 1, jnp.abs(w))
        value, slope = problem.value_and_subgradient(w)
        square = jnp.sum((size * slope) ** 2)
        good = (square > 0) & (value != 0)
        kappa = jnp.where(good, square / jnp.where(good, jnp.abs(value), 1), 1)
        far = jnp.full_like(value, jnp.inf)
        return RelativeState(w, value, size, kappa, far, jnp.zeros((), bool))

    def step(
        self, problem: AbstractProblem, state: RelativeState, drawn: Any
    ) -> tuple[RelativeState, Info]:
        squares = isinstance(problem.outer, SquaredL2)
        at = _Scaled(problem, state)
        start = state.value

        def attempt(damping: Damping) -> Trial:
            return self._attempt(problem, at, start, damping.kappa)

        kappa = jnp.maximum(state.kappa, LEAST_KAPPA * at.largest())
        found = accepted(attempt, start, jnp.zeros_like(start), plain(kappa))
        answer = found.trial.answer
        value = found.trial.value
        predicted = start - answer.value
        noise = 10 * jnp.finfo(start.dtype).eps * jnp.abs(start)
        size = jnp.where(start == 0, 1, jnp.abs(start))
        if squares:
            # The predicted decrease without its cancellation: steps go on, below the noise of F,
            # as long as they become shorter. F cannot judge kappa there.
            measure = found.trial.slope / jnp.sqrt(size)
            flat = predicted <= noise
            keep = (value < start) | (flat & (value <= start + noise))
            stuck = flat & state.flat & (measure > SHORTER * state.measure)
        else:
            measure = jnp.sqrt(2 * jnp.maximum(predicted, 0) / size)
            flat = state.flat
            keep = value < start
            stuck = ~keep
        still = jnp.all(answer.w == state.w)
        stalled = ~keep | stuck | still | (found.tries >= TRIES)
        after = RelativeState(
            jnp.where(keep, answer.w, state.w),
            jnp.where(keep, value, start),
            state.size,
            jnp.where(flat, kappa, found.damping.kappa),
            measure,
            flat,
        )
        return after, Info(found.calls, measure, stalled, answer.gap)

    def _attempt(
        self, problem: AbstractProblem, at: "_Scaled", start: Array, kappa: Array
    ) -> Trial:
        def solve(free: Array, e: Array) -> OnFace:
            return at.on_face(kappa, free, e)

        w = at.w
        if self.low is None or self.high is None:
            found = solve(jnp.ones(w.shape, bool), jnp.zeros_like(w))
            x = w + at.size * found.e
        else:
            low = (self.low - w) / at.size
            high = (self.high - w) / at.size
            found = minimize_in_box(solve, low, high, at.slope())
            x = jnp.clip(w + at.size * found.e, self.low, self.high)
            # what was held is at its bound, and not one rounding away from it
            x = jnp.where(found.e <= low, self.low, x)
            x = jnp.where(found.e >= high, self.high, x)
        value, length = at.value(kappa, found.e)
        v, gap = found.more
        none = jnp.zeros((), jnp.int32)
        answer = subproblem.Answer(
            x, v, value, gap, jnp.zeros_like(gap), start, none, none, none
        )
        return Trial(answer, problem.value(x), length, Calls(value=1))

    def prices(self, problem: AbstractProblem, w: Any) -> Prices:
        price = problem.prices(w)
        return replace(
            subproblem.prices(problem, w), init=price.subgradient, value=price.value
        )

    def check(self, problem: AbstractProblem) -> None:
        subproblem.dual_set(problem.outer)
        if problem.quadratic is not None:
            raise ValueError(
                "RelativeProxLinear needs a problem without a ridge: a ridge already says what size of w is small."
            )
        check_penalty(problem, False, self.name())

    def full_batch(self) -> bool:
        return True

    def is_exact(self) -> bool:
        return True

    def is_random(self) -> bool:
        return False

    def allows_padding(self) -> bool:
        return True

    def name(self) -> str:
        return "relative_prox_linear"


class _Scaled(eqx.Module):
    """The model at w as a function of e = (x - w) / size: sum_i c_i f(u_i + J_i e) + kappa/2 |e|^2."""

    problem: AbstractProblem
    w: Float[Array, " d"]
    size: Float[Array, " d"]
    c: Float[Array, " m"]
    u: Float[Array, "m k"]
    jacobian: Float[Array, "m k d"]

    def __init__(self, problem: AbstractProblem, state: RelativeState):
        at = problem.expand(state.w)
        self.problem = problem
        self.w = state.w
        self.size = jnp.maximum(jnp.abs(state.w), LEAST * state.size)
        self.c = at.c
        self.u = at.u
        self.jacobian = at.jacobian * self.size[None, None, :]

    def largest(self) -> Array:
        """Return the largest square of a column of J."""
        squares = self.jacobian**2
        return jnp.max(jnp.sum(self.c[:, None, None] * squares, axis=(0, 1)))

    def slope(self) -> Array:
        """Return a slope of the model at e = 0."""
        return self._pull(jax.vmap(self.problem.outer.subgradient)(self.u))

    def value(self, kappa: Array, e: Array) -> tuple[Array, Array]:
        """Return the model at e, and sqrt(sum_i c_i |J_i e|^2 + kappa |e|^2)."""
        move = self.jacobian @ e
        losses = jax.vmap(self.problem.outer.value)(self.u + move)
        square = kappa * jnp.sum(e * e)
        value = jnp.sum(self.c * losses) + square / 2
        return value, jnp.sqrt(jnp.sum(self.c[:, None] * move**2) + square)

    def on_face(self, kappa: Array, free: Array, e: Array) -> OnFace:
        """Minimise over the free entries, with the others as in e."""
        held = jnp.where(free, 0, e)
        u = self.u + self.jacobian @ held
        jacobian = jnp.where(free[None, None, :], self.jacobian, 0)
        if isinstance(self.problem.outer, SquaredL2):
            new = self._least_squares(kappa, u, jacobian)
            v = u + jacobian @ new
            gap = jnp.zeros_like(kappa)
        else:
            zero = jnp.zeros_like(e)
            quadratic = Quadratic(kappa, zero, jnp.zeros_like(kappa))
            at = Expansion(zero, self.c, u, jacobian)
            tol = jnp.asarray(GAP, kappa.dtype)
            answer = subproblem.solve(at, quadratic, self.problem.outer, tol)
            new = answer.w
            v = answer.v
            gap = answer.gap
        e = jnp.where(free, new, e)
        return OnFace(e, self._pull(v) + kappa * e, (v, gap))

    def _least_squares(self, kappa: Array, u: Array, jacobian: Array) -> Array:
        """Return argmin_e of the squares by QR: the parameters of a curve are often too dependent
        for J'J.
        """
        d = self.w.size
        root = jnp.sqrt(self.c)
        rows = (root[:, None, None] * jacobian).reshape(-1, d)
        right = (root[:, None] * u).reshape(-1)
        damped = jnp.concatenate([rows, jnp.sqrt(kappa) * jnp.eye(d, dtype=u.dtype)])
        q, r = jnp.linalg.qr(damped)
        return jax.scipy.linalg.solve_triangular(r, -(right @ q[: right.size]))

    def _pull(self, v: Array) -> Array:
        return jnp.einsum("m,mk,mkd->d", self.c, v, self.jacobian)
