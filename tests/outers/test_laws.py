"""The laws of outer functions, each on every function of the zoo, in R^1 and R^7."""

import math

import equinox as eqx
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import proxlin as px
import zoo
from proxlin.outers import AbstractSupport, Box, Envelope, Origin, Smoothed

pytestmark = pytest.mark.law

EPS = np.finfo(float).eps
BLOCK = 64
every = pytest.mark.parametrize("name", zoo.OUTERS)
every_proximable = pytest.mark.parametrize("name", zoo.PROXIMABLE)
every_support = pytest.mark.parametrize("name", zoo.SUPPORTS)
every_base = pytest.mark.parametrize("name", [n for n in zoo.SHARP_OR_NOT if n in zoo.PROXIMABLE])
every_size = pytest.mark.parametrize("name, k", [(n, k) for n, case in zoo.OUTERS.items() for k in case.sizes])
sizes = pytest.mark.parametrize("k", [1, 7])
steps = pytest.mark.parametrize("step", [0.1, 1.0, 30.0])


def points(k: int, m: int = 45, seed: int = 0) -> np.ndarray:
    """Points of R^k of every kind: small and large, with zeros and ties, on the axes and the diagonal."""
    rng = np.random.default_rng(seed)
    some = rng.normal(size=(m, k)) * 10.0 ** rng.uniform(-2, 2, (m, 1))
    some[: m // 4] = np.round(some[: m // 4])
    special = [np.zeros(k), np.ones(k), -np.ones(k), 20 * np.ones(k), -20 * np.ones(k), *np.eye(k), *(-np.eye(k))]
    return np.concatenate([some, special])


def at_all(function, *rows: np.ndarray) -> np.ndarray:
    """function at each row, in blocks of one size, so that every law shares the same few compiled operations."""
    m = len(rows[0])
    padded = [np.concatenate([x, np.repeat(x[-1:], -m % BLOCK, axis=0)]) for x in rows]
    blocks = [
        jax.vmap(function)(*(jnp.asarray(x[start : start + BLOCK]) for x in padded)) for start in range(0, m, BLOCK)
    ]
    return np.concatenate([np.asarray(x) for x in blocks])[:m]


def outer_of(name: str):
    return zoo.OUTERS[name].outer


def excess(f, x: np.ndarray, v: np.ndarray, z: np.ndarray) -> np.ndarray:
    """max over z of f(x_i) + <v_i, z - x_i> - f(z): positive where v_i is not a subgradient at x_i; relative."""
    fx, fz = at_all(f.value, x), at_all(f.value, z)
    gaps = fx[:, None] + (v @ z.T - np.sum(v * x, axis=1)[:, None]) - fz[None]
    products = np.abs(v) @ np.abs(z).T + np.sum(np.abs(v * x), axis=1)[:, None]
    return np.max(gaps / (1 + np.abs(fx)[:, None] + np.abs(fz)[None] + products), axis=1)


# ------------------------------------------------------------------------------------------------ value and subgradient


def test_the_values_are_those_of_the_contract():
    u = jnp.array([3.0, -4.0, 0.5])
    expected = [
        (px.L2(), math.sqrt(25.25)),
        (px.L1(), 7.5),
        (px.LInf(), 4.0),
        (px.Max(), 3.0),
        (px.Huber(), 2.5 + 3.5 + 0.125),
        (px.Huber(2.0), 2 * (3 - 1) + 2 * (4 - 1) + 0.125),
        (px.SquaredL2(), 12.625),
        (px.Hinge(), 3.5),
        (px.Quantile(0.3), 0.7 * 3.5 + 0.3 * 4),
    ]
    for f, value in expected:
        assert abs(float(f.value(u)) - value) <= 1e-14, f


@every_size
def test_a_subgradient_bounds_f_from_below_also_at_kinks(name, k):
    f, x, z = outer_of(name), points(k), points(k, seed=1)
    v = at_all(f.subgradient, x)
    assert np.isfinite(v).all()
    units = 256 if isinstance(f, Envelope) else 16 if name in zoo.STRUCTURED else 4  # marginals are chains of exp
    assert excess(f, x, v, np.concatenate([x, z])).max() <= units * EPS


@every_size
def test_the_subgradient_is_what_autodiff_gives_away_from_kinks(name, k):
    f, x = outer_of(name), np.random.default_rng(2).normal(size=(30, k)) * 3
    derivative = at_all(jax.grad(f.value), np.concatenate([x, np.zeros((1, k))]))
    assert np.abs(derivative[:-1] - at_all(f.subgradient, x)).max() <= 1e-13
    assert np.isfinite(derivative[-1]).all()  # at the kink too


@every
def test_f_is_convex(name):
    f, x, z = outer_of(name), points(7), points(7, seed=3)
    middle = at_all(f.value, 0.3 * x + 0.7 * z)
    chord = 0.3 * at_all(f.value, x) + 0.7 * at_all(f.value, z)
    assert np.max((middle - chord) / (1 + np.abs(chord))) <= 8 * EPS


@pytest.mark.parametrize("name", [n for n in zoo.OUTERS if zoo.OUTERS[n].nearest_minimizer])
def test_the_stated_minimisers_are_minimisers(name):
    """The zoo's own word, on which the law of sharpness stands."""
    case, z = zoo.OUTERS[name], points(7)
    least = at_all(case.outer.value, np.asarray(case.nearest_minimizer(z)))
    assert np.ptp(least) <= 1e-15 and least.max() <= at_all(case.outer.value, z).min() + 1e-15


@every_size
def test_not_a_number_is_not_hidden(name, k):
    """A diverged iterate must not look like a minimum."""
    f = outer_of(name)
    u = np.ones((k, k)) + np.diag(np.full(k, np.nan))
    assert np.isnan(at_all(f.value, u)).all()


@every_size
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_infinite_input_never_has_a_finite_value_unless_f_says_so(name, k, sign):
    f = outer_of(name)
    limit, value = at_all(f.value, np.stack([np.full(k, sign * 1e100), np.full(k, sign * np.inf)]))
    if abs(limit) > 1e50:
        assert not np.isfinite(value)


# ------------------------------------------------------------------------------------------------------ constants


EXPECTED = {
    "L2": (lambda k: 1.0, lambda k: 1.0),
    "L1": (math.sqrt, lambda k: 1.0),
    "LInf": (lambda k: 1.0, lambda k: 1 / math.sqrt(k)),
    "Max": (lambda k: 1.0, lambda k: 0.0),
    "Huber(0.7)": (lambda k: 0.7 * math.sqrt(k), lambda k: 0.0),
    "SquaredL2": (lambda k: math.inf, lambda k: 0.0),
    "Hinge": (math.sqrt, lambda k: 1.0),
    "Quantile(0.3)": (lambda k: 0.7 * math.sqrt(k), lambda k: 0.3),
    "Quantile(0.9)": (lambda k: 0.9 * math.sqrt(k), lambda k: 0.1),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("k", [1, 2, 7])
def test_lipschitz_and_sharpness_are_those_of_the_contract(name, k):
    f, (lipschitz, sharpness) = outer_of(name), EXPECTED[name]
    assert float(f.lipschitz(k)) == pytest.approx(lipschitz(k), rel=4 * EPS)
    assert float(f.sharpness(k)) == pytest.approx(sharpness(k), rel=4 * EPS)


@every_size
def test_lipschitz_bounds_the_subgradients_and_is_attained(name, k):
    f = outer_of(name)
    norms = np.linalg.norm(at_all(f.subgradient, points(k)), axis=1)
    l = float(f.lipschitz(k))
    if math.isinf(l):
        assert np.linalg.norm(at_all(f.subgradient, 1e12 * np.ones((1, k)))) > 1e11
    else:
        tolerance = 1e-13 if "WeightedL1.smooth" in name else 4 * EPS  # (u - prox) / nu of an Envelope cancels
        assert abs(norms.max() - l) <= tolerance * l


@every_size
def test_lipschitz_bounds_differences_of_values(name, k):
    f, x, z = outer_of(name), points(k), points(k, seed=4)
    gap = np.abs(at_all(f.value, x) - at_all(f.value, z))
    slack = 1e-13 * (1 + np.abs(x).sum(1) + np.abs(z).sum(1))
    l = min(float(f.lipschitz(k)), 1e300)
    assert np.all(gap <= l * np.linalg.norm(x - z, axis=1) + slack)


@every_size
def test_sharpness_bounds_the_growth_from_the_minimisers_and_is_attained(name, k):
    case = zoo.OUTERS[name]
    sharpness = float(case.outer.sharpness(k))
    if case.nearest_minimizer is None:
        assert sharpness == 0.0
        return
    x = np.concatenate([points(k), 1e-9 * points(k)])
    nearest = case.nearest_minimizer(x)
    away = np.linalg.norm(x - nearest, axis=1)
    x, away, nearest = x[away > 0], away[away > 0], nearest[away > 0]
    growth = (at_all(case.outer.value, x) - at_all(case.outer.value, nearest)) / away
    assert growth.min() >= sharpness * (1 - 4 * EPS)
    assert growth.min() <= sharpness * (1 + 4 * EPS) + 1e-6  # attained; a smooth f is flat at its minimum


@every_size
def test_smoothness_bounds_the_gradient_map(name, k):
    f = outer_of(name)
    smoothness = float(f.smoothness(k))
    x, z = points(k), points(k, seed=5)
    close = x + 1e-3 * (z - x)
    ratio = 0.0
    for a, b in ((x, z), (x, close)):
        away = np.linalg.norm(a - b, axis=1)
        change = np.linalg.norm(at_all(f.subgradient, a) - at_all(f.subgradient, b), axis=1)
        ratio = max(ratio, np.max(change[away > 0] / away[away > 0]))
    assert ratio <= smoothness * (1 + 1e-9)
    if "smooth" in name and k == 7 and "Max" not in name and name not in zoo.STRUCTURED:
        assert ratio >= 0.5 * smoothness  # not a bound from thin air


# --------------------------------------------------------------------------------------------- prox and conjugate


@every_proximable
@sizes
@steps
def test_prox_residual_is_a_subgradient_at_the_prox(name, k, step):
    """p = prox(u, s) iff (u - p) / s is a subgradient of f at p."""
    f, u = outer_of(name), points(k)
    p = at_all(lambda u: f.prox(u, step), u)
    tolerance = 4 * EPS * (1 + np.abs(u).max() / step)
    assert excess(f, p, (u - p) / step, np.concatenate([points(k, seed=6), p, u])).max() <= tolerance


@every_proximable
@sizes
@steps
def test_prox_has_no_better_neighbour(name, k, step):
    f, u = outer_of(name), points(k)
    objective = lambda p: at_all(f.value, p) + np.sum((p - u) ** 2, axis=1) / (2 * step)
    p = at_all(lambda u: f.prox(u, step), u)
    best = objective(p)
    for size in (1e-3, 1.0):
        q = p + size * np.random.default_rng(7).normal(size=p.shape)
        # strong convexity: the excess is at least |q - p|^2 / 2s
        assert np.all(objective(q) - best >= np.sum((q - p) ** 2, axis=1) / (2 * step) - 1e-12 * (1 + np.abs(best)))


@every_proximable
@sizes
@steps
def test_fenchel_young_is_an_equality_at_the_prox(name, k, step):
    f, u = outer_of(name), points(k)
    p = at_all(lambda u: f.prox(u, step), u)
    v = (u - p) / step
    gap = at_all(f.value, p) + at_all(f.conjugate, v) - np.sum(p * v, axis=1)
    assert np.all(np.abs(gap) <= 1e-13 * (1 + np.sum(u * u, axis=1)) / min(step, 1.0))


@every_proximable
@sizes
def test_fenchel_young_is_an_inequality_everywhere_and_an_equality_at_subgradients(name, k):
    f, u, v = outer_of(name), points(k), points(k, seed=8)
    everywhere = at_all(f.value, u)[:, None] + at_all(f.conjugate, v)[None] - u @ v.T
    assert everywhere.min() >= -1e-11 * 1e4
    own = at_all(f.subgradient, u)
    gap = at_all(f.value, u) + at_all(f.conjugate, own) - np.sum(u * own, axis=1)
    assert np.all(np.abs(gap) <= 1e-13 * (1 + np.sum(u * u, axis=1)))


@every_proximable
@sizes
def test_the_conjugate_is_infinite_just_where_its_definition_is(name, k):
    """f*(v) = inf is certified by a ray on which <u, v> - f(u) grows, a finite f*(v) by a point that attains it."""
    f, v = outer_of(name), np.concatenate([points(k, seed=9), 0.2 * np.random.default_rng(9).normal(size=(20, k))])
    conjugate = at_all(f.conjugate, v)
    t = 1e-4
    far = at_all(lambda v: f.prox(v / t, 1 / t), v)  # the maximiser of <u, v> - f(u) - t/2 |u|^2
    attained = np.sum(far * v, axis=1) - at_all(f.value, far)
    finite = np.isfinite(conjugate)
    assert np.all(attained[finite] <= conjugate[finite] + 1e-9)
    assert np.all(attained[finite] >= conjugate[finite] * (1 - 1e-2) - 1e-9)
    rays = far[~finite]
    if len(rays):
        growth = np.sum(1e6 * rays * v[~finite], axis=1) - at_all(f.value, 1e6 * rays)
        assert np.all(growth > 1e3)
    if math.isfinite(f.lipschitz(k)):
        assert not finite[: len(points(k))].all()  # the test saw both kinds


@every_proximable
@sizes
def test_moreau_identity(name, k, step=0.7):
    """prox_{s f}(u) + s prox_{f*/s}(u/s) = u: the second term minimises f*(v) + s/2 |v - u/s|^2, checked on rivals."""
    f, u = outer_of(name), points(k)
    v = (u - at_all(lambda u: f.prox(u, step), u)) / step
    objective = lambda v: at_all(f.conjugate, v) + step / 2 * np.sum((v - u / step) ** 2, axis=1)
    best = objective(v)
    assert np.isfinite(best).all()
    own, other = at_all(f.subgradient, u), at_all(f.subgradient, -u)
    for rival in (own, 0.9 * v + 0.1 * other, own[::-1]):
        away = step / 2 * np.sum((rival - v) ** 2, axis=1)
        assert np.all(objective(rival) - best >= away - 1e-12 * (1 + best))


@every_proximable
def test_prox_tends_to_the_identity_and_to_the_minimisers(name):
    f, u = outer_of(name), points(7)
    assert np.abs(at_all(lambda u: f.prox(u, 1e-12), u) - u).max() <= 1e-9
    nearest = zoo.OUTERS[name].nearest_minimizer
    if nearest is not None:
        assert np.abs(at_all(lambda u: f.prox(u, 1e12), u) - nearest(u)).max() <= 1e-4


@pytest.mark.parametrize("name", ["L2", "L1", "LInf", "Huber(0.7)", "Quantile(0.3)"])
def test_prox_of_a_tiny_vector_and_a_huge_step_is_zero_not_the_vector(name):
    """u / step underflows in float32, and the residual (u - p) / step must still be a subgradient at p."""
    u = np.full((1, 7), 1e-25, np.float32)
    p = at_all(lambda u: outer_of(name).prox(u, jnp.asarray(1e25, jnp.float32)), u)
    assert np.abs(p).max() <= 1e-6 * 1e-25


@pytest.mark.parametrize("name", ["L2", "Huber(0.7)", "SquaredL2", "L2.smooth(0.3)"])
@pytest.mark.parametrize("step", [0.0, -1.0, math.nan])
def test_a_prox_step_that_is_not_positive_is_refused(name, step):
    with pytest.raises(ValueError, match="step"):
        outer_of(name).prox(jnp.ones(7), step)


# ------------------------------------------------------------------------------------------------------- smoothing


@every_base
@sizes
@pytest.mark.parametrize("nu", [1e-3, 0.5, 10.0])
def test_the_smoothing_is_the_moreau_envelope(name, k, nu):
    f, u = outer_of(name), points(k)
    p = at_all(lambda u: f.prox(u, nu), u)
    envelope = at_all(f.value, p) + np.sum((u - p) ** 2, axis=1) / (2 * nu)
    size = 1 + np.abs(envelope) + np.sum(np.abs(u), axis=1) / min(nu, 1.0)
    assert np.all(np.abs(at_all(f.smooth(nu).value, u) - envelope) <= 1e-13 * size)
    assert np.all(np.abs(at_all(f.smooth(nu).subgradient, u) - (u - p) / nu) <= 1e-13 * size[:, None] / min(nu, 1.0))


@every_base
@sizes
@pytest.mark.parametrize("nu", [1e-3, 0.5, 10.0])
def test_f_nu_is_below_f_by_at_most_nu_l_squared_over_two_and_that_is_attained(name, k, nu):
    f, u = outer_of(name), points(k)
    u = np.concatenate([u, 1e3 * np.ones((1, k)), -1e3 * np.ones((1, k)), 1e3 * np.eye(k)])
    gap = at_all(f.value, u) - at_all(f.smooth(nu).value, u)
    slack = 1e-13 * (1 + np.sum(np.abs(u), axis=1))
    most = nu * float(f.lipschitz(k)) ** 2 / 2
    assert np.all(gap >= -slack)
    assert np.all(gap <= most + slack)
    if math.isfinite(most) and name != "Huber(0.7)":
        assert gap.max() >= most * (1 - 1e-9) - slack.max()


@every_base
@sizes
def test_the_gradient_of_f_nu_is_one_over_nu_lipschitz(name, k):
    nu = 0.05
    g = outer_of(name).smooth(nu)
    x, z = points(k), points(k, seed=10)
    for y in (z, x + 1e-2 * (z - x)):
        change = np.linalg.norm(at_all(g.subgradient, x) - at_all(g.subgradient, y), axis=1)
        assert np.all(change <= np.linalg.norm(x - y, axis=1) / nu * (1 + 1e-9) + 1e-11)


@every_base
def test_smoothing_twice_is_smoothing_once_with_the_sum(name):
    f, u = outer_of(name), points(7)
    twice, once = f.smooth(0.3).smooth(0.5), f.smooth(0.8)
    assert np.allclose(at_all(twice.value, u), at_all(once.value, u), rtol=1e-13, atol=1e-13)
    assert np.allclose(at_all(twice.subgradient, u), at_all(once.subgradient, u), rtol=1e-12, atol=1e-12)
    assert float(twice.smoothness(4)) == pytest.approx(float(once.smoothness(4))) or isinstance(twice, Envelope)


def test_huber_is_the_smoothing_of_l1_and_l2_squared_that_of_the_origin():
    u = points(7)
    assert np.abs(at_all(px.Huber(1.0).value, u) - at_all(px.L1().smooth(1.0).value, u)).max() <= 1e-11
    assert np.abs(at_all(px.SquaredL2().value, u) - at_all(Smoothed(Origin(), 1.0).value, u)).max() <= 1e-9


def test_users_support_and_proximable_functions_get_smoothing_for_free():
    assert type(zoo.GroupNorm().smooth(0.1)) is Smoothed
    assert type(zoo.WeightedL1().smooth(0.1)) is Envelope
    u = points(7)
    both = zoo.WeightedL1(2.0).smooth(0.3), Box(jnp.asarray(2.0)).smooth(0.3)  # the same function in two ways
    for method in ("value", "subgradient", "conjugate"):
        a, b = (at_all(getattr(f, method), u) for f in both)
        assert np.array_equal(np.isfinite(a), np.isfinite(b))
        assert np.allclose(a, b, rtol=1e-12, atol=1e-12)
    a, b = (at_all(lambda u, f=f: f.prox(u, 0.7), u) for f in both)
    assert np.allclose(a, b, rtol=1e-12, atol=1e-12)


@every_proximable
def test_the_dual_form_is_the_conjugate(name):
    """f* = indicator of V + rho/2 |v|^2; a proximable function may say that it has none."""
    f, v = outer_of(name), np.random.default_rng(11).normal(size=(50, 7)) * 0.4
    v = np.concatenate([v, np.full((1, 7), 1 / 7), np.full((1, 7), 0.05), np.eye(7)])  # each V holds some of these
    try:
        support, rho = f.dual_form()
    except TypeError as error:
        assert "dual_form" in str(error) and type(f).__name__ in str(error)
        assert type(f) in (zoo.WeightedL1, Envelope)
        return
    inside = at_all(support.contains, v)
    expected = np.where(inside, float(rho) / 2 * np.sum(v * v, axis=1), np.inf)
    assert np.allclose(at_all(f.conjugate, v), expected, rtol=1e-13, atol=0)
    assert inside.any()


# ------------------------------------------------------------------------------------------------- projections


vectors = arrays.arrays(float, 7, elements=st.floats(-1e6, 1e6, allow_subnormal=False))
small = settings(max_examples=40, deadline=None, derandomize=True, database=None)
compiled = {
    name: (eqx.filter_jit(case.outer.project), eqx.filter_jit(case.outer.argmax), eqx.filter_jit(case.outer.prox))
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
        assert pa @ d <= float(f.value(jnp.asarray(d))) + 32 * EPS * max(1.0, np.abs(d).sum())
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
    assert abs(float(v @ a) - float(f.value(jnp.asarray(a)))) <= 8 * EPS * max(1.0, np.abs(a).sum())


@every_support
def test_contains_tells_in_from_out(name):
    f, v = outer_of(name), points(7)
    inside = at_all(f.project, v)
    assert at_all(f.contains, inside).all()
    outside = inside + 1e-6 * (v - inside) / np.maximum(np.linalg.norm(v - inside, axis=1, keepdims=True), 1e-300)
    really = np.linalg.norm(v - inside, axis=1) > 1e-6
    assert really.any() and not at_all(f.contains, outside)[really].any()


def test_contains_is_relative_to_the_set():
    """With a width of 1e-12, a dual vector of 1e-11 is ten times outside."""
    assert np.isinf(px.Huber(1e-12).conjugate(jnp.array([1e-11])))


# ------------------------------------------------------------------------------------------- range, dtype, transforms


def magnitudes(dtype) -> list[float]:
    return [1e-150, 1e-100, 1e-10, 1.0, 1e10, 1e100, 1e150] if dtype == np.float64 else [1e-30, 1e-10, 1.0, 1e10, 1e30]


def shapes(*, scales, dtype) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of several shapes, each at all scales, and the scale of each row."""
    some = np.array([[1.0, 1, 1], [1, -1, 0.5], [1, 0, 0], [0, 0, 0], [-1, -1, -1], [1, 1e-20, 0], [-0.0, 0, -1]])
    some = np.concatenate([some, some, some[:, :1]], axis=1)
    scales = np.repeat(np.array(scales), len(some))
    return (np.tile(some, (len(scales) // len(some), 1)) * scales[:, None]).astype(dtype), scales.astype(dtype)


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_nan_and_no_inf_over_the_range_of_the_contract(name, dtype):
    f = outer_of(name)
    u, scale = shapes(scales=magnitudes(dtype), dtype=dtype)
    value, v = at_all(f.value, u), at_all(f.subgradient, u)
    assert value.dtype == dtype and v.dtype == dtype
    squares = "SquaredL2" in name  # |u|^2 may overflow, and is then inf; it is never nan
    assert not np.isnan(value).any() and (squares or np.isfinite(value).all()), value
    assert np.isfinite(v).all()
    assert not np.isnan(at_all(jax.grad(f.value), u)).any()
    if name in zoo.SUPPORTS:
        v = at_all(f.project, u)
        assert v.dtype == dtype and np.isfinite(v).all()
        # positively homogeneous, f(c u) = c f(u), with the relative accuracy of the dtype
        ones = at_all(f.value, shapes(scales=np.ones(len(magnitudes(dtype))), dtype=dtype)[0])
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
    u, scale = np.tile(u, (len(magnitudes(dtype)), 1)), np.tile(scale, len(magnitudes(dtype)))
    p = at_all(f.prox, u, steps)
    assert p.dtype == dtype
    finite = np.isfinite(p).all(axis=1)
    assert finite.all(), f"first failure: u = {u[~finite][0]}, step = {steps[~finite][0]}"
    l = float(f.lipschitz(u.shape[1]))
    if math.isfinite(l):
        moved = np.max(np.abs(p.astype(float) - u), axis=1)
        assert np.all(moved <= steps.astype(float) * l * (1 + 8 * eps) + 8 * eps * scale)


@every
def test_python_and_numpy_numbers_do_not_change_the_dtype(name):
    """float32 in, float32 out, with x64 on; numpy input too."""
    f = outer_of(name)
    u = np.array([1.5, -2.0, 0.0, 1, 2, 3, 4], np.float32)
    for x in (u, jnp.asarray(u)):
        assert f.value(x).dtype == np.float32 and f.subgradient(x).dtype == np.float32
        assert isinstance(f.value(x), jax.Array) and isinstance(f.subgradient(x), jax.Array)
        if name in zoo.PROXIMABLE:
            assert f.prox(x, 0.5).dtype == np.float32 and f.conjugate(x).dtype == np.float32
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
        both(f.smooth(nu if isinstance(nu, float) else nu.astype(float)), jnp.asarray(u))
    assert len(traces) == 1


@every_base
def test_smoothing_can_be_vmapped_over_nu(name):
    f, u, nus = outer_of(name), points(7), np.array([0.1, 1.0, 3.0])
    values = at_all(lambda nu, u: f.smooth(nu).value(u), np.repeat(nus, len(u)), np.tile(u, (3, 1))).reshape(3, -1)
    each = np.stack([at_all(f.smooth(float(nu)).value, u) for nu in nus])
    assert np.allclose(values, each, rtol=1e-14, atol=1e-14)
    assert np.all(np.diff(values, axis=0) <= 1e-12)  # f_nu falls as nu grows


def test_an_outer_function_holds_nothing_but_arrays():
    for name, case in zoo.OUTERS.items():
        if not name.startswith("WeightedL1"):  # a user's dataclass with a Python float
            assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(case.outer)), name


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
