"""What the laws run on: outers, problems, solvers and oracles, a line each. What is registered gets
every law for free.

OUTERS     name -> OuterCase          the laws of tests/outers and the cvxpy references
PROBLEMS   name -> () -> ProblemCase  built on first use; the laws of tests/problem and of tests/solvers
SOLVERS    name -> SolverCase         filled by whoever writes a solver, a line each
ORACLES    name -> oracle             filled by whoever writes an oracle, a line each
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from proxlin.networks import MLP
from proxlin.outers import AbstractOuter, AbstractProximable, AbstractSupport

# ------------------------------------------------------------------------------------------- outers


class GroupNorm(AbstractSupport):
    """A user's support function: |(u_1, u_2)|_2 + |(u_3, u_4)|_2 + ... (the last group may be one
    entry).
    """

    def _groups(self, u):
        u = jnp.asarray(u)
        return jnp.concatenate([u, jnp.zeros(u.shape[0] % 2, u.dtype)]).reshape(-1, 2)

    def value(self, u):
        return jnp.sum(jax.vmap(px.L2().value)(self._groups(u)))

    def argmax(self, u):
        return jax.vmap(px.L2().argmax)(self._groups(u)).ravel()[: u.shape[0]]

    def project(self, v):
        return jax.vmap(px.L2().project)(self._groups(v)).ravel()[: v.shape[0]]

    def radius(self, k):
        return float(np.sqrt((k + 1) // 2))

    def sharpness(self, k):
        return 1.0


class WeightedL1(AbstractProximable):
    """A user's proximable function: sum_j a |u_j| by soft thresholding, with no set V in sight."""

    a: float = 2.0

    def value(self, u):
        return self.a * jnp.sum(jnp.abs(u))

    def subgradient(self, u):
        return self.a * jnp.sign(u)

    def prox(self, u, step):
        return jnp.sign(u) * jnp.maximum(
            jnp.abs(u) - self.a * jnp.asarray(step, u.dtype), jnp.zeros((), u.dtype)
        )

    def conjugate(self, v):
        slack = 1 + float(jnp.finfo(v.dtype).eps) ** (2 / 3)
        return jnp.where(
            jnp.max(jnp.abs(v)) <= self.a * slack, jnp.zeros((), v.dtype), jnp.inf
        )

    def lipschitz(self, k):
        return self.a * float(np.sqrt(k))

    def sharpness(self, k):
        return self.a


ORIGIN = lambda u: 0 * u
NEGATIVE = lambda u: np.minimum(u, 0)


@dataclass(frozen=True)
class OuterCase:
    """An outer function, the projection onto its minimisers (None: it has no minimum), and the k it
    is tried at.
    """

    outer: AbstractOuter
    nearest_minimizer: Callable | None
    sizes: tuple[int, ...] = (1, 7)


SHARP_OR_NOT: dict[str, OuterCase] = {
    "L2": OuterCase(px.L2(), ORIGIN),
    "L1": OuterCase(px.L1(), ORIGIN),
    "LInf": OuterCase(px.LInf(), ORIGIN),
    "Max": OuterCase(px.Max(), None),
    "Huber(0.7)": OuterCase(px.Huber(0.7), ORIGIN),
    "SquaredL2": OuterCase(px.SquaredL2(), ORIGIN),
    "Hinge": OuterCase(px.Hinge(), NEGATIVE),
    "Quantile(0.3)": OuterCase(px.Quantile(0.3), ORIGIN),
    "Quantile(0.9)": OuterCase(px.Quantile(0.9), ORIGIN),
    "GroupNorm": OuterCase(GroupNorm(), ORIGIN),
    "WeightedL1": OuterCase(WeightedL1(), ORIGIN),
}
NUS = (0.3,)
SMOOTHED: dict[str, OuterCase] = {
    f"{name}.smooth({nu})": OuterCase(case.outer.smooth(nu), case.nearest_minimizer)
    for name, case in SHARP_OR_NOT.items()
    for nu in NUS
}
GRID = px.MonotonePaths(2, 3)  # 6 cells and the score of the truth: k = 7
# outers without a prox; EntropyHinge itself is StructuredHinge
STRUCTURED: dict[str, OuterCase] = {
    "StructuredHinge": OuterCase(px.StructuredHinge(GRID), None, (7,)),
    "StructuredHinge.smooth(0.3)": OuterCase(
        px.StructuredHinge(GRID).smooth(0.3), None, (7,)
    ),
    "EntropyHinge.smooth(0.3)": OuterCase(
        px.EntropyHinge(GRID).smooth(0.3), None, (7,)
    ),
}
OUTERS: dict[str, OuterCase] = SHARP_OR_NOT | SMOOTHED | STRUCTURED
PROXIMABLE = {
    name: case
    for name, case in OUTERS.items()
    if isinstance(case.outer, AbstractProximable)
}
SUPPORTS = {
    name: case
    for name, case in OUTERS.items()
    if isinstance(case.outer, AbstractSupport)
}

