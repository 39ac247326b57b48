"""Find the regions of a study: one label map and its rows, from one of the possible sources."""

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from pydicom.dataset import Dataset

from cad.base.errors import CadError, located, printable
from cad.base.reading import read_rows, reading, whole_cell
from cad.base.terms.grades import NOT_SIGNIFICANT, SIGNIFICANT, grade_words
from cad.dicom.into.findings import FindingRow, findings_of
from cad.dicom.into.rules import FIRST_READER, DetectorRule, ImportRules, OutlinesRule, ZonesRule
from cad.dicom.into.sources import SourceStudy, leads_out
from cad.dicom.own import OWN_MODEL_NAME
from cad.mri.imaging.annotations import (
    contour_images,
    has_regions,
    is_segmentation,
    read_drawn_regions,
    referenced_images,
)
from cad.mri.imaging.drawn_regions import DrawnRegion
from cad.mri.imaging.frames import Frame, read_dataset
from cad.mri.imaging.geometry import OCCUPANCY, outside_of, resample_mask
from cad.mri.imaging.nifti import read_image, read_label_map
from cad.mri.imaging.stacks import Stack, stacks_of
from cad.mri.imaging.study import Roi
from cad.mri.imaging.volume import Volume

# Two regions with a common border may each fill half of a voxel. By rounding, their shares of the
# voxel may add up to a little more than 1; this much more is allowed.
_TOUCHING = 0.02
_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")
_TRUTH = dict.fromkeys(_TRUE, "malignant") | dict.fromkeys(_FALSE, "benign")
_NO_SCORE = ("", "n/a", "nan", "NaN", "NA")
_TEMPLATE = ("zone_id", "samtaken", "zprescancer", "zprimgleason", "zsecondgleason")
_LARGEST_LABEL = 65535
# A zone's biopsies count for a lesion if the zone holds at least this share of it.
_LEAST_SHARE_IN_ZONE = 0.1
_LONGEST_SHOWN = 40  # characters of a cell that a note shows: a cell may hold a whole report


@dataclass(frozen=True, eq=False)
class Labelled:
    """Hold the regions of one study, as an import gathered them.

    Parameters
    ----------
    labels : Volume
        Label map: each voxel holds the label of its region, 0 outside every region.
    rois : list of Roi
        One entry for each label.
    frame_uid : str
        FrameOfReferenceUID of the image that DICOM objects were drawn on; empty for image files.
    scores : tuple of dict
        Scores that the source's tables give, with the columns of ``scores.tsv``: ``patient_id`` as
        the source calls the patient, ``roi_id``, ``reader_id``, ``scale``, ``score``.
    """

    labels: Volume
    rois: list[Roi]
    frame_uid: str = ""
    scores: tuple[dict[str, str], ...] = ()


def find_regions(
    study: SourceStudy, rules: ImportRules, reference: Stack | None, notes: list[str]
) -> Labelled | None:
    """Return the label map and the regions of a study; None where nothing is drawn.

    The first source that exists is used, in this order: a label map or lesion mask beside the
    series, or SEG and RTSTRUCT objects; mask files of a public data set; points of a table; and
    last a detector's map, which no person drew.

    Parameters
    ----------
    study : SourceStudy
        The study in the source.
    rules : ImportRules
        File names beside the series, and which names of segments and structures are regions.
    reference : Stack or None
        The T2 image, else the ADC image; DICOM objects are drawn on its grid.
    notes : list of str
        Messages for the user are appended to it.

    Returns
    -------
    Labelled or None
        Regions with their zones of the prostate, where the rules name a zone map.

    Raises
    ------
    CadError
        When a study has more than one of these three: a label map, a lesion mask, DICOM objects.
        When regions are damaged or belong to another patient.
    """
    label_map = study.beside(rules.rois)
    lesion_mask = study.beside(rules.lesion)
    drawn_objects = []
    for path in study.objects:
        dataset = read_dataset(path, force=True)  # force: some files lack the preamble
        # An object that this program sent to the archive is a result and not an annotation.
        if dataset.get("ManufacturerModelName") == OWN_MODEL_NAME:
            notes.append(f"{path.name} is a result of this program, and no drawing; it is left out")
        else:
            drawn_objects.append((path, dataset))
    source_names = [path.name for path in (label_map, lesion_mask) if path]
    if drawn_objects:
        source_names.append("DICOM SEG or RTSTRUCT")
    if len(source_names) > 1:
        problem = f"the study has {len(source_names)} sources of ROIs: {', '.join(source_names)}"
        raise CadError(problem, file=study.top, hint="keep the one that counts beside the series")
    labelled: Labelled | None = None
    if label_map:
        labelled = _regions_of_label_map(label_map)
    elif lesion_mask:
        grades = whole_numbers(lesion_mask)
        # A mask without a lesion states that there is none: no other source is asked.
        if not grades.array.any():
            notes.append(f"{lesion_mask.name} holds no lesion")
            return None
        labelled = grade_lesions(grades)
    elif drawn_objects:
        labelled = _from_objects(study, rules, reference, drawn_objects, notes)
    else:
        labelled = _outlined_beside(study, rules, notes)
        if labelled is None and reference is not None:
            labelled = _balls_of_findings(study, rules, reference.grid, notes)
    # A detector's map, which nobody has checked, is used only if no person drew or marked a region.
    if labelled is None and rules.detector:
        detector_map = study.beside(rules.detector.file)
        if detector_map:
            labelled = detected(detector_map, rules.detector, notes)
    if labelled is None or rules.zones is None:
        return labelled
    return with_zones(labelled, study.beside(rules.zones.file), rules.zones)


