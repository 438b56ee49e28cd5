"""The laws of problems, on every problem of the zoo."""

import functools

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import proxlin as px
import proxlin.problem.rows
import zoo
from counting import Calls, Counter, count_calls
from proxlin.types import is_parameter, parameters

pytestmark = pytest.mark.law

every = pytest.mark.parametrize("name", zoo.PROBLEMS)
both = pytest.mark.parametrize("kind", [px.MeanOfLosses, px.LossOfMean])


def add(w, scale, d):
    """w + scale d on the parameters of w."""
    p, rest = eqx.partition(w, is_parameter)
    return eqx.combine(jax.tree.map(lambda a, b: a + scale * b, p, parameters(d)), rest)


def random_like(w, seed: int, scale: float = 1.0):
    """w with random parameters."""
    rng = np.random.default_rng(seed)
    p, rest = eqx.partition(w, is_parameter)
    return eqx.combine(
        jax.tree.map(
            lambda x: jnp.asarray(scale * rng.normal(size=x.shape), x.dtype), p
        ),
        rest,
    )


def flat(w) -> jax.Array:
    return jax.flatten_util.ravel_pytree(parameters(w))[0]


def dot(a, b):
    return optax.tree.vdot(parameters(a), parameters(b))


def relative(a, b) -> float:
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, (a.shape, b.shape)
    return float(np.max(np.abs(a - b) / (1 + np.abs(b)), initial=0.0))


def simple(kind=px.MeanOfLosses, n=13, outer=None, count=None, **settings):
    """tanh(x W) - y in R^2, 3 x 2 parameters."""
    inner = lambda w, s: jnp.tanh(s[0] @ w) - s[1]
    data = (zoo.normal(50, n, 3), zoo.normal(51, n, 2))
    return kind(
        inner if count is None else count(inner), outer or px.L2(), data, **settings
    )


W = jnp.asarray(zoo.normal(52, 3, 2))
V = jnp.asarray(zoo.normal(53, 3, 2))


# -------------------------------------------------------------- every problem, one compilation each


