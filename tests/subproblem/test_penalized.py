"""Subproblems with a penalty, against cvxpy with Clarabel, and their certificate against a NumPy
twin of the formula.

    gap(x, v) = sum_i [f(z_i) - <v_i, z_i> + f*(v_i)] + phi(x) - min phi,     phi(x) = g(x) + weight/2 |x - y|^2

with y = center - B'v / weight.
"""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import subproblem
from proxlin.penalties import as_penalties
from proxlin.problem import Expansion, Quadratic
from zoo import GroupNorm

pytestmark = pytest.mark.reference

WIDE, TALL = (5, 2, 18), (12, 3, 6)
OUTERS = {
    "l1": px.L1(),
    "l2": px.L2(),
    "squares": px.SquaredL2(),
    "huber": px.Huber(0.5),
    "linf": px.LInf(),
    "max": px.Max(),
    "quantile": px.Quantile(0.2),
}
LOW = np.where(np.arange(18) % 3 == 0, -np.inf, -0.1)
HIGH = np.where(np.arange(18) % 4 == 0, np.inf, 0.2)
PENALTIES = {
    "bounds": lambda d: px.Bounds(LOW[:d], HIGH[:d]),
    "nonnegative": lambda d: px.NonNegative(),
    "l1": lambda d: px.L1Penalty(0.2),
    "groups": lambda d: px.GroupL2(0.15),
}


@eqx.filter_jit
def solve(at, quadratic, penalty, f, tol):
    return subproblem.solve(at, quadratic, f, tol, penalty=penalty)


