"""How ours and the peers fit one of the NIST regressions: functions from a starting point to a
`Fit`.

All have the same residuals in float64 and, but for IPOPT, the same Jacobian by JAX, and at most
2000 evaluations.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

# before JAX starts its threads: these problems are small
os.environ.setdefault("NPROC", "1")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from bench.suite.nist_problems import MODELS, Regression
from proxlin.inference.curves.fit import SQUARES_TOL
from proxlin.solvers.relative import RelativeProxLinear

EVALUATIONS, WALL = 2000, 5.0  # seconds
ROUND_OFF = 1e-15  # ftol, xtol and gtol of MINPACK and trf


@dataclass(frozen=True)
class Fit:
    """Where a fit ended, its evaluations of the residuals, and what the solver said."""

    b: np.ndarray
    evaluations: int
    message: str


Solve = Callable[[np.ndarray], Fit]  # from a starting point; compiled by its first call
FAILED = "failed"


# ------------------------------------------------------------------------------------------ squares


def proxlin_fit(r: Regression) -> Solve:
    """The solver of px.curve_fit in a program of its own, as that of optimistix is."""
    predict = lambda w, x: r.model(jnp, w, x)[None]
    problem = px.MeanOfLosses(
        px.residual(predict),
        px.SquaredL2(),
        (jnp.asarray(r.x), jnp.asarray(r.y)[:, None]),
    )
    solver = RelativeProxLinear()

    @jax.jit
    def run(start: jax.Array) -> px.Result:
        return px.solve(problem, start, solver, steps=EVALUATIONS, tol=SQUARES_TOL)

    def fit(start: np.ndarray) -> Fit:
        found = jax.block_until_ready(run(jnp.asarray(start)))
        status = px.Status(int(found.status))
        return Fit(np.asarray(found.w), int(found.steps), str(status))

    return fit


def minimized(problem: px.MeanOfLosses, start: np.ndarray) -> Fit:
    """Rescaled(prox_linear) until it ends by itself; an evaluation with its Jacobian is 1.5 passes."""
    found = px.minimize(
        *(problem, jnp.asarray(start), px.Rescaled(px.prox_linear())),
        passes=1.5 * EVALUATIONS,
        steps=EVALUATIONS,
        stop=lambda w, record: record["seconds"] > WALL,  # without compilation
    )
    return Fit(np.asarray(found.w), int(found.history["step"][-1]), str(found.status))


def residuals(r: Regression) -> tuple[Callable, Callable]:
    """The residuals and their Jacobian as numpy functions."""
    x, y = jnp.asarray(r.x.T), jnp.asarray(r.y)
    u = lambda b: r.model(jnp, b, x) - y
    value, jacobian = jax.jit(u), jax.jit(jax.jacfwd(u))
    return lambda b: np.array(value(b)), lambda b: np.array(jacobian(b))


def scipy_fit(r: Regression, method: Any) -> Solve:
    from scipy.optimize import least_squares

    value, jacobian = residuals(r)
    limits: dict[str, Any] = {
        "ftol": ROUND_OFF,
        "xtol": ROUND_OFF,
        "gtol": ROUND_OFF,
        "max_nfev": EVALUATIONS,
    }
    limits |= {"jac": jacobian, "x_scale": "jac"}  # "jac": MINPACK's own scales

    def fit(start: np.ndarray) -> Fit:
        found = least_squares(value, start, method=method, **limits)
        return Fit(found.x, found.nfev, found.message)

    return fit


def lmfit_fit(r: Regression) -> Solve:
    import lmfit

    value, jacobian = residuals(r)
    array = lambda parameters: np.array([each.value for each in parameters.values()])
    limits = {
        "ftol": ROUND_OFF,
        "xtol": ROUND_OFF,
        "gtol": ROUND_OFF,
        "max_nfev": EVALUATIONS,
        "calc_covar": False,
    }

    def fit(start: np.ndarray) -> Fit:
        parameters = lmfit.create_params(
            **{f"b{i}": float(x) for i, x in enumerate(start)}
        )
        u, J = lambda p: value(array(p)), lambda p: jacobian(array(p))
        found: Any = lmfit.minimize(
            u, parameters, method="leastsq", Dfun=J, nan_policy="propagate", **limits
        )
        return Fit(array(found.params), found.nfev, found.message)

    return fit


def optimistix_fit(r: Regression, name: str) -> Solve:
    import optimistix as optx

    x, y = jnp.asarray(r.x.T), jnp.asarray(r.y)
    # atol: a parameter of Nelson is 6e-9
    solver = getattr(optx, name)(rtol=1e-10, atol=1e-20)

    @jax.jit
    def run(start: jax.Array) -> tuple[jax.Array, jax.Array]:
        u = lambda b, args: r.model(jnp, b, x) - y
        found = optx.least_squares(u, solver, start, max_steps=EVALUATIONS, throw=False)
        return found.value, found.stats["num_steps"]

    def fit(start: np.ndarray) -> Fit:
        b, steps = jax.block_until_ready(run(jnp.asarray(start)))
        return Fit(np.asarray(b), int(steps), "")

    return fit


def attempted(solve: Solve, start: np.ndarray) -> Fit:
    """A fit; where a solver raises (scipy does at residuals that are not finite), that is a
    failure.
    """
    try:
        return solve(start)
    except (ValueError, FloatingPointError, np.linalg.LinAlgError) as error:
        return Fit(np.full_like(start, np.nan), 0, f"{FAILED}: {error}")


# ------------------------------------------------------------------------------------- l1 and Huber

SAMPLES, PARAMETERS, PREDICTORS = 250, 9, 2  # the largest of the 27
DISTINCT = list(dict.fromkeys(MODELS.values()))  # 20: some share a model


class AnyModel(eqx.Module):
    """The residual of the model number `which`, a leaf: one compilation serves all 27."""

    which: jax.Array

    def __call__(self, w: jax.Array, sample: Any) -> jax.Array:
        x, y = sample
        return _switched(self.which, w, x) - y


# traced once: a minimize traces phi several times, and 20 models take a second
@jax.jit
def _switched(which: jax.Array, w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.lax.switch(which, [partial(_predict, f) for f in DISTINCT], w, x)


def _predict(f: Callable, w: jax.Array, x: jax.Array) -> jax.Array:
    return f(jnp, w, *(x if f is MODELS["Nelson"] else x[:1]))[None]


def padded(r: Regression, outer: Any) -> px.MeanOfLosses:
    """The problem with 250 samples, copies of which share a weight, and 9 parameters, those added
    unused.
    """
    row = np.arange(SAMPLES) % len(r.y)
    x = np.pad(r.x, ((0, 0), (0, PREDICTORS - r.x.shape[1])))[row]
    which = jnp.asarray(DISTINCT.index(MODELS[r.name]))
    data = (jnp.asarray(x), jnp.asarray(r.y)[row, None])
    return px.MeanOfLosses(
        AnyModel(which), outer, data, weights=1 / np.bincount(row)[row]
    )


def robust_fit(r: Regression, delta: float | None) -> Solve:
    problem, d = (
        padded(r, px.L1() if delta is None else px.Huber(delta)),
        len(r.certified),
    )

    def fit(start: np.ndarray) -> Fit:
        found = minimized(problem, np.pad(start, (0, PARAMETERS - d)))
        return Fit(found.b[:d], found.evaluations, found.message)

    return fit


class Atoms:
    """The elementary functions of the models as atoms of cvxpy; arctan z is the a with tan a = z."""

    def __init__(self) -> None:
        import cvxpy as cp
        from cvxpy.atoms.elementwise.trig import cos, sin, tan

        self.exp, self.log, self.sin, self.cos, self.tan = cp.exp, cp.log, sin, cos, tan
        self.multiply, self.variable, self.constraints = cp.multiply, cp.Variable, []

    def arctan(self, z: Any) -> Any:
        a = self.variable(
            z.shape, value=np.arctan(z.value), bounds=[-np.pi / 2, np.pi / 2]
        )
        self.constraints.append(self.tan(a) == z)
        return a


def ipopt_fit(r: Regression, delta: float | None) -> Solve:
    """min sum_i f(u_i(b)) with f lifted to constraints by cvxpy."""
    import cvxpy as cp

    huber: Any = cp.huber

    def fit(start: np.ndarray) -> Fit:
        m, b = Atoms(), [cp.Variable(value=float(x)) for x in start]
        u = r.model(m, b, list(r.x.T)) - r.y
        f = cp.abs(u) if delta is None else huber(u, delta) / 2
        problem = cp.Problem(cp.Minimize(cp.sum(f) / len(r.y)), m.constraints)
        with warnings.catch_warnings():
            # "Solution may be inaccurate": F at b says it
            warnings.simplefilter("ignore")
            try:
                problem.solve(
                    nlp=True,
                    solver=cp.IPOPT,
                    print_level=0,
                    max_iter=EVALUATIONS,
                    max_wall_time=WALL,
                    tol=1e-12,
                )
            except cp.SolverError:
                return Fit(np.full_like(start, np.nan), 0, FAILED)
        values = [np.nan if each.value is None else float(each.value) for each in b]
        return Fit(np.array(values), 0, problem.status)

    return fit
