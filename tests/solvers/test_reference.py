"""Independent references: naive NumPy twins of each recursion, cvxpy for prox-linear, IPOPT for
whole fits, rates.
"""

import contextlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.networks import MLP
from proxlin.subproblem import dual_set
from zoo import normal

pytestmark = pytest.mark.reference

N, P, K = 15, 4, 3
X, Y = normal(1, N, P), normal(2, N, K)
RIDGE = 0.05


def linear_problem(outer=None, ridge=RIDGE):
    return px.MeanOfLosses(
        px.residual(lambda w, x: w @ x), outer or px.L2(), (X, Y), ridge=ridge
    )


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
    return np.asarray(
        jax.random.randint(jax.random.split(key, 1)[0], (N,), 0, N, jnp.int32)
    )


@pytest.mark.parametrize("average", [True, False])
def test_svrg_is_its_naive_twin(average):
    start = np.ones((K, P))
    w = start
    for epoch in range(6):
        w = naive_svrg_epoch(w, 0.02, draws(7, epoch), 0.3, RIDGE, average=average)
    ours = px.minimize(
        linear_problem(),
        jnp.asarray(start),
        px.svrg(0.02, nu=0.3, average=average),
        steps=6,
        seed=7,
    )
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=1e-13)


def test_svrg_on_subgradients_is_its_naive_twin():
    start = np.ones((K, P))
    w = start
    for epoch in range(4):
        w = naive_svrg_epoch(w, 0.02, draws(3, epoch), 1e-300, RIDGE)
    ours = px.minimize(
        linear_problem(), jnp.asarray(start), px.svrg(0.02), steps=4, seed=3
    )
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("warm", "ridge", "nu"),
    [  # every pair of settings that meets in the recursion
        ("center", 0.0, px.Inverse(0.8)),
        ("center", RIDGE, 0.4),
        ("extrapolation", RIDGE, px.Inverse(0.8)),
        ("previous", 0.0, 0.4),
    ],
)
def test_casimir_is_its_naive_twin(warm, ridge, nu):
    """Algorithm 4 of arXiv 1902.03228 line by line, alpha from the quadratic equation by np.roots."""
    kappa, step = 0.3, 0.02
    w = z = z_old = np.ones((K, P))
    alpha = np.sqrt(ridge / (ridge + kappa)) if ridge else (np.sqrt(5) - 1) / 2
    for k in range(6):
        level = float(nu(k)) if callable(nu) else nu
        first = {
            "center": z,
            "previous": w,
            "extrapolation": w + kappa / (kappa + ridge) * (z - z_old),
        }[warm]
        new = naive_svrg_epoch(first, step, draws(5, k), level, ridge, kappa, z)
        r = kappa + ridge
        roots = np.roots([r, alpha**2 * r - ridge, -(alpha**2) * r])
        after = roots[roots > 0][0]
        assert 0 < after < 1
        beta = alpha * (1 - alpha) * r / (alpha**2 * r + after * r)
        w, z, z_old, alpha = new, new + beta * (new - w), z, after
    solver = px.casimir_svrg(nu, kappa=kappa, step=step, warm_start=warm)
    ours = px.minimize(
        linear_problem(ridge=ridge), jnp.ones((K, P)), solver, steps=6, seed=5
    )
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=1e-12)


def naive_pli_step(anchor, kappa, catalyst, step, epochs, drawn):
    """The subproblem of a linear map at an anchor: epochs of SVRG around a center z, extrapolated
    by Casimir's rule; without a catalyst z is the iterate and has no weight.
    """
    lam = RIDGE + kappa
    w = z = anchor
    alpha = np.sqrt(lam / (lam + catalyst))
    for j in range(epochs):
        indices = jax.random.randint(
            jax.random.fold_in(drawn, j), (N,), 0, N, jnp.int32
        )
        # ridge/2 |x|^2 + kappa/2 |x - anchor|^2 + catalyst/2 |x - z|^2 as one proximal term
        total = kappa + catalyst
        center = (kappa * anchor + catalyst * z) / total
        new = naive_svrg_epoch(z, step, np.asarray(indices), 0.3, RIDGE, total, center)
        r = lam + catalyst
        roots = np.roots([r, alpha**2 * r - lam, -(alpha**2) * r])
        after = roots[roots > 0][0]
        beta = alpha * (1 - alpha) * r / (alpha**2 * r + after * r)
        z = new + beta * (new - w)
        w, alpha = new, after
    return w


