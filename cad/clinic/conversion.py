"""One DICOM study becomes one folder of NIfTI files, by the rules of its site."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydicom.dataset import Dataset
from scipy import ndimage

from cad.clinic.import_rules import ImportRules, Match
from cad.clinic.sources import SourceStudy
from cad.errors import CadError
from cad.imaging.annotations import Region, read_object, read_regions, referenced_series
from cad.imaging.dicom import Stack, order_phases, read_phases, read_stack, stacks_of
from cad.imaging.dicom_headers import Slice
from cad.imaging.geometry import OCCUPANCY
from cad.imaging.nifti import read_volume, write_dynamic, write_sidecar, write_volume
from cad.imaging.study_files import diffusion_path, image_path, vfa_path
from cad.imaging.volume import Volume

OWN_MODEL_NAME = "cad"
# Two regions that share a border may fill a voxel by half each, and rounding adds a little.
_TOUCHING = 0.02


@dataclass(frozen=True)
class RoiRow:
    """A row of ``rois.tsv``; None is n/a."""

    roi_id: str
    label: int
    zone: str | None = None
    histology: str | None = None
    isup: int | None = None


@dataclass
class Converted:
    """What was written: whether any file, the regions if they are new, and what to tell."""

    rois: list[RoiRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def convert(
    study: SourceStudy, study_id: str, build: Path, have: Path | None, rules: ImportRules
) -> Converted:
    """Write the images, masks and sidecars of a study that are not there yet.

    Parameters
    ----------
    study : SourceStudy
        What was found.
    study_id : str
        ``sub-XXX[_ses-YY]``, the stem of every file name.
    build : Path
        Folder to write into.
    have : Path or None
        The study's folder in the cohort; what is there is not written again.
    rules : ImportRules
        Which series is what.

    Returns
    -------
    Converted
        ``rois`` holds rows only where a label map was written.

    Raises
    ------
    CadError
        When no series matches any rule, more than one matches where one is wanted (listing the
        candidates), or a series or mask is not sound.
    """
    job = _Job(study, study_id, build, have, rules)
    job.images()
    job.masks()
    return job.done


class _Job:
    """The steps of :func:`convert` share what they read."""

    def __init__(
        self, study: SourceStudy, study_id: str, build: Path, have: Path | None, rules: ImportRules
    ) -> None:
        self.study, self.study_id, self.build, self.have = study, study_id, build, have
        self.rules = rules
        self.done = Converted()

    def images(self) -> None:
        """T2, ADC, dynamic, flip-angle and diffusion series."""
        rules = self.rules
        found = [self._single("t2w", rules.t2w), self._single("adc", rules.adc)]
        found.append(self._dynamic())
        found.append(self._several("flip angle", rules.vfa, "flip_angle"))
        found.append(self._several("b-value", rules.diffusion, "b_value"))
        if not any(found):
            candidates = sorted({s.series_number: s for s in self.study.slices}.items())
            listed = "; ".join(f"{n} {s.description[:40]!r}" for n, s in candidates[:12])
            raise CadError(
                f"no series matches the import rules; the study has {len(candidates)}: {listed}",
                file=self.study.top,
                hint="name its series in the rules file",
            )

    def masks(self) -> None:
        """Label map or lesion map or annotation objects; gland and vessel; the regions' zones."""
        for kind, name in (("gland", self.rules.gland), ("vessel", self.rules.vessel)):
            path = self.study.beside(name)
            target = image_path(self.build, self.study_id, kind)
            if path and not self._there(target):
                volume = read_volume(path)
                write_volume(target, volume.with_array(volume.array != 0))
        target = image_path(self.build, self.study_id, "rois")
        if self._there(target):
            return
        found = self._regions()
        if found is None:
            return
        labels, rows, frame_uid = found
        write_volume(target, labels)
        if frame_uid:
            write_sidecar(target, {"FrameOfReferenceUID": frame_uid})
        self.done.rois = [self._with_zone(row, labels) for row in rows]

    def _there(self, target: Path) -> bool:
        return self.have is not None and (self.have / target.relative_to(self.build)).is_file()

    def _matching(self, matches: Iterable[Match]) -> list[Stack]:
        """Stacks that the first match with any hit accepts."""
        for match in matches:
            accepted = [s for s in self.study.slices if match.accepts(s)]
            if accepted:
                return _stacks(accepted)
        return []

    def _single(self, kind: str, matches: tuple[Match, ...]) -> bool:
        stacks = self._matching(matches)
        if len(stacks) > 1:
            raise CadError(
                f"{len(stacks)} images match the rule for {kind}: "
                f"{'; '.join(str(stack) for stack in stacks[:8])}",
                file=self.study.top,
                hint="make the rule narrower, or list the wanted one first",
            )
        if not stacks:
            return False
        target = image_path(self.build, self.study_id, kind)
        if not self._there(target):
            entries = self._origin(stacks[0])
            write_volume(target, read_stack(stacks[0]))
            if kind == "adc":
                entries["Units"] = "1e-6 mm2/s"
            write_sidecar(target, entries)
            self.done.notes.append(f"{kind} from series {stacks[0].first.series_number}")
        return True

    def _dynamic(self) -> bool:
        rule = self.rules.dce
        if rule is None:
            return False
        stacks = _stacks([s for s in self.study.slices if any(m.accepts(s) for m in rule.match)])
        target = image_path(self.build, self.study_id, "dce")
        if not stacks or self._there(target):
            return bool(stacks)
        if len(stacks) == 1:
            raise CadError(
                f"the dynamic series has one phase only: {stacks[0]}", file=self.study.top
            )
        phases = order_phases(stacks, rule.clock, rule.time_pattern)
        entries = self._origin(phases[0][1])
        del entries["SOPInstanceUIDs"]
        entries["SeriesInstanceUIDs"] = [stack.first.series_uid for _, stack in phases]
        entries["VolumeTimingClock"] = rule.clock
        write_dynamic(target, read_phases(phases), entries)
        steps = np.diff([time for time, _ in phases])
        self.done.notes.append(
            f"dce from {len(phases)} phases, {rule.clock} clock, steps {steps.min():.3g} to "
            f"{steps.max():.3g} s"
        )
        return True

    def _several(self, what: str, matches: tuple[Match, ...], key: str) -> bool:
        stacks = _stacks([s for s in self.study.slices if any(m.accepts(s) for m in matches)])
        by_value: dict[float, Stack] = {}
        for stack in stacks:
            value = getattr(stack.first, key)
            if value is None:
                raise CadError(f"{stack} has no {what}", file=stack.first.path.parent)
            if value in by_value:
                raise CadError(
                    f"two images have {what} {value:g}: {by_value[value]}; {stack}",
                    file=self.study.top,
                    hint="make the rule narrower",
                )
            by_value[value] = stack
        for index, value in enumerate(sorted(by_value), start=1):
            stack = by_value[value]
            entries = self._origin(stack)
            if key == "flip_angle":
                target = vfa_path(self.build, self.study_id, index)
            else:
                target = diffusion_path(self.build, self.study_id, value)
                entries["BValue"] = value
            if not self._there(target):
                write_volume(target, read_stack(stack))
                write_sidecar(target, entries)
        return bool(stacks)

    def _origin(self, stack: Stack) -> dict[str, Any]:
        """Sidecar entries: physics in SI units and degrees, and the UIDs DICOM output needs."""
        head = stack.first
        if any(item.path.parent in self.study.damaged for item in stack.slices):
            raise CadError(
                f"{stack} may be incomplete: a file beside its slices could not be read",
                file=head.path.parent,
                hint="export the series again",
            )
        entries = {
            "RepetitionTime": head.repetition_time,
            "EchoTime": None if head.echo_time is None else round(head.echo_time / 1000, 9),
            "FlipAngle": head.flip_angle,
            "SeriesNumber": head.series_number,
            "StudyInstanceUID": head.study_uid,
            "SeriesInstanceUID": head.series_uid,
            "FrameOfReferenceUID": head.frame_uid or None,
            "SOPClassUID": head.sop_class,
            "SOPInstanceUIDs": [item.sop_uid for item in stack.slices],
            "SourcePatientID": self.study.patient_id if self.rules.labels == "id" else None,
        }
        return {key: value for key, value in entries.items() if value is not None}

    def _regions(self) -> tuple[Volume, list[RoiRow], str] | None:
        """The label map, its rows and its frame of reference, from the one source there is."""
        label_map = self.study.beside(self.rules.rois)
        lesion = self.study.beside(self.rules.lesion)
        objects = [(path, read_object(path)) for path in self.study.objects]
        # What this project sent to the archive earlier is a result, not an annotation.
        drawn = [(p, d) for p, d in objects if d.get("ManufacturerModelName") != OWN_MODEL_NAME]
        sources = [p.name for p in (label_map, lesion) if p]
        sources += ["DICOM SEG or RTSTRUCT"] if drawn else []
        if len(sources) > 1:
            raise CadError(
                f"the study has {len(sources)} sources of ROIs: {', '.join(sources)}",
                file=self.study.top,
                hint="keep the one that counts beside the series",
            )
        if label_map:
            return (*_labelled(label_map), "")
        if lesion:
            grades = _whole(lesion)
            if grades.array.any():
                return (*_lesions(grades), "")
            self.done.notes.append(f"{lesion.name} holds no lesion")
        return self._from_objects(drawn) if drawn else None

    def _from_objects(
        self, objects: list[tuple[Path, Dataset]]
    ) -> tuple[Volume, list[RoiRow], str] | None:
        reference = self._matching(self.rules.t2w) or self._matching(self.rules.adc)
        if not reference:
            raise CadError(
                "SEG or RTSTRUCT objects but no T2 or ADC series to draw them on",
                file=objects[0][0],
            )
        head = reference[0].first
        grid = _grid(reference[0])
        named: list[tuple[str, Region]] = []
        for path, dataset in objects:
            drawn_on = self._series_grid(referenced_series(dataset)) or grid
            found, notes = read_regions(dataset, path, drawn_on, head.frame_uid, grid)
            self.done.notes += notes
            ids = [(_roi_id(r.name, self.rules.roi_name), r) for r in found]
            named += [(roi_id, region) for roi_id, region in ids if roi_id]
        if not named:
            self.done.notes.append("no segment or contour has a name that the rules call a ROI")
            return None
        labels, rows = _label_map(named, grid)
        return labels, rows, head.frame_uid

    def _series_grid(self, uid: str) -> Volume | None:
        slices = [s for s in self.study.slices if s.series_uid == uid]
        return _grid(stacks_of(slices)[0]) if slices else None

    def _with_zone(self, row: RoiRow, labels: Volume) -> RoiRow:
        rule = self.rules.zones
        path = self.study.beside(rule.file) if rule else None
        if rule is None or path is None:
            return row
        zones = _whole(path)
        index_zyx = np.argwhere(labels.array == row.label)
        points = labels.index_to_patient(index_zyx[:, ::-1])
        index = np.round(zones.patient_to_index(points)).astype(int)
        inside = ((index >= 0) & (index < np.array(zones.shape[::-1]))).all(axis=1)
        x, y, z = index[inside].T
        counts = {
            name: int((zones.array[z, y, x] == value).sum()) for value, name in rule.values.items()
        }
        zone = max(counts, key=lambda name: counts[name])
        return RoiRow(
            row.roi_id, row.label, zone if counts[zone] else None, row.histology, row.isup
        )


