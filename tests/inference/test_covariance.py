"""px.covariance: laws of reparametrisation and scale, refits by Monte Carlo, and the standard
errors of R and NIST.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import proxlin as px
from bench.suite.nist_problems import FOLDER, NUMBER, read
from proxlin.inference import hessians, m_scale, mm_covariance, parts
from proxlin.types import Params

D = 3


def line(w, x):
    return (x @ w)[None]


def lines(w, x):
    return x @ w.reshape(D, 2)


def bend(w, x):
    return (jnp.sin(x[0] * w[0]) + jnp.exp(w[1] * x[1]) * w[2])[None]


def table(n=60, k=1, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, D - 1))])
    Y = X @ rng.normal(size=(D, k)) + rng.standard_t(3, size=(n, k))
    return X, Y


def settled(problem, w) -> Params:
    """The minimiser of a smooth mean of losses, by BFGS and then Newton's method."""
    value = lambda w: float(problem.value(jnp.asarray(w)))
    gradient = lambda w: np.asarray(problem.subgradient(jnp.asarray(w)))
    w = optimize.minimize(value, np.asarray(w), jac=gradient, method="BFGS").x
    assert np.abs(gradient(w)).max() < 1e-4
    return jnp.asarray(w)


def vertex(X, y, tau, weights=None):
    """The tau-quantile fit of y, by a linear program."""
    s = np.ones(len(y)) if weights is None else weights
    return jnp.asarray(hessians.quantile_step(X, -y, s, tau))


SMOOTH = {
    "squares": (line, px.SquaredL2()),
    "huber": (line, px.Huber(1.0)),
    "smoothed l1": (line, px.L1().smooth(0.5)),
    "smoothed max": (lines, px.Max().smooth(5.0)),
    "envelope": (line, px.Huber(1.0).smooth(0.5)),
    "norm": (lines, px.L2()),
    "smoothed norm": (lines, px.L2().smooth(0.3)),
    "nonlinear squares": (bend, px.SquaredL2()),
    "nonlinear huber": (bend, px.Huber(0.4)),
}
RIDGE = {"smoothed max": 0.3}


def smooth_fit(name, **others):
    predict, f = SMOOTH[name]
    X, Y = table(k=2 if predict is lines else 1)
    if predict is bend:
        w = jnp.array([1.0, 0.5, 1.0])
        noise = 0.3 * np.random.default_rng(5).standard_t(4, size=(60, 1))
        x = np.abs(X[:, 1:])
        Y = np.asarray(jax.vmap(lambda x: bend(w, x))(jnp.asarray(x))) + noise
        X = x
    else:
        w = jnp.zeros(D * Y.shape[1])
    others = {"ridge": RIDGE.get(name, 0.0)} | others
    p = px.MeanOfLosses(px.residual(predict), f, (X, Y), **others)
    return p, settled(p, w)


def through(problem, T):
    """The same problem in z, w = T z."""
    inner = problem.inner
    phi = lambda z, sample: inner(jnp.asarray(T) @ z, sample)
    q = px.MeanOfLosses(phi, problem.outer, problem.data, weights=problem.weights)
    assert problem.quadratic is None
    return q


def assert_same(a, b, tol=1e-6):
    """Entries agree to tol of the standard deviations."""
    size = np.sqrt(np.diag(a))
    np.testing.assert_allclose(
        a / size / size[:, None], b / size / size[:, None], atol=tol
    )


# --------------------------------------------------------------------------------------------- laws


@pytest.mark.law
@pytest.mark.parametrize("kind", ["sandwich", "hessian"])
@pytest.mark.parametrize("name", [name for name in SMOOTH if name not in RIDGE])
def test_a_linear_map_of_w_maps_the_covariance(name, kind):
    p, w = smooth_fit(name)
    rng = np.random.default_rng(1)
    T = rng.normal(size=(w.size, w.size)) * 10.0 ** rng.integers(-3, 4, w.size)
    z = jnp.asarray(np.linalg.solve(T, w))
    assert_same(
        px.covariance(p, w, kind), T @ px.covariance(through(p, T), z, kind) @ T.T
    )


