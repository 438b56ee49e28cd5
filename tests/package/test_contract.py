"""The public contract on problems, outer functions and schedules, as written; needs nothing but the
package.

`python tests/package/test_contract.py` runs it against whatever proxlin is installed, such as a wheel in an empty
environment.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px

X = np.arange(12, dtype=np.float32).reshape(6, 2) / 10
Y = np.ones((6, 3), np.float32)
W = jnp.full((2, 3), 0.5, jnp.float32)


def predict(w, x):
    return x @ w


def near(a, b, tol=1e-5):
    return bool(np.allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol))


def test_problems_and_verbs():
    inner = px.residual(predict)
    u = X @ np.asarray(W) - Y
    each = np.linalg.norm(u, axis=1)
    p = px.MeanOfLosses(inner, px.L2(), (X, Y), ridge=0.1, weights=None)
    assert near(p.value(W), each.mean() + 0.05 * np.sum(np.asarray(W) ** 2))
    assert len(p) == 6 and near(
        p[np.array([1, 2])].value(W),
        each[1:3].mean() + 0.05 * np.sum(np.asarray(W) ** 2),
    )
    # the whole ridge is kept
    assert near(p[3].value(W), each[3] + 0.05 * np.sum(np.asarray(W) ** 2))
    gradient = sum(
        np.outer(X[i], u[i] / each[i]) for i in range(6)
    ) / 6 + 0.1 * np.asarray(W)
    assert near(p.subgradient(W), gradient)
    assert near(p.linearize(W).value(W), p.value(W))
    smooth = np.where(each >= 2, each - 1, each**2 / 4)
    assert near(
        p.smooth(2.0).value(W), smooth.mean() + 0.05 * np.sum(np.asarray(W) ** 2)
    )
    assert near(
        p.regularize(2.0, 0 * W).value(W), p.value(W) + np.sum(np.asarray(W) ** 2)
    )
    weights = np.array([1, 0, 0, 0, 0, 2], np.float32)
    weighted = px.MeanOfLosses(inner, px.L2(), (X, Y), weights=weights)
    assert near(weighted.value(W), (each[0] + 2 * each[5]) / 3)
    q = px.LossOfMean(inner, px.L1(), (X, Y), ridge=0.0, weights=weights)
    assert near(q.value(W), np.abs((u[0] + 2 * u[5]) / 3).sum())


def test_covariance():
    y = np.array([[1.0], [2.0], [3.0], [6.0]], np.float32)
    mean = px.MeanOfLosses(px.residual(lambda w, x: w), px.SquaredL2(), (y, y))
    w = jnp.array([3.0], jnp.float32)
    assert near(px.covariance(mean, w), [[14 / 4 / 4]])  # the variance of y over n
    assert near(px.covariance(mean, w, kind="hessian"), [[14 / 3 / 4]])
    assert near(px.covariance(mean, w, kind="rlm"), [[14 / 3 / 4]])


def test_clear_caches():
    p = px.MeanOfLosses(px.residual(predict), px.L2(), (X, Y))
    before = p.value(W)
    assert px.clear_caches() is None and p.value(W) == before


def test_sparse_rows():
    rows = px.SparseRows(
        np.array([[0, 2], [1, 0]]), np.array([[1.0, 2.0], [3.0, 0.0]], np.float32), 3
    )
    p = px.MeanOfLosses(lambda w, x: (x.values @ w[x.indices])[None], px.L1(), rows)
    assert near(p.value(jnp.array([1.0, 10.0, 100.0], jnp.float32)), (201 + 30) / 2)


def test_outer_functions():
    u = jnp.array([3.0, -4.0], jnp.float32)
    values = [
        (px.L2(), 5.0), (px.L1(), 7.0), (px.LInf(), 4.0), (px.Max(), 3.0), (px.Huber(delta=1.0), 2.5 + 3.5),
        (px.SquaredL2(), 12.5), (px.Hinge(), 3.0), (px.Quantile(0.25), 2.25 + 1.0),
    ]  # fmt: skip
    for f, value in values:
        assert near(f.value(u), value), f
        assert near(
            f.value(u) + f.subgradient(u) @ (0 * u - u),
            -float(f.conjugate(f.subgradient(u))),
            1e-4,
        ), f
        p = f.prox(u, 0.5)
        assert f.value(p) + jnp.sum((p - u) ** 2) <= f.value(u), f
        assert f.smooth(0.5).value(u) <= f.value(u) + 1e-5, f
    assert px.SquaredL2().lipschitz(4) == math.inf
    for k in (1, 4):
        r = math.sqrt(k)
        constants = [  # f, Lipschitz constant, sharpness
            (px.L2(), 1, 1), (px.LInf(), 1, 1 / r), (px.Max(), 1, 0), (px.L1(), r, 1), (px.Hinge(), r, 1),
            (px.Quantile(0.25), 0.75 * r, 0.25), (px.Huber(0.5), 0.5 * r, 0),
        ]  # fmt: skip
        for f, lipschitz, sharpness in constants:
            assert near(f.lipschitz(k), lipschitz) and near(
                f.sharpness(k), sharpness
            ), f


def test_schedules():
    assert [float(px.Constant(0.5)(t)) for t in range(3)] == [0.5] * 3
    assert near(
        [px.InverseSqrt(0.5)(t) for t in range(3)],
        [0.5, 0.5 / math.sqrt(2), 0.5 / math.sqrt(3)],
    )
    assert near([px.Inverse(0.5)(t) for t in range(3)], [0.5, 0.25, 0.5 / 3])


class Absolute(px.AbstractSupport):
    """f(u) = sum_j |u_j|, from the four methods that a loss of one's own needs."""

    def argmax(self, u):
        return jnp.sign(u)

    def project(self, v):
        return jnp.clip(v, -jnp.ones((), v.dtype), jnp.ones((), v.dtype))

    def radius(self, k):
        return math.sqrt(k)

    def sharpness(self, k):
        return 1.0