# ----------------------------------------------------------------------------------------- problems


@dataclass(frozen=True)
class ProblemCase:
    """A problem, a start, and what is known of its minimum."""

    problem: Any
    w: Any
    optimum: Any = None
    value: float | None = None
    convex: bool = False


PROBLEMS: dict[str, Callable[[], ProblemCase]] = {}


def problem(build: Callable[[], ProblemCase]) -> Callable[[], ProblemCase]:
    """Registers a builder under its name; it runs once, when first asked."""
    PROBLEMS[build.__name__] = functools.cache(build)
    return PROBLEMS[build.__name__]


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def vector(*numbers: float) -> jax.Array:
    return jnp.asarray(np.array(numbers, float))


# convex, with a known optimum


@problem
def median():
    y = np.array([[3.0], [-1.0], [0.5], [10.0], [2.0]])
    p = px.MeanOfLosses(lambda w, y: w - y, px.L1(), y)
    return ProblemCase(
        p, vector(0.0), vector(2.0), float(np.mean(np.abs(y - 2.0))), convex=True
    )


@problem
def weighted_median():
    y = np.arange(4.0)[:, None]
    p = px.MeanOfLosses(lambda w, y: w - y, px.L1(), y, weights=np.array([1, 1, 1, 4]))
    return ProblemCase(p, vector(0.0), vector(3.0), 6 / 7, convex=True)


@problem
def geometric_median():
    ends = normal(1, 6, 3)
    center = np.array([1.0, -2.0, 0.5])
    # symmetric about the centre, which is then the minimiser
    y = np.concatenate([center + ends, center - ends])
    p = px.MeanOfLosses(lambda w, y: w - y, px.L2(), y)
    return ProblemCase(
        p,
        vector(0, 0, 0),
        vector(*center),
        float(np.mean(np.linalg.norm(ends, axis=1))),
        convex=True,
    )


@problem
def ridge_regression():
    x, y = normal(2, 12, 3), normal(3, 12, 2)
    ridge = 0.3
    best = np.linalg.solve(x.T @ x / 12 + ridge * np.eye(3), x.T @ y / 12)
    value = np.sum((x @ best - y) ** 2) / 24 + ridge / 2 * np.sum(best**2)
    p = px.MeanOfLosses(
        px.residual(lambda w, x: x @ w), px.SquaredL2(), (x, y), ridge=ridge
    )
    return ProblemCase(
        p, jnp.ones((3, 2)), jnp.asarray(best), float(value), convex=True
    )


@problem
def separable_hinge():
    x, best = normal(4, 30, 4), np.array([1.0, -2.0, 3.0, 0.5])
    x = x[np.abs(x @ best) > 0.4]
    best = 3 * best  # margins above 1
    p = px.MeanOfLosses(
        lambda w, s: 1 - (s[1] * (s[0] @ w))[None], px.Hinge(), (x, np.sign(x @ best))
    )
    return ProblemCase(p, jnp.zeros(4), jnp.asarray(best), 0.0, convex=True)


@problem
def interpolation_linear():
    x, best = normal(5, 10, 3), normal(6, 3, 2)
    p = px.MeanOfLosses(px.residual(lambda w, x: x @ w), px.L2(), (x, x @ best))
    return ProblemCase(p, jnp.zeros((3, 2)), jnp.asarray(best), 0.0, convex=True)