@pytest.mark.law
@pytest.mark.parametrize("kind", ["sandwich", "hessian", "kernel", "nid"])
@pytest.mark.parametrize("tau", [0.5, 0.2])
def test_a_linear_map_of_w_maps_that_of_quantiles(kind, tau):
    X, Y = table()
    p = px.MeanOfLosses(px.residual(line), px.Quantile(tau), (X, Y))
    w = vertex(X, Y[:, 0], tau)
    T = np.random.default_rng(2).normal(size=(D, D)) * [1e-3, 1.0, 1e3]
    z = jnp.asarray(np.linalg.solve(T, w))
    assert_same(
        px.covariance(p, w, kind), T @ px.covariance(through(p, T), z, kind) @ T.T
    )


@pytest.mark.law
def test_the_size_of_the_loss_cancels():
    """0.5 |u| is the quantile loss at 1/2, and (Huber(2)(2 u)) / 4 is Huber(1)(u)."""
    X, Y = table()
    w = vertex(X, Y[:, 0], 0.5)
    for kind in ("sandwich", "kernel", "nid", "hessian"):
        one, two = (
            px.covariance(px.MeanOfLosses(px.residual(line), f, (X, Y)), w, kind)
            for f in (px.L1(), px.Quantile(0.5))
        )
        assert_same(one, two, 1e-12)
    p, w = smooth_fit("huber")
    doubled = px.MeanOfLosses(
        lambda w, sample: 2 * p.inner(w, sample), px.Huber(2.0), p.data
    )
    for kind in ("sandwich", "hessian", "rlm"):
        assert_same(px.covariance(p, w, kind), px.covariance(doubled, w, kind), 1e-12)


@pytest.mark.law
@pytest.mark.parametrize("f", [px.Huber(1.0), px.L1()], ids=["huber", "l1"])
def test_rows_of_weight_zero_are_not_there(f):
    X, Y = table()
    s = np.random.default_rng(3).uniform(0.5, 2.0, len(X))
    s[::4] = 0
    kept = s > 0
    p = px.MeanOfLosses(px.residual(line), f, (X, Y), weights=s)
    q = px.MeanOfLosses(px.residual(line), f, (X[kept], Y[kept]), weights=s[kept])
    if isinstance(f, px.L1):
        w = vertex(X, Y[:, 0], 0.5, s)
        kinds = ("sandwich", "hessian", "kernel", "nid")
    else:
        w = settled(p, jnp.zeros(D))
        kinds = ("sandwich", "hessian")
    for kind in kinds:
        assert_same(px.covariance(p, w, kind), px.covariance(q, w, kind))


@pytest.mark.law
def test_one_output_has_one_formula():
    """|u|_2, |u|_inf and |u|_1 are the same function of one number."""
    X, Y = table()
    w = vertex(X, Y[:, 0], 0.5)
    one, *others = (
        px.covariance(px.MeanOfLosses(px.residual(line), f, (X, Y)), w, "nid")
        for f in (px.L1(), px.L2(), px.LInf())
    )
    for other in others:
        np.testing.assert_array_equal(one, other)


def test_the_order_is_that_of_ravel_pytree():
    p, w = smooth_fit("huber")
    inner = px.residual(lambda w, x: (x[1:] @ w["b"] + w["a"] * x[0])[None])
    q = px.MeanOfLosses(inner, p.outer, p.data)
    tree = {"b": w[1:], "name": "line", "a": w[0]}
    assert_same(px.covariance(p, w), px.covariance(q, tree), 1e-12)