def quantities(p, w, w2, w3, kappas, nu):
    """Everything that the laws compare, in one compiled function."""
    n = len(p)
    batch = jnp.array([0, n - 1, 0])
    value, g = p.value_and_subgradient(w)
    d = parameters(add(w3, -1.0, w2))
    linear = p.linearize(w)
    u = p.stack(w)
    at = p.expand(w)
    expanded, jacobian = at.u, at.jacobian
    v = jnp.cos(jnp.arange(u.size, dtype=u.dtype)).reshape(u.shape)
    middle = add(w2, 0.3, d)
    twice = p.regularize(kappas[0], w2).regularize(kappas[1], w3)
    square = lambda a, b: dot(add(a, -1.0, b), add(a, -1.0, b))
    extra = kappas[0] / 2 * square(w, w2) + kappas[1] / 2 * square(w, w3)
    extra_gradient = kappas[0] * flat(add(w, -1.0, w2)) + kappas[1] * flat(
        add(w, -1.0, w3)
    )
    dense = u + jnp.einsum("mkd,d->mk", jacobian, flat(add(w2, -1.0, w)))
    losses = lambda u: jnp.sum(p.coefficients() * jax.vmap(p.outer.value)(u))
    no_quadratic = jnp.zeros(())
    beside = lambda w: (
        (no_quadratic if p.quadratic is None else p.quadratic.value(w))
        + (no_quadratic if p.penalty is None else p.penalty.value(w))
    )
    affine = p.linearize(w).stack
    return {
        "value, and the value beside the subgradient": (p.value(w), value),
        "the value is sum c f(u) + quadratic + g": (value, losses(u) + beside(w)),
        "without its penalty it is F - g": (
            p.unpenalized().value(w) + beside(w) - beside_quadratic(p, w),
            value,
        ),
        "linearize is exact at its anchor": (linear.value(w), value),
        "linearize has the subgradient at its anchor": (
            flat(linear.subgradient(w)),
            flat(g),
        ),
        "linearize is the dense expansion": (affine(w2), dense),
        "linearize is affine": (affine(middle), 0.7 * affine(w2) + 0.3 * affine(w3)),
        "linearize twice is once": (linear.linearize(w2).value(w3), linear.value(w3)),
        "the whole batch is the problem": (p[0:n].value(w), value),
        "the whole batch has the subgradient": (
            flat(p[jnp.arange(n)].subgradient(w)),
            flat(g),
        ),
        "one sample is a batch of one": (
            p[n - 1].value(w),
            p[jnp.array([n - 1])].value(w),
        ),
        "one sample has the subgradient of a batch of one": (
            flat(p[n - 1].subgradient(w)),
            flat(p[jnp.array([n - 1])].subgradient(w)),
        ),
        "negative indices": (p[-1].value(w), p[n - 1].value(w)),
        "batching and smoothing commute": (
            p[batch].smooth(nu).value(w),
            p.smooth(nu)[batch].value(w),
        ),
        "batching and linearising commute": (
            p[batch].linearize(w2).value(w),
            p.linearize(w2)[batch].value(w),
        ),
        "batching and regularising commute": (
            p[batch].regularize(0.7, w2).value(w),
            p.regularize(0.7, w2)[batch].value(w),
        ),
        "linearising and smoothing commute": (
            p.linearize(w2).smooth(nu).value(w),
            p.smooth(nu).linearize(w2).value(w),
        ),
        "regularize twice adds both, with constants": (twice.value(w), value + extra),
        "regularize twice, its gradient": (
            flat(twice.subgradient(w)),
            flat(g) + extra_gradient,
        ),
        "regularize with 0 adds nothing": (p.regularize(0 * nu, w2).value(w), value),
        "regularize with 0 after another adds nothing": (
            p.regularize(kappas[0], w3).regularize(0 * nu, w2).value(w),
            p.regularize(kappas[0], w3).value(w),
        ),
        "expand begins with the stack": (expanded, u),
        "push is the Jacobian times": (
            p.push(w, d),
            jnp.einsum("mkd,d->mk", jacobian, flat(d)),
        ),
        "pull is the transposed Jacobian times": (
            flat(p.pull(w, v)),
            jnp.einsum("mkd,mk->d", jacobian, v),
        ),
        "push and pull are adjoint": (jnp.sum(p.push(w, d) * v), dot(p.pull(w, v), d)),
        "expand ends with the Jacobian of forward mode": (
            jacobian,
            forward_jacobian(p, w),
        ),
        "smoothing is inside the mean": (
            p.smooth(nu).value(w),
            jnp.sum(p.coefficients() * jax.vmap(p.outer.smooth(nu).value)(u))
            + beside(w),
        ),
        "the subgradient is J' c f'(u) + quadratic' + g'": (
            flat(g),
            jnp.einsum(
                "mkd,mk->d",
                jacobian,
                p.coefficients()[:, None] * jax.vmap(p.outer.subgradient)(u),
            )
            + (
                jnp.zeros(jacobian.shape[2])
                if p.quadratic is None
                else flat(p.quadratic.gradient(w))
            )
            + (
                jnp.zeros(jacobian.shape[2])
                if p.penalty is None
                else flat(p.penalty.subgradient(w))
            ),
        ),
    }


def beside_quadratic(p, w):
    return jnp.zeros(()) if p.quadratic is None else p.quadratic.value(w)


def forward_jacobian(p, w):
    at, rest = eqx.partition(w, is_parameter)
    vector, unravel = jax.flatten_util.ravel_pytree(at)
    return jax.jacfwd(lambda x: p.stack(eqx.combine(unravel(x), rest)))(vector)


@functools.cache
def compared(name: str):
    case = zoo.PROBLEMS[name]()
    w, w2, w3 = case.w, random_like(case.w, 1, 0.5), random_like(case.w, 2, 0.5)
    return compiled(quantities)(
        case.problem, w, w2, w3, jnp.array([0.4, 1.3]), jnp.asarray(0.2)
    )


def differences(name: str, h: float = 1e-6):
    """(F(w + h d) - F(w - h d)) / 2h and <F'(w), d> for two directions d."""

    def both(p, w, d1, d2):
        at, rest = eqx.partition(w, is_parameter)
        vector, unravel = jax.flatten_util.ravel_pytree(at)
        d = jnp.stack([flat(d1), flat(d2)])
        shifted = vector[None, :] + h * jnp.concatenate([d, -d])
        values = jax.lax.map(lambda x: p.value(eqx.combine(unravel(x), rest)), shifted)
        return (values[:2] - values[2:]) / (2 * h), d @ flat(p.subgradient(w))

    case = zoo.PROBLEMS[name]()
    some = (
        random_like(case.w, seed, scale)
        for seed, scale in ((3, 0.7), (4, 1.0), (5, 1.0))
    )
    return [np.asarray(x) for x in compiled(both)(case.problem, *some)]


