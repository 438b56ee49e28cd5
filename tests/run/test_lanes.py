"""Many small problems side by side in lanes, against the same problems one by one."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.run import many
from proxlin.run.lanes import fits
from proxlin.subproblem import dual_set
from proxlin.subproblem.newton import Wide

START = jnp.asarray([1.0, 0.5, 0.0])
GRID = jnp.linspace(0.0, 3.0, 12)[:, None]
OUTERS = {
    "l1": px.L1(),
    "l2": px.L2(),
    "huber": px.Huber(0.1),
    "squares": px.SquaredL2(),
    "quantile": px.Quantile(0.3),
    "smoothed": px.L1().smooth(0.05),
    "hinge": px.Hinge(),
    "linf": px.LInf(),
    "max": px.Max(),
}


def curves(w, x):
    """Two outputs of a decay with an offset."""
    decay = w[0] * jnp.exp(-w[1] * x[0])
    return jnp.stack([decay + w[2], decay - w[2]])


def targets(count: int) -> jax.Array:
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.5, 2.0, (count, 1, 1))
    clean = 2 * np.exp(-rates * np.asarray(GRID)[None]) + np.array([0.3, -0.3])
    noise = 0.05 * rng.normal(size=clean.shape)
    noise[rng.random(clean.shape) < 0.1] += 2.0
    return jnp.asarray(clean + noise)


def both_signs(w, sample):
    """Return residuals and their negatives: the largest of them is bounded below."""
    r = px.residual(curves)(w, sample)
    return jnp.concatenate([r, -r])


def make(outer, ridge=0.0, weights=None):
    """Return the function from targets (12, 2) to a problem."""
    phi = both_signs if isinstance(outer, px.Max) else px.residual(curves)

    def problem(y):
        return px.MeanOfLosses(phi, outer, (GRID, y), ridge, weights)

    return problem


@pytest.mark.law
@pytest.mark.parametrize("name", OUTERS)
def test_lanes_end_where_single_runs_end(name):
    """Values agree to the accuracy of the runs; more problems than lanes, so that lanes are used again."""
    problem = make(OUTERS[name], ridge=1e-3)
    ys = targets(9)
    assert fits(problem(ys[0]), START, px.prox_linear())
    found = px.solve_many(jax.vmap(problem)(ys), START, chunk=4)
    single = [px.solve(problem(y), START) for y in ys]
    values = np.array([float(one.value) for one in single])
    np.testing.assert_allclose(found.value, values, rtol=1e-7, atol=1e-9)
    for y, w, value in zip(ys, found.w, found.value, strict=True):
        assert float(problem(y).value(w)) == pytest.approx(float(value), rel=1e-12)


def test_certified_gaps_are_those_of_the_last_subproblem():
    problem = make(px.L1())
    found = px.solve_many(jax.vmap(problem)(targets(5)), START, steps=3)
    assert np.all(np.asarray(found.gap) <= 1e-9 * np.asarray(found.value))
    assert np.all(np.asarray(found.steps) == 3)
    assert all(px.Status(int(s)) == px.Status.budget for s in found.status)


def test_a_nan_leaves_the_other_lanes_alone():
    problem = make(px.L1())
    ys = targets(6)
    clean = px.solve_many(jax.vmap(problem)(ys), START, chunk=3)
    broken = px.solve_many(jax.vmap(problem)(ys.at[2].set(jnp.nan)), START, chunk=3)
    others = np.array([0, 1, 3, 4, 5])
    np.testing.assert_allclose(clean.value[others], broken.value[others], rtol=1e-9)
    assert px.Status(int(broken.status[2])) == px.Status.diverged
    np.testing.assert_array_equal(broken.w[2], START)


def test_a_valley_with_curvature_goes_on_outside_of_its_lane():
    """The l1 form of Rosenbrock's function needs curved steps: single runs and lanes both end at its minimum."""

    def rosenbrock(w, x):
        return jnp.stack([10 * (w[1] - w[0] ** 2), 1 - w[0], 0.1 * (w[0] + w[1] - x)])

    def problem(x):
        return px.MeanOfLosses(rosenbrock, px.L1(), x)

    xs = 2.0 + 0.1 * jnp.arange(8.0).reshape(4, 2)
    start = jnp.asarray([-1.2, 1.0])
    assert fits(problem(xs[0]), start, px.prox_linear())
    found = px.solve_many(jax.vmap(problem)(xs), start, steps=300)
    single = jnp.stack([px.solve(problem(x), start, steps=300).value for x in xs])
    np.testing.assert_allclose(found.value, single, rtol=1e-7)


