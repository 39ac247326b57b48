"""Detect an examination that was exported twice under new UIDs, by times or voxels.

An archive that assigns new UIDs at every export turns one study into two. Both studies are kept,
because only a person can decide; a note reports the pair.
"""

from __future__ import annotations

from collections.abc import Iterable

from cad.base.errors import CadError
from cad.dicom.into.sources import SourceStudy
from cad.folders.cohort.patients import StudyPlace
from cad.mri.imaging.belonging import voxel_hash
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.study_files import image_path

# If at least this share of the images' times is equal, two studies are one examination that was
# exported twice. Two examinations on one day have different times.
_LEAST_SHARE = 0.5
# Images whose voxels are compared.
_COMPARED = ("t2w", "adc")


def same_times(study: SourceStudy, other: SourceStudy) -> bool:
    """Tell whether two studies share at least half of the times of the one that has fewer times.

    A time is the date of the study and the acquisition time of an image.

    Parameters
    ----------
    study, other : SourceStudy
        Two studies of one PatientID, by different StudyInstanceUIDs.

    Returns
    -------
    bool
        Whether they do; False where one of the studies states no times.
    """
    times = _acquisition_times(study)
    other_times = _acquisition_times(other)
    if not times or not other_times:
        return False
    return len(times & other_times) >= _LEAST_SHARE * min(len(times), len(other_times))


def _acquisition_times(study: SourceStudy) -> set[tuple[str, float]]:
    """Return the dates and times (s of the day) of a study's slices that state both."""
    times = set()
    for frame in study.slices:
        if frame.acquisition_time is not None and frame.study_date:
            times.add((frame.study_date, frame.acquisition_time))
    return times


def same_voxels(new: StudyPlace, others: Iterable[StudyPlace]) -> list[str]:
    """Return the ids of those studies of a man whose T2 or ADC image equals the new study's.

    Parameters
    ----------
    new : StudyPlace
        The new study, in the folder in which it is built.
    others : iterable of StudyPlace
        The man's other studies in the cohort.

    Returns
    -------
    list of str
        ``sub-XXX[_ses-YY]``; a file that cannot be read is skipped.
    """
    hashes_of_new = _voxel_hashes(new)
    same_ids = []
    for study in others:
        # One common image is enough: two examinations never have equal voxels.
        if hashes_of_new & _voxel_hashes(study):
            same_ids.append(study.study_id)
    return same_ids


def _voxel_hashes(place: StudyPlace) -> set[str]:
    """Return the voxels' hashes of a study's T2 and ADC images; a file that is damaged has none."""
    hashes = set()
    for kind in _COMPARED:
        path = image_path(place.folder, place.study_id, kind)
        try:
            if path.is_file():
                hashes.add(voxel_hash(read_volume(path)))
        except (CadError, OSError):
            continue
    return hashes
