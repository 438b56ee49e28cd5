"""The runs behind the study `phase`: a batch of random problems and one method, one run of exact steps, and one image.

    b_i = |<a_i, x>|^2 for most i,      F(w) = (1/m) sum_i ||<a_i, w>|^2 - b_i|,      error(w) = min_c |w - c x| / |x|

A trial is a success where the error is at most 1e-5. A case has many trials, each from one or both kinds of starts.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..data.phase import (
    PATTERNS,
    SQUARES,
    Phase,
    coded_field,
    coded_pattern,
    draw_phase,
    pairs,
    phase_retrieval,
    random_codes,
    relative_distance,
)
from ..outers import L1
from ..problem import MeanOfLosses
from ..run import minimize, solve, solve_many, spectral_start
from ..schedules import AbstractSchedule
from ..solvers import AbstractSolver, pli, prox_linear, sgd, truncated
from ..tuning.axes import HALF_DECADE
from ..tuning.search import Axis, Lattice

EXACT = "prox-linear"
# rate: the step times n, since a step is stable up to about 1 / |a|^2; kappa: the weight of the proximal term of PLI
GRIDS: dict[str, dict[str, Axis]] = {
    EXACT: {},
    "pli": {"kappa": Lattice(1.0, HALF_DECADE, (-1, 1))},
    "sgd": {"rate": Lattice(0.3, HALF_DECADE, (-1, 1))},
    "truncated": {"rate": Lattice(1.0, HALF_DECADE, (-1, 1))},
}
STARTS = ("random", "spectral")
SUCCESS = 1e-5  # the error up to which a signal counts as recovered
INNER = 5  # epochs of a subproblem of PLI, as by default
SHRINK = 1e-7  # the last step of SGD over the first: below SUCCESS, else SGD could not get there
TOLERANCE = 1e-9  # of exact steps, far below SUCCESS
IMAGE_TOLERANCE = 1e-6  # of steps without a matrix, which take first-order iterations
WORST = 10.0  # the error of a run that diverged, in the mean that tunes


class Geometric(AbstractSchedule):
    """s q^t: on a sharp F these steps converge linearly (Davis, Drusvyatskiy, MacPhee and Paquette 2018)."""

    s: Array
    q: Array

    def __call__(self, t: Any) -> Array:
        return self.s * self.q ** jnp.asarray(t, self.s.dtype)


def solver_of(method: str, settings: Mapping[str, Any], m: int) -> AbstractSolver:
    """Return the solver of a method; SGD and its truncated twin have steps that fall to SHRINK over the whole run."""
    if method == EXACT:
        return prox_linear()
    if method == "pli":
        return pli(settings["kappa"], inner_passes=INNER)
    first = jnp.asarray(settings["rate"] / settings["n"])
    q = jnp.asarray(SHRINK ** (1 / (settings["passes"] * m)))
    recipe = sgd if method == "sgd" else truncated
    return recipe(Geometric(first, q))


def draw_trials(settings: Mapping[str, Any]) -> list[Phase]:
    """Draw the problems of a case; methods of one seed get the same."""
    n = settings["n"]
    m = round(settings["ratio"] * n)
    found = []
    for trial in range(settings["trials"]):
        rng = np.random.default_rng([settings["seed"], trial, m, n])
        found.append(
            draw_phase(
                settings["kind"],
                m,
                n,
                rng,
                settings["complex"],
                settings["corruption"],
            )
        )
    return found


SPECTRAL = jax.jit(jax.vmap(spectral_start))


def starts_of(
    trials: list[Phase], settings: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Return a random and a spectral start for each trial; both have the length that the squares tell."""
    rows = np.stack([each.rows for each in trials])
    squares = np.stack([each.squares for each in trials])
    spectral = np.asarray(SPECTRAL(rows, squares))
    rng = np.random.default_rng([settings["seed"], 10**6])
    random = rng.normal(size=spectral.shape)
    axes = tuple(range(1, random.ndim))
    length = np.sqrt(np.sum(spectral**2, axis=axes, keepdims=True))
    random = random * length / np.sqrt(np.sum(random**2, axis=axes, keepdims=True))
    return {"random": random, "spectral": spectral}


