"""Define the interface of an archive, and the rules that hold for both of its protocols.

The protocols are DICOM networking and DICOMweb.

A study counts as fetched only when every announced instance has arrived, and every instance states
the requested patient, study and series. An object counts as stored only when the archive has
confirmed the object and lists it in an answer.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pydicom
from pydicom.dataset import Dataset
from pydicom.pixels.utils import get_expected_length

from cad.base.doors import door
from cad.base.errors import CadError, printable
from cad.base.reading import MAX_IMAGE, read_bytes
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.out import supersede
from cad.mri.imaging.frames import UID

MODALITIES = ("MR", "SEG", "RTSTRUCT")
_PROOF_PAUSE = 0.5  # seconds between two questions whether the archive lists an object
_MOST = 10**6  # a series whose stated number of instances is not below this number is refused
# An object that is sent to the archive first gets the values of these elements from the archive's
# entry on the study. So the archive files the object with its study.
IDENTITY = (
    "PatientID",
    "PatientName",
    "PatientBirthDate",
    "PatientSex",
    "StudyDate",
    "StudyTime",
    "StudyID",
    "AccessionNumber",
)
# Elements that are queried for each series of a study.
_COUNTED = ("SeriesInstanceUID", "Modality", "NumberOfSeriesRelatedInstances")
SamePatient = Callable[[str, str], bool]
"""Tells whether an object's PatientID and the archive's PatientID belong to the same patient."""


@dataclass(frozen=True)
class FoundSeries:
    """Hold an archive's entry on a series: PatientID, UIDs, modality, number of instances."""

    patient_id: str
    study_uid: str
    series_uid: str
    modality: str
    instances: int


Recent = dict[str, list[FoundSeries] | CadError]
"""Series of an archive by StudyInstanceUID, or the error for a study with an unusable answer."""


@dataclass(frozen=True)
class Step:
    """Report one step of storing a file: that it is being sent, or that it is stored.

    Parameters
    ----------
    path : Path
        The file.
    stored : bool
        False before the file is sent, True when it is stored.
    remark : str
        The archive's remark on the stored file; empty without one.
    """

    path: Path
    stored: bool = False
    remark: str = ""


