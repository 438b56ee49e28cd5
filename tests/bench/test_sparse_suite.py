"""The benchmark of sparse Jacobians: all methods are asked for the same F, with Jacobians that are right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.suite import factors, sparse

CASES = ("factorisation", "calibration")


@pytest.mark.parametrize("name", factors.CASES)
def test_the_factorisations_of_digits_have_one_f(name):
    task = factors.make(name)
    w = {"U": jnp.asarray(task.U), "V": jnp.asarray(task.V)}
    ours = float(task.problem().value(w))
    assert task.value(task.U, task.V) == pytest.approx(ours, rel=1e-12)


def test_sweeps_of_nmf_lower_the_f_of_ours(monkeypatch):
    monkeypatch.setattr(factors, "MOST", 20)
    trace = factors.nmf_run(factors.make("nmf"), 60.0)
    values = [value for _, value in trace]
    assert len(values) == 3
    assert values[2] < values[1] < values[0]


@pytest.mark.parametrize("name", CASES)
def test_the_peers_have_the_f_of_ours(name):
    task = sparse.make(name)
    w = {"U": jnp.asarray(task.U), "V": jnp.asarray(task.V)}
    ours = float(task.problem().value(w))
    assert task.value(task.U, task.V) == pytest.approx(ours, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_formulas_are_those_of_autodiff(name):
    task = sparse.make(name)
    u, v = task.U[:5], task.V[:5]
    found = task.rows(u, v)
    for s in range(5):
        slopes = jax.jacobian(task.phi, (0, 1))(jnp.asarray(u[s]), jnp.asarray(v[s]))
        assert np.allclose(found[0][s], task.phi(u[s], v[s]))
        assert np.allclose(found[1][s], slopes[0])
        assert np.allclose(found[2][s], slopes[1])