@problem
def mean_equation_linear():
    a, best = normal(7, 9, 3, 3) + 2 * np.eye(3), np.array([1.0, 2.0, -1.0])
    b = np.einsum("nij,j->ni", a, best) + normal(8, 9, 3)
    # the mean of the equations, not each of them, has the root
    b += np.mean(a @ best - b, axis=0)
    p = px.LossOfMean(lambda w, s: s[0] @ w - s[1], px.L2(), (a, b))
    return ProblemCase(p, jnp.zeros(3), jnp.asarray(best), 0.0, convex=True)


# with a penalty, and a known optimum


@problem
def bounded_median():
    y = np.array([[3.0], [-1.0], [0.5], [10.0], [2.0]])
    p = px.MeanOfLosses(lambda w, y: w - y, px.L1(), y, penalty=px.Bounds(-10, 1.5))
    value = float(np.mean(np.abs(y - 1.5)))
    return ProblemCase(p, vector(0.0), vector(1.5), value, convex=True)


@problem
def orthogonal_lasso():
    x, y = np.sqrt(12) * np.linalg.qr(normal(40, 12, 4))[0], normal(41, 12)
    lam = 0.3
    ends = x.T @ y / 12
    best = np.sign(ends) * np.maximum(np.abs(ends) - lam, 0)  # two of four are 0
    value = np.sum((x @ best - y) ** 2) / 24 + lam * np.sum(np.abs(best))
    inner = lambda w, s: (s[0] @ w - s[1])[None]
    p = px.MeanOfLosses(inner, px.SquaredL2(), (x, y), penalty=px.L1Penalty(lam))
    return ProblemCase(p, jnp.ones(4), jnp.asarray(best), float(value), convex=True)


@problem
def mean_equation_bounded():
    case = mean_equation_linear()
    p, best = case.problem, case.optimum
    # the second and the third entry of the root are at their bounds
    bounds = px.Bounds(np.array([-9.0, -9.0, best[2]]), np.array([9.0, best[1], 9.0]))
    p = px.LossOfMean(p.inner, p.outer, p.data, penalty=bounds)
    return ProblemCase(p, jnp.full(3, -0.5), best, 0.0, convex=True)


# not convex, with a known optimum


@problem
def interpolation_mlp():
    predict = MLP((3, 4, 2))
    best = predict.init(jax.random.key(1))
    x = normal(9, 11, 3)
    y = np.asarray(jax.vmap(lambda x: predict(best, x))(jnp.asarray(x)))
    p = px.MeanOfLosses(px.residual(predict), px.L2(), (x, y))
    return ProblemCase(p, predict.init(jax.random.key(2)), best, 0.0)


@problem
def mean_equation_tanh():
    noise = normal(10, 10, 2)
    noise -= noise.mean(axis=0)
    best = np.array([0.5, -0.3])
    p = px.LossOfMean(
        lambda w, e: jnp.tanh(w - jnp.asarray(best, w.dtype)) + e, px.L1(), noise
    )
    return ProblemCase(p, jnp.zeros(2), jnp.asarray(best), 0.0)


# every kind of parameters, data, weights and outer function


@problem
def dict_huber():
    def inner(w, s):
        x, y = s["x"], s["y"]
        return w["out"]["V"] @ jnp.tanh(w["W"] @ x + w["b"]) + w["out"]["c"] - y

    w = {
        "W": normal(11, 4, 3),
        "b": normal(12, 4),
        "out": {"V": normal(13, 2, 4), "c": normal(14, 2)},
    }
    p = px.MeanOfLosses(
        inner, px.Huber(0.7), {"x": normal(15, 9, 3), "y": normal(16, 9, 2)}, ridge=0.1
    )
    return ProblemCase(p, jax.tree.map(jnp.asarray, w))


@problem
def list_quantile():
    predict = MLP((2, 3, 2))
    data = (normal(17, 13, 2), normal(18, 13, 2))
    p = px.MeanOfLosses(
        px.residual(predict), px.Quantile(0.3), data, weights=np.arange(1.0, 14.0)
    )
    return ProblemCase(p, predict.init(jax.random.key(3)))


