"""An archive by DICOMweb: QIDO-RS, WADO-RS and STOW-RS through dicomweb-client."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pydicom
from pydicom.dataset import Dataset

from cad.dicom.archive import interface
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.out import supersede
from cad.errors import CadError, install


class WebArchive:
    """Speak DICOMweb with an archive."""

    def __init__(self, url: str, limits: ArchiveLimits) -> None:
        try:
            from dicomweb_client.api import DICOMwebClient
            from requests import RequestException
        except ImportError as error:
            raise CadError(
                f"DICOMweb needs a package that is not installed: {error.name}",
                hint=install("dicomweb"),
            ) from error

        session = _limited_session(f"DICOMweb archive {url}", limits)
        self.url, self.limits = url, limits
        self._client = DICOMwebClient(url=url, session=session)
        # A retry by the client would wait beyond the limits and send an object twice.
        self._client.set_http_retry_params(retry=False)
        self._errors = RequestException

    def find(self, patient_id: str) -> list[interface.FoundSeries]:
        """Return the series of interest of a patient."""
        with self._speaking():
            found = []
            studies = self._client.search_for_studies(search_filters={"PatientID": patient_id})
            for study in self._datasets(studies):
                owner = str(study.get("PatientID", ""))
                # A query reads * and ? of an id as wild cards (PS3.4 C.2.2.2.4): others may match.
                if owner.strip() == patient_id.strip():
                    found += self._series(owner, str(study.StudyInstanceUID))
            return found

    def recent(self, since: str, match: dict[str, str]) -> list[interface.FoundSeries]:
        """Return the series of studies with MR since a day (YYYYMMDD) that match further keys."""
        wanted = {"StudyDate": f"{since}-", "ModalitiesInStudy": "MR"}
        with self._speaking():
            studies = self._client.search_for_studies(
                search_filters=wanted, fields=list(match) or None
            )
            return [
                series
                for study in self._datasets(studies)
                if interface.matches(study, match)
                for series in self._series(
                    str(study.get("PatientID", "")), str(study.StudyInstanceUID)
                )
            ]

    def _series(self, owner: str, study_uid: str) -> list[interface.FoundSeries]:
        answers = self._client.search_for_series(
            study_uid, fields=["NumberOfSeriesRelatedInstances", "Modality"]
        )
        found = []
        for series in self._datasets(answers):
            if str(series.get("StudyInstanceUID", study_uid)) != study_uid:
                raise CadError(
                    f"{self._name}: asked for series of {study_uid}, got another study's"
                )
            modality = str(series.get("Modality", ""))
            if modality in interface.MODALITIES:
                uid = str(series.SeriesInstanceUID)
                # Not every archive counts them in its answer: instances are then asked for.
                count = series.get("NumberOfSeriesRelatedInstances")
                if count is None:
                    count = len(self._client.search_for_instances(study_uid, uid))
                found.append(interface.FoundSeries(owner, study_uid, uid, modality, int(count)))
        return found

    def _datasets(self, answers: Any) -> list[Dataset]:
        if not isinstance(answers, list):
            raise CadError(f"{self._name}: answered a query with no list")
        if len(answers) > self.limits.answers:
            raise CadError(
                f"{self._name}: more than {self.limits.answers} answers to one query",
                hint="raise `answers` in the archive's limits if that is right",
            )
        return [Dataset.from_json(answer) for answer in answers]

    def fetch(self, series: list[interface.FoundSeries], into: Path) -> None:
        """Fetch a study's series into a folder by WADO-RS."""
        interface.fetch_whole(self._fetch, series, into)

    def _fetch(self, series: interface.FoundSeries, into: Path) -> int:
        arrived = set()
        with self._speaking():
            for dataset in self._client.iter_series(series.study_uid, series.series_uid):
                interface.check_received(dataset, series)
                uid = str(dataset.SOPInstanceUID)
                content = BytesIO()
                dataset.save_as(content, enforce_file_format=True)
                interface.keep_instance(content.getvalue(), uid, into)
                arrived.add(uid)
        return len(arrived)

    def store(
        self, paths: Iterable[Path], same_patient: interface.SamePatient | None = None
    ) -> Iterator[interface.Step]:
        """Store objects by STOW-RS under the archive's own patient of their study."""
        known: dict[str, list[Dataset]] = {}
        paths = list(paths)
        together = supersede.sent_together(paths)
        for path in paths:
            dataset = pydicom.dcmread(path)
            uid = str(dataset.StudyInstanceUID)
            with self._speaking():
                if uid not in known:
                    answers = self._client.search_for_studies(
                        search_filters={"StudyInstanceUID": uid}, fields=list(interface.IDENTITY)
                    )
                    known[uid] = self._datasets(answers)
                interface.file_under(dataset, known[uid], same_patient)
                before = self._earlier(uid) if supersede.is_report(dataset) else []
                named = supersede.named_predecessors(supersede.supersede(dataset, before, together))
            yield interface.Step(path)
            try:
                with self._speaking():
                    self._send(dataset, path)
            except CadError as error:
                raise error.at(file=path) from None
            yield interface.Step(path, True, named)

    def _earlier(self, study: str) -> list[supersede.Earlier]:
        """Return the results of ours that the archive has of a study."""
        answers = self._client.search_for_series(study, fields=list(supersede.ASKED))

        def instances(series: str) -> list[str]:
            found = self._datasets(self._client.search_for_instances(study, series))
            return [str(one.SOPInstanceUID) for one in found]

        return supersede.earlier_results(self._datasets(answers), instances)

    def missing(self, paths: list[Path]) -> list[Path]:
        """Return the objects that QIDO-RS does not list."""
        found = [(path, pydicom.dcmread(path, stop_before_pixels=True)) for path in paths]
        with self._speaking():
            return [path for path, one in found if one.SOPInstanceUID not in self._listed(one)]

    def commit(self, paths: list[Path], number: str) -> None:
        """Refuse: DICOMweb has no storage commitment."""
        raise CadError(
            f"{self._name}: DICOMweb cannot promise to keep objects",
            hint="give HOST:PORT, or ask for no commitment",
        )

    def _send(self, dataset: Dataset, path: Path) -> None:
        uid = str(dataset.SOPInstanceUID)
        check_stored(self._client.store_instances([dataset]), uid, self.url, path)
        interface.prove_stored(
            lambda: self._listed(dataset), uid, self._name, self.limits.proof_seconds
        )

    def _listed(self, dataset: Dataset) -> set[str]:
        """Return the object's UID where the archive lists it."""
        answers = self._client.search_for_instances(
            str(dataset.StudyInstanceUID),
            str(dataset.SeriesInstanceUID),
            search_filters={"SOPInstanceUID": str(dataset.SOPInstanceUID)},
        )
        return {str(one.get("SOPInstanceUID", "")) for one in self._datasets(answers)}

    @property
    def _name(self) -> str:
        return f"DICOMweb archive {self.url}"

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        with interface.understood(self._name):
            try:
                yield
            except self._errors as error:
                response = getattr(error, "response", None)
                code = getattr(response, "status_code", None)
                what = f"HTTP {code}" if code is not None else type(error).__name__
                raise CadError(
                    f"{self._name}: {what}", hint="check address, rights and network"
                ) from error


