"""Probability of malignancy for regions of interest in prostate multiparametric MRI."""

__version__ = "0.1.0"