def _from_objects(
    study: SourceStudy,
    rules: ImportRules,
    reference: Stack | None,
    objects: list[tuple[Path, Dataset]],
    notes: list[str],
) -> Labelled | None:
    """Return the regions of SEG and RTSTRUCT objects on the reference's grid.

    The result is None if no segment or structure has a name that the rules call a ROI.
    """
    if reference is None:
        raise CadError(
            "SEG or RTSTRUCT objects but no T2 or ADC series to draw them on", file=objects[0][0]
        )
    frame_uid = reference.first.frame_uid
    grid = reference.grid
    roi_ids: list[str] = []
    drawn_regions: list[DrawnRegion] = []

    def is_roi_name(name: str) -> bool:
        return re.fullmatch(rules.roi_name, name.strip()) is not None

    for path, dataset in objects:
        drawn_on = grid
        images: list[Frame] = []
        # An object without regions is read as well, for the remarks on what it leaves out. It may
        # then lie on any series, so none is looked up.
        if has_regions(dataset, path, is_roi_name):
            drawn_on, images = _drawn_images(study, dataset, path, reference, is_roi_name, notes)
        try:
            regions, remarks = read_drawn_regions(
                dataset,
                path,
                drawn_on=drawn_on,
                frame_uid=frame_uid,
                grid=grid,
                wanted=is_roi_name,
                images=images,
            )
        except CadError as error:
            if rules.labels != "pseudonym":
                raise
            # The name of a region is free text that may name a patient. The error therefore names
            # only the file.
            error.roi = ""
            raise
        notes += remarks
        for region in regions:
            roi_id = _roi_id(region, rules)
            # Without an id, the name has no character that is safe in tables.
            if roi_id:
                roi_ids.append(roi_id)
                drawn_regions.append(region)
    if not roi_ids:
        notes.append("no segment or contour has a name that the rules call a ROI")
        return None
    final_ids = _neutral_ids(roi_ids, rules, notes)
    labels, rois = _label_map(list(zip(final_ids, drawn_regions, strict=True)), grid)
    return Labelled(labels, rois, frame_uid)


def _neutral_ids(roi_ids: list[str], rules: ImportRules, notes: list[str]) -> list[str]:
    """Replace ROI ids by numbers, except those that the rules keep: their text may name the
    patient.
    """
    if rules.labels != "pseudonym":
        return roi_ids
    kept_ids = {roi_id for roi_id in roi_ids if rules.keeps(roi_id)}
    new_ids = []
    number = 0
    replaced = 0
    for roi_id in roi_ids:
        if roi_id in kept_ids:
            new_ids.append(roi_id)
            continue
        number += 1
        # A kept id may be this number; two regions must not have one id.
        while str(number) in kept_ids:
            number += 1
        new_ids.append(str(number))
        replaced += 1
    if replaced:
        notes.append(f"{replaced} ROI names replaced by numbers: names are free text")
    return new_ids


def _drawn_images(
    study: SourceStudy,
    dataset: Dataset,
    path: Path,
    reference: Stack,
    is_roi_name: Callable[[str], bool],
    notes: list[str],
) -> tuple[Volume, list[Frame]]:
    """Return the grid and the images of the series that a SEG or RTSTRUCT object was drawn on.

    In two cases the grid of the reference image is taken, and a note says so: the object names no
    series, or it is a SEG and the study lacks the series that it names. An RTSTRUCT whose series
    the study lacks is refused, because only the images of this series tell in which planes its
    contours lie.
    """
    with reading(path, "not a sound SEG or RTSTRUCT object"):
        images_by_series = referenced_images(dataset)  # SOPInstanceUIDs by SeriesInstanceUID
        contoured_images = contour_images(dataset, is_roi_name)
        is_seg = is_segmentation(dataset)
    frame_uid = reference.first.frame_uid
    if not frame_uid:
        notes.append(
            f"the images state no frame of reference, with which that of {path.name} could be "
            "compared"
        )
    if not images_by_series:
        notes.append(
            f"{path.name} does not say which series it was drawn on; series "
            f"{reference.first.series_number} is taken"
        )
        return reference.grid, []
    frames_by_series = {}  # only of named series that the study has
    for uid in images_by_series:
        frames = [frame for frame in study.slices if frame.series_uid == uid]
        if frames:
            frames_by_series[uid] = frames
    uids = ", ".join(printable(uid) for uid in images_by_series)
    if not frames_by_series:
        # The frames of a SEG state their own positions. In the frame of reference of the study's
        # images, these positions are enough.
        object_frame_uid = str(dataset.get("FrameOfReferenceUID", "") or "")
        same_frame = object_frame_uid != "" and object_frame_uid == frame_uid
        if not is_seg or not same_frame:
            raise CadError(
                f"drawn on the series of SeriesInstanceUID {uids}, which the study does not have",
                file=path,
                hint="export that series, too, or draw the ROI on a series of this study",
            )
        notes.append(
            f"{path.name} was drawn on a series that the study does not have; its own positions "
            "say where it lies"
        )
        return reference.grid, []
    for uid, frames in frames_by_series.items():
        _check_instances(images_by_series[uid], frames, uid, path, notes)
    if is_seg:  # a segmentation object states its own grid
        return reference.grid, list(chain.from_iterable(frames_by_series.values()))
    if len(frames_by_series) > 1:
        # A structure set may name series on which it has no contour. Where contours name images,
        # only the series of these images count.
        contoured_series = {}
        for uid, frames in frames_by_series.items():
            if any(frame.sop_uid in contoured_images for frame in frames):
                contoured_series[uid] = frames
        frames_by_series = contoured_series or frames_by_series
    grids = [stacks_of(frames)[0].grid for frames in frames_by_series.values()]
    if any(not grid.same_grid(grids[0]) for grid in grids[1:]):
        raise CadError(
            f"drawn on {len(grids)} series of different grids, SeriesInstanceUID {uids}; it is not "
            "known in whose planes the contours lie",
            file=path,
            hint="export a structure set for each series",
        )
    drawn_images = list(chain.from_iterable(frames_by_series.values()))
    other_frame_uids = {image.frame_uid for image in drawn_images} - {frame_uid, ""}
    if frame_uid and other_frame_uids:
        raise CadError(
            "drawn on a series in another frame of reference: FrameOfReferenceUID "
            f"{other_frame_uids.pop()}, series {reference.first.series_number} is in {frame_uid}",
            file=path,
            hint=f"draw the ROI on series {reference.first.series_number}",
        )
    return grids[0], drawn_images


