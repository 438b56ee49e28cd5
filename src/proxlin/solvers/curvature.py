"""Prox-linear steps with the curvature of phi: Newton's method along the manifold on which f is smooth.

    min_d  sum_i c_i f(u_i + J_i d) + quadratic(w + d) + 1/2 d' (|Z'HZ| + tau) d,     H = sum_i c_i <v_i, D^2 phi_i(w)>

The dual variables v of the last subproblem say which part of each u_i sits at a kink of f: the part along the face of V
that holds v_i. Z spans the directions that keep these parts. Across them f is sharp and prox-linear is quadratic by
itself; along them it has kappa in place of H, and is linear, slowly so where H is small. After the step, chord steps
back onto the manifold take out its curvature (the second-order correction of Fletcher's Sl1QP).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from ..outers.sets import AbstractCone, Ball, Box, CrossPolytope, Simplex, Space, norms
from ..problem import AbstractProblem, MeanOfLosses
from ..subproblem import dual
from ..subproblem.solve import Answer, Expansion, Subsolver, cone_of
from ..types import Params, dtype_of
from .damping import Accepted, Damping, Trial

LARGEST = 500  # parameters: two eigendecompositions of this order took 0.1 s, a subproblem of 1,000 rows 0.15 to 0.4 s
CHORDS = 6  # steps back onto the manifold: one is the second-order correction, more let a step follow a curved valley
FEW = 4  # plain steps that the curvature may cost: with more directions along the manifold than that, it did not pay
SLOW = 0.5  # a step that decreases F by more than this share of the step before it: linear convergence, not quadratic


class Memory(eqx.Module):
    """The last dual variables, the decrease of F and the slow steps in a row with the same kinks, and tau."""

    v: Float[Array, "m k"]
    decrease: Array
    slow: Array
    tau: Array


class Frame(eqx.Module):
    """Orthonormal coordinates d = basis e, in which |Z'HZ| is diagonal, first those along the manifold.

    `back`: the pseudo-inverse of A'A in them, A the part of J at kinks; `gradient`: |Z'g|, g = J'v + quadratic';
    `pulls`: what it took.
    """

    basis: Float[Array, "d d"]
    curvature: Float[Array, " d"]
    back: Float[Array, "d d"]
    gradient: Array
    pulls: Array


def remember(subsolver: Subsolver, problem: AbstractProblem, w: Params) -> Memory | None:
    """An empty memory, or None where every step is a plain one: by shapes, or because f has no kinks."""
    d = sum(x.size for x in jax.tree.leaves(w))
    rho = cone_of(problem)[1]
    smooth = not (isinstance(rho, float) and rho == 0)
    if smooth or d > LARGEST or not isinstance(problem, MeanOfLosses) or not subsolver.dense(problem, w):
        return None
    v = jnp.zeros((len(problem), problem.outputs(w)), dtype_of(w))
    far = jnp.full((), jnp.inf, v.dtype)
    return Memory(v, far, jnp.zeros((), jnp.int32), far)


# ---------------------------------------------------------------------------------------------------------- kinks


def kinks(cone: AbstractCone, v: Float[Array, "m k"], rho: Float[Array, " m"]) -> Bool[Array, "m k"]:
    """The entries of v_i that are free in its face of V, up to eps^(1/3)."""
    slack = _slack(v)
    if isinstance(cone, Box):
        low, high = jnp.asarray(cone.low, v.dtype), jnp.asarray(cone.high, v.dtype)
        free = (v > low + slack * (high - low)) & (v < high - slack * (high - low))
    elif isinstance(cone, Ball):
        free = jnp.broadcast_to((norms(v) < 1 - slack)[:, None], v.shape)
    elif isinstance(cone, Simplex):
        free = v > slack
    elif isinstance(cone, CrossPolytope):
        free = (jnp.abs(v) > slack) | _inside(v)
    else:
        free = jnp.zeros(v.shape, bool)
    return free & (rho == 0)[:, None]


def across(cone: AbstractCone, v: Array, free: Array, x: Float[Array, "m k d"]) -> Float[Array, "m k d"]:
    """The part of each x_i along the face of V: a box or ball keeps the free entries, a simplex their differences."""
    kept = jnp.where(free, 1.0, 0.0).astype(x.dtype)[..., None]
    if isinstance(cone, Box | Ball | Space):
        return kept * x
    sign = jnp.where(v < 0, -kept[..., 0], kept[..., 0])[..., None]
    mean = jnp.sum(sign * x, axis=1, keepdims=True) / jnp.maximum(jnp.sum(kept, axis=1, keepdims=True), 1)
    whole = _inside(v)[..., None] & isinstance(cone, CrossPolytope)
    return kept * x - jnp.where(whole, jnp.zeros_like(mean), mean) * sign


def codimension(cone: AbstractCone, v: Array, free: Array) -> Array:
    """The rank of `across`: of a simplex's face, one less than its vertices."""
    count = jnp.sum(free, dtype=jnp.int32)
    if isinstance(cone, Box | Ball | Space):
        return count
    lost = jnp.any(free, axis=1) & ~(_inside(v)[:, 0] & isinstance(cone, CrossPolytope))
    return count - jnp.sum(lost, dtype=jnp.int32)


