"""Trajectories of controls: swing-up of a pendulum, a car between obstacles, a cart-pole; T = 100 stages, float64.

    F(w) = (1/T) sum_t [ 1/2 |goal|^2 + |effort|_1 + sum hinge(limits, obstacles) ],     the same F for all

    ours            px.prox_linear(tol=1e-6) with adaptive kappa: the nonsmooth F as it is, each step to a gap of 1e-6;
                    the car and the cart-pole end at the F of the default 1e-10 to six digits, in fewer seconds
    iLQR            in JAX, its formulas by hand: exact second derivatives of the stages, first ones of the dynamics,
                    on F with |.| and hinge rounded within 1e-2 of their kinks; a regularised backward pass, line search
    CasADi + IPOPT  multiple shooting, with slack variables for |.| and hinge; defaults, from the same controls

Each runs to its own end from w = 0.1 sin(t); `cost` rows have F where it ended, and seconds are without compilation. A
peer that ends more than 1 % above the least F is noted with its cost. `horizon` is the exponent of the seconds of one
exact step of the car in T = 100, 200, ..., 3200: at most 1.1.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from bench.harness import Row, count, installed, race, run_as_command, seconds

STAGES = 100
NU = 1e-2  # how far from a kink the F of iLQR is rounded
EQUAL = 1.01
GAP = 1e-6  # of a step of ours; the car takes 36 steps with it, and 174 with 1e-10
HORIZONS = (100, 200, 400, 800, 1600, 3200)
ILQR_STEPS = 300


# ---------------------------------------------------------------------- systems, for JAX and for CasADi
# `lib` has sin, cos and sqrt; what is returned is a list of numbers.


@dataclass(frozen=True)
class System:
    """x' = flow(x, u), a step of Euler of dt with the new speed; three lists of residuals of a stage."""

    name: str
    start: tuple[float, ...]
    controls: int
    dt: float
    flow: Callable
    goal: Callable
    effort: Callable
    limits: Callable

    def step(self, x: Any, u: Any, lib: Any) -> list:
        return self.flow(x, u, self.dt, lib)


def pendulum(x: Any, u: Any, dt: float, lib: Any) -> list:
    speed = x[1] + dt * (9.81 * lib.sin(x[0]) - 0.1 * x[1] + u[0])
    return [x[0] + dt * speed, speed]


def car(x: Any, u: Any, dt: float, lib: Any) -> list:
    speed = x[3] + dt * u[0]
    heading = x[2] + dt * speed * u[1]
    return [
        x[0] + dt * speed * lib.cos(heading),
        x[1] + dt * speed * lib.sin(heading),
        heading,
        speed,
    ]


def cart_pole(x: Any, u: Any, dt: float, lib: Any) -> list:
    """A pole of 0.5 m and 0.1 kg on a cart of 1 kg; x[1] = 0 is upright."""
    s, c = lib.sin(x[1]), lib.cos(x[1])
    push = (u[0] + 0.05 * x[3] * x[3] * s) / 1.1
    turn = (9.81 * s - c * push) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
    speed = x[2] + dt * (push - 0.05 * turn * c / 1.1)
    spin = x[3] + dt * turn
    return [x[0] + dt * speed, x[1] + dt * spin, speed, spin]


OBSTACLES = ((1.5, 1.2, 0.6), (3.0, 3.2, 0.7))


def away(x: Any, lib: Any) -> list:
    """How far the car is inside of each obstacle, times 5."""
    return [
        5 * (r - lib.sqrt((x[0] - a) ** 2 + (x[1] - b) ** 2 + 1e-6))
        for a, b, r in OBSTACLES
    ]


