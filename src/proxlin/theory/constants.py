"""The constants of Proposition 1 where they are not known: local ones, measured at w and along a
step.

least_singular = sigma_min(J(w)'),      smoothness = sup over s of |phi''(w + s d)[e, e]|,  e = d / |d|
"""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import trees
from ..checks import check_like, check_parameters, whole
from ..compiled import compiled
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem
from ..types import Params, dtype_of, is_parameter, parameters


@dataclasses.dataclass(frozen=True)
class Singular:
    """An estimate of the least singular value, a Ritz value.

    Parameters
    ----------
    value : a number
        The Ritz value, never below the least singular value.
    residual : a number
        A squared singular value is within it of the square of `value`.
    steps : an integer
        The steps of the bidiagonalisation.

    See Also
    --------
    theory.least_singular_matrix_free : returns it.

    Examples
    --------
    >>> import proxlin as px
    >>> px.theory.Singular(value=0.5, residual=1e-9, steps=12).value
    0.5
    """

    value: float
    residual: float
    steps: int


@in_the_precision_of_w
def least_singular(problem: AbstractProblem, w: Params) -> float:
    """Return sigma_min(J(w)'), J (nk, d) the Jacobian of the stacked phi: 0 if nk > d.

    It is dense, by QR and a singular value decomposition.

    Parameters
    ----------
    problem : a problem
        It has phi and the data.
    w : a tree
        Where the Jacobian is taken.

    Returns
    -------
    a number
        The least singular value.

    See Also
    --------
    theory.least_singular_matrix_free : forms no matrix.
    theory.quadratic_radius : needs it.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: x * w, px.L2(), np.array([[3.0, 4.0]]))
    >>> round(px.theory.least_singular(p, np.ones(2)), 6)
    3.0
    """
    w = check_parameters(w, problem.data)
    return float(_least_singular(problem, w))


@in_the_precision_of_w
def least_singular_matrix_free(
    problem: AbstractProblem,
    w: Params,
    tol: float = 1e-8,
    steps: int | None = None,
    seed: int = 0,
) -> Singular:
    """Return sigma_min(J(w)') by products with J and J' alone: the bidiagonalisation J'U = V C of
    Golub and Kahan.

        alpha_j v_j = J'u_j - beta_j v_{j-1},      beta_{j+1} u_{j+1} = J v_j - alpha_j u_j

    C is (m, m). sigma_min(C) falls to sigma_min(J') as m grows, and reaches it at m = nk. For the Ritz vector x = U y,
    |J J'x - theta^2 x| = beta_{m+1} alpha_m |y_m|; it stops where that is at most tol theta^2. Only the u_j are stored
    and kept orthogonal (one side is enough: Simon and Zha 2000).

    Parameters
    ----------
    problem : a problem
        It has phi and the data.
    w : a tree
        Where the Jacobian is taken.
    tol : a number
        The residual at which it stops, relative to the square of the value.
    steps : an integer, or None
        The most steps; None is nk.
    seed : an integer
        The randomness of the start.

    Returns
    -------
    a `Singular`
        The value, its residual, and the steps taken.

    See Also
    --------
    theory.least_singular : is exact, and forms the matrix.
    theory.quadratic_radius : needs it.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: x * w, px.L2(), np.array([[3.0, 4.0]]))
    >>> found = px.theory.least_singular_matrix_free(p, np.ones(2))
    >>> round(found.value, 6), found.steps
    (3.0, 2)
    """
    w = check_parameters(w, problem.data)
    at, rest = eqx.partition(w, is_parameter)
    problem = problem.bind(rest)
    shape = (len(problem.coefficients()), problem.outputs(at))
    dtype = dtype_of(at)
    most = math.prod(shape)
    if steps is not None:
        most = min(most, whole(steps, "steps", high=math.inf))
    start = np.random.default_rng(seed).normal(size=shape)
    u = start.ravel() / np.linalg.norm(start)
    v = trees.zeros_like(at)
    beta = 0.0
    U = np.zeros((0, u.size))
    C = np.zeros((0, 0))
    # the next m at which C is looked at; it grows by a quarter, so that looking costs no more than
    # m steps
    look = 1
    for m in range(1, most + 1):
        U = np.vstack([U, u])
        along = jnp.asarray(u.reshape(shape), dtype)
        v, alpha, image = _half_steps(problem, at, along, v, jnp.asarray(beta, dtype))
        C = np.pad(C, ((0, 1), (0, 1)))
        C[-1, -1] = float(alpha)
        C[-2:-1, -1] = beta
        u = np.asarray(image, float).ravel() - float(alpha) * u
        # once leaves what rounding lost where u is nearly in the span of U
        for _ in range(2):
            u = u - U.T @ (U @ u)
        beta = float(np.linalg.norm(u))
        # the space is exhausted: what is left of u is rounding
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
    residual = beta * C[-1, -1] * abs(Y[-1, -1])
    return Singular(float(sigma[-1]), float(residual), len(C))