@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize("catalyst", [0.0, 0.7])
def test_pli_is_its_naive_twin(catalyst, accept):
    """inner="svrg" is no catalyst at all. The step is so large that some outer steps increase F."""
    problem = linear_problem()
    value = lambda w: float(problem.value(jnp.asarray(w)))
    kappa, step, epochs, seed = 0.2, 0.35, 2, 11
    w = np.full((K, P), 0.1)
    start = jnp.asarray(w)
    rejected = 0
    for t in range(8):
        key = jax.random.fold_in(jax.random.key(seed), t)
        drawn = jax.random.split(key, 1)[0]
        new = naive_pli_step(w, kappa, catalyst, step, epochs, drawn)
        if accept and value(new) > value(w):
            rejected += 1
            continue
        w = new
    more = {"catalyst": catalyst} if catalyst else {"inner": "svrg"}
    solver = px.pli(kappa, 0.3, epochs, step, accept=accept, **more)
    ours = px.minimize(problem, start, solver, steps=8, seed=seed)
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=1e-12)
    assert (0 < rejected < 8) == accept


def test_the_stored_duals_of_a_linearised_problem_change_nothing():
    """SVRG on a linearised problem (one JVP, one VJP of a difference) against the same affine map
    written by hand.
    """
    predict = MLP((P, 5, K))
    w0 = predict.init(jax.random.key(0))
    smooth = px.MeanOfLosses(
        px.residual(predict),
        px.L2(),
        (X, Y),
        ridge=RIDGE,
        weights=np.arange(1.0, N + 1),
    )
    sub = smooth.linearize(w0).regularize(0.5, w0)

    def affine(w, s):
        u, change = jax.jvp(
            lambda w: predict(w, s[0]) - s[1],
            (w0,),
            (jax.tree.map(jnp.subtract, w, w0),),
        )
        return u + change

    by_hand = px.MeanOfLosses(
        affine, px.L2(), (X, Y), ridge=RIDGE, weights=np.arange(1.0, N + 1)
    ).regularize(0.5, w0)
    solver = px.casimir_svrg(0.2, kappa=0.1, step=0.05)  # its epochs are SVRG's
    a, b = (px.minimize(p, w0, solver, steps=4) for p in (sub, by_hand))
    for x, y in zip(jax.tree.leaves(a.w), jax.tree.leaves(b.w), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-13)


def test_sgd_and_polyak_are_their_naive_twins():
    problem = linear_problem(ridge=0.0)
    indices = np.asarray(
        jax.random.randint(
            jax.random.fold_in(jax.random.key(2), 0), (N, 1), 0, N, jnp.int32
        )
    )[:, 0]
    w = polyak = np.ones((K, P))
    for t, i in enumerate(indices):
        w = w - 0.1 / np.sqrt(t + 1) * smoothed_gradient(w, i, 1e-300)
        g = smoothed_gradient(polyak, i, 1e-300)
        polyak = (
            polyak - min(0.3, np.linalg.norm(polyak @ X[i] - Y[i]) / np.sum(g * g)) * g
        )
    start = jnp.ones((K, P))
    np.testing.assert_allclose(
        px.minimize(problem, start, px.sgd(px.InverseSqrt(0.1)), steps=N, seed=2).w,
        w,
        atol=1e-13,
    )
    np.testing.assert_allclose(
        px.minimize(problem, start, px.truncated(0.3), steps=N, seed=2).w,
        polyak,
        atol=1e-13,
    )


