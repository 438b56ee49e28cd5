"""Curve fits: `curve_fit` with the signature of scipy's, robust losses and exact bounds."""

from .curve_fit import curve_fit as curve_fit
