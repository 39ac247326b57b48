"""Features are the man's: order of storage, a mirror and the field of view change none."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import nibabel
import numpy as np
import pytest
from numpy.lib.recfunctions import structured_to_unstructured

from cad.base.settings import FeatureSettings, ImageSettings, PipelineSettings
from cad.mri.features.intensity import statistics
from cad.mri.features.regions import RegionVoxels
from cad.mri.features.table import extract
from cad.mri.imaging.nifti import read_dynamic, read_volume, write_dynamic, write_volume
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Dynamic, Volume

SETTINGS = PipelineSettings(
    name="test",
    images=ImageSettings(t2_reference="regions", spacing_t2w=(1.0, 1.0, 0.0)),
    features=FeatureSettings(),
)


def tilted(volume: Volume) -> Volume:
    """The same voxels 12 degrees about the left-right axis and 4 about the head-foot axis."""
    a, b = np.radians((12.0, 4.0))
    about_x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    about_z = np.array([[np.cos(b), -np.sin(b), 0], [np.sin(b), np.cos(b), 0], [0, 0, 1]])
    turn = about_z @ about_x
    x, y, z = map(float, turn @ np.array(volume.origin))
    return replace(volume, origin=(x, y, z), direction=turn @ np.asarray(volume.direction))


def of_each(study: Study, change) -> Study:  # type: ignore[no-untyped-def]
    """Apply a change of volumes to all that a study has."""
    assert study.dce is not None
    frames = [change(study.dce.grid.with_array(frame)) for frame in study.dce.frames]
    dce = replace(study.dce, frames=np.stack([f.array for f in frames]), grid=frames[0])
    images = {name: change(getattr(study, name)) for name in ("t2w", "adc", "roi_map")}
    return replace(study, dce=dce, **images)


def mirrored(volume: Volume) -> Volume:
    """The mirror image of the patient: left and right change sides, voxels stay where they are."""
    flip = np.diag([-1.0, 1.0, 1.0])
    x, y, z = map(float, flip @ np.array(volume.origin))
    seen = replace(volume, origin=(x, y, z), direction=flip @ np.asarray(volume.direction))
    return seen.upright()


def stored(path: Path, order: tuple[int, ...], flips: tuple[int, ...]) -> None:
    """Store a NIfTI file's voxels in another order of axes and senses, at their places."""
    image = nibabel.load(path)
    array = np.asanyarray(image.dataobj)
    array = array.transpose(*order, *range(3, array.ndim))
    affine = image.affine[:, [*order, 3]].copy()
    for axis in np.flatnonzero(flips):
        affine[:, 3] += affine[:, axis] * (array.shape[axis] - 1)
        affine[:, axis] *= -1
        array = np.flip(array, axis)
    made = nibabel.Nifti1Image(array, affine)
    made.set_sform(affine, 1)
    made.set_qform(None, 0)
    made.header.set_xyzt_units("mm", "sec")
    nibabel.save(made, path)


def through_files(
    study: Study, folder: Path, order: tuple[int, ...], flips: tuple[int, ...]
) -> Study:
    """Write a study, store its files in another order, read it again."""
    out = {}
    for name in ("t2w", "adc", "roi_map"):
        path = folder / f"{name}.nii.gz"
        write_volume(path, getattr(study, name))
        stored(path, order, flips)
        out[name] = read_volume(path)
    path = folder / "dce.nii.gz"
    assert isinstance(study.dce, Dynamic)
    write_dynamic(path, study.dce)
    stored(path, order, flips)
    return replace(study, dce=read_dynamic(path), **out)


def values(study: Study) -> np.ndarray:
    found = extract(study, SETTINGS)
    assert not found.failures
    return found.rows.iloc[:, 2:].to_numpy(float)


def test_every_order_of_storage_is_read_as_one(study: Study, tmp_path: Path) -> None:
    """48 orders: the same array, the same place to the micrometre."""
    assert study.t2w is not None
    image = tilted(study.t2w)
    for order, flips in product(permutations(range(3)), product((0, 1), repeat=3)):
        path = tmp_path / "image.nii.gz"
        write_volume(path, image)
        stored(path, order, flips)
        again = read_volume(path)
        assert np.array_equal(again.array, image.array)
        np.testing.assert_allclose(again.affine, image.affine, atol=1e-3)