def compiled(function):
    """jit of arrays, other leaves closed over, with the compiler told not to try hard: each runs
    once.
    """

    def run(*args):
        arrays, rest = eqx.partition(args, eqx.is_array)
        options = {
            "xla_backend_optimization_level": 0,
            "xla_llvm_disable_expensive_passes": True,
        }
        return jax.jit(
            lambda arrays: function(*eqx.combine(arrays, rest)),
            compiler_options=options,
        )(arrays)

    return run


@every
def test_the_laws_of_the_verbs(name):
    off = {law: relative(a, b) for law, (a, b) in compared(name).items()}
    assert {law: e for law, e in off.items() if not e <= 1e-11} == {}


@every
def test_the_subgradient_agrees_with_finite_differences_away_from_kinks(name):
    """Central differences of F in float64, at a generic point."""
    slopes, products = differences(name)
    assert np.all(np.abs(slopes - products) <= 1e-7 * (1 + np.abs(slopes)))


@every
def test_the_subgradient_has_the_structure_and_dtypes_of_the_parameters(name):
    case = zoo.PROBLEMS[name]()
    g, w = eqx.filter_eval_shape(case.problem.subgradient, case.w), parameters(case.w)
    assert jax.tree.structure(g) == jax.tree.structure(w)
    for a, b in zip(jax.tree.leaves(g), jax.tree.leaves(w), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype


@pytest.mark.parametrize(
    "name", [n for n in zoo.PROBLEMS if zoo.PROBLEMS[n]().value is not None]
)
def test_the_zoo_is_right_about_its_optima(name):
    """The stated value is attained at the stated optimum, and nothing near it is better."""
    case = zoo.PROBLEMS[name]()
    assert float(case.problem.value(case.optimum)) == pytest.approx(
        case.value, abs=1e-14
    )
    for seed in range(4):
        for size in (1e-4, 0.3):
            assert (
                float(
                    case.problem.value(
                        add(case.optimum, size, random_like(case.w, seed))
                    )
                )
                >= case.value - 1e-14
            )
    assert float(case.problem.value(case.w)) > case.value + 1e-3


@pytest.mark.parametrize("name", [n for n in zoo.PROBLEMS if zoo.PROBLEMS[n]().convex])
def test_convex_problems_lie_above_their_subgradients(name):
    case = zoo.PROBLEMS[name]()
    value, g = case.problem.value_and_subgradient(case.w)
    for seed in range(4):
        z = random_like(case.w, seed, 2.0)
        assert (
            float(case.problem.value(z))
            >= float(value + dot(g, add(z, -1.0, case.w))) - 1e-10
        )


# ------------------------------------------------------------------------------------------ batches


@both
def test_a_batch_keeps_the_whole_ridge_and_its_center(kind):
    plain, ridged = simple(kind), simple(kind, ridge=0.7).regularize(0.3, V)
    extra = 0.35 * jnp.sum(W * W) + 0.15 * jnp.sum((W - V) ** 2)
    for batch in (3, np.array([1, 2]), slice(0, 5), slice(None, None, 2)):
        assert float(ridged[batch].value(W)) == pytest.approx(
            float(plain[batch].value(W) + extra), rel=1e-13
        )


@both
def test_the_kinds_of_index_agree(kind):
    p = simple(kind, weights=np.arange(1.0, 14.0))
    value = lambda batch: float(p[batch].value(W))
    assert value(2) == pytest.approx(value(np.array([2])), rel=1e-14)
    assert (
        value(2)
        == value(np.int32(2))
        == value(jnp.asarray(2))
        == value(-11)
        == value(np.asarray(2))
    )
    assert (
        value(np.array([1, 3, 5]))
        == value(slice(1, 6, 2))
        == value(jnp.array([-12, 3, -8]))
    )
    assert value(slice(None)) == pytest.approx(float(p.value(W)), rel=1e-14)
    assert (
        len(p[2]) == 1
        and len(p[np.array([2])]) == 1
        and len(p[1:6:2]) == 3
        and len(p) == 13
    )


@both
def test_a_list_and_unsigned_numbers_are_batches_too(kind):
    p = simple(kind)
    assert float(p[[1, 3]].value(W)) == float(p[np.array([1, 3])].value(W))
    assert float(p[np.array([1, 3], np.uint8)].value(W)) == float(
        p[np.array([1, 3])].value(W)
    )


def test_one_sample_has_no_leading_axis_and_a_batch_of_batches_is_a_batch():
    p = simple()
    assert p[3].data[0].shape == (3,) and p[3].stack(W).shape == (1, 2)
    assert float(p[2:9][np.array([0, 3])].value(W)) == float(
        p[np.array([2, 5])].value(W)
    )
    with pytest.raises(IndexError):
        p[3][0]


@both
def test_indices_may_be_traced(kind):
    """In scan and vmap, integers and vectors, equal to the same loop in Python."""
    p = simple(kind, ridge=0.1, weights=np.arange(1.0, 14.0))
    ones, pairs = jnp.array([3, 0, -1, 12]), jnp.array([[0, 1], [5, -2], [3, 3]])
    scanned = jax.jit(
        lambda w: jax.lax.scan(
            lambda w, i: (w - 0.1 * p[i].subgradient(w), p[i].value(w)), w, ones
        )
    )(W)
    w, values = W, []
    for i in (3, 0, -1, 12):
        values.append(float(p[i].value(w)))
        w = w - 0.1 * p[i].subgradient(w)
    assert relative(scanned[0], w) <= 1e-14 and relative(scanned[1], values) <= 1e-14
    mapped = jax.jit(
        jax.vmap(lambda batch: p[batch].smooth(0.1).linearize(V).value(W))
    )(pairs)
    assert (
        relative(
            mapped,
            [p[np.array(b)].smooth(0.1).linearize(V).value(W) for b in pairs.tolist()],
        )
        <= 1e-14
    )


@both
def test_all_batches_of_one_average_to_the_whole_for_a_mean_of_losses_only(kind):
    p = simple(kind, weights=np.arange(1.0, 14.0))
    each = np.array([p[i].value(W) for i in range(13)])
    same = bool(abs(each.mean() - float(p.value(W))) <= 1e-14)
    assert same is (kind is px.MeanOfLosses)


# ------------------------------------------------------------------------------------------ weights


@both
def test_weights_are_scaled_to_mean_one(kind):
    s = np.array([1.0, 2, 0, 5, 1, 1, 1, 3, 1, 1, 1, 1, 8])
    a, b = simple(kind, weights=s), simple(kind, weights=1e-9 * s)
    assert float(jnp.mean(a.weights)) == pytest.approx(1.0, rel=1e-15)
    assert float(a.value(W)) == pytest.approx(float(b.value(W)), rel=1e-13)
    equal = simple(kind, weights=np.full(13, 4))
    assert float(equal.value(W)) == pytest.approx(
        float(simple(kind).value(W)), rel=1e-14
    )


@both
def test_integer_weights_are_repeated_rows(kind):
    s = np.array([1, 2, 0, 3])
    x, y = zoo.normal(54, 4, 3), zoo.normal(55, 4, 2)
    inner = px.residual(lambda w, x: jnp.tanh(x @ w))
    weighted = kind(inner, px.L1(), (x, y), weights=s)
    repeated = kind(inner, px.L1(), (np.repeat(x, s, axis=0), np.repeat(y, s, axis=0)))
    assert float(weighted.value(W)) == pytest.approx(
        float(repeated.value(W)), rel=1e-14
    )
    assert relative(weighted.subgradient(W), repeated.subgradient(W)) <= 1e-14
    a, b = (p.linearize(V).smooth(0.2).subgradient(W) for p in (weighted, repeated))
    assert relative(a, b) <= 1e-14


@pytest.mark.parametrize("scale", [1e307, 1e-300])
def test_weights_of_any_size_do_not_overflow(scale):
    p = simple(weights=np.full(13, scale) * np.arange(1, 14))
    assert float(p.value(W)) == pytest.approx(
        float(simple(weights=np.arange(1, 14)).value(W)), rel=1e-12
    )


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "longdouble", bool]
)
@pytest.mark.parametrize("place", [np.asarray, jnp.asarray])
@both
def test_weights_of_any_width_are_scaled_in_float64(kind, place, dtype):
    if dtype == "longdouble" and place is jnp.asarray:
        pytest.skip("JAX has no longdouble")
    s = np.array([1.0, 2, 0, 5, 1, 1, 1, 3, 1, 1, 1, 1, 7])
    narrow = place(s.astype(jnp.bfloat16 if dtype == "bfloat16" else dtype))
    p = simple(kind, weights=narrow)
    exact = simple(kind, weights=np.asarray(narrow, np.float64))
    assert p.weights.dtype == np.float64
    assert np.array_equal(p.weights, exact.weights)
    assert float(p.value(W)) == float(exact.value(W))
    assert np.array_equal(p.expand(W).c, exact.expand(W).c)


