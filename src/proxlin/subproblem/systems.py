"""The linear systems of the dual.

    min_{v in V^n}  1/2 |A'v|^2 + 1/2 sum_i rho_i |v_i|^2 - <b, v>          e = -A'v

Every method needs the same system, for a block-diagonal M = diag(h) + g g' and dv in the tangent
space T of V (T = R^k, or sum dv_i = 0 where V is flat):

    de + A'dv = -r          M dv - A de = q  (on T)          i.e. (A A' + M) dv = q - A r

`Rows` factors A A' + M (nk x nk); `Columns` factors I + A' M^-1 A (d x d) and forms nothing nk x nk.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import Array
from jaxtyping import Float

from ..outers.sets import AbstractSet


def gram(X: Array) -> Array:
    """Return X X', computing half of it: [P Q'; Q S] by halves down to 320 rows, where one product
    was as fast.
    """
    m = X.shape[0]
    if m <= 320:
        return X @ X.T
    h = m // 2
    Q = X[h:] @ X[:h].T
    return jnp.block([[gram(X[:h]), Q.T], [Q, gram(X[h:])]])


def inverse_cholesky(G: Array) -> Array:
    """Return L^-1 with L L' = G, by halves: products run on all cores, and two of them with L^-1
    beat one cho_solve.
    """
    m = G.shape[0]
    if m <= 256:
        L = jnp.linalg.cholesky(G, symmetrize_input=False)
        return jsl.solve_triangular(L, jnp.eye(m, dtype=G.dtype), lower=True)
    h = m // 2
    P = inverse_cholesky(G[:h, :h])
    Q = G[h:, :h] @ P.T
    S = inverse_cholesky(G[h:, h:] - Q @ Q.T)
    return jnp.block([[P, jnp.zeros((h, m - h), G.dtype)], [-S @ (Q @ P), S]])


def lifted(G: Array) -> Array:
    """Return G with its diagonal raised by a few eps relative to itself, so that rounding leaves it
    positive.
    """
    return G + jnp.diag(jnp.diagonal(G) * (4 * jnp.finfo(G.dtype).eps))


def tangent(k: int) -> np.ndarray:
    """Return an orthonormal basis (k, k - 1) of {sum = 0}: the last columns of a reflection."""
    # The reflection sends this vector to the first unit vector.
    a = np.full(k, k**-0.5)
    a[0] -= 1.0
    return (np.eye(k) - 2 * np.outer(a, a) / max(a @ a, 1e-300))[:, 1:]


class AbstractSystem(eqx.Module):
    """The linear algebra of a subproblem."""

    @abc.abstractmethod
    def push(self, e: Array) -> Array:
        """Return A e, (blocks, k)."""

    @abc.abstractmethod
    def pull(self, v: Array) -> Array:
        """Return A'v."""

    @abc.abstractmethod
    def factor(self, h: Array, g: Array) -> Any:
        """Return what `solve` needs of M = diag(h) + g g'."""

    @abc.abstractmethod
    def solve(self, factor: Any, r: Array, q: Array) -> tuple[Array, Array]:
        """Return (dv, de)."""

    @abc.abstractmethod
    def refined(
        self, factor: Any, h: Array, g: Array, r: Array, q: Array
    ) -> tuple[Array, Array]:
        """Return (dv, de) with one step of iterative refinement."""

    @abc.abstractmethod
    def blocks(self) -> int:
        """Return the number of blocks of one problem."""

    def total(self, each: Array) -> Array:
        """Return the sum over the blocks of a problem."""
        return jnp.sum(each)

    def least(self, each: Array) -> Array:
        """Return the least number of the blocks of a problem."""
        return jnp.min(each)

    def spread(self, number: Array) -> Array:
        """Return a number of each problem for each of its blocks."""
        return jnp.broadcast_to(number, (self.blocks(),))

    def scaled(self, number: Array, e: Array) -> Array:
        """Return the number of each problem times its e."""
        return number * e

    def square(self, e: Array) -> Array:
        """Return |e|^2 of each problem."""
        return jnp.sum(e * e)


