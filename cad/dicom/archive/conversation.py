"""Talk to an archive in a separate process, which is ended when its time or memory is used up.

An archive may hang, send one byte a second, or make a library read for ever. In each case the
separate process is ended after the time that the limits allow, and the caller learns which steps
were complete by then.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cad.base.errors import CadError
from cad.base.processes import Child, limit_memory
from cad.base.processes.landlock import confine
from cad.dicom.archive import interface
from cad.dicom.archive.settings import ArchiveLimits

# Longest time until the new process says that it begins the request. It loads large packages first.
_START_SECONDS = 300.0
# Operations whose first argument is a list of files that the process has to read.
_OF_FILES = ("store", "missing", "commit")
# Folders of the services by which Linux finds the address of a host name.
_RESOLVER = (Path("/run/systemd/resolve"), Path("/run/nscd"))
# Environment variables that name files which the packages for HTTP read.
_OF_CONNECTIONS = (
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NETRC",
)


class Conversation:
    """Ask an archive through a child process, which is ended when it takes too long.

    Each method starts a process of its own. A method raises CadError when the archive does not
    answer in time or answers with an error.

    Parameters
    ----------
    address : str
        ``HOST:PORT``, or the URL of a DICOMweb service.
    aet : str
        The archive's application entity title.
    limits : ArchiveLimits
        Time, memory and data that one request may take.
    """

    def __init__(self, address: str, aet: str, limits: ArchiveLimits) -> None:
        self.address = address
        self.aet = aet
        self.limits = limits

    def find(self, patient_id: str) -> list[interface.FoundSeries]:
        """Return a patient's series of MR images and of outlines (SEG, RTSTRUCT), by PatientID."""
        series: list[interface.FoundSeries] = self._ask([], "find", patient_id)
        return series

    def recent(self, since: str, match: dict[str, str]) -> interface.Recent:
        """Return the series of MR images and of outlines (SEG, RTSTRUCT) of recent MR studies.

        For a study whose answer cannot be used, the result holds an error; the other studies are
        not affected.

        Parameters
        ----------
        since : str
            Earliest study date, YYYYMMDD.
        match : dict of str to str
            Further conditions on the study: patterns by DICOM keyword
            (:func:`~cad.dicom.archive.interface.matches`).
        """
        recent: interface.Recent = self._ask([], "recent", since, match)
        return recent

    def fetch(self, series: list[interface.FoundSeries], into: Path) -> None:
        """Fetch a study's series into an existing folder, each series into a subfolder of its own.

        Raises
        ------
        CadError
            When not every instance of every series has arrived.
        """
        self._ask([], "fetch", series, into)

    def store(
        self, paths: Iterable[Path], same_patient: interface.SamePatient | None = None
    ) -> list[str]:
        """Store DICOM files in the archive.

        Parameters
        ----------
        paths : iterable of Path
            The files.
        same_patient : callable, optional
            Tells whether the PatientID of a file and the archive's PatientID belong to one patient.
            Without it the two ids must be equal, unless the file is marked as de-identified.

        Returns
        -------
        list of str
            Remarks, each ``file name: remark``: a warning of the archive, or the earlier reports
            that a report supersedes.

        Raises
        ------
        CadError
            When not every file was proved to be stored. The error lists which files were stored,
            sent, or not sent.
        """
        files = list(paths)
        steps = list[interface.Step]()
        try:
            self._ask(steps, "store", files, same_patient)
        except CadError as error:
            raise interface.not_all_stored(error, files, steps) from error
        return [f"{step.path.name}: {step.remark}" for step in steps if step.remark]

    def missing(self, paths: list[Path]) -> list[Path]:
        """Return the paths of those DICOM files whose instance the archive does not list."""
        missing: list[Path] = self._ask([], "missing", paths)
        return missing

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
        self._ask([], "commit", paths, number)

    def _ask(self, steps: list[interface.Step], operation: str, *arguments: Any) -> Any:
        """Let a new process do one request, and return its answer.

        ``steps`` gets each finished step of storing files. Each step may take the full time that
        the limits allow for a study.
        """
        # The process's standard error is dropped, because libraries write there what an
        # archive has sent.
        process = Child(__name__, quiet=True)
        try:
            process.connection.send((self.address, self.aet, self.limits, operation, arguments))
            seconds = _START_SECONDS
            while True:
                if not process.connection.poll(seconds):
                    raise CadError(
                        f"archive at {self.address}: {operation} took longer than "
                        f"{self.limits.study_seconds:g} s and was ended",
                        hint="try again, or raise `study_seconds` in the archive's limits",
                    )
                answer = process.connection.recv()
                # The process has begun (it sends None first), or has finished a step.
                seconds = self.limits.study_seconds
                if isinstance(answer, interface.Step):
                    steps.append(answer)
                elif isinstance(answer, CadError):
                    raise answer
                elif answer is not None:
                    return answer[0]
        except (EOFError, OSError) as error:
            code = process.wait()  # negative for a process that a signal has ended
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise CadError(
                f"archive at {self.address}: the process that spoke with it ended by {cause}",
                hint="try again; most often the machine had no memory left",
            ) from error
        finally:
            process.end()


