"""Ten thousand small fits at once: ours against scipy one by one and optimistix under vmap.

    F(w) = (1/50) sum_i f(w_0 exp(-w_1 x_i) + w_2 - y_i)        f = |.|, Huber, or half the square; float64

Every fit has its own parameters, normal noise, and a tenth of its points far off. Seconds are those of one fit:
of the whole batch over its size, for scipy of the first fits over their number. scipy's `least_squares` has the
loss soft_l1 with a scale of 0.01 for f = |.|, which is within 0.01 of it, and its own Huber loss otherwise.
Levenberg-Marquardt of optimistix, under vmap, squares the root of 2 f, with |r| smoothed to (r^2 + 0.01^2)^(1/2). The
note counts fits in which ours ended higher, with F the loss without smoothing.

The last case is a bootstrap: 1,000 weights of 200 rows with 5 features and 3 targets, under the l2 norm.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from bench import harness

POINTS = 50
START = np.array([1.0, 1.0, 0.0])
DELTA = 0.1
SMOOTH = 0.01
ONE_BY_ONE = 200  # fits of scipy that are timed
TARGETS = {"scipy": 50.0, "optimistix LM, vmap": 8.0}
ONE_FIT = 60e-6  # seconds that one of ten thousand fits may take
BOOTSTRAP = 1.0  # seconds that a thousand weights may take


def decays(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x (50,) and y (count, 50)."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 4.0, POINTS)
    size = rng.uniform(1, 3, (count, 1))
    rate = rng.uniform(0.5, 2, (count, 1))
    level = rng.uniform(0, 1, (count, 1))
    y = size * np.exp(-rate * x) + level + 0.05 * rng.normal(size=(count, POINTS))
    far = rng.random(y.shape) < 0.1
    y[far] += 3 * rng.normal(size=int(far.sum()))
    return x, y


def loss(name: str, r: np.ndarray) -> np.ndarray:
    """Return F for residuals (..., 50)."""
    if name == "l1":
        each = np.abs(r)
    elif name == "huber":
        each = np.where(np.abs(r) <= DELTA, r**2 / 2, DELTA * (np.abs(r) - DELTA / 2))
    else:
        each = r**2 / 2
    return each.mean(axis=-1)


def values(name: str, x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return loss(name, w[:, :1] * np.exp(-w[:, 1:2] * x) + w[:, 2:] - y)


def ours(name: str, x: np.ndarray, y: np.ndarray) -> Callable[[], np.ndarray]:
    import jax
    import jax.numpy as jnp

    import proxlin as px

    outer = {"l1": px.L1(), "huber": px.Huber(DELTA), "squares": px.SquaredL2()}[name]
    phi = px.residual(lambda w, x: w[0] * jnp.exp(-w[1] * x) + w[2])
    grid = jnp.asarray(x)[:, None]
    make = lambda y: px.MeanOfLosses(phi, outer, (grid, y[:, None]))
    problems = jax.vmap(make)(jnp.asarray(y))
    start = jnp.asarray(START)
    return lambda: np.asarray(px.solve_many(problems, start).w)


def scipy_fits(name: str, x: np.ndarray, y: np.ndarray) -> Callable[[], np.ndarray]:
    from scipy.optimize import least_squares

    kind, scale = {
        "l1": ("soft_l1", SMOOTH),
        "huber": ("huber", DELTA),
        "squares": ("linear", 1.0),
    }[name]

    def one(y: np.ndarray) -> np.ndarray:
        residual = lambda w: w[0] * np.exp(-w[1] * x) + w[2] - y
        return least_squares(residual, START, loss=kind, f_scale=scale).x

    return lambda: np.stack([one(row) for row in y])


def optimistix_fits(
    name: str, x: np.ndarray, y: np.ndarray
) -> Callable[[], np.ndarray]:
    import jax
    import jax.numpy as jnp
    import optimistix as optx

    solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
    grid = jnp.asarray(x)

    def residual(w: Any, y: Any) -> Any:
        r = w[0] * jnp.exp(-w[1] * grid) + w[2] - y
        if name == "l1":
            return (r * r + SMOOTH**2) ** 0.25
        if name == "huber":
            far = jnp.abs(r) > DELTA
            inner = jnp.where(far, DELTA, jnp.abs(r))
            linear = jnp.where(far, jnp.abs(r), DELTA)
            return jnp.where(far, jnp.sqrt(2 * DELTA * (linear - DELTA / 2)), inner)
        return r

    def one(y: Any) -> Any:
        return optx.least_squares(
            residual, solver, jnp.asarray(START), args=y, max_steps=200, throw=False
        ).value

    many = jax.jit(jax.vmap(one))
    rows = jnp.asarray(y)
    return lambda: np.asarray(many(rows))


def timed(
    name: str, fits: Callable[[], np.ndarray], x: np.ndarray, y: np.ndarray
) -> tuple[Callable[[], float], np.ndarray, float]:
    """Return the run (seconds of one fit), F of its fits, and the seconds of the first call."""
    found: list[np.ndarray] = []
    compile = harness.seconds(lambda: found.append(fits()))
    return (
        lambda: harness.seconds(fits) / len(y),
        values(name, x, y, found[0]),
        compile,
    )


def fits_at_once(name: str, count: int, repeats: int) -> Iterator[harness.Row]:
    x, y = decays(count)
    run, mine, compile = timed(name, ours(name, x, y), x, y)
    few = y[:ONE_BY_ONE]
    peers: dict[str, harness.Run | None] = {}
    notes = {}
    theirs, value, _ = timed(name, scipy_fits(name, x, few), x, few)
    peers["scipy"] = theirs
    notes["scipy"] = _above(mine[:ONE_BY_ONE], value)
    peers["optimistix LM, vmap"] = None
    if harness.installed("optimistix"):
        theirs, value, _ = timed(name, optimistix_fits(name, x, y), x, y)
        peers["optimistix LM, vmap"] = theirs
        notes["optimistix LM, vmap"] = _above(mine, value)
    case = f"{count:,} decays, {name}, one fit"
    rows = harness.race(case, run, peers, repeats, compile, notes)
    yield from harness.within(harness.judged(rows, TARGETS), ONE_FIT)


def _above(mine: np.ndarray, theirs: np.ndarray) -> str:
    """Say how far F of ours is above that of the peer, and in how many fits by more than 1e-6."""
    theirs = np.where(np.isfinite(theirs), theirs, np.inf)
    worse = int(np.sum(mine > theirs + 1e-6))
    lower = int(np.sum(mine < theirs - 1e-6))
    return f"ours higher by more than 1e-6 in {worse} of {mine.size} fits, lower in {lower}"


def bootstrap(repeats: int) -> Iterator[harness.Row]:
    import jax

    import proxlin as px

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    W = rng.normal(size=(5, 3))
    Y = X @ W + 0.1 * rng.normal(size=(200, 3))
    Y[:20] = 50.0
    problem = px.MeanOfLosses(px.residual(lambda w, x: x @ w), px.L2(), (X, Y))
    w = px.minimize(problem, np.zeros((5, 3))).w
    draw = lambda: px.bootstrap(problem, w, count=1000, key=jax.random.key(0)).w
    compile = harness.seconds(draw)
    run = lambda: harness.seconds(draw)
    rows = harness.race("bootstrap, 1,000 weights", run, {}, repeats, compile)
    yield from harness.within(rows, BOOTSTRAP)


def rows(arguments: argparse.Namespace) -> Iterator[harness.Row]:
    import jax

    jax.config.update("jax_enable_x64", True)
    for name in ("l1", "huber", "squares"):
        yield from fits_at_once(name, arguments.count, arguments.repeats)
    yield from bootstrap(arguments.repeats)


def main(argv: list[str] | None = None) -> int:
    count = {"type": int, "default": 10_000, "help": "fits at once"}
    return harness.run_as_command("many", __doc__, rows, argv, repeats=3, count=count)


if __name__ == "__main__":
    raise SystemExit(main())
