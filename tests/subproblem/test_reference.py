"""The exact subproblem solver against cvxpy with Clarabel, and its certificate against a NumPy twin
of the formula.

gap(d, v) = sum_i [f_i(z_i) - <v_i, z_i> + rho_i/2 |v_i|^2] + kappa/2 |d + B'v / kappa|^2,      z = b + B d
"""

import functools
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.outers.sets import Ball, Box, Simplex, Space
from proxlin.subproblem import exact as subproblem
from proxlin.subproblem.dense import certify_dense, minimize_dense
from proxlin.subproblem.matrix_free import minimize_matrix_free
from zoo import GroupNorm

pytestmark = pytest.mark.reference

QUICK = {"xla_backend_optimization_level": "0"}  # compiling is most of the time here


class Solved(eqx.Module):
    """The minimiser d, the dual variables, P(d), the certified gap, the iterations, and whether tol
    was reached.
    """

    d: Any
    v: Any
    value: Any
    gap: Any
    iterations: Any
    converged: Any


def solve_dense(B, b, rho, kappa, cone, tol, v0=None):
    """The dense solver for a quadratic of weight kappa, whose root goes into B; half of tol is left
    to rounding.
    """
    root = jnp.sqrt(kappa)
    scaled = B / root
    e, v, steps = minimize_dense(scaled, b, rho, cone, tol / 2, v0)
    found = certify_dense(scaled, b, rho, cone, v, e, e, jnp.zeros((), b.dtype))
    return Solved(e / root, v, found.value, found.gap, steps, found.gap <= tol)


solve = jax.jit(solve_dense, compiler_options=QUICK)
# d > nk: nk x nk systems; d < nk / 2: d x d systems
WIDE, TALL = (6, 3, 30), (12, 3, 5)
CONES = {
    "l2": (Ball(), 0.0),
    "group_huber": (Ball(), 1.0),
    "l1": (Box(-1.0, 1.0), 0.0),
    "huber": (Box(-1.0, 1.0), 1.0),
    "hinge": (Box(0.0, 1.0), 0.0),
    "quantile": (Box(-0.7, 0.3), 0.0),
    "max": (Simplex(), 0.0),
    "smooth_max": (Simplex(), 1.0),
    "squared": (Space(), 1.0),
}


# ----------------------------------------------------------------------------------- the NumPy twin


def best(cone, z, rho):
    """argmax_{v in V} <z, v> - rho/2 |v|^2 for one block, naively."""
    if isinstance(cone, Space):
        return z / rho if rho > 0 else 0 * z
    if isinstance(cone, Ball):
        return z / max(np.linalg.norm(z), rho, 1e-300)
    if isinstance(cone, Box):
        low, high = float(cone.low), float(cone.high)
        return np.clip(z / rho, low, high) if rho > 0 else np.where(z > 0, high, low)
    if rho == 0:
        return np.eye(len(z))[np.argmax(z)]
    low, high = np.max(z) - rho, np.max(z)
    for _ in range(200):
        mid = (low + high) / 2
        low, high = (mid, high) if np.maximum(z - mid, 0).sum() > rho else (low, mid)
    v = np.maximum(z - high, 0)
    return v / v.sum() if v.sum() > 0 else np.eye(len(z))[np.argmax(z)]


def value(cone, z, rho):
    v = np.stack([best(cone, zi, ri) for zi, ri in zip(z, rho, strict=True)])
    return np.sum(z * v, axis=1) - rho / 2 * np.sum(v * v, axis=1)


def objective(cone, B, b, rho, kappa, d):
    return value(cone, b + B @ d, rho).sum() + kappa / 2 * d @ d


def certificate(cone, B, b, rho, kappa, d, v):
    z, r = b + B @ d, d + np.einsum("nkd,nk->d", B, v) / kappa
    terms = (
        value(cone, z, rho) - np.sum(v * z, axis=1) + rho / 2 * np.sum(v * v, axis=1)
    )
    return terms.sum() + kappa / 2 * r @ r