def test_starts_and_weights_have_lanes_too():
    ys = targets(4)
    weights = jnp.asarray(np.random.default_rng(1).exponential(size=12))
    problem = make(px.Huber(0.2), weights=weights)
    starts = START[None] + 0.1 * jnp.arange(4.0)[:, None]
    found = px.solve_many(jax.vmap(problem)(ys), starts, in_axes=(0, 0))
    for y, start, value in zip(ys, starts, found.value, strict=True):
        single = px.solve(problem(y), start)
        assert float(value) == pytest.approx(float(single.value), rel=1e-7)


@pytest.mark.law
@pytest.mark.parametrize("name", OUTERS)
def test_a_set_says_how_its_maximizer_moves(name):
    """diag(a) - b b' is the derivative of maximizer(z, rho), by differences at points off its kinks."""
    V, _ = dual_set(OUTERS[name])
    rng = np.random.default_rng(2)
    k = 1 if V.separable else 4
    z = jnp.asarray(rng.normal(size=(40, k)))
    dz = jnp.asarray(rng.normal(size=(40, k)))
    rho = jnp.asarray(rng.uniform(0.2, 4.0, size=40))
    h = 1e-7
    ends = [V.maximizer(z + sign * h * dz, rho) for sign in (1, -1)]
    a, b = V.response(z, rho)
    moved = a * dz
    if b is not None:
        moved = moved - b * jnp.sum(b * dz, axis=-1, keepdims=True)
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * h), moved, atol=1e-6)


WIDE = jnp.asarray(np.random.default_rng(3).normal(size=(20, 4)))
WIDE_START = jnp.zeros((4, 3))


def wide_problem(outer):
    """Return the function from targets (20, 3) to a convex problem of 12 parameters."""
    one_sided = px.residual(lambda w, x: x @ w)
    phi = one_sided
    if isinstance(outer, px.Max):
        phi = lambda w, s: jnp.concatenate([one_sided(w, s), -one_sided(w, s)])
    return lambda y: px.MeanOfLosses(phi, outer, (WIDE, y), 1e-2)


@pytest.mark.law
@pytest.mark.parametrize("name", OUTERS)
def test_wide_lanes_end_where_single_runs_end(name):
    """With 12 parameters the matrices of a lane are products, `subproblem.newton.Wide`."""
    problem = wide_problem(OUTERS[name])
    rng = np.random.default_rng(4)
    clean = np.einsum("nd,sdk->snk", np.asarray(WIDE), rng.normal(size=(5, 4, 3)))
    ys = jnp.asarray(clean + 0.1 * rng.standard_t(2, size=clean.shape))
    assert fits(problem(ys[0]), WIDE_START, px.prox_linear())
    found = px.solve_many(jax.vmap(problem)(ys), WIDE_START, chunk=3)
    single = [float(px.solve(problem(y), WIDE_START).value) for y in ys]
    np.testing.assert_allclose(found.value, single, rtol=1e-7)
    for y, w, value in zip(ys, found.w, found.value, strict=True):
        assert float(problem(y).value(w)) == pytest.approx(float(value), rel=1e-12)


