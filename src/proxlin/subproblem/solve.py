"""The prox-linear subproblem, solved to a certified gap: the one entry of this room is `solve`.

    min_x  sum_i c_i f(u_i + J_i (x - w)) + weight/2 |x - center|^2 + offset

The expansion (w, c, u, J) comes from `problem.expand(w)`, or from `problem.linear_map(w)` where J is too large to form.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..outers import AbstractOuter, AbstractProximable
from ..outers.sets import AbstractSet, norms
from ..problem import Expansion, LinearMap, Quadratic
from ..types import Params, dtype_of, parameters
from .certificate import Certificate, Seen, certify, rounding
from .dense import certify_dense, minimize_dense
from .matrix_free import minimize_matrix_free

MOST = 20_000  # iterations of a matrix-free solve


class Answer(eqx.Module):
    """The minimiser, the value there, the certified gap, and what it took; v are the dual variables (m, k).

    The gap is that of w as it is returned, rounded; `error` is the part of it that bounds rounding. `scale` is the size
    of F at the anchor, the sum of its terms without their signs: what tolerances are relative to. `pushes` and `pulls`
    count the calls of a matrix-free solve.
    """

    w: Params
    v: Array
    value: Array
    gap: Array
    error: Array
    scale: Array
    iterations: Array
    pushes: Array
    pulls: Array


def solve(
    expansion: Expansion | LinearMap,
    quadratic: Quadratic,
    f: AbstractOuter,
    tol: Array,
    *,
    v0: Array | None = None,
    max_iterations: int = MOST,
) -> Answer:
    """Return the minimiser, to a gap of at most tol times the size of F at the anchor, tol at least 100 eps.

    v0 are dual variables to start from. The weight of the quadratic is a number, or a vector where w is one and the
    expansion is dense.
    """
    V, rho = dual_form(f)
    dtype = dtype_of(expansion.w)
    c = expansion.c.astype(dtype)
    rho = jnp.asarray(rho).astype(dtype) * c
    u = c[:, None] * expansion.u
    size = jnp.sum(jnp.abs(V.value(u, rho))) + jnp.abs(_at(quadratic, expansion.w))
    goal = target(tol, size) / 2  # the other half is left to rounding
    if isinstance(expansion, Expansion):
        return _dense(expansion, quadratic, V, rho, u, size, goal, v0)
    return _matrix_free(expansion, quadratic, V, rho, u, size, goal, v0, max_iterations)


def target(tol: Array, size: Array) -> Array:
    """Return the gap wanted where F is of this size: tol times it, tol at least 100 eps."""
    limits = jnp.finfo(size.dtype)
    tol = jnp.maximum(tol.astype(size.dtype), 100 * limits.eps)
    return jnp.maximum(tol * size, limits.tiny / limits.eps)  # below that a gap underflows


def dual_form(f: AbstractOuter) -> tuple[AbstractSet, Any]:
    """Return (V, rho) with f* = indicator of V + rho/2 |.|^2, or raise a sentence where f has an oracle instead."""
    if not isinstance(f, AbstractProximable):
        raise TypeError(
            f"The exact prox-linear step needs an outer function with a projection; {type(f).__name__} "
            f"has an oracle instead. Take pli."
        )
    return f.dual_form()


def _dense(
    expansion: Expansion,
    quadratic: Quadratic,
    V: AbstractSet,
    rho: Array,
    u: Array,
    size: Array,
    goal: Array,
    v0: Array | None,
) -> Answer:
    """Solve in e = root (x - center), root = sqrt(weight), where the quadratic is 1/2 |e|^2."""
    dtype = u.dtype
    anchor, unravel = ravel_pytree(parameters(expansion.w))
    center, _ = ravel_pytree(quadratic.center)
    root = jnp.broadcast_to(jnp.sqrt(quadratic.weight.astype(dtype)), anchor.shape)
    J = expansion.c.astype(dtype)[:, None, None] * expansion.jacobian
    B = J / root[None, None, :]
    e, v, steps = minimize_dense(B, u + J @ (center - anchor), rho, V, goal, v0)
    x = center + e / root
    # The certificate is that of x, which is rounded, and is measured from the anchor, where u is exact.
    moved = root * (x - anchor)
    away = root * (x - center)
    found = certify_dense(B, u, rho, V, v, moved, away, _blur(root * x, root * center))
    value = found.value + quadratic.offset.astype(dtype)
    none = jnp.int32(0)
    return Answer(unravel(x), v, value, found.gap, found.error, size, steps, none, none)


def _matrix_free(
    expansion: LinearMap,
    quadratic: Quadratic,
    V: AbstractSet,
    rho: Array,
    u: Array,
    size: Array,
    goal: Array,
    v0: Array | None,
    max_iterations: int,
) -> Answer:
    anchor, center = parameters(expansion.w), quadratic.center
    weight = quadratic.weight.astype(u.dtype)
    c = expansion.c.astype(u.dtype)[:, None]
    push = lambda d: c * expansion.push(d)
    pull = lambda v: expansion.pull(c * v)
    b = u + push(optax.tree.sub(center, anchor))
    found = minimize_matrix_free(push, pull, b, rho, weight, V, goal, max_iterations, v0)
    x = optax.tree.add(center, found.d)
    judged = _certify_free(found.v, found.spread, x, anchor, center, weight, V, rho, u, push, pull)
    value = judged.value + quadratic.offset.astype(u.dtype)
    # One push for b, one push and one pull for the certificate.
    pushes, pulls = found.pushes + 2, found.pulls + 1
    return Answer(x, found.v, value, judged.gap, judged.error, size, found.steps, pushes, pulls)


def _certify_free(
    v: Array,
    spread: Array,
    x: Params,
    anchor: Params,
    center: Params,
    weight: Array,
    V: AbstractSet,
    rho: Array,
    u: Array,
    push: Any,
    pull: Any,
) -> Certificate:
    """Return the certificate of x. B is not at hand: its rows are taken to be of the size that |B| leaves each."""
    m, k = u.shape
    moved = optax.tree.sub(x, anchor)
    sizes = norms(u) + spread * optax.tree.norm(moved) / m**0.5
    d = ravel_pytree(x)[0].size
    z_error = jnp.broadcast_to(rounding(d, u.dtype) * sizes[:, None] / k**0.5, u.shape)
    turn = rounding(m * k, u.dtype) * spread * jnp.sqrt(jnp.sum(v * v)) / weight
    seen = Seen(u + push(moved), z_error, optax.tree.sub(x, center), pull(v), _blur(x, center) + turn)
    return certify(V, rho, weight, v, seen)


def _at(quadratic: Quadratic, w: Params) -> Array:
    """Return the quadratic at w; its weight may be a vector."""
    flat, _ = ravel_pytree(parameters(w))
    center, _ = ravel_pytree(quadratic.center)
    return jnp.sum(quadratic.weight.astype(flat.dtype) / 2 * (flat - center) ** 2) + quadratic.offset.astype(flat.dtype)


def _blur(x: Params, center: Params) -> Array:
    """Return what rounding may have done to x - center: the centre is the result of a few operations itself."""
    eps = jnp.finfo(dtype_of(x)).eps
    return 2 * eps * (optax.tree.norm(x) + optax.tree.norm(center))
