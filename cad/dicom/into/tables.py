"""Hold the cohort's tables while studies are added.

Regions and scores that the tables already have stay as they are. Only three things change in
existing rows. Regions may get a session, a patient's status is kept up to date, and a row without a
score is replaced by scores.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from cad.base.errors import CadError, located
from cad.base.files import CONTROL
from cad.base.reading import plain_number, read_frame, read_numbered_rows
from cad.dicom.into.findings import names_patient
from cad.dicom.into.rules import FIRST_READER, ImportRules
from cad.folders.cohort import COLUMNS, MISSING, is_simulated, write_tables
from cad.folders.cohort.patients import FIRST_SESSION, StudyPlace
from cad.learning.labels.scales import check_score
from cad.mri.imaging.study import Roi

COMPLETE = "complete"
AWAITING = "awaiting ROI"
# The columns of a table that does not exist yet.
_COLUMNS = {**COLUMNS, "participants": ("participant_id", "site", "status")}
_LONGEST = 40  # characters of a cell that a message shows
_PLAIN_DIGITS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
SCORE_COLUMNS = ("patient_id", "roi_id", "reader_id", "scale", "score")


@dataclass(frozen=True, eq=False)
class Tables:
    """Hold a cohort's tables as DataFrames of text, with ``n/a`` for missing values.

    Parameters
    ----------
    participants, readers, rois, scores : DataFrame
        The rows of the TSV file of that name.
    simulated : bool
        Whether the cohort is simulated.
    """

    participants: pd.DataFrame
    readers: pd.DataFrame
    rois: pd.DataFrame
    scores: pd.DataFrame
    simulated: bool = False

    @classmethod
    def read(cls, root: Path) -> Tables:
        """Read a cohort's tables as text; a table that is not there yet is empty."""
        tables = {name: _read_as_text(root / f"{name}.tsv") for name in _COLUMNS}
        is_there = (root / "dataset_description.json").exists()
        # A cohort that has a simulated study stays simulated.
        return cls(**tables, simulated=is_there and is_simulated(root))

    def write(self, root: Path, name: str) -> None:
        """Write all tables into a cohort folder; each file is written whole or not at all.

        Parameters
        ----------
        root : Path
            The cohort folder.
        name : str
            The cohort's name in ``dataset_description.json``.
        """
        write_tables(root, **vars(self), name=name)

    def same(self, other: Tables) -> bool:
        """Tell whether two sets of tables have equal rows and are both simulated or both not."""
        equal_tables = (getattr(self, name).equals(getattr(other, name)) for name in _COLUMNS)
        return self.simulated == other.simulated and all(equal_tables)

    def regions(self, place: StudyPlace) -> list[str]:
        """Return the ROI ids of a study."""
        rows = self.rois[self.rois["participant_id"] == place.participant_id]
        if place.session_id and "session_id" in rows:
            rows = rows[rows["session_id"] == place.session_id]
        return [str(roi) for roi in rows["roi_id"]]

    def with_session(self, participant: str) -> Tables:
        """Return a copy of the tables in which a patient's regions all have a session.

        Regions of the patient without a session get ``ses-01``.
        """
        rois = self.rois.copy()
        if "session_id" not in rois:
            rois["session_id"] = MISSING
        of_patient = rois["participant_id"] == participant
        without_session = rois["session_id"] == MISSING
        rois.loc[of_patient & without_session, "session_id"] = FIRST_SESSION
        return replace(self, rois=rois)

    def with_study(
        self,
        place: StudyPlace,
        rows: list[Roi],
        scores: list[dict[str, str]],
        rules: ImportRules,
        others: Iterable[StudyPlace],
        notes: list[str],
    ) -> Tables:
        """Return a copy of the tables with a study's patient, regions, readers and scores added.

        Rows that are there already stay as they are.

        Parameters
        ----------
        place : Place
            The study.
        rows : list of Roi
            New regions.
        scores : list of dict
            Rows of the source's score file for this patient, with the source's ROI ids.
        rules : ImportRules
            Site, readers and scale.
        others : iterable of Place
            The patient's other studies. While one of them has no regions, the patient's status says
            that regions are awaited.
        notes : list of str
            A note is appended for scores that stay although the source now has others.

        Raises
        ------
        CadError
            For a score of a ROI that does not exist, a score outside its scale, or a second score
            of one ROI by one reader.
        """
        new_ids = self._free_ids(place, rows)
        tables = self._with_regions(place, rows, new_ids)
        roi_ids = set(tables.regions(place))
        records = [_score_row(place, row, new_ids, roi_ids) for row in scores]
        # Two scores of one reading contradict each other, or count twice.
        times_by_reading = Counter((record["roi_id"], record["reader_id"]) for record in records)
        for (roi_id, reader), times in times_by_reading.items():
            if times > 1:
                problem = f"reader {reader} scored this ROI twice"
                raise CadError(problem, patient=place.participant_id, roi=roi_id)
        tables = tables._with_scores(records, rules, notes)
        return tables._with_patient(place, others, rules)

    def _free_ids(self, place: StudyPlace, rows: list[Roi]) -> dict[str, str]:
        """Make the ids of new ROIs unique in a patient; return the new id by the source's id.

        An id that the patient already has gets the session of the new study in front.
        """
        taken = set(self.rois["roi_id"][self.rois["participant_id"] == place.participant_id])
        free_ids = {}
        for row in rows:
            free_ids[row.roi_id] = row.roi_id
            if row.roi_id in taken:
                free_ids[row.roi_id] = f"{place.session_id}.{row.roi_id}"
        return free_ids

    def _with_regions(
        self, place: StudyPlace, new_rois: list[Roi], new_ids: dict[str, str]
    ) -> Tables:
        """Return the tables with a study's new regions; ``new_ids`` are by the source's ids."""
        if not new_rois:
            return self
        added = pd.DataFrame(
            {
                "participant_id": place.participant_id,
                "roi_id": [new_ids[roi.roi_id] for roi in new_rois],
                "label": [str(roi.label) for roi in new_rois],
                "zone": [roi.zone for roi in new_rois],
                "histology": [roi.histology for roi in new_rois],
                "isup": [roi.isup for roi in new_rois],
            }
        )
        # The column exists only in a cohort with regions that a detector outlined.
        if any(roi.confidence is not None for roi in new_rois):
            confidences = []
            for roi in new_rois:
                text = MISSING if roi.confidence is None else f"{roi.confidence:.4g}"
                confidences.append(text)
            added["confidence"] = confidences
        if place.session_id:
            added["session_id"] = place.session_id
        return replace(self, rois=_with_rows(self.rois, added))

    def with_template(self, rules: ImportRules) -> Tables:
        """Return a copy of the tables with rows of empty scores added, for readers to fill in.

        Each region without any row in ``scores.tsv`` gets a row for each reader that the rules
        name. If the rules name none, it gets one for each reader of the cohort or, without readers,
        for ``r1``. Call it after the last study of an import, so that the order of studies does not
        matter.
        """
        readers = list(rules.readers) or list(self.readers["reader_id"]) or [FIRST_READER]
        scored_regions = set(zip(self.scores["participant_id"], self.scores["roi_id"], strict=True))
        regions = zip(self.rois["participant_id"], self.rois["roi_id"], strict=True)
        rows = []
        readers_of_rows = []
        for man, roi_id in regions:
            if (man, roi_id) in scored_regions:
                continue
            for reader in readers:
                rows.append((man, roi_id, reader, rules.scale, MISSING))
                readers_of_rows.append(reader)
        scores = _with_rows(self.scores, pd.DataFrame(rows, columns=_COLUMNS["scores"]))
        all_readers = self._with_readers(readers_of_rows, rules)
        return replace(self, scores=scores, readers=all_readers)

    def _with_scores(
        self, records: list[dict[str, str]], rules: ImportRules, notes: list[str]
    ) -> Tables:
        """Return the tables with new scores and their readers; a score that is there stays."""
        scores = self.scores
        real_scores = scores[scores["score"] != MISSING]
        readings = zip(
            real_scores["participant_id"],
            real_scores["roi_id"],
            real_scores["reader_id"],
            strict=True,
        )
        earlier_scores = dict(zip(readings, real_scores["score"], strict=True))
        new_records = []
        for record in records:
            reader = record["reader_id"]
            roi = record["roi_id"]
            score = record["score"]
            earlier = earlier_scores.get((record["participant_id"], roi, reader))
            if earlier is None:
                new_records.append(record)
            elif score != MISSING and float(earlier) != float(score):
                notes.append(
                    f"reader {reader}'s score of ROI {roi} stays {earlier}; the source says {score}"
                )
        # A row with an empty score was made for a reader to fill in. Once the region has scores,
        # they replace this row.
        scored_regions = {(record["participant_id"], record["roi_id"]) for record in new_records}
        stays = []
        for man, roi, score in zip(
            scores["participant_id"], scores["roi_id"], scores["score"], strict=True
        ):
            stays.append(score != MISSING or (man, roi) not in scored_regions)
        remaining_rows = scores.loc[np.array(stays, bool)]
        new_rows = pd.DataFrame(new_records, columns=_COLUMNS["scores"])
        scores = _with_rows(remaining_rows, new_rows)
        readers = self._with_readers([record["reader_id"] for record in new_records], rules)
        return replace(self, scores=scores, readers=readers)

    def _with_readers(self, names: list[str], rules: ImportRules) -> pd.DataFrame:
        """Return the table of readers with those of ``names`` that it lacks, each once."""
        listed = set(self.readers["reader_id"])
        new = [name for name in dict.fromkeys(names) if name not in listed]
        expert = []
        for name in new:
            expert.append("1" if name in rules.experts else "0")
        return _with_rows(self.readers, pd.DataFrame({"reader_id": new, "expert": expert}))

    def _with_patient(
        self, place: StudyPlace, others: Iterable[StudyPlace], rules: ImportRules
    ) -> Tables:
        """Return the tables with a study's patient and his status.

        ``others`` are the patient's other studies.
        """
        participants = self.participants.copy()
        if not (participants["participant_id"] == place.participant_id).any():
            row = {"participant_id": place.participant_id, "site": rules.site}
            participants = _with_rows(participants, pd.DataFrame([row]))
        if "status" not in participants:
            participants["status"] = MISSING
        of_man = participants["participant_id"] == place.participant_id
        # The status belongs to the man, not to a study: he waits for regions as long as one of his
        # studies has none.
        complete = all(self.regions(study) for study in (place, *others))
        participants.loc[of_man, "status"] = COMPLETE if complete else AWAITING
        return replace(self, participants=participants)


