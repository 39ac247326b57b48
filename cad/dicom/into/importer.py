"""Import DICOM folders and archives into a cohort folder: add new studies, keep existing ones.

Each study is built in a hidden folder and read back with all checks of
:func:`cad.mri.imaging.study_files.read_study`. It is then put into place together with its table
rows by one :func:`cad.base.transactions.commit`. A study that fails affects no other study and
leaves nothing behind. From the headers come times (seconds), angles (degrees), and the UIDs that
DICOM output needs. Names and free text are left out. PatientID and the date of the study are left
out as well, unless the rules keep the source's ids (``labels: id``).
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cad.base.doors import door
from cad.base.errors import CadError, located
from cad.base.files import write_atomic
from cad.base.reading import bare_name, plain_number, read_numbered_rows, reading
from cad.base.settings import read_settings
from cad.base.transactions import claimed, commit, keep, stage
from cad.dicom.archive.client import connect, fetch_patient
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.into.conversion import Converted, convert, read_back
from cad.dicom.into.exported_twice import same_times, same_voxels
from cad.dicom.into.file_cohort import FileStudy, convert_files, find_file_studies
from cad.dicom.into.findings import PATIENT_COLUMN, findings_tables, names_patient
from cad.dicom.into.rules import ImportRules
from cad.dicom.into.source_tables import misnamed_tables, notes_on_strangers, rows_of_nobody
from cad.dicom.into.sources import (
    Call,
    SourceStudy,
    find_studies,
    in_this_process,
    leads_out,
)
from cad.dicom.into.tables import SCORE_COLUMNS, Tables, names_in_scores, read_scores
from cad.folders.cohort import COHORT, MISSING
from cad.folders.cohort.patients import FIRST_SESSION, Patients, StudyPlace
from cad.learning.labels.scales import check_percent
from cad.mri.imaging.elements import tag_name
from cad.mri.imaging.listing import as_problem
from cad.mri.imaging.plausibility import RANGES_FILE
from cad.mri.imaging.study import Roi

_NOTES_IN_HINT = 3
_HIGHEST_POINT = 5  # of the five-point scales: a score above it can only be in percent

Tell = Callable[[str, str], None]
Watch = Callable[[int], AbstractContextManager[Tell]]
"""Function that gets the number of studies and opens a display; the display gets each study's
result.
"""


@contextmanager
def unwatched(count: int) -> Iterator[Tell]:
    """Show no progress; the default of the argument ``watch`` of :func:`import_source`.

    Parameters
    ----------
    count : int
        Number of studies; not used.

    Yields
    ------
    callable
        Does nothing. The import calls it after each study with the participant (``sub-XXX``, empty
        if not known) and the reason of the failure (empty where the study was imported).
    """
    yield lambda participant, problem: None


@dataclass
class ImportSummary:
    """Hold the outcome of an import for each study.

    Parameters
    ----------
    added, updated, unchanged : list of str
        Ids of new studies; of studies that got new images, regions or scores; and of studies that
        stay as before.
    awaiting : list of str
        Ids of the studies, among all of these, that have no region yet.
    failures : list of CadError
        One error for each study or file that could not be imported.
    notes : list of str
        Messages for the user: which series was chosen, and what is missing.
    """

    added: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    awaiting: list[str] = field(default_factory=list)
    failures: list[CadError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, list[str]]:
        """Return the summary's lists by name, with failures as text; ``--json`` prints them."""
        return {**asdict(self), "failures": [str(failure) for failure in self.failures]}

    def as_text(self) -> str:
        """Return the summary as lines of text for a terminal."""
        ids_by_word = {
            "added": self.added,
            "updated": self.updated,
            "already there": self.unchanged,
        }
        lines = []
        for word, ids in ids_by_word.items():
            if ids:
                lines.append(f"{word}: {', '.join(ids)}")
        if self.awaiting:
            lines.append(f"awaiting ROI: {', '.join(self.awaiting)}")
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"failed: {failure}" for failure in self.failures]
        return "\n".join(lines)


