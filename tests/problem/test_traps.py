"""Traps already met (DESIGN.md, "Traps"): 1, 2, 3 and 11, each with the numbers that show it."""

import itertools

import equinox as eqx
import jax
import jax.experimental.sparse
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import proxlin as px
import zoo
from counting import Counter, count_calls

pytestmark = pytest.mark.law

Y = np.array([[0.0], [3.0], [5.0]])
W = jnp.array([1.0])


def envelope_of_the_mean(y: np.ndarray, w: float, nu: float) -> tuple[float, float]:
    """min_p (1/b) sum_i |p - y_i| + (p - w)^2 / 2nu and its gradient (w - p)/nu: smoothing outside
    the mean.

    The minimiser is a kink y_i, or a point between two kinks where the slopes cancel.
    """
    slopes = np.arange(-len(y), len(y) + 1) / len(y)
    candidates = np.concatenate([y, w - nu * slopes])
    values = [np.mean(np.abs(p - y)) + (p - w) ** 2 / (2 * nu) for p in candidates]
    best = int(np.argmin(values))
    return float(values[best]), float((w - candidates[best]) / nu)


def batches(n: int, size: int):
    return [np.array(batch) for batch in itertools.combinations(range(n), size)]


def test_trap_1_the_envelope_of_the_mean_depends_on_the_batch_and_is_biased():
    nu = 2.0
    value, gradient = envelope_of_the_mean(Y[:, 0], 1.0, nu)
    each = [envelope_of_the_mean(Y[batch, 0], 1.0, nu) for batch in batches(3, 1)]
    # full batch: slope -1/3 between 0 and 3, so p = 1 + 2/3; singletons: 1/4, 1 and 3, with mean
    # 17/12
    assert value == pytest.approx(20 / 9, abs=1e-14) and gradient == pytest.approx(
        -1 / 3, abs=1e-14
    )
    assert np.mean([v for v, _ in each]) == pytest.approx(17 / 12, abs=1e-14)
    assert np.mean([g for _, g in each]) == pytest.approx((0.5 - 1 - 1) / 3, abs=1e-14)
    assert abs(np.mean([g for _, g in each]) - gradient) > 0.1  # biased


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "outer",
    [px.L1(), px.L2(), px.LInf(), px.Huber(0.5)],
    ids=["L1", "L2", "LInf", "Huber"],
)
def test_trap_1_smoothing_inside_the_mean_is_unbiased(size, outer):
    p = px.MeanOfLosses(lambda w, y: w - y, outer, Y).smooth(2.0)
    each = [p[batch].value_and_subgradient(W) for batch in batches(3, size)]
    assert np.mean([float(v) for v, _ in each]) == pytest.approx(
        float(p.value(W)), abs=1e-14
    )
    assert np.mean([float(g[0]) for _, g in each]) == pytest.approx(
        float(p.subgradient(W)[0]), abs=1e-14
    )


def test_trap_1_the_two_ways_to_smooth_differ():
    p = px.MeanOfLosses(lambda w, y: w - y, px.L1(), Y).smooth(2.0)
    assert abs(float(p.value(W)) - envelope_of_the_mean(Y[:, 0], 1.0, 2.0)[0]) > 0.5


@pytest.mark.parametrize("size", [1, 2])
def test_trap_2_mini_batch_subgradients_of_a_loss_of_a_mean_are_biased(size):
    """f(mean): with phi_i = w - y_i at w = 1 the mean is -5/3, slope -1; singletons: 1, -1, -1."""
    p = px.LossOfMean(lambda w, y: w - y, px.L1(), Y)
    exact = float(p.subgradient(W)[0])
    mean = np.mean([float(p[batch].subgradient(W)[0]) for batch in batches(3, size)])
    assert exact == -1.0
    assert mean == pytest.approx({1: -1 / 3, 2: -1.0}[size], abs=1e-14)
    values = [float(p[batch].value(W)) for batch in batches(3, size)]
    assert np.mean(values) >= float(p.value(W)) - 1e-14  # Jensen: biased upwards
    if size == 1:
        assert np.mean(values) > float(p.value(W)) + 0.5 and abs(mean - exact) > 0.5


def test_trap_2_the_same_samples_in_a_mean_of_losses_are_unbiased():
    p = px.MeanOfLosses(lambda w, y: w - y, px.L1(), Y)
    for size in (1, 2):
        mean = np.mean(
            [float(p[batch].subgradient(W)[0]) for batch in batches(3, size)]
        )
        assert mean == pytest.approx(float(p.subgradient(W)[0]), abs=1e-14)


