"""SSRankBoost: RankBoost with a second, discounted set of pairs (Amini, Truong & Goutte 2008)."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from cad.learners.ranking.base import Floats, require, require_count
from cad.learners.ranking.rankboost import (
    NEGATIVE,
    POSITIVE,
    PSEUDO_NEGATIVE,
    PSEUDO_POSITIVE,
    Ints,
    StumpRanker,
)


class SSRankBoost(StumpRanker):
    """Rank by semi-supervised RankBoost.

    The ``k`` unlabelled rows nearest to a labelled row take its rank (where two
    classes claim a row, the nearer labelled row wins); their pairs add ``discount`` times their
    mean exponential loss to that of the labelled pairs. Fit takes y in {0, 1} and -1 for
    unlabelled; without unlabelled rows, or at ``discount=0``, it is :class:`RankBoost`.

    Parameters
    ----------
    n_rounds : int
    discount : float
        In [0, 1].
    k : int
        K of the paper.
    platt_folds : int
        Folds of the out-of-fold scores that Platt's sigmoid is fitted to; 0 = training scores.

    Attributes
    ----------
    features_, thresholds_, alphas_, losses_
        As in :class:`RankBoost`; the loss includes the discounted pairs.
    """

    semi_supervised = True

    def __init__(
        self,
        n_rounds: int = 60,
        discount: float = 0.4,
        k: int = 3,
        platt_folds: int = 5,
    ) -> None:
        self.n_rounds = n_rounds
        self.discount = discount
        self.k = k
        self.platt_folds = platt_folds

    def _check_parameters(self) -> None:
        require_count("n_rounds", self.n_rounds)
        require_count("k", self.k)
        good = isinstance(self.discount, (int, float, np.number)) and 0 <= self.discount <= 1
        require(good, f"discount = {self.discount!r}, must lie in [0, 1]")

    def _fit_scores(self, X: Floats, sign: Floats, weight: Floats) -> None:
        role = neighbour_ranks(X, sign, self.k)
        # Rows that take no part place no thresholds either.
        part = role >= 0 if self.discount > 0 else sign != 0
        self._boost(X[part], role[part], weight[part], float(self.discount))


def neighbour_ranks(X: Floats, sign: Floats, k: int) -> Ints:
    """Return every row's role: its label, its claimant's rank, or -1 for neither.

    Parameters
    ----------
    X : ndarray (n, d)
    sign : ndarray (n,)
        +1, -1, or 0 for unlabelled.
    k : int
        Unlabelled rows that each labelled row claims (Euclidean distance; ties by row order).
    """
    role = np.full(len(sign), -1, dtype=np.int64)
    role[sign > 0] = POSITIVE
    role[sign < 0] = NEGATIVE
    labelled, unlabelled = np.flatnonzero(sign), np.flatnonzero(sign == 0)
    if not len(unlabelled):
        return role
    # Neighbours are sought from the labelled rows: k l claims at most, whatever the number of
    # unlabelled rows.
    distance = cdist(X[labelled], X[unlabelled])
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
    # Infinite where a row is not claimed, so that the nearest claimant is a plain argmin.
    claimed = np.full(distance.shape, np.inf)
    rows = np.arange(len(labelled))[:, None]
    claimed[rows, nearest] = distance[rows, nearest]
    # argmin takes the first of equal distances: the order of rows, stated above, decides ties.
    winner = claimed.argmin(axis=0)
    taken = np.isfinite(claimed.min(axis=0))
    rank = np.where(sign[labelled][winner] > 0, PSEUDO_POSITIVE, PSEUDO_NEGATIVE)
    role[unlabelled[taken]] = rank[taken]
    return role
