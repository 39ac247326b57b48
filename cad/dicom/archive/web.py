"""Talk to an archive by DICOMweb (DICOM over HTTP), through the package dicomweb-client.

QIDO-RS queries the archive, WADO-RS fetches images, and STOW-RS stores objects.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from ssl import SSLError
from typing import Any

from pydicom.dataset import Dataset

from cad.base.doors import door
from cad.base.errors import CadError, install
from cad.dicom.archive import interface
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.archive.tls import reason


class WebArchive(interface.Protocolled):
    """Ask an archive by DICOMweb (QIDO-RS, WADO-RS, STOW-RS).

    Parameters
    ----------
    url : str
        Root of the DICOMweb service.
    limits : ArchiveLimits
        How long the archive may take to answer, how much data it may send, and certificates.

    Raises
    ------
    CadError
        When the package ``dicomweb-client`` is not installed.
    """

    def __init__(self, url: str, limits: ArchiveLimits) -> None:
        try:
            from dicomweb_client.api import DICOMwebClient
            from requests import RequestException
        except ImportError as error:
            raise CadError(
                f"DICOMweb needs a package that is not installed: {error.name}",
                hint=install("dicomweb"),
            ) from error

        self.url = url
        self.limits = limits
        self.name = f"DICOMweb archive {url}"
        self._client = DICOMwebClient(url=url, session=_limited_session(self.name, limits))
        # The package's client must not retry a failed request: a retry would wait beyond the limits
        # and could send an object twice.
        self._client.set_http_retry_params(retry=False)
        self._errors = RequestException

    def _studies(self, filters: dict[str, str], fields: Iterable[str] = ()) -> list[Dataset]:
        # Without fields the archive answers with those that DICOMweb requires.
        answers = self._client.search_for_studies(
            search_filters=filters, fields=list(fields) or None
        )
        return self._datasets(answers)

    def _series(self, study: str, fields: Iterable[str]) -> list[Dataset]:
        return self._datasets(self._client.search_for_series(study, fields=list(fields)))

    def _instances(self, study: str, series: str, instance: str = "") -> set[str]:
        filters = {"SOPInstanceUID": instance} if instance else None  # without it: all instances
        answers = self._client.search_for_instances(study, series, search_filters=filters)
        return {str(answer.get("SOPInstanceUID", "")) for answer in self._datasets(answers)}

    @door("in", "JSON", bound="the client's limits of bytes and entries")
    def _datasets(self, answers: Any) -> list[Dataset]:
        """Return the answers to a query (a list of JSON objects) as data sets."""
        if not isinstance(answers, list):
            raise CadError(f"{self.name}: answered a query with no list")
        self._not_too_many(answers)
        return [Dataset.from_json(answer) for answer in answers]

    @door("out", "DICOM", owner="a new folder of ours")
    def _fetch(self, series: interface.FoundSeries, into: Path) -> int:
        """Write each object of a series as a file; return how many objects arrived."""
        received_uids = set()
        with self._speaking():
            for dataset in self._arriving(series):
                interface.check_received(dataset, series)
                uid = str(dataset.SOPInstanceUID)
                content = BytesIO()
                dataset.save_as(content, enforce_file_format=True)
                interface.keep_instance(content.getvalue(), uid, into)
                received_uids.add(uid)
        return len(received_uids)

    @door("in", "DICOM", bound="the client's limits of bytes and time")
    def _arriving(self, series: interface.FoundSeries) -> Iterator[Dataset]:
        """Yield the objects of a series as the archive sends them, whatever they are."""
        yield from self._client.iter_series(series.study_uid, series.series_uid)

    def commit(self, paths: list[Path], number: str) -> None:
        """Raise CadError: DICOMweb has no storage commitment."""
        raise CadError(
            f"{self.name}: DICOMweb cannot promise to keep objects",
            hint="give HOST:PORT, or ask for no commitment",
        )

    def _send(self, dataset: Dataset, path: Path) -> str:
        with self._speaking():
            answer = self._client.store_instances([dataset])
            check_stow_answer(answer, str(dataset.SOPInstanceUID), self.url, path)
            self._wait_until_listed(dataset)
        return ""

    @contextmanager
    def _speaking(self, *, storing: bool = False) -> Iterator[None]:
        """Turn the errors of requests into CadErrors; each request opens a connection by itself."""
        with interface.understood(self.name):
            try:
                yield
            except self._errors as error:
                # An error without an answer of the archive has no HTTP code. Encryption may have
                # failed then; any other error is named by its type.
                code = getattr(getattr(error, "response", None), "status_code", None)
                tls_error = _fault_of_encryption(error) if code is None else None
                if code is not None:
                    problem = f"HTTP {code}"
                elif tls_error is not None:
                    problem = f"no encrypted connection: {reason(tls_error)}"
                else:
                    problem = type(error).__name__
                raise CadError(
                    f"{self.name}: {problem}", hint="check address, rights and network"
                ) from error


def _fault_of_encryption(error: BaseException | None) -> SSLError | None:
    """Return the TLS error inside an error of the packages requests or urllib3, or None."""
    while error is not None and not isinstance(error, SSLError):
        # These packages put an error into another one in two ways: as its cause, or as its first
        # argument.
        first_argument = error.args[0] if error.args else None
        wrapped = first_argument if isinstance(first_argument, BaseException) else None
        error = error.__cause__ or error.__context__ or wrapped
    return error


def _limited_session(name: str, limits: ArchiveLimits) -> Any:
    """Return a session of the package requests that keeps the limits and has our certificate."""
    from requests import Session
    from requests.adapters import HTTPAdapter

    bytes_left = limits.study_gigabytes * 1e9

    def spend(count: float) -> None:
        """Take a number of bytes from those that are left; raise an error beyond the limit."""
        nonlocal bytes_left
        bytes_left -= count
        if bytes_left < 0:
            raise interface.too_much(name, limits)

    class Limited(HTTPAdapter):
        """Limit the time of every wait and the bytes of all answers, and follow no redirect."""

        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            """Let connections expect the name that the settings give the archive's certificate."""
            if limits.tls is not None and limits.tls.name:
                host = limits.tls.name
                kwargs |= {"assert_hostname": host, "server_hostname": host}
            super().init_poolmanager(*args, **kwargs)

        def send(self, *args: Any, **kwargs: Any) -> Any:
            """Send a request within the limits, and return the archive's answer."""
            kwargs["timeout"] = limits.answer_seconds
            # The certificates are set for each request. Otherwise the package requests would use
            # certificate files that environment variables name.
            if limits.tls is not None:
                kwargs["verify"] = str(limits.tls.authority)
                kwargs["cert"] = (str(limits.tls.certificate), str(limits.tls.key))
            answer = super().send(*args, **kwargs)
            # A redirect is not followed, because it could lead patients' data to a server that
            # nobody chose.
            if 300 <= answer.status_code < 400:
                raise CadError(
                    f"{name}: HTTP {answer.status_code}, it has moved",
                    hint="give its new address; nothing was sent there",
                )
            announced = answer.headers.get("Content-Length", "0")
            # If the answer announces more bytes than the limits still allow, this call refuses it
            # before its content is read.
            if announced.isdigit() and float(announced) > bytes_left:
                spend(float(announced))
            stream = answer.raw.stream

            def counted(*args: Any, **kwargs: Any) -> Iterator[bytes]:
                """Yield the answer's content piece by piece, and count its bytes."""
                for chunk in stream(*args, **kwargs):
                    spend(len(chunk))
                    yield chunk

            answer.raw.stream = counted
            return answer

    session = Session()
    session.mount("http://", Limited())
    session.mount("https://", Limited())
    return session


def check_stow_answer(answer: Dataset, uid: str, url: str, path: Path) -> None:
    """Check that the archive's answer to STOW-RS lists an instance as stored.

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
        When the answer does not list the instance as stored. The message has the archive's failure
        reason if the answer states one.
    """
    stored = _named_uids(answer, "ReferencedSOPSequence")
    failed = _named_uids(answer, "FailedSOPSequence")
    # An object that the answer lists both as stored and as failed is not safely stored.
    if uid in stored - failed:
        return
    stated_reason = ""
    for item in answer.get("FailedSOPSequence", []):
        if item.get("FailureReason") is not None:
            stated_reason = f" (failure reason {int(item.FailureReason):#06x})"
            break
    problem = f"{url}: the archive does not list the object as stored{stated_reason}"
    raise CadError(problem, file=path)


def _named_uids(answer: Dataset, sequence: str) -> set[str]:
    """Return the SOPInstanceUIDs of the objects that a sequence (list) in an answer names."""
    return {str(item.get("ReferencedSOPInstanceUID", "")) for item in answer.get(sequence, [])}