@pytest.mark.law
@pytest.mark.parametrize("name", SMOOTH)
def test_the_mean_hessian_is_that_of_finite_differences(name):
    p, w = smooth_fit(name)
    found = parts.curved(parts.parts(p, w), p, w)
    H = hessians.smooth_hessians(p.outer, found.u, np.dtype(float))
    if name == "norm":  # one row is so near to the kink that it is taken as a ball
        size = np.linalg.norm(found.u, axis=1)
        h = np.median(size) / np.sqrt(len(size))
        near = np.where((size <= h)[:, None, None], np.eye(2) / h, H)
        assert (size <= h).sum() == 1
        np.testing.assert_allclose(hessians.norm_hessians(found), near)
    gradient = lambda x: np.asarray(p.subgradient(jnp.asarray(x)))
    h = 1e-6
    steps = h * np.eye(w.size)
    differences = [(gradient(w + e) - gradient(w - e)) / (2 * h) for e in steps]
    np.testing.assert_allclose(found.mean_hessian(H), differences, atol=1e-4)


def test_the_ball_around_the_kink_keeps_the_mean():
    """I / h in place of (I - e e') / |u|, for a density that is constant there; k = 2 and 3."""
    rng = np.random.default_rng(0)
    for k in (2, 3):
        u = rng.normal(size=(200_000, k))
        u = u / np.linalg.norm(u, axis=1, keepdims=True)
        u = u * rng.random((len(u), 1)) ** (1 / k)
        e = u / np.linalg.norm(u, axis=1, keepdims=True)
        H = np.eye(k) - e[:, :, None] * e[:, None, :]
        mean = (H / np.linalg.norm(u, axis=1)[:, None, None]).mean(axis=0)
        np.testing.assert_allclose(mean, np.eye(k), atol=0.02)


# --------------------------------------------------------------------------------------------- fits


def huber_fits(X, Y, delta):
    """Minimisers for each column of Y, by reweighting."""
    W = np.linalg.lstsq(X, Y, rcond=None)[0].T
    pairs = X[:, :, None] * X[:, None, :]
    for _ in range(100):
        r = np.abs(Y - X @ W.T)
        s = np.minimum(1, delta / np.maximum(r, 1e-12))
        G = np.tensordot(s.T, pairs, 1)
        W = np.linalg.solve(G, ((s * Y).T @ X)[..., None])[..., 0]
    return W


@pytest.mark.law
@pytest.mark.parametrize("name", ["l2", "huber", "l1"])
def test_refits_scatter_as_it_says(name):
    """Errors that are wider at one end; the variance of R refits is known to sqrt(2 / R)."""
    n, R = 120, 200 if name == "l1" else 1000
    phi = px.residual(line)
    rng = np.random.default_rng(7)
    x = np.linspace(-1, 1, n)
    X = np.column_stack([np.ones(n), x])
    Y = rng.normal(size=(n, R)) * (1 + 0.8 * x)[:, None]
    if name == "l2":
        f = px.SquaredL2()
        W = np.linalg.lstsq(X, Y, rcond=None)[0].T
    elif name == "huber":
        f = px.Huber(1.0)
        W = huber_fits(X, Y, 1.0)
    else:
        f = px.L1()
        W = np.array([vertex(X, y, 0.5) for y in Y.T])
    truth = W.T @ W / R  # the mean of w is 0
    some = [
        px.covariance(px.MeanOfLosses(phi, f, (X, Y[:, [i]])), jnp.asarray(W[i]))
        for i in range(60)
    ]
    ratios = [np.diag(cov) / np.diag(truth) for cov in some]
    spread = np.std(ratios, axis=0) / np.sqrt(len(some))
    # quantiles at the distance of Hall and Sheather's h see too low a density at the peak
    bias = 0.1 if name == "l1" else 0.02
    away = np.abs(np.mean(ratios, axis=0) - 1)
    assert np.all(away <= 3 * np.sqrt(2 / R + spread**2) + bias), away


