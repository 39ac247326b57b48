"""Provide RankBoost for two classes with stumps (Freund, Iyer, Schapire & Singer 2003).

A stump is a rule that compares one feature with a threshold. SSRankBoost adds pairs of unlabelled
rows, with less weight (Amini, Truong & Goutte 2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.utils.validation import check_is_fitted, validate_data

from cad.learning.learners.ranking.base import Floats, Ranker, require, require_count
from cad.learning.stored import Declared, floats, whole

Ints = NDArray[np.int64]
# Roles of rows in the function ``boost``. A pseudo row is an unlabelled row that is given the class
# of a labelled neighbour.
POSITIVE = 0
NEGATIVE = 1
PSEUDO_POSITIVE = 2
PSEUDO_NEGATIVE = 3
# Advantages of stumps that differ by less count as equal.
_TIE = 1e-12


class StumpRanker(Ranker):
    """Rank by a weighted sum of stumps; base class of RankBoost and SSRankBoost.

    A stump is 1 where one feature is above a threshold, else 0. A subclass supplies
    ``_fit_scores``, which calls ``_boost`` with the role of every row (:func:`boost`).
    """

    stored: ClassVar[Declared] = {
        "features_": whole("stumps", below="d", bits=64),
        "thresholds_": floats("stumps"),
        "alphas_": floats("stumps"),
        "losses_": floats("losses"),
    }

    n_rounds: int

    def staged_decision_function(self, X: ArrayLike) -> Iterator[Floats]:
        """Yield the scores after 1, 2, ... rounds, so that one fit serves every number of rounds.

        Yields
        ------
        ndarray, shape (n,)
            Scores of the rows of X, ``n_rounds`` times; the last scores repeat if boosting stopped
            early. Unlike the scores of ``decision_function`` they are not shifted.
        """
        check_is_fitted(self)
        rows: Floats = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        stages = stump_scores(rows, self.features_, self.thresholds_, self.alphas_)
        scores = np.zeros(len(rows))
        for t in range(self.n_rounds):
            # After an early stop the last scores are repeated.
            scores = stages[t] if t < len(stages) else scores
            yield scores

    def _boost(self, X: Floats, role: Ints, weight: Floats, discount: float) -> None:
        """Choose the stumps by :func:`boost`, whose arguments these are, and store them."""
        # The values are sorted once for all rounds, because a round changes only the weights of
        # pairs. Each feature is a row of the array, so a loop over its values reads memory in
        # order.
        order = np.argsort(X, axis=0, kind="stable").T.copy()
        values = np.take_along_axis(X.T, order, axis=1)
        features, thresholds, alphas, rounds, losses = boost(
            values, order, role, weight, discount, self.n_rounds
        )
        self.features_ = features[:rounds]
        self.thresholds_ = thresholds[:rounds]
        self.alphas_ = alphas[:rounds]
        self.losses_ = losses[: rounds + 1]

    def _scores(self, X: Floats) -> Floats:
        stages = stump_scores(X, self.features_, self.thresholds_, self.alphas_)
        # Without any stump all scores are 0.
        return stages[-1].copy() if len(stages) else np.zeros(len(X))


class RankBoost(StumpRanker):
    """Rank positives above negatives by boosting of stumps.

    A stump is 1 if feature j of a row is above a threshold, else 0. Its advantage r is the weighted
    mean, over all pairs, of the stump at the positive minus the stump at the negative. Each round
    adds the stump of largest abs(r). The weight of the stump is alpha = 1/2 ln((1 + r) / (1 - r)),
    smoothed by one pair (the third method of Freund et al. 2003). The weight of a pair is a product
    of weights of its two rows, so that the pairs need not be listed.

    Parameters
    ----------
    n_rounds : int
        Largest number of stumps. There are fewer if no stump separates positives from negatives any
        more, or if the loss would rise. [W14] tries 30 to 90.
    platt_folds : int
        Number of folds for the out-of-fold scores that Platt's sigmoid is fitted to; with 0 it is
        fitted to the scores of the training rows.

    Attributes
    ----------
    features_, thresholds_, alphas_ : ndarray, shape (rounds,)
        Feature, threshold and weight of every stump.
    losses_ : ndarray, shape (rounds + 1,)
        Mean exponential loss of a pair, before and after every round; the loss never rises.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import RankBoost
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> model = RankBoost(n_rounds=3, platt_folds=0).fit(X, [0, 0, 0, 1, 1, 1])
    >>> bool((np.diff(model.losses_) <= 0).all())
    True
    >>> model.predict([[-1.2], [1.2]]).tolist()
    [0, 1]
    """

    def __init__(self, n_rounds: int = 60, platt_folds: int = 5) -> None:
        self.n_rounds = n_rounds
        self.platt_folds = platt_folds

    def _check_parameters(self) -> None:
        require_count("n_rounds", self.n_rounds)

    def _fit_scores(self, X: Floats, sign: Floats, weight: Floats) -> None:
        role = np.where(sign > 0, POSITIVE, NEGATIVE).astype(np.int64)
        # There are no pseudo rows, so their discount has no effect.
        self._boost(X, role, weight, discount=0.0)


@njit(cache=True)
def boost(
    values: Floats, order: Ints, role: Ints, weight: Floats, discount: float, n_rounds: int
) -> tuple[Ints, Floats, Floats, int, Floats]:
    """Choose stumps and their weights, round by round, as :class:`RankBoost` describes.

    Parameters
    ----------
    values : ndarray (d, n)
        Every feature's values in ascending order.
    order : ndarray (d, n)
        The rows that these values belong to.
    role : ndarray (n,)
        POSITIVE, NEGATIVE, PSEUDO_POSITIVE or PSEUDO_NEGATIVE. Rows with another number are not
        used.
    weight : ndarray (n,)
        Weights of the rows.
    discount : float
        Weight of the mean loss of pairs of pseudo rows; pairs of labelled rows have weight 1.
    n_rounds : int
        Largest number of rounds.

    Returns
    -------
    features, thresholds, alphas : ndarray, shape (n_rounds,)
        Feature, threshold and weight of the stump of every round; only the first ``rounds`` values
        are valid.
    rounds : int
        Number of rounds that were made. It is less than ``n_rounds`` if no stump separates
        positives from negatives any more, or if the loss would rise.
    losses : ndarray, shape (n_rounds + 1,)
        Loss at the start and after every round; only the first ``rounds + 1`` values are valid.
    """
    n = values.shape[1]
    features = np.zeros(n_rounds, dtype=np.int64)
    thresholds = np.zeros(n_rounds)
    alphas = np.zeros(n_rounds)
    losses = np.zeros(n_rounds + 1)
    # The weight of a pair is the product of the weights of its two rows, so the pairs need not be
    # listed.
    row_weight = weight.copy()
    totals = _sums(row_weight, role)
    # Weights of the two mean losses: of pairs of labelled rows, and of pairs of pseudo rows.
    loss_weight = np.zeros(2)
    loss_weight[0] = 1.0
    # Pseudo-labelled rows (unlabelled rows with the class of a neighbour) count only if both
    # classes are among them. With one class they make no pair, and their mean loss would be 0 / 0.
    if totals[2] > 0 and totals[3] > 0:
        loss_weight[1] = discount
    n_pairs = totals[0] * totals[1]
    sums = totals.copy()
    losses[0] = loss_weight[0] + loss_weight[1]
    row_advantage = np.zeros(n)
    rounds = 0
    while rounds < n_rounds:
        _advantages(role, row_weight, loss_weight, sums, totals, losses[rounds], row_advantage)
        advantage_of_stump, feature, threshold = _best_stump(values, order, row_advantage)
        if feature < 0:  # no stump separates positives from negatives
            break
        # The weight of a stump is alpha = 1/2 ln((1 + r) / (1 - r)), with r its advantage.
        # Smoothing by one pair keeps alpha finite for a perfect stump. r is clipped because
        # rounding may carry it past 1.
        r = min(max(advantage_of_stump, -1.0), 1.0)
        alpha = 0.5 * np.log((1.0 + r + 1.0 / n_pairs) / (1.0 - r + 1.0 / n_pairs))
        # For rows above the threshold, the weight of a positive is multiplied by exp(-alpha), and
        # the weight of a negative by exp(alpha).
        for t in range(n - 1, -1, -1):
            # The loop runs from the largest value down and ends at the first value that is not
            # above the threshold.
            if not values[feature, t] > threshold:
                break
            i = order[feature, t]
            if 0 <= role[i] < 4:
                is_positive = role[i] % 2 == 0
                row_weight[i] *= np.exp(-alpha) if is_positive else np.exp(alpha)
        loss_after = _renormalise(row_weight, role, loss_weight, totals, sums)
        # In exact arithmetic the loss cannot rise. If it does, stumps separate no more pairs, and
        # the rise is a rounding error.
        if not (loss_after <= losses[rounds] and loss_after > 0.0):
            break
        features[rounds] = feature
        thresholds[rounds] = threshold
        alphas[rounds] = alpha
        rounds += 1
        losses[rounds] = loss_after
    return features, thresholds, alphas, rounds, losses


@njit(cache=True)
def _sums(row_weight: Floats, role: Ints) -> Floats:
    """Return the sum of the weights ``row_weight`` of the rows of each role, shape (4,).

    The roles are POSITIVE, NEGATIVE, PSEUDO_POSITIVE and PSEUDO_NEGATIVE, in this order. Rows with
    another number in ``role`` are left out.
    """
    sums = np.zeros(4)
    for i in range(len(row_weight)):
        if 0 <= role[i] < 4:
            sums[role[i]] += row_weight[i]
    return sums


@njit(cache=True)
def _advantages(
    role: Ints,
    row_weight: Floats,
    loss_weight: Floats,
    sums: Floats,
    totals: Floats,
    loss: float,
    row_advantage: Floats,
) -> None:
    """Write to ``row_advantage`` how much each row adds to the advantage of a stump that is 1 for
    the row.

    The advantage of a stump says how well it ranks positives above negatives. A positive adds the
    weight of its pairs with all negatives, as a share of the loss. A negative adds minus the weight
    of its pairs with all positives, also as a share of the loss.

    ``loss_weight`` has the weights of the mean losses of labelled and of pseudo rows. ``sums`` and
    ``totals`` have the sums of row weights by role, now and before the first round.
    """
    for i in range(len(row_weight)):
        row_role = role[i]
        row_advantage[i] = 0.0
        # Roles 0 and 1 are labelled rows, 2 and 3 pseudo rows; even roles are positive. Rows make
        # pairs with rows of the other class of the same kind.
        if 0 <= row_role < 4 and loss_weight[row_role // 2] > 0:
            other_role = row_role + 1 if row_role % 2 == 0 else row_role - 1
            amount = (
                loss_weight[row_role // 2]
                * row_weight[i]
                * sums[other_role]
                / (totals[row_role] * totals[other_role] * loss)
            )
            row_advantage[i] = amount if row_role % 2 == 0 else -amount


@njit(cache=True)
def _best_stump(values: Floats, order: Ints, advantage: Floats) -> tuple[float, int, float]:
    """Return the advantage of the best stump, its feature and its threshold.

    A stump is 1 for rows whose feature is above the threshold, else 0. Its advantage is the sum of
    ``advantage`` over the rows for which it is 1. The feature is -1 if there is no stump.

    The best stump has the largest absolute advantage. ``values`` and ``order`` have, for each
    feature, the sorted values and their rows. The loop over a feature runs from its largest value
    down, so the advantage of a stump is a running sum.
    """
    n_features, n_rows = values.shape
    best_advantage = 0.0
    best_feature = -1
    best_threshold = 0.0
    for feature in range(n_features):
        advantage_above = 0.0
        for t in range(n_rows - 1, 0, -1):
            advantage_above += advantage[order[feature, t]]
            low = values[feature, t - 1]
            high = values[feature, t]
            # Of stumps whose advantages differ only by rounding, the one of the first feature, and
            # of its highest threshold, is taken. Between equal values there is no threshold.
            if high > low and abs(advantage_above) > abs(best_advantage) + _TIE:
                best_advantage = advantage_above
                best_feature = feature
                # The midpoint is not computed as (low + high) / 2, which can overflow. If low and
                # high are neighbouring floats, the midpoint may be rounded to high, and rows with
                # the value high would then not lie above it. So low is used instead.
                best_threshold = low + 0.5 * (high - low)
                if best_threshold >= high:
                    best_threshold = low
    return best_advantage, best_feature, best_threshold


@njit(cache=True)
def _renormalise(
    row_weight: Floats, role: Ints, loss_weight: Floats, totals: Floats, sums: Floats
) -> float:
    """Rescale the weights ``row_weight`` of the rows, write their sum by role to ``sums``, return
    the loss.

    The roles are positive and negative, each for labelled and for pseudo-labelled rows. The weight
    of a pair is the product of the weights of a positive and a negative. So the weights of all
    positives may be divided by a factor if those of all negatives are multiplied by it. This keeps
    both in the range of floating-point numbers.
    """
    # The sums are copied by a loop, because numba takes four seconds to compile the assignment of a
    # slice.
    for k, value in enumerate(_sums(row_weight, role)):
        sums[k] = value
    loss = 0.0
    # The two kinds are labelled and pseudo rows. The roles 2 kind and 2 kind + 1 are their
    # positives and negatives.
    for kind in range(2):
        if loss_weight[kind] > 0:
            # Divide the weights of one class by a factor m and multiply the weights of the other
            # class by m: (v_p / m) (m v_q). The weights of pairs stay the same, and no weight
            # under- or overflows after many rounds.
            mean = sums[2 * kind] / totals[2 * kind]
            loss += loss_weight[kind] * mean * sums[2 * kind + 1] / totals[2 * kind + 1]
            for i in range(len(row_weight)):
                if role[i] == 2 * kind:
                    row_weight[i] /= mean
                elif role[i] == 2 * kind + 1:
                    row_weight[i] *= mean
            sums[2 * kind] /= mean
            sums[2 * kind + 1] *= mean
    return loss


@njit(cache=True)
def stump_scores(X: Floats, features: Ints, thresholds: Floats, alphas: Floats) -> Floats:
    """Return the scores of rows after every round of boosting, shape (rounds, n).

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Rows to score.
    features, thresholds, alphas : ndarray, shape (rounds,)
        Feature, threshold and weight of the stump of each round.
    """
    rounds = len(alphas)
    n = len(X)
    stages = np.zeros((rounds, n))
    for i in range(n):
        score = 0.0
        for t in range(rounds):
            if X[i, features[t]] > thresholds[t]:
                score += alphas[t]
            stages[t, i] = score
    return stages


@dataclass(eq=False, repr=False)
class SSRankBoost(StumpRanker):
    """Rank by semi-supervised RankBoost.

    The ``k`` unlabelled rows nearest to a labelled row become pseudo rows of its class. An
    unlabelled row that is near to several labelled rows takes the class of the nearest. The mean
    exponential loss of the pairs of pseudo rows, times ``discount``, is added to the mean loss of
    the pairs of labelled rows. In ``y``, -1 stands for unlabelled. Without unlabelled rows, or at
    ``discount=0``, the learner is :class:`RankBoost`.

    Parameters
    ----------
    n_rounds : int
        Largest number of stumps.
    discount : float
        Factor of the mean loss of the pairs of pseudo rows, in [0, 1].
    k : int
        Number of the nearest unlabelled rows to which each labelled row gives its class.
    platt_folds : int
        Number of folds for the out-of-fold scores that Platt's sigmoid is fitted to; with 0 it is
        fitted to the scores of the training rows.

    Attributes
    ----------
    features_, thresholds_, alphas_ : ndarray, shape (rounds,)
        Feature, threshold and weight of every stump.
    losses_ : ndarray, shape (rounds + 1,)
        Mean loss of the labelled pairs plus ``discount`` times that of the pairs of pseudo rows,
        before and after every round.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import SSRankBoost
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0], [-1.4], [1.4]])
    >>> y = [0, 0, 0, 1, 1, 1, -1, -1]
    >>> model = SSRankBoost(n_rounds=3, k=1, platt_folds=0).fit(X, y)
    >>> model.predict([[-1.2], [1.2]]).tolist()
    [0, 1]
    """

    semi_supervised = True

    n_rounds: int = 60
    discount: float = 0.4
    k: int = 3
    platt_folds: int = 5

    def _check_parameters(self) -> None:
        require_count("n_rounds", self.n_rounds)
        require_count("k", self.k)
        is_valid = isinstance(self.discount, (int, float, np.number)) and 0 <= self.discount <= 1
        require(is_valid, f"discount = {self.discount!r}, must lie in [0, 1]")

    def _fit_scores(self, X: Floats, sign: Floats, weight: Floats) -> None:
        """Give classes to the neighbours of labelled rows, and choose the stumps."""
        role = neighbour_ranks(X, sign, self.k)
        # A row without a role is not labelled, and is not among the k nearest unlabelled rows of
        # any labelled row. Such rows are removed, because otherwise their values would be used for
        # thresholds.
        used = role >= 0 if self.discount > 0 else sign != 0
        self._boost(X[used], role[used], weight[used], discount=float(self.discount))


def neighbour_ranks(X: Floats, sign: Floats, k: int) -> Ints:
    """Return the role of every row in :func:`boost`, shape (n,).

    A labelled row is POSITIVE or NEGATIVE. A labelled row claims the ``k`` nearest unlabelled rows.
    A claimed row gets the class of the nearest labelled row that claims it, as PSEUDO_POSITIVE or
    PSEUDO_NEGATIVE. Any other row gets -1.

    Parameters
    ----------
    X : ndarray (n, d)
        Features of the rows.
    sign : ndarray (n,)
        Class of the row, +1 or -1, or 0 for unlabelled.
    k : int
        Number of nearest unlabelled rows that each labelled row claims (Euclidean distance; ties by
        row order).
    """
    role = np.full(len(sign), -1, dtype=np.int64)
    role[sign > 0] = POSITIVE
    role[sign < 0] = NEGATIVE
    labelled = np.flatnonzero(sign)
    unlabelled = np.flatnonzero(sign == 0)
    if not len(unlabelled):  # nothing can be claimed
        return role
    # Each labelled row claims k unlabelled rows; unlabelled rows claim nothing. So n labelled rows
    # make at most k n claims, however many rows are unlabelled.
    distance = cdist(X[labelled], X[unlabelled])
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
    # The distance is infinite where a row is not claimed, so argmin gives the nearest of the
    # labelled rows that claim it.
    claim_distance = np.full(distance.shape, np.inf)
    row_numbers = np.arange(len(labelled))[:, None]
    claim_distance[row_numbers, nearest] = distance[row_numbers, nearest]
    # Of equal distances argmin takes the first, so the order of the labelled rows decides.
    nearest_claimant = claim_distance.argmin(axis=0)
    is_claimed = np.isfinite(claim_distance.min(axis=0))
    pseudo_role = np.where(sign[labelled][nearest_claimant] > 0, PSEUDO_POSITIVE, PSEUDO_NEGATIVE)
    role[unlabelled[is_claimed]] = pseudo_role[is_claimed]
    return role