def _check_instances(
    named_uids: list[str], frames: list[Frame], series_uid: str, path: Path, notes: list[str]
) -> None:
    """Refuse an object if its series has none of the images that the object names.

    If the series lacks only some of these images, a note says so.
    """
    series_images = {frame.sop_uid for frame in frames}
    absent = [uid for uid in named_uids if uid not in series_images]
    if not absent:
        return
    if len(absent) == len(named_uids):
        raise CadError(
            f"drawn on the image of ReferencedSOPInstanceUID {printable(absent[0])}, which the "
            f"series of SeriesInstanceUID {printable(series_uid)} does not have, as none of the "
            f"{len(named_uids)} images that it names",
            file=path,
            hint="export images and drawing together, or draw the ROI on these images",
        )
    notes.append(
        f"{path.name} names {len(absent)} images that its series does not have, "
        f"of {len(named_uids)}"
    )


def with_zones(labelled: Labelled, path: Path | None, rule: ZonesRule | None) -> Labelled:
    """Return regions with their zone of the prostate: the zone that holds most of their voxels.

    Parameters
    ----------
    labelled : Labelled
        The regions, in their label map; not changed.
    path : Path or None
        Zone map: an image of whole numbers. Without one the regions are returned as they are.
    rule : ZonesRule or None
        Says which number of the map stands for which zone.

    Returns
    -------
    Labelled
        The same label map with new regions. A zone is ``n/a`` where none of the region's voxels
        lies in a zone that the rule names.
    """
    if rule is None or path is None:
        return labelled
    rois = []
    for roi in labelled.rois:
        zone_numbers = _values_in(path, labelled.labels, roi.label)
        voxels_of_zone: dict[str, int] = {}
        for number, name in rule.values.items():
            # A map may have different numbers for the left and right half of a zone.
            voxels_of_zone[name] = voxels_of_zone.get(name, 0) + int((zone_numbers == number).sum())
        zone = max(voxels_of_zone, key=lambda name: voxels_of_zone[name])
        if voxels_of_zone[zone] == 0:  # no voxel lies in a zone of the rule
            zone = "n/a"
        rois.append(replace(roi, zone=zone))
    return replace(labelled, rois=rois)


def _values_in(path: Path, labels: Volume, label: int) -> np.ndarray:
    """Return the values that a map of whole numbers has at a region's voxels."""
    zone_map = whole_numbers(path)
    voxels_zyx = np.argwhere(labels.array == label)
    points = labels.index_to_patient(voxels_zyx[:, ::-1])
    # The map may have another grid: each point gets the value of the map's nearest voxel. Points
    # outside of the map get none.
    nearest_xyz = np.round(zone_map.patient_to_index(points)).astype(int)
    size_xyz = np.array(zone_map.shape[::-1])
    inside = ((nearest_xyz >= 0) & (nearest_xyz < size_xyz)).all(axis=1)
    x, y, z = nearest_xyz[inside].T
    return np.asarray(zone_map.array[z, y, x])


def _balls_of_findings(
    study: SourceStudy, rules: ImportRules, grid: Volume, notes: list[str]
) -> Labelled | None:
    """Return balls around the points of a table of findings; None if there is no table or row."""
    if rules.findings is None:
        return None
    findings = findings_of(study, rules, notes)
    if not findings:
        return None
    z, y, x = np.indices(grid.shape)
    centres = grid.index_to_patient(np.stack([x, y, z], axis=-1))
    labels = np.zeros(grid.shape, np.uint16)
    unique_ids = _unique_ids([finding.fid for finding in findings], rules, notes)
    roi_ids = _neutral_ids(unique_ids, rules, notes)
    rois: list[Roi] = []
    for label, (roi_id, finding) in enumerate(zip(roi_ids, findings, strict=True), start=1):
        distances = np.linalg.norm(centres - finding.point, axis=-1)
        inside = distances <= rules.findings.radius
        # The ball of a point beside the image may still reach into it.
        if outside_of(grid, np.array([finding.point])).any() or not inside.any():
            place = " ".join(f"{number:g}" for number in finding.point)
            raise CadError(
                f"finding {finding.name} at {place} mm lies outside the T2 image",
                file=finding.file,
                hint="correct pos, or import the image on which the lesion was found",
            )
        _note_cut_ball(finding, rules.findings.radius, grid, notes)
        with located(file=finding.file, roi=roi_id):
            free = _uncovered(inside, labels, rois)
            labels[free] = label
        histology, isup = _significant(_truth_of(finding.significance, notes))
        rois.append(Roi(roi_id, label, zone=finding.zone, histology=histology, isup=isup))
    notes.append(
        f"{len(rois)} regions are balls of {rules.findings.radius:g} mm around the points of a "
        "table, not drawn lesions; malignant means clinically significant"
    )
    return Labelled(grid.with_array(labels), rois)


def _note_cut_ball(finding: FindingRow, radius: float, grid: Volume, notes: list[str]) -> None:
    """Note a ball that the border of the image cuts."""
    index_xyz = grid.patient_to_index(np.array(finding.point))
    size_xyz = np.array(grid.shape[::-1])
    # Distances (mm) along the axes of the image, from the ball's centre to the image's borders. The
    # borders lie half a voxel beyond the centres of the outermost voxels.
    to_first_border = (index_xyz + 0.5) * grid.spacing
    to_last_border = (size_xyz - 0.5 - index_xyz) * grid.spacing
    # A voxel belongs to the ball if its centre does. The ball therefore lacks a voxel only if it
    # reaches the centre of a voxel beyond the border, half a voxel further.
    half_voxel = np.array(grid.spacing) / 2
    cut_at_first = (to_first_border + half_voxel < radius).any()
    cut_at_last = (to_last_border + half_voxel < radius).any()
    if cut_at_first or cut_at_last:
        notes.append(
            f"finding {finding.name}: the image cuts off a part of its ball of {radius:g} mm"
        )


