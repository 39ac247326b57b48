"""A NIfTI file that states its place by sform and by qform states one place."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

from cad.base.errors import CadError
from cad.mri.imaging.nifti import read_dynamic, read_image, stored_axes

SHAPE = (6, 5, 4)
AFFINE = np.array([[-2.0, 0, 0, 30], [0, -2, 0, 20], [0, 0, 3, -10], [0, 0, 0, 1]])


def moved(millimetres: float) -> np.ndarray:
    affine = AFFINE.copy()
    affine[0, 3] += millimetres
    return affine


def saved(
    path: Path,
    sform: np.ndarray,
    qform: np.ndarray,
    codes: tuple[int, int] = (1, 1),
    shape: tuple[int, ...] = SHAPE,
) -> Path:
    image = nibabel.Nifti1Image(np.ones(shape, np.uint8), sform)
    image.set_qform(qform, codes[1])
    image.set_sform(sform, codes[0])
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, path)
    return path


@pytest.mark.parametrize("codes", [(1, 1), (2, 1), (1, 2), (4, 1)])
@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
def test_a_file_that_lies_in_two_places_is_refused(
    tmp_path: Path, name: str, codes: tuple[int, int]
):
    """Programs differ in the form that they take, also where the codes differ."""
    path = saved(tmp_path / name, AFFINE, moved(-40), codes)
    for read in (read_image, stored_axes):
        with pytest.raises(CadError) as caught:
            read(path)
        message = str(caught.value)
        assert "two places, up to 40 mm apart" in message
        assert f"(-25, -16, -5.5) mm by sform (code {codes[0]})" in message
        assert f"(15, -16, -5.5) mm by qform (code {codes[1]})" in message
        assert "set the code of the wrong one to 0" in message


def test_a_turned_qform_is_another_place(tmp_path: Path):
    turned = AFFINE.copy()
    turned[:3, :3] = turned[:3, :3] @ np.diag([-1, -1, 1])
    with pytest.raises(CadError, match="two places, up to 20 mm apart"):
        read_image(saved(tmp_path / "x.nii", AFFINE, turned))


def test_a_dynamic_series_that_lies_in_two_places_is_refused(tmp_path: Path):
    path = saved(tmp_path / "x.nii", AFFINE, moved(3), shape=(*SHAPE, 2))
    (tmp_path / "x.json").write_text(json.dumps({"VolumeTiming": [0, 1]}))
    with pytest.raises(CadError, match="two places, up to 3 mm apart"):
        read_dynamic(path)
    saved(path, AFFINE, AFFINE, shape=(*SHAPE, 2))
    assert read_dynamic(path).frames.shape == (2, 4, 5, 6)


@pytest.mark.parametrize(("unit", "apart"), [("meter", "2000 mm"), ("mm", "2 mm")])
def test_the_two_places_are_compared_in_mm(tmp_path: Path, unit: str, apart: str):
    path = saved(tmp_path / "x.nii", AFFINE, moved(2))
    image = nibabel.load(path)
    image.header.set_xyzt_units(unit)
    nibabel.save(image, tmp_path / "y.nii")
    with pytest.raises(CadError, match=f"two places, up to {apart} apart"):
        read_image(tmp_path / "y.nii")
    image = nibabel.load(saved(path, AFFINE, moved(2)))
    image.header.set_xyzt_units("micron")
    nibabel.save(image, tmp_path / "y.nii")
    assert read_image(tmp_path / "y.nii").shape == (4, 5, 6)


@pytest.mark.parametrize("codes", [(1, 0), (0, 1)])
def test_a_form_whose_code_is_0_counts_for_nothing(tmp_path: Path, codes: tuple[int, int]):
    forms = (AFFINE, moved(-40)) if codes[0] else (moved(-40), AFFINE)
    volume = read_image(saved(tmp_path / "x.nii", *forms, codes))
    np.testing.assert_allclose(volume.centre, (-25, -16, -5.5))


def test_a_qform_that_is_no_rotation_is_refused(tmp_path: Path):
    path = saved(tmp_path / "x.nii", AFFINE, AFFINE)
    content = bytearray(path.read_bytes())
    content[256:260] = np.float32(2).tobytes()
    path.write_bytes(content)
    with pytest.raises(CadError, match=r"the qform is no place.*set qform_code to 0"):
        read_image(path)


def test_a_unit_that_the_format_does_not_know_is_named(tmp_path: Path):
    path = tmp_path / "x.nii"
    image = nibabel.Nifti1Image(np.zeros((3, 4, 5), np.int16), np.eye(4))
    image.header["xyzt_units"] = 5
    image.to_filename(path)
    with pytest.raises(CadError, match="xyzt_units has the unit of length 5"):
        read_image(path)


@pytest.mark.parametrize("tilt", [0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 0.1, 0.3])
def test_what_rounding_of_a_qform_does_is_no_second_place(tmp_path: Path, tilt: float):
    """Of slightly tilted axial images of 400 mm, as two libraries write them."""
    rng = np.random.default_rng(0)
    for number in range(4):
        x, y, z = rng.normal(size=3)
        turn = sitk.VersorTransform((float(x), float(y), float(z)), tilt)
        direction = np.array(turn.GetMatrix()).reshape(3, 3)
        affine = np.eye(4)
        affine[:3, :3] = np.diag([-1, -1, 1]) @ direction @ np.diag([3.1, 3.1, 3.6])
        affine[:3, 3] = rng.uniform(-250, 250, 3)
        path = saved(tmp_path / f"{number}.nii", affine, affine, shape=(128, 128, 30))
        assert read_image(path).shape == (30, 128, 128)
        image = sitk.GetImageFromArray(np.ones((30, 128, 128), np.uint8))
        image.SetSpacing((3.1, 3.1, 3.6))
        image.SetDirection(direction.ravel())
        sitk.WriteImage(image, str(path))
        header = nibabel.load(path).header
        assert header["qform_code"] == header["sform_code"] == 1
        assert read_image(path).shape == (30, 128, 128)