def test_many_weights_of_float16_do_not_overflow():
    rows = np.ones((100_000, 1)) * 3
    weights = np.ones(100_000, np.float16)
    p = px.MeanOfLosses(lambda w, x: x * w, px.L1(), rows, weights=weights)
    assert float(p.value(np.ones(1))) == pytest.approx(3.0, rel=1e-12)


def test_float16_weights_of_a_trace_do_not_overflow():
    try:
        jax.jit(lambda x: 2 * x)(jnp.ones(3, jnp.float16))
    except jax.errors.JaxRuntimeError:
        pytest.skip("XLA has no float16 with the instructions of SSE4.2")
    value = jax.jit(lambda s: simple(weights=s).value(W))
    s = np.arange(1.0, 14.0)
    narrow = value(jnp.asarray(1e3 * s, jnp.float16))
    assert float(narrow) == pytest.approx(float(value(jnp.asarray(1e3 * s))), rel=1e-12)


def test_longdouble_weights_beyond_float64_are_scaled():
    s = np.arange(1.0, 14.0)
    huge = s.astype(np.longdouble) * np.longdouble("1e4000")
    if not np.isfinite(huge).all():
        pytest.skip("longdouble is float64 here")
    expected = simple(weights=s).weights
    assert np.allclose(simple(weights=huge).weights, expected, rtol=1e-15)