class Descent(px.AbstractModel):
    """F(w) + <v, x - w>, from the three methods that a model of one's own needs."""

    def minimize(self, problem, w, step, key, memory):
        return w - step * problem.subgradient(w), None, px.Info(px.Calls(value=1))

    def prices(self, problem, w):
        price = problem.prices(w)
        return px.Prices(step=price.subgradient, value=price.value)

    def name(self, full_batch):
        return "descent"


class Steps(px.AbstractSolver):
    """w - v, from the three methods that a solver of one's own needs."""

    def init(self, problem, w):
        return px.State(w, jnp.zeros((), jnp.int32))

    def step(self, problem, state, drawn):
        w = state.w - problem.subgradient(state.w)
        return px.State(w, state.t + 1), px.Info()

    def prices(self, problem, w):
        return px.Prices(step=problem.prices(w).subgradient)


def test_parts_of_your_own():
    f, u = Absolute(), jnp.array([3.0, -0.5], jnp.float32)
    assert isinstance(f, px.AbstractProximable) and isinstance(f, px.AbstractOuter)
    for ours, theirs in ((f, px.L1()), (f.smooth(0.5), px.L1().smooth(0.5))):
        assert near(ours.value(u), theirs.value(u))
        assert near(ours.prox(u, 1.0), theirs.prox(u, 1.0))
    p = px.MeanOfLosses(px.residual(predict), f, (X, Y))
    assert isinstance(p, px.AbstractProblem)
    solver = px.ModelBased(Descent(), px.Constant(1.0), batch_size=None)
    after = W - p.subgradient(W)
    for each in (solver, Steps()):
        state = each.init(p, W)
        state, info = each.step(p, state, jax.random.key(0))
        assert isinstance(state, px.State) and isinstance(info, px.Info)
        assert near(each.iterate(state), after) and int(state.t) == 1
        assert each.prices(p, W).step == px.Cost(phi=6, vjp=6)
    assert solver.prices(p, W).total(2, px.Calls(value=1)) == px.Cost(phi=18, vjp=12)
    assert solver.name() == "descent" and Steps().name() == "Steps"
    assert isinstance(px.Chains(2, 2), px.AbstractOracle)
    network = px.MLP((2, 4, 3))
    assert network(network.init(jax.random.key(0)), jnp.zeros(2)).shape == (3,)


def test_a_problem_goes_through_jit_and_scan():
    p = px.MeanOfLosses(px.residual(predict), px.L2(), (X, Y))

    @jax.jit
    def epoch(p, w, step):
        return jax.lax.scan(
            lambda w, i: (w - step * p[i].subgradient(w), None), w, jnp.arange(len(p))
        )[0]

    assert p.value(epoch(p, W, jnp.float32(0.1))) < p.value(W)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("passed", name)
