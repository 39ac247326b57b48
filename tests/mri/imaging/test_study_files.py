"""Studies on disk: there and back unchanged, and every bad input refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from isal import igzip
from scipy.spatial.transform import Rotation

from cad.base.errors import CadError
from cad.mri.imaging.nifti import (
    read_dynamic,
    read_volume,
    sidecar_path,
    write_sidecar,
    write_volume,
)
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import (
    check_study,
    diffusion_path,
    image_path,
    read_study,
    vfa_path,
    write_study,
)
from cad.mri.imaging.volume import Dynamic, Volume

TILT = Rotation.from_euler("xyz", [23.3, 2, -4], degrees=True).as_matrix()
ROIS = [Roi("lesion1", 1), Roi("lesion2", 2)]


def image(shape=(6, 12, 10), spacing=(1.1, 0.9, 3.6), dtype=np.uint16, seed=0) -> Volume:
    rng = np.random.default_rng(seed)
    array = rng.integers(1, 900, shape).astype(dtype)
    return Volume(array, spacing, (-11.25, 20.5, -33.125), TILT)


@pytest.fixture
def study() -> Study:
    t2w = image()
    labels = np.zeros(t2w.shape, np.uint8)
    labels[2:4, 3:6, 3:6], labels[2:4, 8:11, 3:6] = 1, 2
    grid = image(seed=1)
    frames = np.stack([image(seed=s).array for s in range(5)])
    return Study(
        "sub-01",
        "sub-01",
        t2w=t2w,
        adc=image(seed=2, dtype=np.float32),
        dce=Dynamic(
            frames, grid.with_array(frames[0]), np.array([0, 4.2, 8.4, 12.7, 17]), 0.00385, 12.0
        ),
        vfa=[(2.0, image(seed=3)), (15.0, image(seed=4))],
        vfa_repetition_time=0.00385,
        diffusion=[(0.0, image(seed=5)), (12.5, image(seed=6)), (800.0, image(seed=7))],
        roi_map=t2w.with_array(labels),
        rois=ROIS,
        gland=t2w.with_array(labels > 0),
        vessel=t2w.with_array(labels == 2),
    )


@pytest.fixture
def folder(study: Study, tmp_path: Path) -> Path:
    write_study(tmp_path / "sub-01", study)
    return tmp_path / "sub-01"


def read(folder: Path, rois=ROIS) -> Study:
    return read_study(folder, "sub-01", "sub-01", rois)


def refused(folder: Path, *, names: str, rois=ROIS) -> CadError:
    with pytest.raises(CadError, match=names) as caught:
        read(folder, rois)
    assert caught.value.patient == "sub-01"
    assert caught.value.file
    return caught.value


def test_there_and_back(study, folder):
    found = read(folder)
    for name in ("t2w", "adc", "roi_map", "gland", "vessel"):
        a, b = getattr(study, name), getattr(found, name)
        assert a.same_grid(b), name
        assert a.array.dtype == b.array.dtype, name
        assert (a.array == b.array).all(), name
        assert np.abs(a.affine - b.affine).max() < 1e-3, name  # a micrometre
    assert found.dce is not None
    assert (found.dce.frames == study.dce.frames).all()
    assert found.dce.times.tolist() == study.dce.times.tolist()
    assert (found.dce.repetition_time, found.dce.flip_angle) == (0.00385, 12.0)
    assert [a for a, _ in found.vfa] == [2.0, 15.0]
    assert found.vfa_repetition_time == 0.00385
    assert [b for b, _ in found.diffusion] == [0.0, 12.5, 800.0]
    assert found.notes == []
    assert check_study(found) == []


def test_another_reader_sees_the_same_place(study, folder):
    """ITK's own NIfTI reader, which speaks LPS, finds the voxels where we put them."""
    theirs = sitk.ReadImage(str(image_path(folder, "sub-01", "t2w")))
    assert np.allclose(theirs.GetOrigin(), study.t2w.origin, atol=1e-4)
    assert np.allclose(np.reshape(theirs.GetDirection(), (3, 3)), TILT, atol=1e-5)
    assert (sitk.GetArrayFromImage(theirs) == study.t2w.array).all()


