"""The one cache of compiled programs: which calls share a program, what it keeps, and threads that
ask at once.
"""

import gc
import math
import threading
import time
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import compiled

X = np.linspace(-1.0, 1.0, 12).reshape(6, 2)
Y = np.ones((6, 3))
W = jnp.asarray(np.full((2, 3), 0.5))


@pytest.fixture
def cache(monkeypatch):
    """A cache of its own, empty at the start."""
    fresh = compiled._Cache()
    monkeypatch.setattr(compiled, "_CACHE", fresh)
    return fresh


def made(cache) -> list:
    return [slot.value for slot in cache.slots.values() if slot.made]


class Scaled(eqx.Module):
    """phi whose result has the kind of its setting: a number that is a leaf, and one that is
    structure.
    """

    leaf: object
    static: object = eqx.field(static=True)

    def __call__(self, w, sample):
        x, y = sample
        sign = math.copysign(1.0, self.leaf) + 2 * math.copysign(1.0, self.static[0])
        kinds = [type(self.leaf).__name__, type(self.static[0]).__name__]
        code = sum(
            10**i * ("int", "bool", "float").index(kind) for i, kind in enumerate(kinds)
        )
        nans = 100 * math.isnan(self.leaf) + 200 * math.isnan(self.static[0])
        return 0.0 * (x @ w) + y * (code + sign + nans)


NUMBERS = (1, True, 1.0, -1.0, 0, False, 0.0, -0.0, math.nan, float("-inf"))


@pytest.mark.parametrize("where", ["leaf", "static"])
def test_numbers_that_python_calls_equal_are_other_programs(where, cache):
    """1, True and 1.0 (0, False, 0.0 and -0.0; nan), as leaves and inside static fields: each has
    its own F.
    """
    for x in (*NUMBERS, *NUMBERS):
        inner = Scaled(x, (1,)) if where == "leaf" else Scaled(1, (x,))
        p = px.MeanOfLosses(inner, px.L1(), (X, Y))
        # by hand, from no cache
        truth = p.outer.value(inner(W, (jnp.asarray(X[0]), jnp.asarray(Y[0]))))
        assert float(p.value(W)) == pytest.approx(float(truth)), x
    assert len(made(cache)) == len(NUMBERS)


def test_equal_structure_shares_a_program_and_other_shapes_and_settings_do_not(cache):
    def half(w, x):
        return 0.5 * (x @ w)

    build = lambda n, dtype=np.float64: px.MeanOfLosses(
        px.residual(half), px.L1(), (X[:n].astype(dtype), Y[:n].astype(dtype))
    )
    build(6).value(W), build(6).value(2 * W), build(6).value(np.asarray(W))
    assert len(made(cache)) == 1
    build(5).value(W)
    build(6).value(W.astype(np.float32))
    assert len(made(cache)) == 3
    with jax.default_matmul_precision("highest"):
        build(6).value(W)
    assert len(made(cache)) == 4
    build(6).subgradient(W)
    assert len(made(cache)) == 5


def test_without_jit_nothing_is_compiled(cache):
    p = px.MeanOfLosses(px.residual(lambda w, x: x @ w), px.L1(), (X, Y))
    with jax.disable_jit():
        value = p.value(W)
    assert not made(cache) and float(value) == float(p.value(W))


def test_the_limits_drop_the_programs_used_least_lately(cache, monkeypatch):
    # ten maps each
    monkeypatch.setattr(compiled, "_count_maps", iter(range(0, 1000, 10)).__next__)
    monkeypatch.setattr(compiled, "MAPS", 30)
    functions = [lambda x, c=c: x + c for c in range(5)]
    for function in functions[:3]:
        compiled.call(function, W)
    first = next(iter(cache.slots.values())).value
    compiled.call(functions[0], W)  # used again: now the second is the oldest
    compiled.call(functions[3], W)
    kept = {ref() for key in cache.slots for ref in key.weak}
    assert kept == {functions[0], functions[2], functions[3]}
    assert (
        next(
            slot.value
            for key, slot in cache.slots.items()
            if key.weak[0]() is functions[0]
        )
        is first
    )
    monkeypatch.setattr(compiled, "BYTES", 10)
    compiled.call(functions[4], W)
    assert len(made(cache)) == 1  # what was made last is kept, whatever it takes


