"""Bring a table of features into the form in which a measured cohort enters the stages of a run.

The stages then treat a table like a cohort: they use the same estimators, folds, measures and
decisions, and write the same files.
"""

import hashlib
from dataclasses import replace

import numpy as np
import pandas as pd

from cad.base.files import parquet_bytes
from cad.base.settings import PipelineSettings
from cad.folders.cohort import Cohort
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.partitions import LABELS
from cad.folders.run_folder.tables import write_features, write_labels
from cad.run.execution.options import ExecutionOptions
from cad.run.model.fold_features import FoldFeatures
from cad.run.stages.aggregate import Aggregated, aggregate, join
from cad.run.stages.extract import Extracted
from cad.run.stages.load import Kind, Loaded
from cad.run.tables.regions import Regions


def without_images(settings: PipelineSettings) -> PipelineSettings:
    """Return a pipeline's settings for a table of features, without what concerns images.

    Parameters
    ----------
    settings : PipelineSettings
        The pipeline's settings, which are not changed.

    Returns
    -------
    PipelineSettings
        Settings by which no image is measured and no outline redrawn. ``labels``, ``learner``,
        ``validate`` and ``decision`` stay as they are.
    """
    robustness = settings.features.robustness.model_copy(update={"stable_only": False})
    features = settings.features.model_copy(
        update={"modalities": (), "families": (), "filters": {}, "robustness": robustness}
    )
    return settings.model_copy(update={"features": features})


def load_table(
    regions: Regions,
    settings: PipelineSettings,
    folder: RunFolder,
    options: ExecutionOptions,
    kind: Kind,
    isup_min: int | None = None,
) -> Loaded:
    """Return for a table of features what the stage ``load`` returns for a cohort.

    Parameters
    ----------
    regions : Regions
        The regions of the table, with their features, scores and histology.
    settings : PipelineSettings
        Result of :func:`cad.run.tables.settings.table_settings`.
    folder : RunFolder
        The folder that the run is written to.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.
    kind : {"run", "train", "predict"}
        Purpose of the run folder.
    isup_min : int or None
        Lowest grade that counts as malignant, where histology is stated as a grade.
    """
    label_settings = regions.label_settings(settings.labels, isup_min)
    settings = without_images(settings.model_copy(update={"labels": label_settings}))

    # The table's regions in the form of a cohort's tables. A cohort states unknown histology by
    # None, and numbers the regions of each patient.
    rois = regions.rois
    number_in_patient = rois.groupby("participant_id").cumcount() + 1
    cohort_rois = rois.drop(columns="site").replace({"histology": {"": None}, "isup": {"": None}})
    cohort_rois = cohort_rois.assign(label=number_in_patient.to_numpy(), zone=None)
    participants = rois[["participant_id", "site"]].drop_duplicates("participant_id")
    if not regions.sited:  # the table names no sites
        participants = participants.drop(columns="site")
    readers = pd.DataFrame({"reader_id": regions.readers, "expert": False})
    cohort = Cohort(
        regions.file,
        participants.reset_index(drop=True),
        readers,
        cohort_rois,
        regions.scores,
        digest=_digest_of_table(regions),
    )
    feature_names = tuple(map(str, regions.X.columns))
    return Loaded(
        settings,
        cohort,
        folder,
        options,
        kind,
        table_columns=feature_names,
        table_roles={"file": regions.file.name, **regions.roles},
    )


def _digest_of_table(regions: Regions) -> str:
    """Return a hash of the whole content of the table."""
    contents = [parquet_bytes(table) for table in (regions.X, regions.rois, regions.scores)]
    if regions.stated is not None:  # labels that the table states in place of readers' scores
        contents.append(parquet_bytes(regions.stated))
    return hashlib.sha256(b"".join(contents)).hexdigest()


def aggregate_table(loaded: Loaded, regions: Regions) -> Aggregated:
    """Return features and labels of every region of a table, and write both to the run folder.

    Parameters
    ----------
    loaded : Loaded
        Result of :func:`load_table`.
    regions : Regions
        The regions of the table, with their features, scores and histology.
    """
    # A table has no studies: all regions of a patient count as one study of his name.
    keys = pd.DataFrame(
        {
            "participant_id": regions.rois["participant_id"],
            "study_id": regions.rois["participant_id"],
            "roi_id": regions.rois["roi_id"],
        }
    )
    sites = np.asarray(regions.rois["site"], dtype=str)
    extracted = Extracted(
        pd.concat([keys, regions.X], axis=1),
        pd.DataFrame(index=keys.index),
        FoldFeatures(keys, regions.X, loaded.settings, (), sites, loaded.folder),
    )
    write_features(loaded.folder, extracted.features)
    aggregated = aggregate(loaded, extracted)
    if regions.stated is not None:
        # A folder of runs has labels, but no readers' scores from which labels could be computed
        # again.
        labels = aggregated.labels.assign(**{name: regions.stated[name] for name in LABELS})
        labels["n_readers"] = labels["p"].notna().astype(int)
        write_labels(loaded.folder, labels)
        table = join(extracted.features, labels)
        aggregated = replace(aggregated, labels=labels, table=table, relabel=None)
    return replace(aggregated, notes=(*regions.notes, *aggregated.notes))