def _uncovered(inside: np.ndarray, labels: np.ndarray, rois: list[Roi]) -> np.ndarray:
    """Return the voxels of a region that no earlier region has; a voxel belongs to one region.

    If at most half of the voxels remain, an error is raised. The region's grade would then be
    assigned to voxels that hardly show the lesion.
    """
    free: np.ndarray = inside & (labels == 0)
    n_inside = int(inside.sum())
    if 2 * free.sum() <= n_inside:
        voxels_of_label = np.bincount(labels[inside & (labels > 0)])
        covering_roi_id = rois[int(voxels_of_label.argmax()) - 1].roi_id  # labels count from 1
        raise CadError(
            f"another lesion covers half of it or more: {int(free.sum())} of its {n_inside} voxels "
            f"are free, most others belong to ROI {covering_roi_id}",
            hint="keep one of the two, or make them smaller",
        )
    return free


def _outlined_beside(study: SourceStudy, rules: ImportRules, notes: list[str]) -> Labelled | None:
    """Return the regions of mask files in the study's folders, or beside the zip file it came from.

    The result is None if there are no mask files.
    """
    for folder in study.tables:
        labelled = outlined(folder, study.patient_id, rules, notes)
        if labelled is not None:
            return labelled
    return None


def _unique_ids(finding_ids: list[str], rules: ImportRules, notes: list[str]) -> list[str]:
    """Return the ROI ids of findings, made unique: a repeated id gets a number at its end.

    ``notes`` gets a sentence on each such id.
    """
    unique_ids: list[str] = []
    for name in finding_ids:
        number = 1
        unique_id = name
        # A new id must differ from all ids so far, and from those of the table that come later.
        while unique_id in unique_ids or (unique_id != name and unique_id in finding_ids):
            number += 1
            unique_id = f"{name}_{number}"
        if unique_id != name:
            # Only an id that the rules keep may be shown: other text may name the patient.
            if rules.keeps(name):
                notes.append(
                    f"two findings are called {name} at different places: one is ROI {unique_id}"
                )
            else:
                notes.append("two findings have one id at different places: they are two ROIs")
        unique_ids.append(unique_id)
    return unique_ids


def _label_map(
    named_regions: list[tuple[str, DrawnRegion]], grid: Volume
) -> tuple[Volume, list[Roi]]:
    """Return the label map of the regions, with one label per voxel, and a row for each region.

    Two regions may touch. If each of them fills half of a voxel, the voxel gets the label of the
    first. Regions that overlap raise an error.
    """
    labels = np.zeros(grid.shape, np.uint16)
    largest_share = np.zeros(grid.shape, np.float32)
    rois: list[Roi] = []
    for label, (roi_id, region) in enumerate(named_regions, start=1):
        if roi_id in (roi.roi_id for roi in rois):
            raise CadError(
                "two segments or contours carry this ROI's name", file=region.file, roi=roi_id
            )
        # Shares are sums of float32: a voxel that is filled by exactly one half may state a little
        # less.
        inside = region.share >= OCCUPANCY - 1e-6
        filled_twice = inside & (labels > 0)
        # Shares of regions that only touch add up to 1 at most.
        overlap = filled_twice & (region.share + largest_share > 1 + _TOUCHING)
        if overlap.any():
            overlapped = rois[int(labels[overlap][0]) - 1].roi_id  # labels count from 1
            problem = f"overlaps ROI {overlapped} in {int(overlap.sum())} voxels of the T2 grid"
            hint = "a voxel belongs to one ROI; separate them"
            raise CadError(problem, file=region.file, roi=roi_id, hint=hint)
        labels[inside & ~filled_twice] = label
        if not (labels == label).any():
            raise CadError(
                "every voxel that it fills to one half is filled to one half by other ROIs, too: "
                "nothing is left of it",
                file=region.file,
                roi=roi_id,
                hint="a voxel belongs to one ROI; separate them, or draw it larger",
            )
        largest_share = np.maximum(largest_share, np.where(inside, region.share, 0))
        rois.append(Roi(roi_id, label))
    return grid.with_array(labels), rois


def _roi_id(region: DrawnRegion, rules: ImportRules) -> str | None:
    """Return the ROI id in a region's name, with only characters that are safe in tables.

    The result is None if the rules do not call the name a ROI's name.
    """
    match = re.fullmatch(rules.roi_name, region.name.strip())
    if not match:
        return None
    # The id is the text of the pattern's group ``id``; without this group, of its first group; and
    # without groups, the whole name.
    text = match.groupdict().get("id")
    if not text:
        text = match.group(1) if match.groups() else match.group(0)
    clean = re.sub(r"[^\w.-]+", "_", text.strip()).strip("_")
    if not clean:
        return None
    if region.number:  # another region of the file has the same name
        return f"{clean}_{region.number}"
    return clean


def whole_numbers(path: Path) -> Volume:
    """Read a label map, whose values are whole numbers from 0 on.

    Parameters
    ----------
    path : Path
        An image file.

    Returns
    -------
    Volume
        The map, with voxels of type uint16.

    Raises
    ------
    CadError
        For fractions, NaN, negative labels, and labels above 65,535.
    """
    labels = read_label_map(path)
    highest = labels.array.max(initial=0)
    if highest > _LARGEST_LABEL:
        raise CadError(
            f"a label of {highest:.0f}, at most {_LARGEST_LABEL} is read",
            file=path,
            hint="number the regions from 1",
        )
    return labels.with_array(labels.array.astype(np.uint16))


