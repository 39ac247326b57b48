"""SR and SEG: valid to dciodvfy, TID 1500 to our own reader, rendered by dsr2html, exact."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import highdicom
import numpy as np
import pandas as pd
import pydicom
import pytest
from dicom_cases import RULES, write_run
from dicom_files import IDENTIFYING, edit, needs, uid, validate, write_series

from cad.base.errors import CadError
from cad.dicom.into.importer import import_source
from cad.dicom.out.results import write_sr_and_seg
from cad.dicom.out.sr_reader import read_report
from cad.folders.cohort import read_cohort
from cad.mri.imaging.annotations import read_drawn_regions
from cad.mri.imaging.frames import read_dataset
from cad.mri.imaging.nifti import read_volume, sidecar_path, write_volume
from cad.mri.imaging.study_files import image_path
from cad.mri.imaging.volume import Volume

SHAPE = (7, 30, 26)
SPACING = (0.8, 1.2, 3.0)
TILT = np.array([[1, 0, 0], [0, 0.918, 0.396], [0, -0.396, 0.918]])
TILT = np.linalg.qr(TILT)[0] * np.sign(np.diag(np.linalg.qr(TILT)[1]))
PROBABILITIES = {"1": 0.7312345678901234, "2": 0.05, "3": 1 / 3}
MEDIANS = {
    "1": {"adc_median": 1485.25, "ktrans_median": 0.12345678901234567, "volume_mm3": 311.04},
    "2": {"adc_median": 1200.0, "ktrans_median": None},
}


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    """One imported study with three ROIs on an oblique T2 series with non-square pixels."""
    rng = np.random.default_rng(0)
    source = tmp_path / "in"
    array = rng.integers(1, 900, SHAPE).astype(np.uint16)
    place = {"spacing": SPACING, "origin": (-31.25, 12.5, 40.0), "direction": TILT}
    write_series(source / "t2", array, patient="MRN-7", **place)
    write_series(
        source / "adc",
        array,
        patient="MRN-7",
        number=2,
        description="adc",
        ImageType=["DERIVED", "PRIMARY", "ADC"],
        **place,
    )
    labels = np.zeros(SHAPE, np.uint8)
    for label in (1, 2, 3):
        labels[label : label + 3, 5 * label : 5 * label + 6, 3 * label : 3 * label + 5] = label
    write_volume(source / "rois.nii.gz", Volume(labels, SPACING, (-31.25, 12.5, 40.0), TILT))
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    assert import_source(source, tmp_path / "cohort", rules).failures == []
    return tmp_path / "cohort"


@pytest.fixture
def participant(cohort: Path) -> str:
    return read_cohort(cohort).studies()[0].participant_id


@pytest.fixture
def files(cohort: Path, participant: str, tmp_path: Path) -> tuple[Path, Path]:
    run = write_run(tmp_path / "run", participant, PROBABILITIES, **MEDIANS)
    result = write_sr_and_seg(run, cohort, tmp_path / "dicom")
    assert result[1] == []
    seg, sr = result[0]
    assert (seg.name, sr.name) == (f"{participant}_SEG.dcm", f"{participant}_SR.dcm")
    return seg, sr


def test_results_of_an_enhanced_source(tmp_path: Path):
    """An enhanced T2 gives the same regions, and SEG and SR refer to its one object."""
    source = tmp_path / "in"
    array = np.random.default_rng(0).integers(700, 2100, SHAPE).astype(np.uint16)
    place = {"spacing": SPACING, "origin": (-31.25, 12.5, 40.0), "direction": TILT}
    paths = write_series(source / "t2", array[::-1], patient="MRN-7", **place)
    for z, path in enumerate(paths):  # stored from the last slice to the first
        position = np.array([-31.25, 12.5, 40.0]) + (len(paths) - 1 - z) * 3.0 * TILT[:, 2]
        edit(path, ImagePositionPatient=[f"{v:.8g}" for v in position])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # on the form of the names
        made = highdicom.legacy.LegacyConvertedEnhancedMRImage(
            [pydicom.dcmread(p) for p in paths],
            series_instance_uid=uid("e"),
            series_number=1,
            sop_instance_uid=uid("object"),
            instance_number=1,
        )
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    assert import_source(source, tmp_path / "classic", rules).failures == []
    shutil.rmtree(source / "t2")
    made.SeriesDescription = "t2_tse_tra"
    made.save_as(source / "t2.dcm")
    labels = np.zeros(SHAPE, np.uint8)
    labels[1:4, 5:11, 3:8] = 1
    write_volume(source / "rois.nii.gz", Volume(labels, SPACING, (-31.25, 12.5, 40.0), TILT))
    assert import_source(source, tmp_path / "cohort", rules).failures == []
    images = [next((tmp_path / n).rglob("*_T2w.nii.gz")) for n in ("classic", "cohort")]
    assert images[0].read_bytes() == images[1].read_bytes()  # the same study, byte for byte
    (study,) = read_cohort(tmp_path / "cohort").studies()
    run = write_run(tmp_path / "run", study.participant_id, {"1": 0.4})
    result = write_sr_and_seg(run, tmp_path / "cohort", tmp_path / "dicom")
    assert [str(f) for f in result[1]] == []
    seg = highdicom.seg.segread(result[0][0])
    found = seg.get_volume(allow_missing_positions=True)
    assert found.array.sum() == labels.sum()
    centre = found.map_indices_to_reference(np.argwhere(found.array[..., 0] > 0)).mean(axis=0)
    wanted = Volume(labels, SPACING, (-31.25, 12.5, 40.0), TILT)
    theirs = wanted.index_to_patient(np.argwhere(labels > 0)[:, ::-1]).mean(axis=0)
    np.testing.assert_allclose(centre, theirs, atol=1e-3)
    assert read_report(result[0][1]).rois[0].values["111047"][0] == 40.0
    needs("dciodvfy")
    for path in result[0]:
        validate(path)


def test_dciodvfy_finds_no_error(files):
    needs("dciodvfy")
    for path in files:
        validate(path)


def container_of(dataset: pydicom.Dataset, code: str) -> pydicom.Dataset:
    """The one item of a report's first level that has a concept."""
    (container,) = [
        item
        for item in dataset.ContentSequence
        if item.ConceptNameCodeSequence[0].CodeValue == code
    ]
    return container


