"""The laws of the solvers: every one in the zoo, in the one loop."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from counting import Counter
from proxlin.networks import MLP
from proxlin.oracles.base import AbstractOracle
from proxlin.problem import mean_of_losses, rows
from proxlin.run.loop import Limits, advance
from proxlin.solvers.lbfgs import _direction
from proxlin.types import parameters
from zoo import PROBLEMS, SOLVERS, normal, vector

pytestmark = pytest.mark.law

EACH = pytest.mark.parametrize("name", SOLVERS)
# where compiling is all the cost, those whose steps another solver of the zoo takes too are left to
# `make slow`
SAME = (
    "sgd without replacement",
    "averaged",
    "best so far",
    "pli svrg",
    "pli catalyst",
    "pli every step",
    "pli dual",
    "gauss_newton",
    "gauss_newton sarah",
)


def apart(*same):
    """Every solver, `same` marked slow."""
    return pytest.mark.parametrize(
        "name",
        [pytest.param(x, marks=[pytest.mark.slow] * (x in same)) for x in SOLVERS],
    )


def problem_class(name):
    return (
        px.LossOfMean
        if name in SOLVERS and SOLVERS[name].solver.problems is px.LossOfMean
        else px.MeanOfLosses
    )


def small(dtype=jnp.float64, counter=None, name=None):
    """A robust fit of a small network, some of its targets far off; of the class that the solver
    called name needs.
    """
    predict = MLP((3, 4, 2))
    x, y = normal(1, 12, 3), normal(2, 12, 2)
    y[3] += 10
    inner = px.residual(predict)
    data = (jnp.asarray(x, dtype), jnp.asarray(y, dtype))
    ridge = 0.0 if name == "rescaled" else 1e-3
    problem = problem_class(name)(
        counter(inner) if counter else inner, px.L2(), data, ridge=ridge
    )
    return problem, predict.init(jax.random.key(0), dtype)


def run(solver, problem, w, seed=0, count=3):
    """init and `count` epochs, as one traceable function."""
    state = solver.init(problem, w)
    steps = jnp.int32(count * solver.epoch(problem))
    return advance(
        problem, solver, state, jax.random.key(seed), jnp.int32(0), Limits(steps)
    )


def leaves(tree):
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def same_bits(a, b):
    return all(
        np.array_equal(x, y, equal_nan=True)
        for x, y in zip(leaves(a), leaves(b), strict=True)
    )


@EACH
def test_a_state_keeps_its_structure_and_dtypes(name):
    """In float32; in float64 the scan of every other law would refuse a state that changes."""
    dtype = jnp.float32
    problem, w = small(dtype, name=name)
    solver = SOLVERS[name].solver
    before = eqx.filter_eval_shape(solver.init, problem, w)
    after, _ = eqx.filter_eval_shape(run, solver, problem, w)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(before)] == [
        (x.shape, x.dtype) for x in jax.tree.leaves(after)
    ]
    assert all(
        x.dtype == dtype for x in jax.tree.leaves(jax.eval_shape(solver.iterate, after))
    )


@EACH
def test_two_settings_share_one_trace_and_the_reported_cost_is_the_calls_made(name):
    counter = Counter()
    problem, w = small(counter=counter, name=name)
    solver = SOLVERS[name].solver
    other = jax.tree.map(lambda x: x * 0.5 if eqx.is_inexact_array(x) else x, solver)
    px.minimize(problem, w, solver, passes=2)
    # prices are asked for from shapes; nothing is traced again to run
    with counter.calls() as shapes:
        solver.prices(problem, w)
    with counter.calls() as calls:
        solution = px.minimize(problem, w, other, passes=2)
    assert calls.traces <= shapes.traces
    # the values of the history are made off the books
    assert calls.cost == solution.cost + problem.prices(w).value * len(
        solution.history["value"]
    )


@pytest.mark.parametrize("name", [name for name in SOLVERS if name.startswith("pli")])
def test_the_price_of_pli_is_the_calls_made_in_several_chunks_too(name, monkeypatch):
    """12 rows in chunks of 5: two of them, and one of the two rows that are left."""
    monkeypatch.setattr(rows, "chunk_size", lambda *_: 5)
    monkeypatch.setattr(mean_of_losses, "chunk_size", lambda *_: 5)
    counter = Counter()
    problem, w = small(counter=counter)
    assert not problem.in_one_chunk(w)
    with counter.calls() as calls:
        solution = px.minimize(problem, w, SOLVERS[name].solver, steps=3)
    values = problem.prices(w).value * len(solution.history["value"])
    assert calls.cost == solution.cost + values


class CountedPaths(AbstractOracle):
    """Monotone paths of a 2x3 grid whose calls are counted."""

    counter: Counter = eqx.field(static=True)
    paths: px.MonotonePaths = px.MonotonePaths(2, 3)

    def size(self):
        return self.paths.size()

    def count(self):
        return self.paths.count()

    def ones(self):
        return self.paths.ones()

    def diameter(self):
        return self.paths.diameter()

    def cost(self, y):
        return self.paths.cost(y)

    def best(self, a, count):
        scores, members = self.paths.best(a, count)
        ticked = jax.vmap(lambda x: self.counter.mark(x, "oracle"))(scores)
        return ticked, members

    def expectations(self, a):
        return self.paths.expectations(a)


@pytest.mark.parametrize("accept", [True, False])
def test_pli_pays_for_every_call_of_an_oracle(accept):
    """With an oracle, F and the smoothed snapshot at one point are two calls for each sample."""
    counter = Counter()
    oracle = CountedPaths(counter)
    x = normal(1, 9, 6)
    y = np.asarray(jax.vmap(oracle.paths.argmax)(jnp.asarray(normal(2, 9, 6))))
    problem = px.MeanOfLosses(
        counter(px.augmented_scores(lambda w, x: jnp.tanh(w * x), oracle)),
        px.StructuredHinge(oracle, 3),
        (x, y),
    )
    w = jnp.ones(6)
    solver = px.pli(0.1, 0.5, 2, step=0.1, accept=accept)
    with counter.calls() as calls:
        solution = px.minimize(problem, w, solver, steps=2)
    values = problem.prices(w).value * len(solution.history["value"])
    assert calls.cost == solution.cost + values and solution.cost.oracle > 0


@EACH
def test_the_same_seed_gives_the_same_bits(name):
    problem, w = small(name=name)
    solver = SOLVERS[name].solver
    one, two = (px.minimize(problem, w, solver, passes=30, seed=3) for _ in range(2))
    assert same_bits(one.w, two.w) and same_bits(
        one.history["value"], two.history["value"]
    )
    other = px.minimize(problem, w, solver, passes=30, seed=4)
    assert solver.full_batch() == same_bits(one.w, other.w)


@apart(*SAME, "prox_linear fixed", "prox_linear accelerated")
def test_vmap_over_settings_and_seeds(name):
    """An epoch of two settings and two seeds at once is that of minimize, one by one."""
    problem, w = small(name=name)
    solver = SOLVERS[name].solver
    numbers, structure = eqx.partition(solver, eqx.is_inexact_array)
    each = [jax.tree.map(lambda x, f=f: x * f, numbers) for f in (1.0, 0.7)]

    def go(numbers, seed):
        solver = eqx.combine(numbers, structure)
        limits = Limits(jnp.int32(solver.epoch(problem)))
        state = solver.init(problem, w)
        return advance(
            problem, solver, state, jax.random.key(seed), jnp.int32(0), limits
        )[1].w

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *each)
    batch = eqx.filter_jit(eqx.filter_vmap(go))(stacked, jnp.arange(2))
    for i, numbers in enumerate(each):
        alone = px.minimize(
            problem,
            w,
            eqx.combine(numbers, structure),
            steps=solver.epoch(problem),
            seed=i,
        )
        for x, y in zip(leaves(batch), leaves(alone.w), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        pytest.param(name, where, marks=[pytest.mark.slow] * (i > 0))
        for name, case in SOLVERS.items()
        for i, where in enumerate(case.problems)
    ],
)
def test_the_known_optimum_is_reached_within_the_stated_cost(name, where):
    case, known = SOLVERS[name], PROBLEMS[where]()
    solution = px.minimize(known.problem, known.w, case.solver, passes=case.passes)
    assert solution.history["passes"][-1] <= case.passes * 1.25 + 20
    assert solution.history["value"].min() - known.value <= case.gap


@EACH
def test_going_on_equals_not_having_stopped(name, tmp_path):
    problem, w = small(name=name)
    solver = SOLVERS[name].solver
    epoch = solver.epoch(problem)
    some = max(epoch // 2, 1)
    whole = px.minimize(problem, w, solver, steps=2 * epoch + some, seed=5)
    half = px.minimize(problem, w, solver, steps=epoch + some, seed=5)
    half.save(tmp_path / "half")
    for start in (half, px.load_solution(tmp_path / "half")):
        rest = px.minimize(problem, w, solver, steps=2 * epoch + some, resume=start)
        assert same_bits(rest.w, whole.w) and same_bits(rest.state, whole.state)
        assert rest.status == whole.status and rest.cost == whole.cost
        for column in whole.history:
            if column != "seconds":
                np.testing.assert_array_equal(
                    rest.history[column], whole.history[column]
                )


@apart(*SAME)
def test_a_blow_up_ends_with_the_best_finite_iterate(name):
    predict = MLP((3, 4, 2))
    start = jax.tree.map(lambda x: 3 * x, predict.init(jax.random.key(0)))
    cube = lambda w, s: predict(w, s[0]) ** 5 - s[1]
    problem = problem_class(name)(
        cube, px.SquaredL2(), (normal(1, 12, 3), normal(2, 12, 2))
    )
    wild = {
        "sgd": px.sgd(1e3),
        "svrg": px.svrg(1e3),
        "casimir_svrg": px.casimir_svrg(0.1, step=1e3),
        "subgradient_descent": px.subgradient_descent(1e4),
        "averaged": px.Averaged(px.sgd(1e3)),
    }.get(name)
    if wild is None:  # safeguarded, or certified: nothing to blow up
        solution = px.minimize(problem, start, SOLVERS[name].solver, steps=3)
        assert all(np.isfinite(x).all() for x in leaves(solution.w))
        return
    solution = px.minimize(problem, start, wild, passes=50)
    assert solution.status == "diverged"
    assert all(np.isfinite(x).all() for x in leaves(solution.w))
    assert (
        solution.value
        == float(problem.value(solution.w))
        <= float(problem.value(start))
    )
    assert "smaller step" in solution.message


# the driver


def test_history_is_the_contract():
    problem, w = small()
    seen = []
    metric = lambda w: float(jnp.sum(w[0]["W"] ** 2))
    solution = px.minimize(
        problem,
        w,
        px.sgd(0.01),
        passes=4,
        metrics={"size": metric},
        stop=lambda w, record: seen.append(record),
    )
    assert set(solution.history) == {"step", "passes", "seconds", "value", "size"}
    assert all(
        column.ndim == 1 and isinstance(column, np.ndarray)
        for column in solution.history.values()
    )
    np.testing.assert_array_equal(solution.history["step"], [0, 12, 24, 36, 48])
    np.testing.assert_array_equal(solution.history["passes"], [0, 1, 2, 3, 4])
    assert solution.history["value"][0] == float(problem.value(w))
    assert (
        solution.history["value"][-1]
        == solution.value
        == float(problem.value(solution.w))
    )
    assert solution.history["size"][-1] == metric(solution.w)
    assert np.all(np.diff(solution.history["seconds"]) > 0)
    assert [record["step"] for record in seen] == [0, 12, 24, 36, 48]
    assert (
        solution.status == "budget"
        and "sgd" in repr(solution)
        and "budget" in repr(solution)
    )


def test_budgets_in_steps_and_fractions_of_a_pass():
    problem, w = small()
    assert px.minimize(problem, w, px.sgd(0.01), steps=17).history["step"].tolist() == [
        0,
        12,
        17,
    ]
    assert px.minimize(problem, w, px.sgd(0.01), passes=0.5).history[
        "step"
    ].tolist() == [0, 6]
    assert px.minimize(problem, w, px.sgd(0.01), passes=0).history["step"].tolist() == [
        0
    ]
    assert px.minimize(problem, w, px.sgd(0.01)).history["passes"][-1] == 100
    assert (
        px.minimize(problem, w, px.subgradient_descent(0.01)).history["step"][-1] == 100
    )
    with pytest.raises(ValueError, match="steps must be a whole number"):
        px.minimize(problem, w, px.sgd(0.01), steps=-1)


def test_stop_rules():
    problem, w = small()
    level = 0.8 * float(problem.value(w))
    noisy = px.minimize(problem, w, px.prox_linear(), stop=px.at_noise_level(level))
    assert (
        noisy.status == "stopped" and noisy.value <= level < noisy.history["value"][-2]
    )
    done = px.minimize(problem, w, px.prox_linear(), steps=300, tol=1e-3)
    assert done.status in ("converged", "stalled")
    ignored = px.minimize(problem, w, px.sgd(0.01), passes=1, tol=1e-3)
    assert ignored.status == "budget" and "tol was not used" in ignored.message
    raised = px.minimize(problem, w, px.prox_linear(), steps=1, tol=1e-30)
    assert "tol was raised" in raised.message
    with pytest.raises(ValueError, match="noise level"):
        px.at_noise_level(float("nan"))


def test_a_start_that_is_not_finite_is_refused():
    problem, w = small()
    with pytest.raises(ValueError, match="F is nan at the start"):
        px.minimize(problem, jax.tree.map(lambda x: x * jnp.nan, w), px.sgd(0.1))


def test_auto_says_what_it_took_and_why():
    problem, w = small()
    solution = px.minimize(problem, w, steps=3)
    assert (
        solution.solver == "prox_linear"
        and "auto took exact prox-linear" in solution.message
    )
    wide = MLP((3, 300, 2))
    x, y = normal(1, 12_000, 3), normal(2, 12_000, 2)
    middle = px.MeanOfLosses(px.residual(wide), px.L2(), (x[:2000], y[:2000]))
    solution = px.minimize(middle, wide.init(jax.random.key(0)), steps=2)
    assert solution.solver == "lbfgs" and "auto took L-BFGS" in solution.message
    large = px.MeanOfLosses(px.residual(wide), px.L2(), (x, y))
    solution = px.minimize(large, wide.init(jax.random.key(0)), passes=0.1)
    assert (
        solution.solver == "sgd" and "auto took sgd with the step" in solution.message
    )
    assert solution.value < solution.history["value"][0]
    with pytest.raises(ValueError, match="auto"):
        px.minimize(problem, w, "newton")


@pytest.mark.parametrize(
    "solver",
    [
        px.svrg(0.1),
        px.casimir_svrg(0.1),
        px.pli(1.0, 0.1),
        px.stochastic_prox_linear(0.1),
    ],
)
def test_loss_of_mean_is_refused_in_a_sentence(solver):
    case = PROBLEMS["mean_equation_linear"]()
    with pytest.raises(
        TypeError,
        match=r"needs a problem of the class MeanOfLosses.*stochastic_gauss_newton\.",
    ):
        px.minimize(case.problem, case.w, solver)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: px.sgd(0.0), "step"),
        (lambda: px.sgd(-1.0), "step"),
        (lambda: px.sgd(0.1, batch_size=0), "batch_size"),
        (lambda: px.sgd(0.1, batch_size=1.5), "batch_size"),
        (lambda: px.svrg(0.1, nu=-1.0), "nu"),
        (lambda: px.casimir_svrg(0.1, warm_start="warm"), "warm_start"),
        (lambda: px.pli(1.0, 0.1, inner="newton"), "inner"),
        (lambda: px.pli(1.0, inner="casimir_svrg"), "nu"),
        (lambda: px.pli(1.0, inner="svrg"), "nu"),
        (lambda: px.pli(1.0, step=0.1), "nu"),
        (lambda: px.pli(1.0, catalyst=0.1), "catalyst"),
        (lambda: px.pli(1.0, 0.1, inner="svrg", catalyst=0.1), "catalyst"),
        (lambda: px.pli(1.0, 0.1, catalyst=0.0), "catalyst"),
        (lambda: px.pli(-1.0, 0.1), "kappa"),
        (lambda: px.pli(1.0, 0.1, inner_passes=0), "inner_passes"),
        (lambda: px.prox_linear(kappa=0.0), "kappa"),
        (lambda: px.prox_linear(tol=0.0), "tol"),
    ],
)
def test_wrong_settings_are_refused_at_construction(make, words):
    with pytest.raises(ValueError, match=words) as refused:
        make()
    assert str(refused.value).endswith(".")


def test_a_batch_without_replacement_needs_the_samples():
    problem, w = small()
    with pytest.raises(ValueError, match="without replacement"):
        px.minimize(problem, w, px.sgd(0.1, batch_size=13, replace=False))


def test_sampling_without_replacement_is_a_permutation():
    problem, _ = small()
    solver = px.sgd(0.1, batch_size=4, replace=False)
    drawn = np.asarray(solver.draw(problem, jax.random.key(0), 6)).reshape(2, 12)
    np.testing.assert_array_equal(np.sort(drawn), np.tile(np.arange(12), (2, 1)))
    assert not np.array_equal(drawn[0], drawn[1])


def test_pli_without_a_smoothing_takes_the_dual_loop():
    """With one it is the paper's Casimir-SVRG, as the figures need it."""
    solvers = (px.pli(1.0), px.pli(1.0, 0.1), px.pli(1.0, 0.1, inner="dual"))
    loops = [type(each.solver.model.inner).__name__ for each in solvers]
    assert loops == ["DualAscent", "CasimirSVRG", "DualAscent"]


