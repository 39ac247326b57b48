"""Measure how well a classifier could agree with readers at best.

Readers' scores of a region scatter by chance, and no learner can predict this scatter. Three
numbers describe the limit. The first is how well the readers' mean predicts histology. The second
is how well one reader predicts the other readers. The third is the part of the classifier's
distance from the readers' mean that the readers' scatter explains.
"""

from dataclasses import dataclass

import numpy as np

from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import Interval, bootstrap_intervals, clustered_auc
from cad.learning.labels.pooled import mean_of_known


@dataclass(frozen=True)
class Ceiling:
    """Hold how well any classifier could agree with these readers, and how well this one does.

    Parameters
    ----------
    auc : Interval
        AUC of the mean of all readers against histology, with an interval that takes the regions of
        a patient as dependent. (The table that compares learners has the mean of only those readers
        from whose scores the learner learns.)
    brier : float
        Brier score of the mean of all readers; NaN without histology.
    classifier_auc : Interval
        AUC of the classifier on the same regions.
    against_others : dict of str to dict
        For each reader id a dict with three keys. ``brier`` is the mean squared difference between
        the reader's score and the mean score of the other readers. ``classifier_brier`` is the mean
        squared difference between the classifier's probability and that mean score. Both are over
        the same ``n`` regions, which the reader, another reader and the classifier have scored. A
        reader without such a region is left out.
    distance : float
        Mean squared difference between the classifier's probability and the readers' mean, over the
        regions with two or more readers.
    scatter : float
        Mean over those regions of s^2 / R, the variance of a mean of R readers whose scores have
        standard deviation s. A classifier that predicted the mean of infinitely many readers would
        be expected to have this ``distance``.
    share : Interval
        scatter / distance: the part of the distance that the readers' scatter explains.
    """

    auc: Interval
    brier: float
    classifier_auc: Interval
    against_others: dict[str, dict[str, float]]
    distance: float
    scatter: float
    share: Interval

    def sentence(self) -> str:
        """Return one sentence that compares the classifier with the readers; empty if no number is
        known.

        It has up to three numbers: the AUC against histology, the squared distance to the readers'
        mean, and the share of this distance that is the readers' own scatter.
        """
        clauses = []
        if np.isfinite(self.auc.value):
            clauses.append(
                f"the mean of all readers reaches AUC {self.auc.value:.3f} against histology, the "
                f"classifier {self.classifier_auc.value:.3f}"
            )
        if self.against_others:
            against_others = self.against_others.values()
            reader = np.mean([measured["brier"] for measured in against_others])
            classifier = np.mean([measured["classifier_brier"] for measured in against_others])
            clauses.append(
                f"one reader misses the others' mean by {reader:.3f} (squared), the classifier by "
                f"{classifier:.3f}"
            )
        if np.isfinite(self.share.value):
            clauses.append(
                f"{self.share.value:.0%} of the classifier's squared distance to the readers' mean "
                "is the readers' own scatter"
            )
        if not clauses:
            return ""
        text = "; ".join(clauses)
        return text[:1].upper() + text[1:] + "."