def draw(shape, seed):
    """A subproblem whose x is (d / 3, 3): groups are rows of it."""
    n, k, d = shape
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(d // 3, 3))
    jacobian = rng.normal(size=(n, k, d))
    u = 2 * rng.normal(size=(n, k))
    c = rng.uniform(0.5, 2, n) / n
    return w, c, u, jacobian


def in_cvxpy(outer, z):
    import cvxpy as cp

    if isinstance(outer, px.L1):
        return cp.norm1(z)
    if isinstance(outer, px.L2):
        return cp.norm(z, 2)
    if isinstance(outer, px.SquaredL2):
        return cp.sum_squares(z) / 2
    if isinstance(outer, px.Huber):
        return cp.sum(cp.huber(z, 0.5)) / 2
    if isinstance(outer, px.LInf):
        return cp.norm_inf(z)
    if isinstance(outer, px.Max):
        return cp.max(z)
    return cp.sum(cp.maximum(0.8 * z, -0.2 * z))


def by_clarabel(outer, name, w, c, u, jacobian, kappa):
    """The least value, through cvxpy."""
    import cvxpy as cp

    d = w.size
    x = cp.Variable(d)
    total = kappa / 2 * cp.sum_squares(x - w.ravel())
    for ci, ui, Ji in zip(c, u, jacobian, strict=True):
        total += ci * in_cvxpy(outer, ui + Ji @ (x - w.ravel()))
    constraints = []
    if name == "bounds":
        low, high = LOW[:d], HIGH[:d]
        below, above = np.isfinite(low), np.isfinite(high)
        constraints = [x[below] >= low[below], x[above] <= high[above]]
    if name == "nonnegative":
        constraints = [x >= 0]
    if name == "l1":
        total += 0.2 * cp.norm1(x)
    if name == "groups":
        total += 0.15 * sum(cp.norm(x[3 * i : 3 * i + 3], 2) for i in range(d // 3))
    problem = cp.Problem(cp.Minimize(total), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(
            solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
        )
    return float(problem.value)


def ours(outer, penalty, w, c, u, jacobian, kappa, dtype=jnp.float64, tol=1e-10):
    as_array = lambda x: jnp.asarray(x, dtype)
    at = Expansion(*map(as_array, (w, c, u, jacobian)))
    quadratic = Quadratic(as_array(kappa), as_array(w), as_array(0.0))
    return solve(at, quadratic, penalty, outer, as_array(tol))


# Each outer function and each penalty is in the quick ones; all pairs are among the slow ones.
PAIRS = [
    pytest.param(f, name, marks=[pytest.mark.slow] * ((i + j) % 4 > 0))
    for i, f in enumerate(OUTERS)
    for j, name in enumerate(PENALTIES)
]


@pytest.mark.parametrize("shape", [WIDE, TALL], ids=["wide", "tall"])
@pytest.mark.parametrize(("f", "name"), PAIRS)
def test_never_above_clarabel_to_a_certified_gap(f, name, shape):
    outer = OUTERS[f]
    d = shape[-1]
    given = PENALTIES[name](d)
    if name == "bounds":
        given = px.Bounds(LOW[:d].reshape(-1, 3), HIGH[:d].reshape(-1, 3))
    penalty = as_penalties(given)
    for kappa, seed in ((1.0, 1), (1e-3, 2)):
        w, c, u, jacobian = draw(shape, seed)
        w = np.asarray(penalty.nearest(jnp.asarray(w)))
        answer = ours(outer, penalty, w, c, u, jacobian, kappa)
        assert float(answer.gap) <= 1e-10 * float(answer.scale)
        assert np.isfinite(penalty.value(answer.w))  # within the bounds
        peer = by_clarabel(outer, name, w, c, u, jacobian, kappa)
        assert float(answer.value) <= peer + 1e-8
        assert float(answer.value) >= peer - 1e-7
        if seed == 2 and shape == WIDE and name != "groups":  # fewer rows than entries
            assert np.any(np.asarray(penalty.kinks(answer.w)))


def twin_gap(outer, name, w, c, u, jacobian, kappa, x, v):
    """The certificate of (x, v) in NumPy, for f = l1 and separable g."""
    d = w.size
    z = u + jacobian @ (x - w).ravel()
    young = np.sum(c[:, None] * np.abs(z) - c[:, None] * v * z)
    y = w.ravel() - np.einsum("n,nk,nkd->d", c, v, jacobian) / kappa
    x = x.ravel()
    if name == "l1":
        best = np.sign(y) * np.maximum(np.abs(y) - 0.2 / kappa, 0)
        g = lambda x: 0.2 * np.abs(x).sum()
    else:
        best = np.clip(y, LOW[:d], HIGH[:d])
        g = lambda x: 0.0
    phi = lambda x: g(x) + kappa / 2 * np.sum((x - y) ** 2)
    return young + phi(x) - phi(best)


@pytest.mark.parametrize("name", ["l1", "bounds"])
def test_the_certificate_is_the_formula(name):
    w, c, u, jacobian = draw(TALL, 3)
    given = px.L1Penalty(0.2)
    if name == "bounds":
        given = px.Bounds(LOW[:6].reshape(-1, 3), HIGH[:6].reshape(-1, 3))
    penalty = as_penalties(given)
    w = np.asarray(penalty.nearest(jnp.asarray(w)))
    for tol in (1e-1, 1e-4, 1e-10):
        answer = ours(px.L1(), penalty, w, c, u, jacobian, 0.5, tol=tol)
        x, v = np.asarray(answer.w), np.asarray(answer.v)
        assert np.all(np.abs(v) <= 1)
        twin = twin_gap(px.L1(), name, w, c, u, jacobian, 0.5, x, v)
        assert twin <= float(answer.gap) <= twin + float(answer.error) + 1e-12


def test_a_penalty_of_weight_0_and_far_bounds_change_nothing():
    w, c, u, jacobian = draw(TALL, 4)
    plain = ours(px.L1(), None, w, c, u, jacobian, 0.3)
    for given in (
        px.L1Penalty(0.0),
        px.GroupL2(0.0),
        px.Bounds(-1e6, 1e6),
        px.Bounds(),
    ):
        answer = ours(px.L1(), as_penalties(given), w, c, u, jacobian, 0.3)
        assert abs(float(answer.value - plain.value)) <= 2e-10 * float(plain.scale)


def test_fixed_parameters_stay_and_float32_is_certified():
    w, c, u, jacobian = draw(TALL, 5)
    fixed = np.arange(6).reshape(2, 3) % 2 == 0
    low, high = np.where(fixed, w, -np.inf), np.where(fixed, w, np.inf)
    penalty = as_penalties(px.Bounds(low, high))
    answer = ours(px.L2(), penalty, w, c, u, jacobian, 0.3)
    assert np.array_equal(np.asarray(answer.w)[fixed], w[fixed])
    assert float(answer.gap) <= 1e-10 * float(answer.scale)
    free = ours(px.L2(), None, w, c, u, np.where(fixed.ravel(), 0, jacobian), 0.3)
    assert abs(float(answer.value - free.value)) <= 2e-10 * float(free.scale)
    small = ours(px.L2(), penalty, w, c, u, jacobian, 0.3, dtype=jnp.float32)
    assert small.w.dtype == jnp.float32
    assert float(small.gap) <= 1e-4 * float(small.scale)
    assert np.isclose(float(small.value), float(answer.value), rtol=1e-4)


class Slope(px.AbstractPenalty):
    """A user's penalty: a sum_j x_j for x >= 0."""

    a: float = 0.1

    def value(self, x):
        return jnp.where(jnp.all(x >= 0), self.a * jnp.sum(x), jnp.inf)

    def subgradient(self, x):
        return jnp.full_like(x, self.a)

    def prox(self, x, step):
        return jnp.maximum(x - step * self.a, 0)


@pytest.mark.parametrize("case", ["a user's penalty", "a user's set", "matrix-free"])
def test_first_order_steps_reach_the_same_minimum(case, monkeypatch):
    """Where there is no barrier or no matrix, the answer is certified all the same."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(9, 4)), rng.normal(size=(9, 2))
    outer = GroupNorm() if case == "a user's set" else px.L2()
    penalty = Slope() if case == "a user's penalty" else px.L1Penalty(0.05)
    inner = lambda w, s: jnp.tanh(s[0] @ w) - s[1]
    p = px.MeanOfLosses(inner, outer, (x, y), penalty=penalty)
    w = jnp.abs(jnp.asarray(rng.normal(size=(4, 2))))
    if case == "matrix-free":
        exact = px.solve_subproblem(p, w, 0.5)
        monkeypatch.setattr(subproblem.exact, "JACOBIAN_BYTES", 1)
        px.clear_caches()
    found = px.solve_subproblem(p, w, 0.5, tol=1e-8)
    assert found.status == "converged" and found.relative_gap <= 1e-8
    assert np.isfinite(p.value(found.w))
    if case == "matrix-free":
        assert abs(found.value - exact.value) <= 2e-8
        assert np.array_equal(np.asarray(found.w) == 0, np.asarray(exact.w) == 0)
        px.clear_caches()


def test_the_step_is_a_function_for_vmap_and_jit():
    w, c, u, jacobian = draw(TALL, 7)
    lams = jnp.asarray([0.01, 0.2, 3.0])
    at = Expansion(*map(jnp.asarray, (w, c, u, jacobian)))

    def go(lam):
        quadratic = Quadratic(jnp.asarray(0.5), at.w, jnp.asarray(0.0))
        penalty = as_penalties(px.L1Penalty(lam))
        tol = jnp.asarray(1e-10)
        return subproblem.solve(at, quadratic, px.L1(), tol, penalty=penalty)

    answers = jax.jit(jax.vmap(go))(lams)
    assert np.all(np.asarray(answers.gap) <= 1e-10 * np.asarray(answers.scale))
    zeros = np.sum(np.asarray(answers.w) == 0, axis=(1, 2))
    assert zeros[0] <= zeros[1] <= zeros[2] and zeros[2] == 6
