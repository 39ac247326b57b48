"""Sweep a node of a patient who withdrew: what came, what was computed of it, and the queue."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cad.cohort.traces import Names, named_places
from cad.dicom.archive.interface import SamePatient
from cad.errors import CadError
from cad.folders.lock import locked
from cad.node.inbox import FETCHING, INCOMING, SPOOL, STUDIES, sweep_study
from cad.node.instance import deflated_head, head_of
from cad.node.queue import Queue
from cad.node.service import QUEUE
from cad.node.trail import FILE
from cad.records.audit import append


class NodeHome:
    """Sweep a node's folder for :func:`cad.records.withdrawal.withdraw`; the node is stopped.

    Raises
    ------
    CadError
        For a folder that is no node's.
    """

    def __init__(self, home: Path) -> None:
        if not (home / QUEUE).is_file():
            raise CadError(f"no node's folder: it has no {QUEUE}", file=home)
        self.home, self.name = home, str(home)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the node from starting meanwhile."""
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
        """Remove every study of a patient; return how many.

        Parameters
        ----------
        names : Names
            What the cohort says of the patient.
        patient : str
            As the user named them.
        same : callable or None
            Proof of the cohort's key that a PatientID is the participant's.
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
        """Return the keys of a patient's studies, by headers and by cohorts made of them."""
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
