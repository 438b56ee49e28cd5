"""px.curve_fit beside scipy's, beside brute force where scipy has no such loss, and what it refuses."""

import warnings

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds, OptimizeWarning
from scipy.optimize import curve_fit as scipy_curve_fit

import proxlin as px
from bench.suite.nist_problems import FOLDER, digits, read, same_curve

X = np.linspace(0, 4, 50)
RNG = np.random.default_rng(1729)
TIGHT = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}


def decay(x, a, b, c):
    return a * jnp.exp(-b * x) + c


def decay_numpy(x, a, b, c):
    return a * np.exp(-b * x) + c


def decay_slopes(x, a, b, c):
    return np.stack([np.exp(-b * x), -a * x * np.exp(-b * x), np.ones_like(x)], axis=1)


Y = decay_numpy(X, 2.5, 1.3, 0.5) + 0.2 * RNG.normal(size=50)
Y_WRONG = np.where(np.arange(50) % 7 == 0, Y + 5, Y)


def scipy_fit(**settings):
    return scipy_curve_fit(decay_numpy, X, Y, jac=decay_slopes, **TIGHT, **settings)


# --------------------------------------------------------------------------------------------- NIST

# A start with each trait: far away, exponents, rational, peaks, cycles, two columns of x, ill-conditioned.
STARTS = (
    *(("BoxBOD", 0), ("DanWood", 1), ("Eckerle4", 0), ("ENSO", 1), ("Gauss3", 0)),
    *(("Lanczos3", 1), ("MGH09", 0), ("MGH10", 0), ("MGH17", 0), ("Nelson", 1)),
)
# from here MINPACK's steps lead away
SCIPY_FAILS = {("BoxBOD", 0)}


def fitted_as_scipy(name: str, which: int) -> tuple[float, float]:
    """Return the relative differences of popt and of pcov from scipy's with exact derivatives and
    tolerances at round-off, once ours has 6 certified digits.
    """
    r = read(FOLDER / f"{name}.dat")
    is_one = r.x.shape[1] == 1
    x = r.x[:, 0] if is_one else r.x.T

    def model(x, *b):
        return r.model(jnp, b, (x,) if is_one else x)

    slopes = jax.jit(jax.jacfwd(lambda b: model(jnp.asarray(x), *b)))
    start = r.starts[which]
    popt, pcov = px.curve_fit(model, x, r.y, start)
    assert digits(name, popt, r.certified) >= 6
    if (name, which) in SCIPY_FAILS:
        return 0.0, 0.0
    theirs, theirs_cov = scipy_curve_fit(
        lambda x, *b: r.model(np, b, (x,) if is_one else x),
        *(x, r.y, start),
        jac=lambda x, *b: np.asarray(slopes(np.asarray(b))),
        maxfev=20_000,
        **TIGHT,
    )
    assert digits(name, theirs, r.certified) >= 6
    same = same_curve(name, np.arange(len(popt)) + 1)
    orders = [np.abs(order) - 1 for order in same]
    signs = [np.sign(order) for order in same]
    away = [
        np.max(np.abs(sign * popt[order] / theirs - 1))
        for order, sign in zip(orders, signs, strict=True)
    ]
    best = int(np.argmin(away))
    turned = pcov[np.ix_(orders[best], orders[best])]
    turned = turned * np.outer(signs[best], signs[best])
    size = np.sqrt(np.outer(np.diag(theirs_cov), np.diag(theirs_cov)))
    return float(away[best]), float(np.max(np.abs(turned - theirs_cov) / size))


@pytest.mark.reference
@pytest.mark.parametrize(("name", "which"), STARTS)
def test_nist(name, which):
    """All 54 starts are in test_curve_fit_slow.py."""
    with np.errstate(all="ignore"):
        away, cov_away = fitted_as_scipy(name, which)
    assert away <= 1e-6 and cov_away <= 1e-3


