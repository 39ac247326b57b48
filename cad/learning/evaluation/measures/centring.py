"""Make scores of different folds comparable, by subtracting each model's base log-odds.

A model that leaves out a malignant patient is trained on fewer malignant regions. All its log-odds
are therefore lower, also those of the left-out patient. Pooled over folds, probabilities thus order
patients against the truth. The effect is the larger, the more the learner draws predictions towards
its mean. On pure noise the AUC of left-out patients is far below one half (docs/methods.md 6 has
the derivation).

Within one fold nothing is wrong, and probabilities stay as they are. Only measures that *rank*
regions of different folds, or fit a slope to them, use the centred log-odds of this module.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit

# Much smaller than the clip of the measures: values clipped to the same number would be ordered by
# the bases of their folds.
_NEAREST = 1e-15
# Absolute log-odds that stand for a probability of 0 or 1, whatever the base: larger than all
# centred log-odds.
_CERTAIN = 100.0
_DIGITS = 10


def base_log_odds(labels: ArrayLike) -> float:
    """Return the log-odds of the mean label that a model was trained on.

    Parameters
    ----------
    labels : array, shape (n,)
        Labels of the training rows in [0, 1]; NaN is left out. A mean of 0 or 1 is moved inside by
        half a region.

    Examples
    --------
    >>> round(base_log_odds([0, 0, 0, 1]), 3)
    -1.099
    """
    known_labels = np.asarray(labels, dtype=float)
    known_labels = known_labels[np.isfinite(known_labels)]
    if not len(known_labels):
        return 0.0
    half = 0.5 / len(known_labels)
    return float(logit(np.clip(known_labels.mean(), half, 1 - half)))


def centred_log_odds(probability: ArrayLike, base: ArrayLike, common: float = 0.0) -> np.ndarray:
    """Return log-odds minus the base log-odds of the model that gave them, shape (n,).

    Parameters
    ----------
    probability : array, shape (n,)
        Probabilities of left-out rows. NaN stays NaN; 0 stays below all other values, and 1 above.
    base : array, shape (n,), or float
        Base log-odds of each row's model (:func:`base_log_odds`).
    common : float
        A number that is added to all results. If it is the base log-odds of all rows, the result is
        on the scale of a model that leaves nobody out.

    Examples
    --------
    The models of two folds know nothing, and say their base rates:

    >>> centred_log_odds([0.2, 0.25], [logit(0.2), logit(0.25)]).round(6).tolist()
    [0.0, 0.0]
    """
    q = np.asarray(probability, dtype=float)
    # Rounded, because models that predict exactly their base rate are equal and must not be ordered
    # by rounding errors.
    odds = np.round(logit(np.clip(q, _NEAREST, 1 - _NEAREST)) - base, _DIGITS) + common
    odds = np.where(q <= _NEAREST, -_CERTAIN, odds)
    return np.where(q >= 1 - _NEAREST, _CERTAIN, odds)


def ranked(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return each value's rank: the share of other patients' values that is smaller.

    Equal values count one half.

    Both arguments come from one fold's model, which can score everybody because it is fitted to
    scores and not to images. Folds are then pooled by these ranks.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Log-odds or probabilities; NaN stays NaN.
    others : ndarray, shape (m,)
        The other patients' values, by the same model; NaN is not counted.

    Examples
    --------
    >>> import numpy as np
    >>> ranked(np.array([0.5, 2.0, 3.0]), np.array([0.0, 1.0, 2.0, 4.0])).tolist()
    [0.25, 0.625, 0.75]
    """
    line = np.sort(others[np.isfinite(others)])
    # Ties count one half, as in the AUC.
    below = np.searchsorted(line, values) + np.searchsorted(line, values, "right")
    return np.where(np.isnan(values), np.nan, below / (2 * max(len(line), 1)))
