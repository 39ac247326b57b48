"""SVMlin: linear L2-SVMs by modified finite Newton, supervised and transductive.

Sindhwani & Keerthi 2006. The bias is a regularised weight of a constant feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.special import expit, xlogy

from cad.learners.ranking import (
    Floats,
    Ranker,
    require,
    require_choice,
    require_count,
    require_positive,
    warn_not_converged,
)

# The unlabelled loss grows from this weight, the temperature falls from this multiple of
# lambda_u; both by a factor of two, the temperature until its share or the entropy is negligible.
_FIRST_WEIGHT = 1e-5
_FIRST_TEMPERATURE = 10.0
_LAST_TEMPERATURE = 1e-6
_MAX_NEWTON = 200
_MAX_INNER = 100


@dataclass(frozen=True)
class Annealing:
    """One annealing step: weight or temperature, and the objective after every inner step."""

    level: float
    objectives: Floats


class SVMLin(Ranker):
    """Linear SVM with squared hinge, supervised or transductive.

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

    _semi_supervised = True

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
            train = multi_switch if self.method == "multi-switch" else anneal
            extra = (self.max_switches,) if self.method == "multi-switch" else ()
            w, self.soft_labels_, steps, good = train(
                rows[labelled],
                sign[labelled],
                cost[labelled],
                rows[unlabelled],
                cost[unlabelled],
                float(self.lambda_),
                float(self.lambda_u),
                share,
                w,
                *extra,
            )
        if not good:
            warn_not_converged(
                "SVMLin",
                f"finite Newton used {_MAX_NEWTON} iterations without settling on a set of "
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
        """Bias minus the threshold at probability one half, shape (1,)."""
        return np.array([self.bias_ - self.threshold_])

    def _scores(self, X: Floats) -> Floats:
        return X @ self.coef_[0] + self.bias_


def multi_switch(
    rows: Floats,
    sign: Floats,
    cost: Floats,
    free_rows: Floats,
    free_cost: Floats,
    lambda_: float,
    lambda_u: float,
    share: float,
    w: Floats,
    max_switches: int,
) -> tuple[Floats, Floats, list[Annealing], bool]:
    """Transductive L2-SVM with multiple switching.

    Parameters
    ----------
    rows, sign, cost : ndarray (l, d), (l,), (l,)
        Labelled rows; costs sum to 1.
    free_rows, free_cost : ndarray (u, d), (u,)
        Unlabelled rows; costs sum to 1.
    lambda_, lambda_u : float
    share : float
        Positives among the unlabelled.
    w : ndarray (d,)
        Supervised solution to start from.
    max_switches : int

    Returns
    -------
    w : ndarray (d,)
    labels : ndarray (u,)
        0 or 1.
    steps : list of Annealing
    converged : bool
    """
    guess = _top_share(free_rows @ w, share)
    both = np.vstack([rows, free_rows])
    steps, good = [], True
    level = min(_FIRST_WEIGHT, lambda_u)
    while True:
        costs = np.concatenate([cost, level * free_cost])
        values: list[float] = []
        for _ in range(_MAX_INNER * len(guess)):
            y = np.concatenate([sign, guess])
            w, settled = finite_newton(both, y, costs, lambda_, w)
            good = good and settled
            values.append(_objective(both, y, costs, lambda_, w))
            if not _switch(guess, free_rows @ w, free_cost, max_switches):
                break
            values.append(_objective(both, np.concatenate([sign, guess]), costs, lambda_, w))
        steps.append(Annealing(level, np.array(values)))
        if level >= lambda_u:
            return w, (guess > 0).astype(float), steps, good
        level = min(2.0 * level, lambda_u)


def anneal(
    rows: Floats,
    sign: Floats,
    cost: Floats,
    free_rows: Floats,
    free_cost: Floats,
    lambda_: float,
    lambda_u: float,
    share: float,
    start: Floats,
) -> tuple[Floats, Floats, list[Annealing], bool]:
    """Transductive L2-SVM by deterministic annealing; arguments as :func:`multi_switch`.

    The objective of one temperature T is that of the expected loss plus
    T/2 sum cost (p ln p + (1 - p) ln (1 - p)), over w and p in turn, with the mean of p fixed.
    """
    w: Any = start
    p: Floats = np.full(len(free_rows), share)
    stacked = np.vstack([rows, free_rows, free_rows])
    ones = np.ones(len(free_rows))
    y = np.concatenate([sign, ones, -ones])
    steps, good = [], True
    temperature = _FIRST_TEMPERATURE * lambda_u

    def costs() -> Floats:
        return np.concatenate([cost, lambda_u * p * free_cost, lambda_u * (1.0 - p) * free_cost])

    def total() -> float:
        entropy = xlogy(p, p) + xlogy(1.0 - p, 1.0 - p)
        return _objective(stacked, y, costs(), lambda_, w) + 0.5 * temperature * float(
            free_cost @ entropy
        )

    while True:
        values: list[float] = []
        for _ in range(_MAX_INNER):
            w, settled = finite_newton(stacked, y, costs(), lambda_, w)
            good = good and settled
            values.append(total())
            f = free_rows @ w
            advantage = lambda_u * (np.maximum(0, 1 + f) ** 2 - np.maximum(0, 1 - f) ** 2)
            old, p = p, _balanced_sigmoid(advantage, temperature, free_cost, share)
            values.append(total())
            if float(np.abs(p - old).max()) <= 1e-4:
                break
        steps.append(Annealing(temperature, np.array(values)))
        entropy = -float(free_cost @ (xlogy(p, p) + xlogy(1.0 - p, 1.0 - p)))
        if entropy <= 1e-6 or temperature <= _LAST_TEMPERATURE * lambda_u:
            w, settled = finite_newton(stacked, y, costs(), lambda_, w)
            return w, p, steps, good and settled
        temperature *= 0.5


def _top_share(f: Floats, share: float) -> Floats:
    """+1 for the given share of largest f, -1 for the rest."""
    count = round(share * len(f))
    guess = np.full(len(f), -1.0)
    guess[np.argsort(-f, kind="stable")[:count]] = 1.0
    return guess


def _switch(guess: Floats, f: Floats, cost: Floats, most: int) -> bool:
    """Exchange labels of (+1, -1) pairs, best first, wherever that lowers the loss."""
    price = cost * (np.maximum(0.0, 1.0 - f) ** 2 - np.maximum(0.0, 1.0 + f) ** 2)
    up, down = np.flatnonzero(guess > 0), np.flatnonzero(guess < 0)
    up = up[np.argsort(-price[up], kind="stable")][:most]
    down = down[np.argsort(price[down], kind="stable")][:most]
    pairs = min(len(up), len(down))
    gain = price[up[:pairs]] - price[down[:pairs]]
    better = gain > 1e-9 * np.abs(price).max(initial=0.0)
    guess[up[:pairs][better]] = -1.0
    guess[down[:pairs][better]] = 1.0
    return bool(better.any())


def _balanced_sigmoid(advantage: Floats, temperature: float, cost: Floats, share: float) -> Floats:
    """p = sigmoid((advantage - nu) / T) with nu such that the weighted mean of p is the share."""
    z = advantage / temperature
    odds = float(np.log(share / (1.0 - share)))
    low, high = float(z.min()) - odds - 1.0, float(z.max()) - odds + 1.0
    target = share * float(cost.sum())
    for _ in range(200):
        nu = 0.5 * (low + high)
        if not low < nu < high:
            break
        if float(cost @ expit(z - nu)) > target:
            low = nu
        else:
            high = nu
    return expit(z - 0.5 * (low + high))


def _objective(rows: Floats, y: Floats, cost: Floats, lambda_: float, w: Floats) -> float:
    missed = np.maximum(0.0, 1.0 - y * (rows @ w))
    return 0.5 * lambda_ * float(w @ w) + 0.5 * float(cost @ (missed * missed))


@njit(cache=True)
def finite_newton(
    rows: Floats, y: Floats, cost: Floats, lambda_: float, start: Floats
) -> tuple[Floats, bool]:
    """Minimise lambda/2 |w|^2 + 1/2 sum cost max(0, 1 - y rows w)^2 by modified finite Newton.

    Parameters
    ----------
    rows, y, cost : ndarray (n, d), (n,), (n,)
    lambda_ : float
        > 0.
    start : ndarray (d,)

    Returns
    -------
    w : ndarray (d,)
    converged : bool
        The set of margin violations repeats, so w is the exact minimiser for it.
    """
    n, d = rows.shape
    w = start.copy()
    f = rows @ w
    chosen = np.empty((n, d))
    for _ in range(_MAX_NEWTON):
        count = 0
        right = np.zeros(d)
        for i in range(n):
            if cost[i] > 0.0 and y[i] * f[i] < 1.0:
                root = np.sqrt(cost[i])
                for k in range(d):
                    chosen[count, k] = root * rows[i, k]
                    right[k] += cost[i] * y[i] * rows[i, k]
                count += 1
        part = chosen[:count]
        hessian = part.T @ part
        for k in range(d):
            hessian[k, k] += lambda_
        aim: Any = np.linalg.solve(hessian, right)
        f_aim = rows @ aim
        same = True
        for i in range(n):
            if cost[i] > 0.0:
                margin = 1.0 - y[i] * f_aim[i]
                active = y[i] * f[i] < 1.0
                if (active and margin < -1e-10) or (not active and margin > 1e-10):
                    same = False
                    break
        if same:
            return aim, True
        step = _exact_step(y, cost, lambda_, w, aim, f, f_aim)
        change = 0.0
        size = 0.0
        for k in range(d):
            move = step * (aim[k] - w[k])
            change = max(change, abs(move))
            size = max(size, abs(w[k]))
            w[k] += move
        f = rows @ w
        if change <= 1e-14 * size:
            return w, True
    return w, False


@njit(cache=True)
def _exact_step(
    y: Floats, cost: Floats, lambda_: float, w: Floats, aim: Floats, f: Floats, f_aim: Floats
) -> float:
    """Root of the piecewise linear derivative along w -> aim."""
    n = len(y)
    step = aim - w
    slope = lambda_ * np.dot(step, step)
    value = lambda_ * np.dot(w, step)
    where = np.empty(n)
    which = np.empty(n, dtype=np.int64)
    count = 0
    for i in range(n):
        if cost[i] <= 0.0:
            continue
        margin = 1.0 - y[i] * f[i]
        rate = -y[i] * (f_aim[i] - f[i])
        if margin > 0.0:
            value += cost[i] * margin * rate
            slope += cost[i] * rate * rate
        if (margin > 0.0 and rate < 0.0) or (margin <= 0.0 and rate > 0.0):
            where[count] = -margin / rate
            which[count] = i
            count += 1
    order = np.argsort(where[:count])
    at = 0.0
    for k in range(count):
        t = where[order[k]]
        if value + slope * (t - at) >= 0.0:
            break
        value += slope * (t - at)
        at = t
        i = which[order[k]]
        rate = f_aim[i] - f[i]
        if 1.0 - y[i] * f[i] > 0.0:
            slope -= cost[i] * rate * rate
        else:
            slope += cost[i] * rate * rate
    return at - value / slope if slope > 0.0 else 1.0


def rotate_rows(X: Floats) -> tuple[Floats, NDArray[np.float64]]:
    """Z (n, r) and Q (d, r) with X = Z Q': rows of many features in r = min(n, d) directions.

    Inner products and distances stay, so SVMLin, OPAUC and kernel machines give the same scores
    on Z; along a grid the d features are then touched once.
    """
    turn, triangle = qr(X.T, mode="economic")
    return np.ascontiguousarray(triangle.T), turn
