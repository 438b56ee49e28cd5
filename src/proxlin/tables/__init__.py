"""`px.fit` and `proxlin fit`: robust regression of a table, from its columns to a model file and a
page.
"""

from typing import TYPE_CHECKING

from ..later import later

__all__ = ["Fit", "fit", "load_fit"]

# The estimators need the losses and units of this room alone.
__getattr__ = later(__name__, {"fitted": ("Fit", "fit", "load_fit")})

if TYPE_CHECKING:
    from .fitted import Fit as Fit
    from .fitted import fit as fit
    from .fitted import load_fit as load_fit
