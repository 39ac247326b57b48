"""The regions of a study: one label map and its rows, from the one source that there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset
from scipy import ndimage

from cad.dicom.into.rules import DetectorRule, ImportRules, OutlinesRule, ZonesRule
from cad.dicom.into.sources import SourceStudy
from cad.dicom.own import OWN_MODEL_NAME
from cad.errors import CadError
from cad.imaging.annotations import DrawnRegion, read_object, read_regions, referenced_series
from cad.imaging.geometry import OCCUPANCY, resample_mask
from cad.imaging.nifti import read_image
from cad.imaging.stacks import Stack, stacks_of
from cad.imaging.study import Roi
from cad.imaging.volume import Volume
from cad.reading import read_rows, reading

# Two regions that share a border may fill a voxel by half each, and rounding adds a little.
_TOUCHING = 0.02
_SMALL_NUMBER = re.compile(r"[1-9][0-9]{0,2}")
_ZONES = ("PZ", "TZ", "CZ", "AFS")


@dataclass(frozen=True, eq=False)
class Labelled:
    """Hold a label map, the rows of its regions, its frame of reference and what to tell."""

    labels: Volume
    rois: list[Roi]
    frame_uid: str = ""


def find_regions(
    study: SourceStudy, rules: ImportRules, reference: Stack | None, notes: list[str]
) -> Labelled | None:
    """Return the label map of a study; None where nothing is drawn.

    Parameters
    ----------
    study : SourceStudy
        What was found.
    rules : ImportRules
        File names beside the series, and which names of segments and structures are regions.
    reference : Stack or None
        The T2 (else ADC) image on whose grid DICOM objects are brought.
    notes : list of str
        Receives what to tell.

    Raises
    ------
    CadError
        For two sources of regions, and regions that are not sound or not of this patient.
    """
    label_map, lesion = study.beside(rules.rois), study.beside(rules.lesion)
    objects = [(path, read_object(path)) for path in study.objects]
    # What this project sent to the archive earlier is a result, not an annotation.
    drawn = [(p, d) for p, d in objects if d.get("ManufacturerModelName") != OWN_MODEL_NAME]
    sources = [p.name for p in (label_map, lesion) if p]
    sources += ["DICOM SEG or RTSTRUCT"] if drawn else []
    if len(sources) > 1:
        raise CadError(
            f"the study has {len(sources)} sources of ROIs: {', '.join(sources)}",
            file=study.top,
            hint="keep the one that counts beside the series",
        )
    found: Labelled | None = None
    if label_map:
        found = _labelled(label_map)
    elif lesion:
        grades = whole_numbers(lesion)
        if not grades.array.any():
            notes.append(f"{lesion.name} holds no lesion")
            return None
        found = grade_lesions(grades)
    elif rules.detector and (path := study.beside(rules.detector.file)) and not drawn:
        found = detected(path, rules.detector, notes)
    elif drawn:
        found = _from_objects(study, rules, reference, drawn, notes)
    elif ours := outlined(study.top, study.patient_id, rules.outlines, notes):
        found = ours
    elif reference is not None:
        found = _findings(study, rules, reference.grid, notes)
        if found and rules.findings:
            notes.append(
                f"{len(found.rois)} regions are balls of {rules.findings.radius:g} mm around the "
                "points of a table, not drawn lesions; malignant means clinically significant"
            )
    if found is None:
        return None
    zones = study.beside(rules.zones.file) if rules.zones else None
    rois = [with_zone(roi, found.labels, zones, rules.zones) for roi in found.rois]
    return replace(found, rois=rois)


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
    head, grid = reference.first, reference.grid
    named: list[tuple[str, DrawnRegion]] = []

    def wanted(name: str) -> bool:
        return re.fullmatch(rules.roi_name, name.strip()) is not None

    for path, dataset in objects:
        drawn_on = _series_grid(study, referenced_series(dataset)) or grid
        try:
            found, said = read_regions(dataset, path, drawn_on, head.frame_uid, grid, wanted=wanted)
        except CadError as error:
            if rules.labels != "pseudonym":
                raise
            error.roi = ""  # its name is free text; the file says which one it is
            raise
        notes += said
        named += [(roi_id, r) for r in found if (roi_id := _roi_id(r, rules))]
    if not named:
        notes.append("no segment or contour has a name that the rules call a ROI")
        return None
    ids = _neutral([roi_id for roi_id, _ in named], rules, notes)
    regions = [region for _, region in named]
    labels, rois = _label_map(list(zip(ids, regions, strict=True)), grid)
    return Labelled(labels, rois, head.frame_uid)


def _neutral(ids: list[str], rules: ImportRules, notes: list[str]) -> list[str]:
    """Replace ROI ids that are neither small numbers nor allowed: free text may name the patient.

    A longer number may be a birth date or the patient's own number.
    """
    if rules.labels != "pseudonym":
        return ids
    kept = {i for i in ids if _SMALL_NUMBER.fullmatch(i) or i in rules.roi_ids}
    free = (str(n) for n in range(1, 2 * len(ids) + 1) if str(n) not in kept)
    neutral = [i if i in kept else next(free) for i in ids]
    replaced = sum(old != new for old, new in zip(ids, neutral, strict=True))
    if replaced:
        notes.append(f"{replaced} ROI names replaced by numbers: names are free text")
    return neutral


def _series_grid(study: SourceStudy, uid: str) -> Volume | None:
    frames = [f for f in study.slices if f.series_uid == uid]
    return stacks_of(frames)[0].grid if frames else None


def with_zone(roi: Roi, labels: Volume, path: Path | None, rule: ZonesRule | None) -> Roi:
    """Return a region with the zone of most of its voxels, where a zone map tells."""
    if rule is None or path is None:
        return roi
    zones = whole_numbers(path)
    points = labels.index_to_patient(np.argwhere(labels.array == roi.label)[:, ::-1])
    index = np.round(zones.patient_to_index(points)).astype(int)
    inside = ((index >= 0) & (index < np.array(zones.shape[::-1]))).all(axis=1)
    x, y, z = index[inside].T
    counts = {
        name: int((zones.array[z, y, x] == value).sum()) for value, name in rule.values.items()
    }
    zone = max(counts, key=lambda name: counts[name])
    return replace(roi, zone=zone if counts[zone] else "n/a")


def _findings(
    study: SourceStudy, rules: ImportRules, grid: Volume, notes: list[str]
) -> Labelled | None:
    """Return balls around the points of a table of findings; None without a row or a table."""
    rule = rules.findings
    path = next(study.top.rglob(rule.file), None) if rule else None
    if rule is None or path is None:
        return None
    table = read_rows(path, ("ProxID", "fid", "pos"))
    rows = [row for row in table if row["ProxID"] == study.patient_id]
    with reading(path, "not a table of findings"):
        points = [np.array([float(v) for v in row["pos"].split()]).reshape(3) for row in rows]
    if not rows:
        return None
    z, y, x = np.indices(grid.shape)
    places = grid.index_to_patient(np.stack([x, y, z], axis=-1))
    labels = np.zeros(grid.shape, np.uint16)
    ids = _neutral([row["fid"] for row in rows], rules, notes)
    rois = []
    for label, (row, point) in enumerate(zip(rows, points, strict=True), start=1):
        inside = np.linalg.norm(places - point, axis=-1) <= rule.radius
        if not inside.any():
            raise CadError(
                f"finding {row['fid']} at {row['pos']} mm lies outside the T2 image", file=path
            )
        labels[inside & (labels == 0)] = label
        histology = {"TRUE": "malignant", "FALSE": "benign"}.get(row.get("ClinSig", "").upper())
        zone = {"AS": "AFS"}.get(row.get("zone", ""), row.get("zone", ""))
        rois.append(
            Roi(ids[label - 1], label, zone if zone in _ZONES else "n/a", histology or "n/a")
        )
    return Labelled(grid.with_array(labels), rois)


def _label_map(named: list[tuple[str, DrawnRegion]], grid: Volume) -> tuple[Volume, list[Roi]]:
    """Give every voxel one label: regions that fill one half each may touch, but not overlap."""
    labels = np.zeros(grid.shape, np.uint16)
    best = np.zeros(grid.shape, np.float32)
    rows: list[Roi] = []
    for label, (roi_id, region) in enumerate(named, start=1):
        if roi_id in (row.roi_id for row in rows):
            raise CadError(
                "two segments or contours carry this ROI's name", file=region.file, roi=roi_id
            )
        inside = region.share >= OCCUPANCY - 1e-6
        both = inside & (labels > 0)
        overlap = both & (region.share + best > 1 + _TOUCHING)
        if overlap.any():
            other = rows[int(labels[overlap][0]) - 1].roi_id
            raise CadError(
                f"overlaps ROI {other} in {int(overlap.sum())} voxels of the T2 grid",
                file=region.file,
                roi=roi_id,
                hint="a voxel belongs to one ROI; separate them",
            )
        labels[inside & ~both] = label
        best = np.maximum(best, np.where(inside, region.share, 0))
        rows.append(Roi(roi_id, label))
    return grid.with_array(labels), rows


def _roi_id(region: DrawnRegion, rules: ImportRules) -> str | None:
    """Return the ROI id in a region's name, safe for tables; None where the name is no ROI's."""
    match = re.fullmatch(rules.roi_name, region.name.strip())
    if not match:
        return None
    text = match.groupdict().get("id") or (match.group(1) if match.groups() else match.group(0))
    clean = re.sub(r"[^\w.-]+", "_", text.strip()).strip("_")
    return f"{clean}_{region.number}" if clean and region.number else clean or None


def whole_numbers(path: Path) -> Volume:
    """Read a label map of whole, not negative numbers.

    Raises
    ------
    CadError
        For fractions, NaN or negative labels.
    """
    volume = read_image(path)
    whole = np.round(volume.array)
    if not (np.isfinite(whole).all() and np.abs(volume.array - whole).max() < 1e-3):
        raise CadError("a label map holds whole numbers; found fractions or NaN", file=path)
    if whole.min() < 0:
        raise CadError(f"a label map has no negative labels, found {whole.min():g}", file=path)
    return volume.with_array(whole.astype(np.uint16))


def _labelled(path: Path) -> Labelled:
    """Return a label map as it is: the ROI ids are its integers."""
    volume = whole_numbers(path)
    labels = [int(v) for v in np.unique(volume.array) if v]
    if not labels:
        raise CadError(
            "the label map is empty", file=path, hint="draw the ROIs, or remove the file"
        )
    return Labelled(volume, [Roi(str(label), label) for label in labels])


def detected(path: Path, rule: DetectorRule, notes: list[str]) -> Labelled | None:
    """Make a region of every connected candidate of a detector's map; None without one.

    Candidates are voxels of at least the threshold that share a face, edge or corner. Confidence is
    the largest value in it, 1 where the map holds labels.

    Raises
    ------
    CadError
        For values that are neither labels nor within 0 to 1.
    """
    volume = read_image(path)
    values = volume.array
    soft = np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1
    if not soft:
        values = np.minimum(whole_numbers(path).array, 1)
    labels, count = ndimage.label(values >= rule.threshold, structure=np.ones((3, 3, 3)))
    sizes = np.bincount(labels.ravel(), minlength=count + 1) * float(np.prod(volume.spacing))
    kept = [label for label in range(1, count + 1) if sizes[label] >= rule.least]
    order = np.zeros(count + 1, np.uint16)
    order[kept] = np.arange(1, len(kept) + 1)
    notes.append(
        f"{len(kept)} regions outlined by a detector ({path.name}, at least {rule.threshold:g}, "
        f"{rule.least:g} mm3; {count - len(kept)} smaller), seen by nobody"
    )
    if not kept:
        return None
    highest = ndimage.maximum(values, labels, kept)
    rois = [Roi(str(n), n, confidence=float(v)) for n, v in enumerate(highest, start=1)]
    return Labelled(volume.with_array(order[labels]), rois)


def outlined(
    top: Path, patient_id: str, rule: OutlinesRule | None, notes: list[str]
) -> Labelled | None:
    """Join a patient's masks with one lesion each, of several readers the half; None without one.

    Raises
    ------
    CadError
        For an empty mask, lesions that cover each other, and a table without the lesion.
    """
    masks: dict[str, list[Path]] = {}
    for place in rule.file if rule else ():
        drawn = list(_files_of(top, place, patient_id))
        if drawn and "{roi}" not in place:
            return _labelled(drawn[0][1])
        named = {roi: [path for other, path in drawn if other == roi] for roi, _ in drawn}
        masks = named | masks
    if rule is None or not masks:
        return None
    grid = whole_numbers(next(iter(masks.values()))[0])
    labels, rois = np.zeros(grid.shape, np.uint16), []
    for label, (roi_id, paths) in enumerate(sorted(masks.items()), start=1):
        votes = [resample_mask(whole_numbers(path), grid).array for path in paths]
        inside = np.mean(votes, axis=0) >= 0.5
        free = inside & (labels == 0)
        if 2 * free.sum() <= inside.sum():
            raise CadError(
                "the mask is empty" if not inside.any() else "another lesion covers half of it",
                file=paths[0],
                roi=roi_id,
            )
        labels[free] = label
        histology, isup = _tissue_of(top, patient_id, roi_id, rule)
        rois.append(Roi(roi_id, label, "n/a", histology, isup))
    notes.append(f"{len(rois)} lesions from {sum(map(len, masks.values()))} masks")
    return Labelled(grid.with_array(labels), rois)


def outlined_gland(top: Path, patient_id: str, rule: OutlinesRule) -> Path | None:
    """Return a patient's prostate mask that lies among the outlines; None without one."""
    found = _files_of(top, rule.gland, patient_id) if rule.gland else iter(())
    return next((path for _, path in found), None)


