"""Provide scorers that compare probabilities with soft labels, for scikit-learn's ``scoring``."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import make_scorer

from cad.learning.evaluation.measures import metrics


def mean_kl(target: ArrayLike, probability: ArrayLike) -> float:
    """Return the two-sided Kullback-Leibler divergence, averaged over regions, in nats.

    Papers print the sum (:func:`cad.learning.evaluation.measures.metrics.kl`). It grows with the
    number of regions, so sums of folds of different sizes should not be averaged.

    Parameters
    ----------
    target, probability : array, shape (n,)
        The soft label, and a learner's probability.

    Examples
    --------
    >>> round(mean_kl([0.5, 1.0], [0.5, 0.5]), 3)
    0.347
    """
    return metrics.kl(target, probability) / np.size(target)


def _scorer(loss: Any) -> Any:
    """Return a scorer of a loss: minus the loss of the predicted probabilities.

    It asks a learner that has no ``predict_proba`` to ``predict``.
    """
    return make_scorer(loss, greater_is_better=False, response_method=("predict_proba", "predict"))


soft_log_loss = _scorer(metrics.cross_entropy)
"""Minus the mean cross-entropy, which the learners' method ``score`` also returns."""
soft_brier = _scorer(metrics.brier)
"""Minus the Brier score: the mean squared difference of label and probability."""
kl = _scorer(mean_kl)
"""Minus the mean two-sided Kullback-Leibler divergence."""