def test_tid_1500_by_our_own_reader(files, participant):
    seg, sr = files
    report = read_report(sr)
    assert report.patient_id == participant
    assert report.study_uid == uid("MRN-7", "study1")
    assert report.device == "phantom-psvm"
    assert [roi.roi_id for roi in report.rois] == list(PROBABILITIES)
    segmentation = pydicom.dcmread(seg)
    for number, roi in enumerate(report.rois, start=1):
        # Numbers are read back to the last bit.
        assert roi.values["111047"] == (100 * PROBABILITIES[roi.roi_id], "%")
        assert roi.values["belief"] == (100 * PROBABILITIES[roi.roi_id] ** 0.5, "%")
        assert roi.values["p-low"][0] < roi.values["111047"][0] < roi.values["p-high"][0]
        assert roi.segment == (segmentation.SOPInstanceUID, number)
        segment = segmentation.SegmentSequence[number - 1]
        assert (segment.TrackingUID, segment.TrackingID) == (roi.tracking_uid, roi.roi_id)
        assert (roi.finding, roi.site) == ("52988006", "279706003")
        assert (roi.algorithm, roi.version) == ("phantom-psvm", "0.1.0")
        assert roi.statements == [
            "research use only",
            "training population: 49 SIMULATED patients, 350 regions, 66 malignant",
            "probability of cancer of ISUP 2 or more where one is given; belief: what readers "
            "would say",
            "decision: benign below 10 %, malignant above 60 %",
        ]
    first, second, third = report.rois
    assert first.values["113041:median"] == (1485.25, "um2/s")
    assert first.values["126312:median"] == (0.12345678901234567, "/min")
    assert first.values["118565006"] == (311.04, "mm3")
    numbers = {"belief", "111047", "p-low", "p-high", "p-images"}
    assert set(second.values) == {*numbers, "113041:median"}
    assert set(third.values) == numbers
    decisions = [roi.evaluations["decision"] for roi in report.rois]
    assert decisions == ["21594007", "30807003", "refer"]


def test_without_histology_no_report_speaks_of_cancer(cohort, participant, tmp_path):
    run = write_run(tmp_path / "run", participant, PROBABILITIES)
    table = pd.read_csv(run / "probabilities.csv")
    table["probability_of"] = "readers"
    table["probability"] = table["belief"]
    table[["probability_low", "probability_high", "patient_probability"]] = np.nan
    table.to_csv(run / "probabilities.csv", index=False)
    files, failures = write_sr_and_seg(run, cohort, tmp_path / "dicom")
    assert failures == []
    report = read_report(files[1])
    assert report.man is None
    for roi in report.rois:
        assert "111047" not in roi.values
        assert roi.values["belief"] == (100 * PROBABILITIES[roi.roi_id] ** 0.5, "%")
        assert "decision" not in roi.evaluations
        assert "on-suspicion" in roi.evaluations