class Protocolled(ABC):
    """Do the requests of a ``Conversation`` in its child process, by DICOM networking or DICOMweb.

    This is the base class of the classes for the two protocols.

    A subclass supplies:

    - the attributes ``name`` (of the archive, for messages) and ``limits``
    - :meth:`commit`
    - ``_speaking``, which opens a connection
    - ``_studies``, ``_series`` and ``_instances``, which query the archive
    - ``_fetch``, which fetches a series, and ``_send``, which sends an object
    """

    name: str
    limits: ArchiveLimits

    def find(self, patient_id: str) -> list[FoundSeries]:
        """Return a patient's series of MR images and of outlines (SEG, RTSTRUCT), by PatientID."""
        series = []
        with self._speaking():
            for study in self._studies({"PatientID": patient_id}):
                study_patient_id = str(study.get("PatientID", patient_id))
                # The characters * and ? in a PatientID are wild cards in a query
                # (PS3.4 C.2.2.2.4). Studies of other PatientIDs may then match; they are left out.
                if study_patient_id.strip() == patient_id.strip():
                    series += self._of_interest(study_patient_id, str(study.StudyInstanceUID))
        return series

    def recent(self, since: str, match: dict[str, str]) -> Recent:
        """Return the series of MR images and of outlines (SEG, RTSTRUCT) of recent MR studies.

        For a study whose answer cannot be used, the result holds an error; the other studies are
        not affected.

        Parameters
        ----------
        since : str
            Earliest study date, YYYYMMDD.
        match : dict of str to str
            Further conditions on the study: patterns by DICOM keyword (:func:`matches`).
        """
        series: Recent = {}
        with self._speaking():
            filters = {"StudyDate": f"{since}-", "ModalitiesInStudy": "MR"}
            for study in self._studies(filters, match):
                study_uid = str(study.get("StudyInstanceUID", ""))
                try:
                    with understood(self.name):
                        if matches(study, match):
                            series[study_uid] = self._of_interest(
                                str(study.get("PatientID", "")), study_uid
                            )
                except CadError as error:
                    series[study_uid] = error
        return series

    def _not_too_many(self, answers: list[Any]) -> None:
        """Raise an error for more answers to one query than the limits allow."""
        if len(answers) > self.limits.answers:
            raise CadError(
                f"{self.name}: more than {self.limits.answers} answers to one query",
                hint="raise `answers` in the archive's limits if that is right",
            )

    def _of_interest(self, patient_id: str, study: str) -> list[FoundSeries]:
        """Return the series of MR images and of outlines that the archive lists for a study.

        ``patient_id`` is the PatientID that the archive states for the study. Each answer is
        checked, because later requests and names of files are made from it.
        """
        if not UID.fullmatch(study):
            raise CadError(f"{self.name}: a study whose name is no UID: {study[:64]!r}")
        listed = []
        for series in self._series(study, _COUNTED):
            if str(series.get("StudyInstanceUID", study)) != study:
                raise CadError(f"{self.name}: asked for series of {study}, got another study's")
            modality = str(series.get("Modality", ""))
            if modality in MODALITIES:
                uid = str(series.SeriesInstanceUID)
                count = series.get("NumberOfSeriesRelatedInstances")
                # An archive need not state the number of instances. Without it they are counted.
                if count is None:
                    count = len(self._instances(study, uid))
                if not UID.fullmatch(uid) or not 0 <= int(count) < _MOST:
                    raise CadError(f"{self.name}: a series {uid[:64]!r} of {count} instances")
                listed.append(
                    FoundSeries(
                        patient_id=patient_id,
                        study_uid=study,
                        series_uid=uid,
                        modality=modality,
                        instances=int(count),
                    )
                )
        return listed

    def fetch(self, series: Iterable[FoundSeries], into: Path) -> None:
        """Fetch series and write each of their instances as a file.

        Parameters
        ----------
        series : iterable of FoundSeries
            The series of one study.
        into : Path
            In this folder a new folder is made for each series: ``0001``, ``0002``, ...

        Raises
        ------
        CadError
            When the number of received instances is not the number that the archive listed.
        """
        for index, listed in enumerate(series, start=1):
            target = into / f"{index:04d}"
            target.mkdir(parents=True)
            arrived = self._fetch(listed, target)
            if arrived != listed.instances:
                raise CadError(
                    f"the archive returned part of a study: {arrived} of {listed.instances} "
                    f"instances of series {listed.series_uid}",
                    hint="try again; nothing of the study was imported",
                )

    @door("own", "our own DICOM objects")
    def store(
        self, paths: Iterable[Path], same_patient: SamePatient | None = None
    ) -> Iterator[Step]:
        """Store DICOM files one by one, with the patient data that the archive has for their study.

        Parameters
        ----------
        paths : iterable of Path
            The files; they stay as they are.
        same_patient : callable, optional
            Tells whether the PatientID of a file and the archive's PatientID belong to one patient.
            Without it the two ids must be equal, unless the file is marked as de-identified.

        Yields
        ------
        Step
            Two for each file: one before it is sent, one when it is stored.

        Raises
        ------
        CadError
            For the first file that is refused or not proved to be stored; later files are not sent.
        """
        studies: dict[str, list[Dataset]] = {}
        paths = list(paths)
        together = supersede.sent_together(paths)
        with self._speaking(storing=True):
            for path in paths:
                dataset = pydicom.dcmread(path)
                study = str(dataset.StudyInstanceUID)
                if study not in studies:  # the archive is asked once for each study
                    studies[study] = self._studies({"StudyInstanceUID": study}, IDENTITY)
                file_under(dataset, studies[study], same_patient)
                earlier = self._earlier(study) if supersede.is_document(dataset) else []
                superseded = ", ".join(supersede.supersede(dataset, earlier, together))
                yield Step(path)
                try:
                    remark = self._send(dataset, path)
                except CadError as error:
                    raise error.naming(file=path) from error.__cause__
                remarks = [remark] if remark else []
                if superseded:
                    remarks.append(f"supersedes {superseded}")
                yield Step(path, stored=True, remark="; ".join(remarks))

    def _earlier(self, study: str) -> list[supersede.Earlier]:
        """Return the earlier results of this program that the archive has for a study."""
        answers = self._series(study, supersede.ASKED)
        return supersede.earlier_results(answers, lambda series: self._instances(study, series))

    @door("own", "our own DICOM objects")
    def missing(self, paths: list[Path]) -> list[Path]:
        """Return the paths of those DICOM files whose instance the archive does not list."""
        headers = [(path, pydicom.dcmread(path, stop_before_pixels=True)) for path in paths]
        with self._speaking():
            return [path for path, header in headers if not self._lists(header)]

    def _lists(self, dataset: Dataset) -> bool:
        """Tell whether the archive lists an object among the instances of its series."""
        study = str(dataset.StudyInstanceUID)
        series = str(dataset.SeriesInstanceUID)
        uid = str(dataset.SOPInstanceUID)
        return uid in self._instances(study, series, uid)

    def _wait_until_listed(self, dataset: Dataset) -> None:
        """Ask repeatedly for an object that the archive has confirmed, until the archive lists it.

        Raises
        ------
        CadError
            When the archive does not list the object within the time of the limits.
        """
        end = time.monotonic() + self.limits.proof_seconds
        while not self._lists(dataset):
            if time.monotonic() >= end:
                raise CadError(
                    f"{self.name}: took the object but does not list it after "
                    f"{self.limits.proof_seconds:g} s",
                    hint="look into the archive before you send it again",
                )
            time.sleep(_PROOF_PAUSE)

    @abstractmethod
    def commit(self, paths: list[Path], number: str) -> None:
        """Ask the archive to promise that it keeps stored DICOM files (storage commitment).

        The archive answers later, in an association that it opens itself. This method does not wait
        for the answer.

        Parameters
        ----------
        paths : list of Path
            The files.
        number : str
            Transaction UID under which the archive will answer.
        """

    @abstractmethod
    def _speaking(self, *, storing: bool = False) -> AbstractContextManager[None]:
        """Keep a connection open for queries, and with ``storing`` also to store objects."""

    @abstractmethod
    def _studies(self, filters: dict[str, str], fields: Iterable[str] = ()) -> list[Dataset]:
        """Return the studies that match ``filters``, each with patient, UID and ``fields``."""

    @abstractmethod
    def _series(self, study: str, fields: Iterable[str]) -> list[Dataset]:
        """Return what the archive lists of each series of a study: the header fields ``fields``."""

    @abstractmethod
    def _instances(self, study: str, series: str, instance: str = "") -> set[str]:
        """Return the SOPInstanceUIDs that the archive lists for a series, or for one of its
        instances.
        """

    @abstractmethod
    def _fetch(self, series: FoundSeries, into: Path) -> int:
        """Fetch one series into a folder; return how many instances were received."""

    @abstractmethod
    def _send(self, dataset: Dataset, path: Path) -> str:
        """Store one object, which was read from ``path``, and check that the archive lists it.

        Return a remark for the user; empty without one.
        """


