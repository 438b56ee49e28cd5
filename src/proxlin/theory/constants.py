"""The constants of Proposition 1 where they are not known: local ones, measured at w and along a step.

least_singular = sigma_min(J(w)'),      smoothness = sup over s of |phi''(w + s d)[e, e]|,  e = d / |d|
"""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ..checks import check_like, check_parameters
from ..compiled import compiled
from ..problem import AbstractProblem
from ..types import Params, dtype_of, is_parameter, parameters
from .arguments import count


@dataclasses.dataclass(frozen=True)
class Singular:
    """A Ritz value of the least singular value, never below it; a squared singular value is within `residual` of its
    square."""

    value: float
    residual: float
    steps: int


def least_singular(problem: AbstractProblem, w: Params) -> float:
    """sigma_min(J(w)'), J (nk, d) the Jacobian of the stacked phi: 0 if nk > d. Dense, by QR and a
    singular value decomposition."""
    w = check_parameters(w, problem.data)
    return float(_least_singular(problem, w))


def least_singular_matrix_free(
    problem: AbstractProblem, w: Params, tol: float = 1e-8, steps: int | None = None, seed: int = 0
) -> Singular:
    """The same by products with J and J' alone: Golub and Kahan's bidiagonalisation, J'U = V C with C (m, m).

        alpha_j v_j = J'u_j - beta_j v_{j-1},      beta_{j+1} u_{j+1} = J v_j - alpha_j u_j

    sigma_min(C) falls to sigma_min(J') as m grows, to it at m = nk; |J J'x - theta^2 x| = beta_{m+1} alpha_m |y_m| for
    the Ritz vector x = U y. It stops at a residual of tol theta^2. Only the u_j are stored and kept orthogonal (one
    side is enough: Simon and Zha 2000).
    """
    w = check_parameters(w, problem.data)
    at, rest = eqx.partition(w, is_parameter)
    problem = problem.bind(rest)
    shape = (len(problem.coefficients()), problem.outputs(at))
    size, dtype = math.prod(shape), dtype_of(at)
    start = np.random.default_rng(seed).normal(size=shape)
    U = np.zeros((0, size))
    C = np.zeros((0, 0))
    u, v, beta = start.ravel() / np.linalg.norm(start), optax.tree.zeros_like(at), 0.0
    most = size if steps is None else min(size, count(steps, "steps"))
    look = 1  # the next m at which C is looked at; it grows by a quarter, so that looking costs no more than m steps
    for m in range(1, most + 1):
        U = np.vstack([U, u])
        v, alpha, image = _half_steps(problem, at, jnp.asarray(u.reshape(shape), dtype), v, jnp.asarray(beta, dtype))
        C = np.pad(C, ((0, 1), (0, 1)))
        C[-1, -1] = float(alpha)
        C[-2:-1, -1] = beta
        u = np.asarray(image, float).ravel() - float(alpha) * u
        for _ in range(2):
            u = u - U.T @ (U @ u)
        beta = float(np.linalg.norm(u))
        closed = beta <= 1e-14 * np.abs(C).max()
        if m >= look or m == most or closed:
            look = m + 1 + m // 4
            ritz = _ritz(C, beta)
            if ritz.residual <= tol * ritz.value**2 or closed:
                break
        u = u / beta
    return ritz


def _ritz(C: np.ndarray, beta: float) -> Singular:
    _, sigma, Y = np.linalg.svd(C)
    return Singular(float(sigma[-1]), float(beta * C[-1, -1] * abs(Y[-1, -1])), len(C))


def segment_smoothness(problem: AbstractProblem, w: Params, after: Params, points: int = 17) -> float:
    """L on the segment from w to w + d: the largest |phi''(w + s d)[e, e]| at `points` values of s, e = d / |d|.

    It is local, and all that Proposition 1 needs of this one step: the remainder phi(w + d) - phi(w) - J d is |d|^2
    times a mean of phi''(w + s d)[e, e] / 2 with weights 2 (1 - s).
    """
    w, after = check_parameters(w, problem.data), check_parameters(after, problem.data)
    check_like(after, w, "The end of the segment")
    return float(_segment_smoothness(problem, w, after, points))


@compiled
def _least_singular(problem: AbstractProblem, w: Params) -> Array:
    J = problem.expand(w).jacobian
    J = J.reshape(-1, J.shape[-1])
    if J.shape[0] > J.shape[1]:
        return jnp.zeros((), J.dtype)
    return jnp.linalg.svd(jnp.linalg.qr(J.T, mode="r"), compute_uv=False)[-1]  # nk x nk: d is the long side


@compiled
def _half_steps(problem: AbstractProblem, w: Params, u: Array, v: Params, beta: Array) -> tuple[Params, Array, Array]:
    v = optax.tree.add_scale(problem.pull(w, u), -beta, v)
    alpha = jnp.asarray(optax.tree.norm(v))
    v = optax.tree.scale(1 / jnp.where(alpha > 0, alpha, jnp.ones_like(alpha)), v)
    return v, alpha, problem.push(w, v)


@compiled
def _segment_smoothness(problem: AbstractProblem, w: Params, after: Params, points: int) -> Array:
    at, rest = eqx.partition(w, is_parameter)
    problem = problem.bind(rest)
    d = optax.tree.sub(parameters(after), at)
    square = jnp.asarray(optax.tree.vdot(d, d))
    square = jnp.where(square > 0, square, jnp.ones_like(square))
    norm = lambda u: jnp.sqrt(jnp.sum(u * u))

    def curvature(s: Array) -> Array:
        along = lambda s: problem.push(optax.tree.add_scale(at, s, d), d)
        return norm(jax.jvp(along, (s,), (jnp.ones_like(s),))[1])

    return jnp.max(jax.lax.map(curvature, jnp.linspace(0, 1, points, dtype=square.dtype))) / square