def gland_mask(
    path: Path | None,
    values: Sequence[int],
    zones_path: Path | None,
    zones: ZonesRule | None,
    notes: list[str],
) -> Volume | None:
    """Return the mask of the gland as a person or any program drew it.

    Parameters
    ----------
    path : Path or None
        A mask, or a map of several organs or zones.
    values : sequence of int
        Numbers in the map that stand for the prostate. If there are none, all numbers but 0 do.
    zones_path : Path or None
        A zone map. If ``path`` is None, its zones together are the gland.
    zones : ZonesRule or None
        The numbers of the zone map.
    notes : list of str
        A message is appended where the mask is made from zones, or where a map holds none of the
        numbers of the gland.

    Returns
    -------
    Volume or None
        Boolean mask; None without a file, or where the file holds nothing of the gland.

    Raises
    ------
    CadError
        For fractions, NaN or negative labels.
    """
    gland_values = tuple(values)
    if path is None:
        if zones_path is None or zones is None:
            return None
        path = zones_path
        gland_values = tuple(zones.values)
        notes.append(f"gland mask made of the zones in {path.name}")
    labels = whole_numbers(path)
    inside = np.isin(labels.array, gland_values) if gland_values else labels.array != 0
    if not inside.any():
        other_values = []
        for value in np.unique(labels.array):
            if value:
                other_values.append(str(value))
        holds = f"holds {', '.join(other_values)}" if other_values else "is empty"
        wanted = f"none of {', '.join(map(str, gland_values))}; " if gland_values else ""
        notes.append(f"no gland mask: {wanted}{path.name} {holds}")
        return None
    return labels.with_array(inside)


def first_of(tops: Iterable[Path], places: Sequence[str], patient_id: str) -> Path | None:
    """Return the first file of a patient that a rule names in some folders; None without one.

    Parameters
    ----------
    tops : iterable of Path
        Folders that are searched, in this order.
    places : sequence of str
        Paths below these folders, as :func:`files_of` takes them.
    patient_id : str
        The patient's id in the source.
    """
    for top in tops:
        for place in places:
            path = _first_file(top, place, patient_id)
            if path is not None:
                return path
    return None


def _regions_of_label_map(path: Path) -> Labelled:
    """Return the regions of a label map; the label of a region is its ROI id."""
    label_map = whole_numbers(path)
    labels = []
    for label in np.unique(label_map.array):
        if label:  # 0 is outside of every region
            labels.append(int(label))
    if not labels:
        raise CadError(
            "the label map is empty", file=path, hint="draw the ROIs, or remove the file"
        )
    return Labelled(label_map, [Roi(str(label), label) for label in labels])


def detected(path: Path, rule: DetectorRule, notes: list[str]) -> Labelled | None:
    """Make a region of every connected candidate in a detector's map.

    A candidate is a connected set of voxels whose values reach the threshold; voxels are connected
    if they share a face, edge or corner. A region's confidence is the largest value in the region,
    or 1 where the map holds labels.

    Parameters
    ----------
    path : Path
        The map. It holds values from 0 to 1, or labels: whole numbers, where all but 0 count as 1.
    rule : DetectorRule
        Threshold, and the smallest volume of a candidate in mm3.
    notes : list of str
        A line is appended that counts the kept candidates and the candidates that were left out.

    Returns
    -------
    Labelled or None
        The regions, numbered from 1, on the map's grid; None where no candidate is large enough.

    Raises
    ------
    CadError
        For values that are neither labels nor within 0 to 1.
    """
    from scipy import ndimage  # slow to load, and only few sites have such maps

    volume = read_image(path)
    values = volume.array
    are_shares = np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1
    if not are_shares:
        # A map of labels: every voxel that has a label counts as 1.
        values = np.minimum(whole_numbers(path).array, 1)
    all_neighbours = np.ones((3, 3, 3))  # across faces, edges and corners
    candidates, count = ndimage.label(values >= rule.threshold, structure=all_neighbours)
    voxel_mm3 = float(np.prod(volume.spacing))
    volumes_mm3 = np.bincount(candidates.ravel(), minlength=count + 1) * voxel_mm3
    large = [number for number in range(1, count + 1) if volumes_mm3[number] >= rule.least]
    # The large candidates are numbered anew, from 1 without gaps; small ones become 0.
    label_of_candidate = np.zeros(count + 1, np.uint16)
    label_of_candidate[large] = np.arange(1, len(large) + 1)
    notes.append(
        f"{len(large)} regions outlined by a detector ({path.name}, at least {rule.threshold:g}, "
        f"{rule.least:g} mm3; {count - len(large)} smaller), seen by nobody"
    )
    if not large:
        return None
    rois = []
    highest_values = ndimage.maximum(values, candidates, large)
    for label, highest in enumerate(highest_values, start=1):
        rois.append(Roi(str(label), label, confidence=float(highest)))
    return Labelled(volume.with_array(label_of_candidate[candidates]), rois)


def outlined(top: Path, patient_id: str, rules: ImportRules, notes: list[str]) -> Labelled | None:
    """Return a patient's lesions from mask files, with histology and scores from their tables.

    Parameters
    ----------
    top : Path
        Folder that is imported.
    patient_id : str
        The patient's id in the source.
    rules : ImportRules
        The rules; ``outlines`` states the places of masks and tables, and the meaning of columns.
    notes : list of str
        Messages for the user are appended to it.

    Returns
    -------
    Labelled or None
        The lesions; a score that is missing in the table gives no row. None where no mask is drawn.

    Raises
    ------
    CadError
        For masks that are damaged, a table that is missing, or a table without a row for a lesion.
    """
    rule = rules.outlines
    if rule is None:
        return None
    lesions = _regions_of_masks(top, patient_id, rule, notes)
    if lesions is None:
        return None
    roi_ids = [roi.roi_id for roi in lesions.rois]
    rows_by_lesion = _listed_rows(top, patient_id, roi_ids, rule, notes)
    rois = []
    scores: list[dict[str, str]] = []
    for roi in lesions.rois:
        lesion_rows = rows_by_lesion.get(roi.roi_id, [])
        try:
            histology, isup = _tissue_of(lesion_rows, rule, notes)
        except CadError as error:
            raise error.naming(file=top / str(rule.table), roi=roi.roi_id) from None
        # Where the rules name template biopsies, these alone state the tissue.
        if rule.template and rule.template_zones:
            histology, isup = _template_of(top, patient_id, lesions.labels, roi, rule, notes)
        rois.append(replace(roi, histology=histology, isup=isup))
        for row in lesion_rows:
            # An empty score stays missing: it is no reading.
            if not rule.score_column or row[rule.score_column] in _NO_SCORE:
                continue
            scores.append(
                {
                    "patient_id": patient_id,
                    "roi_id": roi.roi_id,
                    "scale": rules.scale,
                    "reader_id": _reader_of(row, rule, rules),
                    "score": row[rule.score_column],
                }
            )
    return replace(lesions, rois=rois, scores=tuple(scores))


