"""Make the label ``sub-XXX`` of each PatientID, and record where each study of a cohort lies."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cad.base.errors import CadError
from cad.base.files import write_atomic
from cad.base.reading import read_bytes, read_json
from cad.base.transactions import keep

FIRST_SESSION = "ses-01"
KEY_FILE = "sourcedata/pseudonym.key"
CHECK_FILE = f"{KEY_FILE}.sha256"  # the key's hash, by which a replaced key is noticed
SECRET = re.compile(rb"[0-9a-f]{32}")
_HEX = 10  # number of hexadecimal digits in a pseudonym
PSEUDONYM = re.compile(rf"sub-P[0-9a-f]{{{_HEX}}}")
# Names of readers that identify nobody, such as r1 or "reader 2"; an empty name is one of them.
_NEUTRAL_READER = re.compile(r"[A-Za-z]?[0-9]{1,3}|reader[ _-]?[0-9]{1,3}|")


def patient_proof(root: Path) -> Callable[[str, str], bool] | None:
    """Return a function that tells whether a PatientID belongs to a participant of a cohort.

    The labels of a cohort with pseudonyms are keyed hashes of PatientIDs. Only with the cohort's
    secret key can it be proved that a label and a PatientID belong together. For a cohort without a
    key the result is None, and the caller has to compare PatientIDs.

    Parameters
    ----------
    root : Path
        The cohort folder.

    Returns
    -------
    callable or None
        Takes the participant (``sub-XXX``) and a PatientID; returns True when both are the same
        patient.

    Raises
    ------
    CadError
        When the file holds another key than the one that the pseudonyms were made with.
    """
    if not (root / KEY_FILE).is_file():
        return None
    # key() also checks that the key is the one with which the pseudonyms were made.
    return KeyProof(Patients(root, labels="pseudonym", participant_ids=set()).key())


@dataclass(frozen=True)
class KeyProof:
    """Tell by a cohort's key whether a PatientID belongs to a participant.

    The object holds the key itself and opens no file, because the process that speaks with an
    archive is not allowed to read the key's file.

    Parameters
    ----------
    key : bytes
        The cohort's secret.
    """

    key: bytes

    def __call__(self, participant: str, patient_id: str) -> bool:
        """Return whether a PatientID belongs to a participant, whose label is ``participant``.

        It does if the PatientID is the label itself, or if its pseudonym by the key is the label.
        """
        if participant.strip() == patient_id.strip():
            return True
        if not patient_id.strip():  # an empty PatientID proves nothing
            return False
        return participant == _participant_pseudonym(self.key, patient_id)


def _participant_pseudonym(key: bytes, patient_id: str) -> str:
    """Return the label of a PatientID: the first digits of its hash with the cohort's key."""
    digest = hmac.new(key, patient_id.encode(), hashlib.sha256).hexdigest()
    return f"sub-P{digest[:_HEX]}"


@dataclass(frozen=True)
class StudyPlace:
    """Hold the patient, the session and the folder of images of a study.

    The session is None for the study of a patient without sessions.
    """

    participant_id: str
    session_id: str | None
    folder: Path

    @property
    def study_id(self) -> str:
        """Return the study's id: ``sub-XXX``, or ``sub-XXX_ses-YY`` with a session."""
        return self.participant_id + (f"_{self.session_id}" if self.session_id else "")


