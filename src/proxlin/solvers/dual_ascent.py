"""Block dual coordinate ascent on a linearised problem: it has no parameter, and it knows its gap.

    min_x sum_i c_i f(u_i(x)) + weight/2 |x - center|^2,     x(v) = center - (1/weight) sum_i c_i J_i' v_i
                                                (of that the prox of g / weight, where there is a penalty g)
    block i:  min_{v in V} a/2 (v - v_i)' G_i (v - v_i) - <v - v_i, u_i> + rho/2 |v|^2,     G_i = J_i J_i'

with a = c_i / weight.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import trees
from ..cost import Cost, Prices
from ..outers import AbstractProximable
from ..outers.sets import AbstractSet
from ..problem import AbstractProblem, MeanOfLosses, Quadratic
from ..subproblem import dual_set
from ..types import Key, Params, dtype_of
from .base import AbstractInnerSolver, Info

# of accelerated projected gradient on one k x k block, cheap beside its JVP and VJP
ROUNDS = 20


class DualState(eqx.Module):
    """The primal point x(v), the dual variables, and the Gram matrices of the blocks; with a penalty
    also the point `ahead` of which x(v) is the prox.
    """

    w: Params
    v: Float[Array, "n k"]
    grams: Float[Array, "n k k"]
    ahead: Params | None = None


class DualAscent(AbstractInnerSolver):
    """Epochs of n exact block steps, in random order with replacement, on a linearised problem with
    a quadratic.
    """

    problems = MeanOfLosses
    outers = AbstractProximable
    takes_penalty = True

    def init(self, problem: AbstractProblem, w: Params) -> DualState:
        return self.restart(problem, w, self.remember(problem, w), None)

    def remember(self, problem: AbstractProblem, w: Params) -> Array:
        """Return v_i = the point of V nearest to 0."""
        V, _ = dual_set(problem.outer)
        return V.project(jnp.zeros((len(problem), problem.outputs(w)), dtype_of(w)))

    def restart(
        self, problem: AbstractProblem, w: Params, memory: Array, seen: None
    ) -> DualState:
        grams = self._grams(problem)
        center = _quadratic(problem).center
        weight, c = _scales(problem, center)
        pulled = problem.plain().pull(center, c[:, None] * memory)
        ahead = trees.add_scale(center, -1 / weight, pulled)
        if problem.penalty is None:
            return DualState(ahead, memory, grams)
        x = problem.penalty.prox(ahead, 1 / weight)
        return DualState(x, memory, grams, ahead)

    def keep(self, state: DualState) -> Array:
        return state.v

    def step(
        self, problem: AbstractProblem, state: DualState, drawn: Key
    ) -> tuple[DualState, Info]:
        n = len(problem)
        weight, c = _scales(problem, state.w)
        losses = problem.plain()
        V, rho = dual_set(problem.outer)
        rho = jnp.asarray(rho).astype(state.v.dtype)

        def body(
            carry: tuple[Params, Array], i: Array
        ) -> tuple[tuple[Params, Array], None]:
            x, v = carry
            one = losses[i]
            u, pull = jax.vjp(lambda p: one.stack(p)[0], respond(x))
            new = _block(V, state.grams[i] * (c[i] / weight), u, v[i], rho)
            x = trees.add_scale(x, -c[i] / weight, pull(new - v[i])[0])
            return (x, v.at[i].set(new)), None

        penalty = problem.penalty
        respond = lambda x: x if penalty is None else penalty.prox(x, 1 / weight)
        start = state.w if penalty is None else state.ahead
        indices = jax.random.randint(drawn, (n,), 0, n, jnp.int32)
        x, v = jax.lax.scan(body, (start, problem.whole(state.v)), indices)[0]
        # Whole on both sides of the loop: else XLA splits v in it over devices, and gathers it at
        # each step.
        v = problem.whole(v)
        if penalty is None:
            return DualState(x, v, state.grams), Info()
        return DualState(respond(x), v, state.grams, x), Info()

    def gap(self, problem: AbstractProblem, state: DualState) -> Array:
        """Return F(x) - D(v) = sum_i c_i [f(u_i) - <v_i, u_i> + f*(v_i)] >= 0 at x = x(v), where f*
        is finite on V.
        """
        v = state.v
        u = problem.plain().stack(state.w)
        _, rho = dual_set(problem.outer)
        _, c = _scales(problem, state.w)
        young = jax.vmap(problem.outer.value)(u) - jnp.sum(u * v, axis=1)
        conjugate = jnp.asarray(rho).astype(v.dtype) / 2 * jnp.sum(v * v, axis=1)
        return jnp.sum(c * (young + conjugate))

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        original, _ = problem.expanded_at()
        price = problem.prices(w)
        init = original.prices(w).expand + price.pull + price.value
        # The first pull and the gap share phi at the anchor.
        if problem.in_one_chunk(w):
            init = init + Cost(phi=-len(problem))
        return Prices(step=price.subgradient, init=init, epoch=price.subgradient)

    def check(self, problem: AbstractProblem) -> None:
        if not isinstance(problem.outer, AbstractProximable):
            raise TypeError(
                f'pli(inner="dual") needs an outer function with a projection; {type(problem.outer).__name__} has an '
                f'oracle instead. Take pli(kappa, nu, inner="casimir_svrg").'
            )

    def _grams(self, problem: AbstractProblem) -> Float[Array, "n k k"]:
        """Return G_i = J_i J_i', one sample at a time: k VJPs each, no J is kept."""
        original, anchor = problem.plain().expanded_at()

        def one(sample: AbstractProblem) -> Array:
            jacobian = sample.expand(anchor).jacobian[0]
            return jacobian @ jacobian.T

        return problem.whole(original.each(one))


def _quadratic(problem: AbstractProblem) -> Quadratic:
    if problem.quadratic is None or problem.quadratic.center is None:
        raise ValueError(
            "A subproblem needs a proximal term; call regularize(kappa, w) with kappa > 0 first."
        )
    return problem.quadratic


def _scales(problem: AbstractProblem, x: Params) -> tuple[Array, Array]:
    """Return the weight of the quadratic and the coefficients c."""
    dtype = dtype_of(x)
    return _quadratic(problem).weight.astype(dtype), problem.whole(
        problem.coefficients().astype(dtype)
    )


def _block(V: AbstractSet, gram: Array, u: Array, v: Array, rho: Array) -> Array:
    """Return argmin_{x in V} 1/2 (x - v)' G (x - v) - <x - v, u> + rho/2 |x|^2 by accelerated
    projected gradient.
    """
    # Both are at least the largest eigenvalue; for two rows the trace is the tighter one.
    size = jnp.trace(gram) if gram.shape[0] <= 2 else jnp.sqrt(jnp.sum(gram * gram))
    bound = jnp.maximum(size + rho, jnp.finfo(u.dtype).tiny ** 0.5)

    def round(carry: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], None]:
        x, y = carry
        gradient = gram @ (y - v) - u + rho * y
        new = V.project((y - gradient / bound)[None])[0]
        return (new, new + j / (j + 3) * (new - x)), None

    rounds = jnp.arange(ROUNDS, dtype=u.dtype)
    return jax.lax.scan(round, (v, v), rounds)[0][0]
