"""Phase retrieval: a real signal from m Gaussian squares, some of them grossly wrong; float64, from one spectral start.

    F(w) = (1/m) sum_i |<a_i, w>^2 - b_i|,      to F(w) - F(x) <= 1e-9 F(start),     x the signal, F(x) the least F

    ours             px.prox_linear() with adaptive kappa; it is not told F(x)
    Polyak steps     w - (F(w) - F(x)) / |v|^2 v with a subgradient v, in JAX by hand; it is told F(x)
    amplitude flow   gradient steps of 0.6 on (1/2m) sum_i (|<a_i, w>| - sqrt(b_i))^2, in JAX by hand (Wang, Giannakis
                     and Eldar 2018); gross errors move its minimiser, so it is asked without them only

Seconds are without compilation. A peer that has not come there after 50,000 steps has no seconds, and a note.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from bench.harness import Row, race, run_as_command, seconds
from proxlin.data.phase import draw_phase, phase_retrieval

NEAR = 1e-9
MOST = 50_000
FLOW_STEP = 0.6  # of the paper of amplitude flow, where rows are standard Gaussian


class Size(NamedTuple):
    n: int
    m: int
    wrong: float

    @property
    def name(self) -> str:
        return f"n={self.n},m={self.m},wrong={100 * self.wrong:g}%"


SIZES = (
    Size(100, 400, 0.0),
    Size(100, 600, 0.1),
    Size(300, 1200, 0.0),
    Size(300, 1800, 0.1),
)


def loss(w: jax.Array, rows: jax.Array, squares: jax.Array) -> jax.Array:
    return jnp.mean(jnp.abs((rows @ w) ** 2 - squares))


def polyak(least: float, goal: float) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return the compiled run from a start to the end and the number of steps."""

    def run(w: jax.Array, rows: jax.Array, squares: jax.Array) -> Any:
        both = jax.value_and_grad(loss)

        def body(state: Any) -> Any:
            w, value, slope, step = state
            w = w - (value - least) / jnp.sum(slope**2) * slope
            return w, *both(w, rows, squares), step + 1

        going = lambda state: (state[1] > goal) & (state[3] < MOST)
        state = (w, *both(w, rows, squares), 0)
        end = jax.lax.while_loop(going, body, state)
        return end[0], end[3]

    return jax.jit(run)


def amplitude_flow(goal: float) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return the compiled run from a start to the end and the number of steps."""

    def run(w: jax.Array, rows: jax.Array, squares: jax.Array) -> Any:
        amplitudes = jnp.sqrt(squares)

        def body(state: Any) -> Any:
            w, _, step = state
            u = rows @ w
            slope = rows.T @ (u - amplitudes * jnp.sign(u)) / len(squares)
            w = w - FLOW_STEP * slope
            return w, loss(w, rows, squares), step + 1

        going = lambda state: (state[1] > goal) & (state[2] < MOST)
        state = (w, loss(w, rows, squares), 0)
        end = jax.lax.while_loop(going, body, state)
        return end[0], end[2]

    return jax.jit(run)


def measure(size: Size, repeats: int) -> list[Row]:
    rng = np.random.default_rng(0)
    drawn = draw_phase("gaussian", size.m, size.n, rng, corruption=size.wrong)
    problem = phase_retrieval(drawn.rows, drawn.squares)
    rows = jnp.asarray(drawn.rows)
    squares = jnp.asarray(drawn.squares)
    start = px.spectral_start(rows, squares)
    least = float(problem.value(jnp.asarray(drawn.signal)))
    goal = least + NEAR * float(problem.value(start))
    solver = px.prox_linear()
    mine = lambda: px.solve(problem, start, solver, steps=100, tol=1e-9)
    compile = seconds(mine)
    found = mine()
    if not float(found.value) <= goal:
        raise AssertionError(f"{size.name}: ours ended at {float(found.value)}")
    methods = {"Polyak steps": polyak(least, goal)}
    if not size.wrong:
        methods["amplitude flow"] = amplitude_flow(goal)
    peers: dict[str, Any] = {}
    notes = {}
    for name, method in methods.items():
        w, steps = method(start, rows, squares)
        end = float(loss(w, rows, squares))
        notes[name] = f"{int(steps)} steps, ours {int(found.steps)}"
        peers[name] = lambda method=method: seconds(
            lambda: method(start, rows, squares)
        )
        if end > goal:
            notes[name] += f"; it ended at F - F(x) = {end - least:.1e}"
            peers[name] = lambda: None
    case = f"{size.name}, seconds"
    return race(case, lambda: seconds(mine), peers, repeats, compile, notes)


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    jax.config.update("jax_enable_x64", True)
    for size in SIZES:
        if size.name in arguments.cases:
            yield from measure(size, arguments.repeats)


def main(argv: list[str] | None = None) -> int:
    cases = [size.name for size in SIZES]
    return run_as_command(
        "phase",
        __doc__,
        rows,
        argv,
        cases={"nargs": "+", "choices": cases, "default": cases, "help": "which"},
    )


if __name__ == "__main__":
    raise SystemExit(main())