# --------------------------------------------------------------------------------------- regularize


def test_many_quadratics_merge_exactly_at_several_points():
    kappas, centers = (
        (0.0, 2.0, 1e-8, 1e6, 0.0, 3.0),
        [jnp.asarray(zoo.normal(60 + i, 3, 2)) for i in range(6)],
    )
    p = simple(ridge=0.5)
    q = p
    for kappa, c in zip(kappas, centers, strict=True):
        q = q.regularize(kappa, c)
    for w in (W, V, 10 * W, centers[3]):
        each = sum(
            k / 2 * float(jnp.sum((w - c) ** 2))
            for k, c in zip(kappas, centers, strict=True)
        )
        assert float(q.value(w)) == pytest.approx(float(p.value(w)) + each, rel=1e-12)


def test_a_ridge_is_a_quadratic_at_the_origin():
    quadratic = simple().regularize(0.8, 0 * W)
    assert float(simple(ridge=0.8).value(W)) == pytest.approx(
        float(quadratic.value(W)), rel=1e-15
    )


@pytest.mark.parametrize(
    "center",
    [jnp.zeros((3, 1)), jnp.zeros(()), jnp.zeros((1, 2))],
    ids=["3x1", "scalar", "1x2"],
)
def test_a_center_of_another_shape_is_refused_not_broadcast(center):
    with (
        jax.numpy_rank_promotion("allow"),
        pytest.raises((ValueError, TypeError), match=r"shape|center"),
    ):
        simple().regularize(1.0, center).value(W)


# ---------------------------------------------------------------------------------------- the price


def calls_of(p, name: str):
    v = jnp.ones((len(p) if isinstance(p, px.MeanOfLosses) else 1, 2))
    return {
        "value": lambda p, w: p.value(w),
        "subgradient": lambda p, w: p.subgradient(w),
        "push": lambda p, w: p.push(w, V),
        "pull": lambda p, w: p.pull(w, v),
        "expand": lambda p, w: p.expand(w),
    }[name]


VIEWS = {
    "all": lambda p: p,
    "one": lambda p: p[3],
    "batch": lambda p: p[np.array([1, 2, 2, 5])],
    "linearized": lambda p: p.linearize(V),
    "one linearized": lambda p: p.linearize(V)[3].smooth(0.1).regularize(1.0, W),
}


@both
@pytest.mark.parametrize("view", VIEWS)
def test_the_price_is_the_calls_that_are_counted(kind, view):
    count = Counter()
    p = VIEWS[view](simple(kind, count=count))
    prices = p.prices(W)
    names = (
        ("value", "subgradient", "push", "pull", "expand")
        if view in ("all", "linearized")
        else ("subgradient",)
    )
    counted = {
        name: count_calls(count, eqx.filter_jit(calls_of(p, name)), p, W).cost
        for name in names
    }
    assert counted == {name: getattr(prices, name) for name in names}


