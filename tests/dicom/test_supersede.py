"""A report names what it supersedes; against a real archive in live_archive.py."""

from __future__ import annotations

from pydicom.dataset import Dataset
from pydicom.uid import Comprehensive3DSRStorage, EncapsulatedPDFStorage, ParametricMapStorage

from cad.dicom.out.supersede import earlier_results, is_document, supersede

OURS = "cad: probability of malignancy"


def series(modality: str, number: object, description: str | None, uid: str) -> Dataset:
    """A line of an archive's answer."""
    found = Dataset()
    found.Modality, found.SeriesNumber, found.SeriesInstanceUID = modality, number, uid
    if description is not None:
        found.SeriesDescription = description
    return found


def report(uid: str) -> Dataset:
    found = series("SR", 9102, OURS, "1.2.9")
    found.SOPClassUID, found.SOPInstanceUID = Comprehensive3DSRStorage, uid
    found.StudyInstanceUID = "1.2"
    return found


def named(dataset: Dataset, keyword: str) -> set[str]:
    return {
        instance.ReferencedSOPInstanceUID
        for item in dataset.get(keyword, [])
        for one in item.ReferencedSeriesSequence
        for instance in one.ReferencedSOPSequence
    }


def test_only_results_of_ours_are_found():
    answers = [
        series("SR", 9102, OURS, "1.2.1"),
        series("SR", "9102", None, "1.2.2"),  # a description is optional in an answer
        series("SR", 9102, "a radiologist's", "1.2.3"),
        series("SR", 1, OURS, "1.2.4"),
        series("SEG", 9101, "cad: regions of interest", "1.2.5"),
        series("SEG", 9102, None, "1.2.6"),
        series("MR", 9102, None, "1.2.7"),
        series("OT", 9103, "cad: map of probability", "1.2.8"),
        series("OT", 9103, "another map", "1.2.9"),
        series("OT", 9105, None, "1.2.10"),  # a sheet's picture has the modality of a map
        series("DOC", 9104, "cad: sheet for the tumour board", "1.2.11"),
        series("DOC", 9105, None, "1.2.12"),
    ]
    found = earlier_results(answers, lambda uid: [f"{uid}.1"])
    assert [(kind, sop) for kind, _, sop in found] == [
        ("SR", "1.2.1.1"),
        ("SR", "1.2.2.1"),
        ("SEG", "1.2.5.1"),
        ("PM", "1.2.8.1"),
        ("SC", "1.2.10.1"),
        ("PDF", "1.2.11.1"),
    ]


def test_a_new_report_names_what_it_supersedes():
    earlier = [("SR", "1.2.1", "1.2.1.1"), ("SEG", "1.2.5", "1.2.5.1")]
    new = report("1.2.9.1")
    assert is_document(new)
    assert supersede(new, earlier) == ["1.2.1.1"]
    assert named(new, "PredecessorDocumentsSequence") == {"1.2.1.1"}
    assert named(new, "PertinentOtherEvidenceSequence") == {"1.2.5.1"}


def test_a_new_report_names_the_map_before_it_and_not_its_own():
    earlier = [("SR", "1.2.1", "1.2.1.1"), ("PM", "1.2.8", "1.2.8.1"), ("PM", "1.2.8", "1.2.8.2")]
    new = report("1.2.9.1")
    assert supersede(new, earlier, {"1.2.9.1", "1.2.8.2"}) == ["1.2.1.1"]
    assert named(new, "PertinentOtherEvidenceSequence") == {"1.2.8.1"}
    (item,) = new.PertinentOtherEvidenceSequence
    (one,) = item.ReferencedSeriesSequence
    (instance,) = one.ReferencedSOPSequence
    assert instance.ReferencedSOPClassUID == ParametricMapStorage


def test_a_report_that_the_archive_has_stays_as_it_is():
    old = report("1.2.1.1")
    earlier = [("SR", "1.2.1", "1.2.1.1"), ("SR", "1.2.8", "1.2.8.1")]
    before = old.copy()
    assert supersede(old, earlier) == []
    assert old == before
    assert supersede(report("1.2.9.1"), []) == []


def test_a_new_sheet_names_the_sheet_before_it_and_no_report():
    new = series("DOC", 9104, "cad: sheet for the tumour board", "1.2.20")
    new.SOPClassUID, new.SOPInstanceUID, new.StudyInstanceUID = (
        EncapsulatedPDFStorage,
        "1.2.20.1",
        "1.2",
    )
    earlier = [
        ("SR", "1.2.1", "1.2.1.1"),
        ("PDF", "1.2.11", "1.2.11.1"),
        ("SC", "1.2.10", "1.2.10.1"),
    ]
    assert is_document(new)
    assert supersede(new, earlier) == ["1.2.11.1"]
    assert named(new, "PredecessorDocumentsSequence") == {"1.2.11.1"}
    assert "PertinentOtherEvidenceSequence" not in new
    # And the report names the sheets of before as what it supersedes beside itself.
    later = report("1.2.9.1")
    assert supersede(later, earlier) == ["1.2.1.1"]
    assert named(later, "PertinentOtherEvidenceSequence") == {"1.2.11.1", "1.2.10.1"}
