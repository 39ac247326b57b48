"""Probability map: a model's probability over a sliding sphere, as NIfTI and for the page."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.folders.cohort import StudyRef
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.study_file import write_map_display
from cad.folders.run_folder.tables import Failure
from cad.learning.evaluation.folds.ask import positive_probability
from cad.mri.features.sliding import sliding_rows
from cad.mri.features.snapshot import display_grid
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.nifti import write_volume
from cad.mri.imaging.prepare import prepare_study
from cad.run.model.bundle import Bundle, using
from cad.run.model.fold_features import Preparation
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded
from cad.run.stages.study import failure_of, read_study_of


def map_probability(loaded: Loaded, judged: Judged, bundles: Sequence[Bundle]) -> Judged:
    """Write a map of the probability over the prostate of every study that a model has scored.

    Parameters
    ----------
    loaded : Loaded
        The run; the maps go into its folder.
    judged : Judged
        The prediction; it says which model scored which study.
    bundles : sequence of Bundle
        The models.

    Returns
    -------
    Judged
        A copy of ``judged``; a study that could not be mapped is added to its failures.
    """
    start = time.perf_counter()
    models = {bundle.name: bundle for bundle in bundles}
    scored = judged.results.dropna(subset="probability")
    model_of = dict(zip(scored["study_id"], scored["model"], strict=True))
    sites = loaded.site_of
    found = Parallel(n_jobs=loaded.options.processes)(
        delayed(map_study)(
            ref,
            loaded.settings,
            models[model_of[ref.study_id]],
            loaded.folder,
            sites[ref.participant_id],
        )
        for ref in loaded.cohort.studies()
        if ref.study_id in model_of
    )
    return replace(
        judged,
        failures=[*judged.failures, *(failure for failure in found if failure is not None)],
        timings={**judged.timings, "map": time.perf_counter() - start},
    )


def drop_maps(folder: RunFolder) -> None:
    """Delete the maps of an earlier prediction in a run folder: another model may have made them.

    Parameters
    ----------
    folder : RunFolder
        The run folder.
    """
    for path in folder.map_image("any").parent.glob("*"):
        path.unlink()


def map_study(
    ref: StudyRef, settings: PipelineSettings, bundle: Bundle, folder: RunFolder, site: str
) -> Failure | None:
    """Write the probability map of one study: over its gland, else over and around its regions.

    Parameters
    ----------
    ref : StudyRef
        The study in its cohort.
    settings : PipelineSettings
        Settings of the model's pipeline.
    bundle : Bundle
        The model.
    folder : RunFolder
        Run folder that the map is written into.
    site : str
        Site of the patient; empty where unknown.

    Returns
    -------
    Failure or None
        The reason why there is no map; None where it was written.
    """
    try:
        study = read_study_of(ref, settings.images)
        study, _ = prepare_study(study, settings.images, settings.features.modalities)
        with using(bundle):
            preparation = Preparation.of(bundle.metadata)
            found = sliding_rows(study, settings, scale=preparation.scale)
            X = found.rows.reindex(columns=bundle.features)
            rows = preparation.adjust(X, [site] * len(X))
            probability = np.full(len(rows), np.nan)
            whole = np.isfinite(rows).any(axis=1)
            probability[whole] = positive_probability(bundle.estimator, rows[whole])
        volume = found.to_volume(probability)
        write_volume(folder.map_image(ref.study_id), volume)
        # Half precision is enough for the colours of a page.
        shown = resample_image(volume, display_grid(study)).array.astype(np.float16)
        write_map_display(folder, ref.study_id, shown, bundle.name)
    except CadError as error:
        return failure_of(error, ref.participant_id, ref.study_id, "map")
    return None
