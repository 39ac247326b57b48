"""Measure the effect of each choice of labels and learner: scale, eta, boundary, readers ([N14]
VI).

``python -m benchmarks.ablation`` uses a simulated table; with ``--cohort COHORT --run RUN`` it uses
the features of a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import ArrayLike

from benchmarks.evidence import Rois, imputed_psvm, simulated
from cad.base.errors import CadError
from cad.base.settings import LabelSettings
from cad.base.terms.text import to_markdown
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import clustered_auc
from cad.learning.labels.consensus import malignant, reader_labels


@dataclass(frozen=True)
class Case:
    """Hold one cell of the ablation.

    Parameters
    ----------
    choices : dict of str to str
        Chosen value by column, such as ``{"scale": "learned", "eta": "adaptive"}``.
    estimator : estimator
        The learner, unfitted.
    y, eta : ndarray, shape (n,)
        Labels and their uncertainty under these choices.
    """

    choices: dict[str, str]
    estimator: Any
    y: np.ndarray
    eta: np.ndarray


def ablation_table(
    cases: Iterable[Case],
    X: Any,
    truth: ArrayLike,
    consensus: ArrayLike,
    groups: ArrayLike,
    *,
    n_jobs: int = 1,
) -> pd.DataFrame:
    """Leave one patient out for every case; average over cases of equal choices.

    Parameters
    ----------
    cases : iterable of Case
        Several cases may have the same choices (all pairs out of four readers, say).
    X : array, shape (n, d)
        Features, the same for all cases.
    truth : array, shape (n,)
        Histology: 1, 0 or NaN.
    consensus : array, shape (n,)
        Probability that KL and cross-entropy compare with: the mean of all readers, the same for
        all cases. A case that is trained on fewer readers is thus not compared with fewer readers.
    groups : array, shape (n,)
        Patient of each region.
    n_jobs : int
        Number of cases that run at the same time.

    Returns
    -------
    DataFrame
        The choices; ``cases``, ``failed`` (cases in which every fold failed) and ``failed_folds``
        (number of failed folds in all cases); means over the cases of ``auc_histology`` (``lower,
        upper``: patient-clustered, only in rows of a single case), ``auc_readers``, ``kl`` (a sum
        over ROIs), ``cross_entropy``, ``brier_histology``; ``predicted``, the mean number of ROIs
        with a probability, from which the measures of a row are made.
    """
    work = list(cases)
    y, p, group = np.asarray(truth, float), np.asarray(consensus, float), np.asarray(groups)
    jobs = (delayed(_measure)(case, X, y, p, group) for case in work)
    table = pd.DataFrame(Parallel(n_jobs=n_jobs)(jobs))
    choices = list(work[0].choices)
    grouped = table.groupby(choices, sort=False)
    means = grouped.mean(numeric_only=True)
    means.insert(0, "cases", grouped.size())
    for column in ("failed", "failed_folds"):
        means[column] = grouped[column].sum().astype(int)
    means.loc[means["cases"] > 1, ["lower", "upper"]] = np.nan
    return means.reset_index()


def _measure(
    case: Case, X: Any, truth: np.ndarray, consensus: np.ndarray, groups: np.ndarray
) -> dict[str, Any]:
    row: dict[str, Any] = {**case.choices, "failed": 0}
    names = ("auc_histology", "lower", "upper", "auc_readers", "kl", "cross_entropy")
    try:
        result = out_of_fold(case.estimator, X, case.y, eta=case.eta, groups=groups)
    except CadError:
        empty = dict.fromkeys((*names, "brier_histology"), float("nan"))
        n_folds = len(np.unique(groups))
        return {**row, "failed": 1, "failed_folds": n_folds, **empty, "predicted": 0.0}
    q = result.probability
    known, seen = np.isfinite(q) & np.isfinite(truth), np.isfinite(q) & np.isfinite(consensus)
    # An AUC ranks patients that different models scored.
    auc = clustered_auc(truth[known], result.centred[known], groups[known])
    readers, _ = metrics.consensus_truth(consensus[seen])
    values = (
        auc.value,
        auc.lower,
        auc.upper,
        metrics.auc(readers, result.centred[seen]),
        metrics.kl(consensus[seen], q[seen]),
        metrics.cross_entropy(consensus[seen], q[seen]),
    )
    return {
        **row,
        "failed_folds": sum(bool(fold.error) for fold in result.folds),
        **dict(zip(names, values, strict=True)),
        "brier_histology": metrics.brier(truth[known], q[known]),
        "predicted": float(np.isfinite(q).sum()),
    }


def ablation(cohort: Path | None = None, run: Path | None = None) -> pd.DataFrame:
    """Vary scale, eta, boundary and number of readers ([N14] VI).

    Without a cohort the simulated table is used. With a cohort its scores and the features of a run
    are used.
    """
    if cohort is None or run is None:
        return ablation_of(simulated(0))
    from cad.base.reading import read_json
    from cad.folders.cohort import read_cohort
    from cad.mri.columns import columns_stated

    tables = read_cohort(cohort)
    features = pd.read_parquet(run / "features.parquet")
    keys = ["participant_id", "roi_id"]
    rois = features[keys].merge(tables.rois, on=keys, how="left")
    columns = columns_stated(read_json(run / "run.json")["settings"])
    X = features[[name for name in features if name in columns]].to_numpy(dtype=float)
    return _ablation(X, rois, tables.scores.merge(rois[keys], on=keys), 2)


def ablation_of(data: Rois, n_jobs: int = 2, readers: int = 4) -> pd.DataFrame:
    """Run the ablation on a simulated table, with its first ``readers`` readers."""
    rois = data.scores.drop_duplicates("roi_id")[["participant_id", "roi_id"]]
    rois = rois.assign(histology=np.where(data.truth == 1, "malignant", "benign"))
    rois["isup"] = np.where(data.truth == 1, 2.0, np.nan)  # clinically significant
    names = sorted(data.scores["reader_id"].unique())[:readers]
    return _ablation(data.X, rois, data.scores[data.scores["reader_id"].isin(names)], n_jobs)


def _ablation(X: np.ndarray, rois: pd.DataFrame, scores: pd.DataFrame, n_jobs: int) -> pd.DataFrame:
    """Measure every subset of the readers; rows of equal size are averaged."""
    names = sorted(scores["reader_id"].unique())
    known = pd.DataFrame({"reader_id": names, "expert": False})
    cases = [
        _case(scores, rois, known, scale, eta, boundary, chosen)
        for scale in ("learned", "fixed")
        for eta in (0.125, "adaptive")
        for boundary in ("drop", "paper")
        for size in range(1, len(names) + 1)
        for chosen in combinations(names, size)
    ]
    consensus = reader_labels(scores, rois, known, LabelSettings())["p"].to_numpy()
    patients = rois["participant_id"].to_numpy()
    return ablation_table(cases, X, malignant(rois), consensus, patients, n_jobs=n_jobs)


def _case(
    scores: pd.DataFrame,
    rois: pd.DataFrame,
    known: pd.DataFrame,
    scale: str,
    eta: Any,
    boundary: Any,
    chosen: tuple[str, ...],
) -> Case:
    labels = reader_labels(scores, rois, known, LabelSettings(readers=chosen, eta=eta))
    return Case(
        {
            "scale": scale,
            "eta": "constant" if eta != "adaptive" else eta,
            "boundary": boundary,
            "readers": str(len(chosen)),
        },
        imputed_psvm(C=1.0, scale=scale, boundary=boundary),
        labels["y"].to_numpy(),
        labels["eta"].fillna(0.125).to_numpy(),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation")
    parser.add_argument("--cohort", type=Path, help="a cohort folder")
    parser.add_argument("--run", type=Path, help="a run folder of that cohort")
    given = parser.parse_args()
    print(to_markdown(ablation(given.cohort, given.run)), end="")


if __name__ == "__main__":
    main()
