"""Provide scores of probabilities against soft labels, for ``scoring`` in scikit-learn."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import make_scorer

from cad.learning.evaluation.measures import metrics


def mean_kl(target: ArrayLike, probability: ArrayLike) -> float:
    """Return the two-sided Kullback-Leibler distance, mean over regions, in nats.

    Papers print the sum (:func:`cad.learning.evaluation.measures.metrics.kl`), which grows with the
    number of regions and so cannot be averaged over folds of different sizes.

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
    return make_scorer(loss, greater_is_better=False, response_method=("predict_proba", "predict"))


soft_log_loss = _scorer(metrics.cross_entropy)
"""Minus the mean cross-entropy, as returned by the learners' own ``score``."""
soft_brier = _scorer(metrics.brier)
"""Minus the mean squared difference."""
kl = _scorer(mean_kl)
"""Minus the mean two-sided Kullback-Leibler distance."""