@problem
def equinox_l1():
    # jnp.tanh is a leaf of it
    model = eqx.nn.MLP(3, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(4))
    data = (normal(19, 9, 3), normal(20, 9, 2))
    return ProblemCase(
        px.MeanOfLosses(px.residual(lambda m, x: m(x)), px.L1(), data, ridge=0.05),
        model,
    )


@problem
def linen_l2():
    from flax import linen

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(2, param_dtype=jnp.float64)(
                jnp.tanh(linen.Dense(4, param_dtype=jnp.float64)(x))
            )

    net = Net()
    w = net.init(jax.random.key(5), jnp.ones(3))
    data = (normal(21, 9, 3), normal(22, 9, 2))
    return ProblemCase(px.MeanOfLosses(px.residual(net.apply), px.L2(), data), w)


@problem
def nnx_linf():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.hidden = nnx.Linear(3, 4, rngs=rngs, param_dtype=jnp.float64)
            self.out = nnx.Linear(4, 3, rngs=rngs, param_dtype=jnp.float64)

        def __call__(self, x):
            return self.out(nnx.gelu(self.hidden(x)))

    graph, w = nnx.split(Net(nnx.Rngs(6)))
    data = (normal(23, 9, 3), normal(24, 9, 3))
    predict = lambda w, x: nnx.merge(graph, w)(x)
    return ProblemCase(
        px.MeanOfLosses(px.residual(predict), px.LInf(), data, ridge=0.2), w
    )


@problem
def sparse_hinge():
    rng = np.random.default_rng(25)
    x = px.SparseRows(rng.integers(0, 6, (10, 3)), rng.normal(size=(10, 3)), 6)
    data = (x, np.sign(rng.normal(size=10)))
    inner = lambda w, s: (1 - s[1] * (s[0].values @ w[s[0].indices]))[None]
    p = px.MeanOfLosses(
        inner, px.Hinge(), data, ridge=0.1, weights=rng.uniform(0.5, 2.0, 10)
    )
    return ProblemCase(p, jnp.asarray(rng.normal(size=6)), convex=True)


@problem
def labels_max():
    """Multi-class margins, max_c (score_c - score_y + [c != y]), with integer labels."""

    def inner(w, s):
        x, label = s
        scores = w @ x
        return scores - scores[label] + (1 - jax.nn.one_hot(label, 3, dtype=w.dtype))

    data = (normal(26, 10, 4), np.random.default_rng(27).integers(0, 3, 10))
    return ProblemCase(
        px.MeanOfLosses(inner, px.Max(), data, ridge=0.1),
        jnp.asarray(normal(28, 3, 4)),
        convex=True,
    )


@problem
def mean_mlp_max():
    predict = MLP((3, 4, 3))
    data = (normal(29, 12, 3), normal(30, 12, 3))
    p = px.LossOfMean(
        px.residual(predict),
        px.Max(),
        data,
        ridge=0.1,
        weights=np.linspace(0.1, 3.0, 12),
    )
    return ProblemCase(p, predict.init(jax.random.key(7)))


@problem
def mean_equinox_quantile():
    model = eqx.nn.MLP(3, 2, 4, 1, activation=jax.nn.softplus, key=jax.random.key(8))
    data = (normal(31, 9, 3), normal(32, 9, 2))
    return ProblemCase(
        px.LossOfMean(px.residual(lambda m, x: m(x)), px.Quantile(0.8), data), model
    )


@problem
def one_sample():
    data = (normal(33, 1, 3), normal(34, 1, 2))
    return ProblemCase(
        px.MeanOfLosses(px.residual(lambda w, x: jnp.sin(x @ w)), px.L2(), data),
        jnp.ones((3, 2)),
    )


@problem
def penalties_of_a_tree():
    case = dict_huber()
    p = case.problem
    out = {"V": px.L1Penalty(0.2), "c": px.Bounds(-50.0, np.array([40.0, 60.0]))}
    penalty = {"W": px.GroupL2(0.1), "b": None, "out": out}
    p = px.MeanOfLosses(p.inner, p.outer, p.data, ridge=0.1, penalty=penalty)
    return ProblemCase(p, case.w)


