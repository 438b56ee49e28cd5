"""Independent references: naive NumPy twins of each recursion, cvxpy for prox-linear, IPOPT for whole fits, rates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.networks import MLP
from zoo import normal

N, P, K = 15, 4, 3
X, Y = normal(1, N, P), normal(2, N, K)
RIDGE = 0.05


def linear_problem(outer=None, ridge=RIDGE):
    return px.MeanOfLosses(px.residual(lambda w, x: w @ x), outer or px.L2(), (X, Y), ridge=ridge)


def smoothed_gradient(w, i, nu):
    """Of |w x_i - y_i| smoothed by nu: u / max(|u|, nu) times x_i'."""
    u = w @ X[i] - Y[i]
    return np.outer(u / max(np.linalg.norm(u), nu), X[i])


def naive_svrg_epoch(w, step, indices, nu, lam, kappa=0.0, z=0.0, average=True):
    snapshot, total = w.copy(), np.zeros_like(w)
    mean = sum(smoothed_gradient(snapshot, i, nu) for i in range(N)) / N
    for i in indices:
        g = smoothed_gradient(w, i, nu) - smoothed_gradient(snapshot, i, nu) + mean
        w = w - step * (g + lam * w + kappa * (w - z))
        total += w
    return total / len(indices) if average else w


def draws(seed, epoch):
    """The indices of an epoch, as minimize draws them."""
    key = jax.random.fold_in(jax.random.key(seed), epoch)
    return np.asarray(jax.random.randint(jax.random.split(key, 1)[0], (N,), 0, N, jnp.int32))


@pytest.mark.parametrize("average", [True, False])
def test_svrg_is_its_naive_twin(average):
    start = np.ones((K, P))
    w = start
    for epoch in range(6):
        w = naive_svrg_epoch(w, 0.02, draws(7, epoch), 0.3, RIDGE, average=average)
    ours = px.minimize(linear_problem(), jnp.asarray(start), px.svrg(0.02, nu=0.3, average=average), steps=6, seed=7)
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=1e-13)


def test_svrg_on_subgradients_is_its_naive_twin():
    start = np.ones((K, P))
    w = start
    for epoch in range(4):
        w = naive_svrg_epoch(w, 0.02, draws(3, epoch), 1e-300, RIDGE)
    ours = px.minimize(linear_problem(), jnp.asarray(start), px.svrg(0.02), steps=4, seed=3)
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=1e-13)


@pytest.mark.parametrize("warm", ["center", "extrapolation", "previous"])
@pytest.mark.parametrize("ridge", [0.0, RIDGE])
@pytest.mark.parametrize("nu", [0.4, px.Inverse(0.8)])
def test_casimir_is_its_naive_twin(warm, ridge, nu):
    """Algorithm 4 of arXiv 1902.03228 line by line, alpha from the quadratic equation by np.roots."""
    kappa, step = 0.3, 0.02
    w = z = z_old = np.ones((K, P))
    alpha = np.sqrt(ridge / (ridge + kappa)) if ridge else (np.sqrt(5) - 1) / 2
    for k in range(6):
        level = float(nu(k)) if callable(nu) else nu
        first = {"center": z, "previous": w, "extrapolation": w + kappa / (kappa + ridge) * (z - z_old)}[warm]
        new = naive_svrg_epoch(first, step, draws(5, k), level, ridge, kappa, z)
        r = kappa + ridge
        roots = np.roots([r, alpha**2 * r - ridge, -(alpha**2) * r])
        after = roots[roots > 0][0]
        assert 0 < after < 1
        beta = alpha * (1 - alpha) * r / (alpha**2 * r + after * r)
        w, z, z_old, alpha = new, new + beta * (new - w), z, after
    solver = px.casimir_svrg(nu, kappa=kappa, step=step, warm_start=warm)
    ours = px.minimize(linear_problem(ridge=ridge), jnp.ones((K, P)), solver, steps=6, seed=5)
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=1e-12)


