"""Prox-linear steps with the curvature of phi: Newton's method along the manifold on which f is
smooth.

    min_d  sum_i c_i f(u_i + J_i d) + quadratic(w + d) + 1/2 d' (|Z'HZ| + tau) d,     H = sum_i c_i <v_i, D^2 phi_i(w)>

The dual variables v of the last subproblem say which part of each u_i sits at a kink of f: the part
along the face of V that holds v_i. Z spans the directions that keep these parts. Across them f is
sharp, and prox-linear converges quadratically by itself. Along them it has kappa in place of H, so
it converges linearly, and slowly where H is small. After the step, chord steps back onto the
manifold take out its curvature (the second-order correction of Fletcher's Sl1QP).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .. import subproblem
from ..cost import Calls
from ..outers.sets import AbstractSet
from ..problem import (
    AbstractProblem,
    Expansion,
    MeanOfLosses,
    Quadratic,
    value_of_stack,
)
from ..types import Params, dtype_of
from .damping import Accepted, Damping, Trial

# parameters: two eigendecompositions of this order took 0.1 s, a subproblem of 1,000 rows 0.15 to
# 0.4 s
LARGEST = 500
# steps back onto the manifold: one is the second-order correction, more let a step follow a curved
# valley
CHORDS = 6
# plain steps that the curvature may cost: with more directions along the manifold than that, it did
# not pay
FEW = 4
# a step that decreases F by more than this share of the step before it: linear convergence, not
# quadratic
SLOW = 0.5
ENOUGH = 0.9  # the share of the predicted decrease at which chord steps end
# the share of the predicted decrease that a late chord step must still bring
GAIN = 0.1


class Memory(eqx.Module):
    """The last dual variables, the decrease of F, the slow steps in a row with the same kinks, and
    tau.
    """

    v: Float[Array, "m k"]
    decrease: Array
    slow: Array
    tau: Array


class Frame(eqx.Module):
    """Orthonormal coordinates d = basis e, in which |Z'HZ| is diagonal, first those along the
    manifold.

    `back` is the pseudo-inverse of A'A in them, A the part of J at kinks; `gradient` is |Z'g|, g = J'v + quadratic';
    `pulls` counts the calls that it took.
    """

    basis: Float[Array, "d d"]
    curvature: Float[Array, " d"]
    back: Float[Array, "d d"]
    gradient: Array
    pulls: Array


class Kinks(eqx.Module):
    """The set V, dual variables v, and the entries of v_i that are free in the face of V that holds
    v_i.
    """

    V: AbstractSet
    v: Float[Array, "m k"]
    free: Array

    def along(self, x: Float[Array, "m k d"]) -> Float[Array, "m k d"]:
        """Return the part of each x_i along the face."""
        return self.V.along_face(self.v, self.free, x)

    def held(self) -> Array:
        """Return the entries of v that the gradient of f at u does not tell, (m, k)."""
        if self.V.separable or self.V.entrywise:
            return self.free
        held = jnp.any(self.free, axis=1, keepdims=True)
        return jnp.broadcast_to(held, self.free.shape)

    def dimension(self) -> Array:
        """Return the sum of the dimensions of the faces."""
        return self.V.face_dimension(self.v, self.free)


def kinks(problem: AbstractProblem, v: Float[Array, "m k"]) -> Kinks:
    """Return where the u_i of positive weight sit at a kink of f, as the dual variables say."""
    V, _ = subproblem.dual_set(problem.outer)
    counts = (problem.coefficients() > 0)[:, None]
    return Kinks(V, v, V.free(v) & counts)


def remember(problem: AbstractProblem, w: Params) -> Memory | None:
    """Return an empty memory, or None where every step is a plain one: by shapes, because f has no
    kinks, or because of a penalty, whose kinks a frame does not know.
    """
    if problem.penalty is not None:
        return None
    d = sum(x.size for x in jax.tree.leaves(w))
    _, rho = subproblem.dual_set(problem.outer)
    has_kinks = isinstance(rho, float) and rho == 0
    small = d <= LARGEST and subproblem.is_dense(problem, w)
    if not (has_kinks and small and isinstance(problem, MeanOfLosses)):
        return None
    v = jnp.zeros((len(problem), problem.outputs(w)), dtype_of(w))
    far = jnp.full((), jnp.inf, v.dtype)
    return Memory(v, far, jnp.zeros((), jnp.int32), far)


# ------------------------------------------------------------------------------------------- frames


def flat_frame(d: int, dtype: Any) -> Frame:
    """Return the frame of a plain step, which has no curvature."""
    square = jnp.zeros((d, d), dtype)
    none = jnp.zeros((), dtype)
    return Frame(
        jnp.eye(d, dtype=dtype), square[0], square, none, jnp.zeros((), jnp.int32)
    )


def curved_frame(problem: AbstractProblem, at: Expansion, found: Kinks) -> Frame:
    """Return the frame at w = at.w, with H z = (J(w + h z)'v - J(w)'v) / h for each z of Z: one
    pull each.
    """
    d = at.jacobian.shape[-1]
    dtype = at.jacobian.dtype
    eps = jnp.finfo(dtype).eps
    rows = found.along(at.jacobian).reshape(-1, d)
    squares, vectors = jnp.linalg.eigh(rows.T @ rows)
    # all of them, if no u_i is at a kink
    along = squares <= squares[-1] * (100 * d * eps)
    count = jnp.sum(along, dtype=jnp.int32)

    weighted = at.c[:, None] * found.v
    here = weighted.reshape(-1) @ at.jacobian.reshape(-1, d)
    flat, unravel = ravel_pytree(at.w)
    h = eps**0.5 * jnp.maximum(1, jnp.sqrt(jnp.sum(flat * flat)))

    def column(j: Array, HZ: Array) -> Array:
        ahead = problem.pull(unravel(flat + h * vectors[:, j]), weighted)
        there, _ = ravel_pytree(ahead)
        return HZ.at[:, j].set((there - here) / h)

    HZ = jax.lax.fori_loop(0, count, column, jnp.zeros_like(vectors))
    reduced = jnp.where(along[:, None] & along[None, :], vectors.T @ HZ, 0)
    reduced = (reduced + reduced.T) / 2
    # A number above all eigenvalues keeps the other coordinates apart, and last.
    above = 1 + 2 * jnp.max(jnp.sum(jnp.abs(reduced), axis=1))
    values, turn = jnp.linalg.eigh(reduced + jnp.diag(jnp.where(along, 0, above)))
    is_along = jnp.arange(d, dtype=count.dtype) < count
    curvature = jnp.where(is_along, jnp.abs(values), 0)
    inverse = jnp.where(along, 0, 1 / jnp.where(along, 1, squares))
    back = (turn.T * inverse[None, :]) @ turn
    slope = jnp.where(along, (here + quadratic_at(problem, at.w)[1]) @ vectors, 0)
    return Frame(
        vectors @ turn, curvature, back, jnp.sqrt(jnp.sum(slope * slope)), count
    )


def quadratic_at(problem: AbstractProblem, w: Params) -> tuple[Array, Array, Array]:
    """Return the value, gradient and weight of the problem's quadratic at w."""
    flat, _ = ravel_pytree(w)
    if problem.quadratic is None:
        none = jnp.zeros((), flat.dtype)
        return none, jnp.zeros_like(flat), none
    gradient, _ = ravel_pytree(problem.quadratic.gradient(w))
    return (
        problem.quadratic.value(w),
        gradient,
        problem.quadratic.weight.astype(gradient.dtype),
    )


