"""The fits of bench/suite/robust.py, and every method on them as run(w, count, see=None).

A run gives the point `count` iterations from w; see(t, point), if given, is told of each and may
raise `Stop`.
"""

import itertools
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

EPS = 0.01
STARTS = {"small": 3, "middle": 1, "large": 1}
SIZES = {
    "small": ((8, 6, 4), 3, 1000),
    "middle": ((20, 16, 5), 8, 1000),
    "large": ((64, 32, 10), 16, 2000),
}

Run = Callable[..., Any]


class Stop(Exception):
    """A run has met the goal or has used its time."""


class Task:
    """The data, the start and F, for ours as a problem and for peers as functions of a flat vector."""

    def __init__(self, name: str):
        import jax
        import jax.numpy as jnp
        from jax.flatten_util import ravel_pytree

        import proxlin as px
        from proxlin.networks import MLP

        sizes, width, n = SIZES[name]
        rng, teacher, self.predict = (
            np.random.default_rng(0),
            MLP((sizes[0], width, sizes[-1])),
            MLP(sizes),
        )
        truth = teacher.init(jax.random.key(0), jnp.float64)
        x = jnp.asarray(rng.normal(size=(n, sizes[0])))
        y = np.array(jax.vmap(partial(teacher, truth))(x)) + 0.1 * rng.standard_t(
            2, size=(n, sizes[-1])
        )
        y[rng.permutation(n)[: n // 10]] += 2 * rng.normal(size=(n // 10, sizes[-1]))
        self.x, self.y, self.n, self.k = x, jnp.asarray(y), n, sizes[-1]
        self.problem = px.MeanOfLosses(
            px.residual(self.predict), px.L2(), (self.x, self.y)
        )
        starts = [
            self.predict.init(jax.random.key(1 + start), jnp.float64)
            for start in range(STARTS[name])
        ]
        self.unravel, self.ravel = (
            ravel_pytree(starts[0])[1],
            lambda w: ravel_pytree(w)[0],
        )
        self.starts = [np.asarray(self.ravel(w)) for w in starts]
        self.value = jax.jit(partial(self.loss, eps=0.0))

    def residuals(self, w: Any) -> Any:
        """(n, k)."""
        import jax

        return jax.vmap(partial(self.predict, self.unravel(w)))(self.x) - self.y

    def loss(self, w: Any, eps: float = EPS) -> Any:
        import jax.numpy as jnp

        return jnp.mean(jnp.sqrt(jnp.sum(self.residuals(w) ** 2, axis=1) + eps**2))

    def roots(self, w: Any) -> Any:
        """(|r_i|^2 + eps^2)^(1/4) / sqrt n, whose squares sum to F_eps."""
        import jax.numpy as jnp

        return (jnp.sum(self.residuals(w) ** 2, axis=1) + EPS**2) ** 0.25 / self.n**0.5

    @cached_property
    def rows(self) -> Callable:
        """The residuals and the Jacobian (n, k, d) at w, compiled."""
        import jax

        row = lambda w, x, y: self.predict(self.unravel(w), x) - y
        return jax.jit(
            lambda w: (
                self.residuals(w),
                jax.vmap(jax.jacrev(row), (None, 0, 0))(w, self.x, self.y),
            )
        )


# --------------------------------------------------------------------------------------------- ours


def prox_linear(task: Task) -> Run:
    import proxlin as px

    return by_solve(task, px.prox_linear())


def lbfgs(task: Task) -> Run:
    """On problem.smooth(0.02), F_nu <= F <= F_nu + 0.01, with the 50 pairs of the peers."""
    import proxlin as px

    return by_solve(task, px.lbfgs(0.02, memory=50))


def by_solve(task: Task, solver: Any) -> Run:
    """px.minimize where points are to be seen, at its records, and a jitted px.solve, one compiled
    loop as that of the peers, where they are not.
    """
    import jax
    import jax.numpy as jnp

    import proxlin as px

    def solved(w: Any, count: Any) -> Any:
        start = task.unravel(w)
        return task.ravel(px.solve(task.problem, start, solver, steps=count).w)

    whole = jax.jit(solved)

    def run(w: np.ndarray, count: int, see: Callable | None = None) -> Any:
        if see is None:
            return whole(w, count).block_until_ready()

        def stop(w: Any, record: Any) -> bool:
            return bool(see(int(record["step"]), task.ravel(w)))

        start = task.unravel(jnp.asarray(w))
        found = px.minimize(task.problem, start, solver, steps=count, stop=stop)
        return task.ravel(found.w)

    return run


# -------------------------------------------------------------------------------------------- peers


def scipy_lbfgs(task: Task, eps: float) -> Run:
    import jax
    from scipy.optimize import minimize

    both = jax.jit(jax.value_and_grad(partial(task.loss, eps=eps)))

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = both(w)
        return float(value), np.asarray(gradient)

    def run(w: np.ndarray, count: int, see: Callable | None = None) -> Any:
        clock = itertools.count(1)
        callback = None if see is None else lambda w: see(next(clock), w)
        options = {
            "maxiter": count,
            "maxfun": 10**9,
            "ftol": 0.0,
            "gtol": 0.0,
            "maxcor": 50,
        }
        return minimize(
            fun, w, jac=True, method="L-BFGS-B", callback=callback, options=options
        ).x

    return run


def scipy_least_squares(task: Task, blocks: bool) -> Run:
    """blocks: F_eps, by a loss that sees all squares; else soft_l1 of each residual, which is
    another objective.
    """
    from scipy.optimize import least_squares

    def block_loss(z: np.ndarray) -> np.ndarray:
        """rho with sum rho = 2 sum_i sqrt(|r_i|^2 + eps^2), and its derivative in each square; none
        of higher order.
        """
        size = np.repeat(np.sqrt(z.reshape(-1, task.k).sum(axis=1) + EPS**2), task.k)
        return np.stack([2 * size / task.k, 1 / size, np.zeros_like(size)])

    seen: dict[str, Any] = {}

    def both(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if "w" not in seen or not np.array_equal(seen["w"], w):
            u, J = task.rows(w)
            seen.update(
                w=w.copy(), u=np.asarray(u).ravel(), J=np.asarray(J).reshape(-1, w.size)
            )
        return seen["u"], seen["J"]

    def run(w: np.ndarray, count: int, see: Callable | None = None) -> Any:
        clock = itertools.count(1)

        def callback(intermediate_result: Any) -> None:
            t = next(clock)
            if see is not None:
                see(t, intermediate_result.x)
            if t >= count:
                raise StopIteration

        loss = {"loss": block_loss} if blocks else {"loss": "soft_l1", "f_scale": 0.1}
        never = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15, "max_nfev": 10**9}
        jacobian: Any = lambda w: both(w)[1]
        return least_squares(
            lambda w: both(w)[0],
            w,
            jacobian,
            tr_solver="lsmr",
            callback=callback,
            **loss,
            **never,
        ).x

    return run


def compiled(start: Callable[[Any], Any], advance: Callable[[Any], Any]) -> Run:
    """A loop of `advance` compiled as a whole, or step by step where points are to be seen; the
    point comes first.
    """
    import jax

    whole = jax.jit(
        lambda w, count: jax.lax.fori_loop(0, count, lambda _, s: advance(s), start(w))[
            0
        ]
    )
    first, step = jax.jit(start), jax.jit(advance)

    def run(w: np.ndarray, count: int, see: Callable | None = None) -> Any:
        if see is None:
            return whole(w, count).block_until_ready()
        state = first(w)
        for t in range(1, count + 1):
            state = step(state)
            see(t, state[0])
        return state[0]

    return run


def jaxopt_peer(task: Task, name: str) -> Run:
    import jaxopt

    kinds = {
        "LBFGS": lambda: jaxopt.LBFGS(
            task.loss, maxiter=10**9, tol=0.0, history_size=50
        ),
        "LM": lambda: jaxopt.LevenbergMarquardt(
            task.roots, maxiter=10**9, tol=0.0, materialize_jac=True
        ),
    }
    solver = kinds[name]()
    return compiled(
        lambda w: (w, solver.init_state(w)), lambda s: tuple(solver.update(*s))
    )


def optimistix_peer(task: Task, name: str) -> Run:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optimistix

    kinds: dict[str, Any] = {
        "LM": optimistix.LevenbergMarquardt,
        "BFGS": optimistix.BFGS,
        "LBFGS": optimistix.LBFGS,
    }
    solver, objective = (
        kinds[name](rtol=0.0, atol=0.0),
        task.roots if name == "LM" else task.loss,
    )
    fn, tags, shape = (
        lambda w, _: (objective(w), None),
        frozenset(),
        jax.eval_shape(objective, task.starts[0]),
    )
    first = lambda w: solver.init(fn, w, None, {}, shape, None, tags)
    fixed = eqx.filter(first(jnp.asarray(task.starts[0])), eqx.is_array, inverse=True)

    def advance(carry: Any) -> Any:
        w, state, _ = solver.step(
            fn, carry[0], None, {}, eqx.combine(carry[1], fixed), tags
        )
        return w, eqx.filter(state, eqx.is_array)

    return compiled(lambda w: (w, eqx.filter(first(w), eqx.is_array)), advance)


def ceres(task: Task) -> Run:
    """Levenberg-Marquardt with SoftLOne on the block of each sample; all blocks are computed at
    once and kept.
    """
    import pyceres

    d = task.starts[0].size
    seen: dict[str, Any] = {"w": np.full(d, np.nan)}

    class Sample(pyceres.CostFunction):
        def __init__(self, i: int):
            pyceres.CostFunction.__init__(self)
            self.i = i
            self.set_num_residuals(task.k)
            self.set_parameter_block_sizes([d])

        def Evaluate(self, parameters: Any, residuals: Any, jacobians: Any) -> bool:
            w = parameters[0]
            if not np.array_equal(seen["w"], w):
                u, J = task.rows(w)
                seen.update(w=np.array(w), u=np.asarray(u), J=np.asarray(J))
            residuals[:] = seen["u"][self.i]
            if jacobians is not None and jacobians[0] is not None:
                jacobians[0][:] = seen["J"][self.i].ravel()
            return True

    class Each(pyceres.IterationCallback):
        def __init__(self, w: np.ndarray, see: Callable):
            pyceres.IterationCallback.__init__(self)
            self.w, self.see, self.clock = w, see, itertools.count()

        def __call__(self, summary: Any) -> Any:
            try:
                self.see(next(self.clock), self.w)
            except Stop:
                return pyceres.CallbackReturnType.SOLVER_TERMINATE_SUCCESSFULLY
            return pyceres.CallbackReturnType.SOLVER_CONTINUE

    def run(w: np.ndarray, count: int, see: Callable | None = None) -> Any:
        w, problem, loss = w.copy(), pyceres.Problem(), pyceres.SoftLOneLoss(EPS)
        blocks = [Sample(i) for i in range(task.n)]
        for block in blocks:
            problem.add_residual_block(block, loss, [w])
        options = pyceres.SolverOptions()
        options.linear_solver_type = pyceres.LinearSolverType.DENSE_NORMAL_CHOLESKY
        options.max_num_iterations, options.minimizer_progress_to_stdout = count, False
        options.function_tolerance = options.gradient_tolerance = (
            options.parameter_tolerance
        ) = 0.0
        options.logging_type = pyceres.LoggingType.SILENT
        if see is not None:
            options.update_state_every_iteration, options.callbacks = (
                True,
                [Each(w, see)],
            )
        pyceres.solve(options, problem, pyceres.SolverSummary())
        return w

    return run


OURS = {"lbfgs": lbfgs, "prox_linear": prox_linear}
PEERS: dict[str, tuple[str, Callable[[Task], Run]]] = {  # name: (module, builder)
    "scipy L-BFGS, F": ("scipy", lambda task: scipy_lbfgs(task, 0.0)),
    "scipy L-BFGS, F_eps": ("scipy", lambda task: scipy_lbfgs(task, EPS)),
    "scipy LSQ, blocks": ("scipy", lambda task: scipy_least_squares(task, True)),
    "scipy LSQ, soft_l1": ("scipy", lambda task: scipy_least_squares(task, False)),
    "optimistix LM": ("optimistix", lambda task: optimistix_peer(task, "LM")),
    "optimistix BFGS": ("optimistix", lambda task: optimistix_peer(task, "BFGS")),
    "jaxopt LBFGS": ("jaxopt", lambda task: jaxopt_peer(task, "LBFGS")),
    "jaxopt LM": ("jaxopt", lambda task: jaxopt_peer(task, "LM")),
    "Ceres LM, SoftLOne": ("pyceres", ceres),
}
DENSE = {
    "prox_linear",
    "scipy LSQ, blocks",
    "scipy LSQ, soft_l1",
    "optimistix LM",
    "jaxopt LM",
    "Ceres LM, SoftLOne",
}
