"""Outer functions in numbers: the range of the contract, dtypes, compilation, and their settings as
leaves.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
import zoo
from outer_laws import (
    at_all,
    every,
    every_base,
    every_proximable,
    outer_of,
    points,
)
from proxlin.outers import AbstractSupport

pytestmark = pytest.mark.law


def magnitudes(dtype) -> list[float]:
    return (
        [1e-150, 1e-100, 1e-10, 1.0, 1e10, 1e100, 1e150]
        if dtype == np.float64
        else [1e-30, 1e-10, 1.0, 1e10, 1e30]
    )


def shapes(*, scales, dtype) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of several shapes, each at all scales, and the scale of each row."""
    some = np.array(
        [
            [1.0, 1, 1],
            [1, -1, 0.5],
            [1, 0, 0],
            [0, 0, 0],
            [-1, -1, -1],
            [1, 1e-20, 0],
            [-0.0, 0, -1],
        ]
    )
    some = np.concatenate([some, some, some[:, :1]], axis=1)
    scales = np.repeat(np.array(scales), len(some))
    return (np.tile(some, (len(scales) // len(some), 1)) * scales[:, None]).astype(
        dtype
    ), scales.astype(dtype)


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_nan_and_no_inf_over_the_range_of_the_contract(name, dtype):
    f = outer_of(name)
    u, scale = shapes(scales=magnitudes(dtype), dtype=dtype)
    value, v = at_all(f.value, u), at_all(f.subgradient, u)
    assert value.dtype == dtype and v.dtype == dtype
    # |u|^2 may overflow, and is then inf; it is never nan
    squares = "SquaredL2" in name
    assert not np.isnan(value).any() and (squares or np.isfinite(value).all()), value
    assert np.isfinite(v).all()
    assert not np.isnan(at_all(jax.grad(f.value), u)).any()
    if name in zoo.SUPPORTS:
        v = at_all(f.project, u)
        assert v.dtype == dtype and np.isfinite(v).all()
        # positively homogeneous, f(c u) = c f(u), with the relative accuracy of the dtype
        ones = at_all(
            f.value, shapes(scales=np.ones(len(magnitudes(dtype))), dtype=dtype)[0]
        )
        assert np.allclose(value / scale, ones, rtol=16 * np.finfo(dtype).eps, atol=0)
    if name in zoo.PROXIMABLE:
        c = at_all(f.conjugate, u)
        assert c.dtype == dtype and not np.isnan(c).any()


@every_proximable
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_prox_is_finite_and_near_enough_for_all_pairs_of_magnitudes(name, dtype):
    """|u - prox(u, s)| = s |v| <= s l, v the subgradient there."""
    f, eps = outer_of(name), float(np.finfo(dtype).eps)
    u, scale = shapes(scales=magnitudes(dtype), dtype=dtype)
    steps = np.repeat(np.array(magnitudes(dtype), dtype), len(u))
    u, scale = (
        np.tile(u, (len(magnitudes(dtype)), 1)),
        np.tile(scale, len(magnitudes(dtype))),
    )
    p = at_all(f.prox, u, steps)
    assert p.dtype == dtype
    finite = np.isfinite(p).all(axis=1)
    assert finite.all(), (
        f"first failure: u = {u[~finite][0]}, step = {steps[~finite][0]}"
    )
    l = float(f.lipschitz(u.shape[1]))
    if math.isfinite(l):
        moved = np.max(np.abs(p.astype(float) - u), axis=1)
        assert np.all(
            moved <= steps.astype(float) * l * (1 + 8 * eps) + 8 * eps * scale
        )


@every
def test_python_and_numpy_numbers_do_not_change_the_dtype(name):
    """float32 in, float32 out, with x64 on; numpy input too."""
    f = outer_of(name)
    u = np.array([1.5, -2.0, 0.0, 1, 2, 3, 4], np.float32)
    for x in (u, jnp.asarray(u)):
        assert f.value(x).dtype == np.float32 and f.subgradient(x).dtype == np.float32
        assert isinstance(f.value(x), jax.Array) and isinstance(
            f.subgradient(x), jax.Array
        )
        if name in zoo.PROXIMABLE:
            assert (
                f.prox(x, 0.5).dtype == np.float32
                and f.conjugate(x).dtype == np.float32
            )
            assert f.smooth(0.5).value(x).dtype == np.float32
            assert isinstance(f.prox(x, 0.5), jax.Array)
    for k in zoo.OUTERS[name].sizes:
        assert np.ndim(f.lipschitz(k)) == 0 and np.ndim(f.sharpness(k)) == 0


@every
def test_compiled_is_eager_and_two_smoothings_share_a_trace(name):
    f, u = outer_of(name), points(7)
    traces = []

    @eqx.filter_jit
    def both(f, u):
        traces.append(None)
        return jax.vmap(f.value)(u), jax.vmap(f.subgradient)(u)

    smooth = f.smooth(0.1)
    value, v = both(smooth, jnp.asarray(u))
    assert np.allclose(value, at_all(smooth.value, u), rtol=1e-12, atol=1e-12)
    assert np.allclose(v, at_all(smooth.subgradient, u), rtol=1e-12, atol=1e-12)
    for nu in (0.2, 1.0, np.float64(0.3), jnp.asarray(2)):
        both(
            f.smooth(nu if isinstance(nu, float) else nu.astype(float)), jnp.asarray(u)
        )
    assert len(traces) == 1


@every_base
def test_smoothing_can_be_vmapped_over_nu(name):
    f, u, nus = outer_of(name), points(7), np.array([0.1, 1.0, 3.0])
    values = at_all(
        lambda nu, u: f.smooth(nu).value(u), np.repeat(nus, len(u)), np.tile(u, (3, 1))
    ).reshape(3, -1)
    each = np.stack([at_all(f.smooth(float(nu)).value, u) for nu in nus])
    assert np.allclose(values, each, rtol=1e-14, atol=1e-14)
    assert np.all(np.diff(values, axis=0) <= 1e-12)  # f_nu falls as nu grows


def test_an_outer_function_holds_nothing_but_arrays():
    for name, case in zoo.OUTERS.items():
        if not name.startswith("WeightedL1"):  # a user's dataclass with a Python float
            assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(case.outer)), (
                name
            )


@pytest.mark.parametrize("outer", [px.Huber, px.Quantile], ids=["Huber", "Quantile"])
def test_parameters_of_outers_are_leaves(outer):
    """Two settings share one trace, an integer or a numpy number too."""
    traces = []

    @eqx.filter_jit
    def value(f, u):
        traces.append(None)
        return f.value(u)

    for number in (0.3, 0.7, np.float64(0.2), *([1] if outer is px.Huber else [])):
        value(outer(number), jnp.ones(2))
    assert len(traces) == 1


def test_the_support_class_is_abstract():
    with pytest.raises(TypeError):
        AbstractSupport()