def test_what_is_dropped_stays_valid_for_who_holds_it(cache):
    calls = compiled.Compiled(W)
    function = lambda w, x: w + x
    before, _ = calls(function, W)
    px.clear_caches()
    assert not cache.slots
    np.testing.assert_array_equal(calls(function, W)[0], before)
    assert not cache.slots  # no new program was made for it


def use_value(p):
    p.value(W)
    p.subgradient(W)


def use_minimize(p):
    px.minimize(p, W, px.sgd(0.1), steps=2)


def use_tune(p):
    px.tune(p, W, [px.sgd(0.1)], p, passes=1)


def use_subproblem(p):
    px.solve_subproblem(p, W, 1.0)


@pytest.mark.parametrize(
    "use",
    [
        use_value,
        use_minimize,
        use_tune,
        pytest.param(use_subproblem, marks=pytest.mark.slow),
    ],
)
def test_functions_are_not_kept_alive(use, cache):
    """Nothing in proxlin, equinox or JAX holds a phi and its closure after its problem is gone."""
    phi = lambda w, x: x @ w
    ref = weakref.ref(phi)
    p = px.MeanOfLosses(px.residual(phi), px.L1(), (X, Y))
    del phi
    use(p)
    assert made(cache)
    del p
    gc.collect()
    assert ref() is None
    compiled.call(lambda x: x, W)  # the next compilation drops what belonged to it
    if use is not use_minimize:  # whose programs belong to what phi computes
        assert len(made(cache)) == 1


def test_threads_compile_a_program_once_and_different_programs_side_by_side(cache):
    traced = []
    meet = threading.Barrier(2, timeout=60)

    def slow(x):
        traced.append("slow")
        time.sleep(0.05)  # the other threads arrive meanwhile
        return x + 1

    def together(x, name):
        traced.append(name)
        meet.wait()  # passes only if the other program is being traced at the same time
        return x

    found = []
    tasks = [lambda: found.append(np.asarray(compiled.call(slow, W))) for _ in range(4)]
    tasks += [
        lambda name=name: compiled.call(together, W, name) for name in ("one", "other")
    ]
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(traced) == ["one", "other", "slow"] and len(made(cache)) == 3
    for each in found:
        np.testing.assert_array_equal(each, W + 1)


def test_what_fails_is_tried_again_by_every_thread(cache):
    fail = [True, True]

    def sometimes(x):
        if fail:
            fail.pop()
            raise RuntimeError("no")
        return x

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            compiled.call(sometimes, W)
    np.testing.assert_array_equal(compiled.call(sometimes, W), W)


def test_structure_that_cannot_be_hashed_is_compiled_each_time(cache):
    class Odd(eqx.Module):
        table: object = eqx.field(static=True)

        def __call__(self, w, x):
            return (x @ w) * self.table[0]

    with pytest.warns(UserWarning, match="JAX array is being set as static"):
        inner = Odd(jnp.ones(1))
    p = px.MeanOfLosses(px.residual(inner), px.L1(), (X, Y))
    assert float(p.value(W)) == float(p.value(W)) and not made(cache)
    q = px.MeanOfLosses(px.residual(Odd((2.0,))), px.L1(), (X, Y))
    assert float(q.value(W)) == float(
        px.MeanOfLosses(px.residual(lambda w, x: 2 * (x @ w)), px.L1(), (X, Y)).value(W)
    )


@pytest.mark.skipif(
    not compiled._count_maps(), reason="needs /proc/self/maps, which Linux has"
)
def test_memory_maps_stop_growing_at_the_limit_and_clearing_gives_them_back(
    cache, monkeypatch
):
    phi = lambda w, x: jnp.tanh(x @ w)

    def after(n: int) -> int:
        px.MeanOfLosses(
            px.residual(phi), px.L1(), (np.ones((n, 2)), np.ones((n, 3)))
        ).subgradient(W)
        return compiled._count_maps()

    # the first compilation of a process starts threads, which have maps of their own
    after(6)
    after(7)
    each = list(cache.slots.values())[-1].maps
    assert each > 0
    monkeypatch.setattr(compiled, "MAPS", 3 * each)
    grown = [after(n) for n in range(8, 14)]
    # threads, arenas, and JAX's programs of single operations on the new shapes
    others = 2 * each
    held = sum(slot.maps for slot in cache.slots.values())
    assert held <= 3 * each and grown[-1] <= grown[1] + others
    px.clear_caches()
    gc.collect()
    assert grown[-1] - compiled._count_maps() >= 0.8 * held
