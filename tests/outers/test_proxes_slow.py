"""Every prox and projection by hypothesis: optimality, twins, ties, zeros, magnitudes from 1e-12 to
1e12, both dtypes.

Tolerances are multiples of eps times the largest term of the sum in question, never of the answer
alone: that is what round-off leaves of an inequality between numbers of such a size.
"""

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import proxlin as px
import zoo
from proxlin.outers import Envelope
from proxlin.outers import sets as cones
from proxlin.outers.norms import project_simplex
from proxlin.outers.structured import project_sorted

pytestmark = [pytest.mark.slow, pytest.mark.law]
EXAMPLES, K = 150, 5
much = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    # a failing point is told as it is: making it smaller takes minutes
    phases=(Phase.generate,),
)
both = pytest.mark.parametrize("dtype", [np.float64, np.float32])

# A vector is a pool of three mantissas, so that ties and zeros are common, with a power of ten of
# its own.
POWERS = st.integers(-12, 12).map(lambda e: 10.0**e)
MANTISSAS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0]),
    st.floats(0.1, 1.0),
    st.floats(-1.0, -0.1),
)


@st.composite
def vectors(draw, k: int = K):
    pool = draw(st.lists(MANTISSAS, min_size=1, max_size=3))
    scale = draw(POWERS)
    uneven = draw(st.booleans())
    entries = draw(st.lists(st.sampled_from(pool), min_size=k, max_size=k))
    powers = draw(st.lists(POWERS, min_size=k, max_size=k)) if uneven else [scale] * k
    return np.array(entries) * np.array(powers)


def compiled(method):
    """Compiled once for each dtype; called with numpy, answers in float64, in which the laws are
    judged.
    """
    call = eqx.filter_jit(method)
    return lambda *args: np.asarray(call(*(jnp.asarray(x) for x in args))).astype(
        np.float64
    )


def size(*terms: np.ndarray) -> float:
    """The sum of the absolute terms: round-off is eps times this."""
    return float(sum(np.sum(np.abs(term)) for term in terms))


# ---------------------------------------------------------------------------------------- the twins


def clipped(low: float, high: float, rho: float = 0.0):
    """prox of sum_j max(low u_j, high u_j) smoothed by rho: an entry at a time, by branches."""

    def prox(u: np.ndarray, s: float) -> np.ndarray:
        def one(x: float) -> float:
            if x > high * (s + rho):
                return x - s * high
            return x - s * low if x < low * (s + rho) else rho * x / (s + rho)

        return np.array([one(x) for x in u])

    return prox


def shrunk(u: np.ndarray, s: float) -> np.ndarray:
    top = np.abs(u).max()
    length = top * np.sqrt(np.sum((u / top) ** 2)) if top > 0 else 0.0
    return np.zeros_like(u) if length <= s else (1 - s / length) * u


def levelled(u: np.ndarray, s: float) -> np.ndarray:
    """prox of max_j u_j: min(u, t), where t takes away s in all; t by trying how many entries it
    cuts.
    """
    falling = np.sort(u)[::-1].astype(np.longdouble)
    for count in range(1, len(u) + 1):
        t = (falling[:count].sum() - s) / count
        if count == len(u) or t >= falling[count]:
            return np.minimum(u.astype(np.longdouble), t).astype(float)
    raise AssertionError


def capped(u: np.ndarray, s: float) -> np.ndarray:
    """prox of max_j |u_j|: cut at t >= 0."""
    if np.abs(u).sum() <= s:
        return np.zeros_like(u)
    return np.sign(u) * np.maximum(levelled(np.abs(u), s), 0.0)


TWINS = {
    "L1": clipped(-1.0, 1.0),
    "Hinge": clipped(0.0, 1.0),
    "Quantile(0.3)": clipped(-0.3, 1 - 0.3),
    "Quantile(0.9)": clipped(-0.9, 1 - 0.9),
    "WeightedL1": clipped(-2.0, 2.0),
    "Huber(0.7)": clipped(-0.7, 0.7, 1.0),
    "L1.smooth(0.3)": clipped(-1.0, 1.0, 0.3),
    "WeightedL1.smooth(0.3)": clipped(-2.0, 2.0, 0.3),
    "SquaredL2": lambda u, s: u / (1 + s),
    "SquaredL2.smooth(0.3)": lambda u, s: u - s * u / (1.3 + s),
    "L2": shrunk,
    "Max": levelled,
    "LInf": capped,
    "GroupNorm": lambda u, s: np.concatenate(
        [shrunk(u[:2], s), shrunk(u[2:4], s), shrunk(u[4:], s)]
    ),
}