# exact prox-linear

OUTERS = {
    "L2": (px.L2(), lambda cp, z: sum(cp.norm(z[i]) for i in range(z.shape[0]))),
    "L1": (px.L1(), lambda cp, z: cp.sum(cp.abs(z))),
    "LInf": (
        px.LInf(),
        lambda cp, z: sum(cp.norm_inf(z[i]) for i in range(z.shape[0])),
    ),
    "Max": (px.Max(), lambda cp, z: cp.sum(cp.max(z, axis=1))),
    "Hinge": (px.Hinge(), lambda cp, z: cp.sum(cp.pos(z))),
    "Quantile": (px.Quantile(0.3), lambda cp, z: cp.sum(cp.maximum(0.7 * z, -0.3 * z))),
    "Huber": (px.Huber(0.5), lambda cp, z: cp.sum(cp.huber(z, 0.5)) / 2),
    "SquaredL2": (px.SquaredL2(), lambda cp, z: cp.sum_squares(z) / 2),
}


SHAPES = [("mean of losses", 2), ("mean of losses", 12), ("loss of mean", 2)]
ENOUGH = [
    ("L2", 0),
    ("L1", 1),
    ("LInf", 2),
    ("Max", 1),
    ("Quantile", 0),
    ("Huber", 2),
    ("SquaredL2", 1),
]


@pytest.mark.parametrize(
    # test_dual.py has every set in every shape; here it is how a problem becomes one
    ("name", "kind", "width"),
    [
        pytest.param(name, *shape, marks=[pytest.mark.slow] * ((name, i) not in ENOUGH))
        for name in OUTERS
        for i, shape in enumerate(SHAPES)
    ],
)
def test_subproblems_against_clarabel(name, kind, width):
    """With ridge and weights, d below and above nk: our certified value is never above Clarabel's
    by more than 1e-8.
    """
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

    at = problem.expand(w)
    u, jacobian = np.asarray(at.u), np.asarray(at.jacobian)
    flat, _ = jax.flatten_util.ravel_pytree(w)
    d = cp.Variable(flat.size)
    c = np.asarray(problem.coefficients())
    rows = [u[i] + jacobian[i] @ d for i in range(u.shape[0])]
    losses = sum(
        c[i] * convex(cp, cp.reshape(rows[i], (1, K), order="C"))
        for i in range(u.shape[0])
    )
    theirs = cp.Problem(
        cp.Minimize(losses + 0.05 * cp.sum_squares(flat + d) + 0.15 * cp.sum_squares(d))
    )
    theirs.solve(solver=cp.CLARABEL)
    assert ours.value <= theirs.value + 1e-8


@pytest.mark.slow
def test_prox_linear_steps_against_clarabel():
    import cvxpy as cp

    predict = MLP((P, 6, K))
    w = predict.init(jax.random.key(1))
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), (X, Y))
    ours = px.minimize(problem, w, px.prox_linear(0.5), steps=5)
    values = [float(problem.value(w))]
    for _ in range(5):
        at = problem.expand(w)
        u, jacobian = np.asarray(at.u), np.asarray(at.jacobian)
        flat, unravel = jax.flatten_util.ravel_pytree(w)
        d = cp.Variable(flat.size)
        losses = sum(cp.norm(u[i] + jacobian[i] @ d) for i in range(N)) / N
        cp.Problem(cp.Minimize(losses + 0.25 * cp.sum_squares(d))).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-12
        )
        w = unravel(flat + jnp.asarray(d.value))
        values.append(float(problem.value(w)))
    # what Clarabel reaches
    np.testing.assert_allclose(ours.history["value"], values, atol=1e-5)


# whole l1 fits


def ended(ipopt, w, **options):
    """Where IPOPT ends from w, in a list that is empty where it fails or ends without a point."""
    import cvxpy as cp

    with contextlib.suppress(cp.SolverError, ValueError):
        return [ipopt(w, **options)]
    return []


