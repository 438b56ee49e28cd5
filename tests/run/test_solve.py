"""`solve`: the steps of `minimize` as one pure program, its statuses, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.run import implicit
from zoo import SOLVERS, GroupNorm, normal

KEY = jax.random.key(0)
X = jnp.asarray(normal(1, 15, 2))
NOISE = np.random.default_rng(2).standard_t(2, size=(15, 2))
TRUTH = jnp.asarray([[1.0, 0.3], [-2.0, 0.4]])
Y = jnp.tanh(X @ TRUTH) + 0.2 * jnp.asarray(NOISE)
PHI = px.residual(lambda w, x: jnp.tanh(x @ w))
LINEAR = px.residual(lambda w, x: x @ w)
START = 0.1 * jnp.ones((2, 2))


def problem(y=Y, f=None, ridge=0.02, weights=None, kind=px.MeanOfLosses):
    return kind(PHI, px.L1() if f is None else f, (X, y), ridge, weights)


@pytest.mark.law
@pytest.mark.parametrize("name", SOLVERS)
def test_it_takes_the_steps_of_minimize(name):
    solver = SOLVERS[name].solver
    kind = px.LossOfMean if solver.problems is px.LossOfMean else px.MeanOfLosses
    p = problem(f=px.L2(), ridge=0.0 if name == "rescaled" else 0.02, kind=kind)
    steps = 2 * solver.epoch(p)
    found = px.solve(p, START, solver, steps=steps, key=KEY)
    same = px.minimize(p, START, solver, steps=steps, seed=0)
    assert int(found.steps) == int(same.history["step"][-1])
    assert float(found.passes) == pytest.approx(same.cost.passes(len(p)), rel=1e-6)
    np.testing.assert_allclose(found.w, same.w, rtol=1e-6, atol=1e-8)
    assert px.Status(int(found.status)) == same.status


@pytest.mark.parametrize("passes", [0.5, 2.0, 3.3])
def test_passes_end_a_run_where_they_end_minimize(passes):
    for solver in (px.sgd(0.1), px.lbfgs()):
        found = px.solve(problem(), START, solver, passes=passes, key=KEY)
        same = px.minimize(problem(), START, solver, passes=passes)
        assert int(found.steps) == int(same.history["step"][-1])


def test_it_runs_inside_of_jit_vmap_and_scan():
    alone = [px.solve(problem(y), START).value for y in (Y, Y + 1)]
    both = jnp.stack([Y, Y + 1])
    fit = lambda y: px.solve(problem(y), START).value
    np.testing.assert_allclose(jax.jit(jax.vmap(fit))(both), alone, rtol=1e-9)
    scanned = jax.lax.scan(lambda c, y: (c, fit(y)), 0, both)[1]
    np.testing.assert_allclose(scanned, alone, rtol=1e-9)


def test_a_status_is_data():
    """A start with nan in it, a step that is far too long, and a budget of nothing."""
    bad = jax.jit(lambda y: px.solve(problem(y), START))(Y.at[0, 0].set(jnp.nan))
    assert px.Status(int(bad.status)) == "diverged"
    far = px.solve(problem(f=px.SquaredL2()), START, px.subgradient_descent(1e9))
    assert px.Status(int(far.status)) == "diverged"
    np.testing.assert_array_equal(far.w, START)
    none = px.solve(problem(), START, steps=0)
    assert px.Status(int(none.status)) == "budget" and int(none.steps) == 0
    assert np.isnan(none.gap) and np.isinf(none.measure)  # nothing is certified
    assert "budget" in px.Status(int(none.status)).sentence


def test_leaves_that_are_no_parameters_come_back():
    phi = px.residual(lambda w, x: w["f"](x @ w["a"]))
    p = px.MeanOfLosses(phi, px.L1(), (X, Y))
    found = px.solve(p, {"a": START, "f": jnp.tanh}, steps=2)
    assert found.w["f"] is jnp.tanh and found.w["a"].shape == START.shape


# ---------------------------------------------------------------------------------------- derivatives

SMOOTH = {
    "Huber": px.Huber(0.1),
    "SquaredL2": px.SquaredL2(),
    "L2.smooth": px.L2().smooth(0.1),
}
SMOOTH |= {
    "LInf.smooth": px.LInf().smooth(0.1),
    "Max.smooth": px.Max().smooth(0.1),
    "GroupNorm.smooth": GroupNorm().smooth(0.1),
}
KINKED = {
    "L1": px.L1(),
    "L2": px.L2(),
    "LInf": px.LInf(),
    "Quantile": px.Quantile(0.3),
    "Max": px.Max(),
    "Hinge": px.Hinge(),
    "Parts": px.Parts((px.L1(), 1), (px.Huber(0.2), 1)),
}
OUTERS = SMOOTH | KINKED


def differences(function, x, direction, h):
    """Central differences along a direction, in each entry of what the function returns."""
    ahead, behind = function(x + h * direction), function(x - h * direction)
    return jax.tree.map(lambda a, b: (a - b) / (2 * h), ahead, behind)


@pytest.mark.law
@pytest.mark.parametrize("name", OUTERS)
def test_derivatives_are_those_of_differences(name):
    """With respect to the targets, the weights and the ridge, forwards and backwards."""
    f = OUTERS[name]
    solver = px.prox_linear()

    @jax.jit
    def fit(y, weights, ridge):
        p = problem(y, f, ridge, weights)
        found = px.solve(p, START, solver, steps=400)
        return found.w, found.value

    at = (Y, 1 + 0.1 * jnp.arange(15.0) / 15, jnp.asarray(0.05))
    directions = (
        jnp.asarray(normal(5, 15, 2)),
        jnp.asarray(normal(6, 15)),
        jnp.asarray(1.0),
    )
    # One linear map for all directions, and its transpose: each compiles the run once.
    (w, _), push = jax.linearize(fit, *at)
    for i, direction in enumerate(directions):
        along = lambda x, i=i: fit(*(x if j == i else at[j] for j in range(3)))
        others = [jnp.zeros_like(x) for x in at]
        exact = push(*(direction if j == i else others[j] for j in range(3)))
        # An answer is found to some 1e-8, or 1e-7 where F is flat, and differences divide that by h; a
        # longer h may leave the piece on which f is smooth. Runs on both sides that end at other
        # steps differ more, which one length or another has. A wrong derivative agrees with none.
        near = [differences(along, at[i], direction, h) for h in (1e-3, 3e-4, 1e-4)]
        best = min(near, key=lambda d: float(jnp.max(jnp.abs(d[0] - exact[0]))))
        np.testing.assert_allclose(exact[0], best[0], rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose(exact[1], best[1], rtol=1e-4, atol=1e-6)
    # The derivative of |w|^2, backwards and forwards: two programs, whose answers agree to some 1e-7.
    pulled = jax.grad(lambda y: jnp.sum(fit(y, *at[1:])[0] ** 2))(Y)
    pushed = push(directions[0], jnp.zeros_like(at[1]), jnp.zeros_like(at[2]))[0]
    expected = 2 * jnp.sum(w * pushed)
    np.testing.assert_allclose(jnp.sum(pulled * directions[0]), expected, rtol=1e-5)


def test_derivatives_with_respect_to_the_numbers_of_f_and_the_start():
    fit = jax.jit(lambda delta, w: px.solve(problem(f=px.Huber(delta)), w, steps=400).w)
    exact = jax.jacfwd(fit)(0.1, START)
    near = differences(lambda delta: fit(delta, START), 0.1, 1.0, 1e-5)
    np.testing.assert_allclose(exact, near, rtol=1e-3, atol=1e-5)
    of_start = jax.jacfwd(lambda w: fit(0.1, w))(START)
    np.testing.assert_array_equal(of_start, jnp.zeros_like(of_start))
    quantile = jax.jit(lambda q: px.solve(problem(f=px.Quantile(q)), START).w)
    near = differences(quantile, 0.3, 1.0, 1e-6)
    np.testing.assert_allclose(jax.jacfwd(quantile)(0.3), near, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outside", [jax.jit, lambda f: f])
def test_arrays_that_phi_closes_over_are_seen(outside):
    """Under vmap alone, and with derivatives: as if they were data."""
    ones = jnp.ones(15)

    def closed(a):
        phi = px.residual(lambda w, x: x @ w * a)
        return px.solve(px.MeanOfLosses(phi, px.Huber(1.0), (X, Y), 0.1), START).value

    def given(a):
        phi = px.residual(lambda w, x: x[0] @ w * x[1])
        data = ((X, a * ones), Y)
        return px.solve(px.MeanOfLosses(phi, px.Huber(1.0), data, 0.1), START).value

    at = jnp.asarray([1.0, 1.5])
    expected = [given(a) for a in at]
    np.testing.assert_allclose(outside(jax.vmap(closed))(at), expected, rtol=1e-9)
    slopes = [jax.grad(given)(a) for a in at]
    found = [outside(jax.grad(closed))(a) for a in at]
    np.testing.assert_allclose(found, slopes, rtol=1e-6)


def test_a_hinge_without_a_projection_has_no_derivative():
    """Its kinks cannot be seen, and the answer sits at them; its smoothing has one."""
    oracle = px.MonotonePaths(3, 3)
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(6, 9, 2)))
    truths = jax.vmap(oracle.argmax)(rows @ jnp.asarray([1.0, -1.0]))
    phi = px.augmented_scores(lambda w, x: x @ w, oracle)

    def fit(ridge, f, solver):
        p = px.MeanOfLosses(phi, f, (rows, truths), ridge)
        return px.solve(p, jnp.zeros(2), solver, steps=400).w

    f = px.StructuredHinge(oracle, 6)
    with pytest.raises(
        TypeError, match="StructuredHinge has an oracle instead.*smooth"
    ):
        jax.jacfwd(lambda r: fit(r, f, px.subgradient_descent(0.1)))(0.1)
    smoothed = f.smooth(1.0)
    solver = px.subgradient_descent(0.2)
    exact = jax.jacfwd(lambda r: fit(r, smoothed, solver))(0.1)
    near = differences(lambda r: fit(r, smoothed, solver), 0.1, 1.0, 1e-4)
    np.testing.assert_allclose(exact, near, rtol=1e-3, atol=1e-6)


@pytest.mark.law
def test_derivatives_of_a_loss_of_the_mean():
    """The mean of phi sits at the kink of f, so that w moves on the manifold where it stays zero."""

    @jax.jit
    def fit(y, ridge):
        p = problem(y, px.L2(), ridge, kind=px.LossOfMean)
        found = px.solve(p, START, px.prox_linear(), steps=3000)
        return found.w, found.value

    direction = jnp.asarray(normal(5, 15, 2))
    # At the kink, and where targets are out of reach of tanh.
    for away, ridge in ((0.0, 1e-3), (3.0, 0.05)):
        along = lambda y, ridge=ridge: fit(y, ridge)
        (w, _), exact = jax.jvp(along, (Y + away,), (direction,))
        mean = problem(Y + away, px.L2(), kind=px.LossOfMean).stack(w)
        assert bool(jnp.max(jnp.abs(mean)) < 1e-6) == (away == 0)
        near = differences(along, Y + away, direction, 1e-3)
        np.testing.assert_allclose(exact[0], near[0], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(exact[1], near[1], rtol=1e-4, atol=1e-6)


@pytest.mark.law
@pytest.mark.parametrize(
    "penalty",
    [px.L1Penalty(0.1), px.GroupL2(0.1), px.Bounds(-0.3, 0.3), px.NonNegative()],
    ids=lambda penalty: type(penalty).__name__,
)
def test_derivatives_hold_what_a_penalty_pins(penalty):
    """A part of w is pinned, and the answer moves as the differences say."""
    truth = jnp.asarray([1.0, 0.0, -1.0])
    x = jnp.asarray(normal(11, 20, 3))
    y = x @ truth + 0.1 * jnp.asarray(normal(12, 20))

    @jax.jit
    def fit(y):
        phi = px.residual(lambda w, x: (x @ w["a"])[None])
        p = px.MeanOfLosses(phi, px.Huber(1.0), (x, y[:, None]), penalty=penalty)
        found = px.solve(p, {"a": jnp.full(3, 0.1)}, px.prox_linear(), steps=200)
        return found.w["a"], found.value

    direction = jnp.asarray(normal(13, 20))
    (w, _), exact = jax.jvp(fit, (y,), (direction,))
    pinned = (w == 0) | (jnp.abs(w) == 0.3)
    assert bool(pinned.any()) == (not isinstance(penalty, px.GroupL2))
    near = differences(fit, y, direction, 1e-4)
    np.testing.assert_allclose(exact[0], near[0], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(exact[1], near[1], rtol=1e-4, atol=1e-6)


def test_an_f_that_does_not_say_where_its_kinks_are_has_no_derivative():
    fit = lambda y: px.solve(problem(y, GroupNorm()), START, steps=5).value
    with pytest.raises(TypeError, match="GroupNorm.*smooth"):
        jax.grad(fit)(Y)


def test_an_l1_line_moves_with_the_rows_that_it_interpolates():
    """A closed form: w = X_I^-1 y_I for the two rows I with residual 0."""
    x = jnp.asarray(normal(14, 15, 2))
    y = x @ jnp.asarray([1.0, -2.0]) + jnp.asarray(normal(15, 15))

    def fit(y):
        phi = px.residual(lambda w, x: (x @ w)[None])
        p = px.MeanOfLosses(phi, px.L1(), (x, y[:, None]))
        return px.solve(p, jnp.zeros(2)).w

    w = fit(y)
    rows = np.flatnonzero(np.abs(x @ w - y) < 1e-8)
    assert rows.size == 2
    expected = np.zeros((2, 15))
    expected[:, rows] = np.linalg.inv(np.asarray(x)[rows])
    np.testing.assert_allclose(jax.jacrev(fit)(y), expected, atol=1e-7)


@pytest.mark.parametrize("bounded", [False, True])
def test_many_parameters_have_derivatives_by_conjugate_gradients(bounded):
    """Ridge regression of more than 500 parameters: w = X'(X X'/n + ridge)^-1 y/n, of those off their bounds."""
    n, d, ridge = 20, 510, 0.1
    assert d > implicit.DENSE
    x = jnp.asarray(normal(16, n, d))
    y, along = jnp.asarray(normal(17, n)), jnp.asarray(normal(18, n))

    def fit(y):
        phi = px.residual(lambda w, x: (x @ w)[None])
        penalty = px.NonNegative() if bounded else None
        p = px.MeanOfLosses(
            phi, px.SquaredL2(), (x, y[:, None]), ridge, penalty=penalty
        )
        return px.solve(p, jnp.zeros(d), steps=50).w

    w, w_dot = jax.jvp(fit, (y,), (along,))
    free = np.asarray(w) > 0 if bounded else np.ones(d, bool)
    assert free.all() != bounded
    X_free = np.asarray(x) * free[None, :]
    gram = X_free @ X_free.T / n + ridge * np.eye(n)
    np.testing.assert_allclose(
        w_dot, X_free.T @ np.linalg.solve(gram, along) / n, atol=1e-7
    )


def test_a_closed_form_of_least_squares():
    """w = (X'X/n + ridge)^-1 X'y/n."""
    linear = px.residual(lambda w, x: x @ w)

    def ours(y, ridge):
        return px.solve(px.MeanOfLosses(linear, px.SquaredL2(), (X, y), ridge), START).w

    def closed(y, ridge):
        gram = X.T @ X / 15 + ridge * jnp.eye(2)
        return jnp.linalg.solve(gram, X.T @ y / 15)

    at, along = (Y, 0.1), (jnp.asarray(normal(7, 15, 2)), 1.0)
    found, exact = jax.jvp(ours, at, along), jax.jvp(closed, at, along)
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-9)
    np.testing.assert_allclose(found[1], exact[1], rtol=1e-7)


def test_the_derivative_of_a_median_is_that_of_the_middle_row():
    fit = lambda y: px.solve(
        px.MeanOfLosses(lambda w, y: w - y, px.L1(), y[:, None]), jnp.zeros(1)
    ).w[0]
    y = jnp.asarray([3.0, -1.0, 0.5, 10.0, 2.0])
    np.testing.assert_allclose(jax.grad(fit)(y), [0, 0, 0, 0, 1], atol=1e-9)


# ------------------------------------------------------------------------------------------ many


def test_many_are_as_each_alone():
    """Whatever fits at once, with problems, starts, or both along the axis. The problems are convex, as the early
    steps of many are not those of one: elsewhere they may end in another minimum.
    """
    ys = Y[None] + 0.3 * jnp.asarray(normal(8, 7, 15, 2))
    starts = START[None] + 0.1 * jnp.asarray(normal(9, 7, 2, 2))
    convex = lambda y: px.MeanOfLosses(LINEAR, px.L1(), (X, y), 0.02)
    problems = jax.vmap(convex)(ys)
    values = [px.solve(convex(y), START, tol=1e-6).value for y in ys]
    for chunk in (1, 3, None):
        found = px.solve_many(problems, START, tol=1e-6, chunk=chunk)
        np.testing.assert_allclose(found.value, values, rtol=1e-9)
        assert {px.Status(int(each)) for each in found.status} == {"converged"}
    listed = px.solve_many([convex(y) for y in ys], START, tol=1e-6)
    np.testing.assert_allclose(listed.value, values, rtol=1e-9)
    both = px.solve_many(problems, starts, in_axes=(0, 0), tol=1e-6)
    np.testing.assert_allclose(both.value, values, rtol=1e-9)
    traced = jax.jit(lambda p: px.solve_many(p, START, tol=1e-6).value)(problems)
    np.testing.assert_allclose(traced, values, rtol=1e-9)
    best, all_values = px.multistart(problem(), starts, tol=1e-6)
    assert float(best.value) == float(all_values.min()) and all_values.shape == (7,)


def test_a_list_of_problems_with_equal_functions():
    """Functions that compute the same are one, and what they close over differs as data do."""

    def scaled(a):
        phi = px.residual(lambda w, x: a * (x @ w))
        return px.MeanOfLosses(phi, px.L1(), (X, Y), 0.02)

    problems = [scaled(jnp.asarray(a)) for a in (1.0, 2.0, 1.0)]
    found = px.solve_many(problems, START, tol=1e-6)
    values = [px.solve(each, START, tol=1e-6).value for each in problems]
    np.testing.assert_allclose(found.value, values, rtol=1e-9)
    starts = jnp.stack([START, START, 2 * START])
    both = px.solve_many(problems, starts, in_axes=(0, 0), tol=1e-6)
    np.testing.assert_allclose(both.value, values, rtol=1e-9)


def test_many_that_are_not_convex_end_where_no_step_helps():
    ys = Y[None] + 0.3 * jnp.asarray(normal(8, 7, 15, 2))
    found = px.solve_many(jax.vmap(problem)(ys), START, tol=1e-6)
    assert {px.Status(int(each)) for each in found.status} == {"converged"}
    for y, w, value in zip(ys, found.w, found.value, strict=True):
        onward = px.solve(problem(y), w, tol=1e-9)
        np.testing.assert_allclose(onward.value, value, rtol=1e-9)


def test_a_problem_with_nan_leaves_the_others_alone():
    ys = jnp.stack([Y, Y.at[0, 0].set(jnp.nan), Y + 1])
    found = px.solve_many(jax.vmap(problem)(ys), START, chunk=2)
    names = [px.Status(int(status)) for status in found.status]
    assert names[1] == "diverged" and "diverged" not in (names[0], names[2])
    for i in (0, 2):
        alone = px.solve(problem(ys[i]), START)
        np.testing.assert_allclose(found.value[i], alone.value, rtol=1e-9)


def test_random_solvers_have_a_key_for_each_problem():
    ys = jnp.stack([Y, Y])
    found = px.solve_many(jax.vmap(problem)(ys), START, px.sgd(0.1), passes=2, key=KEY)
    for i in range(2):
        alone = px.solve(
            problem(), START, px.sgd(0.1), passes=2, key=jax.random.fold_in(KEY, i)
        )
        np.testing.assert_allclose(found.w[i], alone.w, rtol=1e-9)
