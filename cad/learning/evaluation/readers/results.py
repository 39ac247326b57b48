"""Measure every reader against histology and against the other readers, and compare readers with
the classifier.
"""

from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.comparison import roc_points
from cad.learning.evaluation.measures.intervals import Interval, clustered_auc
from cad.learning.evaluation.readers.agreement import agreement
from cad.learning.evaluation.readers.mrmc import against_readers
from cad.learning.labels.pooled import mean_of_known


class AgainstOthers(TypedDict):
    """Hold how well one reader's scores predict the mean of the other readers on the same regions.

    Parameters
    ----------
    n : int
        Number of regions that were scored by this reader and by another reader.
    ties : int
        Number of these regions in which the other readers' mean score is exactly .5.
    auc : Interval
        AUC of this reader's scores, with an interval that takes the regions of a patient as
        dependent. A region is positive if the other readers' mean is above .5.
    """

    n: int
    ties: int
    auc: Interval


@dataclass(frozen=True)
class ReaderResult:
    """Hold how well one reader agrees with histology, and with the mean of the other readers.

    Parameters
    ----------
    n : int
        Number of regions with the reader's score and histology.
    auc : Interval
        The reader's AUC, with an interval that takes the regions of a patient as dependent.
    cad_auc : Interval
        The classifier's AUC on the same regions.
    roc : dict of str to ndarray
        The reader's ROC curve: ``fpr``, ``tpr`` and ``threshold`` of each of its points.
    consensus_of_others : AgainstOthers
        The reader against the mean of the other readers.
    """

    n: int
    auc: Interval
    cad_auc: Interval
    roc: dict[str, np.ndarray]
    consensus_of_others: AgainstOthers


def score_table(frame: pd.DataFrame, reader_scores: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return readers' probabilities as a table, with a row per region of ``frame`` and a column per
    reader.

    Parameters
    ----------
    frame : DataFrame
        One row per region, with ``participant_id, roi_id``.
    reader_scores : DataFrame or None
        One row per score: ``participant_id, roi_id, reader_id, probability``.

    Returns
    -------
    DataFrame or None
        Probabilities; NaN where a reader did not score a region. None if there is no score at all.
    """
    if reader_scores is None or len(reader_scores) == 0:
        return None
    key = ["participant_id", "roi_id"]
    wide = reader_scores.pivot(index=key, columns="reader_id", values="probability")
    wide.columns = [str(reader) for reader in wide.columns]
    return wide.reindex(pd.MultiIndex.from_frame(frame[key]))


def reader_results(
    truth: np.ndarray,
    score: np.ndarray,
    patients: np.ndarray,
    wide: pd.DataFrame | None,
    n_folds: int | None = None,
) -> dict[str, Any]:
    """Measure readers against histology, against each other and against the classifier.

    Parameters
    ----------
    truth, score, patients : ndarray, shape (n,)
        Histology, the classifier's score, and the patient of every region; NaN where unknown.
    wide : DataFrame, shape (n, readers), or None
        Every reader's probability of each region, NaN where not scored; see :func:`score_table`.
    n_folds : int, optional
        If the classifier's scores are out of fold, the number of parts that were left out in turn.

    Returns
    -------
    dict
        ``readers`` has a :class:`ReaderResult` for each reader id. ``agreement`` is how well the
        readers agree with each other, and None for fewer than two readers. ``cad_vs_readers``
        compares the classifier's AUC with the readers' mean AUC
        (:class:`~cad.learning.evaluation.readers.mrmc.AgainstReaders`). If it is None,
        ``cad_vs_readers_note`` is the reason, else empty.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> truth = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    >>> score = np.array([0.2, 0.6, 0.4, 0.9, 0.3, 0.1])
    >>> wide = pd.DataFrame({"r1": [0.25, 0.75, 0.0, 1.0, 0.5, 0.25]})
    >>> results = reader_results(truth, score, np.arange(6), wide)
    >>> results["readers"]["r1"].n, results["readers"]["r1"].auc.value
    (6, 1.0)
    """
    if wide is None:
        return {
            "readers": {},
            "agreement": None,
            "cad_vs_readers": None,
            "cad_vs_readers_note": "no readers",
        }
    scores = wide.to_numpy(dtype=float)
    reader_ids = list(wide.columns)
    # A comparison that is not possible, such as with one reader, is no error: its reason is told.
    reason = ""
    against_classifier = None
    try:
        against_classifier = against_readers(truth, score, scores.T, patients)
    except CadError as error:
        reason = str(error)
    readers = {}
    for column, reader_id in enumerate(reader_ids):
        readers[reader_id] = _one_reader(column, scores, truth, score, patients, n_folds)
    return {
        "readers": readers,
        "agreement": agreement(scores.T, reader_ids) if len(reader_ids) > 1 else None,
        "cad_vs_readers": against_classifier,
        "cad_vs_readers_note": reason,
    }


def _one_reader(
    column: int,
    table: np.ndarray,
    truth: np.ndarray,
    score: np.ndarray,
    patients: np.ndarray,
    n_folds: int | None,
) -> ReaderResult:
    """Measure the reader of one column of ``table``, shape (n, readers), on his regions."""
    reader_scores = table[:, column]
    # Against histology: the reader alone, and beside the classifier on the same regions.
    is_measured = np.isfinite(reader_scores) & np.isfinite(truth)
    is_compared = is_measured & np.isfinite(score)
    mean_of_others = mean_of_known(np.delete(table, column, axis=1))
    # Against the other readers: only regions that this reader scored count, and of these only those
    # with another reader.
    mean_of_others = np.where(np.isfinite(reader_scores), mean_of_others, np.nan)
    consensus, ties = metrics.consensus_truth(mean_of_others)
    has_consensus = np.isfinite(consensus)
    auc_against_others = clustered_auc(
        consensus[has_consensus], reader_scores[has_consensus], patients[has_consensus]
    )
    return ReaderResult(
        n=int(is_measured.sum()),
        auc=clustered_auc(truth[is_measured], reader_scores[is_measured], patients[is_measured]),
        cad_auc=clustered_auc(
            truth[is_compared],
            score[is_compared],
            patients[is_compared],
            n_folds,
        ),
        roc=roc_points(truth[is_measured], reader_scores[is_measured]),
        consensus_of_others={
            "n": int(has_consensus.sum()),
            "ties": ties,
            "auc": auc_against_others,
        },
    )
