"""Find regions that lack an image which a model needs, and say why they get no probability."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from cad.folders.run_folder.tables import KEYS, Failure
from cad.mri.columns import Column


def lacking(
    X: pd.DataFrame, images: Collection[str], columns: Mapping[str, Column]
) -> list[list[str]]:
    """Return for every row of X the images of which the row has no feature at all.

    Parameters
    ----------
    X : DataFrame, shape (n, n_features)
        Features by name.
    images : collection of str
        Names of the images to look for. An image of which X has no column is lacking in every row.
    columns : mapping of str to Column
        Meaning of the features, by name.
    """
    lacks: list[list[str]] = [[] for _ in range(len(X))]
    for image in images:
        features = []
        for name in X.columns:
            if name in columns and columns[name].image == image:
                features.append(name)
        has_no_feature = X[features].isna().all(axis=1).to_numpy()
        for row in np.flatnonzero(has_no_feature):
            lacks[row].append(image)
    return lacks


def reasons(
    gaps_of: Callable[[str], Mapping[str, Mapping[str, str]]],
    keys: pd.DataFrame,
    lacks: Mapping[int, Sequence[str]],
    failures: Sequence[Failure],
) -> dict[int, str]:
    """Return a reason for every row that lacks an image.

    Either the study has no such image, or this region could not be measured in the image.

    Parameters
    ----------
    gaps_of : callable
        Takes a study id and returns, by ROI id and image, why the region could not be measured in
        the image. For studies in a run folder
        :func:`cad.folders.run_folder.study_file.study_gaps` does so.
    keys : DataFrame
        ``participant_id, study_id, roi_id`` of all rows.
    lacks : mapping of int to sequence of str
        The images that a row lacks, by the row's number.
    failures : sequence of Failure
        Failures of the measurement. Those of whole studies are quoted in the reasons.

    Returns
    -------
    dict of int to str
        Sentences by the row's number, for the rows of ``lacks`` only.
    """
    sentences = {}
    rows_of_study = keys.groupby("study_id", sort=False).indices
    for study in keys["study_id"].iloc[list(lacks)].unique():
        gaps = gaps_of(study)
        rows = rows_of_study[study]
        n_lacking: Counter[str] = Counter()  # number of regions that lack an image, by image
        for row in rows:
            n_lacking.update(lacks.get(row, ()))
        # Images in which the study has features of other regions. If a region lacks such an image,
        # the cause lies in the region and not in the study.
        elsewhere = {image for image, count in n_lacking.items() if count < len(rows)}
        for row in rows:
            if row not in lacks:
                continue
            gaps_of_region = gaps.get(str(keys["roi_id"].iloc[row]), {})
            causes = []
            for image in lacks[row]:
                if image in gaps_of_region or image in elsewhere:
                    cause = gaps_of_region.get(image, "too few voxels with a value")
                    causes.append(f"{image}: {cause}")
            if causes:
                sentences[row] = f"this region has none ({'; '.join(causes)})"
            else:
                sentences[row] = f"this study has none{_cause_of_study(study, failures)}"
    return sentences


def _cause_of_study(study: str, failures: Sequence[Failure]) -> str:
    """Return why the measurement of a whole study failed, as text for the end of a sentence."""
    sentence_end = ""
    for failure in failures:
        if failure.study_id != study or failure.roi_id:  # of another study, or of one region only
            continue
        sentence_end += f"; {failure.reason}"
        if failure.hint:
            sentence_end += f" ({failure.hint})"
    return sentence_end


def failures_of(
    keys: pd.DataFrame, reasons: Mapping[int, str], stage: str, hint: str
) -> list[Failure]:
    """Return a row of ``failures.csv`` for every region that has a reason.

    Parameters
    ----------
    keys : DataFrame
        ``participant_id, study_id, roi_id`` of all rows.
    reasons : mapping of int to str
        Reason by the row's number.
    stage, hint : str
        Stage and hint that all these rows of ``failures.csv`` get.
    """
    failures = []
    records = keys[KEYS].iloc[list(reasons)].to_dict("records")
    for record, reason in zip(records, reasons.values(), strict=True):
        failures.append(Failure(**record, stage=stage, reason=reason, hint=hint))
    return failures