# -------------------------------------------------------------------------------------------- steps


class Plan(eqx.Module):
    """Where a step starts: F(w) = start, the expansion in the coordinates of the frame, and whether
    that is curved.
    """

    start: Array
    at: Expansion
    frame: Frame
    curved: Array
    kinks: Kinks
    memory: Memory


def plan(problem: AbstractProblem, w: Params, start: Array, memory: Memory) -> Plan:
    """Take a curved frame once the slow steps in a row, of which FEW count, have cost as much as
    its pulls will.
    """
    at = subproblem.expand(problem, w)
    assert isinstance(at, Expansion)
    d = at.jacobian.shape[-1]
    dtype = at.jacobian.dtype
    found = kinks(problem, memory.v)
    curved = pays(problem, w, memory.slow, d - found.dimension(), dtype)

    def curve() -> tuple[Frame, Array]:
        frame = curved_frame(problem, at, found)
        return frame, at.jacobian @ frame.basis

    frame, jacobian = jax.lax.cond(
        curved, curve, lambda: (flat_frame(d, dtype), at.jacobian)
    )
    return Plan(start, Expansion(w, at.c, at.u, jacobian), frame, curved, found, memory)


def pays(
    problem: AbstractProblem, w: Params, slow: Array, left: Array, dtype: Any
) -> Array:
    """Whether curvature is worth its pulls after so many slow steps in a row, with so many directions
    left along the manifold.
    """
    step, pull, _ = _passes(problem, w)
    slow = jnp.minimum(slow, FEW).astype(dtype)
    return (slow > 0) & (left > 0) & (left.astype(dtype) * pull <= slow * step)