def _limited_session(name: str, limits: ArchiveLimits) -> Any:
    """Return a session of requests that keeps to the limits and shows the certificates."""
    from requests import Session
    from requests.adapters import HTTPAdapter

    left = limits.study_gigabytes * 1e9

    def spend(count: float) -> None:
        nonlocal left
        left -= count
        if left < 0:
            raise CadError(
                f"{name}: sends more than {limits.study_gigabytes:g} GB",
                hint="raise `study_gigabytes` in the archive's limits if that is right",
            )

    class Limited(HTTPAdapter):
        """Limit the time of every wait and the bytes of all answers, and follow no redirect."""

        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            if limits.tls is not None and limits.tls.name:
                wanted = limits.tls.name
                kwargs |= {"assert_hostname": wanted, "server_hostname": wanted}
            super().init_poolmanager(*args, **kwargs)

        def send(self, *args: Any, **kwargs: Any) -> Any:
            kwargs["timeout"] = limits.answer_seconds
            if limits.tls is not None:  # here: the environment's would win over the session's
                kwargs["verify"] = str(limits.tls.authority)
                kwargs["cert"] = (str(limits.tls.certificate), str(limits.tls.key))
            answer = super().send(*args, **kwargs)
            # Followed, a redirect would carry patients' data to a server that nobody named.
            if 300 <= answer.status_code < 400:
                raise CadError(
                    f"{name}: HTTP {answer.status_code}, it has moved",
                    hint="give its new address; nothing was sent there",
                )
            announced = answer.headers.get("Content-Length", "0")
            # Too much by its own word: refused before a byte of it is taken.
            if announced.isdigit() and float(announced) > left:
                spend(float(announced))
            stream = answer.raw.stream

            def counted(*args: Any, **kwargs: Any) -> Iterator[bytes]:
                for chunk in stream(*args, **kwargs):
                    spend(len(chunk))
                    yield chunk

            answer.raw.stream = counted
            return answer

    session = Session()
    session.mount("http://", Limited())
    session.mount("https://", Limited())
    return session


def check_stored(answer: Dataset, uid: str, url: str, path: Path) -> None:
    """Refuse an answer to STOW-RS in which the instance is not listed as stored.

    Parameters
    ----------
    answer : Dataset
        The archive's answer (PS3.18 10.5).
    uid : str
        SOPInstanceUID of the object that was sent.
    url, path : str, Path
        Archive and file, for the message.

    Raises
    ------
    CadError
        With the archive's failure reason where it gives one.
    """
    stored, failed = (
        {str(item.get("ReferencedSOPInstanceUID", "")) for item in answer.get(name, [])}
        for name in ("ReferencedSOPSequence", "FailedSOPSequence")
    )
    # Named in both sequences it is not safely stored.
    if uid in stored - failed:
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