@pytest.mark.law
def test_two_outputs_and_the_norm():
    """The spatial median of correlated errors: refits scatter as the sandwich says, cross terms and
    all.
    """
    n, R = 120, 400
    rng = np.random.default_rng(11)
    root = np.array([[1.0, 0.0], [0.8, 0.5]])
    Y = rng.normal(size=(R, n, 2)) @ root.T
    W = np.zeros((R, 2))
    for _ in range(200):  # Weiszfeld
        size = np.linalg.norm(Y - W[:, None], axis=2, keepdims=True) + 1e-12
        W = np.sum(Y / size, axis=1) / np.sum(1 / size, axis=1)
    truth = W.T @ W / R
    phi = px.residual(lambda w, x: w)
    some = [
        px.covariance(px.MeanOfLosses(phi, px.L2(), (y, y)), jnp.asarray(w))
        for y, w in zip(Y[:60], W[:60], strict=True)
    ]
    mean = np.mean(some, axis=0)
    size = np.sqrt(np.diag(truth))
    np.testing.assert_allclose(
        mean / size / size[:, None],
        truth / size / size[:, None],
        atol=3 * np.sqrt(2 / R) + 0.03,
    )


# --------------------------------------------------------------------------------------- references


@pytest.fixture(scope="module")
def columns(data_file):
    """`columns("stackloss")` is the table's features with a column of ones, and its last column."""

    def read_columns(name):
        path = data_file(f"tables/{name}.csv")
        rows = np.genfromtxt(path, delimiter=",", skip_header=1)[:, 1:]
        return np.column_stack([np.ones(len(rows)), rows[:, :-1]]), rows[:, -1]

    return read_columns


@pytest.mark.reference
def test_rlm_of_stackloss(columns):
    X, y = columns("stackloss")
    f = px.Huber(1.345 * 2.44071)
    p = px.MeanOfLosses(px.residual(line), f, (X, y[:, None]))
    w = jnp.asarray(huber_fits(X, y[:, None], 1.345 * 2.44071)[0])
    np.testing.assert_allclose(
        w, [-41.026531, 0.82937387, 0.92610818, -0.12784916], rtol=1e-4
    )
    errors = np.sqrt(np.diag(px.covariance(p, w, "rlm")))
    np.testing.assert_allclose(
        errors, [9.80735, 0.11118, 0.303408, 0.128853], rtol=1e-4
    )


@pytest.mark.reference
def test_rq_of_engel(columns):
    """se="nid" and se="ker" of summary.rq, and the coefficients."""
    X, y = columns("engel")
    p = px.MeanOfLosses(px.residual(line), px.Quantile(0.5), (X, y[:, None]))
    w = vertex(X, y, 0.5)
    np.testing.assert_allclose(w, [81.482247, 0.56018055], rtol=1e-6)
    nid = np.sqrt(np.diag(px.covariance(p, w, "nid")))
    np.testing.assert_allclose(nid, [19.2507, 0.0282772], rtol=1e-5)
    kernel = np.sqrt(np.diag(px.covariance(p, w, "kernel")))
    np.testing.assert_allclose(kernel, [30.21532, 0.03732], rtol=2e-4)


def s_estimate(X, y):
    """Residuals and scale of the S-estimate, by reweighting from many subsets of p rows."""
    n, p = X.shape
    scale = jax.jit(jax.vmap(lambda r: m_scale(r, parameters=p)))
    rng = np.random.default_rng(0)
    subsets = np.array([rng.choice(n, p, replace=False) for _ in range(300)])
    good = np.linalg.cond(X[subsets]) < 1e8
    W = np.linalg.solve(X[subsets[good]], y[subsets[good]][..., None])[..., 0]
    for step in range(60):
        R = y - W @ X.T
        s = np.asarray(scale(jnp.asarray(R)))
        if step == 2:
            best = np.argsort(s)[:5]
            R, s = R[best], s[best]
        weights = np.maximum(1 - (R / s[:, None] / 1.54764) ** 2, 0) ** 2
        G = np.einsum("bn,np,nq->bpq", weights, X, X) + 1e-12 * np.eye(p)
        W = np.linalg.solve(G, np.einsum("bn,np,n->bp", weights, X, y)[..., None])[
            ..., 0
        ]
    best = np.argmin(s)
    return R[best], float(s[best])