SYSTEMS = (
    System(
        "pendulum",
        (math.pi, 0.0),
        1,
        0.03,
        pendulum,
        lambda x, u, d, lib: [d * x[0], 0.1 * d * x[1]],
        lambda x, u, lib: [0.02 * u[0]],
        lambda x, u, lib: [u[0] - 5, -u[0] - 5],
    ),
    System(
        "car",
        (0.0, 0.0, 0.0, 0.0),
        2,
        0.1,
        car,
        lambda x, u, d, lib: [0.3 * d * (x[0] - 4), 0.3 * d * (x[1] - 4), 0.1 * x[3]],
        lambda x, u, lib: [0.05 * u[0], 0.05 * u[1]],
        lambda x, u, lib: [u[1] - 1.5, -u[1] - 1.5, *away(x, lib)],
    ),
    System(
        "cart-pole",
        (0.0, math.pi, 0.0, 0.0),
        1,
        0.02,
        cart_pole,
        lambda x, u, d, lib: [0.3 * d * x[0], d * x[1], 0.1 * d * x[3]],
        lambda x, u, lib: [0.01 * u[0]],
        lambda x, u, lib: [0.2 * (u[0] - 20), 0.2 * (-u[0] - 20)],
    ),
)


def weights(stages: int) -> np.ndarray:
    """The weight of the goal: 1, and 5 in the last tenth of the stages."""
    return np.where(np.arange(stages) >= 0.9 * stages, 5.0, 1.0)


def first(system: System, stages: int) -> np.ndarray:
    wave = 0.1 * np.sin(np.arange(1, stages + 1.0))
    return np.repeat(wave[:, None], system.controls, axis=1)


def residuals(system: System, x: Any, u: Any, d: Any) -> tuple[Any, Any, Any]:
    parts = (
        system.goal(x, u, d, jnp),
        system.effort(x, u, jnp),
        system.limits(x, u, jnp),
    )
    return tuple(jnp.stack(part) for part in parts)  # type: ignore[return-value]


def problem(system: System, stages: int) -> px.Trajectory:
    """Return the problem of ours."""
    dynamics = lambda x, u: jnp.stack(system.step(x, u, jnp))
    stage = lambda x, u, d: jnp.concatenate(residuals(system, x, u, d))
    start = np.array(system.start)
    sizes = [len(x) for x in residuals(system, start, np.zeros(system.controls), 1.0)]
    losses = (px.SquaredL2(), px.L1(), px.Hinge())
    outer = px.Parts(*zip(losses, sizes, strict=True))
    return px.Trajectory(dynamics, stage, outer, start, weights(stages))


# ------------------------------------------------------------------------------------- iLQR by hand


def rounded(r: jax.Array) -> jax.Array:
    """|r| with a parabola of width NU at the kink."""
    size = jnp.abs(r)
    return jnp.where(size < NU, r * r / (2 * NU) + NU / 2, size)


