"""Provide SVMlin: linear SVMs with squared hinge loss, supervised and transductive.

A transductive SVM also learns from unlabelled rows.

The method is that of Sindhwani & Keerthi 2006. Newton's method reaches the solution after a finite
number of steps. The bias is the weight of a constant feature, and is penalised like all weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import qr
from scipy.special import expit, xlogy

from cad.learning.learners.base import check_cost
from cad.learning.learners.ranking import base
from cad.learning.learners.ranking.base import Floats, Ranker
from cad.learning.learners.solvers.newton import MAX_NEWTON, finite_newton
from cad.learning.stored import Declared, floats

# With the method multi-switch, the weight of the unlabelled rows' loss starts at _FIRST_WEIGHT and
# is doubled until it is lambda_u. With deterministic annealing, the temperature starts at
# _FIRST_TEMPERATURE times lambda_u. It is halved until it is _LAST_TEMPERATURE times lambda_u or
# the entropy is negligible.
_FIRST_WEIGHT = 1e-5
_FIRST_TEMPERATURE = 10.0
_LAST_TEMPERATURE = 1e-6
# Entropies and changes of probabilities that count as negligible.
_NO_ENTROPY = 1e-6
_NO_CHANGE = 1e-4
# Largest number of inner steps (of multi-switch: for each unlabelled row).
_MAX_INNER = 100
# Largest number of halvings of an interval in a bisection.
_MOST_HALVINGS = 200

# Of each level (weight of the unlabelled rows, or temperature): the level, and the objective after
# each of its inner steps.
Steps = list[tuple[float, list[float]]]


@dataclass(eq=False, repr=False)
class SVMLin(Ranker):
    """Separate two classes by a linear SVM with squared hinge loss, supervised or transductive.

    In the formulas, y is the class of a row, +1 or -1, and f = w'x its score. x also has a constant
    feature for the bias. The supervised SVM minimises lambda/2 |w|^2 + 1/2 sum max(0, 1 - y f)^2,
    like scikit-learn's ``LinearSVC(loss="squared_hinge", dual=False, C=1 / (2 lambda))``.

    The transductive SVM minimises lambda/2 |w|^2 + 1/2 (mean loss of labelled rows) + lambda_u/2
    (mean loss of unlabelled rows). The labels of unlabelled rows are then variables too, with a
    fixed share of positives. With ``multi-switch``, the labels of two rows are exchanged where that
    lowers the loss, and the weight of the unlabelled rows grows step by step to lambda_u. With
    ``deterministic-annealing``, the labels are replaced by probabilities, and half a temperature
    times their entropy is subtracted from the loss; the temperature falls step by step.

    The ``y`` of :meth:`fit` is not the y of the formulas. In ``fit``, -1 marks an unlabelled row,
    and the classes are two other values, such as 0 and 1.

    Parameters
    ----------
    lambda_, lambda_u : float
        Factor of the penalty on the weights, and factor of the unlabelled rows' loss.
    method : {"multi-switch", "deterministic-annealing", "supervised"}
        How the labels of unlabelled rows are found; "supervised" leaves unlabelled rows out.
    positive_fraction : float, optional
        Share of positives among the unlabelled rows; by default the share among the labelled rows.
    max_switches : int
        Largest number of pairs of labels that are exchanged before the weights are fitted again.
    platt_folds : int
        Number of folds for the out-of-fold scores that Platt's sigmoid is fitted to; with 0 it is
        fitted to the scores of the training rows.

    Attributes
    ----------
    coef_ : ndarray, shape (1, d)
        Weights of the features.
    bias_ : float
        Weight of the constant feature. ``intercept_`` is this weight minus the score whose
        probability is one half.
    soft_labels_ : ndarray, shape (n_unlabelled,)
        Probability of the positive class for each unlabelled row; 0 or 1 with multi-switch.
    annealing_levels_, annealing_objectives_ : ndarray, shape (k,)
        Weight of the unlabelled rows (or temperature) at every inner step, and the objective after
        this step. While the weight or temperature stays the same, the objective never rises.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import SVMLin
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0], [-1.4], [1.4]])
    >>> y = [0, 0, 0, 1, 1, 1, -1, -1]
    >>> model = SVMLin(platt_folds=0).fit(X, y)
    >>> model.soft_labels_.round().tolist()
    [0.0, 1.0]
    >>> model.predict([[-1.2], [1.2]]).tolist()
    [0, 1]
    """

    stored: ClassVar[Declared] = {
        "coef_": floats(1, "d"),
        "bias_": floats(),
        "soft_labels_": floats("unlabelled"),
        "annealing_levels_": floats("levels"),
        "annealing_objectives_": floats("levels"),
    }

    semi_supervised = True

    lambda_: float = 1.0
    lambda_u: float = 1.0
    method: str = "multi-switch"
    positive_fraction: float | None = None
    max_switches: int = 10_000
    platt_folds: int = 5

    def _check_parameters(self) -> None:
        check_cost("lambda_", self.lambda_)
        check_cost("lambda_u", self.lambda_u)
        methods = ("multi-switch", "deterministic-annealing", "supervised")
        base.require_choice("method", self.method, methods)
        base.require_count("max_switches", self.max_switches)
        share = self.positive_fraction
        is_valid = share is None or (isinstance(share, (int, float, np.number)) and 0 < share < 1)
        base.require(is_valid, f"positive_fraction = {share!r}, must be None or lie in (0, 1)")

    def _fit_scores(self, X: Floats, sign: Floats, weight: Floats) -> None:
        """Learn the weights of the features from labelled and unlabelled rows (sign 0)."""
        if self.method == "supervised":  # unlabelled rows are left out
            X = X[sign != 0]
            weight = weight[sign != 0]
            sign = sign[sign != 0]
        # With a constant feature the bias is a weight, too, so Newton's method needs no other
        # variable.
        rows = np.column_stack([X, np.ones(len(X))])
        basis = None
        if rows.shape[1] > rows.shape[0]:
            # n rows lie in a subspace of at most n dimensions. So the problem is solved in the
            # subspace, and the weights are transformed back.
            basis, triangle = qr(rows.T, mode="economic")
            rows = np.ascontiguousarray(triangle.T)
        labelled = sign != 0
        unlabelled = sign == 0
        cost = weight.copy()
        if self.method != "supervised":
            cost[labelled] /= weight[labelled].sum()
            # The losses of labelled and of unlabelled rows are means, so the effect of lambda_u
            # does not depend on the numbers of rows.
            cost[unlabelled] /= max(weight[unlabelled].sum(), 1e-300)  # there may be none
        # The supervised solution comes first; the other methods start from it.
        labelled_data = rows[labelled], sign[labelled], cost[labelled]
        w, converged = finite_newton(*labelled_data, float(self.lambda_), np.zeros(rows.shape[1]))
        steps: Steps = []
        self.soft_labels_ = np.zeros(0)
        if unlabelled.any():
            positive_share = self.positive_fraction
            if positive_share is None:
                positive_share = float(weight[sign > 0].sum() / weight[labelled].sum())
            fit_with_unlabelled = (
                self._multi_switch if self.method == "multi-switch" else self._anneal
            )
            unlabelled_data = rows[unlabelled], cost[unlabelled], positive_share
            w, self.soft_labels_, steps, converged = fit_with_unlabelled(
                *labelled_data, *unlabelled_data, w
            )
        if not converged:
            base.warn_not_converged(
                "SVMLin",
                f"finite Newton used {MAX_NEWTON} iterations without settling on a set of "
                "margin violations",
                "standardise the features or raise lambda_",
            )
        levels: list[float] = []
        objectives: list[float] = []
        for level, objectives_at_level in steps:
            levels += [level] * len(objectives_at_level)
            objectives += objectives_at_level
        self.annealing_levels_ = np.array(levels, dtype=float)
        self.annealing_objectives_ = np.array(objectives)
        # The last weight is that of the constant feature.
        weights = w if basis is None else basis @ w
        self.coef_ = weights[None, :-1]
        self.bias_ = float(weights[-1])

    def _multi_switch(
        self,
        rows: Floats,
        sign: Floats,
        cost: Floats,
        free_rows: Floats,
        free_cost: Floats,
        share: float,
        w: Floats,
    ) -> tuple[Floats, Floats, Steps, bool]:
        """Fit by exchanging labels of pairs of rows, while the weight of the unlabelled rows grows.

        Parameters
        ----------
        rows, sign, cost : ndarray, shapes (l, d), (l,), (l,)
            Labelled rows; costs sum to 1.
        free_rows, free_cost : ndarray, shapes (u, d), (u,)
            Unlabelled rows; costs sum to 1.
        share : float
            Share of positives among the unlabelled rows.
        w : ndarray (d,)
            Supervised solution to start from.

        Returns
        -------
        w : ndarray (d,)
            Weights of the features.
        labels : ndarray (u,)
            Labels of the unlabelled rows, 0 or 1.
        steps : list of (float, list of float)
            One entry for each weight that the unlabelled rows get in turn: this weight, and the
            objective after every inner step with it.
        converged : bool
            Whether every fit of the weights converged.
        """
        lambda_ = float(self.lambda_)
        lambda_u = float(self.lambda_u)
        # The share of positives is fixed, because otherwise it could be optimal that all unlabelled
        # rows have the same label.
        guess = _top_share(free_rows @ w, share)
        all_rows = np.vstack([rows, free_rows])
        steps: Steps = []
        converged = True
        level = min(_FIRST_WEIGHT, lambda_u)
        while True:
            # The weight of the unlabelled rows starts small, because otherwise the first guess of
            # their labels would decide the result.
            costs = np.concatenate([cost, level * free_cost])
            objectives: list[float] = []
            # Every exchange lowers the objective, so no labelling occurs twice and the loop ends.
            # The limit is for the case that rounding errors prevent the end.
            for _ in range(_MAX_INNER * len(guess)):
                y = np.concatenate([sign, guess])
                w, fit_converged = finite_newton(all_rows, y, costs, lambda_, w)
                converged = converged and fit_converged
                objectives.append(_objective(all_rows, y, costs, lambda_, w))
                if not _switch(guess, free_rows @ w, free_cost, self.max_switches):
                    break
                y = np.concatenate([sign, guess])
                objectives.append(_objective(all_rows, y, costs, lambda_, w))
            steps.append((level, objectives))
            if level >= lambda_u:
                return w, (guess > 0).astype(float), steps, converged
            level = min(2.0 * level, lambda_u)

    def _anneal(
        self,
        rows: Floats,
        sign: Floats,
        cost: Floats,
        free_rows: Floats,
        free_cost: Floats,
        share: float,
        start: Floats,
    ) -> tuple[Floats, Floats, Steps, bool]:
        """Fit by deterministic annealing.

        Parameters and results are those of :func:`_multi_switch`, but the labels are probabilities.

        At a temperature T the objective is the expected loss plus T/2 sum cost (p ln p + (1 - p) ln
        (1 - p)), with p the probabilities of the unlabelled rows. The objective is minimised over w
        and p in turn, with the mean of p fixed.
        """
        lambda_ = float(self.lambda_)
        lambda_u = float(self.lambda_u)
        w: Any = start
        # p are the probabilities that unlabelled rows are positive. The temperature is the weight
        # of the entropy of p in the objective, and falls during the fit. It is so high at first
        # that the entropy alone decides, and the entropy is largest when all p equal the share of
        # positives.
        p: Floats = np.full(len(free_rows), share)
        # Each unlabelled row stands twice in ``stacked``: as +1 with cost p, and as -1 with cost 1
        # - p. The expected loss is then the loss of an ordinary SVM with squared hinge.
        stacked = np.vstack([rows, free_rows, free_rows])
        ones = np.ones(len(free_rows))
        y = np.concatenate([sign, ones, -ones])
        steps: Steps = []
        converged = True
        temperature = _FIRST_TEMPERATURE * lambda_u

        def costs() -> Floats:
            """Return the costs of the rows in ``stacked`` for the present probabilities p."""
            positive = lambda_u * p * free_cost
            negative = lambda_u * (1.0 - p) * free_cost
            return np.concatenate([cost, positive, negative])

        def minus_entropy() -> float:
            """Return sum cost (p ln p + (1 - p) ln (1 - p)), minus the entropy of p."""
            return float(free_cost @ (xlogy(p, p) + xlogy(1.0 - p, 1.0 - p)))

        def total() -> float:
            """Return the objective: the expected loss plus T/2 times minus the entropy."""
            loss = _objective(stacked, y, costs(), lambda_, w)
            return loss + 0.5 * temperature * minus_entropy()

        while True:
            objectives: list[float] = []
            for _ in range(_MAX_INNER):
                w, fit_converged = finite_newton(stacked, y, costs(), lambda_, w)
                converged = converged and fit_converged
                objectives.append(total())
                decisions = free_rows @ w
                # For fixed weights w, the optimal probability p of an unlabelled row is a sigmoid
                # of a difference: the row's loss as -1 minus its loss as +1.
                advantage = lambda_u * (
                    np.maximum(0, 1 + decisions) ** 2 - np.maximum(0, 1 - decisions) ** 2
                )
                p_before = p
                p = _balanced_sigmoid(advantage, temperature, free_cost, share)
                objectives.append(total())
                if float(np.abs(p - p_before).max()) <= _NO_CHANGE:
                    break
            steps.append((temperature, objectives))
            is_coldest = temperature <= _LAST_TEMPERATURE * lambda_u
            if -minus_entropy() <= _NO_ENTROPY or is_coldest:
                # The weights are fitted once more, to the last probabilities.
                w, fit_converged = finite_newton(stacked, y, costs(), lambda_, w)
                return w, p, steps, converged and fit_converged
            # The fit at each temperature starts from the optimum at the last temperature, because
            # the two optima are close to each other.
            temperature *= 0.5

    @property
    def intercept_(self) -> Floats:
        """Return the intercept of ``decision_function``, shape (1,).

        The intercept is ``bias_`` minus the score whose probability is one half.
        """
        return np.array([self.bias_ - self.threshold_])

    def _scores(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_[0] + self.bias_)


def _top_share(f: Floats, share: float) -> Floats:
    """Return labels: +1 for the given share of rows with the largest f, -1 for all others."""
    # The share is a share of the number of rows and not of their weights. An exchange of two labels
    # keeps the number of positive rows, but not the sum of their weights.
    n_positive = round(share * len(f))
    labels = np.full(len(f), -1.0)
    labels[np.argsort(-f, kind="stable")[:n_positive]] = 1.0
    return labels


def _switch(guess: Floats, f: Floats, cost: Floats, most: int) -> bool:
    """Exchange the labels of pairs of a row +1 and a row -1 where this lowers the loss.

    The labels in ``guess`` are changed in place. At most ``most`` pairs are exchanged, first those
    that lower the loss most. The function returns whether any pair was exchanged. ``f`` and
    ``cost`` are the rows' decision values and costs.
    """
    # ``price`` is the difference between a row's loss as +1 and its loss as -1. An exchange of one
    # label +1 with one label -1 keeps the share of positives.
    price = cost * (np.maximum(0.0, 1.0 - f) ** 2 - np.maximum(0.0, 1.0 + f) ** 2)
    positives = np.flatnonzero(guess > 0)
    negatives = np.flatnonzero(guess < 0)
    positives = positives[np.argsort(-price[positives], kind="stable")][:most]
    negatives = negatives[np.argsort(price[negatives], kind="stable")][:most]
    # The row with label +1 of highest price (loss as +1 minus loss as -1) is paired with the row
    # with label -1 of lowest price, then the next two rows, and so on. The gain falls from pair to
    # pair, so the pairs worth exchanging come first.
    n_pairs = min(len(positives), len(negatives))
    positives = positives[:n_pairs]
    negatives = negatives[:n_pairs]
    gain = price[positives] - price[negatives]
    # A gain that may be a rounding error does not count, because otherwise a pair could be
    # exchanged to and fro for ever.
    is_gain = gain > 1e-9 * np.abs(price).max(initial=0.0)
    guess[positives[is_gain]] = -1.0
    guess[negatives[is_gain]] = 1.0
    return bool(is_gain.any())


def _balanced_sigmoid(advantage: Floats, temperature: float, cost: Floats, share: float) -> Floats:
    """Return the probability p of the positive class for each unlabelled row.

    p is sigmoid((advantage - nu) / T), with T the ``temperature``. ``advantage`` is a row's loss as
    -1 minus its loss as +1. The number nu is such that the mean of p, weighted by ``cost``, is
    ``share``.
    """
    # The mean of p falls as nu rises, so the nu for which this mean is ``share`` is found by
    # bisection.
    z = advantage / temperature
    log_odds = float(np.log(share / (1.0 - share)))
    # At the lower end every p is above the share, at the upper end every p is below it.
    low = float(z.min()) - log_odds - 1.0
    high = float(z.max()) - log_odds + 1.0
    target = share * float(cost.sum())
    for _ in range(_MOST_HALVINGS):
        nu = 0.5 * (low + high)
        if not low < nu < high:  # no number lies between the two
            break
        if float(cost @ expit(z - nu)) > target:
            low = nu
        else:
            high = nu
    return np.asarray(expit(z - 0.5 * (low + high)))


def _objective(rows: Floats, y: Floats, cost: Floats, lambda_: float, w: Floats) -> float:
    """Return lambda/2 |w|^2 + 1/2 sum cost max(0, 1 - y rows w)^2."""
    missed = np.maximum(0.0, 1.0 - y * (rows @ w))
    return 0.5 * lambda_ * float(w @ w) + 0.5 * float(cost @ (missed * missed))
