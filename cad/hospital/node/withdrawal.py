"""Remove a patient who withdrew his consent from a node: received files, results, queue rows."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cad.base.errors import CadError
from cad.base.reading import read_text
from cad.base.transactions import is_ours
from cad.base.transactions.lock import locked
from cad.dicom.archive.interface import SamePatient
from cad.folders.cohort.traces import Names, named_places
from cad.hospital.node.compute import WATCH
from cad.hospital.node.inbox import FETCHING, INCOMING, SPOOL, STUDIES, sweep_study
from cad.hospital.node.instance import Head, deflated_head, head_of
from cad.hospital.node.names import KEY_FILE, is_key, key_of, node_key
from cad.hospital.node.queue import Queue
from cad.hospital.node.service import QUEUE
from cad.hospital.node.trail import FILE
from cad.run.audit.trail import append

_OURS = {
    INCOMING,
    STUDIES,
    WATCH,
    KEY_FILE,
    FILE,
    f"{FILE}.key",
    *(QUEUE + end for end in ("", "-wal", "-shm", "-journal")),
}
"""Names of files and folders in a node's folder that the node itself makes.

Three more kinds of files may lie in the node's folder: locks, damaged queues that the node renamed,
and the settings file.
"""


class NodeHome:
    """Remove patients from the folder of a stopped node.

    :func:`cad.run.audit.withdrawal.withdraw` uses it.

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
        self.home = home
        self.name = str(home)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the node's folder, so that the node cannot start while the block runs.

        Raises
        ------
        CadError
            When the node is running.
        """
        with ExitStack() as lock:
            try:
                lock.enter_context(locked(self.home))
            except CadError as error:
                text = "the node is running: what it holds of the patient would come back"
                hint = "stop it first (systemctl stop cad-node), and start it afterwards"
                raise CadError(text, file=self.home, hint=hint) from error
            yield

    def sweep(self, names: Names, same: SamePatient | None) -> int:
        """Remove every study of a patient from the node; return how many studies were removed.

        :meth:`studies` tells which studies count as the patient's.

        Parameters
        ----------
        names : Names
            Label, PatientIDs and UIDs of the patient, from the cohort.
        same : callable or None
            Takes the label ``sub-XXX`` and a PatientID; returns whether both are the same patient
            (:func:`cad.folders.cohort.patients.patient_proof`). None where the cohort has no secret
            key.

        Returns
        -------
        int
            Number of the patient's studies that were removed.
        """
        queue = Queue(self.home / QUEUE)
        try:
            # Nobody can tell whose the instances are that had arrived in part.
            for folder in (FETCHING, SPOOL):
                shutil.rmtree(self.home / INCOMING / folder, ignore_errors=True)
            keys, _ = self._studies_and_doubts(names, same)
            # The keys of the patient's studies are recorded in the audit trail before the removal.
            # If the process were killed during the removal, no other file could tell these keys.
            if keys and (self.home / FILE).is_file():
                line = {"event": "withdraw", "node_keys": keys}
                queue.note_line(append(self.home / FILE, line))
            self._unwatch(keys, names)
            for study in keys:
                # Rows of the queue are removed before files. If the process is killed in between,
                # the received files still tell whose study it was.
                queue.forget(study)
                sweep_study(self.home, queue, study)
            # Empty folders of studies without rows in the queue are removed, too. An earlier
            # removal that was killed left them.
            instances = queue.instances()
            for place in self._places(INCOMING):
                if place.name not in instances and not any(place.iterdir()):
                    place.rmdir()
            if keys:
                queue.shrink()  # removed rows must not stay in the file
                for damaged in self.home.glob(f"{QUEUE}.damaged-*"):  # may have the patient's rows
                    damaged.unlink()
        finally:
            queue.close()
        return len(keys)

    def _unwatch(self, studies: Sequence[str], names: Names) -> None:
        """Remove the numbers of a man that the node keeps to compare models and to notice drift.

        These numbers are kept longer than the images, so that the node may no longer know the man's
        studies. The key (pseudonym) of his label ``sub-XXX`` then identifies his numbers.
        """
        key_of_man = key_of(node_key(self.home), names.participant)
        text_of_key = f'"{key_of_man}"'  # as JSON writes it
        for path in sorted((self.home / WATCH).glob("*.json")):
            if path.stem in studies or text_of_key in read_text(path):
                path.unlink()

    def studies(self, names: Names, same: SamePatient | None) -> list[str]:
        """Return the keys of a patient's studies on the node, and files that may be the patient's.

        A study is the patient's if one of its received files has a study UID or PatientID of the
        patient. A PatientID is the patient's if ``names`` has it or ``same`` accepts it. A study is
        also the patient's if a file or folder of its cohort or run is named after the patient. The
        name does not count if the study's images have another PatientID that gives the same label.

        Three kinds of files may be the patient's:

        - files that cannot be read
        - files that the node did not make
        - images with a PatientID that gives the patient's label but is not known to be his

        Parameters
        ----------
        names : Names
            Label, PatientIDs and UIDs of the patient, from the cohort.
        same : callable or None
            Takes the label ``sub-XXX`` and a PatientID; returns whether both are the same patient.
            None where the cohort has no secret key.
        """
        theirs, doubtful = self._studies_and_doubts(names, same)
        return theirs + doubtful

    def _studies_and_doubts(
        self, names: Names, same: SamePatient | None
    ) -> tuple[list[str], list[str]]:
        """Return the keys of a patient's studies, and, with reasons, files that may be his."""
        # Several PatientIDs can give the same label `sub-XXX`. The label therefore decides only if
        # the cohort does not know the patient's PatientIDs.
        label = names.participant.removeprefix("sub-")
        ids = {names.given}
        if names.source_ids:
            ids |= set(names.source_ids)
        else:
            ids.add(names.given.removeprefix("sub-"))

        def is_theirs(head: Head) -> bool:
            return (
                head.patient in ids
                or head.study in names.uids
                or (same is not None and same(names.participant, head.patient))
            )

        theirs = set()
        doubtful = dict[str, str]()  # by name of a study or file, why it is doubtful
        # Results of the patient bear his name.
        for work in self._places(STUDIES):
            if named_places(work, names):
                theirs.add(work.name)
        # Received images decide more surely than names.
        for place in self._places(INCOMING):
            heads = _heads(place)
            if any(map(is_theirs, heads)):
                theirs.add(place.name)
            # Here no image of the study has the patient's PatientID, although its results may have
            # his label. The cohort knows all his PatientIDs, so the study is another patient's.
            elif heads and names.source_ids:
                theirs.discard(place.name)
            # A label is made of the PatientID's letters and digits.
            elif any(re.sub("[^A-Za-z0-9]", "", head.patient) == label for head in heads):
                theirs.discard(place.name)
                doubtful[place.name] = "another PatientID of this label: give it, if it is theirs"
            elif not heads and any(place.iterdir()):
                doubtful[place.name] = "no file of it can be read"
        # Results whose images are gone: nothing tells any more whose they are.
        for place in self._places(STUDIES):
            images = (self.home / INCOMING / place.name).glob("*")
            if any(place.iterdir()) and not any(images):
                doubtful[place.name] = "no file of it is in incoming"
        foreign = [place for place in sorted(self.home.iterdir()) if not self._is_ours(place)]
        foreign += self._places(INCOMING, ours=False) + self._places(STUDIES, ours=False)
        for place in foreign:
            doubtful[place.relative_to(self.home).as_posix()] = "it is not the node's"
        doubts = []
        for name, why in doubtful.items():
            if name not in theirs:  # another sign may have shown whose it is
                doubts.append(f"{name} (whose it is cannot be told: {why})")
        return sorted(theirs), doubts

    def _places(self, section: str, *, ours: bool = True) -> list[Path]:
        """Return the folders of studies in ``section``, a folder inside the node's folder.

        With ``ours`` False, return instead everything in ``section`` that is no folder of a study.
        """
        places = []
        for place in sorted((self.home / section).glob("*")):
            is_study = is_key(place.name) and place.is_dir() and not place.is_symlink()
            if is_study is ours:
                places.append(place)
        return places

    def _is_ours(self, place: Path) -> bool:
        """Tell whether a file or folder in the node's folder belongs to the node."""
        trail = (self.home / FILE).resolve()  # a link if the setting `audit` names another file
        return (
            place.name in _OURS
            or place.name.startswith(f"{QUEUE}.damaged-")
            or (is_ours(place.name) and place.is_file())
            or place.resolve() in (trail, trail.with_name(f"{trail.name}.key"))
        )


def _heads(folder: Path) -> list[Head]:
    """Return the headers of the files in a folder, except for files that cannot be read."""
    heads = []
    for path in filter(Path.is_file, folder.rglob("*")):
        with suppress(CadError, OSError):
            heads.append(head_of(path) or deflated_head(path))
    return heads
