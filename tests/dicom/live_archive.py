"""Against a real archive: run by test_archive.py inside tests/support/with_orthanc.sh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pydicom
import pytest
from dicom_cases import RULES, write_run
from dicom_files import IDENTIFYING, edit, uid, validate, write_seg, write_series

from cad.base.errors import CadError
from cad.dicom.archive import interface as archives
from cad.dicom.archive.client import connect, fetch_patient
from cad.dicom.archive.conversation import protocol
from cad.dicom.archive.dimse import FIND, DimseArchive
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.into.importer import import_patient, import_source
from cad.dicom.out.parametric_map import write_maps
from cad.dicom.out.results import write_sr_and_seg
from cad.dicom.out.sr_reader import read_report
from cad.folders.cohort import read_cohort
from cad.folders.run_folder import RunFolder
from cad.mri.imaging.nifti import read_volume, write_volume
from cad.mri.imaging.study_files import image_path
from cad.run.workflows.sheets import write_sheets

REST = os.environ["CAD_ORTHANC"]
AET = os.environ["CAD_ARCHIVE_AET"]
ADDRESSES = {"dimse": os.environ["CAD_ARCHIVE"], "web": os.environ["CAD_DICOMWEB"]}
SHAPE = (6, 24, 24)


def rest(path: str, method: str = "GET", body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(REST + path, data, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


def instances() -> list[str]:
    return rest("/instances")  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def empty() -> None:
    """Every test starts with an empty archive."""
    for patient in rest("/patients"):  # type: ignore[attr-defined]
        rest(f"/patients/{patient}", "DELETE")


@pytest.fixture(params=["dimse", "web"])
def address(request: pytest.FixtureRequest) -> str:
    return ADDRESSES[request.param]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def write_study(
    folder: Path, patient: str = "MRN-7", study: str = "s1", *, seg: bool = True
) -> list[Path]:
    """T2, ADC, something that nobody wants, and perhaps the ROIs."""
    rng = np.random.default_rng(0)
    array = rng.integers(1, 900, SHAPE).astype(np.uint16)
    ids = {"patient": patient, "study": study}
    paths = write_series(folder / "t2", array, number=1, **ids)
    images = list(paths)
    paths += write_series(
        folder / "adc",
        array + 300,
        number=2,
        description="adc",
        ImageType=["DERIVED", "PRIMARY", "ADC"],
        **ids,
    )
    paths += write_series(
        folder / "ct", array[:1], number=5, description="ct", Modality="CT", **ids
    )
    if seg:
        mask = np.zeros(SHAPE, bool)
        mask[2:4, 4:9, 4:9] = True
        write_seg(folder / "seg.dcm", images, {"ROI 1": mask})
        paths.append(folder / "seg.dcm")
    return paths


def spoken_here(address: str) -> archives.Protocolled:
    """The archive as the process of a conversation speaks with it, spared its start."""
    return protocol(address, AET, ArchiveLimits())


def remarks_of(address: str, files: list[Path]) -> list[str]:
    """Store objects; what was remarked on them."""
    steps = spoken_here(address).store(files)
    return [f"{step.path.name}: {step.remark}" for step in steps if step.remark]


def push(paths: list[Path]) -> None:
    for path in paths:
        request = urllib.request.Request(f"{REST}/instances", path.read_bytes(), method="POST")  # noqa: S310
        urllib.request.urlopen(request, timeout=20).read()  # noqa: S310


def test_study_with_its_seg_comes_in_whole(address, tmp_path, rules):
    push(write_study(tmp_path / "in"))
    out = tmp_path / "out"
    summary = import_patient(address, AET, "MRN-7", out, rules)
    assert summary.failures == []
    assert summary.added == ["sub-MRN7"]
    assert summary.awaiting == []
    cohort = read_cohort(out)
    assert cohort.problems == []
    assert cohort.rois["roi_id"].tolist() == ["1"]
    assert not [p for p in out.iterdir() if p.name.startswith(".") and p.name != ".bidsignore"]
    assert import_patient(address, AET, "MRN-7", out, rules).unchanged == ["sub-MRN7"]


def test_rois_that_arrive_later(address, tmp_path, rules):
    paths = write_study(tmp_path / "in")
    push(paths[:-1])
    out = tmp_path / "out"
    assert import_patient(address, AET, "MRN-7", out, rules).awaiting == ["sub-MRN7"]
    push(paths[-1:])
    summary = import_patient(address, AET, "MRN-7", out, rules)
    assert (summary.updated, summary.awaiting) == (["sub-MRN7"], [])


def test_only_the_patient_that_was_asked_for(address, tmp_path):
    push(write_study(tmp_path / "a", "MRN-7"))
    push(write_study(tmp_path / "b", "MRN-77"))
    push(write_study(tmp_path / "c", "MRN-7", "s2", seg=False))
    found = connect(address, AET).find("MRN-7")
    assert {s.study_uid for s in found} == {uid("MRN-7", "s1"), uid("MRN-7", "s2")}
    assert sorted(s.modality for s in found) == ["MR", "MR", "MR", "MR", "SEG"]
    assert sorted(s.instances for s in found) == [1, 6, 6, 6, 6]
    target = tmp_path / "fetched"
    target.mkdir()
    folders, failures = fetch_patient(spoken_here(address), "MRN-7", target)
    assert (len(folders), failures) == (2, [])
    assert len(list(target.rglob("*.dcm"))) == 25
    with pytest.raises(CadError, match="no MR study of this patient"):
        fetch_patient(spoken_here(address), "NOBODY", target)
    with pytest.raises(CadError, match="without wildcards"):
        fetch_patient(connect(address, AET), "MRN*", target)


def test_part_of_a_study_is_not_imported(address, tmp_path, rules, monkeypatch):
    """An instance vanishes between query and retrieval; the other study comes in."""
    push(write_study(tmp_path / "a", study="s1"))
    push(write_study(tmp_path / "b", study="s2"))
    kind = type(connect(address, AET))
    find = kind.find

    def find_and_lose(self: object, patient: str) -> list[archives.FoundSeries]:
        found = find(self, patient)  # type: ignore[arg-type]
        lost = uid("MRN-7", "s2", 1, "", 3)
        (name,) = rest(
            "/tools/find", "POST", {"Level": "Instance", "Query": {"SOPInstanceUID": lost}}
        )  # type: ignore[misc]
        rest(f"/instances/{name}", "DELETE")
        return found

    monkeypatch.setattr(kind, "find", find_and_lose)
    out = tmp_path / "out"
    summary = import_patient(address, AET, "MRN-7", out, rules)
    assert summary.added == ["sub-MRN7"]
    (failure,) = summary.failures
    assert "part of a study: 5 of 6 instances" in failure.problem
    assert [s.study_id for s in read_cohort(out).studies()] == ["sub-MRN7"]
    assert not list(out.glob(".fetch*"))


def test_results_go_back_to_the_patient_of_the_archive(address, tmp_path, rules):
    """Results of a pseudonymous cohort: no identity on disk, the archive's in the archive."""
    source = tmp_path / "in"
    push(write_study(source))
    rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    out = tmp_path / "out"
    assert import_patient(address, AET, "MRN-7", out, rules).failures == []
    (study,) = read_cohort(out).studies()
    run = write_run(tmp_path / "run", study.participant_id, {"1": 0.42})
    t2w = read_volume(image_path(study.folder, study.study_id, "t2w"))
    target = RunFolder(run).map_image(study.study_id)
    target.parent.mkdir()
    write_volume(target, t2w.with_array(np.full(SHAPE, 0.25, np.float32)))
    files = [f for w in (write_sr_and_seg, write_maps) for f in w(run, out, tmp_path / "dicom")[0]]
    files += write_sheets(run, out, tmp_path / "dicom", pdf=True, capture=True)[0]
    ends = [path.name.removeprefix(f"{study.study_id}_") for path in files]
    assert ends == ["SEG.dcm", "SR.dcm", "PM.dcm", "PDF.dcm", "SC_1.dcm"]
    for path in files:
        content = path.read_bytes().decode("latin-1")
        assert "MRN-7" not in content
        for value in IDENTIFYING.values():
            assert value not in content
    before = set(instances())
    assert connect(address, AET).missing(files) == files
    connect(address, AET).store(files)
    assert spoken_here(address).missing(files) == []
    assert remarks_of(address, files) == []  # the same objects: stored once
    new = set(instances()) - before
    assert len(new) == 5
    for name in new:
        tags = rest(f"/instances/{name}/simplified-tags")
        assert tags["PatientID"] == "MRN-7"  # type: ignore[index]
        assert tags["PatientName"] == IDENTIFYING["PatientName"]  # type: ignore[index]
        assert tags["StudyDate"] == "20240307"  # type: ignore[index]
        assert tags["Modality"] in ("SR", "SEG", "OT", "DOC")  # type: ignore[index]
    # The archive gives the sheet back as a document, and its picture as an image.
    sheet, picture = (pydicom.dcmread(path).SOPInstanceUID for path in files[-2:])
    assert rest_bytes(f"/instances/{named_by(sheet)}/pdf").startswith(b"%PDF-")
    assert rest_bytes(f"/instances/{named_by(picture)}/preview").startswith(b"\x89PNG")
    # Fetched again, what we sent is no annotation: the radiologist's SEG alone counts.
    assert import_patient(address, AET, "MRN-7", tmp_path / "new", rules).failures == []
    assert read_cohort(tmp_path / "new").rois["roi_id"].tolist() == ["1"]
    assert len(rest("/studies")) == 1  # type: ignore[arg-type]
    assert len(rest("/patients")) == 1  # type: ignore[arg-type]