def _files_of(top: Path, place: str, patient_id: str) -> Iterator[tuple[str, Path]]:
    """Find the files that a rule names for a patient, each with its ROI id."""
    glob = re.sub(r"\{(roi|reader)\}", "*", place.replace("{patient}", patient_id))
    text = re.escape(place.replace("{patient}", patient_id)).replace(r"\*", "[^/]*")
    text = text.replace(r"\{roi\}", "(?P<roi>[A-Za-z0-9]+)")
    pattern = re.compile(text.replace(r"\{reader\}", "[A-Za-z0-9-]+"))
    for path in sorted(top.glob(glob)):
        if match := pattern.fullmatch(path.relative_to(top).as_posix()):
            yield match.groupdict().get("roi", ""), path


def _tissue_of(
    top: Path, patient_id: str, roi_id: str, rule: OutlinesRule
) -> tuple[str, int | None]:
    """Return histology and grade of a lesion as the table says; a grade 1 is no benign tissue."""
    path = top / rule.table if rule.table else None
    if path is None:
        return "n/a", None
    columns = [c for c in (rule.key_column, rule.truth_column, rule.grade_column) if c]
    key = rule.key.replace("{patient}", patient_id).replace("{roi}", roi_id)
    row = next((r for r in read_rows(path, columns) if r[rule.key_column] == key), None)
    if row is None:
        raise CadError(f"no row {rule.key_column} = {key!r}", file=path, roi=roi_id)
    grade = row[rule.grade_column] if rule.grade_column else ""
    if grade in ("1", "2", "3", "4", "5"):
        return "malignant", int(grade)
    word = row[rule.truth_column].lower() if rule.truth_column else ""
    return {"true": "malignant", "false": "benign"}.get(word, "n/a"), None


def grade_lesions(grades: Volume) -> Labelled:
    """Make every connected lesion one ROI; its voxels' value is its ISUP grade."""
    labels, count = ndimage.label(grades.array, structure=np.ones((3, 3, 3)))
    rows = []
    for label in range(1, count + 1):
        values = np.unique(grades.array[labels == label])
        if len(values) > 1 or values[0] > 5:
            raise CadError(
                f"a lesion's value is its ISUP grade 1 to 5; found {values.tolist()} in one lesion",
                roi=label,
            )
        rows.append(Roi(str(label), label, histology="malignant", isup=int(values[0])))
    return Labelled(grades.with_array(labels.astype(np.uint16)), rows)
