"""A secret in every free text of a study: none of them comes out, whatever becomes of the study."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_cases import write_run
from dicom_files import edit, write_seg, write_structures
from import_cases import RULES, regions, write_patient
from PIL import Image, PngImagePlugin
from secret_scan import hits

from cad.base.transactions import is_ours
from cad.dicom.into.importer import ImportSummary, import_source
from cad.dicom.out.results import write_sr_and_seg
from cad.folders.cohort import read_cohort
from cad.mri.imaging.makers import maker
from cad.run.pipeline import check
from cad.run.workflows.check import check_text

PATIENT = "19470503"  # a birth date as the patient's number, and as a region's name
SKIPPED = {
    "PatientID",
    "SOPClassUID",
    "Modality",
    "ImageType",
    "PhotometricInterpretation",
    "SpecificCharacterSet",
    "PatientSex",
    "SegmentationType",
    "SegmentAlgorithmType",
    "SegmentLabel",
    "LossyImageCompression",
    "BurnedInAnnotation",
    "ROIName",
    "CodeValue",
    "CodingSchemeDesignator",
    "DimensionOrganizationType",
    "ContourGeometricType",
    "MRAcquisitionType",
    "ContentQualification",
    "PatientPosition",
}
EXTRA = (
    "PatientComments",
    "ImageComments",
    "ProtocolName",
    "OperatorsName",
    "StationName",
    "InstitutionalDepartmentName",
    "PerformedProcedureStepDescription",
    "RequestingPhysician",
    "PatientBirthName",
    "AdditionalPatientHistory",
    "MedicalRecordLocator",
    "DeviceSerialNumber",
    "StudyComments",
    "InstitutionName",
    "PatientName",
    "AccessionNumber",
    "StudyID",
)
RULES_PSEUDONYM = RULES.replace("labels: id", "labels: pseudonym")


class Planter:
    """Put a new secret into every text, and remember it."""

    def __init__(self) -> None:
        self.secrets: list[str] = [PATIENT]

    def new(self) -> str:
        self.secrets.append(f"Zq{len(self.secrets):05d}x")
        return self.secrets[-1]

    def fill(self, dataset: pydicom.Dataset) -> None:
        """Give every text element of a dataset, and of its sequences, a secret."""
        for element in dataset:
            if element.VR == "SQ":
                for item in element.value:
                    self.fill(item)
            elif element.keyword not in SKIPPED and element.VR in (
                "LO",
                "SH",
                "PN",
                "LT",
                "ST",
                "UT",
                "UC",
            ):
                if element.VR in ("SH", "PN"):
                    element.value = self.new() + ("^" if element.VR == "PN" else "")
                else:  # what rules look for stays in front
                    element.value = f"{element.value} {self.new()}"[-64:].strip()

    def file(self, path: Path) -> Path:
        """Fill a file, add what it had not, a private element and a name of its own."""
        dataset = pydicom.dcmread(path)
        for keyword in EXTRA:
            setattr(dataset, keyword, "")
        block = dataset.private_block(0x0099, "HIDDEN", create=True)
        block.add_new(0x01, "LO", self.new())
        dataset.PatientID = PATIENT
        self.fill(dataset)
        dataset.save_as(path)
        return path.rename(path.with_name(f"{self.new()} {path.name}"))


def plant(folder: Path, planter: Planter, kind: str) -> Path:
    """A study with a secret everywhere: headers, folder and file names, regions, readers."""
    home = folder / planter.new() / planter.new()
    write_patient(home, patient=PATIENT)
    images = [planter.file(path) for path in sorted(home.rglob("*.dcm"))]
    t2 = sorted(p for p in images if p.parent.name == "t2")
    names = [f"ROI {planter.new()}", f"ROI {PATIENT}", "ROI 7"]
    masks = {n: regions(*([0] * i), 1).array > 0 for i, n in enumerate(names[:2])}
    path = home / "drawn.dcm"
    if kind == "seg":
        write_seg(path, t2, masks)
    else:
        square = [np.array([[5, 5, 3], [9, 5, 3], [9, 9, 3], [5, 9, 3]], float)]
        write_structures(path, t2[0], {names[0]: square, names[1]: [square[0] + [6, 6, 0]]})
        edit(path, StructureSetLabel="", StructureSetName="", ReviewerName="")
    drawn = planter.file(path)
    edit(drawn, ContentCreatorName=planter.new())
    reader = planter.new()
    row = f"{PATIENT},1,Dr {reader},likert5,3\n"
    (home / "scores.csv").write_text("patient_id,roi_id,reader_id,scale,score\n" + row)
    return folder


@pytest.mark.parametrize("kind", ["seg", "rtstruct"])
def test_nothing_of_a_study_names_anybody(tmp_path: Path, kind: str):
    """Import (folder, then zip), check, SR and SEG, and everything that was said."""
    planter = Planter()
    source = plant(tmp_path / "in", planter, kind)
    rules, out = tmp_path / "rules.yaml", tmp_path / "out"
    rules.write_text(RULES_PSEUDONYM)
    packed = tmp_path / "packed"
    packed.mkdir()
    shutil.make_archive(str(packed / planter.new()), "zip", source)
    done = [import_source(source, out, rules), import_source(packed, out, rules)]
    assert [len(s.failures) for s in done] == [0, 0], [str(f) for s in done for f in s.failures]
    assert len(done[0].added) == len(done[1].unchanged) == 1
    (study,) = read_cohort(out).studies()
    assert sorted(study.rois["roi_id"]) == ["1", "2"]
    problems, notes = check(out)
    assert problems == []
    run = write_run(tmp_path / "run", study.participant_id, {"1": 0.4, "2": 0.9})
    made = write_sr_and_seg(run, out, tmp_path / "dicom")
    assert len(made[0]) == 2
    assert all(pydicom.dcmread(p).PatientIdentityRemoved == "YES" for p in made[0])
    said = [text for s in done for text in (s.as_text(), str(s.as_dict()))]
    said.append(check_text(out, problems, notes))
    assert len(planter.secrets) > 1000
    assert hits([out, run, tmp_path / "dicom"], planter.secrets, said) == []


def test_of_the_scanner_only_a_known_maker_is_kept():
    """Our own word for it: neither a header's nor a sidecar's text travels."""
    said = ("SIEMENS Zq1x", " Philips Medical Systems", "GE MEDICAL SYSTEMS", "Zq1x Siemens", None)
    assert [maker(text) for text in said] == ["Siemens", "Philips", "GE", "", ""]


def test_a_failing_study_leaves_nothing_behind(tmp_path: Path):
    """Its message names the source's file to the operator; the cohort knows nothing of it."""
    planter = Planter()
    source = plant(tmp_path / "in", planter, "rtstruct")
    (home,) = source.glob("*/*")
    drawn = next(home.glob("*drawn.dcm"))
    dataset = pydicom.dcmread(drawn)
    dataset.StructureSetROISequence[0].ReferencedFrameOfReferenceUID = "1.2.3"
    dataset.save_as(drawn)
    rules, out = tmp_path / "rules.yaml", tmp_path / "out"
    rules.write_text(RULES_PSEUDONYM)
    summary = import_source(source, out, rules)
    assert len(summary.failures) == 1
    assert "another frame of reference" in summary.failures[0].problem
    assert summary.failures[0].roi == ""
    assert hits([out], planter.secrets, [summary.failures[0].problem]) == []


