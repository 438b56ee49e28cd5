"""Models of other libraries as parameters, an optax loop, tables for pandas and polars, and the
benchopt export.
"""

import ast
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas
import polars
import pytest

import proxlin as px
import zoo

FOLDER = Path(__file__).parents[2] / "bench" / "benchopt"


def plain_dict():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))
    problem = px.MeanOfLosses(
        px.residual(lambda w, x: jnp.tanh(x @ w["W"]) + w["b"]), px.L1(), data
    )
    return zoo.ProblemCase(problem, {"W": jnp.ones((3, 2)), "b": jnp.zeros(2)})


MODELS = {"dict": plain_dict} | {
    name: zoo.PROBLEMS[name] for name in ("equinox_l1", "linen_l2", "nnx_linf")
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_any_library_is_trained_as_it_is(name):
    """minimize and an optax loop give back the model's own tree, which predicts."""
    case = MODELS[name]()
    problem = px.MeanOfLosses(case.problem.inner, case.problem.outer, case.problem.data)
    sample = jax.tree.map(lambda leaf: leaf[0], problem.data)
    solution = px.minimize(problem, case.w, px.subgradient_descent(0.01), steps=1)
    transform = px.as_optax(px.sgd(0.01), problem.inner, problem.outer)
    updates, _ = transform.update(
        None, transform.init(case.w), case.w, batch=problem.data
    )
    stepped = eqx.apply_updates(case.w, updates)
    assert (
        jax.tree.structure(solution.w)
        == jax.tree.structure(stepped)
        == jax.tree.structure(case.w)
    )
    assert solution.value < solution.history["value"][0]
    np.testing.assert_allclose(
        problem.inner(solution.w, sample), problem.inner(stepped, sample), rtol=1e-9
    )


def test_stochastic_gauss_newton_in_the_shape_of_optax():
    rng = np.random.default_rng(1)
    data, w = rng.normal(size=(6, 2)), jnp.array([1.0, -2.0])
    inner, outer, solver = (
        lambda w, z: z * w - 1,
        px.L2(),
        px.stochastic_gauss_newton(0.5, 6),
    )
    transform = px.as_optax(solver, inner, outer)
    updates, state = transform.update(None, transform.init(w), w, batch=data)
    expected = px.solve_subproblem(px.LossOfMean(inner, outer, data), w, 0.5).w
    np.testing.assert_allclose(optax.apply_updates(w, updates), expected, atol=1e-8)
    assert int(state) == 1
    for other in (
        px.stochastic_gauss_newton(0.5, 6, estimator="sarah"),
        px.Averaged(px.sgd(0.1)),
    ):
        with pytest.raises(TypeError, match="a function of one batch"):
            px.as_optax(other, inner, outer)


def test_runs_and_searches_are_tables():
    problem = px.MeanOfLosses(lambda w, y: w - y, px.L1(), np.arange(3.0)[:, None])
    solution = px.minimize(
        problem,
        jnp.zeros(1),
        px.sgd(0.1),
        passes=2,
        metrics={"size": lambda w: jnp.sum(w)},
    )
    frame = pandas.DataFrame(solution.records())
    assert list(frame.columns) == [
        "solver",
        "seed",
        "step",
        "passes",
        "seconds",
        "value",
        "size",
    ]
    assert polars.DataFrame(solution.records()).shape == frame.shape == (3, 7)
    assert frame["value"].tolist() == solution.history["value"].tolist()
    space = px.Space(px.sgd, {"step": px.Lattice(0.1, 10.0, bracket=(0, 1))}, budget=2)
    tuning = px.tune(
        problem, jnp.zeros(1), {"a": space, "b": px.truncated(1.0)}, problem, passes=1
    )
    frame = pandas.DataFrame(tuning.records())
    assert list(frame.columns) == ["solver", "step", "validation", "passes", "diverged"]
    assert (
        frame["step"].isna().sum() == 1 and frame["validation"].is_monotonic_increasing
    )
    assert polars.DataFrame(tuning.records())["step"].null_count() == 1


@pytest.mark.parametrize(
    "path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem
)
def test_the_benchopt_export_says_what_benchopt_asks(path):
    """A class of the right name in each file, and in each solver a solver of ours with the settings
    it declares.
    """
    body = ast.parse(path.read_text(encoding="utf-8")).body
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    wanted = {"datasets": "Dataset", "solvers": "Solver", "benchopt": "Objective"}.get(
        path.parent.name
    )
    assert wanted is None or wanted in classes
    if wanted == "Solver":
        made = next(
            node for node in classes["Solver"].body if isinstance(node, ast.FunctionDef)
        ).body[0]
        assert isinstance(made, ast.Return) and ast.unparse(made.value).startswith(
            f"px.{path.stem}("
        )
        settings = next(
            node.value
            for node in classes["Solver"].body[1:]
            if isinstance(node, ast.Assign)
        )
        named = {}
        for key, (first, *_) in ast.literal_eval(settings).items():
            named |= dict(
                zip(
                    key.split(", "),
                    first if isinstance(first, tuple) else (first,),
                    strict=True,
                )
            )
        solver = eval(
            ast.unparse(made.value), {"px": px, "self": SimpleNamespace(**named)}
        )
        assert solver.name() == path.stem


@pytest.mark.skipif(
    find_spec("benchopt") is None, reason="needs benchopt: pip install benchopt"
)
def test_benchopt_reads_the_export():
    from benchopt.benchmark import Benchmark

    benchmark = Benchmark(FOLDER)
    assert {dataset.name for dataset in benchmark.get_datasets()} == {
        "regression",
        "equations",
    }
    assert len(benchmark.get_solvers()) == len(list((FOLDER / "solvers").glob("*.py")))