class Rows(AbstractSystem):
    """The system through K + M, K = A A' formed once (on the tangent space: N'A in place of A)."""

    B: Array
    gain: Array
    K: Array
    N: Array | None

    def __init__(self, B: Array, gain: Array, V: AbstractSet):
        _, k, d = B.shape
        self.B = B  # A = gain B is never formed: that would copy B.
        self.gain = gain
        self.N = None
        if V.flat:
            self.N = jnp.asarray(tangent(k), B.dtype)
            B = jnp.einsum("nkd,kj->njd", B, self.N)
        self.K = gain**2 * gram(B.reshape(-1, d))

    @property
    def width(self) -> int:
        return self.B.shape[-1]

    def blocks(self) -> int:
        return self.B.shape[0]

    def push(self, e: Array) -> Array:
        return (self.B.reshape(-1, e.size) @ (self.gain * e)).reshape(self.B.shape[:2])

    def pull(self, v: Array) -> Array:
        return (self.gain * v.reshape(-1)) @ self.B.reshape(v.size, -1)

    def _down(self, q: Array) -> Array:
        """Return q in the coordinates of the tangent space."""
        if self.N is not None:
            q = q @ self.N
        return q.reshape(-1)

    def _up(self, u: Array) -> Array:
        """Return the vector of the tangent space with these coordinates."""
        u = u.reshape(self.B.shape[0], -1)
        if self.N is not None:
            u = u @ self.N.T
        return u

    def factor(self, h: Array, g: Array) -> Array:
        """Return L^-1 of K + blockdiag(N' (diag h_i + g_i g_i') N)."""
        n, k = h.shape
        M = (
            h[:, :, None] * jnp.eye(k, dtype=h.dtype)[None]
            + g[:, :, None] * g[:, None, :]
        )
        if self.N is not None:
            M = jnp.einsum("ka,nkl,lb->nab", self.N, M, self.N)
        m = self.K.shape[0]
        size = M.shape[-1]
        block = jnp.arange(m) // size
        same_block = block[:, None] == block[None, :]
        spread = jnp.tile(M.reshape(m, size), (1, n))
        return inverse_cholesky(lifted(jnp.where(same_block, self.K + spread, self.K)))

    def solve_dual(self, factor: Any, c: Array, Kc: Array, q: Array) -> Array:
        """Return dv of the system with r = c, given Kc = A c."""
        return self._up((factor @ self._down(q - Kc)) @ factor)

    def solve(self, factor: Any, r: Array, q: Array) -> tuple[Array, Array]:
        dv = self.solve_dual(factor, r, self.push(r), q)
        return dv, -r - self.pull(dv)

    def refined(
        self, factor: Any, h: Array, g: Array, r: Array, q: Array
    ) -> tuple[Array, Array]:
        """Solve, and once more for what is left of the second equation; the first holds by
        construction.
        """
        dv, de = self.solve(factor, r, q)
        left = q + self.push(de) - h * dv - g * jnp.sum(g * dv, axis=-1, keepdims=True)
        more = self.solve_dual(factor, r, jnp.zeros_like(q), left)
        return dv + more, de - self.pull(more)

    def energy(self, u: Array) -> Array:
        """Return |A'u|^2 for u in the tangent space."""
        u = self._down(u)
        return jnp.dot(u, self.K @ u)


class AbstractColumns(AbstractSystem):
    """A system through C = I + A' M^-1 A, M^-1 = F F' on the tangent space; only C^-1 is left open.

    `factor` returns (what `through` needs of C, h, g).
    """

    flat: eqx.AbstractVar[bool]  # whether V is inside of {sum_j v_j = 1}
    width: eqx.AbstractVar[int]  # the number of entries of e

    @abc.abstractmethod
    def through(self, L: Any, x: Array) -> Array:
        """Return C^-1 x."""

    @abc.abstractmethod
    def stretched(self, size: Float[Array, " d"]) -> "AbstractColumns":
        """Return the system of A diag(size)."""

    def solve(self, factor: Any, r: Array, q: Array) -> tuple[Array, Array]:
        L, h, g = factor
        de = -self.through(L, r + self.pull(over(self.flat, h, g, q)))
        return over(self.flat, h, g, q + self.push(de)), de

    def solve_dual(self, factor: Any, c: Array, Kc: Array, q: Array) -> Array:
        return self.solve(factor, c, q)[0]

    def refined(
        self, factor: Any, h: Array, g: Array, r: Array, q: Array
    ) -> tuple[Array, Array]:
        """Solve, and once more for what is left of the first equation only.

        The second holds up to rounding, which M^-1 (as large as 1 / mu) would blow up: with both,
        22 of 66 cases fail.
        """
        dv, de = self.solve(factor, r, q)
        more, de2 = self.solve(factor, r + de + self.pull(dv), jnp.zeros_like(q))
        return dv + more, de + de2

    def energy(self, u: Array) -> Array:
        return jnp.sum(self.pull(u) ** 2)


