"""An archive by DICOMweb: QIDO-RS, WADO-RS and STOW-RS through dicomweb-client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pydicom
from pydicom.dataset import Dataset

from cad.clinic.archive import (
    IDENTITY,
    MODALITIES,
    TIMEOUT,
    UID,
    FoundSeries,
    SamePatient,
    check_received,
    file_under,
    not_all_sent,
)
from cad.errors import CadError


class WebArchive:
    """Speak DICOMweb with an archive."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        try:
            from dicomweb_client.api import DICOMwebClient
            from requests import RequestException, Session
            from requests.adapters import HTTPAdapter
        except ImportError as error:
            raise CadError(
                f"DICOMweb needs a package that is not installed: {error.name}",
                hint="install the extra: cad[dicomweb]",
            ) from error

        class Timed(HTTPAdapter):
            """Give every request a time limit."""

            def send(self, *args: Any, **kwargs: Any) -> Any:
                kwargs["timeout"] = timeout
                return super().send(*args, **kwargs)

        session = Session()
        session.mount("http://", Timed())
        session.mount("https://", Timed())
        self.url = url
        self._client = DICOMwebClient(url=url, session=session)
        self._client.set_http_retry_params(retry=False)
        self._errors = (RequestException, ValueError)

    def find(self, patient_id: str) -> list[FoundSeries]:
        """Return the series of interest of a patient."""
        with self._speaking():
            found = []
            studies = self._client.search_for_studies(search_filters={"PatientID": patient_id})
            for study in (Dataset.from_json(answer) for answer in studies):
                owner = str(study.get("PatientID", ""))
                if owner.strip() == patient_id.strip():
                    found += self._series(owner, str(study.StudyInstanceUID))
            return found

    def _series(self, owner: str, study_uid: str) -> list[FoundSeries]:
        answers = self._client.search_for_series(
            study_uid, fields=["NumberOfSeriesRelatedInstances", "Modality"]
        )
        found = []
        for series in (Dataset.from_json(answer) for answer in answers):
            modality = str(series.get("Modality", ""))
            if modality in MODALITIES:
                uid = str(series.SeriesInstanceUID)
                count = series.get("NumberOfSeriesRelatedInstances")
                if count is None:
                    count = len(self._client.search_for_instances(study_uid, uid))
                found.append(FoundSeries(owner, study_uid, uid, modality, int(count)))
        return found

    def fetch(self, series: FoundSeries, into: Path) -> int:
        """Fetch a series into a folder by WADO-RS."""
        arrived = set()
        with self._speaking():
            for dataset in self._client.retrieve_series(series.study_uid, series.series_uid):
                check_received(dataset, series)
                uid = str(dataset.SOPInstanceUID)
                if UID.fullmatch(uid):
                    dataset.save_as(into / f"{uid}.dcm", enforce_file_format=True)
                    arrived.add(uid)
        return len(arrived)

    def store(self, paths: Iterable[Path], same_patient: SamePatient | None = None) -> None:
        """Store objects by STOW-RS under the archive's own patient of their study."""
        wanted, sent = list(paths), list[Path]()
        known: dict[str, list[Dataset]] = {}
        try:
            for path in wanted:
                self._send(path, known, same_patient)
                sent.append(path)
        except CadError as error:
            raise not_all_sent(error, wanted, sent) from error

    def _send(
        self, path: Path, known: dict[str, list[Dataset]], same_patient: SamePatient | None
    ) -> None:
        dataset = pydicom.dcmread(path)
        uid = str(dataset.StudyInstanceUID)
        with self._speaking():
            if uid not in known:
                answers = self._client.search_for_studies(
                    search_filters={"StudyInstanceUID": uid}, fields=list(IDENTITY)
                )
                known[uid] = [Dataset.from_json(answer) for answer in answers]
            file_under(dataset, known[uid], same_patient)
            answer = self._client.store_instances([dataset])
        check_stored(answer, str(dataset.SOPInstanceUID), self.url, path)

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            response = getattr(error, "response", None)
            what = f"HTTP {response.status_code}" if response is not None else type(error).__name__
            raise CadError(
                f"DICOMweb archive {self.url}: {what}", hint="check address, rights and network"
            ) from error


def check_stored(answer: Dataset, uid: str, url: str, path: Path) -> None:
    """Refuse an answer to STOW-RS in which the instance is not listed as stored.

    Raises
    ------
    CadError
        With the archive's failure reason where it gives one.
    """
    stored = {
        str(item.get("ReferencedSOPInstanceUID", ""))
        for item in answer.get("ReferencedSOPSequence", [])
    }
    if uid in stored:
        return
    reasons = [
        f" (failure reason {int(item.FailureReason):#06x})"
        for item in answer.get("FailedSOPSequence", [])
        if item.get("FailureReason") is not None
    ]
    raise CadError(
        f"{url}: the archive does not list the object as stored{''.join(reasons[:1])}",
        file=path,
    )
