"""Import cohorts that come as image files: find the files by patterns, and write a cohort folder.

The cohort folder has the same form as one that is imported from DICOM.
"""

import re
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from pydicom.uid import generate_uid

from cad.base.errors import CadError
from cad.base.reading import read_rows, whole_cell
from cad.base.terms.grades import SIGNIFICANT
from cad.base.terms.modality import modality
from cad.dicom.into import regions
from cad.dicom.into.conversion import Converted, is_there
from cad.dicom.into.rules import FIRST_READER, DetectorRule, FilesRule, ImportRules
from cad.dicom.into.sources import plain_files
from cad.dicom.into.unchanged import changed_since, require_same
from cad.mri.imaging.nifti import read_image, write_sidecar, write_volume
from cad.mri.imaging.study import Roi
from cad.mri.imaging.study_files import image_path
from cad.mri.imaging.units import in_unit
from cad.mri.imaging.volume import Volume

_IMAGES = ("t2w", "adc", "hbv", "ktrans")
_KINDS = (*_IMAGES, "gland", "lesion", "zones")
_ID = "[A-Za-z0-9-]+"


ListedLesion = tuple[int | None, int | None]
"""ISUP grade and PI-RADS category in the table of the studies; None without an entry."""


@dataclass(frozen=True)
class FileStudy:
    """Hold one study of a cohort that comes as image files.

    It has those attributes and methods of :class:`cad.dicom.into.sources.SourceStudy` that an
    import uses, so that an import can treat both alike.

    Parameters
    ----------
    patient_id, name : str
        Ids of the patient and of the study, as the file names give them.
    top : Path
        Folder that is imported.
    files : dict of str to Path
        A file for each kind: ``t2w``, ``adc``, ``hbv``, ``ktrans``, ``gland``, ``lesion``,
        ``zones``, ``detector``; absent where there is none.
    listed : list of (str, str)
        The study's two cells of the table of studies, each a list with commas: ISUP grades or
        Gleason scores of its lesions, and their PI-RADS categories. The list is empty where the
        table has no row of the study, and has several pairs where rows of the study differ.
    simulated : bool
        Always false.
    """

    patient_id: str
    name: str
    top: Path
    files: dict[str, Path] = field(default_factory=dict)
    listed: list[tuple[str, str]] = field(default_factory=list)
    simulated: bool = False

    @property
    def uid(self) -> str:
        """Return a UID in place of the StudyInstanceUID, which image files lack.

        Equal ids of patient and study always give the same UID.
        """
        return str(generate_uid(entropy_srcs=["files", self.patient_id, self.name]))

    def check_patient(self) -> None:
        """Do nothing, because the file name alone says whose file it is.

        For DICOM this method checks that all files of a study are of one patient.
        """

    def beside(self, name: str | None) -> Path | None:
        """Return None: in a cohort of image files no table of scores lies beside a study.

        Parameters
        ----------
        name : str or None
            Not used.
        """
        return None


