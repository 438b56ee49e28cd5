"""The certificate of a subproblem: a bound of P(d) - min P, rounding included.

    P(d) = sum_i f_i(b_i + B_i d) + weight/2 |d|^2,        f_i(z) = max_{v in V} <z, v> - rho_i/2 |v|^2
    gap(d, v) = sum_i [f_i(z_i) - <v_i, z_i> + rho_i/2 |v_i|^2] + weight/2 |d + B'v / weight|^2,      z = b + B d

For any d and any v in V^n: P(d) - min P <= gap(d, v). It is computed in floating point, so a bound
of what rounding may hide is added to it.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .. import trees
from ..outers.sets import AbstractSet
from ..penalties import Penalties
from ..types import Params


class Certificate(eqx.Module):
    """P at a point, its gap, and `error`: the part of the gap that bounds rounding, and no
    iteration can take away.
    """

    value: Array
    gap: Array
    error: Array


class Seen(eqx.Module):
    """What a certificate is computed from: z = b + B d and x - center + B'v / weight, each with its
    error.

    `z_error` is (n, k); `away` is x - center, a tree or a vector, and `pulled` is B'v; `away_error` bounds the norm of
    the error of away + pulled / weight.
    """

    z: Array
    z_error: Array
    away: Any
    pulled: Any
    away_error: Array


def certify(
    V: AbstractSet, rho: Array, weight: Array, v: Array, seen: Seen
) -> Certificate:
    """Return the certificate of the pair (x, v), v in V^n."""
    rest = trees.norm(trees.add_scale(seen.away, 1 / weight, seen.pulled))
    gap = jnp.sum(V.excess(seen.z, v, rho)) + weight / 2 * rest**2
    of_z = jnp.sum(V.drift(seen.z, v, rho, seen.z_error))
    of_x = weight * seen.away_error * (rest + seen.away_error / 2)
    error = of_z + of_x + _underflow(seen.z)
    value = jnp.sum(V.value(seen.z, rho)) + weight / 2 * trees.vdot(
        seen.away, seen.away
    )
    total = gap + error
    return Certificate(value, jnp.where(jnp.isfinite(total), total, jnp.inf), error)


def certify_penalized(
    V: AbstractSet,
    rho: Array,
    weight: Array,
    v: Array,
    seen: Seen,
    x: Params,
    center: Params,
    penalty: Penalties,
) -> Certificate:
    """Return the certificate of (x, v) for P + g: x is compared with the minimiser x* that v has.

    gap = sum_i excess_i + [g(x) - g(x*) - <s, x - x*>] + weight/2 |x - x*|^2,     x* = prox_{g / weight}(y)

    with y = center - B'v / weight and s = weight (y - x*). It moves by at most weight |x - x*| for each unit that y
    moves, and the prox is no farther off than y is.
    """
    y = trees.add_scale(center, -1 / weight, seen.pulled)
    best = penalty.prox(y, 1 / weight)
    slope = trees.scale(weight, trees.sub(y, best))
    rest = trees.norm(trees.sub(x, best))
    beyond = penalty.excess(x, best, slope)
    gap = jnp.sum(V.excess(seen.z, v, rho)) + beyond + weight / 2 * rest**2
    of_z = jnp.sum(V.drift(seen.z, v, rho, seen.z_error))
    of_x = weight * seen.away_error * (rest + seen.away_error / 2)
    error = of_z + of_x + 4 * jnp.finfo(gap.dtype).eps * beyond + _underflow(seen.z)
    value = jnp.sum(V.value(seen.z, rho)) + penalty.value(x)
    value = value + weight / 2 * trees.vdot(seen.away, seen.away)
    total = gap + error
    return Certificate(value, jnp.where(jnp.isfinite(total), total, jnp.inf), error)


def rounding(terms: int, dtype: Any) -> Array:
    """Return the relative error of a sum of so many products.

    Errors of rounding are as good as independent, so they grow with the root of the terms (Higham
    and Mary 2019). The 4 stands for the few operations around the sum, and eps, which is twice the
    unit round-off, for a margin of two.
    """
    return jnp.asarray((4 + terms**0.5) * jnp.finfo(dtype).eps, dtype)


def _underflow(z: Array) -> Array:
    """Return what underflow may hide in a sum over z."""
    return jnp.asarray(z.size * jnp.finfo(z.dtype).tiny, z.dtype)
