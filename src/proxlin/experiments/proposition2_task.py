"""Runs of exact prox-linear on noisy data, for Proposition 2: one case for each problem and seed.

y_i = phi(x_i; wbar) + sigma xi_i,     w_j the first iterate of the quadratic phase, by two radii

Every run has a map, a start and a noise of its own, so that all of them are independent trials.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..inners import residual
from ..networks import MLP
from ..outers import L2
from ..plots.pages import Row
from ..problem import MeanOfLosses
from ..run import minimize
from ..solvers import prox_linear
from ..theory import chi_mean, least_kappa, quadratic_phase, quadratic_radius
from ..theory.proposition1 import FLOOR
from .proposition2_coverage import NOISES, standard
from .sine_maps import exact_path, near, orthogonal

SINE = "sine map"
NETWORK = "tanh network"
RADII = ("measured", "Proposition 1")  # R_j of the run, and the bound on it
INPUTS = 16  # of the network
WIDTH = 512


@dataclass(frozen=True)
class Trial:
    """One run of exact prox-linear on noisy data: F_t, the noise level F(wbar), and the phase by
    each radius.
    """

    problem: str
    noise: str
    n: int
    k: int
    sigma: float
    seed: int
    values: list[float]
    level: float
    phases: dict[str, list]  # (start, radius)

    def group(self) -> dict:
        """Return the columns that trials of one kind share."""
        return {"problem": self.problem, "n": self.n, "k": self.k, "noise": self.noise}

    def first(self, radius: str) -> float:
        """Return F at the first iterate of the phase."""
        return self.values[self.phases[radius][0]]

    def ratio(self, radius: str) -> float:
        """Return sigma E chi_k / R: about 1 where the noise level is the radius."""
        return self.sigma * chi_mean(self.k) / self.phases[radius][1]

    def row(self) -> Row:
        """Return the trial in one row; what a phase that was not reached lacks is None."""
        row = {
            **self.group(),
            "sigma": self.sigma,
            "seed": self.seed,
            "steps": len(self.values) - 1,
        }
        row["F(wbar)"] = self.level
        for radius in RADII:
            found: dict[str, Any] = dict.fromkeys(("R", "j", "F_j", "sigma E chi / R"))
            if radius in self.phases:
                start, R = self.phases[radius]
                found = {
                    "R": R,
                    "j": start,
                    "F_j": self.first(radius),
                    "sigma E chi / R": self.ratio(radius),
                }
            row |= {f"{radius} {name}": value for name, value in found.items()}
        return row


@dataclass(frozen=True)
class Task:
    """F_t as a function of the noise, and Proposition 1's radius where the constants are known."""

    solve: Callable[[np.ndarray], np.ndarray]
    radius: float | None

    def phases(self, values: np.ndarray) -> dict[str, list]:
        """Return (start, radius) of the quadratic phase of a run, by each radius that it reached."""
        found = {}
        phase = quadratic_phase(values)
        if phase is not None:
            found["measured"] = [phase.start, phase.radius]
        if self.radius is not None and values[-1] <= self.radius:
            found["Proposition 1"] = [
                int(np.argmax(values <= self.radius)),
                self.radius,
            ]
        return found


def sweep(settings: Mapping[str, Any]) -> dict:
    """Run every noise and every multiple of the radius once, each on a draw of its own."""
    low, high, number = settings["multiples"]
    trials = []
    lost = 0
    for noise in NOISES:
        for j, multiple in enumerate(np.geomspace(low, high, int(number))):
            found = trial(settings, noise, j, float(multiple))
            if found is None:
                lost += 1
            else:
                trials.append(asdict(found))
    return {"trials": trials, "lost": lost}


def trial(
    settings: Mapping[str, Any], noise: str, number: int, multiple: float
) -> Trial | None:
    """Run a fresh map from a fresh start with fresh noise; sigma E chi_k is `multiple` times the radius of its own
    run without noise. None: that run had no quadratic phase.
    """
    problem, n, k = (settings[name] for name in ("problem", "n", "k"))
    rng = np.random.default_rng([*settings["seed"], n, k, NOISES.index(noise), number])
    task = MAKERS[problem](n, k, rng, settings["steps"])
    xi = standard(noise, n, k, rng)
    pilot = task.phases(task.solve(np.zeros((n, k))))
    if "measured" not in pilot:
        return None
    _, radius = pilot["measured"]
    sigma = multiple * radius / chi_mean(k)
    values = task.solve(sigma * xi)
    level = float(sigma * np.linalg.norm(xi, axis=1).mean())
    label = (problem, noise, n, k, float(sigma), settings["seed"][1])
    return Trial(*label, values.tolist(), level, task.phases(values))


def _sine(n: int, k: int, rng: np.random.Generator, steps: int) -> Task:
    """Return the exact method with kappa = L l / sqrt n, on a map with known constants."""
    known = orthogonal(n, k, rng)
    wbar = rng.normal(size=known.A.shape[-1])
    w = near(wbar, 10.0, rng)
    kappa = least_kappa(n, known.smoothness, 1.0)
    clean = known.target(wbar)
    return Task(
        lambda xi: exact_path(known.problem(clean + xi, L2()), w, kappa, steps).values,
        quadratic_radius(n, known.smoothness, 1.0, 1.0, known.least_singular),
    )


def _network(n: int, k: int, rng: np.random.Generator, steps: int) -> Task:
    """Return the exact method with an adaptive kappa on a wide tanh network, whose constants are
    not known.
    """
    predict = MLP((INPUTS, WIDTH, k))
    wbar, w = (
        predict.init(jax.random.key(int(seed))) for seed in rng.integers(0, 2**31, 2)
    )
    x = rng.normal(size=(n, INPUTS))
    clean = np.asarray(jax.vmap(lambda row: predict(wbar, row))(jnp.asarray(x)))

    def solve(xi: np.ndarray) -> np.ndarray:
        problem = MeanOfLosses(residual(predict), L2(), (x, clean + xi))
        stop = lambda _, record: record["value"] <= FLOOR
        return minimize(
            problem, w, prox_linear(tol=1e-14), steps=steps, stop=stop
        ).history["value"]

    return Task(solve, None)


MAKERS = {SINE: _sine, NETWORK: _network}
