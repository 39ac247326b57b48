"""The model's probability over a sliding sphere: NIfTI on the T2 grid and overlay on the page."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cad.bundle import Bundle
from cad.cohort import StudyRef
from cad.errors import CadError
from cad.evaluation.crossval import positive_probability
from cad.extraction import Failure, failure_of
from cad.features.sliding import sliding_rows
from cad.files import write_atomic
from cad.foldwise import Preparation
from cad.imaging.geometry import resample_image
from cad.imaging.nifti import write_volume
from cad.imaging.prepare import prepare_study
from cad.imaging.study import Roi
from cad.imaging.study_files import read_study
from cad.settings import PipelineSettings
from cad.snapshot import display_grid


@dataclass(frozen=True)
class MapTask:
    """One study to map.

    Parameters
    ----------
    ref : StudyRef
        The study.
    settings : PipelineSettings
        Those of the model.
    bundle : Bundle
        The model.
    out : Path
        Run folder; the map goes to ``maps/<study_id>_probability.nii.gz``.
    site : str
        Of the patient; empty where unknown.
    """

    ref: StudyRef
    settings: PipelineSettings
    bundle: Bundle
    out: Path
    site: str = ""


def map_study(task: MapTask) -> Failure | None:
    """Map one study over its gland, or over a margin around each region without a gland mask."""
    ref = task.ref
    try:
        rois = [Roi(str(r.roi_id), int(r.label)) for r in ref.rois.itertuples()]
        study = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
        study, _ = prepare_study(study, task.settings.images)
        preparation = Preparation.of(task.bundle.metadata)
        found = sliding_rows(study, task.settings, scale=preparation.scale)
        X = found.rows.reindex(columns=task.bundle.features)
        rows = preparation.adjust(X, [task.site] * len(X))
        probability = np.full(len(rows), np.nan)
        whole = np.isfinite(rows).any(axis=1)
        probability[whole] = positive_probability(task.bundle.estimator, rows[whole])
        volume = found.to_volume(probability)
        write_volume(task.out / "maps" / f"{ref.study_id}_probability.nii.gz", volume)
        shown = resample_image(volume, display_grid(study)).array.astype(np.float16)
        _add_array(task.out / "studies" / f"{ref.study_id}.npz", shown)
    except CadError as error:
        return failure_of(error, ref.participant_id, ref.study_id, "map")
    return None


def _add_array(path: Path, probability: np.ndarray) -> None:
    """The study's file with the map for its page beside the slices."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    stream = io.BytesIO()
    np.savez_compressed(stream, **{**arrays, "probability": probability})  # type: ignore[arg-type]
    write_atomic(path, stream.getvalue())