def _slack(v: Array) -> Array:
    return jnp.asarray(jnp.finfo(v.dtype).eps ** (1 / 3), v.dtype)


def _inside(v: Array) -> Array:
    """Inside the cross-polytope, where the whole of u_i is at the kink 0."""
    return jnp.sum(jnp.abs(v), axis=1, keepdims=True) < 1 - _slack(v)


# --------------------------------------------------------------------------------------------------------- frames


def flat_frame(d: int, dtype: Any) -> Frame:
    """No curvature: prox-linear."""
    square, none = jnp.zeros((d, d), dtype), jnp.zeros((), dtype)
    return Frame(jnp.eye(d, dtype=dtype), square[0], square, none, jnp.zeros((), jnp.int32))


def curved_frame(problem: AbstractProblem, w: Params, at: Expansion, v: Array) -> Frame:
    """H z = (J(w + h z)'v - J(w)'v) / h for each z of Z, h = sqrt(eps) max(1, |w|): one pull each."""
    d, dtype = at.jacobian.shape[-1], at.jacobian.dtype
    cone, free = _free(problem, v)
    rows = across(cone, v, free, at.jacobian).reshape(-1, d)
    eps = jnp.finfo(dtype).eps
    squares, vectors = jnp.linalg.eigh(rows.T @ rows)
    along = squares <= squares[-1] * (100 * d * eps)  # all, if no u_i is at a kink
    count = jnp.sum(along, dtype=jnp.int32)

    weighted = problem.coefficients().astype(dtype)[:, None] * v
    flat, unravel = ravel_pytree(w)
    h = eps**0.5 * jnp.maximum(1, jnp.sqrt(jnp.sum(flat * flat)))
    here = weighted.reshape(-1) @ at.jacobian.reshape(-1, d)

    def column(j: Array, HZ: Array) -> Array:
        there = ravel_pytree(problem.pull(unravel(flat + h * vectors[:, j]), weighted))[0]
        return HZ.at[:, j].set((there - here) / h)

    HZ = jax.lax.fori_loop(0, count, column, jnp.zeros_like(vectors))
    reduced = jnp.where(along[:, None] & along[None, :], vectors.T @ HZ, 0)
    reduced = (reduced + reduced.T) / 2
    above = 1 + 2 * jnp.max(jnp.sum(jnp.abs(reduced), axis=1))  # keeps the other coordinates apart, and last
    values, turn = jnp.linalg.eigh(reduced + jnp.diag(jnp.where(along, 0, above)))
    curvature = jnp.where(jnp.arange(d, dtype=count.dtype) < count, jnp.abs(values), 0)
    inverse = jnp.where(along, 0, 1 / jnp.where(along, 1, squares))
    slope = jnp.where(along, (here + _quadratic(problem, w)[1]) @ vectors, 0)
    return Frame(vectors @ turn, curvature, (turn.T * inverse[None, :]) @ turn, jnp.sqrt(jnp.sum(slope * slope)), count)


