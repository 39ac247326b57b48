"""SVMlin: linear L2-SVMs by modified finite Newton, supervised and transductive.

Sindhwani & Keerthi 2006. The bias is a regularised weight of a constant feature.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from cad.learners.ranking.base import (
    Floats,
    Ranker,
    require,
    require_choice,
    require_count,
    require_positive,
    warn_not_converged,
)
from cad.learners.ranking.transductive import Annealing, HalfLabelled, anneal, multi_switch
from cad.learners.solvers.newton import MAX_NEWTON, finite_newton


class SVMLin(Ranker):
    """Separate by a linear SVM with squared hinge, supervised or transductive.

    supervised: lambda/2 |w|^2 + 1/2 sum max(0, 1 - y f)^2, scikit-learn's
    ``LinearSVC(loss="squared_hinge", dual=False, C=1 / (2 lambda))``;
    transductive: lambda/2 |w|^2 + 1/2 mean over labelled + lambda_u/2 mean over unlabelled, whose
    labels are variables with a fixed share of positives. ``multi-switch`` exchanges pairs of
    labels that cost less exchanged while the unlabelled weight grows to lambda_u;
    ``deterministic-annealing`` relaxes labels to probabilities under an entropy whose
    temperature falls. Fit takes y in {0, 1} and -1 for unlabelled.

    Parameters
    ----------
    lambda_, lambda_u : float
    method : {"multi-switch", "deterministic-annealing", "supervised"}
        "supervised" leaves unlabelled rows out.
    positive_fraction : float, optional
        Share of positives among the unlabelled; by default that of the labelled.
    max_switches : int
        Pairs exchanged before the next refit.
    platt_folds : int
        Folds of the out-of-fold scores that Platt's sigmoid is fitted to; 0 = training scores.

    Attributes
    ----------
    coef_ : ndarray, shape (1, d)
    bias_ : float
        Weight of the constant feature; ``intercept_`` also holds Platt's threshold.
    soft_labels_ : ndarray, shape (n_unlabelled,)
        Probability (0 or 1 for multi-switch) given to each unlabelled row.
    annealing_levels_, annealing_objectives_ : ndarray, shape (k,)
        The objective after every inner step, which never rises while its level stays the same.
    """

    semi_supervised = True

    def __init__(
        self,
        lambda_: float = 1.0,
        lambda_u: float = 1.0,
        method: str = "multi-switch",
        positive_fraction: float | None = None,
        max_switches: int = 10_000,
        platt_folds: int = 5,
    ) -> None:
        self.lambda_ = lambda_
        self.lambda_u = lambda_u
        self.method = method
        self.positive_fraction = positive_fraction
        self.max_switches = max_switches
        self.platt_folds = platt_folds

    def _check_parameters(self) -> None:
        require_positive("lambda_", self.lambda_)
        require_positive("lambda_u", self.lambda_u)
        methods = ("multi-switch", "deterministic-annealing", "supervised")
        require_choice("method", self.method, methods)
        require_count("max_switches", self.max_switches)
        share = self.positive_fraction
        good = share is None or (isinstance(share, (int, float, np.number)) and 0 < share < 1)
        require(good, f"positive_fraction = {share!r}, must be None or lie in (0, 1)")

    def _fit_scores(self, X: Floats, sign: Floats, weight: Floats) -> None:
        if self.method == "supervised":
            X, weight, sign = X[sign != 0], weight[sign != 0], sign[sign != 0]
        rows = np.column_stack([X, np.ones(len(X))])
        turn = None
        if rows.shape[1] > rows.shape[0]:
            # n rows span at most n directions: solve there, turn the weights back.
            turn, triangle = qr(rows.T, mode="economic")
            rows = np.ascontiguousarray(triangle.T)
        labelled, unlabelled = sign != 0, sign == 0
        cost = weight.copy()
        if self.method != "supervised":
            cost[labelled] /= weight[labelled].sum()
            cost[unlabelled] /= max(weight[unlabelled].sum(), 1e-300)
        w, good = finite_newton(
            rows[labelled],
            sign[labelled],
            cost[labelled],
            float(self.lambda_),
            np.zeros(rows.shape[1]),
        )
        steps: list[Annealing] = []
        self.soft_labels_ = np.zeros(0)
        if unlabelled.any():
            share = self.positive_fraction
            if share is None:
                share = float(weight[sign > 0].sum() / weight[labelled].sum())
            problem = HalfLabelled(
                rows[labelled],
                sign[labelled],
                cost[labelled],
                rows[unlabelled],
                cost[unlabelled],
                float(self.lambda_),
                float(self.lambda_u),
                share,
            )
            if self.method == "multi-switch":
                found = multi_switch(problem, w, self.max_switches)
            else:
                found = anneal(problem, w)
            w, self.soft_labels_, steps, good = found
        if not good:
            warn_not_converged(
                "SVMLin",
                f"finite Newton used {MAX_NEWTON} iterations without settling on a set of "
                "margin violations",
                "standardise the features or raise lambda_",
            )
        self.annealing_levels_ = np.concatenate(
            [np.full(len(s.objectives), s.level) for s in steps] or [np.zeros(0)]
        )
        self.annealing_objectives_ = np.concatenate([s.objectives for s in steps] or [np.zeros(0)])
        weights = w if turn is None else turn @ w
        self.coef_ = weights[None, :-1]
        self.bias_ = float(weights[-1])

    @property
    def intercept_(self) -> Floats:
        """Return the bias minus the threshold at probability one half, shape (1,)."""
        return np.array([self.bias_ - self.threshold_])

    def _scores(self, X: Floats) -> Floats:
        values: Floats = X @ self.coef_[0] + self.bias_
        return values