def test_the_stored_duals_of_a_linearised_problem_change_nothing():
    """SVRG on a linearised problem (one JVP, one VJP of a difference) against the same affine map written by hand."""
    predict = MLP((P, 5, K))
    w0 = predict.init(jax.random.key(0))
    smooth = px.MeanOfLosses(px.residual(predict), px.L2(), (X, Y), ridge=RIDGE, weights=np.arange(1.0, N + 1))
    sub = smooth.linearize(w0).regularize(0.5, w0)

    def affine(w, s):
        u, change = jax.jvp(lambda w: predict(w, s[0]) - s[1], (w0,), (jax.tree.map(jnp.subtract, w, w0),))
        return u + change

    by_hand = px.MeanOfLosses(affine, px.L2(), (X, Y), ridge=RIDGE, weights=np.arange(1.0, N + 1)).regularize(0.5, w0)
    for solver in (px.svrg(0.05, nu=0.2), px.casimir_svrg(0.2, kappa=0.1, step=0.05)):
        a, b = (px.minimize(p, w0, solver, steps=4) for p in (sub, by_hand))
        for x, y in zip(jax.tree.leaves(a.w), jax.tree.leaves(b.w), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-13)


def test_sgd_and_polyak_are_their_naive_twins():
    problem = linear_problem(ridge=0.0)
    indices = np.asarray(jax.random.randint(jax.random.fold_in(jax.random.key(2), 0), (N, 1), 0, N, jnp.int32))[:, 0]
    w = polyak = np.ones((K, P))
    for t, i in enumerate(indices):
        w = w - 0.1 / np.sqrt(t + 1) * smoothed_gradient(w, i, 1e-300)
        g = smoothed_gradient(polyak, i, 1e-300)
        polyak = polyak - min(0.3, np.linalg.norm(polyak @ X[i] - Y[i]) / np.sum(g * g)) * g
    start = jnp.ones((K, P))
    np.testing.assert_allclose(
        px.minimize(problem, start, px.sgd(px.InverseSqrt(0.1)), steps=N, seed=2).w, w, atol=1e-13
    )
    np.testing.assert_allclose(px.minimize(problem, start, px.truncated(0.3), steps=N, seed=2).w, polyak, atol=1e-13)


# exact prox-linear

OUTERS = {
    "L2": (px.L2(), lambda cp, z: sum(cp.norm(z[i]) for i in range(z.shape[0]))),
    "L1": (px.L1(), lambda cp, z: cp.sum(cp.abs(z))),
    "LInf": (px.LInf(), lambda cp, z: sum(cp.norm_inf(z[i]) for i in range(z.shape[0]))),
    "Max": (px.Max(), lambda cp, z: cp.sum(cp.max(z, axis=1))),
    "Hinge": (px.Hinge(), lambda cp, z: cp.sum(cp.pos(z))),
    "Quantile": (px.Quantile(0.3), lambda cp, z: cp.sum(cp.maximum(0.3 * z, -0.7 * z))),
    "Huber": (px.Huber(0.5), lambda cp, z: cp.sum(cp.huber(z, 0.5)) / 2),
    "SquaredL2": (px.SquaredL2(), lambda cp, z: cp.sum_squares(z) / 2),
}