def test_pli_with_kappa_0_leans_on_the_ridge():
    """There eq. (3) is argmin of the linearised problem; of a linear map that is one step."""
    case = PROBLEMS["ridge_regression"]()
    for more in ({"nu": 1e-3, "step": 0.03, "inner": "svrg"}, {}):
        solver = px.pli(0.0, inner_passes=100, **more)
        found = px.minimize(case.problem, case.w, solver, steps=1, tol=1e-12)
        assert found.value - case.value <= 1e-3 * case.value
        assert found.status == "budget"  # kappa |w+ - w| = 0 certifies nothing
    bare = px.MeanOfLosses(case.problem.inner, case.problem.outer, case.problem.data)
    for accept in (True, False):
        with pytest.raises(ValueError, match=r"pli with kappa = 0 .* ridge\.$"):
            px.minimize(bare, case.w, px.pli(0.0, accept=accept))


def test_svrg_is_casimir_with_a_vanishing_catalyst():
    """beta = sqrt(kappa / lam) / 2 and less, so the two paths meet as the Catalyst weight goes to 0."""
    problem, w = small()
    settings = (0.3, 0.2, 3, 0.05)
    plain = px.minimize(problem, w, px.pli(*settings, inner="svrg"), steps=3)

    def away(catalyst):
        found = px.minimize(problem, w, px.pli(*settings, catalyst=catalyst), steps=3)
        return max(
            np.abs(x - y).max()
            for x, y in zip(leaves(found.w), leaves(plain.w), strict=True)
        )

    near, far = away(1e-10), away(1.0)
    assert near <= 1e-3 * far and far > 1e-3


