"""The first-order expansion of a trajectory, kept as a chain of stages.

    x_{t+1} = A_t x_t + B_t e_t,     z_t = H_t x_t + G_t e_t,     x_0 = 0,     t = 0, ..., T - 1

A push is a pass forward, and a pull a pass backward: both take time linear in the horizon T.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..rollouts import Links
from .expansion import Expansion


class Chain(eqx.Module):
    """The blocks u_t, their coefficients c_t, and the links through which they depend on the controls w."""

    w: Float[Array, "T m"]
    c: Float[Array, " T"]
    u: Float[Array, "T k"]
    A: Float[Array, "T s s"]
    B: Float[Array, "T s m"]
    H: Float[Array, "T k s"]
    G: Float[Array, "T k m"]

    def push(self, direction: Float[Array, "T m"]) -> Float[Array, "T k"]:
        """Return J direction."""
        x = forward(self.A, times(self.B, direction))
        return times(self.H, x) + times(self.G, direction)

    def pull(self, v: Float[Array, "T k"]) -> Float[Array, "T m"]:
        """Return J' v."""
        after = backward(self.A, back(self.H, v))
        return back(self.G, v) + back(self.B, after)

    def dense(self) -> Expansion:
        """Return the expansion with its Jacobian (T, k, T m), of T^2 entries."""
        horizon, m = self.w.shape
        size = horizon * m
        basis = jnp.eye(size, dtype=self.u.dtype).reshape(size, horizon, m)
        columns = jax.vmap(self.push)(basis)
        return Expansion(self.w, self.c, self.u, jnp.moveaxis(columns, 0, -1))


def chain(w: Array, c: Array, u: Array, links: Links) -> Chain:
    """Return the chain of these links: H = C A and G = C B + D, as stage t sees x_{t+1}."""
    H = jnp.einsum("tks,tsr->tkr", links.C, links.A)
    G = jnp.einsum("tks,tsm->tkm", links.C, links.B) + links.D
    return Chain(w, c, u, links.A, links.B, H, G)


def times(M: Float[Array, "T a b"], x: Float[Array, "T b"]) -> Float[Array, "T a"]:
    """Return M_t x_t."""
    return jnp.einsum("tab,tb->ta", M, x)


def back(M: Float[Array, "T a b"], y: Float[Array, "T a"]) -> Float[Array, "T b"]:
    """Return M_t' y_t."""
    return jnp.einsum("tab,ta->tb", M, y)


def forward(A: Float[Array, "T s s"], b: Float[Array, "T s"]) -> Float[Array, "T s"]:
    """Return x_0, ..., x_{T-1} with x_{t+1} = A_t x_t + b_t and x_0 = 0."""

    def step(x: Array, link: tuple[Array, Array]) -> tuple[Array, Array]:
        A, b = link
        return A @ x + b, x

    _, x = jax.lax.scan(step, jnp.zeros_like(b[0]), (A, b))
    return x


def backward(A: Float[Array, "T s s"], b: Float[Array, "T s"]) -> Float[Array, "T s"]:
    """Return p_1, ..., p_T with p_t = A_t' p_{t+1} + b_t and p_T = 0."""

    def step(p: Array, link: tuple[Array, Array]) -> tuple[Array, Array]:
        A, b = link
        return p @ A + b, p

    _, p = jax.lax.scan(step, jnp.zeros_like(b[0]), (A, b), reverse=True)
    return p
