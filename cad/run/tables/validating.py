"""Validate a learner on a table, leaving whole patients out, beside its rivals."""

from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from cad.base.settings import LabelSettings, PipelineSettings
from cad.learning.labels.agreement import agreement_notes, reader_agreement
from cad.learning.labels.consensus import grade_matrix, reader_probabilities
from cad.learning.learners.rivals import rival_learners, rival_notes
from cad.run.api import Validation, validate
from cad.run.model.estimator import front_steps, make_estimator
from cad.run.stages.aggregate import FoldLabels, fold_labels_of
from cad.run.tables.regions import Regions


def validate_table(
    regions: Regions, settings: PipelineSettings, isup_min: int | None = None, jobs: int = 1
) -> Validation:
    """Cross-validate a pipeline's learner and all its rivals on a table.

    Parameters
    ----------
    regions : Regions
        The table (:func:`cad.run.tables.regions.read_regions`).
    settings : PipelineSettings
        Of :func:`cad.run.tables.settings.table_settings`.
    isup_min : int or None
        Lowest malignant grade, where histology is a grade.
    jobs : int
        Number of folds that are fitted at the same time.

    Returns
    -------
    Validation
        Out-of-fold probabilities, and measures of the learner and its rivals. ``notes`` says how
        the table was read, which rivals were left out or see a part of the rows, and how many
        regions are copies.

    Raises
    ------
    CadError
        For labels or settings that cannot be used.
    """
    labels_by = regions.label_settings(settings.labels, isup_min)
    settings = settings.model_copy(update={"labels": labels_by})
    labels = regions.labels(labels_by)
    # Two tables name a column alike and mean two things; a model names them by their place.
    X = regions.X
    rivals = {
        name: Pipeline([*front_steps(settings).steps, ("learner", rival)])
        for name, rival in rival_learners(len(X)).items()
        if name != settings.learner.name
    }
    chosen = settings.validate_
    folds = chosen.folds if chosen.scheme == "patient-folds" else None
    truth = labels["truth"].to_numpy(float)
    readers = _readers(regions, labels, settings)
    made = validate(
        make_estimator(settings),
        X,
        labels["y"].to_numpy(float),
        regions.patients,
        eta=labels["eta"].to_numpy(float),
        truth=truth if np.isfinite(truth).any() else None,
        readers=readers,
        rivals=rivals,
        folds=folds,
        seed=chosen.seed,
        jobs=jobs,
        relabel=_relabel(regions, labels, readers, labels_by),
    )
    others = [name for name in rival_learners() if name != settings.learner.name]
    notes = [
        *regions.notes,
        *made.notes,
        *_of_readers(regions, readers),
        *rival_notes(others, len(X)),
        *copies(regions),
    ]
    return replace(made, notes=notes)


def _readers(
    regions: Regions, labels: pd.DataFrame, settings: PipelineSettings
) -> pd.DataFrame | None:
    """Return every reader's probability, a column a reader; None where nobody read."""
    if regions.stated is not None:
        return pd.DataFrame({"consensus": labels["p"]})
    if regions.scores.empty:
        return None
    grades = reader_probabilities(regions.scores, regions.rois, settings.labels)
    matrix, names = grade_matrix(grades, labels)
    return pd.DataFrame(matrix, columns=names)


def _relabel(
    regions: Regions,
    labels: pd.DataFrame,
    readers: pd.DataFrame | None,
    settings: LabelSettings,
) -> FoldLabels | None:
    """Return what makes the labels in each fold; None where they depend on no other region."""
    if readers is None or regions.stated is not None:
        return None
    return fold_labels_of(
        settings,
        readers.to_numpy(float),
        labels,
        labels["y"].to_numpy(float),
        labels["eta"].to_numpy(float),
    )


def _of_readers(regions: Regions, readers: pd.DataFrame | None) -> list[str]:
    """Name the readers who add nothing to the others, and copies."""
    if readers is None or regions.stated is not None:
        return []
    names = [str(name) for name in readers.columns]
    grades = readers.to_numpy(float)
    return agreement_notes(reader_agreement(grades, names, regions.patients))


def copies(regions: Regions) -> list[str]:
    """Say how many regions have all the features of another patient's region."""
    rows = pd.util.hash_pandas_object(regions.X, index=False).to_numpy()
    owners = pd.DataFrame({"row": rows, "patient": regions.patients.to_numpy()})
    copied = int((owners.groupby("row")["patient"].transform("nunique") > 1).sum())
    if not copied:
        return []
    return [
        f"{copied} regions have the same features as a region of another patient: one man under "
        "two names is trained on and tested at once"
    ]
