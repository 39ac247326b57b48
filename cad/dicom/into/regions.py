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
_TENTH = 0.1  # a zone's biopsies count for a lesion if the zone holds at least this share of it


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
    lesion = study.beside(rules.lesion)
    drawn = []
    for path in study.objects:
        dataset = read_dataset(path, force=True)  # it may lack the preamble
        # An object that this program sent to the archive is a result and not an annotation.
        if dataset.get("ManufacturerModelName") == OWN_MODEL_NAME:
            notes.append(f"{path.name} is a result of this program, and no drawing; it is left out")
        else:
            drawn.append((path, dataset))
    sources = [path.name for path in (label_map, lesion) if path]
    if drawn:
        sources.append("DICOM SEG or RTSTRUCT")
    if len(sources) > 1:
        problem = f"the study has {len(sources)} sources of ROIs: {', '.join(sources)}"
        raise CadError(problem, file=study.top, hint="keep the one that counts beside the series")
    labelled: Labelled | None = None
    if label_map:
        labelled = _regions_of_label_map(label_map)
    elif lesion:
        grades = whole_numbers(lesion)
        if not grades.array.any():
            notes.append(f"{lesion.name} holds no lesion")
            return None
        labelled = grade_lesions(grades)
    elif drawn:
        labelled = _from_objects(study, rules, reference, drawn, notes)
    elif ours := _outlined_beside(study, rules, notes):
        labelled = ours
    elif reference is not None and (
        points := _balls_of_findings(study, rules, reference.grid, notes)
    ):
        labelled = points
        if rules.findings:
            notes.append(
                f"{len(labelled.rois)} regions are balls of {rules.findings.radius:g} mm around "
                "the points of a table, not drawn lesions; malignant means clinically significant"
            )
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
    if reference is None:
        raise CadError(
            "SEG or RTSTRUCT objects but no T2 or ADC series to draw them on", file=objects[0][0]
        )
    head = reference.first
    grid = reference.grid
    names: list[str] = []
    drawn_regions: list[DrawnRegion] = []

    def wanted(name: str) -> bool:
        return re.fullmatch(rules.roi_name, name.strip()) is not None

    for path, dataset in objects:
        drawn_on = grid
        images: list[Frame] = []
        if has_regions(dataset, path, wanted):
            drawn_on, images = _drawn_images(study, dataset, path, reference, wanted, notes)
        try:
            regions, remarks = read_drawn_regions(
                dataset, path, drawn_on, head.frame_uid, grid, wanted, images
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
            if roi_id:
                names.append(roi_id)
                drawn_regions.append(region)
    if not names:
        notes.append("no segment or contour has a name that the rules call a ROI")
        return None
    ids = _neutral(names, rules, notes)
    labels, rois = _label_map(list(zip(ids, drawn_regions, strict=True)), grid)
    return Labelled(labels, rois, head.frame_uid)


def _neutral(ids: list[str], rules: ImportRules, notes: list[str]) -> list[str]:
    """Replace ROI ids by numbers, except those that the rules keep: their text may name the
    patient.
    """
    if rules.labels != "pseudonym":
        return ids
    unchanged = {name for name in ids if rules.keeps(name)}
    neutral = []
    number = 0
    replaced = 0
    for name in ids:
        if name in unchanged:
            neutral.append(name)
            continue
        number += 1
        while str(number) in unchanged:
            number += 1
        neutral.append(str(number))
        replaced += 1
    if replaced:
        notes.append(f"{replaced} ROI names replaced by numbers: names are free text")
    return neutral


def _drawn_images(
    study: SourceStudy,
    dataset: Dataset,
    path: Path,
    reference: Stack,
    wanted: Callable[[str], bool],
    notes: list[str],
) -> tuple[Volume, list[Frame]]:
    """Return the grid and the images of the series that a SEG or RTSTRUCT object was drawn on.

    In two cases the grid of the reference image is taken, and a note says so: the object names no
    series, or it is a SEG and the study lacks the series that it names. An RTSTRUCT whose series
    the study lacks is refused, because only the images of this series tell in which planes its
    contours lie.
    """
    with reading(path, "not a sound SEG or RTSTRUCT object"):
        named = referenced_images(dataset)
        contoured = contour_images(dataset, wanted)
        is_seg = is_segmentation(dataset)
    images_frame = reference.first.frame_uid
    if not images_frame:
        notes.append(
            f"the images state no frame of reference, with which that of {path.name} could be "
            "compared"
        )
    if not named:
        notes.append(
            f"{path.name} does not say which series it was drawn on; series "
            f"{reference.first.series_number} is taken"
        )
        return reference.grid, []
    series = {}  # the frames of each series that the study has, by its UID
    for uid in named:
        frames = [frame for frame in study.slices if frame.series_uid == uid]
        if frames:
            series[uid] = frames
    uids = ", ".join(printable(uid) for uid in named)
    if not series:
        frame_uid = str(dataset.get("FrameOfReferenceUID", "") or "")
        if not is_seg or not frame_uid or frame_uid != images_frame:
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
    for uid, frames in series.items():
        _check_instances(named[uid], frames, uid, path, notes)
    if is_seg:  # a segmentation object states its own grid
        return reference.grid, list(chain.from_iterable(series.values()))
    if len(series) > 1:
        drawn = {}
        for uid, frames in series.items():
            if any(frame.sop_uid in contoured for frame in frames):
                drawn[uid] = frames
        series = drawn or series
    grids = [stacks_of(frames)[0].grid for frames in series.values()]
    if any(not grid.same_grid(grids[0]) for grid in grids[1:]):
        raise CadError(
            f"drawn on {len(grids)} series of different grids, SeriesInstanceUID {uids}; it is not "
            "known in whose planes the contours lie",
            file=path,
            hint="export a structure set for each series",
        )
    drawn_images = list(chain.from_iterable(series.values()))
    other_frames = {image.frame_uid for image in drawn_images} - {images_frame, ""}
    if images_frame and other_frames:
        raise CadError(
            "drawn on a series in another frame of reference: FrameOfReferenceUID "
            f"{other_frames.pop()}, series {reference.first.series_number} is in {images_frame}",
            file=path,
            hint=f"draw the ROI on series {reference.first.series_number}",
        )
    return grids[0], drawn_images


def _check_instances(
    named: list[str], frames: list[Frame], uid: str, path: Path, notes: list[str]
) -> None:
    """Refuse an object if its series has none of the images that the object names.

    If the series lacks only some of these images, a note says so.
    """
    instances = {frame.sop_uid for frame in frames}
    absent = [instance for instance in named if instance not in instances]
    if not absent:
        return
    if len(absent) == len(named):
        raise CadError(
            f"drawn on the image of ReferencedSOPInstanceUID {printable(absent[0])}, which the "
            f"series of SeriesInstanceUID {printable(uid)} does not have, as none of the "
            f"{len(named)} images that it names",
            file=path,
            hint="export images and drawing together, or draw the ROI on these images",
        )
    notes.append(
        f"{path.name} names {len(absent)} images that its series does not have, of {len(named)}"
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
        values = _values_in(path, labelled.labels, roi.label)
        counts: dict[str, int] = {}
        for value, name in rule.values.items():
            # A map may have different numbers for the left and right half of a zone.
            counts[name] = counts.get(name, 0) + int((values == value).sum())
        zone = max(counts, key=lambda name: counts[name])
        if counts[zone] == 0:
            zone = "n/a"
        rois.append(replace(roi, zone=zone))
    return replace(labelled, rois=rois)


def _values_in(path: Path, labels: Volume, label: int) -> np.ndarray:
    """Return the values that a map of whole numbers has at a region's voxels."""
    zones = whole_numbers(path)
    points = labels.index_to_patient(np.argwhere(labels.array == label)[:, ::-1])
    index = np.round(zones.patient_to_index(points)).astype(int)
    size = np.array(zones.shape[::-1])
    inside = ((index >= 0) & (index < size)).all(axis=1)
    x, y, z = index[inside].T
    return np.asarray(zones.array[z, y, x])


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
    places = grid.index_to_patient(np.stack([x, y, z], axis=-1))
    labels = np.zeros(grid.shape, np.uint16)
    names = _unique([finding.fid for finding in findings], rules, notes)
    ids = _neutral(names, rules, notes)
    rois: list[Roi] = []
    for label, finding in enumerate(findings, start=1):
        inside = np.linalg.norm(places - finding.point, axis=-1) <= rules.findings.radius
        roi_id = ids[label - 1]
        # The ball of a point beside the image may still reach into it.
        if outside_of(grid, np.array([finding.point])).any() or not inside.any():
            place = " ".join(f"{number:g}" for number in finding.point)
            raise CadError(
                f"finding {finding.name} at {place} mm lies outside the T2 image",
                file=finding.file,
                hint="correct pos, or import the image on which the lesion was found",
            )
        _note_cut(finding, rules.findings.radius, grid, notes)
        with located(file=finding.file, roi=roi_id):
            labels[_uncovered(inside, labels, rois)] = label
        histology, isup = _significant(_truth_of(finding.significance, notes))
        rois.append(Roi(roi_id, label, finding.zone, histology, isup))
    return Labelled(grid.with_array(labels), rois)


def _note_cut(finding: FindingRow, radius: float, grid: Volume, notes: list[str]) -> None:
    """Note a ball that the border of the image cuts."""
    depth = grid.patient_to_index(np.array(finding.point))
    first = (depth + 0.5) * grid.spacing
    last = (np.array(grid.shape[::-1]) - 0.5 - depth) * grid.spacing
    # The ball reaches beyond the outermost voxels' centres by less than half a voxel anyway.
    slack = np.array(grid.spacing) / 2
    if (first + slack < radius).any() or (last + slack < radius).any():
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
        counts = np.bincount(labels[inside & (labels > 0)])
        other = rois[int(counts.argmax()) - 1].roi_id
        raise CadError(
            f"another lesion covers half of it or more: {int(free.sum())} of its {n_inside} voxels "
            f"are free, most others belong to ROI {other}",
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


def _unique(ids: list[str], rules: ImportRules, notes: list[str]) -> list[str]:
    """Return the ROI ids of findings, made unique: a repeated id gets a number at its end.

    ``notes`` gets a sentence on each such id.
    """
    taken: list[str] = []
    for name in ids:
        number = 1
        free = name
        while free in taken or (free != name and free in ids):
            number += 1
            free = f"{name}_{number}"
        if free != name:
            if rules.keeps(name):
                notes.append(
                    f"two findings are called {name} at different places: one is ROI {free}"
                )
            else:
                notes.append("two findings have one id at different places: they are two ROIs")
        taken.append(free)
    return taken


def _label_map(named: list[tuple[str, DrawnRegion]], grid: Volume) -> tuple[Volume, list[Roi]]:
    """Return the label map of the regions, with one label per voxel, and a row for each region.

    Two regions may touch. If each of them fills half of a voxel, the voxel gets the label of the
    first. Regions that overlap raise an error.
    """
    labels = np.zeros(grid.shape, np.uint16)
    best = np.zeros(grid.shape, np.float32)
    rows: list[Roi] = []
    for label, (roi_id, region) in enumerate(named, start=1):
        if roi_id in (row.roi_id for row in rows):
            raise CadError(
                "two segments or contours carry this ROI's name", file=region.file, roi=roi_id
            )
        # Shares are sums of float32. With the tolerance, a voxel that is filled by exactly one half
        # counts.
        inside = region.share >= OCCUPANCY - 1e-6
        both = inside & (labels > 0)
        overlap = both & (region.share + best > 1 + _TOUCHING)
        if overlap.any():
            overlapped = rows[int(labels[overlap][0]) - 1].roi_id
            problem = f"overlaps ROI {overlapped} in {int(overlap.sum())} voxels of the T2 grid"
            hint = "a voxel belongs to one ROI; separate them"
            raise CadError(problem, file=region.file, roi=roi_id, hint=hint)
        labels[inside & ~both] = label
        if not (labels == label).any():
            raise CadError(
                "every voxel that it fills to one half is filled to one half by other ROIs, too: "
                "nothing is left of it",
                file=region.file,
                roi=roi_id,
                hint="a voxel belongs to one ROI; separate them, or draw it larger",
            )
        best = np.maximum(best, np.where(inside, region.share, 0))
        rows.append(Roi(roi_id, label))
    return grid.with_array(labels), rows


def _roi_id(region: DrawnRegion, rules: ImportRules) -> str | None:
    """Return the ROI id in a region's name, with only characters that are safe in tables.

    The result is None if the rules do not call the name a ROI's name.
    """
    match = re.fullmatch(rules.roi_name, region.name.strip())
    if not match:
        return None
    text = match.groupdict().get("id")
    if not text:
        text = match.group(1) if match.groups() else match.group(0)
    clean = re.sub(r"[^\w.-]+", "_", text.strip()).strip("_")
    if not clean:
        return None
    if region.number:
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
        present = []
        for value in np.unique(labels.array):
            if value:
                present.append(str(value))
        holds = f"holds {', '.join(present)}" if present else "is empty"
        numbers = f"none of {', '.join(map(str, gland_values))}; " if gland_values else ""
        notes.append(f"no gland mask: {numbers}{path.name} {holds}")
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
    volume = whole_numbers(path)
    labels = []
    for label in np.unique(volume.array):
        if label:
            labels.append(int(label))
    if not labels:
        raise CadError(
            "the label map is empty", file=path, hint="draw the ROIs, or remove the file"
        )
    return Labelled(volume, [Roi(str(label), label) for label in labels])


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
        values = np.minimum(whole_numbers(path).array, 1)
    labels, count = ndimage.label(values >= rule.threshold, structure=np.ones((3, 3, 3)))
    voxel = float(np.prod(volume.spacing))
    sizes = np.bincount(labels.ravel(), minlength=count + 1) * voxel
    large = [label for label in range(1, count + 1) if sizes[label] >= rule.least]
    order = np.zeros(count + 1, np.uint16)
    order[large] = np.arange(1, len(large) + 1)
    notes.append(
        f"{len(large)} regions outlined by a detector ({path.name}, at least {rule.threshold:g}, "
        f"{rule.least:g} mm3; {count - len(large)} smaller), seen by nobody"
    )
    if not large:
        return None
    highest = ndimage.maximum(values, labels, large)
    rois = [Roi(str(n), n, confidence=float(v)) for n, v in enumerate(highest, start=1)]
    return Labelled(volume.with_array(order[labels]), rois)


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
    drawn = _regions_of_masks(top, patient_id, rule, notes)
    if drawn is None:
        return None
    rows = _listed_rows(top, patient_id, [roi.roi_id for roi in drawn.rois], rule, notes)
    rois = []
    scores: list[dict[str, str]] = []
    for roi in drawn.rois:
        of_lesion = rows.get(roi.roi_id, [])
        try:
            histology, isup = _tissue_of(of_lesion, rule, notes)
        except CadError as error:
            raise error.naming(file=top / str(rule.table), roi=roi.roi_id) from None
        if rule.template and rule.template_zones:
            histology, isup = _template_of(top, patient_id, drawn.labels, roi, rule, notes)
        rois.append(replace(roi, histology=histology, isup=isup))
        for row in of_lesion:
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
    return replace(drawn, rois=rois, scores=tuple(scores))


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
    masks: dict[str, list[Path]] = {}
    for place in rule.file:
        drawn = list(files_of(top, place, patient_id))
        if drawn and "{roi}" not in place:
            path = drawn[0][1]
            if whole_numbers(path).array.any():
                return _regions_of_label_map(path)
            notes.append(f"{path.name} holds no lesion")
            return None
        named: dict[str, list[Path]] = {}
        for roi_id, path in drawn:
            named.setdefault(roi_id, []).append(path)
        # If two entries of the rule have files of one lesion, the files of the earlier entry count.
        masks = named | masks
    if not masks:
        return None
    first = next(iter(masks))
    grid = whole_numbers(masks[first][0])
    labels = np.zeros(grid.shape, np.uint16)
    rois: list[Roi] = []
    count = 0
    for label, (roi_id, paths) in enumerate(sorted(masks.items()), start=1):
        count += len(paths)
        votes = []
        for path in paths:
            mask = whole_numbers(path)
            _check_within(mask, grid, path, roi_id)
            votes.append(resample_mask(mask, grid).array)
        inside = np.mean(votes, axis=0) >= 0.5
        with located(file=paths[0], roi=roi_id):
            if not inside.any():
                raise CadError("the mask is empty")
            labels[_uncovered(inside, labels, rois)] = label
        rois.append(Roi(roi_id, label))
    notes.append(f"{len(rois)} lesions from {count} masks")
    return Labelled(grid.with_array(labels), rois)


def _check_within(mask: Volume, grid: Volume, path: Path, roi_id: str) -> None:
    """Refuse a mask that leaves the grid on which a man's masks are kept; it would be cut."""
    points = mask.index_to_patient(np.argwhere(mask.array)[:, ::-1])
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
    if column is None or not rules.outlines or not rules.outlines.images:
        return None
    path = first_of(tops, [rules.outlines.images], patient_id)
    if path is None:
        return None
    # In the table, some names after the number have a letter (7a) or the ending .nii.gz. They are
    # the names of files that no longer exist.
    name = re.compile(re.escape(patient_id) + r"_.*_(\d+)[a-z]?(\.nii)?(\.gz)?")
    numbers: list[int] = []
    for row in read_rows(path, ("T2", "ADC")):
        match = name.fullmatch(row[column])
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
    pattern = re.sub(r"(\{roi\}|\{reader\}|\*)+", "*", place)
    pattern = pattern.replace("{patient}", glob.escape(patient_id))
    text = re.escape(place).replace(r"\*", "[^/]*")
    text = text.replace(r"\{roi\}", "(?P<roi>[A-Za-z0-9]+)")
    text = text.replace(r"\{reader\}", "[A-Za-z0-9-]+")
    text = text.replace(r"\{patient\}", re.escape(patient_id))
    for path in sorted(top.glob(pattern)):
        match = re.fullmatch(text, path.relative_to(top).as_posix())
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
    book = path.with_suffix(".xlsx")
    if not path.is_file() and book.is_file():
        raise CadError(
            "an Excel workbook is not read",
            file=book,
            hint=f"save its sheet as CSV (UTF-8) beside it: {path.name}",
        )
    columns = (rule.truth_column, rule.grade_column, rule.score_column, rule.reader_column)
    named_columns = [column for column in columns if column]
    table = read_rows(path, (*rule.key, *named_columns))

    def rows_of(roi_id: str) -> list[dict[str, str]]:
        rows = table
        conditions = []
        for column, template in rule.key.items():
            text = template.replace("{patient}", patient_id).replace("{roi}", roi_id)
            rows = [row for row in rows if _same_id(row[column], text)]
            conditions.append(f"{column} = {text!r}")
        if not rows:
            raise CadError(f"no row {', '.join(conditions)}", file=path, roi=roi_id)
        return rows

    if any("{roi}" in text for text in rule.key.values()):
        return {roi_id: rows_of(roi_id) for roi_id in roi_ids}
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
        notes.append(f"{word[:40]!r} is neither true nor false: the tissue is unknown")
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
            insignificant = rule.truth_means == "significant" and grade == "1"
            contradicted = tissue == "benign" and grade != "1"
            if contradicted or (tissue == "malignant" and insignificant):
                raise CadError(f"its row says {row[str(rule.truth_column)]} and grade {grade}")
            outcomes.add(("malignant", grade))
            continue
        # For benign tissue any text is allowed here: it may say why there is no grade.
        if grade not in _NO_SCORE and tissue != "benign":
            notes.append(f"{grade[:40]!r} is no grade 1 to 5: the grade is unknown")
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
    files = []
    for place in (str(rule.template), str(rule.template_zones)):
        path = _first_file(top, place, patient_id)
        if path is None:
            absent = place.replace("{patient}", patient_id)
            note = f"no tissue by template: {absent} is not there"
            if note not in notes:
                notes.append(note)
            return "n/a", "n/a"
        files.append(path)
    report, zones = files
    values, counts = np.unique(_values_in(zones, labels, roi.label), return_counts=True)
    voxels = (labels.array == roi.label).sum()
    held = values[(values > 0) & (counts >= _TENTH * voxels)]
    by_zone: dict[float, list[dict[str, str]]] = {float(zone): [] for zone in held}
    with reading(report, "not a table of template biopsies"):
        for row in read_rows(report, _TEMPLATE):
            zone = float(row["zone_id"] or "nan")
            if zone in by_zone:
                by_zone[zone].append(row)
    cancer = False
    highest = 0
    sampled = []
    for rows in by_zone.values():
        sampled.append(any(whole_cell(row["samtaken"]) == "1" for row in rows))
        for row in rows:
            if whole_cell(row["zprescancer"]) == "1":
                cancer = True
                highest = max(highest, _zone_grade(row))
    if cancer:
        return "malignant", str(highest) if highest else "n/a"
    if sampled and all(sampled):
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
    drawn = grades.with_array(grades.array != 0).to_sitk()
    labels = sitk.GetArrayFromImage(sitk.ConnectedComponent(drawn, True))
    rows = []
    for label in range(1, int(labels.max()) + 1):
        values = np.unique(grades.array[labels == label])
        if len(values) > 1 or values[0] > 5:
            raise CadError(
                f"a lesion's value is its ISUP grade 1 to 5; found {values.tolist()} in one lesion",
                roi=label,
            )
        rows.append(Roi(str(label), label, histology="malignant", isup=str(values[0])))
    return Labelled(grades.with_array(labels.astype(np.uint16)), rows)