class Patients:
    """Keep track of the patients and studies of a cohort, and of where each study lies.

    A study is identified by its StudyInstanceUID, which is read from the sidecars (JSON files
    beside the images).

    Parameters
    ----------
    root : Path
        The cohort folder.
    labels : {"id", "pseudonym"}
        How a patient's label ``sub-XXX`` is made: from the letters and digits of the PatientID, or
        as a pseudonym with the cohort's secret key.
    participant_ids : set of str
        Participants of ``participants.tsv``; the folder of any other participant is ignored.
    """

    def __init__(
        self, root: Path, labels: Literal["id", "pseudonym"], participant_ids: set[str]
    ) -> None:
        self.root = root
        self.labels = labels
        self.participant_ids = participant_ids
        self.studies: dict[str, StudyPlace] = {}  # by StudyInstanceUID
        self.sources: dict[str, str | None] = {}  # PatientID by label; None where it is unknown
        for folder in sorted(root.glob("sub-*")):
            if folder.name not in participant_ids or not folder.is_dir():
                continue
            self.sources[folder.name] = None
            # If the patient has no folders of sessions, his images are in his own folder.
            sessions = sorted(path for path in folder.glob("ses-*") if path.is_dir())
            for home in sessions or [folder]:
                self._remember(folder.name, home)

    def _remember(self, participant: str, home: Path) -> None:
        """Record the study whose images lie in ``home``, by the first sidecar that names it."""
        for sidecar in sorted(home.glob("*/*.json")):
            try:
                entries = read_json(sidecar)
            except CadError:  # another sidecar of the study may still name it
                continue
            study_uid = entries.get("StudyInstanceUID")
            patient_id = entries.get("SourcePatientID")
            if study_uid:
                session = home.name if home.name.startswith("ses-") else None
                self.studies[str(study_uid)] = StudyPlace(participant, session, home)
                self.sources[participant] = None if patient_id is None else str(patient_id)
                return

    def participant(self, patient_id: str) -> str:
        """Return the label ``sub-XXX`` for a PatientID of the source, without recording a patient.

        The attribute ``labels`` says how: the label is a pseudonym (a keyed hash of the PatientID),
        or it consists of the letters and digits of the PatientID. For the first pseudonym of a
        cohort, the secret key is made and written into the cohort.

        Raises
        ------
        CadError
            For an empty PatientID. With pseudonyms, when the key of existing pseudonyms is lost or
            was changed. Without pseudonyms, for a PatientID without letter or digit, and for a
            PatientID whose label already belongs to another PatientID.
        """
        if not patient_id.strip():
            raise CadError("the source has no PatientID", hint="give the study one")
        if self.labels == "pseudonym":
            return _participant_pseudonym(self.key(), patient_id)
        label = "sub-" + re.sub(r"[^A-Za-z0-9]", "", patient_id)
        if label == "sub-":
            raise CadError(f"PatientID {patient_id!r} has no letter or digit for a label")
        # The PatientID that has this label already; a new label belongs to nobody else.
        owner = self.sources.get(label, patient_id)
        if owner != patient_id:
            raise CadError(
                f"two source patients would both be {label}: PatientID {patient_id!r} and "
                f"{'one of unknown source' if owner is None else repr(owner)}",
                hint="set labels: pseudonym in the rules, or import into another cohort",
            )
        return label

    def reader(self, name: str, declared: Collection[str]) -> str:
        """Return a reader's id in the cohort: the name itself, or a pseudonym that hides it.

        Parameters
        ----------
        name : str
            The reader's name in the source.
        declared : collection of str
            Names that are kept. If patients get pseudonyms (``labels``), any other name becomes a
            pseudonym, except a mere number such as ``r1`` or ``reader 2``.
        """
        if self.labels != "pseudonym" or name in declared or _NEUTRAL_READER.fullmatch(name):
            return name
        digest = hmac.new(self.key(), f"reader {name}".encode(), hashlib.sha256).hexdigest()
        return f"r{digest[:_HEX]}"

    def of(self, participant: str) -> list[StudyPlace]:
        """Return the places of a patient's studies, in the order in which they were found."""
        return [p for p in self.studies.values() if p.participant_id == participant]

    def place(self, participant: str, several: bool) -> StudyPlace:
        """Return the session and folder for a patient's next study; nothing is written.

        Parameters
        ----------
        participant : str
            ``sub-XXX``.
        several : bool
            Whether the import brings more than one study of the patient. Then even his first study
            gets a session.
        """
        home = self.root / participant
        studies = self.of(participant)
        # The only study of a man is stored without a session, as BIDS allows.
        if not studies and not several:
            return StudyPlace(participant, session_id=None, folder=home)
        numbers = []
        for place in studies:
            if place.session_id:
                numbers.append(int(place.session_id.removeprefix("ses-")))
        # An existing study without a session is the first study, and becomes ses-01.
        last_number = max(numbers, default=1 if studies else 0)
        session = f"ses-{last_number + 1:02d}"
        return StudyPlace(participant, session, home / session)

    def settle(self, place: StudyPlace, uid: str, patient_id: str) -> None:
        """Record in this object where a new study lies; nothing is written.

        If the new study has a session, the patient's earlier study without a session is recorded as
        ``ses-01``.

        Parameters
        ----------
        place : Place
            Where the study lies.
        uid, patient_id : str
            StudyInstanceUID and PatientID in the source.
        """
        if place.session_id:
            for study_uid, first in self.studies.items():
                if first.participant_id == place.participant_id and first.session_id is None:
                    home = first.folder / FIRST_SESSION
                    self.studies[study_uid] = StudyPlace(place.participant_id, FIRST_SESSION, home)
        self.studies[uid] = place
        self.sources[place.participant_id] = patient_id if self.labels == "id" else None

    def first_session(self, participant: str, build: Path) -> bool:
        """Copy the files of a patient's study without a session into ``ses-01`` of another folder.

        In the name of every copied file ``_ses-01`` follows the patient's label.

        Parameters
        ----------
        participant : str
            ``sub-XXX``.
        build : Path
            The folder in which an import builds the patient's new files.

        Returns
        -------
        bool
            Whether there was a study without a session to copy.
        """
        without_session = [place for place in self.of(participant) if place.session_id is None]
        for study in without_session:
            for path in sorted(file for file in study.folder.rglob("*") if file.is_file()):
                name = path.name.replace(participant, f"{participant}_{FIRST_SESSION}", 1)
                target = build / FIRST_SESSION / path.relative_to(study.folder).with_name(name)
                target.parent.mkdir(parents=True, exist_ok=True)
                keep(path, target)
        return bool(without_session)

    def key(self) -> bytes:
        """Return the cohort's secret key; without it nobody can trace a pseudonym to a PatientID.

        A cohort that has neither key nor pseudonyms gets a new key.

        Raises
        ------
        CadError
            When the key is lost and the cohort has patients with pseudonyms, or when the key was
            changed.
        """
        path = self.root / KEY_FILE
        check = self.root / CHECK_FILE
        # If a lost key were replaced by a new key, the next study of a man would get another label.
        # The man would then count as two patients, of whom one could be in training and one in
        # test.
        otherwise = "the next study of one of them would become another patient"
        hint = "bring the key back from a backup, import into another cohort, remove by sub-P…"
        if not path.is_file():
            pseudonyms = {*filter(PSEUDONYM.fullmatch, {*self.participant_ids, *self.sources})}
            if pseudonyms:
                problem = f"{len(pseudonyms)} patients are here by pseudonyms of a key that is gone"
                raise CadError(f"{problem}: {otherwise}", file=path, hint=hint)
            key = secrets.token_hex(16).encode()
            # The hash is written first: a process that is killed in between leaves no key, and the
            # next one makes both anew.
            write_atomic(check, hashlib.sha256(key).hexdigest().encode())
            write_atomic(path, key, mode=0o600)
        key = read_bytes(path, 2**10)
        # Where the file with the key's hash is missing, the key cannot be compared with it.
        stated_hash = read_bytes(check, 2**10).decode() if check.is_file() else None
        if not SECRET.fullmatch(key) or stated_hash not in (None, hashlib.sha256(key).hexdigest()):
            problem = "not the key that the pseudonyms of the patients here were made with"
            raise CadError(f"{problem}: {otherwise}", file=path, hint=hint)
        return key