@pytest.mark.parametrize("inner", ["casimir_svrg", "svrg", "dual"])
def test_pli_takes_every_step_where_it_is_asked_to(inner):
    """eq. (3) of the paper: nothing is rejected and no F is paid for; an accepted step is the same
    step.
    """
    problem, w = small()
    nu = None if inner == "dual" else 0.3
    free, careful = (
        px.pli(1e-3, nu, 3, inner=inner, accept=accept) for accept in (False, True)
    )
    seen = []
    found = px.minimize(
        problem, w, free, steps=6, metrics={"w": lambda w: seen.append(w) or 0.0}
    )
    assert not any(same_bits(one, two) for one, two in itertools.pairwise(seen))
    kept = px.minimize(problem, w, careful, steps=6)
    assert np.all(np.diff(kept.history["value"]) <= 0)
    prices = problem.prices(w)
    # Careful steps pay for F at the start and after the step; with a snapshot in the same pass, or
    # by itself.
    look = prices.value * 2 if inner == "dual" else prices.subgradient
    first = (
        px.minimize(problem, w, free, steps=1),
        px.minimize(problem, w, careful, steps=1),
    )
    assert first[1].cost == first[0].cost + look
    same = all(
        np.allclose(x, y, rtol=1e-12)
        for x, y in zip(leaves(first[0].w), leaves(first[1].w), strict=True)
    )
    assert same or first[0].value > first[1].value
    assert found.status == "budget"
    with pytest.raises(TypeError, match="stochastic_gauss_newton"):
        px.minimize(*small(name="gauss_newton"), free)