@in_the_precision_of_w
def segment_smoothness(
    problem: AbstractProblem, w: Params, after: Params, points: int = 17
) -> float:
    """Return L on the segment from w to w + d: the largest |phi''(w + s d)[e, e]| at `points`
    values of s, e = d / |d|.

    It is local, and all that Proposition 1 needs of this one step: the remainder phi(w + d) -
    phi(w) - J d is |d|^2 times a mean of phi''(w + s d)[e, e] / 2 with weights 2 (1 - s).

    Parameters
    ----------
    problem : a problem
        It has phi and the data.
    w : a tree
        The beginning of the segment.
    after : a tree like w
        Its end, w + d.
    points : an integer
        The places at which the second derivative is taken.

    Returns
    -------
    a number
        L along the segment.

    See Also
    --------
    theory.least_kappa : needs L.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: x * w**2, px.L2(), np.array([[3.0]]))
    >>> round(px.theory.segment_smoothness(p, np.zeros(1), np.ones(1)), 6)
    6.0
    """
    w = check_parameters(w, problem.data)
    after = check_parameters(after, problem.data)
    check_like(after, w, "The end of the segment")
    return float(_segment_smoothness(problem, w, after, points))


@compiled
def _least_singular(problem: AbstractProblem, w: Params) -> Array:
    J = problem.expand(w).jacobian
    J = J.reshape(-1, J.shape[-1])
    rows, columns = J.shape
    if rows > columns:
        return jnp.zeros((), J.dtype)
    R = jnp.linalg.qr(J.T, mode="r")  # nk x nk: d is the long side
    return jnp.linalg.svd(R, compute_uv=False)[-1]


@compiled
def _half_steps(
    problem: AbstractProblem, w: Params, u: Array, v: Params, beta: Array
) -> tuple[Params, Array, Array]:
    v = trees.add_scale(problem.pull(w, u), -beta, v)
    alpha = jnp.asarray(trees.norm(v))
    # v is 0 where alpha is, and stays so: no 0 / 0
    length = jnp.where(alpha > 0, alpha, jnp.ones_like(alpha))
    v = trees.scale(1 / length, v)
    return v, alpha, problem.push(w, v)


@compiled
def _segment_smoothness(
    problem: AbstractProblem, w: Params, after: Params, points: int
) -> Array:
    at, rest = eqx.partition(w, is_parameter)
    problem = problem.bind(rest)
    d = trees.sub(parameters(after), at)
    square = jnp.asarray(trees.vdot(d, d))
    # a segment of no length has curvature 0, not nan
    square = jnp.where(square > 0, square, jnp.ones_like(square))

    def curvature(s: Array) -> Array:
        slope = lambda s: problem.push(trees.add_scale(at, s, d), d)
        _, bend = jax.jvp(slope, (s,), (jnp.ones_like(s),))
        return jnp.sqrt(jnp.sum(bend * bend))

    places = jnp.linspace(0, 1, points, dtype=square.dtype)
    return jnp.max(jax.lax.map(curvature, places)) / square