# -------------------------------------------------------------------------------- scipy's own examples


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"p0": [2.0, 1.0, 0.1]},
        {"sigma": np.linspace(0.1, 0.5, 50)},
        {"sigma": np.linspace(0.1, 0.5, 50), "absolute_sigma": True},
        {"sigma": 0.2 * np.eye(50) + 0.1 * np.exp(-np.abs(X[:, None] - X))},
    ],
    ids=["plain", "p0", "sigma", "absolute", "covariance"],
)
def test_as_scipy(settings):
    popt, pcov = px.curve_fit(decay, X, Y, **settings)
    theirs, theirs_cov = scipy_fit(**settings)
    np.testing.assert_allclose(popt, theirs, rtol=1e-6)
    np.testing.assert_allclose(pcov, theirs_cov, rtol=1e-5)
    assert isinstance(popt, np.ndarray) and popt.dtype == pcov.dtype == np.float64


def test_one_sigma_for_all_points():
    popt, pcov = px.curve_fit(decay, X, Y, sigma=0.3, absolute_sigma=True)
    same, same_cov = px.curve_fit(
        decay, X, Y, sigma=np.full(50, 0.3), absolute_sigma=True
    )
    np.testing.assert_array_equal(popt, same)
    np.testing.assert_array_equal(pcov, same_cov)


@pytest.mark.parametrize(
    "bounds",
    [
        (0, [3.0, 1.0, 0.5]),
        (0, np.inf),
        ([-np.inf, 1.5, -np.inf], [2.0, np.inf, 0.3]),
        Bounds([0, 0, 0], [3.0, 1.0, 0.5]),
        ([0.0, 1.2, 0.0], [2.0, 1.3, 0.2]),
    ],
    ids=["documented", "positive", "half", "Bounds", "narrow"],
)
def test_bounds_as_scipy(bounds):
    popt, pcov = px.curve_fit(decay, X, Y, bounds=bounds)
    theirs, theirs_cov = scipy_fit(bounds=bounds, method="trf")
    low, high = (bounds.lb, bounds.ub) if isinstance(bounds, Bounds) else bounds
    assert (low <= popt).all() and (popt <= high).all()
    # trf comes near a bound and ours ends at it
    np.testing.assert_allclose(popt, theirs, atol=1e-6)
    np.testing.assert_allclose(pcov, theirs_cov, rtol=1e-4)
    ours = np.sum((decay_numpy(X, *popt) - Y) ** 2)
    assert ours <= np.sum((decay_numpy(X, *theirs) - Y) ** 2) * (1 + 1e-12)


def test_a_bound_is_met_exactly():
    popt, _ = px.curve_fit(decay, X, Y, bounds=(0, [3.0, 1.0, 0.5]))
    assert popt[1] == 1.0


def test_too_many_parameters():
    def twice(x, a, b, c, d):
        return a * d * jnp.exp(-b * x) + c

    with pytest.warns(OptimizeWarning, match="do not tell the parameters apart"):
        popt, pcov = px.curve_fit(twice, X, Y)
    assert np.isinf(pcov).all()
    best, _ = scipy_fit()
    np.testing.assert_allclose(popt[0] * popt[3], best[0], rtol=1e-6)


def test_as_many_parameters_as_points():
    with pytest.warns(OptimizeWarning, match="as many parameters as points"):
        popt, pcov = px.curve_fit(decay, X[:3], Y[:3], p0=[2.0, 1.0, 0.5])
    np.testing.assert_allclose(decay_numpy(X[:3], *popt), Y[:3], atol=1e-8)
    assert np.isinf(pcov).all()


def test_full_output():
    popt, pcov, info, message, ier = px.curve_fit(decay, X, Y, full_output=True)
    np.testing.assert_allclose(info["fvec"], decay_numpy(X, *popt) - Y, atol=1e-14)
    assert info["nfev"] > 1 and ier in (1, 2, 3, 4) and isinstance(message, str)


