"""Send a study's result to the archive. An object counts as stored once the archive lists it."""

from contextlib import suppress
from pathlib import Path

from cad.base.errors import CadError
from cad.dicom.archive.client import connect
from cad.folders.cohort.patients import patient_proof
from cad.hospital.node.compute import COHORT, objects
from cad.hospital.node.instance import Head, head_of, require_whole
from cad.hospital.node.settings import ArchiveSettings


def send_back(settings: ArchiveSettings, work: Path, *, ask_first: bool) -> int:
    """Store a study's result objects in the archive; return how many were sent.

    Parameters
    ----------
    settings : ArchiveSettings
        The archive.
    work : Path
        The study's folder of cohort and run.
    ask_first : bool
        Whether to ask first which objects the archive has, and to leave these out. Objects can be
        found there because equal results have equal UIDs (:mod:`cad.dicom.out.results`).

    Returns
    -------
    int
        Number of objects that were sent; 0 if the archive had all of them.

    Raises
    ------
    CadError
        When the archive does not list every object after the sending.
    """
    archive = connect(settings.address, settings.aet, settings.limits)
    objects_to_send = objects(work)
    if ask_first:
        objects_to_send = archive.missing(objects_to_send)
    if objects_to_send:
        archive.store(objects_to_send, patient_proof(work / COHORT))
    return len(objects_to_send)


def ask_promise(settings: ArchiveSettings, work: Path, number: str) -> None:
    """Ask the archive to promise that it keeps a study's objects (storage commitment, PS3.4 J).

    Parameters
    ----------
    settings : ArchiveSettings
        The archive.
    work : Path
        The study's folder of cohort and run.
    number : str
        Transaction UID of the request; the archive's answer carries it.

    Raises
    ------
    CadError
        When the archive does not take the request, or does not support storage commitment.
    """
    connect(settings.address, settings.aet, settings.limits).commit(objects(work), number)


def result_is_whole(work: Path) -> bool:
    """Tell whether a study has a result all of whose files are complete.

    Parameters
    ----------
    work : Path
        Folder of the study, with its cohort folder and its run folder.

    Returns
    -------
    bool
        True if the study has at least one result object and every one is complete.
    """
    with suppress(CadError):
        paths = objects(work)
        heads = [head_of(path) for path in paths]
        for path, head in zip(paths, heads, strict=True):
            # A deflated object has no head; require_whole needs no class for it.
            require_whole(path, head.sop_class if head else "")
        return bool(paths)
    return False


def broken(work: Path, answered: dict[str, int]) -> list[str]:
    """Return why an archive does not keep some objects of a study, from its answer.

    Parameters
    ----------
    work : Path
        The study's folder of cohort and run.
    answered : dict of str to int
        By SOPInstanceUID 0 for an object that the archive promises to keep, else its failure
        reason.

    Returns
    -------
    list of str
        For each object that is not kept: its failure code in hexadecimal, or ``not named`` if the
        answer does not mention the object. The list is empty if every object will be kept.
    """
    problems = []
    for path in objects(work):
        head = head_of(path)
        if head is None or head.uid not in answered:
            problems.append("not named")
        elif answered[head.uid] != 0:
            problems.append(f"{answered[head.uid]:#06x}")  # such as 0x0110
    return problems


def images_in_archive(settings: ArchiveSettings, head: Head) -> int:
    """Return how many MR images the archive has of a study.

    Parameters
    ----------
    settings : ArchiveSettings
        The archive.
    head : Head
        Header of any instance of the study.

    Raises
    ------
    CadError
        When the archive cannot be queried.
    """
    if not head.patient:  # no query without a PatientID; the import will report the missing id
        return 0
    all_series = connect(settings.address, settings.aet, settings.limits).find(head.patient)
    # The archive lists the series of all studies of the patient.
    images = 0
    for series in all_series:
        if series.study_uid == head.study and series.modality == "MR":
            images += series.instances
    return images
