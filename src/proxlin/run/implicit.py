"""Derivatives of an answer by its optimality conditions, without a look at how it was found.

    0 = sum_i c_i J_i(w)' v_i + quadratic'(w)          v_i in df(u_i)
    0 = P_i u_i(w)                                     P_i: along the face of V that holds v_i
    0 = w_j - bound_j                                  for the entries at a bound or a kink of a penalty

Where no u_i sits at a kink of f, the first line alone says how w moves: w. = -H^-1 g., with H the
Hessian of F and g. the change of its gradient. At a kink v_i is free along a face of V, and the second
line says that u_i stays at the kink: w moves on that manifold. With a penalty g, the first line has g' in it
and holds for the other entries of w alone. Where the manifold is not the same nearby, this is the derivative of one
selection.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .. import subproblem
from ..outers import AbstractProximable
from ..outers.structured import AbstractHinge
from ..problem import AbstractProblem
from ..solvers.curvature import Kinks
from ..solvers.curvature import kinks as kinks_of
from ..solvers.prox_linear import first_kappa
from ..types import Params, dtype_of
from .shards import on_one_device, varying_alike

DENSE = 500  # parameters: above, systems are solved by conjugate gradients, for smooth f alone


def differentiable(run: Callable, problem: AbstractProblem, w: Params, how: Any) -> Any:
    """Return run(problem, w, how), whose fields w and value have implicit derivatives."""
    problem, w, how = varying_alike((problem, w, how))
    return _solved(problem, w, how, run=run)


@eqx.filter_custom_jvp
def _solved(problem: AbstractProblem, w: Params, how: Any, *, run: Callable) -> Any:
    return on_one_device(run, problem, w, how)


@_solved.def_jvp
def _solved_jvp(primals: Any, tangents: Any, *, run: Callable) -> tuple[Any, Any]:
    problem, w, how = primals
    result = _solved(problem, w, how, run=run)
    w_dot, value_dot = derivative(problem, result.w, tangents[0])
    nothing = jax.tree.map(_no_tangent, result)
    tangent = eqx.tree_at(
        lambda r: (r.w, r.value),
        nothing,
        (w_dot, value_dot),
        is_leaf=lambda x: x is None,
    )
    return result, tangent


def _filled(x: Array | None, tangent: Array | None) -> Array | None:
    """Return the tangent of x, zeros where there is none."""
    if x is None or tangent is not None:
        return tangent
    return jnp.zeros_like(x)


def _no_tangent(x: Array) -> Array | None:
    return jnp.zeros_like(x) if eqx.is_inexact_array(x) else None


def derivative(
    problem: AbstractProblem, w: Params, direction: Any
) -> tuple[Params, Array]:
    """Return how the minimiser w and F there change if the problem moves along a direction, a tree
    like it with None for what stays.
    """
    moving, still = eqx.partition(problem, eqx.is_inexact_array)
    direction = jax.tree.map(_filled, moving, direction, is_leaf=lambda x: x is None)
    direction = varying_alike((moving, w, direction))[2]
    flat, unravel = ravel_pytree(w)
    kinks = on_one_device(_kinks, problem, w)

    def slope(moving: Any, flat: Array) -> Array:
        return _gradient(eqx.combine(moving, still), unravel(flat), kinks)

    def price(moving: Any) -> Array:
        return _envelope(eqx.combine(moving, still), w, kinks)

    value_dot = jax.jvp(price, (moving,), (direction,))[1]
    slope_dot = jax.jvp(lambda m: slope(m, flat), (moving,), (direction,))[1]

    def push(t: Array) -> Array:
        x, t = varying_alike((flat, t))
        return jax.jvp(lambda x: slope(moving, x), (x,), (t,))[1]

    if flat.size > DENSE and kinks is None:
        if problem.penalty is not None:
            flat_dot = _free_entries(moving, still, direction, w, push, slope_dot)
            return unravel(flat_dot), value_dot
        flat_dot = jax.scipy.sparse.linalg.cg(push, -slope_dot, tol=1e-10)[0]
        return unravel(flat_dot), value_dot
    H = jax.vmap(push, out_axes=1)(jnp.eye(flat.size, dtype=flat.dtype))
    if kinks is None and problem.penalty is None:
        return unravel(_pinv(H) @ -slope_dot), value_dot

    def held(moving: Any, flat: Array) -> Array:
        problem = eqx.combine(moving, still)
        at = unravel(flat)
        parts = []
        if kinks is not None:
            u = problem.stack(at)
            parts.append(kinks.along(u[..., None])[..., 0].reshape(-1))
        if problem.penalty is not None:
            parts.append(_off_the_bounds(problem, at))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    held_dot = jax.jvp(lambda m: held(m, flat), (moving,), (direction,))[1]
    A = jax.jacfwd(lambda x: held(moving, x))(flat)
    return unravel(_on_manifold(H, A, slope_dot, held_dot)), value_dot


def _off_the_bounds(problem: AbstractProblem, w: Params) -> Array:
    """Return w_j - bound_j for the entries that sit at a bound or a kink of the penalty, else 0."""
    assert problem.penalty is not None
    at, _ = ravel_pytree(problem.penalty.kinks(w))
    pinned, _ = ravel_pytree(problem.penalty.pinned(w))
    flat, _ = ravel_pytree(w)
    return jnp.where(at, flat - pinned, 0)


def _free_entries(
    moving: Any, still: Any, direction: Any, w: Params, push: Callable, slope_dot: Array
) -> Array:
    """Return how w moves where f is smooth and w is long: some entries with their bounds, and the
    others by conjugate gradients.
    """
    problem = eqx.combine(moving, still)
    held, _ = ravel_pytree(problem.penalty.kinks(w))
    off = lambda m: _off_the_bounds(eqx.combine(m, still), w)
    across = -jax.jvp(off, (moving,), (direction,))[1]
    right = jnp.where(held, 0, -slope_dot - push(across))

    def on_free(t: Array) -> Array:
        return jnp.where(held, t, push(jnp.where(held, 0, t)))

    return across + jax.scipy.sparse.linalg.cg(on_free, right, tol=1e-10)[0]


def _on_manifold(H: Array, A: Array, slope_dot: Array, held_dot: Array) -> Array:
    """Return x with A x = -held_dot, and Z'(H x + slope_dot) = 0 on the null space Z of A."""
    squares, vectors = jnp.linalg.eigh(A.T @ A)
    eps = jnp.finfo(H.dtype).eps
    null = squares <= squares[-1] * (100 * H.shape[0] * eps)
    inverse = jnp.where(null, 0, 1 / jnp.where(null, 1, squares))
    across = -vectors @ (inverse * ((held_dot @ A) @ vectors))
    Z = vectors * null[None, :].astype(H.dtype)
    along = -_pinv(Z.T @ H @ Z) @ ((slope_dot + H @ across) @ Z)
    return across + Z @ along


