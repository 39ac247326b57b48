"""Remove a patient who withdrew from a node: received files, results, and rows of the queue."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cad.audit.trail import append
from cad.cohort.traces import Names, named_places
from cad.dicom.archive.interface import SamePatient
from cad.errors import CadError
from cad.node.inbox import FETCHING, INCOMING, SPOOL, STUDIES, sweep_study
from cad.node.instance import deflated_head, head_of
from cad.node.queue import Queue
from cad.node.service import QUEUE
from cad.node.trail import FILE
from cad.transactions.lock import locked


class NodeHome:
    """Remove patients from the folder of a stopped node.

    :func:`cad.audit.withdrawal.withdraw` uses it.

    Parameters
    ----------
    home : Path
        The node's folder.

    Raises
    ------
    CadError
        When the folder is not a node's.
    """

    def __init__(self, home: Path) -> None:
        if not (home / QUEUE).is_file():
            raise CadError(f"no node's folder: it has no {QUEUE}", file=home)
        self.home, self.name = home, str(home)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the node's folder, so that the node cannot start while the block runs.

        Raises
        ------
        CadError
            When the node is running.
        """
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.home))
            except CadError as error:
                raise CadError(
                    "the node is running: what it holds of the patient would come back",
                    file=self.home,
                    hint="stop it first (systemctl stop cad-node), and start it afterwards",
                ) from error
            yield

    def sweep(self, names: Names, patient: str, same: SamePatient | None) -> int:
        """Remove every study of a patient from the node; return how many studies were removed.

        :meth:`studies` says which these are.

        Parameters
        ----------
        names : Names
            Label, PatientIDs and UIDs of the patient, from the cohort.
        patient : str
            The patient's id as the user gave it.
        same : callable or None
            Takes the label ``sub-XXX`` and a PatientID; returns whether both are the same patient
            (:func:`cad.cohort.patients.patient_proof`). None where the cohort has no secret key.
        """
        queue = Queue(self.home / QUEUE)
        try:
            for half in (FETCHING, SPOOL):
                shutil.rmtree(self.home / INCOMING / half, ignore_errors=True)
            gone = self.studies(names, patient, same)
            if gone and (self.home / FILE).is_file():  # first: after a kill nobody knew them
                line = {"event": "withdraw", "node_keys": gone}
                queue.note_line(append(self.home / FILE, line))
            here = {path.parent.name for path in self.home.glob(f"{INCOMING}/*/*.dcm")}
            left = {folder.name for folder in self.home.glob(f"{INCOMING}/*")} - here
            # And what a removal has left that was cut short: a folder without files, or rows.
            for study in {*gone, *left, *(queue.instances().keys() - here)}:
                sweep_study(self.home, queue, study)
            if gone:
                queue.shrink()
                for damaged in self.home.glob(f"{QUEUE}.damaged-*"):  # it has rows of before
                    damaged.unlink()
        finally:
            queue.close()
        return len(gone)

    def studies(self, names: Names, patient: str, same: SamePatient | None) -> list[str]:
        """Return the keys of a patient's studies on the node: the names of their folders.

        A study counts when one of its received files has the patient's PatientID or study UID, or
        when a file or folder of its cohort or run is named after the patient. The PatientID may be
        ``patient``, one of ``names``, or one that ``same`` accepts.

        Parameters
        ----------
        names : Names
            Label, PatientIDs and UIDs of the patient, from the cohort.
        patient : str
            The patient's id as the user gave it.
        same : callable or None
            Takes the label ``sub-XXX`` and a PatientID; returns whether both are the same patient.
            None where the cohort has no secret key.
        """
        ids = {patient.strip(), *names.source_ids}

        def is_theirs(path: Path) -> bool:
            try:
                head = head_of(path) or deflated_head(path)
            except CadError:  # what cannot be read was never imported
                return False
            return (
                head.patient in ids
                or "sub-" + re.sub("[^A-Za-z0-9]", "", head.patient) == names.participant
                or head.study in names.uids
                or (same is not None and same(names.participant, head.patient))
            )

        keys = {
            path.parent.name for path in self.home.glob(f"{INCOMING}/*/*.dcm") if is_theirs(path)
        }
        keys |= {
            work.name
            for work in self.home.glob(f"{STUDIES}/*")
            if work.is_dir() and named_places(work, names)
        }
        return sorted(keys)