# ------------------------------------------------------------------------------------- robust losses


def plane(x, a, b, c):
    return a * x[0] + b * x[1] + c


CVXPY = {
    "l1": lambda u: cp.norm1(u),
    "quantile": lambda u: cp.sum(cp.maximum(0.2 * u, -0.8 * u)),
    "huber": lambda u: cp.sum(cp.huber(u, 0.5)) / 2,
}
SETTINGS = {
    "l1": {"loss": "l1"},
    "quantile": {"loss": "quantile", "quantile": 0.8},
    "huber": {"loss": "huber", "delta": 0.5},
}


@pytest.mark.reference
@pytest.mark.parametrize("loss", CVXPY)
def test_planes_beside_cvxpy(loss):
    """The same least value, without bounds and within random boxes; the vertex of a random box that
    matters is not known beforehand.
    """
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 40)) * np.array([[1.0], [30.0]])
    y = plane(x, 1.0, 0.2, -2.0) + rng.standard_t(1.5, size=40)
    boxes = [(-np.inf, np.inf)]
    for _ in range(8):
        middle = np.array([1.0, 0.2, -2.0]) + rng.normal(size=3) * [0.5, 0.02, 0.5]
        width = rng.random(3) * [0.6, 0.02, 0.6]
        boxes.append((middle - width, middle + width))
    for low, high in boxes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizeWarning)
            popt, _ = px.curve_fit(plane, x, y, bounds=(low, high), **SETTINGS[loss])
        w = cp.Variable(3)
        value = CVXPY[loss](x.T @ w[:2] + w[2] - y)
        limits = [] if np.ndim(low) == 0 else [w >= low, w <= high]
        least = cp.Problem(cp.Minimize(value), limits).solve(solver="CLARABEL")
        w.value = popt
        assert (low <= popt).all() and (popt <= high).all()
        assert value.value <= least * (1 + 1e-7)


@pytest.mark.parametrize("settings", [{"loss": "l1"}, {"loss": px.Huber(0.3)}])
def test_curved_bounds_beside_a_grid(settings):
    """min over a box of |f - y| for a curve in two parameters, beside the values on a fine grid."""

    def two(x, a, b):
        return a * jnp.exp(-b * x) + 0.5

    low = np.array([0.5, 0.4])
    high = np.array([2.2, 1.1])
    popt, _ = px.curve_fit(two, X, Y_WRONG, bounds=(low, high), **settings)

    def value(a, b):
        u = np.abs(a[..., None] * np.exp(-b[..., None] * X) + 0.5 - Y_WRONG)
        if settings["loss"] == "l1":
            return u.sum(axis=-1)
        return np.where(u <= 0.3, u * u / 2, 0.3 * (u - 0.15)).sum(axis=-1)

    grid = np.meshgrid(
        *(np.linspace(*ends, 401) for ends in zip(low, high, strict=True))
    )
    assert (low <= popt).all() and (popt <= high).all()
    assert value(popt[0], popt[1]) <= value(*grid).min() * (1 + 1e-12)
    assert (popt == low).any() or (popt == high).any()


def test_f_sees_no_parameter_outside_of_its_bounds():
    seen = []

    def watched(x, a, b, c):
        jax.debug.callback(lambda *w: seen.append([float(each) for each in w]), a, b, c)
        return decay(x, a, b, c)

    low = np.array([0.0, 0.0, 0.3])
    high = np.array([2.0, 1.0, 0.4])
    popt, _ = px.curve_fit(watched, X, Y, bounds=(low, high))
    jax.effects_barrier()
    assert len(seen) > 10 and (popt == high).any()
    assert (low <= np.array(seen)).all() and (np.array(seen) <= high).all()