def readers_ceiling(
    truth: np.ndarray,
    scores: np.ndarray,
    classifier: np.ndarray,
    patients: np.ndarray,
    names: list[str],
    *,
    ranking: np.ndarray | None = None,
    bootstraps: int = 1000,
    seed: int = 0,
) -> Ceiling:
    """Measure how near to the readers' mean a classifier can come, and how near this one comes.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1, 0, or NaN without histology.
    scores : ndarray, shape (readers, n)
        Readers' scores as probabilities; NaN where the reader gave none.
    classifier : ndarray, shape (n,)
        Out-of-fold probability; NaN where there is none.
    patients : ndarray, shape (n,)
        The patient of every region.
    names : list of str
        Reader ids.
    ranking : ndarray, shape (n,), optional
        If the classifier's probabilities come from several folds, values by which regions of
        different folds can be ranked, for its AUC.
    bootstraps, seed : int
        Number of bootstrap resamples of patients, and their seed. The resamples give the interval
        of ``share``, the part of the classifier's distance from the readers' mean that the readers'
        scatter explains.

    Returns
    -------
    Ceiling
        AUC and Brier score of the readers' mean and AUC of the classifier, against histology;
        distances of readers and classifier from the mean of other readers; and ``share``. A number
        is NaN where no region has what it needs.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0.0, 1.0], 30)
    >>> scores = np.clip(0.3 + 0.4 * truth + rng.normal(0, 0.3, (3, 60)), 0, 1)
    >>> classifier = np.clip(0.3 + 0.4 * truth + rng.normal(0, 0.2, 60), 0.01, 0.99)
    >>> ceiling = readers_ceiling(
    ...     truth, scores, classifier, np.arange(60) // 2, ["r1", "r2", "r3"], bootstraps=20
    ... )
    >>> 0 < ceiling.auc.value <= 1, sorted(ceiling.against_others)
    (True, ['r1', 'r2', 'r3'])
    """
    readers_mean = mean_of_known(scores.T)
    group = np.asarray(patients)
    has_all = np.isfinite(truth) & np.isfinite(readers_mean) & np.isfinite(classifier)
    ranking_values = classifier if ranking is None else ranking
    readers_of_region = np.isfinite(scores).sum(axis=0)
    # How much readers scatter shows only in a region that two of them scored.
    usable = np.isfinite(classifier) & (readers_of_region >= 2)
    # The variance of the mean of R scores is the variance of a score, divided by R.
    squares = np.nansum((scores - readers_mean) ** 2, axis=0)[usable]
    score_variance = squares / (readers_of_region[usable] - 1)
    scatter_of_region = score_variance / readers_of_region[usable]
    distance_of_region = (classifier[usable] - readers_mean[usable]) ** 2

    def share(weight: np.ndarray) -> np.ndarray:
        """Return the scatter's share of the distance, for each draw of a resampling."""
        total = (weight * distance_of_region).sum(axis=1, keepdims=True)
        # A total of 0 gives 0 / 0, and the share is not known.
        with np.errstate(invalid="ignore"):
            explained = (weight * scatter_of_region).sum(axis=1, keepdims=True) / total
        return np.where(total > 0, explained, np.nan)

    return Ceiling(
        auc=clustered_auc(truth[has_all], readers_mean[has_all], group[has_all]),
        brier=metrics.brier(truth[has_all], readers_mean[has_all]),
        classifier_auc=clustered_auc(truth[has_all], ranking_values[has_all], group[has_all]),
        against_others=_brier_against_others(scores, classifier, names),
        distance=float(distance_of_region.mean()) if usable.any() else float("nan"),
        scatter=float(scatter_of_region.mean()) if usable.any() else float("nan"),
        share=bootstrap_intervals(share, group[usable], bootstraps, seed)[0],
    )


def _brier_against_others(
    scores: np.ndarray, classifier: np.ndarray, names: list[str]
) -> dict[str, dict[str, float]]:
    """Return how far each reader and the classifier are from the mean of the other readers.

    The classifier is measured on the regions that the reader and another reader scored. A reader
    without such a region is left out.
    """
    by_reader: dict[str, dict[str, float]] = {}
    for reader, name in enumerate(names):
        mean_of_others = mean_of_known(np.delete(scores, reader, axis=0).T)
        has_all = (
            np.isfinite(mean_of_others) & np.isfinite(scores[reader]) & np.isfinite(classifier)
        )
        if has_all.any():
            by_reader[name] = {
                "n": int(has_all.sum()),
                "brier": metrics.brier(mean_of_others[has_all], scores[reader, has_all]),
                "classifier_brier": metrics.brier(mean_of_others[has_all], classifier[has_all]),
            }
    return by_reader