def _way_to_decide(role: str) -> str:
    """Return what a person has to do with a role that the rules leave undecided."""
    if role == "diffusion":
        return (
            "leave matches of acquired images alone under diffusion, one image for each b-value "
            "(or set prefer: last or first), and remove diffusion from undecided"
        )
    if role == "vfa":
        return (
            "leave matches of one image for each flip angle under vfa (or set prefer: last or "
            "first), and remove vfa from undecided"
        )
    return (
        f"leave one match under {role} and remove {role} from undecided, or write the file again "
        f"with --new-rules and --take {role}=SERIES"
    )


def import_source(
    source: Path, out: Path, rules: Path, call: Call = in_this_process, watch: Watch = unwatched
) -> ImportSummary:
    """Import every study under a folder or in a zip archive.

    Parameters
    ----------
    source : Path
        Folder (zip archives inside it are opened too) or zip archive.
    out : Path
        Cohort folder, made when absent.
    rules : Path
        Rules file (:class:`cad.dicom.into.rules.ImportRules`).
    call : callable
        Calls the functions that open files or convert studies: ``call(function, *arguments)``
        returns the result of ``function(*arguments)``. By default they run in this process; another
        callable may run them in a process with limits of time and memory.
    watch : callable
        Gets the number of studies and returns a context manager for a display of progress, such
        as :func:`unwatched`; none is shown by default.

    Returns
    -------
    ImportSummary
        A study that fails is listed in it, and the others are imported.

    Raises
    ------
    CadError
        When the source does not exist, or holds no DICOM image (for a cohort of image files: no
        file that the rules name). When the rules are not valid, or another process writes into the
        cohort.
    """
    with claimed(out, COHORT):
        return import_owned(source, out, rules, call, watch)


def import_owned(
    source: Path, out: Path, rules: Path, call: Call = in_this_process, watch: Watch = unwatched
) -> ImportSummary:
    """Import into a cohort folder that the caller has locked
    (:func:`cad.base.transactions.claimed`).

    Of the studies, those that are new are added, and those that are there are updated.
    :func:`import_source` does the same and locks the folder itself.

    Parameters
    ----------
    source : Path
        Folder or zip archive of studies.
    out : Path
        The cohort folder.
    rules : Path
        Rules file.
    call : callable
        Calls the functions that open files or convert studies: ``call(function, *arguments)``
        returns the result of ``function(*arguments)``. By default they run in this process.
    watch : callable
        Gets the number of studies and returns a context manager for a display of progress, such
        as :func:`unwatched`; none is shown by default.

    Returns
    -------
    ImportSummary
        Ids of the studies that were added, updated or left unchanged, errors of studies or files
        that could not be imported, and notes for the user.
    """
    settings = read_settings(ImportRules, rules)
    # A person has to decide every role; the error names the first one.
    if settings.undecided:
        role, candidates = next(iter(settings.undecided.items()))
        raise CadError(
            f"the rules do not decide which series is {role}: {' | '.join(candidates)}",
            file=rules,
            hint=_way_to_decide(role),
        )
    if not source.exists():
        raise CadError("no such folder or archive", file=source)
    summary = ImportSummary()
    with stage(out) as scratch:
        studies: Sequence[SourceStudy | FileStudy]
        if settings.files is not None:
            studies = find_file_studies(source, settings.files, summary.notes, settings.detector)
        else:
            studies = find_studies(source, scratch, summary.failures, summary.notes, call)
        if not studies and not summary.failures:
            kind_of_file = "file of the rules" if settings.files else "DICOM image"
            # Notes on files that were left out may tell why none is left.
            left_out = "; ".join(summary.notes[:_NOTES_IN_HINT])
            raise CadError(f"no {kind_of_file} found", file=source, hint=left_out)
        _Import(studies, out, settings, scratch, summary, call).run(watch)
    return summary