def _free(problem: AbstractProblem, v: Array) -> tuple[AbstractCone, Array]:
    cone, rho = cone_of(problem)
    c = problem.coefficients()
    return cone, kinks(cone, v, jnp.broadcast_to(jnp.asarray(rho).astype(v.dtype), c.shape)) & (c > 0)[:, None]


def _quadratic(problem: AbstractProblem, w: Params) -> tuple[Array, Array, Array]:
    """Value, gradient and weight of the problem's quadratic at w."""
    if problem.quadratic is None:
        flat = ravel_pytree(w)[0]
        return jnp.zeros((), flat.dtype), jnp.zeros_like(flat), jnp.zeros((), flat.dtype)
    gradient = ravel_pytree(problem.quadratic.gradient(w))[0]
    return problem.quadratic.value(w), gradient, problem.quadratic.weight.astype(gradient.dtype)


# ---------------------------------------------------------------------------------------------------------- steps


class Plan(eqx.Module):
    """Where a step starts: F(w) = start, the expansion in the coordinates of the frame, and whether that is curved."""

    start: Array
    at: Expansion
    frame: Frame
    curved: Array


def plan(problem: AbstractProblem, w: Params, start: Array, memory: Memory) -> Plan:
    """A curved frame once the slow steps in a row, of which FEW count, have cost as much as its pulls will."""
    at = Expansion(*problem.expand(w))
    d, dtype = at.jacobian.shape[-1], at.jacobian.dtype
    step, pull, _ = _passes(problem, w)
    cone, free = _free(problem, memory.v)
    left = d - codimension(cone, memory.v, free)
    slow = jnp.minimum(memory.slow, FEW).astype(dtype)
    curved = (slow > 0) & (left > 0) & (left.astype(dtype) * pull <= slow * step)

    def curve() -> tuple[Frame, Array]:
        frame = curved_frame(problem, w, at, memory.v)
        return frame, at.jacobian @ frame.basis

    frame, jacobian = jax.lax.cond(curved, curve, lambda: (flat_frame(d, dtype), at.jacobian))
    return Plan(start, Expansion(at.u, jacobian), frame, curved)


def attempt(subsolver: Subsolver, problem: AbstractProblem, w: Params, memory: Memory, plan: Plan, damping: Damping):
    """One trial: the subproblem in the frame, and where it is curved, chord steps back onto the manifold."""
    frame, curved = plan.frame, damping.curved
    weights = jnp.where(curved, frame.curvature + damping.tau, damping.kappa)
    answer, e = solve_in(subsolver, problem, w, plan, weights)
    flat, unravel = ravel_pytree(answer.w)
    cone, free = _free(problem, memory.v)
    predicted = plan.start - answer.value

    def going(carry: Any) -> Array:
        _, _, value, gain, count = carry
        far = (plan.start - value < 0.9 * predicted) & ((count < 3) | (gain >= 0.1 * predicted))
        return (count == 0) | (curved & far & (count <= CHORDS) & jnp.any(free))

    def chord(carry: Any) -> Any:
        x, best, least, _, count = carry
        u = problem.stack(unravel(x))
        value = value_of(problem, u, unravel(x))
        better = value < least
        best, least, gain = jnp.where(better, x, best), jnp.where(better, value, least), least - value
        kink = across(cone, memory.v, free, u[..., None]).reshape(-1)
        x = x - frame.basis @ (frame.back @ (kink @ plan.at.jacobian.reshape(kink.size, -1)))
        return x, best, least, gain, count + 1

    first = (flat, flat, jnp.full_like(plan.start, jnp.inf), jnp.zeros_like(plan.start), jnp.zeros((), jnp.int32))
    _, best, value, _, count = jax.lax.while_loop(going, chord, first)
    answer = eqx.tree_at(lambda a: a.w, answer, unravel(best))
    return Trial(answer, value, jnp.linalg.norm(weights * e), count)


