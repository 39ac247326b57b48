"""Find men who are in a cohort under two ids: their studies have images with equal voxels."""

from collections import defaultdict
from collections.abc import Iterable

from cad.base.errors import CadError
from cad.folders.cohort import StudyRef
from cad.mri.imaging.belonging import voxel_hash
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.study_files import image_path


def twins(refs: Iterable[StudyRef]) -> list[CadError]:
    """Find pairs of patients whose T2 images or ADC maps have equal voxels: one man under two ids.

    Equal voxels are found even if they are stored in another order or with another geometry. Files
    that cannot be read are skipped without an error.

    Parameters
    ----------
    refs : iterable of StudyRef
        Studies of the cohort.

    Returns
    -------
    list of CadError
        One error for each pair of patients, which the caller reports; empty without such a pair.
    """
    studies_by_hash: dict[str, list[StudyRef]] = defaultdict(list)
    for ref in refs:
        for kind in ("t2w", "adc"):
            path = image_path(ref.folder, ref.study_id, kind)
            try:
                if path.is_file():
                    studies_by_hash[voxel_hash(read_volume(path))].append(ref)
            except (CadError, OSError):  # a file that cannot be read cannot be compared
                continue
    copy_by_pair = {}
    for first, *copies in studies_by_hash.values():
        for copy in copies:
            # One man may have equal images in two of his studies, which is no twin.
            if copy.participant_id != first.participant_id:
                copy_by_pair[first.participant_id, copy.participant_id] = copy
    problems = []
    for (name_of_first, patient), copy in copy_by_pair.items():
        problem = CadError(
            f"its images are those of {name_of_first}, voxel by voxel: one man under two ids, of "
            "whom a validation would train on one and test on the other",
            file=copy.folder,
            patient=patient,
            hint="remove one of both (cad cohort remove), or import the right images",
        )
        problems.append(problem)
    return problems
