"""Maps whose constants are known exactly, for Propositions 1 and 2, and the exact prox-linear
method on them.

    phi(w) = A w + c sin(B w) - y,   A (nk, d),  B (nk, d),  d = 2 nk

With orthonormal rows of B / b:  L = c b^2.  Rows of A orthogonal to those of B:  sigma_min(J') >= sigma_min(A), reached
where cos(B w) = 0.  A = a B / b:  sigma_min(J') >= a - c b, reached where cos(B w) = -1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..outers import L2, AbstractOuter
from ..problem import AbstractProblem, MeanOfLosses
from ..subproblem import solve_subproblem
from ..theory.proposition1 import FLOOR
from ..types import Params


class Sine(eqx.Module):
    """The map (w, (A_i, B_i, y_i)) -> A_i w + c sin(B_i w) - y_i."""

    c: Array

    def __call__(self, w: Array, sample: tuple[Array, Array, Array]) -> Array:
        A, B, y = sample
        return A @ w + self.c * jnp.sin(B @ w) - y


@dataclass(frozen=True)
class Known:
    """A map with its exact constants L and sigma_min."""

    A: np.ndarray
    B: np.ndarray
    c: float
    smoothness: float
    least_singular: float

    def target(self, w: np.ndarray) -> np.ndarray:
        """Return the y that w fits."""
        return self.A @ w + self.c * np.sin(self.B @ w)

    def problem(self, y: np.ndarray, outer: AbstractOuter) -> MeanOfLosses:
        """Return the problem of fitting y."""
        return MeanOfLosses(Sine(jnp.asarray(self.c)), outer, (self.A, self.B, y))


def orthogonal(
    n: int,
    k: int,
    rng: np.random.Generator,
    c: float = 1.0,
    b: float = 1.0,
    spread: float = 1.5,
) -> Known:
    """Draw rows of A orthogonal to those of B, singular values of A from 1 to `spread`: L = c b^2,
    sigma_min = 1.
    """
    m = n * k
    rows = _orthonormal(2 * m, rng)
    singular = np.geomspace(1, spread, m)[:, None]
    A = _orthonormal(m, rng) @ (singular * rows[:m])
    B = b * rows[m:]
    return Known(A.reshape(n, k, -1), B.reshape(n, k, -1), c, c * b**2, 1.0)


def aligned(
    n: int,
    k: int,
    rng: np.random.Generator,
    c: float = 0.5,
    b: float = 1.0,
    a: float = 1.5,
) -> Known:
    """Draw B and take A = a B / b: L = c b^2, sigma_min = a - c b."""
    rows = _orthonormal(2 * n * k, rng)[: n * k].reshape(n, k, -1)
    return Known(a * rows, b * rows, c, c * b**2, a - c * b)


def as_printed(
    n: int, k: int, rng: np.random.Generator
) -> tuple[Known, np.ndarray, np.ndarray]:
    """Return (map, w, y) with F(w) = 1 / n^{3/2}, f = L2, where Proposition 1, read as printed,
    fails for n > 4.

    L = l = sharpness = sigma_min = 1, so the radius printed is F(w) itself. cos(B w) = 0 and one
    sample has all of the residual: the step with kappa = L l shortens it by 1/n, so F falls to (1 -
    1 / sqrt n) F(w), not to F(w) / 2.
    """
    known = orthogonal(n, k, rng, spread=1.0)
    w = (np.pi / 2) * known.B.sum(axis=(0, 1))
    y = known.target(w)
    y[0] -= y[0] / np.linalg.norm(y[0]) / np.sqrt(n)
    return known, w, y


class Attained(eqx.Module):
    """The map (w, (e_i, y_i)) -> w_i - w_1 |w_1| / (2 sqrt n) - y_i: at w = 0 Proposition 1's
    bounds are equalities.

    There sigma_min = 1, and L = 1 everywhere. If y = (-u, 0, ..., 0) the first sample has all of
    the residual (so sharpness / n is exact), and the remainder of the step is the same in each (so
    l / sqrt n is).
    """

    def __call__(self, w: Array, sample: tuple[Array, Array]) -> Array:
        e, y = sample
        root = jnp.sqrt(jnp.asarray(w.size, w.dtype))
        value = e @ w - w[0] * jnp.abs(w[0]) / (2 * root)
        return value[None] - y


def attained(n: int, gap: float) -> tuple[MeanOfLosses, Array]:
    """Return the problem of `Attained` with F(0) = gap, f = L2, and w = 0."""
    y = np.zeros((n, 1))
    y[0] = -n * gap
    return MeanOfLosses(Attained(), L2(), (np.eye(n), y)), jnp.zeros(n)


def _orthonormal(m: int, rng: np.random.Generator) -> np.ndarray:
    """Draw an orthogonal matrix."""
    Q, _ = np.linalg.qr(rng.normal(size=(m, m)))
    return Q


@dataclass(frozen=True)
class Path:
    """F_t, t = 0..T, the certified gaps of the T subproblems, and the iterates where they are kept."""

    values: Any
    gaps: Any
    iterates: Sequence[Params] = ()

    def __post_init__(self):
        for name in ("values", "gaps"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))


def exact_path(
    problem: AbstractProblem, w: Params, kappa: float, steps: int, floor: float = FLOOR
) -> Path:
    """Run the paper's iteration, each subproblem solved to round-off, until F <= floor or `steps`
    are done.
    """
    values = [float(problem.value(w))]
    gaps = []
    iterates = [w]
    while values[-1] > floor and len(gaps) < steps:
        step = solve_subproblem(problem, iterates[-1], kappa, tol=1e-14)
        iterates.append(step.w)
        gaps.append(step.gap)
        values.append(float(problem.value(step.w)))
    return Path(values, gaps, iterates)


def near(w: np.ndarray, distance: float, rng: np.random.Generator) -> jax.Array:
    """Draw a start at a distance from w."""
    direction = rng.normal(size=w.shape)
    return jnp.asarray(w + distance * direction / np.linalg.norm(direction))
