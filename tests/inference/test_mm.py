"""MM-estimates: R's numbers, equivariance, breakdown, and a second implementation."""

import csv

import numpy as np
import pytest
from scipy.optimize import brentq

import proxlin as px
from proxlin.inference.conformal import conformal_band

# lmrob of robustbase 0.95: coefficients, standard errors and scale
LMROB = {
    "stackloss": (
        [-41.524617, 0.93884534, 0.57955323, -0.11292183],
        [5.2978, 0.117429, 0.262963, 0.0698899],
        1.91235,
    ),
    "hbk": (
        [-0.18961614, 0.085273566, 0.041013149, -0.053713401],
        [0.116743, 0.0732862, 0.0295607, 0.0319455],
        0.789173,
    ),
}


def table(path) -> tuple[np.ndarray, np.ndarray]:
    """The features with a column of ones, and the last column."""
    with path.open() as file:
        rows = list(csv.reader(file))[1:]
    numbers = np.array([[float(cell) for cell in row[1:]] for row in rows])
    return np.column_stack([np.ones(len(numbers)), numbers[:, :-1]]), numbers[:, -1]


@pytest.mark.reference
@pytest.mark.parametrize("name", LMROB)
def test_against_lmrob(name, data_file):
    X, y = table(data_file(f"tables/{name}.csv"))
    found = px.inference.mm_estimate(X, y)
    coefficients, errors, scale = LMROB[name]
    assert found.converged
    np.testing.assert_allclose(found.coefficients, coefficients, rtol=2e-5)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), errors, rtol=2e-4)
    assert found.scale == pytest.approx(scale, rel=1e-5)


@pytest.mark.reference
def test_giants_do_not_turn_the_slope_of_the_stars(data_file):
    X, y = table(data_file("tables/starsCYG.csv"))
    found = px.inference.mm_estimate(X, y)
    assert found.coefficients[1] > 2
    assert set(np.flatnonzero(found.weights == 0)) == {10, 19, 29, 33}


