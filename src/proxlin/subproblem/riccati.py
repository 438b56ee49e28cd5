"""The linear systems of a trajectory, in time linear in the horizon: C = I + A' M^-1 A is an LQR problem.

    min_e  1/2 |e|^2 + 1/2 sum_t z_t' N_t z_t + sum_t <r_t, e_t> + <N_t q_t, z_t>          N_t = M_t^-1
    x_{t+1} = A_t x_t + B_t e_t,     z_t = H_t x_t + G_t e_t,     x_0 = 0

The cost-to-go from stage t on is 1/2 x'P_t x + <p_t, x>, and e_t = K_t x_t + k_t. P and K do not depend on r and q:
`factor` computes them in one pass backward, and `through` and `solve` need one pass backward for p and one forward for
x.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..outers.sets import AbstractSet
from ..problem import AbstractProblem, Chain, Trajectory
from ..problem.chain import back, backward, forward, times
from ..types import Params
from .certificate import rounding
from .structured import AbstractStructured
from .systems import AbstractColumns, inverse_cholesky, lifted, over, root_times

# What one stage costs, in operations of a dense factorisation: the loops are short, and their turns
# take longer than their sums.
STAGE = 5e4


class Stagewise(AbstractStructured):
    """The expansion of a trajectory; where `apart` is set, each entry of a stage is a block of its own."""

    by_entries: ClassVar[bool] = True
    quick: ClassVar[bool] = True

    w: Params
    c: Float[Array, " m"]
    u: Float[Array, "m k"]
    chain: Chain
    apart: bool = eqx.field(static=True)

    @classmethod
    def fits(cls, problem: AbstractProblem, w: Params) -> bool:
        return isinstance(problem, Trajectory)

    @classmethod
    def of(cls, problem: AbstractProblem, w: Params) -> "Stagewise":
        assert isinstance(problem, Trajectory)
        chain = problem.chain(w)
        return cls(w, chain.c, chain.u, chain, apart=False)

    @classmethod
    def operations(cls, problem: AbstractProblem, w: Params) -> float:
        assert isinstance(problem, Trajectory)
        return len(problem) * STAGE

    def entries(self) -> "Stagewise":
        """Return the same map with each entry as a block of its own."""
        k = self.u.shape[1]
        u = self.u.reshape(-1, 1)
        return Stagewise(self.w, jnp.repeat(self.c, k), u, self.chain, apart=True)

    def _stages(self, v: Array) -> Array:
        """Return an array of all blocks as (T, k)."""
        return v.reshape(self.chain.u.shape)

    def push(self, d: Float[Array, " d"]) -> Float[Array, "m k"]:
        return self.chain.push(d.reshape(self.chain.w.shape)).reshape(self.u.shape)

    def pull(self, v: Float[Array, "m k"]) -> Float[Array, " d"]:
        return self.chain.pull(self._stages(v)).reshape(-1)

    def push_error(self, d: Float[Array, " d"]) -> Float[Array, "m k"]:
        """Carry the variance of the rounding errors of the states through the chain.

        Absolute values of A_t, multiplied up, would bound nothing: they grow where the states
        oscillate. The errors are as good as independent, as in `rounding`.
        """
        at = self.chain
        e = d.reshape(at.w.shape)
        x = forward(at.A, times(at.B, e))
        terms = rounding(at.A.shape[1] + at.B.shape[2], e.dtype)
        local = terms * (times(abs(at.A), abs(x)) + times(abs(at.B), abs(e)))
        carried = _deviations(at.A, local, at.H, reverse=False)
        here = terms * (times(abs(at.H), abs(x)) + times(abs(at.G), abs(e)))
        return (carried + here).reshape(self.u.shape)

    def pull_error(self, v: Float[Array, "m k"]) -> Float[Array, " d"]:
        at = self.chain
        v = self._stages(v)
        p = backward(at.A, back(at.H, v))
        terms = rounding(at.A.shape[1] + at.H.shape[1], v.dtype)
        local = terms * (back(abs(at.A), abs(p)) + back(abs(at.H), abs(v)))
        turned = jnp.swapaxes(at.A, 1, 2)
        carried = _deviations(turned, local, jnp.swapaxes(at.B, 1, 2), reverse=True)
        here = terms * (back(abs(at.B), abs(p)) + back(abs(at.G), abs(v)))
        return (carried + here).reshape(-1)

    def system(self, scale: Float[Array, " m"], V: AbstractSet) -> "Riccati":
        at = self.chain
        scale = jnp.broadcast_to(scale[:, None], self.u.shape)
        scale = self._stages(scale)[:, :, None]
        return Riccati(  # pyright: ignore[reportCallIssue]  (width is a property)
            A=at.A,
            B=at.B,
            H=scale * at.H,
            G=scale * at.G,
            flat=V.flat,
            apart=self.apart,
        )


def _deviations(A: Array, local: Array, H: Array, reverse: bool) -> Array:
    """Return the deviations of H_t x_t, x_{t+1} = A_t x_t + independent errors of the sizes `local`."""

    def step(S: Array, link: tuple[Array, Array]) -> tuple[Array, Array]:
        A, size = link
        return A @ S @ A.T + jnp.diag(size * size), S

    s = A.shape[-1]
    none = jnp.zeros((s, s), A.dtype)
    _, S = jax.lax.scan(step, none, (A, local), reverse=reverse)
    return jnp.sqrt(jnp.maximum(jnp.einsum("tas,tsr,tar->ta", H, S, H), 0))


class Feedback(eqx.Module):
    """What a factorisation keeps: the gains K_t, A_t + B_t K_t, and L_t^-1 with L_t L_t' the curvature in
    e_t.
    """

    K: Float[Array, "T m s"]
    closed: Float[Array, "T s s"]
    L: Float[Array, "T m m"]


class Riccati(AbstractColumns):
    """The system of A_t = scale_t J_t through the recursion of an LQR problem."""

    A: Float[Array, "T s s"]
    B: Float[Array, "T s m"]
    H: Float[Array, "T k s"]
    G: Float[Array, "T k m"]
    flat: bool = eqx.field(static=True)
    apart: bool = eqx.field(static=True)

    @property
    def width(self) -> int:
        horizon, _, m = self.B.shape
        return horizon * m

    def blocks(self) -> int:
        horizon, k, _ = self.H.shape
        return horizon * k if self.apart else horizon

    def _stages(self, v: Array) -> Array:
        return v.reshape(self.H.shape[:2])

    def _blocks(self, z: Array) -> Array:
        return z.reshape(-1, 1) if self.apart else z

    def _controls(self, e: Array) -> Array:
        return e.reshape(self.B.shape[0], self.B.shape[2])

    def push(self, e: Array) -> Array:
        e = self._controls(e)
        x = forward(self.A, times(self.B, e))
        return self._blocks(times(self.H, x) + times(self.G, e))

    def pull(self, v: Array) -> Array:
        v = self._stages(v)
        p = backward(self.A, back(self.H, v))
        return (back(self.G, v) + back(self.B, p)).reshape(-1)

    def stretched(self, size: Array) -> "Riccati":
        columns = self._controls(size)[:, None]
        return eqx.tree_at(
            lambda at: (at.B, at.G), self, (self.B * columns, self.G * columns)
        )

    def factor(self, h: Array, g: Array) -> tuple[Feedback, Array, Array]:
        columns = jnp.concatenate([self.H, self.G], axis=2)  # of (x_t, e_t)
        rows = jnp.moveaxis(columns, 2, 0)
        if self.apart:
            rows = rows.reshape(rows.shape[0], -1, 1)
        rooted = root_times(self.flat, h, g, rows)
        rooted = rooted.reshape(columns.shape[2], *self.H.shape[:2])
        stage = jnp.einsum("atk,btk->tab", rooted, rooted)
        return self._gains(stage), h, g

    def _gains(self, stage: Float[Array, "T n n"]) -> Feedback:
        """Run the recursion of P backward; `stage` is the curvature of stage t in (x_t, e_t) without
        |e|^2.
        """
        s = self.A.shape[1]
        one = jnp.eye(self.B.shape[2], dtype=stage.dtype)
        state = jnp.eye(s, dtype=stage.dtype)
        links = jnp.concatenate([self.A, self.B], axis=2)

        def step(P: Array, link: tuple[Array, Array]) -> tuple[Array, Any]:
            Q, AB = link
            Q = Q + AB.T @ P @ AB
            L = _inverse_root(lifted(Q[s:, s:] + one))
            K = -L.T @ (L @ Q[s:, :s])
            # P = [I K'] (Q + |e|^2) [I; K] is a sum of squares also where K is rounded; the shorter
            # Qxx - Qxe Qee^-1 Qex is a difference that cancels.
            both = jnp.concatenate([state, K])
            P = both.T @ Q @ both + K.T @ K
            return (P + P.T) / 2, (K, L)

        start = jnp.zeros_like(self.A[0])
        _, (K, L) = jax.lax.scan(step, start, (stage, links), reverse=True)
        closed = self.A + jnp.einsum("tsm,tmr->tsr", self.B, K)
        return Feedback(K, closed, L)

    def _respond(self, found: Feedback, r: Array, v: Array | None) -> Array:
        """Return e for r and v = N q, in stages (T, m)."""
        along = r
        slope = back(found.K, r)
        if v is not None:
            along = r + back(self.G, v)
            slope = back(self.H, v) + back(found.K, along)
        p = backward(found.closed, slope)
        k = -back(found.L, times(found.L, along + back(self.B, p)))
        x = forward(found.closed, times(self.B, k))
        return times(found.K, x) + k

    def through(self, L: Feedback, x: Array) -> Array:
        return self._respond(L, -self._controls(x), None).reshape(-1)

    def solve(self, factor: Any, r: Array, q: Array) -> tuple[Array, Array]:
        """Return (dv, de); the pull of q is a part of the pass backward."""
        found, h, g = factor
        v = self._stages(over(self.flat, h, g, q))
        de = self._respond(found, self._controls(r), v).reshape(-1)
        return over(self.flat, h, g, q + self.push(de)), de


def _inverse_root(G: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Return L^-1 with L L' = G; one or two controls are written out, as a call costs more."""
    if G.shape[0] == 1:
        return jax.lax.rsqrt(G)
    if G.shape[0] == 2:
        a = jax.lax.rsqrt(G[0, 0])
        b = G[1, 0] * a
        c = jax.lax.rsqrt(G[1, 1] - b * b)
        return jnp.stack(
            [jnp.stack([a, jnp.zeros_like(a)]), jnp.stack([-a * b * c, c])]
        )
    return inverse_cholesky(G)