def succeed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one case: how many trials succeed from each of the kinds of starts asked for, and their errors."""
    trials = draw_trials(settings)
    starts = starts_of(trials, settings)
    asked = settings["starts"]
    rows = np.stack([pairs(each.rows) for each in trials])
    squares = np.stack([each.squares for each in trials])
    truth = np.stack([each.signal for each in trials])
    w = _solved(
        np.concatenate([rows for _ in asked]),
        np.concatenate([squares for _ in asked]),
        np.concatenate([starts[name] for name in asked]),
        settings,
    )
    errors = relative_distance(w, np.concatenate([truth for _ in asked]))
    errors = np.where(np.isfinite(errors), np.minimum(errors, WORST), WORST)
    # rounding errors below it are no reason to choose a setting
    logarithms = np.log10(errors + 1e-12)
    found: dict[str, Any] = {"validation_loss": float(np.mean(logarithms))}
    for name, mine in zip(asked, np.split(errors, len(asked)), strict=True):
        found[f"successes_{name}"] = int(np.sum(mine <= SUCCESS))
        found[f"median_error_{name}"] = float(np.median(mine))
    return found


def _solved(
    rows: np.ndarray,
    squares: np.ndarray,
    starts: np.ndarray,
    settings: Mapping[str, Any],
) -> np.ndarray:
    """Return what the method finds on each problem.

    Exact steps run one problem after the other: side by side each would wait for the slowest inner loop of its batch,
    which took ten times as long with 60 problems of 128 squares.
    """
    method = settings["method"]
    solver = solver_of(method, settings, squares.shape[1])
    make = lambda rows, squares: MeanOfLosses(SQUARES, L1(), (rows, squares))
    if method == EXACT:
        found = []
        for row, b, start in zip(rows, squares, jnp.asarray(starts), strict=True):
            problem = make(row, b)
            run = solve(problem, start, solver, steps=settings["steps"], tol=TOLERANCE)
            found.append(np.asarray(run.w))
        return np.stack(found)
    problems = jax.vmap(make)(jnp.asarray(rows), jnp.asarray(squares))
    result = solve_many(
        problems,
        jnp.asarray(starts),
        solver,
        in_axes=(0, 0),
        passes=settings["passes"],
        key=jax.random.key(settings["seed"]),
    )
    return np.asarray(result.w)


def converge(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Take exact steps on one problem with noise; return the curves of the error and of F, and F at the signal."""
    n = settings["n"]
    rng = np.random.default_rng([settings["seed"], n])
    m = round(settings["ratio"] * n)
    # the noise is drawn last, so that all levels share rows and signal
    drawn = draw_phase("gaussian", m, n, rng, False, 0.0, settings["noise"])
    problem = phase_retrieval(drawn.rows, drawn.squares)
    start = spectral_start(drawn.rows, drawn.squares)
    error = lambda w: jnp.minimum(
        jnp.linalg.norm(w - drawn.signal), jnp.linalg.norm(w + drawn.signal)
    )
    run = minimize(
        problem, start, prox_linear(), steps=settings["steps"], metrics={"error": error}
    )
    return {
        "curve_error": np.asarray(run.history["error"]).tolist(),
        "curve_value": np.asarray(run.history["value"]).tolist(),
        "level": float(problem.value(jnp.asarray(drawn.signal))),
    }


def picture(side: int) -> np.ndarray:
    """Return an image (side, side) of numbers from 0 to 1 that code draws: a disc, a bar, a ring and a slope."""
    y, x = np.mgrid[:side, :side] / (side - 1)
    image = 0.25 * x
    image[(x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.06] = 0.9
    ring = np.hypot(x - 0.68, y - 0.65)
    image[(ring > 0.14) & (ring < 0.22)] = 0.6
    image[(x > 0.1) & (x < 0.9) & (y > 0.84) & (y < 0.92)] = 1.0
    return image


def patterns_of(
    image: np.ndarray, codes: int, corruption: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the codes as pairs of reals, the patterns as measured, and which entries of them are wrong."""
    shape = (codes, *image.shape)
    code = pairs(random_codes(shape, rng))
    clean = np.asarray(
        jax.vmap(lambda each: coded_pattern(jnp.asarray(image), each))(
            jnp.asarray(code)
        )
    )
    wrong = rng.random(clean.shape) < corruption
    gross = np.median(clean) * np.abs(rng.standard_cauchy(clean.shape))
    return code, np.where(wrong, gross, clean), wrong


def recover(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Recover an image from corrupted coded diffraction patterns, without a matrix; return it and its error."""
    image = picture(settings["side"])
    rng = np.random.default_rng([settings["seed"], settings["side"]])
    code, patterns, _ = patterns_of(
        image, settings["codes"], settings["corruption"], rng
    )
    problem = MeanOfLosses(PATTERNS, L1(), (code, patterns))
    fields = jax.vmap(coded_field, in_axes=(None, 0))
    like = jnp.zeros_like(jnp.asarray(image))
    start = spectral_start(
        lambda w: fields(w, jnp.asarray(code)).reshape(patterns.shape),
        jnp.asarray(patterns),
        like,
    )

    def look(w: Array) -> float:
        return float(relative_distance(np.ravel(w), image.ravel()))

    run = minimize(
        problem,
        start,
        prox_linear(tol=IMAGE_TOLERANCE),
        steps=settings["steps"],
        stop=lambda w, record: look(w) <= SUCCESS,
        metrics={"error": look},
    )
    errors = np.asarray(run.history["error"])
    sign = np.sign(np.sum(np.asarray(run.w) * image))
    return {
        "curve_error": errors.tolist(),
        "error": float(errors[-1]),
        "start": np.abs(np.asarray(start)).round(4).ravel().tolist(),
        "recovered": (sign * np.asarray(run.w)).round(4).ravel().tolist(),
    }