def read_scores(path: Path, patient_id: str, participant: str) -> list[dict[str, str]]:
    """Return the rows of a score file that are of this patient.

    Parameters
    ----------
    path : Path
        CSV with ``patient_id, roi_id, reader_id, scale, score``.
    patient_id, participant : str
        The source's id and the BIDS label; the file may use either.

    Raises
    ------
    CadError
        When a column is missing or the file is no table. When a row of the patient has no reader,
        or a cell with a control character.

    Returns
    -------
    list of dict of str to str
        One dict for each row, by name of the column.
    """
    names = names_in_scores(patient_id, participant)
    rows_of_patient = []
    for line, cells in read_numbered_rows(path, SCORE_COLUMNS):
        if not names_patient(cells["patient_id"], names):
            continue
        row = {column: cells[column].strip() for column in SCORE_COLUMNS}
        for column, cell in row.items():
            if CONTROL.search(cell):
                raise CadError(f"line {line} has a control character in {column}", file=path)
        # Without its reader, nobody could tell whether two scores are of one reading.
        if not row["reader_id"]:
            raise CadError(
                f"line {line} has no reader_id",
                file=path,
                patient=participant,
                roi=row["roi_id"],
                hint="write who gave the score, such as r1",
            )
        rows_of_patient.append(row)
    return rows_of_patient