@both
def test_the_price_is_the_calls_that_are_counted_in_chunks_too(kind, monkeypatch):
    monkeypatch.setattr(proxlin.problem.rows, "BUDGET", 600)
    count = Counter()
    p = simple(kind, count=count)
    # the last chunk is not full
    assert 1 < p._chunk(W) < len(p) and len(p) % p._chunk(W)
    names = ("value", "subgradient", "push", "pull", "expand")
    counted = {
        name: count_calls(count, eqx.filter_jit(calls_of(p, name)), p, W).cost
        for name in names
    }
    assert counted == {name: getattr(p.prices(W), name) for name in names}


def test_the_price_of_steps_in_a_scan_and_a_vmap():
    count = Counter()
    p = simple(count=count)

    def steps(w, p):
        return jax.lax.scan(
            lambda w, i: (w - 0.1 * p[i].subgradient(w), None), w, jnp.arange(7)
        )[0]

    for problem in (p, p.linearize(V), p.linearize(V).smooth(0.1)):
        one = count_calls(count, eqx.filter_jit(steps), W, problem).cost
        assert one == problem[0].prices(W).subgradient * 7
    grid = count_calls(
        count,
        eqx.filter_jit(eqx.filter_vmap(steps, in_axes=(0, None))),
        jnp.stack([W, V, W]),
        p,
    ).cost
    assert grid == p[0].prices(W).subgradient * 21


def test_a_bound_problem_has_the_same_value_and_price():
    """bind fills in the leaves that are no parameters; a linearised problem stays one, in price
    too.
    """
    case, count = zoo.PROBLEMS["equinox_l1"](), Counter()
    p = px.MeanOfLosses(
        count(px.residual(lambda m, x: m(x))), px.L1(), case.problem.data
    )
    at, rest = eqx.partition(case.w, is_parameter)
    for q in (p, p.linearize(case.w)):
        bound = q.bind(rest)
        assert float(bound.value(at)) == pytest.approx(
            float(q.value(case.w)), rel=1e-14
        )
        assert (
            relative(flat(bound.subgradient(at)), flat(q.subgradient(case.w))) <= 1e-14
        )
        spent = count_calls(count, bound.subgradient, at).cost
        assert spent == bound.prices(at).subgradient


@both
def test_verbs_run_nothing(kind):
    count = Counter()
    p = simple(kind, count=count)
    with count.calls() as calls:
        p.linearize(W).smooth(0.1).regularize(1.0, V)[np.array([1, 2])].linearize(V)
        p[3].smooth(0.1).linearize(W)
    assert calls == Calls()
    with count.calls() as calls:
        p.prices(W)
        p.outputs(W)
    assert calls.cost == Calls().cost


def test_the_second_call_does_not_trace_again():
    count = Counter()
    p = simple(count=count)
    p.value(W), p.subgradient(W)
    with count.calls() as calls:
        p.value(V), p.subgradient(V), p.value(np.asarray(V))
        simple(count=lambda inner: p.inner.function, ridge=0.0).value(W)
    assert calls.traces == 0 and calls.phi == 4 * 13


# ------------------------------------------------------------------------------------------- chunks


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("list_quantile", 500),
        ("mean_mlp_max", 800),
        ("verbs_linearized", 2000),
        ("sparse_hinge", 1),
    ],
)
def test_chunked_is_unchunked(name, budget, monkeypatch):
    case = zoo.PROBLEMS[name]()
    p, w = case.problem, case.w
    d = parameters(random_like(w, 6))
    # fresh functions, so that nothing compiled before is used again
    everything = lambda p, w: (
        *(p.value_and_subgradient(w), p.value(w), p.stack(w), p.push(w, d)),
        *(p.pull(w, p.stack(w)), p.expand(w)),
    )
    calls = lambda: compiled(lambda p, w: everything(p, w))(p, w)
    whole = calls()
    assert p._chunk(w) == len(p)
    monkeypatch.setattr(proxlin.problem.rows, "BUDGET", budget)
    assert p._chunk(w) < len(p)
    for a, b in zip(jax.tree.leaves(calls()), jax.tree.leaves(whole), strict=True):
        assert relative(a, b) <= 1e-12


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 10, 16, 17])
@pytest.mark.parametrize("chunk", [1, 2, 3, 8])
def test_every_row_counts_once_in_every_chunking(n, chunk):
    rows = jnp.arange(1.0, n + 1)
    step = lambda total, part: total + jnp.sum(part)
    chunk = min(chunk, n)
    assert (
        float(proxlin.problem.rows.fold_rows(step, jnp.zeros(()), rows, n, chunk))
        == n * (n + 1) / 2
    )
    assert (
        proxlin.problem.rows.map_rows(lambda x: 2 * x, rows, n, chunk).tolist()
        == (2 * rows).tolist()
    )
    running = lambda total, part: (total + jnp.sum(part), 3 * part)
    total, tripled = proxlin.problem.rows.scan_rows(
        running, jnp.zeros(()), rows, n, chunk
    )
    assert float(total) == n * (n + 1) / 2
    assert tripled.tolist() == (3 * rows).tolist()


