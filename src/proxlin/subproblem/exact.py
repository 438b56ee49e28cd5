"""The prox-linear subproblem, solved to a certified gap: the one entry of this room is `solve`.

    min_x  sum_i c_i f(u_i + J_i (x - w)) + weight/2 |x - center|^2 + offset + g(x)

`expand(problem, w)` gives the expansion (w, c, u, J), or a linear map where J is too large to form.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .. import trees
from ..checks import check_parameters, number
from ..compiled import compiled
from ..cost import Prices, Status
from ..inners import check_touched
from ..outers import AbstractOuter, AbstractProximable, Parts
from ..outers.sets import AbstractSet, norms
from ..penalties import Penalties
from ..precision import in_the_precision_of_w
from ..problem import AbstractProblem, Expansion, LinearMap, Quadratic, check_problem
from ..types import Params, dtype_of, is_parameter, parameters
from .certificate import Certificate, Seen, certify, certify_penalized, rounding
from .dense import Matrix, certify_dense, minimize_dense, push
from .matrix_free import minimize_matrix_free
from .penalized import minimize_by_prox, minimize_penalized, snapped
from .pivoting import FEW
from .riccati import Stagewise
from .sparse import Sparse
from .structured import (
    AbstractStructured,
    Weighted,
    certify_structured,
    minimize_structured,
)

MOST = 20_000  # iterations of a matrix-free solve
JACOBIAN_BYTES = 2**30  # A dense Jacobian above this is not formed ...
# ... nor a Gram matrix of a larger order, or by more operations: each of some ten would take minutes.
ORDER = 6000
OPERATIONS = 2**39
# The structures of a Jacobian that an exact step knows; the first that fits is taken.
KINDS: tuple[type[AbstractStructured], ...] = (Sparse, Stagewise)


class Apart(eqx.Module):
    """A `LinearMap` with every entry as a block of its own."""

    at: LinearMap
    w: Params
    c: Array
    u: Array

    def push(self, direction: Params) -> Array:
        return self.at.push(direction).reshape(-1, 1)

    def pull(self, v: Array) -> Params:
        return self.at.pull(v.reshape(self.at.u.shape))


class Answer(eqx.Module):
    """The minimiser, the value there, the certified gap, and what it took; v are the dual variables
    (m, k).

    The gap is that of w as it is returned, rounded; `error` is the part of it that bounds rounding.
    `scale` is the size of F at the anchor, the sum of its terms without their signs: what
    tolerances are relative to. `start` is F there, so that the step promises a decrease of start -
    value. `pushes` and `pulls` count the calls of a matrix-free solve.
    """

    w: Params
    v: Array
    value: Array
    gap: Array
    error: Array
    scale: Array
    iterations: Array
    pushes: Array
    pulls: Array
    start: Array | None = None


def structure(problem: AbstractProblem, w: Params) -> type[AbstractStructured] | None:
    """Return the structure of the Jacobian that an exact step uses, from shapes alone; None where it
    has none, or where a penalty needs a matrix, as groups of w do.
    """
    if problem.penalty is not None and not problem.penalty.by_entries():
        return None
    mixed = isinstance(problem.outer, Parts)  # each entry has an interval of its own
    kinds = [kind for kind in KINDS if kind.by_entries or not mixed]
    return next((kind for kind in kinds if kind.fits(problem, w)), None)


def is_dense(problem: AbstractProblem, w: Params) -> bool:
    """Whether the Jacobian and the smaller of the two Gram matrices are formed, from shapes alone."""
    if structure(problem, w) is not None:
        return False
    m, k, d = _sizes(problem, w)
    order = min(m * k, d)
    fits = m * k * d * dtype_of(w).itemsize <= JACOBIAN_BYTES
    return fits and order <= ORDER and 2 * m * k * d * order <= OPERATIONS


def is_exact(problem: AbstractProblem, w: Params) -> bool:
    """Whether an exact step factors a system: without one it counts its pushes and pulls."""
    return structure(problem, w) is not None or is_dense(problem, w)


def ends_early(problem: AbstractProblem, w: Params) -> bool:
    """Whether `solve` takes dual variables to start from and a share of the decrease as its gap, from shapes
    alone.
    """
    kind = structure(problem, w)
    return kind is not None and kind.by_newton and problem.penalty is None


def operations(problem: AbstractProblem, w: Params) -> float:
    """Return about how many operations one factorisation takes, from shapes alone."""
    kind = structure(problem, w)
    if kind is not None:
        return kind.operations(problem, w)
    m, k, d = _sizes(problem, w)
    order = min(m * k, d)
    return float(2 * m * k * d * order + order**3)


def expand(
    problem: AbstractProblem, w: Params
) -> Expansion | LinearMap | AbstractStructured:
    """Return the expansion at w, with its structure where it has one, or dense where that can be
    formed.

    Rows on several devices stay there if the system is of order d, or none is formed; a system of
    order m k is solved whole on each device.
    """
    kind = structure(problem, w)
    if kind is not None:
        return kind.of(problem.gathered(), w)
    if not is_dense(problem, w):
        return problem.linear_map(w)
    m, k, d = _sizes(problem, w)
    adds_up = m == 1 or (2 * d < m * k and m * k > FEW)
    if not adds_up:
        problem = problem.gathered()
    return problem.expand(w)


def prices(problem: AbstractProblem, w: Params) -> Prices:
    """Return what one solve at w costs: the expansion, or the stack and the pushes and pulls of a
    matrix-free solve.
    """
    price = problem.prices(w)
    if is_exact(problem, w):
        return Prices(step=price.expand)
    return Prices(step=price.value, push=price.push, pull=price.pull)


def _sizes(problem: AbstractProblem, w: Params) -> tuple[int, int, int]:
    """Return the number of blocks, of outputs and of parameters."""
    d = sum(x.size for x in jax.tree.leaves(parameters(w)))
    # Traced, as its operations would be compiled one by one for every new shape.
    m = jax.eval_shape(problem.coefficients).shape[0]
    return m, problem.outputs(w), d


def solve(
    expansion: Expansion | LinearMap | AbstractStructured,
    quadratic: Quadratic,
    f: AbstractOuter,
    tol: Array,
    *,
    penalty: Penalties | None = None,
    v0: Array | None = None,
    share: float | None = None,
    max_iterations: int | None = None,
) -> Answer:
    """Return the minimiser, to a gap of at most tol times the size of F at the anchor, tol at least
    100 eps.

    v0 are dual variables to start from. With a share, a method that can (see `ends_early`) also ends
    where the gap is at most this share of the decrease since the anchor. The weight of the quadratic
    is a number, or a vector where w is one and the expansion is dense. With a penalty the weight is
    a number, and v0 is not used.
    """
    V, rho = dual_set(f)
    most = MOST if max_iterations is None else max_iterations
    m, k = expansion.u.shape
    entries = V.entries(m)
    if entries is None:
        return _by_method(expansion, quadratic, V, rho, tol, penalty, v0, share, most)
    # Each entry has an interval and a rho of its own: it becomes a block.
    apart = _apart(expansion)
    rhos = jnp.tile(jnp.asarray(rho), m)
    start = None if v0 is None else v0.reshape(-1, 1)
    answer = _by_method(
        apart, quadratic, entries, rhos, tol, penalty, start, share, most
    )
    return eqx.tree_at(lambda found: found.v, answer, answer.v.reshape(m, k))


def _apart(
    expansion: Expansion | LinearMap | AbstractStructured,
) -> Expansion | Apart | AbstractStructured:
    """Return the same map with every entry as a block of its own."""
    if isinstance(expansion, AbstractStructured):
        return expansion.entries()
    k = expansion.u.shape[1]
    c = jnp.repeat(expansion.c, k)
    u = expansion.u.reshape(-1, 1)
    if isinstance(expansion, LinearMap):
        return Apart(expansion, expansion.w, c, u)
    d = expansion.jacobian.shape[-1]
    return Expansion(expansion.w, c, u, expansion.jacobian.reshape(-1, 1, d))


def _by_method(
    expansion: Expansion | LinearMap | Apart | AbstractStructured,
    quadratic: Quadratic,
    V: AbstractSet,
    rho: Any,
    tol: Array,
    penalty: Penalties | None,
    v0: Array | None,
    share: float | None,
    most: int,
) -> Answer:
    dtype = dtype_of(expansion.w)
    c = expansion.c
    rho = jnp.asarray(rho).astype(dtype) * c
    u = c[:, None] * expansion.u
    terms = V.value(u, rho)
    others = [_at(quadratic, expansion.w)]
    if penalty is not None:
        others.append(penalty.value(expansion.w))
    size = jnp.sum(jnp.abs(terms)) + sum(jnp.abs(x) for x in others)
    start = jnp.sum(terms) + sum(others)
    goal = target(tol, size) / 2  # the other half is left to rounding
    if penalty is not None:
        answer = _penalized(expansion, quadratic, penalty, V, rho, u, size, goal, most)
    elif isinstance(expansion, Expansion):
        answer = _dense(expansion, quadratic, V, rho, u, size, goal, v0)
    elif isinstance(expansion, AbstractStructured):
        answer = _structured(expansion, quadratic, V, rho, u, size, goal, v0, share)
    else:
        answer = _matrix_free(expansion, quadratic, V, rho, u, size, goal, v0, most)
    return replace(answer, start=start)


def target(tol: Array, size: Array) -> Array:
    """Return the gap wanted where F is of this size: tol times it, tol at least 100 eps."""
    limits = jnp.finfo(size.dtype)
    tol = jnp.maximum(tol.astype(size.dtype), 100 * limits.eps)
    # below that a gap underflows
    return jnp.maximum(tol * size, limits.tiny / limits.eps)


def dual_set(f: AbstractOuter) -> tuple[AbstractSet, Any]:
    """Return (V, rho) with f* = indicator of V + rho/2 |.|^2, or raise a sentence where f has an
    oracle instead.
    """
    if not isinstance(f, AbstractProximable):
        raise TypeError(
            f"The exact prox-linear step needs an outer function with a projection; {type(f).__name__} "
            f"has an oracle instead. Take pli."
        )
    support, rho = f.dual_form()
    return support.dual_set(), rho


def _dense(
    expansion: Expansion,
    quadratic: Quadratic,
    V: AbstractSet,
    rho: Array,
    u: Array,
    size: Array,
    goal: Array,
    v0: Array | None,
) -> Answer:
    """Solve in e = root (x - center), root = sqrt(weight), where the quadratic is 1/2 |e|^2."""
    dtype = u.dtype
    anchor, unravel = ravel_pytree(parameters(expansion.w))
    center, _ = ravel_pytree(quadratic.center)
    root = jnp.broadcast_to(jnp.sqrt(quadratic.weight.astype(dtype)), anchor.shape)
    B = expansion.c[:, None, None] * expansion.jacobian / root[None, None, :]
    b = u + push(B, root * (center - anchor))
    e, v, steps = minimize_dense(B, b, rho, V, goal, v0)
    x = center + e / root
    # The certificate is that of x, which is rounded, and is measured from the anchor, where u is
    # exact.
    moved = root * (x - anchor)
    away = root * (x - center)
    found = certify_dense(B, u, rho, V, v, moved, away, _blur(root * x, root * center))
    value = found.value + quadratic.offset.astype(dtype)
    none = jnp.int32(0)
    return Answer(unravel(x), v, value, found.gap, found.error, size, steps, none, none)


def _structured(
    expansion: AbstractStructured,
    quadratic: Quadratic,
    V: AbstractSet,
    rho: Array,
    u: Array,
    size: Array,
    goal: Array,
    v0: Array | None,
    share: float | None,
) -> Answer:
    """Solve in e = root (x - center) as `_dense` does, with the structure in place of a matrix; the
    weight is a number.
    """
    dtype = u.dtype
    anchor, unravel = ravel_pytree(parameters(expansion.w))
    center, _ = ravel_pytree(quadratic.center)
    root = jnp.sqrt(quadratic.weight.astype(dtype))
    B = Weighted(expansion, expansion.c / root)
    b = u + B.push(root * (center - anchor))
    e0 = root * (anchor - center)
    e, v, steps = minimize_structured(B, b, rho, V, goal, e0, v0, share)
    x = center + e / root
    # The certificate is that of x, as in `_dense`.
    moved = root * (x - anchor)
    away = root * (x - center)
    blur = _blur(root * x, root * center)
    found = certify_structured(B, u, rho, V, v, moved, away, blur)
    value = found.value + quadratic.offset.astype(dtype)
    none = jnp.int32(0)
    return Answer(unravel(x), v, value, found.gap, found.error, size, steps, none, none)


def _matrix_free(
    expansion: LinearMap | Apart,
    quadratic: Quadratic,
    V: AbstractSet,
    rho: Array,
    u: Array,
    size: Array,
    goal: Array,
    v0: Array | None,
    max_iterations: int,
) -> Answer:
    anchor = parameters(expansion.w)
    center = quadratic.center
    weight = quadratic.weight.astype(u.dtype)
    c = expansion.c[:, None]
    forward = lambda d: c * expansion.push(d)
    back = lambda v: expansion.pull(c * v)
    b = u + forward(trees.sub(center, anchor))
    found = minimize_matrix_free(
        forward, back, b, rho, weight, V, goal, max_iterations, v0
    )
    x = trees.add(center, found.d)
    judged = _certify_free(
        found.v, found.spread, x, anchor, center, weight, V, rho, u, forward, back
    )
    value = judged.value + quadratic.offset.astype(u.dtype)
    # One push for b, one push and one pull for the certificate.
    pushes = found.pushes + 2
    pulls = found.pulls + 1
    return Answer(
        x, found.v, value, judged.gap, judged.error, size, found.steps, pushes, pulls
    )


def _penalized(
    expansion: Expansion | LinearMap | Apart | AbstractStructured,
    quadratic: Quadratic,
    penalty: Penalties,
    V: AbstractSet,
    rho: Array,
    u: Array,
    size: Array,
    goal: Array,
    max_iterations: int,
) -> Answer:
    """Solve with the penalty: by an interior point where the Jacobian is at hand and V and g have
    barriers, else by first-order steps.
    """
    weight = quadratic.weight.astype(u.dtype)
    center = quadratic.center
    if isinstance(expansion, Expansion | AbstractStructured):
        found = _penalized_exact(
            expansion, weight, center, penalty, V, rho, u, goal, max_iterations
        )
    else:
        found = _penalized_free(
            expansion, weight, center, penalty, V, rho, u, goal, max_iterations
        )
    x, v, judged, steps, pushes, pulls = found
    value = judged.value + quadratic.offset.astype(u.dtype)
    return Answer(x, v, value, judged.gap, judged.error, size, steps, pushes, pulls)


def _penalized_exact(
    expansion: Expansion | AbstractStructured,
    weight: Array,
    center: Params,
    penalty: Penalties,
    V: AbstractSet,
    rho: Array,
    u: Array,
    goal: Array,
    max_iterations: int,
) -> tuple[Params, Array, Certificate, Array, Array, Array]:
    anchor, unravel = ravel_pytree(parameters(expansion.w))
    middle, _ = ravel_pytree(center)
    root = jnp.sqrt(weight)
    if isinstance(expansion, AbstractStructured):
        B = Weighted(expansion, expansion.c / root)
    else:
        B = Matrix(expansion.c[:, None, None] * expansion.jacobian / root)
    b = u + B.push(root * (middle - anchor))
    pair, steps = minimize_penalized(
        B, b, rho, weight, middle, V, penalty, unravel, goal, max_iterations
    )
    v = pair.v
    x = snapped(penalty, unravel, weight, pair.x, middle - B.pull(v) / root)
    moved = root * (x - anchor)
    away = root * (x - middle)
    seen = B.seen(u, v, moved, away, _blur(root * x, root * middle))
    seen = Seen(
        seen.z,
        seen.z_error,
        unravel(x - middle),
        unravel(root * seen.pulled),
        seen.away_error / root,
    )
    judged = certify_penalized(
        V, rho, weight, v, seen, unravel(x), unravel(middle), penalty
    )
    none = jnp.int32(0)
    return unravel(x), v, judged, steps, none, none


def _penalized_free(
    expansion: LinearMap | Apart,
    weight: Array,
    center: Params,
    penalty: Penalties,
    V: AbstractSet,
    rho: Array,
    u: Array,
    goal: Array,
    max_iterations: int,
) -> tuple[Params, Array, Certificate, Array, Array, Array]:
    anchor = parameters(expansion.w)
    c = expansion.c[:, None]
    forward = lambda d: c * expansion.push(d)
    back = lambda v: expansion.pull(c * v)
    b = u + forward(trees.sub(center, anchor))
    found = minimize_by_prox(
        forward, back, b, rho, weight, center, V, penalty, goal, max_iterations
    )
    x = found.pair.x
    v = found.pair.v
    seen = _see_free(v, found.spread, x, anchor, center, weight, u, forward, back)
    judged = certify_penalized(V, rho, weight, v, seen, x, center, penalty)
    # One push for b, one push and one pull for the certificate.
    return x, v, judged, found.steps, found.pushes + 2, found.pulls + 1


def _certify_free(
    v: Array,
    spread: Array,
    x: Params,
    anchor: Params,
    center: Params,
    weight: Array,
    V: AbstractSet,
    rho: Array,
    u: Array,
    push: Any,
    pull: Any,
) -> Certificate:
    """Return the certificate of x."""
    seen = _see_free(v, spread, x, anchor, center, weight, u, push, pull)
    return certify(V, rho, weight, v, seen)


def _see_free(
    v: Array,
    spread: Array,
    x: Params,
    anchor: Params,
    center: Params,
    weight: Array,
    u: Array,
    push: Any,
    pull: Any,
) -> Seen:
    """Return what a certificate of x is computed from. B is not at hand: its rows are taken to be of
    the size that |B| leaves each.
    """
    m, k = u.shape
    moved = trees.sub(x, anchor)
    sizes = norms(u) + spread * trees.norm(moved) / m**0.5
    d = ravel_pytree(x)[0].size
    z_error = jnp.broadcast_to(rounding(d, u.dtype) * sizes[:, None] / k**0.5, u.shape)
    turn = rounding(m * k, u.dtype) * spread * jnp.sqrt(jnp.sum(v * v)) / weight
    return Seen(
        u + push(moved),
        z_error,
        trees.sub(x, center),
        pull(v),
        _blur(x, center) + turn,
    )


def _at(quadratic: Quadratic, w: Params) -> Array:
    """Return the quadratic at w; its weight may be a vector."""
    flat, _ = ravel_pytree(parameters(w))
    center, _ = ravel_pytree(quadratic.center)
    return jnp.sum(
        quadratic.weight.astype(flat.dtype) / 2 * (flat - center) ** 2
    ) + quadratic.offset.astype(flat.dtype)


def _blur(x: Params, center: Params) -> Array:
    """Return what rounding may have done to x - center: the centre is the result of a few
    operations itself.
    """
    eps = jnp.finfo(dtype_of(x)).eps
    return 2 * eps * (trees.norm(x) + trees.norm(center))


class Subsolution(eqx.Module):
    """The answer of `solve_subproblem`: an exact prox-linear step, with its certificate.

    The gap is absolute; `relative_gap` is the gap over the size of F at the start, the sum of its
    terms without signs.

    Parameters
    ----------
    w : a tree
        The minimiser of the subproblem.
    value : a number
        The subproblem's value there.
    gap : a number
        The certified gap, absolute.
    relative_gap : a number
        The gap over the size of F at the start, the sum of its terms without signs.
    iterations : an integer
        The iterations of the solver.
    status : a `Status`
        How it ended.

    See Also
    --------
    solve_subproblem : returns it.
    Solution : the answer of a whole run.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> found = px.solve_subproblem(p, np.array([0.0]), kappa=1.0)
    >>> bool(found.relative_gap < 1e-9), found.status
    (True, <Status.converged: 'converged'>)
    """

    w: Params
    value: float = eqx.field(static=True)
    gap: float = eqx.field(static=True)
    relative_gap: float = eqx.field(static=True)
    iterations: int = eqx.field(static=True)
    status: Status = eqx.field(static=True)


@in_the_precision_of_w
def solve_subproblem(
    problem: AbstractProblem, w: Params, kappa: Any, tol: Any = 1e-10
) -> Subsolution:
    """Return argmin_x sum_i c_i f(u_i(w) + J_i(w) (x - w)) + ridge/2 |x|^2 + g(x) + kappa/2 |x -
    w|^2, to a certified gap; g is the penalty, if there is one.

    The gap bounds value - minimum, for the `w` that is returned, rounding included. Status
    "converged" means that it is at most tol times the size of F(w), the sum of its terms without
    signs; "almost" that only the bound of rounding is above that: this arithmetic cannot tell more.
    `tol` is raised to 100 eps where it is below. The value includes the proximal term and the
    ridge.

    Parameters
    ----------
    problem : a problem
        f must have a projection (see `AbstractProximable`).
    w : a tree
        Where phi is expanded; outside of the bounds of a penalty it is projected onto them.
    kappa : a positive number
        The weight of the proximal term.
    tol : a positive number
        The gap that is asked for, relative to F(w).

    Returns
    -------
    a `Subsolution`
        The minimiser, the value, the gap and a status.

    Raises
    ------
    TypeError
        f has an oracle in place of a projection.
    ValueError
        kappa or tol is not positive.

    See Also
    --------
    prox_linear : takes such steps.
    Subsolution : what comes back.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> found = px.solve_subproblem(p, np.array([0.0]), kappa=1.0)
    >>> round(float(found.w[0]), 3), round(float(found.value), 6)  # w - w_0 = 1 / kappa
    (1.0, 3.5)
    """
    check_problem(problem, "solve_subproblem")
    kappa = number(kappa, "kappa", low=0.0, open=True)
    tol = number(tol, "tol", low=0.0, open=True)
    dual_set(problem.outer)
    w = check_parameters(w, problem.data)
    if not problem.single:
        check_touched(problem.inner, w, problem.data)
    at, rest = eqx.partition(problem.feasible(w), is_parameter)
    answer, wanted = _solve(problem.bind(rest), at, kappa, tol)
    gap = float(answer.gap)
    iterations = int(answer.iterations)
    relative_gap = gap / max(float(answer.scale), float(wanted))
    status = _status(gap, float(answer.error), float(wanted), iterations)
    return Subsolution(
        eqx.combine(answer.w, rest),
        float(answer.value),
        gap,
        relative_gap,
        iterations,
        status,
    )


def _status(gap: float, error: float, wanted: float, iterations: int) -> Status:
    if gap <= wanted:
        return Status.converged
    if gap - error <= wanted:
        return Status.almost
    if iterations >= MOST:
        return Status.budget
    return Status.stalled


@compiled
def _solve(
    problem: AbstractProblem, w: Params, kappa: Array, tol: Array
) -> tuple[Answer, Array]:
    answer = solve(
        expand(problem, w),
        proximal(problem, kappa, w),
        problem.outer,
        tol,
        penalty=problem.penalty,
    )
    return answer, target(tol, answer.scale)


def proximal(problem: AbstractProblem, kappa: Array, w: Params) -> Quadratic:
    """Return the quadratic of the problem plus kappa/2 |x - w|^2."""
    quadratic = problem.regularize(kappa, w).quadratic
    assert quadratic is not None
    return quadratic
