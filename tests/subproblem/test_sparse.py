"""px.touches and the block-arrow factorisation: the same answers as with a dense Jacobian."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import proxlin as px
from counting import Counter
from proxlin.compiled import QUICK
from proxlin.outers.sets import Ball, Box, Simplex
from proxlin.problem import MeanOfLosses
from proxlin.subproblem import damped, exact, sparse, sweeps
from proxlin.subproblem.systems import over, root_of_response
from zoo import PROXIMABLE

# The exact solver needs a dual form, which WeightedL1, a user's own function, does not give.
NAMES = [name for name in sorted(PROXIMABLE) if not name.startswith("WeightedL1")]


def inner(local, sample):
    """Two rows of V, one of U, and all of b."""
    first, second = local["V"]
    return jnp.tanh(first @ local["U"]) + second[:, 0] + local["b"] - sample["y"]


def select(sample):
    return {"U": sample["i"], "V": sample["j"], "b": None}


def start(dtype=float):
    rng = np.random.default_rng(1)
    shapes = {"U": (9, 2), "V": (5, 3, 2), "b": (3,)}
    return {
        name: jnp.asarray(rng.standard_normal(shape), dtype)
        for name, shape in shapes.items()
    }


def problem(outer, **settings):
    rng = np.random.default_rng(0)
    n = 40
    i = rng.integers(0, 9, n)
    i[:6] = 3  # one row has many samples ...
    i[i == 7] = 6  # ... and one has none
    j = rng.integers(-5, 5, (n, 2))  # an index may count from the end, and come twice
    j[5] = 2
    weights = rng.uniform(0.5, 2, n)
    weights[[2, 11]] = 0
    data = {"i": i, "j": j, "y": rng.standard_normal((n, 3))}
    phi = px.touches(inner, select)
    return px.MeanOfLosses(phi, outer, data, weights=weights, **settings)


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def solved(expand, problem, w, kappa, tol):
    at = expand(problem, w)
    quadratic = exact.proximal(problem, kappa, w)
    return exact.solve(at, quadratic, problem.outer, tol, penalty=problem.penalty)


def both(problem, w, kappa, tol=1e-10):
    numbers = (jnp.asarray(kappa), jnp.asarray(tol))
    ways = (MeanOfLosses.expand, sparse.Sparse.of)
    return [solved(way, problem, w, *numbers) for way in ways]


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_a_dense_jacobian(name):
    p = problem(PROXIMABLE[name].outer, ridge=0.1)
    w = start()
    for kappa in (1.0, 1e-3):
        dense, found = both(p, w, kappa)
        assert float(found.gap) <= 1e-10 * float(found.scale)
        assert float(found.scale) == pytest.approx(float(dense.scale), rel=1e-12)
        between = abs(float(found.value - dense.value))
        assert between <= float(found.gap + dense.gap) + 1e-13
        # The value is that of the subproblem, computed without any of this.
        line = p.linearize(w).regularize(kappa, w)
        assert float(line.value(found.w)) == pytest.approx(float(found.value), rel=1e-9)


PENALTIES = {
    "bounds": {"U": px.Bounds(-0.5, 0.4), "V": None, "b": px.NonNegative()},
    "l1": {"U": px.L1Penalty(0.02), "V": px.L1Penalty(0.01), "b": None},
    "both": {"U": px.NonNegative(), "V": px.L1Penalty(0.02), "b": px.Bounds(0.1, 0.1)},
}


@pytest.mark.parametrize("name", ["L1", "L2", "LInf", "Max", "Huber_0.7", "SquaredL2"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_agrees_with_a_dense_jacobian_and_a_penalty(name, penalty):
    outer = getattr(px, name.split("_")[0])(*map(float, name.split("_")[1:]))
    p = problem(outer, ridge=0.1, penalty=PENALTIES[penalty])
    w = p.feasible(start())
    for kappa in (1.0, 1e-3):
        dense, found = both(p, w, kappa)
        assert float(found.gap) <= 1e-10 * float(found.scale)
        between = abs(float(found.value - dense.value))
        assert between <= float(found.gap + dense.gap) + 1e-13
        assert np.isfinite(float(p.penalty.value(found.w)))  # bounds are kept exactly
        line = p.linearize(w).regularize(kappa, w)
        assert float(line.value(found.w)) == pytest.approx(float(found.value), rel=1e-9)


def test_groups_of_w_need_a_matrix(monkeypatch):
    monkeypatch.setattr(sparse, "DENSE", 0)
    w = start()
    kind = lambda penalty: exact.structure(problem(px.L1(), penalty=penalty), w)
    mixed = {"U": px.NonNegative(), "V": px.GroupL2(0.1), "b": None}
    assert kind(px.GroupL2(0.1)) is kind(mixed) is None
    assert kind(px.NonNegative()) is kind(None) is sparse.Sparse
    assert not exact.ends_early(problem(px.L1(), penalty=px.NonNegative()), w)


def counted(p, w, kappa, v0=None, share=None):
    @jax.jit
    def solve(p, w, kappa):
        at = sparse.Sparse.of(p, w)
        quadratic = exact.proximal(p, kappa, w)
        tol = jnp.asarray(1e-10)
        return exact.solve(at, quadratic, p.outer, tol, v0=v0, share=share)

    return solve(p, w, jnp.asarray(kappa))


def test_newton_takes_few_factorisations():
    """ADMM takes thirty solves before it looks at its rate, and the interior point ten factorisations more."""
    found = counted(problem(px.Huber(0.7), ridge=0.1), start(), 0.1)
    assert int(found.iterations) <= 10
    assert float(found.gap) <= 1e-10 * float(found.scale)


def test_dual_variables_are_a_better_start():
    p = problem(px.L1(), ridge=0.1)
    cold = counted(p, start(), 1.0)
    warm = counted(p, start(), 0.98, v0=cold.v)
    assert int(warm.iterations) < int(counted(p, start(), 0.98).iterations)
    assert float(warm.gap) <= 1e-10 * float(warm.scale)


@pytest.mark.parametrize("outer", [px.Huber(0.3), px.L2()], ids=["Huber", "L2"])
def test_an_early_end_says_its_gap(outer):
    p = problem(outer, ridge=0.1)
    w = start()
    early = counted(p, w, 1e-2, share=0.3)
    exact_one = counted(p, w, 1e-2)
    assert int(early.iterations) < int(exact_one.iterations)
    above = float(early.value - exact_one.value)
    assert 0 < above <= float(early.gap)
    assert float(early.gap) <= 0.31 * float(p.value(w) - early.value)


def test_another_method_goes_on_where_newton_stops(monkeypatch):
    monkeypatch.setattr(damped, "MOST", 0)
    monkeypatch.setattr(damped.minimize_damped, "__defaults__", (0,))
    found = counted(problem(px.L1(), ridge=0.1), start(), 0.1)
    assert float(found.gap) <= 1e-10 * float(found.scale)


def test_the_root_of_a_response():
    rng = np.random.default_rng(5)
    z = jnp.asarray(rng.standard_normal((7, 3)))
    rho = jnp.asarray(rng.uniform(0.1, 2, 7))
    x = jnp.asarray(rng.standard_normal((4, 7, 3)))
    for V in (Ball(), Simplex(), Box(-1.0, 0.5)):
        a, b = V.response(z, rho)
        W = jax.vmap(jnp.diag)(a)
        if b is not None:
            W = W - b[:, :, None] * b[:, None, :]
        y = root_of_response(a, b, x)
        between = jnp.einsum("ank,bnk->nab", y, y)
        assert np.allclose(between, jnp.einsum("ank,nkl,bnl->nab", x, W, x))


@pytest.mark.processor
def test_float32_is_certified_too():
    p = problem(px.Huber(0.7))
    dense, found = both(p, start(jnp.float32), 0.1, 1e-4)
    assert found.w["U"].dtype == jnp.float32
    assert float(found.gap) <= 1e-4 * float(found.scale)
    assert abs(float(found.value - dense.value)) <= float(found.gap + dense.gap)


def test_added_rows_change_nothing():
    p = problem(px.L1(), ridge=0.1)
    rows = jnp.asarray([0.3, 1e-10])
    numbers = (rows[0], rows[1])
    plain = solved(sparse.Sparse.of, p[0:37], start(), *numbers)
    added = solved(sparse.Sparse.of, p[0:37].padded(), start(), *numbers)
    assert added.v.shape[0] > plain.v.shape[0]
    gaps = float(plain.gap + added.gap)
    assert abs(float(plain.value - added.value)) <= gaps + 1e-13
    at = jax.jit(sparse.Sparse.of)(p[0:37].padded(), start())
    pairs = sparse.pairing(at.row, at.layout.rows)
    assert int(jnp.max(pairs.degree)) < 12  # without the added rows


@pytest.mark.parametrize("V", [Ball(), Simplex()], ids=["ball", "simplex"])
@pytest.mark.parametrize("wide", [False, True], ids=["pairs", "wide"])
def test_the_factor_is_that_of_the_matrix(V, wide, monkeypatch):
    monkeypatch.setattr(sparse, "WIDE_BYTES", 2**28 if wide else 0)
    monkeypatch.setattr(sparse, "SCATTER", 1e9)
    p = problem(px.L2())
    w = start()
    at = sparse.Sparse.of(p, w)
    dense = p.expand(w)
    rng = np.random.default_rng(2)
    scale = jnp.asarray(rng.uniform(0.5, 2, 40) * (np.asarray(at.c) > 0))
    h = jnp.asarray(10 ** rng.uniform(-2, 2, (40, 3)))
    g = jnp.asarray(rng.standard_normal((40, 3)))
    if V.flat:
        g = jnp.zeros_like(g)
    system = at.system(scale, V)
    A = np.asarray(scale)[:, None, None] * np.asarray(dense.jacobian)
    d = A.shape[-1]
    columns = jnp.asarray(np.moveaxis(A, -1, 0))
    MA = jax.vmap(lambda x: over(V.flat, h, g, x))(columns).reshape(d, -1)
    C = np.eye(d) + A.reshape(-1, d).T @ np.asarray(MA).T
    x = rng.standard_normal(d)
    L, _, _ = jax.jit(lambda: system.factor(h, g))()
    assert np.allclose(system.through(L, jnp.asarray(x)), np.linalg.solve(C, x))
    size = rng.uniform(0, 1, d)
    size[::7] = 0  # entries that do not move
    C = np.eye(d) + size[:, None] * (C - np.eye(d)) * size
    narrow = system.stretched(jnp.asarray(size))
    L, _, _ = jax.jit(lambda: narrow.factor(h, g))()
    assert np.allclose(narrow.through(L, jnp.asarray(x)), np.linalg.solve(C, x))
    v = rng.standard_normal((40, 3))
    assert np.allclose(narrow.push(jnp.asarray(x)), A @ (size * x))
    assert np.allclose(system.push(jnp.asarray(x)), A @ x)
    pulled = np.einsum("nkd,nk->d", A, v)
    assert np.allclose(system.pull(jnp.asarray(v)), pulled)
    assert np.all(np.asarray(at.push_error(jnp.asarray(x))) > 0)
    counts = np.asarray(at.c) > 0
    size = np.einsum("nkd,d->nk", np.abs(dense.jacobian), np.abs(x))
    bound = np.asarray(at.push_error(jnp.asarray(x)))
    assert np.all(bound[counts] >= 1e-16 * size[counts])


def test_panels_solve_a_system(monkeypatch):
    monkeypatch.setattr(sparse, "PANEL", 4)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((11, 15))
    x = rng.standard_normal(11)
    found = sparse.Panels(jnp.asarray(X @ X.T)).solve(jnp.asarray(x))
    assert np.allclose(found, np.linalg.solve(X @ X.T, x))
    assert sparse.Panels(jnp.zeros((0, 0))).solve(jnp.zeros(0)).shape == (0,)


def factorisation(penalty=None):
    rng = np.random.default_rng(4)
    U, V = rng.standard_normal((12, 2)), rng.standard_normal((8, 2))
    i, j = (x.ravel() for x in np.indices((12, 8)))
    kept = rng.random(i.size) < 0.7
    i, j = i[kept], j[kept]
    y = np.sum(U[i] * V[j], axis=1)
    y[::9] += 5.0
    phi = px.touches(
        lambda local, s: local["U"] @ local["V"] - s[2],
        lambda s: {"U": s[0], "V": s[1]},
    )
    w = {"U": U + 0.3, "V": V - 0.2}
    data = (i, j, y)
    return px.MeanOfLosses(phi, px.Huber(0.2), data, ridge=1e-3, penalty=penalty), w


@pytest.mark.parametrize(
    "penalty", [None, px.NonNegative()], ids=["plain", "nonnegative"]
)
@pytest.mark.parametrize("kappa", [None, 0.02])
def test_prox_linear_ends_where_it_did(kappa, penalty, monkeypatch):
    p, w = factorisation(penalty)
    assert exact.structure(p, w) is None  # small
    settings = {"steps": 100, "tol": 1e-7}
    dense = px.minimize(p, w, px.prox_linear(kappa), **settings)
    monkeypatch.setattr(sparse, "DENSE", 0)
    px.clear_caches()
    assert exact.structure(p, w) is sparse.Sparse
    found = px.minimize(p, w, px.prox_linear(kappa), **settings)
    assert found.value == pytest.approx(dense.value, rel=1e-6)
    begin = jax.tree.map(lambda x: jnp.asarray(np.maximum(x, 0) if penalty else x), w)
    assert found.value < 0.8 * float(p.value(begin))
    assert found.w["U"].shape == (12, 2)
    assert penalty is None or min(float(x.min()) for x in found.w.values()) == 0


def test_a_sweep_minimises_over_each_row():
    """Here phi is linear in each leaf: the answer is that of a small problem for each row."""
    p, w = factorisation()
    p = px.MeanOfLosses(p.inner, px.SquaredL2(), p.data, ridge=1e-3)
    w = {name: jnp.asarray(x) for name, x in w.items()}
    found = sweeps.sweep(p, w, jnp.asarray(1e-12))
    i, j, y = (np.asarray(x) for x in p.data)
    for row in range(12):
        mine = i == row
        A = np.asarray(w["V"])[j[mine]]
        H = A.T @ A / len(i) + 1e-3 * np.eye(2)
        wanted = np.linalg.solve(H, A.T @ y[mine] / len(i))
        assert np.allclose(found["U"][row], wanted, atol=1e-6)
    assert float(p.value(found)) < float(p.value(w))


def test_a_sweep_within_bounds_minimises_over_each_row():
    p, w = factorisation()
    bounds = {"U": px.NonNegative(), "V": px.Bounds(-0.3, 0.8)}
    p = px.MeanOfLosses(p.inner, px.SquaredL2(), p.data, ridge=1e-3, penalty=bounds)
    w = p.feasible({name: jnp.asarray(x) for name, x in w.items()})
    found = sweeps.sweep(p, w, jnp.asarray(1e-12))
    i, j, y = (np.asarray(x) for x in p.data)
    ends = {"U": (0.0, np.inf), "V": (-0.3, 0.8)}
    steps = [("U", i, j, w["V"]), ("V", j, i, found["U"])]
    at_bounds = 0
    for name, mine, other, held in steps:
        for row in range(len(found[name])):
            A = np.asarray(held)[other[mine == row]]
            rows = np.concatenate([A, np.sqrt(1e-3 * len(i)) * np.eye(2)])
            target = np.concatenate([y[mine == row], np.zeros(2)])
            wanted = scipy.optimize.lsq_linear(rows, target, ends[name]).x
            assert np.allclose(found[name][row], wanted, atol=2e-3)
        at_bounds += np.sum(np.isin(found[name], ends[name]))
    assert at_bounds > 3
    assert float(p.value(found)) < float(p.value(w))


@pytest.mark.parametrize("outer", [px.Huber(0.2), px.L1(), px.SquaredL2()], ids=repr)
@pytest.mark.parametrize(
    "penalty",
    [px.NonNegative(), {"U": None, "V": px.L1Penalty(0.02)}],
    ids=["low", "l1"],
)
def test_sweeps_with_a_penalty_save_steps(outer, penalty):
    p, w = factorisation()
    p = px.MeanOfLosses(p.inner, outer, p.data, ridge=1e-3, penalty=penalty)
    settings = {"steps": 60, "tol": 1e-7}
    plain = px.minimize(p, w, px.prox_linear(), **settings)
    found = px.minimize(p, w, px.prox_linear(sweeps=4), **settings)
    values = np.asarray(found.history["value"])
    assert np.all(np.diff(values) <= 0)
    assert found.value == pytest.approx(float(p.value(found.w)), rel=1e-12)
    goal = 1.01 * max(found.value, plain.value)
    arrived = [int(np.argmax(np.asarray(x.history["value"]) <= goal)) for x in (plain, found)]  # fmt: skip
    assert arrived[1] <= arrived[0]


def test_a_row_that_gets_worse_stays():
    """phi is a cubic: the rows where a Newton step goes too far are as they were."""
    phi = px.touches(lambda x, s: x**3 - s[1], lambda s: s[0])
    at = np.array([2.0, 1e-3])
    p = px.MeanOfLosses(phi, px.SquaredL2(), (np.array([0, 1]), np.array([1.0, 1.0])))
    w = jnp.asarray(at)[:, None]
    found = sweeps.sweep(p, w, jnp.asarray(1e-12))
    assert float(found[1, 0]) == 1e-3
    assert 1 < float(found[0, 0]) < 2


def test_sweeps_save_steps():
    p, w = factorisation()
    settings = {"steps": 100, "tol": 1e-7}
    plain = px.minimize(p, w, px.prox_linear(), **settings)
    found = px.minimize(p, w, px.prox_linear(sweeps=4), **settings)
    assert found.value <= plain.value * (1 + 1e-6)
    goal = 1.01 * found.value
    arrived = [int(np.argmax(np.asarray(x.history["value"]) <= goal)) for x in (plain, found)]  # fmt: skip
    assert arrived[1] < arrived[0]
    values = np.asarray(found.history["value"])
    assert np.all(np.diff(values) <= 0)
    assert found.value == pytest.approx(float(p.value(found.w)), rel=1e-12)


def test_sweeps_pay_for_their_calls():
    counter = Counter()
    p, w = factorisation()
    phi = px.touches(counter(p.inner.inner), p.inner.select)
    data = tuple(x[:64] for x in p.data)  # no rows are added to these
    q = px.MeanOfLosses(phi, px.Huber(0.2), data)
    with counter.calls() as calls:
        found = px.minimize(q, w, px.prox_linear(sweeps=2), steps=3)
    values = q.prices(w).value * len(found.history["value"])
    assert calls.cost == found.cost + values
    plain = px.minimize(q, w, px.prox_linear(), steps=3)
    assert found.cost.vjp > plain.cost.vjp


def test_rescaled_rows_are_still_sparse(monkeypatch):
    p, w = factorisation()
    p = px.MeanOfLosses(p.inner, px.Huber(0.2), p.data)
    w = {name: jnp.asarray(x) for name, x in w.items()}
    scale = {"U": jnp.full((12, 2), 3.0), "V": jnp.full((8, 2), 0.1)}
    seen = px.Rescaled(px.prox_linear())._seen(p, scale)
    units = jax.tree.map(jnp.divide, w, scale)
    assert float(seen.value(units)) == pytest.approx(float(p.value(w)), rel=1e-12)
    monkeypatch.setattr(sparse, "DENSE", 0)
    assert exact.structure(seen, units) is sparse.Sparse
    dense = seen.expand(units).jacobian
    d = np.random.default_rng(6).standard_normal(dense.shape[-1])
    pushed = sparse.Sparse.of(seen, units).push(jnp.asarray(d))
    assert np.allclose(pushed, dense @ d)


def test_problems_without_rows_have_no_sweeps():
    p, w = factorisation(px.GroupL2(0.1))
    assert sweeps.rows_of(p, w) is None
    plain = px.MeanOfLosses(lambda w, x: w**2 - x, px.L1(), np.ones((4, 3)))
    ways = (px.prox_linear(), px.prox_linear(sweeps=3))
    first, second = (px.minimize(plain, np.full(3, 2.0), way, steps=3) for way in ways)
    assert first.value == second.value and first.cost == second.cost


@pytest.mark.parametrize("settings", [{"kappa": 1.0}, {"accelerated": True}])
def test_sweeps_need_an_adaptive_kappa(settings):
    with pytest.raises(ValueError, match="sweeps need an adaptive kappa"):
        px.prox_linear(sweeps=1, **settings)
    with pytest.raises(ValueError, match="sweeps"):
        px.prox_linear(sweeps=-1)


def test_what_has_no_pivot_or_a_penalty_on_groups_is_as_before(monkeypatch):
    monkeypatch.setattr(sparse, "DENSE", 0)
    p, w = factorisation(px.GroupL2(0.1))
    assert exact.structure(p, w) is None and exact.is_dense(p, w)
    chain = px.touches(lambda x, s: x[1] - x[0] - s[1], lambda s: s[0])
    data = (np.array([[0, 1], [1, 2]]), np.ones(2))
    q = px.MeanOfLosses(chain, px.L1(), data)
    assert exact.structure(q, jnp.zeros(3)) is None
    assert float(q.value(jnp.arange(3.0))) == 0
    plain = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.ones((4, 3)))
    assert exact.structure(plain, jnp.zeros(3)) is None


def test_other_solvers_see_a_function_of_w():
    p, w = factorisation()
    before = float(p.value(w))
    for solver in (px.sgd(0.05), px.lbfgs()):
        assert px.minimize(p, w, solver, steps=20).value < before


SLIPS = {
    "another tree": (lambda s: {"U": s[0]}, ValueError, "tree like w"),
    "a float": (lambda s: {"U": s[2], "V": s[1]}, TypeError, "must be integers"),
    "a pair": (lambda s: {"U": (s[0], s[0]), "V": s[1]}, TypeError, "vector of integers"),
    "a matrix": (
        lambda s: {"U": jnp.zeros((2, 2), int), "V": s[1]},
        ValueError,
        "one index or a vector",
    ),
}  # fmt: skip


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_of_select_is_told(slip):
    wrong, kind, sentence = SLIPS[slip]
    p, w = factorisation()
    phi = px.touches(lambda local, s: local["U"] @ local["V"] - s[2], wrong)
    with pytest.raises(kind, match=sentence):
        px.MeanOfLosses(phi, px.L1(), p.data).value(w)


def test_a_number_has_no_rows():
    phi = px.touches(lambda local, s: local - s[1], lambda s: s[0])
    p = px.MeanOfLosses(phi, px.L1(), (np.zeros(2, int), np.ones(2)))
    with pytest.raises(ValueError, match="has no rows"):
        p.value(jnp.asarray(1.0))


def test_touches_needs_functions():
    with pytest.raises(TypeError, match="select"):
        px.touches(lambda local, s: local, 3)
    with pytest.raises(TypeError, match="inner"):
        px.touches(3, lambda s: s)


def test_a_row_that_is_not_there_is_nan():
    p, w = factorisation()
    w = {"U": w["U"][:3], "V": w["V"]}
    assert np.isnan(float(p.value(w)))


@pytest.mark.parametrize("index", [12, -13])
def test_a_row_that_is_not_there_is_named(index):
    p, w = factorisation()
    i, j, y = (np.array(x) for x in p.data)
    i[7] = index
    q = px.MeanOfLosses(p.inner, p.outer, (i, j, y))
    sentence = rf"Sample 7 touches row {index} of w\['U'\], which has 12 rows"
    with pytest.raises(ValueError, match=sentence):
        px.minimize(q, w, px.sgd(0.1), steps=1)
    with pytest.raises(ValueError, match=sentence):
        px.solve_subproblem(q, w, 1.0)


def test_a_negative_index_counts_from_the_end():
    p, w = factorisation()
    i, j, y = (np.array(x) for x in p.data)
    q = px.MeanOfLosses(p.inner, p.outer, (i - 12, j, y), ridge=1e-3)
    assert float(q.value(w)) == float(p.value(w))
    assert np.isfinite(px.minimize(q, w, px.sgd(0.1), steps=1).value)
