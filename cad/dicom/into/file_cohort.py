"""Cohorts that come as image files: found by their rules' patterns, written like any other."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydicom.uid import generate_uid

from cad.clinic.conversion import Converted
from cad.clinic.import_rules import FilesRule, ImportRules
from cad.clinic.regions import grade_lesions, whole_numbers, with_zone
from cad.clinic.sources import plain_files
from cad.errors import CadError
from cad.imaging.modality import modality
from cad.imaging.nifti import read_image, write_sidecar, write_volume
from cad.imaging.study import Roi
from cad.imaging.study_files import image_path
from cad.imaging.units import in_unit
from cad.imaging.volume import Volume
from cad.reading import read_rows

_IMAGES = ("t2w", "adc", "hbv")
_KINDS = (*_IMAGES, "gland", "lesion", "zones")
_ID = "[A-Za-z0-9-]+"
_GRADES = ("0", "1", "2", "3", "4", "5")


@dataclass(frozen=True)
class FileStudy:
    """Hold one study of a cohort of files: whose it is, and its files by kind.

    It answers what :class:`cad.clinic.sources.SourceStudy` answers.
    """

    patient_id: str
    name: str
    top: Path
    files: dict[str, Path] = field(default_factory=dict)
    grades: tuple[int, ...] | None = None
    simulated: bool = False

    @property
    def uid(self) -> str:
        """Return an identifier that is the same in every import: these files have no DICOM UID."""
        return str(generate_uid(entropy_srcs=["files", self.patient_id, self.name]))

    def check_patient(self) -> None:
        """Accept: a file belongs to the patient that its name says."""

    def beside(self, name: str | None) -> Path | None:
        """Return no file: scores lie at the top of the source."""
        return None


def find_file_studies(source: Path, rules: FilesRule, notes: list[str]) -> list[FileStudy]:
    """Find every study of a cohort of files, by patient and study; notes name what is no file.

    Raises
    ------
    CadError
        When the table is there but is not a table of studies.
    """
    paths = sorted(plain_files(source, notes))
    patterns = {kind: [_pattern(text) for text in getattr(rules, kind)] for kind in _KINDS}
    found: dict[tuple[str, str], FileStudy] = {}
    best: dict[tuple[str, str, str], int] = {}
    for path in paths:
        text = "/" + path.relative_to(source).as_posix()
        match = _pattern(rules.study).search(text)
        if match:
            key = _key(match)
            found[key] = found.get(key) or FileStudy(*key, source)
    for path in paths:
        text = "/" + path.relative_to(source).as_posix()
        for kind, choices in patterns.items():
            for rank, pattern in enumerate(choices):
                match = pattern.search(text)
                if match is None or (study := _of(match, found)) is None:
                    continue
                place = (study.patient_id, study.name, kind)
                if rank < best.get(place, len(choices)):
                    best[place] = rank
                    study.files[kind] = path
    grades = _grades(paths, rules)
    studies = [replace(study, grades=grades.get(key)) for key, study in found.items()]
    return sorted(studies, key=lambda s: (s.patient_id, s.name))


def convert_files(
    study: FileStudy, study_id: str, build: Path, have: Path | None, rules: ImportRules
) -> Converted:
    """Write a study's images and masks that are not there yet; arguments as for ``convert``.

    Raises
    ------
    CadError
        Without a T2 image, and for files that are no images or lesions.
    """
    done = Converted()
    if "t2w" not in study.files or rules.files is None:
        raise CadError("the study has no T2 file by the rules", file=study.top)
    for name in _IMAGES:
        target = image_path(build, study_id, name)
        path = study.files.get(name)
        if path is None or _there(target, build, have):
            continue
        scale = rules.files.adc_scale if name == "adc" else None
        image, source = in_unit(read_image(path), modality(name), scale)
        write_volume(target, image)
        entries = {"StudyInstanceUID": study.uid}
        if rules.labels == "id":  # file names carry the id
            entries |= {"SourcePatientID": study.patient_id, "Source": path.name}
        if modality(name).unit:
            entries |= {"Units": modality(name).unit, "UnitsSource": source}
        write_sidecar(target, entries)
        done.notes.append(f"{name} from its file")
    path, target = study.files.get("gland"), image_path(build, study_id, "gland")
    if path and not _there(target, build, have):
        mask = whole_numbers(path)
        write_volume(target, mask.with_array(mask.array != 0))
    path, target = study.files.get("lesion"), image_path(build, study_id, "rois")
    if path and not _there(target, build, have):
        labels, rois = _lesions(study, path, rules, done)
        if rois:
            write_volume(target, labels)
            zones = study.files.get("zones")
            done.rois = [with_zone(roi, labels, zones, rules.zones) for roi in rois]
    return done


def _lesions(
    study: FileStudy, path: Path, rules: ImportRules, done: Converted
) -> tuple[Volume, list[Roi]]:
    assert rules.files is not None  # nosec B101  # noqa: S101 - the caller has checked it
    grades = whole_numbers(path)
    kind = rules.files.lesion_values
    if kind == "mask":
        grades = grades.with_array((grades.array != 0).astype(np.uint16))
    found = grade_lesions(grades)
    # What says only that a lesion is malignant has no grade of its own.
    plain = {"mask": (1,), "picai": (1,), "isup": ()}[kind]
    rois = [replace(roi, isup=None) if roi.isup in plain else roi for roi in found.rois]
    known = [grade for grade in study.grades or () if grade >= 2]
    if len(rois) == len(known) == 1 and rois[0].isup is None:
        rois = [replace(rois[0], isup=known[0])]
        done.notes.append("the lesion's grade is the table's: one lesion there, one in the mask")
    done.notes.append(f"{len(rois)} lesions from {path.parent.name}")
    return found.labels, rois


def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"(\{patient\}|\{study\})", text)
    seen: set[str] = set()
    out = []
    for part in parts:
        name = part.strip("{}")
        if part not in ("{patient}", "{study}"):
            out.append(re.escape(part))
        elif name in seen:
            out.append(f"(?P={name})")
        else:
            seen.add(name)
            out.append(f"(?P<{name}>{_ID})")
    return re.compile("/" + "".join(out) + "$")


def _key(match: re.Match[str]) -> tuple[str, str]:
    groups = match.groupdict()
    return groups["patient"], groups.get("study") or "1"


def _of(match: re.Match[str], found: dict[tuple[str, str], FileStudy]) -> FileStudy | None:
    return found.get(_key(match))


def _there(target: Path, build: Path, have: Path | None) -> bool:
    return have is not None and (have / target.relative_to(build)).is_file()


def _grades(paths: list[Path], rules: FilesRule) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the ISUP grades of every study's lesions, from the table."""
    path = next((p for p in paths if rules.table and p.name == Path(rules.table).name), None)
    if path is None:
        return {}
    found: dict[tuple[str, str], tuple[int, ...]] = defaultdict(tuple)
    columns = (rules.patient_column, rules.study_column, rules.grade_column)
    for row in read_rows(path, columns):
        patient, study, grades = (row[name] for name in columns)
        numbers = tuple(int(text) for text in grades.split(",") if text.strip() in _GRADES)
        found[patient, study] = numbers
    return dict(found)