def _grid(stack: Stack) -> Volume:
    return Volume(np.zeros(stack.shape, bool), stack.spacing, stack.origin, stack.direction)


def _label_map(named: list[tuple[str, Region]], grid: Volume) -> tuple[Volume, list[RoiRow]]:
    """One label a voxel: regions that fill one half each may touch, but not overlap."""
    labels = np.zeros(grid.shape, np.uint16)
    best = np.zeros(grid.shape, np.float32)
    rows: list[RoiRow] = []
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
        rows.append(RoiRow(roi_id, label))
    return grid.with_array(labels), rows


def _stacks(slices: list[Slice]) -> list[Stack]:
    series: dict[str, list[Slice]] = defaultdict(list)
    for item in slices:
        series[item.series_uid].append(item)
    found = [stack for part in series.values() for stack in stacks_of(part)]
    return sorted(found, key=lambda stack: stack.first.series_number)


def _roi_id(name: str, pattern: str) -> str | None:
    """The ROI id in a segment's name, made safe for tables; None where the name is no ROI's."""
    match = re.fullmatch(pattern, name.strip())
    if not match:
        return None
    text = match.groupdict().get("id") or (match.group(1) if match.groups() else match.group(0))
    return re.sub(r"[^\w.-]+", "_", text.strip()).strip("_") or None