def around(ipopt, w):
    """Where IPOPT ends from w, with first barrier parameters so small that it mostly stays in the
    basin.
    """
    tight = (
        "mu_init",
        "bound_push",
        "bound_frac",
        "slack_bound_push",
        "slack_bound_frac",
    )
    found = []
    for size in (1e-6, 1e-8):
        options = {"tol": size / 10, **dict.fromkeys(tight, size)}
        found += ended(ipopt, w, mu_strategy="monotone", **options)
    return found


def tanh_fit(sizes, n, noise):
    """seed -> a network with noisy targets, a random start, and the same fit by DNLP + IPOPT from a
    given start.
    """
    p, h, k = sizes
    predict = MLP(sizes, bias=False)

    def fit(seed):
        rng = np.random.default_rng(seed)
        x, truth = rng.normal(size=(n, p)), predict.init(jax.random.key(100 + seed))
        y = np.asarray(
            jax.vmap(lambda x: predict(truth, x))(jnp.asarray(x))
        ) + rng.laplace(scale=noise, size=(n, k))

        def ipopt(w, **options):
            import cvxpy as cp
            from cvxpy.atoms.elementwise.hyperbolic import tanh

            a, b = cp.Variable((h, p)), cp.Variable((k, h))
            a.value, b.value = np.asarray(w[0]["W"]), np.asarray(w[1]["W"])
            peer = cp.Problem(cp.Minimize(cp.sum(cp.abs(tanh(x @ a.T) @ b.T - y)) / n))
            peer.solve(nlp=True, solver=cp.IPOPT, print_level=0, **options)
            return peer.value, [
                {"W": jnp.asarray(a.value)},
                {"W": jnp.asarray(b.value)},
            ]

        return (
            px.MeanOfLosses(px.residual(predict), px.L1(), (x, y)),
            predict.init(jax.random.key(seed)),
            ipopt,
        )

    return fit


def decay(w, x):
    return w[0] * jnp.exp(-w[1] * x) + w[2] * jnp.exp(-w[3] * x)


def decay_fit(seed):
    """Two decaying exponentials with noise, from a random start."""
    rng = np.random.default_rng(seed)
    x, truth = (
        np.linspace(0, 4, 40)[:, None],
        rng.uniform([1, 1.5, 0.5, 0.1], [3, 3, 2, 0.6]),
    )
    y = np.asarray(decay(jnp.asarray(truth), jnp.asarray(x))) + rng.laplace(
        scale=0.1, size=(40, 1)
    )

    def ipopt(w, **options):
        import cvxpy as cp

        a = [cp.Variable(value=float(z)) for z in w]
        line = a[0] * cp.exp(-a[1] * x) + a[2] * cp.exp(-a[3] * x)
        peer = cp.Problem(cp.Minimize(cp.sum(cp.abs(line - y)) / 40))
        peer.solve(nlp=True, solver=cp.IPOPT, print_level=0, **options)
        return peer.value, jnp.asarray([v.value for v in a])

    return (
        px.MeanOfLosses(px.residual(decay), px.L1(), (x, y)),
        jnp.asarray(rng.normal(size=4)),
        ipopt,
    )


L1_FITS = {
    "decay": decay_fit,
    # nearly as many residuals at 0 as parameters
    "sharp": tanh_fit((6, 4, 3), 30, 0.05),
    # some minima at infinity, along curved valleys
    "valleys": tanh_fit((3, 3, 1), 40, 0.3),
}


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("decay", 2),
        *(pytest.param(name, 12, marks=pytest.mark.slow) for name in L1_FITS),
    ],
)
def test_l1_fits_against_ipopt(name, fits):
    """Fits from random starts end by themselves, and where IPOPT ends with our predictions it is
    not lower by 1e-6.

    It starts around our answer, and with its usual barrier at our answer and at our start, from
    where it may end in another minimum, lower or higher.
    """
    compared = 0
    for seed in range(fits):
        problem, w, ipopt = L1_FITS[name](seed)
        ours = px.minimize(problem, w, px.prox_linear(), steps=200)
        assert ours.status != "budget", seed
        ends = [*around(ipopt, ours.w), *ended(ipopt, ours.w), *ended(ipopt, w)]
        same = [
            value
            for value, end in ends
            if np.max(np.abs(problem.stack(end) - problem.stack(ours.w))) <= 1e-2
        ]
        assert all(ours.value <= value + 1e-6 for value in same), seed
        compared += bool(same)
    assert compared >= fits - 1


