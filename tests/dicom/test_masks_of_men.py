"""Mask files and tables that rules name by the patient: no other man's, and no part cut off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.dicom.into.regions import drawn_series, files_of, outlined
from cad.dicom.into.rules import ImportRules
from cad.mri.imaging.nifti import write_volume
from cad.mri.imaging.volume import Volume

PLACE = "masks/{patient}/lesion{roi}*.nii.gz"


def volume(array: np.ndarray, x: float = 0.0) -> Volume:
    return Volume(array, (1.0, 1.0, 3.0), (x, 0.0, 0.0), np.eye(3))


def write_mask(top: Path, patient: str, roi: str, x: float = 0.0) -> Path:
    array = np.zeros((4, 10, 10), np.uint8)
    array[1:3, 2:6, 2:6] = 1
    path = top / "masks" / patient / f"lesion{roi}_a.nii.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_volume(path, volume(array, x))
    return path


@pytest.mark.parametrize(
    "patient", ["*", "P-00?", "P-00[1]", "P-001/../P-001", "x/../P-001", "../masks/P-001", ".*"]
)
def test_a_patient_id_is_no_pattern(tmp_path, patient):
    """A PatientID of such letters would have got the masks of every man, or of another one."""
    write_mask(tmp_path, "P-001", "1")
    (tmp_path / "masks" / "x").mkdir()
    assert list(files_of(tmp_path, PLACE, "P-001")) != []
    assert list(files_of(tmp_path, PLACE, patient)) == []


@pytest.mark.parametrize("patient", ["P[1]", "P*", "{roi}", "a/b", "P.1"])
def test_a_patient_id_of_odd_letters_finds_his_own_masks(tmp_path, patient):
    path = write_mask(tmp_path, patient, "7")
    write_mask(tmp_path, "P1", "8")
    assert list(files_of(tmp_path, PLACE, patient)) == [("7", path)]


def test_a_mask_that_the_first_one_would_cut_is_refused(tmp_path):
    rules = ImportRules.model_validate({"name": "x", "outlines": {"file": [PLACE]}})
    write_mask(tmp_path, "P1", "1")
    write_mask(tmp_path, "P1", "2", x=4.0)
    labelled = outlined(tmp_path, "P1", rules, [])
    assert labelled is not None
    assert np.bincount(labelled.labels.array.ravel())[1:].tolist() == [32, 32]
    path = write_mask(tmp_path, "P1", "2", x=6.0)
    with pytest.raises(
        CadError, match="16 of its 32 voxels lie outside of the man's first mask"
    ) as (caught):
        outlined(tmp_path, "P1", rules, [])
    assert (caught.value.file, caught.value.roi) == (str(path), "2")


def test_masks_of_two_series_are_noted(tmp_path):
    rules = ImportRules.model_validate(
        {"name": "x", "outlines": {"file": [PLACE], "images": "images.csv"}}
    )
    rows = ["T2,ADC", "P1_a_4,P1_b_7", "P1_a_5,P1_b_7", "P2_a_9,P2_b_9"]
    (tmp_path / "images.csv").write_text("\n".join(rows) + "\n")
    notes: list[str] = []
    assert drawn_series([tmp_path], "P1", rules, "adc", notes) == 7
    assert notes == []
    assert drawn_series([tmp_path], "P1", rules, "t2w", notes) == 4
    assert notes == ["images.csv says that masks were drawn on series 4, 5 (t2w); series 4 counts"]