def test_an_interrupt_ends_all_lanes(monkeypatch, request):
    """Ctrl-C reaches the main thread, which waits for the threads of the lanes."""
    monkeypatch.setattr(multiprocessing, "cpu_count", lambda: 2)
    monkeypatch.setattr(many, "TURNS", 1)
    # A process that was started in the background ignores the signal.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, handler))
    ended = []

    def show(self, count, total):
        if not ended:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        ended.append(count)

    monkeypatch.setattr(many.Progress, "show_count", show)
    count = 4000
    ys = targets(4)[jnp.arange(count) % 4]
    with pytest.raises(KeyboardInterrupt):
        px.solve_many(jax.vmap(make(px.Huber(0.1)))(ys), START, chunk=16)
    assert max(ended) < count


def test_a_tolerance_ends_no_run_far_from_its_minimum():
    """kappa |w+ - w| is small wherever kappa is: five of these runs ended early by it, up to 6e-4 |F|
    too high.
    """
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 4.0, 50)
    size, rate = rng.uniform(1, 3, (400, 1)), rng.uniform(0.5, 2, (400, 1))
    y = size * np.exp(-rate * x) + 0.05 * rng.normal(size=(400, 50))
    far = rng.random(y.shape) < 0.1
    y[far] += 3 * rng.normal(size=int(far.sum()))
    phi = px.residual(lambda w, x: w[0] * jnp.exp(-w[1] * x) + w[2])

    def squares(y):
        return px.MeanOfLosses(phi, px.SquaredL2(), (jnp.asarray(x)[:, None], y))

    problems = jax.vmap(squares)(jnp.asarray(y)[..., None])
    start = jnp.asarray([1.0, 1.0, 0.0])
    early = px.solve_many(problems, start, tol=1e-6)
    late = px.solve_many(problems, start)
    ended = np.asarray(early.status) == 0
    assert np.mean(ended) > 0.9
    assert np.all(early.value[ended] <= late.value[ended] * (1 + 1e-9))
    assert np.mean(early.steps) < np.mean(late.steps)
    one = px.solve(squares(jnp.asarray(y[185])[:, None]), start, tol=1e-6)
    assert float(one.value) == pytest.approx(float(late.value[185]), rel=1e-9)


def test_lanes_factor_one_matrix_at_a_time():
    """Batches of factorisations in two programs at once wait for each other for ever in jaxlib 0.10.2:
    `cholesky` of (16, 48, 48) in two threads does, after some seconds.
    """
    lanes, k, n, d = 4, 1, 30, 12
    B = Wide(jnp.ones((lanes, k, n, d)))
    H = jnp.broadcast_to(jnp.eye(d), (lanes, d, d))
    solve = jax.make_jaxpr(lambda H, r: B.solve(H, jnp.ones(lanes), r))
    found = []

    def look(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name in ("cholesky", "triangular_solve"):
                found.append(max(x.aval.ndim for x in equation.invars))
            for inner in jax.extend.core.jaxprs_in_params(equation.params):
                look(inner)

    look(solve(H, jnp.ones((d, lanes))).jaxpr)
    assert found and max(found) == 2
    x = B.solve(2 * H, jnp.ones(lanes), jnp.ones((d, lanes)))
    np.testing.assert_allclose(x, 1 / 3, rtol=1e-12)


MANY_PARAMETERS = """
import jax, jax.numpy as jnp, numpy as np
import proxlin as px
rng = np.random.default_rng(7)
X, Y = rng.normal(size=(120, 110, 48)), rng.normal(size=(120, 110))
make = lambda x, y: px.MeanOfLosses(lambda w, s: s[0] @ w - s[1], px.L1(), (x, y))
problems = jax.vmap(make)(jnp.asarray(X), jnp.asarray(Y))
for _ in range(2):
    found = px.solve_many(problems, jnp.zeros(48), tol=1e-8)
print(int(np.sum(np.asarray(found.status) == 0)))
"""


def test_many_problems_of_many_parameters_end():
    """In a process of its own, as it would hang."""
    run = subprocess.run(
        [sys.executable, "-c", MANY_PARAMETERS],
        env=os.environ | {"JAX_ENABLE_X64": "1", "NPROC": "2"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-1] == "120"
