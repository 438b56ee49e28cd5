"""Networks, schedules and sparse rows: shapes, scales, smoothness and what they refuse."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.networks import ACTIVATIONS, CNN, MLP
from proxlin.schedules import as_schedule

KEY = jax.random.key(0)


def test_the_shapes_of_an_mlp():
    predict = MLP((5, 7, 3, 2))
    w = jax.eval_shape(predict.init, KEY)
    assert [{name: x.shape for name, x in layer.items()} for layer in w] == [
        {"W": (7, 5), "b": (7,)},
        {"W": (3, 7), "b": (3,)},
        {"W": (2, 3), "b": (2,)},
    ]
    assert jax.eval_shape(predict, w, jax.ShapeDtypeStruct((5,), float)).shape == (2,)
    assert all(
        "b" not in layer for layer in jax.eval_shape(MLP((5, 2), bias=False).init, KEY)
    )


def test_an_mlp_is_the_formula():
    predict = MLP((3, 4, 2), activation="tanh")
    w = jax.tree.map(lambda x: x + 0.1, predict.init(KEY))
    x = np.array([0.3, -1.0, 2.0])
    hidden = np.tanh(np.asarray(w[0]["W"]) @ x + np.asarray(w[0]["b"]))
    assert np.allclose(
        predict(w, jnp.asarray(x)),
        np.asarray(w[1]["W"]) @ hidden + np.asarray(w[1]["b"]),
        atol=1e-15,
    )
    assert np.allclose(
        MLP((3, 2))(w[:1], jnp.asarray(x)),
        np.asarray(w[0]["W"]) @ x + np.asarray(w[0]["b"]),
        atol=1e-15,
    )


def test_the_shapes_of_a_cnn_and_its_formula():
    predict = CNN((8, 4, 3), channels=(4, 6), outputs=5)
    w = jax.eval_shape(predict.init, KEY)
    assert [x["W"].shape for x in w] == [(3, 3, 3, 4), (3, 3, 4, 6), (5, 2 * 1 * 6)]
    assert jax.eval_shape(predict, w, jax.ShapeDtypeStruct((8, 4, 3), float)).shape == (
        5,
    )
    # one stage by hand: a 3x3 convolution with zero padding, elu, the mean of 2x2, a linear map
    small = CNN((2, 2, 1), channels=(1,), outputs=1)
    w = jax.tree.map(lambda x: x + 0.1, small.init(KEY))
    x = np.array([[1.0, -2.0], [0.5, 3.0]])
    filters = np.asarray(w[0]["W"])[:, :, 0, 0]
    padded = np.pad(x, 1)
    pre = [
        np.sum(filters * padded[i : i + 3, j : j + 3]) + 0.1
        for i in range(2)
        for j in range(2)
    ]
    mean = np.mean([t if t > 0 else np.expm1(t) for t in pre])
    expected = float(w[1]["W"][0, 0]) * mean + 0.1
    assert float(small(w, jnp.asarray(x[:, :, None]))[0]) == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    "net", [MLP((3, 4, 2)), CNN((4, 4, 2), channels=(3,))], ids=["mlp", "cnn"]
)
def test_init_has_the_dtype_asked_for(net, dtype):
    w = jax.eval_shape(lambda: net.init(KEY, dtype))
    assert {x.dtype for x in jax.tree.leaves(w)} == {jnp.dtype(dtype)}
    x = jax.ShapeDtypeStruct(net.shape if isinstance(net, CNN) else (3,), dtype)
    assert jax.eval_shape(net, w, x).dtype == dtype


def test_init_scales_with_the_fan_in_and_differs_by_layer_and_key():
    w = MLP((400, 300, 400)).init(KEY)
    assert np.std(w[0]["W"]) * math.sqrt(400) == pytest.approx(1.0, rel=0.02)
    assert np.std(w[1]["W"]) * math.sqrt(300) == pytest.approx(1.0, rel=0.02)
    assert abs(np.mean(w[0]["W"])) <= 4 / math.sqrt(400 * 300 * 400)
    assert not np.any(w[0]["b"]) and not np.any(w[1]["b"])
    filters = CNN((4, 4, 30), channels=(50, 40)).init(KEY)
    assert np.std(filters[0]["W"]) * math.sqrt(9 * 30) == pytest.approx(1.0, rel=0.03)
    assert np.std(filters[1]["W"]) * math.sqrt(9 * 50) == pytest.approx(1.0, rel=0.03)
    square = MLP((6, 6, 6)).init(KEY)
    assert not np.array_equal(square[0]["W"], square[1]["W"])
    assert not np.array_equal(
        square[0]["W"], MLP((6, 6, 6)).init(jax.random.key(1))[0]["W"]
    )
    assert np.array_equal(square[0]["W"], MLP((6, 6, 6)).init(KEY)[0]["W"])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_a_continuous_derivative(name):
    """No kink: over a fine grid the derivative moves by at most a constant times the step, also at
    0.
    """
    act = ACTIVATIONS[name]
    x = jnp.linspace(-1e-3, 1e-3, 2001)
    slope = np.asarray(jax.vmap(jax.grad(act))(x))
    assert np.isfinite(slope).all()
    # second derivatives of all of these are below 2
    assert np.abs(np.diff(slope)).max() <= 2.0 * 1e-6 * (1 + 1e-6)
    central = np.asarray((act(x + 1e-6) - act(x - 1e-6)) / 2e-6)
    assert np.abs(central - slope).max() <= 2e-6
    far = jnp.array([-1e3, 1e3])
    assert (
        np.isfinite(act(far)).all() and np.isfinite(jax.vmap(jax.grad(act))(far)).all()
    )


@pytest.mark.parametrize(
    "net", [MLP((3, 5, 2), "elu"), CNN((4, 4, 3), channels=(4,))], ids=["mlp", "cnn"]
)
def test_networks_are_smooth_in_w(net):
    """A first-order expansion has an error of the second order: halving the step quarters it."""
    w = net.init(KEY)
    x = jnp.ones(net.shape if isinstance(net, CNN) else 3)
    d = jax.tree.map(
        lambda a: jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), w
    )
    u, slope = jax.jvp(lambda w: net(w, x), (w,), (d,))
    error = lambda h: float(
        jnp.linalg.norm(
            net(jax.tree.map(lambda a, b: a + h * b, w, d), x) - u - h * slope
        )
    )
    assert 3.0 <= error(1e-3) / error(5e-4) <= 5.0


@pytest.mark.parametrize(
    ("make", "culprit"),
    [
        (lambda: MLP((3,)), r"\(3,\)"),
        (lambda: MLP(()), r"\(\)"),
        (lambda: MLP((3, 0, 2)), "size of an MLP must be a whole number from 1"),
        (lambda: MLP((3, 2), "relu"), "tanh.*relu"),
        (lambda: CNN((6, 8, 3)), r"\(6, 8, 3\)"),
        (lambda: CNN((8, 8)), r"\(8, 8\)"),
        (lambda: CNN((8, 8, 3), activation="relu"), "relu"),
        (
            lambda: CNN((0, 8, 3)),
            "size in the shape of a CNN must be a whole number from 1",
        ),
        (lambda: CNN((8, 8, 3), channels=(0,)), "channels"),
        (lambda: CNN((8, 8, 3), outputs=0), "outputs"),
    ],
)
def test_networks_refuse_in_a_sentence(make, culprit):
    with pytest.raises(ValueError, match=culprit) as error:
        make()
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


# ---------------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (px.Constant(0.6), [0.6, 0.6, 0.6]),
        (px.InverseSqrt(0.6), [0.6, 0.6 / math.sqrt(2), 0.6 / math.sqrt(3)]),
        (px.Inverse(0.6), [0.6, 0.3, 0.2]),
    ],
    ids=["Constant", "InverseSqrt", "Inverse"],
)
def test_schedules_are_those_of_the_contract(schedule, expected):
    assert np.allclose([float(schedule(t)) for t in range(3)], expected, rtol=1e-15)
    assert np.allclose(jax.vmap(schedule)(jnp.arange(3)), expected, rtol=1e-15)
    scanned = jax.jit(
        lambda s: jax.lax.scan(
            lambda t, _: (t + 1, s(t)), jnp.asarray(0, jnp.int32), None, 3
        )[1]
    )(schedule)
    assert np.allclose(scanned, expected, rtol=1e-15)
    assert schedule(10**9) > 0 and np.isfinite(schedule(2**31 - 1))
    assert jax.tree.leaves(schedule) and all(
        isinstance(x, jax.Array) for x in jax.tree.leaves(schedule)
    )


@pytest.mark.parametrize("kind", [px.Constant, px.InverseSqrt, px.Inverse])
def test_schedules_share_a_trace_and_keep_float32(kind):
    traces = []

    @jax.jit
    def at(schedule, t):
        traces.append(None)
        return schedule(t)

    for s in (0.1, 0.2, np.float64(0.3), 1):
        at(kind(s), 1)
    assert len(traces) == 1
    assert kind(np.float32(0.1))(2).dtype == np.float32
    for bad in (0.0, -1.0, math.nan, math.inf, 0, -3):
        with pytest.raises(ValueError, match=kind.__name__) as error:
            kind(bad)
        assert str(error.value).endswith(".")


def test_a_number_is_a_constant_schedule_and_a_function_is_itself():
    assert float(as_schedule(0.25, "step")(7)) == 0.25
    own = lambda t: t + 2
    assert (
        as_schedule(own, "step") is own
        and as_schedule(px.Inverse(1.0), "step")(1) == 0.5
    )


# -------------------------------------------------------------------------------------- sparse rows


def test_sparse_rows_are_the_dense_matrix():
    indices, values = (
        np.array([[0, 2, 2], [1, 0, 0]]),
        np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]]),
    )
    x = px.SparseRows(indices, values, 4)
    assert x.dense().tolist() == [[1, 0, 5, 0], [0, 4, 0, 0]]
    w = jnp.arange(1.0, 5.0)
    each = jax.vmap(lambda row: row.values @ w[row.indices])(
        jax.tree.map(jnp.asarray, x)
    )
    assert each.tolist() == (x.dense() @ w).tolist()
    assert px.SparseRows(
        np.zeros((2, 0), int), np.zeros((2, 0)), 3
    ).dense().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_sparse_rows_are_a_pytree_with_two_leaves_and_static_columns():
    x = px.SparseRows(np.zeros((3, 2), int), np.ones((3, 2), np.float32), 7)
    assert len(jax.tree.leaves(x)) == 2 and jax.tree.map(lambda a: a, x).columns == 7
    assert (
        jax.jit(lambda x: x.dense())(x).shape == (3, 7)
        and x.dense().dtype == np.float32
    )


@pytest.mark.parametrize(
    ("indices", "values", "columns"),
    [
        (np.zeros((2, 2), int), np.zeros((2, 3)), 4),
        (np.full((2, 2), 4), np.zeros((2, 2)), 4),
        (np.full((2, 2), -1), np.zeros((2, 2)), 4),
    ],
    ids=["shapes", "too large", "negative"],
)
def test_sparse_rows_refuse_in_a_sentence(indices, values, columns):
    with pytest.raises(ValueError, match="SparseRows") as error:
        px.SparseRows(indices, values, columns)
    assert str(error.value).endswith(".")
