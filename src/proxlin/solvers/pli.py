"""PLI: the prox-linear step by an incremental inner loop, matrix-free; accepted if F does not increase."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..checks import number, one_of, whole
from ..cost import Cost
from ..outers import AbstractProximable
from ..problem import AbstractProblem, MeanOfLosses
from ..schedules import as_schedule
from ..subproblem.block_dual import BlockDual
from ..types import Key, Params, dtype_of
from .base import AbstractSolver, Info, stationarity
from .casimir import CasimirSVRG


class AbstractLoop(eqx.Module):
    """An inner loop: some epochs on the linearised, regularised problem."""

    @abc.abstractmethod
    def init(self, problem: AbstractProblem, w: Params) -> Any:
        """What the loop keeps from one outer step to the next."""

    @abc.abstractmethod
    def run(
        self, sub: AbstractProblem, w: Params, t: Array, epochs: Array, key: Key, kept: Any
    ) -> tuple[Params, Array | None, Any]:
        """The approximate minimiser, its certified gap where the loop has one, and what it keeps."""

    @abc.abstractmethod
    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]: ...


class CasimirLoop(AbstractLoop):
    """Casimir-SVRG with the smoothing nu_t of the outer step t; inner step and kappa tied to it if not given."""

    nu: Callable
    schedule: Callable | None

    def init(self, problem: AbstractProblem, w: Params) -> None:
        return None

    def run(
        self, sub: AbstractProblem, w: Params, t: Array, epochs: Array, key: Key, kept: None
    ) -> tuple[Params, None, None]:
        solver = CasimirSVRG(_Level(self.nu(t)), None, self._step(t), "center", True)
        state = solver.init(sub, w)

        def body(j: Array, state: Any) -> Any:
            again, state = _fresh(sub, state)
            return solver.step(again, state, jax.random.fold_in(key, j))[0]

        return jax.lax.fori_loop(0, epochs, body, state).w, None, None

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        solver = CasimirSVRG(self.nu, None, self.schedule, "center", True)
        prices = solver.prices(problem.linearize(w), w)
        return {"inner": prices["step"], "step": prices.get("init", Cost()) + problem.prices(w).value}

    def _step(self, t: Array) -> Callable | None:
        return None if self.schedule is None else _Level(self.schedule(t))


class DualLoop(AbstractLoop):
    """Block dual coordinate ascent: no smoothing, no step; the dual variables go on from one outer step to the next."""

    ascent: BlockDual

    def init(self, problem: AbstractProblem, w: Params) -> Array:
        return self.ascent.inside(problem, w)

    def run(
        self, sub: AbstractProblem, w: Params, t: Array, epochs: Array, key: Key, kept: Array
    ) -> tuple[Params, Array, Array]:
        grams = self.ascent.grams(sub)

        def body(j: Array, carry: Any) -> Any:
            x, v = carry
            return self.ascent.epoch(sub, x, v, grams, jax.random.fold_in(key, j))

        x, v = jax.lax.fori_loop(0, epochs, body, (self.ascent.start(sub, kept), kept))
        return x, self.ascent.gap(sub, x, v), v

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        price, original = problem.linearize(w).prices(w), problem.prices(w)
        shared = Cost(phi=-len(problem)) if problem.in_one_chunk(w) else Cost()  # phi of the first pull and of the gap
        step = original.expand + price.pull + price.value + shared + original.value
        return {"inner": price.subgradient, "step": step}


def _fresh(sub: AbstractProblem, state: Any) -> tuple[AbstractProblem, Any]:
    """The same, but the compiler does not see it: it would else keep phi at the anchor, for all samples."""
    anchor, state = jax.lax.optimization_barrier((sub.expanded_at()[1], state))
    return eqx.tree_at(lambda p: p.inner.anchor, sub, anchor), state


class _Level(eqx.Module):
    """A constant schedule of a traced number."""

    level: Array

    def __call__(self, t: Any) -> Array:
        return self.level


class PLIState(eqx.Module):
    """The iterate, F there, what the inner loop keeps, and the count of outer steps."""

    w: Params
    value: Array
    kept: Any
    t: Array


class PLI(AbstractSolver):
    """w+ ~ argmin_x (1/n) sum_i f(phi_i(w) + J_i (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2, kept unless F grows."""

    problems = MeanOfLosses
    instead = "stochastic_gauss_newton"

    kappa: Array
    loop: AbstractLoop
    passes: Callable

    def init(self, problem: AbstractProblem, w: Params) -> PLIState:
        return PLIState(w, problem.value(w), self.loop.init(problem, w), jnp.zeros((), jnp.int32))

    def step(self, problem: AbstractProblem, state: PLIState, drawn: Key) -> tuple[PLIState, Info]:
        w, t = state.w, state.t
        kappa = self.kappa.astype(dtype_of(w))
        epochs = jnp.asarray(self.passes(t)).astype(jnp.int32)
        sub = problem.linearize(w).regularize(kappa, w)
        new, gap, kept = self.loop.run(sub, w, t, epochs, drawn, state.kept)
        value = problem.value(new)
        keep = value <= state.value
        moved = kappa * optax.tree.norm(optax.tree.sub(new, w))
        measure = stationarity(moved, kappa, state.value)
        after = PLIState(optax.tree.where(keep, new, w), jnp.where(keep, value, state.value), kept, t + 1)
        return after, Info({"inner": epochs}, jnp.where(keep, measure, jnp.inf), None, gap)

    def prices(self, problem: AbstractProblem, w: Params) -> dict[str, Cost]:
        return self.loop.prices(problem, w) | {"init": problem.prices(w).value}

    def check(self, problem: AbstractProblem) -> None:
        AbstractSolver.check(self, problem)
        if isinstance(self.loop, DualLoop) and not isinstance(problem.outer, AbstractProximable):
            raise TypeError(
                f'pli(inner="dual") needs an outer function with a projection; {type(problem.outer).__name__} has an '
                f'oracle instead. Take pli(kappa, nu, inner="casimir_svrg").'
            )

    def name(self) -> str:
        return "pli"


def pli(kappa: Any, nu: Any = None, inner_passes: Any = 5, step: Any = None, inner: str | None = None) -> PLI:
    """w+ ~ argmin_x (1/n) sum_i f(phi_i(w) + J_i (x - w)) + ridge/2 |x|^2 + kappa/2 |x - w|^2, kept unless F grows.

    The subproblem gets `inner_passes` epochs of an incremental inner loop (a number, or a schedule of outer steps):
    inner="casimir_svrg" smooths f by nu (a number or a schedule of outer steps); inner="dual" is block dual coordinate
    ascent, which needs neither nu nor step, and an f with a projection. Not given, it is "casimir_svrg" where nu is
    given and else "dual", the better one at equal cost (docs/decisions/0006).
    """
    if inner is None:
        inner = "dual" if nu is None and step is None else "casimir_svrg"
    one_of(inner, "inner", ("casimir_svrg", "dual"))
    kappa = number(kappa, "kappa", low=0.0, open=True)
    if not callable(inner_passes):
        inner_passes = whole(inner_passes, "inner_passes, where it is no schedule,")
    passes = as_schedule(inner_passes, "inner_passes")
    if inner == "dual":
        return PLI(kappa, DualLoop(BlockDual()), passes)
    if nu is None:
        raise ValueError('pli(inner="casimir_svrg") needs the smoothing nu; inner="dual" does without.')
    steps = None if step is None else as_schedule(step, "step")
    return PLI(kappa, CasimirLoop(as_schedule(nu, "nu"), steps), passes)