def ilqr(system: System, stages: int) -> Callable[[jax.Array], tuple[jax.Array, Any]]:
    """Return the compiled run from controls to controls and the number of steps."""
    n, m = len(system.start), system.controls
    start = jnp.array(system.start)
    d = jnp.asarray(weights(stages))

    def dynamics(x: jax.Array, u: jax.Array) -> jax.Array:
        return jnp.stack(system.step(x, u, jnp))

    def loss(xu: jax.Array, d: jax.Array) -> jax.Array:
        """The loss of a stage in (x_t, u_t): it is asked of the state after u_t."""
        u = xu[n:]
        x = dynamics(xu[:n], u)
        goal, effort, limits = residuals(system, x, u, d)
        kinks = jnp.sum(rounded(effort)) + jnp.sum((limits + rounded(limits)) / 2)
        return (jnp.sum(goal * goal) / 2 + kinks) / stages

    def curvature(xu: jax.Array, d: jax.Array) -> jax.Array:
        """The second derivative, with its negative part cut off."""
        values, vectors = jnp.linalg.eigh(jax.hessian(loss)(xu, d))
        return (vectors * jnp.maximum(values, 0)) @ vectors.T

    def roll(u: jax.Array, old: jax.Array, K: jax.Array, k: jax.Array) -> Any:
        def step(x: jax.Array, at: Any) -> Any:
            u, old, K, k, d = at
            new = u + k + K @ (x - old)
            return dynamics(x, new), (x, new, loss(jnp.concatenate([x, new]), d))

        _, (x, new, losses) = jax.lax.scan(step, start, (u, old, K, k, d))
        return x, new, jnp.sum(losses)

    def gains(x: jax.Array, u: jax.Array, mu: jax.Array) -> Any:
        xu = jnp.concatenate([x, u], axis=1)
        slopes = jax.vmap(jax.grad(loss))(xu, d)
        curves = jax.vmap(curvature)(xu, d)
        links = jax.vmap(jax.jacfwd(lambda xu: dynamics(xu[:n], xu[n:])))(xu)

        def step(ahead: Any, at: Any) -> Any:
            P, p = ahead
            slope, curve, link = at
            q = slope + link.T @ p
            Q = curve + link.T @ P @ link
            Quu = Q[n:, n:] + mu * jnp.eye(m)
            K = -jnp.linalg.solve(Quu, Q[n:, :n])
            k = -jnp.linalg.solve(Quu, q[n:])
            both = jnp.concatenate([jnp.eye(n), K])
            P = both.T @ Q @ both
            p = both.T @ (q + Q[:, n:] @ k)
            return ((P + P.T) / 2, p), (K, k)

        last = (jnp.zeros((n, n)), jnp.zeros(n))
        _, found = jax.lax.scan(step, last, (slopes, curves, links), reverse=True)
        return found

    def body(state: Any) -> Any:
        x, u, value, mu, step, idle = state
        K, k = gains(x, u, mu)
        lengths = 0.5 ** jnp.arange(8.0)
        tried = jax.vmap(lambda a: roll(u, x, K, a * k))(lengths)
        values = jnp.where(jnp.isfinite(tried[2]), tried[2], jnp.inf)
        best = jnp.argmin(values)
        better = values[best] < value
        gain = jnp.where(better, (value - values[best]) / value, 0.0)
        x, u = (
            jnp.where(better, new[best], old)
            for new, old in zip(tried[:2], (x, u), strict=True)
        )
        value = jnp.where(better, values[best], value)
        mu = jnp.where(better, jnp.maximum(mu / 5, 1e-9), mu * 5)
        idle = jnp.where(gain > 1e-7, 0, idle + 1)
        return x, u, value, mu, step + 1, idle

    def run(w: jax.Array) -> tuple[jax.Array, Any]:
        none = jnp.zeros((stages, m, n))
        x, u, value = roll(w, jnp.zeros((stages, n)), none, jnp.zeros_like(w))
        state = (x, u, value, jnp.asarray(1e-3), 0, 0)
        going = lambda s: (s[4] < ILQR_STEPS) & (s[5] < 8)
        end = jax.lax.while_loop(going, body, state)
        return end[1], end[4]

    return jax.jit(run)


# ------------------------------------------------------------------------------------------- CasADi