def too_much(name: str, limits: ArchiveLimits) -> CadError:
    """Return the error that says that an archive sends more than its limits allow.

    Parameters
    ----------
    name : str
        The archive's name in messages.
    limits : ArchiveLimits
        The limits of the archive.
    """
    return CadError(
        f"{name}: sends more than {limits.study_gigabytes:g} GB",
        hint="raise `study_gigabytes` in the archive's limits if that is right",
    )


@door("out", "DICOM", owner="a new folder of ours")
def keep_instance(content: bytes, uid: str, into: Path) -> None:
    """Write a received instance as ``<uid>.dcm``; a second copy must have equal content.

    Parameters
    ----------
    content : bytes
        Content of the file.
    uid : str
        SOPInstanceUID of the instance.
    into : Path
        Folder of the series.

    Raises
    ------
    CadError
        When the UID is not valid, or the folder has a file of this UID with different content.
    """
    if not UID.fullmatch(uid):
        raise CadError(f"the archive returned an instance whose name is no UID: {uid[:64]!r}")
    path = into / f"{uid}.dcm"
    if path.is_file() and read_bytes(path, MAX_IMAGE) != content:
        raise CadError(f"the archive returned two different instances of one UID: {uid}")
    path.write_bytes(content)


def check_received(dataset: Dataset, series: FoundSeries) -> None:
    """Refuse an instance that was not requested, or whose pixel data are incomplete.

    Parameters
    ----------
    dataset : Dataset
        The received instance.
    series : FoundSeries
        The requested series.

    Raises
    ------
    CadError
        The message names the requested id and the received one, or the expected number of bytes and
        the received one.
    """
    for keyword, expected in (
        ("PatientID", series.patient_id),
        ("StudyInstanceUID", series.study_uid),
        ("SeriesInstanceUID", series.series_uid),
    ):
        received = str(dataset.get(keyword, "") or "")
        if received.strip() != expected.strip():
            raise CadError(
                f"the archive returned an instance of another {keyword}: asked for {expected!r}, "
                f"received {received!r}",
                hint="nothing of the study was imported; tell the archive's administrator",
            )
    syntax = dataset.file_meta.TransferSyntaxUID if hasattr(dataset, "file_meta") else None
    # The length of compressed (encapsulated) pixels cannot be told from the header.
    if "PixelData" in dataset and not (syntax and syntax.is_encapsulated):
        expected_bytes = get_expected_length(dataset)
        received_bytes = len(dataset.PixelData)
        if received_bytes < expected_bytes:
            raise CadError(
                f"the archive returned an image that is cut off: {received_bytes} of "
                f"{expected_bytes} bytes",
                hint="try again; nothing of the study was imported",
            )