def test_chunks_have_one_size_where_a_count_of_them_divides_n(monkeypatch):
    """A last chunk of another size would be compiled apart."""
    monkeypatch.setattr(proxlin.problem.rows, "BUDGET", 23 * 8)
    size = lambda n: proxlin.problem.rows.chunk_size(jnp.tanh, jnp.ones(n), n)
    assert [size(n) for n in (7, 23, 120, 500, 24)] == [7, 23, 20, 20, 12]
    assert size(101) == 17  # a prime: five chunks of 17, and 16 rows are left


def test_a_chunk_fits_the_budget(monkeypatch):
    monkeypatch.setattr(proxlin.problem.rows, "BUDGET", 10_000)
    rows = jnp.ones((1000, 50))
    size = proxlin.problem.rows.chunk_size(lambda x: jnp.tanh(x) * 2, rows, 1000)
    assert size * 50 * 8 * 2 <= 10_000 and size >= 10


# ---------------------------------------------------------------------- parameters, dtypes, pytrees


def test_numpy_parameters_and_float32_parameters():
    p = simple(ridge=0.3, weights=np.arange(1.0, 14.0))
    assert float(p.value(np.asarray(W))) == float(p.value(W))
    assert isinstance(p.subgradient(np.asarray(W)), jax.Array)
    half = W.astype(jnp.float32)
    views = (
        p,
        p.linearize(half),
        p.smooth(0.1),
        p.regularize(0.2, half),
        p[2],
        p[np.array([1, 2])],
    )
    for q in (*views, simple(px.LossOfMean, ridge=0.3)):
        everything = lambda w, q=q: (
            *q.value_and_subgradient(w),
            q.value(w),
            q.expand(w),
            q.push(w, w),
            q.stack(w),
        )
        shapes = jax.tree.leaves(eqx.filter_eval_shape(everything, half))
        assert {x.dtype for x in shapes} == {np.dtype(np.float32)}
        assert (
            eqx.filter_eval_shape(lambda w, q=q: q.pull(w, q.stack(w)), half).dtype
            == np.float32
        )
    assert float(p.value(half)) == pytest.approx(float(p.value(W)), rel=1e-5)


def test_float32_data_and_float64_parameters_work_in_float64():
    data = (
        zoo.normal(50, 13, 3).astype(np.float32),
        zoo.normal(51, 13, 2).astype(np.float32),
    )
    p = px.MeanOfLosses(lambda w, s: jnp.tanh(s[0] @ w) - s[1], px.L2(), data)
    exact = np.mean(
        np.linalg.norm(
            np.tanh(data[0].astype(float) @ np.asarray(W)) - data[1].astype(float),
            axis=1,
        )
    )
    assert abs(float(p.value(W)) - exact) <= 1e-14


@pytest.mark.parametrize("verb", ["linearize", "regularize"])
def test_an_anchor_of_another_precision_is_taken_to_that_of_w(verb):
    """Work is done in the dtype of w."""
    half = V.astype(jnp.float32)
    p = simple()
    q = p.linearize(half) if verb == "linearize" else p.regularize(1.0, half)
    same = half.astype(jnp.float64)
    r = p.linearize(same) if verb == "linearize" else p.regularize(1.0, same)
    assert float(q.value(W)) == pytest.approx(float(r.value(W)), rel=1e-6)


