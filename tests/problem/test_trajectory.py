"""A trajectory is a problem: its values, derivatives, refusals and answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.problem import Chain
from proxlin.rollouts import stages

HORIZON = 12
START = np.array([1.0, 0.0])
TARGETS = np.linspace(0.0, 1.0, HORIZON)


def dynamics(x, u):
    return jnp.array([x[0] + 0.2 * x[1], x[1] + 0.2 * (u[0] - jnp.sin(x[0]))])


def stage(x, u, target):
    return jnp.array([x[0] - target, 0.3 * x[1], 0.1 * u[0], jnp.abs(u[0]) - 2.0])


OUTER = px.Parts((px.SquaredL2(), 1), (px.Huber(0.5), 1), (px.L1(), 1), (px.Hinge(), 1))


def problem(**changes):
    given = {
        "dynamics": dynamics,
        "stage": stage,
        "outer": OUTER,
        "x0": START,
        "data": TARGETS,
    }
    return px.Trajectory(**given | changes)


def controls(seed=0):
    return np.random.default_rng(seed).normal(size=(HORIZON, 1))


def by_hand(w):
    """F with a loop of NumPy."""
    x = START
    total = 0.0
    for u, target in zip(w, TARGETS, strict=True):
        x = np.array([x[0] + 0.2 * x[1], x[1] + 0.2 * (u[0] - np.sin(x[0]))])
        a = abs(0.3 * x[1])
        total += (x[0] - target) ** 2 / 2 + 0.1 * abs(u[0])
        total += a * a / 2 if a <= 0.5 else 0.5 * (a - 0.25)
        total += max(abs(u[0]) - 2.0, 0.0)
    return total / HORIZON


def test_the_value_is_that_of_a_loop():
    w = controls()
    assert float(problem().value(w)) == pytest.approx(by_hand(w), abs=1e-12)
    regular = problem(ridge=0.5)
    squares = 0.25 * float(np.sum(w * w))
    assert float(regular.value(w)) == pytest.approx(by_hand(w) + squares, abs=1e-12)


def test_derivatives_are_those_of_finite_differences():
    p = problem()
    w = controls()
    d = controls(1)
    slope = (by_hand(w + 1e-6 * d) - by_hand(w - 1e-6 * d)) / 2e-6
    assert float(np.sum(p.subgradient(w) * d)) == pytest.approx(slope, abs=1e-7)


def test_the_chain_is_the_jacobian():
    with jax.enable_x64(True):
        p = problem()
        w = jnp.asarray(controls())
        chain = p.chain(w)
        assert isinstance(chain, Chain)
        J = jax.jacrev(p.stack)(w).reshape(HORIZON, 4, HORIZON)
        np.testing.assert_allclose(chain.dense().jacobian, J, rtol=0, atol=1e-12)
        d = jnp.asarray(controls(1))
        v = jnp.asarray(np.random.default_rng(2).normal(size=(HORIZON, 4)))
        np.testing.assert_allclose(chain.push(d), p.push(w, d), rtol=0, atol=1e-12)
        np.testing.assert_allclose(chain.pull(v), p.pull(w, v), rtol=0, atol=1e-12)
        line = p.linearize(w)
        assert float(line.value(w)) == pytest.approx(float(p.value(w)), abs=1e-14)
        np.testing.assert_allclose(
            line.chain(w + d).u, p.stack(w) + p.push(w, d), rtol=0, atol=1e-12
        )


def test_prox_linear_ends_where_no_other_method_gets_below():
    p = problem()
    w = controls()
    found = px.minimize(p, w, px.prox_linear(), steps=60, tol=1e-7)
    assert found.status == "converged"
    assert np.all(np.diff(found.history["value"]) <= 0)
    slow = px.minimize(p, w, px.subgradient_descent(px.InverseSqrt(0.5)), steps=300)
    assert found.value <= slow.value + 1e-6
    again = px.minimize(p, found.w, px.lbfgs(), steps=50)
    assert again.value >= found.value - 1e-6
    auto = px.minimize(p, w, steps=2)
    assert "exact prox-linear" in auto.message


def test_the_same_problem_as_one_large_inner_map():
    """A MeanOfLosses of one sample that rolls out by itself has the same answer."""
    with jax.enable_x64(True):
        p = problem(outer=px.L1())
        w = jnp.asarray(controls())

        def whole(w, sample):
            x = px.rollout(dynamics, w, START)
            return jax.vmap(stage)(x[1:], w, jnp.asarray(TARGETS)).reshape(-1) / HORIZON

        other = px.MeanOfLosses(whole, px.L1(), np.zeros((1, 1)))
        assert float(other.value(w)) == pytest.approx(float(p.value(w)), abs=1e-13)
        ours = px.solve_subproblem(p, w, kappa=0.1)
        theirs = px.solve_subproblem(other, w, kappa=0.1)
        assert ours.status == theirs.status == "converged"
        assert ours.value == pytest.approx(theirs.value, abs=1e-9)


def test_a_trajectory_has_no_batches():
    p = problem()
    w = controls()
    with pytest.raises(TypeError, match="no mini-batches.*prox_linear"):
        p[0]
    for solver in (px.sgd(0.1), px.stochastic_prox_linear(1.0), px.pli(1.0)):
        with pytest.raises(TypeError, match="Trajectory|MeanOfLosses"):
            px.minimize(p, w, solver, steps=1)


WRONG = {
    "horizon 0": (lambda: px.rollout(dynamics, np.zeros((0, 1)), START), "one stage"),
    "no data": (lambda: problem(data=np.zeros(0)), "no samples"),
    "a flat control": (lambda: px.rollout(dynamics, np.zeros(3), START), r"\(T, 1\)"),
    "a matrix x0": (lambda: problem(x0=np.zeros((2, 2))), "x0 must be a state"),
    "an infinite x0": (lambda: problem(x0=np.array([np.inf, 0])), "finite"),
    "another shape": (
        lambda: px.rollout(lambda x, u: x[:1], np.zeros((3, 1)), START),
        r"must return the next state, an array of shape \(2,\)",
    ),
    "a list": (
        lambda: px.rollout(lambda x, u: [x[0], x[1]], np.zeros((3, 1)), START),
        "jnp.stack",
    ),
    "too few rows": (lambda: problem().value(np.zeros((5, 1))), "5 rows.*12"),
    "controls of one axis": (lambda: problem().value(np.zeros(HORIZON)), r"\(T, m\)"),
    "a stage without a return": (
        lambda: problem(stage=lambda x, u, d: None).value(controls()),
        "stage",
    ),
    "dynamics in 16 bits": (
        lambda: problem(
            dynamics=lambda x, u: dynamics(x, u).astype(jnp.bfloat16)
        ).value(controls()),
        r"dynamics\(x, u\) must return numbers of float32 or float64; .* bfloat16",
    ),
    "a stage in 16 bits": (
        lambda: problem(stage=lambda x, u, d: stage(x, u, d).astype(jnp.float16)).value(
            controls()
        ),
        r"stage\(x, u, row\) must return numbers of float32 or .* float16",
    ),
    "parts of another size": (
        lambda: problem(outer=px.Parts((px.L1(), 3))).value(controls()),
        "take 3 entries",
    ),
    "no function": (
        lambda: stages(3.0, stage, START),
        "dynamics must be a function",
    ),
    "no loss": (lambda: px.Parts((px.L2(), 2)), "sum over entries"),
    "no pair": (lambda: px.Parts(px.L1()), "pair"),
    "no part": (lambda: px.Parts(), "at least one pair"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_use_is_refused_in_a_sentence(name):
    call, words = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        call()
    text = str(caught.value)
    assert text.endswith(".") and "\n" not in text


def test_parts_work_with_a_dense_jacobian_and_with_bounds():
    """The mixed loss of a linear fit, against its optimality conditions, and with a penalty."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    y = rng.normal(size=20)
    inner = lambda w, s: jnp.stack([s[0] @ w - s[1], 0.3 * (s[0] @ w), w[0] - 0.1])
    outer = px.Parts((px.SquaredL2(), 1), (px.L1(), 1), (px.Hinge(), 1))
    p = px.MeanOfLosses(inner, outer, (X, y))
    w = np.zeros(3)
    found = px.solve_subproblem(p, w, kappa=1e-3)
    assert found.status == "converged"
    for _ in range(20):
        other = found.w + 0.01 * rng.normal(size=3)
        more = float(p.value(other)) + 5e-4 * float(np.sum(other**2))
        assert more >= found.value - 1e-9
    held = px.MeanOfLosses(inner, outer, (X, y), penalty=px.Bounds(-0.01, 0.01))
    inside = px.solve_subproblem(held, w, kappa=1e-3)
    assert inside.status == "converged" and np.max(np.abs(inside.w)) <= 0.01