@problem
def mean_with_a_penalty():
    case = mean_mlp_max()
    p = case.problem
    p = px.LossOfMean(p.inner, p.outer, p.data, ridge=0.1, penalty=px.GroupL2(0.05))
    return ProblemCase(p, case.w)


# what the verbs return


@problem
def verbs_smooth():
    case = interpolation_mlp()
    return ProblemCase(case.problem.smooth(0.3), case.w, case.optimum, 0.0)


@problem
def verbs_linearized():
    case = dict_huber()
    return ProblemCase(
        case.problem.linearize(jax.tree.map(lambda x: 0.7 * x + 0.1, case.w)),
        case.w,
        convex=True,
    )


@problem
def verbs_regularized():
    case = mean_mlp_max()
    return ProblemCase(
        case.problem.regularize(0.7, jax.tree.map(lambda x: x - 0.5, case.w)), case.w
    )


@problem
def verbs_subproblem():
    case = list_quantile()
    return ProblemCase(
        case.problem.smooth(0.1).linearize(case.w).regularize(2.0, case.w),
        case.w,
        convex=True,
    )


# --------------------------------------------------------------------------------- solvers, oracles


@dataclass(frozen=True)
class SolverCase:
    """A solver, the names of the problems it is run on, and a stated cost to reach their optimum."""

    solver: Any
    problems: tuple[str, ...] = ()
    passes: float = 100.0
    gap: float = 1e-6