def _pinv(M: Array) -> Array:
    """Return the pseudo-inverse of a symmetric matrix, without its eigenvalues of rounding size."""
    values, vectors = jnp.linalg.eigh((M + M.T) / 2)
    size = jnp.max(jnp.abs(values))
    zero = jnp.abs(values) <= size * (100 * M.shape[0] * jnp.finfo(M.dtype).eps)
    inverse = jnp.where(zero, 0, 1 / jnp.where(zero, 1, values))
    return (vectors * inverse[None, :]) @ vectors.T


def _kinks(problem: AbstractProblem, w: Params) -> Kinks | None:
    """Return where the u_i sit at kinks of f, or None where f is smooth."""
    f = problem.outer
    if isinstance(f, AbstractHinge):
        raise TypeError(
            f"The derivatives of an answer need an outer function that is smooth or has a projection; "
            f"{type(f).__name__} has an oracle instead. Take its smoothing, {type(f).__name__}(...).smooth(nu)."
        )
    if not isinstance(f, AbstractProximable):
        return None
    V, rho = subproblem.dual_set(f)
    # A rho that is traced is that of a smoothing; one with entries belongs to Parts.
    sharp = isinstance(rho, float | np.ndarray) and np.asarray(rho) == 0
    if not np.any(sharp):
        return None
    if not V.tells_kinks():
        raise TypeError(
            f"The derivatives of an answer need to know where f has kinks, and {type(f).__name__} has a projection "
            f"alone; take its smoothing, {type(f).__name__}(...).smooth(nu), or give it a dual_set with `free`."
        )
    problem, w = jax.lax.stop_gradient((problem, w))
    _, kappa = first_kappa(problem, w)
    expansion = subproblem.expand(problem, w)
    quadratic = subproblem.proximal(problem, kappa, w)
    tol = jnp.asarray(1e-12, dtype_of(w))  # raised to what the arithmetic has
    v = subproblem.solve(expansion, quadratic, f, tol, penalty=problem.penalty).v
    found = kinks_of(problem, v)
    free = found.free & jnp.asarray(sharp).reshape(1, -1)
    return eqx.tree_at(lambda kinks: kinks.free, found, free)


def _slopes(problem: AbstractProblem, u: Array, kinks: Kinks | None) -> Array:
    """Return v_i in df(u_i): the gradient, or at a kink the dual variables, which stay as they are."""
    v = jax.vmap(problem.outer.subgradient)(u)
    if kinks is None:
        return v
    return jnp.where(kinks.held(), kinks.v.astype(v.dtype), v)


def _gradient(problem: AbstractProblem, w: Params, kinks: Kinks | None) -> Array:
    """Return sum_i c_i J_i' v_i + quadratic' + g', as one vector."""
    u = problem.stack(w)
    c = problem.coefficients().astype(u.dtype)
    v = c[:, None] * _slopes(problem, u, kinks)
    total, _ = ravel_pytree(problem.pull(w, v))
    if problem.quadratic is not None:
        total = total + ravel_pytree(problem.quadratic.gradient(w))[0]
    if problem.penalty is not None:
        total = total + ravel_pytree(problem.penalty.subgradient(w))[0]
    return total


def _envelope(problem: AbstractProblem, w: Params, kinks: Kinks | None) -> Array:
    """Return a function of the problem that changes as F at its minimiser does."""
    u = problem.stack(w)
    here = jax.lax.stop_gradient(u)
    c = problem.coefficients().astype(u.dtype)
    v = jax.lax.stop_gradient(_slopes(problem, u, kinks))
    losses = jax.vmap(problem.outer.value)(here)
    total = jnp.sum(c * (losses + jnp.sum(v * (u - here), axis=-1)))
    if problem.quadratic is not None:
        total = total + problem.quadratic.value(w)
    if problem.penalty is None:
        return total
    # F pays its slope for each unit that a bound moves.
    slope = _gradient(jax.lax.stop_gradient(problem.unpenalized()), w, kinks)
    off = _off_the_bounds(problem, w)
    return total + problem.penalty.value(w) - jnp.sum(slope * off)
