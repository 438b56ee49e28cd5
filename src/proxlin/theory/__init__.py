"""Propositions 1 and 2 of the paper as functions: the quadratic radius, the noise window, and what
they are made of.

    Prop. 1   R = (sharpness least_singular)^2 / (kappa n^2),  kappa >= L l / sqrt n
              F_{t+1} - F* <= F_t - F* - R/2  while  F_t - F* >= R,  and  (F_t - F*)^2 / (2 R)  from then on
    Prop. 2   F(wbar) / sigma in [low, high] with probability 1 - delta:  sigma < R / high, or sigma > R / low

What each statement needs, why, and where the paper's text is corrected: docs/theory.md.
"""

from .constants import Singular as Singular
from .constants import least_singular as least_singular
from .constants import least_singular_matrix_free as least_singular_matrix_free
from .constants import segment_smoothness as segment_smoothness
from .levels import Estimate as Estimate
from .levels import held_out_noise_level as held_out_noise_level
from .levels import paired_noise_level as paired_noise_level
from .proposition1 import Phase as Phase
from .proposition1 import least_kappa as least_kappa
from .proposition1 import next_gap as next_gap
from .proposition1 import quadratic_phase as quadratic_phase
from .proposition1 import quadratic_radius as quadratic_radius
from .proposition2 import chi_mean as chi_mean
from .proposition2 import noise_factors as noise_factors
from .proposition2 import noise_window as noise_window
from .proposition2 import sharp_noise_factors as sharp_noise_factors
from .proposition2 import sharp_noise_window as sharp_noise_window
from .rules import Comparison as Comparison
from .rules import Rule as Rule
from .rules import Share as Share
from .rules import compare as compare
from .statistics import binomial_interval as binomial_interval
from .statistics import t_interval as t_interval