def _reader_of(row: dict[str, str], rule: OutlinesRule, rules: ImportRules) -> str:
    """Return the reader of a row's score: the reader that the row names, or else the first reader
    in the rules.
    """
    if rule.reader_column and row[rule.reader_column]:
        return row[rule.reader_column]
    if rules.readers:
        return rules.readers[0]
    return FIRST_READER


def _regions_of_masks(
    top: Path, patient_id: str, rule: OutlinesRule, notes: list[str]
) -> Labelled | None:
    """Return regions from masks with one lesion each, or from a label map.

    If several readers drew a lesion, it has the voxels that at least half of these readers drew.
    """
    masks_by_lesion: dict[str, list[Path]] = {}
    for place in rule.file:
        files = list(files_of(top, place, patient_id))
        # A file whose path names no lesion is a label map of all lesions.
        if files and "{roi}" not in place:
            _, path = files[0]
            if whole_numbers(path).array.any():
                return _regions_of_label_map(path)
            notes.append(f"{path.name} holds no lesion")
            return None
        paths_by_lesion: dict[str, list[Path]] = {}
        for roi_id, path in files:
            paths_by_lesion.setdefault(roi_id, []).append(path)
        # If two entries of the rule have files of one lesion, the files of the earlier entry count.
        masks_by_lesion = paths_by_lesion | masks_by_lesion
    if not masks_by_lesion:
        return None
    # All masks of a man are kept on one grid, which is that of the first.
    first_lesion = next(iter(masks_by_lesion))
    grid = whole_numbers(masks_by_lesion[first_lesion][0])
    labels = np.zeros(grid.shape, np.uint16)
    rois: list[Roi] = []
    n_masks = 0
    for label, (roi_id, paths) in enumerate(sorted(masks_by_lesion.items()), start=1):
        n_masks += len(paths)
        votes = []
        for path in paths:
            mask = whole_numbers(path)
            _check_within(mask, grid, path, roi_id)
            votes.append(resample_mask(mask, grid).array)
        share_of_readers = np.mean(votes, axis=0)
        inside = share_of_readers >= 0.5
        with located(file=paths[0], roi=roi_id):
            if not inside.any():
                raise CadError("the mask is empty")
            free = _uncovered(inside, labels, rois)
            labels[free] = label
        rois.append(Roi(roi_id, label))
    notes.append(f"{len(rois)} lesions from {n_masks} masks")
    return Labelled(grid.with_array(labels), rois)


def _check_within(mask: Volume, grid: Volume, path: Path, roi_id: str) -> None:
    """Refuse a mask that leaves the grid on which a man's masks are kept; it would be cut."""
    voxels_zyx = np.argwhere(mask.array)
    points = mask.index_to_patient(voxels_zyx[:, ::-1])
    beyond = outside_of(grid, points)
    if beyond.any():
        raise CadError(
            f"{int(beyond.sum())} of its {len(beyond)} voxels lie outside of the man's first mask, "
            "on whose grid all his masks are kept",
            file=path,
            roi=roi_id,
            hint="write all masks of a man on one grid, such as that of T2",
        )


def outlined_gland(tops: Iterable[Path], patient_id: str, rule: OutlinesRule) -> Path | None:
    """Return the path of a patient's prostate mask; None where no file matches the rules.

    Parameters
    ----------
    tops : iterable of Path
        Folders that are searched, in this order.
    patient_id : str
        The patient's id in the source.
    rule : OutlinesRule
        Its ``gland`` is the pattern of the mask's path below these folders.
    """
    if not rule.gland:
        return None
    return first_of(tops, [rule.gland], patient_id)


def drawn_series(
    tops: Iterable[Path], patient_id: str, rules: ImportRules, modality: str, notes: list[str]
) -> int | None:
    """Return the number of the DICOM series that a patient's masks were drawn on.

    Parameters
    ----------
    tops : iterable of Path
        Folders below which the table may lie.
    patient_id : str
        The patient's id in the source.
    rules : ImportRules
        Its ``outlines.images`` names the table that lists the series.
    modality : str
        ``t2w`` or ``adc``.
    notes : list of str
        A message is appended where the table lists several series.

    Returns
    -------
    int or None
        The first SeriesNumber; None for another modality, or where no table lists the patient.
    """
    column = {"t2w": "T2", "adc": "ADC"}.get(modality)
    # The table has columns for these two images only.
    if column is None or not rules.outlines or not rules.outlines.images:
        return None
    path = first_of(tops, [rules.outlines.images], patient_id)
    if path is None:
        return None
    # In the table, some names after the number have a letter (7a) or the ending .nii.gz. They are
    # the names of files that no longer exist.
    name_of_series = re.compile(re.escape(patient_id) + r"_.*_(\d+)[a-z]?(\.nii)?(\.gz)?")
    numbers: list[int] = []
    for row in read_rows(path, ("T2", "ADC")):
        match = name_of_series.fullmatch(row[column])
        if match and int(match[1]) not in numbers:
            numbers.append(int(match[1]))
    if not numbers:
        return None
    if len(numbers) > 1:
        listed = ", ".join(map(str, numbers))
        notes.append(
            f"{path.name} says that masks were drawn on series {listed} ({modality}); series "
            f"{numbers[0]} counts"
        )
    return numbers[0]