def test_no_step_of_adaptive_prox_linear_or_pli_increases_F():
    problem, w = small()
    for solver in (
        px.prox_linear(),
        px.prox_linear(accelerated=True),
        px.pli(0.1, 0.3),
        px.pli(0.1, 0.3, inner="svrg"),
        px.pli(0.1, inner="dual"),
    ):
        value = px.minimize(problem, w, solver, steps=12).history["value"]
        assert np.all(np.diff(value) <= 1e-14) and value[-1] < value[0]


@pytest.mark.slow
def test_adaptive_kappa_gets_away_where_a_small_fixed_one_stalls():
    """Trap 6: an l1 fit with kappa = 1e-3 sat at 4.6 times the value that an adaptive kappa
    reaches.
    """
    predict = MLP((8, 6, 4))
    truth = predict.init(jax.random.key(1))
    x = normal(3, 40, 8)
    noise = np.random.default_rng(4).laplace(scale=0.05, size=(40, 4))
    y = np.asarray(jax.vmap(lambda x: predict(truth, x))(jnp.asarray(x))) + noise
    problem = px.MeanOfLosses(px.residual(predict), px.L1(), (x, y))
    w = predict.init(jax.random.key(2))
    adaptive = px.minimize(problem, w, px.prox_linear(), steps=25).value
    fixed = px.minimize(problem, w, px.prox_linear(1e-3), steps=25).value
    assert adaptive < 0.5 * fixed