def test_a_report_of_before_is_read_as_belief(files, tmp_path):
    dataset = pydicom.dcmread(files[1])
    measurements = container_of(dataset, "126010")
    for group in measurements.ContentSequence:
        # As version 0.1 wrote it: one number, under the standard's code.
        kept = []
        for item in group.ContentSequence:
            code = item.ConceptNameCodeSequence[0]
            if code.get("CodingSchemeDesignator") != "99CAD" or item.ValueType != "NUM":
                kept.append(item)
        group.ContentSequence = kept
    dataset.save_as(tmp_path / "old.dcm", enforce_file_format=True)
    for roi in read_report(tmp_path / "old.dcm").rois:
        assert "111047" not in roi.values
        assert roi.values["belief"][0] == 100 * PROBABILITIES[roi.roi_id]
        assert "written before" in roi.statements[-1]


def test_every_measurement_group_has_an_outline_under_its_tracking_uid(files):
    """OHIF 3.12 shows nothing of a report in which one has none (it joins groups by this UID)."""
    dataset = pydicom.dcmread(files[1])
    measurements = container_of(dataset, "126010")
    outlined, tracked = set(), set()
    for group in measurements.ContentSequence:
        (tracking_uid,) = [
            item.UID
            for item in group.ContentSequence
            if item.ConceptNameCodeSequence[0].CodeValue == "112040"
        ]
        tracked.add(tracking_uid)
        if any(item.ValueType == "SCOORD" for item in group.ContentSequence):
            outlined.add(tracking_uid)
    assert outlined == tracked
    assert len(tracked) == len(PROBABILITIES)


def test_a_report_with_the_man_as_a_group_is_read(files, tmp_path):
    """Before 1.0.0 the man was a group of TID 1501 beside the regions' groups."""
    dataset = pydicom.dcmread(files[1])
    containers = {
        item.ConceptNameCodeSequence[0].CodeValue: item
        for item in dataset.ContentSequence
        if item.ValueType == "CONTAINER"
    }
    (measurement,) = containers["126011"].ContentSequence
    (decision,) = containers["C0034375"].ContentSequence
    group = copy.deepcopy(containers["126010"].ContentSequence[0])
    group.ContentTemplateSequence[0].TemplateIdentifier = "1501"
    of_the_man = [item for item in measurement.ContentSequence if "UID" not in item]
    group.ContentSequence = [measurement, decision, *of_the_man]
    containers["126010"].ContentSequence.append(group)
    dataset.ContentSequence = [
        item
        for item in dataset.ContentSequence
        if item not in (containers["126011"], containers["C0034375"])
    ]
    dataset.save_as(tmp_path / "old.dcm", enforce_file_format=True)
    current = read_report(files[1])
    old = read_report(tmp_path / "old.dcm")
    assert current.man is not None
    assert old.man == current.man
    assert old.man_statements == current.man_statements


def test_every_group_names_its_algorithm(files):
    """Name, version and parameters (TID 4019), also of the man and of drawn outlines."""
    dataset = pydicom.dcmread(files[1])
    measurements = container_of(dataset, "126010")
    derived = container_of(dataset, "126011")
    assert len(measurements.ContentSequence) == 2 * len(PROBABILITIES)
    for group in [*measurements.ContentSequence, *derived.ContentSequence]:
        codes = [item.ConceptNameCodeSequence[0].CodeValue for item in group.ContentSequence]
        assert {"111001", "111003", "111002"} <= set(codes)
    report = read_report(files[1])
    assert any("SIMULATED" in text for text in report.man_statements)
    assert any("benign below 10 %" in text for text in report.man_statements)


def test_a_decision_that_was_withdrawn_is_not_sent(cohort, participant, tmp_path):
    run = write_run(tmp_path / "run", participant, PROBABILITIES)
    table = pd.read_csv(run / "probabilities.csv")
    assert table["decision_model"].tolist() == ["malignant", "benign", "refer"]
    table["decision"] = ["refer", "benign", "refer"]
    table.to_csv(run / "probabilities.csv", index=False)
    _, sr = write_sr_and_seg(run, cohort, tmp_path / "dicom")[0]
    decisions = [roi.evaluations["decision"] for roi in read_report(sr).rois]
    assert decisions == ["refer", "30807003", "refer"]