def test_trap_2_the_bias_falls_with_the_batch():
    """All batches of each size of a smooth f(mean), so that the bias is seen in the gradient
    itself.
    """
    p = px.LossOfMean(
        lambda w, y: jnp.sin(w - y), px.L2().smooth(0.5), zoo.normal(70, 6, 2)
    )
    w = jnp.array([0.2, -0.4])
    g = jax.jit(lambda batch: p[batch].subgradient(w))
    mean = lambda size: np.mean([g(batch) for batch in batches(6, size)], axis=0)
    bias = [np.linalg.norm(mean(size) - p.subgradient(w)) for size in (1, 3, 5, 6)]
    assert bias[0] > bias[1] > bias[2] > 1e-4 and bias[3] <= 1e-15


def test_trap_3_an_evaluation_of_a_subproblem_is_a_jvp_and_is_priced():
    count = Counter()
    inner = count(lambda w, s: jnp.tanh(s @ w)[None])
    p = px.MeanOfLosses(inner, px.L2(), zoo.normal(71, 5, 3))
    w = jnp.ones(3)
    sub = p.linearize(w).regularize(2.0, w)
    value, subgradient = p.prices(w).value, p.prices(w).subgradient
    assert (value.jvp, subgradient.jvp) == (0, 0)
    assert sub.prices(w).value.jvp == 5 and sub.prices(w).subgradient.jvp == 5
    assert count_calls(count, sub.value, w).cost == sub.prices(w).value
    assert count_calls(count, sub.subgradient, w).cost == sub.prices(w).subgradient
    # a PLI inner step is 3/2n of a pass, an SGD step 1/n (the contract)
    assert sub[0].prices(w).subgradient.passes(5) == pytest.approx(3 / 10)
    assert p[0].prices(w).subgradient.passes(5) == pytest.approx(1 / 5)
    # and every verb on it keeps the price
    for q in (sub.smooth(0.1), sub.smooth(0.1).regularize(1.0, w), sub.linearize(w)):
        assert q.prices(w).subgradient == sub.prices(w).subgradient


def test_trap_11_optax_raises_on_function_leaves_and_we_do_not():
    case = zoo.PROBLEMS["equinox_l1"]()
    with pytest.raises(TypeError):
        optax.tree.sub(case.w, case.w)
    p = case.problem.regularize(0.5, case.w).linearize(case.w).smooth(0.1)
    assert np.isfinite(p.value(case.w))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(p.subgradient(case.w)))


@pytest.mark.parametrize("kind", [px.MeanOfLosses, px.LossOfMean])
def test_trap_11_two_settings_share_one_trace(kind):
    """Python floats in a tree are static for eqx.filter_jit; ours are arrays from the start."""
    count = Counter()
    inner = count(lambda w, s: jnp.tanh(s @ w)[None])
    data, w = jnp.asarray(zoo.normal(72, 5, 3)), jnp.ones(3)

    def trace(settings) -> int:
        run = eqx.filter_jit(lambda p, w: p.value(w))
        before = count.total.traces
        for p in settings:
            run(p, w)
            p.value(w)  # by the library's own jit
        return (count.total.traces - before) // 2

    base = kind(inner, px.L2(), data)
    first = trace([base])
    assert first >= 1
    assert (
        trace(
            [
                kind(inner, px.L2(), data, ridge=r)
                for r in (0.1, 0.2, np.float64(0.3), 1, 2)
            ]
        )
        <= first
    )
    assert trace([base.smooth(nu) for nu in (0.1, 0.2, 1.0)]) <= first
    assert (
        trace(
            [
                base.regularize(kappa, c * w)
                for kappa, c in ((0.1, 1.0), (0.2, 2.0), (3.0, 0.0))
            ]
        )
        <= first
    )
    assert trace([base.linearize(c * w) for c in (1.0, 2.0)]) <= first
    assert trace([kind(inner, px.Huber(d), data) for d in (0.1, 0.2)]) <= first


def test_trap_11_a_traced_setting_and_two_steps_share_one_trace():
    count = Counter()
    p = px.MeanOfLosses(
        count(lambda w, s: jnp.tanh(s @ w)[None]), px.L2(), zoo.normal(73, 5, 3)
    )

    @eqx.filter_jit
    def step(w, schedule, t):
        return w - schedule(t) * p[t].subgradient(w)

    for s in (0.1, 0.2, 0.3):
        step(jnp.ones(3), px.InverseSqrt(s), jnp.asarray(1))
    assert count.total.traces == 1


@pytest.mark.parametrize(
    "matrix",
    [jax.experimental.sparse.BCOO, jax.experimental.sparse.BCSR],
    ids=["BCOO", "BCSR"],
)
def test_trap_11_sparse_matrices_of_jax_are_refused(matrix):
    x = matrix.fromdense(jnp.eye(3))
    for data in (x, (x, jnp.ones(3)), {"x": x}):
        with pytest.raises(TypeError, match="SparseRows") as error:
            px.MeanOfLosses(lambda w, s: w, px.L2(), data)
        assert str(error.value).endswith(".")
