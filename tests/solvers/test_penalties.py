"""Problems with a penalty as a whole: against scikit-learn and scipy, bounds that are kept, zeros
that are zeros, and what is refused.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import proxlin as px

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
TRUE = np.array([2.0, -1.0, 0.0, 0.0, 0.5, 0.0])
Y = X @ TRUE + 1.5 + 0.3 * RNG.normal(size=40)


def affine(w, s):
    return (s[0] @ w["w"] + w["b"] - s[1])[None]


START = {"w": jnp.zeros(6), "b": jnp.zeros(())}


def fitted(outer, penalty, start=START):
    p = px.MeanOfLosses(affine, outer, (X, Y), penalty=penalty)
    return px.minimize(p, start, px.prox_linear(), tol=1e-10)


# ------------------------------------------------------------------------------------------- peers


@pytest.mark.reference
def test_lasso_is_that_of_scikit_learn():
    from sklearn.linear_model import Lasso

    for lam in (0.05, 0.4, 2.0):
        peer = Lasso(alpha=lam, tol=1e-12, max_iter=100_000).fit(X, Y)
        found = fitted(px.SquaredL2(), {"w": px.L1Penalty(lam), "b": None})
        assert np.allclose(found.w["w"], peer.coef_, atol=1e-6)
        assert np.array_equal(found.w["w"] == 0, peer.coef_ == 0)
        assert np.isclose(found.w["b"], peer.intercept_, atol=1e-6)


@pytest.mark.reference
def test_non_negative_least_squares_are_those_of_scikit_learn():
    from sklearn.linear_model import LinearRegression

    peer = LinearRegression(positive=True).fit(X, Y)
    found = fitted(px.SquaredL2(), {"w": px.NonNegative(), "b": None})
    assert np.allclose(found.w["w"], peer.coef_, atol=1e-7)
    assert np.array_equal(found.w["w"] == 0, peer.coef_ == 0)


@pytest.mark.reference
def test_the_quantile_with_l1_is_that_of_scikit_learn():
    from sklearn.linear_model import QuantileRegressor

    for q, lam in ((0.5, 0.1), (0.8, 0.02)):
        peer = QuantileRegressor(quantile=q, alpha=lam, solver="highs").fit(X, Y)
        found = fitted(px.Quantile(q), {"w": px.L1Penalty(lam), "b": None})
        p = px.MeanOfLosses(
            affine, px.Quantile(q), (X, Y), penalty={"w": px.L1Penalty(lam), "b": None}
        )
        theirs = {"w": jnp.asarray(peer.coef_), "b": jnp.asarray(peer.intercept_)}
        assert abs(found.value - float(p.value(theirs))) <= 1e-8
        assert np.array_equal(found.w["w"] == 0, np.abs(peer.coef_) < 1e-12)


@pytest.mark.reference
def test_rows_of_zeros_are_those_of_the_multi_task_lasso():
    from sklearn.linear_model import MultiTaskLasso

    targets = X @ np.outer(TRUE, [1.0, 0.5]) + 0.3 * RNG.normal(size=(40, 2))
    peer = MultiTaskLasso(
        alpha=0.3, tol=1e-12, max_iter=100_000, fit_intercept=False
    ).fit(X, targets)
    p = px.MeanOfLosses(
        px.residual(lambda w, x: x @ w),
        px.SquaredL2(),
        (X, targets),
        penalty=px.GroupL2(0.3),
    )
    found = px.minimize(p, jnp.ones((6, 2)), px.prox_linear(), tol=1e-10)
    assert np.allclose(found.w, peer.coef_.T, atol=1e-6)
    assert np.array_equal(found.w == 0, peer.coef_.T == 0) and np.any(found.w == 0)


@pytest.mark.reference
def test_a_bounded_curve_is_that_of_scipy():
    from scipy.optimize import least_squares

    t = np.linspace(0, 4, 30)
    rng = np.random.default_rng(3)
    y = 2.5 * np.exp(-1.3 * t) + 0.5 + 0.05 * rng.normal(size=30)
    low, high = np.array([0.0, 0.0, 0.6]), np.array([2.2, 10.0, 2.0])
    curve = lambda w, t: w[0] * jnp.exp(-w[1] * t) + w[2]
    peer = least_squares(
        lambda w: np.asarray(curve(w, t)) - y,
        [1.0, 1.0, 1.0],
        bounds=(low, high),
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-12,
    )
    p = px.MeanOfLosses(
        px.residual(curve), px.SquaredL2(), (t, y), penalty=px.Bounds(low, high)
    )
    found = px.minimize(p, jnp.ones(3), px.prox_linear(), tol=1e-12, steps=200)
    assert found.value <= peer.cost / 30 + 1e-10
    assert np.allclose(found.w, peer.x, atol=1e-5)
    assert found.w[0] == high[0] and found.w[2] == low[2]  # not one rounding away


# --------------------------------------------------------------------------------- bounds and zeros

DOMAIN = 1e-3


def logarithms(kind=px.MeanOfLosses):
    """log(w) x - y, which is nan for w <= 0; one entry of the minimiser is at its bound."""
    x = np.abs(RNG.normal(size=(12, 3)))
    inner = lambda w, s: jnp.atleast_1d(s[0] @ jnp.log(w) - s[1])
    bounds = px.Bounds(DOMAIN, np.array([0.2, 2.0, 30.0]))
    data = (x, x @ np.array([1.0, -1.0, 2.0]))
    return kind(inner, px.L1(), data, penalty=bounds)


INSIDE = {
    "sgd": px.sgd(px.InverseSqrt(0.1)),
    "truncated": px.truncated(10.0),
    "subgradient_descent": px.subgradient_descent(0.1),
    "averaged": px.Averaged(px.sgd(0.1)),
    "best so far": px.BestSoFar(px.sgd(0.1)),
    "svrg": px.svrg(0.01, nu=0.1),
    "svrg, the last iterate": px.svrg(0.01, nu=0.1, average=False),
    "casimir": px.casimir_svrg(0.1, step=0.01),
    "casimir, from before": px.casimir_svrg(0.1, step=0.01, warm_start="extrapolation"),
    "pli": px.pli(1.0, 0.1, step=0.01),
    "pli dual": px.pli(1.0),
    "prox_linear": px.prox_linear(),
    "prox_linear fixed": px.prox_linear(1.0),
    "prox_linear accelerated": px.prox_linear(accelerated=True),
    "stochastic_prox_linear": px.stochastic_prox_linear(0.1, 4),
    "gauss_newton": px.stochastic_gauss_newton(10.0, 4),
}


@pytest.mark.parametrize("name", INSIDE)
def test_every_solver_stays_within_the_bounds(name):
    """phi is nan outside: a solver that looks there once ends with nan."""
    solver = INSIDE[name]
    kind = px.LossOfMean if name == "gauss_newton" else px.MeanOfLosses
    p = logarithms(kind)
    outside = {}

    def far(w):
        outside["w"] = w
        return float(p.penalty.value(w))

    found = px.minimize(
        p, jnp.ones(3) * 0.1, solver, passes=40, metrics={"outside": far}
    )
    assert np.all(found.history["outside"] == 0)
    assert np.all(np.isfinite(found.history["value"])) and found.status != "diverged"
    assert found.value < found.history["value"][0]


ZEROS = {
    "sgd": (px.sgd(px.InverseSqrt(0.1)), 0.05),
    "svrg": (px.svrg(0.05), 1e-3),
    "casimir": (px.casimir_svrg(0.02, step=0.01), 1e-3),
    "pli dual": (px.pli(0.1), 1e-7),
    "pli": (px.pli(0.1, 0.01, step=0.05), 1e-3),
    "prox_linear": (px.prox_linear(), 1e-9),
    "truncated": (px.truncated(0.1), 0.05),
}


@pytest.mark.parametrize("name", ZEROS)
def test_proximal_steps_end_at_the_lasso_with_its_zeros(name):
    solver, gap = ZEROS[name]
    penalty = {"w": px.L1Penalty(0.4), "b": None}
    best = fitted(px.SquaredL2(), penalty)
    p = px.MeanOfLosses(affine, px.SquaredL2(), (X, Y), penalty=penalty)
    found = px.minimize(p, START, solver, passes=150)
    assert found.history["value"].min() - best.value <= gap
    if name not in ("sgd", "truncated"):  # whose last step is noisy
        assert np.array_equal(found.w["w"] == 0, best.w["w"] == 0)
    assert np.any(found.w["w"] == 0)


def test_the_truncated_step_is_the_minimiser_of_its_model():
    """max(line, lower) + g(x) + |x - w|^2 / 2 step, against a fine search along x(t)."""
    p = px.MeanOfLosses(affine, px.L1(), (X, Y), penalty=px.L1Penalty(0.3))
    w = {"w": jnp.asarray(TRUE), "b": jnp.asarray(0.3)}
    for lower, step in ((0.0, 0.1), (1.1, 1.0), (1.1, 50.0)):
        new = px.minimize(
            p, w, px.truncated(step, lower=lower, batch_size=40), steps=1, seed=1
        ).w
        solver = px.truncated(step, lower=lower, batch_size=40)
        drawn = solver.draw(p, jax.random.key(1), 1)[0]
        state, _ = solver.step(p, solver.init(p, w), drawn)
        new = state.w
        batch = p[drawn].unpenalized()
        value, v = batch.value_and_subgradient(w)

        def model(x, value=value, v=v, lower=lower, step=step):
            way = optax.tree.sub(x, w)
            line = jnp.maximum(value + optax.tree.vdot(v, way), lower)
            return float(
                line + p.penalty.value(x) + optax.tree.vdot(way, way) / (2 * step)
            )

        rng = np.random.default_rng(4)
        least = model(new)
        for _ in range(200):
            size = 10.0 ** rng.uniform(-6, 0)
            near = jax.tree.map(
                lambda x, s=size, r=rng: x + s * r.normal(size=x.shape), new
            )
            assert model(near) >= least - 1e-7


# ----------------------------------------------------------------------- around the run of a solver


def test_a_start_outside_of_the_bounds_is_projected_and_said():
    p = logarithms()
    found = px.minimize(p, jnp.array([0.1, 5.0, -1.0]), px.prox_linear(), steps=3)
    assert "2 entries" in found.message and "projected" in found.message
    assert np.isfinite(found.history["value"][0])
    inside = px.minimize(p, jnp.array([0.1, 2.0, DOMAIN]), px.prox_linear(), steps=3)
    assert "projected" not in inside.message
    assert inside.value == found.value
    result = px.solve(p, jnp.array([0.1, 5.0, -1.0]), steps=3)
    assert np.isclose(float(result.value), found.value, rtol=1e-9)


def test_auto_takes_what_can_take_a_penalty():
    found = px.minimize(logarithms(), jnp.ones(3) * 0.1, steps=2)
    assert found.solver == "prox_linear"
    tall = px.MeanOfLosses(
        lambda w, x: jnp.tanh(w @ x),
        px.L1(),
        np.ones((30, 4)),
        penalty=px.NonNegative(),
    )
    many = jnp.ones((500, 4))  # 15,000 rows and 2,000 parameters: exact steps are slow
    found = px.minimize(tall, many, passes=0.1)
    assert found.solver == "sgd" and "penalty" in found.message


def test_the_cost_is_the_same_as_without():
    p = px.MeanOfLosses(affine, px.L1(), (X, Y))
    with_one = px.MeanOfLosses(affine, px.L1(), (X, Y), penalty=px.L1Penalty(0.1))
    for solver in (px.sgd(0.1), px.svrg(0.1), px.pli(0.1), px.prox_linear(1.0)):
        plain = px.minimize(p, START, solver, steps=2)
        assert px.minimize(with_one, START, solver, steps=2).cost == plain.cost


def test_as_optax_takes_the_proximal_step():
    p = px.MeanOfLosses(affine, px.L1(), (X, Y), penalty=px.L1Penalty(0.5))
    optimiser = px.as_optax(px.sgd(0.3), affine, px.L1(), penalty=px.L1Penalty(0.5))
    w = jax.tree.map(lambda x: x + 0.1, START)
    update, _ = optimiser.update(None, optimiser.init(w), w, batch=(X, Y))
    slope = p.unpenalized().subgradient(w)
    step = p.penalty.prox(optax.tree.add_scale(w, -0.3, slope), 0.3)
    moved = optax.apply_updates(w, update)
    assert np.allclose(moved["w"], step["w"], atol=1e-12)


def test_solve_many_over_weights_of_the_penalty():
    lams = jnp.asarray([0.05, 0.4, 2.0])

    def make(lam):
        penalty = {"w": px.L1Penalty(lam), "b": None}
        return px.MeanOfLosses(
            affine, px.SquaredL2(), (jnp.asarray(X), jnp.asarray(Y)), penalty=penalty
        )

    problems = jax.vmap(make, axis_size=3)(lams)
    result = px.solve_many(problems, START, tol=1e-10)
    for i, lam in enumerate(lams):
        alone = fitted(px.SquaredL2(), {"w": px.L1Penalty(float(lam)), "b": None})
        assert np.isclose(float(result.value[i]), alone.value, rtol=1e-9)
        assert np.array_equal(result.w["w"][i] == 0, alone.w["w"] == 0)


@pytest.mark.parametrize("what", ["lam", "bound", "data", "group", "kinks"])
def test_derivatives_are_those_of_the_answer(what):
    """Against central differences, where the zeros and the active bounds stay the same."""

    def answer(t):
        y = jnp.asarray(Y)
        outer = px.SquaredL2()
        penalty = {"w": px.L1Penalty(0.4), "b": None}
        if what == "lam":
            penalty = {"w": px.L1Penalty(0.4 + t), "b": None}
        if what == "group":
            penalty = {"w": px.GroupL2(0.4 + t), "b": None}
        if what == "bound":
            penalty = {"w": px.Bounds(-0.5 + t, 1.0 + 2 * t), "b": None}
        if what == "data":
            y = y + t * jnp.cos(y)
        if what == "kinks":
            outer = px.L1()
            y = y + t * jnp.cos(y)
        p = px.MeanOfLosses(affine, outer, (jnp.asarray(X), y), penalty=penalty)
        result = px.solve(p, START, tol=1e-12, steps=60)
        return jnp.append(result.w["w"], result.w["b"]), result.value

    both = jax.jit(lambda t: jax.jvp(answer, (t,), (jnp.ones(()),)))
    _, (w_dot, value_dot) = both(jnp.zeros(()))
    h = 1e-5
    ahead, back = (both(jnp.asarray(t))[0] for t in (h, -h))
    assert np.allclose(w_dot, (ahead[0] - back[0]) / (2 * h), atol=1e-4)
    assert np.allclose(value_dot, (ahead[1] - back[1]) / (2 * h), atol=1e-5)
    if what == "lam":
        backward = jax.grad(lambda t: answer(t)[1])(jnp.zeros(()))
        assert np.isclose(float(backward), float(value_dot), rtol=1e-6, atol=1e-9)


def test_the_bootstrap_keeps_the_bounds():
    p = px.MeanOfLosses(
        affine, px.L1(), (X, Y), penalty={"w": px.NonNegative(), "b": None}
    )
    found = px.minimize(p, START, px.prox_linear(), tol=1e-8)
    drawn = px.bootstrap(p, found.w, count=8, key=jax.random.key(0))
    assert np.all(np.asarray(drawn.w["w"]) >= 0)
    with pytest.raises(ValueError, match=r"penalty.*px\.bootstrap"):
        px.covariance(p, found.w)


# ---------------------------------------------------------------------------------------- refusals


class Plain(px.AbstractSolver):
    """A user's solver that knows nothing of penalties."""

    def init(self, problem, w):
        return px.State(w, jnp.int32(0))

    def step(self, problem, state, drawn):
        return state, px.Info()

    def prices(self, problem, w):
        return px.Prices(step=problem.prices(w).subgradient)