@pytest.mark.parametrize(
    ("settings", "outer"),
    [
        ({"loss": "l1"}, px.L1()),
        ({"loss": "huber", "delta": 0.4}, px.Huber(0.4)),
        ({"loss": "quantile", "quantile": 0.3}, px.Quantile(0.3)),
    ],
    ids=["l1", "huber", "quantile"],
)
def test_the_minimiser_and_covariance_of_a_problem(settings, outer):
    """The same as a problem written by hand, of one row for each point."""
    sigma = np.linspace(0.5, 1.5, 50)
    popt, pcov = px.curve_fit(decay, X, Y_WRONG, sigma=sigma, **settings)
    problem = px.MeanOfLosses(
        lambda w, row: (decay(row[0], *w) - row[1]) / row[2], outer, (X, Y_WRONG, sigma)
    )
    best = px.minimize(problem, jnp.asarray(popt), px.prox_linear(), steps=50)
    assert problem.value(jnp.asarray(popt)) <= best.value * (1 + 1e-12)
    np.testing.assert_allclose(pcov, px.covariance(problem, popt), rtol=1e-6)


def test_outliers_do_not_move_robust_fits():
    clean, _ = px.curve_fit(decay, X, Y)
    squares, _ = px.curve_fit(decay, X, Y_WRONG)
    for loss in ("l1", "huber"):
        robust, _ = px.curve_fit(decay, X, Y_WRONG, loss=loss)
        near = np.abs(decay_numpy(X, *robust) - decay_numpy(X, *clean)).max()
        far = np.abs(decay_numpy(X, *squares) - decay_numpy(X, *clean)).max()
        assert near < far / 3


def test_delta_of_huber():
    """1.345 times 1.4826 times the median of |r|, r the residuals of an l1 fit."""
    first, _ = px.curve_fit(decay, X, Y_WRONG, loss="l1")
    r = decay_numpy(X, *first) - Y_WRONG
    delta = 1.345 * 1.4826 * np.median(np.abs(r))
    popt, pcov = px.curve_fit(decay, X, Y_WRONG, loss="huber")
    again, again_cov = px.curve_fit(decay, X, Y_WRONG, loss="huber", delta=delta)
    np.testing.assert_allclose(popt, again, rtol=1e-6)
    np.testing.assert_allclose(pcov, again_cov, rtol=1e-5)


def test_data_without_noise():
    y = decay_numpy(X, 2.5, 1.3, 0.5)
    y[::9] += 10
    for loss in ("l1", "huber"):
        with warnings.catch_warnings():
            # rounding decides whether there is anything to estimate from
            warnings.simplefilter("ignore", OptimizeWarning)
            popt, pcov = px.curve_fit(decay, X, y, loss=loss)
        np.testing.assert_allclose(popt, [2.5, 1.3, 0.5], rtol=1e-6)
        assert np.isinf(pcov).all() or np.abs(pcov).max() < 1e-12


# --------------------------------------------------------------------------------------- many curves


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bounds": (0, [3.0, 1.5, 1.0])},
        {"loss": "huber", "bounds": (0, [3.0, 1.5, 1.0])},
    ],
    ids=["squares", "bounds", "huber"],
)
def test_many_curves(settings):
    rng = np.random.default_rng(5)
    true = rng.uniform([1.0, 0.5, 0.0], [4.0, 2.0, 1.0], size=(20, 3))
    y = np.stack([decay_numpy(X, *w) for w in true]) + 0.05 * rng.normal(size=(20, 50))
    y[3, 7] = np.nan
    settings = {"p0": [2.0, 1.0, 0.5], "nan_policy": "omit"} | settings
    popt, pcov = px.curve_fit(decay, X, y, **settings)
    assert popt.shape == (20, 3) and pcov.shape == (20, 3, 3)
    for i in (0, 3, 19):
        one, one_cov = px.curve_fit(decay, X, y[i], **settings)
        np.testing.assert_allclose(popt[i], one, rtol=1e-6)
        np.testing.assert_allclose(pcov[i], one_cov, rtol=1e-4, atol=1e-12)