class _Import:
    """Hold the state of one import: the cohort's tables and folders, and the results so far."""

    def __init__(
        self,
        studies: Sequence[SourceStudy | FileStudy],
        out: Path,
        rules: ImportRules,
        scratch: Path,
        summary: ImportSummary,
        call: Call,
    ) -> None:
        self.studies = studies
        self.out = out
        self.rules = rules
        self.scratch = scratch
        self.summary = summary
        # Every study is read and converted by ``call(function, *arguments)``, which runs the
        # function in this process, or in another one with limits of time and memory.
        self.call = call
        self.n_built = 0
        self.tables = Tables.read(out)
        self.patients = Patients(out, rules.labels, set(self.tables.participants["participant_id"]))
        # A study may be in the source twice, as a zip archive beside its unpacked folder. It counts
        # once.
        distinct = {(study.patient_id, study.uid) for study in studies}
        self.n_studies_of_patient = Counter(patient for patient, _ in distinct)
        # Collected from all score files of the source: the ids of the readers, and the scores in
        # percent. Each study is checked against all of them.
        self.readers_of_source: set[str] = set()
        self.percents_of_source: list[float] = []
        self.finding_rows = self._finding_rows_of_source()

    def run(self, watch: Watch) -> None:
        """Import every study, then add empty rows for missing scores; failures are collected."""
        score_rows = self._score_rows_of_source()
        self._add_scores_beside_masks()
        self._note_misnamed_tables()
        with watch(len(self.studies)) as tell:
            for study in self.studies:
                participant, problem = self._import_guarded(study)
                tell(participant, problem)
        self._note_strangers(score_rows)
        self._note_mixed_scales()
        new_files = {}
        if self.rules.ranges:  # later steps read the site's ranges from the cohort folder
            text = json.dumps(self.rules.ranges, indent=2, sort_keys=True) + "\n"
            new_files[RANGES_FILE] = self.scratch / RANGES_FILE
            write_atomic(new_files[RANGES_FILE], text.encode())
        tables = self.tables.with_template(self.rules)
        # Tables that stay the same are not written again.
        self._commit(new_files, self.tables if tables.same(self.tables) else tables)

    def _import_guarded(self, study: SourceStudy | FileStudy) -> tuple[str, str]:
        """Import a study; return its participant, and the reason if it failed."""
        participant = ""
        try:
            # Damaged input may cause any error, which must affect this study only.
            with reading(study.top, "could not be converted"):
                # This check comes first, because images of two men in one study must not get the
                # label of one man.
                study.check_patient()
                self._check_finding_rows(study)
                participant = self.patients.participant(study.patient_id)
                place = self.patients.studies.get(study.uid)
                if place is None:  # the cohort does not have the study
                    self._add(study, participant)
                elif place.participant_id != participant:
                    raise CadError(
                        f"the cohort has this study as {place.participant_id}'s: its PatientID was "
                        "another when it was imported",
                        hint="remove that patient first (cad cohort remove), or export the study "
                        "with the PatientID that it had",
                    )
                else:
                    self._update(study, place)
        except (CadError, OSError) as error:
            problem = as_problem(error).naming(patient=participant)
            if isinstance(study, SourceStudy):
                problem = study.naming_source(problem)
            self.summary.failures.append(problem)
            return participant, problem.problem
        return participant, ""

    def _convert(
        self, study: SourceStudy | FileStudy, study_id: str, build: Path, have: Path | None
    ) -> Converted:
        """Convert a study, which has DICOM or image files, into the folder ``build``.

        ``have`` is the study's folder in the cohort, None for a new study.
        """
        function = convert_files if isinstance(study, FileStudy) else convert
        converted: Converted = self.call(function, study, study_id, build, have, self.rules)
        return converted

    def _build(self) -> Path:
        """Return a new folder to build in."""
        self.n_built += 1
        build = self.scratch / f"study-{self.n_built}"
        build.mkdir()
        return build

    @door("out", "folder", owner="a new study of a cohort that is claimed")
    def _add(self, study: SourceStudy | FileStudy, participant: str) -> None:
        """Build a new study, check it, and commit it with its table rows."""
        has_several = self.n_studies_of_patient[study.patient_id] > 1
        place = self.patients.place(participant, has_several)
        # The folder may hold images of another man, which must not be mixed with the images of this
        # one.
        if place.folder.exists():
            problem = f"{place.folder.name} is there, and no study that the tables know"
            hint = "move the folder out of the cohort, and import again"
            raise CadError(problem, file=place.folder, hint=hint)
        self._check_kind_of_men(study)
        build = self._build()
        converted = self._convert(study, place.study_id, build, have=None)
        tables = self.tables
        if place.session_id:  # with a second study, the regions of the first get a session, too
            tables = tables.with_session(participant)
        tables = self._with_study(tables, study, place, converted)
        if study.simulated:
            self.summary.notes.append(f"{place.study_id}: simulated, as its DICOM files say")
        if place.session_id and isinstance(study, SourceStudy) and not study.slices[0].study_date:
            self.summary.notes.append(
                f"{place.study_id}: {tag_name(0x00080020)} is missing or no date; it is not known "
                f"in which order the studies of {participant} were made"
            )
        self._check(place, build, tables, study)
        notes_on_twins = self._exported_before(study, place, build)
        new_folders = {str(place.folder.relative_to(self.out)): build}
        # A man's second study turns his first into a session. Folder, names and rows change in one
        # commit, because a kill in between would leave rows without images.
        patient_folder = self._build()
        if place.session_id and self.patients.first_session(participant, patient_folder):
            os.rename(build, patient_folder / place.session_id)
            new_folders = {participant: patient_folder}
        self._commit(new_folders, tables)
        self.patients.settle(place, study.uid, study.patient_id)
        self.summary.notes += notes_on_twins
        self._done(place, converted, self.summary.added)

    def _check_kind_of_men(self, study: SourceStudy | FileStudy) -> None:
        """Refuse a simulated man in a cohort of real men, and a real man in a simulated cohort.

        A cohort is simulated as a whole. In such a cohort a model of simulated men may decide, and
        it must decide on no real man.
        """
        # An empty cohort may become either.
        if len(self.tables.participants) == 0 or self.tables.simulated == study.simulated:
            return
        kinds = {False: "real", True: "simulated"}
        raise CadError(
            f"the patient is {kinds[study.simulated]}, and the cohort holds "
            f"{kinds[self.tables.simulated]} patients",
            file=self.out,
            hint="import simulated patients into a cohort of their own",
        )

    def _exported_before(
        self, study: SourceStudy | FileStudy, place: StudyPlace, build: Path
    ) -> list[str]:
        """Return notes on those studies of the man that are probably ``study``, exported under
        other UIDs.
        """
        other_places = self.patients.of(place.participant_id)
        if not other_places:
            return []
        built_place = replace(place, folder=build)
        ids_of_same_voxels = self.call(same_voxels, built_place, other_places)
        reason_by_study = dict.fromkeys(ids_of_same_voxels, "the same voxels")
        for other in self.studies:
            other_place = self.patients.studies.get(other.uid)
            # Only DICOM headers state times: the other study must be in this source, too.
            if (
                other_place is not None
                and other_place in other_places
                and isinstance(study, SourceStudy)
                and isinstance(other, SourceStudy)
                and same_times(study, other)
            ):
                reason_by_study.setdefault(other_place.study_id, "the same acquisition times")
        # The note names the man and not his earlier study. His first study gets a session, and so
        # another id, when his second study comes.
        notes = []
        for reason in reason_by_study.values():
            notes.append(
                f"{place.study_id}: probably one examination exported twice: a study of "
                f"{place.participant_id} in the cohort has {reason}, under other UIDs; remove one, "
                "or it counts twice"
            )
        return notes

    @door("out", "folder", owner="a study of a cohort that is claimed")
    def _update(self, study: SourceStudy | FileStudy, place: StudyPlace) -> None:
        """Add to a study of the cohort what the source has and the cohort lacks."""
        build = self._build()
        converted = self._convert(study, place.study_id, build, place.folder)
        tables = self._with_study(self.tables, study, place, converted)
        new_files = []
        for path in sorted(build.rglob("*")):
            if path.is_file():
                new_files.append(path.relative_to(build))
        if not new_files and tables.same(self.tables):
            self._done(place, converted, self.summary.unchanged)
            return
        if new_files:
            # New images and masks are checked together with the existing ones, because a new mask
            # may fit none of the images.
            shutil.copytree(place.folder, build, copy_function=_unless_new, dirs_exist_ok=True)
            self._check(place, build, tables, study)
        study_folder = place.folder.relative_to(self.out)
        self._commit({str(study_folder / path): build / path for path in new_files}, tables)
        self._done(place, converted, self.summary.updated)

    def _with_study(
        self,
        tables: Tables,
        study: SourceStudy | FileStudy,
        place: StudyPlace,
        converted: Converted,
    ) -> Tables:
        """Return tables with a study's patient, regions, readers and scores added."""
        # If there is a score file beside the study, scores in tables that came with masks are not
        # used.
        score_rows = self._scores(study, place)
        if not score_rows and converted.scores:
            score_rows = list(converted.scores)
            if any(row["scale"] == "percent" for row in score_rows):
                self._check_percent(study.top)
        declared = {*self.rules.readers, *self.rules.experts, *self.tables.readers["reader_id"]}
        self._check_readers([row["reader_id"] for row in score_rows], declared, place)
        scores = []
        for row in score_rows:
            reader_id = self.patients.reader(row["reader_id"], declared)
            scores.append({**row, "reader_id": reader_id})
        tables = tables.with_study(
            place,
            converted.rois,
            scores,
            rules=self.rules,
            others=self._others(place),
            notes=converted.notes,
        )
        return replace(tables, simulated=tables.simulated or study.simulated)

    def _others(self, place: StudyPlace) -> list[StudyPlace]:
        """Return the other studies of a patient.

        If the first of these studies has no session yet, the session that it will get is used.
        """
        others = []
        for other in self.patients.of(place.participant_id):
            if other != place:
                session = other.session_id or FIRST_SESSION
                others.append(StudyPlace(other.participant_id, session, other.folder))
        return others

    def _check(
        self, place: StudyPlace, build: Path, tables: Tables, study: SourceStudy | FileStudy
    ) -> None:
        """Read the study back with all checks of later steps, so that problems appear now."""
        rows = tables.rois[tables.rois["participant_id"] == place.participant_id]
        if place.session_id:
            rows = rows[rows["session_id"] == place.session_id]
        rois = []
        for roi_id, label in zip(rows["roi_id"], rows["label"], strict=True):
            rois.append(Roi(roi_id, int(label)))
        try:
            notes = self.call(
                read_back, build, place.study_id, place.participant_id, rois, self.rules.ranges
            )
        except CadError as error:
            # The error names the study in the source, because the temporary folder would mean
            # nothing to the user.
            raise CadError(
                f"{Path(error.file).name}: {error.problem}" if error.file else error.problem,
                hint=error.hint,
                file=study.top,
                patient=place.participant_id,
                roi=error.roi,
            ) from error
        self.summary.notes += [f"{place.study_id}: {note}" for note in notes]

    def _scores(self, study: SourceStudy | FileStudy, place: StudyPlace) -> list[dict[str, str]]:
        """Read the score file beside the study, or else the score file at the top of the source."""
        path = self._score_file(study)
        if path is None:
            unused = self._score_file_at_top(study)
            if unused is not None:
                self.summary.notes.append(
                    f"{place.study_id}: {unused.name} at the top of the source is not used, "
                    "because the patient has several studies; put a score file beside each study"
                )
            return []
        rows = read_scores(path, study.patient_id, place.participant_id)
        if not rows:
            self.summary.notes.append(f"{place.study_id}: {path.name} has no row for this patient")
        for row in rows:
            self._check_one_patient(path, row["patient_id"], study.patient_id)
        if any(row["scale"] == "percent" for row in rows):
            self._check_percent(path)
        return rows

    def _check_one_patient(self, path: Path, cell: str, patient_id: str) -> None:
        """Refuse a row of scores whose patient may be two patients of the source.

        One PatientID may be another one's label, or equal another one but for a ``.0``.
        """
        for other in self.n_studies_of_patient:
            if other == patient_id:
                continue
            label = ""  # no name: it is removed from the names below
            # If no label can be made, the other study has failed for this reason.
            with suppress(CadError):
                label = self.patients.participant(other)
            if names_patient(cell, names_in_scores(other, label) - {""}):
                raise _of_two_patients(path, other=label)

    def _finding_rows_of_source(self) -> dict[Path, list[tuple[int, dict[str, str]]]]:
        """Read all tables of findings of the source.

        Each study reads its table again. If a table cannot be read, that study reports it.
        """
        if self.rules.findings is None:
            return {}
        folders: dict[Path, None] = {}  # its keys: each folder once, in order
        for study in self.studies:
            if isinstance(study, SourceStudy):
                folders.update(dict.fromkeys(study.tables))
        rows_by_table = {}
        for path in findings_tables(folders, self.rules.findings.file):
            # Damage is reported by the study that reads the table again.
            with suppress(CadError, OSError):
                rows_by_table[path] = self.call(read_numbered_rows, path, (PATIENT_COLUMN,))
        return rows_by_table

    def _check_finding_rows(self, study: SourceStudy | FileStudy) -> None:
        """Refuse a table with a finding that may be this patient's or another one's."""
        this_patient = {study.patient_id.strip()}
        others = {other.strip() for other in self.n_studies_of_patient} - this_patient
        for path, rows in self.finding_rows.items():
            for _, row in rows:
                cell = row[PATIENT_COLUMN]
                if names_patient(cell, this_patient) and names_patient(cell, others):
                    raise _of_two_patients(path, other="")

    def _add_scores_beside_masks(self) -> None:
        """Collect readers and scores in percent of the tables that came with masks."""
        rule = self.rules.outlines
        if rule is None or rule.table is None or rule.score_column is None:
            return
        folders: dict[Path, None] = {}  # its keys: each folder once, in order
        for study in self.studies:
            folders.update(dict.fromkeys(_table_folders(study)))
        columns = [name for name in (rule.score_column, rule.reader_column) if name]
        for folder in folders:
            path = folder / rule.table
            rows: list[tuple[int, dict[str, str]]] = []
            # The studies report a table that is missing or cannot be read.
            with suppress(CadError, OSError):
                rows = self.call(read_numbered_rows, path, columns)
            for _, row in rows:
                score = plain_number(row[rule.score_column].strip())
                if self.rules.scale == "percent" and score is not None:
                    self.percents_of_source.append(score)
                if rule.reader_column and row[rule.reader_column].strip():
                    self.readers_of_source.add(row[rule.reader_column].strip())

    def _score_file(self, study: SourceStudy | FileStudy) -> Path | None:
        """Return a study's score file: the one beside it, or else the one at the top."""
        path = study.beside(self.rules.scores)
        # A table of scores at the top of the source names patients and not studies. If a man had
        # two studies, a score would be given to the regions of both. The table is therefore used
        # only for a man with a single study.
        if path is None and self.n_studies_of_patient[study.patient_id] == 1:
            path = self._score_file_at_top(study)
        return path

    def _score_file_at_top(self, study: SourceStudy | FileStudy) -> Path | None:
        """Return the score file of all patients at the top of the source; None if there is none."""
        for folder in _table_folders(study):
            path = folder / self.rules.scores
            # A link could show a file of somebody else, outside of the source.
            if path.is_file() and not leads_out(path, folder):
                return path
        return None

    def _score_rows_of_source(self) -> dict[Path, list[tuple[int, dict[str, str]]]]:
        """Read all score files of the source, and collect their readers and scores in percent.

        Each study reads its own score file again. If a file cannot be read, that study reports it.
        """
        rows_by_file: dict[Path, list[tuple[int, dict[str, str]]]] = {}
        for study in self.studies:
            path = self._score_file(study)
            if path is None or path in rows_by_file:
                continue
            rows_by_file[path] = []
            with suppress(CadError, OSError):
                rows_by_file[path] = self.call(read_numbered_rows, path, SCORE_COLUMNS)
        for rows in rows_by_file.values():
            for _, row in rows:
                self.readers_of_source.add(row["reader_id"].strip())
                score = plain_number(row["score"].strip())
                if row["scale"].strip() == "percent" and score is not None:
                    self.percents_of_source.append(score)
        return rows_by_file

    def _check_percent(self, path: Path) -> None:
        """Refuse scores in percent that are probably shares or points, by all scores of the source.

        In a cohort that has larger scores in percent, a study with small scores is believed.
        """
        scores = self.tables.scores
        in_percent = (scores["scale"] == "percent") & (scores["score"] != MISSING)
        for cell in scores["score"][in_percent]:
            score = plain_number(cell)
            if score is not None and score > _HIGHEST_POINT:
                return
        with located(file=path):
            check_percent(self.percents_of_source)

    def _check_readers(self, names: list[str], declared: set[str], place: StudyPlace) -> None:
        """Refuse a reader whose name differs from another reader's only by what people overlook."""
        for name in sorted(set(names) - declared):
            for other in sorted(declared | self.readers_of_source):
                if other == name or bare_name(other) != bare_name(name):
                    continue
                # Under pseudonyms a reader's name must not be shown either.
                shown_name = self.patients.reader(name, declared)
                shown_other = self.patients.reader(other, declared)
                raise CadError(
                    f"readers {shown_name!r} and {shown_other!r} differ by capitals, blanks, "
                    "dashes, invisible characters or .0 alone: one reader in two ways would count "
                    "as two",
                    patient=place.participant_id,
                    hint="write both alike; if they are two readers, list both under readers in "
                    "the rules",
                )

    def _note_misnamed_tables(self) -> None:
        """Note files that are probably tables, but have another name than the rules say."""
        # The keys are the folders, each once and in order.
        study_folders: dict[Path, None] = {}
        table_folders: dict[Path, None] = {}
        for study in self.studies:
            if isinstance(study, SourceStudy):
                study_folders.update(dict.fromkeys(study.folders))
            table_folders.update(dict.fromkeys(_table_folders(study)))
        notes = misnamed_tables({**study_folders, **table_folders}, self.rules.scores, below=False)
        if self.rules.findings is not None:
            findings_name = self.rules.findings.file
            notes += misnamed_tables(table_folders, findings_name, below=True)
            if not findings_tables(table_folders, findings_name):
                notes.append(
                    f"the source has no {findings_name}, which the rules name as table of findings"
                )
        self.summary.notes += notes

    def _note_strangers(self, score_rows: dict[Path, list[tuple[int, dict[str, str]]]]) -> None:
        """Note the rows of score files and tables of findings that are of no patient of the source.

        A man's label may make the secret key of the cohort. This is therefore done after the
        studies, which make it anyway.
        """
        labels: dict[str, str] = {}
        names_in_score_files: set[str] = set()
        for patient_id in self.n_studies_of_patient:
            # A patient for whom no label can be made is left out here. His studies have already
            # failed for this reason.
            with suppress(CadError):
                labels[patient_id] = self.patients.participant(patient_id)
                names_in_score_files |= names_in_scores(patient_id, labels[patient_id])
        strangers_by_file: dict[Path, list[tuple[int, str]]] = {}
        for path, rows in score_rows.items():
            strangers_by_file[path] = rows_of_nobody(rows, "patient_id", names_in_score_files)
        ids = {patient_id.strip() for patient_id in labels}
        for path, rows in self.finding_rows.items():
            strangers_by_file[path] = rows_of_nobody(rows, PATIENT_COLUMN, ids)
        show_ids = self.rules.labels == "id"
        for path, rows_of_strangers in strangers_by_file.items():
            self.summary.notes += notes_on_strangers(
                path, rows_of_strangers, labels, show_ids=show_ids
            )

    def _note_mixed_scales(self) -> None:
        """Note each reader of the source whose scores in the cohort are on several scales."""
        scores = self.tables.scores[self.tables.scores["score"] != MISSING]
        for reader, scales in scores.groupby("reader_id")["scale"]:
            names = sorted(scales.unique())
            if len(names) > 1:
                self.summary.notes.append(
                    f"reader {reader} has scores on {len(names)} scales: {', '.join(names)}"
                )

    def _commit(self, new: dict[str, Path], tables: Tables) -> None:
        """Put new files and folders and the tables into place, all or none."""
        if tables is not self.tables:
            tables_folder = self._build()
            tables.write(tables_folder, self.rules.name)
            table_files = {path.name: path for path in sorted(tables_folder.iterdir())}
            new = {**new, **table_files}
        if new:
            commit(self.out, new)
        self.tables = tables

    def _done(self, place: StudyPlace, converted: Converted, outcome: list[str]) -> None:
        """Record a study in the summary; ``outcome`` is the summary's list that fits the study."""
        outcome.append(place.study_id)
        if not self.tables.regions(place):
            self.summary.awaiting.append(place.study_id)
        self.summary.notes += [f"{place.study_id}: {note}" for note in converted.notes]


