"""Mark in a new result of a study which earlier results it supersedes.

Otherwise both results of the study would seem to be valid. A result is a report (SR) or another
DICOM object of this program, such as a sheet (a page for the tumour board, as PDF).

Before a report or sheet is stored, the archive is queried for the earlier results of this program
in the study. A report with new content lists the earlier reports in its Predecessor Documents
Sequence, and earlier results of other kinds in its Pertinent Other Evidence Sequence (PS3.3
C.17.2). A new sheet lists the earlier sheets in its Predecessor Documents Sequence (PS3.3 C.24.2).
If the archive already has an object of the same UID as the new result, the two have the same
content. The new result then gets no references. Objects that are sent together with a report do not
count as earlier results.

Objects of this program are recognised by modality and series number, which every archive must state
in its answers. If the archive also states the series description, it is compared, too.
"""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset

from cad.base.doors import door
from cad.dicom.own import SERIES, own_kind

ASKED = ("SeriesInstanceUID", "Modality", "SeriesNumber", "SeriesDescription")
"""Attributes that are queried for each series of the study."""


Earlier = tuple[str, str, str]
"""Kind, SeriesInstanceUID and SOPInstanceUID of an object of this program in an archive."""


def earlier_results(
    series: Iterable[Dataset], instances: Callable[[str], Iterable[str]]
) -> list[Earlier]:
    """Return the objects among a study's series that this program wrote.

    Parameters
    ----------
    series : iterable of Dataset
        The archive's answers to a query for the study's series, with series UID, modality, number
        and description.
    instances : callable
        Takes a SeriesInstanceUID and returns its SOPInstanceUIDs; called only for series that this
        program wrote.

    Returns
    -------
    list of Earlier
        Kind (a key of :data:`cad.dicom.own.SERIES`), SeriesInstanceUID and SOPInstanceUID of each
        object.
    """
    results = []
    for item in series:
        kind = own_kind(item)
        if not kind:
            continue
        series_uid = str(item.SeriesInstanceUID)
        for sop_uid in sorted(instances(series_uid)):
            results.append((kind, series_uid, sop_uid))
    return results


def is_document(dataset: Dataset) -> bool:
    """Tell whether an object is a report (SR) or a sheet (PDF) of this program."""
    kind = own_kind(dataset)
    return kind in ("SR", "PDF") and dataset.get("SOPClassUID") == SERIES[kind].sop_class


@door("own", "our own DICOM objects")
def sent_together(paths: Iterable[Path]) -> set[str]:
    """Return the SOPInstanceUIDs of DICOM files.

    The files are sent to an archive together, so that none of them supersedes another.

    Parameters
    ----------
    paths : iterable of Path
        DICOM files.

    Raises
    ------
    OSError, InvalidDicomError
        For a file that cannot be read.
    """
    uids = set()
    for path in paths:
        header = pydicom.dcmread(path, specific_tags=["SOPInstanceUID"])
        uids.add(str(header.SOPInstanceUID))
    return uids


def supersede(
    dataset: Dataset, earlier: Iterable[Earlier], current: Collection[str] = ()
) -> list[str]:
    """Write into a report or sheet references to the earlier results that it supersedes.

    A sheet is a page for the tumour board, as Encapsulated PDF.

    Parameters
    ----------
    dataset : Dataset
        A report or sheet of this program; changed in place. Its file is not changed.
    earlier : iterable of Earlier
        The study's results in the archive, as :func:`earlier_results` returns them: kind,
        SeriesInstanceUID and SOPInstanceUID of each.
    current : collection of str
        SOPInstanceUIDs of the objects that are sent together with ``dataset``. If the archive
        already has one of them, of another kind than ``dataset``, no reference to it is written.

    Returns
    -------
    list of str
        SOPInstanceUIDs of the superseded objects that are of the same kind as ``dataset``. (A
        report also gets references to objects of other kinds, which are not returned.) If the
        archive has the object ``dataset`` itself, the list is empty and ``dataset`` is not changed.
    """
    # Objects that the report refers to are not superseded, even if the archive already has them.
    needed = evidence_uids(dataset) | set(current)
    predecessors = []
    superseded_uids = []
    further_results = []
    for kind, series_uid, sop_uid in earlier:
        # UIDs are derived from the content. If the archive has an object of the same UID, the new
        # object has nothing new, and supersedes nothing.
        if sop_uid == str(dataset.SOPInstanceUID):
            return []
        if kind == own_kind(dataset):
            predecessors.append((kind, series_uid, sop_uid))
            superseded_uids.append(sop_uid)
        elif sop_uid not in needed:
            further_results.append((kind, series_uid, sop_uid))
    study_uid = str(dataset.StudyInstanceUID)
    if predecessors:
        dataset.PredecessorDocumentsSequence = [_reference_item(study_uid, predecessors)]
    # A sheet (Encapsulated PDF) has no place for references to results of other kinds. The report
    # on the study (SR) refers to them.
    if further_results and own_kind(dataset) == "SR":
        dataset.PertinentOtherEvidenceSequence = [_reference_item(study_uid, further_results)]
    return superseded_uids


def evidence_uids(dataset: Dataset) -> set[str]:
    """Return the SOPInstanceUIDs of the objects that a report lists as its evidence."""
    uids = set()
    for study in dataset.get("CurrentRequestedProcedureEvidenceSequence", []):
        for series in study.ReferencedSeriesSequence:
            for instance in series.ReferencedSOPSequence:
                uids.add(str(instance.ReferencedSOPInstanceUID))
    return uids


def _reference_item(study_uid: str, results: list[Earlier]) -> Dataset:
    """Return an item of the Hierarchical SOP Instance Reference Macro, which lists the results.

    Objects of one series are listed in the order in which they stand in ``results``.
    """
    item = Dataset()
    item.StudyInstanceUID = study_uid
    item.ReferencedSeriesSequence = []
    # The object must not depend on the order of the archive's answers. So the series UIDs are
    # sorted here; :func:`earlier_results` has sorted the objects of each series.
    for uid in sorted({series_uid for _, series_uid, _ in results}):
        series = Dataset()
        series.SeriesInstanceUID = uid
        series.ReferencedSOPSequence = []
        for kind, series_uid, sop_uid in results:
            if series_uid != uid:  # the object belongs to another series, which has its own item
                continue
            instance = Dataset()
            instance.ReferencedSOPClassUID = SERIES[kind].sop_class
            instance.ReferencedSOPInstanceUID = sop_uid
            series.ReferencedSOPSequence.append(instance)
        item.ReferencedSeriesSequence.append(series)
    return item