def test_starts_of_many_curves():
    y = np.stack([Y, 2 * Y])
    starts = np.array([[2.0, 1.0, 0.5], [4.0, 1.0, 1.0]])
    popt, _, info, _, ier = px.curve_fit(decay, X, y, starts, full_output=True)
    np.testing.assert_allclose(popt[1], popt[0] * [2, 1, 2], rtol=1e-7)
    assert info["fvec"].shape == (2, 50) and (ier == 1).all()


def test_a_curve_that_fails_among_many():
    best, _ = px.curve_fit(decay, X, Y)
    y = np.stack([Y, decay_numpy(X, 40.0, 0.2, -3.0)])
    with pytest.warns(
        OptimizeWarning, match="1 of 2 curves, the first of them curve 1"
    ):
        popt, pcov = px.curve_fit(decay, X, y, p0=best, maxfev=3)
    assert np.isfinite(popt[0]).all() and np.isnan(popt[1]).all()
    assert np.isfinite(pcov[0]).all() and np.isnan(pcov[1]).all()


# ------------------------------------------------------------------------------------ what people pass


def test_kinds_of_x():
    best, _ = px.curve_fit(decay, X, Y)
    for x, y in ((X.tolist(), Y.tolist()), (pd.Series(X), pd.Series(Y))):
        popt, _ = px.curve_fit(decay, x, y)
        np.testing.assert_array_equal(popt, best)
    frame = pd.DataFrame({"a": X, "b": X**2})

    def named(x, p, q):
        return p * x["a"] + q * x["b"]

    popt, _ = px.curve_fit(named, frame, 2 * X + 3 * X**2)
    np.testing.assert_allclose(popt, [2, 3], rtol=1e-9)
    whole, _ = px.curve_fit(lambda x, a: a * x, [1, 2, 3], [2, 4, 7])
    np.testing.assert_allclose(whole, [31 / 14], rtol=1e-12)


def test_f_need_not_be_a_function_of_each_point_alone():
    popt, _ = px.curve_fit(lambda x, a: a * jnp.cumsum(x), X, 3 * np.cumsum(X))
    np.testing.assert_allclose(popt, [3], rtol=1e-12)
    mean, _ = px.curve_fit(lambda x, a: a, X, Y)
    np.testing.assert_allclose(mean, [Y.mean()], rtol=1e-12)


def test_missing_points():
    y = Y.copy()
    y[[3, 20]] = np.nan
    kept = np.isfinite(y)
    popt, pcov = px.curve_fit(decay, X, y, nan_policy="omit")
    best, best_cov = px.curve_fit(decay, X[kept], Y[kept])
    np.testing.assert_allclose(popt, best, rtol=1e-9)
    np.testing.assert_allclose(pcov, best_cov, rtol=1e-9)
    for settings in ({}, {"nan_policy": "raise"}):
        with pytest.raises(
            ValueError, match=r"ydata must be finite; ydata\[3\] is nan"
        ):
            px.curve_fit(decay, X, y, **settings)


def test_a_function_of_numpy():
    with pytest.raises(TypeError) as error:
        px.curve_fit(decay_numpy, X, Y)
    assert "import jax.numpy as jnp" in str(error.value)
    assert "jnp.exp(...) in place of np.exp(...)" in str(error.value)
    assert "return a * np.exp(-b * x) + c" in str(error.value)


def test_a_fit_that_fails():
    with pytest.raises(RuntimeError, match="Optimal parameters not found.*maxfev = 2"):
        px.curve_fit(decay, X, Y, maxfev=2)


def branching(x, a):
    return a * x if a > 0 else x