@both
@pytest.mark.parametrize("name", TWINS)
def test_prox_agrees_with_a_twin(name, dtype):
    prox, eps = compiled(zoo.OUTERS[name].outer.prox), float(np.finfo(dtype).eps)

    @much
    @given(u=vectors(), step=POWERS)
    def law(u, step):
        u, step = u.astype(dtype), dtype(step)
        expected = TWINS[name](u.astype(np.float64), float(step))
        # u, the answer, and step times the largest |v| of V are what is added up; V of Max is
        # without 0
        moved = min(2 * float(step), np.abs(u).sum(dtype=float))
        tolerance = 16 * eps * (np.abs(u).max() + np.abs(expected).max() + moved)
        assert np.abs(prox(u, step) - expected).max() <= tolerance, (u, step)

    law()


# ------------------------------------------------------------------------------- laws of every prox


@both
@pytest.mark.parametrize("name", zoo.PROXIMABLE)
def test_prox_is_optimal_and_firmly_nonexpansive(name, dtype):
    f, eps = zoo.OUTERS[name].outer, float(np.finfo(dtype).eps)
    prox, value, subgradient = (
        compiled(f.prox),
        compiled(f.value),
        compiled(f.subgradient),
    )

    @much
    @given(u=vectors(), z=vectors(), step=POWERS)
    def law(u, z, step):
        u, z, step = u.astype(dtype), z.astype(dtype), dtype(step)
        p, q, s = prox(u, step), prox(z, step), float(step)
        u, z = u.astype(float), z.astype(float)
        v = (u - p) / s
        lost = eps * np.maximum(np.abs(u), np.abs(p)) / s  # of v, by cancellation
        for other in (z, q, u, 0 * u):
            gap = float(
                value(p.astype(dtype)) + v @ (other - p) - value(other.astype(dtype))
            )
            terms = size(
                v * other, v * p, value(p.astype(dtype)), value(other.astype(dtype))
            )
            # of f, at p rounded
            slope = size(subgradient(p.astype(dtype)) * (np.abs(p) + np.abs(other)))
            assert gap <= 32 * eps * (terms + slope) + 4 * lost @ np.abs(other - p), (
                u,
                other,
                s,
            )
        firm = (p - q) @ (p - q) - (p - q) @ (u - z)
        rounded = 16 * eps * size(u, z, p, q)  # of p - q
        assert firm <= rounded * size(p - q, u - z) + rounded**2, (u, z, s)

    law()


@both
@pytest.mark.parametrize("name", zoo.PROXIMABLE)
def test_fenchel_young(name, dtype):
    """f(u) + f*(v) >= <u, v> for every v, and = at the subgradient; f*(v) = inf outside of V."""
    f, eps = zoo.OUTERS[name].outer, float(np.finfo(dtype).eps)
    value, conjugate, subgradient = (
        compiled(f.value),
        compiled(f.conjugate),
        compiled(f.subgradient),
    )
    # (u - p) / nu, its subgradient
    cancelled = 1 / float(f.nu) if isinstance(f, Envelope) else 0.0

    @much
    @given(u=vectors(), z=vectors())
    def law(u, z):
        u, z = u.astype(dtype), z.astype(dtype)
        own, other = subgradient(u), subgradient(z)
        for v in (own, other, (own + other) / 2):
            gap = float(value(u) + conjugate(v.astype(dtype)) - u.astype(float) @ v)
            rounded = size(value(u), u * v, v * v) + cancelled * size(
                u.astype(float) ** 2
            )
            assert gap >= -32 * eps * rounded, (u, v)
            # (u - p) / nu beyond V by more than f* forgives, where |u| >> nu
            lost = cancelled and gap == np.inf
            if v is own and not lost:
                assert gap <= 32 * eps * rounded, (u, gap)

    law()


# ------------------------------------------------------------------------------ laws of projections


@both
@pytest.mark.parametrize("name", zoo.SUPPORTS)
def test_projections(name, dtype):
    """Idempotent, in V, nearest (the variational inequality at points of V), and firmly
    nonexpansive.
    """
    f, eps = zoo.OUTERS[name].outer, float(np.finfo(dtype).eps)
    project, argmax, contains = (
        compiled(f.project),
        compiled(f.argmax),
        eqx.filter_jit(f.contains),
    )

    @much
    @given(a=vectors(), b=vectors())
    def law(a, b):
        a, b = a.astype(dtype), b.astype(dtype)
        p, q = project(a), project(b)
        assert np.abs(project(p.astype(dtype)) - p).max() <= 16 * eps
        assert bool(contains(jnp.asarray(p, dtype)))
        away = a.astype(float) - p
        lost = 16 * eps * np.maximum(np.abs(a), np.abs(p)).astype(float)
        for v in (
            q,
            argmax(b),
            argmax(away.astype(dtype)),
            argmax(-away.astype(dtype)),
        ):
            slack = lost @ np.abs(v - p) + 32 * eps * size(away * v, away * p)
            assert away @ (v - p) <= slack, (a, v)
        firm = (p - q) @ (p - q) - (p - q) @ (a.astype(float) - b)
        assert firm <= 64 * eps * (1 + size(a) + size(b)) * (1 + size(p) + size(q)), (
            a,
            b,
        )

    law()


