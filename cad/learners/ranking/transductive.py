"""Transductive linear L2-SVMs, unlabelled rows' labels being variables.

Sindhwani and Keerthi 2006.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, xlogy

from cad.learners.ranking.base import Floats
from cad.learners.solvers.newton import finite_newton

# The unlabelled loss grows from this weight, the temperature falls from this multiple of
# lambda_u; both by a factor of two, the temperature until its share or the entropy is negligible.
_FIRST_WEIGHT = 1e-5
_FIRST_TEMPERATURE = 10.0
_LAST_TEMPERATURE = 1e-6
_MAX_INNER = 100


@dataclass(frozen=True)
class HalfLabelled:
    """Hold the labelled and unlabelled rows of one problem.

    Parameters
    ----------
    rows, sign, cost : ndarray, shapes (l, d), (l,), (l,)
        Labelled rows; costs sum to 1.
    free_rows, free_cost : ndarray, shapes (u, d), (u,)
        Unlabelled rows; costs sum to 1.
    lambda_, lambda_u : float
        Weights of |w|^2 / 2 and of the unlabelled loss.
    share : float
        Positives among the unlabelled.
    """

    rows: Floats
    sign: Floats
    cost: Floats
    free_rows: Floats
    free_cost: Floats
    lambda_: float
    lambda_u: float
    share: float


@dataclass(frozen=True)
class Annealing:
    """Hold one annealing step: weight or temperature, and the objective after every inner step."""

    level: float
    objectives: Floats


def multi_switch(
    problem: HalfLabelled, w: Floats, max_switches: int
) -> tuple[Floats, Floats, list[Annealing], bool]:
    """Fit by exchanging pairs of labels while the unlabelled weight grows.

    Parameters
    ----------
    problem : HalfLabelled
    w : ndarray (d,)
        Supervised solution to start from.
    max_switches : int
        Pairs exchanged before the next refit.

    Returns
    -------
    w : ndarray (d,)
    labels : ndarray (u,)
        0 or 1.
    steps : list of Annealing
    converged : bool
    """
    free_rows, lambda_ = problem.free_rows, problem.lambda_
    guess = _top_share(free_rows @ w, problem.share)
    both = np.vstack([problem.rows, free_rows])
    steps, good = [], True
    level = min(_FIRST_WEIGHT, problem.lambda_u)
    while True:
        costs = np.concatenate([problem.cost, level * problem.free_cost])
        values: list[float] = []
        for _ in range(_MAX_INNER * len(guess)):
            y = np.concatenate([problem.sign, guess])
            w, settled = finite_newton(both, y, costs, lambda_, w)
            good = good and settled
            values.append(_objective(both, y, costs, lambda_, w))
            if not _switch(guess, free_rows @ w, problem.free_cost, max_switches):
                break
            y = np.concatenate([problem.sign, guess])
            values.append(_objective(both, y, costs, lambda_, w))
        steps.append(Annealing(level, np.array(values)))
        if level >= problem.lambda_u:
            return w, (guess > 0).astype(float), steps, good
        level = min(2.0 * level, problem.lambda_u)


def anneal(problem: HalfLabelled, start: Floats) -> tuple[Floats, Floats, list[Annealing], bool]:
    """Fit by deterministic annealing; start and answers as :func:`multi_switch`.

    The objective of one temperature T is that of the expected loss plus
    T/2 sum cost (p ln p + (1 - p) ln (1 - p)), over w and p in turn, with the mean of p fixed.
    """
    free_rows, free_cost, lambda_u = problem.free_rows, problem.free_cost, problem.lambda_u
    w: Any = start
    p: Floats = np.full(len(free_rows), problem.share)
    stacked = np.vstack([problem.rows, free_rows, free_rows])
    ones = np.ones(len(free_rows))
    y = np.concatenate([problem.sign, ones, -ones])
    steps, good = [], True
    temperature = _FIRST_TEMPERATURE * lambda_u

    def costs() -> Floats:
        positive, negative = lambda_u * p * free_cost, lambda_u * (1.0 - p) * free_cost
        return np.concatenate([problem.cost, positive, negative])

    def total() -> float:
        entropy = float(free_cost @ (xlogy(p, p) + xlogy(1.0 - p, 1.0 - p)))
        expected = _objective(stacked, y, costs(), problem.lambda_, w)
        return expected + 0.5 * temperature * entropy

    while True:
        values: list[float] = []
        for _ in range(_MAX_INNER):
            w, settled = finite_newton(stacked, y, costs(), problem.lambda_, w)
            good = good and settled
            values.append(total())
            f = free_rows @ w
            advantage = lambda_u * (np.maximum(0, 1 + f) ** 2 - np.maximum(0, 1 - f) ** 2)
            old, p = p, _balanced_sigmoid(advantage, temperature, free_cost, problem.share)
            values.append(total())
            if float(np.abs(p - old).max()) <= 1e-4:
                break
        steps.append(Annealing(temperature, np.array(values)))
        entropy = -float(free_cost @ (xlogy(p, p) + xlogy(1.0 - p, 1.0 - p)))
        if entropy <= 1e-6 or temperature <= _LAST_TEMPERATURE * lambda_u:
            w, settled = finite_newton(stacked, y, costs(), problem.lambda_, w)
            return w, p, steps, good and settled
        temperature *= 0.5


def _top_share(f: Floats, share: float) -> Floats:
    """Return +1 for the given share of largest f, -1 for the rest."""
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
    """Return p = sigmoid((advantage - nu) / T), nu such that p's weighted mean is the share."""
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
    probability: Floats = expit(z - 0.5 * (low + high))
    return probability


def _objective(rows: Floats, y: Floats, cost: Floats, lambda_: float, w: Floats) -> float:
    missed = np.maximum(0.0, 1.0 - y * (rows @ w))
    return 0.5 * lambda_ * float(w @ w) + 0.5 * float(cost @ (missed * missed))
