"""Every reader against histology and against the others, with the classifier beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.evaluation.measures import metrics
from cad.evaluation.measures.comparison import ROC
from cad.evaluation.measures.intervals import Interval, clustered_auc
from cad.evaluation.readers.agreement import Agreement, agreement
from cad.evaluation.readers.mrmc import AgainstReaders, against_readers


@dataclass(frozen=True)
class AgainstOthers:
    """Compare one reader with the mean of the others, thresholded at .5.

    Parameters
    ----------
    n, ties : int
        Regions that the reader and another have scored; means that lie on .5.
    auc : Interval
        Patient-clustered.
    """

    n: int
    ties: int
    auc: Interval


@dataclass(frozen=True)
class ReaderResult:
    """Compare one reader with histology.

    Parameters
    ----------
    n : int
        Regions with the reader's score and histology.
    auc : Interval
        The reader's, patient-clustered.
    cad_auc : Interval
        The classifier's on the same regions.
    roc : ROC
        The reader's curve.
    consensus_of_others : AgainstOthers
        The reader is left out of the consensus that they are compared with.
    """

    n: int
    auc: Interval
    cad_auc: Interval
    roc: ROC
    consensus_of_others: AgainstOthers


@dataclass(frozen=True)
class ReaderResults:
    """Hold the results of all readers of a run.

    Parameters
    ----------
    readers : dict of str to ReaderResult
        By reader id.
    agreement : Agreement or None
        None for fewer than two readers.
    cad_vs_readers : AgainstReaders or None
        Obuchowski-Rockette, readers and patients random.
    cad_vs_readers_note : str
        Why there is none.
    """

    readers: dict[str, ReaderResult] = field(default_factory=dict)
    agreement: Agreement | None = None
    cad_vs_readers: AgainstReaders | None = None
    cad_vs_readers_note: str = "no readers"


def score_table(frame: pd.DataFrame, reader_scores: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return one column per reader and one row per region of ``frame``; None without any score.

    Parameters
    ----------
    frame, reader_scores : DataFrame
        As in :func:`cad.evaluation.summary.summarise`.
    """
    if reader_scores is None or len(reader_scores) == 0:
        return None
    key = ["participant_id", "roi_id"]
    wide = reader_scores.pivot(index=key, columns="reader_id", values="probability")
    wide.columns = [str(reader) for reader in wide.columns]
    return wide.reindex(pd.MultiIndex.from_frame(frame[key]))


def reader_results(
    truth: np.ndarray, score: np.ndarray, patients: np.ndarray, wide: pd.DataFrame | None
) -> ReaderResults:
    """Measure every reader.

    Parameters
    ----------
    truth, score, patients : ndarray, shape (n,)
        Histology, the classifier's score, and the patient of every region; NaN where unknown.
    wide : DataFrame, shape (n, readers), or None
        See :func:`score_table`.
    """
    if wide is None:
        return ReaderResults()
    table, names = wide.to_numpy(dtype=float), list(wide.columns)
    note, beside = "", None
    try:
        beside = against_readers(truth, score, table.T, patients)
    except CadError as error:
        note = str(error)
    return ReaderResults(
        {name: _one_reader(j, table, truth, score, patients) for j, name in enumerate(names)},
        agreement(table.T, names) if len(names) > 1 else None,
        beside,
        note,
    )


def _one_reader(
    j: int, table: np.ndarray, truth: np.ndarray, score: np.ndarray, patients: np.ndarray
) -> ReaderResult:
    own = table[:, j]
    use = np.isfinite(own) & np.isfinite(truth)
    both = use & np.isfinite(score)
    mean = mean_of_known(np.delete(table, j, axis=1))
    consensus, ties = metrics.consensus_truth(np.where(np.isfinite(own), mean, np.nan))
    seen = np.isfinite(own) & np.isfinite(consensus)
    others = AgainstOthers(
        int(seen.sum()), ties, clustered_auc(consensus[seen], own[seen], patients[seen])
    )
    return ReaderResult(
        n=int(use.sum()),
        auc=clustered_auc(truth[use], own[use], patients[use]),
        cad_auc=clustered_auc(truth[both], score[both], patients[both]),
        roc=ROC(*metrics.roc_curve(truth[use], own[use])),
        consensus_of_others=others,
    )


def mean_of_known(table: np.ndarray) -> np.ndarray:
    """Return the mean of each row's known values, shape (n,); NaN for a row without any."""
    counted = np.isfinite(table).sum(axis=1)
    total = np.nansum(table, axis=1)
    mean: np.ndarray = np.divide(total, counted, out=np.full(len(total), np.nan), where=counted > 0)
    return mean