def test_equinox_modules_go_through_minimize_and_files(tmp_path):
    case = PROBLEMS["equinox_l1"]()
    solution = px.minimize(case.problem, case.w, px.sgd(0.01), passes=3)
    assert solution.w.activation is case.w.activation
    solution.save(tmp_path / "solution.npz")
    again = px.load_solution(tmp_path / "solution.npz", like=case.w)
    assert same_bits(parameters(again.w), parameters(solution.w))
    with pytest.raises(ValueError, match="give like=w"):
        px.load_solution(tmp_path / "solution.npz")


def test_damaged_solutions_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "solution.npz"
    with pytest.raises(FileNotFoundError, match="no solution"):
        px.load_solution(path)
    problem, w = small()
    px.minimize(problem, w, px.sgd(0.01), passes=1).save(path)
    whole = path.read_bytes()
    for damaged in (
        b"",
        b"not a zip",
        whole[: len(whole) // 2],
        whole[:200] + bytes(64) + whole[264:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged\.$"):
            px.load_solution(path)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="damaged"):
        px.load_solution(tmp_path / "objects.npy")


def test_a_solution_goes_on_only_with_its_own_solver_and_data():
    problem, w = small()
    solution = px.minimize(problem, w, px.sgd(0.01), passes=1)
    with pytest.raises(ValueError, match="cannot go on"):
        px.minimize(problem, w, px.svrg(0.01), passes=2, resume=solution)
    with pytest.raises(ValueError, match="cannot go on"):
        px.minimize(problem[:6], w, px.sgd(0.01), passes=2, resume=solution)
    with pytest.raises(ValueError, match="same metrics"):
        px.minimize(
            problem,
            w,
            px.sgd(0.01),
            passes=2,
            resume=solution,
            metrics={"a": lambda w: 0.0},
        )
    with pytest.raises(ValueError, match="another shape"):
        px.minimize(
            problem,
            MLP((3, 5, 2)).init(jax.random.key(0), jnp.float64),
            px.sgd(0.01),
            passes=2,
            resume=solution,
        )


def test_as_optax_is_the_same_step():
    import optax

    problem, w = small()
    problem = px.MeanOfLosses(problem.inner, problem.outer, problem.data)
    for solver in (px.stochastic_prox_linear(0.1), px.truncated(0.1), px.sgd(0.1)):
        transform = px.as_optax(solver, problem.inner, problem.outer)
        state = transform.init(w)
        batch = jax.tree.map(lambda x: x[:5], problem.data)
        zeros = jax.tree.map(jnp.zeros_like, w)
        updates, state = jax.jit(transform.update)(zeros, state, w, batch=batch)
        new = optax.apply_updates(w, updates)
        expected, _, _ = eqx.filter_jit(solver.model.minimize)(
            problem[:5], w, jnp.asarray(0.1), None, None
        )
        for x, y in zip(leaves(new), leaves(expected), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-9)
        assert int(state) == 1
    chained = optax.chain(transform, optax.scale(0.5))
    half, _ = chained.update(zeros, chained.init(w), w, batch=batch)
    np.testing.assert_allclose(leaves(half)[0], leaves(updates)[0] / 2, atol=1e-9)
    with pytest.raises(TypeError, match="as_optax needs"):
        px.as_optax(px.svrg(0.1), problem.inner, problem.outer)
    with pytest.raises(ValueError, match="batch=batch"):
        transform.update(zeros, state, w)


def test_truncated_never_overshoots_the_lower_bound():
    problem = px.MeanOfLosses(lambda w, y: w - y, px.L1(), np.array([[3.0]]))
    solution = px.minimize(problem, vector(0.0), px.truncated(100.0), steps=1)
    assert solution.value == 0.0


def test_lbfgs_takes_the_steps_of_a_dense_inverse_and_ends_them_at_weak_wolfe_points():
    problem, w = small()
    solver = px.lbfgs(0.1, memory=3)
    state, step = (
        solver.init(problem, w),
        jax.jit(lambda state: solver.step(problem, state, None)[0]),
    )
    # the places of the oldest pairs are taken again from the fourth step on
    for t in range(8):
        pairs = state.pairs
        before = state.at
        direction = _direction(pairs, before.gradient)
        stored = int(pairs.stored)
        order = [i % 3 for i in range(max(0, stored - 3), stored)]
        S = np.asarray(pairs.S)[order]
        Y = np.asarray(pairs.Y)[order]
        dense = np.eye(before.w.size)
        if order:
            dense *= (S[-1] @ Y[-1]) / (Y[-1] @ Y[-1])
        for s, y in zip(S, Y, strict=True):
            left = np.eye(s.size) - np.outer(s, y) / (s @ y)
            dense = left @ dense @ left.T + np.outer(s, s) / (s @ y)
        np.testing.assert_allclose(
            direction, -dense @ np.asarray(before.gradient), rtol=1e-6, atol=1e-9
        )
        state = step(state)
        moved, slope = state.at.w - before.w, (state.at.w - before.w) @ before.gradient
        assert int(state.pairs.stored) == t + 1
        assert state.at.value <= before.value + 1e-4 * slope
        assert 0.9 * slope <= moved @ state.at.gradient