@pytest.mark.parametrize(
    ("normal", "axes"),
    [
        ("sagittal", [[0, 0, -1], [1, 0, 0], [0, -1, 0]]),
        ("coronal", [[1, 0, 0], [0, 0, 1], [0, -1, 0]]),
    ],
)
def test_slices_stay_slices(normal: str, axes: list[list[int]]) -> None:
    """A sagittal or coronal series keeps its thick axis as z, and its head on top (DICOM's way)."""
    image = Volume(np.arange(60.0).reshape(3, 4, 5), (0.6, 0.6, 3.0), (0, 0, 0), np.array(axes))
    back = image.turned(np.asarray(axes) * [-1, 1, -1])
    assert back.shape == image.shape
    assert np.array_equal(back.upright().array, image.upright().array)
    assert image.upright().spacing == (0.6, 0.6, 3.0)
    assert np.asarray(image.upright().direction)[2, 1] == -1


@pytest.mark.parametrize(
    ("order", "flips"), [((0, 1, 2), (1, 0, 0)), ((2, 1, 0), (0, 0, 0)), ((1, 2, 0), (1, 0, 1))]
)
def test_order_of_storage_changes_no_feature(
    study: Study, tmp_path: Path, order: tuple[int, ...], flips: tuple[int, ...]
) -> None:
    plain = values(through_files(of_each(study, tilted), tmp_path, (0, 1, 2), (0, 0, 0)))
    other = values(through_files(of_each(study, tilted), tmp_path, order, flips))
    np.testing.assert_allclose(other, plain, rtol=1e-9, atol=1e-12)


def test_a_mirrored_man_has_the_same_features(study: Study, tmp_path: Path) -> None:
    """Files keep axes parallel to 1e-7 only: no corner that a mirror exchanges may be counted from.

    So it was first: probabilities moved by 2.9e-9.
    """
    as_stored = (tmp_path, (0, 1, 2), (0, 0, 0))
    man = through_files(of_each(study, tilted), *as_stored)
    plain = values(man)
    for other in (of_each(man, mirrored), through_files(of_each(man, mirrored), *as_stored)):
        np.testing.assert_allclose(values(other), plain, rtol=1e-9, atol=1e-11)


def test_the_field_of_view_of_t2_changes_no_feature(study: Study) -> None:
    assert study.t2w is not None
    x, y, z = map(float, study.t2w.index_to_patient(np.array([-20.0, -20.0, 0.0])))
    wide = np.pad(study.t2w.array, ((0, 0), (20, 20), (20, 20)))
    padded = replace(study.t2w, array=wide, origin=(x, y, z))
    narrow = [n for n in extract(study, SETTINGS).rows if n.startswith("t2w_")]
    plain, other = (
        extract(replace(study, t2w=image), SETTINGS).rows[narrow].to_numpy(float)
        for image in (study.t2w, padded)
    )
    np.testing.assert_allclose(other, plain, rtol=1e-6, atol=1e-6)


def test_equal_shares_are_in_the_core_together() -> None:
    """Eleven whole voxels and four halves hold 13: eleven or fifteen are as near, so the more."""
    share = np.zeros((1, 5, 5))
    share.flat[:11] = 1.0
    share.flat[11:15] = 0.5 + np.array([1e-7, -1e-7, 0, 1e-8])
    assert RegionVoxels.from_shares([share]).is_core.sum() == 15
    share.flat[11:15] = 0.4
    assert RegionVoxels.from_shares([share]).is_core.sum() == 11


def test_weights_of_equal_values_are_shared() -> None:
    value, weight = np.array([1.0, 2.0, 2.0, 2.0, 5.0]), np.array([1.0, 0.2, 0.9, 0.4, 1.0])
    start, core = np.array([0, 5]), np.ones(5, bool)
    rows = [
        structured_to_unstructured(statistics(value, start, weight[[0, *order, 4]], core))
        for order in permutations((1, 2, 3))
    ]
    for row in rows[1:]:
        np.testing.assert_allclose(row, rows[0], rtol=1e-14)
    even = structured_to_unstructured(statistics(value, start, np.full(5, 0.7), core))[0]
    plain = structured_to_unstructured(statistics(value, start))[0]
    np.testing.assert_allclose(np.delete(even, 18), np.delete(plain, 18), rtol=1e-12, atol=1e-12)