def test_a_changed_result_names_the_ones_before_it(address, tmp_path, rules):
    """A changed report supersedes the first by reference; the same one sent again does not."""
    source = tmp_path / "in"
    push(write_study(source))
    out = tmp_path / "out"
    assert import_patient(address, AET, "MRN-7", out, rules).failures == []
    (study,) = read_cohort(out).studies()
    made = []
    for probability in (0.42, 0.77, 0.91):
        run = write_run(tmp_path / f"run {probability}", study.participant_id, {"1": probability})
        t2w = read_volume(image_path(study.folder, study.study_id, "t2w"))
        painted = t2w.with_array(np.full(t2w.shape, probability, np.float32))
        write_volume(RunFolder(run).map_image(study.study_id), painted)
        folder = tmp_path / f"dicom {probability}"
        files = write_sr_and_seg(run, out, folder)[0] + write_maps(run, out, folder)[0]
        made.append(files + write_sheets(run, out, folder, pdf=True)[0])
    segs, srs, maps, sheets = (
        [pydicom.dcmread(files[i]).SOPInstanceUID for files in made] for i in range(4)
    )
    remarks = [connect(address, AET).store(made[i]) for i in (0, 1)]
    remarks += [remarks_of(address, made[i]) for i in (1, 2, 0)]
    assert remarks[0] == remarks[2] == remarks[4] == []
    for place, uids in ((0, srs), (1, sheets)):
        name = made[0][(1, 3)[place]].name
        assert remarks[1][place] == f"{name}: supersedes {uids[0]}"
        named = remarks[3][place].removeprefix(f"{name}: supersedes ").split(", ")
        assert set(named) == set(uids[:2])
    for number, (sr, seg) in enumerate(zip(srs, segs, strict=True)):
        stored = pydicom.dcmread(fetched(sr, tmp_path))
        assert references(stored, "PredecessorDocumentsSequence") == set(srs[:number])
        others = {*segs[:number], *maps[:number], *sheets[:number]}
        assert references(stored, "PertinentOtherEvidenceSequence") == others
        assert seg in references(stored, "CurrentRequestedProcedureEvidenceSequence")
        if shutil.which("dciodvfy"):
            command = ["dciodvfy", "-new", fetched(sr, tmp_path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert "Error" not in done.stdout + done.stderr
        assert read_report(fetched(sr, tmp_path)).rois[0].roi_id == "1"
    for number, sheet in enumerate(sheets):
        stored = pydicom.dcmread(fetched(sheet, tmp_path))
        assert references(stored, "PredecessorDocumentsSequence") == set(sheets[:number])
        if shutil.which("dciodvfy"):
            validate(fetched(sheet, tmp_path))


def test_no_other_thread_takes_an_answer():
    """The library's own thread looks for messages every millisecond, and lost some of ours."""
    host, port = ADDRESSES["dimse"].rsplit(":", 1)
    archive = DimseArchive(host, int(port), AET, ArchiveLimits())
    with archive.open([FIND]) as association:
        for number in range(5):
            association.dimse.msg_queue.put((number, "an answer"))
            time.sleep(0.02)
            assert association.dimse.get_msg(block=True) == (number, "an answer")


def fetched(sop_uid: str, into: Path) -> Path:
    """The archive's own copy of an object."""
    path = into / f"{sop_uid}.dcm"
    path.write_bytes(rest_bytes(f"/instances/{named_by(sop_uid)}/file"))
    return path


def named_by(sop_uid: str) -> str:
    """The archive's own name of an object."""
    query = {"Level": "Instance", "Query": {"SOPInstanceUID": str(sop_uid)}}
    (name,) = rest("/tools/find", "POST", query)  # type: ignore[misc]
    return str(name)


def rest_bytes(path: str) -> bytes:
    with urllib.request.urlopen(REST + path, timeout=20) as answer:  # noqa: S310
        return answer.read()  # type: ignore[no-any-return]


def references(dataset: pydicom.Dataset, keyword: str) -> set[str]:
    return {
        instance.ReferencedSOPInstanceUID
        for study in dataset.get(keyword, [])
        for series in study.ReferencedSeriesSequence
        for instance in series.ReferencedSOPSequence
    }


def test_a_study_the_archive_does_not_know_keeps_its_pseudonym(address, tmp_path, rules):
    source = tmp_path / "in"
    write_study(source)
    out = tmp_path / "out"
    assert import_source(source, out, rules).failures == []
    (study,) = read_cohort(out).studies()
    files = write_sr_and_seg(
        write_run(tmp_path / "run", study.participant_id, {"1": 0.9}), out, tmp_path / "dicom"
    )[0]
    connect(address, AET).store(files)
    (patient,) = rest("/patients")  # type: ignore[misc]
    assert rest(f"/patients/{patient}")["MainDicomTags"]["PatientID"] == "MRN-7"  # type: ignore[index]


@pytest.mark.skipif(os.environ.get("CAD_ORTHANC_STRICT") != "true", reason="needs a strict archive")
def test_an_archive_that_refuses_the_association():
    for _ in range(3):  # a busy machine's archive may drop the connection instead of refusing
        with pytest.raises(CadError, match=r"archive WRONG at ") as caught:
            connect(ADDRESSES["dimse"], "WRONG").find("MRN-7")
        if "refuses the association" in str(caught.value):
            break
    assert "refuses the association" in str(caught.value)
    assert "check the title 'WRONG'" in caught.value.hint


def test_web_errors_are_named(tmp_path):
    with pytest.raises(CadError, match="HTTP 404"):
        connect(f"{REST}/nothing", AET).find("x")


def test_hostile_text_in_headers(address, tmp_path, rules):
    """Script in free text and path characters in ids do no harm.

    This archive's DICOMweb plugin does not decode a slash in a query, so ids with one are found by
    DICOM networking only.
    """
    patient = "../x" if address == ADDRESSES["dimse"] else "..x"
    paths = write_study(tmp_path / "in", patient)
    for path in paths[:-1]:
        edit(path, StudyDescription="<script>alert(1)</script>", PatientName="A^<b>")
    push(paths)
    out = tmp_path / "out"
    summary = import_patient(address, AET, patient, out, rules)
    assert summary.added == ["sub-x"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out", "rules.yaml"]
    for path in out.rglob("*"):
        if path.suffix in (".json", ".tsv"):
            assert "<" not in path.read_text()
    assert pd.read_csv(out / "participants.tsv", sep="\t")["participant_id"].tolist() == ["sub-x"]
    assert pydicom.dcmread(paths[0]).PatientID == patient


@pytest.mark.skipif(not os.environ.get("CAD_REAL_STUDY"), reason="needs the reference data")
def test_the_real_study_in_time(tmp_path, repository, capsys):
    """1,540 files by both protocols: fetched and imported within the limit of a local import."""
    push(sorted(Path(os.environ["CAD_REAL_STUDY"]).rglob("*.dcm")))
    times = {}
    for name, address in ADDRESSES.items():
        start = time.perf_counter()
        target = tmp_path / name
        target.mkdir()
        folders, failures = fetch_patient(connect(address, AET), "ProstateX-0218", target)
        times[name] = time.perf_counter() - start
        assert (len(folders), failures) == (1, [])
        files = list(target.rglob("*.dcm"))
        assert len(files) == 1540
    with capsys.disabled():
        print(
            f"\nfetch of 1,540 files: {times['dimse']:.1f} s C-GET, {times['web']:.1f} s DICOMweb"
        )
    start = time.perf_counter()
    summary = import_source(
        tmp_path / "dimse", tmp_path / "out", repository / "configs/import/prostatex.yaml"
    )
    assert summary.awaiting == ["sub-ProstateX0218"]
    with capsys.disabled():
        print(f"import: {time.perf_counter() - start:.1f} s")
    assert max(times.values()) < 60
