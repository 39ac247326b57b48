"""Compute a map of the probability over the prostate, as a NIfTI image and for the page.

A sphere is moved over the prostate and scored at each place like a region. The map shows the
probability of cancer from images alone if the model's training had histology, and otherwise the
belief (:mod:`cad.run.stages.risk`).
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.folders.cohort import StudyRef
from cad.folders.cohort.men import men_stated
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.study_file import write_map_display
from cad.folders.run_folder.tables import Failure
from cad.learning.evaluation.folds.ask import positive_probability
from cad.learning.joint_model import JointModel
from cad.mri.features.sliding import sliding_rows
from cad.mri.features.snapshot import display_grid
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.nifti import write_volume
from cad.mri.imaging.prepare import prepare_study
from cad.run.model.bundle import Bundle, using
from cad.run.model.fold_features import Preparation
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded
from cad.run.stages.risk import joint_of, risk_of_places
from cad.run.stages.study import failure_of, read_study_of


def map_probability(loaded: Loaded, judged: Judged, bundles: Sequence[Bundle]) -> Judged:
    """Write a map of the probability over the prostate of every study that a model has scored.

    Parameters
    ----------
    loaded : Loaded
        The run, to whose folder the maps are written.
    judged : Judged
        The prediction, which says which model scored which study.
    bundles : sequence of Bundle
        The models.

    Returns
    -------
    Judged
        A copy of ``judged``; a study that could not be mapped is added to its failures.
    """
    start = time.perf_counter()
    models = {bundle.name: bundle for bundle in bundles}
    prevalence = loaded.settings.decision.prevalence
    joints = {bundle.name: joint_of(bundle, prevalence) for bundle in bundles}
    stated = men_stated(loaded.cohort.participants, loaded.settings.labels.isup_min)
    scored = judged.results.dropna(subset="probability")
    model_of_study = dict(zip(scored["study_id"], scored["model"], strict=True))
    sites = loaded.site_of
    calls = []
    for ref in loaded.cohort.studies():
        if ref.study_id not in model_of_study:  # no model scored a region of the study
            continue
        name = model_of_study[ref.study_id]
        calls.append(
            delayed(map_study)(
                ref,
                loaded.settings,
                models[name],
                loaded.folder,
                site=sites[ref.participant_id],
                joint=joints[name],
                man=stated.loc[ref.participant_id],
            )
        )
    outcomes = Parallel(n_jobs=loaded.options.processes)(calls)
    failures = [failure for failure in outcomes if failure is not None]
    return replace(
        judged,
        failures=[*judged.failures, *failures],
        timings={**judged.timings, "map": time.perf_counter() - start},
    )


def drop_maps(folder: RunFolder) -> None:
    """Delete the maps of an earlier prediction, which may be of another model, from a run folder.

    Parameters
    ----------
    folder : RunFolder
        The run folder.
    """
    for path in folder.map_image("any").parent.glob("*"):
        path.unlink()


def map_study(
    ref: StudyRef,
    settings: PipelineSettings,
    bundle: Bundle,
    folder: RunFolder,
    site: str,
    joint: JointModel | None = None,
    man: pd.Series | None = None,
) -> Failure | None:
    """Write the probability map of one study.

    The map covers the gland. Without a gland mask it covers the regions and their surroundings.

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
    joint : JointModel, optional
        The bundle's joint model; without it the map shows the belief.
    man : Series, optional
        ``age`` in years and ``psa_density`` in ng/mL2 of the man; without them the map shows the
        belief.

    Returns
    -------
    Failure or None
        The reason why there is no map; None where it was written.
    """
    try:
        study, _ = prepare_study(
            read_study_of(ref, settings.images), settings.images, settings.features.modalities
        )
        with using(bundle):
            preparation = Preparation.of(bundle.metadata)
            sliding = sliding_rows(study, settings, scale=preparation.scale)
            X = sliding.rows.reindex(columns=bundle.features)
            rows = preparation.adjust(X, [site] * len(X))
            # At a place without any feature the map stays empty.
            has_features = np.isfinite(rows).any(axis=1)
            belief = positive_probability(bundle.estimator, rows[has_features])
            probability = np.full(len(rows), np.nan)
            probability[has_features] = belief
            if joint is not None and man is not None:
                probability[has_features] = risk_of_places(joint, belief, man)
        volume = sliding.to_volume(probability)
        write_volume(folder.map_image(ref.study_id), volume)
        # Numbers of 16 bits are exact enough for the colours of a page.
        map_of_page = resample_image(volume, display_grid(study)).array.astype(np.float16)
        write_map_display(folder, ref.study_id, map_of_page, bundle.name)
    except CadError as error:
        return failure_of(error, ref.participant_id, ref.study_id, "map")
    return None