def files_of(top: Path, place: str, patient_id: str) -> Iterator[tuple[str, Path]]:
    """Find the files that a rule names for a patient, each with the ROI id in its path.

    Parameters
    ----------
    top : Path
        Folder that is searched.
    place : str
        Path below this folder; {patient}, {roi} and {reader} stand for ids, * for any text without
        /.
    patient_id : str
        The patient's id in the source.

    Yields
    ------
    (str, Path)
        The ROI id, empty where ``place`` has no {roi}; and the file.
    """
    # A PatientID may have any characters. It must not act as a pattern, nor lead into the folder of
    # another man.
    if ".." in patient_id.split("/"):
        return
    # Several stars in a row would be no pattern of pathlib.
    glob_pattern = re.sub(r"(\{roi\}|\{reader\}|\*)+", "*", place)
    glob_pattern = glob_pattern.replace("{patient}", glob.escape(patient_id))
    # The pattern alone accepts too much: its stars also fit characters that no id has.
    path_regex = re.escape(place).replace(r"\*", "[^/]*")
    path_regex = path_regex.replace(r"\{roi\}", "(?P<roi>[A-Za-z0-9]+)")
    path_regex = path_regex.replace(r"\{reader\}", "[A-Za-z0-9-]+")
    path_regex = path_regex.replace(r"\{patient\}", re.escape(patient_id))
    for path in sorted(top.glob(glob_pattern)):
        match = re.fullmatch(path_regex, path.relative_to(top).as_posix())
        if match and not leads_out(path, top):
            yield match.groupdict().get("roi", ""), path


def _first_file(top: Path, place: str, patient_id: str) -> Path | None:
    """Return the first of a patient's files that a rule names; None where there is none."""
    for _, path in files_of(top, place, patient_id):
        return path
    return None


def _listed_rows(
    top: Path, patient_id: str, roi_ids: list[str], rule: OutlinesRule, notes: list[str]
) -> dict[str, list[dict[str, str]]]:
    """Return the table rows of each lesion, by ROI id.

    A lesion's rows are found by the rule's key. If the key has no {roi}, the n-th row of the man
    that has a score belongs to lesion n.
    """
    if rule.table is None:
        return {}
    path = top / rule.table
    workbook = path.with_suffix(".xlsx")
    if not path.is_file() and workbook.is_file():
        raise CadError(
            "an Excel workbook is not read",
            file=workbook,
            hint=f"save its sheet as CSV (UTF-8) beside it: {path.name}",
        )
    columns = (rule.truth_column, rule.grade_column, rule.score_column, rule.reader_column)
    named_columns = [column for column in columns if column]
    table = read_rows(path, (*rule.key, *named_columns))

    def rows_of(roi_id: str) -> list[dict[str, str]]:
        rows = table
        # A row must meet every condition of the key.
        conditions = []
        for column, template in rule.key.items():
            value = template.replace("{patient}", patient_id).replace("{roi}", roi_id)
            rows = [row for row in rows if _same_id(row[column], value)]
            conditions.append(f"{column} = {value!r}")
        if not rows:
            raise CadError(f"no row {', '.join(conditions)}", file=path, roi=roi_id)
        return rows

    if any("{roi}" in value for value in rule.key.values()):
        return {roi_id: rows_of(roi_id) for roi_id in roi_ids}
    # The key has no {roi}, so no id is needed to find the man's rows. With such a key, the rules
    # name a score column.
    numbered: dict[str, list[dict[str, str]]] = {}
    for row in rows_of(""):
        if row.get(str(rule.score_column)) not in _NO_SCORE:
            numbered[str(len(numbered) + 1)] = [row]
    if set(numbered) != set(roi_ids):
        notes.append(
            f"{path.name} has {len(numbered)} scores, the map lesions {', '.join(roi_ids)}: a "
            "score without a lesion is left out, a lesion without one waits for it"
        )
    return numbered


def _same_id(first: str, second: str) -> bool:
    """Tell whether two ids are equal except for leading zeros: folder 001 is patient 1."""
    return whole_cell(first).lstrip("0") == whole_cell(second).lstrip("0")


def _truth_of(cell: str, notes: list[str]) -> str | None:
    """Return the histology that a cell states; None, perhaps with a note, if it states none."""
    word = whole_cell(cell)
    if word.lower() not in _TRUTH and word not in _NO_SCORE:
        notes.append(f"{word[:_LONGEST_SHOWN]!r} is neither true nor false: the tissue is unknown")
    return _TRUTH.get(word.lower())


def _significant(tissue: str | None) -> tuple[str, str]:
    """Return histology and grade of a lesion if only its clinical significance is known.

    ``tissue`` is ``malignant`` for a significant lesion, which is cancer of ISUP 2 or more. It is
    ``benign`` for any other known lesion, and None for an unknown one. A lesion that is not
    significant is cancer of ISUP 1 or no cancer; the table does not state which of the two. Its
    histology is therefore ``n/a``. A grade is returned as a range, such as ``<=1``.
    """
    if tissue is None:
        return "n/a", "n/a"
    if tissue == "malignant":
        return "malignant", SIGNIFICANT
    return "n/a", NOT_SIGNIFICANT


def _tissue_of(rows: list[dict[str, str]], rule: OutlinesRule, notes: list[str]) -> tuple[str, str]:
    """Return histology and grade of a lesion from its rows.

    A lesion of grade 1 is malignant, even if the table calls it not clinically significant.
    """
    outcomes: set[tuple[str, str]] = set()
    for row in rows:
        grade = ""
        if rule.grade_column:
            grade = whole_cell(row[rule.grade_column])
        tissue = None
        if rule.truth_column:
            tissue = _truth_of(row[rule.truth_column], notes)
        if grade in ("1", "2", "3", "4", "5"):
            # In a table of significance, grade 1 belongs to False and grades 2 to 5 to True.
            insignificant = rule.truth_means == "significant" and grade == "1"
            false_with_high_grade = tissue == "benign" and grade != "1"
            true_with_low_grade = tissue == "malignant" and insignificant
            if false_with_high_grade or true_with_low_grade:
                raise CadError(f"its row says {row[str(rule.truth_column)]} and grade {grade}")
            outcomes.add(("malignant", grade))
            continue
        # For benign tissue any text is allowed here: it may say why there is no grade.
        if grade not in _NO_SCORE and tissue != "benign":
            notes.append(f"{grade[:_LONGEST_SHOWN]!r} is no grade 1 to 5: the grade is unknown")
        if tissue and rule.truth_means == "significant":
            outcomes.add(_significant(tissue))
        elif tissue:
            outcomes.add((tissue, "n/a"))
    if len(outcomes) > 1:
        tissues = [grade_words(grade) or histology for histology, grade in sorted(outcomes)]
        raise CadError(f"its rows say different tissue: {', '.join(tissues)}")
    if not outcomes:
        return "n/a", "n/a"
    return outcomes.pop()