class PlainModel(px.AbstractModel):
    def minimize(self, problem, w, step, key, memory):
        return w, None, px.Info()

    def prices(self, problem, w):
        return px.Prices(step=problem.prices(w).subgradient)

    def name(self, full_batch):
        return "plain"


REFUSED = {
    "lbfgs": (px.lbfgs(), px.MeanOfLosses, ["lbfgs", "penalty", "prox_linear"]),
    "rescaled": (px.Rescaled(px.sgd(0.1)), px.MeanOfLosses, ["Rescaled", "penalty"]),
    "a user's solver": (Plain(), px.MeanOfLosses, ["Plain", "penalty"]),
    "a user's model": (
        px.ModelBased(PlainModel(), px.Constant(0.1), 1),
        px.MeanOfLosses,
        ["plain", "penalty"],
    ),
    "apg": (
        px.stochastic_gauss_newton(1.0, 2, subsolver="apg"),
        px.LossOfMean,
        ["apg", "penalty", "exact"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_take_a_penalty_refuses_it(name):
    solver, kind, words = REFUSED[name]
    p = logarithms(kind)
    for run in (
        lambda: px.minimize(p, jnp.ones(3) * 0.1, solver, steps=1),
        lambda: px.solve(p, jnp.ones(3) * 0.1, solver, key=jax.random.key(0)),
    ):
        with pytest.raises(ValueError) as caught:
            run()
        assert all(word in str(caught.value) for word in words)