def file_under(
    dataset: Dataset, answers: list[Dataset], same_patient: SamePatient | None = None
) -> None:
    """Replace an object's entries on patient and study by those that the archive has for its study.

    If the archive does not have the study, the object stays as it is.

    Parameters
    ----------
    dataset : Dataset
        The object as read from its file; changed in place. The file is not changed.
    answers : list of Dataset
        The archive's answers to a query for the study.
    same_patient : callable, optional
        Tells whether the PatientID of the object and the archive's PatientID belong to one patient.
        Without it the two ids must be equal, unless the object is marked as de-identified.

    Raises
    ------
    CadError
        When the archive has the study twice, or for another patient.
    """
    uid = str(dataset.StudyInstanceUID)
    # Some archives ignore the condition of a query, and answer with other studies as well.
    answers = [answer for answer in answers if str(answer.get("StudyInstanceUID", uid)) == uid]
    if not answers:
        return
    if len(answers) > 1:
        raise CadError(
            f"the archive has the study {uid} {len(answers)} times", hint="nothing was sent"
        )
    our_patient_id = str(dataset.get("PatientID", ""))
    archive_patient_id = str(answers[0].get("PatientID", ""))
    if same_patient is not None:
        is_same = same_patient(our_patient_id, archive_patient_id)
    else:
        # A de-identified object bears a pseudonym, which cannot be compared with the archive's id.
        is_deidentified = dataset.get("PatientIdentityRemoved") == "YES"
        is_same = is_deidentified or our_patient_id.strip() == archive_patient_id.strip()
    if not is_same:
        raise CadError(
            f"the archive assigns the study {uid} to a patient who is not {our_patient_id!r}",
            hint="nothing was sent; find out whose study this is",
        )
    dataset.decode()  # texts are decoded before the object's character set is replaced
    dataset.SpecificCharacterSet = "ISO_IR 192"
    for keyword in IDENTITY:
        if answers[0].get(keyword) not in (None, ""):
            setattr(dataset, keyword, answers[0].get(keyword))
    # From now on the object has the patient's identity.
    for keyword in ("PatientIdentityRemoved", "DeidentificationMethod"):
        if keyword in dataset:
            delattr(dataset, keyword)


def not_all_stored(error: CadError, paths: list[Path], steps: list[Step]) -> CadError:
    """Return an error that also lists which objects were stored, only sent, or not sent.

    Parameters
    ----------
    error : CadError
        The error that ended the sending.
    paths : list of Path
        All objects that were to be sent.
    steps : list of Step
        The :class:`Step` objects reported before the error: one for each file that was to be sent
        next, and a second one for each file that was stored.
    """
    stored = {step.path for step in steps if step.stored}
    only_sent = {step.path for step in steps} - stored
    groups = (
        ("stored", [path for path in paths if path in stored]),
        ("sent, but not proved to be stored", [path for path in paths if path in only_sent]),
        ("not sent", [path for path in paths if path not in stored | only_sent]),
    )
    lists = []
    for word, files in groups:
        names = ", ".join(path.name for path in files)
        lists.append(f"{word}: {names or 'none'}")
    full_error = CadError(
        "; ".join([error.problem, *lists]),
        hint=error.hint or "send them again: no object is stored twice",
        file=error.file,
    )
    full_error.place = error.place
    return full_error


def matches(study: Dataset, match: dict[str, str]) -> bool:
    """Tell whether a study matches patterns of header values.

    Each answer of an archive is checked, because some archives ignore conditions of a query that
    they do not support.

    Parameters
    ----------
    study : Dataset
        One answer to a query.
    match : dict of str to str
        Patterns by DICOM keyword; ``*`` and ``?`` are wild cards, case is ignored.

    Returns
    -------
    bool
        True if the value of every keyword in ``match`` fits its pattern. A value that the study
        lacks counts as an empty text. Without patterns every study matches.
    """
    for keyword, pattern in match.items():
        value = str(study.get(keyword, "") or "")
        if not fnmatchcase(value.lower(), pattern.lower()):
            return False
    return True


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Turn any exception from a library that reads an archive's answer into a CadError.

    Parameters
    ----------
    name : str
        The archive, for the message.

    Raises
    ------
    CadError
        In place of any other exception that is raised inside the block.
    """
    try:
        yield
    except CadError:
        raise
    except Exception as error:  # an answer may cause any error in the libraries that read it
        message = printable(str(error), 200)
        raise CadError(
            f"{name}: its answer cannot be understood: {type(error).__name__}: {message}",
            hint="tell the archive's administrator",
        ) from error