KINKS = {  # rows of v in df(z), z, and how many equations keep z at its kinks
    "L1": (px.L1(), [[0.2, 1, -1], [1, 1, -1]], [[0, 2, -3], [1, 4, -1]], 1),
    "Quantile": (
        px.Quantile(0.3),
        [[0.7, -0.3, 0], [0.1, 0.2, 0.7]],
        [[1, -1, 0], [0, 0, 5]],
        3,
    ),
    "L2": (px.L2(), [[0.5, 0.5, 0], [0.6, 0.8, 0]], [[0, 0, 0], [3, 4, 0]], 3),
    "Max": (px.Max(), [[0.5, 0.5, 0], [1, 0, 0]], [[7, 7, 1], [2, 1, 0]], 1),
    "LInf": (px.LInf(), [[0.5, -0.5, 0], [0.2, 0.1, 0]], [[7, -7, 1], [0, 0, 0]], 4),
    "Huber": (
        px.Huber(0.5),
        [[0.5, 0.1, -0.5], [0, 0, 0]],
        [[3, 0.1, -2], [0, 0, 0]],
        0,
    ),
}


@pytest.mark.parametrize("name", KINKS)
def test_kinks(name):
    """The dual variables tell which part of z is at a kink: it is 0, and of the rank that is
    claimed.
    """
    outer, v, z, count = KINKS[name]
    v, z = jnp.asarray(v, float), jnp.asarray(z, float)
    pairs = list(zip(z, v, strict=True))
    np.testing.assert_allclose(
        jnp.sum(v * z), sum(outer.value(x) + outer.conjugate(y) for x, y in pairs)
    )
    V, rho = dual_set(outer)
    free = V.free(v) & (rho == 0)
    np.testing.assert_allclose(V.along_face(v, free, z[..., None]), 0, atol=1e-15)
    units = jnp.broadcast_to(jnp.eye(3), (2, 3, 3))
    rank = np.linalg.matrix_rank(np.asarray(V.along_face(v, free, units))).sum()
    assert rank == int(V.face_dimension(v, free)) == count


@pytest.mark.processor
def test_rescaled_steps_do_not_depend_on_the_units_of_w():
    """Curves a exp(-b x): with a in other units (times 1000) every value of F on the way is the
    same.

    Which of the two runs first sees that no step helps is a matter of round-off, so only common
    records are compared.
    """
    rng = np.random.default_rng(0)
    x = np.linspace(0, 3, 30)[:, None]
    y = 2 * np.exp(-x) + 0.05 * rng.laplace(size=x.shape)
    ways = []
    for unit in (1.0, 1000.0):
        curve = lambda w, x, unit=unit: w[0] / unit * jnp.exp(-w[1] * x)
        problem = px.MeanOfLosses(px.residual(curve), px.Huber(0.1), (x, y))
        run = px.minimize(
            problem,
            jnp.array([0.7 * unit, 0.3]),
            px.Rescaled(px.prox_linear()),
            steps=8,
        )
        ways.append(run.history["value"])
    common = min(len(way) for way in ways)
    assert common > 4
    np.testing.assert_allclose(ways[0][:common], ways[1][:common], rtol=1e-9)


