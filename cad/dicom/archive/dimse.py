"""An archive by DICOM networking: C-FIND, C-GET or C-MOVE, and C-STORE through pynetdicom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pydicom
from pydicom.dataset import Dataset
from pydicom.uid import (
    Comprehensive3DSRStorage,
    ComprehensiveSRStorage,
)
from pynetdicom.association import Association

from cad.dicom.archive.dimse_calls import PENDING, SUCCESS, Calls
from cad.dicom.archive.dimse_fetch import FETCHED, Kept, destination
from cad.dicom.archive.interface import (
    IDENTITY,
    MODALITIES,
    FoundSeries,
    SamePatient,
    Step,
    fetch_whole,
    file_under,
    matches,
    prove_stored,
)
from cad.dicom.archive.settings import ArchiveLimits, Move
from cad.dicom.out.supersede import (
    ASKED,
    Earlier,
    earlier_results,
    is_report,
    named_predecessors,
    sent_together,
    supersede,
)
from cad.errors import CadError

# Study Root Query/Retrieve Information Model.
FIND, GET = "1.2.840.10008.5.1.4.1.2.2.1", "1.2.840.10008.5.1.4.1.2.2.3"
MOVE = "1.2.840.10008.5.1.4.1.2.2.2"
STORED = [*FETCHED, ComprehensiveSRStorage, Comprehensive3DSRStorage]
# Storage Commitment Push Model, and the one well-known instance of it.
COMMITMENT, _COMMITMENT_INSTANCE = "1.2.840.10008.1.20.1", "1.2.840.10008.1.20.1.1"
_WARNINGS = (0xB000, 0xB006, 0xB007)


class DimseArchive:
    """Speak DICOM networking with an archive."""

    def __init__(self, host: str, port: int, aet: str, limits: ArchiveLimits) -> None:
        self.limits, self._calls = limits, Calls(host, port, aet, limits)

    def find(self, patient_id: str) -> list[FoundSeries]:
        """Return the series of interest of a patient."""
        found = []
        with self._calls.open([FIND]) as association:
            query = _query("STUDY", PatientID=patient_id, StudyInstanceUID="")
            for study in self._ask(association, query):
                owner = str(study.get("PatientID", patient_id))
                if owner.strip() == patient_id.strip():
                    found += self._series(association, owner, str(study.StudyInstanceUID))
        return found

    def recent(self, since: str, match: dict[str, str]) -> list[FoundSeries]:
        """Return the series of studies with MR since a day (YYYYMMDD) that match further keys."""
        found = []
        keys = {**dict.fromkeys(match, ""), "StudyDate": f"{since}-", "ModalitiesInStudy": "MR"}
        with self._calls.open([FIND]) as association:
            query = _query("STUDY", PatientID="", StudyInstanceUID="", **keys)
            for study in self._ask(association, query):
                owner = str(study.get("PatientID", ""))
                if not matches(study, match):
                    continue
                found += self._series(association, owner, str(study.StudyInstanceUID))
        return found

    def _series(self, association: Association, owner: str, study_uid: str) -> list[FoundSeries]:
        query = _query(
            "SERIES",
            StudyInstanceUID=study_uid,
            SeriesInstanceUID="",
            Modality="",
            NumberOfSeriesRelatedInstances=None,
        )
        found = []
        for series in self._ask(association, query):
            if str(series.get("StudyInstanceUID", study_uid)) != study_uid:
                raise CadError(
                    f"{self._calls.name}: asked for series of {study_uid}, got another study's"
                )
            modality = str(series.get("Modality", ""))
            if modality not in MODALITIES:
                continue
            uid = str(series.SeriesInstanceUID)
            count = series.get("NumberOfSeriesRelatedInstances")
            if count is None:  # an optional answer: count the instances themselves
                count = len(self._instances(association, study_uid, uid))
            found.append(FoundSeries(owner, study_uid, uid, modality, int(count)))
        return found

    def _instances(
        self, association: Association, study: str, series: str, instance: str = ""
    ) -> set[str]:
        query = _query(
            "IMAGE", StudyInstanceUID=study, SeriesInstanceUID=series, SOPInstanceUID=instance
        )
        return {str(one.SOPInstanceUID) for one in self._ask(association, query)}

    def fetch(self, series: list[FoundSeries], into: Path) -> None:
        """Fetch a study's series into a folder, by C-MOVE where `move` is set, else by C-GET."""
        fetch_whole(self._fetch, series, into)

    def _fetch(self, series: FoundSeries, into: Path) -> int:
        kept = Kept(series, into)
        query = _query(
            "SERIES", StudyInstanceUID=series.study_uid, SeriesInstanceUID=series.series_uid
        )
        if self.limits.move is not None:
            self._move(query, kept, self.limits.move)
            return kept.count()
        with self._calls.open([GET], receive=FETCHED, handler=kept.store) as association:
            self._follow(association.send_c_get(query, GET), "C-GET", kept)
        return kept.count()

    def _move(self, query: Dataset, kept: Kept, move: Move) -> None:
        """Let the archive send a series to us, at the place that it knows."""
        with (
            destination(move, self._calls.aet, self.limits, kept) as received,
            self._calls.open([MOVE]) as association,
        ):
            try:
                self._follow(association.send_c_move(query, move.aet, MOVE), "C-MOVE", kept)
            finally:
                self._calls.check_amount(received)

    def _follow(self, answers: Iterator[Any], what: str, kept: Kept) -> None:
        """Follow the archive's account of what it sends, to its end."""
        for status, _ in answers:
            if kept.refused:  # the archive reports our refusal as its failure
                continue
            self._calls.check(status, what, allowed=(*PENDING, SUCCESS, *_WARNINGS))
            failed = status.get("NumberOfFailedSuboperations") or 0
            if failed:
                hint = "does it know `move`'s title, host and port, and is --aet its own title?"
                raise CadError(
                    f"{self._calls.name}: {failed} instances could not be sent",
                    hint=hint if what == "C-MOVE" else "",
                )

    def store(
        self, paths: Iterable[Path], same_patient: SamePatient | None = None
    ) -> Iterator[Step]:
        """Store objects by C-STORE under the archive's own patient of their study."""
        known: dict[str, list[Dataset]] = {}
        paths = list(paths)
        together = sent_together(paths)
        with self._calls.open([*STORED, FIND]) as association:
            for path in paths:
                dataset = pydicom.dcmread(path)
                uid = str(dataset.StudyInstanceUID)
                if uid not in known:
                    query = _query("STUDY", StudyInstanceUID=uid, **dict.fromkeys(IDENTITY, ""))
                    known[uid] = self._ask(association, query)
                file_under(dataset, known[uid], same_patient)
                before = self._earlier(association, dataset) if is_report(dataset) else []
                named = named_predecessors(supersede(dataset, before, together))
                yield Step(path)
                remark = self._send(association, dataset, path)
                yield Step(path, True, "; ".join(filter(None, (remark, named))))

    def _earlier(self, association: Association, dataset: Dataset) -> list[Earlier]:
        """Return the results of ours that the archive has of an object's study."""
        study = str(dataset.StudyInstanceUID)
        query = _query("SERIES", StudyInstanceUID=study, **dict.fromkeys(ASKED, ""))
        query.SeriesNumber = None
        answers = self._ask(association, query)
        return earlier_results(answers, lambda uid: self._instances(association, study, uid))

    def missing(self, paths: list[Path]) -> list[Path]:
        """Return the objects that a C-FIND does not list."""
        with self._calls.open([FIND]) as association:
            return [path for path in paths if not self._lists(association, path)]

    def commit(self, paths: list[Path], number: str) -> None:
        """Ask for storage commitment (PS3.4 J.3.2); the archive reports it by N-EVENT-REPORT."""
        asked = Dataset()
        asked.TransactionUID, asked.ReferencedSOPSequence = number, []
        for path in paths:
            found, item = pydicom.dcmread(path, stop_before_pixels=True), Dataset()
            item.ReferencedSOPClassUID = found.SOPClassUID
            item.ReferencedSOPInstanceUID = found.SOPInstanceUID
            asked.ReferencedSOPSequence.append(item)
        with self._calls.open([COMMITMENT]) as association:
            status, _ = association.send_n_action(asked, 1, COMMITMENT, _COMMITMENT_INSTANCE)
            self._calls.check(status, "N-ACTION", allowed=(SUCCESS,))

    def _lists(self, association: Association, path: Path) -> bool:
        found = pydicom.dcmread(path, stop_before_pixels=True)
        study, series, uid = found.StudyInstanceUID, found.SeriesInstanceUID, found.SOPInstanceUID
        return str(uid) in self._instances(association, str(study), str(series), str(uid))

    def _send(self, association: Association, dataset: Dataset, path: Path) -> str:
        """Send one object and ask for it; return the archive's remark on it."""
        try:
            status = association.send_c_store(dataset)
        except (ValueError, RuntimeError) as error:
            raise CadError(f"the archive does not take it: {error}", file=path) from error
        self._calls.check(status, "C-STORE", allowed=(SUCCESS, *_WARNINGS), path=path)
        uid = str(dataset.SOPInstanceUID)
        study, series = str(dataset.StudyInstanceUID), str(dataset.SeriesInstanceUID)
        try:
            prove_stored(
                lambda: self._instances(association, study, series, uid),
                uid,
                self._calls.name,
                self.limits.proof_seconds,
            )
        except CadError as error:
            raise error.at(file=path) from None
        code = int(status.Status)
        return "" if code == SUCCESS else f"stored with warning {code:#06x}"

    def _ask(self, association: Association, query: Dataset) -> list[Dataset]:
        """Return every answer to a query."""
        answers: list[Dataset] = []
        for status, answer in association.send_c_find(query, FIND):
            self._calls.check(status, "C-FIND", allowed=(*PENDING, SUCCESS))
            if status.Status not in PENDING:
                break
            if answer is None:
                raise CadError(f"{self._calls.name}: an answer to C-FIND is damaged")
            answers.append(answer)
            if len(answers) > self.limits.answers:
                raise CadError(
                    f"{self._calls.name}: more than {self.limits.answers} answers to one query",
                    hint="raise `answers` in the archive's limits if that is right",
                )
        return answers


def _query(level: str, **keys: Any) -> Dataset:
    query = Dataset()
    query.QueryRetrieveLevel = level
    for keyword, value in keys.items():
        setattr(query, keyword, value)
    return query
