"""What a fit can tell: the covariance of its parameters, the scale of its residuals, and its
outliers.

    cov(w) ~ A^-1 B A^-1 / n         covariance, mm_covariance
    fits with random weights         bootstrap
    y ~ f(x, *w)                     curve_fit
    s of residuals r                 mad, huber_scale, m_scale
    half of the rows may be wrong    mm_estimate
    bands that hold new rows         conformal_band
    d_i = |x_i - center|_cov         distances, cutoff

Formulas, assumptions and what each kind is compared with: docs/inference.md.
"""

from .bootstrap import Bootstrap as Bootstrap
from .bootstrap import bootstrap as bootstrap
from .conformal import conformal_band as conformal_band
from .curves import curve_fit as curve_fit
from .mm import MM as MM
from .mm import mm_estimate as mm_estimate
from .outliers import cutoff as cutoff
from .outliers import distances as distances
from .redescending import mm_covariance as mm_covariance
from .sandwich import covariance as covariance
from .scale import huber_scale as huber_scale
from .scale import m_scale as m_scale
from .scale import mad as mad