def find_file_studies(
    source: Path, rules: FilesRule, notes: list[str], detector: DetectorRule | None = None
) -> list[FileStudy]:
    """Find every study of a cohort that comes as image files.

    Parameters
    ----------
    source : Path
        Folder that is imported.
    rules : FilesRule
        Patterns of the paths of each kind of file, and the table of the studies.
    notes : list of str
        A message is appended for each entry that is no file: pipes, sockets, devices.
    detector : DetectorRule, optional
        Where a detector's maps lie.

    Returns
    -------
    list of FileStudy
        Sorted by patient and study.

    Raises
    ------
    CadError
        When the table is there but is not a table of studies.
    """
    paths = sorted(plain_files(source, notes))
    patterns_of_kind = {}
    for kind in _KINDS:
        patterns_of_kind[kind] = [_path_pattern(entry) for entry in getattr(rules, kind)]
    patterns_of_kind["detector"] = [_path_pattern(detector.file)] if detector else []

    # A study exists if the source has the file that the rule `study` names for it. Other files are
    # added below, and only to a study that exists.
    studies: dict[tuple[str, str], FileStudy] = {}  # by patient and study
    for path in paths:
        # Every pattern begins with /: it must begin at the name of a folder or file.
        path_text = "/" + path.relative_to(source).as_posix()
        ids = _path_pattern(rules.study).search(path_text)
        if ids:
            # Several files of one study may fit the rule.
            patient_and_study = _patient_and_study(ids)
            patient_id, name = patient_and_study
            new_study = FileStudy(patient_id, name, top=source)
            studies.setdefault(patient_and_study, new_study)

    # Number of the rule's entry by which a study's file was taken, by patient, study and kind.
    best_entry: dict[tuple[str, str, str], int] = {}
    for path in paths:
        path_text = "/" + path.relative_to(source).as_posix()
        for kind, patterns in patterns_of_kind.items():
            for entry, pattern in enumerate(patterns):
                ids = pattern.search(path_text)
                if ids is None:
                    continue
                study = studies.get(_patient_and_study(ids))
                if study is None:
                    continue
                file_of_study = (study.patient_id, study.name, kind)
                # Of several files the one that meets the rule's earliest entry is taken, in
                # whatever order the folder lists the files.
                if entry < best_entry.get(file_of_study, len(patterns)):
                    best_entry[file_of_study] = entry
                    study.files[kind] = path

    lesions_of_study = _lesions_of_table(paths, rules)
    studies_with_lesions = []
    for patient_and_study, study in studies.items():
        lesions = lesions_of_study.get(patient_and_study, [])
        studies_with_lesions.append(replace(study, listed=lesions))
    return sorted(studies_with_lesions, key=lambda study: (study.patient_id, study.name))


def convert_files(
    study: FileStudy, study_id: str, build: Path, have: Path | None, rules: ImportRules
) -> Converted:
    """Write the images and masks of a study that its cohort folder does not have yet.

    Parameters
    ----------
    study : FileStudy
        The study in the source.
    study_id : str
        ``sub-XXX[_ses-YY]``, the stem of every file name.
    build : Path
        Folder to write into.
    have : Path or None
        The study's folder in the cohort, None for a new study. A file that exists there is not
        written again.
    rules : ImportRules
        The rules, which say which file is which image.

    Returns
    -------
    Converted
        ``rois`` holds entries only where a label map was written.

    Raises
    ------
    CadError
        Without a T2 image, and for files that are no images or lesions.
    """
    converted = Converted()
    if "t2w" not in study.files or rules.files is None:
        raise CadError("the study has no T2 file by the rules", file=study.top)
    for name in _IMAGES:
        target = image_path(build, study_id, name)
        path = study.files.get(name)
        if path is None:
            continue
        scale = {"adc": rules.files.adc_scale, "ktrans": rules.files.ktrans_scale}.get(name)
        if have is not None and is_there(target, build, have):
            # The cohort's image stays. It must still be what its file would give now.
            in_cohort = have / target.relative_to(build)
            if changed_since(in_cohort, [path]):
                require_same(in_cohort, partial(_image_in_its_unit, path, name, scale))
            continue
        image, unit_source = _in_its_unit(path, name, scale)
        write_volume(target, image)
        entries = {"StudyInstanceUID": study.uid}
        if rules.labels == "id":  # the file's name contains the patient's id, too
            entries |= {"SourcePatientID": study.patient_id, "Source": path.name}
        if modality(name).unit:
            entries |= {"Units": modality(name).unit, "UnitsSource": unit_source}
        write_sidecar(target, entries)
        converted.notes.append(f"{name} from its file")
    gland_path = study.files.get("gland")
    zones_path = study.files.get("zones")
    gland_target = image_path(build, study_id, "gland")
    if not is_there(gland_target, build, have):
        mask = regions.gland_mask(
            gland_path, rules.gland_values, zones_path, rules.zones, converted.notes
        )
        if mask is not None:
            write_volume(gland_target, mask)
    rois_target = image_path(build, study_id, "rois")
    labelled = None
    if not is_there(rois_target, build, have):
        labelled = _regions_of_study(study, rules, converted.notes)
    if labelled:
        write_volume(rois_target, labelled.labels)
        converted.rois = regions.with_zones(labelled, zones_path, rules.zones).rois
        converted.scores = list(labelled.scores)
    return converted