def solve_in(
    subsolver: Subsolver, problem: AbstractProblem, w: Params, plan: Plan, weights: Array
) -> tuple[Answer, Array]:
    """min_e sum_i c_i f(u_i + J_i e) + quadratic(w + basis e) + 1/2 sum_j weights_j e_j^2, and the minimiser e."""
    dtype = dtype_of(w)
    c = problem.coefficients().astype(dtype)
    cone, rho = cone_of(problem)
    offset, gradient, ridge = _quadratic(problem, w)
    slope = gradient @ plan.frame.basis
    total = weights + ridge
    center, scale = -slope / total, jax.lax.rsqrt(total)
    u, jacobian = c[:, None] * plan.at.u, c[:, None, None] * plan.at.jacobian
    rho = jnp.asarray(rho).astype(dtype) * c
    size = jnp.sum(jnp.abs(cone.value(u, rho))) + jnp.abs(offset)
    one = jnp.ones((), dtype)
    B = jacobian * scale[None, None, :]
    tol = subsolver.target(size) / 2  # the other half is left to rounding
    d, v, steps = dual.minimize_dense(B, u + jacobian @ center, rho, one, cone, tol)
    flat, unravel = ravel_pytree(w)
    x = flat + plan.frame.basis @ (center + scale * d)
    e = (x - flat) @ plan.frame.basis  # the step that was taken: x is rounded
    blur = 4 * jnp.finfo(dtype).eps * jnp.max(1 / scale) * (jnp.linalg.norm(x) + jnp.linalg.norm(center))
    judged = dual.certify_dense(B, u, rho, one, cone, v, e / scale, (e - center) / scale, blur)
    value = judged.value + offset + jnp.sum(slope * center) / 2
    return Answer(unravel(x), v, value, judged.gap, judged.error, size, steps, {}), e


def value_of(problem: AbstractProblem, u: Float[Array, "m k"], w: Params) -> Array:
    """F at w, where the stack is u."""
    return (
        jnp.sum(problem.coefficients().astype(u.dtype) * jax.vmap(problem.outer.value)(u)) + _quadratic(problem, w)[0]
    )


def recall(memory: Memory, problem: AbstractProblem, w: Params, plan: Plan, found: Accepted) -> Memory:
    """What the next step should know. Curved steps go on as long as they pay.

    They do if they decrease F by more, for what they cost, than a plain step promises: |gradient|^2 / (2 kappa).
    """
    step, pull, value = _passes(problem, w)
    damping, v = found.damping, found.trial.answer.v
    decrease = plan.start - found.trial.value
    promise = plan.frame.gradient**2 / (2 * damping.kappa)
    spent = step + plan.frame.pulls.astype(v.dtype) * pull + found.evaluations.astype(v.dtype) * value
    pays = damping.curved & (decrease * step >= promise * spent)
    same = jnp.all(_free(problem, v)[1] == _free(problem, memory.v)[1])
    steady = same & (decrease > SLOW * memory.decrease)
    slow = jnp.where(plan.curved, jnp.where(pays, memory.slow, 0), jnp.where(steady, memory.slow + 1, 0))
    return Memory(v, decrease, slow, damping.tau)


def _passes(problem: AbstractProblem, w: Params) -> tuple[float, float, float]:
    """Effective passes of a plain step, a pull and a value."""
    price, n = problem.prices(w), len(problem)
    return (price.expand + price.value).passes(n), price.pull.passes(n), price.value.passes(n)
