"""Hold the steps that all contracts with platforms need.

A study is scored, and a map of its regions' probabilities is made on the T2 grid.
"""

from __future__ import annotations

import tempfile
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from scipy import ndimage

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import make_folder, write_atomic
from cad.base.reading import MAX_IMAGE, read_bytes
from cad.folders.cohort import StudyRef, read_cohort
from cad.folders.run_folder.results import Results, read_results
from cad.mri.imaging.nifti import read_grid, read_label_map
from cad.mri.imaging.volume import Volume
from cad.run.execution.options import HERE
from cad.run.pipeline import predict_cohort


@dataclass(frozen=True)
class Scored:
    """Hold a study that was scored.

    Parameters
    ----------
    study : str
        The study's id in the run.
    likelihood : float
        Probability that the man has a significant cancer; see ``patients.csv``.
    map : Volume
        Map on the T2 grid: in every region the region's probability, elsewhere 0.
    """

    study: str
    likelihood: float
    map: Volume


def require_empty(out: Path) -> None:
    """Raise an error for an output folder that is not empty: a platform gives an empty folder.

    Parameters
    ----------
    out : Path
        The folder; it may be absent.

    Raises
    ------
    CadError
        When ``out`` is a file, or a folder that is not empty.
    """
    if out.exists() and not out.is_dir():
        raise CadError("a folder is needed, this is a file", file=out)
    if out.is_dir() and any(out.iterdir()):
        raise CadError(
            "the output folder is not empty; nothing in it was changed",
            file=out,
            hint="name an empty one",
        )


def score(
    cohort: Path, run: Path, models: list[str], highest: bool = False
) -> tuple[list[Scored], list[CadError]]:
    """Score a cohort, and return every study with a map of its regions' probabilities.

    Parameters
    ----------
    cohort : Path
        The cohort folder.
    run : Path
        Run folder; made when absent.
    models : list of str
        Models in order of preference. A study is scored by the first whose images it has.
    highest : bool
        Whether a man to whom the model gives no probability gets the highest probability of his
        regions.

    Returns
    -------
    scored : list of Scored
        The studies that have a probability.
    failures : list of CadError
        Errors that tell why a study, or a region, has no probability.
    """
    problems = list(read_cohort(cohort).problems)
    try:
        summary = predict_cohort(models, cohort, run, HERE)
    except CadError as error:
        # The cohort is in a temporary folder that is deleted later. The user could not find it, so
        # that the error's message must not name it.
        error_for_user = copy(error)
        if error.file == str(cohort):
            error_for_user.file = ""
        raise error_for_user from error.__cause__
    for failure in [*summary.failures, *summary.kinds.waiting]:
        problems.append(
            CadError(
                failure.reason, hint=failure.hint, patient=failure.study_id, roi=failure.roi_id
            )
        )
    results = read_results(run)
    scored_studies = []
    for ref in read_cohort(cohort).studies():
        study = _scored_study(ref, results, highest)
        if study is not None:
            scored_studies.append(study)
            continue
        has_probability = any(
            region.study == ref.study_id and region.probability is not None
            for region in results.regions
        )
        # Why a study without any probability has none is among the failures above.
        if has_probability:
            problems.append(
                CadError(
                    "the model gives regions a probability and men none",
                    hint="train it with histology, or take the highest region's: --highest-region",
                    patient=ref.study_id,
                )
            )
    return scored_studies, problems


def _scored_study(ref: StudyRef, results: Results, highest: bool) -> Scored | None:
    """Return a study with its map; None if none of its regions has a probability."""
    probability_of_roi = {}
    for region in results.regions:
        if region.study == ref.study_id and region.probability is not None:
            probability_of_roi[region.roi] = region.probability
    man = results.men.get(ref.participant_id)
    likelihood = None
    if man is not None:
        likelihood = man.probability
    if likelihood is None and highest:
        likelihood = max(probability_of_roi.values(), default=None)
    if not probability_of_roi or likelihood is None:
        return None
    label_map = read_label_map(next(ref.folder.glob("masks/*_rois.nii.gz")))
    probability_of_label = {}
    for roi, label in zip(ref.rois["roi_id"], ref.rois["label"], strict=True):
        if str(roi) in probability_of_roi:
            probability_of_label[int(label)] = probability_of_roi[str(roi)]
    values = candidates(label_map.array, probability_of_label, ref.study_id)
    return Scored(ref.study_id, likelihood, label_map.with_array(values))


def candidates(labels: np.ndarray, probability: dict[int, float], patient: str = "") -> np.ndarray:
    """Return a detection map: every region has its probability, and between two regions lies 0.

    Programs that read such maps take connected voxels for one candidate, also voxels that touch at
    corners only. Where two regions touch, the region of lower probability therefore loses those of
    its voxels that touch the region of higher probability.

    Parameters
    ----------
    labels : ndarray of int, shape (z, y, x)
        Label of every voxel, 0 outside regions.
    probability : dict of int to float
        Probability by label; other labels are left out.
    patient : str
        Name of the patient for an error message.

    Returns
    -------
    ndarray of float32, shape (z, y, x)
        Probability at every voxel of a region that has one; 0 elsewhere.

    Raises
    ------
    CadError
        For a region that would have no voxel in the map.

    Examples
    --------
    >>> import numpy as np
    >>> row = np.array([[[1, 1, 2, 2, 2]]])
    >>> candidates(row, {1: 0.75, 2: 0.5}).tolist()
    [[[0.75, 0.75, 0.0, 0.5, 0.5]]]
    """
    values = np.zeros(labels.shape, np.float32)
    used = np.zeros(labels.shape, bool)
    corners = np.ones((3, 3, 3), bool)  # neighbours across faces, edges and corners
    # The highest probability comes first and loses no voxel; of equal ones the smaller label.
    for label in sorted(probability, key=lambda label: (-probability[label], label)):
        next_to_used = ndimage.binary_dilation(used, structure=corners)
        region = (labels == label) & ~next_to_used
        if not region.any():
            raise CadError(
                f"the region of label {label} lies between others and leaves no voxel in the map",
                patient=patient,
            )
        values[region] = probability[label]
        used |= region
    return values


@door("out", "MetaImage", owner="the caller's folder, owned or new")
def write_map(path: Path, volume: Volume, grid: Path) -> None:
    """Write a map as an MHA file on the grid of an image; after an error there is no file.

    Parameters
    ----------
    path : Path
        The file to write.
    volume : Volume
        The map.
    grid : Path
        An image file; the map's voxels get the places of this image's voxels.
    """
    with tempfile.TemporaryDirectory(prefix="cad-map-") as folder:
        reference = read_grid(grid)
        on_grid = sitk.Resample(
            volume.to_sitk(),
            reference,
            sitk.Transform(),  # no movement
            sitk.sitkNearestNeighbor,  # probabilities are not mixed at the borders of regions
            0.0,  # outside of the map
            sitk.sitkFloat32,
        )
        scratch_file = Path(folder) / path.name
        sitk.WriteImage(on_grid, str(scratch_file), useCompression=True)
        make_folder(path.parent)
        write_atomic(path, read_bytes(scratch_file, MAX_IMAGE))
