"""The right patient, always: what is asked for, what comes, what is kept, what is sent."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydicom
import pytest
from dicom_files import edit, save, uid, write_seg, write_series
from import_cases import RULES, adc_values, only_failure, regions, voxels, write_patient
from pydicom.dataset import Dataset
from pydicom.uid import MRImageStorage
from pynetdicom import AE, evt

from cad.base.errors import CadError
from cad.dicom.archive.client import connect, fetch_patient
from cad.dicom.archive.dimse import FIND, GET
from cad.dicom.archive.interface import FoundSeries, check_received, file_under
from cad.dicom.archive.web import check_stow_answer
from cad.dicom.into.importer import import_patient, import_source
from cad.folders.cohort.patients import KeyProof, Patients, patient_proof

# --- folders -------------------------------------------------------------------------------------


def test_one_slice_of_another_patient(tmp_path: Path, rules: Path):
    source = write_patient(tmp_path / "in")
    path = sorted((source / "t2").iterdir())[2]
    edit(path, PatientID="P-002")
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "2 patients in one study: P-001 (42 images), P-002 (1 images)" in error.problem
    assert error.file == str(path)
    assert not list((tmp_path / "out").glob("sub-*"))


def test_a_seg_of_another_patient(tmp_path: Path, rules: Path):
    source = write_patient(tmp_path / "in")
    write_seg(source / "seg.dcm", sorted((source / "t2").iterdir()), {"ROI 1": regions(1).array})
    edit(source / "seg.dcm", PatientID="P-002")
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "2 patients in one study" in error.problem
    assert error.file == str(source / "seg.dcm")


# --- archives ------------------------------------------------------------------------------------


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """An archive in this process; what it sends in answer to a retrieval can be changed."""
    files = write_series(tmp_path / "a", voxels(), patient="P-001")
    files += write_series(
        tmp_path / "a/adc",
        adc_values(),
        patient="P-001",
        number=2,
        description="adc",
        ImageType=["DERIVED", "PRIMARY", "ADC"],
    )
    lies: dict[str, Any] = {"change": {}}

    def find(event: evt.Event) -> Iterator[tuple[int, Dataset | None]]:
        query = event.identifier
        answer = Dataset()
        answer.QueryRetrieveLevel = query.QueryRetrieveLevel
        answer.StudyInstanceUID = uid("P-001", "study1")
        if query.QueryRetrieveLevel == "STUDY":
            yield 0xFF00, answer  # no PatientID: as some archives answer
            return
        for number in (1, 2):
            answer.SeriesInstanceUID = uid("P-001", "study1", number)
            answer.Modality, answer.NumberOfSeriesRelatedInstances = "MR", 6
            yield 0xFF00, answer

    def get(event: evt.Event) -> Iterator[Any]:
        wanted = [pydicom.dcmread(p) for p in files]
        wanted = [d for d in wanted if d.SeriesInstanceUID == event.identifier.SeriesInstanceUID]
        yield len(wanted)
        for dataset in wanted:
            for name, value in lies["change"].items():
                setattr(dataset, name, value)
            yield 0xFF00, dataset

    entity = AE()
    entity.add_supported_context(FIND)
    entity.add_supported_context(GET)
    entity.add_supported_context(MRImageStorage, scu_role=True, scp_role=True)
    lies["entity"] = entity
    handlers = [
        (evt.EVT_C_FIND, find),
        (evt.EVT_C_GET, get),
        (evt.EVT_REJECTED, lambda event: lies.get("rejected", str)()),
    ]
    server = entity.start_server(("127.0.0.1", 0), block=False, evt_handlers=handlers)
    yield f"127.0.0.1:{server.socket.getsockname()[1]}", lies
    server.shutdown()


def test_an_archive_that_answers_with_another_patients_study(
    liar: tuple[str, dict[str, Any]], tmp_path: Path, rules: Path
):
    address, lies = liar
    for change, word in (
        ({"PatientID": "P-002"}, "another PatientID: asked for 'P-001', received 'P-002'"),
        ({"StudyInstanceUID": "1.2.3"}, "another StudyInstanceUID"),
        ({"SeriesInstanceUID": "1.2.3"}, "another SeriesInstanceUID"),
    ):
        lies["change"] = change
        summary = import_patient(address, "ANY", "P-001", tmp_path / "out", rules)
        assert word in only_failure(summary).problem
        assert not list((tmp_path / "out").glob("sub-*"))
    lies["change"] = {}
    summary = import_patient(address, "ANY", "P-001", tmp_path / "out", rules)
    assert (summary.added, summary.failures) == (["sub-P001"], [])


def test_an_archive_without_a_free_association_is_asked_again(
    liar: tuple[str, dict[str, Any]], tmp_path: Path, rules: Path
):
    address, lies = liar
    lies["entity"].maximum_associations = 1
    host, port = address.split(":")
    other = AE()
    other.add_requested_context(FIND)
    held = other.associate(host, int(port))
    refused = threading.Event()
    lies["rejected"] = refused.set
    threading.Thread(target=lambda: (refused.wait(60), held.release()), daemon=True).start()
    summary = import_patient(address, "ANY", "P-001", tmp_path / "out", rules)
    assert refused.is_set()
    assert (summary.added, summary.failures) == (["sub-P001"], [])


def test_studies_of_another_patient_are_not_even_fetched(tmp_path: Path):
    class Wrong:
        def find(self, patient_id: str) -> list[FoundSeries]:
            return [FoundSeries("P-002", "1.2", "1.2.3", "MR", 1)]

    with pytest.raises(CadError, match="studies of another patient: 'P-002'"):
        fetch_patient(Wrong(), "P-001", tmp_path)  # type: ignore[arg-type]


def test_padding_of_an_id_is_no_difference():
    dataset = Dataset()
    dataset.PatientID, dataset.StudyInstanceUID, dataset.SeriesInstanceUID = "P1 ", "1.2", "1.2.3"
    check_received(dataset, FoundSeries("P1", "1.2", "1.2.3", "MR", 1))


# --- sending -------------------------------------------------------------------------------------


def result(patient: str, removed: bool) -> Dataset:
    dataset = Dataset()
    dataset.StudyInstanceUID, dataset.PatientID = "1.2", patient
    if removed:
        dataset.PatientIdentityRemoved = "YES"
    return dataset


def answer(patient: str) -> Dataset:
    dataset = Dataset()
    dataset.StudyInstanceUID, dataset.PatientID = "1.2", patient
    return dataset


def test_results_are_filed_only_under_their_own_patient(tmp_path: Path):
    (tmp_path / "sourcedata").mkdir()
    label = Patients(tmp_path, "pseudonym", set()).participant("MRN-7")
    proof = patient_proof(tmp_path)
    assert proof is not None
    dataset = result(label, removed=True)
    file_under(dataset, [answer("MRN-7")], proof)
    assert (dataset.PatientID, "PatientIdentityRemoved" in dataset) == ("MRN-7", False)
    with pytest.raises(CadError, match=r"assigns the study 1\.2 to a patient who is not"):
        file_under(result(label, removed=True), [answer("MRN-8")], proof)
    with pytest.raises(CadError, match="who is not 'MRN-7'"):
        file_under(result("MRN-7", removed=False), [answer("MRN-8")])
    with pytest.raises(CadError, match=r"has the study 1\.2 2 times"):
        file_under(result("MRN-7", removed=False), [answer("MRN-7"), answer("MRN-8")])
    unknown = result(label, removed=True)
    file_under(unknown, [], proof)
    assert unknown.PatientID == label
    assert patient_proof(tmp_path / "nowhere") is None


def test_a_key_proves_a_patient_by_label_or_pseudonym_and_nobody_without_an_id():
    proof = KeyProof(b"secret")
    label = f"sub-P{hmac.new(b'secret', b'MRN-7', hashlib.sha256).hexdigest()[:10]}"
    assert proof(label, "MRN-7")
    assert not proof(label, "MRN-8")
    assert proof("sub-01", " sub-01 ")  # a cohort without pseudonyms files under its own labels
    of_nothing = f"sub-P{hmac.new(b'secret', b'', hashlib.sha256).hexdigest()[:10]}"
    assert not proof(of_nothing, "")
    of_blank = f"sub-P{hmac.new(b'secret', b' ', hashlib.sha256).hexdigest()[:10]}"
    assert not proof(of_blank, " ")


def test_only_what_the_archive_lists_is_stored():
    stored, failed = Dataset(), Dataset()
    stored.ReferencedSOPInstanceUID = "1.2.3"
    failed.ReferencedSOPInstanceUID, failed.FailureReason = "1.2.4", 0xA700
    reply = Dataset()
    reply.ReferencedSOPSequence, reply.FailedSOPSequence = [stored], [failed]
    check_stow_answer(reply, "1.2.3", "http://x", Path("a.dcm"))
    with pytest.raises(CadError, match=r"does not list the object as stored \(failure reason 0xa7"):
        check_stow_answer(reply, "1.2.4", "http://x", Path("b.dcm"))
    with pytest.raises(CadError, match="does not list"):
        check_stow_answer(Dataset(), "1.2.3", "http://x", Path("a.dcm"))


def test_a_partial_failure_says_what_was_sent(tmp_path: Path):
    """The archive takes MR images only: the second object is refused."""
    paths = write_series(tmp_path, voxels((1, 4, 4)))
    other = pydicom.dcmread(paths[0])
    other.SOPClassUID, other.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.66.4", "1.2.3"
    save(other, tmp_path / "other.dcm")
    entity = AE()
    entity.add_supported_context(MRImageStorage)
    entity.add_supported_context(FIND)
    stored = Dataset()

    def find(event: evt.Event) -> Iterator[Any]:
        if event.identifier.QueryRetrieveLevel == "IMAGE":
            stored.SOPInstanceUID = event.identifier.SOPInstanceUID
            yield 0xFF00, stored

    honest = [(evt.EVT_C_STORE, lambda event: 0x0000), (evt.EVT_C_FIND, find)]
    server = entity.start_server(("127.0.0.1", 0), block=False, evt_handlers=honest)
    try:
        address = f"127.0.0.1:{server.socket.getsockname()[1]}"
        with pytest.raises(CadError) as caught:
            connect(address, "ANY").store([paths[0], tmp_path / "other.dcm"])
    finally:
        server.shutdown()
    assert caught.value.problem.endswith(
        f"; stored: {paths[0].name}; sent, but not proved to be stored: other.dcm; not sent: none"
    )


# --- names are free text -------------------------------------------------------------------------


def test_region_names_become_numbers_under_a_pseudonym(tmp_path: Path, rules: Path):
    source = write_patient(tmp_path / "in")
    masks = {
        f"ROI {n}": regions(*([0] * i), 1).array > 0 for i, n in enumerate(("Gravenstein", "PZ"))
    }
    write_seg(source / "seg.dcm", sorted((source / "t2").iterdir()), masks)
    text = RULES.replace("labels: id", "labels: pseudonym")
    rules.write_text(text + "roi_ids: [PZ]\n")
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.failures == []
    rows = (tmp_path / "out/rois.tsv").read_text()
    assert "Gravenstein" not in rows
    assert [line.split("\t")[1] for line in rows.splitlines()[1:]] == ["1", "PZ"]
    assert any("1 ROI names replaced by numbers" in note for note in summary.notes)


def test_segments_of_one_name_are_told_apart_by_number(tmp_path: Path, rules: Path):
    source = write_patient(tmp_path / "in")
    masks = {"ROI a": regions(1).array > 0, "ROI b": regions(0, 1).array > 0}
    write_seg(source / "seg.dcm", sorted((source / "t2").iterdir()), masks)
    dataset = pydicom.dcmread(source / "seg.dcm")
    for segment in dataset.SegmentSequence:
        segment.SegmentLabel = "ROI lesion"
    dataset.save_as(source / "seg.dcm")
    assert import_source(source, tmp_path / "out", rules).failures == []
    rows = (tmp_path / "out/rois.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[1] for line in rows] == ["lesion_1", "lesion_2"]
