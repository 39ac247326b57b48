"""The sheet for the tumour board in the archive: valid, of the right man, the same twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_cases import RULES, write_run
from dicom_files import IDENTIFYING, edit, needs, validate, write_series
from pydicom.uid import EncapsulatedPDFStorage, SecondaryCaptureImageStorage

from cad.base.errors import CadError
from cad.dicom.into.importer import import_source
from cad.folders.cohort import StudyRef, read_cohort
from cad.mri.imaging.nifti import write_volume
from cad.mri.imaging.volume import Volume
from cad.run.reports.paper import PAGE_HEIGHT, PAGE_WIDTH
from cad.run.reports.wording import catalogue
from cad.run.workflows.delivery import deliver
from cad.run.workflows.sheets import PSEUDONYM, write_sheets

SHAPE = (5, 30, 26)
PROBABILITIES = {"1": 0.7312345678901234, "2": 0.05}


def imported(folder: Path, labels: str = "pseudonym") -> Path:
    """One study with two regions."""
    array = np.random.default_rng(0).integers(1, 900, SHAPE).astype(np.uint16)
    write_series(folder / "in/t2", array, patient="MRN-7")
    regions = np.zeros(SHAPE, np.uint8)
    regions[1, 5:11, 3:8] = 1
    regions[2, 15:20, 13:18] = 2
    write_volume(folder / "in/rois.nii.gz", Volume(regions, (1.0, 1.0, 3.0), (0, 0, 0), np.eye(3)))
    (folder / "rules.yaml").write_text(RULES.replace("labels: id", f"labels: {labels}"))
    assert import_source(folder / "in", folder / "cohort", folder / "rules.yaml").failures == []
    return folder / "cohort"


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    return imported(tmp_path)


@pytest.fixture
def study(cohort: Path) -> StudyRef:
    return read_cohort(cohort).studies()[0]


@pytest.fixture
def run(tmp_path: Path, study: StudyRef) -> Path:
    return write_run(tmp_path / "run", study.participant_id, PROBABILITIES)


def words_of(path: Path) -> str:
    """The text of an encapsulated document, as a reader's program finds it."""
    needs("pdftotext")
    dataset = pydicom.dcmread(path)
    document = dataset.EncapsulatedDocument[: dataset.EncapsulatedDocumentLength]
    command = ["pdftotext", "-raw", "-", "-"]
    done = subprocess.run(command, input=document, check=True, capture_output=True)
    return " ".join(done.stdout.decode().split())


def test_pdf_and_capture_are_valid_and_belong_to_the_study(run, cohort, study, tmp_path):
    files, failures = write_sheets(run, cohort, tmp_path / "dicom", pdf=True, capture=True)
    assert failures == []
    name = study.study_id
    assert [path.name for path in files] == [f"{name}_PDF.dcm", f"{name}_SC_1.dcm"]
    document, picture = map(pydicom.dcmread, files)
    source = pydicom.dcmread(tmp_path / "in/t2/1-001.dcm")
    assert document.SOPClassUID == EncapsulatedPDFStorage
    assert picture.SOPClassUID == SecondaryCaptureImageStorage
    for made in (document, picture):
        assert made.StudyInstanceUID == source.StudyInstanceUID
        assert made.PatientID == study.participant_id
        assert made.PatientIdentityRemoved == "YES"
        assert made.BurnedInAnnotation == "YES"
        assert made.Manufacturer == made.ManufacturerModelName == "cad"
        assert made.ConversionType == "WSD"
        assert made.InstanceNumber == 1
        assert made.SeriesInstanceUID != source.SeriesInstanceUID
    assert (document.Modality, document.SeriesNumber) == ("DOC", 9104)
    assert (picture.Modality, picture.SeriesNumber) == ("OT", 9105)
    assert document.EncapsulatedDocument.startswith(b"%PDF-")
    assert source.SOPInstanceUID in {
        one.ReferencedSOPInstanceUID for one in document.SourceInstanceSequence
    }
    pixels = picture.pixel_array
    assert pixels.shape == (1753, 1240, 3)
    assert pixels.shape[0] / pixels.shape[1] == pytest.approx(PAGE_HEIGHT / PAGE_WIDTH, rel=1e-3)
    ink = (pixels < 128).any(axis=2)
    assert 0.005 < ink.mean() < 0.5
    needs("dciodvfy")
    for path in files:
        validate(path)