def ipopt(system: System, stages: int) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Return a function of the first controls and states that returns controls and seconds."""
    import casadi

    n, m = len(system.start), system.controls
    X, U = casadi.MX.sym("X", n, stages), casadi.MX.sym("U", m, stages)
    x, u, d = casadi.SX.sym("x", n), casadi.SX.sym("u", m), casadi.SX.sym("d")
    step = casadi.Function("step", [x, u], [casadi.vertcat(*system.step(x, u, casadi))])
    goal = casadi.vertcat(*system.goal(x, u, d, casadi))
    effort = casadi.vertcat(*system.effort(x, u, casadi))
    limits = casadi.vertcat(*system.limits(x, u, casadi))
    terms = casadi.Function("terms", [x, u, d], [goal, effort, limits])
    a, h = effort.shape[0], limits.shape[0]
    S, R = casadi.MX.sym("S", a, stages), casadi.MX.sym("R", h, stages)
    before = casadi.horzcat(casadi.DM(system.start), X[:, :-1])
    ahead = step.map(stages)(before, U)
    goals, efforts, over = terms.map(stages)(X, U, casadi.DM(weights(stages)).T)
    F = (casadi.sumsqr(goals) / 2 + casadi.sum1(casadi.vec(S)) + casadi.sum1(casadi.vec(R))) / stages  # fmt: skip
    zero = casadi.vec(X - ahead)
    least = [casadi.vec(S - efforts), casadi.vec(S + efforts), casadi.vec(R - over)]
    unknown = casadi.vertcat(*map(casadi.vec, (X, U, S, R)))
    rows = stages * (2 * a + h)
    solver = casadi.nlpsol(
        "solver",
        "ipopt",
        {"x": unknown, "f": F, "g": casadi.vertcat(zero, *least)},
        {"ipopt.print_level": 0, "print_time": False, "ipopt.sb": "yes"},
    )
    lower = np.full(stages * (n + m + a + h), -np.inf)
    lower[stages * (n + m + a) :] = 0.0

    def run(w: np.ndarray, states: np.ndarray) -> np.ndarray:
        slack = np.ones(stages * (a + h))
        found = solver(
            x0=np.concatenate([states[1:].ravel(), w.ravel(), slack]),
            lbx=lower,
            lbg=np.zeros(stages * n + rows),
            ubg=np.concatenate([np.zeros(stages * n), np.full(rows, np.inf)]),
        )
        flat = np.asarray(found["x"]).ravel()
        return flat[stages * n : stages * (n + m)].reshape(stages, m)

    return run


# --------------------------------------------------------------------------------------------- rows


def measure(system: System, repeats: int) -> Iterator[Row]:
    p = problem(system, STAGES)
    w = first(system, STAGES)
    states = np.asarray(px.rollout(p.inner.dynamics, w, np.array(system.start)))
    solver = px.prox_linear(tol=GAP)
    mine = lambda: px.solve(p, jnp.asarray(w), solver, steps=300, tol=1e-5)
    compile = seconds(mine)
    result = mine()
    ends = {"ours": float(result.value)}
    hand = ilqr(system, STAGES)
    ends["iLQR"] = float(p.value(np.asarray(hand(jnp.asarray(w))[0])))
    peers: dict[str, Any] = {"iLQR": lambda: seconds(lambda: hand(jnp.asarray(w)))}
    peers["CasADi + IPOPT"] = None
    if installed("casadi"):
        other = ipopt(system, STAGES)
        ends["CasADi + IPOPT"] = float(p.value(other(w, states)))
        peers["CasADi + IPOPT"] = lambda: seconds(partial(other, w, states))
    case = f"{system.name}, T = {STAGES}, seconds"
    notes = {}
    for name, end in ends.items():
        level = "equal" if end <= EQUAL * min(ends.values()) else "above the least F"
        notes[name] = f"F = {end:.5f} ({level}); ours {ends['ours']:.5f}"
    steps = int(result.steps)
    yield from race(case, lambda: seconds(mine), peers, repeats, compile, notes)
    for name, end in ends.items():
        if name != "ours":
            note = f"ours took {steps} steps"
            yield count(f"{system.name}, cost", name, ends["ours"], end, note, "F")


def horizon(repeats: int) -> Iterator[Row]:
    """The exponent of one exact step of the car in T, with the iterations of the interior point
    divided out and with them.
    """
    system = SYSTEMS[1]
    times = []
    for stages in HORIZONS:
        p = problem(system, stages)
        w = first(system, stages)
        step = partial(px.solve_subproblem, p, jnp.asarray(w), 1e-3 * 100 / stages)
        step()
        best = min(seconds(step) for _ in range(repeats))
        times.append((stages, best, best / step().iterations))
    logs = np.log(np.array(times))
    whole = np.polyfit(logs[:, 0], logs[:, 1], 1)[0]
    each = np.polyfit(logs[:, 0], logs[:, 2], 1)[0]
    spread = ", ".join(f"{t}: {1e3 * x:.1f} ms" for t, x, _ in times)
    note = f"at most 1.1; {spread}"
    yield count("horizon, exponent of a step", "", whole, 1.1, note, "exponent")
    note = "at most 1.1; an iteration of the interior point"
    yield count("horizon, exponent of an iteration", "", each, 1.1, note, "exponent")


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    jax.config.update("jax_enable_x64", True)
    for system in SYSTEMS:
        if system.name in arguments.cases:
            yield from measure(system, arguments.repeats)
    if "horizon" in arguments.cases:
        yield from horizon(arguments.repeats)


def main(argv: list[str] | None = None) -> int:
    cases = [*(system.name for system in SYSTEMS), "horizon"]
    return run_as_command(
        "control",
        __doc__,
        rows,
        argv,
        cases={"nargs": "+", "choices": cases, "default": cases, "help": "which"},
    )


if __name__ == "__main__":
    raise SystemExit(main())
