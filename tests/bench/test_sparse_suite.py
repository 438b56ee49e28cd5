"""The benchmark of sparse Jacobians: all methods are asked for the same F, with Jacobians that are right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.suite import sparse

CASES = ("factorisation", "calibration")


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