def test_dsr2html_shows_the_numbers(files):
    needs("dsr2html")
    page = subprocess.run(["dsr2html", files[1]], capture_output=True, text=True, check=True).stdout
    text = re.sub(r"<[^>]+>", " ", page)
    numbers = ("73.1235 %", "5.0 %", "33.3333 %", "1485.25 um2/s", "0.123457 /min")
    names = ("Probability of cancer", "Apparent Diffusion Coefficient", "Ktrans", "Malignant")
    for words in (*numbers, *names):
        assert words in text, words


def test_segments_are_the_rois_in_the_t2_frame(files, cohort, participant):
    """Our reader, highdicom's and the label map agree on every voxel."""
    study = read_cohort(cohort).studies()[0]
    t2w = read_volume(image_path(study.folder, study.study_id, "t2w"))
    labels = read_volume(image_path(study.folder, study.study_id, "rois"))
    sidecar = json.loads(sidecar_path(image_path(study.folder, study.study_id, "t2w")).read_text())
    regions, notes = read_drawn_regions(
        read_dataset(files[0]), files[0], t2w, sidecar["FrameOfReferenceUID"], t2w
    )
    assert notes == []
    theirs = highdicom.seg.segread(files[0])
    for number, region in enumerate(regions, start=1):
        assert region.name == str(number)
        assert ((region.share >= 0.5) == (labels.array == number)).all()
        volume = theirs.get_volume(segment_numbers=[number], combine_segments=True)
        assert (volume.array > 0).sum() == (labels.array == number).sum()
    referenced = {
        str(image.ReferencedSOPInstanceUID)
        for image in theirs.ReferencedSeriesSequence[0].ReferencedInstanceSequence
    }
    assert referenced <= set(sidecar["SOPInstanceUIDs"])


def test_nobody_is_named(files):
    for path in files:
        text = path.read_bytes().decode("latin-1")
        for value in [*IDENTIFYING.values(), "MRN-7", "20240307"]:
            assert value not in text
        dataset = pydicom.dcmread(path)
        assert dataset.PatientBirthDate == ""
        assert dataset.PatientIdentityRemoved == "YES"


def test_the_same_run_is_the_same_object(cohort, participant, files, tmp_path):
    run = write_run(tmp_path / "run2", participant, PROBABILITIES, **MEDIANS)
    again = write_sr_and_seg(run, cohort, tmp_path / "again")[0]
    other = write_run(tmp_path / "run3", participant, {**PROBABILITIES, "2": 0.06}, **MEDIANS)
    third = write_sr_and_seg(other, cohort, tmp_path / "third")[0]
    for a, b, c in zip(files, again, third, strict=True):
        name = pydicom.dcmread(a).SOPInstanceUID
        assert pydicom.dcmread(b).SOPInstanceUID == name
        assert pydicom.dcmread(c).SOPInstanceUID != name
    # A ROI keeps its tracking UID from run to run.
    tracked = [read_report(paths[1]).rois[1].tracking_uid for paths in (files, third)]
    assert tracked[0] == tracked[1]


def test_warnings_travel_with_the_roi(cohort, participant, tmp_path):
    run = write_run(tmp_path / "run", participant, {"1": 0.5, "2": 0.2})
    table = pd.read_csv(run / "probabilities.csv")
    table["warnings"] = ["outside the training distribution", None]
    table.to_csv(run / "probabilities.csv", index=False)
    sr = write_sr_and_seg(run, cohort, tmp_path / "dicom")[0][1]
    first, second = read_report(sr).rois
    assert first.statements[-1] == "warning: outside the training distribution"
    assert not any("warning" in said for said in second.statements)


def test_the_report_names_the_model_that_scored_the_study(cohort, participant, tmp_path):
    run = write_run(tmp_path / "run", participant, {"1": 0.5})
    record = json.loads((run / "run.json").read_text())
    first = record["model"]
    second = {"name": "two", "training": first["training"] | {"patients": 31}}
    record["model"] = first | {
        "name": "phantom-psvm, two",
        "models": {"phantom-psvm": first, "two": second},
    }
    (run / "run.json").write_text(json.dumps(record))
    pd.read_csv(run / "probabilities.csv").assign(model="two").to_csv(
        run / "probabilities.csv", index=False
    )
    report = read_report(write_sr_and_seg(run, cohort, tmp_path / "dicom")[0][1])
    assert (report.device, report.rois[0].algorithm) == ("two", "two")
    assert "31 SIMULATED patients" in report.rois[0].statements[1]