LMROB = {  # coefficients, standard errors, scale
    "stackloss": (
        [-41.524617, 0.93884534, 0.57955323, -0.11292183],
        [5.2978, 0.117429, 0.262963, 0.0698899],
        1.91235,
    ),
    "hbk": (
        [-0.18961614, 0.085273566, 0.041013149, -0.053713401],
        [0.116743, 0.0732862, 0.0295607, 0.0319455],
        0.789173,
    ),
}


@pytest.mark.reference
@pytest.mark.parametrize("name", LMROB)
def test_lmrob(columns, name):
    """The M-scale of the S-estimate, and the standard errors of the MM-estimate."""
    w, errors, scale = LMROB[name]
    X, y = columns(name)
    initial, s = s_estimate(X, y)
    assert s == pytest.approx(scale, rel=1e-5)
    cov = mm_covariance(X, y - X @ w, initial, s)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), errors, rtol=1e-3)


@pytest.mark.law
def test_mm_covariance_follows_maps_of_the_features_and_units():
    X, Y = table()
    r = np.random.default_rng(4).standard_t(3, size=len(X))
    r0 = r + 0.1 * X[:, 1]
    cov = mm_covariance(X, r, r0, 0.8)
    T = np.random.default_rng(5).normal(size=(D, D)) * [1e-6, 1.0, 1e6]
    assert_same(cov, T @ mm_covariance(X @ T, r, r0, 0.8) @ T.T)
    assert_same(9 * cov, mm_covariance(X, 3 * r, 3 * r0, 2.4))
    with pytest.raises(ValueError, match="two vectors"):
        mm_covariance(X, r[:5], r0, 0.8)
    with pytest.raises(ValueError, match="apart"):
        mm_covariance(np.column_stack([X, X[:, 1]]), r, r0, 0.8)
    with pytest.raises(ValueError, match="scale must be above 0"):
        mm_covariance(X, r, r0, 0.0)


@pytest.mark.reference
@pytest.mark.parametrize("name", ["Misra1a", "Chwirut2", "DanWood", "Thurber"])
def test_nist(name):
    """Certified standard deviations of nonlinear least squares, from J'J."""
    path = FOLDER / f"{name}.dat"
    deviations = re.findall(
        rf"^\s*b\d+ =(?:\s+{NUMBER}){{3}}\s+({NUMBER})\s*$", path.read_text(), re.M
    )
    r = read(path)
    inner = px.residual(lambda b, x: jnp.atleast_1d(r.model(jnp, b, x)))
    p = px.MeanOfLosses(inner, px.SquaredL2(), (r.x, r.y[:, None]))
    errors = np.sqrt(np.diag(px.covariance(p, jnp.asarray(r.certified), "rlm")))
    np.testing.assert_allclose(errors, np.array(deviations, float), rtol=1e-5)


# -------------------------------------------------------------------------------------- ridge, bits


def test_a_ridge_shrinks_it():
    """With squares, cov = (G + r)^-1 B (G + r)^-1 / n, with the ridge as a part of every loss."""
    p, w = smooth_fit("squares", ridge=0.5)
    X, y = (np.asarray(x) for x in p.data)
    w = np.asarray(w)
    scores = X * (X @ w[:, None] - y) + 0.5 * w
    A = X.T @ X / len(X) + 0.5 * np.eye(D)
    half = np.linalg.solve(A, scores.T) / len(X)
    w = jnp.asarray(w)
    assert_same(px.covariance(p, w), half @ half.T)
    free = px.covariance(p.plain(), settled(p.plain(), w))
    assert np.all(np.diag(px.covariance(p, w)) < np.diag(free))
    inverse = np.linalg.inv(A)
    r = X @ np.asarray(w) - y[:, 0]
    expected = inverse @ (X.T @ X) @ inverse / len(X) ** 2 * (r @ r) / (len(X) - D)
    assert_same(px.covariance(p, w, "hessian"), expected)