def names_in_scores(patient_id: str, participant: str) -> set[str]:
    """Return the names by which a score file may call a patient.

    Parameters
    ----------
    patient_id, participant : str
        The source's id, and the label ``sub-XXX``.
    """
    return {patient_id.strip(), participant, participant.removeprefix("sub-")}


def _read_as_text(path: Path) -> pd.DataFrame:
    """Return a table of the cohort as text; a table that is not there yet has no rows."""
    if not path.is_file():
        return pd.DataFrame(columns=list(_COLUMNS[path.stem]), dtype=object)
    # The tables are written without quoting. A quotation mark in a cell is therefore part of its
    # text. All cells stay text: if the label 007 were read as a number, it would become 7, which
    # may be another patient's label.
    table = read_frame(path, "\t", dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE)
    absent = [column for column in COLUMNS[path.stem] if column not in table.columns]
    if absent:
        raise CadError(f"missing column(s) {', '.join(absent)}", file=path)
    return table


def _with_rows(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return a table with rows added at its end; a column that one of the two lacks is ``n/a``."""
    if rows.empty:
        return table.reset_index(drop=True)
    # As objects, cells of text stay text when a column is missing in one of the two.
    joined = pd.concat([table.astype(object), rows.astype(object)], ignore_index=True)
    return joined.fillna(MISSING)


def _score_row(
    place: StudyPlace, row: dict[str, str], new_ids: dict[str, str], roi_ids: set[str]
) -> dict[str, str]:
    """Return a row of ``scores.tsv`` from a row of a study's score file, with the cohort's ROI id.

    ``new_ids`` holds the ids of new regions by the source's ids, ``roi_ids`` all ids of the study.
    """
    roi_id = new_ids.get(row["roi_id"], row["roi_id"])
    # A source that is imported again gives the region the same id as before. In the cohort the id
    # may have the session in front, because another session of the patient already had the id.
    id_with_session = f"{place.session_id}.{row['roi_id']}"
    if id_with_session in roi_ids:
        roi_id = id_with_session
    if roi_id not in roi_ids:
        problem = "scores for a ROI that does not exist"
        hint = f"the study has {', '.join(sorted(roi_ids)) or 'no ROI'}"
        raise CadError(problem, patient=place.participant_id, roi=roi_id, hint=hint)
    score_text = MISSING
    if row["score"] not in ("", MISSING):
        with located(patient=place.participant_id, roi=roi_id):
            score = plain_number(row["score"])
            if score is None:
                raise CadError(
                    f"score {row['score'][:_LONGEST]!r} is no number",
                    hint="write it in the digits 0 to 9, with a decimal point; or leave it empty",
                )
            check_score(row["scale"], score)
            score_text = row["score"]
            # 1e0 and +4 are numbers, but other programs may read them as text.
            if not _PLAIN_DIGITS.fullmatch(score_text):
                score_text = np.format_float_positional(score, trim="-")
    return {**row, "participant_id": place.participant_id, "roi_id": roi_id, "score": score_text}
