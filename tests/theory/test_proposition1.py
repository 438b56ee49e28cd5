"""Proposition 1: each inequality with its own constant, on every iterate of exact prox-linear, down
to round-off.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin import theory
from proxlin.experiments.proposition1_task import local_path
from proxlin.experiments.sine_maps import (
    aligned,
    as_printed,
    attained,
    exact_path,
    near,
    orthogonal,
)
from proxlin.networks import MLP

N, K = 5, 2
OUTERS = {"l2": px.L2(), "l1": px.L1()}
FLOOR = 1e-13  # round-off; the certified gap of each subproblem is allowed on top of it


@pytest.fixture(scope="module")
def paths():
    """(map, f, power of n in the constant) -> (known constants, l, sharpness, kappa, paths from
    three starts).
    """
    found = {}
    for name, make in (("across", orthogonal), ("along", aligned)):
        rng = np.random.default_rng(7)
        known = make(N, K, rng)
        for outer, f in OUTERS.items():
            starts = []
            for distance in (2.0, 6.0, 20.0):
                wbar = rng.normal(size=known.A.shape[-1])
                starts.append(
                    (known.problem(known.target(wbar), f), near(wbar, distance, rng))
                )
            l, sharpness = float(f.lipschitz(K)), float(f.sharpness(K))
            for power, kappa in (
                (1.5, known.smoothness * l / N**0.5),
                (2.0, known.smoothness * l),
            ):
                runs = [exact_path(problem, w, kappa, 1000) for problem, w in starts]
                found[name, outer, power] = (known, l, sharpness, kappa, runs)
    return found


CASES = [
    (name, outer, power)
    for name in ("across", "along")
    for outer in OUTERS
    for power in (1.5, 2.0)
]


@pytest.mark.parametrize(("name", "outer", "power"), CASES)
def test_the_radius_has_the_constant_of_its_kappa(paths, name, outer, power):
    known, l, sharpness, kappa, _ = paths[name, outer, power]
    L, sigma = known.smoothness, known.least_singular
    R = theory.quadratic_radius(N, L, l, sharpness, sigma, kappa)
    assert pytest.approx((sharpness * sigma) ** 2 / (L * l * N**power), rel=1e-12) == R
    assert pytest.approx((sharpness * sigma) ** 2 / (kappa * N**2), rel=1e-12) == R


@pytest.mark.parametrize(("name", "outer", "power"), CASES)
def test_decrease_before_the_radius(paths, name, outer, power):
    """F_t - F_{t+1} >= (sharpness sigma_min / n)^2 / (2 kappa)."""
    known, _, sharpness, kappa, runs = paths[name, outer, power]
    gain = (sharpness * known.least_singular / N) ** 2 / (2 * kappa)
    steps = 0
    for path in runs:
        before = path.values[:-1] >= 2 * gain
        assert np.all(
            (path.values[:-1] - path.values[1:] >= gain - path.gaps - FLOOR)[before]
        )
        steps += before.sum()
    assert steps >= 3


@pytest.mark.parametrize(("name", "outer", "power"), CASES)
def test_quadratic_after_the_radius(paths, name, outer, power):
    """F_{t+1} <= L l n^power / (2 (sharpness sigma_min)^2) F_t^2, and so at most F_t / 2; every
    path ends at 0.
    """
    known, l, sharpness, _, runs = paths[name, outer, power]
    rate = known.smoothness * l * N**power / (sharpness * known.least_singular) ** 2 / 2
    for path in runs:
        F, slack = path.values, path.gaps + FLOOR
        after = F[:-1] <= 1 / (2 * rate)
        assert after.sum() >= 1 and F[-1] <= FLOOR
        assert np.all((F[1:] <= rate * F[:-1] ** 2 + slack)[after])
        assert np.all((F[1:] <= F[:-1] / 2 + slack)[after])


@pytest.mark.parametrize(
    ("name", "outer"),
    [(name, outer) for name in ("across", "along") for outer in OUTERS],
)
def test_within_the_radius_of_l_l_the_rate_is_that_of_n_to_the_three_halves(
    paths, name, outer
):
    """docs/theory.md, Lemma 1: within R(kappa) the linear model is brought to its minimum, whatever
    kappa is.
    """
    known, l, sharpness, kappa, runs = paths[name, outer, 2.0]
    rate = known.smoothness * l * N**1.5 / (sharpness * known.least_singular) ** 2 / 2
    R = theory.quadratic_radius(
        N, known.smoothness, l, sharpness, known.least_singular, kappa
    )
    for path in runs:
        F = path.values
        assert np.all((F[1:] <= rate * F[:-1] ** 2 + path.gaps + FLOOR)[F[:-1] <= R])


@pytest.mark.parametrize("times", [5.0, 1.0, 0.5])
def test_both_bounds_are_attained(times):
    """With kappa = L l / sqrt n there is a step with equality, so no constant can be better: 1 %
    more is too much.
    """
    n = 5
    R = theory.quadratic_radius(n, 1.0, 1.0, 1.0, 1.0)
    problem, w = attained(n, times * R)
    F, after = exact_path(problem, w, n**-0.5, 1).values
    assert pytest.approx(times * R, rel=1e-12) == F
    assert theory.least_singular(problem, w) == pytest.approx(1)
    assert after == pytest.approx(theory.next_gap(F, R), rel=1e-9)
    assert after > theory.next_gap(F, 1.01 * R) + 1e-6 * R


def test_as_printed_it_is_false():
    """kappa = L l with the radius of n^{3/2}: F falls to 1 - 1 / sqrt n of itself, where 1/2 is
    promised.
    """
    known, w, y = as_printed(N, K, np.random.default_rng(0))
    path = exact_path(known.problem(y, px.L2()), jnp.asarray(w), known.smoothness, 1)
    F, after = path.values
    printed = theory.quadratic_radius(
        N, known.smoothness, 1.0, 1.0, known.least_singular
    )
    assert pytest.approx(printed, rel=1e-12) == F
    assert after == pytest.approx((1 - N**-0.5) * F, rel=1e-6)
    assert after - path.gaps[0] - FLOOR > F**2 / (2 * printed)  # what is promised
    R = theory.quadratic_radius(
        N, known.smoothness, 1.0, 1.0, known.least_singular, known.smoothness
    )
    assert after <= theory.next_gap(F, R)  # what is true


@pytest.mark.parametrize("power", [0.5, 0.0])
def test_a_tanh_network_by_local_constants(power):
    """L on the segments between the iterates, the least singular value at them."""
    n, k = 3, 2
    rng = np.random.default_rng(3)
    predict = MLP((2, 32, k))
    problem = px.MeanOfLosses(
        px.residual(predict),
        px.L2(),
        (rng.normal(size=(n, 2)), rng.normal(size=(n, k))),
    )
    path, L = local_path(problem, predict.init(jax.random.key(1)), power, 200)
    sigma = min(theory.least_singular(problem, w) for w in path.iterates)
    kappa = L / n**power
    R = theory.quadratic_radius(n, L, 1.0, 1.0, sigma, kappa)
    F = path.values
    assert F[0] > R and F[-1] <= FLOOR
    bounds = np.asarray([theory.next_gap(value, R) for value in F[:-1]])
    assert np.all(F[1:] <= bounds + path.gaps + FLOOR)


def test_too_small_a_kappa_is_refused():
    least = theory.least_kappa(16, smoothness=2.0, lipschitz=3.0)
    assert least == pytest.approx(1.5)
    assert theory.quadratic_radius(
        16, 2.0, 3.0, 1.0, 1.0, kappa=least
    ) == theory.quadratic_radius(16, 2.0, 3.0, 1.0, 1.0)
    with pytest.raises(
        ValueError, match="needs kappa >= L l / sqrt n = 1.5; it is 1.49."
    ):
        theory.quadratic_radius(16, 2.0, 3.0, 1.0, 1.0, kappa=1.49)


def test_what_the_radius_refuses():
    with pytest.raises(ValueError, match="needs a sharp outer function"):
        theory.quadratic_radius(4, 1.0, 1.0, px.Huber().sharpness(3), 1.0)
    for wrong in (
        {"least_singular": 0.0},
        {"lipschitz": float("inf")},
        {"smoothness": -1.0},
        {"kappa": 0.0},
        {"n": 0},
    ):
        arguments = {
            "n": 4,
            "smoothness": 1.0,
            "lipschitz": 1.0,
            "sharpness": 1.0,
            "least_singular": 1.0,
        } | wrong
        with pytest.raises(ValueError, match=next(iter(wrong))):
            theory.quadratic_radius(**arguments)
    # a linear map: one step from anywhere
    assert theory.quadratic_radius(4, 0.0, 1.0, 1.0, 1.0) == np.inf


def test_the_phase_of_a_run():
    """R_j = min over t >= j of F_t^2 / (2 F_{t+1}) and the first j with F_j <= R_j, against the
    formula in a loop.
    """
    F = [3.0, 2.5, 1.9, 1.1, 0.3, 0.01, 3e-5, 2e-10, 4e-16]
    radii = [min(F[t] ** 2 / (2 * F[t + 1]) for t in range(j, 7)) for j in range(7)]
    first = next(j for j in range(7) if F[j] <= radii[j])
    phase = theory.quadratic_phase(F)
    assert (
        phase is not None
        and phase.start == first
        and phase.radius == pytest.approx(radii[first])
    )
    # 2e-10 -> 4e-16 is round-off, and not a radius of 5e-5
    assert radii[first] > 1 and (2e-10) ** 2 / (2 * 4e-16) < 1e-4


def test_a_run_without_a_phase():
    # it is not at its end
    assert theory.quadratic_phase([1.0, 0.5, 0.25, 0.125]) is None
    slow = [0.9**t for t in range(300)]
    phase = theory.quadratic_phase(slow)
    assert phase is None or slow[phase.start] < 1e-12  # linear convergence has none
    # in one step: a radius of at least F^2 / (2 floor)
    jump = theory.quadratic_phase([2.0, 0.0])
    assert jump is not None and jump.start == 0 and jump.radius > 1e12
    with pytest.raises(ValueError, match="finite values"):
        theory.quadratic_phase([1.0, np.nan])