def simplex_by_count(z: np.ndarray) -> np.ndarray:
    """The nearest point of the simplex, by trying how many entries are positive."""
    below = z.astype(np.longdouble) - z.max()
    falling = np.sort(below)[::-1]
    for count in range(len(z), 0, -1):
        level = (falling[:count].sum() - 1) / count
        if falling[count - 1] > level:
            return np.maximum(below - level, 0).astype(float)
    return np.eye(len(z))[int(np.argmax(z))]


@both
def test_the_three_projections_onto_a_simplex_agree(dtype):
    """That of the outers, that of the structured smoothing (sorted scores), and that of the exact
    solver.
    """
    eps = float(np.finfo(dtype).eps)
    first = compiled(project_simplex)
    second = compiled(lambda z: project_sorted(z, jnp.ones((), z.dtype))[0])
    third = compiled(lambda z: cones.Simplex().project(z[None])[0])

    @much
    @given(z=vectors())
    def law(z):
        z = np.sort(z.astype(dtype))[::-1]
        expected = simplex_by_count(z)
        tolerance = (
            32
            * eps
            * (
                1
                + min(np.ptp(z.astype(float)), 1.0)
                + np.abs(z).max() * (np.ptp(z) < 2)
            )
        )
        for found in (first(z), second(z), third(z)):
            assert (
                np.abs(found - expected).max() <= tolerance
                and abs(found.sum() - 1) <= 16 * eps + tolerance
            ), z

    law()


CONES = {
    "ball": (cones.Ball(), px.L2()),
    "box": (cones.Box(-1.0, 1.0), px.L1()),
    "unit box": (cones.Box(0.0, 1.0), px.Hinge()),
    "simplex": (cones.Simplex(), px.Max()),
    "space": (cones.Space(), None),
}


@both
@pytest.mark.parametrize("name", CONES)
def test_cones_maximise_and_step_inside(name, dtype):
    """maximizer(z, rho) beats every point of V, project is that of the outer function, excess is a
    certificate >= 0, and a step of length `reach` stays inside.
    """
    (cone, outer), eps = CONES[name], float(np.finfo(dtype).eps)
    row = lambda method: compiled(lambda *args: method(*(x[None] for x in args))[0])
    maximizer, project, excess = (
        row(cone.maximizer),
        row(cone.project),
        row(cone.excess),
    )
    twin = compiled(outer.project) if outer is not None else lambda v: v.astype(float)
    rhos = (
        st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 1e3, 1e12])
        if outer is not None
        else st.sampled_from([1e-3, 1.0, 1e3])
    )

    @much
    @given(z=vectors(), other=vectors(), rho=rhos)
    def law(z, other, rho):
        z, other, rho = z.astype(dtype), other.astype(dtype), dtype(rho)
        u, v = maximizer(z, rho), project(other)
        z64, r = z.astype(float), float(rho)
        assert np.abs(v - twin(other)).max() <= 32 * eps * (
            1 + (np.abs(other).max() if outer is None else 0)
        )
        assert np.abs(project(v.astype(dtype)) - v).max() <= 32 * eps * max(
            1.0, np.abs(v).max()
        )
        reached = lambda x: z64 @ x - r / 2 * x @ x
        terms = size(z64 * u, z64 * v, r * u * u, r * v * v)
        assert reached(u) >= reached(v) - 64 * eps * terms, (z, v, r)
        certificate = float(excess(z, v.astype(dtype), rho))
        lost = K * (1 + r) * float(np.finfo(dtype).tiny)  # by underflow
        assert certificate >= 0
        assert abs(certificate - (reached(u) - reached(v))) <= 128 * eps * terms + lost

    law()