def serve(connection: Connection[Any, Any]) -> None:
    """Do one request to an archive, as the main function of a :class:`Conversation`'s process.

    Parameters
    ----------
    connection : Connection
        Pipe to its parent process, which sends the request and gets the result.
    """
    address, aet, limits, operation, arguments = connection.recv()
    limit_memory(limits.memory_gigabytes)
    _confine_to_request(limits, operation, arguments)
    with suppress(BrokenPipeError):  # the parent process has ended, and nobody wants the answer
        connection.send(_answer_to_request(connection, address, aet, limits, operation, arguments))


def _confine_to_request(limits: ArchiveLimits, operation: str, arguments: tuple[Any, ...]) -> None:
    """Restrict this process to the files that its request needs.

    Data from an archive may exploit a fault of the code that parses them, and would then make this
    process read or write other files.
    """
    readable = list(_RESOLVER)
    for name in _OF_CONNECTIONS:
        if name in os.environ:
            readable.append(Path(os.environ[name]))
    with suppress(RuntimeError):  # Path.home() raises it for a user without a home folder
        readable += [Path.home() / name for name in (".netrc", "_netrc")]
    if limits.tls is not None:
        readable += [limits.tls.certificate, limits.tls.key, limits.tls.authority]
    if operation in _OF_FILES:
        readable += arguments[0]
    writable = [arguments[1]] if operation == "fetch" else []
    confine(readable, writable)


def _answer_to_request(
    connection: Connection[Any, Any],
    address: str,
    aet: str,
    limits: ArchiveLimits,
    operation: str,
    arguments: tuple[Any, ...],
) -> CadError | tuple[Any]:
    """Do a request to an archive; return its result in a tuple of one element, or the error.

    Meanwhile ``connection`` gets messages for the parent process: None when the request begins and,
    while files are stored, each step of storing.
    """
    try:
        with interface.understood(f"archive at {address}"):
            archive = protocol(address, aet, limits)
            connection.send(None)
            result = getattr(archive, operation)(*arguments)
            # Only store() is a generator: it does its work while its steps are taken.
            if operation != "store":
                return (result,)
            for step in result:
                connection.send(step)
            return (None,)
    except CadError as error:
        return error


def protocol(address: str, aet: str, limits: ArchiveLimits) -> interface.Protocolled:
    """Return an object that talks to an archive: by DICOMweb for a URL, else by DICOM networking.

    Parameters
    ----------
    address : str
        ``HOST:PORT``, or an ``http(s)://`` URL.
    aet : str
        The archive's application entity title.
    limits : ArchiveLimits
        Time, memory and data that one request may take.
    """
    if "://" in address:
        from cad.dicom.archive.web import WebArchive

        return WebArchive(address, limits)
    from cad.dicom.archive.dimse import DimseArchive

    host, _, port = address.rpartition(":")
    return DimseArchive(host, int(port), aet, limits)
