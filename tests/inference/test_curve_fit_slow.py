"""All 54 starts of NIST's regressions: px.curve_fit beside scipy's."""

import numpy as np
import pytest

from bench.suite.nist_problems import MODELS

from .test_curve_fit import fitted_as_scipy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_nist(name, which, figures):
    with np.errstate(all="ignore"):
        away, cov_away = fitted_as_scipy(name, which)
    figures(f"curve_fit-{name}-{which + 1}", popt=away, pcov=cov_away)
    assert away <= 1e-6 and cov_away <= 1e-3
