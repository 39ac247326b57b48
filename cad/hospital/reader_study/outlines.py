"""Make label maps of the outlines that readers corrected on their pages, and check each outline."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.folders.cohort import Cohort
from cad.hospital.reader_study.study import image_hash
from cad.mri.imaging.drawn import fill
from cad.mri.imaging.geometry import resample_mask
from cad.mri.imaging.nifti import read_label_map
from cad.mri.imaging.study import Study
from cad.mri.imaging.study_files import reader_outline_path
from cad.mri.imaging.volume import Volume
from cad.run.reports.images import turn
from cad.run.stages.study import read_study_of

AGAIN = "export it again from the reader's page"
_TOO_LARGE = 2**31  # no image has so many voxels


def outline_maps(
    cohort: Cohort, contents: Sequence[tuple[Path, JsonObject]], key: JsonObject
) -> dict[str, Volume]:
    """Return label maps of the outlines that readers corrected and exported; write nothing.

    Parameters
    ----------
    cohort : Cohort
        The cohort as it is when the outlines are collected.
    contents : sequence of (Path, dict)
        Path and content of each export, as :func:`cad.hospital.reader_study.exports.read_export`
        checked it.
    key : dict
        Content of the reader study's ``reading.json``, which says which patient each case is.

    Returns
    -------
    dict of str to Volume
        One label map for each study and reader with outlines; the keys are file paths relative to
        the cohort folder. Each map has the grid of the image on which the outlines were drawn. If
        the cohort has a map of this reader already, its other regions are kept.

    Raises
    ------
    CadError
        If the image is not the one on which the reader drew. If an outline is too small to be
        measured, or shares no voxel with the region that it corrects. If two outlines of a reader
        share a voxel. If the reader's earlier map lies on another grid, or already has another
        outline of the region.
    """
    ref_by_study = {ref.study_id: ref for ref in cohort.studies()}
    outlines_of_reader: dict[tuple[str, str], list[JsonObject]] = {}
    for path, content in contents:
        for outline in content.get("outlines", []):
            case = key["cases"][outline["case"]]
            reader = str(content["reader"])
            # Errors name file, reader and patient of an outline.
            outline_with_names = {
                **outline,
                "path": path,
                "by": reader,
                "patient": case["participant_id"],
            }
            outlines_of_reader.setdefault((str(case["study_id"]), reader), []).append(
                outline_with_names
            )
    maps: dict[str, Volume] = {}
    studies: dict[str, Study] = {}
    for (study_id, reader), outlines in sorted(outlines_of_reader.items()):
        if study_id not in ref_by_study:
            raise CadError(
                "the study is not in the cohort any more", file=cohort.root, patient=study_id
            )
        ref = ref_by_study[study_id]
        study = studies.setdefault(study_id, read_study_of(ref))
        path = reader_outline_path(ref.folder, study_id, reader)
        map_name = path.relative_to(cohort.root).as_posix()
        earlier_map = _map_so_far(path, study)
        maps[map_name] = _with_outlines(earlier_map, study, outlines, path)
    return maps


def is_placed(outline: JsonObject) -> bool:
    """Tell whether an exported outline consists of whole numbers that name each voxel once.

    Parameters
    ----------
    outline : dict
        ``first``, ``shape``: first voxel and size of the shown part of the image, in the order z,
        y, x. ``runs``: start and length of each run of voxels in this part, alternately.

    Returns
    -------
    bool
        True if the outline has at least one run, and all its runs are in ascending order, do not
        touch each other and lie in the shown part. False also for numbers that are not whole, are
        negative, or are 2**31 or more.
    """
    for name, length in (("first", 3), ("shape", 3), ("runs", None)):
        numbers = outline[name]
        if not isinstance(numbers, list) or (length is not None and len(numbers) != length):
            return False
        # The type is compared exactly, because True and False also are whole numbers in Python.
        if not all(type(number) is int and 0 <= number < _TOO_LARGE for number in numbers):
            return False
    runs = outline["runs"]
    (depth, height, width) = outline["shape"]
    end = -1  # a run must not begin where the last run ends: the two would be one run
    # An odd number of numbers is refused below.
    for start, length in zip(runs[::2], runs[1::2], strict=False):
        if start <= end or length < 1:
            return False
        end = start + length
    return bool(runs) and len(runs) % 2 == 0 and end <= depth * height * width


def _outline_error(outline: JsonObject, problem: str, hint: str = "") -> CadError:
    """Return an error that names an outline's reader, case and region."""
    return CadError(
        f"the outline of {outline['by']}: {problem}",
        file=outline["path"],
        patient=outline["patient"],
        roi=outline["roi"],
        hint=hint,
    )