def _in_its_unit(path: Path, name: str, scale: float | None) -> tuple[Volume, str]:
    """Return an image in the unit of its modality ``name``, and how its unit is known."""
    return in_unit(read_image(path), modality(name), scale)


def _image_in_its_unit(path: Path, name: str, scale: float | None) -> Volume:
    return _in_its_unit(path, name, scale)[0]


def _regions_of_study(
    study: FileStudy, rules: ImportRules, notes: list[str]
) -> regions.Labelled | None:
    """Return the regions of a study from its mask, a detector's map or outlines; None if there are
    none.
    """
    path = study.files.get("lesion")
    by_program = study.files.get("detector")
    # A mask drawn by readers is used rather than a detector's map, which nobody has checked.
    if path:
        return _labelled_lesions(study, path, rules, notes)
    if by_program and rules.detector:
        return regions.detected(by_program, rules.detector, notes)
    return regions.outlined(study.top, study.patient_id, rules, notes)


def _labelled_lesions(
    study: FileStudy, mask_path: Path, rules: ImportRules, notes: list[str]
) -> regions.Labelled | None:
    """Return the regions of a lesion mask, with grades and scores from mask and table.

    The result is None if the mask has no lesion.
    """
    assert rules.files is not None  # noqa: S101 - the caller has checked it
    if len(study.listed) > 1:
        raise CadError(f"{rules.files.table} has different rows of this study", file=study.top)
    if rules.files.table and not study.listed:
        notes.append(f"{rules.files.table} has no row of this study")
    grades_cell, categories_cell = study.listed[0] if study.listed else ("", "")
    lesions_in_table = listed_lesions(grades_cell, categories_cell)
    grades = regions.whole_numbers(mask_path)
    meaning = rules.files.lesion_values  # what a voxel's value says of its lesion
    if meaning == "mask":  # any value but 0 marks a lesion, so none is a grade
        grades = grades.with_array((grades.array != 0).astype(np.uint16))
    graded = regions.grade_lesions(grades)
    rois = graded.rois
    if meaning != "isup":
        # A mask shows only that a lesion is malignant. The value 1 of the PI-CAI challenge shows
        # only that a lesion is clinically significant (ISUP 2 or more). Neither is a grade.
        isup_of_1 = {"mask": "n/a", "picai": SIGNIFICANT}[meaning]
        rois = []
        for roi in graded.rois:
            rois.append(replace(roi, isup=isup_of_1) if roi.isup == "1" else roi)
    # The table lists all lesions; the mask has only lesions of grade 2 or more.
    grades_in_table = [grade for grade, _ in lesions_in_table if grade is not None and grade >= 2]
    # With one such lesion in each, both are the same lesion. Its exact grade is then the table's.
    if len(rois) == len(grades_in_table) == 1 and not rois[0].isup.isdigit():
        rois = [replace(rois[0], isup=str(grades_in_table[0]))]
        notes.append("the lesion's grade is the table's: one lesion there, one in the mask")
    notes.append(f"{len(rois)} lesions from {mask_path.parent.name}")
    scores = _categories(study.patient_id, lesions_in_table, rois, rules)
    return replace(graded, rois=rois, scores=tuple(scores)) if rois else None


def _path_pattern(rule_path: str) -> re.Pattern[str]:
    """Return the regular expression of a rule's path, which finds {patient} and {study} in a path.

    It fits the end of a path, from the beginning of the name of a folder or file.
    """
    pieces = re.split(r"(\{patient\}|\{study\})", rule_path)
    used_names: set[str] = set()
    expressions = []
    for piece in pieces:
        name = piece.strip("{}")
        if piece not in ("{patient}", "{study}"):
            expressions.append(re.escape(piece).replace(r"\*", "[^/]*"))
        elif name in used_names:
            # If an id occurs in the names of both folder and file, it must be the same.
            expressions.append(f"(?P={name})")
        else:
            used_names.add(name)
            expressions.append(f"(?P<{name}>{_ID})")
    return re.compile("/" + "".join(expressions) + "$")