def test_float32_agrees():
    p, w = smooth_fit("huber")
    data = tuple(np.asarray(x, np.float32) for x in p.data)
    q = px.MeanOfLosses(px.residual(line), px.Huber(np.float32(1.0)), data)
    cov = px.covariance(q, w.astype(np.float32))
    assert cov.dtype == np.float64
    assert_same(px.covariance(p, w), cov, 1e-4)
    X, Y = table()
    w = vertex(X, Y[:, 0], 0.5)
    data = tuple(x.astype(np.float32) for x in (X, Y))
    p = px.MeanOfLosses(px.residual(line), px.L1(), (X, Y))
    q = px.MeanOfLosses(px.residual(line), px.L1(), data)
    for kind in ("sandwich", "kernel", "nid"):
        cov = px.covariance(q, w.astype(np.float32), kind)
        assert_same(px.covariance(p, w, kind), cov, 1e-3)


# ---------------------------------------------------------------------------------------- wrong use


def test_an_exact_fit_has_no_covariance_and_is_not_warned_of():
    X, _ = table()
    p = px.MeanOfLosses(px.residual(line), px.SquaredL2(), (X, X @ np.ones((D, 1))))
    w = jnp.asarray(np.linalg.lstsq(X, X @ np.ones(D), rcond=None)[0])
    assert np.abs(px.covariance(p, w)).max() < 1e-28


@pytest.mark.law
@pytest.mark.parametrize(
    "f", [px.Quantile(0.3), px.Huber(1.0)], ids=["quantile", "huber"]
)
def test_a_curved_map_of_w_maps_the_covariance_to_first_order(f):
    """The curvature of w = sinh(z) adds up to nothing at a minimiser, also at a vertex."""
    X, Y = table()
    p = px.MeanOfLosses(px.residual(line), f, (X, Y))
    q = px.MeanOfLosses(px.residual(lambda z, x: (x @ jnp.sinh(z))[None]), f, (X, Y))
    smooth = isinstance(f, px.Huber)
    w = settled(p, jnp.zeros(D)) if smooth else vertex(X, Y[:, 0], 0.3)
    kind = "sandwich" if smooth else "kernel"
    T = np.diag(np.cosh(np.arcsinh(w)))
    there = T @ px.covariance(q, jnp.arcsinh(w), kind) @ T
    assert_same(px.covariance(p, w, kind), there, 1e-4 if smooth else 1e-10)


def test_rounded_data_have_many_rows_at_the_kink():
    """A third of the residuals is 0; the dual variables of these rows say that w is a minimiser."""
    rng = np.random.default_rng(6)
    X = np.column_stack([np.ones(1200), rng.integers(0, 4, 1200)]).astype(float)
    Y = np.round(X @ [[1.0], [2.0]] + rng.normal(size=(1200, 1)))
    w = jnp.array([1.0, 2.0])
    p = px.MeanOfLosses(px.residual(line), px.L1(), (X, Y))
    assert np.mean(np.asarray(p.stack(w)) == 0) > 1 / 3
    assert np.all(np.diag(px.covariance(p, w, "kernel")) > 0)
    # the fits at nearby levels are the same, so that the sandwich has the densities of the kernel
    refused(p, w, "meet or cross", "kernel", kind="nid")
    ratio = np.diag(px.covariance(p, w)) / np.diag(px.covariance(p, w, "kernel"))
    assert np.all(np.abs(ratio - 1) < 0.5)


def test_two_outputs_without_common_parameters_are_two_fits():
    X, Y = table(k=2)
    f = px.Quantile(0.3)
    w = jnp.stack([vertex(X, y, 0.3) for y in Y.T], axis=1)
    both = px.covariance(px.MeanOfLosses(px.residual(lines), f, (X, Y)), w.ravel())
    for j in range(2):
        one = px.MeanOfLosses(px.residual(line), f, (X, Y[:, [j]]))
        assert_same(both[j::2, j::2], px.covariance(one, w[:, j]), 1e-8)