def test_integer_and_boolean_data_reach_the_inner_map_as_they_are():
    seen = {}

    def inner(w, s):
        seen.update(label=s["label"].dtype, mask=s["mask"].dtype, x=s["x"].dtype)
        return jnp.where(s["mask"], w[s["label"]] * s["x"], jnp.zeros_like(s["x"]))

    data = {
        "label": np.array([0, 1, 1]),
        "mask": np.array([True, False, True]),
        "x": np.ones((3, 2)),
    }
    p = px.MeanOfLosses(inner, px.L1(), data)
    assert float(p.value(jnp.array([1.0, 2.0], jnp.float32))) == pytest.approx(2.0)
    assert (
        seen["label"] == np.int64
        and seen["mask"] == np.bool_
        and seen["x"] == np.float32
    )


def test_random_keys_may_be_data():
    keys = jax.random.split(jax.random.key(0), 5)
    p = px.MeanOfLosses(lambda w, key: w + jax.random.normal(key, (2,)), px.L2(), keys)
    expected = np.mean([np.linalg.norm(jax.random.normal(k, (2,))) for k in keys])
    assert float(p.value(jnp.zeros(2))) == pytest.approx(expected, rel=1e-14)


def test_function_leaves_are_carried_unchanged():
    case = zoo.PROBLEMS["equinox_l1"]()
    g = case.problem.subgradient(case.w)
    assert g.activation is None
    linear = case.problem.linearize(case.w)
    assert float(linear.value(case.w)) == pytest.approx(
        float(case.problem.value(case.w)), rel=1e-14
    )
    moved = add(case.w, -0.01, g)
    assert moved.activation is case.w.activation and case.problem.value(
        moved
    ) < case.problem.value(case.w)


@pytest.mark.parametrize(
    "name", ["mean_mlp_max", "equinox_l1", "sparse_hinge", "verbs_subproblem"]
)
def test_a_problem_is_a_pytree_of_arrays(name):
    """It passes through jax.jit as an argument and back; only arrays are leaves."""
    case = zoo.PROBLEMS[name]()
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(case.problem))
    back = jax.jit(lambda p: p)(case.problem)
    assert type(back) is type(case.problem) and len(back) == len(case.problem)
    assert float(back.value(case.w)) == float(case.problem.value(case.w))


def test_problems_vmap_over_ridge_nu_and_kappa():
    ridges = jnp.array([0.0, 0.5, 2.0])
    data = (zoo.normal(50, 13, 3), zoo.normal(51, 13, 2))
    inner = lambda w, s: jnp.tanh(s[0] @ w) - s[1]
    values = eqx.filter_vmap(
        lambda r: px.MeanOfLosses(inner, px.L2(), data, ridge=r).value(W)
    )(ridges)
    assert relative(values, [simple(ridge=float(r)).value(W) for r in ridges]) <= 1e-14
    problems = eqx.filter_vmap(lambda r: simple(ridge=r), out_axes=eqx.if_array(0))(
        ridges
    )
    values = eqx.filter_vmap(lambda p: p.value(W))(problems)
    assert relative(values, [simple(ridge=float(r)).value(W) for r in ridges]) <= 1e-14
    base = simple()
    values = jax.vmap(lambda c: base.smooth(c).regularize(c, V).value(W))(ridges[1:])
    assert (
        relative(
            values,
            [
                base.smooth(float(c)).regularize(float(c), V).value(W)
                for c in ridges[1:]
            ],
        )
        <= 1e-14
    )


def test_sparse_rows_are_dense_rows():
    case = zoo.PROBLEMS["sparse_hinge"]()
    (x, y), p = case.problem.data, case.problem
    inner = lambda w, s: (1 - s[1] * (s[0] @ w))[None]
    dense = px.MeanOfLosses(
        inner, px.Hinge(), (x.dense(), y), ridge=0.1, weights=p.weights
    )
    assert float(p.value(case.w)) == pytest.approx(
        float(dense.value(case.w)), rel=1e-14
    )
    assert relative(p.subgradient(case.w), dense.subgradient(case.w)) <= 1e-14


def test_a_nan_iterate_has_a_nan_value():
    """A run that diverged must not report a value of 0."""
    for outer in (
        px.L2(),
        px.L1(),
        px.LInf(),
        px.Max(),
        px.Huber(),
        px.Hinge(),
        px.Quantile(0.5),
        px.SquaredL2(),
    ):
        assert np.isnan(simple(outer=outer).value(W.at[0, 0].set(jnp.nan))), outer
