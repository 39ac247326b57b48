"""FHIR bundles: what the report says, accepted by FHIR's own models, written and read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dicom_cases import RULES, write_run
from dicom_files import write_seg, write_series

from cad.base.errors import CadError
from cad.dicom.into.importer import import_source
from cad.dicom.out.fhir import SCT, checked, read_fhir
from cad.dicom.out.sr_reader import read_report
from cad.folders.cohort import read_cohort
from cad.run.workflows.delivery import deliver

SHAPE = (6, 24, 24)
PROBABILITIES = {"1": 0.7312345678901234, "2": 0.05}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run over an imported study of two regions, the first of which was read."""
    pytest.importorskip("fhir.resources")
    array = np.random.default_rng(0).integers(1, 900, SHAPE).astype(np.uint16)
    images = write_series(tmp_path / "in" / "t2", array, patient="MRN-7")
    masks = {}
    for number in (1, 2):
        masks[f"ROI {number}"] = np.zeros(SHAPE, bool)
        masks[f"ROI {number}"][2:4, 4 * number : 4 * number + 4, 4:9] = True
    write_seg(tmp_path / "in" / "seg.dcm", images, masks)
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    assert import_source(tmp_path / "in", tmp_path / "cohort", rules).failures == []
    (participant,) = read_cohort(tmp_path / "cohort").participants["participant_id"]
    medians = {"adc_median": 812.5, "ktrans_median": 0.2, "volume_mm3": 300.0}
    run = write_run(tmp_path / "run", participant, PROBABILITIES, **{"1": medians})
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "created": "2026-11-22T07:00:00+00:00"}))
    table = pd.read_csv(run / "probabilities.csv").assign(p=[0.75, None], eta=[0.3, None])
    table.to_csv(run / "probabilities.csv", index=False)
    return run


def test_a_bundle_says_what_the_report_says(run: Path, tmp_path: Path):
    lines, _ = deliver(run, tmp_path / "cohort", None, "ANY", fhir=True)
    assert "wrote 1 FHIR bundles" in lines[1]
    (path,) = (run / "fhir").iterdir()
    report = read_report(next((run / "dicom").glob("*_SR.dcm")))
    first, *entries = [one["resource"] for one in json.loads(path.read_text())["entry"]]
    *regions, man, device = entries
    assert first["resourceType"] == "DiagnosticReport"
    assert {one["status"] for one in (first, *regions)} == {"preliminary"}
    assert [(c["system"], c["code"]) for c in first["code"]["coding"]] == [
        ("http://loinc.org", "68604-8"),
        (SCT, "719178004"),
    ]
    assert first["imagingStudy"][0]["identifier"]["value"] == f"urn:oid:{report.study_uid}"
    assert "research use only" in first["conclusion"]
    assert [f"urn:uuid:{one['id']}" for one in (*regions, man)] == [
        r["reference"] for r in first["result"]
    ]
    assert device["deviceName"][0]["name"] == report.rois[0].algorithm
    for one, roi in zip(regions, report.rois, strict=True):
        assert one["identifier"][0]["value"] == f"urn:oid:{roi.tracking_uid}"
        assert one["device"]["reference"] == f"urn:uuid:{device['id']}"
        probability = one["component"][0]
        belief = one["component"][3]
        assert belief["code"]["coding"][0]["code"] == "belief"
        assert belief["valueQuantity"]["value"] == 100 * PROBABILITIES[roi.roi_id] ** 0.5
        assert "referenceRange" not in belief  # the thresholds are on the probability of cancer
        assert probability["valueQuantity"]["value"] == 100 * PROBABILITIES[roi.roi_id]  # exact
        assert probability["valueQuantity"]["code"] == "%"
        assert [r.get("high", r.get("low"))["value"] for r in probability["referenceRange"]] == [
            10.0,
            60.0,
        ]
    codes = [c["code"]["coding"][0]["code"] for c in regions[0]["component"]]
    assert codes == [
        "111047",
        "p-low",
        "p-high",
        "belief",
        "p-images",
        "113041",
        "126312",
        "118565006",
        "decision",
        "readers",
    ]
    between = regions[0]["component"][-1]["valueRange"]
    assert (between["low"]["value"], between["high"]["value"]) == (45.0, 100.0)
    assert "readers" not in [c["code"]["coding"][0]["code"] for c in regions[1]["component"]]
    assert "MRN-7" not in path.read_text()


def test_the_man_stands_in_report_and_bundle(run: Path, tmp_path: Path):
    deliver(run, tmp_path / "cohort", None, "ANY", fhir=True)
    (path,) = (run / "fhir").iterdir()
    report = read_report(next((run / "dicom").glob("*_SR.dcm")))
    assert report.man == (37.5, "30807003")
    assert len(report.rois) == 2
    entries = [one["resource"] for one in json.loads(path.read_text())["entry"]]
    (man,) = [one for one in entries if "valueQuantity" in one]
    assert man["valueQuantity"]["value"] == 37.5
    assert man["component"][0]["valueCodeableConcept"]["coding"][0]["display"] == "Benign"
    assert f"urn:uuid:{man['id']}" in {one["reference"] for one in entries[0]["result"]}


def test_bundles_are_the_same_every_time_and_read_back(run: Path, tmp_path: Path):
    written = []
    for _ in range(2):
        deliver(run, tmp_path / "cohort", None, "ANY", fhir=True)
        (path,) = (run / "fhir").iterdir()
        written.append(path.read_bytes())
    assert written[0] == written[1] == checked(read_fhir(path), path)


def test_what_fhir_does_not_allow_is_refused(run: Path, tmp_path: Path):
    deliver(run, tmp_path / "cohort", None, "ANY", fhir=True)
    (path,) = (run / "fhir").iterdir()
    whole = path.read_text()
    for old, new in (('"code":', '"codex":'), ('"type": "collection"', '"type": 3'), ("{", "[")):
        path.write_text(whole.replace(old, new, 1))
        with pytest.raises(CadError, match="no FHIR bundle"):
            read_fhir(path)


def test_bundles_alone_leave_the_dicom_objects_as_they_are(run: Path, tmp_path: Path):
    (run / "dicom").mkdir()
    (run / "dicom" / "kept").write_text("as it was")
    lines = deliver(run, tmp_path / "cohort", None, "ANY", fhir=True, objects=False)[0]
    assert lines == [f"wrote 1 FHIR bundles to {run / 'fhir'}"]
    assert [p.name for p in (run / "dicom").iterdir()] == ["kept"]
    alone = next((run / "fhir").iterdir()).read_bytes()
    deliver(run, tmp_path / "cohort", None, "ANY", fhir=True)
    assert next((run / "fhir").iterdir()).read_bytes() == alone