def test_a_w_that_is_no_minimiser_is_warned_of():
    p, w = smooth_fit("huber")
    with pytest.warns(UserWarning, match="no minimiser"):
        px.covariance(p, w + 0.3)
    X, Y = table()
    q = px.MeanOfLosses(px.residual(line), px.L1(), (X, Y))
    with pytest.warns(UserWarning, match="no minimiser"):
        px.covariance(q, vertex(X, Y[:, 0], 0.5) + 0.3)


def refused(problem, w, *sentence, kind="sandwich", error=ValueError):
    with pytest.raises(error) as caught:
        px.covariance(problem, w, kind)
    message = str(caught.value)
    assert all(part in message for part in sentence) and "\n" not in message, message


def test_what_is_refused_says_why():
    X, Y = table(k=2)
    p, w = smooth_fit("huber")
    flat = jnp.zeros(2 * D)
    phi, one = px.residual(lines), px.residual(line)
    y = Y[:, :1]
    of = px.MeanOfLosses
    median = vertex(X, y[:, 0], 0.5)
    refused(px.LossOfMean(phi, px.L2(), (X, Y)), flat, "LossOfMean", error=TypeError)
    refused(p, w, "kind", "one of", "sandwich", kind="bread")
    for f in (px.Max(), px.LInf(), px.Hinge()):
        name = type(f).__name__
        refused(of(phi, f, (X, Y)), flat, name, "px.bootstrap", error=TypeError)
    refused(p, w, "L1 or Quantile", "Huber", kind="nid")
    refused(of(one, px.L1(), (X, y)), median, "a smooth f", "L1", kind="rlm")
    two = jnp.asarray(np.column_stack([vertex(X, y, 0.5) for y in Y.T]).ravel())
    refused(of(phi, px.L1(), (X, Y)), two, "one output", "2 numbers", kind="nid")
    curved = px.residual(lambda w, x: jnp.exp(x @ w)[None])
    q = of(curved, px.L1(), (X, np.exp(X @ np.asarray(median))[:, None] + y))
    with pytest.warns(UserWarning, match="no minimiser"):
        refused(q, median, "affine", "kernel", kind="nid")
    twice = px.residual(lambda w, x: (x @ (w[:D] + w[D:]))[None])
    refused(
        of(twice, px.SquaredL2(), (X, y)),
        settled_twice(X, y),
        "flat in 3 directions of the 6",
    )
    maximum = of(
        lambda w, x: -p.inner(w, x) * (1 - w @ w)[None], px.SquaredL2(), p.data
    )
    with pytest.warns(UserWarning, match="no minimiser"):
        refused(maximum, w * 0 + 0.1, "falls in", "minimise")
    exact = of(phi, px.L2(), (X, X @ np.ones((D, 2))))
    refused(exact, jnp.ones(2 * D), "exactly")
    tied = of(px.residual(lambda w, x: w), px.L1(), (np.ones((9, 1)), np.ones((9, 1))))
    refused(tied, jnp.ones(1), "px.bootstrap")
    few = of(one, px.SquaredL2(), (X[:3], y[:3]))
    exact_w = jnp.asarray(np.linalg.solve(X[:3], y[:3])[:, 0])
    refused(few, exact_w, "3 rows", "3 parameters", kind="hessian")
    weighted = of(one, px.Huber(1.0), (X, y), weights=np.ones(len(X)))
    refused(weighted, settled(weighted, jnp.zeros(D)), "no weights", kind="rlm")
    ridged, at = smooth_fit("huber", ridge=1.0)
    refused(ridged, at, "no ridge", kind="rlm")
    big = of(px.residual(lambda w, x: (x @ w[:D])[None]), px.SquaredL2(), (X, y))
    refused(big, jnp.zeros(6000), "6000 parameters")


def settled_twice(X, y):
    w = np.linalg.lstsq(X, y, rcond=None)[0][:, 0]
    return jnp.asarray(np.concatenate([w, 0 * w]))
