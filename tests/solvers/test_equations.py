"""Stochastic nonlinear equations against naive twins: losses, prox-linear, the estimators, and the
bias.
"""

import itertools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

import proxlin as px
from proxlin.data.equations import LOSSES, MarginLosses, equations, log1p
from proxlin.outers.sets import Box
from proxlin.problem import Expansion
from proxlin.solvers import gauss_newton
from proxlin.solvers.gauss_newton import solve_by_gradients, solve_exactly
from proxlin.subproblem import proximal
from proxlin.subproblem.pivoting import solve_few_bounds
from zoo import WeightedL1, normal

pytestmark = pytest.mark.reference

N, D, K = 30, 5, 4
X = normal(1, N, D)
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.sign(X @ normal(2, D) + 0.3 * normal(3, N))
START = 3 * np.ones(D)

# -------------------------------------------------------------------------------------- naive twins


def naive_losses(m):
    """The formulas as they are printed; fine for small margins."""
    return np.stack(
        [
            1 - np.tanh(m),
            (1 - 1 / (1 + np.exp(-m))) ** 2,
            np.log(1 + np.exp(-m)) - np.log(1 + np.exp(-m - 1)),
            np.where(m <= 1, np.log(1 + (m - 1) ** 2), 0),
        ],
        axis=-1,
    )


def naive_slopes(m):
    return np.stack(
        [
            -1 / np.cosh(m) ** 2,
            -2 * np.exp(m) / (1 + np.exp(m)) ** 3,
            1 / (1 + np.exp(m + 1)) - 1 / (1 + np.exp(m)),
            np.where(m <= 1, 2 * (m - 1) / (1 + (m - 1) ** 2), 0),
        ],
        axis=-1,
    )


def mean(w, rows=slice(None)):
    return naive_losses(Y[rows] * (X[rows] @ w)).mean(axis=0)


def jacobian(w, rows=slice(None)):
    slopes = naive_slopes(Y[rows] * (X[rows] @ w)) * Y[rows][:, None]
    return slopes.T @ X[rows] / len(slopes)


def faces(H, b, low, high):
    """argmin_{low <= v <= high} v'Hv/2 - b'v by trying all 3^k faces of the box."""
    best, least = None, np.inf
    for sides in itertools.product((-1, 0, 1), repeat=len(b)):
        side = np.array(sides)
        free = side == 0
        v = np.where(side > 0, high, low).astype(float)
        if free.any():
            v[free] = np.linalg.lstsq(
                H[np.ix_(free, free)], b[free] - H[np.ix_(free, ~free)] @ v[~free]
            )[0]
        v = np.clip(v, low, high)
        if (value := v @ H @ v / 2 - b @ v) < least:
            best, least = v, value
    return best


def squared_step(u, J, kappa, w, ridge):
    """argmin_x |u + J (x - w)|^2 / 2 + ridge/2 |x|^2 + kappa/2 |x - w|^2."""
    return w - np.linalg.solve(
        J.T @ J + (kappa + ridge) * np.eye(D), J.T @ u + ridge * w
    )