# arguments and settings, the error, and words of its sentence
REFUSED = [
    ({"p0": [1.0, 2.0]}, TypeError, "2 parameters, the length of p0"),
    ({"p0": [[1.0, 2.0, 3.0]]}, ValueError, "p0 must be a vector"),
    ({"p0": [1, np.nan, 1]}, ValueError, "p0 must be finite"),
    ({"p0": [9, 1, 1], "bounds": (0, 3)}, ValueError, r"infeasible: p0\[0\] = 9"),
    ({"p0": [-1e3, -1e3, 1]}, ValueError, "not finite at the start"),
    ({"bounds": (1, 0)}, ValueError, "at most the upper one; for parameter 0"),
    ({"bounds": (0, [1, 2])}, ValueError, "each of the 3 parameters; the high one"),
    ({"bounds": 3}, ValueError, "bounds must be a pair"),
    ({"bounds": (0, 3), "method": "lm"}, ValueError, "without bounds"),
    ({"method": "bfgs"}, ValueError, "method must be None"),
    ({"jac": "2-point"}, ValueError, "JAX differentiates f itself"),
    ({"loss": "soft_l1"}, ValueError, "loss must be one of squares, l1"),
    ({"loss": px.L1}, ValueError, "or an outer function such as"),
    ({"loss": px.LInf()}, ValueError, "the loss of each residual"),
    ({"loss": px.StructuredHinge(px.Chains(2, 2))}, TypeError, "oracle"),
    ({"loss": "quantile"}, ValueError, "quantile=0.9"),
    ({"quantile": 0.5}, ValueError, 'belongs to loss="quantile"'),
    ({"delta": 0.5}, ValueError, 'delta belongs to loss="huber"'),
    ({"loss": "huber", "delta": -1}, ValueError, "delta"),
    ({"sigma": np.ones(49)}, ValueError, r"sigma must have shape \(50,\)"),
    ({"sigma": np.zeros(50)}, ValueError, "sigma must be above 0"),
    ({"sigma": np.ones((50, 50))}, ValueError, "positive definite"),
    ({"nan_policy": "propagate"}, ValueError, "nan_policy must be None"),
    ({"ftol": 1e-9}, TypeError, "steps go on until round-off"),
    ({"maxfev": 0.5}, (TypeError, ValueError), "maxfev"),
    ({"maxfev": np.ones(3)}, ValueError, "maxfev must be a whole number"),
    ({"method": np.ones(3)}, ValueError, "method must be None"),
    ({"nan_policy": np.ones(3)}, ValueError, "nan_policy must be None"),
    ({"sigma": "10"}, TypeError, "sigma must be an array of real numbers; it is str"),
    ({"sigma": np.array(["1"] * 50)}, TypeError, "sigma must be an array of real"),
    ({"xdata": np.full(50, np.inf)}, ValueError, "xdata must be finite"),
    ({"xdata": np.array(["a"] * 50)}, TypeError, "xdata must be an array of real"),
    ({"p0": 10**400}, ValueError, "p0 has a number that is too large for float64"),
    ({"sigma": 10**400}, ValueError, "sigma has a number that is too large"),
    ({"xdata": X[:49]}, ValueError, r"array of shape \(49,\)"),
    ({"ydata": []}, ValueError, "must not be empty"),
    ({"ydata": Y[:2], "xdata": X[:2]}, TypeError, "must not exceed the number of points"),
    ({"ydata": np.ones((2, 3, 4))}, ValueError, "one axis, or two"),
    ({"f": branching}, TypeError, "jnp.where"),
    ({"f": lambda *w: w[0]}, ValueError, "give a start p0"),
    ({"f": lambda x, a: None}, TypeError, "returned None"),
    ({"f": lambda x, a: a * jnp.outer(x, x)}, ValueError, r"shape \(50, 50\)"),
    ({"f": lambda x, a: x > a}, TypeError, "floating-point"),
    ({"f": "exp"}, TypeError, "f must be a function"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "kind", "words"), REFUSED)
def test_refused_in_a_sentence(changes, kind, words):
    arguments = {"f": decay, "xdata": X, "ydata": Y} | changes
    with pytest.raises(kind, match=words) as error:
        px.curve_fit(**arguments)
    text = str(error.value)
    assert text.endswith(".") and "\n" not in text