class AbstractNewton(AbstractColumns):
    """Columns that also factor C = I + A' W A for blocks W_i = diag(a_i) - b_i b_i' that may be singular."""

    @abc.abstractmethod
    def curved(self, a: Array, b: Array | None) -> Any:
        """Return what `through` needs of C; None for b = 0."""


class Columns(AbstractColumns):
    """The system through C = I + A' M^-1 A with F'A formed each time, and C as a matrix."""

    At: Array
    flat: bool = eqx.field(static=True)

    def __init__(self, B: Array, gain: Array, V: AbstractSet):
        self.At = gain * jnp.transpose(B, (2, 0, 1))
        self.flat = V.flat

    @property
    def width(self) -> int:
        return self.At.shape[0]

    def blocks(self) -> int:
        return self.At.shape[1]

    def push(self, e: Array) -> Array:
        return (e @ self.At.reshape(e.size, -1)).reshape(self.At.shape[1:])

    def pull(self, v: Array) -> Array:
        return self.At.reshape(-1, v.size) @ v.reshape(-1)

    def factor(self, h: Array, g: Array) -> tuple[Array, Array, Array]:
        d = self.At.shape[0]
        X = root_times(self.flat, h, g, self.At).reshape(d, -1)
        return inverse_cholesky(lifted(gram(X) + jnp.eye(d, dtype=X.dtype))), h, g

    def through(self, L: Array, x: Array) -> Array:
        return (L @ x) @ L

    def stretched(self, size: Array) -> "Columns":
        return eqx.tree_at(lambda at: at.At, self, size[:, None, None] * self.At)


def root_times(flat: bool, h: Array, g: Array, x: Array) -> Array:
    """Return F'x with M^-1 = F F', F = D (I - t a a'), D = diag(h)^-1/2; x may have an axis before
    (n, k).

    a = D g / |D g|, 1 - t = (1 + |D g|^2)^-1/2. Simplex: a = D 1 / |D 1|, t = 1; x counts up to
    a constant in each block, so the entry of largest D is made zero first: else it cancels, and
    a vertex costs all digits.
    """
    if x.ndim > h.ndim:
        h = h[None]
        g = g[None]
    if flat:
        top = jnp.argmin(h, axis=-1, keepdims=True)
        x = x - jnp.take_along_axis(
            x, jnp.broadcast_to(top, (*x.shape[:-1], 1)), axis=-1
        )
    return _flatten(flat, h, g, jax.lax.rsqrt(h) * x)


def _flatten(flat: bool, h: Array, g: Array, x: Array) -> Array:
    """Return (I - t a a') x."""
    root = jax.lax.rsqrt(h)
    a = root if flat else root * g
    size = jnp.sum(a * a, axis=-1, keepdims=True)
    a = a / jnp.sqrt(jnp.where(size > 0, size, jnp.ones_like(size)))
    along = a * jnp.sum(a * x, axis=-1, keepdims=True)
    if flat:
        return x - along
    t = 1 - jax.lax.rsqrt(1 + size)
    return x - t * along


def root_of_response(a: Array, b: Array | None, x: Array) -> Array:
    """Return F'x with F F' = diag(a) - b b', positive semidefinite; x may have an axis before (n, k).

    F = D (I - t u u' / |u|^2), D = diag(a)^1/2, u = D^-1 b, 1 - t = (1 - |u|^2)^1/2.
    """
    root = jnp.sqrt(a)
    x = root * x if x.ndim == a.ndim else root[None] * x
    if b is None:
        return x
    moves = root > 0
    u = jnp.where(moves, b / jnp.where(moves, root, jnp.ones_like(root)), 0)
    size = jnp.sum(u * u, axis=-1, keepdims=True)
    t = 1 - jnp.sqrt(jnp.maximum(1 - size, 0))
    share = t / jnp.where(size > 0, size, jnp.ones_like(size))
    if x.ndim > a.ndim:
        u = u[None]
        share = share[None]
    return x - share * u * jnp.sum(u * x, axis=-1, keepdims=True)


def over(flat: bool, h: Array, g: Array, x: Array) -> Array:
    """Return M^-1 x."""
    return jax.lax.rsqrt(h) * _flatten(flat, h, g, root_times(flat, h, g, x))


System = Rows | AbstractColumns
