"""Estimators for scikit-learn, whose fits are problems of this library.

They work in float64 whatever JAX is set to, and leave its setting as it was.
"""

from typing import TYPE_CHECKING

from ..errors import require
from ..later import later

# before the modules that need it, so that its absence is a sentence
require("sklearn", "sklearn")

__all__ = ["CompositeRegressor", "StructuredClassifier"]

__getattr__ = later(
    __name__,
    {"chains": ("StructuredClassifier",), "regressor": ("CompositeRegressor",)},
)

if TYPE_CHECKING:
    from .chains import StructuredClassifier as StructuredClassifier
    from .regressor import CompositeRegressor as CompositeRegressor
