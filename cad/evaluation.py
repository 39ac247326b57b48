"""Evaluation out of fold and its scorers, by the public names of :mod:`cad.learning.evaluation`."""

from cad.learning.evaluation import OutOfFold, kl, out_of_fold, soft_brier, soft_log_loss

__all__ = ["OutOfFold", "kl", "out_of_fold", "soft_brier", "soft_log_loss"]

# In version 0.1 this was a package. Python looks for modules in it, such as cad.evaluation.folds,
# only if it has a path; cad.base.renamed finds them.
__path__: list[str] = []
