"""The problems of NIST as the suite reads them: certified parameters give the certified sum of
squares.
"""

import numpy as np
import pytest

from bench.suite.nist_problems import FOLDER, MODELS, digits, read, same_curve

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("name", MODELS)
def test_certified_sum_of_squares(name):
    """To 9 digits; the 11 certified digits of b leave 4e-21 of Lanczos1, where b as it is has
    1.4e-25.
    """
    r = read(FOLDER / f"{name}.dat")
    u = r.model(np, r.certified, r.x.T) - r.y
    np.testing.assert_allclose(u @ u, r.squares, rtol=1e-9, atol=1e-20)
    assert all(
        start.shape == r.certified.shape and not np.allclose(start, r.certified)
        for start in r.starts
    )


@pytest.mark.parametrize("name", ["Eckerle4", "Gauss3", "Lanczos3", "MGH17", "ENSO"])
def test_the_same_curve_has_all_digits(name):
    r = read(FOLDER / f"{name}.dat")
    same = same_curve(name, r.certified)
    assert (
        len(same)
        == {"Eckerle4": 2, "Gauss3": 8, "Lanczos3": 6, "MGH17": 2, "ENSO": 2}[name]
    )
    for b in same:
        np.testing.assert_allclose(
            r.model(np, b, r.x.T), r.model(np, r.certified, r.x.T), rtol=1e-12
        )
        assert digits(name, b, r.certified) == 11


def test_digits_of_the_worst_parameter():
    certified = np.array([2.0, -3e-9])
    assert digits("Misra1a", certified * [1, 1 + 1e-6], certified) == pytest.approx(
        6, abs=1e-6
    )
    assert digits("Misra1a", np.array([np.nan, 1]), certified) == -np.inf


def test_a_damaged_file(tmp_path):
    path = tmp_path / "Misra1a.dat"
    path.write_text("Data: y x\n 1 2\n")
    with pytest.raises(ValueError, match="not a file of the 27"):
        read(path)
