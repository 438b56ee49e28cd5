"""`px.fit` and `proxlin fit`: robust regression of a table, from its columns to a model file and a
page.
"""

from .fitted import Fit as Fit
from .fitted import fit as fit
from .fitted import load_fit as load_fit
