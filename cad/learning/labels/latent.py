"""Rivals of the consensus rules that find a latent class: Dawid and Skene 1979, and GLAD.

They stand in tables with what they cost. Without histology their class is the readers' own.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]

_ROUNDS = 200


def dawid_skene(grades: Array, truth: Array | None = None) -> Array:
    """Return the probability of class 1 of every region, shape (n,), by Dawid and Skene (1979).

    Class 1 is malignant. Each reader has a table P(grade | class), estimated by expectation
    maximisation (EM) that starts at the readers' mean. Each class of a table is smoothed by one
    count, spread evenly over the grades.

    Parameters
    ----------
    grades : ndarray, shape (n, n_readers)
        Readers' probabilities in [0, 1], NaN where missing.
    truth : ndarray, shape (n,), optional
        Histology, 1 (malignant), 0 or NaN; a region with histology keeps this class.
    """
    levels = np.unique(grades[np.isfinite(grades)])
    seen = np.stack([(grades == level).astype(float) for level in levels])  # level, region, reader
    held = np.full(len(grades), np.nan) if truth is None else np.asarray(truth, dtype=float)
    p = np.where(np.isfinite(held), held, np.nanmean(grades, axis=1))
    for _ in range(_ROUNDS):
        log = np.zeros((2, len(grades)))
        for c, weight in enumerate((1 - p, p)):
            table = np.einsum("lnr,n->lr", seen, weight) + 1.0 / len(levels)
            table /= table.sum(axis=0)
            log[c] = np.einsum("lnr,lr->n", seen, np.log(table)) + np.log(weight.mean() + 1e-12)
        new = np.where(np.isfinite(held), held, expit(log[1] - log[0]))
        moved = float(np.max(np.abs(new - p)))
        p = new
        if moved < 1e-8:
            break
    return p


def glad(grades: Array, truth: Array | None = None) -> Array:
    """Return the probability of malignancy (class 1) of every region, shape (n,), by GLAD.

    In GLAD (Whitehill et al. 2009) reader r of ability alpha_r votes for the class of region i,
    whose ease is beta_i > 0, with probability expit(alpha_r beta_i). The normal priors around 1 on
    alpha_r and ln beta_i are the paper's. A grade g counts as a vote of weight g for class 1 and of
    1 - g for class 0. The fit is expectation maximisation (EM) with gradient steps.

    Parameters
    ----------
    grades : ndarray, shape (n, n_readers)
        Readers' probabilities in [0, 1], NaN where missing.
    truth : ndarray, shape (n,), optional
        Histology, 1 (malignant), 0 or NaN; a region with histology keeps this class.
    """
    known = np.isfinite(grades)
    vote = np.where(known, grades, 0.0)
    held = np.full(len(grades), np.nan) if truth is None else np.asarray(truth, dtype=float)
    alpha, ease = np.ones(grades.shape[1]), np.ones(len(grades))
    p = np.where(np.isfinite(held), held, np.nanmean(grades, axis=1))
    for _ in range(_ROUNDS):
        x = np.exp(ease)[:, None] * alpha
        right, wrong = -np.logaddexp(0.0, -x), -np.logaddexp(0.0, x)
        one = np.where(known, vote * right + (1 - vote) * wrong, 0.0).sum(axis=1)
        zero = np.where(known, vote * wrong + (1 - vote) * right, 0.0).sum(axis=1)
        prior = float(np.clip(p.mean(), 0.01, 0.99))
        new = expit(one - zero + np.log(prior) - np.log1p(-prior))
        new = np.where(np.isfinite(held), held, new)
        agree = np.where(known, p[:, None] * vote + (1 - p[:, None]) * (1 - vote), 0.0)
        rest = np.where(known, agree - expit(x), 0.0)
        # One step each, divided by a bound of the curvature, never overshoots.
        bend = np.where(known, np.exp(2 * ease)[:, None] / 4, 0.0).sum(axis=0)
        alpha = alpha + ((rest * np.exp(ease)[:, None]).sum(axis=0) - (alpha - 1)) / (1 + bend)
        pull = (rest * alpha).sum(axis=1) * np.exp(ease) - (ease - 1)
        bend = np.where(known, (np.exp(ease)[:, None] * alpha) ** 2 / 4, 0.0).sum(axis=1)
        ease = ease + pull / (1 + bend + np.abs(pull))
        moved = float(np.max(np.abs(new - p)))
        p = new
        if moved < 1e-6:
            break
    return p