def test_rois_without_a_probability_are_left_out(cohort, participant, tmp_path):
    run = write_run(tmp_path / "run", participant, {"1": 0.5, "2": float("nan"), "3": 0.2})
    sr = write_sr_and_seg(run, cohort, tmp_path / "dicom")[0][1]
    assert [roi.roi_id for roi in read_report(sr).rois] == ["1", "3"]
    run = write_run(tmp_path / "none", participant, {"1": float("nan")})
    (failure,) = write_sr_and_seg(run, cohort, tmp_path / "none-dicom")[1]
    assert (failure.patient, failure.problem) == (
        participant,
        "no ROI of the study has a probability",
    )


def test_studies_without_a_dicom_source(cohort, participant, tmp_path):
    study = read_cohort(cohort).studies()[0]
    path = sidecar_path(image_path(study.folder, study.study_id, "t2w"))
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({**entries, "SOPInstanceUIDs": entries["SOPInstanceUIDs"][:-1]}))
    run = write_run(tmp_path / "run", participant, {"1": 0.5})
    (failure,) = write_sr_and_seg(run, cohort, tmp_path / "out")[1]
    assert "names 6 slices, the image has 7" in failure.problem
    path.write_text("{}")
    (failure,) = write_sr_and_seg(run, cohort, tmp_path / "out")[1]
    assert "no DICOM source" in failure.problem
    assert failure.patient == participant
    assert not (tmp_path / "out").exists()


def test_folders_that_are_no_run(cohort, tmp_path):
    with pytest.raises(CadError, match=r"no run\.json: this is not a finished run"):
        write_sr_and_seg(tmp_path, cohort, tmp_path / "out")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(CadError, match=r"no probabilities\.csv"):
        write_sr_and_seg(tmp_path, cohort, tmp_path / "out")
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CadError, match="not valid JSON"):
        write_sr_and_seg(tmp_path, cohort, tmp_path / "out")


def broken(sr: Path, change) -> str:
    dataset = pydicom.dcmread(sr)
    change(dataset)
    dataset.save_as(sr)
    with pytest.raises(CadError) as caught:
        read_report(sr)
    assert caught.value.file == str(sr)
    return caught.value.problem


def test_the_reader_notices_what_is_not_tid_1500(files):
    _, sr = files
    original = sr.read_bytes()

    def container(dataset):
        return next(c for c in dataset.ContentSequence if c.ValueType == "CONTAINER")

    def drop(group_item: str):
        def change(dataset):
            group = container(dataset).ContentSequence[0]
            group.ContentSequence = [
                c
                for c in group.ContentSequence
                if c.ConceptNameCodeSequence[0].CodeValue != group_item
            ]

        return change

    def one_region_less(dataset):
        derived = container_of(dataset, "126011")
        (measurement,) = derived.ContentSequence
        measurement.ContentSequence = measurement.ContentSequence[:-1]

    cases = {
        "a group has 0 items of tracking UID": drop("112040"),
        "a group has 0 items of referenced segment": drop("121191"),
        "requires source images or series": drop("121232"),
        "template 1501, not 1500": lambda d: setattr(
            d.ContentTemplateSequence[0], "TemplateIdentifier", "1501"
        ),
        "without any measurement group": lambda d: setattr(container(d), "ContentSequence", []),
        "not listed as evidence": lambda d: setattr(
            d, "CurrentRequestedProcedureEvidenceSequence", []
        ),
        "inferred from 2 regions, which are not the 3": one_region_less,
    }
    for words, change in cases.items():
        sr.write_bytes(original)
        assert words in broken(sr, change), words
    sr.write_bytes(b"no report")
    with pytest.raises(CadError, match="not a DICOM file"):
        read_report(sr)


@pytest.mark.reference
def test_real_studies(shared_data, repository, tmp_path, counted):
    """PROSTATEx: valid objects over real headers and geometry."""
    needs("dciodvfy")
    out = tmp_path / "cohort"
    source = tmp_path / "in"
    source.mkdir()
    shutil.copytree(shared_data / "prostatex" / "ProstateX-0000", source / "copy")
    assert import_source(source, out, repository / "configs/import/prostatex.yaml").failures == []
    run = write_run(tmp_path / "run", "sub-ProstateX0000", {"1": 0.61})
    result = write_sr_and_seg(run, out, tmp_path / "dicom")
    assert result[1] == []
    for path in result[0]:
        validate(path)
    report = read_report(result[0][1])
    assert report.patient_id == "ProstateX-0000"
    seg = pydicom.dcmread(result[0][0])
    assert int(np.asarray(seg.pixel_array).sum()) == 427
    counted(2, "PROSTATEx README, SEG written back")
