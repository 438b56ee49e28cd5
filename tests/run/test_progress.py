"""What a run says of compiling, while it does and at its end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.run import progress
from zoo import normal

X = jnp.asarray(normal(0, 12, 3))


@pytest.fixture(autouse=True)
def plain_lines(monkeypatch):
    """Lines in place of a bar."""
    monkeypatch.setattr(progress, "rich_bar", lambda *_, **__: None)


def problem(y, scale=1.0):
    phi = px.residual(lambda w, x: jnp.sinh(scale * (x @ w)))
    return px.MeanOfLosses(phi, px.L1(), (X, y), 0.1)


def test_a_run_says_that_it_compiles_and_for_how_long(capsys):
    px.clear_caches()
    start = np.zeros((3, 1))
    first = px.minimize(problem(X[:, :1]), start, px.lbfgs(0.1), steps=2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "lbfgs: compiling"
    assert "F = " in lines[-1] and "s compiling)" in lines[-1]
    assert "Compiling took" in first.message and "not in the seconds" in first.message
    again = px.minimize(problem(X[:, :1]), start, px.lbfgs(0.1), steps=2, progress=True)
    assert "ompiling" not in again.message
    assert "s compiling)" not in capsys.readouterr().err


@pytest.mark.parametrize("solver", [px.prox_linear(), px.subgradient_descent(0.1)])
def test_many_problems_say_how_many_have_ended(capsys, solver):
    """In lanes, and in slots."""
    ys = jnp.stack([X[:, :1], X[:, 1:2], X[:, 2:]])
    many = jax.vmap(problem)(ys)
    px.solve_many(many, jnp.zeros((3, 1)), solver, steps=2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "solve_many: compiling"
    assert lines[-1] == "solve_many: 3 of 3"
    px.solve_many(many, jnp.zeros((3, 1)), solver, steps=2)
    assert not capsys.readouterr().err