def _of_two_patients(path: Path, other: str) -> CadError:
    """Return the error on a row of two patients; ``other`` is the other's label, if it is known."""
    also = f"also of {other}" if other else "also of another patient of the source"
    return CadError(
        f"a row of this patient is {also}, because it names both",
        file=path,
        hint="write the two patients' ids so that none is the other's label, or the other's id but "
        "for blanks or .0 at its end",
    )


def _table_folders(study: SourceStudy | FileStudy) -> tuple[Path, ...]:
    """Return the folders at whose top a table of all patients may lie."""
    return study.tables if isinstance(study, SourceStudy) else (study.top,)


def _unless_new(source: str, target: str) -> None:
    """Put a file of the cohort beside the new files of a study, unless a new one has its place."""
    if not os.path.exists(target):
        keep(source, target)


@door("out", "folder", owner="a cohort that is claimed")
def import_patient(
    address: str,
    aet: str,
    patient_id: str,
    out: Path,
    rules: Path,
    limits: ArchiveLimits | None = None,
    call: Call = in_this_process,
    watch: Watch = unwatched,
) -> ImportSummary:
    """Fetch a patient's studies from an archive and import them.

    Parameters
    ----------
    address : str
        ``HOST:PORT``, or the URL of a DICOMweb service.
    aet : str
        The archive's application entity title.
    patient_id : str
        PatientID in the archive.
    out : Path
        Cohort folder, made when absent.
    rules : Path
        Rules file.
    limits : ArchiveLimits, optional
        Limits of time and amount for the transfer.
    call : callable
        Calls the functions that open files or convert studies: ``call(function, *arguments)``
        returns the result of ``function(*arguments)``. By default they run in this process.
    watch : callable
        Gets the number of studies and returns a context manager for a display of progress, such
        as :func:`unwatched`; none is shown by default.

    Returns
    -------
    ImportSummary
        A study that arrived in part is listed among the failures, and nothing of this study is
        imported.

    Raises
    ------
    CadError
        When the archive refuses, does not answer, or knows no such patient. When another process
        writes into the cohort.
    """
    archive = connect(address, aet, limits)
    with claimed(out, COHORT), stage(out) as scratch:
        folders, failures = fetch_patient(archive, patient_id, scratch)
        # Only complete studies are imported: they are moved apart from the incomplete ones.
        complete = scratch / "whole"
        complete.mkdir()
        for folder in folders:
            folder.rename(complete / folder.name)
        summary = ImportSummary()
        if folders:
            summary = import_owned(complete, out, rules, call, watch)
    summary.failures += failures
    return summary
