"""Measure learners, readers and decisions, with folds, intervals and tests that keep patients
whole.
"""

from cad.learning.evaluation.folds.crossval import OutOfFold, out_of_fold
from cad.learning.evaluation.measures.scorers import kl, soft_brier, soft_log_loss

__all__ = ["OutOfFold", "kl", "out_of_fold", "soft_brier", "soft_log_loss"]
