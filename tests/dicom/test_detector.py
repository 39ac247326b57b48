"""Regions that a program outlined: candidates of its map, never benign before a reader's look."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from import_cases import adc_values, regions, table, voxels, write_mha, write_nifti
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
from cad.dicom.into.regions import detected
from cad.dicom.into.rules import DetectorRule
from cad.folders.cohort import read_cohort
from cad.mri.imaging.volume import Volume
from cad.run.stages.decide import UNSEEN, decide_regions


def soft_map() -> Volume:
    """Two candidates of 27 voxels that touch at no corner, and one voxel alone."""
    values = np.zeros((12, 20, 20), np.float32)
    values[1:4, 2:5, 2:5], values[2, 3, 3] = 0.55, 0.9
    values[6:9, 10:13, 10:13] = 0.6
    values[10, 18, 18] = 0.8
    values[6:9, 2:5, 2:5] = 0.4
    return Volume(values, (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))


@pytest.mark.parametrize("name", ["cspca_detection_map.mha", "NAME_seg.nii.gz", "case_0001.nii.gz"])
@pytest.mark.parametrize("hard", [False, True])
def test_candidates_by_components_threshold_and_volume(
    tmp_path: Path, name: str, hard: bool
) -> None:
    made = soft_map()
    if hard:  # labels: classes 1 and 2 of one candidate are one candidate
        array = (made.array >= 0.5).astype(np.uint8)
        array[2, 3, 3] = 2
        made = made.with_array(array)
    (write_mha if name.endswith("mha") else write_nifti)(tmp_path / name, made)
    notes: list[str] = []
    found = detected(tmp_path / name, DetectorRule(file=name, least=50), notes)
    assert found is not None
    assert [(roi.roi_id, roi.label) for roi in found.rois] == [("1", 1), ("2", 2)]
    confidence = [1.0, 1.0] if hard else pytest.approx([0.9, 0.6])
    assert [roi.confidence for roi in found.rois] == confidence
    assert np.bincount(found.labels.array.ravel())[1:].tolist() == [27, 27]
    assert "1 smaller" in notes[0]
    assert "seen by nobody" in notes[0]
    higher = detected(tmp_path / name, DetectorRule(file=name, threshold=0.7, least=0), [])
    assert higher is not None
    assert len(higher.rois) == (3 if hard else 2)


def test_a_map_without_a_candidate_and_one_of_neither_kind(tmp_path: Path) -> None:
    rule = DetectorRule(file="m.nii.gz")
    write_nifti(tmp_path / "m.nii.gz", soft_map().with_array(np.zeros((12, 20, 20), np.float32)))
    assert detected(tmp_path / "m.nii.gz", rule, []) is None
    write_nifti(tmp_path / "m.nii.gz", soft_map().with_array(soft_map().array * 3))
    with pytest.raises(CadError, match="whole numbers"):
        detected(tmp_path / "m.nii.gz", rule, [])


def test_an_import_keeps_confidence_and_a_persons_outline_goes_first(tmp_path: Path) -> None:
    grid, source = regions(), tmp_path / "in"
    for patient in ("10001", "10002"):
        folder, stem = source / "images" / patient, f"{patient}_1"
        for kind, image in (("t2w", voxels(1)), ("adc", adc_values()), ("hbv", voxels(3))):
            write_mha(folder / f"{stem}_{kind}.mha", grid.with_array(image))
        found = (regions(3).array != 0) * np.float32(0.75)
        write_mha(source / "maps" / stem / "cspca_detection_map.mha", grid.with_array(found))
    drawn = source / "picai_labels/csPCa_lesion_delineations/human_expert/resampled"
    write_nifti(drawn / "10001_1.nii.gz", regions(3))
    rules = (Path(__file__).parents[2] / "configs/import/picai.yaml").read_text()
    rules += 'detector: {file: "{patient}_{study}/cspca_detection_map.mha", least: 0}\n'
    (tmp_path / "rules.yaml").write_text(rules)
    words = [str(source), str(tmp_path / "out"), "--rules", str(tmp_path / "rules.yaml"), "--json"]
    done = CliRunner().invoke(app, ["import", *words])
    assert done.exit_code == 0, done.output
    rois = table(tmp_path / "out", "rois")
    assert rois["histology"].tolist() == ["malignant", "n/a"]
    assert rois["confidence"].tolist() == ["n/a", "0.75"]
    assert any("outlined by a detector" in note for note in json.loads(done.stdout)["notes"])
    assert read_cohort(tmp_path / "out").problems == []


def test_no_benign_before_a_reader_has_seen_it() -> None:
    rows = pd.DataFrame(
        {
            "probability": [0.02, 0.02, 0.02, 0.9],
            "belief": [0.02, 0.02, 0.02, 0.9],
            "truth": np.nan,
            "readers_mean": [np.nan, 0.25, np.nan, np.nan],
            "confidence": ["0.8", "0.8", None, "0.8"],
            "reader_values": [None, "r1=0.25", None, None],
        }
    )
    found = decide_regions(rows, np.full(4, 0.1), np.full(4, 0.6))
    assert found["decision"].tolist() == ["refer", "benign", "benign", "malignant"]
    assert found["decision_reason"].tolist() == [UNSEEN, "", "", ""]
