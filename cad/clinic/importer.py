"""DICOM folders and archives become a cohort folder: what is new is added, what is there stays.

Each study is built in a temporary folder, read back with every check of
:func:`cad.imaging.study_files.read_study`, and only then renamed into place; a study that fails
costs no other and leaves nothing behind. Headers give the images their times (seconds), angles
(degrees) and the UIDs by which DICOM output refers to them; names, dates and free text stay out.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cad.clinic.conversion import Converted, convert
from cad.clinic.file_cohort import FileStudy, convert_files, find_file_studies
from cad.clinic.import_rules import ImportRules
from cad.clinic.import_tables import Tables, read_scores
from cad.clinic.patients import FIRST_SESSION, Patients, Place
from cad.clinic.sources import SourceStudy, find_studies
from cad.errors import CadError
from cad.files import write_atomic
from cad.imaging.plausibility import RANGES_FILE, require_plausible
from cad.imaging.study import Roi
from cad.imaging.study_files import image_path, read_study
from cad.settings import read_settings


@dataclass
class ImportSummary:
    """Hold what an import did, by study.

    Parameters
    ----------
    added, updated, unchanged, awaiting : list of str
        Study ids: new; got images, regions or scores; as before; without regions yet.
    failures : list of CadError
        What could not be imported, and why.
    notes : list of str
        What was chosen or missing.
    """

    added: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    awaiting: list[str] = field(default_factory=list)
    failures: list[CadError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, list[str]]:
        """Return everything for ``--json``."""
        return {**asdict(self), "failures": [str(failure) for failure in self.failures]}

    def as_text(self) -> str:
        """Return everything for a terminal."""
        words = {"added": self.added, "updated": self.updated, "already there": self.unchanged}
        lines = [f"{word}: {', '.join(ids)}" for word, ids in words.items() if ids]
        lines += [f"awaiting ROI: {', '.join(self.awaiting)}"] if self.awaiting else []
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"failed: {failure}" for failure in self.failures]
        return "\n".join(lines)


def import_source(source: Path, out: Path, rules: Path) -> ImportSummary:
    """Import every study under a folder or in a zip archive.

    Parameters
    ----------
    source : Path
        Folder (zip archives inside it are opened too) or zip archive.
    out : Path
        Cohort folder, made when absent.
    rules : Path
        Rules file (:class:`cad.clinic.import_rules.ImportRules`).

    Returns
    -------
    ImportSummary
        One study's failure is listed there and costs no other.

    Raises
    ------
    CadError
        When the source does not exist, holds no DICOM image, or the rules are not valid.
    """
    settings = read_settings(ImportRules, rules)
    if not source.exists():
        raise CadError("no such folder or archive", file=source)
    summary = ImportSummary()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".import-") as scratch:
        studies: Sequence[SourceStudy | FileStudy]
        if settings.files is not None:
            studies = find_file_studies(source, settings.files)
        else:
            studies = find_studies(source, Path(scratch), summary.failures)
        if not studies and not summary.failures:
            what = "file of the rules" if settings.files else "DICOM image"
            raise CadError(f"no {what} found", file=source)
        _Import(studies, out, settings, Path(scratch), summary).run()
    return summary


class _Import:
    """Run one import: the cohort's tables and places, and what happened so far."""

    def __init__(
        self,
        studies: Sequence[SourceStudy | FileStudy],
        out: Path,
        rules: ImportRules,
        scratch: Path,
        summary: ImportSummary,
    ) -> None:
        self.studies, self.out, self.rules = studies, out, rules
        self.scratch, self.summary = scratch, summary
        self.tables = Tables.read(out)
        known = set(self.tables.participants["participant_id"])
        self.patients = Patients(out, rules.labels, known)
        self.count = Counter(study.patient_id for study in studies)

    def run(self) -> None:
        """Import every study, then ask for missing scores; failures are collected."""
        for study in self.studies:
            participant = ""
            try:
                study.check_patient()
                participant = self.patients.participant(study.patient_id)
                self._one(study, participant)
            except CadError as error:
                self.summary.failures.append(error.at(patient=participant, file=study.top))
            except OSError as error:
                self.summary.failures.append(
                    CadError(str(error.strerror), file=error.filename, patient=participant)
                )
            except Exception as error:  # damaged input may break anything; it costs one study only
                self.summary.failures.append(
                    CadError(
                        f"could not be converted: {type(error).__name__}: {error}",
                        file=study.top,
                        patient=participant,
                    )
                )
        if self.rules.ranges:  # every later step holds the cohort against its site's ranges
            text = json.dumps(self.rules.ranges, indent=2, sort_keys=True) + "\n"
            write_atomic(self.out / RANGES_FILE, text.encode())
        tables = self.tables.with_template(self.rules)
        if not tables.same(self.tables):
            tables.write(self.out, self.rules.name)

    def _one(self, study: SourceStudy | FileStudy, participant: str) -> None:
        place = self.patients.studies.get(study.uid)
        if place and self._is_leftover(place):
            self.patients.forget(place)
            place = None
        if place is None:
            self._add(study, participant)
        else:
            self._update(study, place)

    def _convert(
        self, study: SourceStudy | FileStudy, study_id: str, build: Path, have: Path | None
    ) -> Converted:
        if isinstance(study, FileStudy):
            return convert_files(study, study_id, build, have, self.rules)
        return convert(study, study_id, build, have, self.rules)

    def _is_leftover(self, place: Place) -> bool:
        """Tell a label map without rows: a broken import moved images but wrote no tables."""
        label_map = image_path(place.folder, place.study_id, "rois")
        return label_map.is_file() and not self.tables.regions(place)

    def _add(self, study: SourceStudy | FileStudy, participant: str) -> None:
        place = self.patients.place(participant, self.count[study.patient_id] > 1)
        build = Path(tempfile.mkdtemp(dir=self.scratch, prefix="study-"))
        build.chmod(0o755)
        converted = self._convert(study, place.study_id, build, None)
        tables = self.tables.with_session(participant) if place.session_id else self.tables
        tables = self._with_study(tables, study, place, converted)
        if study.simulated:
            self.summary.notes.append(f"{place.study_id}: simulated, as its DICOM files say")
        self._check(place, build, tables, study)
        if place.session_id:
            self.patients.give_session(participant, self.scratch)
        self.patients.settle(place, build, study.uid, study.patient_id)
        self._commit(place, tables, converted, self.summary.added)

    def _update(self, study: SourceStudy | FileStudy, place: Place) -> None:
        build = Path(tempfile.mkdtemp(dir=self.scratch, prefix="study-"))
        converted = self._convert(study, place.study_id, build, place.folder)
        tables = self._with_study(self.tables, study, place, converted)
        new = [path.relative_to(build) for path in sorted(build.rglob("*")) if path.is_file()]
        if not new and tables.same(self.tables):
            self._commit(place, self.tables, converted, self.summary.unchanged)
            return
        if new:
            shutil.copytree(place.folder, build, copy_function=_keep, dirs_exist_ok=True)
            self._check(place, build, tables, study)
            for path in new:
                (place.folder / path).parent.mkdir(exist_ok=True)
                os.replace(build / path, place.folder / path)
        self._commit(place, tables, converted, self.summary.updated)

    def _with_study(
        self, tables: Tables, study: SourceStudy | FileStudy, place: Place, converted: Converted
    ) -> Tables:
        scores = self._scores(study, place)
        tables = tables.with_study(place, converted.rois, scores, self.rules, self._others(place))
        return replace(tables, simulated=tables.simulated or study.simulated)

    def _others(self, place: Place) -> list[Place]:
        """Return the patient's other studies; a first one that has no session yet gets it."""
        found = [p for p in self.patients.studies.values() if p != place]
        return [
            Place(p.participant_id, p.session_id or FIRST_SESSION, p.folder)
            for p in found
            if p.participant_id == place.participant_id
        ]

    def _check(
        self, place: Place, build: Path, tables: Tables, study: SourceStudy | FileStudy
    ) -> None:
        """Read the study back as every later step will; problems show here or never."""
        rows = tables.rois[tables.rois["participant_id"] == place.participant_id]
        if place.session_id:
            rows = rows[rows["session_id"] == place.session_id]
        rois = [Roi(r, int(n)) for r, n in zip(rows["roi_id"], rows["label"], strict=True)]
        try:
            found = read_study(build, place.study_id, place.participant_id, rois)
        except CadError as error:
            # The temporary folder means nothing to the user.
            raise CadError(
                f"{Path(error.file).name}: {error.problem}",
                hint=error.hint,
                file=study.top,
                patient=place.participant_id,
                roi=error.roi,
            ) from error
        try:
            require_plausible(found, self.rules.ranges)
        except CadError as error:
            raise error.at(file=study.top) from None
        self.summary.notes += [
            f"{place.study_id}: {note}" for note in [*found.missing_notes, *found.notes]
        ]

    def _scores(self, study: SourceStudy | FileStudy, place: Place) -> list[dict[str, str]]:
        """Read the score file beside the study, else the one at the top of the source."""
        path = study.beside(self.rules.scores)
        top = study.top / self.rules.scores
        if path is None and top.is_file() and self.count[study.patient_id] == 1:
            path = top
        if path is None:
            return []
        rows = read_scores(path, study.patient_id, place.participant_id)
        if not rows:
            self.summary.notes.append(f"{place.study_id}: {path.name} has no row for this patient")
        return rows

    def _commit(
        self, place: Place, tables: Tables, converted: Converted, outcome: list[str]
    ) -> None:
        if tables is not self.tables:
            tables.write(self.out, self.rules.name)
            self.tables = tables
        outcome.append(place.study_id)
        if not tables.regions(place):
            self.summary.awaiting.append(place.study_id)
        self.summary.notes += [f"{place.study_id}: {note}" for note in converted.notes]


def _keep(source: str, target: str) -> None:
    if not os.path.exists(target):
        os.link(source, target)