def inside(cone, v, slack=1e-12):
    if isinstance(cone, Ball):
        return np.all(np.linalg.norm(v, axis=1) <= 1 + slack)
    if isinstance(cone, Box):
        return np.all((v >= float(cone.low)) & (v <= float(cone.high)))
    if isinstance(cone, Simplex):
        return np.all(v >= 0) and np.allclose(v.sum(axis=1), 1, rtol=0, atol=slack)
    return True


def by_clarabel(cone, B, b, rho, kappa):
    """The minimiser d, through f = support of V, inf-convolved with |s|^2 / (2 rho)."""
    import cvxpy as cp

    d = cp.Variable(B.shape[-1])
    total, constraints = kappa / 2 * cp.sum_squares(d), []
    for Bi, bi, ri in zip(B, b, rho, strict=True):
        z = bi + Bi @ d
        if ri > 0:
            s = cp.Variable(len(bi))
            total += cp.sum_squares(s) / (2 * ri)
            z = z - s
        if isinstance(cone, Ball):
            total += cp.norm(z, 2)
        elif isinstance(cone, Box):
            total += cp.sum(float(cone.high) * cp.pos(z) - float(cone.low) * cp.neg(z))
        elif isinstance(cone, Simplex):
            total += cp.max(z)
        elif ri > 0:
            constraints.append(z == 0)
    problem = cp.Problem(cp.Minimize(total), constraints)
    # 1e-11 is more than Clarabel always reaches; its point is judged by its value alone
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(
            solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
        )
    return np.asarray(d.value)


def draw(rng, shape, rho, weights="equal"):
    n, k, _ = shape
    c = (
        np.ones(n) / n
        if weights == "equal"
        else rng.exponential(size=n) * (rng.random(n) < 0.7) / n
    )
    c[0] = 1 / n
    return (
        rng.standard_normal(shape) * c[:, None, None],
        rng.standard_normal((n, k)) * c[:, None],
        rho * c,
    )


def run(cone, B, b, rho, kappa, tol=1e-9, v0=None, dtype=jnp.float64):
    arrays = (jnp.asarray(x, dtype) for x in (B, b, rho, kappa))
    return solve(
        *arrays,
        cone,
        jnp.asarray(tol, dtype),
        None if v0 is None else jnp.asarray(v0, dtype),
    )


