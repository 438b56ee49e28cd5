"""Block dual coordinate ascent on a linearised problem: parameter-free, with a gap.

min_x sum_i c_i f(u_i(x)) + weight/2 |x - center|^2,     x(v) = center - (1/weight) sum_i c_i J_i' v_i
block i:  min_{v in V} a/2 (v - v_i)' G_i (v - v_i) - <v - v_i, u_i> + rho/2 |v|^2,   a = c_i / weight, G_i = J_i J_i'
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ..problem import AbstractProblem
from ..types import Key, Params, dtype_of
from .solve import dual_form, quadratic_of

ROUNDS = 20  # of accelerated projected gradient on one k x k block, cheap beside its JVP and VJP


class BlockDual(eqx.Module):
    """Epochs of n block steps, in random order with replacement, on a linearised problem with a quadratic."""

    def grams(self, problem: AbstractProblem) -> Float[Array, "n k k"]:
        """G_i = J_i J_i', one sample at a time: k VJPs each, no J is kept."""
        original, anchor = problem.plain().expanded_at()

        def one(sample: AbstractProblem) -> Array:
            jacobian = sample.expand(anchor)[1][0]
            return jacobian @ jacobian.T

        return problem.whole(original.each(one))

    def inside(self, problem: AbstractProblem, w: Params) -> Array:
        """v_i = the point of V nearest to 0."""
        k = problem.outputs(w)
        support, _ = dual_form(problem)
        return jnp.broadcast_to(support.project(jnp.zeros((k,), dtype_of(w))), (len(problem), k))

    def start(self, problem: AbstractProblem, v: Array) -> Params:
        """x(v)."""
        center = quadratic_of(problem).center
        weight, c = self._scales(problem, center)
        pulled = problem.plain().pull(center, c[:, None] * v)
        return optax.tree.add_scale(center, -1 / weight, pulled)

    def epoch(self, problem: AbstractProblem, x: Params, v: Array, grams: Array, key: Key) -> tuple[Params, Array]:
        """n exact block steps."""
        n = len(problem)
        weight, c = self._scales(problem, x)
        losses = problem.plain()
        support, rho = dual_form(problem)
        rho = jnp.asarray(rho).astype(v.dtype)

        def body(carry: tuple[Params, Array], i: Array) -> tuple[tuple[Params, Array], None]:
            x, v = carry
            one = losses[i]
            u, pull = jax.vjp(lambda p: one.stack(p)[0], x)
            new = _block(support, grams[i] * (c[i] / weight), u, v[i], rho)
            x = optax.tree.add_scale(x, -c[i] / weight, pull(new - v[i])[0])
            return (x, v.at[i].set(new)), None

        drawn = jax.random.randint(key, (n,), 0, n, jnp.int32)
        x, v = jax.lax.scan(body, (x, problem.whole(v)), drawn)[0]
        return x, problem.whole(v)  # on both sides: else XLA splits v in the loop, and gathers it at each step

    def gap(self, problem: AbstractProblem, x: Params, v: Array) -> Array:
        """F(x) - D(v) = sum_i c_i [f(u_i) - <v_i, u_i> + f*(v_i)] >= 0 at x = x(v), where f* is finite on V."""
        u = problem.plain().stack(x)
        _, rho = dual_form(problem)
        _, c = self._scales(problem, x)
        young = jax.vmap(problem.outer.value)(u) - jnp.sum(u * v, axis=1)
        return jnp.sum(c * (young + jnp.asarray(rho).astype(v.dtype) / 2 * jnp.sum(v * v, axis=1)))

    def _scales(self, problem: AbstractProblem, x: Params) -> tuple[Array, Array]:
        dtype = dtype_of(x)
        return quadratic_of(problem).weight.astype(dtype), problem.whole(problem.coefficients().astype(dtype))


def _block(support: Any, gram: Array, u: Array, v: Array, rho: Array) -> Array:
    """min_{x in V} 1/2 (x - v)' G (x - v) - <x - v, u> + rho/2 |x|^2 by accelerated projected gradient."""
    size = jnp.trace(gram) if gram.shape[0] <= 2 else jnp.sqrt(jnp.sum(gram * gram))  # >= the largest eigenvalue
    bound = jnp.maximum(size + rho, jnp.finfo(u.dtype).tiny ** 0.5)

    def round(carry: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], None]:
        x, y = carry
        gradient = gram @ (y - v) - u + rho * y
        new = support.project(y - gradient / bound)
        return (new, new + j / (j + 3) * (new - x)), None

    rounds = jnp.arange(ROUNDS, dtype=u.dtype)
    return jax.lax.scan(round, (v, v), rounds)[0][0]