EXACT = ("interpolation_mlp", "median", "separable_hinge", "interpolation_linear")
CONVEX = ("geometric_median", "ridge_regression", "interpolation_linear")
EQUATIONS = ("mean_equation_linear", "mean_equation_tanh")
PENALIZED = ("orthogonal_lasso", "bounded_median")
SOLVERS: dict[str, SolverCase] = {
    "sgd": SolverCase(
        px.sgd(px.InverseSqrt(0.3)), (*CONVEX, *PENALIZED), passes=400, gap=3e-2
    ),
    "sgd without replacement": SolverCase(
        px.sgd(px.Inverse(3.0), 3, replace=False), CONVEX, passes=400, gap=2e-2
    ),
    "truncated": SolverCase(
        px.truncated(10.0),
        ("interpolation_linear", "separable_hinge"),
        passes=300,
        gap=1e-6,
    ),
    "subgradient_descent": SolverCase(
        px.subgradient_descent(px.InverseSqrt(0.5)),
        (*CONVEX, *PENALIZED),
        passes=400,
        gap=2e-2,
    ),
    "averaged": SolverCase(
        px.Averaged(px.sgd(0.1)), (*CONVEX, *PENALIZED), passes=400, gap=4e-2
    ),
    "best so far": SolverCase(
        px.BestSoFar(px.sgd(px.InverseSqrt(0.3))), CONVEX, passes=400, gap=2e-2
    ),
    "rescaled": SolverCase(
        px.Rescaled(px.sgd(px.InverseSqrt(0.3))), CONVEX[2:], passes=400, gap=3e-2
    ),
    "lbfgs": SolverCase(
        px.lbfgs(0.01),
        ("geometric_median", "interpolation_linear"),
        passes=400,
        gap=1e-2,
    ),
    "svrg": SolverCase(
        px.svrg(0.05, nu=0.01),
        ("geometric_median", "ridge_regression", *PENALIZED),
        passes=400,
        gap=1e-2,
    ),
    "casimir_svrg": SolverCase(
        px.casimir_svrg(0.01),
        ("geometric_median", "ridge_regression", *PENALIZED),
        passes=400,
        gap=1e-2,
    ),
    "pli": SolverCase(
        px.pli(0.1, 0.02, step=0.01), ("geometric_median",), passes=600, gap=1e-2
    ),
    "pli svrg": SolverCase(
        px.pli(0.1, 0.02, step=0.01, inner="svrg"),
        ("geometric_median",),
        passes=600,
        gap=1e-2,
    ),
    "pli catalyst": SolverCase(
        px.pli(0.1, 0.02, 2, catalyst=0.3),
        ("geometric_median",),
        passes=600,
        gap=1e-2,
    ),
    "pli every step": SolverCase(
        px.pli(0.1, 0.02, 1, step=0.01, accept=False),
        ("geometric_median",),
        passes=600,
        gap=1e-2,
    ),
    "pli dual": SolverCase(
        px.pli(0.1, inner="dual"),
        ("median", *CONVEX, *PENALIZED),
        passes=400,
        gap=1e-5,
    ),
    "prox_linear": SolverCase(
        px.prox_linear(),
        (*EXACT, *CONVEX[:2], *EQUATIONS, *PENALIZED, "mean_equation_bounded"),
        130,
        1e-9,
    ),
    "prox_linear fixed": SolverCase(
        px.prox_linear(0.3),
        ("geometric_median", "mean_equation_tanh", *PENALIZED),
        100,
        gap=1e-8,
    ),
    "prox_linear accelerated": SolverCase(
        px.prox_linear(accelerated=True), (*EXACT[:1], *PENALIZED), passes=200, gap=1e-8
    ),
    "stochastic_prox_linear": SolverCase(
        px.stochastic_prox_linear(px.InverseSqrt(1.0), 3),
        (*CONVEX, *PENALIZED),
        400,
        gap=3e-2,
    ),
    "gauss_newton": SolverCase(
        px.stochastic_gauss_newton(30.0, 3, 2, subsolver="apg"),
        EQUATIONS[:1],
        400,
        gap=0.1,
    ),
    "gauss_newton sarah": SolverCase(
        px.stochastic_gauss_newton(1.0, 3, 2, "sarah", 5), EQUATIONS[1:], 400, gap=1e-6
    ),
    "gauss_newton svrg": SolverCase(
        px.stochastic_gauss_newton(1.0, 3, None, "svrg", 5),
        (*EQUATIONS[:1], "mean_equation_bounded"),
        400,
        gap=1e-6,
    ),
    "composition average": SolverCase(
        px.composition_sgd(px.InverseSqrt(0.1), 3, 2), EQUATIONS[:1], 400, gap=0.2
    ),
    "composition minibatch": SolverCase(
        px.composition_sgd(px.InverseSqrt(0.1), 3, estimator="minibatch"),
        EQUATIONS[:1],
        400,
        gap=0.2,
    ),
    "composition sarah": SolverCase(
        px.composition_sgd(px.InverseSqrt(0.3), 3, 2, "sarah", period=5),
        EQUATIONS[1:],
        400,
        gap=0.05,
    ),
    "composition svrg": SolverCase(
        px.composition_sgd(px.InverseSqrt(0.3), 3, 2, "svrg", period=5),
        EQUATIONS[:1],
        400,
        gap=0.05,
    ),
}
ORACLES: dict[str, Any] = {
    "paths 1x1": px.MonotonePaths(1, 1),
    "paths 1x4": px.MonotonePaths(1, 4),
    "paths 4x1": px.MonotonePaths(4, 1),
    "paths 3x5": px.MonotonePaths(3, 5),
    "paths 5x5": px.MonotonePaths(5, 5),
    "chain 1 of 3": px.Chains(1, 3),
    "chain 3 of 1": px.Chains(3, 1),
    "chain 3 of 2": px.Chains(3, 2),
    "chain 5 of 4": px.Chains(5, 4),
}


STACKLOSS = [  # Brownlee (1965): 21 days of a plant that oxidises ammonia
    # air flow
    [
        80,
        80,
        75,
        62,
        62,
        62,
        62,
        62,
        58,
        58,
        58,
        58,
        58,
        58,
        50,
        50,
        50,
        50,
        50,
        56,
        70,
    ],
    # water temperature
    [
        27,
        27,
        25,
        24,
        22,
        23,
        24,
        24,
        23,
        18,
        18,
        17,
        18,
        19,
        18,
        18,
        19,
        19,
        20,
        20,
        20,
    ],
    # acid concentration
    [
        89,
        88,
        90,
        87,
        87,
        87,
        93,
        93,
        87,
        80,
        89,
        88,
        82,
        93,
        89,
        86,
        72,
        79,
        80,
        82,
        91,
    ],
    # stack loss
    [42, 37, 37, 28, 18, 18, 19, 20, 15, 14, 14, 13, 11, 12, 8, 7, 8, 8, 9, 15, 15],
]