def _whole(path: Path) -> Volume:
    volume = read_volume(path)
    whole = np.round(volume.array)
    if not (np.isfinite(whole).all() and np.abs(volume.array - whole).max() < 1e-3):
        raise CadError("a label map holds whole numbers; found fractions or NaN", file=path)
    if whole.min() < 0:
        raise CadError(f"a label map has no negative labels, found {whole.min():g}", file=path)
    return volume.with_array(whole.astype(np.uint16))


def _labelled(path: Path) -> tuple[Volume, list[RoiRow]]:
    """A label map as it is: the ROI ids are its integers."""
    volume = _whole(path)
    labels = [int(v) for v in np.unique(volume.array) if v]
    if not labels:
        raise CadError(
            "the label map is empty", file=path, hint="draw the ROIs, or remove the file"
        )
    return volume, [RoiRow(str(label), label) for label in labels]


def _lesions(grades: Volume) -> tuple[Volume, list[RoiRow]]:
    """Every connected lesion is one ROI; its voxels' value is its ISUP grade."""
    labels, count = ndimage.label(grades.array, structure=np.ones((3, 3, 3)))
    rows = []
    for label in range(1, count + 1):
        values = np.unique(grades.array[labels == label])
        if len(values) > 1 or values[0] > 5:
            raise CadError(
                f"a lesion's value is its ISUP grade 1 to 5; found {values.tolist()} in one lesion",
                roi=label,
            )
        rows.append(RoiRow(str(label), label, None, "malignant", int(values[0])))
    return grades.with_array(labels.astype(np.uint16)), rows
