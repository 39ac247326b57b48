"""Make scores of different folds comparable: subtract each model's base log-odds, and divide by
its spread.

The base log-odds of a model are the log-odds of the mean label that it was trained on. If a
malignant patient is left out, the model of the others is trained on fewer malignant regions. Its
log-odds are therefore lower, also those for the left-out patient. So if the probabilities of
several folds are put together, they order patients against the truth. The effect is the larger, the
more the learner draws predictions towards the mean label. With features that are pure noise, the
AUC of left-out patients is far below one half (docs/methods.md 6 has the derivation).

The spread of a model is the standard deviation of the log-odds that it gives to its training rows.
A learner that chooses its penalty on inner folds chooses a weak one, and so has a large spread,
where the other patients seem easy to tell apart. That is so where the patient who contradicts them
is left out. So his log-odds are far from the base, on the wrong side, and the log-odds of a patient
who agrees with the others are near the base. Again the AUC is too low, on noise about .45.

Within one fold there is no such effect, and probabilities stay as they are. Only measures that
*rank* regions of different folds, or fit a slope to them, use the centred log-odds of this module.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit

# Probabilities are clipped to this distance from 0 and 1. The measures clip at a much larger
# distance. Here values that are clipped to the same number would be ordered only by the base
# log-odds of their folds, so few may be clipped.
_NEAREST = 1e-15
# Absolute value of the centred log-odds for a probability of 0 or 1, whatever the base log-odds of
# the fold. It is larger than the absolute value of all other centred log-odds.
_CERTAIN = 100.0
# Digits after the point to which centred log-odds are rounded.
_DIGITS = 10
# Probabilities of training rows are clipped to this distance from 0 and 1 before their spread is
# measured. Readers' scores of five steps are farther from 0 and 1 than this.
_SPREAD_CLIP = 1e-3
# A model whose log-odds have a smaller standard deviation over its training rows predicts the same
# for every region.
_NO_SPREAD = 1e-6


def base_log_odds(labels: ArrayLike) -> float:
    """Return the log-odds of the mean label that a model was trained on.

    Parameters
    ----------
    labels : array, shape (n,)
        Labels of the training rows in [0, 1]; NaN is left out. A mean of 0 or 1 is replaced by half
        a region divided by the number of regions, or by 1 minus this.

    Examples
    --------
    >>> round(base_log_odds([0, 0, 0, 1]), 3)
    -1.099
    """
    known_labels = np.asarray(labels, dtype=float)
    known_labels = known_labels[np.isfinite(known_labels)]
    # Without a label there is nothing to subtract.
    if not len(known_labels):
        return 0.0
    # The log-odds of a mean of 0 or 1 would be infinite.
    half = 0.5 / len(known_labels)
    return float(logit(np.clip(known_labels.mean(), half, 1 - half)))


def spread_of_log_odds(probability: ArrayLike) -> float:
    """Return the standard deviation of a model's log-odds over the rows that it was trained on.

    Parameters
    ----------
    probability : array, shape (n,)
        The model's probabilities of its training rows; NaN is left out. They are clipped to lie
        between .001 and .999, so that a learner that repeats its labels has a finite spread.

    Examples
    --------
    >>> round(spread_of_log_odds([0.2, 0.8]), 3)
    1.386
    """
    q = np.asarray(probability, dtype=float)
    q = q[np.isfinite(q)]
    # Without a probability there is no spread.
    if not len(q):
        return 0.0
    return float(np.std(logit(np.clip(q, _SPREAD_CLIP, 1 - _SPREAD_CLIP))))


def stretches(spreads: ArrayLike) -> np.ndarray:
    """Return the factors that give the log-odds of all models the same spread, shape (k,).

    Parameters
    ----------
    spreads : array, shape (k,)
        Spread of each model (:func:`spread_of_log_odds`). A model with a spread of 0 predicts the
        same for every region; its factor is 0. NaN gives NaN.

    Returns
    -------
    ndarray, shape (k,)
        The median spread, of the models whose spread is above 0, divided by each model's spread.

    Examples
    --------
    >>> stretches([1.0, 2.0, 4.0, 0.0]).tolist()
    [2.0, 1.0, 0.5, 0.0]
    """
    spread_of_model = np.asarray(spreads, dtype=float)
    has_spread = spread_of_model > _NO_SPREAD
    factors = np.where(np.isnan(spread_of_model), np.nan, 0.0)
    if has_spread.any():
        factors[has_spread] = np.median(spread_of_model[has_spread]) / spread_of_model[has_spread]
    return factors


def centred_log_odds(
    probability: ArrayLike, base: ArrayLike, common: float = 0.0, stretch: ArrayLike = 1.0
) -> np.ndarray:
    """Return log-odds minus the base log-odds of the model that they come from, shape (n,).

    Parameters
    ----------
    probability : array, shape (n,)
        Probabilities of left-out rows. NaN stays NaN. The result for 0 is below, and that for 1
        above, the results for all other probabilities.
    base : array, shape (n,), or float
        Base log-odds of each row's model (:func:`base_log_odds`).
    common : float
        A number that is added to all results. If it is the base log-odds of a model of all rows,
        the results are on the scale of such a model.
    stretch : array, shape (n,), or float
        Factor by which each row's difference from the base is multiplied (:func:`stretches`).

    Examples
    --------
    The models of two folds learned nothing from the features, and predict their base rates:

    >>> centred_log_odds([0.2, 0.25], [logit(0.2), logit(0.25)]).round(6).tolist()
    [0.0, 0.0]
    """
    q = np.asarray(probability, dtype=float)
    # The difference from the base log-odds is rounded, because models that predict exactly their
    # base rate must not be ordered by rounding errors.
    difference = logit(np.clip(q, _NEAREST, 1 - _NEAREST)) - base
    stretched = difference * np.asarray(stretch, dtype=float)
    odds = np.round(stretched, _DIGITS) + common
    # Probabilities that were clipped stay below, or above, all others.
    odds = np.where(q <= _NEAREST, -_CERTAIN, odds)
    return np.where(q >= 1 - _NEAREST, _CERTAIN, odds)


def ranked(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return each value's rank: the share of other patients' values that is smaller.

    Equal values count one half. ``values`` and ``others`` come from the model of one fold, which
    gives a value to the patients that it left out and to all other patients. By their ranks, values
    of the models of different folds can be compared.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Log-odds or probabilities; NaN stays NaN.
    others : ndarray, shape (m,)
        The values of the other patients, by the same model; NaN is not counted.

    Returns
    -------
    ndarray, shape (n,)
        Rank of each value, from 0 to 1. NaN stays NaN. Without other patients every rank is 0.

    Examples
    --------
    >>> import numpy as np
    >>> ranked(np.array([0.5, 2.0, 3.0]), np.array([0.0, 1.0, 2.0, 4.0])).tolist()
    [0.25, 0.625, 0.75]
    """
    sorted_others = np.sort(others[np.isfinite(others)])
    # Equal values count one half, as in the AUC: the number of smaller values and the number of
    # smaller or equal values are added, and the sum is divided by twice the number of values.
    smaller = np.searchsorted(sorted_others, values)
    smaller_or_equal = np.searchsorted(sorted_others, values, "right")
    twice_below = smaller + smaller_or_equal
    # Without other patients every rank is 0.
    return np.where(np.isnan(values), np.nan, twice_below / (2 * max(len(sorted_others), 1)))
