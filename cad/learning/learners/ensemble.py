"""Provide the default learner: four learners whose log-odds are combined.

The four members are a line (a logistic regression), averaged probabilistic SVMs (P-SVMs), trees and
boosting. They make different errors. The line needs few patients. The P-SVMs are smooth in all
features. Trees and boosting split single features. Few patients cannot show which member is best,
so a prior keeps the weights near an average of the first three members. Boosting, which is worst
with few patients, has the prior weight 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from cad.learning.learners.averaged import CLIP, AveragedProbabilisticSVC, drawn_rows
from cad.learning.learners.rivals import SoftBoosting, SoftLogistic
from cad.learning.learners.solvers.problem import Array, LearnerError
from cad.learning.learners.trees import SoftExtraTrees
from cad.learning.stored import Declared, Inside, floats

MEMBERS = ("line", "P-SVMs", "trees", "boosting")
"""Names of the members, in the order of ``member_weights_``."""
# Share of the patients that each tree is grown on. The tree predicts the other patients, and the
# weight of the trees is found from these predictions.
_GROWN_ON = 0.8
MOST_LINED = 20_000
"""Largest number of rows that the line and boosting learn from. If there are more, this number is
drawn at random.
"""
# Largest number of rows on which a tree is grown; each tree draws other rows.
_MOST_GROWN = 50_000
# With more rows than this, boosting uses two inner folds, to save time.
_MANY = 5000
# The prior means of the members' weights were chosen on fourteen tables of readers' scores. Each
# table was used once with five folds of all patients, and once with only ten patients
# (docs/probability.md).
TOWARDS = np.array([0.25, 0.5, 0.25, 0.0])
"""Prior means of the members' weights, in the order of :data:`MEMBERS`. The more patients there
are, the further the weights may move away from them.
"""
# Levels of the quantiles in ``scatter_``, which say how far labels lie from predictions.
_LEVELS = np.linspace(0.0, 1.0, 201)
# This number is added to q (1 - q), the variance of labels that is expected around a predicted
# probability q. So the variance is never 0.
_ROOM = 0.02


@dataclass(eq=False, repr=False, kw_only=True)
class ProbabilisticEnsemble(AveragedProbabilisticSVC):
    """Average the log-odds of a line (a logistic regression), averaged probabilistic SVMs (P-SVMs),
    random trees and boosting.

    All members learn from the label p. From the log-odds of each member the log-odds of the mean
    label are subtracted. The differences are added up with weights that minimise the cross-entropy
    on inner folds (stacking; Wolpert 1992), and the log-odds of the mean label are added again. A
    prior draws the weights towards :data:`TOWARDS`. If the members are too certain, the weights sum
    to less than 1.

    Features need no scaling, and no parameter has to be chosen. :func:`cad.default_learner` returns
    this learner.

    Parameters
    ----------
    C : float or sequence of float
        Costs of the P-SVMs to try. Every combination of the values of C, gamma, eta0, kappa and
        scaling is a setting, and the P-SVMs of all settings are averaged.
    gamma : float or sequence of float
        gamma of the kernel exp(-gamma |u - v|^2 / d) of two rows u and v with d features.
    eta0 : float or sequence of float
        Reading precisions to try: the least half-width of a soft label's interval.
    kappa : float or sequence of float
        Shares of the readers' spread to try as half-width of a soft label's interval.
    scaling : str or sequence of str
        "rank": ranks among the training rows; "clipped": standardised values within three standard
        deviations; "given": the features as they are.
    boundary : "drop" or "paper"
        What is done with an interval that reaches 0 or 1: "drop" ignores the bound that lies
        outside (0, 1), "paper" makes the label certain (docs/methods.md 1).
    folds : int
        Number of inner folds. All rows of a patient are in one fold, if ``fit`` is given
        ``groups``.
    drop : float
        Settings with a weight below this value are left out of the average.
    solver : str
        "auto", or one of :data:`cad.learning.learners.solvers.choice.SOLVERS`.
    tol : float
        Largest relative duality gap of each SVM's solution.
    trees : int
        Number of random trees.
    min_leaf : int
        Least number of rows of a leaf of the random trees.
    max_features : float
        Share of the features that are candidates at each node of the random trees.

    Attributes
    ----------
    member_weights_ : ndarray, shape (4,)
        Weights of the members, in the order of :data:`MEMBERS`.
    line_ : SoftLogistic
    trees_ : SoftExtraTrees
    boosting_ : SoftBoosting
        The fitted members beside the P-SVMs. The attributes that are not listed here belong to the
        P-SVMs; :class:`AveragedProbabilisticSVC`, the base class, lists them.
    scatter_ : ndarray, shape (201,)
        Quantiles of (p - q) / sqrt(q (1 - q) + .02) on inner folds, with p the label and q the
        prediction. They say how far labels lie from predictions.

    Examples
    --------
    >>> import cad, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = 1000 * rng.normal(size=(90, 3))
    >>> scores = np.round(4 / (1 + np.exp(-X[:, :1] / 500 + rng.normal(0, 1, (90, 4)))))
    >>> belief = cad.consensus(1 + scores)
    >>> learner = cad.default_learner().fit(X, belief.p, eta=belief.eta, groups=np.arange(90) // 3)
    >>> probability = learner.predict_proba(X[:2])[:, 1]
    >>> low, high = learner.predict_range(X[:2]).T
    >>> bool(((low <= probability) & (probability <= high)).all())
    True
    """

    stored: ClassVar[Declared] = {
        "member_weights_": floats(len(MEMBERS)),
        "scatter_": floats(len(_LEVELS)),
        "line_": Inside(("SoftLogistic",)),
        "trees_": Inside(("SoftExtraTrees",)),
        "boosting_": Inside(("SoftBoosting",)),
    }

    trees: int = 50
    min_leaf: int = 3
    max_features: float = 1 / 3

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the members and their weights; return this object.

        Parameters
        ----------
        X : array, shape (n, d)
            Features, not scaled.
        y : array, shape (n,)
            Two classes, or probabilities in [0, 1] (0 and 1 are certain).
        eta : float or array, shape (n,), optional
            Uncertainty of the labels (the readers' spread); 0 when not given.
        sample_weight : array, shape (n,), optional
            How much each row counts.
        groups : array, shape (n,), optional
            Patient of every row; when not given, every row counts as another patient.

        Raises
        ------
        LearnerError
            For labels or a number of patients that :meth:`AveragedProbabilisticSVC.fit` refuses.
        """
        svm_log_odds = self._fit_inside(X, y, eta, sample_weight, groups)
        rows, _, p, weight = self._read_inputs(X, y, sample_weight)
        owner = np.arange(len(p)) if groups is None else np.asarray(groups)
        # Each member's log-odds of every row, by fits without the row; NaN if there are none. The
        # columns are in the order of MEMBERS: line, P-SVMs, trees, boosting.
        member_log_odds = np.full((len(p), len(MEMBERS)), np.nan)
        member_log_odds[:, 1] = svm_log_odds
        # Each tree predicts the patients on whom it was not grown.
        grown_share = min(_GROWN_ON, _MOST_GROWN / len(p))
        self.trees_ = SoftExtraTrees(self.trees, self.min_leaf, self.max_features, grown_share)
        tree_probability = self.trees_._fit_inside(rows, p, sample_weight, groups)
        member_log_odds[:, 2] = logit(np.clip(tree_probability, CLIP, 1 - CLIP))
        # Of very many rows the line and boosting learn from a sample.
        drawn = drawn_rows(weight, MOST_LINED)
        training = (rows[drawn], p[drawn], weight[drawn], owner[drawn])
        self.line_ = SoftLogistic(folds=self.folds)
        self.boosting_ = SoftBoosting(folds=self.folds if len(drawn) <= _MANY else 2)
        for column, member in ((0, self.line_), (3, self.boosting_)):
            member_log_odds[drawn, column] = member.fit_left_out(*training)
        has_all_members = np.isfinite(member_log_odds).all(axis=1)
        if not has_all_members.any():
            raise LearnerError("no row was left out of all members: more patients are needed")
        # The log-odds of the mean label, ``base_``, are subtracted before members are weighed.
        self.member_weights_ = self._stacked(member_log_odds, p, weight, towards=TOWARDS)
        log_odds = (
            self.base_ + (member_log_odds[has_all_members] - self.base_) @ self.member_weights_
        )
        self.scatter_ = np.quantile(_residuals(p[has_all_members], expit(log_odds)), _LEVELS)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the log-odds of the positive class, combined from those of the members, shape
        (n,).
        """
        return self._together(super().decision_function(X), np.asarray(X, dtype=float))

    def decide_mixed(self, rows: Array, other: Array, mixed: NDArray[np.bool_]) -> Array:
        """Return the decision values of rows that take some of their features from another row.

        ``rows``, shape (n, d), take from the one row ``other``, shape (d,), the features where
        ``mixed``, shape (m, d), is True. The result has the shape (n, m), as in
        :meth:`AveragedProbabilisticSVC.decide_mixed`.
        """
        # The P-SVMs have a fast way; for the other members the mixed rows are made.
        of_svms = super().decide_mixed(rows, other, mixed)
        decided = []
        for svm_log_odds, row in zip(of_svms, rows, strict=True):
            mixed_rows = np.where(mixed, other, row)
            decided.append(self._together(svm_log_odds, mixed_rows))
        return np.array(decided)

    def predict_quantiles(self, X: ArrayLike, levels: Sequence[float]) -> Array:
        """Return quantiles of the readers' mean that is expected for each row, shape (n, n_levels).

        The labels of new rows are assumed to differ from their predictions as much as labels did on
        inner folds. The differences are in units of sqrt(q (1 - q) + .02), with q the prediction.

        Parameters
        ----------
        X : array, shape (n, d)
            Features.
        levels : sequence of float
            Probabilities in [0, 1], such as .025 and .975.

        Raises
        ------
        LearnerError
            For a level outside [0, 1].
        """
        level_values = np.asarray(levels, dtype=float)
        if ((level_values < 0) | (level_values > 1)).any():
            raise LearnerError(f"levels = {list(levels)!r}, must lie in [0, 1]")
        q = self.predict_proba(X)[:, 1]
        scatter = np.interp(level_values, _LEVELS, self.scatter_)
        unit = np.sqrt(q * (1 - q) + _ROOM)
        quantiles: Array = np.clip(q[:, None] + unit[:, None] * scatter, 0.0, 1.0)
        return quantiles

    def predict_range(self, X: ArrayLike, level: float = 0.95) -> Array:
        """Return for each row the range in which the mean of its readers' scores is expected.

        The result has shape (n, 2). The range contains the probability that :meth:`predict_proba`
        states.

        Parameters
        ----------
        X : array, shape (n, d)
            Features.
        level : float
            Share of new rows, in (0, 1), whose readers' mean shall lie in the range.
        """
        q = self.predict_proba(X)[:, 1]
        ends = self.predict_quantiles(X, ((1 - level) / 2, (1 + level) / 2))
        # The quantiles may both lie on one side of the probability itself.
        return np.column_stack([np.minimum(ends[:, 0], q), np.maximum(ends[:, 1], q)])

    def _together(self, svm_log_odds: Array, rows: Array) -> Array:
        """Return the combined log-odds of rows, shape (n,), given those of the P-SVMs."""
        # The columns are in the order of MEMBERS: line, P-SVMs, trees, boosting.
        member_log_odds = np.empty((len(rows), len(MEMBERS)))
        member_log_odds[:, 0] = self.line_._linear(rows)
        member_log_odds[:, 1] = svm_log_odds
        member_log_odds[:, 2] = logit(self.trees_._probability(rows))
        member_log_odds[:, 3] = self.boosting_._log_odds(rows)
        combined: Array = self.base_ + (member_log_odds - self.base_) @ self.member_weights_
        return combined


def _residuals(p: Array, q: Array) -> Array:
    """Return how far labels p lie from predictions q, in units of their expected deviation."""
    return np.asarray((p - q) / np.sqrt(q * (1 - q) + _ROOM))