# --------------------------------------------------------------------------------------- the losses


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_slopes(name):
    at = list(LOSSES).index(name)
    m = np.array([-9.0, -3.0, -0.7, -1e-8, 0.0, 0.2, 0.999, 1.0, 1.001, 2.0, 6.0])
    value, slope = jax.vmap(jax.value_and_grad(LOSSES[name]))(jnp.asarray(m))
    np.testing.assert_allclose(value, naive_losses(m)[:, at], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(slope, naive_slopes(m)[:, at], rtol=1e-12, atol=1e-15)
    h = 1e-6
    apart = (naive_losses(m + h) - naive_losses(m - h))[:, at] / (2 * h)
    # its slope has a kink at 1
    np.testing.assert_allclose(slope, apart, atol=2e-6 if name == "lorenz" else 1e-9)


def test_margins_of_any_size():
    m = jnp.asarray([-1e300, -1e4, -800.0, 800.0, 1e4, 1e300])
    limits = {"tanh": (2, 0), "sigmoid": (1, 0), "logistic": (1, 0)}
    for dtype in (jnp.float64, jnp.float32):
        at = m[1:5].astype(dtype) if dtype == jnp.float32 else m[:6]
        for name, loss in LOSSES.items():
            value, slope = jax.vmap(jax.value_and_grad(loss))(at)
            assert (
                value.dtype == dtype
                and np.isfinite(value[1:-1]).all()
                and np.isfinite(slope).all()
            )
            if name in limits:
                low, high = limits[name]
                np.testing.assert_allclose(value[:2], low, rtol=1e-6)
                np.testing.assert_array_equal(value[-1], high)
    lorenz = jax.vmap(jax.value_and_grad(LOSSES["lorenz"]))(jnp.asarray([-1e4, 1e4]))
    np.testing.assert_allclose(
        lorenz,
        [[np.log(1 + 10001.0**2), 0], [-20002 / (1 + 10001.0**2), 0]],
        rtol=1e-13,
    )
    # the tails keep their digits: 1 - tanh(30) and sech(30)^2 are of the size of 1e-26
    value, slope = jax.value_and_grad(LOSSES["tanh"])(jnp.asarray(30.0))
    np.testing.assert_allclose(
        [value, slope], [2 * np.exp(-60), -4 * np.exp(-60)], rtol=1e-13
    )


def test_the_logarithm_without_branches():
    x = np.concatenate(
        [[0.0, 2**0.5 - 1, 1.0, 3.0, np.inf], 10.0 ** np.linspace(-300, 300, 20_001)]
    )
    found = np.asarray(jax.jit(log1p)(jnp.asarray(x)))
    np.testing.assert_array_max_ulp(found, np.log1p(x), 4)
    assert np.isnan(log1p(jnp.asarray(np.nan)))


def test_the_problem_of_any_losses():
    p = equations(X, Y, px.L1(), losses=("lorenz", jnp.square, "tanh"))
    w = jnp.asarray(normal(4, D))
    m = Y * (X @ np.asarray(w))
    each = naive_losses(m)
    np.testing.assert_allclose(
        p.value(w), each[:, 3].mean() + np.mean(m**2) + each[:, 0].mean(), rtol=1e-13
    )
    at = equations(X, Y).expand(w)
    u, J = at.u, at.jacobian
    np.testing.assert_allclose(u[0], mean(w), rtol=1e-13)
    np.testing.assert_allclose(J[0], jacobian(w), rtol=1e-12, atol=1e-15)
    with pytest.raises(ValueError, match="'square' is neither"):
        MarginLosses(("tanh", "square"))
    for x, y in ((X, Y[:-1]), (X, 0 * Y), (X[0], Y)):
        with pytest.raises(ValueError, match="labels y of -1 and"):
            equations(x, y)


def test_sparse_rows_are_the_same_problem():
    rng = np.random.default_rng(5)
    indices = np.sort(np.argsort(rng.random((N, 9)), axis=1)[:, :3], axis=1)
    rows = px.SparseRows(indices, rng.normal(size=(N, 3)), 9)
    w = jnp.asarray(rng.normal(size=9))
    a, b = equations(rows, Y), equations(np.asarray(rows.dense()), Y)
    one, two = a.expand(w), b.expand(w)
    np.testing.assert_allclose(one.u, two.u, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one.jacobian, two.jacobian, rtol=1e-12, atol=1e-15)


# --------------------------------------------------------------------------------- exact subproblem


@pytest.mark.parametrize("rho", [0.0, 1.0])
def test_a_few_bounds_against_all_faces(rho):
    solve = jax.jit(
        lambda A, b, low, high: solve_few_bounds(
            A, b, jnp.full(b.shape, rho), Box(low, high)
        )
    )
    rng = np.random.default_rng(6)
    for trial in range(40):
        A = rng.normal(size=(3, 2 if trial % 4 == 0 else 5)) * 10.0 ** rng.uniform(
            -2, 2
        )
        A[1] = A[0] if trial % 5 == 0 else A[1]
        b, low = rng.normal(size=3), -float(rng.integers(0, 2))
        point, _ = solve(*map(jnp.asarray, (A, b, low, 1.0)))
        v = np.asarray(point.v)[:, 0]
        H = A @ A.T + rho * np.eye(3)
        best = faces(H, b, low, 1.0)
        energy = lambda v, H=H, b=b: v @ H @ v / 2 - b @ v
        assert energy(v) <= energy(best) + 1e-13 * max(1, abs(energy(best)))
        assert 0 <= float(point.gap) <= 1e-12 * max(1, np.abs(H).max())


def minimize(step, p, at, kappa):
    """The step of a subsolver, compiled afresh: its tolerance is a constant of the module."""
    return eqx.filter_jit(
        lambda at, kappa: step(at, proximal(p, kappa, at.w), p.outer, None)[0]
    )(at, kappa)


SLOW = pytest.mark.slow  # a box as Huber's, and batches as those of another estimator


@pytest.mark.parametrize(
    "outer",
    [px.Huber(), pytest.param(px.L1(), marks=SLOW), px.L2()],
    ids=lambda f: type(f).__name__,
)
def test_accelerated_dual_gradient_against_the_exact_step(outer, monkeypatch):
    for seed in range(3):
        p = equations(X, Y, outer, ridge=0.1)
        w, u = (
            jnp.asarray(normal(seed, D)),
            jnp.asarray(np.abs(normal(seed + 10, 1, K))),
        )
        at = Expansion(w, jnp.ones(1), u, jnp.asarray(normal(seed + 20, 1, K, D)))
        kappa = jnp.asarray(0.3 * 10.0**seed)
        x = {
            "exact": minimize(solve_exactly, p, at, kappa),
            "apg": minimize(solve_by_gradients, p, at, kappa),
        }
        with monkeypatch.context() as tight:
            tight.setattr(gauss_newton, "APG_TOL", 1e-14)
            tight.setattr(gauss_newton, "APG_STEPS", 100_000)
            x["apg, tight"] = minimize(solve_by_gradients, p, at, kappa)
        model = lambda x, p=p, at=at, w=w, kappa=kappa: float(
            p.outer.value(at.u[0] + at.jacobian[0] @ (x - w))
            + 0.05 * x @ x
            + kappa / 2 * (x - w) @ (x - w)
        )
        least = model(x["exact"])
        # 100 steps
        assert least <= model(x["apg"]) + 1e-14 and model(x["apg"]) <= least + 1e-3
        assert least <= model(x["apg, tight"]) + 1e-14 and model(
            x["apg, tight"]
        ) <= least + 1e-9 * max(1, least)


# --------------------------------------------------------------------------------------- full batch


@pytest.mark.processor
@pytest.mark.parametrize("name", ["Huber", pytest.param("L1", marks=SLOW), "L2"])
def test_prox_linear_steps_against_clarabel(name):
    """20 steps, each subproblem once more by cvxpy: ours is not above Clarabel's, and not below it
    by more than 1e-8.

    The iterates may differ by sqrt(2 gap / kappa): values are what is compared.
    """
    import cvxpy as cp

    outer = {"Huber": px.Huber(), "L1": px.L1(), "L2": px.L2()}[name]
    convex = {
        "Huber": lambda z: cp.sum(cp.huber(z, 1.0)) / 2,
        "L1": cp.norm1,
        "L2": cp.norm2,
    }[name]
    kappa, ours = 0.5, []
    px.minimize(
        equations(X, Y, outer),
        jnp.asarray(START),
        px.prox_linear(kappa, tol=1e-15),
        steps=20,
        metrics={"w": lambda w: ours.append(np.asarray(w)) or 0.0},
    )
    u, J, d = cp.Parameter(K), cp.Parameter((K, D)), cp.Variable(D)
    model = convex(u + J @ d) + kappa / 2 * cp.sum_squares(d)
    step = cp.Problem(cp.Minimize(model))
    for w, after in itertools.pairwise(ours):
        u.value, J.value = mean(w), jacobian(w)
        with warnings.catch_warnings():  # 1e-13 is more than Clarabel always reaches
            warnings.simplefilter("ignore")
            step.solve(
                solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13
            )
        theirs = float(model.value)
        d.value = after - w
        mine = float(model.value)
        assert -1e-8 <= mine - theirs <= 1e-12 * abs(theirs)


def test_gradient_descent_and_sgd_are_their_naive_twins():
    """v = J_B' grad f(u_B) on the full batch and on mini-batches, which is biased."""
    problem = equations(X, Y)
    slope = lambda w, rows=slice(None): (
        jacobian(w, rows).T @ np.clip(mean(w, rows), -1, 1)
    )
    full = batch = START
    for _ in range(10):
        full = full - 0.7 * slope(full)
    keys = [jax.random.fold_in(jax.random.key(3), epoch) for epoch in range(2)]
    for rows in np.concatenate(
        [jax.random.randint(key, (5, 6), 0, N, jnp.int32) for key in keys]
    ):
        batch = batch - 0.7 * slope(batch, rows)
    w = jnp.asarray(START)
    np.testing.assert_allclose(
        px.minimize(problem, w, px.subgradient_descent(0.7), steps=10).w,
        full,
        atol=1e-12,
    )
    np.testing.assert_allclose(
        px.minimize(problem, w, px.sgd(0.7, 6), steps=10, seed=3).w, batch, atol=1e-12
    )


def test_the_mini_batch_subgradient_is_biased():
    """The mean over all N^2 batches of two, exactly: not the subgradient of F, by more than 0.1 %
    of it.

    The mini-batch mean and Jacobian are unbiased; their product is not, nor is the subgradient of f
    at the mean.
    """
    w = START / 3
    pairs = np.array(list(itertools.product(range(N), repeat=2)))
    u, J = (np.array([f(w, rows) for rows in pairs]) for f in (mean, jacobian))
    np.testing.assert_allclose(u.mean(axis=0), mean(w), rtol=1e-12)
    np.testing.assert_allclose(J.mean(axis=0), jacobian(w), rtol=1e-10, atol=1e-14)
    for outer in (px.Huber(), px.L1().smooth(0.1), px.L2()):
        p = equations(X, Y, outer)
        each = jax.jit(jax.vmap(lambda rows, p=p: p[rows].subgradient(jnp.asarray(w))))(
            jnp.asarray(pairs)
        )
        v = np.asarray(p.subgradient(jnp.asarray(w)))
        assert np.linalg.norm(np.mean(each, axis=0) - v) > 1e-3 * np.linalg.norm(v)


# --------------------------------------------------------------------------------------- estimators


def draws(solver, seed, steps):
    """The indices of each step, as minimize draws them epoch by epoch."""
    size = solver.batch_size + (solver.jacobian_batch_size or 0)
    each = N // size
    keys = (
        jax.random.fold_in(jax.random.key(seed), epoch)
        for epoch in range(-(-steps // each))
    )
    count = jnp.arange(each * size, dtype=jnp.uint32)
    bits = [
        np.asarray(threefry_2x32(jax.random.key_data(key), count), np.uint64)
        for key in keys
    ]
    return (np.concatenate(bits) * N >> 32).astype(int).reshape(-1, size)[:steps]


@pytest.mark.parametrize(
    ("estimator", "both"),
    [
        ("minibatch", True),
        ("sarah", False),
        ("svrg", False),
        *(
            pytest.param(*x, marks=SLOW)
            for x in (("minibatch", False), ("sarah", True), ("svrg", True))
        ),
    ],
)
def test_estimators_are_their_naive_twins(estimator, both):
    kappa, ridge, period = 0.8, 0.05, None if estimator == "minibatch" else 4
    solver = px.stochastic_gauss_newton(
        kappa, 6, None if both else 4, estimator, period
    )
    w = START
    for t, drawn in enumerate(draws(solver, 7, 11)):
        B, S = (drawn, drawn) if both else (drawn[:6], drawn[6:])
        if estimator == "minibatch":
            u, J = mean(w, B), jacobian(w, S)
        elif t % 4 == 0:
            u, J = mean(w), jacobian(w)
            w0, u0, J0 = w, u, J
        elif estimator == "sarah":
            u, J = u + mean(w, B) - mean(old, B), J + jacobian(w, S) - jacobian(old, S)
        else:
            u = (
                u0
                + J0 @ (w - w0)
                + mean(w, B)
                - mean(w0, B)
                - jacobian(w0, B) @ (w - w0)
            )
            J = J0 + jacobian(w, S) - jacobian(w0, S)
        old, w = w, squared_step(u, J, kappa, w, ridge)  # noqa: F841  sarah's
    problem = equations(X, Y, px.SquaredL2(), ridge=ridge)
    ours = px.minimize(problem, jnp.asarray(START), solver, steps=11, seed=7)
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=1e-11)


def test_the_first_order_correction_leaves_an_error_of_second_order():
    """Zhang and Xiao: |estimate - u(w)| falls as |w - w0|^2 with it, as |w - w0| without (sarah's
    first step).
    """
    w0, direction, rows = START / 3, normal(8, D), np.arange(4)
    errors = {"svrg": [], "plain": []}
    for size in (1e-2, 1e-3):
        w = w0 + size * direction
        moved = mean(w, rows) - mean(w0, rows)
        errors["plain"].append(np.linalg.norm(mean(w0) + moved - mean(w)))
        corrected = (
            mean(w0) + jacobian(w0) @ (w - w0) + moved - jacobian(w0, rows) @ (w - w0)
        )
        errors["svrg"].append(np.linalg.norm(corrected - mean(w)))
    assert (
        errors["svrg"][0] > 80 * errors["svrg"][1]
        and errors["plain"][0] < 12 * errors["plain"][1]
    )


# --------------------------------------------------------------------------------------- the solver


def test_passes_are_the_contract():
    """A value costs 1/2n a sample, a Jacobian of k rows (1 + k)/2n; sarah pays twice, and for
    snapshots.
    """
    p, w = equations(X, Y), jnp.asarray(START)

    def calls(*settings):
        prices = px.stochastic_gauss_newton(*settings).prices(p, w)
        return prices.step.passes(N) * 2 * N, prices.expand.passes(N) * 2 * N

    assert calls(1.0, 6, 4) == (6 + 4 * (1 + K), 0)
    assert calls(1.0, 6) == (6 * (1 + K), 0)
    both = 2 * (6 + 4 * (1 + K))
    # a snapshot takes the place of its step
    assert calls(1.0, 6, 4, "sarah") == (both, N * (1 + K) - both)
    assert calls(1.0, 6, 4, "svrg")[0] == both + 6  # the JVPs of the correction


@pytest.mark.slow
def test_affine_problems_and_other_outer_functions():
    """On a problem that is affine already every estimator of one snapshot is exact; f may be
    proximable only.
    """
    w = jnp.asarray(START)
    affine = equations(X, Y, px.SquaredL2()).linearize(w / 2)
    exact = px.minimize(affine, w, px.prox_linear(1.0, tol=1e-15), steps=4)
    whole = px.minimize(
        affine, w, px.stochastic_gauss_newton(1.0, 6, 4, "svrg", 1), steps=4
    )
    np.testing.assert_allclose(whole.w, exact.w, atol=1e-9)
    users = equations(X, Y, WeightedL1(1.0))
    with pytest.raises(TypeError, match='subsolver="apg"'):
        px.minimize(users, w, px.stochastic_gauss_newton(1.0, 6), steps=1)
    same, theirs = (
        px.minimize(
            p, w, px.stochastic_gauss_newton(1.0, 6, subsolver="apg"), steps=5
        ).w
        for p in (equations(X, Y, px.L1()), users)
    )
    np.testing.assert_allclose(same, theirs, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: px.stochastic_gauss_newton(0.0, 4), "kappa"),
        (lambda: px.stochastic_gauss_newton(1.0, 0), "batch_size"),
        (lambda: px.stochastic_gauss_newton(1.0, 4, 2.5), "jacobian_batch_size"),
        (lambda: px.stochastic_gauss_newton(1.0, 4, estimator="saga"), "estimator"),
        (lambda: px.stochastic_gauss_newton(1.0, 4, period=3), "period"),
        (
            lambda: px.stochastic_gauss_newton(1.0, 4, estimator="sarah", period=0),
            "period",
        ),
        (lambda: px.stochastic_gauss_newton(1.0, 4, subsolver="admm"), "subsolver"),
    ],
)
def test_wrong_settings_are_refused(make, words):
    with pytest.raises(ValueError, match=words) as refused:
        make()
    assert str(refused.value).endswith(".")


def test_a_mean_of_losses_is_refused_in_a_sentence():
    p = px.MeanOfLosses(MarginLosses(), px.L2(), Y[:, None] * X)
    with pytest.raises(
        TypeError,
        match=r"needs a problem of the class LossOfMean.*Take stochastic_prox_linear",
    ):
        px.minimize(p, jnp.asarray(START), px.stochastic_gauss_newton(1.0, 4))
