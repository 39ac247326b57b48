"""Fit a pipeline's learner to all labelled rows of a table, and write it as a bundle."""

from pathlib import Path

import numpy as np

from cad.base.settings import PipelineSettings
from cad.learning.evaluation.folds.crossval import fit_keywords
from cad.learning.evaluation.folds.unlabelled import labels_told
from cad.run.api import save_model
from cad.run.model.bundle import Bundle
from cad.run.model.estimator import make_estimator
from cad.run.tables.regions import Regions


def train_table(
    regions: Regions, settings: PipelineSettings, out: Path, isup_min: int | None = None
) -> Bundle:
    """Fit a pipeline's learner to all labelled rows of a table, and write it as a bundle.

    Parameters
    ----------
    regions : Regions
        The table (:func:`cad.run.tables.regions.read_regions`).
    settings : PipelineSettings
        Of :func:`cad.run.tables.settings.table_settings`.
    out : Path
        Folder of the bundle.
    isup_min : int or None
        Lowest malignant grade, where histology is a grade.

    Returns
    -------
    Bundle
        The trained model that was written.

    Raises
    ------
    CadError
        For labels or settings that cannot be used, and a learner that no bundle can hold.
    """
    labels_by = regions.label_settings(settings.labels, isup_min)
    labels = regions.labels(labels_by)
    estimator = make_estimator(settings.model_copy(update={"labels": labels_by}))
    told = labels_told(estimator, labels["y"].to_numpy(float))
    seen = ~np.isnan(told)
    X, y = regions.X[seen], told[seen]
    patients = regions.patients[seen].to_numpy(str)
    eta = np.nan_to_num(labels["eta"].to_numpy(float))[seen]
    # By place: a bundle is asked for rows, and names are its own.
    estimator.fit(X.to_numpy(), y, **fit_keywords(estimator, eta, patients))
    fitted = getattr(estimator, "best_estimator_", estimator)
    described = f"Learned from {regions.file.name}"
    return save_model(out, fitted, X, y, patients, eta=eta, description=described)