@pytest.mark.parametrize("name", OUTERS)
@pytest.mark.parametrize(("kind", "width"), [("mean of losses", 2), ("mean of losses", 12), ("loss of mean", 2)])
def test_subproblems_against_clarabel(name, kind, width):
    """With ridge and weights, d below and above nk: our certified value is never above Clarabel's by more than 1e-8."""
    import cvxpy as cp

    outer, convex = OUTERS[name]
    predict = MLP((P, width, K))
    w = predict.init(jax.random.key(1))
    weights = np.linspace(0.0, 2.0, N)
    make = px.MeanOfLosses if kind == "mean of losses" else px.LossOfMean
    problem = make(px.residual(predict), outer, (X, Y), ridge=0.1, weights=weights)
    ours = px.solve_subproblem(problem, w, 0.3)
    assert ours.status == "converged" and 0 <= ours.gap <= 1e-9
    model = problem.linearize(w).regularize(0.3, w)
    assert abs(float(model.value(ours.w)) - ours.value) <= 1e-9

    u, jacobian = (np.asarray(x) for x in problem.expand(w))
    flat, _ = jax.flatten_util.ravel_pytree(w)
    d = cp.Variable(flat.size)
    c = np.asarray(problem.coefficients())
    rows = [u[i] + jacobian[i] @ d for i in range(u.shape[0])]
    losses = sum(c[i] * convex(cp, cp.reshape(rows[i], (1, K), order="C")) for i in range(u.shape[0]))
    theirs = cp.Problem(cp.Minimize(losses + 0.05 * cp.sum_squares(flat + d) + 0.15 * cp.sum_squares(d)))
    theirs.solve(solver=cp.CLARABEL)
    assert ours.value <= theirs.value + 1e-8


def test_prox_linear_steps_against_clarabel():
    import cvxpy as cp

    predict = MLP((P, 6, K))
    w = predict.init(jax.random.key(1))
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), (X, Y))
    ours = px.minimize(problem, w, px.prox_linear(0.5), steps=5)
    values = [float(problem.value(w))]
    for _ in range(5):
        u, jacobian = (np.asarray(x) for x in problem.expand(w))
        flat, unravel = jax.flatten_util.ravel_pytree(w)
        d = cp.Variable(flat.size)
        losses = sum(cp.norm(u[i] + jacobian[i] @ d) for i in range(N)) / N
        cp.Problem(cp.Minimize(losses + 0.25 * cp.sum_squares(d))).solve(solver=cp.CLARABEL, tol_gap_abs=1e-12)
        w = unravel(flat + jnp.asarray(d.value))
        values.append(float(problem.value(w)))
    np.testing.assert_allclose(ours.history["value"], values, atol=1e-5)  # what Clarabel reaches


@pytest.mark.parametrize("seed", [6, 7])
def test_l1_fits_against_ipopt(seed):
    """From two starts near the truth: not above DNLP + IPOPT by more than 1e-6 (another local minimum may be lower)."""
    import cvxpy as cp
    from cvxpy.atoms.elementwise.hyperbolic import tanh

    predict = MLP((6, 4, 3), bias=False)
    truth = predict.init(jax.random.key(3))
    x = normal(4, 30, 6)
    noise = np.random.default_rng(5).laplace(scale=0.05, size=(30, 3))
    y = np.asarray(jax.vmap(lambda x: predict(truth, x))(jnp.asarray(x))) + noise
    w = jax.tree.map(lambda a, b: a + 0.1 * b, truth, predict.init(jax.random.key(seed)))
    ours = px.minimize(px.MeanOfLosses(px.residual(predict), px.L1(), (x, y)), w, px.prox_linear(), steps=200)
    a, b = cp.Variable((4, 6)), cp.Variable((3, 4))
    a.value, b.value = np.asarray(w[0]["W"]), np.asarray(w[1]["W"])
    fit = cp.Problem(cp.Minimize(cp.sum(cp.abs(tanh(x @ a.T) @ b.T - y)) / 30))
    fit.solve(nlp=True, solver=cp.IPOPT)
    assert ours.value <= fit.value + 1e-6


def test_the_quadratic_phase_down_to_round_off():
    """Over-parameterised, float64: F_{t+1} <= C F_t^2 in the end, down to 1e-12."""
    predict = MLP((P, 40, K))
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), (X, Y))
    solution = px.minimize(problem, predict.init(jax.random.key(2)), px.prox_linear(1e-2, tol=1e-14), steps=40)
    value = solution.history["value"]
    assert value.min() <= 1e-12
    last = np.flatnonzero(value > 1e-12)[-1]
    slopes = np.diff(np.log(value[last - 2 : last + 1]))  # log F falls faster and faster
    assert slopes[1] < 1.5 * slopes[0] < 0


