"""The methods that [N14] compares, in its own set-up: the P-SVM in both scales, SVM, F-SVM."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest, wilcoxon
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge

from cad.evaluation.folds.crossval import positive_probability
from cad.evaluation.measures.metrics import alignment_error, auc, kl, kl_one_sided
from cad.learners import FuzzySVC, KernelLogistic, PlattSVC, ProbabilisticSVC
from cad.learners.base import LearnerWarning

SCALES = {"P-SVM, learned scale": "learned", "P-SVM, fixed scale": "fixed"}
METHODS = (*SCALES, "SVM", "F-SVM")
# Not in the papers: what learns from the same probabilities without tubes.
BASELINES = ("logistic on soft labels", "kernel ridge on p")
COST = 100.0
GAMMA = 0.5  # 1 / (2 sigma^2) with the paper's sigma = 1


def fit(method: str, X: np.ndarray, p: np.ndarray, eta: float) -> Any:
    """Fit one method to probabilities of the positive class.

    Parameters
    ----------
    method : str
        One of ``SCALES``, a P-SVM with the labels of [N14] (18), its scale learned or that of
        (14); ``SVM`` (17) or ``F-SVM`` (memberships), both + Platt on the training decision
        values; or one of ``BASELINES``, which learn the probabilities.
    X : ndarray, shape (n, d)
        Training points.
    p : ndarray, shape (n,)
        Stated probabilities.
    eta : float
        Half-width of the tubes.
    """
    if method in SCALES:
        model = ProbabilisticSVC(
            C=COST, kernel="rbf", gamma=GAMMA, eta=eta, boundary="paper", scale=SCALES[method]
        )
        return model.fit(X, p)
    if method == "SVM":
        return PlattSVC(C=COST, kernel="rbf", gamma=GAMMA).fit(X, (p > 0.5).astype(float))
    if method == "F-SVM":
        return FuzzySVC(C=COST, kernel="rbf", gamma=GAMMA).fit(X, p)
    if method == "logistic on soft labels":
        return KernelLogistic(C=COST, kernel="rbf", gamma=GAMMA).fit(X, p)
    return _Ridge(alpha=1 / (2 * COST), kernel="rbf", gamma=GAMMA).fit(X, p - 0.5)


class _Ridge(KernelRidge):  # type: ignore[misc]
    """Learn p - 1/2 by kernel ridge regression, read as a probability."""

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return the regression's value, 0 at p = 1/2."""
        return np.asarray(self.predict(X), dtype=float)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return 1 - p and p, shape (n, 2), cut to [0, 1]."""
        p = np.clip(self.decision_function(X) + 0.5, 0.0, 1.0)
        return np.column_stack([1 - p, p])


def measures(model: Any, X: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """Measure a fitted model against known probabilities ([N14] App. C, docs/methods.md 6).

    Parameters
    ----------
    model : estimator
        Fitted.
    X : ndarray, shape (n, d)
        Test points.
    p : ndarray, shape (n,)
        Their true probabilities; the true class is ``p > .5``.

    Returns
    -------
    dict of str to float
        By the paper's names: AUC, Acc, KL, KL one-sided, Err.
    """
    q = positive_probability(model, X)
    truth = (p > 0.5).astype(float)
    return {
        "AUC": auc(truth, model.decision_function(X)),
        "Acc": float(((q > 0.5) == (p > 0.5)).mean()),
        "KL": kl(p, q),
        "KL one-sided": kl_one_sided(p, q),
        "Err": alignment_error(p, q),
    }


def try_method(
    method: str,
    X: np.ndarray,
    p: np.ndarray,
    eta: float,
    test: tuple[np.ndarray, np.ndarray],
) -> dict[str, float]:
    """Fit a method and measure it on test points; a refusal is counted instead of raised.

    A scale that collapses or is unbounded is refused, and so is, here, a fit on the way there that
    did not converge. What draws with certain labels of one class warn of is not repeated.

    Parameters
    ----------
    method : str
        As for :func:`fit`.
    X : ndarray, shape (n, d)
        Training points.
    p : ndarray, shape (n,)
        Their labels as probabilities.
    eta : float
        Half-width of the P-SVM's tubes.
    test : (ndarray, ndarray)
        Test points and their true probabilities.

    Returns
    -------
    dict of str to float
        ``refused`` (0 or 1) and, where fitted, :func:`measures`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LearnerWarning)
            warnings.simplefilter("error", ConvergenceWarning)
            return {"refused": 0.0, **measures(fit(method, X, p, eta), *test)}
    except (ValueError, ConvergenceWarning):
        return {"refused": 1.0}


def medians(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the median of every measure over the seeds, and the share of refused fits."""
    grouped = rows.drop(columns="seed").groupby(by, sort=False)
    return grouped.median().assign(refused=grouped["refused"].mean()).reset_index()


def paired_p(
    rows: pd.DataFrame, measure: str, method: str, other: str, better: str
) -> tuple[float, float]:
    """Return one-sided p-values over seeds that a P-SVM is better than another method.

    Wilcoxon's signed-rank test, and the sign test, which counts seeds and not by how much. A seed
    where the P-SVM refused counts against it, by more than any other. ``better`` is ``higher`` or
    ``lower``.
    """
    wide = rows.pivot(index="seed", columns="method", values=measure)
    gap = (wide[method] - wide[other]) * (1 if better == "higher" else -1)
    gap = gap.fillna(-1 - gap.abs().max()).fillna(-1).to_numpy()
    wins, decided = int((gap > 0).sum()), int((gap != 0).sum())
    if decided == 0:
        return 1.0, 1.0
    return (
        float(wilcoxon(gap, alternative="greater").pvalue),
        float(binomtest(wins, decided, alternative="greater").pvalue),
    )