def _map_so_far(path: Path, study: Study) -> Volume:
    """Return the reader's label map on the image's grid; an empty map if he has none."""
    image = study.anatomical
    if not path.exists():
        return image.with_array(np.zeros(image.shape, np.int32))
    labels = read_label_map(path)
    if not labels.same_grid(image):
        raise CadError(
            f"the reader's outlines lie on a grid of {labels.shape}, the image on {image.shape}",
            file=path,
            patient=study.participant_id,
            hint="move the file away, or leave the export out",
        )
    return labels.with_array(labels.array.astype(np.int32))


def _with_outlines(
    labels: Volume, study: Study, outlines: Sequence[JsonObject], path: Path
) -> Volume:
    """Return a reader's label map with the outlines added.

    An error is raised for an outline that would replace another outline of the same region.
    """
    array = labels.array.copy()
    label_of_roi = {roi.roi_id: roi.label for roi in study.rois}
    for outline in outlines:
        if outline["roi"] not in label_of_roi:
            raise _outline_error(outline, "the region is not in the cohort any more")
        label = label_of_roi[outline["roi"]]
        inside = _outlined_voxels(outline, study)
        _require_correction(outline, study, inside, label)
        earlier = array == label
        if earlier.any() and not np.array_equal(earlier, inside):
            raise _outline_error(
                outline,
                f"{path.name} has another outline of the region by this reader",
                "one of both is right: move the file away, or leave the export out",
            )
        other_labels = set(np.unique(array[inside]).tolist()) - {0, label}
        if other_labels:
            problem = f"it shares voxels with the reader's outline of label {min(other_labels)}"
            raise _outline_error(outline, problem, AGAIN)
        array[inside] = label
    fits_bytes = array.max() <= np.iinfo(np.uint8).max
    return labels.with_array(array.astype(np.uint8) if fits_bytes else array)


def _outlined_voxels(outline: JsonObject, study: Study) -> np.ndarray:
    """Return the voxels inside an outline, as a bool array on the grid of the image.

    An error is raised if the study's image is not the one on which the outline was drawn.
    """
    image = study.anatomical
    if outline["image"] != image_hash(image):
        raise _outline_error(
            outline,
            "it was drawn on another image than the study has now",
            "bring the image back, or have the case read again: cad reading writes its page",
        )
    # The page showed a box of the image. Its axes are z, y, x, like those of the stored image.
    ends = []
    for first, size in zip(outline["first"], outline["shape"], strict=True):
        ends.append(first + size)
    if any(end > size for end, size in zip(ends, image.shape, strict=True)):
        problem = f"what the page showed ends at voxel {ends}, the image at {list(image.shape)}"
        raise _outline_error(outline, problem, AGAIN)
    page = np.zeros(outline["shape"], bool)
    flat = page.reshape(-1)  # a view: what is set in it is set in the page
    for start, length in zip(outline["runs"][::2], outline["runs"][1::2], strict=True):
        flat[start : start + length] = True
    whole = np.zeros(image.shape, bool)
    box = tuple(slice(first, end) for first, end in zip(outline["first"], ends, strict=True))
    # The page showed the box turned upright; it is turned back.
    whole[box] = page[turn(image.direction)]
    return whole


def _require_correction(outline: JsonObject, study: Study, inside: np.ndarray, label: int) -> None:
    """Raise an error for an outline that is too small to be measured, or that shares no voxel with
    the region that it corrects.
    """
    outlined = study.anatomical.with_array(inside)
    # The outline is tried as a region on its own grid, as the measurement will do.
    too_little = fill(outlined, outlined).too_little
    if too_little:
        raise _outline_error(outline, f"it cannot be measured: {too_little}", AGAIN)
    if study.roi_map is None:  # read_study refuses a study that has regions but no label map
        return
    region_voxels = resample_mask(
        study.roi_map.with_array(study.roi_map.array == label), outlined
    ).array
    if region_voxels.any() and not (region_voxels & inside).any():
        raise _outline_error(outline, "it lies beside the region that it corrects", AGAIN)
