"""The prox-linear subproblem of a problem, solved to a certified gap: shapes choose the method, dual.py does the work.

min_x  sum_i c_i f(u_i + J_i (x - w)) + weight/2 |x - center|^2 + offset
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..checks import check_parameters, number
from ..compiled import compiled
from ..cost import Cost, Status
from ..outers import L2, AbstractBox, AbstractProximable, AbstractSupport, LInf, Max, Origin
from ..outers.sets import AbstractCone, Ball, Box, CrossPolytope, Simplex, Space, norms
from ..problem import AbstractProblem, Quadratic, check_problem
from ..types import Params, dtype_of, is_parameter, parameters
from . import dual
from .pivoting import FEW

JACOBIAN_BYTES = 2**30  # a dense Jacobian above this is not formed ...
ORDER = 6000  # ... nor a Gram matrix of a larger order: a factorisation would take minutes


class Expansion(eqx.Module):
    """u_i and J_i at w, c_i J_i dense: what the subproblems of one w with different kappa share."""

    u: Float[Array, "m k"]
    jacobian: Float[Array, "m k d"]


class Answer(eqx.Module):
    """The minimiser, the value there, the certified gap, and what it took; v are the dual variables (n, k).

    The gap is that of w as it is returned, rounded; `error` is the part of it that bounds rounding. `scale` is the size
    of F at the anchor, the sum of its terms without their signs: what tolerances are relative to.
    """

    w: Params
    v: Array
    value: Array
    gap: Array
    error: Array
    scale: Array
    iterations: Array
    counts: dict[str, Array]


class General(AbstractCone):
    """Any V by its projection, for first-order methods."""

    support: AbstractSupport

    def maximizer(self, z: Array, rho: Array) -> Array:
        smooth = eqx.filter_vmap(self.support.project)(z / jnp.where(rho > 0, rho, jnp.ones_like(rho))[:, None])
        return jnp.where(rho[:, None] > 0, smooth, eqx.filter_vmap(self.support.argmax)(z))

    def drift(self, z: Array, v: Array, rho: Array, error: Array) -> Array:
        return 2 * jnp.asarray(self.support.radius(z.shape[-1]), z.dtype) * norms(error)


class Subsolver(eqx.Module):
    """How to solve subproblems: the relative gap wanted, and the iterations a matrix-free solve may take."""

    tol: Array = eqx.field(default=1e-10, converter=jnp.asarray)
    max_iterations: int = eqx.field(default=20000, static=True)

    def check(self, problem: AbstractProblem) -> None:
        """Raise a sentence if f has no projection to work with."""
        dual_form(problem)

    def dense(self, problem: AbstractProblem, w: Params) -> bool:
        """Whether the Jacobian and the smaller of the two Gram matrices can be formed (shapes alone)."""
        m, k = problem.coefficients().shape[0], problem.outputs(w)
        d = sum(x.size for x in jax.tree.leaves(parameters(w)))
        formed = m * k * d * dtype_of(w).itemsize <= JACOBIAN_BYTES and min(m * k, d) <= ORDER
        return formed and not isinstance(cone_of(problem)[0], General)

    def expand(self, problem: AbstractProblem, w: Params) -> Expansion | None:
        return Expansion(*self.placed(problem, w).expand(w)) if self.dense(problem, w) else None

    def solve(self, problem: AbstractProblem, w: Params, expansion: Expansion | None = None, v0: Any = None) -> Answer:
        """The minimiser of a linearised problem with a quadratic; w gives the scale |F(w)| of the tolerance."""
        problem = self.placed(problem, w)
        original, anchor = problem.expanded_at()
        if expansion is None:
            expansion = self.expand(original, anchor)
        dtype = dtype_of(w)
        quadratic = quadratic_of(problem)
        weight, center, offset = quadratic.weight.astype(dtype), quadratic.center, quadratic.offset.astype(dtype)
        c = problem.coefficients().astype(dtype)
        cone, rho = cone_of(problem)
        rho = jnp.asarray(rho).astype(dtype) * c
        away = optax.tree.sub(center, parameters(anchor))
        if expansion is None:
            at = original.stack(anchor)
            r = at + original.push(anchor, away)
        else:
            at = expansion.u
            r = at + expansion.jacobian @ ravel_pytree(away)[0]
        b = c[:, None] * r
        at = c[:, None] * at
        scale = jnp.sum(jnp.abs(cone.value(at, rho))) + jnp.abs(quadratic.value(anchor))
        tol = self.target(scale) / 2  # the other half is left to rounding
        if expansion is None:
            push = lambda d: c[:, None] * original.push(anchor, d)
            pull = lambda v: original.pull(anchor, c[:, None] * v)
            found = dual.solve_matrix_free(push, pull, b, rho, weight, cone, tol, self.max_iterations, v0)
            x, v, steps = optax.tree.add(center, found.d), found.v, found.iterations
            moved = optax.tree.sub(x, parameters(anchor))
            # J is not at hand: its rows are taken to be of the size that |B| leaves each of them
            n, k = at.shape
            sizes = norms(at) + found.spread * optax.tree.norm(moved) / n**0.5
            error = jnp.broadcast_to(dual.rounding(_count(x), dtype) * sizes[:, None] / k**0.5, at.shape)
            turn = dual.rounding(at.size, dtype) * found.spread * jnp.sqrt(jnp.sum(v * v)) / weight
            away, blur = optax.tree.sub(x, center), _blur(x, center) + turn
            judged = dual.certificate(cone, rho, weight, at + push(moved), error, v, away, pull(v), blur)
            counts = {"applies": found.applies + 1, "transposes": found.transposes + 1}
        else:
            B = c[:, None, None] * expansion.jacobian
            d, v, steps = dual.minimize_dense(B, b, rho, weight, cone, tol, v0)
            flat, unravel = ravel_pytree(center)
            new = flat + d
            x, counts = unravel(new), {}
            moved = new - ravel_pytree(parameters(anchor))[0]
            judged = dual.certify_dense(B, at, rho, weight, cone, v, moved, new - flat, _blur(new, flat))
        return Answer(x, v, judged.value + offset, judged.gap, judged.error, scale, steps, counts)

    def placed(self, problem: AbstractProblem, w: Params) -> AbstractProblem:
        """Rows on several devices stay there if the system is of order d, or none is formed; one of order m k is
        solved whole on each of them."""
        m, k = problem.coefficients().shape[0], problem.outputs(w)
        d = sum(x.size for x in jax.tree.leaves(parameters(w)))
        adds_up = m == 1 or (2 * d < m * k and m * k > FEW)
        return problem if problem.split is None or adds_up or not self.dense(problem, w) else problem.gathered()

    def target(self, scale: Array) -> Array:
        """The gap wanted where F is of this size: tol times it, tol at least 100 eps."""
        limits = jnp.finfo(scale.dtype)
        tol = jnp.maximum(self.tol.astype(scale.dtype), 100 * limits.eps)
        return jnp.maximum(tol * scale, limits.tiny / limits.eps)  # below that a gap underflows

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        """Of one solve at w: the expansion, or the stack and the pushes and pulls of a matrix-free solve."""
        price = problem.prices(w)
        if self.dense(problem, w):
            return {"step": price.expand}
        return {"step": price.value + price.push, "applies": price.push, "transposes": price.pull}


def cone_of(problem: AbstractProblem) -> tuple[AbstractCone, Any]:
    """The set V of the dual variables as a cone, and rho: f*(v) = indicator of V + rho/2 |v|^2."""
    support, rho = dual_form(problem)
    if isinstance(support, AbstractBox):
        return Box(*support.bounds()), rho
    known = {L2: Ball, Max: Simplex, Origin: Space}
    if type(support) in known:
        return known[type(support)](), rho
    return (CrossPolytope() if isinstance(support, LInf) else General(support)), rho


def _count(w: Params) -> int:
    return sum(x.size for x in jax.tree.leaves(w))


def _blur(x: Params, center: Params) -> Array:
    """What rounding may have done to x - center: center is the result of a few operations itself."""
    eps = jnp.finfo(dtype_of(x)).eps
    return 2 * eps * (optax.tree.norm(x) + optax.tree.norm(center))


def quadratic_of(problem: AbstractProblem) -> Quadratic:
    """The quadratic of a subproblem, or a sentence."""
    if problem.quadratic is None or problem.quadratic.center is None:
        raise ValueError("A subproblem needs a proximal term; call regularize(kappa, w) with kappa > 0 first.")
    return problem.quadratic


def dual_form(problem: AbstractProblem) -> tuple[AbstractSupport, Any]:
    """(s, rho) of f, or a sentence where f has an oracle in place of a projection."""
    if not isinstance(problem.outer, AbstractProximable):
        raise TypeError(
            f"The exact prox-linear step needs an outer function with a projection; {type(problem.outer).__name__} "
            f"has an oracle instead. Take pli."
        )
    return problem.outer.dual_form()


class Subsolution(eqx.Module):
    """The exact prox-linear step `w`, the subproblem's `value` there, its certified `gap`, `iterations`, `status`.

    The gap is absolute; `relative_gap` is the gap over the size of F at the start, the sum of its terms without signs.
    """

    w: Params
    value: float = eqx.field(static=True)
    gap: float = eqx.field(static=True)
    relative_gap: float = eqx.field(static=True)
    iterations: int = eqx.field(static=True)
    status: Status = eqx.field(static=True)


def solve_subproblem(problem: AbstractProblem, w: Params, kappa: Any, tol: Any = 1e-10) -> Subsolution:
    """argmin_x sum_i c_i f(u_i(w) + J_i(w) (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2, to a certified gap.

    The gap bounds value - minimum, for the `w` that is returned, rounding included. Status "converged" means that it is
    at most tol times the size of F(w), the sum of its terms without signs; "almost" that only the bound of rounding is
    above that: this arithmetic cannot tell more. `tol` is raised to 100 eps where it is below. The value includes the
    proximal term and the ridge.
    """
    check_problem(problem, "solve_subproblem")
    kappa = number(kappa, "kappa", low=0.0, open=True)
    solver = Subsolver(number(tol, "tol", low=0.0, open=True))
    solver.check(problem)
    w = check_parameters(w, problem.data)
    at, rest = eqx.partition(w, is_parameter)
    answer, target = _solve(solver, problem.bind(rest), at, kappa)
    gap, error = float(answer.gap), float(answer.error)
    if gap <= float(target):
        status = Status.converged
    elif gap - error <= float(target):
        status = Status.almost
    elif int(answer.iterations) >= solver.max_iterations:
        status = Status.budget
    else:
        status = Status.stalled
    relative = gap / max(float(answer.scale), float(target))
    return Subsolution(eqx.combine(answer.w, rest), float(answer.value), gap, relative, int(answer.iterations), status)


@compiled
def _solve(solver: Subsolver, problem: AbstractProblem, w: Params, kappa: Array) -> tuple[Answer, Array]:
    answer = solver.solve(problem.linearize(w).regularize(kappa, w), w)
    return answer, solver.target(answer.scale)
