"""Support functions: projections onto the set V, and its support points."""

import equinox as eqx
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import proxlin as px
import zoo
from outer_laws import EPS, at_all, every_support, outer_of, points

pytestmark = pytest.mark.law


vectors = arrays.arrays(float, 7, elements=st.floats(-1e6, 1e6, allow_subnormal=False))
small = settings(max_examples=40, deadline=None, derandomize=True, database=None)
compiled = {
    name: (
        eqx.filter_jit(case.outer.project),
        eqx.filter_jit(case.outer.argmax),
        eqx.filter_jit(case.outer.prox),
    )
    for name, case in zoo.SUPPORTS.items()
}


@every_support
@small
@given(a=vectors, b=vectors)
def test_projection_is_idempotent_in_v_nearest_and_not_expansive(name, a, b):
    f = outer_of(name)
    project, argmax, _ = compiled[name]
    pa, pb = np.asarray(project(jnp.asarray(a))), np.asarray(project(jnp.asarray(b)))
    size = max(1.0, np.abs(a).max(), np.abs(b).max())
    assert np.abs(np.asarray(project(jnp.asarray(pa))) - pa).max() <= 8 * EPS
    assert np.linalg.norm(pa - pb) <= np.linalg.norm(a - b) + 8 * EPS * size
    # pa is in V: below the support function in every direction
    for d in (a, b, a - pa, -a, b - a):
        assert pa @ d <= float(f.value(jnp.asarray(d))) + 32 * EPS * max(
            1.0, np.abs(d).sum()
        )
    # nearest: <a - pa, v - pa> <= 0 for v in V, the worst v being argmax(a - pa)
    worst = np.asarray(argmax(jnp.asarray(a - pa)))
    assert (a - pa) @ (worst - pa) <= 64 * EPS * size


@every_support
@small
@given(u=vectors, step=st.floats(1e-3, 1e3))
def test_prox_of_a_support_function_is_certified(name, u, step):
    """p = prox(u, s): v = (u - p)/s in V and <p, v> = f(p)."""
    f = outer_of(name)
    p = np.asarray(compiled[name][2](jnp.asarray(u), jnp.asarray(step)))
    v = (u - p) / step
    noise = 16 * EPS * (1 + np.abs(u).max() / step)
    assert np.linalg.norm(v - np.asarray(f.project(jnp.asarray(v)))) <= noise
    assert abs(p @ v - float(f.value(jnp.asarray(p)))) <= noise * (1 + np.abs(u).sum())


@every_support
@small
@given(a=vectors)
def test_argmax_is_in_v_and_attains_the_value(name, a):
    f = outer_of(name)
    project, argmax, _ = compiled[name]
    v = argmax(jnp.asarray(a))
    assert np.abs(np.asarray(project(v)) - np.asarray(v)).max() <= 4 * EPS
    assert abs(float(v @ a) - float(f.value(jnp.asarray(a)))) <= 8 * EPS * max(
        1.0, np.abs(a).sum()
    )


@every_support
def test_contains_tells_in_from_out(name):
    f, v = outer_of(name), points(7)
    inside = at_all(f.project, v)
    assert at_all(f.contains, inside).all()
    outside = inside + 1e-6 * (v - inside) / np.maximum(
        np.linalg.norm(v - inside, axis=1, keepdims=True), 1e-300
    )
    really = np.linalg.norm(v - inside, axis=1) > 1e-6
    assert really.any() and not at_all(f.contains, outside)[really].any()


def test_contains_is_relative_to_the_set():
    """With a width of 1e-12, a dual vector of 1e-11 is ten times outside."""
    assert np.isinf(px.Huber(1e-12).conjugate(jnp.array([1e-11])))