def contaminated(seed: int, share: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    """y = x @ (1, 2, -1), and a share of rows with far features and another target."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(80), rng.normal(size=(80, 2))])
    y = X @ [1.0, 2.0, -1.0] + 0.1 * rng.normal(size=80)
    bad = int(share * 80)
    X[:bad, 1:] += 20.0
    y[:bad] = -100.0 + rng.normal(size=bad)
    return X, y


@pytest.mark.parametrize("seed", range(4))
def test_nearly_half_of_the_rows_may_be_wrong(seed):
    X, y = contaminated(seed)
    found = px.inference.mm_estimate(X, y)
    np.testing.assert_allclose(found.coefficients, [1.0, 2.0, -1.0], atol=0.1)
    assert found.weights[:32].max() == 0 and np.median(found.weights[32:]) > 0.8


@pytest.mark.law
def test_equivariance():
    """Other units and other columns of the same span are the same estimate."""
    X, y = contaminated(0)
    one = px.inference.mm_estimate(X, y)
    b = np.array([3.0, -1.0, 0.5])
    T = np.array([[1.0, 0.0, 0.0], [2.0, 1e3, 0.0], [0.0, 1.0, 1e-3]])
    two = px.inference.mm_estimate(X @ T, 1e5 * y + X @ b)
    np.testing.assert_allclose(
        T @ two.coefficients, 1e5 * one.coefficients + b, rtol=1e-6
    )
    np.testing.assert_allclose(
        T @ two.covariance @ T.T, 1e10 * one.covariance, rtol=1e-5
    )
    assert two.scale == pytest.approx(1e5 * one.scale, rel=1e-7)


@pytest.mark.reference
def test_both_equations_hold():
    """The scale solves its equation by another method, and the mean score is 0."""
    X, y = contaminated(1)
    found = px.inference.mm_estimate(X, y)

    def excess(s: float) -> float:
        t = np.minimum(((y - X @ found.initial) / (1.54764 * s)) ** 2, 1)
        return np.sum(1 - (1 - t) ** 3) / (len(y) - 3) - 0.5

    assert brentq(excess, 1e-3, 1e3, xtol=1e-14) == pytest.approx(found.scale, rel=1e-9)
    r = (y - X @ found.coefficients) / found.scale
    assert np.abs(X.T @ (found.weights * r)).max() < 1e-6
    np.testing.assert_allclose(found.weights, np.maximum(1 - (r / 4.685) ** 2, 0) ** 2)


def test_no_other_start_has_a_smaller_scale():
    """A hundred times as many starts find nothing better."""
    X, y = contaminated(2, 0.3)
    few = px.inference.mm_estimate(X, y)
    many = px.inference.mm_estimate(X, y, seed=1, starts=5000)
    assert few.scale <= many.scale * (1 + 1e-9)


def test_zero_one_columns_and_many_rows():
    """Three rows are rarely enough for columns of categories, and starts see 2,000 of 5,000 rows."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 12, 5000)
    X = np.column_stack([np.eye(12)[group], rng.normal(size=5000)])
    y = group + 2 * X[:, -1] + 0.1 * rng.standard_t(2, size=5000)
    y[group == 3] += rng.random(np.sum(group == 3)) < 0.4
    found = px.inference.mm_estimate(X, y)
    np.testing.assert_allclose(found.coefficients, [*range(12), 2.0], atol=0.05)


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        (np.ones((5, 3)), np.ones(5), "more than two rows for each coefficient"),
        (np.ones((9, 2)), np.arange(9.0), "columns of X are not independent"),
        (np.ones((9, 1)), np.ones(8), "needs X .n, p. and y .n,."),
        (np.ones((9, 1)), np.r_[np.nan, np.ones(8)], "not finite"),
        (np.ones((9, 1)), np.r_[5.0, np.ones(8)], "fitted exactly"),
    ],
)
def test_what_cannot_be_estimated_is_a_sentence(X, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        px.inference.mm_estimate(X, y)


@pytest.mark.parametrize(
    ("power", "of_y"), [(0, 1.0), (500, 2.0**480), (-400, 2.0**-390), (300, 2.0**310)]
)
def test_powers_of_two_change_no_digit(power, of_y):
    X, y = contaminated(3)
    sizes = np.ldexp(1.0, [0, power, -20])
    usual = px.inference.mm_estimate(X, y)
    found = px.inference.mm_estimate(X * sizes, of_y * y)
    back = of_y / sizes
    np.testing.assert_array_equal(found.coefficients, back * usual.coefficients)
    np.testing.assert_array_equal(found.initial, back * usual.initial)
    expected = back * usual.covariance * back[:, None]
    np.testing.assert_array_equal(found.covariance, expected)
    assert found.scale == of_y * usual.scale
    np.testing.assert_array_equal(found.weights, usual.weights)


@pytest.mark.parametrize("factor", [1e160, 1e-200])
def test_a_variance_that_is_no_float64_is_refused(factor):
    X, y = contaminated(3)
    X[:, 1] *= factor
    with pytest.raises(ValueError, match="variance of the coefficient of column 1 of"):
        px.inference.mm_estimate(X, y)


@pytest.mark.parametrize(
    ("X", "y", "error", "sentence"),
    [
        (np.zeros((12, 0)), np.arange(12.0), ValueError, "needs a column in X"),
        (np.ones((12, 1)) * 1j, np.arange(12.0), TypeError, "X of mm_estimate must be"),
        (np.ones((12, 1)), np.arange(12) * 1j, TypeError, "y of mm_estimate must be"),
    ],
)
def test_what_is_no_table_of_numbers_is_a_sentence(X, y, error, sentence):
    with pytest.raises(error, match=sentence):
        px.inference.mm_estimate(X, y)


@pytest.mark.parametrize("which", range(3))
def test_a_covariance_of_complex_numbers_is_refused(which):
    r = np.sin(np.arange(12.0))
    given = [np.ones((12, 1)), r, r]
    given[which] = given[which] + 1j
    name = ("X", "residuals", "initial")[which]
    with pytest.raises(TypeError, match=f"{name} of mm_covariance must be an array of"):
        px.inference.mm_covariance(*given, 1.0)


@pytest.mark.law
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_bands_hold_new_rows(level, symmetric):
    """Of exchangeable rows the last is inside with probability place / (m + 1), at least the level."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(4000):
        r = rng.standard_t(2, size=40)
        low, high = conformal_band(r[:-1], level, symmetric)
        inside.append(low <= r[-1] <= high)
    assert level - 0.02 < np.mean(inside) < level + 0.05 + 0.02


def test_bands_that_need_more_rows():
    with pytest.raises(ValueError, match="needs 99 rows .* and there are 50"):
        conformal_band(np.ones(50), 0.99)
    with pytest.raises(ValueError, match="needs 199 rows"):
        conformal_band(np.ones(150), 0.99, symmetric=False)
    with pytest.raises(ValueError, match="between 0 and 1"):
        conformal_band(np.ones(50), 1.0)
    assert conformal_band(np.arange(99.0), 0.99)[1] == 98.0
