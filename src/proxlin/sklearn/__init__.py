"""Estimators for scikit-learn, whose fits are problems of this library.

They work in float64 whatever JAX is set to, and leave its setting as it was.
"""

from ..errors import require

# before the modules that need it, so that its absence is a sentence
require("sklearn", "sklearn")

from .chains import StructuredClassifier as StructuredClassifier  # noqa: E402
from .regressor import CompositeRegressor as CompositeRegressor  # noqa: E402
