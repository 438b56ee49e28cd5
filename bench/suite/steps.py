"""The price of one step, batch 1, MLP 128-h-10, l2 loss, float32: ours, and the loops that users of
others write.

    SGD, minimize    px.minimize(problem, w, px.sgd(step))        <= 1.1  times the scan by hand in JAX
    SGD, verbs       problem[i].subgradient(w) in a scan          <= 1.1  times it
    PLI              SVRG on the smoothed, linearised model       <= 3    times an SGD step
                     w <- w - step (g_i(w) - g_i(w_0) + mean g(w_0) + kappa (w - w_0)), and the average of these w
    torch            eager and compiled                           >= 10 times slower than ours (SGD)

All peers of a row walk over the same samples from the same weights, and have to end where ours
does. In the row of `minimize` the loop by hand draws its samples too.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import proxlin as px
from bench.harness import (
    OURS,
    Row,
    Run,
    installed,
    judged,
    missing,
    race,
    run_as_command,
    seconds,
)
from proxlin.networks import MLP
from proxlin.solvers.svrg import svrg_epoch

N, EPOCHS = 1000, 5
# steps of a Python loop, which takes up to a thousand times as long; its mean gradient is off the
# clock
SHORT = 200
STEP, NU, KAPPA = 1e-3, 1.0, 0.1
AGREE = 1e-4  # relative, after N steps in float32
HAND = "JAX by hand"
TARGETS = {"torch eager": 10.0, "torch compiled": 10.0}

# N steps from the same start; returns the last weights (SGD) or the mean of them (PLI)
Walk = Callable[[], Any]


# ---------------------------------------------------------------------------------------------- SGD


def loss(w, x, y):
    r = w[1]["W"] @ jnp.tanh(w[0]["W"] @ x) - y
    return jnp.sqrt(jnp.sum(r * r))


def by_hand(w, x, y, indices):
    """What a careful user writes: the gradient of the norm, one sample a step."""

    def body(w, i):
        g = jax.grad(loss)(w, x[i], y[i])
        return jax.tree.map(lambda w, g: w - STEP * g, w, g), None

    return jax.lax.scan(body, w, indices)[0]


def drawn(key):
    return jax.random.randint(key, (N,), 0, N, jnp.int32)


def by_hand_drawn(w, x, y, key):
    """The same with the samples of the epoch drawn, as `minimize` has to draw them."""
    return by_hand(w, x, y, drawn(key))


def with_verbs(w, problem, indices):
    def body(w, i):
        g = problem[i].subgradient(w)
        return jax.tree.map(lambda w, g: w - STEP * g, w, g), None

    return jax.lax.scan(body, w, indices)[0]


def optax_scan(w, x, y, indices):
    optimizer = optax.sgd(STEP)

    def body(carry, i):
        w, state = carry
        updates, state = optimizer.update(jax.grad(loss)(w, x[i], y[i]), state, w)
        return (optax.apply_updates(w, updates), state), None

    return jax.lax.scan(body, (w, optimizer.init(w)), indices)[0][0]


def optax_loop(w, x, y, indices) -> Walk:
    """A Python loop over rows of NumPy arrays, with a compiled update."""
    optimizer = optax.sgd(STEP)
    x, y, indices = map(np.asarray, (x, y, indices))

    @jax.jit
    def update(w, state, x, y):
        updates, state = optimizer.update(jax.grad(loss)(w, x, y), state, w)
        return optax.apply_updates(w, updates), state

    def walk():
        last, state = w, optimizer.init(w)
        for i in indices:
            last, state = update(last, state, x[i], y[i])
        return last

    return walk


# ---------------------------------------------------------------------------------------------- PLI


def pli(w, problem, indices):
    sub = problem.smooth(NU).linearize(w).regularize(KAPPA, w)
    return svrg_epoch(sub, w, jnp.asarray(STEP, jnp.float32), indices, True)


def residual(w, x, y):
    return w[1]["W"] @ jnp.tanh(w[0]["W"] @ x) - y


def pli_by_hand(w, x, y, indices):
    """One JVP and one VJP a step: J_i is fixed, so the duals of the start are kept and only their
    change is pulled.
    """
    dual = lambda u: (
        u / jnp.maximum(NU, jnp.sqrt(jnp.sum(u * u, axis=-1, keepdims=True)))
    )
    r, pull_all = jax.vjp(lambda w: jax.vmap(residual, (None, 0, 0))(w, x, y), w)
    v = dual(r)
    mean = pull_all(v / len(x))[0]

    def body(carry, i):
        away, total = carry
        at = lambda w: residual(w, x[i], y[i])
        u, change = jax.jvp(at, (w,), (away,))
        g = jax.vjp(at, w)[1](dual(u + change) - v[i])[0]
        away = jax.tree.map(
            lambda d, g, m: d - STEP * (g + m + KAPPA * d), away, g, mean
        )
        return (away, jax.tree.map(jnp.add, total, away)), None

    zeros = jax.tree.map(jnp.zeros_like, w)
    total = jax.lax.scan(body, (zeros, zeros), indices)[0][1]
    return jax.tree.map(lambda w, t: w + t / len(indices), w, total)


def model(w, w0, x, y):
    """The smoothed loss of the linearised residual, whose gradient is what autodiff makes of it."""
    u, change = jax.jvp(
        lambda w: residual(w, x, y), (w0,), (jax.tree.map(jnp.subtract, w, w0),)
    )
    square = jnp.sum((u + change) ** 2)
    far = square > NU**2
    return jnp.where(
        far, jnp.sqrt(jnp.where(far, square, 1.0)) - NU / 2, square / (2 * NU)
    )


def mean_at_start(w, x, y):
    return jax.grad(
        lambda v: jnp.mean(jax.vmap(model, (None, None, 0, 0))(v, w, x, y))
    )(w)


def optax_update(optimizer, carry, w0, mean, x, y):
    w, total, state = carry
    new, old = jax.grad(model)(w, w0, x, y), jax.grad(model)(w0, w0, x, y)
    g = jax.tree.map(
        lambda a, b, m, w, c: a - b + m + KAPPA * (w - c), new, old, mean, w, w0
    )
    updates, state = optimizer.update(g, state, w)
    w = optax.apply_updates(w, updates)
    return w, jax.tree.map(jnp.add, total, w), state


def pli_optax_scan(w, x, y, indices):
    optimizer, mean = optax.sgd(STEP), mean_at_start(w, x, y)
    body = lambda carry, i: (optax_update(optimizer, carry, w, mean, x[i], y[i]), None)
    start = w, jax.tree.map(jnp.zeros_like, w), optimizer.init(w)
    return jax.tree.map(
        lambda t: t / len(indices), jax.lax.scan(body, start, indices)[0][1]
    )


def pli_optax_loop(w, x, y, indices) -> Walk:
    optimizer = optax.sgd(STEP)
    update, mean = (
        jax.jit(partial(optax_update, optimizer)),
        jax.jit(mean_at_start)(w, x, y),
    )
    xs, ys, order = map(np.asarray, (x, y, indices))

    def walk():
        carry = w, jax.tree.map(jnp.zeros_like, w), optimizer.init(w)
        for i in order:
            carry = update(carry, w, mean, xs[i], ys[i])
        return jax.tree.map(lambda t: t / len(order), carry[1])

    return walk


# --------------------------------------------------------------------------------------------- rows


def compiled(function: Callable, *args: Any) -> Walk:
    call = jax.jit(function)
    return lambda: call(*args)


def timer(walk: Walk, steps: int = N, epochs: int = EPOCHS) -> Run:
    """Seconds of one step; a walk is waited for before the next begins, or two would share the
    cores.
    """
    return lambda: sum(seconds(walk) for _ in range(epochs)) / (epochs * steps)


def agree(case: str, wanted: Any, peers: Mapping[str, Walk | None]) -> None:
    """Every peer ends where ours does."""
    wanted = jax.tree.leaves(wanted)
    size = max(float(jnp.max(jnp.abs(leaf))) for leaf in wanted)
    for name, walk in peers.items():
        found = wanted if walk is None else jax.tree.leaves(walk())
        away = max(
            float(np.max(np.abs(np.asarray(a) - b)))
            for a, b in zip(wanted, found, strict=True)
        )
        if away > AGREE * size:
            raise AssertionError(f"{case}: ours and {name} are {away:.1e} apart")


def torch_walks(
    kind: str, case: str, *data: Any
) -> tuple[dict[str, Walk | None], list[Row]]:
    """Eager and compiled, None where torch is not installed; and a row for what torch does not
    compile.
    """
    if not installed("torch"):
        return {"torch eager": None, "torch compiled": None}, []
    from bench.peers.steps_torch import WALKS

    walk = partial(WALKS[kind], *data, step=STEP, nu=NU, kappa=KAPPA)
    eager, fast = walk(compiled=False), walk(compiled=True)
    try:
        fast()
    except Exception as error:  # whatever its compiler raises
        what = f"does not compile: {type(error).__name__}"
        return {"torch eager": eager}, [
            missing(case, "torch compiled") | {"note": what}
        ]
    return {"torch eager": eager, "torch compiled": fast}, []


def rows_of(width: int, repeats: int, alone: bool) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(N, 128)), jnp.float32)
    y = jnp.asarray(rng.normal(size=(N, 10)), jnp.float32)
    predict = MLP((128, width, 10), bias=False)
    w = predict.init(jax.random.key(0), jnp.float32)
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), (x, y))
    key = jax.random.key(0)
    indices = drawn(key)
    data, short = (w, x, y, indices), (w, x, y, indices[:SHORT])

    def minimize() -> float:
        return px.minimize(problem, w, px.sgd(STEP), passes=EPOCHS).history["seconds"][
            -1
        ] / (EPOCHS * N)

    def compare(
        case: str,
        ours: Run,
        compile: float,
        function: Callable,
        fast: dict,
        slow: dict,
        targets: dict,
    ):
        agree(case, jax.jit(function)(w, problem, indices), fast)
        if slow:
            agree(case, jax.jit(function)(w, problem, indices[:SHORT]), slow)
        scans = {name: timer(walk) for name, walk in fast.items()}
        loops = {
            name: None if walk is None else timer(walk, SHORT, 1)
            for name, walk in slow.items()
        }
        # no scan right after torch
        both = (race(case, ours, runs, repeats, compile) for runs in (scans, loops))
        return judged([row for rows in both for row in rows], targets)

    verbs = compiled(with_verbs, w, problem, indices)
    inner = compiled(pli, w, problem, indices)
    if alone:
        runs = {
            "SGD, verbs": (verbs, timer(verbs)),
            "SGD, minimize": (minimize, minimize),
        }
        for what, (once, run) in (
            runs | {"PLI inner step": (inner, timer(inner))}
        ).items():
            first = seconds(once)
            yield from race(f"{what}, width {width}", run, {}, repeats, first)
        return

    hand = compiled(by_hand, *data)
    case, first = f"SGD, verbs, width {width}", seconds(verbs)
    yield from compare(
        case, timer(verbs), first, with_verbs, {HAND: hand}, {}, {HAND: 1 / 1.1}
    )

    case, first = f"SGD, minimize, width {width}", seconds(minimize)
    torch, failed = torch_walks("sgd", case, *short)
    fast = {
        HAND: compiled(by_hand_drawn, w, x, y, key),
        "optax, scan": compiled(optax_scan, *data),
    }
    yield from compare(
        case,
        minimize,
        first,
        with_verbs,
        fast,
        {"optax, loop": optax_loop(*short)} | torch,
        TARGETS | {HAND: 1 / 1.1},
    )
    yield from failed

    case, first = f"PLI inner step, width {width}", seconds(inner)
    torch, failed = torch_walks("pli", case, *short)
    fast = {
        HAND: compiled(pli_by_hand, *data),
        "optax, scan": compiled(pli_optax_scan, *data),
    }
    yield from compare(
        case,
        timer(inner),
        first,
        pli,
        fast,
        {"optax, loop": pli_optax_loop(*short)} | torch,
        {},
    )
    yield from failed
    sgd = "an SGD step of ours"
    yield from judged(
        race(case, timer(inner), {sgd: minimize}, repeats, first), {sgd: 1 / 3}
    )


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    for width in (64, 512):
        yield from rows_of(width, arguments.repeats, arguments.ours)


def main(argv: list[str] | None = None) -> int:
    return run_as_command("steps", __doc__, rows, argv, repeats=7, ours=OURS)


if __name__ == "__main__":
    raise SystemExit(main())
