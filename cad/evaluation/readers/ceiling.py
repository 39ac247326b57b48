"""What the readers allow: how well they know the truth, and each other.

Nobody learns from readers to be right where they scatter. Their ceiling is three things: how well
their mean predicts histology, how well one reader predicts the others, and how much of the
classifier's distance to their mean is their own scatter (docs/methods.md 8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cad.evaluation.measures import metrics
from cad.evaluation.measures.intervals import Interval, bootstrap, clustered_auc
from cad.evaluation.readers.results import mean_of_known


@dataclass(frozen=True)
class OneAgainstOthers:
    """Compare one reader, and the classifier, with the mean of the other readers.

    Parameters
    ----------
    n : int
        Regions that the reader, another reader and the classifier have all scored.
    brier : float
        Mean squared distance of the reader's score to the others' mean.
    classifier_brier : float
        The same of the classifier, on the same regions.
    """

    n: int
    brier: float
    classifier_brier: float


@dataclass(frozen=True)
class Ceiling:
    """Hold what readers allow.

    Parameters
    ----------
    auc : Interval
        Of the readers' mean against histology, patient-clustered.
    brier : float
        Of the same; NaN without histology.
    classifier_auc : Interval
        On the same regions.
    against_others : dict of str to OneAgainstOthers
        By reader id; readers who share no region with another are left out.
    distance : float
        Mean squared distance of the classifier to the readers' mean, on regions with two or more.
    scatter : float
        Mean over those regions of s^2 / R, the variance of a mean of R readers whose scores
        spread by s: expected of a classifier that knew what all readers of the world think on
        average.
    share : Interval
        scatter / distance: the readers' part of the classifier's distance.
    """

    auc: Interval
    brier: float
    classifier_auc: Interval
    against_others: dict[str, OneAgainstOthers]
    distance: float
    scatter: float
    share: Interval

    def sentence(self) -> str:
        """Return the ceiling in one line."""
        parts = []
        if np.isfinite(self.auc.value):
            parts.append(
                f"the readers' mean reaches AUC {self.auc.value:.3f} against histology, the "
                f"classifier {self.classifier_auc.value:.3f}"
            )
        if self.against_others:
            own = np.mean([part.brier for part in self.against_others.values()])
            other = np.mean([part.classifier_brier for part in self.against_others.values()])
            parts.append(
                f"one reader misses the others' mean by {own:.3f} (squared), the classifier by "
                f"{other:.3f}"
            )
        if np.isfinite(self.share.value):
            parts.append(
                f"{self.share.value:.0%} of the classifier's squared distance to the readers' mean "
                "is the readers' own scatter"
            )
        text = "; ".join(parts)
        return text[:1].upper() + text[1:] + "." if text else ""


def readers_ceiling(
    truth: np.ndarray,
    scores: np.ndarray,
    classifier: np.ndarray,
    patients: np.ndarray,
    names: list[str],
    *,
    bootstraps: int = 1000,
    seed: int = 0,
) -> Ceiling:
    """Measure what the readers allow.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1, 0, or NaN without histology.
    scores : ndarray, shape (readers, n)
        As probabilities; NaN where the reader gave none.
    classifier : ndarray, shape (n,)
        Out-of-fold probability; NaN where there is none.
    patients : ndarray, shape (n,)
        The patient of every region.
    names : list of str
        Reader ids.
    bootstraps, seed : int
        Patient resamples for the interval of the share, and their seed.
    """
    mean, group = mean_of_known(scores.T), np.asarray(patients)
    seen = np.isfinite(truth) & np.isfinite(mean) & np.isfinite(classifier)
    counted = np.isfinite(scores).sum(axis=0)
    use = np.isfinite(classifier) & (counted >= 2)
    squares = np.nansum((scores - mean) ** 2, axis=0)[use]
    scatter = squares / (counted[use] - 1) / counted[use]
    distance = (classifier[use] - mean[use]) ** 2

    def share(weight: np.ndarray) -> np.ndarray:
        total = (weight * distance).sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            own = (weight * scatter).sum(axis=1, keepdims=True) / total
        return np.where(total > 0, own, np.nan)

    everything = np.ones((1, int(use.sum())))
    lower, upper = bootstrap(share, group[use], bootstraps, seed)[0]
    value, method = float(share(everything)[0, 0]), f"{bootstraps} patient resamples"
    return Ceiling(
        auc=clustered_auc(truth[seen], mean[seen], group[seen]),
        brier=metrics.brier(truth[seen], mean[seen]),
        classifier_auc=clustered_auc(truth[seen], classifier[seen], group[seen]),
        against_others=_against_others(scores, classifier, names),
        distance=float(distance.mean()) if use.any() else float("nan"),
        scatter=float(scatter.mean()) if use.any() else float("nan"),
        share=Interval(value, float(lower), float(upper), method),
    )


def _against_others(
    scores: np.ndarray, classifier: np.ndarray, names: list[str]
) -> dict[str, OneAgainstOthers]:
    found = {}
    for j, name in enumerate(names):
        others = mean_of_known(np.delete(scores, j, axis=0).T)
        use = np.isfinite(others) & np.isfinite(scores[j]) & np.isfinite(classifier)
        if use.any():
            found[name] = OneAgainstOthers(
                int(use.sum()),
                metrics.brier(others[use], scores[j, use]),
                metrics.brier(others[use], classifier[use]),
            )
    return found