@pytest.mark.processor
def test_the_quadratic_phase_down_to_round_off():
    """Over-parameterised, float64: F_{t+1} <= C F_t^2 in the end, down to 1e-12."""
    predict = MLP((P, 40, K))
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), (X, Y))
    solution = px.minimize(
        problem,
        predict.init(jax.random.key(2)),
        px.prox_linear(1e-2, tol=1e-14),
        steps=40,
    )
    value = solution.history["value"]
    assert value.min() <= 1e-12
    last = np.flatnonzero(value > 1e-12)[-1]
    # log F falls faster and faster
    slopes = np.diff(np.log(value[last - 2 : last + 1]))
    assert slopes[1] < 1.5 * slopes[0] < 0


def test_accelerated_prox_linear_on_a_convex_composite():
    """Least absolute deviations: F is convex, so the gap must fall at least as 1/k^2."""
    import cvxpy as cp

    w = cp.Variable((K, P))
    peer = cp.Problem(
        cp.Minimize(cp.sum(cp.abs(X @ w.T - Y)) / N + 5e-4 * cp.sum_squares(w))
    )
    best = peer.solve(solver=cp.CLARABEL)
    problem = linear_problem(px.L1(), ridge=1e-3)
    solver = px.prox_linear(1.0, accelerated=True)
    gap = (
        px.minimize(problem, jnp.ones((K, P)), solver, steps=30).history["value"] - best
    )
    assert gap[-1] <= 4 * gap[0] / 30**2


# rates of Casimir-SVRG (section 1.3 of arXiv 1902.03228) on a convex structured problem


# samples; 1 / STEP is about the smoothness L of the losses at nu = 1
COUNT, STEP = 12, 0.05


def chain_problem(ridge, n=COUNT, length=3, labels=3, features=4):
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

    w = {
        "unary": jnp.zeros((labels, features)),
        "pairwise": jnp.zeros((labels, labels)),
    }
    inner = px.augmented_scores(scores, oracle)
    return px.MeanOfLosses(
        inner, px.StructuredHinge(oracle, top=27), (x, y), ridge=ridge
    ), w


def exact(problem, w, ridge, nu=0.0):
    """The optimum of a linear chain problem and its minimiser, by cvxpy over all 27 outputs.

    max_{p in simplex} <p, z> - nu/2 |p|^2 = min_t t + sum_j max(z_j - t, 0)^2 / (2 nu)
    """
    import cvxpy as cp

    at = problem.expand(w)
    u, jacobian = np.asarray(at.u), np.asarray(at.jacobian)
    members = np.asarray(problem.outer.oracle.top(jnp.zeros(u.shape[1] - 1), 27)[1])
    outputs = np.concatenate([members, -np.ones((27, 1))], axis=1)
    x, t = cp.Variable(jacobian.shape[-1]), cp.Variable((COUNT, 1))
    z = u @ outputs.T + cp.reshape(
        (outputs @ jacobian).reshape(-1, x.size) @ x, (COUNT, 27), order="C"
    )
    losses = (
        cp.sum(cp.max(z, axis=1))
        if nu == 0
        else cp.sum(t) + cp.sum_squares(cp.pos(z - t)) / (2 * nu)
    )
    peer = cp.Problem(cp.Minimize(losses / COUNT + ridge / 2 * cp.sum_squares(x)))
    peer.solve(solver=cp.CLARABEL)
    return peer.value, float(x.value @ x.value)


@pytest.mark.parametrize(
    "name", ["casimir_svrg", pytest.param("svrg", marks=pytest.mark.slow)]
)
def test_casimir_and_svrg_are_at_least_as_fast_as_the_rate(name):
    """lam > 0, constant nu: F_nu - F_nu* falls at least as fast as (1 - sqrt(q)/2)^k, q = lam /
    (lam + kappa).
    """
    ridge, nu = 0.1, 1.0
    problem, w = chain_problem(ridge)
    best, _ = exact(problem, w, ridge, nu)
    smooth = problem.smooth(nu)
    casimir = px.casimir_svrg(nu)
    kappa = float(
        casimir._kappa(
            problem, w, casimir.init(problem, w).norm, jnp.zeros((), jnp.int32)
        )
    )
    rate = np.log(1 - np.sqrt(ridge / (ridge + kappa)) / 2)
    value = jax.jit(lambda w: smooth.value(w))
    gap = lambda w: float(value(w)) - best
    solver = casimir if name == "casimir_svrg" else px.svrg(0.05, nu=nu, average=False)
    gaps = px.minimize(problem, w, solver, steps=60, metrics={"gap": gap}).history[
        "gap"
    ]
    gaps = gaps[gaps > 1e-7]  # what Clarabel leaves
    slope = np.polyfit(np.arange(len(gaps)), np.log(gaps), 1)[0]
    assert slope <= rate, (slope, rate, gaps)