class Chord(eqx.Module):
    """The next point to look at, the best one with its F, the last gain, and the number of
    evaluations of F.
    """

    x: Array
    best: Array
    least: Array
    gain: Array
    count: Array


def attempt(
    problem: AbstractProblem, plan: Plan, damping: Damping, tol: Array
) -> Trial:
    """Solve the subproblem in the frame, and where it is curved, take chord steps back onto the
    manifold.
    """
    frame = plan.frame
    curved = damping.curved
    weights = jnp.where(curved, frame.curvature + damping.tau, damping.kappa)
    answer, e = _solve_in_frame(problem, plan, weights, tol)
    _, unravel = ravel_pytree(plan.at.w)
    predicted = plan.start - answer.value
    some_free = jnp.any(plan.kinks.free)

    def going(s: Chord) -> Array:
        short = plan.start - s.least < ENOUGH * predicted
        worth = (s.count < 3) | (s.gain >= GAIN * predicted)
        return (s.count == 0) | (
            curved & short & worth & (s.count <= CHORDS) & some_free
        )

    def chord(s: Chord) -> Chord:
        w = unravel(s.x)
        u = problem.stack(w)
        value = value_of_stack(problem, u, w)
        better = value < s.least
        kink = plan.kinks.along(u[..., None]).reshape(-1)
        pulled = kink @ plan.at.jacobian.reshape(kink.size, -1)
        x = s.x - frame.basis @ (frame.back @ pulled)
        best = jnp.where(better, s.x, s.best)
        least = jnp.where(better, value, s.least)
        return Chord(x, best, least, s.least - value, s.count + 1)

    x = answer.w
    first = Chord(
        x,
        x,
        jnp.full_like(plan.start, jnp.inf),
        jnp.zeros_like(plan.start),
        jnp.zeros((), jnp.int32),
    )
    end = jax.lax.while_loop(going, chord, first)
    answer = eqx.tree_at(lambda a: a.w, answer, unravel(end.best))
    return Trial(
        answer, end.least, jnp.linalg.norm(weights * e), Calls(value=end.count)
    )


def _solve_in_frame(
    problem: AbstractProblem, plan: Plan, weights: Array, tol: Array
) -> tuple[subproblem.Answer, Array]:
    """Return argmin_e sum_i c_i f(u_i + J_i e) + quadratic(w + basis e) + 1/2 sum_j weights_j
    e_j^2.

    The w of the answer is the flat vector w + basis e; e is returned beside it.
    """
    flat, _ = ravel_pytree(plan.at.w)
    basis = plan.frame.basis
    offset, gradient, ridge = quadratic_at(problem, plan.at.w)
    slope = gradient @ basis
    total = weights + ridge
    # With the squares completed, the quadratic has its centre at -slope / total from the anchor.
    anchor = flat @ basis
    quadratic = Quadratic(
        total, anchor - slope / total, offset - jnp.sum(slope * slope / total) / 2
    )
    at = Expansion(anchor, plan.at.c, plan.at.u, plan.at.jacobian)
    answer = subproblem.solve(at, quadratic, problem.outer, tol)
    e = answer.w - anchor
    return eqx.tree_at(lambda a: a.w, answer, flat + basis @ e), e


def recall(problem: AbstractProblem, plan: Plan, found: Accepted) -> Memory:
    """Return what the next step should know. Curved steps go on as long as they pay.

    They do if they decrease F by more, for what they cost, than a plain step promises: |gradient|^2
    / (2 kappa).
    """
    memory = plan.memory
    damping = found.damping
    v = found.trial.answer.v
    step, pull, value = _passes(problem, plan.at.w)
    decrease = plan.start - found.trial.value
    promise = plan.frame.gradient**2 / (2 * damping.kappa)
    pulls = plan.frame.pulls.astype(v.dtype)
    values = found.calls.value.astype(v.dtype)
    spent = step + pulls * pull + values * value
    pays = damping.curved & (decrease * step >= promise * spent)
    same = jnp.all(kinks(problem, v).free == plan.kinks.free)
    steady = same & (decrease > SLOW * memory.decrease)
    after_curved = jnp.where(pays, memory.slow, 0)
    after_plain = jnp.where(steady, memory.slow + 1, 0)
    return Memory(
        v, decrease, jnp.where(plan.curved, after_curved, after_plain), damping.tau
    )


def _passes(problem: AbstractProblem, w: Params) -> tuple[float, float, float]:
    """Return the effective passes of a plain step, a pull and a value."""
    price = problem.prices(w)
    n = len(problem)
    return (
        (price.expand + price.value).passes(n),
        price.pull.passes(n),
        price.value.passes(n),
    )
