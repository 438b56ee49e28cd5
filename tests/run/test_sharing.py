"""What shares a compiled program: equal functions, and problems of nearly as many rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import compiled
from proxlin.jaxprs import traced
from proxlin.problem.base import bucket
from zoo import normal

W = jnp.asarray(normal(0, 3))


def program(function):
    found = traced(function, W, W)
    return None if found is None else found.program


EQUAL = {
    "lambdas": (lambda w, x: jnp.exp(-w * x), lambda w, x: jnp.exp(-w * x)),
    "closures": (
        (lambda a: lambda w, x: w * a + x)(jnp.ones(3)),
        (lambda a: lambda w, x: w * a + x)(2 * jnp.ones(3)),
    ),
    "relu": (lambda w, x: jax.nn.relu(w * x), lambda w, x: jax.nn.relu(w * x)),
    "scans": tuple(
        (lambda w, x: jax.lax.scan(lambda c, t: (c + t, c), w, x[None])[0])
        for _ in range(2)
    ),
}
DIFFERENT = {
    "numbers": (lambda w, x: w * 1.0 + x, lambda w, x: w * 2.0 + x),
    "functions": (lambda w, x: jnp.sin(w) + x, lambda w, x: jnp.cos(w) + x),
    "order": (lambda w, x: w - x, lambda w, x: x - w),
    "a nested function": (
        lambda w, x: jax.lax.map(jnp.sin, w) + x,
        lambda w, x: jax.lax.map(jnp.cos, w) + x,
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_functions_that_compute_the_same_are_equal(name):
    first, second = EQUAL[name]
    assert program(first) == program(second)
    assert hash(program(first)) == hash(program(second))
    for function in (first, second):
        np.testing.assert_array_equal(traced(function, W, W)(W, W), function(W, W))


@pytest.mark.parametrize("name", DIFFERENT)
def test_functions_that_do_not_are_not(name):
    first, second = DIFFERENT[name]
    assert program(first) != program(second)


def with_rule(slope):
    @jax.custom_jvp
    def same(x):
        return 1.0 * x

    same.defjvp(lambda x, t: (1.0 * x[0], slope * t[0]))
    return lambda w, x: same(w) + x


def test_the_rules_of_derivatives_count():
    assert program(with_rule(2.0)) == program(with_rule(2.0))
    assert program(with_rule(2.0)) != program(with_rule(3.0))


def test_what_a_jaxpr_does_not_tell_is_taken_as_it_is():
    def prints(w, x):
        jax.debug.print("{}", w[0])
        return w + x

    assert program(prints) is None
    assert program(lambda w, x: (w, x)) is None
    assert program(lambda w, x: w.nothing) is None


class Compilations:
    """Counts the programs that are compiled."""

    def __init__(self, monkeypatch):
        self.count = 0
        make = compiled._compile

        def counted(*args):
            self.count += 1
            return make(*args)

        monkeypatch.setattr(compiled, "_compile", counted)


def fit(n, solver, scale=1.0, **budget):
    x = jnp.asarray(normal(n, n, 2))
    factor = jnp.asarray(scale)
    predict = lambda w, x: factor * jnp.tanh(x @ w)
    p = px.MeanOfLosses(px.residual(predict), px.L2(), (x, x))
    return p, px.minimize(p, jnp.ones((2, 2)), solver, **budget)


@pytest.mark.parametrize(
    ("solver", "budget"),
    [
        (px.prox_linear(), {"steps": 3}),
        (px.sgd(0.1), {"passes": 2}),
        (px.lbfgs(), {"steps": 3}),
    ],
)
def test_a_new_lambda_and_nearly_as_many_rows_compile_nothing(
    monkeypatch, solver, budget
):
    fit(34, solver, **budget)
    compilations = Compilations(monkeypatch)
    fit(33, solver, scale=0.5, **budget)
    fit(36, solver, scale=2.0, **budget)
    assert compilations.count == 0


@pytest.mark.law
@pytest.mark.parametrize("kind", [px.MeanOfLosses, px.LossOfMean])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_do_not_count_change_nothing(kind, weighted):
    """F, subgradients, Jacobians, draws and epochs are those of the true rows."""
    x = normal(1, 37, 3)
    weights = np.arange(1.0, 38.0) if weighted else None
    phi = px.residual(lambda w, x: jnp.tanh(x @ w))
    p = kind(phi, px.L2(), (x, x[:, :2]), 0.1, weights)
    padded = p.padded()
    assert len(padded) == 40 and int(padded.samples()) == len(p) == 37
    w = jnp.asarray(normal(2, 3, 2))
    np.testing.assert_allclose(padded.value(w), p.value(w), rtol=1e-14)
    np.testing.assert_allclose(padded.subgradient(w), p.subgradient(w), rtol=1e-12)
    if kind is px.MeanOfLosses:
        np.testing.assert_array_equal(padded.coefficients()[:37], p.coefficients())
        np.testing.assert_array_equal(padded.coefficients()[37:], 0)
    solver = px.sgd(0.1, batch_size=5)
    key = jax.random.key(3)
    assert int(solver.epoch(padded)) == solver.epoch(p) == 7
    drawn = solver.draw(padded, key, solver.epoch(padded.all_rows()))
    np.testing.assert_array_equal(drawn[:7], solver.draw(p, key, 7))
    assert padded[0:5].value(w) == p[0:5].value(w)


PADDED = {
    "sgd": (px.sgd(0.1, batch_size=5), {"passes": 3}),
    "stochastic_prox_linear": (px.stochastic_prox_linear(0.1, 8), {"passes": 2}),
    "truncated": (px.truncated(0.1), {"passes": 2}),
    "prox_linear": (px.prox_linear(), {"steps": 4}),
    "a fixed kappa": (px.prox_linear(1.0), {"steps": 4}),
    "lbfgs": (px.lbfgs(0.1), {"steps": 6}),
    "averaged": (px.Averaged(px.sgd(0.1)), {"passes": 2}),
}


@pytest.mark.law
@pytest.mark.parametrize("name", PADDED)
def test_a_padded_run_is_the_run_of_the_true_rows(name, monkeypatch):
    """Steps, passes and costs are equal, and values to the rounding of sums; those of exact steps to the gap of
    their subproblems.
    """
    solver, budget = PADDED[name]
    assert solver.allows_padding()
    x = normal(1, 37, 3)
    phi = px.residual(lambda w, x: jnp.tanh(x @ w))
    p = px.MeanOfLosses(phi, px.L2(), (x, x[:, :2]), 0.1, np.arange(1.0, 38.0))
    lengths = []
    padded = type(p).padded

    def seen(problem):
        lengths.append(len(padded(problem)))
        return padded(problem)

    monkeypatch.setattr(px.MeanOfLosses, "padded", seen)
    with_padding = px.minimize(p, np.zeros((3, 2)), solver, **budget)
    assert lengths == [40]
    monkeypatch.setattr(px.MeanOfLosses, "padded", lambda problem: problem)
    without = px.minimize(p, np.zeros((3, 2)), solver, **budget)
    assert with_padding.cost == without.cost
    assert with_padding.status == without.status
    for column in ("step", "passes"):
        np.testing.assert_array_equal(
            with_padding.history[column], without.history[column]
        )
    values = [run.history["value"] for run in (with_padding, without)]
    exact = solver.is_exact()
    np.testing.assert_allclose(*values, rtol=1e-6 if exact else 1e-9)
    near = 1e-4 if exact else 1e-7
    np.testing.assert_allclose(with_padding.w, without.w, rtol=near, atol=near)


UNPADDED = {
    "pli": px.pli(1.0, 0.1),
    "svrg": px.svrg(0.1, 0.1),
    "a permutation": px.sgd(0.1, replace=False),
    "stochastic_gauss_newton": px.stochastic_gauss_newton(1.0, 5),
}


@pytest.mark.parametrize("name", UNPADDED)
def test_solvers_whose_draws_depend_on_n_are_not_padded(name):
    assert not UNPADDED[name].allows_padding()


def test_sizes_grow_by_at_most_an_eighth():
    for n in range(1, 5000):
        assert n <= bucket(n) <= max(16, n * 9 / 8)
    assert len({bucket(n) for n in range(1, 100_000)}) < 130


AFFINE = {
    "x @ w": (lambda w, x: x @ w, True),
    "a linear model": (lambda w, x: (x @ w["a"] + w["b"]) / 3 - x[:2], True),
    "indices": (lambda w, x: w[jnp.asarray([1, 0])] + x[None, :2], True),
    "a network": (lambda w, x: jnp.tanh(x @ w), False),
    "a square": (lambda w, x: (x @ w) ** 2, False),
    "a product": (lambda w, x: (x @ w) * w[0], False),
    "a quotient": (lambda w, x: x[:1] / w[:1], False),
    "relu": (lambda w, x: jax.nn.relu(x @ w), False),
}


@pytest.mark.parametrize("name", AFFINE)
def test_an_affine_phi_is_seen(name):
    phi, affine = AFFINE[name]
    w = (
        {"a": jnp.ones((3, 2)), "b": jnp.ones(2)}
        if "linear" in name
        else jnp.ones((3, 2))
    )
    p = px.MeanOfLosses(lambda w, x: jnp.ravel(phi(w, x)), px.L1(), normal(1, 5, 3))
    assert p.is_affine(w) is affine