# the other schedules of the same section, each against its bound and by a slope


class Power(eqx.Module):
    """s a^t."""

    s: float
    a: float

    def __call__(self, t):
        return self.s * self.a ** jnp.asarray(t, float)


class Growing(eqx.Module):
    """s (t + 1)."""

    s: float

    def __call__(self, t):
        return self.s * (jnp.asarray(t, float) + 1)


def test_casimir_with_decreasing_nu_and_a_ridge():
    """nu_k = (1 - sqrt(q)/2)^(k/2): F - F* <= (1 - sqrt(q)/2)^(k/2) (F_0 - F* + D / (1 - sqrt(q))),
    D = 1/2.

    kappa is that of the last nu: one epoch a step must do, and what it has to do grows as 1 / nu_k.
    """
    ridge, kappa = 0.1, 10 / STEP / (COUNT + 1)
    problem, w = chain_problem(ridge)
    root = np.sqrt(ridge / (ridge + kappa))
    rate = float(np.sqrt(1 - root / 2))
    assert rate**100 >= 0.1
    solver = px.casimir_svrg(Power(1.0, rate), kappa=kappa, step=Power(STEP, rate))
    gaps = (
        px.minimize(problem, w, solver, steps=100).history["value"]
        - exact(problem, w, ridge)[0]
    )
    k = np.arange(101)
    assert np.all(gaps <= rate**k * (gaps[0] + 0.5 / (1 - root)))
    assert np.polyfit(k, np.log(gaps), 1)[0] <= np.log(rate)


@pytest.mark.slow
def test_casimir_with_constant_nu_and_no_ridge():
    """F_nu - F_nu* <= (F_nu,0 - F_nu* + kappa |w*|^2) / k^2."""
    kappa = 1 / STEP / (COUNT + 1)
    problem, w = chain_problem(0.0)
    best, square = exact(problem, w, 0.0, nu=1.0)
    smooth = problem.smooth(1.0)
    value = jax.jit(lambda w: smooth.value(w))
    metrics = {"gap": lambda w: float(value(w)) - best}
    gaps = px.minimize(
        problem, w, px.casimir_svrg(1.0, kappa, STEP), steps=100, metrics=metrics
    ).history["gap"]
    k = np.arange(1, 101)
    assert np.all(gaps[1:] <= (gaps[0] + kappa * square) / k**2)
    assert np.polyfit(np.log(k[4:]), np.log(gaps[5:]), 1)[0] <= -2


@pytest.mark.slow
def test_casimir_with_decreasing_nu_and_no_ridge():
    """nu_k = 1/k, kappa_k = kappa k: F - F* <= log(k)/k (F_0 - F* + kappa |w*|^2 + D), D = 1/2."""
    kappa = 1 / STEP / (COUNT + 1)
    problem, w = chain_problem(0.0)
    best, square = exact(problem, w, 0.0)
    solver = px.casimir_svrg(px.Inverse(1.0), Growing(kappa), px.Inverse(STEP))
    gaps = px.minimize(problem, w, solver, steps=400).history["value"][5:] - best
    bound = np.log(np.arange(5, 401)) / np.arange(5, 401)
    # F_0 = 3: every cell of a chain is wrong
    assert np.all(gaps <= bound * (3.0 - best + kappa * square + 0.5))
    assert np.polyfit(np.log(bound), np.log(gaps), 1)[0] >= 1