def test_equal_studies_are_equal_files(study, folder, tmp_path):
    write_study(tmp_path / "again", study)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(folder)).read_bytes()


def test_sessions_use_the_study_name(study, tmp_path):
    second = replace(study, study_id="sub-01_ses-02")
    write_study(tmp_path / "ses-02", second)
    assert (tmp_path / "ses-02/anat/sub-01_ses-02_T2w.nii.gz").is_file()
    assert read_study(tmp_path / "ses-02", "sub-01_ses-02", "sub-01", ROIS).t2w is not None


def test_a_missing_modality_is_noted(folder):
    image_path(folder, "sub-01", "dce").unlink()
    found = read(folder)
    assert found.dce is None
    assert found.missing == ("dce",)
    assert found.missing_notes == ["missing modality: DCE"]
    assert found.notes == []


def test_no_modality_at_all_is_refused(folder):
    for kind in ("t2w", "adc", "dce"):
        image_path(folder, "sub-01", kind).unlink()
    for b_value in (0, 12.5, 800):
        diffusion_path(folder, "sub-01", b_value).unlink()
    refused(folder, names="none of T2, ADC, DCE")


def test_no_label_map_and_foreign_labels(folder):
    assert "labels without a row in rois.tsv: 2" in read(folder, ROIS[:1]).notes
    image_path(folder, "sub-01", "rois").unlink()
    assert read(folder, []).roi_map is None
    refused(folder, names="names 2 ROIs but the study has no label map")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_images(study, folder, value):
    array = study.adc.array.copy()
    array[1, 2, 3] = value
    write_volume(image_path(folder, "sub-01", "adc"), study.adc.with_array(array))
    assert "ADC" in refused(folder, names="1 voxels that are NaN or infinite").file


def test_constant_images_and_frames(study, folder):
    flat = study.t2w.with_array(np.full(study.t2w.shape, 7, np.uint16))
    write_volume(image_path(folder, "sub-01", "t2w"), flat)
    refused(folder, names="constant: every voxel is 7")
    write_volume(image_path(folder, "sub-01", "t2w"), study.t2w)
    frames = study.dce.frames.copy()
    frames[3] = 0
    write_study(folder, replace(study, dce=replace(study.dce, frames=frames)))
    refused(folder, names="frame 4 is constant")


def test_masks_in_another_frame_of_reference(study, folder):
    far = replace(study.roi_map, origin=(900.0, 0.0, 0.0))
    write_volume(image_path(folder, "sub-01", "rois"), far)
    refused(folder, names="different frames of reference")
    write_volume(image_path(folder, "sub-01", "rois"), study.roi_map)
    write_sidecar(image_path(folder, "sub-01", "rois"), {"FrameOfReferenceUID": "1.2.3"})
    write_sidecar(image_path(folder, "sub-01", "t2w"), {"FrameOfReferenceUID": "1.2.4"})
    refused(folder, names=r"different frames of reference: 1\.2\.3 and 1\.2\.4")


@pytest.mark.parametrize(
    ("stated", "told"),
    [(1400, 1400.0), (0, 0.0), ([50, 800], None), ("high", None), (True, None), (-1, None)],
)
def test_a_b_value_is_told_and_refuses_no_study(study, folder, stated, told):
    write_sidecar(image_path(folder, "sub-01", "adc"), {"BValue": stated})
    read = read_study(folder, "sub-01", "sub-01", study.rois)
    assert read.protocols["adc"].b_value == told


def test_sheared_and_placeless_files(study, folder):
    path = image_path(folder, "sub-01", "t2w")
    stored = nibabel.load(path)
    affine = stored.affine.copy()
    affine[:3, 2] += 0.2 * affine[:3, 0]
    nibabel.save(nibabel.Nifti1Image(np.asanyarray(stored.dataobj), affine), path)
    refused(folder, names="not orthonormal")
    placeless = nibabel.Nifti1Image(np.asanyarray(stored.dataobj), None)
    nibabel.save(placeless, path)
    refused(folder, names="where it lies in the patient")