def _patient_and_study(match: re.Match[str]) -> tuple[str, str]:
    groups = match.groupdict()
    return groups["patient"], groups.get("study") or "1"


def _categories(
    patient_id: str, listed: tuple[ListedLesion, ...], rois: list[Roi], rules: ImportRules
) -> list[dict[str, str]]:
    """Return score rows for regions whose PI-RADS category is certain from the table.

    The table lists all lesions; the mask has only lesions of grade 2 or more. It is not stated
    which lesion of the table is which region of the mask. A region's category is certain if table
    and mask have equally many lesions of the region's grade, and if the table gives all these
    lesions the same category.
    """
    rows = []
    for roi in rois:
        categories_of_grade = []
        for grade, category in listed:
            if str(grade) == roi.isup:
                categories_of_grade.append(category)
        n_drawn = sum(drawn.isup == roi.isup for drawn in rois)
        if (
            roi.isup.isdigit()
            and len(categories_of_grade) == n_drawn
            and len(set(categories_of_grade)) == 1
            and categories_of_grade[0] is not None
        ):
            reader = next(iter(rules.readers), FIRST_READER)
            row = {"patient_id": patient_id, "roi_id": roi.roi_id, "reader_id": reader}
            rows.append({**row, "scale": "pirads", "score": str(categories_of_grade[0])})
    return rows


def _lesions_of_table(
    paths: list[Path], rules: FilesRule
) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the cells with the grades and categories of every study's lesions, from the table.

    A study that has several rows has one pair of cells for each different content.
    """
    if not rules.table:
        return {}
    name = Path(rules.table).name
    tables = [path for path in paths if path.name == name]
    if not tables:
        return {}
    columns = [rules.patient_column, rules.study_column, rules.grade_column]
    if rules.category_column:
        columns.append(rules.category_column)
    lesions: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in read_rows(tables[0], columns):
        study = (whole_cell(row[rules.patient_column]), whole_cell(row[rules.study_column]))
        category = row[rules.category_column] if rules.category_column else ""
        cells = (row[rules.grade_column], category)
        cells_of_study = lesions.setdefault(study, [])
        if cells not in cells_of_study:
            cells_of_study.append(cells)
    return lesions


def listed_lesions(grades: str, categories: str) -> tuple[ListedLesion, ...]:
    """Return the lesions of one study from two cells of a table, each a list with commas.

    Parameters
    ----------
    grades : str
        One cell: for each lesion a Gleason score such as ``3+4``, or an ISUP grade; may be empty.
    categories : str
        The other cell: PI-RADS categories of the same lesions in the same order; may be empty.

    Returns
    -------
    tuple of (int or None, int or None)
        For each lesion its ISUP grade, 0 for ``0+0`` (no cancer), and its PI-RADS category; None
        for a text that is neither a score nor a grade, for a category ``N/A``, and for an empty
        cell.

    Raises
    ------
    CadError
        For a category that is none of 1 to 5, and for cells that list unequal numbers of lesions.
    """
    isup_grades: list[int | None] = []
    if grades:
        isup_grades = [regions.gleason_grade(text) for text in grades.split(",")]
    category_numbers: list[int | None] = []
    if categories:
        category_numbers = [_category(whole_cell(text)) for text in categories.split(",")]
    if isup_grades and category_numbers and len(isup_grades) != len(category_numbers):
        raise CadError(
            f"the table lists {len(category_numbers)} categories {categories!r} and "
            f"{len(isup_grades)} grades {grades!r} of the same lesions"
        )
    count = max(len(isup_grades), len(category_numbers))
    # An empty cell states nothing of the lesions in the other cell.
    no_entries = [None] * count
    return tuple(zip(isup_grades or no_entries, category_numbers or no_entries, strict=True))


def _category(text: str) -> int | None:
    """Return a PI-RADS category; None where the table has none."""
    if text in ("", "N/A"):
        return None
    if text not in ("1", "2", "3", "4", "5"):
        raise CadError(f"PI-RADS {text!r} is none of 1 to 5")
    return int(text)