@pytest.mark.parametrize("name", [name for name in CONES if name != "space"])
def test_the_interior_point_stays_inside(name):
    """From an inner v and multipliers, a step of 0.99 reach keeps both inner, in every direction."""
    cone, outer = CONES[name]

    @much
    @given(seed=st.integers(0, 2**32 - 1), z=vectors())
    def law(seed, z):
        rng = np.random.default_rng(seed)
        v = np.asarray(cone.center(jnp.asarray(0 * z)[None]))[0]
        v = 0.5 * v + 0.5 * np.asarray(outer.project(jnp.asarray(rng.normal(size=K))))
        y = cone.multipliers(
            jnp.asarray(v)[None], jnp.asarray(z)[None], jnp.asarray([0.5])
        )
        dv = rng.normal(size=K) - (
            rng.normal(size=K).mean() if name == "simplex" else 0.0
        )
        dy = jax.tree.map(
            lambda x: jnp.asarray(rng.normal(size=x.shape)) * (1 + jnp.abs(x)), y
        )
        t = 0.99 * float(
            jnp.minimum(
                cone.reach(jnp.asarray(v)[None], jnp.asarray(dv)[None], y, dy)[0], 1.0
            )
        )
        assert t >= 0
        there = v + t * dv
        if name != "simplex":
            assert (
                np.abs(there - np.asarray(outer.project(jnp.asarray(there)))).max()
                <= 1e-12
            )
        else:
            assert there.min() >= -1e-15
        moved = jax.tree.map(lambda a, b: a + t * b, y, dy)
        inside = (
            moved[0] >= cones.norms(moved[1]) * (1 - 1e-12)
            if name == "ball"
            else jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(moved)]) >= 0
        )
        assert bool(jnp.all(inside))

    law()


# ---------------------------------------------------------------------------------- structured ones

GRID = zoo.GRID
MEMBERS = np.asarray(GRID.top(jnp.zeros(6), GRID.count())[1])  # all outputs


@both
def test_structured_hinges_by_enumeration(dtype):
    """Value, subgradient and both smoothings against the list of all outputs; the bounds of each
    smoothing.
    """
    eps, nu = float(np.finfo(dtype).eps), 0.3
    hinge, entropy = px.StructuredHinge(GRID, top=GRID.count()), px.EntropyHinge(GRID)
    calls = {
        "value": compiled(hinge.value),
        "subgradient": compiled(hinge.subgradient),
        "simplex": compiled(hinge.smooth(nu).value),
        "weights": compiled(hinge.smooth(nu).subgradient),
        "entropy": compiled(entropy.smooth(nu).value),
        "marginals": compiled(entropy.smooth(nu).subgradient),
    }

    @much
    @given(u=vectors(7), other=vectors(7))
    def law(u, other):
        u, other = u.astype(dtype), other.astype(dtype)
        z = MEMBERS @ u[:-1].astype(float)
        top, tolerance = z.max() - float(u[-1]), 32 * eps * (1 + size(u))
        found = {name: call(u) for name, call in calls.items()}
        assert abs(found["value"] - top) <= tolerance
        assert (
            found["subgradient"] @ u >= found["value"] - tolerance
            and found["subgradient"][-1] == -1
        )
        assert calls["value"](other) >= found[
            "subgradient"
        ] @ other - tolerance - 32 * eps * size(other)
        p = simplex_by_count(z / nu)
        assert (
            abs(found["simplex"] - (p @ z - nu / 2 * p @ p - float(u[-1])))
            <= 4 * tolerance
        )
        assert (
            found["simplex"] - tolerance <= top <= found["simplex"] + nu / 2 + tolerance
        )
        e = np.exp((z - z.max()) / nu)
        assert (
            abs(found["entropy"] - (z.max() + nu * np.log(e.sum()) - float(u[-1])))
            <= 4 * tolerance
        )
        assert (
            top - tolerance <= found["entropy"] <= top + nu * np.log(len(z)) + tolerance
        )
        assert (
            np.abs(found["marginals"][:-1] - e / e.sum() @ MEMBERS).max()
            <= 4 * tolerance / nu
        )
        assert np.abs(found["weights"][:-1] - p @ MEMBERS).max() <= 4 * tolerance / nu

    law()


def test_vectors_have_ties_and_zeros():
    """What the laws above are run on."""
    seen = {"zero": 0, "tie": 0, "huge": 0, "tiny": 0}

    @much
    @given(u=vectors())
    def law(u):
        seen["zero"] += bool(np.any(u == 0))
        seen["tie"] += len(np.unique(u)) < len(u)
        seen["huge"] += bool(np.abs(u).max() > 1e6)
        seen["tiny"] += bool(0 < np.abs(u).max() < 1e-6)

    law()
    assert min(seen.values()) >= EXAMPLES / 20, seen


def test_figures(figures):
    cases = (
        2
        * (
            len(TWINS)
            + 2 * len(zoo.PROXIMABLE)
            + len(zoo.SUPPORTS)
            + 1
            + len(CONES)
            + 1
        )
        + len(CONES)
        - 1
    )
    figures(
        "proxes",
        functions=len(zoo.OUTERS),
        cones=len(CONES),
        laws_run=cases,
        points_each=EXAMPLES,
    )
