"""Return a study's result to the archive: once, and only proof counts."""

from pathlib import Path

from cad.cohort.patients import patient_proof
from cad.dicom.archive.client import connect
from cad.node.compute import COHORT, objects
from cad.node.instance import Head, head_of
from cad.node.settings import ArchiveSettings


def send_back(settings: ArchiveSettings, work: Path, *, ask_first: bool) -> int:
    """Store a study's objects; return how many were sent.

    Parameters
    ----------
    settings : ArchiveSettings
        Where to.
    work : Path
        The study's folder.
    ask_first : bool
        Leave out what the archive lists: some may have been sent before. Equal results have equal
        UIDs (:mod:`cad.dicom.out.results`).

    Raises
    ------
    CadError
        When not every object was proved to be stored.
    """
    archive = connect(settings.address, settings.aet, settings.limits)
    wanted = objects(work)
    if ask_first:
        wanted = archive.missing(wanted)
    if wanted:
        archive.store(wanted, patient_proof(work / COHORT))
    return len(wanted)


def ask_promise(settings: ArchiveSettings, work: Path, number: str) -> None:
    """Ask the archive for storage commitment (PS3.4 J) of a study's objects.

    Parameters
    ----------
    settings : ArchiveSettings
        The archive.
    work : Path
        The study's folder of work.
    number : str
        Transaction UID, by which the archive's answer is known.

    Raises
    ------
    CadError
        When it cannot be asked, or does not know what that is.
    """
    connect(settings.address, settings.aet, settings.limits).commit(objects(work), number)


def broken(work: Path, answered: dict[str, int]) -> list[str]:
    """Return why an archive does not promise to keep a study's objects: a reason for each.

    Parameters
    ----------
    work : Path
        The study's folder.
    answered : dict of str to int
        What it said: an object's UID, and 0 or the reason of its failure.
    """
    heads = [head_of(path) for path in objects(work)]
    codes = [answered.get(head.uid) if head is not None else None for head in heads]
    return ["not named" if code is None else f"{code:#06x}" for code in codes if code != 0]


def images_in_archive(settings: ArchiveSettings, head: Head) -> int:
    """Return how many MR images of an instance's study the archive has.

    Parameters
    ----------
    settings : ArchiveSettings
        The archive.
    head : Head
        The instance.

    Raises
    ------
    CadError
        When it cannot be asked.
    """
    if not head.patient:  # the import will say so
        return 0
    series = connect(settings.address, settings.aet, settings.limits).find(head.patient)
    return sum(s.instances for s in series if s.study_uid == head.study and s.modality == "MR")