def test_damaged_files(folder):
    path = image_path(folder, "sub-01", "t2w")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    refused(folder, names="not a readable NIfTI file")
    # Of a damaged byte the voxels say nothing: the checksum at the end of the file does.
    path.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
    refused(folder, names="CRC check failed")
    unpacked = igzip.decompress(content) + bytes(60_000)
    longer = igzip.compress(unpacked)
    path.write_bytes(longer[:-8] + bytes([longer[-8] ^ 1]) + longer[-7:])
    refused(folder, names="CRC check failed")
    path.write_bytes(b"no image")
    refused(folder, names="not a readable NIfTI file")
    with pytest.raises(CadError, match="no such image file"):
        read_volume(folder / "nothing.nii.gz")


def test_dynamic_times(folder):
    path = image_path(folder, "sub-01", "dce")
    side = sidecar_path(path)
    for times, message in (
        (None, "without times"),
        ([0, 1, 2], "5 dynamic frames but 3 times"),
        ([0, 4, 4, 8, 12], "times must increase"),
        ("soon", "list of seconds"),
        ([], "list of seconds"),
    ):
        side.write_text(json.dumps({} if times is None else {"VolumeTiming": times}))
        refused(folder, names=message)
    side.write_text(json.dumps({"VolumeTiming": [0, 1, 2, 3, 4], "FlipAngle": -3}))
    refused(folder, names="FlipAngle must be a positive number")
    side.write_text("{")
    refused(folder, names="not valid JSON")
    with pytest.raises(CadError, match="expected 4 axes"):
        read_dynamic(image_path(folder, "sub-01", "t2w"))


def test_flip_angles(study, folder):
    side = sidecar_path(vfa_path(folder, "sub-01", 2))
    side.write_text(json.dumps({"FlipAngle": 15, "RepetitionTime": 0.005}))
    refused(folder, names="differ in RepetitionTime")
    side.write_text("{}")
    refused(folder, names="without FlipAngle")
    write_study(folder, study)
    write_volume(vfa_path(folder, "sub-01", 2), image(shape=(6, 12, 9)))
    refused(folder, names="different grids")


def test_label_maps_and_masks(study, folder):
    path = image_path(folder, "sub-01", "rois")
    write_volume(path, study.roi_map.with_array(study.roi_map.array * np.float32(0.5)))
    refused(folder, names="whole numbers")
    write_volume(path, study.roi_map.with_array(-study.roi_map.array.astype(np.int16)))
    refused(folder, names="no negative labels")
    write_volume(path, study.roi_map.with_array(study.roi_map.array.astype(np.float32)))
    assert read(folder).roi_map.array.dtype == np.int32
    empty = study.gland.with_array(np.zeros(study.gland.shape, bool))
    write_volume(image_path(folder, "sub-01", "gland"), empty)
    refused(folder, names="mask is empty")


def test_regions_that_cannot_be_measured(study, folder):
    labels = study.roi_map.array.copy()
    labels[labels == 2] = 0
    labels[5, 0, 0:4] = 3
    write_volume(image_path(folder, "sub-01", "rois"), study.roi_map.with_array(labels))
    found = check_study(replace(read(folder, [*ROIS, Roi("speck", 3)]), gland=None))
    assert [p.roi for p in found] == ["lesion2", "speck"]
    assert "the ROI is empty" in found[0].problem
    assert "T2: it fills 4.0 voxels" in found[1].problem
    assert "ADC: " in found[1].problem
    assert all(p.patient == "sub-01" for p in found)


def test_diffusion_names():
    assert diffusion_path(Path("x"), "sub-01", 12.5).name == "sub-01_acq-b12p5_dwi.nii.gz"