def test_readers_names_become_neutral_unless_declared(tmp_path: Path):
    planter = Planter()
    source = plant(tmp_path / "in", planter, "seg")
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES_PSEUDONYM + "readers: [Dr Known]\n")
    (home,) = source.glob("*/*")
    rows = "".join(f"{PATIENT},1,{who},likert5,3\n" for who in ("r2", "Dr Known", "Anna Other"))
    (home / "scores.csv").write_text("patient_id,roi_id,reader_id,scale,score\n" + rows)
    import_source(source, tmp_path / "out", rules)
    readers = list(read_cohort(tmp_path / "out").readers["reader_id"])
    assert {"r2", "Dr Known"} < set(readers)
    (other,) = set(readers) - {"r2", "Dr Known"}
    assert other[0] == "r"
    assert len(other) == 11
    again: ImportSummary = import_source(source, tmp_path / "out", rules)
    assert again.unchanged
    assert list(read_cohort(tmp_path / "out").readers["reader_id"]) == readers


def test_the_scan_sees_what_it_must(tmp_path: Path):
    """Teeth: a secret in every kind of file, found in each."""
    info = PngImagePlugin.PngInfo()
    info.add_itxt("Comment", "secret", zip=True)
    Image.new("L", (2, 2)).save(tmp_path / "a.png", pnginfo=info)
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(b"..secret.."))
    np.savez_compressed(tmp_path / "c.npz", name=np.array("secret"))
    with zipfile.ZipFile(tmp_path / "d.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("inner.gz", gzip.compress("secret".encode("utf-16-le")))
    (tmp_path / "secret.txt").write_text("")
    assert len(hits([tmp_path], ["secret"], ["a secret"])) == 6


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[tuple[Path, Planter]]:
    """A cohort folder whose import was killed when it had begun to unpack."""
    planter = Planter()
    source = plant(tmp_path / "in", planter, "seg")
    packed = tmp_path / "packed"
    packed.mkdir()
    shutil.make_archive(str(packed / planter.new()), "zip", source)
    rules, out = tmp_path / "rules.yaml", tmp_path / "out"
    rules.write_text(RULES_PSEUDONYM)
    command = [sys.executable, "-m", "cad.cli", "import", packed, out, "--rules", rules]
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not list(out.rglob("*.dcm")) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    yield out, planter
    again = import_source(packed, out, rules)
    assert again.failures == []
    assert not any(is_ours(p.name) for p in out.iterdir())


def test_what_a_killed_import_left_is_hidden_and_unreadable_to_others(
    killed: tuple[Path, Planter],
):
    """Unpacked DICOM lies in a folder of the owner alone; the cohort itself names nobody."""
    out, planter = killed
    left = [p for p in out.iterdir() if is_ours(p.name) and p.is_dir()]
    assert left
    assert all(p.stat().st_mode & 0o077 == 0 for p in left)
    for path in left:
        shutil.rmtree(path)
    assert hits([out], planter.secrets) == []