def _template_of(
    top: Path, patient_id: str, labels: Volume, roi: Roi, rule: OutlinesRule, notes: list[str]
) -> tuple[str, str]:
    """Return histology and grade from template biopsies of the zones in which a lesion lies.

    Zones count that hold at least a tenth of the lesion. The lesion is malignant, with the highest
    grade, if one of these zones had cancer. It is benign if all these zones were sampled and none
    had cancer. Otherwise histology and grade are unknown.
    """
    paths = []
    for place in (str(rule.template), str(rule.template_zones)):
        path = _first_file(top, place, patient_id)
        if path is None:
            absent = place.replace("{patient}", patient_id)
            note = f"no tissue by template: {absent} is not there"
            if note not in notes:  # the man's earlier lesions may have left it already
                notes.append(note)
            return "n/a", "n/a"
        paths.append(path)
    report, zone_map = paths
    zone_of_voxel = _values_in(zone_map, labels, roi.label)
    zone_ids, voxels_in_zone = np.unique(zone_of_voxel, return_counts=True)
    voxels_of_lesion = (labels.array == roi.label).sum()
    holds_enough = voxels_in_zone >= _LEAST_SHARE_IN_ZONE * voxels_of_lesion
    zones_of_lesion = zone_ids[(zone_ids > 0) & holds_enough]  # 0 is outside of all zones
    rows_by_zone: dict[float, list[dict[str, str]]] = {float(zone): [] for zone in zones_of_lesion}
    with reading(report, "not a table of template biopsies"):
        for row in read_rows(report, _TEMPLATE):
            zone = float(row["zone_id"] or "nan")  # NaN, for an empty cell, equals no zone
            if zone in rows_by_zone:
                rows_by_zone[zone].append(row)
    has_cancer = False
    highest_grade = 0  # stays 0 if no grade is stated
    zones_sampled = []
    for rows in rows_by_zone.values():
        zones_sampled.append(any(whole_cell(row["samtaken"]) == "1" for row in rows))
        for row in rows:
            if whole_cell(row["zprescancer"]) == "1":
                has_cancer = True
                highest_grade = max(highest_grade, _zone_grade(row))
    if has_cancer:
        return "malignant", str(highest_grade) if highest_grade else "n/a"
    # Without any zone nothing was sampled, although all() of an empty list is True.
    if zones_sampled and all(zones_sampled):
        return "benign", "n/a"
    return "n/a", "n/a"


def _zone_grade(row: dict[str, str]) -> int:
    """Return the grade of a zone's biopsies; 0 if none is stated."""
    # A program may have written whole numbers as 4.0, because the column has empty cells.
    primary = whole_cell(row["zprimgleason"])
    secondary = whole_cell(row["zsecondgleason"])
    return gleason_grade(f"{primary}+{secondary}") or 0


def gleason_grade(text: str) -> int | None:
    """Return the ISUP grade, 0 to 5, of a Gleason score that is written as text.

    6 and less is grade 1, 3+4 is 2, 4+3 is 3, 8 is 4, 9 and 10 are 5. ``0+0`` means no cancer and
    is grade 0.

    Parameters
    ----------
    text : str
        Gleason score as two patterns, such as ``3+4``. A single digit from 0 to 5 is an ISUP grade
        already. It is returned as it is, also from ``3.0``.

    Returns
    -------
    int or None
        The grade; None for every other text, such as ``N/A`` or the sum ``7``. No error is raised.
    """
    text = whole_cell(text)
    if text in ("0", "1", "2", "3", "4", "5"):
        return int(text)
    match = re.fullmatch(r"([0-5])\+([0-5])", text)
    if match is None:
        return None
    first = int(match[1])
    total = first + int(match[2])
    if total == 0:
        return 0
    if total <= 6:
        return 1
    if total == 7:
        # ISUP 2014: 3+4 is grade 2 and 4+3 grade 3, although both sums are 7.
        return 3 if first == 4 else 2
    return 4 if total == 8 else 5


def grade_lesions(grades: Volume) -> Labelled:
    """Make every connected lesion of a map one region.

    Parameters
    ----------
    grades : Volume
        Map of lesions: a voxel's value is the ISUP grade of its lesion, or 0 outside of lesions.

    Returns
    -------
    Labelled
        Lesions numbered from 1, each malignant and with its ISUP grade.

    Raises
    ------
    CadError
        For a connected lesion whose voxels have different grades, or a grade above 5.
    """
    lesion_mask = grades.with_array(grades.array != 0).to_sitk()
    # True: voxels that share an edge or corner are connected, too.
    labels = sitk.GetArrayFromImage(sitk.ConnectedComponent(lesion_mask, True))
    rois = []
    for label in range(1, int(labels.max()) + 1):
        values = np.unique(grades.array[labels == label])
        if len(values) > 1 or values[0] > 5:
            raise CadError(
                f"a lesion's value is its ISUP grade 1 to 5; found {values.tolist()} in one lesion",
                roi=label,
            )
        rois.append(Roi(str(label), label, histology="malignant", isup=str(values[0])))
    return Labelled(grades.with_array(labels.astype(np.uint16)), rois)
