"""The oracles against brute force: every grid up to 5x5 and every chain up to length 5 with 4
labels.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from proxlin.oracles import AbstractOracle, Chains, MonotonePaths
from proxlin.oracles.paths import COUNTED

pytestmark = pytest.mark.reference

GRIDS = [MonotonePaths(rows, cols) for rows in range(1, 6) for cols in range(1, 6)]
CHAINS = [Chains(length, labels) for length in range(1, 6) for labels in range(1, 5)]

# Most of the time here is compilation of small programs, which need no optimisation.
quick = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)


@functools.cache
def outputs(oracle: AbstractOracle) -> np.ndarray:
    """Y as the rows of a matrix, in the order in which ties are broken."""
    if isinstance(oracle, MonotonePaths):
        return np.array(
            list(paths(oracle.rows - 1, oracle.cols - 1, oracle.rows, oracle.cols))
        )
    assert isinstance(oracle, Chains)
    backwards = itertools.product(range(oracle.labels), repeat=oracle.length)
    return np.array([chain(labels[::-1], oracle.labels) for labels in backwards])


def paths(r, c, rows, cols):
    """All paths that end in (r, c): those through the cell above first."""
    here = np.zeros(rows * cols)
    here[r * cols + c] = 1
    if r == c == 0:
        yield here
    if r > 0:
        yield from (here + path for path in paths(r - 1, c, rows, cols))
    if c > 0:
        yield from (here + path for path in paths(r, c - 1, rows, cols))


def chain(labels, count):
    unary, pairwise = (
        np.zeros((len(labels), count)),
        np.zeros((len(labels) - 1, count, count)),
    )
    for t, label in enumerate(labels):
        unary[t, label] = 1
    for t, (label, following) in enumerate(itertools.pairwise(labels)):
        pairwise[t, label, following] = 1
    return np.concatenate([unary.ravel(), pairwise.ravel()])


def scores(oracle, a):
    """<a, y> for all rows a and all outputs; -inf where a forbids a part of y."""
    y = outputs(oracle)
    forbidden = np.isneginf(a)
    return np.where(forbidden @ y.T > 0, -np.inf, np.where(forbidden, 0, a) @ y.T)


def best(oracle, a, count):
    """`top` by enumeration: a stable sort, and zeros where there is no output."""
    z, y = scores(oracle, a), outputs(oracle)
    order = np.argsort(-z, axis=1, kind="stable")[:, :count]
    missing = count - order.shape[1]
    z = np.pad(
        np.take_along_axis(z, order, axis=1),
        ((0, 0), (0, max(missing, 0))),
        constant_values=-np.inf,
    )
    members = np.pad(y[order], ((0, 0), (0, max(missing, 0)), (0, 0)))
    return z, np.where(np.isneginf(z)[..., None], 0, members)


def instances(oracle, each=6):
    """Random scores, integers with many ties, all equal, negative ones, and some with forbidden
    parts.
    """
    rng = np.random.default_rng(oracle.size())
    shape = (each, oracle.size())
    mixed = np.where(rng.random(shape) < 0.15, -np.inf, rng.integers(-2, 3, shape))
    return np.concatenate(
        [
            rng.normal(size=shape),
            rng.integers(-1, 2, shape),
            np.zeros((1, shape[1])),
            rng.normal(size=shape) - 3,
            mixed,
        ]
    )


@pytest.mark.parametrize("oracle", GRIDS + CHAINS, ids=str)
def test_all_and_one_more_are_brute_force(oracle):
    assert outputs(oracle).shape == (oracle.count(), oracle.size())
    check_top(oracle, [oracle.count() + 1])


@pytest.mark.parametrize("oracle", [MonotonePaths(4, 5), Chains(5, 4)], ids=str)
def test_top_is_brute_force(oracle):
    check_top(oracle, [1, 2, 3, 10, oracle.count() - 1, oracle.count()])


@pytest.mark.slow
@pytest.mark.parametrize("oracle", GRIDS + CHAINS, ids=str)
def test_top_is_brute_force_everywhere(oracle):
    check_top(
        oracle, [1, 2, 3, 10, oracle.count() - 1, oracle.count(), oracle.count() + 1]
    )


def check_top(oracle, counts):
    a = instances(oracle)
    for count in sorted(set(counts) - {0}):
        z, members = quick(jax.vmap(lambda a, count=count: oracle.top(a, count)))(a)
        expected, expected_members = best(oracle, a, count)
        np.testing.assert_allclose(
            z, expected, atol=1e-12, err_msg=f"scores of top {count}"
        )
        np.testing.assert_array_equal(
            members, expected_members, err_msg=f"members of top {count}"
        )


@pytest.mark.parametrize("count", [COUNTED, COUNTED + 1, 2 * COUNTED])
def test_both_ways_to_the_best_paths_are_brute_force(count):
    oracle = MonotonePaths(5, 4)
    a = instances(oracle, 20)
    z, members = quick(jax.vmap(lambda a: oracle.top(a, count)))(a)
    expected, expected_members = best(oracle, a, count)
    np.testing.assert_allclose(z, expected, atol=1e-12)
    np.testing.assert_array_equal(members, expected_members)


@pytest.mark.parametrize("count", [10, 32, 50])
def test_a_large_grid_is_the_naive_recursion(count):
    """12x12 in float32, on integers: every sum is exact, so that the order is too, and most ranks
    are tied.
    """
    rows = cols = 12
    a = np.random.default_rng(0).integers(-3, 4, (4, rows * cols)).astype(np.float32)
    z, members = quick(jax.vmap(lambda a: MonotonePaths(rows, cols).top(a, count)))(a)
    assert z.dtype == members.dtype == np.float32
    for grid, found, score in zip(a, members, z, strict=True):
        lists = {}
        for r, c in itertools.product(range(rows), range(cols)):
            before = lists.get((r - 1, c), []) + lists.get((r, c - 1), []) or [(0, ())]
            ended = [
                (s + grid[r * cols + c], (*path, r * cols + c)) for s, path in before
            ]
            lists[r, c] = sorted(ended, key=lambda entry: -entry[0])[:count]
        final = lists[rows - 1, cols - 1]
        np.testing.assert_array_equal(score, [s for s, _ in final])
        np.testing.assert_array_equal(
            [np.flatnonzero(y).tolist() for y in found], [path for _, path in final]
        )


@pytest.mark.parametrize("oracle", zoo.ORACLES.values(), ids=zoo.ORACLES)
def test_marginals_are_a_softmax_over_outputs(oracle):
    a = instances(oracle)
    z, y = scores(oracle, a), outputs(oracle)
    possible = np.isfinite(z).any(axis=1)
    log_partition = np.where(possible, np.logaddexp.reduce(z, axis=1), -np.inf)
    p = np.where(
        possible[:, None], np.exp(z - np.where(possible, log_partition, 0)[:, None]), 0
    )

    value, marginals = quick(
        jax.vmap(lambda a: (oracle.log_partition(a), oracle.marginals(a)))
    )(a)
    np.testing.assert_allclose(value, log_partition, atol=1e-12)
    np.testing.assert_allclose(marginals, p @ y, atol=1e-12)
    if oracle.count() > 1:
        gradient = quick(jax.vmap(jax.grad(oracle.log_partition)))(a)
        np.testing.assert_allclose(gradient, p @ y, atol=1e-12)


def test_low_temperature_marginals_are_the_argmax():
    oracle = MonotonePaths(5, 5)
    a = np.random.default_rng(0).normal(size=(5, 25)).astype(np.float32)
    nu = np.float32(1e-6)
    log_partition, marginals = quick(
        jax.vmap(lambda a: (oracle.log_partition(a), oracle.marginals(a)))
    )(a / nu)
    z, members = best(oracle, a, 1)
    np.testing.assert_allclose(marginals, members[:, 0], atol=1e-6)
    np.testing.assert_allclose(nu * log_partition, z[:, 0], rtol=1e-5)


@pytest.mark.parametrize("count", [4, COUNTED + 1])
@pytest.mark.parametrize("oracle", [MonotonePaths(3, 4), Chains(3, 3)], ids=str)
def test_vmap_jit_scan_and_loop_agree(oracle, count):
    a = instances(oracle, 3)
    top = lambda a: oracle.top(a, count)
    batch = quick(jax.vmap(top))(a)
    one = quick(top)
    loop = [np.stack(x) for x in zip(*[one(each) for each in a], strict=True)]
    eager = [np.stack(x) for x in zip(*[top(each) for each in a[:2]], strict=True)]
    scanned = quick(
        lambda a: jax.lax.scan(lambda carry, each: (carry, top(each)), 0, a)[1]
    )(a)
    nested = quick(jax.vmap(jax.vmap(top), in_axes=1, out_axes=1))(
        a[:12].reshape(6, 2, oracle.size())
    )
    for k in (0, 1):
        np.testing.assert_array_equal(batch[k], loop[k])
        np.testing.assert_array_equal(batch[k][:2], eager[k])
        np.testing.assert_array_equal(batch[k], scanned[k])
        np.testing.assert_array_equal(
            batch[k][:12], np.reshape(nested[k], batch[k][:12].shape)
        )


@pytest.mark.parametrize("oracle", [MonotonePaths(3, 4), Chains(3, 3)], ids=str)
def test_derivatives(oracle):
    rng = np.random.default_rng(1)
    a, toward = rng.normal(size=(2, oracle.size()))

    @quick
    def derivatives(a, toward):
        scores = lambda a: oracle.top(a, 3)[0]
        return {
            "members": oracle.top(a, 3)[1],
            "reverse": jax.jacrev(scores)(a),
            "forward": jax.jvp(scores, (a,), (toward,))[1],
            "batched": jax.vmap(jax.grad(oracle.score))(
                jnp.stack([a, jnp.zeros_like(a)])
            ),
            "best": (oracle.score(a), oracle.argmax(a)),
        }

    found = derivatives(a, toward)
    np.testing.assert_allclose(found["reverse"], found["members"])
    np.testing.assert_allclose(found["forward"], found["members"] @ toward)
    np.testing.assert_allclose(found["batched"][0], found["members"][0])
    np.testing.assert_array_equal(found["best"][1], found["members"][0])
    np.testing.assert_allclose(found["best"][0], a @ found["members"][0])
    assert set(np.unique(found["batched"][1])) == {0.0, 1.0}, (
        "the gradient at a tie is one output"
    )


def test_marginals_have_derivatives():
    oracle = MonotonePaths(3, 3)
    a, toward = np.random.default_rng(1).normal(size=(2, 9))
    marginals, step = quick(oracle.marginals), 1e-6
    change = (marginals(a + step * toward) - marginals(a - step * toward)) / (2 * step)
    forward, reverse = quick(
        lambda a, v: (
            jax.jvp(oracle.marginals, (a,), (v,))[1],
            jax.vjp(oracle.marginals, a)[1](v)[0],
        )
    )(a, toward)
    np.testing.assert_allclose(forward, change, atol=1e-8)
    np.testing.assert_allclose(
        reverse, change, atol=1e-8, err_msg="a Hessian is symmetric"
    )


@pytest.mark.parametrize("oracle", [MonotonePaths(3, 4), Chains(3, 3)], ids=str)
def test_scores_that_are_not_finite(oracle):
    a = np.random.default_rng(2).normal(size=(3, oracle.size()))
    a[0, 2], a[1, 2], a[2] = np.nan, np.inf, -np.inf
    ask = quick(
        jax.vmap(
            lambda a: (*oracle.top(a, 3), oracle.log_partition(a), oracle.marginals(a))
        )
    )
    z, members, log_partition, marginals = ask(a)
    assert np.isnan(z[:2]).all() and np.isnan(log_partition[:2]).all()
    assert set(np.unique(members)) <= {0.0, 1.0}
    assert np.isfinite(marginals).all()
    assert np.isneginf(z[2]).all() and np.isneginf(log_partition[2])
    assert not members[2].any() and not marginals[2].any()


def test_padded_chains_are_the_shorter_ones():
    long, lengths = Chains(4, 3), np.arange(1, 5)
    rng = np.random.default_rng(0)
    a, truth = rng.normal(size=long.size()), rng.integers(0, 3, 4)

    @quick
    @jax.vmap
    def ask(length):
        padded = long.pad(a, length)
        return (
            *long.top(padded, 82),
            long.log_partition(padded),
            long.cost(long.encode(truth, length)),
        )

    unary, pairwise = a[:12].reshape(4, 3), a[12:].reshape(3, 3, 3)
    for length, z, members, log_partition, cost in zip(
        lengths, *map(np.asarray, ask(lengths)), strict=True
    ):
        short = Chains(length, 3)
        head = np.concatenate([unary[:length].ravel(), pairwise[: length - 1].ravel()])[
            None
        ]
        expected, expected_members = best(short, head, 82)
        np.testing.assert_allclose(z, expected[0], atol=1e-12)
        np.testing.assert_allclose(
            log_partition, np.logaddexp.reduce(expected[0]), atol=1e-12
        )
        exist = slice(short.count())
        labels = members[exist, :12].reshape(-1, 4, 3).argmax(-1)
        short_labels = (
            expected_members[0][exist, : 3 * length].reshape(-1, length, 3).argmax(-1)
        )
        np.testing.assert_array_equal(labels[:, :length], short_labels)
        assert not labels[:, length:].any()
        # wrong labels are counted among the first ones only
        np.testing.assert_array_equal(
            members[exist] @ cost, (short_labels != truth[:length]).sum(-1)
        )


def test_encode_and_decode():
    oracle = Chains(3, 4)
    labels = np.array([2, 0, 3])
    y = oracle.encode(labels)
    np.testing.assert_array_equal(y, chain(labels, 4))
    np.testing.assert_array_equal(oracle.decode(y), labels)
    np.testing.assert_array_equal(oracle.decode(oracle.encode(labels, 1)), [2, 0, 0])


@pytest.mark.parametrize("oracle", zoo.ORACLES.values(), ids=zoo.ORACLES)
def test_cost_counts_mistakes(oracle):
    y = outputs(oracle)[:: max(1, oracle.count() // 40)]
    cost = jax.vmap(oracle.cost)(y[:8])
    if isinstance(oracle, MonotonePaths):
        mistakes = ((y[:8, None] != y[None]).sum(-1)) / 2
    else:
        labels = np.asarray(jax.vmap(oracle.decode)(y))
        mistakes = (labels[:8, None] != labels[None]).sum(-1)
    np.testing.assert_array_equal(cost @ y.T, mistakes)


@pytest.mark.parametrize("oracle", zoo.ORACLES.values(), ids=zoo.ORACLES)
def test_sizes_and_norms(oracle):
    y = outputs(oracle)
    assert oracle.ones() == y.sum(1).max()
    if len(y) <= 100:
        assert oracle.diameter() == (y[:, None] != y[None]).sum(-1).max()
    extended = np.hstack([y, -np.ones((len(y), 1))])
    rng = np.random.default_rng(0)
    for count in {min(2, len(y)), min(5, len(y)), len(y)}:
        for _ in range(20):
            rows = extended[rng.permutation(len(y))[:count]]
            norm = np.linalg.norm(rows - rows.mean(0), 2) ** 2
            assert norm <= oracle.operator_norm(count) + 1e-9
    assert oracle.operator_norm() == oracle.operator_norm(oracle.count())


def test_the_bound_of_the_norm_is_reached():
    """Two paths along opposite borders share the corners only."""
    oracle = MonotonePaths(4, 5)
    pair = np.stack([outputs(oracle)[0], outputs(oracle)[-1]])
    norm = np.linalg.norm(pair - pair.mean(0), 2) ** 2
    assert math.isclose(norm, oracle.operator_norm(2))


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "3", None])
def test_sizes_are_positive_integers(bad):
    for make, sizes in itertools.product((MonotonePaths, Chains), ((bad, 2), (2, bad))):
        with pytest.raises(
            ValueError, match=r"must be a whole number from 1 to .*; it is .*\.$"
        ):
            make(*sizes)


def test_wrong_use_is_a_sentence():
    oracle = MonotonePaths(np.int64(2), 3)
    assert type(oracle.rows) is int
    with pytest.raises(
        ValueError,
        match=r"takes a vector of 6 parts, but the array has the shape \(5,\)",
    ):
        oracle.top(jnp.zeros(5), 1)
    with pytest.raises(
        ValueError,
        match=r"takes a vector of 6 parts, but the array has the shape \(7,\)",
    ):
        oracle.cost(jnp.zeros(7))
    with pytest.raises(
        ValueError,
        match="asked of `top` must be a whole number from 1 to .*; it is int 0",
    ):
        oracle.top(jnp.zeros(6), 0)
    with pytest.raises(
        ValueError, match=r"takes 2 labels, but the array has the shape \(3,\)"
    ):
        Chains(2, 2).encode(np.array([0, 1, 1]))


def test_counts_are_exact_integers():
    assert MonotonePaths(24, 24).count() == math.comb(46, 23)
    assert Chains(14, 26).count() == 26**14


@pytest.mark.parametrize("dtype, scale", [(np.float32, 1e30), (np.float64, 1e150)])
def test_large_scores_are_not_forbidden_ones(dtype, scale):
    """A score of -1e30 is allowed in float32: cells outside the grid, and forbidden ones, must stay
    below it.
    """
    oracle = MonotonePaths(3, 4)
    a = np.where(
        np.random.default_rng(0).random((8, 12)) < 0.2, -np.inf, -scale
    ).astype(dtype)
    a[0] = -scale
    log_partition, marginals = quick(
        jax.vmap(lambda a: (oracle.log_partition(a), oracle.marginals(a)))
    )(a)
    open_paths = np.isfinite(scores(oracle, a.astype(float)))
    expected = np.where(open_paths.any(1), -6 * scale, -np.inf)
    np.testing.assert_allclose(log_partition, expected, rtol=1e-6)
    np.testing.assert_allclose(
        marginals.sum(1), np.where(open_paths.any(1), 6, 0), rtol=1e-5
    )
    assert 0 < open_paths.any(1).sum() < 8