def test_the_sheet_says_what_the_run_says(run, cohort, study, tmp_path):
    (path,), failures = write_sheets(run, cohort, tmp_path / "dicom", pdf=True)
    assert failures == []
    text = words_of(path)
    assert study.participant_id in text
    assert "Region 1" in text
    # By hand: .731 and .05 in per cent, the roots of both, .375 of the man.
    assert "73% probability of cancer of ISUP 2 or more (36 to 87% of many regions" in text
    assert "The tool's estimate of what readers would say: 86% malignant." in text
    # The second is benign: no pictures, one row of the table of all regions.
    assert "2 peripheral zone – 5% 22% ○ Benign –" in text
    assert "Research use only." in text
    assert "run psvm · cad 0.1.0" in text
    assert PSEUDONYM in text
    for value in ("MRN-7", *IDENTIFYING.values()):
        assert value not in text


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ("73% Wahrscheinlichkeit für ein Karzinom ab ISUP 2 (36 bis 87%", "■ Maligne")),
        ("fr", ("Probabilité de 73% pour un cancer ISUP 2 ou plus (36 à 87%", "■ Maligne")),
    ],
)
def test_the_sheet_speaks_other_languages(language, sentences, run, cohort, tmp_path):
    (path,), failures = write_sheets(run, cohort, tmp_path / "d", pdf=True, language=language)
    assert failures == []
    text = words_of(path)
    for sentence in (*sentences, catalogue()[PSEUDONYM][language]):
        assert sentence in text
    with pytest.raises(CadError, match="no language 'it'"):
        write_sheets(run, cohort, tmp_path / "d", pdf=True, language="it")


def test_the_same_result_is_the_same_object_and_another_is_another(run, cohort, study, tmp_path):
    def written(name: str) -> tuple[bytes, list[str]]:
        files = write_sheets(run, cohort, tmp_path / name, pdf=True, capture=True)[0]
        made = [pydicom.dcmread(path) for path in files]
        return made[0].EncapsulatedDocument, [str(one.SOPInstanceUID) for one in made]

    first, second = written("a"), written("b")
    assert first == second
    assert len(set(first[1])) == 2
    shutil.rmtree(run)
    write_run(run, study.participant_id, {"1": 0.74, "2": 0.05})
    assert not set(written("c")[1]) & set(first[1])
    # A process that hashes in another order writes the same bytes.
    shutil.rmtree(run)
    write_run(run, study.participant_id, PROBABILITIES)
    code = (
        "import sys; from pathlib import Path; from cad.run.workflows.sheets import write_sheets;"
        "write_sheets(*map(Path, sys.argv[1:]), pdf=True)"
    )
    arguments = [str(run), str(cohort), str(tmp_path / "d")]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=environment)
    made = pydicom.dcmread(tmp_path / "d" / f"{study.study_id}_PDF.dcm")
    assert (made.EncapsulatedDocument, str(made.SOPInstanceUID)) == (first[0], first[1][0])


def test_the_sources_own_number_is_no_pseudonym(tmp_path):
    cohort = imported(tmp_path, labels="id")
    (study,) = read_cohort(cohort).studies()
    run = write_run(tmp_path / "run", study.participant_id, PROBABILITIES)
    (path,), failures = write_sheets(run, cohort, tmp_path / "dicom", pdf=True)
    assert failures == []
    assert pydicom.dcmread(path).PatientID == "MRN-7"
    assert PSEUDONYM not in words_of(path)


def test_nothing_is_written_of_a_man_who_is_held_back(run, cohort, study):
    record = json.loads((run / "run.json").read_text())
    record["settings"] = {"decision": {"blinded": True}}
    (run / "run.json").write_text(json.dumps(record))
    lines, failures = deliver(run, cohort, None, "", pdf=True, capture=True)
    assert failures == []
    assert not list((run / "dicom").glob("*.dcm"))
    assert f"held back until a reader has scored them: {study.participant_id}" in lines


def test_fewer_sheets_leave_no_sheet_of_before(run, cohort, study):
    stale = run / "dicom" / f"{study.study_id}_SC_2.dcm"
    stale.parent.mkdir()
    stale.write_bytes(b"of another result")
    deliver(run, cohort, None, "", capture=True)
    names = {path.name.removeprefix(f"{study.study_id}_") for path in stale.parent.glob("*.dcm")}
    assert names == {"SEG.dcm", "SR.dcm", "SC_1.dcm"}


def test_a_sheet_in_a_folder_of_images_is_no_image(run, cohort, tmp_path):
    files, _ = write_sheets(run, cohort, tmp_path / "in" / "results", pdf=True, capture=True)
    for path in files:  # as an archive files them
        edit(path, PatientID="MRN-7")
    again = import_source(tmp_path / "in", tmp_path / "again", tmp_path / "rules.yaml")
    assert again.failures == []
    assert len(again.added) == 1


def test_a_study_that_is_not_in_the_cohort_is_a_failure(run, cohort, study, tmp_path):
    shutil.rmtree(study.folder)
    files, failures = write_sheets(run, cohort, tmp_path / "dicom", pdf=True)
    assert files == []
    assert [error.patient for error in failures] == [study.participant_id]


def test_a_run_of_a_table_has_no_sheet(run, cohort, tmp_path):
    record = json.loads((run / "run.json").read_text())
    record["settings"] = {"features": {"modalities": []}}
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(CadError, match="without images there is no sheet"):
        write_sheets(run, cohort, tmp_path / "dicom", pdf=True)
