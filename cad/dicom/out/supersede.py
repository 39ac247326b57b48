"""A later result of a study names the earlier ones that it supersedes, so that none is doubled.

Before a report of ours is stored, the archive is asked for the reports, segmentations and maps of
ours that the study has already. A report that says something new carries the earlier reports in its
Predecessor Documents Sequence and the earlier segmentations and maps in its Pertinent Other
Evidence Sequence (PS3.3 C.17.2); one that the archive has already is stored under its own UID, and
changes nothing. What is sent again beside the report is no earlier result. Ours are recognised by
modality and series number, which every archive must answer, and by the series description where it
is answered.
"""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset

from cad.base.doors import door
from cad.dicom.own import SERIES

ASKED = ("SeriesInstanceUID", "Modality", "SeriesNumber", "SeriesDescription")
"""What an archive is asked of each series of the study."""


Earlier = tuple[str, str, str]
"""Modality, SeriesInstanceUID and SOPInstanceUID of an object of ours that an archive holds."""


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
        Modality, SeriesInstanceUID and SOPInstanceUID of each object.
    """
    return [
        (str(one.Modality), str(one.SeriesInstanceUID), uid)
        for one in series
        if _is_ours(one)
        for uid in sorted(instances(str(one.SeriesInstanceUID)))
    ]


def is_report(dataset: Dataset) -> bool:
    """Tell whether an object is a structured report of this program."""
    return dataset.get("SOPClassUID") == SERIES["SR"][2] and _is_ours(dataset)


@door("own", "our own DICOM objects")
def sent_together(paths: Iterable[Path]) -> set[str]:
    """Return the SOPInstanceUIDs of DICOM files.

    The files are sent to an archive together, and therefore none of them supersedes another.

    Parameters
    ----------
    paths : iterable of Path
        DICOM files.

    Raises
    ------
    OSError, InvalidDicomError
        For a file that cannot be read.
    """
    return {
        str(pydicom.dcmread(path, specific_tags=["SOPInstanceUID"]).SOPInstanceUID)
        for path in paths
    }


def supersede(
    dataset: Dataset, earlier: Iterable[Earlier], current: Collection[str] = ()
) -> list[str]:
    """Add to a report references to the earlier results of its study, which it supersedes.

    Parameters
    ----------
    dataset : Dataset
        A report of this program; changed in place. Its file is not changed.
    earlier : iterable of Earlier
        The study's results in the archive, as :func:`earlier_results` returns them: modality,
        SeriesInstanceUID and SOPInstanceUID of each.
    current : collection of str
        SOPInstanceUIDs of the objects that are sent together with the report. An earlier
        segmentation or map with one of these UIDs is not superseded and gets no reference.

    Returns
    -------
    list of str
        SOPInstanceUIDs of the reports that it supersedes; empty where there are none. If the
        archive has this report already, the list is empty and the dataset is not changed.
    """
    found = list(earlier)
    # UIDs follow from the content: the archive has this very report, which supersedes nothing.
    if str(dataset.SOPInstanceUID) in {sop for _, _, sop in found}:
        return []
    # Objects that the report rests on are current, even if the archive has them from before.
    own = evidence(dataset)
    reports = [one for one in found if one[0] == "SR"]
    kept = own | set(current)
    others = [one for one in found if one[0] != "SR" and one[2] not in kept]
    study = str(dataset.StudyInstanceUID)
    if reports:
        dataset.PredecessorDocumentsSequence = [_reference(study, reports)]
    if others:
        dataset.PertinentOtherEvidenceSequence = [_reference(study, others)]
    return [sop for _, _, sop in reports]


def _is_ours(dataset: Dataset) -> bool:
    expected = SERIES.get(str(dataset.get("Modality", "")))
    # As text: archives answer a number, a decimal string, or nothing.
    if expected is None or str(dataset.get("SeriesNumber", "")) != str(expected[0]):
        return False
    # An archive may leave the description out, which is an optional key of a query.
    return str(dataset.get("SeriesDescription") or expected[1]) == expected[1]


def evidence(dataset: Dataset) -> set[str]:
    """Return the SOPInstanceUIDs of the objects that a report lists as its evidence."""
    return {
        str(instance.ReferencedSOPInstanceUID)
        for study in dataset.get("CurrentRequestedProcedureEvidenceSequence", [])
        for series in study.ReferencedSeriesSequence
        for instance in series.ReferencedSOPSequence
    }


def _reference(study: str, results: list[Earlier]) -> Dataset:
    """Return an item of the Hierarchical SOP Instance Reference Macro."""
    item = Dataset()
    item.StudyInstanceUID = study
    item.ReferencedSeriesSequence = []
    # Sorted, so that the sent copy does not depend on the order of the answer.
    for uid in sorted({series for _, series, _ in results}):
        series = Dataset()
        series.SeriesInstanceUID = uid
        series.ReferencedSOPSequence = []
        for modality, series_uid, sop_uid in results:
            if series_uid != uid:
                continue
            instance = Dataset()
            instance.ReferencedSOPClassUID = SERIES[modality][2]
            instance.ReferencedSOPInstanceUID = sop_uid
            series.ReferencedSOPSequence.append(instance)
        item.ReferencedSeriesSequence.append(series)
    return item