def assert_solved(cone, B, b, rho, kappa, answer, tol):
    d, v = np.asarray(answer.d), np.asarray(answer.v)
    assert bool(answer.converged) and float(answer.gap) <= tol
    assert inside(cone, v)
    assert certificate(cone, B, b, rho, kappa, d, v) <= tol + 1e-12 * max(
        1, abs(float(answer.value))
    )
    exact = objective(cone, B, b, rho, kappa, d)
    assert np.isclose(float(answer.value), exact, rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------------------------ against cvxpy


@pytest.mark.parametrize("shape", [WIDE, TALL], ids=["wide", "tall"])
@pytest.mark.parametrize("name", CONES)
def test_never_above_clarabel(name, shape):
    cone, rho = CONES[name]
    rng = np.random.default_rng(0)
    for kappa, weights in ((1.0, "equal"), (1e-3, "random")):
        B, b, r = draw(rng, shape, rho, weights)
        answer = run(cone, B, b, r, kappa)
        assert_solved(cone, B, b, r, kappa, answer, 1e-9)
        peer = by_clarabel(cone, B, b, r, kappa)
        ours = objective(cone, B, b, r, kappa, np.asarray(answer.d))
        assert ours <= objective(cone, B, b, r, kappa, peer) + 1e-8


@pytest.mark.parametrize(
    "name, shape",
    [
        ("l2", (8, 1, 12)),
        ("l1", (1, 4, 3)),
        ("l2", (1, 4, 9)),
        ("group_huber", (1, 4, 2)),
    ],
)
def test_thin_shapes_against_clarabel(name, shape):
    cone, rho = CONES[name]
    rng = np.random.default_rng(1)
    for kappa in (3.0, 1e-2):
        B, b, r = draw(rng, shape, rho)
        answer = run(cone, B, b, r, kappa)
        assert_solved(cone, B, b, r, kappa, answer, 1e-9)
        peer = by_clarabel(cone, B, b, r, kappa)
        ours = objective(cone, B, b, r, kappa, np.asarray(answer.d))
        assert ours <= objective(cone, B, b, r, kappa, peer) + 1e-8


def test_linf_as_pairs_against_clarabel():
    rng = np.random.default_rng(2)
    for kappa in (1.0, 1e-4):
        B, b, r = draw(rng, WIDE, 0.0)
        B, b = np.concatenate([B, -B], axis=1), np.concatenate([b, -b], axis=1)
        answer = run(Simplex(), B, b, r, kappa)
        assert_solved(Simplex(), B, b, r, kappa, answer, 1e-9)
        peer = by_clarabel(Simplex(), B, b, r, kappa)
        ours = objective(Simplex(), B, b, r, kappa, np.asarray(answer.d))
        assert ours <= objective(Simplex(), B, b, r, kappa, peer) + 1e-8


# ------------------------------------------------------------------------------------ special cases


@pytest.mark.parametrize("name", CONES)
def test_zero_data(name):
    cone, rho = CONES[name]
    B, b, r = draw(np.random.default_rng(3), WIDE, rho)
    for BB, bb in ((B, 0 * b), (0 * B, b), (0 * B, 0 * b)):
        answer = run(cone, BB, bb, r, 0.5)
        assert np.all(np.isfinite(answer.d)) and np.isfinite(answer.gap)
        assert_solved(cone, BB, bb, r, 0.5, answer, 1e-9)


@pytest.mark.parametrize("name", CONES)
def test_extreme_kappa_and_interpolation(name):
    """b in the range of B, so that z = 0 can be reached; kappa from 1e-10 to 1e6."""
    cone, rho = CONES[name]
    rng = np.random.default_rng(4)
    for kappa in (1e-10, 1e-5, 1e6):
        B, _, r = draw(rng, WIDE, rho)
        b = B @ rng.standard_normal(WIDE[-1])
        scale = max(1, np.sum(B**2) / kappa) if isinstance(cone, Simplex) else 1.0
        answer = run(cone, B, b, r, kappa, 1e-9 * scale)
        assert_solved(cone, B, b, r, kappa, answer, 1e-9 * scale)


def test_one_ball_without_residual_and_singular():
    """|kappa G^-1 b| <= 1: z = 0. A repeated row makes G singular."""
    rng = np.random.default_rng(5)
    B = rng.standard_normal((1, 4, 9))
    B[0, 3] = B[0, 2]
    for kappa in (1e-3, 10.0):
        b = B @ rng.standard_normal(9) * 1e-2
        answer = run(Ball(), B, b, np.zeros(1), kappa, 1e-12)
        assert_solved(Ball(), B, b, np.zeros(1), kappa, answer, 1e-12)
    answer = run(Ball(), B, b, np.zeros(1), 1e-3, 1e-12)
    assert np.linalg.norm(b + B @ np.asarray(answer.d)) <= 1e-12


def test_scales():
    """P(t b, sqrt(t) B, t rho) = t P: no scale is special."""
    B, b, r = draw(np.random.default_rng(6), WIDE, 0.0)
    plain = run(Ball(), B, b, r, 1e-2, 1e-10)
    for t in (1e-12, 1e12):
        answer = run(Ball(), np.sqrt(t) * B, t * b, t * r, 1e-2, t * 1e-10)
        assert bool(answer.converged)
        assert np.isclose(float(answer.value), t * float(plain.value), rtol=1e-8)


# ------------------------------------------------------------------------------------------- stress


def hard_case(rng, shape):
    """Spectrum j^-p, p in [0, 2]; normal, heavy-tailed, interpolating b; rows or columns scaled by
    1e-3 to 1e3.
    """
    n, k, d = shape
    m, q = n * k, min(n * k, d)
    U, V = (np.linalg.qr(rng.standard_normal((size, q)))[0] for size in (m, d))
    A = np.sqrt(m) * (U * np.arange(1.0, q + 1) ** -rng.uniform(0, 2)) @ V.T
    b = rng.standard_normal(m)
    match rng.integers(5):
        case 0:
            b = rng.standard_t(1.2, m)
        case 1:
            A *= 10 ** rng.uniform(-3, 3, (m, 1))
        case 2:
            A *= 10 ** rng.uniform(-3, 3, (1, d))
        case 3:
            b = A @ rng.standard_normal(d) + 1e-4 * b
    c = (
        rng.exponential(size=n) * (rng.random(n) < 0.8) / n
        if rng.random() < 0.3
        else np.ones(n) / n
    )
    return A.reshape(shape) * c[:, None, None], b.reshape(n, k) * c[:, None], c


@pytest.mark.parametrize("shape", [WIDE, TALL], ids=["wide", "tall"])
@pytest.mark.parametrize("name", ["l2", "group_huber", "l1", "huber", "hinge", "max"])
def test_stress(name, shape):
    cone, rho = CONES[name]
    rng = np.random.default_rng(7)
    for _ in range(40):
        B, b, c = hard_case(rng, shape)
        kappa = 10 ** rng.uniform(-6, 0)
        size = abs(objective(cone, B, b, rho * c, kappa, np.zeros(shape[-1])))
        # unbounded below but for kappa: the value is of the size of |B|^2 / kappa
        if name == "max":
            size = max(size, np.sum(B**2) / kappa / shape[0])
        answer = run(cone, B, b, rho * c, kappa, 1e-9 * max(1, size))
        assert_solved(cone, B, b, rho * c, kappa, answer, 1e-9 * max(1, size))


# ---------------------------------------------------------------------------- transforms, warm, f32


def test_vmap_over_kappa():
    B, b, r = (jnp.asarray(x) for x in draw(np.random.default_rng(8), WIDE, 0.0))
    kappas = jnp.asarray([1.0, 1e-1, 1e-2, 1e-4])
    tol = jnp.asarray(1e-11)
    many = jax.jit(
        jax.vmap(lambda kappa: solve_dense(B, b, r, kappa, Ball(), tol)),
        compiler_options=QUICK,
    )(kappas)
    assert np.all(many.converged)
    for i, kappa in enumerate(kappas):
        one = solve(B, b, r, kappa, Ball(), tol)
        assert bool(one.converged) and np.isclose(
            one.value, many.value[i], rtol=0, atol=2e-11
        )


def test_warm_start():
    """The solution itself is recognised; a neighbour's helps a little (ADMM is linear); a wrong one
    costs nothing.
    """
    rng = np.random.default_rng(9)
    cold, same, near, wrong = 0, 0, 0, 0
    for _ in range(10):
        B, b, r = draw(rng, WIDE, 0.0)
        plain = run(Ball(), B, b, r, 0.3, 1e-10)
        starts = (
            plain.v,
            run(Ball(), B, b, r, 0.33, 1e-10).v,
            100 * rng.standard_normal(b.shape),
        )
        answers = [run(Ball(), B, b, r, 0.3, 1e-10, v0=v0) for v0 in starts]
        assert all(bool(answer.converged) for answer in answers)
        cold += int(plain.iterations)
        same, near, wrong = (
            t + int(a.iterations)
            for t, a in zip((same, near, wrong), answers, strict=True)
        )
    assert same <= 0.5 * cold and near <= cold and wrong <= 1.2 * cold


@pytest.mark.parametrize("name", ["l2", "huber"])
def test_float32(name):
    cone, rho = CONES[name]
    rng = np.random.default_rng(10)
    for kappa in (1.0, 1e-2):
        B, b, r = draw(rng, WIDE, rho)
        answer = run(cone, B, b, r, kappa, 1e-4, dtype=jnp.float32)
        assert answer.d.dtype == jnp.float32 and answer.gap.dtype == jnp.float32
        assert bool(answer.converged)
        assert (
            certificate(
                cone, B, b, r, kappa, np.float64(answer.d), np.float64(answer.v)
            )
            <= 1.1e-4
        )


@pytest.mark.parametrize("name", ["max", "linf"])
def test_float32_on_a_simplex(name):
    """The gap is at the level of float32, 100 eps of the numbers in z = b + B d, and it is a true
    one.
    """
    eps, rng = float(jnp.finfo(jnp.float32).eps), np.random.default_rng(10)
    for kappa in (1.0, 1e-2, 1e-4):
        B, b, r = draw(rng, WIDE, 0.0)
        if name == "linf":
            B, b = np.concatenate([B, -B], axis=1), np.concatenate([b, -b], axis=1)
        tol = 100 * eps
        answer = run(Simplex(), B, b, r, kappa, tol, dtype=jnp.float32)
        gap, size = (
            float(answer.gap),
            max(1, np.sum(np.abs(b) + np.abs(B) @ np.abs(answer.d))),
        )
        assert answer.d.dtype == jnp.float32 and answer.gap.dtype == jnp.float32
        assert gap <= 100 * eps * size and bool(answer.converged) == (gap <= tol)
        exact = certificate(
            Simplex(), B, b, r, kappa, np.float64(answer.d), np.float64(answer.v)
        )
        assert exact <= gap <= exact + 20 * eps * size and inside(
            Simplex(), np.asarray(answer.v), 10 * eps
        )


def test_what_is_not_reached_is_not_claimed():
    B, b, r = draw(np.random.default_rng(11), WIDE, 0.0)
    answer = run(Ball(), B, b, r, 1e-2, 1e-30)
    assert not bool(answer.converged) and 1e-30 < float(answer.gap) < 1e-12


# ---------------------------------------------------------------------------------------- real data


def resident_peak(reset: bool = False) -> int:
    """Return the largest memory of this process in KiB, since it was last reset; the tests before
    this one do not count.
    """
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def peak_since(before: int) -> int:
    return resident_peak() - before


LOSSES = {  # f, f(z) in NumPy, V, rho
    "l2": (px.L2(), lambda z: np.linalg.norm(z, axis=1), Ball(), 0.0),
    "l1": (px.L1(), lambda z: np.abs(z).sum(axis=1), Box(-1.0, 1.0), 0.0),
    "huber": (
        px.Huber(0.5),
        lambda z: np.where(np.abs(z) <= 0.5, z**2 / 2, np.abs(z) / 2 - 1 / 8).sum(
            axis=1
        ),
        Box(-0.5, 0.5),
        1.0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_rf1_in_d_by_d(name, data_file):
    """9,125 rows of 8 outputs, a linear model: d = 520, and a Gram matrix of 73,000 rows (40 GiB)
    is never formed.
    """
    text = (
        data_file("tables/rf1.arff").read_text().split("@data")[1].replace("?", "nan")
    )
    table = np.array([line.split(",") for line in text.split()], float)
    table = np.where(np.isnan(table), np.nanmean(table, axis=0), table)
    table = (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-12)
    x, y = (
        np.concatenate([table[:, :-8], np.ones((len(table), 1))], axis=1),
        table[:, -8:],
    )
    outer, f, cone, rho = LOSSES[name]
    problem = px.MeanOfLosses(px.residual(lambda w, x: w @ x), outer, (x, y))
    n, w, kappa = 9125, jnp.zeros((8, 65)), 1e-3
    before = resident_peak(reset=True)
    answer = subproblem._solve(problem, w, jnp.asarray(kappa), jnp.asarray(1e-10))[0]
    assert (len(x), float(answer.gap) <= 1e-10 * float(answer.scale)) == (n, True)
    d, v = np.asarray(answer.w), np.asarray(answer.v)
    assert inside(cone, v)
    z, rest = x @ d.T - y, d + v.T @ x / (n * kappa)
    gap = np.mean(
        f(z) - np.sum(v * z, axis=1) + rho / 2 * np.sum(v**2, axis=1)
    ) + kappa / 2 * np.sum(rest**2)
    assert gap <= 1.01e-10 * float(problem.value(w))
    assert peak_since(before) < 3 * 2**20  # KiB


# -------------------------------------------------------------------------------------- matrix-free


@functools.partial(jax.jit, compiler_options=QUICK)
def by_calls(B, b, rho, kappa, cone, tol, limit):
    def apply(d):
        return jnp.einsum("nkd,d->nk", B, jnp.concatenate([d["a"], d["b"]]))

    def transpose(v):
        d = jnp.einsum("nkd,nk->d", B, v)
        return {"a": d[:2], "b": d[2:]}

    return minimize_matrix_free(apply, transpose, b, rho, kappa, cone, tol, limit)


@pytest.mark.parametrize("name", ["l2", "huber", "hinge", "max", "squared"])
def test_matrix_free_agrees_with_dense(name):
    cone, rho = CONES[name]
    B, b, r = draw(np.random.default_rng(12), WIDE, rho)
    answer = by_calls(
        *(jnp.asarray(x) for x in (B, b, r, 0.1)),
        cone,
        jnp.asarray(1e-9),
        jnp.int32(5000),
    )
    d = np.concatenate([answer.d["a"], answer.d["b"]])
    assert float(answer.gap) <= 1e-9 and inside(cone, np.asarray(answer.v))
    assert certificate(cone, B, b, r, 0.1, d, np.asarray(answer.v)) <= 1e-9 + 1e-13
    assert (
        abs(objective(cone, B, b, r, 0.1, d) - float(run(cone, B, b, r, 0.1).value))
        <= 2e-9
    )
    short = by_calls(
        *(jnp.asarray(x) for x in (B, b, r, 0.1)), cone, jnp.asarray(0.0), jnp.int32(3)
    )
    assert float(short.gap) > 0 and int(short.steps) == 3


def test_matrix_free_counts_its_calls():
    counts = {"apply": 0, "transpose": 0}
    B, b, r = (jnp.asarray(x) for x in draw(np.random.default_rng(13), WIDE, 0.0))

    def counted(name, x):
        counts[name] += 1
        return x

    def apply(d):
        z = jnp.einsum("nkd,d->nk", B, d)
        return jax.pure_callback(
            lambda x: counted("apply", x), jax.ShapeDtypeStruct(z.shape, z.dtype), z
        )

    def transpose(v):
        d = jnp.einsum("nkd,nk->d", B, v)
        return jax.pure_callback(
            lambda x: counted("transpose", x), jax.ShapeDtypeStruct(d.shape, d.dtype), d
        )

    answer = minimize_matrix_free(
        apply, transpose, b, r, jnp.asarray(0.1), Ball(), jnp.asarray(1e-9), 500
    )
    jax.block_until_ready(answer)
    assert float(answer.gap) <= 1e-9
    assert (int(answer.pushes), int(answer.pulls)) == (
        counts["apply"],
        counts["transpose"],
    )


def test_a_hard_case_without_matrices(monkeypatch):
    """kappa = 1e-4 and a 1/j spectrum: some 2,000 steps reach the gap, 300 do not, and say so."""
    n, k, d = 16, 4, 100
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((size, n * k)))[0] for size in (n * k, d))
    A, b = (
        (8 * (U / np.arange(1.0, n * k + 1)) @ V.T).reshape(n, k, d),
        rng.standard_normal((n, k)),
    )
    # a set that only has a projection
    problem = px.MeanOfLosses(lambda w, s: s[0] @ w + s[1], GroupNorm(), (A, b))
    pairs = px.MeanOfLosses(
        lambda w, s: s[0] @ w + s[1],
        px.L2(),
        (A.reshape(2 * n, 2, d), b.reshape(2 * n, 2)),
    )  # the same, twice as many and half as heavy
    w, kappa = jnp.zeros(d), 1e-4
    best = 2 * px.solve_subproblem(pairs, w, kappa / 2, tol=1e-12).value
    monkeypatch.setattr(subproblem, "JACOBIAN_BYTES", 0)
    full = px.solve_subproblem(problem, w, kappa)
    assert full.status == "converged" and full.iterations > 300
    assert -1e-11 <= full.value - best <= full.gap <= 1e-10 * float(problem.value(w))
    monkeypatch.setattr(subproblem, "MOST", 300)
    px.clear_caches()
    short = px.solve_subproblem(problem, w, kappa)
    assert (short.status, short.iterations) == ("budget", 300)
    assert full.gap < short.value - best <= short.gap


@pytest.mark.parametrize(
    ("rows", "d", "dense"),
    [(100_000, 500, True), (32_768, 4096, False), (400_000, 500, False)],
)
def test_a_matrix_is_formed_where_it_takes_seconds(rows, d, dense):
    """A Gram matrix of 4,096 from 32,768 rows would take minutes for a step, and many times its own bytes."""

    def formed(w, x):
        problem = px.MeanOfLosses(lambda w, x: jnp.sum(w) * x, px.L1(), x)
        assert subproblem.is_dense(problem, w) is dense

    jax.eval_shape(formed, jnp.zeros(d), jax.ShapeDtypeStruct((rows, 1), float))