def test_accelerated_prox_linear_on_a_convex_composite():
    """Least absolute deviations: F is convex, so the gap must fall at least as 1/k^2."""
    problem = linear_problem(px.L1(), ridge=1e-3)
    best = px.minimize(problem, jnp.zeros((K, P)), px.prox_linear(), steps=200).value
    for accelerated in (True, False):
        solver = px.prox_linear(1.0, accelerated=True) if accelerated else px.prox_linear()
        gap = px.minimize(problem, jnp.ones((K, P)), solver, steps=30).history["value"] - best
        assert gap[-1] <= 4 * gap[0] / 30**2


# rates of Casimir-SVRG (section 1.3 of arXiv 1902.03228) on a convex structured problem


def chain_problem(ridge, n=12, length=3, labels=3, features=4):
    rng = np.random.default_rng(0)
    oracle = px.Chains(length, labels)
    x = rng.normal(size=(n, length, features))
    label = rng.integers(0, labels, (n, length))
    onehot = np.eye(labels)[label]
    pairs = np.einsum("nta,ntb->ntab", onehot[:, :-1], onehot[:, 1:])
    y = np.concatenate([onehot.reshape(n, -1), pairs.reshape(n, -1)], axis=1)

    def scores(w, x):
        unary = x @ w["unary"].T
        pairwise = jnp.broadcast_to(w["pairwise"], (length - 1, labels, labels))
        return jnp.concatenate([unary.ravel(), pairwise.ravel()])

    w = {"unary": jnp.zeros((labels, features)), "pairwise": jnp.zeros((labels, labels))}
    inner = px.augmented_scores(scores, oracle)
    return px.MeanOfLosses(inner, px.StructuredHinge(oracle, top=27), (x, y), ridge=ridge), w


def optimum(problem, w, nu):
    """The optimum of the smoothed problem by full-gradient descent with momentum, to a gradient of 1e-10."""
    smooth = problem.smooth(nu)
    gradient = jax.jit(lambda w: smooth.subgradient(w))
    x = y = w
    step = 0.02 * nu
    for t in range(20000):
        g = gradient(y)
        new = jax.tree.map(lambda y, g: y - step * g, y, g)
        restart = (
            sum(float(jnp.sum(g * (n - o))) for g, n, o in zip(*map(jax.tree.leaves, (g, new, x)), strict=True)) > 0
        )
        y = new if restart else jax.tree.map(lambda n, o, t=t: n + t / (t + 3) * (n - o), new, x)
        x = new
        if max(float(jnp.max(jnp.abs(v))) for v in jax.tree.leaves(g)) < 1e-10:
            break
    return float(smooth.value(x))


def test_casimir_and_svrg_are_at_least_as_fast_as_the_rate():
    """lam > 0, constant nu: F_nu - F_nu* falls at least as fast as (1 - sqrt(q)/2)^k, q = lam / (lam + kappa)."""
    ridge, nu = 0.1, 1.0
    problem, w = chain_problem(ridge)
    best = optimum(problem, w, nu)
    smooth = problem.smooth(nu)
    casimir = px.casimir_svrg(nu)
    kappa = float(casimir._kappa(problem, w, casimir.init(problem, w).norm, jnp.zeros((), jnp.int32)))
    rate = np.log(1 - np.sqrt(ridge / (ridge + kappa)) / 2)
    gap = lambda w: float(smooth.value(w)) - best
    for solver in (casimir, px.svrg(0.05, nu=nu, average=False)):
        gaps = px.minimize(problem, w, solver, steps=60, metrics={"gap": gap}).history["gap"]
        gaps = gaps[gaps > 1e-12]
        slope = np.polyfit(np.arange(len(gaps)), np.log(gaps), 1)[0]
        assert slope <= rate, (solver.name(), slope, rate, gaps)
