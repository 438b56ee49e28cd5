"""float32 against float64: values, subgradients, proxes, exact subproblems and whole runs.

eps is that of float32, 1.2e-7. A number that is a sum of terms is right to a small multiple of eps
times the sum of their absolute values; what a solver can reach in w is the root of that where F is
flat, so gaps are asked of F alone.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import proxlin as px
import zoo
from proxlin.types import is_parameter, parameters

pytestmark = [pytest.mark.slow, pytest.mark.law]
EPS = float(np.finfo(np.float32).eps)
# their layers state float64
PROBLEMS = [name for name in zoo.PROBLEMS if name not in ("linen_l2", "nnx_linf")]


def cast(tree, dtype):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if is_parameter(x) else x, tree)


def moved(w, seed: int = 0):
    """Away from kinks at round numbers, where two dtypes may take two subgradients, both right."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: (
            x + 0.1 * jnp.asarray(rng.normal(size=x.shape), x.dtype)
            if is_parameter(x)
            else x
        ),
        w,
    )


def distance(a, b) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return float(
        np.sqrt(
            sum(
                np.sum((np.asarray(x, float) - np.asarray(y, float)) ** 2)
                for x, y in pairs
            )
        )
    )


def test_values_and_subgradients(figures):
    """Both at the same float32 point: F to 16 eps max(1, |F|), a mean of ten sums of ten products;
    the subgradient to 64 eps of its own size, as it passes back through the layers.
    """
    worst = {"value": 0.0, "subgradient": 0.0}
    for name in PROBLEMS:
        case = zoo.PROBLEMS[name]()
        narrow = cast(moved(case.w), jnp.float32)
        wide = cast(narrow, jnp.float64)
        f32, f64 = case.problem.value(narrow), case.problem.value(wide)
        assert f32.dtype == jnp.float32 and f64.dtype == jnp.float64, name
        worst["value"] = max(
            worst["value"],
            value := abs(float(f32) - float(f64)) / max(1.0, abs(float(f64))) / EPS,
        )
        v32, v64 = (parameters(case.problem.subgradient(w)) for w in (narrow, wide))
        size = max(1.0, float(optax.tree.norm(v64)))
        worst["subgradient"] = max(
            worst["subgradient"], slope := distance(v32, v64) / size / EPS
        )
        assert value <= 16 and slope <= 64, (name, value, slope)
    figures(
        "precision-problems",
        problems=len(PROBLEMS),
        **{f"{k}_in_eps": round(x, 1) for k, x in worst.items()},
    )


def test_proxes(figures):
    """To 4 eps (max|u| + step), at the same float32 point and step: a sum of two terms, one of them
    a projection.
    """
    worst = 0.0
    rng = np.random.default_rng(0)
    u = (rng.normal(size=(200, 7)) * 10.0 ** rng.uniform(-4, 4, (200, 1))).astype(
        np.float32
    )
    steps = (10.0 ** rng.uniform(-4, 4, 200)).astype(np.float32)
    for name, case in zoo.PROXIMABLE.items():
        prox = jax.vmap(case.outer.prox)
        narrow, wide = (
            np.asarray(prox(jnp.asarray(u, d), jnp.asarray(steps, d)), float)
            for d in (np.float32, float)
        )
        error = (
            np.abs(narrow - wide).max(axis=1) / (np.abs(u).max(axis=1) + steps) / EPS
        )
        worst = max(worst, float(error.max()))
        assert error.max() <= 4, name
    figures(
        "precision-proxes", functions=len(zoo.PROXIMABLE), worst_in_eps=round(worst, 1)
    )


SUBPROBLEMS = (
    "dict_huber",
    "list_quantile",
    "equinox_l1",
    "labels_max",
    "mean_mlp_max",
    "interpolation_mlp",
    "ridge_regression",
)


@pytest.mark.parametrize("name", SUBPROBLEMS)
def test_exact_subproblems(name, figures):
    """The float32 answer, judged in float64, is within 1e-4 max(1, |value|) of the float64 one, and
    its own certificate does not claim more: the gap it reports is not below the true one by more
    than 1000 eps max(1, |value|).
    """
    case = zoo.PROBLEMS[name]()
    narrow = cast(case.w, jnp.float32)
    wide, kappa = cast(narrow, jnp.float64), 1.0
    a = px.solve_subproblem(case.problem, narrow, kappa, tol=1e-5)
    b = px.solve_subproblem(case.problem, wide, kappa, tol=1e-10)
    model = case.problem.linearize(wide).regularize(kappa, wide)
    true = float(model.value(cast(a.w, jnp.float64))) - b.value
    size = max(1.0, abs(b.value))
    figures(
        f"precision-subproblem-{name}",
        gap32=a.gap,
        true_gap32=true,
        gap64=b.gap,
        value=b.value,
    )
    assert true <= 1e-4 * size and b.gap <= 1e-8 * size
    assert true <= a.gap + 1000 * EPS * size


@pytest.mark.parametrize("name", zoo.SOLVERS)
def test_whole_runs(name, figures):
    """The first problem of each solver in both dtypes with one seed: both end well, and float32 is
    worse by at most the gap that the solver states for that problem, or 1e-4 max(1, |F|) if it
    states less.
    """
    case = zoo.SOLVERS[name]
    problem = zoo.PROBLEMS[case.problems[0]]()
    runs = {
        dtype: px.minimize(
            problem.problem,
            cast(problem.w, dtype),
            case.solver,
            passes=case.passes,
            seed=1,
        )
        for dtype in (jnp.float32, jnp.float64)
    }
    narrow, wide = runs[jnp.float32], runs[jnp.float64]
    f32 = float(problem.problem.value(cast(narrow.w, jnp.float64)))
    figures(
        f"precision-{name.replace(' ', '-')}",
        float32=f32,
        float64=wide.value,
        optimum=problem.value,
    )
    assert all(
        run.status in ("budget", "converged", "stalled") for run in runs.values()
    ), runs
    assert f32 - wide.value <= max(case.gap, 1e-4 * max(1.0, abs(wide.value)))
    # it knows its own value
    assert abs(narrow.value - f32) <= 64 * EPS * max(1.0, abs(f32))
